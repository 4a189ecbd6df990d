//! Commits side by side.
//!
//! A request is examined as soon as it is admitted, beside the commits that are under way, against the configuration
//! in force. Its [`Footprint`] is all that it writes and that its examination has read. It is planned once it keeps
//! clear of every commit that is further, and of every one that came earlier:
//!
//! ```text
//!             examined        keeps clear, and nothing that it read has changed
//! Examining -----------> Waiting --------------------------------------> Planning, and so on
//!     ^                     |
//!     |                     | keeps clear now, and what it read has changed meanwhile
//!     +---------------------+
//! ```
//!
//! So a change that a transport does not answer holds up only those that have to do with the same objects. A commit
//! that is examined again keeps its place by its former footprint, so that no stream of others can overtake it for ever.
//!
//! The serial order is the order of committing: the table lets one commit at a time be made final, put in force and
//! published. Its configuration is rebased then on the one in force, which may have changed where the commit has
//! neither read nor written. *Invariant:* two commits between Planning and their end keep clear of one another.
//!
//! A change that has to do with everything runs alone: see [`runs_alone`](super::runs_alone).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use holdfast_config::Footprint;
use holdfast_scheduler::{TransactionOutcome, TxnId, WaitResult};
use holdfast_store::Ticket;

use super::Input;
use super::in_flight::CommitInFlight;
use crate::planning::CommitPlan;
use crate::request::{CommitError, CommitRequest, FollowUp};

/// Most commits in flight. So many are a sign that a transport hangs, and further requests wait in the queue of the core.
const MAX_IN_FLIGHT: usize = 16;
/// Most examinations under way. Each takes a thread, and memory in proportion to its request: some hundred megabytes for
/// the largest.
const MAX_EXAMINED: usize = 4;

/// Input of a commit.
pub(crate) type CommitInput = Input<Box<CommitPlan>>;

/// Event of the commits in flight.
#[derive(Debug)]
pub(crate) enum CommitEvent {
    Input(Ticket, CommitInput),
    /// End of a transaction of the engine, of a commit or of the engine itself.
    Outcome(TransactionOutcome),
}

/// The commits in flight, in the order of their admission.
#[derive(Debug)]
pub(crate) struct CommitTable {
    commits: BTreeMap<Ticket, CommitInFlight>,
    /// Commits that are carried out and not final yet, in the order of their completion.
    completed: VecDeque<Ticket>,
    /// The commit that is being made final or published.
    finalizing: Option<Ticket>,
    /// Number of changes that were put in force.
    applied: u64,
    /// Footprints of changes that an examination may not have seen, each with its number, ascending.
    recent: VecDeque<(u64, Arc<Footprint>)>,
    /// Events of commits that are not handled yet.
    events: VecDeque<CommitEvent>,
    /// A request that runs alone, and waits until no commit is in flight.
    request_alone: Option<CommitRequest>,
    /// Number of the transaction that is made final next.
    next_number: u64,
    /// Reports of commits whose values are not all in the system.
    settling: BTreeMap<TxnId, FollowUp>,
}

/// Most changes that wait for answers of handlers. Each of them keeps its request in memory meanwhile.
const MAX_ASKING: usize = 16;

/// Decision on a commit that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The commit is to be planned.
    Clear,
    /// Something that its examination has read has changed.
    Outdated,
    /// Handlers have answered it, and it is to be examined with the answers.
    Answered,
    /// The client has gone.
    Abandoned,
}

impl CommitTable {
    /// An empty table; the number is that of the transaction that is made final next.
    pub(crate) fn new(next_number: u64) -> Self {
        Self {
            commits: BTreeMap::new(),
            completed: VecDeque::new(),
            finalizing: None,
            applied: 0,
            recent: VecDeque::new(),
            events: VecDeque::new(),
            request_alone: None,
            next_number,
            settling: BTreeMap::new(),
        }
    }

    /// Queues an input of a commit.
    pub(crate) fn push_input(&mut self, ticket: Ticket, input: CommitInput) {
        self.events.push_back(CommitEvent::Input(ticket, input));
    }

    /// Queues the ends of transactions of the engine.
    pub(crate) fn push_outcomes(&mut self, outcomes: Vec<TransactionOutcome>) {
        // Of a change that did not end well, no value is waited for.
        let failed = outcomes.iter().filter(|it| !matches!(it, TransactionOutcome::Done { .. }));
        failed.for_each(|outcome| drop(self.settling.remove(&outcome.txn())));
        self.events.extend(outcomes.into_iter().map(CommitEvent::Outcome));
    }

    /// Takes out the next input, with its commit. An end that belongs to no commit is passed over.
    pub(crate) fn next_input(&mut self) -> Option<(CommitInFlight, CommitInput)> {
        while let Some(event) = self.events.pop_front() {
            let (ticket, input) = match event {
                CommitEvent::Input(ticket, input) => (ticket, input),
                CommitEvent::Outcome(outcome) => match self.of_transaction(outcome.txn()) {
                    Some(ticket) => (ticket, Input::Engine(outcome)),
                    None => continue,
                },
            };
            if let Some(commit) = self.commits.remove(&ticket) {
                return Some((commit, input));
            }
        }
        None
    }

    /// Keeps the report of a commit until the values of its transaction are in the system.
    pub(crate) fn await_settled(&mut self, txn: TxnId, report: FollowUp) {
        self.settling.insert(txn, report);
    }

    /// Notes the ends of waits for values.
    pub(crate) fn note_settled(&mut self, reached: Vec<WaitResult>) {
        for WaitResult { txn, in_time, .. } in reached {
            if let Some(follow_up) = self.settling.remove(&txn) {
                follow_up.note_settled(in_time);
            }
        }
    }

    /// Keeps a request that runs alone until no commit is in flight.
    pub(crate) fn hold_up(&mut self, request: CommitRequest) {
        self.request_alone = Some(request);
    }

    /// Takes out the request that waits until no commit is in flight, if none is.
    pub(crate) fn take_held_up(&mut self) -> Option<CommitRequest> {
        if self.is_quiet() { self.request_alone.take() } else { None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// True when no commit is in flight but those that handlers are asked for.
    pub(crate) fn is_quiet(&self) -> bool {
        self.commits.values().all(|it| it.machine.is_asking())
    }

    /// True when another request may be taken from the queue.
    pub(crate) fn has_room(&self) -> bool {
        if self.request_alone.is_some() {
            return false;
        }
        // A commit whose handlers are asked holds up nobody.
        let mut present = self.commits.values().filter(|it| !it.machine.is_asking());
        let examined = present.clone().filter(|it| it.machine.is_examining());
        examined.count() < MAX_EXAMINED
            && present.clone().count() < MAX_IN_FLIGHT
            && !present.any(|it| it.runs_alone)
    }

    /// Checks that one more change may wait for handlers.
    ///
    /// # Errors
    /// When too many do.
    pub(crate) fn may_ask(&self) -> Result<(), CommitError> {
        let asking = self.commits.values().filter(|it| it.machine.is_asking());
        if asking.count() < MAX_ASKING { Ok(()) } else { Err(CommitError::Overloaded) }
    }

    /// A commit that handlers have answered, and that may be examined again. A commit that runs alone waits until the
    /// others have ended or wait for handlers themselves.
    fn next_answered(&self) -> Option<Ticket> {
        let present = || self.commits.values().filter(|it| !it.machine.is_waiting_for_handlers());
        let is_held_up = |it: &CommitInFlight| match it.runs_alone {
            true => present().next().is_some(),
            false => present().any(|other| other.runs_alone),
        };
        let mut answered = self.commits.values().filter(|it| it.machine.is_answered());
        answered.find(|it| !is_held_up(it)).map(|it| it.ticket)
    }

    /// True while a commit was answered that no revision shows.
    pub(crate) fn is_publishing(&self) -> bool {
        self.commits.values().any(|it| it.machine.is_publishing())
    }

    pub(crate) fn insert(&mut self, commit: CommitInFlight) {
        self.commits.insert(commit.ticket, commit);
    }

    /// The commit that a transaction of the engine belongs to. Others are repairs and retries of the engine, which only
    /// show in state.
    fn of_transaction(&self, txn: TxnId) -> Option<Ticket> {
        self.commits.values().find(|it| it.machine.txn() == Some(txn)).map(|it| it.ticket)
    }

    /// Number of changes in force, for [`ExaminationBase::applied`](super::ExaminationBase::applied).
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// Notes that the change of a commit is in force.
    pub(crate) fn note_applied(&mut self, commit: &CommitInFlight) {
        self.applied += 1;
        self.recent.extend(commit.footprint.clone().map(|it| (self.applied, it)));
    }

    /// Notes the end of a commit.
    pub(crate) fn note_end(&mut self, ticket: Ticket) {
        self.finalizing.take_if(|it| *it == ticket);
        let undecided = self.commits.values().filter(|it| !it.is_clear);
        match undecided.filter_map(|it| it.base.as_ref()).map(|base| base.applied).min() {
            Some(oldest) => self.recent.retain(|(number, _)| *number > oldest),
            None => self.recent.clear(),
        }
    }

    /// Queues a commit that is carried out, to be made final.
    pub(crate) fn queue_to_finalize(&mut self, ticket: Ticket) {
        self.completed.push_back(ticket);
    }

    /// Lets the next commit be made final before this one has ended, which goes another way.
    pub(crate) fn pass_over(&mut self, ticket: Ticket) {
        self.finalizing.take_if(|it| *it == ticket);
    }

    /// The commit that is to be made final now, with its number, if there is one; until its end, no other one is.
    pub(crate) fn next_to_finalize(&mut self) -> Option<(u64, &mut CommitInFlight)> {
        if self.finalizing.is_some() {
            return None;
        }
        self.finalizing = self.completed.pop_front();
        let commit = self.commits.get_mut(&self.finalizing?)?;
        let number = self.next_number;
        // A number is not used again: the disk may have taken what it reported as refused.
        self.next_number += 1;
        commit.number = Some(number);
        Some((number, commit))
    }

    /// The first commit that does not wait any longer.
    pub(crate) fn next_turn(&mut self) -> Option<(Ticket, Turn)> {
        let mut undecided = self.commits.values().filter(|it| it.machine.is_waiting());
        if let Some(abandoned) = undecided.find(|it| it.cancel.is_cancelled()) {
            return Some((abandoned.ticket, Turn::Abandoned));
        }
        if let Some(answered) = self.next_answered() {
            return Some((answered, Turn::Answered));
        }
        for ticket in self.waiting() {
            if let Some(behind) = self.conflicting(ticket) {
                let commit = self.commits.get_mut(&ticket)?;
                commit.behind = Some(behind);
                continue;
            }
            let outdated = self.is_outdated(ticket);
            let commit = self.commits.get_mut(&ticket)?;
            commit.is_clear = !outdated;
            return Some((ticket, if outdated { Turn::Outdated } else { Turn::Clear }));
        }
        None
    }

    /// Commits that wait, and not for one that is still there.
    fn waiting(&self) -> Vec<Ticket> {
        let is_held_up = |it: &&CommitInFlight| {
            it.behind.is_some_and(|behind| self.commits.contains_key(&behind))
        };
        let waiting = self.commits.values().filter(|it| it.machine.is_waiting());
        waiting.filter(|it| !is_held_up(it)).map(|it| it.ticket).collect()
    }

    /// A commit that another one has to wait for: one that is further, or came earlier, and has to do with the same.
    fn conflicting(&self, ticket: Ticket) -> Option<Ticket> {
        let commit = self.commits.get(&ticket)?;
        let is_ahead = |it: &&CommitInFlight| it.is_clear || it.ticket < ticket;
        // A commit whose handlers are asked holds up nobody, although it may have been examined before.
        let is_other = |it: &&CommitInFlight| it.ticket != ticket && !it.machine.is_asking();
        let mut others = self.commits.values().filter(is_other);
        others.find(|it| is_ahead(it) && !commit.keeps_clear_of(it)).map(|it| it.ticket)
    }

    /// True when a change that came into force since the examination of a commit has to do with the same.
    fn is_outdated(&self, ticket: Ticket) -> bool {
        let Some(commit) = self.commits.get(&ticket) else { return false };
        let (Some(base), Some(footprint)) = (&commit.base, &commit.footprint) else { return false };
        let since = self.recent.iter().filter(|(number, _)| *number > base.applied);
        since.into_iter().any(|(_, other)| !footprint.keeps_clear_of(other))
    }
}
