//! Selection of the leaves for a request.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use holdfast_config::schema::{ModuleId, Node, Origin, Schema};
use holdfast_config::tree::Branch;
use holdfast_config::{NodeId, Pattern};
use holdfast_security::pathz::NodeView;

/// The data type of a gNMI Get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    All,
    Config,
    State,
    /// State without a corresponding configuration leaf.
    Operational,
}

/// Way in which changes of a leaf are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    All,
    /// By events: leaves of a revision.
    Event,
    /// By polling: counters and clocks.
    Polled,
}

/// Conditions for leaves, independent of their paths.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kind: Kind,
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
    pub(super) patterns: Arc<[Pattern]>,
    leaves: Arc<Leaves>,
    /// Permissions of the reader; `None` permits everything.
    pub(super) rights: Option<Arc<NodeView>>,
}

/// Leaves that pass a filter. Independent of the patterns, unless the depth is limited.
#[derive(Debug)]
pub struct Leaves {
    /// By node: true for a leaf that passes, and for ancestors of one.
    wanted: Box<[bool]>,
    /// By node, for a limited depth: true for a leaf within it, and for a node with such leaves of its own.
    reach: Option<Box<[bool]>>,
    /// Key leaves of entries, when only configuration is selected.
    config_keys: HashSet<NodeId>,
}

/// Leaves of the selections of one request, shared among them.
#[derive(Debug, Default)]
pub struct LeavesCache {
    known: HashMap<(Origin, Class, Ends), Arc<Leaves>>,
    made: usize,
}

/// Nodes at which patterns end, for filters that depend on them.
type Ends = Option<BTreeSet<NodeId>>;

impl Filter {
    pub fn takes(&self, node: &Node) -> bool {
        let kind = match self.kind {
            Kind::All => true,
            Kind::Config => node.config,
            Kind::State => !node.config,
            Kind::Operational => !node.config && node.operational,
        };
        kind && self.models.as_ref().is_none_or(|models| models.contains(&node.module))
    }

    /// True for the key leaf of a list when only configuration is selected. The models class it as configuration,
    /// but it belongs to every plane that has its entry: see [`super::Revision`].
    pub fn is_config_key(&self, schema: &Schema, node: &Node) -> bool {
        self.kind == Kind::Config && schema.is_list_key(node.id)
    }
}

impl Class {
    fn takes(self, node: &Node) -> bool {
        match self {
            Self::All => true,
            Self::Event => !node.polled,
            Self::Polled => node.polled,
        }
    }
}

impl LeavesCache {
    /// Leaves of one class that pass a filter, at or below the ends of patterns.
    fn leaves(
        &mut self,
        schema: &Schema,
        patterns: &[Pattern],
        filter: &Filter,
        class: Class,
    ) -> Arc<Leaves> {
        let ends = filter.depth.map(|_| ends(schema, patterns).collect());
        let made = &mut self.made;
        let leaves = self.known.entry((schema.origin(), class, ends)).or_insert_with_key(|key| {
            *made += 1;
            Arc::new(Leaves::new(schema, key.2.as_ref(), filter, class))
        });
        Arc::clone(leaves)
    }

    /// Number of times that all nodes of a schema were visited.
    pub fn made(&self) -> usize {
        self.made
    }
}

impl Leaves {
    fn new(
        schema: &Schema,
        ends: Option<&BTreeSet<NodeId>>,
        filter: &Filter,
        class: Class,
    ) -> Self {
        let mut wanted = vec![false; schema.nodes().len()].into_boxed_slice();
        let reach = filter.depth.zip(ends).map(|(depth, ends)| within(schema, ends, depth));
        // Parents come before their children, so in reverse order a node's descendants are complete.
        for node in schema.nodes().iter().rev() {
            let here = index(node.id);
            let leaf = node.leaf.is_some() && reaches(reach.as_deref(), node.id);
            wanted[here] |= leaf && filter.takes(node) && class.takes(node);
            if let (true, Some(parent)) = (wanted[here], node.parent) {
                wanted[index(parent)] = true;
            }
        }
        let keys = schema.nodes().iter().filter(|node| filter.is_config_key(schema, node));
        let config_keys = keys.map(|node| node.id).collect();
        Self { wanted, reach, config_keys }
    }
}

impl Selection {
    pub fn new(
        schema: &Schema,
        patterns: impl Into<Arc<[Pattern]>>,
        filter: &Filter,
        class: Class,
    ) -> Self {
        Self::with(&mut LeavesCache::default(), schema, patterns, filter, class)
    }

    /// Selection of a request that has several with the same filter.
    pub fn with(
        cache: &mut LeavesCache,
        schema: &Schema,
        patterns: impl Into<Arc<[Pattern]>>,
        filter: &Filter,
        class: Class,
    ) -> Self {
        let patterns = patterns.into();
        let leaves = cache.leaves(schema, &patterns, filter, class);
        Self { origin: schema.origin(), patterns, leaves, rights: None }
    }

    /// Restricts the selection to the reader's permissions.
    #[must_use]
    pub fn through(self, rights: Option<Arc<NodeView>>) -> Self {
        Self { rights, ..self }
    }

    /// True when a wanted leaf is at the node or below it.
    pub fn wants(&self, node: NodeId) -> bool {
        self.leaves.wanted.get(index(node)).copied().unwrap_or_default()
    }

    /// True for a leaf within the depth, and for a node that may have such leaves of its own.
    pub fn reaches(&self, node: NodeId) -> bool {
        reaches(self.leaves.reach.as_deref(), node)
    }

    /// True for a key leaf of an entry that exists for its state only, when configuration is selected.
    pub(super) fn hides<M>(&self, node: NodeId, entry: &Branch<M>) -> bool {
        !entry.given && self.leaves.config_keys.contains(&node)
    }

    /// True when the selection can match no leaf.
    pub fn is_empty(&self, schema: &Schema) -> bool {
        !self.ends(schema).any(|end| self.wants(end))
    }

    /// Schema path of a leaf in the selection, for messages.
    pub fn first_leaf(&self, schema: &Schema) -> Option<String> {
        let below = self.ends(schema).find(|end| self.wants(*end))?;
        let mut node = schema.node(below);
        while let Some(child) = node.children.iter().find(|child| self.wants(**child)) {
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

    /// Nodes at which the patterns end.
    pub fn ends(&self, schema: &Schema) -> impl Iterator<Item = NodeId> {
        ends(schema, &self.patterns)
    }
}

fn ends(schema: &Schema, patterns: &[Pattern]) -> impl Iterator<Item = NodeId> {
    let root = schema.root();
    patterns.iter().map(move |pattern| pattern.last().unwrap_or(root))
}

fn reaches(reach: Option<&[bool]>, node: NodeId) -> bool {
    reach.is_none_or(|reach| reach[index(node)])
}

/// By node: true for a leaf no more than `depth` levels below the end of a pattern, and for a node with such
/// leaves.
fn within(schema: &Schema, ends: &BTreeSet<NodeId>, depth: NonZeroU32) -> Box<[bool]> {
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
