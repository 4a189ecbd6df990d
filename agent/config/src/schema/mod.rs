//! The compiled schema of one origin: what nodes there are and what their values may be.
//!
//! Read once at start from the YANG modules; after that nothing of libyang is left.

mod compile;
mod quick;
mod raw;
mod scalar;
pub mod types;
pub mod when;
mod xsd;

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

pub use self::types::{Type, ValueError};
pub use self::when::When;

use crate::value::Value;

const NATIVE_MODULES: compile::Sources = &[
    ("holdfast-extensions", include_str!("../../yang/holdfast-extensions.yang")),
    ("holdfast", include_str!("../../yang/holdfast.yang")),
];

/// All but the two files of extensions are written from tables, see agent/config/profile.
const OPENCONFIG_MODULES: compile::Sources = &[
    ("holdfast-extensions", include_str!("../../yang/holdfast-extensions.yang")),
    ("openconfig-extensions", include_str!("../../yang/openconfig-extensions.yang")),
    ("ietf-interfaces", include_str!("../../yang/ietf-interfaces.yang")),
    ("iana-if-type", include_str!("../../yang/iana-if-type.yang")),
    ("openconfig-interfaces", include_str!("../../yang/openconfig-interfaces.yang")),
    ("openconfig-if-ethernet", include_str!("../../yang/openconfig-if-ethernet.yang")),
    ("openconfig-if-ip", include_str!("../../yang/openconfig-if-ip.yang")),
    ("openconfig-aaa-types", include_str!("../../yang/openconfig-aaa-types.yang")),
    ("openconfig-system", include_str!("../../yang/openconfig-system.yang")),
    ("openconfig-system-bootz", include_str!("../../yang/openconfig-system-bootz.yang")),
    ("openconfig-system-grpc", include_str!("../../yang/openconfig-system-grpc.yang")),
    ("openconfig-gnsi-acctz", include_str!("../../yang/openconfig-gnsi-acctz.yang")),
    ("openconfig-gnsi-authz", include_str!("../../yang/openconfig-gnsi-authz.yang")),
    ("openconfig-gnsi-certz", include_str!("../../yang/openconfig-gnsi-certz.yang")),
    ("openconfig-gnsi-credentialz", include_str!("../../yang/openconfig-gnsi-credentialz.yang")),
    ("openconfig-gnsi-pathz", include_str!("../../yang/openconfig-gnsi-pathz.yang")),
    ("openconfig-policy-types", include_str!("../../yang/openconfig-policy-types.yang")),
    ("openconfig-local-routing", include_str!("../../yang/openconfig-local-routing.yang")),
    (
        "openconfig-network-instance-types",
        include_str!("../../yang/openconfig-network-instance-types.yang"),
    ),
    ("openconfig-network-instance", include_str!("../../yang/openconfig-network-instance.yang")),
];

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
    /// All must hold for the node to exist.
    pub whens: Vec<When>,
    /// `(choice, case)` this node is a part of.
    pub choice: Option<(SmolStr, SmolStr)>,
    pub user_ordered: bool,
    /// `telemetry-on-change` of openconfig-extensions.
    pub on_change: bool,
    /// Derived state, not a mirror of configuration (what gNMI calls OPERATIONAL).
    pub operational: bool,
    /// `telemetry-atomic` of openconfig-extensions.
    pub atomic: bool,
    /// `openconfig-hashed-value` of openconfig-extensions.
    pub hashed: bool,
    /// One entry of this node is one kernel-side object of the kind named here (native models only).
    pub object: Option<SmolStr>,
    /// An entry means nothing without at least one of these leaves of it (native models only).
    pub one_of: Vec<SmolStr>,
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
    /// The leaf that a leafref points to; `ty` is that leaf's type.
    pub leafref: Option<NodeId>,
    /// `module:name` of the bases of an identityref, or of the identityrefs in a union.
    pub identity_bases: Vec<SmolStr>,
}

#[derive(Debug)]
pub struct Schema {
    origin: Origin,
    nodes: Vec<Node>,
    modules: Vec<Module>,
}

/// Why the models that are part of the binary could not be read: a mistake of ours, found by the first test.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the {origin} models: {reason}")]
pub struct SchemaError {
    pub origin: Origin,
    pub reason: String,
}

impl Origin {
    /// The origin of a gNMI path; empty is `openconfig`. None when this agent has no such origin.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "openconfig" => Some(Self::OpenConfig),
            "holdfast_native" => Some(Self::Native),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenConfig => "openconfig",
            Self::Native => "holdfast_native",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Schema {
    /// Compiles the OpenConfig profile.
    ///
    /// # Errors
    /// When the YANG text in the binary is broken.
    pub fn openconfig() -> Result<Self, SchemaError> {
        compile::compile(Origin::OpenConfig, OPENCONFIG_MODULES)
    }

    /// Compiles the native model.
    ///
    /// # Errors
    /// When the YANG text in the binary is broken.
    pub fn native() -> Result<Self, SchemaError> {
        compile::compile(Origin::Native, NATIVE_MODULES)
    }

    /// Other modules than ours, for tests.
    #[cfg(test)]
    pub(crate) fn from_text(modules: compile::Sources) -> Result<Self, SchemaError> {
        compile::compile(Origin::Native, modules)
    }

    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// All nodes, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[usize::from(id.0)]
    }

    /// The data node of this name below `parent`; without a module, the first of that name.
    pub fn child(&self, parent: NodeId, module: Option<&str>, name: &str) -> Option<NodeId> {
        // A scan: nodes have few children, and telling two names apart takes a word or two.
        self.node(parent).children.iter().copied().find(|&id| {
            let node = self.node(id);
            node.name == name && module.is_none_or(|module| self.module(node.module).name == module)
        })
    }

    /// The node at a schema path such as `/interfaces/interface/config/mtu`.
    pub fn find(&self, path: &str) -> Option<NodeId> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(self.root(), |at, elem| match elem
            .split_once(':')
        {
            Some((module, name)) => self.child(at, Some(module), name),
            None => self.child(at, None, elem),
        })
    }

    /// What is known of a leaf's or leaf-list's value.
    ///
    /// # Panics
    /// When the node is a container or list.
    pub fn leaf(&self, id: NodeId) -> &Leaf {
        self.node(id).leaf.as_ref().expect("the caller asks this of leaves only")
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// True for a leaf that is a key of the list whose entries it stands in.
    pub fn is_list_key(&self, leaf: NodeId) -> bool {
        let above = self.node(leaf).parent.map(|parent| &self.node(parent).kind);
        matches!(above, Some(NodeKind::List { keys }) if keys.contains(&leaf))
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 1.47
    #[test]
    fn the_openconfig_profile_compiles() {
        let schema = Schema::openconfig().unwrap();
        let type_leaf = schema.leaf(schema.find("/interfaces/interface/config/type").unwrap());
        let known = Value::Identity("iana-if-type:ethernetCsmacd".into());
        assert_eq!(type_leaf.ty.parse_text("ethernetCsmacd"), Ok(known.clone()));
        let ethernet = schema
            .node(schema.find("/interfaces/interface/openconfig-if-ethernet:ethernet").unwrap());
        assert_eq!(ethernet.whens[0].test.as_ref().unwrap().values[0], known);
        let prefix = schema.find(
            "/network-instances/network-instance/protocols/protocol/static-routes/static/prefix",
        );
        let ty = &schema.leaf(prefix.unwrap()).ty;
        assert_eq!(ty.parse_text("2001:DB8:0::/32"), Ok(Value::Str("2001:db8::/32".into())));
        assert_eq!(
            schema.modules().iter().find(|m| m.name == "openconfig-interfaces").unwrap().version,
            "3.8.1"
        );
    }

    #[test]
    fn the_native_model_compiles() {
        let schema = Schema::native().unwrap();
        let mtu = schema.find("/interfaces/interface/mtu").unwrap();
        assert_eq!(schema.leaf(mtu).ty.to_string(), "a uint32 within 68..65535");
        assert_eq!(schema.leaf(mtu).units.as_deref(), Some("octets"));
        let interface = schema.find("/holdfast:interfaces/interface").unwrap();
        assert_eq!(schema.node(interface).object.as_deref(), Some("link"));
        let keys = vec![schema.find("/interfaces/interface/name").unwrap()];
        assert_eq!(schema.node(interface).kind, NodeKind::List { keys });
        let enabled = schema.find("/interfaces/interface/enabled").unwrap();
        assert_eq!(schema.leaf(enabled).default, Some(Value::Bool(true)));
        let octets =
            schema.node(schema.find("/interfaces/interface/state/counters/in-octets").unwrap());
        assert!(octets.polled && octets.operational && !octets.config);
        assert!(!schema.node(schema.find("/interfaces/interface/state/mtu").unwrap()).operational);
    }
}
