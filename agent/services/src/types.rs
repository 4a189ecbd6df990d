//! The types of services of a box, and the walks of their instances.
//!
//! ```text
//! /services/TYPE[KEY] differs in the ground
//!    | gone, or `deploy` is false          -> its claims go
//!    | checked, rendered, read, granted    -> its claim is replaced
//!    ` something fails                     -> a failure; its claims stay
//! ```
//!
//! All states of an instance are reached in one walk. Types with gates, actions or handlers, and expressions that ask for
//! configuration or state, need service plans, which are not built.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Ground, GroundChange, Services, WalkOutcome, WorkFailure, WorkFailureKind,
};
use holdfast_config::{
    Branch, Claim, ClaimKey, InstancePath, Keys, List, Models, NodeId, Provenance, Step, Value,
};
use smol_str::SmolStr;

use crate::error::{PackageError, PackageErrors};
use crate::facts::Read;
use crate::outline::{DeleteOutline, OUTLINE, StateOutline, Work};
use crate::package::Package;
use crate::parameters::{Parameters, ParametersError};
use crate::scope::Scope;
use crate::work::{WorkError, WorkErrorKind};
use crate::{Facts, Output, PackageFiles};

/// End of the reason to refuse what needs a service plan.
const UNSUPPORTED: &str = "which this version of the agent does not support yet";

/// The types of services of a box, with the models that have all of their lists.
#[derive(Debug)]
pub struct ServiceTypes {
    models: Arc<Models>,
    types: Vec<ServiceType>,
}

#[derive(Debug)]
struct ServiceType {
    package: Package,
    /// Path of the list of instances.
    path: Vec<Step>,
    /// The leaf that says whether anything is made of an instance.
    deploy: Option<NodeId>,
}

impl ServiceTypes {
    /// No types, beside these models.
    pub fn new(models: Arc<Models>) -> Self {
        Self { models, types: Vec::new() }
    }

    /// Adds the type of a package; its list is appended to the models. The second value has what an author is warned of.
    ///
    /// # Errors
    /// When the package is wrong, has a type that is there already, or needs what this version does not do.
    pub fn add(&mut self, files: &PackageFiles) -> Result<Vec<PackageError>, PackageErrors> {
        let (package, warnings) = Package::read(&self.models, files)?;
        let missing = unsupported(&package);
        if !missing.is_empty() {
            return Err(PackageErrors(missing));
        }
        let schema = &package.list.models.native;
        let path = schema.steps(package.list.list);
        let children = &schema.node(package.list.list).children;
        let deploy = children.iter().copied().find(|node| schema.node(*node).name == "deploy");
        self.models = Arc::clone(&package.list.models);
        self.types.push(ServiceType { package, path, deploy });
        Ok(warnings)
    }

    /// The models with the lists of all types.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.types.iter().map(|it| &it.package)
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

/// Everything of an outline that needs a service plan.
fn unsupported(package: &Package) -> Vec<PackageError> {
    let states = package.outline.components.iter().flat_map(|component| &component.states);
    let refused = |state: &StateOutline| {
        let what = match state {
            StateOutline { when: Some(_), .. } => "a gate",
            StateOutline { action: Some(_), .. } => "an action",
            StateOutline { commit_after: true, .. } => "`commit-after`",
            StateOutline { timeout: Some(_), .. } => "a timeout",
            StateOutline { work: Some(Work::Handler), .. } => "a handler",
            StateOutline { delete, .. } if *delete != DeleteOutline::default() => "a delete part",
            StateOutline { .. } => return None,
        };
        let reason = format!("the state has {what}, {UNSUPPORTED}");
        Some(PackageError::in_line(OUTLINE, state.position, reason))
    };
    states.filter_map(refused).collect()
}

/// Notes that an expression asks for something that only service plans keep track of.
#[derive(Debug, Default)]
struct UnansweredFacts(AtomicBool);

impl UnansweredFacts {
    fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Facts for UnansweredFacts {
    fn read(&self, _: &Read) -> Vec<Value> {
        self.note();
        Vec::new()
    }

    fn gone(&self, _: &Read) -> bool {
        self.note();
        false
    }

    fn reached(&self, _: &str, _: &str, _: &str) -> bool {
        self.note();
        false
    }

    fn action(&self, _: &str, _: &str, _: &str) -> Option<SmolStr> {
        self.note();
        None
    }

    fn ready(&self, _: &str) -> bool {
        self.note();
        false
    }

    fn service_ready(&self, _: &str) -> bool {
        self.note();
        false
    }
}

impl Services for ServiceTypes {
    fn walk(&self, change: &GroundChange<'_>) -> WalkOutcome {
        let mut outcome = WalkOutcome::default();
        for it in &self.types {
            it.walk(change, &mut outcome);
        }
        outcome
    }
}

impl ServiceType {
    /// Walks the instances of the type that differ.
    fn walk(&self, change: &GroundChange<'_>, outcome: &mut WalkOutcome) {
        let none = List::default();
        let old = self.instances(change.old).unwrap_or(&none);
        let new = self.instances(change.new).unwrap_or(&none);
        for it in List::differences(old, new) {
            // Other memory may have the same content.
            if it.old.is_some() && it.old == it.new {
                continue;
            }
            let tag = self.package.tag(&key_text(it.keys));
            let made = match it.new.filter(|entry| self.is_deployed(entry)) {
                Some(entry) => self.work(change.new, it.keys, entry),
                None => Ok(BTreeMap::new()),
            };
            match made {
                Ok(made) => {
                    let held = change.claims.of_instance(&tag).map(|(key, _)| key);
                    let gone = held.filter(|key| !made.contains_key(key));
                    outcome.claims.extend(gone.map(|key| (key.clone(), None)));
                    outcome.claims.extend(made.into_iter().map(|(key, claim)| (key, Some(claim))));
                }
                Err(failure) => outcome.failures.push(failure),
            }
        }
    }

    fn instances<'g>(&self, ground: Ground<'g>) -> Option<&'g List<Provenance>> {
        let (list, above) = self.path.split_last()?;
        let root = &**ground.effective().root();
        let branch =
            above.iter().try_fold(root, |branch, step| Some(&**branch.container(step.node)?))?;
        branch.list(list.node)
    }

    fn is_deployed(&self, entry: &Branch<Provenance>) -> bool {
        let deploy = self.deploy.and_then(|node| entry.value(node));
        deploy.is_none_or(|value| *value == Value::Bool(true))
    }

    /// Makes the claims of all states of an instance.
    fn work(
        &self,
        ground: Ground<'_>,
        keys: &Keys,
        entry: &Branch<Provenance>,
    ) -> Result<BTreeMap<ClaimKey, Claim>, WorkFailure> {
        let (key, instance) = (key_text(keys), self.instance(keys));
        let view = ground.config_view(Origin::Native).branch(&instance).map(|it| &**it);
        let parameters = self.package.parameters_of(&key, &instance, (entry, view));
        let parameters = parameters.map_err(|errors| self.refused(&instance, &key, &errors))?;
        self.render(&parameters).map_err(|error| self.failed(&instance, &error))
    }

    /// Renders the states of all components. Without gates, all of them are reached.
    fn render(&self, parameters: &Parameters) -> Result<BTreeMap<ClaimKey, Claim>, WorkError> {
        let unanswered = Arc::new(UnansweredFacts::default());
        let facts: Arc<dyn Facts> = unanswered.clone();
        let scope = Scope::of_instance(parameters, false);
        let tag = self.package.tag(&parameters.key);
        let mut made = BTreeMap::new();
        for component in self.package.components(&scope, &facts)? {
            let Some(outline) = self.package.outline.component(&component.component_type) else {
                continue;
            };
            let scope = scope.of_component(&component);
            for state in &outline.states {
                let output = self.package.render(state.work.as_ref(), &scope, &facts)?;
                let Some(output) = output else { continue };
                let component = [component.component_type.clone(), component.name.clone()];
                let key = ClaimKey { tag: tag.clone(), component, state: state.name.clone() };
                made.insert(key, claim_of(output));
            }
        }
        match unanswered.0.load(Ordering::Relaxed) {
            false => Ok(made),
            true => Err(WorkError {
                kind: WorkErrorKind::Failed,
                file: OUTLINE.into(),
                position: None,
                reason: format!(
                    "it asks for configuration, state or other services, {UNSUPPORTED}"
                ),
            }),
        }
    }

    fn instance(&self, keys: &Keys) -> InstancePath {
        let mut path = InstancePath(self.path.clone());
        if let Some(list) = path.0.pop() {
            path.0.push(Step::entry(list.node, keys.clone()));
        }
        path
    }

    fn refused(
        &self,
        instance: &InstancePath,
        key: &str,
        errors: &[ParametersError],
    ) -> WorkFailure {
        let reasons: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = format!("{}: {}", self.package.tag(key), reasons.join("; "));
        WorkFailure { instance: instance.clone(), kind: WorkFailureKind::Parameters, text }
    }

    fn failed(&self, instance: &InstancePath, error: &WorkError) -> WorkFailure {
        let kind = match error.kind {
            WorkErrorKind::Failed => WorkFailureKind::Work,
            WorkErrorKind::Limit => WorkFailureKind::Limit,
            WorkErrorKind::Denied => WorkFailureKind::Denied,
        };
        let (name, version) = (&self.package.outline.name.text, self.package.version());
        let text = format!("failed in {name} {version}: {error}");
        WorkFailure { instance: instance.clone(), kind, text }
    }
}

fn claim_of(output: Output) -> Claim {
    match output.origin {
        Origin::Native => Claim { native: output.tree, ..Claim::default() },
        Origin::OpenConfig => Claim { openconfig: output.tree, ..Claim::default() },
    }
}

fn key_text(keys: &Keys) -> String {
    keys.first().map(ToString::to_string).unwrap_or_default()
}
