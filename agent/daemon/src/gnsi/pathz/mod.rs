//! Which paths who may read and write: the policy in force, and what it decided.
//!
//! Start at [`Pathz`]. [`judge`] is a policy made ready for the models of this box, [`rights`] what it comes to for one
//! user: what the services of gNMI ask for every path that they read or write. Without a policy there are no rights to
//! be asked, and everything is allowed. What is uploaded and not final stands beside the policy in force, as the sandbox:
//! it can be asked, and decides nothing.

mod counters;
pub mod judge;
mod leaves;
mod prune;
pub mod rights;
mod rotation;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::{Arc, PoisonError, RwLock};

use holdfast_config::{InstancePath, Models, Value};
use holdfast_security::pathz::{Draft, Policy};
use tokio::sync::watch;
use tracing::error;

pub(crate) use self::counters::Counters;
pub use self::judge::{Judge, Misfit, Scope};
use self::leaves::Leaves;
#[cfg(test)]
pub use self::prune::visible;
pub use self::prune::visible_while;
pub use self::rights::{ReadSight, Rights};
pub(crate) use self::rotation::{Rules, Upload};
use super::{ModelError, Switch, Turn};
use crate::core::{Polled, ServiceState};
use crate::logging::Chain;
use crate::northbound;
use crate::store::{Artefact, ArtefactChange, ArtefactTable, Artefacts, Store};

/// The one artefact of the service.
const POLICY: &str = "policy";

/// A policy, or none before the first.
pub(crate) type State = Option<Arc<Installed>>;

/// A policy as it was uploaded, made ready to be asked.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) version: String,
    /// In seconds since 1970, as the client gave it.
    pub(crate) created_on: u64,
    /// As it came, for those who ask for it back.
    pub(crate) content: Vec<u8>,
    pub(crate) judge: Arc<Judge>,
}

/// The policy of the paths.
#[derive(Debug)]
pub(crate) struct Pathz {
    pub(crate) turn: Turn,
    pub(crate) rules: Rules,
    /// Decides, and is written down.
    active: watch::Sender<State>,
    /// The last upload of a rotation that is open.
    sandbox: RwLock<State>,
    switch: Switch,
    counters: Arc<Counters>,
    leaves: Leaves,
    store: Store,
}

impl Pathz {
    pub(super) fn new(
        models: &Arc<Models>,
        store: Store,
        artefacts: &Artefacts,
        switch: Switch,
    ) -> Result<Self, ModelError> {
        let artefact = artefacts.get(&ArtefactTable::Pathz).and_then(|all| all.get(POLICY));
        let last = artefact.map(|artefact| Arc::new(installed(models, artefact)));
        Ok(Self {
            turn: Turn::default(),
            rules: Rules { models: Arc::clone(models) },
            active: watch::Sender::new(last),
            sandbox: RwLock::default(),
            switch,
            counters: Arc::new(Counters::new(models)),
            leaves: Leaves::find(&models.native)?,
            store,
        })
    }

    /// The policy that is final.
    pub(crate) fn active(&self) -> State {
        self.active.borrow().clone()
    }

    /// The last upload of a rotation that is open.
    pub(crate) fn sandbox(&self) -> State {
        self.sandbox.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What one user may do now; none where nothing is forbidden.
    pub(crate) fn rights(&self, user: &str) -> Option<Arc<Rights>> {
        if !self.switch.is_on() {
            return None;
        }
        let rights = |installed: &Arc<Installed>| installed.judge.rights(user, &self.counters);
        self.active.borrow().as_ref().map(rights).map(Arc::new)
    }

    /// Tells of every policy that becomes final from now on.
    pub(crate) fn follow(self: &Arc<Self>) -> Policies {
        Policies { pathz: Arc::clone(self), active_rx: self.active.subscribe() }
    }

    /// Has an upload stand beside what is in force, or nothing any more; the answer is what readers see of it.
    pub(crate) fn try_out(&self, state: &State) -> ServiceState {
        self.sandbox.write().unwrap_or_else(PoisonError::into_inner).clone_from(state);
        self.leaves.sandbox(state.as_deref())
    }

    /// Where it is written down.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What is written down of it.
    pub(crate) fn change(&self, state: &State) -> ArtefactChange {
        let artefact = state.as_ref().map(|installed| Artefact {
            version: installed.version.clone(),
            created_on: installed.created_on,
            content: installed.content.clone().into(),
        });
        ArtefactChange { table: ArtefactTable::Pathz, name: POLICY.into(), artefact }
    }

    /// What was written down decides from now on; whoever began under another policy hears of it.
    pub(crate) fn settle(&self, state: &State) -> ServiceState {
        let mut shown = self.try_out(&None);
        self.active.send_replace(state.clone());
        shown.extend(self.leaves.active(state.as_deref()));
        shown
    }

    /// What readers see at the start.
    pub(super) fn first_state(&self) -> ServiceState {
        self.leaves.active(self.active().as_deref())
    }

    /// What was counted for the first time since this was asked last: entries that readers are to see.
    pub(crate) fn fresh_state(&self) -> ServiceState {
        let fresh = self.counters.take_fresh();
        fresh.into_iter().map(|path| self.leaves.counted(&path)).collect()
    }

    /// A policy that no rotation brought.
    #[cfg(test)]
    pub(crate) fn enforce(&self, judge: Option<Arc<Judge>>) {
        let (version, created_on, content) = (String::new(), 0, Vec::new());
        self.settle(
            &judge.map(|judge| Arc::new(Installed { version, created_on, content, judge })),
        );
    }
}

impl Polled for Pathz {
    fn leaves(&self) -> Vec<(InstancePath, Value)> {
        let counters = self.counters.read();
        counters.iter().flat_map(|(path, counts)| self.leaves.counters(path, counts)).collect()
    }
}

/// The policy that somebody began under.
#[derive(Debug)]
pub(crate) struct Policies {
    pathz: Arc<Pathz>,
    active_rx: watch::Receiver<State>,
}

impl Policies {
    /// What one user may do under the present one, which is known from now on.
    pub(crate) fn rights(&mut self, user: &str) -> Option<Arc<Rights>> {
        self.active_rx.mark_unchanged();
        self.pathz.rights(user)
    }

    /// As [`Pathz::fresh_state`].
    pub(crate) fn fresh_state(&self) -> ServiceState {
        self.pathz.fresh_state()
    }

    /// Resolves when another one is in force than was known.
    pub(crate) async fn replaced(&mut self) {
        // The sender lives as long as this does.
        let _changed = self.active_rx.changed().await;
    }
}

/// What was stored. It was accepted once, by an agent that may have understood more: what this one does not understand
/// permits nothing, and is kept as it is.
fn installed(models: &Arc<Models>, artefact: &Artefact) -> Installed {
    let (version, created_on) = (artefact.version.clone(), artefact.created_on);
    let content = artefact.content.to_vec();
    let read = northbound::pathz_draft(&content).map_err(|reason| reason.to_string());
    let judge = read.and_then(|draft| judge_of(models, draft));
    let judge = judge.unwrap_or_else(|reason| {
        error!(%reason, "the stored policy of paths cannot be read: no path may be read or written until gNSI is \
            switched off on the box");
        Judge::closed(models)
    });
    Installed { version, created_on, content, judge: Arc::new(judge) }
}

fn judge_of(models: &Arc<Models>, draft: Draft) -> Result<Judge, String> {
    let policy: Policy = draft.check().map_err(|error| error.to_string())?;
    Judge::new(Arc::clone(models), policy).map_err(|error| Chain(&error).to_string())
}
