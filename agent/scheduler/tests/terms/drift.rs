//! Drift policies of key prefixes.

use std::time::Duration;

use crate::common::Lab;
use holdfast_scheduler::DriftPolicy;

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
