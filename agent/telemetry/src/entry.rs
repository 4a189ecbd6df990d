//! List entries of a revision.
//!
//! A revision holds a hundred thousand routes; readers look at few of them. Entries of such lists are not stored as
//! branches but as what their branches follow from: the entry of the configuration, and the values that the engine
//! holds. Both are in memory anyway. The branch is derived when it is read:
//!
//! ```text
//!  configuration  [prefix, next-hops]   --+
//!                                         +--> branch with leaves and their versions --> reader
//!  values of the engine  [applied, seen] --+
//! ```
//!
//! All leaves of a derived entry have the version with which its configuration, or its state, appeared. An entry is
//! stored as a branch as soon as one of its leaves changes, so that each leaf has a version of its own. The exception
//! is its mark, one leaf of state that comes and goes with faults: the entry has it as a field, with a version of its
//! own.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Branch, Child, EntryBranch, Leaf, LeafMeta, List, ListEntry};
use holdfast_config::{LeafMark, NodeId};

use super::leaf_version::{ConfigOrState, LeafVersion};

/// One list entry of a revision's tree.
#[derive(Clone, Debug)]
pub enum ViewEntry {
    Stored(Arc<Branch<LeafVersion>>),
    Derived(DerivedEntry),
}

/// The source from which the branch of an entry follows. It has configuration, state, or both.
#[derive(Clone, Debug)]
pub struct DerivedEntry {
    origin: Origin,
    /// Version with which the entry appeared: that of its keys, and of its configuration if there is any.
    born: EntryVersion,
    /// The entry of the configuration in this model.
    config: Option<Arc<Branch<LeafMark>>>,
    state: Option<Arc<dyn EntryState>>,
    /// Entries that are marked alike, in one draft, share it.
    mark: Option<Arc<MarkLeaf>>,
}

/// Leaf by which an entry is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkLeaf {
    pub(crate) place: MarkPlace,
    pub(crate) leaf: Leaf<LeafVersion>,
}

/// Where the entries of a list have their mark: a leaf of state that never makes an entry alone, and goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPlace {
    pub origin: Origin,
    pub list: NodeId,
    /// Container in the entry that holds the leaf.
    pub container: NodeId,
    pub leaf: NodeId,
}

/// Version of the derived entries that one draft adds, which they share. Entries that are laid out ahead get it when their
/// draft is begun, before anybody reads them.
#[derive(Clone, Debug, Default)]
pub struct EntryVersion(Arc<OnceLock<LeafVersion>>);

impl EntryVersion {
    /// Gives the version. The first one counts.
    pub fn give(&self, version: LeafVersion) {
        let _given_before = self.0.set(version);
    }

    pub fn leaf_version(&self) -> LeafVersion {
        self.0.get().copied().unwrap_or_default()
    }
}

impl From<LeafVersion> for EntryVersion {
    fn from(version: LeafVersion) -> Self {
        Self(Arc::new(OnceLock::from(version)))
    }
}

impl PartialEq for EntryVersion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.leaf_version() == other.leaf_version()
    }
}

/// State of one list entry, from which its leaves are made.
pub trait EntryState: Any + Debug + Send + Sync {
    /// Adds the leaves of state to the entry's branch in the tree of `origin`. An empty branch gets its keys first, with
    /// the version `born`.
    fn show(&self, origin: Origin, born: LeafVersion, entry: &mut Branch<LeafVersion>);

    fn as_any(&self) -> &dyn Any;
}

/// Lists of each model whose entries are derived, and the marks of entries, derived or not.
#[derive(Clone, Debug, Default)]
pub struct DerivedLists {
    pub openconfig: Vec<NodeId>,
    pub native: Vec<NodeId>,
    pub marks: Vec<MarkPlace>,
}

impl DerivedLists {
    pub(crate) fn contains(&self, origin: Origin, list: NodeId) -> bool {
        match origin {
            Origin::OpenConfig => self.openconfig.contains(&list),
            Origin::Native => self.native.contains(&list),
        }
    }

    /// Where the entries of a list have their mark, if they have any.
    pub fn mark_of(&self, origin: Origin, list: NodeId) -> Option<MarkPlace> {
        self.marks.iter().find(|it| it.origin == origin && it.list == list).copied()
    }

    /// The place whose leaf this is.
    pub(crate) fn mark_at(&self, origin: Origin, leaf: NodeId) -> Option<MarkPlace> {
        self.marks.iter().find(|it| it.leaf == leaf && it.origin == origin).copied()
    }

    /// By node of a schema: true for these lists and all below.
    pub(crate) fn with_descendants(&self, schema: &Schema) -> Box<[bool]> {
        let mut is_inside = vec![false; schema.nodes().len()].into_boxed_slice();
        // Parents come before their children.
        for node in schema.nodes() {
            let is_below = node.parent.is_some_and(|parent| is_inside[parent.0 as usize]);
            is_inside[node.id.0 as usize] = is_below || self.contains(schema.origin(), node.id);
        }
        is_inside
    }
}

impl LeafMeta for LeafVersion {
    type Entry = ViewEntry;
}

impl From<Arc<Branch<LeafVersion>>> for ViewEntry {
    fn from(branch: Arc<Branch<LeafVersion>>) -> Self {
        Self::Stored(branch)
    }
}

impl ListEntry<LeafVersion> for ViewEntry {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => Arc::ptr_eq(one, other),
            (Self::Derived(one), Self::Derived(other)) => one.is_same(other),
            _ => false,
        }
    }

    fn branch(&self) -> EntryBranch<'_, LeafVersion> {
        match self {
            Self::Stored(branch) => EntryBranch::Stored(branch),
            Self::Derived(derived) => EntryBranch::Derived(Arc::new(derived.branch())),
        }
    }

    fn make_mut(&mut self) -> &mut Branch<LeafVersion> {
        if let Self::Derived(derived) = self {
            *self = Self::Stored(Arc::new(derived.branch()));
        }
        match self {
            Self::Stored(branch) => Arc::make_mut(branch),
            Self::Derived(_) => unreachable!("a derived entry was stored above"),
        }
    }
}

impl ViewEntry {
    /// Gives a derived entry its state; false for an entry that is stored.
    pub(crate) fn set_state(&mut self, state: &Arc<dyn EntryState>) -> bool {
        match self {
            Self::Derived(derived) => derived.state = Some(Arc::clone(state)),
            Self::Stored(_) => return false,
        }
        true
    }

    /// Replaces the mark of a derived entry by what follows from it; false for an entry that is stored.
    pub(crate) fn update_mark(
        &mut self,
        next: impl FnOnce(Option<Arc<MarkLeaf>>) -> Option<Arc<MarkLeaf>>,
    ) -> bool {
        match self {
            Self::Derived(derived) => derived.mark = next(derived.mark.take()),
            Self::Stored(_) => return false,
        }
        true
    }

    /// State of a derived entry.
    pub fn state(&self) -> Option<&Arc<dyn EntryState>> {
        match self {
            Self::Derived(derived) => derived.state.as_ref(),
            Self::Stored(_) => None,
        }
    }
}

impl DerivedEntry {
    pub(crate) fn new(
        origin: Origin,
        config: Option<Arc<Branch<LeafMark>>>,
        state: Option<Arc<dyn EntryState>>,
        version: &EntryVersion,
    ) -> Self {
        Self { origin, born: version.clone(), config, state, mark: None }
    }

    /// Removes configuration or state, with the mark. False when nothing is left.
    pub(crate) fn strip(&mut self, plane: ConfigOrState) -> bool {
        if plane != ConfigOrState::State {
            self.config = None;
        }
        if plane != ConfigOrState::Config {
            self.state = None;
            self.mark = None;
        }
        self.config.is_some() || self.state.is_some()
    }

    fn is_same(&self, other: &Self) -> bool {
        let config = match (&self.config, &other.config) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let state = match (&self.state, &other.state) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        config && state && self.born == other.born && self.mark == other.mark
    }

    fn branch(&self) -> Branch<LeafVersion> {
        let mut branch = Branch::default();
        let born = self.born.leaf_version();
        if let Some(config) = &self.config {
            branch = versioned(config, born);
            branch.given = true;
        }
        if let Some(state) = &self.state {
            state.show(self.origin, born, &mut branch);
        }
        if let Some(mark) = &self.mark {
            let MarkLeaf { place, leaf } = &**mark;
            let container = branch.container_mut(place.container);
            container.put_leaf(place.leaf, leaf.value.clone(), leaf.meta);
        }
        branch
    }
}

/// A branch of configuration, and all below it, with one version for all leaves.
fn versioned(from: &Branch<LeafMark>, version: LeafVersion) -> Branch<LeafVersion> {
    let mut branch = Branch::with_capacity(from.children().len());
    branch.given = from.given;
    for (node, child) in from.children() {
        let child = match child {
            Child::Leaf(leaf) => {
                branch.put_leaf(*node, leaf.value.clone(), version);
                continue;
            }
            Child::Container(inner) => Child::Container(Arc::new(versioned(inner, version))),
            Child::List(list) => {
                let entry = |entry: &Arc<Branch<LeafMark>>| {
                    let mut entry = versioned(entry, version);
                    entry.given = true;
                    Arc::new(entry)
                };
                let entries: List<LeafVersion> =
                    list.iter().map(|(keys, it)| (keys.clone(), entry(it))).collect();
                Child::List(entries)
            }
        };
        branch.put(*node, child);
    }
    branch
}

#[cfg(test)]
mod tests;
