//! Accounting at run time: every call and every command becomes a record that all who ask can read.
//!
//! [`Accounts`] is shared by those who write: [`Layer`], in front of all services of the listener and of their
//! authentication, and the local socket. Readers are cursors over the one [`History`]; nobody waits for them, nor for
//! the disk, which a thread of its own follows in the same way.

mod call;
mod layer;
mod leaves;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_security::acctz::{
    Account, Authn, AuthnKind, AuthnOutcome, CommandKind, Cursor, Deed, Family, History, Record,
    Told, User,
};
use tokio::sync::watch;

pub(crate) use self::call::Login;
pub use self::layer::{Accounted, Layer};
pub(crate) use self::leaves::Counted;
use crate::auth::Refusal;
use crate::caller::{Caller, Source};
use crate::telemetry::view::now_ns;

/// Octets of memory, and nearly of disk, that records take unless told otherwise: some four thousand calls with a
/// payload of a few hundred octets.
pub const DEFAULT_HISTORY: usize = 4 << 20;
/// Less would not hold a handful of the largest records.
pub const MIN_HISTORY: usize = 64 << 10;

/// The accounts of the device; clones share them.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inside: Mutex<Inside>,
    /// Wakes who writes to disk, and who waits for that.
    changed: Condvar,
    /// How many records of this run may be read: wakes those who read.
    readable_tx: watch::Sender<u64>,
    counters: Counters,
}

#[derive(Debug)]
struct Inside {
    history: History,
    /// Records of this run.
    pushed: u64,
    /// Of those, these may be read. What somebody was told must not be gone after a crash, so that is what is on
    /// disk, while there is one that works.
    readable: u64,
    on_disk: bool,
    ended: bool,
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
                history,
                pushed: 0,
                readable: 0,
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
        let source = SourceKind::of(&account.deed);
        if let Some(place) = SOURCES.iter().position(|it| *it == source) {
            self.0.counters.sources[place].fetch_add(1, Ordering::Relaxed);
        }
        let mut inside = self.inside();
        inside.history.push(now_ns(), account);
        inside.pushed += 1;
        if !inside.on_disk {
            self.make_readable(&mut inside);
        }
        drop(inside);
        self.0.changed.notify_all();
    }

    /// Reads all records strictly after a time (nanoseconds since 1970; 0 is all there are), and then those to come.
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
        inside.ended = true;
        self.0.changed.notify_all();
        let waiting = |inside: &mut Inside| inside.readable < inside.pushed;
        // Whether it was in time makes no difference to who goes on.
        let _ = self.0.changed.wait_timeout_while(inside, within, waiting);
    }

    /// Everything up to here.
    fn make_readable(&self, inside: &mut Inside) {
        inside.readable = inside.pushed;
        self.0.readable_tx.send_replace(inside.readable);
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

    /// Waits for records after the cursor, and takes at most `max` of them; nothing when no more will come.
    pub(crate) fn wait(&self, cursor: &mut Cursor, max: usize) -> Option<Batch> {
        let waiting = |inside: &mut Inside| !inside.ended && inside.history.behind(cursor) == 0;
        let waited = self.0.changed.wait_while(self.inside(), waiting);
        let inside = waited.unwrap_or_else(PoisonError::into_inner);
        let history = &inside.history;
        let records: Vec<_> =
            std::iter::from_fn(|| history.next(cursor)).take(max).map(|told| told.record).collect();
        let up_to = inside.pushed - history.behind(cursor);
        let complete_after_ns = history.complete_after_ns();
        let oldest_ns = history.oldest_ns()?;
        (!records.is_empty()).then_some(Batch { records, complete_after_ns, oldest_ns, up_to })
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
        inside.readable = inside.readable.max(batch.up_to);
        self.0.readable_tx.send_replace(inside.readable);
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
    /// The time of the first record that is there.
    pub(crate) oldest_ns: u64,
    /// How many records of this run there are up to the last of these.
    up_to: u64,
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
        let unreadable = self.pushed - self.readable;
        if self.history.behind(cursor) <= unreadable { None } else { self.history.next(cursor) }
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
