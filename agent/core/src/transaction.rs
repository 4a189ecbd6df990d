//! The stages of one client transaction.

use std::sync::Arc;
use std::time::Instant;

use holdfast_base::Chain;
use holdfast_config::schema::Origin;
use holdfast_config::{Cancel, Configuration, InstancePath};
use holdfast_scheduler::{Author, Key, Outcome, SharedValue, TxnId, sort_keys};
use holdfast_security::acctz::secrets;
use holdfast_security::credentialz::Credentials;
use holdfast_store::{ArtefactChange, StoreError, Unconfirmed};
use smol_str::SmolStr;
use tokio::sync::oneshot;

use super::intent::{Intent, Values};
use super::making::Told;
use super::options::{CommitOptions, ConfirmAction, Confirmation};
use super::preview::{BoundedList, ConfigChange, Preview};
use super::{Answer, CommitError, CommitRequest, CommitStamp};

/// The reply channel of a request, and its name in logs.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Random identifier of the request, in logs and in the engine's history.
    pub(super) trace: u64,
    pub(super) caller: String,
    /// Name of the kind of change, for logs and the engine's history.
    pub(super) what: &'static str,
    pub(super) since: Instant,
    /// `None` once the request is answered.
    pub(super) answer: Option<Answer>,
}

/// Result of an examination: the configuration after a request, and the values and rows that differ.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) configuration: Configuration,
    pub(super) changes: Vec<Changed>,
    pub(super) rows: Vec<holdfast_store::Change>,
    /// Credentials that differ, of no layer.
    pub(super) logins: Values,
    /// For a dry run: differences in the configuration that clients see.
    pub(super) differences: Option<BoundedList<ConfigChange>>,
}

/// One native object that a request changes.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) path: InstancePath,
    pub(super) key: Key,
    /// True when the object was configured before.
    pub(super) existed: bool,
    /// `None` removes the object.
    pub(super) value: Option<SharedValue>,
}

/// Changes of credentials.
#[derive(Debug, Default)]
pub(super) struct LoginChange {
    pub(super) values: Values,
    /// Set for values that were in force before: such come back as far as they can, like at a start.
    pub(super) taken_back: bool,
    /// The credentials of credentialz from then on.
    pub(super) credentials: Option<Arc<Credentials>>,
}

/// Keys of a transaction in flight; changes of their state are shown when it ends.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// Hundreds of thousands at times, so they are sorted only when the first change is reported.
    keys: Vec<Key>,
    /// For each key, true once a change was reported; empty before the first report.
    heard: Vec<bool>,
}

/// Result of reporting a change of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    No,
    /// Held back, as the first change of this key.
    First,
    Again,
}

impl Withheld {
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys, heard: Vec::new() }
    }

    /// Sorts the keys before the first report. The transports are at work then, so nothing waits for the sorting.
    fn get_ready(&mut self) {
        if self.heard.is_empty() {
            sort_keys(&mut self.keys);
            self.heard.resize(self.keys.len(), false);
        }
    }

    /// Reports a change of a key, which is held back if the key belongs to the transaction.
    pub(super) fn hold(&mut self, key: &Key) -> Held {
        self.get_ready();
        let Ok(at) = self.keys.binary_search(key) else { return Held::No };
        match std::mem::replace(&mut self.heard[at], true) {
            false => Held::First,
            true => Held::Again,
        }
    }

    /// Keys without a reported change.
    pub(super) fn quiet(mut self) -> impl Iterator<Item = Key> {
        self.get_ready();
        let heard = self.keys.into_iter().zip(self.heard);
        heard.filter(|(_, heard)| !heard).map(|(key, _)| key)
    }
}

/// One transaction in flight, from its examination to its answer.
#[derive(Debug)]
pub(super) struct Transaction {
    /// Number of the transaction in the store.
    pub(super) number: u64,
    pub(super) ticket: Ticket,
    pub(super) options: CommitOptions,
    /// Cancelled when the client has gone; looked at until the change is recorded.
    pub(super) cancel: Cancel,
    /// True when the commit that waits to be confirmed is taken back, by a rollback or a factory reset.
    pub(super) is_rollback: bool,
    /// True when earlier, accepted configuration is restored, which is not checked against the present state of the box.
    pub(super) is_admitted: bool,
    /// Credential changes, which no layer holds.
    pub(super) logins: LoginChange,
    /// gNSI artefacts that become final with the commit.
    pub(super) artefacts: Vec<ArtefactChange>,
    /// True when the change concerns nothing that the core keeps over restarts; the store is not asked then.
    pub(super) is_unrecorded: bool,
    /// Model of the paths in error messages.
    pub(super) origin: Origin,
    pub(super) changes: Vec<Changed>,
    /// Keys whose state is not shown before the transaction ends.
    pub(super) withheld: Withheld,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A thread works out what the request means.
    Examining,
    /// The store records the change; the engine has prepared the plan. `ended` is set if the engine gave it up
    /// meanwhile.
    Recording { configuration: Configuration, txn: TxnId, ended: Option<Outcome> },
    /// The engine carries out the plan.
    Executing { configuration: Configuration, txn: TxnId },
    /// The store makes the change final.
    Committing { configuration: Configuration },
    /// The change is answered, and the revision that shows it is being made.
    Revealing(Commit),
    /// The store takes the change back; `error` will be the answer.
    Aborting { error: CommitError },
    /// The engine takes the change back, because the store could not record it or make it final.
    TakingBack { error: StoreError, txn: TxnId },
    /// The store makes the commit that waits to be confirmed final.
    Confirming,
}

/// A commit that is final and that no revision shows yet.
#[derive(Debug)]
pub(super) struct Commit {
    /// The configuration before the commit.
    pub(super) old: Configuration,
    /// Id of the commit that must be confirmed, if this commit is the one or takes it back.
    pub(super) confirm_id: Option<SmolStr>,
    pub(super) time_ns: u64,
    /// New objects whose state is shown by the thread that makes the revision, not by the core.
    pub(super) told: Arc<Vec<Told>>,
}

impl Transaction {
    pub(super) fn new(number: u64, ticket: Ticket, options: CommitOptions) -> Self {
        let (changes, withheld, stage) = (Vec::new(), Withheld::default(), Stage::Examining);
        Self {
            number,
            ticket,
            options,
            cancel: Cancel::default(),
            is_rollback: false,
            is_admitted: false,
            origin: Origin::OpenConfig,
            logins: LoginChange::default(),
            artefacts: Vec::new(),
            is_unrecorded: false,
            changes,
            withheld,
            stage,
        }
    }

    /// Effect of the commit on the record of the commit that waits to be confirmed.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        match &self.options.confirmation {
            _ if self.is_rollback => Unconfirmed::Ends,
            Some(Confirmation { action: ConfirmAction::Begin { .. }, .. }) => Unconfirmed::Begins,
            _ => Unconfirmed::Stays,
        }
    }
}

impl Ticket {
    /// Splits a request into its ticket, its intent and its options.
    pub(super) fn of(request: CommitRequest) -> (Self, Intent, CommitOptions) {
        let CommitRequest { caller, intent, options, answer, .. } = request;
        let ticket = Self {
            trace: rand::random(),
            caller: caller.name.to_string(),
            what: intent.name(),
            since: Instant::now(),
            answer: Some(answer),
        };
        (ticket, intent, options)
    }

    /// Ticket of a change that the agent makes by itself; no client waits for its answer.
    pub(super) fn own(what: &'static str) -> Self {
        let (answer, _nobody) = oneshot::channel();
        let (caller, answer) = ("agent".to_owned(), Some(Answer::Commit(answer)));
        Self { trace: rand::random(), caller, what, since: Instant::now(), answer }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        matches!(self.answer, Some(Answer::Preview(_)))
    }

    pub(super) fn author(&self) -> Author {
        Author { client: self.caller.clone(), trace: format!("{:016x}", self.trace) }
    }

    /// Sends and logs the result. It stands even if the client has gone.
    pub(super) fn answer(&mut self, result: Result<CommitStamp, CommitError>) {
        let Some(answer) = self.answer.take() else { return };
        let elapsed = self.since.elapsed();
        match &result {
            Ok(done) => tracing::info!(
                trace = format_args!("{:016x}", self.trace),
                caller = %self.caller, what = self.what, revision = done.revision, ?elapsed, "committed"
            ),
            Err(error) => {
                // The text may repeat secrets that the client sent; they are left out, like in accounting records.
                let error = secrets::message(&Chain(error).to_string());
                tracing::info!(
                    trace = format_args!("{:016x}", self.trace),
                    caller = %self.caller, what = self.what, error, ?elapsed, "refused"
                );
            }
        }
        match (answer, result) {
            (Answer::Commit(answer), result) => drop(answer.send(result)),
            (Answer::Preview(answer), Err(error)) => drop(answer.send(Err(error))),
            (Answer::Preview(_), Ok(_)) => {} // a dry run is never committed
        }
    }

    /// Answers a dry run.
    pub(super) fn show(&mut self, preview: Preview) {
        if let Some(Answer::Preview(answer)) = self.answer.take() {
            drop(answer.send(Ok(preview))); // the client may have gone
        }
    }
}
