//! The words of the bridge as types, and the contracts between its parts.
//!
//! Everything that decides lives here or in `bridge-runtime` as plain functions and types:
//! this crate never does I/O, never starts a task and knows no MQTT library. What a broker's
//! answer means for one message is [`Verdict`]; what a transport or a store must promise is
//! written at [`Source`], [`Sink`] and [`Store`].
//!
//! ```
//! use bridge_core::{Acknowledgement, ReasonCode, Topic, TopicFilter, Verdict};
//!
//! let topic = Topic::parse("sensors/boiler/1")?;
//! assert!(TopicFilter::parse("sensors/#")?.matches(&topic));
//! let denied = Verdict::of(Acknowledgement::PubAck, ReasonCode::new(0x87));
//! assert_eq!(denied, Verdict::RefusedByPolicy);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoff;
mod clock;
mod given_up;
mod id;
mod message;
mod permit;
mod reason;
mod sink;
mod source;
mod store;
mod template;
mod topic;
mod verdict;

pub use backoff::{Backoff, InvalidBackoff};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use given_up::GivenUp;
pub use id::{BindingKey, InvalidMessageId, InvalidName, MessageId, Name, Seq};
pub use message::{Expiry, Message, PayloadFormat, Properties, QoS};
pub use permit::{Permission, Permit};
pub use reason::{Reason, ReasonCode};
pub use sink::{
    Admitted, Answer, Limits, Link, LocalRefusal, NotAdmitted, Outgoing, Sink, Unanswered,
};
pub use source::{Acknowledge, Delivery, Remainder, Source, SourceState, Subscription};
pub use store::{
    BoxFuture, Cause, DeadLetterInfo, DeferInfo, Destination, Durability, Move, Moved, Pending,
    Placement, Quantity, ReadFrom, ReadLimit, Seated, Store, StoreError, StoredMessage, Usage,
    View,
};
pub use template::{
    InvalidTemplate, RenderError, TemplateContext, TemplateProblem, TopicShape, TopicTemplate,
};
pub use topic::{InvalidFilter, InvalidTopic, Topic, TopicFilter};
pub use verdict::{Acknowledgement, Closing, Disposition, Path, Rule, Verdict};
