//! Both directions against the testkit's codec, which was written from the standards.

use bridge_testkit::codec::{
    Ack, AckKind, ConnAck, Connect, Disconnect, Frame, Packet, Property, Protocol, Publish, SubAck,
    Subscribe, Unsubscribe, Will,
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;

/// Translates one packet to the broker and reads it as the broker does.
fn sent(packet: &Packet) -> Option<Packet> {
    let bytes = packet.encode();
    let mut out = BytesMut::new();
    let outward = outward(&bytes, &mut out).unwrap().unwrap();
    assert_eq!(outward.taken + outward.payload, bytes.len());
    out.extend_from_slice(&bytes[outward.taken..]);
    if out.is_empty() {
        return None;
    }
    Some(read(&out, Protocol::V311))
}

/// Translates one packet of the broker and reads it as the library does.
fn received(packet: &Packet, filters: usize) -> Packet {
    let bytes = packet.encode_as(Protocol::V311);
    let (_, at) = wire::read_length(&bytes[1..]).unwrap().unwrap();
    let mut out = BytesMut::new();
    inward(bytes[0], &bytes[1 + at..], &mut out, |_| Some(filters)).unwrap();
    read(&out, Protocol::V5)
}

fn read(bytes: &[u8], protocol: Protocol) -> Packet {
    let (remaining, at) = wire::read_length(&bytes[1..]).unwrap().unwrap();
    assert_eq!(bytes.len(), 1 + at + remaining, "a whole packet");
    let frame = Frame {
        first: bytes[0],
        body: Bytes::copy_from_slice(&bytes[1 + at..]),
    };
    Packet::decode_as(frame, protocol).unwrap()
}

fn properties() -> impl Strategy<Value = Vec<Property>> {
    let one = prop_oneof![
        ("[a-z]{0,9}", "[a-z]{0,200}").prop_map(|(name, value)| Property::user(&name, &value)),
        "[a-z]{0,30}".prop_map(Property::ContentType),
        any::<u32>().prop_map(Property::MessageExpiry),
    ];
    prop::collection::vec(one, 0..4)
}

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

prop_compose! {
    fn publishes()(
        topic in "[a-z/]{1,40}",
        payload in bytes(300),
        qos in 0_u8..3,
        (retain, dup) in any::<(bool, bool)>(),
        id in 1_u16..,
        properties in properties(),
    ) -> Publish {
        let id = if qos == 0 { 0 } else { id };
        Publish { topic, payload, qos, retain, dup, id, properties }
    }
}

prop_compose! {
    fn wills()(
        topic in "[a-z/]{1,40}",
        payload in bytes(300),
        qos in 0_u8..3,
        retain in any::<bool>(),
        properties in properties(),
    ) -> Will {
        Will { topic, payload, qos, retain, properties }
    }
}

prop_compose! {
    fn connects()(
        client_id in "[a-z0-9-]{0,40}",
        clean_start in any::<bool>(),
        keep_alive in any::<u16>(),
        properties in properties(),
        will in prop::option::of(wills()),
        login in prop::option::of(("[a-z]{1,9}", prop::option::of(bytes(20)))),
    ) -> Connect {
        let (username, password) = login.unzip();
        Connect {
            protocol: Protocol::V5,
            client_id,
            clean_start,
            keep_alive,
            properties,
            will,
            username,
            password: password.flatten(),
        }
    }
}

proptest! {
    #[test]
    fn a_connect_keeps_all_but_its_properties(connect in connects()) {
        let expected = Connect {
            protocol: Protocol::V311,
            properties: Vec::new(),
            will: connect.will.clone().map(|will| Will { properties: Vec::new(), ..will }),
            ..connect.clone()
        };
        prop_assert_eq!(sent(&Packet::Connect(connect)), Some(Packet::Connect(expected)));
    }

    #[test]
    fn a_publish_to_the_broker_keeps_all_but_its_properties(publish in publishes()) {
        let expected = Publish { properties: Vec::new(), ..publish.clone() };
        prop_assert_eq!(sent(&Packet::Publish(publish)), Some(Packet::Publish(expected)));
    }

    #[test]
    fn a_subscribe_keeps_its_filters_and_their_qos(
        id in 1_u16..,
        properties in properties(),
        filters in prop::collection::vec(("[a-z/+]{1,30}", 0_u8..0x30), 1..8),
    ) {
        let options = |(filter, options): &(String, u8)| (filter.clone(), options & 3);
        let expected = Subscribe {
            id,
            properties: Vec::new(),
            filters: filters.iter().map(options).collect(),
        };
        let packet = Packet::Subscribe(Subscribe { id, properties, filters });
        prop_assert_eq!(sent(&packet), Some(Packet::Subscribe(expected)));
    }

    #[test]
    fn an_unsubscribe_keeps_its_filters_and_says_how_many(
        id in 1_u16..,
        properties in properties(),
        filters in prop::collection::vec("[a-z/+]{1,30}", 1..8),
    ) {
        let expected = Unsubscribe { id, properties: Vec::new(), filters: filters.clone() };
        let count = filters.len();
        let packet = Packet::Unsubscribe(Unsubscribe { id, properties, filters });
        prop_assert_eq!(sent(&packet), Some(Packet::Unsubscribe(expected)));
        let noted = outward(&packet.encode(), &mut BytesMut::new()).unwrap().unwrap();
        prop_assert_eq!(noted.unsubscribe, Some((id, count)));
    }

    #[test]
    fn a_suback_keeps_what_it_grants(
        id in 1_u16..,
        codes in prop::collection::vec(prop_oneof![0_u8..3, Just(0x80), any::<u8>()], 1..8),
    ) {
        let known = |code: &u8| if *code < 3 { *code } else { 0x80 };
        let expected = SubAck {
            id,
            properties: Vec::new(),
            codes: codes.iter().map(known).collect(),
        };
        let packet = Packet::SubAck(SubAck { id, properties: Vec::new(), codes });
        prop_assert_eq!(received(&packet, 0), Packet::SubAck(expected));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0_u8..16) {
        let mut out = BytesMut::new();
        let _ = outward(&bytes, &mut out);
        let _ = inward(kind << 4, &bytes, &mut out, |_| Some(3));
    }

    #[test]
    fn what_has_not_all_come_is_waited_for(publish in publishes(), connect in connects()) {
        let publish_head = {
            let packet = Packet::Publish(publish.clone()).encode();
            packet.len() - publish.payload.len()
        };
        let connect = Packet::Connect(connect).encode();
        for (bytes, needed) in [
            (Packet::Publish(publish).encode(), publish_head),
            (connect.clone(), connect.len()),
        ] {
            for cut in 0..needed {
                let mut out = BytesMut::new();
                prop_assert_eq!(outward(&bytes[..cut], &mut out), Ok(None));
                prop_assert!(out.is_empty());
            }
        }
    }
}

#[test]
fn answers_to_messages_are_a_packet_id_in_both_directions() {
    for kind in [
        AckKind::PubAck,
        AckKind::PubRec,
        AckKind::PubRel,
        AckKind::PubComp,
    ] {
        let bare = Packet::Ack(Ack::new(kind, 0x1234, 0));
        let mut full = Ack::new(kind, 0x1234, 0x92);
        full.properties = vec![Property::user("a", "b")];
        assert_eq!(sent(&Packet::Ack(full)), Some(bare.clone()));
        assert_eq!(received(&bare, 0), bare);
    }
}

#[test]
fn a_return_code_of_connack_becomes_the_reason_code_that_says_the_same() {
    for (code, expected) in [
        (0, 0x00),
        (1, 0x84),
        (2, 0x85),
        (3, 0x88),
        (4, 0x86),
        (5, 0x87),
        (6, 0x80),
        (0xE5, 0x80),
    ] {
        for session_present in [false, true] {
            let packet = |session_present, code| {
                Packet::ConnAck(ConnAck {
                    session_present,
                    code,
                    properties: Vec::new(),
                })
            };
            assert_eq!(
                received(&packet(session_present, code), 0),
                packet(session_present && code == 0, expected)
            );
        }
    }
}

#[test]
fn an_unsuback_has_a_success_for_each_filter() {
    let ack = |codes| {
        Packet::UnsubAck(SubAck {
            id: 9,
            properties: Vec::new(),
            codes,
        })
    };
    assert_eq!(received(&ack(Vec::new()), 3), ack(vec![0; 3]));
    let mut out = BytesMut::new();
    assert_eq!(inward(0xB0, &[0, 9], &mut out, |_| None), None);
}

#[test]
fn a_goodbye_is_bare_and_an_error_is_none() {
    let disconnect = |code| {
        Packet::Disconnect(Disconnect {
            code,
            properties: Vec::new(),
        })
    };
    assert_eq!(sent(&disconnect(0)), Some(disconnect(0)));
    // It would make the broker forget the last will.
    for code in [0x04, 0x81, 0x82] {
        assert_eq!(sent(&disconnect(code)), None);
    }
    assert_eq!(sent(&Packet::PingReq), Some(Packet::PingReq));
    assert_eq!(received(&Packet::PingResp, 0), Packet::PingResp);
}

#[test]
fn what_no_broker_sends_on_3_1_1_is_malformed() {
    let mut out = BytesMut::new();
    for (first, body) in [
        (0x00, &[][..]),
        (0x10, &[0, 4]),
        (0x20, &[0, 0, 0]),
        (0x20, &[]),
        (0x40, &[0, 1, 0]),
        (0x40, &[0]),
        (0x82, &[0, 1, 0, 1, b'a', 0]),
        (0x90, &[0, 1]),
        (0xB0, &[0, 1, 0]),
        (0xC0, &[]),
        (0xD0, &[0]),
        (0xE0, &[]),
        (0xF0, &[0x18, 0]),
    ] {
        assert_eq!(inward(first, body, &mut out, |_| Some(1)), None);
    }
    assert!(out.is_empty());
}
