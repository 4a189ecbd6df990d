//! Requests that wait for something to be over.

use std::sync::Arc;

use holdfast_scheduler::{History, TransactionRecord, TxnId};
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    resyncs: Vec<Resync>,
    /// Requests that wait for the next revision.
    of_revision: Vec<oneshot::Sender<()>>,
    /// Requests that wait until nothing is under way.
    of_idleness: Vec<oneshot::Sender<()>>,
}

/// A request that waits for a complete reading of the box and the repairs that follow.
#[derive(Debug)]
struct Resync {
    answer: oneshot::Sender<Vec<Arc<TransactionRecord>>>,
    /// The last transaction before the request.
    after: TxnId,
    /// True once the complete reading was handled.
    is_read: bool,
}

impl Waiters {
    /// Answers with the transactions after this one, once a complete reading was handled and nothing is under way.
    pub(crate) fn await_resync(
        &mut self,
        answer: oneshot::Sender<Vec<Arc<TransactionRecord>>>,
        after: TxnId,
    ) {
        self.resyncs.push(Resync { answer, after, is_read: false });
    }

    /// Answers after the next revision.
    pub(crate) fn await_revision(&mut self, answer: oneshot::Sender<()>) {
        self.of_revision.push(answer);
    }

    /// Answers once nothing is under way.
    pub(crate) fn await_idleness(&mut self, answer: oneshot::Sender<()>) {
        self.of_idleness.push(answer);
    }

    /// Notes that a complete reading of the box was taken in.
    pub(crate) fn note_complete_reading(&mut self) {
        for resync in &mut self.resyncs {
            resync.is_read = true;
        }
    }

    /// Answers requests whose effect the newest revision shows.
    pub(crate) fn answer_shown(&mut self) {
        for answer in self.of_revision.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
    }

    /// True when somebody waits for idleness.
    pub(crate) fn are_for_idleness(&self) -> bool {
        !self.resyncs.is_empty() || !self.of_idleness.is_empty()
    }

    /// Answers requests for a resync or for idleness: nothing is under way.
    pub(crate) fn answer_idle(&mut self, history: &History) {
        for answer in self.of_idleness.drain(..) {
            // The client may have gone.
            let _ = answer.send(());
        }
        for resync in self.resyncs.extract_if(.., |resync| resync.is_read) {
            let records = history.after(resync.after).cloned().collect();
            // The client may have gone.
            drop(resync.answer.send(records));
        }
    }
}
