//! Commit boundaries: what followers of the configuration are told after each commit.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::sync::broadcast;

use super::revision::Revision;

/// Boundaries that a follower may be behind. Each keeps the tree of its commit, so that the changes of one commit are
/// told apart from those of the next, and an old tree is memory; without a follower none is kept.
pub const MAX_BOUNDARIES: usize = 16;

/// One commit, whoever made it.
#[derive(Clone, Debug)]
pub struct Boundary {
    /// The first revision that shows it.
    pub revision: Arc<Revision>,
    /// The number of the transaction: ascending, also over restarts.
    pub transaction: u64,
    /// By which the client knows a commit that it must confirm: of the commit, and of its roll-back.
    pub confirm_id: Option<SmolStr>,
}

pub type Boundaries = broadcast::Receiver<Boundary>;

/// The sending half of [`Boundaries`], which hands out receivers.
#[derive(Clone, Debug)]
pub struct BoundarySender(broadcast::Sender<Boundary>);

impl Default for BoundarySender {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BOUNDARIES))
    }
}

impl BoundarySender {
    pub fn subscribe(&self) -> Boundaries {
        self.0.subscribe()
    }

    /// Tells all followers, if there are any.
    pub fn tell(&self, boundary: Boundary) {
        let _nobody_follows = self.0.send(boundary);
    }
}
