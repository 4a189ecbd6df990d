//! Work of handlers in a walk: the answers at hand, and the calls that have none.
//!
//! ```text
//! work of a state, or leaving it
//!    | an answer at hand counts         -> its claim and opaque values, or its verdict
//!    | the state is reached, and what its answer depended on is the same -> it has what the answer gave
//!    | a handler takes such calls       -> the call is noted, and the component goes no further
//!    ` nobody does                      -> the state waits, and keeps what it has, if it is reached; a request is
//!                                          refused, unless the type defers
//! ```
//!
//! An answer counts while the call has the same input, and what its handler has read is the same. Of an answer that is in
//! force, digests of both are stored with the state, so a start of the agent asks nobody
//! ([decision 034](../../../decisions/034-answers-that-are-stored.md)).

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::services::{
    AnswerInput, CallPhase, CallPlace, HandlerAnswer, HandlerCall, HandlerWork, KeptAnswer,
    LeafRead, ReadInput, ServicePlan, WorkFailureKind, digest_of,
};
use holdfast_config::{Claim, ClaimKey, Value};
use minijinja::Value as TemplateValue;
use smol_str::{SmolStr, format_smolstr};

use super::{Walk, claim_of};
use crate::component::Component;
use crate::outline::{MissingHandler, StateOutline, Work};
use crate::work::{WorkError, WorkErrorKind};

/// Result of the work of a state.
pub(super) enum StateWork {
    /// The claim, where there is any work.
    Output(Option<Claim>),
    /// The handler that the state waits for.
    Waits(Arc<str>),
    /// No answer yet: the state stays as it is.
    Open,
}

/// Word of the handler of a state that is left.
pub(super) enum LeaveVerdict {
    /// The state is left, and this outlasts it.
    Leave(CallPlace, Claim),
    /// The state is not to be left yet, for this reason.
    Keep(Arc<str>),
    /// The handler that the state waits for.
    Waits(Arc<str>),
    Open,
}

/// Opaque values by name, as handlers give them.
type Opaque = BTreeMap<SmolStr, TemplateValue>;

/// Place that an answer was found at.
pub(super) enum AnswerSource<'a> {
    /// In memory.
    Kept(&'a KeptAnswer),
    /// In the service plan, as this input.
    Stored(AnswerInput),
}

impl<'a> Walk<'a> {
    /// Does the work of a state.
    pub(super) fn work(
        &mut self,
        part: &Component,
        outline: &StateOutline,
    ) -> Result<StateWork, WorkError> {
        self.begin(part, &outline.name, "work");
        if outline.work == Some(Work::Handler) {
            return self.work_of_handler(part, outline);
        }
        let package = self.instance.package;
        let scope = self.scope_of(part);
        let output = package.render(outline.work.as_ref(), &scope, &self.facts);
        self.conditions.borrow_mut().work.rendered += usize::from(outline.work.is_some());
        let output = output?;
        Ok(StateWork::Output(output.map(claim_of)))
    }

    fn work_of_handler(
        &mut self,
        part: &Component,
        outline: &StateOutline,
    ) -> Result<StateWork, WorkError> {
        let call = self.handler_call(part, outline, CallPhase::Create);
        match self.answer(&call)? {
            Some((HandlerWork { claim, opaque, reads, .. }, source)) => {
                let answer = Some(self.input_of(source, &call, &reads));
                self.change(part, &outline.name, |state| {
                    state.answer = answer;
                    opaque.into_iter().for_each(|opaque| state.opaque = opaque);
                });
                Ok(StateWork::Output(Some(claim)))
            }
            None if self.is_asking(part) => Ok(StateWork::Open),
            None => Ok(StateWork::Waits(self.handler_text())),
        }
    }

    pub(super) fn answer_to_leave(
        &mut self,
        part: &Component,
        outline: &StateOutline,
    ) -> Result<LeaveVerdict, WorkError> {
        self.begin(part, &outline.name, "delete work");
        let call = self.handler_call(part, outline, CallPhase::Delete);
        let Some((HandlerWork { claim, keeps, .. }, _)) = self.answer(&call)? else {
            return Ok(if self.is_asking(part) {
                LeaveVerdict::Open
            } else {
                LeaveVerdict::Waits(self.handler_text())
            });
        };
        if let Some(reason) = self.refused_output(&claim) {
            return Err(call_error(&call.place, WorkErrorKind::Failed, reason));
        }
        Ok(match keeps {
            None => LeaveVerdict::Leave(call.place, claim),
            Some(reason) => {
                // Another walk that finds the same has nothing new to put out.
                if self.request.surroundings.answers.is_own(&call) {
                    self.persist(&call.place, claim);
                }
                LeaveVerdict::Keep(reason)
            }
        })
    }

    /// True when a component waits for the answer to a call.
    pub(super) fn is_asking(&self, part: &Component) -> bool {
        self.calls.keys().any(|place| part.is(&place.state.component))
    }

    pub(super) fn handler_text(&self) -> Arc<str> {
        format!("a handler of {}", self.instance.tag.service).into()
    }

    /// The answer that counts. Without one, the call is noted if somebody can be asked; `None` then, and where the state
    /// has to wait for a handler.
    pub(super) fn answer(
        &mut self,
        call: &HandlerCall,
    ) -> Result<Option<(HandlerWork, AnswerSource<'a>)>, WorkError> {
        let surroundings = self.request.surroundings;
        let found = surroundings.answers.get(call, surroundings.is_lenient);
        if let Some(kept) = found.filter(|kept| self.is_current(&kept.answer)) {
            return match &kept.answer {
                HandlerAnswer::Done(work) => Ok(Some((work.clone(), AnswerSource::Kept(kept)))),
                HandlerAnswer::Failed { kind, text } => {
                    Err(call_error(&call.place, work_error_kind(*kind), text))
                }
            };
        }
        if let Some((work, input)) = self.work_in_force(call) {
            self.note_reads(&work.reads);
            return Ok(Some((work, AnswerSource::Stored(input))));
        }
        if surroundings.may_ask && surroundings.answers.is_served(call) {
            self.calls.insert(call.place.clone(), call.clone());
            return Ok(None);
        }
        let defers = self.instance.package.outline.missing_handler == MissingHandler::Defer;
        if surroundings.is_lenient || defers {
            return Ok(None);
        }
        let text = self.missing_handler(call);
        Err(call_error(&call.place, WorkErrorKind::Unavailable, &text))
    }

    /// Reason for which nobody is asked: a handler may serve the state, and take other calls of it alone.
    fn missing_handler(&self, call: &HandlerCall) -> String {
        let answers = &self.request.surroundings.answers;
        let phase = call.place.phase;
        let is_other_served = |other: CallPhase| {
            let place = CallPlace { phase: other, ..call.place.clone() };
            other != phase && answers.is_served(&HandlerCall { place, ..call.clone() })
        };
        let other =
            [CallPhase::Create, CallPhase::Delete].into_iter().find(|it| is_other_served(*it));
        let name = phase.name();
        match other {
            Some(other) => {
                format!("no handler takes its {name} call; one takes its {} call", other.name())
            }
            None => format!("no handler is attached that takes its {name} call"),
        }
    }

    /// The work that a reached state has from an answer, while what that depended on is the same.
    fn work_in_force(&self, call: &HandlerCall) -> Option<(HandlerWork, AnswerInput)> {
        let CallPlace { state: ClaimKey { component: [of, name], state, .. }, phase } = &call.place;
        if *phase != CallPhase::Create {
            return None;
        }
        let answer = {
            let plan = self.own.plan();
            let state = plan.component(of, name)?.state(state)?;
            state.answer.clone().filter(|_| state.is_reached)?
        };
        let reads = self.reads_in_force(call, &answer)?;
        let claim = self.request.claims.get(&call.place.state).cloned().unwrap_or_default();
        Some((HandlerWork { claim, opaque: None, keeps: None, reads }, answer))
    }

    /// The reads of an answer to a call with their values, while all that it depended on is the same.
    pub(super) fn reads_in_force(
        &self,
        call: &HandlerCall,
        answer: &AnswerInput,
    ) -> Option<Vec<(LeafRead, Vec<Value>)>> {
        if self.request.surroundings.answers.asks_all() {
            return None;
        }
        self.note_digest();
        if answer.call != call.input_digest() {
            return None;
        }
        let mut reads = Vec::new();
        for ReadInput { plane, path, values } in &answer.reads {
            let read = self.instance.package.readable(*plane, path).ok()?;
            let found = read.values(self.request.new, self.request.surroundings.state.as_deref());
            if digest_of(&found) != *values {
                return None;
            }
            reads.push((read, found));
        }
        Some(reads)
    }

    /// Has the instance depend on what its handler has read.
    pub(super) fn note_reads(&self, reads: &[(LeafRead, Vec<Value>)]) {
        reads.iter().for_each(|(read, _)| drop(self.facts.read(read)));
    }

    fn note_digest(&self) {
        self.conditions.borrow_mut().work.digests += 1;
    }

    /// Input of an answer. It is computed where no earlier walk has done so.
    pub(super) fn input_of(
        &self,
        source: AnswerSource<'_>,
        call: &HandlerCall,
        reads: &[(LeafRead, Vec<Value>)],
    ) -> AnswerInput {
        match source {
            AnswerSource::Kept(kept) => kept.input(|| self.answer_input(call, reads)),
            AnswerSource::Stored(input) => input,
        }
    }

    /// Input that an answer depends on. Each path of a read stands for itself.
    fn answer_input(&self, call: &HandlerCall, reads: &[(LeafRead, Vec<Value>)]) -> AnswerInput {
        let models = &self.instance.package.list.models;
        let state = self.request.surroundings.state.as_deref();
        let paths = reads.iter().flat_map(|(read, _)| {
            read.patterns
                .iter()
                .map(|pattern| LeafRead { patterns: vec![pattern.clone()], ..read.clone() })
        });
        let input = |read: LeafRead| ReadInput {
            plane: read.plane,
            path: read.to_text(models).into(),
            values: digest_of(read.values(self.request.new, state)),
        };
        self.note_digest();
        AnswerInput { call: call.input_digest(), reads: paths.map(input).collect() }
    }

    /// True while what the handler has read for an answer is the same. The walk reads it, too.
    fn is_current(&self, answer: &HandlerAnswer) -> bool {
        let HandlerAnswer::Done(work) = answer else { return true };
        work.reads.iter().all(|(read, values)| self.facts.read(read) == *values)
    }

    fn handler_call(
        &self,
        part: &Component,
        outline: &StateOutline,
        phase: CallPhase,
    ) -> HandlerCall {
        let own = {
            let plan = self.own.plan();
            let component = plan.component(&part.component_type, &part.name);
            let state = component.and_then(|it| it.state(&outline.name));
            state.map(|it| Arc::clone(&it.opaque)).unwrap_or_default()
        };
        let place = CallPlace { state: self.key(part, &outline.name), phase };
        self.call_at(place, part.vars.to_object().into(), own)
    }

    /// A call with the instance as it is now.
    pub(super) fn call_at(
        &self,
        place: CallPlace,
        vars: Arc<str>,
        own_opaque: Arc<str>,
    ) -> HandlerCall {
        let others = self.opaque_before(&place);
        HandlerCall {
            place,
            version: self.instance.package.version().to_string().into(),
            params: Arc::clone(&self.instance.parameters.document),
            vars,
            opaque: if others.is_empty() { "".into() } else { json_text(&others) },
            own_opaque,
        }
    }

    /// Opaque values that a call gets: those that were given before it in a walk, for a state that is left all but its own.
    fn opaque_before(&self, place: &CallPlace) -> Opaque {
        let plan = self.own.plan();
        let mut found = saved_of(&plan);
        if place.phase == CallPhase::PreModification {
            return found;
        }
        found.extend(opaque_of_modification(&plan, CallPhase::PreModification));
        for component in &plan.components {
            for state in &component.states {
                let is_own = component.is(&place.state.component[0], &place.state.component[1])
                    && state.name == place.state.state;
                match (is_own, place.phase) {
                    // Values of later states stem from this one.
                    (true, CallPhase::Create) => return found,
                    (true, _) => {}
                    (false, _) => found.extend(opaque_of(&state.opaque)),
                }
            }
        }
        if place.phase == CallPhase::Delete {
            found.extend(opaque_of_modification(&plan, CallPhase::PostModification));
        }
        found
    }

    /// Values that actions have saved, and opaque values of handlers, which hide those of their names; of two of these with
    /// one name, that of the later state.
    pub(super) fn opaque_values(&self) -> Vec<(SmolStr, TemplateValue)> {
        let plan = self.own.plan();
        let states = plan.components.iter().flat_map(|component| &component.states);
        saved_of(&plan)
            .into_iter()
            .chain(opaque_of_modification(&plan, CallPhase::PreModification))
            .chain(states.flat_map(|state| opaque_of(&state.opaque)))
            .chain(opaque_of_modification(&plan, CallPhase::PostModification))
            .collect::<Opaque>()
            .into_iter()
            .collect()
    }
}

fn saved_of(plan: &ServicePlan) -> Opaque {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
    plan.saved.iter().map(|(name, text)| (name.clone(), value(text))).collect()
}

fn opaque_of(text: &str) -> Opaque {
    if text.is_empty() { Opaque::new() } else { serde_json::from_str(text).unwrap_or_default() }
}

fn opaque_of_modification(plan: &ServicePlan, phase: CallPhase) -> Opaque {
    plan.modifications.get(&phase).map(|it| opaque_of(&it.opaque)).unwrap_or_default()
}

fn json_text(values: &Opaque) -> Arc<str> {
    serde_json::to_string(values).unwrap_or_default().into()
}

fn call_error(place: &CallPlace, kind: WorkErrorKind, reason: impl ToString) -> WorkError {
    WorkError { kind, file: format_smolstr!("{place}"), position: None, reason: reason.to_string() }
}

fn work_error_kind(kind: WorkFailureKind) -> WorkErrorKind {
    match kind {
        WorkFailureKind::Limit => WorkErrorKind::Limit,
        WorkFailureKind::Denied => WorkErrorKind::Denied,
        WorkFailureKind::Unavailable => WorkErrorKind::Unavailable,
        WorkFailureKind::Late => WorkErrorKind::Late,
        WorkFailureKind::Precondition => WorkErrorKind::Precondition,
        WorkFailureKind::Work | WorkFailureKind::Parameters | WorkFailureKind::Leaving => {
            WorkErrorKind::Failed
        }
    }
}
