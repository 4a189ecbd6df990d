//! One immutable snapshot of configuration and state, published after a commit or an event.

use std::sync::Arc;

use holdfast_config::schema::{NodeKind, Origin, Schema};
use holdfast_config::tree::{self, Branch, Child, Found, Leaf, List, Tree};
use holdfast_config::{InstancePath, Keys, NodeId, Step, Value};
use smol_str::SmolStr;

/// When a leaf got its value, and how it came to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When the value last changed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// How often the value was set to another one since the leaf appeared, that time included. It starts again at 0
    /// after the largest number: what counts is the difference of two stamps of one leaf, and no client is 2^32 changes
    /// of one leaf behind.
    pub changes: u32,
    /// The revision in which the leaf appeared, or appeared again, modulo 2^32. All that is asked is whether two stamps
    /// at one path are of one leaf. Were a leaf to go and come back exactly 2^32 revisions after it first came, and
    /// between two readings, its reader would be told its value, and not that it had been away.
    pub born: u32,
}

/// Configuration and state together, as Get shows them. Leaves that change without an event
/// (counters, clocks) are not in it: they are read when somebody asks.
///
/// An entry that the configuration holds is `given` in the trees. One that is not is kept by its
/// state alone, as with a port that nobody configured.
#[derive(Clone, Debug, Default)]
pub struct Revision {
    pub number: u64,
    /// Of the commit or event that made this revision, in nanoseconds since 1970.
    pub time_ns: u64,
    pub openconfig: Tree<Stamp>,
    pub native: Tree<Stamp>,
    /// What the client noted on the root of its OpenConfig configuration, in base64
    /// (`protobuf-metadata` of openconfig-metadata).
    pub annotation: Option<SmolStr>,
}

/// One step from a revision to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub origin: Origin,
    pub path: InstancePath,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The leaf at the path has this value. The same value again is no change.
    Set(Value),
    /// The configuration holds the entry or presence container at the path, whatever is in it.
    Given,
    /// All that belongs to the plane is gone, at the path and below it.
    Gone(Plane),
}

/// Configuration and state share list entries; each comes and goes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plane {
    Config,
    State,
    Both,
}

/// The next revision in the making. Costs what the changes cost.
///
/// What counts is the difference to the revision before: a leaf that is taken away and set again
/// in one draft has only changed, or not even that.
#[derive(Debug)]
pub struct Draft<'s> {
    number: u64,
    time_ns: u64,
    annotation: Option<SmolStr>,
    openconfig: DraftTree<'s>,
    native: DraftTree<'s>,
}

/// One tree of a draft. Neither tree looks at the other one, so both may be made at the same time.
#[derive(Debug)]
pub struct DraftTree<'s> {
    origin: Origin,
    tree: Tree<Stamp>,
    before: &'s Tree<Stamp>,
    /// Something was taken away, so that what is set may have been there before.
    withdrawn: bool,
    schema: &'s Schema,
    stamp: Stamp,
}

impl Revision {
    pub fn tree(&self, origin: Origin) -> &Tree<Stamp> {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }

    /// Starts the next revision, of what happened at `time_ns`.
    pub fn draft<'s>(
        &'s self,
        openconfig: &'s Schema,
        native: &'s Schema,
        time_ns: u64,
    ) -> Draft<'s> {
        let next = Self { number: self.number + 1, time_ns, ..self.clone() };
        self.resume(openconfig, native, next)
    }

    /// Goes on with the revision after this one, where that was published before it was complete. Nothing was taken
    /// away in it that comes back.
    pub fn resume<'s>(
        &'s self,
        openconfig: &'s Schema,
        native: &'s Schema,
        next: Revision,
    ) -> Draft<'s> {
        let Self { number, time_ns, annotation, .. } = next;
        let stamp = Stamp { time_ns, changes: 1, born: birth(number) };
        let tree = |origin, tree, schema| DraftTree {
            origin,
            tree,
            before: self.tree(origin),
            withdrawn: false,
            schema,
            stamp,
        };
        Draft {
            number,
            time_ns,
            annotation,
            openconfig: tree(Origin::OpenConfig, next.openconfig, openconfig),
            native: tree(Origin::Native, next.native, native),
        }
    }
}

impl<'s> Draft<'s> {
    pub fn apply(&mut self, change: Change) {
        self.tree_mut(change.origin).apply(&change.path, change.what);
    }

    /// Takes over in what two trees of configuration differ, whatever their leaves carry.
    pub fn follow<M: Clone + Eq>(&mut self, origin: Origin, old: &Tree<M>, new: &Tree<M>) {
        self.tree_mut(origin).follow(old, new);
    }

    pub fn annotate(&mut self, annotation: Option<SmolStr>) {
        self.annotation = annotation;
    }

    /// Both trees, each to be made by itself.
    pub fn trees_mut(&mut self) -> [&mut DraftTree<'s>; 2] {
        [&mut self.openconfig, &mut self.native]
    }

    pub fn publish(self) -> Revision {
        Revision {
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

    pub fn apply(&mut self, path: &InstancePath, what: What) {
        match what {
            What::Set(value) => self.set(path, value),
            What::Given => {
                self.tree.branch_mut(self.schema, &path.0, &self.stamp).given = true;
            }
            What::Gone(Plane::Both) => {
                self.tree.remove(self.schema, path);
                self.withdrawn = true;
            }
            What::Gone(plane) => {
                withdraw(&mut self.tree, self.schema, path, plane);
                self.withdrawn = true;
            }
        }
    }

    /// Sets a leaf, the most frequent of changes.
    fn set(&mut self, path: &InstancePath, value: Value) {
        let before = if self.withdrawn { self.before.leaf(path) } else { None };
        let (tree, schema, stamp) = (&mut self.tree, self.schema, self.stamp);
        match (tree.leaf(path), before) {
            (None, Some(before)) if before.value == value => {
                tree.set_leaf(schema, path, before.clone());
            }
            (None, Some(before)) => {
                let stamp = restamped(Some(before), stamp);
                tree.set_leaf(schema, path, Leaf::new(value, stamp));
            }
            _ => set(tree, schema, path, value, stamp),
        }
    }

    /// The branch at `steps`, made when absent, to set leaves in it and below.
    pub fn at(&mut self, steps: &[Step]) -> Place<'_> {
        let before = if self.withdrawn { Some(self.before.root()) } else { None };
        let before = before.and_then(|root| branch_at(root, steps));
        let (schema, stamp) = (self.schema, self.stamp);
        Place { branch: self.tree.branch_mut(schema, steps, &stamp), before, schema, stamp }
    }

    /// Takes over in what two trees of configuration differ, whatever their leaves carry.
    pub fn follow<M: Clone + Eq>(&mut self, old: &Tree<M>, new: &Tree<M>) {
        let (tree, schema, stamp) = (&mut self.tree, self.schema, self.stamp);
        let merge = Merge { schema, stamp };
        Tree::diff(old, new, &mut |path, difference| match difference {
            tree::Change::Leaf { new, .. } => set(tree, schema, path, new.value.clone(), stamp),
            tree::Change::Added(Found::Leaf(leaf)) => {
                set(tree, schema, path, leaf.value.clone(), stamp);
            }
            tree::Change::Added(Found::Branch(branch)) => {
                let Some((last, above)) = path.0.split_last() else {
                    return merge.branch(tree.root_mut(), branch, false);
                };
                let above = tree.branch_mut(schema, above, &stamp);
                match &last.keys {
                    Some(keys) => merge.entry(above.list_mut(last.node), last.node, keys, branch),
                    None => merge.container(above, last.node, branch),
                }
            }
            tree::Change::Added(Found::List(_)) => {} // a difference tells of entries one by one
            tree::Change::Removed(_) => withdraw(tree, schema, path, Plane::Config),
            tree::Change::Given(true) => tree.branch_mut(schema, &path.0, &stamp).given = true,
            tree::Change::Given(false) => {} // it is still there, which is what counts here
        });
    }
}

/// A branch of a tree in the making.
#[derive(Debug)]
pub struct Place<'p> {
    branch: &'p mut Branch<Stamp>,
    /// The same branch as it was, when something was taken away since.
    before: Option<&'p Branch<Stamp>>,
    schema: &'p Schema,
    stamp: Stamp,
}

impl<'p> Place<'p> {
    /// This branch again, to go down from it more than once.
    pub fn again(&mut self) -> Place<'_> {
        Place { branch: &mut *self.branch, ..*self }
    }

    /// The branch at `steps` below this one, made when absent.
    #[must_use]
    pub fn below(self, steps: &[Step]) -> Self {
        let before = self.before.and_then(|before| branch_at(before, steps));
        let branch = self.branch.descend_mut(self.schema, steps, &self.stamp);
        Place { branch, before, ..self }
    }

    /// Does something at the branch at `steps` below this one, made when absent.
    pub fn within(self, steps: &[Step], act: impl FnOnce(Place<'_>)) {
        let [above @ .., Step { node: list, keys: Some(keys) }] = steps else {
            return act(self.below(steps));
        };
        let before = self.before.and_then(|before| branch_at(before, steps));
        let Self { branch, schema, stamp, .. } = self;
        let entries = branch.descend_mut(schema, above, &stamp).list_mut(*list);
        let make = || Branch::of_keys(schema, *list, keys, &stamp);
        entries.in_entry(keys, make, |branch| act(Place { branch, before, schema, stamp }));
    }

    /// So many leaves are about to be set here.
    pub fn expect(&mut self, leaves: usize) {
        self.branch.expect(leaves);
    }

    /// The container in this branch, made when absent.
    #[must_use]
    pub fn container(self, node: NodeId) -> Self {
        let before = self.before.and_then(|before| before.container(node)).map(|it| &**it);
        Place { branch: self.branch.container_mut(node), before, ..self }
    }

    /// Sets a leaf of this branch. The same value again is no change.
    pub fn set(&mut self, leaf: NodeId, value: Value) {
        let before = self.before.and_then(|before| before.leaf(leaf));
        let stamp = match (self.branch.leaf(leaf), before) {
            (Some(old), _) if old.value == value => return,
            (None, Some(before)) if before.value == value => before.meta,
            (old, before) => restamped(old.or(before), self.stamp),
        };
        self.branch.put_leaf(leaf, value, stamp);
    }
}

/// The lower half of a revision's number, see [`Stamp::born`].
fn birth(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).expect("the upper half is masked out")
}

fn branch_at<'b>(from: &'b Branch<Stamp>, steps: &[Step]) -> Option<&'b Branch<Stamp>> {
    steps.iter().try_fold(from, |branch, step| match &step.keys {
        None => branch.container(step.node).map(|it| &**it),
        Some(keys) => branch.list(step.node)?.get(keys).map(|it| &**it),
    })
}

fn set(tree: &mut Tree<Stamp>, schema: &Schema, path: &InstancePath, value: Value, fresh: Stamp) {
    match tree.leaf(path) {
        Some(leaf) if leaf.value == value => {}
        old => {
            let stamp = restamped(old, fresh);
            tree.set_leaf(schema, path, Leaf::new(value, stamp));
        }
    }
}

fn restamped(old: Option<&Leaf<Stamp>>, fresh: Stamp) -> Stamp {
    match old {
        Some(leaf) => {
            Stamp { changes: leaf.meta.changes.wrapping_add(1), born: leaf.meta.born, ..fresh }
        }
        None => fresh,
    }
}

/// Puts subtrees of configuration into such as may hold state already.
#[derive(Clone, Copy)]
struct Merge<'s> {
    schema: &'s Schema,
    stamp: Stamp,
}

impl Merge<'_> {
    fn branch<M>(self, into: &mut Branch<Stamp>, from: &Branch<M>, entry: bool) {
        into.given |= entry || from.given;
        for (node, child) in from.children() {
            match child {
                Child::Leaf(leaf) => match into.leaf(*node) {
                    Some(old) if old.value == leaf.value => {}
                    old => {
                        let stamp = restamped(old, self.stamp);
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

    fn container<M>(self, into: &mut Branch<Stamp>, node: NodeId, from: &Branch<M>) {
        if into.container(node).is_some() {
            return self.branch(into.container_mut(node), from, false);
        }
        let mut container = Branch::with_capacity(from.children().len());
        self.branch(&mut container, from, false);
        into.put(node, Child::Container(Arc::new(container)));
    }

    fn entry<M>(self, into: &mut List<Stamp>, node: NodeId, keys: &Keys, from: &Branch<M>) {
        match into.get(keys).is_some() {
            true => self.branch(into.entry_mut(keys, Branch::default), from, true),
            false => self.new_entry(into, keys, from, self.containers(node)),
        }
    }

    fn new_entry<M>(
        self,
        into: &mut List<Stamp>,
        keys: &Keys,
        from: &Branch<M>,
        containers: usize,
    ) {
        let children = from.children();
        let given = children.iter().filter(|(_, child)| matches!(child, Child::Container(_)));
        // State will join it, in containers of its own.
        let state = containers.saturating_sub(given.count()).min(STATE_CONTAINERS);
        let mut entry = Branch::with_capacity(children.len() + state);
        self.branch(&mut entry, from, true);
        into.put(keys.clone(), Arc::new(entry));
    }

    /// How many containers an entry of this list can have.
    fn containers(self, list: NodeId) -> usize {
        let children = self.schema.node(list).children.iter();
        let is_container =
            |node: &&NodeId| matches!(self.schema.node(**node).kind, NodeKind::Container { .. });
        children.filter(is_container).count()
    }
}

/// Containers of state that an entry is made room for: those of a next hop. Larger entries are few.
const STATE_CONTAINERS: usize = 2;

/// Takes one plane away at `path` and below; what the other plane holds stays.
fn withdraw(tree: &mut Tree<Stamp>, schema: &Schema, path: &InstancePath, plane: Plane) {
    match tree.get(path) {
        Some(Found::Leaf(_))
            if path.last().is_some_and(|step| belongs(schema, step.node, plane)) =>
        {
            tree.remove(schema, path);
        }
        None | Some(Found::Leaf(_)) => {}
        Some(Found::List(list)) => {
            let Some((last, above)) = path.0.split_last() else { return };
            for keys in keys_of(list) {
                let mut entry = InstancePath(above.to_vec());
                entry.0.push(Step::entry(last.node, keys));
                withdraw(tree, schema, &entry, plane);
            }
        }
        Some(Found::Branch(_)) => {
            let branch = tree.branch_mut(schema, &path.0, &Stamp::default());
            strip(branch, schema, plane);
            let entry = path.last().is_some_and(|step| step.keys.is_some());
            if branch.is_empty() || entry && is_hollow(branch, schema) {
                tree.remove(schema, path);
            }
        }
    }
}

fn strip(branch: &mut Branch<Stamp>, schema: &Schema, plane: Plane) {
    if plane == Plane::Config {
        branch.given = false;
    }
    branch.retain(|node, child| match child {
        // A key leaf in its entry belongs to whatever keeps the entry.
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
                if is_hollow(entry, schema) {
                    list.remove(&keys);
                }
            }
            !list.is_empty()
        }
    });
}

fn keys_of(list: &List<Stamp>) -> Vec<Keys> {
    list.iter().map(|(keys, _)| keys.clone()).collect()
}

/// An entry that neither plane holds any more.
fn is_hollow(entry: &Branch<Stamp>, schema: &Schema) -> bool {
    !entry.given && entry.has_only_keys(schema)
}

fn belongs(schema: &Schema, leaf: NodeId, plane: Plane) -> bool {
    match plane {
        Plane::Config => schema.node(leaf).config,
        Plane::State => !schema.node(leaf).config,
        Plane::Both => true,
    }
}
