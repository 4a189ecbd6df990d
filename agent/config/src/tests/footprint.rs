//! Changes examined on one configuration and committed one after the other: those with disjoint footprints can be
//! rebased in any order, with the result of one examination after the other.

mod requests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use self::requests::{any_request, apply, some_box};
use super::stack::{PORTS_DISABLED, factory, with_layer};
use super::*;
use crate::footprint::{EditScope, Footprint};
use crate::instance::{InstancePath, Step};
use crate::tree::{Branch, Child};

const NI: &str = "/network-instances/network-instance[name=DEFAULT]";

/// A request with its candidate on a common base.
pub(super) struct Examined {
    request: String,
    candidate: Configuration,
    pub(super) footprint: Footprint,
}

pub(super) fn examine(base: &Configuration, request: &str) -> Option<Examined> {
    let (candidate, scope) = apply(base, request).ok()?;
    let footprint = Footprint::of(base, &candidate, &scope);
    Some(Examined { request: request.to_owned(), candidate, footprint })
}

fn check_equal(one: &Configuration, other: &Configuration, why: &str) {
    for layer in LayerKey::ALL {
        let lines = |it: &Configuration| {
            lines(it.models().schema(layer.origin), it.layers().tree(layer), mark_word)
        };
        assert_eq!(lines(one), lines(other), "{layer}: {why}");
        assert_eq!(one.layers().tree(layer), other.layers().tree(layer), "{layer}: {why}");
    }
    assert_eq!(one.layers(), other.layers(), "{why}");
    assert_eq!(lines_effective(one), lines_effective(other), "{why}");
    assert_eq!(one.effective(), other.effective(), "{why}");
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(one.config_view(origin), other.config_view(origin), "{origin}: {why}");
    }
    assert_eq!(one.entries(), other.entries(), "{why}");
    assert_eq!(one.has_factory(), other.has_factory(), "{why}");
    assert_eq!(one.factory(), other.factory(), "{why}");
}

/// Checks what a restart would compute from the same layers.
fn check_scratch(it: &Configuration, why: &str) {
    let scratch = Configuration::new(it.shared_models().clone(), it.layers().clone());
    assert_eq!(lines_effective(it), lines_effective(&scratch), "{why}");
    assert_eq!(it.effective(), scratch.effective(), "{why}");
    for origin in [Origin::OpenConfig, Origin::Native] {
        assert_eq!(it.config_view(origin), scratch.config_view(origin), "{origin}: {why}");
    }
    assert_eq!(it.entries(), scratch.entries(), "{why}");
}

/// The objects that differ, each with its own leaves before and after: what a plan is made from.
fn object_changes(
    old: &Configuration,
    new: &Configuration,
) -> Vec<(InstancePath, [Vec<String>; 2])> {
    fn own(
        schema: &Schema,
        branch: &Branch<Provenance>,
        path: &mut Vec<Step>,
        found: &mut Vec<String>,
    ) {
        for (node, child) in branch.children() {
            if schema.node(*node).object.is_some() {
                continue;
            }
            match child {
                Child::Leaf(leaf) => found.push(format!(
                    "{path:?} {node:?} {} {}",
                    leaf.value,
                    leaf.meta.is_leased()
                )),
                Child::Container(branch) => {
                    path.push(Step::node(*node));
                    own(schema, branch, path, found);
                    path.pop();
                }
                Child::List(list) => list.iter().for_each(|(keys, entry)| {
                    path.push(Step::entry(*node, keys.clone()));
                    own(schema, entry, path, found);
                    path.pop();
                }),
            }
        }
    }
    let leaves = |branch: Option<Arc<Branch<Provenance>>>| {
        let mut found = Vec::new();
        if let Some(branch) = branch {
            own(&new.models().native, &branch, &mut Vec::new(), &mut found);
        }
        found
    };
    let changes = changed_objects(old, new).into_iter();
    changes.map(|it| (it.path, [leaves(it.old), leaves(it.new)])).collect()
}

/// Rows of the database that differ.
fn rows(old: &Configuration, new: &Configuration) -> Vec<RowChange> {
    let mut rows = layer_rows_diff(new.models(), old.layers(), new.layers());
    rows.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    rows
}

/// Commits examined requests one after the other, each rebased, and compares each step with an examination of its own.
pub(super) fn check_rebased(base: &Configuration, requests: &[&Examined]) {
    let mut current = base.clone();
    for it in requests {
        let names: Vec<&str> = requests.iter().map(|it| it.request.as_str()).collect();
        let why = format!("{} of {names:#?}", it.request);
        let rebased = it.candidate.rebased(base, &current);
        let serial = match apply(&current, &it.request) {
            Ok((serial, _)) => serial,
            Err(errors) => panic!("{why}: {errors}"),
        };
        check_equal(&rebased, &serial, &why);
        check_scratch(&rebased, &why);
        assert_eq!(
            object_changes(base, &it.candidate),
            object_changes(&current, &rebased),
            "another plan: {why}"
        );
        assert_eq!(rows(base, &it.candidate), rows(&current, &rebased), "other rows: {why}");
        current = rebased;
    }
}

/// Numbers of pairs that keep clear, and that do not, by kinds of requests.
#[derive(Debug, Default)]
struct Tally(RefCell<BTreeMap<&'static str, [u32; 2]>>);

impl Tally {
    /// Counts a pair for each kind that one of it is of.
    fn note(&self, requests: [&str; 2], keeps_clear: bool) {
        let kinds = [
            ("any", ""),
            ("text", "cli:"),
            ("secret", "password"),
            ("union", "union "),
            ("boot", "boot: "),
            ("switch", "switch: "),
        ];
        for (kind, part) in kinds {
            if requests.iter().any(|request| request.contains(part)) {
                self.0.borrow_mut().entry(kind).or_default()[usize::from(keeps_clear)] += 1;
            }
        }
    }

    /// Checks that the pairs of a kind are at least so many, and which parts of them keep clear and meet, in percent.
    #[track_caller]
    fn check(&self, kind: &str, least: u32, [clear_percent, met_percent]: [u32; 2]) {
        let [met, clear] = self.0.borrow().get(kind).copied().unwrap_or_default();
        let all = clear + met;
        assert!(all >= least, "{all} pairs, {kind}");
        assert!(clear * 100 >= all * clear_percent, "{clear} of {all} pairs keep clear, {kind}");
        assert!(met * 100 >= all * met_percent, "{met} of {all} pairs meet, {kind}");
    }
}

/// Pairs that keep clear commute and can be rebased, and many of both sorts are tried.
#[test]
fn disjoint_footprints_commute() {
    let tally = Tally::default();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let requests = (some_box(), any_request(), any_request());
    runner
        .run(&requests, |(start, one, other)| {
            let base = start.configuration();
            let (Some(one), Some(other)) = (examine(&base, &one), examine(&base, &other)) else {
                return Ok(());
            };
            let keeps = one.footprint.keeps_clear_of(&other.footprint);
            prop_assert_eq!(keeps, other.footprint.keeps_clear_of(&one.footprint), "symmetry");
            tally.note([&one.request, &other.request], keeps);
            if !keeps {
                return Ok(());
            }
            check_rebased(&base, &[&one, &other]);
            check_rebased(&base, &[&other, &one]);
            let ends = [(&one, &other), (&other, &one)]
                .map(|(first, second)| apply(&first.candidate, &second.request).unwrap().0);
            check_equal(&ends[0], &ends[1], "the orders");
            Ok(())
        })
        .unwrap();
    tally.check("any", LEAST / 2, [25, 10]);
    tally.check("text", LEAST / 8, [25, 10]);
    tally.check("secret", LEAST / 12, [25, 10]);
    tally.check("union", LEAST / 80, [0, 50]);
    tally.check("boot", LEAST / 20, [25, 10]);
    tally.check("switch", LEAST / 40, [25, 5]);
}

/// Several changes at once, each clear of each other.
#[test]
fn several_that_keep_clear_are_rebased_in_turn() {
    let three = Cell::new(0u32);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(CASES));
    let requests = (some_box(), prop::collection::vec(any_request(), 3..8));
    runner
        .run(&requests, |(start, requests)| {
            let base = start.configuration();
            let mut taken: Vec<Examined> = Vec::new();
            for it in requests.iter().filter_map(|request| examine(&base, request)) {
                if taken.iter().all(|other| other.footprint.keeps_clear_of(&it.footprint)) {
                    taken.push(it);
                }
            }
            three.set(three.get() + u32::from(taken.len() > 2));
            check_rebased(&base, &taken.iter().collect::<Vec<_>>());
            check_rebased(&base, &taken.iter().rev().collect::<Vec<_>>());
            Ok(())
        })
        .unwrap();
    assert!(three.get() * 4 > CASES, "{} of {CASES} cases have three", three.get());
}

/// The cost of a rebase is that of the smaller change, whichever side it is on.
#[test]
fn a_rebase_costs_the_smaller_change() {
    let routes: Vec<String> = (0..500)
        .map(|n| {
            format!(
                "update native:{NI}/static[name=s]/route[prefix=10.{}.{}.0/24]/description \"d\"",
                n / 250,
                n % 250
            )
        })
        .collect();
    let base = after(&["update native:/system/hostname \"box\"", &routes[..100].join("; ")]);
    let many = examine(&base, &routes[100..].join("; ")).unwrap();
    let one = examine(&base, "update native:/interfaces/interface[name=a]/mtu 1400").unwrap();
    assert!(one.footprint.keeps_clear_of(&many.footprint));
    for (late, early) in [(&one, &many), (&many, &one)] {
        let rebased = late.candidate.rebased(&base, &early.candidate);
        assert_eq!(rebased.work().entries, 2, "the root and the interface");
        assert_eq!(rebased.entries(), base.entries() + 401);
        check_scratch(&rebased, "one beside many");
    }
    let unmoved = one.candidate.rebased(&base, &base.clone());
    assert!(
        unmoved.is_same(&one.candidate) && unmoved.effective().is_same(one.candidate.effective())
    );
    let nothing = base.rebased(&base, &many.candidate);
    assert!(nothing.is_same(&many.candidate));
}

/// Changes that concern one object, or what the other's examination looked at, and others beside them.
#[test]
fn footprints_meet_or_are_disjoint() {
    let route = |prefix: &str| format!("native:{NI}/static[name=s]/route[prefix={prefix}]");
    let address = |ip: &str| {
        let subinterface = "/interfaces/interface[name=a]/subinterfaces/subinterface[index=0]";
        format!("{subinterface}/ipv4/addresses/address[ip={ip}]")
    };
    let [ten, eleven, twelve, thirteen] =
        ["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"].map(route);
    let start = [
        [&ten, &eleven, &twelve].map(|it| format!("update {it}/description \"d\"")).join("; "),
        format!(
            "update {}/config/prefix-length 24; update {}/config/prefix-length 24",
            address("10.0.0.1"),
            address("10.0.0.2")
        ),
        "update /system/config/hostname \"box\"".to_owned(),
    ];
    let base = after(&start.iter().map(String::as_str).collect::<Vec<_>>());
    let check = |one: &str, other: &str, clear: bool| {
        let first = examine(&base, one).unwrap();
        let second = examine(&base, other).unwrap();
        assert_eq!(first.footprint.keeps_clear_of(&second.footprint), clear, "{one}, {other}");
        assert_eq!(second.footprint.keeps_clear_of(&first.footprint), clear, "{other}, {one}");
    };
    let say = |route: &str, text: &str| format!("update {route}/description \"{text}\"");
    let delete = |path: &str| format!("delete {path}");
    check(&say(&ten, "e"), &say(&eleven, "e"), true);
    check(&say(&ten, "e"), &delete(&ten), false);
    // An equal value makes no difference, and yet the later of the two counts.
    check(&say(&ten, "d"), &say(&ten, "e"), false);
    check(&say(&ten, "d"), &say(&ten, "d"), true);
    check(&delete(&thirteen), &say(&thirteen, "d"), false);
    // The first route keeps the entry that the routes are in. With it and another one gone, a third does.
    check(&delete(&eleven), &delete(&twelve), true);
    check(&delete(&eleven), &delete(&ten), false);
    check(&delete(&address("10.0.0.1")), &delete(&address("10.0.0.2")), false);
    // Both models name one object.
    let openconfig = format!("update {}/config/prefix-length 25", address("10.0.0.1"));
    let native = "native:/interfaces/interface[name=a]/ipv4/address[ip=10.0.0.1]";
    check(&openconfig, &format!("update {native}/prefix-length 24"), false);
    let wildcard = delete("/interfaces/interface[name=*]/config/mtu");
    let mtu = "mtu 1400";
    check(&wildcard, &format!("update native:/interfaces/interface[name=z]/{mtu}"), false);
    check(&wildcard, &delete(&twelve), true);
    let line = |route: &str| {
        format!("update cli: network-instance DEFAULT static s route {route}\n  description d")
    };
    check("update cli: system motd-banner x", &delete(&twelve), true);
    check("update cli: system motd-banner x", "update cli: system login-banner x", false);
    check(&line("11.0.0.0/8"), &delete(&twelve), true);
    check(&line("12.0.0.0/8"), &delete(&twelve), false);
    check(&line("12.0.0.0/8"), &line("11.0.0.0/8"), true);
    // Existing values count too, and so do absent ones for `no`.
    let no_route =
        |route: &str| format!("update cli: no network-instance DEFAULT static s route {route}");
    check(&no_route("13.0.0.0/8"), &say(&thirteen, "d"), false);
    check(&no_route("13.0.0.0/8"), &delete(&twelve), true);
    check("update cli: interface z", &delete(&twelve), true);
    check("replace cli: system login-banner x", &delete(&twelve), false);
    check("union cli: system login-banner x", &delete(&twelve), false);
    check("union / {}", &delete(&twelve), false);
    let union = "union native:/interfaces/interface[name=z] {\"mtu\":1400}";
    check(union, &delete(&twelve), true);
    let hostname = "update /system/config/hostname \"x\"";
    check(hostname, "update native:/system/motd-banner \"x\"", false);
    // Entries in an object are objects of their own. Leaves outside of entries have one row, whatever object they are
    // in.
    let user = "update native:/system/user[username=u]/role \"admin\"";
    let policy = "update native:/reconciliation/drift-policy[object=link]/action \"report\"";
    let interval = "update native:/reconciliation/resync-interval 60";
    check(hostname, user, true);
    check(hostname, policy, true);
    check(interval, policy, true);
    check(interval, "update native:/system/motd-banner \"x\"", false);
    check(hostname, interval, true); // in layers of different models
    check("replace /system {}", user, false);
    check("delete native:/system/motd-banner", user, true);
    let scope = EditScope::default();
    let lease = LeasedPort {
        name: "a".into(),
        addresses: vec!["192.0.2.9/24".parse().unwrap()],
        routes: Vec::new(),
    };
    let candidate = examine(&base, &format!("delete {}", address("10.0.0.1"))).unwrap();
    let leased = Footprint::of(&base, &base.leased(&[lease]).unwrap(), &scope);
    assert!(!leased.keeps_clear_of(&candidate.footprint), "an address hides a lease");
    let nothing = Footprint::of(&base, &base, &scope);
    assert!(nothing.keeps_clear_of(&nothing) && !Footprint::everything().keeps_clear_of(&nothing));
    assert!(!Footprint::everything().keeps_clear_of(&candidate.footprint));
}

/// Switches, and changes of the boot configuration, on a box that has one.
#[test]
fn changes_of_the_box_meet_what_their_layers_have() {
    let (base, _) = apply(&empty(), "boot: interface a\n  mtu 1300").unwrap();
    let check = |one: &str, other: &str, clear: bool| {
        let first = examine(&base, one).unwrap();
        let second = examine(&base, other).unwrap();
        assert_eq!(first.footprint.keeps_clear_of(&second.footprint), clear, "{one}, {other}");
    };
    let [mtu, address] = ["mtu 1400", "ipv4/address[ip=10.0.0.1]/prefix-length 24"];
    let [of_a, of_b] = ["a", "b"].map(|it| format!("native:/interfaces/interface[name={it}]"));
    // All that the layers have gets another rank.
    check("switch: bootz false", &format!("update {of_a}/{address}"), false);
    check("switch: bootz false", &format!("update {of_b}/{mtu}"), true);
    check("switch: bootz false", "switch: gnsi false", false);
    check("switch: bootz false", "boot: ", false);
    // A change that changes nothing now would after the other one.
    check("switch: bootz false", "switch: bootz true", false);
    check("switch: gnsi false", &format!("update {of_a}/{address}"), true);
    check("boot: interface a\n  mtu 1301", &format!("update {of_a}/{address}"), false);
    check("boot: interface a\n  mtu 1301", &format!("update {of_b}/{mtu}"), true);
    check("boot: no interface b\ninterface a\n  mtu 1300", &format!("update {of_b}/{mtu}"), false);
    check("boot: interface c\ninterface a\n  mtu 1300", &format!("delete {of_b}"), true);
    check("boot: interface a\n  mtu 1300", "boot: interface a\n  mtu 1301", false);
    let credentials = Footprint::of_credentials();
    for (request, clear) in [
        ("switch: gnsi false".to_owned(), false),
        ("switch: bootz false".to_owned(), true),
        (format!("update {of_b}/{mtu}"), true),
    ] {
        let found = examine(&base, &request).unwrap().footprint;
        assert_eq!(found.keeps_clear_of(&credentials), clear, "{request}");
    }
    assert!(!credentials.keeps_clear_of(&credentials));
}

/// Random cases of each property.
const CASES: u32 = 900;
/// Cases with the least number of pairs of each sort: fewer than are drawn, because chance draws the sorts.
const LEAST: u32 = 600;

/// Any address on a link hides its lease, so two changes of addresses there meet although they name different ones.
#[test]
fn addresses_of_a_link_with_a_lease_meet() {
    let native = |ip: &str| format!("native:/interfaces/interface[name=a]/ipv4/address[ip={ip}]");
    let with_lease = format!(
        "update native:/interfaces/interface[name=a]/mtu 1400; update {}/prefix-length 24",
        native("10.0.0.1")
    );
    let lease = format!(
        "update native:/interfaces/interface[name=a]/enabled true; update {}/prefix-length 24",
        native("192.0.2.9")
    );
    for leased in [false, true] {
        let base = after(&[&with_lease]);
        let base = if leased { with_layer(&base, LayerKey::LEASE, &lease) } else { base };
        let deleted = examine(&base, &format!("delete {}", native("10.0.0.1"))).unwrap();
        let other = format!("update {}/prefix-length 24", native("10.0.0.2"));
        let other = examine(&base, &other).unwrap();
        assert_eq!(deleted.footprint.keeps_clear_of(&other.footprint), !leased);
    }
}

/// A delete in a port that the factory knows looks at all of the port, which may have to be put back.
#[test]
fn deletes_in_a_factory_port_read_the_port() {
    let native =
        |ip: &str| format!("native:/interfaces/interface[name=eth0]/ipv4/address[ip={ip}]");
    let update = format!("update {}/prefix-length 24", native("10.0.0.1"));
    for (start, clear) in [(factory(PORTS_DISABLED), false), (empty(), true)] {
        let base = then(&start, &format!("update {PORT}/mtu 1400; {update}"));
        let deleted = examine(&base, &format!("delete {}", native("10.0.0.1"))).unwrap();
        let other = format!("update {}/prefix-length 24", native("10.0.0.2"));
        let other = examine(&base, &other).unwrap();
        assert_eq!(deleted.footprint.keeps_clear_of(&other.footprint), clear);
    }
}

const PORT: &str = "native:/interfaces/interface[name=eth0]";

/// Leaves outside of entries are parts of objects, which footprints have as wholes, or of the native model alone. None has an OpenConfig default, which
/// would be in use while there is anything beside it: the footprint would have to read that.
#[test]
fn leaves_outside_of_entries_are_parts_of_objects_or_native_alone() {
    let schema = &models().native;
    let map = &models().map;
    for leaf in map.anchors[0].leaves.iter() {
        let has_object = leaf.native.iter().any(|node| schema.node(*node).object.is_some());
        let default = leaf.openconfig.iter().find_map(|mapped| mapped.default.as_ref());
        let is_known = has_object || leaf.openconfig.is_empty();
        assert!(is_known && default.is_none(), "{:?}", schema.node(leaf.native[0]).name);
    }
}
