//! What a change asks for beside its values.

use std::cmp::Reverse;
use std::time::Duration;

/// Who intends a value. Several may intend the same key: the value of the strongest counts, and when that one goes, the
/// next one's does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IntentSource {
    /// The highest counts.
    pub priority: u16,
    /// Among equals, the lowest counts.
    pub id: u16,
}

impl Ord for IntentSource {
    /// Strongest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (Reverse(self.priority), self.id).cmp(&(Reverse(other.priority), other.id))
    }
}

impl PartialOrd for IntentSource {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Conditions and terms of a change. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub source: IntentSource,
    /// Refused unless the plan has this hash: see [`Plan::hash`](crate::Plan::hash).
    pub expected_plan: Option<u64>,
    /// Refused unless the intent has this revision: see [`Engine::intent_revision`](crate::Engine::intent_revision).
    pub expected_revision: Option<u64>,
    pub retry: Retry,
    /// Tell when the change has come so far: see [`Step::reached`](crate::Step::reached).
    pub wait: Option<Wait>,
}

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// It is the intent, and its operations are on their way.
    Accepted,
    /// Its transaction came to a good end; some of its values may be pending.
    Applied,
    /// All of its values are as intended, parts included.
    Converged,
}

/// Somebody waits for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    pub level: Level,
    /// The patience of whoever waits, from the start of the change.
    pub within: Duration,
}

/// How operations that failed for a passing reason are tried again. It stays with the values of a change, parts
/// included, whatever makes their operations later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// The pause before the second try is anything up to this; it doubles with each try.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// Tries after the first one; `None` is without end.
    pub most: Option<u32>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: RETRY_FIRST, longest: RETRY_LONGEST, most: None }
    }
}

impl Retry {
    /// One try, and no more.
    pub fn never() -> Self {
        Self { most: Some(0), ..Self::default() }
    }
}

/// A kernel that was busy is so for milliseconds; a second is not noticed.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// A person waiting for the next try is patient that long.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
