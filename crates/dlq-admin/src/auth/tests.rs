use bridge_core::{ManualClock, Timestamp};

use super::*;

const TOKEN: &str = "0123456789abcdef-right";

fn peer(encrypted: bool) -> Peer {
    Peer {
        address: "127.0.0.1:50000".parse().unwrap(),
        encrypted,
    }
}

fn auth() -> Auth {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
    Auth::open(&TokenOrigin::Text(Token::parse(TOKEN).unwrap()), clock).unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
        .collect()
}

#[test]
fn a_bearer_token_is_understood_in_any_case_of_its_scheme() {
    let auth = auth();
    for value in [format!("Bearer {TOKEN}"), format!("bearer  {TOKEN}")] {
        let who = auth.identify(
            &Method::POST,
            &headers(&[("authorization", &value)]),
            peer(false),
        );
        let who = who.unwrap().to_string();
        assert!(who.starts_with("token ") && !who.contains("right"), "{who}");
    }
    for value in [
        TOKEN.to_owned(),
        format!("Basic {TOKEN}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {TOKEN}x"),
    ] {
        let refused = auth.identify(
            &Method::GET,
            &headers(&[("authorization", &value)]),
            peer(false),
        );
        assert_eq!(refused, Err(Refusal::WrongToken), "{value}");
    }
}

/// The `name=value` of the cookie that a login gives.
fn logged_in(auth: &Auth, encrypted: bool) -> String {
    let opened = auth.log_in(TOKEN, &HeaderMap::new(), peer(encrypted));
    let opened = opened.ok().unwrap();
    let cookie = opened.cookie.to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    assert_eq!(cookie.ends_with("; Secure"), encrypted, "{cookie}");
    assert!(!cookie.contains("right"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

#[test]
fn a_login_is_known_by_its_cookie_until_it_logs_out() {
    for encrypted in [false, true] {
        let auth = auth();
        let cookie = logged_in(&auth, encrypted);
        let with = headers(&[("cookie", &format!("a=b; {cookie}; c=d"))]);
        let who = auth.identify(&Method::GET, &with, peer(encrypted));
        assert!(
            who.unwrap()
                .to_string()
                .starts_with("page session 1 of token ")
        );
        let gone = auth.log_out(&with, peer(encrypted));
        assert!(gone.to_str().unwrap().contains("Max-Age=0"));
        let who = auth.identify(&Method::GET, &with, peer(encrypted));
        assert_eq!(who, Err(Refusal::NoLogin));
    }
}

#[test]
fn a_cookie_alone_changes_nothing() {
    let auth = auth();
    let cookie = logged_in(&auth, false);
    let asked = |method: &Method, more: &[(&'static str, &str)]| {
        let mut all = vec![("cookie", cookie.as_str()), ("host", "plant:8080")];
        all.extend_from_slice(more);
        auth.identify(method, &headers(&all), peer(false))
    };
    let page = ("x-bridge-page", "1");
    assert!(asked(&Method::GET, &[]).is_ok());
    assert!(matches!(
        asked(&Method::POST, &[]),
        Err(Refusal::Foreign(_))
    ));
    assert!(asked(&Method::POST, &[page]).is_ok());
    for (name, value, good) in [
        ("origin", "http://plant:8080", true),
        ("origin", "https://plant:8080", true),
        ("origin", "http://plant:8081", false),
        ("origin", "http://evil.example", false),
        ("origin", "null", false),
        ("sec-fetch-site", "same-origin", true),
        ("sec-fetch-site", "none", true),
        ("sec-fetch-site", "same-site", false),
        ("sec-fetch-site", "cross-site", false),
    ] {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let answer = asked(&method, &[page, (name, value)]);
            assert_eq!(answer.is_ok(), good, "{method} {name}: {value}");
        }
    }
}

#[test]
fn ten_thousand_wrong_tokens_of_one_client_are_slowed() {
    let auth = auth();
    let wrong = headers(&[("authorization", "Bearer wrong-wrong-wrong")]);
    let mut looked_at = 0;
    for _ in 0..10_000 {
        match auth.identify(&Method::GET, &wrong, peer(false)) {
            Err(Refusal::WrongToken) => looked_at += 1,
            Err(Refusal::Slowed { retry_after }) => {
                assert!(retry_after <= Duration::from_secs(2));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(looked_at, 10);
}
