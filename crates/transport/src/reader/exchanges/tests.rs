use bridge_core::QoS;

use super::*;

mod schedules;

const WINDOW: u16 = 4;
/// How many ids may have been taken and not come.
const UNDER_WAY: u16 = 2 * WINDOW;

/// A reader, and what it has acknowledged on the connection that stands.
struct Side {
    exchanges: Exchanges,
    acknowledged: Vec<u16>,
}

impl Side {
    fn new() -> Self {
        let mut exchanges = Exchanges::new(WINDOW);
        exchanges.begin(false);
        Self {
            exchanges,
            acknowledged: Vec::new(),
        }
    }

    fn send(&mut self) {
        let acknowledged = &mut self.acknowledged;
        self.exchanges.send_what_is_due(|packet_id, _| {
            acknowledged.push(packet_id);
            true
        });
    }

    fn arrive(&mut self, qos: QoS, packet_id: u16, dup: bool, content: u64) -> Arrival {
        let arrival = self.exchanges.arrived(Incoming {
            packet_id,
            qos,
            dup,
            content,
        });
        self.send();
        arrival
    }

    fn fresh(&mut self, packet_id: u16) -> Ticket {
        ticket(self.arrive(QoS::AtLeastOnce, packet_id, false, u64::from(packet_id)))
    }

    fn again(&mut self, packet_id: u16) -> Arrival {
        self.arrive(QoS::AtLeastOnce, packet_id, true, u64::from(packet_id))
    }

    fn give(&mut self, ticket: Ticket, given: Given) -> Concern {
        let concern = self.exchanges.give(ticket, given);
        self.send();
        concern
    }

    fn reconnect(&mut self, resumed: bool) {
        self.exchanges.end();
        self.acknowledged.clear();
        self.exchanges.begin(resumed);
    }
}

fn ticket(arrival: Arrival) -> Ticket {
    match arrival {
        Arrival::New(ticket) => ticket,
        other => panic!("it is not handed out: {other:?}"),
    }
}

fn is_new(arrival: Arrival) -> bool {
    matches!(arrival, Arrival::New(_))
}

#[test]
fn what_is_in_our_hands_is_acknowledged_on_the_connection_that_it_came_again_on() {
    let mut side = Side::new();
    let (one, two) = (side.fresh(1), side.fresh(2));
    side.reconnect(true);
    assert_eq!(side.again(1), Arrival::Recognised);
    assert_eq!(side.again(2), Arrival::Recognised);
    assert_eq!(side.give(two, Given::Settled), Concern::Here);
    assert_eq!(side.acknowledged, [0; 0], "in order of arrival");
    assert_eq!(side.give(one, Given::Settled), Concern::Here);
    assert_eq!(side.acknowledged, [1, 2]);
}

#[test]
fn what_settled_in_between_is_acknowledged_when_it_comes_again_and_not_before() {
    let mut side = Side::new();
    let one = side.fresh(1);
    side.exchanges.end();
    assert_eq!(side.give(one, Given::Settled), Concern::Nowhere);
    side.exchanges.begin(true);
    side.send();
    assert_eq!(side.acknowledged, [0; 0]);
    assert_eq!(side.again(1), Arrival::Recognised);
    assert_eq!(side.acknowledged, [1]);
}

#[test]
fn what_settled_out_of_turn_before_the_end_is_acknowledged_when_it_comes_again() {
    let mut side = Side::new();
    let (_one, two) = (side.fresh(1), side.fresh(2));
    side.give(two, Given::Settled);
    side.reconnect(true);
    assert_eq!(side.again(2), Arrival::Recognised);
    assert_eq!(side.acknowledged, [2]);
}

#[test]
fn what_was_left_is_handed_out_again() {
    let mut side = Side::new();
    let (one, two) = (side.fresh(1), side.fresh(2));
    side.give(one, Given::Left);
    assert!(!side.exchanges.any_left(), "not of an earlier connection");
    side.exchanges.end();
    side.give(two, Given::Left);
    assert!(side.exchanges.any_left());
    side.exchanges.begin(true);
    assert!(is_new(side.again(1)) && is_new(side.again(2)));
    assert!(!side.exchanges.any_left());
}

#[test]
fn other_content_or_no_dup_is_another_message() {
    for (dup, content) in [(false, 1), (true, 7)] {
        let mut side = Side::new();
        let old = side.fresh(1);
        side.reconnect(true);
        let new = ticket(side.arrive(QoS::AtLeastOnce, 1, dup, content));
        assert_eq!(side.give(old, Given::Settled), Concern::Nowhere);
        assert_eq!(side.acknowledged, [0; 0], "it is not the new one's");
        side.give(new, Given::Settled);
        assert_eq!(side.acknowledged, [1]);
    }
}

#[test]
fn of_a_session_that_was_lost_nothing_is_known() {
    let mut side = Side::new();
    let old = side.fresh(1);
    side.reconnect(false);
    assert!(is_new(side.again(1)));
    assert_eq!(side.give(old, Given::Settled), Concern::Nowhere);
    assert_eq!(side.acknowledged, [0; 0]);
}

#[test]
fn two_connections_lost_in_a_row_change_nothing() {
    let mut side = Side::new();
    let (one, two, three) = (side.fresh(1), side.fresh(2), side.fresh(3));
    side.reconnect(true);
    assert_eq!(side.again(1), Arrival::Recognised);
    side.reconnect(true);
    side.give(two, Given::Settled);
    for packet_id in 1..=3 {
        assert_eq!(side.again(packet_id), Arrival::Recognised);
        assert_eq!(side.again(packet_id), Arrival::Repeated);
    }
    side.give(one, Given::Settled);
    side.give(three, Given::Settled);
    assert_eq!(side.acknowledged, [1, 2, 3]);
}

#[test]
fn a_message_of_qos_2_is_recognised_until_its_pubrec_and_its_id_is_free_after() {
    let mut side = Side::new();
    let two = QoS::ExactlyOnce;
    let one = ticket(side.arrive(two, 1, false, 0));
    side.reconnect(true);
    assert_eq!(side.arrive(two, 1, true, 0), Arrival::Recognised);
    side.give(one, Given::Settled);
    assert_eq!(side.acknowledged, [1]);
    side.reconnect(true);
    assert!(is_new(side.arrive(two, 1, true, 0)), "after its release");
}

/// Ten messages behind many others, all of which and the first five are acknowledged; nobody knows
/// whether that was read. With the ids of the ten, which are taken in turns.
fn half_acknowledged(first: u16) -> (Side, Vec<u16>) {
    let in_turns = (first..=u16::MAX).chain(1..first);
    let ids: Vec<_> = in_turns.take(usize::from(UNDER_WAY) + 20).collect();
    let (before, ten) = ids.split_at(ids.len() - 10);
    let mut side = Side::new();
    for id in before {
        let ticket = side.fresh(*id);
        side.give(ticket, Given::Settled);
    }
    let tickets: Vec<_> = ten.iter().map(|id| side.fresh(*id)).collect();
    for ticket in tickets.into_iter().take(5) {
        side.give(ticket, Given::Settled);
    }
    assert_eq!(side.acknowledged.len(), ids.len() - 5);
    side.reconnect(true);
    (side, ten.to_vec())
}

#[test]
fn an_acknowledgement_that_was_not_read_is_given_again() {
    // With the second they begin anew in the middle.
    for first in [1, u16::MAX - UNDER_WAY - 12] {
        let (mut side, ids) = half_acknowledged(first);
        for id in &ids[..6] {
            assert_eq!(side.again(*id), Arrival::Recognised);
        }
        assert_eq!(side.acknowledged, ids[..5]);
    }
}

#[test]
fn what_comes_after_all_that_was_open_is_new_even_with_an_id_and_content_of_before() {
    let (mut side, ids) = half_acknowledged(1);
    for id in &ids[5..] {
        assert_eq!(side.again(*id), Arrival::Recognised);
    }
    assert!(is_new(side.again(ids[4])));
}

#[test]
fn what_comes_out_of_its_turn_is_new() {
    let (mut side, ids) = half_acknowledged(1);
    assert_eq!(side.again(ids[5]), Arrival::Recognised);
    assert!(is_new(side.again(ids[4])));

    let (mut side, ids) = half_acknowledged(1);
    side.fresh(ids[9] + 1);
    assert!(is_new(side.again(ids[4])), "something new has come");
}

/// A shared subscription may come again in any order (MQTT 5 §4.6), the new before the old.
#[test]
fn i07_where_a_few_ids_are_taken_in_turns_one_that_comes_first_may_mean_a_new_message() {
    let mut side = Side::new();
    let tickets: Vec<_> = (1..=6).map(|id| side.fresh(id)).collect();
    for ticket in tickets.into_iter().take(4) {
        side.give(ticket, Given::Settled);
    }
    assert_eq!(side.acknowledged, [1, 2, 3, 4]);
    // That was read, and 1 and 2 were taken again by messages that have not come.
    side.reconnect(true);
    assert!(is_new(side.again(1)) && is_new(side.again(2)));
    assert_eq!(side.again(5), Arrival::Recognised);
    assert_eq!(side.again(6), Arrival::Recognised);
}

#[test]
fn i07_an_id_is_past_only_where_enough_others_were_taken_in_turns_before_it() {
    for (id, past) in [(1, false), (9, false), (10, true), (19, true)] {
        let mut side = Side::new();
        let count = UNDER_WAY + 20;
        let tickets: Vec<_> = (1..=count).map(|id| side.fresh(id)).collect();
        for ticket in tickets.into_iter().take(19) {
            side.give(ticket, Given::Settled);
        }
        // As if they had risen for so long and no longer.
        side.exchanges.ids.risen = count - 9 + UNDER_WAY;
        side.reconnect(true);
        assert_eq!(side.again(id) == Arrival::Recognised, past, "{id}");
    }
}

#[test]
fn where_ids_are_taken_again_at_once_an_acknowledged_one_means_a_new_message() {
    // 1, 2, 3, 4, 1, 2: each free again when it is taken.
    let mut side = Side::new();
    let mut tickets = VecDeque::new();
    for n in 0..20 {
        if tickets.len() == usize::from(WINDOW) {
            let ticket = tickets.pop_front().unwrap();
            side.give(ticket, Given::Settled);
        }
        let packet_id = n % WINDOW + 1;
        let arrival = side.arrive(QoS::AtLeastOnce, packet_id, false, 0);
        tickets.push_back(ticket(arrival));
    }
    side.give(tickets.pop_front().unwrap(), Given::Settled);
    side.reconnect(true);
    assert!(is_new(side.arrive(QoS::AtLeastOnce, 1, true, 0)));
    for packet_id in 2..=4 {
        let arrival = side.arrive(QoS::AtLeastOnce, packet_id, true, 0);
        assert_eq!(arrival, Arrival::Recognised);
    }
}

#[test]
fn no_more_is_remembered_than_there_are_packet_ids() {
    let mut side = Side::new();
    for n in 0..200_000_u32 {
        let packet_id = u16::try_from(n % 65_535 + 1).unwrap();
        let ticket = side.fresh(packet_id);
        side.give(ticket, Given::Settled);
    }
    assert!(side.exchanges.known.len() <= usize::from(u16::MAX - NEAR) + 1);
    side.reconnect(false);
    assert_eq!(side.exchanges.known.len(), 0);
}
