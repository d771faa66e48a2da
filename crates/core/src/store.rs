//! The contract of a store: what waits at each binding, and where.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{BindingKey, GivenUp, Message, MessageId, Name, Reason, Seq, Timestamp};

/// A future behind a pointer, so that the contracts can be used as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a store will have done: ends when it is as durable as the store's [`Durability`] says.
/// Dropping it does not undo what it stands for.
pub type Pending<T> = BoxFuture<'static, Result<T, StoreError>>;

/// Where the messages wait: per binding a queue, its deferred messages and its dead letters.
///
/// ```text
///              put                settle
///  (arrival) ───────► queue ─────────────────► (delivered, dropped)
///                      │  ▲ │
///               defer  │  │ │ dead letter
///                      ▼  │ ▼
///               deferred ─┼─► dead letters ──delete──► (gone)
///                         └───── redrive
/// ```
///
/// Promises of an implementation:
/// - **Order.** [`Store::put`] and [`Store::apply`] take effect in the order of the calls, which
///   return at once; the future that they return ends when the effect is durable. A queue is
///   read in the order of its puts.
/// - **One place.** At one binding a message is in exactly one of queue, deferred and dead
///   letters. A move is atomic across a crash, and so is a put for several bindings (I09).
/// - **Durable.** When a future has ended well, the effect survives what [`Store::durability`]
///   promises (I07). [`Store::settle`] alone may be lost in a crash: the message comes again.
/// - **Nothing overtakes a failure.** After a put for a binding has failed, every later put for
///   that binding fails as well until [`Store::resume`] is called for it; so the caller can put
///   them again in their order. A message that is too large holds up nothing: it is never put.
/// - It never counts attempts, never dead-letters, never drops of its own accord (I19).
pub trait Store: Send + Sync + fmt::Debug {
    /// What "durable" means here.
    fn durability(&self) -> Durability;

    /// Stores one message at one or several destinations, as one record.
    ///
    /// Admission is this call; the future ends when the message is durable.
    fn put(&self, message: Arc<StoredMessage>, to: Vec<Destination>) -> Pending<Seq>;

    /// Lets puts for `binding` in again after one has failed.
    fn resume(&self, binding: &BindingKey);

    /// Takes entries out of the queue or the deferred messages of `binding`: they are done
    /// there. Takes effect at once, and on disk soon; entries that are not there are ignored.
    fn settle(&self, binding: &BindingKey, done: &[Seq]);

    /// Moves one entry, as one record.
    fn apply(&self, change: Move) -> Pending<Moved>;

    /// Reads durable entries of one view, in order, that come after `after`; none only when there
    /// are none.
    ///
    /// An entry that cannot be read is an error of that entry ([`Seated::message`]), not of the
    /// call: what is behind it is readable.
    fn read(
        &self,
        binding: &BindingKey,
        view: View,
        after: Option<Seq>,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>>;

    /// Reads durable dead letters, of those that `which` takes the ones that `from` says. Else
    /// like [`Store::read`]; what `which` does not take is not read, and costs little.
    fn read_dead_letters(
        &self,
        binding: &BindingKey,
        which: GivenUp,
        from: ReadFrom,
        limit: ReadLimit,
    ) -> Pending<Vec<Seated>>;

    /// How many durable dead letters `which` takes, exactly; those that cannot be read are counted
    /// as well. It takes a few milliseconds for a million, and no look at any of them.
    fn count_dead_letters(&self, binding: &BindingKey, which: GivenUp) -> Pending<u64>;

    /// What waits at `binding`, admitted puts included. Cheap.
    fn usage(&self, binding: &BindingKey) -> Usage;

    /// Every binding that has something waiting, also those that no configuration names.
    fn bindings(&self) -> Vec<BindingKey>;

    /// Ends when everything called before is durable, settles included.
    fn flush(&self) -> Pending<()>;
}

/// What a store survives when it says that something is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Process,
    /// A crash of the process.
    Crash,
    /// A loss of power: fsync has returned.
    PowerLoss,
}

/// A message as it is kept: as it came, before any binding's mapping, so that a queue follows
/// its configuration and one copy serves several bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The id it got when it came.
    pub id: MessageId,
    /// The dead letter that it was, if it was one.
    pub cause: Option<Cause>,
    /// The session it came from.
    pub session: Name,
    /// When it came; expiry counts from here.
    pub received: Timestamp,
    /// The message as it came.
    pub message: Message,
}

/// The dead letter that a message comes from, under another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// The id that the message had as a dead letter.
    pub id: MessageId,
    /// How often the message was redriven, this time included.
    pub redrives: u32,
}

/// Where a put places a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// At which binding.
    pub binding: BindingKey,
    /// In which view.
    pub placement: Placement,
}

/// In which view of a binding a put places a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// At the tail of the queue.
    Queue,
    /// Straight behind the deferred messages of its topic.
    Deferred(DeferInfo),
    /// Straight among the dead letters: a refusal on the live path.
    DeadLetter(DeadLetterInfo),
}

/// The three views of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// What waits to be published.
    Queue,
    /// What was refused by a policy and has a second chance.
    Deferred,
    /// What was given up on.
    DeadLetters,
}

/// Since when a message is deferred, and how often it was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeferInfo {
    /// Why.
    pub reason: Reason,
    /// The first refusal, or when it lined up behind one that was refused; the deferral window
    /// counts from here.
    pub first_refusal: Timestamp,
    /// The latest refusal.
    pub last_refusal: Timestamp,
    /// How often it was offered and refused; 0 for one that lines up behind another of its topic.
    pub attempts: u32,
    /// The destination has taken a newer message of its topic as the retained one: this one is to
    /// follow without its retain flag (I08).
    pub overtaken: bool,
}

/// Why a message was given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterInfo {
    /// Why.
    pub reason: Reason,
    /// The broker's own words, where it gave any.
    pub reason_string: Option<String>,
    /// The first refusal.
    pub first_refusal: Timestamp,
    /// The refusal that decided.
    pub last_refusal: Timestamp,
    /// How often it was offered.
    pub attempts: u32,
}

impl StoredMessage {
    /// How often the message was redriven.
    pub fn redrives(&self) -> u32 {
        self.cause.map_or(0, |cause| cause.redrives)
    }

    /// The message as it goes back to the queue from the dead letters, under the id `id`.
    #[must_use]
    pub fn redriven(mut self, id: MessageId) -> Self {
        self.cause = Some(Cause {
            id: std::mem::replace(&mut self.id, id),
            redrives: self.redrives().saturating_add(1),
        });
        self
    }
}

/// A change of place for one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// From the queue to the deferred messages; for a deferred one, a later refusal.
    Defer {
        /// At which binding.
        binding: BindingKey,
        /// Which entry.
        seq: Seq,
        /// Since when, and how often.
        info: DeferInfo,
    },
    /// From the queue or the deferred messages to the dead letters.
    DeadLetter {
        /// At which binding.
        binding: BindingKey,
        /// Which entry.
        seq: Seq,
        /// Why.
        info: DeadLetterInfo,
    },
    /// From the dead letters to the tail of the same binding's queue, under a new message id
    /// with the old one as its cause (I21).
    Redrive {
        /// At which binding.
        binding: BindingKey,
        /// Which dead letter.
        seq: Seq,
        /// The id that the message has from now on.
        id: MessageId,
    },
    /// Out of the dead letters, for good.
    Delete {
        /// At which binding.
        binding: BindingKey,
        /// Which dead letter.
        seq: Seq,
    },
}

/// What came of a [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It is done. A redriven entry has a new number, every other one keeps its own.
    Done {
        /// The entry's number from now on.
        seq: Seq,
    },
    /// There is no such entry in the view that the move starts from: another move was first.
    NotThere,
}

/// One entry of a view.
#[derive(Debug, Clone)]
pub struct Seated {
    /// Its number at this binding.
    pub seq: Seq,
    /// The message, or why it cannot be read.
    pub message: Result<Arc<StoredMessage>, StoreError>,
    /// Set in the view of deferred messages.
    pub deferred: Option<DeferInfo>,
    /// Set in the view of dead letters.
    pub dead_letter: Option<DeadLetterInfo>,
}

/// Where a read begins, and which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// At the first entry behind that one, or at the first of all.
    After(Option<Seq>),
    /// At the last entry before that one, or at the last of all; backwards.
    Before(Option<Seq>),
}

/// How much to read at once; at least one entry is read, however large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// At most so many entries.
    pub entries: usize,
    /// Stop after so many bytes.
    pub bytes: u64,
}

/// What waits at a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In the queue.
    pub queue: Quantity,
    /// Deferred.
    pub deferred: Quantity,
    /// Dead letters.
    pub dead_letters: Quantity,
    /// When the head of the queue was received.
    pub oldest: Option<Timestamp>,
}

/// A number of entries and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantity {
    /// How many.
    pub entries: u64,
    /// Their size by [`Message::size`].
    pub bytes: u64,
}

/// What a store could not do. What failed has had no effect, and may be asked for again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk is full: back-pressure until there is space again (I14).
    #[error("the disk under {place} is full; free some space, nothing is lost")]
    Full {
        /// The data folder.
        place: String,
    },
    /// An earlier put for the same binding failed and [`Store::resume`] was not called yet.
    #[error("an earlier message for this binding could not be stored")]
    Behind,
    /// The operating system failed.
    #[error("cannot {action} {place}: {error}")]
    Io {
        /// What was being done: `write`, `sync`, `read`.
        action: &'static str,
        /// To which file or folder.
        place: String,
        /// The system's own words.
        error: String,
    },
    /// What was read is not what was written.
    #[error("entry {seq} in {place} is damaged and cannot be read")]
    Damaged {
        /// The entry.
        seq: Seq,
        /// The file.
        place: String,
    },
    /// The message is larger than the store takes.
    #[error("a message of {size} bytes is larger than the store takes, {maximum} bytes")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The store's bound in bytes.
        maximum: u64,
    },
    /// The disk does not answer.
    #[error("the disk has not answered for {after:?}")]
    Unanswered {
        /// For how long it was waited.
        after: Duration,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether the same request may succeed later without anyone's doing but the disk's.
    pub const fn is_transient(&self) -> bool {
        !matches!(self, Self::Damaged { .. } | Self::TooLarge { .. })
    }
}

impl Usage {
    /// How long the head of the queue has waited.
    pub fn oldest_age(&self, now: Timestamp) -> Duration {
        self.oldest
            .map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}
