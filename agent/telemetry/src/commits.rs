//! Commit boundaries, which tell followers of the configuration where each commit ends.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::sync::broadcast;

use super::revision::Revision;

/// Boundaries by which a follower may lag. Each holds the tree of its commit, so that the changes of one commit
/// can be separated from those of the next; old trees take memory. Without a follower none is kept.
pub const MAX_BOUNDARIES: usize = 16;

/// The end of one commit, by any author.
#[derive(Clone, Debug)]
pub struct Boundary {
    /// First revision that includes the commit.
    pub revision: Arc<Revision>,
    /// Number of the transaction: ascending, also across restarts.
    pub transaction: u64,
    /// Client's id of a commit to be confirmed; also set for walks that belong to that commit, and for its roll-back.
    pub confirm_id: Option<SmolStr>,
}

pub type BoundaryReceiver = broadcast::Receiver<Boundary>;

/// Sending half of [`BoundaryReceiver`], which hands out receivers.
#[derive(Clone, Debug)]
pub struct BoundarySender(broadcast::Sender<Boundary>);

impl Default for BoundarySender {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BOUNDARIES))
    }
}

impl BoundarySender {
    pub fn subscribe(&self) -> BoundaryReceiver {
        self.0.subscribe()
    }

    /// Sends the boundary to all followers.
    pub fn send(&self, boundary: Boundary) {
        let _no_follower = self.0.send(boundary);
    }
}
