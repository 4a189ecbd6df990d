//! Rows of alarms on their way to the disk. No alarm waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_faults::Row;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::debug;

/// Pause after the disk refused a row. As long as the disk refuses, there is always one that waits, that of the alarm
/// about it, so that a disk that takes rows again is noticed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Rows of one step, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct RowBatch {
    pub(super) rows: Vec<Row>,
    /// Told whether the rows are on disk after the first attempt.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// Rows that are not on disk yet. Of several changes of one row, the last counts.
#[derive(Debug, Default)]
struct Unwritten {
    rows: BTreeMap<String, Option<Vec<u8>>>,
    waiters: Vec<oneshot::Sender<bool>>,
}

impl Unwritten {
    fn take(&mut self, batch: RowBatch) {
        self.rows.extend(batch.rows.into_iter().map(|row| (row.name, row.content)));
        self.waiters.extend(batch.written);
    }

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

    /// Takes the result of a write, and tells those who wait for it.
    fn settle(&mut self, result: Result<(), StoreError>) {
        let is_written = result.is_ok();
        match result {
            Ok(()) => self.rows.clear(),
            // The store logs what the disk refuses.
            Err(error) => debug!(error = %ErrorChain(&error), "alarms cannot be stored"),
        }
        for waiter in self.waiters.drain(..) {
            // The client may have gone.
            let _ = waiter.send(is_written);
        }
    }
}

/// Writes rows until the other end of the channel is dropped.
pub(super) async fn write(store: Store, mut batches: mpsc::UnboundedReceiver<RowBatch>) {
    let mut unwritten = Unwritten::default();
    loop {
        let next = if unwritten.rows.is_empty() {
            batches.recv().await
        } else {
            match timeout(RETRY_PAUSE, batches.recv()).await {
                Ok(next) => next,
                Err(_) => Some(RowBatch::default()),
            }
        };
        let Some(batch) = next else { return };
        unwritten.take(batch);
        while let Ok(batch) = batches.try_recv() {
            unwritten.take(batch);
        }
        let written = store.write_artefacts(unwritten.changes()).await;
        unwritten.settle(written);
    }
}
