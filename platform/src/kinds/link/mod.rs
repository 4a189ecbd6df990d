//! Links, with the properties that have keys of their own: presence, administrative state, the bridge or bond above.

mod admin;
pub(crate) mod bond;
mod bridge;
mod decode;
mod dummy;
mod encode;
mod ipvlan;
mod macvlan;
mod mtu;
pub(crate) mod native;
mod own_names;
mod pairs;
mod row;
pub(crate) mod rows;
mod stacks;
pub(crate) mod status;
mod value;
mod veth;
mod vlan;
mod vxlan;

use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, ChangeMethod, Claim, Dependency, Descriptor, Effect, ErrorClass, Facet, Key, KindId,
    Offer, OperationError, Part, SharedValue,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::kinds::codec::Observation;
use crate::kinds::link_setting::{LinkSetting, WantedSetting};
use crate::kinds::links::LinkIndex;
use crate::kinds::native::{AttributeOfLink, Bind};
use crate::kinds::reading::{
    ClassList, ClassRow, Query, RTM_DELLINK, RTM_NEWLINK, Read, first_text,
};
use crate::kinds::row::{Encode, Kind, KindRow, PreImageForm, PreImageRow, Shown};
use crate::kinds::types::{Family, MacAddr};
use crate::kinds::{bond_members, ethernet, lacp, link_setting};

use crate::kinds::difference::difference;
use crate::transport_id;

pub use admin::{LinkAdminDescriptor, admin_key};
pub use bond::BOND;
pub use bridge::BRIDGE;
pub(crate) use decode::{decode, info_of, kind_and_data};
pub use dummy::DUMMY;
pub(in crate::kinds) use encode::switch;
pub use ipvlan::IPVLAN;
pub use macvlan::MACVLAN;
pub use mtu::{LinkMtuDescriptor, mtu_key};
#[cfg(test)]
pub(super) use row::Change as ParamChange;
pub(crate) use row::{Attribute, Change, Constant, MtuRule, ParamRow, ParamType, PortRule};
pub use row::{LinkRow, MadeLink, Param};
pub use rows::LINK_ROWS;
pub use value::{
    Link, LinkAdmin, LinkFacts, LinkKind, LinkMaster, LinkMtu, LinkUp, OperState, Port,
    carrier_losses,
};
pub use veth::VETH;
pub use vlan::VLAN;
pub use vxlan::VXLAN;

/// Presence of a link in the kernel.
pub const PORT: KindId = KindId(10);

/// A link.
pub const LINK: KindId = KindId(11);

/// Property: a link is up.
pub const LINK_UP: KindId = KindId(12);

/// Membership of a link in a bridge or bond.
pub const LINK_MASTER: KindId = KindId(13);

/// A link that goes down with the link below is up.
pub const LINK_ADMIN: KindId = KindId(19);

/// The MTU of a link that other links limit.
pub const LINK_MTU: KindId = KindId(17);

/// Links.
#[derive(Debug, Default)]
pub struct LinkDescriptor {
    /// All kinds, to ask them what goes with a link.
    kinds: &'static [KindRow],
}

/// Presence of a link in the kernel.
#[derive(Debug, Default)]
pub struct PortDescriptor;

/// Administrative state of a link.
#[derive(Debug, Default)]
pub struct LinkUpDescriptor {
    kinds: &'static [KindRow],
}

/// Membership of a link in a bridge or bond.
#[derive(Debug, Default)]
pub struct LinkMasterDescriptor;

/// The key of a link.
pub fn key(name: &str) -> Key {
    Key::of(LINK).str(name)
}

/// Key of the observed presence of a link.
pub fn port_key(name: &str) -> Key {
    Key::of(PORT).str(name)
}

/// The key of the property that a link is up.
pub fn up_key(name: &str) -> Key {
    Key::of(LINK_UP).str(name)
}

/// The key of a link's bridge or bond.
pub fn master_key(name: &str) -> Key {
    Key::of(LINK_MASTER).str(name)
}

/// All observations from a message about a link. `gone` says that the message was its `RTM_DELLINK`.
pub(crate) fn observations(link: Link, is_deleted: bool) -> Vec<Observation> {
    let name = link.name.clone();
    let ours = link.is_ours();
    let master = LinkMaster {
        link: name.clone(),
        master: link.master.clone(),
        kind: link.master_kind.clone().filter(|_| link.master.is_some()),
        on_our_link: ours,
    };
    let port: SharedValue = Arc::new(Port::of(&link));
    let admin = link
        .goes_down_with_below()
        .then(|| (admin_key(&name), link.admin().map(|admin| Arc::new(admin) as SharedValue)));
    let mut all = vec![
        (port_key(&name), Some(port)),
        (key(&name), Some(Arc::new(link) as SharedValue)),
        (master_key(&name), Some(Arc::new(master) as SharedValue)),
    ];
    all.extend(admin);
    if is_deleted {
        all.iter_mut().for_each(|(_, value)| *value = None);
        all.push((ethernet::key(&name), None));
        all.push((mtu_key(&name), None));
        all.push((lacp::key(&name), None));
        all.push((bond_members::key(&name), None));
        all.extend(link_setting::keys(&name).map(|key| (key, None)));
    }
    all
}

/// Links, with their properties and their speed.
pub(crate) static LINKS: ClassRow = ClassRow {
    name: "Links",
    groups: &[1, 12], // `RTNLGRP_LINK`, `RTNLGRP_IPV6_IFINFO`
    messages: &[RTM_NEWLINK, RTM_DELLINK],
    is_on_links: true,
    list: ClassList::Links,
    decode: |message, _, time_ns, links| match message {
        RouteNetlinkMessage::NewLink(message) => match decode(message, links) {
            Some(link) => new_link(link, message, time_ns, links),
            None => Vec::new(),
        },
        RouteNetlinkMessage::DelLink(message) => match decode(message, links) {
            Some(link) => gone_link(link, links),
            None => Vec::new(),
        },
        _ => Vec::new(),
    },
};

fn new_link(
    mut link: Link,
    message: &LinkMessage,
    time_ns: u64,
    links: &mut LinkIndex,
) -> Vec<Observation> {
    let renamed = links.observe(&mut link, time_ns);
    let mut all = Vec::new();
    if let Some(old) = renamed {
        let old = Link::new(old, link.kind.clone());
        all.extend(observations(old, true));
    }
    all.extend(mtus(links.observe_mtu(&link)));
    all.extend(lacp::observation(&link, lacp::bond_attributes(message)));
    all.extend(links.bonds().observe(message.header.index, &link, message));
    all.extend(observations(link, false));
    all
}

/// MTUs of links that other links limit. One link that changes may change the limits of others.
fn mtus(parts: Vec<LinkMtu>) -> impl Iterator<Item = Observation> {
    parts.into_iter().map(|part| (mtu_key(&part.link), Some(Arc::new(part) as SharedValue)))
}

fn gone_link(link: Link, links: &mut LinkIndex) -> Vec<Observation> {
    let index = link.facts.as_ref().map_or(0, |facts| facts.index);
    // A new link of this name has another index.
    let successor = links.index(&link.name).is_some_and(|current| current != index);
    links.forget(index);
    if !successor {
        links.bonds().forget_bond(&link.name);
    }
    let mut all = if successor { Vec::new() } else { observations(link, true) };
    all.extend(links.bonds().forget(index));
    all.extend(mtus(links.forget_mtu(index)));
    all
}

/// Facet of links of a kind with ports: only a bridge can be the bridge of a port, and only a bond have members.
pub(crate) fn master_facet(kind: &str, name: &str) -> Facet {
    Facet::of(LINK, kind).str(name)
}

/// Dependency of the values that need a bond with LACP.
pub(super) fn runs_lacp(bond: &str) -> Dependency {
    let label = format_smolstr!("bond {bond} in mode 802.3ad");
    Dependency::any_of(label, Facet::of(LINK, bond::LACP_FACET).str(bond))
}

/// Dependency of what is on a link in IPv6: addresses, neighbours, routes to the link, and tunnels of IPv6 over it.
pub(super) fn carries_ipv6(link: &str) -> Dependency {
    let label = format_smolstr!(
        "an MTU of {LEAST_IPV6_MTU} for IPv6 on link {link}, and IPv6 not switched off"
    );
    Dependency::any_of(label, Facet::of(LINK, "ipv6").str(link))
}

/// Dependency of the addresses on a link in IPv4.
pub(super) fn carries_ipv4(link: &str) -> Dependency {
    let label = format_smolstr!("IPv4 on link {link}");
    Dependency::any_of(label, Facet::of(LINK, "ipv4").str(link))
}

/// Dependency of the settings of a family on a link, which the kernel has as long as the MTU is large enough, also while the
/// family is switched off.
pub(super) fn has_settings(link: &str, family: Family) -> Dependency {
    let least = least_mtu(family);
    let label = format_smolstr!("an MTU of {least} for {} on link {link}", family.name());
    Dependency::any_of(label, settings_facet(link, family))
}

fn settings_facet(link: &str, family: Family) -> Facet {
    let number = match family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    Facet::of(LINK, "settings").str(link).u32(number)
}

/// Smallest MTU of a link with IPv4, bytes of layer 3 (RFC 791, section 3.2). Below it, the kernel removes IPv4 from the link.
const LEAST_IPV4_MTU: u32 = 68;

/// Smallest MTU of a link with IPv6, bytes of layer 3 (RFC 8200, section 5). Below it, the kernel removes all of IPv6 from the
/// link, its settings included, and refuses anything new.
pub(crate) const LEAST_IPV6_MTU: u32 = 1280;

fn least_mtu(family: Family) -> u32 {
    match family {
        Family::V4 => LEAST_IPV4_MTU,
        Family::V6 => LEAST_IPV6_MTU,
    }
}

/// True for an MTU with which the kernel has the family on a link; one that is not known counts as large enough.
fn has_room(mtu: Option<u32>, family: Family) -> bool {
    mtu.is_none_or(|mtu| mtu >= least_mtu(family))
}

/// True when IPv6 is switched as requested. A link that is too small for IPv6 has no switch.
fn is_ipv6_as_requested(expected: &Link, observed: &Link) -> bool {
    let without_switch = !has_room(observed.mtu, Family::V6);
    expected.ipv6_enabled.is_none_or(|on| match observed.ipv6_enabled {
        Some(is_on) => is_on == on,
        None => !on || without_switch,
    })
}

/// `errno` values by which the kernel refuses an address, neighbour or route of IPv6 on a link without IPv6, be it for its MTU
/// or because IPv6 is switched off.
const WITHOUT_IPV6: [i32; 2] = [nix::errno::Errno::EINVAL as i32, nix::errno::Errno::EACCES as i32];

/// Class of an error for an object on a link. An object that passed our own checks is refused for the state of its
/// link, which others may have changed without an announcement.
pub(super) fn classify_on_link(error: &OperationError) -> ErrorClass {
    let is_of_link = error.errno.is_some_and(|errno| WITHOUT_IPV6.contains(&errno));
    if is_of_link { ErrorClass::Unmet } else { error.class() }
}

/// Message of the kernel for a tunnel of IPv6 on a link where IPv6 is switched off; its errno, EPERM, means other things too.
const IPV6_OFF_ON_DEVICE: &str = "IPv6 support disabled";

impl Kind for LinkDescriptor {
    const NATIVE: Option<Bind> = Some(|schema| Ok(Box::new(native::NativeLink::find(schema)?)));
    const READ: Read = Read::Kernel { class: &LINKS, one: |key| link_of(key).map(Query::Link) };
    const ENCODE: Option<Encode<Link>> = Some(encode::link);
    const SHOWN: Shown = Shown::AsEntry;
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, LinkPreImage>());

    fn registered(kinds: &'static [KindRow]) -> Self {
        Self { kinds }
    }
}

impl Descriptor for LinkDescriptor {
    type Value = Link;

    fn kind(&self) -> KindId {
        LINK
    }

    fn name(&self) -> &'static str {
        "link"
    }

    fn key(&self, link: &Link) -> Key {
        key(&link.name)
    }

    fn label(&self, link: &Link) -> String {
        match link.kind.made().and_then(MadeLink::own_name) {
            Some(own_name) => format!("link {} called {own_name}", link.name),
            None => format!("link {}", link.name),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    /// A port waits until the kernel shows it, and a link on another one waits for that one.
    fn dependencies(&self, link: &Link) -> Vec<Dependency> {
        let made = match &link.kind {
            LinkKind::Physical | LinkKind::Loopback => {
                return vec![Dependency::exact(
                    format!("port {}", link.name),
                    port_key(&link.name),
                )];
            }
            LinkKind::Made(made) => made,
            LinkKind::Other(_) => return Vec::new(),
        };
        let Some(below) = made.below() else { return Vec::new() };
        let mut needs = vec![Dependency::exact(format!("link {below}"), key(&below))];
        if (made.row().is_over_ipv6)(made) {
            needs.push(carries_ipv6(&below));
        }
        needs
    }

    /// Two links of one identity exclude each other, and two links of one name in the kernel.
    fn claims(&self, link: &Link) -> Vec<Claim> {
        let name = Claim::alone(Facet::of(LINK, "name").str(&link.own_name()));
        let identities = link.kind.made().map(|made| (made.row().claims)(made));
        identities.into_iter().flatten().chain([name]).collect()
    }

    fn provides(&self, link: &Link) -> Vec<Offer> {
        let mut offers: Vec<Offer> = Vec::new();
        let name = &link.name;
        if let Some(made) = link.kind.made() {
            if made.row().ports.is_some() {
                offers.push(master_facet(made.row().name, name).into());
            }
            let facets = (made.row().facets)(made).iter();
            offers.extend(facets.map(|facet| Offer::from(Facet::of(LINK, facet).str(name))));
        }
        for (family, facet, enabled) in
            [(Family::V4, "ipv4", link.ipv4_enabled), (Family::V6, "ipv6", link.ipv6_enabled)]
        {
            if !has_room(link.mtu, family) {
                continue;
            }
            offers.push(settings_facet(name, family).into());
            if enabled != Some(false) {
                offers.push(Facet::of(LINK, facet).str(name).into());
            }
        }
        offers
    }

    fn parts(&self, link: &Link) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        if link.enabled && !link.goes_down_with_below() {
            parts.push((up_key(&link.name), Arc::new(LinkUp { link: link.name.clone() })));
        }
        // The observed values of these have facts of their own.
        if link.facts.is_some() {
            return parts;
        }
        if let Some(part) = link.admin() {
            parts.push((admin_key(&part.link), Arc::new(part)));
        }
        if let Some(part) = link.limited_mtu() {
            parts.push((mtu_key(&link.name), Arc::new(part)));
        }
        if let Some(settings) = &link.ethernet {
            parts.push((ethernet::config_key(&link.name), Arc::new(settings.clone())));
        }
        if link.master.is_some() {
            let part = LinkMaster {
                link: link.name.clone(),
                master: link.master.clone(),
                kind: link.master_kind.clone(),
                on_our_link: false,
            };
            parts.push((master_key(&part.link), Arc::new(part)));
        }
        for WantedSetting { sysctl, family, values } in &link.settings {
            let part = LinkSetting::new(*sysctl, link.name.clone(), *family, values);
            parts.push((link_setting::key(*sysctl, &part.link, *family), Arc::new(part)));
        }
        parts
    }

    /// The kernel removes everything on a link together with it, and both ends of a pair together.
    fn cascades(&self, link: &Link) -> Vec<Cascade> {
        if !link.kind.is_made_by_us() {
            return Vec::new();
        }
        let mut taken: Vec<Cascade> = on_link(self.kinds, &link.name).collect();
        if let Some(peer) = link.kind.far_end() {
            taken.push(Cascade::Under(key(&peer)));
            taken.extend(on_link(self.kinds, &peer));
        }
        taken
    }

    fn change(&self, old: &Link, new: &Link) -> ChangeMethod {
        if can_become(old, new) { ChangeMethod::InPlace } else { ChangeMethod::Recreate }
    }

    fn difference(&self, expected: &Link, observed: &Link) -> String {
        // Carried out by parts of the link, or no attribute of the kernel's.
        let expected = Link {
            ethernet: None,
            master: None,
            master_kind: None,
            subinterface_description: None,
            ipv4_enabled: None,
            settings: Vec::new(),
            ..expected.clone()
        };
        difference(&expected, observed)
    }

    fn satisfied_by(&self, expected: &Link, observed: &Link) -> bool {
        let is_requested = |description: &smol_str::SmolStr| {
            observed.description.as_deref().unwrap_or_default() == description.as_str()
        };
        kind_satisfied(&expected.kind, &observed.kind)
            && !observed.lacks_mark()
            && (expected.goes_down_with_below() || expected.enabled == observed.enabled)
            && is_ipv6_as_requested(expected, observed)
            && expected.description.as_ref().is_none_or(is_requested)
            && expected.own_mtu().is_none_or(|mtu| observed.mtu == Some(mtu))
            && expected.mac.is_none_or(|mac| observed.mac == Some(mac))
    }

    /// A tunnel of IPv6 waits where others have switched IPv6 off on its device.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        let is_off = error.message.starts_with(IPV6_OFF_ON_DEVICE);
        if is_off { ErrorClass::Unmet } else { error.class() }
    }

    fn owned(&self, observed: &Link) -> bool {
        observed.is_ours()
    }

    /// The state before us is restored.
    fn restore(&self, observed: &Link) -> Option<Link> {
        (!observed.is_ours()).then(|| observed.clone())
    }

    /// Brings the state before us up to date. A port with another index is another device, whose own state is what it
    /// shows; values that equal ours may be ours even so, because a device that was in another namespace for a while
    /// returns with them. On the same device, foreign changes are kept for attributes that we leave open.
    fn refreshed_restore(&self, before: &Link, applied: &Link, observed: &Link) -> Option<Link> {
        let index = |link: &Link| link.facts.as_ref().map(|facts| facts.index);
        if observed.is_ours() {
            return None;
        }
        if index(before)? != index(observed)? {
            return Some(before_this_device(before, applied, observed));
        }
        let anew = with_what_others_changed(before, applied, observed);
        (anew != *before).then_some(anew)
    }

    /// Its `ifindex`: no other link of this run of the kernel gets it.
    fn identity(&self, observed: &Link) -> Option<u64> {
        observed.facts.as_ref().map(|facts| facts.index.into())
    }

    /// After a restart of the kernel, another link may have the index. One whose address we have set is not recognised.
    fn is_same_object(&self, before: &Link, observed: &Link) -> bool {
        before.mac.is_some() && before.mac == observed.mac
    }

    fn rekeyed(&self, link: &Link, key: &Key) -> Option<Link> {
        Some(Link { name: link_of(key)?, ..link.clone() })
    }

    /// The settings of a link, its membership in a bridge or bond, and LACP stay with it when it gets another name.
    fn keys_along(&self, from: &Key, to: &Key) -> Vec<(Key, Key)> {
        let keys = |key| {
            let link = link_of(key);
            link.into_iter().flat_map(|it| {
                let others = [master_key(&it), mtu_key(&it), admin_key(&it), lacp::key(&it)];
                link_setting::keys(&it).chain(others).collect::<Vec<_>>()
            })
        };
        keys(from).zip(keys(to)).collect()
    }

    fn after_release(&self, released: &Link, restore: &Link) -> Option<Link> {
        Some(after_release(released, restore))
    }

    /// The value before us, or that of a fresh link. The random MAC address of a link that we made cannot be
    /// requested again, so the configured one stays.
    fn restoring_update(&self, applied: &Link, new: &Link, before: Option<&Link>) -> Option<Link> {
        let mut filled = new.clone();
        if applied.facts.is_some() {
            return None; // observed values are not ours to restore
        }
        if applied.description.is_some() && new.description.is_none() {
            let before = before.and_then(|before| before.description.clone());
            filled.description = Some(before.unwrap_or_default());
        }
        if applied.own_mtu().is_some() && new.mtu.is_none() {
            filled.mtu = before.and_then(|before| before.mtu).or(fresh_mtu(&new.kind));
        }
        if applied.mac.is_some() && new.mac.is_none() {
            filled.mac = before.and_then(|before| before.mac);
        }
        if applied.ipv6_enabled.is_some() && new.ipv6_enabled.is_none() {
            filled.ipv6_enabled = before.map_or(Some(true), |before| before.ipv6_enabled);
        }
        (filled != *new).then_some(filled)
    }
}

#[derive(Serialize, Deserialize)]
struct LinkPreImage {
    name: SmolStr,
    enabled: bool,
    description: Option<SmolStr>,
    mtu: Option<u32>,
    mac: Option<MacAddr>,
    bridge: Option<BridgePreImage>,
    /// `ifindex`, which differs for another device of the same name.
    #[serde(default)]
    index: Option<u32>,
    /// `disable_ipv6`, inverted.
    #[serde(default)]
    ipv6_enabled: Option<bool>,
}

/// Parameters of a bridge.
#[derive(Serialize, Deserialize)]
struct BridgePreImage {
    stp: bool,
    vlan_filtering: bool,
    ageing_time_s: u32,
}

impl BridgePreImage {
    fn of(kind: &LinkKind) -> Option<Self> {
        let made = kind.made().filter(|made| made.row().name == BRIDGE.name)?;
        let is_on = |leaf| made.get(leaf) == Some(&Param::Bool(true));
        let ageing_time_s = match made.get("ageing-time") {
            Some(Param::Uint(seconds)) => *seconds,
            _ => bridge::DEFAULT_AGEING_S, // unknown during a topology change
        };
        Some(Self { stp: is_on("stp"), vlan_filtering: is_on("vlan-filtering"), ageing_time_s })
    }

    fn kind(self) -> LinkKind {
        let made = MadeLink::new(&BRIDGE).with("stp", self.stp);
        let made = made.with("vlan-filtering", self.vlan_filtering);
        made.with("ageing-time", self.ageing_time_s).into()
    }
}

impl PreImageRow<LinkDescriptor> for LinkPreImage {
    const TAG: &'static str = "link";

    fn of(link: &Link) -> Option<Self> {
        Some(Self {
            name: link.name.clone(),
            enabled: link.enabled,
            description: link.description.clone(),
            mtu: link.mtu,
            mac: link.mac,
            bridge: BridgePreImage::of(&link.kind),
            index: link.facts.as_ref().map(|facts| facts.index),
            ipv6_enabled: link.ipv6_enabled,
        })
    }

    fn value(self) -> Link {
        let Self { name, enabled, description, mtu, mac, bridge, index, ipv6_enabled } = self;
        // Only attributes are restored, so the parameters of other kinds do not matter.
        let kind = bridge.map_or(LinkKind::Physical, BridgePreImage::kind);
        let facts = index.map(|index| LinkFacts { index, ..LinkFacts::default() });
        Link { enabled, description, mtu, mac, ipv6_enabled, facts, ..Link::new(name, kind) }
    }
}

/// Name of the link that a key of it, or of something on it, begins with.
pub(crate) fn link_of(key: &Key) -> Option<SmolStr> {
    first_text(key)
}

/// The value of a link before us, for the attributes that `released` set; a missing alias becomes an empty one. If
/// `released` is observed, our own values are unknown and every attribute is restored.
fn after_release(released: &Link, before: &Link) -> Link {
    let all = released.facts.is_some();
    let description = before.description.clone().unwrap_or_default();
    Link {
        description: (all || released.description.is_some()).then_some(description),
        mtu: match all {
            true => before.own_mtu(),
            false => before.mtu.filter(|_| released.own_mtu().is_some()),
        },
        mac: before.mac.filter(|_| all || released.mac.is_some()),
        ipv6_enabled: before.ipv6_enabled.filter(|_| all || released.ipv6_enabled.is_some()),
        ..before.clone()
    }
}

/// The original value of a new device under a known name: its observed value, except where that equals `applied`,
/// which counts as ours.
fn before_this_device(before: &Link, applied: &Link, observed: &Link) -> Link {
    let mut own = observed.clone();
    if applied.enabled == observed.enabled {
        own.enabled = before.enabled;
    }
    let description = observed.description.as_deref().unwrap_or_default();
    if applied.description.as_deref() == Some(description) {
        own.description.clone_from(&before.description);
    }
    if applied.mtu.is_some() && applied.mtu == observed.mtu {
        own.mtu = before.mtu;
    }
    if applied.mac.is_some() && applied.mac == observed.mac {
        own.mac = before.mac;
    }
    if applied.ipv6_enabled.is_some() && applied.ipv6_enabled == observed.ipv6_enabled {
        own.ipv6_enabled = before.ipv6_enabled;
    }
    own
}

/// The original attributes of a link, updated by foreign changes to those that `applied` leaves open. A bond gives its own
/// link-layer address and MTU to a member, and the original ones back: those of the bond are not taken for foreign changes.
fn with_what_others_changed(before: &Link, applied: &Link, observed: &Link) -> Link {
    let mut anew = before.clone();
    if applied.description.is_none() {
        anew.description.clone_from(&observed.description);
    }
    let is_own = !observed.has_those_of_master();
    if applied.mtu.is_none() && is_own {
        anew.mtu = observed.mtu;
    }
    if applied.mac.is_none() && is_own {
        anew.mac = observed.mac;
    }
    if applied.ipv6_enabled.is_none() {
        anew.ipv6_enabled = observed.ipv6_enabled;
    }
    anew
}

/// The frames that arrive on a link. The kernel hands them to one taker (its receive handler): the bridge or bond that
/// the link is a port of, all macvlan links on it, or all ipvlan links on it, which have one mode together.
fn frames_of(link: &str) -> Facet {
    Facet::of(LINK, "frames").str(link)
}

/// The claim of a link to the frames of the link below, together with all links of its side.
fn frames_below(link: &MadeLink, side: &'static str) -> Vec<Claim> {
    let below = link.below();
    below.iter().map(|below| Claim::with_side(frames_of(below), side)).collect()
}

/// Prefixes of the keys of all values that the kernel removes with a link.
pub(crate) fn below<'n>(
    kinds: &'static [KindRow],
    name: &'n str,
) -> impl Iterator<Item = Key> + 'n {
    on_link(kinds, name).filter_map(|taken| match taken {
        Cascade::Under(prefix) => Some(prefix),
        Cascade::Of(_) => None, // routes, which depend on the link being up
    })
}

/// Objects that the kernel removes with a link.
fn on_link<'n>(kinds: &'static [KindRow], name: &'n str) -> impl Iterator<Item = Cascade> + 'n {
    kinds.iter().filter_map(|row| row.goes_with_link).map(move |taken| taken(name))
}

/// Default MTU of the loopback device, bytes of layer 3.
const FRESH_LOOPBACK_MTU: u32 = 65_536;

/// Default MTU of a kind of link; `None` where it depends on other links.
fn fresh_mtu(kind: &LinkKind) -> Option<u32> {
    match kind {
        LinkKind::Physical => Some(row::FRESH_MTU),
        LinkKind::Loopback => Some(FRESH_LOOPBACK_MTU),
        LinkKind::Made(made) => match made.row().mtu {
            MtuRule::Own(mtu) => Some(mtu),
            MtuRule::OfPorts | MtuRule::OfBelow(_) => None,
        },
        LinkKind::Other(_) => None,
    }
}

/// True when a link can be changed into another one in place.
pub(crate) fn can_become(old: &Link, new: &Link) -> bool {
    match (&old.kind, &new.kind) {
        (LinkKind::Made(old), LinkKind::Made(new)) if old.row().name == new.row().name => {
            old.differing(new).all(|(row, _)| row.change == Change::InPlace)
        }
        (old, new) => kind_satisfied(new, old),
    }
}

/// True when the observed kind satisfies the expected one.
fn kind_satisfied(expected: &LinkKind, observed: &LinkKind) -> bool {
    match (expected, observed) {
        (LinkKind::Physical, _) => true, // whatever kind the driver reports
        (LinkKind::Made(expected), LinkKind::Made(observed)) => {
            expected.row().name == observed.row().name
                && observed.differing(expected).next().is_none()
        }
        (expected, observed) => expected == observed,
    }
}

impl Kind for PortDescriptor {
    const READ: Read = Read::Kernel { class: &LINKS, one: |key| link_of(key).map(Query::Link) };
}

impl Descriptor for PortDescriptor {
    type Value = Port;

    fn kind(&self) -> KindId {
        PORT
    }

    fn name(&self) -> &'static str {
        "port"
    }

    fn key(&self, port: &Port) -> Key {
        port_key(&port.link)
    }

    fn label(&self, port: &Port) -> String {
        format!("port {}", port.link)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }

    fn provides(&self, port: &Port) -> Vec<Offer> {
        port.takes_ports.iter().map(|kind| master_facet(kind, &port.link).into()).collect()
    }
}

impl Kind for LinkUpDescriptor {
    fn registered(kinds: &'static [KindRow]) -> Self {
        Self { kinds }
    }
}

impl Descriptor for LinkUpDescriptor {
    type Value = LinkUp;

    fn kind(&self) -> KindId {
        LINK_UP
    }

    fn name(&self) -> &'static str {
        "link-up"
    }

    fn key(&self, up: &LinkUp) -> Key {
        up_key(&up.link)
    }

    fn label(&self, up: &LinkUp) -> String {
        format!("link {} up", up.link)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }

    /// The kernel removes the routes through a link that goes down, and takes down its VLANs.
    fn cascades(&self, up: &LinkUp) -> Vec<Cascade> {
        let routes = on_link(self.kinds, &up.link);
        let routes = routes.filter(|taken| matches!(taken, Cascade::Of(_)));
        routes.chain([Cascade::Of(admin::above_facet(&up.link))]).collect()
    }
}

impl Kind for LinkMasterDescriptor {
    const NATIVE: Option<Bind> = Some(AttributeOfLink::bind);
    const READ: Read = Read::Kernel { class: &LINKS, one: |key| link_of(key).map(Query::Link) };
    const ENCODE: Option<Encode<LinkMaster>> = Some(encode::master);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, MasterRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(master_key(link)));
}

impl Descriptor for LinkMasterDescriptor {
    type Value = LinkMaster;

    fn kind(&self) -> KindId {
        LINK_MASTER
    }

    fn name(&self) -> &'static str {
        "link-master"
    }

    fn key(&self, part: &LinkMaster) -> Key {
        master_key(&part.link)
    }

    fn label(&self, part: &LinkMaster) -> String {
        let role = part.rule().map_or("port", |rule| rule.role);
        match (&part.master, &part.kind) {
            (Some(master), Some(kind)) => format!("{role} {} of {kind} {master}", part.link),
            (Some(master), None) => format!("{role} {} of {master}", part.link),
            (None, _) => format!("{role} {} of no bridge or bond", part.link),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    fn dependencies(&self, part: &LinkMaster) -> Vec<Dependency> {
        let (Some(master), Some(kind)) = (&part.master, &part.kind) else { return Vec::new() };
        vec![Dependency::any_of(format!("{kind} {master}"), master_facet(kind, master))]
    }

    fn satisfied_by(&self, expected: &LinkMaster, observed: &LinkMaster) -> bool {
        expected.master == observed.master
    }

    fn claims(&self, part: &LinkMaster) -> Vec<Claim> {
        part.master.iter().map(|_| Claim::alone(frames_of(&part.link))).collect()
    }

    /// A link leaves its bond or bridge before it joins a bond. A bond that is empty takes the link-layer address of the
    /// first link that joins it, so two bonds that exchange their only links would have one address otherwise.
    fn change(&self, old: &LinkMaster, new: &LinkMaster) -> ChangeMethod {
        let gives_mac = new.rule().is_some_and(|rule| rule.gives_mac_and_mtu);
        if old.master.is_some() && old.master != new.master && gives_mac {
            return ChangeMethod::Recreate;
        }
        let needs_down = |part: &LinkMaster| part.rule().is_some_and(|rule| rule.needs_down);
        if needs_down(old) || needs_down(new) {
            ChangeMethod::LinkDown
        } else {
            ChangeMethod::InPlace
        }
    }

    fn owned(&self, observed: &LinkMaster) -> bool {
        observed.on_our_link && observed.master.is_some()
    }

    fn rekeyed(&self, part: &LinkMaster, key: &Key) -> Option<LinkMaster> {
        Some(LinkMaster { link: link_of(key)?, ..part.clone() })
    }

    fn restore(&self, observed: &LinkMaster) -> Option<LinkMaster> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every link reports its bridge or bond, or that it has none.
    fn after_delete(&self, deleted: &LinkMaster) -> Option<LinkMaster> {
        Some(LinkMaster { master: None, kind: None, ..deleted.clone() })
    }
}

#[derive(Serialize, Deserialize)]
struct MasterRow {
    link: SmolStr,
    master: Option<SmolStr>,
    /// Kind of the master; rows of earlier versions, which knew bridges alone, have none.
    #[serde(default)]
    master_kind: Option<SmolStr>,
}

impl PreImageRow<LinkMasterDescriptor> for MasterRow {
    const TAG: &'static str = "master";

    fn of(part: &LinkMaster) -> Option<Self> {
        let LinkMaster { link, master, kind, .. } = part.clone();
        Some(Self { link, master, master_kind: kind })
    }

    fn value(self) -> LinkMaster {
        let Self { link, master, master_kind } = self;
        let bridge = || master.as_ref().map(|_| BRIDGE.name.into());
        let kind = master_kind.or_else(bridge);
        LinkMaster { link, master, kind, on_our_link: false }
    }
}
