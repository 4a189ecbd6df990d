//! Exchange of the package of a type while it has instances.
//!
//! ```text
//! models with other nodes --> instances read anew by name --> types --> all instances walked, or left behind
//!                                | does not fit                            | fails
//!                                v                                         v
//!                             refused, all leaves listed                refused, all instances listed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

use crate::claims::ServiceTag;
use crate::configuration::Configuration;
use crate::edit::{Attribution, EditErrors, EditOperation};
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers, LeafMark, Owner};
use crate::models::Models;
use crate::schema::{NodeId, Origin, Schema};
use crate::services::{PackageArchive, Services, Surroundings, WorkFailure, WorkFailureKind};
use crate::tree::{Branch, Child, List, Tree};
use crate::union::Problem;
use crate::value::Value;

/// Row of a package in the database that is written, or removed when it has no archive.
pub type PackageChange = (SmolStr, Option<Arc<PackageArchive>>);

/// Types of services that differ, and what becomes of the instances of the type whose package is exchanged.
#[derive(Clone, Debug)]
pub struct TypeExchange {
    pub services: Arc<dyn Services>,
    pub models: Arc<Models>,
    /// Name of the type.
    pub service: SmolStr,
    /// SHA-256 of the archive in hexadecimal digits: part of the hash of a dry run.
    pub digest: SmolStr,
    pub mode: ExchangeMode,
    /// Components that cannot stay leave what they made to nobody, instead of refusing the exchange.
    pub is_forced: bool,
    /// Work that fails is a failed state: a dry run shows all of them, before each instance is walked alone.
    pub is_lenient: bool,
    /// Parameters that the new version has no place for are left out, instead of refusing the exchange: a dry run of what is
    /// refused shows the rest.
    pub drops_unfit: bool,
}

/// Treatment of the instances of a type whose package is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeMode {
    /// All are walked with the new version in the same change.
    Together,
    /// Instances keep their version, until each is walked by a change of its own.
    Each,
    /// The type goes. Instances refuse that unless it is forced, and go with it then.
    Remove,
}

impl Configuration {
    /// Computes the configuration with other types of services.
    ///
    /// # Errors
    /// With all parameters that the new version has no place for; else with all walks that fail.
    pub fn exchanged(&self, exchange: &TypeExchange) -> Result<Self, EditErrors> {
        let TypeExchange { services, models, service, mode, is_forced, .. } = exchange;
        let attribution = Attribution::of_trees(self.models(), |_| EditOperation::Walk);
        let refused = |problems| attribution.errors(problems, self.layers().claims());
        let old = match mode {
            ExchangeMode::Remove => self.without_instances(service, *is_forced).map_err(refused)?,
            ExchangeMode::Together | ExchangeMode::Each => self.clone(),
        };
        let drops_unfit = exchange.drops_unfit;
        let reading = Reading { old: &self.models().native, new: &models.native, drops_unfit };
        let layers = reading.layers(service, old.layers().clone()).map_err(refused)?;
        let factory = reading.tree(service, old.factory()).map_err(refused)?;
        let read = old.with_read_instances(layers, factory);
        let new = read.with_models(Arc::clone(models)).with_services(Some(Arc::clone(services)));
        if *mode != ExchangeMode::Together {
            return Ok(new);
        }
        let plans = self.layers().book.of_type(service);
        let due: BTreeSet<ServiceTag> =
            plans.filter(|(_, plan)| plan.leaving.is_none()).map(|(tag, _)| tag.clone()).collect();
        if due.is_empty() {
            return Ok(new);
        }
        let surroundings = new.surroundings().clone();
        let drops_components = *is_forced;
        let surroundings = Surroundings { due, upgrades: true, drops_components, ..surroundings };
        new.with_surroundings(surroundings).walked()
    }

    /// The rows of packages that differ in another version.
    pub fn package_changes(&self, new: &Self) -> Vec<PackageChange> {
        let is_same = match (self.services(), new.services()) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => return Vec::new(),
            _ => false,
        };
        if is_same && self.is_same(new) {
            return Vec::new();
        }
        let old = self.packages();
        let new = new.packages();
        let removed = old.keys().filter(|name| !new.contains_key(*name));
        let removed = removed.map(|name| (name.clone(), None));
        let written = new.iter().filter(|(name, archive)| old.get(*name) != Some(archive));
        removed.chain(written.map(|(name, it)| (name.clone(), Some(Arc::clone(it))))).collect()
    }

    /// The packages that the database has to keep, by the names of their rows.
    pub fn packages(&self) -> BTreeMap<SmolStr, Arc<PackageArchive>> {
        let packages = |it: &Arc<dyn Services>| it.packages(&self.ground(), &self.layers().book);
        self.services().map(packages).unwrap_or_default()
    }

    /// This configuration without the instances of a type, whose claims are left to nobody.
    fn without_instances(&self, service: &str, is_forced: bool) -> Result<Self, Vec<Problem>> {
        let used: BTreeSet<ServiceTag> = {
            let with_plans = self.layers().book.of_type(service).map(|(tag, _)| tag.clone());
            let all = self.instances().into_iter().filter(|tag| tag.service == service);
            with_plans.chain(all).collect()
        };
        if used.is_empty() {
            return Ok(self.clone());
        }
        if !is_forced {
            let text = |_: &ServiceTag| "the type still has this instance".to_owned();
            return Err(in_the_way(&self.models().native, &used, text));
        }
        let Some(list) = list_of(&self.models().native, service) else { return Ok(self.clone()) };
        let mut layers = self.layers().clone();
        for layer in instance_layers() {
            if list_in(layers.tree(layer), &list).is_none_or(List::is_empty) {
                continue;
            }
            if layer != LayerKey::CLIENT_NATIVE {
                let text =
                    |_: &ServiceTag| format!("instances of the type are in {}", layer.name());
                return Err(in_the_way(&self.models().native, &used, text));
            }
            layers.tree_mut(layer).remove(&self.models().native, &InstancePath(list.clone()));
        }
        let mut claims = layers.claims().clone();
        for tag in used {
            let keys: Vec<_> = claims.of_instance(&tag).map(|(key, _)| key.clone()).collect();
            let changes = claims.orphaned(&tag, keys.iter());
            claims = claims.replaced(self.models(), changes).map_err(Problem::of_claims)?;
            layers.book.set((tag, None));
        }
        layers.set_claims(claims);
        Ok(self.with_read_instances(layers, self.factory().clone()))
    }
}

fn in_the_way(
    schema: &Schema,
    used: &BTreeSet<ServiceTag>,
    text: impl Fn(&ServiceTag) -> String,
) -> Vec<Problem> {
    let failure = |tag: &ServiceTag| {
        let instance = schema.resolve_write(&tag.path()).unwrap_or_default();
        let text = format!("{tag}: {}", text(tag));
        Problem::Work(WorkFailure { instance, kind: WorkFailureKind::Precondition, text })
    };
    used.iter().map(failure).collect()
}

/// Layers that may hold instances.
fn instance_layers() -> impl Iterator<Item = LayerKey> {
    let native = LayerKey::ALL.into_iter().filter(|layer| layer.origin == Origin::Native);
    native.filter(|layer| layer.owner != Owner::Service)
}

/// Path of the list of a type.
fn list_of(schema: &Schema, service: &str) -> Option<Vec<Step>> {
    let list = schema.find(&format!("/holdfast-services:services/{service}:{service}"));
    list.map(|list| schema.steps(list))
}

fn list_in<'t>(tree: &'t Tree<LeafMark>, path: &[Step]) -> Option<&'t List<LeafMark>> {
    let (list, above) = path.split_last()?;
    let root = &**tree.root();
    let branch = above.iter().try_fold(root, |branch, step| Some(&**branch.container(step.node)?));
    branch?.list(list.node)
}

/// Reading of the instances of a type by the names of their nodes, from one version of its module into another.
struct Reading<'a> {
    old: &'a Schema,
    new: &'a Schema,
    /// True when parameters without a place are left out, which does no harm then.
    drops_unfit: bool,
}

impl Reading<'_> {
    /// Layers in which the instances of a type are read anew.
    fn layers(&self, service: &str, mut layers: Layers) -> Result<Layers, Vec<Problem>> {
        let mut problems = Vec::new();
        for layer in instance_layers() {
            match self.tree(service, layers.tree(layer)) {
                Ok(tree) => *layers.tree_mut(layer) = tree,
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() { Ok(layers) } else { Err(problems) }
    }

    fn tree(&self, service: &str, tree: &Tree<LeafMark>) -> Result<Tree<LeafMark>, Vec<Problem>> {
        let Some(path) = list_of(self.old, service) else { return Ok(tree.clone()) };
        let Some(list) = list_in(tree, &path) else { return Ok(tree.clone()) };
        let mut problems = Vec::new();
        let mut read = tree.clone();
        for (keys, entry) in list.iter() {
            let mut path = InstancePath(path.clone());
            if let Some(list) = path.0.pop() {
                path.0.push(Step::entry(list.node, keys.clone()));
            }
            let mut unfit = Vec::new();
            let before = problems.len();
            let branch = self.entry(path.last().map(|it| it.node), keys, entry, &path, &mut unfit);
            if !self.drops_unfit {
                problems.extend(
                    unfit.into_iter().map(|(node, reason)| self.problem(&path, &node, &reason)),
                );
            }
            if problems.len() == before && branch != **entry {
                let child = Child::Container(Arc::new(branch));
                read.put(self.new, &path, child, &LeafMark::Explicit);
            }
        }
        if problems.is_empty() { Ok(read) } else { Err(problems) }
    }

    fn problem(&self, instance: &InstancePath, node: &InstancePath, reason: &str) -> Problem {
        let text = format!("`{}`: {reason}", node.to_path(self.old));
        let kind = WorkFailureKind::Parameters;
        Problem::Work(WorkFailure { instance: instance.clone(), kind, text })
    }

    /// An entry of a list, read anew.
    fn entry(
        &self,
        list: Option<NodeId>,
        keys: &Keys,
        entry: &Branch<LeafMark>,
        path: &InstancePath,
        unfit: &mut Vec<(InstancePath, String)>,
    ) -> Branch<LeafMark> {
        let Some(list) = list.filter(|list| !self.new.node(*list).is_unlinked) else {
            unfit.push((path.clone(), "the new version has no such list".to_owned()));
            return entry.clone();
        };
        for (key, value) in self.old.keys(list).iter().zip(keys.iter()) {
            if self.value(*key, value).as_ref() != Ok(value) {
                let at = path.join(Step::node(*key));
                unfit.push((at, "the key has another type in the new version".to_owned()));
            }
        }
        self.branch(entry, path, unfit)
    }

    fn branch(
        &self,
        branch: &Branch<LeafMark>,
        path: &InstancePath,
        unfit: &mut Vec<(InstancePath, String)>,
    ) -> Branch<LeafMark> {
        let mut read = branch.clone();
        for (node, child) in branch.children() {
            let at = path.join(Step::node(*node));
            if self.new.node(*node).is_unlinked {
                unfit.push((at, "the new version has no such node".to_owned()));
                self.drop_unfit(&mut read, *node);
                continue;
            }
            match child {
                Child::Leaf(leaf) => match self.value(*node, &leaf.value) {
                    Ok(value) if value == leaf.value => {}
                    Ok(value) => drop(read.put_leaf(*node, value, leaf.meta)),
                    Err(reason) => {
                        unfit.push((at, reason));
                        self.drop_unfit(&mut read, *node);
                    }
                },
                Child::Container(inner) => {
                    let inner = self.branch(inner, &at, unfit);
                    read.put(*node, Child::Container(Arc::new(inner)));
                }
                Child::List(list) => {
                    let mut entries = list.clone();
                    for (keys, entry) in list.iter() {
                        let at = path.join(Step::entry(*node, keys.clone()));
                        let entry = self.entry(Some(*node), keys, entry, &at, unfit);
                        entries.put(keys.clone(), Arc::new(entry));
                    }
                    read.put(*node, Child::List(entries));
                }
            }
        }
        read
    }

    /// Leaves a node out that has no place, if it may be.
    fn drop_unfit(&self, branch: &mut Branch<LeafMark>, node: NodeId) {
        if self.drops_unfit {
            branch.take(node);
        }
    }

    /// A value as the type of its leaf has it in the new version.
    fn value(&self, leaf: NodeId, value: &Value) -> Result<Value, String> {
        let scalar = value.to_scalar();
        let read = self.new.node(leaf).parse_scalar(&scalar).map_err(|error| error.to_string())?;
        // Not every value has a scalar of its own; one that reads the same stays as it is.
        let is_same_form = std::mem::discriminant(&read) == std::mem::discriminant(value);
        Ok(if is_same_form && read.to_scalar() == scalar { value.clone() } else { read })
    }
}
