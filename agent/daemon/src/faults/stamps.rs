//! Moments of a raised alarm on its way from its source to those who are told, for `holdfast fault profile`.
//!
//! They are always taken: a raise costs a handful of readings of the clock. All of them are of the monotonic clock of the
//! machine, so that a client on it can set its own beside them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use holdfast_faults::{Alarm, Condition, ImpactState};
use holdfast_introspect::Distribution;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Raises whose moments are kept: more than a profile has runs at a time.
const KEPT: usize = 256;
/// Raises that are on their way. Of a storm, the first ones are profiled.
const UNDER_WAY: usize = 256;
/// The longest time for which the moments of a raise are waited for.
const LONGEST: Duration = Duration::from_millis(500);

/// Upper ends of the classes of times, in milliseconds: a raise takes some milliseconds, and more than a second is too long.
const CLASSES_MS: [u32; 9] = [1, 2, 5, 10, 25, 50, 100, 250, 1000];
const NS_PER_MS: u64 = 1_000_000;
/// Moments whose time from the report is counted, with their names in metrics.
const COUNTED: [(Moment, &str); 3] =
    [(Moment::T03, "alarm-shown"), (Moment::T05, "impact-shown"), (Moment::T08, "listeners-told")];

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

/// Times of all raises since the agent began, from the report to one moment.
#[derive(Debug, Default)]
struct Times {
    /// Number of times in each class; the last one is for those above all.
    classes: [u64; CLASSES_MS.len() + 1],
    sum_ns: u64,
}

impl Times {
    fn add(&mut self, took_ns: u64) {
        let class = CLASSES_MS.iter().position(|end| took_ns <= u64::from(*end) * NS_PER_MS);
        self.classes[class.unwrap_or(CLASSES_MS.len())] += 1;
        self.sum_ns = self.sum_ns.saturating_add(took_ns);
    }

    fn distribution(&self) -> Distribution {
        let mut count = 0;
        let mut classes = Vec::new();
        for (end, of_class) in CLASSES_MS.iter().zip(&self.classes) {
            count += of_class;
            classes.push((f64::from(*end) / 1e3, count));
        }
        let sum_seconds = Duration::from_nanos(self.sum_ns).as_secs_f64();
        Distribution { classes, sum_seconds, count: self.classes.iter().sum() }
    }
}

/// The moments of raises.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// Moment of the input whose effects are carried out.
    taken: u64,
    open: BTreeMap<Condition, Raise>,
    done: VecDeque<Raise>,
    times: [Times; COUNTED.len()],
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
            let Some(raise) = self.open.remove(&condition) else { continue };
            self.count(&raise);
            self.done.push_back(raise);
        }
        while self.done.len() > KEPT {
            self.done.pop_front();
        }
    }

    fn count(&mut self, raise: &Raise) {
        for ((moment, _), times) in COUNTED.iter().zip(&mut self.times) {
            if let Some(at) = raise.at.get(moment) {
                times.add(at.saturating_sub(raise.at[&Moment::T01]));
            }
        }
    }

    /// Times of all raises that are done, by the moment up to which they are.
    pub(super) fn times(&self) -> Vec<(&'static str, Distribution)> {
        let times = COUNTED.iter().zip(&self.times);
        times.map(|((_, name), times)| (*name, times.distribution())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_up_to_the_end_of_their_class() {
        let mut stamps = Stamps::default();
        let raise = |after: &[(Moment, u64)]| {
            let start = (Moment::T01, 5 * NS_PER_MS);
            let after = after.iter().map(|(moment, ms)| (*moment, (5 + ms) * NS_PER_MS));
            let at = after.chain([start]).collect();
            Raise { alarm: "a@agent".to_owned(), event: 1, objects: 0, at }
        };
        stamps.count(&raise(&[(Moment::T03, 2), (Moment::T08, 3)]));
        stamps.count(&raise(&[(Moment::T03, 7), (Moment::T05, 2000), (Moment::T08, 9)]));
        let times = stamps.times();
        let counts = |at: usize| {
            let (name, Distribution { classes, sum_seconds, count }) = &times[at];
            let classes: Vec<u64> = classes.iter().map(|(_, count)| *count).collect();
            (*name, classes, (sum_seconds * 1e3).round(), *count)
        };
        let shown = vec![0, 1, 1, 2, 2, 2, 2, 2, 2];
        assert_eq!(counts(0), ("alarm-shown", shown, 9.0, 2));
        assert_eq!(counts(1), ("impact-shown", vec![0; 9], 2000.0, 1), "above all classes");
        let told = vec![0, 0, 1, 2, 2, 2, 2, 2, 2];
        assert_eq!(counts(2), ("listeners-told", told, 12.0, 2));
    }
}
