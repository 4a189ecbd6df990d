//! The types of services of a box, and the instances of each that a change has walked.
//!
//! ```text
//! /services/TYPE[KEY] differs in the ground, its type is switched on or off, or it is due
//!    | its type is switched off   -> what was made stays
//!    | gone, or `deploy` is false -> it backs out; a delete gate that is closed keeps a zombie
//!    | checked                    -> walked
//!    ` something fails            -> a failure, or where nothing may be refused, a failed state
//! ```

mod instance_walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::edit::SecretKeeperHandle;
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Book, EditContent, Ground, HandlerOutline, HandlerRefusal, LeafRead, PackageArchive, Plane,
    Reads, Services, TypeVersion, WalkOutcome, WalkRequest, WorkFailureKind,
};
use holdfast_config::tree::ListEntry as _;
use holdfast_config::{
    Branch, GrowingClaim, InstancePath, Keys, LeafMeta, LimitExceeded, List, Models, ModelsError,
    NodeId, Provenance, ServiceTag, Step, Value,
};
use smol_str::{SmolStr, format_smolstr};

use self::instance_walk::InstanceWalk;
use crate::PackageFiles;
use crate::error::{PackageError, PackageErrors};
use crate::facts::KnownAnswers;
use crate::grants;
use crate::limits::TYPES;
use crate::outline::{ActionTarget, Version};
use crate::package::Package;
use crate::versions::{PackageSource, PackageVersion, signature_row};
use crate::walk::{CallIds, Totals, WalkResult, record};
use crate::work::WorkErrorKind;

/// The types of services of a box, with the models that have all of their lists. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct ServiceTypes {
    models: Arc<Models>,
    types: Vec<ServiceType>,
    keeper: SecretKeeperHandle,
    known: Option<Arc<dyn KnownAnswers>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServiceType {
    /// The version that instances are made with.
    pub(crate) newest: Arc<PackageVersion>,
    /// Other versions, with which instances were walked that were left behind or back out.
    others: Vec<Arc<PackageVersion>>,
    /// Path of the list of instances.
    path: Vec<Step>,
    /// The leaf that says whether anything is made of an instance.
    deploy: Option<NodeId>,
}

impl ServiceTypes {
    /// No types, beside these models.
    pub fn new(models: Arc<Models>) -> Self {
        Self { models, types: Vec::new(), keeper: SecretKeeperHandle::default(), known: None }
    }

    /// Sets the reader of the public keys that packages loaded from now on give users; without one they give none.
    #[must_use]
    pub fn with_keeper(self, keeper: SecretKeeperHandle) -> Self {
        Self { keeper, ..self }
    }

    /// Has what packages loaded from now on ask fail where nothing is known of it; without it, all is known.
    #[must_use]
    pub(crate) fn with_known_answers(self, known: Arc<dyn KnownAnswers>) -> Self {
        Self { known: Some(known), ..self }
    }

    /// Loads a package that no archive is kept of.
    ///
    /// # Errors
    /// As [`ServiceTypes::load`].
    pub fn add(&mut self, files: &PackageFiles) -> Result<Vec<PackageError>, PackageErrors> {
        self.load(files, None)
    }

    /// Loads a package; its list is appended to the models, or takes the place of that of another version. Instances of
    /// that keep it until they are walked with this one. The second value has what an author is warned of.
    ///
    /// # Errors
    /// When the package is wrong, or needs what this version of the agent does not do.
    pub fn load(
        &mut self,
        files: &PackageFiles,
        source: Option<PackageSource>,
    ) -> Result<Vec<PackageError>, PackageErrors> {
        let (package, warnings) = Package::read(&self.models, files)?;
        self.check_room(&package.outline.name.text)
            .map_err(|error| PackageError::of_file("", error))?;
        let package =
            package.with_keeper(self.keeper.clone()).with_known_answers(self.known.clone());
        let schema = &package.list.models.native;
        let path = schema.steps(package.list.list);
        let children = &schema.node(package.list.list).children;
        let deploy = children.iter().copied().find(|node| schema.node(*node).name == "deploy");
        self.models = Arc::clone(&package.list.models);
        let newest = Arc::new(PackageVersion::new(Arc::new(package), source));
        let name = &newest.package.outline.name.text;
        let known = self.types.iter_mut().find(|it| it.name() == name);
        let Some(known) = known else {
            self.types.push(ServiceType { newest, others: Vec::new(), path, deploy });
            return Ok(warnings);
        };
        let before = std::mem::replace(&mut known.newest, newest);
        known.others.push(before);
        let version = known.newest.package.version();
        known.others.retain(|it| it.package.version() != version);
        (known.path, known.deploy) = (path, deploy);
        Ok(warnings)
    }

    /// Checks that there may be a type of this name.
    ///
    /// # Errors
    /// When it would be one more than the limit.
    pub fn check_room(&self, service: &str) -> Result<(), LimitExceeded> {
        let is_known = self.types.iter().any(|it| it.name() == service);
        TYPES.check(self.types.len() + usize::from(!is_known))
    }

    /// Forgets the other versions of a type that no instance was walked with.
    pub fn forget_unused(&mut self, service: &str, book: &Book) {
        for known in self.types.iter_mut().filter(|it| it.name() == service) {
            known.others.retain(|it| it.is_used(book));
        }
    }

    /// Judges the signers of all versions anew. Returns those with another verdict.
    pub fn judge_signers(
        &mut self,
        judge: impl Fn(&PackageSource) -> Option<SmolStr>,
    ) -> Vec<Arc<PackageVersion>> {
        let mut judged = Vec::new();
        for known in &mut self.types {
            for version in std::iter::once(&mut known.newest).chain(&mut known.others) {
                if let Some(anew) = version.judged(&judge) {
                    *version = Arc::new(anew);
                    judged.push(Arc::clone(version));
                }
            }
        }
        judged
    }

    /// Removes a type, and its list from the models.
    ///
    /// # Errors
    /// When the models of the other types cannot be compiled without it.
    pub fn remove(&mut self, service: &str) -> Result<(), ModelsError> {
        self.models = Arc::new(self.models.without_module(Origin::Native, service)?);
        self.types.retain(|it| it.name() != service);
        Ok(())
    }

    /// The models with the lists of all types.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// The packages with which instances are made.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.types.iter().map(|it| &*it.newest.package)
    }

    /// The versions of a type, with which instances are made or were walked: the newest first.
    pub fn versions(&self, service: &str) -> impl Iterator<Item = &PackageVersion> {
        let known = self.types.iter().filter(move |it| it.name() == service);
        known.flat_map(ServiceType::versions)
    }

    /// Versions of each type beside the newest with which instances were walked last, of types that have such.
    pub fn other_versions(&self, book: &Book) -> BTreeMap<SmolStr, Vec<Version>> {
        let others = |it: &ServiceType| {
            let others = it.others.iter().filter(|it| it.is_used(book));
            let others: Vec<_> = others.map(|it| it.package.version()).collect();
            (!others.is_empty()).then(|| (it.name().clone(), others))
        };
        self.types.iter().filter_map(others).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The package with which instances of a type are made.
    fn package(&self, service: &str) -> Option<&Package> {
        self.packages().find(|it| it.outline.name.text == *service)
    }

    /// The package of one version of a type.
    fn package_of(&self, by: TypeVersion<'_>) -> Result<&Package, HandlerRefusal> {
        let is_wanted = |it: &&PackageVersion| {
            by.version.is_none_or(|version| it.package.version().to_string() == version)
        };
        let found = self.versions(by.service).find(is_wanted).map(|it| &*it.package);
        found.ok_or_else(|| {
            let version = by.version.map(|it| format!(" in version {it}")).unwrap_or_default();
            let text = format!("there is no type of services `{}`{version}", by.service);
            HandlerRefusal { kind: WorkFailureKind::Parameters, text }
        })
    }
}

impl Services for ServiceTypes {
    fn walk(&self, request: &WalkRequest<'_>) -> WalkOutcome {
        let mut outcome = WalkOutcome::default();
        let change = Change::new(request);
        let mut instances = Vec::new();
        for of in &self.types {
            let due = of.to_walk(&change, &mut outcome);
            instances.extend(due.into_iter().map(|it| (of, it)));
        }
        // Types that go make room for others within the limits.
        instances
            .sort_by_key(|(of, (_, _, new))| new.as_ref().is_some_and(|it| of.is_deployed(it)));
        for (of, instance) in instances {
            of.walk(&change, instance, &mut outcome);
        }
        outcome
    }

    fn judge_ready(&self, request: &WalkRequest<'_>) -> WalkOutcome {
        let mut outcome = WalkOutcome::default();
        let change = Change::new(request);
        for tag in &request.surroundings.due {
            let judged = self.types.iter().find_map(|it| it.judge_ready(&change, tag));
            let Some(WalkResult { plan, reads, .. }) = judged else { continue };
            outcome.plans.push((tag.clone(), plan));
            outcome.reads.insert(tag.clone(), reads);
        }
        outcome
    }

    fn changed(&self, old: &Ground, new: &Ground) -> Vec<ServiceTag> {
        let changed = |it: &ServiceType| {
            let of_keys = |keys: &Keys| it.newest.package.tag(&key_text(keys));
            let differing = it.differing(old, new);
            let mut tags: Vec<_> = differing.iter().map(|(keys, ..)| of_keys(keys)).collect();
            if it.is_switched_on(old) != it.is_switched_on(new) {
                let all = it.instances(new).into_iter().flat_map(List::iter);
                tags.extend(all.map(|(keys, _)| of_keys(keys)));
                tags.sort();
                tags.dedup();
            }
            tags
        };
        self.types.iter().flat_map(changed).collect()
    }

    fn packages(&self, ground: &Ground, book: &Book) -> BTreeMap<SmolStr, Arc<PackageArchive>> {
        self.types.iter().flat_map(|it| it.archives(ground, book)).collect()
    }

    fn handler(&self, service: &str) -> Option<HandlerOutline> {
        let handler = self.package(service)?.outline.handler.as_ref()?;
        let mut calls = Vec::new();
        let mut actions = BTreeSet::new();
        for version in self.versions(service) {
            for call in version.handler_calls() {
                if !calls.contains(&call) {
                    calls.push(call);
                }
            }
            actions.extend(version.package.outline.actions().filter_map(|it| match &it.target {
                ActionTarget::Handler(name) => Some(name.clone()),
                ActionTarget::Builtin(_) => None,
            }));
        }
        let user = handler.user.clone();
        let identities = handler.identities.clone();
        Some(HandlerOutline { actions: actions.into_iter().collect(), user, identities, calls })
    }

    fn gate(
        &self,
        by: TypeVersion<'_>,
        [component, state]: [&str; 2],
        is_of_delete: bool,
    ) -> Option<SmolStr> {
        let mut components = self.package_of(by).ok()?.outline.components.iter();
        let outline = components.find(|it| it.name == component)?.state(state)?;
        let gate = if is_of_delete { &outline.delete.when } else { &outline.when };
        gate.as_ref().map(|it| it.text.clone())
    }

    fn add_edit(
        &self,
        by: TypeVersion<'_>,
        claim: &mut GrowingClaim,
        edit: EditContent<'_>,
    ) -> Result<(), HandlerRefusal> {
        let package = self.package_of(by)?;
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
        by: TypeVersion<'_>,
        plane: Plane,
        path: &str,
    ) -> Result<LeafRead, HandlerRefusal> {
        let package = self.package_of(by)?;
        let refused = |text| HandlerRefusal { kind: WorkFailureKind::Denied, text };
        let read = package.readable(plane, path).map_err(refused)?;
        match grants::reads_services(&self.models, &read) {
            // A handler has published it, or another one of its type.
            true => Err(refused(format!("`{path}` is of a service: handlers do not see services"))),
            false => Ok(read),
        }
    }
}

pub(crate) fn failure_kind(kind: WorkErrorKind) -> WorkFailureKind {
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

/// Key of an instance, and its entries before and after a change.
type DifferingInstance = (Keys, Option<Entry>, Option<Entry>);

/// A change for which instances are walked.
pub(crate) struct Change<'a> {
    pub(crate) request: &'a WalkRequest<'a>,
    pub(crate) calls: CallIds,
    pub(crate) totals: Totals,
}

impl<'a> Change<'a> {
    fn new(request: &'a WalkRequest<'a>) -> Self {
        let calls = CallIds::new(request.surroundings.now_ns);
        Self { request, calls, totals: Totals::of(request.book) }
    }
}

impl ServiceType {
    fn name(&self) -> &SmolStr {
        &self.newest.package.outline.name.text
    }

    /// All versions, the newest first.
    fn versions(&self) -> impl Iterator<Item = &PackageVersion> {
        std::iter::once(&self.newest).chain(&self.others).map(|it| &**it)
    }

    /// The version that an instance is walked with: the one of its last walk, unless it is to have the newest.
    fn version_of(&self, tag: &ServiceTag, request: &WalkRequest<'_>) -> &PackageVersion {
        let Some(plan) = request.book.get(tag) else { return &self.newest };
        let surroundings = request.surroundings;
        if surroundings.upgrades && surroundings.due.contains(tag) && plan.leaving.is_none() {
            return &self.newest;
        }
        let walked_with = |it: &&PackageVersion| plan.version == it.package.version().to_string();
        self.versions().find(walked_with).unwrap_or(&self.newest)
    }

    /// The archives that the database has to keep.
    fn archives(&self, ground: &Ground, book: &Book) -> Vec<(SmolStr, Arc<PackageArchive>)> {
        let name = self.name();
        let mut kept = Vec::new();
        for version in self.versions() {
            let Some(source) = &version.source else { continue };
            let text = version.package.version().to_string();
            let is_newest = std::ptr::eq(version, &*self.newest);
            // An instance that is not deployed has no plan, and its parameters need the module.
            let has_instances = || self.instances(ground).is_some_and(|list| !list.is_empty());
            let is_kept =
                book.uses(name, &text) || is_newest && (source.is_installed || has_instances());
            let row = if is_newest { name.clone() } else { format_smolstr!("{name}/{text}") };
            if is_kept {
                let signature = source.signature.as_ref();
                kept.extend(signature.map(|it| (signature_row(&row), Arc::clone(it))));
                kept.push((row, Arc::clone(&source.archive)));
            }
        }
        kept
    }

    /// The instances of the type that differ, those that are due, and those with another result of a condition.
    fn to_walk(&self, change: &Change<'_>, outcome: &mut WalkOutcome) -> Vec<DifferingInstance> {
        let request = change.request;
        let mut instances = self.differing(request.old, request.new);
        let touched = request.surroundings.touched.keys();
        let touched = touched.filter(|tag| self.is_touched(change, tag, outcome));
        let mut due: BTreeSet<_> =
            request.surroundings.due.iter().chain(touched).cloned().collect();
        if self.is_switched_on(request.old) != self.is_switched_on(request.new) {
            due.extend(self.tags(request));
        }
        for tag in &due {
            let Some(path) = self.path_of(tag) else { continue };
            let keys = path.0.last().and_then(|step| step.keys.clone()).unwrap_or_default();
            if instances.iter().all(|(other, ..)| *other != keys) {
                let [old, new] = [request.old, request.new].map(|it| self.instance(it, &keys));
                instances.push((keys, old, new));
            }
        }
        instances
    }

    /// True when a condition of an instance that is touched has another result.
    fn is_touched(&self, change: &Change<'_>, tag: &ServiceTag, outcome: &mut WalkOutcome) -> bool {
        let Some((path, touched)) =
            self.path_of(tag).zip(change.request.surroundings.touched.get(tag))
        else {
            return false;
        };
        let keys = path.0.last().and_then(|step| step.keys.as_ref());
        let entry = keys.and_then(|keys| self.instance(change.request.new, keys));
        let version = self.version_of(tag, change.request);
        let walk = InstanceWalk { of: self, version, change, tag, path };
        let (unchanged, work) = walk.judge_conditions(entry.as_ref(), touched);
        outcome.work.add(work);
        let is_unchanged = unchanged.is_some();
        outcome.unchanged.extend(unchanged.map(|reads| (tag.clone(), reads)));
        !is_unchanged
    }

    /// Walks one instance of the type.
    fn walk(
        &self,
        change: &Change<'_>,
        (keys, old, new): DifferingInstance,
        outcome: &mut WalkOutcome,
    ) {
        let request = change.request;
        let tag = self.newest.package.tag(&key_text(&keys));
        let version = self.version_of(&tag, request);
        let path = self.instance_path(&keys);
        let walk = InstanceWalk { of: self, version, change, tag: &tag, path };
        match walk.walk(old.as_ref(), new.as_ref()) {
            Ok(mut walked) => {
                let before = request.book.get(&tag).map(|plan| &**plan);
                record::note(&mut walked, before, request.surroundings);
                change.totals.note(before, walked.plan.as_ref());
                outcome.claims.extend(walked.claims);
                outcome.persisted.extend(walked.persisted);
                if walked.plan.as_ref() != before {
                    outcome.plans.push((tag.clone(), walked.plan));
                }
                outcome.calls.extend(walked.calls);
                outcome.wake_at_ns.extend(walked.wake_at_ns.map(|at| (tag.clone(), at)));
                outcome.over_limit.extend(walked.is_over_limit.then(|| tag.clone()));
                outcome.conditions.extend(walked.conditions.map(|it| (tag.clone(), it)));
                outcome.work.add(walked.work);
                outcome.reads.insert(tag, walked.reads);
            }
            Err(failure) => {
                outcome.failures.push(failure);
                outcome.reads.insert(tag, Reads::default());
            }
        }
    }

    /// The instances that differ between two versions of the ground.
    fn differing(&self, old: &Ground, new: &Ground) -> Vec<DifferingInstance> {
        let none = List::default();
        let old = self.instances(old).unwrap_or(&none);
        let new = self.instances(new).unwrap_or(&none);
        let content = |entry: &<Provenance as LeafMeta>::Entry| entry.branch().into_shared();
        let differences = List::differences(old, new);
        let differences =
            differences.map(|it| (it.keys.clone(), it.old.map(content), it.new.map(content)));
        // Other memory may have the same content.
        differences.filter(|(_, old, new)| old.is_none() || old != new).collect()
    }

    pub(crate) fn is_switched_on(&self, ground: &Ground) -> bool {
        ground.is_switched_on(&self.newest.package.list.models, self.name())
    }

    /// All instances, and those that back out.
    fn tags(&self, request: &WalkRequest<'_>) -> BTreeSet<ServiceTag> {
        let of_plans = request.book.of_type(self.name()).map(|(tag, _)| tag.clone());
        let instances = self.instances(request.new).into_iter().flat_map(List::iter);
        let instances = instances.map(|(keys, _)| self.newest.package.tag(&key_text(keys)));
        of_plans.chain(instances).collect()
    }

    /// Path of an instance of this type.
    fn path_of(&self, tag: &ServiceTag) -> Option<InstancePath> {
        let is_of_type = tag.service == *self.name();
        is_of_type.then(|| self.newest.package.instance_path(&tag.key)).flatten()
    }

    fn instances<'g>(&self, ground: &'g Ground) -> Option<&'g List<Provenance>> {
        let (list, above) = self.path.split_last()?;
        let root = &**ground.effective().root();
        let branch =
            above.iter().try_fold(root, |branch, step| Some(&**branch.container(step.node)?))?;
        branch.list(list.node)
    }

    fn instance(&self, ground: &Ground, keys: &Keys) -> Option<Entry> {
        Some(self.instances(ground)?.get(keys)?.branch().into_shared())
    }

    pub(crate) fn is_deployed(&self, entry: &Branch<Provenance>) -> bool {
        let deploy = self.deploy.and_then(|node| entry.value(node));
        deploy.is_none_or(|value| *value == Value::Bool(true))
    }

    /// The service plan of an instance of this type with `ready` as the box has it now, if it differs.
    fn judge_ready(&self, change: &Change<'_>, tag: &ServiceTag) -> Option<WalkResult> {
        let request = change.request;
        let path = self.path_of(tag)?;
        let entry = self.instance(request.new, path.0.last()?.keys.as_ref()?)?;
        let version = self.version_of(tag, request);
        let walk = InstanceWalk { of: self, version, change, tag, path };
        walk.judge_ready(&entry)
    }

    fn instance_path(&self, keys: &Keys) -> InstancePath {
        let mut path = InstancePath(self.path.clone());
        if let Some(list) = path.0.pop() {
            path.0.push(Step::entry(list.node, keys.clone()));
        }
        path
    }
}

fn key_text(keys: &Keys) -> String {
    keys.first().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::starter;

    #[test]
    fn as_many_types_as_the_limit_are_loaded_and_no_more() {
        let date = "2026-11-25";
        let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap()));
        types.add(&starter::files("first", date).unwrap()).unwrap();
        let others = std::iter::repeat_n(types.types[0].clone(), TYPES.figure - 2);
        types.types.extend(others.collect::<Vec<_>>());
        types.add(&starter::files("last", date).unwrap()).unwrap();
        assert_eq!(types.types.len(), TYPES.figure);
        let refused = types.add(&starter::files("more", date).unwrap()).unwrap_err().to_string();
        assert_eq!(refused, "more than 100 types of services (limit `service-types`)");
        types.add(&starter::files("last", date).unwrap()).unwrap();
        assert_eq!(types.types.len(), TYPES.figure, "a type is exchanged");
    }
}
