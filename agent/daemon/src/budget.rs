//! Limits on the memory that callers make the agent hold: answers that they have not taken, and open subscriptions.
//!
//! A caller is a user and a source address. Each has a share, and all together have one; the figures are in
//! [`holdfast_config::limits`]. A [`Charge`] counts until it is dropped, so it lives in what holds the memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use holdfast_base::Caller;
use holdfast_config::limits::{
    CALLER_ANSWERS, CALLER_SUBSCRIPTIONS, CALLER_SYNCHRONISATIONS, LimitExceeded,
    OPEN_SUBSCRIPTIONS, SYNCHRONISATIONS, UNTAKEN_ANSWERS,
};
use smol_str::SmolStr;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Extensions;

use crate::tls::{Peer, source_of};

/// All that is held, by caller; clones share it.
#[derive(Clone, Debug)]
pub struct Budgets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    synchronisations: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Table {
    /// Callers with a request or a charge.
    callers: HashMap<CallerKey, Weak<CallerShare>>,
    all: Held,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CallerKey {
    name: SmolStr,
    /// Absent for processes of the box.
    source: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    answers: usize,
    subscriptions: usize,
}

/// The share of one caller; each request has it in its extensions.
#[derive(Clone, Debug)]
pub struct CallerBudget(Arc<CallerShare>);

#[derive(Debug)]
struct CallerShare {
    key: CallerKey,
    budgets: Budgets,
    held: Mutex<Held>,
    synchronisations: Arc<Semaphore>,
}

/// Something that is held for a caller, until it is dropped.
#[derive(Debug)]
pub struct Charge {
    share: Arc<CallerShare>,
    amount: Held,
}

/// A turn to send all values of a subscription, until it is dropped.
#[derive(Debug)]
pub struct SynchronisationTurn {
    _of_caller: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Budgets {
    fn default() -> Self {
        let synchronisations = Arc::new(Semaphore::new(SYNCHRONISATIONS.figure));
        Self(Arc::new(Shared { table: Mutex::default(), synchronisations }))
    }
}

impl Budgets {
    /// The share of a caller; `peer` is absent for processes of the box.
    pub fn of(&self, caller: &Caller, peer: Option<&Peer>) -> CallerBudget {
        let source = peer.map(|peer| source_of(peer.address.ip()));
        self.share(CallerKey { name: caller.name.clone(), source })
    }

    fn share(&self, key: CallerKey) -> CallerBudget {
        let mut table = self.table();
        if let Some(share) = table.callers.get(&key).and_then(Weak::upgrade) {
            return CallerBudget(share);
        }
        let share = Arc::new(CallerShare {
            key: key.clone(),
            budgets: self.clone(),
            held: Mutex::default(),
            synchronisations: Arc::new(Semaphore::new(CALLER_SYNCHRONISATIONS.figure)),
        });
        table.callers.insert(key, Arc::downgrade(&share));
        CallerBudget(share)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Each change of the table is whole.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerBudget {
    /// The budget of the caller of a request. Without one, as behind no listener, nobody else shares it.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Checks whether there is room for another answer, before it is made.
    ///
    /// # Errors
    /// When the caller, or all callers together, have as much as they may.
    pub fn check_answers(&self) -> Result<(), LimitExceeded> {
        let table = self.0.budgets.table();
        CALLER_ANSWERS.check(self.0.held().answers + 1)?;
        UNTAKEN_ANSWERS.check(table.all.answers + 1)
    }

    /// Counts the bytes of an answer that is ready.
    ///
    /// # Errors
    /// When the caller, or all callers together, would have more than they may.
    pub fn hold_answer(&self, octets: usize) -> Result<Charge, LimitExceeded> {
        let mut table = self.0.budgets.table();
        CALLER_ANSWERS.check(self.0.held().answers + octets)?;
        UNTAKEN_ANSWERS.check(table.all.answers + octets)?;
        Ok(self.charge(&mut table, Held { answers: octets, ..Held::default() }))
    }

    /// Counts the bytes of an answer that has to be given, whatever else is held: that of a change which is carried out.
    pub fn hold_any_answer(&self, octets: usize) -> Charge {
        let mut table = self.0.budgets.table();
        self.charge(&mut table, Held { answers: octets, ..Held::default() })
    }

    /// Counts an open subscription.
    ///
    /// # Errors
    /// When the caller, or all callers together, have as many as they may.
    pub fn open_subscription(&self) -> Result<Charge, LimitExceeded> {
        let mut table = self.0.budgets.table();
        CALLER_SUBSCRIPTIONS.check(self.0.held().subscriptions + 1)?;
        OPEN_SUBSCRIPTIONS.check(table.all.subscriptions + 1)?;
        Ok(self.charge(&mut table, Held { subscriptions: 1, ..Held::default() }))
    }

    /// Waits for a turn to send all values of a subscription.
    pub async fn synchronisation(&self) -> SynchronisationTurn {
        // The place of the caller first: those who wait for it keep nobody else waiting.
        SynchronisationTurn {
            _of_caller: acquire(&self.0.synchronisations).await,
            _of_all: acquire(&self.0.budgets.0.synchronisations).await,
        }
    }

    fn charge(&self, table: &mut Table, amount: Held) -> Charge {
        table.all.add(amount);
        self.0.held().add(amount);
        Charge { share: self.0.clone(), amount }
    }
}

/// A share in budgets of its own, for services that are called without the AAA layer.
impl Default for CallerBudget {
    fn default() -> Self {
        Budgets::default().share(CallerKey { name: SmolStr::default(), source: None })
    }
}

async fn acquire(turns: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.clone().acquire_owned().await.expect("the semaphore is never closed")
}

impl CallerShare {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallerShare {
    fn drop(&mut self) {
        let mut table = self.budgets.table();
        // The caller may have come back meanwhile.
        if table.callers.get(&self.key).is_some_and(|share| share.strong_count() == 0) {
            table.callers.remove(&self.key);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.budgets.table().all.take(self.amount);
        self.share.held().take(self.amount);
    }
}

impl Held {
    fn add(&mut self, amount: Self) {
        self.answers += amount.answers;
        self.subscriptions += amount.subscriptions;
    }

    fn take(&mut self, amount: Self) {
        self.answers -= amount.answers;
        self.subscriptions -= amount.subscriptions;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use holdfast_config::Limit;

    use super::*;

    fn caller(budgets: &Budgets, number: u8) -> CallerBudget {
        let source = Some(IpAddr::from([10, 0, 0, number]));
        budgets.share(CallerKey { name: "rob".into(), source })
    }

    /// Limit that refuses the first charge after these.
    #[track_caller]
    fn limit_of<T>(refused: Result<T, LimitExceeded>) -> &'static Limit {
        refused.map(drop).expect_err("the charge is over a limit").limit
    }

    #[test]
    fn answers_are_bounded_for_a_caller_and_in_all() {
        let budgets = Budgets::default();
        let callers: Vec<_> = (0..5).map(|number| caller(&budgets, number)).collect();
        let half = CALLER_ANSWERS.figure / 2;
        let mut held = Vec::new();
        for one in &callers[..4] {
            held.extend([one.hold_answer(half).unwrap(), one.hold_answer(half).unwrap()]);
            assert_eq!(limit_of(one.check_answers()), &CALLER_ANSWERS);
            assert_eq!(limit_of(one.hold_answer(1)), &CALLER_ANSWERS);
        }
        assert_eq!(limit_of(callers[4].check_answers()), &UNTAKEN_ANSWERS);
        assert_eq!(limit_of(callers[4].hold_answer(1)), &UNTAKEN_ANSWERS);
        held.push(callers[4].hold_any_answer(1));
        held.remove(0);
        callers[0].check_answers().unwrap();
        held.push(callers[4].hold_answer(half - 1).unwrap());
        drop(held);
        assert_eq!(budgets.table().all.answers, 0);
        drop(callers);
        assert!(budgets.table().callers.is_empty(), "callers that hold nothing are forgotten");
    }

    #[test]
    fn a_thousand_collectors_of_ten_sources_have_room_and_one_source_is_bounded() {
        let budgets = Budgets::default();
        let mut open = Vec::new();
        for number in 0..10 {
            let one = caller(&budgets, number);
            open.extend((0..100).map(|_| one.open_subscription().unwrap()));
        }
        let greedy = caller(&budgets, 0);
        open.extend(
            (100..CALLER_SUBSCRIPTIONS.figure).map(|_| greedy.open_subscription().unwrap()),
        );
        assert_eq!(limit_of(greedy.open_subscription()), &CALLER_SUBSCRIPTIONS);
        let other = caller(&budgets, 1);
        let left = OPEN_SUBSCRIPTIONS.figure - open.len();
        open.extend((0..left).map(|_| other.open_subscription().unwrap()));
        assert_eq!(limit_of(other.open_subscription()), &OPEN_SUBSCRIPTIONS);
        open.pop();
        assert!(other.open_subscription().is_ok());
    }

    #[tokio::test]
    async fn callers_wait_for_their_own_turns_first() {
        let budgets = Budgets::default();
        let greedy = caller(&budgets, 0);
        let other = caller(&budgets, 1);
        let mut turns = Vec::new();
        for _ in 0..CALLER_SYNCHRONISATIONS.figure {
            turns.push(greedy.synchronisation().await);
        }
        let mut waiting = std::pin::pin!(greedy.synchronisation());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(other.synchronisation().now_or_never().is_some(), "it waits for nobody else");
        turns.pop();
        waiting.await;
    }
}
