//! The loop that owns layers and engine.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_base::{Chain, Undertakings, beside_others, now_ns};
use holdfast_config::limits::excerpt;
use holdfast_config::{Configuration, parallel};
use holdfast_platform::objects::VethPairs;
use holdfast_platform::transport::{self, Events, Transport};
use holdfast_scheduler::{
    Delta, Engine, Key, Now, Outcome, Plan, PlanError, Scope, SharedValue, Step,
};
use holdfast_security::credentialz::Credentials;
use holdfast_store::{Store, StoreError};
use holdfast_telemetry::{BoundarySender, Revision};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::error;

use super::confirm::Window;
use super::credentials::CredentialSource;
use super::election::Elections;
use super::inside::{Resync, Teller};
use super::intent::Intent;
use super::making::Made;
use super::options::{CommitOptions, PlanHash};
use super::outbox::Outbox;
use super::preview::Preview;
use super::publish::Publisher;
use super::startup::Objects;
use super::transaction::{Candidate, Changed, LoginChange, Stage, Ticket, Transaction, Withheld};
use super::{CommitError, CommitRequest, Query};

/// One thing that wakes the loop.
#[derive(Debug)]
enum Event {
    Commit(Box<CommitRequest>),
    Query(Query),
    /// A heartbeat of the watchdog.
    Beat(oneshot::Sender<()>),
    Platform(transport::Event),
    Work(Work),
    DeadlineDue,
    /// The core is to stop, or its owner has dropped it.
    Stop,
    /// A transport has ended by itself: its operations will never be answered.
    TransportsGone,
}

/// Result of work that the loop has started and does not await.
#[derive(Debug)]
pub(super) enum Work {
    Examined(Result<Box<Candidate>, CommitError>),
    Recorded(Result<(), StoreError>),
    /// Result of recording the pre-images of adopted objects, for which their operations wait.
    RestoresWritten(Result<(), StoreError>),
    /// Result of making the transaction final, or of taking it back, in the store.
    Finished(Result<(), StoreError>),
    /// A large commit was answered; its revision is to be made.
    Answered,
    /// The revision that shows a commit; `None` if the thread that made it has panicked.
    Made(Option<Box<Made>>),
}

pub(super) type PendingWork = Pin<Box<dyn Future<Output = Work> + Send>>;

pub(super) struct CoreTask {
    pub(super) configuration: Configuration,
    pub(super) engine: Engine,
    pub(super) transport: Box<dyn Transport>,
    pub(super) outbox: Outbox,
    pub(super) objects: Arc<Objects>,
    /// Links of the configuration that is final: what the ends of veth pairs are judged by.
    pub(super) pairs: VethPairs,
    pub(super) store: Store,
    pub(super) next_number: u64,
    pub(super) publisher: Publisher,
    pub(super) transaction: Option<Transaction>,
    /// Values of the credentials in force, which no layer holds.
    pub(super) logins: BTreeMap<Key, SharedValue>,
    /// Those of credentialz among them.
    pub(super) credentials: Arc<Credentials>,
    /// Holder of the secrets that values name; without it, there are no values of credentials.
    pub(super) login_source: Option<Arc<dyn CredentialSource>>,
    /// The commit that waits to be confirmed.
    pub(super) window: Option<Window>,
    pub(super) undertakings: Undertakings,
    pub(super) elections: Elections,
    /// Time of the next call of the engine, since `started`.
    pub(super) deadline: Option<Duration>,
    pub(super) started: Instant,
    pub(super) commit_rx: mpsc::Receiver<CommitRequest>,
    pub(super) query_rx: mpsc::Receiver<Query>,
    pub(super) beat_rx: mpsc::Receiver<oneshot::Sender<()>>,
    pub(super) events: Events,
    pub(super) work: WorkSet,
    pub(super) revision_tx: watch::Sender<Arc<Revision>>,
    /// True while a commit was answered that the newest revision does not show.
    pub(super) behind_tx: watch::Sender<bool>,
    pub(super) configuration_tx: watch::Sender<Configuration>,
    pub(super) boundary_tx: BoundarySender,
    pub(super) stop_rx: oneshot::Receiver<()>,
    /// Completes the start, once the first complete reading of the box was handled.
    pub(super) ready_tx: Option<oneshot::Sender<()>>,
    pub(super) resyncs: Vec<Resync>,
    /// Requests that wait until nothing is under way.
    pub(super) settling: Vec<oneshot::Sender<()>>,
    pub(super) teller: Teller,
}

/// Work under way.
#[derive(Default)]
pub(super) struct WorkSet(pub(super) FuturesUnordered<PendingWork>);

impl std::fmt::Debug for WorkSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} under way", self.0.len())
    }
}

impl CoreTask {
    /// Awaits nothing but the next event: what takes time comes back as one.
    pub(super) async fn run(mut self) {
        let mut stopping = false;
        while !(stopping && self.transaction.is_none()) {
            match self.next_event(stopping).await {
                Event::Commit(request) => self.admit(*request),
                Event::Query(query) => self.answer(query),
                // The watchdog may have given this one up.
                Event::Beat(answer) => drop(answer.send(())),
                Event::Platform(event) => self.take_in(event),
                Event::Work(work) => self.go_on(work),
                Event::DeadlineDue => self.deadline_due(),
                Event::Stop => stopping = true,
                Event::TransportsGone => {
                    return error!("a transport has ended; nothing can be changed any more");
                }
            }
            self.publish_state();
            self.answer_waiting();
        }
    }

    async fn next_event(&mut self, stopping: bool) -> Event {
        let rollback = self.rollback_due().filter(|_| !stopping);
        let deadline = self.deadline.into_iter().chain(rollback).min();
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(self.started + at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = &mut self.stop_rx, if !stopping => Event::Stop,
            Some(answer) = self.beat_rx.recv() => Event::Beat(answer),
            Some(work) = self.work.0.next() => Event::Work(work),
            event = self.events.recv() => event.map_or(Event::TransportsGone, Event::Platform),
            () = due => Event::DeadlineDue,
            Some(query) = self.query_rx.recv(), if !self.is_revealing() => Event::Query(query),
            Some(request) = self.commit_rx.recv(), if self.transaction.is_none() && !stopping => Event::Commit(Box::new(request)),
        }
    }

    fn deadline_due(&mut self) {
        let now = self.now();
        if self.deadline.is_some_and(|at| at <= now.monotonic) {
            self.deadline = None;
            let step = self.engine.due(now);
            self.follow(step);
        }
        if self.rollback_due().is_some_and(|at| at <= now.monotonic) {
            self.roll_back_late();
        }
    }

    /// Examines a request on another thread, since the time for it grows with the request.
    pub(super) fn examine(&mut self, ticket: Ticket, mut intent: Intent, options: CommitOptions) {
        let number = self.next_number;
        self.next_number += 1;
        let shown = ticket.is_dry_run();
        let mut transaction = Transaction::new(number, ticket, options);
        transaction.is_rollback = intent.is_rollback();
        transaction.is_admitted = intent.is_admitted();
        transaction.cancel = intent.cancel();
        transaction.is_unrecorded = matches!(intent, Intent::Credentials(_));
        transaction.logins = match &intent {
            Intent::Credentials(logins) => {
                let credentials = Some(Arc::clone(&logins.to));
                LoginChange {
                    taken_back: logins.is_restored,
                    credentials,
                    ..LoginChange::default()
                }
            }
            Intent::FactoryReset { .. } => self.no_logins(),
            _ => LoginChange::default(),
        };
        if let Intent::Boot { artefacts, .. } = &mut intent {
            transaction.artefacts = std::mem::take(artefacts);
        }
        transaction.origin = intent.origin();
        self.transaction = Some(transaction);
        let (configuration, objects) = (self.configuration.clone(), Arc::clone(&self.objects));
        let (source, credentials) = (self.login_source.clone(), Arc::clone(&self.credentials));
        let examined = tokio::task::spawn_blocking(move || {
            let mut candidate = objects.examine(&configuration, &intent, shown)?;
            if let Some(source) = source {
                let (old, new) = (&configuration, &candidate.configuration);
                candidate.logins = intent.login_values(&*source, &credentials, old, new);
            }
            Ok(candidate)
        });
        self.work.0.push(Box::pin(async move {
            let panicked = |error: tokio::task::JoinError| CommitError::Internal {
                reason: if error.is_panic() { "its examination panicked" } else { "cancelled" }
                    .to_owned(),
            };
            let examined = examined.await.unwrap_or_else(|error| Err(panicked(error)));
            Work::Examined(examined.map(Box::new))
        }));
    }

    fn go_on(&mut self, work: Work) {
        match work {
            Work::Examined(Ok(candidate)) => {
                let much = candidate.changes.len() > parallel::FEW;
                beside_others(much, || self.record(*candidate));
            }
            Work::Examined(Err(error)) => self.refuse(error),
            Work::Recorded(Ok(())) => self.execute(),
            Work::Recorded(Err(error)) => self.call_off(error),
            Work::RestoresWritten(result) => self.restores_written(result),
            Work::Finished(result) => self.finish(result),
            Work::Answered => self.answered(),
            Work::Made(made) => self.made(made.map(|made| *made)),
        }
    }

    /// Plans the change while the store prepares its rows, then has them recorded. A dry run ends here.
    fn record(&mut self, candidate: Candidate) {
        let Candidate { configuration, changes, rows, logins, differences } = candidate;
        if let Some(transaction) = &mut self.transaction {
            transaction.logins.values.extend(logins);
        }
        let Some(transaction) = &self.transaction else { return };
        if transaction.cancel.is_cancelled() {
            return self.refuse(CommitError::Abandoned);
        }
        let is_recorded = differences.is_none() && !transaction.is_unrecorded;
        let mut recorded = None;
        let record =
            || recorded = is_recorded.then(|| self.store.prepare_ahead(transaction.number, rows));
        let plan = match self.plan(transaction, &changes, record) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(error),
        };
        if let Some(differences) = differences {
            return self.show(Preview::new(&self.engine, &plan, differences));
        }
        let recorded = recorded.map(|(recorded, consent)| {
            consent.give();
            recorded
        });
        let Some(transaction) = &mut self.transaction else { return };
        transaction.changes = changes;
        self.prepare(plan, configuration);
        self.work.0.push(Box::pin(async move {
            Work::Recorded(match recorded {
                Some(recorded) => recorded.await,
                None => Ok(()),
            })
        }));
    }

    /// Has the engine prepare the plan while the store records the change.
    fn prepare(&mut self, plan: Plan, configuration: Configuration) {
        let now = self.now();
        let beside: Vec<Key> = plan.side_effects().cloned().collect();
        let (txn, mut step) = self.engine.prepare(plan, now);
        self.teller.tell(&self.engine, &step);
        if let Some(transaction) = &mut self.transaction {
            let mut keys = std::mem::take(&mut step.changed);
            keys.extend(beside);
            transaction.withheld = Withheld::new(keys);
            transaction.stage = Stage::Recording { configuration, txn, ended: None };
        }
        self.carry_out(step);
    }

    /// Plans the transaction under way. Fails if the plan is not the one that the client expects. `judged` is called
    /// once the values are found valid, before the plan is complete.
    fn plan(
        &self,
        transaction: &Transaction,
        changes: &[Changed],
        judged: impl FnOnce(),
    ) -> Result<Plan, CommitError> {
        let mut values = values(changes);
        values.extend(transaction.logins.values.iter().cloned());
        let delta = Delta::new(values);
        if !transaction.is_admitted {
            self.admit_values(changes, transaction.origin)?;
        }
        let ticket = &transaction.ticket;
        let delta = delta.described(ticket.what).by(ticket.author());
        // Earlier configuration comes back as far as possible, like at a start.
        let comes_back = transaction.is_rollback || transaction.logins.taken_back;
        let delta = if comes_back { delta.best_effort() } else { delta };
        let delta = match transaction.options.expected_plan {
            Some(PlanHash(hash)) => delta.expecting_plan(hash),
            None => delta,
        };
        self.engine.plan_with(delta, judged).map_err(|error| {
            let asked = (self.engine.registry(), changes);
            self.objects.unplanned(&error, asked, transaction.origin)
        })
    }

    fn show(&mut self, preview: Preview) {
        if let Some(mut transaction) = self.transaction.take() {
            self.publisher.release();
            transaction.ticket.show(preview);
        }
    }

    /// Starts the prepared plan, which is durable now.
    fn execute(&mut self) {
        let now = self.now();
        let Some(transaction) = &mut self.transaction else { return };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        let Stage::Recording { configuration, txn, ended } = stage else { return };
        transaction.stage = Stage::Executing { configuration, txn };
        match ended {
            Some(outcome) => self.conclude(outcome),
            None => {
                let step = self.engine.start_prepared(txn, now);
                self.follow(step);
            }
        }
    }

    /// Cancels the prepared plan, which the store could not record.
    fn call_off(&mut self, error: StoreError) {
        let now = self.now();
        let Some(transaction) = &mut self.transaction else { return };
        let Stage::Recording { txn, ended: None, .. } = transaction.stage else {
            return self.refuse(CommitError::Store(error));
        };
        transaction.stage = Stage::TakingBack { error, txn };
        let step = self.engine.cancel(txn, now);
        self.follow(step);
    }

    /// Sends a step of the engine to listeners, and carries it out.
    pub(super) fn follow(&mut self, step: Step) {
        self.teller.tell(&self.engine, &step);
        self.carry_out(step);
    }

    fn take_in(&mut self, event: transport::Event) {
        let now = self.now();
        let complete =
            matches!(&event, transport::Event::Retrieved { scope: Scope::Everything, .. });
        let step = event.tell(&mut self.engine, now);
        self.follow(step);
        if complete {
            self.heard_all();
        }
        if complete && let Some(ready) = self.ready_tx.take() {
            // Values that were pending before the restart too are no change for the engine, but no revision shows them
            // yet.
            let waiting = self.engine.pending().into_iter().map(|status| status.key);
            self.publisher.touch(waiting.collect(), None);
            self.publish_state();
            // From now on revisions show the state of the box.
            let _start_was_given_up = ready.send(());
        }
    }

    /// Handles the end of a transaction of the engine. One of its own (a repair, a retry) only shows in state.
    pub(super) fn conclude(&mut self, outcome: Outcome) {
        let Some(transaction) = &mut self.transaction else { return };
        let stage_txn = match &mut transaction.stage {
            Stage::Recording { txn, ended, .. } if *txn == outcome.txn() => {
                return *ended = Some(outcome);
            }
            Stage::TakingBack { txn, .. } if *txn == outcome.txn() => return self.taken_back(),
            Stage::Executing { txn, .. } => *txn,
            _ => return,
        };
        let error = match outcome {
            Outcome::Done { txn, .. } if txn == stage_txn => None,
            Outcome::Cancelled { txn, .. } if txn == stage_txn => Some(CommitError::Stopped),
            Outcome::Refused { txn, reason } if txn == stage_txn => {
                Some(CommitError::planning(&reason))
            }
            Outcome::Failed { txn, label, error, undone, .. } if txn == stage_txn => {
                Some(CommitError::Failed {
                    object: label,
                    errno: error.errno,
                    message: error.message,
                    undone,
                })
            }
            _ => return,
        };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        let Stage::Executing { configuration, .. } = stage else { return };
        let (number, is_recorded) = (transaction.number, !transaction.is_unrecorded);
        let finished = match error {
            None => {
                let unconfirmed = transaction.unconfirmed();
                let artefacts = std::mem::take(&mut transaction.artefacts);
                transaction.stage = Stage::Committing { configuration };
                is_recorded.then(|| self.store.commit_with(number, unconfirmed, artefacts))
            }
            Some(error) => {
                transaction.stage = Stage::Aborting { error };
                is_recorded.then(|| self.store.abort(number))
            }
        };
        self.work.0.push(Box::pin(async move {
            let result = match finished {
                Some(finished) => finished.await,
                None => Ok(()),
            };
            Work::Finished(result)
        }));
    }

    /// Goes on when the store has made the transaction final, or taken it back.
    fn finish(&mut self, result: Result<(), StoreError>) {
        let Some(mut transaction) = self.transaction.take() else { return };
        match std::mem::replace(&mut transaction.stage, Stage::Examining) {
            Stage::Committing { configuration } => match result {
                Ok(()) => self.committed(transaction, configuration),
                Err(error) => self.take_back(transaction, &configuration, error),
            },
            Stage::Aborting { error } => {
                self.publisher.release();
                if let Err(error) = result {
                    error!(error = %Chain(&error), "cannot roll back a change in the store; the next start will");
                }
                transaction.ticket.answer(Err(error));
            }
            Stage::Confirming => self.confirmed(transaction.ticket, result),
            Stage::Examining
            | Stage::Recording { .. }
            | Stage::Executing { .. }
            | Stage::Revealing(_)
            | Stage::TakingBack { .. } => {}
        }
    }

    /// No credentials at all.
    fn no_logins(&self) -> LoginChange {
        let gone = self.logins.keys().map(|key| (key.clone(), None));
        LoginChange { values: gone.collect(), taken_back: true, credentials: None }
    }

    /// Takes back a change that the kernel has and that the store could not make final. No revision shows it meanwhile.
    fn take_back(&mut self, mut transaction: Transaction, from: &Configuration, error: StoreError) {
        let now = self.now();
        let changes = self.objects.changes(from, &self.configuration, true);
        let before = |(key, _): &(Key, _)| (key.clone(), self.logins.get(key).cloned());
        let changes = changes.map_err(|error| self.objects.refused(&error, transaction.origin));
        let planned = changes.and_then(|changes| {
            let mut values = values(&changes);
            values.extend(transaction.logins.values.iter().map(before));
            let delta = Delta::new(values).best_effort().described("not recorded");
            self.engine.plan(delta).map_err(|error| CommitError::planning(&error))
        });
        let step = match planned {
            Ok(plan) => {
                let (txn, step) = self.engine.start(plan, now);
                transaction.stage = Stage::TakingBack { error, txn };
                self.transaction = Some(transaction);
                step
            }
            Err(fault) => {
                error!(error = %Chain(&fault), "cannot plan the rollback");
                self.publisher.release();
                return transaction.ticket.answer(Err(CommitError::Store(error)));
            }
        };
        self.follow(step);
    }

    fn taken_back(&mut self) {
        let Some(transaction) = &mut self.transaction else { return };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        if let Stage::TakingBack { error, .. } = stage {
            self.refuse(CommitError::Store(error));
        }
    }

    fn refuse(&mut self, error: CommitError) {
        if let Some(mut transaction) = self.transaction.take() {
            self.publisher.release();
            transaction.ticket.answer(Err(error));
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: now_ns() }
    }
}

impl CommitError {
    pub(super) fn planning(error: &PlanError) -> Self {
        let object = match error {
            PlanError::Differs { expected, found } => {
                let (expected, found) = (PlanHash(*expected), PlanHash(*found));
                return Self::PlanDiffers { expected, found };
            }
            PlanError::Invalid { label, .. }
            | PlanError::Unimplemented { label, .. }
            | PlanError::Twice { label, .. }
            | PlanError::Conflict { label, .. } => excerpt(label),
            _ => "the change".to_owned(),
        };
        Self::Object { path: object, reason: excerpt(error) }
    }
}

fn values(changes: &[Changed]) -> Vec<(Key, Option<SharedValue>)> {
    changes.iter().map(|change| (change.key.clone(), change.value.clone())).collect()
}
