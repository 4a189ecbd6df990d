//! The stages of one client transaction.

use std::time::Instant;

use holdfast_config::{Configuration, InstancePath};
use holdfast_scheduler::{Key, KeySet, Plan, SharedValue, TxnId};
use tokio::sync::oneshot;

use super::{CommitError, Committed};

/// The answer channel of a request, and what logs call it.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Names the request in all logs, and in the engine's history.
    pub(super) trace: u64,
    pub(super) caller: String,
    /// What kind of change it is.
    pub(super) what: &'static str,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<Result<Committed, CommitError>>,
}

/// What a request would make of configuration and values.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) configuration: Configuration,
    pub(super) changes: Vec<Changed>,
    pub(super) rows: Vec<crate::store::Change>,
}

/// One native object that a request changes.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) path: InstancePath,
    pub(super) key: Key,
    /// It was configured before, too.
    pub(super) existed: bool,
    /// `None` when it is not to exist any more.
    pub(super) value: Option<SharedValue>,
}

/// One transaction in flight, from its examination to its answer.
#[derive(Debug)]
pub(super) struct Transaction {
    /// What the store knows it by.
    pub(super) number: u64,
    pub(super) ticket: Ticket,
    pub(super) changes: Vec<Changed>,
    /// Keys whose state is withheld until it ends.
    pub(super) withheld: KeySet,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A thread works out what the request means.
    Examining,
    /// The store writes it down.
    Recording { configuration: Configuration, plan: Box<Plan> },
    /// The engine carries it out.
    Executing { configuration: Configuration, txn: TxnId },
    /// The store makes it final.
    Committing { configuration: Configuration },
    /// The store takes it back; this will be the answer.
    Aborting { error: CommitError },
}

impl Ticket {
    /// Nobody may be waiting any more; what was decided stands all the same.
    pub(super) fn answer(self, result: Result<Committed, CommitError>) {
        let elapsed = self.since.elapsed();
        match &result {
            Ok(done) => tracing::info!(
                trace = format_args!("{:016x}", self.trace),
                caller = %self.caller, what = self.what, revision = done.revision, ?elapsed, "committed"
            ),
            Err(error) => tracing::info!(
                trace = format_args!("{:016x}", self.trace),
                caller = %self.caller, what = self.what, error = %crate::logging::Chain(error), ?elapsed, "refused"
            ),
        }
        drop(self.answer.send(result));
    }
}
