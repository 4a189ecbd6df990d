//! Fences of maintenance sessions: links that are drained and shut. Each session is told when that is done, and decides itself what comes of a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_config::FenceOwner;
use holdfast_config::schema::Origin;
use holdfast_core::{CoreHandle, Datastore as _};
use holdfast_faults::{Drained, Input, Resource, SessionInput, Wants};
use smol_str::{SmolStr, ToSmolStr as _};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::drains::{Drain, Drains};
use super::fencer::{Removal, Wishes, fence_each};
use super::guard::Guard;

/// Pause between two looks at what stays on a link that is drained, and before a drain that was refused is looked at again.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// A session's wish for fences.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionWishes {
    /// The number of this wish, which comes back with the answer.
    pub(super) number: u32,
    pub(super) wants: Wants,
    /// The links of the session.
    pub(super) links: BTreeSet<Resource>,
    /// True when links are shut even where something loses its last way.
    pub(super) allows_isolation: bool,
}

/// Wishes of sessions on their way to the core.
#[derive(Debug, Default)]
pub(super) struct SessionFences {
    waiting: Mutex<BTreeMap<SmolStr, SessionWishes>>,
    woken: Notify,
}

/// Parts by which links are shut and drained.
type Ways = (Arc<Guard>, Arc<Drains>);

impl SessionFences {
    /// Takes in what a session wants now.
    pub(super) fn want(&self, session: SmolStr, wishes: SessionWishes) {
        self.lock().insert(session, wishes);
        self.woken.notify_one();
    }

    /// Carries wishes out until nobody takes the answers. Traffic leaves before a link is shut, and comes back after it.
    pub(super) async fn run(
        self: Arc<Self>,
        core: CoreHandle,
        (guard, drains): Ways,
        inputs: mpsc::Sender<Input>,
    ) {
        let mut watched: BTreeMap<SmolStr, AbortOnDropHandle<()>> = BTreeMap::new();
        loop {
            self.woken.notified().await;
            let waiting = std::mem::take(&mut *self.lock());
            for (session, wishes) in waiting {
                let owner = FenceOwner::Session(session.clone());
                let mut result = Ok(());
                if wishes.wants.drain {
                    let begun = wishes.links.iter();
                    let begun = begun.map(|it| drains.begin(owner.clone(), it.clone()));
                    match begun.collect() {
                        Ok(begun) => {
                            let watch = watch(core.clone(), session.clone(), begun, inputs.clone());
                            let watch = AbortOnDropHandle::new(tokio::spawn(watch));
                            watched.insert(session.clone(), watch);
                        }
                        Err(error) => result = Err(ErrorChain(&error).to_smolstr()),
                    }
                }
                let shut = wishes.links.iter().filter(|_| wishes.wants.shut);
                let shut: Wishes = shut.map(|it| (it.clone(), wishes.allows_isolation)).collect();
                // A port that is still up when it leaves an aggregate tells its partner so by LACP.
                for removal in [Removal::Detach, Removal::DetachAndShut] {
                    let errors = fence_each(&core, &guard, &owner, &shut, removal).await;
                    if let Some((_, error)) = errors.first() {
                        result = Err(ErrorChain(error).to_smolstr());
                        break;
                    }
                }
                if !wishes.wants.drain {
                    watched.remove(&session);
                    for link in &wishes.links {
                        if let Err(error) = drains.end(&owner, link).await {
                            result = Err(ErrorChain(&error).to_smolstr());
                        }
                    }
                }
                let fenced = SessionInput::Fenced { number: wishes.number, result };
                if inputs.send(Input::Session(session, fenced)).await.is_err() {
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SmolStr, SessionWishes>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a session how far its drains have come: when traffic has another way, when links are quiet, or had time enough to be,
/// and whenever something else stays on them. Ends when nobody takes that.
async fn watch(
    core: CoreHandle,
    session: SmolStr,
    mut drains: Vec<Drain>,
    inputs: mpsc::Sender<Input>,
) {
    for drain in &mut drains {
        // The alarm about it is raised where drains are carried out.
        while drain.moved().await.is_err() {
            sleep(LOOK_PAUSE).await;
        }
    }
    let mut told = Drained { is_quiet: false, left: left(&core, &drains) };
    if tell(&inputs, &session, &told).await.is_err() {
        return;
    }
    for drain in &mut drains {
        while drain.ended().await.is_err() {
            sleep(LOOK_PAUSE).await;
        }
    }
    loop {
        let now = Drained { is_quiet: true, left: left(&core, &drains) };
        if now != told {
            if tell(&inputs, &session, &now).await.is_err() {
                return;
            }
            told = now;
        }
        sleep(LOOK_PAUSE).await;
    }
}

async fn tell(
    inputs: &mpsc::Sender<Input>,
    session: &SmolStr,
    drained: &Drained,
) -> Result<(), mpsc::error::SendError<Input>> {
    let input = SessionInput::Drained(drained.clone());
    inputs.send(Input::Session(session.clone(), input)).await
}

/// Names of the routes that have no other way.
fn left(core: &CoreHandle, drains: &[Drain]) -> BTreeSet<SmolStr> {
    let models = core.models();
    let native = models.schema(Origin::Native);
    let left: Vec<_> = drains.iter().map(Drain::left).collect();
    let paths = left.iter().flat_map(|left| left.iter());
    paths.map(|path| path.to_path(native).to_smolstr()).collect()
}
