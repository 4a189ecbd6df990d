//! The one reboot that may be pending, of the agent or of the box.
//!
//! [`Reboots`] is what the services hold: they ask for a reboot, ask about it, give it up. When it is due, the run
//! that is told by [`Reboots::due`] ends in order and starts the agent anew, or has the box rebooted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use holdfast_base::Chain;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info};

use holdfast_store::{Change, LAST_REBOOT, Row, Store};

/// The longest delay that is kept track of: a longer one is a mistake in the unit (nanoseconds).
pub const MAX_DELAY: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a reboot starts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extent {
    /// The agent alone: links and routes stay as they are
    Agent,
    /// The whole box, by the system's own `reboot` command
    System,
}

/// Why a reboot is not taken on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebootError {
    #[error("a reboot is pending already: {0}")]
    Pending(String),
    #[error("a delay has at most {MAX_DELAY:?}")]
    Delay,
}

/// A reboot that is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    pub at: Instant,
    /// The same moment, in nanoseconds since 1970.
    pub when_ns: u64,
    pub reason: String,
    /// What starts anew; nothing where that is the operator's setting.
    pub extent: Option<Extent>,
}

/// The last reboot that was carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// When it was due, in nanoseconds since 1970.
    pub when_ns: u64,
    pub reason: String,
    /// How many there have been.
    pub count: u32,
}

/// What is known of reboots; clones share it.
#[derive(Clone, Debug)]
pub struct Reboots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pending_tx: watch::Sender<Option<Pending>>,
    last: Mutex<Option<Last>>,
    store: Store,
}

impl Reboots {
    /// `notes` are those of the store.
    pub fn new(notes: &[Row], store: Store) -> Self {
        let note = notes.iter().find(|(name, _)| name == LAST_REBOOT);
        let last = note.and_then(|(_, text)| serde_json::from_slice(text).ok());
        let (pending_tx, last) = (watch::Sender::new(None), Mutex::new(last));
        Self(Arc::new(Shared { pending_tx, last, store }))
    }

    /// Takes a reboot on.
    ///
    /// # Errors
    /// When one is pending already, or this one is too far away.
    pub fn ask(&self, delay: Duration, reason: String) -> Result<(), RebootError> {
        self.take_on(delay, reason, None)
    }

    /// Has the agent start anew at once, whatever the setting says of reboots.
    ///
    /// # Errors
    /// When a reboot is pending.
    pub fn restart(&self, reason: String) -> Result<(), RebootError> {
        self.take_on(Duration::ZERO, reason, Some(Extent::Agent))
    }

    fn take_on(
        &self,
        delay: Duration,
        reason: String,
        extent: Option<Extent>,
    ) -> Result<(), RebootError> {
        if delay > MAX_DELAY {
            return Err(RebootError::Delay);
        }
        let when = SystemTime::now() + delay;
        let since = when.duration_since(UNIX_EPOCH).unwrap_or_default();
        let when_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let new = Pending { at: Instant::now() + delay, when_ns, reason, extent };
        let mut refused = None;
        self.0.pending_tx.send_if_modified(|pending| {
            match pending {
                Some(pending) => refused = Some(RebootError::Pending(pending.reason.clone())),
                None => *pending = Some(new),
            }
            refused.is_none()
        });
        refused.map_or(Ok(()), Err)
    }

    /// Gives the pending one up, if there is one.
    pub fn cancel(&self) {
        self.0.pending_tx.send_replace(None);
    }

    pub fn pending(&self) -> Option<Pending> {
        self.0.pending_tx.borrow().clone()
    }

    pub fn last(&self) -> Option<Last> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the pending reboot is due, and writes down that it was carried out.
    pub async fn due(&self) -> Pending {
        let mut pending_rx = self.0.pending_tx.subscribe();
        let due = loop {
            let pending = pending_rx.borrow_and_update().clone();
            let Some(pending) = pending else {
                // The sender is in `self`, so a change comes or nothing does.
                let _never_closed = pending_rx.changed().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(pending.at) => break pending,
                _ = pending_rx.changed() => {} // given up, or another one
            }
        };
        info!(reason = due.reason, "rebooting");
        self.write_down(&due).await;
        due
    }

    async fn write_down(&self, due: &Pending) {
        let count = self.last().map_or(0, |last| last.count) + 1;
        let last = Last { when_ns: due.when_ns, reason: due.reason.clone(), count };
        let text = serde_json::to_vec(&last).unwrap_or_default();
        let written = self.0.store.write(vec![Change::note(LAST_REBOOT, Some(text))]).await;
        if let Err(error) = written {
            error!(error = %Chain(&error), "cannot write down that a reboot took place");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 6.5, 6.6
    #[tokio::test(start_paused = true)]
    async fn one_reboot_is_pending_and_can_be_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (store, loaded) = Store::open(folder.path()).unwrap();
        let reboots = Reboots::new(&loaded.notes, store.clone());
        reboots.cancel(); // with none pending
        let minute = Duration::from_secs(60);
        reboots.ask(minute, "first".into()).unwrap();
        let refused = reboots.ask(minute, "second".into()).unwrap_err();
        assert_eq!(refused, RebootError::Pending("first".into()));
        assert_eq!(reboots.ask(MAX_DELAY * 2, String::new()), Err(RebootError::Delay));
        reboots.cancel();
        assert_eq!((reboots.pending(), reboots.last()), (None, None));
        reboots.ask(minute, "third".into()).unwrap();
        assert_eq!(reboots.due().await.reason, "third");
        store.close().await.unwrap();

        let (store, loaded) = Store::open(folder.path()).unwrap();
        let last = Reboots::new(&loaded.notes, store).last().unwrap();
        assert_eq!((last.reason.as_str(), last.count), ("third", 1));
    }
}
