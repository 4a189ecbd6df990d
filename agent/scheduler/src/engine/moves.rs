//! Objects that come under another key: a port that gets another name.
//!
//! The applied value of an adopted object, and its pre-image, belong to the object, not to its key. So both follow
//! it. Under a key that nothing asks for, it is given back; the object that comes under its former key is adopted
//! anew. Objects that exchange their keys exchange both.

use std::time::Duration;

use crate::engine::Engine;
use crate::graph::{Goal, NodeIdx};
use crate::key::Key;
use crate::operation::Now;
use crate::output::EngineOutput;
use crate::retry_state::NextLook;
use crate::value::SharedValue;

/// Time from a move to a key that nothing asks for until the object is given back: two ports exchange their names by a third one, and
/// what was given back under a name that is gone would be lost.
const MOVE_SETTLE: Duration = Duration::from_secs(1);

impl Engine {
    /// Follows an adopted object that is seen under `key`, if that is not the key of its pre-image.
    pub(crate) fn follow_object(
        &mut self,
        key: &Key,
        value: &SharedValue,
        now: Now,
        step: &mut EngineOutput,
    ) {
        if self.graph.adopted.is_empty() {
            return;
        }
        let Some(identity) = self.graph.identity(key, value) else { return };
        let Some(adopted) = self.graph.adopted.get_mut(&identity) else { return };
        if adopted.key == *key {
            adopted.is_seen = true;
            return;
        }
        let from = adopted.key.clone();
        if !adopted.is_seen && !self.graph.is_same_object(&from, value) {
            return; // a number of an earlier run of the system
        }
        let descriptor = self.graph.registry.descriptor(key.kind());
        let along = descriptor.map(|it| it.keys_along(&from, key)).unwrap_or_default();
        let pairs: Vec<(Key, Key)> =
            [(from.clone(), key.clone())].into_iter().chain(along).collect();
        for (from, to) in &pairs {
            self.exchange(from, to, now, step);
        }
        // A fact of the former key may still be to come.
        let left = self.graph.find(&from).filter(|&idx| {
            let node = self.graph.node(idx);
            let observed = node.observed.as_ref().filter(|_| node.running_op().is_none());
            observed.and_then(|observed| self.graph.identity(&from, observed)) == Some(identity)
        });
        if let Some(left) = left {
            self.record_fact(left, None, now, false, step);
        }
    }

    /// Exchanges what was applied to two objects, and what they were before.
    fn exchange(&mut self, from: &Key, to: &Key, now: Now, step: &mut EngineOutput) {
        let of = |key: &Key| {
            let applied = self.graph.find(key).and_then(|idx| self.graph.node(idx).applied.clone());
            (applied, self.graph.restores.get(key).cloned())
        };
        let moved = [(to, of(from)), (from, of(to))];
        // Both are taken away first, for an object has one pre-image.
        for key in [from, to] {
            if self.graph.set_restore(key, None) {
                step.restores.push((key.clone(), None));
            }
        }
        for (key, (applied, restore)) in moved {
            let rekeyed = |value: SharedValue| self.graph.rekeyed(&value, key);
            let applied = applied.and_then(rekeyed);
            let restore = restore.and_then(rekeyed);
            if let Some(restore) = restore {
                self.graph.set_restore(key, Some(restore.clone()));
                step.restores.push((key.clone(), Some(restore)));
            }
            let idx = match self.graph.find(key) {
                Some(idx) => idx,
                None if applied.is_some() => self.graph.intern(key),
                None => continue,
            };
            self.graph.set_applied(idx, applied);
            self.look_at_again(idx, now, step);
        }
    }

    /// Takes what is seen under a key as what it is now: ours, if something is applied to it, or another one's.
    fn look_at_again(&mut self, idx: NodeIdx, now: Now, step: &mut EngineOutput) {
        let node = self.graph.node(idx);
        let observed = node.observed.clone().filter(|_| node.running_op().is_none());
        if let Some(observed) = observed {
            self.on_appeared(idx, &observed, now, false, step);
            self.graph.update_unsettled(idx);
        }
        let node = self.graph.node(idx);
        let is_left = matches!(node.goal, Goal::Nothing) && self.is_adopted(idx);
        if is_left && self.graph.node(idx).running_op().is_none() {
            let at = now.monotonic + MOVE_SETTLE;
            self.schedule_look(idx, NextLook { at, is_slow: false });
        }
    }

    fn is_adopted(&self, idx: NodeIdx) -> bool {
        let node = self.graph.node(idx);
        node.applied.is_some() || self.graph.restores.contains_key(&node.key)
    }
}
