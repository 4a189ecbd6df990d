//! The types of services of a box, and the walks of their instances.
//!
//! ```text
//! /services/TYPE[KEY] differs in the ground
//!    | gone, or `deploy` is false          -> its claims go
//!    | checked, rendered, read, granted    -> its claim is replaced
//!    ` something fails                     -> a failure; its claims stay
//! ```
//!
//! Plain types only: those with components, gates, reads or handlers need service plans, which are not built.

use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Ground, GroundChange, Services, WalkOutcome, WorkFailure, WorkFailureKind,
};
use holdfast_config::{
    Branch, Claim, ClaimKey, InstancePath, Keys, List, Models, Provenance, ServiceTag, Step,
};

use crate::error::{PackageError, PackageErrors};
use crate::facts::NoFacts;
use crate::outline::{OUTLINE, StateOutline, Work};
use crate::package::Package;
use crate::parameters::{Parameters, ParametersError};
use crate::scope::Scope;
use crate::work::{WorkError, WorkErrorKind};
use crate::{Facts, PackageFiles};

/// Component of a plain type, by its type and its name.
const SELF: &str = "self";
/// State whose work is that of a plain type.
const INIT: &str = "init";

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
    deploy: Option<holdfast_config::NodeId>,
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
        let above = |node: &_| schema.node(*node).parent;
        let mut path: Vec<_> =
            std::iter::successors(Some(package.list.list), above).map(Step::node).collect();
        path.pop(); // the root is no step
        path.reverse();
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

/// Everything of a package that needs a service plan.
fn unsupported(package: &Package) -> Vec<PackageError> {
    let refused = |reason: &str| {
        PackageError::of_file(
            OUTLINE,
            format!("{reason}, which this version of the agent does not support yet"),
        )
    };
    let outline = &package.outline;
    let mut missing = Vec::new();
    if !outline.is_plain() {
        missing.push(refused("the type has components"));
    }
    if !outline.read.is_empty() {
        missing.push(refused("the package reads configuration or state"));
    }
    let states = || outline.components.iter().flat_map(|component| &component.states);
    if states().any(|state| matches!(state.work, Some(Work::Handler))) {
        missing.push(refused("the work is done by a handler"));
    }
    if states().any(has_gate_or_action) {
        missing.push(refused("a state has a gate or an action"));
    }
    missing
}

fn has_gate_or_action(state: &StateOutline) -> bool {
    state.when.is_some()
        || state.action.is_some()
        || state.delete.when.is_some()
        || state.delete.action.is_some()
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
            let claim = match it.new.filter(|entry| self.is_deployed(entry)) {
                Some(entry) => self.work(change.new, it.keys, entry),
                None => Ok(None),
            };
            match claim {
                Ok(claim) => {
                    let kept = init(&tag);
                    let held = change.claims.of_instance(&tag).map(|(key, _)| key.clone());
                    outcome.claims.extend(held.filter(|key| *key != kept).map(|key| (key, None)));
                    outcome.claims.push((kept, claim));
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
        deploy.is_none_or(|value| *value == holdfast_config::Value::Bool(true))
    }

    /// What the work of an instance puts out.
    fn work(
        &self,
        ground: Ground<'_>,
        keys: &Keys,
        entry: &Branch<Provenance>,
    ) -> Result<Option<Claim>, WorkFailure> {
        let (key, instance) = (key_text(keys), self.instance(keys));
        let view = ground.config_view(Origin::Native).branch(&instance).map(|it| &**it);
        let parameters = self.package.parameters_of(&key, &instance, (entry, view));
        let parameters = parameters.map_err(|errors| self.refused(&instance, &key, &errors))?;
        self.render(&parameters).map_err(|error| self.failed(&instance, &error))
    }

    fn render(&self, parameters: &Parameters) -> Result<Option<Claim>, WorkError> {
        let facts: Arc<dyn Facts> = Arc::new(NoFacts);
        let scope = Scope::of_instance(parameters, false);
        let state = self.package.outline.component(SELF).and_then(|it| it.state(INIT));
        let work = state.and_then(|state| state.work.as_ref());
        let output = self.package.render(work, &scope, &facts)?;
        Ok(output.map(|output| match output.origin {
            Origin::Native => Claim { native: output.tree, ..Claim::default() },
            Origin::OpenConfig => Claim { openconfig: output.tree, ..Claim::default() },
        }))
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

/// Key of the claim of a plain instance.
fn init(tag: &ServiceTag) -> ClaimKey {
    ClaimKey { tag: tag.clone(), component: [SELF.into(), SELF.into()], state: INIT.into() }
}

fn key_text(keys: &Keys) -> String {
    keys.first().map(ToString::to_string).unwrap_or_default()
}
