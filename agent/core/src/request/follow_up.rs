//! Report of what follows a commit, for a client that waits for more than the commit itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_config::ServiceTag;
use tokio::sync::watch;

/// Report of what follows one commit. The client keeps a clone of the one that goes with its request.
#[derive(Clone, Debug)]
pub struct FollowUp(Arc<Report>);

#[derive(Debug)]
struct Report {
    within: Duration,
    touched: OnceLock<Vec<ServiceTag>>,
    /// True when all values of the commit came into the system in time; `None` until that is known.
    settled: watch::Sender<Option<bool>>,
}

impl FollowUp {
    /// A report of what follows within this time.
    pub fn new(within: Duration) -> Self {
        let (settled, _) = watch::channel(None);
        Self(Arc::new(Report { within, touched: OnceLock::new(), settled }))
    }

    pub fn within(&self) -> Duration {
        self.0.within
    }

    /// The service instances whose parameters the commit has changed; none before it is in force.
    pub fn touched(&self) -> &[ServiceTag] {
        self.0.touched.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns when all values of the commit are in the system, or when its time is over: false then.
    pub async fn settled(&self) -> bool {
        let mut settled = self.0.settled.subscribe();
        let outcome = settled.wait_for(Option::is_some).await;
        outcome.is_ok_and(|outcome| *outcome == Some(true))
    }

    pub(crate) fn note_touched(&self, tags: Vec<ServiceTag>) {
        // A commit comes into force once.
        drop(self.0.touched.set(tags));
    }

    pub(crate) fn note_settled(&self, in_time: bool) {
        self.0.settled.send_replace(Some(in_time));
    }
}

impl PartialEq for FollowUp {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for FollowUp {}
