//! State leaves of the native model, from observed values; those of objects without values from their configuration.
//!
//! Two keys never share a leaf, so a reader can keep the published leaves of a key and publish the difference when
//! the key changes.

use std::net::IpAddr;

use holdfast_config::{Branch, InstancePath, Keys, LeafMeta, NodeId, Step, Value};
use holdfast_scheduler::Key;
use smallvec::{SmallVec, smallvec};
use smol_str::{SmolStr, ToSmolStr as _};

use super::route::{DROP, LOCAL_LINK};
use super::{DEFAULT_INSTANCE, Entry, LinkStatus, Object, Registry, address_type, ip_text};
use crate::kinds::{self, system};
use crate::values::{
    Address, AddressOrigin, Content, Ethernet, Family, Hop, Hostname, KernelRoute, Link, LinkKind,
    LinkSetting, LinkSysctl, Neighbor, NeighborState, NextHop, NextHopTarget, OperState,
    RouteTarget, TextFile,
};

/// The state leaves of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// The native entry of the leaves, or outside of lists their parent.
    pub path: InstancePath,
    /// Leaves by container.
    pub groups: Vec<StateGroup>,
}

/// Leaves of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateGroup {
    /// List entry within that of the key, such as a next hop of a route; `None` for the key's own entry.
    pub entry: Option<Step>,
    /// Containers from that entry to the leaves.
    pub containers: SmallVec<[NodeId; 2]>,
    /// The leaves and their values.
    pub leaves: Vec<(NodeId, Value)>,
}

impl StateEntry {
    /// Every leaf with its full path.
    pub fn leaves(&self) -> impl Iterator<Item = (InstancePath, &Value)> {
        let groups = self.groups.iter().map(|group| (group, group.branch(&self.path)));
        groups.flat_map(|(group, branch)| {
            let leaves = group.leaves.iter();
            leaves.map(move |(leaf, value)| (branch.join(Step::node(*leaf)), value))
        })
    }

    /// True when both entries have the same leaves, with any values.
    pub fn has_leaves_of(&self, other: &Self) -> bool {
        let leaves = |entry: &Self| {
            let groups = entry.groups.iter();
            let leaf = |group: &StateGroup| group.leaves.iter().map(|(leaf, _)| *leaf).collect();
            groups.map(|it| (it.entry.clone(), leaf(it))).collect::<Vec<(_, Vec<NodeId>)>>()
        };
        leaves(self) == leaves(other)
    }
}

impl StateGroup {
    /// Path of the container of the leaves, below that of the key.
    fn branch(&self, path: &InstancePath) -> InstancePath {
        let containers = self.containers.iter().copied().map(Step::node);
        InstancePath(path.0.iter().chain(&self.entry).cloned().chain(containers).collect())
    }
}

/// Values of one key in the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planes<'a> {
    /// Intended value.
    pub intended: Option<&'a dyn holdfast_scheduler::ObjectValue>,
    /// Value of the last completed operation.
    pub applied: Option<&'a dyn holdfast_scheduler::ObjectValue>,
    /// Observed value.
    pub observed: Option<&'a dyn holdfast_scheduler::ObjectValue>,
}

impl<'a> Planes<'a> {
    pub(super) fn observed<V: 'static>(&self) -> Option<&'a V> {
        self.observed?.as_any().downcast_ref()
    }

    fn applied<V: 'static>(&self) -> Option<&'a V> {
        self.applied?.as_any().downcast_ref()
    }

    pub(super) fn intended<V: 'static>(&self) -> Option<&'a V> {
        self.intended?.as_any().downcast_ref()
    }
}

impl Registry {
    /// State leaves of one key; `None` when there is nothing to show.
    ///
    /// Shows the actual state, not the configured one: leaves come from the observed value. Foreign links and addresses
    /// are shown, foreign routes are not.
    pub fn state(&self, key: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.state_as_told(key, planes, None)
    }

    /// State leaves of one key, with the status of a link as it is told in place of the observed one.
    pub fn state_as_told(
        &self,
        key: &Key,
        planes: Planes<'_>,
        status: Option<LinkStatus>,
    ) -> Option<StateEntry> {
        match key.kind() {
            kinds::LINK => self.link_state(planes, status),
            kinds::ETHERNET => Some(self.ethernet_state(planes.observed()?)),
            kinds::FORWARDING | kinds::IGNORE_LINKDOWN => {
                Some(self.setting_state(planes.observed()?))
            }
            kinds::ADDRESS => {
                let intended: Option<&Address> = planes.intended();
                let leased = intended.is_some_and(|address| address.leased);
                Some(self.address_state(planes.observed()?, leased))
            }
            kinds::NEIGHBOR => Some(self.neighbor_state(planes.observed()?)),
            kinds::ROUTE => {
                let observed: &KernelRoute = planes.observed()?;
                self.route_state(planes.applied()?, |hop| in_kernel(hop, observed))
            }
            kinds::HOSTNAME => {
                let hostname: &Hostname = planes.observed()?;
                self.system_leaf(self.nodes.system.state_hostname, &hostname.name)
            }
            kinds::TEXT_FILE => self.file_state(planes.observed()?),
            _ => None,
        }
    }

    /// State leaves that are configuration in force, of an entry that [`Registry::values`] accepts; `None` for an object
    /// without such leaves.
    pub fn configured_state<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: &Branch<M>,
    ) -> Option<StateEntry> {
        let entry = Entry::of(path, branch);
        match Object::of(&self.nodes, path)? {
            Object::User(name) => Some(self.user_state(name, &entry)),
            Object::Protocol(name) => Some(self.protocol_state(path, name)),
            Object::Route(..) => self.static_state(&entry),
            _ => None,
        }
    }

    /// True for an object whose state goes with its configuration: the path of the one says where the other is.
    pub fn has_configured_state(&self, path: &InstancePath) -> bool {
        use Object::{Protocol, Route, User};
        let object = Object::of(&self.nodes, path);
        object.is_some_and(|it| matches!(it, User(_) | Protocol(_) | Route(..)))
    }

    /// List of the objects whose state is what was applied.
    pub fn applied_list(&self) -> NodeId {
        self.nodes.route.route
    }

    /// Path of the entry in [`Registry::applied_list`] that asked for a value; `None` for values of other lists.
    pub fn applied_entry(
        &self,
        value: &dyn holdfast_scheduler::ObjectValue,
    ) -> Option<InstancePath> {
        let route: &KernelRoute = value.as_any().downcast_ref()?;
        let source = route.source.as_ref()?;
        let prefix = Value::Str(route.prefix.to_smolstr());
        Some(self.route_path(&source.instance, &source.protocol, prefix))
    }

    /// Every leaf that an object with this intended value could show once it is applied. The values of the leaves
    /// have no meaning.
    pub fn most_of(
        &self,
        key: &Key,
        of_intent: &dyn holdfast_scheduler::ObjectValue,
    ) -> Option<StateEntry> {
        let planes = Planes {
            intended: Some(of_intent),
            applied: Some(of_intent),
            observed: Some(of_intent),
        };
        match key.kind() {
            // The kernel decides by which link a next hop leaves, and whether it uses it.
            kinds::ROUTE => self.route_state(planes.applied()?, |hop| {
                let link = (hop.target != NextHopTarget::Drop).then(SmolStr::default);
                Some(InstalledHop { link, is_unusable: true })
            }),
            _ => self.state(key, planes),
        }
    }

    /// System state without a key: boot time in nanoseconds since 1970, and the version of the agent.
    pub fn system_state(&self, boot_time_ns: u64, software_version: &str) -> StateEntry {
        let nodes = &self.nodes.system;
        let path = InstancePath(vec![Step::node(nodes.system)]);
        let mut leaves = Leaves::of(nodes.state);
        leaves.put(nodes.state_boot_time, Value::Uint(boot_time_ns));
        leaves.text(nodes.state_software_version, software_version);
        leaves.entry(path)
    }

    fn link_state(&self, planes: Planes<'_>, status: Option<LinkStatus>) -> Option<StateEntry> {
        let nodes = &self.nodes.link;
        if let Some(link) = planes.observed::<Link>() {
            return Some(self.link_for_state(link, planes.applied(), status));
        }
        // Configured but absent: a port that is not plugged in, or a link that waits for another.
        let link: &Link = planes.intended()?;
        let path = self.link_path(&link.name);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &link.name);
        leaves.text_enum(nodes.state_admin, admin_status(link.enabled));
        let told = status.map_or(OperState::NotPresent, |status| status.told);
        leaves.text_enum(nodes.state_oper, told.name());
        if let Some(status) = status {
            self.show_status(status, &mut leaves);
        }
        Some(leaves.entry(path))
    }

    /// Shows what else there is of the status of a link than the told one.
    fn show_status(&self, status: LinkStatus, leaves: &mut Leaves) {
        let nodes = &self.nodes.link;
        let observed = status.observed.map(|observed| enum_value(observed.name()));
        leaves.optional(nodes.state_observed, observed);
        let down_by = status.down_by.map(|reason| enum_value(reason.name()));
        leaves.optional(nodes.state_down_by, down_by);
        status.settings.show(nodes, leaves);
    }

    /// Adds to the observed link the attributes of `applied` that the kernel cannot store.
    fn link_for_state(
        &self,
        link: &Link,
        applied: Option<&Link>,
        status: Option<LinkStatus>,
    ) -> StateEntry {
        let nodes = &self.nodes.link;
        let path = self.link_path(&link.name);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &link.name);
        leaves.text_enum(nodes.state_kind, link.kind.model_name());
        leaves.put(nodes.state_enabled, Value::Bool(link.enabled));
        leaves.text_enum(nodes.state_admin, admin_status(link.enabled));
        leaves.optional(nodes.state_mtu, link.mtu.map(|mtu| Value::Uint(mtu.into())));
        leaves.optional(nodes.state_mac, link.mac.map(|mac| text_value(&mac.to_string())));
        leaves.optional(nodes.state_description, link.description.as_deref().map(text_value));
        leaves.optional(nodes.state_master, link.master.as_deref().map(text_value));
        if let LinkKind::Veth { peer: Some(peer) } = &link.kind {
            leaves.text(nodes.state_peer, peer);
        }
        let description = applied.and_then(|applied| applied.subinterface_description.as_deref());
        leaves.optional(nodes.state_subinterface_description, description.map(text_value));
        let ipv4 = applied.and_then(|applied| applied.ipv4_enabled).unwrap_or(true);
        leaves.put(nodes.state_ipv4_enabled, Value::Bool(ipv4));
        leaves.optional(nodes.state_ipv6_enabled, link.ipv6_enabled.map(Value::Bool));
        if let Some(facts) = &link.facts {
            let made_with = facts.hardware_mac.map(|mac| text_value(&mac.to_string()));
            leaves.optional(nodes.state_hardware_mac, made_with);
            let told = status.map_or(facts.oper, |status| status.told);
            leaves.text_enum(nodes.state_oper, told.name());
            if let Some(status) = status {
                self.show_status(status, &mut leaves);
            }
            leaves.put(nodes.state_index, Value::Uint(facts.index.into()));
            let changed_ns = status.map_or(facts.last_change_ns, |status| status.changed_ns);
            leaves.put(nodes.state_last_change, Value::Uint(changed_ns));
            let changes = Value::Uint(facts.carrier_changes.into());
            leaves.put_below(nodes.state_counters, nodes.state_carrier_transitions, changes);
        }
        leaves.entry(path)
    }

    fn ethernet_state(&self, ethernet: &Ethernet) -> StateEntry {
        let nodes = &self.nodes.link;
        let path = self.link_path(&ethernet.link);
        let mut leaves = Leaves::of(nodes.state);
        let speed = ethernet.speed_mbps.map(|speed| Value::Uint(speed.into()));
        let settled = speed.clone().filter(|_| ethernet.auto_negotiate == Some(true));
        leaves.optional(nodes.state_port_speed, speed);
        leaves.optional(nodes.state_negotiated_port_speed, settled);
        let duplex = ethernet.duplex.map(|duplex| enum_value(duplex.name()));
        leaves.optional(nodes.state_duplex_mode, duplex);
        leaves.optional(nodes.state_auto_negotiate, ethernet.auto_negotiate.map(Value::Bool));
        leaves.entry(path)
    }

    fn setting_state(&self, part: &LinkSetting) -> StateEntry {
        let nodes = &self.nodes.link;
        let path = self.link_path(&part.link);
        let mut leaves = Leaves::of(nodes.state);
        let leaf = match (part.sysctl, part.family) {
            (LinkSysctl::Forwarding, Family::V4) => nodes.state_ipv4_forwarding,
            (LinkSysctl::Forwarding, Family::V6) => nodes.state_ipv6_forwarding,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V4) => nodes.state_ipv4_ignore_linkdown,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V6) => nodes.state_ipv6_ignore_linkdown,
        };
        leaves.put(leaf, Value::Bool(part.enabled));
        leaves.entry(path)
    }

    fn address_state(&self, address: &Address, leased: bool) -> StateEntry {
        let nodes = self.nodes.family(Family::of(address.ip));
        let path = self.family_path(&address.link, nodes.container, nodes.address, address.ip);
        let mut leaves = Leaves::of(nodes.address_state);
        leaves.put(nodes.address_state_ip, ip_text(address.ip));
        leaves.put(nodes.address_state_prefix_len, Value::Uint(address.prefix_len.into()));
        leaves.text_enum(nodes.address_state_type, address_type(address));
        let reported = address.facts.as_ref().map(|facts| facts.origin);
        let origin = reported.map(|reported| if leased { AddressOrigin::Dhcp } else { reported });
        let origin = origin.map(|origin| enum_value(origin.name()));
        leaves.optional(nodes.address_state_origin, origin);
        if let (Some(leaf), Some(facts)) =
            (self.nodes.v6_address_status(address.ip), &address.facts)
        {
            leaves.optional(leaf, facts.status.map(|status| enum_value(status.name())));
        }
        leaves.entry(path)
    }

    fn neighbor_state(&self, neighbor: &Neighbor) -> StateEntry {
        let nodes = self.nodes.family(Family::of(neighbor.ip));
        let path = self.family_path(&neighbor.link, nodes.container, nodes.neighbor, neighbor.ip);
        let mut leaves = Leaves::of(nodes.neighbor_state);
        leaves.put(nodes.neighbor_state_ip, ip_text(neighbor.ip));
        let mac = neighbor.mac.map(|mac| text_value(&mac.to_string()));
        leaves.optional(nodes.neighbor_state_mac, mac);
        if let Some(facts) = &neighbor.facts {
            let permanent = facts.state == NeighborState::Permanent;
            let origin = if permanent { "STATIC" } else { "DYNAMIC" };
            leaves.text_enum(nodes.neighbor_state_origin, origin);
            leaves.text_enum(nodes.neighbor_state_state, facts.state.name());
        }
        leaves.entry(path)
    }

    /// State of the network instance DEFAULT, which exists even without any configuration: the tables of the managed
    /// namespace.
    pub fn instance_state(&self) -> StateEntry {
        let nodes = &self.nodes.route;
        let mut leaves = Leaves::of(nodes.instance_state);
        leaves.text(nodes.instance_state_name, DEFAULT_INSTANCE);
        leaves.text_enum(nodes.instance_state_kind, "default-instance");
        let name = Value::Str(SmolStr::new_static(DEFAULT_INSTANCE));
        let entry = Step::entry(nodes.instance, Keys::single(name));
        leaves.entry(InstancePath(vec![Step::node(self.nodes.instances), entry]))
    }

    fn protocol_state(&self, path: &InstancePath, name: &str) -> StateEntry {
        let nodes = &self.nodes.route;
        let mut leaves = Leaves::of(nodes.protocol_state);
        leaves.text(nodes.protocol_state_name, name);
        leaves.entry(path.clone())
    }

    fn static_state<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> Option<StateEntry> {
        let nodes = &self.nodes.route;
        let mut leaves = Leaves::of(nodes.route_state);
        leaves.text(nodes.route_state_prefix, entry.key_text()?);
        leaves.optional(nodes.route_state_description, entry.value(nodes.description).cloned());
        Some(leaves.entry(entry.path.clone()))
    }

    /// Configured next hops that the kernel has installed.
    fn route_state(
        &self,
        applied: &KernelRoute,
        installed: impl Fn(&NextHop) -> Option<InstalledHop>,
    ) -> Option<StateEntry> {
        let nodes = &self.nodes.route;
        let source = applied.source.as_ref()?;
        let path = self.applied_entry(applied)?;
        let mut groups = Vec::with_capacity(source.next_hops.len());
        for next_hop in &source.next_hops {
            let Some(InstalledHop { link, is_unusable }) = installed(next_hop) else { continue };
            let keys = Keys::single(Value::Str(next_hop.index.clone()));
            let mut leaves = Leaves::within(Some(Step::entry(nodes.hop, keys)), nodes.hop_state);
            leaves.text(nodes.hop_state_index, &next_hop.index);
            leaves.optional(
                nodes.hop_state_target,
                match next_hop.target {
                    NextHopTarget::Gateway(ip) => Some(ip_text(ip)),
                    NextHopTarget::Drop => Some(enum_value(DROP)),
                    NextHopTarget::OnLink => Some(enum_value(LOCAL_LINK)),
                },
            );
            leaves.optional(nodes.hop_state_interface, link.as_deref().map(text_value));
            leaves.put(nodes.hop_state_metric, Value::Uint(applied.metric.into()));
            leaves.optional(nodes.hop_state_unusable, is_unusable.then_some(Value::Bool(true)));
            groups.append(&mut leaves.groups);
        }
        Some(StateEntry { path, groups })
    }

    fn file_state(&self, file: &TextFile) -> Option<StateEntry> {
        let nodes = &self.nodes.system;
        let text = match &file.content {
            Content::Whole(text) | Content::Block(text) | Content::Link { text, .. } => {
                text.as_str()
            }
            Content::OwnHost { domain, .. } => {
                return self.system_leaf(nodes.state_domain_name, domain);
            }
            Content::Absent => return None,
        };
        match file.path.as_str() {
            system::HOSTS_FILE => {
                self.system_leaf(nodes.state_domain_name, system::domain_of(text)?)
            }
            system::RESOLV_FILE => {
                let domains = system::search_domains_of(text)?;
                let domains = domains.map(|domain| Value::Str(domain.into())).collect();
                self.system_value(nodes.state_search_domain, Value::List(domains))
            }
            system::ISSUE_FILE => {
                self.system_leaf(nodes.state_login_banner, last_newline_off(text))
            }
            system::MOTD_FILE => self.system_leaf(nodes.state_motd_banner, last_newline_off(text)),
            _ => None,
        }
    }

    fn system_leaf(&self, leaf: NodeId, text: &str) -> Option<StateEntry> {
        self.system_value(leaf, Value::Str(text.into()))
    }

    fn system_value(&self, leaf: NodeId, value: Value) -> Option<StateEntry> {
        let path = InstancePath(vec![Step::node(self.nodes.system.system)]);
        let mut leaves = Leaves::of(self.nodes.system.state);
        leaves.put(leaf, value);
        Some(leaves.entry(path))
    }

    /// Path of the entry of a link in the native model.
    pub fn link_path(&self, name: &SmolStr) -> InstancePath {
        let keys = Keys::single(Value::Str(name.clone()));
        let (list, entry) = (self.nodes.interfaces, self.nodes.link.entry);
        InstancePath(vec![Step::node(list), Step::entry(entry, keys)])
    }

    pub(super) fn family_path(
        &self,
        link: &SmolStr,
        family: NodeId,
        list: NodeId,
        ip: IpAddr,
    ) -> InstancePath {
        let entry = Step::entry(list, Keys::single(ip_text(ip)));
        self.link_path(link).join(Step::node(family)).join(entry)
    }

    pub(super) fn route_path(
        &self,
        instance: &SmolStr,
        protocol: &SmolStr,
        prefix: Value,
    ) -> InstancePath {
        let nodes = &self.nodes.route;
        let entry =
            |list, name: &SmolStr| Step::entry(list, Keys::single(Value::Str(name.clone())));
        InstancePath(vec![
            Step::node(self.nodes.instances),
            entry(nodes.instance, instance),
            entry(nodes.protocol, protocol),
            Step::entry(nodes.route, Keys::single(prefix)),
        ])
    }
}

/// Builder for the leaves of one `state` container.
pub(super) struct Leaves {
    /// The container itself first, then those within it.
    groups: Vec<StateGroup>,
}

impl Leaves {
    /// Starts with leaves of the entry itself.
    pub(super) fn of(state: NodeId) -> Self {
        Self::within(None, state)
    }

    /// Starts with leaves of an entry within it.
    fn within(entry: Option<Step>, state: NodeId) -> Self {
        Self {
            groups: vec![StateGroup { entry, containers: smallvec![state], leaves: Vec::new() }],
        }
    }

    pub(super) fn put(&mut self, leaf: NodeId, value: Value) {
        self.groups[0].leaves.push((leaf, value));
    }

    pub(super) fn put_below(&mut self, container: NodeId, leaf: NodeId, value: Value) {
        let existing = self.groups.iter().position(|it| it.containers.last() == Some(&container));
        let at = existing.unwrap_or_else(|| {
            let StateGroup { entry, mut containers, .. } = self.groups[0].clone();
            containers.push(container);
            self.groups.push(StateGroup { entry, containers, leaves: Vec::new() });
            self.groups.len() - 1
        });
        self.groups[at].leaves.push((leaf, value));
    }

    pub(super) fn optional(&mut self, leaf: NodeId, value: Option<Value>) {
        if let Some(value) = value {
            self.put(leaf, value);
        }
    }

    pub(super) fn text(&mut self, leaf: NodeId, text: &str) {
        self.put(leaf, text_value(text));
    }

    pub(super) fn text_enum(&mut self, leaf: NodeId, name: &'static str) {
        self.put(leaf, enum_value(name));
    }

    pub(super) fn entry(self, path: InstancePath) -> StateEntry {
        StateEntry { path, groups: self.groups }
    }
}

fn text_value(text: &str) -> Value {
    Value::Str(text.into())
}

fn enum_value(name: &'static str) -> Value {
    Value::Enum(name.into())
}

fn admin_status(enabled: bool) -> &'static str {
    if enabled { "UP" } else { "DOWN" }
}

fn last_newline_off(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

/// A next hop in the kernel.
struct InstalledHop {
    /// The outgoing link.
    link: Option<SmolStr>,
    /// The kernel sends nothing to it.
    is_unusable: bool,
}

/// Looks a configured next hop up in the kernel's route: `Some` when it is installed.
fn in_kernel(next_hop: &NextHop, route: &KernelRoute) -> Option<InstalledHop> {
    let gateway = match (next_hop.target, &route.target) {
        (NextHopTarget::Drop, RouteTarget::Blackhole) => {
            return Some(InstalledHop { link: None, is_unusable: false });
        }
        (NextHopTarget::Gateway(ip), _) => Some(ip),
        (NextHopTarget::OnLink, _) => None,
        (NextHopTarget::Drop, RouteTarget::Hops(_)) => return None,
    };
    let RouteTarget::Hops(hops) = &route.target else { return None };
    let matches = |hop: &&Hop| {
        hop.gateway == gateway && (next_hop.link.is_none() || next_hop.link == hop.link)
    };
    let hop = hops.iter().find(matches)?;
    let is_unusable = route.unusable.iter().any(|unusable| unusable.contains(hop));
    Some(InstalledHop { link: hop.link.clone(), is_unusable })
}
