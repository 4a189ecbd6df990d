//! Rows of what reports and time come to, and two properties.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_scheduler::Now;
use proptest::prelude::*;

use crate::*;

mod consequences;
mod groups;
mod sessions;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Faults with a clock that starts an hour after its beginning.
struct Clocked {
    faults: Faults,
    now: Duration,
    transitions: Vec<Arc<Transition>>,
    rows: BTreeMap<String, Vec<u8>>,
}

impl Clocked {
    fn new() -> Self {
        Self::of(Faults::default())
    }

    fn of(faults: Faults) -> Self {
        Self { faults, now: 3600 * SECOND, transitions: Vec::new(), rows: BTreeMap::new() }
    }

    fn now(&self) -> Now {
        let unix_ns = u64::try_from(self.now.as_nanos()).unwrap();
        Now { monotonic: self.now, unix_ns }
    }

    /// Gives an input, and returns what listeners are told.
    fn on(&mut self, input: Input) -> Vec<String> {
        let effects = self.faults.on(input, self.now());
        self.take(effects)
    }

    fn take(&mut self, effects: Effects) -> Vec<String> {
        for row in effects.rows {
            match row.content {
                Some(content) => self.rows.insert(row.name, content),
                None => self.rows.remove(&row.name),
            };
        }
        let told = effects.transitions.iter().filter(|transition| transition.is_told());
        let told = told.map(|transition| {
            format!("{} {}", transition.change.name(), transition.alarm.condition)
        });
        let told = told.collect();
        self.transitions.extend(effects.transitions);
        told
    }

    fn holds(&mut self, condition: &str) -> Vec<String> {
        let report = Report::holding(condition.parse().unwrap(), "it is so", self.now().unix_ns);
        self.on(Input::Reports(Source::Revision, vec![report]))
    }

    fn ends(&mut self, condition: &str) -> Vec<String> {
        let report = Report::ended(condition.parse().unwrap(), self.now().unix_ns);
        self.on(Input::Reports(Source::Revision, vec![report]))
    }

    /// Lets time pass, and gives [`Input::Due`] whenever it is asked for.
    fn wait(&mut self, time: Duration) -> Vec<String> {
        let end = self.now + time;
        let mut told = Vec::new();
        while let Some(due) = self.faults.due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            told.extend(self.on(Input::Due));
        }
        self.now = end;
        told
    }

    fn settings(&mut self, policies: Vec<Policy>, shelves: Vec<Shelf>) -> Vec<String> {
        self.on(Input::Settings(Arc::new(Settings::new(policies, shelves))))
    }

    fn alarm(&self, condition: &str) -> Option<&Alarm> {
        self.faults.alarm(&condition.parse().unwrap())
    }
}

/// Faults of an earlier run, without objects.
fn restored(rows: BTreeMap<String, Vec<u8>>, log: Vec<LogEntry>) -> (Faults, Vec<String>) {
    Faults::restored(rows, log, Box::new(()), Clocked::new().now())
}

fn policy(name: &str, kind: &str) -> Policy {
    Policy {
        name: name.into(),
        order: 100,
        filter: Filter { kind: Glob::new(kind), resource: Glob::default() },
        is_ignored: false,
        effect: None,
        severity: None,
        raise_after: None,
        clear_after: Duration::ZERO,
        count: 1,
        window: 60 * SECOND,
        action: None,
        recovery_delay: Duration::ZERO,
        allows_isolation: false,
    }
}

fn shelf(name: &str, resource: &str) -> Shelf {
    let filter = Filter { kind: Glob::default(), resource: Glob::new(resource) };
    Shelf { name: name.into(), filter }
}

const DOWN: &str = "link-down@interface:eth1";
const FLAPPING: &str = "link-flapping@interface:eth1";

#[test]
fn names_are_read_as_they_are_written() {
    for text in [
        DOWN,
        "address-duplicate.2001:db8::1@interface:eth1",
        "store-failed@agent",
        "plan-failed@service:bridge-port[name='acme@home']",
        "value-failed@value:route/main/10.0.0.0/24",
    ] {
        assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
    }
    for text in ["link-down", "link-up@agent", "link-down@port:eth1", "link-down@interface:"] {
        text.parse::<Condition>().unwrap_err();
    }
    for severity in Severity::ALL {
        assert_eq!(Severity::by_name(severity.name()), Some(severity));
    }
}

#[test]
fn types_are_in_order_and_refer_to_types() {
    assert!(TYPES.is_sorted_by_key(|kind| kind.name));
    for kind in TYPES {
        assert!(kind.flapping.is_none_or(|name| AlarmType::by_name(name).is_some()));
        assert!(!kind.name.contains(['.', '@']), "{}", kind.name);
    }
}

#[test]
fn patterns() {
    for (pattern, text, fits) in [
        ("*", "", true),
        ("eth*", "eth1", true),
        ("eth*", "veth1", false),
        ("*1", "eth11", true),
        ("e*h*1", "eth01", true),
        ("e*h*1", "eth0", false),
        ("eth1", "eth1", true),
        ("eth1", "eth10", false),
        ("a*a", "a", false),
        ("a**b", "ab", true),
    ] {
        assert_eq!(Glob::new(pattern).matches(text), fits, "{pattern} {text}");
    }
}

#[test]
fn an_alarm_is_raised_and_ends_with_its_condition() {
    let mut faults = Clocked::new();
    let began = faults.now().unix_ns;
    assert_eq!(faults.holds(DOWN), [format!("raised {DOWN}")]);
    assert!(faults.holds(DOWN).is_empty(), "a report of what is known changes nothing");
    faults.wait(SECOND);
    let alarm = faults.alarm(DOWN).unwrap();
    assert_eq!((alarm.severity, alarm.created_ns, alarm.occurrences), (Severity::Major, began, 1));
    assert_eq!(faults.faults.open(Severity::Major), 1);
    assert_eq!(faults.ends(DOWN), [format!("cleared {DOWN}")]);
    assert_eq!((faults.alarm(DOWN), faults.faults.open(Severity::Major)), (None, 0));
    assert!(!faults.rows.contains_key(DOWN));
    let ids: Vec<u64> = faults.transitions.iter().map(|transition| transition.id).collect();
    assert_eq!(ids, [1, 2]);
    faults.wait(60 * SECOND);
    assert_eq!(faults.faults.due(), None, "nothing is kept of what is over");
}

#[test]
fn a_condition_that_ends_before_its_time_raises_nothing() {
    let missing = "link-missing@interface:eth1";
    let mut faults = Clocked::new();
    assert!(faults.holds(missing).is_empty());
    assert!(faults.wait(900 * MS).is_empty());
    assert!(faults.ends(missing).is_empty());
    assert!(faults.wait(20 * SECOND).is_empty());
    faults.holds(missing);
    assert_eq!(faults.wait(SECOND), [format!("raised {missing}")]);
}

#[test]
fn a_report_may_ask_for_a_longer_time() {
    let mut faults = Clocked::new();
    let report = Report::holding(DOWN.parse().unwrap(), "set up a moment ago", 7);
    let report = Report { raise_after: 5 * SECOND, ..report };
    assert!(faults.on(Input::Reports(Source::Revision, vec![report])).is_empty());
    assert!(faults.wait(4 * SECOND).is_empty());
    assert_eq!(faults.wait(SECOND), [format!("raised {DOWN}")]);
    assert_eq!(faults.alarm(DOWN).unwrap().created_ns, 7);
}

#[test]
fn a_condition_holds_while_any_source_says_so() {
    let mut faults = Clocked::new();
    faults.holds(DOWN);
    let report = Report::holding(DOWN.parse().unwrap(), "so says another one", 1);
    let report = Report { severity: Some(Severity::Critical), ..report };
    assert_eq!(
        faults.on(Input::Reports(Source::Server, vec![report])),
        [format!("changed {DOWN}")]
    );
    assert_eq!(faults.alarm(DOWN).unwrap().severity, Severity::Critical);
    assert_eq!(faults.ends(DOWN), [format!("changed {DOWN}")]);
    assert_eq!(faults.alarm(DOWN).unwrap().text, "so says another one");
    let told = faults.on(Input::Level(Source::Server, Vec::new()));
    assert_eq!(told, [format!("cleared {DOWN}")]);
}

#[test]
fn a_level_ends_what_it_does_not_name() {
    let mut faults = Clocked::new();
    let other = "link-down@interface:eth2";
    faults.holds(DOWN);
    faults.holds("address-duplicate.2001:db8::1@interface:eth1");
    let reports = [DOWN, other].map(|it| Report::holding(it.parse().unwrap(), "it is so", 1));
    let told = faults.on(Input::Level(Source::Revision, reports.to_vec()));
    assert_eq!(
        told,
        [
            "cleared address-duplicate.2001:db8::1@interface:eth1".to_owned(),
            format!("raised {other}")
        ]
    );
}

// proves sv.C53
#[test]
fn a_flapping_link_is_one_alarm_and_stays_until_it_is_quiet() {
    let mut faults = Clocked::new();
    let mut told = Vec::new();
    for _ in 0..500 {
        told.extend(faults.holds(DOWN));
        told.extend(faults.wait(5 * MS));
        told.extend(faults.ends(DOWN));
        told.extend(faults.wait(5 * MS));
    }
    let raised =
        told.iter().filter(|transition| **transition == format!("raised {FLAPPING}")).count();
    assert_eq!(raised, 1);
    assert_eq!(faults.alarm(FLAPPING).unwrap().occurrences, 500);
    let cleared =
        told.iter().filter(|transition| **transition == format!("cleared {DOWN}")).count();
    assert_eq!(cleared, 5, "after the sixth loss it stays");
    // Five seconds: at most one update a second of each of the two.
    let changed = told.iter().filter(|transition| transition.starts_with("changed")).count();
    assert!((8..=12).contains(&changed), "{changed}: {told:?}");
    assert!(faults.wait(9 * SECOND).iter().all(|transition| transition.starts_with("changed")));
    let end = faults.wait(SECOND);
    assert_eq!(end, [format!("cleared {FLAPPING}"), format!("cleared {DOWN}")]);
    faults.wait(60 * SECOND);
    assert_eq!(faults.faults.due(), None);
}

#[test]
fn losses_that_nobody_saw_count() {
    let mut faults = Clocked::new();
    let report = Report { begins: Some(6), ..Report::ended(DOWN.parse().unwrap(), 1) };
    let told = faults.on(Input::Reports(Source::Revision, vec![report]));
    assert_eq!(told, [format!("raised {FLAPPING}")], "the link itself is up");
    assert_eq!(faults.alarm(FLAPPING).unwrap().occurrences, 6);
}

#[test]
fn a_loss_that_is_told_late_counts_once() {
    let mut faults = Clocked::new();
    let mut report = |begins: u64, report: Report| {
        let report = Report { begins: Some(begins), ..report };
        let told = faults.on(Input::Reports(Source::Revision, vec![report]));
        faults.wait(MS);
        told
    };
    let ended = Report::ended(DOWN.parse().unwrap(), 1);
    let text = "it has no carrier";
    for _ in 0..5 {
        assert!(report(1, ended.clone()).is_empty(), "it was held back");
    }
    assert_eq!(report(1, ended), [format!("raised {FLAPPING}")]);
    let holds = Report::holding(DOWN.parse().unwrap(), text, 1);
    assert_eq!(report(0, holds), [format!("raised {DOWN}")]);
    assert_eq!(faults.alarm(FLAPPING).unwrap().occurrences, 6);
    assert_eq!(faults.alarm(DOWN).unwrap().occurrences, 1);
}

#[test]
fn policies_decide_in_their_order() {
    let mut faults = Clocked::new();
    faults.holds(DOWN);
    let ignore = Policy { order: 5, is_ignored: true, ..policy("z", "link-d*") };
    let severe = Policy { severity: Some(Severity::Critical), ..policy("a", "link-*") };
    assert_eq!(faults.settings(vec![severe.clone()], Vec::new()), [format!("changed {DOWN}")]);
    assert_eq!(faults.alarm(DOWN).unwrap().severity, Severity::Critical);
    let told = faults.settings(vec![severe.clone(), ignore], Vec::new());
    assert_eq!(told, [format!("cleared {DOWN}")]);
    assert_eq!(faults.settings(vec![severe], Vec::new()), [format!("raised {DOWN}")]);
    let slow = Policy { clear_after: 2 * SECOND, ..policy("a", "*") };
    faults.settings(vec![slow], Vec::new());
    assert!(faults.ends(DOWN).is_empty());
    faults.wait(SECOND);
    let again = faults.holds(DOWN);
    assert_eq!(again, [format!("changed {DOWN}")], "it began again before its alarm ended");
    faults.ends(DOWN);
    assert_eq!(faults.wait(2 * SECOND).last(), Some(&format!("cleared {DOWN}")));
}

// proves sv.C49
#[test]
fn a_policy_may_count() {
    let mut faults = Clocked::new();
    let counting = Policy { count: 3, window: 5 * SECOND, ..policy("a", "*") };
    faults.settings(vec![counting], Vec::new());
    for _ in 0..3 {
        assert!(faults.holds(DOWN).is_empty());
        faults.ends(DOWN);
        faults.wait(3 * SECOND);
    }
    faults.holds(DOWN);
    faults.ends(DOWN);
    assert_eq!(faults.holds(DOWN), [format!("raised {DOWN}")], "the third within five seconds");
}

#[test]
fn nobody_is_told_of_shelved_alarms_but_of_the_end_of_what_they_know() {
    let mut faults = Clocked::new();
    faults.settings(Vec::new(), vec![shelf("lab", "interface:*")]);
    assert!(faults.holds(DOWN).is_empty());
    assert_eq!((faults.faults.shelved(), faults.faults.open(Severity::Major)), (1, 0));
    assert_eq!(faults.alarm(DOWN).unwrap().shelf.as_deref(), Some("lab"));
    assert!(faults.ends(DOWN).is_empty());
    faults.holds(DOWN);
    assert_eq!(faults.settings(Vec::new(), Vec::new()), [format!("unshelved {DOWN}")]);
    let told = faults.settings(Vec::new(), vec![shelf("lab", "interface:*")]);
    assert_eq!(told, [format!("shelved {DOWN}")]);
    assert_eq!(faults.ends(DOWN), [format!("cleared {DOWN}")]);
    assert_eq!(faults.faults.shelved(), 0);
}

#[test]
fn an_alarm_survives_a_restart_with_what_was_said_of_it() {
    let mut before = Clocked::new();
    before.holds(DOWN);
    before.holds("link-down@interface:eth2");
    let now = before.now();
    let effects = before
        .faults
        .operate(&DOWN.parse().unwrap(), OperatorState::Ack, ["ada", "cable ordered"], now)
        .unwrap();
    before.take(effects);
    let last = before.transitions.last().unwrap().id;
    let refused = before.faults.operate(
        &"link-down@interface:eth9".parse().unwrap(),
        OperatorState::Ack,
        ["ada", ""],
        now,
    );
    refused.unwrap_err();

    let mut rows = before.rows;
    rows.insert("of another version".to_owned(), b"?".to_vec());
    let (faults, unreadable) = restored(rows, Vec::new());
    assert_eq!(unreadable, ["of another version"]);
    let mut after = Clocked::of(faults);
    after.now += 60 * SECOND;
    assert!(after.settings(Vec::new(), Vec::new()).is_empty(), "nothing is known yet");
    let report = Report::holding(DOWN.parse().unwrap(), "it is so", after.now().unix_ns);
    let told = after.on(Input::Level(Source::Revision, vec![report]));
    assert_eq!(told, ["cleared link-down@interface:eth2"]);
    let alarm = after.alarm(DOWN).unwrap();
    assert_eq!((alarm.created_ns, alarm.operator.as_str()), (now.unix_ns, "ada"));
    assert_eq!(alarm.operator_state, OperatorState::Ack);
    assert!(after.transitions[0].id > last, "ids ascend over a restart");
}

#[test]
fn conditions_have_a_limit_and_come_back_when_there_is_room() {
    let mut faults = Clocked::new();
    let condition = |number: usize| {
        Report::holding(format!("link-down@interface:e{number}").parse().unwrap(), "so", 1)
    };
    let all: Vec<Report> = (0..MAX_CONDITIONS + 5).map(condition).collect();
    faults.on(Input::Level(Source::Revision, all));
    let overflow = "fault-overflow@agent";
    faults.wait(2 * SECOND);
    assert_eq!(faults.alarm(overflow).unwrap().occurrences, 5);
    let half: Vec<Report> = (0..MAX_CONDITIONS / 2).map(condition).collect();
    faults.on(Input::Level(Source::Revision, half.clone()));
    assert_eq!(faults.alarm(overflow), None, "the level left nothing out");

    let all: Vec<Report> = (0..MAX_CONDITIONS + 5).map(condition).collect();
    faults.on(Input::Level(Source::Revision, all));
    let ended = (0..MAX_CONDITIONS / 2).map(|number| Report { holds: false, ..condition(number) });
    faults.on(Input::Reports(Source::Revision, ended.collect()));
    faults.now += 60 * SECOND;
    let effects = faults.faults.on(Input::Due, faults.now());
    assert_eq!(effects.wanted_levels.into_iter().collect::<Vec<_>>(), [Source::Revision]);
}

#[test]
fn a_listener_that_comes_back_gets_what_it_missed() {
    let mut faults = Clocked::new();
    faults.holds(DOWN);
    faults.ends(DOWN);
    faults.holds(DOWN);
    let since = |faults: &Clocked, id| match faults.faults.log().since(id) {
        Resume::Entries(entries) => Some(entries.iter().map(LogEntry::id).collect::<Vec<_>>()),
        Resume::Gap => None,
    };
    assert_eq!(since(&faults, 1), Some(vec![2, 3]));
    assert_eq!(since(&faults, 3), Some(Vec::new()));
    assert_eq!(since(&faults, 4), None, "it is of no transition yet");
    for _ in 0..LOG_ENTRIES {
        faults.holds("store-failed@agent");
        faults.ends("store-failed@agent");
    }
    assert_eq!(since(&faults, 1), None, "too old");
}

#[test]
fn a_log_goes_on_over_a_restart_in_order_and_has_a_gap_after_a_kill() {
    let mut before = Clocked::new();
    before.holds(DOWN);
    before.ends(DOWN);
    let entries = before.transitions.iter().cloned().map(LogEntry::Alarm);
    let log: Vec<LogEntry> =
        entries.map(|entry| LogEntry::from_stored(&entry.to_stored()).unwrap()).collect();
    let transitions = log.iter().filter_map(LogEntry::transition);
    assert_eq!(transitions.collect::<Vec<_>>(), before.transitions.iter().collect::<Vec<_>>());

    let (killed, _) = restored(before.rows.clone(), log.clone());
    assert!(matches!(killed.log().since(2), Resume::Gap), "events after it may be lost");
    assert_eq!(killed.log().entries().count(), 2, "what is on disk is in the log");

    let last = before.faults.last_row();
    before.rows.insert(last.name, last.content.unwrap());
    let (faults, _) = restored(before.rows, log);
    let mut after = Clocked::of(faults);
    after.holds(DOWN);
    let Resume::Entries(missed) = after.faults.log().since(1) else { panic!("no gap") };
    assert_eq!(missed.iter().map(LogEntry::id).collect::<Vec<_>>(), [2, 3]);
    assert!(after.rows.contains_key("reserved-event-id"), "ids are reserved before they are given");
}

/// Conditions that hold after each step, as bits, and whether the source reports its level or what changed.
fn steps() -> impl Strategy<Value = Vec<(u8, bool, u16)>> {
    prop::collection::vec((0..16_u8, any::<bool>(), 0..3000_u16), 1..40)
}

/// The alarms as they are shown.
fn shown(faults: &Clocked) -> BTreeMap<String, (Severity, String)> {
    let alarms = faults.faults.alarms();
    alarms.map(|it| (it.condition.to_string(), (it.severity, it.text.to_string()))).collect()
}

proptest! {
    // Alarms follow from the last level, whatever came before and however much of it was merged.
    #[test]
    fn alarms_are_those_of_the_last_level(steps in steps()) {
        let names = [DOWN, "link-down@interface:eth2", "link-missing@interface:eth3", "storage-low@agent"];
        let report = |at: usize, holds: bool| {
            let condition = names[at].parse().unwrap();
            if holds { Report::holding(condition, "so", 1) } else { Report::ended(condition, 1) }
        };
        let level = |bits: u8| {
            let held = (0..names.len()).filter(move |at| bits >> at & 1 == 1);
            held.map(move |at| report(at, true)).collect::<Vec<_>>()
        };
        let mut faults = Clocked::new();
        let mut last = 0;
        for (bits, is_level, wait) in steps {
            let input = if is_level {
                Input::Level(Source::Revision, level(bits))
            } else {
                let changed = (0..names.len()).filter(|at| (bits ^ last) >> at & 1 == 1);
                let reports = changed.map(|at| report(at, bits >> at & 1 == 1)).collect();
                Input::Reports(Source::Revision, reports)
            };
            faults.on(input);
            faults.wait(u32::from(wait) * MS);
            last = bits;
        }
        faults.wait(120 * SECOND);
        let mut naive = Clocked::new();
        naive.on(Input::Level(Source::Revision, level(last)));
        naive.wait(120 * SECOND);
        prop_assert_eq!(shown(&faults), shown(&naive));
        let open: u32 = Severity::ALL.into_iter().map(|severity| faults.faults.open(severity)).sum();
        prop_assert_eq!(usize::try_from(open).unwrap(), shown(&faults).len());
        // Every raise that was told has its end, or is open.
        let mut known = BTreeMap::new();
        for transition in faults.transitions.iter().filter(|transition| transition.is_told()) {
            let id = transition.alarm.condition.to_string();
            match transition.change {
                Change::Raised => prop_assert!(known.insert(id, ()).is_none()),
                Change::Cleared => prop_assert!(known.remove(&id).is_some()),
                _ => prop_assert!(known.contains_key(&id)),
            }
        }
        let open: Vec<String> = shown(&faults).into_keys().collect();
        prop_assert_eq!(known.into_keys().collect::<Vec<_>>(), open);
    }

    // Rows alone bring everything back.
    #[test]
    fn rows_are_the_open_alarms(steps in steps()) {
        let mut faults = Clocked::new();
        for (bits, holds, wait) in steps {
            let name = format!("link-down@interface:e{bits}");
            if holds { faults.holds(&name) } else { faults.ends(&name) };
            faults.wait(u32::from(wait) * MS);
        }
        let (restored, unreadable) = restored(faults.rows.clone(), Vec::new());
        prop_assert!(unreadable.is_empty());
        prop_assert_eq!(shown(&Clocked::of(restored)), shown(&faults));
    }
}
