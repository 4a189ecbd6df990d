//! What happens to drift, by the policy for its part of the tree.

use std::time::Duration;

use crate::common::Lab;
use holdfast_scheduler::DriftPolicy;

const MINUTE: Duration = Duration::from_secs(60);

/// Something of ours, what happens to it outside, and under which policy; what is there in the end, and its state.
#[track_caller]
fn check(ours: &str, outside: &str, policy: DriftPolicy, want: (&str, &str)) {
    for unheard in [false, true] {
        let mut lab = Lab { strict: false, ..Lab::having("", ours) };
        lab.drift("m", Some(policy));
        if unheard {
            lab.outside_unheard(outside);
            lab.resync();
        } else {
            lab.outside(outside);
        }
        lab.settle(MINUTE);
        let name = ours.split(' ').next().unwrap();
        assert_eq!(
            (lab.shown().as_str(), lab.state(name).as_str()),
            want,
            "{ours}, then {outside}, {policy:?}, unheard: {unheard}"
        );
    }
}

#[test]
fn drift_is_repaired_where_nothing_else_is_said() {
    check("m/1 =1", "m/1 =2", DriftPolicy::Repair, ("m/1 =1", "CONFIGURED"));
    check("m/1 =1", "-m/1", DriftPolicy::Repair, ("m/1 =1", "CONFIGURED"));
    check("n/1 =1", "n/1 =2", DriftPolicy::Report, ("n/1 =1", "CONFIGURED"));
}

#[test]
fn drift_that_is_only_reported_stays() {
    check("m/1 =1", "m/1 =2", DriftPolicy::Report, ("m/1 =2", "DRIFTED"));
    check("m/1 =1", "-m/1", DriftPolicy::Report, ("", "MISSING"));
}

#[test]
fn drift_that_is_reported_gives_way_to_a_change_of_intent() {
    let mut lab = Lab::having("", "m =1");
    lab.drift("m", Some(DriftPolicy::Report));
    lab.outside("m =7");
    lab.commit("m =2").unwrap();
    assert_eq!((lab.shown().as_str(), lab.state("m").as_str()), ("m =2", "CONFIGURED"));
}

/// What was left alone is mended when nobody wants it left alone any more, and a longer name keeps its own policy.
#[test]
fn drift_is_repaired_when_its_policy_ends() {
    let mut lab = Lab::having("", "m/1 =1; m/2 =1; n/1 =1");
    lab.drift("m", Some(DriftPolicy::Report));
    lab.drift("m/2", Some(DriftPolicy::Report));
    lab.outside("m/1 =2; m/2 =2");
    lab.settle(MINUTE);
    assert_eq!(lab.shown(), "m/1 =2; m/2 =2; n/1 =1");
    lab.log();
    lab.drift("m", None);
    lab.settle(MINUTE);
    assert_eq!(
        (lab.log().as_str(), lab.shown().as_str()),
        ("update m/1", "m/1 =1; m/2 =2; n/1 =1")
    );
    lab.drift("m/2", Some(DriftPolicy::Repair));
    lab.settle(MINUTE);
    assert_eq!(lab.log(), "update m/2");
    lab.engine.audit().unwrap();
}
