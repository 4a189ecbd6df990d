//! Accounting records on disk, for collectors that connect after a restart.
//!
//! The file has a thread of its own, so that no call waits for the disk. The thread reads the history by a cursor,
//! like any collector, and writes the next records as soon as the disk has accepted the previous ones. A kill can
//! lose only records of the last write, which no collector has received.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use holdfast_base::ErrorChain;
use holdfast_security::acctz::{Cursor, History, Record, RingName};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use tracing::{error, info, warn};

use super::{AccountingLog, Batch};
use crate::StoreError;
use crate::history_file::{HistoryFile, RETRY_PAUSE};

/// File name within the state folder.
pub const ACCOUNTS_NAME: &str = "accounts.redb";

/// Records by time, as JSON. Unit of the key: nanoseconds since 1970.
type Records = TableDefinition<'static, u64, &'static [u8]>;
/// A table for each ring. Earlier versions stored the records of all identified callers in that of changes.
const TABLES: [(RingName, Records); RingName::ALL.len()] = [
    (RingName::Changes, TableDefinition::new("records")),
    (RingName::Reads, TableDefinition::new("reads")),
    (RingName::Strangers, TableDefinition::new("strangers")),
];
/// Times by name. [`COMPLETE_AFTER`]: every later record is in the file.
const TIMES: TableDefinition<'_, &str, u64> = TableDefinition::new("times");
const COMPLETE_AFTER: &str = "complete-after";

/// Records in one write. A larger batch takes longer, and more records would be lost on a kill.
const MAX_BATCH: usize = 256;

/// File with the records of earlier runs.
#[derive(Debug)]
pub struct Ledger {
    file: HistoryFile,
}

impl Ledger {
    /// Opens the file in `folder`. An unreadable file is set aside.
    ///
    /// Blocks, so call it before the runtime is busy.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let file = HistoryFile::open(folder, ACCOUNTS_NAME, |write| {
            for (_, table) in TABLES {
                write.open_table(table)?;
            }
            write.open_table(TIMES)?;
            Ok(())
        })?;
        Ok(Self { file })
    }

    /// Restores the records of earlier runs, and stores new ones in the file from here on.
    ///
    /// # Errors
    /// When the file cannot be read, or the thread cannot be started.
    pub fn keep(self, max_octets: usize, now_ns: u64) -> Result<AccountingLog, StoreError> {
        let accounts = AccountingLog::new(self.load(max_octets, now_ns)?);
        let own = accounts.clone();
        let cursor = accounts.follow();
        let writer = LedgerWriter { file: self.file, accounts: own };
        let started = thread::Builder::new().name("accounts".into()).spawn(|| writer.serve(cursor));
        started.map_err(|source| StoreError::File {
            action: "start the thread of",
            path: ACCOUNTS_NAME.into(),
            source,
        })?;
        Ok(accounts)
    }

    fn load(&self, max_octets: usize, now_ns: u64) -> Result<History, StoreError> {
        let mut complete_after = None;
        let mut records = Vec::new();
        let mut unreadable = Vec::new();
        let read = self.file.read(|redb| {
            let transaction = redb.begin_read()?;
            let times = transaction.open_table(TIMES)?;
            complete_after = times.get(COMPLETE_AFTER)?.map(|time| time.value());
            for (ring, table) in TABLES {
                for row in transaction.open_table(table)?.iter()? {
                    let (time_ns, record) = row?;
                    match serde_json::from_slice::<Record>(record.value()) {
                        Ok(record) => records.push((ring, record)),
                        Err(_) => unreadable.push(time_ns.value()),
                    }
                }
            }
            Ok(())
        });
        read.map_err(StoreError::accessing("read the accounts"))?;
        if complete_after.is_none() {
            self.note_beginning(now_ns);
        }
        let mut history = History::new(max_octets, complete_after.unwrap_or(now_ns));
        for (ring, record) in records {
            history.restore(ring, record);
        }
        if !unreadable.is_empty() {
            warn!(unreadable = unreadable.len(), "records of accounting cannot be read");
        }
        for time_ns in unreadable {
            history.lose(time_ns);
        }
        Ok(history)
    }

    /// Notes that there are no records from before. A disk that refuses this gets the time with the first records.
    fn note_beginning(&self, now_ns: u64) {
        let noted = self.file.write(|write| {
            write.open_table(TIMES)?.insert(COMPLETE_AFTER, now_ns)?;
            Ok(())
        });
        if let Err(refused) = noted {
            warn!(error = %ErrorChain(&refused), "accounts are in memory only, until the disk takes them");
        }
    }
}

/// State of the thread.
struct LedgerWriter {
    file: HistoryFile,
    accounts: AccountingLog,
}

impl LedgerWriter {
    fn serve(self, mut cursor: Cursor) {
        while let Some(batch) = self.accounts.wait(&mut cursor, MAX_BATCH) {
            let refused_before = self.file.is_refused();
            let mut failing = false;
            while let Err(refused) = self.write(&batch) {
                if !std::mem::replace(&mut failing, true) {
                    error!(error = %ErrorChain(&refused), "accounts are in memory only, until the disk takes them");
                }
                self.accounts.batch_refused();
                if !self.accounts.pause(RETRY_PAUSE) {
                    return;
                }
            }
            if failing || refused_before {
                info!("the disk takes accounts again");
            }
            self.accounts.batch_written(&batch);
        }
    }

    fn write(&self, batch: &Batch) -> Result<(), StoreError> {
        self.file.write(|write| {
            for ((ring, table), (_, oldest_ns)) in TABLES.into_iter().zip(batch.oldest_ns) {
                let mut table = write.open_table(table)?;
                for (_, record) in batch.records.iter().filter(|(of, _)| *of == ring) {
                    table.insert(record.time_ns, encoded(record).as_slice())?;
                }
                // Records that were dropped in memory are dropped here too.
                loop {
                    let first = table.first()?.map(|(time_ns, _)| time_ns.value());
                    if first.is_none_or(|first| oldest_ns.is_none_or(|oldest| first >= oldest)) {
                        break;
                    }
                    table.pop_first()?;
                }
            }
            write.open_table(TIMES)?.insert(COMPLETE_AFTER, batch.complete_after_ns)?;
            Ok(())
        })
    }
}

fn encoded(record: &Arc<Record>) -> Vec<u8> {
    serde_json::to_vec(&**record).expect("a record has no map and nothing that JSON cannot hold")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdfast_security::acctz::{
        AccountingEvent, Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, Command,
        CommandKind, Payload, Rpc, ServiceFamily, Session, User,
    };

    use super::super::{MIN_HISTORY, RefusalKind};
    use super::*;

    /// Enough for the records of any test.
    const ROOM: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(60);

    fn command(name: &str) -> AccountingEvent {
        let authz = Authz { outcome: AuthzOutcome::Permit, detail: "".into() };
        let command =
            Command { kind: CommandKind::Cli, command: name.into(), arguments: vec![], authz };
        AccountingEvent { session: Session::default(), activity: Activity::Command(command) }
    }

    /// Refuses a call without credentials from one of these sources.
    fn refuse(accounts: &AccountingLog, source: u32) {
        let authn = Authn {
            kind: AuthnKind::None,
            outcome: AuthnOutcome::Fail,
            cause: "no credentials".into(),
        };
        let authz = Authz { outcome: AuthzOutcome::Deny, detail: "Unauthenticated".into() };
        let rpc = Rpc {
            family: ServiceFamily::Gnmi,
            path: "/gnmi.gNMI/Get".into(),
            payload: None,
            authz,
        };
        let session = Session { authn: Some(authn), ..Session::default() };
        let source = Some(std::net::IpAddr::from(source.to_be_bytes()));
        let kind = RefusalKind { source, reason: "no credentials", name: None };
        accounts.record_refused(kind, AccountingEvent { session, activity: Activity::Rpc(rpc) });
    }

    /// Waits until the thread of the last run has closed the file.
    fn open(folder: &Path, max_octets: usize) -> AccountingLog {
        loop {
            match Ledger::open(folder) {
                Err(StoreError::Locked { .. }) => thread::yield_now(),
                opened => break opened.unwrap().keep(max_octets, 1000).unwrap(),
            }
        }
    }

    async fn records_after(
        accounts: &AccountingLog,
        after_ns: u64,
        count: usize,
    ) -> Vec<(String, bool)> {
        let mut reader = accounts.read(after_ns);
        let mut all = Vec::new();
        for _ in 0..count {
            let delivered = reader.next().await;
            let text = match &delivered.record.account.activity {
                Activity::Command(command) => &command.command,
                Activity::Rpc(rpc) => &rpc.authz.detail,
            };
            all.push((text.as_str().to_owned(), delivered.truncated));
        }
        all
    }

    // proves 5.97, 5.98
    #[tokio::test]
    async fn accounts_outlive_a_run_as_far_as_they_fit() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = open(folder.path(), ROOM);
        for name in ["a", "b", "c"] {
            accounts.record_change(command(name));
        }
        accounts.end(PATIENCE);
        drop(accounts);

        let accounts = open(folder.path(), ROOM);
        accounts.record_change(command("d"));
        let plain = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| ((*name).to_owned(), false)).collect()
        };
        assert_eq!(records_after(&accounts, 0, 4).await, plain(&["a", "b", "c", "d"]));
        // The first run began at 1000.
        assert_eq!(records_after(&accounts, 1000, 1).await, plain(&["a"]));
        assert_eq!(records_after(&accounts, 999, 1).await, [("a".to_owned(), true)]);
        accounts.end(PATIENCE);
        drop(accounts);

        // Room for two: records dropped in memory are dropped from the file.
        let two = 2 * Record { time_ns: 0, account: command("a") }.octets();
        let accounts = open(folder.path(), two);
        assert_eq!(records_after(&accounts, 0, 2).await, plain(&["c", "d"]));
        accounts.record_change(command("e"));
        accounts.end(PATIENCE);
        drop(accounts);
        let accounts = open(folder.path(), ROOM);
        assert_eq!(records_after(&accounts, 0, 2).await, plain(&["d", "e"]));
        assert_eq!(records_after(&accounts, 1000, 1).await, [("d".to_owned(), true)]);
    }

    /// A call of a reader; some calls have the same request.
    fn read(accounts: &AccountingLog, request: u32) {
        let authz = Authz { outcome: AuthzOutcome::Permit, detail: "".into() };
        let payload = Payload {
            message: "gnmi.GetRequest".into(),
            octets: request.to_be_bytes().to_vec(),
            cut: false,
        };
        let rpc = Rpc {
            family: ServiceFamily::Gnmi,
            path: "/gnmi.gNMI/Get".into(),
            payload: Some(payload),
            authz,
        };
        let user = User { identity: "rob".into(), ..User::default() };
        let session = Session { user, ..Session::default() };
        accounts.record_read(AccountingEvent { session, activity: Activity::Rpc(rpc) });
    }

    /// The texts of all records up to a command `end`, and their bytes.
    async fn texts_to_the_end(accounts: &AccountingLog) -> (Vec<String>, usize) {
        accounts.record_change(command("end"));
        let mut reader = accounts.read(0);
        let mut texts = Vec::new();
        let mut octets = 0;
        while texts.last().is_none_or(|text| text != "end") {
            let record = reader.next().await.record;
            octets += record.octets();
            texts.push(match &record.account.activity {
                Activity::Command(command) => command.command.as_str().to_owned(),
                Activity::Rpc(rpc) => rpc.authz.detail.as_str().to_owned(),
            });
        }
        (texts, octets)
    }

    // proves 5.98
    #[tokio::test]
    async fn neither_strangers_nor_readers_push_out_what_changed_something() {
        type Attack = fn(&AccountingLog, u32);
        // Attack, number of calls and of their kinds, and the last record after the command of an admin.
        for (attack, calls, kinds, last) in [
            (refuse as Attack, 42_000, 1, "41995 calls like this one within 60 s; Unauthenticated"),
            (refuse, 4200, 4200, "Unauthenticated"),
            (read, 100_000, 1, "99995 calls like this one within 60 s"),
            (read, 4200, 4200, ""),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let accounts = open(folder.path(), MIN_HISTORY);
            accounts.record_change(command("set"));
            for call in 0..calls {
                attack(&accounts, call % kinds);
            }
            assert_eq!(records_after(&accounts, 0, 1).await, [("set".to_owned(), false)]);
            accounts.end(PATIENCE);
            drop(accounts);

            let accounts = open(folder.path(), MIN_HISTORY);
            let (texts, octets) = texts_to_the_end(&accounts).await;
            assert_eq!((texts[0].as_str(), texts[texts.len() - 2].as_str()), ("set", last));
            assert!(octets < MIN_HISTORY, "{octets}");
            accounts.end(PATIENCE);
        }
    }

    // proves 5.95
    #[tokio::test]
    async fn equal_calls_of_a_reader_are_counted_and_changes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let accounts = open(folder.path(), ROOM);
        for call in 0..14 {
            read(&accounts, call % 2);
            accounts.record_change(command("set"));
        }
        accounts.end(PATIENCE);
        drop(accounts);

        let (texts, _) = texts_to_the_end(&open(folder.path(), ROOM)).await;
        let count = |text: &str| texts.iter().filter(|it| *it == text).count();
        assert_eq!((count("set"), count("")), (14, 10), "five of each request by themselves");
        assert_eq!(count("2 calls like this one within 60 s"), 2);
    }

    #[tokio::test]
    async fn a_broken_file_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        drop(Ledger::open(folder.path()).unwrap()); // the folder is ours from here on
        std::fs::write(folder.path().join(ACCOUNTS_NAME), "no database at all").unwrap();
        let accounts = open(folder.path(), ROOM);
        accounts.record_change(command("a"));
        assert_eq!(records_after(&accounts, 0, 1).await, [("a".to_owned(), false)]);
        assert!(folder.path().join("accounts.broken").exists());
    }
}
