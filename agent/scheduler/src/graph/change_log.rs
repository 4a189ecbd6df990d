//! Log of the changes of a graph, for plans that were made, or begun, before them.
//!
//! Each change of something that a plan may rely on has an entry, and the number of all entries so far is the revision
//! of the graph. A plan remembers the revision that it was made for, and compares the entries since then with its
//! [`ReadSet`](crate::overlay::ReadSet):
//!
//! ```text
//!               changes:  n7  t3  n7  n9  ...  n2
//!                         |        |               |
//! first entry kept -------+        |               |
//! revision of a plan --------------+ <-- since --> |
//! revision of the graph ---------------------------+
//! ```
//!
//! Entries are small, and say what changed rather than how: a plan that has read it is made again.

use std::collections::VecDeque;

use ipnet::IpNet;

use super::{NodeIdx, TargetId};
use crate::dependency::{Facet, Space};
use crate::key::Key;

/// Number of entries kept. A large transaction has some for each value, so a plan older than one is made again without a
/// comparison, which would take longer than some milliseconds. Entries have 32 bytes, all of them 2 MiB.
const ENTRIES_MOST: usize = 1 << 16;

/// Something that a plan may have read, and that is no longer the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GraphChange {
    /// A plane or the pre-image of a node, or that it exists.
    Node(NodeIdx),
    /// A node was dropped. Its slot may have another key since.
    Dropped(NodeIdx, Key),
    /// Membership of a node in the set of unsupported values.
    Unsupported(NodeIdx),
    /// A target that had no state got one.
    Opened(TargetId),
    /// The state of a target was dropped.
    Closed(TargetId),
    /// Number of providers of a target with a state.
    Providers(TargetId),
    /// Watchers or dependents of a target.
    Watchers(TargetId),
    /// Number of providers of a prefix in a space. Boxed, since it is rare and larger than the other entries.
    Prefix(Box<(Space, IpNet)>),
    /// Holder of an identity.
    Claim(Facet),
}

/// Latest changes, and the number of all changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    latest: VecDeque<GraphChange>,
    revision: u64,
}

impl ChangeLog {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn push(&mut self, change: GraphChange) {
        if self.latest.len() == ENTRIES_MOST {
            self.latest.pop_front();
        }
        self.latest.push_back(change);
        self.revision += 1;
    }

    /// Makes everything planned so far stale: for rare changes that most plans rely on.
    pub(crate) fn forget(&mut self) {
        self.latest.clear();
        self.revision += 1;
    }

    /// Changes since a revision; `None` when they are no longer known, so that everything may have changed.
    pub(crate) fn since(&self, revision: u64) -> Option<impl Iterator<Item = &GraphChange>> {
        let count = usize::try_from(self.revision.checked_sub(revision)?).ok()?;
        let first = self.latest.len().checked_sub(count)?;
        Some(self.latest.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(log: &ChangeLog, revision: u64) -> Option<Vec<GraphChange>> {
        log.since(revision).map(|changes| changes.cloned().collect())
    }

    #[test]
    fn changes_are_known_from_a_revision_on() {
        let mut log = ChangeLog::default();
        (0..3).for_each(|idx| log.push(GraphChange::Node(idx)));
        assert_eq!(since(&log, 3), Some(Vec::new()));
        assert_eq!(since(&log, 1), Some(vec![GraphChange::Node(1), GraphChange::Node(2)]));
        assert_eq!(since(&log, 4), None, "that revision is not of this log");
        log.forget();
        assert_eq!((since(&log, 3), since(&log, 4)), (None, Some(Vec::new())));
    }

    #[test]
    fn entries_beyond_the_bound_are_forgotten() {
        let mut log = ChangeLog::default();
        (0..=ENTRIES_MOST).for_each(|_| log.push(GraphChange::Node(0)));
        assert_eq!(since(&log, 0), None);
        assert_eq!(since(&log, 1).unwrap().len(), ENTRIES_MOST);
        assert!(size_of::<GraphChange>() <= 32);
    }
}
