//! `bridge health`: what a container's health check is told.

use std::process::Output;

use bridge_testkit::{BridgeConfig, Installation, Mosquitto, wait_for};

use crate::setup::{BRIDGE, PATIENCE};

/// `bridge health` with these arguments, in an environment with nothing in it.
async fn health(args: &[&str]) -> Output {
    let mut program = std::process::Command::new(BRIDGE);
    program.arg("health").args(args).env_clear();
    // The bridge's answer may need the brokers of the test, which go on meanwhile.
    let output = tokio::task::spawn_blocking(move || program.output());
    output.await.unwrap().unwrap()
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8(text).unwrap()
}

/// An installation whose file says that the monitor listens on every address.
fn everywhere(config: &BridgeConfig) -> Installation {
    Installation::with(|port| {
        let yaml = config.to_yaml(port);
        let here = format!("127.0.0.1:{port}");
        assert!(yaml.contains(&here));
        yaml.replace(&here, &format!("0.0.0.0:{port}"))
    })
}

#[tokio::test]
async fn a_health_check_says_whether_the_bridge_is_ready_and_why_not() {
    let mut source = Mosquitto::start().await;
    let destination = Mosquitto::start().await;
    let config = BridgeConfig::between(source.url(), destination.url());
    let installation = everywhere(&config);
    let file = installation.config_path();
    let file = file.to_str().unwrap();

    let before = health(&["--config", file]).await;
    assert_eq!(before.status.code(), Some(1));
    assert!(
        said(&before).contains("cannot connect to 127.0.0.1"),
        "{}",
        said(&before)
    );
    assert_eq!(
        said(&before).matches("os error").count(),
        1,
        "the cause is said once: {}",
        said(&before)
    );

    let mut bridge = installation.bridge(BRIDGE).start().await;
    let url = format!("http://127.0.0.1:{}", bridge.monitor_port());
    for args in [
        ["--config", file].as_slice(),
        &["--config", file, "--level", "live"],
        &["--url", &url, "--timeout", "9s"],
    ] {
        let ready = health(args).await;
        assert_eq!(ready.status.code(), Some(0), "{args:?}: {}", said(&ready));
        assert_eq!(said(&ready), "ready\n");
    }

    source.stop().await;
    wait_for("the check fails without the source", PATIENCE, async || {
        let unready = health(&["--config", file]).await;
        let expected = "not ready (HTTP 503): session plant: source not connected\n";
        (said(&unready) == expected && unready.status.code() == Some(1)).then_some(())
    })
    .await;
    let live = health(&["--config", file, "--level", "live"]).await;
    assert_eq!(live.status.code(), Some(0), "{}", said(&live));

    // A bridge that runs is not ill because its file has become wrong since.
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, format!("{text}nonsense: true\n")).unwrap();
    let still = health(&["--config", file, "--level", "live"]).await;
    assert_eq!(still.status.code(), Some(0), "{}", said(&still));

    // One that is halted does not answer.
    bridge.pause();
    let late = health(&["--config", file, "--level", "live", "--timeout", "300ms"]).await;
    bridge.resume();
    assert_eq!(late.status.code(), Some(1));
    assert!(
        said(&late).contains("no whole answer within 300ms"),
        "{}",
        said(&late)
    );
    bridge.kill().await;
}

#[tokio::test]
async fn a_health_check_that_cannot_ask_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bridge.yaml");
    let file = file.to_str().unwrap();
    for (text, why) in [
        (None, "the file cannot be read"),
        (Some("bridge: { id: x }\n"), "has no `monitor`"),
        (
            Some("monitor: { listen: \"127.0.0.1:0\" }\n"),
            "leaves the port of the monitor to the operating system",
        ),
        (
            Some("{ monitor: { listen: here }, sessions: { s: { password: hunter2 } } }\n"),
            "`here` is not an address to listen on",
        ),
        (Some("monitor: [\n"), "not valid YAML"),
    ] {
        if let Some(text) = text {
            std::fs::write(file, text).unwrap();
        }
        let answer = health(&["--config", file]).await;
        assert_eq!(answer.status.code(), Some(1), "{}", said(&answer));
        assert!(said(&answer).contains(why), "{why}: {}", said(&answer));
        assert!(!said(&answer).contains("hunter2"), "{}", said(&answer));
    }
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", elsewhere.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = elsewhere.accept().unwrap();
        assert!(peer.read(&mut [0; 1024]).unwrap() > 0);
        peer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
    });
    let answer = health(&["--url", &url]).await;
    answering.join().unwrap();
    assert_eq!(answer.status.code(), Some(1), "{}", said(&answer));
    assert!(
        said(&answer).contains("is not the monitor of a bridge"),
        "{}",
        said(&answer)
    );
    let wrong = health(&["--url", "https://127.0.0.1:9090"]).await;
    assert!(
        said(&wrong).contains("http://127.0.0.1:9090"),
        "{}",
        said(&wrong)
    );
}
