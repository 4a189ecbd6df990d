//! Keys whose state is not shown before their commit ends.

use holdfast_scheduler::{Key, sort_keys};

/// Keys of a commit in flight; changes of their state are shown when it ends.
#[derive(Debug, Default)]
pub(super) struct DeferredKeys {
    /// Hundreds of thousands at times, so they are sorted only when the first change is reported.
    keys: Vec<Key>,
    /// For each key, true once a change was reported; empty before the first report.
    reported: Vec<bool>,
}

/// Result of reporting a change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deferral {
    /// The key belongs to no commit in flight.
    None,
    /// The first reported change of a key of the commit.
    First,
    Repeated,
}

impl DeferredKeys {
    pub(super) fn new(keys: Vec<Key>) -> Self {
        Self { keys, reported: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Sorts the keys before the first report. The transports are at work then, so nothing waits for the sorting.
    fn sort(&mut self) {
        if self.reported.is_empty() {
            sort_keys(&mut self.keys);
            self.reported.resize(self.keys.len(), false);
        }
    }

    /// Reports a change of a key, which is deferred if the key belongs to the commit.
    pub(super) fn report(&mut self, key: &Key) -> Deferral {
        self.sort();
        let Ok(at) = self.keys.binary_search(key) else { return Deferral::None };
        let was_reported = std::mem::replace(&mut self.reported[at], true);
        if was_reported { Deferral::Repeated } else { Deferral::First }
    }

    /// Keys without a reported change.
    pub(super) fn unreported(mut self) -> impl Iterator<Item = Key> {
        self.sort();
        let reported = self.keys.into_iter().zip(self.reported);
        reported.filter(|(_, reported)| !reported).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_scheduler::KindId;

    use super::*;

    #[test]
    fn each_key_of_a_commit_is_reported_once() {
        let [one, other, foreign] = [1, 2, 3].map(|kind| Key::of(KindId(kind)));
        let mut deferred = DeferredKeys::new(vec![other.clone(), one.clone()]);
        for (key, deferral) in [
            (&foreign, Deferral::None),
            (&one, Deferral::First),
            (&one, Deferral::Repeated),
            (&foreign, Deferral::None),
        ] {
            assert_eq!(deferred.report(key), deferral, "{key:?}");
        }
        assert!(deferred.unreported().eq([other]));
    }
}
