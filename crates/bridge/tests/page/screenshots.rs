//! Pictures of the views, for the book: `cargo xtask screenshots`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bridge_testkit::browser::Scheme;
use bridge_testkit::{Property, Publish, RawClient};
use tokio::time::sleep;

use crate::desk::Desk;
use crate::stage::Stage;

/// What the cloud takes at the end: it still refuses the kiln.
const MENDED: &str = "topic read #\n\
    topic write plants/7/sensors/line-1/#\n\
    topic write plants/7/sensors/boiler-3/#\n";

const LIGHT: (Scheme, &str) = (Scheme::Light, "light");
const DARK: (Scheme, &str) = (Scheme::Dark, "dark");

async fn picture(desk: &Desk, name: &str, schemes: &[(Scheme, &str)]) {
    for (scheme, ending) in schemes {
        desk.browser.look(*scheme, 1280, 800).await;
        let png = STANDARD.decode(desk.browser.screenshot().await).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/images");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("page-{name}-{ending}.png")), png).unwrap();
    }
}

fn reading(sensor: &str, value: u32) -> Publish {
    let payload = format!(
        r#"{{"sensor":"{sensor}","value":{value}.50,"unit":"°C","quality":"good","limits":{{"low":20,"high":400}},"tags":["kiln-hall","shift-2"]}}"#
    );
    Publish::new(format!("sensors/{sensor}"), payload)
        .with(Property::ContentType("application/json".to_owned()))
        .with(Property::user("trace", "4bf92f3577b34da6a3ce929d0e0e4736"))
}

/// What line 1 sends, for as long as this is awaited.
async fn traffic(port: u16) {
    let mut client = RawClient::connect(port, "line-1").await.unwrap();
    for n in 0_u32.. {
        let message = Publish::new(format!("sensors/line-1/axis-{}", n % 3), n.to_string());
        client.publish(message.qos(1)).await.unwrap();
        let wave = 12 + 6 * (n / 50 % 3) + n % 5;
        sleep(Duration::from_millis(wave.into())).await;
    }
}

#[tokio::test]
#[ignore = "writes the pictures of the book: cargo xtask screenshots"]
async fn screenshots() {
    let mut stage = Stage::start().await;
    let fed = tokio::spawn(traffic(stage.plant.port()));
    let denied = [
        reading("boiler-3/pressure", 7),
        reading("kiln/zone-1", 812),
        reading("kiln/zone-2", 806),
        Publish::new("sensors/<img src=x onerror=alert(1)>", "x".repeat(700)),
        reading("boiler-3/temperature", 411),
        reading("boiler-3/temperature", 412),
    ];
    stage.publish(denied).await;
    stage.dead_letters(6).await;
    let desk = Desk::logged_in(&stage).await;
    let browser = &desk.browser;
    // One is sent on in vain, and waits for its second chance.
    desk.go("#/dead-letters?search=sensors/kiln/zone-1").await;
    browser.sees("1 dead letter found").await;
    desk.click("button", "Redrive all 1").await;
    desk.click("button", "Redrive").await;
    browser.sees("1 deferred").await;
    desk.click("button", "Close").await;
    stage.historian.stop().await;
    desk.go("#/").await;
    browser.sees("link down").await;
    // The curves are as long as the page has been open.
    sleep(Duration::from_secs(60)).await;
    picture(&desk, "overview", &[LIGHT, DARK]).await;

    desk.go("#/dead-letters").await;
    browser.sees("5 dead letters").await;
    for row in 1..=2 {
        let path = format!("//tbody/tr[{row}]//input");
        browser.find(&path).await.click().await;
    }
    picture(&desk, "dead-letters", &[LIGHT]).await;
    browser.find("//tbody/tr[1]//a").await.click().await;
    browser.sees("\"value\": 412.50").await;
    picture(&desk, "dead-letter", &[LIGHT, DARK]).await;

    stage.cloud.reload(MENDED).await;
    desk.click("a", "← Dead letters").await;
    browser.sees("5 dead letters").await;
    desk.click("button", "Redrive all 5").await;
    desk.click("button", "Redrive").await;
    browser.sees("3 delivered").await;
    picture(&desk, "redriven", &[LIGHT]).await;
    fed.abort();
    assert!(fed.await.unwrap_err().is_cancelled());
}
