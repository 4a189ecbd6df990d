//! Alarm rules: what operators asked to be told of, beside the alarms themselves.
//!
//! A rule is judged when an alarm changes that it may fit, never by a clock. While an alarm that it fits is open, the rule has an
//! alarm of its own, `rule-matched.OWNER/NAME@agent`, which is told like every other one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use holdfast_scheduler::Now;
use smol_str::{SmolStr, format_smolstr};

use crate::alarm::{Alarm, Change, OperatorState, Transition};
use crate::condition::Condition;
use crate::faults::Faults;
use crate::policy::{Filter, Settings};
use crate::report::{Report, Source};
use crate::resource::Resource;
use crate::types::Severity;

/// Rules that are judged: as many as conditions are kept.
pub const MAX_RULES: usize = 10_000;
/// The type of the alarms of rules. No rule is judged by one of these.
const RULE_MATCHED: &str = "rule-matched";

/// Evaluates the expressions of rules.
pub trait Evaluator: fmt::Debug + Send + Sync {
    /// True when an expression is true of an alarm.
    ///
    /// # Errors
    /// With the reason, when it cannot be evaluated.
    fn is_true(&self, expression: &str, alarm: &Alarm) -> Result<bool, String>;
}

/// An evaluator that knows no expression.
impl Evaluator for () {
    fn is_true(&self, expression: &str, _: &Alarm) -> Result<bool, String> {
        Err(format!("`{expression}`: expressions are not evaluated here"))
    }
}

/// Alarms that somebody asked to be told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmRule {
    pub owner: SmolStr,
    pub name: SmolStr,
    pub severity: Severity,
    /// Each alarm that it fits counts as an occurrence, not the first one alone.
    pub repeats: bool,
    pub filter: Filter,
    /// Without one, type and resource suffice.
    pub expression: Option<SmolStr>,
    pub description: SmolStr,
}

impl AlarmRule {
    /// The condition of its own alarm.
    pub fn condition(&self) -> Condition {
        let condition = Condition::new(RULE_MATCHED, Resource::Agent);
        condition.qualified(&format!("{}/{}", self.owner, self.name))
    }

    /// The alarm that it fits is not named, because not everybody who sees this text may know of it.
    fn text(&self) -> SmolStr {
        match self.description.is_empty() {
            true => format_smolstr!("an alarm fits the rule {} of {}", self.name, self.owner),
            false => self.description.clone(),
        }
    }
}

/// Results of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleState {
    pub rule: Arc<AlarmRule>,
    /// Open alarms that it fits.
    pub matched: BTreeSet<Condition>,
    /// When it began to have one, or ceased to. Nanoseconds since 1970.
    pub since_ns: u64,
    /// Transition by which it fired last; 0 before.
    pub last_event_id: u64,
    /// How often it fired, and how often its expression could not be evaluated, since the agent was started.
    pub fired: u64,
    pub errors: u64,
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

    /// True when a rule fits an open alarm. An expression that cannot be evaluated fits nothing.
    fn fits(&mut self, rule: &Condition, alarm: &Alarm) -> bool {
        let Some(state) = self.states.get_mut(rule) else { return false };
        let Some(expression) = &state.rule.expression else { return true };
        let evaluated = self.evaluator.is_true(expression, alarm);
        if evaluated.is_err() {
            state.errors += 1;
        }
        evaluated.unwrap_or(false)
    }
}

impl Settings {
    pub fn with_alarm_rules(mut self, rules: Vec<AlarmRule>) -> Self {
        self.alarm_rules = rules.into_iter().take(MAX_RULES).map(Arc::new).collect();
        self
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

    /// Takes the rules of the settings in place of those before. Those that are new are judged by all open alarms.
    pub(crate) fn take_rules(&mut self, now: Now) {
        let settings = Arc::clone(&self.settings);
        let mut before = std::mem::take(&mut self.rules.states);
        self.rules.index.clear();
        let mut new = BTreeSet::new();
        for rule in &settings.alarm_rules {
            let condition = rule.condition();
            let literal = |glob: &crate::Glob| glob.literal().map(SmolStr::from);
            let key = (literal(&rule.filter.resource), literal(&rule.filter.kind));
            self.rules.index.entry(key).or_default().push(condition.clone());
            let kept = before.remove(&condition).filter(|state| state.rule == *rule);
            let state = kept.unwrap_or_else(|| {
                new.insert(condition.clone());
                RuleState {
                    rule: Arc::clone(rule),
                    matched: BTreeSet::new(),
                    since_ns: now.unix_ns,
                    last_event_id: 0,
                    fired: 0,
                    errors: 0,
                }
            });
            self.rules.states.insert(condition, state);
        }
        self.effects.shown_rules.extend(before.into_keys());
        if !new.is_empty() {
            let alarms: Vec<Alarm> = self.alarms().cloned().collect();
            for alarm in alarms.iter().filter(|alarm| is_judged(alarm)) {
                for rule in self.rules.candidates(&alarm.condition) {
                    if new.contains(&rule) && self.rules.fits(&rule, alarm) {
                        self.match_rule(&rule, alarm, false, now);
                    }
                }
            }
            self.effects.shown_rules.extend(new);
        }
        self.end_unmatched_rules(now);
    }

    /// Ends the alarms of rules that fit nothing, or are gone: those of an earlier run, too.
    fn end_unmatched_rules(&mut self, now: Now) {
        let held = self.conditions.iter();
        let held = held.filter(|(_, tracked)| tracked.holders.contains_key(&Source::Rules));
        let is_unmatched = |rule: &&Condition| {
            self.rules.states.get(*rule).is_none_or(|state| state.matched.is_empty())
        };
        let ended: Vec<Condition> = held.map(|(it, _)| it).filter(is_unmatched).cloned().collect();
        for rule in ended {
            self.report(Source::Rules, Report::ended(rule, now.unix_ns), now);
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
            if is_open && self.rules.fits(&rule, alarm) {
                self.match_rule(&rule, alarm, is_raised, now);
            } else {
                self.unmatch_rule(&rule, &alarm.condition, now);
            }
        }
    }

    /// Takes in that a rule fits an alarm, which has begun, or begun again, if it `is_raised`.
    fn match_rule(&mut self, rule: &Condition, alarm: &Alarm, is_raised: bool, now: Now) {
        let Some(state) = self.rules.states.get_mut(rule) else { return };
        let was_ok = state.matched.is_empty();
        state.matched.insert(alarm.condition.clone());
        let is_repeated = is_raised && state.rule.repeats;
        if !was_ok && !is_repeated {
            return;
        }
        if was_ok {
            state.since_ns = now.unix_ns;
        }
        state.fired += 1;
        state.last_event_id = alarm.transition;
        let held = self.conditions.get(rule);
        let is_restored = held.is_some_and(|it| it.holders.contains_key(&Source::Rules)) && was_ok;
        let report = Report {
            begins: (!is_restored).then_some(1),
            severity: Some(state.rule.severity),
            ..Report::holding(rule.clone(), state.rule.text(), now.unix_ns)
        };
        self.effects.shown_rules.insert(rule.clone());
        self.report(Source::Rules, report, now);
    }

    fn unmatch_rule(&mut self, rule: &Condition, alarm: &Condition, now: Now) {
        let Some(state) = self.rules.states.get_mut(rule) else { return };
        self.effects.shown_rules.insert(rule.clone()); // its count of errors may be another one
        if state.matched.remove(alarm) && state.matched.is_empty() {
            state.since_ns = now.unix_ns;
            self.report(Source::Rules, Report::ended(rule.clone(), now.unix_ns), now);
        }
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
    use crate::{Glob, Input};

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
    fn of_ten_thousand_rules_those_that_may_fit_are_looked_at() {
        let rules = (0..MAX_RULES).map(|number| {
            rule(&format!("r{number}"), "link-*", &format!("interface:eth{number}"), "severe")
        });
        let mut faults = faults(rules.collect());
        report(&mut faults, "link-down@interface:eth7", true);
        assert_eq!(faults.rules.looked_at, 1);
    }
}
