//! Rows of alarms on their way to the disk. No alarm waits for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_faults::Row;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tracing::debug;

/// Pause after the disk refused a row. As long as the disk refuses, there is always one that waits, that of the alarm
/// about it, so that a disk that takes rows again is noticed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Rows on their way to the disk: at most one for each condition.
#[derive(Debug)]
pub(super) struct RowWriter {
    unwritten: Mutex<Unwritten>,
    changed: Notify,
    /// All rows as they are, or will be, on disk. They are for a task that begins again.
    current: Mutex<BTreeMap<String, Vec<u8>>>,
}

/// Rows that are not on disk yet. Of several changes of one row, the last counts.
#[derive(Debug, Default)]
struct Unwritten {
    rows: BTreeMap<String, Option<Vec<u8>>>,
    /// Told whether the rows are on disk after the next attempt.
    waiters: Vec<oneshot::Sender<bool>>,
}

impl Unwritten {
    fn changes(&self) -> Vec<ArtefactChange> {
        let change = |(name, content): (&String, &Option<Vec<u8>>)| ArtefactChange {
            table: ArtefactTable::Alarms,
            name: name.clone(),
            artefact: content.clone().map(|content| Artefact {
                version: String::new(),
                created_on: 0,
                content: content.into(),
            }),
        };
        self.rows.iter().map(change).collect()
    }
}

impl RowWriter {
    /// A writer that begins with these rows on disk.
    pub(super) fn new(rows: BTreeMap<String, Vec<u8>>) -> Self {
        let unwritten = Mutex::default();
        Self { unwritten, changed: Notify::default(), current: Mutex::new(rows) }
    }

    /// All rows, also those that the disk does not have yet.
    pub(super) fn current(&self) -> BTreeMap<String, Vec<u8>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has rows written. `written` is told whether they are on disk after the first attempt.
    pub(super) fn put(&self, rows: Vec<Row>, written: Option<oneshot::Sender<bool>>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        for Row { name, content } in &rows {
            match content {
                Some(content) => drop(current.insert(name.clone(), content.clone())),
                None => drop(current.remove(name)),
            }
        }
        drop(current);
        let mut unwritten = self.lock();
        unwritten.rows.extend(rows.into_iter().map(|row| (row.name, row.content)));
        unwritten.waiters.extend(written);
        self.changed.notify_one();
    }

    /// Writes rows for as long as the future is polled.
    pub(super) async fn run(&self, store: Store) {
        loop {
            if self.lock().rows.is_empty() {
                self.changed.notified().await;
            }
            let attempt = std::mem::take(&mut *self.lock());
            if attempt.rows.is_empty() {
                // A change without rows owes the disk nothing.
                self.settle(attempt, Ok(()));
                continue;
            }
            let written = store.write_artefacts(attempt.changes()).await;
            let is_refused = written.is_err();
            self.settle(attempt, written);
            if is_refused {
                // Whoever waits for a row is told at once.
                let _is_retry = timeout(RETRY_PAUSE, self.changed.notified()).await;
            }
        }
    }

    /// Tells those who wait for a write, and keeps what was not written.
    fn settle(&self, attempt: Unwritten, written: Result<(), StoreError>) {
        let Unwritten { rows, waiters } = attempt;
        let is_written = written.is_ok();
        if let Err(error) = written {
            // The store logs what the disk refuses.
            debug!(error = %ErrorChain(&error), "alarms cannot be stored");
            let mut unwritten = self.lock();
            for (name, content) in rows {
                unwritten.rows.entry(name).or_insert(content);
            }
        }
        for waiter in waiters {
            // The client may have gone.
            let _ = waiter.send(is_written);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_without_rows_owes_the_disk_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(folder.path()).unwrap();
        let writer = RowWriter::new(BTreeMap::new());
        let (written_tx, written) = oneshot::channel();
        writer.put(Vec::new(), Some(written_tx));
        tokio::select! {
            () = writer.run(store) => panic!("a writer goes on"),
            said = written => assert_eq!(said, Ok(true)),
        }
    }
}
