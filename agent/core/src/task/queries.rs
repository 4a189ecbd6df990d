//! Answers to questions.

use holdfast_scheduler::TxnId;

use super::CoreTask;
use crate::handle::{CoreView, Inspection, Query};

impl CoreTask {
    pub(crate) fn answer(&mut self, query: Query) {
        match query {
            Query::Inspect(Inspection(inspect)) => inspect(&CoreView {
                engine: &self.engine.read(),
                configuration: self.in_force.configuration(),
                now: self.now(),
                foreign_routes: self.routes.known(),
                examiner: &self.examiner,
            }),
            Query::Resync(answer) => {
                let engine = self.engine.read();
                let last = engine.history().records().next_back();
                let after = last.map_or(TxnId(0), |record| record.txn);
                drop(engine);
                self.waiters.await_resync(answer, after);
                self.transports.retrieve();
            }
            Query::AwaitIdle(answer) => self.waiters.await_idleness(answer),
            Query::ForceDown(links, answer) => {
                let now = self.now();
                self.publisher.force_down(&links, now);
                self.waiters.await_revision(answer);
            }
            Query::Maintain(links, answer) => {
                self.maintain(links);
                // The client may have gone.
                let _ = answer.send(());
            }
        }
    }

    /// Notes that a complete reading of the box was taken in.
    pub(crate) fn note_complete_reading(&mut self) {
        self.waiters.note_complete_reading();
        self.start.note_complete_reading();
    }

    /// Answers requests for a resync or for idleness, once the engine has nothing left to do.
    pub(crate) fn answer_when_idle(&mut self) {
        if self.waiters.are_for_idleness()
            && self.engine.read().is_idle()
            && self.transports.is_idle()
            && !self.commits.is_publishing()
            && !self.publisher.has_work()
        {
            self.waiters.answer_idle(self.engine.read().history());
        }
    }
}
