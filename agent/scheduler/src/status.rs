//! Status types of a value.

use std::fmt;
use std::time::Duration;

use crate::change::Owner;
use crate::key::Key;
use crate::operation::{Action, OperationError, TxnId};
use crate::value::SharedValue;

/// The state of a value: a function of its three planes, the operation in flight and the last error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueState {
    /// Nothing is intended, applied or observed.
    Nonexistent,
    /// In the system without an intent.
    Obtained,
    /// In the system as intended.
    Configured,
    /// An operation on it is under way.
    InProgress,
    /// Intended, and waiting for a target without a provider.
    Pending,
    /// Intended, and part of a cycle of values that wait for one another. Lists say pending: the search is done for
    /// single statuses only.
    Cyclic,
    /// Intended, while another value holds an identity it claims.
    Conflict,
    /// Applied, and gone from the system since.
    Missing,
    /// Applied, and changed in the system since.
    Drifted,
    /// Refused by the descriptor, never tried.
    Invalid,
    /// No descriptor for this kind.
    Unimplemented,
    /// The last operation failed, and time is not expected to help; tried again slowly, and where the surroundings may be the
    /// reason, when a dependency changes. Never stays for good.
    Failed,
    /// The last operation failed; another try comes soon.
    Retrying,
}

impl ValueState {
    /// All states.
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

impl fmt::Display for ValueState {
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

/// Reasons for the state of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Labels of the unmet dependencies: the value waits for them, or is reduced by them.
    pub unmet: Vec<String>,
    /// Cycle of values that wait for one another, beginning with this one; empty when there is none. Searched for
    /// single statuses only, not in lists.
    pub cycle: Vec<Key>,
    /// Value that holds the claimed identity, or gives the same part another value.
    pub conflict: Option<Key>,
    /// Owner that asks for another value under the same key, in vain.
    pub other_owner: Option<Owner>,
    /// Reason why the value cannot be an intent.
    pub invalid: Option<String>,
    /// Reason for a drift, where its descriptor knows one.
    pub drift: Option<String>,
    pub error: Option<OperationError>,
    /// Tries since the last success.
    pub attempts: u32,
    /// Time of the next try of a value with an error, on the clock of [`Now::monotonic`](crate::Now).
    pub retry_at: Option<Duration>,
    /// Next step for a value that is missing or drifted.
    pub repair: Option<Repair>,
}

/// Next step for a value that is not in the system as it was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is repaired at this time, on the clock of [`Now::monotonic`](crate::Now). The more often that was necessary lately,
    /// the later; `number` counts these repairs.
    Due { at: Duration, number: u32 },
    /// It is left as it is: its drift policy, or its kind, says so.
    Left,
}

impl Detail {
    /// Error of the value and its next try, as a text: `busy (errno 16), tried again in 28 s, 3rd try`. `now` is on the clock of
    /// [`Now::monotonic`](crate::Now).
    pub fn error_text(&self, now: Duration) -> Option<String> {
        let error = self.error.as_ref()?;
        let Some(at) = self.retry_at else {
            return Some(format!("{error}, {} tries", self.attempts));
        };
        let pause = seconds_until(at, now);
        let next = ordinal(self.attempts.saturating_add(1));
        Some(format!("{error}, tried again in {pause} s, {next} try"))
    }

    /// Next step for a missing or drifted value, as a text: `repaired in 16 s, 11th repair in a row`.
    pub fn repair_text(&self, now: Duration) -> Option<String> {
        Some(match self.repair? {
            Repair::Due { at, number } => {
                let pause = seconds_until(at, now);
                let number = ordinal(number);
                format!("repaired in {pause} s, {number} repair in a row")
            }
            Repair::Left => "left as it is, by its drift policy".to_owned(),
        })
    }
}

/// Seconds until a time, rounded up.
fn seconds_until(at: Duration, now: Duration) -> f64 {
    at.saturating_sub(now).as_secs_f64().ceil()
}

/// English ordinal number: `3rd`.
fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (1, it) if it != 11 => "st",
        (2, it) if it != 12 => "nd",
        (3, it) if it != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Status of one value.
#[derive(Clone, Debug)]
pub struct ValueStatus {
    pub key: Key,
    pub label: String,
    pub state: ValueState,
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

/// Last operation on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOperation {
    pub txn: TxnId,
    pub action: Action,
}

/// Work done since the engine was created. Tests assert complexity on these counters, never on wall clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub plans: u64,
    /// Plans made again when their turn came, because something that they rely on had changed.
    pub replanned: u64,
    /// Values visited while planning.
    pub visited: u64,
    /// Entries of dependency lists walked, while planning and while updating counts.
    pub edges: u64,
    pub operations_planned: u64,
    pub operations_failed: u64,
    pub transactions: u64,
    /// Portions of plans that the engine made between events. One call makes one of each plan at most.
    pub plan_portions: u64,
    /// Operations and values that were looked at to compare plans with others. One call looks at a portion of them.
    pub compared: u64,
    /// Operations of failed transactions that were ended, and values of before that were listed, for the way back. One call
    /// does a portion of them.
    pub rolled_back: u64,
    /// Items of plans that were taken over: values, operations, pre-images. One call does a portion of them.
    pub taken_over: u64,
    /// Values that were updated because a target came or went that many of them need. One call updates a portion of them.
    pub watchers_updated: u64,
    /// Items of complete readings that were taken in. One call does a portion of them.
    pub read_in: u64,
    /// Values that were found in place and recorded as applied without a plan.
    pub found_in_place: u64,
    pub facts: u64,
    pub facts_ignored: u64,
    pub reads: u64,
    pub drifts: u64,
    /// Tries of values that failed which nothing but time began.
    pub slow_retries: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_that_is_waited_for_is_told_with_its_number() {
        let text =
            |repair| Detail { repair, ..Detail::default() }.repair_text(Duration::from_secs(5));
        let due = Repair::Due { at: Duration::from_millis(20_500), number: 11 };
        assert_eq!(text(Some(due)).unwrap(), "repaired in 16 s, 11th repair in a row");
        assert_eq!(text(Some(Repair::Left)).unwrap(), "left as it is, by its drift policy");
        assert_eq!(text(None), None);
    }

    #[test]
    fn the_next_try_is_told_with_its_number() {
        let at = |attempts, retry_at| {
            let error = Some(OperationError::message("no such device"));
            let retry_at = Option::map(retry_at, Duration::from_millis);
            let detail = Detail { error, attempts, retry_at, ..Detail::default() };
            detail.error_text(Duration::from_secs(5)).unwrap()
        };
        assert_eq!(at(1, Some(32_001)), "no such device, tried again in 28 s, 2nd try");
        assert_eq!(at(10, Some(4_000)), "no such device, tried again in 0 s, 11th try");
        assert_eq!(at(22, Some(5_100)), "no such device, tried again in 1 s, 23rd try");
        assert_eq!(at(3, None), "no such device, 3 tries", "an operation is under way");
        assert_eq!(Detail::default().error_text(Duration::ZERO), None);
    }
}
