//! Rows of uplink groups, and a property: they are those from nothing.

use std::collections::BTreeSet;

use holdfast_config::EffectiveStatus;

use super::consequences::{down, fenced};
use super::*;

const UPLINKS: &str = "uplinks-down@group:up";

fn names(names: &[&str]) -> BTreeSet<smol_str::SmolStr> {
    names.iter().map(|name| (*name).into()).collect()
}

/// A group that needs one member.
fn group(name: &str, members: &[&str], dependents: &[&str]) -> UplinkGroup {
    UplinkGroup {
        name: name.into(),
        members: names(members),
        least: 1,
        dependents: names(dependents),
        ..UplinkGroup::default()
    }
}

fn settings_of(groups: Vec<UplinkGroup>) -> Input {
    Input::Settings(Arc::new(Settings::new(vec![], vec![]).with_groups(groups)))
}

impl Clocked {
    /// Faults with these groups, whose members are all there.
    fn with_groups(groups: Vec<UplinkGroup>) -> Self {
        let mut faults = Self::with_objects();
        faults.on(settings_of(groups));
        faults.on(Input::Missing(BTreeSet::new()));
        faults
    }

    fn lost(&self, name: &str) -> Vec<String> {
        let state = self.faults.group_state(name).unwrap();
        state.lost.iter().map(ToString::to_string).collect()
    }

    fn cause(&self, condition: &str) -> Option<String> {
        self.alarm(condition)?.cause.as_ref().map(ToString::to_string)
    }
}

// proves sv.C38, sv.C39
#[test]
fn a_group_is_degraded_by_a_member_and_down_without_enough_of_them() {
    let mut faults = Clocked::with_groups(vec![group("up", &["a", "b"], &["d"])]);
    assert!(faults.lost("up").is_empty());
    assert_eq!(faults.holds(&down("a")), ["raised link-down@interface:a"], "no alarm of its own");
    assert_eq!(faults.status("d"), Some(EffectiveStatus::Degraded));
    assert_eq!(faults.faults.group_state("up").unwrap().status, Some(EffectiveStatus::Degraded));
    faults.wait(MS);
    let told = faults.holds(&down("b"));
    assert_eq!(told, ["raised link-down@interface:b", "raised uplinks-down@group:up"]);
    assert_eq!(faults.status("d"), Some(EffectiveStatus::Down));
    let alarm = faults.alarm(UPLINKS).unwrap();
    assert_eq!(alarm.severity, Severity::Major);
    assert_eq!(alarm.text, "0 of 2 uplinks are left, and 1 are needed; lost: a, b");
    assert_eq!(faults.cause(UPLINKS), Some(down("b")), "the member lost last");
    // Objects that stand on a dependent, a member among them, do not cause the loss of the member.
    faults.impact(UPLINKS, &["v"], &["a"]);
    assert_eq!(faults.status("v"), Some(EffectiveStatus::Down));
    assert_eq!((faults.cause(&down("a")), faults.cause(&down("b"))), (None, None));
    // Alarms of the dependents have it as their cause.
    faults.holds(&down("d"));
    assert_eq!(faults.cause(&down("d")), Some(UPLINKS.to_owned()));

    assert_eq!(
        faults.ends(&down("a")),
        [
            "cleared link-down@interface:a",
            "cleared uplinks-down@group:up",
            "cause link-down@interface:d"
        ]
    );
    faults.ends(&down("d"));
    assert_eq!((faults.status("d"), faults.status("v")), (Some(EffectiveStatus::Degraded), None));
    faults.ends(&down("b"));
    assert_eq!(faults.status("d"), None);
}

#[test]
fn a_member_on_a_shelf_does_not_hide_the_loss_of_another_one() {
    let groups = vec![group("up", &["a", "b"], &["d"])];
    let settings = |shelves: Vec<Shelf>| {
        Input::Settings(Arc::new(Settings::new(vec![], shelves).with_groups(groups.clone())))
    };
    let shelf = |resource| vec![shelf("s", resource)];
    let mut faults = Clocked::with_groups(groups.clone());
    faults.holds(&down("a"));
    faults.wait(MS);
    faults.holds(&down("b"));
    assert_eq!(faults.cause(UPLINKS), Some(down("b")));
    faults.on(settings(shelf("interface:b")));
    assert_eq!(faults.cause(UPLINKS), Some(down("a")));
    faults.on(settings(shelf("interface:*")));
    assert_eq!(faults.cause(UPLINKS), Some(down("b")), "all of them are on a shelf");
    // The same for an object that stands on both.
    faults.on(settings(vec![]));
    faults.impact(&down("a"), &["v"], &[]);
    faults.impact(&down("b"), &["v"], &[]);
    faults.holds(&down("v"));
    assert_eq!(faults.cause(&down("v")), Some(down("a")));
    faults.on(settings(shelf("interface:a")));
    assert_eq!(faults.cause(&down("v")), Some(down("b")));
}

#[test]
fn an_interface_that_is_not_there_is_lost() {
    let mut faults = Clocked::with_groups(vec![group("up", &["a", "b"], &["d"])]);
    faults.on(Input::Missing(names(&["a"])));
    assert_eq!(faults.lost("up"), ["a"]);
    faults.holds(&down("b"));
    assert_eq!(faults.cause(UPLINKS), Some(down("b")));
    faults.on(Input::Missing(names(&["a", "b"])));
    faults.ends(&down("b"));
    assert_eq!(faults.cause(UPLINKS), None, "nothing is known of why");
    faults.on(Input::Missing(BTreeSet::new()));
    assert!(faults.alarm(UPLINKS).is_none());
}

#[test]
fn groups_stand_in_a_row_and_what_a_group_does_is_no_evidence_for_it() {
    let first = group("up", &["a"], &["b"]);
    let second = group("next", &["b", "c"], &["d"]);
    let mut faults = Clocked::with_groups(vec![first, UplinkGroup { least: 2, ..second }]);
    faults.holds(&down("a"));
    assert_eq!(faults.lost("next"), ["b"]);
    assert_eq!(faults.cause("uplinks-down@group:next"), Some(UPLINKS.to_owned()));
    assert_eq!(faults.status("d"), Some(EffectiveStatus::Down));
    // The member of the first group is in the impact of both.
    faults.impact(UPLINKS, &["a"], &[]);
    faults.impact("uplinks-down@group:next", &["a"], &[]);
    faults.ends(&down("a"));
    assert_eq!(faults.faults.alarms().count(), 0);
}

#[test]
fn groups_in_a_circle_are_found() {
    let row = [group("one", &["a"], &["b"]), group("two", &["b"], &["c"])];
    assert_eq!(circle(&row), None);
    let names_of = |groups: &[UplinkGroup]| {
        let circle = circle(groups).unwrap();
        circle.into_iter().map(|group| group.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names_of(&[group("own", &["a", "b"], &["b"])]), ["own"]);
    let [one, two] = row;
    let back = group("three", &["c"], &["a"]);
    assert_eq!(names_of(&[one, two, back]), ["one", "two", "three"]);
}

// proves sv.C52
#[test]
fn a_group_shuts_its_dependents_until_a_while_after_enough_members_are_back() {
    let shuts = UplinkGroup {
        action: Some(Action::Shut),
        recovery_delay: 300 * SECOND,
        ..group("up", &["a", "b"], &["d", "e"])
    };
    let mut faults = Clocked::with_groups(vec![shuts.clone()]);
    faults.holds(&down("a"));
    faults.impact(&down("a"), &[], &[]);
    assert!(fenced(&faults).is_empty());
    faults.holds(&down("b"));
    faults.impact(&down("b"), &[], &[]);
    faults.impact(UPLINKS, &["v"], &[]);
    let shut = ["d", "e"].map(|name| ("group up".to_owned(), name.to_owned()));
    assert_eq!(fenced(&faults), shut);
    let mut faults = faults.restarted();
    faults.on(settings_of(vec![shuts.clone()]));
    assert_eq!(fenced(&faults), shut, "a restart finds it again");
    faults.on(Input::Missing(BTreeSet::new()));
    assert_eq!(fenced(&faults), shut);
    assert_eq!(faults.cause(UPLINKS), Some(down("b")), "the same as before");
    faults.ends(&down("a"));
    assert!(faults.alarm(UPLINKS).is_none());
    faults.wait(299 * SECOND);
    faults.holds(&down("a"));
    faults.impact(UPLINKS, &[], &[]);
    faults.wait(600 * SECOND);
    assert_eq!(fenced(&faults), shut, "it was raised again in between");
    // A dependent that the group has no more is given back.
    faults.on(settings_of(vec![UplinkGroup { dependents: names(&["d"]), ..shuts }]));
    faults.wait(301 * SECOND);
    assert_eq!(fenced(&faults), [shut[0].clone()]);
    faults.on(settings_of(vec![]));
    assert!(faults.alarm(UPLINKS).is_none() && faults.faults.group_state("up").is_none());
    faults.wait(301 * SECOND);
    assert!(fenced(&faults).is_empty());
}

#[test]
fn a_stored_alarm_of_a_group_that_is_gone_ends() {
    let mut faults = Clocked::with_groups(vec![group("up", &["a"], &["d"])]);
    faults.holds(&down("a"));
    let mut faults = faults.restarted();
    faults.on(settings_of(vec![]));
    assert!(faults.alarm(UPLINKS).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Alarms, causes and statuses are those of an agent that has seen nothing but the end, in whatever order things came.
    #[test]
    fn groups_are_those_from_nothing(
        steps in prop::collection::vec((0..3_usize, any::<bool>(), any::<bool>()), 1..12),
        late in 0..12_usize,
    ) {
        let groups = || vec![
            UplinkGroup { least: 2, ..group("one", &["a", "b", "c"], &["d"]) },
            group("two", &["d", "c"], &["e"]),
        ];
        let mut faults = Clocked::with_objects();
        let mut missing = BTreeSet::new();
        let mut times = BTreeMap::new();
        for (at, (name, is_down, is_missing)) in steps.iter().enumerate() {
            if at == late.min(steps.len() - 1) {
                faults.on(settings_of(groups()));
                faults.on(Input::Missing(missing.clone()));
            }
            faults.wait(MS);
            let name = ["a", "b", "c"][*name];
            match is_missing {
                true => drop(missing.insert(name.into())),
                false => drop(missing.remove(name)),
            }
            faults.on(Input::Missing(missing.clone()));
            match (is_down, times.contains_key(name)) {
                (true, false) => {
                    faults.holds(&down(name));
                    times.insert(name, faults.now);
                }
                (false, true) => {
                    faults.ends(&down(name));
                    times.remove(name);
                }
                _ => {}
            }
        }
        let mut naive = Clocked::with_groups(groups());
        let mut losses: Vec<_> = times.into_iter().map(|(name, at)| (at, name)).collect();
        losses.sort();
        for (at, name) in losses {
            naive.now = at;
            naive.holds(&down(name));
        }
        naive.on(Input::Missing(missing));
        let causes = |faults: &Clocked| {
            let alarms = faults.faults.alarms();
            alarms.map(|it| (it.condition.clone(), it.cause.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(causes(&faults), causes(&naive));
        for name in ["a", "b", "c", "d", "e"] {
            prop_assert_eq!(faults.status(name), naive.status(name));
        }
        for name in ["one", "two"] {
            prop_assert_eq!(faults.faults.group_state(name), naive.faults.group_state(name));
        }
    }
}

#[test]
fn a_bond_is_degraded_by_a_member_and_its_own_alarm_is_caused_by_the_last_one() {
    let bond = UplinkGroup::of_bond("d".into(), names(&["a", "b", "c"]), 2);
    let mut faults = Clocked::with_groups(vec![bond.clone()]);
    faults.holds(&down("a"));
    assert_eq!(faults.status("d"), Some(EffectiveStatus::Degraded));
    faults.wait(MS);
    assert_eq!(
        faults.holds(&down("b")),
        ["raised link-down@interface:b"],
        "the kernel tells of the bond"
    );
    assert!(faults.alarm("uplinks-down@group:d").is_none());
    faults.wait(MS);
    faults.holds(&down("d"));
    assert_eq!(faults.cause(&down("d")), Some(down("b")));
    // The engine has members stand on their bond.
    faults.impact(&down("d"), &["a", "b", "c"], &[]);
    assert_eq!(faults.cause(&down("d")), Some(down("b")));
    assert_eq!((faults.cause(&down("a")), faults.cause(&down("b"))), (None, None));
    assert_eq!(faults.lost("d"), ["a", "b"], "the bond is not evidence for the loss of a member");
    // The kernel may tell of the bond first.
    for condition in [down("a"), down("b"), down("d")] {
        faults.ends(&condition);
    }
    assert_eq!(faults.status("d"), None);
    faults.holds(&down("d"));
    assert_eq!(faults.cause(&down("d")), None);
    faults.holds(&down("c"));
    assert_eq!(faults.cause(&down("d")), None, "two members are enough");
    faults.wait(MS);
    faults.holds(&down("a"));
    assert_eq!(faults.cause(&down("d")), Some(down("a")));
    // Without its members the bond stands alone.
    faults.on(settings_of(vec![]));
    assert_eq!(faults.cause(&down("d")), None);
    assert!(faults.faults.group_state("d").is_none());
    faults.on(settings_of(vec![bond]));
    assert_eq!(faults.cause(&down("d")), Some(down("a")));
}

#[test]
fn a_group_that_an_operator_has_made_counts_before_a_bond_of_its_name() {
    let bond = UplinkGroup::of_bond("up".into(), names(&["a"]), 1);
    let settings = Settings::new(vec![], vec![]).with_groups(vec![group("up", &["b"], &["d"])]);
    let settings = settings.with_groups(vec![bond]);
    let groups: Vec<_> =
        settings.groups().iter().map(|it| (it.name.as_str(), it.is_bond)).collect();
    assert_eq!(groups, [("up", false)]);
}
