//! Conversion of kernel notifications to facts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_base::now_ns;
use holdfast_scheduler::Fact;
use netlink_packet_route::AddressFamily;
use smol_str::SmolStr;
use tracing::{debug, error, warn};

use super::frame::{Frame, u32_at};
use super::query::{self, Listing};
use super::{Event, Task, netconf};
use crate::kinds::links::LinkIndex;
use crate::kinds::reading::{
    ClassRow, RTM_DELADDR, RTM_DELLINK, RTM_NEWLINK, RTM_NEWNETCONF, RTM_NEWROUTE,
};
use crate::kinds::{CLASSES, class_of};
use crate::kinds::{link, link_setting, route};
use crate::transport::codecs::Codecs;
use crate::values::{Family, LinkSysctl, OperState};

/// `struct ifinfomsg`: offsets of index and flags.
const LINK_INDEX: usize = 4;
const LINK_FLAGS: usize = 8;
/// `struct ifaddrmsg`: offset of the index of the link.
const ADDRESS_LINK: usize = 4;
/// `IFF_UP`: administratively up.
const UP: u32 = 1;
/// `IFF_LOWER_UP`: the link has a carrier.
const LOWER_UP: u32 = 1 << 16;

/// Links whose routes are listed one by one. The kernel walks all routes for each of these lists.
const MAX_LINKS_SINGLY: usize = 8;

/// Routes that have to be read again.
#[derive(Debug, Default)]
pub(super) enum StaleRoutes {
    #[default]
    None,
    /// Routes through links, by index.
    Through(BTreeMap<u32, SmolStr>),
    All,
}

impl StaleRoutes {
    /// Adds those through a link; all when its name is not known.
    fn add(&mut self, index: u32, name: Option<&SmolStr>) {
        let Some(name) = name else { return *self = Self::All };
        if let Self::None = self {
            *self = Self::Through(BTreeMap::new());
        }
        if let Self::Through(links) = self {
            links.insert(index, name.clone());
            if links.len() > MAX_LINKS_SINGLY {
                *self = Self::All;
            }
        }
    }
}

/// State of a link on which the kernel's treatment of its routes depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LinkState {
    is_up: bool,
    has_carrier: bool,
}

/// Classes of objects that have to be read again.
#[derive(Debug, Default)]
pub(super) struct StaleClasses {
    everything: bool,
    routes: StaleRoutes,
    /// Links by index that may have IPv6 again. The kernel announces that in a message of its own, and not in one
    /// about the link.
    links: BTreeSet<u32>,
    /// State of links by index: a link going down shows only as the difference of two messages.
    states: HashMap<u32, LinkState>,
    /// A complete list of our routes was empty and none was added since, so no route can vanish.
    no_routes: bool,
}

impl StaleClasses {
    pub(super) fn any(&self) -> bool {
        self.everything || !self.links.is_empty() || !matches!(self.routes, StaleRoutes::None)
    }

    pub(super) fn all(&mut self) {
        self.everything = true;
    }

    /// Records the number of our routes in a complete list.
    pub(super) fn record_route_count(&mut self, count: usize) {
        self.no_routes = count == 0;
    }

    /// Records whether a message puts routes in doubt. The kernel drops IPv4 gateway routes without notification when their
    /// link goes down or away, or loses its last address, and leaves out next hops whose link has no carrier. A link that goes away may be one of several next hops that was dead
    /// before, which no observed route names.
    pub(super) fn note(&mut self, frame: &Frame<'_>, links: &LinkIndex) {
        match frame.kind {
            RTM_NEWROUTE => self.no_routes = false,
            RTM_NEWLINK if is_ipv6_of_link(frame) => {
                let (index, _) = link_state(frame);
                if links.has_ipv6(index) != Some(true) {
                    self.links.insert(index);
                }
            }
            RTM_NEWLINK if !is_bridge_port(frame) => {
                let (index, state) = link_state(frame);
                let before = self.states.insert(index, state).unwrap_or_default();
                if before.is_up && state != before {
                    self.add_routes(index, links);
                }
            }
            RTM_DELLINK if is_link(frame) => {
                self.states.remove(&link_state(frame).0);
                self.add_all_routes();
            }
            RTM_DELADDR if frame.payload.first() == Some(&AddressFamily::Inet.into()) => {
                self.add_routes(u32_at(frame.payload, ADDRESS_LINK).unwrap_or(0), links);
            }
            _ => {}
        }
    }

    fn add_routes(&mut self, link: u32, links: &LinkIndex) {
        if !self.no_routes {
            self.routes.add(link, links.name(link));
        }
    }

    /// Has all routes read again. Routes that were seen before their link got another name are on the old name.
    fn add_all_routes(&mut self) {
        if !self.no_routes {
            self.routes = StaleRoutes::All;
        }
    }
}

/// Contents of announcements, or of answers that are taken as such.
#[derive(Default)]
struct Heard {
    facts: Vec<Fact>,
    /// Links that are new, or have another name.
    newcomers: Vec<SmolStr>,
    /// Links whose carrier may have changed, and with it their speed.
    changed: Vec<SmolStr>,
    /// Links that have IPv6 again. The kernel gives them the settings of a new link.
    with_new_ipv6: Vec<SmolStr>,
    /// Settings that were announced in part.
    settings: Vec<netconf::Unsaid>,
    links_went: bool,
}

impl Heard {
    fn take(
        &mut self,
        frame: &Frame<'_>,
        codecs: Codecs,
        links: &mut LinkIndex,
        doubts: &mut StaleClasses,
        time_ns: u64,
    ) {
        doubts.note(frame, links);
        if frame.kind == RTM_NEWNETCONF {
            self.settings.extend(netconf::unsaid(frame, links));
        }
        let before = (name_of(frame, links), oper_of(frame, links));
        let index = (frame.kind == RTM_NEWLINK && is_link(frame)).then(|| link_state(frame).0);
        let had_ipv6 = index.and_then(|index| links.has_ipv6(index));
        facts_of(frame, codecs, links, time_ns, &mut self.facts);
        let name = name_of(frame, links);
        let has_ipv6 = index.and_then(|index| links.has_ipv6(index)) == Some(true);
        if has_ipv6 && had_ipv6 == Some(false) {
            self.with_new_ipv6.extend(name.clone());
        }
        if before.0.is_some() && name != before.0 && name.is_some() {
            doubts.add_all_routes();
        }
        if name != before.0 || oper_of(frame, links) != before.1 {
            self.changed.extend(name.clone());
        }
        self.newcomers.extend(name.filter(|name| Some(name) != before.0.as_ref()));
        self.links_went |= frame.kind == RTM_DELLINK && is_link(frame);
    }
}

impl Task {
    /// Receives all waiting notifications, and posts them as facts.
    pub(super) fn drain_notifications(&mut self) {
        loop {
            let time_ns = now_ns();
            let codecs = self.codecs;
            let links = &mut self.links;
            let doubts = &mut self.stale;
            let mut heard = Heard::default();
            let drained = self.listener.drain(&mut self.buffer, &mut |frame| {
                heard.take(&frame, codecs, links, doubts, time_ns);
            });
            self.report(heard);
            match drained {
                Ok(drained) => {
                    if drained.overrun {
                        warn!("announcements of the kernel were lost; reading everything again");
                        self.stale.all();
                    }
                    if !drained.more && !self.read_urgent() {
                        return;
                    }
                }
                Err(error) => {
                    error!(%error, "cannot listen to the kernel");
                    return;
                }
            }
        }
    }

    /// Reads the links whose carrier has changed. False where there are none.
    fn read_urgent(&mut self) -> bool {
        let urgent = self.urgent.take(); // by their names in the kernel
        for link in &urgent {
            let time_ns = now_ns();
            let codecs = self.codecs;
            let links = &mut self.links;
            let doubts = &mut self.stale;
            let mut heard = Heard::default();
            let read = self.queries.get(&query::link(link), &mut self.buffer, &mut |listing| {
                if let Listing::Object(frame) = listing {
                    heard.take(&frame, codecs, links, doubts, time_ns);
                }
            });
            if let Err(error) = read {
                debug!(%link, %error, "its carrier has changed, and it cannot be read");
            }
            self.report(heard);
        }
        !urgent.is_empty()
    }

    /// Posts what was heard, with what has to be read because of it.
    fn report(&mut self, heard: Heard) {
        let Heard { mut facts, newcomers, mut changed, with_new_ipv6, settings, links_went } =
            heard;
        if let Some(sampler) = self.sampler.as_ref().filter(|_| links_went || !newcomers.is_empty())
        {
            sampler.look_for_links();
        }
        facts.extend(self.settings_of(&newcomers));
        for link in with_new_ipv6 {
            let read = |sysctl| self.get_setting(sysctl, &link, Family::V6);
            facts.extend(settings_of_ipv6().flat_map(read).flatten());
        }
        let mut all_settings = false;
        for unsaid in settings {
            match unsaid {
                netconf::Unsaid::Of(link, settings) => {
                    let read = |(sysctl, family)| self.get_setting(sysctl, &link, family);
                    facts.extend(settings.into_iter().flat_map(read).flatten());
                }
                netconf::Unsaid::OfAll => all_settings = true,
            }
        }
        changed.sort();
        changed.dedup();
        facts.extend(self.ethernet_of(&changed));
        self.mailbox.post(Event::Observed(facts));
        if all_settings {
            self.read_classes(&[&link_setting::SETTINGS]);
        }
    }

    /// Reads all classes in doubt as a whole, so that vanished objects are noticed.
    pub(super) fn reread_stale(&mut self) {
        let links = std::mem::take(&mut self.stale.links);
        if std::mem::take(&mut self.stale.everything) {
            self.stale.routes = StaleRoutes::None;
            self.read_classes(&CLASSES);
        } else {
            // IPv6 that has come to a link brings the settings of a new link.
            let names = links.iter().filter_map(|index| self.links.name(*index));
            let keys = names.flat_map(|name| {
                settings_of_ipv6()
                    .map(|sysctl| link_setting::key(sysctl, name, Family::V6))
                    .chain([link::key(name)])
            });
            self.read(keys.collect());
            // A link that is read may be newer than the announcements that wait: those of the link that had its name before
            // cannot be decoded then.
            if self.links.take_dropped_early() {
                let on_links = CLASSES.into_iter().filter(|class| class.is_on_links);
                self.read_classes(&on_links.collect::<Vec<&ClassRow>>());
            }
            match std::mem::take(&mut self.stale.routes) {
                StaleRoutes::None => {}
                StaleRoutes::Through(links) => {
                    links.iter().for_each(|(index, name)| self.read_routes_through(*index, name));
                }
                StaleRoutes::All => self.read_classes(&[&route::ROUTES]),
            }
        }
        // Objects on links that these lists dropped were listed after them.
        self.links.take_dropped_early();
    }
}

fn settings_of_ipv6() -> impl Iterator<Item = LinkSysctl> {
    let settings = LinkSysctl::of_families().filter(|(_, family)| *family == Family::V6);
    settings.map(|(sysctl, _)| sysctl)
}

/// Name of the link of an `RTM_NEWLINK`.
///
/// The settings of a new or renamed link are announced before the link itself, so they have to be read.
fn name_of(frame: &Frame<'_>, links: &LinkIndex) -> Option<SmolStr> {
    let is_new = frame.kind == RTM_NEWLINK && is_link(frame);
    is_new.then(|| links.name(link_state(frame).0).cloned()).flatten()
}

/// Known operational state of the link of an `RTM_NEWLINK`.
fn oper_of(frame: &Frame<'_>, links: &LinkIndex) -> Option<OperState> {
    let is_new = frame.kind == RTM_NEWLINK && is_link(frame);
    is_new.then(|| links.oper(link_state(frame).0)).flatten()
}

/// Appends the facts in a message. A message that cannot be decoded has none; a panic of the decoder is logged.
pub(super) fn facts_of(
    frame: &Frame<'_>,
    codecs: Codecs,
    links: &mut LinkIndex,
    time_ns: u64,
    facts: &mut Vec<Fact>,
) {
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(frame, codecs, links, time_ns, facts)));
    if decoded.is_err() {
        error!(kind = frame.kind, "decoding a message panicked");
    }
}

fn decode(
    frame: &Frame<'_>,
    codecs: Codecs,
    links: &mut LinkIndex,
    time_ns: u64,
    facts: &mut Vec<Fact>,
) {
    match frame.kind {
        _ if class_of(frame.kind).is_none() || is_bridge_port(frame) => return,
        RTM_NEWLINK | RTM_DELLINK if is_ipv6_of_link(frame) => return,
        RTM_NEWNETCONF => return facts.extend(netconf::facts(frame, links, time_ns)),
        _ => {}
    }
    match frame.decode() {
        Ok(message) => {
            let observations = (codecs.decode)(&message, frame.flags, time_ns, links);
            let facts_of = |(key, value)| Fact { key, value, time_ns };
            facts.extend(observations.into_iter().map(facts_of));
        }
        Err(error) => debug!(kind = frame.kind, %error, "a message cannot be decoded"),
    }
}

/// True for messages about a bridge port or an entry of the bridge's address table, rather than about the link.
fn is_bridge_port(frame: &Frame<'_>) -> bool {
    frame.payload.first() == Some(&u8::from(AddressFamily::Bridge))
}

/// True for messages about IPv6 on a link, rather than about the link.
fn is_ipv6_of_link(frame: &Frame<'_>) -> bool {
    frame.payload.first() == Some(&u8::from(AddressFamily::Inet6))
}

/// True when an `RTM_NEWLINK` or `RTM_DELLINK` is about the link itself.
fn is_link(frame: &Frame<'_>) -> bool {
    !is_bridge_port(frame) && !is_ipv6_of_link(frame)
}

/// Index and state of the link.
fn link_state(frame: &Frame<'_>) -> (u32, LinkState) {
    let at = |offset| u32_at(frame.payload, offset).unwrap_or(0);
    let flags = at(LINK_FLAGS);
    let state = LinkState { is_up: flags & UP != 0, has_carrier: flags & LOWER_UP != 0 };
    (at(LINK_INDEX), state)
}
