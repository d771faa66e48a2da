//! What the commands tell of a folder after a run with refusals of every kind.

use bridge_testkit::{
    Ack, AckKind, Behaviour, BridgeConfig, Ledger, Mosquitto, Packet, Property, Publish,
    ReceivedPublish, Reply, ScriptedBroker,
};
use serde_json::Value;

use crate::fan_out::{self, To};
use crate::judged::Judged;
use crate::setup::{BRIDGE, PATIENCE, asked, publish, said, until};

/// Refuses by topic, and says why.
fn explaining() -> Behaviour {
    Behaviour::new().reply(|received: &ReceivedPublish| {
        let (code, why) = match received.publish.topic.as_str() {
            "denied" => (0x87, "ACL plant-7: no write"),
            "bad" => (0x99, "not JSON"),
            _ => return Reply::Accept,
        };
        let mut ack = Ack::new(AckKind::PubAck, received.publish.id, code);
        ack.properties = vec![Property::ReasonString(why.to_owned())];
        Reply::Packet(Box::new(Packet::Ack(ack)))
    })
}

fn letter<'a>(list: &'a Value, topic: &str) -> &'a Value {
    let letters = list["dead_letters"].as_array().unwrap();
    letters
        .iter()
        .find(|letter| letter["topic"] == topic)
        .unwrap()
}

#[tokio::test]
async fn the_commands_tell_the_whole_story_of_what_was_refused() {
    let mut judged = Judged::start(explaining(), |config| {
        config.binding("deferred: { window: 1s, retry_interval: 1s }")
    })
    .await;
    judged
        .publish_to_the_queue(&["a", "denied", "bad", "b"])
        .await;
    judged.line.accept().await;
    until(&judged.bridge, "both are given up", |ledger| {
        ledger.dead_letters == 2
    })
    .await;
    // One more of each kind, which are still there when the bridge ends.
    judged.bridge.sigterm();
    assert!(judged.bridge.wait().await.success());
    let longer = BridgeConfig::between(judged.source.url(), judged.line.url());
    judged.installation.reconfigure(&longer);
    judged.bridge.relaunch();
    judged.bridge.ready().await;
    judged.publish_to_the_queue(&["denied"]).await;
    judged.line.accept().await;
    until(&judged.bridge, "it is deferred", |ledger| {
        ledger.deferred == 1
    })
    .await;
    judged.lose_the_line().await;
    judged.publish(&["c", "d"]).await;
    until(&judged.bridge, "they are queued", |ledger| {
        ledger.queued == 2
    })
    .await;
    judged.bridge.kill().await;

    let status = asked(&judged.installation, "queue status DATA").await;
    assert_eq!(status["bridge"]["running"], false, "{status}");
    let binding = &status["bindings"][0];
    assert_eq!(
        (&binding["route"], &binding["binding"]),
        (&"all".into(), &"out".into())
    );
    for (view, entries) in [("queue", 2), ("deferred", 1), ("dead_letters", 2)] {
        assert_eq!(binding[view]["entries"], entries, "{status}");
    }
    let deferred = &binding["deferred"];
    assert!(
        deferred["first_refusal"].as_str() > deferred["oldest"].as_str(),
        "{status}"
    );

    let list = asked(&judged.installation, "dead-letters list DATA").await;
    assert_eq!(list["total"], 2, "{list}");
    for (topic, reason, code, why) in [
        ("denied", "not_authorized", 0x87, "ACL plant-7: no write"),
        ("bad", "payload_format_invalid", 0x99, "not JSON"),
    ] {
        let letter = letter(&list, topic);
        assert_eq!(letter["reason"], reason, "{letter}");
        assert_eq!(letter["reason_code"], code, "{letter}");
        assert_eq!(letter["reason_string"], why, "{letter}");
        assert_eq!(letter["route"], "all", "{letter}");
        assert_eq!(letter["binding"], "out", "{letter}");
        assert_eq!(letter["session"], "plant", "{letter}");
        assert_eq!(letter["cause"], Value::Null, "{letter}");
        let attempts = letter["attempts"].as_u64().unwrap();
        let (began, latest) = (
            letter["first_refusal"].as_str(),
            letter["last_refusal"].as_str(),
        );
        if topic == "denied" {
            assert!(attempts >= 2 && began < latest, "{letter}");
        } else {
            assert!(attempts == 1 && began == latest, "{letter}");
        }
        assert!(letter["received"].as_str() <= began, "{letter}");

        let id = letter["id"].as_str().unwrap();
        let entry = letter["dead_letter_id"].as_str().unwrap();
        let whole = asked(
            &judged.installation,
            &format!("dead-letters show DATA {id}"),
        )
        .await;
        let whole = &whole["dead_letters"][0];
        for field in [
            "id",
            "reason",
            "reason_code",
            "reason_string",
            "first_refusal",
            "attempts",
        ] {
            assert_eq!(whole[field], letter[field], "{whole}");
        }
        assert_eq!(whole["payload_text"], "x", "{whole}");
        let text = said(
            &judged.installation,
            &format!("dead-letters show DATA {id}"),
        )
        .await;
        for fact in [
            id,
            entry,
            reason,
            why,
            "all/out",
            "from plant",
            topic,
            began.unwrap(),
            latest.unwrap(),
        ] {
            assert!(text.contains(fact), "{fact} is not in\n{text}");
        }
        assert!(text.contains(&format!("(0x{code:02x})")), "{text}");
        let command = format!("dead-letters list DATA --reason {reason} --topic {topic}");
        let listed = said(&judged.installation, &command).await;
        assert_eq!(listed.matches(entry).count(), 1, "{listed}");
        let command = format!("dead-letters show DATA {entry}");
        assert_eq!(said(&judged.installation, &command).await, text);
    }
}

#[tokio::test]
async fn i26_the_log_names_a_refused_topic_once_per_binding_and_reason() {
    const TIMES: usize = 20;
    // Each topic is refused by one code at first, and later by another.
    let refusing = || {
        let refused = std::sync::Mutex::new(std::collections::HashMap::<String, usize>::new());
        Behaviour::new().reply(move |received: &ReceivedPublish| {
            let mut refused = refused.lock().unwrap();
            let times = refused.entry(received.publish.topic.clone()).or_default();
            *times += 1;
            Reply::Code(if *times <= TIMES / 2 { 0x99 } else { 0x83 })
        })
    };
    let source = Mosquitto::start().await;
    let one = ScriptedBroker::behaving(refusing()).await;
    let other = ScriptedBroker::behaving(refusing()).await;
    let to = |name, broker: &ScriptedBroker| To {
        name,
        url: broker.url(),
        session: "",
        binding: "",
    };
    let installation =
        fan_out::installation(&source.url(), &[to("one", &one), to("other", &other)]);
    let bridge = installation.bridge(BRIDGE).args(["--log-format", "json"]);
    let bridge = bridge.ready_path("/readyz?level=full").start().await;
    let topics = ["hall/1", "hall/2"];
    let messages = (0..TIMES).flat_map(|_| topics.map(|topic| Publish::new(topic, "x")));
    publish(source.port(), messages).await;
    let all = u64::try_from(TIMES * topics.len()).unwrap();
    for binding in ["one", "other"] {
        let ledger = Ledger::until(
            &bridge,
            ("all", binding),
            "all are refused",
            PATIENCE,
            |ledger| ledger.dead_letters == all,
        );
        assert_eq!(ledger.await.received, all);
        let metrics = bridge.metrics().await;
        for reason in ["payload_format_invalid", "implementation_specific_error"] {
            let labels = [("binding", binding), ("reason", reason)];
            let counted = metrics.whole("bridge_queue_dead_lettered_total", &labels);
            assert_eq!(counted, Some(all / 2), "counters carry the rate");
        }
    }
    let log = bridge.output();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut announced: Vec<String> = lines
        .filter(|fields| fields["event"] == "refused")
        .map(|fields| {
            let of = |name: &str| fields[name].as_str().unwrap().to_owned();
            [of("binding"), of("topic"), of("reason")].join(" ")
        })
        .collect();
    announced.sort();
    let mut expected = Vec::new();
    for binding in ["all/one", "all/other"] {
        for topic in topics {
            for reason in ["implementation_specific_error", "payload_format_invalid"] {
                expected.push(format!("{binding} {topic} {reason}"));
            }
        }
    }
    assert_eq!(announced, expected, "{log}");
}
