//! Conversion of native objects to values and back.
//!
//! Start at [`Registry::values`]: one entry of the native tree with all its own leaves becomes typed values with their
//! keys, one for each kernel object that it asks for. An entry that asks for none, such as a user, is checked and has no
//! values; those of [`Setting`] are for the engine itself. Configuration that no value can express is refused with path
//! and reason. The reverse, from values to state leaves, is in [`state`].

use std::fmt::Debug;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use holdfast_config::{
    Branch, InstancePath, Keys, LeafMeta, NodeId, Provenance, Schema, Step, Value,
};
use holdfast_scheduler::{Key, ObjectValue, Owner, SharedValue};
use ipnet::Ipv4Net;
use smallvec::SmallVec;
use smol_str::{SmolStr, ToSmolStr as _};

mod access;
mod entries;
mod link;
mod link_status;
mod nodes;
mod pairs;
mod reconciliation;
mod route;
pub mod state;
mod system;
#[cfg(test)]
mod tests;

use crate::kinds;
use crate::values::{Address, Family, Link, MacAddr, Neighbor};
use nodes::Nodes;
use state::Planes;

pub use access::{GRPC_SERVER, Profiles};
pub use entries::{EntryShare, StatusNodes, ValueEntry};
pub use link_status::{DownBy, LinkStatus, LinkStatusSettings, PenaltySettings};
pub use nodes::ModelError;
pub use pairs::VethPairs;
pub use reconciliation::{DriftAction, Setting};
pub use route::{DEFAULT_INSTANCE, RouteHop};
#[cfg(test)]
pub(crate) use system::System;

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

/// Converts native objects to values, and values to native state.
#[derive(Clone, Debug)]
pub struct Registry {
    nodes: Nodes,
    /// TLS profiles that may be referred to.
    profiles: Arc<dyn Profiles>,
}

impl Registry {
    /// Finds the nodes of the native model.
    ///
    /// # Errors
    /// When the model lacks one of them.
    pub fn new(native: &Schema) -> Result<Self, ModelError> {
        Ok(Self { nodes: Nodes::find(native)?, profiles: Arc::new(access::DefaultProfile) })
    }

    /// Replaces the TLS profiles that may be referred to.
    pub fn with_profiles(self, profiles: Arc<dyn Profiles>) -> Self {
        Self { profiles, ..self }
    }

    /// Converts one native object to values with their keys: `path` is its entry, `branch` the content of that entry.
    ///
    /// # Errors
    /// When no value can express the object. The error names the leaf at fault.
    pub fn values(
        &self,
        path: &InstancePath,
        branch: &Branch<Provenance>,
    ) -> Result<ObjectValues, ObjectError> {
        let entry = Entry::of(path, branch);
        let object = self.object(&entry)?;
        let value: SharedValue = match object {
            Object::Link(name) => Arc::new(self.link(name, &entry)?),
            Object::Address(link, family) => Arc::new(self.address(link, family, &entry)?),
            Object::Neighbor(link, family) => Arc::new(self.neighbor(link, family, &entry)?),
            Object::System => return self.system(&entry).map(|system| system.values()),
            Object::Route(instance, protocol) => return self.routes(instance, protocol, &entry),
            Object::Server => return self.check_server(&entry).map(|()| ObjectValues::new()),
            Object::DriftRule(name) => {
                return self.drift_action(name, &entry).map(|_| ObjectValues::new());
            }
            Object::Instance(name) => {
                return self.check_instance(name, &entry).map(|()| ObjectValues::new());
            }
            Object::User(_) | Object::Reconciliation | Object::Protocol(_) => {
                return Ok(ObjectValues::new());
            }
        };
        let key = object.own_key(&entry)?;
        Ok(key.map(|key| (key, value)).into_iter().collect())
    }

    /// Keys of the values that a native object asks for, also of one that is refused or incomplete: those that a change
    /// of the object may touch.
    ///
    /// # Errors
    /// When the path is not that of an object, or a key in it cannot be parsed.
    pub fn keys<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: &Branch<M>,
    ) -> Result<ObjectKeys, ObjectError> {
        let entry = Entry::of(path, branch);
        Ok(match self.object(&entry)? {
            Object::System => self.system_of(&entry).keys(),
            Object::Route(..) => self.route_keys(&entry)?,
            object => object.own_key(&entry)?.into_iter().collect(),
        })
    }

    /// Key of the value of the object that an entry is, or is a part of; `None` for an object whose keys follow from its
    /// content, or that has no values.
    pub fn key_above(&self, mut path: InstancePath) -> Option<Key> {
        let branch: Branch<()> = Branch::default();
        loop {
            if let Some(object) = Object::of(&self.nodes, &path) {
                return object.own_key(&Entry::of(&path, &branch)).ok().flatten();
            }
            path.0.pop()?;
        }
    }

    /// The object around one whose values depend on whether that one is there: a link has settings by default where it has
    /// addresses.
    pub fn object_around(&self, path: &InstancePath) -> Option<InstancePath> {
        let is_address = matches!(Object::of(&self.nodes, path), Some(Object::Address(..)));
        is_address.then(|| link_above(path))
    }

    /// Refuses a neighbour with the broadcast address of a prefix on its link: the kernel takes it, and never uses it. `path` is the
    /// entry of an address or a neighbour that is new or differs, `link` the content of the link around it.
    ///
    /// # Errors
    /// Names the neighbour and the address.
    pub fn admit_on_link(
        &self,
        path: &InstancePath,
        link: &Branch<Provenance>,
    ) -> Result<(), ObjectError> {
        let nodes = &self.nodes.v4;
        let Some(ipv4) = link.container(nodes.container) else { return Ok(()) };
        let lists = ipv4.list(nodes.address).zip(ipv4.list(nodes.neighbor));
        let Some((addresses, neighbors)) = lists else { return Ok(()) };
        let own = path.last().and_then(|step| step.keys.as_ref());
        let prefix_of = |keys: &Keys| -> Option<Ipv4Net> {
            let length = addresses.get(keys)?.value(nodes.prefix_len).and_then(number)?;
            Ipv4Net::new(only_text(keys)?.parse().ok()?, length).ok()
        };
        let broadcast_of = |prefix: Ipv4Net| {
            let broadcast = Keys::single(ip_text(prefix.broadcast().into()));
            (prefix.prefix_len() <= LONGEST_WITH_BROADCAST).then_some((broadcast, prefix))
        };
        let contradiction = match Object::of(&self.nodes, path) {
            Some(Object::Address(_, Family::V4)) => own
                .and_then(prefix_of)
                .and_then(broadcast_of)
                .filter(|(broadcast, _)| neighbors.get(broadcast).is_some()),
            Some(Object::Neighbor(_, Family::V4)) => {
                let mut prefixes = addresses.iter().filter_map(|(keys, _)| prefix_of(keys));
                prefixes.find_map(|prefix| {
                    broadcast_of(prefix).filter(|(broadcast, _)| Some(broadcast) == own)
                })
            }
            _ => None,
        };
        let Some((broadcast, prefix)) = contradiction else { return Ok(()) };
        let reason = format!(
            "a neighbor cannot have this address: it is the broadcast address of {prefix}, which is configured on the same link"
        );
        let neighbor = link_above(path)
            .join(Step::node(nodes.container))
            .join(Step::entry(nodes.neighbor, broadcast));
        Err(ObjectError { path: neighbor, reason, incomplete: false })
    }

    /// Link around an address or a neighbour.
    pub fn link_around(&self, path: &InstancePath) -> Option<InstancePath> {
        let object = Object::of(&self.nodes, path)?;
        matches!(object, Object::Address(..) | Object::Neighbor(..)).then(|| link_above(path))
    }

    /// Owners of the values of these objects, in the order of the paths: the protocol of a static route, for another
    /// protocol may ask for the same route. Objects whose keys no other object can have need none. Objects of one
    /// protocol that stand side by side share theirs.
    pub fn owners<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p InstancePath>,
    ) -> Vec<Option<Owner>> {
        let mut last: Option<((&SmolStr, &SmolStr), Owner)> = None;
        let mut owner = |path: &'p InstancePath| {
            let Some(Object::Route(instance, protocol)) = Object::of(&self.nodes, path) else {
                return None;
            };
            let protocol = (instance, protocol);
            if last.as_ref().is_none_or(|(of, _)| *of != protocol) {
                last = Some((protocol, route::owner(protocol)));
            }
            last.as_ref().map(|(_, owner)| owner.clone())
        };
        paths.into_iter().map(&mut owner).collect()
    }

    fn object<'p, M: LeafMeta>(&self, entry: &Entry<'p, M>) -> Result<Object<'p>, ObjectError> {
        Object::of(&self.nodes, entry.path)
            .ok_or_else(|| entry.error("the agent knows no such object"))
    }

    /// Refuses a value that the kernel contradicts where no operation changes that: a link of one
    /// kind does not become one of another, unless we made it, nor does one of other fixed parameters,
    /// and a port has the speed that its driver gave it. `planes` tells what is known of a key.
    ///
    /// # Errors
    /// Names the leaf that would have to change.
    pub fn admit<'p>(
        &self,
        path: &InstancePath,
        value: &dyn ObjectValue,
        planes: impl Fn(&Key) -> Planes<'p>,
    ) -> Result<(), ObjectError> {
        let Some(link) = value.as_any().downcast_ref::<Link>() else { return Ok(()) };
        let link_planes = planes(&kinds::link::key(&link.name));
        if let Some(observed) = link_planes.observed() {
            self.admit_kind(path, link, observed)?;
            self.admit_mac(path, link, observed)?;
        }
        let observed = planes(&kinds::ethernet::key(&link.name));
        self.admit_ethernet(path, link, link_planes.intended(), observed)
    }

    fn admit_kind(
        &self,
        path: &InstancePath,
        link: &Link,
        observed: &Link,
    ) -> Result<(), ObjectError> {
        if observed.is_ours() || kinds::link::can_become(observed, link) {
            return Ok(());
        }
        let (name, kind, has) = (&link.name, link.kind.name(), observed.kind.name());
        let (path, reason) = if link.kind.same_kind(&observed.kind) {
            let reason = format!(
                "link `{name}` exists, not made by the agent, and the parameters of a {kind} link cannot be changed"
            );
            (path.clone(), reason)
        } else {
            let reason = format!("link `{name}` exists and is a {has} link, not a {kind} one");
            (path.join(Step::node(self.nodes.link.kind)), reason)
        };
        Err(ObjectError { path, reason, incomplete: false })
    }

    /// Refuses a link-layer address for a link of others that has none, such as a tunnel: it could never be given back.
    fn admit_mac(
        &self,
        path: &InstancePath,
        link: &Link,
        observed: &Link,
    ) -> Result<(), ObjectError> {
        let has_none = observed.mac.is_none_or(|mac| mac.0 == [0; 6]);
        if link.mac.is_none() || observed.is_ours() || !has_none {
            return Ok(());
        }
        let reason =
            format!("link `{}` has no link-layer address that could be given back", link.name);
        let path = path.join(Step::node(self.nodes.link.mac));
        Err(ObjectError { path, reason, incomplete: false })
    }

    fn address(
        &self,
        link: &SmolStr,
        family: Family,
        entry: &Entry<'_, Provenance>,
    ) -> Result<Address, ObjectError> {
        let leaf = self.nodes.family(family).prefix_len;
        let prefix_len = entry.number(leaf).ok_or_else(|| entry.incomplete(leaf))?;
        let ip: IpAddr = entry.key_as()?;
        if let Some(what) = not_of_a_host(ip) {
            return Err(entry.error(format!("no link can have the address {ip}: it is {what}")));
        }
        if ip.is_ipv6() && ip.is_loopback() && link != "lo" {
            return Err(entry.error(format!("only the loopback link can have the address {ip}")));
        }
        let nodes = self.nodes.family(family);
        let stated = entry.text(nodes.address_type);
        if let (Family::V6, Some(stated)) = (family, &stated)
            && stated != ipv6_type(ip)
        {
            let reason = format!("{ip} is an address of type {}, not {stated}", ipv6_type(ip));
            return Err(entry.leaf_error(nodes.address_type, reason));
        }
        let secondary = stated.as_deref() == Some(SECONDARY);
        let leased = entry.branch.leaf(leaf).is_some_and(|leaf| leaf.meta.is_leased());
        Ok(Address { leased, secondary, ..Address::new(link.clone(), ip, prefix_len) })
    }

    fn neighbor<M: LeafMeta>(
        &self,
        link: &SmolStr,
        family: Family,
        entry: &Entry<'_, M>,
    ) -> Result<Neighbor, ObjectError> {
        let leaf = self.nodes.family(family).mac;
        let mac: MacAddr = entry.parsed(leaf)?.ok_or_else(|| entry.incomplete(leaf))?;
        if let Some(reason) = not_of_one_host(mac) {
            return Err(entry.leaf_error(leaf, format!("{mac} is {reason}")));
        }
        let ip: IpAddr = entry.key_as()?;
        let fault =
            |why: &str| Err(entry.error(format!("{ip} cannot be a neighbor of {link}: {why}")));
        if let Some(what) = not_of_a_host(ip) {
            return fault(&format!("it is {what}"));
        }
        if ip.is_loopback() {
            return fault("it is a loopback address");
        }
        if link == "lo" {
            return fault("nothing is connected to the loopback link");
        }
        Ok(Neighbor { link: link.clone(), ip, mac: Some(mac), facts: None })
    }
}

/// Longest IPv4 prefix that has a broadcast address (RFC 3021).
const LONGEST_WITH_BROADCAST: u8 = 30;

/// Steps of the path of a link: `interfaces/interface[name]`.
const LINK_STEPS: usize = 2;

/// Path of the link that an object below it is on.
fn link_above(path: &InstancePath) -> InstancePath {
    InstancePath(path.0[..LINK_STEPS].to_vec())
}

/// Type of an IPv4 address that is not the first of its prefix.
const SECONDARY: &str = "SECONDARY";

/// OpenConfig's type of an IPv6 address.
fn ipv6_type(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "LINK_LOCAL_UNICAST",
        _ => "GLOBAL_UNICAST",
    }
}

/// OpenConfig's type of an observed address.
fn address_type(address: &Address) -> &'static str {
    match Family::of(address.ip) {
        Family::V4 if address.secondary => SECONDARY,
        Family::V4 => "PRIMARY",
        Family::V6 => ipv6_type(address.ip),
    }
}

/// Reason why a host cannot have this address.
fn not_of_a_host(ip: IpAddr) -> Option<&'static str> {
    match ip {
        _ if ip.is_unspecified() => Some("the unspecified one"),
        _ if ip.is_multicast() => Some("one of a multicast group"),
        IpAddr::V4(ip) if ip.is_broadcast() => Some("the broadcast one"),
        _ => None,
    }
}

/// Reason why no single host can have this link-layer address.
fn not_of_one_host(mac: MacAddr) -> Option<&'static str> {
    match mac.0 {
        [0, 0, 0, 0, 0, 0] => Some("the address of all zeros"),
        [first, ..] if first & 1 == 1 => Some("a group address"),
        _ => None,
    }
}

/// Kind of object that a path leads to, with the keys of its ancestors.
enum Object<'a> {
    System,
    User(&'a SmolStr),
    Server,
    Reconciliation,
    DriftRule(&'a SmolStr),
    Link(&'a SmolStr),
    Address(&'a SmolStr, Family),
    Neighbor(&'a SmolStr, Family),
    Instance(&'a SmolStr),
    Protocol(&'a SmolStr),
    Route(&'a SmolStr, &'a SmolStr),
}

impl<'a> Object<'a> {
    fn of(nodes: &Nodes, path: &'a InstancePath) -> Option<Self> {
        let family = |node: NodeId| match node {
            node if node == nodes.v4.container => Some(Family::V4),
            node if node == nodes.v6.container => Some(Family::V6),
            _ => None,
        };
        let name = |step: &'a Step| step.keys.as_ref().and_then(only_text);
        match path.0.as_slice() {
            [system] if system.node == nodes.system.system => Some(Self::System),
            [_, user] if user.node == nodes.user.entry => Some(Self::User(name(user)?)),
            [_, server] if server.node == nodes.server.entry => Some(Self::Server),
            [all] if all.node == nodes.reconciliation.container => Some(Self::Reconciliation),
            [_, rule] if rule.node == nodes.reconciliation.rule => {
                Some(Self::DriftRule(name(rule)?))
            }
            [_, link] if link.node == nodes.link.entry => Some(Self::Link(name(link)?)),
            [_, instance, protocol, route] if route.node == nodes.route.route => {
                Some(Self::Route(name(instance)?, name(protocol)?))
            }
            [_, link, container, entry] => {
                let family = family(container.node)?;
                let list = nodes.family(family);
                match entry.node {
                    node if node == list.address => Some(Self::Address(name(link)?, family)),
                    node if node == list.neighbor => Some(Self::Neighbor(name(link)?, family)),
                    _ => None,
                }
            }
            [_, instance] if instance.node == nodes.route.instance => {
                Some(Self::Instance(name(instance)?))
            }
            [_, _, protocol] if protocol.node == nodes.route.protocol => {
                Some(Self::Protocol(name(protocol)?))
            }
            _ => None,
        }
    }
}

impl Object<'_> {
    /// Key of an object that asks for one value, by which both are known; `None` for other objects.
    fn own_key<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> Result<Option<Key>, ObjectError> {
        Ok(match self {
            Self::Link(name) => Some(kinds::link::key(name)),
            Self::Address(link, _) => Some(kinds::address::key(link, entry.key_as()?)),
            Self::Neighbor(link, _) => Some(kinds::neighbor::key(link, entry.key_as()?)),
            Self::System | Self::Route(..) => None,
            Self::User(_) | Self::Server | Self::Reconciliation | Self::DriftRule(_) => None,
            Self::Instance(_) | Self::Protocol(_) => None,
        })
    }
}

fn only_text(keys: &Keys) -> Option<&SmolStr> {
    match &**keys {
        [Value::Str(text)] => Some(text),
        _ => None,
    }
}

/// Entry of an object, or of a list within it, while its leaves are converted.
struct Entry<'a, M: LeafMeta> {
    /// Path of the object.
    path: &'a InstancePath,
    /// List and keys of an entry within the object. A path is built only for error messages.
    inner: Option<(NodeId, &'a Keys)>,
    branch: &'a Branch<M>,
}

impl<'a, M: LeafMeta> Entry<'a, M> {
    fn of(path: &'a InstancePath, branch: &'a Branch<M>) -> Self {
        Self { path, inner: None, branch }
    }

    /// An entry of a list within this object.
    fn inner<'b>(&self, list: NodeId, keys: &'b Keys, branch: &'b Branch<M>) -> Entry<'b, M>
    where
        'a: 'b,
    {
        Entry { path: self.path, inner: Some((list, keys)), branch }
    }

    /// Full path of the entry.
    fn place(&self) -> InstancePath {
        match self.inner {
            None => self.path.clone(),
            Some((list, keys)) => self.path.join(Step::entry(list, keys.clone())),
        }
    }

    fn value(&self, leaf: NodeId) -> Option<&Value> {
        self.branch.value(leaf)
    }

    fn text(&self, leaf: NodeId) -> Option<SmolStr> {
        text(self.value(leaf)?)
    }

    /// Values of a leaf-list.
    fn texts(&self, leaf: NodeId) -> Vec<SmolStr> {
        match self.value(leaf) {
            Some(Value::List(values)) => values.iter().filter_map(text).collect(),
            _ => Vec::new(),
        }
    }

    fn number<N: TryFrom<u64>>(&self, leaf: NodeId) -> Option<N> {
        number(self.value(leaf)?)
    }

    fn bool(&self, leaf: NodeId) -> Option<bool> {
        match self.value(leaf)? {
            Value::Bool(on) => Some(*on),
            _ => None,
        }
    }

    /// Parses a leaf's text as a type of its own.
    fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &self,
        leaf: NodeId,
    ) -> Result<Option<T>, ObjectError> {
        let Some(text) = self.text(leaf) else { return Ok(None) };
        let parsed = text.parse().map_err(|error| self.leaf_error(leaf, format!("{error}")));
        parsed.map(Some)
    }

    fn key_text(&self) -> Option<&'a SmolStr> {
        let own = || self.path.last()?.keys.as_ref();
        only_text(self.inner.map(|(_, keys)| keys).or_else(own)?)
    }

    /// Parses the only key of the entry.
    fn key_as<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ObjectError> {
        let text = self.key_text().ok_or_else(|| self.error("its key is no text"))?;
        text.parse().map_err(|error| self.error(format!("`{text}`: {error}")))
    }

    fn container(&self, node: NodeId) -> Option<Entry<'_, M>> {
        Some(Entry { branch: self.branch.container(node)?, ..*self })
    }

    fn error(&self, reason: impl Into<String>) -> ObjectError {
        ObjectError { path: self.place(), reason: reason.into(), incomplete: false }
    }

    fn leaf_error(&self, leaf: NodeId, reason: impl Into<String>) -> ObjectError {
        let path = self.place().join(Step::node(leaf));
        ObjectError { path, reason: reason.into(), incomplete: false }
    }

    fn inner_error(
        &self,
        container: NodeId,
        leaf: NodeId,
        reason: impl Into<String>,
    ) -> ObjectError {
        let path = self.place().join(Step::node(container)).join(Step::node(leaf));
        ObjectError { path, reason: reason.into(), incomplete: false }
    }

    fn incomplete(&self, leaf: NodeId) -> ObjectError {
        ObjectError { incomplete: true, ..self.leaf_error(leaf, "this leaf is mandatory") }
    }
}

fn text(value: &Value) -> Option<SmolStr> {
    match value {
        Value::Str(text) => Some(text.clone()),
        Value::Enum(name) => Some((*name).into()),
        _ => None,
    }
}

fn number<N: TryFrom<u64>>(value: &Value) -> Option<N> {
    match value {
        Value::Uint(number) => N::try_from(*number).ok(),
        Value::Int(number) => N::try_from(u64::try_from(*number).ok()?).ok(),
        _ => None,
    }
}

fn ip_text(ip: IpAddr) -> Value {
    Value::Str(ip.to_smolstr())
}
