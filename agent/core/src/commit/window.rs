//! Commit-confirmed: one commit at a time waits for its confirmation, and is taken back if none comes in time.
//!
//! The store keeps the layers that the commit replaced until it is confirmed or taken back; a start that finds such a
//! record takes the commit back before anything is read. Changes of other layers (boot, leases, switches) stay.
//!
//! Walks that instances of services need meanwhile join the commit: whatever changes claims or service plans is taken back
//! with it, in memory by the layers before it, on disk by the rows that join its record
//! ([decision 032](../../decisions/032-walks-inside-a-window.md)).

use std::time::Duration;

use holdfast_base::{RebootInhibitor, RebootInhibitors};
use holdfast_config::{Elem, InstancePath, Layers, Models, Path, Value};
use holdfast_scheduler::Now;
use holdfast_telemetry::Revision;
use smol_str::SmolStr;

use super::in_flight::CommitInFlight;
use crate::publication::ServiceState;
use crate::request::{ConfirmAction, Confirmation};

/// The commit that waits to be confirmed, and the layers before it.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) id: SmolStr,
    /// Layers before the commit. The client's two are brought back, with the claims and plans of services.
    pub(crate) before: Layers,
    /// Time of the rollback, since the start of the core.
    pub(crate) until: Duration,
    /// A reboot would take the commit back.
    pub(crate) _undertaking: RebootInhibitor,
}

/// Commit-confirmed: the window is open while a commit waits to be confirmed.
#[derive(Debug)]
pub(crate) struct ConfirmWindow {
    open: Option<Window>,
    /// Id and time of the rollback, as the last revision shows them.
    shown: Option<(SmolStr, Duration)>,
    undertakings: RebootInhibitors,
}

impl ConfirmWindow {
    pub(crate) fn new(undertakings: RebootInhibitors) -> Self {
        Self { open: None, shown: None, undertakings }
    }

    /// The commit that waits to be confirmed.
    pub(crate) fn waiting(&self) -> Option<&Window> {
        self.open.as_ref()
    }

    /// Time of the rollback, since the start of the core.
    pub(crate) fn until(&self) -> Option<Duration> {
        self.open.as_ref().map(|window| window.until)
    }

    /// Sets another time of the rollback.
    pub(crate) fn extend(&mut self, until: Duration) {
        if let Some(window) = &mut self.open {
            window.until = until;
        }
    }

    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Opens or closes the window with a commit, before its configuration is in force instead of `before`. Returns the id
    /// of the commit that must be confirmed, if this commit is the one, belongs to it or takes it back.
    pub(crate) fn open_or_close(
        &mut self,
        commit: &CommitInFlight,
        before: &Layers,
        now: Now,
    ) -> Option<SmolStr> {
        if commit.is_rollback {
            return self.open.take().map(|window| window.id);
        }
        if commit.is_reactive_walk {
            return self.open.as_ref().map(|window| window.id.clone());
        }
        let Confirmation { id, action } = commit.options.confirmation.as_ref()?;
        let ConfirmAction::Begin { rollback_after } = *action else { return None };
        let until = now.monotonic + rollback_after;
        let name = format!("the commit `{id}`, which waits to be confirmed");
        let _undertaking = self.undertakings.begin_without_actions(name);
        self.open = Some(Window { id: id.clone(), before: before.clone(), until, _undertaking });
        Some(id.clone())
    }

    /// State that shows the window, after it or its time has changed.
    pub(crate) fn news(&mut self, models: &Models, now: Now) -> Option<ServiceState> {
        let window = self.open.as_ref().map(|window| (window.id.clone(), window.until));
        if window == self.shown {
            return None;
        }
        let at = |until: Duration| {
            let left = until.saturating_sub(now.monotonic).as_nanos();
            now.unix_ns.saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
        };
        let values = [
            (ID, window.as_ref().map(|(id, _)| Value::Str(id.as_str().into()))),
            (ROLLBACK_AT, window.as_ref().map(|(_, until)| Value::Uint(at(*until)))),
        ];
        let leaves =
            values.into_iter().filter_map(|(leaf, value)| Some((shown_leaf(models, leaf)?, value)));
        let leaves = leaves.collect();
        self.shown = window;
        Some(leaves)
    }
}

/// The commit that waits to be confirmed, as a revision shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedCommit {
    pub id: SmolStr,
    /// Time of its rollback, nanoseconds since 1970.
    pub rollback_at_ns: u64,
}

/// Container of the native model that shows it.
const SHOWN: &str = "commit-state";
const ID: &str = "unconfirmed";
const ROLLBACK_AT: &str = "rollback-at";

fn shown_leaf(models: &Models, leaf: &'static str) -> Option<InstancePath> {
    let path = Path { elems: vec![Elem::new(SHOWN), Elem::new(leaf)] };
    models.native.resolve_write(&path).ok()
}

impl UnconfirmedCommit {
    /// The commit that waits, if there is one.
    pub fn of(revision: &Revision) -> Option<Self> {
        let value = |leaf| {
            let path = shown_leaf(&revision.models, leaf)?;
            revision.native.find_leaf(&path).map(|leaf| leaf.value.clone())
        };
        let Value::Uint(rollback_at_ns) = value(ROLLBACK_AT)? else { return None };
        Some(Self { id: value(ID)?.to_string().into(), rollback_at_ns })
    }

    /// Text for people, with the time that is left.
    pub fn text(&self, now_ns: u64) -> String {
        let left = Duration::from_nanos(self.rollback_at_ns.saturating_sub(now_ns));
        let left = left.as_secs_f64().ceil();
        format!("the commit `{}` waits to be confirmed; it is rolled back in {left} s", self.id)
    }
}
