//! Changes that were started under a token, so that a client who asks again is answered and not obeyed twice.

use std::collections::VecDeque;

use smol_str::SmolStr;

use crate::engine::Outcome;
use crate::key::FixedMap;
use crate::operation::TxnId;

/// Changes remembered. A client that asks again does so at once, not thousands of changes later.
const TOKENS_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    started: FixedMap<SmolStr, (TxnId, Option<Outcome>)>,
    /// Oldest first.
    order: VecDeque<(TxnId, SmolStr)>,
}

impl Tokens {
    /// The transaction started under a token, and how it ended, if it has.
    pub(crate) fn get(&self, token: &SmolStr) -> Option<(TxnId, Option<&Outcome>)> {
        self.started.get(token).map(|(txn, outcome)| (*txn, outcome.as_ref()))
    }

    pub(crate) fn insert(&mut self, token: SmolStr, txn: TxnId) {
        self.order.push_back((txn, token.clone()));
        self.started.insert(token, (txn, None));
        while self.order.len() > TOKENS_KEPT {
            let Some((_, oldest)) = self.order.pop_front() else { break };
            self.started.remove(&oldest);
        }
    }

    /// Keeps a good end as the answer. What was not made may be tried again under the same token.
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        let Ok(at) = self.order.binary_search_by_key(&outcome.txn(), |(txn, _)| *txn) else {
            return;
        };
        if matches!(outcome, Outcome::Done { .. }) {
            let entry = self.started.get_mut(&self.order[at].1);
            entry.into_iter().for_each(|(_, ended)| *ended = Some(outcome.clone()));
        } else if let Some((_, token)) = self.order.remove(at) {
            self.started.remove(&token);
        }
    }
}
