//! One line about everything that is configured: how much is in the system, and what is not.

use std::fmt;

use holdfast_core::{CommitError, CoreHandle};
use holdfast_scheduler::{Effect, Engine, KindId, TxnId, ValueState};
use serde::{Deserialize, Serialize};

/// Numbers of objects by what became of them. Its text is one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncSummary {
    /// Objects that are as they are configured.
    pub in_place: usize,
    /// Objects that wait for something.
    pub pending: usize,
    /// Objects that failed; some are tried again soon.
    pub failed: usize,
    /// Object that failed first in the order of the keys, or else the first one that waits.
    pub first: Option<String>,
}

impl SyncSummary {
    /// The summary of an engine. It costs a look at each value.
    pub fn of(engine: &Engine) -> Self {
        let mut summary = Self::default();
        for (state, count) in engine.state_counts_of(|kind| is_object(engine, kind)) {
            match Standing::of(state) {
                Standing::InPlace => summary.in_place += count,
                Standing::Pending => summary.pending += count,
                Standing::Failed => summary.failed += count,
                Standing::NotOurs => {}
            }
        }
        let wanted = if summary.failed > 0 { Standing::Failed } else { Standing::Pending };
        let unsettled = engine.pending_keys(0..engine.places());
        let unsettled = unsettled.filter(|key| is_object(engine, key.kind()));
        let first = unsettled.filter(|key| Standing::of(engine.state(key)) == wanted).min();
        Self { first: first.map(|key| engine.label(key)), ..summary }
    }

    pub fn is_in_sync(&self) -> bool {
        self.pending == 0 && self.failed == 0
    }
}

impl fmt::Display for SyncSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_in_sync() {
            let objects = if self.in_place == 1 { "object" } else { "objects" };
            return write!(f, "in sync, {} {objects}", self.in_place);
        }
        let counts = [(self.pending, "pending"), (self.failed, "failed")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        f.write_str(&counts.join(", "))?;
        self.first.as_ref().map_or(Ok(()), |first| write!(f, ": {first}"))
    }
}

/// Meaning of a state for the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InPlace,
    Pending,
    Failed,
    /// Nobody asks for it, or it is in the system without the agent.
    NotOurs,
}

impl Standing {
    fn of(state: ValueState) -> Self {
        match state {
            ValueState::Nonexistent | ValueState::Obtained => Self::NotOurs,
            ValueState::Configured => Self::InPlace,
            ValueState::InProgress | ValueState::Pending | ValueState::Cyclic => Self::Pending,
            ValueState::Conflict | ValueState::Missing | ValueState::Drifted => Self::Pending,
            ValueState::Invalid | ValueState::Unimplemented => Self::Failed,
            ValueState::Failed | ValueState::Retrying => Self::Failed,
        }
    }
}

/// True for kinds that are objects of the system. Others follow from them, as the prefix follows from an address.
pub fn is_object(engine: &Engine, kind: KindId) -> bool {
    let descriptor = engine.registry().descriptor(kind);
    descriptor.is_some_and(|it| it.observable() && it.effect() != Effect::Property)
}

/// Follows the summary for the service manager. The engine is asked for it only after something has happened.
#[derive(Debug)]
pub struct SyncFollower {
    core: CoreHandle,
    last: Option<(Option<TxnId>, usize, SyncSummary)>,
}

impl SyncFollower {
    pub fn new(core: CoreHandle) -> Self {
        Self { core, last: None }
    }

    /// The summary at present.
    ///
    /// # Errors
    /// When the core has stopped.
    pub async fn summary(&mut self) -> Result<SyncSummary, CommitError> {
        let last = self.last.clone();
        let found = self.core.inspect(move |view| {
            let newest = view.engine.history().records().next_back().map(|record| record.txn);
            let unsettled = view.engine.pending_count();
            match last {
                Some((txn, count, summary)) if (txn, count) == (newest, unsettled) => {
                    (txn, count, summary)
                }
                _ => (newest, unsettled, SyncSummary::of(view.engine)),
            }
        });
        let found = found.await?;
        self.last = Some(found.clone());
        Ok(found.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line() {
        let text = |in_place, pending, failed, first: Option<&str>| {
            let first = first.map(str::to_owned);
            SyncSummary { in_place, pending, failed, first }.to_string()
        };
        assert_eq!(text(1204, 0, 0, None), "in sync, 1204 objects");
        assert_eq!(text(1, 0, 0, None), "in sync, 1 object");
        assert_eq!(text(7, 2, 1, Some("link vec0")), "2 pending, 1 failed: link vec0");
        assert_eq!(text(7, 0, 3, Some("link vec0")), "3 failed: link vec0");
        assert_eq!(text(7, 2, 0, Some("link eth9")), "2 pending: link eth9");
    }
}
