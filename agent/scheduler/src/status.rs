//! What the engine tells about a value.

use std::fmt;
use std::time::Duration;

use crate::key::Key;
use crate::operation::{Action, OperationError, TxnId};
use crate::value::SharedValue;

/// The state of a value: a function of its three planes, the operation in flight and the last error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Nothing is intended, applied or observed.
    Nonexistent,
    /// The system has it, nobody asked for it.
    Obtained,
    /// The system has what was asked.
    Configured,
    /// An operation on it is under way.
    InProgress,
    /// Asked for, and waits for something that does not exist yet.
    Pending,
    /// Asked for, and waits for values that wait for it. Told where one status is asked for; lists say pending.
    Cyclic,
    /// Asked for, and another value holds an identity it needs.
    Conflict,
    /// Applied, and gone from the system since.
    Missing,
    /// Applied, and changed in the system since.
    Drifted,
    /// No system could have it; never tried.
    Invalid,
    /// Nobody taught the engine this kind of value.
    Unimplemented,
    /// The last operation failed; tried again when what it needs changes.
    Failed,
    /// The last operation failed; another try is scheduled.
    Retrying,
}

impl State {
    /// All there are.
    pub const ALL: [Self; 13] = [
        Self::Nonexistent,
        Self::Obtained,
        Self::Configured,
        Self::InProgress,
        Self::Pending,
        Self::Cyclic,
        Self::Conflict,
        Self::Missing,
        Self::Drifted,
        Self::Invalid,
        Self::Unimplemented,
        Self::Failed,
        Self::Retrying,
    ];
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nonexistent => "NONEXISTENT",
            Self::Obtained => "OBTAINED",
            Self::Configured => "CONFIGURED",
            Self::InProgress => "IN_PROGRESS",
            Self::Pending => "PENDING",
            Self::Cyclic => "CYCLIC",
            Self::Conflict => "CONFLICT",
            Self::Missing => "MISSING",
            Self::Drifted => "DRIFTED",
            Self::Invalid => "INVALID",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Failed => "FAILED",
            Self::Retrying => "RETRYING",
        })
    }
}

/// Why a value is where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Labels of the dependencies nobody meets: it waits for them, or does without them.
    pub unmet: Vec<String>,
    /// The values it waits for that wait for it in turn, itself first; empty when it is in no such circle.
    /// Searched for where one status is asked for, not in lists.
    pub cycle: Vec<Key>,
    /// Who holds the identity it needs, or gives the same part another value.
    pub conflict: Option<Key>,
    /// Why it cannot be an intent.
    pub invalid: Option<String>,
    pub error: Option<OperationError>,
    /// Tries since the last success.
    pub attempts: u32,
    /// When the next try is due, on the clock of [`Now::monotonic`](crate::Now).
    pub retry_at: Option<Duration>,
}

/// Everything about one value.
#[derive(Clone, Debug)]
pub struct Status {
    pub key: Key,
    pub label: String,
    pub state: State,
    pub detail: Detail,
    pub last: Option<LastOperation>,
    pub intended: Option<SharedValue>,
    pub applied: Option<SharedValue>,
    pub observed: Option<SharedValue>,
    /// The values it is a part of.
    pub part_of: Vec<Key>,
    /// Its parts, properties included.
    pub parts: Vec<Key>,
}

/// The operation that a value saw last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOperation {
    pub txn: TxnId,
    pub action: Action,
}

/// Work done since the engine was made: complexity is asserted on these, never on wall clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub plans: u64,
    /// Values looked at while planning.
    pub visited: u64,
    /// Entries of dependency lists walked, while planning and while keeping account.
    pub edges: u64,
    pub operations_planned: u64,
    pub operations_failed: u64,
    pub transactions: u64,
    pub facts: u64,
    pub facts_ignored: u64,
    pub reads: u64,
    pub drifts: u64,
}
