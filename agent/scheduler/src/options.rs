//! What a change asks for beside its values.

use std::time::Duration;

/// Conditions and terms of a change. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Refused unless the plan has this hash: see [`Plan::hash`](crate::Plan::hash).
    pub expected_plan: Option<u64>,
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
