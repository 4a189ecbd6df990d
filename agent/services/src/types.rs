//! The types of services of a box, and the instances of each that a change has walked.
//!
//! ```text
//! /services/TYPE[KEY] differs in the ground, or is due
//!    | gone, or `deploy` is false -> it backs out; a delete gate that is closed keeps a zombie
//!    | checked                    -> walked
//!    ` something fails            -> a failure, or where nothing may be refused, a failed state
//! ```

use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    CallPhase, EditContent, Ground, HandlerOutline, HandlerRefusal, LeafRead, Plane, ServicePlan,
    Services, WalkOutcome, WalkRequest, WorkFailure, WorkFailureKind,
};
use holdfast_config::{
    Branch, Claim, InstancePath, Keys, List, Models, NodeId, Provenance, ServiceTag, Step, Value,
};

use crate::PackageFiles;
use crate::error::{PackageError, PackageErrors};
use crate::outline::{ActionTarget, Converge, DeleteOutline, Work};
use crate::package::Package;
use crate::parameters::ParametersError;
use crate::walk::{self, CallIds, Instance, WalkResult, record};
use crate::work::{WorkError, WorkErrorKind};

/// The types of services of a box, with the models that have all of their lists. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct ServiceTypes {
    models: Arc<Models>,
    types: Vec<ServiceType>,
}

#[derive(Clone, Debug)]
struct ServiceType {
    package: Arc<Package>,
    /// The package was removed. Its list stays in the models until the next start, and no instance can be made.
    is_removed: bool,
    /// Path of the list of instances.
    path: Vec<Step>,
    /// The leaf that says whether anything is made of an instance.
    deploy: Option<NodeId>,
    /// Some state has a delete gate, a delete call or a delete action, or ends the transaction in which it is left.
    has_staged_deletes: bool,
}

impl ServiceTypes {
    /// No types, beside these models.
    pub fn new(models: Arc<Models>) -> Self {
        Self { models, types: Vec::new() }
    }

    /// Adds the type of a package; its list is appended to the models. The second value has what an author is warned of.
    ///
    /// # Errors
    /// When the package is wrong, or has a type that is there already.
    pub fn add(&mut self, files: &PackageFiles) -> Result<Vec<PackageError>, PackageErrors> {
        let (package, warnings) = Package::read(&self.models, files)?;
        let schema = &package.list.models.native;
        let path = schema.steps(package.list.list);
        let children = &schema.node(package.list.list).children;
        let deploy = children.iter().copied().find(|node| schema.node(*node).name == "deploy");
        self.models = Arc::clone(&package.list.models);
        let states = package.outline.components.iter().flat_map(|it| &it.states);
        let is_staged = |it: &DeleteOutline| {
            it.when.is_some() || it.commit_after || it.handler || it.action.is_some()
        };
        let has_staged_deletes = states.into_iter().any(|state| is_staged(&state.delete));
        let (package, is_removed) = (Arc::new(package), false);
        self.types.push(ServiceType { package, is_removed, path, deploy, has_staged_deletes });
        Ok(warnings)
    }

    /// Removes a type: no instance of it can be made from now on.
    pub fn remove(&mut self, name: &str) {
        let named = self.types.iter_mut().filter(|it| it.package.outline.name.text == *name);
        named.for_each(|it| it.is_removed = true);
    }

    /// True for a type that was removed and whose list is still in the models.
    pub fn is_removed(&self, name: &str) -> bool {
        self.types.iter().any(|it| it.is_removed && it.package.outline.name.text == *name)
    }

    /// The models with the lists of all types.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.types.iter().map(|it| &*it.package)
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The package of a type that is loaded.
    fn package(&self, service: &str) -> Option<&Package> {
        self.packages().find(|it| it.outline.name.text == *service)
    }
}

impl Services for ServiceTypes {
    fn walk(&self, request: &WalkRequest<'_>) -> WalkOutcome {
        let mut outcome = WalkOutcome::default();
        let calls = CallIds::new(request.surroundings.now_ns);
        for it in &self.types {
            it.walk((request, &calls), &mut outcome);
        }
        outcome
    }

    fn judge_ready(&self, request: &WalkRequest<'_>) -> WalkOutcome {
        let mut outcome = WalkOutcome::default();
        let calls = CallIds::new(request.surroundings.now_ns);
        for tag in &request.surroundings.due {
            let judged = self.types.iter().find_map(|it| it.judge_ready((request, &calls), tag));
            let Some(WalkResult { plan, reads, .. }) = judged else { continue };
            outcome.plans.push((tag.clone(), plan));
            outcome.reads.insert(tag.clone(), reads);
        }
        outcome
    }

    fn changed(&self, old: &Ground, new: &Ground) -> Vec<ServiceTag> {
        let changed = |it: &ServiceType| {
            let keys = it.differing(old, new).into_iter().map(|(keys, ..)| keys);
            keys.map(|keys| it.package.tag(&key_text(&keys))).collect::<Vec<_>>()
        };
        self.types.iter().flat_map(changed).collect()
    }

    fn handler(&self, service: &str) -> Option<HandlerOutline> {
        let outline = &self.package(service)?.outline;
        let handler = outline.handler.as_ref()?;
        let states =
            outline.components.iter().flat_map(|it| it.states.iter().map(move |s| (it, s)));
        let calls = states.flat_map(|(component, state)| {
            let works = state.work == Some(Work::Handler);
            let call = |phase| (component.name.clone(), state.name.clone(), phase);
            let create = works.then(|| call(CallPhase::Create));
            create.into_iter().chain(state.delete.handler.then(|| call(CallPhase::Delete)))
        });
        let actions = outline.actions().filter_map(|action| match &action.target {
            ActionTarget::Handler(name) => Some(name.clone()),
            ActionTarget::Builtin(_) => None,
        });
        Some(HandlerOutline {
            actions: actions.collect(),
            user: handler.user.clone(),
            identities: handler.identities.clone(),
            calls: calls.collect(),
        })
    }

    fn add_edit(
        &self,
        service: &str,
        claim: &mut Claim,
        edit: EditContent<'_>,
    ) -> Result<(), HandlerRefusal> {
        let package = self.package(service).ok_or_else(|| unknown_type(service))?;
        package.add_edit(claim, edit).map_err(|error| {
            let kind = match failure_kind(error.kind) {
                // The edit is wrong, and not the request that it is for.
                WorkFailureKind::Work => WorkFailureKind::Parameters,
                kind => kind,
            };
            HandlerRefusal { kind, text: error.reason }
        })
    }

    fn readable(
        &self,
        service: &str,
        plane: Plane,
        path: &str,
    ) -> Result<LeafRead, HandlerRefusal> {
        let package = self.package(service).ok_or_else(|| unknown_type(service))?;
        let refused = |text| HandlerRefusal { kind: WorkFailureKind::Denied, text };
        package.readable(plane, path).map_err(refused)
    }
}

fn unknown_type(service: &str) -> HandlerRefusal {
    let text = format!("there is no type of services `{service}`");
    HandlerRefusal { kind: WorkFailureKind::Parameters, text }
}

fn failure_kind(kind: WorkErrorKind) -> WorkFailureKind {
    match kind {
        WorkErrorKind::Failed => WorkFailureKind::Work,
        WorkErrorKind::Limit => WorkFailureKind::Limit,
        WorkErrorKind::Denied => WorkFailureKind::Denied,
        WorkErrorKind::Unavailable => WorkFailureKind::Unavailable,
        WorkErrorKind::Late => WorkFailureKind::Late,
        WorkErrorKind::Precondition => WorkFailureKind::Precondition,
    }
}

type Entry = Arc<Branch<Provenance>>;

/// A change for which instances are walked, and the identifiers of its calls.
type Change<'a> = (&'a WalkRequest<'a>, &'a CallIds);

impl ServiceType {
    /// Walks the instances of the type that differ, and those that are due.
    fn walk(&self, (request, calls): Change<'_>, outcome: &mut WalkOutcome) {
        let mut instances = self.differing(request.old, request.new);
        for tag in &request.surroundings.due {
            let Some(path) = self.path_of(tag) else { continue };
            let keys = path.0.last().and_then(|step| step.keys.clone()).unwrap_or_default();
            if instances.iter().all(|(other, ..)| *other != keys) {
                let [old, new] = [request.old, request.new].map(|it| self.instance(it, &keys));
                instances.push((keys, old, new));
            }
        }
        for (keys, old, new) in instances {
            let tag = self.package.tag(&key_text(&keys));
            let path = self.instance_path(&keys);
            let change = (request, calls);
            match self.walk_one(change, (&tag, &path), (old.as_ref(), new.as_ref())) {
                Ok(mut walked) => {
                    let before = request.book.get(&tag).map(|plan| &**plan);
                    record::note(&mut walked, before, request.surroundings);
                    outcome.claims.extend(walked.claims);
                    if walked.plan.as_ref() != before {
                        outcome.plans.push((tag.clone(), walked.plan));
                    }
                    outcome.calls.extend(walked.calls);
                    outcome.wake_at_ns.extend(walked.wake_at_ns.map(|at| (tag.clone(), at)));
                    outcome.reads.insert(tag, walked.reads);
                }
                Err(failure) => outcome.failures.push(failure),
            }
        }
    }

    /// The instances that differ between two versions of the ground.
    fn differing(&self, old: &Ground, new: &Ground) -> Vec<(Keys, Option<Entry>, Option<Entry>)> {
        let none = List::default();
        let old = self.instances(old).unwrap_or(&none);
        let new = self.instances(new).unwrap_or(&none);
        let differences = List::differences(old, new);
        // Other memory may have the same content.
        let differing = differences.filter(|it| it.old.is_none() || it.old != it.new);
        differing.map(|it| (it.keys.clone(), it.old.cloned(), it.new.cloned())).collect()
    }

    /// Path of an instance of this type.
    fn path_of(&self, tag: &ServiceTag) -> Option<InstancePath> {
        let is_of_type = tag.service == self.package.outline.name.text;
        is_of_type.then(|| self.package.instance_path(&tag.key)).flatten()
    }

    fn instances<'g>(&self, ground: &'g Ground) -> Option<&'g List<Provenance>> {
        let (list, above) = self.path.split_last()?;
        let root = &**ground.effective().root();
        let branch =
            above.iter().try_fold(root, |branch, step| Some(&**branch.container(step.node)?))?;
        branch.list(list.node)
    }

    fn instance(&self, ground: &Ground, keys: &Keys) -> Option<Entry> {
        self.instances(ground)?.get(keys).cloned()
    }

    fn is_deployed(&self, entry: &Branch<Provenance>) -> bool {
        let deploy = self.deploy.and_then(|node| entry.value(node));
        deploy.is_none_or(|value| *value == Value::Bool(true))
    }

    /// Walks one instance, whose entry was `old` and is `new`.
    fn walk_one(
        &self,
        (request, calls): Change<'_>,
        (tag, path): (&ServiceTag, &InstancePath),
        (old, new): (Option<&Entry>, Option<&Entry>),
    ) -> Result<WalkResult, WorkFailure> {
        let before = request.book.get(tag).map(|plan| &**plan);
        let deployed = new.filter(|entry| self.is_deployed(entry));
        let comes_back = request.surroundings.resurrected.as_ref() == Some(tag);
        let leaving = before.filter(|_| !comes_back).and_then(|plan| plan.leaving.clone());
        let Some(entry) = deployed.filter(|_| leaving.is_none()) else {
            if let (Some(_), Some(plan), false) =
                (deployed, before, request.surroundings.is_lenient)
            {
                return Err(in_the_way(tag, path, plan));
            }
            return self.leave((request, calls), (tag, path), (old, leaving));
        };
        if self.is_removed && before.is_none() && !request.surroundings.is_lenient {
            let text = format!("{tag}: the package of this type was removed");
            let kind = WorkFailureKind::TypeRemoved;
            return Err(WorkFailure { instance: path.clone(), kind, text });
        }
        let view = request.new.config_view(Origin::Native).branch(path).map(|it| &**it);
        let parameters = self.package.parameters_of(&tag.key, path, (entry, view));
        let parameters = match parameters {
            Ok(parameters) => parameters,
            Err(errors) if request.surroundings.is_lenient => {
                let text = self.refused(path, tag, &errors).text;
                let reason = (text.into(), request.surroundings.now_ns);
                let plan = Some(walk::failed_plan(&self.package, before, reason));
                return Ok(WalkResult { plan, ..WalkResult::default() });
            }
            Err(errors) => return Err(self.refused(path, tag, &errors)),
        };
        let surroundings = request.surroundings;
        let is_stored_alone = self.package.outline.converge == Converge::After
            && !surroundings.is_lenient
            && !surroundings.due.contains(tag)
            && !comes_back;
        if is_stored_alone {
            let plan = before.cloned();
            let new = || walk::stored_plan(&self.package, surroundings.now_ns);
            return Ok(WalkResult {
                plan: Some(plan.unwrap_or_else(new)),
                ..WalkResult::default()
            });
        }
        let leaving = None;
        let instance = Instance { package: &self.package, tag, calls, parameters, leaving };
        walk::walk(&instance, request).map_err(|error| self.failed(path, &error))
    }

    /// The service plan of an instance of this type with `ready` as the box has it now, if it differs.
    fn judge_ready(&self, (request, calls): Change<'_>, tag: &ServiceTag) -> Option<WalkResult> {
        let before = &**request.book.get(tag)?;
        if before.leaving.is_some() || before.failure.is_some() {
            return None;
        }
        let path = self.path_of(tag)?;
        let entry = self.instance(request.new, path.0.last()?.keys.as_ref()?)?;
        let view = request.new.config_view(Origin::Native).branch(&path).map(|it| &**it);
        // What cannot be read or judged now is a matter of the walk that follows.
        let parameters = self.package.parameters_of(&tag.key, &path, (&entry, view)).ok()?;
        let leaving = None;
        let instance = Instance { package: &self.package, tag, calls, parameters, leaving };
        let mut judged = walk::judge_ready(&instance, request).ok()?;
        record::note(&mut judged, Some(before), request.surroundings);
        (judged.plan.as_ref() != Some(before)).then_some(judged)
    }

    /// Backs out an instance that is deleted or un-deployed: at once, unless it may have to do so in stages.
    fn leave(
        &self,
        (request, calls): Change<'_>,
        (tag, path): (&ServiceTag, &InstancePath),
        (old, leaving): (Option<&Entry>, Option<Arc<str>>),
    ) -> Result<WalkResult, WorkFailure> {
        let view = request.old.config_view(Origin::Native).branch(path).map(|it| &**it);
        let is_staged = self.has_staged_deletes && request.book.get(tag).is_some();
        let document = leaving.or_else(|| self.package.document_of(old?, view));
        if let Some(document) = document.filter(|_| is_staged)
            && let Ok(parameters) = self.package.parameters(document.as_bytes())
        {
            let leaving = Some(document);
            let instance = Instance { package: &self.package, tag, calls, parameters, leaving };
            return walk::walk(&instance, request).map_err(|error| self.failed(path, &error));
        }
        let claims = request.claims.of_instance(tag).map(|(key, _)| (key.clone(), None)).collect();
        Ok(WalkResult { claims, ..WalkResult::default() })
    }

    fn instance_path(&self, keys: &Keys) -> InstancePath {
        let mut path = InstancePath(self.path.clone());
        if let Some(list) = path.0.pop() {
            path.0.push(Step::entry(list.node, keys.clone()));
        }
        path
    }

    fn refused(
        &self,
        instance: &InstancePath,
        tag: &ServiceTag,
        errors: &[ParametersError],
    ) -> WorkFailure {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = format!("{tag}: {}", reasons.join("; "));
        WorkFailure { instance: instance.clone(), kind: WorkFailureKind::Parameters, text }
    }

    fn failed(&self, instance: &InstancePath, error: &WorkError) -> WorkFailure {
        let kind = failure_kind(error.kind);
        let (name, version) = (&self.package.outline.name.text, self.package.version());
        let text = format!("failed in {name} {version}: {error}");
        WorkFailure { instance: instance.clone(), kind, text }
    }
}

/// Failure of a change that makes an instance again which still backs out.
fn in_the_way(tag: &ServiceTag, path: &InstancePath, plan: &ServicePlan) -> WorkFailure {
    let states =
        plan.components.iter().rev().flat_map(|component| {
            component.states.iter().rev().map(move |state| (component, state))
        });
    let waiting = states.filter_map(|(component, state)| {
        let waits_for = state.waits_for.as_ref()?;
        Some(format!(
            "{} {}, {} waits for {waits_for}",
            component.component_type, component.name, state.name
        ))
    });
    let reason = waiting.into_iter().next().unwrap_or_else(|| "it still backs out".to_owned());
    let text = format!("zombie of {tag}: {reason}");
    WorkFailure { instance: path.clone(), kind: WorkFailureKind::Leaving, text }
}

fn key_text(keys: &Keys) -> String {
    keys.first().map(ToString::to_string).unwrap_or_default()
}
