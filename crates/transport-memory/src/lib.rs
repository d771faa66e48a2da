//! An in-process broker behind the contracts of [`Source`](bridge_core::Source) and
//! [`Sink`](bridge_core::Sink): for tests, and for people who embed the crates.
//!
//! It has topics, filters, share groups, QoS 1 and retained messages; it never touches a network
//! or a disk, starts no task, and everything in it is gone with it.
//!
//! Consumed directly it has a **ceiling of its own**: a message that was left (a nack) or that is
//! neither settled nor left for too long (stale) counts a failed delivery, and after
//! [`Options::max_deliveries`] of these it becomes a native dead letter. Under a runtime that
//! would be a second place that counts and gives up, so once
//! [`mark_subscription_owned`](bridge_core::Source::mark_subscription_owned) has been called it
//! only holds and delivers again, without limit:
//!
//! | | consumed directly | owned |
//! |---|---|---|
//! | left, or its right to acknowledge dropped | counted; delivered again after a rest, or at the ceiling a native dead letter | delivered again after a rest |
//! | stale | counted; delivered again, or a native dead letter; the late acknowledgement is void | held: who owns it still has it |
//! | expired | goes, counted | delivered: its owner decides |
//!
//! A message that rests lets those behind it pass: order is that of publishing as long as nothing
//! is left.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bridge_core::{Message, Name, QoS, Sink, Source, Subscription, SystemClock};
//! use bridge_transport_memory::{MemoryBroker, Options};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let broker = MemoryBroker::new(Options::default(), Arc::new(SystemClock::new()));
//! let wanted = Subscription {
//!     filter: "sensors/#".parse()?,
//!     qos: QoS::AtLeastOnce,
//!     no_local: false,
//! };
//! let source = broker.source(Name::parse("reader")?, &[wanted]);
//! let sink = broker.sink(Name::parse("writer")?);
//!
//! let message = Message::new("sensors/boiler/1".parse()?, "21.5");
//! let answer = sink.publish(message).await.map_err(|_| "not admitted")?.await;
//! let delivery = source.next().await.ok_or("closed")?;
//! assert_eq!(&delivery.message.payload[..], b"21.5");
//! delivery.acknowledge.settled();
//! # let _ = answer;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backlog;
mod broker;
mod options;
mod sink;
mod source;
mod state;

pub use backlog::{NativeDeadLetter, Standing, Swept};
pub use broker::MemoryBroker;
pub use options::{Bounds, Options};
pub use sink::MemorySink;
pub use source::MemorySource;
pub use state::Published;
