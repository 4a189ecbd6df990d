//! One immutable snapshot of configuration and state, published after a commit or an event.

use std::sync::Arc;

use holdfast_config::schema::{NodeKind, Origin, Schema};
use holdfast_config::tree::{self, Branch, Child, Leaf, List, NodeRef, Tree};
use holdfast_config::{InstancePath, Keys, Models, NodeId, Step, Value};
use smol_str::SmolStr;

/// Time and count of a leaf's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafVersion {
    /// Time of the last change of the value, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of changes of the value since the leaf appeared, including its first. The count wraps around at
    /// 2^32: only the difference of two stamps of one leaf matters, and no client lags 2^32 changes behind.
    pub changes: u32,
    /// Revision in which the leaf last appeared, modulo 2^32. It serves only to tell whether two stamps at one
    /// path belong to the same leaf. The test would fail for a leaf that was deleted and created again exactly
    /// 2^32 revisions later, between two readings.
    pub incarnation: u32,
}

/// Configuration and state together, as shown by Get. Leaves that change without an event (counters, clocks) are
/// not included: they are read on demand.
///
/// A configured list entry is `given` in the trees. An entry that is not given exists for its state only, like a
/// port without configuration.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Models of the configuration that is shown. Their schemas have every node of both trees.
    pub models: Arc<Models>,
    pub number: u64,
    /// Time of the commit or event that resulted in this revision, in nanoseconds since 1970.
    pub time_ns: u64,
    pub openconfig: Tree<LeafVersion>,
    pub native: Tree<LeafVersion>,
    /// Client's annotation of the root of the OpenConfig configuration, in base64 (`protobuf-metadata` of
    /// openconfig-metadata).
    pub annotation: Option<SmolStr>,
}

/// One change from a revision to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionChange {
    pub origin: Origin,
    pub path: InstancePath,
    pub mutation: Mutation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Sets the leaf. An equal value is no change.
    Set(Value),
    /// Marks the entry or presence container as configured.
    MarkConfigured,
    /// Removes the nodes of configuration, of state, or both, at the path and below.
    Gone(ConfigOrState),
}

/// Part of the model that a node belongs to. Configuration and state share list entries, and are added and removed
/// independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigOrState {
    Config,
    State,
    Both,
}

/// Builder of the next revision. The cost is that of the changes.
///
/// Changes are relative to the previous revision: a leaf that is removed and set again in one draft counts as
/// changed, or as unchanged when the value is equal.
#[derive(Debug)]
pub struct Draft<'s> {
    models: Arc<Models>,
    number: u64,
    time_ns: u64,
    annotation: Option<SmolStr>,
    openconfig: DraftTree<'s>,
    native: DraftTree<'s>,
}

/// One tree of a draft. The two trees are independent, so they may be built in parallel.
#[derive(Debug)]
pub struct DraftTree<'s> {
    origin: Origin,
    tree: Tree<LeafVersion>,
    before: &'s Tree<LeafVersion>,
    /// A node was removed, so a leaf that is set may have existed before.
    has_removals: bool,
    models: Arc<Models>,
    stamp: LeafVersion,
}

impl Revision {
    /// The revision before all others, with nothing in it.
    pub fn new(models: Arc<Models>) -> Self {
        let (openconfig, native) = (Tree::new(), Tree::new());
        Self { models, number: 0, time_ns: 0, openconfig, native, annotation: None }
    }

    pub fn schema(&self, origin: Origin) -> &Schema {
        self.models.schema(origin)
    }

    pub fn tree(&self, origin: Origin) -> &Tree<LeafVersion> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// Starts the next revision, for an event at `time_ns`. In its `models`, nodes of this revision have the same numbers.
    pub fn draft(&self, models: &Arc<Models>, time_ns: u64) -> Draft<'_> {
        let (models, number) = (Arc::clone(models), self.number + 1);
        self.resume(Self { models, number, time_ns, ..self.clone() })
    }

    /// Continues a revision that was built before it is complete. If nodes were removed in it, and may be added again,
    /// call [`Draft::after_removals`].
    pub fn resume(&self, next: Revision) -> Draft<'_> {
        let Self { models, number, time_ns, annotation, .. } = next;
        let stamp = LeafVersion { time_ns, changes: 1, incarnation: incarnation_of(number) };
        let tree = |origin, tree| DraftTree {
            origin,
            tree,
            before: self.tree(origin),
            has_removals: false,
            models: Arc::clone(&models),
            stamp,
        };
        Draft {
            number,
            time_ns,
            annotation,
            openconfig: tree(Origin::OpenConfig, next.openconfig),
            native: tree(Origin::Native, next.native),
            models,
        }
    }
}

impl<'s> Draft<'s> {
    pub fn apply(&mut self, change: RevisionChange) {
        self.tree_mut(change.origin).apply(&change.path, change.mutation);
    }

    /// Applies the differences between two configuration trees; their metadata is ignored.
    pub fn apply_diff<M: Clone + Eq>(&mut self, origin: Origin, old: &Tree<M>, new: &Tree<M>) {
        self.tree_mut(origin).follow(old, new);
    }

    /// Notes that nodes were removed in what was built so far: a leaf that is set may have existed before.
    #[must_use]
    pub fn after_removals(mut self) -> Self {
        for tree in self.trees_mut() {
            tree.has_removals = true;
        }
        self
    }

    pub fn annotate(&mut self, annotation: Option<SmolStr>) {
        self.annotation = annotation;
    }

    /// Both trees, which may be built in parallel.
    pub fn trees_mut(&mut self) -> [&mut DraftTree<'s>; 2] {
        [&mut self.openconfig, &mut self.native]
    }

    pub fn publish(self) -> Revision {
        Revision {
            models: self.models,
            number: self.number,
            time_ns: self.time_ns,
            openconfig: self.openconfig.tree,
            native: self.native.tree,
            annotation: self.annotation,
        }
    }

    fn tree_mut(&mut self, origin: Origin) -> &mut DraftTree<'s> {
        match origin {
            Origin::OpenConfig => &mut self.openconfig,
            Origin::Native => &mut self.native,
        }
    }
}

impl DraftTree<'_> {
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Models of the revision that is made.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    pub fn apply(&mut self, path: &InstancePath, mutation: Mutation) {
        let schema = self.models.schema(self.origin);
        match mutation {
            Mutation::Set(value) => self.set(path, value),
            Mutation::MarkConfigured => {
                self.tree.branch_mut(schema, &path.0, &self.stamp).given = true;
            }
            Mutation::Gone(ConfigOrState::Both) => {
                self.tree.remove(schema, path);
                self.has_removals = true;
            }
            Mutation::Gone(plane) => {
                remove_plane_nodes(&mut self.tree, schema, path, plane);
                self.has_removals = true;
            }
        }
    }

    /// Sets a leaf, the most frequent change.
    fn set(&mut self, path: &InstancePath, value: Value) {
        let before = if self.has_removals { self.before.leaf(path) } else { None };
        let (tree, schema, stamp) = (&mut self.tree, self.models.schema(self.origin), self.stamp);
        match (tree.leaf(path), before) {
            (None, Some(before)) if before.value == value => {
                tree.set_leaf(schema, path, before.clone());
            }
            (None, Some(before)) => {
                let stamp = next_version(Some(before), stamp);
                tree.set_leaf(schema, path, Leaf::new(value, stamp));
            }
            _ => set(tree, schema, path, value, stamp),
        }
    }

    /// The branch at `steps`, created when absent, for setting leaves in it and below.
    pub fn at(&mut self, steps: &[Step]) -> TreeWriter<'_> {
        let before = if self.has_removals { Some(self.before.root()) } else { None };
        let before = before.and_then(|root| branch_at(root, steps));
        let (schema, stamp) = (self.models.schema(self.origin), self.stamp);
        TreeWriter { branch: self.tree.branch_mut(schema, steps, &stamp), before, schema, stamp }
    }

    /// Applies the differences between two configuration trees; their metadata is ignored.
    pub fn follow<M: Clone + Eq>(&mut self, old: &Tree<M>, new: &Tree<M>) {
        let (tree, schema, stamp) = (&mut self.tree, self.models.schema(self.origin), self.stamp);
        let merge = Merge { schema, stamp };
        Tree::diff(old, new, &mut |path, difference| match difference {
            tree::Change::Leaf { new, .. } => set(tree, schema, path, new.value.clone(), stamp),
            tree::Change::Added(NodeRef::Leaf(leaf)) => {
                set(tree, schema, path, leaf.value.clone(), stamp);
            }
            tree::Change::Added(NodeRef::Branch(branch)) => {
                let Some((last, above)) = path.0.split_last() else {
                    return merge.branch(tree.root_mut(), branch, false);
                };
                let above = tree.branch_mut(schema, above, &stamp);
                match &last.keys {
                    Some(keys) => merge.entry(above.list_mut(last.node), last.node, keys, branch),
                    None => merge.container(above, last.node, branch),
                }
            }
            tree::Change::Added(NodeRef::List(_)) => {} // entries are reported one by one
            tree::Change::Removed(_) => {
                remove_plane_nodes(tree, schema, path, ConfigOrState::Config)
            }
            tree::Change::Given(true) => tree.branch_mut(schema, &path.0, &stamp).given = true,
            tree::Change::Given(false) => {} // the entry still exists, and only that matters here
        });
    }
}

/// A branch of a tree under construction.
#[derive(Debug)]
pub struct TreeWriter<'p> {
    branch: &'p mut Branch<LeafVersion>,
    /// The branch in the previous revision, when a node was removed since.
    before: Option<&'p Branch<LeafVersion>>,
    schema: &'p Schema,
    stamp: LeafVersion,
}

impl<'p> TreeWriter<'p> {
    /// Another handle on this branch, to descend from it more than once.
    pub fn again(&mut self) -> TreeWriter<'_> {
        TreeWriter { branch: &mut *self.branch, ..*self }
    }

    /// The branch at `steps` below this one, created when absent.
    #[must_use]
    pub fn below(self, steps: &[Step]) -> Self {
        let before = self.before.and_then(|before| branch_at(before, steps));
        let branch = self.branch.descend_mut(self.schema, steps, &self.stamp);
        TreeWriter { branch, before, ..self }
    }

    /// Runs `act` on the branch at `steps` below this one, created when absent.
    pub fn within(self, steps: &[Step], act: impl FnOnce(TreeWriter<'_>)) {
        let [above @ .., Step { node: list, keys: Some(keys) }] = steps else {
            return act(self.below(steps));
        };
        let before = self.before.and_then(|before| branch_at(before, steps));
        let Self { branch, schema, stamp, .. } = self;
        let entries = branch.descend_mut(schema, above, &stamp).list_mut(*list);
        let make = || Branch::of_keys(schema, *list, keys, &stamp);
        entries.in_entry(keys, make, |branch| act(TreeWriter { branch, before, schema, stamp }));
    }

    /// Announces the number of leaves to be set here.
    pub fn expect(&mut self, leaves: usize) {
        self.branch.expect(leaves);
    }

    /// The container in this branch, created when absent.
    #[must_use]
    pub fn container(self, node: NodeId) -> Self {
        let before = self.before.and_then(|before| before.container(node)).map(|it| &**it);
        TreeWriter { branch: self.branch.container_mut(node), before, ..self }
    }

    /// Sets a leaf of this branch. An equal value is no change.
    pub fn set(&mut self, leaf: NodeId, value: Value) {
        let before = self.before.and_then(|before| before.leaf(leaf));
        let stamp = match (self.branch.leaf(leaf), before) {
            (Some(old), _) if old.value == value => return,
            (None, Some(before)) if before.value == value => before.meta,
            (old, before) => next_version(old.or(before), self.stamp),
        };
        self.branch.put_leaf(leaf, value, stamp);
    }
}

/// Lower half of a revision's number, see [`LeafVersion::incarnation`].
fn incarnation_of(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("the upper half is masked out")
}

fn branch_at<'b>(from: &'b Branch<LeafVersion>, steps: &[Step]) -> Option<&'b Branch<LeafVersion>> {
    steps.iter().try_fold(from, |branch, step| match &step.keys {
        None => branch.container(step.node).map(|it| &**it),
        Some(keys) => branch.list(step.node)?.get(keys).map(|it| &**it),
    })
}

fn set(
    tree: &mut Tree<LeafVersion>,
    schema: &Schema,
    path: &InstancePath,
    value: Value,
    fresh: LeafVersion,
) {
    match tree.leaf(path) {
        Some(leaf) if leaf.value == value => {}
        old => {
            let stamp = next_version(old, fresh);
            tree.set_leaf(schema, path, Leaf::new(value, stamp));
        }
    }
}

fn next_version(old: Option<&Leaf<LeafVersion>>, fresh: LeafVersion) -> LeafVersion {
    match old {
        Some(leaf) => LeafVersion {
            changes: leaf.meta.changes.wrapping_add(1),
            incarnation: leaf.meta.incarnation,
            ..fresh
        },
        None => fresh,
    }
}

/// Merges subtrees of configuration into subtrees that may hold state already.
#[derive(Clone, Copy)]
struct Merge<'s> {
    schema: &'s Schema,
    stamp: LeafVersion,
}

impl Merge<'_> {
    fn branch<M>(self, into: &mut Branch<LeafVersion>, from: &Branch<M>, entry: bool) {
        into.given |= entry || from.given;
        for (node, child) in from.children() {
            match child {
                Child::Leaf(leaf) => match into.leaf(*node) {
                    Some(old) if old.value == leaf.value => {}
                    old => {
                        let stamp = next_version(old, self.stamp);
                        into.put_leaf(*node, leaf.value.clone(), stamp);
                    }
                },
                Child::Container(inner) => self.container(into, *node, inner),
                Child::List(list) => {
                    let containers = self.containers(*node);
                    let target = into.list_mut(*node);
                    let news = target.is_empty();
                    for (keys, entry) in list.iter() {
                        match news {
                            true => self.new_entry(target, keys, entry, containers),
                            false => self.entry(target, *node, keys, entry),
                        }
                    }
                }
            }
        }
    }

    fn container<M>(self, into: &mut Branch<LeafVersion>, node: NodeId, from: &Branch<M>) {
        if into.container(node).is_some() {
            return self.branch(into.container_mut(node), from, false);
        }
        let mut container = Branch::with_capacity(from.children().len());
        self.branch(&mut container, from, false);
        into.put(node, Child::Container(Arc::new(container)));
    }

    fn entry<M>(self, into: &mut List<LeafVersion>, node: NodeId, keys: &Keys, from: &Branch<M>) {
        match into.get(keys).is_some() {
            true => self.branch(into.entry_mut(keys, Branch::default), from, true),
            false => self.new_entry(into, keys, from, self.containers(node)),
        }
    }

    fn new_entry<M>(
        self,
        into: &mut List<LeafVersion>,
        keys: &Keys,
        from: &Branch<M>,
        containers: usize,
    ) {
        let children = from.children();
        let given = children.iter().filter(|(_, child)| matches!(child, Child::Container(_)));
        // State will be added later, in containers of its own.
        let state = containers.saturating_sub(given.count()).min(STATE_CONTAINERS);
        let mut entry = Branch::with_capacity(children.len() + state);
        self.branch(&mut entry, from, true);
        into.put(keys.clone(), Arc::new(entry));
    }

    /// Number of containers that an entry of this list can have.
    fn containers(self, list: NodeId) -> usize {
        let children = self.schema.node(list).children.iter();
        let is_container =
            |node: &&NodeId| matches!(self.schema.node(**node).kind, NodeKind::Container { .. });
        children.filter(is_container).count()
    }
}

/// Capacity of an entry for containers of state: as many as a next hop has. Larger entries are few.
const STATE_CONTAINERS: usize = 2;

/// Removes configuration or state at `path` and below; nodes of the other stay.
fn remove_plane_nodes(
    tree: &mut Tree<LeafVersion>,
    schema: &Schema,
    path: &InstancePath,
    plane: ConfigOrState,
) {
    match tree.get(path) {
        Some(NodeRef::Leaf(_))
            if path.last().is_some_and(|step| belongs(schema, step.node, plane)) =>
        {
            tree.remove(schema, path);
        }
        None | Some(NodeRef::Leaf(_)) => {}
        Some(NodeRef::List(list)) => {
            let Some((last, above)) = path.0.split_last() else { return };
            for keys in keys_of(list) {
                let mut entry = InstancePath(above.to_vec());
                entry.0.push(Step::entry(last.node, keys));
                remove_plane_nodes(tree, schema, &entry, plane);
            }
        }
        Some(NodeRef::Branch(_)) => {
            let branch = tree.branch_mut(schema, &path.0, &LeafVersion::default());
            strip(branch, schema, plane);
            let entry = path.last().is_some_and(|step| step.keys.is_some());
            if branch.is_empty() || entry && is_unused_entry(branch, schema) {
                tree.remove(schema, path);
            }
        }
    }
}

fn strip(branch: &mut Branch<LeafVersion>, schema: &Schema, plane: ConfigOrState) {
    if plane == ConfigOrState::Config {
        branch.given = false;
    }
    branch.retain(|node, child| match child {
        // A key leaf belongs to configuration and state, as far as they have its entry.
        Child::Leaf(_) => schema.is_list_key(node) || !belongs(schema, node, plane),
        Child::Container(inner) => {
            let inner = Arc::make_mut(inner);
            strip(inner, schema, plane);
            !inner.is_empty()
        }
        Child::List(list) => {
            for keys in keys_of(list) {
                let entry = list.entry_mut(&keys, Branch::default);
                strip(entry, schema, plane);
                if is_unused_entry(entry, schema) {
                    list.remove(&keys);
                }
            }
            !list.is_empty()
        }
    });
}

fn keys_of(list: &List<LeafVersion>) -> Vec<Keys> {
    list.iter().map(|(keys, _)| keys.clone()).collect()
}

/// True for an entry that neither configuration nor state holds any more.
fn is_unused_entry(entry: &Branch<LeafVersion>, schema: &Schema) -> bool {
    !entry.given && entry.has_only_keys(schema)
}

fn belongs(schema: &Schema, leaf: NodeId, plane: ConfigOrState) -> bool {
    match plane {
        ConfigOrState::Config => schema.node(leaf).config,
        ConfigOrState::State => !schema.node(leaf).config,
        ConfigOrState::Both => true,
    }
}
