//! Conditions of an instance: their results in a walk, and a judgement of those alone whose reads have other answers.
//!
//! A walk that changes nothing takes the same way again as long as each of its conditions has the same result, and each
//! template reads the same. In a plan without a failure it finds every state as it leaves it, so a condition that is
//! evaluated alone, beside the plan, has the result that it would have in a walk.

use std::sync::Arc;

use holdfast_config::services::{
    Applied, Conditions, GateJudgement, Reads, ServicePlan, Touched, WalkRequest, WalkWork,
    digest_of,
};
use holdfast_config::{ClaimKey, ServiceTag};

use super::facts::TREE;
use super::{Instance, Walk, part};
use crate::component::Component;
use crate::outline::LocatedText;
use crate::package::tree::Synthesis;
use crate::work::WorkError;

/// Results of the conditions that a walk has judged so far.
#[derive(Debug, Default)]
pub(super) struct ConditionRecord {
    conditions: Conditions,
    /// Some condition could not be judged, or had two results.
    is_uncertain: bool,
    pub(super) work: WalkWork,
}

impl ConditionRecord {
    fn note_gate(&mut self, place: Arc<str>, gate: GateJudgement) {
        let known = self.conditions.gates.entry(place).or_insert_with(|| gate.clone());
        self.is_uncertain |= *known != gate;
    }

    fn note_tree(&mut self, tree: u64) {
        self.is_uncertain |= *self.conditions.tree.get_or_insert(tree) != tree;
    }
}

/// Judges touched conditions of an instance, with the parameters that its last walk had. Returns what they have read if all
/// of them have the results of that walk.
pub(crate) fn judge(
    instance: &Instance<'_>,
    request: &WalkRequest<'_>,
    touched: &Touched,
) -> (Option<Reads>, WalkWork) {
    let walk = Walk::new(instance, request);
    let is_same = touched.places.iter().all(|place| walk.has_same_result(place, touched));
    // `gone` notes what is there.
    let is_same_plan = || request.book.get(instance.tag).is_some_and(|it| **it == *walk.own.plan());
    let is_unchanged = is_same && walk.answered().is_ok() && is_same_plan();
    let work = walk.conditions.borrow().work;
    (is_unchanged.then(|| walk.own.take_reads()), work)
}

/// Digest of the extents to which the objects of the claims of an instance are in the kernel.
pub(crate) fn applied_digest(
    request: &WalkRequest<'_>,
    tag: &ServiceTag,
    applied: impl Fn(&ClaimKey) -> Applied,
) -> u64 {
    let digest = |hasher: u64, (key, _): (&ClaimKey, _)| digest_of((hasher, key, applied(key)));
    request.claims.of_instance(tag).fold(0, digest)
}

impl Walk<'_> {
    /// Notes the result of a gate. A gate that fails has none.
    pub(super) fn note_gate(
        &self,
        gate: &LocatedText,
        part: &Component,
        state: &str,
        result: &Result<bool, WorkError>,
    ) {
        let mut record = self.conditions.borrow_mut();
        record.work.conditions += 1;
        let outline = self.outlines.get(&part.component_type).and_then(|it| it.state(state));
        let is_of_delete = outline.is_some_and(|it| it.delete.when.as_ref() == Some(gate));
        match result {
            Ok(is_open) => {
                let component = part.id();
                let state = state.into();
                let is_open = *is_open;
                let gate = GateJudgement { component, state, is_of_delete, is_open };
                record.note_gate(self.own.place(), gate);
            }
            Err(_) => record.is_uncertain = true,
        }
    }

    /// Notes what the tree came to.
    pub(super) fn note_tree(&self, tree: &Synthesis) {
        let mut record = self.conditions.borrow_mut();
        record.work.conditions += 1;
        record.note_tree(tree_digest(tree));
    }

    /// The conditions of a walk that changes nothing; `None` where they alone do not say whether the next one does.
    pub(super) fn settled_conditions(&self, plan: Option<&ServicePlan>) -> Option<Conditions> {
        let before = self.request.book.get(self.instance.tag).map(|it| &**it);
        let puts_out = !self.claims.is_empty() || !self.persisted.is_empty();
        let is_unchanged = !puts_out && self.calls.is_empty() && plan == before;
        let plan = plan.filter(|plan| is_unchanged && !has_failed(plan))?;
        let record = self.conditions.borrow();
        if record.is_uncertain || plan.components.is_empty() {
            return None;
        }
        let applied = applied_digest(self.request, self.instance.tag, |key| self.applied(key));
        Some(Conditions { applied, ..record.conditions.clone() })
    }

    /// True when a condition has the result that it had. Of what work and actions read, another answer may change all.
    fn has_same_result(&self, place: &Arc<str>, touched: &Touched) -> bool {
        let Conditions { gates, tree, .. } = &*touched.conditions;
        if **place == *TREE {
            self.conditions.borrow_mut().work.conditions += 1;
            let found = self.instance.leaving.is_none().then(|| self.evaluate_tree());
            let found = found.and_then(Result::ok).as_ref().map(tree_digest);
            return found.is_some() && found == *tree;
        }
        gates.get(place).is_some_and(|gate| self.has_result(gate))
    }

    fn has_result(&self, judged: &GateJudgement) -> bool {
        let GateJudgement { component: [component_type, name], state, .. } = judged;
        let part = self.own.plan().component(component_type, name).map(part);
        let outline = self.outlines.get(component_type).and_then(|it| it.state(state));
        let (Some(part), Some(outline)) = (part, outline) else { return false };
        let gate =
            if judged.is_of_delete { outline.delete.when.as_ref() } else { outline.when.as_ref() };
        let result = gate.map(|gate| self.is_true(gate, &part, state));
        result.is_some_and(|it| it == Ok(judged.is_open))
    }
}

/// True when something of a plan has failed. A walk tries such a state again, and meanwhile others see it as it is then.
fn has_failed(plan: &ServicePlan) -> bool {
    let states = plan.components.iter().flat_map(|it| &it.states).map(|it| &it.failure);
    let modifications = plan.modifications.values().map(|it| &it.failure);
    plan.failure.is_some() || states.chain(modifications).any(Option::is_some)
}

fn tree_digest(tree: &Synthesis) -> u64 {
    let component = |it: &Component| (it.id(), it.replaces.clone(), it.vars.to_text());
    let components: Vec<_> = tree.components.iter().map(component).collect();
    digest_of((components, &tree.observed))
}
