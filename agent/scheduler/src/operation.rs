//! Operations, what comes back from them, and facts.

use std::fmt;
use std::time::Duration;

use crate::key::Key;
use crate::value::SharedValue;

/// `errno` values by which a transport says that the object of a delete is not there: ENOENT, ESRCH, ENXIO, ENODEV,
/// EADDRNOTAVAIL.
const GONE: [i32; 5] = [2, 3, 6, 19, 99];
/// `errno` ECANCELED, by which a transport says that it did not begin an operation, or ended it, as it was asked to.
const CANCELLED: i32 = 125;
/// `errno` EEXIST.
const EXISTS: i32 = 17;

/// Which transport carries an operation. A transport runs what it is given in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportId(pub u8);

impl TransportId {
    /// Of kinds that the system knows nothing of, and that nobody can observe: the engine itself completes what is
    /// done to them, in its place among the others.
    pub const NONE: Self = Self(u8::MAX);
}

/// Unique in the life of an engine, ascending in the order of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Unique in the life of an engine, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId(pub u64);

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Deletes `old`.
    Delete,
    /// Gives an adopted object back: from `old`, what we had set, to `new`, what was there before us.
    Release,
    /// Changes `old` to `new` in place.
    Update,
    /// Makes an object that exists already, and is not ours, ours: from `old`, what was observed, to `new`.
    Adopt,
    /// Makes `new`.
    Create,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete => "delete",
            Self::Release => "release",
            Self::Update => "update",
            Self::Adopt => "adopt",
            Self::Create => "create",
        })
    }
}

/// One step for a transport. `old` is what the system has, as far as we know; `new` what it shall have.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: OpId,
    pub txn: TxnId,
    pub action: Action,
    pub key: Key,
    pub old: Option<SharedValue>,
    pub new: Option<SharedValue>,
    pub transport: TransportId,
}

/// `errno` values that speak of something else than the operation itself: ENOENT, ESRCH, ENXIO, EEXIST, ENODEV,
/// EADDRNOTAVAIL, ENETDOWN, ENETUNREACH, EHOSTUNREACH.
const SURROUNDINGS: [i32; 9] = [2, 3, 6, 17, 19, 99, 100, 101, 113];

/// When an operation that failed is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Time may help: tried again after a pause.
    Transient,
    /// Something else is in the way: tried again when what the value needs, or the value itself, changes.
    Environment,
    /// The value itself is the reason: tried again for another value only, or when what it needs has gone and come.
    Permanent,
}

/// Why a transport did not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", errno.map(|number| format!(" (errno {number})")).unwrap_or_default())]
pub struct OperationError {
    pub errno: Option<i32>,
    /// The system's own words where it has any.
    pub message: String,
    /// The same operation may succeed later without a change of intent or of what it depends on.
    pub transient: bool,
}

impl OperationError {
    /// An error without an `errno`.
    pub fn message(message: impl Into<String>) -> Self {
        Self { errno: None, message: message.into(), transient: false }
    }

    /// What a transport answers for an operation that it ended, or did not begin, because it was asked to.
    pub fn cancelled() -> Self {
        Self { errno: Some(CANCELLED), message: "cancelled".to_owned(), transient: true }
    }

    pub fn is_cancelled(&self) -> bool {
        self.errno == Some(CANCELLED)
    }

    /// What the error says of itself. A descriptor may know better: [`Descriptor::classify`](crate::Descriptor::classify).
    pub fn class(&self) -> ErrorClass {
        match self.errno {
            _ if self.transient => ErrorClass::Transient,
            None => ErrorClass::Environment,
            Some(number) if SURROUNDINGS.contains(&number) => ErrorClass::Environment,
            Some(_) => ErrorClass::Permanent,
        }
    }

    /// The object was not there: success for a delete.
    pub fn is_gone(&self) -> bool {
        self.errno.is_some_and(|number| GONE.contains(&number))
    }

    /// The object was there already: a create looks at it, and adopts it when it is as intended.
    pub fn exists(&self) -> bool {
        self.errno == Some(EXISTS)
    }
}

/// What became of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    pub op: OpId,
    pub result: Result<(), OperationError>,
    /// The object as seen after the operation, where the transport knows it (an echo, a read queued behind the batch).
    /// Without it the engine waits for a fact, or asks for a read.
    pub observed: Option<Fact>,
}

/// What the system has under a key, or that it has nothing there.
#[derive(Clone, Debug)]
pub struct Fact {
    pub key: Key,
    pub value: Option<SharedValue>,
    /// Wall clock, nanoseconds since 1970.
    pub time_ns: u64,
}

/// The time as the caller has it; the engine has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Since any fixed moment; never goes back.
    pub monotonic: Duration,
    /// Wall clock, nanoseconds since 1970: for the history only.
    pub unix_ns: u64,
}
