//! Changes of the intent, as callers ask for them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use crate::key::Key;
use crate::value::SharedValue;

/// One of several that may ask for a value under the same key, with its name for messages. Where two ask for different
/// values, a change is refused; where they do so already, as after a start, the first by name counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(pub(crate) Arc<SmolStr>);

impl Owner {
    pub fn new(name: SmolStr) -> Self {
        Self(Arc::new(name))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Change of the intent for one key: its new value, or `None` to intend it no more.
#[derive(Clone, Debug)]
pub struct IntentChange {
    pub key: Key,
    /// `None` for a key that a single owner can have.
    pub owner: Option<Owner>,
    pub value: Option<SharedValue>,
}

impl From<(Key, Option<SharedValue>)> for IntentChange {
    fn from((key, value): (Key, Option<SharedValue>)) -> Self {
        Self { key, owner: None, value }
    }
}

impl From<(Key, SharedValue)> for IntentChange {
    fn from((key, value): (Key, SharedValue)) -> Self {
        Self { key, owner: None, value: Some(value) }
    }
}

/// Change of intent.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pub changes: Vec<IntentChange>,
    pub mode: Mode,
    /// Subject, for the history.
    pub description: String,
    /// Author, for the history.
    pub author: Option<Arc<Author>>,
    /// Text of what the change does besides its values: part of [`Plan::hash`].
    pub beside: String,
    /// Hash without which the plan is refused: see [`Plan::hash`].
    pub expected_plan: Option<u64>,
    /// Level at which to report the change: see [`EngineOutput::reached`](crate::Step::reached).
    pub wait: Option<Wait>,
}

/// Behaviour when a part of a change cannot be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All or nothing: an invalid value refuses the plan, a failed operation undoes it.
    #[default]
    Atomic,
    /// As much as possible: an invalid value keeps what was applied before, a failed one is tried again.
    BestEffort,
}

impl Delta {
    /// Atomic change to these values.
    pub fn new(changes: Vec<impl Into<IntentChange>>) -> Self {
        Self { changes: changes.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    #[must_use]
    pub fn best_effort(self) -> Self {
        Self { mode: Mode::BestEffort, ..self }
    }

    /// Refuses the change unless its plan has this hash.
    #[must_use]
    pub fn expecting_plan(mut self, hash: u64) -> Self {
        self.expected_plan = Some(hash);
        self
    }

    /// Reports when the change has reached this level, or when the time is over.
    #[must_use]
    pub fn waiting_for(mut self, level: Level, within: Duration) -> Self {
        self.wait = Some(Wait { level, within });
        self
    }

    /// Tells what the change does besides its values, so that the hash of the plan covers that too.
    #[must_use]
    pub fn with_beside(self, beside: String) -> Self {
        Self { beside, ..self }
    }

    #[must_use]
    pub fn described(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    #[must_use]
    pub fn by(self, author: Author) -> Self {
        Self { author: Some(Arc::new(author)), ..self }
    }
}

/// Client on whose behalf a change was made. The engine keeps it with the transaction and never looks inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Author {
    /// The identity of the client.
    pub client: String,
    /// Trace id of the request, as in the log.
    pub trace: String,
}

/// Progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The change is the intent, and its operations are on their way.
    Accepted,
    /// The transaction ended well; some of its values may be pending.
    Applied,
    /// All of its values are as intended, parts included.
    Converged,
}

/// Request to report the progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    pub level: Level,
    /// Time limit, from the start of the change.
    pub within: Duration,
}
