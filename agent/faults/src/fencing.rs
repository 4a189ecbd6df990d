//! Wishes to shut or drain something because of alarms and latches, and until when.
//!
//! This is a level: whoever carries it out compares it with what is fenced. A fence goes some time after the last alarm that
//! wanted it has ended; an alarm that comes again in between keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_config::FenceOwner;

use crate::condition::Condition;
use crate::resource::Resource;

/// Work of a policy while an alarm that fits it is open and has no cause, and of an uplink group while too few of its members
/// are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The interface is shut.
    Shut,
    /// Static routes that have another way leave the interface or next hop.
    Drain,
}

/// A resource that is to be fenced, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceTarget {
    pub resource: Resource,
    pub action: Action,
}

/// The wish that a resource is fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// True to do it even if that takes the last way of something.
    pub allows_isolation: bool,
    /// How long it stays after the last alarm that wants it has ended.
    delay: Duration,
    by: BTreeSet<Condition>,
    /// When it goes; `None` while an alarm wants it.
    release_at: Option<Duration>,
}

/// Wishes by what they are for.
pub(crate) type Wishes = BTreeMap<FenceTarget, Wish>;

/// All that is to be fenced, by owner.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    wishes: BTreeMap<FenceOwner, Wishes>,
    /// Wishes by alarm.
    by_alarm: BTreeMap<Condition, BTreeSet<(FenceOwner, FenceTarget)>>,
    /// Owners that want something else than before.
    changed: BTreeSet<FenceOwner>,
}

/// The wish of one alarm.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) owner: FenceOwner,
    pub(crate) target: FenceTarget,
    pub(crate) delay: Duration,
    pub(crate) allows_isolation: bool,
}

holdfast_config::enum_names!(Action {
    Shut = "shut",
    Drain = "drain",
});

impl Fencing {
    /// Takes in all that an alarm wants now; nothing, once it has ended.
    pub(crate) fn set(&mut self, condition: &Condition, wanted: Vec<Wanted>, now: Duration) {
        let before = self.by_alarm.remove(condition).unwrap_or_default();
        let after: BTreeSet<(FenceOwner, FenceTarget)> =
            wanted.iter().map(|it| (it.owner.clone(), it.target.clone())).collect();
        for (owner, target) in before.difference(&after) {
            self.release(owner, target, condition, now);
        }
        for Wanted { owner, target, delay, allows_isolation } in wanted {
            let wishes = self.wishes.entry(owner.clone()).or_default();
            let is_new = !wishes.contains_key(&target);
            let wish = wishes.entry(target).or_insert_with(|| Wish {
                allows_isolation,
                delay,
                by: BTreeSet::new(),
                release_at: None,
            });
            wish.delay = delay;
            wish.allows_isolation = allows_isolation;
            wish.by.insert(condition.clone());
            wish.release_at = None;
            if is_new {
                self.changed.insert(owner);
            }
        }
        if !after.is_empty() {
            self.by_alarm.insert(condition.clone(), after);
        }
    }

    fn release(
        &mut self,
        owner: &FenceOwner,
        target: &FenceTarget,
        condition: &Condition,
        now: Duration,
    ) {
        let wish = self.wishes.get_mut(owner).and_then(|wishes| wishes.get_mut(target));
        if let Some(wish) = wish
            && wish.by.remove(condition)
            && wish.by.is_empty()
        {
            wish.release_at = Some(now + wish.delay);
        }
    }

    /// When the next fence goes.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.wishes.values().flat_map(BTreeMap::values).filter_map(|wish| wish.release_at).min()
    }

    /// Forgets what is due. Returns the owners that want something else than before.
    pub(crate) fn take_changed(&mut self, now: Duration) -> BTreeSet<FenceOwner> {
        for (owner, wishes) in &mut self.wishes {
            let before = wishes.len();
            wishes.retain(|_, wish| wish.release_at.is_none_or(|at| at > now));
            if wishes.len() != before {
                self.changed.insert(owner.clone());
            }
        }
        self.wishes.retain(|_, wishes| !wishes.is_empty());
        std::mem::take(&mut self.changed)
    }

    pub(crate) fn wishes(&self) -> &BTreeMap<FenceOwner, Wishes> {
        &self.wishes
    }
}
