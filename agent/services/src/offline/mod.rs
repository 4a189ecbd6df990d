//! The walks of one instance without a box, from nothing to `ready`, or to a question that nobody has answered.
//!
//! ```text
//! parameters --Set--> walk --> what it reached, with its output --> walk --> ... --> ready
//!                      ^ answers: state, configuration, results of actions    `----> questions without an answer
//! ```
//!
//! Start at [`OfflineInstance::walk`]. The walks are those of an agent, one transaction each; every object is in the kernel
//! at once, and what handlers put out is not known.

mod answers;

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::edit::SecretKeeperHandle;
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    ActionEvent, ActionPlan, ActionProgress, ActionUpdate, Answers as HandlerAnswers, CallPhase,
    CallPlace, CallRef, ComponentPlan, HandlerAnswer, HandlerCall, HandlerWork, READY, SELF,
    ServedCall, ServicePlan, StatePlan, Surroundings,
};
use holdfast_config::{
    Claim, ClaimKey, Configuration, Edit, EditErrors, EditTarget, Layers, Models, Payload,
    ServiceTag,
};
use smol_str::{SmolStr, format_smolstr};

use self::answers::KnownBox;
pub use self::answers::{Answers, Unanswered};
use crate::error::PackageErrors;
use crate::grants::split_origin;
use crate::limits::OFFLINE_WALKS;
use crate::package::Package;
use crate::{PackageFiles, Parameters, ServiceTypes};

/// Instance that is walked without a box.
#[derive(Debug)]
pub struct OfflineInstance {
    types: Arc<ServiceTypes>,
    known: Arc<KnownBox>,
    answers: Answers,
    /// Actions without a result in the answers have succeeded, and save nothing.
    assumes_actions: bool,
    tag: ServiceTag,
    document: Arc<[u8]>,
}

/// Package that an instance is walked with.
#[derive(Debug)]
pub struct OfflinePackage<'a> {
    /// The models before the package.
    pub models: Arc<Models>,
    pub package: &'a Package,
    /// The files that it was read from.
    pub files: &'a PackageFiles,
    /// Reader of the public keys that it gives users.
    pub keeper: SecretKeeperHandle,
}

/// Reason for which nothing can be walked.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("{0}")]
    Package(PackageErrors),
    /// The answers are wrong.
    #[error("{0}")]
    Answers(String),
    /// The parameters or the configuration of the answers are refused.
    #[error("{0}")]
    Refused(EditErrors),
}

/// The walks of an instance, and their end.
#[derive(Debug)]
pub struct OfflineWalks {
    /// Changes of states, walk by walk.
    pub walks: Vec<Vec<StateChange>>,
    pub end: OfflineEnd,
}

/// State that a walk has entered or left, or that puts out something else than before.
#[derive(Debug)]
pub struct StateChange {
    /// Type and name.
    pub component: [SmolStr; 2],
    pub state: SmolStr,
    pub kind: ChangeKind,
    /// Output of the state now.
    pub claim: Option<Claim>,
    /// The action that it has asked for.
    pub action: Option<ActionPlan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Reached,
    /// It was reached before, and puts out something else now.
    PutOut,
    Left,
}

/// Extent to which an instance came.
#[derive(Debug, Default)]
pub struct OfflineEnd {
    pub is_ready: bool,
    /// The last of the walks that a limit allows has still changed something.
    pub is_cut: bool,
    /// States that are not reached, or failed, with the reason.
    pub waits: Vec<OfflineWait>,
    pub unanswered: BTreeSet<Unanswered>,
}

/// State with what it waits for.
#[derive(Debug)]
pub struct OfflineWait {
    /// Type and name; of the instance as a whole those of `self`.
    pub component: [SmolStr; 2],
    pub state: SmolStr,
    pub has_failed: bool,
    pub text: Arc<str>,
}

impl OfflineInstance {
    /// An instance of a package with these parameters, and the document that they were read from.
    ///
    /// # Errors
    /// When the package or an answer is wrong.
    pub fn new(
        of: OfflinePackage<'_>,
        parameters: &Parameters,
        document: &[u8],
        answers: Answers,
        assumes_actions: bool,
    ) -> Result<Self, OfflineError> {
        let OfflinePackage { models, package, files, keeper } = of;
        // Answers may name leaves of the package.
        let known = answers.known_box(&package.list.models).map_err(OfflineError::Answers)?;
        let known = Arc::new(known);
        let types = ServiceTypes::new(models).with_keeper(keeper);
        let mut types = types.with_known_answers(Arc::clone(&known) as _);
        types.add(files).map_err(OfflineError::Package)?;
        Ok(Self {
            types: Arc::new(types),
            known,
            answers,
            assumes_actions,
            tag: package.tag(&parameters.key),
            document: document.into(),
        })
    }

    /// Walks the instance until it is ready, or nothing moves any more.
    ///
    /// # Errors
    /// When its parameters, or the configuration of the answers, are refused.
    pub fn walk(&self) -> Result<OfflineWalks, OfflineError> {
        let refused = OfflineError::Refused;
        let mut clock = 1;
        let mut answers = self.served();
        let mut configuration = self.before().map_err(refused)?;
        let mut walks = Vec::new();
        configuration = self.set(&configuration, &mut answers).map_err(refused)?;
        walks.push(self.changes(None, &configuration));
        let mut is_cut = true;
        while walks.len() < OFFLINE_WALKS.figure {
            clock += 1;
            configuration = self.with_outside(configuration)?;
            let surroundings =
                |answers: &HandlerAnswers| self.surroundings(answers, clock, &configuration);
            self.known.take_unanswered();
            let mut outcome = configuration.trial(&surroundings(&answers));
            while !outcome.calls.is_empty() {
                answers = self.answered(answers, &outcome.calls);
                outcome = configuration.trial(&surroundings(&answers));
            }
            if outcome.is_empty() {
                is_cut = false;
                break;
            }
            let walked = configuration.clone().with_surroundings(surroundings(&answers));
            let walked = walked.walked().map_err(refused)?;
            walks.push(self.changes(Some(&configuration), &walked));
            configuration = walked;
        }
        walks.retain(|changes| !changes.is_empty());
        Ok(OfflineWalks { end: OfflineEnd { is_cut, ..self.end(&configuration) }, walks })
    }

    /// The box before the instance.
    fn before(&self) -> Result<Configuration, EditErrors> {
        let mut layers = Layers::new();
        for (tag, is_ready) in &self.answers.services {
            let Ok(tag) = tag.parse::<ServiceTag>() else { continue };
            layers.book.set((tag, is_ready.then(ready_plan)));
        }
        let empty = Configuration::new(Arc::clone(self.types.models()), layers);
        let mut edit = Edit::default();
        for (path, value) in &self.answers.config {
            let Ok((origin, rest)) = split_origin(path) else { continue };
            let Ok(path) = rest.parse() else { continue };
            if value.get() != "null" {
                let text = value.get().as_bytes().to_vec().into();
                edit.updates
                    .push((EditTarget { origin, path }, Payload::Json { text, ietf: true }));
            }
        }
        empty.edit(&edit)
    }

    /// Sets the instance; its first walk is in that change.
    fn set(
        &self,
        before: &Configuration,
        answers: &mut HandlerAnswers,
    ) -> Result<Configuration, EditErrors> {
        let target = EditTarget { origin: Origin::Native, path: self.tag.path() };
        let payload = Payload::Json { text: self.document.to_vec().into(), ietf: true };
        let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
        let services = Some(Arc::clone(&self.types) as _);
        let before = before.clone().with_services(services);
        loop {
            let surroundings = self.surroundings(answers, 1, &before);
            let result = before.clone().with_surroundings(surroundings).edit(&edit);
            let needed = result.as_ref().err().and_then(EditErrors::needed_calls).cloned();
            match needed {
                Some(needed) => *answers = self.answered(answers.clone(), &needed.calls),
                None => return result,
            }
        }
    }

    /// The configuration after what happens outside of it: leaves go, and actions are assumed to be done.
    fn with_outside(&self, configuration: Configuration) -> Result<Configuration, OfflineError> {
        let gone = self.answers.gone(configuration.models()).map_err(OfflineError::Answers)?;
        let before = self.plan(&configuration);
        let mut plan = before.clone();
        for component in &mut plan.components {
            let id = id_of(component);
            for state in &mut component.states {
                if !state.is_reached {
                    state.seen.extend(gone.iter().cloned());
                }
                let has_result = self.answers.actions.contains_key(&*action_name(&id, &state.name));
                let is_assumed = self.assumes_actions && !has_result;
                let action = state.action.as_mut().filter(|it| is_assumed && it.is_under_way());
                action.into_iter().for_each(|it| it.progress = ActionProgress::Succeeded);
            }
        }
        if plan == before {
            return Ok(configuration);
        }
        let mut layers = configuration.layers().clone();
        layers.book.set((self.tag.clone(), Some(plan)));
        let anew = Configuration::new(Arc::clone(self.types.models()), layers);
        Ok(anew.with_services(Some(Arc::clone(&self.types) as _)))
    }

    /// Surroundings in which the instance is due, with the results of its actions that the answers have.
    fn surroundings(
        &self,
        answers: &HandlerAnswers,
        now_ns: u64,
        configuration: &Configuration,
    ) -> Surroundings {
        let plan = self.plan(configuration);
        let result = |call: CallRef<'_>| {
            let key = call.key(&self.tag);
            let result = self.answers.actions.get(&*action_name(&key.component, &key.state))?;
            let event = ActionEvent::Ended(result.get().into());
            Some(ActionUpdate { state: key, id: call.action.id, event })
        };
        Surroundings {
            state: Some(Arc::clone(&self.known) as _),
            now_ns,
            is_lenient: true,
            due: BTreeSet::from([self.tag.clone()]),
            actions: plan.queued_calls().filter_map(result).collect(),
            answers: answers.clone(),
            may_ask: true,
            ..Surroundings::default()
        }
    }

    /// Handlers that take all calls of the type.
    fn served(&self) -> HandlerAnswers {
        let service = &self.tag.service;
        let phases = [
            CallPhase::PreModification,
            CallPhase::Create,
            CallPhase::Delete,
            CallPhase::PostModification,
        ];
        let call =
            |phase| ServedCall { service: service.clone(), component: None, state: None, phase };
        HandlerAnswers::default().with_served(phases.map(call).into())
    }

    /// The answers with those to these calls: the work is done, and nothing of it is known but the values of the document.
    fn answered(&self, mut answers: HandlerAnswers, calls: &[HandlerCall]) -> HandlerAnswers {
        for call in calls {
            let CallPlace { state: ClaimKey { component, state, .. }, phase } = &call.place;
            let name = match phase {
                CallPhase::Create | CallPhase::Delete => action_name(component, state),
                CallPhase::PreModification | CallPhase::PostModification => phase.name().into(),
            };
            let opaque = self.answers.handlers.get(&*name);
            let opaque = opaque.and_then(|values| serde_json::to_string(values).ok());
            let work = HandlerWork { opaque: opaque.map(Arc::from), ..HandlerWork::default() };
            answers.know(call.clone(), HandlerAnswer::Done(work));
        }
        answers
    }

    fn plan(&self, configuration: &Configuration) -> ServicePlan {
        configuration.layers().book.get(&self.tag).map(|plan| (**plan).clone()).unwrap_or_default()
    }

    fn key(&self, component: &[SmolStr; 2], state: &str) -> ClaimKey {
        ClaimKey { tag: self.tag.clone(), component: component.clone(), state: state.into() }
    }

    /// Changes of states between two walks.
    fn changes(&self, old: Option<&Configuration>, new: &Configuration) -> Vec<StateChange> {
        let before = old.map(|old| self.plan(old)).unwrap_or_default();
        let after = self.plan(new);
        let mut changes = Vec::new();
        for component in &before.components {
            let left = component.states.iter().filter(|it| it.is_reached);
            let left = left.filter(|it| !is_reached(&after, component, &it.name));
            changes.extend(left.map(|state| StateChange {
                component: id_of(component),
                state: state.name.clone(),
                kind: ChangeKind::Left,
                claim: None,
                action: None,
            }));
        }
        for component in &after.components {
            for state in component.states.iter().filter(|state| state.is_reached) {
                let key = self.key(&id_of(component), &state.name);
                let claim = new.layers().claims().get(&key);
                let was_reached = is_reached(&before, component, &state.name);
                if was_reached && claim == old.and_then(|old| old.layers().claims().get(&key)) {
                    continue;
                }
                changes.push(StateChange {
                    component: key.component,
                    state: key.state,
                    kind: if was_reached { ChangeKind::PutOut } else { ChangeKind::Reached },
                    claim: claim.cloned(),
                    action: state.action.clone().filter(|_| !was_reached),
                });
            }
        }
        changes
    }

    /// The end of the walks, with what each state waits for, and the questions of the last walk.
    fn end(&self, configuration: &Configuration) -> OfflineEnd {
        let plan = self.plan(configuration);
        let mut unanswered = self.known.take_unanswered();
        let mut waits = Vec::new();
        if let Some(failure) = &plan.failure {
            let component = [SELF, SELF].map(SmolStr::new_static);
            let state = READY.into();
            let text = Arc::clone(failure);
            waits.push(OfflineWait { component, state, has_failed: true, text });
        }
        for of in &plan.components {
            let component = id_of(of);
            for state in &of.states {
                let action = state.action.as_ref();
                let wait = state.failure.as_ref().map(|text| (true, text));
                let wait = wait.or_else(|| Some((true, action?.failure()?)));
                let wait = wait.or_else(|| Some((false, state.waits_for.as_ref()?)));
                let is_of_whole = of.component_type == SELF && state.name == READY;
                let wait = wait.filter(|_| !is_of_whole);
                waits.extend(wait.map(|(has_failed, text)| OfflineWait {
                    component: component.clone(),
                    state: state.name.clone(),
                    has_failed,
                    text: Arc::clone(text),
                }));
                if action.is_some_and(ActionPlan::is_under_way) {
                    let name = action_name(&component, &state.name);
                    let answer = "RESULT, or --assume-actions-done";
                    unanswered.insert(Unanswered { section: "actions", name, answer });
                }
            }
        }
        OfflineEnd { is_ready: plan.is_ready(), is_cut: false, waits, unanswered }
    }
}

fn id_of(component: &ComponentPlan) -> [SmolStr; 2] {
    [component.component_type.clone(), component.name.clone()]
}

fn is_reached(plan: &ServicePlan, component: &ComponentPlan, state: &str) -> bool {
    let component = plan.component(&component.component_type, &component.name);
    component.and_then(|it| it.state(state)).is_some_and(|it| it.is_reached)
}

/// Name of the action of a state, and of the work of its handler, in the document of answers.
fn action_name([component_type, name]: &[SmolStr; 2], state: &str) -> SmolStr {
    format_smolstr!("{component_type} {name} {state}")
}

/// The service plan of an instance that is ready.
fn ready_plan() -> ServicePlan {
    let name: SmolStr = READY.into();
    let states = vec![StatePlan { is_reached: true, ..StatePlan::new(name, 1) }];
    let [component_type, name] = [SELF, SELF].map(SmolStr::new_static);
    let itself = ComponentPlan { component_type, name, vars: "".into(), back_track: None, states };
    ServicePlan { components: vec![itself], ..ServicePlan::default() }
}
