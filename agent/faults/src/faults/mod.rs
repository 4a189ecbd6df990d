//! From what sources report to alarms.
//!
//! Of each condition that holds, or held lately, there is a [`Tracked`] with the state of its diagnosis:
//!
//! ```text
//!             begins                raise-after            ends              clear-after
//!   ended --------------> rising ---------------> open -----------> falling -------------> ended
//!     ^                     |                      ^                   |
//!     +-------- ends -------+                      +----- begins ------+
//! ```
//!
//! While a condition flaps, its alarm stays in `falling` until it has been quiet for ten seconds.

mod consequences;
mod fences;
mod groups;
mod monitors;
mod probes;
mod rules;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{EffectiveStatus, FenceOwner, InstancePath, SharedPath};
use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use self::groups::Groups;
pub use self::groups::{GroupStanding, GroupState};
use self::rules::Rules;
pub use self::rules::{Evaluator, ResetError, RuleState, RuleStatus, Verdict};
use self::sessions::Sessions;
use crate::alarm::{Alarm, Change, Expiry, OperatorState, Transition};
use crate::condition::Condition;
use crate::fencing::Fencing;
use crate::flapping::{Begins, FLAPPING_LOSSES, FLAPPING_WINDOW};
use crate::impact::{ImpactCount, Impacts, Objects};
use crate::latch::Latch;
use crate::log::{Log, LogEntry};
use crate::policy::{Rule, Settings};
use crate::report::{Impact, Report, Silence, Source};
use crate::resource::Resource;
use crate::session::{SessionEvent, SessionInput};
use crate::stored::{LATCH_ROWS, Row, SESSION_ROWS};
use crate::types::{Effect, MONITOR_SILENT, Severity};

/// Conditions that are kept at a time. An alarm takes about a kilobyte, and four with its leaves in both models.
pub const MAX_CONDITIONS: usize = 10_000;
/// When conditions were left out, sources are asked for all they have once this many are left.
const ROOM_AFTER_OVERFLOW: usize = MAX_CONDITIONS / 10 * 9;
/// Pause between two times at which an alarm is shown for nothing but another occurrence.
const OCCURRENCES_INTERVAL: Duration = Duration::from_secs(1);
/// Ids of the log that are reserved with one write, so that an entry is told without waiting for the disk.
const RESERVED_IDS: u64 = 10_000;
/// Name of the row with the last reserved id; ids of alarms have an `@`.
const RESERVED_ROW: &str = "reserved-event-id";

/// An input of [`Faults`].
#[derive(Clone, Debug)]
pub enum Input {
    /// Conditions that changed.
    Reports(Source, Vec<Report>),
    /// All conditions that hold by a source: others have ended. After a start, and when a source has missed something.
    Level(Source, Vec<Report>),
    Settings(Arc<Settings>),
    /// Members of uplink groups that are neither configured nor on the box.
    Missing(BTreeSet<SmolStr>),
    /// The objects that do not work because of an open alarm, as they were found last.
    Impact(Condition, Impact),
    /// Results of threshold rules, by the conditions of their alarms.
    Verdicts(Vec<(Condition, Verdict)>),
    /// Owners of rules may read something else than before.
    Permissions,
    /// News for a maintenance session, by its id.
    Session(SmolStr, SessionInput),
    /// Id of this boot of the box.
    Booted(SmolStr),
    /// Time has passed; see [`Faults::due`].
    Due,
}

/// Work for the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Conditions whose alarm is to be shown as [`Faults::alarm`] now has it; without one, its entry is to go.
    pub shown: BTreeSet<Condition>,
    /// Transitions for listeners, in order. Transitions that are not [told](Transition::is_told) are for the log
    /// alone.
    pub transitions: Vec<Arc<Transition>>,
    /// Rows to write.
    pub rows: Vec<Row>,
    /// Objects whose status to show is another one; `None` for those that work again.
    pub marks: BTreeMap<SharedPath, Option<EffectiveStatus>>,
    /// Alarms whose impact is to be looked for.
    pub wanted_impacts: BTreeSet<Condition>,
    /// Rules, by the conditions of their alarms, whose state is to be shown; without one, its entry is to go.
    pub shown_rules: BTreeSet<Condition>,
    /// Uplink groups whose state is to be shown; without one, its entry is to go.
    pub shown_groups: BTreeSet<SmolStr>,
    /// Other resources are forced down than before.
    pub are_latches_changed: bool,
    /// Owners that want other resources shut or drained than before.
    pub changed_fences: BTreeSet<FenceOwner>,
    /// Sessions that are to be shown as [`Faults::session`] now has them; without one, its entry is to go.
    pub shown_sessions: BTreeSet<SmolStr>,
    /// Steps of sessions for those who follow them, in order.
    pub session_events: Vec<SessionEvent>,
    /// Other resources are maintained than before, or in another state.
    pub is_maintenance_changed: bool,
    /// Sources whose conditions were left out, and that have room again: each must report its level.
    pub wanted_levels: BTreeSet<Source>,
}

/// Reason for which an operator's word is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    #[error("no alarm `{0}` is open")]
    NotOpen(Condition),
}

/// All conditions and alarms.
#[derive(Debug)]
pub struct Faults {
    pub(crate) settings: Arc<Settings>,
    pub(crate) conditions: BTreeMap<Condition, Tracked>,
    /// Conditions by the moment at which they are to be looked at.
    timers: BTreeSet<(Duration, Condition)>,
    log: Log,
    /// Ids of the log up to this one may be given without a write.
    reserved_id: u64,
    /// Open alarms by severity, without those that are put aside.
    open: BTreeMap<Severity, u32>,
    shelved: u32,
    /// Sources whose reports were left out.
    left_out: BTreeSet<Source>,
    pub(crate) impacts: Impacts,
    pub(crate) objects: Box<dyn Objects>,
    pub(crate) latches: BTreeMap<Condition, Latch>,
    /// True after a start, until the settings say how the alarms of latches are judged.
    is_latch_level_due: bool,
    /// Conditions that reporters have not repeated, by reporter.
    pub(crate) silent: BTreeMap<SmolStr, BTreeSet<Condition>>,
    pub(crate) fencing: Fencing,
    pub(crate) groups: Groups,
    pub(crate) rules: Rules,
    pub(crate) sessions: Sessions,
    pub(crate) effects: Effects,
}

/// All that is known of one condition.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    /// Sources that say that it holds.
    pub(crate) holders: BTreeMap<Source, Holder>,
    begins: Begins,
    /// When it began to hold, by both clocks.
    since: Now,
    pub(crate) alarm: Option<Alarm>,
    /// Since when the condition of the alarm does not hold any more.
    falling_since: Option<Duration>,
    is_flapping: bool,
    /// When the alarm was shown last, and whether it has an occurrence that was not shown.
    shown_at: Duration,
    pub(crate) has_unshown: bool,
    timer: Option<Duration>,
    /// True when it was found once who suffers from the alarm, in this run or the one before.
    pub(crate) is_impact_known: bool,
}

/// Reasons for which the alarm of a condition is put aside.
#[derive(Clone, Debug, Default)]
struct Aside {
    shelf: Option<SmolStr>,
    /// A session that has the resource in maintenance.
    session: Option<SmolStr>,
}

impl Aside {
    fn is_empty(&self) -> bool {
        self.shelf.is_none() && self.session.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    severity: Option<Severity>,
    text: SmolStr,
    raise_after: Duration,
    pub(crate) silence: Option<Deadline>,
    pub(crate) is_silent: bool,
}

/// When a source should have repeated its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Duration,
    at_ns: u64,
    pub(crate) silence: Silence,
}

impl Deadline {
    fn after(silence: Silence, now: Now) -> Self {
        let time_ns = u64::try_from(silence.time().as_nanos()).unwrap_or(u64::MAX);
        let at_ns = now.unix_ns.saturating_add(time_ns);
        Self { at: now.monotonic + silence.time(), at_ns, silence }
    }

    /// The deadline of an earlier run, or of now if it has passed.
    fn restored(expiry: &Expiry, now: Now) -> Self {
        let left = Duration::from_nanos(expiry.at_ns.saturating_sub(now.unix_ns));
        let at = now.monotonic + left.min(expiry.silence.time());
        Self { at, at_ns: expiry.at_ns, silence: expiry.silence }
    }
}

impl Tracked {
    fn holds(&self) -> bool {
        !self.holders.is_empty()
    }

    fn severity(&self, rule: Rule, condition: &Condition) -> Severity {
        let reported = self.holders.values().filter_map(|holder| holder.severity).max();
        rule.severity.or(reported).unwrap_or(condition.kind.row.severity)
    }

    fn is_silent(&self) -> bool {
        self.holders.values().any(|holder| holder.is_silent)
    }

    /// The status that its own resource gets by it.
    pub(crate) fn own_status(&self, rule: Rule) -> Option<EffectiveStatus> {
        let by_effect = match rule.effect {
            Effect::Down => Some(EffectiveStatus::Down),
            Effect::Degrade => Some(EffectiveStatus::Degraded),
            Effect::Warn => None,
        };
        by_effect.max(self.is_silent().then_some(EffectiveStatus::Unknown))
    }

    fn expiries(&self) -> Vec<Expiry> {
        let with_deadline = self.holders.iter().filter_map(|(source, holder)| {
            let Deadline { at_ns, silence, .. } = holder.silence?;
            Some(Expiry { source: source.clone(), at_ns, silence })
        });
        with_deadline.collect()
    }

    fn text(&self) -> Option<&SmolStr> {
        self.holders.values().map(|holder| &holder.text).find(|text| !text.is_empty())
    }

    /// True when the condition has begun as often as the policy asks for. The first begin suffices without one.
    fn began_often_enough(&self, rule: Rule, now: Duration) -> bool {
        rule.count <= 1 || self.begins.within(rule.window, now) >= u64::from(rule.count)
    }

    /// The moment at which an alarm is raised, if the condition goes on.
    fn raise_at(&self, rule: Rule) -> Duration {
        let least = self.holders.values().map(|holder| holder.raise_after).max();
        self.since.monotonic + rule.raise_after.max(least.unwrap_or_default())
    }
}

impl Faults {
    pub fn new(objects: Box<dyn Objects>) -> Self {
        Self {
            settings: Arc::default(),
            conditions: BTreeMap::new(),
            timers: BTreeSet::new(),
            log: Log::default(),
            reserved_id: 0,
            open: BTreeMap::new(),
            shelved: 0,
            left_out: BTreeSet::new(),
            impacts: Impacts::default(),
            objects,
            latches: BTreeMap::new(),
            is_latch_level_due: false,
            silent: BTreeMap::new(),
            fencing: Fencing::default(),
            groups: Groups::default(),
            rules: Rules::default(),
            sessions: Sessions::default(),
            effects: Effects::default(),
        }
    }

    /// The alarms of an earlier run, from its rows, and its log. They are open until their sources have reported their level.
    /// Rows that this version cannot read are named in the list.
    pub fn restored(
        rows: impl IntoIterator<Item = (String, Vec<u8>)>,
        log: Vec<LogEntry>,
        objects: Box<dyn Objects>,
        now: Now,
    ) -> (Self, Vec<String>) {
        let mut faults = Self::new(objects);
        let mut unreadable = Vec::new();
        for (name, content) in rows {
            if name == RESERVED_ROW {
                let id = serde_json::from_slice(&content);
                faults.reserved_id = id.unwrap_or_default();
                continue;
            }
            if name.starts_with(LATCH_ROWS) {
                match serde_json::from_slice::<Latch>(&content) {
                    Ok(latch) => drop(faults.latches.insert(latch.condition(), latch)),
                    Err(_) => unreadable.push(name),
                }
                continue;
            }
            if name.starts_with(SESSION_ROWS) {
                match serde_json::from_slice(&content) {
                    Ok(session) => faults.sessions.restore(session, now),
                    Err(_) => unreadable.push(name),
                }
                continue;
            }
            match serde_json::from_slice(&content) {
                Ok(alarm) => faults.restore(alarm, now),
                Err(_) => unreadable.push(name),
            }
        }
        faults.effects.are_latches_changed = true;
        faults.is_latch_level_due = true;
        let latched: Vec<Condition> = faults.latches.keys().cloned().collect();
        latched.iter().for_each(|condition| faults.refence(condition, now));
        faults.begin_sessions();
        faults.log = Log::restored(log, faults.reserved_id);
        faults.restore_silence(now);
        (faults, unreadable)
    }

    /// The row of a run that ends in order: the next one goes on with the id after the last.
    pub fn last_row(&mut self) -> Row {
        self.reserved_id = self.log.last_id();
        self.reserved_row()
    }

    fn reserved_row(&self) -> Row {
        let content = Some(self.reserved_id.to_string().into_bytes());
        Row { name: RESERVED_ROW.to_owned(), content }
    }

    fn restore(&mut self, mut alarm: Alarm, now: Now) {
        let mut holder = Holder {
            severity: Some(alarm.severity),
            text: alarm.text.clone(),
            raise_after: Duration::ZERO,
            silence: None,
            is_silent: false,
        };
        let condition = alarm.condition.clone();
        let mut holders = BTreeMap::new();
        let is_silence = condition.kind.name == MONITOR_SILENT;
        for source in alarm.sources.iter().filter(|source| source.is_restored() || is_silence) {
            let expiry = alarm.expiries.iter().find(|expiry| expiry.source == *source);
            holder.silence = expiry.map(|expiry| Deadline::restored(expiry, now));
            holders.insert(source.clone(), holder.clone());
        }
        // Causes and impacts are found anew.
        alarm.cause = None;
        alarm.impact = alarm.impact.map(|_| ImpactCount::PENDING);
        self.count(&alarm, true);
        self.effects.shown.insert(condition.clone());
        let since = Now { monotonic: Duration::ZERO, unix_ns: alarm.created_ns };
        let tracked = Tracked {
            holders,
            since,
            alarm: Some(alarm),
            is_impact_known: true,
            ..Tracked::default()
        };
        self.conditions.insert(condition.clone(), tracked);
        self.open_impact(&condition, now);
        self.refence(&condition, now);
    }

    /// Takes an input in. The same inputs at the same times have the same effects.
    pub fn on(&mut self, input: Input, now: Now) -> Effects {
        match input {
            Input::Reports(source, reports) => {
                for report in reports {
                    // The word of a probe may come when its entry has gone.
                    if source == Source::Probes && !self.is_probed(&report.condition) {
                        continue;
                    }
                    self.report(source.clone(), report, now);
                }
            }
            Input::Level(source, reports) => self.take_level(source, reports, now),
            Input::Settings(settings) => {
                let before = std::mem::replace(&mut self.settings, settings);
                self.take_groups(before.groups(), now);
                self.forget_reporters(now);
                self.forget_probes(now);
                if std::mem::take(&mut self.is_latch_level_due) {
                    let latches = self.latch_level();
                    self.take_level(Source::Latches, latches, now);
                }
                self.judge_all(now);
                self.take_rules(now);
            }
            Input::Missing(missing) => self.take_missing(missing),
            Input::Impact(condition, impact) => self.take_impact(&condition, &impact, now),
            Input::Verdicts(verdicts) => self.take_verdicts(verdicts, now),
            Input::Permissions => self.judge_rules_anew(now),
            Input::Session(id, input) => self.take_session_input(&id, input, now),
            Input::Booted(boot) => self.take_boot(boot, now),
            Input::Due => {
                self.look_at_due(now);
                self.look_at_due_sessions(now);
            }
        }
        self.make_room(now);
        self.take_effects(now)
    }

    /// Sets what an operator says of an open alarm.
    ///
    /// # Errors
    /// When no such alarm is open.
    pub fn operate(
        &mut self,
        condition: &Condition,
        state: OperatorState,
        [operator, text]: [&str; 2],
        now: Now,
    ) -> Result<Effects, OperatorError> {
        let alarm = self.conditions.get_mut(condition).and_then(|it| it.alarm.as_mut());
        let alarm = alarm.ok_or_else(|| OperatorError::NotOpen(condition.clone()))?;
        alarm.operator_state = state;
        alarm.operator = operator.into();
        alarm.operator_text = text.into();
        let alarm = alarm.clone();
        self.tell(Change::Operator, alarm, now);
        Ok(self.take_effects(now))
    }

    /// When [`Input::Due`] is to be given next.
    pub fn due(&self) -> Option<Duration> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.fencing.due()).chain(self.sessions.due()).min()
    }

    /// The open alarm of a condition.
    pub fn alarm(&self, condition: &Condition) -> Option<&Alarm> {
        self.conditions.get(condition)?.alarm.as_ref()
    }

    /// Objects that do not work, or work worse, because of an open alarm, by list and key.
    pub fn affected(
        &self,
        condition: &Condition,
    ) -> impl Iterator<Item = (InstancePath, EffectiveStatus)> {
        self.impacts.affected(condition)
    }

    /// Open alarms, shelved ones among them, by their conditions.
    pub fn alarms(&self) -> impl Iterator<Item = &Alarm> {
        self.conditions.values().filter_map(|tracked| tracked.alarm.as_ref())
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// True when an alarm is shown with its impact, not before it.
    pub fn is_conservative(&self) -> bool {
        self.settings.is_conservative
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Number of open alarms of a severity, without those that are put aside.
    pub fn open(&self, severity: Severity) -> u32 {
        self.open.get(&severity).copied().unwrap_or_default()
    }

    /// Number of alarms that a shelf or a session puts aside.
    pub fn shelved(&self) -> u32 {
        self.shelved
    }

    pub(crate) fn take_level(&mut self, source: Source, reports: Vec<Report>, now: Now) {
        self.left_out.remove(&source);
        let named: BTreeSet<&Condition> =
            reports.iter().filter(|report| report.holds).map(|report| &report.condition).collect();
        let has_ended = |(condition, tracked): &(&Condition, &Tracked)| {
            tracked.holders.contains_key(&source) && !named.contains(*condition)
        };
        let ended = self.conditions.iter().filter(has_ended);
        let ended: Vec<Condition> = ended.map(|(condition, _)| condition.clone()).collect();
        for condition in ended {
            self.report(source.clone(), Report::ended(condition, now.unix_ns), now);
        }
        for report in reports {
            self.report(source.clone(), report, now);
        }
    }

    pub(crate) fn report(&mut self, source: Source, report: Report, now: Now) {
        let Report { condition, holds, begins, severity, text, seen_ns, raise_after, silence } =
            report;
        let is_new = !self.conditions.contains_key(&condition);
        if is_new && !holds && begins.is_none_or(|begins| begins == 0) {
            return;
        }
        if is_new && self.conditions.len() >= MAX_CONDITIONS && source != Source::Diagnosis {
            self.leave_out(source, now);
            return;
        }
        let tracked = self.conditions.entry(condition.clone()).or_default();
        let held = tracked.holds();
        if holds {
            // The wishes of a report count as long as the condition goes on.
            let asked = tracked.holders.get(&source).map(|holder| holder.raise_after);
            let raise_after = raise_after.max(asked.unwrap_or_default());
            let silence = silence.map(|silence| Deadline::after(silence, now));
            let holder = Holder { severity, text, raise_after, silence, is_silent: false };
            tracked.holders.insert(source.clone(), holder);
        } else {
            tracked.holders.remove(&source);
        }
        let begins = begins.unwrap_or(u64::from(holds && !held));
        if holds && !held {
            tracked.since = Now { monotonic: now.monotonic, unix_ns: seen_ns };
        }
        if begins > 0 || tracked.holds() != held {
            tracked.begins.note(begins, now.monotonic);
        }
        if let Some(alarm) = tracked.alarm.as_mut().filter(|_| begins > 0) {
            alarm.occurrences += begins;
            alarm.raised_ns = seen_ns;
            tracked.has_unshown = true;
        }
        self.notice_flapping(&condition, begins, now);
        self.judge(&condition, now);
        self.note_silence(&source, &condition, false, now);
    }

    /// Raises the condition that another one flaps, and counts what makes it go on.
    fn notice_flapping(&mut self, condition: &Condition, begins: u64, now: Now) {
        let Some(kind) = condition.kind.row.flapping else { return };
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        if begins == 0 || !tracked.begins.flaps(now.monotonic) {
            return;
        }
        let losses = tracked.begins.within(FLAPPING_WINDOW, now.monotonic);
        let begins = if tracked.is_flapping { begins } else { losses };
        tracked.is_flapping = true;
        let report = Report {
            condition: Condition::new(kind, condition.resource.clone()),
            holds: true,
            begins: Some(begins),
            severity: None,
            text: format_smolstr!(
                "`{}` comes and goes: more than {FLAPPING_LOSSES} times within {} s",
                condition.kind.name,
                FLAPPING_WINDOW.as_secs()
            ),
            seen_ns: now.unix_ns,
            raise_after: Duration::ZERO,
            silence: None,
        };
        self.report(Source::Diagnosis, report, now);
    }

    /// Ends the condition that another one flaps once that has been quiet.
    fn notice_quiet(&mut self, condition: &Condition, now: Now) {
        let Some(kind) = condition.kind.row.flapping else { return };
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        if tracked.is_flapping && now.monotonic >= tracked.begins.quiet_at() {
            tracked.is_flapping = false;
            let flapping = Condition::new(kind, condition.resource.clone());
            self.report(Source::Diagnosis, Report::ended(flapping, now.unix_ns), now);
        }
    }

    fn look_at_due(&mut self, now: Now) {
        while let Some((at, condition)) = self.timers.first().cloned() {
            if at > now.monotonic {
                break;
            }
            self.timers.pop_first();
            if let Some(tracked) = self.conditions.get_mut(&condition) {
                tracked.timer = None;
            }
            self.notice_silence(&condition, now);
            self.notice_quiet(&condition, now);
            self.judge(&condition, now);
        }
    }

    pub(crate) fn judge_all(&mut self, now: Now) {
        let conditions: Vec<Condition> = self.conditions.keys().cloned().collect();
        for condition in &conditions {
            self.judge(condition, now);
            self.refence(condition, now);
        }
        // Whether an alarm is on a shelf bears on what it causes.
        for condition in &conditions {
            self.judge_cause(condition, now);
        }
    }

    /// Raises, changes or ends the alarm of a condition, or notes when to look at it again.
    pub(crate) fn judge(&mut self, condition: &Condition, now: Now) {
        let rule = self.settings.rule(condition);
        let aside = Aside {
            shelf: self.settings.shelf(condition).cloned(),
            session: self.suppressor(condition),
        };
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        tracked.begins.forget(rule.window, now.monotonic);
        let is_wanted = tracked.holds() && !rule.is_ignored;
        match tracked.alarm.clone() {
            None => {
                let is_due = now.monotonic >= tracked.raise_at(rule);
                if is_wanted && is_due && tracked.began_often_enough(rule, now.monotonic) {
                    self.raise(condition, rule, aside, now);
                }
            }
            Some(alarm) if is_wanted => {
                tracked.falling_since = None;
                self.change(alarm, rule, aside, now);
            }
            Some(alarm) => {
                let since = *tracked.falling_since.get_or_insert(now.monotonic);
                let has_settled = now.monotonic >= since + rule.clear_after;
                if rule.is_ignored || (has_settled && !tracked.is_flapping) {
                    self.clear(alarm, now);
                } else {
                    self.change(alarm, rule, aside, now);
                }
            }
        }
        self.schedule(condition, rule, now);
    }

    fn raise(&mut self, condition: &Condition, rule: Rule, aside: Aside, now: Now) {
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        let waited = now.monotonic.saturating_sub(tracked.since.monotonic);
        let begins = tracked.begins.within(rule.window.max(waited), now.monotonic);
        let alarm = Alarm {
            condition: condition.clone(),
            severity: tracked.severity(rule, condition),
            text: tracked.text().cloned().unwrap_or_default(),
            created_ns: tracked.since.unix_ns,
            raised_ns: tracked.since.unix_ns,
            changed_ns: now.unix_ns,
            transition: 0,
            occurrences: begins.max(1),
            sources: tracked.holders.keys().cloned().collect(),
            operator_state: OperatorState::None,
            operator: SmolStr::default(),
            operator_text: SmolStr::default(),
            is_told: aside.is_empty(),
            shelf: aside.shelf,
            suppressed_by: aside.session,
            was_root: true,
            cause: None,
            impact: impact_of(rule, None),
            expiries: tracked.expiries(),
        };
        tracked.falling_since = None;
        self.open_impact(condition, now);
        let cause = self.cause(&alarm);
        let alarm = Alarm { was_root: cause.is_none(), cause, ..alarm };
        self.count(&alarm, true);
        self.tell(Change::Raised, alarm, now);
    }

    /// Brings an open alarm to what its condition and the settings now say of it.
    fn change(&mut self, before: Alarm, rule: Rule, aside: Aside, now: Now) {
        let Some(tracked) = self.conditions.get_mut(&before.condition) else { return };
        let mut alarm = before.clone();
        if tracked.holds() {
            alarm.severity = tracked.severity(rule, &before.condition);
            alarm.text = tracked.text().cloned().unwrap_or_default();
            alarm.sources = tracked.holders.keys().cloned().collect();
            alarm.expiries = tracked.expiries();
            alarm.impact = impact_of(rule, alarm.impact);
        }
        alarm.is_told |= aside.is_empty();
        alarm.shelf = aside.shelf;
        alarm.suppressed_by = aside.session;
        if alarm != before {
            self.count(&before, false);
            self.count(&alarm, true);
            let change = change_between(&before, &alarm);
            self.tell(change, alarm, now);
            self.open_impact(&before.condition, now);
        } else if tracked.has_unshown && now.monotonic >= tracked.shown_at + OCCURRENCES_INTERVAL {
            self.tell(Change::Changed, alarm, now);
        }
    }

    fn clear(&mut self, alarm: Alarm, now: Now) {
        self.count(&alarm, false);
        self.effects.rows.push(Row::without(&alarm.condition));
        let transition = self.log_transition(Change::Cleared, alarm, now);
        if let Some(tracked) = self.conditions.get_mut(&transition.alarm.condition) {
            tracked.alarm = None;
            tracked.falling_since = None;
            tracked.has_unshown = false;
            tracked.is_impact_known = false;
        }
        let difference = self.impacts.close(&transition.alarm.condition);
        self.take_difference(difference, now);
        self.refence(&transition.alarm.condition, now);
    }

    /// Keeps an alarm as it is now, and has it shown, stored and told.
    pub(crate) fn tell(&mut self, change: Change, alarm: Alarm, now: Now) {
        let transition = self.log_transition(change, alarm, now);
        let alarm = &transition.alarm;
        self.effects.rows.push(Row::of(alarm));
        if let Some(tracked) = self.conditions.get_mut(&alarm.condition) {
            tracked.shown_at = now.monotonic;
            tracked.has_unshown = false;
            tracked.alarm = Some(alarm.clone());
        }
        let condition = alarm.condition.clone();
        self.refence(&condition, now);
    }

    fn log_transition(&mut self, change: Change, alarm: Alarm, now: Now) -> Arc<Transition> {
        self.effects.shown.insert(alarm.condition.clone());
        let severity_before = self.alarm(&alarm.condition).map(|before| before.severity);
        let transition = self.log.add(|id| {
            let alarm = Alarm { changed_ns: now.unix_ns, transition: id, ..alarm };
            Transition { id, time_ns: now.unix_ns, change, severity_before, alarm }
        });
        self.reserve_ids();
        self.effects.transitions.push(Arc::clone(&transition));
        transition
    }

    /// Reserves ids where the last entry of the log has one that is not reserved.
    pub(crate) fn reserve_ids(&mut self) {
        let last_id = self.log.last_id();
        if last_id > self.reserved_id {
            self.reserved_id = last_id + RESERVED_IDS;
            let row = self.reserved_row();
            self.effects.rows.push(row);
        }
    }

    /// Notes when a condition is to be looked at next, or forgets it when nothing is left of it.
    fn schedule(&mut self, condition: &Condition, rule: Rule, now: Now) {
        let Some(tracked) = self.conditions.get_mut(condition) else { return };
        if let Some(at) = tracked.timer.take() {
            self.timers.remove(&(at, condition.clone()));
        }
        let is_holding = tracked.holds();
        let raise = (tracked.alarm.is_none() && is_holding && !rule.is_ignored)
            .then(|| tracked.raise_at(rule))
            .filter(|at| *at > now.monotonic);
        let clear = tracked.falling_since.map(|since| since + rule.clear_after);
        let clear = clear.filter(|at| *at > now.monotonic);
        let quiet = tracked.is_flapping.then(|| tracked.begins.quiet_at());
        let show = tracked.has_unshown.then(|| tracked.shown_at + OCCURRENCES_INTERVAL);
        let is_idle = tracked.alarm.is_none() && !is_holding;
        let forget = is_idle.then(|| tracked.begins.forgotten_at(rule.window));
        if is_idle && !tracked.is_flapping && forget.is_some_and(|at| at <= now.monotonic) {
            self.conditions.remove(condition);
            return;
        }
        let silences = tracked.holders.values().filter(|holder| !holder.is_silent);
        let silence = silences.filter_map(|holder| Some(holder.silence?.at)).min();
        let next = [raise, clear, quiet, show, forget, silence].into_iter().flatten().min();
        if let Some(at) = next {
            tracked.timer = Some(at);
            self.timers.insert((at, condition.clone()));
        }
    }

    fn count(&mut self, alarm: &Alarm, is_added: bool) {
        let number = match alarm.is_aside() {
            true => &mut self.shelved,
            false => self.open.entry(alarm.severity).or_default(),
        };
        *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
    }

    /// Notes a report for which there is no room.
    fn leave_out(&mut self, source: Source, now: Now) {
        self.left_out.insert(source);
        let report = Report {
            condition: Condition::new("fault-overflow", Resource::Agent),
            holds: true,
            begins: Some(1),
            severity: None,
            text: format_smolstr!(
                "more than {MAX_CONDITIONS} conditions hold: others have no alarm"
            ),
            seen_ns: now.unix_ns,
            raise_after: Duration::ZERO,
            silence: None,
        };
        self.report(Source::Diagnosis, report, now);
    }

    /// Asks sources for their level once there is room for what was left out.
    fn make_room(&mut self, now: Now) {
        let overflow = Condition::new("fault-overflow", Resource::Agent);
        let has_room = self.left_out.is_empty() || self.conditions.len() <= ROOM_AFTER_OVERFLOW;
        if !has_room || !self.conditions.get(&overflow).is_some_and(Tracked::holds) {
            return;
        }
        self.effects.wanted_levels.extend(std::mem::take(&mut self.left_out));
        self.report(Source::Diagnosis, Report::ended(overflow, now.unix_ns), now);
    }

    /// All that has come of an input, after uplink groups and rules were judged by it.
    pub(crate) fn take_effects(&mut self, now: Now) -> Effects {
        self.note_maintained();
        self.judge_groups(now);
        self.judge_rules(now);
        self.effects.changed_fences.extend(self.fencing.take_changed(now.monotonic));
        self.mark_maintained();
        std::mem::take(&mut self.effects)
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::new(Box::new(()))
    }
}

/// The kind of change from one state of an open alarm to the next. An alarm that was put aside before anybody heard
/// of it is raised when it comes back.
fn change_between(before: &Alarm, after: &Alarm) -> Change {
    let ends_maintenance = before.suppressed_by.is_some() && after.suppressed_by.is_none();
    match (&before.shelf, &after.shelf) {
        _ if ends_maintenance && !before.is_told && after.is_told => Change::Raised,
        _ if ends_maintenance => Change::Unsuppressed,
        _ if before.suppressed_by.is_none() && after.suppressed_by.is_some() => Change::Suppressed,
        (None, Some(_)) => Change::Shelved,
        (Some(_), None) => Change::Unshelved,
        _ => Change::Changed,
    }
}

/// The impact that an alarm is shown with when its effect is that of a rule.
fn impact_of(rule: Rule, known: Option<ImpactCount>) -> Option<ImpactCount> {
    (rule.effect != Effect::Warn).then(|| known.unwrap_or(ImpactCount::PENDING))
}
