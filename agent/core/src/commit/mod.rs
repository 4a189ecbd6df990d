//! One commit as a state machine without I/O: inputs in, effects out.
//!
//! Every change takes this way: a Set and its dry run, a commit that must be confirmed and its confirmation or rollback,
//! boot configuration, leases, switches, credentials, a factory reset. Start at [`Commit::on`]; `effects.rs` carries the
//! effects out in their order, and brings each result back as an input.
//!
//! ```text
//!  Change: examine                                   Confirm: confirm
//!     |                                                 |
//!     v          Cancel, or refused                     v
//! Examining -----------------------> Ended (1)      Confirming
//!     | Examined: wait                                  | Finished: close the window
//!     v          Turn, outdated: examine again          v
//! Waiting -------------------------> Examining      Ended (2)
//!     | Turn, clear: plan
//!     v          refused
//! Planning ------------------------> Ended (1)
//!     | |        a dry run
//!     | +--------------------------> Ended (3)
//!     | Planned: record
//!     v
//! Preparing
//!     | Prepared
//!     v          the engine ends the plan early
//! Recording -----------------------> GivenUp -- Recorded --> as from Executing
//!     | |        the disk refuses: cancel
//!     | +--------------------------> Reverting -- Engine --> Ended (1)
//!     | Recorded: start
//!     v          failed, and run back: abort
//! Executing -----------------------> Aborting -- Finished --> Ended (1)
//!     | |        service instances may be ready now: judge
//!     | +--------------------------> Judging -- Judged: finalize --> Finalizing
//!     | Engine: finalize
//!     v          the disk refuses: undo
//! Finalizing ----------------------> StartingUndo -- UndoStarted --> Reverting -- Engine --> Ended (1)
//!     | Finished: apply
//!     v          a small change: publish
//! Applying ------------------------> Ended (4)
//!     | Applied: answer a large change (4)
//!     v
//! Replying
//!     | Replied: build its revision
//!     v
//! Building -- Built: publish ------> Ended
//!
//! Answered with (1) its error, (2) success without a change, (3) the preview, (4) time and revision.
//! ```
//!
//! Credentials alone are not recorded: they skip the disk, and are in force when the engine is done. A client that goes
//! counts until the change is recorded (Cancel); later the change is carried out. The deadline of a commit that must be
//! confirmed begins another commit, the rollback.
//!
//! An examination that needs the work of handlers asks first, and is repeated with the answers: Asking, then Answered
//! ([`HandlerCalls`](crate::HandlerCalls)).
//!
//! Of a change that has walked instances of services, `ready` is judged again once its objects are verified, and goes into
//! the write that makes it final ([`judged`](crate::planning::judged)).
//!
//! Absent on purpose: time, the store, the engine and the reply channel, which the effects have.

mod in_flight;
mod table;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::{Configuration, Footprint, ServiceTag};
use holdfast_scheduler::{TransactionOutcome, TxnId};
use holdfast_store::{Change, StoreError};

use crate::changes::{AppliedChange, PlannedChange};
use crate::examination::{
    Candidate, CredentialValues, HandlerReply, UnansweredCalls, UnansweredChange,
};
use crate::planning::JudgedChange;
use crate::publication::BuildResult;
use crate::request::{CommitError, CommitStamp, Intent};

pub(crate) use in_flight::{CommitInFlight, ExaminationBase, runs_alone};
pub(crate) use table::{CommitInput, CommitTable, Turn};
pub use window::UnconfirmedCommit;
pub(crate) use window::{ConfirmWindow, Window};

/// The state machine of one commit.
#[derive(Debug)]
pub(super) struct Commit {
    kind: CommitKind,
    state: State,
}

/// Kinds of commits, by the effects that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitKind {
    Recorded,
    /// A change of nothing that the core keeps over restarts; the store is not asked then.
    Unrecorded,
    DryRun,
}

/// State of a commit: the input that it waits for.
#[derive(Debug)]
enum State {
    Admitted,
    /// A thread works out the meaning of the request.
    Examining,
    /// Handlers of services are asked for what the examination needs.
    Asking {
        intent: Box<Intent>,
    },
    /// Handlers have answered, and the change waits to be examined again.
    Answered {
        intent: Box<Intent>,
    },
    /// The commit has not been found to keep clear of others.
    Waiting {
        candidate: Box<Candidate>,
    },
    /// A thread plans.
    Planning,
    Preparing,
    /// The store records the change; the engine has prepared the plan.
    Recording {
        txn: TxnId,
        change: Box<PlannedChange>,
    },
    /// The store records the change, and the engine has ended its transaction meanwhile.
    GivenUp {
        outcome: TransactionOutcome,
        change: Box<PlannedChange>,
    },
    /// The engine carries out the plan.
    Executing {
        txn: TxnId,
        change: Box<PlannedChange>,
    },
    /// A thread judges which instances of services are ready.
    Judging {
        change: Box<PlannedChange>,
    },
    /// The store makes the change final.
    Finalizing {
        change: Box<PlannedChange>,
    },
    /// The store takes the change back; `error` will be the answer.
    Aborting {
        error: CommitError,
    },
    StartingUndo {
        error: StoreError,
    },
    /// The engine takes the change back, because the store could not record it or make it final.
    Reverting {
        txn: TxnId,
        error: StoreError,
    },
    /// The change is final.
    Applying {
        is_large: bool,
    },
    /// The answer is on its way, before any revision shows the change.
    Replying {
        applied: Arc<AppliedChange>,
    },
    /// A thread builds the revision that shows the change.
    Building {
        applied: Arc<AppliedChange>,
    },
    /// The store makes the commit final that waits to be confirmed.
    Confirming,
    Ended,
}

/// Input of the state machine. `P` is a plan with the rows laid out for it, which the machine hands on unopened.
#[derive(Debug)]
pub(super) enum Input<P> {
    /// A request that passed admission.
    Change(Box<Intent>),
    /// A confirmation of the commit that waits for it.
    Confirm,
    /// The client has gone before anything was recorded.
    Cancel,
    Examined(Result<Box<Candidate>, CommitError>),
    /// The examination needs answers of handlers.
    Unanswered(Box<UnansweredChange>),
    Answered(Result<HandlerReply, CommitError>),
    /// The commit need not wait for others, or no longer.
    Turn(Turn),
    Planned(Result<P, CommitError>),
    /// The engine has taken the plan over.
    Prepared {
        txn: TxnId,
        change: Box<PlannedChange>,
    },
    Recorded(Result<(), StoreError>),
    /// Outcome of a transaction of the engine, of this commit or another one.
    Engine(TransactionOutcome),
    /// The change with `ready` judged; `None` if that failed, which the walk that follows makes good.
    Judged(Option<Box<JudgedChange>>),
    /// Result of making the change final, or of taking it back, in the store.
    Finished(Result<(), StoreError>),
    /// Start of the plan that takes the change back; `None` if there can be no such plan.
    UndoStarted(Option<TxnId>),
    Applied(Arc<AppliedChange>),
    /// The answer of a large commit is on its way.
    Replied,
    Built(BuildResult),
}

/// Effect of an input, carried out before the next one.
#[derive(Debug)]
pub(super) enum Effect<P> {
    Examine(Box<Intent>),
    /// Examines again a change that handlers have answered.
    ExamineAnswered(Box<Intent>),
    /// Asks handlers.
    Ask(UnansweredCalls),
    /// Keeps answers of handlers for the examinations to come.
    NoteAnswers(HandlerReply),
    /// Has the commit wait until what it writes and reads keeps clear of the commits ahead.
    Wait(Arc<Footprint>),
    Plan(Box<Candidate>),
    /// Has the store write the rows, and the engine take the plan over.
    Record(P),
    /// Has the engine begin with the plan, which is durable now.
    Start(TxnId),
    /// Has the engine take back the plan that could not be recorded.
    Cancel(TxnId),
    /// Judges which of these instances are ready in a configuration.
    Judge(Box<Configuration>, BTreeSet<ServiceTag>),
    /// Makes the change final in the store, with rows that differ since they were prepared.
    Finalize(Vec<Change>),
    /// Takes the change back in the store.
    Abort,
    /// Takes back in the kernel what the store could not make final.
    Undo(Box<PlannedChange>),
    /// Puts changed credentials in force, and notes that the change is.
    SetCredentials(CredentialValues),
    /// Puts the configuration in force.
    Apply(Box<PlannedChange>),
    /// Has a thread build the revision that shows the change.
    Build(Arc<AppliedChange>),
    /// Publishes the revision that shows the change; one that was built for it is used.
    Publish(Arc<AppliedChange>, Option<BuildResult>),
    /// Has the store make the commit final that waits to be confirmed.
    Confirm,
    /// Ends the wait for a confirmation.
    CloseWindow,
    /// Has the state of the objects shown that was deferred until the end of the commit.
    Release,
    Answer(Result<CommitStamp, CommitError>),
    /// Answers a change that the newest revision does not show; readers wait for it from now on.
    AnswerAhead(CommitStamp),
    /// Answers a request that changed no configuration.
    AnswerUnchanged,
    /// Answers a dry run with its plan.
    AnswerPreview(P),
}

impl Commit {
    pub(super) fn new(kind: CommitKind) -> Self {
        Self { kind, state: State::Admitted }
    }

    pub(super) fn kind(&self) -> CommitKind {
        self.kind
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// True until the examination has ended.
    pub(super) fn is_examining(&self) -> bool {
        matches!(self.state, State::Admitted | State::Examining)
    }

    /// True while handlers think about it.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking { .. })
    }

    /// True for a commit that handlers have answered, and that is to be examined again.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.state, State::Answered { .. })
    }

    /// True for a commit that is neither examined nor carried out, because of handlers.
    pub(super) fn is_waiting_for_handlers(&self) -> bool {
        self.is_asking() || self.is_answered()
    }

    /// True for a commit that waits for others.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// The transaction of the engine that the commit waits for.
    pub(super) fn txn(&self) -> Option<TxnId> {
        match &self.state {
            State::Recording { txn, .. }
            | State::Executing { txn, .. }
            | State::Reverting { txn, .. } => Some(*txn),
            _ => None,
        }
    }

    /// The change that the engine carries out.
    pub(super) fn executed_change(&self) -> Option<&PlannedChange> {
        match &self.state {
            State::Executing { change, .. } => Some(change),
            _ => None,
        }
    }

    /// True for a change in force that is answered before a revision shows it.
    pub(super) fn is_large(&self) -> bool {
        matches!(self.state, State::Applying { is_large: true })
    }

    /// True while a commit was answered that no revision shows.
    pub(super) fn is_publishing(&self) -> bool {
        matches!(self.state, State::Replying { .. } | State::Building { .. })
    }

    /// Handles an input and returns its effects in order. An input that the state does not wait for has none: the end of
    /// another transaction of the engine, or a client that goes when its change is recorded.
    pub(super) fn on<P>(&mut self, input: Input<P>) -> Vec<Effect<P>> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let (next, effects) = self.step(state, input);
        self.state = next;
        effects
    }

    fn step<P>(&self, state: State, input: Input<P>) -> (State, Vec<Effect<P>>) {
        match (state, input) {
            (State::Admitted, Input::Change(intent)) => {
                (State::Examining, vec![Effect::Examine(intent)])
            }
            (State::Admitted, Input::Confirm) => (State::Confirming, vec![Effect::Confirm]),
            (State::Examining, Input::Cancel) => refuse(CommitError::Abandoned),
            (State::Examining, Input::Examined(Ok(candidate))) => self.after_examination(candidate),
            (State::Examining, Input::Examined(Err(error))) => refuse(error),
            (State::Examining, Input::Unanswered(unanswered)) => {
                let UnansweredChange { intent, calls } = *unanswered;
                (State::Asking { intent }, vec![Effect::Ask(calls)])
            }
            (State::Asking { intent }, Input::Answered(Ok(reply))) => {
                (State::Answered { intent }, vec![Effect::NoteAnswers(reply)])
            }
            (State::Asking { .. }, Input::Answered(Err(error))) => refuse(error),
            (State::Asking { .. }, Input::Cancel) => refuse(CommitError::Abandoned),
            (State::Answered { intent }, Input::Turn(Turn::Answered)) => {
                (State::Examining, vec![Effect::ExamineAnswered(intent)])
            }
            (State::Waiting { candidate }, Input::Turn(Turn::Clear)) => {
                (State::Planning, vec![Effect::Plan(candidate)])
            }
            (State::Waiting { .. }, Input::Turn(Turn::Abandoned)) => refuse(CommitError::Abandoned),
            (State::Waiting { candidate }, Input::Turn(Turn::Outdated)) => {
                (State::Examining, vec![Effect::Examine(candidate.intent)])
            }
            (State::Planning, Input::Planned(planned)) => self.after_plan(planned),
            (State::Preparing, Input::Prepared { txn, change }) => {
                (State::Recording { txn, change }, Vec::new())
            }
            (State::Recording { txn, change }, input) => while_recording(txn, change, input),
            (State::GivenUp { outcome, change }, Input::Recorded(Ok(()))) => {
                self.after_execution(outcome, change)
            }
            (State::GivenUp { .. }, Input::Recorded(Err(error))) => {
                refuse(CommitError::Store(error))
            }
            (State::Executing { txn, change }, Input::Engine(outcome)) if outcome.txn() == txn => {
                self.after_execution(outcome, change)
            }
            (State::Judging { change }, Input::Judged(judged)) => after_judgement(change, judged),
            (State::Finalizing { change }, Input::Finished(Ok(()))) => after_finalize(change),
            (State::Finalizing { change }, Input::Finished(Err(error))) => {
                (State::StartingUndo { error }, vec![Effect::Undo(change)])
            }
            (State::Aborting { error }, Input::Finished(_)) => refuse(error),
            (State::StartingUndo { error }, Input::UndoStarted(Some(txn))) => {
                (State::Reverting { txn, error }, Vec::new())
            }
            (State::StartingUndo { error }, Input::UndoStarted(None)) => {
                refuse(CommitError::Store(error))
            }
            (State::Reverting { txn, error }, Input::Engine(outcome)) if outcome.txn() == txn => {
                refuse(CommitError::Store(error))
            }
            (State::Applying { is_large }, Input::Applied(applied)) => {
                after_apply(is_large, applied)
            }
            (State::Replying { applied }, Input::Replied) => {
                (State::Building { applied: Arc::clone(&applied) }, vec![Effect::Build(applied)])
            }
            (State::Building { applied }, Input::Built(built)) => {
                (State::Ended, vec![Effect::Publish(applied, Some(built))])
            }
            (State::Confirming, Input::Finished(Ok(()))) => {
                (State::Ended, vec![Effect::CloseWindow, Effect::Release, Effect::AnswerUnchanged])
            }
            (State::Confirming, Input::Finished(Err(error))) => refuse(CommitError::Store(error)),
            (state, _) => (state, Vec::new()),
        }
    }

    /// Has a change wait for its turn. A dry run only reads, and shows the plan of the moment.
    fn after_examination<P>(&self, candidate: Box<Candidate>) -> (State, Vec<Effect<P>>) {
        if self.kind == CommitKind::DryRun {
            return (State::Planning, vec![Effect::Plan(candidate)]);
        }
        let wait = Effect::Wait(Arc::clone(&candidate.footprint));
        (State::Waiting { candidate }, vec![wait])
    }

    fn after_plan<P>(&self, planned: Result<P, CommitError>) -> (State, Vec<Effect<P>>) {
        match planned {
            Ok(planned) if self.kind == CommitKind::DryRun => {
                (State::Ended, vec![Effect::Release, Effect::AnswerPreview(planned)])
            }
            Ok(planned) => (State::Preparing, vec![Effect::Record(planned)]),
            Err(error) => refuse(error),
        }
    }

    /// Goes on after the end of the plan. A change that was not recorded is in force now, or was taken back.
    fn after_execution<P>(
        &self,
        outcome: TransactionOutcome,
        change: Box<PlannedChange>,
    ) -> (State, Vec<Effect<P>>) {
        let is_recorded = self.kind == CommitKind::Recorded;
        match failure(outcome, &change) {
            None if is_recorded && !change.unready.is_empty() => {
                let configuration = Box::new(change.configuration.clone());
                let judge = Effect::Judge(configuration, change.unready.clone());
                (State::Judging { change }, vec![judge])
            }
            None if is_recorded => {
                (State::Finalizing { change }, vec![Effect::Finalize(Vec::new())])
            }
            None => {
                let set = Effect::SetCredentials(change.credentials);
                (State::Ended, vec![set, Effect::Release, Effect::AnswerUnchanged])
            }
            Some(error) if is_recorded => (State::Aborting { error }, vec![Effect::Abort]),
            Some(error) => refuse(error),
        }
    }
}

/// Ends the commit with an error: nothing has changed, or everything was taken back.
fn refuse<P>(error: CommitError) -> (State, Vec<Effect<P>>) {
    (State::Ended, vec![Effect::Release, Effect::Answer(Err(error))])
}

/// Handles an input while the store records the change.
fn while_recording<P>(
    txn: TxnId,
    change: Box<PlannedChange>,
    input: Input<P>,
) -> (State, Vec<Effect<P>>) {
    match input {
        Input::Recorded(Ok(())) => (State::Executing { txn, change }, vec![Effect::Start(txn)]),
        Input::Recorded(Err(error)) => (State::Reverting { txn, error }, vec![Effect::Cancel(txn)]),
        Input::Engine(outcome) if outcome.txn() == txn => {
            (State::GivenUp { outcome, change }, Vec::new())
        }
        _ => (State::Recording { txn, change }, Vec::new()),
    }
}

/// Has a change made final in which instances are ready.
fn after_judgement<P>(
    mut change: Box<PlannedChange>,
    judged: Option<Box<JudgedChange>>,
) -> (State, Vec<Effect<P>>) {
    let rows = judged.map(|judged| {
        change.configuration = judged.configuration;
        judged.rows
    });
    (State::Finalizing { change }, vec![Effect::Finalize(rows.unwrap_or_default())])
}

/// Puts a final change in force.
fn after_finalize<P>(mut change: Box<PlannedChange>) -> (State, Vec<Effect<P>>) {
    let is_large = change.is_large();
    let credentials = std::mem::take(&mut change.credentials);
    let effects = vec![Effect::SetCredentials(credentials), Effect::Apply(change)];
    (State::Applying { is_large }, effects)
}

/// Publishes a small change and answers it; a large one is answered first.
fn after_apply<P>(is_large: bool, applied: Arc<AppliedChange>) -> (State, Vec<Effect<P>>) {
    let stamp = applied.stamp;
    if is_large {
        return (State::Replying { applied }, vec![Effect::AnswerAhead(stamp)]);
    }
    (State::Ended, vec![Effect::Publish(applied, None), Effect::Answer(Ok(stamp))])
}

/// The error of the plan of a change that did not come to its end.
fn failure(outcome: TransactionOutcome, change: &PlannedChange) -> Option<CommitError> {
    match outcome {
        TransactionOutcome::Done { .. } => None,
        TransactionOutcome::Cancelled { .. } => Some(CommitError::Stopped),
        TransactionOutcome::Refused { reason, .. } => Some(CommitError::planning(&reason)),
        TransactionOutcome::Failed { key, label, error, undone, .. } => Some(CommitError::Failed {
            path: change.path_of(&key),
            object: label,
            errno: error.errno,
            message: error.message,
            undone,
        }),
    }
}
