//! Random systems, intents, failures and events from outside, against what must always hold.

#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{Lab, Thing, delta, error, key, things};
use holdfast_scheduler::{Bond, Key, Outcome, Target};
use proptest::prelude::*;

const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "m", "m/1", "m/2", "A", "B"];
/// Longer than any pause between two tries.
const LONG: Duration = Duration::from_secs(3600);

/// These offer facets, and need only one another; so nothing ever supports itself by way of a facet.
const PROVIDERS: [&str; 3] = ["a", "b", "A"];

/// One value as text.
fn value(name: &'static str, rich: bool) -> impl Strategy<Value = String> {
    let names = if rich && (PROVIDERS.contains(&name) || name.starts_with('m')) {
        &PROVIDERS[..]
    } else {
        &NAMES[..]
    };
    let other =
        proptest::sample::select(names).prop_filter("not itself", move |other| *other != name);
    let anyone = if rich { other.boxed() } else { proptest::sample::select(&NAMES[..]).boxed() };
    let mut tokens = vec![(4, anyone.clone().prop_map(|name| format!("<{name}")).boxed())];
    let fixed = |texts: &[&str]| -> Vec<(u32, BoxedStrategy<String>)> {
        texts.iter().map(|text| (1, Just((*text).to_owned()).boxed())).collect()
    };
    if rich {
        tokens.extend(fixed(&["#x", "#y", ".p", ".*s", ":up"]));
        tokens.push((1, anyone.clone().prop_map(|name| format!("<>{name}")).boxed()));
        tokens.push((1, anyone.prop_map(|name| format!("<!{name}")).boxed()));
        let provider = proptest::sample::select(&PROVIDERS[..]);
        match (PROVIDERS.contains(&name), name.starts_with('m')) {
            (true, _) => tokens.extend(fixed(&["+f", "+f", "+g", "+10.0.0.0/8"])),
            (_, true) => tokens.extend(fixed(&["<?f", "<?f", "<?g", "<@10.0.0.1"])),
            _ => {
                tokens.extend(fixed(&["<?f", "<?f", "<?g", "<@10.0.0.1", "<m/"]));
                tokens.push((1, provider.prop_map(|name| format!("<{name}:up")).boxed()));
            }
        }
    }
    let tokens =
        proptest::collection::btree_set(proptest::strategy::Union::new_weighted(tokens), 0..4);
    (0u32..3, 0u32..2, tokens).prop_map(move |(content, shape, tokens)| {
        // Labels are unique: `<b` and `<>b` may stand together, for they differ as text.
        let tokens: Vec<String> = tokens.into_iter().collect();
        format!("{name} ={content} !{shape} {}", tokens.join(" "))
    })
}

/// A change of several keys: new values and removals.
fn change(rich: bool) -> impl Strategy<Value = String> {
    let one = proptest::sample::select(&NAMES[..]).prop_flat_map(
        move |name| prop_oneof![3 => value(name, rich), 1 => Just(format!("-{name}"))],
    );
    proptest::collection::vec(one, 1..7).prop_map(|mut items| {
        let name =
            |item: &String| item.trim_start_matches('-').split(' ').next().unwrap().to_owned();
        items.sort_by_key(name);
        items.dedup_by_key(|item| name(item));
        items.join("; ")
    })
}

fn apply(intent: &mut BTreeMap<Key, Thing>, change: &str) {
    for item in change.split(';').map(str::trim) {
        match item.strip_prefix('-') {
            Some(name) => {
                intent.remove(&key(name));
            }
            None => {
                let thing = things(item).remove(0);
                intent.insert(thing.key(), thing);
            }
        }
    }
}

/// Everything intended, parts included; a shared part once.
fn expanded(intent: &BTreeMap<Key, Thing>) -> BTreeMap<Key, Thing> {
    let mut all = intent.clone();
    for thing in intent.values() {
        for (key, part) in thing.operation_parts() {
            all.entry(key).or_insert(part);
        }
    }
    all
}

/// What must hold whenever the engine is idle and nothing fails.
#[track_caller]
fn check_converged(lab: &Lab, intent: &BTreeMap<Key, Thing>) {
    lab.engine.audit().unwrap();
    for status in lab.engine.statuses() {
        let watched = lab.watched.get(&status.key).map(String::as_str).unwrap_or_default();
        assert_eq!(watched, common::watched(&lab.engine, &status.key), "{}", status.label);
    }
    let all = expanded(intent);
    for (key, thing) in &lab.system {
        let wanted =
            all.get(key).unwrap_or_else(|| panic!("`{thing}` is there, and nobody wants it"));
        assert_eq!(thing, wanted, "what is there is what is wanted");
        assert!(
            needs(lab, &all, thing).all(|(_, met)| met),
            "`{thing}` is there without what it needs: {}",
            lab.shown()
        );
    }
    for (key, thing) in all.iter().filter(|(key, _)| !lab.system.contains_key(key)) {
        let mut waits =
            needs(lab, &all, thing).filter(|(bond, _)| *bond == Bond::After).any(|(_, met)| !met);
        waits |= needs(lab, &all, thing).any(|(_, met)| !met);
        let taken = lab.system.values().any(|other| thing.claims().any(|claim| other.has(claim)));
        assert!(waits || taken, "`{thing}` is not there, and waits for nothing: {}", lab.shown());
        assert_ne!(lab.state(&thing.name), "CONFIGURED", "{key}");
    }
    let again: Vec<String> = intent.values().map(Thing::to_string).collect();
    let plan = lab.engine.plan(delta(&again.join("; ")).best_effort()).unwrap();
    assert_eq!(plan.to_string(), "", "a second plan is empty");
}

fn needs<'l>(
    lab: &'l Lab,
    all: &'l BTreeMap<Key, Thing>,
    thing: &Thing,
) -> impl Iterator<Item = (Bond, bool)> + use<'l> {
    let wholes = all
        .values()
        .filter(|whole| whole.operation_parts().iter().any(|(part, _)| *part == thing.key()));
    let wholes: Vec<Key> = wholes.map(Thing::key).collect();
    let direct = lab.engine.planes(&thing.key())[0].is_some()
        && lab.engine.status(&thing.key()).unwrap().part_of.is_empty();
    let whole = (!wholes.is_empty() && !direct)
        .then(|| wholes.iter().any(|whole| lab.system.contains_key(whole)));
    let needs: Vec<(Bond, bool)> =
        thing.dependencies().iter().map(|need| (need.bond, lab.is_met(&need.target))).collect();
    needs.into_iter().chain(whole.map(|met| (Bond::After, met)))
}

/// The least set of values whose exact needs are in the set: the whole truth where needs are exact.
fn satisfiable(intent: &BTreeMap<Key, Thing>) -> BTreeSet<Key> {
    let mut there: BTreeSet<Key> = BTreeSet::new();
    loop {
        let ready = intent.iter().filter(|(key, thing)| {
            let needs = thing.dependencies();
            let met = |target: &Target| matches!(target, Target::Exact(key) if there.contains(key));
            !there.contains(*key) && needs.iter().all(|need| met(&need.target))
        });
        let ready: Vec<Key> = ready.map(|(key, _)| key.clone()).collect();
        if ready.is_empty() {
            return there;
        }
        there.extend(ready);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    // proves kv.I1, kv.I2, kv.I3, kv.I7, kv.I9, kv.I11
    #[test]
    fn any_change_ends_in_what_was_asked(changes in proptest::collection::vec(change(true), 1..6)) {
        let mut lab = Lab::default();
        let mut intent = BTreeMap::new();
        for change in changes {
            let outcome = lab.commit_delta(delta(&change).best_effort()).unwrap();
            prop_assert!(matches!(&outcome, Outcome::Done { failed, .. } if failed.is_empty()), "{outcome:?}");
            apply(&mut intent, &change);
            check_converged(&lab, &intent);
        }
    }

    #[test]
    fn exact_needs_end_in_the_least_closure(changes in proptest::collection::vec(change(false), 1..6)) {
        let mut lab = Lab::default();
        let mut intent = BTreeMap::new();
        for change in changes {
            lab.commit(&change).unwrap();
            apply(&mut intent, &change);
            let there: BTreeSet<Key> = lab.system.keys().cloned().collect();
            prop_assert_eq!(there, satisfiable(&intent));
        }
    }

    // proves kv.I4
    #[test]
    fn plans_do_not_depend_on_the_way_there(one in change(true), two in change(true)) {
        let mut together = BTreeMap::new();
        apply(&mut together, &one);
        let mut forward = Lab::default();
        forward.commit_delta(delta(&one).best_effort()).unwrap();
        let mut items: Vec<&str> = one.split(';').collect();
        items.reverse();
        let mut backward = Lab::default();
        backward.commit_delta(delta(&items.join(";")).best_effort()).unwrap();
        let plans = [&forward, &backward].map(|lab| lab.engine.plan(delta(&two).best_effort()).unwrap());
        prop_assert_eq!(plans[0].to_string(), plans[1].to_string());
        prop_assert_eq!(plans[0].hash(), plans[1].hash());
    }

    // proves kv.I6
    #[test]
    fn a_failure_anywhere_leaves_everything_as_it_was(
        before in change(true),
        after in change(true),
        at in 0usize..12,
    ) {
        let mut lab = Lab::default();
        let mut intent = BTreeMap::new();
        lab.commit_delta(delta(&before).best_effort()).unwrap();
        apply(&mut intent, &before);
        let Ok(plan) = lab.plan(&after) else { return Ok(()) };
        let Some(op) = plan.operations().get(at) else { return Ok(()) };
        let failing = format!("{} {}", op.action, plan.label(op));
        let system = lab.shown();
        lab.fails_once = true;
        lab.failing.insert(failing, error(16, "busy", true));
        match lab.commit(&after).unwrap() {
            Outcome::Failed { undone, .. } => {
                prop_assert!(undone);
                prop_assert_eq!(lab.shown(), system);
            }
            Outcome::Done { .. } => apply(&mut intent, &after),
            refused @ Outcome::Refused { .. } => panic!("{refused:?}"),
        }
        lab.failing.clear();
        lab.settle(LONG);
        check_converged(&lab, &intent);
    }

    #[test]
    fn drift_of_any_kind_is_repaired(
        intended in change(true),
        drift in proptest::collection::vec(change(true), 1..4),
    ) {
        let mut lab = Lab::default();
        let mut intent = BTreeMap::new();
        lab.commit_delta(delta(&intended).best_effort()).unwrap();
        apply(&mut intent, &intended);
        let ours: BTreeSet<Key> = lab.system.keys().cloned().collect();
        lab.strict = false;
        lab.stumbled = true; // what the outside did may be in the way of a plan that does not know yet
        for drift in drift {
            // Only what we made drifts: other things are foreign, and stay.
            let drift = drift.split(';').filter(|item| {
                let name = item.trim().trim_start_matches('-').split(' ').next().unwrap();
                ours.contains(&key(name))
            });
            let facts = lab.outside_unheard(&drift.collect::<Vec<_>>().join(";"));
            lab.tell(facts);
        }
        lab.settle(LONG);
        lab.resync();
        lab.settle(LONG);
        check_converged(&lab, &intent);
    }

    // proves kv.I10
    #[test]
    fn a_crash_anywhere_ends_in_the_intent(before in change(true), after in change(true), at in 0usize..12) {
        let mut intent = BTreeMap::new();
        apply(&mut intent, &before);
        let mut half = Lab::default();
        half.commit_delta(delta(&before).best_effort()).unwrap();
        half.start_and_crash(delta(&after).best_effort(), at);
        for target in [false, true] {
            if target {
                apply(&mut intent, &after);
            }
            let mut again = half.restarted(&intent);
            again.settle(LONG);
            check_converged(&again, &intent);
        }
    }
}
