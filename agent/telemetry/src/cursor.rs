//! The position of a subscriber, and the updates that it gets next.
//!
//! A [`Cursor`] holds the last tree that was sent. The next update is the difference between that and the newest
//! tree, within the selection; [`Walk`] finds it leaf by leaf and skips the memory that both share. A walk owns
//! the nodes that it visits, so it may pause for as long as the client takes to read.
//!
//! Lists whose entries are derived are long. A subscriber that is to hear of everything else meanwhile has two cursors, and each
//! leaf belongs to one of them, by the list of the schema that it is in:
//!
//! ```text
//!  Cursor, Lists::Others                 told at once --------------------------+
//!      | branches that it told as deleted, which are void in the other         v
//!  DerivedCursor, Lists::Derived         told in portions, with the first between them
//! ```

mod derived;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::vec;

use holdfast_config::tree::{Branch, Child, Leaf, List, ListEntry as _, Tree};
use holdfast_config::{InstancePath, Keys, NodeId, PatternStep, Schema, Step};
use smallvec::SmallVec;

pub use self::derived::DerivedCursor;
use super::entry::ViewEntry;
use super::revision::LeafVersion;
use super::selection::{Lists, Selection};
use super::visibility::Visibility;

/// State of a subscriber: its selection, and the tree that was sent last.
#[derive(Debug)]
pub struct Cursor {
    selection: Arc<Selection>,
    last_sent: Tree<LeafVersion>,
}

/// Rule for the changes to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Every event: a leaf that changed and changed back is reported.
    Events,
    /// Changed values only, as for `suppress_redundant`.
    Values,
}

/// One update, with its path.
#[derive(Debug)]
pub enum TreeUpdate<'a> {
    /// The node and its descendants were deleted.
    Deleted(&'a [Step]),
    /// The entry was deleted and created again, so that its previous leaves are void; its new leaves follow.
    Recreated { path: &'a [Step], time_ns: u64 },
    /// `missed` counts the changes merged into this one because the client did not read in time.
    Leaf { path: &'a [Step], leaf: Leaf<LeafVersion>, missed: u32 },
}

impl Cursor {
    /// A cursor that has sent `tree`, or is about to by a [`Cursor::whole`].
    pub fn new(selection: Arc<Selection>, tree: Tree<LeafVersion>) -> Self {
        Self { selection, last_sent: tree }
    }

    pub fn selection(&self) -> &Arc<Selection> {
        &self.selection
    }

    /// Replaces the selection by one for models with more nodes. The last tree sent has none of these nodes, so the next
    /// update tells of all that they have.
    pub fn select(&mut self, selection: Arc<Selection>) {
        self.selection = selection;
    }

    /// Walks everything selected in `tree`, which becomes the last tree sent.
    pub fn whole(&mut self, tree: &Tree<LeafVersion>) -> Walk {
        self.last_sent = tree.clone();
        Walk::whole(self.selection.clone(), tree)
    }

    /// Walks everything selected in the last tree sent.
    pub fn again(&self) -> Walk {
        Walk::whole(self.selection.clone(), &self.last_sent)
    }

    /// Notes that the client has lost what it was sent at these paths and below.
    fn forget(&mut self, schema: &Schema, paths: &[InstancePath]) {
        for path in paths {
            self.last_sent.remove(schema, path);
        }
    }

    /// Walks the difference between the last tree sent and `tree`, which becomes the last one.
    pub fn next(&mut self, tree: &Tree<LeafVersion>, compare: Compare) -> Walk {
        let old = std::mem::replace(&mut self.last_sent, tree.clone());
        Walk::between(self.selection.clone(), &old, tree, compare)
    }
}

/// Number of list entries whose collection costs as much as a visit of one node. The entries are collected when
/// the walk reaches their list.
const ENTRIES_PER_NODE: usize = 8;

type SharedBranch = Option<Arc<Branch<LeafVersion>>>;

/// A walk through the difference of two trees, or through one tree.
#[derive(Debug)]
pub struct Walk {
    selection: Arc<Selection>,
    /// `None` reports every leaf, and counts no missed changes.
    compare: Option<Compare>,
    path: Vec<Step>,
    /// The last step of the path was reported and has no frame, so it is removed before the next step.
    unframed_step: bool,
    frames: Vec<Frame>,
    /// Branches that were reported as deleted, or created again, with derived entries in them, which this walk leaves out.
    deleted: Vec<InstancePath>,
    /// Branches to skip.
    skipped: BTreeSet<InstancePath>,
    /// Children and entries visited, for tests: the work must be proportional to the change.
    visited: usize,
}

#[derive(Debug)]
enum Frame {
    /// The children of a branch from the indices `old_at` and `new_at` on.
    Branch {
        old: SharedBranch,
        new: SharedBranch,
        old_at: usize,
        new_at: usize,
        reach: PatternMatch,
        visibility: Visibility,
    },
    /// Remaining entries of list `node`.
    Entries {
        node: NodeId,
        left: vec::IntoIter<ListEntryPair>,
        reach: PatternMatch,
        visibility: Visibility,
    },
}

#[derive(Debug)]
struct ListEntryPair {
    keys: Keys,
    old: Option<ViewEntry>,
    new: Option<ViewEntry>,
}

/// A child or entry, in the old and in the new tree.
#[derive(Debug)]
enum ChildPair {
    Leaf(Option<Leaf<LeafVersion>>, Option<Leaf<LeafVersion>>),
    Branch(SharedBranch, SharedBranch),
    List(List<LeafVersion>, List<LeafVersion>),
}

/// Result of a part of a walk.
#[derive(Debug)]
pub enum WalkProgress<'a> {
    Update(TreeUpdate<'a>),
    /// The limit of visited nodes is reached before the end.
    Paused,
    Ended,
}

/// An [`Item`] without its path.
#[derive(Debug)]
enum TreeUpdateKind {
    Deleted,
    Recreated { time_ns: u64 },
    Leaf { leaf: Leaf<LeafVersion>, missed: u32 },
}

/// Patterns that match the current path.
#[derive(Clone, Debug)]
enum PatternMatch {
    /// One of them ends at this node or above, so everything wanted below is selected.
    Complete,
    /// Indices of the patterns whose beginning matches the path.
    Prefix(SmallVec<[usize; 2]>),
}

impl Walk {
    /// Walks everything selected in one tree.
    pub fn whole(selection: Arc<Selection>, tree: &Tree<LeafVersion>) -> Self {
        Self::start(selection, None, Some(tree.root().clone()), None)
    }

    /// Walks everything selected in which `new` differs from `old`.
    pub fn between(
        selection: Arc<Selection>,
        old: &Tree<LeafVersion>,
        new: &Tree<LeafVersion>,
        compare: Compare,
    ) -> Self {
        let old = old.root().clone();
        let new = new.root().clone();
        Self::start(selection, Some(old), Some(new), Some(compare))
    }

    fn start(
        selection: Arc<Selection>,
        old: SharedBranch,
        new: SharedBranch,
        compare: Option<Compare>,
    ) -> Self {
        let every = PatternMatch::Prefix((0..selection.patterns.len()).collect());
        let reach = every.complete_at(&selection, 0);
        let mut walk = Self {
            selection,
            compare,
            path: Vec::new(),
            unframed_step: false,
            frames: Vec::new(),
            deleted: Vec::new(),
            skipped: BTreeSet::new(),
            visited: 0,
        };
        let visibility = Visibility::of_root(walk.selection.permissions.as_deref());
        walk.descend(old, new, reach, visibility);
        walk
    }

    /// The next update, in schema order; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "an item borrows the path of the walk")]
    pub fn next(&mut self) -> Option<TreeUpdate<'_>> {
        match self.next_within(usize::MAX) {
            WalkProgress::Update(item) => Some(item),
            WalkProgress::Paused | WalkProgress::Ended => None,
        }
    }

    /// The next update. The walk pauses when the total of [`Walk::visited`] reaches about `until`.
    pub fn next_within(&mut self, until: usize) -> WalkProgress<'_> {
        if std::mem::take(&mut self.unframed_step) {
            self.path.pop();
        }
        let visited = loop {
            if self.visited >= until {
                return WalkProgress::Paused;
            }
            self.visited += 1;
            let Some(frame) = self.frames.last_mut() else { return WalkProgress::Ended };
            let visited = match frame {
                Frame::Branch { old, new, old_at, new_at, .. } => {
                    let next = next_child(old.as_deref(), new.as_deref(), old_at, new_at);
                    match next {
                        Some((node, one, other)) if self.selection.selects(node) => {
                            let hidden = |entry: &SharedBranch| {
                                entry
                                    .as_deref()
                                    .is_some_and(|it| self.selection.hides_key(node, it))
                            };
                            let one = one.filter(|_| !hidden(old));
                            let other = other.filter(|_| !hidden(new));
                            let pair = ChildPair::of(one, other);
                            self.visit_child(node, pair)
                        }
                        Some(_) => None,
                        None => {
                            self.frames.pop();
                            self.path.pop();
                            None
                        }
                    }
                }
                Frame::Entries { node, left, .. } => match (*node, left.next()) {
                    (node, Some(entry)) => self.visit_entry(node, entry),
                    (_, None) => {
                        self.frames.pop();
                        None
                    }
                },
            };
            if let Some(visited) = visited {
                break visited;
            }
        };
        let path = self.path.as_slice();
        WalkProgress::Update(match visited {
            TreeUpdateKind::Deleted => TreeUpdate::Deleted(path),
            TreeUpdateKind::Recreated { time_ns } => TreeUpdate::Recreated { path, time_ns },
            TreeUpdateKind::Leaf { leaf, missed } => TreeUpdate::Leaf { path, leaf, missed },
        })
    }

    /// Number of nodes visited so far.
    pub fn visited(&self) -> usize {
        self.visited
    }

    /// Takes the branches that the walk has reported as deleted as a whole, with derived entries that it leaves out. A
    /// [`DerivedCursor`] of the same client has to forget them.
    pub fn take_deleted(&mut self) -> Vec<InstancePath> {
        std::mem::take(&mut self.deleted)
    }

    /// Leaves out the rest of a branch.
    fn skip(&mut self, branch: &InstancePath) {
        if std::mem::take(&mut self.unframed_step) {
            self.path.pop();
        }
        while self.path.starts_with(&branch.0) {
            if let Some(Frame::Branch { .. }) = self.frames.pop() {
                self.path.pop();
            }
        }
        self.skipped.insert(branch.clone());
    }

    fn is_skipped(&self) -> bool {
        // Few walks skip anything, and then only branches above derived lists.
        !self.skipped.is_empty() && self.skipped.iter().any(|it| it.0 == self.path)
    }

    /// True when the branch at the end of the path may be reported as deleted as a whole. Above derived lists that is for the
    /// walk of everything else alone: this one may be behind it, and would delete what the other has told since.
    fn may_delete(&self) -> bool {
        let is_above = |step: &Step| self.selection.is_above_derived(step.node);
        self.selection.lists() != Lists::Derived || !self.path.last().is_some_and(is_above)
    }

    /// Notes that the branch at the end of the path is reported as deleted.
    fn note_deleted(&mut self) {
        let is_above = |step: &Step| self.selection.is_above_derived(step.node);
        if self.selection.lists() == Lists::Others && self.path.last().is_some_and(is_above) {
            self.deleted.push(InstancePath(self.path.clone()));
        }
    }

    fn pattern_match(&self) -> &PatternMatch {
        match self.frames.last() {
            Some(Frame::Branch { reach, .. } | Frame::Entries { reach, .. }) => reach,
            None => &PatternMatch::Complete,
        }
    }

    fn visibility(&self) -> &Visibility {
        match self.frames.last() {
            Some(Frame::Branch { visibility, .. } | Frame::Entries { visibility, .. }) => {
                visibility
            }
            None => &Visibility::All,
        }
    }

    fn visit_child(&mut self, node: NodeId, pair: ChildPair) -> Option<TreeUpdateKind> {
        let depth = self.path.len();
        let reach = self.pattern_match().descend_to(&self.selection, depth, node)?;
        if let ChildPair::List(old, new) = pair {
            let left = reach.entries(&self.selection, depth, &old, &new).into_iter();
            self.visited += left.len() / ENTRIES_PER_NODE;
            // Rules apply to entries, so a list is as visible as its parent.
            let visibility = self.visibility().clone();
            self.frames.push(Frame::Entries { node, left, reach, visibility });
            return None;
        }
        let step = Step::node(node);
        let visibility = self.visibility().below(self.selection.permissions.as_deref(), &step)?;
        let reach = reach.complete_at(&self.selection, depth + 1);
        self.path.push(step);
        if self.is_skipped() {
            self.path.pop();
            return None;
        }
        self.visit(pair, reach, visibility)
    }

    fn visit_entry(&mut self, node: NodeId, entry: ListEntryPair) -> Option<TreeUpdateKind> {
        let depth = self.path.len();
        let step = Step::entry(node, entry.keys);
        let reach = self.pattern_match().match_entry(&self.selection, depth, &step)?;
        let visibility = self.visibility().below(self.selection.permissions.as_deref(), &step)?;
        self.path.push(step);
        if self.is_skipped() {
            self.path.pop();
            return None;
        }
        let branch = |entry: Option<ViewEntry>| entry.map(|it| it.branch().into_shared());
        let old = branch(entry.old);
        let new = branch(entry.new);
        let rebirth = recreation_time(old.as_deref(), new.as_deref());
        match (rebirth, &reach) {
            (Some(time_ns), PatternMatch::Complete)
                if visibility.is_node_visible()
                    && self.may_delete()
                    && self.has_visible_leaf(old.as_deref(), &visibility) =>
            {
                self.note_deleted();
                self.descend(None, new, reach, visibility);
                Some(TreeUpdateKind::Recreated { time_ns })
            }
            _ => self.visit(ChildPair::Branch(old, new), reach, visibility),
        }
    }

    /// Visits `pair`, which the path already names.
    fn visit(
        &mut self,
        pair: ChildPair,
        reach: PatternMatch,
        visibility: Visibility,
    ) -> Option<TreeUpdateKind> {
        let visited = match pair {
            ChildPair::Leaf(old, new) => match reach {
                PatternMatch::Complete if visibility.is_node_visible() => {
                    self.compare_leaves(old, new)
                }
                PatternMatch::Complete | PatternMatch::Prefix(_) => None,
            },
            // The deletion of a node that is not itself visible is reported leaf by leaf, for visible leaves.
            ChildPair::Branch(old, None)
                if matches!(reach, PatternMatch::Complete)
                    && visibility.is_node_visible()
                    && self.may_delete() =>
            {
                let is_told = self.has_visible_leaf(old.as_deref(), &visibility);
                is_told.then(|| self.note_deleted());
                is_told.then_some(TreeUpdateKind::Deleted)
            }
            ChildPair::Branch(old, new) => {
                self.descend(old, new, reach, visibility);
                return None;
            }
            ChildPair::List(..) => None,
        };
        self.unframed_step = visited.is_some();
        if !self.unframed_step {
            self.path.pop();
        }
        visited
    }

    /// Continues with the children of a branch, unless both trees share it.
    fn descend(
        &mut self,
        old: SharedBranch,
        new: SharedBranch,
        reach: PatternMatch,
        visibility: Visibility,
    ) {
        let same = matches!((&old, &new), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
        if same {
            self.path.pop();
        } else {
            self.frames.push(Frame::Branch { old, new, old_at: 0, new_at: 0, reach, visibility });
        }
    }

    fn compare_leaves(
        &self,
        old: Option<Leaf<LeafVersion>>,
        new: Option<Leaf<LeafVersion>>,
    ) -> Option<TreeUpdateKind> {
        let Some(leaf) = new else { return old.map(|_| TreeUpdateKind::Deleted) };
        let missed = match (self.compare, old) {
            (None, _) => 0,
            (Some(Compare::Events), Some(old)) if old == leaf => return None,
            (Some(Compare::Values), Some(old))
                if old.value == leaf.value && old.meta.incarnation == leaf.meta.incarnation =>
            {
                return None;
            }
            (Some(Compare::Values), _) => 0,
            (Some(Compare::Events), Some(old)) if old.meta.incarnation == leaf.meta.incarnation => {
                leaf.meta.changes.wrapping_sub(old.meta.changes).saturating_sub(1)
            }
            (Some(Compare::Events), _) => leaf.meta.changes.saturating_sub(1),
        };
        Some(TreeUpdateKind::Leaf { leaf, missed })
    }

    /// True when the branch holds a leaf that the reader was sent. `visibility` is the reader's view of the branch.
    fn has_visible_leaf(
        &self,
        branch: Option<&Branch<LeafVersion>>,
        visibility: &Visibility,
    ) -> bool {
        let below = |step| visibility.below(self.selection.permissions.as_deref(), &step);
        branch.is_some_and(|branch| {
            branch.children().iter().any(|(node, child)| {
                self.selection.selects(*node)
                    && match child {
                        Child::Leaf(_) => {
                            !self.selection.hides_key(*node, branch)
                                && below(Step::node(*node)).is_some_and(|it| it.is_node_visible())
                        }
                        Child::Container(inner) => {
                            below(Step::node(*node)).is_some_and(|visibility| {
                                self.has_visible_leaf(Some(inner), &visibility)
                            })
                        }
                        Child::List(list) => list.iter().any(|(keys, entry)| {
                            below(Step::entry(*node, keys.clone())).is_some_and(|visibility| {
                                self.has_visible_leaf(Some(&entry.branch()), &visibility)
                            })
                        }),
                    }
            })
        })
    }
}

impl ChildPair {
    fn of(old: Option<&Child<LeafVersion>>, new: Option<&Child<LeafVersion>>) -> Self {
        match old.or(new) {
            Some(Child::List(_)) => Self::List(list_of(old), list_of(new)),
            Some(Child::Container(_)) => Self::Branch(branch_of(old), branch_of(new)),
            Some(Child::Leaf(_)) | None => Self::Leaf(leaf_of(old), leaf_of(new)),
        }
    }
}

fn leaf_of(child: Option<&Child<LeafVersion>>) -> Option<Leaf<LeafVersion>> {
    match child {
        Some(Child::Leaf(leaf)) => Some(leaf.clone()),
        _ => None,
    }
}

fn branch_of(child: Option<&Child<LeafVersion>>) -> SharedBranch {
    match child {
        Some(Child::Container(branch)) => Some(branch.clone()),
        _ => None,
    }
}

fn list_of(child: Option<&Child<LeafVersion>>) -> List<LeafVersion> {
    match child {
        Some(Child::List(list)) => list.clone(),
        _ => List::default(),
    }
}

type NextChild<'a> = (NodeId, Option<&'a Child<LeafVersion>>, Option<&'a Child<LeafVersion>>);

/// The next node in the order of both branches, with its child in each.
fn next_child<'a>(
    old: Option<&'a Branch<LeafVersion>>,
    new: Option<&'a Branch<LeafVersion>>,
    old_at: &mut usize,
    new_at: &mut usize,
) -> Option<NextChild<'a>> {
    let one = old.and_then(|branch| branch.children().get(*old_at));
    let other = new.and_then(|branch| branch.children().get(*new_at));
    let order = match (one, other) {
        (None, None) => return None,
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some((one, _)), Some((other, _))) => one.cmp(other),
    };
    let one = one.filter(|_| order.is_le()).inspect(|_| *old_at += 1);
    let other = other.filter(|_| order.is_ge()).inspect(|_| *new_at += 1);
    let (node, _) = one.or(other)?;
    Some((*node, one.map(|it| &it.1), other.map(|it| &it.1)))
}

/// Time at which the entry was created again, if it is not the previous one. The key leaves of an entry never
/// change, so their stamps tell its age.
fn recreation_time(
    old: Option<&Branch<LeafVersion>>,
    new: Option<&Branch<LeafVersion>>,
) -> Option<u64> {
    let old = first_leaf_version(old?)?;
    let new = first_leaf_version(new?)?;
    (old.incarnation != new.incarnation).then_some(new.time_ns)
}

fn first_leaf_version(entry: &Branch<LeafVersion>) -> Option<LeafVersion> {
    entry.children().iter().find_map(|(_, child)| match child {
        Child::Leaf(leaf) => Some(leaf.meta),
        Child::Container(_) | Child::List(_) => None,
    })
}

impl PatternMatch {
    /// The patterns that continue to `node`, with any keys.
    fn descend_to(&self, selection: &Selection, depth: usize, node: NodeId) -> Option<Self> {
        self.narrowed(selection, depth, |step| step.node == node)
    }

    /// The patterns that match an entry.
    fn match_entry(&self, selection: &Selection, depth: usize, step: &Step) -> Option<Self> {
        let narrowed = self.narrowed(selection, depth, |pattern| pattern.matches(step))?;
        Some(narrowed.complete_at(selection, depth + 1))
    }

    fn narrowed(
        &self,
        selection: &Selection,
        depth: usize,
        fits: impl Fn(&PatternStep) -> bool,
    ) -> Option<Self> {
        let Self::Prefix(patterns) = self else { return Some(Self::Complete) };
        let step = |at: usize| selection.patterns[at].0.get(depth);
        let left: SmallVec<_> =
            patterns.iter().copied().filter(|&at| step(at).is_some_and(&fits)).collect();
        (!left.is_empty()).then_some(Self::Prefix(left))
    }

    fn complete_at(self, selection: &Selection, depth: usize) -> Self {
        match &self {
            Self::Prefix(patterns)
                if patterns.iter().any(|&at| selection.patterns[at].0.len() == depth) =>
            {
                Self::Complete
            }
            _ => self,
        }
    }

    /// Entries of a list to visit: those named, if every pattern names one.
    fn entries(
        &self,
        selection: &Selection,
        depth: usize,
        old: &List<LeafVersion>,
        new: &List<LeafVersion>,
    ) -> Vec<ListEntryPair> {
        if let Some(named) = self.named_entries(selection, depth) {
            let entry = |keys: Keys| {
                let old = old.get(&keys).cloned();
                let new = new.get(&keys).cloned();
                let differs = match (&old, &new) {
                    (Some(old), Some(new)) => !old.is_same(new),
                    (old, new) => old.is_some() || new.is_some(),
                };
                differs.then_some(ListEntryPair { keys, old, new })
            };
            return named.into_iter().filter_map(entry).collect();
        }
        List::differences(old, new)
            .map(|it| ListEntryPair {
                keys: it.keys.clone(),
                old: it.old.cloned(),
                new: it.new.cloned(),
            })
            .collect()
    }

    fn named_entries(&self, selection: &Selection, depth: usize) -> Option<Vec<Keys>> {
        let Self::Prefix(patterns) = self else { return None };
        let keys = |at: &usize| selection.patterns[*at].0.get(depth)?.keys.as_ref()?.concrete();
        let mut named = patterns.iter().map(keys).collect::<Option<Vec<_>>>()?;
        named.sort();
        named.dedup();
        Some(named)
    }
}

#[cfg(test)]
mod tests;
