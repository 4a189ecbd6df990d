//! Interleaved changes, with answers in any order that transports allow.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::begin;
use crate::common::{Lab, delta, error};
use holdfast_scheduler::{EngineOutput, Operation, TransactionOutcome, TransportId};
use proptest::prelude::*;

/// Names of values. Each one needs only later ones, so there are no cycles.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "m/1", "m/2", "A", "B"];
const LONG: Duration = Duration::from_secs(3600);

fn change() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        3 => proptest::sample::select(&NAMES[..]).prop_map(|name| format!("<{name}")),
        1 => Just("<?f".to_owned()),
        1 => Just("<m/".to_owned()),
        1 => Just(".p".to_owned()),
        1 => Just(".*s".to_owned()),
    ];
    let value = (proptest::sample::select(&NAMES[..]), 0u32..3, 0u32..2, token, any::<bool>());
    let one = (value, 0u32..4).prop_map(|((name, content, shape, token, offers), kept)| {
        // Values that offer the facet need nothing.
        match (kept, offers && !name.starts_with('m')) {
            (0, _) => format!("-{name}"),
            (_, true) => format!("{name} ={content} !{shape} +f"),
            _ if !may_need(name, &token) => format!("{name} ={content} !{shape}"),
            _ => format!("{name} ={content} !{shape} {token}"),
        }
    });
    proptest::collection::vec(one, 1..4).prop_map(|mut items| {
        let name =
            |item: &String| item.trim_start_matches('-').split(' ').next().unwrap().to_owned();
        items.sort_by_key(name);
        items.dedup_by_key(|item| name(item));
        items.join("; ")
    })
}

fn may_need(name: &str, token: &str) -> bool {
    let place = |name: &str| NAMES.iter().position(|other| other.starts_with(name));
    let needed = token.strip_prefix('<').and_then(place);
    needed.is_none() || needed > place(name)
}

/// A system whose transports work one operation at a time, on request.
#[derive(Default)]
struct StepwiseLab {
    lab: Lab,
    handed_out: BTreeMap<TransportId, Vec<Operation>>,
}

impl StepwiseLab {
    fn start(&mut self, change: &str) -> holdfast_scheduler::TxnId {
        let (txn, submit) = begin(&mut self.lab, delta(change));
        self.follow(EngineOutput { submit, ..EngineOutput::default() });
        txn
    }

    /// Carries out a step, except its operations.
    fn follow(&mut self, mut step: EngineOutput) {
        loop {
            for op in std::mem::take(&mut step.submit) {
                self.handed_out.entry(op.transport).or_default().push(op);
            }
            self.lab.finished.extend(std::mem::take(&mut step.finished));
            if step.read.is_empty() {
                return;
            }
            let facts =
                step.read.iter().map(|key| crate::common::fact(key, self.lab.system.get(key)));
            step = self.lab.engine.observed(facts.collect(), self.lab.now());
        }
    }

    /// Carries out the next operation of one transport.
    fn work(&mut self, choice: usize) -> bool {
        let busy: Vec<TransportId> =
            self.handed_out.iter().filter(|(_, ops)| !ops.is_empty()).map(|(id, _)| *id).collect();
        let Some(id) = busy.get(choice % busy.len().max(1)) else { return false };
        let op = self.handed_out.get_mut(id).unwrap().remove(0);
        let completion = self.lab.execute(&op).unwrap();
        let step = self.lab.engine.completed(vec![completion], self.lab.now());
        self.follow(step);
        true
    }

    fn drain(&mut self) {
        while self.work(0) {}
        for _ in 0..30 {
            self.lab.now += Duration::from_secs(1);
            let step = self.lab.engine.due(self.lab.now());
            self.follow(step);
            while self.work(0) {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // proves kv.I12
    #[test]
    fn interleaved_changes_end_as_sequential_ones(
        before in change(),
        changes in proptest::collection::vec((change(), 0usize..5), 2..6),
        choices in proptest::collection::vec(0usize..2, 8),
        failing in proptest::option::of(proptest::sample::select(&["create a", "create b", "update c", "delete d"][..])),
    ) {
        let mut slow = StepwiseLab::default();
        slow.lab.commit(&before).unwrap();
        if let Some(failing) = failing {
            slow.lab.strict = false;
            slow.lab.failing.insert(failing.to_owned(), error(22, "not so", false));
        }
        let mut started = Vec::new();
        for (change, steps) in &changes {
            started.push((slow.start(change), change));
            for step in 0..*steps {
                slow.work(choices[step % choices.len()]);
            }
        }
        slow.drain();
        slow.lab.failing.clear();
        prop_assert!(slow.lab.engine.is_idle());
        slow.lab.engine.audit().unwrap();
        slow.lab.resync();
        slow.lab.run_until_idle(LONG);
        // The successful changes, one after the other, give the same result.
        let mut one_by_one = Lab { strict: false, ..Lab::default() };
        one_by_one.commit(&before).unwrap();
        for (txn, change) in started {
            let outcome = slow.lab.finished.iter().find(|outcome| outcome.txn() == txn);
            match outcome {
                Some(TransactionOutcome::Done { .. }) => {
                    one_by_one.commit(change).unwrap();
                }
                Some(TransactionOutcome::Failed { .. }) if failing.is_some() => {}
                other => prop_assert!(false, "{change}: {other:?}"),
            }
        }
        prop_assert_eq!(slow.lab.system_text(), one_by_one.system_text());
    }
}

/// The deletion leaves the slot of `A` to `a`, before the plan of `m/1` has its turn.
#[test]
fn a_plan_is_made_again_when_what_it_has_read_has_lost_its_slot() {
    let mut slow = StepwiseLab::default();
    slow.start("A +f");
    slow.drain();
    for change in ["-A", "a +f", "m/1 <A"] {
        slow.start(change);
    }
    slow.drain();
    assert_eq!(slow.lab.system_text(), "a +f");
    slow.lab.commit("A").unwrap();
    assert_eq!(slow.lab.system_text(), "a +f; m/1 <A; A");
}
