//! Attached handlers and the transactions that are open with them. Nothing here waits.

mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::services::{
    Answers, CallPhase, CallPlace, Ground, HandlerAnswer, HandlerCall, HandlerWork, LeafRead,
    ServedCall, WorkFailureKind,
};
use holdfast_config::{GrowingClaim, Limit, ServiceTag, Value};
use holdfast_core::{HandlerQuestion, ObservedBox};
use serde_json::{Map, Value as JsonValue};
use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::sync::Sync;
use super::actions::{Addressed, OpenActions};
use super::messages::{
    ActionName, AgentMessage, HandlerError, HandlerErrorKind, Registration, ServedWork,
    reason_of_handler,
};
use super::publishing::Publisher;

/// Handlers that are attached at a time. A box has a few types, and a handler serves several.
const MAX_HANDLERS: usize = 64;
/// Calls that are open at a time, of all transactions.
pub(super) const MAX_OPEN_CALLS: usize = 1024;
/// Bytes of the opaque values of one state: they are stored with the plan, and sent with each call.
const MAX_OPAQUE: usize = 64 << 10;
/// Bytes of the edits of one handler in all of its open transactions. Its user is to do no more than its grants, so it may not
/// fill memory either.
static HANDLER_EDITS: Limit = Limit {
    name: "handler-edits",
    figure: 64 << 20,
    unit: "bytes in the edits of a handler's open transactions",
    reason: "as much as one Set may have; a thousand instances with a hundred routes each take 20 MB",
};
/// Messages that wait for a handler to read. A handler that leaves so many unread has stopped.
const OUTBOX_DEPTH: usize = 256;
/// Time for the work of a transaction.
pub(super) const WORK_TIME: Duration = Duration::from_secs(30);
/// Longest time for the work of a transaction, for a handler that asks for more.
pub(super) const MOST_WORK_TIME: Duration = Duration::from_secs(120);

pub(super) type SessionId = u64;
pub(super) type Outgoing = Result<AgentMessage, HandlerError>;

/// Attached handlers, open transactions, and answers of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Registry {
    sessions: BTreeMap<SessionId, Session>,
    transactions: BTreeMap<u64, Transaction>,
    pub(super) actions: OpenActions,
    /// Number of sessions and transactions so far.
    numbers: u64,
    answers: Answers,
    is_draining: bool,
    /// Work of handlers that are gone, by their names, as far as no other one does it.
    lost: BTreeMap<SmolStr, LostWork>,
    /// Moves when a handler was attached or detached.
    served_tx: watch::Sender<u64>,
}

/// Work that nobody does since its handler is gone.
#[derive(Debug, Default)]
struct LostWork {
    calls: BTreeSet<ServedCall>,
    actions: BTreeSet<ActionName>,
}

/// One attached handler.
#[derive(Debug)]
struct Session {
    name: SmolStr,
    /// Name of its caller.
    caller: SmolStr,
    served: BTreeSet<ServedCall>,
    actions: BTreeSet<ActionName>,
    outbox: mpsc::Sender<Outgoing>,
    synced: Sync,
}

#[derive(Debug)]
struct Transaction {
    ground: Ground,
    state: Arc<ObservedBox>,
    parts: BTreeMap<SessionId, Part>,
}

/// Calls of a transaction for one handler.
#[derive(Debug)]
struct Part {
    /// Numbers of its calls, which no two calls of the transaction share.
    numbers: Range<usize>,
    /// None once they are answered.
    calls: Vec<OpenCall>,
    /// Bytes of their edits.
    edit_octets: usize,
    /// `None` once they are answered.
    answer_tx: Option<oneshot::Sender<Vec<HandlerAnswer>>>,
    deadline_tx: watch::Sender<Instant>,
    /// Latest deadline.
    latest: Instant,
}

#[derive(Debug)]
struct OpenCall {
    call: HandlerCall,
    claim: GrowingClaim,
    reads: BTreeMap<LeafRead, Vec<Value>>,
    /// An edit was refused.
    failure: Option<HandlerError>,
}

/// Calls that were sent to one handler.
#[derive(Debug)]
pub(super) struct SentCalls {
    pub(super) calls: Vec<HandlerCall>,
    pub(super) answer_rx: oneshot::Receiver<Vec<HandlerAnswer>>,
    pub(super) deadline_rx: watch::Receiver<Instant>,
}

/// A transaction that was begun with the handlers.
#[derive(Debug)]
pub(super) struct BegunTransaction {
    pub(super) tid: u64,
    pub(super) sent: Vec<SentCalls>,
    /// Answers that need no handler.
    pub(super) answers: Vec<(HandlerCall, HandlerAnswer)>,
}

/// The call, and the box as it sees it.
pub(super) struct CallSnapshot {
    pub(super) call: HandlerCall,
    pub(super) ground: Ground,
    pub(super) state: Arc<ObservedBox>,
}

pub(super) fn failed(kind: WorkFailureKind, text: impl Into<String>) -> HandlerAnswer {
    HandlerAnswer::Failed { kind, text: text.into().into() }
}

impl Registry {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds a handler that may serve its calls.
    pub(super) fn attach(
        &mut self,
        caller: SmolStr,
        registration: Registration,
    ) -> Result<(SessionId, mpsc::Receiver<Outgoing>), HandlerError> {
        if self.is_draining {
            let text = "the agent is stopping";
            return Err(HandlerError::new(HandlerErrorKind::Unavailable, text));
        }
        if self.sessions.len() >= MAX_HANDLERS {
            let text = format!("{MAX_HANDLERS} handlers are attached already");
            return Err(HandlerError::new(HandlerErrorKind::Exhausted, text));
        }
        if let Some((holder, action)) = self.actions.holder(&registration) {
            let text = format!("the handler `{}` carries out {action} already", self.name(holder));
            return Err(HandlerError::new(HandlerErrorKind::Exists, text));
        }
        let calls = &registration.calls;
        let holders = self.sessions.values();
        let mut taken = holders.flat_map(|it| it.served.iter().map(move |call| (it, call)));
        if let Some((holder, call)) = taken.find(|(_, it)| calls.iter().any(|own| own.overlaps(it)))
        {
            let text = format!("the handler `{}` takes {} already", holder.name, call_text(call));
            return Err(HandlerError::new(HandlerErrorKind::Exists, text));
        }
        let services: BTreeSet<_> = calls.iter().map(|call| call.service.clone()).collect();
        let is_of = |service: &SmolStr| services.contains(service);
        self.answers.forget(|place, answer| {
            is_of(&place.state.tag.service) && matches!(answer, HandlerAnswer::Failed { .. })
        });
        let (outbox, outbox_rx) = mpsc::channel(OUTBOX_DEPTH);
        let id = self.next_number();
        let queries = self.actions.attach(id, &registration);
        self.find_lost(&registration);
        let Registration { name, calls: served, actions, .. } = registration;
        let session = Session { name, caller, served, actions, outbox, synced: Sync::Due };
        self.sessions.insert(id, session);
        self.served_tx.send_modify(|number| *number += 1);
        self.send(id, AgentMessage::Registered);
        self.send_all(queries);
        Ok((id, outbox_rx))
    }

    /// Removes a handler. Its open calls fail, because nobody can answer them any more.
    pub(super) fn detach(&mut self, id: SessionId, end: Option<HandlerError>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.lose(&session);
        self.served_tx.send_modify(|number| *number += 1);
        if let Some(error) = end {
            // A handler that does not read learns nothing.
            let _ = session.outbox.try_send(Err(error));
        }
        for transaction in self.transactions.values_mut() {
            if let Some(part) = transaction.parts.get_mut(&id) {
                part.answer_tx = None;
                part.calls = Vec::new();
            }
        }
        self.actions.detach(id);
    }

    /// Notes that nobody does the work of a handler any more.
    fn lose(&mut self, session: &Session) {
        // Handlers that came and went under further names have left the work of others, which is named.
        if self.lost.len() < MAX_HANDLERS || self.lost.contains_key(&session.name) {
            let work = self.lost.entry(session.name.clone()).or_default();
            work.calls.extend(session.served.iter().cloned());
            work.actions.extend(session.actions.iter().cloned());
        }
    }

    /// Notes that a handler does work again.
    fn find_lost(&mut self, registration: &Registration) {
        let Registration { calls, actions, .. } = registration;
        self.lost.retain(|_, work| {
            work.calls.retain(|lost| !calls.iter().any(|own| own.overlaps(lost)));
            work.actions.retain(|lost| !actions.contains(lost));
            !(work.calls.is_empty() && work.actions.is_empty())
        });
    }

    /// Names of handlers that are gone, with the types of services whose work nobody does since then.
    pub(super) fn lost(&self) -> Vec<(SmolStr, BTreeSet<SmolStr>)> {
        let services = |work: &LostWork| {
            let of_calls = work.calls.iter().map(|call| call.service.clone());
            of_calls.chain(work.actions.iter().map(|action| action.service.clone())).collect()
        };
        self.lost.iter().map(|(name, work)| (name.clone(), services(work))).collect()
    }

    /// Name of a handler.
    pub(super) fn name(&self, id: SessionId) -> SmolStr {
        self.sessions.get(&id).map(|session| session.name.clone()).unwrap_or_default()
    }

    /// Name of the handler that takes a call.
    pub(super) fn holder(&self, place: &CallPlace) -> Option<SmolStr> {
        let takes = |it: &&Session| it.served.iter().any(|served| served.includes(place));
        self.sessions.values().find(takes).map(|session| session.name.clone())
    }

    /// A receiver that moves when a handler was attached or detached.
    pub(super) fn watch_served(&self) -> watch::Receiver<u64> {
        self.served_tx.subscribe()
    }

    /// A handler as one that publishes.
    pub(super) fn publisher(&self, id: SessionId) -> Publisher {
        let user = self.sessions.get(&id).map(|session| session.caller.clone()).unwrap_or_default();
        Publisher { id, user, served: self.services(id) }
    }

    /// Service types of a handler.
    pub(super) fn services(&self, id: SessionId) -> BTreeSet<SmolStr> {
        let served = self.sessions.get(&id).into_iter().flat_map(|session| &session.served);
        served.map(|call| call.service.clone()).chain(self.actions.services(id)).collect()
    }

    /// Sends a message to a handler; one that leaves its messages unread is removed.
    pub(super) fn send(&mut self, id: SessionId, message: AgentMessage) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let is_sent = session.outbox.try_send(Ok(message)).is_ok();
        if !is_sent {
            self.detach(id, None);
        }
        is_sent
    }

    pub(super) fn send_all(&mut self, messages: impl IntoIterator<Item = Addressed>) {
        for (id, message) in messages {
            self.send(id, message);
        }
    }

    /// Answers of earlier transactions, and the calls that handlers take.
    pub(super) fn answers(&self) -> Answers {
        let served = self.sessions.values().flat_map(|session| session.served.iter().cloned());
        self.answers.clone().with_served(served.collect())
    }

    /// Sends calls to the handlers that take them.
    pub(super) fn begin(&mut self, question: &HandlerQuestion, now: Instant) -> BegunTransaction {
        let tid = self.next_number();
        let mut answers = Vec::new();
        let mut wanted: BTreeMap<SessionId, Vec<HandlerCall>> = BTreeMap::new();
        for call in &question.needed.calls {
            match self.taker(call, &question.author) {
                Ok(id) => wanted.entry(id).or_default().push(call.clone()),
                Err(answer) => answers.push((call.clone(), answer)),
            }
        }
        let ground = question.needed.ground.clone();
        let state = Arc::clone(&question.state);
        self.transactions.insert(tid, Transaction { ground, state, parts: BTreeMap::new() });
        let mut sent = Vec::new();
        let mut first = 0;
        for (id, calls) in wanted {
            let numbers = first..first + calls.len();
            first = numbers.end;
            match self.send_calls(tid, id, numbers, &calls, question, now) {
                Ok(part) => sent.push(part),
                Err(answer) => answers.extend(calls.into_iter().map(|it| (it, answer.clone()))),
            }
        }
        BegunTransaction { tid, sent, answers }
    }

    /// The handler that takes a call of a change by this author.
    fn taker(&self, call: &HandlerCall, author: &str) -> Result<SessionId, HandlerAnswer> {
        let takes = |it: &Session| it.served.iter().any(|served| served.includes(&call.place));
        let Some((id, session)) = self.sessions.iter().find(|(_, it)| takes(it)) else {
            let phase = call.place.phase.name();
            let text = match self.taker_of_other_calls(call) {
                Some((name, other)) => {
                    format!("no handler takes its {phase} call; `{name}` takes its {other} call")
                }
                None => format!("no handler is attached that takes its {phase} call"),
            };
            return Err(failed(WorkFailureKind::Unavailable, text));
        };
        if session.caller == author && self.open_calls(Some(*id)) > 0 {
            let text =
                format!("`{}` is asked for work itself, and would wait for itself", session.name);
            return Err(failed(WorkFailureKind::Precondition, text));
        }
        Ok(*id)
    }

    /// The handler that takes another call of the state of a call, and the name of that phase.
    fn taker_of_other_calls(&self, call: &HandlerCall) -> Option<(SmolStr, &'static str)> {
        let others = [CallPhase::Create, CallPhase::Delete].into_iter();
        others.filter(|phase| *phase != call.place.phase).find_map(|phase| {
            let place = CallPlace { phase, ..call.place.clone() };
            Some((self.holder(&place)?, phase.name()))
        })
    }

    /// Number of calls without an answer, of one handler or of all.
    fn open_calls(&self, of: Option<SessionId>) -> usize {
        let parts = self.transactions.values().flat_map(|it| &it.parts);
        let is_open = |(id, part): &(&SessionId, &Part)| {
            part.answer_tx.is_some() && of.is_none_or(|of| of == **id)
        };
        parts.filter(is_open).map(|(_, part)| part.calls.len()).sum()
    }

    fn send_calls(
        &mut self,
        tid: u64,
        id: SessionId,
        numbers: Range<usize>,
        calls: &[HandlerCall],
        question: &HandlerQuestion,
        now: Instant,
    ) -> Result<SentCalls, HandlerAnswer> {
        if self.open_calls(None) + calls.len() > MAX_OPEN_CALLS {
            let text = format!("{MAX_OPEN_CALLS} calls of handlers are open already");
            return Err(failed(WorkFailureKind::Limit, text));
        }
        let message = AgentMessage::ServicesCommit {
            tid,
            trace: question.trace.clone(),
            cause: question.cause,
            is_dry_run: question.is_dry_run,
            calls: numbers.clone().zip(calls.iter().cloned()).collect(),
            causes: calls.iter().filter_map(|call| question.cause_of(call)).collect(),
        };
        message.check_size().map_err(|error| failed(WorkFailureKind::Limit, error.to_string()))?;
        if !self.send(id, message) {
            return Err(failed(WorkFailureKind::Unavailable, "the handler was lost"));
        }
        let (answer_tx, answer_rx) = oneshot::channel();
        let bounded = |at: Instant| question.deadline.map_or(at, |deadline| deadline.min(at));
        let (deadline_tx, deadline_rx) = watch::channel(bounded(now + WORK_TIME));
        let open = |call: &HandlerCall| OpenCall {
            call: call.clone(),
            claim: GrowingClaim::default(),
            reads: BTreeMap::new(),
            failure: None,
        };
        let part = Part {
            numbers,
            calls: calls.iter().map(open).collect(),
            edit_octets: 0,
            answer_tx: Some(answer_tx),
            deadline_tx,
            latest: bounded(now + MOST_WORK_TIME),
        };
        if let Some(transaction) = self.transactions.get_mut(&tid) {
            transaction.parts.insert(id, part);
        }
        self.note_walked(calls.iter().map(|call| &call.place.state.tag));
        Ok(SentCalls { calls: calls.to_vec(), answer_rx, deadline_rx })
    }

    /// The part of a transaction that a handler has not answered yet.
    fn part(&mut self, tid: u64, id: SessionId) -> Result<&mut Part, HandlerError> {
        let transaction = self.transactions.get_mut(&tid);
        let part = transaction.and_then(|it| it.parts.get_mut(&id)).ok_or_else(|| {
            let text = format!("there is no transaction {tid} with this handler");
            HandlerError::new(HandlerErrorKind::Unknown, text)
        })?;
        if part.answer_tx.is_none() {
            let text = format!("the work for transaction {tid} has ended");
            return Err(HandlerError::new(HandlerErrorKind::Precondition, text));
        }
        Ok(part)
    }

    fn call(
        &mut self,
        tid: u64,
        id: SessionId,
        call: usize,
    ) -> Result<&mut OpenCall, HandlerError> {
        let part = self.part(tid, id)?;
        let at = call.checked_sub(part.numbers.start);
        at.and_then(|at| part.calls.get_mut(at)).ok_or_else(|| {
            let text = format!("transaction {tid} has no call {call}");
            HandlerError::new(HandlerErrorKind::Invalid, text)
        })
    }

    /// An open call and its output so far, for an edit of so many bytes. The call fails where these are too many.
    pub(super) fn claim(
        &mut self,
        tid: u64,
        id: SessionId,
        call: usize,
        octets: usize,
    ) -> Result<(HandlerCall, GrowingClaim), HandlerError> {
        let parts = self.transactions.values().filter_map(|it| it.parts.get(&id));
        let held: usize = parts.map(|part| part.edit_octets).sum();
        let room = HANDLER_EDITS.check(held + octets);
        let open = self.call(tid, id, call)?;
        if let Err(error) = room {
            let error = HandlerError::new(HandlerErrorKind::Exhausted, error.to_string());
            open.failure = Some(error.clone());
            return Err(error);
        }
        let found = (open.call.clone(), open.claim.clone());
        self.part(tid, id)?.edit_octets += octets;
        Ok(found)
    }

    /// Replaces the claim of an open call, or has it fail.
    pub(super) fn set_claim(
        &mut self,
        tid: u64,
        id: SessionId,
        call: usize,
        claim: Result<GrowingClaim, HandlerError>,
    ) -> Result<(), HandlerError> {
        let open = self.call(tid, id, call)?;
        match claim {
            Ok(claim) => open.claim = claim,
            Err(error) => {
                open.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// The box as the call of a handler of this caller sees it.
    pub(super) fn snapshot(
        &mut self,
        caller: &str,
        tid: u64,
        call: usize,
    ) -> Result<(SessionId, CallSnapshot), HandlerError> {
        let own = |(id, it): (&SessionId, &Session)| (it.caller == caller).then_some(*id);
        let sessions: Vec<_> = self.sessions.iter().filter_map(own).collect();
        let has_call = |id: &SessionId| {
            let part = self.transactions.get(&tid).and_then(|it| it.parts.get(id));
            part.is_some_and(|part| part.numbers.contains(&call))
        };
        let id = sessions.into_iter().find(has_call).unwrap_or_default();
        let call = self.call(tid, id, call)?.call.clone();
        let transaction = self.transactions.get(&tid);
        let (ground, state) =
            transaction.map(|it| (it.ground.clone(), Arc::clone(&it.state))).ok_or_else(|| {
                HandlerError::new(HandlerErrorKind::Unknown, "the transaction is gone")
            })?;
        Ok((id, CallSnapshot { call, ground, state }))
    }

    /// Notes what a call has read.
    pub(super) fn note_read(
        &mut self,
        tid: u64,
        id: SessionId,
        call: usize,
        read: LeafRead,
        values: Vec<Value>,
    ) -> Result<(), HandlerError> {
        self.call(tid, id, call)?.reads.insert(read, values);
        Ok(())
    }

    /// Ends the work of a handler for a transaction.
    pub(super) fn done(
        &mut self,
        tid: u64,
        id: SessionId,
        served: &[ServedWork],
    ) -> Result<(), HandlerError> {
        let part = self.part(tid, id)?;
        let calls = part.numbers.clone().zip(std::mem::take(&mut part.calls));
        let answer = |(number, open): (usize, OpenCall)| {
            answer(open, served.iter().find(|it| it.call == number))
        };
        let answers = calls.map(answer).collect();
        if let Some(answer_tx) = part.answer_tx.take() {
            // The change may have been given up meanwhile.
            let _ = answer_tx.send(answers);
        }
        Ok(())
    }

    /// Ends the work of a handler that cannot do it.
    pub(super) fn fail(&mut self, tid: u64, id: SessionId, text: &str) -> Result<(), HandlerError> {
        let part = self.part(tid, id)?;
        let answers = part.calls.iter().map(|_| failed(WorkFailureKind::Work, text)).collect();
        if let Some(answer_tx) = part.answer_tx.take() {
            let _ = answer_tx.send(answers);
        }
        Ok(())
    }

    /// Gives a handler more time, within its bounds.
    pub(super) fn extend(
        &mut self,
        tid: u64,
        id: SessionId,
        deadline: Instant,
    ) -> Result<(), HandlerError> {
        let part = self.part(tid, id)?;
        part.deadline_tx.send_replace(deadline.min(part.latest));
        Ok(())
    }

    /// Ends a transaction; its answers count from now on if it was committed.
    pub(super) fn end(
        &mut self,
        tid: u64,
        result: &Result<(), String>,
        answers: Vec<(HandlerCall, HandlerAnswer)>,
    ) {
        if result.is_ok() {
            for (call, answer) in answers {
                // A handler that has attached since the other one was lost is asked for it.
                let was_lost = matches!(
                    answer,
                    HandlerAnswer::Failed { kind: WorkFailureKind::Unavailable, .. }
                );
                if !was_lost || self.holder(&call.place).is_none() {
                    self.answers.know(call, answer);
                }
            }
        }
        let Some(transaction) = self.transactions.remove(&tid) else { return };
        for (id, part) in transaction.parts {
            let message = match part.answer_tx {
                Some(_) => {
                    let reason = result.clone().err().unwrap_or_default();
                    AgentMessage::Abort { tid, reason }
                }
                None => AgentMessage::Closed { tid, result: result.clone() },
            };
            self.send(id, message);
        }
    }

    /// Forgets the answers for instances that are gone.
    pub(super) fn forget(&mut self, gone: &BTreeSet<ServiceTag>) {
        self.answers.forget(|place, _| gone.contains(&place.state.tag));
    }

    /// Tells all handlers that the agent stops, and has their open calls fail.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        let ids: Vec<_> = self.sessions.keys().copied().collect();
        for id in ids {
            self.send(id, AgentMessage::Drain);
            self.detach(id, None);
        }
    }
}

/// Answer of a handler to one call.
fn answer(open: OpenCall, served: Option<&ServedWork>) -> HandlerAnswer {
    if let Some(HandlerError { kind, text }) = open.failure {
        let kind = match kind {
            HandlerErrorKind::Denied => WorkFailureKind::Denied,
            HandlerErrorKind::Exhausted => WorkFailureKind::Limit,
            _ => WorkFailureKind::Work,
        };
        return failed(kind, text);
    }
    let Some(served) = served else {
        let tag = &open.call.place.state.tag;
        return failed(WorkFailureKind::Work, format!("the handler did not do its work for {tag}"));
    };
    match opaque(&served.opaque) {
        Ok(opaque) => HandlerAnswer::Done(HandlerWork {
            claim: open.claim.claim,
            opaque,
            keeps: (!served.keep.is_empty()).then(|| reason_of_handler(&served.keep).into()),
            reads: open.reads.into_iter().collect(),
        }),
        Err(text) => failed(WorkFailureKind::Work, text),
    }
}

/// Reads opaque values; `None` for an empty text.
fn opaque(text: &str) -> Result<Option<Arc<str>>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > MAX_OPAQUE {
        return Err(format!("the opaque values of a state have at most {MAX_OPAQUE} bytes"));
    }
    let values: Map<String, JsonValue> = serde_json::from_str(text)
        .map_err(|error| format!("the opaque values are not a JSON object: {error}"))?;
    // One form for equal values: what other states depend on does not differ by blanks.
    Ok(Some(serde_json::to_string(&values).unwrap_or_default().into()))
}

fn call_text(call: &ServedCall) -> String {
    let phase = call.phase.name();
    let name = |name: &Option<SmolStr>| name.clone().unwrap_or_else(|| "*".into());
    let component = name(&call.component);
    let state = name(&call.state);
    format!("the {phase} calls of `{}` for {component}, {state}", call.service)
}
