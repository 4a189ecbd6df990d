//! Tasks of the planner: its work, in units of bounded size.
//!
//! Tasks are on a stack. A unit of work takes the uppermost one a step further: one value, or one portion of a
//! change. Work that follows from a unit, such as the notification of the watchers of a target, is not a recursion.
//! It becomes further tasks, which come before the rest of the task they follow from. So the planner can pause after
//! each unit:
//!
//! ```text
//! +---------------------+
//! | Notify: 2 of 90 000 |  <- next unit
//! | Drain               |
//! | Round: creates      |
//! | Rounds              |
//! | stages to come      |
//! +---------------------+
//! ```
//!
//! In one piece are only the sorting of keys or numbers (some ten milliseconds for 100 000 keys in no order, much less for
//! the usual ones in order), copies of lists of numbers, the reservation of memory, and the search for values that support
//! themselves, which has a bound of its own.

use std::vec::IntoIter;

use super::hashing::Hashing;
use super::intent::{Ordering, Portions};
use super::{CHANGES, CREATES, DELETES, FOUND, LAST, Planner};
use crate::change::{Delta, Mode};
use crate::graph::NodeIdx;
use crate::outcome::PlanError;
use crate::overlay::{Gathering, Notification, OverlayTargetId, PendingAction, to_u32};
use crate::planned_operation::OverlayIdx;

/// Stages of a plan, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The changes of each key are put in order.
    Order,
    /// Values are validated, and goals set.
    Goals,
    /// Values whose surroundings changed are added.
    Revisits,
    /// The first action of each value is chosen.
    Actions,
    /// Offers of unsupported values are marked as going.
    Unsupported,
    /// Reserved identities are taken back. Only changes that are undone have any.
    Reservations,
    /// Actions are simulated.
    Rounds,
    /// An atomic change that claims an identity of a value that stays is refused.
    Conflicts,
    /// Values that will wait are listed.
    Waiting,
    /// The plan is compared with the expected one.
    Admission,
}

impl Stage {
    pub(super) const ALL: [Self; 10] = [
        Self::Order,
        Self::Goals,
        Self::Revisits,
        Self::Actions,
        Self::Unsupported,
        Self::Reservations,
        Self::Rounds,
        Self::Conflicts,
        Self::Waiting,
        Self::Admission,
    ];
}

/// Size of a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// One value, or one entry of a list.
    Value,
    /// One portion of a change.
    Portion,
}

/// Nodes that are still to be visited.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) next: OverlayIdx,
    pub(super) end: OverlayIdx,
}

impl Nodes {
    fn take(&mut self) -> Option<OverlayIdx> {
        let oidx = (self.next < self.end).then_some(self.next)?;
        self.next += 1;
        Some(oidx)
    }
}

#[derive(Debug)]
pub(super) enum Task {
    Stage(Stage),
    Order(Ordering),
    Goals(Portions),
    Revisit(IntoIter<NodeIdx>),
    ChooseActions(Nodes),
    MarkUnsupported(IntoIter<NodeIdx>),
    Rounds,
    Round {
        rank: usize,
        values: IntoIter<OverlayIdx>,
    },
    /// Notifies the watchers of all targets that turned.
    Notifications,
    Notify(Notification),
    /// Acts on all changes of readiness so far.
    Drain,
    Drained(Batch),
    Park(Parking),
    Reduce(IntoIter<OverlayIdx>),
    /// Values that an operation removes in a cascade.
    FinishCascade {
        values: IntoIter<OverlayIdx>,
        op: u32,
    },
    RefuseClaims(Nodes),
    ListWaiting(Nodes),
    Hash(Box<Hashing>),
}

/// Changes of readiness to be acted on.
#[derive(Debug)]
pub(super) struct Batch {
    lost_dependency: IntoIter<OverlayIdx>,
    reducible: IntoIter<OverlayIdx>,
    unblocked: IntoIter<OverlayIdx>,
    ready: Vec<OverlayIdx>,
    /// Number of `ready` values acted on.
    done: usize,
}

/// Way in which the dependents of a value are parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkMode {
    /// Values without an action of their own that cannot be reduced.
    Idle,
    /// All, or reduced where that helps.
    Reduced,
}

/// Dependents of a value that goes or changes, to be parked.
#[derive(Debug)]
pub(super) struct Parking {
    pub(super) mode: ParkMode,
    /// Value whose delete the dependents prevent.
    pub(super) by: OverlayIdx,
    /// Targets whose dependents are parked.
    pub(super) targets: IntoIter<OverlayTargetId>,
    /// Dependents of one target, once they are known.
    current: Option<(Gathering, Option<IntoIter<OverlayIdx>>)>,
}

impl Parking {
    pub(super) fn new(mode: ParkMode, by: OverlayIdx, targets: Vec<OverlayTargetId>) -> Self {
        Self { mode, by, targets: targets.into_iter(), current: None }
    }
}

impl Planner<'_> {
    /// Does one unit of work. `None` when the plan is complete.
    pub(crate) fn advance(&mut self, delta: &Delta) -> Result<Option<Unit>, PlanError> {
        let Some(task) = self.state.tasks.pop() else { return Ok(None) };
        let unit = match task {
            Task::Order(_) | Task::Goals(_) => Unit::Portion,
            _ => Unit::Value,
        };
        let rest = self.perform(task, delta)?;
        self.state.tasks.extend(rest);
        self.state.tasks.extend(self.state.follow_ups.drain(..).rev());
        Ok(Some(unit))
    }

    /// Takes a task one step further. Returns what is left of it.
    fn perform(&mut self, task: Task, delta: &Delta) -> Result<Option<Task>, PlanError> {
        Ok(match task {
            Task::Stage(stage) => self.enter(stage, delta),
            Task::Order(ordering) => self.order_next(ordering, delta)?.map(Task::Order),
            Task::Goals(portions) => self.apply_portion(portions, delta)?.map(Task::Goals),
            Task::Revisit(mut nodes) => {
                let next = nodes.next();
                next.inspect(|&idx| self.revisit(idx)).map(|_| Task::Revisit(nodes))
            }
            Task::ChooseActions(mut nodes) => {
                let next = nodes.take();
                next.inspect(|&it| self.choose_action(it)).map(|_| Task::ChooseActions(nodes))
            }
            Task::MarkUnsupported(mut nodes) => {
                let next = nodes.next();
                next.inspect(|&it| self.mark_unsupported_going(it))
                    .map(|_| Task::MarkUnsupported(nodes))
            }
            Task::Rounds => self.next_round().then_some(Task::Rounds),
            Task::Round { rank, mut values } => {
                let next = values.next();
                next.inspect(|&oidx| self.act(rank, oidx)).map(|_| Task::Round { rank, values })
            }
            Task::Notifications => self.next_notification(),
            Task::Notify(mut it) => self.overlay.notify_next(&mut it).then_some(Task::Notify(it)),
            Task::Drain => self.begin_batch(),
            Task::Drained(batch) => self.act_on_batch(batch),
            Task::Park(parking) => self.park_next(parking),
            Task::Reduce(mut values) => {
                let next = values.next();
                next.inspect(|&oidx| self.reduce_noted(oidx)).map(|_| Task::Reduce(values))
            }
            Task::FinishCascade { mut values, op } => {
                let next = values.next();
                next.inspect(|&oidx| self.finish_cascade(oidx, op))
                    .map(|_| Task::FinishCascade { values, op })
            }
            Task::RefuseClaims(mut nodes) => match nodes.take() {
                Some(oidx) => {
                    self.refuse_claims_of(oidx)?;
                    Some(Task::RefuseClaims(nodes))
                }
                None => None,
            },
            Task::ListWaiting(mut nodes) => match nodes.take() {
                Some(oidx) => {
                    self.list_waiting(oidx);
                    Some(Task::ListWaiting(nodes))
                }
                None => {
                    self.sort_waiting();
                    None
                }
            },
            Task::Hash(hashing) => self.hash_next(hashing, delta)?.map(Task::Hash),
        })
    }

    fn enter(&mut self, stage: Stage, delta: &Delta) -> Option<Task> {
        let nodes = Nodes { next: 0, end: to_u32(self.overlay.nodes.len()) };
        match stage {
            Stage::Order => Some(Task::Order(Ordering::of(std::mem::take(&mut self.state.order)))),
            Stage::Goals => Some(Task::Goals(self.portions(delta))),
            Stage::Revisits => {
                self.state.validated = true;
                Some(Task::Revisit(self.sorted_revisits()))
            }
            Stage::Actions => {
                self.overlay.goals_set = true;
                self.state.operations.reserve(self.overlay.nodes.len());
                Some(Task::ChooseActions(nodes))
            }
            Stage::Unsupported => {
                let all = self.overlay.graph.unsupported.all().to_vec();
                Some(Task::MarkUnsupported(all.into_iter()))
            }
            Stage::Reservations => {
                self.reclaim_reserved();
                None
            }
            Stage::Rounds => Some(Task::Rounds),
            Stage::Conflicts => (delta.mode == Mode::Atomic).then_some(Task::RefuseClaims(nodes)),
            Stage::Waiting => Some(Task::ListWaiting(nodes)),
            Stage::Admission => {
                let order = std::mem::take(&mut self.state.order);
                delta.expected_plan.map(|_| Task::Hash(Box::new(Hashing::of(delta, order))))
            }
        }
    }

    fn act(&mut self, rank: usize, oidx: OverlayIdx) {
        match rank {
            DELETES | LAST => self.delete(oidx, false),
            FOUND | CHANGES => self.change(oidx, false),
            _ => self.create(oidx),
        }
    }

    /// Lets all changes of readiness be acted on, before anything else.
    pub(super) fn drain_ready(&mut self) {
        if !self.state.follow_ups.is_empty() || !self.overlay.ready_changes.is_empty() {
            self.state.follow_ups.push(Task::Drain);
        }
    }

    fn next_notification(&mut self) -> Option<Task> {
        let turned = std::mem::take(&mut self.overlay.ready_changes.notifications);
        for (target_id, there) in turned {
            let notification = self.overlay.notification(target_id, there);
            self.state.follow_ups.extend(notification.map(Task::Notify));
        }
        None
    }

    fn begin_batch(&mut self) -> Option<Task> {
        if !self.overlay.ready_changes.notifications.is_empty() {
            self.next_notification();
            return Some(Task::Drain);
        }
        let spare = std::mem::take(&mut self.state.spare);
        let changes = &mut self.overlay.ready_changes;
        Some(Task::Drained(Batch {
            lost_dependency: std::mem::take(&mut changes.lost_dependency).into_iter(),
            reducible: std::mem::take(&mut changes.reducible).into_iter(),
            unblocked: std::mem::take(&mut changes.unblocked).into_iter(),
            // Nearly every batch has some, so two lists are swapped instead of allocated.
            ready: std::mem::replace(&mut changes.ready, spare),
            done: 0,
        }))
    }

    fn act_on_batch(&mut self, mut batch: Batch) -> Option<Task> {
        if let Some(oidx) = batch.lost_dependency.next() {
            if !self.reduce(oidx) {
                self.park(oidx);
            }
        } else if let Some(oidx) = batch.reducible.next() {
            self.note_reducible(oidx);
        } else if let Some(oidx) = batch.unblocked.next() {
            self.on_unblocked(oidx);
        } else if let Some(&oidx) = batch.ready.get(batch.done) {
            batch.done += 1;
            self.on_ready(oidx);
        } else {
            batch.ready.clear();
            self.state.spare = batch.ready;
            return None;
        }
        Some(Task::Drained(batch))
    }

    fn on_unblocked(&mut self, oidx: OverlayIdx) {
        match self.overlay.node(oidx).pending_action {
            PendingAction::Delete => self.push_delete(oidx),
            PendingAction::InPlace(in_place_action) => {
                self.state.ready[super::rank(in_place_action)].push(oidx)
            }
            _ => {}
        }
    }

    fn on_ready(&mut self, oidx: OverlayIdx) {
        match self.overlay.node(oidx).pending_action {
            PendingAction::Create => self.state.ready[CREATES].push(oidx),
            PendingAction::InPlace(in_place_action) => {
                self.state.ready[super::rank(in_place_action)].push(oidx)
            }
            PendingAction::Nothing if self.overlay.node(oidx).in_cascade.is_none() => {
                self.choose_action(oidx);
                self.clear_going_if_supported(oidx);
            }
            _ => {}
        }
    }

    fn park_next(&mut self, mut parking: Parking) -> Option<Task> {
        match &mut parking.current {
            None => {
                let gathering = self.overlay.gathering(parking.targets.next()?);
                parking.current = Some((gathering, None));
            }
            Some((gathering, values @ None)) => {
                *values = self.overlay.gather_next(gathering).map(Vec::into_iter);
            }
            Some((gathering, Some(values))) => match values.next() {
                Some(oidx) if oidx != parking.by && self.overlay.is_dependent(gathering, oidx) => {
                    self.park_dependent(parking.mode, oidx);
                }
                Some(_) => {}
                None => parking.current = None,
            },
        }
        Some(Task::Park(parking))
    }

    fn park_dependent(&mut self, mode: ParkMode, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        let stays = mode == ParkMode::Idle
            && (!matches!(node.pending_action, PendingAction::Nothing) || node.goal.is_reducible());
        let reduced = !stays && mode == ParkMode::Reduced && self.reduce(oidx);
        if !stays && !reduced {
            self.park(oidx);
        }
    }
}
