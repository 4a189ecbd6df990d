//! Judgement of alarm rules, by open alarms and by verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use super::{Effects, Faults};
use crate::alarm::{Alarm, Change, OperatorState, Transition};
use crate::condition::Condition;
use crate::report::{Report, Source};
use crate::rule::{AlarmRule, RULE_MATCHED, condition_of};

/// Evaluates the expressions of rules.
pub trait Evaluator: fmt::Debug + Send + Sync {
    /// True when an expression is true of an alarm.
    ///
    /// # Errors
    /// With the reason, when it cannot be evaluated.
    fn is_true(&self, expression: &str, alarm: &Alarm) -> Result<bool, String>;

    /// True when the owner of a rule may read an alarm, and what it is about.
    fn permits(&self, _owner: &str, _alarm: &Alarm) -> bool {
        true
    }
}

/// An evaluator that knows no expression.
impl Evaluator for () {
    fn is_true(&self, expression: &str, _: &Alarm) -> Result<bool, String> {
        Err(format!("`{expression}`: expressions are not evaluated here"))
    }
}

/// The result of a threshold rule in one period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    True,
    False,
    /// The box does not have a value that the expression asks for, or the owner may not read it.
    NoValue,
    /// The expression could not be evaluated.
    Failed,
}

/// The state of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStatus {
    Ok,
    Alarm,
    /// It cannot be judged, because values are not there or its owner may not read them.
    InsufficientData,
}

/// Reason for which a rule is not set back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    #[error("there is no alarm rule `{name}` of `{owner}`, or it is disabled")]
    NoSuchRule { owner: SmolStr, name: SmolStr },
    #[error("the alarm rule `{name}` of `{owner}` still fits the open alarm `{fits}`")]
    StillFits { owner: SmolStr, name: SmolStr, fits: SmolStr },
    #[error("the expression of the alarm rule `{name}` of `{owner}` is still true")]
    StillTrue { owner: SmolStr, name: SmolStr },
}

/// Results of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleState {
    pub rule: Arc<AlarmRule>,
    pub status: RuleStatus,
    /// Open alarms that it fits.
    pub matched: BTreeSet<Condition>,
    /// Periods in a row in which its expression was true.
    pub periods: u32,
    /// Since when it has this status. Nanoseconds since 1970.
    pub since_ns: u64,
    /// Transition by which it fired last; 0 before.
    pub last_event_id: u64,
    /// How often it fired, and how often its expression could not be evaluated, since the agent was started.
    pub fired: u64,
    pub errors: u64,
}

impl RuleState {
    fn new(rule: Arc<AlarmRule>, status: RuleStatus, now: Now) -> Self {
        Self {
            rule,
            status,
            matched: BTreeSet::new(),
            periods: 0,
            since_ns: now.unix_ns,
            last_event_id: 0,
            fired: 0,
            errors: 0,
        }
    }
}

/// Exact resource and type that the alarms of a rule have; `None` where the rule has a pattern.
type IndexKey = (Option<SmolStr>, Option<SmolStr>);

/// All rules, found by what their alarms have to be.
#[derive(Debug)]
pub(crate) struct Rules {
    evaluator: Box<dyn Evaluator>,
    index: BTreeMap<IndexKey, Vec<Condition>>,
    states: BTreeMap<Condition, RuleState>,
    /// Rules that were looked at because of an alarm.
    looked_at: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            evaluator: Box::new(()),
            index: BTreeMap::new(),
            states: BTreeMap::new(),
            looked_at: 0,
        }
    }
}

impl Rules {
    /// Rules that may fit an alarm. Of those with two patterns, all are looked at.
    fn candidates(&mut self, condition: &Condition) -> Vec<Condition> {
        let resource = SmolStr::from(condition.resource.to_string());
        let kind = &condition.kind.name;
        let keys = [
            (Some(resource.clone()), Some(kind.clone())),
            (Some(resource), None),
            (None, Some(kind.clone())),
            (None, None),
        ];
        let found: Vec<Condition> =
            keys.iter().filter_map(|key| self.index.get(key)).flatten().cloned().collect();
        self.looked_at += u64::try_from(found.len()).unwrap_or(u64::MAX);
        let fits = |rule: &Condition| {
            let state = self.states.get(rule);
            state.is_some_and(|state| state.rule.filter.matches(condition))
        };
        found.into_iter().filter(fits).collect()
    }

    /// Whether a rule fits an open alarm. An expression that cannot be evaluated fits nothing.
    fn verdict(&mut self, rule: &Condition, alarm: &Alarm) -> Verdict {
        let Some(state) = self.states.get_mut(rule) else { return Verdict::False };
        if !self.evaluator.permits(&state.rule.owner, alarm) {
            return Verdict::NoValue;
        }
        let Some(expression) = &state.rule.expression else { return Verdict::True };
        match self.evaluator.is_true(expression, alarm) {
            Ok(true) => Verdict::True,
            Ok(false) => Verdict::False,
            Err(_) => {
                state.errors += 1;
                Verdict::False
            }
        }
    }
}

impl Faults {
    #[must_use]
    pub fn with_evaluator(mut self, evaluator: Box<dyn Evaluator>) -> Self {
        self.rules.evaluator = evaluator;
        self
    }

    /// Results of a rule, by the condition of its alarm.
    pub fn rule_state(&self, rule: &Condition) -> Option<&RuleState> {
        self.rules.states.get(rule)
    }

    /// Takes the rules of the settings in place of those before. New rules are judged by all open alarms.
    pub(crate) fn take_rules(&mut self, now: Now) {
        let settings = Arc::clone(&self.settings);
        let mut before = std::mem::take(&mut self.rules.states);
        self.rules.index.clear();
        let mut new = BTreeSet::new();
        for rule in &settings.alarm_rules {
            let condition = rule.condition();
            if rule.threshold.is_none() {
                let literal = |glob: &crate::Glob| glob.literal().map(SmolStr::from);
                let key = (literal(&rule.filter.resource), literal(&rule.filter.kind));
                self.rules.index.entry(key).or_default().push(condition.clone());
            }
            let kept = before.remove(&condition).filter(|state| state.rule == *rule);
            let state = kept.unwrap_or_else(|| {
                new.insert(condition.clone());
                RuleState::new(Arc::clone(rule), self.first_status(rule, &condition), now)
            });
            self.rules.states.insert(condition, state);
        }
        self.effects.shown_rules.extend(before.into_keys());
        if !new.is_empty() {
            self.judge_open_alarms(&new, now);
            self.effects.shown_rules.extend(new);
        }
        self.end_alarms_of_rules(now);
    }

    /// The status of a rule that was not looked at yet. An alarm of an earlier run stays where nothing says at once whether it
    /// has ended.
    fn first_status(&self, rule: &AlarmRule, condition: &Condition) -> RuleStatus {
        let stays = rule.is_reset_by_hand || rule.threshold.is_some();
        match (stays && self.is_held_by_rules(condition), rule.threshold) {
            (true, _) => RuleStatus::Alarm,
            (false, Some(_)) => RuleStatus::InsufficientData,
            (false, None) => RuleStatus::Ok,
        }
    }

    fn is_held_by_rules(&self, condition: &Condition) -> bool {
        let tracked = self.conditions.get(condition);
        tracked.is_some_and(|it| it.holders.contains_key(&Source::Rules))
    }

    /// Judges all event rules anew, because their owners may read something else than before.
    pub(crate) fn judge_rules_anew(&mut self, now: Now) {
        let rules = self.rules.states.iter();
        let rules = rules.filter(|(_, state)| state.rule.threshold.is_none());
        let rules: BTreeSet<Condition> = rules.map(|(rule, _)| rule.clone()).collect();
        let mut had_matched = BTreeSet::new();
        for rule in &rules {
            let Some(state) = self.rules.states.get_mut(rule) else { continue };
            if !std::mem::take(&mut state.matched).is_empty() {
                had_matched.insert(rule);
            }
            if state.status == RuleStatus::InsufficientData {
                self.set_status(rule, RuleStatus::Ok, now);
            }
        }
        self.judge_open_alarms(&rules, now);
        for rule in had_matched {
            let has_matched = self.rules.states.get(rule).is_some_and(|it| !it.matched.is_empty());
            if !has_matched {
                self.settle(rule, RuleStatus::InsufficientData, now);
            }
        }
    }

    fn judge_open_alarms(&mut self, rules: &BTreeSet<Condition>, now: Now) {
        let alarms: Vec<Alarm> = self.alarms().filter(|alarm| is_judged(alarm)).cloned().collect();
        for alarm in &alarms {
            for rule in self.rules.candidates(&alarm.condition) {
                if rules.contains(&rule) {
                    let verdict = self.rules.verdict(&rule, alarm);
                    self.take_verdict(&rule, alarm, verdict, false, now);
                }
            }
        }
    }

    /// Ends the alarms of rules that are not in alarm, or are gone: those of an earlier run, too.
    fn end_alarms_of_rules(&mut self, now: Now) {
        let held = self.conditions.iter();
        let held = held.filter(|(_, tracked)| tracked.holders.contains_key(&Source::Rules));
        let has_ended = |rule: &&Condition| {
            let state = self.rules.states.get(*rule);
            state.is_none_or(|state| state.status != RuleStatus::Alarm)
        };
        let ended: Vec<Condition> = held.map(|(it, _)| it).filter(has_ended).cloned().collect();
        for rule in ended {
            self.report(Source::Rules, Report::ended(rule, now.unix_ns), now);
        }
    }

    /// Sets a rule back whose alarm stays until somebody does.
    ///
    /// # Errors
    /// When there is no such rule, or it would fire again at once.
    pub fn reset_rule(&mut self, owner: &str, name: &str, now: Now) -> Result<Effects, ResetError> {
        let owner = SmolStr::from(owner);
        let name = SmolStr::from(name);
        let rule = condition_of(&owner, &name);
        let Some(state) = self.rules.states.get(&rule) else {
            return Err(ResetError::NoSuchRule { owner, name });
        };
        if let Some(fits) = state.matched.first() {
            let fits = format_smolstr!("{fits}");
            return Err(ResetError::StillFits { owner, name, fits });
        }
        if state.rule.threshold.is_some_and(|threshold| state.periods >= threshold.count) {
            return Err(ResetError::StillTrue { owner, name });
        }
        if state.status == RuleStatus::Alarm {
            self.set_status(&rule, RuleStatus::Ok, now);
            self.report(Source::Rules, Report::ended(rule, now.unix_ns), now);
        }
        Ok(self.take_effects(now))
    }

    /// Takes in what came of threshold rules in a period.
    pub(crate) fn take_verdicts(&mut self, verdicts: Vec<(Condition, Verdict)>, now: Now) {
        for (rule, verdict) in verdicts {
            // The verdict may come when the rule has gone, or has become an event rule.
            let Some(state) = self.rules.states.get_mut(&rule) else { continue };
            let Some(threshold) = state.rule.threshold else { continue };
            match verdict {
                Verdict::True => {
                    state.periods = state.periods.saturating_add(1);
                    if state.periods >= threshold.count {
                        let fires_again = state.rule.repeats;
                        self.fire(&rule, fires_again, now);
                    } else if state.status == RuleStatus::InsufficientData {
                        self.set_status(&rule, RuleStatus::Ok, now);
                    }
                }
                Verdict::False => {
                    state.periods = 0;
                    self.settle(&rule, RuleStatus::Ok, now);
                }
                Verdict::NoValue | Verdict::Failed => {
                    state.periods = 0;
                    state.errors += u64::from(verdict == Verdict::Failed);
                    self.effects.shown_rules.insert(rule.clone());
                    self.settle(&rule, RuleStatus::InsufficientData, now);
                }
            }
        }
    }

    /// Judges rules by the changes of alarms that were not looked at yet.
    pub(crate) fn judge_rules(&mut self, now: Now) {
        if self.rules.states.is_empty() {
            return;
        }
        let transitions = self.effects.transitions.clone();
        for transition in transitions {
            if transition.alarm.condition.kind.name != RULE_MATCHED {
                self.judge_rules_by(&transition, now);
            }
        }
    }

    fn judge_rules_by(&mut self, transition: &Transition, now: Now) {
        let alarm = &transition.alarm;
        let is_open = transition.change != Change::Cleared && is_judged(alarm);
        let is_raised = matches!(transition.change, Change::Raised | Change::Changed)
            && alarm.operator_state == OperatorState::None;
        for rule in self.rules.candidates(&alarm.condition) {
            let verdict = if is_open { self.rules.verdict(&rule, alarm) } else { Verdict::False };
            self.take_verdict(&rule, alarm, verdict, is_raised, now);
        }
    }

    /// Takes in whether an event rule fits an alarm, which has begun, or begun again, if it `is_raised`.
    fn take_verdict(
        &mut self,
        rule: &Condition,
        alarm: &Alarm,
        verdict: Verdict,
        is_raised: bool,
        now: Now,
    ) {
        let Some(state) = self.rules.states.get_mut(rule) else { return };
        if verdict == Verdict::True {
            state.matched.insert(alarm.condition.clone());
            let fires_again = is_raised && state.rule.repeats;
            if self.fire(rule, fires_again, now)
                && let Some(state) = self.rules.states.get_mut(rule)
            {
                state.last_event_id = alarm.transition;
            }
            return;
        }
        self.effects.shown_rules.insert(rule.clone()); // its count of errors may be another one
        let was_matched = state.matched.remove(&alarm.condition);
        if verdict == Verdict::NoValue && state.status == RuleStatus::Ok {
            self.set_status(rule, RuleStatus::InsufficientData, now);
        } else if was_matched && state.matched.is_empty() {
            self.settle(rule, RuleStatus::Ok, now);
        }
    }

    /// Brings a rule into alarm. A rule that is in alarm has another occurrence if it `fires_again`. True when it
    /// fired.
    fn fire(&mut self, rule: &Condition, fires_again: bool, now: Now) -> bool {
        let Some(state) = self.rules.states.get(rule) else { return false };
        let was_in_alarm = state.status == RuleStatus::Alarm;
        if was_in_alarm && !fires_again {
            return false;
        }
        // The alarm of an earlier run goes on: it has not begun again.
        let is_restored = !was_in_alarm && self.is_held_by_rules(rule);
        let report = Report {
            begins: (!is_restored).then_some(1),
            severity: Some(state.rule.severity),
            ..Report::holding(rule.clone(), state.rule.text(), now.unix_ns)
        };
        self.set_status(rule, RuleStatus::Alarm, now);
        if let Some(state) = self.rules.states.get_mut(rule) {
            state.fired += 1;
        }
        self.report(Source::Rules, report, now);
        true
    }

    /// Gives a rule that nothing holds in alarm another status. A rule that is set back by hand stays in alarm.
    fn settle(&mut self, rule: &Condition, status: RuleStatus, now: Now) {
        let Some(state) = self.rules.states.get(rule) else { return };
        let was_in_alarm = state.status == RuleStatus::Alarm;
        if was_in_alarm && state.rule.is_reset_by_hand {
            return;
        }
        self.set_status(rule, status, now);
        if was_in_alarm {
            self.report(Source::Rules, Report::ended(rule.clone(), now.unix_ns), now);
        }
    }

    fn set_status(&mut self, rule: &Condition, status: RuleStatus, now: Now) {
        let Some(state) = self.rules.states.get_mut(rule) else { return };
        if state.status != status {
            state.since_ns = now.unix_ns;
        }
        state.status = status;
        self.effects.shown_rules.insert(rule.clone());
    }
}

/// True for alarms that rules fit: what another alarm causes, or what is put aside, fires nothing.
fn is_judged(alarm: &Alarm) -> bool {
    alarm.cause.is_none() && !alarm.is_aside() && alarm.condition.kind.name != RULE_MATCHED
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Filter, Glob, Input, MAX_RULES, Settings, Severity, Threshold};

    /// Knows `severe`, which is true from MAJOR on, and fails with everything else.
    #[derive(Debug)]
    struct Severe;

    impl Evaluator for Severe {
        fn is_true(&self, expression: &str, alarm: &Alarm) -> Result<bool, String> {
            match expression {
                "severe" => Ok(alarm.severity >= Severity::Major),
                other => Err(other.to_owned()),
            }
        }
    }

    fn rule(name: &str, kind: &str, resource: &str, expression: &str) -> AlarmRule {
        AlarmRule {
            owner: "noc".into(),
            name: name.into(),
            severity: Severity::Major,
            repeats: false,
            is_reset_by_hand: false,
            threshold: None,
            filter: Filter { kind: Glob::new(kind), resource: Glob::new(resource) },
            expression: (!expression.is_empty()).then(|| expression.into()),
            description: SmolStr::default(),
        }
    }

    fn now() -> Now {
        Now { monotonic: Duration::from_secs(60), unix_ns: 60 }
    }

    fn faults(rules: Vec<AlarmRule>) -> Faults {
        let mut faults = Faults::default().with_evaluator(Box::new(Severe));
        let settings = Settings::default().with_alarm_rules(rules);
        faults.on(Input::Settings(settings.into()), now());
        faults
    }

    /// Changes of alarms of rules that come of a report about `id`.
    fn report(faults: &mut Faults, id: &str, holds: bool) -> Vec<String> {
        let condition: Condition = id.parse().unwrap();
        let report = match holds {
            true => Report::holding(condition, "", 1),
            false => Report::ended(condition, 1),
        };
        let effects = faults.on(Input::Reports(Source::Engine, vec![report]), now());
        let of_rules = effects.transitions.iter().filter_map(|transition| {
            let condition = &transition.alarm.condition;
            let is_of_rule = condition.kind.name == RULE_MATCHED;
            is_of_rule.then(|| format!("{} {}", transition.change.name(), condition.qualifier))
        });
        of_rules.collect()
    }

    #[test]
    fn a_rule_fires_when_it_begins_to_fit_and_is_ok_when_nothing_fits() {
        let mut faults = faults(vec![rule("links", "link-*", "interface:eth*", "severe")]);
        assert_eq!(report(&mut faults, "link-down@interface:eth0", true), ["raised noc/links"]);
        assert_eq!(report(&mut faults, "link-down@interface:eth1", true), [""; 0]);
        assert_eq!(report(&mut faults, "link-down@interface:wan0", true), [""; 0]);
        assert_eq!(report(&mut faults, "link-flapping@interface:eth2", true), [""; 0], "MINOR");
        assert_eq!(report(&mut faults, "link-down@interface:eth0", false), [""; 0]);
        assert_eq!(report(&mut faults, "link-down@interface:eth1", false), ["cleared noc/links"]);
        let condition = rule("links", "", "", "").condition();
        let state = faults.rule_state(&condition).unwrap();
        assert_eq!((state.fired, state.errors, state.matched.len()), (1, 0, 0));
    }

    #[test]
    fn a_rule_that_repeats_counts_each_alarm() {
        let repeating = AlarmRule { repeats: true, ..rule("all", "link-*", "interface:*", "") };
        let mut faults = faults(vec![repeating.clone()]);
        report(&mut faults, "link-down@interface:eth0", true);
        report(&mut faults, "link-down@interface:eth1", true);
        assert_eq!(faults.rule_state(&repeating.condition()).unwrap().fired, 2);
        assert_eq!(faults.alarm(&repeating.condition()).unwrap().occurrences, 2);
    }

    #[test]
    fn a_rule_that_fails_counts_errors_and_stops_no_other() {
        let wrong = rule("wrong", "*", "interface:eth0", "no such name");
        let right = rule("right", "*", "interface:eth0", "severe");
        let mut faults = faults(vec![wrong.clone(), right]);
        assert_eq!(report(&mut faults, "link-down@interface:eth0", true), ["raised noc/right"]);
        assert_eq!(faults.rule_state(&wrong.condition()).unwrap().errors, 1);
    }

    #[test]
    fn rules_follow_the_settings_and_begin_with_what_is_open() {
        let mut faults = faults(Vec::new());
        report(&mut faults, "link-down@interface:eth0", true);
        let rule = rule("links", "link-down", "interface:eth0", "");
        let settings = |rules| Settings::default().with_alarm_rules(rules).into();
        faults.on(Input::Settings(settings(vec![rule.clone()])), now());
        assert!(faults.alarm(&rule.condition()).is_some());
        faults.on(Input::Settings(settings(Vec::new())), now());
        assert!(faults.alarm(&rule.condition()).is_none());
        assert!(faults.rule_state(&rule.condition()).is_none());
    }

    #[test]
    fn a_rule_that_is_reset_by_hand_stays_in_alarm_until_then() {
        let by_hand =
            AlarmRule { is_reset_by_hand: true, ..rule("links", "link-*", "interface:eth0", "") };
        let mut faults = faults(vec![by_hand.clone()]);
        let down = "link-down@interface:eth0";
        assert_eq!(report(&mut faults, down, true), ["raised noc/links"]);
        let still = faults.reset_rule("noc", "links", now()).unwrap_err().to_string();
        assert!(still.contains(down), "{still}");
        assert_eq!(report(&mut faults, down, false), [""; 0]);
        assert_eq!(report(&mut faults, down, true), [""; 0], "it is in alarm");
        report(&mut faults, down, false);
        assert_eq!(faults.rule_state(&by_hand.condition()).unwrap().status, RuleStatus::Alarm);

        // A restart keeps the alarm.
        let rows = faults
            .alarms()
            .map(|alarm| (alarm.condition.to_string(), serde_json::to_vec(alarm).unwrap()));
        let rows: Vec<_> = rows.collect();
        let (restored, _) = Faults::restored(rows, Vec::new(), Box::new(()), now());
        let mut restored = restored.with_evaluator(Box::new(Severe));
        let settings = Settings::default().with_alarm_rules(vec![by_hand.clone()]);
        restored.on(Input::Settings(settings.into()), now());
        assert!(restored.alarm(&by_hand.condition()).is_some());

        restored.reset_rule("noc", "links", now()).unwrap();
        assert!(restored.alarm(&by_hand.condition()).is_none());
        restored.reset_rule("noc", "links", now()).unwrap();
        let unknown = restored.reset_rule("noc", "gremlins", now()).unwrap_err();
        assert!(matches!(unknown, ResetError::NoSuchRule { .. }), "{unknown}");
    }

    #[test]
    fn a_threshold_is_an_alarm_after_so_many_periods_in_a_row() {
        let threshold = Threshold { period: Duration::from_secs(1), count: 2 };
        let busy = AlarmRule { threshold: Some(threshold), ..rule("busy", "*", "*", "x") };
        let condition = busy.condition();
        let mut faults = faults(vec![busy]);
        assert_eq!(faults.rule_state(&condition).unwrap().status, RuleStatus::InsufficientData);
        report(&mut faults, "link-down@interface:eth0", true);
        let ok = RuleStatus::Ok;
        let alarm = RuleStatus::Alarm;
        let nothing = RuleStatus::InsufficientData;
        for (verdict, status, errors) in [
            (Verdict::True, ok, 0),
            (Verdict::False, ok, 0),
            (Verdict::True, ok, 0),
            (Verdict::True, alarm, 0),
            (Verdict::True, alarm, 0),
            (Verdict::NoValue, nothing, 0),
            (Verdict::True, ok, 0),
            (Verdict::Failed, nothing, 1),
            (Verdict::True, ok, 1),
            (Verdict::True, alarm, 1),
            (Verdict::False, ok, 1),
        ] {
            faults.on(Input::Verdicts(vec![(condition.clone(), verdict)]), now());
            let state = faults.rule_state(&condition).unwrap();
            assert_eq!((state.status, state.errors), (status, errors), "{verdict:?}");
            assert_eq!(faults.alarm(&condition).is_some(), status == alarm, "{verdict:?}");
        }
        assert_eq!(faults.rule_state(&condition).unwrap().fired, 2);
    }

    /// Knows whether owners may read alarms.
    #[derive(Debug)]
    struct Rights(std::sync::Arc<std::sync::atomic::AtomicBool>);

    impl Evaluator for Rights {
        fn is_true(&self, _: &str, _: &Alarm) -> Result<bool, String> {
            Ok(true)
        }

        fn permits(&self, _: &str, _: &Alarm) -> bool {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }

    #[test]
    fn an_owner_who_may_not_read_is_told_that_data_is_missing() {
        let rights = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let mut faults = Faults::default().with_evaluator(Box::new(Rights(rights.clone())));
        let links = rule("links", "link-*", "interface:*", "");
        let settings = Settings::default().with_alarm_rules(vec![links.clone()]);
        faults.on(Input::Settings(settings.into()), now());
        report(&mut faults, "link-down@interface:eth0", true);
        for (may_read, status) in [
            (false, RuleStatus::InsufficientData),
            (true, RuleStatus::Alarm),
            (false, RuleStatus::InsufficientData),
        ] {
            rights.store(may_read, std::sync::atomic::Ordering::Relaxed);
            faults.on(Input::Permissions, now());
            assert_eq!(faults.rule_state(&links.condition()).unwrap().status, status);
            assert_eq!(faults.alarm(&links.condition()).is_some(), may_read);
        }
        report(&mut faults, "link-down@interface:eth1", true);
        assert!(faults.alarm(&links.condition()).is_none());
    }

    #[test]
    fn of_ten_thousand_rules_those_that_may_fit_are_looked_at() {
        let rules = (0..MAX_RULES).map(|number| {
            rule(&format!("r{number}"), "link-*", &format!("interface:eth{number}"), "severe")
        });
        let mut faults = faults(rules.collect());
        report(&mut faults, "link-down@interface:eth7", true);
        assert_eq!(faults.rules.looked_at, 1);
    }
}
