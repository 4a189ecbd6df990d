//! Selection of the leaves for a request.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use holdfast_config::schema::{ModuleId, Node, Origin, Schema};
use holdfast_config::tree::{Branch, LeafMeta};
use holdfast_config::{NodeId, PathPattern};
use holdfast_security::pathz::NodeView;

use super::entry::DerivedLists;

/// The data type of a gNMI Get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadType {
    #[default]
    All,
    Config,
    State,
    /// State without a corresponding configuration leaf.
    Operational,
}

/// Way in which changes of a leaf are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeDetection {
    All,
    /// By events: leaves of a revision.
    Event,
    /// By polling: counters and clocks.
    Polled,
}

/// The lists whose leaves a selection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    All,
    /// Lists whose entries are derived, with everything below.
    Derived,
    /// Everything but those.
    Others,
}

/// Conditions for leaves, independent of their paths.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub read_type: ReadType,
    /// Modules to include; `None` for all.
    pub models: Option<HashSet<ModuleId>>,
    /// Levels below each path to include: 1 stands for the leaves directly in the named node. A list and its entry
    /// count as one level.
    pub depth: Option<NonZeroU32>,
}

/// Patterns and a filter, prepared for walks through trees of one schema.
#[derive(Clone, Debug)]
pub struct Selection {
    pub origin: Origin,
    pub(super) patterns: Arc<[PathPattern]>,
    leaf_set: Arc<LeafSet>,
    lists: Lists,
    /// Permissions of the reader; `None` permits everything.
    pub(super) permissions: Option<Arc<NodeView>>,
}

/// Leaves that pass a filter. Independent of the patterns, unless the depth is limited.
#[derive(Debug)]
pub struct LeafSet {
    /// By node: the leaves that pass, at it and below it.
    selected: Box<[SelectedLeaves]>,
    /// By node, for a limited depth: true for a leaf within it, and for a node with such leaves of its own.
    within_depth: Option<Box<[bool]>>,
    /// Key leaves of entries, when only configuration is selected.
    config_keys: HashSet<NodeId>,
}

/// Selected leaves at a node and below it.
#[derive(Clone, Copy, Debug, Default)]
struct SelectedLeaves {
    /// True when some are in lists whose entries are derived.
    in_derived_lists: bool,
    /// True when some are not.
    elsewhere: bool,
}

/// Leaves of the selections of one request, shared among them.
#[derive(Debug, Default)]
pub struct LeafSetCache {
    derived: Arc<DerivedLists>,
    leaf_sets: HashMap<(Origin, ChangeDetection, PatternEnds), Arc<LeafSet>>,
    builds: usize,
}

/// Nodes at which patterns end, for filters that depend on them.
type PatternEnds = Option<BTreeSet<NodeId>>;

impl Filter {
    pub fn matches(&self, node: &Node) -> bool {
        let kind = match self.read_type {
            ReadType::All => true,
            ReadType::Config => node.config,
            ReadType::State => !node.config,
            ReadType::Operational => !node.config && node.operational,
        };
        kind && self.models.as_ref().is_none_or(|models| models.contains(&node.module))
    }

    /// True for the key leaf of a list when only configuration is selected. The models class it as configuration,
    /// but it belongs to configuration and state alike: see [`super::Revision`].
    pub fn is_config_key(&self, schema: &Schema, node: &Node) -> bool {
        self.read_type == ReadType::Config && schema.is_list_key(node.id)
    }
}

impl ChangeDetection {
    fn matches(self, node: &Node) -> bool {
        match self {
            Self::All => true,
            Self::Event => !node.polled,
            Self::Polled => node.polled,
        }
    }
}

impl LeafSetCache {
    /// A cache for selections that can be told apart by whether a list has derived entries: see [`Selection::within`].
    pub fn new(derived: Arc<DerivedLists>) -> Self {
        Self { derived, ..Self::default() }
    }

    /// Leaves of one class that pass a filter, at or below the ends of patterns.
    fn leaf_set(
        &mut self,
        schema: &Schema,
        patterns: &[PathPattern],
        filter: &Filter,
        class: ChangeDetection,
    ) -> Arc<LeafSet> {
        let ends = filter.depth.map(|_| ends(schema, patterns).collect());
        let built = &mut self.builds;
        let derived = &self.derived;
        let leaves =
            self.leaf_sets.entry((schema.origin(), class, ends)).or_insert_with_key(|key| {
                *built += 1;
                Arc::new(LeafSet::new(schema, derived, key.2.as_ref(), filter, class))
            });
        Arc::clone(leaves)
    }

    /// Number of times that all nodes of a schema were visited.
    pub fn builds(&self) -> usize {
        self.builds
    }
}

impl LeafSet {
    fn new(
        schema: &Schema,
        derived: &DerivedLists,
        ends: Option<&BTreeSet<NodeId>>,
        filter: &Filter,
        class: ChangeDetection,
    ) -> Self {
        let mut selected = vec![SelectedLeaves::default(); schema.nodes().len()].into_boxed_slice();
        let is_derived = derived.with_descendants(schema);
        let reach =
            filter.depth.zip(ends).map(|(depth, ends)| nodes_within_depth(schema, ends, depth));
        // Parents come before their children, so in reverse order a node's descendants are complete.
        for node in schema.nodes().iter().rev() {
            let here = index(node.id);
            let leaf = node.leaf.is_some() && is_within_depth(reach.as_deref(), node.id);
            if leaf && filter.matches(node) && class.matches(node) {
                selected[here].in_derived_lists |= is_derived[here];
                selected[here].elsewhere |= !is_derived[here];
            }
            if let Some(parent) = node.parent {
                let below = selected[here];
                selected[index(parent)].in_derived_lists |= below.in_derived_lists;
                selected[index(parent)].elsewhere |= below.elsewhere;
            }
        }
        let keys = schema.nodes().iter().filter(|node| filter.is_config_key(schema, node));
        let config_keys = keys.map(|node| node.id).collect();
        Self { selected, within_depth: reach, config_keys }
    }
}

impl Selection {
    pub fn new(
        schema: &Schema,
        patterns: impl Into<Arc<[PathPattern]>>,
        filter: &Filter,
        class: ChangeDetection,
    ) -> Self {
        Self::with(&mut LeafSetCache::default(), schema, patterns, filter, class)
    }

    /// Selection of a request that has several with the same filter.
    pub fn with(
        cache: &mut LeafSetCache,
        schema: &Schema,
        patterns: impl Into<Arc<[PathPattern]>>,
        filter: &Filter,
        class: ChangeDetection,
    ) -> Self {
        let patterns = patterns.into();
        let leaves = cache.leaf_set(schema, &patterns, filter, class);
        let lists = Lists::All;
        Self { origin: schema.origin(), patterns, leaf_set: leaves, lists, permissions: None }
    }

    /// The part of the selection in these lists; `None` when it has no leaf there.
    pub fn within(&self, schema: &Schema, lists: Lists) -> Option<Self> {
        let part = Self { lists, ..self.clone() };
        (!part.is_empty(schema)).then_some(part)
    }

    pub(super) fn lists(&self) -> Lists {
        self.lists
    }

    /// Restricts the selection to the reader's permissions.
    #[must_use]
    pub fn with_permissions(self, rights: Option<Arc<NodeView>>) -> Self {
        Self { permissions: rights, ..self }
    }

    /// True when a wanted leaf is at the node or below it.
    pub fn selects(&self, node: NodeId) -> bool {
        let SelectedLeaves { in_derived_lists, elsewhere } = self.leaves(node);
        match self.lists {
            Lists::All => in_derived_lists || elsewhere,
            Lists::Derived => in_derived_lists,
            Lists::Others => elsewhere,
        }
    }

    /// True when leaves are at the node or below it both in lists whose entries are derived, and elsewhere.
    pub(super) fn is_above_derived(&self, node: NodeId) -> bool {
        let SelectedLeaves { in_derived_lists, elsewhere } = self.leaves(node);
        in_derived_lists && elsewhere
    }

    fn leaves(&self, node: NodeId) -> SelectedLeaves {
        self.leaf_set.selected.get(index(node)).copied().unwrap_or_default()
    }

    /// True for a leaf within the depth, and for a node that may have such leaves of its own.
    pub fn is_within_depth(&self, node: NodeId) -> bool {
        is_within_depth(self.leaf_set.within_depth.as_deref(), node)
    }

    /// True for a key leaf of an entry that exists for its state only, when configuration is selected.
    pub(super) fn hides_key<M: LeafMeta>(&self, node: NodeId, entry: &Branch<M>) -> bool {
        !entry.given && self.leaf_set.config_keys.contains(&node)
    }

    /// True when the selection can match no leaf.
    pub fn is_empty(&self, schema: &Schema) -> bool {
        !self.ends(schema).any(|end| self.selects(end))
    }

    /// Schema path of a leaf in the selection, for messages.
    pub fn first_leaf(&self, schema: &Schema) -> Option<String> {
        let below = self.ends(schema).find(|end| self.selects(*end))?;
        let mut node = schema.node(below);
        while let Some(child) = node.children.iter().find(|child| self.selects(**child)) {
            node = schema.node(*child);
        }
        let mut names = vec![node.name.as_str()];
        while let Some(parent) = node.parent.map(|parent| schema.node(parent)) {
            node = parent;
            names.push(node.name.as_str());
        }
        names.pop(); // the root has no name
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }

    /// A function that is true for a leaf of the selection, by its node in the schema.
    pub fn leaf_filter<'s>(&'s self, schema: &'s Schema) -> impl Fn(NodeId) -> bool + 's {
        let ends: HashSet<NodeId> = self.ends(schema).collect();
        move |leaf| {
            let is_below_end = schema.with_ancestors(leaf).any(|node| ends.contains(&node));
            is_below_end && self.selects(leaf)
        }
    }

    /// Nodes at which the patterns end.
    pub fn ends(&self, schema: &Schema) -> impl Iterator<Item = NodeId> {
        ends(schema, &self.patterns)
    }
}

fn ends(schema: &Schema, patterns: &[PathPattern]) -> impl Iterator<Item = NodeId> {
    let root = schema.root();
    patterns.iter().map(move |pattern| pattern.last().unwrap_or(root))
}

fn is_within_depth(reach: Option<&[bool]>, node: NodeId) -> bool {
    reach.is_none_or(|reach| reach.get(index(node)).copied().unwrap_or_default())
}

/// By node: true for a leaf no more than `depth` levels below the end of a pattern, and for a node with such
/// leaves.
fn nodes_within_depth(schema: &Schema, ends: &BTreeSet<NodeId>, depth: NonZeroU32) -> Box<[bool]> {
    let mut levels: Vec<Option<u32>> = vec![None; schema.nodes().len()];
    let mut within = vec![false; schema.nodes().len()].into_boxed_slice();
    // Parents come before their children.
    for node in schema.nodes() {
        let here = index(node.id);
        let above = node.parent.and_then(|parent| levels[index(parent)]).map(|level| level + 1);
        levels[here] = if ends.contains(&node.id) { Some(0) } else { above };
        let leaves = levels[here].map(|level| level + u32::from(node.leaf.is_none()));
        within[here] = leaves.is_some_and(|level| level <= depth.get());
    }
    within
}

fn index(node: NodeId) -> usize {
    node.0 as usize
}
