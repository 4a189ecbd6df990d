//! Complete readings of the system, or of a part of it: only differences become operations.
//!
//! To take in a reading of a hundred thousand objects takes longer than an event may wait. So it is done in portions: the
//! first when the reading comes, the others by [`Engine::due`], between events.
//!
//! ```text
//! items of a reading:  facts | list of values | values in its scope     | check of all values
//!                            | in its scope   | that it does not name   | in its scope
//!                      ===== portion ====== portion ===== ...
//!                            ^  an event on a key: what the reading says of that key is taken in first
//! ```
//!
//! *Invariant:* an event that comes meanwhile is judged as one that comes after the whole reading.
//!
//! * A fact, or the answer to an operation, finds what the reading says of its keys taken in.
//! * Nothing is planned from the half of a reading: no transaction begins, and none that failed is undone.
//!   Transactions in flight go on.
//! * Values that lost a dependency are looked at in the end: the rest of the reading may have another provider.
//! * While a plan is being taken over, a reading waits.

use crate::engine::Engine;
use crate::graph::NodeIdx;
use crate::key::Key;
use crate::operation::{Fact, Now};
use crate::output::EngineOutput;
use crate::overlay::to_u32;
use crate::portion::drop_beside;
use crate::reading::{Item, Reading, SLOTS_PER_ITEM, Scope, SortedFacts};

impl Engine {
    /// Begins to take in a complete set of facts, and does the first portion: keys in `scope` without a fact are absent, and
    /// every difference is planned for.
    pub(crate) fn begin_reading(
        &mut self,
        scope: Scope,
        facts: SortedFacts,
        now: Now,
        step: &mut EngineOutput,
    ) {
        self.read_portion(usize::MAX, now, step); // the one before
        self.reading = Some(Box::new(Reading::new(scope, facts)));
        self.continue_reading(now, step);
    }

    /// Does the next portion of the reading that is under way, if there is one.
    pub(crate) fn continue_reading(&mut self, now: Now, step: &mut EngineOutput) {
        if self.running.in_take_over().is_none() {
            self.read_portion(self.portion, now, step);
        }
    }

    fn read_portion(&mut self, items: usize, now: Now, step: &mut EngineOutput) {
        let Some(mut reading) = self.reading.take() else { return };
        let mut left = items;
        while left > 0 {
            let Some(item) = reading.next(self.graph.slots()) else {
                // Values that need what has come or gone are looked at in the end, too.
                self.graph.update_watchers(left);
                if self.graph.watcher_updates.is_empty() {
                    return self.end_reading(reading, step);
                }
                break;
            };
            let cost = match item {
                Item::List => self.list_values(&mut reading, left),
                _ => 1,
            };
            left -= cost;
            self.graph.counters.read_in += cost as u64;
            match item {
                Item::Fact(at) => {
                    let fact = reading.take_fact(at);
                    if !reading.ahead.contains_key(&fact.key) {
                        self.take_in(fact, &mut reading, now, step);
                    }
                }
                Item::List => {}
                Item::Unnamed(idx) if reading.ahead.contains_key(&self.graph.node(idx).key) => {}
                Item::Unnamed(idx) => self.take_in_absence(idx, now, step),
                Item::Check(idx) if self.graph.is_out_of_place(idx) => self.graph.mark_dirty(idx),
                Item::Check(_) => {}
            }
        }
        self.reading = Some(reading);
    }

    /// Lists values in the scope of a reading for as long as some items take. Returns how many.
    fn list_values(&self, reading: &mut Reading, items: usize) -> usize {
        let registry = &self.graph.registry;
        let left = reading.list_slots(self.graph.slots());
        let count = left.len().min(items.saturating_mul(SLOTS_PER_ITEM));
        let end = left.start + to_u32(count);
        reading.unlisted = Some(end..left.end);
        for (idx, node) in self.graph.nodes_in(left.start..end) {
            if reading.scope.holds(node, registry) {
                let is_named = reading.named.contains_key(&idx);
                let list = if is_named { &mut reading.others } else { &mut reading.unnamed };
                list.push(idx);
            }
        }
        count.div_ceil(SLOTS_PER_ITEM)
    }

    fn take_in(&mut self, fact: Fact, reading: &mut Reading, now: Now, step: &mut EngineOutput) {
        let key = fact.key.clone();
        self.observe(fact, now, true, step);
        reading.named.extend(self.graph.find(&key).map(|idx| (idx, ())));
    }

    /// Takes in that a value is not there.
    fn take_in_absence(&mut self, idx: NodeIdx, now: Now, step: &mut EngineOutput) {
        if self.running.in_take_over().is_some() {
            self.take_over_key(&self.graph.node(idx).key.clone(), step);
        }
        self.end_operation_ahead(idx, step);
        let node = self.graph.node(idx);
        let descriptor = self.graph.registry.descriptor(node.key.kind());
        if !descriptor.is_some_and(|descriptor| descriptor.observable()) {
            return;
        }
        match node.running_op() {
            Some(op) => {
                self.graph.set_observed(idx, None);
                self.try_verify(op, now, step);
            }
            None => self.record_fact(idx, None, now, true, step),
        }
    }

    /// Takes in what the reading that is under way says of a key, before an event on that key.
    pub(crate) fn read_ahead(&mut self, key: &Key, now: Now, step: &mut EngineOutput) {
        let Some(mut reading) = self.reading.take() else { return };
        if reading.ahead.insert(key.clone(), ()).is_none() {
            let idx = self.graph.find(key);
            let is_named = idx.is_some_and(|idx| reading.named.contains_key(&idx));
            let is_unnamed = |idx: &NodeIdx| {
                !is_named && reading.scope.holds(self.graph.node(*idx), &self.graph.registry)
            };
            let absent = idx.filter(is_unnamed);
            match reading.take_fact_of(key) {
                Some(fact) => self.take_in(fact, &mut reading, now, step),
                None => absent.into_iter().for_each(|idx| self.take_in_absence(idx, now, step)),
            }
        }
        self.reading = Some(reading);
    }

    fn end_reading(&mut self, reading: Box<Reading>, step: &mut EngineOutput) {
        let lost = std::mem::take(&mut self.graph.lost_dependency).into_iter();
        for idx in lost.chain(std::mem::take(&mut self.graph.lost_by_us)) {
            if self.graph.is_out_of_place(idx) {
                self.graph.mark_dirty(idx);
            }
        }
        step.is_complete |= reading.scope == Scope::Everything;
        drop_beside(reading.done, reading);
    }
}
