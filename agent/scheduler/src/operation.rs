//! Operations, their completions, and facts.

use std::fmt;
use std::time::Duration;

use crate::key::Key;
use crate::value::SharedValue;

/// `errno` values by which a transport says that the object of a delete is not there: ENOENT, ESRCH, ENXIO, ENODEV,
/// EADDRNOTAVAIL.
const GONE: [i32; 5] = [2, 3, 6, 19, 99];
/// `errno` ECANCELED: the transport did not begin an operation, or ended it, because it was cancelled.
const CANCELLED: i32 = 125;
/// `errno` EEXIST.
const EXISTS: i32 = 17;

/// Transport that carries an operation. A transport carries out its operations in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportId(pub u8);

impl TransportId {
    /// Transport of kinds that the system does not know and that cannot be observed. The engine completes their
    /// operations itself, in their place of the order.
    pub const NONE: Self = Self(u8::MAX);
}

/// Number of an operation: unique in the life of an engine, ascending in the order of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Number of a transaction: unique in the life of an engine, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TxnId(pub u64);

/// Effect of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Deletes `old`.
    Delete,
    /// Gives an adopted object back: from `old`, which we had set, to `new`, its pre-image.
    Release,
    /// Changes `old` to `new` in place.
    Update,
    /// Takes over an object that exists and is not ours: from `old`, as observed, to `new`.
    Adopt,
    /// Creates `new`.
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

/// One request to a transport. `old` is the present value as far as known, `new` the wanted one.
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

/// `errno` values that concern the surroundings rather than the operation itself: ENOENT, ESRCH, ENXIO, EEXIST, ENODEV,
/// EADDRNOTAVAIL, ENETDOWN, ENETUNREACH, EHOSTUNREACH.
const SURROUNDINGS: [i32; 9] = [2, 3, 6, 17, 19, 99, 100, 101, 113];

/// Condition under which a failed operation is worth another try. In every class there is one that time alone brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Time may help: tried again soon.
    Transient,
    /// Something else prevents it: tried again when a target of the value, or the value itself, changes, and slowly.
    Environment,
    /// The state of another object prevents it, as an unmet dependency would: the value waits, and its transaction does not
    /// fail. Tried again as in [`ErrorClass::Environment`], and after a pause, since nobody may announce the change.
    Unmet,
    /// The value itself is the reason, as far as its `errno` tells: tried again with another value, after a dependency was
    /// lost and met again, and slowly. The last because the kernel gives EINVAL, EACCES and others for the state of other
    /// objects as well.
    Permanent,
}

/// Reason why a transport did not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", errno.map(|number| format!(" (errno {number})")).unwrap_or_default())]
pub struct OperationError {
    pub errno: Option<i32>,
    /// Message of the system where it gives one.
    pub message: String,
    /// True when the same operation may succeed later without a change of intent or of its dependencies.
    pub transient: bool,
}

impl OperationError {
    /// An error without an `errno`.
    pub fn message(message: impl Into<String>) -> Self {
        Self { errno: None, message: message.into(), transient: false }
    }

    /// Answer of a transport for an operation that it ended, or did not begin, because it was cancelled.
    pub fn cancelled() -> Self {
        Self { errno: Some(CANCELLED), message: "cancelled".to_owned(), transient: true }
    }

    pub fn is_cancelled(&self) -> bool {
        self.errno == Some(CANCELLED)
    }

    /// Class as far as the error itself tells. A descriptor may override it:
    /// [`Descriptor::classify`](crate::Descriptor::classify).
    pub fn class(&self) -> ErrorClass {
        match self.errno {
            _ if self.transient => ErrorClass::Transient,
            None => ErrorClass::Environment,
            Some(number) if SURROUNDINGS.contains(&number) => ErrorClass::Environment,
            Some(_) => ErrorClass::Permanent,
        }
    }

    /// True when the object was absent: success for a delete.
    pub fn is_gone(&self) -> bool {
        self.errno.is_some_and(|number| GONE.contains(&number))
    }

    /// True when the object existed already: a create then compares, and adopts the object when it is as intended.
    pub fn exists(&self) -> bool {
        self.errno == Some(EXISTS)
    }
}

/// Result of an operation.
#[derive(Clone, Debug)]
pub struct Completion {
    pub op: OpId,
    pub result: Result<(), OperationError>,
    /// Object as seen after the operation, where the transport knows it (an echo, a read queued behind the batch).
    /// Without it the engine waits for a fact, or asks for a read.
    pub observed: Option<Fact>,
}

/// Observed value under a key; `None` when nothing is there.
#[derive(Clone, Debug)]
pub struct Fact {
    pub key: Key,
    pub value: Option<SharedValue>,
    /// Wall clock, nanoseconds since 1970.
    pub time_ns: u64,
}

/// Current time, given by the caller: the engine has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic clock, since any fixed moment.
    pub monotonic: Duration,
    /// Wall clock, nanoseconds since 1970, for the history only.
    pub unix_ns: u64,
}
