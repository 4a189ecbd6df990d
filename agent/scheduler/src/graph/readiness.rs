//! Readiness: counting of providers, dependents and unmet dependencies.

use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use ipnet::IpNet;
use smallvec::{SmallVec, smallvec};

use super::{Graph, GraphChange, NodeIdx, STALE_WATCHERS, TargetId, TargetState, difference};
use crate::dependency::{Claim, Dependency, Facet, Space, Target};
use crate::key::{Key, KindId};
use crate::sorted_map::SortedMap;
use crate::targets::provided_targets;
use crate::value_spec::ValueSpec;

impl Graph {
    pub(super) fn count_under(&self, prefix: &Key) -> u32 {
        let count = match self.present_keys.get(&prefix.kind()) {
            Some(keys) => keys.range(prefix..).take_while(|key| key.starts_with(prefix)).count(),
            None => self
                .nodes()
                .filter(|(_, node)| node.present.is_some() && node.key.starts_with(prefix))
                .count(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn count_covering(&self, space: Space, address: IpAddr) -> u32 {
        self.prefixes.covering(space, address).sum()
    }

    /// Specs whose targets this node watches.
    pub(super) fn watched_specs(&self, idx: NodeIdx) -> SmallVec<[Arc<ValueSpec>; 2]> {
        self.node(idx).watching_specs().into_iter().flatten().cloned().collect()
    }

    /// Adds a node to the watchers of all targets of its goal.
    pub(super) fn watch_goal(
        &mut self,
        idx: NodeIdx,
        before: &[Arc<ValueSpec>],
        target_ids: &[Option<TargetId>],
    ) {
        let spec = self.node(idx).goal.spec().cloned();
        let needs = spec.iter().flat_map(|spec| &spec.needs).enumerate();
        let need_targets = needs.map(|(at, need)| {
            let slot = target_ids.get(at).copied().flatten();
            let existing = self.targets.find_at(slot, &need.target);
            match existing.filter(|_| is_listed(before, &need.target)) {
                Some(id) => id,
                None => self.add_watcher(idx, &need.target, existing),
            }
        });
        let need_targets = need_targets.collect();
        self.node_mut(idx).need_targets = need_targets;
        if let Some((_, full)) = spec.as_ref().and_then(|spec| spec.full()) {
            let met = |target: &Target| spec.iter().any(|it| !it.needs_of(target).is_empty());
            for Dependency { target, .. } in &full.needs {
                if !met(target) && !is_listed(before, target) {
                    self.add_watcher(idx, target, self.targets.find(target));
                }
            }
        }
    }

    /// Adds a node to the watchers of all targets of its present value, and marks its other entries as stale.
    pub(super) fn watch_present(&mut self, idx: NodeIdx, before: &[Arc<ValueSpec>]) {
        let present = self.node(idx).present.clone().filter(|_| self.node(idx).ours);
        for need in present.iter().flat_map(|present| &present.needs) {
            if !is_listed(before, &need.target) {
                self.add_watcher(idx, &need.target, self.targets.find(&need.target));
            }
        }
        self.unwatch(idx, before);
    }

    /// Marks the entries of a node as stale for targets that neither goal nor present value needs any more.
    pub(super) fn unwatch(&mut self, idx: NodeIdx, before: &[Arc<ValueSpec>]) {
        if before.is_empty() {
            return;
        }
        let after = self.watched_specs(idx);
        for spec in before {
            if after.iter().any(|new| Arc::ptr_eq(new, spec)) {
                continue;
            }
            for need in &spec.needs {
                if !is_listed(&after, &need.target) {
                    self.remove_watcher(&need.target);
                }
            }
        }
    }

    /// Adds a node to the watchers of a target, which may have a state already.
    fn add_watcher(
        &mut self,
        idx: NodeIdx,
        target: &Target,
        existing: Option<TargetId>,
    ) -> TargetId {
        if let Some(id) = existing {
            self.log.push(GraphChange::Watchers(id));
            let watchers = &mut self.targets.of_mut(id).watchers;
            if watchers.last() != Some(&idx) {
                watchers.push(idx);
            }
            return id;
        }
        if let Target::Under(prefix) = target {
            self.index_kind(prefix.kind());
        }
        if let Target::Covering { space, address } = target {
            self.addresses.insert(*space, *address);
        }
        let providers = self.count(target);
        let watchers = smallvec![idx];
        self.open(target, TargetState { providers, watchers, ..TargetState::default() })
    }

    fn open(&mut self, target: &Target, state: TargetState) -> TargetId {
        if let Target::Exact(key) = target
            && !self.target_kinds.contains(key.kind())
        {
            self.log.forget(); // no plan so far has looked for targets of this kind
            self.target_kinds.insert(key.kind());
        }
        let id = self.targets.open(target, state);
        self.log.push(GraphChange::Opened(id));
        id
    }

    pub(super) fn remove_watcher(&mut self, target: &Target) {
        let Some(id) = self.targets.find(target) else { return };
        self.log.push(GraphChange::Watchers(id));
        let state = self.targets.of_mut(id);
        state.stale += 1;
        let watchers = u32::try_from(state.watchers.len()).unwrap_or(u32::MAX);
        if state.stale <= watchers / 2 + STALE_WATCHERS && state.stale < watchers {
            return;
        }
        let mut watchers = std::mem::take(&mut state.watchers);
        watchers.sort_unstable();
        watchers.dedup();
        watchers.retain(|idx| self.needs(*idx, target));
        let state = self.targets.of_mut(id);
        state.stale = 0;
        state.watchers = watchers;
        if state.watchers.is_empty() && state.dependents == 0 {
            self.close_if_derivable(id, target);
        }
    }

    /// Drops the state of an unwatched target where it can be recomputed from the indexes.
    fn close_if_derivable(&mut self, id: TargetId, target: &Target) {
        let providers = self.targets.of(id).providers;
        let again = match target {
            Target::Exact(key) => {
                providers
                    == self.find(key).map_or(0, |idx| u32::from(self.node(idx).present.is_some()))
            }
            Target::AnyOf(_) | Target::Whole(_) => providers == 0,
            Target::Under(_) | Target::Covering { .. } => true,
        };
        if again {
            self.close(id);
        }
    }

    fn close(&mut self, id: TargetId) {
        self.log.push(GraphChange::Closed(id));
        self.watcher_updates.cancel(id);
        if let Some(Target::Covering { space, address }) = self.targets.close(id) {
            self.addresses.remove(space, address);
        }
    }

    pub(super) fn needs(&self, idx: NodeIdx, target: &Target) -> bool {
        let node = self.node(idx);
        node.used
            && node
                .watching_specs()
                .into_iter()
                .flatten()
                .any(|spec| !spec.needs_of(target).is_empty())
    }

    /// The first present key with a prefix, or the one after another key; `None` also for kinds whose keys are not indexed.
    pub(crate) fn present_below(&self, prefix: &Key, after: Option<&Key>) -> Option<&Key> {
        let keys = self.present_keys.get(&prefix.kind())?;
        let from = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let next = keys.range((from, Bound::Unbounded)).next();
        next.filter(|key| key.starts_with(prefix))
    }

    pub(crate) fn index_kind(&mut self, kind: KindId) {
        if self.present_keys.contains_key(&kind) {
            return;
        }
        let present =
            self.nodes().filter(|(_, node)| node.present.is_some() && node.key.kind() == kind);
        let keys = present.map(|(_, node)| node.key.clone()).collect();
        self.present_keys.insert(kind, keys);
        self.log.forget(); // no plan so far has looked for prefixes of keys of this kind
    }

    /// Counts the dependencies of a present value. The target ids of a goal are at hand, others are looked up.
    fn count_dependents(&mut self, idx: NodeIdx, spec: &Arc<ValueSpec>, sign: i32) {
        let node = &self.nodes[idx];
        let at_hand = node.goal.spec().is_some_and(|goal| Arc::ptr_eq(goal, spec));
        for (at, need) in spec.needs.iter().enumerate() {
            let id =
                if at_hand { Some(node.need_targets[at]) } else { self.targets.find(&need.target) };
            let Some(id) = id else { continue };
            self.log.push(GraphChange::Watchers(id));
            let state = self.targets.of_mut(id);
            state.dependents = state.dependents.saturating_add_signed(sign);
        }
    }

    pub(super) fn count_dependents_of(
        &mut self,
        idx: NodeIdx,
        old: Option<&Arc<ValueSpec>>,
        new: Option<&Arc<ValueSpec>>,
    ) {
        for (spec, sign) in [(old, -1), (new, 1)] {
            spec.into_iter().for_each(|spec| self.count_dependents(idx, spec, sign));
        }
        for claim in old.iter().flat_map(|spec| spec.claims()) {
            self.release(claim, idx);
        }
        for claim in new.iter().flat_map(|spec| spec.claims()) {
            self.take(claim, idx);
        }
    }

    /// Gives an identity to a value, unless others hold it with which this one cannot.
    fn take(&mut self, claim: &Claim, idx: NodeIdx) {
        let claimed = self.claims.entry(claim.identity.clone()).or_default();
        if claimed.holders.is_empty() {
            claimed.side = claim.side;
            self.reason_changed.extend(claimed.other_claimants(idx));
        } else if claimed.rival(claim, idx).is_some() {
            // The identity was given to another value, and this one has to go; should that one leave first,
            // this one is next.
            claimed.add_claimant(idx);
            return self.mark_dirty(idx);
        }
        if !claimed.holders.contains(&idx) {
            claimed.holders.push(idx);
            self.log.push(GraphChange::Claim(claim.identity.clone()));
        }
    }

    /// Releases an identity. Where nobody else holds it, another value may have it already: one that came back from drift
    /// after the identity was given away. Else the claimants are marked dirty.
    pub(super) fn release(&mut self, claim: &Claim, idx: NodeIdx) {
        let identity = &claim.identity;
        let Some(claimed) = self.claims.get_mut(identity) else { return };
        let Some(at) = claimed.holders.iter().position(|&holder| holder == idx) else { return };
        claimed.holders.swap_remove(at);
        self.log.push(GraphChange::Claim(identity.clone()));
        if !claimed.holders.is_empty() {
            return;
        }
        claimed.side = None;
        for (next, claim) in self.next_holders(identity, idx) {
            let claimed = self.claims.entry(identity.clone()).or_default();
            if claimed.rival(&claim, next).is_none() {
                claimed.side = claim.side;
                claimed.holders.push(next);
            }
        }
        // Others of the side that has it now may come, too.
        let (holders, side) = self.holders(identity);
        if holders.is_empty() || side.is_some() {
            self.mark_claimants_dirty(identity, idx);
        } else if let Some(claimed) = self.claims.get(identity) {
            // They wait for another holder now.
            self.reason_changed.extend(claimed.other_claimants(idx));
        }
    }

    /// Claimants other than `idx` that have an identity already, with their claims.
    fn next_holders(&self, identity: &Facet, idx: NodeIdx) -> Vec<(NodeIdx, Claim)> {
        let claimed = self.claims.get(identity);
        let mut next: Vec<(NodeIdx, Claim)> = Vec::new();
        for claimant in claimed.into_iter().flat_map(|it| it.other_claimants(idx)) {
            let node = self.node(claimant);
            let present = node.present.iter().filter(|_| node.ours);
            let claim = present.flat_map(|it| it.claims()).find(|it| it.identity == *identity);
            if let Some(claim) = claim
                && next.iter().all(|(known, _)| *known != claimant)
            {
                next.push((claimant, claim.clone()));
            }
        }
        next
    }

    /// Marks claimants of the identities that this value was to get, and did not get.
    pub(crate) fn forgo_claims(&mut self, idx: NodeIdx) {
        let Some(spec) = self.node(idx).goal.spec().cloned() else { return };
        for claim in spec.claims() {
            if self.holders(&claim.identity).0.is_empty() {
                self.mark_claimants_dirty(&claim.identity, idx);
            }
        }
    }

    /// Marks the claimants of an identity that is free, or that others of a side hold, except the value that had it or was to have it.
    fn mark_claimants_dirty(&mut self, identity: &Facet, idx: NodeIdx) {
        let Some(claimed) = self.claims.get_mut(identity) else { return };
        let mut claimants = std::mem::take(&mut claimed.claimants);
        claimants.sort_unstable();
        claimants.dedup();
        claimants.retain(|&claimant| {
            let goal = self.node(claimant).goal.spec();
            goal.is_some_and(|spec| spec.claim_of(identity).is_some())
        });
        for &claimant in claimants.iter().filter(|&&claimant| claimant != idx) {
            self.reason_changed.push(claimant);
            let node = self.node(claimant);
            // A claimant that is just being removed for want of the identity will have to return.
            if !node.in_place() || node.running_op().is_some() {
                self.mark_dirty(claimant);
            }
        }
        if let Some(claimed) = self.claims.get_mut(identity) {
            claimed.claimants = claimants;
            if claimed.claimants.is_empty() && claimed.holders.is_empty() {
                self.claims.remove(identity);
            }
        }
    }

    pub(super) fn count_offers(
        &mut self,
        idx: NodeIdx,
        old: Option<&ValueSpec>,
        new: Option<&ValueSpec>,
    ) {
        let offers = SortedMap::difference(old.map(|t| &t.offers), new.map(|t| &t.offers));
        let (more, less) =
            difference(old.map_or(&[], |t| t.prefixes()), new.map_or(&[], |t| t.prefixes()));
        if old.is_none() != new.is_none() {
            self.count_existence(idx, new.is_some());
        }
        for offer in offers.iter().filter(|it| it.new.is_some()) {
            match self.targets.find(offer.key) {
                Some(id) => self.count_provider(id, true),
                None => {
                    self.open(offer.key, TargetState { providers: 1, ..TargetState::default() });
                }
            }
        }
        for offer in offers.iter().filter(|it| it.new.is_none()) {
            self.offer(offer.key, false);
        }
        for &(space, prefix) in more {
            self.count_prefix(space, prefix, true);
        }
        for &(space, prefix) in less {
            self.count_prefix(space, prefix, false);
        }
    }

    pub(super) fn count_existence(&mut self, idx: NodeIdx, exists: bool) {
        let kind = self.node(idx).key.kind();
        if !self.target_kinds.contains(kind) && !self.present_keys.contains_key(&kind) {
            return; // no dependency is on keys of this kind
        }
        let key = self.node(idx).key.clone();
        if let Some(keys) = self.present_keys.get_mut(&kind) {
            let _ = if exists { keys.insert(key.clone()) } else { keys.remove(&key) };
            let prefixes: Vec<Key> = key.prefixes().collect();
            for prefix in prefixes {
                self.offer(&Target::Under(prefix), exists);
            }
        }
        self.offer(&Target::Exact(key), exists);
    }

    pub(super) fn count_prefix(&mut self, space: Space, prefix: IpNet, offered: bool) {
        self.log.push(GraphChange::Prefix(Box::new((space, prefix))));
        let count = self.prefixes.entry(space, prefix);
        if offered {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                self.prefixes.remove(space, prefix);
            }
        }
        let targets: Vec<Target> = self.addresses.within(space, prefix).collect();
        for target in targets {
            self.offer(&target, offered);
        }
    }

    /// Marks values that wait for nothing but targets of this provider.
    pub(crate) fn mark_waiting_dirty(&mut self, idx: NodeIdx) {
        let watchers = self.watchers_of_new_offers(idx, None);
        self.mark_ready_dirty(&watchers);
    }

    /// Marks those of these values that have no unmet dependency.
    pub(super) fn mark_ready_dirty(&mut self, watchers: &[NodeIdx]) {
        for &watcher in watchers {
            let node = self.node(watcher);
            let waits = node.goal.spec().is_some() && node.may_be_absent();
            if waits && self.count_unmet(watcher) == 0 || self.is_reduction_stale(watcher) {
                self.mark_dirty(watcher);
            }
        }
    }

    /// Watchers of all targets that a value provides, and that `before` did not provide. May hold stale entries and
    /// duplicates.
    pub(crate) fn watchers_of_new_offers(
        &mut self,
        idx: NodeIdx,
        before: Option<&ValueSpec>,
    ) -> Vec<NodeIdx> {
        let node = self.node(idx);
        let Some(present) = node.present.clone() else { return Vec::new() };
        if before.is_some_and(|before| std::ptr::eq(before, &*present)) {
            return Vec::new();
        }
        let key = node.key.clone();
        let mut targets = provided_targets(&key, Some(&present), &[&self.addresses]);
        targets.retain(|target| before.is_none_or(|before| !before.is_offering(&key, target)));
        let states = targets.iter().filter_map(|target| self.target_state(target));
        let watchers: Vec<NodeIdx> =
            states.flat_map(|state| state.watchers.iter().copied()).collect();
        self.counters.edges += watchers.len() as u64;
        watchers
    }

    /// Counts one provider more or less, where the target has a state.
    pub(super) fn offer(&mut self, target: &Target, offered: bool) {
        if let Some(id) = self.targets.find(target) {
            self.count_provider(id, offered);
        }
    }

    /// Counts one provider more or less. The first and the last one change the readiness of the watchers.
    fn count_provider(&mut self, id: TargetId, offered: bool) {
        self.log.push(GraphChange::Providers(id));
        let state = self.targets.of_mut(id);
        state.providers = state.providers.saturating_add_signed(if offered { 1 } else { -1 });
        let turned = if offered { state.providers == 1 } else { state.providers == 0 };
        if !turned {
            return;
        }
        if state.watchers.is_empty() {
            if state.providers == 0 && state.dependents == 0 {
                self.close(id);
            }
            return;
        }
        if state.watchers.len() > self.watcher_updates.portion {
            let watchers = state.watchers.to_vec();
            return self.watcher_updates.push(id, watchers, self.is_own_change);
        }
        let mut watchers = std::mem::take(&mut state.watchers);
        if state.stale > 0 {
            state.stale = 0;
            watchers.sort_unstable();
            watchers.dedup();
        }
        self.counters.edges += watchers.len() as u64;
        watchers.retain(|idx| self.update_watcher(*idx, id, offered));
        self.targets.of_mut(id).watchers = watchers;
    }

    /// Updates a watcher of a target that was gained or lost. False when the entry is stale.
    pub(super) fn update_watcher(&mut self, idx: NodeIdx, id: TargetId, offered: bool) -> bool {
        let node = &self.nodes[idx];
        if !node.used {
            return false;
        }
        let need_count = node.need_targets.iter().filter(|&&other| other == id).count();
        let need_count = u32::try_from(need_count).unwrap_or(u32::MAX);
        let target = self.targets.target(id);
        let used = node.ours
            && node.present.as_ref().is_some_and(|spec| !spec.needs_of(target).is_empty());
        let left_out = need_count == 0 && node.goal.is_leaving_out(target);
        if (need_count > 0 && !node.in_place() || left_out) && node.running_op().is_none() {
            self.reason_changed.push(idx);
        }
        let unmet = match (self.watcher_updates.is_empty(), offered) {
            (false, _) => self.recount_unmet(idx),
            (true, true) => node.unmet.saturating_sub(need_count),
            (true, false) => node.unmet + need_count,
        };
        self.nodes[idx].unmet = unmet;
        let node = &self.nodes[idx];
        if offered {
            // A value in place whose removal is in flight will have to return.
            let waits = need_count > 0 && (!node.in_place() || node.running_op().is_some());
            if waits && unmet == 0 || self.is_reduction_stale(idx) {
                self.mark_dirty(idx);
            }
        } else {
            // A present value that could not be updated does not outlive the dependencies of its goal.
            let stuck = need_count > 0 && node.ours && node.present.is_some();
            let waits = need_count > 0 && node.may_be_absent();
            if (used || stuck) && node.running_op().is_none() {
                let own = self.is_own_change;
                let lost = if own { &mut self.lost_by_us } else { &mut self.lost_dependency };
                lost.push(idx);
            }
            if waits && self.is_reduction_stale(idx) {
                self.mark_dirty(idx); // it waited for this target, and may be reduced instead
            }
        }
        self.update_unsupported(idx);
        need_count > 0 || used || left_out
    }
}

/// True when one of these specs needs the target.
fn is_listed(all: &[Arc<ValueSpec>], target: &Target) -> bool {
    all.iter().any(|spec| !spec.needs_of(target).is_empty())
}
