//! From a change of intent, or from values that woke up, to the order of operations.
//!
//! The planner plays the change on an [`Overlay`]: it carries out whatever is allowed by then, deletes before updates
//! before creates, each round ascending by key, and keeps the accounts of what is offered and used. An operation is
//! allowed when no step leaves a value without what it needs. When nothing is allowed any more, something has to give
//! way: see [`resolve`](super::resolve). Whatever could not be created in the end is pending.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dependency::{Bond, Facet, Taken, Target};
use crate::descriptor::{Change, Effect, guarded};
use crate::graph::{Goal, Graph, Idx};
use crate::key::{FixedMap, Key};
use crate::operation::{Action, TransportId};
use crate::overlay::{Account, Accounts, Becoming, Overlay, OverlayNode, Spot, Want, spot_of};
use crate::plan::{Cause, Delta, Mode, Plan, PlanError, PlannedOperation, Work};
use crate::traits::{Traits, ordering};
use crate::value::SharedValue;

/// Rounds of ready values, by rank. What is found to be in place comes first, so that it counts as a user of the rest.
const FINDINGS: usize = 0;
const DELETES: usize = 1;
const CHANGES: usize = 2;
const CREATES: usize = 3;

/// Rounds of a plan for each value it touches, far more than needed.
const TURNS_PER_VALUE: usize = 64;

#[derive(Debug)]
pub(crate) struct Planner<'g> {
    pub(crate) overlay: Overlay<'g>,
    ready: [Vec<Spot>; 4],
    /// Deletes and changes that wait for users to go, by key.
    pub(crate) blocked: BTreeMap<Key, Spot>,
    /// The same, when all users are on their way already.
    pub(crate) spent: BTreeMap<Key, Spot>,
    /// Changes that wait for what they need.
    pub(crate) starved: BTreeMap<Key, Spot>,
    /// Creates with a dependency on a companion.
    pub(crate) companions: Vec<Spot>,
    /// What will be taken along, and by whom.
    doomed_under: FixedMap<Key, Spot>,
    doomed_of: FixedMap<Facet, Spot>,
    pub(crate) operations: Vec<PlannedOperation>,
    /// Values found to be in place.
    pub(crate) found: Vec<Spot>,
    pub(crate) restores: Vec<(Key, SharedValue)>,
    /// With one transport, the order of the plan is order enough.
    transports: bool,
}

impl<'g> Planner<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        Self {
            overlay: Overlay::new(graph),
            ready: Default::default(),
            blocked: BTreeMap::new(),
            spent: BTreeMap::new(),
            starved: BTreeMap::new(),
            companions: Vec::new(),
            doomed_under: FixedMap::default(),
            doomed_of: FixedMap::default(),
            operations: Vec::new(),
            found: Vec::new(),
            restores: Vec::new(),
            transports: transports(graph) > 1,
        }
    }

    /// Takes in values whose surroundings changed.
    pub(crate) fn revisit(&mut self, mut indexes: Vec<Idx>) {
        let graph = self.overlay.graph;
        indexes.sort_unstable_by(|&a, &b| graph.node(a).key.cmp(&graph.node(b).key));
        for idx in indexes {
            let (spot, new) = self.overlay.touch_idx(idx);
            if new {
                let drifted = graph.node(idx).applied.is_some();
                self.overlay.node_mut(spot).cause =
                    if drifted { Cause::Drift } else { Cause::Woken };
            }
        }
    }

    /// Finds the order. Everything the plan starts from has been taken in.
    pub(crate) fn run(&mut self) {
        for spot in 0..spot_of(self.overlay.nodes.len()) {
            self.classify(spot);
        }
        let mut turns = 0;
        loop {
            // Each value goes and comes at most a few times. Should that ever prove wrong, what is left stays pending.
            turns += 1;
            if turns > TURNS_PER_VALUE * (self.overlay.nodes.len() + 1) {
                debug_assert!(false, "the plan turns in a circle: {:?}", self.operations);
                return;
            }
            let rank = (FINDINGS..=CREATES).find(|&rank| !self.ready[rank].is_empty());
            let Some(rank) = rank else {
                if self.resolve() {
                    continue;
                }
                return;
            };
            let mut round = std::mem::take(&mut self.ready[rank]);
            let nodes = &self.overlay.nodes;
            round.sort_unstable_by(|&a, &b| nodes[a as usize].key.cmp(&nodes[b as usize].key));
            round.dedup();
            for spot in round {
                match rank {
                    DELETES => self.delete(spot, false),
                    FINDINGS | CHANGES => self.change(spot, false),
                    _ => self.create(spot, false),
                }
            }
        }
    }

    /// Decides what a value needs: nothing, or to go, to become, to come.
    fn classify(&mut self, spot: Spot) {
        let graph = self.overlay.graph;
        let node = self.overlay.node(spot);
        let applied = node.idx.and_then(|idx| graph.node(idx).applied.clone());
        let Some(current) = node.current.clone() else {
            if node.live.is_none() && node.leaving.is_none() {
                self.want_create(spot);
            }
            return;
        };
        match node.goal.clone() {
            Goal::Refused(..) => {}
            Goal::Nothing if applied.is_some() || graph.restores.contains_key(&node.key) => {
                self.gone(spot, None)
            }
            Goal::Nothing if graph.owned(&node.key, &current) => {
                self.gone(spot, Some(Cause::Orphan))
            }
            Goal::Nothing => {}
            Goal::Valid(value, traits)
                if graph.satisfied(&node.key, &value, &current)
                    // What is left open now may have been set by us before.
                    && !applied.as_ref().is_some_and(|applied| {
                        graph.put_back(&node.key, applied, &value).is_some()
                    }) =>
            {
                let in_place =
                    node.ours && node.live.as_ref().is_some_and(|live| Arc::ptr_eq(live, &traits));
                match in_place && applied.is_none_or(|applied| Arc::ptr_eq(&applied, &value)) {
                    true if node.unmet > 0 => self.gone(spot, Some(Cause::Parked)),
                    true => {}
                    false => self.want_change(spot, Becoming::Found),
                }
            }
            Goal::Valid(value, _) => self.classify_differing(spot, &current, &value),
        }
    }

    fn classify_differing(&mut self, spot: Spot, current: &SharedValue, value: &SharedValue) {
        if !self.is_ours(spot) {
            return self.want_change(spot, Becoming::Adopted);
        }
        let graph = self.overlay.graph;
        let key = &self.overlay.node(spot).key;
        let descriptor = graph.registry.descriptor(key.kind());
        let old = self.old_value(spot);
        let change = descriptor.map(|descriptor| {
            let old = old.as_ref().unwrap_or(current);
            guarded(|| descriptor.change(&**old, &**value)).unwrap_or(Change::Recreate)
        });
        match change {
            Some(Change::InPlace) => self.want_change(spot, Becoming::Updated),
            _ => self.gone(spot, None),
        }
    }

    /// What the system has, as an operation is told: as we asked for it, where that is what is seen.
    fn old_value(&self, spot: Spot) -> Option<SharedValue> {
        let graph = self.overlay.graph;
        let node = self.overlay.node(spot);
        let current = node.current.as_ref()?;
        let applied = node.idx.and_then(|idx| graph.node(idx).applied.as_ref());
        let as_asked = applied.filter(|applied| graph.satisfied(&node.key, applied, current));
        Some(as_asked.unwrap_or(current).clone())
    }

    pub(crate) fn want_create(&mut self, spot: Spot) {
        let node = self.overlay.node_mut(spot);
        let Goal::Valid(_, traits) = &node.goal else {
            node.want = Want::Nothing;
            return;
        };
        let companion = traits.needs.iter().any(|need| need.bond == Bond::Together);
        node.want = Want::Create;
        if node.unmet == 0 {
            self.ready[CREATES].push(spot);
        } else if companion {
            self.companions.push(spot);
        }
    }

    fn want_change(&mut self, spot: Spot, becoming: Becoming) {
        let node = self.overlay.node_mut(spot);
        node.want = Want::Become(becoming);
        self.ready[rank(becoming)].push(spot);
        let next = self.next(spot);
        self.overlay.fade(
            spot,
            next.as_ref().map(|(_, traits)| &**traits),
            becoming == Becoming::Updated,
        );
        if becoming != Becoming::Updated {
            return;
        }
        let node = self.overlay.node(spot);
        if let (Some(live), Some(new)) = (node.live.clone(), node.goal.traits().cloned()) {
            let lost = live.property_takes.iter().filter(|(property, _)| !new.offers(property));
            for (_, taken) in lost {
                self.doom(taken, spot);
            }
        }
        let account = self.overlay.existing(&Target::Exact(self.overlay.node(spot).key.clone()));
        if let Some(account) = account.filter(|&account| self.overlay.group(account).renewers > 0) {
            for user in self.overlay.users(account, true) {
                self.park(user);
            }
        }
    }

    /// Has a value go: deleted, or given back where it was there before us.
    pub(crate) fn gone(&mut self, spot: Spot, cause: Option<Cause>) {
        let restore = self.overlay.graph.restores.contains_key(&self.overlay.node(spot).key);
        let node = self.overlay.node_mut(spot);
        node.cause = cause.unwrap_or(node.cause);
        if restore {
            return self.want_change(spot, Becoming::Released);
        }
        node.want = Want::Delete;
        let live = node.live.clone();
        self.ready[DELETES].push(spot);
        self.overlay.fade(spot, None, false);
        if let Some(traits) = live {
            let properties = traits.property_takes.iter().map(|(_, taken)| taken);
            for taken in traits.takes.iter().chain(properties) {
                self.doom(taken, spot);
            }
        }
    }

    fn doom(&mut self, taken: &Taken, by: Spot) {
        match taken {
            Taken::Under(prefix) => self.doomed_under.entry(prefix.clone()).or_insert(by),
            Taken::Of(facet) => self.doomed_of.entry(facet.clone()).or_insert(by),
        };
    }

    /// Has a value go because of another one, to come back when it can. False when it goes already.
    pub(crate) fn park(&mut self, spot: Spot) -> bool {
        let node = self.overlay.node(spot);
        match node.want {
            _ if node.live.is_none() => false,
            Want::Delete | Want::Become(Becoming::Released) => false,
            _ => {
                self.starved.remove(&node.key.clone());
                self.gone(spot, Some(Cause::Parked));
                true
            }
        }
    }

    pub(crate) fn delete(&mut self, spot: Spot, force: bool) {
        let node = self.overlay.node(spot);
        let (Want::Delete, Some(live)) = (&node.want, node.live.clone()) else { return };
        let key = node.key.clone();
        let (_, lost) = self.overlay.shift(&key, Some(&live), None);
        if !force && self.is_blocked(spot, &live, &lost) {
            return self.park_idle(spot, &key);
        }
        self.unblock(&key);
        match self.carrier(spot, &live) {
            Some(carrier) => self.leave_with(spot, carrier, live),
            None => {
                let old = self.old_value(spot);
                let op = self.emit(spot, Action::Delete, old, None, &lost);
                self.overlay.become_live(spot, None, false, Some(op));
                self.overlay.unfade(spot);
                self.went(spot, op);
                self.turn();
            }
        }
    }

    /// Nobody else can be there under the key of a value that goes: its users go first, unless they are to change.
    fn park_idle(&mut self, spot: Spot, key: &Key) {
        if std::mem::replace(&mut self.overlay.node_mut(spot).warned, true) {
            return;
        }
        let Some(account) = self.overlay.existing(&Target::Exact(key.clone())) else { return };
        for user in self.overlay.users(account, false) {
            if user != spot && matches!(self.overlay.node(user).want, Want::Nothing) {
                self.park(user);
            }
        }
    }

    /// A value has gone: so have those that went with it, and it may come again.
    fn went(&mut self, spot: Spot, op: u32) {
        self.overlay.node_mut(spot).current = None;
        self.take_attached(spot, op);
        self.come_again(spot);
    }

    fn take_attached(&mut self, spot: Spot, op: u32) {
        for attached in std::mem::take(&mut self.overlay.node_mut(spot).attached) {
            self.leave_now(attached, op);
        }
    }

    fn come_again(&mut self, spot: Spot) {
        let node = self.overlay.node_mut(spot);
        node.want = Want::Nothing;
        if node.cause == Cause::Parked {
            node.cause = Cause::Returned;
        }
        self.want_create(spot);
    }

    /// Who takes this value along when it goes, or took it already.
    fn carrier(&self, spot: Spot, live: &Traits) -> Option<Spot> {
        if self.overlay.node(spot).op.is_some() {
            return None; // made by this plan, after whatever was taken along
        }
        let under = (!self.doomed_under.is_empty())
            .then(|| {
                self.overlay
                    .node(spot)
                    .key
                    .prefixes()
                    .find_map(|prefix| self.doomed_under.get(&prefix))
            })
            .flatten();
        let facets = live.offers.iter().filter_map(|target| match target {
            Target::AnyOf(facet) => self.doomed_of.get(facet),
            _ => None,
        });
        let mut candidates = under.into_iter().chain(facets).map(|&by| self.root(by));
        candidates.find(|&by| by != spot)
    }

    /// The value whose operation takes another one along in the end.
    fn root(&self, mut spot: Spot) -> Spot {
        while let Some(carrier) = self.overlay.node(spot).carrier {
            spot = carrier;
        }
        spot
    }

    /// The system will remove the value with its carrier: no operation, but gone only when the carrier goes.
    fn leave_with(&mut self, spot: Spot, carrier: Spot, live: Arc<Traits>) {
        let node = self.overlay.node_mut(spot);
        node.leaving = Some(live);
        node.carrier = Some(carrier);
        node.current = None;
        node.want = Want::Nothing;
        self.overlay.become_live(spot, None, false, None);
        self.overlay.unfade(spot);
        let attached = std::mem::take(&mut self.overlay.node_mut(spot).attached);
        let done = self.overlay.node(carrier);
        match done.op.filter(|_| matches!(done.want, Want::Nothing | Want::Create)) {
            Some(op) => {
                for spot in attached.into_iter().chain([spot]) {
                    self.leave_now(spot, op);
                }
            }
            None => {
                for &other in &attached {
                    self.overlay.node_mut(other).carrier = Some(carrier);
                }
                let list = &mut self.overlay.node_mut(carrier).attached;
                list.extend(attached);
                list.push(spot);
            }
        }
        self.turn();
    }

    fn leave_now(&mut self, spot: Spot, op: u32) {
        let node = self.overlay.node_mut(spot);
        node.carrier = None;
        node.op = Some(op);
        let traits = node.leaving.take();
        let key = node.key.clone();
        self.operations[op as usize].taken.push(key);
        for claim in traits.iter().flat_map(|traits| &traits.claims) {
            self.overlay.release(claim, spot, Some(op));
        }
        self.come_again(spot);
    }

    pub(crate) fn change(&mut self, spot: Spot, force: bool) {
        let node = self.overlay.node(spot);
        let (&Want::Become(becoming), Some(live)) = (&node.want, node.live.clone()) else { return };
        let (key, unmet) = (node.key.clone(), node.unmet);
        let Some((value, new)) = self.next(spot) else { return };
        let needy = becoming != Becoming::Released;
        let waits = needy && (unmet > 0 || self.leans_on_itself(spot, &live, &new));
        let held = needy && becoming != Becoming::Found && self.overlay.is_held(spot, &new);
        if waits || held || needy && self.is_claimed(spot, &new) {
            self.starved.insert(key, spot);
            return;
        }
        let (_, mut lost) = self.overlay.shift(&key, Some(&live), Some(&new));
        if becoming == Becoming::Updated {
            lost.extend(self.renewed(&key));
        }
        if !force && self.is_blocked(spot, &live, &lost) {
            return;
        }
        self.starved.remove(&key);
        self.unblock(&key);
        self.apply_change(spot, becoming, value, new, &lost);
    }

    /// True when a value would need, from now on, what only itself offers, or what needs it in turn: it could never have
    /// been created so.
    fn leans_on_itself(&self, spot: Spot, live: &Traits, new: &Arc<Traits>) -> bool {
        let key = &self.overlay.node(spot).key;
        let added = ordering(&new.needs).filter(|need| live.needs_of(&need.target).is_empty());
        let mut leans = false;
        for need in added {
            leans |= live.is_offering(key, &need.target) && self.overlay.avail(&need.target) <= 1;
            leans |=
                matches!(&need.target, Target::Exact(other) if self.overlay.rests_on(other, key));
        }
        leans
    }

    /// What a value that changes in place is to become.
    pub(crate) fn next(&self, spot: Spot) -> Option<(SharedValue, Arc<Traits>)> {
        let graph = self.overlay.graph;
        let node = self.overlay.node(spot);
        match (&node.want, &node.goal) {
            (Want::Become(Becoming::Released), _) => {
                let value = graph.restores.get(&node.key)?.clone();
                let traits = Traits::obtained(&graph.registry, &node.key, &value);
                Some((value, traits))
            }
            (Want::Become(_), Goal::Valid(value, traits)) => Some((value.clone(), traits.clone())),
            _ => None,
        }
    }

    /// True for what we made, or may remove because of its mark.
    pub(crate) fn is_ours(&self, spot: Spot) -> bool {
        let graph = self.overlay.graph;
        let node = self.overlay.node(spot);
        if node.ours || node.op.is_some() {
            return node.ours; // what this plan did to it counts
        }
        let applied = node.idx.is_some_and(|idx| graph.node(idx).applied.is_some());
        let marked =
            || node.current.as_ref().is_some_and(|current| graph.owned(&node.key, current));
        applied || graph.restores.contains_key(&node.key) || marked()
    }

    /// The account of a key when somebody wants to be made anew with it.
    pub(crate) fn renewed(&mut self, key: &Key) -> Option<Account> {
        let account = self.overlay.existing(&Target::Exact(key.clone()))?;
        (self.overlay.group(account).renewers > 0).then_some(account)
    }

    fn apply_change(
        &mut self,
        spot: Spot,
        becoming: Becoming,
        value: SharedValue,
        new: Arc<Traits>,
        lost: &Accounts,
    ) {
        let old = self.old_value(spot);
        let action = match becoming {
            Becoming::Updated => Action::Update,
            Becoming::Adopted => Action::Adopt,
            Becoming::Released => Action::Release,
            Becoming::Found => {
                // It is as asked already, and still someone else's: it must outlive our intent.
                if !self.is_ours(spot) {
                    self.note_restore(spot);
                }
                self.overlay.become_live(spot, Some(new), true, None);
                self.overlay.unfade(spot);
                self.overlay.node_mut(spot).want = Want::Nothing;
                self.found.push(spot);
                return self.turn();
            }
        };
        if becoming == Becoming::Adopted {
            self.note_restore(spot);
        }
        let op = self.emit(spot, action, old, Some(value.clone()), lost);
        self.overlay.become_live(spot, Some(new), becoming != Becoming::Released, Some(op));
        self.overlay.unfade(spot);
        self.take_attached(spot, op);
        let node = self.overlay.node_mut(spot);
        node.current = Some(value);
        node.want = Want::Nothing;
        if becoming == Becoming::Released && matches!(node.goal, Goal::Valid(..)) {
            self.want_change(spot, Becoming::Adopted);
        }
        self.turn();
    }

    /// Remembers what an object was before us, where it must be put back one day.
    fn note_restore(&mut self, spot: Spot) {
        let graph = self.overlay.graph;
        let node = self.overlay.node(spot);
        let (Some(observed), Some(descriptor)) =
            (&node.current, graph.registry.descriptor(node.key.kind()))
        else {
            return;
        };
        if let Ok(Some(restore)) = guarded(|| descriptor.restore(&**observed)) {
            self.restores.push((node.key.clone(), restore));
        }
    }

    pub(crate) fn create(&mut self, spot: Spot, force: bool) {
        let node = self.overlay.node(spot);
        let (Want::Create, Goal::Valid(value, traits)) = (&node.want, &node.goal) else { return };
        if node.live.is_some() || node.leaving.is_some() {
            return;
        }
        if node.unmet > 0 && !force {
            return self.want_create(spot); // lost what it had when it was found ready
        }
        let (value, traits) = (value.clone(), traits.clone());
        if self.overlay.is_held(spot, &traits) || self.is_claimed(spot, &traits) {
            return;
        }
        let op = self.emit(spot, Action::Create, None, Some(value.clone()), &Accounts::new());
        self.overlay.become_live(spot, Some(traits), true, Some(op));
        let node = self.overlay.node_mut(spot);
        node.current = Some(value);
        node.want = Want::Nothing;
        self.turn();
    }

    /// True when another value has an identity that this one needs; then it is tried again when that goes.
    fn is_claimed(&mut self, spot: Spot, traits: &Traits) -> bool {
        let mut claimed = false;
        for claim in &traits.claims {
            let state = self.overlay.claim_mut(claim);
            if state.holder.is_some_and(|holder| holder != spot) {
                state.waiting.push(spot);
                claimed = true;
            }
        }
        claimed
    }

    /// True when users must go first; then it is tried again when they are gone.
    fn is_blocked(&mut self, spot: Spot, live: &Arc<Traits>, lost: &Accounts) -> bool {
        let blocking = self.blocking(live, lost);
        for &account in &blocking {
            self.overlay.groups[account as usize].blocked.push(spot);
        }
        if !blocking.is_empty() {
            let key = self.overlay.node(spot).key.clone();
            self.spent.remove(&key);
            self.blocked.insert(key, spot);
        }
        !blocking.is_empty()
    }

    /// The accounts among these whose last offer would go while somebody uses it.
    pub(crate) fn blocking(&mut self, live: &Arc<Traits>, lost: &Accounts) -> Accounts {
        let mut blocking = Accounts::new();
        for &account in lost {
            let group = self.overlay.group(account);
            let last = group.avail <= 1 || group.renewers > 0;
            if last && group.users > 0 && group.users > self.overlay.own_uses(live, account) {
                blocking.push(account);
            }
        }
        blocking
    }

    fn unblock(&mut self, key: &Key) {
        self.blocked.remove(key);
        self.spent.remove(key);
    }

    fn emit(
        &mut self,
        spot: Spot,
        action: Action,
        old: Option<SharedValue>,
        new: Option<SharedValue>,
        lost: &Accounts,
    ) -> u32 {
        let key = self.overlay.node(spot).key.clone();
        let effect = self
            .overlay
            .graph
            .registry
            .descriptor(key.kind())
            .map(|descriptor| descriptor.effect());
        let transport = match effect {
            Some(Effect::Operation(transport)) => transport,
            _ => TransportId::default(),
        };
        let after = if self.transports {
            self.predecessors(spot, transport, new.is_some(), lost)
        } else {
            SmallVec::new()
        };
        let op = spot_of(self.operations.len());
        let node = self.overlay.node_mut(spot);
        node.op = Some(op);
        let cause = node.cause;
        self.operations.push(PlannedOperation {
            action,
            key,
            old,
            new,
            transport,
            cause,
            taken: Vec::new(),
            after,
            spot,
        });
        op
    }

    /// The last operation of each other transport that must have come to its end.
    fn predecessors(
        &mut self,
        spot: Spot,
        own: TransportId,
        makes: bool,
        lost: &Accounts,
    ) -> SmallVec<[u32; 1]> {
        let node = self.overlay.node(spot);
        let mut before: SmallVec<[u32; 8]> = node.op.into_iter().collect();
        if makes {
            before.extend(
                node.accounts.iter().filter_map(|&account| self.overlay.group(account).made_by),
            );
            let claims = node.goal.traits().filter(|traits| !traits.claims.is_empty()).cloned();
            for claim in claims.iter().flat_map(|traits| &traits.claims) {
                before.extend(self.overlay.claim_mut(claim).freed_by);
            }
        }
        for &account in lost {
            let group = self.overlay.group(account);
            before.extend(group.freed_by.iter().copied().chain(group.made_by));
        }
        let mut last: SmallVec<[u32; 1]> = SmallVec::new();
        for op in before {
            let transport = |op: u32| self.operations[op as usize].transport;
            match last.iter_mut().find(|last| transport(**last) == transport(op)) {
                _ if transport(op) == own => {}
                Some(last) => *last = op.max(*last),
                None => last.push(op),
            }
        }
        last
    }

    /// Refuses a change that asks for an identity which another value keeps.
    fn refuse_claims(&mut self) -> Result<(), PlanError> {
        for spot in 0..spot_of(self.overlay.nodes.len()) {
            let node = self.overlay.node(spot);
            let waits = node.changed && node.unmet == 0 && !matches!(node.want, Want::Nothing);
            let Some((value, traits)) = (match &node.goal {
                Goal::Valid(value, traits) if waits => Some((value.clone(), traits.clone())),
                _ => None,
            }) else {
                continue;
            };
            for claim in &traits.claims {
                let holder = self.overlay.claim_mut(claim).holder.filter(|&holder| holder != spot);
                let Some(holder) = holder.map(|holder| self.overlay.node(holder)) else { continue };
                let registry = &self.overlay.graph.registry;
                let key = self.overlay.node(spot).key.clone();
                let label = registry.label(&key, Some(&*value));
                let other = registry.label(&holder.key, holder.goal.value().map(|value| &**value));
                return Err(PlanError::Conflict { key, label, other });
            }
        }
        Ok(())
    }

    /// Acts on all readiness that changed.
    pub(crate) fn turn(&mut self) {
        for spot in std::mem::take(&mut self.overlay.turned.bereft) {
            self.park(spot);
        }
        for spot in std::mem::take(&mut self.overlay.turned.freed) {
            match self.overlay.node(spot).want {
                Want::Delete => self.ready[DELETES].push(spot),
                Want::Become(becoming) => self.ready[rank(becoming)].push(spot),
                _ => {}
            }
        }
        for spot in std::mem::take(&mut self.overlay.turned.ready) {
            match self.overlay.node(spot).want {
                Want::Create => self.ready[CREATES].push(spot),
                Want::Become(becoming) => self.ready[rank(becoming)].push(spot),
                Want::Nothing if self.overlay.node(spot).leaving.is_none() => self.classify(spot),
                _ => {}
            }
        }
    }
}

fn rank(becoming: Becoming) -> usize {
    if becoming == Becoming::Found { FINDINGS } else { CHANGES }
}

/// Plans a change of intent together with values to be looked at again.
///
/// # Errors
/// When an atomic change is refused as a whole.
pub(crate) fn plan(graph: &Graph, delta: Delta, revisit: Vec<Idx>) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(graph);
    planner.intend(&delta)?;
    planner.revisit(revisit);
    planner.run();
    if delta.mode == Mode::Atomic {
        planner.refuse_claims()?;
    }
    let overlay = planner.overlay;
    Ok(Plan {
        delta,
        operations: planner.operations,
        found: planner.found,
        restores: planner.restores,
        revision: graph.revision,
        registry: Arc::clone(&graph.registry),
        work: Work { visited: overlay.nodes.len() as u64, edges: overlay.edges },
        nodes: overlay.nodes,
    })
}

/// The goals of a change alone, without a way to them.
pub(crate) fn goals(graph: &Graph, delta: &Delta) -> Result<Vec<OverlayNode>, PlanError> {
    let mut planner = Planner::new(graph);
    planner.intend(delta)?;
    Ok(planner.overlay.nodes)
}

/// How many transports the registered kinds use.
fn transports(graph: &Graph) -> usize {
    let mut all: Vec<TransportId> = Vec::new();
    for descriptor in graph.registry.iter() {
        if let Effect::Operation(transport) = descriptor.effect() {
            all.push(transport);
        }
    }
    all.sort_unstable();
    all.dedup();
    all.len()
}
