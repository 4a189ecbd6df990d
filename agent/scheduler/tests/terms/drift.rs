//! Drift policies of key prefixes.

use std::time::Duration;

use crate::common::{Lab, key};
use holdfast_scheduler::{DriftPolicy, Repair};

const MINUTE: Duration = Duration::from_secs(60);

/// A value of ours, an outside change and a policy; the content of the system at the end, and the state of the value.
#[track_caller]
fn check(ours: &str, outside: &str, policy: DriftPolicy, want: (&str, &str)) {
    for unheard in [false, true] {
        let mut lab = Lab { strict: false, ..Lab::having("", ours) };
        lab.drift("m", Some(policy));
        if unheard {
            lab.change_outside_silently(outside);
            lab.resync();
        } else {
            lab.outside(outside);
        }
        lab.run_until_idle(MINUTE);
        let name = ours.split(' ').next().unwrap();
        assert_eq!(
            (lab.system_text().as_str(), lab.state(name).as_str()),
            want,
            "{ours}, then {outside}, {policy:?}, unheard: {unheard}"
        );
    }
}

#[test]
fn drift_is_repaired_by_default() {
    check("m/1 =1", "m/1 =2", DriftPolicy::Repair, ("m/1 =1", "CONFIGURED"));
    check("m/1 =1", "-m/1", DriftPolicy::Repair, ("m/1 =1", "CONFIGURED"));
    check("n/1 =1", "n/1 =2", DriftPolicy::Report, ("n/1 =1", "CONFIGURED"));
}

#[test]
fn reported_drift_stays() {
    check("m/1 =1", "m/1 =2", DriftPolicy::Report, ("m/1 =2", "DRIFTED"));
    check("m/1 =1", "-m/1", DriftPolicy::Report, ("", "MISSING"));
}

#[test]
fn a_change_of_intent_overrides_reported_drift() {
    let mut lab = Lab::having("", "m =1");
    lab.drift("m", Some(DriftPolicy::Report));
    lab.outside("m =7");
    lab.commit("m =2").unwrap();
    assert_eq!((lab.system_text().as_str(), lab.state("m").as_str()), ("m =2", "CONFIGURED"));
}

/// States that the system gave a value, with the second at which it told.
fn system_changes(lab: &Lab, name: &str) -> Vec<(u64, String)> {
    let key = key(name);
    let changes = lab.engine.history().system_changes(&key);
    changes.map(|it| (it.time_ns / 1_000_000_000, it.state.to_string())).collect()
}

#[test]
fn the_history_has_losses_from_the_moment_of_their_facts() {
    let mut lab = Lab::having("", "m =1; n =1");
    let began = lab.now.as_secs();
    lab.outside("-m");
    lab.outside("n =2");
    lab.run_until_idle(MINUTE);
    assert_eq!(lab.system_text(), "m =1; n =1", "both are repaired");
    let repaired = lab.engine.history().touching(&key("m")).last().unwrap();
    assert_eq!(system_changes(&lab, "m"), [(began, "MISSING".to_owned())]);
    assert_eq!(system_changes(&lab, "n"), [(began, "DRIFTED".to_owned())]);
    let lost_ns = lab.engine.history().system_changes(&key("m")).next().unwrap().time_ns;
    assert!(lost_ns < repaired.ended_ns, "the repair follows");
}

#[test]
fn a_tolerated_loss_ends_when_the_system_has_the_value_again() {
    let mut lab = Lab::having("", "m =1");
    lab.drift("m", Some(DriftPolicy::Report));
    let began = lab.now.as_secs();
    lab.outside("-m");
    lab.run_until_idle(MINUTE);
    let status = lab.engine.status(&key("m")).unwrap();
    assert_eq!(status.detail.repair, Some(Repair::Left));
    lab.now += 10 * MINUTE;
    lab.outside("m =1");
    lab.run_until_idle(MINUTE);
    let [lost, back] = [(began, "MISSING".to_owned()), (began + 600, "CONFIGURED".to_owned())];
    let found = system_changes(&lab, "m");
    assert_eq!(found[0], lost);
    assert!(found[1].0 >= back.0 && found[1].1 == back.1 && found.len() == 2, "{found:?}");
}

#[test]
fn a_repair_that_is_waited_for_has_a_time_and_a_number() {
    let mut lab = Lab::having("", "m =1");
    for number in 1..=4 {
        lab.outside("-m");
        let repair = lab.engine.status(&key("m")).unwrap().detail.repair;
        let Some(Repair::Due { at, number: told }) = repair else { panic!("{repair:?}") };
        assert!(at > lab.now && told == number, "{repair:?}");
        lab.run_until_idle(MINUTE);
    }
}

/// Tolerated drift is repaired when its policy is removed; a longer prefix keeps its own policy.
#[test]
fn drift_is_repaired_when_its_policy_ends() {
    let mut lab = Lab::having("", "m/1 =1; m/2 =1; n/1 =1");
    lab.drift("m", Some(DriftPolicy::Report));
    lab.drift("m/2", Some(DriftPolicy::Report));
    lab.outside("m/1 =2; m/2 =2");
    lab.run_until_idle(MINUTE);
    assert_eq!(lab.system_text(), "m/1 =2; m/2 =2; n/1 =1");
    lab.log();
    lab.drift("m", None);
    lab.run_until_idle(MINUTE);
    assert_eq!(
        (lab.log().as_str(), lab.system_text().as_str()),
        ("update m/1", "m/1 =1; m/2 =2; n/1 =1")
    );
    lab.drift("m/2", Some(DriftPolicy::Repair));
    lab.run_until_idle(MINUTE);
    assert_eq!(lab.log(), "update m/2");
    lab.engine.audit().unwrap();
}
