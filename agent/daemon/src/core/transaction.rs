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
use super::preview::{ConfigChange, Listed, Preview};
use super::{Answer, CommitError, CommitRequest, Committed};

/// The answer channel of a request, and what logs call it.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Names the request in all logs, and in the engine's history.
    pub(super) trace: u64,
    pub(super) caller: String,
    /// What kind of change it is.
    pub(super) what: &'static str,
    pub(super) since: Instant,
    /// None once it is answered.
    pub(super) answer: Option<Answer>,
}

/// What a request would make of configuration and values.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) configuration: Configuration,
    pub(super) changes: Vec<Changed>,
    pub(super) rows: Vec<holdfast_store::Change>,
    /// Credentials that differ, of no layer.
    pub(super) logins: Values,
    /// For a dry run: in what clients would see another configuration.
    pub(super) differences: Option<Listed<ConfigChange>>,
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

/// Changes of credentials.
#[derive(Debug, Default)]
pub(super) struct LoginChange {
    pub(super) values: Values,
    /// Set for values that were in force before: such come back as far as they can, like at a start.
    pub(super) taken_back: bool,
    /// The credentials of credentialz from then on.
    pub(super) credentials: Option<Arc<Credentials>>,
}

/// What is held back of a transaction until it ends.
#[derive(Debug, Default)]
pub(super) struct Withheld {
    /// There may be hundreds of thousands. Ascending once something was heard.
    keys: Vec<Key>,
    /// Of each key, whether anything new was heard; empty before that.
    heard: Vec<bool>,
}

/// Whether something about a key is held back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    No,
    /// It is, and so far nothing was.
    First,
    Again,
}

impl Withheld {
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys, heard: Vec::new() }
    }

    /// Puts the keys in order. When something is heard, the transports are at work, and do not wait for that.
    fn get_ready(&mut self) {
        if self.heard.is_empty() {
            sort_keys(&mut self.keys);
            self.heard.resize(self.keys.len(), false);
        }
    }

    /// Holds back that something is new about a key, if it is one of these.
    pub(super) fn hold(&mut self, key: &Key) -> Held {
        self.get_ready();
        let Ok(at) = self.keys.binary_search(key) else { return Held::No };
        match std::mem::replace(&mut self.heard[at], true) {
            false => Held::First,
            true => Held::Again,
        }
    }

    /// That of which nothing was heard.
    pub(super) fn quiet(mut self) -> impl Iterator<Item = Key> {
        self.get_ready();
        let heard = self.keys.into_iter().zip(self.heard);
        heard.filter(|(_, heard)| !heard).map(|(key, _)| key)
    }
}

/// One transaction in flight, from its examination to its answer.
#[derive(Debug)]
pub(super) struct Transaction {
    /// What the store knows it by.
    pub(super) number: u64,
    pub(super) ticket: Ticket,
    pub(super) options: CommitOptions,
    /// Called when nobody waits for it any more, of which it takes notice until it is recorded.
    pub(super) cancel: Cancel,
    /// It takes back the commit that waits to be confirmed, alone or with everything else.
    pub(super) is_rollback: bool,
    /// True when the change brings back what was accepted before, which is not judged by the box as it is now.
    pub(super) is_admitted: bool,
    /// Credential changes, which no layer holds.
    pub(super) logins: LoginChange,
    /// What of gNSI is written down with it.
    pub(super) artefacts: Vec<ArtefactChange>,
    /// The store is not asked: it changes nothing that the core keeps over restarts.
    pub(super) is_unrecorded: bool,
    /// The model in which its author speaks.
    pub(super) origin: Origin,
    pub(super) changes: Vec<Changed>,
    /// Keys whose state is withheld until it ends.
    pub(super) withheld: Withheld,
    pub(super) stage: Stage,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// A thread works out what the request means.
    Examining,
    /// The store writes it down; the engine is prepared. It may have been called off meanwhile.
    Recording { configuration: Configuration, txn: TxnId, ended: Option<Outcome> },
    /// The engine carries it out.
    Executing { configuration: Configuration, txn: TxnId },
    /// The store makes it final.
    Committing { configuration: Configuration },
    /// It is answered, and the revision that shows it is in the making.
    Revealing(Commit),
    /// The store takes it back; this will be the answer.
    Aborting { error: CommitError },
    /// The store could not make it final: the engine takes it back.
    TakingBack { error: StoreError, txn: TxnId },
    /// The store makes the commit that waits to be confirmed final.
    Confirming,
}

/// What is final of a transaction, and not shown yet.
#[derive(Debug)]
pub(super) struct Commit {
    /// The configuration before.
    pub(super) old: Configuration,
    /// Of the commit that waits to be confirmed, or waited, if this is it or its end.
    pub(super) confirm_id: Option<SmolStr>,
    pub(super) time_ns: u64,
    /// What is shown beside the core.
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

    /// What its commit means for the commit that waits to be confirmed.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        match &self.options.confirmation {
            _ if self.is_rollback => Unconfirmed::Ends,
            Some(Confirmation { action: ConfirmAction::Begin { .. }, .. }) => Unconfirmed::Begins,
            _ => Unconfirmed::Stays,
        }
    }
}

impl Ticket {
    /// The request with the rest of what it says.
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

    /// Of something that nobody asks for: nobody waits for its end either.
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

    /// Nobody may be waiting any more; what was decided stands all the same.
    pub(super) fn answer(&mut self, result: Result<Committed, CommitError>) {
        let Some(answer) = self.answer.take() else { return };
        let elapsed = self.since.elapsed();
        match &result {
            Ok(done) => tracing::info!(
                trace = format_args!("{:016x}", self.trace),
                caller = %self.caller, what = self.what, revision = done.revision, ?elapsed, "committed"
            ),
            Err(error) => {
                // It may repeat what the client sent, which the accounts withhold as well.
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

    /// The end of a dry run.
    pub(super) fn show(&mut self, preview: Preview) {
        if let Some(Answer::Preview(answer)) = self.answer.take() {
            drop(answer.send(Ok(preview))); // whoever asked may have gone
        }
    }
}
