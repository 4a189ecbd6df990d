//! Accounting at run time: every call and every command becomes a record that all who ask can read.
//!
//! [`Accounts`] is shared by those who write: [`Layer`], in front of all services of the listener and of their
//! authentication, and the local socket. Readers are cursors over the one [`History`]; nobody waits for them, nor for
//! the disk, which a thread of its own follows in the same way.

mod call;
mod layer;
mod leaves;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_security::acctz::{
    Account, Authn, AuthnKind, AuthnOutcome, CommandKind, Cursor, Deed, Family, History, Record,
    Repeats, RingName, Told, User,
};
use smol_str::SmolStr;
use tokio::sync::watch;

pub(crate) use self::call::Login;
pub use self::layer::{Accounted, Layer};
pub(crate) use self::leaves::Counted;
use crate::auth::Refusal;
use crate::caller::{Caller, Source};
use holdfast_telemetry::view::now_ns;

/// Octets of memory, and nearly of disk, that records take unless told otherwise: some four thousand calls with a
/// payload of a few hundred octets.
pub const DEFAULT_HISTORY: usize = 4 << 20;
/// Less would not hold a handful of the largest records.
pub const MIN_HISTORY: usize = 64 << 10;

/// How long the thread of the disk sleeps where nothing is being counted: a record wakes it, so any length would do.
const IDLE: Duration = Duration::from_secs(3600);

/// The accounts of the device; clones share them.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inside: Mutex<Inside>,
    /// Wakes who writes to disk, and who waits for that.
    changed: Condvar,
    /// The time up to which records may be read: wakes those who read.
    readable_tx: watch::Sender<u64>,
    counters: Counters,
}

#[derive(Debug)]
struct Inside {
    history: History,
    /// Refused calls of strangers.
    repeats: Repeats<Refused>,
    /// Records up to this time may be read. What somebody was told must not be gone after a crash, so that is what is on
    /// disk, while there is one that works.
    readable_ns: u64,
    on_disk: bool,
    ended: bool,
}

/// Refused calls that are alike, and counted together when there are many: of one source, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refused {
    pub(crate) source: Option<IpAddr>,
    pub(crate) reason: &'static str,
    /// The name that was tried, where a password was wrong or given up: [`crate::auth`] limits how many there can be.
    pub(crate) name: Option<SmolStr>,
}

/// What was counted in this run.
#[derive(Debug, Default)]
struct Counters {
    sources: [AtomicU64; SOURCES.len()],
    requests: AtomicU64,
    responses: AtomicU64,
    truncated: AtomicU64,
}

/// Where records come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    Rpc(Family),
    Command(CommandKind),
}

/// Every kind of source.
pub const SOURCES: [SourceKind; 6] = [
    SourceKind::Rpc(Family::Other),
    SourceKind::Rpc(Family::Gnmi),
    SourceKind::Rpc(Family::Gnoi),
    SourceKind::Rpc(Family::Gnsi),
    SourceKind::Command(CommandKind::Shell),
    SourceKind::Command(CommandKind::Cli),
];

/// Counts of calls of RecordSubscribe, of records sent, and of records sent with the word that some before are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    pub requests: u64,
    pub responses: u64,
    pub truncated: u64,
}

impl Accounts {
    /// Accounts in memory alone.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Shared {
            inside: Mutex::new(Inside {
                readable_ns: history.last_ns(),
                history,
                repeats: Repeats::new(),
                on_disk: false,
                ended: false,
            }),
            changed: Condvar::new(),
            readable_tx: watch::Sender::new(0),
            counters: Counters::default(),
        }))
    }

    /// Takes down what was done, now.
    pub fn record(&self, account: Account) {
        let mut inside = self.inside();
        let due = inside.repeats.due(now_ns());
        self.keep(inside, due.into_iter().chain([account]));
    }

    /// Takes down a call that was refused because nobody was identified; of many that are alike, some and their count.
    pub(crate) fn record_refused(&self, kind: Refused, account: Account) {
        let mut inside = self.inside();
        let was_counting = inside.repeats.is_counting();
        let records = inside.repeats.add(now_ns(), kind, account);
        let begins_to_count = inside.repeats.is_counting() && !was_counting;
        self.keep(inside, records);
        if begins_to_count {
            self.0.changed.notify_all();
        }
    }

    fn keep(&self, mut inside: MutexGuard<'_, Inside>, records: impl IntoIterator<Item = Account>) {
        let before_ns = inside.history.last_ns();
        for account in records {
            let source = SourceKind::of(&account.deed);
            if let Some(place) = SOURCES.iter().position(|it| *it == source) {
                self.0.counters.sources[place].fetch_add(1, Ordering::Relaxed);
            }
            inside.history.push(now_ns(), account);
        }
        if inside.history.last_ns() == before_ns {
            return;
        }
        if !inside.on_disk {
            self.make_readable(&mut inside);
        }
        drop(inside);
        self.0.changed.notify_all();
    }

    /// Reads all records strictly after a time (nanoseconds since 1970; 0 is all there are), and then those to come.
    /// Refused calls that are still being counted come when that is done.
    pub fn read(&self, after_ns: u64) -> Reader {
        self.0.counters.requests.fetch_add(1, Ordering::Relaxed);
        let readable_rx = self.0.readable_tx.subscribe();
        let cursor = self.inside().history.cursor(after_ns);
        Reader { accounts: self.clone(), cursor, readable_rx }
    }

    /// How many records came from a kind of source in this run.
    pub fn recorded(&self, source: SourceKind) -> u64 {
        let place = SOURCES.iter().position(|it| *it == source);
        place.map_or(0, |place| self.0.counters.sources[place].load(Ordering::Relaxed))
    }

    /// How many read at this moment.
    pub fn readers(&self) -> usize {
        self.0.readable_tx.receiver_count()
    }

    pub fn served(&self) -> Served {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { requests, responses, truncated, sources: _ } = &self.0.counters;
        Served { requests: read(requests), responses: read(responses), truncated: read(truncated) }
    }

    /// Waits until everything so far is on disk, or the time is over; then nothing more is kept.
    pub fn end(&self, within: Duration) {
        let mut inside = self.inside();
        let counted = inside.repeats.all();
        self.keep(inside, counted);
        let mut inside = self.inside();
        inside.ended = true;
        self.0.changed.notify_all();
        let waiting = |inside: &mut Inside| inside.readable_ns < inside.history.last_ns();
        // Whether it was in time makes no difference to who goes on.
        let _ = self.0.changed.wait_timeout_while(inside, within, waiting);
    }

    /// Everything up to here.
    fn make_readable(&self, inside: &mut Inside) {
        inside.readable_ns = inside.history.last_ns();
        self.0.readable_tx.send_replace(inside.readable_ns);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For the thread that writes to disk.
impl Accounts {
    /// A cursor for what comes from here on; from here on records are readable when they are kept.
    pub(crate) fn follow(&self) -> Cursor {
        let mut inside = self.inside();
        inside.on_disk = true;
        inside.history.tail()
    }

    /// Waits for records after the cursor, and takes at most `max` of them; nothing when no more will come. Takes down
    /// meanwhile what was counted, when its time has come.
    pub(crate) fn wait(&self, cursor: &mut Cursor, max: usize) -> Option<Batch> {
        let inside = loop {
            let inside = self.inside();
            let counting = inside.repeats.is_counting();
            let due = inside.repeats.due_in_ns(now_ns()).map_or(IDLE, Duration::from_nanos);
            let waiting = |inside: &mut Inside| {
                let idle = !inside.ended && inside.history.behind(cursor) == 0;
                idle && inside.repeats.is_counting() == counting
            };
            let waited = self.0.changed.wait_timeout_while(inside, due, waiting);
            let (mut inside, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if inside.ended || inside.history.behind(cursor) > 0 {
                break inside;
            }
            let counted = inside.repeats.due(now_ns());
            self.keep(inside, counted);
        };
        let history = &inside.history;
        let next = || history.next(cursor, u64::MAX);
        let records: Vec<_> = std::iter::from_fn(next).take(max).map(|told| told.record).collect();
        let up_to_ns = records.last()?.time_ns;
        Some(Batch {
            records,
            complete_after_ns: history.complete_after_ns(),
            oldest_known_ns: history.oldest_ns(RingName::Known),
            oldest_stranger_ns: history.oldest_ns(RingName::Strangers),
            up_to_ns,
        })
    }

    /// Waits for a time; false when nothing more is to be kept.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let ended = self.0.changed.wait_timeout_while(self.inside(), pause, |inside| !inside.ended);
        !ended.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// A batch is on disk.
    pub(crate) fn kept(&self, batch: &Batch) {
        let mut inside = self.inside();
        inside.on_disk = true;
        inside.readable_ns = inside.readable_ns.max(batch.up_to_ns);
        self.0.readable_tx.send_replace(inside.readable_ns);
        self.0.changed.notify_all();
    }

    /// The disk does not take a batch: until it does, nobody waits for it.
    pub(crate) fn not_kept(&self) {
        let mut inside = self.inside();
        inside.on_disk = false;
        self.make_readable(&mut inside);
    }
}

/// Records for the disk.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) records: Vec<Arc<Record>>,
    /// Every record after this time is in the history.
    pub(crate) complete_after_ns: u64,
    /// The times of the first records that are there, of callers and of refused strangers.
    pub(crate) oldest_known_ns: Option<u64>,
    pub(crate) oldest_stranger_ns: Option<u64>,
    /// The time of the last of these.
    up_to_ns: u64,
}

/// Somebody who reads records as they come.
#[derive(Debug)]
pub struct Reader {
    accounts: Accounts,
    cursor: Cursor,
    readable_rx: watch::Receiver<u64>,
}

impl Reader {
    /// The next record, when there is one.
    pub async fn next(&mut self) -> Told {
        loop {
            self.readable_rx.borrow_and_update();
            if let Some(told) = self.accounts.inside().next(&mut self.cursor) {
                return told;
            }
            // The sender lives as long as the accounts, which are ours.
            let _ = self.readable_rx.changed().await;
        }
    }

    /// A record was sent.
    pub fn sent(&self, told: &Told) {
        let counters = &self.accounts.0.counters;
        counters.responses.fetch_add(1, Ordering::Relaxed);
        counters.truncated.fetch_add(u64::from(told.truncated), Ordering::Relaxed);
    }
}

impl Inside {
    fn next(&self, cursor: &mut Cursor) -> Option<Told> {
        self.history.next(cursor, self.readable_ns)
    }
}

impl SourceKind {
    fn of(deed: &Deed) -> Self {
        match deed {
            Deed::Rpc(rpc) => Self::Rpc(rpc.family),
            Deed::Command(command) => Self::Command(command.kind),
        }
    }
}

/// Whoever was let in, as a record names them.
pub(crate) fn user(caller: &Caller) -> User {
    User {
        identity: caller.name.as_str().into(),
        role: caller.role.as_str().into(),
        ..User::default()
    }
}

/// How they were let in.
pub(crate) fn authn(caller: &Caller) -> Authn {
    let (kind, cause) = match caller.source {
        Source::Password => (AuthnKind::Password, "".into()),
        Source::NamedByCertificateHolder | Source::Certificate => {
            (AuthnKind::TlsCertificate, "".into())
        }
        Source::Local { uid } => (AuthnKind::None, format!("uid {uid}").into()),
    };
    Authn { kind, outcome: AuthnOutcome::Success, cause }
}

/// Why they were not.
fn refused(refusal: &Refusal) -> Authn {
    let kind = match refusal {
        Refusal::WrongPassword
        | Refusal::BackOff { .. }
        | Refusal::Busy
        | Refusal::PasswordReplaced => AuthnKind::Password,
        Refusal::NamelessCertificate | Refusal::OtherName(_) | Refusal::Certificate(_) => {
            AuthnKind::TlsCertificate
        }
        Refusal::NoCredentials | Refusal::NameAlone | Refusal::Malformed(_) => AuthnKind::None,
    };
    let outcome = match refusal {
        Refusal::Busy => AuthnOutcome::Error,
        _ => AuthnOutcome::Fail,
    };
    Authn { kind, outcome, cause: refusal.to_string().into() }
}

/// Of a password whose answer nobody waited for: it counts as failed, whatever it was.
fn given_up() -> Authn {
    let cause = "the call was given up before the login was answered".into();
    Authn { kind: AuthnKind::Password, outcome: AuthnOutcome::Fail, cause }
}
