//! Rows of impacts, causes, latches and reporters, and a property of marks.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use holdfast_config::{EffectiveStatus, InstancePath, Models};

use super::*;

static MODELS: LazyLock<Models> = LazyLock::new(|| Models::load().unwrap());

/// The entry of a link.
pub(super) fn link(name: &str) -> InstancePath {
    let interface = ("interface", &[("name", name)][..]);
    MODELS.native.instance_path(&[("interfaces", &[][..]), interface]).unwrap()
}

/// Interfaces are their links; a next hop is the links whose names its address ends with.
#[derive(Debug)]
struct TestObjects;

impl Objects for TestObjects {
    fn of(&self, resource: &Resource) -> BTreeSet<InstancePath> {
        match resource {
            Resource::Interface(name) => BTreeSet::from([link(name)]),
            Resource::NextHop(_) => BTreeSet::from([link("a1"), link("a2")]),
            _ => BTreeSet::new(),
        }
    }
}

impl Clocked {
    pub(super) fn with_objects() -> Self {
        Self::of(Faults::new(Box::new(TestObjects)))
    }

    /// Tells which links an alarm takes down, and which of them work worse.
    pub(super) fn impact(
        &mut self,
        condition: &str,
        down: &[&str],
        degraded: &[&str],
    ) -> Vec<String> {
        let impact = Impact {
            down: down.iter().map(|name| link(name).into()).collect(),
            degraded: degraded.iter().map(|name| link(name).into()).collect(),
            is_truncated: false,
        };
        self.on(Input::Impact(condition.parse().unwrap(), impact))
    }

    fn marks(&self) -> Vec<(InstancePath, EffectiveStatus)> {
        self.faults.impacts.statuses().collect()
    }

    pub(super) fn status(&self, name: &str) -> Option<EffectiveStatus> {
        let marks = self.marks();
        marks.into_iter().find(|(path, _)| *path == link(name)).map(|(_, status)| status)
    }

    pub(super) fn restarted(self) -> Self {
        let log = self.transitions.iter().cloned().map(LogEntry::Alarm).collect();
        let now = self.now();
        let (faults, unreadable) =
            Faults::restored(self.rows.clone(), log, Box::new(TestObjects), now);
        assert!(unreadable.is_empty(), "{unreadable:?}");
        Self { faults, now: self.now, transitions: Vec::new(), rows: self.rows }
    }
}

pub(super) fn down(name: &str) -> String {
    format!("link-down@interface:{name}")
}

// proves sv.C4
#[test]
fn an_object_in_two_impacts_works_again_when_both_have_ended() {
    let mut faults = Clocked::with_objects();
    faults.holds(&down("a"));
    let alarm = faults.alarm(&down("a")).unwrap();
    assert_eq!(alarm.impact.unwrap().state, ImpactState::Pending);
    assert_eq!(faults.status("a"), Some(EffectiveStatus::Down), "the link itself, at once");
    faults.impact(&down("a"), &["v", "w"], &["x"]);
    let count = faults.alarm(&down("a")).unwrap().impact.unwrap();
    assert_eq!((count.state, count.down, count.degraded), (ImpactState::Complete, 2, 1));
    faults.holds(&down("b"));
    faults.impact(&down("b"), &["w", "x"], &[]);
    assert_eq!(faults.status("x"), Some(EffectiveStatus::Down), "the worse one counts");

    faults.ends(&down("a"));
    assert_eq!((faults.status("v"), faults.status("w")), (None, Some(EffectiveStatus::Down)));
    faults.ends(&down("b"));
    assert!(faults.marks().is_empty(), "{:?}", faults.marks());
}

#[test]
fn the_effect_of_a_policy_decides_what_others_are_told() {
    let mut faults = Clocked::with_objects();
    faults.settings(vec![Policy { effect: Some(Effect::Degrade), ..policy("p", "*") }], vec![]);
    faults.holds(&down("a"));
    faults.impact(&down("a"), &["v"], &["x"]);
    assert_eq!(
        faults.marks(),
        [
            ("a", EffectiveStatus::Degraded),
            ("v", EffectiveStatus::Degraded),
            ("x", EffectiveStatus::Degraded)
        ]
        .map(|(name, status)| (link(name), status))
    );
    faults.settings(vec![Policy { effect: Some(Effect::Warn), ..policy("p", "*") }], vec![]);
    assert!(faults.marks().is_empty());
    assert_eq!(faults.alarm(&down("a")).unwrap().impact, None);
}

#[test]
fn the_alarm_whose_impact_has_a_resource_is_its_cause() {
    let mut faults = Clocked::with_objects();
    faults.holds(&down("v"));
    faults.wait(MS);
    faults.holds(&down("a"));
    assert_eq!(
        faults.impact(&down("a"), &["v"], &[]),
        ["cause link-down@interface:v", "impact link-down@interface:a"]
    );
    let cause = |faults: &Clocked, name: &str| {
        faults.alarm(&down(name)).unwrap().cause.as_ref().map(ToString::to_string)
    };
    assert_eq!(cause(&faults, "v"), Some(down("a")));
    // Two that have each other's object: the one that began first is the root.
    faults.impact(&down("v"), &["a"], &[]);
    assert_eq!((cause(&faults, "v"), cause(&faults, "a")), (None, Some(down("v"))));
    faults.impact(&down("v"), &[], &[]);
    assert_eq!((cause(&faults, "v"), cause(&faults, "a")), (Some(down("a")), None));
    assert_eq!(
        faults.ends(&down("a")),
        ["cleared link-down@interface:a", "cause link-down@interface:v"],
        "it is judged alone again"
    );
}

// proves sv.C50
#[test]
fn a_next_hop_has_a_cause_when_all_its_links_are_lost_by_it() {
    let mut faults = Clocked::with_objects();
    let probe = "next-hop-unreachable@next-hop:192.0.2.2";
    faults.holds(probe);
    faults.holds(&down("a"));
    faults.impact(&down("a"), &["a1"], &[]);
    assert_eq!(faults.alarm(probe).unwrap().cause, None, "it has another way");
    faults.impact(&down("a"), &["a1", "a2"], &[]);
    assert_eq!(faults.alarm(probe).unwrap().cause, Some(down("a").parse().unwrap()));
    assert_eq!(
        faults.transitions.last().unwrap().alarm.cause.as_ref().unwrap().to_string(),
        down("a")
    );
}

#[test]
fn an_alarm_that_has_a_cause_when_it_is_raised_is_told_as_none_of_a_root() {
    let mut faults = Clocked::with_objects();
    faults.holds(&down("a"));
    faults.impact(&down("a"), &["v"], &[]);
    faults.holds(&down("v"));
    faults.impact(&down("v"), &[], &[]);
    faults.ends(&down("v"));
    let of_root = |transition: &&Arc<Transition>| transition.is_of_root();
    let roots: Vec<String> = faults
        .transitions
        .iter()
        .filter(of_root)
        .map(|it| format!("{} {}", it.change.name(), it.alarm.condition))
        .collect();
    assert_eq!(roots, ["raised link-down@interface:a", "impact link-down@interface:a"]);
}

fn latch(resource: &str, by: &str, is_set: bool) -> LatchRequest {
    LatchRequest {
        kind: LatchKind::ForcedDown,
        resource: resource.parse().unwrap(),
        is_set,
        by: by.into(),
        reason: "optics".into(),
        overrides: false,
        is_fenced: false,
    }
}

// proves sv.C5
#[test]
fn a_latch_stays_until_who_has_set_it_or_an_administrator_lifts_it() {
    let mut faults = Clocked::with_objects();
    let now = faults.now();
    let effects = faults.faults.latch(latch("interface:a", "probe", true), now).unwrap();
    assert!(effects.are_latches_changed);
    faults.take(effects);
    let alarm = faults.alarm("forced-down@interface:a").unwrap();
    assert_eq!(alarm.text, "a is forced down, says probe: optics");
    assert_eq!(faults.status("a"), Some(EffectiveStatus::Down));

    let mut faults = faults.restarted();
    assert_eq!(faults.faults.latches().count(), 1, "it is durable");
    let refused = faults.faults.latch(latch("interface:a", "other", false), now);
    assert!(matches!(refused, Err(LatchError::OfAnother { .. })), "{refused:?}");
    let again = faults.faults.latch(latch("interface:a", "other", true), now).unwrap();
    assert_eq!(again, Effects::default(), "it is set already");
    let lifted = LatchRequest { overrides: true, ..latch("interface:a", "other", false) };
    let effects = faults.faults.latch(lifted, now).unwrap();
    faults.take(effects);
    assert!(
        faults.alarm("forced-down@interface:a").is_none()
            && faults.rows.keys().all(|row| !row.starts_with("latch/"))
    );
    let refused = faults.faults.latch(latch("agent", "probe", true), now);
    assert!(matches!(refused, Err(LatchError::Kind(_))), "{refused:?}");
}

fn monitor(name: &str) -> Monitor {
    Monitor {
        name: name.into(),
        identity: None,
        kinds: vec![Glob::new("x-*")],
        resources: vec![Glob::new("interface:*")],
        max_severity: Severity::Major,
        max_ttl: 60 * SECOND,
        rate: 100,
    }
}

fn outside(condition: &str, word: Word) -> OutsideReport {
    OutsideReport {
        condition: condition.parse().unwrap(),
        word,
        severity: None,
        text: "dim".into(),
        seen_ns: 1,
        ttl: None,
    }
}

const DIM: &str = "x-optics@interface:a";

impl Clocked {
    fn with_monitors(names: &[&str]) -> Self {
        let mut faults = Self::with_objects();
        let monitors = names.iter().map(|name| monitor(name)).collect();
        faults.on(Input::Settings(Arc::new(Settings::default().with_monitors(monitors))));
        faults
    }

    fn reports(&mut self, name: &str, report: OutsideReport) -> Result<Vec<String>, MonitorError> {
        let now = self.now();
        let effects = self.faults.report_from_outside(name, report, now)?;
        Ok(self.take(effects))
    }
}

// proves sv.C33
#[test]
fn a_reporter_that_falls_silent_leaves_its_alarm_and_its_resource_unknown() {
    let mut faults = Clocked::with_monitors(&["hwmon"]);
    let raised = outside(DIM, Word::Raised);
    faults.reports("hwmon", raised.clone()).unwrap();
    assert_eq!(faults.status("a"), None, "a type of its own has no effect but the alarm");
    faults.wait(50 * SECOND);
    faults.reports("hwmon", raised.clone()).unwrap();
    assert_eq!(faults.wait(55 * SECOND), [""; 0], "repeated in time");
    assert_eq!(faults.wait(6 * SECOND), ["raised monitor-silent.hwmon@agent"]);
    assert_eq!(faults.status("a"), Some(EffectiveStatus::Unknown));
    assert!(faults.alarm(DIM).is_some(), "it stays");

    faults.reports("hwmon", raised).unwrap();
    assert!(faults.alarm("monitor-silent.hwmon@agent").is_none());
    assert_eq!(faults.status("a"), None);
    assert_eq!(
        faults.reports("hwmon", outside(DIM, Word::Cleared)).unwrap(),
        ["cleared x-optics@interface:a"]
    );
}

#[test]
fn what_occurred_is_over_after_its_time_and_two_reporters_are_two_sources() {
    let mut faults = Clocked::with_monitors(&["one", "two"]);
    faults.reports("one", outside(DIM, Word::Occurred)).unwrap();
    assert_eq!(faults.wait(61 * SECOND), ["cleared x-optics@interface:a"]);

    faults.reports("one", outside(DIM, Word::Raised)).unwrap();
    let refused = faults.reports("two", outside(DIM, Word::Cleared));
    assert!(matches!(refused, Err(MonitorError::OfAnother { .. })), "{refused:?}");
    faults.reports("two", outside(DIM, Word::Raised)).unwrap();
    faults.reports("one", outside(DIM, Word::Cleared)).unwrap();
    assert!(faults.alarm(DIM).is_some(), "the other one says so still");
    let monitors = vec![monitor("one")];
    let gone = faults.on(Input::Settings(Arc::new(Settings::default().with_monitors(monitors))));
    assert_eq!(gone, ["cleared x-optics@interface:a"], "its entry is gone");
}

#[test]
fn a_ttl_goes_on_over_a_restart() {
    let mut faults = Clocked::with_monitors(&["hwmon"]);
    faults.reports("hwmon", outside(DIM, Word::Raised)).unwrap();
    faults.wait(30 * SECOND);
    let mut faults = faults.restarted();
    let monitors = vec![monitor("hwmon")];
    faults.on(Input::Settings(Arc::new(Settings::default().with_monitors(monitors))));
    assert_eq!(faults.wait(29 * SECOND), [""; 0]);
    assert_eq!(faults.wait(2 * SECOND), ["raised monitor-silent.hwmon@agent"]);

    // The alarm about the silence goes on over a restart, too.
    let silent = "monitor-silent.hwmon@agent";
    let before = faults.alarm(silent).unwrap().clone();
    faults.wait(60 * SECOND);
    let mut faults = faults.restarted();
    let monitors = vec![monitor("hwmon")];
    let settings = Settings::default().with_monitors(monitors);
    assert_eq!(faults.on(Input::Settings(Arc::new(settings))), [""; 0]);
    assert_eq!(faults.wait(SECOND), [""; 0]);
    let after = faults.alarm(silent).unwrap();
    assert_eq!((after.created_ns, after.occurrences), (before.created_ns, before.occurrences));
    assert_eq!(faults.status("a"), Some(EffectiveStatus::Unknown));
    faults.reports("hwmon", outside(DIM, Word::Cleared)).unwrap();
    assert!(faults.alarm(silent).is_none());
}

#[test]
fn a_monitor_reports_what_its_entry_permits() {
    let mut faults = Clocked::with_monitors(&["hwmon"]);
    let severe = OutsideReport { severity: Some(Severity::Critical), ..outside(DIM, Word::Raised) };
    let long = OutsideReport { ttl: Some(61 * SECOND), ..outside(DIM, Word::Raised) };
    let rows = [
        ("nobody", outside(DIM, Word::Raised), "there is no monitor `nobody`"),
        ("hwmon", outside(DOWN, Word::Raised), "its `types` are `x-*`"),
        ("hwmon", outside("x-fan@box", Word::Raised), "its `resources` are `interface:*`"),
        ("hwmon", severe, "at most MAJOR, not CRITICAL"),
        ("hwmon", long, "at most 60 s, not 61 s"),
    ];
    for (name, report, wanted) in rows {
        let refused = faults.reports(name, report).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{refused}");
    }
    assert_eq!(faults.faults.alarms().count(), 0);
    assert!("x-Fan@box".parse::<Condition>().is_err(), "letters of the names are lower-case");
}

proptest! {
    #[test]
    fn marks_and_causes_are_those_from_nothing(
        steps in prop::collection::vec((0_usize..5, 0_u8..4, 0_u8..32, 0_u8..32), 1..60),
    ) {
        const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
        let names = |bits: u8| NAMES.iter().enumerate().filter(move |(at, _)| bits & (1 << at) != 0).map(|(_, name)| *name).collect::<Vec<_>>();
        let mut faults = Clocked::with_objects();
        let mut known: BTreeMap<usize, (Duration, [Vec<&str>; 2])> = BTreeMap::new();
        for (which, action, one, other) in steps {
            faults.wait(MS);
            let condition = down(NAMES[which]);
            match action {
                0 => { faults.holds(&condition); known.entry(which).or_insert((faults.now, [Vec::new(), Vec::new()])); }
                1 => { faults.ends(&condition); faults.wait(20 * SECOND); known.remove(&which); }
                _ => {
                    let down = names(one);
                    let degraded = names(other & !one);
                    faults.impact(&condition, &down, &degraded);
                    if let Some((_, found)) = known.get_mut(&which) {
                        *found = [down, degraded];
                    }
                }
            }
        }
        let mut naive = Clocked::with_objects();
        let mut order: Vec<_> = known.iter().collect();
        order.sort_by_key(|(_, (since, _))| *since);
        for (which, _) in &order {
            naive.holds(&down(NAMES[**which]));
            naive.wait(MS);
        }
        for (which, (_, [down_names, degraded])) in order {
            naive.impact(&down(NAMES[*which]), down_names, degraded);
        }
        prop_assert_eq!(faults.marks(), naive.marks());
        let causes = |faults: &Clocked| faults.faults.alarms().map(|it| (it.condition.clone(), it.cause.clone())).collect::<Vec<_>>();
        prop_assert_eq!(causes(&faults), causes(&naive));
    }
}

/// Resources that are to be fenced, with their owners.
pub(super) fn fenced(faults: &Clocked) -> Vec<(String, String)> {
    let owners = faults.faults.fences().iter();
    let pairs = owners.flat_map(|(owner, wishes)| {
        wishes.keys().map(move |target| (owner.to_string(), target.resource.item().to_string()))
    });
    pairs.collect()
}

// proves sv.C52
#[test]
fn a_policy_shuts_what_has_an_alarm_and_gives_it_back_after_a_pause() {
    let mut faults = Clocked::with_objects();
    let shuts = Policy {
        action: Some(Action::Shut),
        recovery_delay: 300 * SECOND,
        ..policy("errors", "x-errors")
    };
    let errors = "x-errors@interface:a";
    faults.holds(errors);
    assert!(fenced(&faults).is_empty(), "nothing is shut unless it is configured");
    faults.settings(vec![shuts.clone()], vec![]);
    let shut = [("policy errors".to_owned(), "a".to_owned())];
    assert_eq!(fenced(&faults), shut);
    faults.ends(errors);
    faults.wait(299 * SECOND);
    assert_eq!(fenced(&faults), shut);
    faults.holds(errors);
    faults.wait(600 * SECOND);
    assert_eq!(fenced(&faults), shut, "it came again");
    faults.ends(errors);
    faults.wait(301 * SECOND);
    assert!(fenced(&faults).is_empty());

    // An alarm with a cause or on a shelf fences nothing.
    faults.holds(&down("b"));
    faults.impact(&down("b"), &["a"], &[]);
    faults.holds(errors);
    assert!(fenced(&faults).is_empty());
    faults.ends(&down("b"));
    assert_eq!(fenced(&faults), shut, "it is judged alone");
    let mut faults = faults.restarted();
    faults.settings(vec![shuts.clone()], vec![]);
    assert_eq!(fenced(&faults), shut, "a restart finds it again");
    faults.settings(vec![shuts], vec![shelf("s", "interface:a")]);
    faults.wait(301 * SECOND);
    assert!(fenced(&faults).is_empty());
}

#[test]
fn a_fence_waits_until_it_is_known_what_the_alarm_has_taken_already() {
    let mut faults = Clocked::with_objects();
    let shuts = Policy { action: Some(Action::Shut), ..policy("losses", "link-down") };
    faults.settings(vec![shuts], vec![]);
    faults.holds(&down("a"));
    assert!(fenced(&faults).is_empty());
    faults.impact(&down("a"), &[], &[]);
    assert_eq!(fenced(&faults), [("policy losses".to_owned(), "a".to_owned())]);
}

#[test]
fn a_latch_with_a_fence_shuts_its_interface_until_it_is_lifted() {
    let mut faults = Clocked::with_objects();
    let now = faults.now();
    let request = LatchRequest { is_fenced: true, ..latch("interface:a", "probe", true) };
    let effects = faults.faults.latch(request, now).unwrap();
    assert_eq!(effects.changed_fences.len(), 1);
    faults.take(effects);
    let mut faults = faults.restarted();
    assert_eq!(fenced(&faults), [("latch probe".to_owned(), "a".to_owned())]);
    let effects = faults.faults.latch(latch("interface:a", "probe", false), now).unwrap();
    assert_eq!(effects.changed_fences.len(), 1);
    assert!(fenced(&faults).is_empty());
}

#[test]
fn a_latch_on_a_shelf_stays_there_over_a_restart() {
    let mut faults = Clocked::with_objects();
    let shelves = || vec![shelf("lab", "interface:*")];
    faults.settings(Vec::new(), shelves());
    let now = faults.now();
    let effects = faults.faults.latch(latch("interface:a", "probe", true), now).unwrap();
    faults.take(effects);
    let id = faults.alarm("forced-down@interface:a").unwrap().transition;
    let mut faults = faults.restarted();
    assert_eq!(faults.settings(Vec::new(), shelves()), [""; 0]);
    let alarm = faults.alarm("forced-down@interface:a").unwrap();
    assert_eq!((alarm.transition, alarm.shelf.as_deref()), (id, Some("lab")));
}

#[test]
fn a_latch_gets_a_fence_and_another_reason_from_who_has_set_it() {
    let mut faults = Clocked::with_objects();
    let now = faults.now();
    let set = |faults: &mut Clocked, request: LatchRequest| {
        faults.faults.latch(request, now).map(|effects| faults.take(effects))
    };
    set(&mut faults, latch("interface:a", "probe", true)).unwrap();
    assert!(fenced(&faults).is_empty());

    let others = LatchRequest { is_fenced: true, ..latch("interface:a", "other", true) };
    let refused = set(&mut faults, others);
    assert!(matches!(refused, Err(LatchError::Unfenced { .. })), "{refused:?}");
    assert!(fenced(&faults).is_empty());

    let reason = LatchRequest { reason: "light".into(), ..latch("interface:a", "probe", true) };
    set(&mut faults, LatchRequest { is_fenced: true, ..reason }).unwrap();
    let mut faults = faults.restarted();
    assert_eq!(fenced(&faults), [("latch probe".to_owned(), "a".to_owned())]);
    let alarm = faults.alarm("forced-down@interface:a").unwrap();
    assert_eq!(alarm.text, "a is forced down, says probe: light");

    let again = LatchRequest { reason: "".into(), ..latch("interface:a", "probe", true) };
    assert!(!faults.faults.latch(again, now).unwrap().are_latches_changed);
    set(&mut faults, latch("interface:a", "probe", false)).unwrap();
    assert!(fenced(&faults).is_empty());
}
