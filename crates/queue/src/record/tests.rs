//! Every record reads back as it was written, and no bytes make the decoder panic.

use bridge_core::{Cause, Message, MessageId, Name, PayloadFormat, Properties, QoS, Topic};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn any_text() -> impl Strategy<Value = String> {
    "[ -~äöü√]{0,12}"
}

fn any_properties() -> impl Strategy<Value = Properties> {
    (
        prop::option::of(prop::sample::select(vec![
            PayloadFormat::Bytes,
            PayloadFormat::Utf8,
        ])),
        prop::option::of(any::<u32>()),
        prop::option::of(any_text()),
        prop::option::of(any_text()),
        prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        prop::collection::vec((any_text(), any_text()), 0..4),
    )
        .prop_map(
            |(format, expiry, content, response, correlation, user)| Properties {
                payload_format: format,
                message_expiry: expiry,
                content_type: content,
                response_topic: response,
                correlation_data: correlation.map(Bytes::from),
                user_properties: user,
            },
        )
}

prop_compose! {
    fn any_message()(
        topic in "[a-zä/$]{1,20}",
        payload in prop::collection::vec(any::<u8>(), 0..64),
        qos in 0_u8..3,
        retain in any::<bool>(),
        properties in any_properties(),
        id in any::<[u8; 16]>(),
        cause in prop::option::of((any::<[u8; 16]>(), 0_u32..4)),
        received in any::<u64>(),
    ) -> StoredMessage {
        StoredMessage {
            id: MessageId::from_bytes(id),
            cause: cause.map(|(id, redrives)| Cause { id: MessageId::from_bytes(id), redrives }),
            session: Name::parse("plant").unwrap(),
            received: Timestamp::from_millis(received),
            message: Message {
                topic: Topic::parse(&topic).unwrap(),
                payload: payload.into(),
                qos: QoS::from_u8(qos).unwrap(),
                retain,
                properties,
            },
        }
    }
}

fn any_reason() -> impl Strategy<Value = Reason> {
    prop_oneof![
        any::<u8>().prop_map(|code| Reason::Broker(ReasonCode::new(code))),
        prop::sample::select(vec![
            Reason::PacketTooLarge,
            Reason::TopicInvalid,
            Reason::RetainUnavailable,
            Reason::QosUnavailable,
            Reason::SuspectedRefusal,
            Reason::Expired,
            Reason::ProcessorFailed,
            Reason::RetriesExhausted,
        ]),
    ]
}

prop_compose! {
    fn any_dead_letter()(
        reason in any_reason(),
        reason_string in prop::option::of(any_text()),
        first in any::<u64>(),
        last in any::<u64>(),
        attempts in any::<u32>(),
    ) -> DeadLetterInfo {
        DeadLetterInfo {
            reason,
            reason_string,
            first_refusal: Timestamp::from_millis(first),
            last_refusal: Timestamp::from_millis(last),
            attempts,
        }
    }
}

fn deferral(info: &DeadLetterInfo) -> DeferInfo {
    DeferInfo {
        reason: info.reason,
        first_refusal: info.first_refusal,
        last_refusal: info.last_refusal,
        attempts: info.attempts,
        overtaken: info.attempts % 2 == 1,
    }
}

fn frame(kind: Kind, body: &[u8]) -> Frame<'_> {
    Frame {
        seq: 77,
        kind,
        first: false,
        body,
        len: 0,
    }
}

proptest! {
    #[test]
    fn a_message_reads_back(message in any_message()) {
        let mut out = Vec::new();
        encode_message(&mut out, &message);
        prop_assert_eq!(MessageHead::decode(&out), Ok(MessageHead::of(&message)));
        prop_assert_eq!(decode_message(&out), Ok(message));
    }

    #[test]
    fn a_put_reads_back(message in any_message(), info in any_dead_letter(), copy in any::<bool>()) {
        let places = [
            ("r/queue", Placed::Queue),
            ("r/deferred", Placed::Deferred(deferral(&info))),
            ("r/dead", Placed::Dead(info)),
        ];
        let mut out = Vec::new();
        if copy {
            out.extend_from_slice(&5_u64.to_le_bytes());
        }
        encode_places(&mut out, places.iter().map(|(key, placed)| (*key, placed)));
        encode_message(&mut out, &message);
        let kind = if copy { Kind::Copy } else { Kind::Put };
        let Record::Put { seq, places: read, message: bytes } = Record::decode(&frame(kind, &out)).unwrap() else {
            panic!("another record");
        };
        prop_assert_eq!(seq, if copy { 5 } else { 77 });
        prop_assert_eq!(read, places.to_vec());
        prop_assert_eq!(decode_message(bytes), Ok(message));
    }

    #[test]
    fn moves_read_back(message in any_message(), info in any_dead_letter(), seq in any::<u64>()) {
        let mut out = Vec::new();
        encode_deferral(&mut out, "r/b", seq, &deferral(&info));
        prop_assert_eq!(
            Record::decode(&frame(Kind::Defer, &out)),
            Ok(Record::Defer { binding: "r/b", seq, info: deferral(&info) })
        );
        out.clear();
        encode_giving_up(&mut out, "r/b", seq, &info);
        prop_assert_eq!(
            Record::decode(&frame(Kind::DeadLetter, &out)),
            Ok(Record::DeadLetter { binding: "r/b", seq, info })
        );
        out.clear();
        encode_delete(&mut out, "r/b", seq);
        prop_assert_eq!(
            Record::decode(&frame(Kind::Delete, &out)),
            Ok(Record::Delete { binding: "r/b", seq })
        );
        out.clear();
        encode_redrive(&mut out, "r/b", seq, &message);
        let Ok(Record::Redrive { from, message: bytes, .. }) = Record::decode(&frame(Kind::Redrive, &out)) else {
            panic!("another record");
        };
        prop_assert_eq!(from, seq);
        prop_assert_eq!(decode_message(bytes), Ok(message));
    }

    #[test]
    fn a_settle_reads_back_and_holds_exactly_its_entries(seqs in prop::collection::btree_set(0_u64..200, 0..60)) {
        let ranges = ranges_of(seqs.iter().copied().collect());
        let mut out = Vec::new();
        encode_settle(&mut out, "r/b", &ranges);
        prop_assert_eq!(
            Record::decode(&frame(Kind::Settle, &out)),
            Ok(Record::Settle { binding: "r/b", ranges: ranges.clone() })
        );
        let held: Vec<u64> = ranges.iter().flat_map(|range| range.start..=range.end).collect();
        prop_assert_eq!(held, seqs.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(kind in 1_u8..11, body in prop::collection::vec(any::<u8>(), 0..80)) {
        let kind = Kind::from_u8(kind).unwrap();
        if let Ok(Record::Put { message, .. }) = Record::decode(&frame(kind, &body)) {
            let _ = decode_message(message);
        }
        let _ = decode_message(&body);
    }
}
