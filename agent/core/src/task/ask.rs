//! Calls of handlers, between two examinations of a change.

use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_config::CancelToken;
use holdfast_config::services::Answers;
use holdfast_store::Ticket;
use tokio::time::sleep;

use super::CoreTask;
use crate::commit::{CommitInFlight, Input};
use crate::examination::{HandlerQuestion, HandlerReply, HandlerRounds, UnansweredCalls};
use crate::request::{CommitError, Intent};
use crate::state::JobResult;

/// Time that the rest of a change and its answer need before the deadline of the client.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// Time between two looks for a client that has gone while handlers think.
const CANCEL_INTERVAL: Duration = Duration::from_millis(100);

impl CoreTask {
    /// Answers for the walks of a change.
    pub(crate) fn answers(&self, intent: &Intent, rounds: &HandlerRounds) -> Answers {
        let Some(handlers) = &self.handlers else { return Answers::default() };
        let answers = handlers.answers();
        let answers = if intent.is_redeployment() { answers.without_known() } else { answers };
        answers.with_own(rounds.answers.iter().cloned())
    }

    /// Asks handlers for what the walks of a change need.
    pub(crate) fn ask(&mut self, calls: UnansweredCalls, commit: &mut CommitInFlight) {
        let UnansweredCalls { needed, state } = calls;
        let begun = commit.rounds.begin(&needed.calls).and_then(|()| self.commits.may_ask());
        let (Ok(()), Some(handlers)) = (&begun, &self.handlers) else {
            let error = begun.err().unwrap_or(CommitError::Stopped);
            return self.push_input(commit.ticket, Input::Answered(Err(error)));
        };
        let author = commit.reply.author();
        let reply = handlers.ask(HandlerQuestion {
            needed,
            state,
            author: author.client,
            trace: author.trace,
            cause: commit.reply.name(),
            causes: commit.service_record.causes().clone(),
            is_dry_run: commit.reply.is_dry_run(),
            deadline: commit.options.deadline.and_then(|at| at.checked_sub(ANSWER_TIME)),
        });
        let ticket = commit.ticket;
        let cancel = commit.cancel.clone();
        self.jobs.push(answered(ticket, reply, cancel));
    }
}

/// The answers, unless the client has gone when they come.
async fn answered(
    ticket: Ticket,
    reply: BoxFuture<'static, HandlerReply>,
    cancel: CancelToken,
) -> JobResult {
    let gone = async {
        while !cancel.is_cancelled() {
            sleep(CANCEL_INTERVAL).await;
        }
    };
    let input = tokio::select! {
        reply = reply => Input::Answered(Ok(reply)),
        () = gone => Input::Cancel,
    };
    JobResult::Commit(ticket, input)
}
