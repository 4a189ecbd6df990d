//! The graph as it will be: a layer of changes over a [`Graph`] that stays untouched.
//!
//! Only what a plan touches is copied, so planning one change among many costs one change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::dependency::{Bond, Claim, Target};
use crate::graph::{Goal, Graph, Group, Idx, Sources, difference};
use crate::key::{FixedMap, Key};
use crate::plan::Cause;
use crate::traits::{Traits, ordering};
use crate::value::SharedValue;

/// Values looked at while searching whether one rests on another. Real chains are a handful long.
const REACH: usize = 10_000;

/// A node of the overlay.
pub(crate) type Spot = u32;
/// A group of the overlay.
pub(crate) type Account = u32;
/// The accounts of what one value offers.
pub(crate) type Accounts = SmallVec<[Account; 6]>;

/// What a plan has still to do with a value.
#[derive(Clone, Debug, Default)]
pub(crate) enum Want {
    #[default]
    Nothing,
    Delete,
    /// To become this in place: an update, an adoption, a release, or the mere finding that all is well.
    Become(Becoming),
    Create,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Becoming {
    Updated,
    Adopted,
    Released,
    /// The system has it already: known as applied from now on, without an operation.
    Found,
}

#[derive(Debug)]
pub(crate) struct OverlayNode {
    pub(crate) idx: Option<Idx>,
    pub(crate) key: Key,
    pub(crate) sources: Sources,
    pub(crate) goal: Goal,
    /// Sources or goal differ from those of the graph.
    pub(crate) changed: bool,
    pub(crate) live: Option<Arc<Traits>>,
    pub(crate) ours: bool,
    /// What the system has by now.
    pub(crate) current: Option<SharedValue>,
    /// The accounts of what the goal needs, in the order of its dependencies.
    pub(crate) accounts: Accounts,
    pub(crate) unmet: u32,
    pub(crate) want: Want,
    pub(crate) cause: Cause,
    /// The last operation on it.
    pub(crate) op: Option<u32>,
    /// Values that go together with this one, once it goes.
    pub(crate) attached: Vec<Spot>,
    /// What it was, when it goes with another one that has not gone yet.
    pub(crate) leaving: Option<Arc<Traits>>,
    pub(crate) carrier: Option<Spot>,
    /// The users of its key know that it goes.
    pub(crate) warned: bool,
    /// The accounts that will lose its offer.
    pub(crate) fading: Accounts,
    /// It is going to change in place.
    pub(crate) unsteady: Option<Account>,
}

#[derive(Debug, Default)]
pub(crate) struct OverlayGroup {
    pub(crate) avail: u32,
    pub(crate) users: u32,
    pub(crate) renewers: u32,
    /// Offers that will go: nothing new relies on them.
    pub(crate) fading: u32,
    /// It will change in place: whoever is renewed with it waits for that.
    pub(crate) unsteady: bool,
    /// Nodes that wait for offers that stay.
    pub(crate) held: Vec<Spot>,
    /// Nodes whose goal is new, and needs this.
    pub(crate) extra: Vec<Spot>,
    /// Nodes that cannot change before the users are gone.
    pub(crate) blocked: Vec<Spot>,
    /// The operation that made the first offer.
    pub(crate) made_by: Option<u32>,
    /// The operations by which users left.
    pub(crate) freed_by: SmallVec<[u32; 1]>,
}

#[derive(Debug, Default)]
pub(crate) struct OverlayClaim {
    pub(crate) holder: Option<Spot>,
    pub(crate) waiting: Vec<Spot>,
    pub(crate) freed_by: Option<u32>,
}

/// Readiness that changed while accounts were moved: for the planner to act on.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    /// Nodes that may be ready now.
    pub(crate) ready: Vec<Spot>,
    /// Nodes whose users may be gone now.
    pub(crate) freed: Vec<Spot>,
    /// Live nodes of ours that lost what they must not be without.
    pub(crate) bereft: Vec<Spot>,
}

#[derive(Debug)]
pub(crate) struct Overlay<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) nodes: Vec<OverlayNode>,
    by_idx: FixedMap<Idx, Spot>,
    by_key: FixedMap<Key, Spot>,
    pub(crate) groups: Vec<OverlayGroup>,
    by_target: FixedMap<Target, Account>,
    targets: Vec<Target>,
    claims: FixedMap<Claim, OverlayClaim>,
    /// Accounts of addresses to be covered, and of prefixes of keys, that the graph does not have.
    covering: BTreeSet<(u32, IpAddr)>,
    unders: bool,
    /// Offered prefixes, beyond those of the graph.
    prefixes: FixedMap<(u32, IpNet), i64>,
    pub(crate) turned: Turned,
    /// All that fades.
    fading: usize,
    pub(crate) edges: u64,
}

impl<'g> Overlay<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        Self {
            graph,
            nodes: Vec::new(),
            by_idx: FixedMap::default(),
            by_key: FixedMap::default(),
            groups: Vec::new(),
            by_target: FixedMap::default(),
            targets: Vec::new(),
            claims: FixedMap::default(),
            covering: BTreeSet::new(),
            unders: false,
            prefixes: FixedMap::default(),
            turned: Turned::default(),
            fading: 0,
            edges: 0,
        }
    }

    pub(crate) fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
        self.by_key.reserve(nodes);
    }

    pub(crate) fn node(&self, spot: Spot) -> &OverlayNode {
        &self.nodes[spot as usize]
    }

    pub(crate) fn node_mut(&mut self, spot: Spot) -> &mut OverlayNode {
        &mut self.nodes[spot as usize]
    }

    pub(crate) fn group(&self, account: Account) -> &OverlayGroup {
        &self.groups[account as usize]
    }

    pub(crate) fn group_mut(&mut self, account: Account) -> &mut OverlayGroup {
        &mut self.groups[account as usize]
    }

    /// The node of a key, if the plan has touched it.
    pub(crate) fn touched(&self, key: &Key) -> Option<Spot> {
        match self.graph.find(key) {
            Some(idx) => self.by_idx.get(&idx).copied(),
            None => self.by_key.get(key).copied(),
        }
    }

    /// The node of a key, copied from the graph or empty. True when it is new to the plan.
    pub(crate) fn touch(&mut self, key: &Key) -> (Spot, bool) {
        match self.graph.find(key) {
            Some(idx) => self.touch_idx(idx),
            None => {
                if let Some(&spot) = self.by_key.get(key) {
                    return (spot, false);
                }
                let spot = self.push(OverlayNode::empty(key.clone()));
                self.by_key.insert(key.clone(), spot);
                (spot, true)
            }
        }
    }

    pub(crate) fn touch_idx(&mut self, idx: Idx) -> (Spot, bool) {
        if let Some(&spot) = self.by_idx.get(&idx) {
            return (spot, false);
        }
        let node = self.graph.node(idx);
        let spot = self.push(OverlayNode {
            idx: Some(idx),
            sources: node.sources.clone(),
            goal: node.goal.clone(),
            live: node.live.clone(),
            ours: node.ours,
            current: node.current().cloned(),
            ..OverlayNode::empty(node.key.clone())
        });
        self.by_idx.insert(idx, spot);
        if let Some(traits) = node.goal.traits() {
            self.open_accounts(spot, traits);
        }
        (spot, true)
    }

    fn push(&mut self, node: OverlayNode) -> Spot {
        self.nodes.push(node);
        spot_of(self.nodes.len() - 1)
    }

    /// Gives a node another goal.
    pub(crate) fn set_goal(&mut self, spot: Spot, goal: Goal) {
        let node = self.node_mut(spot);
        node.goal = goal;
        node.changed = true;
        let Some(traits) = node.goal.traits().cloned() else {
            let node = self.node_mut(spot);
            node.unmet = 0;
            node.accounts.clear();
            return;
        };
        self.open_accounts(spot, &traits);
        for at in 0..traits.needs.len() {
            let account = self.node(spot).accounts[at];
            let extra = &mut self.group_mut(account).extra;
            if extra.last() != Some(&spot) {
                extra.push(spot);
            }
        }
    }

    /// Finds the accounts of what a goal needs, and counts those that are empty.
    fn open_accounts(&mut self, spot: Spot, traits: &Traits) {
        let accounts: Accounts =
            traits.needs.iter().map(|need| self.account(&need.target)).collect();
        let unmet = accounts.iter().filter(|&&account| self.group(account).avail == 0).count();
        let node = self.node_mut(spot);
        node.unmet = u32::try_from(unmet).unwrap_or(u32::MAX);
        node.accounts = accounts;
    }

    /// The accounts of what these traits need: those of the goal are at hand.
    fn accounts_of(&mut self, spot: Spot, traits: &Arc<Traits>) -> Accounts {
        let node = self.node(spot);
        if node.goal.traits().is_some_and(|goal| Arc::ptr_eq(goal, traits)) {
            return node.accounts.clone();
        }
        traits.needs.iter().map(|need| self.account(&need.target)).collect()
    }

    /// The account of a target, opened with what the graph and this plan have of it so far.
    pub(crate) fn account(&mut self, target: &Target) -> Account {
        if let Some(&account) = self.by_target.get(target) {
            return account;
        }
        let known = self.graph.group(target);
        let group = OverlayGroup {
            avail: self.opening(target),
            users: known.map_or(0, |group| group.users),
            renewers: known.map_or(0, |group| group.renewers),
            ..OverlayGroup::default()
        };
        self.groups.push(group);
        let account = spot_of(self.groups.len() - 1);
        self.by_target.insert(target.clone(), account);
        self.targets.push(target.clone());
        match target {
            Target::Under(_) => self.unders = true,
            Target::Covering { table, address } => {
                self.covering.insert((*table, *address));
            }
            _ => {}
        }
        account
    }

    /// The account of a target that somebody may care for.
    pub(crate) fn existing(&mut self, target: &Target) -> Option<Account> {
        let known = self.by_target.contains_key(target) || self.graph.group(target).is_some();
        known.then(|| self.account(target))
    }

    /// Notes what a value will offer no more, so that nothing new relies on it.
    pub(crate) fn fade(&mut self, spot: Spot, next: Option<&Traits>, changes: bool) {
        self.unfade(spot);
        let key = self.node(spot).key.clone();
        let live = self.node(spot).live.clone();
        let (_, lost) = self.shift(&key, live.as_deref(), next);
        for &account in &lost {
            self.group_mut(account).fading += 1;
        }
        let exact = if changes { self.existing(&Target::Exact(key)) } else { None };
        if let Some(account) = exact {
            self.group_mut(account).unsteady = true;
        }
        self.fading += lost.len() + usize::from(exact.is_some());
        let node = self.node_mut(spot);
        node.fading = lost;
        node.unsteady = exact;
    }

    /// The value has changed, or will not.
    pub(crate) fn unfade(&mut self, spot: Spot) {
        let node = self.node_mut(spot);
        let (lost, exact) = (std::mem::take(&mut node.fading), node.unsteady.take());
        self.fading -= lost.len() + usize::from(exact.is_some());
        for account in lost {
            let group = self.group_mut(account);
            group.fading -= 1;
            let held = std::mem::take(&mut group.held);
            self.turned.ready.extend(held);
        }
        if let Some(account) = exact {
            let group = self.group_mut(account);
            group.unsteady = false;
            let held = std::mem::take(&mut group.held);
            self.turned.ready.extend(held);
        }
    }

    /// True when something a value needs is about to go or to change; then it is tried again after that.
    pub(crate) fn is_held(&mut self, spot: Spot, traits: &Arc<Traits>) -> bool {
        if self.fading == 0 {
            return false;
        }
        let mut held = false;
        let accounts = self.accounts_of(spot, traits);
        for (need, account) in traits.needs.iter().zip(accounts) {
            let group = &mut self.groups[account as usize];
            if need.bond != Bond::After {
                continue;
            }
            if group.avail <= group.fading || need.renew && group.unsteady {
                group.held.push(spot);
                held = true;
            }
        }
        held
    }

    /// How many offers a target has by now.
    pub(crate) fn avail(&self, target: &Target) -> u32 {
        match self.by_target.get(target) {
            Some(&account) => self.group(account).avail,
            None => self.opening(target),
        }
    }

    /// True when what lives under one key needs another key, directly or by what it needs.
    pub(crate) fn rests_on(&self, from: &Key, on: &Key) -> bool {
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        let mut stack = vec![from.clone()];
        while let Some(key) = stack.pop() {
            if key == *on {
                return true;
            }
            if seen.len() > REACH || !seen.insert(key.clone()) {
                continue;
            }
            let exact = self.live_needs(&key).map(|traits| {
                let targets = ordering(&traits.needs).map(|need| &need.target);
                targets
                    .filter_map(|target| match target {
                        Target::Exact(key) => Some(key.clone()),
                        _ => None,
                    })
                    .collect::<Vec<_>>()
            });
            stack.extend(exact.into_iter().flatten());
        }
        false
    }

    fn live_needs(&self, key: &Key) -> Option<&Arc<Traits>> {
        if let Some(spot) = self.touched(key) {
            return self.node(spot).live.as_ref().filter(|_| self.node(spot).ours);
        }
        let node = self.graph.node(self.graph.find(key)?);
        node.live.as_ref().filter(|_| node.ours)
    }

    /// How many offers a target has by now, when nobody has counted in this plan yet.
    fn opening(&self, target: &Target) -> u32 {
        let base = i64::from(self.graph.avail(target));
        let since = match target {
            Target::Exact(key) => self.touched(key).map_or(0, |spot| self.existence(spot)),
            Target::Under(prefix) => {
                let spots = (0..spot_of(self.nodes.len()))
                    .filter(|&spot| self.node(spot).key.starts_with(prefix));
                spots.map(|spot| self.existence(spot)).sum()
            }
            Target::Covering { table, address } => {
                let within = self
                    .prefixes
                    .iter()
                    .filter(|((t, prefix), _)| t == table && prefix.contains(address));
                within.map(|(_, count)| count).sum()
            }
            // Offers of these are counted from the first one on, asked for or not.
            Target::AnyOf(_) | Target::Whole(_) => 0,
        };
        u32::try_from(base + since).unwrap_or(0)
    }

    /// Whether a node exists more, or less, than in the graph.
    fn existence(&self, spot: Spot) -> i64 {
        let node = self.node(spot);
        let before = node.idx.is_some_and(|idx| self.graph.node(idx).live.is_some());
        i64::from(node.live.is_some()) - i64::from(before)
    }

    /// What a value under this key offers more, and what less, when it changes so; as accounts that anybody may care for.
    pub(crate) fn shift(
        &mut self,
        key: &Key,
        old: Option<&Traits>,
        new: Option<&Traits>,
    ) -> (Accounts, Accounts) {
        let (gained, lost) =
            difference(old.map_or(&[], |t| &t.offers), new.map_or(&[], |t| &t.offers));
        let (more, less) =
            difference(old.map_or(&[], |t| &t.prefixes), new.map_or(&[], |t| &t.prefixes));
        let mut gained: Accounts = gained.into_iter().map(|target| self.account(target)).collect();
        let mut lost: Accounts = lost.into_iter().map(|target| self.account(target)).collect();
        for &&(table, prefix) in &more {
            self.covering(table, prefix, &mut gained);
        }
        for &&(table, prefix) in &less {
            self.covering(table, prefix, &mut lost);
        }
        match (old.is_some(), new.is_some()) {
            (false, true) => self.existence_of(key, &mut gained),
            (true, false) => self.existence_of(key, &mut lost),
            _ => {}
        }
        (gained, lost)
    }

    /// Accounts of the addresses within a prefix.
    fn covering(&mut self, table: u32, prefix: IpNet, accounts: &mut Accounts) {
        let mut targets: SmallVec<[Target; 4]> = self.graph.covered(table, prefix).collect();
        let range = (table, prefix.network())..=(table, prefix.broadcast());
        targets.extend(
            self.covering.range(range).map(|&(table, address)| Target::Covering { table, address }),
        );
        targets.sort_unstable();
        targets.dedup();
        for target in &targets {
            accounts.push(self.account(target));
        }
    }

    /// Accounts of a key itself: only where somebody has one, for most keys are of no concern to anybody.
    fn existence_of(&mut self, key: &Key, accounts: &mut Accounts) {
        accounts.extend(self.existing(&Target::Exact(key.clone())));
        if self.unders || self.graph.is_prefixed(key.kind()) {
            for prefix in key.prefixes() {
                accounts.extend(self.existing(&Target::Under(prefix)));
            }
        }
    }

    /// Puts a node into another condition and moves all accounts. What turns is left in [`Overlay::turned`].
    pub(crate) fn become_live(
        &mut self,
        spot: Spot,
        live: Option<Arc<Traits>>,
        ours: bool,
        by: Option<u32>,
    ) {
        let key = self.node(spot).key.clone();
        let node = self.node_mut(spot);
        let (old, was_ours) = (node.live.take(), node.ours);
        let (gained, lost) = self.shift(&key, old.as_deref(), live.as_deref());
        self.count_prefixes(old.as_deref(), -1);
        self.count_prefixes(live.as_deref(), 1);
        let node = self.node_mut(spot);
        node.live = live.clone();
        node.ours = ours;
        self.move_use(spot, old.filter(|_| was_ours), -1, by);
        self.move_use(spot, live.filter(|_| ours), 1, by);
        for account in gained {
            self.gain(account, by);
        }
        for account in lost {
            self.lose(account);
        }
    }

    fn count_prefixes(&mut self, traits: Option<&Traits>, sign: i64) {
        for offered in traits.map_or(&[][..], |traits| &traits.prefixes) {
            *self.prefixes.entry(*offered).or_default() += sign;
        }
    }

    fn move_use(&mut self, spot: Spot, traits: Option<Arc<Traits>>, sign: i32, by: Option<u32>) {
        let Some(traits) = traits else { return };
        let accounts = self.accounts_of(spot, &traits);
        for (need, account) in traits.needs.iter().zip(accounts) {
            if need.bond != Bond::After {
                continue;
            }
            let group = &mut self.groups[account as usize];
            group.users = group.users.saturating_add_signed(sign);
            group.renewers =
                group.renewers.saturating_add_signed(if need.renew { sign } else { 0 });
            if sign < 0 {
                if let Some(by) = by {
                    group.freed_by.push(by);
                }
                if group.users == 0 || need.renew && group.renewers == 0 {
                    let freed = std::mem::take(&mut group.blocked);
                    self.turned.freed.extend(freed);
                }
            }
        }
        for claim in &traits.claims {
            if sign > 0 {
                self.claim_mut(claim).holder.get_or_insert(spot);
            } else if self.node(spot).leaving.is_none() {
                self.release(claim, spot, by);
            }
        }
    }

    pub(crate) fn release(&mut self, claim: &Claim, spot: Spot, by: Option<u32>) {
        let claimed = self.claim_mut(claim);
        if claimed.holder.is_none_or(|holder| holder == spot) {
            claimed.holder = None;
            claimed.freed_by = by;
            let waiting = std::mem::take(&mut claimed.waiting);
            self.turned.ready.extend(waiting);
        }
    }

    /// The state of an identity, opened with its holder in the graph.
    pub(crate) fn claim_mut(&mut self, claim: &Claim) -> &mut OverlayClaim {
        if !self.claims.contains_key(claim) {
            let holder = self.graph.holder(claim).map(|idx| self.touch_idx(idx).0);
            let holder = holder.filter(|&spot| {
                // The holder may have gone by this plan before anybody asked.
                self.node(spot).ours
                    && self.node(spot).live.as_ref().is_some_and(|t| t.claims.contains(claim))
                    || self.node(spot).leaving.is_some()
            });
            self.claims.insert(claim.clone(), OverlayClaim { holder, ..OverlayClaim::default() });
        }
        self.claims.get_mut(claim).expect("just made")
    }

    fn gain(&mut self, account: Account, by: Option<u32>) {
        let group = self.group_mut(account);
        group.avail += 1;
        if group.avail > group.fading {
            let held = std::mem::take(&mut group.held);
            self.turned.ready.extend(held);
        }
        let group = self.group_mut(account);
        if group.avail == 1 {
            group.made_by = by;
            self.walk(account, true);
        } else if let Some(freed) = group.blocked.pop() {
            // One more offer lets one of those go that were the last; each pass lets the next one in.
            self.turned.freed.push(freed);
        }
    }

    fn lose(&mut self, account: Account) {
        let group = self.group_mut(account);
        group.avail = group.avail.saturating_sub(1);
        if group.avail == 0 {
            self.walk(account, false);
        }
    }

    /// Tells all members of a group that its target is there, or is there no more.
    fn walk(&mut self, account: Account, there: bool) {
        let graph = self.graph;
        let target = self.targets[account as usize].clone();
        let members = graph.group(&target).map_or_else(Default::default, Group::members_once);
        let mut extra = std::mem::take(&mut self.group_mut(account).extra);
        if !extra.is_sorted_by(|a, b| a < b) {
            extra.sort_unstable();
            extra.dedup();
        }
        self.edges += (members.len() + extra.len()) as u64;
        for &spot in &extra {
            self.tell(spot, account, &target, there);
        }
        self.group_mut(account).extra = extra;
        for &idx in &*members {
            self.tell_member(idx, account, &target, there);
        }
    }

    fn tell_member(&mut self, idx: Idx, account: Account, target: &Target, there: bool) {
        match self.by_idx.get(&idx) {
            // A new goal stands among the extra ones; what still lives of the old one is listed here.
            Some(&spot) if self.node(spot).changed => self.tell_bereft(spot, target, there),
            Some(&spot) => self.tell(spot, account, target, there),
            None if self.is_asleep(idx, there) => {
                // Counted right when it is touched: the account has turned already.
                let (spot, _) = self.touch_idx(idx);
                self.node_mut(spot).cause = Cause::Woken;
                if there {
                    self.turned.ready.push(spot);
                } else {
                    self.tell_bereft(spot, target, there);
                }
            }
            None => {}
        }
    }

    /// Whether an untouched node must hear of a target: one that waits hears when it comes, one that lives when it goes.
    fn is_asleep(&self, idx: Idx, there: bool) -> bool {
        let node = self.graph.node(idx);
        if there {
            node.goal.traits().is_some() && !node.in_place()
        } else {
            node.ours && node.live.is_some()
        }
    }

    fn tell(&mut self, spot: Spot, account: Account, target: &Target, there: bool) {
        let node = self.node_mut(spot);
        let wanted = node.accounts.iter().filter(|&&other| other == account).count();
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if there {
            node.unmet = node.unmet.saturating_sub(wanted);
            if wanted > 0 && node.unmet == 0 {
                self.turned.ready.push(spot);
            }
        } else {
            node.unmet = node.unmet.saturating_add(wanted);
            self.tell_bereft(spot, target, there);
        }
    }

    fn tell_bereft(&mut self, spot: Spot, target: &Target, there: bool) {
        let node = self.node(spot);
        let used = node.ours
            && node.live.as_ref().is_some_and(|traits| !traits.needs_of(target).is_empty());
        if used && !there {
            self.turned.bereft.push(spot);
        }
    }

    /// The live nodes of ours that need the target of an account, in the way given.
    pub(crate) fn users(&mut self, account: Account, renewing: bool) -> Vec<Spot> {
        let target = self.targets[account as usize].clone();
        let graph = self.graph;
        let members = graph.group(&target).map_or_else(Default::default, Group::members_once);
        let mut users = self.group(account).extra.clone();
        self.edges += (members.len() + users.len()) as u64;
        for &idx in &*members {
            let node = graph.node(idx);
            let uses = node.ours
                && node.live.as_ref().is_some_and(|traits| uses(traits, &target, renewing));
            if uses || self.by_idx.contains_key(&idx) {
                users.push(self.touch_idx(idx).0);
            }
        }
        users.sort_unstable();
        users.dedup();
        users.retain(|&spot| {
            let node = self.node(spot);
            node.ours && node.live.as_ref().is_some_and(|traits| uses(traits, &target, renewing))
        });
        users
    }

    /// How many ordering dependencies of these traits are on an account: a value does not block itself.
    pub(crate) fn own_uses(&mut self, traits: &Traits, account: Account) -> u32 {
        let needs = ordering(&traits.needs);
        let own = needs.filter(|need| self.by_target.get(&need.target) == Some(&account)).count();
        u32::try_from(own).unwrap_or(u32::MAX)
    }
}

fn uses(traits: &Traits, target: &Target, renewing: bool) -> bool {
    traits.needs_of(target).iter().any(|need| need.bond == Bond::After && (need.renew || !renewing))
}

impl OverlayNode {
    fn empty(key: Key) -> Self {
        Self {
            idx: None,
            key,
            sources: Sources::new(),
            goal: Goal::Nothing,
            changed: false,
            live: None,
            ours: false,
            current: None,
            accounts: Accounts::new(),
            unmet: 0,
            want: Want::Nothing,
            cause: Cause::Asked,
            op: None,
            attached: Vec::new(),
            leaving: None,
            carrier: None,
            warned: false,
            fading: Accounts::new(),
            unsteady: None,
        }
    }
}

pub(crate) fn spot_of(index: usize) -> Spot {
    Spot::try_from(index).expect("memory ends before 2^32 entries")
}
