//! The ends of histories as documents, for inspection after a restart: of transactions, and of changes of alarms.
//!
//! Each file has a thread of its own, so that no commit waits for the disk: entries are collected for a moment and
//! written together. A crash loses those of the last moment. While the disk is full, entries wait in memory, up to
//! the size of the file. Such losses are acceptable: data that must survive is in the
//! [`Database`](super::Database).

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use holdfast_base::ErrorChain;
use redb::{
    Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, TableError,
};
use tracing::{error, info, warn};

use super::StoreError;
use super::history_file::{HistoryFile, RETRY_PAUSE};

/// Entries that a file keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalKind {
    Transactions,
    Alarms,
}

impl JournalKind {
    pub(super) const ALL: [Self; 2] = [Self::Transactions, Self::Alarms];

    /// File name within the state folder.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Transactions => "history.redb",
            Self::Alarms => "alarms.redb",
        }
    }
}

/// Documents by the number of the transaction or the change.
const TRANSACTIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("transactions");

/// Bytes of all entries together: some thousands of small transactions, or ten thousand changes of alarms.
const JOURNAL_OCTETS: usize = 8 << 20;
/// Entries that wait for the disk. Further entries of a burst exist in the memory of this run only.
const QUEUE_DEPTH: usize = 1024;
/// Time for which entries are collected before they are written together.
const BATCH_WINDOW: Duration = Duration::from_millis(500);

/// Serializes an entry, on the thread of the journal because it may take long for a large one.
type Document = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Handle of the journal; clones share it. The file is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Journal {
    entry_tx: SyncSender<Entry>,
    file: Arc<HistoryFile>,
}

enum Entry {
    Keep {
        number: u64,
        document: Document,
    },
    /// Write all earlier entries, then answer.
    Flush(SyncSender<()>),
}

impl Journal {
    /// Opens a file in `folder`. An unreadable file is set aside.
    ///
    /// Blocks, so call it before the runtime is busy.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn open(folder: &Path, kind: JournalKind) -> Result<Self, StoreError> {
        let name = kind.file_name();
        let file = Arc::new(HistoryFile::open(folder, name, |write| {
            write.open_table(TRANSACTIONS)?;
            Ok(())
        })?);
        let octets = file.read(total).map_err(StoreError::accessing("read the history"))?;
        let (entry_tx, entry_rx) = sync_channel(QUEUE_DEPTH);
        let writer = Writer { name, file: Arc::clone(&file), octets, unwritten: VecDeque::new() };
        thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || writer.serve(&entry_rx))
            .map_err(|source| {
                let path = folder.join(name);
                StoreError::File { action: "start the thread of", path, source }
            })?;
        Ok(Self { entry_tx, file })
    }

    /// Number of the last entry; 0 when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last(&self) -> Result<u64, StoreError> {
        let read = |redb: &Database| {
            let table = redb.begin_read()?.open_table(TRANSACTIONS)?;
            Ok(table.last()?.map_or(0, |(number, _)| number.value()))
        };
        self.file.read(read).map_err(StoreError::accessing("read the history"))
    }

    /// Stores one entry, unless too many are waiting. Does not block.
    pub fn append(&self, number: u64, document: impl FnOnce() -> Vec<u8> + Send + 'static) {
        let entry = Entry::Keep { number, document: Box::new(document) };
        // The end of the thread has been logged already.
        if matches!(self.entry_tx.try_send(entry), Err(TrySendError::Full(_))) {
            warn!(number, "an entry is not kept for later runs: too many come at once");
        }
    }

    /// Waits until all earlier entries are written, or the time is over.
    pub fn flush(&self, within: Duration) {
        let (done_tx, done_rx) = sync_channel(1);
        if self.entry_tx.try_send(Entry::Flush(done_tx)).is_ok() {
            // The caller goes on in either case.
            let _ = done_rx.recv_timeout(within);
        }
    }

    /// Entries with numbers above `after` and below `before`, ascending, as long as `wanted` accepts them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(
        &self,
        (after, before): (u64, u64),
        mut matches: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let read = |redb: &Database| {
            let table = redb.begin_read()?.open_table(TRANSACTIONS)?;
            for row in table.range(after.saturating_add(1)..before)? {
                if !matches(row?.1.value()) {
                    break;
                }
            }
            Ok(())
        };
        self.file.read(read).map_err(StoreError::accessing("read the history"))
    }
}

/// Bytes of all entries.
fn total(redb: &Database) -> Result<usize, redb::Error> {
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

/// State of the thread.
struct Writer {
    /// File name, for the log.
    name: &'static str,
    file: Arc<HistoryFile>,
    /// Bytes of the entries in the file.
    octets: usize,
    /// Entries that are not in the file yet.
    unwritten: VecDeque<(u64, Vec<u8>)>,
}

/// Reason to stop collecting entries for one write.
enum BatchEnd {
    /// Its time is over, or it is large.
    Due,
    /// A caller waits for the write.
    Flush(SyncSender<()>),
    /// The channel is closed.
    Closed,
}

impl Writer {
    fn serve(mut self, entry_rx: &Receiver<Entry>) {
        loop {
            let end = self.collect_batch(entry_rx);
            let written = self.unwritten.is_empty() || self.write();
            match end {
                // The caller may have given up.
                BatchEnd::Flush(answer) if written => drop(answer.send(())),
                BatchEnd::Flush(_) | BatchEnd::Due => {}
                BatchEnd::Closed => return,
            }
        }
    }

    /// Waits for an entry, or for the time of the next attempt, and collects those that follow.
    fn collect_batch(&mut self, entry_rx: &Receiver<Entry>) -> BatchEnd {
        let mut next = if self.file.is_refused() {
            entry_rx.recv_timeout(RETRY_PAUSE)
        } else {
            entry_rx.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        for taken in 1.. {
            match next {
                Ok(Entry::Keep { number, document }) => {
                    self.unwritten.push_back((number, document()));
                }
                Ok(Entry::Flush(answer)) => return BatchEnd::Flush(answer),
                Err(RecvTimeoutError::Timeout) => return BatchEnd::Due,
                Err(RecvTimeoutError::Disconnected) => return BatchEnd::Closed,
            }
            if taken == QUEUE_DEPTH {
                break;
            }
            next = entry_rx.recv_timeout(BATCH_WINDOW);
        }
        BatchEnd::Due
    }

    /// Writes the waiting entries; true when the file has all of them.
    fn write(&mut self) -> bool {
        let refused_before = self.file.is_refused();
        let written = self.file.write(|write| {
            let mut octets = self.octets;
            let mut table = write.open_table(TRANSACTIONS)?;
            for (number, document) in &self.unwritten {
                octets += document.len();
                if let Some(old) = table.insert(number, document.as_slice())? {
                    octets -= old.value().len();
                }
            }
            while octets > JOURNAL_OCTETS && table.len()? > 1 {
                let Some((_, oldest)) = table.pop_first()? else { break };
                octets -= oldest.value().len();
            }
            Ok(octets)
        });
        match written {
            Ok(octets) => {
                self.octets = octets;
                self.unwritten.clear();
                if refused_before {
                    info!(file = self.name, "the disk takes the history again");
                }
                true
            }
            Err(refused) => {
                if !refused_before {
                    error!(file = self.name, error = %ErrorChain(&refused), "history is in memory only, until the disk takes it");
                }
                self.forget_oldest();
                false
            }
        }
    }

    /// Drops the oldest waiting entries beyond the size of the file.
    fn forget_oldest(&mut self) {
        let mut octets: usize = self.unwritten.iter().map(|(_, document)| document.len()).sum();
        while octets > JOURNAL_OCTETS && self.unwritten.len() > 1 {
            octets -= self.unwritten.pop_front().map_or(0, |(_, document)| document.len());
        }
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

    /// Waits until the thread has written and closed the file, which can be reopened only then.
    fn reopened(journal: Journal, folder: &Path) -> Journal {
        drop(journal);
        loop {
            match Journal::open(folder, JournalKind::Transactions) {
                Err(StoreError::Locked { .. }) => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        }
    }

    #[test]
    fn entries_survive_and_the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), JournalKind::Transactions).unwrap();
        assert_eq!(journal.last().unwrap(), 0);
        for number in 1..=3_u64 {
            journal.append(number, move || format!("n{number}").into_bytes());
        }
        let journal = reopened(journal, folder.path());
        assert_eq!(journal.last().unwrap(), 3);
        assert_eq!(numbers(&journal, (0, u64::MAX)), ["n1", "n2", "n3"]);
        assert_eq!(numbers(&journal, (1, 3)), ["n2"]);

        // A large entry displaces the others.
        journal.append(4, || [b"n4".to_vec(), vec![b'.'; JOURNAL_OCTETS - 4]].concat());
        let journal = reopened(journal, folder.path());
        assert_eq!(numbers(&journal, (0, u64::MAX)), ["n3", "n4"]);
    }

    #[test]
    fn rows_that_the_disk_refused_are_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), JournalKind::Transactions).unwrap();
        let (_entry_tx, entry_rx) = sync_channel(QUEUE_DEPTH);
        let mut writer = Writer {
            name: "history.redb",
            file: Arc::clone(&journal.file),
            octets: 0,
            unwritten: VecDeque::from([(1, b"n1".to_vec())]),
        };
        journal.file.refuse();
        assert!(!writer.write());
        assert!(journal.last().is_err(), "a file that failed answers nothing");
        // Writing is retried without new entries. Until it succeeds, no more entries wait than the file would
        // hold.
        writer.unwritten.push_back((2, vec![b'.'; JOURNAL_OCTETS - 1]));
        writer.unwritten.push_back((3, b"n3".to_vec()));
        journal.file.refuse();
        assert!(!writer.write());
        assert!(matches!(writer.collect_batch(&entry_rx), BatchEnd::Due));
        assert!(writer.write());
        assert_eq!((journal.last().unwrap(), writer.unwritten.len()), (3, 0));
        assert_eq!(numbers(&journal, (0, u64::MAX)), ["n3"]);
    }

    #[test]
    fn a_broken_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        drop(Journal::open(folder.path(), JournalKind::Transactions).unwrap()); // the folder is ours from here on
        std::fs::write(
            folder.path().join(JournalKind::Transactions.file_name()),
            "no database at all",
        )
        .unwrap();
        let journal = loop {
            match Journal::open(folder.path(), JournalKind::Transactions) {
                Err(StoreError::Locked { .. }) => thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        assert_eq!(journal.last().unwrap(), 0);
        assert!(folder.path().join("history.broken").exists());
    }
}
