//! Impact of a failure: the values that do not work while some targets and values do not.
//!
//! A walk of the graph, breadth first. It changes nothing, and nothing of it is kept in the graph: a failure whose impact is
//! to be known again is walked again.
//!
//! ```text
//!  failure: link eth1 ----> its targets lose a provider
//!                              `eth1 up': 1 of 1 lost ----> watchers: route A      DOWN, and loses its own targets
//!                                                                     route A, B   DEGRADED, for it can do without eth1
//!                              `f':       1 of 2 lost       (its watchers are not looked at)
//! ```
//!
//! Start at [`ImpactWalk`]. A walk goes in portions, between which others change the engine. It is then of no revision of the
//! graph: compare [`Engine::dependency_version`] before and after, and walk again.

use std::collections::VecDeque;
use std::vec::IntoIter;

use crate::dependency::Target;
use crate::engine::Engine;
use crate::graph::{Graph, Node, NodeIdx, Source, TargetState};
use crate::key::{FixedMap, Key, KeySet, KindId, sort_keys};
use crate::targets::provided_targets;
use crate::value_spec::ValueSpec;

/// Values that an impact lists: more than an operator can look at, and some megabytes of marks.
pub const LISTED_MOST: usize = 1 << 16;

/// Edges that a walk looks at: about a second of work, in portions.
pub const EDGES_MOST: usize = 1_000_000;

/// Targets and values that fail without another cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Targets that are lost, whoever provides them.
    pub targets: Vec<Target>,
    /// Values that do not work.
    pub keys: Vec<Key>,
    /// Prefixes of keys: all values with such a key do not work. They are found if their kind is one of
    /// [`Engine::index_kinds`], or somebody depends on a prefix of that kind.
    pub below: Vec<Key>,
}

impl Failure {
    /// Both failures at once.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.targets.extend(other.targets);
        self.keys.extend(other.keys);
        self.below.extend(other.below);
        self
    }
}

/// Values that do not work because of a failure, the values that it names among them. Parts and properties are told as the
/// values that they belong to. Each list ascends, and no key is in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impact {
    /// Values that do not work at all.
    pub down: Vec<Key>,
    /// Values that work in part: reducible ones that can do without what is lost, and those that have lost a part.
    pub degraded: Vec<Key>,
    /// Number of edges that were looked at.
    pub edges: usize,
    /// True when the walk ended at [`LISTED_MOST`] or [`EDGES_MOST`]: there is more.
    pub is_truncated: bool,
}

/// A walk under way.
#[derive(Debug)]
pub struct ImpactWalk {
    /// Steps that are left, the next one first.
    steps: VecDeque<Step>,
    /// Providers that each target has lost.
    lost: FixedMap<Target, u32>,
    /// Values that do not work at all.
    down: FixedMap<Key, DownValue>,
    degraded: KeySet,
    edges: usize,
    is_truncated: bool,
}

/// Stretch of a walk. Each is left after any edge, and continued.
#[derive(Debug)]
enum Step {
    /// These targets are lost as a whole.
    LoseAll(IntoIter<Target>),
    /// These values do not work.
    Fail(IntoIter<Key>),
    /// The values with this prefix do not work; those up to `after` are done.
    FailBelow { prefix: Key, after: Option<Key> },
    /// These targets lose one provider each.
    LoseProvider(IntoIter<Target>),
    /// Watchers of a target that nobody provides any more.
    Watchers { target: Target, watchers: IntoIter<NodeIdx> },
}

/// How a value that is down is told.
#[derive(Debug)]
enum DownValue {
    Itself,
    /// As a part of the value with this key.
    PartOf(Key),
    /// Not at all, for it has failed for a reason of its own.
    Untold,
}

impl ImpactWalk {
    pub fn new(failure: Failure) -> Self {
        let Failure { targets, keys, below } = failure;
        let below = below.into_iter().map(|prefix| Step::FailBelow { prefix, after: None });
        let named = [Step::Fail(keys.into_iter()), Step::LoseAll(targets.into_iter())];
        Self {
            steps: named.into_iter().chain(below).collect(),
            lost: FixedMap::default(),
            down: FixedMap::default(),
            degraded: KeySet::default(),
            edges: 0,
            is_truncated: false,
        }
    }

    /// Walks on for about this many edges. The impact, when that was the rest; call it no more then.
    pub fn portion(&mut self, engine: &Engine, edges: usize) -> Option<Impact> {
        let until = self.edges.saturating_add(edges.max(1));
        while let Some(step) = self.steps.front_mut() {
            if self.edges >= until {
                return None;
            }
            let listed = self.down.len() + self.degraded.len();
            if self.edges >= EDGES_MOST || listed >= LISTED_MOST {
                self.is_truncated = true;
                break;
            }
            let graph = &engine.graph;
            let next = match step {
                Step::LoseAll(targets) => targets.next().map(Edge::Lost),
                Step::Fail(keys) => keys.next().map(Edge::Failed),
                Step::FailBelow { prefix, after } => {
                    let next = graph.present_below(prefix, after.as_ref()).cloned();
                    *after = next.clone();
                    next.map(Edge::Failed)
                }
                Step::LoseProvider(targets) => targets.next().map(Edge::LostProvider),
                Step::Watchers { target, watchers } => {
                    watchers.next().map(|idx| Edge::Watcher(idx, target.clone()))
                }
            };
            match next {
                Some(edge) => self.follow(graph, edge),
                None => drop(self.steps.pop_front()),
            }
        }
        Some(self.finish())
    }

    fn follow(&mut self, graph: &Graph, edge: Edge) {
        self.edges += 1;
        match edge {
            Edge::Lost(target) => {
                if self.lost.insert(target.clone(), u32::MAX) != Some(u32::MAX) {
                    self.look_at_watchers(graph, target);
                }
            }
            Edge::LostProvider(target) => {
                let lost = self.lost.entry(target.clone()).or_default();
                let before = *lost;
                *lost = before.saturating_add(1);
                let providers = graph.provider_count(&target);
                if before < providers && *lost >= providers {
                    self.look_at_watchers(graph, target);
                }
            }
            Edge::Failed(key) => {
                if let Some(idx) = graph.find(&key) {
                    self.fail(graph, idx);
                }
            }
            Edge::Watcher(idx, target) => self.look_at(graph, idx, &target),
        }
    }

    fn look_at_watchers(&mut self, graph: &Graph, target: Target) {
        let watchers = graph.target_state(&target).map(TargetState::unique_watchers);
        let watchers = watchers.unwrap_or_default().into_owned().into_iter();
        self.steps.push_back(Step::Watchers { target, watchers });
    }

    /// Finds out what is left of a value that may need a lost target.
    fn look_at(&mut self, graph: &Graph, idx: NodeIdx, target: &Target) {
        let node = graph.node(idx);
        let Some(present) = &node.present else { return }; // it waits, and has not worked before either
        let spec = if node.ours { Some(present) } else { node.goal.requested_spec() };
        let is_needing = spec.is_some_and(|spec| !spec.needs_of(target).is_empty());
        if !is_needing || self.down.contains_key(&node.key) {
            return;
        }
        if self.is_something_left(graph, node) {
            if is_told(node) {
                self.degraded.insert(node.key.clone());
            }
            return;
        }
        self.fail(graph, idx);
    }

    /// True for a reducible value that its descriptor does not reduce to nothing without what is lost.
    fn is_something_left(&mut self, graph: &Graph, node: &Node) -> bool {
        let Some(full) = node.goal.reducible() else { return false };
        self.edges += full.1.needs.len();
        let needs = full.1.needs.iter().map(|need| &need.target);
        let missing: Vec<Target> = needs.filter(|it| self.is_lost(graph, it)).cloned().collect();
        let reduced = ValueSpec::reduced(&graph.registry, &node.key, full, &missing);
        reduced.is_some_and(|(_, spec)| missing.iter().all(|it| spec.needs_of(it).is_empty()))
    }

    fn is_lost(&self, graph: &Graph, target: &Target) -> bool {
        self.lost.get(target).copied().unwrap_or_default() >= graph.provider_count(target)
    }

    /// Notes that a value does not work, unless it is not there.
    fn fail(&mut self, graph: &Graph, idx: NodeIdx) {
        let node = graph.node(idx);
        let Some(present) = &node.present else { return };
        if self.down.contains_key(&node.key) {
            return;
        }
        let told = match whole_of(graph, node) {
            _ if !is_told(node) => DownValue::Untold,
            Some(whole) => DownValue::PartOf(whole),
            None => DownValue::Itself,
        };
        self.down.insert(node.key.clone(), told);
        self.degraded.remove(&node.key);
        let mut targets = provided_targets(&node.key, Some(present), &[&graph.addresses]);
        targets.retain(|target| graph.target_state(target).is_some_and(TargetState::is_watched));
        if !targets.is_empty() {
            self.steps.push_back(Step::LoseProvider(targets.into_iter()));
        }
    }

    fn finish(&mut self) -> Impact {
        let down = std::mem::take(&mut self.down);
        let mut degraded = std::mem::take(&mut self.degraded);
        for value in down.values() {
            if let DownValue::PartOf(whole) = value
                && !down.contains_key(whole)
            {
                degraded.insert(whole.clone());
            }
        }
        let is_itself = |(key, value)| matches!(value, DownValue::Itself).then_some(key);
        let mut down: Vec<Key> = down.into_iter().filter_map(is_itself).collect();
        let mut degraded: Vec<Key> = degraded.into_iter().collect();
        sort_keys(&mut down);
        sort_keys(&mut degraded);
        Impact { down, degraded, edges: self.edges, is_truncated: self.is_truncated }
    }
}

/// One edge of the graph.
enum Edge {
    Lost(Target),
    LostProvider(Target),
    Failed(Key),
    Watcher(NodeIdx, Target),
}

/// False for a value that has failed for a reason of its own.
fn is_told(node: &Node) -> bool {
    node.retry.as_ref().is_none_or(|retry| retry.error.is_none())
}

/// The value that a part is told as: the outermost one, where that is there.
fn whole_of(graph: &Graph, node: &Node) -> Option<Key> {
    let mut found: Option<&Node> = None;
    loop {
        let sources = &found.unwrap_or(node).sources;
        if sources.iter().any(|(source, _)| !source.is_part()) {
            break;
        }
        let wholes = sources.iter().filter_map(|(source, _)| match source {
            Source::Part(whole) => graph.find(whole),
            _ => None,
        });
        let mut there = wholes.map(|idx| graph.node(idx)).filter(|it| it.present.is_some());
        match there.next() {
            Some(whole) => found = Some(whole),
            None => break,
        }
    }
    found.map(|whole| whole.key.clone())
}

impl Engine {
    /// Number of changes of what values there are, what they provide and what they need. While it stays, each failure has the
    /// same impact.
    pub fn dependency_version(&self) -> u64 {
        self.graph.dependency_version
    }

    /// Keeps the present keys of these kinds in order, so that a [`Failure`] finds those with a prefix.
    pub fn index_kinds(&mut self, kinds: &[KindId]) {
        kinds.iter().for_each(|kind| self.graph.index_kind(*kind));
    }
}
