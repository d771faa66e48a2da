//! Pausing bindings, and test messages.

use crate::fixture::{Fixture, Setup, audited, json, problem};

const ONE: &str = "/api/v1/bindings/telemetry/one";
const INJECT: &str = "/api/v1/routes/telemetry/inject";

#[tokio::test]
async fn a_paused_binding_queues_and_goes_on_when_it_is_resumed() {
    let fixture = Fixture::start().await;
    let paused = json(&fixture.post(&format!("{ONE}/pause"), "").await);
    assert_eq!(
        (&paused["paused"], &paused["changed"]),
        (&true.into(), &true.into())
    );
    let again = json(&fixture.post(&format!("{ONE}/pause"), "").await);
    assert_eq!(again["changed"], false);
    for n in 0..3 {
        fixture.publish("a", &n.to_string()).await;
    }
    let one = fixture.binding_until("one", "three are queued", |binding| {
        binding["queue"]["entries"] == 3
    });
    let one = one.await;
    assert_eq!(
        (&one["paused"], &one["why"]),
        (&true.into(), &"an operator has paused it".into())
    );
    assert_eq!(fixture.sinks["one"].accepted(), Vec::<String>::new());
    let resumed = json(&fixture.post(&format!("{ONE}/resume"), "").await);
    assert_eq!(
        (&resumed["paused"], &resumed["changed"]),
        (&false.into(), &true.into())
    );
    let drained = fixture.binding_until("one", "the queue is empty", |binding| {
        binding["queue"]["entries"] == 0 && binding["state"] == "live"
    });
    assert_eq!(drained.await["paused"], false);
    assert_eq!(fixture.sinks["one"].accepted(), ["0", "1", "2"]);
    assert!(!audited("action=\"pause\"").is_empty());
    for path in ["telemetry/nine", "gone/one", "a%20b/one"] {
        let response = fixture
            .post(&format!("/api/v1/bindings/{path}/pause"), "")
            .await;
        problem(&response, 404, "not-found");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_test_message_goes_through_the_route_or_to_one_binding() {
    let fixture = Fixture::start().await;
    fixture.sinks["two"].answer_with(0x99);
    let path = format!("{INJECT}?wait=20");
    let body = "{\"topic\": \"a\", \"payload\": \"all\"}";
    let response = fixture.post(&path, body).await;
    assert_eq!(response.status, 207, "{}", response.body);
    let answer = json(&response);
    assert_eq!(answer["stored"], true);
    let verdicts: Vec<_> = (0..3)
        .map(|n| answer["bindings"][n]["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["delivered", "refused", "delivered"]);
    assert!(answer["bindings"][1]["dead_letter"].is_string());
    let body = "{\"topic\": \"$strange\", \"payload_base64\": \"b25l\", \"binding\": \"one\", \
                \"properties\": {\"user_properties\": [[\"a\", \"b\"]], \"message_expiry\": 60}}";
    let response = fixture.post(&path, body).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(fixture.sinks["one"].accepted(), ["all", "one"]);
    assert_eq!(fixture.sinks["three"].accepted(), ["all"]);
    assert!(!audited("action=\"inject\"").is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn a_test_message_that_no_binding_could_publish_is_refused_at_once() {
    let fixture = Fixture::with(Setup {
        topic: "out/{topic[1]}",
        ..Setup::default()
    })
    .await;
    let only_one = "{\"topic\": \"a\", \"binding\": \"one\"}";
    let response = fixture.post(INJECT, only_one).await;
    assert_eq!(problem(&response, 422, "invalid")["field"], "topic");
    let path = format!("{INJECT}?wait=20");
    let answer = json(&fixture.post(&path, "{\"topic\": \"a\"}").await);
    let of_one = &answer["bindings"][0];
    assert_eq!(
        (&of_one["verdict"], &of_one["reason"]),
        (&"refused".into(), &"topic_invalid".into()),
        "the others can: it goes as a message does that arrives"
    );
    assert_eq!(answer["bindings"][1]["verdict"], "delivered");
    let one = fixture.binding_until("one", "it is idle", |binding| {
        binding["queue"]["entries"] == 0
    });
    assert_eq!(
        one.await["dead_letters"]["entries"],
        1,
        "nothing of the first"
    );
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_no_test_message_is_said() {
    let fixture = Fixture::start().await;
    for (body, field) in [
        ("{\"topic\": \"a/#\"}", "topic"),
        ("{\"topic\": \"$SYS/x\"}", "topic"),
        ("{\"topic\": \"\"}", "topic"),
        ("{\"topic\": \"a\", \"qos\": 3}", "qos"),
        (
            "{\"topic\": \"a\", \"payload\": \"x\", \"payload_base64\": \"eA==\"}",
            "payload_base64",
        ),
        (
            "{\"topic\": \"a\", \"payload_base64\": \"?\"}",
            "payload_base64",
        ),
        ("{\"topic\": \"a\", \"binding\": \"a b\"}", "binding"),
        (
            "{\"topic\": \"a\", \"properties\": {\"response_topic\": \"+\"}}",
            "properties.response_topic",
        ),
        (
            "{\"topic\": \"a\", \"properties\": {\"content_type\": \"a\\u0000\"}}",
            "properties.content_type",
        ),
    ] {
        let response = fixture.post(INJECT, body).await;
        assert_eq!(problem(&response, 422, "invalid")["field"], field, "{body}");
    }
    let nowhere = fixture
        .post(INJECT, "{\"topic\": \"a\", \"binding\": \"nine\"}")
        .await;
    problem(&nowhere, 404, "not-found");
    let nowhere = fixture
        .post("/api/v1/routes/gone/inject", "{\"topic\": \"a\"}")
        .await;
    problem(&nowhere, 404, "not-found");
    fixture.stop().await;
}
