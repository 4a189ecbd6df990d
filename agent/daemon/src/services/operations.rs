//! Operations on instances, for which gNMI has no actions. The local socket and `holdfast.services.v1.Operations` offer
//! them; section 10 of `agent/services/SERVICES.md` is the specification.
//!
//! Each change is one transaction of the core. Absent: handlers, packages, and a redeployment that is answered at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    ActionEvent, ActionPlan, ActionUpdate, ForcedBackTrack, SELF, ServicePlan,
};
use holdfast_config::value::Scalar;
use holdfast_config::{ClaimKey, Configuration, Elem, InstancePath, Path, ServiceTag};
use holdfast_core::{CommitError, CommitOptions, Datastore, Intent, Preview, Walks};
use smol_str::SmolStr;
use tracing::warn;

/// Leaf of each instance that says whether anything is made of it.
const DEPLOY: &str = "deploy";

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

/// Entry of the queue of actions: the state that asked for the call, and how far it is.
#[derive(Clone, Debug)]
pub struct CallEntry {
    pub state: ClaimKey,
    pub action: ActionPlan,
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
    /// Walks instances again in one transaction. `services` are tags and names of types; none selects all instances.
    ///
    /// # Errors
    /// When something that is named is not there, or work fails.
    pub async fn redeploy(
        &self,
        caller: &Caller,
        services: &[String],
    ) -> Result<Vec<Progress>, OperationError> {
        let due = selected(&self.0.configuration(), services)?;
        if !due.is_empty() {
            self.0.change(caller, redeployment(due.clone())).await?;
        }
        let configuration = self.0.configuration();
        Ok(due.into_iter().map(|tag| progress(&configuration, tag)).collect())
    }

    /// Plans a redeployment and returns its effects.
    ///
    /// # Errors
    /// As those of the redeployment.
    pub async fn check_sync(
        &self,
        caller: &Caller,
        services: &[String],
    ) -> Result<Preview, OperationError> {
        let due = selected(&self.0.configuration(), services)?;
        Ok(self.0.preview(caller, redeployment(due), CommitOptions::default()).await?)
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
        let (configuration, tag) = (self.0.configuration(), read_tag(tag)?);
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
    pub async fn undeploy(&self, caller: &Caller, tag: &str) -> Result<Progress, OperationError> {
        let (configuration, tag) = (self.0.configuration(), read_tag(tag)?);
        let path = instance_path(&configuration, &tag)?;
        if configuration.ground().effective().branch(&path).is_none() {
            return Err(missing(&tag));
        }
        let mut path = tag.path();
        path.elems.push(Elem::new(DEPLOY));
        let update = (native(path), Payload::Scalar(Scalar::Bool(false)));
        let edit = Edit { updates: vec![update], ..Edit::default() };
        self.0.change(caller, Intent::edit(edit)).await?;
        Ok(progress(&self.0.configuration(), tag))
    }

    /// Brings a zombie back, with the parameters that it had: they are written into the layer of clients.
    ///
    /// # Errors
    /// When the instance does not back out, or its work fails.
    pub async fn resurrect(&self, caller: &Caller, tag: &str) -> Result<Progress, OperationError> {
        let (configuration, tag) = (self.0.configuration(), read_tag(tag)?);
        let plan = plan_of(&configuration, &tag)?;
        instance_path(&configuration, &tag)?;
        let Some(document) = plan.leaving.as_ref() else {
            let reason = format!("`{tag}` does not back out: there is nothing to bring back");
            return Err(OperationError::Precondition(reason));
        };
        let content = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true };
        let edit = Edit { replaces: vec![(native(tag.path()), content)], ..Edit::default() };
        self.0.change(caller, Intent::Resurrect { service: tag.clone(), edit }).await?;
        Ok(progress(&self.0.configuration(), tag))
    }

    /// Has a component leave its states whatever its delete gates say; of those, the given one and all after it.
    ///
    /// # Errors
    /// When there is no such instance, component or state, or the caller does not accept the consequences.
    pub async fn force_back_track(
        &self,
        caller: &Caller,
        (tag, place): (&str, Place),
        acknowledged: bool,
    ) -> Result<Progress, OperationError> {
        if !acknowledged {
            let reason = "what the gates protect may be inconsistent afterwards: acknowledge that";
            return Err(OperationError::Argument(reason.to_owned()));
        }
        let (configuration, tag) = (self.0.configuration(), read_tag(tag)?);
        let plan = plan_of(&configuration, &tag)?;
        instance_path(&configuration, &tag)?;
        check_place(&tag, &plan, &place)?;
        let Place { component, state } = place;
        if component[0] == SELF && plan.components.len() > 1 {
            let reason = format!("`{SELF}` of `{tag}` goes after all other components");
            return Err(OperationError::Precondition(reason));
        }
        warn!(service = %tag, ?component, ?state, caller = %caller.name, "a component backs out by force");
        let forced = ForcedBackTrack { component, state };
        let walks = Walks {
            due: BTreeSet::from([tag.clone()]),
            forced: BTreeMap::from([(tag.clone(), forced)]),
            ..Walks::default()
        };
        self.0.change(caller, Intent::Walk(walks)).await?;
        Ok(progress(&self.0.configuration(), tag))
    }

    /// Asks again for an action that failed, was cancelled or is in doubt: another call takes its place.
    ///
    /// # Errors
    /// When there is no such call, or it goes on by itself.
    pub async fn reschedule(&self, caller: &Caller, id: u64) -> Result<CallEntry, OperationError> {
        self.intervene(caller, id, ActionEvent::Rescheduled).await
    }

    /// Cancels a call that was not dispatched.
    ///
    /// # Errors
    /// When there is no such call, or it was dispatched.
    pub async fn cancel(&self, caller: &Caller, id: u64) -> Result<CallEntry, OperationError> {
        let reason = format!("cancelled by {}", caller.name);
        self.intervene(caller, id, ActionEvent::Cancelled(reason.into())).await
    }

    /// Notes what came of a call that failed, was cancelled or is in doubt, as the caller knows it.
    ///
    /// # Errors
    /// When there is no such call, or it goes on by itself.
    pub async fn resolve(
        &self,
        caller: &Caller,
        id: u64,
        is_done: bool,
    ) -> Result<CallEntry, OperationError> {
        let failed = || Err(format!("failed, as {} says", caller.name).into());
        let result = if is_done { Ok(()) } else { failed() };
        self.intervene(caller, id, ActionEvent::Resolved(result)).await
    }

    /// Changes a call of the queue, if it is in a state for that.
    async fn intervene(
        &self,
        caller: &Caller,
        id: u64,
        event: ActionEvent,
    ) -> Result<CallEntry, OperationError> {
        let CallEntry { state, action } = call_of(&self.0.configuration(), id)?;
        if !event.fits(&action.progress) {
            let progress = action.progress.name();
            let reason = format!("the call {id} of {state} is {progress}");
            return Err(OperationError::Precondition(reason));
        }
        instance_path(&self.0.configuration(), &state.tag)?;
        warn!(service = %state.tag, id, ?event, caller = %caller.name, "an operator changes the queue of actions");
        let is_again = event == ActionEvent::Rescheduled;
        let walks = Walks {
            due: BTreeSet::from([state.tag.clone()]),
            actions: vec![ActionUpdate { state: state.clone(), id, event }],
            ..Walks::default()
        };
        self.0.change(caller, Intent::Walk(walks)).await?;
        let now = self.0.configuration();
        let after = calls(&now).find(|it| it.state == state);
        // The walk may have gone on, and have left the state.
        let Some(after) = after else { return Ok(CallEntry { state, action }) };
        if is_again == (after.action.id == id)
            || after.action.progress == action.progress && !is_again
        {
            let reason = format!("the call {id} of {state} has gone on meanwhile");
            return Err(OperationError::Precondition(reason));
        }
        Ok(after)
    }
}

/// All calls of a box.
fn calls(configuration: &Configuration) -> impl Iterator<Item = CallEntry> {
    configuration.layers().book.iter().flat_map(|(tag, plan)| {
        plan.calls().map(|call| CallEntry { state: call.key(tag), action: call.action.clone() })
    })
}

fn call_of(configuration: &Configuration, id: u64) -> Result<CallEntry, OperationError> {
    let found = calls(configuration).find(|it| it.action.id == id);
    found.ok_or_else(|| OperationError::Missing(format!("there is no call {id} of an action")))
}

fn redeployment(due: BTreeSet<ServiceTag>) -> Intent {
    Intent::Walk(Walks { due, is_redeployment: true, ..Walks::default() })
}

fn native(path: Path) -> EditTarget {
    EditTarget { origin: Origin::Native, path }
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
    configuration.layers().book.get(tag).cloned().ok_or_else(|| missing(tag))
}

fn progress(configuration: &Configuration, tag: ServiceTag) -> Progress {
    let plan = configuration.layers().book.get(&tag).cloned();
    Progress { tag, plan }
}

/// Path of an instance of which the package is loaded.
fn instance_path(
    configuration: &Configuration,
    tag: &ServiceTag,
) -> Result<InstancePath, OperationError> {
    configuration.models().native.resolve_write(&tag.path()).map_err(|_| {
        let reason = format!("`{tag}`: no package of this type is loaded");
        OperationError::Precondition(reason)
    })
}

/// The instances that a list of tags and types names; all that can be walked for an empty list.
fn selected(
    configuration: &Configuration,
    services: &[String],
) -> Result<BTreeSet<ServiceTag>, OperationError> {
    let all = || configuration.layers().book.iter().map(|(tag, _)| tag);
    if services.is_empty() {
        return Ok(all()
            .filter(|tag| instance_path(configuration, tag).is_ok())
            .cloned()
            .collect());
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
    found.iter().try_for_each(|tag| instance_path(configuration, tag).map(drop))?;
    Ok(found)
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
    let (models, claims) = (configuration.models(), configuration.layers().claims());
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
