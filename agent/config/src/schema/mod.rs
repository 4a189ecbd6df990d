//! Compiled schemas: the nodes of each origin and the types of their values.
//!
//! A schema is compiled from the YANG modules at start, and again when the modules beside them differ
//! ([`Schema::with_modules`]).

mod append;
mod compile;
mod libyang;
mod node_hashes;
mod pattern_checks;
mod scalar;
pub mod types;
mod validator;
pub mod when;
mod xsd;

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

pub use self::append::YangModule;
pub use self::node_hashes::HashCollision;
pub(crate) use self::node_hashes::NodeHashes;
pub use self::types::{Type, ValueError};
pub use self::validator::{InvalidData, Validator};
pub use self::when::When;

use crate::instance::Step;
pub use crate::node_id::NodeId;
use crate::value::Value;

const NATIVE_MODULES: compile::Sources = &[
    ("holdfast-extensions", include_str!("../../yang/holdfast-extensions.yang")),
    ("holdfast", include_str!("../../yang/holdfast.yang")),
];

/// All files but the two of extensions are generated from tables, see agent/config/profile.
const OPENCONFIG_MODULES: compile::Sources = &[
    ("holdfast-extensions", include_str!("../../yang/holdfast-extensions.yang")),
    ("openconfig-extensions", include_str!("../../yang/openconfig-extensions.yang")),
    ("ietf-interfaces", include_str!("../../yang/ietf-interfaces.yang")),
    ("iana-if-type", include_str!("../../yang/iana-if-type.yang")),
    ("openconfig-platform-types", include_str!("../../yang/openconfig-platform-types.yang")),
    ("openconfig-platform", include_str!("../../yang/openconfig-platform.yang")),
    ("openconfig-platform-fan", include_str!("../../yang/openconfig-platform-fan.yang")),
    ("openconfig-interfaces", include_str!("../../yang/openconfig-interfaces.yang")),
    ("openconfig-if-ethernet", include_str!("../../yang/openconfig-if-ethernet.yang")),
    ("openconfig-if-aggregate", include_str!("../../yang/openconfig-if-aggregate.yang")),
    ("openconfig-if-rates", include_str!("../../yang/openconfig-if-rates.yang")),
    ("openconfig-lacp", include_str!("../../yang/openconfig-lacp.yang")),
    ("openconfig-vlan", include_str!("../../yang/openconfig-vlan.yang")),
    ("openconfig-platform-port", include_str!("../../yang/openconfig-platform-port.yang")),
    ("openconfig-if-ip", include_str!("../../yang/openconfig-if-ip.yang")),
    ("openconfig-if-ip-ext", include_str!("../../yang/openconfig-if-ip-ext.yang")),
    ("openconfig-if-sdn-ext", include_str!("../../yang/openconfig-if-sdn-ext.yang")),
    ("openconfig-aaa-types", include_str!("../../yang/openconfig-aaa-types.yang")),
    ("openconfig-alarm-types", include_str!("../../yang/openconfig-alarm-types.yang")),
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
    (
        "openconfig-aft-network-instance",
        include_str!("../../yang/openconfig-aft-network-instance.yang"),
    ),
];

/// Modules in the binary.
fn sources(origin: Origin) -> compile::Sources {
    match origin {
        Origin::OpenConfig => OPENCONFIG_MODULES,
        Origin::Native => NATIVE_MODULES,
    }
}

/// Family of models that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    OpenConfig,
    Native,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u16);

/// An implemented module, as in gNMI Capabilities.
#[derive(Clone, Debug)]
pub struct Module {
    pub name: SmolStr,
    pub namespace: SmolStr,
    pub organization: SmolStr,
    /// Value of `openconfig-version`, or the revision date of a module without one.
    pub version: SmolStr,
    /// The module is there no more.
    pub is_unlinked: bool,
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
    /// Children in schema order.
    pub children: Vec<NodeId>,
    pub leaf: Option<LeafSchema>,
    /// Conditions that must all hold for the node to exist.
    pub whens: Vec<When>,
    /// `(choice, case)` that the node belongs to.
    pub choice: Option<(SmolStr, SmolStr)>,
    pub user_ordered: bool,
    /// `telemetry-on-change` of openconfig-extensions.
    pub on_change: bool,
    /// Derived state, not a copy of configuration (what gNMI calls OPERATIONAL).
    pub operational: bool,
    /// `telemetry-atomic` of openconfig-extensions.
    pub atomic: bool,
    /// `openconfig-hashed-value` of openconfig-extensions.
    pub hashed: bool,
    /// Kind of kernel object that an entry of this node describes (native models only).
    pub object: Option<SmolStr>,
    /// Leaves; an entry needs at least one of them (native models only).
    pub one_of: Vec<SmolStr>,
    /// An entry with nothing but its keys is complete (native models only).
    pub keys_suffice: bool,
    /// Changes without an event (counters, clocks), so the value is read on demand and never cached.
    pub polled: bool,
    /// No module has the node any more; nothing leads to it.
    pub is_unlinked: bool,
}

/// Type and attributes of a leaf's or leaf-list's value.
#[derive(Clone, Debug)]
pub struct LeafSchema {
    pub ty: Arc<Type>,
    pub default: Option<Value>,
    pub mandatory: bool,
    pub units: Option<SmolStr>,
    /// Target of a leafref, whose type is `ty`.
    pub leafref: Option<NodeId>,
    /// `module:name` of the bases of an identityref, or of the identityrefs in a union.
    pub identity_bases: Vec<SmolStr>,
}

#[derive(Clone, Debug)]
pub struct Schema {
    origin: Origin,
    nodes: Vec<Node>,
    modules: Vec<Module>,
    /// Modules beside those in the binary.
    appended: Vec<YangModule>,
}

/// Error in YANG models. The first test would find one in those of the binary.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the {origin} models: {reason}")]
pub struct SchemaError {
    pub origin: Origin,
    pub reason: String,
    /// Module and line, of a module that is not in the binary, where they are known.
    pub place: Option<(SmolStr, usize)>,
}

impl Origin {
    /// Parses the origin of a gNMI path; empty means `openconfig`. `None` for an unknown origin.
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
    /// When the YANG text in the binary is invalid.
    pub fn openconfig() -> Result<Self, SchemaError> {
        compile::compile(Origin::OpenConfig, OPENCONFIG_MODULES, &[])
    }

    /// Compiles the native model.
    ///
    /// # Errors
    /// When the YANG text in the binary is invalid.
    pub fn native() -> Result<Self, SchemaError> {
        compile::compile(Origin::Native, NATIVE_MODULES, &[])
    }

    /// Compiles other modules, for tests.
    #[cfg(test)]
    pub(crate) fn from_text(modules: compile::Sources) -> Result<Self, SchemaError> {
        compile::compile(Origin::Native, modules, &[])
    }

    pub fn root(&self) -> NodeId {
        NodeId(0)
    }

    /// All nodes, unlinked ones too, parents before children.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn module(&self, id: ModuleId) -> &Module {
        &self.modules[usize::from(id.0)]
    }

    /// Child of `parent` by name; without a module, the first of that name.
    pub fn child(&self, parent: NodeId, module: Option<&str>, name: &str) -> Option<NodeId> {
        // A linear search suffices: nodes have few children, and names are quick to compare.
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

    /// The node and all above it, the root last.
    pub fn with_ancestors(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(id), |node| self.node(*node).parent)
    }

    /// True for a list whose entries exist only in readings, because their keys are polled.
    pub fn is_polled_list(&self, id: NodeId) -> bool {
        match &self.node(id).kind {
            NodeKind::List { keys } => keys.iter().any(|key| self.node(*key).polled),
            _ => false,
        }
    }

    /// True for a node that exists only in readings: at or below a polled list, or above nothing but such lists.
    pub fn is_only_polled(&self, id: NodeId) -> bool {
        let children = &self.node(id).children;
        self.with_ancestors(id).any(|node| self.is_polled_list(node))
            || (!children.is_empty() && children.iter().all(|child| self.is_only_polled(*child)))
    }

    /// Type and attributes of a leaf's or leaf-list's value.
    ///
    /// # Panics
    /// When the node is a container or list.
    pub fn leaf(&self, id: NodeId) -> &LeafSchema {
        self.node(id).leaf.as_ref().expect("the caller asks this of leaves only")
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// Key leaves of a list, in their order; none for other nodes.
    pub fn keys(&self, list: NodeId) -> &[NodeId] {
        match &self.node(list).kind {
            NodeKind::List { keys } => keys,
            _ => &[],
        }
    }

    /// Steps from the root to a node, those of lists without keys.
    pub fn steps(&self, node: NodeId) -> Vec<Step> {
        let above = |node: &NodeId| self.node(*node).parent;
        let mut steps: Vec<_> = std::iter::successors(Some(node), above).map(Step::node).collect();
        steps.pop(); // the root is not a step
        steps.reverse();
        steps
    }

    /// The part of a path that leads to the innermost object on it.
    pub fn innermost_object<'p>(&self, path: &'p [Step]) -> Option<&'p [Step]> {
        let at = path.iter().rposition(|step| self.node(step.node).object.is_some())?;
        Some(&path[..=at])
    }

    /// Paths of the configuration that an object has for itself: its leaves and containers, without other objects.
    pub fn own_nodes<'p>(
        &'p self,
        object: &'p [Step],
    ) -> impl Iterator<Item = Vec<Step>> + use<'p> {
        let children = object.last().map(|step| &self.node(step.node).children);
        let children = children.into_iter().flatten().copied();
        let own = children.filter(|&child| {
            let node = self.node(child);
            node.config && node.object.is_none()
        });
        own.map(|child| object.iter().cloned().chain([Step::node(child)]).collect())
    }

    /// True for a leaf that is a key of its list.
    pub fn is_list_key(&self, leaf: NodeId) -> bool {
        self.node(leaf).parent.is_some_and(|parent| self.keys(parent).contains(&leaf))
    }

    /// The modules that are there, with their numbers.
    pub fn modules(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        let numbered = (0..).map(ModuleId).zip(&self.modules);
        numbered.filter(|(_, module)| !module.is_unlinked)
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
        let identity = Value::Identity("iana-if-type:ethernetCsmacd".into());
        assert_eq!(type_leaf.ty.parse_text("ethernetCsmacd"), Ok(identity.clone()));
        let ethernet = schema
            .node(schema.find("/interfaces/interface/openconfig-if-ethernet:ethernet").unwrap());
        assert_eq!(ethernet.whens[0].test.as_ref().unwrap().values[0], identity);
        let prefix = schema.find(
            "/network-instances/network-instance/protocols/protocol/static-routes/static/prefix",
        );
        let ty = &schema.leaf(prefix.unwrap()).ty;
        assert_eq!(ty.parse_text("2001:DB8:0::/32"), Ok(Value::Str("2001:db8::/32".into())));
        assert_eq!(
            schema.modules().find(|(_, m)| m.name == "openconfig-interfaces").unwrap().1.version,
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
