//! Periodic resyncs, and facts during a failure.

use std::time::Duration;

use crate::common::{Lab, delta, error, fact, key};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn everything_is_retrieved_periodically() {
    let mut lab = Lab::having("", "a");
    let step = lab.engine.resync_every(Some(MINUTE), lab.now());
    assert_eq!(step.deadline, Some(lab.now + MINUTE));
    for _ in 0..3 {
        lab.now += MINUTE;
        let step = lab.engine.due(lab.now());
        assert!(step.retrieve);
        assert_eq!(step.deadline, Some(lab.now + MINUTE));
    }
    assert!(!lab.engine.due(lab.now()).retrieve);
    assert_eq!(lab.engine.resync_every(None, lab.now()).deadline, None);
}

#[test]
fn facts_during_a_failing_operation_are_kept() {
    let mut lab = Lab::having("", "a =1");
    let (_, _) = crate::begin(&mut lab, delta("a =2"));
    lab.system.remove(&key("a"));
    let step = lab.engine.observed(vec![fact(&key("a"), None)], lab.now());
    lab.follow(step);
    lab.failing.insert("update a".into(), error(2, "no such thing", false));
    for _ in 0..20 {
        lab.pass_time();
    }
    lab.failing.clear();
    lab.run_until_idle(MINUTE);
    assert_eq!(lab.system_text(), "a =1", "what vanished under a hanging operation is made again");
}
