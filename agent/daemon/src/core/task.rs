//! The loop that owns layers and engine.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_config::Configuration;
use holdfast_platform::{Events, Platform, transport};
use holdfast_scheduler::{Delta, Engine, Key, Now, Operation, Outcome, SharedValue, Step};
use tokio::sync::{mpsc, oneshot, watch};

use super::transaction::{Candidate, Stage, Ticket, Transaction};
use super::{CommitError, CommitRequest, Committed, Query};
use crate::store::{self, Store, StoreError};
use crate::telemetry::Revision;

/// One thing that wakes the loop.
#[derive(Debug)]
enum Event {
    Commit(CommitRequest),
    Query(Query),
    Platform(transport::Event),
    Work(Work),
    DeadlineDue,
    /// The transports or the handle are gone.
    Stop,
}

/// What came of something the loop had started and not waited for.
#[derive(Debug)]
enum Work {
    Examined(Result<Candidate, CommitError>),
    Recorded(Result<(), StoreError>),
    /// Pre-images of adopted objects are durable (or not): their operations may go.
    RestoresWritten { submit: Vec<Operation>, read: Vec<Key>, result: Result<(), StoreError> },
    Finished(Result<(), StoreError>),
}

type PendingWork = Pin<Box<dyn Future<Output = Work> + Send>>;

#[derive(Debug)]
pub(super) struct CoreTask {
    pub(super) configuration: Configuration,
    pub(super) engine: Engine,
    pub(super) platform: Platform,
    pub(super) objects: Arc<super::startup::Objects>,
    pub(super) store: Store,
    pub(super) next_number: u64,
    pub(super) revision: Arc<Revision>,
    /// Keys whose state changed since the last revision.
    pub(super) dirty: HashSet<Key>,
    pub(super) transaction: Option<Transaction>,
    pub(super) deadline: Option<Duration>,
    pub(super) started: Instant,
    pub(super) commit_rx: mpsc::Receiver<CommitRequest>,
    pub(super) query_rx: mpsc::Receiver<Query>,
    pub(super) events: Events,
    pub(super) work: WorkSet,
    pub(super) revision_tx: watch::Sender<Arc<Revision>>,
    pub(super) stop_rx: oneshot::Receiver<()>,
}

/// Work under way.
#[derive(Default)]
pub(super) struct WorkSet(FuturesUnordered<PendingWork>);

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
                Event::Commit(request) => self.examine(request),
                Event::Query(query) => self.answer(query),
                Event::Platform(event) => self.take_in(event),
                Event::Work(work) => self.go_on(work),
                Event::DeadlineDue => {
                    self.deadline = None;
                    let step = self.engine.due(self.now());
                    self.follow(step);
                }
                Event::Stop => stopping = true,
            }
            self.publish_state();
        }
    }

    async fn next_event(&mut self, stopping: bool) -> Event {
        let deadline = self.deadline;
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until((self.started + at).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = &mut self.stop_rx, if !stopping => Event::Stop,
            Some(work) = self.work.0.next() => Event::Work(work),
            event = self.events.recv() => event.map_or(Event::Stop, Event::Platform),
            () = due => Event::DeadlineDue,
            Some(query) = self.query_rx.recv() => Event::Query(query),
            Some(request) = self.commit_rx.recv(), if self.transaction.is_none() && !stopping => Event::Commit(request),
        }
    }

    /// Works out beside the loop what a request means: that takes as long as the request is large.
    fn examine(&mut self, request: CommitRequest) {
        let ticket = Ticket {
            trace: rand::random(),
            caller: request.caller.name.to_string(),
            since: Instant::now(),
            answer: request.answer,
        };
        let number = self.next_number;
        self.next_number += 1;
        self.transaction =
            Some(Transaction { number, ticket, withheld: HashSet::new(), stage: Stage::Examining });
        let (configuration, objects) = (self.configuration.clone(), Arc::clone(&self.objects));
        let edit = request.edit;
        let examined = tokio::task::spawn_blocking(move || objects.examine(&configuration, &edit));
        self.work.0.push(Box::pin(async move {
            let panicked = |error: tokio::task::JoinError| CommitError::Internal {
                reason: if error.is_panic() { "its examination panicked" } else { "cancelled" }.to_owned(),
            };
            Work::Examined(examined.await.unwrap_or_else(|error| Err(panicked(error))))
        }));
    }

    fn go_on(&mut self, work: Work) {
        match work {
            Work::Examined(Ok(candidate)) => self.record(candidate),
            Work::Examined(Err(error)) => self.refuse(error),
            Work::Recorded(Ok(())) => self.execute(),
            Work::Recorded(Err(error)) => self.refuse(CommitError::Store(error)),
            Work::RestoresWritten { submit, read, result } => self.submit_adoptions(submit, read, result),
            Work::Finished(result) => self.finish(result),
        }
    }

    /// Plans the change and has the store write it down.
    fn record(&mut self, candidate: Candidate) {
        let Some(transaction) = &mut self.transaction else { return };
        let trace = format!("{:016x}", transaction.ticket.trace);
        let keys = candidate.values.iter().map(|(key, _)| key.clone());
        let mut withheld: HashSet<Key> = keys.collect();
        let plan = match self.engine.plan(Delta::new(candidate.values).described(trace)) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(CommitError::planning(&error)),
        };
        for operation in plan.operations() {
            withheld.insert(operation.key.clone());
            withheld.extend(operation.taken.iter().cloned());
        }
        transaction.withheld = withheld;
        transaction.stage = Stage::Recording { configuration: candidate.configuration, plan };
        let recorded = self.store.prepare(transaction.number, candidate.rows);
        self.work.0.push(Box::pin(async move { Work::Recorded(recorded.await) }));
    }

    fn execute(&mut self) {
        let now = self.now();
        let Some(transaction) = &mut self.transaction else { return };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        let Stage::Recording { configuration, plan } = stage else { return };
        let (txn, step) = self.engine.start(plan, now);
        transaction.stage = Stage::Executing { configuration, txn };
        self.follow(step);
    }

    /// Does what the engine says. Pre-images of adopted objects become durable before the operations that need them.
    fn follow(&mut self, step: Step) {
        let Step { restores, submit, read, finished, changed, deadline } = step;
        self.deadline = deadline;
        self.dirty.extend(changed);
        if restores.is_empty() {
            self.hand_out(submit, read);
        } else {
            let rows = self.objects.restore_rows(restores);
            let written = self.store.write(rows);
            self.work.0.push(Box::pin(async move {
                Work::RestoresWritten { submit, read, result: written.await }
            }));
        }
        for outcome in finished {
            self.conclude(outcome);
        }
    }

    fn hand_out(&mut self, submit: Vec<Operation>, read: Vec<Key>) {
        if !submit.is_empty() {
            self.platform.submit(submit);
        }
        if !read.is_empty() {
            self.platform.read(read);
        }
    }

    /// Without durable pre-images a crash could never give the ports back, so their operations fail instead.
    fn submit_adoptions(&mut self, submit: Vec<Operation>, read: Vec<Key>, result: Result<(), StoreError>) {
        let Err(error) = result else { return self.hand_out(submit, read) };
        let message = format!("cannot record what was there before: {error}");
        let failed = submit.iter().map(|operation| holdfast_scheduler::Completion {
            op: operation.id,
            result: Err(holdfast_scheduler::OperationError::message(message.clone())),
            observed: None,
        });
        let step = self.engine.completed(failed.collect(), self.now());
        self.hand_out(Vec::new(), read);
        self.follow(step);
    }

    fn take_in(&mut self, event: transport::Event) {
        let now = self.now();
        let step = match event {
            transport::Event::Completed(completions) => self.engine.completed(completions, now),
            transport::Event::Observed(facts) => self.engine.observed(facts, now),
            transport::Event::Retrieved(facts) => self.engine.resync(facts, now),
        };
        self.follow(step);
    }

    /// A transaction of the engine ended: the client's, or one of its own (drift, wake-up), which only shows in state.
    fn conclude(&mut self, outcome: Outcome) {
        let Some(transaction) = &mut self.transaction else { return };
        let Stage::Executing { txn, .. } = &transaction.stage else { return };
        let stage_txn = *txn;
        let error = match outcome {
            Outcome::Done { txn, .. } if txn == stage_txn => None,
            Outcome::Failed { txn, label, error, undone, .. } if txn == stage_txn => {
                Some(CommitError::Failed { object: label, errno: error.errno, message: error.message, undone })
            }
            _ => return,
        };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        let Stage::Executing { configuration, .. } = stage else { return };
        let number = transaction.number;
        let finished = match error {
            None => {
                transaction.stage = Stage::Committing { configuration };
                self.store.commit(number)
            }
            Some(error) => {
                transaction.stage = Stage::Aborting { error };
                self.store.abort(number)
            }
        };
        self.work.0.push(Box::pin(async move { Work::Finished(finished.await) }));
    }

    /// The store has made the transaction final, or taken it back.
    fn finish(&mut self, result: Result<(), StoreError>) {
        let Some(transaction) = self.transaction.take() else { return };
        match transaction.stage {
            Stage::Committing { configuration } => match result {
                Ok(()) => {
                    let done = self.publish_commit(configuration);
                    transaction.ticket.answer(Ok(done));
                }
                Err(error) => {
                    // The kernel has it, the disk has it as unconfirmed: a restart takes it back, so this run must too.
                    let values = self.objects.way_back(&configuration, &self.configuration);
                    self.take_back(values);
                    transaction.ticket.answer(Err(CommitError::Store(error)));
                }
            },
            Stage::Aborting { error } => {
                if let Err(error) = result {
                    tracing::error!(error = %crate::chain::Chain(&error), "cannot take a change back in the store; a restart will");
                }
                transaction.ticket.answer(Err(error));
            }
            Stage::Examining | Stage::Recording { .. } | Stage::Executing { .. } => {}
        }
    }

    fn take_back(&mut self, values: Vec<(Key, Option<SharedValue>)>) {
        let now = self.now();
        match self.engine.plan(Delta::new(values).best_effort().described("not recorded")) {
            Ok(plan) => {
                let (_, step) = self.engine.start(plan, now);
                self.follow(step);
            }
            Err(error) => tracing::error!(%error, "cannot plan the way back"),
        }
    }

    fn refuse(&mut self, error: CommitError) {
        if let Some(transaction) = self.transaction.take() {
            transaction.ticket.answer(Err(error));
        }
    }

    fn answer(&self, query: Query) {
        match query {
            Query::Statuses { pending_only, answer } => {
                let statuses = if pending_only { self.engine.pending() } else { self.engine.statuses() };
                // Whoever asked may have gone.
                drop(answer.send(statuses));
            }
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: unix_ns() }
    }

    fn publish_commit(&mut self, configuration: Configuration) -> Committed {
        let old = std::mem::replace(&mut self.configuration, configuration);
        let time_ns = unix_ns();
        self.publish(time_ns, Some(&old));
        Committed { time_ns, revision: self.revision.number }
    }
}

impl CommitError {
    pub(super) fn planning(error: &holdfast_scheduler::PlanError) -> Self {
        Self::Object { path: "the change".to_owned(), reason: error.to_string() }
    }
}

/// Nanoseconds since 1970; a clock before that counts as 1970.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A change of rows, as the store takes it.
pub(super) fn layer_change(key: Vec<u8>, value: Option<Vec<u8>>) -> store::Change {
    store::Change::layer(key, value)
}
