//! The handle of a binary under test, with a shell for the binary.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests"
)]

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use bridge_testkit::{BridgeProcess, PortLease, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SOON: Duration = Duration::from_secs(10);
const TRAPS: &str = "trap 'exit 3' TERM; echo out; echo $WORD >&2; while :; do sleep 0.02; done";

const METRICS: &str = "m{a=\"b\"} 42\n";

/// Answers `503` to the first two requests and metrics to all that follow.
async fn monitor(listener: TcpListener) {
    for nth in 0.. {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].starts_with(b"GET /"));
        let status = if nth < 2 { "503 Not Yet" } else { "200 OK" };
        let length = METRICS.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{METRICS}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn it_waits_until_the_process_is_ready_and_reads_its_metrics() {
    let lease = PortLease::take();
    let listener = TcpListener::bind(("127.0.0.1", lease.port()))
        .await
        .unwrap();
    let serving = tokio::spawn(monitor(listener));
    let process = BridgeProcess::builder("/bin/sh")
        .args(["-c", TRAPS])
        .monitor_port(lease.port())
        .start()
        .await;
    let metrics = process.metrics().await;
    assert_eq!(metrics.sum("m", &[("a", "b")]), Some(42.0));
    serving.abort();
}

#[tokio::test]
async fn signals_reach_the_process_and_its_output_is_kept() {
    let mut process = BridgeProcess::builder("/bin/sh")
        .args(["-c", TRAPS])
        .env("WORD", "err")
        .spawn();
    wait_until("it prints", SOON, || process.stderr().contains("err")).await;
    assert_eq!(process.stdout(), "out\n");
    process.sigterm();
    assert_eq!(process.wait().await.code(), Some(3));

    process.relaunch();
    wait_until("it prints", SOON, || process.stdout() == "out\nout\n").await;
    assert_eq!(process.kill().await.signal(), Some(9));
}

#[tokio::test]
#[should_panic(expected = "no such file")]
async fn a_process_that_ends_before_it_is_ready_fails_the_test_with_its_output() {
    BridgeProcess::builder("/bin/sh")
        .args(["-c", "echo no such file >&2; exit 1"])
        .monitor_port(1)
        .start()
        .await;
}

#[tokio::test]
async fn a_dropped_process_is_gone() {
    let process = BridgeProcess::builder("/bin/sh")
        .args(["-c", TRAPS])
        .spawn();
    let folder = format!("/proc/{}", process.pid().unwrap());
    assert!(std::path::Path::new(&folder).exists());
    drop(process);
    wait_until("the process is gone", SOON, || {
        let state = std::fs::read_to_string(format!("{folder}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    })
    .await;
}
