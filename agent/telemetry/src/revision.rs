//! One immutable snapshot of configuration and state, published after a commit or an event.

mod merge;
mod prepared;
mod removal;

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Branch, Leaf, Tree};
use holdfast_config::{InstancePath, Keys, LeafMark, Models, NodeId, Step, Value};
use smol_str::SmolStr;

use self::merge::Merge;
pub use self::prepared::{ListStates, PreparedTree};
use self::removal::{Marks, remove_plane_nodes};
use super::entry::{
    DerivedEntry, DerivedLists, EntryState, EntryVersion, MarkLeaf, MarkPlace, ViewEntry,
};
pub use super::leaf_version::{ConfigOrState, LeafVersion};

/// Configuration and state together, as shown by Get. Leaves that change without an event (counters, clocks) are
/// not included: they are read on demand.
///
/// A configured list entry is `given` in the trees. An entry that is not given exists for its state only, like a
/// port without configuration.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Models of the configuration that is shown. Their schemas have every node of both trees.
    pub models: Arc<Models>,
    /// Lists whose entries are derived when they are read.
    pub derived: Arc<DerivedLists>,
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
    /// Sets the leaf. An equal value is not a change.
    Set(Value),
    /// Marks the entry or presence container as configured.
    MarkConfigured,
    /// Removes the nodes of configuration, of state, or both, at the path and below.
    Gone(ConfigOrState),
}

/// Builder of the next revision. The cost is that of the changes.
///
/// Changes are relative to the previous revision: a leaf that is removed and set again in one draft counts as
/// changed, or as unchanged when the value is equal.
#[derive(Debug)]
pub struct Draft<'s> {
    models: Arc<Models>,
    derived: Arc<DerivedLists>,
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
    derived: Arc<DerivedLists>,
    stamp: LeafVersion,
    /// The same, as derived entries share it.
    entry_version: EntryVersion,
    /// The mark that was set last, for the entries that are marked alike.
    last_mark: Option<Arc<MarkLeaf>>,
}

impl Revision {
    /// The revision before all others, with nothing in it.
    pub fn new(models: Arc<Models>, derived: DerivedLists) -> Self {
        let openconfig = Tree::new();
        let native = Tree::new();
        let derived = Arc::new(derived);
        Self { models, derived, number: 0, time_ns: 0, openconfig, native, annotation: None }
    }

    pub fn schema(&self, origin: Origin) -> &Schema {
        self.models.schema(origin)
    }

    /// True when a list of a model has the entry at the end of `path`.
    pub fn has_entry(&self, origin: Origin, path: &InstancePath) -> bool {
        has_entry(self.tree(origin), path)
    }

    pub fn tree(&self, origin: Origin) -> &Tree<LeafVersion> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// Starts the next revision, for an event at `time_ns`. In its `models`, nodes of this revision have the same numbers.
    pub fn draft(&self, models: &Arc<Models>, time_ns: u64) -> Draft<'_> {
        let models = Arc::clone(models);
        let number = self.number + 1;
        self.resume(Self { models, number, time_ns, ..self.clone() })
    }

    /// Continues a revision that was built before it is complete. If nodes were removed in it, and may be added again,
    /// call [`Draft::after_removals`].
    pub fn resume(&self, next: Revision) -> Draft<'_> {
        let Self { models, derived, number, time_ns, annotation, .. } = next;
        let stamp = LeafVersion { time_ns, changes: 1, incarnation: incarnation_of(number) };
        let entry_version = EntryVersion::from(stamp);
        let tree = |origin, tree| DraftTree {
            origin,
            tree,
            before: self.tree(origin),
            has_removals: false,
            models: Arc::clone(&models),
            derived: Arc::clone(&derived),
            stamp,
            entry_version: entry_version.clone(),
            last_mark: None,
        };
        Draft {
            number,
            time_ns,
            annotation,
            openconfig: tree(Origin::OpenConfig, next.openconfig),
            native: tree(Origin::Native, next.native),
            models,
            derived,
        }
    }
}

impl<'s> Draft<'s> {
    pub fn apply(&mut self, change: RevisionChange) {
        self.tree_mut(change.origin).apply(&change.path, change.mutation);
    }

    /// Applies the differences between two configuration trees; their metadata is ignored.
    pub fn apply_diff(&mut self, origin: Origin, old: &Tree<LeafMark>, new: &Tree<LeafMark>) {
        self.tree_mut(origin).follow([old, new], None);
    }

    /// Notes that nodes were removed in what was built so far: a leaf that is set may have existed before.
    #[must_use]
    pub fn after_removals(mut self) -> Self {
        for tree in self.trees_mut() {
            tree.has_removals = true;
        }
        self
    }

    /// Models of the revision that is made.
    pub fn models(&self) -> Arc<Models> {
        Arc::clone(&self.models)
    }

    /// Version of the leaves that this draft adds.
    pub fn version(&self) -> LeafVersion {
        self.native.stamp
    }

    /// The native tree so far.
    pub fn native(&self) -> &DraftTree<'s> {
        &self.native
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
            derived: self.derived,
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

    /// Version of the leaves that this draft adds.
    pub fn version(&self) -> LeafVersion {
        self.stamp
    }

    /// True when there is a node at `path` so far.
    pub fn contains(&self, path: &InstancePath) -> bool {
        self.tree.contains(path)
    }

    /// Models of the revision that is made.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    pub fn apply(&mut self, path: &InstancePath, mutation: Mutation) {
        let leaf = path.last().map(|last| last.node);
        if let Some(place) = leaf.and_then(|leaf| self.derived.mark_at(self.origin, leaf)) {
            return self.mark(path, place, mutation);
        }
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
                let marks = Marks { origin: self.origin, lists: &self.derived };
                remove_plane_nodes(&mut self.tree, schema, path, plane, marks);
                self.has_removals = true;
            }
        }
    }

    /// Sets the mark of an entry, or takes it away. Nothing happens where the entry is not there.
    fn mark(&mut self, path: &InstancePath, place: MarkPlace, mutation: Mutation) {
        let entry = InstancePath(path.0[..path.0.len().saturating_sub(STEPS_TO_MARK)].to_vec());
        let [above @ .., Step { node: list, keys: Some(keys) }] = entry.0.as_slice() else {
            return;
        };
        if !has_entry(&self.tree, &entry) {
            return;
        }
        let value = match mutation {
            Mutation::Set(value) => Some(value),
            Mutation::Gone(ConfigOrState::State | ConfigOrState::Both) => None,
            Mutation::Gone(ConfigOrState::Config) | Mutation::MarkConfigured => return,
        };
        self.has_removals |= value.is_none();
        let before = if self.has_removals { self.before.find_leaf(path) } else { None };
        let stamp = self.stamp;
        let last = &mut self.last_mark;
        let next = |old: Option<Arc<MarkLeaf>>| {
            let value = value.as_ref()?;
            if old.as_ref().is_some_and(|old| old.leaf.value == *value) {
                return old;
            }
            let version = match (&old, &before) {
                (None, Some(before)) if before.value == *value => before.meta,
                (old, before) => {
                    next_version(old.as_ref().map(|old| &old.leaf).or(before.as_ref()), stamp)
                }
            };
            let next = MarkLeaf { place, leaf: Leaf::new(value.clone(), version) };
            let shared = last.take().filter(|last| **last == next);
            *last = Some(shared.unwrap_or_else(|| Arc::new(next)));
            last.clone()
        };
        let schema = self.models.schema(self.origin);
        let entries = self.tree.branch_mut(schema, above, &stamp).list_mut(*list);
        if entries.update(keys, |entry| entry.update_mark(next)) == Some(true) {
            return;
        }
        match value {
            Some(value) => self.set(path, value),
            None => drop(self.tree.remove(schema, path)),
        }
    }

    /// Sets a leaf, the most frequent change.
    fn set(&mut self, path: &InstancePath, value: Value) {
        let before = if self.has_removals { self.before.find_leaf(path) } else { None };
        let tree = &mut self.tree;
        let schema = self.models.schema(self.origin);
        let stamp = self.stamp;
        match (tree.find_leaf(path), before) {
            (None, Some(before)) if before.value == value => {
                tree.set_leaf(schema, path, before);
            }
            (None, Some(before)) => {
                let stamp = next_version(Some(&before), stamp);
                tree.set_leaf(schema, path, Leaf::new(value, stamp));
            }
            _ => set(tree, schema, path, value, stamp),
        }
    }

    /// The branch at `steps`, created when absent, for setting leaves in it and below.
    pub fn at(&mut self, steps: &[Step]) -> TreeWriter<'_> {
        let before = if self.has_removals { self.before.find_branch(steps) } else { None };
        let schema = self.models.schema(self.origin);
        let stamp = self.stamp;
        TreeWriter { branch: self.tree.branch_mut(schema, steps, &stamp), before, schema, stamp }
    }

    /// Where the entries of a list have their mark, if they have any.
    pub fn mark_of(&self, list: NodeId) -> Option<MarkPlace> {
        self.derived.mark_of(self.origin, list)
    }

    /// True when a list has the entry at the end of `path` so far.
    pub fn has_entry(&self, path: &InstancePath) -> bool {
        has_entry(&self.tree, path)
    }

    /// State of the derived entry at the end of `path`.
    pub fn derived_state(&self, path: &InstancePath) -> Option<Arc<dyn EntryState>> {
        let (last, above) = path.0.split_last()?;
        let above = self.tree.find_branch(above)?;
        above.list(last.node)?.get(last.keys.as_ref()?)?.state().cloned()
    }

    /// Applies the differences between two configuration trees; their metadata is ignored. `prepared` has the entries
    /// that these add to some lists. False if it does not fit, since something else was changed there meanwhile; then it is
    /// of no use.
    pub fn follow(
        &mut self,
        [old, new]: [&Tree<LeafMark>; 2],
        prepared: Option<&PreparedTree>,
    ) -> bool {
        let schema = self.models.schema(self.origin);
        let stamp = self.stamp;
        let prepared = prepared.filter(|it| it.fits(&self.tree, [old, new]));
        prepared.iter().for_each(|it| it.put_into(&mut self.tree, schema, stamp));
        let merge = Merge {
            origin: self.origin,
            derived: &self.derived,
            version: &self.entry_version,
            prepared,
            stamp,
        };
        merge.differences(&mut self.tree, schema, [old, new]);
        prepared.is_some()
    }

    /// Gives entries of a list states from which their leaves are derived; absent ones are added. Entries whose
    /// leaves may have versions of their own are left alone, and their states are returned: an entry that is stored
    /// as a branch, or that has lost something since the revision before.
    pub fn derive<'e>(
        &mut self,
        above: &[Step],
        list: NodeId,
        entries: impl Iterator<Item = (Keys, &'e Arc<dyn EntryState>)>,
    ) -> Vec<&'e Arc<dyn EntryState>> {
        let origin = self.origin;
        let version = self.entry_version.clone();
        let TreeWriter { branch, before, .. } = self.at(above);
        let before = before.as_ref().and_then(|before| before.list(list));
        let list = branch.list_mut(list);
        let mut left = Vec::new();
        for (keys, state) in entries {
            if before.is_some_and(|before| before.get(&keys).is_some()) {
                left.push(state);
                continue;
            }
            match list.update(&keys, |entry| entry.set_state(state)) {
                Some(true) => {}
                Some(false) => left.push(state),
                None => {
                    let state = Some(Arc::clone(state));
                    let derived = DerivedEntry::new(origin, None, state, &version);
                    list.put(keys, ViewEntry::Derived(derived));
                }
            }
        }
        left
    }
}

/// A branch of a tree under construction.
#[derive(Debug)]
pub struct TreeWriter<'p> {
    branch: &'p mut Branch<LeafVersion>,
    /// The branch in the previous revision, when a node was removed since.
    before: Option<Arc<Branch<LeafVersion>>>,
    schema: &'p Schema,
    stamp: LeafVersion,
}

impl<'p> TreeWriter<'p> {
    /// Writer for a branch outside of any revision; its leaves get one version.
    pub fn new(
        branch: &'p mut Branch<LeafVersion>,
        schema: &'p Schema,
        version: LeafVersion,
    ) -> Self {
        Self { branch, before: None, schema, stamp: version }
    }

    /// Model of the tree.
    pub fn origin(&self) -> Origin {
        self.schema.origin()
    }

    /// Another handle on this branch, to descend from it more than once.
    pub fn again(&mut self) -> TreeWriter<'_> {
        let Self { schema, stamp, .. } = *self;
        TreeWriter { branch: &mut *self.branch, before: self.before.clone(), schema, stamp }
    }

    /// The branch at `steps` below this one, created when absent.
    #[must_use]
    pub fn below(self, steps: &[Step]) -> Self {
        let before = self.before.and_then(|before| branch_at(before, steps));
        let branch = self.branch.descend_mut(self.schema, steps, &self.stamp);
        TreeWriter { branch, before, schema: self.schema, stamp: self.stamp }
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
        let before = self.before.and_then(|before| before.container(node).cloned());
        let branch = self.branch.container_mut(node);
        TreeWriter { branch, before, schema: self.schema, stamp: self.stamp }
    }

    /// Sets a leaf of this branch. An equal value is not a change.
    pub fn set(&mut self, leaf: NodeId, value: Value) {
        let before = self.before.as_ref().and_then(|before| before.leaf(leaf));
        let stamp = match (self.branch.leaf(leaf), before) {
            (Some(old), _) if old.value == value => return,
            (None, Some(before)) if before.value == value => before.meta,
            (old, before) => next_version(old.or(before), self.stamp),
        };
        self.branch.put_leaf(leaf, value, stamp);
    }
}

/// Steps from an entry to its mark: the container and the leaf.
const STEPS_TO_MARK: usize = 2;

/// True when a list has the entry at the end of `path`. The entry itself is not derived.
fn has_entry(tree: &Tree<LeafVersion>, path: &InstancePath) -> bool {
    let Some((Step { node, keys: Some(keys) }, above)) = path.0.split_last() else { return false };
    let above = tree.find_branch(above);
    above.is_some_and(|above| above.list(*node).is_some_and(|list| list.get(keys).is_some()))
}

/// Lower half of a revision's number, see [`LeafVersion::incarnation`].
fn incarnation_of(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("the upper half is masked out")
}

fn branch_at(from: Arc<Branch<LeafVersion>>, steps: &[Step]) -> Option<Arc<Branch<LeafVersion>>> {
    Tree::from_root(from).find_branch(steps)
}

fn set(
    tree: &mut Tree<LeafVersion>,
    schema: &Schema,
    path: &InstancePath,
    value: Value,
    fresh: LeafVersion,
) {
    match tree.find_leaf(path) {
        Some(leaf) if leaf.value == value => {}
        old => {
            let stamp = next_version(old.as_ref(), fresh);
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
