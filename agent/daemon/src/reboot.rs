//! The pending reboot, of the agent or of the box: at most one at a time.
//!
//! The services share [`Reboots`]: they request a reboot, read its state, cancel it. When it is due, the run
//! that waits for [`Reboots::due`] ends in order and restarts the agent, or has the box rebooted.
//!
//! A reboot without force is refused while work is in progress that it would cut off ([`RebootInhibitors`]): at the request, so
//! that the client gets an error, and again when it is due, since a delay may last for days. The agent's own reboots (after a
//! factory reset or the activation of a version) end the work that they belong to, and are never refused.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_base::{Caller, ErrorChain, RebootInhibitors};
use holdfast_core::{Datastore, Intent};
use holdfast_store::{Change, LAST_REBOOT, Row, Store};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// The longest delay that is kept track of: a longer one is a mistake in the unit (nanoseconds).
pub const MAX_DELAY: Duration = Duration::from_secs(366 * 24 * 3600);
/// Reason for which an agent that may not reboot the box refuses to.
pub const NO_REBOOT_OF_THE_BOX: &str =
    "this agent runs with `--reboot agent`, and starts itself anew (WARM), not the box";
/// File with the id of the kernel's boot, random for each boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The part of the box that a reboot starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebootScope {
    /// The agent alone, which is WARM.
    Agent,
    /// The whole box, which is COLD.
    System,
}

/// Reasons for which a reboot is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebootError {
    #[error("a reboot is pending already: {0}")]
    Pending(String),
    #[error("the delay may be {MAX_DELAY:?} at most")]
    Delay,
    #[error("a reboot would interrupt work that is under way: {}; set `force` to reboot nevertheless", .0.join(", "))]
    UnderWay(Vec<SmolStr>),
}

/// A reboot that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedReboot {
    pub extent: RebootScope,
    pub delay: Duration,
    pub reason: String,
    /// Reboots also when that cuts off work in progress.
    pub force: bool,
}

/// A reboot that is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingReboot {
    pub at: Instant,
    /// The same moment, in nanoseconds since 1970.
    pub when_ns: u64,
    pub reason: String,
    pub extent: RebootScope,
    force: bool,
}

/// The last reboot that was due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReboot {
    /// When it was due, in nanoseconds since 1970.
    pub when_ns: u64,
    pub reason: String,
    /// Number of reboots carried out so far.
    pub count: u32,
    #[serde(default)]
    pub extent: Option<RebootScope>,
    /// Reason for which the reboot did not take place.
    #[serde(default)]
    pub failure: Option<String>,
    /// The boot of the kernel in which it was due.
    #[serde(default)]
    boot: String,
}

/// The pending reboot and the last one; clones share them.
#[derive(Clone, Debug)]
pub struct Reboots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    setting: RebootScope,
    pending_tx: watch::Sender<Option<PendingReboot>>,
    last: Mutex<Option<LastReboot>>,
    undertakings: RebootInhibitors,
    store: Store,
}

impl Reboots {
    /// Continues from the notes in the store; `setting` says what a reboot of the box restarts on this box.
    pub fn new(notes: &[Row], store: Store, setting: RebootScope) -> Self {
        let note = notes.iter().find(|(name, _)| name == LAST_REBOOT);
        let last = note.and_then(|(_, text)| serde_json::from_slice(text).ok());
        let last = last.map(|last| checked_against_boot(last, boot_id().ok().as_deref()));
        let pending_tx = watch::Sender::new(None);
        let last = Mutex::new(last);
        let undertakings = RebootInhibitors::default();
        Self(Arc::new(Shared { setting, pending_tx, last, undertakings, store }))
    }

    /// The part of this box that a reboot of the box restarts.
    pub fn setting(&self) -> RebootScope {
        self.0.setting
    }

    /// True when this box carries out a reboot of that extent.
    pub fn can(&self, extent: Option<RebootScope>) -> bool {
        extent != Some(RebootScope::System) || self.0.setting == RebootScope::System
    }

    /// List of work in progress that a reboot would cut off.
    pub fn undertakings(&self) -> &RebootInhibitors {
        &self.0.undertakings
    }

    /// Accepts a reboot that a client asks for.
    ///
    /// # Errors
    /// When a reboot is pending already, its delay is too long, or it would cut off work in progress.
    pub fn request(&self, wish: RequestedReboot) -> Result<(), RebootError> {
        let under_way = self.0.undertakings.names();
        match self.pending() {
            None if !wish.force && !under_way.is_empty() => Err(RebootError::UnderWay(under_way)),
            _ => self.schedule(wish),
        }
    }

    /// Reboots at once, as the setting says, also when that cuts off work in progress: the caller's own work ends with the
    /// reboot.
    ///
    /// # Errors
    /// When a reboot is pending.
    pub fn at_once(&self, reason: String) -> Result<(), RebootError> {
        let extent = self.0.setting;
        self.schedule(RequestedReboot { extent, delay: Duration::ZERO, reason, force: true })
    }

    /// Restarts the agent at once, independent of the setting.
    ///
    /// # Errors
    /// When a reboot is pending.
    pub fn restart(&self, reason: String) -> Result<(), RebootError> {
        let extent = RebootScope::Agent;
        let delay = Duration::ZERO;
        self.schedule(RequestedReboot { extent, delay, reason, force: true })
    }

    fn schedule(&self, wish: RequestedReboot) -> Result<(), RebootError> {
        let RequestedReboot { extent, delay, reason, force } = wish;
        if delay > MAX_DELAY {
            return Err(RebootError::Delay);
        }
        let when = SystemTime::now() + delay;
        let since = when.duration_since(UNIX_EPOCH).unwrap_or_default();
        let when_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let new = PendingReboot { at: Instant::now() + delay, when_ns, reason, extent, force };
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

    /// Cancels the pending reboot, if there is one.
    pub fn cancel(&self) {
        self.0.pending_tx.send_replace(None);
    }

    pub fn pending(&self) -> Option<PendingReboot> {
        self.0.pending_tx.borrow().clone()
    }

    pub fn last(&self) -> Option<LastReboot> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until a reboot is due that this box carries out, and that is forced or cuts nothing off, and records it in the
    /// store.
    pub async fn due(&self) -> PendingReboot {
        loop {
            let due = self.next_due().await;
            let under_way = self.0.undertakings.names();
            let can = self.can(Some(due.extent));
            if can && (due.force || under_way.is_empty()) {
                info!(reason = due.reason, extent = ?due.extent, "rebooting");
                let note = self.remember(&due, None);
                self.write_down(note).await;
                return due;
            }
            let why = if can {
                RebootError::UnderWay(under_way).to_string()
            } else {
                format!("COLD is not supported: {NO_REBOOT_OF_THE_BOX}")
            };
            warn!(reason = due.reason, why, "the reboot that is due does not take place");
            let note = self.remember(&due, Some(why));
            self.cancel();
            self.write_down(note).await;
        }
    }

    async fn next_due(&self) -> PendingReboot {
        let mut pending_rx = self.0.pending_tx.subscribe();
        loop {
            let pending = pending_rx.borrow_and_update().clone();
            let Some(pending) = pending else {
                // The sender is in `self`, so a change comes or nothing does.
                let _never_closed = pending_rx.changed().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(pending.at) => return pending,
                _ = pending_rx.changed() => {} // cancelled, or another one
            }
        }
    }

    /// Stores `due` as the last reboot; returns the text of its note.
    fn remember(&self, due: &PendingReboot, failure: Option<String>) -> Vec<u8> {
        let before = self.last().map_or(0, |last| last.count);
        let last = LastReboot {
            when_ns: due.when_ns,
            reason: due.reason.clone(),
            count: before + u32::from(failure.is_none()),
            extent: Some(due.extent),
            failure,
            boot: boot_id().unwrap_or_default(),
        };
        let text = serde_json::to_vec(&last).unwrap_or_default();
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        text
    }

    async fn write_down(&self, note: Vec<u8>) {
        let written = self.0.store.write(vec![Change::note(LAST_REBOOT, Some(note))]).await;
        if let Err(error) = written {
            error!(error = %ErrorChain(&error), "cannot store the outcome of a reboot");
        }
    }
}

/// Id of the kernel's boot, another text after each boot.
///
/// # Errors
/// When the kernel does not give it.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

/// Marks a reboot of the box as failed when the kernel has not booted since: its command failed, or the agent was
/// restarted before the box went down.
fn checked_against_boot(last: LastReboot, boot: Option<&str>) -> LastReboot {
    let failed = last.extent == Some(RebootScope::System) && boot == Some(&*last.boot);
    match last.failure {
        None if failed => {
            let failure =
                "the box has not booted since; the log of the agent may say why".to_owned();
            LastReboot { failure: Some(failure), ..last }
        }
        _ => last,
    }
}

/// Resets the box to its factory configuration, and restarts the agent.
///
/// # Errors
/// With the reason as text for people.
pub async fn reset_to_factory(
    core: &impl Datastore,
    reboots: &Reboots,
    caller: &Caller,
    retain_certificates: bool,
) -> Result<(), String> {
    let _undertaking = reboots.undertakings().begin("a factory reset");
    let reset = core.change(caller, Intent::FactoryReset { retain_certificates }).await;
    reset.map_err(|error| ErrorChain(&error).to_string())?;
    reboots.cancel();
    let request = reboots.at_once("factory reset".to_owned());
    request.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn wish(delay: Duration, reason: &str) -> RequestedReboot {
        RequestedReboot {
            extent: RebootScope::Agent,
            delay,
            reason: reason.to_owned(),
            force: false,
        }
    }

    fn begin(folder: &std::path::Path) -> (Store, Reboots) {
        let (store, loaded) = Store::open(folder).unwrap();
        let reboots = Reboots::new(&loaded.notes, store.clone(), RebootScope::System);
        (store, reboots)
    }

    // proves 6.5, 6.6
    #[tokio::test(start_paused = true)]
    async fn one_reboot_is_pending_and_can_be_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let (store, reboots) = begin(folder.path());
        reboots.cancel(); // with none pending
        reboots.request(wish(MINUTE, "first")).unwrap();
        let refused = reboots.request(wish(MINUTE, "second")).unwrap_err();
        assert_eq!(refused, RebootError::Pending("first".into()));
        reboots.cancel();
        assert_eq!(reboots.request(wish(MAX_DELAY * 2, "")), Err(RebootError::Delay));
        assert_eq!((reboots.pending(), reboots.last()), (None, None));
        reboots.request(wish(MINUTE, "third")).unwrap();
        assert_eq!(reboots.due().await.reason, "third");
        store.close().await.unwrap();

        let last = begin(folder.path()).1.last().unwrap();
        assert_eq!((last.reason.as_str(), last.count), ("third", 1));
        assert_eq!((last.extent, last.failure), (Some(RebootScope::Agent), None));
    }

    // proves 6.4
    #[tokio::test(start_paused = true)]
    async fn undertakings_stop_a_due_reboot_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let (_store, reboots) = begin(folder.path());
        let install = reboots.undertakings().begin("an image");
        let refused = reboots.request(wish(MINUTE, "early")).unwrap_err();
        assert_eq!(refused, RebootError::UnderWay(vec!["an image".into()]));
        drop(install);

        // Nothing was under way when it was asked for, but when it is due.
        reboots.request(wish(MINUTE, "late")).unwrap();
        let install = reboots.undertakings().begin("another image");
        let waited = tokio::time::timeout(2 * MINUTE, reboots.due()).await;
        assert!(waited.is_err(), "{waited:?}");
        let last = reboots.last().unwrap();
        assert_eq!((last.reason.as_str(), last.count, reboots.pending()), ("late", 0, None));
        assert!(last.failure.unwrap().contains("another image"));

        reboots.request(RequestedReboot { force: true, ..wish(MINUTE, "forced") }).unwrap();
        assert_eq!(reboots.due().await.reason, "forced");
        let last = reboots.last().unwrap();
        assert_eq!((last.count, last.failure), (1, None));
        drop(install);
    }

    /// A box that is not to be rebooted refuses when the time comes, with its reason, and takes the next request.
    // proves 6.5
    #[tokio::test(start_paused = true)]
    async fn a_reboot_that_the_box_cannot_do_is_refused_when_it_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let (store, loaded) = Store::open(folder.path()).unwrap();
        let reboots = Reboots::new(&loaded.notes, store, RebootScope::Agent);
        let cold = RequestedReboot {
            extent: RebootScope::System,
            force: true,
            ..wish(MINUTE, "maintenance")
        };
        reboots.request(cold.clone()).unwrap();
        assert!(reboots.pending().is_some());
        reboots.cancel();
        reboots.request(cold).unwrap();
        let waited = tokio::time::timeout(2 * MINUTE, reboots.due()).await;
        assert!(waited.is_err(), "{waited:?}");
        let last = reboots.last().unwrap();
        assert_eq!((last.reason.as_str(), last.count, reboots.pending()), ("maintenance", 0, None));
        assert!(last.failure.unwrap().contains("--reboot agent"));
        reboots.request(wish(MINUTE, "agent")).unwrap();
        assert_eq!(reboots.due().await.reason, "agent");
    }

    // proves 6.5
    #[tokio::test(start_paused = true)]
    async fn a_box_that_has_not_booted_has_not_rebooted() {
        let folder = tempfile::tempdir().unwrap();
        let (store, reboots) = begin(folder.path());
        reboots.at_once("a new image".to_owned()).unwrap();
        assert_eq!(reboots.due().await.extent, RebootScope::System);
        store.close().await.unwrap();
        let last = begin(folder.path()).1.last().unwrap();
        assert!(last.failure.as_ref().unwrap().contains("has not booted"), "{last:?}");
        let booted = LastReboot { failure: None, boot: "another boot".to_owned(), ..last };
        assert_eq!(checked_against_boot(booted.clone(), boot_id().ok().as_deref()), booted);
    }
}
