//! What gives way when a plan cannot go on.
//!
//! In this order: companions that wait for nothing but one another are created together; the users of what must go are parked, or do without it where they can, those of the highest kind first;
//! what can be had in part becomes what is there; a change that will not get what it needs becomes a delete; where
//! values of the system use one another in a circle, the circle is broken; and an identity kept for its holder of
//! before, who does not come, goes to whoever else wants it.

use std::collections::BTreeSet;

use crate::dependency::{Bond, Claim, Target};
use crate::graph::Goal;
use crate::key::Key;
use crate::overlay::{Spot, Want};
use crate::plan::Cause;
use crate::planner::Planner;

impl Planner<'_> {
    /// Lets something give way. False when there is nothing left to decide.
    pub(crate) fn resolve(&mut self) -> bool {
        self.create_companions()
            || self.park_users()
            || self.fit_all()
            || self.starve()
            || self.break_circle()
            || self.give_up_kept()
    }

    fn create_companions(&mut self) -> bool {
        if self.companions.is_empty() {
            return false;
        }
        self.gather_companions();
        let mut together: BTreeSet<Spot> = self.companions.iter().copied().collect();
        together.retain(|&spot| self.waits_for_companions_only(spot));
        let mut claimed = BTreeSet::new();
        together.retain(|&spot| self.may_claim(spot, &mut claimed));
        loop {
            let alone: Vec<Spot> = together
                .iter()
                .copied()
                .filter(|&spot| !self.has_companions(spot, &together))
                .collect();
            for spot in &alone {
                together.remove(spot);
            }
            if alone.is_empty() {
                break;
            }
        }
        let mut together: Vec<Spot> = together.into_iter().collect();
        together.sort_unstable_by(|&a, &b| self.overlay.node(a).key.cmp(&self.overlay.node(b).key));
        let before = self.operations.len();
        for &spot in &together {
            self.create(spot, true);
        }
        self.companions.retain(|spot| !together.contains(spot));
        self.operations.len() > before
    }

    /// Adds the companions that were pending before this plan.
    fn gather_companions(&mut self) {
        let mut at = 0;
        while at < self.companions.len() {
            let goal = self.overlay.node(self.companions[at]).goal.clone();
            let needs = goal.traits().map_or(&[][..], |traits| &traits.needs);
            for need in needs.iter().filter(|need| need.bond == Bond::Together) {
                let Target::Exact(key) = &need.target else { continue };
                let (spot, new) = self.overlay.touch(key);
                let waits = self.overlay.node(spot).live.is_none()
                    && self.overlay.node(spot).leaving.is_none();
                if new && waits {
                    self.overlay.node_mut(spot).cause = Cause::Woken;
                    self.want_create(spot);
                }
            }
            at += 1;
        }
        self.companions.sort_unstable();
        self.companions.dedup();
    }

    fn waits_for_companions_only(&mut self, spot: Spot) -> bool {
        let node = self.overlay.node(spot);
        let (Want::Create, Goal::Valid(_, traits)) = (&node.want, &node.goal) else { return false };
        if node.live.is_some() || node.leaving.is_some() {
            return false;
        }
        let traits = traits.clone();
        traits.needs.iter().filter(|need| need.bond == Bond::After).all(|need| {
            let account = self.overlay.account(&need.target);
            self.overlay.group(account).lasts(need)
        })
    }

    /// Whether all identities that a value needs are free, also of those that come with it.
    fn may_claim(&mut self, spot: Spot, claimed: &mut BTreeSet<Claim>) -> bool {
        let Some(traits) = self.overlay.node(spot).goal.traits().cloned() else { return false };
        if self.is_kept(spot, &traits) {
            return false;
        }
        traits.claims().iter().all(|claim| {
            let holder = self.overlay.claim_mut(claim).holder;
            holder.is_none_or(|holder| holder == spot) && claimed.insert(claim.clone())
        })
    }

    fn has_companions(&mut self, spot: Spot, together: &BTreeSet<Spot>) -> bool {
        let Some(traits) = self.overlay.node(spot).goal.traits().cloned() else { return false };
        traits.needs.iter().filter(|need| need.bond == Bond::Together).all(|need| {
            let account = self.overlay.account(&need.target);
            let comes_along = |key: &Key| {
                let other = self.overlay.touched(key).filter(|other| *other != spot);
                other.is_some_and(|other| together.contains(&other))
            };
            self.overlay.group(account).lasts(need)
                || matches!(&need.target, Target::Exact(key) if comes_along(key))
        })
    }

    /// Parks the users of one value that must go.
    fn park_users(&mut self) -> bool {
        while let Some((key, spot)) = self.blocked.pop_last() {
            let parked = self.park_users_of(spot);
            self.spent.insert(key, spot);
            if parked {
                return true;
            }
        }
        false
    }

    fn park_users_of(&mut self, spot: Spot) -> bool {
        let Some(live) = self.overlay.node(spot).live.clone() else { return false };
        let key = self.overlay.node(spot).key.clone();
        let next = self.next(spot);
        let (_, lost) =
            self.overlay.shift(&key, Some(&live), next.as_ref().map(|(_, traits)| &**traits));
        let mut users = Vec::new();
        for account in lost {
            if self.overlay.group(account).avail <= 1 {
                users.extend(self.overlay.users(account, false));
            }
        }
        if let Some(account) = self.renewed(&key).filter(|_| next.is_some()) {
            users.extend(self.overlay.users(account, true));
        }
        let mut parked = false;
        for user in users {
            parked |= user != spot && (self.fit(user) || self.park(user));
        }
        parked
    }

    /// A change that waits for what will not come: the value cannot stay as it is, and cannot become what it shall.
    /// What is not ours stays as it is, and the value pending.
    fn starve(&mut self) -> bool {
        while let Some((_, spot)) = self.starved.pop_last() {
            if !matches!(self.overlay.node(spot).want, Want::Become(_)) {
                continue;
            }
            if self.is_ours(spot) && self.park(spot) {
                return true;
            }
            self.overlay.node_mut(spot).want = Want::Nothing;
            self.overlay.unfade(spot);
            self.turn();
        }
        false
    }

    fn break_circle(&mut self) -> bool {
        let Some((_, spot)) = self.spent.pop_last() else { return false };
        match self.overlay.node(spot).want {
            Want::Delete => self.delete(spot, true),
            Want::Become(_) => self.change(spot, true),
            _ => {}
        }
        true
    }
}
