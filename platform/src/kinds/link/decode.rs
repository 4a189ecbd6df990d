//! Decoding of rtnetlink messages about links.

use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    Prop, State,
};
use smol_str::{SmolStr, ToSmolStr as _};

use super::rows::row_of_kind;
use super::{
    Attribute, Link, LinkFacts, LinkKind, MadeLink, OperState, Param, ParamRow, ParamType,
};
use crate::kinds::entry::vlan_of;
use crate::kinds::links::LinkIndex;
use crate::kinds::types::{MacAddr, OUR_ALTNAME_PREFIX};

/// The link that an `RTM_NEWLINK` describes.
///
/// `None` for messages that are about a link's port in a bridge only (`AF_BRIDGE`); the bridge
/// sends them on the same multicast group. `None` also for a link of others that has the name by which the agent knows another
/// link, which is a VLAN with a name of its own.
pub(crate) fn decode(message: &LinkMessage, links: &LinkIndex) -> Option<Link> {
    if message.header.interface_family == AddressFamily::Bridge {
        return None;
    }
    let flags = message.header.flags;
    let mut link = Link::new("", LinkKind::Physical);
    let mut facts = LinkFacts { index: message.header.index, ..LinkFacts::default() };
    let mut lower = None;
    let mut mark = None;
    let info = info_of(message);
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
            LinkAttribute::Link(index) => lower = links.name(*index),
            LinkAttribute::OperState(state) => facts.oper = oper_state(*state),
            LinkAttribute::CarrierChanges(count) => facts.carrier_changes = *count,
            LinkAttribute::AfSpecUnspec(families) => link.ipv6_enabled = ipv6_enabled(families),
            LinkAttribute::PropList(list) => mark = list.iter().find_map(our_mark),
            _ => {}
        }
    }
    // The operational state is older than the flags while the kernel's work on the carrier is delayed.
    if facts.oper == OperState::Up && !flags.contains(LinkFlags::LowerUp) {
        facts.oper = OperState::Down;
    }
    // Where the other link is in another namespace, the number is not an index here.
    let elsewhere = |attribute: &_| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    let lower = lower.filter(|_| !message.attributes.iter().any(elsewhere));
    link.kind = kind(info, lower, links).unwrap_or(link.kind);
    facts.ours = mark.is_some();
    if let LinkKind::Made(made) = &mut link.kind
        && let Some(position) = made.row().position_of_own_name()
    {
        let marked = mark.filter(|mark| vlan_of(mark).is_some());
        let known = links.name_of_vlan(facts.index, &link.name, marked);
        if known != link.name {
            made.set(position, Some(Param::Name(link.name.clone())));
            link.name = known;
        }
    }
    if links.is_hidden(facts.index, &link.name) {
        return None;
    }
    link.master_kind = info.iter().find_map(|info| match info {
        LinkInfo::PortKind(kind) => Some(kind.to_smolstr()),
        _ => None,
    });
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

/// The name that our mark has for a link.
fn our_mark(prop: &Prop) -> Option<SmolStr> {
    let Prop::AltIfName(name) = prop else { return None };
    name.strip_prefix(OUR_ALTNAME_PREFIX).map(SmolStr::new)
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

/// Attributes of the kind of the link that a message is about (`IFLA_LINKINFO`); empty where it has none.
pub(crate) fn info_of(message: &LinkMessage) -> &[LinkInfo] {
    let info = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(info) => Some(&**info),
        _ => None,
    });
    info.unwrap_or_default()
}

/// Name of the kind (`IFLA_INFO_KIND`), and its attributes (`IFLA_INFO_DATA`).
pub(crate) fn kind_and_data(info: &[LinkInfo]) -> Option<(&InfoKind, Option<&InfoData>)> {
    let kind = info.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })?;
    let data = info.iter().find_map(|info| match info {
        LinkInfo::Data(data) => Some(data),
        _ => None,
    });
    Some((kind, data))
}

/// Kind of a link, with its parameters. `lower` is the link that `IFLA_LINK` names.
fn kind(info: &[LinkInfo], lower: Option<&SmolStr>, links: &LinkIndex) -> Option<LinkKind> {
    let (kind, data) = kind_and_data(info)?;
    let Some(row) = row_of_kind(kind) else {
        return Some(LinkKind::Other(kind.to_string().into()));
    };
    let mut made = MadeLink::new(row);
    for (position, param) in row.params.iter().enumerate() {
        match param.attribute {
            Attribute::FarEnd | Attribute::Below => {
                made.set(position, lower.cloned().map(Param::Name))
            }
            Attribute::OwnName => {} // the caller knows by which other name the link is known
            Attribute::Data { take, .. } => {
                let Some(data) = data else { continue };
                if param.is_hidden.is_some_and(|is_hidden| is_hidden(data)) {
                    made.set(position, None);
                } else if let Some(value) = take(data) {
                    made.set(position, named(param, value, links));
                }
            }
        }
    }
    Some(LinkKind::Made(made))
}

/// A parameter with the name of a link in the place of its index.
fn named(row: &ParamRow, param: Param, links: &LinkIndex) -> Option<Param> {
    match (row.ty, param) {
        (ParamType::Link, Param::Uint(index)) => links.name(index).cloned().map(Param::Name),
        (_, param) => Some(param),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_scheduler::Descriptor;
    use netlink_packet_route::link::{BridgeStpState, InfoBridge};

    use super::*;
    use crate::kinds::link::{BRIDGE, LinkDescriptor};

    const TICKS_PER_S: u32 = 100;

    /// During a topology change the kernel ages addresses faster (IEEE 802.1D-1998, 8.5.3.14); this is not drift.
    #[test]
    fn shorter_ageing_during_a_topology_change_is_no_drift() {
        let satisfied = |stp, ageing_time_s: u32, changing| {
            let mut message = LinkMessage::default();
            let bridge = vec![
                InfoBridge::AgeingTime(ageing_time_s * TICKS_PER_S),
                InfoBridge::StpState(stp),
                InfoBridge::TopologyChange(changing),
            ];
            let info =
                vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(bridge))];
            message.header.flags = LinkFlags::Up;
            message.attributes =
                vec![LinkAttribute::IfName("br0".into()), LinkAttribute::LinkInfo(info)];
            let bridge = Link::new("br0", MadeLink::new(&BRIDGE).with("stp", true).into());
            LinkDescriptor::default()
                .satisfied_by(&bridge, &decode(&message, &LinkIndex::new()).unwrap())
        };
        assert!(satisfied(BridgeStpState::KernelStp, 300, 0));
        assert!(satisfied(BridgeStpState::KernelStp, 30, 1));
        assert!(!satisfied(BridgeStpState::KernelStp, 30, 0));
        assert!(!satisfied(BridgeStpState::Disabled, 30, 1));
    }
}
