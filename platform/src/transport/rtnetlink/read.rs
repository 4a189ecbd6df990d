//! Reading of single objects, whole classes, everything, and counters.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_scheduler::{Fact, Key, KindId, Scope};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::RouteProtocol;
use nix::errno::Errno;
use smol_str::SmolStr;
use tracing::warn;

use super::notifications::facts_of;
use super::query::{self, Listing, QueryError};
use super::{Event, LinkCounters, Task};
use crate::kinds::CLASSES;
use crate::kinds::links::LinkIndex;
use crate::kinds::reading::{ClassList, ClassRow, Query};
use crate::kinds::{self, link, link_setting, route};
use crate::transport::BestRoutes;
use crate::transport::codecs;
use crate::transport::sysctl;
use crate::values::{
    Destination, Ethernet, Family, KernelRoute, LinkSetting, LinkSysctl, OUR_PROTOCOL,
};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Errnos of a kernel without IPv6.
const NO_FAMILY: &[Errno] = &[Errno::EAFNOSUPPORT, Errno::EOPNOTSUPP];
/// Most routes queried one by one; a list of all costs about as much as some hundred queries.
const MAX_SINGLE_ROUTES: usize = 64;

/// Attempts at a complete report while objects keep changing.
const RETRIEVE_ATTEMPTS: usize = 5;

/// Answer to a query: facts, or an error such as a missing object.
type QueryResult = Result<Vec<Fact>, QueryError>;

impl Task {
    /// Reads objects back and answers each with a fact, all in one event.
    pub(super) fn read(&mut self, keys: Vec<Key>) {
        if keys.is_empty() {
            return;
        }
        let mut missing: HashSet<Key> = keys.iter().cloned().collect();
        let mut questions: Vec<Query> = keys.iter().filter_map(Query::of).collect();
        let mut reported = HashSet::new();
        questions.retain(|question| reported.insert(question.clone()));
        let mut answers = Vec::new();
        let singles = questions.iter().filter(|query| matches!(query, Query::Route(_))).count();
        for question in questions {
            let facts = match question {
                Query::Route(_) if singles > MAX_SINGLE_ROUTES => continue,
                other => self.query(&other),
            };
            if self.take(facts, &mut missing, &mut answers).is_err() {
                return; // everything is read instead
            }
        }
        let route_left = missing.iter().any(|key| matches!(Query::of(key), Some(Query::Route(_))));
        if route_left {
            let facts = self.list_routes();
            if self.take(facts, &mut missing, &mut answers).is_err() {
                return;
            }
        }
        let time_ns = now_ns();
        let absent = keys.into_iter().filter(|key| missing.remove(key));
        answers.extend(absent.map(|key| Fact { key, value: None, time_ns }));
        self.mailbox.post(Event::Observed(answers));
    }

    /// Moves the requested facts to the answers.
    fn take(
        &mut self,
        facts: QueryResult,
        missing: &mut HashSet<Key>,
        answers: &mut Vec<Fact>,
    ) -> Result<(), ()> {
        match facts {
            Ok(facts) => {
                answers.extend(facts.into_iter().filter(|fact| missing.remove(&fact.key)));
                Ok(())
            }
            Err(error) => {
                warn!(%error, "cannot read an object back; reading everything again");
                self.stale.all();
                Err(())
            }
        }
    }

    pub(super) fn query(&mut self, question: &Query) -> QueryResult {
        match question {
            Query::Link(name) => self.get_link(name),
            Query::OnLink(class, link) => self.list_of_link(link, class),
            Query::Route(prefix) => {
                self.get(&query::best_route(prefix.network())).or_else(|error| match error {
                    // Unreachable, blackhole or no route at all: the list has the answer.
                    QueryError::Refused { .. } => Ok(Vec::new()),
                    other => Err(other),
                })
            }
            Query::Ethernet(link) => Ok(self.ethernet_of(std::slice::from_ref(link))),
            Query::Setting(sysctl, link, family) => Ok(self.get_setting(*sysctl, link, *family)?),
        }
    }

    /// Of these destinations, those for which the kernel uses a route of a routing daemon.
    pub(super) fn routes_of_daemons(&mut self, destinations: Vec<Destination>) -> BestRoutes {
        let mut best = |at: Destination| {
            let is_to = |route: &KernelRoute| Destination::of(route) == at;
            // A more specific route may hide this destination at its first address, and another one at its last.
            let first = self.best_route(at.prefix.network()).filter(is_to);
            let route = first.or_else(|| self.best_route(at.prefix.broadcast()).filter(is_to))?;
            route::is_of_daemon(&route).then_some((at, route))
        };
        destinations.into_iter().filter_map(&mut best).collect()
    }

    /// The route, of whatever program, that the kernel would use for an address. It may be a more specific one than others with that
    /// address.
    pub(super) fn best_route(&mut self, address: IpAddr) -> Option<KernelRoute> {
        let mut found = None;
        let Self { queries: asker, buffer, links, .. } = self;
        let asked = asker.get(&query::best_route(address), buffer, &mut |listing| {
            if let Listing::Object(frame) = listing
                && let Ok(RouteNetlinkMessage::NewRoute(message)) = frame.decode()
            {
                found = route::decode_any(&message, links);
            }
        });
        asked.ok().and(found)
    }

    fn get_link(&mut self, name: &SmolStr) -> QueryResult {
        let facts =
            none_if_refused(self.get(&query::link(&self.links.own_name(name))), &[Errno::ENODEV])?;
        if facts.is_empty() {
            self.links.forget_early(name);
        }
        Ok(facts)
    }

    /// Reads the settings of some links; those that cannot be read are left out. Of links of ours, only those are read that the
    /// kernel announces: the others are there once they are configured, or everything is read.
    pub(super) fn settings_of(&self, links: &[SmolStr]) -> Vec<Fact> {
        let mut facts = Vec::new();
        for link in links {
            let ours = self.links.is_ours(link);
            let is_read = |(sysctl, _): &(LinkSysctl, Family)| !ours || sysctl.is_announced();
            for (sysctl, family) in LinkSysctl::of_families().filter(is_read) {
                facts.extend(self.get_setting(sysctl, link, family).unwrap_or_default());
            }
        }
        facts
    }

    /// Reads speed and duplex of some links; those without any, or gone, are left out.
    pub(super) fn ethernet_of(&mut self, links: &[SmolStr]) -> Vec<Fact> {
        let Self { ethtool, buffer, links: index, .. } = self;
        let Some(ethtool) = ethtool else { return Vec::new() };
        let indices = links.iter().filter_map(|link| index.index(link));
        let settings = indices.filter_map(|index| ethtool.link(index, buffer));
        settings.map(|settings| ethernet_fact(settings, index)).collect()
    }

    fn list_ethernet(&mut self) -> QueryResult {
        let Self { ethtool, buffer, links, .. } = self;
        let Some(ethtool) = ethtool else { return Ok(Vec::new()) };
        let all = ethtool.links(buffer)?.into_iter();
        Ok(all.map(|settings| ethernet_fact(settings, links)).collect())
    }

    pub(super) fn get_setting(
        &self,
        setting: LinkSysctl,
        link: &str,
        family: Family,
    ) -> io::Result<Vec<Fact>> {
        let setting = link_setting::read(setting, link, family, &self.links, sysctl::read)?;
        let time_ns = now_ns();
        let observed = setting.map(codecs::link_setting);
        Ok(observed.into_iter().map(|(key, value)| Fact { key, value, time_ns }).collect())
    }

    fn list_of_link(&mut self, link: &str, class: &ClassRow) -> QueryResult {
        let Some(index) = self.links.index(link) else { return Ok(Vec::new()) };
        let ClassList::Families(question) = class.list else { return Ok(Vec::new()) };
        let mut facts = Vec::new();
        for family in FAMILIES {
            let listed = none_if_refused(self.list(&question(family, index)), NO_FAMILY);
            facts.extend(none_if_refused(listed, &[Errno::ENODEV])?);
        }
        Ok(facts)
    }

    fn list_routes(&mut self) -> QueryResult {
        let facts = self.list_routes_through(0)?;
        self.stale.record_route_count(facts.len());
        Ok(facts)
    }

    /// Lists our routes through a link, which may be gone, or through all (`link` 0), with the foreign ones that are
    /// watched.
    fn list_routes_through(&mut self, link: u32) -> QueryResult {
        let mut facts = Vec::new();
        let ours = RouteProtocol::from(OUR_PROTOCOL);
        for protocol in [ours].into_iter().chain(route::WATCHED_PROTOCOLS) {
            for family in FAMILIES {
                let question = query::routes_of(protocol, family, link);
                let listed = none_if_refused(self.list(&question), NO_FAMILY);
                // The kernel creates table main with the first route.
                facts.extend(none_if_refused(listed, &[Errno::ENOENT, Errno::ENODEV])?);
            }
        }
        Ok(facts)
    }

    /// Reads our routes through a link, and reports them as complete.
    pub(super) fn read_routes_through(&mut self, index: u32, name: &str) {
        match self.list_routes_through(index) {
            Ok(facts) => {
                let scope = Scope::On { kind: kinds::ROUTE, object: link::key(name) };
                self.mailbox.post(Event::Retrieved { scope, facts: facts.into() });
            }
            Err(error) => {
                warn!(link = name, %error, "cannot list the routes through a link; reading all routes");
                self.read_classes(&[&route::ROUTES]);
            }
        }
    }

    /// Lists the links. All names are recorded before any message is decoded, because links may refer to later
    /// ones.
    fn list_links(&mut self) -> QueryResult {
        let mut messages = Vec::new();
        let Self { queries: asker, buffer, codecs, links, stale: doubts, .. } = self;
        asker.list(&query::links(), buffer, &mut |listing| match listing {
            Listing::Begin => messages.clear(),
            Listing::Object(frame) => {
                doubts.note(&frame, links);
                messages.extend(frame.decode());
            }
        })?;
        let time_ns = now_ns();
        let there: HashSet<u32> = messages.iter().filter_map(index_of).collect();
        links.retain(|index| there.contains(&index));
        for message in &messages {
            (codecs.decode)(message, 0, time_ns, links);
        }
        let facts = messages.iter().flat_map(|message| (codecs.decode)(message, 0, time_ns, links));
        Ok(facts.map(|(key, value)| Fact { key, value, time_ns }).collect())
    }

    fn list_settings(&mut self) -> QueryResult {
        let mut facts = Vec::new();
        for family in FAMILIES {
            let start = facts.len();
            let Self { queries: asker, buffer, codecs, links, .. } = self;
            let time_ns = now_ns();
            let listed = asker.list_settings(family, buffer, &mut |listing| match listing {
                Listing::Begin => facts.truncate(start),
                Listing::Object(frame) => facts_of(&frame, *codecs, links, time_ns, &mut facts),
            });
            none_if_refused(listed.map(|()| Vec::new()), NO_FAMILY)?;
        }
        self.list_unannounced_settings(&mut facts)?;
        Ok(facts)
    }

    /// Adds the settings that only messages about links have. Announcements of links are not asked for them: one that was made
    /// before a setting was written may arrive after it.
    fn list_unannounced_settings(&mut self, facts: &mut Vec<Fact>) -> Result<(), QueryError> {
        let start = facts.len();
        let least = link_setting::least_for_all(sysctl::read);
        let Self { queries: asker, buffer, links, .. } = self;
        let time_ns = now_ns();
        asker.list(&query::links(), buffer, &mut |listing| match listing {
            Listing::Begin => facts.truncate(start),
            Listing::Object(frame) => {
                let Ok(RouteNetlinkMessage::NewLink(message)) = frame.decode() else { return };
                let Some(link) = links.name(message.header.index) else { return };
                for (sysctl, family, values) in LinkSysctl::listed(&message) {
                    let setting = LinkSetting {
                        least: sysctl.row().has_least.then_some(least).flatten(),
                        on_our_link: links.is_ours(link),
                        ..LinkSetting::new(sysctl, link.clone(), family, &values)
                    };
                    let (key, value) = codecs::link_setting(setting);
                    facts.push(Fact { key, value, time_ns });
                }
            }
        })
    }

    fn list(&mut self, question: &RouteNetlinkMessage) -> QueryResult {
        let mut facts = Vec::new();
        let Self { queries: asker, buffer, codecs, links, .. } = self;
        let time_ns = now_ns();
        asker.list(question, buffer, &mut |listing| match listing {
            Listing::Begin => facts.clear(),
            Listing::Object(frame) => facts_of(&frame, *codecs, links, time_ns, &mut facts),
        })?;
        Ok(facts)
    }

    fn get(&mut self, question: &RouteNetlinkMessage) -> QueryResult {
        let mut facts = Vec::new();
        let Self { queries: asker, buffer, codecs, links, .. } = self;
        let time_ns = now_ns();
        asker.get(question, buffer, &mut |listing| {
            if let Listing::Object(frame) = listing {
                facts_of(&frame, *codecs, links, time_ns, &mut facts);
            }
        })?;
        Ok(facts)
    }

    fn list_class(&mut self, class: &ClassRow) -> QueryResult {
        let mut facts = Vec::new();
        match class.list {
            ClassList::Links => {
                facts.extend(self.list_links()?);
                facts.extend(self.list_ethernet()?);
            }
            ClassList::Families(question) => {
                for family in FAMILIES {
                    facts.extend(none_if_refused(self.list(&question(family, 0)), NO_FAMILY)?);
                }
            }
            ClassList::Routes => facts.extend(self.list_routes()?),
            ClassList::Settings => facts.extend(self.list_settings()?),
        }
        Ok(facts)
    }

    /// Reads whole classes and reports them as complete.
    pub(super) fn read_classes(&mut self, classes: &[&ClassRow]) {
        let mut kinds: Vec<KindId> = Vec::new();
        let mut facts = Vec::new();
        for class in classes {
            match self.list_class(class) {
                Ok(more) => {
                    facts.extend(more);
                    kinds.extend(class.kinds());
                }
                Err(error) => {
                    warn!(class = %class.name, %error, "cannot list what the kernel has");
                    if matches!(error, QueryError::Interrupted) {
                        self.stale.all(); // again, after the notifications received meanwhile
                    }
                }
            }
        }
        self.mailbox.post(Event::Retrieved { scope: Scope::Kinds(kinds), facts: facts.into() });
    }

    /// Reads everything. When one class cannot be read, the report covers the others only: unread objects must not
    /// count as gone.
    pub(super) fn retrieve(&mut self, others: Vec<Fact>) {
        for _ in 0..RETRIEVE_ATTEMPTS {
            let mut facts = others.clone();
            match self.list_all(&mut facts) {
                Ok(()) => {
                    let scope = Scope::Everything;
                    return self.mailbox.post(Event::Retrieved { scope, facts: facts.into() });
                }
                Err(error) => warn!(%error, "cannot list what the kernel has; trying again"),
            }
            self.drain_notifications();
        }
        self.mailbox.post(Event::Observed(others));
        self.read_classes(&CLASSES);
    }

    fn list_all(&mut self, facts: &mut Vec<Fact>) -> Result<(), QueryError> {
        for class in CLASSES {
            facts.extend(self.list_class(class)?);
        }
        Ok(())
    }

    /// Counters of all links; empty when the kernel does not report them.
    pub(super) fn counters(&mut self) -> Vec<LinkCounters> {
        let mut counters = Vec::new();
        let Self { queries: asker, buffer, links, .. } = self;
        let listed =
            asker.list(&query::links_with_counters(), buffer, &mut |listing| match listing {
                Listing::Begin => counters.clear(),
                Listing::Object(frame) => {
                    let found = frame.decode().ok().and_then(counters_of);
                    counters.extend(
                        found.map(|it| LinkCounters { link: links.known_name(&it.link), ..it }),
                    )
                }
            });
        if let Err(error) = listed {
            warn!(%error, "cannot read the counters of the links");
        }
        counters
    }
}

/// Treats the refusals in `with` as an empty result.
fn none_if_refused(facts: QueryResult, with: &[Errno]) -> QueryResult {
    match facts {
        Err(QueryError::Refused { errno, .. }) if with.contains(&Errno::from_raw(errno)) => {
            Ok(Vec::new())
        }
        other => other,
    }
}

fn ethernet_fact(ethernet: Ethernet, links: &LinkIndex) -> Fact {
    let ethernet = Ethernet { link: links.known_name(&ethernet.link), ..ethernet };
    let key = crate::kinds::ethernet::key(&ethernet.link);
    Fact { key, value: Some(Arc::new(ethernet)), time_ns: now_ns() }
}

fn index_of(message: &RouteNetlinkMessage) -> Option<u32> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(link.header.index),
        _ => None,
    }
}

fn counters_of(message: RouteNetlinkMessage) -> Option<LinkCounters> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let mut link = None;
    let mut counters = None;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link = Some(SmolStr::from(name)),
            LinkAttribute::Stats64(stats) => counters = Some(stats),
            _ => {}
        }
    }
    Some(LinkCounters { link: link?, counters: counters? })
}
