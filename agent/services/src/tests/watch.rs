//! Instances are woken by reads that have another answer, found without a look at anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::services::{LeafRead, Plane, Read};
use holdfast_config::tree::Leaf;
use holdfast_config::{InstancePath, ServiceTag, Tree, Value};
use proptest::prelude::*;

use super::models;
use crate::watch::AnswerChange;
use crate::{TouchedReads, Watches};

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

fn path(text: &str) -> InstancePath {
    models().native.resolve_write(&text.parse().unwrap()).unwrap()
}

fn read(text: &str) -> Read {
    let patterns = models().native.resolve_read(&text.parse().unwrap()).unwrap();
    Read::Leaves(LeafRead { plane: Plane::State, origin: Origin::Native, patterns })
}

fn status_of(port: &str) -> String {
    format!("/interfaces/interface[name={port}]/state/oper-status")
}

fn set(tree: &mut Tree<()>, at: &str, value: &str) {
    let leaf = Leaf::new(Value::Str(value.into()), ());
    tree.set_leaf(&models().native, &path(at), leaf);
}

fn answer(tree: &Tree<()>, read: &Read) -> Vec<Value> {
    let Read::Leaves(read) = read else { return Vec::new() };
    read.patterns.iter().flat_map(|pattern| tree.leaf_values(pattern)).collect()
}

/// Instances that the change from one tree to the other wakes, and the number of nodes that were looked at.
fn wake(watches: &mut Watches, old: &Tree<()>, new: &Tree<()>) -> (BTreeSet<ServiceTag>, usize) {
    let mut touched = TouchedReads::default();
    watches.compare(Plane::State, Origin::Native, (old, new), &mut touched);
    let changes = watches.wake(&touched, |read| answer(new, read));
    for AnswerChange { read, before, after, .. } in &changes {
        assert_eq!(*after, answer(new, read));
        assert_ne!(before, after);
    }
    (changes.into_iter().flat_map(|it| it.woken.into_keys()).collect(), touched.visits)
}

fn watch(watches: &mut Watches, name: &str, paths: &[&str], tree: &Tree<()>) {
    let reads = paths.iter().map(|it| (read(it), BTreeSet::new())).collect();
    watches.replace(&tag(name), reads, |read| answer(tree, read));
}

/// A box with this number of ports whose links are down.
fn ports(count: usize) -> Tree<()> {
    let mut tree = Tree::new();
    (0..count).for_each(|at| set(&mut tree, &status_of(&format!("p{at}")), "DOWN"));
    tree
}

#[test]
fn one_leaf_wakes_one_of_a_thousand_instances() {
    let before = ports(1000);
    let mut watches = Watches::default();
    for at in 0..1000 {
        watch(&mut watches, &at.to_string(), &[&status_of(&format!("p{at}"))], &before);
    }
    let mut after = before.clone();
    set(&mut after, &status_of("p500"), "UP");
    let (woken, visits) = wake(&mut watches, &before, &after);
    assert_eq!(woken, BTreeSet::from([tag("500")]));
    assert!(visits < 10, "{visits} visits");
    let (woken, visits) = wake(&mut watches, &after, &after.clone());
    assert!(woken.is_empty() && visits == 0, "{woken:?}, {visits} visits");
}

// proves sv.B114
#[test]
fn another_answer_comes_with_the_one_before_and_those_who_ask() {
    let before = ports(1);
    let mut watches = Watches::default();
    let place = Arc::from("port p0, sized: gate `up`");
    let reads = [(read(&status_of("p0")), BTreeSet::from([Arc::clone(&place)]))].into();
    watches.replace(&tag("acme"), reads, |read| answer(&before, read));
    let mut after = before.clone();
    set(&mut after, &status_of("p0"), "UP");
    let mut touched = TouchedReads::default();
    watches.compare(Plane::State, Origin::Native, (&before, &after), &mut touched);
    let changes = watches.wake(&touched, |read| answer(&after, read));
    let [change] = &changes[..] else { panic!("{changes:?}") };
    let text = |values: &[Value]| values.iter().map(ToString::to_string).collect::<String>();
    assert_eq!([&change.before, &change.after].map(|it| text(it)), ["DOWN", "UP"]);
    assert_eq!(change.woken, BTreeMap::from([(tag("acme"), BTreeSet::from([place]))]));
}

#[test]
fn ten_thousand_other_leaves_wake_nobody_and_are_not_compared() {
    let before = ports(10_001);
    let mut watches = Watches::default();
    watch(&mut watches, "acme", &[&status_of("p10000")], &before);
    let mut after = before.clone();
    (0..10_000).for_each(|at| set(&mut after, &status_of(&format!("p{at}")), "UP"));
    let (woken, visits) = wake(&mut watches, &before, &after);
    assert!(woken.is_empty());
    assert!(visits < 10, "{visits} visits");
}

#[test]
fn a_list_of_all_wakes_when_any_of_it_comes_or_goes() {
    let before = ports(2);
    let mut watches = Watches::default();
    watch(&mut watches, "acme", &[&status_of("*")], &before);
    watch(&mut watches, "bolt", &["/interfaces/interface[name=*]/state/mtu"], &before);
    let mut after = before.clone();
    set(&mut after, &status_of("q"), "DOWN");
    assert_eq!(wake(&mut watches, &before, &after).0, BTreeSet::from([tag("acme")]));
    let wait = watches.of_instance(&tag("acme")).next().unwrap();
    assert_eq!((wait.fired, wait.answer.len()), (1, 3));
    assert_eq!(wake(&mut watches, &after, &Tree::new()).0, BTreeSet::from([tag("acme")]));
    watches.remove(&tag("acme"));
    assert_eq!(watches.of_instance(&tag("acme")).count(), 0);
    assert!(wake(&mut watches, &Tree::new(), &before).0.is_empty());
}

#[test]
fn an_instance_that_goes_on_with_other_reads_keeps_the_counts_of_the_same() {
    let before = ports(3);
    let mut watches = Watches::default();
    watch(&mut watches, "acme", &[&status_of("p0"), &status_of("p1")], &before);
    let mut after = before.clone();
    set(&mut after, &status_of("p0"), "UP");
    wake(&mut watches, &before, &after);
    watch(&mut watches, "acme", &[&status_of("p0"), &status_of("p2")], &after);
    let fired: Vec<u64> = watches.of_instance(&tag("acme")).map(|wait| wait.fired).collect();
    assert_eq!(fired, [1, 0]);
    let mut last = after.clone();
    set(&mut last, &status_of("p1"), "UP");
    assert!(wake(&mut watches, &after, &last).0.is_empty(), "it does not wait for p1 any more");
}

const NAMES: [&str; 4] = ["acme", "bolt", "cord", "dome"];
/// More than a short list holds.
const PORTS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
const LEAVES: [&str; 3] =
    ["state/oper-status", "state/mtu", "ipv4/address[ip=10.0.0.1]/state/origin"];
const OPEN_LEAVES: [&str; 2] = ["ipv4/address[ip=*]/state/origin", "state/oper-status"];

#[derive(Clone, Debug)]
enum Event {
    Set(String, &'static str),
    RemovePort(&'static str),
    Watch(&'static str, Vec<String>),
    Unwatch(&'static str),
    Revision,
}

fn event() -> impl Strategy<Value = Event> {
    let port = || prop::sample::select(&PORTS[..]);
    let leaf = (port(), prop::sample::select(&LEAVES[..]))
        .prop_map(|(port, leaf)| format!("/interfaces/interface[name={port}]/{leaf}"));
    let watched = prop_oneof![
        leaf.clone(),
        prop::sample::select(&OPEN_LEAVES[..])
            .prop_map(|leaf| format!("/interfaces/interface[name=*]/{leaf}")),
        port().prop_map(|it| format!("/interfaces/interface[name={it}]/{}", OPEN_LEAVES[0])),
    ];
    let name = || prop::sample::select(&NAMES[..]);
    prop_oneof![
        8 => (leaf, prop::sample::select(vec!["1", "2"])).prop_map(|(at, to)| Event::Set(at, to)),
        2 => port().prop_map(Event::RemovePort),
        3 => (name(), prop::collection::vec(watched, 0..4)).prop_map(|it| Event::Watch(it.0, it.1)),
        1 => name().prop_map(Event::Unwatch),
        4 => Just(Event::Revision),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_trie_wakes_whom_a_comparison_of_all_answers_wakes(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut before = Tree::new();
        let mut now = Tree::new();
        let mut watches = Watches::default();
        let mut reads_by_instance: BTreeMap<ServiceTag, BTreeSet<Read>> = BTreeMap::new();
        for event in events {
            match event {
                Event::Set(at, to) => set(&mut now, &at, to),
                Event::RemovePort(port) => {
                    let at = path(&format!("/interfaces/interface[name={port}]"));
                    now.remove(&models().native, &at);
                }
                Event::Watch(name, paths) => {
                    let reads: BTreeSet<Read> = paths.iter().map(|it| read(it)).collect();
                    let noted = reads.iter().map(|it| (it.clone(), BTreeSet::new())).collect();
                    watches.replace(&tag(name), noted, |read| answer(&before, read));
                    reads_by_instance.insert(tag(name), reads);
                }
                Event::Unwatch(name) => {
                    watches.remove(&tag(name));
                    reads_by_instance.remove(&tag(name));
                }
                Event::Revision => {
                    let differs = |read: &Read| answer(&before, read) != answer(&now, read);
                    let naive = reads_by_instance.iter().filter(|(_, reads)| reads.iter().any(differs));
                    let naive: BTreeSet<ServiceTag> = naive.map(|(tag, _)| tag.clone()).collect();
                    prop_assert_eq!(wake(&mut watches, &before, &now).0, naive);
                    before = now.clone();
                }
            }
        }
        for name in NAMES {
            watches.remove(&tag(name));
        }
        prop_assert_eq!(wake(&mut watches, &Tree::new(), &now).1, 0, "nothing is left of the trie");
    }
}
