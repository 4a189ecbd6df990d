//! The loop that owns layers and engine.
//!
//! Each event is handled to its end: by the engine, whose steps go to the transports ([`outbox`]), and by
//! the commits in flight, whose effects are carried out from one queue of events ([`effects`]).

mod admission;
mod ask;
mod effects;
mod examine;
mod first_showing;
mod history;
mod inputs;
mod judge;
mod maintain;
mod outbox;
mod plan;
mod publish;
mod queries;
pub(crate) mod reconcile;
mod routes;
mod window;

use std::sync::Arc;

use holdfast_platform::transport;
use holdfast_scheduler::Now;
use holdfast_store::Store;
use inputs::{Event, Turn};
use tracing::error;

use crate::commit::{CommitTable, ConfirmWindow};
use crate::examination::{CredentialSource, Examiner, HandlerCalls};
use crate::planning::MaintainedLinks;
use crate::publication::Publisher;
use crate::reports::Listeners;
use crate::request::Elections;
use crate::service_history::ServiceHistory;
use crate::shared_engine::SharedEngine;
use crate::state::{Clock, InForce, JobResult, JobSet, RoutesOfOthers, Start, Transports, Waiters};

pub(crate) use inputs::Inputs;

/// Owner of everything that changes, in parts that each keep their own rules.
pub(crate) struct CoreTask {
    pub(crate) in_force: InForce,
    pub(crate) engine: SharedEngine,
    pub(crate) transports: Transports,
    pub(crate) examiner: Arc<Examiner>,
    pub(crate) routes: RoutesOfOthers,
    pub(crate) store: Store,
    pub(crate) publisher: Publisher,
    pub(crate) commits: CommitTable,
    /// Source of the secrets that values refer to. Without a source, the core makes no values of credentials.
    pub(crate) credential_source: Option<Arc<dyn CredentialSource>>,
    /// Handlers of services.
    pub(crate) handlers: Option<Arc<dyn HandlerCalls>>,
    pub(crate) window: ConfirmWindow,
    /// Links that maintenance sessions have.
    pub(crate) maintained: Arc<MaintainedLinks>,
    pub(crate) elections: Elections,
    pub(crate) clock: Clock,
    pub(crate) inputs: Inputs,
    pub(crate) jobs: JobSet,
    pub(crate) start: Start,
    pub(crate) waiters: Waiters,
    pub(crate) listeners: Listeners,
    /// The last service transactions.
    pub(crate) service_history: ServiceHistory,
}

impl CoreTask {
    /// Awaits nothing but the next event: what takes time comes back as one.
    pub(crate) async fn run(mut self) {
        let mut stopping = false;
        while !(stopping && self.commits.is_empty() && self.transports.is_idle()) {
            match self.next_event(stopping).await {
                Event::Commit(request) => self.receive(*request),
                Event::Query(query) => self.answer(query),
                // The watchdog may have given this one up.
                Event::Beat(answer) => drop(answer.send(())),
                Event::Platform(event) => self.handle_platform_event(event),
                Event::Job(JobResult::Commit(ticket, input)) => self.push_input(ticket, input),
                Event::Job(JobResult::Inverted(ticket, inverted)) => {
                    self.start_undo(ticket, inverted);
                }
                Event::Job(JobResult::FirstKeys(keys)) => self.begin_showing(keys),
                Event::Job(JobResult::RestoresWritten(result)) => self.restores_written(result),
                Event::Job(JobResult::HistoryWritten(result)) => {
                    self.service_history_written(result);
                }
                Event::DeadlineDue => self.deadline_due(),
                Event::Publish => {} // as after each event
                Event::Stop => stopping = true,
                Event::TransportsGone => {
                    return error!("a transport has ended; nothing can be changed any more");
                }
            }
            self.advance_commits();
            self.admit_alone();
            self.publish_state();
            self.show_window();
            self.listeners.tell_graph_version(&self.engine.read());
            self.waiters.answer_shown();
            self.complete_start();
            self.forget_taken_back();
            self.answer_when_idle();
        }
        self.listeners.finish();
    }

    async fn next_event(&mut self, stopping: bool) -> Event {
        let rollback = self.rollback_due().filter(|_| !stopping);
        let log = self.listeners.deadline();
        let told = self.publisher.due();
        let due = self.clock.engine_due().into_iter().chain(rollback).chain(log).chain(told).min();
        let turn = Turn {
            due: due.map(|due| self.clock.moment(due)),
            may_receive: self.may_receive(),
            has_to_publish: self.publisher.has_work(),
            is_stopping: stopping,
        };
        self.inputs.next(&mut self.jobs, turn).await
    }

    fn deadline_due(&mut self) {
        let now = self.now();
        self.listeners.log_due(now);
        self.publisher.tell_due(now);
        if self.clock.take_engine_call(now) {
            let step = self.engine.write().due(now);
            self.follow(step);
        }
        if self.rollback_due().is_some_and(|at| at <= now.monotonic) {
            self.roll_back_unconfirmed();
        }
    }

    fn handle_platform_event(&mut self, event: transport::Event) {
        let now = self.now();
        self.log_changed_order(&event);
        self.log_routes_of_daemons(&event);
        let changed = self.routes.note(&event);
        let event = self.with_routes_to_take_over(event, &changed);
        let step = event.report_to(&mut self.engine.write(), now);
        self.follow(step);
        self.follow_foreign_routes(&changed);
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }
}
