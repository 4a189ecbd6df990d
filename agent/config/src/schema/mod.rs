//! The compiled schema of one origin: what nodes there are and what their values may be.
//!
//! Read once at start from the YANG modules; after that nothing of libyang is left.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::value::Value;

/// Which tree of models a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    OpenConfig,
    Native,
}

/// A node of one [`Schema`]. Numbers are valid within one run of the agent; they are never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u16);

/// A module that the schema implements, as gNMI Capabilities lists it.
#[derive(Clone, Debug)]
pub struct Module {
    pub name: SmolStr,
    pub namespace: SmolStr,
    pub organization: SmolStr,
    /// `openconfig-version`, or the revision date of a module that has none.
    pub version: SmolStr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Root,
    Container { presence: bool },
    List { keys: Vec<NodeId> },
    Leaf,
    LeafList,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub parent: Option<NodeId>,
    pub name: SmolStr,
    pub module: ModuleId,
    pub kind: NodeKind,
    /// True for configuration, false for state.
    pub config: bool,
    /// In schema order.
    pub children: Vec<NodeId>,
    pub leaf: Option<Leaf>,
    /// `(choice, case)` this node is a part of.
    pub choice: Option<(SmolStr, SmolStr)>,
    pub user_ordered: bool,
    /// `telemetry-on-change` of openconfig-extensions.
    pub on_change: bool,
    /// `operational` of openconfig-extensions: derived state, not a mirror of configuration.
    pub operational: bool,
    /// `telemetry-atomic` of openconfig-extensions.
    pub atomic: bool,
    /// `openconfig-hashed-value` of openconfig-extensions.
    pub hashed: bool,
    /// One entry of this node is one kernel-side object of the kind named here (native models only).
    pub object: Option<SmolStr>,
    /// Changes without an event to tell of it (counters, clocks): read when asked, never kept.
    pub polled: bool,
}

/// What the schema says of a leaf's or leaf-list's value.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub ty: Arc<Type>,
    pub default: Option<Value>,
    pub mandatory: bool,
    pub units: Option<SmolStr>,
}

/// The type of a leaf after all typedefs. Filled in by the schema's reader.
#[derive(Clone, Debug)]
pub struct Type {}

#[derive(Debug)]
pub struct Schema {
    origin: Origin,
    nodes: Vec<Node>,
    modules: Vec<Module>,
}

impl Schema {
    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
}
