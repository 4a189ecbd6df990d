//! Walks for the impacts of open alarms.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{InstancePath, SharedPath};
use holdfast_core::{CoreHandle, Datastore as _, EntryImpact};
use holdfast_faults::{Condition, Faults, Impact, Resource};
use holdfast_platform::failure;
use holdfast_scheduler::Failure;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::error;

use super::objects::BoxObjects;

/// Least time between two walks for impacts that are known, since a revision follows each one that finds a difference.
pub(super) const REPEAT_INTERVAL: Duration = Duration::from_millis(50);
/// Walks for impacts that are known take one part in this many of a processor's time.
pub(super) const REPEAT_SHARE: u32 = 10;

/// Looks for impacts, one at a time.
#[derive(Debug)]
pub(super) struct ImpactWalks {
    core: CoreHandle,
    objects: Arc<BoxObjects>,
    /// Alarms whose impact is not known.
    unknown: BTreeSet<Condition>,
    /// Alarms whose impact may be another one, since the graph has changed.
    outdated: BTreeSet<Condition>,
    running: Option<Walk>,
    /// When the impacts that are outdated may be looked for.
    repeat_at: Instant,
}

#[derive(Debug)]
struct Walk {
    condition: Condition,
    began: Instant,
    found: JoinHandle<Option<EntryImpact>>,
}

impl ImpactWalks {
    pub(super) fn new(core: CoreHandle, objects: Arc<BoxObjects>) -> Self {
        Self {
            core,
            objects,
            unknown: BTreeSet::new(),
            outdated: BTreeSet::new(),
            running: None,
            repeat_at: Instant::now(),
        }
    }

    /// Asks for the impacts of these alarms.
    pub(super) fn want(&mut self, alarms: BTreeSet<Condition>) {
        self.unknown.extend(alarms);
    }

    /// When the next walk may begin; `None` while there is nothing to be looked for, or one is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.running.is_some() {
            return None;
        }
        match (self.unknown.is_empty(), self.outdated.is_empty()) {
            (false, _) => Some(self.repeat_at.min(Instant::now())),
            (true, false) => Some(self.repeat_at),
            (true, true) => None,
        }
    }

    /// Begins a walk: for impacts that are not known first, and among these for the alarm of the worst severity.
    pub(super) fn begin(&mut self, faults: &Faults) {
        let wanted = if self.unknown.is_empty() { &mut self.outdated } else { &mut self.unknown };
        wanted.retain(|it| faults.alarm(it).is_some_and(|alarm| alarm.impact.is_some()));
        let worst = wanted.iter().max_by_key(|it| faults.alarm(it).map(|alarm| alarm.severity));
        let Some(condition) = worst.cloned() else { return };
        self.unknown.remove(&condition);
        self.outdated.remove(&condition);
        let core = self.core.clone();
        let failure = self.failure(&condition.resource, faults);
        let find = async move {
            let found = core.impact(failure?).await;
            found.inspect_err(|error| error!(%error, "the impact of an alarm is not known")).ok()
        };
        let found = tokio::spawn(find);
        self.running = Some(Walk { condition, began: Instant::now(), found });
    }

    /// The result of the walk under way. Without one, this waits for ever.
    pub(super) async fn found(&mut self) -> (Condition, Impact) {
        let Some(walk) = &mut self.running else { return pending().await };
        // A walk that has panicked has found nothing, and is logged.
        let found = (&mut walk.found).await.ok().flatten().unwrap_or_default();
        let took = walk.began.elapsed();
        let condition = walk.condition.clone();
        self.repeat_at = walk.began + REPEAT_INTERVAL.max(took * REPEAT_SHARE);
        self.running = None;
        let EntryImpact { down, degraded, is_truncated, .. } = found;
        let down = sharing(down);
        let degraded = sharing(degraded);
        (condition, Impact { down, degraded, is_truncated })
    }

    /// Takes in that the graph has changed.
    pub(super) fn outdate(&mut self, faults: &Faults) {
        self.outdated.extend(faults.with_impact());
    }

    fn failure(&self, resource: &Resource, faults: &Faults) -> Option<Failure> {
        match resource {
            Resource::Interface(name) => Some(failure::of_interface(name)),
            Resource::NextHop(address) => {
                let configuration = self.core.configuration();
                let links = self.objects.links(configuration.effective());
                Some(failure::of_next_hop(*address, links))
            }
            Resource::Box => {
                let configuration = self.core.configuration();
                let links = self.objects.links(configuration.effective());
                Some(links.map(failure::of_interface).fold(Failure::default(), Failure::and))
            }
            Resource::Group(name) => {
                let dependents = &faults.settings().group(name)?.dependents;
                let failures = dependents.iter().map(|it| failure::of_interface(it));
                Some(failures.fold(Failure::default(), Failure::and))
            }
            _ => None,
        }
    }
}

/// Paths that share those of their lists. They ascend, so that entries of one list stand beside each other.
fn sharing(paths: Vec<InstancePath>) -> Vec<SharedPath> {
    let mut shared: Vec<SharedPath> = Vec::with_capacity(paths.len());
    for path in paths {
        shared.push(SharedPath::beside(path, shared.last()));
    }
    shared
}
