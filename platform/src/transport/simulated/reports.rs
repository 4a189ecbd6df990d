//! Reports of the simulated kernel: what changed, what was dropped without notification, and everything.

use std::sync::Arc;

use holdfast_scheduler::{Fact, Key, Scope, SharedValue};
use netlink_packet_route::RouteNetlinkMessage;

use super::{Event, State};
use crate::kinds::{self, link_setting, system};
use crate::values::{Content, Hostname, Link, LinkSysctl, TextFile};

impl State {
    /// Posts the notifications of the model as facts.
    pub(super) fn post_notifications(&mut self) {
        let notes = std::mem::take(&mut self.machine.notes);
        let mut states = Vec::new();
        for (message, flags) in notes {
            self.time_ns += 1;
            states.extend(kinds::decode(&message, flags, self.time_ns, &mut self.links));
        }
        states.extend(self.sysctls_of(&states));
        let facts = self.facts(states);
        self.post(Event::Observed(facts));
        let links = std::mem::take(&mut self.machine.links_without_routes);
        if std::mem::take(&mut self.machine.routes_dropped_silently) {
            let routes = self.machine.list_routes().collect();
            self.post_routes(Scope::Kinds(vec![kinds::ROUTE]), routes);
            return;
        }
        for index in links {
            let Some(name) = self.links.name(index) else { continue };
            let object = kinds::link::key(name);
            let routes = self.machine.list_routes_through(index).collect();
            self.post_routes(Scope::On { kind: kinds::ROUTE, object }, routes);
        }
    }

    fn post_routes(&mut self, scope: Scope, routes: Vec<RouteNetlinkMessage>) {
        let mut states = Vec::new();
        for message in routes {
            states.extend(kinds::decode(&message, 0, self.time_ns, &mut self.links));
        }
        let facts = self.facts(states);
        self.post(Event::Retrieved { scope, facts: facts.into() });
    }

    /// Sysctls of the links that were announced.
    fn sysctls_of(&self, states: &[(Key, Option<SharedValue>)]) -> Vec<(Key, Option<SharedValue>)> {
        let links =
            states.iter().filter_map(|(_, value)| value.as_ref()?.as_any().downcast_ref::<Link>());
        links.flat_map(|link| self.settings(&link.name)).collect()
    }

    pub(super) fn settings(&self, link: &str) -> Vec<(Key, Option<SharedValue>)> {
        let part = |(sysctl, family)| {
            let file = |path: &str| Ok(self.machine.sysctls.get(path).cloned());
            let value = link_setting::read(sysctl, link, family, &self.links, file).ok().flatten();
            let key = link_setting::key(sysctl, link, family);
            (key, value.map(|value| Arc::new(value) as SharedValue))
        };
        LinkSysctl::of_families().map(part).collect()
    }

    /// All objects, decoded.
    pub(super) fn everything(&mut self) -> Vec<(Key, SharedValue)> {
        let messages = self.machine.list();
        // Two passes, so that a link can refer to another in any order.
        for message in &messages {
            kinds::decode(message, 0, self.time_ns, &mut self.links);
        }
        let mut states = Vec::new();
        for message in &messages {
            states.extend(kinds::decode(message, 0, self.time_ns, &mut self.links));
        }
        let own_names = self.machine.links.values().map(|link| link.name.as_str().into());
        let names: Vec<_> = own_names.map(|own_name| self.links.known_name(&own_name)).collect();
        states.extend(names.iter().flat_map(|name| self.settings(name)));
        let cables = self.machine.links.values().filter_map(|link| link.ethernet.clone());
        states.extend(
            cables.map(|it| (kinds::ethernet::key(&it.link), Some(Arc::new(it) as SharedValue))),
        );
        let hostname = Hostname { name: self.machine.hostname.clone() };
        states.push((system::hostname_key(), Some(Arc::new(hostname))));
        for (path, _) in system::FILES {
            let content = self.machine.files.get(path).cloned().unwrap_or(Content::Absent);
            let content = match content {
                Content::OwnHost { domain, .. } => {
                    Content::OwnHost { domain, host: Some(self.machine.hostname.clone()) }
                }
                content => content,
            };
            let file = TextFile { path: path.into(), content };
            states.push((system::file_key(path), Some(Arc::new(file))));
        }
        let states = states.into_iter().filter_map(|(key, value)| Some((key, value?)));
        states.chain(self.machine.credentials.everything()).collect()
    }

    pub(super) fn facts(&mut self, states: Vec<(Key, Option<SharedValue>)>) -> Vec<Fact> {
        self.time_ns += 1;
        let time_ns = self.time_ns;
        states.into_iter().map(|(key, value)| Fact { key, value, time_ns }).collect()
    }

    pub(super) fn post(&mut self, event: Event) {
        if let Some(mailbox) = &self.mailbox {
            mailbox.post(event);
        }
    }
}
