//! Uplink groups: interfaces that must work in a certain number, and the interfaces that are down without them.
//!
//! A group is judged by level: by the members that do not work now, whatever was seen before. The alarm of a group is
//! `uplinks-down`; while only some of its members are lost, its dependents work worse, without an alarm. Groups stand in a
//! row where a dependent of one is a member of another, and in no circle ([`circle`]).
//!
//! A bond with its members is a group, too. The kernel itself takes the bond down without them, so the alarm of the bond is that
//! of a link, and its cause is the alarm of the member that was lost last.

use std::collections::BTreeSet;
use std::time::Duration;

use smol_str::{SmolStr, format_smolstr};

use crate::condition::Condition;
use crate::fencing::Action;
use crate::resource::Resource;

/// Groups that are looked at. A box has a handful of ways upstream, and a switch with a group for each tenant a few dozens.
pub const MAX_GROUPS: usize = 64;

/// Members of a group, and dependents of one: as many as a large switch has ports.
pub const MAX_GROUP_LINKS: usize = 256;

/// Type of the alarm of a group.
const UPLINKS_DOWN: &str = "uplinks-down";

/// An uplink group, as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UplinkGroup {
    pub name: SmolStr,
    /// Interfaces that lead upstream.
    pub members: BTreeSet<SmolStr>,
    /// Members that have to be left.
    pub least: usize,
    /// Interfaces that are down without these.
    pub dependents: BTreeSet<SmolStr>,
    /// Work on the dependents while the alarm of the group is open.
    pub action: Option<Action>,
    /// How long that stays after the alarm has ended.
    pub recovery_delay: Duration,
    /// True to do it even if that takes the last way of something.
    pub allows_isolation: bool,
    /// True for a bond, which is the one dependent of its members.
    pub is_bond: bool,
}

/// Groups that stand in a circle: a dependent of the first is a member of the next, and so on to a member of the
/// first. A group with a member that is its dependent is a circle of its own.
pub fn circle(groups: &[UplinkGroup]) -> Option<Vec<&UplinkGroup>> {
    let next = |group: &UplinkGroup| {
        let dependents = group.dependents.clone();
        groups.iter().filter(move |other| !other.members.is_disjoint(&dependents))
    };
    for first in groups {
        // Ways from the first group, the shortest ones first.
        let mut ways = vec![vec![first]];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while let Some(way) = ways.get(at).cloned() {
            at += 1;
            let Some(last) = way.last() else { continue };
            for group in next(last) {
                if group.name == first.name {
                    return Some(way);
                }
                if seen.insert(&group.name) {
                    ways.push(way.iter().copied().chain([group]).collect());
                }
            }
        }
    }
    None
}

/// Type of the alarm of a bond without enough members.
const LINK_DOWN: &str = "link-down";

impl UplinkGroup {
    /// A bond of this name.
    pub fn of_bond(name: SmolStr, members: BTreeSet<SmolStr>, least: usize) -> Self {
        let dependents = BTreeSet::from([name.clone()]);
        Self { name, members, least, dependents, is_bond: true, ..Self::default() }
    }

    /// The condition of its alarm.
    pub fn condition(&self) -> Condition {
        match self.is_bond {
            true => condition_of_bond(&self.name),
            false => condition_of(&self.name),
        }
    }

    pub(crate) fn text(&self, lost: &BTreeSet<SmolStr>) -> SmolStr {
        let members = self.members.len();
        let left = members - lost.len();
        let lost: Vec<&str> = lost.iter().map(SmolStr::as_str).collect();
        let least = self.least;
        format_smolstr!(
            "{left} of {members} uplinks are left, and {least} are needed; lost: {}",
            lost.join(", ")
        )
    }
}

pub(crate) fn condition_of_bond(bond: &SmolStr) -> Condition {
    Condition::new(LINK_DOWN, Resource::Interface(bond.clone()))
}

pub(crate) fn condition_of(group: &SmolStr) -> Condition {
    Condition::new(UPLINKS_DOWN, Resource::Group(group.clone()))
}
