//! Conversion of `network-instance`, `static` and `route` entries.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_config::tree::ListEntry as _;
use holdfast_config::{Branch, InstancePath, Keys, LeafMeta, Provenance, Step, Tree, Value};
use holdfast_scheduler::{Key, Owner, SharedValue};
use ipnet::IpNet;
use smol_str::{SmolStr, ToSmolStr as _, format_smolstr};

use super::{Entry, ObjectError, ObjectKeys, ObjectValues, Registry, only_text};
use crate::kinds::route::key;
use crate::values::{KernelRoute, MAIN_TABLE, NextHop, NextHopTarget};

/// The only network instance: the namespace itself.
pub const DEFAULT_INSTANCE: &str = "DEFAULT";

/// Next hops of one kernel route; rtnetlink allows no message of more than 64 KiB.
const MAX_NEXT_HOPS: usize = 256;

/// Words of the native model for next hops without an address.
pub(super) const DROP: &str = "drop";
pub(super) const LOCAL_LINK: &str = "local-link";

/// A next hop of a static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteHop {
    /// Its entry in the native model.
    pub entry: InstancePath,
    /// The kernel route that has it.
    pub route: Key,
    /// The next hop as it is configured, a fence laid over it.
    pub hop: NextHop,
}

/// Owner of the routes of a STATIC protocol.
pub(super) fn owner((instance, protocol): (&SmolStr, &SmolStr)) -> Owner {
    Owner::new(format_smolstr!("protocol STATIC {protocol} of {instance}"))
}

impl Registry {
    pub(super) fn check_instance<M: LeafMeta>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<(), ObjectError> {
        if name != DEFAULT_INSTANCE {
            let reason = format!("the agent knows no network instance but {DEFAULT_INSTANCE}");
            return Err(entry.error(reason));
        }
        Ok(())
    }

    /// Kernel routes of a static route, one for each metric of its next hops.
    pub(super) fn routes<M: LeafMeta>(
        &self,
        instance: &SmolStr,
        protocol: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<ObjectValues, ObjectError> {
        let prefix: IpNet = entry.key_as()?;
        if prefix != prefix.trunc() {
            let reason = format!("bits of the host are set: the network is {}", prefix.trunc());
            return Err(entry.error(reason));
        }
        let hops = self.hops(entry, |hop| self.next_hop(prefix, hop));
        let hops: Vec<NextHop> = hops.collect::<Result<_, _>>()?;
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

    /// True for the entry of a static route.
    pub fn is_static_route(&self, entry: &InstancePath) -> bool {
        entry.last().is_some_and(|step| step.node == self.nodes.route.route)
    }

    /// Next hops of a static route; none where the entry is no route that the agent carries out.
    pub fn route_hops(&self, path: &InstancePath, entry: &Branch<Provenance>) -> Vec<RouteHop> {
        let values = self.values(path, entry).unwrap_or_default();
        let mut found = Vec::new();
        for (key, value) in values.iter() {
            let route = value.as_any().downcast_ref::<KernelRoute>();
            let source = route.and_then(|route| route.source.as_ref());
            for hop in source.into_iter().flat_map(|source| &source.next_hops) {
                let keys = Keys::single(Value::Str(hop.index.clone()));
                let entry = path.join(Step::entry(self.nodes.route.hop, keys));
                found.push(RouteHop { entry, route: key.clone(), hop: hop.clone() });
            }
        }
        found
    }

    /// Kernel routes that the static routes of a native tree to one prefix ask for, of all protocols.
    pub fn static_routes_to(&self, tree: &Tree<Provenance>, prefix: IpNet) -> Vec<KernelRoute> {
        let instance = SmolStr::new_static(DEFAULT_INSTANCE);
        let keys = Keys::single(Value::Str(instance.clone()));
        let above =
            [Step::node(self.nodes.instances), Step::entry(self.nodes.route.instance, keys)];
        let Some(branch) = tree.find_branch(&above) else { return Vec::new() };
        let protocols = branch.list(self.nodes.route.protocol);
        let protocols = protocols.into_iter().flat_map(|list| list.iter());
        let routes = protocols.filter_map(|(keys, _)| {
            let path =
                self.route_path(&instance, only_text(keys)?, Value::Str(prefix.to_smolstr()));
            let entry = tree.find_branch(&path.0)?;
            let values = self.values(&path, &entry).ok()?;
            let routes = values.iter().filter_map(|(_, it)| it.as_any().downcast_ref());
            Some(routes.cloned().collect::<Vec<KernelRoute>>())
        });
        routes.flatten().collect()
    }

    pub(super) fn route_keys<M: LeafMeta>(
        &self,
        entry: &Entry<'_, M>,
    ) -> Result<ObjectKeys, ObjectError> {
        let prefix: IpNet = entry.key_as()?;
        let metric = |hop: &Entry<'_, M>| {
            KernelRoute::kernel_metric(prefix, hop.number(self.nodes.route.hop_metric))
        };
        let key = |metric| key(MAIN_TABLE, prefix, metric);
        let mut keys: ObjectKeys = match prefix == prefix.trunc() {
            true => self.hops(entry, metric).map(key).collect(),
            false => ObjectKeys::new(), // such an entry is refused, and the network may have one of its own
        };
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// What `act` gives for each next hop of a static route, in the order of their `index` leaf.
    fn hops<M: LeafMeta, R>(
        &self,
        entry: &Entry<'_, M>,
        act: impl Fn(&Entry<'_, M>) -> R,
    ) -> impl Iterator<Item = R> {
        let list = self.nodes.route.hop;
        let hops = entry.branch.list(list).into_iter().flat_map(|hops| hops.iter());
        hops.map(move |(keys, hop)| act(&entry.inner(list, keys, &hop.branch())))
    }

    fn next_hop<M: LeafMeta>(
        &self,
        prefix: IpNet,
        entry: &Entry<'_, M>,
    ) -> Result<NextHop, ObjectError> {
        let nodes = &self.nodes.route;
        let index = entry.key_text().cloned().unwrap_or_default();
        let link = entry.text(nodes.hop_interface);
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
            let reason = format!("every link has its own {ip}: an interface has to say which");
            let error = entry.leaf_error(nodes.hop_interface, reason);
            return Err(ObjectError { incomplete: true, ..error });
        }
        if target == NextHopTarget::Drop && link.is_some() {
            return Err(
                entry.leaf_error(nodes.hop_interface, "what is dropped leaves by no interface")
            );
        }
        Ok(NextHop { index, target, link, metric: entry.number(nodes.hop_metric) })
    }
}

fn gateway(text: &str, prefix: IpNet) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
    match (prefix, ip) {
        (IpNet::V6(_), IpAddr::V4(_)) => {
            Err(format!("the kernel supports no IPv4 gateway for the IPv6 prefix {prefix}"))
        }
        _ if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() => {
            Err(format!("{ip} is no gateway"))
        }
        _ => Ok(ip),
    }
}

/// First conflict among the next hops of a route.
fn fault(prefix: IpNet, hops: &[NextHop]) -> Option<String> {
    if hops.len() > MAX_NEXT_HOPS {
        return Some(format!("a route has at most {MAX_NEXT_HOPS} next hops"));
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
            return Some(format!("next hop `{}` drops what others of its metric send", hop.index));
        }
        if hop.target == NextHopTarget::OnLink && prefix.addr().is_ipv6() {
            return Some(format!(
                "next hop `{}` has no address, and others have its metric: the kernel supports several next hops of \
                 one metric in IPv6 only with an address each",
                hop.index
            ));
        }
        if let Some(twin) = same_metric.iter().find(|it| is_twin(hop, it)) {
            return Some(format!(
                "next hops `{}` and `{}` are the same: {}",
                hop.index,
                twin.index,
                "a gateway without an interface is reached by that of its prefix"
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
