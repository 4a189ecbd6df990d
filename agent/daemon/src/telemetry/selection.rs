//! Which leaves of a tree a request asked for.

use std::collections::HashSet;

use holdfast_config::schema::{ModuleId, Node, Origin, Schema};
use holdfast_config::{NodeId, Pattern};

/// The data type of a gNMI Get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    All,
    Config,
    State,
    /// State that mirrors no configuration.
    Operational,
}

/// How a leaf's changes become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    All,
    /// By an event: what a revision holds.
    Event,
    /// By asking: counters and clocks.
    Polled,
}

/// Which leaves take part, wherever they stand.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kind: Kind,
    /// The modules whose leaves are wanted; all when none is named.
    pub models: Option<HashSet<ModuleId>>,
}

/// Patterns and a filter, prepared for walking trees of one schema.
#[derive(Clone, Debug)]
pub struct Selection {
    pub origin: Origin,
    pub(super) patterns: Vec<Pattern>,
    /// By node: a leaf that is wanted, or something with such a leaf below it.
    wanted: Box<[bool]>,
}

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

impl Selection {
    pub fn new(schema: &Schema, patterns: Vec<Pattern>, filter: &Filter, class: Class) -> Self {
        let mut wanted = vec![false; schema.nodes().len()].into_boxed_slice();
        // Parents come before their children, so that from behind each node is complete in its turn.
        for node in schema.nodes().iter().rev() {
            let here = index(node.id);
            wanted[here] |= node.leaf.is_some() && filter.takes(node) && class.takes(node);
            if let (true, Some(parent)) = (wanted[here], node.parent) {
                wanted[index(parent)] = true;
            }
        }
        Self { origin: schema.origin(), patterns, wanted }
    }

    /// True when a leaf that is wanted stands at the node or below it.
    pub fn wants(&self, node: NodeId) -> bool {
        self.wanted.get(index(node)).copied().unwrap_or_default()
    }

    /// True when no tree can hold a leaf that this selects.
    pub fn is_empty(&self, schema: &Schema) -> bool {
        !self.patterns.iter().any(|p| self.wants(p.last().unwrap_or(schema.root())))
    }
}

fn index(node: NodeId) -> usize {
    node.0 as usize
}
