//! Keys whose state is not shown before their commit ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_scheduler::Key;
use holdfast_store::Ticket;

/// Deferred keys of the commits in flight.
#[derive(Debug, Default)]
pub(crate) struct Deferrals(BTreeMap<Ticket, DeferredKeys>);

impl Deferrals {
    /// Defers the state of the keys of a commit, ascending, until it ends.
    pub(super) fn begin(&mut self, ticket: Ticket, keys: Arc<Vec<Key>>) {
        self.0.insert(ticket, DeferredKeys { keys, changed: Vec::new() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports a change of a key; false if it belongs to no commit in flight.
    pub(super) fn report(&mut self, key: &Key) -> bool {
        let mut is_deferred = false;
        for deferred in self.0.values_mut() {
            is_deferred |= deferred.report(key);
        }
        is_deferred
    }

    /// All keys of a commit, which stay deferred. Only later changes of them are left to be shown.
    pub(super) fn take_all(&mut self, ticket: Ticket) -> Arc<Vec<Key>> {
        let Some(deferred) = self.0.get_mut(&ticket) else { return Arc::default() };
        deferred.changed.clear();
        Arc::clone(&deferred.keys)
    }

    /// Ends a deferral. Returns the keys that have changed, some of them several times.
    pub(super) fn end(&mut self, ticket: Ticket) -> Vec<Key> {
        self.0.remove(&ticket).map(|deferred| deferred.changed).unwrap_or_default()
    }
}

/// Keys of one commit.
#[derive(Debug)]
struct DeferredKeys {
    /// Ascending. Hundreds of thousands at times, which the thread that plans has sorted.
    keys: Arc<Vec<Key>>,
    /// Keys with a reported change.
    changed: Vec<Key>,
}

impl DeferredKeys {
    fn report(&mut self, key: &Key) -> bool {
        let is_deferred = self.keys.binary_search(key).is_ok();
        self.changed.extend(is_deferred.then(|| key.clone()));
        is_deferred
    }
}

#[cfg(test)]
mod tests {
    use holdfast_scheduler::KindId;
    use holdfast_store::Store;

    use super::*;

    #[test]
    fn changes_of_a_key_are_kept_for_the_commits_that_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(folder.path()).unwrap();
        let [first, second] = [store.new_ticket(), store.new_ticket()];
        let [one, both, other, foreign] = [1, 2, 3, 4].map(|kind| Key::of(KindId(kind)));
        let mut deferrals = Deferrals::default();
        assert!(!deferrals.report(&one));
        deferrals.begin(first, Arc::new(vec![one.clone(), both.clone()]));
        deferrals.begin(second, Arc::new(vec![both.clone(), other.clone()]));
        for (key, is_deferred) in [(&foreign, false), (&one, true), (&both, true), (&other, true)] {
            assert_eq!(deferrals.report(key), is_deferred, "{key:?}");
        }
        assert_eq!(*deferrals.take_all(first), [one.clone(), both.clone()]);
        assert!(deferrals.report(&one));
        assert_eq!(deferrals.end(first), std::slice::from_ref(&one));
        assert!(!deferrals.report(&one));
        assert_eq!(deferrals.end(second), [both, other]);
        assert!(deferrals.is_empty());
    }
}
