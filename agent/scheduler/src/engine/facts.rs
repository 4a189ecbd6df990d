//! Facts: updates of the observed plane, and the detection of drift.
//!
//! A fact may be older than our last operation on its key: notifications and completions come by different ways. So a
//! difference is not repaired at once. It is read again and checked after a short delay, unless the fact is known to be
//! newer than everything we did (a complete retrieval).
//!
//! ```text
//! fact ----> operation on the key in flight? --yes--> verify the operation
//!               | no
//!               v
//!            as applied? --yes--> nothing to do
//!               | no
//!               v
//!            ours? --yes--> read it, check again after a delay ----> still differs: dirty
//!               | no                                         \---> as applied: read it once more
//!               v
//!            foreign: becomes a provider; dirty if intended under this key
//! ```

use std::time::Duration;

use crate::descriptor::catch_panic;
use crate::engine::Engine;
use crate::graph::{Goal, NodeIdx};
use crate::key::Key;
use crate::operation::{Fact, Now};
use crate::output::EngineOutput;
use crate::value::{SharedValue, same};
use crate::value_spec::ValueSpec;

/// Reads that one step requests to confirm drift. With more differences than this, the facts are trusted.
const DRIFT_READS_MOST: usize = 256;

impl Engine {
    /// Takes in one fact. `urgent` when it is known to be newer than all our operations: a difference is then planned
    /// for at once.
    pub(crate) fn observe(&mut self, fact: Fact, now: Now, urgent: bool, step: &mut EngineOutput) {
        self.graph.counters.facts += 1;
        self.read_ahead(&fact.key, now, step);
        self.take_over_key(&fact.key, step);
        let is_known_kind = self.graph.registry.descriptor(fact.key.kind()).is_some();
        let idx = match (self.graph.find(&fact.key), &fact.value) {
            (Some(idx), _) => idx,
            (None, Some(_)) if is_known_kind => self.graph.intern(&fact.key),
            _ => {
                self.graph.counters.facts_ignored += 1;
                return;
            }
        };
        if let Some(value) = &fact.value {
            self.follow_object(&fact.key, value, now, step);
        }
        self.on_observed(idx);
        self.end_operation_ahead(idx, step);
        match self.graph.node(idx).running_op() {
            Some(op) => {
                if !same(self.graph.node(idx).observed.as_ref(), fact.value.as_ref()) {
                    step.changed.push(fact.key);
                }
                self.graph.set_observed(idx, fact.value);
                self.try_verify(op, now, step);
            }
            None => self.record_fact(idx, fact.value, now, urgent, step),
        }
    }

    /// Records the observed value of a key without an operation in flight.
    pub(crate) fn record_fact(
        &mut self,
        idx: NodeIdx,
        value: Option<SharedValue>,
        now: Now,
        urgent: bool,
        step: &mut EngineOutput,
    ) {
        let node = self.graph.node(idx);
        if same(node.observed.as_ref(), value.as_ref()) && node.present.is_some() == value.is_some()
        {
            return;
        }
        step.changed.push(node.key.clone());
        let was_as_applied = self.is_as_applied(idx);
        let has_to_follow = self.note_follower(idx, value.as_ref());
        let urgent = urgent || has_to_follow;
        self.graph.set_observed(idx, value.clone());
        let present = self.graph.node(idx).present.clone();
        self.graph.trigger_retries(idx, present.as_deref(), None);
        match value {
            Some(value) => self.on_appeared(idx, &value, now, urgent, step),
            None => self.on_vanished(idx, now, urgent, step),
        }
        if !self.running.is_empty() {
            self.mark_plans_dirty(idx, present.as_deref());
        }
        self.graph.update_unsettled(idx);
        if !has_to_follow {
            self.follow_loss(idx, was_as_applied, now, urgent, step);
        }
        self.graph.forget_if_empty(idx);
    }

    /// Notes whether a value, as it is observed now, differs because of what it follows.
    fn note_follower(&mut self, idx: NodeIdx, value: Option<&SharedValue>) -> bool {
        let node = self.graph.node(idx);
        let descriptor = self.graph.registry.descriptor(node.key.kind());
        let change = node.observed.as_ref().zip(value).zip(descriptor);
        let has_to_follow = change.is_some_and(|((before, observed), descriptor)| {
            catch_panic(|| descriptor.has_to_follow(&**before, &**observed)).unwrap_or(false)
        });
        let retry = &mut self.graph.node_mut(idx).retry;
        if has_to_follow {
            retry.get_or_insert_default().has_to_follow = true;
        } else if let Some(retry) = retry {
            retry.has_to_follow = false;
        }
        has_to_follow
    }

    /// Marks values whose plans in flight did not count on a provider that has come, or that provides more than it
    /// seemed to: values that are being removed for want of it may be able to stay.
    fn mark_plans_dirty(&mut self, idx: NodeIdx, before: Option<&ValueSpec>) {
        for member in self.graph.watchers_of_new_offers(idx, before) {
            if let Some(owner) = self.owner_in_flight(member) {
                self.running.mark_dirty_after(owner, member);
            }
        }
    }

    fn on_vanished(&mut self, idx: NodeIdx, now: Now, urgent: bool, step: &mut EngineOutput) {
        self.graph.set_present(idx, None, false);
        let node = self.graph.node(idx);
        if matches!(node.goal, Goal::Nothing) {
            self.graph.set_applied(idx, None);
        } else if node.applied.is_some() {
            self.schedule_drift_check(idx, now, urgent, step);
        } else if node.retry.as_ref().is_none_or(|retry| !retry.is_due_soon()) {
            self.graph.mark_dirty(idx); // the object that was in its way is gone
        }
    }

    pub(crate) fn on_appeared(
        &mut self,
        idx: NodeIdx,
        value: &SharedValue,
        now: Now,
        urgent: bool,
        step: &mut EngineOutput,
    ) {
        let node = self.graph.node(idx);
        let applied = node.applied.clone();
        if let Some(applied) =
            applied.filter(|applied| self.graph.satisfied(&node.key, applied, value))
        {
            let spec = self.spec_of(idx, &applied);
            self.graph.set_present(idx, Some(spec), true);
            // Out of place in spite of the match: a stale fact had shown the value as gone and something else was
            // planned meanwhile, a dependency was lost, or the value was created after its operation was given up.
            if self.graph.is_out_of_place(idx) {
                self.schedule_drift_check(idx, now, urgent, step);
            } else if let Some(retry) = &mut self.graph.node_mut(idx).retry {
                retry.has_returned = retry.due.is_some();
            }
            return;
        }
        let ours = node.applied.is_some();
        let spec = ValueSpec::of_observed(&self.graph.registry, &node.key, value);
        self.graph.set_present(idx, Some(spec), ours);
        let node = self.graph.node(idx);
        match node.goal {
            Goal::Nothing
                if ours
                    || self.graph.owned(&node.key, value)
                    || self.graph.restores.contains_key(&node.key) =>
            {
                self.schedule_drift_check(idx, now, urgent, step)
            }
            Goal::Nothing | Goal::Refused(..) => {}
            // The foreign object may be changed by our own tries, which must not follow one another without a pause.
            Goal::Valid(..) if !ours && node.has_failed() => {
                self.graph.retry_triggers.triggered.push(idx);
            }
            // The value is pending and can be adopted, or the foreign object conflicts with it.
            Goal::Valid(..) if !ours => self.graph.mark_dirty(idx),
            Goal::Valid(..) => self.schedule_drift_check(idx, now, urgent, step),
        }
    }

    /// Records the absence of a value that was observed while an operation on it was in flight that failed or was not
    /// tried.
    pub(crate) fn confirm_absence(&mut self, idx: NodeIdx, now: Now, step: &mut EngineOutput) {
        let node = self.graph.node(idx);
        let descriptor = self.graph.registry.descriptor(node.key.kind());
        if node.running_op().is_some()
            || !descriptor.is_some_and(|descriptor| descriptor.observable())
        {
            return;
        }
        if node.observed.is_none() && node.present.is_some() {
            self.on_vanished(idx, now, false, step);
        }
    }

    /// Looks at a value whose pause is over. A value that is in place again since its drift was seen is read once
    /// more: the kernel announces that an object is gone before its lists leave it out (IPv6 addresses of a link that
    /// loses IPv6), so what was read in between may be the object that is going.
    ///
    /// For one that failed, a slow retry is scheduled at once: whatever keeps it from being tried now, it will be.
    pub(crate) fn check_value(
        &mut self,
        idx: NodeIdx,
        at: Duration,
        now: Now,
        step: &mut EngineOutput,
    ) {
        let is_out_of_place = self.graph.is_out_of_place(idx);
        let node = self.graph.node_mut(idx);
        // The timer of a value that is forgotten stays, and its place may have another one since.
        let Some(retry) = node.retry.as_mut().filter(|it| it.due == Some(at)) else { return };
        let is_slow_retry = retry.take_due();
        let has_returned = std::mem::take(&mut retry.has_returned);
        self.tell_loss(idx, now, step);
        let node = self.graph.node_mut(idx);
        let Some(retry) = node.retry.as_mut() else { return };
        if retry.error.is_some() {
            step.changed.push(node.key.clone());
            let look = retry.slow_retry(now.monotonic);
            self.schedule_look(idx, look);
            let is_ready = self.graph.count_unmet(idx) == 0 && self.claim_holder(idx).is_none();
            let is_tried = is_out_of_place && is_ready;
            self.graph.counters.slow_retries += u64::from(is_slow_retry && is_tried);
            self.graph.mark_dirty(idx);
        } else if is_out_of_place {
            self.graph.mark_dirty(idx);
        } else if has_returned {
            request_drift_read(&node.key, step);
        }
    }

    /// Schedules a check of the value after a delay and reads it meanwhile: late notifications of our own changes look
    /// like drift.
    fn schedule_drift_check(
        &mut self,
        idx: NodeIdx,
        now: Now,
        urgent: bool,
        step: &mut EngineOutput,
    ) {
        if urgent {
            return self.graph.mark_dirty(idx);
        }
        if self.schedule_check(idx, now) {
            self.graph.counters.drifts += 1;
            request_drift_read(&self.graph.node(idx).key, step);
        }
    }

    /// Schedules a look at a value after a delay. False when one is scheduled already, apart from a slow retry.
    fn schedule_check(&mut self, idx: NodeIdx, now: Now) -> bool {
        let retry = self.graph.node_mut(idx).retry.get_or_insert_default();
        if retry.is_due_soon() {
            return false;
        }
        retry.has_returned = false;
        let look = retry.drifted(now.monotonic);
        self.schedule_look(idx, look);
        true
    }

    /// Schedules checks of values that lost a dependency without our doing: they may be gone themselves, or have to go.
    pub(crate) fn check_lost_dependencies(&mut self, now: Now, step: &mut EngineOutput) {
        for idx in std::mem::take(&mut self.graph.lost_dependency) {
            let node = self.graph.node(idx);
            let is_lacking = self.graph.count_unmet(idx) > 0;
            if node.running_op().is_none() && is_lacking && self.graph.is_ours(idx) {
                self.schedule_drift_check(idx, now, false, step);
            }
        }
        for idx in std::mem::take(&mut self.graph.lost_by_us) {
            if self.graph.node(idx).running_op().is_none() && self.graph.count_unmet(idx) > 0 {
                self.schedule_check(idx, now);
            }
        }
    }
}

fn request_drift_read(key: &Key, step: &mut EngineOutput) {
    if step.read.len() < DRIFT_READS_MOST {
        step.read.push(key.clone());
    }
}
