//! Changes of the intended configuration, brought to the client layers that hold what they change.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::wishes_between;
use super::document::{Document, is_leaf_list, openconfig_edit, payload_of, tree_of};
use super::without_meta;
use crate::cli::StatementAction;
use crate::configuration::Configuration;
use crate::edit::{Edit, EditCause, EditError, EditErrors, EditOperation, EditTarget, Payload};
use crate::images::{Provenance, ProvenanceKind};
use crate::instance::InstancePath;
use crate::json::{self, Flavour};
use crate::layer::{LayerKey, LeafMark, Owner};
use crate::leaf_list::LeafListBuilder;
use crate::schema::{Origin, Schema};
use crate::tree::{Child, Leaf, NodeRef, Tree};
use crate::value::Value;

/// A wish for one node of the native model: a value, an entry, or that the node is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub path: InstancePath,
    pub act: StatementAction,
}

/// Effect of a document on the configuration.
#[derive(Clone, Debug)]
pub enum Placement {
    /// Its statements are added; `no X` removes X.
    Merge(Document),
    /// The configuration becomes what the document says.
    Replace(Document),
    /// Only the difference between two versions of the configuration is changed.
    Differences { old: Vec<Wish>, new: Vec<Wish> },
    /// Single wishes. A leaf-list gets exactly these values.
    Wishes(Vec<Wish>),
}

/// Something that a document left out, and that no client holds, so that it stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Path in the native model.
    pub path: String,
    /// Names of those that ask for it.
    pub owners: Vec<String>,
}

/// Makes the Set that changes the configuration as a document says, and lists what stays though the document left it out.
///
/// # Errors
/// When a wish cannot be met: the client layer that holds the leaf cannot express the value, or something is removed by name
/// that no client holds.
pub fn place(
    configuration: &Configuration,
    placement: Placement,
) -> Result<(Edit, Vec<Kept>), EditErrors> {
    let schema = &configuration.models().native;
    let mut placer = Placer::new(configuration);
    match placement {
        Placement::Merge(Document::OpenConfig(text)) => {
            return Ok((openconfig_edit(text, false), Vec::new()));
        }
        Placement::Replace(Document::OpenConfig(text)) => {
            return Ok((openconfig_edit(text, true), Vec::new()));
        }
        Placement::Merge(Document::Native(wishes)) => {
            placer.add_all(merged(configuration, wishes), true);
        }
        Placement::Wishes(wishes) => placer.add_all(wishes, true),
        Placement::Replace(Document::Native(wishes)) => {
            let present = without_meta(&super::tree(configuration));
            let wanted = tree_of(schema, &wishes);
            placer.add_all(wishes_between(schema, &present, &wanted), false);
        }
        Placement::Differences { old, new } => {
            let [old, new] = [old, new].map(|wishes| tree_of(schema, &wishes));
            placer.add_all(wishes_between(schema, &old, &new), false);
        }
    }
    placer.finish()
}

/// Statements of a text in the order of their lines, each seen after those before it: a leaf-list is added to, and `no X`
/// takes back what was said of X before.
fn merged(configuration: &Configuration, wishes: Vec<Wish>) -> Vec<Wish> {
    let schema = &configuration.models().native;
    let mut seen: BTreeMap<InstancePath, StatementAction> = BTreeMap::new();
    let mut removed: BTreeSet<InstancePath> = BTreeSet::new();
    for Wish { path, act } in wishes {
        let act = match act {
            StatementAction::No => {
                let below = seen.range(path.clone()..).map(|(it, _)| it);
                let below: Vec<_> = below.take_while(|it| it.starts_with(&path)).cloned().collect();
                below.iter().for_each(|it| drop(seen.remove(it)));
                removed.insert(path);
                continue;
            }
            StatementAction::Set(value) if is_leaf_list(schema, &path) => {
                let present = match seen.get(&path) {
                    Some(StatementAction::Set(value)) => Some(value.clone()),
                    _ if is_within(&path, &removed) => None,
                    _ => configuration.effective().find_leaf(&path).map(|leaf| leaf.value),
                };
                StatementAction::Set(joined(schema, &path, present, &value))
            }
            act => act,
        };
        seen.insert(path, act);
    }
    let removed = removed.into_iter().map(|path| Wish { path, act: StatementAction::No });
    removed.chain(seen.into_iter().map(|(path, act)| Wish { path, act })).collect()
}

/// True for a path that is one of these or below one.
fn is_within(path: &InstancePath, above: &BTreeSet<InstancePath>) -> bool {
    (0..=path.0.len()).any(|steps| above.contains(&InstancePath(path.0[..steps].to_vec())))
}

/// Values of a leaf-list with more of them; the later value of any other leaf.
pub(super) fn joined(
    schema: &Schema,
    path: &InstancePath,
    present: Option<Value>,
    value: &Value,
) -> Value {
    let (Some(Value::List(present)), Value::List(more)) = (present, value) else {
        return value.clone();
    };
    let user_ordered = path.last().is_some_and(|step| schema.node(step.node).user_ordered);
    let mut values = LeafListBuilder::of(&present);
    match values.add(more) {
        Ok(()) => Value::List(values.all(user_ordered).into()),
        Err(_) => Value::List([&present[..], &more[..]].concat().into()), // refused for its size
    }
}

/// Wishes on their way to the client layers.
struct Placer<'a> {
    configuration: &'a Configuration,
    deletes: Vec<EditTarget>,
    replaces: Vec<(EditTarget, Payload)>,
    /// Leaves to set, by origin.
    openconfig: Tree<()>,
    native: Tree<()>,
    /// Removed nodes, in part or as a whole.
    removed: BTreeSet<InstancePath>,
    kept: Vec<Kept>,
    errors: Vec<EditError>,
}

impl<'a> Placer<'a> {
    fn new(configuration: &'a Configuration) -> Self {
        Self {
            configuration,
            deletes: Vec::new(),
            replaces: Vec::new(),
            openconfig: Tree::new(),
            native: Tree::new(),
            removed: BTreeSet::new(),
            kept: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Places wishes. A wish that was written down by name is refused where it cannot be met.
    fn add_all(&mut self, wishes: Vec<Wish>, is_named: bool) {
        for Wish { path, act } in wishes {
            match act {
                StatementAction::Set(value) => self.set(&path, value),
                StatementAction::Create => self.create(&path),
                StatementAction::No => self.remove(&path, is_named),
            }
        }
    }

    fn layer(&self, origin: Origin) -> &'a Tree<LeafMark> {
        self.configuration.layers().tree(LayerKey::client(origin))
    }

    fn set(&mut self, path: &InstancePath, value: Value) {
        let models = self.configuration.models();
        let layer = self.layer(Origin::OpenConfig);
        let held: Vec<InstancePath> = models
            .map
            .up_path(path)
            .into_iter()
            .filter(|above| layer.leaf(above).is_some_and(|leaf| leaf.meta == LeafMark::Explicit))
            .collect();
        let native = self.layer(Origin::Native).leaf(path);
        let is_native = native.is_some_and(|leaf| leaf.meta == LeafMark::Explicit);
        let is_new = held.is_empty() && !self.is_asked_for_by_others(path, &value);
        if is_native || is_new {
            self.put(Origin::Native, path.clone(), value.clone());
        }
        let mut expressed = Vec::new();
        models.map.leaf_to_openconfig(path, &value, &mut |above, value| {
            expressed.push((above, value));
        });
        for above in held {
            match expressed.iter().find(|(path, _)| *path == above) {
                Some((_, value)) => self.put(Origin::OpenConfig, above, value.clone()),
                None => {
                    let holder = above.to_path(&models.openconfig);
                    let reason = format!(
                        "the leaf is held by OpenConfig at `{holder}`, which cannot have the value `{value}`"
                    );
                    self.refuse(EditOperation::Update(0), path, EditCause::Unsupported(reason));
                }
            }
        }
    }

    /// True where somebody else than a client asks for this very value.
    fn is_asked_for_by_others(&self, path: &InstancePath, value: &Value) -> bool {
        let found = self.configuration.effective().find_leaf(path);
        found.is_some_and(|leaf| {
            let is_explicit = leaf.meta.kind == ProvenanceKind::Explicit;
            is_explicit && leaf.value == *value && has_other_owner(&leaf)
        })
    }

    fn put(&mut self, origin: Origin, path: InstancePath, value: Value) {
        let schema = self.configuration.models().schema(origin);
        if is_leaf_list(schema, &path) {
            // An update would add to its values.
            let Some(step) = path.last() else { return };
            let text = json::print_value(schema, step.node, &value, Flavour::Ietf).into();
            let target = EditTarget { origin, path: path.to_path(schema) };
            self.replaces.push((target, Payload::Json { text, ietf: true }));
            return;
        }
        let tree = match origin {
            Origin::OpenConfig => &mut self.openconfig,
            Origin::Native => &mut self.native,
        };
        tree.set_leaf(schema, &path, Leaf::new(value, ()));
    }

    fn create(&mut self, path: &InstancePath) {
        let next = self.removed.range(path.clone()..).next();
        let is_emptied = next.is_some_and(|removed| removed.starts_with(path));
        if is_emptied || !self.configuration.effective().contains(path) {
            let schema = &self.configuration.models().native;
            self.native.branch_mut(schema, &path.0, &()).given = true;
        }
    }

    fn remove(&mut self, path: &InstancePath, is_named: bool) {
        let models = self.configuration.models();
        self.removed.insert(path.clone());
        let found = self.configuration.effective().find(&path.0);
        let is_default = matches!(&found, Some(Child::Leaf(leaf)) if leaf.meta.kind == ProvenanceKind::OpenConfigDefault);
        // Nodes that a document leaves out cover what others have reserved, as a container does; only a name is
        // refused.
        let is_spared = is_default
            || !is_named && self.configuration.reserved_for(Origin::Native, path).is_some();
        let held = !is_spared && self.delete(path);
        let others = match &found {
            _ if is_default => vec!["a default of OpenConfig".to_owned()],
            Some(found) => self.owners_but_clients(path, found),
            None => Vec::new(),
        };
        if others.is_empty() {
            return;
        }
        if is_named && !held {
            let reason = format!("the value is not held by a client, but by {}", others.join(", "));
            return self.refuse(EditOperation::Delete(0), path, EditCause::BadValue(reason));
        }
        let path = path.to_path(&models.native).to_string();
        self.kept.push(Kept { path, owners: others });
    }

    /// Deletes a node from the layers of clients that have it. True when there are any.
    fn delete(&mut self, path: &InstancePath) -> bool {
        let models = self.configuration.models();
        let before = self.deletes.len();
        if self.layer(Origin::Native).get(path).is_some() {
            let path = path.to_path(&models.native);
            self.deletes.push(EditTarget { origin: Origin::Native, path });
        }
        let layer = self.layer(Origin::OpenConfig);
        let named = models.map.up_path_in(path, layer);
        for above in named.iter().filter(|above| layer.get(above).is_some()) {
            let path = above.to_path(&models.openconfig);
            self.deletes.push(EditTarget { origin: Origin::OpenConfig, path });
        }
        self.deletes.len() > before
    }

    /// Names of those, beside clients and the factory, that ask for something at or below a path.
    fn owners_but_clients(&self, path: &InstancePath, found: &Child<Provenance>) -> Vec<String> {
        let mut names = BTreeSet::new();
        NodeRef::from(found).walk(&mut path.clone(), &mut |path, leaf| {
            if leaf.meta.kind == ProvenanceKind::Explicit && has_other_owner(leaf) {
                names.extend(self.configuration.owner_names(path, &leaf.meta));
            }
        });
        names.into_iter().collect()
    }

    fn refuse(&mut self, operation: EditOperation, path: &InstancePath, cause: EditCause) {
        let path = path.to_path(&self.configuration.models().native).to_string();
        self.errors.push(EditError { operation, path, cause });
    }

    fn finish(self) -> Result<(Edit, Vec<Kept>), EditErrors> {
        if !self.errors.is_empty() {
            return Err(self.errors.into());
        }
        let models = self.configuration.models();
        let trees = [(Origin::OpenConfig, &self.openconfig), (Origin::Native, &self.native)];
        let written = trees.into_iter().filter(|(_, tree)| !tree.is_empty());
        let updates =
            written.filter_map(|(origin, tree)| payload_of(models.schema(origin), origin, tree));
        let edit = Edit {
            deletes: self.deletes,
            replaces: self.replaces,
            updates: updates.collect(),
            ..Edit::default()
        };
        Ok((edit, self.kept))
    }
}

/// True where somebody beside clients, leases and fences asks for a leaf.
fn has_other_owner(leaf: &Leaf<Provenance>) -> bool {
    let is_other = |owner: Owner| !matches!(owner, Owner::Client | Owner::Lease | Owner::Fence);
    leaf.meta.owners.iter().any(|layer| is_other(layer.owner))
}
