//! The broker as others hold it: [`State`] behind one short lock, and a bell.

use std::sync::{Arc, Mutex, PoisonError};

use bridge_core::{Clock, Message, Name, Subscription, TopicFilter};
use tokio::sync::Notify;

use crate::backlog::{NativeDeadLetter, Standing, Swept};
use crate::state::{Key, Now, Published, State};
use crate::{MemorySink, MemorySource, Options};

/// An in-process broker. Cheap to clone: clones are the same broker.
#[derive(Debug, Clone)]
pub struct MemoryBroker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Rings for every source when there may be something for one of them.
    bell: Notify,
    clock: Arc<dyn Clock>,
}

impl MemoryBroker {
    /// A broker without subscriptions, going by `clock`.
    pub fn new(options: Options, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(State::new(options)),
            bell: Notify::new(),
            clock,
        }))
    }

    /// A session of `client` that publishes.
    pub fn sink(&self, client: Name) -> MemorySink {
        MemorySink::new(self.clone(), client)
    }

    /// A session of `client` that reads `subscriptions`. It takes over from an earlier source of
    /// the same client, with all that its subscriptions hold.
    pub fn source(&self, client: Name, subscriptions: &[Subscription]) -> MemorySource {
        let consumer = self.change(|state, _| state.attach(client.clone(), subscriptions));
        MemorySource::new(self.clone(), client, consumer)
    }

    /// Publishes without a session, in the name of `client`.
    pub fn publish(&self, client: &Name, message: Message) -> Published {
        self.change(|state, now| state.publish(client, message, now.wall))
    }

    /// Lets the time that has passed take effect. Sources do so by themselves when they wait;
    /// this is for a clock that a test moves, and tells what happened.
    pub fn sweep(&self) -> Swept {
        self.change(|state, now| state.sweep(now.monotonic))
    }

    /// How the subscription of `client` to `stream` stands; of a shared one the client does not
    /// matter.
    pub fn standing(&self, client: &Name, stream: &TopicFilter) -> Option<Standing> {
        self.look(|state, _| state.standing(&Key::new(client, stream, None)))
    }

    /// The native dead letters of that subscription, oldest first.
    pub fn dead_letters(&self, client: &Name, stream: &TopicFilter) -> Vec<NativeDeadLetter> {
        self.look(|state, _| state.dead_letters(&Key::new(client, stream, None)))
    }

    /// How many messages of QoS 0 were delivered but not retained, for want of room.
    pub fn not_retained(&self) -> u64 {
        self.look(|state, _| state.not_retained())
    }

    pub(crate) fn options(&self) -> Options {
        self.look(|state, _| *state.options())
    }

    fn now(&self) -> Now {
        Now {
            wall: self.0.clock.wall(),
            monotonic: self.0.clock.monotonic(),
        }
    }

    pub(crate) fn look<T>(&self, act: impl FnOnce(&mut State, Now) -> T) -> T {
        let now = self.now();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut state, now)
    }

    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut State, Now) -> T) -> T {
        let result = self.look(act);
        self.0.bell.notify_waiters();
        result
    }

    pub(crate) fn bell(&self) -> &Notify {
        &self.0.bell
    }
}
