//! How objects are read: the classes that the kernel announces and lists, and the query for one object.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use holdfast_scheduler::{Key, KindId, ObjectValue, Segment, SharedValue};
use ipnet::IpNet;
use netlink_packet_route::RouteNetlinkMessage;
use smol_str::SmolStr;

use super::codec::Observation;
use super::link_setting::LinkSysctl;
use super::links::LinkIndex;
use super::types::Family;
use super::{KINDS, row_of};

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_NEWNETCONF: u16 = 80;

/// Objects that the kernel announces and lists together. Each class is known by its name.
#[derive(Debug)]
pub struct ClassRow {
    /// Name, for the log.
    pub name: &'static str,
    /// Groups that announce its objects (`RTNLGRP_*`).
    pub groups: &'static [u32],
    /// Messages about its objects (`RTM_*`).
    pub messages: &'static [u16],
    /// True for links, and for objects that the kernel announces with the index of their link.
    pub is_on_links: bool,
    /// How its objects are listed.
    pub list: ClassList,
    /// Decodes a message about its objects; `flags` and time as for [`decode`](super::decode).
    pub decode: fn(&RouteNetlinkMessage, u16, u64, &mut LinkIndex) -> Vec<Observation>,
}

/// How the objects of a class are listed.
#[derive(Clone, Copy, Debug)]
pub enum ClassList {
    /// By one question for each family, about one link or all (0).
    Families(fn(Family, u32) -> RouteNetlinkMessage),
    /// Links: twice, because they may refer to later ones.
    Links,
    /// Settings of links (`RTM_GETNETCONF`).
    Settings,
    /// Routes: ours, and the foreign ones that are watched.
    Routes,
}

impl ClassRow {
    /// Kinds of values that a list of this class covers completely.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = KindId> {
        let rows = KINDS.iter();
        rows.filter(move |row| matches!(&row.read, Read::Kernel { class, .. } if *class == self))
            .map(|row| row.id)
    }
}

impl PartialEq for ClassRow {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ClassRow {}

impl Hash for ClassRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// How the values of a kind are read back.
#[derive(Clone, Copy, Debug)]
pub enum Read {
    /// Never: they are not observed.
    Never,
    /// By rtnetlink and its neighbours.
    Kernel {
        /// Class that they are listed with.
        class: &'static ClassRow,
        /// The query for one of them.
        one: fn(&Key) -> Option<Query>,
    },
    /// By the transport of files and host name.
    Files,
}

/// Way to read an object of the kernel back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Query {
    /// `RTM_GETLINK` by name.
    Link(SmolStr),
    /// The objects of a class that are on a link.
    OnLink(&'static ClassRow, SmolStr),
    /// A route of ours to this destination, with any metric.
    Route(IpNet),
    /// Speed and duplex of a link, by ethtool.
    Ethernet(SmolStr),
    /// The sysctl of a setting of a link.
    Setting(LinkSysctl, SmolStr, Family),
}

impl Query {
    /// The query for the object of this key; `None` where the kernel has no such object.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        match row_of(key.kind())?.read {
            Read::Kernel { one, .. } => one(key),
            Read::Never | Read::Files => None,
        }
    }
}

/// The text that a key begins with, such as the name of a link.
pub fn first_text(key: &Key) -> Option<SmolStr> {
    match key.segments().next() {
        Some(Segment::Str(text)) => Some(text.into()),
        _ => None,
    }
}

/// The observation of one object; none where the message describes none.
pub(super) fn observation<V: ObjectValue>(
    value: Option<V>,
    key: impl Fn(&V) -> Key,
    is_present: bool,
) -> Vec<Observation> {
    let value = value.into_iter();
    value.map(|it| (key(&it), is_present.then(|| Arc::new(it) as SharedValue))).collect()
}
