//! The tail of the history: what was done, as documents, for those who look after a restart.
//!
//! A file and a thread of its own, so that no commit waits for it: entries are gathered for a moment and written
//! together. A crash loses the last moment, a full disk everything from then on, and neither stops the agent: what
//! must survive is in the [`Database`](super::Database).

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, TableError};
use tracing::{error, warn};

use super::{StoreError, beside};
use crate::logging::Chain;

/// The file within the state folder.
pub const JOURNAL_NAME: &str = "history.redb";

/// Transactions by number.
const TRANSACTIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("transactions");

/// Octets of all entries together: some thousands of small transactions.
const JOURNAL_OCTETS: usize = 8 << 20;
/// Entries that wait for the disk. Of a burst beyond that only the memory of this run tells.
const QUEUE_DEPTH: usize = 1024;
/// How long entries are gathered before they are written in one go.
const GATHERED_FOR: Duration = Duration::from_millis(500);

/// Made on the thread of the journal: it may take as long as the entry is large.
type Document = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Handle of the journal; clones share it. It is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Journal {
    entry_tx: SyncSender<Entry>,
    redb: Arc<redb::Database>,
}

enum Entry {
    Keep {
        number: u64,
        document: Document,
    },
    /// To write what came before, and say so.
    Flush(SyncSender<()>),
}

impl Journal {
    /// Opens the file in `folder`. One that cannot be read is put aside.
    ///
    /// Blocks: call it before the runtime is busy.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let table = |write: &redb::WriteTransaction| {
            write.open_table(TRANSACTIONS)?;
            Ok(())
        };
        let redb = beside::open(folder, JOURNAL_NAME, table)?;
        let redb = Arc::new(redb);
        let octets = total(&redb).map_err(StoreError::accessing("read the history"))?;
        let (entry_tx, entry_rx) = sync_channel(QUEUE_DEPTH);
        let writer = Writer { redb: Arc::clone(&redb), octets };
        thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || writer.serve(&entry_rx))
            .map_err(|source| {
                let path = folder.join(JOURNAL_NAME);
                StoreError::File { action: "start the thread of", path, source }
            })?;
        Ok(Self { entry_tx, redb })
    }

    /// The number of the last entry; 0 when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last(&self) -> Result<u64, StoreError> {
        let read = || -> Result<u64, redb::Error> {
            let table = self.redb.begin_read()?.open_table(TRANSACTIONS)?;
            Ok(table.last()?.map_or(0, |(number, _)| number.value()))
        };
        read().map_err(StoreError::accessing("read the history"))
    }

    /// Keeps one entry, unless too many wait already. Does not wait.
    pub fn append(&self, number: u64, document: impl FnOnce() -> Vec<u8> + Send + 'static) {
        let entry = Entry::Keep { number, document: Box::new(document) };
        // When its thread has ended, that was said then.
        if matches!(self.entry_tx.try_send(entry), Err(TrySendError::Full(_))) {
            warn!(number, "a transaction is not kept for later runs: too many come at once");
        }
    }

    /// Waits until everything that came before is written, or the time is over.
    pub fn flush(&self, within: Duration) {
        let (done_tx, done_rx) = sync_channel(1);
        if self.entry_tx.try_send(Entry::Flush(done_tx)).is_ok() {
            // Whether it was in time makes no difference to who goes on.
            let _ = done_rx.recv_timeout(within);
        }
    }

    /// Entries with numbers above `after` and below `before`, ascending, as long as `wanted` takes them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(
        &self,
        (after, before): (u64, u64),
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut read = || -> Result<(), redb::Error> {
            let table = self.redb.begin_read()?.open_table(TRANSACTIONS)?;
            for row in table.range(after.saturating_add(1)..before)? {
                if !wanted(row?.1.value()) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(StoreError::accessing("read the history"))
    }
}

/// Octets of all entries.
fn total(redb: &redb::Database) -> Result<usize, redb::Error> {
    let table = match redb.begin_read()?.open_table(TRANSACTIONS) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(0),
        table => table?,
    };
    let mut octets = 0;
    for row in table.iter()? {
        octets += row?.1.value().len();
    }
    Ok(octets)
}

/// The thread's side.
struct Writer {
    redb: Arc<redb::Database>,
    octets: usize,
}

impl Writer {
    fn serve(mut self, entry_rx: &Receiver<Entry>) {
        while let Ok(first) = entry_rx.recv() {
            let mut entries = vec![first];
            while !matches!(entries.last(), Some(Entry::Flush(_))) && entries.len() < QUEUE_DEPTH {
                match entry_rx.recv_timeout(GATHERED_FOR) {
                    Ok(entry) => entries.push(entry),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            if let Err(refused) = self.write(entries) {
                return error!(error = %Chain(&refused), "history is no longer kept for later runs");
            }
        }
    }

    fn write(&mut self, entries: Vec<Entry>) -> Result<(), redb::Error> {
        let write = self.redb.begin_write()?;
        let mut waiting = Vec::new();
        {
            let mut table = write.open_table(TRANSACTIONS)?;
            for entry in entries {
                let (number, document) = match entry {
                    Entry::Keep { number, document } => (number, document()),
                    Entry::Flush(done) => {
                        waiting.push(done);
                        continue;
                    }
                };
                self.octets += document.len();
                if let Some(old) = table.insert(number, document.as_slice())? {
                    self.octets -= old.value().len();
                }
            }
            while self.octets > JOURNAL_OCTETS && table.len()? > 1 {
                let Some((_, oldest)) = table.pop_first()? else { break };
                self.octets -= oldest.value().len();
            }
        }
        write.commit()?;
        for done in waiting {
            // Who waited may have given up.
            let _ = done.send(());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(journal: &Journal, range: (u64, u64)) -> Vec<String> {
        let mut found = Vec::new();
        let mut take = |document: &[u8]| {
            found.push(String::from_utf8(document[..document.len().min(2)].to_vec()).unwrap());
            true
        };
        journal.read(range, &mut take).unwrap();
        found
    }

    /// Waits until the thread has written and closed the file: only then it can be opened again.
    fn reopened(journal: Journal, folder: &Path) -> Journal {
        drop(journal);
        loop {
            match Journal::open(folder) {
                Err(StoreError::Locked { .. }) => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        }
    }

    #[test]
    fn entries_survive_and_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        assert_eq!(journal.last().unwrap(), 0);
        for number in 1..=3_u64 {
            journal.append(number, move || format!("n{number}").into_bytes());
        }
        let journal = reopened(journal, folder.path());
        assert_eq!(journal.last().unwrap(), 3);
        assert_eq!(numbers(&journal, (0, u64::MAX)), ["n1", "n2", "n3"]);
        assert_eq!(numbers(&journal, (1, 3)), ["n2"]);

        // A large one displaces the others.
        journal.append(4, || [b"n4".to_vec(), vec![b'.'; JOURNAL_OCTETS - 4]].concat());
        let journal = reopened(journal, folder.path());
        assert_eq!(numbers(&journal, (0, u64::MAX)), ["n3", "n4"]);
    }

    #[test]
    fn a_broken_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        drop(Journal::open(folder.path()).unwrap()); // the folder is ours from here on
        std::fs::write(folder.path().join(JOURNAL_NAME), "no database at all").unwrap();
        let journal = loop {
            match Journal::open(folder.path()) {
                Err(StoreError::Locked { .. }) => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        assert_eq!(journal.last().unwrap(), 0);
        assert!(folder.path().join("history.broken").exists());
    }
}
