//! Rate limit for records of calls: the first calls of a kind are recorded one by one, the others are counted.

use std::collections::HashMap;
use std::hash::Hash;

use super::record::{AccountingEvent, Activity};

/// Time from the first call of a kind to the record that says how many followed.
const WINDOW_NS: u64 = 60 * 1_000_000_000;
/// Calls of one kind that are recorded one by one within a window: about as many as an honest mistake makes.
const SINGLE: u64 = 5;
/// Kinds that are counted at one time. Beyond it, the window that began first is closed early.
const MAX_KINDS: usize = 1024;

/// Counter of calls by kind. The key holds whatever distinguishes two kinds, such as source and reason of a refusal.
#[derive(Debug)]
pub struct RepeatedCallLimiter<K> {
    windows: HashMap<K, Window>,
}

#[derive(Debug)]
struct Window {
    began_ns: u64,
    calls: u64,
    /// The last call that was counted, which supplies the record for all of them.
    last: Option<AccountingEvent>,
}

impl<K: Clone + Eq + Hash> RepeatedCallLimiter<K> {
    pub fn new() -> Self {
        Self { windows: HashMap::new() }
    }

    /// Counts a call. Returns the records to write now: those that are due, then the call's own unless it
    /// is only counted.
    pub fn add(&mut self, now_ns: u64, key: K, account: AccountingEvent) -> Vec<AccountingEvent> {
        let mut records = self.due(now_ns);
        if self.windows.len() >= MAX_KINDS && !self.windows.contains_key(&key) {
            let first = self.windows.iter().min_by_key(|(_, window)| window.began_ns);
            let first = first.map(|(key, _)| key.clone());
            records.extend(first.and_then(|key| self.windows.remove(&key)).and_then(Window::close));
        }
        let new = Window { began_ns: now_ns, calls: 0, last: None };
        let window = self.windows.entry(key).or_insert(new);
        window.calls += 1;
        match window.calls {
            ..=SINGLE => records.push(account),
            _ => window.last = Some(account),
        }
        records
    }

    /// Closes the windows that have ended and returns their records.
    pub fn due(&mut self, now_ns: u64) -> Vec<AccountingEvent> {
        // A clock that was set back ends every window.
        let is_over = |window: &Window| now_ns.wrapping_sub(window.began_ns) >= WINDOW_NS;
        if !self.windows.values().any(is_over) {
            return Vec::new();
        }
        self.close(is_over)
    }

    /// Closes all windows and returns their records.
    pub fn all(&mut self) -> Vec<AccountingEvent> {
        self.close(|_| true)
    }

    fn close(&mut self, which: impl Fn(&Window) -> bool) -> Vec<AccountingEvent> {
        let mut closed: Vec<_> =
            self.windows.extract_if(|_, window| which(window)).map(|(_, window)| window).collect();
        closed.sort_by_key(|window| window.began_ns);
        closed.into_iter().filter_map(Window::close).collect()
    }

    /// True while some counted call is not yet covered by a record.
    pub fn is_counting(&self) -> bool {
        self.windows.values().any(|window| window.last.is_some())
    }

    /// Time until the next record is due. Unit: nanoseconds. `None` when no call is being counted.
    pub fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        let counting = self.windows.values().filter(|window| window.last.is_some());
        let first = counting.map(|window| window.began_ns).min()?;
        Some(first.saturating_add(WINDOW_NS).saturating_sub(now_ns))
    }
}

impl<K: Clone + Eq + Hash> Default for RepeatedCallLimiter<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl Window {
    /// Turns the last counted call into the record for all of them, with their number.
    fn close(self) -> Option<AccountingEvent> {
        let mut account = self.last?;
        let counted = self.calls - SINGLE;
        let seconds = WINDOW_NS / 1_000_000_000;
        account.session.channel = Default::default(); // the calls came over several connections
        let authz = match &mut account.activity {
            Activity::Rpc(rpc) => &mut rpc.authz,
            Activity::Command(command) => &mut command.authz,
        };
        let mut repeated = format!("{counted} calls like this one within {seconds} s");
        if !authz.detail.as_str().is_empty() {
            repeated = format!("{repeated}; {}", authz.detail.as_str());
        }
        authz.detail = repeated.into();
        Some(account)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Authz, AuthzOutcome, Rpc, ServiceFamily, Session};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn call(path: &str) -> AccountingEvent {
        let authz = Authz { outcome: AuthzOutcome::Deny, detail: "no".into() };
        let rpc = Rpc { family: ServiceFamily::Gnmi, path: path.into(), payload: None, authz };
        AccountingEvent {
            session: Session { channel: "7".into(), ..Session::default() },
            activity: Activity::Rpc(rpc),
        }
    }

    fn text(account: &AccountingEvent) -> String {
        let Activity::Rpc(rpc) = &account.activity else { unreachable!() };
        format!("{}: {}", rpc.path.as_str(), rpc.authz.detail.as_str())
    }

    fn texts(accounts: &[AccountingEvent]) -> Vec<String> {
        accounts.iter().map(text).collect()
    }

    #[test]
    fn repeated_calls_become_one_record() {
        let mut repeats = RepeatedCallLimiter::new();
        for _ in 0..SINGLE {
            assert_eq!(texts(&repeats.add(SECOND, "a", call("/a"))), ["/a: no"]);
        }
        assert_eq!(repeats.due_in_ns(SECOND), None);
        for number in 0..42_000 {
            assert_eq!(repeats.add(2 * SECOND, "a", call(&format!("/{number}"))), []);
        }
        assert_eq!(texts(&repeats.add(2 * SECOND, "b", call("/b"))), ["/b: no"], "another kind");
        assert_eq!(repeats.due_in_ns(11 * SECOND), Some(50 * SECOND));
        assert_eq!(repeats.due(60 * SECOND), []);
        let counted = repeats.due(61 * SECOND);
        assert_eq!(texts(&counted), ["/41999: 42000 calls like this one within 60 s; no"]);
        assert_eq!(counted[0].session.channel.as_str(), "");
        assert_eq!(repeats.due(61 * SECOND), []);
        assert_eq!(texts(&repeats.add(61 * SECOND, "a", call("/a"))), ["/a: no"], "a new window");
    }

    #[test]
    fn counted_calls_are_recorded_when_a_window_closes() {
        let mut repeats = RepeatedCallLimiter::new();
        for _ in 0..=SINGLE {
            repeats.add(SECOND, 0, call("/first"));
        }
        for kind in 1..MAX_KINDS {
            repeats.add(2 * SECOND, kind, call("/x"));
        }
        let added = texts(&repeats.add(3 * SECOND, MAX_KINDS, call("/new")));
        assert_eq!(added, ["/first: 1 calls like this one within 60 s; no", "/new: no"]);
        assert_eq!(repeats.windows.len(), MAX_KINDS);
        for _ in 0..SINGLE {
            repeats.add(3 * SECOND, MAX_KINDS, call("/last"));
        }
        assert_eq!(texts(&repeats.all()), ["/last: 1 calls like this one within 60 s; no"]);
        assert!(repeats.windows.is_empty());
    }
}
