//! First part of planning: the goals that follow from a change of intent, parts included.

use super::validation::Validation;
use crate::change::{Delta, IntentChange, Mode};
use crate::graph::{Goal, Source};
use crate::key::{Key, sort_by_keys_of};
use crate::outcome::PlanError;
use crate::overlay::to_u32;
use crate::planned_operation::OverlayIdx;
use crate::planner::Planner;
use crate::sorted_map::SortedMap;
use crate::value::{SharedValue, same};
use crate::value_spec::{ValueError, ValueSpec};

pub(super) use super::validation::Portions;

/// Sources still to be applied: key, source, value, and the validation if it was done ahead.
type Worklist = Vec<(Key, Source, Option<SharedValue>, Option<Validation>)>;

/// Number of values of a change after which memory is reserved for the rest, estimated from these.
const SAMPLE: usize = 1024;

/// Changes being put in order: ascending by key, owners that give a key up before those that take it over.
#[derive(Debug)]
pub(super) struct Ordering {
    order: Vec<u32>,
    done: usize,
}

/// Places of the changes, ascending by key. Takes as long as there are changes, and no graph.
pub(super) fn sorted_places(delta: &Delta) -> Vec<u32> {
    let mut places: Vec<u32> = (0..to_u32(delta.changes.len())).collect();
    sort_by_keys_of(&mut places, |&at| &delta.changes[at as usize].key);
    places
}

impl Ordering {
    /// Ordering of changes whose places are sorted by key.
    pub(super) fn of(sorted: Vec<u32>) -> Self {
        Self { order: sorted, done: 0 }
    }
}

impl Planner<'_> {
    /// Puts the changes of as many keys in order as are a unit of work.
    pub(super) fn order_next(
        &mut self,
        mut ordering: Ordering,
        delta: &Delta,
    ) -> Result<Option<Ordering>, PlanError> {
        let changes = &delta.changes;
        let until = ordering.done + self.state.portion;
        while ordering.done < until {
            let rest = &mut ordering.order[ordering.done..];
            let Some(&first) = rest.first() else {
                self.state.order = ordering.order;
                return Ok(None);
            };
            let key = &changes[first as usize].key;
            let count = rest.iter().take_while(|&&at| changes[at as usize].key == *key).count();
            self.order_owners(&mut rest[..count], changes)?;
            ordering.done += count;
        }
        Ok(Some(ordering))
    }

    /// Applies one change of intent and what follows for its parts. `at` is its place in the order.
    pub(super) fn apply_change_of_intent(
        &mut self,
        at: usize,
        delta: &Delta,
        validation: Option<Validation>,
    ) -> Result<(), PlanError> {
        let taken = at + 1;
        if taken == SAMPLE {
            self.overlay.reserve_rest(taken, self.state.order.len() - taken);
        }
        let change = |at: usize| &delta.changes[self.state.order[at] as usize];
        let IntentChange { key, owner, value } = change(at);
        self.state.before.resize(delta.changes.len(), None);
        let previous = at.checked_sub(1);
        let same = |&at: &usize| change(at).key == *key && change(at).owner == *owner;
        if let Some(previous) = previous.filter(same) {
            let before = self.state.before[self.state.order[previous] as usize].clone();
            self.state.before[self.state.order[at] as usize] = before;
            return Ok(());
        }
        let source = Source::of(owner.as_ref());
        let mut work = Worklist::new();
        let place = self.state.order[at] as usize;
        let value = value.clone();
        self.state.before[place] =
            self.apply_source(key, source, value, validation, delta.mode, &mut work)?;
        while let Some((key, source, value, validation)) = work.pop() {
            self.apply_source(&key, source, value, validation, delta.mode, &mut work)?;
        }
        Ok(())
    }

    /// Portions of a change, none of them applied.
    pub(super) fn portions(&mut self, delta: &Delta) -> Portions {
        let sample = delta.changes.len().min(SAMPLE);
        self.overlay.reserve(sample, sample);
        Portions::default()
    }

    /// Orders the changes of one key: owners that give it up go first, so that another one may take it over. Refuses two
    /// values for one owner.
    fn order_owners(
        &self,
        same_key: &mut [u32],
        changes: &[IntentChange],
    ) -> Result<(), PlanError> {
        if same_key.len() == 1 {
            return Ok(());
        }
        let change = |at: &u32| &changes[*at as usize];
        same_key.sort_by(|one, other| change(one).owner.cmp(&change(other).owner));
        for pair in same_key.windows(2) {
            let one = change(&pair[0]);
            let other = change(&pair[1]);
            if one.owner == other.owner && !same(one.value.as_ref(), other.value.as_ref()) {
                let label = self.label(&one.key, one.value.as_ref().or(other.value.as_ref()));
                return Err(PlanError::Twice { key: one.key.clone(), label });
            }
        }
        same_key.sort_by_key(|at| change(at).value.is_some());
        Ok(())
    }

    /// Applies one source of intent of a key. Returns its value of before.
    fn apply_source(
        &mut self,
        key: &Key,
        source: Source,
        value: Option<SharedValue>,
        validation: Option<Validation>,
        mode: Mode,
        work: &mut Worklist,
    ) -> Result<Option<SharedValue>, PlanError> {
        let (oidx, _) = self.overlay.touch(key);
        let sources = self.overlay.sources_mut(oidx);
        let was_part = sources.first().is_some_and(|(first, _)| first.is_part());
        let at = sources.binary_search_by(|(other, _)| other.cmp(&source));
        // The validation is of this source's value, and of use only where that source counts.
        let validation = validation.filter(|_| matches!(at, Ok(0) | Err(0)));
        let (Ok(place) | Err(place)) = at;
        let before = match (at, value) {
            (Ok(at), Some(value)) => Some(std::mem::replace(&mut sources[at].1, value)),
            (Ok(at), None) => Some(sources.remove(at).1),
            (Err(at), Some(value)) => {
                sources.insert(at, (source, value));
                None
            }
            (Err(_), None) => return Ok(None),
        };
        if mode == Mode::Atomic {
            self.refuse_conflict(oidx, place)?;
        }
        self.validate(oidx, was_part, validation, mode, work)?;
        Ok(before)
    }

    /// Refuses a key with two values: those of two owners or wholes, or of one of them and of a change that names the key
    /// itself. `changed` is the place of the source that has just changed.
    fn refuse_conflict(&self, oidx: OverlayIdx, changed: usize) -> Result<(), PlanError> {
        let node = self.overlay.node(oidx);
        let Some(((first, value), others)) = node.sources.split_first() else { return Ok(()) };
        let mut owned = others.iter().filter(|(source, _)| *source != Source::Direct);
        let Some((source, _)) = owned.find(|(_, other)| !value.same(&**other)) else {
            return Ok(());
        };
        // Of two owners, the message names the one that had the key before.
        let pair = if changed == 0 { [source, first] } else { [first, source] };
        let other = match (pair, [source, first]) {
            ([Source::Of(owner), _] | [_, Source::Of(owner)], _) => format!("that of {owner}"),
            (_, [Source::Part(whole), _] | [_, Source::Part(whole)]) => self.label(whole, None),
            _ => self.label(&node.key, None),
        };
        let label = self.label(&node.key, Some(value));
        Err(PlanError::Conflict { key: node.key.clone(), label, other, claimed: None })
    }

    /// Sets the goal that follows from the sources, and queues the parts that differ.
    fn validate(
        &mut self,
        oidx: OverlayIdx,
        was_part: bool,
        validation: Option<Validation>,
        mode: Mode,
        work: &mut Worklist,
    ) -> Result<(), PlanError> {
        let node = self.overlay.node(oidx);
        let as_part = node.sources.first().is_some_and(|(first, _)| first.is_part());
        let value = node.sources.first().map(|(_, value)| value.clone());
        let unchanged = value.is_none() || was_part == as_part;
        if same(node.goal.requested(), value.as_ref()) && unchanged {
            let goal = node.goal.clone();
            if mode == Mode::Atomic
                && let Goal::Refused(value, refusal) = &goal
            {
                return Err(self.refusal(oidx, value, refusal));
            }
            self.overlay.set_goal(oidx, goal);
            return Ok(());
        }
        let mut parts = Vec::new();
        let goal = match value {
            None => Goal::Nothing,
            Some(value) => {
                let answer = self.validated(oidx, &value, as_part, validation);
                parts = answer.parts;
                self.state.listed += answer.listed;
                match answer.validated {
                    Ok(spec) => Goal::Valid(value, spec),
                    Err(refusal) if mode == Mode::Atomic => {
                        return Err(self.refusal(oidx, &value, &refusal));
                    }
                    Err(refusal) => Goal::Refused(value, Box::new(refusal)),
                }
            }
        };
        // A refused value keeps the parts it was applied with.
        if !matches!(goal, Goal::Refused(..)) {
            self.apply_parts(oidx, &goal, parts, work);
        }
        self.overlay.set_goal(oidx, goal);
        Ok(())
    }

    /// Validation of the value that a node is to have.
    fn validated(
        &self,
        oidx: OverlayIdx,
        value: &SharedValue,
        as_part: bool,
        validation: Option<Validation>,
    ) -> Validation {
        let node = self.overlay.node(oidx);
        let before = match &node.goal {
            Goal::Valid(value, spec) => Some((value, &**spec)),
            _ => None,
        };
        if let Some(validation) = validation.filter(|_| before.is_none()) {
            return validation;
        }
        let registry = &self.overlay.graph.registry;
        let mut listed = 0;
        let validated =
            ValueSpec::of_intended(registry, &node.key, value, as_part, before, &mut listed);
        Validation { validated, listed, parts: Vec::new() }
    }

    /// Queues the parts that differ. `parts` holds validations of all parts of the goal, or none.
    fn apply_parts(
        &self,
        oidx: OverlayIdx,
        goal: &Goal,
        parts: Vec<Validation>,
        work: &mut Worklist,
    ) {
        let node = self.overlay.node(oidx);
        let source = || Source::Part(Box::new(node.key.clone()));
        let old = match &node.goal {
            Goal::Refused(..) => node.present.as_ref(), // a refused value has kept the parts of before
            goal => goal.spec(),
        };
        let old = old.and_then(|it| it.parts());
        let new = goal.spec().and_then(|it| it.parts());
        let changes = SortedMap::difference(old, new);
        let (added, removed): (Vec<_>, Vec<_>) = changes.iter().partition(|it| it.new.is_some());
        let all_added = parts.len() == added.len();
        let mut answers = parts.into_iter().filter(|_| all_added);
        for part in removed {
            work.push((part.key.clone(), source(), None, None));
        }
        for part in added {
            let value = part.new.map(|value| value.0.clone());
            work.push((part.key.clone(), source(), value, answers.next()));
        }
    }

    fn refusal(&self, oidx: OverlayIdx, value: &SharedValue, refusal: &ValueError) -> PlanError {
        let key = self.overlay.node(oidx).key.clone();
        let label = self.label(&key, Some(value));
        match refusal {
            ValueError::Unimplemented => PlanError::Unimplemented { key, label },
            ValueError::Invalid(reason) => {
                PlanError::Invalid { key, label, reason: reason.clone() }
            }
        }
    }

    fn label(&self, key: &Key, value: Option<&SharedValue>) -> String {
        let planned =
            self.overlay.touched(key).and_then(|oidx| self.overlay.node(oidx).goal.value());
        match value.or(planned) {
            Some(value) => self.overlay.graph.registry.label(key, Some(&**value)),
            None => self.overlay.graph.label(key),
        }
    }
}
