//! Answers to questions.

use holdfast_scheduler::TxnId;

use super::CoreTask;
use crate::handle::{CoreView, Inspection, Query};
use crate::state::Resync;

impl CoreTask {
    pub(crate) fn answer(&mut self, query: Query) {
        match query {
            Query::Inspect(Inspection(inspect)) => inspect(&CoreView {
                engine: &self.engine.read(),
                configuration: &self.configuration,
                now: self.now(),
                foreign_routes: &self.foreign_routes,
                examiner: &self.examiner,
            }),
            Query::Resync(answer) => {
                let engine = self.engine.read();
                let last = engine.history().records().next_back();
                let after = last.map_or(TxnId(0), |record| record.txn);
                drop(engine);
                self.resyncs.push(Resync { answer, after, is_read: false });
                self.transport.retrieve();
            }
            Query::AwaitIdle(answer) => self.idle_waiters.push(answer),
            Query::ForceDown(links, answer) => {
                let now = self.now();
                self.publisher.force_down(&links, now);
                self.revision_waiters.push(answer);
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
        for resync in &mut self.resyncs {
            resync.is_read = true;
        }
        self.first_showing.note_complete_reading();
    }

    /// Answers requests of which the newest revision shows the effect.
    pub(crate) fn answer_when_shown(&mut self) {
        for answer in self.revision_waiters.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
    }

    /// Answers requests for a resync or for idleness, once the engine has nothing left to do.
    pub(crate) fn answer_when_idle(&mut self) {
        if self.resyncs.is_empty() && self.idle_waiters.is_empty()
            || !self.engine.read().is_idle()
            || self.commits.is_publishing()
            || self.publisher.has_work()
        {
            return;
        }
        for answer in self.idle_waiters.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
        let engine = self.engine.read();
        let history = engine.history();
        for resync in self.resyncs.extract_if(.., |resync| resync.is_read) {
            let records = history.after(resync.after).cloned().collect();
            // The client may have gone.
            drop(resync.answer.send(records));
        }
    }
}
