//! The loop that owns layers and engine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdfast_config::Configuration;
use holdfast_platform::transport::{self, Events, Transport};
use holdfast_scheduler::{
    Completion, Delta, Engine, Key, KeySet, Now, Operation, OperationError, Outcome, Plan,
    PlanError, Scope, SharedValue, Step,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::publish::Publisher;
use super::startup::Objects;
use super::transaction::{Candidate, Changed, Stage, Ticket, Transaction};
use super::{CommitError, CommitRequest, Committed, Query};
use crate::logging::Chain;
use crate::store::{Store, StoreError};
use crate::telemetry::Revision;
use crate::telemetry::view::now_ns;

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
    RestoresWritten {
        submit: Vec<Operation>,
        read: Vec<Key>,
        result: Result<(), StoreError>,
    },
    Finished(Result<(), StoreError>),
}

type PendingWork = Pin<Box<dyn Future<Output = Work> + Send>>;

pub(super) struct CoreTask {
    pub(super) configuration: Configuration,
    pub(super) engine: Engine,
    pub(super) transport: Box<dyn Transport>,
    pub(super) objects: Arc<Objects>,
    pub(super) store: Store,
    pub(super) next_number: u64,
    pub(super) publisher: Publisher,
    pub(super) transaction: Option<Transaction>,
    pub(super) deadline: Option<Duration>,
    pub(super) started: Instant,
    pub(super) commit_rx: mpsc::Receiver<CommitRequest>,
    pub(super) query_rx: mpsc::Receiver<Query>,
    pub(super) events: Events,
    pub(super) work: WorkSet,
    pub(super) revision_tx: watch::Sender<Arc<Revision>>,
    pub(super) configuration_tx: watch::Sender<Configuration>,
    pub(super) stop_rx: oneshot::Receiver<()>,
    /// Told when the first complete reading of the box is taken in.
    pub(super) ready_tx: Option<oneshot::Sender<()>>,
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
            what: request.intent.name(),
            since: Instant::now(),
            answer: request.answer,
        };
        let number = self.next_number;
        self.next_number += 1;
        let (changes, withheld, stage) = (Vec::new(), KeySet::default(), Stage::Examining);
        self.transaction = Some(Transaction { number, ticket, changes, withheld, stage });
        let (configuration, objects) = (self.configuration.clone(), Arc::clone(&self.objects));
        let intent = request.intent;
        let examined =
            tokio::task::spawn_blocking(move || objects.examine(&configuration, &intent));
        self.work.0.push(Box::pin(async move {
            let panicked = |error: tokio::task::JoinError| CommitError::Internal {
                reason: if error.is_panic() { "its examination panicked" } else { "cancelled" }
                    .to_owned(),
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
            Work::RestoresWritten { submit, read, result } => {
                self.submit_adoptions(submit, read, result)
            }
            Work::Finished(result) => self.finish(result),
        }
    }

    /// Plans the change and has the store write it down.
    fn record(&mut self, candidate: Candidate) {
        let Candidate { configuration, changes, rows } = candidate;
        let plan = match self.plan(&changes) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(error),
        };
        let Some(transaction) = &mut self.transaction else { return };
        transaction.withheld.extend(changes.iter().map(|change| change.key.clone()));
        for operation in plan.operations() {
            transaction.withheld.insert(operation.key.clone());
            transaction.withheld.extend(operation.taken.iter().cloned());
        }
        transaction.changes = changes;
        transaction.stage = Stage::Recording { configuration, plan: Box::new(plan) };
        let recorded = self.store.prepare(transaction.number, rows);
        self.work.0.push(Box::pin(async move { Work::Recorded(recorded.await) }));
    }

    fn plan(&self, changes: &[Changed]) -> Result<Plan, CommitError> {
        for Changed { path, key, value, .. } in changes {
            let [.., observed] = self.engine.planes(key);
            if let Some(value) = value {
                let admitted =
                    self.objects.registry.admit(path, &**value, observed.map(|it| &**it));
                admitted.map_err(|error| self.objects.refused(&error))?;
            }
        }
        let trace = self.transaction.as_ref().map(|it| format!("{:016x}", it.ticket.trace));
        let delta = Delta::new(values(changes)).described(trace.unwrap_or_default());
        self.engine.plan(delta).map_err(|error| CommitError::planning(&error))
    }

    fn execute(&mut self) {
        let now = self.now();
        let Some(transaction) = &mut self.transaction else { return };
        let stage = std::mem::replace(&mut transaction.stage, Stage::Examining);
        let Stage::Recording { configuration, plan } = stage else { return };
        let (txn, step) = self.engine.start(*plan, now);
        transaction.stage = Stage::Executing { configuration, txn };
        self.follow(step);
    }

    /// Does what the engine says. Pre-images of adopted objects become durable before the operations that need them.
    fn follow(&mut self, step: Step) {
        let Step { restores, submit, read, finished, changed, deadline } = step;
        self.deadline = deadline;
        let busy = self.transaction.as_ref().map(|transaction| &transaction.withheld);
        self.publisher.touch(changed, busy);
        if restores.is_empty() {
            self.hand_out(submit, read);
        } else {
            let rows = Objects::restore_rows(restores);
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
            self.transport.submit(submit);
        }
        if !read.is_empty() {
            self.transport.read(read);
        }
    }

    /// Without durable pre-images a crash could never give the ports back, so their operations fail instead.
    fn submit_adoptions(
        &mut self,
        submit: Vec<Operation>,
        read: Vec<Key>,
        result: Result<(), StoreError>,
    ) {
        let Err(error) = result else { return self.hand_out(submit, read) };
        let message = format!("cannot record what was there before: {error}");
        let failed = submit.iter().map(|operation| Completion {
            op: operation.id,
            result: Err(OperationError::message(message.clone())),
            observed: None,
        });
        let step = self.engine.completed(failed.collect(), self.now());
        self.hand_out(Vec::new(), read);
        self.follow(step);
    }

    fn take_in(&mut self, event: transport::Event) {
        let now = self.now();
        let complete =
            matches!(&event, transport::Event::Retrieved { scope: Scope::Everything, .. });
        let step = match event {
            transport::Event::Completed(completions) => self.engine.completed(completions, now),
            transport::Event::Observed(facts) => self.engine.observed(facts, now),
            transport::Event::Retrieved { scope, facts } => {
                self.engine.retrieved(&scope, facts, now)
            }
        };
        self.follow(step);
        if complete {
            self.publish_state();
            // From now on revisions tell the truth.
            if let Some(ready) = self.ready_tx.take() {
                let _start_was_given_up = ready.send(());
            }
        }
    }

    /// A transaction of the engine ended: the client's, or one of its own (drift, wake-up), which only shows in state.
    fn conclude(&mut self, outcome: Outcome) {
        let Some(transaction) = &mut self.transaction else { return };
        let Stage::Executing { txn, .. } = &transaction.stage else { return };
        let stage_txn = *txn;
        let error = match outcome {
            Outcome::Done { txn, .. } if txn == stage_txn => None,
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
        if matches!(transaction.stage, Stage::Aborting { .. }) {
            self.publisher.release();
        }
        match transaction.stage {
            Stage::Committing { configuration } => match result {
                Ok(()) => {
                    let done = self.publish_commit(configuration, &transaction.changes);
                    transaction.ticket.answer(Ok(done));
                }
                Err(error) => {
                    // The kernel has it, the disk has it as unconfirmed: a restart takes it back, so this run must too.
                    self.publisher.release();
                    self.take_back(&configuration);
                    transaction.ticket.answer(Err(CommitError::Store(error)));
                }
            },
            Stage::Aborting { error } => {
                if let Err(error) = result {
                    tracing::error!(error = %Chain(&error), "cannot take a change back in the store; a restart will");
                }
                transaction.ticket.answer(Err(error));
            }
            Stage::Examining | Stage::Recording { .. } | Stage::Executing { .. } => {}
        }
    }

    fn take_back(&mut self, from: &Configuration) {
        let now = self.now();
        let changes = match self.objects.changes(from, &self.configuration) {
            Ok(changes) => changes,
            Err(error) => {
                return tracing::error!(error = %Chain(&error), "cannot work out the way back");
            }
        };
        match self.engine.plan(Delta::new(values(&changes)).best_effort().described("not recorded"))
        {
            Ok(plan) => {
                let (_, step) = self.engine.start(plan, now);
                self.follow(step);
            }
            Err(error) => tracing::error!(%error, "cannot plan the way back"),
        }
    }

    fn refuse(&mut self, error: CommitError) {
        if let Some(transaction) = self.transaction.take() {
            self.publisher.release();
            transaction.ticket.answer(Err(error));
        }
    }

    fn answer(&self, query: Query) {
        match query {
            Query::Statuses { pending_only, answer } => {
                let statuses =
                    if pending_only { self.engine.pending() } else { self.engine.statuses() };
                // Whoever asked may have gone.
                drop(answer.send(statuses));
            }
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: now_ns() }
    }

    fn publish_commit(&mut self, configuration: Configuration, changes: &[Changed]) -> Committed {
        let old = std::mem::replace(&mut self.configuration, configuration);
        self.configuration_tx.send_replace(self.configuration.clone());
        let time_ns = now_ns();
        let revision =
            self.publisher.commit(&self.engine, &old, &self.configuration, changes, time_ns);
        let number = revision.number;
        self.revision_tx.send_replace(revision);
        Committed { time_ns, revision: number }
    }

    fn publish_state(&mut self) {
        if let Some(revision) = self.publisher.state(&self.engine) {
            self.revision_tx.send_replace(revision);
        }
    }
}

impl CommitError {
    fn planning(error: &PlanError) -> Self {
        let object = match error {
            PlanError::Invalid { label, .. }
            | PlanError::Unimplemented { label, .. }
            | PlanError::Twice { label, .. }
            | PlanError::Conflict { label, .. } => label.clone(),
            _ => "the change".to_owned(),
        };
        Self::Object { path: object, reason: error.to_string() }
    }
}

fn values(changes: &[Changed]) -> Vec<(Key, Option<SharedValue>)> {
    changes.iter().map(|change| (change.key.clone(), change.value.clone())).collect()
}
