//! Who may, and how slow guessing is.

use std::sync::Arc;
use std::time::Instant;

use bridge_dlq_admin::TokenOrigin;
use bridge_testkit::http::{self, Response};
use bridge_testkit::wait_for;

use crate::fixture::{Fixture, PATIENCE, Setup, TOKEN, audited, json, logged, problem};

const ASK: &str = "/api/v1/bridge";

async fn with_bearer(port: u16, token: &str) -> Response {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    http::request(port, "GET", ASK, &headers, "").await.unwrap()
}

#[tokio::test]
async fn without_with_a_wrong_and_with_the_right_token() {
    let fixture = Fixture::start().await;
    let without = fixture.anonymous("GET", ASK).await;
    problem(&without, 401, "not-logged-in");
    assert_eq!(
        without.header("www-authenticate"),
        Some("Bearer realm=\"bridge\"")
    );
    problem(
        &with_bearer(fixture.port, "wrong").await,
        401,
        "wrong-token",
    );
    assert_eq!(fixture.get(ASK).await["id"], "test");
    // Nobody learns what there is, and what there is not.
    for path in ["/api/v1/nothing", "/api", "/api/v1/bridge/"] {
        problem(&fixture.anonymous("GET", path).await, 401, "not-logged-in");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn ten_thousand_wrong_tokens_are_slowed_and_the_server_lives() {
    let fixture = Arc::new(Fixture::start().await);
    let began = Instant::now();
    let mut guessing = tokio::task::JoinSet::new();
    for guesser in 0..10 {
        let port = fixture.port;
        guessing.spawn(async move {
            let mut statuses = [0_u32; 2];
            for guess in 0..1_000 {
                let token = format!("guess-{guesser}-{guess}-0123456789");
                let response = with_bearer(port, &token).await;
                match response.status {
                    401 => statuses[0] += 1,
                    429 => {
                        let wait = response.header("retry-after").unwrap();
                        assert!(matches!(wait, "1" | "2"), "{wait}");
                        statuses[1] += 1;
                    }
                    other => panic!("{other}: {}", response.body),
                }
            }
            statuses
        });
    }
    let all = guessing.join_all().await;
    let looked_at: u32 = all.iter().map(|statuses| statuses[0]).sum();
    let slowed: u32 = all.iter().map(|statuses| statuses[1]).sum();
    assert_eq!(looked_at + slowed, 10_000);
    // Ten at once, and one more every other second, however long this has taken.
    let most = 11 + began.elapsed().as_secs() / 2;
    assert!((10..=most).contains(&looked_at.into()), "{looked_at}");
    // The right one waits like the others, and not longer.
    wait_for("the right token is looked at", PATIENCE, async || {
        let response = fixture.ask("GET", ASK).await;
        match response.status {
            200 => Some(()),
            429 => None,
            other => panic!("{other}: {}", response.body),
        }
    })
    .await;
    let lines = logged();
    assert!(!lines.contains("guess-"), "a guess is in the log");
    assert!(!audited("logins_slowed").is_empty());
}

#[tokio::test]
async fn a_page_logs_in_is_known_by_its_cookie_and_logs_out() {
    let fixture = Fixture::start().await;
    let json_body = [("content-type", "application/json")];
    let login = |body: String| {
        let port = fixture.port;
        async move {
            http::request(port, "POST", "/api/v1/session", &json_body, &body)
                .await
                .unwrap()
        }
    };
    for body in ["", "{}", "{\"token\": 5}", "{\"tokn\": \"x\"}"] {
        let refused = login(body.to_owned()).await;
        assert!(matches!(refused.status, 400 | 422), "{body}: {refused:?}");
    }
    // What is refused is not repeated: it may be the token.
    let odd = login(format!("{{\"token\": [\"{TOKEN}\"]}}")).await;
    assert!(!problem(&odd, 422, "invalid").to_string().contains(TOKEN));
    problem(
        &login("{\"token\": \"wrong\"}".to_owned()).await,
        401,
        "wrong-token",
    );
    let opened = login(format!("{{\"token\": \"{TOKEN}\"}}")).await;
    let who = json(&opened)["who"].as_str().unwrap().to_owned();
    assert!(who.contains("page session 1 of token "), "{who}");
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();

    let page =
        |method: &'static str, path: &'static str, more: Vec<(&'static str, &'static str)>| {
            let mut headers = vec![("cookie", cookie)];
            headers.extend(more);
            let port = fixture.port;
            async move {
                http::request(port, method, path, &headers, "")
                    .await
                    .unwrap()
            }
        };
    assert_eq!(page("GET", ASK, vec![]).await.status, 200);
    let seen = page("GET", "/api/v1/session", vec![]).await;
    assert_eq!(json(&seen)["who"], who);
    let foreign = vec![("sec-fetch-site", "cross-site")];
    problem(&page("GET", ASK, foreign).await, 403, "foreign-request");
    let change = page("DELETE", "/api/v1/session", vec![]).await;
    problem(&change, 403, "foreign-request");
    let out = page("DELETE", "/api/v1/session", vec![("x-bridge-page", "1")]).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    problem(&page("GET", ASK, vec![]).await, 401, "not-logged-in");
    assert!(!audited("login").is_empty());
    assert!(!logged().contains(TOKEN), "the token is in the log");
    let id = cookie.split_once('=').unwrap().1;
    assert!(
        !logged().contains(id),
        "the id of a page session is in the log"
    );
    fixture.stop().await;
}

#[tokio::test]
async fn a_token_file_that_is_renewed_changes_what_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "the-first-token-of-all\n").unwrap();
    let fixture = Fixture::with(Setup {
        token: TokenOrigin::File(path.clone()),
        ..Setup::default()
    })
    .await;
    let first = with_bearer(fixture.port, "the-first-token-of-all").await;
    assert_eq!(first.status, 200);
    let json = [("content-type", "application/json")];
    let login = "{\"token\": \"the-first-token-of-all\"}";
    let opened = http::request(fixture.port, "POST", "/api/v1/session", &json, login);
    let opened = opened.await.unwrap();
    let cookie = opened.header("set-cookie").unwrap();
    let cookie = [("cookie", cookie.split(';').next().unwrap())];
    let page = async || http::request(fixture.port, "GET", ASK, &cookie, "").await;
    assert_eq!(page().await.unwrap().status, 200);
    let new = path.with_extension("new");
    std::fs::write(&new, "the-second-token-of-all\n").unwrap();
    std::fs::rename(&new, &path).unwrap();
    // Asked seldom: a wrong token is held against its client.
    wait_for(
        "the first one opens nothing any more",
        PATIENCE,
        async || {
            let first = with_bearer(fixture.port, "the-first-token-of-all").await;
            (first.status == 401).then_some(())
        },
    )
    .await;
    let second = with_bearer(fixture.port, "the-second-token-of-all").await;
    assert_eq!(second.status, 200);
    problem(&page().await.unwrap(), 401, "not-logged-in");
    fixture.stop().await;
}
