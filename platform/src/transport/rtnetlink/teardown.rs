//! Deletion of many links at once.
//!
//! Deleting a link takes the kernel about 25 ms, nearly all of it waiting until no CPU can hold a reference any
//! more. A request that deletes a whole group waits only once. So links that are deleted one after another in a
//! batch are put into a group of our own, and the group is deleted. Links are deleted one by one when they cannot
//! be put there, when a foreign link is in the group, or when the kernel refuses to delete the group: each
//! operation has its own outcome.

use std::collections::HashSet;
use std::ops::Range;

use holdfast_scheduler::{Action, Operation};
use netlink_packet_core::NLM_F_REQUEST;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use tracing::{debug, warn};

use super::Task;
use super::frame::Frame;
use super::query::{self, Listing};
use super::submit::{Batch, Failure};
use super::window::WindowAnswers;
use crate::kinds;
use crate::kinds::codec::{Request, Requests};

/// Group of links that are about to be deleted: an unusual number that is not assigned by hand.
pub(crate) const DELETION_GROUP: u32 = 0x4846_1EA5;
/// Group of links without an assigned group.
const DEFAULT_GROUP: u32 = 0;
/// Fewest links for which a group pays off: it requires a list of all links, some microseconds for each.
const FEW: usize = 16;
/// Most links in one request: the kernel holds its lock for all of them, and sends a notification for each.
const MAX_GROUP_SIZE: usize = 1_024;

/// A link to be deleted.
struct LinkDeletion {
    /// Position of its operation in the batch.
    position: usize,
    index: u32,
    requests: Requests,
}

/// Range of operations from `start` that can be carried out together; `None` when there are too few.
pub(super) fn together(operations: &[Operation], start: usize) -> Option<Range<usize>> {
    let is_link = |operation: &&Operation| {
        operation.action == Action::Delete && operation.key.kind() == kinds::LINK
    };
    let count = operations[start..].iter().take(MAX_GROUP_SIZE).take_while(is_link).count();
    (count >= FEW).then(|| start..start + count)
}

impl Task {
    /// Deletes the links of these operations, after carrying out and reporting those before.
    pub(super) fn delete_links(&mut self, batch: &mut Batch, range: Range<usize>) {
        self.flush(batch, range.start);
        let leaving = self.encode_deletions(batch, range.clone());
        let alone = if leaving.len() >= FEW && self.has_no_foreign_member(&leaving) {
            self.delete_group(leaving)
        } else {
            leaving
        };
        self.delete_singly(batch, alone, range);
    }

    /// True when the group contains no foreign link. The kernel is asked each time, because it does not announce
    /// that a link that is down joins a group.
    fn has_no_foreign_member(&mut self, leaving: &[LinkDeletion]) -> bool {
        let ours: HashSet<u32> = leaving.iter().map(|link| link.index).collect();
        let mut foreign = false;
        let Self { queries: asker, buffer, .. } = self;
        let listed = asker.list(&query::links(), buffer, &mut |listing| match listing {
            Listing::Begin => foreign = false,
            Listing::Object(frame) => foreign |= is_foreign_member(&frame, &ours),
        });
        if foreign {
            warn!(
                group = DELETION_GROUP,
                "a foreign link is in our group: links are deleted one by one"
            );
        }
        listed.is_ok() && !foreign
    }

    /// Encodes the deletions. Requests other than a single deletion, such as for links that are not ours, are sent
    /// at once.
    fn encode_deletions(&mut self, batch: &mut Batch, range: Range<usize>) -> Vec<LinkDeletion> {
        let start = range.start;
        let mut leaving = Vec::with_capacity(range.len());
        for position in range {
            match self.encode(&batch.operations[position]) {
                Ok(requests) => match sole_deletion(&requests) {
                    Some(index) => leaving.push(LinkDeletion { position, index, requests }),
                    None => self.collect(batch, position, requests),
                },
                Err(error) => batch.failures.push(Failure { operation: position, nth: 0, error }),
            }
            if self.window.is_full() {
                self.flush(batch, start);
            }
        }
        self.flush(batch, start);
        leaving
    }

    /// Deletes the links as a group; returns those that still have to be deleted one by one.
    fn delete_group(&mut self, leaving: Vec<LinkDeletion>) -> Vec<LinkDeletion> {
        let joined = self.set_group(&leaving, DELETION_GROUP);
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::Group(DELETION_GROUP));
        self.window.push(&RouteNetlinkMessage::DelLink(message), NLM_F_REQUEST);
        let deleted = self.answered().is_some_and(|answers| answers.refused.is_empty());
        if deleted {
            let links = leaving.into_iter().zip(joined);
            return links.filter(|(_, joined)| !joined).map(|(link, _)| link).collect();
        }
        debug!("a group of links is not deleted at once");
        self.set_group(&leaving, DEFAULT_GROUP);
        leaving
    }

    /// Moves the links to a group. The result tells for each link whether it is in the group for certain.
    fn set_group(&mut self, leaving: &[LinkDeletion], group: u32) -> Vec<bool> {
        let mut joined = vec![true; leaving.len()];
        let mut first = 0;
        for (nth, link) in leaving.iter().enumerate() {
            let mut message = LinkMessage::default();
            message.header.index = link.index;
            message.attributes.push(LinkAttribute::Group(group));
            self.window.push(&RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST);
            if self.window.is_full() || nth + 1 == leaving.len() {
                match self.answered() {
                    Some(answers) => {
                        answers.refused.iter().for_each(|(at, _)| joined[first + at] = false)
                    }
                    None => joined[first..=nth].fill(false),
                }
                first = nth + 1;
            }
        }
        joined
    }

    /// Sends the window; `None` when the answers are unknown.
    fn answered(&mut self) -> Option<WindowAnswers> {
        let answers = self.window.exchange(&self.requests, &mut self.buffer).ok()?;
        if answers.lost {
            self.stale.all();
            return None;
        }
        Some(answers)
    }

    fn delete_singly(&mut self, batch: &mut Batch, alone: Vec<LinkDeletion>, range: Range<usize>) {
        for LinkDeletion { position, requests, .. } in alone {
            self.collect(batch, position, requests);
            if self.window.is_full() {
                self.flush(batch, range.start);
            }
        }
        self.flush(batch, range.end);
    }
}

fn is_foreign_member(frame: &Frame<'_>, ours: &HashSet<u32>) -> bool {
    match frame.decode() {
        Ok(RouteNetlinkMessage::NewLink(link)) => {
            link.attributes.contains(&LinkAttribute::Group(DELETION_GROUP))
                && !ours.contains(&link.header.index)
        }
        Ok(_) => false,
        Err(_) => true, // unreadable, so possibly foreign
    }
}

/// Index of the link, if its deletion is the only request.
fn sole_deletion(requests: &Requests) -> Option<u32> {
    match &requests[..] {
        [Request::Netlink { message: RouteNetlinkMessage::DelLink(link), .. }] => {
            Some(link.header.index)
        }
        _ => None,
    }
}
