//! The pathz policy in force, with its decisions.
//!
//! Start at [`Pathz`]. [`compiled_policy`] is a policy compiled for one version of the models, [`policy_forms`] compiles it
//! again when nodes were appended. [`permissions`] are those of one user, which the gNMI services check for every path
//! that they read or write, by the models of the data. Without a policy there are no
//! such permissions, and everything is allowed. An uploaded policy that is not final is the sandbox policy: it
//! answers probes and decides nothing.

pub mod compiled_policy;
mod counters;
mod leaves;
pub mod permissions;
mod policy_forms;
mod prune;
mod rotation;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::{Arc, PoisonError, RwLock};

use holdfast_base::Switch;
use holdfast_config::{InstancePath, MissingNode, Models, NodeId, Value};
use holdfast_core::{PolledState, ServiceState};
use holdfast_security::pathz::{DraftPolicy, Policy};
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Artefacts, Store};
use holdfast_telemetry::PolledReading;
use tokio::sync::watch;
use tracing::error;

pub use self::compiled_policy::{CompiledPolicy, RulePathError, Scope};
pub(crate) use self::counters::Counters;
use self::leaves::Leaves;
pub use self::permissions::{PathPermissions, PermittedExpansion};
pub(crate) use self::policy_forms::PolicyForms;
#[cfg(test)]
pub use self::prune::visible;
pub use self::prune::visible_while;
pub(crate) use self::rotation::{PathzRules, Upload};
use super::Rotator;

/// Name of the service's only artefact.
const POLICY: &str = "policy";

/// A policy; `None` before the first one.
pub(crate) type State = Option<Arc<InstalledPolicy>>;

/// An uploaded policy.
#[derive(Debug)]
pub(crate) struct InstalledPolicy {
    pub(crate) version: String,
    /// Seconds since 1970, as the client sent it.
    pub(crate) created_on: u64,
    /// Content as uploaded, to be returned on request.
    pub(crate) content: Vec<u8>,
    pub(crate) judge: Arc<PolicyForms>,
}

/// Authorization of gNMI paths.
#[derive(Debug)]
pub(crate) struct Pathz {
    pub(crate) rotator: Rotator,
    /// Policy in force, which is on disk.
    active: watch::Sender<State>,
    /// Last upload of a rotation in progress.
    sandbox: RwLock<State>,
    switch: Switch,
    counters: Arc<Counters>,
    leaves: Leaves,
}

/// Reads a policy as it was uploaded. The error says why it cannot be read.
pub type PolicyParser = fn(&[u8]) -> Result<DraftPolicy, String>;

impl Pathz {
    pub(super) fn new(
        models: &Arc<Models>,
        store: Store,
        artefacts: &Artefacts,
        switch: Switch,
        read: PolicyParser,
    ) -> Result<Self, MissingNode> {
        let artefact = artefacts.get(&ArtefactTable::Pathz).and_then(|all| all.get(POLICY));
        let last = artefact.map(|artefact| Arc::new(restore_policy(models, artefact, read)));
        Ok(Self {
            rotator: Rotator::new(store),
            active: watch::Sender::new(last),
            sandbox: RwLock::default(),
            switch,
            counters: Arc::default(),
            leaves: Leaves::find(&models.native)?,
        })
    }

    /// The final policy.
    pub(crate) fn active(&self) -> State {
        self.active.borrow().clone()
    }

    /// Last upload of a rotation in progress.
    pub(crate) fn sandbox(&self) -> State {
        self.sandbox.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Permissions of one user at present, for data of `models`; `None` when nothing is restricted.
    pub(crate) fn rights(&self, user: &str, models: &Arc<Models>) -> Option<Arc<PathPermissions>> {
        if !self.switch.is_on() {
            return None;
        }
        let policy = Arc::clone(&self.active()?.judge);
        let counters = Arc::clone(&self.counters);
        Some(Arc::new(PathPermissions::new(policy, models, user.into(), counters)))
    }

    /// Subscribes to changes of the final policy.
    pub(crate) fn follow(self: &Arc<Self>) -> PolicyWatch {
        PolicyWatch { pathz: Arc::clone(self), active_rx: self.active.subscribe() }
    }

    /// Sets or clears the sandbox policy. Returns the resulting state leaves.
    pub(crate) fn set_sandbox(&self, state: &State) -> ServiceState {
        self.sandbox.write().unwrap_or_else(PoisonError::into_inner).clone_from(state);
        self.leaves.sandbox(state.as_deref())
    }

    /// Change of the artefact for this state.
    pub(crate) fn change(&self, state: &State) -> ArtefactChange {
        let artefact = state.as_ref().map(|installed| Artefact {
            version: installed.version.clone(),
            created_on: installed.created_on,
            content: installed.content.clone().into(),
        });
        ArtefactChange { table: ArtefactTable::Pathz, name: POLICY.into(), artefact }
    }

    /// Applies a policy that is on disk; readers under the previous one are notified. Returns the resulting state
    /// leaves.
    pub(crate) fn mark_final(&self, state: &State) -> ServiceState {
        let mut changes = self.set_sandbox(&None);
        self.active.send_replace(state.clone());
        changes.extend(self.leaves.active(state.as_deref()));
        changes
    }

    /// State at the start.
    pub(super) fn first_state(&self) -> ServiceState {
        self.leaves.active(self.active().as_deref())
    }

    /// Entries of paths that were counted for the first time since the last call.
    pub(crate) fn fresh_state(&self) -> ServiceState {
        let fresh = self.counters.take_fresh();
        fresh.into_iter().map(|path| self.leaves.counted(&path)).collect()
    }

    /// Sets a policy without a rotation.
    #[cfg(test)]
    pub(crate) fn enforce(&self, judge: Option<Arc<CompiledPolicy>>) {
        let version = String::new();
        let created_on = 0;
        let content = Vec::new();
        self.mark_final(&judge.map(|judge| {
            let judge = Arc::new(PolicyForms::new(judge));
            Arc::new(InstalledPolicy { version, created_on, content, judge })
        }));
    }
}

impl Pathz {
    fn counts(&self) -> Vec<(InstancePath, Value)> {
        let counters = self.counters.read();
        counters.iter().flat_map(|(path, counts)| self.leaves.counters(path, counts)).collect()
    }
}

#[tonic::async_trait]
impl PolledState for Pathz {
    fn nodes(&self) -> Vec<NodeId> {
        self.leaves.counter_nodes()
    }

    async fn read(&self) -> PolledReading {
        self.counts().into()
    }
}

/// The policy under which a request began.
#[derive(Debug)]
pub(crate) struct PolicyWatch {
    pathz: Arc<Pathz>,
    active_rx: watch::Receiver<State>,
}

impl PolicyWatch {
    /// Permissions of one user under the present policy, which counts as seen from now on.
    pub(crate) fn rights(
        &mut self,
        user: &str,
        models: &Arc<Models>,
    ) -> Option<Arc<PathPermissions>> {
        self.active_rx.mark_unchanged();
        self.pathz.rights(user, models)
    }

    /// The result of [`Pathz::fresh_state`].
    pub(crate) fn fresh_state(&self) -> ServiceState {
        self.pathz.fresh_state()
    }

    /// Waits until the policy in force differs from the one seen.
    pub(crate) async fn replaced(&mut self) {
        // The sender cannot be dropped, because `pathz` holds it.
        let _changed = self.active_rx.changed().await;
    }
}

/// Parses the stored policy. It was accepted once, possibly by an agent that knows more; a policy that this agent
/// cannot parse permits nothing, and is kept unchanged.
fn restore_policy(
    models: &Arc<Models>,
    artefact: &Artefact,
    read: PolicyParser,
) -> InstalledPolicy {
    let version = artefact.version.clone();
    let created_on = artefact.created_on;
    let content = artefact.content.to_vec();
    let read = read(&content);
    let judge = read.and_then(|draft| compile(models, draft));
    let judge = judge.unwrap_or_else(|reason| {
        error!(%reason, "the stored pathz policy cannot be read: no path may be read or written until gNSI is \
            switched off on the box");
        CompiledPolicy::closed(models)
    });
    let judge = Arc::new(PolicyForms::new(Arc::new(judge)));
    InstalledPolicy { version, created_on, content, judge }
}

fn compile(models: &Arc<Models>, draft: DraftPolicy) -> Result<CompiledPolicy, String> {
    let policy: Policy = draft.check().map_err(|error| error.to_string())?;
    Ok(CompiledPolicy::accepted(models, Arc::new(policy)))
}
