//! Consequences of alarms for each other, for objects and for reporters: causes, impacts, silence and latches.

use std::collections::BTreeSet;

use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use super::{Effects, Faults};
use crate::alarm::{Alarm, Change};
use crate::condition::Condition;
use crate::impact::{Difference, ImpactCount, ImpactState};
use crate::latch::{Latch, LatchError, LatchKind, LatchRequest};
use crate::report::{Impact, Report, Silence, Source};
use crate::resource::Resource;
use crate::stored::Row;
use crate::types::{Effect, MONITOR_SILENT};

/// Latches that are kept: more than a box has ports.
const MAX_LATCHES: usize = 4096;

impl Faults {
    /// Open alarms whose impact is to be looked for again when the graph has changed.
    pub fn with_impact(&self) -> BTreeSet<Condition> {
        let alarms = self.impacts.alarms();
        let with_impact =
            alarms.filter(|it| self.alarm(it).is_some_and(|alarm| alarm.impact.is_some()));
        with_impact.cloned().collect()
    }

    /// Latches that are set, by their conditions.
    pub fn latches(&self) -> impl Iterator<Item = &Latch> {
        self.latches.values()
    }

    /// Sets or lifts a latch. A latch that is set already keeps its owner, who may give it another reason, and a fence;
    /// lifting a latch that is not set changes nothing.
    ///
    /// # Errors
    /// When it is another's, when the resource has no such latch, or when there are too many.
    pub fn latch(&mut self, request: LatchRequest, now: Now) -> Result<Effects, LatchError> {
        let LatchRequest { kind, resource, is_set, by, reason, overrides, is_fenced } = request;
        if !matches!(resource, Resource::Interface(_) | Resource::NextHop(_)) {
            return Err(LatchError::Kind(resource));
        }
        let condition = Condition::new(kind.alarm_type(), resource.clone());
        let before = self.latches.get(&condition);
        match (is_set, before) {
            (false, None) => return Ok(Effects::default()),
            (false, Some(latch)) if latch.by != by && !overrides => {
                return Err(LatchError::OfAnother { resource, by: latch.by.clone() });
            }
            (false, Some(_)) => {
                self.latches.remove(&condition);
                self.effects.rows.push(Row::without_latch(&condition));
                self.report(Source::Latches, Report::ended(condition.clone(), now.unix_ns), now);
                self.refence(&condition, now);
            }
            (true, Some(latch)) if latch.by != by && is_fenced && !latch.is_fenced => {
                return Err(LatchError::Unfenced { resource, by: latch.by.clone() });
            }
            (true, Some(latch)) if latch.by != by => return Ok(Effects::default()),
            (true, Some(latch)) => {
                let reason = if reason.is_empty() { latch.reason.clone() } else { reason };
                let is_fenced = is_fenced || latch.is_fenced;
                let changed = Latch { reason, is_fenced, ..latch.clone() };
                if changed == *latch {
                    return Ok(Effects::default());
                }
                self.set_latch(condition, changed, now);
            }
            (true, None) if self.latches.len() >= MAX_LATCHES => {
                return Err(LatchError::TooMany(MAX_LATCHES));
            }
            (true, None) => {
                let latch = Latch { kind, resource, by, reason, at_ns: now.unix_ns, is_fenced };
                self.set_latch(condition, latch, now);
            }
        }
        self.effects.are_latches_changed = true;
        Ok(self.take_effects(now))
    }

    fn set_latch(&mut self, condition: Condition, latch: Latch, now: Now) {
        self.effects.rows.push(Row::of_latch(&latch));
        let report = report_of(&latch);
        self.latches.insert(condition.clone(), latch);
        self.report(Source::Latches, report, now);
        self.refence(&condition, now);
    }

    /// The words of all latches, as a level.
    pub(crate) fn latch_level(&self) -> Vec<Report> {
        self.latches.values().map(report_of).collect()
    }

    /// Takes in that an alarm is open, or that its rule or its holders are others, and asks for its impact.
    pub(crate) fn open_impact(&mut self, condition: &Condition, now: Now) {
        let rule = self.settings.rule(condition);
        let Some(tracked) = self.conditions.get(condition) else { return };
        let own_status = tracked.own_status(rule);
        let own = self.objects_of(&condition.resource);
        let difference = self.impacts.open(condition, own, own_status);
        if rule.effect == Effect::Warn {
            let none = self.impacts.set(condition, rule.effect, &Impact::default());
            self.take_difference(none, now);
        } else {
            self.effects.wanted_impacts.insert(condition.clone());
        }
        self.take_difference(difference, now);
    }

    pub(crate) fn take_impact(&mut self, condition: &Condition, impact: &Impact, now: Now) {
        let rule = self.settings.rule(condition);
        let Some(alarm) = self.alarm(condition).cloned() else { return };
        let Some(before) = alarm.impact else { return };
        let difference = self.impacts.set(condition, rule.effect, impact);
        let (down, degraded) = self.impacts.count(condition);
        let state = match impact.is_truncated {
            true => ImpactState::Truncated,
            false => ImpactState::Complete,
        };
        let after = ImpactCount { state, down, degraded };
        self.take_difference(difference, now);
        if let Some(tracked) = self.conditions.get_mut(condition) {
            tracked.is_impact_known = true;
        }
        self.refence(condition, now);
        if before == after {
            return;
        }
        let is_first = before.state == ImpactState::Pending && down + degraded > 0;
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        let Some(alarm) = tracked.alarm.as_mut() else { return };
        alarm.impact = Some(after);
        if is_first {
            let alarm = alarm.clone();
            self.tell(Change::Impact, alarm, now);
        } else {
            // Shown at once, and told a second after the last change at the earliest.
            tracked.has_unshown |= down + degraded > 0 || before.down + before.degraded > 0;
            self.effects.shown.insert(condition.clone());
            self.judge(condition, now);
        }
    }

    /// Takes in which objects have another status, and judges the causes of alarms that this may bear on.
    pub(crate) fn take_difference(&mut self, difference: Difference, now: Now) {
        self.effects.marks.extend(difference.marks);
        difference.watched.iter().for_each(|object| self.groups.outdate(object));
        for condition in difference.alarms {
            self.judge_cause(&condition, now);
        }
    }

    /// Tells the cause of an open alarm if it is another one than before.
    pub(crate) fn judge_cause(&mut self, condition: &Condition, now: Now) {
        let Some(alarm) = self.alarm(condition).cloned() else { return };
        let cause = self.cause(&alarm);
        if cause != alarm.cause {
            let was_root = alarm.was_root || cause.is_none();
            self.tell(Change::Cause, Alarm { cause, was_root, ..alarm }, now);
        }
    }

    /// The alarm that an alarm is caused by: of several, the one that began first, and one on a shelf only if all are. It is
    /// also the root of two that have each other's objects. An uplink group or a bond is caused by what its members have, and
    /// never the other way round.
    pub(crate) fn cause(&self, alarm: &Alarm) -> Option<Condition> {
        let resource = &alarm.condition.resource;
        if let Resource::Group(name) = resource {
            return self.cause_of_group(name);
        }
        let order = |alarm: &Alarm| (alarm.created_ns, alarm.condition.clone());
        let causes = self.impacts.causes(&alarm.condition).into_iter();
        let causes = causes.filter_map(|condition| self.alarm(condition));
        let causes = causes.filter(|it| !self.is_member_of(resource, &it.condition.resource));
        let causes = causes.filter(|cause| {
            order(cause) < order(alarm)
                || !self.impacts.causes(&cause.condition).contains(&&alarm.condition)
        });
        let first = causes.min_by_key(|cause| (cause.shelf.is_some(), order(cause)));
        let first = first.map(|cause| cause.condition.clone());
        first.or_else(|| self.cause_of_bond(alarm))
    }

    /// Notes which sources have not repeated their words on a condition in time.
    pub(crate) fn notice_silence(&mut self, condition: &Condition, now: Now) {
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        let mut silent = Vec::new();
        for (source, holder) in &mut tracked.holders {
            let due = holder.silence.filter(|deadline| deadline.at <= now.monotonic);
            if let Some(deadline) = due.filter(|_| !holder.is_silent) {
                holder.is_silent = matches!(deadline.silence, Silence::Lingers(_));
                silent.push((source.clone(), holder.is_silent));
            }
        }
        for (source, lingers) in silent {
            if lingers {
                self.note_silence(&source, condition, true, now);
                if self.alarm(condition).is_some() {
                    self.open_impact(condition, now);
                }
            } else {
                self.report(source, Report::ended(condition.clone(), now.unix_ns), now);
            }
        }
    }

    /// Notes who was silent in an earlier run, so that the alarm about it goes on. Nothing is judged, because the settings are
    /// not known yet.
    pub(crate) fn restore_silence(&mut self, now: Now) {
        let silences = self.conditions.keys().filter(|it| it.kind.name == MONITOR_SILENT);
        let silences: Vec<Condition> = silences.cloned().collect();
        for (condition, tracked) in &mut self.conditions {
            for (source, holder) in &mut tracked.holders {
                let Source::Reporter(name) = source else { continue };
                let deadline = holder.silence.filter(|it| it.at <= now.monotonic);
                let lingers = deadline.is_some_and(|it| matches!(it.silence, Silence::Lingers(_)));
                if lingers && silences.iter().any(|silence| silence.qualifier == *name) {
                    holder.is_silent = true;
                    self.silent.entry(name.clone()).or_default().insert(condition.clone());
                }
            }
        }
        let silent: BTreeSet<Condition> = self.silent.values().flatten().cloned().collect();
        silent.iter().for_each(|condition| self.open_impact(condition, now));
        for silence in silences.iter().filter(|it| !self.silent.contains_key(&it.qualifier)) {
            if let Some(tracked) = self.conditions.get_mut(silence) {
                tracked.holders.clear();
            }
        }
    }

    /// Notes whether a reporter is silent about a condition, and raises or ends the alarm about it.
    pub(crate) fn note_silence(
        &mut self,
        source: &Source,
        condition: &Condition,
        is_silent: bool,
        now: Now,
    ) {
        let Source::Reporter(name) = source else { return };
        let conditions = self.silent.entry(name.clone()).or_default();
        let is_new = match is_silent {
            true => conditions.insert(condition.clone()),
            false => conditions.remove(condition),
        };
        let is_over = conditions.is_empty();
        if is_over {
            self.silent.remove(name);
        }
        if !is_new {
            return;
        }
        let silence = Condition::new(MONITOR_SILENT, Resource::Agent).qualified(name);
        let report = match is_over {
            true => Report::ended(silence, now.unix_ns),
            false => {
                let text = format_smolstr!(
                    "{name} has not repeated in time that `{}` of {} holds",
                    condition.kind.name,
                    condition.resource
                );
                Report::holding(silence, text, now.unix_ns)
            }
        };
        self.report(Source::Diagnosis, report, now);
    }

    /// Ends what reporters have said whose `monitor` entries are gone.
    pub(crate) fn forget_reporters(&mut self, now: Now) {
        let reporters: BTreeSet<SmolStr> = self
            .conditions
            .values()
            .flat_map(|tracked| tracked.holders.keys())
            .filter_map(|source| match source {
                Source::Reporter(name) => Some(name.clone()),
                _ => None,
            })
            .collect();
        for name in reporters {
            if self.settings.monitor(&name).is_none() {
                self.take_level(Source::Reporter(name), Vec::new(), now);
            }
        }
    }

    /// True when a reporter says that a condition holds.
    pub(crate) fn holds_by(&self, condition: &Condition, source: &Source) -> bool {
        self.conditions.get(condition).is_some_and(|it| it.holders.contains_key(source))
    }

    /// True when any source says that a condition holds, whether there is an alarm of it or not.
    pub fn holds(&self, condition: &Condition) -> bool {
        self.conditions.get(condition).is_some_and(|it| !it.holders.is_empty())
    }
}

fn report_of(latch: &Latch) -> Report {
    let what = match latch.kind {
        LatchKind::ForcedDown => "is forced down",
        LatchKind::DataPlaneDown => "forwards nothing",
    };
    let mut text = format_smolstr!("{} {what}, says {}", latch.resource.item(), latch.by);
    if !latch.reason.is_empty() {
        text = format_smolstr!("{text}: {}", latch.reason);
    }
    Report::holding(latch.condition(), text, latch.at_ns)
}
