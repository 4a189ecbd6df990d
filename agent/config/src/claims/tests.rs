//! Claims joined by rows, and against a model that joins them all from scratch.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::layer::{LayerKey, Layers};
use crate::tests::{edit, empty, models};
use crate::{Configuration, RowChange, layer_rows_diff};

/// Leaves by path and value, keys included, with the names of their holders.
type Ledger = BTreeMap<String, (String, BTreeSet<String>)>;

/// Outputs that claims are made of: command lines after `cli:`, else an OpenConfig path with a document.
const OUTPUTS: [&str; 12] = [
    "cli:interface br0\n type bridge",
    "cli:interface br0\n mtu 1400",
    "cli:interface br0\n mtu 1500",
    "cli:interface br0\n type bridge\n ipv4\n  address 10.0.0.1\n   prefix-length 24",
    "cli:interface br0\n type bridge\n ipv4\n  address 10.0.0.1\n   prefix-length 25",
    "cli:interface eth1\n master br0",
    "cli:interface eth2\n master br0",
    "cli:interface eth1",
    "/interfaces/interface[name=eth1] {\"config\":{\"name\":\"eth1\",\"description\":\"a\"}}",
    "/interfaces/interface[name=eth1] {\"config\":{\"name\":\"eth1\",\"description\":\"b\"}}",
    "/interfaces/interface[name=eth2] {\"config\":{\"name\":\"eth2\",\"mtu\":1400}}",
    "/interfaces/interface[name=eth1] {\"config\":{\"name\":\"eth1\"}}",
];

fn key(text: &str) -> ClaimKey {
    let (instance, state) = text.split_once('/').unwrap_or((text, "init"));
    let tag = ServiceTag {
        service: "bridge-access".into(),
        key_name: "name".into(),
        key: instance.into(),
    };
    ClaimKey { tag, component: ["access".into(), "main".into()], state: state.into() }
}

/// The claim that puts out some of [`OUTPUTS`].
fn claim(outputs: &[usize]) -> Claim {
    let configured = outputs.iter().fold(empty(), |configuration: Configuration, output| {
        configuration.edit(&edit(&format!("update {}", OUTPUTS[*output]))).unwrap()
    });
    let layer = |origin| configured.layers().tree(LayerKey::client(origin)).clone();
    Claim { native: layer(Origin::Native), openconfig: layer(Origin::OpenConfig) }
}

fn path_text(origin: Origin, path: &InstancePath) -> String {
    format!("{origin:?} {}", path.to_path(models().schema(origin)))
}

/// Contents of all claims, joined from scratch; `None` when some disagree.
fn naive(claims: &BTreeMap<ClaimKey, Claim>) -> Option<Ledger> {
    let mut ledger = Ledger::new();
    let mut agree = true;
    for (key, claim) in claims {
        for origin in [Origin::Native, Origin::OpenConfig] {
            claim.tree(origin).walk(&mut |path, leaf| {
                let value = format!("{:?}", leaf.value);
                let existing = ledger
                    .entry(path_text(origin, path))
                    .or_insert_with(|| (value.clone(), BTreeSet::new()));
                agree &= existing.0 == value;
                existing.1.insert(key.to_string());
            });
        }
    }
    agree.then_some(ledger)
}

/// Contents as the incremental join has them.
fn joined(claims: &Claims) -> Ledger {
    let mut ledger = Ledger::new();
    for origin in [Origin::Native, Origin::OpenConfig] {
        claims.layer(origin).walk(&mut |path, leaf| {
            let holders = claims.holders(origin, path);
            let holders = holders.into_iter().map(ToString::to_string).collect();
            ledger.insert(path_text(origin, path), (format!("{:?}", leaf.value), holders));
        });
    }
    ledger
}

fn replaced(claims: &Claims, changes: &[(&str, Option<&[usize]>)]) -> Result<Claims, ClaimError> {
    let changes = changes.iter().map(|(name, outputs)| (key(name), outputs.map(claim)));
    claims.replaced(models(), changes)
}

/// Writes the rows that differ.
fn store(rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, old: &Claims, new: &Claims) {
    let of = |claims: &Claims| {
        let mut layers = Layers::new();
        layers.set_claims(claims.clone());
        layers
    };
    for RowChange { key, value } in layer_rows_diff(models(), &of(old), &of(new)) {
        match value {
            Some(value) => drop(rows.insert(key, value)),
            None => drop(rows.remove(&key)),
        }
    }
}

fn disagreements(result: Result<Claims, ClaimError>) -> Vec<String> {
    let Err(ClaimError::Disagreements(found)) = result else { panic!("they agree") };
    let text = |it: Disagreement| {
        let [(one, a), (other, b)] = it.sides;
        format!("{} is {a:?} by {one}, {b:?} by {other}", path_text(it.origin, &it.path))
    };
    found.into_iter().map(text).collect()
}

fn leaf_paths(claims: &Claims) -> Vec<String> {
    let ledger = joined(claims);
    ledger.into_iter().map(|(path, (_, holders))| format!("{path} {}", holders.len())).collect()
}

#[test]
fn shared_leaves_and_entries_stay_until_their_last_holder_goes() {
    let both =
        replaced(&Claims::default(), &[("acme", Some(&[3, 5])), ("bolt", Some(&[3, 6]))]).unwrap();
    let address = |count| {
        let br0 = "Native /interfaces/interface[name=br0]";
        [
            format!("{br0}/ipv4/address[ip=10.0.0.1]/ip {count}"),
            format!("{br0}/ipv4/address[ip=10.0.0.1]/prefix-length {count}"),
            format!("{br0}/name {count}"),
            format!("{br0}/type {count}"),
        ]
    };
    let port = |name: &str| {
        let entry = format!("Native /interfaces/interface[name={name}]");
        [format!("{entry}/master 1"), format!("{entry}/name 1")]
    };
    let all = [&address(2)[..], &port("eth1"), &port("eth2")].concat();
    assert_eq!(leaf_paths(&both), all);
    let one = replaced(&both, &[("acme", None)]).unwrap();
    assert_eq!(leaf_paths(&one), [&address(1)[..], &port("eth2")].concat());
    let none = replaced(&one, &[("bolt", None)]).unwrap();
    assert!(none.is_empty() && none.layer(Origin::Native).is_empty());
    assert_eq!(none.native.leaves, 0);
    assert_eq!(leaf_paths(&both), all, "the earlier version is as it was");
}

#[test]
fn different_values_are_refused_unless_all_holders_change_them_together() {
    let both = replaced(&Claims::default(), &[("acme", Some(&[3])), ("bolt", Some(&[3]))]).unwrap();
    let refused = disagreements(replaced(&both, &[("bolt", Some(&[4]))]));
    let prefix = "Native /interfaces/interface[name=br0]/ipv4/address[ip=10.0.0.1]/prefix-length";
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].starts_with(prefix), "{refused:?}");
    for part in ["24", "25", "[name='acme'] (access main, init)", "[name='bolt']"] {
        assert!(refused[0].contains(part), "{part}: {refused:?}");
    }
    let moved = replaced(&both, &[("acme", Some(&[4])), ("bolt", Some(&[4]))]).unwrap();
    assert_eq!(joined(&moved).len(), joined(&both).len());
}

#[test]
fn an_entry_that_a_claim_names_alone_is_held() {
    let claims =
        replaced(&Claims::default(), &[("acme", Some(&[7])), ("bolt", Some(&[5]))]).unwrap();
    let eth1 = models()
        .native
        .resolve_write(&"/interfaces/interface[name=eth1]".parse().unwrap())
        .unwrap();
    assert_eq!(claims.holders(Origin::Native, &eth1).len(), 2);
    let left = replaced(&claims, &[("bolt", None)]).unwrap();
    assert_eq!(leaf_paths(&left), ["Native /interfaces/interface[name=eth1]/name 1"]);
}

#[test]
fn a_replacement_costs_what_it_changes() {
    let bridge = claim(&[3]);
    let all = (0..1000).map(|number| (key(&format!("i{number}")), Some(bridge.clone())));
    let claims = Claims::default().replaced(models(), all).unwrap();
    let changed = replaced(&claims, &[("i500", Some(&[3, 5]))]).unwrap();
    assert_eq!(changed.work(), 2, "the port's key and its master");
    let same = replaced(&changed, &[("i500", Some(&[3, 5]))]).unwrap();
    assert_eq!(same.work(), 0);
    assert!(same.layer(Origin::Native).is_same(changed.layer(Origin::Native)));
}

#[test]
fn too_many_leaves_are_refused() {
    let mut full = replaced(&Claims::default(), &[("acme", Some(&[0]))]).unwrap();
    full.native.leaves = CLAIMED_LEAVES.figure - 1;
    assert!(replaced(&full, &[("bolt", Some(&[0]))]).is_ok(), "shared leaves count once");
    let refused = replaced(&full, &[("bolt", Some(&[5]))]);
    assert_eq!(refused.unwrap_err(), ClaimError::Limit(LimitExceeded { limit: &CLAIMED_LEAVES }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_join_is_that_of_all_claims(
        rounds in prop::collection::vec(
            prop::collection::vec(
                (0..5_usize, prop::option::of(prop::collection::vec(0..OUTPUTS.len(), 0..4))),
                1..4,
            ),
            1..12,
        ),
    ) {
        let mut claims = Claims::default();
        let mut model = BTreeMap::new();
        let mut rows = BTreeMap::new();
        for round in rounds {
            let mut wanted = model.clone();
            let mut changes = Vec::new();
            for (instance, outputs) in round {
                let key = key(["a", "b/x", "b/y", "c", "d"][instance]);
                let claim = outputs.map(|outputs| claim(&outputs));
                match claim.as_ref().filter(|claim| !claim.is_empty()) {
                    Some(claim) => wanted.insert(key.clone(), claim.clone()),
                    None => wanted.remove(&key),
                };
                changes.push((key, claim));
            }
            let result = claims.replaced(models(), changes);
            match naive(&wanted) {
                Some(ledger) => {
                    let after = result.unwrap();
                    prop_assert_eq!(&joined(&after), &ledger);
                    prop_assert_eq!(after.native.leaves + after.openconfig.leaves, ledger.len());
                    prop_assert!(after.iter().eq(wanted.iter()));
                    let reached = claims.replaced(models(), claims.changes_to(&after)).unwrap();
                    prop_assert_eq!(joined(&reached), ledger);
                    store(&mut rows, &claims, &after);
                    let (layers, unknown) = Layers::from_rows(models(), rows.clone()).unwrap();
                    prop_assert_eq!((layers.claims(), unknown), (&after, 0));
                    prop_assert_eq!(joined(layers.claims()), joined(&after));
                    prop_assert_eq!(layers.tree(LayerKey::SERVICE_NATIVE), after.layer(Origin::Native));
                    (claims, model) = (after, wanted);
                }
                None => prop_assert!(matches!(result, Err(ClaimError::Disagreements(_)))),
            }
        }
    }
}
