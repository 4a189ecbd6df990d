//! Shutting interfaces, and giving them back: what alarms and latches want, as changes of the fence layer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::{FenceItem, FenceOwner, Lift};
use holdfast_core::{CoreHandle, Datastore as _, FenceRequest};
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::guard::{FenceError, Guard};

/// Pause before a fence that was refused is tried again: the other way that was missing may be there.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Resources that one owner wants shut, and whether also where that isolates something.
pub(super) type Wishes = BTreeMap<Resource, bool>;

/// How the interfaces that an owner wants out of service are taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// The interface is shut, and stays a port of its bridge or bond.
    Shut,
    /// The interface leaves its bridge or bond, and stays up: a partner of LACP is told by a last message. An interface that the
    /// owner has shut before, as in an earlier run of the agent, stays shut.
    Detach,
    /// The interface has left, and is shut.
    DetachAndShut,
}

impl Removal {
    /// The fences of an interface, for an owner who has these fences.
    fn items(
        self,
        interface: &SmolStr,
        held: &BTreeSet<FenceItem>,
    ) -> impl Iterator<Item = FenceItem> {
        let shut = FenceItem::Shut { interface: interface.clone() };
        let detach = FenceItem::Detach { interface: interface.clone() };
        let shut = (self != Self::Detach || held.contains(&shut)).then_some(shut);
        let detach = (self != Self::Shut).then_some(detach);
        shut.into_iter().chain(detach)
    }
}

/// Wishes on their way to the core.
#[derive(Debug, Default)]
pub(super) struct Fencer {
    waiting: Mutex<Waiting>,
    woken: Notify,
}

/// Wishes that nobody has carried out yet.
#[derive(Debug, Default)]
struct Waiting {
    changed: BTreeMap<FenceOwner, Wishes>,
    /// Owners that want anything, once the first level is known: the fences of others go.
    living: Option<BTreeSet<FenceOwner>>,
}

impl Fencer {
    /// Takes in what an owner wants now.
    pub(super) fn want(&self, owner: FenceOwner, wishes: Wishes) {
        self.lock().changed.insert(owner, wishes);
        self.woken.notify_one();
    }

    /// Has the fences taken off that an earlier run has left for nobody.
    pub(super) fn retain(&self, living: BTreeSet<FenceOwner>) {
        self.lock().living = Some(living);
        self.woken.notify_one();
    }

    /// Carries wishes out until nobody takes the reports.
    pub(super) async fn run(
        self: Arc<Self>,
        core: CoreHandle,
        guard: Arc<Guard>,
        inputs: mpsc::Sender<Input>,
    ) {
        let mut refused: BTreeMap<FenceOwner, Wishes> = BTreeMap::new();
        let mut has_told = false;
        loop {
            let is_waiting = self.lock().living.is_some();
            match refused.is_empty() && !is_waiting {
                true => self.woken.notified().await,
                false => drop(timeout(RETRY_PAUSE, self.woken.notified()).await),
            }
            let Waiting { changed, living } = std::mem::take(&mut *self.lock());
            if let Some(living) = living
                && core.retain_fence_owners(living.clone()).await.is_err()
            {
                self.lock().living.get_or_insert(living);
            }
            let mut due = std::mem::take(&mut refused);
            due.extend(changed);
            let mut failed = Vec::new();
            for (owner, wishes) in due {
                let errors = fence_each(&core, &guard, &owner, &wishes, Removal::Shut).await;
                if !errors.is_empty() {
                    let reports = errors.into_iter().map(|(resource, error)| {
                        failure(&owner, resource, &format!("shut: {}", ErrorChain(&error)))
                    });
                    failed.extend(reports);
                    refused.insert(owner, wishes);
                }
            }
            let is_failed = !failed.is_empty();
            if (is_failed || has_told)
                && inputs.send(Input::Level(Source::Fences, failed)).await.is_err()
            {
                return;
            }
            has_told = is_failed;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes what an owner wants out of service, and gives back what it does not want any more. A refused fence keeps no
/// other from being set.
pub(super) async fn fence_each(
    core: &CoreHandle,
    guard: &Guard,
    owner: &FenceOwner,
    wishes: &Wishes,
    removal: Removal,
) -> Vec<(Resource, FenceError)> {
    let mut errors = Vec::new();
    let mut granted = Vec::new();
    for (resource, allows_isolation) in wishes {
        let Resource::Interface(interface) = resource else {
            errors.push((resource.clone(), FenceError::NoInterface(resource.clone())));
            continue;
        };
        let checked = match allows_isolation {
            true => Ok(()),
            false => guard.check(owner, interface).await,
        };
        match checked {
            Ok(()) => granted.push(interface.clone()),
            Err(error) => errors.push((resource.clone(), error)),
        }
    }
    let held = held_of_interfaces(core, owner);
    let wanted: BTreeSet<FenceItem> =
        granted.iter().flat_map(|interface| removal.items(interface, &held)).collect();
    let set: Vec<FenceItem> = wanted.difference(&held).cloned().collect();
    let lifted: Vec<FenceItem> = held.difference(&wanted).cloned().collect();
    if set.is_empty() && lifted.is_empty() {
        return errors;
    }
    if change(core, owner.clone(), Lift::Items(lifted.clone()), set.clone()).await.is_ok() {
        return errors;
    }
    // The core takes all or nothing, so each interface is a change of its own now.
    let interfaces = |items: &[FenceItem]| -> BTreeSet<SmolStr> {
        items.iter().filter_map(interface_of).cloned().collect()
    };
    for interface in interfaces(&set).union(&interfaces(&lifted)) {
        let of_interface = |items: &[FenceItem]| {
            let own = items.iter().filter(|item| interface_of(item) == Some(interface));
            own.cloned().collect::<Vec<_>>()
        };
        let lift = Lift::Items(of_interface(&lifted));
        if let Err(error) = change(core, owner.clone(), lift, of_interface(&set)).await {
            errors.push((Resource::Interface(interface.clone()), error));
        }
    }
    errors
}

/// The interface that an item shuts or takes out of its bridge or bond.
fn interface_of(item: &FenceItem) -> Option<&SmolStr> {
    match item {
        FenceItem::Shut { interface } | FenceItem::Detach { interface } => Some(interface),
        FenceItem::Raise { .. } => None,
    }
}

/// The fences of interfaces that an owner has.
fn held_of_interfaces(core: &CoreHandle, owner: &FenceOwner) -> BTreeSet<FenceItem> {
    let configuration = core.configuration();
    let held = configuration.fence_items().filter(|(_, owners)| owners.contains(owner));
    let held = held.map(|(item, _)| item);
    held.filter(|item| !matches!(item, FenceItem::Raise { .. })).collect()
}

/// Shuts one more interface for an owner.
///
/// # Errors
/// When it is the last way of something that is not to be isolated, or the core refuses.
pub(super) async fn fence_one(
    core: &CoreHandle,
    guard: &Guard,
    owner: FenceOwner,
    interface: &SmolStr,
    allows_isolation: bool,
) -> Result<(), FenceError> {
    if !allows_isolation {
        guard.check(&owner, interface).await?;
    }
    let set = vec![FenceItem::Shut { interface: interface.clone() }];
    change(core, owner, Lift::Nothing, set).await
}

/// The alarm that something is not fenced. `what` says what is wanted, and why not.
pub(super) fn failure(owner: &FenceOwner, resource: Resource, what: &str) -> Report {
    let condition = Condition::new("fence-failed", resource).qualified(&hyphenated(owner));
    Report::holding(condition, format_smolstr!("{owner} wants it {what}"), now_ns())
}

/// The name of an owner without spaces.
fn hyphenated(owner: &FenceOwner) -> String {
    owner.to_string().replace(' ', "-")
}

/// The interface that an item shuts.
pub(super) fn shut_by(item: FenceItem) -> Option<SmolStr> {
    match item {
        FenceItem::Shut { interface } => Some(interface),
        FenceItem::Detach { .. } | FenceItem::Raise { .. } => None,
    }
}

/// Changes the fences of an owner.
///
/// # Errors
/// When the core refuses.
pub(super) async fn change(
    core: &CoreHandle,
    owner: FenceOwner,
    lift: Lift,
    set: Vec<FenceItem>,
) -> Result<(), FenceError> {
    let trace = format_smolstr!("fault/{}", hyphenated(&owner));
    core.fence(FenceRequest { owner, lift, set, trace }).await?;
    Ok(())
}
