//! Counters of what clients of the network were refused: Sets and logins, since the agent began.

use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Code;

use crate::auth::LoginRefusal;

/// Codes of gRPC, which are the whole numbers from 0.
const CODES: usize = 17;

/// The counters. A call counts at most once in each.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounters {
    sets: [AtomicU64; CODES],
    logins: [AtomicU64; LoginRefusal::WORDS.len()],
}

impl RefusalCounters {
    /// Counts a Set that has ended with this code. One that was carried out is no refusal.
    pub(crate) fn count_set(&self, code: Code) {
        let counter = usize::try_from(i32::from(code)).ok().and_then(|at| self.sets.get(at));
        if let Some(counter) = counter.filter(|_| code != Code::Ok) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_login(&self, refusal: &LoginRefusal) {
        let at = LoginRefusal::WORDS.iter().position(|word| *word == refusal.word());
        if let Some(counter) = at.and_then(|at| self.logins.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Refused Sets, by the name of their code. Codes that never came are left out.
    pub(crate) fn sets(&self) -> Vec<(String, u64)> {
        let counts = (0..).zip(&self.sets).map(|(code, count)| {
            (format!("{:?}", Code::from_i32(code)), count.load(Ordering::Relaxed))
        });
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Failed logins, by the word of their refusal.
    pub(crate) fn logins(&self) -> Vec<(&'static str, u64)> {
        let counts = LoginRefusal::WORDS.into_iter().zip(&self.logins);
        counts.map(|(word, count)| (word, count.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_their_kind() {
        let counters = RefusalCounters::default();
        for code in [Code::Ok, Code::InvalidArgument, Code::Unauthenticated, Code::InvalidArgument]
        {
            counters.count_set(code);
        }
        let sets = [("InvalidArgument".to_owned(), 2), ("Unauthenticated".to_owned(), 1)];
        assert_eq!(counters.sets(), sets);
        for refusal in
            [LoginRefusal::WrongPassword, LoginRefusal::Busy, LoginRefusal::WrongPassword]
        {
            counters.count_login(&refusal);
        }
        let counted: Vec<_> =
            counters.logins().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("wrong password", 2), ("busy", 1)]);
    }
}
