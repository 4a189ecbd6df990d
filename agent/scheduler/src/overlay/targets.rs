//! Targets of an overlay: opened with the counts of the graph, and updated as the plan goes on.

use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::{
    Overlay, OverlayClaim, OverlayIdx, OverlayTarget, OverlayTargetId, OverlayTargetIds, TargetRef,
    to_u32,
};
use crate::dependency::{Claim, Facet, Space, Target};
use crate::graph::{TargetId, TargetState, difference};
use crate::key::{Key, hash_of};
use crate::sorted_map::SortedMap;
use crate::targets::addresses_within;
use crate::value_spec::ValueSpec;

impl Overlay<'_> {
    /// Index of a target, opened with the counts of the graph and of this plan so far.
    pub(crate) fn target_id(&mut self, target: &Target) -> OverlayTargetId {
        let hash = hash_of(target);
        match self.graph.find_target(target, hash) {
            Some(graph_id) => self.known_target_id(graph_id, target),
            None => match self.find_unknown_target_id(target, hash) {
                Some(target_id) => target_id,
                None => {
                    let target_id = self.open(target, None);
                    let target_refs = &self.target_refs;
                    let of = |target_id: u32| hash_of(&target_refs[target_id as usize].target);
                    self.reads.by_target.insert(hash, target_id, of);
                    target_id
                }
            },
        }
    }

    /// Index of a target of the graph.
    pub(super) fn known_target_id(
        &mut self,
        graph_id: TargetId,
        target: &Target,
    ) -> OverlayTargetId {
        if let Some(&target_id) = self.reads.by_known_target.get(&graph_id) {
            return target_id;
        }
        let target_id = self.open(target, Some(graph_id));
        self.reads.by_known_target.insert(graph_id, target_id);
        target_id
    }

    /// Opens a target with the counts of the graph.
    fn open(&mut self, target: &Target, graph_id: Option<TargetId>) -> OverlayTargetId {
        let state = graph_id.map(|id| self.graph.target_at(id));
        let state = OverlayTarget {
            providers: self.initial_provider_count(target, state),
            dependents: state.map_or(0, |state| state.dependents),
            ..OverlayTarget::default()
        };
        debug_assert!(
            !self.goals_set || graph_id.is_some(),
            "{target:?} was offered and not counted"
        );
        self.targets.push(state);
        let target_id = to_u32(self.targets.len() - 1);
        self.target_refs.push(TargetRef { target: target.clone(), graph_id });
        match target {
            Target::Exact(key) => self.reads.target_kinds.insert(key.kind()),
            Target::Under(_) => self.reads.unders = true,
            Target::Covering { space, address } => {
                self.reads.addresses.insert(*space, *address);
            }
            _ => {}
        }
        target_id
    }

    /// Index of a target that may have watchers; `None` when nothing can depend on it.
    pub(crate) fn existing_target_id(&mut self, target: &Target) -> Option<OverlayTargetId> {
        let hash = hash_of(target);
        match self.graph.find_target(target, hash) {
            Some(graph_id) => Some(self.known_target_id(graph_id, target)),
            None => {
                let added = self.find_unknown_target_id(target, hash);
                if added.is_none() {
                    self.reads.missed.insert(hash);
                }
                added
            }
        }
    }

    /// Marks the targets that a value will no longer provide, so that nothing new relies on it.
    pub(crate) fn mark_going(&mut self, oidx: OverlayIdx, next: Option<&ValueSpec>) {
        self.clear_going(oidx);
        let key = self.node(oidx).key.clone();
        let present = self.node(oidx).present.clone();
        let (_, lost) = self.provider_changes(&key, present.as_deref(), next);
        for &target_id in &lost {
            self.target_mut(target_id).going += 1;
        }
        self.going += lost.len();
        if !lost.is_empty() {
            self.node_mut(oidx).removal_mut().going = lost;
        }
    }

    /// Clears the marks of a value that has changed, or will not.
    pub(crate) fn clear_going(&mut self, oidx: OverlayIdx) {
        let Some(removal) = &mut self.node_mut(oidx).removal else { return };
        let lost = std::mem::take(&mut removal.going);
        self.going -= lost.len();
        for target_id in lost {
            let state = self.target_mut(target_id);
            state.going -= 1;
            // With no provider left, the next one notifies the waiting nodes.
            if state.providers == 0 || state.providers > state.going {
                let waiting = state.take_waiting();
                self.ready_changes.ready.extend(waiting);
            }
        }
    }

    /// True when a target of a value is about to go; the value is tried again after that.
    pub(crate) fn waits_for_going(&mut self, oidx: OverlayIdx, spec: &Arc<ValueSpec>) -> bool {
        if self.going == 0 {
            return false;
        }
        let mut waiting = false;
        let target_ids = self.target_ids_of(oidx, spec);
        for target_id in target_ids {
            let state = &mut self.targets[target_id as usize];
            if !state.stays() {
                state.removal_mut().waiting.push(oidx);
                waiting = true;
            }
        }
        waiting
    }

    /// True for a present value with an unmet dependency.
    pub(crate) fn has_unmet(&self, oidx: OverlayIdx) -> bool {
        let node = self.node(oidx);
        node.present.is_some() && node.need_targets.iter().any(|&it| self.target(it).providers == 0)
    }

    /// Number of providers of a target that is opened now.
    fn initial_provider_count(&self, target: &Target, state: Option<&TargetState>) -> u32 {
        let counted = state.map(|it| it.providers);
        if let Target::Exact(key) = target {
            let hash = hash_of(key);
            let idx = self.graph.find_hashed(key, hash);
            let there = || idx.is_some_and(|idx| self.graph.node(idx).present.is_some());
            let base = counted.unwrap_or_else(|| u32::from(there()));
            let oidx = match idx {
                Some(idx) => self.reads.by_idx.get(&idx).copied(),
                None => self.find_added(key, hash),
            };
            let since = oidx.map_or(0, |oidx| self.existence(oidx));
            return u32::try_from(i64::from(base) + since).unwrap_or(0);
        }
        let base = i64::from(counted.unwrap_or_else(|| self.graph.count(target)));
        let since = match target {
            Target::Under(prefix) => {
                let oidxs = (0..to_u32(self.nodes.len()))
                    .filter(|&oidx| self.node(oidx).key.starts_with(prefix));
                oidxs.map(|oidx| self.existence(oidx)).sum()
            }
            Target::Covering { space, address } => {
                let within = self
                    .prefixes
                    .iter()
                    .filter(|((other, prefix), _)| other == space && prefix.contains(address));
                within.map(|(_, count)| count).sum()
            }
            // Providers of these are counted from the first one on, with or without watchers.
            Target::Exact(_) | Target::AnyOf(_) | Target::Whole(_) => 0,
        };
        u32::try_from(base + since).unwrap_or(0)
    }

    /// Existence of a node relative to the graph: 1, 0 or -1.
    pub(super) fn existence(&self, oidx: OverlayIdx) -> i64 {
        let node = self.node(oidx);
        let before = node.idx.is_some_and(|idx| self.graph.node(idx).present.is_some());
        i64::from(node.present.is_some()) - i64::from(before)
    }

    /// Targets that a value under this key provides more, and less, after such a change; watched ones only. Every
    /// target that can be needed later is known by then: all goals are set before the simulation begins, and the graph
    /// has the targets of all its values.
    pub(crate) fn provider_changes(
        &mut self,
        key: &Key,
        old: Option<&ValueSpec>,
        new: Option<&ValueSpec>,
    ) -> (OverlayTargetIds, OverlayTargetIds) {
        let offers = SortedMap::difference(old.map(|t| &t.offers), new.map(|t| &t.offers));
        let (more, less) =
            difference(old.map_or(&[], |t| t.prefixes()), new.map_or(&[], |t| t.prefixes()));
        let mut gained = OverlayTargetIds::new();
        let mut lost = OverlayTargetIds::new();
        for offer in offers {
            let target_ids = if offer.new.is_some() { &mut gained } else { &mut lost };
            if !matches!(offer.key, Target::Exact(key) if !self.is_target_kind(key)) {
                target_ids.extend(self.existing_target_id(offer.key));
            }
        }
        for &&(space, prefix) in &more {
            self.covering(space, prefix, &mut gained);
        }
        for &&(space, prefix) in &less {
            self.covering(space, prefix, &mut lost);
        }
        match (old.is_some(), new.is_some()) {
            (false, true) => self.existence_target_ids(key, &mut gained),
            (true, false) => self.existence_target_ids(key, &mut lost),
            _ => {}
        }
        (gained, lost)
    }

    /// Collects the watched addresses within a prefix.
    pub(super) fn covering(
        &mut self,
        space: Space,
        prefix: IpNet,
        target_ids: &mut OverlayTargetIds,
    ) {
        let sets = [&self.graph.addresses, &self.reads.addresses];
        let targets = addresses_within(&sets, space, prefix);
        self.reads.prefixes.insert((space, prefix));
        for target in &targets {
            target_ids.push(self.target_id(target));
        }
    }

    /// Collects the targets of a key itself, where they are watched: most keys are not.
    pub(super) fn existence_target_ids(&mut self, key: &Key, target_ids: &mut OverlayTargetIds) {
        if self.is_target_kind(key) {
            target_ids.extend(self.existing_target_id(&Target::Exact(key.clone())));
        }
        if self.reads.unders || self.graph.has_under_targets(key.kind()) {
            for prefix in key.prefixes() {
                target_ids.extend(self.existing_target_id(&Target::Under(prefix)));
            }
        }
    }

    /// True when any key of this kind is a target, here or in the graph.
    fn is_target_kind(&self, key: &Key) -> bool {
        self.reads.target_kinds.contains(key.kind()) || self.graph.target_kinds.contains(key.kind())
    }

    pub(super) fn count_prefixes(&mut self, spec: Option<&ValueSpec>, sign: i64) {
        for offered in spec.map_or(&[][..], |spec| spec.prefixes()) {
            *self.prefixes.entry(*offered).or_default() += sign;
        }
    }

    pub(super) fn move_dependents(
        &mut self,
        oidx: OverlayIdx,
        spec: Option<Arc<ValueSpec>>,
        sign: i32,
        by: Option<u32>,
    ) {
        let Some(spec) = spec else { return };
        let target_ids = self.target_ids_of(oidx, &spec);
        for target_id in target_ids {
            let state = &mut self.targets[target_id as usize];
            state.dependents = state.dependents.saturating_add_signed(sign);
            if sign < 0 {
                if let Some(by) = by {
                    state.removal_mut().released_by.push(by);
                }
                if state.dependents == 0 {
                    let unblocked = state.take_blocked();
                    self.ready_changes.unblocked.extend(unblocked);
                }
            }
        }
        for claim in spec.claims() {
            if sign > 0 {
                self.take(claim, oidx);
            } else if self.node(oidx).in_cascade.is_none() {
                self.release(claim, oidx, by);
            }
        }
    }

    /// Gives an identity to a value, unless others hold it with which this one cannot.
    fn take(&mut self, claim: &Claim, oidx: OverlayIdx) {
        let claimed = self.claim_mut(&claim.identity);
        if claimed.rival(claim, oidx).is_none() && !claimed.holders.contains(&oidx) {
            claimed.side = claim.side;
            claimed.holders.push(oidx);
        }
    }

    pub(crate) fn release(&mut self, claim: &Claim, oidx: OverlayIdx, by: Option<u32>) {
        let claimed = self.claim_mut(&claim.identity);
        let held = claimed.holders.len();
        claimed.holders.retain(|holder| *holder != oidx);
        if claimed.holders.len() < held || held == 0 {
            claimed.left_by.extend(by);
        }
        if claimed.holders.is_empty() {
            claimed.released_by = std::mem::take(&mut claimed.left_by);
            let waiting = std::mem::take(&mut claimed.waiting);
            self.ready_changes.ready.extend(waiting);
        }
    }

    /// State of an identity, opened with its holders in the graph.
    pub(crate) fn claim_mut(&mut self, identity: &Facet) -> &mut OverlayClaim {
        if !self.reads.claims.contains_key(identity) {
            let (holders, side) = self.graph.holders(identity);
            let mut holders: SmallVec<[OverlayIdx; 1]> =
                holders.iter().map(|&idx| self.touch_idx(idx).0).collect();
            holders.retain(|&mut oidx| {
                // The holder may have gone by this plan before the identity was looked up.
                let node = self.node(oidx);
                let present = node.present.as_ref().filter(|_| node.ours);
                present.is_some_and(|present| present.claim_of(identity).is_some())
                    || node.in_cascade.is_some()
            });
            let claimed = OverlayClaim { holders, side, ..OverlayClaim::default() };
            self.reads.claims.insert(identity.clone(), claimed);
        }
        self.reads.claims.get_mut(identity).expect("just made")
    }

    pub(super) fn add_provider(&mut self, target_id: OverlayTargetId, by: Option<u32>) {
        let state = self.target_mut(target_id);
        state.providers += 1;
        if state.providers > state.going {
            let waiting = state.take_waiting();
            self.ready_changes.ready.extend(waiting);
        }
        let state = self.target_mut(target_id);
        state.last_provided_by = by;
        if state.providers == 1 {
            state.first_provided_by = by;
            self.notify_watchers(target_id, true);
            return;
        }
        if let Some(unblocked) = state.removal.as_mut().and_then(|removal| removal.blocked.pop()) {
            // One more provider lets one of the former last ones go; each pass unblocks the next.
            self.ready_changes.unblocked.push(unblocked);
        }
    }

    pub(super) fn remove_provider(&mut self, target_id: OverlayTargetId) {
        let state = self.target_mut(target_id);
        state.providers = state.providers.saturating_sub(1);
        if state.providers == 0 {
            self.notify_watchers(target_id, false);
        }
    }
}
