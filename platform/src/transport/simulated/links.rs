//! Links of the model: creation, changes, deletion, and their messages.

use std::collections::BTreeSet;

use netlink_packet_core::{DefaultNla, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, BondLacpRate, BondMode, Inet6DevConf, InfoBond, InfoData, InfoKind,
    InfoPortKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop,
    State,
};
use nix::errno::Errno;

use super::model::{KernelModel, ModelResult, SimulatedRefusal};
use super::new_settings;
use crate::kinds::link::rows::row_of_kind;
use crate::kinds::link::{Attribute, Change, ParamType, info_of, kind_and_data};
use crate::values::{Ethernet, Family, OUR_ALTNAME_PREFIX, Param};

/// Smallest and largest MTU of the model's links, bytes of layer 3.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65_536;
/// Smallest MTU of a link with IPv6, bytes of layer 3.
const LEAST_IPV6_MTU: u32 = 1280;
/// Number of the attribute of a link that holds its alias.
const IFLA_IFALIAS: u16 = 20;
/// MTU of a fresh link, bytes of layer 3.
const DEFAULT_MTU: u32 = 1500;

/// Priority of a system in LACP, as the kernel has it for a fresh bond.
const DEFAULT_SYSTEM_PRIORITY: u16 = 65_535;

/// One link.
#[derive(Clone, Debug)]
pub(super) struct SimLink {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) kind: SimLinkKind,
    pub(super) up: bool,
    /// Carrier of a port.
    pub(super) carrier: bool,
    pub(super) mtu: u32,
    pub(super) mac: [u8; 6],
    pub(super) alias: String,
    /// Index of the bridge or bond; 0 for none.
    pub(super) master: u32,
    /// Index of the link below (`IFLA_LINK`) of a VLAN; 0 for none.
    pub(super) below: u32,
    /// Link-layer address and MTU that a member of a bond had before, and gets back.
    pub(super) before_bond: Option<([u8; 6], u32)>,
    pub(super) altnames: Vec<String>,
    /// True for a bridge whose MTU somebody has set, so that it no longer follows its ports.
    pub(super) has_own_mtu: bool,
    /// Speed and duplex, as its driver says.
    pub(super) ethernet: Option<Ethernet>,
}

/// Kind of a link, with the parameters that the kernel shows.
#[derive(Clone, Debug)]
pub(super) enum SimLinkKind {
    Port,
    Loopback,
    /// Index of the far end.
    Veth(u32),
    Created(InfoKind, Option<InfoData>),
}

impl SimLink {
    pub(super) fn new(index: u32, name: &str, kind: SimLinkKind) -> Self {
        let [a, b, c, d] = index.to_be_bytes();
        Self {
            index,
            name: name.to_owned(),
            kind,
            up: false,
            carrier: true,
            mtu: DEFAULT_MTU,
            mac: [2, 0xf0, a, b, c, d],
            alias: String::new(),
            master: 0,
            below: 0,
            before_bond: None,
            altnames: Vec::new(),
            has_own_mtu: false,
            ethernet: None,
        }
    }
}

impl SimLink {
    /// Indices of the links below.
    fn links_below(&self) -> Vec<u32> {
        let SimLinkKind::Created(kind, data) = &self.kind else { return Vec::new() };
        let params = row_of_kind(kind).map_or(&[][..], |row| row.params);
        let named = params.iter().filter(|param| param.ty == ParamType::Link);
        let index = named.filter_map(|param| match param.attribute {
            Attribute::Below => Some(self.below),
            Attribute::Data { take, .. } => match take(data.as_ref()?)? {
                Param::Uint(index) => Some(index),
                _ => None,
            },
            Attribute::FarEnd | Attribute::OwnName => None,
        });
        index.collect()
    }

    fn goes_down_with_below(&self) -> bool {
        let SimLinkKind::Created(kind, _) = &self.kind else { return false };
        row_of_kind(kind).is_some_and(|row| row.goes_down_with_below)
    }
}

impl KernelModel {
    /// Inserts a link with its sysctls.
    pub(super) fn insert_link(&mut self, link: SimLink) {
        self.last_index = self.last_index.max(link.index);
        for family in [Family::V4, Family::V6] {
            self.sysctls.extend(new_settings(&link.name, family));
        }
        self.sysctls.insert(disable_ipv6_path(&link.name), "0".to_owned());
        let index = link.index;
        self.links.insert(index, link);
        self.announce(index);
    }

    pub(super) fn create_link(&mut self, message: &LinkMessage) -> ModelResult<()> {
        let name = name(message).ok_or(Errno::EINVAL)?;
        let (kind, data) = info(message).ok_or(Errno::EOPNOTSUPP)?;
        let index = self.free_index(message.header.index, name)?;
        match (kind, data) {
            (InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(peer)))) => {
                let peer_name = self::name(peer).ok_or(Errno::EINVAL)?;
                let peer_index = self.free_index(peer.header.index, peer_name)?;
                self.insert_link(SimLink::new(peer_index, peer_name, SimLinkKind::Veth(index)));
                self.insert_link(SimLink::new(index, name, SimLinkKind::Veth(peer_index)));
            }
            _ if row_of_kind(kind).is_some() => {
                let mut link = SimLink::new(index, name, Self::created(kind, data));
                link.below = link_below(message).unwrap_or_default();
                for below in link.links_below() {
                    self.link(below)?;
                }
                link.mtu = self.limit_of(&link).unwrap_or(link.mtu);
                self.insert_link(link);
                self.follow_mtu(index);
            }
            _ => {
                return Err(SimulatedRefusal {
                    errno: Errno::EOPNOTSUPP,
                    words: Some("Unknown device type"),
                });
            }
        }
        let mut change = message.clone();
        change.header.index = index;
        let created = self.apply(&change);
        if created.is_err() {
            self.remove(index);
        }
        self.announce(index);
        created
    }

    /// Parameters of a new link, with those that the kernel adds.
    fn created(kind: &InfoKind, data: Option<&InfoData>) -> SimLinkKind {
        let mut data = data.cloned();
        if let Some(InfoData::Bond(attributes)) = &mut data
            && attributes.contains(&InfoBond::Mode(BondMode::Ieee8023Ad))
        {
            attributes.push(InfoBond::AdLacpRate(BondLacpRate::Slow));
            attributes.push(InfoBond::AdLacpActive(true));
            attributes.push(InfoBond::AdActorSysPrio(DEFAULT_SYSTEM_PRIORITY));
            attributes.push(InfoBond::AdActorSystem([0; 6]));
        }
        SimLinkKind::Created(kind.clone(), data)
    }

    fn free_index(&self, requested: u32, name: &str) -> ModelResult<u32> {
        if self.by_name(name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        match requested {
            0 => Ok(self.last_index + 1),
            requested if self.links.contains_key(&requested) => Err(Errno::EBUSY.into()),
            requested => Ok(requested),
        }
    }

    pub(super) fn change_link(&mut self, message: &LinkMessage) -> ModelResult<()> {
        let before = self.link(message.header.index)?.clone();
        self.apply(message)?;
        let after = self.link(message.header.index)?;
        let same = before.up == after.up
            && before.mtu == after.mtu
            && before.mac == after.mac
            && before.master == after.master
            // Setting the alias of a link that is down gives no message.
            && (before.alias == after.alias || !after.up)
            && info(message).is_none();
        if !same {
            self.announce(message.header.index);
        }
        let is_up = self.link(message.header.index)?.up;
        if before.up != is_up {
            self.went_up_or_down(message.header.index, is_up);
        }
        Ok(())
    }

    /// Carries out the consequences of a link that went up or down. Links that go down with it follow.
    fn went_up_or_down(&mut self, index: u32, is_up: bool) {
        if is_up {
            self.revive_routes(index);
        } else {
            self.drop_routes(index, false);
            self.drop_ipv6_addresses(index);
        }
        let follows =
            |it: &&SimLink| it.below == index && it.goes_down_with_below() && it.up != is_up;
        let followers: Vec<u32> = self.links.values().filter(follows).map(|it| it.index).collect();
        for follower in followers {
            if let Some(link) = self.links.get_mut(&follower) {
                link.up = is_up;
            }
            self.announce(follower);
            self.went_up_or_down(follower, is_up);
        }
    }

    fn apply(&mut self, message: &LinkMessage) -> ModelResult<()> {
        let index = message.header.index;
        let mut link = self.link(index)?.clone();
        if message.header.change_mask.contains(LinkFlags::Up) {
            link.up = message.header.flags.contains(LinkFlags::Up);
            let is_below_down = self.links.get(&link.below).is_some_and(|below| !below.up);
            if link.up && is_below_down && link.goes_down_with_below() {
                return Err(Errno::ENETDOWN.into());
            }
        }
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) if MTU_RANGE.contains(mtu) => {
                    if self.limit_of(&link).is_some_and(|limit| *mtu > limit) {
                        return Err(Errno::EINVAL.into());
                    }
                    link.mtu = *mtu;
                    link.has_own_mtu = true;
                }
                LinkAttribute::Mtu(_) => {
                    let words = Some("mtu greater than device maximum");
                    return Err(SimulatedRefusal { errno: Errno::EINVAL, words });
                }
                LinkAttribute::Address(bytes) => {
                    link.mac = bytes.as_slice().try_into().map_err(|_| Errno::EINVAL)?;
                }
                LinkAttribute::IfAlias(text) => link.alias.clone_from(text),
                LinkAttribute::Other(alias) if alias.kind() == IFLA_IFALIAS => {
                    link.alias = alias_text(alias)?;
                }
                LinkAttribute::Controller(0) => leave(&mut link),
                LinkAttribute::Controller(master) => {
                    match self.kind(*master) {
                        Some(SimLinkKind::Created(InfoKind::Bridge, _)) => {
                            leave(&mut link);
                            link.master = *master;
                        }
                        Some(SimLinkKind::Created(InfoKind::Bond, _)) => {
                            self.join_bond(&mut link, *master)?;
                        }
                        Some(_) => return Err(Errno::EOPNOTSUPP.into()),
                        None => return Err(Errno::EINVAL.into()),
                    };
                }
                LinkAttribute::LinkInfo(_) => {
                    let change = info(message);
                    if let Some((_, Some(InfoData::Bond(attributes)))) = change {
                        Self::check_bond(&link, attributes)?;
                    }
                    merge(&mut link.kind, change);
                }
                _ => {}
            }
        }
        let before = self.links.insert(index, link);
        self.follow_mtu(index);
        self.fit_members(index);
        let bridges = before.iter().map(|it| it.master).chain([self.link(index)?.master]);
        for bridge in bridges.collect::<BTreeSet<u32>>() {
            self.fit_bridge(bridge);
        }
        Ok(())
    }

    /// A bond takes links that are down, gives them its own address and MTU, and puts them up.
    fn join_bond(&self, link: &mut SimLink, bond: u32) -> ModelResult<()> {
        if link.master == bond {
            return Err(Errno::EBUSY.into());
        }
        leave(link);
        if link.up {
            let words = Some("Device can not be enslaved while up");
            return Err(SimulatedRefusal { errno: Errno::EPERM, words });
        }
        let bond = self.link(bond)?;
        link.before_bond = Some((link.mac, link.mtu));
        link.mac = bond.mac;
        link.mtu = bond.mtu;
        link.master = bond.index;
        link.up = true;
        Ok(())
    }

    /// Refuses attributes of LACP where the bond is in another mode, and those that change only while it is down.
    fn check_bond(bond: &SimLink, change: &[InfoBond]) -> ModelResult<()> {
        if !change.iter().any(is_of_lacp) {
            return Ok(());
        }
        let has_lacp = matches!(
            &bond.kind,
            SimLinkKind::Created(_, Some(InfoData::Bond(attributes)))
                if attributes.contains(&InfoBond::Mode(BondMode::Ieee8023Ad))
        );
        let needs_down = |attribute: &_| {
            matches!(attribute, InfoBond::AdLacpRate(_) | InfoBond::AdLacpActive(_))
        };
        match () {
            () if !has_lacp => Err(Errno::EACCES.into()),
            () if bond.up && change.iter().any(needs_down) => Err(Errno::EPERM.into()),
            () => Ok(()),
        }
    }

    /// Gives the members of a bond its address and MTU.
    fn fit_members(&mut self, bond: u32) {
        let Some(SimLink { kind: SimLinkKind::Created(InfoKind::Bond, _), mac, mtu, .. }) =
            self.links.get(&bond)
        else {
            return;
        };
        let mac = *mac;
        let mtu = *mtu;
        let mut changed = Vec::new();
        for member in self.links.values_mut().filter(|link| link.master == bond) {
            if member.mac != mac || member.mtu != mtu {
                member.mac = mac;
                member.mtu = mtu;
                changed.push(member.index);
            }
        }
        for member in changed {
            self.follow_mtu(member);
            self.announce(member);
        }
    }

    /// Largest MTU of a tunnel on a link; `None` for other links.
    fn limit_of(&self, link: &SimLink) -> Option<u32> {
        let below = self.links.get(link.links_below().first()?)?;
        let SimLinkKind::Created(_, Some(InfoData::Vxlan(params))) = &link.kind else {
            return Some(below.mtu);
        };
        let is_ipv6 = |param: &_| matches!(param, InfoVxlan::Local6(_) | InfoVxlan::Group6(_));
        let overhead = if params.iter().any(is_ipv6) { 70 } else { 50 };
        Some(below.mtu.saturating_sub(overhead).max(*MTU_RANGE.start()))
    }

    /// Gives a bridge the smallest MTU of its ports, unless somebody has set one.
    fn fit_bridge(&mut self, bridge: u32) {
        let ports = self.links.values().filter(|port| bridge != 0 && port.master == bridge);
        let least = ports.map(|port| port.mtu).min().unwrap_or(DEFAULT_MTU);
        let Some(link) = self.links.get_mut(&bridge) else { return };
        if !link.has_own_mtu && link.mtu != least {
            link.mtu = least;
            self.follow_mtu(bridge);
            self.announce(bridge);
        }
    }

    /// Removes IPv6 from a link that has become too small for it, and brings it back as for a new link.
    fn follow_mtu(&mut self, index: u32) {
        let Some(link) = self.links.get(&index) else { return };
        let switch = disable_ipv6_path(&link.name);
        let settings: Vec<(String, String)> = new_settings(&link.name, Family::V6).collect();
        let has_room = link.mtu >= LEAST_IPV6_MTU;
        if has_room && !self.sysctls.contains_key(&switch) {
            self.sysctls.insert(switch, "0".to_owned());
            self.sysctls.extend(settings);
        } else if !has_room && self.sysctls.remove(&switch).is_some() {
            settings.iter().for_each(|(path, _)| drop(self.sysctls.remove(path)));
            self.drop_ipv6(index);
        }
    }

    pub(super) fn name_link(&mut self, message: &LinkMessage) -> ModelResult<()> {
        let index = message.header.index;
        let names = message.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::PropList(props) => Some(props),
            _ => None,
        });
        for prop in names.ok_or(Errno::EINVAL)? {
            let Prop::AltIfName(name) = prop else { continue };
            let taken = |link: &SimLink| link.name == *name || link.altnames.contains(name);
            if self.links.values().any(taken) {
                return Err(Errno::EEXIST.into());
            }
            let link = self.links.get_mut(&index).ok_or(Errno::ENODEV)?;
            link.altnames.push(name.clone());
        }
        self.announce(index);
        Ok(())
    }

    pub(super) fn delete_link(&mut self, index: u32) -> ModelResult<()> {
        match &self.link(index)?.kind {
            SimLinkKind::Port | SimLinkKind::Loopback => Err(Errno::EOPNOTSUPP.into()),
            _ => {
                self.remove(index);
                Ok(())
            }
        }
    }

    /// Removes a link with everything on it and above it, and the other end of its pair.
    pub(super) fn remove(&mut self, index: u32) {
        let Some(link) = self.links.remove(&index) else { return };
        self.fit_bridge(link.master);
        self.drop_routes(index, true);
        self.drop_below(index, &link.name);
        let ports: Vec<u32> =
            self.links.values().filter(|it| it.master == index).map(|it| it.index).collect();
        for port in ports {
            if let Some(port) = self.links.get_mut(&port) {
                leave(port);
            }
            self.announce(port);
        }
        self.notes.push((RouteNetlinkMessage::DelLink(self.show(&link)), 0));
        if let SimLinkKind::Veth(peer) = link.kind {
            self.remove(peer);
        }
        let is_above = |it: &&SimLink| it.links_below().contains(&index);
        let above: Vec<u32> = self.links.values().filter(is_above).map(|it| it.index).collect();
        above.into_iter().for_each(|above| self.remove(above));
    }

    /// Announces a link, and the other end of its pair, whose state depends on it.
    pub(super) fn announce(&mut self, index: u32) {
        let Some(link) = self.links.get(&index) else { return };
        let mut indices = vec![index];
        if let SimLinkKind::Veth(peer) = link.kind {
            indices.push(peer);
        }
        for index in indices {
            if let Some(link) = self.links.get(&index) {
                let message = RouteNetlinkMessage::NewLink(self.show(link));
                self.notes.push((message, 0));
            }
        }
    }

    /// Switches IPv6 of a link on or off. The kernel announces only the addresses that are removed.
    pub(super) fn ipv6_switched(&mut self, path: &str, value: &str) {
        let its = |link: &&SimLink| disable_ipv6_path(&link.name) == path;
        let index = self.links.values().find(its).map(|link| link.index);
        if let Some(index) = index.filter(|_| value != "0") {
            self.drop_ipv6(index);
        }
    }

    pub(super) fn show(&self, link: &SimLink) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        let mut up = if link.up { LinkFlags::Up } else { LinkFlags::empty() };
        if matches!(self.oper(link), State::Up | State::Unknown) {
            up |= LinkFlags::LowerUp;
        }
        let loopback = match link.kind {
            SimLinkKind::Loopback => LinkFlags::Loopback,
            _ => LinkFlags::empty(),
        };
        message.header.flags = up | loopback;
        message.attributes = vec![
            LinkAttribute::IfName(link.name.clone()),
            LinkAttribute::OperState(self.oper(link)),
            LinkAttribute::Mtu(link.mtu),
            LinkAttribute::Address(link.mac.to_vec()),
        ];
        if let Some(disabled) = self.sysctls.get(&disable_ipv6_path(&link.name)) {
            let mut variables = Inet6DevConf::default();
            variables.disable_ipv6 = disabled.parse().unwrap_or_default();
            let ipv6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::DevConf(variables)]);
            message.attributes.push(LinkAttribute::AfSpecUnspec(vec![ipv6]));
        }
        if !link.alias.is_empty() {
            message.attributes.push(LinkAttribute::IfAlias(link.alias.clone()));
        }
        if link.below != 0 {
            message.attributes.push(LinkAttribute::Link(link.below));
        }
        if link.master != 0 {
            message.attributes.push(LinkAttribute::Controller(link.master));
        }
        if !link.altnames.is_empty() {
            let names = link.altnames.iter().cloned().map(Prop::AltIfName).collect();
            message.attributes.push(LinkAttribute::PropList(names));
        }
        let (kind, data) = match &link.kind {
            SimLinkKind::Port | SimLinkKind::Loopback => (None, None),
            SimLinkKind::Veth(peer) => {
                message.attributes.push(LinkAttribute::Link(*peer));
                (Some(InfoKind::Veth), None)
            }
            SimLinkKind::Created(kind, data) => (Some(kind.clone()), data.clone()),
        };
        let mut info: Vec<LinkInfo> = kind.map(LinkInfo::Kind).into_iter().collect();
        info.extend(data.map(LinkInfo::Data));
        info.extend(match self.kind(link.master) {
            Some(SimLinkKind::Created(InfoKind::Bridge, _)) => {
                Some(LinkInfo::PortKind(InfoPortKind::Bridge))
            }
            Some(SimLinkKind::Created(InfoKind::Bond, _)) => {
                Some(LinkInfo::PortKind(InfoPortKind::Bond))
            }
            _ => None,
        });
        if !info.is_empty() {
            message.attributes.push(LinkAttribute::LinkInfo(info));
        }
        message
    }

    fn oper(&self, link: &SimLink) -> State {
        if !link.up {
            return State::Down;
        }
        match &link.kind {
            SimLinkKind::Loopback => State::Unknown,
            SimLinkKind::Port if link.carrier => State::Up,
            SimLinkKind::Port => State::Down,
            SimLinkKind::Veth(peer) => match self.links.get(peer) {
                Some(peer) if peer.up => State::Up,
                _ => State::LowerLayerDown,
            },
            SimLinkKind::Created(InfoKind::Bridge | InfoKind::Bond, _) => {
                let carried =
                    |port: &SimLink| port.master == link.index && self.oper(port) == State::Up;
                if self.links.values().any(carried) { State::Up } else { State::Down }
            }
            SimLinkKind::Created(..) => State::Unknown,
        }
    }

    /// True when the link carries the agent's mark.
    pub(super) fn is_marked(&self, name: &str) -> bool {
        let link = self.links.values().find(|link| link.name == name);
        link.is_some_and(|link| {
            link.altnames.iter().any(|name| name.starts_with(OUR_ALTNAME_PREFIX))
        })
    }
}

/// Text of an alias attribute, which may end with a zero.
fn alias_text(alias: &DefaultNla) -> ModelResult<String> {
    let mut octets = vec![0; alias.value_len()];
    alias.emit_value(&mut octets);
    let text = octets.strip_suffix(&[0]).unwrap_or(&octets);
    String::from_utf8(text.to_vec()).map_err(|_| Errno::EINVAL.into())
}

/// Sysctl that disables IPv6 on a link.
pub(super) fn disable_ipv6_path(link: &str) -> String {
    format!("net/ipv6/conf/{link}/disable_ipv6")
}

fn name(message: &LinkMessage) -> Option<&str> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn info(message: &LinkMessage) -> Option<(&InfoKind, Option<&InfoData>)> {
    kind_and_data(info_of(message))
}

/// The link that a request names as the one below.
fn link_below(message: &LinkMessage) -> Option<u32> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) => Some(*index),
        _ => None,
    })
}

/// Changes the parameters that change in place; the others stay as they are, as in the kernel.
fn merge(kind: &mut SimLinkKind, change: Option<(&InfoKind, Option<&InfoData>)>) {
    let Some((changed_kind, Some(change))) = change else { return };
    let SimLinkKind::Created(kind, data) = kind else { return };
    let Some(row) = row_of_kind(kind).filter(|_| kind == changed_kind) else { return };
    let Some(empty) = row.data else { return };
    let mut merged = empty();
    for param in row.params {
        let Attribute::Data { put, take } = param.attribute else { continue };
        let requested = take(change).filter(|_| param.change == Change::InPlace);
        let value = requested.or_else(|| data.as_ref().and_then(take));
        if let Some(value) = value.or_else(|| param.default.map(Param::from)) {
            put(&mut merged, &value);
        }
    }
    // LACP is a value of its own beside the bond, so the row of bonds does not have it.
    if let (InfoData::Bond(merged), InfoData::Bond(change)) = (&mut merged, change) {
        let old = match data {
            Some(InfoData::Bond(old)) => &**old,
            _ => &[],
        };
        let is_left = |it: &&InfoBond| !change.iter().any(|other| other.kind() == it.kind());
        let left = old.iter().filter(is_left);
        merged.extend(change.iter().chain(left).filter(|it| is_of_lacp(it)).cloned());
    }
    *data = Some(merged);
}

fn is_of_lacp(attribute: &InfoBond) -> bool {
    matches!(
        attribute,
        InfoBond::AdLacpRate(_)
            | InfoBond::AdLacpActive(_)
            | InfoBond::AdActorSysPrio(_)
            | InfoBond::AdActorSystem(_)
    )
}

/// Takes a link away from its master. A bond gives a member back what it had, and leaves it down.
fn leave(link: &mut SimLink) {
    link.master = 0;
    if let Some((mac, mtu)) = link.before_bond.take() {
        link.mac = mac;
        link.mtu = mtu;
        link.up = false;
    }
}
