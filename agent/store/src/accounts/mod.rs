//! Accounting records in memory, for all who write and read them, and in a file of their own.
//!
//! [`AccountingLog`] is shared by the writers. A [`Reader`] is a cursor over the one [`History`]; no writer waits for readers, nor for
//! the disk, which the thread of a [`Ledger`] follows in the same way.

mod ledger;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_security::acctz::{
    AccountingEvent, Activity, CommandKind, Cursor, DeliveredRecord, History, Record,
    RepeatedCallLimiter, RingName, ServiceFamily, SessionStage, User,
};
use smol_str::SmolStr;
use tokio::sync::watch;

pub use self::ledger::{ACCOUNTS_NAME, Ledger};

/// Default size of the history in bytes of memory, and approximately of disk: some four thousand changes with a
/// payload of a few hundred bytes. Calls that read and refused ones have room besides, see [`History::new`].
pub const DEFAULT_HISTORY: usize = 4 << 20;
/// Smallest size, which holds a handful of the largest records.
pub const MIN_HISTORY: usize = 64 << 10;

/// Longest sleep of the disk thread while no calls are counted. A record wakes it, so any duration would do.
const IDLE: Duration = Duration::from_secs(3600);

/// Accounting records of the device; clones share them.
#[derive(Clone, Debug)]
pub struct AccountingLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<LogState>,
    /// Wakes the disk thread, and callers that wait for it.
    changed: Condvar,
    /// Time up to which records may be read; wakes readers.
    readable_tx: watch::Sender<u64>,
    counters: Counters,
}

#[derive(Debug)]
struct LogState {
    history: History,
    /// Counts of equal calls that change nothing.
    reads: RepeatedCallLimiter<ReadKind>,
    /// Counts of refused calls of strangers.
    refused: RepeatedCallLimiter<RefusalKind>,
    /// Keyed at random, so that no caller can make different calls look alike.
    hashes: RandomState,
    /// Time up to which records may be read: that of the last one on disk, as long as the disk works, because a
    /// record that a reader has received must survive a crash.
    readable_ns: u64,
    on_disk: bool,
    ended: bool,
}

/// Kind of refused calls, which are counted together when they are many: one source, one reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RefusalKind {
    pub source: Option<IpAddr>,
    pub reason: &'static str,
    /// Name that was tried, if a password was wrong or abandoned: the authentication layer limits their number. Of a process
    /// of the box, the name of its user.
    pub name: Option<SmolStr>,
}

/// Kind of calls that change nothing, which are counted together when they are many: one caller and source, the same
/// request and result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadKind {
    user: User,
    source: Option<IpAddr>,
    stage: SessionStage,
    /// Hash of the activity, which may hold a request of some thousand bytes.
    activity: u64,
}

/// Counters of this run.
#[derive(Debug, Default)]
struct Counters {
    sources: [AtomicU64; SOURCES.len()],
    requests: AtomicU64,
    responses: AtomicU64,
    truncated: AtomicU64,
}

/// Source of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    Rpc(ServiceFamily),
    Command(CommandKind),
}

/// All kinds of sources.
pub const SOURCES: [SourceKind; 6] = [
    SourceKind::Rpc(ServiceFamily::Other),
    SourceKind::Rpc(ServiceFamily::Gnmi),
    SourceKind::Rpc(ServiceFamily::Gnoi),
    SourceKind::Rpc(ServiceFamily::Gnsi),
    SourceKind::Command(CommandKind::Shell),
    SourceKind::Command(CommandKind::Cli),
];

/// Numbers of RecordSubscribe calls, of records sent, and of records sent with the notice that earlier ones are
/// missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscribeCounts {
    pub requests: u64,
    pub responses: u64,
    pub truncated: u64,
}

impl AccountingLog {
    /// A log in memory only.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::new(LogState {
                readable_ns: history.last_ns(),
                history,
                reads: RepeatedCallLimiter::new(),
                refused: RepeatedCallLimiter::new(),
                hashes: RandomState::new(),
                on_disk: false,
                ended: false,
            }),
            changed: Condvar::new(),
            readable_tx: watch::Sender::new(0),
            counters: Counters::default(),
        }))
    }

    /// Records a call or a command that changes something, or was permitted to. Each has a record of its own.
    pub fn record_change(&self, account: AccountingEvent) {
        let mut state = self.lock();
        let mut records = state.due(now_ns());
        records.push((RingName::Changes, account));
        self.keep(state, records);
    }

    /// Records a call or a command of an identified caller that changes nothing. Many equal ones become a few records and a
    /// count.
    pub fn record_read(&self, account: AccountingEvent) {
        self.count(|state, now_ns| {
            let kind = ReadKind::of(&account, &state.hashes);
            let records = state.reads.add(now_ns, kind, account);
            records.into_iter().map(|it| (RingName::Reads, it)).collect()
        });
    }

    /// Records a refused call of one who has shown no right to anything. Many similar ones become a few records and a count.
    pub fn record_refused(&self, kind: RefusalKind, account: AccountingEvent) {
        self.count(|state, now_ns| {
            let records = state.refused.add(now_ns, kind, account);
            records.into_iter().map(|it| (RingName::Strangers, it)).collect()
        });
    }

    /// Adds a call to one of the counters, and keeps the records that are to be written now.
    fn count(&self, add: impl FnOnce(&mut LogState, u64) -> Vec<(RingName, AccountingEvent)>) {
        let mut state = self.lock();
        let was_counting = state.is_counting();
        let records = add(&mut state, now_ns());
        let begins_to_count = state.is_counting() && !was_counting;
        self.keep(state, records);
        if begins_to_count {
            self.0.changed.notify_all();
        }
    }

    fn keep(
        &self,
        mut state: MutexGuard<'_, LogState>,
        records: impl IntoIterator<Item = (RingName, AccountingEvent)>,
    ) {
        let before_ns = state.history.last_ns();
        for (ring, account) in records {
            let source = SourceKind::of(&account.activity);
            if let Some(place) = SOURCES.iter().position(|it| *it == source) {
                self.0.counters.sources[place].fetch_add(1, Ordering::Relaxed);
            }
            state.history.push(now_ns(), ring, account);
        }
        if state.history.last_ns() == before_ns {
            return;
        }
        if !state.on_disk {
            self.make_readable(&mut state);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Reads all records strictly after a time (nanoseconds since 1970; 0 for all), and then new ones. Calls that are
    /// being counted follow at the end of their window.
    pub fn read(&self, after_ns: u64) -> Reader {
        self.0.counters.requests.fetch_add(1, Ordering::Relaxed);
        let readable_rx = self.0.readable_tx.subscribe();
        let cursor = self.lock().history.cursor(after_ns);
        Reader { accounts: self.clone(), cursor, readable_rx }
    }

    /// Number of records from a kind of source in this run.
    pub fn recorded(&self, source: SourceKind) -> u64 {
        let place = SOURCES.iter().position(|it| *it == source);
        place.map_or(0, |place| self.0.counters.sources[place].load(Ordering::Relaxed))
    }

    /// Number of readers at present.
    pub fn readers(&self) -> usize {
        self.0.readable_tx.receiver_count()
    }

    pub fn subscribe_counts(&self) -> SubscribeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { requests, responses, truncated, sources: _ } = &self.0.counters;
        SubscribeCounts {
            requests: read(requests),
            responses: read(responses),
            truncated: read(truncated),
        }
    }

    /// Waits until all records are on disk, or the time is over. Later records are dropped.
    pub fn end(&self, within: Duration) {
        let mut state = self.lock();
        let counted = state.counted();
        self.keep(state, counted);
        let mut state = self.lock();
        state.ended = true;
        self.0.changed.notify_all();
        let waiting = |state: &mut LogState| state.readable_ns < state.history.last_ns();
        // The caller goes on in either case.
        let _ = self.0.changed.wait_timeout_while(state, within, waiting);
    }

    /// Makes all records so far readable.
    fn make_readable(&self, state: &mut LogState) {
        state.readable_ns = state.history.last_ns();
        self.0.readable_tx.send_replace(state.readable_ns);
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Interface for the thread that writes to disk.
impl AccountingLog {
    /// A cursor for new records. From here on, records become readable once they are on disk.
    pub fn follow(&self) -> Cursor {
        let mut state = self.lock();
        state.on_disk = true;
        state.history.tail()
    }

    /// Waits for records after the cursor, and returns at most `max` of them; `None` at the end. Closes due
    /// counting windows meanwhile.
    pub fn wait(&self, cursor: &mut Cursor, max: usize) -> Option<Batch> {
        let state = loop {
            let state = self.lock();
            let counting = state.is_counting();
            let due = state.due_in_ns(now_ns()).map_or(IDLE, Duration::from_nanos);
            let waiting = |state: &mut LogState| {
                let idle = !state.ended && state.history.behind(cursor) == 0;
                idle && state.is_counting() == counting
            };
            let waited = self.0.changed.wait_timeout_while(state, due, waiting);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.ended || state.history.behind(cursor) > 0 {
                break state;
            }
            let counted = state.due(now_ns());
            self.keep(state, counted);
        };
        let history = &state.history;
        let next = || history.next(cursor, u64::MAX);
        let records: Vec<_> =
            std::iter::from_fn(next).take(max).map(|it| (it.ring, it.record)).collect();
        let up_to_ns = records.last()?.1.time_ns;
        Some(Batch {
            records,
            complete_after_ns: history.complete_after_ns(),
            oldest_ns: RingName::ALL.map(|ring| (ring, history.oldest_ns(ring))),
            up_to_ns,
        })
    }

    /// Sleeps; false when no more records are to be stored.
    pub fn pause(&self, pause: Duration) -> bool {
        let ended = self.0.changed.wait_timeout_while(self.lock(), pause, |state| !state.ended);
        !ended.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// Called when a batch is on disk.
    pub fn batch_written(&self, batch: &Batch) {
        let mut state = self.lock();
        state.on_disk = true;
        state.readable_ns = state.readable_ns.max(batch.up_to_ns);
        self.0.readable_tx.send_replace(state.readable_ns);
        self.0.changed.notify_all();
    }

    /// Called when the disk refuses a batch: readers do not wait for the disk until it works again.
    pub fn batch_refused(&self) {
        let mut state = self.lock();
        state.on_disk = false;
        self.make_readable(&mut state);
    }
}

/// Records for the disk.
#[derive(Debug)]
pub struct Batch {
    pub records: Vec<(RingName, Arc<Record>)>,
    /// Lower bound of the complete range: every record after this time is in the history.
    pub complete_after_ns: u64,
    /// Times of the oldest records in the history, by ring.
    pub oldest_ns: [(RingName, Option<u64>); RingName::ALL.len()],
    /// Time of the last record of the batch.
    up_to_ns: u64,
}

/// A subscriber to records.
#[derive(Debug)]
pub struct Reader {
    accounts: AccountingLog,
    cursor: Cursor,
    readable_rx: watch::Receiver<u64>,
}

impl Reader {
    /// Waits for the next record.
    pub async fn next(&mut self) -> DeliveredRecord {
        loop {
            self.readable_rx.borrow_and_update();
            if let Some(delivered) = self.accounts.lock().next(&mut self.cursor) {
                return delivered;
            }
            // The sender cannot be dropped, because we hold the accounts.
            let _ = self.readable_rx.changed().await;
        }
    }

    /// Counts a record that was sent.
    pub fn sent(&self, delivered: &DeliveredRecord) {
        let counters = &self.accounts.0.counters;
        counters.responses.fetch_add(1, Ordering::Relaxed);
        counters.truncated.fetch_add(u64::from(delivered.truncated), Ordering::Relaxed);
    }
}

impl ReadKind {
    fn of(account: &AccountingEvent, hashes: &RandomState) -> Self {
        let AccountingEvent { session, activity } = account;
        Self {
            user: session.user.clone(),
            source: session.transport.map(|(_, peer)| peer.ip()),
            stage: session.stage,
            activity: hashes.hash_one(activity),
        }
    }
}

impl LogState {
    /// Records of the counted calls whose time is over.
    fn due(&mut self, now_ns: u64) -> Vec<(RingName, AccountingEvent)> {
        Self::in_rings(self.reads.due(now_ns), self.refused.due(now_ns))
    }

    /// Records of all counted calls.
    fn counted(&mut self) -> Vec<(RingName, AccountingEvent)> {
        Self::in_rings(self.reads.all(), self.refused.all())
    }

    fn in_rings(
        reads: Vec<AccountingEvent>,
        refused: Vec<AccountingEvent>,
    ) -> Vec<(RingName, AccountingEvent)> {
        let reads = reads.into_iter().map(|it| (RingName::Reads, it));
        reads.chain(refused.into_iter().map(|it| (RingName::Strangers, it))).collect()
    }

    fn is_counting(&self) -> bool {
        self.reads.is_counting() || self.refused.is_counting()
    }

    fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let due = [self.reads.due_in_ns(now_ns), self.refused.due_in_ns(now_ns)];
        due.into_iter().flatten().min()
    }

    fn next(&self, cursor: &mut Cursor) -> Option<DeliveredRecord> {
        self.history.next(cursor, self.readable_ns)
    }
}

impl SourceKind {
    fn of(activity: &Activity) -> Self {
        match activity {
            Activity::Rpc(rpc) => Self::Rpc(rpc.family),
            Activity::Command(command) => Self::Command(command.kind),
        }
    }
}
