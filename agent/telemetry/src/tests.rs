//! Cursors compared with a naive reader: one that applies all updates must end up with the current tree.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use holdfast_config::schema::{Origin, Schema, YangModule};
use holdfast_config::{Child, InstancePath, Models, NodeId, Path, PathPattern, Step, Value};
use proptest::prelude::*;

use super::{
    ChangeDetection, Compare, ConfigOrState, Cursor, DerivedLists, Filter, LeafSetCache,
    LeafVersion, Mutation, Revision, RevisionChange, Selection, TreeUpdate, Walk, WalkProgress,
};

static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(Models::load().unwrap()));
static OPENCONFIG: LazyLock<&Schema> = LazyLock::new(|| &MODELS.openconfig);

/// Leaves below an interface, with values for them.
const LEAVES: [(&str, [&str; 2]); 7] = [
    ("config/name", ["eth0", "eth0"]),
    ("config/mtu", ["1514", "9014"]),
    ("config/description", ["a", "b"]),
    ("state/mtu", ["1514", "9014"]),
    ("state/oper-status", ["UP", "DOWN"]),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length",
        ["8", "24"],
    ),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/state/prefix-length",
        ["8", "24"],
    ),
];
/// Paths to delete: below an interface, an interface, all of them.
const REMOVED_PATHS: [&str; 7] = [
    "/interfaces",
    "/interfaces/interface[name=eth*]",
    "/interfaces/interface[name=eth*]/config",
    "/interfaces/interface[name=eth*]/state",
    "/interfaces/interface[name=eth*]/state/mtu",
    "/interfaces/interface[name=eth*]/subinterfaces/subinterface[index=0]",
    "/interfaces/interface[name=eth*]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]",
];
const PATTERNS: [&str; 8] = [
    "/",
    "/interfaces",
    "/interfaces/interface[name=eth1]",
    "/interfaces/interface/state",
    "/interfaces/interface[name=*]/config/mtu",
    "/interfaces/*/*/mtu",
    "/interfaces/.../address/state",
    "/.../prefix-length",
];

#[derive(Clone, Debug)]
enum DraftChange {
    Set { port: usize, leaf: usize, value: usize },
    Remove { port: usize, mutation: usize, plane: usize },
}

fn draft_change() -> impl Strategy<Value = DraftChange> {
    prop_oneof![
        3 => (0..3_usize, 0..LEAVES.len(), 0..2_usize)
            .prop_map(|(port, leaf, value)| DraftChange::Set { port, leaf, value }),
        1 => (0..3_usize, 0..REMOVED_PATHS.len(), 0..3_usize)
            .prop_map(|(port, mutation, plane)| DraftChange::Remove { port, mutation, plane }),
    ]
}

type Leaves = BTreeMap<String, String>;

proptest! {
    #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::with_cases(300) })]

    // proves 1.113, 1.121
    #[test]
    fn cursor_updates_reproduce_the_tree(
        // changes of a draft, drafts between two updates, updates
        tellings in prop::collection::vec(prop::collection::vec(prop::collection::vec(draft_change(), 1..5), 1..4), 1..6),
        pattern in prop::sample::select(&PATTERNS),
    ) {
        let patterns = OPENCONFIG.resolve_read(&pattern.parse().unwrap()).unwrap();
        let selection =
            Arc::new(Selection::new(&OPENCONFIG, patterns.clone(), &Filter::default(), ChangeDetection::All));
        let mut revision = Revision::new(Arc::clone(&MODELS), DerivedLists::default());
        let mut readers = [Compare::Events, Compare::Values].map(|compare| {
            (compare, Cursor::new(selection.clone(), revision.openconfig.clone()), Leaves::new())
        });
        for drafts in tellings {
            for acts in drafts {
                revision = apply_draft(&revision, &acts);
            }
            let want = expected_leaves(&revision, &patterns);
            let mut whole = Leaves::new();
            apply_walk(Walk::whole(selection.clone(), &revision.openconfig), &mut whole);
            prop_assert_eq!(&whole, &want);
            for (compare, cursor, leaves) in &mut readers {
                apply_walk(cursor.next(&revision.openconfig, *compare), leaves);
                prop_assert_eq!(&*leaves, &want, "{:?}", compare);
                prop_assert!(cursor.next(&revision.openconfig, *compare).next().is_none());
            }
        }
    }
}

fn apply_draft(revision: &Revision, acts: &[DraftChange]) -> Revision {
    let time_ns = (revision.number + 1) * 1000;
    let mut draft = revision.draft(&MODELS, time_ns);
    for act in acts {
        match act {
            DraftChange::Set { port, leaf, value } => {
                let (leaf, values) = LEAVES[*leaf];
                let path = instance(&format!("/interfaces/interface[name=eth{port}]/{leaf}"));
                let node = path.last().unwrap().node;
                let text = values[*value].replace("eth0", &format!("eth{port}"));
                let value = OPENCONFIG.leaf(node).ty.parse_text(&text).unwrap();
                let mutation = Mutation::Set(value);
                draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
            }
            DraftChange::Remove { port, mutation, plane } => {
                let path =
                    instance(&REMOVED_PATHS[*mutation].replace("eth*", &format!("eth{port}")));
                let mutation = Mutation::Gone(
                    [ConfigOrState::Config, ConfigOrState::State, ConfigOrState::Both][*plane],
                );
                draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
            }
        }
    }
    draft.publish()
}

/// Applies the updates of a walk; no update may occur twice.
fn apply_walk(mut walk: Walk, leaves: &mut Leaves) {
    let mut paths = std::collections::BTreeSet::new();
    while let Some(item) = walk.next() {
        match item {
            TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. } => {
                let path = text(path);
                assert!(paths.insert(format!("-{path}")), "{path} is gone twice");
                leaves.retain(|leaf, _| !(leaf == &path || leaf.starts_with(&format!("{path}/"))));
            }
            TreeUpdate::Leaf { path, leaf, .. } => {
                let path = text(path);
                assert!(paths.insert(path.clone()), "{path} is told twice");
                leaves.insert(path, leaf.value.to_string());
            }
        }
    }
}

fn expected_leaves(revision: &Revision, patterns: &[PathPattern]) -> Leaves {
    let mut leaves = Leaves::new();
    revision.openconfig.walk(&mut |path, leaf| {
        if patterns.iter().any(|pattern| pattern.covers(path)) {
            leaves.insert(text(&path.0), leaf.value.to_string());
        }
    });
    leaves
}

/// Counts and incarnations over a few drafts: each row lists the changes on the leaf `state/mtu` of eth0.
#[test]
fn leaf_versions_count_changes_and_incarnations() {
    let leaf = |value| DraftChange::Set { port: 0, leaf: 3, value };
    let remove = DraftChange::Remove { port: 0, mutation: 4, plane: 1 };
    let keep = DraftChange::Set { port: 0, leaf: 4, value: 0 };
    // the acts of each draft, then (time, changes, born) of the leaf
    check_leaf_version(&[vec![leaf(0)]], (1000, 1, 1));
    check_leaf_version(&[vec![leaf(0)], vec![leaf(1)]], (2000, 2, 1));
    check_leaf_version(&[vec![leaf(0)], vec![leaf(0)]], (1000, 1, 1));
    let born = vec![leaf(0), keep];
    check_leaf_version(&[born.clone(), vec![remove.clone()], vec![leaf(0)]], (3000, 1, 3));
    check_leaf_version(&[born.clone(), vec![remove.clone(), leaf(0)]], (1000, 1, 1));
    check_leaf_version(&[born, vec![remove, leaf(1)]], (2000, 2, 1));
}

/// Each leaf of both trees has a stamp, in addition to its value of 24 bytes.
#[test]
fn leaf_versions_have_a_fixed_size() {
    assert_eq!(size_of::<LeafVersion>(), 16);
    assert_eq!(size_of::<(NodeId, Child<LeafVersion>)>(), 48);
}

#[track_caller]
fn check_leaf_version(drafts: &[Vec<DraftChange>], want: (u64, u32, u32)) {
    let revision = drafts
        .iter()
        .fold(Revision::new(Arc::clone(&MODELS), DerivedLists::default()), |it, acts| {
            apply_draft(&it, acts)
        });
    let path = instance("/interfaces/interface[name=eth0]/state/mtu");
    let stamp = revision.openconfig.find_leaf(&path).unwrap().meta;
    assert_eq!((stamp.time_ns, stamp.changes, stamp.incarnation), want, "{drafts:?}");
}

/// Configuration is removed while state stays, and the reverse.
#[test]
fn config_and_state_are_removed_independently() {
    let config = DraftChange::Set { port: 0, leaf: 0, value: 0 };
    let state = DraftChange::Set { port: 0, leaf: 4, value: 0 };
    let remove = |plane| DraftChange::Remove { port: 0, mutation: 1, plane };
    let rows: [(&[DraftChange], &str); 4] = [
        (&[config.clone(), state.clone(), remove(0)], "name state/oper-status"),
        (&[config.clone(), state.clone(), remove(2)], ""),
        (&[state.clone(), remove(0)], "name state/oper-status"),
        (&[state, remove(1)], ""),
    ];
    for (acts, want) in rows {
        let revision =
            apply_draft(&Revision::new(Arc::clone(&MODELS), DerivedLists::default()), acts);
        let mut leaves = Vec::new();
        revision.openconfig.walk(&mut |path, _| {
            leaves.push(text(&path.0).replace("/interfaces/interface[name=eth0]/", ""));
        });
        assert_eq!(leaves.join(" "), want, "{acts:?}");
    }
}

/// The work is proportional to the change: the walk skips shared memory.
#[test]
fn walk_work_is_proportional_to_the_change() {
    let mut draft_of = Revision::new(Arc::clone(&MODELS), DerivedLists::default());
    for port in 0..1000 {
        draft_of = apply_draft(&draft_of, &[DraftChange::Set { port, leaf: 4, value: 0 }]);
    }
    let selection = Selection::new(
        &OPENCONFIG,
        vec![PathPattern::default()],
        &Filter::default(),
        ChangeDetection::All,
    );
    let mut cursor = Cursor::new(Arc::new(selection), draft_of.openconfig.clone());
    let next = apply_draft(&draft_of, &[DraftChange::Set { port: 500, leaf: 4, value: 1 }]);
    let mut walk = cursor.next(&next.openconfig, Compare::Events);
    let mut updates = 0;
    while walk.next().is_some() {
        updates += 1;
    }
    assert_eq!(updates, 1);
    assert!(walk.visited() < 20, "{} nodes were looked at", walk.visited());
}

fn instance(path: &str) -> InstancePath {
    OPENCONFIG.resolve_write(&path.parse::<Path>().unwrap()).unwrap()
}

fn text(path: &[Step]) -> String {
    InstancePath(path.to_vec()).to_path(&OPENCONFIG).to_string()
}

/// Selections of one request share the parts that do not depend on their paths.
#[test]
fn selections_share_their_leaf_sets() {
    let paths = ["/", "/interfaces", "/interfaces/interface/config/mtu", "/.../hostname"];
    let patterns = paths.map(|path| OPENCONFIG.resolve_read(&path.parse().unwrap()).unwrap());
    for (depth, builds) in [(None, 2), (NonZeroU32::new(2), 2 * paths.len())] {
        let filter = Filter { depth, ..Filter::default() };
        let mut cache = LeafSetCache::default();
        for _ in 0..100 {
            for patterns in &patterns {
                for class in [ChangeDetection::Event, ChangeDetection::Polled] {
                    Selection::with(&mut cache, &OPENCONFIG, patterns.clone(), &filter, class);
                }
            }
        }
        assert_eq!(cache.builds(), builds, "{depth:?}");
    }
}

/// A selection of all leaves, replaced when nodes are appended to the models.
#[test]
fn a_cursor_tells_of_appended_nodes() {
    const MODULE: &str = r#"module things { yang-version 1.1; namespace "urn:things"; prefix t;
        import holdfast { prefix hf; } organization "us"; revision 2026-11-24 { description "First."; }
        augment "/hf:interfaces/hf:interface" { leaf colour { type string; } }
        container things { leaf size { type uint32; } } }"#;
    let module = YangModule { name: "things".into(), text: MODULE.into() };
    let grown = Arc::new(MODELS.with_modules(Origin::Native, &[module]).unwrap());
    let all = |models: &Models| {
        let filter = Filter::default();
        let patterns = vec![PathPattern::default()];
        Arc::new(Selection::new(&models.native, patterns, &filter, ChangeDetection::All))
    };
    let set = |from: &Revision, models: &Arc<Models>, leaves: &[(&str, Value)]| {
        let mut draft = from.draft(models, from.number + 1);
        for (path, value) in leaves {
            let path = models.native.resolve_write(&path.parse().unwrap()).unwrap();
            let mutation = Mutation::Set(value.clone());
            draft.apply(RevisionChange { origin: Origin::Native, path, mutation });
        }
        draft.publish()
    };
    let names = |mut walk: Walk| {
        let mut names = Vec::new();
        while let Some(TreeUpdate::Leaf { path, .. }) = walk.next() {
            names.push(InstancePath(path.to_vec()).to_path(&grown.native).to_string());
        }
        names
    };
    let first = Revision::new(Arc::clone(&MODELS), DerivedLists::default());
    let first = set(&first, &MODELS, &[("/interfaces/interface[name=a]/mtu", Value::Uint(1))]);
    let later = [
        ("/interfaces/interface[name=a]/colour", Value::Str("red".into())),
        ("/things/size", Value::Uint(7)),
    ];
    let second = set(&first, &grown, &later);
    let mut cursor = Cursor::new(all(&MODELS), first.native.clone());
    cursor.select(all(&grown));
    let walk = cursor.next(&second.native, Compare::Events);
    assert_eq!(names(walk), ["/interfaces/interface[name=a]/colour", "/things/size"]);
    let third = set(&second, &grown, &[("/things/size", Value::Uint(8))]);
    assert_eq!(names(cursor.next(&third.native, Compare::Events)), ["/things/size"]);
    // Polled leaves of nodes that came while they were read.
    let size = grown.native.resolve_write(&"/things/size".parse().unwrap()).unwrap();
    let polled = vec![(size, Value::Uint(9))];
    let tree = super::polled::with_polled_leaves(&MODELS.native, &first.native, polled.into(), 3);
    assert_eq!(names(Walk::whole(all(&grown), &tree)).len(), 2, "the port and its mtu");
}

/// A walk with pauses reports the same updates as one without.
#[test]
fn paused_walk_reports_the_same_updates() {
    let revision = Revision::new(Arc::clone(&MODELS), DerivedLists::default());
    let mut draft = revision.draft(&MODELS, 1);
    for port in 0..50 {
        let path = instance(&format!("/interfaces/interface[name=p{port}]/state/mtu"));
        let mutation = Mutation::Set(holdfast_config::Value::Uint(1500));
        draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
    }
    let tree = draft.publish().openconfig;
    let walk = || {
        let filter = Filter::default();
        let selection = Selection::new(
            &OPENCONFIG,
            vec![PathPattern::default()],
            &filter,
            ChangeDetection::All,
        );
        Walk::whole(Arc::new(selection), &tree)
    };
    let mut whole = walk();
    let mut expected = 0;
    while whole.next().is_some() {
        expected += 1;
    }
    let mut paused = walk();
    let mut updates = 0;
    let mut pauses = 0;
    loop {
        let until = paused.visited() + 3;
        match paused.next_within(until) {
            WalkProgress::Update(_) => updates += 1,
            WalkProgress::Paused => pauses += 1,
            WalkProgress::Ended => break,
        }
    }
    assert_eq!((updates, paused.visited()), (expected, whole.visited()));
    assert!(expected >= 100 && pauses > 0, "{expected} told, {pauses} pauses");
}
