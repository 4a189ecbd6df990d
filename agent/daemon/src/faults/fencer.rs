//! Shutting interfaces, and giving them back: what alarms and latches want, as changes of the fence layer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::{FenceItem, FenceOwner, Lift};
use holdfast_core::{CommitError, CoreHandle, FenceRequest, LastWay};
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// Pause before a fence that was refused is tried again: the other way that was missing may be there.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Interfaces that one owner wants shut, and whether also where that isolates something.
pub(super) type Wishes = BTreeMap<SmolStr, bool>;

/// Reason for which an interface is not shut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    #[error("{interface} is not shut: {last_way}")]
    LastWay { interface: SmolStr, last_way: LastWay },
    #[error(transparent)]
    Refused(#[from] CommitError),
}

/// Wishes on their way to the core.
#[derive(Debug, Default)]
pub(super) struct Fencer {
    changed: Mutex<BTreeMap<FenceOwner, Wishes>>,
    /// Owners that want anything, once the first level is known: the fences of others go.
    living: Mutex<Option<BTreeSet<FenceOwner>>>,
    woken: Notify,
}

impl Fencer {
    /// Takes in what an owner wants now.
    pub(super) fn want(&self, owner: FenceOwner, wishes: Wishes) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(owner, wishes);
        self.woken.notify_one();
    }

    /// Has the fences taken off that an earlier run has left for nobody.
    pub(super) fn retain(&self, living: BTreeSet<FenceOwner>) {
        *self.living.lock().unwrap_or_else(PoisonError::into_inner) = Some(living);
        self.woken.notify_one();
    }

    /// Carries wishes out until the core stops.
    pub(super) async fn run(self: Arc<Self>, core: CoreHandle, inputs: mpsc::Sender<Input>) {
        let mut refused: BTreeMap<FenceOwner, Wishes> = BTreeMap::new();
        let mut told: BTreeSet<Condition> = BTreeSet::new();
        loop {
            match refused.is_empty() {
                true => self.woken.notified().await,
                false => drop(timeout(RETRY_PAUSE, self.woken.notified()).await),
            }
            let living = self.living.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(living) = living
                && core.retain_fence_owners(living.clone()).await.is_err()
            {
                let mut waiting = self.living.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.get_or_insert(living);
            }
            let changed = {
                let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *changed)
            };
            let again = std::mem::take(&mut refused);
            let again = again.into_iter().filter(|(owner, _)| !changed.contains_key(owner));
            let due: BTreeMap<FenceOwner, Wishes> = again.chain(changed.clone()).collect();
            let mut failed = Vec::new();
            for (owner, wishes) in due {
                let errors = fence_each(&core, &owner, &wishes).await;
                if !errors.is_empty() {
                    failed.extend(errors.into_iter().map(|error| report(&owner, error)));
                    refused.insert(owner, wishes);
                }
            }
            let conditions = failed.iter().map(|report| report.condition.clone()).collect();
            if (!failed.is_empty() || !told.is_empty())
                && inputs.send(Input::Level(Source::Fences, failed)).await.is_err()
            {
                return;
            }
            told = conditions;
        }
    }
}

/// Shuts what an owner wants shut, and gives back what it does not want any more. One that is refused keeps no other from being
/// shut.
async fn fence_each(
    core: &CoreHandle,
    owner: &FenceOwner,
    wishes: &Wishes,
) -> Vec<(SmolStr, FenceError)> {
    let mut errors = Vec::new();
    let mut granted = Wishes::new();
    for (interface, allows_isolation) in wishes {
        match check(core, owner, interface, *allows_isolation).await {
            Ok(()) => drop(granted.insert(interface.clone(), true)),
            Err(error) => errors.push((interface.clone(), error)),
        }
    }
    if let Err(error) = fence(core, owner.clone(), Lift::Everything, &granted).await {
        // The core takes all or nothing: the first one is named.
        let interface = granted.keys().next().cloned().unwrap_or_default();
        errors.push((interface, error));
    }
    errors
}

fn report(owner: &FenceOwner, (interface, error): (SmolStr, FenceError)) -> Report {
    let condition = Condition::new("fence-failed", Resource::Interface(interface));
    let name = format_smolstr!("{owner}").replace(' ', "-");
    let text = format_smolstr!("{owner} wants it shut: {}", ErrorChain(&error));
    Report::holding(condition.qualified(&name), text, now_ns())
}

/// Refuses to shut an interface that is the last way of something. One that is shut already takes no way.
async fn check(
    core: &CoreHandle,
    owner: &FenceOwner,
    interface: &SmolStr,
    allows_isolation: bool,
) -> Result<(), FenceError> {
    let item = FenceItem::Shut { interface: interface.clone() };
    let is_owned =
        core.fences().iter().any(|fence| fence.item == item && fence.owners.contains(owner));
    if allows_isolation || is_owned {
        return Ok(());
    }
    match core.last_way(interface, &BTreeSet::new()).await? {
        Some(last_way) => Err(FenceError::LastWay { interface: interface.clone(), last_way }),
        None => Ok(()),
    }
}

/// Changes the fences of an owner.
///
/// # Errors
/// When an interface is the last way of something that is not to be isolated, or the core refuses.
pub(super) async fn fence(
    core: &CoreHandle,
    owner: FenceOwner,
    lift: Lift,
    wishes: &Wishes,
) -> Result<(), FenceError> {
    for (interface, allows_isolation) in wishes {
        check(core, &owner, interface, *allows_isolation).await?;
    }
    let set = wishes.keys().map(|interface| FenceItem::Shut { interface: interface.clone() });
    let trace = format_smolstr!("fault/{owner}").replace(' ', "-").into();
    core.fence(FenceRequest { owner, lift, set: set.collect(), trace }).await?;
    Ok(())
}
