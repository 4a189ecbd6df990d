//! What a change asks for beside its values.

use std::cmp::Reverse;

use smol_str::SmolStr;

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
    /// Refused unless the intent has this revision: see [`Engine::revision`](crate::Engine::revision).
    pub expected_revision: Option<u64>,
    /// A change that was started before under the same token is not made again: its transaction is the answer.
    pub token: Option<SmolStr>,
}
