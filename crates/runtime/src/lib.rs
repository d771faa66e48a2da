//! Routes and delivery: what becomes of a message between its source and its bindings.
//!
//! The crate knows sources, sinks and stores by their contracts in `bridge-core` only, and
//! never speaks MQTT, touches a disk or reads a configuration file. One message's way through it:
//!
//! ```text
//!   Source ─► intake ─► lane ─┬─ live ──► worker ─► Sink ─► verdict ─► settled ─► acknowledged
//!                             └─ queue ─► Store ─► settled ─► acknowledged
//!                                           └────► worker ─► Sink ─► verdict
//! ```

mod announce;
mod control;
mod deferral;
mod held;
mod intake;
mod lane;
mod mapping;
mod metrics;
mod phase;
mod runtime;
mod session;
mod settlement;
mod spec;
mod suspicion;
mod worker;

pub use control::{
    AtRest, Control, ControlError, Cursor, DeadLetter, DeadLetterFilter, DeadLetterId,
    DeadLetterSummary, DeleteOutcome, DeleteResult, Export, Exported, HeldUp, HeldUpBy, Import,
    ImportOutcome, Importer, InjectTarget, Injected, InvalidDeadLetterId, Job, JobId, JobKind,
    JobObserver, JobState, MOST_AT_ONCE, Page, RedriveOptions, RedriveOutcome, RedriveResult,
    RedriveVerdict, Selection, Total,
};
pub use held::HeadHeld;
pub use intake::subscriptions_of;
pub use runtime::{BindingStatus, Failure, Overview, Parts, Runtime, StartError, Status, Stopped};
pub use spec::{
    BindingSpec, DeadLetterBounds, DeferralSpec, DeliveryMode, OnDeadLettersFull, OnExpired,
    OnFull, QueueBounds, RetainPolicy, RouteSpec,
};
