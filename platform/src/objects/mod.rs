//! Conversion of native objects to values and back, kind by kind: the registry of [`NativeKind`]s.
//!
//! Start at [`Registry::values`]: one entry of the native tree with all its own leaves becomes typed values with their
//! keys, one for each kernel object that it asks for. An entry that asks for none, such as a user, is checked and has no
//! values; those of [`Setting`] are for the engine itself. Configuration that no value can express is refused with path
//! and reason. The reverse, from values to state leaves, is in [`state`]. Each kind does its part in its own module below
//! [`kinds`](crate::kinds); what is here concerns entries without values, or more than one kind.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_config::{
    Branch, InstancePath, Keys, LeafMeta, NodeId, Provenance, Schema, Step, Tree, Value,
};
use holdfast_scheduler::{Key, KindId, ObjectValue, Owner};
use ipnet::Ipv4Net;
use smol_str::SmolStr;

mod access;
mod entries;
mod instances;
mod reconciliation;
mod route;
#[cfg(test)]
pub(crate) mod tests;

use crate::kinds::entry::{BranchView, Entry, ip_text, link_above, number, only_text};
use crate::kinds::link::native::NativeLink;
use crate::kinds::native::{ForLinks, Heirs, NativeKind, nodes};
use crate::kinds::route::native::RouteNodes;
use crate::kinds::system::SystemNodes;
use crate::kinds::{KINDS, LINK};
use crate::listed_route::ListedRoute;
use entries::NativeEntries;
use state::{Leaves, Planes, StateEntry};

pub use crate::kinds::entry::{ObjectError, ObjectKeys, ObjectValues};
pub use crate::kinds::link::status::{DownBy, LinkStatus, LinkStatusSettings, PenaltySettings};
pub use crate::kinds::native::{Adoption, EntryShare, ModelError, StatusNodes, ValueEntry};
pub use crate::kinds::relation::{LocatedChange, Relations};
pub use crate::kinds::state;
#[cfg(test)]
pub(crate) use crate::kinds::system::System;
pub use access::{GRPC_SERVER, Profiles};
pub use instances::DEFAULT_INSTANCE;
pub use reconciliation::{DriftAction, Setting};
pub use route::RouteHop;

nodes!(
    /// Lists of IPv4 on an interface that contradict each other.
    Ipv4Nodes {
        container: "",
        address: "/address",
        prefix_len: "/address/prefix-length",
        neighbor: "/neighbor",
    }
);

nodes!(
    /// Lists of addresses and neighbours.
    OnLinkNodes {
        v4_address: "/ipv4/address",
        v6_address: "/ipv6/address",
        v4_neighbor: "/ipv4/neighbor",
        v6_neighbor: "/ipv6/neighbor",
    }
);

/// Converts native objects to values, and values to native state.
#[derive(Clone, Debug)]
pub struct Registry {
    natives: Vec<Arc<dyn NativeKind>>,
    /// Places in `natives`, by list or container.
    by_node: HashMap<NodeId, usize>,
    /// Entries whose values depend on the object around them, by the list or container of that object.
    heirs: HashMap<NodeId, Heirs>,
    /// Places in `natives`, by kind of value.
    by_kind: HashMap<KindId, usize>,
    link: NativeLink,
    v4: ForLinks<Ipv4Nodes>,
    on_link: ForLinks<OnLinkNodes>,
    route: RouteNodes,
    system: SystemNodes,
    entries: NativeEntries,
}

impl Registry {
    /// Finds the nodes of the native model.
    ///
    /// # Errors
    /// When the model lacks one of them.
    pub fn new(native: &Schema) -> Result<Self, ModelError> {
        let mut registry = Self {
            natives: Vec::new(),
            by_node: HashMap::new(),
            heirs: HashMap::new(),
            by_kind: HashMap::new(),
            link: NativeLink::find(native)?,
            v4: ForLinks::find(|list| Ipv4Nodes::find(native, &format!("{list}/ipv4")))?,
            on_link: ForLinks::find(|list| OnLinkNodes::find(native, list))?,
            route: RouteNodes::bind(native)?,
            system: SystemNodes::find(native, "/system")?,
            entries: NativeEntries::find(native)?,
        };
        for row in KINDS.iter() {
            if let Some(bind) = row.native {
                registry.add(Some(row.id), Arc::from(bind(native)?));
            }
        }
        registry.add(None, Arc::new(registry.entries.clone()));
        Ok(registry)
    }

    fn add(&mut self, kind: Option<KindId>, native: Arc<dyn NativeKind>) {
        let place = self.natives.len();
        self.by_node.extend(native.lists().into_iter().map(|node| (node, place)));
        let heirs = native.heirs();
        self.heirs.extend(native.lists().into_iter().filter_map(|node| Some((node, heirs?))));
        self.by_kind.extend(kind.map(|kind| (kind, place)));
        self.natives.push(native);
    }

    /// Replaces the TLS profiles that may be referred to.
    #[must_use]
    pub fn with_profiles(mut self, profiles: Arc<dyn Profiles>) -> Self {
        self.entries.profiles = profiles;
        self.add(None, Arc::new(self.entries.clone()));
        self
    }

    /// The rules among objects of one kind, for an empty configuration.
    pub fn relations(&self) -> Relations {
        Relations(self.natives.iter().flat_map(|native| native.relations()).collect())
    }

    fn native_of(&self, path: &InstancePath) -> Option<&dyn NativeKind> {
        let place = self.by_node.get(&path.last()?.node)?;
        Some(&*self.natives[*place])
    }

    fn native_of_kind(&self, kind: KindId) -> Option<&dyn NativeKind> {
        Some(&*self.natives[*self.by_kind.get(&kind)?])
    }

    fn object(&self, entry: &Entry<'_>) -> Result<&dyn NativeKind, ObjectError> {
        self.native_of(entry.path).ok_or_else(|| entry.error("the agent knows no such object"))
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
        self.object(&entry)?.values(&entry)
    }

    /// Converts one native object of a tree to values with their keys, as [`Registry::values`] does. The values of some objects
    /// follow from the object around them, too.
    ///
    /// # Errors
    /// When no value can express the object. The error names the leaf at fault.
    pub fn values_in(
        &self,
        tree: &Tree<Provenance>,
        path: &InstancePath,
        branch: &Branch<Provenance>,
    ) -> Result<ObjectValues, ObjectError> {
        let above = self.leaf_above(path).map(|mut leaf| {
            leaf.0.pop();
            leaf
        });
        let above = above.and_then(|object| tree.branch(&object));
        let above = above.map(|branch| &**branch as &dyn BranchView);
        let entry = Entry::of(path, branch).below(above);
        self.object(&entry)?.values(&entry)
    }

    /// The leaf of the object around one that the values of the inner one depend on.
    pub fn leaf_above(&self, path: &InstancePath) -> Option<InstancePath> {
        let (last, above) = path.0.split_last()?;
        let heirs = self.heirs.get(&above.last()?.node)?;
        let leaf = Step::node(heirs.leaf);
        (heirs.list == last.node).then(|| InstancePath([above, &[leaf]].concat()))
    }

    /// Entries of a tree whose values depend on the leaves of an object around them.
    pub fn objects_below(&self, tree: &Tree<Provenance>, path: &InstancePath) -> Vec<InstancePath> {
        let heirs = path.last().and_then(|step| self.heirs.get(&step.node));
        let found =
            heirs.and_then(|heirs| Some((heirs.list, tree.branch(path)?.list(heirs.list)?)));
        let entries = found.into_iter().flat_map(|(node, list)| {
            list.iter().map(move |(keys, _)| path.join(Step::entry(node, keys.clone())))
        });
        entries.collect()
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
        self.object(&entry)?.keys(&entry)
    }

    /// Key of the value of the object that an entry is, or is a part of; `None` for an object whose keys follow from its
    /// content, or that has no values.
    pub fn key_above(&self, mut path: InstancePath) -> Option<Key> {
        let branch: Branch<()> = Branch::default();
        loop {
            if let Some(object) = self.native_of(&path) {
                return object.own_key(&Entry::of(&path, &branch)).ok().flatten();
            }
            path.0.pop()?;
        }
    }

    /// The object around one whose values depend on whether that one is there: a link has settings by default where it has
    /// addresses.
    pub fn object_around(&self, path: &InstancePath) -> Option<InstancePath> {
        let node = path.last()?.node;
        let nodes = self.on_link.of_path(path);
        let is_address = [nodes.v4_address, nodes.v6_address].contains(&node);
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
        let nodes = self.v4.of_path(path);
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
        let list = path.last().map(|step| step.node);
        let contradiction = match list {
            Some(list) if list == nodes.address => own
                .and_then(prefix_of)
                .and_then(broadcast_of)
                .filter(|(broadcast, _)| neighbors.get(broadcast).is_some()),
            Some(list) if list == nodes.neighbor => {
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
        let node = path.last()?.node;
        let nodes = self.on_link.of_path(path);
        let is_neighbor = [nodes.v4_neighbor, nodes.v6_neighbor].contains(&node);
        if is_neighbor { Some(link_above(path)) } else { self.object_around(path) }
    }

    /// Owners of the values of these objects, in the order of the paths: the protocol of a static route, for another
    /// protocol may ask for the same route. Objects whose keys no other object can have need none. Objects of one
    /// list that stand side by side share theirs.
    pub fn owners<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p InstancePath>,
    ) -> Vec<Option<Owner>> {
        let list = |path: &'p InstancePath| path.0.split_last().map(|(it, above)| (it.node, above));
        let mut last: Option<(&'p InstancePath, Option<Owner>)> = None;
        let mut owner = |path: &'p InstancePath| {
            if last.as_ref().is_none_or(|(of, _)| list(of) != list(path)) {
                last = Some((path, self.native_of(path)?.owner(path)));
            }
            last.as_ref().and_then(|(_, owner)| owner.clone())
        };
        paths.into_iter().map(&mut owner).collect()
    }

    /// Refuses a value that the kernel contradicts where no operation changes that. `planes` tells what is known of a key.
    ///
    /// # Errors
    /// Names the leaf that would have to change.
    pub fn admit<'p>(
        &self,
        path: &InstancePath,
        value: &dyn ObjectValue,
        planes: impl Fn(&Key) -> Planes<'p>,
    ) -> Result<(), ObjectError> {
        self.native_of(path).map_or(Ok(()), |object| object.admit(path, value, &planes))
    }

    /// State leaves of one key; `None` when there is nothing to show.
    ///
    /// Shows the actual state, not the configured one: leaves come from the observed value. Foreign links and addresses
    /// are shown, foreign routes are not.
    pub fn state(&self, key: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.native_of_kind(key.kind())?.state(key, planes)
    }

    /// The configuration that would ask for an observed object, or why there is none; `None` for an object that needs none.
    pub fn adoption(&self, key: &Key, observed: &dyn ObjectValue) -> Option<Adoption> {
        self.native_of_kind(key.kind())?.adoption(observed)
    }

    /// The configuration that would ask for a route of the kernel. `first` is the number of its first next hop in its entry.
    pub fn route_adoption(&self, route: &ListedRoute, first: usize) -> Adoption {
        self.route.adoption(route, first)
    }

    /// State leaves of one key, with the status of a link as it is told in place of the observed one.
    pub fn state_as_told(
        &self,
        key: &Key,
        planes: Planes<'_>,
        status: Option<LinkStatus>,
    ) -> Option<StateEntry> {
        match key.kind() {
            LINK => self.link.link_state(planes, status),
            _ => self.state(key, planes),
        }
    }

    /// State leaves that are configuration in force, of an entry that [`Registry::values`] accepts; `None` for an object
    /// without such leaves.
    pub fn configured_state<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: &Branch<M>,
    ) -> Option<StateEntry> {
        self.native_of(path)?.configured_state(&Entry::of(path, branch))
    }

    /// True for an object whose state goes with its configuration: the path of the one says where the other is.
    pub fn has_configured_state(&self, path: &InstancePath) -> bool {
        let list = path.last().map(|step| step.node);
        let object = self.native_of(path).zip(list);
        object.is_some_and(|(object, list)| object.has_configured_state(list))
    }

    /// List of the objects whose state is what was applied.
    pub fn applied_list(&self) -> NodeId {
        self.route.route
    }

    /// Path of the entry in [`Registry::applied_list`] that asked for a value; `None` for values of other lists.
    pub fn applied_entry(&self, value: &dyn ObjectValue) -> Option<InstancePath> {
        self.route.entry_of(value)
    }

    /// Every leaf that an object with this intended value could show once it is applied. The values of the leaves
    /// have no meaning.
    pub fn most_of(&self, key: &Key, of_intent: &dyn ObjectValue) -> Option<StateEntry> {
        let planes = Planes {
            intended: Some(of_intent),
            applied: Some(of_intent),
            observed: Some(of_intent),
        };
        self.native_of_kind(key.kind())?.most_of(key, planes)
    }

    /// System state without a key: boot time in nanoseconds since 1970, and the version of the agent.
    pub fn system_state(&self, boot_time_ns: u64, software_version: &str) -> StateEntry {
        let nodes = &self.system;
        let path = InstancePath(vec![Step::node(nodes.system)]);
        let mut leaves = Leaves::of(nodes.state);
        leaves.put(nodes.state_boot_time, Value::Uint(boot_time_ns));
        leaves.text(nodes.state_software_version, software_version);
        leaves.entry(path)
    }

    /// Path of the entry of a link in the native model.
    pub fn link_path(&self, name: &SmolStr) -> InstancePath {
        self.link.interfaces.link(name)
    }

    /// Where the entries that are objects of the engine have their effective status.
    pub fn status_nodes(&self) -> Vec<StatusNodes> {
        self.natives.iter().flat_map(|native| native.status_nodes()).collect()
    }

    /// The entry that shows a value; `None` for a value that no list shows, and for a link that is administratively
    /// down, which is not a fault.
    pub fn value_entry(&self, key: &Key, planes: Planes<'_>) -> Option<ValueEntry> {
        self.native_of_kind(key.kind())?.value_entry(key, planes)
    }

    /// Keys of the other values that the entry of a value stands for. `branch` is the entry of the configuration.
    pub fn keys_beside<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: &Branch<M>,
        keys: &[Key],
    ) -> Vec<Key> {
        let all = self.keys(path, branch).unwrap_or_default();
        all.into_iter().filter(|key| !keys.contains(key)).collect()
    }
}

/// Longest IPv4 prefix that has a broadcast address (RFC 3021).
const LONGEST_WITH_BROADCAST: u8 = 30;
