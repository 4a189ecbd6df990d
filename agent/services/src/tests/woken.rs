//! Instances that are woken: their conditions alone are judged, and they walk if one of them has another result.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Applied, Book, BoxState, Plane, Read, Surroundings, WalkOutcome, WalkWork,
};
use holdfast_config::tree::Leaf;
use holdfast_config::{ClaimKey, Configuration, PathPattern, ServiceTag, Tree, Value};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use smol_str::SmolStr;

use super::plans::box_of;
use super::side_by_side::YANG;
use super::types::edit;
use super::*;
use crate::watch::{Answer, DueInstances};
use crate::{ServiceTypes, TouchedReads, Watches};

/// A type with a condition of each sort: gates that read configuration and state, one that hides a read, a delete gate, a
/// sticky one, others that ask for states, instances and what is gone, a tree that reads and observes, and a template that
/// reads.
const OUTLINE: &str = r#"[service]
name = "access"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface"]
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "main.cli"
  delete = { when = "state('/interfaces/interface[name={}]/state/oper-status', 'guard') != 'UP'" }
  [[component.state]]
  name = "described"
  when = "config('/interfaces/interface[name={}]/description', 'all') == 'go' and state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'"
  work = "size.cli"
  [[component.state]]
  name = "left"
  when = "params.seen is undefined or gone('/interfaces/interface[name={}]/state/oper-status', params.seen)"
  [[component.state]]
  name = "peered"
  sticky = true
  when = "params.peer is undefined or service_ready(\"access[name='\" ~ params.peer ~ \"']\")"
[[component]]
type = "extra"
  [[component.state]]
  name = "made"
  when = "reached('port', params.port, 'described') or state('/interfaces/interface[name={}]/state/oper-status', 'open') == 'UP'"
[[tree]]
create = { type = "port", name = "params.port" }
[[tree]]
if = "'TESTING' in state('/interfaces/interface[name=*]/state/oper-status')"
observe = ["state('/interfaces/interface[name={}]/state/oper-status', 'observed')"]
create = { type = "extra", name = "'x'" }
"#;

const MAIN: &str = "interface {{ params.port }}\n  enabled true\n";
const SIZE: &str = "interface {{ params.port }}
  mtu {% if config('/interfaces/interface[name={}]/description', 'large') is none %}1300{% else %}1400{% endif %}
";

static TYPES: LazyLock<Arc<ServiceTypes>> = LazyLock::new(|| {
    let templates = [("templates/main.cli", MAIN), ("templates/size.cli", SIZE)];
    Arc::new(access_types(OUTLINE, YANG, &templates))
});
/// A box without instances.
static EMPTY: LazyLock<Configuration> = LazyLock::new(|| box_of(Arc::clone(&TYPES)));

/// Instances with the ports that are theirs.
const INSTANCES: [(&str, &str); 3] = [("acme", "eth1"), ("bolt", "eth2"), ("cord", "eth3")];
const LINKS: [&str; 6] = ["eth1", "eth2", "guard", "open", "observed", "other"];
const STATUSES: [&str; 4] = ["", "UP", "DOWN", "TESTING"];

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

/// Status of links, and the instances whose first objects are not in the kernel.
#[derive(Clone, Debug, Default)]
struct LinkBox {
    tree: Tree<()>,
    unapplied: BTreeMap<SmolStr, Applied>,
}

impl BoxState for LinkBox {
    fn leaves(&self, origin: Origin, pattern: &PathPattern) -> Vec<Value> {
        match origin {
            Origin::Native => self.tree.leaf_values(pattern),
            Origin::OpenConfig => Vec::new(),
        }
    }

    fn applied(&self, claim: &ClaimKey) -> Applied {
        let unapplied = self.unapplied.get(&claim.tag.key).filter(|_| claim.state == "attached");
        unapplied.cloned().unwrap_or(Applied::Done)
    }
}

/// Follower of the box, as in the agent: with the same due instances and watches, and without its threads.
struct Follower {
    configuration: Configuration,
    state: LinkBox,
    /// Time, which each change moves.
    now_ns: u64,
    /// The box as the last round saw it.
    seen: (Configuration, Tree<()>),
    watches: Watches,
    due: DueInstances,
    work: WalkWork,
    /// Instances whose conditions were as they were, and touched ones that walked.
    shortcuts: [usize; 2],
}

fn answer(configuration: &Configuration, state: &LinkBox, read: &Read) -> Answer {
    match read {
        Read::Service(tag) => {
            let plan = configuration.layers().book.get(tag);
            vec![Value::Bool(plan.is_some_and(|plan| plan.is_ready()))]
        }
        Read::Leaves(read) => read.values(&configuration.ground(), Some(state)),
    }
}

/// Instances whose walks change something.
fn changing(outcome: &WalkOutcome) -> BTreeSet<ServiceTag> {
    let claims = outcome.claims.iter().map(|(key, _)| &key.tag);
    claims.chain(outcome.plans.iter().map(|(tag, _)| tag)).cloned().collect()
}

impl Follower {
    fn new() -> Self {
        Self {
            configuration: EMPTY.clone(),
            state: LinkBox::default(),
            now_ns: 1,
            seen: (EMPTY.clone(), Tree::new()),
            watches: Watches::default(),
            due: DueInstances::default(),
            work: WalkWork::default(),
            shortcuts: [0, 0],
        }
    }

    fn surroundings(&self) -> Surroundings {
        let state: Option<Arc<dyn BoxState>> = Some(Arc::new(self.state.clone()));
        Surroundings { state, now_ns: self.now_ns, is_lenient: true, ..Surroundings::default() }
    }

    fn set(&mut self, operations: &str) {
        self.now_ns += 1;
        let before = self
            .configuration
            .clone()
            .with_surroundings(Surroundings { is_lenient: false, ..self.surroundings() });
        // A name that still backs out is refused.
        if let Ok(after) = before.edit(&edit(operations)) {
            self.configuration = after;
        }
    }

    fn link(&mut self, name: &str, status: &str) {
        let path = format!("/interfaces/interface[name={name}]/state/oper-status");
        let schema = &TYPES.models().native;
        let path = schema.resolve_write(&path.parse().unwrap()).unwrap();
        match status {
            "" => drop(self.state.tree.remove(schema, &path)),
            status => {
                self.state.tree.set_leaf(schema, &path, Leaf::new(Value::Str(status.into()), ()));
            }
        }
    }

    fn apply(&mut self, name: &str, applied: Option<Applied>) {
        match applied {
            Some(applied) => drop(self.state.unapplied.insert(name.into(), applied)),
            None => drop(self.state.unapplied.remove(name)),
        }
        self.due.insert_moved(tag(name));
    }

    fn look(&mut self) {
        let (old, old_tree) = std::mem::replace(
            &mut self.seen,
            (self.configuration.clone(), self.state.tree.clone()),
        );
        let new = &self.configuration;
        old.changed_instances(new).into_iter().for_each(|tag| self.due.insert(tag));
        let mut touched = TouchedReads::default();
        for (tag, ..) in Book::differences(&old.layers().book, &new.layers().book) {
            self.due.insert(tag.clone());
            self.watches.touch_service(tag, &mut touched);
        }
        let grounds = [&old, new].map(|it| it.ground());
        let grounds = [grounds[0].effective(), grounds[1].effective()];
        self.watches.compare(Plane::Ground, Origin::Native, grounds.into(), &mut touched);
        let states = (&old_tree, &self.state.tree);
        self.watches.compare(Plane::State, Origin::Native, states, &mut touched);
        let woken = self.watches.wake(&touched, |read| answer(new, &self.state, read));
        woken.into_iter().for_each(|change| self.due.insert_woken(change.woken));
    }

    /// Tries the due instances except one, and compares those that change something with walks of all as wholes.
    fn round(&mut self, paused: Option<&str>) -> BTreeSet<ServiceTag> {
        self.look();
        let paused = paused.map(tag);
        let round = self.due.take(|tag| Some(tag) != paused.as_ref());
        let due = round.whole.clone();
        let touched = round.touched.clone();
        let count = touched.len();
        let trial = Surroundings { due, touched, ..self.surroundings() };
        let mut outcome = self.configuration.trial(&trial);
        let all = INSTANCES.iter().map(|(name, _)| tag(name));
        let all = all.filter(|tag| Some(tag) != paused.as_ref()).collect();
        let reference = self.configuration.trial(&Surroundings { due: all, ..self.surroundings() });
        let changing = changing(&outcome);
        assert_eq!(changing, self::changing(&reference), "{round:#?}");
        self.work.add(outcome.work);
        self.shortcuts[0] += outcome.unchanged.len();
        self.shortcuts[1] += count - outcome.unchanged.len();
        let configuration = &self.configuration;
        let state = &self.state;
        let answer = |read: &Read| answer(configuration, state, read);
        self.due.note(round, &mut outcome, &mut self.watches, answer);
        changing
    }

    fn walk(&mut self, due: BTreeSet<ServiceTag>) {
        self.now_ns += 1;
        let surroundings = Surroundings { due, ..self.surroundings() };
        self.configuration =
            self.configuration.clone().with_surroundings(surroundings).walked().unwrap();
    }

    /// Rounds and walks until nothing changes.
    fn settle(&mut self) {
        for _ in 0..30 {
            let changing = self.round(None);
            if changing.is_empty() {
                return;
            }
            self.walk(changing);
        }
        panic!("the walks do not end");
    }

    /// Work of the rounds until nothing changes.
    fn settled_work(&mut self) -> WalkWork {
        self.work = WalkWork::default();
        self.settle();
        self.work
    }
}

/// An instance that waits for its gate, and a box where nothing is to be done.
fn waiting() -> Follower {
    let mut follower = Follower::new();
    follower.set(r#"update acme {"port":"eth1"}"#);
    follower.set("update /interfaces/interface[name=all]/description \"go\"");
    follower.link("eth1", "DOWN");
    follower.settle();
    follower
}

const NOTHING: WalkWork = WalkWork { rendered: 0, conditions: 0, digests: 0 };
const ONE_CONDITION: WalkWork = WalkWork { conditions: 1, ..NOTHING };

// proves sv.B17, sv.B19
#[test]
fn a_woken_instance_whose_gate_stays_closed_renders_nothing() {
    let mut follower = waiting();
    assert_eq!(follower.settled_work(), NOTHING);
    follower.link("eth1", "UNKNOWN");
    let both = WalkWork { conditions: 2, ..NOTHING };
    assert_eq!(follower.settled_work(), both, "its gate, and the tree, which reads all links");
    follower.link("eth2", "UP");
    assert_eq!(follower.settled_work(), ONE_CONDITION, "the tree alone reads that");
    let fired = |follower: &Follower| {
        follower.watches.of_instance(&tag("acme")).map(|wait| wait.fired).sum::<u64>()
    };
    assert_eq!(fired(&follower), 3, "eth1 by the gate and the tree, eth2 by the tree");
    follower.link("eth1", "UP");
    assert!(follower.settled_work().rendered > 0);
    let plan = follower.configuration.layers().book.get(&tag("acme")).cloned().unwrap();
    assert!(plan.is_ready());
    follower.set("update /interfaces/interface[name=other]/description \"go\"");
    assert_eq!(follower.settled_work(), NOTHING, "nobody reads that");
}

// proves sv.B19
#[test]
fn what_a_condition_has_read_is_replaced_though_its_result_is_the_same() {
    let mut follower = waiting();
    let reads = |follower: &Follower| follower.watches.of_instance(&tag("acme")).count();
    let both = reads(&follower);
    follower.set("update /interfaces/interface[name=all]/description \"stop\"");
    assert_eq!(follower.settled_work(), ONE_CONDITION);
    assert_eq!(reads(&follower), both - 1, "a false left side hides the link");
    follower.set("update /interfaces/interface[name=all]/description \"go\"");
    assert_eq!(follower.settled_work(), ONE_CONDITION);
    assert_eq!(reads(&follower), both);
    follower.link("eth1", "UP");
    assert!(follower.settled_work().rendered > 0, "the gate waits for the link again");
}

#[test]
fn an_object_that_is_where_it_was_makes_no_walk() {
    let mut follower = waiting();
    follower.apply("acme", None);
    assert_eq!(follower.settled_work(), NOTHING);
    follower.apply("acme", Some(Applied::Pending("link eth1".into())));
    assert!(follower.settled_work().rendered > 0);
    follower.apply("acme", Some(Applied::Pending("link eth1".into())));
    assert_eq!(follower.settled_work(), NOTHING);
}

// proves sv.B35
#[test]
fn another_value_of_what_the_tree_observes_or_a_template_reads_makes_a_walk() {
    let mut follower = waiting();
    follower.link("other", "TESTING");
    follower.settle();
    follower.link("observed", "DOWN");
    assert!(follower.settled_work().rendered > 0);
    follower.link("eth1", "UP");
    follower.settle();
    follower.set("update /interfaces/interface[name=large]/description \"go\"");
    assert!(follower.settled_work().rendered > 0);
}

#[derive(Clone, Debug)]
enum Event {
    Set(String),
    Link(&'static str, &'static str),
    Applied(&'static str, u8),
    /// A round in which one instance pauses, with walks of those that change something, or without.
    Round(Option<&'static str>, bool),
}

fn event() -> impl Strategy<Value = Event> {
    let instance = || prop::sample::select(INSTANCES.to_vec());
    let name = || instance().prop_map(|(name, _)| name);
    let seen = prop::option::weighted(0.2, prop::sample::select(&LINKS[..]));
    let params = (instance(), prop::option::weighted(0.3, name()), seen);
    let update = params.prop_map(|((name, port), peer, seen)| {
        let leaf = |leaf: &str, value: Option<&str>| {
            value.map(|it| format!(r#","{leaf}":"{it}""#)).unwrap_or_default()
        };
        let peer = leaf("peer", peer);
        let seen = leaf("seen", seen);
        format!("delete {name}\nupdate {name} {{\"port\":\"{port}\"{peer}{seen}}}")
    });
    let ports = || prop::sample::select(vec!["all", "large", "eth1"]);
    let texts = prop::sample::select(vec!["go", "stop"]);
    let described = (ports(), texts).prop_map(|(port, text)| {
        format!("update /interfaces/interface[name={port}]/description \"{text}\"")
    });
    let links = (prop::sample::select(&LINKS[..]), prop::sample::select(&STATUSES[..]));
    prop_oneof![
        3 => update.prop_map(Event::Set),
        1 => name().prop_map(|name| Event::Set(format!("delete {name}"))),
        3 => described.prop_map(Event::Set),
        1 => ports().prop_map(|port| Event::Set(format!("delete /interfaces/interface[name={port}]"))),
        6 => links.prop_map(|(link, status)| Event::Link(link, status)),
        2 => (name(), 0..3_u8).prop_map(|(name, applied)| Event::Applied(name, applied)),
        6 => (prop::option::weighted(0.3, name()), prop::bool::weighted(0.8))
            .prop_map(|(paused, walks)| Event::Round(paused, walks)),
    ]
}

// proves sv.B19
#[test]
fn conditions_alone_find_the_same_walks_as_walks_of_everything() {
    let tally = RefCell::new([0, 0]);
    let config = ProptestConfig { cases: 120, failure_persistence: None, ..Default::default() };
    let events = (any::<bool>(), prop::collection::vec(event(), 1..40));
    TestRunner::new(config)
        .run(&events, |(is_ready, events)| {
            let mut follower = Follower::new();
            if is_ready {
                for (name, port) in INSTANCES {
                    follower.set(&format!(r#"update {name} {{"port":"{port}"}}"#));
                    follower.link(port, "UP");
                }
                follower.set("update /interfaces/interface[name=all]/description \"go\"");
                follower.settle();
            }
            for event in events {
                match event {
                    Event::Set(operations) => follower.set(&operations),
                    Event::Link(name, status) => follower.link(name, status),
                    Event::Applied(name, 0) => follower.apply(name, None),
                    Event::Applied(name, 1) => {
                        follower.apply(name, Some(Applied::Pending("link".into())));
                    }
                    Event::Applied(name, _) => {
                        follower.apply(name, Some(Applied::Failed("EINVAL".into())));
                    }
                    Event::Round(paused, walks) => {
                        let changing = follower.round(paused);
                        if walks {
                            follower.walk(changing)
                        } else {
                            changing.into_iter().for_each(|it| follower.due.insert(it))
                        }
                    }
                }
            }
            follower.settle();
            let mut tally = tally.borrow_mut();
            tally[0] += follower.shortcuts[0];
            tally[1] += follower.shortcuts[1];
            Ok(())
        })
        .unwrap();
    let [shortcuts, walks] = tally.into_inner();
    assert!(shortcuts >= 50 && walks >= 50, "{shortcuts} without a walk, {walks} with one");
}
