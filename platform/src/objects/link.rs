//! `interface` entries as links.

use std::net::IpAddr;

use holdfast_config::{InstancePath, LeafMeta, NodeId, Step};
use smol_str::SmolStr;

use super::nodes::FamilyNodes;
use super::state::Planes;
use super::{Entry, ObjectError, Registry, not_of_one_host};
use crate::kinds::link::LEAST_IPV6_MTU;
use crate::values::{
    BridgeParams, Duplex, Ethernet, EthernetAttribute, Link, LinkKind, MacAddr, VxlanParams,
};

/// Octets of the longest interface name (`IFNAMSIZ` less the final zero).
const MAX_NAME_OCTETS: usize = 15;

/// Octets of the longest alias of a link (`IFALIASZ` less the final zero).
const MAX_ALIAS_OCTETS: usize = 255;

impl Registry {
    pub(super) fn link<M: LeafMeta>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<Link, ObjectError> {
        if let Some(reason) = name_fault(name) {
            return Err(entry.error(format!("no link can be called `{name}`: {reason}")));
        }
        let nodes = &self.nodes.link;
        let mac: Option<MacAddr> = entry.parsed(nodes.mac)?;
        if let Some((mac, reason)) = mac.and_then(|mac| Some((mac, not_of_one_host(mac)?))) {
            return Err(entry.leaf_error(nodes.mac, format!("{mac} is {reason}")));
        }
        if mac.is_some() && name == "lo" {
            let reason = "the loopback link has no link-layer address that could be given back";
            return Err(entry.leaf_error(nodes.mac, reason));
        }
        let subinterface = entry.container(nodes.subinterface);
        let subinterface = subinterface.as_ref();
        let description = entry.text(nodes.description);
        let subinterface_description =
            subinterface.and_then(|it| it.text(nodes.subinterface_description));
        let too_long = |text: &Option<SmolStr>| {
            text.as_ref().is_some_and(|text| text.len() > MAX_ALIAS_OCTETS)
        };
        let reason = || format!("a description has at most {MAX_ALIAS_OCTETS} octets");
        if too_long(&description) {
            return Err(entry.leaf_error(nodes.description, reason()));
        }
        if too_long(&subinterface_description) {
            let leaf = nodes.subinterface_description;
            return Err(entry.inner_error(nodes.subinterface, leaf, reason()));
        }
        let master = entry.text(nodes.master);
        if master.as_ref() == Some(name) {
            return Err(entry.leaf_error(nodes.master, "a link cannot be a port of itself"));
        }
        self.check_penalty(entry)?;
        let kind = self.link_kind(name, entry)?;
        if master.is_some() && matches!(kind, LinkKind::Loopback | LinkKind::Bridge(_)) {
            let reason = format!("a {} link cannot be a port of a bridge", kind.name());
            return Err(entry.leaf_error(nodes.master, reason));
        }
        let (v4, v6) = (&self.nodes.v4, &self.nodes.v6);
        let of_family = |family: &FamilyNodes, leaf| entry.container(family.container)?.bool(leaf);
        // Either way of shutting the link shuts it.
        let up = subinterface.and_then(|it| it.bool(nodes.subinterface_enabled)).unwrap_or(true);
        let mtu = self.mtu(entry)?;
        let [ipv4_ignore_linkdown, ipv6_ignore_linkdown] = self.ignore_linkdown(mtu, entry);
        Ok(Link {
            name: name.clone(),
            ethernet: self.ethernet(name, &kind, entry)?,
            kind,
            enabled: entry.bool(nodes.enabled).unwrap_or(true) && up,
            description: description.or_else(|| subinterface_description.clone()),
            mtu,
            mac,
            master,
            subinterface_description,
            ipv4_enabled: of_family(v4, v4.enabled),
            ipv6_enabled: of_family(v6, v6.enabled),
            ipv4_forwarding: of_family(v4, v4.forwarding),
            ipv6_forwarding: of_family(v6, v6.forwarding),
            ipv4_ignore_linkdown,
            ipv6_ignore_linkdown,
            facts: None,
        })
    }

    /// Whether IPv4 and IPv6 leave out next hops over the link while it has no carrier. Without a configured value they do
    /// where the link has configured addresses, so that its traffic takes another way; the setting of IPv6 does not exist
    /// where the MTU is configured too small for it.
    fn ignore_linkdown<M: LeafMeta>(
        &self,
        mtu: Option<u32>,
        entry: &Entry<'_, M>,
    ) -> [Option<bool>; 2] {
        if let Some(configured) = entry.bool(self.nodes.link.ignore_linkdown) {
            return [Some(configured); 2];
        }
        let has_addresses = [&self.nodes.v4, &self.nodes.v6].into_iter().any(|family| {
            let list = entry.container(family.container);
            list.is_some_and(|it| it.branch.list(family.address).is_some())
        });
        let by_default = has_addresses.then_some(true);
        let has_ipv6 = mtu.is_none_or(|mtu| mtu >= LEAST_IPV6_MTU);
        [by_default, by_default.filter(|_| has_ipv6)]
    }

    /// Speed and duplex that the port has to have, if any of them is given.
    fn ethernet<M: LeafMeta>(
        &self,
        name: &SmolStr,
        kind: &LinkKind,
        entry: &Entry<'_, M>,
    ) -> Result<Option<Ethernet>, ObjectError> {
        let nodes = &self.nodes.link;
        let settings = Ethernet {
            link: name.clone(),
            speed_mbps: entry.number(nodes.port_speed),
            duplex: entry.text(nodes.duplex_mode).and_then(|name| Duplex::named(&name)),
            auto_negotiate: entry.bool(nodes.auto_negotiate),
        };
        let Some(first) = settings.attributes().next() else { return Ok(None) };
        if matches!(kind, LinkKind::Loopback | LinkKind::Dummy) {
            let reason = format!("a {} link has no speed and no duplex mode", kind.name());
            return Err(entry.leaf_error(self.ethernet_leaf(first), reason));
        }
        Ok(Some(settings))
    }

    /// Refuses speed and duplex that the port contradicts, since nothing but its driver sets them. What was asked for
    /// before stays accepted, whatever became of the port since.
    pub(super) fn admit_ethernet(
        &self,
        path: &InstancePath,
        link: &Link,
        before: Option<&Link>,
        planes: Planes<'_>,
    ) -> Result<(), ObjectError> {
        let (Some(requested), Some(planes)) = (&link.ethernet, planes.observed::<Ethernet>())
        else {
            return Ok(());
        };
        let before = before.and_then(|before| before.ethernet.as_ref());
        let is_new = |it: &_| before.and_then(|before| before.counterpart(*it)) != Some(*it);
        let contradicted = requested.attributes().filter(is_new).find_map(|requested| {
            let planes = planes.counterpart(requested).filter(|planes| *planes != requested)?;
            Some((requested, planes))
        });
        let Some((requested, planes)) = contradicted else { return Ok(()) };
        let name = &link.name;
        let reason =
            format!("port `{name}` has {planes}, not {requested}, and the agent cannot set it");
        let path = path.join(Step::node(self.ethernet_leaf(requested)));
        Err(ObjectError { path, reason, incomplete: false })
    }

    fn ethernet_leaf(&self, attribute: EthernetAttribute) -> NodeId {
        let nodes = &self.nodes.link;
        match attribute {
            EthernetAttribute::Speed(_) => nodes.port_speed,
            EthernetAttribute::Duplex(_) => nodes.duplex_mode,
            EthernetAttribute::AutoNegotiate(_) => nodes.auto_negotiate,
        }
    }

    /// The one MTU that the kernel has for all of a link, from the leaves that can ask for it.
    fn mtu<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> Result<Option<u32>, ObjectError> {
        let mut agreed: Option<(u32, &str)> =
            entry.number(self.nodes.link.mtu).map(|octets| (octets, "the link"));
        for (family, name) in [(&self.nodes.v4, "IPv4"), (&self.nodes.v6, "IPv6")] {
            let Some(octets) =
                entry.container(family.container).and_then(|it| it.number(family.mtu))
            else {
                continue;
            };
            match agreed {
                Some((other, whose)) if other != octets => {
                    let reason = format!(
                        "{name} has the MTU of its link, which {whose} is given as {other} octets (without the Ethernet header)"
                    );
                    return Err(entry.inner_error(family.container, family.mtu, reason));
                }
                _ => agreed = Some((octets, name)),
            }
        }
        Ok(agreed.map(|(octets, _)| octets))
    }

    fn link_kind<M: LeafMeta>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<LinkKind, ObjectError> {
        let nodes = &self.nodes.link;
        let kind = entry.text(nodes.kind);
        let fault = |reason: &str| Err(entry.leaf_error(nodes.kind, reason));
        match kind.as_deref().unwrap_or("physical") {
            // OpenConfig calls the loopback device by its own type; natively either will do.
            "physical" if name == "lo" => Ok(LinkKind::Loopback),
            "physical" => Ok(LinkKind::Physical),
            "loopback" if name == "lo" => Ok(LinkKind::Loopback),
            "loopback" => fault("the kernel's only loopback link is `lo`"),
            other if name == "lo" => {
                fault(&format!("`lo` is the loopback link, not a {other} one"))
            }
            "veth" => self.veth(name, entry),
            "bridge" => Ok(LinkKind::Bridge(self.bridge(entry))),
            "vxlan" => self.vxlan(name, entry),
            "dummy" => Ok(LinkKind::Dummy),
            other => fault(&format!("the agent makes no links of type {other}")),
        }
    }

    fn veth<M: LeafMeta>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<LinkKind, ObjectError> {
        let nodes = &self.nodes.link;
        let peer = entry.container(nodes.veth).and_then(|veth| veth.text(nodes.veth_peer));
        let Some(peer) = peer else {
            let error = entry.inner_error(nodes.veth, nodes.veth_peer, "this leaf is mandatory");
            return Err(ObjectError { incomplete: true, ..error });
        };
        let fault = match name_fault(&peer) {
            Some(reason) => Some(format!("no link can be called `{peer}`: {reason}")),
            None if peer == *name => Some("a link cannot be the other end of itself".to_owned()),
            None => None,
        };
        match fault {
            Some(reason) => Err(entry.inner_error(nodes.veth, nodes.veth_peer, reason)),
            None => Ok(LinkKind::Veth { peer: Some(peer) }),
        }
    }

    fn bridge<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> BridgeParams {
        let nodes = &self.nodes.link;
        let default = BridgeParams::default();
        let Some(bridge) = entry.container(nodes.bridge) else { return default };
        BridgeParams {
            stp: bridge.bool(nodes.bridge_stp).unwrap_or(default.stp),
            vlan_filtering: bridge
                .bool(nodes.bridge_vlan_filtering)
                .unwrap_or(default.vlan_filtering),
            ageing_time_s: bridge.number(nodes.bridge_ageing_time).unwrap_or(default.ageing_time_s),
        }
    }

    fn vxlan<M: LeafMeta>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<LinkKind, ObjectError> {
        let nodes = &self.nodes.link;
        let vxlan = entry.container(nodes.vxlan);
        let vni = vxlan.as_ref().and_then(|vxlan| vxlan.number(nodes.vxlan_vni));
        let (Some(vxlan), Some(vni)) = (vxlan, vni) else {
            let error = entry.inner_error(nodes.vxlan, nodes.vxlan_vni, "this leaf is mandatory");
            return Err(ObjectError { incomplete: true, ..error });
        };
        let local: Option<IpAddr> = vxlan.parsed(nodes.vxlan_local)?;
        let remote: Option<IpAddr> = vxlan.parsed(nodes.vxlan_remote)?;
        if let (Some(local), Some(remote)) = (local, remote)
            && local.is_ipv4() != remote.is_ipv4()
        {
            let reason = "local and remote address must be of one family";
            return Err(entry.inner_error(nodes.vxlan, nodes.vxlan_remote, reason));
        }
        let device = vxlan.text(nodes.vxlan_device);
        if device.as_ref() == Some(name) {
            let reason = "a tunnel cannot be its own device";
            return Err(entry.inner_error(nodes.vxlan, nodes.vxlan_device, reason));
        }
        if local.is_some_and(|local| local.is_multicast()) {
            let reason = "a tunnel cannot have the address of a multicast group as its own";
            return Err(entry.inner_error(nodes.vxlan, nodes.vxlan_local, reason));
        }
        let on_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if local.iter().chain(&remote).any(on_link) && device.is_none() {
            let reason = "a link-local address needs a device";
            return Err(entry.inner_error(nodes.vxlan, nodes.vxlan_device, reason));
        }
        if remote.is_some_and(|remote| remote.is_multicast()) && device.is_none() {
            let reason = "a multicast group needs a device";
            return Err(entry.inner_error(nodes.vxlan, nodes.vxlan_device, reason));
        }
        Ok(LinkKind::Vxlan(VxlanParams {
            vni,
            local,
            remote,
            port: vxlan.number(nodes.vxlan_port).unwrap_or(VxlanParams::IANA_PORT),
            device,
            learning: vxlan.bool(nodes.vxlan_learning).unwrap_or(true),
        }))
    }
}

/// Why the kernel takes no link of this name (`dev_valid_name()`, and the folders of the sysctls).
fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        _ if name.len() > MAX_NAME_OCTETS => Some("it has more than 15 octets"),
        "." | ".." => Some("it means a folder"),
        "all" | "default" => Some("the kernel's settings for all links have this name"),
        _ if name.contains(['/', ':']) => Some("it has a slash or a colon"),
        _ if name.contains('%') => Some("the kernel puts a number in the place of a percent sign"),
        _ if name.chars().any(|c| c.is_whitespace() || c.is_control()) => Some("it has a space"),
        _ => None,
    }
}
