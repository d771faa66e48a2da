//! The contract of a source: deliveries that stay with the source until they are acknowledged.

use std::fmt;

use crate::{BoxFuture, Message, QoS, Timestamp, TopicFilter};

/// One session that messages are read from.
///
/// Promises of an implementation:
/// - A message stays the source's until it is acknowledged: after a crash or a lost connection
///   the source delivers it again (QoS 1 and 2; QoS 0 has no second chance).
/// - Acknowledgements leave in the order of arrival, whatever order they are given in, as MQTT 5
///   §4.6 wants it. One that belongs to an earlier connection is dropped without harm: the
///   source delivers that message again.
/// - Nothing is read ahead without a bound: what is neither acknowledged nor left holds the
///   source back (its Receive Maximum).
pub trait Source: Send + Sync + fmt::Debug {
    /// The next message, or `None` once the source is closed. One caller at a time.
    fn next(&self) -> BoxFuture<'_, Option<Delivery>>;

    /// Someone else counts attempts and writes dead letters for what this subscription delivers
    /// (I19): from now on nothing underneath may count, give up on or expire a message of it. What
    /// is not acknowledged is held and delivered again, without limit.
    ///
    /// Called for every subscription when it is made, before the first [`Source::next`]. `group`
    /// is the share group of a shared subscription. The default does nothing, which is right for
    /// every transport without a ceiling of its own, MQTT among them.
    fn mark_subscription_owned(&self, stream: &TopicFilter, group: Option<&str>) {
        let _ = (stream, group);
    }

    /// How it is now.
    fn state(&self) -> SourceState;

    /// The filters, of those that were asked for, that it does not grant at the moment.
    fn refused(&self) -> Vec<TopicFilter> {
        Vec::new()
    }

    /// A stop in order begins. A source that would lose what has not been acknowledged with its
    /// session ends its subscriptions now, and what it has been given before that is still to be
    /// taken and settled: see [`Remainder`].
    ///
    /// The default says that everything stays with the source, as a persistent session does.
    fn wind_down(&self) -> Remainder {
        Remainder::Kept
    }

    /// Sends the acknowledgements given so far, says goodbye to the broker, and stops.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// How far a source has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceState {
    /// No connection.
    Down,
    /// Connected; not every subscription has been granted (yet).
    Connected,
    /// The broker has granted every subscription.
    Subscribed,
}

/// What becomes, in a stop in order, of what a source has been given and nobody has settled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remainder {
    /// It stays, and is delivered to whoever comes next: nothing more is to be taken.
    Kept,
    /// It goes with the session: it is to be taken and settled until [`Source::next`] says `None`,
    /// which it does once nothing more can come, and nothing is unsettled.
    Lost,
}

/// What to ask of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Which topics.
    pub filter: TopicFilter,
    /// The highest QoS to deliver with.
    pub qos: QoS,
    /// Whether the source shall leave out what this very client publishes (MQTT 5 §3.8.3.1).
    ///
    /// It is the client id that counts: what the same session publishes on a connection of its
    /// own, under another id, comes all the same. A shared subscription cannot ask for it, and
    /// does not.
    pub no_local: bool,
}

/// A message that has come, and the right to acknowledge it.
#[derive(Debug)]
pub struct Delivery {
    /// The message as published: topic alias resolved, retain flag as it was set.
    pub message: Message,
    /// When it was received.
    pub received: Timestamp,
    /// The source says that it has sent this before (the DUP flag).
    pub redelivered: bool,
    /// Acknowledges it.
    pub acknowledge: Box<dyn Acknowledge>,
}

/// The right to acknowledge one delivery. Dropped unused, the message is left with the source.
pub trait Acknowledge: Send + Sync + fmt::Debug {
    /// The message has settled: the source may forget it.
    fn settled(self: Box<Self>);

    /// The message stays with the source, which shall deliver it again. An MQTT source does so
    /// on the next connection, which the implementation brings about in its own time.
    fn leave(self: Box<Self>);
}
