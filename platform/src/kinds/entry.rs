//! One entry of the native model, whatever the metadata of its tree, while values are made of its leaves.

use std::any::Any;
use std::net::IpAddr;
use std::str::FromStr;

use holdfast_config::tree::ListEntry as _;
use holdfast_config::{Branch, InstancePath, Keys, LeafMeta, NodeId, Provenance, Step, Value};
use holdfast_scheduler::{Key, Segment, SharedValue};
use smallvec::SmallVec;
use smol_str::{SmolStr, ToSmolStr as _, format_smolstr};

use super::types::MacAddr;

/// Values that an object asks for, with their keys. Most objects ask for one.
pub type ObjectValues = SmallVec<[(Key, SharedValue); 1]>;

/// Keys of the values that an object asks for.
pub type ObjectKeys = SmallVec<[Key; 1]>;

/// Reason why a configured object has no value.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{reason}")]
pub struct ObjectError {
    /// The leaf or entry at fault, in the native tree.
    pub path: InstancePath,
    /// Problem found.
    pub reason: String,
    /// True when only a mandatory leaf is missing, which another configuration layer may still supply.
    pub incomplete: bool,
}

/// A branch of a tree with any metadata.
pub(crate) trait BranchView {
    fn value(&self, leaf: NodeId) -> Option<&Value>;
    /// True for a leaf that stems from a lease and from no other layer.
    fn is_leased(&self, leaf: NodeId) -> bool;
    fn container(&self, node: NodeId) -> Option<&dyn BranchView>;
    fn has_list(&self, list: NodeId) -> bool;
    fn each_entry(&self, list: NodeId, visit: &mut dyn FnMut(&Keys, &dyn BranchView));
}

impl<M: LeafMeta> BranchView for Branch<M> {
    fn value(&self, leaf: NodeId) -> Option<&Value> {
        self.value(leaf)
    }

    fn is_leased(&self, leaf: NodeId) -> bool {
        let meta = self.leaf(leaf).map(|leaf| &leaf.meta as &dyn Any);
        let provenance = meta.and_then(|meta| meta.downcast_ref::<Provenance>());
        provenance.is_some_and(Provenance::is_leased)
    }

    fn container(&self, node: NodeId) -> Option<&dyn BranchView> {
        self.container(node).map(|branch| &**branch as &dyn BranchView)
    }

    fn has_list(&self, list: NodeId) -> bool {
        self.list(list).is_some()
    }

    fn each_entry(&self, list: NodeId, visit: &mut dyn FnMut(&Keys, &dyn BranchView)) {
        for (keys, entry) in self.list(list).into_iter().flat_map(|list| list.iter()) {
            visit(keys, &**entry.branch());
        }
    }
}

/// Link and address that the key of an address or a neighbour consists of.
pub(crate) fn link_and_ip(key: &Key) -> Option<(SmolStr, IpAddr)> {
    let mut segments = key.segments();
    match (segments.next()?, segments.next()?) {
        (Segment::Str(link), Segment::Ip(ip)) => Some((link.into(), ip)),
        _ => None,
    }
}

/// Reason why a host cannot have this address.
pub(crate) fn not_of_a_host(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("the unspecified one"),
        _ if ip.is_multicast() => Some("one of a multicast group"),
        IpAddr::V4(ip) if ip.is_broadcast() => Some("the broadcast one"),
        _ => None,
    }
}

/// Reason why no single host can have this link-layer address.
pub(crate) fn not_of_one_host(mac: MacAddr) -> Option<&'static str> {
    match mac.0 {
        [0, 0, 0, 0, 0, 0] => Some("the address of all zeros"),
        [first, ..] if first & 1 == 1 => Some("a group address"),
        _ => None,
    }
}

/// Step of a path that names a link: `interfaces/interface[name]`.
pub(crate) const LINK_STEP: usize = 1;

/// Step of a path that names a VLAN of the link: `interfaces/interface[name]/vlan[index]`. No other list stands there.
const VLAN_STEP: usize = LINK_STEP + 1;

/// Path of the link that an object below it is on.
pub(crate) fn link_above(path: &InstancePath) -> InstancePath {
    let last = if vlan_index(path).is_some() { VLAN_STEP } else { LINK_STEP };
    InstancePath(path.0[..=last].to_vec())
}

/// Index of the VLAN that a path leads to or through.
pub(crate) fn vlan_index(path: &InstancePath) -> Option<u64> {
    match **path.0.get(VLAN_STEP)?.keys.as_ref()? {
        [Value::Uint(index)] => Some(index),
        _ => None,
    }
}

/// Name of the link that is a VLAN of a port.
pub fn vlan_name(port: &str, index: u64) -> SmolStr {
    format_smolstr!("{port}.{index}")
}

/// Port and index of the VLAN that a link of this name is: `PORT.INDEX` is always a VLAN of `PORT`, whoever made it. A VLAN of a
/// VLAN is an interface of its own.
pub(crate) fn vlan_of(name: &str) -> Option<(&str, u32)> {
    let (port, digits) = name.rsplit_once('.')?;
    let index: u32 = digits.parse().ok()?;
    let is_plain = index > 0 && !digits.starts_with(['0', '+']) && !port.is_empty();
    (is_plain && vlan_of(port).is_none()).then_some((port, index))
}

/// The entry of an interface, beside that of another interface or of one of its VLANs.
pub(crate) fn interface_beside(entry: &InstancePath, name: &str) -> InstancePath {
    let above = InstancePath(entry.0[..LINK_STEP].to_vec());
    let keys = Keys::single(Value::Str(name.into()));
    above.join(Step::entry(entry.0[LINK_STEP].node, keys))
}

/// The interface that a link is, or is a VLAN of, and the index of the VLAN: 0 for the interface itself.
pub fn interface_of(link: &str) -> (&str, u32) {
    vlan_of(link).unwrap_or((link, 0))
}

pub(crate) fn only_text(keys: &Keys) -> Option<&SmolStr> {
    match &**keys {
        [Value::Str(text)] => Some(text),
        _ => None,
    }
}

/// Entry of an object, or of a list within it, while its leaves are converted.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// Path of the object.
    pub(crate) path: &'a InstancePath,
    /// List and keys of an entry within the object. A path is built only for error messages.
    inner: Option<(NodeId, &'a Keys)>,
    pub(crate) branch: &'a dyn BranchView,
    /// Content of the object around it, where values follow from that, too.
    above: Option<&'a dyn BranchView>,
}

impl<'a> Entry<'a> {
    pub(crate) fn of(path: &'a InstancePath, branch: &'a dyn BranchView) -> Self {
        Self { path, inner: None, branch, above: None }
    }

    /// The entry within an object with this content.
    pub(crate) fn below(self, above: Option<&'a dyn BranchView>) -> Self {
        Self { above, ..self }
    }

    /// An entry of a list within this object.
    pub(crate) fn inner<'b>(
        &self,
        list: NodeId,
        keys: &'b Keys,
        branch: &'b dyn BranchView,
    ) -> Entry<'b>
    where
        'a: 'b,
    {
        Entry { path: self.path, inner: Some((list, keys)), branch, above: None }
    }

    /// Full path of the entry.
    pub(crate) fn place(&self) -> InstancePath {
        match self.inner {
            None => self.path.clone(),
            Some((list, keys)) => self.path.join(Step::entry(list, keys.clone())),
        }
    }

    pub(crate) fn value(&self, leaf: NodeId) -> Option<&Value> {
        self.branch.value(leaf)
    }

    pub(crate) fn text(&self, leaf: NodeId) -> Option<SmolStr> {
        text(self.value(leaf)?)
    }

    /// Values of a leaf-list.
    pub(crate) fn texts(&self, leaf: NodeId) -> Vec<SmolStr> {
        match self.value(leaf) {
            Some(Value::List(values)) => values.iter().filter_map(text).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn number<N: TryFrom<u64>>(&self, leaf: NodeId) -> Option<N> {
        number(self.value(leaf)?)
    }

    /// A leaf of the object around the entry.
    pub(crate) fn number_above<N: TryFrom<u64>>(&self, leaf: NodeId) -> Option<N> {
        number(self.above?.value(leaf)?)
    }

    pub(crate) fn bool(&self, leaf: NodeId) -> Option<bool> {
        match self.value(leaf)? {
            Value::Bool(on) => Some(*on),
            _ => None,
        }
    }

    /// Parses a leaf's text as a type of its own.
    pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &self,
        leaf: NodeId,
    ) -> Result<Option<T>, ObjectError> {
        let Some(text) = self.text(leaf) else { return Ok(None) };
        let parsed = text.parse().map_err(|error| self.leaf_error(leaf, format!("{error}")));
        parsed.map(Some)
    }

    /// Key of a step on the way to the object, such as the name of its link.
    pub(crate) fn name_of_step(&self, step: usize) -> Result<&'a SmolStr, ObjectError> {
        let name = self.path.0.get(step).and_then(|step| only_text(step.keys.as_ref()?));
        name.ok_or_else(|| self.error("the agent knows no such object"))
    }

    /// Name of the link that the object is, or is on.
    pub(crate) fn link_name(&self) -> Result<SmolStr, ObjectError> {
        let interface = self.name_of_step(LINK_STEP)?;
        let index = vlan_index(self.path);
        Ok(index.map_or_else(|| interface.clone(), |index| vlan_name(interface, index)))
    }

    /// List or container of the object.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.path.last().map(|step| step.node)
    }

    pub(crate) fn key_text(&self) -> Option<&'a SmolStr> {
        let own = || self.path.last()?.keys.as_ref();
        only_text(self.inner.map(|(_, keys)| keys).or_else(own)?)
    }

    /// Parses the only key of the entry.
    pub(crate) fn key_as<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ObjectError> {
        let text = self.key_text().ok_or_else(|| self.error("its key is not a text"))?;
        text.parse().map_err(|error| self.error(format!("`{text}`: {error}")))
    }

    pub(crate) fn container(&self, node: NodeId) -> Option<Entry<'_>> {
        Some(Entry { branch: self.branch.container(node)?, ..*self })
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> ObjectError {
        ObjectError { path: self.place(), reason: reason.into(), incomplete: false }
    }

    pub(crate) fn leaf_error(&self, leaf: NodeId, reason: impl Into<String>) -> ObjectError {
        let path = self.place().join(Step::node(leaf));
        ObjectError { path, reason: reason.into(), incomplete: false }
    }

    pub(crate) fn inner_error(
        &self,
        container: NodeId,
        leaf: NodeId,
        reason: impl Into<String>,
    ) -> ObjectError {
        let path = self.place().join(Step::node(container)).join(Step::node(leaf));
        ObjectError { path, reason: reason.into(), incomplete: false }
    }

    pub(crate) fn incomplete(&self, leaf: NodeId) -> ObjectError {
        ObjectError { incomplete: true, ..self.leaf_error(leaf, "this leaf is mandatory") }
    }
}

pub(crate) fn text(value: &Value) -> Option<SmolStr> {
    match value {
        Value::Str(text) => Some(text.clone()),
        Value::Enum(name) => Some((*name).into()),
        _ => None,
    }
}

pub(crate) fn number<N: TryFrom<u64>>(value: &Value) -> Option<N> {
    match value {
        Value::Uint(number) => N::try_from(*number).ok(),
        Value::Int(number) => N::try_from(u64::try_from(*number).ok()?).ok(),
        _ => None,
    }
}

pub(crate) fn ip_text(ip: IpAddr) -> Value {
    Value::Str(ip.to_smolstr())
}
