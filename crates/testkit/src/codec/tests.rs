//! The bytes of the standard's own examples, and every packet there and back.

use bytes::Bytes;

use super::*;

fn back(packet: &Packet) -> Packet {
    let bytes = packet.encode();
    // All of these are shorter than 128 bytes: one byte of length.
    assert_eq!(usize::from(bytes[1]), bytes.len() - 2);
    Packet::decode(Frame {
        first: bytes[0],
        body: Bytes::copy_from_slice(&bytes[2..]),
    })
    .unwrap()
}

#[test]
fn every_packet_reads_back_as_it_was_written() {
    let properties = vec![Property::user("a", "b"), Property::ReasonString("r".into())];
    for packet in [
        Packet::Connect(Connect {
            protocol: Protocol::V5,
            client_id: "c".into(),
            clean_start: true,
            keep_alive: 7,
            properties: vec![Property::SessionExpiry(9), Property::ReceiveMaximum(3)],
            will: Some(Will {
                topic: "w".into(),
                payload: Bytes::from_static(b"gone"),
                qos: 2,
                retain: true,
                properties: vec![Property::WillDelay(5)],
            }),
            username: Some("u".into()),
            password: Some(Bytes::from_static(b"p")),
        }),
        Packet::Connect(Connect::default()),
        Packet::ConnAck(ConnAck {
            session_present: true,
            code: 0,
            properties: properties.clone(),
        }),
        Packet::Publish(
            Publish::new("t/ü", "x")
                .qos(2)
                .id(7)
                .retained()
                .with(Property::SubscriptionId(200))
                .with(Property::CorrelationData(Bytes::from_static(&[0, 255]))),
        ),
        Packet::Publish(Publish::new("t", "").qos(0)),
        Packet::Ack(Ack::new(AckKind::PubAck, 1, 0)),
        Packet::Ack(Ack::new(AckKind::PubRec, 2, 0xE5)),
        Packet::Ack(Ack::new(AckKind::PubRel, 3, 0)),
        Packet::Ack(Ack {
            kind: AckKind::PubComp,
            id: 65535,
            code: 0x92,
            properties: properties.clone(),
        }),
        Packet::Subscribe(Subscribe {
            id: 5,
            properties: vec![Property::SubscriptionId(1)],
            filters: vec![("a/#".into(), 1), ("$share/g/b".into(), 0x2A)],
        }),
        Packet::SubAck(SubAck {
            id: 5,
            properties: Vec::new(),
            codes: vec![1, 0x87],
        }),
        Packet::Unsubscribe(Unsubscribe {
            id: 6,
            properties: Vec::new(),
            filters: vec!["a/#".into()],
        }),
        Packet::UnsubAck(SubAck {
            id: 6,
            properties: properties.clone(),
            codes: vec![0],
        }),
        Packet::PingReq,
        Packet::PingResp,
        Packet::Disconnect(Disconnect::default()),
        Packet::Disconnect(Disconnect {
            code: 0x8E,
            properties,
        }),
        Packet::Auth(Bytes::from_static(&[0x18, 0])),
    ] {
        assert_eq!(back(&packet), packet);
    }
}

#[test]
fn bytes_are_those_of_the_standard() {
    // §1.5.5, table 1-1.
    for (value, bytes) in [
        (0, &[0x00][..]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (268_435_455, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        let mut out = Vec::new();
        wire::put_var_int(&mut out, value);
        assert_eq!(out, bytes);
    }
    let connect = Packet::Connect(Connect {
        client_id: "ab".into(),
        clean_start: true,
        keep_alive: 10,
        ..Connect::default()
    });
    assert_eq!(
        connect.encode(),
        b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x0a\x00\x00\x02ab"
    );
    let publish = Publish::new("a/b", "hi").id(10);
    assert_eq!(
        Packet::Publish(publish).encode(),
        b"\x32\x0a\x00\x03a/b\x00\x0a\x00hi"
    );
    let short = Ack::new(AckKind::PubAck, 10, 0);
    assert_eq!(Packet::Ack(short).encode(), [0x40, 2, 0, 10]);
    let refused = Ack::new(AckKind::PubAck, 10, 0x87);
    assert_eq!(Packet::Ack(refused).encode(), [0x40, 3, 0, 10, 0x87]);
}

#[test]
fn bytes_that_are_no_packet_are_an_error() {
    for (first, body, error) in [
        (0x40, &[0][..], Malformed::Short),
        (0x40, &[0, 1, 0, 0, 9], Malformed::Trailing(1)),
        (0x40, &[0, 1, 0, 1, 0x7F], Malformed::Property(0x7F)),
        (0x41, &[0, 1], Malformed::PacketType(0x41)),
        (0x36, &[0, 1, b't', 0, 1, 0], Malformed::PacketType(0x36)),
        (0x30, &[0, 1, 0xFF, 0], Malformed::Text(vec![0xFF])),
    ] {
        let body = Bytes::copy_from_slice(body);
        assert_eq!(Packet::decode(Frame { first, body }), Err(error));
    }
}

#[test]
fn mqtt_3_1_1_has_neither_properties_nor_codes() {
    let properties = vec![Property::user("a", "b")];
    let ack = |kind| {
        Packet::Ack(Ack {
            kind,
            id: 0x0102,
            code: 0x87,
            properties: properties.clone(),
        })
    };
    for (packet, bytes) in [
        (
            Packet::Connect(Connect {
                protocol: Protocol::V311,
                client_id: "c".into(),
                clean_start: true,
                keep_alive: 7,
                properties: properties.clone(),
                ..Connect::default()
            }),
            &b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x07\x00\x01c"[..],
        ),
        (
            Packet::ConnAck(ConnAck {
                session_present: true,
                code: 0,
                properties: properties.clone(),
            }),
            &[0x20, 2, 1, 0],
        ),
        (
            Packet::Publish(Publish::new("t", "x").id(7).with(Property::TopicAlias(1))),
            b"\x32\x06\x00\x01t\x00\x07x",
        ),
        (ack(AckKind::PubAck), &[0x40, 2, 1, 2]),
        (ack(AckKind::PubRec), &[0x50, 2, 1, 2]),
        (
            Packet::SubAck(SubAck {
                id: 1,
                properties: properties.clone(),
                codes: vec![0, 0x80],
            }),
            &[0x90, 4, 0, 1, 0, 0x80],
        ),
        (
            Packet::UnsubAck(SubAck {
                id: 1,
                properties: Vec::new(),
                codes: vec![0],
            }),
            &[0xB0, 2, 0, 1],
        ),
        (
            Packet::Disconnect(Disconnect {
                code: 0x8E,
                properties: properties.clone(),
            }),
            &[0xE0, 0],
        ),
    ] {
        assert_eq!(packet.encode_as(Protocol::V311), bytes, "{packet:?}");
        let frame = Frame {
            first: bytes[0],
            body: Bytes::copy_from_slice(&bytes[2..]),
        };
        let back = Packet::decode_as(frame, Protocol::V311).unwrap();
        assert_eq!(back.encode_as(Protocol::V311), bytes, "{packet:?}");
    }
}
