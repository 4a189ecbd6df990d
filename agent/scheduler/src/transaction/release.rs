//! Nodes of transactions that have ended.

use std::collections::VecDeque;
use std::time::Duration;

use crate::graph::NodeIdx;
use crate::operation::TxnId;

/// Time after the end of a large transaction before its nodes are released: callers then read its values, and the release
/// would keep the engine from them.
pub(crate) const RELEASE_AFTER: Duration = Duration::from_millis(250);

/// Nodes of transactions that have ended, in the order of their end.
#[derive(Debug, Default)]
pub(crate) struct Releases(pub(crate) VecDeque<Release>);

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) txn: TxnId,
    pub(crate) nodes: std::vec::IntoIter<NodeIdx>,
    pub(crate) due: Duration,
}

impl Releases {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Time of the next portion.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.0.front().map(|release| release.due)
    }
}
