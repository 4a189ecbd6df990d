//! From a commit to the revision that shows it.
//!
//! A small one is shown before it is answered. The revision of a large one takes longer to make than the answer has to
//! wait: whoever reads after that waits for it instead, and so do questions and the next change.

use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::{Configuration, parallel};
use holdfast_telemetry::Boundary;
use tokio::task::spawn_blocking;

use super::CommitStamp;
use super::making::Made;
use super::task::{CoreTask, Work};
use super::transaction::{Commit, Stage, Transaction};

impl CoreTask {
    /// A commit was answered, and is not shown yet.
    pub(super) fn is_revealing(&self) -> bool {
        matches!(&self.transaction, Some(Transaction { stage: Stage::Revealing(_), .. }))
    }

    /// A change is final.
    pub(super) fn committed(&mut self, mut transaction: Transaction, configuration: Configuration) {
        for (key, value) in std::mem::take(&mut transaction.logins.values) {
            match value {
                Some(value) => self.logins.insert(key, value),
                None => self.logins.remove(&key),
            };
        }
        if let Some(credentials) = transaction.logins.credentials.take() {
            self.credentials = credentials;
        }
        if transaction.is_unrecorded {
            self.publisher.release();
            return transaction.ticket.answer(Ok(self.unchanged()));
        }
        let confirm_id = self.turn_window(&transaction);
        let old = std::mem::replace(&mut self.configuration, configuration);
        self.configuration_tx.send_replace(self.configuration.clone());
        let changes = || transaction.changes.iter().map(|it| (&it.key, it.value.as_ref()));
        self.reconcile_as(changes());
        self.pairs.update(changes());
        let (last, time_ns) = (self.publisher.revision(), now_ns());
        let commit = Commit { old, confirm_id, time_ns, told: Arc::default() };
        if self.configuration.work().entries <= parallel::FEW {
            self.publisher.hold_back(std::mem::take(&mut transaction.withheld).quiet());
            let done = self.reveal(&commit, &transaction, None);
            return transaction.ticket.answer(Ok(done));
        }
        self.behind_tx.send_replace(true);
        transaction.ticket.answer(Ok(CommitStamp { time_ns, revision: last.number + 1 }));
        transaction.stage = Stage::Revealing(commit);
        self.transaction = Some(transaction);
        self.work.0.push(Box::pin(async {
            // Whoever sends the answer may be waiting for this thread.
            tokio::task::yield_now().await;
            Work::Answered
        }));
    }

    /// An answer is on its way: now what it answered is shown.
    pub(super) fn answered(&mut self) {
        let last = self.publisher.revision();
        let Some(transaction) = &mut self.transaction else { return };
        let Stage::Revealing(commit) = &mut transaction.stage else { return };
        self.publisher.hold_back(std::mem::take(&mut transaction.withheld).quiet());
        // Of what was there before, state has to be taken away first.
        if transaction.changes.iter().all(|change| !change.existed) {
            commit.told = self.publisher.hand_over(&self.engine);
        }
        let (objects, told, time_ns) =
            (Arc::clone(&self.objects), Arc::clone(&commit.told), commit.time_ns);
        let (old, new) = (commit.old.clone(), self.configuration.clone());
        let made = spawn_blocking(move || Made::of(&objects, &last, time_ns, (&old, &new), &told));
        self.work.0.push(Box::pin(async move { Work::Made(made.await.ok().map(Box::new)) }));
    }

    /// The revision that an answered commit waits for is there. Where its maker has panicked, it is made now.
    pub(super) fn made(&mut self, made: Option<Made>) {
        let Some(mut transaction) = self.transaction.take() else { return };
        if let Stage::Revealing(commit) =
            std::mem::replace(&mut transaction.stage, Stage::Examining)
        {
            if made.is_none() {
                self.publisher.hold_back(commit.told.iter().map(|(key, ..)| key.clone()));
            }
            self.reveal(&commit, &transaction, made);
            self.behind_tx.send_replace(false);
        }
    }

    fn reveal(
        &mut self,
        commit: &Commit,
        transaction: &Transaction,
        made: Option<Made>,
    ) -> CommitStamp {
        let both = (&commit.old, &self.configuration, commit.time_ns);
        let revision = self.publisher.commit(&self.engine, both, &transaction.changes, made);
        self.revision_tx.send_replace(revision.clone());
        let done = CommitStamp { time_ns: revision.time_ns, revision: revision.number };
        let confirm_id = commit.confirm_id.clone();
        self.boundary_tx.tell(Boundary { revision, transaction: transaction.number, confirm_id });
        done
    }

    /// Shows what changed without a change of configuration.
    pub(super) fn publish_state(&mut self) {
        if self.is_revealing() {
            return; // the next revision is the commit's
        }
        if let Some(revision) = self.publisher.state(&self.engine) {
            self.revision_tx.send_replace(revision);
        }
    }
}
