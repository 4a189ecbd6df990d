//! The objects of the kernel, read once, as the configuration that would ask for them.
//!
//! Each kind says itself which entry asks for one of its objects, and which objects stay out of the configuration and why
//! ([`Adoption`]). Rules and queueing disciplines, which no kind stands for, are named.
//!
//! Absent on purpose: any change of the kernel, and anything that follows changes. The kernel may change while it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::Schema;
use holdfast_scheduler::{Key, SharedValue};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use netlink_packet_route::tc::{TcAttribute, TcMessage};

use crate::kinds::CLASSES;
use crate::kinds::decode;
use crate::kinds::links::LinkIndex;
use crate::kinds::reading::ClassList;
use crate::kinds::types::Family;
use crate::netns::{Netns, NetnsError};
use crate::objects::state::StateEntry;
use crate::objects::{Adoption, ModelError, Registry};
use crate::route_table::{RouteSelection, RouteTable, RouteTableError};
use crate::transport::rtnetlink::query::{self, Listing, QueryError, QuerySocket};
use crate::transport::rtnetlink::socket::DATAGRAM_SIZE;
use crate::values::KernelRoute;

/// Priorities of the rules that the kernel makes itself: local, main and default.
const KERNEL_RULES: [u32; 3] = [0, 32766, 32767];
/// Queueing disciplines that the kernel gives a link without being asked.
const KERNEL_QDISCS: [&str; 6] = ["noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo"];

/// The configuration that asks for what the kernel has.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Entries, each once, with the link that they are of or that they use; `None` for a route without a link.
    pub entries: Vec<SurveyedEntry>,
    /// Reasons for which objects are left out.
    pub left_out: Vec<LeftOut>,
}

/// An entry of the configuration for an object of the kernel.
#[derive(Clone, Debug)]
pub struct SurveyedEntry {
    /// Links of the object: its own, or those of its next hops.
    pub links: Vec<String>,
    /// The entry and its leaves.
    pub entry: StateEntry,
}

/// An object that stays out of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Links of the object.
    pub links: Vec<String>,
    /// The object and the reason.
    pub text: String,
}

/// Reason for which the kernel cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A system call failed.
    #[error("cannot ask the kernel for its objects")]
    Socket(#[source] io::Error),
    /// The kernel gave no list.
    #[error("cannot list the {what} of the kernel: {reason}")]
    Kernel {
        /// The requested objects.
        what: &'static str,
        /// Answer of the kernel.
        reason: String,
    },
    /// The routes cannot be listed.
    #[error(transparent)]
    Routes(#[from] RouteTableError),
    /// The model lacks a node, which would be a bug.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Survey {
    /// Reads the kernel of a namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the kernel does not answer.
    pub async fn read(netns: Netns, native: &Schema) -> Result<Self, SurveyError> {
        let registry = Registry::new(native)?;
        let netns = Arc::new(netns);
        let routes = RouteTable::new(Arc::clone(&netns)).list(RouteSelection::All).await?;
        let read = netns.run("survey", Objects::read).await.map_err(SurveyError::Socket)?;
        let objects = read??;
        let mut survey = Self::default();
        for (key, value) in &objects.values {
            let link: Vec<String> =
                crate::kinds::reading::first_text(key).iter().map(ToString::to_string).collect();
            survey.add(link, registry.adoption(key, &**value));
        }
        // Of each prefix: the number of its next hops, and the metrics that they have.
        let mut adopted: BTreeMap<_, (usize, BTreeSet<u32>)> = BTreeMap::new();
        for route in &routes.routes {
            let links = route.hops.iter().filter_map(|hop| hop.link.as_ref());
            let links = links.map(ToString::to_string).collect();
            let (first, metrics) = adopted.entry(route.prefix).or_default();
            let mut adoption = registry.route_adoption(route, *first);
            if let Adoption::Entry(entry) = &adoption {
                let configured = Some(route.metric).filter(|metric| *metric != 0);
                let metric = KernelRoute::kernel_metric(route.prefix, configured);
                if metrics.insert(metric) {
                    *first += entry.groups.len();
                } else {
                    let prefix = route.prefix;
                    let reason = format!("another route to it would have metric {metric}, too");
                    adoption = Adoption::LeftOut(format!("route {prefix}: {reason}"));
                }
            }
            survey.add(links, Some(adoption));
        }
        if routes.omitted > 0 {
            survey.leave_out(Vec::new(), format!("{} more routes: too many", routes.omitted));
        }
        for (link, text) in objects.unmodelled {
            survey.leave_out(link.into_iter().collect(), text);
        }
        Ok(survey)
    }

    fn add(&mut self, links: Vec<String>, adoption: Option<Adoption>) {
        match adoption {
            None => {}
            Some(Adoption::Entry(entry)) => self.entries.push(SurveyedEntry { links, entry }),
            Some(Adoption::LeftOut(text)) => self.leave_out(links, text),
        }
    }

    fn leave_out(&mut self, links: Vec<String>, text: String) {
        self.left_out.push(LeftOut { links, text });
    }
}

/// Objects of the namespace of the calling thread.
#[derive(Default)]
struct Objects {
    values: BTreeMap<Key, SharedValue>,
    /// Objects that no kind stands for, with their link where they have one.
    unmodelled: Vec<(Option<String>, String)>,
}

impl Objects {
    fn read() -> Result<Self, SurveyError> {
        let mut queries = QuerySocket::new().map_err(SurveyError::Socket)?;
        let mut links = LinkIndex::new();
        let mut objects = Self::default();
        for class in CLASSES {
            match class.list {
                // Links may refer to later ones.
                ClassList::Links => {
                    for _ in 0..2 {
                        objects.list(&mut queries, &query::links(), class.name, &mut links)?;
                    }
                }
                ClassList::Families(question) => {
                    for family in [Family::V4, Family::V6] {
                        let question = question(family, 0);
                        let listed = objects.list(&mut queries, &question, class.name, &mut links);
                        // The kernel may have no IPv6.
                        if family == Family::V4 {
                            listed?;
                        }
                    }
                }
                // Settings are attributes of links, and routes are listed with those of all programs.
                ClassList::Settings | ClassList::Routes => {}
            }
        }
        objects.note_rules(&mut queries);
        objects.note_qdiscs(&mut queries, &links);
        Ok(objects)
    }

    fn list(
        &mut self,
        queries: &mut QuerySocket,
        question: &RouteNetlinkMessage,
        what: &'static str,
        links: &mut LinkIndex,
    ) -> Result<(), SurveyError> {
        let mut found = Vec::new();
        each(queries, question, &mut |message| found.push(message))
            .map_err(|error| SurveyError::Kernel { what, reason: error.to_string() })?;
        for message in &found {
            for (key, value) in decode(message, 0, now_ns(), links) {
                self.values.extend(value.map(|value| (key, value)));
            }
        }
        Ok(())
    }

    /// Names the rules of policy routing. A kernel without them has none.
    fn note_rules(&mut self, queries: &mut QuerySocket) {
        let mut note = |message: RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewRule(rule) = message else { return };
            let priority = rule.attributes.iter().find_map(|attribute| match attribute {
                RuleAttribute::Priority(priority) => Some(*priority),
                _ => None,
            });
            let priority = priority.unwrap_or(0);
            if !KERNEL_RULES.contains(&priority) {
                let text = format!("rule {priority}: rules of policy routing are not modelled");
                self.unmodelled.push((None, text));
            }
        };
        for family in [Family::V4, Family::V6] {
            let mut question = RuleMessage::default();
            question.header.family = crate::kinds::types::address_family(family);
            let _has_none = each(queries, &RouteNetlinkMessage::GetRule(question), &mut note);
        }
    }

    /// Names the queueing disciplines that somebody has set. A kernel without them has none.
    fn note_qdiscs(&mut self, queries: &mut QuerySocket, links: &LinkIndex) {
        let mut note = |message: RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = message else { return };
            let kind = qdisc.attributes.iter().find_map(|attribute| match attribute {
                TcAttribute::Kind(kind) => Some(kind.clone()),
                _ => None,
            });
            let link = u32::try_from(qdisc.header.index).ok().and_then(|index| links.name(index));
            let Some((kind, link)) = kind.zip(link) else { return };
            if !KERNEL_QDISCS.contains(&kind.as_str()) {
                let text = format!("qdisc {kind} of {link}: queueing disciplines are not modelled");
                self.unmodelled.push((Some(link.to_string()), text));
            }
        };
        let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let _has_none = each(queries, &question, &mut note);
    }
}

/// Lists objects, and gives each of a complete list.
fn each(
    queries: &mut QuerySocket,
    question: &RouteNetlinkMessage,
    take: &mut dyn FnMut(RouteNetlinkMessage),
) -> Result<(), QueryError> {
    let mut found = Vec::new();
    let mut collect = |listing: Listing<'_>| match listing {
        Listing::Begin => found.clear(),
        Listing::Object(frame) => found.extend(frame.decode()),
    };
    queries.list(question, &mut vec![0; DATAGRAM_SIZE], &mut collect)?;
    found.into_iter().for_each(take);
    Ok(())
}
