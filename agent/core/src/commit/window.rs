//! Commit-confirmed: one commit at a time waits for its confirmation, and is taken back if none comes in time.
//!
//! The store keeps the layers that the commit replaced until it is confirmed or taken back; a start that finds such a
//! record takes the commit back before anything is read. Changes of other layers (boot, leases, switches) stay.
//!
//! Walks that instances of services need meanwhile join the commit: whatever changes claims or service plans is taken back
//! with it, in memory by the layers before it, on disk by the rows that join its record
//! ([decision 032](../../decisions/032-walks-inside-a-window.md)).

use std::time::Duration;

use holdfast_base::RebootInhibitor;
use holdfast_config::{Elem, InstancePath, Layers, Models, Path, Value};
use holdfast_telemetry::Revision;
use smol_str::SmolStr;

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

/// The commit that waits to be confirmed, as a revision shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedCommit {
    pub id: SmolStr,
    /// Time of its rollback, nanoseconds since 1970.
    pub rollback_at_ns: u64,
}

/// Container of the native model that shows it.
const SHOWN: &str = "commit-state";
pub(crate) const ID: &str = "unconfirmed";
pub(crate) const ROLLBACK_AT: &str = "rollback-at";

pub(crate) fn shown_leaf(models: &Models, leaf: &'static str) -> Option<InstancePath> {
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
