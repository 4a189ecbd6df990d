//! Announcements of the kernel become facts.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_scheduler::Fact;
use netlink_packet_route::AddressFamily;
use smol_str::SmolStr;
use tracing::{debug, error, warn};

use super::frame::{Frame, u32_at};
use super::listener::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH,
    RTM_NEWNETCONF, RTM_NEWROUTE,
};
use super::{Event, Task, netconf};
use crate::links::LinkIndex;
use crate::transport::codecs::{Class, Codecs};
use crate::transport::now_ns;
use crate::values::OperState;

/// `struct ifinfomsg`: offsets of index and flags.
const LINK_INDEX: usize = 4;
const LINK_FLAGS: usize = 8;
/// `IFF_UP`: administratively up.
const UP: u32 = 1;

/// What is known no longer for certain and has to be read anew.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    everything: bool,
    routes: bool,
    /// Links that are administratively up, by index: it takes two messages to see one go down.
    up: HashMap<u32, bool>,
    /// No route of ours was seen since a list of them came out empty: nothing can vanish.
    no_routes: bool,
}

impl Doubts {
    pub(super) fn any(&self) -> bool {
        self.everything || self.routes
    }

    pub(super) fn all(&mut self) {
        self.everything = true;
    }

    /// A list of all our routes came out with so many.
    pub(super) fn routes_listed(&mut self, count: usize) {
        self.no_routes = count == 0;
    }

    /// The kernel drops IPv4 gateway routes without a word when their link goes down or away, or
    /// the address that made the gateway reachable goes.
    pub(super) fn note(&mut self, frame: &Frame<'_>) {
        match frame.kind {
            RTM_NEWROUTE => self.no_routes = false,
            RTM_NEWLINK if !is_bridge_port(frame) => {
                let (index, up) = link_state(frame);
                let was_up = self.up.insert(index, up).unwrap_or(false);
                self.routes |= was_up && !up && !self.no_routes;
            }
            RTM_DELLINK if !is_bridge_port(frame) => {
                self.up.remove(&link_state(frame).0);
                self.routes |= !self.no_routes;
            }
            RTM_DELADDR if frame.payload.first() == Some(&AddressFamily::Inet.into()) => {
                self.routes |= !self.no_routes;
            }
            _ => {}
        }
    }
}

impl Task {
    /// Takes in all that was announced, and posts it as facts.
    pub(super) fn hear(&mut self) {
        loop {
            let time_ns = now_ns();
            let (codecs, links, doubts) = (self.codecs, &mut self.links, &mut self.doubts);
            let (mut facts, mut newcomers) = (Vec::new(), Vec::new());
            // Links whose carrier may have come or gone, and with it their speed.
            let mut changed = Vec::new();
            let heard = self.listener.hear(&mut self.buffer, &mut |frame| {
                doubts.note(&frame);
                let before = (name_of(&frame, links), oper_of(&frame, links));
                facts_of(&frame, codecs, links, time_ns, &mut facts);
                let name = name_of(&frame, links);
                if name != before.0 || oper_of(&frame, links) != before.1 {
                    changed.extend(name.clone());
                }
                newcomers.extend(name.filter(|name| Some(name) != before.0.as_ref()));
            });
            facts.extend(self.forwarding_of(&newcomers));
            changed.sort();
            changed.dedup();
            facts.extend(self.ethernet_of(&changed));
            self.mailbox.post(Event::Observed(facts));
            match heard {
                Ok(heard) => {
                    if heard.overrun {
                        warn!("announcements of the kernel were lost; reading everything anew");
                        self.doubts.all();
                    }
                    if !heard.more {
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

    /// Reads anew what is in doubt, all of a class, so that what vanished is noticed, too.
    pub(super) fn clear_doubts(&mut self) {
        if std::mem::take(&mut self.doubts.everything) {
            self.doubts.routes = false;
            self.read_classes(&Class::ALL);
        } else if std::mem::take(&mut self.doubts.routes) {
            self.read_classes(&[Class::Routes]);
        }
    }
}

/// The name by which the link of an `RTM_NEWLINK` is known.
///
/// The forwarding of a new or renamed link is announced before its name is, so it is read.
fn name_of(frame: &Frame<'_>, links: &LinkIndex) -> Option<SmolStr> {
    let is_link = frame.kind == RTM_NEWLINK && !is_bridge_port(frame);
    is_link.then(|| links.name(link_state(frame).0).cloned()).flatten()
}

/// The operational state of the link of an `RTM_NEWLINK`, as it is known.
fn oper_of(frame: &Frame<'_>, links: &LinkIndex) -> Option<OperState> {
    let is_link = frame.kind == RTM_NEWLINK && !is_bridge_port(frame);
    is_link.then(|| links.oper(link_state(frame).0)).flatten()
}

/// Appends what a message tells. One that cannot be decoded tells nothing; a panic while decoding
/// it is logged.
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
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWNEIGH | RTM_DELNEIGH if is_bridge_port(frame) => return,
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR | RTM_NEWNEIGH | RTM_DELNEIGH => {}
        RTM_NEWROUTE | RTM_DELROUTE => {}
        RTM_NEWNETCONF => return facts.extend(netconf::fact(frame, links, time_ns)),
        _ => return,
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

/// Messages about a port of a bridge, or an entry of its address table, not about the link.
fn is_bridge_port(frame: &Frame<'_>) -> bool {
    frame.payload.first() == Some(&u8::from(AddressFamily::Bridge))
}

/// Index, and whether it is administratively up.
fn link_state(frame: &Frame<'_>) -> (u32, bool) {
    let at = |offset| u32_at(frame.payload, offset).unwrap_or(0);
    (at(LINK_INDEX), at(LINK_FLAGS) & UP != 0)
}
