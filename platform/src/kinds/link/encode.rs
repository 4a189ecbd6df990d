//! Encoding of operations on links as rtnetlink requests.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop,
};
use smallvec::smallvec;

use super::{
    Attribute, Link, LinkKind, LinkMaster, LinkRow, MadeLink, Param, ParamRow, ParamType,
    after_release, can_become, fresh_mtu, has_room,
};
use crate::kinds::codec::{EncodeError, Op, Request, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::types::{Family, our_altname};

/// Number of the attribute of a link that holds its alias.
const IFLA_IFALIAS: u16 = 20;

pub(super) fn link(op: Op<'_, Link>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let after = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => new,
        Op::Release { restore, .. } => restore,
        Op::Delete(old) => return remove(old, links),
    };
    let requests = requests_of(op, links)?;
    links.expect_up(&after.name, after.enabled);
    Ok(requests)
}

fn requests_of(op: Op<'_, Link>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    match op {
        Op::Create(new) => match new.kind.made() {
            Some(made) if links.index(&new.name).is_none() => make(new, made, links),
            _ => join(new, links),
        },
        Op::Adopt { old, new } if !can_become(old, new) => {
            Err(EncodeError::OthersLink(new.name.clone()))
        }
        Op::Adopt { old, new } | Op::Update { old, new } => {
            let mut requests = set_each(new, links, Attributes::between(old, new, links)?)?;
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
            let attributes = Attributes { mtu, ..Attributes::between(old, &back, links)? };
            let mut requests = set_each(old, links, attributes)?;
            requests.extend(ipv6(Some(old), &back, links));
            Ok(requests)
        }
    }
}

/// A master that takes only ports that are down leaves them down when they go, and puts them up when they come. Either way the
/// port is as it was afterwards, also where the kernel refuses to take it.
pub(super) fn master(
    op: Op<'_, LinkMaster>,
    links: &mut LinkIndex,
) -> Result<Requests, EncodeError> {
    let new = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => Some(new),
        Op::Release { restore, .. } => Some(restore),
        Op::Delete(_) => None,
    };
    let old = match op {
        Op::Create(_) => None,
        Op::Adopt { old, .. } | Op::Update { old, .. } => Some(old),
        Op::Delete(old) | Op::Release { old, .. } => Some(old),
    };
    let Some(link) = old.or(new).map(|part| &part.link) else { return Ok(Requests::new()) };
    let master = new.and_then(|new| new.master.as_ref());
    let controller = match master {
        Some(master) => index(master, links)?,
        None => 0, // leaves its master
    };
    let Some(index) = links.index(link) else {
        return if master.is_none() { Ok(Requests::new()) } else { Err(not_found(link)) };
    };
    let needs_down = |part: Option<&LinkMaster>| {
        part.and_then(LinkMaster::rule).is_some_and(|rule| rule.needs_down)
    };
    let mut message = LinkMessage::default();
    message.header.index = index;
    if needs_down(new) {
        // The kernel takes IFF_UP before IFLA_MASTER.
        message.header.change_mask = LinkFlags::Up;
    }
    message.attributes.push(LinkAttribute::Controller(controller));
    let mut requests: Requests = smallvec![Request::change(RouteNetlinkMessage::SetLink(message))];
    if needs_down(old) || needs_down(new) {
        requests.push(switch(index, links.will_be_up(index)));
    }
    let gives_mac_and_mtu = new.and_then(LinkMaster::rule).is_some_and(|it| it.gives_mac_and_mtu);
    links.expect_master(index, new.and_then(|new| new.kind.clone()).filter(|_| gives_mac_and_mtu));
    Ok(requests)
}

/// Puts a link up or down.
pub(in crate::kinds) fn switch(index: u32, up: bool) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
    Request::change(RouteNetlinkMessage::SetLink(message))
}

fn not_found(name: &str) -> EncodeError {
    EncodeError::LinkNotFound(name.into())
}

fn index(name: &str, links: &LinkIndex) -> Result<u32, EncodeError> {
    links.index(name).ok_or_else(|| not_found(name))
}

/// Creates the link with an index of our choice, then sets our mark and the alias, which the kernel does not
/// accept in the creation itself.
fn make(new: &Link, made: &MadeLink, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let mut info = vec![LinkInfo::Kind(made.row().kind())];
    info.extend(data_of_new(made, links)?.map(LinkInfo::Data));
    let mut message = LinkMessage::default();
    message.header.index = links.reserve(&new.name, true);
    links.expect_own_name(&new.name, new.own_name());
    message.attributes.push(LinkAttribute::IfName(new.own_name().to_string()));
    message.attributes.push(LinkAttribute::LinkInfo(info));
    for (row, param) in made.params() {
        if let (Attribute::Below, Some(Param::Name(below))) = (row.attribute, param) {
            message.attributes.push(LinkAttribute::Link(index(below, links)?));
        }
    }
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
    let far_end = new.kind.far_end().is_some_and(|peer| links.is_ours(&peer)) && !ours;
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
    if let Some(peer) = old.kind.far_end() {
        links.forget_name(&peer);
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
    let path = format!("net/ipv6/conf/{}/disable_ipv6", links.own_name(&new.name));
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
    /// Parameters of the kind.
    info: Option<Vec<LinkInfo>>,
}

impl Attributes {
    /// All attributes that the value sets.
    fn of(new: &Link) -> Self {
        Self {
            enabled: Some(new.enabled).filter(|_| !new.goes_down_with_below()),
            description: new.description.clone(),
            mtu: new.own_mtu(),
            mac: new.mac,
            info: None,
        }
    }

    /// Each attribute alone; the administrative state last, since some devices take others while they are down only.
    fn singly(self) -> [Self; 5] {
        let nothing = Self::default();
        [
            Self { mac: self.mac, ..nothing.clone() },
            Self { mtu: self.mtu, ..nothing.clone() },
            Self { description: self.description, ..nothing.clone() },
            Self { info: self.info, ..nothing.clone() },
            Self { enabled: self.enabled, ..nothing },
        ]
    }

    /// Attributes to change from `old` to `new`.
    fn between(old: &Link, new: &Link, links: &LinkIndex) -> Result<Self, EncodeError> {
        let attributes = Attributes::of(new);
        Ok(Self {
            enabled: attributes.enabled.filter(|enabled| *enabled != old.enabled),
            description: attributes
                .description
                .filter(|text| text.as_str() != old.description.as_deref().unwrap_or_default()),
            mtu: attributes.mtu.filter(|mtu| Some(*mtu) != old.mtu),
            mac: attributes.mac.filter(|mac| Some(*mac) != old.mac),
            info: changed_info(old, new, links)?,
        })
    }

    fn put(self, message: &mut LinkMessage) {
        if let Some(enabled) = self.enabled {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if enabled { LinkFlags::Up } else { LinkFlags::empty() };
        }
        message.attributes.extend(self.info.map(LinkAttribute::LinkInfo));
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

/// The parameters to change. Others than those that change in place are left to a new link.
fn changed_info(
    old: &Link,
    new: &Link,
    links: &LinkIndex,
) -> Result<Option<Vec<LinkInfo>>, EncodeError> {
    let (LinkKind::Made(old_kind), LinkKind::Made(new_kind)) = (&old.kind, &new.kind) else {
        return Ok(None);
    };
    if !can_become(old, new) {
        return Ok(None);
    }
    let changed = old_kind.differing(new_kind).filter_map(|(row, param)| Some((row, param?)));
    let data = data(new_kind.row(), changed, links)?;
    Ok(data.map(|data| vec![LinkInfo::Kind(new_kind.row().kind()), LinkInfo::Data(data)]))
}

/// The parameters of a new link, without those that the kernel gives it anyway.
fn data_of_new(made: &MadeLink, links: &mut LinkIndex) -> Result<Option<InfoData>, EncodeError> {
    if let Some(peer) = made.far_end() {
        return Ok(Some(InfoData::Veth(veth_peer(&peer, links))));
    }
    let params = made.params().filter_map(|(row, param)| Some((row, param?)));
    data(
        made.row(),
        params.filter(|(row, param)| row.implied.map(Param::from).as_ref() != Some(*param)),
        links,
    )
}

/// `IFLA_INFO_DATA` with these parameters; `None` without any.
fn data<'p>(
    row: &LinkRow,
    params: impl Iterator<Item = (&'static ParamRow, &'p Param)>,
    links: &LinkIndex,
) -> Result<Option<InfoData>, EncodeError> {
    let Some(empty) = row.data else { return Ok(None) };
    let mut data = None;
    for (row, param) in params {
        let Attribute::Data { put, .. } = row.attribute else { continue };
        let data = data.get_or_insert_with(empty);
        match (row.ty, param) {
            (ParamType::Link, Param::Name(name)) => put(data, &Param::Uint(index(name, links)?)),
            _ => put(data, param),
        }
    }
    Ok(data)
}

/// Describes the far end in the request for the near one. It gets an index of our choice but no mark, because it
/// may have no entry of its own in the configuration.
fn veth_peer(peer: &str, links: &mut LinkIndex) -> InfoVeth {
    let mut message = LinkMessage::default();
    message.header.index = links.reserve(peer, false);
    message.attributes.push(LinkAttribute::IfName(peer.to_owned()));
    InfoVeth::Peer(message)
}
