//! Conversion of `network-instance`, `static` and `route` entries.

use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

use super::{Entry, ObjectError, Registry};
use crate::values::{
    KernelRoute, NetworkInstance, NextHop, NextHopTarget, StaticProtocol, StaticRoute,
};

/// The only network instance: the namespace itself.
pub const DEFAULT_INSTANCE: &str = "DEFAULT";

/// Next hops of one kernel route; rtnetlink allows no message of more than 64 KiB.
const MAX_NEXT_HOPS: usize = 256;

impl Registry {
    pub(super) fn instance<M>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<NetworkInstance, ObjectError> {
        if name != DEFAULT_INSTANCE {
            let reason = format!("the agent knows no network instance but {DEFAULT_INSTANCE}");
            return Err(entry.error(reason));
        }
        Ok(NetworkInstance { name: name.clone() })
    }

    pub(super) fn protocol(&self, instance: &SmolStr, name: &SmolStr) -> StaticProtocol {
        StaticProtocol { instance: instance.clone(), name: name.clone() }
    }

    pub(super) fn route<M>(
        &self,
        instance: &SmolStr,
        protocol: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<StaticRoute, ObjectError> {
        let nodes = &self.nodes.route;
        let prefix: IpNet = entry.key_as()?;
        if prefix != prefix.trunc() {
            let reason = format!("bits of the host are set: the network is {}", prefix.trunc());
            return Err(entry.error(reason));
        }
        let mut next_hops = Vec::new();
        for (keys, branch) in entry.branch.list(nodes.hop).iter().flat_map(|list| list.iter()) {
            next_hops.push(self.next_hop(prefix, &entry.inner(nodes.hop, keys, branch))?);
        }
        let route = StaticRoute {
            instance: instance.clone(),
            protocol: protocol.clone(),
            prefix,
            description: entry.text(nodes.description),
            next_hops,
        };
        match fault(&route) {
            Some(reason) => Err(entry.error(reason)),
            None => Ok(route),
        }
    }

    fn next_hop<M>(&self, prefix: IpNet, entry: &Entry<'_, M>) -> Result<NextHop, ObjectError> {
        let nodes = &self.nodes.route;
        let index = entry.key_text().cloned().unwrap_or_default();
        let link = entry.text(nodes.hop_interface);
        let target = match entry.text(nodes.hop_target).as_deref() {
            Some("drop") => NextHopTarget::Drop,
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
fn fault(route: &StaticRoute) -> Option<String> {
    let metric = |hop: &NextHop| KernelRoute::kernel_metric(route.prefix, hop.metric);
    for (at, hop) in route.next_hops.iter().enumerate() {
        let same_metric = || {
            route
                .next_hops
                .iter()
                .enumerate()
                .filter(move |(other, it)| *other != at && metric(it) == metric(hop))
        };
        if hop.target == NextHopTarget::Drop && same_metric().next().is_some() {
            return Some(format!("next hop `{}` drops what others of its metric send", hop.index));
        }
        if let Some((_, twin)) =
            same_metric().find(|(_, it)| it.target == hop.target && it.link == hop.link)
        {
            return Some(format!("next hops `{}` and `{}` are the same", hop.index, twin.index));
        }
    }
    (route.next_hops.len() > MAX_NEXT_HOPS)
        .then(|| format!("a route has at most {MAX_NEXT_HOPS} next hops"))
}
