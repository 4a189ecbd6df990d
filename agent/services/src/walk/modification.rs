//! Modification calls: a handler is asked before the components of an instance are known, and after its last state.
//!
//! ```text
//! input as in the last answer            -> nothing is asked, and nothing put out again
//! an answer at hand counts               -> its output is to last, its opaque values stay with the instance
//! a handler takes such calls             -> the call is noted
//! nobody does, or the handler says no    -> a request is refused; else the instance stays as it is before its components,
//!                                           and is not ready after its last state
//! ```
//!
//! The output of a call belongs to no state: it joins the claim `persist:TYPE`, once for each answer, and stays when
//! the instance goes ([decision 035](../../../decisions/035-output-that-lasts.md)).

use std::sync::Arc;

use holdfast_config::services::{AnswerInput, CallPhase, CallPlace, HandlerWork, ModificationPlan};
use holdfast_config::{Claim, ClaimKey, PersistedOutput, ServiceTag};

use super::facts::Place;
use super::{Walk, itself, new_component, part};
use crate::outline::SELF;
use crate::work::WorkError;

/// Result of a modification call.
enum Modification {
    Done {
        work: HandlerWork,
        input: AnswerInput,
    },
    /// The last answer is in force.
    InForce,
    Failed(Arc<str>),
    /// The handler that the instance waits for.
    Waits(Arc<str>),
    /// No answer yet.
    Open,
}

impl Walk<'_> {
    fn is_modified_by_handler(&self) -> bool {
        let handler = self.instance.package.outline.handler.as_ref();
        handler.is_some_and(|handler| handler.modification)
    }

    /// Asks before the components are known. False when the instance stays as it is.
    pub(super) fn begin_modification(&mut self) -> Result<bool, WorkError> {
        if self.is_modified_by_handler() {
            return self.modify(CallPhase::PreModification);
        }
        // An earlier version of the package may have had such calls.
        self.own.plan().modifications.clear();
        Ok(true)
    }

    /// Asks after the last state, and judges `ready` of the instance by that.
    pub(super) fn end_modification(&mut self) -> Result<(), WorkError> {
        // The output of states without an answer is not known.
        if !self.is_modified_by_handler() || !self.calls.is_empty() {
            return Ok(());
        }
        if self.has_begun {
            self.modify(CallPhase::PostModification)?;
        }
        for part in self.parts.clone().iter().filter(|part| part.component_type == SELF) {
            self.judge_whole(part);
        }
        Ok(())
    }

    /// Forgets what stands against calls that an instance is not asked for when it backs out.
    pub(super) fn clear_modification_failures(&self) {
        for modification in self.own.plan().modifications.values_mut() {
            (modification.failure, modification.waits_for) = (None, None);
        }
    }

    /// Makes the components stay as they are, except those that back out.
    pub(super) fn stay(&mut self) {
        let mut plan = self.own.plan();
        if plan.components.is_empty() {
            let now_ns = self.request.surroundings.now_ns;
            plan.components.push(new_component(&self.outlines, &itself(), now_ns));
        }
        self.parts = plan.components.iter().map(part).collect();
        self.going = self.parts.len();
    }

    /// Makes one call, unless its last answer is in force. True when there is an answer.
    fn modify(&mut self, phase: CallPhase) -> Result<bool, WorkError> {
        self.own.begin(Place::of_instance(phase.name()));
        let modification = match self.modification(phase) {
            Ok(modification) => modification,
            Err(error) if self.request.surroundings.is_lenient => {
                Modification::Failed(self.text_of(&error))
            }
            Err(error) => return Err(error),
        };
        let mut plan = self.own.plan();
        let mut noted = plan.modifications.remove(&phase).unwrap_or_default();
        let is_answered = matches!(modification, Modification::Done { .. } | Modification::InForce);
        (noted.failure, noted.waits_for) = match modification {
            Modification::Failed(text) => (Some(text), None),
            Modification::Waits(text) => (None, Some(text)),
            Modification::InForce => (None, None),
            Modification::Open => (noted.failure, noted.waits_for),
            Modification::Done { work, input } => {
                noted.answer = Some(input);
                work.opaque.into_iter().for_each(|opaque| noted.opaque = opaque);
                (None, None)
            }
        };
        if noted != ModificationPlan::default() {
            plan.modifications.insert(phase, noted);
        }
        Ok(is_answered)
    }

    fn modification(&mut self, phase: CallPhase) -> Result<Modification, WorkError> {
        let place = CallPlace::of_modification(self.instance.tag.clone(), phase);
        let noted = self.own.plan().modifications.get(&phase).cloned().unwrap_or_default();
        let call = self.call_at(place, "".into(), noted.opaque);
        if let Some(reads) = noted.answer.and_then(|it| self.reads_in_force(&call, &it)) {
            self.note_reads(&reads);
            return Ok(Modification::InForce);
        }
        let Some((work, source)) = self.answer(&call)? else {
            let is_open = self.calls.contains_key(&call.place);
            return Ok(if is_open {
                Modification::Open
            } else {
                Modification::Waits(self.handler_text())
            });
        };
        if let Some(reason) = self.refused_output(&work.claim) {
            return Ok(Modification::Failed(reason));
        }
        self.persist(&call.place, work.claim.clone());
        let input = self.input_of(source, &call, &work.reads);
        Ok(Modification::Done { work, input })
    }

    /// Reason for which an output that is to last is not put out: a walk that did was refused.
    pub(super) fn refused_output(&self, claim: &Claim) -> Option<Arc<str>> {
        let refused = self.request.surroundings.refused.get(self.instance.tag);
        refused.filter(|_| !claim.is_empty()).cloned()
    }

    /// Notes the output of a call that is to last: of a modification call for the type, of a delete call for the instance.
    pub(super) fn persist(&mut self, place: &CallPlace, claim: Claim) {
        if claim.is_empty() {
            return;
        }
        let tag = self.instance.tag;
        let holder = if place.phase.is_modification() {
            ServiceTag::of_type(tag.service.clone())
        } else {
            tag.clone()
        };
        let into = ClaimKey::persistent(holder);
        let by = place.state.clone();
        self.persisted.insert(place.clone(), PersistedOutput { into, by, claim });
    }
}
