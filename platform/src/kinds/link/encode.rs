//! Encoding of operations on links as rtnetlink requests.

use std::net::IpAddr;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, Prop,
};
use smallvec::smallvec;

use super::{AGEING_TICKS_PER_S, after_release, can_become, fresh_mtu, has_room};
use super::{BridgeParams, Link, LinkKind, LinkMaster, VxlanParams};
use crate::kinds::codec::{EncodeError, Op, Request, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::types::{Family, our_altname};

/// Number of the attribute of a link that holds its alias.
const IFLA_IFALIAS: u16 = 20;

pub(super) fn link(op: Op<'_, Link>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    match op {
        Op::Create(new) if new.kind.is_made_by_us() && links.index(&new.name).is_none() => {
            make(new, links)
        }
        Op::Create(new) => join(new, links),
        Op::Adopt { old, new } if !can_become(old, new) => {
            Err(EncodeError::OthersLink(new.name.clone()))
        }
        Op::Adopt { old, new } | Op::Update { old, new } => {
            let mut requests = set_each(new, links, Attributes::between(old, new))?;
            if old.lacks_mark() {
                requests.push(mark(new, links)?);
            }
            requests.extend(ipv6(Some(old), new, links));
            Ok(requests)
        }
        Op::Delete(old) => remove(old, links),
        Op::Release { old, restore } => {
            let back = after_release(old, restore);
            // Of the kind that the configuration gave it, not of the one that it has.
            let mtu = back.mtu.filter(|mtu| Some(*mtu) != old.mtu);
            let attributes = Attributes { mtu, ..Attributes::between(old, &back) };
            let mut requests = set_each(old, links, attributes)?;
            requests.extend(ipv6(Some(old), &back, links));
            Ok(requests)
        }
    }
}

pub(super) fn master(
    op: Op<'_, LinkMaster>,
    links: &mut LinkIndex,
) -> Result<Requests, EncodeError> {
    let (link, master) = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => {
            (&new.link, new.master.as_ref())
        }
        Op::Release { old, restore } => (&old.link, restore.master.as_ref()),
        Op::Delete(old) => (&old.link, None),
    };
    let controller = match master {
        Some(master) => index(master, links)?,
        None => 0, // leaves the bridge
    };
    let Some(index) = links.index(link) else {
        return if master.is_none() { Ok(Requests::new()) } else { Err(not_found(link)) };
    };
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::Controller(controller));
    Ok(smallvec![Request::change(RouteNetlinkMessage::SetLink(message))])
}

fn not_found(name: &str) -> EncodeError {
    EncodeError::LinkNotFound(name.into())
}

fn index(name: &str, links: &LinkIndex) -> Result<u32, EncodeError> {
    links.index(name).ok_or_else(|| not_found(name))
}

/// Creates the link with an index of our choice, then sets our mark and the alias, which the kernel does not
/// accept in the creation itself.
fn make(new: &Link, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let mut info = vec![LinkInfo::Kind(info_kind(&new.kind))];
    info.extend(info_data(&new.kind, links)?.map(LinkInfo::Data));
    let mut message = LinkMessage::default();
    message.header.index = links.reserve(&new.name, true);
    message.attributes.push(LinkAttribute::IfName(new.name.to_string()));
    message.attributes.push(LinkAttribute::LinkInfo(info));
    let alias = Attributes { description: new.description.clone(), ..Attributes::default() };
    Attributes { description: None, ..Attributes::of(new) }.put(&mut message);
    let mut requests: Requests =
        smallvec![Request::create(RouteNetlinkMessage::NewLink(message)), mark(new, links)?];
    requests.extend(set(new, links, alias)?);
    requests.extend(ipv6(None, new, links));
    Ok(requests)
}

/// Takes over a link that appeared without the engine's knowledge. Most often this is the far end of a pair,
/// created together with its near end; it becomes ours like the near end.
fn join(new: &Link, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let ours = links.is_ours(&new.name);
    let far_end = match &new.kind {
        LinkKind::Veth { peer: Some(peer) } => links.is_ours(peer) && !ours,
        _ => false,
    };
    if new.kind.is_made_by_us() && !ours && !far_end {
        return Err(EncodeError::OthersLink(new.name.clone()));
    }
    let mut requests = set(new, links, Attributes::of(new))?;
    requests.extend(ipv6(None, new, links));
    if far_end {
        requests.push(mark(new, links)?);
        links.mark(&new.name);
    }
    Ok(requests)
}

/// Deletes a link that carries our mark. A link that we only configured gets the attributes of a fresh one, and a
/// foreign link that replaced ours is left alone.
fn remove(old: &Link, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let Some(index) = links.index(&old.name) else {
        return Ok(Requests::new());
    };
    if !links.is_ours(&old.name) {
        if old.facts.as_ref().is_some_and(|facts| !facts.ours) {
            return Ok(Requests::new());
        }
        let fresh = Attributes {
            enabled: Some(false),
            description: Some("".into()),
            mtu: fresh_mtu(&old.kind),
            ..Attributes::default()
        };
        return set(old, links, fresh);
    }
    let mut message = LinkMessage::default();
    message.header.index = index;
    links.forget_name(&old.name);
    if let LinkKind::Veth { peer: Some(peer) } = &old.kind {
        links.forget_name(peer);
    }
    Ok(smallvec![Request::delete(RouteNetlinkMessage::DelLink(message))])
}

/// Switches IPv6 on or off, unless the link has that state already. rtnetlink has no message for this, hence the
/// sysctl. It goes with IPv6 when the MTU becomes too small, and comes back as for a new link.
fn ipv6(old: Option<&Link>, new: &Link, links: &LinkIndex) -> Option<Request> {
    let present = old.and_then(|old| old.mtu).or_else(|| links.mtu(&new.name));
    if !has_room(new.own_mtu().or(present), Family::V6) {
        return None;
    }
    let old = old.filter(|_| has_room(present, Family::V6));
    let observed = old.and_then(|old| old.ipv6_enabled);
    let on = new.ipv6_enabled.filter(|on| Some(*on) != observed)?;
    let path = format!("net/ipv6/conf/{}/disable_ipv6", new.name);
    Some(Request::Sysctl { path, value: u8::from(!on).to_string() })
}

fn mark(link: &Link, links: &LinkIndex) -> Result<Request, EncodeError> {
    let mut message = LinkMessage::default();
    message.header.index = index(&link.name, links)?;
    message
        .attributes
        .push(LinkAttribute::PropList(vec![Prop::AltIfName(our_altname(&link.name))]));
    // `NewLinkProp` needs both flags: rtnl_linkprop() refuses to change a property.
    Ok(Request::create(RouteNetlinkMessage::NewLinkProp(message)))
}

fn set(link: &Link, links: &LinkIndex, attributes: Attributes) -> Result<Requests, EncodeError> {
    if attributes == Attributes::default() {
        return Ok(Requests::new());
    }
    let mut message = LinkMessage::default();
    message.header.index = index(&link.name, links)?;
    attributes.put(&mut message);
    // The kernel applies parameters of a kind in RTM_NEWLINK only; without NLM_F_CREATE that creates no link.
    Ok(smallvec![Request::change(RouteNetlinkMessage::NewLink(message))])
}

/// Sets each attribute by a message of its own, so that one which the kernel refuses does not keep the others from being
/// changed or given back.
fn set_each(
    link: &Link,
    links: &LinkIndex,
    attributes: Attributes,
) -> Result<Requests, EncodeError> {
    let mut requests = Requests::new();
    for attribute in attributes.singly() {
        requests.extend(set(link, links, attribute)?);
    }
    Ok(requests)
}

/// Attributes to set in one message.
#[derive(Clone, Debug, Default, PartialEq)]
struct Attributes {
    enabled: Option<bool>,
    description: Option<smol_str::SmolStr>,
    mtu: Option<u32>,
    mac: Option<crate::kinds::types::MacAddr>,
    bridge: Vec<InfoBridge>,
}

impl Attributes {
    /// All attributes that the value sets.
    fn of(new: &Link) -> Self {
        Self {
            enabled: Some(new.enabled),
            description: new.description.clone(),
            mtu: new.own_mtu(),
            mac: new.mac,
            bridge: Vec::new(),
        }
    }

    /// Each attribute alone; the administrative state last, since some devices take others while they are down only.
    fn singly(self) -> [Self; 5] {
        let nothing = Self::default();
        [
            Self { mac: self.mac, ..nothing.clone() },
            Self { mtu: self.mtu, ..nothing.clone() },
            Self { description: self.description, ..nothing.clone() },
            Self { bridge: self.bridge, ..nothing.clone() },
            Self { enabled: self.enabled, ..nothing },
        ]
    }

    /// Attributes to change from `old` to `new`.
    fn between(old: &Link, new: &Link) -> Self {
        let attributes = Attributes::of(new);
        Self {
            enabled: attributes.enabled.filter(|enabled| *enabled != old.enabled),
            description: attributes
                .description
                .filter(|text| text.as_str() != old.description.as_deref().unwrap_or_default()),
            mtu: attributes.mtu.filter(|mtu| Some(*mtu) != old.mtu),
            mac: attributes.mac.filter(|mac| Some(*mac) != old.mac),
            bridge: params(old, new),
        }
    }

    fn put(self, message: &mut LinkMessage) {
        if let Some(enabled) = self.enabled {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if enabled { LinkFlags::Up } else { LinkFlags::empty() };
        }
        if !self.bridge.is_empty() {
            let data = LinkInfo::Data(InfoData::Bridge(self.bridge));
            let info = vec![LinkInfo::Kind(InfoKind::Bridge), data];
            message.attributes.push(LinkAttribute::LinkInfo(info));
        }
        message.attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        message.attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        message.attributes.extend(self.description.map(|text| alias(&text)));
    }
}

/// `IFLA_IFALIAS` without a final zero, which would count among the bytes that an alias may have. Only the empty alias has
/// one, since the kernel takes no empty attribute.
fn alias(text: &str) -> LinkAttribute {
    let octets = if text.is_empty() { vec![0] } else { text.as_bytes().to_vec() };
    LinkAttribute::Other(DefaultNla::new(IFLA_IFALIAS, octets))
}

/// Parameters to change, among those that can be changed in place.
fn params(old: &Link, new: &Link) -> Vec<InfoBridge> {
    match (&old.kind, &new.kind) {
        (LinkKind::Bridge(old), LinkKind::Bridge(new)) => bridge(old, new),
        _ => Vec::new(),
    }
}

fn info_kind(kind: &LinkKind) -> InfoKind {
    match kind {
        LinkKind::Veth { .. } => InfoKind::Veth,
        LinkKind::Bridge(_) => InfoKind::Bridge,
        LinkKind::Vxlan(_) => InfoKind::Vxlan,
        LinkKind::Dummy => InfoKind::Dummy,
        LinkKind::Physical | LinkKind::Loopback | LinkKind::Other(_) => {
            InfoKind::Other(kind.name().to_owned())
        }
    }
}

fn info_data(kind: &LinkKind, links: &mut LinkIndex) -> Result<Option<InfoData>, EncodeError> {
    Ok(match kind {
        LinkKind::Veth { peer: Some(peer) } => Some(InfoData::Veth(veth_peer(peer, links))),
        LinkKind::Bridge(params) => {
            Some(InfoData::Bridge(bridge(&BridgeParams::default(), params)))
        }
        LinkKind::Vxlan(params) => Some(InfoData::Vxlan(vxlan(params, links)?)),
        _ => None,
    })
}

/// Describes the far end in the request for the near one. It gets an index of our choice but no mark, because it
/// may have no entry of its own in the configuration.
fn veth_peer(peer: &str, links: &mut LinkIndex) -> InfoVeth {
    let mut message = LinkMessage::default();
    message.header.index = links.reserve(peer, false);
    message.attributes.push(LinkAttribute::IfName(peer.to_owned()));
    InfoVeth::Peer(message)
}

/// Parameters that differ between the two, so that a kernel built without a feature is asked for it only when it
/// is configured.
fn bridge(old: &BridgeParams, new: &BridgeParams) -> Vec<InfoBridge> {
    let stp = if new.stp { BridgeStpState::KernelStp } else { BridgeStpState::Disabled };
    let ageing = new.ageing_time_s.saturating_mul(AGEING_TICKS_PER_S);
    let mut info = Vec::new();
    info.extend((old.ageing_time_s != new.ageing_time_s).then_some(InfoBridge::AgeingTime(ageing)));
    info.extend((old.stp != new.stp).then_some(InfoBridge::StpState(stp)));
    info.extend(
        (old.vlan_filtering != new.vlan_filtering)
            .then_some(InfoBridge::VlanFiltering(new.vlan_filtering)),
    );
    info
}

fn vxlan(params: &VxlanParams, links: &LinkIndex) -> Result<Vec<InfoVxlan>, EncodeError> {
    let mut info = vec![
        InfoVxlan::Id(params.vni),
        InfoVxlan::Port(params.port),
        InfoVxlan::Learning(params.learning),
    ];
    info.extend(params.local.map(|local| match local {
        IpAddr::V4(ip) => InfoVxlan::Local(ip),
        IpAddr::V6(ip) => InfoVxlan::Local6(ip),
    }));
    info.extend(params.remote.map(|remote| match remote {
        IpAddr::V4(ip) => InfoVxlan::Group(ip),
        IpAddr::V6(ip) => InfoVxlan::Group6(ip),
    }));
    if let Some(device) = &params.device {
        info.push(InfoVxlan::Link(index(device, links)?));
    }
    Ok(info)
}
