//! Decoding of rtnetlink messages about links.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVxlan,
    LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop, State,
};

use super::AGEING_TICKS_PER_S;
use super::{BridgeParams, Link, LinkFacts, LinkKind, OperState, VxlanParams};
use crate::kinds::links::LinkIndex;
use crate::kinds::types::{MacAddr, OUR_ALTNAME_PREFIX};

/// The link that an `RTM_NEWLINK` describes.
///
/// `None` for messages that are about a link's port in a bridge only (`AF_BRIDGE`); the bridge
/// sends them on the same multicast group.
pub(crate) fn decode(message: &LinkMessage, links: &LinkIndex) -> Option<Link> {
    if message.header.interface_family == AddressFamily::Bridge {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link::new("", LinkKind::Physical);
    let mut facts = LinkFacts { index: message.header.index, ..LinkFacts::default() };
    let mut below = None;
    link.enabled = flags.contains(LinkFlags::Up);
    if flags.contains(LinkFlags::Loopback) {
        link.kind = LinkKind::Loopback;
    }
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name.as_str().into(),
            LinkAttribute::IfAlias(text) if !text.is_empty() => {
                link.description = Some(text.as_str().into());
            }
            LinkAttribute::Mtu(mtu) => link.mtu = Some(*mtu),
            LinkAttribute::Address(bytes) => link.mac = MacAddr::from_slice(bytes),
            LinkAttribute::PermAddress(bytes) => facts.hardware_mac = MacAddr::from_slice(bytes),
            LinkAttribute::Controller(index) => link.master = links.name(*index).cloned(),
            LinkAttribute::Link(index) => below = links.name(*index).cloned(),
            LinkAttribute::OperState(state) => facts.oper = oper_state(*state),
            LinkAttribute::CarrierChanges(count) => facts.carrier_changes = *count,
            LinkAttribute::AfSpecUnspec(families) => link.ipv6_enabled = ipv6_enabled(families),
            LinkAttribute::PropList(list) => facts.ours = list.iter().any(is_our_name),
            LinkAttribute::LinkInfo(info) => {
                link.kind = kind(info, links).unwrap_or(link.kind);
                facts.ages_faster = info.iter().any(is_changing);
            }
            _ => {}
        }
    }
    // The operational state is older than the flags while the kernel's work on the carrier is delayed.
    if facts.oper == OperState::Up && !flags.contains(LinkFlags::LowerUp) {
        facts.oper = OperState::Down;
    }
    // IFLA_LINK of a veth is its far end; where that is in another namespace the number is not an index here.
    if let LinkKind::Veth { peer } = &mut link.kind {
        let elsewhere = |attribute: &_| matches!(attribute, LinkAttribute::LinkNetNsId(_));
        *peer = below.filter(|_| !message.attributes.iter().any(elsewhere));
    }
    link.facts = Some(facts);
    Some(link)
}

/// Value of the link's `disable_ipv6`, inverted; `None` from a kernel without IPv6.
fn ipv6_enabled(families: &[AfSpecUnspec]) -> Option<bool> {
    let ipv6 = families.iter().find_map(|family| match family {
        AfSpecUnspec::Inet6(facts) => Some(facts),
        _ => None,
    })?;
    ipv6.iter().find_map(|fact| match fact {
        AfSpecInet6::DevConf(variables) => Some(variables.disable_ipv6 == 0),
        _ => None,
    })
}

fn is_our_name(prop: &Prop) -> bool {
    matches!(prop, Prop::AltIfName(name) if name.starts_with(OUR_ALTNAME_PREFIX))
}

/// True for a bridge with a spanning tree topology change in progress.
fn is_changing(info: &LinkInfo) -> bool {
    let LinkInfo::Data(InfoData::Bridge(info)) = info else { return false };
    info.iter().any(|info| matches!(info, InfoBridge::TopologyChange(1..)))
}

fn oper_state(state: State) -> OperState {
    match state {
        State::Up => OperState::Up,
        State::Down => OperState::Down,
        State::LowerLayerDown => OperState::LowerLayerDown,
        State::NotPresent => OperState::NotPresent,
        State::Testing => OperState::Testing,
        State::Dormant => OperState::Dormant,
        _ => OperState::Unknown,
    }
}

fn kind(info: &[LinkInfo], links: &LinkIndex) -> Option<LinkKind> {
    let kind = info.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })?;
    let data = info.iter().find_map(|info| match info {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    });
    Some(match (kind, data) {
        (InfoKind::Veth, _) => LinkKind::Veth { peer: None },
        (InfoKind::Dummy, _) => LinkKind::Dummy,
        (InfoKind::Bridge, Some(InfoData::Bridge(info))) => LinkKind::Bridge(bridge(info)),
        (InfoKind::Bridge, _) => LinkKind::Bridge(BridgeParams::default()),
        (InfoKind::Vxlan, Some(InfoData::Vxlan(info))) => LinkKind::Vxlan(vxlan(info, links)),
        (kind, _) => LinkKind::Other(kind.to_string().into()),
    })
}

fn bridge(info: &[InfoBridge]) -> BridgeParams {
    let mut params = BridgeParams::default();
    for attribute in info {
        match attribute {
            InfoBridge::AgeingTime(ticks) => params.ageing_time_s = ticks / AGEING_TICKS_PER_S,
            InfoBridge::StpState(state) => params.stp = *state != BridgeStpState::Disabled,
            InfoBridge::VlanFiltering(on) => params.vlan_filtering = *on,
            _ => {}
        }
    }
    params
}

fn vxlan(info: &[InfoVxlan], links: &LinkIndex) -> VxlanParams {
    let mut params = VxlanParams::new(0);
    for attribute in info {
        match attribute {
            InfoVxlan::Id(vni) => params.vni = *vni,
            InfoVxlan::Port(port) => params.port = *port,
            InfoVxlan::Learning(on) => params.learning = *on,
            InfoVxlan::Local(ip) => params.local = Some(IpAddr::V4(*ip)),
            InfoVxlan::Local6(ip) => params.local = Some(IpAddr::V6(*ip)),
            InfoVxlan::Group(ip) => params.remote = Some(IpAddr::V4(*ip)),
            InfoVxlan::Group6(ip) => params.remote = Some(IpAddr::V6(*ip)),
            InfoVxlan::Link(index) => params.device = links.name(*index).cloned(),
            _ => {}
        }
    }
    params
}

#[cfg(test)]
mod tests {
    use holdfast_scheduler::Descriptor;

    use super::*;
    use crate::kinds::link::LinkDescriptor;

    /// During a topology change the kernel ages addresses faster (IEEE 802.1D-1998, 8.5.3.14); this is not drift.
    #[test]
    fn shorter_ageing_during_a_topology_change_is_no_drift() {
        let satisfied = |stp, ageing_time_s: u32, changing| {
            let mut message = LinkMessage::default();
            let bridge = vec![
                InfoBridge::AgeingTime(ageing_time_s * AGEING_TICKS_PER_S),
                InfoBridge::StpState(stp),
                InfoBridge::TopologyChange(changing),
            ];
            let info =
                vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(bridge))];
            message.header.flags = LinkFlags::Up;
            message.attributes =
                vec![LinkAttribute::IfName("br0".into()), LinkAttribute::LinkInfo(info)];
            let params = BridgeParams { stp: true, ..BridgeParams::default() };
            let params = Link::new("br0", LinkKind::Bridge(params));
            LinkDescriptor::default()
                .satisfied_by(&params, &decode(&message, &LinkIndex::new()).unwrap())
        };
        assert!(satisfied(BridgeStpState::KernelStp, 300, 0));
        assert!(satisfied(BridgeStpState::KernelStp, 30, 1));
        assert!(!satisfied(BridgeStpState::KernelStp, 30, 0));
        assert!(!satisfied(BridgeStpState::Disabled, 30, 1));
    }
}
