//! Names and indices of the links of one namespace, as an encoder or decoder sees them.

use std::collections::HashMap;

use smol_str::SmolStr;

use super::bond_members::BondIndex;
use super::link::{Link, LinkMtu, OperState};
use super::mtu_limits::MtuLimits;

/// Indices for links that this agent creates start here, far above those that the kernel assigns by counting from
/// 1.
pub const FIRST_OUR_INDEX: u32 = 1_000_000;

/// Highest index the kernel accepts (`ifi_index` is signed).
const LAST_INDEX: u32 = i32::MAX as u32;

/// The links of one namespace: those that the kernel showed, and reservations for requests in progress.
///
/// A transport owns one, reports all messages to it ([`Self::observe`], [`Self::forget`]) and lends it to the
/// codecs. Encoding the creation of a link reserves its index, so that later operations of the same batch can
/// refer to it before the kernel has answered.
#[derive(Clone, Debug, Default)]
pub struct LinkIndex {
    by_name: HashMap<SmolStr, u32>,
    by_index: HashMap<u32, Entry>,
    /// Links that are known by another name than the kernel's, by that of the kernel. It may have some that are gone.
    by_own_name: HashMap<SmolStr, u32>,
    last_reserved: u32,
    mtus: MtuLimits,
    bonds: BondIndex,
    /// A link that the kernel had shown was dropped before its `RTM_DELLINK` arrived.
    dropped_early: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    name: SmolStr,
    /// Name of the link in the kernel, where it is known by another one.
    own_name: Option<SmolStr>,
    /// The link carries our mark, or will when its creation is complete.
    ours: bool,
    /// A request has set the mark, and its notification may still be outstanding.
    marked: bool,
    /// The kernel has shown the mark.
    mark_seen: bool,
    oper: OperState,
    /// Administratively up.
    is_up: bool,
    /// Administratively up when the requests in progress have been carried out.
    will_be_up: bool,
    /// Kind of the master that a request has the link join, until the kernel shows a master. The kernel announces what the
    /// master gives to the link before it announces the master.
    joining: Option<SmolStr>,
    /// True when the kernel has IPv6 on the link, and it is not switched off.
    ipv6: Option<bool>,
    last_change_ns: u64,
}

impl Entry {
    /// True when the kernel has reported the link; false for a reservation.
    fn was_reported(&self) -> bool {
        self.last_change_ns != 0
    }
}

impl LinkIndex {
    /// No links.
    pub fn new() -> Self {
        Self::default()
    }

    /// Index of the link with this name.
    pub fn index(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Name of the link with this index.
    pub fn name(&self, index: u32) -> Option<&SmolStr> {
        self.by_index.get(&index).map(|entry| &entry.name)
    }

    /// Name in the kernel of the link that is known by this name.
    pub(crate) fn own_name(&self, name: &str) -> SmolStr {
        let entry = self.index(name).and_then(|index| self.by_index.get(&index));
        entry.and_then(|entry| entry.own_name.clone()).unwrap_or_else(|| name.into())
    }

    /// Name by which a link is known that has this name in the kernel.
    pub(crate) fn known_name(&self, own_name: &SmolStr) -> SmolStr {
        let entry = self.by_own_name.get(own_name).and_then(|index| self.by_index.get(index));
        let entry = entry.filter(|entry| entry.own_name.as_ref() == Some(own_name));
        entry.map_or(own_name, |entry| &entry.name).clone()
    }

    /// Records the name that a request gives to a link in the kernel.
    pub(crate) fn expect_own_name(&mut self, name: &str, own_name: SmolStr) {
        let Some(index) = self.index(name).filter(|_| own_name != name) else { return };
        if let Some(entry) = self.by_index.get_mut(&index) {
            entry.own_name = Some(own_name.clone());
            self.by_own_name.insert(own_name, index);
        }
    }

    /// Name by which a VLAN is known: that of our mark, or the one that it had before with the same name in the kernel. The kernel
    /// announces a new link before its mark, and others may remove the mark.
    pub(crate) fn name_of_vlan(
        &self,
        index: u32,
        own_name: &SmolStr,
        mark: Option<SmolStr>,
    ) -> SmolStr {
        let before = self.by_index.get(&index);
        let before = before.filter(|entry| entry.own_name.as_ref() == Some(own_name));
        mark.or_else(|| Some(before?.name.clone())).unwrap_or_else(|| own_name.clone())
    }

    /// True for a link whose name is the one by which another link is known that has another name in the kernel.
    pub(crate) fn is_hidden(&self, index: u32, name: &str) -> bool {
        let entry = self.index(name).filter(|known| *known != index);
        let entry = entry.and_then(|known| self.by_index.get(&known));
        let is_vlan_here = self.by_index.get(&index).is_some_and(|it| it.name == name);
        !is_vlan_here && entry.is_some_and(|entry| entry.own_name.is_some())
    }

    /// Last seen operational state of the link with this index.
    pub(crate) fn oper(&self, index: u32) -> Option<OperState> {
        self.by_index.get(&index).map(|entry| entry.oper)
    }

    /// True when the link with this index was last seen administratively up.
    pub(crate) fn is_up(&self, index: u32) -> bool {
        self.by_index.get(&index).is_some_and(|entry| entry.is_up)
    }

    /// True when the link with this index is administratively up once the requests in progress have been carried out.
    pub(crate) fn will_be_up(&self, index: u32) -> bool {
        self.by_index.get(&index).is_some_and(|entry| entry.will_be_up)
    }

    /// Records that a request puts the link of this name up or down.
    pub(crate) fn expect_up(&mut self, name: &str, is_up: bool) {
        if let Some(entry) = self.index(name).and_then(|index| self.by_index.get_mut(&index)) {
            entry.will_be_up = is_up;
        }
    }

    /// Records that a request has a link join a master of this kind, or leave its master.
    pub(crate) fn expect_master(&mut self, index: u32, kind: Option<SmolStr>) {
        if let Some(entry) = self.by_index.get_mut(&index) {
            entry.joining = kind;
        }
    }

    /// True when the link with this index was last seen with IPv6; `None` for a link that the kernel has not shown yet.
    pub(crate) fn has_ipv6(&self, index: u32) -> Option<bool> {
        let entry = self.by_index.get(&index).filter(|entry| entry.was_reported())?;
        Some(entry.ipv6 == Some(true))
    }

    /// MTU of the link of this name.
    pub(crate) fn mtu(&self, name: &str) -> Option<u32> {
        self.mtus.mtu(name)
    }

    /// True for a link whose MTU follows others; `None` for one that the kernel has not shown.
    pub(crate) fn follows_mtu(&self, name: &str) -> Option<bool> {
        self.mtus.is_follower(self.index(name)?)
    }

    /// MTU that the other links allow to a link.
    pub(crate) fn mtu_limit(&self, part: &LinkMtu) -> Option<u32> {
        self.mtus.limit(part)
    }

    /// Records the MTU of an observed link. Returns its own part, and those of the links that follow it where their limit
    /// changes by it.
    pub(crate) fn observe_mtu(&mut self, link: &Link) -> Vec<LinkMtu> {
        let index = link.facts.as_ref().map(|facts| facts.index);
        index.map_or_else(Vec::new, |index| self.mtus.observe(index, link))
    }

    /// Records that a link is gone. Returns the parts of the links that followed its MTU.
    pub(crate) fn forget_mtu(&mut self, index: u32) -> Vec<LinkMtu> {
        self.mtus.forget(index)
    }

    /// The bonds and their members.
    pub(crate) fn bonds(&mut self) -> &mut BondIndex {
        &mut self.bonds
    }

    /// True when a link of this name exists and carries our mark.
    pub fn is_ours(&self, name: &str) -> bool {
        self.index(name).is_some_and(|index| self.by_index[&index].ours)
    }

    /// Records a link that the kernel showed, and completes its facts: the kernel does not report when the
    /// operational state last changed.
    ///
    /// A link that carried our mark stays ours when another program removes the mark, because no other link gets
    /// its index.
    ///
    /// A renamed link is known by its new name afterwards; the old name, whose key is gone, is returned.
    pub fn observe(&mut self, link: &mut Link, time_ns: u64) -> Option<SmolStr> {
        let own_name = Some(link.own_name()).filter(|own_name| *own_name != link.name);
        let facts = link.facts.as_mut()?;
        let earlier = self.by_index.get(&facts.index);
        facts.last_change_ns = match earlier {
            Some(entry) if entry.oper == facts.oper && entry.last_change_ns != 0 => {
                entry.last_change_ns
            }
            _ => time_ns,
        };
        let renamed = earlier.map(|entry| entry.name.clone()).filter(|name| *name != link.name);
        let marked = earlier.is_some_and(|entry| entry.marked && entry.name == link.name);
        let joining = earlier.and_then(|entry| entry.joining.clone());
        let joining = joining.filter(|_| link.master.is_none());
        if joining.is_some() {
            link.master_kind.clone_from(&joining);
        }
        let mark_seen = facts.ours || earlier.is_some_and(|entry| entry.mark_seen);
        facts.mark_lost = mark_seen && !facts.ours;
        facts.ours = mark_seen;
        let entry = Entry {
            name: link.name.clone(),
            own_name,
            // The kernel announces a new link before its mark.
            ours: facts.ours || marked,
            marked,
            mark_seen,
            oper: facts.oper,
            is_up: link.enabled,
            will_be_up: link.enabled,
            joining,
            ipv6: link.ipv6_enabled,
            last_change_ns: facts.last_change_ns,
        };
        let index = facts.index;
        if let Some(old) = &renamed {
            self.by_name.remove(old);
        }
        self.insert(index, entry);
        renamed
    }

    /// Records that a link is gone; returns its name.
    pub fn forget(&mut self, index: u32) -> Option<SmolStr> {
        let entry = self.by_index.remove(&index)?;
        if self.by_name.get(&entry.name) == Some(&index) {
            self.by_name.remove(&entry.name);
        }
        Some(entry.name)
    }

    /// Removes the links that the predicate rejects, because a complete list did not contain them.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let Self { by_index, mtus, bonds, dropped_early, .. } = self;
        by_index.retain(|index, entry| {
            let stays = keep(*index);
            *dropped_early |= !stays && entry.was_reported();
            if !stays {
                mtus.forget(*index);
                bonds.forget(*index);
            }
            stays
        });
        self.by_name.retain(|_, index| keep(*index));
        self.by_own_name.retain(|_, index| keep(*index));
    }

    /// Removes a link by name, when its deletion was sent or its creation failed.
    pub fn forget_name(&mut self, name: &str) {
        if let Some(index) = self.by_name.remove(name) {
            self.by_index.remove(&index);
        }
    }

    /// Removes a link by name, when the kernel answered that there is none.
    pub(crate) fn forget_early(&mut self, name: &str) {
        if let Some(index) = self.by_name.remove(name) {
            self.drop_early(index);
        }
    }

    /// True when a link was dropped before its `RTM_DELLINK` arrived, since the last call. Messages about objects
    /// on that link cannot be decoded any more, so the end of these objects may pass unnoticed.
    pub(crate) fn take_dropped_early(&mut self) -> bool {
        std::mem::take(&mut self.dropped_early)
    }

    fn drop_early(&mut self, index: u32) {
        let dropped = self.by_index.remove(&index);
        self.dropped_early |= dropped.is_some_and(|entry| entry.was_reported());
    }

    /// Reserves an index for a link that is about to be created.
    ///
    /// `ours` says that the request also sets our mark; the far end of a pair gets none unless it is configured.
    pub fn reserve(&mut self, name: &str, ours: bool) -> u32 {
        let mut index = self.last_reserved.clamp(FIRST_OUR_INDEX, LAST_INDEX - 1) + 1;
        while self.by_index.contains_key(&index) {
            index = if index >= LAST_INDEX { FIRST_OUR_INDEX } else { index + 1 };
        }
        self.last_reserved = index;
        let oper = OperState::default();
        let entry = Entry {
            name: name.into(),
            own_name: None,
            ours,
            marked: ours,
            mark_seen: false,
            oper,
            is_up: false,
            will_be_up: false,
            joining: None,
            ipv6: None,
            last_change_ns: 0,
        };
        self.insert(index, entry);
        index
    }

    /// Records that our mark is being set on a link.
    pub fn mark(&mut self, name: &str) {
        if let Some(entry) = self.index(name).and_then(|index| self.by_index.get_mut(&index)) {
            (entry.ours, entry.marked) = (true, true);
        }
    }

    fn insert(&mut self, index: u32, entry: Entry) {
        if let Some(stale) = self.by_name.insert(entry.name.clone(), index)
            && stale != index
        {
            self.drop_early(stale);
        }
        if let Some(own_name) = &entry.own_name {
            self.by_own_name.insert(own_name.clone(), index);
        }
        self.by_index.insert(index, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{LinkFacts, LinkKind, MadeLink, VLAN};

    fn link_with_state(name: &str, index: u32, oper: OperState) -> Link {
        let facts = LinkFacts { index, oper, ..LinkFacts::default() };
        Link { facts: Some(facts), ..Link::new(name, LinkKind::Physical) }
    }

    // proves kv.H9
    #[test]
    fn the_link_index_follows_creation_renaming_and_deletion() {
        let mut links = LinkIndex::new();
        let check = |links: &LinkIndex, names: &[&str], indices: &[u32]| {
            let names: Vec<_> = names.iter().map(|name| links.index(name)).collect();
            let indices: Vec<_> =
                indices.iter().map(|&index| links.name(index).map(SmolStr::to_string)).collect();
            (names, indices)
        };
        let text = |name: &str| Some(name.to_owned());
        links.observe(&mut link_with_state("eth0", 2, OperState::Up), 1);
        links.observe(&mut link_with_state("eth1", 3, OperState::Up), 1);
        assert_eq!(
            check(&links, &["eth0", "eth1"], &[2, 3]),
            (vec![Some(2), Some(3)], vec![text("eth0"), text("eth1")])
        );
        // When another link has the name, the old one is gone, even without a message.
        links.observe(&mut link_with_state("eth0", 7, OperState::Up), 2);
        assert_eq!(check(&links, &["eth0"], &[2, 7]), (vec![Some(7)], vec![None, text("eth0")]));
        // Two links swap their names, one after the other.
        links.observe(&mut link_with_state("tmp", 7, OperState::Up), 3);
        links.observe(&mut link_with_state("eth0", 3, OperState::Up), 3);
        links.observe(&mut link_with_state("eth1", 7, OperState::Up), 3);
        assert_eq!(
            check(&links, &["eth0", "eth1", "tmp"], &[3, 7]),
            (vec![Some(3), Some(7), None], vec![text("eth0"), text("eth1")])
        );
        assert_eq!(links.forget(7).as_deref(), Some("eth1"));
        assert_eq!(links.forget(7), None);
        links.retain(|index| index != 3);
        assert_eq!(check(&links, &["eth0", "eth1"], &[3, 7]), (vec![None, None], vec![None, None]));
    }

    /// A VLAN with a name of its own in the kernel, as the kernel shows it.
    fn named_vlan(name: &str, index: u32, own_name: &str) -> Link {
        let made = MadeLink::new(&VLAN).with("link-name", own_name);
        Link { kind: made.into(), ..link_with_state(name, index, OperState::Up) }
    }

    #[test]
    fn a_vlan_is_known_by_another_name_than_that_of_the_kernel() {
        let mut links = LinkIndex::new();
        let mark = |name: &str| Some(SmolStr::new(name));
        let mgmt = SmolStr::new("mgmt");
        // Before the mark of a new link is seen, its reserved index tells.
        let index = links.reserve("eth0.5", true);
        links.expect_own_name("eth0.5", mgmt.clone());
        assert_eq!(links.name_of_vlan(index, &mgmt, None), "eth0.5");
        assert_eq!(links.name_of_vlan(index + 1, &mgmt, None), "mgmt", "another link");
        links.observe(&mut named_vlan("eth0.5", index, "mgmt"), 1);
        assert_eq!(
            (links.own_name("eth0.5"), links.known_name(&mgmt)),
            (mgmt.clone(), "eth0.5".into())
        );
        assert_eq!(
            (links.own_name("eth1"), links.known_name(&"eth1".into())),
            ("eth1".into(), "eth1".into())
        );
        // Others rename the link: the mark tells.
        let other = SmolStr::new("other");
        assert_eq!(links.name_of_vlan(index, &other, None), "other");
        assert_eq!(links.name_of_vlan(index, &other, mark("eth0.5")), "eth0.5");
        // A link of others with the name by which the VLAN is known has none.
        assert!(links.is_hidden(7, "eth0.5"));
        assert!(!links.is_hidden(index, "eth0.5") && !links.is_hidden(7, "eth0.6"));
        links.observe(&mut named_vlan("eth0.5", index, "other"), 2);
        assert_eq!((links.known_name(&other), links.known_name(&mgmt)), ("eth0.5".into(), mgmt));
        links.forget(index);
        assert_eq!((links.known_name(&other), links.own_name("eth0.5")), (other, "eth0.5".into()));
        assert!(!links.is_hidden(7, "eth0.5"));
        // A link whose name the kernel shares with us is in nobody's way.
        links.observe(&mut link_with_state("eth0.6", 8, OperState::Up), 3);
        assert!(!links.is_hidden(9, "eth0.6"));
    }

    #[test]
    fn a_link_dropped_before_its_deletion_was_announced_is_reported_once() {
        let mut links = LinkIndex::new();
        let mut drops = |change: &dyn Fn(&mut LinkIndex)| {
            change(&mut links);
            [links.take_dropped_early(), links.take_dropped_early()]
        };
        let show = |name: &'static str, index| {
            move |links: &mut LinkIndex| {
                links.observe(&mut link_with_state(name, index, OperState::Up), 1);
            }
        };
        assert_eq!(drops(&show("eth0", 2)), [false; 2]);
        assert_eq!(drops(&show("eth0", 7)), [true, false], "replaced");
        assert_eq!(drops(&show("wan", 7)), [false; 2], "renamed");
        assert_eq!(drops(&|links| links.forget_early("wan")), [true, false], "not found");
        assert_eq!(drops(&show("eth1", 8)), [false; 2]);
        assert_eq!(drops(&|links| drop(links.forget(8))), [false; 2], "heard of");
        assert_eq!(drops(&show("eth2", 9)), [false; 2]);
        assert_eq!(drops(&|links| links.retain(|_| false)), [true, false], "not in a list");
        assert_eq!(drops(&|links| assert!(links.reserve("x", true) > 0)), [false; 2]);
        assert_eq!(drops(&|links| links.retain(|_| false)), [false; 2], "only reserved");
    }

    #[test]
    fn a_renamed_link_is_known_by_its_new_name_alone() {
        let mut links = LinkIndex::new();
        assert_eq!(links.observe(&mut link_with_state("eth0", 2, OperState::Up), 1), None);
        assert_eq!(
            links.observe(&mut link_with_state("wan", 2, OperState::Up), 2).as_deref(),
            Some("eth0")
        );
        assert_eq!((links.index("eth0"), links.index("wan")), (None, Some(2)));
    }

    #[test]
    fn the_last_change_time_follows_the_operational_state_only() {
        let mut links = LinkIndex::new();
        let mut times = Vec::new();
        for (time, oper) in [(5, OperState::Down), (6, OperState::Down), (7, OperState::Up)] {
            let mut link = link_with_state("eth0", 2, oper);
            links.observe(&mut link, time);
            times.push(link.facts.expect("an observed link").last_change_ns);
        }
        assert_eq!(times, [5, 5, 7]);
    }

    #[test]
    fn a_link_stays_ours_when_its_mark_is_removed() {
        let mut links = LinkIndex::new();
        // marked in this message; ours, and its mark lost, afterwards
        for (index, marked, want) in [
            (2, false, (false, false)),
            (3, true, (true, false)),
            (3, false, (true, true)),
            (3, true, (true, false)),
            (2, true, (true, false)),
        ] {
            let mut link = link_with_state(&format!("v{index}"), index, OperState::Up);
            link.facts.as_mut().unwrap().ours = marked;
            links.observe(&mut link, 1);
            assert_eq!((link.is_ours(), link.lacks_mark()), want, "{index} {marked}");
        }
        // The index may be reused once the link is gone.
        links.forget(3);
        let mut next = link_with_state("v3", 3, OperState::Up);
        links.observe(&mut next, 2);
        assert_eq!((next.is_ours(), next.lacks_mark()), (false, false));
        // A link that is being created has no mark yet, so it has not lost one.
        let index = links.reserve("v9", true);
        let mut new = link_with_state("v9", index, OperState::Down);
        links.observe(&mut new, 3);
        assert_eq!((new.is_ours(), new.lacks_mark()), (false, false));
    }

    #[test]
    fn reserved_indices_are_distinct_and_meet_no_link() {
        let mut links = LinkIndex::new();
        links.observe(&mut link_with_state("x", FIRST_OUR_INDEX + 2, OperState::Up), 1);
        let got = [links.reserve("a", true), links.reserve("b", false)];
        assert_eq!(got, [FIRST_OUR_INDEX + 1, FIRST_OUR_INDEX + 3]);
        assert!(links.is_ours("a") && !links.is_ours("b"));
        links.forget_name("a");
        assert_eq!(links.index("a"), None);
    }
}
