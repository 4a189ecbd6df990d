//! The change that one transaction makes: a Set of a client, or a change by the agent itself, such as a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::edit::Edit;
use holdfast_config::layer::Namespace;
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    ActionEvent, ActionUpdate, Answers, BoxState, ChangeOrigin, ForcedBackTrack, Surroundings,
    WalkCause,
};
use holdfast_config::{
    BootChange, CancelToken, ClaimKey, Configuration, EditErrors, EditScope, FenceChange,
    Footprint, Layers, LeasedPort, ServiceTag, TypeExchange,
};
use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::Credentials;
use holdfast_store::{ArtefactChange, Change};

use super::restoration::Restoration;
use super::secret_keeper::UserSecrets;

/// Values that differ, by key; `None` removes the value.
pub type Values = Vec<(Key, Option<SharedValue>)>;

/// A change of the credentials of credentialz.
#[derive(Clone, Debug)]
pub struct CredentialChange {
    pub from: Arc<Credentials>,
    pub to: Arc<Credentials>,
    /// True when earlier credentials are restored: they come back as far as possible, like at a start.
    pub is_restored: bool,
}

/// One change of the layers. All of them take the same way: examined, recorded, planned, executed, made final.
#[derive(Clone, Debug)]
pub enum Intent {
    /// A Set, which writes the client's layers; [`Intent::edit`] makes one.
    Edit(Edit),
    /// A boot configuration and the gNSI artefacts that came with it: recorded together, or not at all.
    Boot { change: BootChange, artefacts: Vec<ArtefactChange> },
    /// The switch of a service: while on, it keeps its reserved items to itself; while off, clients may write them.
    Switch { service: Namespace, on: bool },
    /// The client's layers as they were before a commit that was cancelled, or not confirmed in time.
    Rollback(Layers),
    /// The clients' layers of an earlier configuration revision or a checkpoint, as a change like a Set.
    Restore(Restoration),
    /// Credentials, which no layer holds; their values have names and digests only. The service keeps them over
    /// restarts.
    Credentials(CredentialChange),
    /// All that DHCP servers have given; it replaces the leases of before.
    Lease(Vec<LeasedPort>),
    /// Ports and next hops that faults and maintenance shut, drain or give free again.
    Fence(FenceChange),
    /// Walks of service instances, without a change of their parameters.
    Walk(Walks),
    /// Types of services that differ, and what becomes of the instances of one of them.
    Package(TypeExchange),
    /// Takes back a claim that no service instance owns any more.
    Purge(ClaimKey),
    /// A deleted service instance that still backs out and comes back: the edit writes its parameters.
    Resurrect { service: ServiceTag, edit: Edit },
    /// Removes all layers but the factory configuration. State outside of the layers is removed at the next start.
    FactoryReset { retain_certificates: bool },
}

/// Service instances to be walked in one transaction.
#[derive(Clone, Debug, Default)]
pub struct Walks {
    pub due: BTreeSet<ServiceTag>,
    /// Instances whose last walk was refused, with the reason: the states that it would change are failed.
    pub refused: BTreeMap<ServiceTag, Arc<str>>,
    /// Components that back out whatever their delete gates say.
    pub forced: BTreeMap<ServiceTag, ForcedBackTrack>,
    /// Results of actions.
    pub actions: Vec<ActionUpdate>,
    /// An operator wants it, and failed actions are asked for again.
    pub is_redeployment: bool,
    /// Work that fails is a failed state, also where an operator wants the walk; else it refuses that, as a Set.
    pub is_lenient: bool,
    /// Instances that keep the version of their package that they were walked with, with the reason.
    pub left_behind: BTreeMap<ServiceTag, Arc<str>>,
    /// Causes of walks that instances need by themselves.
    pub causes: BTreeMap<ServiceTag, WalkCause>,
}

impl Walks {
    /// True for walks that instances need by themselves: no operator wants them, and no action has news.
    pub(crate) fn is_reactive(&self) -> bool {
        !self.is_redeployment && self.forced.is_empty() && self.actions.is_empty()
    }

    /// Causes of the walks that nobody asked for, news of actions among them.
    pub(crate) fn all_causes(&self) -> BTreeMap<ServiceTag, WalkCause> {
        let of_action = |it: &ActionUpdate| (it.state.tag.clone(), WalkCause::action(it));
        let of_actions = self.actions.iter().map(of_action);
        self.causes.clone().into_iter().chain(of_actions).collect()
    }

    /// Name of the kind of change.
    fn name(&self) -> &'static str {
        let operation = self.actions.first().map(|it| &it.event);
        match operation {
            Some(ActionEvent::Rescheduled) => "reschedule",
            Some(ActionEvent::Cancelled(_)) => "cancel",
            Some(ActionEvent::Resolved(_)) => "resolve",
            Some(_) => "action",
            None if !self.forced.is_empty() => "force-back-track",
            None if self.is_redeployment && self.is_lenient => "reactive-redeploy",
            None if self.is_redeployment => "redeploy",
            None => "walk",
        }
    }
}

/// Instances whose causes a description names. The state of services has the others.
const DESCRIBED: usize = 3;

impl Intent {
    /// A Set of a client, with the keeper of the secrets of users in it.
    pub fn edit(edit: Edit) -> Self {
        Self::Edit(Edit { keeper: UserSecrets::keeper(), ..edit })
    }

    /// A boot configuration alone.
    pub fn boot(change: BootChange) -> Self {
        Self::Boot { change, artefacts: Vec::new() }
    }

    /// Token that is cancelled when the client of a Set has gone; it counts until the Set is recorded. Other changes
    /// are always carried out.
    pub(crate) fn cancel(&self) -> CancelToken {
        match self {
            Self::Edit(edit) => edit.cancel.clone(),
            Self::Restore(restoration) => restoration.cancel.clone(),
            Self::Boot { .. } | Self::Switch { .. } | Self::Rollback(_) => CancelToken::default(),
            Self::Credentials(_) | Self::Lease(_) | Self::FactoryReset { .. } => {
                CancelToken::default()
            }
            Self::Walk(_) | Self::Resurrect { .. } | Self::Fence(_) => CancelToken::default(),
            Self::Package(_) | Self::Purge(_) => CancelToken::default(),
        }
    }

    /// Name of the kind of change, for logs and the engine's history.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Edit(_) => "set",
            Self::Boot { .. } => "boot",
            Self::Switch { .. } => "switch",
            Self::Rollback(_) => "rollback",
            Self::Restore(_) => "restore",
            Self::Credentials(_) => "credentials",
            Self::Lease(_) => "lease",
            Self::Fence(_) => "fence",
            Self::Walk(walks) => walks.name(),
            Self::Resurrect { .. } => "resurrect",
            Self::Package(_) => "package",
            Self::Purge(_) => "purge",
            Self::FactoryReset { .. } => "factory reset",
        }
    }

    /// Text for the engine's history: the kind of change, with the causes of walks that nobody asked for, or what it goes
    /// back to.
    pub(crate) fn description(&self) -> String {
        let causes = match self {
            Self::Walk(walks) => walks.all_causes(),
            _ => BTreeMap::new(),
        };
        let named = causes.iter().take(DESCRIBED).map(|(tag, cause)| format!("{tag}: {cause}"));
        let mut texts: Vec<String> = named.collect();
        if let Self::Restore(restoration) = self {
            texts.push(restoration.target.to_string());
        }
        if causes.len() > DESCRIBED {
            texts.push(format!("{} more", causes.len() - DESCRIBED));
        }
        texts.insert(0, self.name().to_owned());
        texts.join(", ")
    }

    /// Model of the paths in error messages: OpenConfig, unless a Set is about the native model alone.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            Self::Edit(edit) if edit.origins().eq([Origin::Native]) => Origin::Native,
            Self::Walk(_) | Self::Resurrect { .. } | Self::Fence(_) => Origin::Native,
            Self::Package(_) | Self::Purge(_) => Origin::Native,
            _ => Origin::OpenConfig,
        }
    }

    /// Applies the change to a configuration, without other effects. Returns also what it writes and reads there.
    ///
    /// # Errors
    /// When the change cannot be applied, or its result contradicts itself.
    pub fn apply(&self, old: &Configuration) -> Result<(Configuration, Footprint), EditErrors> {
        let with_footprint = |new: Configuration, scope: EditScope| {
            let footprint = Footprint::of(old, &new, &scope);
            (new, footprint)
        };
        let new = match self {
            Self::Edit(edit) | Self::Resurrect { edit, .. } => {
                return old.examined(edit).map(|(new, scope)| with_footprint(new, scope));
            }
            Self::Lease(ports) => {
                return Ok(with_footprint(old.leased(ports)?, EditScope::default()));
            }
            Self::Fence(change) => {
                return Ok(with_footprint(old.fenced(change)?, EditScope::of_fence()));
            }
            Self::Walk(_) => return Ok(with_footprint(old.walked()?, EditScope::default())),
            Self::Package(exchange) => old.exchanged(exchange)?,
            Self::Purge(claim) => old.purged(claim)?,
            // The second step of a bootstrap says nothing of what the walks of the first one have read.
            Self::Boot { change: change @ BootChange::Bootstrap(..), .. } => {
                old.boot_changed(change)?
            }
            Self::Boot { change, .. } => {
                return Ok(with_footprint(old.boot_changed(change)?, EditScope::of_box()));
            }
            Self::Switch { service, on } => {
                return Ok(with_footprint(old.switched(*service, *on), EditScope::of_box()));
            }
            Self::Rollback(before) => old.with_client_of(before),
            Self::Restore(Restoration { layers, authorization, cancel, .. }) => {
                old.restored(layers, authorization, cancel)?
            }
            Self::Credentials(_) => return Ok((old.clone(), Footprint::of_credentials())),
            Self::FactoryReset { .. } => old.factory_reset(),
        };
        Ok((new, Footprint::everything()))
    }

    /// State that the walks of instances see in this change, and the instances that it has walked in any case.
    pub(crate) fn surroundings(
        &self,
        state: Arc<dyn BoxState>,
        answers: Answers,
        origin: ChangeOrigin,
        now_ns: u64,
    ) -> Surroundings {
        let walks = match self {
            Self::Walk(walks) => walks.clone(),
            _ => Walks::default(),
        };
        let Walks { due, refused, forced, actions, is_redeployment, is_lenient, .. } = walks;
        let resurrected = match self {
            Self::Resurrect { service, .. } => Some(service.clone()),
            _ => None,
        };
        // Only requests and a boot configuration may be refused for what a service puts out.
        let is_lenient = match self {
            Self::Boot { change, .. } => matches!(change, BootChange::GoBack),
            Self::Edit(_) | Self::Restore(_) => false,
            Self::Resurrect { .. } | Self::Purge(_) => false,
            Self::Walk(_) => is_lenient || !is_redeployment,
            Self::Package(exchange) => exchange.is_lenient,
            _ => true,
        };
        Surroundings {
            state: Some(state),
            now_ns,
            is_lenient,
            due,
            touched: BTreeMap::new(),
            refused,
            forced,
            resurrected,
            actions,
            origin,
            retries_actions: is_redeployment,
            upgrades: is_redeployment,
            drops_components: false,
            left_behind: walks.left_behind,
            answers,
            may_ask: !is_lenient || matches!(self, Self::Walk(_)),
        }
    }

    /// True for walks that instances need by themselves. They go on while a commit waits to be confirmed, and belong to
    /// that commit.
    pub(crate) fn is_reactive_walk(&self) -> bool {
        matches!(self, Self::Walk(walks) if walks.is_reactive())
    }

    /// True for walks that an operator wants, in which all work is done again.
    pub(crate) fn is_redeployment(&self) -> bool {
        matches!(self, Self::Walk(walks) if walks.is_redeployment)
    }

    /// Part of the hash of its plan beside what it changes.
    pub(crate) fn hash_text(&self) -> String {
        match self {
            Self::Package(TypeExchange { service, digest, .. }) => format!("{service} {digest};"),
            _ => String::new(),
        }
    }

    /// The credentials of credentialz before and after it, given those in force; `None` when all that there are go.
    pub(crate) fn credential_states(
        &self,
        in_force: &Arc<Credentials>,
    ) -> Option<[Arc<Credentials>; 2]> {
        match self {
            Self::FactoryReset { .. } => None,
            Self::Credentials(change) => Some([Arc::clone(&change.from), Arc::clone(&change.to)]),
            _ => Some([Arc::clone(in_force), Arc::clone(in_force)]),
        }
    }

    /// The credentials of credentialz that are in force after it, if it changes them.
    pub(crate) fn credentials(&self) -> Option<Arc<Credentials>> {
        match self {
            Self::Credentials(change) => Some(Arc::clone(&change.to)),
            _ => None,
        }
    }

    /// Database rows that are written besides those of the layers.
    pub(crate) fn rows(&self) -> Vec<Change> {
        match self {
            Self::FactoryReset { retain_certificates } => {
                vec![Change::factory_reset(*retain_certificates)]
            }
            Self::Edit(_) | Self::Boot { .. } | Self::Switch { .. } => Vec::new(),
            Self::Rollback(_) | Self::Restore(_) | Self::Credentials(_) => Vec::new(),
            Self::Lease(_) | Self::Fence(_) => Vec::new(),
            Self::Walk(_) | Self::Resurrect { .. } => Vec::new(),
            Self::Package(_) | Self::Purge(_) => Vec::new(),
        }
    }

    /// True when the client's layers go back to an earlier state, so that no commit waits to be confirmed any more.
    pub(crate) fn is_rollback(&self) -> bool {
        matches!(self, Self::Rollback(_) | Self::FactoryReset { .. })
    }

    /// True when an earlier state comes back, as far as possible, like at a start.
    pub(crate) fn is_best_effort(&self) -> bool {
        let is_restored = matches!(self, Self::Credentials(change) if change.is_restored);
        is_restored || self.is_rollback()
    }

    /// True when the configuration was accepted before: it is not validated again, and comes back as far as possible,
    /// like at a start.
    pub(crate) fn is_admitted(&self) -> bool {
        matches!(
            self,
            Self::Rollback(_)
                | Self::FactoryReset { .. }
                | Self::Boot { change: BootChange::GoBack, .. }
        )
    }
}
