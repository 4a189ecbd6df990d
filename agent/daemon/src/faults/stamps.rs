//! Moments of a raised alarm on its way from its source to those who are told, for `holdfast fault profile`.
//!
//! They are always taken: a raise costs a handful of readings of the clock. All of them are of the monotonic clock of the
//! machine, so that a client on it can set its own beside them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use holdfast_faults::{Alarm, Condition, ImpactState};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Raises of which the moments are kept: more than a profile has runs at a time.
const KEPT: usize = 256;
/// Raises that are on their way. Of a storm, the first ones are profiled.
const UNDER_WAY: usize = 256;
/// The longest time for which the moments of a raise are waited for.
const LONGEST: Duration = Duration::from_millis(500);

/// A moment on the way, by its number in the specification (section 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Moment {
    /// The report of the source was taken.
    T01,
    /// The objects that do not work because of it are known.
    T02,
    /// The alarm is in a revision.
    T03,
    /// The last of these objects is marked in a revision.
    T04,
    /// The alarm says that its impact is complete.
    T05,
    /// The rules that may fit were found.
    T06,
    /// The rules were evaluated.
    T07,
    /// Listeners were told.
    T08,
}

/// The moments of one raise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raise {
    /// Id of the alarm.
    pub alarm: String,
    pub event: u64,
    /// Objects that do not work, or work worse.
    pub objects: usize,
    /// Nanoseconds of the monotonic clock. A moment that did not come is not there.
    pub at: BTreeMap<Moment, u64>,
}

/// The present moment, in nanoseconds of the monotonic clock of the machine.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Moments at which rules were found and evaluated last.
#[derive(Debug, Default)]
pub(super) struct RuleStamps(Mutex<Option<(u64, u64)>>);

impl RuleStamps {
    /// Notes that a rule is looked at.
    pub(super) fn note_found(&self) {
        self.with(|stamps| {
            stamps.get_or_insert_with(|| {
                let now = monotonic_ns();
                (now, now)
            });
        });
    }

    /// Notes that a rule was evaluated.
    pub(super) fn note_evaluated(&self) {
        self.with(|stamps| {
            if let Some((_, evaluated)) = stamps {
                *evaluated = monotonic_ns();
            }
        });
    }

    /// The moments since the last call.
    fn take(&self) -> Option<(u64, u64)> {
        self.with(Option::take)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Option<(u64, u64)>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The moments of raises.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// Moment of the input whose effects are carried out.
    taken: u64,
    open: BTreeMap<Condition, Raise>,
    done: VecDeque<Raise>,
}

impl Stamps {
    /// Notes that an input is taken.
    pub(super) fn take_input(&mut self) {
        self.taken = monotonic_ns();
    }

    /// Notes that an alarm was raised by the input that was taken last.
    pub(super) fn raise(&mut self, alarm: &Alarm, event: u64) {
        if self.open.len() < UNDER_WAY {
            let alarm_id = alarm.condition.to_string();
            let at = BTreeMap::from([(Moment::T01, self.taken)]);
            let raise = Raise { alarm: alarm_id, event, objects: 0, at };
            self.open.insert(alarm.condition.clone(), raise);
        }
    }

    /// Notes when the rules were looked at for the alarms that the last input has raised.
    pub(super) fn judge(&mut self, rules: &RuleStamps) {
        let Some((found, evaluated)) = rules.take() else { return };
        for raise in self.open.values_mut().filter(|raise| raise.at[&Moment::T01] == self.taken) {
            raise.at.entry(Moment::T06).or_insert(found);
            raise.at.entry(Moment::T07).or_insert(evaluated);
        }
    }

    /// Notes that the impact of an alarm is known.
    pub(super) fn know_impact(&mut self, alarm: &Condition) {
        self.note(alarm, Moment::T02);
    }

    /// Notes that all marks are in a revision, and the alarms follow.
    pub(super) fn show_marks<'a>(&mut self, alarms: impl Iterator<Item = &'a Alarm>) {
        for alarm in alarms.filter(|alarm| is_complete(alarm)) {
            self.note(&alarm.condition, Moment::T04);
        }
    }

    /// Notes that these alarms are in a revision.
    pub(super) fn show<'a>(&mut self, alarms: impl Iterator<Item = &'a Alarm>) {
        for alarm in alarms {
            self.note(&alarm.condition, Moment::T03);
            if is_complete(alarm) {
                self.note(&alarm.condition, Moment::T05);
                if let (Some(raise), Some(impact)) =
                    (self.open.get_mut(&alarm.condition), alarm.impact)
                {
                    raise.objects = impact.down.saturating_add(impact.degraded);
                }
            }
        }
    }

    /// Notes that listeners were told of what was shown, and that raises without anything to come are done.
    pub(super) fn tell(&mut self) {
        let now = monotonic_ns();
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        let mut done = Vec::new();
        for (condition, raise) in &mut self.open {
            if raise.at.contains_key(&Moment::T03) {
                raise.at.entry(Moment::T08).or_insert(now);
            }
            let is_late = now.saturating_sub(raise.at[&Moment::T01]) > longest;
            if is_late || raise.at.contains_key(&Moment::T05) {
                done.push(condition.clone());
            }
        }
        for condition in done {
            self.done.extend(self.open.remove(&condition));
        }
        while self.done.len() > KEPT {
            self.done.pop_front();
        }
    }

    /// Raises after an event, those on their way among them.
    pub(super) fn after(&self, event: u64) -> Vec<Raise> {
        let raises = self.done.iter().chain(self.open.values());
        raises.filter(|raise| raise.event > event).cloned().collect()
    }

    fn note(&mut self, alarm: &Condition, moment: Moment) {
        if let Some(raise) = self.open.get_mut(alarm) {
            raise.at.entry(moment).or_insert_with(monotonic_ns);
        }
    }
}

fn is_complete(alarm: &Alarm) -> bool {
    alarm.impact.is_some_and(|impact| impact.state != ImpactState::Pending)
}
