//! Derived entries beside stored ones: the same changes give the same leaves, with the same versions.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Leaf, Tree};
use holdfast_config::{Branch, InstancePath, LeafMark, Models, NodeId, Path, Step, Value};
use proptest::prelude::*;

use super::*;
use crate::{
    ChangeDetection, Compare, Cursor, Draft, Filter, Mutation, Revision, RevisionChange, Selection,
    TreeUpdate, TreeWriter,
};

static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(Models::load().unwrap()));
static OPENCONFIG: LazyLock<&Schema> = LazyLock::new(|| &MODELS.openconfig);

/// Number of entries.
const PORTS: usize = 3;
/// Leaves of configuration below an entry, with two values each.
const CONFIGURED: [(&str, [u64; 2]); 2] = [
    ("config/mtu", [1514, 9014]),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length",
        [8, 24],
    ),
];
/// Leaf of state that a derived entry shows, with two values.
const STATE: (&str, [u64; 2]) = ("state/mtu", [1514, 9014]);

fn path(port: usize, below: &str) -> InstancePath {
    let text = format!("/interfaces/interface[name=eth{port}]/{below}");
    OPENCONFIG.resolve_write(&text.trim_end_matches('/').parse::<Path>().unwrap()).unwrap()
}

/// One leaf of state.
#[derive(Debug)]
struct OneLeaf {
    port: usize,
    value: u64,
    version: LeafVersion,
}

impl EntryState for OneLeaf {
    fn show(&self, origin: Origin, born: LeafVersion, entry: &mut Branch<LeafVersion>) {
        let schema = MODELS.schema(origin);
        let path = path(self.port, STATE.0);
        let [.., list, container, leaf] = path.0.as_slice() else { panic!("{path:?}") };
        if entry.children().is_empty() {
            let keys = list.keys.as_ref().unwrap();
            *entry = Branch::of_keys(schema, list.node, keys, &born);
        }
        let mut state =
            TreeWriter::new(entry, schema, self.version).below(std::slice::from_ref(container));
        state.set(leaf.node, Value::Uint(self.value));
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// The configuration of a port, by the value of each leaf; `None` for no port.
    Configure {
        port: usize,
        values: Option<[Option<usize>; CONFIGURED.len()]>,
    },
    /// State of a port, where it has none; with a value.
    Show {
        port: usize,
        value: usize,
    },
    /// Changes the leaf of state.
    Set {
        port: usize,
        value: usize,
    },
    Clear {
        port: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let leaf = || prop::option::weighted(0.7, 0..2_usize);
    let values = prop::option::weighted(0.8, [leaf(), leaf()]);
    let (port, value) = (0..PORTS, 0..2_usize);
    prop_oneof![
        3 => (port.clone(), values).prop_map(|(port, values)| Act::Configure { port, values }),
        3 => (port.clone(), value.clone()).prop_map(|(port, value)| Act::Show { port, value }),
        1 => (port.clone(), value).prop_map(|(port, value)| Act::Set { port, value }),
        1 => port.prop_map(|port| Act::Clear { port }),
    ]
}

type Configured = BTreeMap<usize, [Option<usize>; CONFIGURED.len()]>;

fn configuration(configured: &Configured, before: &Tree<LeafMark>) -> Tree<LeafMark> {
    let mut tree = Tree::new();
    for (port, values) in configured {
        let entry = path(*port, "");
        tree.branch_mut(&OPENCONFIG, &entry.0, &LeafMark::Explicit).given = true;
        for ((leaf, all), value) in CONFIGURED.iter().zip(values) {
            let Some(value) = value else { continue };
            let leaf = path(*port, leaf);
            let value = Leaf::new(Value::Uint(all[*value]), LeafMark::Explicit);
            tree.set_leaf(&OPENCONFIG, &leaf, value);
        }
    }
    tree.sharing(before)
}

/// A revision, and its configuration.
struct Shown {
    revision: Revision,
    configuration: Tree<LeafMark>,
}

impl Shown {
    fn new(derived: DerivedLists) -> Self {
        let revision = Revision::new(Arc::clone(&MODELS), derived);
        Self { revision, configuration: Tree::new() }
    }

    fn execute(&mut self, acts: &[Act], configured: &Configured, is_derived: bool) {
        let configuration = configuration(configured, &self.configuration);
        let mut draft = self.revision.draft(&MODELS, (self.revision.number + 1) * 1000);
        draft.apply_diff(Origin::OpenConfig, &self.configuration, &configuration);
        for act in acts {
            match act {
                Act::Configure { .. } => {}
                Act::Show { port, value } if is_derived => show(&mut draft, *port, *value),
                Act::Show { port, value } | Act::Set { port, value } => {
                    set(&mut draft, *port, *value)
                }
                Act::Clear { port } => {
                    let mutation = Mutation::Gone(ConfigOrState::State);
                    let path = path(*port, "");
                    draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
                }
            }
        }
        (self.revision, self.configuration) = (draft.publish(), configuration);
    }

    fn leaves(&self) -> BTreeMap<InstancePath, (Value, LeafVersion)> {
        let mut leaves = BTreeMap::new();
        self.revision.openconfig.walk(&mut |path, leaf| {
            leaves.insert(path.clone(), (leaf.value.clone(), leaf.meta));
        });
        leaves
    }
}

fn set(draft: &mut Draft<'_>, port: usize, value: usize) {
    let mutation = Mutation::Set(Value::Uint(STATE.1[value]));
    let path = path(port, STATE.0);
    draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
}

/// Shows the state of a port as the core does: derived where nothing of it is shown yet, else leaf by leaf.
fn show(draft: &mut Draft<'_>, port: usize, value: usize) {
    let (entry, version) = (path(port, ""), draft.version());
    let [openconfig, _] = draft.trees_mut();
    let is_new = !openconfig.contains(&path(port, "state"));
    let state: Arc<dyn EntryState> = Arc::new(OneLeaf { port, value: STATE.1[value], version });
    let [above @ .., Step { node, keys: Some(keys) }] = entry.0.as_slice() else {
        panic!("{entry:?}")
    };
    let entries = std::iter::once((keys.clone(), &state));
    if !is_new || !openconfig.at(above).derive(*node, entries).is_empty() {
        set(draft, port, value);
    }
}

/// The list of ports.
fn list() -> NodeId {
    path(0, "").last().unwrap().node
}

fn is_derived(revision: &Revision, port: usize) -> bool {
    let entry = path(port, "");
    let [above @ .., Step { node, keys: Some(keys) }] = entry.0.as_slice() else { return false };
    let above = revision.openconfig.find_branch(above);
    let entry = above.and_then(|above| above.list(*node)?.get(keys).cloned());
    matches!(entry, Some(ViewEntry::Derived(_)))
}

fn selection() -> Arc<Selection> {
    let everything = vec![holdfast_config::PathPattern::default()];
    Arc::new(Selection::new(&OPENCONFIG, everything, &Filter::default(), ChangeDetection::All))
}

/// Updates of a subscriber, as text.
fn updates(cursor: &mut Cursor, tree: &Tree<LeafVersion>) -> Vec<String> {
    let mut walk = cursor.next(tree, Compare::Events);
    let mut updates = Vec::new();
    while let Some(update) = walk.next() {
        updates.push(match update {
            TreeUpdate::Deleted(path) => format!("- {path:?}"),
            TreeUpdate::Recreated { path, time_ns } => format!("! {path:?} {time_ns}"),
            TreeUpdate::Leaf { path, leaf, missed } => format!("+ {path:?} {leaf:?} {missed}"),
        });
    }
    updates
}

proptest! {
    #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn derived_entries_equal_stored_ones(drafts in prop::collection::vec(prop::collection::vec(act(), 1..5), 1..10)) {
        let lists = DerivedLists { openconfig: vec![list()], native: Vec::new() };
        let (mut derived, mut stored) = (Shown::new(lists), Shown::new(DerivedLists::default()));
        let mut cursors = [&derived, &stored].map(|it| Cursor::new(selection(), it.revision.openconfig.clone()));
        let mut configured = Configured::new();
        for acts in drafts {
            for act in &acts {
                match act {
                    Act::Configure { port, values: Some(values) } => drop(configured.insert(*port, *values)),
                    Act::Configure { port, values: None } => drop(configured.remove(port)),
                    Act::Show { .. } | Act::Set { .. } | Act::Clear { .. } => {}
                }
            }
            derived.execute(&acts, &configured, true);
            stored.execute(&acts, &configured, false);
            prop_assert_eq!(derived.leaves(), stored.leaves());
            let update = |revision: &Shown| (0..PORTS).map(|port| {
                revision.revision.openconfig.find_branch(&path(port, "").0).map(|entry| entry.given)
            }).collect::<Vec<_>>();
            prop_assert_eq!(update(&derived), update(&stored));
            let [one, other] = &mut cursors;
            prop_assert_eq!(updates(one, &derived.revision.openconfig), updates(other, &stored.revision.openconfig));
        }
    }
}

#[test]
fn an_entry_is_stored_when_one_of_its_leaves_changes() {
    let lists = DerivedLists { openconfig: vec![list()], native: Vec::new() };
    let mut revision = Shown::new(lists);
    let configured = Configured::from([(0, [Some(0), Some(0)]), (1, [Some(0), None])]);
    revision.execute(
        &[Act::Show { port: 0, value: 0 }, Act::Show { port: 1, value: 0 }],
        &configured,
        true,
    );
    assert!(is_derived(&revision.revision, 0) && is_derived(&revision.revision, 1));
    revision.execute(&[Act::Set { port: 0, value: 1 }], &configured, true);
    assert!(!is_derived(&revision.revision, 0) && is_derived(&revision.revision, 1));
    let version = |leaf: &str| revision.revision.openconfig.find_leaf(&path(0, leaf)).unwrap().meta;
    assert_eq!((version("state/mtu").changes, version("config/mtu").changes), (2, 1));
    assert_eq!(version("state/mtu").time_ns, 2000);
    assert_eq!(version("config/mtu").time_ns, 1000);
}
