//! Shutting interfaces, and giving them back: what alarms and latches want, as changes of the fence layer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::{Fence, FenceItem, FenceOwner, Lift};
use holdfast_core::{CommitError, CoreHandle, FenceRequest, LastWay};
use holdfast_faults::{Condition, Input, Report, Resource, SessionInput, Source};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// Pause before a fence that was refused is tried again: the other way that was missing may be there.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// What one owner wants fenced.
#[derive(Clone, Debug, Default)]
pub(super) struct Wishes {
    /// Interfaces that it wants shut, and whether also where that isolates something.
    pub(super) shut: BTreeMap<SmolStr, bool>,
    /// The session that waits for the answer, and the number of its wish. It decides itself what comes of a refusal.
    pub(super) session: Option<(SmolStr, u32)>,
}

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
    pub(super) async fn run(self: Arc<Self>, core: CoreHandle, inputs: mpsc::Sender<Input>) {
        let mut refused: BTreeMap<FenceOwner, Wishes> = BTreeMap::new();
        let mut has_told = false;
        loop {
            match refused.is_empty() {
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
                let errors = fence_each(&core, &owner, &wishes.shut).await;
                if let Some((session, number)) = wishes.session {
                    let error = errors.into_iter().next();
                    let result = error.map_or(Ok(()), |(_, error)| {
                        Err(format_smolstr!("{}", ErrorChain(&error)))
                    });
                    let fenced = SessionInput::Fenced { number, result };
                    if inputs.send(Input::Session(session, fenced)).await.is_err() {
                        return;
                    }
                } else if !errors.is_empty() {
                    failed.extend(errors.into_iter().map(|error| report(&owner, error)));
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

/// Shuts what an owner wants shut, and gives back what it does not want any more. One that is refused keeps no other from being
/// shut.
async fn fence_each(
    core: &CoreHandle,
    owner: &FenceOwner,
    wishes: &BTreeMap<SmolStr, bool>,
) -> Vec<(SmolStr, FenceError)> {
    let mut errors = Vec::new();
    let mut granted = Vec::new();
    for (interface, allows_isolation) in wishes {
        match check(core, owner, interface, *allows_isolation).await {
            Ok(()) => granted.push(interface.clone()),
            Err(error) => errors.push((interface.clone(), error)),
        }
    }
    // The core takes all or nothing: the first one is named.
    let first = granted.first().cloned().unwrap_or_default();
    if let Err(error) = shut(core, owner.clone(), Lift::Everything, granted).await {
        errors.push((first, error));
    }
    errors
}

/// Shuts one more interface for an owner.
///
/// # Errors
/// When it is the last way of something that is not to be isolated, or the core refuses.
pub(super) async fn fence_one(
    core: &CoreHandle,
    owner: FenceOwner,
    interface: &SmolStr,
    allows_isolation: bool,
) -> Result<(), FenceError> {
    check(core, &owner, interface, allows_isolation).await?;
    shut(core, owner, Lift::Nothing, vec![interface.clone()]).await
}

fn report(owner: &FenceOwner, (interface, error): (SmolStr, FenceError)) -> Report {
    let condition = Condition::new("fence-failed", Resource::Interface(interface));
    let text = format_smolstr!("{owner} wants it shut: {}", ErrorChain(&error));
    Report::holding(condition.qualified(&hyphenated(owner)), text, now_ns())
}

/// The name of an owner without spaces.
fn hyphenated(owner: &FenceOwner) -> String {
    owner.to_string().replace(' ', "-")
}

/// Refuses to shut an interface that is the last way of something. One that the owner has shut already takes no way.
async fn check(
    core: &CoreHandle,
    owner: &FenceOwner,
    interface: &SmolStr,
    allows_isolation: bool,
) -> Result<(), FenceError> {
    if allows_isolation {
        return Ok(());
    }
    let item = FenceItem::Shut { interface: interface.clone() };
    let is_shut = |fence: &Fence| fence.item == item && fence.owners.contains(owner);
    if core.fences().iter().any(is_shut) {
        return Ok(());
    }
    match core.last_way(interface, &BTreeSet::new()).await? {
        Some(last_way) => Err(FenceError::LastWay { interface: interface.clone(), last_way }),
        None => Ok(()),
    }
}

/// Changes the fences of an owner.
async fn shut(
    core: &CoreHandle,
    owner: FenceOwner,
    lift: Lift,
    interfaces: Vec<SmolStr>,
) -> Result<(), FenceError> {
    let set = interfaces.into_iter().map(|interface| FenceItem::Shut { interface }).collect();
    let trace = format_smolstr!("fault/{}", hyphenated(&owner));
    core.fence(FenceRequest { owner, lift, set, trace }).await?;
    Ok(())
}
