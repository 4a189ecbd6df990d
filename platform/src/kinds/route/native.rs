//! Entries of static routes as kernel routes, and kernel routes as state.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_config::{InstancePath, Keys, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Key, ObjectValue, Owner, SharedValue};
use ipnet::IpNet;
use smallvec::SmallVec;
use smol_str::{SmolStr, ToSmolStr as _, format_smolstr};

use super::{Hop, KernelRoute, NextHop, NextHopTarget, RouteTarget, key};
use crate::kinds::entry::{
    Entry, ObjectError, ObjectKeys, ObjectValues, interface_of, ip_text, only_text, vlan_name,
    vlan_of,
};
use crate::kinds::native::{
    Adoption, EntryShare, ModelError, NativeKind, StatusNodes, ValueEntry, nodes,
};
use crate::kinds::state::{Leaves, Planes, StateEntry, StateGroup, enum_value, text_value};
use crate::kinds::types::MAIN_TABLE;
use crate::listed_route::{ListedHop, ListedRoute};

/// Next hops of one kernel route; rtnetlink allows no message of more than 64 KiB.
const MAX_NEXT_HOPS: usize = 256;

/// Words of the native model for next hops without an address.
const DROP: &str = "drop";
const LOCAL_LINK: &str = "local-link";

/// The network instance of the box, and the static protocol of what is adopted.
const DEFAULT_INSTANCE: &str = "DEFAULT";
const DEFAULT_PROTOCOL: &str = "static";

/// Protocols of routes that people and their scripts set, as `ip route` names them.
const ADOPTED_PROTOCOLS: [&str; 2] = ["boot", "static"];

nodes!(
    /// `network-instance` and the static routes below it.
    RouteNodes {
        instances: "",
        instance: "/network-instance",
        protocol: "/network-instance/static",
        route: "/network-instance/static/route",
        description: "/network-instance/static/route/description",
        route_state: "/network-instance/static/route/state",
        route_state_prefix: "/network-instance/static/route/state/prefix",
        route_state_description: "/network-instance/static/route/state/description",
        route_state_effective_status: "/network-instance/static/route/state/effective-status",
        hop: "/network-instance/static/route/next-hop",
        hop_target: "/network-instance/static/route/next-hop/next-hop",
        hop_interface: "/network-instance/static/route/next-hop/interface",
        hop_metric: "/network-instance/static/route/next-hop/metric",
        hop_state: "/network-instance/static/route/next-hop/state",
        hop_state_index: "/network-instance/static/route/next-hop/state/index",
        hop_state_target: "/network-instance/static/route/next-hop/state/next-hop",
        hop_subinterface: "/network-instance/static/route/next-hop/subinterface",
        hop_state_interface: "/network-instance/static/route/next-hop/state/interface",
        hop_state_subinterface: "/network-instance/static/route/next-hop/state/subinterface",
        hop_state_metric: "/network-instance/static/route/next-hop/state/metric",
        hop_state_unusable: "/network-instance/static/route/next-hop/state/unusable",
    }
);

impl RouteNodes {
    pub(crate) fn bind(schema: &Schema) -> Result<Self, ModelError> {
        Self::find(schema, "/network-instances")
    }

    /// Path of the entry of a static route.
    pub(crate) fn path(
        &self,
        instance: &SmolStr,
        protocol: &SmolStr,
        prefix: Value,
    ) -> InstancePath {
        let nodes = self;
        let entry =
            |list, name: &SmolStr| Step::entry(list, Keys::single(Value::Str(name.clone())));
        InstancePath(vec![
            Step::node(nodes.instances),
            entry(nodes.instance, instance),
            entry(nodes.protocol, protocol),
            Step::entry(nodes.route, Keys::single(prefix)),
        ])
    }

    /// The configuration of a route as the kernel lists it. `first` is the number of its first next hop in the entry, which
    /// routes of other metrics share.
    pub(crate) fn adoption(&self, route: &ListedRoute, first: usize) -> Adoption {
        let ListedRoute { prefix, metric, protocol, treatment, .. } = route;
        let left_out = |reason: &str| Adoption::LeftOut(format!("route {prefix}: {reason}"));
        if !route.is_ours && !ADOPTED_PROTOCOLS.contains(&protocol.as_str()) {
            return left_out(&format!("protocol {protocol} looks after it"));
        }
        if route.table != MAIN_TABLE {
            return left_out(&format!("table {} is not modelled", route.table));
        }
        let drops = *treatment == "blackhole";
        if !drops && *treatment != "unicast" {
            return left_out(&format!("the treatment {treatment} is not modelled"));
        }
        if let Some(attribute) = route.unmodelled {
            return left_out(&format!("it has {attribute}, which is not modelled"));
        }
        if route.hops.iter().any(|hop| hop.weight != route.hops[0].weight) {
            return left_out("weights of next hops are not modelled");
        }
        let instance = SmolStr::new_static(DEFAULT_INSTANCE);
        let path = self.path(&instance, &DEFAULT_PROTOCOL.into(), Value::Str(prefix.to_smolstr()));
        // A route without a metric is taken over by one with the metric of static routes.
        let is_plain = *metric == 0 || *metric == KernelRoute::kernel_metric(*prefix, None);
        let own_metric = (!is_plain).then_some(*metric);
        let none = ListedHop { gateway: None, link: None, weight: 1, fault: None };
        let hops = if drops { std::slice::from_ref(&none) } else { &route.hops[..] };
        let mut groups = Vec::with_capacity(hops.len());
        for (number, hop) in (first..).zip(hops) {
            let keys = Keys::single(Value::Str(format_smolstr!("{number}")));
            let entry = Some(Step::entry(self.hop, keys));
            let mut leaves = Vec::new();
            let is_link_local =
                matches!(hop.gateway, Some(IpAddr::V6(ip)) if ip.is_unicast_link_local());
            match (hop.gateway, &hop.link) {
                (Some(gateway), _) => leaves.push((self.hop_target, ip_text(gateway))),
                (None, Some(_)) => {}
                (None, None) => leaves.push((self.hop_target, enum_value(DROP))),
            }
            // A gateway is reached by the link of its prefix.
            let link = hop.link.as_deref().filter(|_| hop.gateway.is_none() || is_link_local);
            leaves.extend(link.map(|link| (self.hop_interface, text_value(link))));
            leaves.extend(own_metric.map(|it| (self.hop_metric, Value::Uint(it.into()))));
            groups.push(StateGroup { entry, containers: SmallVec::new(), leaves });
        }
        Adoption::Entry(StateEntry { path, groups })
    }

    /// Path of the entry that asked for a route; `None` for a route of others.
    pub(crate) fn entry_of(&self, value: &dyn ObjectValue) -> Option<InstancePath> {
        let route: &KernelRoute = value.as_any().downcast_ref()?;
        let source = route.source.as_ref()?;
        let prefix = Value::Str(route.prefix.to_smolstr());
        Some(self.path(&source.instance, &source.protocol, prefix))
    }
}

/// `route` of a STATIC protocol in the native model.
#[derive(Debug)]
pub(super) struct NativeRoute {
    nodes: RouteNodes,
}

/// Steps that name instance and protocol: `network-instances/network-instance[name]/static[name]/route[prefix]`.
const INSTANCE_STEP: usize = 1;
const PROTOCOL_STEP: usize = 2;

impl NativeRoute {
    pub(super) fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self { nodes: RouteNodes::bind(schema)? }))
    }

    /// Kernel routes of a static route, one for each metric of its next hops.
    fn routes(
        &self,
        instance: &SmolStr,
        protocol: &SmolStr,
        entry: &Entry<'_>,
    ) -> Result<ObjectValues, ObjectError> {
        let prefix: IpNet = entry.key_as()?;
        if prefix != prefix.trunc() {
            let reason = format!("the prefix has host bits set: write {}", prefix.trunc());
            return Err(entry.error(reason));
        }
        let hops = self.hops(entry, |hop| self.next_hop(prefix, hop));
        let hops: Vec<NextHop> = hops.into_iter().collect::<Result<_, _>>()?;
        if let Some(reason) = fault(prefix, &hops) {
            return Err(entry.error(reason));
        }
        let route = |route: KernelRoute| {
            let key = key(route.table, route.prefix, route.metric);
            (key, Arc::new(route) as SharedValue)
        };
        let routes = KernelRoute::of_entry(instance, protocol, prefix, &hops);
        Ok(routes.into_iter().map(route).collect())
    }

    fn route_keys(&self, entry: &Entry<'_>) -> Result<ObjectKeys, ObjectError> {
        let prefix: IpNet = entry.key_as()?;
        let metric =
            |hop: &Entry<'_>| KernelRoute::kernel_metric(prefix, hop.number(self.nodes.hop_metric));
        let key = |metric| key(MAIN_TABLE, prefix, metric);
        let mut keys: ObjectKeys = match prefix == prefix.trunc() {
            true => self.hops(entry, metric).into_iter().map(key).collect(),
            false => ObjectKeys::new(), // such an entry is refused, and the network may have one of its own
        };
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Results of `act` for each next hop of a static route, in the order of their `index` leaf.
    fn hops<R>(&self, entry: &Entry<'_>, act: impl Fn(&Entry<'_>) -> R) -> Vec<R> {
        let list = self.nodes.hop;
        let mut all = Vec::new();
        entry.branch.each_entry(list, &mut |keys, hop| {
            all.push(act(&entry.inner(list, keys, hop)));
        });
        all
    }

    fn next_hop(&self, prefix: IpNet, entry: &Entry<'_>) -> Result<NextHop, ObjectError> {
        let nodes = &self.nodes;
        let index = entry.key_text().cloned().unwrap_or_default();
        let link = self.link(entry)?;
        let target = match entry.text(nodes.hop_target).as_deref() {
            Some(DROP) => NextHopTarget::Drop,
            Some(LOCAL_LINK) if link.is_none() => {
                let reason = "`local-link` sends on a link: an interface has to say which";
                return Err(entry.leaf_error(nodes.hop_interface, reason));
            }
            Some(LOCAL_LINK) => NextHopTarget::OnLink,
            None if link.is_some() => NextHopTarget::OnLink,
            None => {
                let reason = "a next hop needs an address, an interface or `drop`";
                return Err(ObjectError { incomplete: true, ..entry.error(reason) });
            }
            Some(text) => NextHopTarget::Gateway(
                gateway(text, prefix)
                    .map_err(|reason| entry.leaf_error(nodes.hop_target, reason))?,
            ),
        };
        if let NextHopTarget::Gateway(IpAddr::V6(ip)) = target
            && ip.is_unicast_link_local()
            && link.is_none()
        {
            let reason = format!("{ip} is link-local: set `interface`");
            let error = entry.leaf_error(nodes.hop_interface, reason);
            return Err(ObjectError { incomplete: true, ..error });
        }
        if target == NextHopTarget::Drop && link.is_some() {
            return Err(entry.leaf_error(
                nodes.hop_interface,
                "a next hop that drops cannot have an interface",
            ));
        }
        Ok(NextHop { index, target, link, metric: entry.number(nodes.hop_metric) })
    }

    /// The link that a next hop names: an interface, or a VLAN of it.
    fn link(&self, entry: &Entry<'_>) -> Result<Option<SmolStr>, ObjectError> {
        let nodes = &self.nodes;
        let interface = entry.text(nodes.hop_interface);
        let index: u64 = entry.number(nodes.hop_subinterface).unwrap_or(0);
        let fault = |reason: String| entry.leaf_error(nodes.hop_subinterface, reason);
        match interface {
            interface if index == 0 => Ok(interface),
            None => {
                let error = fault(format!("subinterface {index} needs its interface: set it, too"));
                Err(ObjectError { incomplete: true, ..error })
            }
            Some(interface) if vlan_of(&interface).is_some() => Err(fault(format!(
                "`{interface}` is a VLAN itself, and has no subinterface {index}"
            ))),
            Some(interface) => Ok(Some(vlan_name(&interface, index))),
        }
    }

    fn static_state(&self, entry: &Entry<'_>) -> Option<StateEntry> {
        let nodes = &self.nodes;
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
        let nodes = &self.nodes;
        let source = applied.source.as_ref()?;
        let path = self.nodes.entry_of(applied)?;
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
            if let Some((interface, subinterface)) = link.as_deref().map(interface_of) {
                leaves.text(nodes.hop_state_interface, interface);
                leaves.put(nodes.hop_state_subinterface, Value::Uint(subinterface.into()));
            }
            leaves.put(nodes.hop_state_metric, Value::Uint(applied.metric.into()));
            leaves.optional(nodes.hop_state_unusable, is_unusable.then_some(Value::Bool(true)));
            groups.append(&mut leaves.groups);
        }
        Some(StateEntry { path, groups })
    }
}

impl NativeKind for NativeRoute {
    fn lists(&self) -> Vec<NodeId> {
        vec![self.nodes.route]
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let instance = entry.name_of_step(INSTANCE_STEP)?;
        self.routes(instance, entry.name_of_step(PROTOCOL_STEP)?, entry)
    }

    fn keys(&self, entry: &Entry<'_>) -> Result<ObjectKeys, ObjectError> {
        self.route_keys(entry)
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let observed: &KernelRoute = planes.observed()?;
        self.route_state(planes.applied()?, |hop| in_kernel(hop, observed))
    }

    /// The kernel decides by which link a next hop leaves, and whether it uses it.
    fn most_of(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.route_state(planes.applied()?, |hop| {
            let link = (hop.target != NextHopTarget::Drop).then(SmolStr::default);
            Some(InstalledHop { link, is_unusable: true })
        })
    }

    fn has_configured_state(&self, _: NodeId) -> bool {
        true
    }

    fn configured_state(&self, entry: &Entry<'_>) -> Option<StateEntry> {
        self.static_state(entry)
    }

    /// Another protocol may ask for the same route.
    fn owner(&self, path: &InstancePath) -> Option<Owner> {
        let name = |step: usize| only_text(path.0.get(step)?.keys.as_ref()?);
        Some(owner(name(INSTANCE_STEP)?, name(PROTOCOL_STEP)?))
    }

    fn value_entry(&self, _: &Key, planes: Planes<'_>) -> Option<ValueEntry> {
        let path = self.nodes.entry_of(planes.applied.or(planes.intended)?)?;
        Some(ValueEntry { path, share: EntryShare::OneOfSeveral })
    }

    fn status_nodes(&self) -> Vec<StatusNodes> {
        let nodes = &self.nodes;
        let list = nodes.route;
        let container = nodes.route_state;
        vec![StatusNodes { list, container, leaf: nodes.route_state_effective_status }]
    }
}

/// Owner of the routes of a STATIC protocol.
pub(crate) fn owner(instance: &SmolStr, protocol: &SmolStr) -> Owner {
    Owner::new(format_smolstr!("protocol STATIC {protocol} of {instance}"))
}

fn gateway(text: &str, prefix: IpNet) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
    match (prefix, ip) {
        (IpNet::V6(_), IpAddr::V4(_)) => {
            Err(format!("the kernel supports no IPv4 gateway for the IPv6 prefix {prefix}"))
        }
        _ if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() => {
            Err(format!("{ip} cannot be a gateway"))
        }
        _ => Ok(ip),
    }
}

/// First conflict among the next hops of a route.
fn fault(prefix: IpNet, hops: &[NextHop]) -> Option<String> {
    if hops.len() > MAX_NEXT_HOPS {
        return Some(format!("a route may have {MAX_NEXT_HOPS} next hops at most"));
    }
    if let (Some(zero), Some(one)) = (with_metric(hops, 0), with_metric(hops, 1)) {
        let reason = "metric 0 means 1, so the kernel cannot tell them apart by it";
        return Some(format!(
            "next hop `{}` has metric 0 and `{}` has metric 1: {reason}",
            zero.index, one.index
        ));
    }
    let metric = |hop: &NextHop| KernelRoute::kernel_metric(prefix, hop.metric);
    for (at, hop) in hops.iter().enumerate() {
        let others = hops.iter().enumerate().filter(|(other, _)| *other != at);
        let same_metric: Vec<&NextHop> =
            others.map(|(_, it)| it).filter(|it| metric(it) == metric(hop)).collect();
        if same_metric.is_empty() {
            continue;
        }
        if hop.target == NextHopTarget::Drop {
            return Some(format!(
                "next hop `{}` drops, but other next hops have the same metric",
                hop.index
            ));
        }
        if hop.target == NextHopTarget::OnLink && prefix.addr().is_ipv6() {
            return Some(format!(
                "next hop `{}` has no address, but other next hops have the same metric: IPv6 needs an address for each of them",
                hop.index
            ));
        }
        if let Some(twin) = same_metric.iter().find(|it| is_twin(hop, it)) {
            return Some(format!(
                "next hops `{}` and `{}` are the same: {}",
                hop.index,
                twin.index,
                "a gateway without an interface is reached by the interface of its prefix"
            ));
        }
    }
    None
}

fn with_metric(hops: &[NextHop], metric: u32) -> Option<&NextHop> {
    hops.iter().find(|hop| hop.metric == Some(metric))
}

/// True for next hops that are one in the kernel. A gateway that is named with an interface and without one would be in
/// the route twice.
fn is_twin(hop: &NextHop, other: &NextHop) -> bool {
    let same_link = hop.link == other.link || hop.link.is_none() || other.link.is_none();
    hop.target == other.target && same_link
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
