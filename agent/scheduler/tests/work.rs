//! Work counters: the cost of a plan depends on what changes and what that affects, not on the number of values.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::time::Duration;

use allocation_counter::measure;

use common::{Lab, delta, key};
use holdfast_scheduler::{Completion, Counters, Delta, Operation, TransactionOutcome, TxnId};

/// Number large enough for a cost that grows with it to show.
const MANY: usize = 5_000;
/// Size of the largest tables that are promised.
const PROMISED: usize = 100_000;

fn quick() -> Lab {
    Lab { strict: false, ..Lab::default() }
}

/// A quick lab whose engine does this many items of work at a time.
fn quick_in_portions(portion: usize) -> Lab {
    let mut lab = quick();
    lab.engine = lab.engine.in_portions(NonZeroUsize::new(portion).unwrap());
    lab
}

/// Prepares a change, and takes its first portion over.
fn prepare(lab: &mut Lab, change: &str) -> TxnId {
    let plan = lab.plan(change).unwrap();
    let (txn, step) = lab.engine.prepare(plan, lab.now());
    lab.deadline = step.deadline;
    txn
}

fn many(count: usize, line: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0..count {
        write!(text, "{};", line(number)).unwrap();
    }
    text
}

/// Cost of a change: values visited and edges walked, while planning and while carrying it out.
#[track_caller]
fn cost(lab: &mut Lab, change: &str, operations: usize) -> u64 {
    let before = lab.engine.counters();
    let outcome = lab.commit(change).unwrap();
    assert!(matches!(outcome, TransactionOutcome::Done { .. }), "{outcome:?}");
    while !lab.engine.is_idle() {
        lab.pass_time(); // its values are released in portions
    }
    assert_eq!(lab.log.len(), operations);
    lab.log.clear();
    let after = lab.engine.counters();
    work(&after) - work(&before)
}

fn work(counters: &Counters) -> u64 {
    counters.visited + counters.edges
}

// proves kv.I5, kv.I8
#[test]
fn one_change_among_many_costs_one() {
    let mut lab = quick();
    lab.commit(&many(PROMISED, |n| format!("v{n} <l{}", n % 10))).unwrap();
    lab.commit(&many(10, |n| format!("l{n} +f"))).unwrap();
    lab.log.clear();
    assert_eq!(lab.system.len(), PROMISED + 10);
    assert!(cost(&mut lab, "v7 =1 <l7", 1) < 10);
    assert!(cost(&mut lab, "v7 =2 <l7 <?f", 1) < 20);
    assert!(cost(&mut lab, "-v7", 1) < 10);
    assert!(cost(&mut lab, "new <l1", 1) < 10);
    assert!(cost(&mut lab, "l7 =1 +f", 1) < 20, "a change in place leaves dependents alone");
    assert!(cost(&mut lab, "waits <nobody", 0) < 10);
}

// proves kv.X6, kv.I7
#[test]
fn many_dependents_of_one_missing_key_cost_themselves() {
    let mut lab = quick();
    assert!(cost(&mut lab, &many(PROMISED, |n| format!("v{n} <one <?f")), 0) <= PROMISED as u64);
    assert!(cost(&mut lab, "other +f", 1) <= 4 * PROMISED as u64, "they hear of it");
    assert!(cost(&mut lab, "one", PROMISED + 1) <= 8 * PROMISED as u64);
    assert!(cost(&mut lab, "-one", PROMISED + 1) <= 8 * PROMISED as u64);
    assert_eq!(lab.engine.pending().len(), PROMISED);
    assert!(cost(&mut lab, "more <?f", 1) < 10, "and nobody hears of what is not theirs");
}

#[test]
fn replacing_many_providers_costs_themselves() {
    let mut lab = quick();
    let count = 2_000;
    lab.commit(&many(count, |n| format!("p{n} +f"))).unwrap();
    lab.log.clear();
    let change = many(count, |n| format!("-p{n}; q{n} +f; u{n} <?f"));
    assert!(cost(&mut lab, &change, 3 * count) <= 20 * count as u64);
    let change = many(count, |n| format!("-q{n}; -u{n}; p{n} +f #c{n}; v{n} <?f"));
    assert!(cost(&mut lab, &change, 4 * count) <= 20 * count as u64);
}

#[test]
fn reduction_costs_the_affected_values() {
    let mut lab = quick();
    let count = MANY as u64;
    lab.commit("a; b; c").unwrap();
    lab.commit(&many(MANY, |n| format!("r{n} |a |b"))).unwrap();
    lab.commit(&many(MANY, |n| format!("s{n} |a |l{n}"))).unwrap();
    lab.log.clear();
    assert!(cost(&mut lab, "-b", MANY + 1) <= 12 * count);
    assert!(cost(&mut lab, "b", MANY + 1) <= 14 * count);
    assert!(cost(&mut lab, "l7", 2) < 20, "one that was left out costs one");
    assert!(cost(&mut lab, "-l7", 2) < 20);
    assert!(cost(&mut lab, "c =1", 1) < 10);
    assert!(cost(&mut lab, "r7 =1 |a |b", 1) < 10);
}

// proves kv.X6
#[test]
fn a_long_chain_costs_its_length() {
    let mut lab = quick();
    let chain = 8_000;
    assert!(cost(&mut lab, &many(chain, |n| format!("v{n} <v{}", n + 1)), 0) <= 2 * chain as u64);
    assert!(cost(&mut lab, &format!("v{chain}"), chain + 1) <= 10 * chain as u64);
    assert!(cost(&mut lab, &format!("-v{chain}"), chain + 1) <= 12 * chain as u64);
}

// proves kv.X5
#[test]
fn layers_of_diamonds_cost_their_edges() {
    let mut lab = quick();
    let layers = 30;
    let diamonds = many(layers, |n| format!("a{n} <a{0} <b{0}; b{n} <a{0} <b{0}", n + 1));
    assert!(cost(&mut lab, &format!("{diamonds} b{layers}"), 1) <= 10 * layers as u64);
    assert!(cost(&mut lab, &format!("a{layers}"), 2 * layers + 1) <= 40 * layers as u64);
}

// proves kv.X25, kv.S1
#[test]
fn a_member_of_a_large_whole_costs_one() {
    let mut lab = quick();
    let members = |count: usize| (0..count).map(|n| format!(" .m{n}")).collect::<String>();
    lab.commit(&format!("bd{}", members(10_000))).unwrap();
    lab.log.clear();
    assert!(cost(&mut lab, &format!("bd{}", members(10_000 + 1)), 2) < 20);
    assert!(cost(&mut lab, &format!("bd{}", members(10_000)), 2) < 20);
    assert!(lab.engine.status(&key("bd.m7")).unwrap().part_of == [key("bd")]);
    let one = |change: &str| lab.engine.plan(delta(change)).unwrap().cost().parts;
    assert_eq!(one(&format!("bd{} .more=1", members(10_000))), 1);
    assert_eq!(one(&format!("bd .m0=1{}", &members(9_999)[4..])), 2, "one changes, one goes");
    assert_eq!(one(&format!("bd +f{}", members(10_000))), 10_000, "what it offers differs, too");
}

#[test]
fn a_failure_among_many_costs_what_it_touches() {
    let mut lab = quick();
    lab.commit(&many(MANY, |n| format!("v{n}"))).unwrap();
    lab.failing.insert("update v3".into(), common::error(22, "no", false));
    let before = lab.engine.counters();
    lab.commit("v1 =1; v2 =1; v3 =1").unwrap();
    let after = lab.engine.counters();
    assert!(work(&after) - work(&before) < 30);
}

#[test]
fn a_resync_in_sync_plans_nothing() {
    let mut lab = quick();
    lab.commit(&many(MANY, |n| format!("v{n} <l"))).unwrap();
    lab.commit("l").unwrap();
    let before = lab.engine.counters();
    lab.resync();
    let after = lab.engine.counters();
    assert_eq!(
        (work(&after), after.operations_planned),
        (work(&before), before.operations_planned)
    );
}

/// Calls of [`Engine::due`](holdfast_scheduler::Engine::due) as long as one is due at once, with facts about another value
/// in between. Returns their number, and the most items that one of them took over, in or back, compared or updated.
fn work_off(lab: &mut Lab) -> (usize, u64) {
    let mut calls = 0;
    let mut most = 0;
    let items = |counters: Counters| {
        let taken = counters.taken_over + counters.read_in + counters.rolled_back;
        taken + counters.compared + counters.watchers_updated
    };
    while lab.deadline == Some(Duration::ZERO) {
        calls += 1;
        let before = lab.engine.counters();
        let step = lab.engine.due(lab.now());
        let after = lab.engine.counters();
        most = most.max(items(after) - items(before));
        assert!(after.plan_portions - before.plan_portions <= 1, "one portion of one plan");
        lab.follow(step);
        let before = lab.engine.counters();
        lab.outside(&format!("other ={} +x", calls % 7));
        let after = lab.engine.counters();
        assert_eq!(items(after), items(before), "a fact waits for no portion");
        assert_eq!(after.plan_portions, before.plan_portions, "and for no plan");
    }
    (calls, most)
}

#[test]
fn a_large_reading_is_taken_in_in_portions_of_bounded_size() {
    const COUNT: usize = 1000;
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit(&many(COUNT, |n| format!("v{n} <l"))).unwrap();
    lab.commit("l").unwrap();
    lab.change_outside_silently("-v5; -v6");
    let before = lab.engine.counters();
    let step = lab.engine.resync(lab.facts(), lab.now());
    assert!(!step.is_complete);
    lab.deadline = step.deadline;
    let (calls, most) = work_off(&mut lab);
    assert_eq!(most, PORTION as u64);
    assert!(calls >= 2 * COUNT / PORTION - 2, "facts and checks, in {calls} calls");
    lab.run_until_idle(Duration::from_secs(10));
    let after = lab.engine.counters();
    assert_eq!(after.plans - before.plans, 1, "one plan for all differences, at the end");
    assert_eq!(after.operations_planned - before.operations_planned, 2);
    lab.engine.audit().unwrap();
}

#[test]
fn a_large_plan_is_taken_over_in_portions_of_bounded_size() {
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit("l").unwrap();
    let txn = prepare(&mut lab, &many(MANY, |n| format!("v{n} <l")));
    let before = lab.engine.counters();
    let (calls, most) = work_off(&mut lab);
    assert_eq!(most, PORTION as u64);
    assert!(calls >= 2 * MANY / PORTION - 2, "values and operations, in {calls} calls");
    assert_eq!(lab.engine.counters().plans, before.plans, "nothing is planned meanwhile");
    let step = lab.engine.start_prepared(txn, lab.now());
    lab.follow(step);
    lab.run_until_idle(Duration::from_secs(10));
    assert_eq!(lab.system.len(), MANY + 2);
    lab.engine.audit().unwrap();
}

#[test]
fn large_changes_are_compared_in_portions_of_bounded_size() {
    const COUNT: usize = 1000;
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit("l").unwrap();
    let first = prepare(&mut lab, &many(COUNT, |n| format!("v{n} <l")));
    work_off(&mut lab);
    let compared = |lab: &Lab| lab.engine.counters().compared;
    let begin = |lab: &mut Lab, change: &str| {
        let before = lab.engine.counters();
        let plan = lab.plan(change).unwrap();
        let (txn, step) = lab.engine.start(plan, lab.now());
        lab.follow(step);
        let (calls, most) = work_off(lab);
        // The last portion of a comparison, and the first one of the take-over.
        assert!(most <= 2 * PORTION as u64, "{most} items at a time for {change:.20}");
        assert_eq!(lab.engine.counters().transactions, before.transactions + 1, "{change:.20}");
        (txn, calls, lab.engine.counters().compared - before.compared)
    };
    let (.., calls, values) = begin(&mut lab, "z");
    assert!(calls >= 2 * COUNT / PORTION - 1, "operations and values, in {calls} calls");
    assert!(values > 2 * COUNT as u64, "{values} items");
    let (.., calls, values) = begin(&mut lab, "y");
    assert!(calls <= 1 && values < 10, "the second one costs itself: {values} in {calls} calls");
    let (_, calls, _) = begin(&mut lab, &many(COUNT, |n| format!("w{n} <l")));
    assert!(calls >= COUNT / PORTION, "one large change beside the other, in {calls} calls");
    let before = compared(&lab);
    let plan = lab.plan("v7 =1").unwrap();
    let (last, step) = lab.engine.start(plan, lab.now());
    lab.follow(step);
    work_off(&mut lab);
    assert!(compared(&lab) - before < 10 || lab.finished.iter().all(|it| it.txn() != last));
    let step = lab.engine.start_prepared(first, lab.now());
    lab.follow(step);
    lab.run_until_idle(Duration::from_secs(10));
    assert_eq!(lab.system.len(), 2 * COUNT + 4);
    let position = |txn| lab.finished.iter().position(|it| it.txn() == txn).unwrap();
    assert!(position(first) < position(last), "what conflicts waits");
    lab.engine.audit().unwrap();
}

#[test]
fn many_repairs_are_planned_in_portions_of_bounded_size() {
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit(&format!("l; {}", many(MANY, |n| format!("v{n} <l")))).unwrap();
    work_off(&mut lab);
    lab.change_outside_silently(&many(MANY, |n| format!("-v{n}")));
    let before = lab.engine.counters();
    let step = lab.engine.resync(lab.facts(), lab.now());
    lab.deadline = step.deadline;
    let (_, most) = work_off(&mut lab);
    lab.run_until_idle(Duration::from_secs(10));
    let after = lab.engine.counters();
    assert_eq!(most, PORTION as u64);
    let portions = after.plan_portions - before.plan_portions;
    assert!(portions > MANY as u64 / 100, "{portions} portions");
    assert_eq!(after.plans - before.plans, 1, "one plan for all of them");
    assert_eq!(after.operations_planned - before.operations_planned, MANY as u64);
    assert_eq!(lab.system.len(), MANY + 2);
    lab.engine.audit().unwrap();
}

/// A single value may have as many that wait for it.
#[test]
fn what_many_values_wait_for_is_planned_in_portions_of_bounded_size() {
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit(&many(MANY, |n| format!("v{n} <l"))).unwrap();
    work_off(&mut lab);
    let before = lab.engine.counters();
    lab.outside("l");
    let (_, most) = work_off(&mut lab);
    lab.run_until_idle(Duration::from_secs(10));
    let after = lab.engine.counters();
    assert_eq!(most, PORTION as u64);
    assert!(after.plan_portions - before.plan_portions > MANY as u64 / 100);
    assert_eq!(lab.system.len(), MANY + 2);
    lab.engine.audit().unwrap();
}

/// States of values are right while their updates wait, and a target that comes back before all updates are done counts as there.
#[test]
fn values_that_need_one_target_are_updated_in_portions_of_bounded_size() {
    const COUNT: usize = 1000;
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit(&many(COUNT, |n| format!("v{n} <l"))).unwrap();
    work_off(&mut lab);
    let updated = |lab: &Lab| lab.engine.counters().watchers_updated;
    let before = updated(&lab);
    for (text, state) in [("l", "PENDING"), ("-l", "PENDING <l"), ("l =1", "PENDING")] {
        let facts = lab.change_outside_silently(text);
        let step = lab.engine.observed(facts, lab.now());
        lab.deadline = step.deadline;
        assert_eq!(updated(&lab), before, "none is updated with the fact");
        for value in ["v0", "v7", "v999"] {
            assert_eq!(lab.state(value), state, "{value} after {text}");
        }
        assert!(lab.engine.is_between_portions() && !lab.engine.is_idle());
        lab.engine.audit().unwrap();
    }
    let (calls, most) = work_off(&mut lab);
    assert!(calls > COUNT / PORTION, "{calls} calls");
    assert_eq!((updated(&lab) - before, most), (COUNT as u64, PORTION as u64));
    lab.run_until_idle(Duration::from_secs(10));
    assert_eq!((lab.system.len(), lab.state("v7").as_str()), (COUNT + 2, "CONFIGURED"));
    lab.engine.audit().unwrap();
}

#[test]
fn values_found_in_place_at_a_start_are_recorded_in_portions_of_bounded_size() {
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    let text = many(MANY, |n| format!("v{n}"));
    let values = common::changes(&text).into_iter().map(|(key, value)| (key, value.unwrap()));
    lab.engine.load(values.collect(), Vec::new());
    let things = common::things(&text).into_iter();
    lab.system = things.map(|thing| (thing.key(), thing)).collect();
    let before = lab.engine.counters();
    let step = lab.engine.resync(lab.facts(), lab.now());
    lab.deadline = step.deadline;
    let (_, most) = work_off(&mut lab);
    let after = lab.engine.counters();
    assert_eq!(most, PORTION as u64);
    assert!(after.plan_portions - before.plan_portions > MANY as u64 / 100);
    assert_eq!(after.taken_over - before.taken_over, 2 * MANY as u64, "values, found in place");
    assert_eq!(after.operations_planned, 0);
    lab.run_until_idle(Duration::from_secs(10));
    assert!(lab.engine.is_idle());
    assert!(lab.finished.is_empty(), "nothing was done: {:?}", lab.finished);
    assert_eq!(lab.engine.history().records().count(), 0);
    assert_eq!(lab.state("v7"), "CONFIGURED");
    lab.engine.audit().unwrap();
}

#[test]
fn a_large_transaction_is_run_back_in_portions_of_bounded_size() {
    const PORTION: usize = 100;
    let mut lab = quick_in_portions(PORTION);
    lab.commit("l; u").unwrap();
    let txn = prepare(&mut lab, &many(MANY, |n| format!("v{n} <l")));
    work_off(&mut lab);
    let step = lab.engine.start_prepared(txn, lab.now());
    let done = step.submit.len();
    assert_eq!(done, PORTION);
    for op in &step.submit[..done - 1] {
        lab.execute(op);
    }
    let success = |op: &Operation| Completion { op: op.id, result: Ok(()), observed: None };
    let mut completions: Vec<_> = step.submit.iter().map(success).collect();
    completions[done - 1].result = Err(common::error(22, "no", false));
    let before = lab.engine.counters();
    let step = lab.engine.completed(completions, lab.now());
    assert_eq!(lab.engine.counters().rolled_back - before.rolled_back, PORTION as u64);
    lab.follow(step);
    let (calls, most) = work_off(&mut lab);
    let after = lab.engine.counters();
    assert_eq!(most, PORTION as u64);
    let items = after.rolled_back - before.rolled_back;
    assert_eq!(items, 3 * MANY as u64, "operations, values of before, and operations once more");
    assert!(after.plan_portions - before.plan_portions > 10, "its plan is made in portions");
    assert!(calls > 3 * MANY / PORTION, "{calls} calls");
    lab.run_until_idle(Duration::from_secs(10));
    let outcome = lab.finished.iter().find(|outcome| outcome.txn() == txn);
    assert!(
        matches!(outcome, Some(TransactionOutcome::Failed { undone: true, .. })),
        "{outcome:?}"
    );
    assert_eq!(lab.system_text(), format!("l; {}; u", lab.system[&key("other")]));
    lab.engine.audit().unwrap();
}

#[test]
fn a_large_plan_that_is_stale_is_made_again_in_portions() {
    let mut lab = quick();
    lab.engine = lab.engine.in_portions(NonZeroUsize::new(100).unwrap());
    lab.commit("l").unwrap();
    let plan = lab.plan(&many(MANY, |n| format!("v{n} <l"))).unwrap();
    lab.commit("v7 =1").unwrap();
    let before = lab.engine.counters();
    let (txn, step) = lab.engine.start(plan, lab.now());
    assert_eq!(lab.engine.counters().transactions, before.transactions, "it has not begun");
    lab.deadline = step.deadline;
    let mut calls = 0;
    while lab.engine.counters().transactions == before.transactions {
        calls += 1;
        let step = lab.engine.due(lab.now());
        lab.follow(step);
    }
    assert!(calls > 10, "it took {calls} calls");
    assert_eq!(lab.engine.counters().replanned, before.replanned + 1);
    while !lab.engine.is_idle() {
        lab.pass_time();
    }
    assert!(
        lab.finished
            .iter()
            .any(|it| matches!(it, TransactionOutcome::Done { txn: done, .. } if *done == txn))
    );
    assert_eq!(lab.system.len(), MANY + 1);
}

/// CPU time of this thread, which other work on the machine does not affect.
struct Cpu(std::time::Duration);

impl Cpu {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Self(std::time::Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap()))
    }

    fn elapsed(&self) -> std::time::Duration {
        Self::now().0 - self.0
    }
}

/// Allocations and bytes for each of a thousand equal values, which one thread plans: they do not depend on the load of
/// the machine. A failing row has grown, or shows that its budget can be tightened. A target may name the addresses of one
/// link, whose name is part of it.
#[test]
fn a_thousand_values_take_what_they_may() {
    const VALUES: u64 = 1000;
    let mut lab = quick();
    lab.commit("l").unwrap();
    let changes = common::changes(&many(1000, |n| format!("v{n} <l")));
    let delta = Delta::new(changes);
    let mut plan = None;
    let mut step = None;
    let planned = measure(|| plan = Some(lab.engine.plan(delta).unwrap()));
    let now = lab.now();
    let plan = plan.unwrap();
    let taken_over = measure(|| step = Some(lab.engine.start(plan, now)));
    for (what, used, allocations, kilobytes) in
        [("a plan", &planned, 3, 555), ("its take-over", &taken_over, 0, 280)]
    {
        let found = (used.count_total / VALUES, used.bytes_current / 1000);
        assert!(found.0 <= allocations && found.1 <= kilobytes, "{what}: {found:?} for each value");
        assert!(
            found.0 + 1 >= allocations && found.1 * 10 >= kilobytes * 9,
            "{what}: only {found:?}"
        );
    }
}

/// Prints times, checks nothing: `cargo test --release -p holdfast-scheduler --test work -- --ignored --nocapture`
#[test]
#[ignore = "prints times, asserts nothing"]
#[allow(clippy::print_stdout, reason = "that is what it is for")]
fn times() {
    for count in [1_000, 10_000, 100_000] {
        let mut engine = quick().engine.in_portions(NonZeroUsize::MAX);
        let mut changes = common::changes(&many(count, |n| format!("v{n} <l{} <?f", n % 4)));
        changes.extend(common::changes("l0 +f; l1; l2; l3"));
        let begun = Cpu::now();
        let plan = engine.plan(Delta::new(changes)).unwrap();
        let planned = begun.elapsed();
        let (_, mut step) = engine.start(plan, quick().now());
        while step.submit.is_empty() {
            step = engine.due(quick().now()); // a large plan is taken over in portions
        }
        let started = begun.elapsed();
        let completions = step.submit.iter().map(|op| holdfast_scheduler::Completion {
            op: op.id,
            result: Ok(()),
            observed: None,
        });
        let completions: Vec<_> = completions.collect();
        let facts: Vec<_> = step
            .submit
            .iter()
            .map(|op| holdfast_scheduler::Fact {
                key: op.key.clone(),
                value: op.new.clone(),
                time_ns: 0,
            })
            .collect();
        drop(step);
        let again = facts.clone();
        let begun2 = Cpu::now();
        let _ = engine.completed(completions, quick().now());
        let completed = begun2.elapsed();
        let step = engine.observed(facts, quick().now());
        let verified = begun2.elapsed();
        assert_eq!(step.finished.len(), 1);
        drop(step);
        let begun3 = Cpu::now();
        let mut step = engine.resync(again, quick().now());
        while !step.is_complete {
            step = engine.due(quick().now());
        }
        let resync = begun3.elapsed();
        let begun4 = Cpu::now();
        for n in 0..1000 {
            let plan = engine.plan(delta(&format!("v{n} =1 <l{} <?f", n % 4))).unwrap();
            assert_eq!(plan.operations().len(), 1);
        }
        let one = begun4.elapsed() / 1000;
        let begun5 = Cpu::now();
        let all = (0..count).map(|n| (key(&format!("v{n}")), None)).collect();
        let plan = engine.plan(Delta::new(all)).unwrap();
        assert_eq!(plan.operations().len(), count);
        let deleting = begun5.elapsed();
        let begun6 = Cpu::now();
        let plan = engine.plan(delta("-l0; -l1")).unwrap();
        assert_eq!(plan.operations().len(), count + 2);
        let parking = begun6.elapsed();
        println!(
            "{count:>7}: plan {planned:?}, start {:?}, completed {completed:?}, observed {:?}, resync {resync:?}, one change {one:?}, plan of deleting all {deleting:?}, of parking all {parking:?}",
            started - planned,
            verified - completed,
        );
    }
}
