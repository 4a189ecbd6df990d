//! Which interfaces are to be shut because of alarms and latches, and until when.
//!
//! This is a level: whoever carries it out compares it with what is fenced. A fence goes some time after the last alarm that
//! wanted it has ended; an alarm that comes again in between keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_config::FenceOwner;
use holdfast_scheduler::Now;
use smol_str::SmolStr;

use crate::condition::Condition;
use crate::faults::Faults;
use crate::resource::Resource;

/// Work of a policy when an alarm that fits it is open and has no cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    #[default]
    None,
    /// The interface is shut.
    Shut,
}

/// An interface that is to be shut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// It is shut even if that takes the last way of something.
    pub allows_isolation: bool,
    /// How long it stays shut after the last alarm that wants it has ended.
    delay: Duration,
    by: BTreeSet<Condition>,
    /// When it goes; `None` while an alarm wants it.
    release_at: Option<Duration>,
}

/// All interfaces that are to be shut, by owner.
#[derive(Debug, Default)]
pub(crate) struct Fencing {
    wishes: BTreeMap<FenceOwner, BTreeMap<SmolStr, Wish>>,
    owners: BTreeMap<Condition, BTreeSet<FenceOwner>>,
    /// Owners that want something else than before.
    changed: BTreeSet<FenceOwner>,
}

/// The wish of one alarm.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) owner: FenceOwner,
    pub(crate) interface: SmolStr,
    pub(crate) delay: Duration,
    pub(crate) allows_isolation: bool,
}

impl Fencing {
    /// Takes in all that an alarm wants now; nothing, once it has ended.
    pub(crate) fn set(&mut self, condition: &Condition, wanted: Vec<Wanted>, now: Duration) {
        let before = self.owners.remove(condition).unwrap_or_default();
        let after: BTreeSet<FenceOwner> = wanted.iter().map(|it| it.owner.clone()).collect();
        for owner in before.difference(&after) {
            self.release(owner, condition, now);
        }
        for Wanted { owner, interface, delay, allows_isolation } in wanted {
            let wishes = self.wishes.entry(owner.clone()).or_default();
            let is_new = !wishes.contains_key(&interface);
            let wish = wishes.entry(interface).or_insert_with(|| Wish {
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
            self.owners.insert(condition.clone(), after);
        }
    }

    fn release(&mut self, owner: &FenceOwner, condition: &Condition, now: Duration) {
        for wish in self.wishes.get_mut(owner).into_iter().flat_map(BTreeMap::values_mut) {
            if wish.by.remove(condition) && wish.by.is_empty() {
                wish.release_at = Some(now + wish.delay);
            }
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

    pub(crate) fn wishes(&self) -> &BTreeMap<FenceOwner, BTreeMap<SmolStr, Wish>> {
        &self.wishes
    }
}

impl Faults {
    /// Interfaces that are to be shut, by owner.
    pub fn fences(&self) -> &BTreeMap<FenceOwner, BTreeMap<SmolStr, Wish>> {
        self.fencing.wishes()
    }

    /// Takes in what an alarm wants now.
    pub(crate) fn refence(&mut self, condition: &Condition, now: Now) {
        let Resource::Interface(interface) = &condition.resource else { return };
        let alarm = self.alarm(condition);
        let is_root = alarm.is_some_and(|it| it.cause.is_none() && !it.is_aside());
        let policy = self.settings.policy(condition).filter(|it| it.action == Action::Shut);
        let policy = policy.filter(|_| is_root).map(|policy| Wanted {
            owner: FenceOwner::Policy(policy.name.clone()),
            interface: interface.clone(),
            delay: policy.recovery_delay,
            allows_isolation: policy.allows_isolation,
        });
        let latch = self.latches.get(condition).filter(|latch| latch.is_fenced);
        let latch = latch.map(|latch| Wanted {
            owner: FenceOwner::Latch(latch.by.clone()),
            interface: interface.clone(),
            delay: Duration::ZERO,
            allows_isolation: true, // it was asked for when the latch was set
        });
        let wanted: Vec<Wanted> = policy.into_iter().chain(latch).collect();
        self.fencing.set(condition, wanted, now.monotonic);
    }
}
