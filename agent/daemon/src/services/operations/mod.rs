//! Operations on instances, for which gNMI has no actions. The local socket and `holdfast.services.v1.Operations` offer
//! them; section 10 of `agent/services/SERVICES.md` is the specification.
//!
//! Each change is one transaction of the core. The queue of actions has operations of its own ([`queue_operations`]).
//! Absent: handlers, and left claims.

pub(super) mod queue_operations;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{Caller, ErrorChain};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::Origin;
use holdfast_config::services::{Applied, ForcedBackTrack, SELF, ServicePlan};
use holdfast_config::value::Scalar;
use holdfast_config::{ClaimKey, Configuration, Elem, InstancePath, Path, ServiceTag};
use holdfast_core::{CommitError, Datastore, Intent, Preview, Walks};
use smol_str::SmolStr;
use tokio::time::sleep;
use tracing::warn;

use super::requester::Requester;
use super::walks::lenient_walk;

/// Leaf of each instance that says whether anything is made of it.
const DEPLOY: &str = "deploy";
/// Time after which a reactive redeployment asks the core again that was busy, or had a commit that waits to be confirmed.
const RETRY: Duration = Duration::from_secs(1);

/// Failure of an operation. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// An argument cannot be read.
    #[error("{0}")]
    Argument(String),
    /// There is nothing of this name.
    #[error("{0}")]
    Missing(String),
    /// The instance is not in a state for it.
    #[error("{0}")]
    Precondition(String),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// How far an instance is; without a plan, nothing of it is left.
#[derive(Clone, Debug)]
pub struct Progress {
    pub tag: ServiceTag,
    pub plan: Option<Arc<ServicePlan>>,
}

/// Leaf that a state of an instance asks for.
#[derive(Clone, Debug)]
pub struct Modification {
    pub claim: ClaimKey,
    pub origin: Origin,
    pub path: String,
    /// JSON after RFC 7951.
    pub value: String,
    /// Other states that ask for it.
    pub others: Vec<ClaimKey>,
}

/// Objects that a redeployment would change, and objects that are not as they should be already.
#[derive(Debug)]
pub struct SyncCheck {
    pub preview: Preview,
    /// States with an object that is not in the kernel, each with the first such object.
    pub unapplied: Vec<(ClaimKey, Applied)>,
    /// Instances that are left out, because their types are switched off.
    pub left_out: Vec<ServiceTag>,
}

impl SyncCheck {
    pub fn is_in_sync(&self) -> bool {
        self.is_checked_in_sync() && self.left_out.is_empty()
    }

    /// True when all that was checked is as a redeployment would make it.
    pub fn is_checked_in_sync(&self) -> bool {
        self.preview.operations.total == 0 && self.unapplied.is_empty()
    }
}

/// Component of an instance, and one of its states.
#[derive(Clone, Debug)]
pub struct Place {
    /// Type and name.
    pub component: [SmolStr; 2],
    pub state: Option<SmolStr>,
}

/// Operations on the instances of a datastore.
#[derive(Clone, Debug)]
pub struct Operations<C>(pub C);

impl<C: Datastore> Operations<C> {
    /// Walks instances again in one transaction. `services` are tags and names of types; none selects all instances. Of those,
    /// the ones whose types are switched off are not walked, and the answer has them as they are.
    ///
    /// # Errors
    /// When something that is named is not there, or work fails.
    pub async fn redeploy(
        &self,
        by: &Requester,
        services: &[String],
    ) -> Result<Vec<Progress>, OperationError> {
        let due = selected(&self.0.configuration(), services)?;
        if !due.is_empty() {
            by.change(&self.0, redeployment(due.clone())).await?;
        }
        let configuration = self.0.configuration();
        let left_out = left_out(&configuration, services);
        let tags: BTreeSet<_> = due.into_iter().chain(left_out).collect();
        Ok(tags.into_iter().map(|tag| progress(&configuration, tag)).collect())
    }

    /// Begins to walk instances again, each in a transaction of its own and on behalf of the caller who changed it last. All
    /// of them have the trace of the request.
    /// Work that fails is a failed state. Returns the names of the instances at once.
    ///
    /// # Errors
    /// When something that is named is not there.
    pub fn reactive_redeploy(
        &self,
        trace: Option<SmolStr>,
        services: &[String],
    ) -> Result<Vec<ServiceTag>, OperationError> {
        let due = selected(&self.0.configuration(), services)?;
        let core = self.0.clone();
        let tags = due.iter().cloned().collect();
        tokio::spawn(async move {
            for tag in due {
                redeploy_as_last_user(&core, &tag, trace.clone()).await;
            }
        });
        Ok(tags)
    }

    /// Plans a redeployment and returns its effects. With `is_deep`, the whole box is read and repaired first. The
    /// states are named that have an object which is not in the kernel then.
    ///
    /// # Errors
    /// As those of the redeployment.
    pub async fn check_sync(
        &self,
        by: &Requester,
        services: &[String],
        is_deep: bool,
    ) -> Result<SyncCheck, OperationError> {
        let configuration = self.0.configuration();
        let due = selected(&configuration, services)?;
        let left_out = left_out(&configuration, services);
        let unapplied = match is_deep {
            true => self.0.unapplied(due.clone()).await?,
            false => Vec::new(),
        };
        let preview = self.0.preview(&by.caller, redeployment(due), by.options()).await?;
        Ok(SyncCheck { preview, unapplied, left_out })
    }

    /// The leaves that an instance asks for, in the order of its claims.
    ///
    /// # Errors
    /// When there is no such instance, component or state.
    pub fn modifications(
        &self,
        tag: &str,
        place: Option<&Place>,
    ) -> Result<Vec<Modification>, OperationError> {
        let configuration = self.0.configuration();
        let tag = read_tag(tag)?;
        let plan = plan_of(&configuration, &tag)?;
        if let Some(place) = place {
            check_place(&tag, &plan, place)?;
        }
        let is_wanted = |key: &ClaimKey| {
            place.is_none_or(|place| {
                key.component == place.component
                    && place.state.as_ref().is_none_or(|state| *state == key.state)
            })
        };
        let claims = configuration.layers().claims().of_instance(&tag);
        let keys = claims.map(|(key, _)| key).filter(|key| is_wanted(key));
        Ok(keys.flat_map(|key| modifications_of(&configuration, key)).collect())
    }

    /// Sets `deploy` of an instance to false.
    ///
    /// # Errors
    /// When there is no such instance, or the Set is refused.
    pub async fn undeploy(&self, by: &Requester, tag: &str) -> Result<Progress, OperationError> {
        let configuration = self.0.configuration();
        let tag = read_tag(tag)?;
        let path = instance_path(&configuration, &tag)?;
        if !configuration.ground().effective().contains(&path) {
            return Err(missing(&tag));
        }
        by.change(&self.0, Intent::edit(deployment(&tag, false))).await?;
        Ok(progress(&self.0.configuration(), tag))
    }

    /// Brings a zombie back, with the parameters that it had: they are written into the layer of clients. Of an un-deployed
    /// instance that has backed out, `deploy` becomes true.
    ///
    /// # Errors
    /// When the instance does not back out, or its work fails.
    pub async fn resurrect(&self, by: &Requester, tag: &str) -> Result<Progress, OperationError> {
        let configuration = self.0.configuration();
        let tag = read_tag(tag)?;
        if is_undeployed(&configuration, &tag) {
            walkable(&configuration, &tag)?;
            by.change(&self.0, Intent::edit(deployment(&tag, true))).await?;
            return Ok(progress(&self.0.configuration(), tag));
        }
        let plan = plan_of(&configuration, &tag)?;
        walkable(&configuration, &tag)?;
        let Some(document) = plan.leaving.as_ref() else {
            let reason = format!("`{tag}` does not back out: there is nothing to bring back");
            return Err(OperationError::Precondition(reason));
        };
        let content = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true };
        let edit = Edit { replaces: vec![(native(tag.path()), content)], ..Edit::default() };
        by.change(&self.0, Intent::Resurrect { service: tag.clone(), edit }).await?;
        Ok(progress(&self.0.configuration(), tag))
    }

    /// Takes back what a claim asks for that no instance owns any more. Returns its name.
    ///
    /// # Errors
    /// When there is no such claim.
    pub async fn purge(&self, by: &Requester, claim: &str) -> Result<ClaimKey, OperationError> {
        let key = ClaimKey::parse_left(claim)
            .map_err(|form| OperationError::Argument(format!("`{claim}`: {form}")))?;
        if self.0.configuration().layers().claims().get(&key).is_none() {
            return Err(OperationError::Missing(format!("there is no claim `{key}`")));
        }
        by.change(&self.0, Intent::Purge(key.clone())).await?;
        Ok(key)
    }

    /// Has a component leave its states whatever its delete gates say; of those, the given one and all after it.
    ///
    /// # Errors
    /// When there is no such instance, component or state, or the caller does not accept the consequences.
    pub async fn force_back_track(
        &self,
        by: &Requester,
        tag: &str,
        place: Place,
        acknowledged: bool,
    ) -> Result<Progress, OperationError> {
        if !acknowledged {
            let reason = "what the gates protect may be inconsistent afterwards: acknowledge that";
            return Err(OperationError::Argument(reason.to_owned()));
        }
        let configuration = self.0.configuration();
        let tag = read_tag(tag)?;
        let plan = plan_of(&configuration, &tag)?;
        walkable(&configuration, &tag)?;
        check_place(&tag, &plan, &place)?;
        let Place { component, state } = place;
        if component[0] == SELF && plan.components.len() > 1 {
            let reason = format!("`{SELF}` of `{tag}` goes after all other components");
            return Err(OperationError::Precondition(reason));
        }
        warn!(service = %tag, ?component, ?state, caller = %by.caller.name, "a component backs out by force");
        let forced = ForcedBackTrack { component, state };
        let walks = Walks {
            due: BTreeSet::from([tag.clone()]),
            forced: BTreeMap::from([(tag.clone(), forced)]),
            ..Walks::default()
        };
        by.change(&self.0, Intent::Walk(walks)).await?;
        Ok(progress(&self.0.configuration(), tag))
    }
}

/// Walks an instance again, as often as the core has no time for it.
async fn redeploy_as_last_user(core: &impl Datastore, tag: &ServiceTag, trace: Option<SmolStr>) {
    let Ok(plan) = plan_of(&core.configuration(), tag) else { return };
    let caller = match plan.record.last_user.as_str() {
        "" => Caller::own(format!("service {tag}")),
        user => Caller::own(user),
    };
    let by = Requester { caller, trace };
    let due = BTreeSet::from([tag.clone()]);
    let walks = Walks { due, is_redeployment: true, ..Walks::default() };
    loop {
        match lenient_walk::walk(core, &by, tag, walks.clone()).await {
            Err(CommitError::Overloaded | CommitError::Confirm(_)) => sleep(RETRY).await,
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                return warn!(service = %tag, error, "an instance cannot be deployed again");
            }
            Ok(()) => return,
        }
    }
}

fn redeployment(due: BTreeSet<ServiceTag>) -> Intent {
    Intent::Walk(Walks { due, is_redeployment: true, ..Walks::default() })
}

fn native(path: Path) -> EditTarget {
    EditTarget { origin: Origin::Native, path }
}

/// The change of a client that has something made of an instance, or nothing.
fn deployment(tag: &ServiceTag, is_deployed: bool) -> Edit {
    let mut path = tag.path();
    path.elems.push(Elem::new(DEPLOY));
    let update = (native(path), Payload::Scalar(Scalar::Bool(is_deployed)));
    Edit { updates: vec![update], ..Edit::default() }
}

/// True for an instance of the configuration without any output, old or new.
pub fn is_undeployed(configuration: &Configuration, tag: &ServiceTag) -> bool {
    let is_configured = instance_path(configuration, tag)
        .is_ok_and(|path| configuration.ground().effective().contains(&path));
    is_configured && configuration.layers().book.get(tag).is_none()
}

fn read_tag(text: &str) -> Result<ServiceTag, OperationError> {
    text.parse().map_err(|form| OperationError::Argument(format!("`{text}`: {form}")))
}

fn missing(tag: &ServiceTag) -> OperationError {
    OperationError::Missing(format!("there is no instance `{tag}`"))
}

fn plan_of(
    configuration: &Configuration,
    tag: &ServiceTag,
) -> Result<Arc<ServicePlan>, OperationError> {
    configuration.layers().book.get(tag).cloned().ok_or_else(|| {
        match is_undeployed(configuration, tag) {
            true => OperationError::Precondition(format!(
                "`{tag}` is not deployed; `holdfast service resurrect` deploys it again"
            )),
            false => missing(tag),
        }
    })
}

fn progress(configuration: &Configuration, tag: ServiceTag) -> Progress {
    let plan = configuration.layers().book.get(&tag).cloned();
    Progress { tag, plan }
}

/// Path of an instance whose package is loaded.
pub(super) fn instance_path(
    configuration: &Configuration,
    tag: &ServiceTag,
) -> Result<InstancePath, OperationError> {
    configuration.models().native.resolve_write(&tag.path()).map_err(|_| {
        let reason = format!("`{tag}`: no package of this type is loaded");
        OperationError::Precondition(reason)
    })
}

/// Checks that an instance can be walked: its package is loaded, and its type is not switched off.
fn walkable(configuration: &Configuration, tag: &ServiceTag) -> Result<(), OperationError> {
    instance_path(configuration, tag)?;
    if configuration.is_switched_on(&tag.service) {
        return Ok(());
    }
    let reason = format!("`{tag}`: its type is switched off");
    Err(OperationError::Precondition(reason))
}

/// The instances that a list of tags and types names; all that can be walked for an empty list.
fn selected(
    configuration: &Configuration,
    services: &[String],
) -> Result<BTreeSet<ServiceTag>, OperationError> {
    let all = || configuration.layers().book.iter().map(|(tag, _)| tag);
    if services.is_empty() {
        return Ok(all().filter(|tag| walkable(configuration, tag).is_ok()).cloned().collect());
    }
    let mut found = BTreeSet::new();
    for name in services {
        if name.contains('[') {
            let tag = read_tag(name)?;
            plan_of(configuration, &tag)?;
            found.insert(tag);
            continue;
        }
        let mut of_type = all().filter(|tag| tag.service == *name).peekable();
        if of_type.peek().is_none() {
            let reason = format!("there is no instance of the type `{name}`");
            return Err(OperationError::Missing(reason));
        }
        found.extend(of_type.cloned());
    }
    found.iter().try_for_each(|tag| walkable(configuration, tag))?;
    Ok(found)
}

/// The instances that an empty list does not select, because their types are switched off.
fn left_out(configuration: &Configuration, services: &[String]) -> Vec<ServiceTag> {
    let all = configuration.layers().book.iter().map(|(tag, _)| tag);
    let all = all.filter(|_| services.is_empty());
    all.filter(|tag| !configuration.is_switched_on(&tag.service)).cloned().collect()
}

/// Checks that an instance has a component and a state.
fn check_place(
    tag: &ServiceTag,
    plan: &ServicePlan,
    Place { component: [component_type, name], state }: &Place,
) -> Result<(), OperationError> {
    let component = plan.component(component_type, name).ok_or_else(|| {
        OperationError::Missing(format!("`{tag}` has no component `{component_type} {name}`"))
    })?;
    match state.as_ref().filter(|state| component.state(state).is_none()) {
        None => Ok(()),
        Some(state) => Err(OperationError::Missing(format!(
            "component `{component_type} {name}` of `{tag}` has no state `{state}`"
        ))),
    }
}

/// The leaves of one claim, keys of lists left out, with all others that ask for them.
fn modifications_of(configuration: &Configuration, key: &ClaimKey) -> Vec<Modification> {
    let models = configuration.models();
    let claims = configuration.layers().claims();
    let mut found = Vec::new();
    for origin in [Origin::Native, Origin::OpenConfig] {
        let schema = models.schema(origin);
        let Some(claim) = claims.get(key) else { continue };
        claim.tree(origin).walk(&mut |path, leaf| {
            let Some(last) = path.last().filter(|it| !schema.is_list_key(it.node)) else { return };
            let value = json::print_value(schema, last.node, &leaf.value, Flavour::Ietf);
            let holders = claims.holders(origin, path).into_iter();
            found.push(Modification {
                claim: key.clone(),
                origin,
                path: path.to_path(schema).to_string(),
                value: String::from_utf8_lossy(&value).into_owned(),
                others: holders.filter(|other| *other != key).cloned().collect(),
            });
        });
    }
    found
}
