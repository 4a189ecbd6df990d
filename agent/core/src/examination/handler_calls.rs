//! Handlers of services as the core sees them: answers at hand, and a way to ask for others.
//!
//! A change whose walks need the work of handlers is examined in rounds. Between two rounds it holds up no other change:
//!
//! ```text
//!              calls without an answer               answered
//! Examining ---------------------------> Asking ----------------> Answered ---> Examining, on the newest configuration
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_base::ErrorChain;
use holdfast_config::ServiceTag;
use holdfast_config::services::{
    Answers, CallPlace, HandlerAnswer, HandlerCall, NeededCalls, WalkCause,
};
use holdfast_security::acctz::secrets;
use tokio::time::Instant;

use super::box_state::ObservedBox;
use crate::request::{CommitError, Intent};

/// Number of times that one change asks for the work of one state. After each, something that the answer depends on
/// has changed.
const MAX_ROUNDS: usize = 2;

/// Attached handlers, and their answers of earlier changes.
pub trait HandlerCalls: fmt::Debug + Send + Sync {
    /// Answers at hand, and the calls that somebody takes.
    fn answers(&self) -> Answers;

    /// Asks handlers. Each call has an answer in the reply, in time that the implementation bounds; a reply that is not
    /// waited for any more gives the calls up.
    fn ask(&self, question: HandlerQuestion) -> BoxFuture<'static, HandlerReply>;
}

/// Calls of one change, for all handlers.
#[derive(Debug)]
pub struct HandlerQuestion {
    pub needed: Arc<NeededCalls>,
    /// State that handlers read.
    pub state: Arc<ObservedBox>,
    /// Name of the caller of the change.
    pub author: String,
    /// Identifies the request in logs and in the history of the engine.
    pub trace: String,
    /// Name of the kind of change.
    pub cause: &'static str,
    /// Causes of walks that nobody asked for.
    pub causes: BTreeMap<ServiceTag, WalkCause>,
    pub is_dry_run: bool,
    /// Time at which the answers are too late for the client of the change.
    pub deadline: Option<Instant>,
}

impl HandlerQuestion {
    /// The instance of a call with the cause of its walk, if nobody asked for that.
    pub fn cause_of(&self, call: &HandlerCall) -> Option<(ServiceTag, WalkCause)> {
        let tag = &call.place.state.tag;
        Some((tag.clone(), self.causes.get(tag)?.clone()))
    }
}

/// Answers to the calls of one question.
#[derive(Debug)]
pub struct HandlerReply {
    pub answers: Vec<(HandlerCall, HandlerAnswer)>,
    pub transaction: Box<dyn HandlerTransaction>,
}

/// A transaction as the handlers know it that have answered. Dropped for a change that was given up, and for a dry run.
pub trait HandlerTransaction: fmt::Debug + Send {
    /// Number under which handlers were told of it.
    fn tid(&self) -> u64;

    /// The change is final, or was refused for this reason. Called before the change is in force.
    fn end(self: Box<Self>, result: Result<(), String>);
}

/// An examination that needs answers of handlers.
#[derive(Debug)]
pub(crate) struct UnansweredChange {
    pub(crate) intent: Box<Intent>,
    pub(crate) calls: UnansweredCalls,
}

/// Calls that an examination needs the answers of, and the state that it has seen.
#[derive(Debug)]
pub(crate) struct UnansweredCalls {
    pub(crate) needed: Arc<NeededCalls>,
    pub(crate) state: Arc<ObservedBox>,
}

/// Questions of one change to handlers so far.
#[derive(Debug, Default)]
pub(crate) struct HandlerRounds {
    ask_counts: BTreeMap<CallPlace, usize>,
    pub(crate) answers: Vec<(HandlerCall, HandlerAnswer)>,
    transactions: Vec<Box<dyn HandlerTransaction>>,
    /// Numbers of these, also of those that have ended.
    tids: Vec<u64>,
}

impl HandlerRounds {
    /// Notes calls that are about to be asked.
    ///
    /// # Errors
    /// When one was asked too often: what it depends on changes faster than handlers answer.
    pub(crate) fn begin(&mut self, calls: &[HandlerCall]) -> Result<(), CommitError> {
        for call in calls {
            let count = self.ask_counts.entry(call.place.clone()).or_default();
            *count += 1;
            if *count > MAX_ROUNDS {
                return Err(CommitError::Unsettled { service: call.place.state.tag.to_string() });
            }
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, HandlerReply { answers, transaction }: HandlerReply) {
        self.answers.extend(answers);
        self.tids.push(transaction.tid());
        self.transactions.push(transaction);
    }

    /// Numbers under which handlers were told of the change.
    pub(crate) fn tids(&self) -> &[u64] {
        &self.tids
    }

    /// Instances about which handlers were asked.
    pub(crate) fn asked_instances(&self) -> impl Iterator<Item = &ServiceTag> {
        self.ask_counts.keys().map(|place| &place.state.tag)
    }

    /// Reports the outcome of the change to the handlers that were asked.
    pub(crate) fn end(&mut self, result: Result<(), &CommitError>) {
        let reason = |error: &CommitError| secrets::message(&ErrorChain(error).to_string());
        let result = result.map_err(reason);
        self.transactions.drain(..).for_each(|transaction| transaction.end(result.clone()));
    }
}
