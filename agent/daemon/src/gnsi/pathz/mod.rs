//! Which paths who may read and write: the policy in force.
//!
//! Start at [`Pathz`]. [`judge`] is a policy made ready for the models of this box, [`rights`] what it comes to for one
//! user: what the services of gNMI ask for every path that they read or write. Without a policy there are no rights to
//! be asked, and everything is allowed.

pub mod judge;
mod prune;
pub mod rights;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use tokio::sync::watch;

pub use judge::{Judge, Misfit, Scope};
pub use prune::visible;
pub use rights::{NodeView, Rights};

/// The policy in force, shared by all who ask it.
#[derive(Clone, Debug)]
pub struct Pathz(Arc<watch::Sender<Option<Arc<Judge>>>>);

impl Default for Pathz {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Pathz {
    pub fn in_force(&self) -> Option<Arc<Judge>> {
        self.0.borrow().clone()
    }

    /// What one user may do now; none where nothing is forbidden.
    pub fn rights(&self, user: &str) -> Option<Arc<Rights>> {
        self.0.borrow().as_ref().map(|judge| Arc::new(judge.rights(user)))
    }

    /// Tells of every policy that comes into force from now on.
    pub fn follow(&self) -> Policies {
        Policies(self.0.subscribe())
    }

    /// From now on this is in force.
    pub fn enforce(&self, judge: Option<Arc<Judge>>) {
        self.0.send_replace(judge);
    }
}

/// The policy that somebody began under.
#[derive(Debug)]
pub struct Policies(watch::Receiver<Option<Arc<Judge>>>);

impl Policies {
    /// What one user may do under the present one, which is known from now on.
    pub fn rights(&mut self, user: &str) -> Option<Arc<Rights>> {
        self.0.borrow_and_update().as_ref().map(|judge| Arc::new(judge.rights(user)))
    }

    /// Resolves when another one is in force than was known; never where nobody is left to bring one.
    pub async fn replaced(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
