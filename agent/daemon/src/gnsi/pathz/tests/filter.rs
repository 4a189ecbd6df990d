//! Pruned trees, compared with a check of every leaf.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::tree::{Child, Leaf, NodeRef, Tree};
use holdfast_config::{InstancePath, Path, Value};
use holdfast_security::pathz::{Action, Mode};
use holdfast_telemetry::{ChangeDetection, Filter, LeafVersion, Selection, TreeUpdate, Walk};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Paths of leaves, and paths for rules; `N` stands for one of two ports.
const LEAVES: [&str; 7] = [
    "/interfaces/interface[name=N]/name",
    "/interfaces/interface[name=N]/config/name",
    "/interfaces/interface[name=N]/config/mtu",
    "/interfaces/interface[name=N]/state/mtu",
    "/interfaces/interface[name=N]/state/counters/in-octets",
    "/system/config/hostname",
    "/system/state/hostname",
];
const RULES: [&str; 9] = [
    "/",
    "/interfaces",
    "/interfaces/interface[name=*]",
    "/interfaces/interface[name=N]",
    "/interfaces/interface[name=*]/config",
    "/interfaces/interface[name=N]/state",
    "/interfaces/interface[name=N]/state/counters",
    "/interfaces/interface[name=*]/config/mtu",
    "/system/config/hostname",
];
const PORTS: [&str; 2] = ["eth0", "eth1"];
const WILDCARDS: [&str; 9] = [
    "/...",
    "/.../mtu",
    "/.../name",
    "/*/*/name",
    "/*/*/*/mtu",
    "/interfaces/*[name=eth0]/*/name",
    "/interfaces/interface[name=eth1]/*",
    "/interfaces/.../in-octets",
    "/system/*/hostname",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // proves 5.49
    #[test]
    fn readers_see_just_what_is_permitted(rules in vec(rule(), 0..8), leaves in leaves()) {
        let judge = judge(&rules.join("; "));
        let rights = rights(&judge, "ada");
        let tree = tree(&leaves, 1);
        let want: BTreeSet<String> = leaves
            .iter()
            .chain(leaves.iter().filter_map(|leaf| key_of(leaf)).collect::<BTreeSet<_>>().iter())
            .filter(|leaf| permitted(&judge, leaf))
            .cloned()
            .collect();
        let walked = walk_all(&mut Walk::whole(selection(&rights), &tree));
        prop_assert_eq!(&walked.updates, &want);
        prop_assert!(walked.deletes.is_empty());
        // A document has the keys of every entry with any content in it.
        let cut = visible(
            &MODELS.openconfig,
            rights.read(Scope::OpenConfig),
            &InstancePath::root(),
            NodeRef::Branch(tree.root()),
        );
        let keys = want.iter().filter_map(|leaf| key_of(leaf));
        let printed: BTreeSet<String> = want.iter().cloned().chain(keys).collect();
        prop_assert_eq!(leaves_of(cut), printed);
    }

    /// Expanding wildcards only where something can be read finds every readable leaf.
    #[test]
    fn wildcards_are_expanded_as_far_as_is_permitted(
        rules in vec(rule(), 0..8),
        leaves in leaves(),
        wanted in proptest::sample::select(&WILDCARDS[..]),
    ) {
        let judge = judge(&rules.join("; "));
        let rights = rights(&judge, "ada");
        let tree = tree(&leaves, 1);
        let schema = &MODELS.openconfig;
        let view = rights.read(Scope::OpenConfig);
        let path: Path = wanted.parse().unwrap();
        let literal = schema.literal(&path).steps;
        let seen_of = |patterns| {
            let selection = Selection::new(schema, patterns, &Filter::default(), ChangeDetection::All);
            walk_all(&mut Walk::whole(Arc::new(selection.with_permissions(Some(view.clone()))), &tree)).updates
        };
        let some = schema.expand(&path, literal, &PermittedExpansion(Some(view))).unwrap();
        let all = schema.resolve_read(&path).unwrap();
        prop_assert!(some.patterns.iter().all(|pattern| all.contains(pattern)));
        prop_assert_eq!(seen_of(some.patterns), seen_of(all));
    }

    /// After any changes, the reader has exactly what it may see of the present tree.
    // proves 5.49
    #[test]
    fn changes_bring_a_reader_to_what_it_may_see(
        rules in vec(rule(), 0..8),
        before in leaves(),
        after in leaves(),
    ) {
        let judge = judge(&rules.join("; "));
        let rights = rights(&judge, "ada");
        let old = tree(&before, 1);
        let new = tree(&after, 2);
        let mut visible = walk_all(&mut Walk::whole(selection(&rights), &old)).updates;
        let compare = holdfast_telemetry::Compare::Events;
        let mut walk = Walk::between(selection(&rights), &old, &new, compare);
        let changes = walk_all(&mut walk);
        for path_text in &changes.deletes {
            let path = read_path(path_text);
            prop_assert_eq!(judge.decide("ada", Mode::Read, &path).unwrap(), Action::Permit);
            visible.retain(|leaf| leaf != path_text && !leaf.starts_with(&format!("{path_text}/")));
        }
        visible.extend(changes.updates);
        prop_assert_eq!(visible, walk_all(&mut Walk::whole(selection(&rights), &new)).updates);
    }
}

/// Ports outside of the request cost nothing, and settled subtrees are not visited.
#[test]
fn a_reader_pays_for_what_is_read() {
    const PORTS: usize = 1000;
    let leaf = |port: usize| format!("/interfaces/interface[name=p{port}]/config/mtu");
    let leaves: BTreeSet<String> = (0..PORTS).map(leaf).collect();
    let tree = tree(&leaves, 1);
    let rules = "user ada + read /interfaces; user ada - read /interfaces/interface[name=p7]";
    let read = |path: &str| {
        let rights = rights(&judge(rules), "ada");
        let view = rights.read(Scope::OpenConfig).clone();
        let patterns = MODELS.openconfig.resolve_read(&path.parse().unwrap()).unwrap();
        let selection =
            Selection::new(&MODELS.openconfig, patterns, &Filter::default(), ChangeDetection::All);
        let walked = walk_all(&mut Walk::whole(
            Arc::new(selection.with_permissions(Some(view.clone()))),
            &tree,
        ));
        (walked.updates.len(), view.steps())
    };
    assert_eq!(read("/interfaces/interface[name=p3]"), (2, 2));
    assert_eq!(read("/interfaces/interface[name=p7]"), (0, 2));
    let all = u64::try_from(PORTS).unwrap();
    assert_eq!(read("/interfaces"), (2 * PORTS - 2, 1 + all)); // one for each entry, none within
}

struct WalkedLeaves {
    updates: BTreeSet<String>,
    deletes: Vec<String>,
}

fn walk_all(walk: &mut Walk) -> WalkedLeaves {
    let text = |path: &[holdfast_config::Step]| {
        InstancePath(path.to_vec()).to_path(&MODELS.openconfig).to_string()
    };
    let mut leaves = WalkedLeaves { updates: BTreeSet::new(), deletes: Vec::new() };
    while let Some(item) = walk.next() {
        match item {
            TreeUpdate::Leaf { path, .. } => drop(leaves.updates.insert(text(path))),
            TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. } => {
                leaves.deletes.push(text(path))
            }
        }
    }
    leaves
}

fn selection(rights: &PathPermissions) -> Arc<Selection> {
    let patterns = MODELS.openconfig.resolve_read(&Path::root()).unwrap();
    let selection =
        Selection::new(&MODELS.openconfig, patterns, &Filter::default(), ChangeDetection::All);
    Arc::new(selection.with_permissions(Some(rights.read(Scope::OpenConfig).clone())))
}

fn leaves_of(tree: Option<Child<LeafVersion>>) -> BTreeSet<String> {
    let mut leaves = BTreeSet::new();
    if let Some(tree) = &tree {
        NodeRef::from(tree).walk(&mut InstancePath::root(), &mut |path, _| {
            leaves.insert(path.to_path(&MODELS.openconfig).to_string());
        });
    }
    leaves
}

fn permitted(judge: &CompiledPolicy, leaf: &str) -> bool {
    judge.decide("ada", Mode::Read, &read_path(leaf)).unwrap() == Action::Permit
}

/// Key leaf of the entry of a leaf.
fn key_of(leaf: &str) -> Option<String> {
    let (entry, _) = leaf.split_once("]/")?;
    Some(format!("{entry}]/name"))
}

/// A tree of these leaves. Entries with different `born` in two trees were deleted in between.
fn tree(leaves: &BTreeSet<String>, born: u32) -> Tree<LeafVersion> {
    let mut tree = Tree::new();
    for leaf in leaves {
        let path = MODELS.schema(Origin::OpenConfig).resolve_write(&leaf.parse().unwrap()).unwrap();
        // The entry of eth0 is never deleted.
        let born = if leaf.contains("eth0") { 1 } else { born };
        let stamp = LeafVersion { time_ns: born.into(), changes: 1, incarnation: born };
        let value = if leaf.ends_with("/name") {
            Value::Str(leaf.split(['=', ']']).nth(1).unwrap_or_default().into())
        } else {
            Value::Str(leaf.as_str().into())
        };
        tree.set_leaf(&MODELS.openconfig, &path, Leaf::new(value, stamp));
    }
    tree
}

fn rule() -> impl Strategy<Value = String> {
    let path = (proptest::sample::select(&RULES[..]), proptest::sample::select(&PORTS[..]))
        .prop_map(|(path, port)| path.replace('N', port));
    let whose = proptest::sample::select(&["user ada", "group staff", "user bob"][..]);
    let action = proptest::sample::select(&["+", "+", "-"][..]);
    (whose, action, path).prop_map(|(whose, action, path)| format!("{whose} {action} read {path}"))
}

fn leaves() -> impl Strategy<Value = BTreeSet<String>> {
    let leaf = (proptest::sample::select(&LEAVES[..]), proptest::sample::select(&PORTS[..]))
        .prop_map(|(path, port)| path.replace('N', port));
    vec(leaf, 0..12).prop_map(|leaves| leaves.into_iter().collect())
}
