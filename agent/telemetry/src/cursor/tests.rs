//! Two cursors of one client, advanced in any order that a stream may take: it ends with what a new reader sees.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Leaf, Tree};
use holdfast_config::{InstancePath, LeafMark, Models, Path, Step, Value};
use holdfast_security::pathz::nodes::{NodeRules, NodeView};
use holdfast_security::pathz::trie::{self, RuleEntry};
use holdfast_security::pathz::{Action, Mode, Principal};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::{
    ChangeDetection, ConfigOrState, DerivedLists, Filter, LeafSetCache, Mutation, Revision,
    RevisionChange,
};

static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(Models::load().unwrap()));
static OPENCONFIG: LazyLock<&Schema> = LazyLock::new(|| &MODELS.openconfig);

/// The list with derived entries, below each port.
const DERIVED: &str = "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]";
/// Part of the paths of all that is told by the cursor of derived lists.
const IN_DERIVED: &str = "/subinterfaces";
const PORTS: usize = 3;
/// Leaves of configuration below a port, with two values each.
const CONFIGURED: [(&str, [u64; 2]); 3] = [
    ("config/mtu", [1514, 9014]),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length",
        [8, 24],
    ),
    (
        "subinterfaces/subinterface[index=1]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length",
        [8, 24],
    ),
];
/// Leaves of state below a port. One in a derived entry makes it a stored branch.
const STATE: [(&str, [u64; 2]); 2] = [
    ("state/mtu", [1514, 9014]),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/state/prefix-length",
        [8, 24],
    ),
];
/// Paths to delete, with the port as `eth*`.
const REMOVED: [&str; 6] = [
    "/interfaces",
    "/interfaces/interface[name=eth*]",
    "/interfaces/interface[name=eth*]/state",
    "/interfaces/interface[name=eth*]/config",
    "/interfaces/interface[name=eth*]/subinterfaces",
    "/interfaces/interface[name=eth*]/subinterfaces/subinterface[index=0]",
];
const PLANES: [ConfigOrState; 3] =
    [ConfigOrState::Config, ConfigOrState::State, ConfigOrState::Both];
const PATTERNS: [&str; 9] = [
    "/",
    "/interfaces",
    "/interfaces/interface",
    "/interfaces/interface[name=eth1]",
    "/interfaces/interface/state",
    "/interfaces/interface/subinterfaces",
    "/interfaces/*/subinterfaces/subinterface[index=1]",
    "/.../prefix-length",
    "/interfaces/.../mtu",
];
/// Rules of pathz policies. Without a rule nothing is permitted.
const POLICIES: [&[(Action, &str)]; 6] = [
    &[(Action::Permit, "/")],
    &[(Action::Permit, "/"), (Action::Deny, "/interfaces/interface[name=eth1]")],
    &[
        (Action::Permit, "/"),
        (Action::Deny, "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]"),
    ],
    &[(Action::Permit, "/interfaces/interface[name=eth0]/subinterfaces")],
    &[(Action::Permit, "/"), (Action::Deny, "/interfaces/interface[name=eth0]/subinterfaces")],
    &[
        (Action::Permit, "/"),
        (Action::Deny, "/interfaces/interface[name=eth0]/config"),
        (Action::Deny, "/interfaces/interface[name=eth0]/state"),
        (Action::Deny, "/interfaces/interface[name=eth0]/name"),
    ],
];

fn instance(path: &str) -> InstancePath {
    OPENCONFIG.resolve_write(&path.parse::<Path>().unwrap()).unwrap()
}

fn below(port: usize, leaf: &str) -> InstancePath {
    instance(&format!("/interfaces/interface[name=eth{port}]/{leaf}"))
}

fn text(path: &[Step]) -> String {
    InstancePath(path.to_vec()).to_path(&OPENCONFIG).to_string()
}

fn derived_lists() -> DerivedLists {
    let list = instance(DERIVED).last().unwrap().node;
    DerivedLists { openconfig: vec![list], ..DerivedLists::default() }
}

fn permissions(rules: &[(Action, &str)]) -> Arc<NodeView> {
    let reader = || Principal::User("reader".into());
    let step = |step: &Step| trie::Step {
        name: step.node,
        keys: step.keys.iter().flat_map(|keys| keys.iter().cloned().enumerate()).collect(),
    };
    let rule = |(action, path): &(Action, &str)| RuleEntry {
        mode: Mode::Read,
        principal: reader(),
        action: *action,
        path: match *path {
            "/" => Vec::new(),
            path => instance(path).0.iter().map(step).collect(),
        },
    };
    Arc::new(NodeRules::new(rules.iter().map(rule)).view(Mode::Read, &[reader()]))
}

fn selection(pattern: &str, policy: Option<usize>) -> Selection {
    let patterns = OPENCONFIG.resolve_read(&pattern.parse().unwrap()).unwrap();
    let mut cache = LeafSetCache::new(Arc::new(derived_lists()));
    let filter = Filter::default();
    let class = ChangeDetection::All;
    Selection::with(&mut cache, &OPENCONFIG, patterns, &filter, class)
        .with_permissions(policy.map(|policy| permissions(POLICIES[policy])))
}

#[derive(Clone, Debug)]
enum Act {
    /// The configuration of a port, by the value of each leaf; `None` for no port.
    Configure {
        port: usize,
        values: Option<[Option<usize>; CONFIGURED.len()]>,
    },
    Set {
        port: usize,
        leaf: usize,
        value: usize,
    },
    Remove {
        port: usize,
        path: usize,
        plane: ConfigOrState,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let leaf = || prop::option::weighted(0.8, 0..2_usize);
    let values = prop::option::weighted(0.6, [leaf(), leaf(), leaf()]);
    prop_oneof![
        3 => (0..PORTS, values).prop_map(|(port, values)| Act::Configure { port, values }),
        2 => (0..PORTS, 0..STATE.len(), 0..2_usize)
            .prop_map(|(port, leaf, value)| Act::Set { port, leaf, value }),
        2 => (0..PORTS, 0..REMOVED.len(), prop::sample::select(&PLANES))
            .prop_map(|(port, path, plane)| Act::Remove { port, path, plane }),
    ]
}

/// Next steps that a stream may take.
#[derive(Clone, Debug)]
enum Turn {
    /// The box publishes a revision.
    Publish(Vec<Act>),
    /// Everything but derived lists is told.
    Others,
    /// The walk of derived lists begins, unless it is under way.
    BeginDerived,
    /// A portion of that walk, of this many nodes.
    Portion(usize),
    /// A heartbeat: everything that was told is told again.
    Again,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => prop::collection::vec(act(), 1..4).prop_map(Turn::Publish),
        4 => Just(Turn::Others),
        3 => Just(Turn::BeginDerived),
        6 => (1..12_usize).prop_map(Turn::Portion),
        1 => Just(Turn::Again),
    ]
}

/// A box with revisions.
struct Publisher {
    revision: Revision,
    configured: BTreeMap<usize, [Option<usize>; CONFIGURED.len()]>,
    configuration: Tree<LeafMark>,
}

impl Publisher {
    fn new() -> Self {
        let revision = Revision::new(Arc::clone(&MODELS), derived_lists());
        Self { revision, configured: BTreeMap::new(), configuration: Tree::new() }
    }

    fn publish(&mut self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Configure { port, values: Some(values) } => {
                    self.configured.insert(*port, *values);
                }
                Act::Configure { port, values: None } => {
                    self.configured.remove(port);
                }
                Act::Set { .. } | Act::Remove { .. } => {}
            }
        }
        let configuration = self.configuration();
        let mut draft = self.revision.draft(&MODELS, (self.revision.number + 1) * 1000);
        draft.apply_diff(Origin::OpenConfig, &self.configuration, &configuration);
        for act in acts {
            let (path, mutation) = match act {
                Act::Configure { .. } => continue,
                Act::Set { port, leaf, value } => {
                    let (leaf, values) = STATE[*leaf];
                    (below(*port, leaf), Mutation::Set(Value::Uint(values[*value])))
                }
                Act::Remove { port, path, plane } => {
                    let path = REMOVED[*path].replace("eth*", &format!("eth{port}"));
                    (instance(&path), Mutation::Gone(*plane))
                }
            };
            draft.apply(RevisionChange { origin: Origin::OpenConfig, path, mutation });
        }
        (self.revision, self.configuration) = (draft.publish(), configuration);
    }

    fn configuration(&self) -> Tree<LeafMark> {
        let mut tree = Tree::new();
        for (port, values) in &self.configured {
            let entry = instance(&format!("/interfaces/interface[name=eth{port}]"));
            tree.branch_mut(&OPENCONFIG, &entry.0, &LeafMark::Explicit).given = true;
            for ((leaf, all), value) in CONFIGURED.iter().zip(values) {
                let Some(value) = value else { continue };
                let value = Leaf::new(Value::Uint(all[*value]), LeafMark::Explicit);
                tree.set_leaf(&OPENCONFIG, &below(*port, leaf), value);
            }
        }
        tree.sharing(&self.configuration)
    }
}

/// A client that applies what it is told, and notes the revision from which it was told.
#[derive(Debug, Default)]
struct Client {
    leaves: BTreeMap<String, String>,
    told: BTreeMap<String, u64>,
    deleted: BTreeMap<String, u64>,
}

impl Client {
    fn take(&mut self, update: TreeUpdate<'_>, number: u64) {
        match update {
            TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. } => {
                let path = text(path);
                self.leaves.retain(|leaf, _| !is_within(leaf, &path));
                self.deleted.insert(path, number);
            }
            TreeUpdate::Leaf { path, leaf, .. } => {
                let path = text(path);
                let before = self.told.insert(path.clone(), number);
                assert!(before.is_none_or(|before| before <= number), "{path} goes back");
                let mut deletions = self.deleted.iter();
                let later = deletions.find(|(above, at)| is_within(&path, above) && **at > number);
                assert_eq!(later, None, "{path} of revision {number} comes after its deletion");
                self.leaves.insert(path, leaf.value.to_string());
            }
        }
    }
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn path_of(update: &TreeUpdate<'_>) -> String {
    match update {
        TreeUpdate::Deleted(path)
        | TreeUpdate::Recreated { path, .. }
        | TreeUpdate::Leaf { path, .. } => text(path),
    }
}

/// A stream of both cursors to one client.
struct Stream {
    others: Option<Cursor>,
    derived: Option<DerivedCursor>,
    /// The revision up to which everything but derived lists was told.
    told: Revision,
    /// Number of the revision that the walk of derived lists tells.
    walked: u64,
    client: Client,
    /// Walks that went on after a branch above them was deleted.
    cut: usize,
}

impl Stream {
    fn new(selection: &Selection, revision: &Revision) -> Self {
        let within = |lists| selection.within(&OPENCONFIG, lists).map(Arc::new);
        let tree = || revision.openconfig.clone();
        Self {
            others: within(Lists::Others).map(|selection| Cursor::new(selection, tree())),
            derived: within(Lists::Derived).map(|selection| DerivedCursor::new(selection, tree())),
            told: revision.clone(),
            walked: 0,
            client: Client::default(),
            cut: 0,
        }
    }

    fn send_others(&mut self, revision: &Revision) {
        let Some(cursor) = &mut self.others else {
            self.told = revision.clone();
            return;
        };
        let walk = cursor.next(&revision.openconfig, Compare::Events);
        self.told = revision.clone();
        self.send(walk);
    }

    fn send(&mut self, mut walk: Walk) {
        while let Some(update) = walk.next() {
            let path = path_of(&update);
            assert!(!path.contains(IN_DERIVED), "{path} is told before derived lists");
            self.client.take(update, self.told.number);
        }
        let deleted = walk.take_deleted();
        if let Some(derived) = &mut self.derived {
            self.cut += usize::from(derived.is_walking() && !deleted.is_empty());
            derived.forget(&OPENCONFIG, &deleted);
        }
    }

    fn begin_derived(&mut self) {
        if let Some(derived) = &mut self.derived
            && !derived.is_walking()
        {
            derived.begin_next(&self.told.openconfig, Compare::Events);
            self.walked = self.told.number;
        }
    }

    fn send_portion(&mut self, nodes: usize) {
        let Some(derived) = &mut self.derived else { return };
        let Some(walk) = derived.walk() else { return };
        let until = walk.visited().saturating_add(nodes);
        loop {
            match walk.next_within(until) {
                WalkProgress::Update(update) => {
                    let path = path_of(&update);
                    assert!(path.contains(IN_DERIVED), "{path} is told with derived lists");
                    self.client.take(update, self.walked);
                }
                WalkProgress::Paused => return,
                WalkProgress::Ended => return derived.finish(),
            }
        }
    }

    fn send_again(&mut self) {
        if let Some(walk) = self.others.as_ref().map(Cursor::again) {
            self.send(walk);
        }
        if let Some(derived) = &mut self.derived
            && !derived.is_walking()
        {
            derived.begin_again();
        }
    }
}

fn whole(selection: &Selection, revision: &Revision) -> BTreeMap<String, String> {
    let mut client = Client::default();
    let mut walk = Walk::whole(Arc::new(selection.clone()), &revision.openconfig);
    while let Some(update) = walk.next() {
        client.take(update, revision.number);
    }
    client.leaves
}

#[test]
fn two_cursors_in_any_order_reproduce_the_tree() {
    let cut = Cell::new(0);
    let checked = Cell::new(0);
    let turns = prop::collection::vec(turn(), 1..40);
    let policy = prop::option::weighted(0.6, 0..POLICIES.len());
    let cases = (turns, prop::sample::select(&PATTERNS), policy);
    let config = ProptestConfig { fork: false, ..ProptestConfig::with_cases(2000) };
    let run = TestRunner::new(config).run(&cases, |(turns, pattern, policy)| {
        let selection = selection(pattern, policy);
        let mut publisher = Publisher::new();
        let mut stream = Stream::new(&selection, &publisher.revision);
        for turn in turns {
            match turn {
                Turn::Publish(acts) => publisher.publish(&acts),
                Turn::Others => stream.send_others(&publisher.revision),
                Turn::BeginDerived => stream.begin_derived(),
                Turn::Portion(nodes) => stream.send_portion(nodes),
                Turn::Again => stream.send_again(),
            }
        }
        stream.send_others(&publisher.revision);
        stream.send_portion(usize::MAX);
        stream.begin_derived();
        stream.send_portion(usize::MAX);
        let want = whole(&selection, &publisher.revision);
        checked.set(checked.get() + want.len());
        cut.set(cut.get() + stream.cut);
        prop_assert_eq!(stream.client.leaves, want);
        Ok(())
    });
    run.unwrap();
    assert!(cut.get() > 100 && checked.get() > 2000, "{cut:?} walks cut, {checked:?} leaves");
}

/// The updates of both cursors after one revision, with the nodes that each walk has visited.
fn updates(stream: &mut Stream, revision: &Revision) -> [(Vec<String>, usize); 2] {
    let drain = |walk: &mut Walk| {
        let mut lines = Vec::new();
        while let Some(update) = walk.next() {
            let sign = if matches!(update, TreeUpdate::Leaf { .. }) { '+' } else { '-' };
            lines.push(format!("{sign}{}", path_of(&update)));
        }
        (lines, walk.visited())
    };
    let cursor = stream.others.as_mut().unwrap();
    let mut walk = cursor.next(&revision.openconfig, Compare::Events);
    let others = drain(&mut walk);
    let derived = stream.derived.as_mut().unwrap();
    derived.forget(&OPENCONFIG, &walk.take_deleted());
    derived.begin_next(&revision.openconfig, Compare::Events);
    let lines = drain(derived.walk().unwrap());
    derived.finish();
    [others, lines]
}

fn remove(publisher: &mut Publisher, path: usize) {
    publisher.publish(&[Act::Remove { port: 0, path, plane: ConfigOrState::Both }]);
}

/// The branch of a long derived list goes with one update, by the cursor that has all of it.
#[test]
fn a_branch_is_deleted_once_by_the_cursor_that_has_it() {
    let configure =
        [0, 1].map(|port| Act::Configure { port, values: Some([Some(0); CONFIGURED.len()]) });
    let rows: [(usize, [&[&str]; 2]); 3] = [
        (1, [&["-/interfaces/interface[name=eth0]"], &[]]),
        (4, [&[], &["-/interfaces/interface[name=eth0]/subinterfaces"]]),
        (5, [&[], &["-/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]"]]),
    ];
    for (path, want) in rows {
        let mut publisher = Publisher::new();
        publisher.publish(&configure);
        let mut stream = Stream::new(&selection("/", None), &publisher.revision);
        remove(&mut publisher, path);
        let told = updates(&mut stream, &publisher.revision).map(|(lines, _)| lines);
        assert_eq!(told, want.map(<[&str]>::to_vec), "{}", REMOVED[path]);
    }
}

/// Neither cursor looks at what belongs to the other one.
#[test]
fn work_of_two_cursors_is_proportional_to_the_change() {
    const ENTRIES: usize = 1000;
    let entry = |index: usize| {
        let leaf = format!("subinterfaces/subinterface[index={index}]/config/description");
        let mutation = Mutation::Set(Value::Str("a".into()));
        RevisionChange { origin: Origin::OpenConfig, path: below(0, &leaf), mutation }
    };
    let mut publisher = Publisher::new();
    publisher.publish(&[Act::Set { port: 0, leaf: 0, value: 0 }]);
    let mut stream = Stream::new(&selection("/", None), &publisher.revision);
    let mut draft = publisher.revision.draft(&MODELS, 1);
    (0..ENTRIES).for_each(|index| draft.apply(entry(index)));
    publisher.revision = draft.publish();
    let [(others, visited), (derived, _)] = updates(&mut stream, &publisher.revision);
    assert_eq!(others, Vec::<String>::new());
    assert!(derived.len() >= ENTRIES, "{}", derived.len());
    assert!(visited < 20, "{visited} nodes were looked at beside the list");

    let hostname = instance("/system/config/hostname");
    let mutation = Mutation::Set(Value::Str("box".into()));
    let mut draft = publisher.revision.draft(&MODELS, 2);
    draft.apply(RevisionChange { origin: Origin::OpenConfig, path: hostname, mutation });
    publisher.revision = draft.publish();
    let [(others, _), (derived, visited)] = updates(&mut stream, &publisher.revision);
    assert_eq!((others.len(), derived.len()), (1, 0));
    assert!(visited < 10, "{visited} nodes were looked at for derived lists");

    remove(&mut publisher, 1);
    let [(others, first), (derived, second)] = updates(&mut stream, &publisher.revision);
    assert_eq!((others.len(), derived.len()), (1, 0));
    assert!(first + second < 30, "{first} and {second} nodes were looked at for one deletion");
}
