//! Routes and delivery: what becomes of a message between its source and its bindings.
//!
//! The crate knows sources, sinks and stores by their contracts in `bridge-core` only.

mod spec;

pub use spec::{
    BindingSpec, DeliveryMode, OnExpired, OnFull, QueueBounds, RetainPolicy, RouteSpec,
};
