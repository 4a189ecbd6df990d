//! Counters of what clients of the network were refused: Sets and logins, since the agent began.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Code;

/// The counters. There are as many as there are codes of gRPC, and kinds of refusals of a login.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounters {
    sets: Mutex<BTreeMap<i32, u64>>,
    logins: Mutex<BTreeMap<&'static str, u64>>,
}

impl RefusalCounters {
    /// Counts a Set that has ended with this code. A Set that was carried out is not a refusal.
    pub(crate) fn count_set(&self, code: Code) {
        if code != Code::Ok {
            *locked(&self.sets).entry(code.into()).or_default() += 1;
        }
    }

    /// Counts a failed login by the kind of its refusal; there are a few kinds.
    pub(crate) fn count_login(&self, kind: &'static str) {
        *locked(&self.logins).entry(kind).or_default() += 1;
    }

    /// Refused Sets, by the name of their code.
    pub(crate) fn sets(&self) -> Vec<(String, u64)> {
        let name = |code: i32| {
            let code = Code::from_i32(code);
            format!("{code:?}")
        };
        locked(&self.sets).iter().map(|(code, count)| (name(*code), *count)).collect()
    }

    /// Failed logins, by the kind of their refusal.
    pub(crate) fn logins(&self) -> Vec<(&'static str, u64)> {
        locked(&self.logins).iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}

fn locked<T>(counters: &Mutex<T>) -> MutexGuard<'_, T> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_their_kind() {
        let counters = RefusalCounters::default();
        for code in [Code::Ok, Code::Unauthenticated, Code::InvalidArgument, Code::InvalidArgument]
        {
            counters.count_set(code);
        }
        let sets = [("InvalidArgument".to_owned(), 2), ("Unauthenticated".to_owned(), 1)];
        assert_eq!(counters.sets(), sets);
        for kind in ["wrong password", "busy", "wrong password"] {
            counters.count_login(kind);
        }
        assert_eq!(counters.logins(), [("busy", 1), ("wrong password", 2)]);
    }
}
