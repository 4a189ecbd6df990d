//! Links, with the properties that have keys of their own: presence, administrative state, bridge.

mod decode;
mod encode;

use std::borrow::Cow;
use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, ChangeMethod, Dependency, Descriptor, Effect, Facet, Key, KindId, Offer, Part,
    SharedValue,
};

use super::{address, ethernet, forwarding, kinds, neighbor, route};
use crate::codec::{Codec, EncodeError, Observation, Op, Requests};
use crate::links::LinkIndex;
use crate::transport;
use crate::value_json;
use crate::values::{BridgeParams, Family, Forwarding, Link, LinkKind, LinkMaster, LinkUp, Port};

pub(crate) use decode::decode;

/// Ticks in which the kernel counts the ageing of a bridge, hundredths of a second (`USER_HZ`).
const AGEING_TICKS_PER_S: u32 = 100;

/// Links.
#[derive(Debug)]
pub struct LinkDescriptor;

/// Presence of a link in the kernel.
#[derive(Debug)]
pub struct PortDescriptor;

/// Administrative state of a link.
#[derive(Debug)]
pub struct LinkUpDescriptor;

/// Membership of a link in a bridge.
#[derive(Debug)]
pub struct LinkMasterDescriptor;

/// The key of a link.
pub fn key(name: &str) -> Key {
    Key::of(kinds::LINK).str(name)
}

/// Key of the observed presence of a link.
pub fn port_key(name: &str) -> Key {
    Key::of(kinds::PORT).str(name)
}

/// The key of the property that a link is up.
pub fn up_key(name: &str) -> Key {
    Key::of(kinds::LINK_UP).str(name)
}

/// The key of a link's bridge.
pub fn master_key(name: &str) -> Key {
    Key::of(kinds::LINK_MASTER).str(name)
}

/// All observations from a message about a link. `gone` says that the message was its `RTM_DELLINK`.
pub(crate) fn observations(link: Link, is_deleted: bool) -> Vec<Observation> {
    let name = link.name.clone();
    let ours = link.is_ours();
    let master = LinkMaster { link: name.clone(), master: link.master.clone(), on_our_link: ours };
    let port: SharedValue = Arc::new(Port { link: name.clone() });
    let mut all = vec![
        (port_key(&name), Some(port)),
        (key(&name), Some(Arc::new(link) as SharedValue)),
        (master_key(&name), Some(Arc::new(master) as SharedValue)),
    ];
    if is_deleted {
        all.iter_mut().for_each(|(_, value)| *value = None);
        all.push((ethernet::key(&name), None));
        all.extend([Family::V4, Family::V6].map(|family| (forwarding::key(&name, family), None)));
    }
    all
}

/// Facet of bridges: only a bridge can be a master.
fn bridge_facet(name: &str) -> Facet {
    Facet::of(kinds::LINK, "bridge").str(name)
}

/// Facet of links on which the kernel has IPv6.
pub(super) fn ipv6_facet(name: &str) -> Facet {
    Facet::of(kinds::LINK, "ipv6").str(name)
}

/// Facet of links on which IPv4 addresses of the configuration may be set.
pub(super) fn ipv4_facet(name: &str) -> Facet {
    Facet::of(kinds::LINK, "ipv4").str(name)
}

/// Smallest MTU of a link with IPv6, octets of layer 3 (RFC 8200, section 5). Below it, the kernel removes all
/// IPv6 addresses from the link and refuses new ones.
pub(super) const LEAST_IPV6_MTU: u32 = 1280;

impl Descriptor for LinkDescriptor {
    type Value = Link;

    fn kind(&self) -> KindId {
        kinds::LINK
    }

    fn name(&self) -> &'static str {
        "link"
    }

    fn key(&self, link: &Link) -> Key {
        key(&link.name)
    }

    fn label(&self, link: &Link) -> String {
        format!("link {}", link.name)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport::RTNETLINK)
    }

    /// A port waits until the kernel shows it, a tunnel waits for its underlying link.
    fn dependencies(&self, link: &Link) -> Vec<Dependency> {
        match &link.kind {
            LinkKind::Physical | LinkKind::Loopback => {
                vec![Dependency::exact(format!("port {}", link.name), port_key(&link.name))]
            }
            LinkKind::Vxlan(params) => params
                .device
                .iter()
                .map(|device| Dependency::exact(format!("link {device}"), key(device)))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn provides(&self, link: &Link) -> Vec<Offer> {
        let mut offers: Vec<Offer> = Vec::new();
        if matches!(link.kind, LinkKind::Bridge(_)) {
            offers.push(bridge_facet(&link.name).into());
        }
        if link.ipv4_enabled != Some(false) {
            offers.push(ipv4_facet(&link.name).into());
        }
        // Other programs may switch IPv6 on without an event, so foreign links count as having it: a refusal is
        // retried instead of waiting.
        let ipv6 = link.facts.is_some() || link.ipv6_enabled != Some(false);
        if ipv6 && link.mtu.is_none_or(|mtu| mtu >= LEAST_IPV6_MTU) {
            offers.push(ipv6_facet(&link.name).into());
        }
        offers
    }

    fn parts(&self, link: &Link) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        if link.enabled {
            parts.push((up_key(&link.name), Arc::new(LinkUp { link: link.name.clone() })));
        }
        // The observed values of these have facts of their own.
        if link.facts.is_some() {
            return parts;
        }
        if let Some(settings) = &link.ethernet {
            parts.push((ethernet::config_key(&link.name), Arc::new(settings.clone())));
        }
        if link.master.is_some() {
            let (link, master) = (link.name.clone(), link.master.clone());
            let part = LinkMaster { link, master, on_our_link: false };
            parts.push((master_key(&part.link), Arc::new(part)));
        }
        for family in [Family::V4, Family::V6] {
            if let Some(enabled) = link.forwarding(family) {
                let link = link.name.clone();
                let part = Forwarding { link, family, enabled, on_our_link: false };
                parts.push((forwarding::key(&part.link, family), Arc::new(part)));
            }
        }
        parts
    }

    /// The kernel removes everything on a link together with it, and both ends of a pair together.
    fn cascades(&self, link: &Link) -> Vec<Cascade> {
        if !link.kind.is_made_by_us() {
            return Vec::new();
        }
        let mut taken = on_link(&link.name);
        if let LinkKind::Veth { peer: Some(peer) } = &link.kind {
            taken.push(Cascade::Under(key(peer)));
            taken.extend(on_link(peer));
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
            subinterface_description: None,
            ipv4_enabled: None,
            ipv4_forwarding: None,
            ipv6_forwarding: None,
            ..expected.clone()
        };
        value_json::difference(kinds::LINK, &expected, observed)
    }

    fn satisfied_by(&self, expected: &Link, observed: &Link) -> bool {
        let is_requested = |description: &smol_str::SmolStr| {
            observed.description.as_deref().unwrap_or_default() == description.as_str()
        };
        kind_satisfied(&expected.kind, &as_set(expected, observed))
            && !observed.lacks_mark()
            && expected.enabled == observed.enabled
            && expected.ipv6_enabled.is_none_or(|on| observed.ipv6_enabled.unwrap_or(false) == on)
            && expected.description.as_ref().is_none_or(is_requested)
            && expected.mtu.is_none_or(|mtu| observed.mtu == Some(mtu))
            && expected.mac.is_none_or(|mac| observed.mac == Some(mac))
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
        if applied.mtu.is_some() && new.mtu.is_none() {
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

/// The value of a link before us, for the attributes that `released` set; a missing alias becomes an empty one. If
/// `released` is observed, our own values are unknown and every attribute is restored.
fn after_release(released: &Link, before: &Link) -> Link {
    let all = released.facts.is_some();
    let description = before.description.clone().unwrap_or_default();
    Link {
        description: (all || released.description.is_some()).then_some(description),
        mtu: before.mtu.filter(|_| all || released.mtu.is_some()),
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

/// The original attributes of a link, updated by foreign changes to those that `applied` leaves open.
fn with_what_others_changed(before: &Link, applied: &Link, observed: &Link) -> Link {
    let mut anew = before.clone();
    if applied.description.is_none() {
        anew.description.clone_from(&observed.description);
    }
    if applied.mtu.is_none() {
        anew.mtu = observed.mtu;
    }
    if applied.mac.is_none() {
        anew.mac = observed.mac;
    }
    if applied.ipv6_enabled.is_none() {
        anew.ipv6_enabled = observed.ipv6_enabled;
    }
    anew
}

/// Objects that the kernel removes with a link.
fn on_link(name: &str) -> Vec<Cascade> {
    vec![
        Cascade::Under(address::link_prefix(name)),
        Cascade::Under(Key::of(kinds::CONNECTED).str(name)),
        Cascade::Under(neighbor::link_prefix(name)),
        Cascade::Under(forwarding::link_prefix(name)),
        Cascade::Under(master_key(name)),
        Cascade::Of(route::via_facet(name)),
    ]
}

/// Default MTU of an Ethernet-like link, octets of layer 3.
const FRESH_MTU: u32 = 1500;

/// Default MTU of the loopback device, octets of layer 3.
const FRESH_LOOPBACK_MTU: u32 = 65_536;

/// Default MTU of a kind of link; `None` where it depends on other links.
fn fresh_mtu(kind: &LinkKind) -> Option<u32> {
    match kind {
        LinkKind::Loopback => Some(FRESH_LOOPBACK_MTU),
        LinkKind::Vxlan(_) | LinkKind::Other(_) => None,
        _ => Some(FRESH_MTU),
    }
}

/// True when a link can be changed into another one in place.
pub(crate) fn can_become(old: &Link, new: &Link) -> bool {
    match (&old.kind, &new.kind) {
        (LinkKind::Bridge(_), LinkKind::Bridge(_)) => true,
        (old, new) => kind_satisfied(new, old),
    }
}

/// Kind of the link with the ageing time that was set, which the kernel does not show during a topology change.
fn as_set<'k>(expected: &Link, observed: &'k Link) -> Cow<'k, LinkKind> {
    match (&expected.kind, &observed.kind) {
        (LinkKind::Bridge(params), LinkKind::Bridge(seen_params)) if observed.ages_faster() => {
            let ageing_time_s = params.ageing_time_s;
            Cow::Owned(LinkKind::Bridge(BridgeParams { ageing_time_s, ..seen_params.clone() }))
        }
        (_, seen_params) => Cow::Borrowed(seen_params),
    }
}

/// True when the observed kind satisfies the expected one.
fn kind_satisfied(expected: &LinkKind, observed: &LinkKind) -> bool {
    match (expected, observed) {
        (LinkKind::Physical, _) => true, // whatever kind the driver reports
        (LinkKind::Veth { peer: expected }, LinkKind::Veth { peer: observed }) => {
            // Unknown until the message about the far end arrives.
            expected.is_none() || observed.is_none() || expected == observed
        }
        (LinkKind::Vxlan(expected), LinkKind::Vxlan(observed)) => {
            expected.vni == observed.vni
                && expected.port == observed.port
                && expected.learning == observed.learning
                && expected.local == observed.local
                && expected.remote == observed.remote
                && expected.device == observed.device
        }
        (expected, observed) => expected == observed,
    }
}

impl Codec for LinkDescriptor {
    type Value = Link;

    fn encode(&self, op: Op<'_, Link>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
        encode::link(op, links)
    }
}

impl Descriptor for PortDescriptor {
    type Value = Port;

    fn kind(&self) -> KindId {
        kinds::PORT
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
}

impl Descriptor for LinkUpDescriptor {
    type Value = LinkUp;

    fn kind(&self) -> KindId {
        kinds::LINK_UP
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

    /// The kernel removes the routes through a link that goes down.
    fn cascades(&self, up: &LinkUp) -> Vec<Cascade> {
        vec![Cascade::Of(route::via_facet(&up.link))]
    }
}

impl Descriptor for LinkMasterDescriptor {
    type Value = LinkMaster;

    fn kind(&self) -> KindId {
        kinds::LINK_MASTER
    }

    fn name(&self) -> &'static str {
        "link-master"
    }

    fn key(&self, part: &LinkMaster) -> Key {
        master_key(&part.link)
    }

    fn label(&self, part: &LinkMaster) -> String {
        match &part.master {
            Some(master) => format!("port {} of bridge {master}", part.link),
            None => format!("port {} of no bridge", part.link),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport::RTNETLINK)
    }

    fn dependencies(&self, part: &LinkMaster) -> Vec<Dependency> {
        part.master
            .iter()
            .map(|master| Dependency::any_of(format!("bridge {master}"), bridge_facet(master)))
            .collect()
    }

    fn satisfied_by(&self, expected: &LinkMaster, observed: &LinkMaster) -> bool {
        expected.master == observed.master
    }

    fn owned(&self, observed: &LinkMaster) -> bool {
        observed.on_our_link && observed.master.is_some()
    }

    fn restore(&self, observed: &LinkMaster) -> Option<LinkMaster> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every link reports its bridge, or that it has none.
    fn after_delete(&self, deleted: &LinkMaster) -> Option<LinkMaster> {
        Some(LinkMaster { master: None, ..deleted.clone() })
    }
}

impl Codec for LinkMasterDescriptor {
    type Value = LinkMaster;

    fn encode(
        &self,
        op: Op<'_, LinkMaster>,
        links: &mut LinkIndex,
    ) -> Result<Requests, EncodeError> {
        encode::master(op, links)
    }
}
