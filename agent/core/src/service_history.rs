//! The last service transactions: noted as they end, shown as state, and kept by the database.
//!
//! A transaction that is done has its row in the write that makes it final. A transaction that failed is written
//! alone, and nobody waits for that: a crash at that moment loses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::limits::excerpt;
use holdfast_config::rows::{read_transaction, write_transaction};
use holdfast_config::services::{
    Book, ChangeAuthor, ChangeOrigin, FailureOrigin, KEPT_TRANSACTIONS, NAMED_INSTANCES,
    ServiceTransaction, TransactionFailure, WalkCause, WalkedInstance,
};
use holdfast_config::{EditCause, ServiceTag};
use holdfast_scheduler::Author;
use holdfast_security::acctz::secrets;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable};
use tracing::error;

use crate::examination::HandlerRounds;
use crate::request::{CommitError, Intent, Reply};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The last service transactions, and their rows that the database does not have yet.
#[derive(Debug, Default)]
pub(crate) struct ServiceHistory {
    kept: BTreeMap<u64, Arc<ServiceTransaction>>,
    last_id: u64,
    pub(crate) unwritten: Vec<ArtefactChange>,
    pub(crate) is_writing: bool,
}

/// Difference in the transactions that are kept.
#[derive(Debug, Default)]
pub(crate) struct HistoryChange {
    pub(crate) added: Vec<Arc<ServiceTransaction>>,
    /// Ids of those that are kept no longer.
    pub(crate) dropped: Vec<u64>,
}

/// A commit as a service transaction, while it is under way.
#[derive(Debug, Default)]
pub(crate) struct ServiceRecord {
    /// True for a change that is about services, whatever instances it walks.
    is_of_services: bool,
    /// True for walks that nobody asked for: each goes back to the last change of its instance.
    is_by_itself: bool,
    started_ns: u64,
    /// Instances that were walked, and whose plans or claims differ.
    pub(crate) touched: BTreeSet<ServiceTag>,
    /// Causes of walks that nobody asked for.
    causes: BTreeMap<ServiceTag, WalkCause>,
    /// The transaction that is about to become final.
    pub(crate) ended: Option<ServiceTransaction>,
}

impl ServiceRecord {
    pub(crate) fn new(intent: &Intent) -> Self {
        let (causes, is_by_itself) = match intent {
            Intent::Walk(walks) => (walks.all_causes(), !walks.is_redeployment),
            _ => (BTreeMap::new(), false),
        };
        let is_of_services = matches!(
            intent,
            Intent::Walk(_) | Intent::Resurrect { .. } | Intent::Package(_) | Intent::Purge(_)
        );
        let started_ns = now_ns();
        Self { is_of_services, is_by_itself, started_ns, causes, ..Self::default() }
    }

    /// Origin of the walks of a commit.
    pub(crate) fn origin(&self, reply: &Reply) -> ChangeOrigin {
        let Author { client, trace } = reply.author();
        let Self { is_by_itself, causes, .. } = self;
        ChangeOrigin {
            kind: reply.name().into(),
            author: ChangeAuthor { user: client.into(), trace: trace.into() },
            is_requested: !is_by_itself,
            causes: causes.clone(),
        }
    }

    /// Takes the transaction that is about to become final, or that has failed.
    pub(crate) fn take_ended(&mut self) -> Option<ServiceTransaction> {
        self.ended.take()
    }

    /// Causes of walks that nobody asked for.
    pub(crate) fn causes(&self) -> &BTreeMap<ServiceTag, WalkCause> {
        &self.causes
    }

    /// The instances of an outcome, and the number of those that are not named.
    fn instances(&self, book: &Book) -> (Vec<WalkedInstance>, u64) {
        let instance = |tag: &ServiceTag| {
            let plan = book.get(tag).filter(|_| self.is_by_itself);
            WalkedInstance {
                tag: tag.clone(),
                trace: plan.map(|plan| plan.record.trace.clone()).unwrap_or_default(),
                cause: self.causes.get(tag).cloned(),
            }
        };
        let omitted = self.touched.len().saturating_sub(NAMED_INSTANCES);
        (self.touched.iter().take(NAMED_INSTANCES).map(instance).collect(), omitted as u64)
    }
}

impl ServiceHistory {
    /// The transactions that the database has. A row that cannot be read is logged, and left out.
    pub(crate) fn load(rows: &BTreeMap<String, Artefact>) -> Self {
        let mut history = Self::default();
        for (name, row) in rows {
            match read_transaction(&row.content) {
                Ok(Some(transaction)) => drop(history.note(transaction)),
                Ok(None) => {}
                Err(reason) => {
                    error!(row = name, reason, "a stored service transaction cannot be read");
                }
            }
        }
        // A crash may have left more rows than are kept. Later ones may be of a form that another version knows.
        let first = history.kept.keys().next().copied();
        let is_old = |name: &&String| match name.parse::<u64>() {
            Ok(id) => first.is_some_and(|first| id < first),
            Err(_) => true,
        };
        let old = rows.keys().filter(is_old);
        history.unwritten = old.map(|name| row_change(name.clone(), None)).collect();
        let ids = rows.keys().filter_map(|name| name.parse().ok());
        history.last_id = ids.fold(history.last_id, u64::max);
        history
    }

    /// All transactions that are kept, for readers who have seen none of them.
    pub(crate) fn all(&self) -> HistoryChange {
        HistoryChange { added: self.kept.values().cloned().collect(), dropped: Vec::new() }
    }

    /// Ends the record of a commit, which is about to become final or has failed. Returns the transaction and the
    /// changes of its rows; nothing where the commit has to do with no instance.
    pub(crate) fn end(
        &mut self,
        record: &mut ServiceRecord,
        reply: &Reply,
        rounds: &HandlerRounds,
        book: &Book,
        failure: Option<&CommitError>,
    ) -> Vec<ArtefactChange> {
        let ChangeOrigin { author, .. } = record.origin(reply);
        if let Some(CommitError::Edit(errors)) = failure {
            record.touched.extend(errors.walked.iter().cloned());
        }
        record.touched.extend(rounds.asked_instances().cloned());
        let is_of_services = record.is_of_services || !record.touched.is_empty();
        if reply.is_dry_run() || !is_of_services {
            return Vec::new();
        }
        // A commit that the disk refuses has its id already.
        let id = record.ended.take().map(|ended| ended.id).unwrap_or(self.last_id + 1);
        self.last_id = self.last_id.max(id);
        let (instances, omitted) = record.instances(book);
        let failure = failure.map(|error| TransactionFailure {
            origin: origin_of(error),
            // The text may repeat secrets of the client, as in an answer that is logged.
            reason: excerpt(&secrets::message(&ErrorChain(error).to_string())).into(),
        });
        let transaction = ServiceTransaction {
            id,
            kind: reply.name().into(),
            author,
            started_ns: record.started_ns,
            ended_ns: now_ns(),
            failure,
            instances,
            omitted,
            handler_tids: rounds.tids().to_vec(),
        };
        let rows = rows(&transaction);
        record.ended = Some(transaction);
        rows
    }

    /// Queues the rows of a transaction that failed, to be written by [`Self::take_unwritten`].
    pub(crate) fn queue(&mut self, rows: Vec<ArtefactChange>) {
        self.unwritten.extend(rows);
        // While the disk is slow, a flood of failures leaves the last ones.
        self.unwritten.drain(..self.unwritten.len().saturating_sub(2 * KEPT_TRANSACTIONS));
    }

    /// Takes the rows that the database is to write, unless it is at it: however many there are, one write is under way.
    pub(crate) fn take_unwritten(&mut self) -> Option<Vec<ArtefactChange>> {
        if self.is_writing || self.unwritten.is_empty() {
            return None;
        }
        self.is_writing = true;
        Some(std::mem::take(&mut self.unwritten))
    }

    /// Notes that the database has written, or refused, the rows that it was given.
    pub(crate) fn note_written(&mut self) {
        self.is_writing = false;
    }

    /// Keeps a transaction that has ended.
    pub(crate) fn note(&mut self, transaction: ServiceTransaction) -> HistoryChange {
        let transaction = Arc::new(transaction);
        self.last_id = self.last_id.max(transaction.id);
        self.kept.insert(transaction.id, Arc::clone(&transaction));
        let mut dropped = Vec::new();
        while self.kept.len() > KEPT_TRANSACTIONS {
            dropped.extend(self.kept.pop_first().map(|(id, _)| id));
        }
        HistoryChange { added: vec![transaction], dropped }
    }
}

/// The row of a transaction, and the removal of the one that is kept no longer when it is there.
fn rows(transaction: &ServiceTransaction) -> Vec<ArtefactChange> {
    let artefact = Artefact {
        version: String::new(),
        created_on: transaction.ended_ns / NANOS_PER_SECOND,
        content: write_transaction(transaction).into(),
    };
    let written = row_change(transaction.id.to_string(), Some(artefact));
    let dropped = transaction.id.checked_sub(KEPT_TRANSACTIONS as u64);
    let dropped = dropped.map(|id| row_change(id.to_string(), None));
    std::iter::once(written).chain(dropped).collect()
}

fn row_change(name: String, artefact: Option<Artefact>) -> ArtefactChange {
    ArtefactChange { table: ArtefactTable::ServiceTransactions, name, artefact }
}

/// Part of the box that a change failed in.
fn origin_of(error: &CommitError) -> FailureOrigin {
    match error {
        CommitError::Edit(errors) => match &errors.first().cause {
            EditCause::Work { .. } => FailureOrigin::Service,
            EditCause::Reserved { claims, .. } if !claims.is_empty() => FailureOrigin::Service,
            EditCause::Conflict(conflict)
                if conflict.sides.iter().any(|side| !side.claims.is_empty()) =>
            {
                FailureOrigin::Service
            }
            _ => FailureOrigin::Configuration,
        },
        CommitError::Unsettled { .. } => FailureOrigin::Service,
        CommitError::Object { .. } | CommitError::PlanDiffers { .. } => {
            FailureOrigin::Configuration
        }
        CommitError::Failed { .. } => FailureOrigin::System,
        CommitError::Store(_) => FailureOrigin::Database,
        _ => FailureOrigin::Agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction(id: u64) -> ServiceTransaction {
        ServiceTransaction {
            id,
            kind: "set".into(),
            author: ChangeAuthor { user: "ops".into(), trace: "t".into() },
            started_ns: 1,
            ended_ns: 2,
            failure: None,
            instances: Vec::new(),
            omitted: 0,
            handler_tids: Vec::new(),
        }
    }

    /// The database as it is after changes of its rows.
    fn write(table: &mut BTreeMap<String, Artefact>, changes: Vec<ArtefactChange>) {
        for ArtefactChange { name, artefact, .. } in changes {
            match artefact {
                Some(artefact) => drop(table.insert(name, artefact)),
                None => drop(table.remove(&name)),
            }
        }
    }

    // proves sv.A27
    #[test]
    fn the_last_hundred_transactions_are_kept_in_memory_and_in_the_database() {
        let mut history = ServiceHistory::default();
        let mut table = BTreeMap::new();
        for id in 1..=150 {
            let change = history.note(transaction(id));
            let dropped = id.checked_sub(100).filter(|id| *id > 0);
            assert_eq!(change.dropped, Vec::from_iter(dropped));
            write(&mut table, rows(&transaction(id)));
        }
        let ids: Vec<u64> = history.kept.keys().copied().collect();
        assert_eq!(ids, (51..=150).collect::<Vec<_>>());
        assert_eq!(table.len(), 100);
        let again = ServiceHistory::load(&table);
        assert_eq!((&again.kept, again.last_id), (&history.kept, 150));
        assert!(again.unwritten.is_empty());
    }

    #[test]
    fn rows_beyond_those_that_are_kept_and_rows_that_cannot_be_read_go() {
        let mut table = BTreeMap::new();
        for id in 1..=103 {
            write(&mut table, rows(&transaction(id)).into_iter().take(1).collect());
        }
        let content = vec![0xff].into();
        let broken = Artefact { version: String::new(), created_on: 0, content };
        table.insert("7 a".to_owned(), broken);
        let history = ServiceHistory::load(&table);
        assert_eq!(history.kept.keys().next(), Some(&4));
        write(&mut table, history.unwritten);
        assert_eq!(table.len(), 100);
        assert!(!table.contains_key("7 a") && !table.contains_key("3"));
    }
}
