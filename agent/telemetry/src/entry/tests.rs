//! Derived entries beside stored ones: the same changes give the same leaves, with the same versions.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Leaf, Tree};
use holdfast_config::{Branch, InstancePath, LeafMark, Models, NodeId, Path, Step, Value};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::{
    ChangeDetection, Compare, Cursor, Draft, Filter, ListStates, Mutation, PreparedTree, Revision,
    RevisionChange, Selection, TreeUpdate, TreeWriter,
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
/// Leaf that is the mark of an entry, with two values.
const MARK: (&str, [u64; 2]) = ("state/ifindex", [1, 2]);
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
    /// Marks the port, or takes its mark away.
    Mark {
        port: usize,
        value: Option<usize>,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let leaf = || prop::option::weighted(0.7, 0..2_usize);
    let values = prop::option::weighted(0.8, [leaf(), leaf()]);
    let port = 0..PORTS;
    let value = 0..2_usize;
    let mark = prop::option::weighted(0.7, 0..2_usize);
    prop_oneof![
        2 => (port.clone(), mark).prop_map(|(port, value)| Act::Mark { port, value }),
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
        self.draft(acts, configuration, is_derived, None);
    }

    /// Executes acts with entries that are prepared, before `between` is executed in a draft of its own. True if they fit.
    fn execute_prepared(&mut self, acts: &[Act], between: &[Act], configured: &Configured) -> bool {
        let configuration = configuration(configured, &self.configuration);
        let number = self.revision.number + 1 + u64::from(!between.is_empty());
        let version = EntryVersion::default();
        let (prepared, ports) = self.prepare(acts, &configuration, number, &version);
        if !between.is_empty() {
            self.draft(between, self.configuration.clone(), true, None);
        }
        version.give(version_of(number));
        let prepared = prepared.as_ref().map(|prepared| (prepared, ports.as_slice()));
        self.draft(acts, configuration, true, prepared)
    }

    /// Prepares the entries that are new, with the states that are shown first. Returns the ports with such a state.
    fn prepare(
        &self,
        acts: &[Act],
        configuration: &Tree<LeafMark>,
        number: u64,
        version: &EntryVersion,
    ) -> (Option<PreparedTree>, Vec<usize>) {
        let first = |port: usize| {
            let touched = |act: &&Act| match act {
                Act::Configure { .. } => false,
                Act::Mark { port: of, .. }
                | Act::Show { port: of, .. }
                | Act::Set { port: of, .. }
                | Act::Clear { port: of } => *of == port,
            };
            acts.iter().find(touched)
        };
        let mut shown = Vec::new();
        for port in (0..PORTS).rev() {
            let is_new = !self.revision.openconfig.contains(&path(port, ""));
            if let Some(Act::Show { value, .. }) = first(port).filter(|_| is_new) {
                let value = STATE.1[*value];
                let state = OneLeaf { port, value, version: version_of(number) };
                shown.push((port, Arc::new(state) as Arc<dyn EntryState>));
            }
        }
        let entry = path(0, "");
        let Some((Step { node: list, .. }, above)) = entry.0.split_last() else {
            panic!("{entry:?}")
        };
        let keys = |port: usize| path(port, "").0.pop().unwrap().keys.unwrap();
        let ports = shown.iter().map(|(port, _)| *port).collect();
        let states = shown.into_iter().map(|(port, state)| (keys(port), state)).collect();
        let states = ListStates { above: above.to_vec(), list: *list, states };
        let config = [&self.configuration, configuration];
        let tree = &self.revision.openconfig;
        let prepared = PreparedTree::new(Origin::OpenConfig, tree, config, vec![states], version);
        (prepared, ports)
    }

    /// Executes acts in one draft. True if the prepared entries fit; those with a state are not shown again then.
    fn draft(
        &mut self,
        acts: &[Act],
        configuration: Tree<LeafMark>,
        is_derived: bool,
        prepared: Option<(&PreparedTree, &[usize])>,
    ) -> bool {
        let mut draft = self.revision.draft(&MODELS, (self.revision.number + 1) * 1000);
        let [openconfig, _] = draft.trees_mut();
        let (tree, mut ready) = prepared.map(|(tree, ports)| (tree, ports.to_vec())).unzip();
        let fits = openconfig.follow([&self.configuration, &configuration], tree);
        ready = ready.filter(|_| fits);
        for act in acts {
            match act {
                Act::Configure { .. } => {}
                Act::Show { port, .. } if take(&mut ready, *port) => {}
                Act::Show { port, value } if is_derived => show(&mut draft, *port, *value),
                Act::Show { port, value } | Act::Set { port, value } => {
                    set(&mut draft, *port, *value)
                }
                Act::Mark { port, value } => mark(&mut draft, *port, *value),
                Act::Clear { port } => {
                    let mutation = Mutation::Gone(ConfigOrState::State);
                    let path = path(*port, "");
                    draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
                }
            }
        }
        (self.revision, self.configuration) = (draft.publish(), configuration);
        fits
    }

    fn leaves(&self) -> BTreeMap<InstancePath, (Value, LeafVersion)> {
        let mut leaves = BTreeMap::new();
        self.revision.openconfig.walk(&mut |path, leaf| {
            leaves.insert(path.clone(), (leaf.value.clone(), leaf.meta));
        });
        leaves
    }
}

/// Version of the leaves of a draft.
fn version_of(number: u64) -> LeafVersion {
    let incarnation = u32::try_from(number).unwrap();
    LeafVersion { time_ns: number * 1000, changes: 1, incarnation }
}

/// Removes a port; true if it was there.
fn take(ports: &mut Option<Vec<usize>>, port: usize) -> bool {
    let at = ports.as_ref().and_then(|ports| ports.iter().position(|it| *it == port));
    at.zip(ports.as_mut()).map(|(at, ports)| ports.remove(at)).is_some()
}

fn set(draft: &mut Draft<'_>, port: usize, value: usize) {
    let mutation = Mutation::Set(Value::Uint(STATE.1[value]));
    let path = path(port, STATE.0);
    draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
}

fn mark(draft: &mut Draft<'_>, port: usize, value: Option<usize>) {
    let set = |value: usize| Mutation::Set(Value::Uint(MARK.1[value]));
    let mutation = value.map_or(Mutation::Gone(ConfigOrState::State), set);
    let path = path(port, MARK.0);
    draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
}

/// The mark of ports.
fn marks() -> Vec<MarkPlace> {
    let place = path(0, MARK.0);
    let [.., list, container, leaf] = place.0.as_slice() else { panic!("{place:?}") };
    let list = list.node;
    let container = container.node;
    let leaf = leaf.node;
    vec![MarkPlace { origin: Origin::OpenConfig, list, container, leaf }]
}

/// Shows the state of a port as the core does: derived where nothing of it is shown yet, else leaf by leaf.
fn show(draft: &mut Draft<'_>, port: usize, value: usize) {
    let entry = path(port, "");
    let version = draft.version();
    let [openconfig, _] = draft.trees_mut();
    let is_new = !openconfig.contains(&path(port, "state"));
    let state: Arc<dyn EntryState> = Arc::new(OneLeaf { port, value: STATE.1[value], version });
    let [above @ .., Step { node, keys: Some(keys) }] = entry.0.as_slice() else {
        panic!("{entry:?}")
    };
    let entries = std::iter::once((keys.clone(), &state));
    if !is_new || !openconfig.derive(above, *node, entries).is_empty() {
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

fn check_equal(derived: &Shown, stored: &Shown, cursors: &mut [Cursor; 2]) {
    assert_eq!(derived.leaves(), stored.leaves());
    let given = |shown: &Shown| {
        let branch = |port| shown.revision.openconfig.find_branch(&path(port, "").0);
        (0..PORTS).map(|port| branch(port).map(|entry| entry.given)).collect::<Vec<_>>()
    };
    assert_eq!(given(derived), given(stored));
    let [one, other] = cursors;
    assert_eq!(
        updates(one, &derived.revision.openconfig),
        updates(other, &stored.revision.openconfig)
    );
}

fn configure(configured: &mut Configured, acts: &[Act]) {
    for act in acts {
        match act {
            Act::Configure { port, values: Some(values) } => {
                configured.insert(*port, *values);
            }
            Act::Configure { port, values: None } => {
                configured.remove(port);
            }
            Act::Show { .. } | Act::Set { .. } | Act::Clear { .. } | Act::Mark { .. } => {}
        }
    }
}

fn derived_and_stored() -> ([Shown; 2], [Cursor; 2]) {
    let lists =
        DerivedLists { openconfig: vec![list()], marks: marks(), ..DerivedLists::default() };
    let stored = DerivedLists { marks: marks(), ..DerivedLists::default() };
    let shown = [Shown::new(lists), Shown::new(stored)];
    let cursors = [0, 1].map(|at| Cursor::new(selection(), shown[at].revision.openconfig.clone()));
    (shown, cursors)
}

proptest! {
    #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn derived_entries_equal_stored_ones(drafts in prop::collection::vec(prop::collection::vec(act(), 1..5), 1..10)) {
        let ([mut derived, mut stored], mut cursors) = derived_and_stored();
        let mut configured = Configured::new();
        for acts in drafts {
            configure(&mut configured, &acts);
            derived.execute(&acts, &configured, true);
            stored.execute(&acts, &configured, false);
            check_equal(&derived, &stored, &mut cursors);
        }
    }
}

/// Entries that are laid out before their draft are as those that it makes, whether or not others change their list
/// meanwhile.
#[test]
fn prepared_entries_equal_stored_ones() {
    let taken = Cell::new(0);
    let refused = Cell::new(0);
    let acts = || prop::collection::vec(act(), 1..6);
    let state = act().prop_filter("state", |act| !matches!(act, Act::Configure { .. }));
    let between = prop::collection::vec(state, 0..2);
    let drafts = prop::collection::vec((acts(), between), 1..8);
    let mut runner =
        TestRunner::new(ProptestConfig { fork: false, ..ProptestConfig::with_cases(400) });
    let run = runner.run(&drafts, |drafts| {
        let ([mut derived, mut stored], mut cursors) = derived_and_stored();
        let mut configured = Configured::new();
        for (acts, between) in drafts {
            let before = configured.clone();
            configure(&mut configured, &acts);
            let fits = derived.execute_prepared(&acts, &between, &configured);
            if !between.is_empty() {
                stored.execute(&between, &before, false);
            }
            stored.execute(&acts, &configured, false);
            check_equal(&derived, &stored, &mut cursors);
            let count = if fits { &taken } else { &refused };
            count.set(count.get() + 1);
        }
        Ok(())
    });
    run.unwrap();
    assert!(taken.get() > 300 && refused.get() > 300, "{taken:?} taken, {refused:?} refused");
}

#[test]
fn an_entry_is_stored_when_one_of_its_leaves_changes() {
    let lists = DerivedLists { openconfig: vec![list()], ..DerivedLists::default() };
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

#[test]
fn a_marked_entry_stays_derived_and_shows_its_mark_as_one_leaf() {
    let ([mut derived, _], [mut cursor, _]) = derived_and_stored();
    let configured = Configured::from([(0, [Some(0), Some(0)])]);
    derived.execute(&[Act::Show { port: 0, value: 0 }], &configured, true);
    updates(&mut cursor, &derived.revision.openconfig);
    let mark = |shown: &Shown| shown.revision.openconfig.find_leaf(&path(0, MARK.0));
    let mut execute = |value: Option<usize>| {
        derived.execute(&[Act::Mark { port: 0, value }], &configured, true);
        assert!(is_derived(&derived.revision, 0));
        let found = mark(&derived).map(|leaf| (leaf.value, leaf.meta.time_ns, leaf.meta.changes));
        (found, updates(&mut cursor, &derived.revision.openconfig).len())
    };
    assert_eq!(execute(Some(0)), (Some((Value::Uint(1), 2000, 1)), 1), "it comes");
    assert_eq!(execute(Some(0)), (Some((Value::Uint(1), 2000, 1)), 0), "nothing changes");
    assert_eq!(execute(Some(1)), (Some((Value::Uint(2), 4000, 2)), 1), "it changes");
    assert_eq!(execute(None), (None, 1), "it goes");
    assert_eq!(execute(Some(1)), (Some((Value::Uint(2), 6000, 1)), 1), "another one comes");
}

#[test]
fn a_mark_makes_no_entry_and_keeps_none() {
    for is_derived in [true, false] {
        let ([derived, stored], _) = derived_and_stored();
        let mut shown = if is_derived { derived } else { stored };
        let marked = [Act::Mark { port: 0, value: Some(0) }];
        shown.execute(&marked, &Configured::new(), is_derived);
        assert!(shown.leaves().is_empty(), "{:?}", shown.leaves());
        shown.execute(&marked, &Configured::from([(0, [Some(0), None])]), is_derived);
        assert!(shown.revision.openconfig.contains(&path(0, MARK.0)));
        shown.execute(&[], &Configured::new(), is_derived);
        assert!(shown.leaves().is_empty(), "{:?}", shown.leaves());
    }
}

#[test]
fn entries_that_are_marked_alike_share_the_mark() {
    let ([mut derived, _], _) = derived_and_stored();
    let configured: Configured = (0..PORTS).map(|port| (port, [Some(0), None])).collect();
    let all: Vec<Act> = (0..PORTS).map(|port| Act::Mark { port, value: Some(0) }).collect();
    derived.execute(&all, &configured, true);
    let above = derived.revision.openconfig.find_branch(&path(0, "").0[..1]).unwrap();
    let marks = above.list(list()).unwrap().iter().filter_map(|(_, entry)| match entry {
        ViewEntry::Derived(derived) => derived.mark.as_ref().map(Arc::as_ptr),
        ViewEntry::Stored(_) => None,
    });
    let marks: Vec<_> = marks.collect();
    assert_eq!(marks.len(), PORTS);
    assert!(marks.iter().all(|mark| *mark == marks[0]));
}
