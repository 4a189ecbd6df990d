//! Content of a drawing: values, their dependencies, and their parts.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_scheduler::{DependencyStatus, Engine, Key, SharedValue, Target, ValueState};
use serde_json::json;

use super::super::document::Renderer;

/// Targets that one step of the search resolves by a scan of all values; exact ones are always resolved.
const TARGETS_FOLLOWED: usize = 16;
/// Values followed from one, in one direction: a link with a thousand addresses is drawn with some of them.
const NEIGHBOURS: usize = 64;
/// Bytes of a value in the tooltip of its node.
const TOOLTIP_OCTETS: usize = 600;

/// Values of a drawing, before their edges are known.
#[derive(Debug)]
pub(super) struct NodeSelection {
    keys: BTreeSet<Key>,
    /// Number of values beyond the limit.
    left_out: usize,
}

/// A drawing without positions.
#[derive(Debug)]
pub(super) struct Picture {
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
    pub(super) left_out: usize,
}

#[derive(Debug)]
pub(super) struct Node {
    /// `None` for a dependency without an exact key.
    pub(super) key: Option<Key>,
    pub(super) name: String,
    pub(super) label: String,
    pub(super) kind: String,
    pub(super) state: ValueState,
    /// True for a missing value that others wait for.
    pub(super) missing: bool,
    /// True for a part of another value.
    pub(super) derived: bool,
    /// True when the transaction in question affected it.
    pub(super) touched: bool,
    pub(super) tooltip: String,
}

/// An edge between two nodes, by their indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: EdgeKind,
    pub(super) label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeKind {
    DependsOn,
    /// A dependency that is not met.
    Unmet,
    Derives,
}

impl EdgeKind {
    fn name(self) -> &'static str {
        match self {
            Self::DependsOn => "depends-on",
            Self::Unmet => "unmet",
            Self::Derives => "derives",
        }
    }
}

impl NodeSelection {
    /// Values up to `depth` steps away from some.
    pub(super) fn around(engine: &Engine, start: Vec<Key>, depth: usize, most: usize) -> Self {
        let mut drawn = Self { keys: BTreeSet::new(), left_out: 0 };
        let mut frontier = drawn.add(start, most);
        for _ in 0..depth {
            frontier = drawn.add(neighbours(engine, &frontier), most);
        }
        drawn
    }

    /// All values: intended ones first, then those that the system made.
    pub(super) fn whole(engine: &Engine, most: usize) -> Self {
        let mut keys = engine.keys(|_| true);
        keys.sort_by_cached_key(|key| (engine.state(key) == ValueState::Obtained, key.clone()));
        let mut drawn = Self { keys: BTreeSet::new(), left_out: 0 };
        drawn.add(keys, most);
        drawn
    }

    /// Adds keys up to the limit; returns the new ones.
    fn add(&mut self, keys: Vec<Key>, most: usize) -> Vec<Key> {
        let mut added = Vec::new();
        for key in keys {
            if self.keys.len() < most && self.keys.insert(key.clone()) {
                added.push(key);
            } else if !self.keys.contains(&key) {
                self.left_out += 1;
            }
        }
        added
    }

    pub(super) fn into_keys(self) -> Vec<Key> {
        self.keys.into_iter().collect()
    }

    pub(super) fn picture(self, render: &Renderer, engine: &Engine) -> Picture {
        let mut nodes: Vec<Node> =
            self.keys.iter().map(|key| Node::of(render, engine, key)).collect();
        let at: BTreeMap<Key, usize> = self.keys.iter().cloned().zip(0..).collect();
        let mut edges = BTreeSet::new();
        let mut ghosts: BTreeMap<String, usize> = BTreeMap::new();
        for (key, &from) in &at {
            let parts = engine.status(key).map(|status| status.parts).unwrap_or_default();
            let parts = parts.iter().filter_map(|part| at.get(part));
            edges.extend(parts.map(|&to| Edge::new(from, to, EdgeKind::Derives, "")));
            for need in engine.needs(key) {
                let providers = at.iter().filter(|(other, _)| engine.meets(other, &need.target));
                let tie = |to| Edge::new(from, to, EdgeKind::DependsOn, &need.label);
                edges.extend(providers.filter(|&(_, &to)| to != from).map(|(_, &to)| tie(to)));
                if need.met || matches!(need.target, Target::Whole(_)) {
                    continue;
                }
                let drawn = match &need.target {
                    Target::Exact(target) => at.get(target).copied(),
                    _ => None,
                };
                let to = drawn.unwrap_or_else(|| {
                    *ghosts.entry(need.label.clone()).or_insert_with(|| {
                        nodes.push(Node::missing(render, &need));
                        nodes.len() - 1
                    })
                });
                edges.insert(Edge::new(from, to, EdgeKind::Unmet, &need.label));
            }
        }
        Picture { nodes, edges: edges.into_iter().collect(), left_out: self.left_out }
    }
}

impl Edge {
    fn new(from: usize, to: usize, tie: EdgeKind, label: &str) -> Self {
        Self { from, to, kind: tie, label: label.to_owned() }
    }
}

/// Dependencies, parts and dependants of some values.
fn neighbours(engine: &Engine, keys: &[Key]) -> Vec<Key> {
    let mut found = Vec::new();
    let mut targets = Vec::new();
    for key in keys {
        if let Some(status) = engine.status(key) {
            found.extend(status.parts.into_iter().take(NEIGHBOURS));
            found.extend(status.part_of);
        }
        found.extend(engine.dependents(key, NEIGHBOURS));
        targets.extend(engine.needs(key).into_iter().map(|need| need.target));
    }
    targets.sort_unstable();
    targets.dedup();
    let (exact, others): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|target| matches!(target, Target::Exact(_)));
    let some = &others[..others.len().min(TARGETS_FOLLOWED)];
    let providers = engine.providers(&exact, NEIGHBOURS).into_iter();
    found.extend(providers.chain(engine.providers(some, NEIGHBOURS)).flatten());
    let exists = |key: &Key| engine.state(key) != ValueState::Nonexistent;
    // A missing value is drawn by the edges of its dependants.
    found.into_iter().filter(exists).collect()
}

impl Node {
    fn of(render: &Renderer, engine: &Engine, key: &Key) -> Self {
        let [intended, applied, observed] = engine.planes(key).map(Option::<&SharedValue>::cloned);
        let status = engine.status(key);
        let mut node = Self {
            key: Some(key.clone()),
            name: render.key(key),
            label: engine.label(key),
            kind: render.kind(key).to_owned(),
            state: engine.state(key),
            missing: false,
            derived: status.is_some_and(|status| !status.part_of.is_empty()),
            touched: false,
            tooltip: String::new(),
        };
        node.set_tooltip(render, observed.or(applied).or(intended));
        node
    }

    fn missing(render: &Renderer, need: &DependencyStatus) -> Self {
        let key = match &need.target {
            Target::Exact(key) => Some(key),
            _ => None,
        };
        Self {
            key: None,
            name: key.map(|key| render.key(key)).unwrap_or_default(),
            label: need.label.clone(),
            kind: key.map_or("not there", |key| render.kind(key)).to_owned(),
            state: ValueState::Nonexistent,
            missing: true,
            derived: false,
            touched: false,
            tooltip: format!("{} is not there", need.label),
        }
    }

    /// Shows the node in an earlier state; as absent without one.
    pub(super) fn set_state(
        &mut self,
        render: &Renderer,
        then: Option<(ValueState, Option<SharedValue>)>,
    ) {
        let (state, value) = then.unwrap_or((ValueState::Nonexistent, None));
        self.state = state;
        self.set_tooltip(render, value);
    }

    fn set_tooltip(&mut self, render: &Renderer, value: Option<SharedValue>) {
        let Some(key) = &self.key else { return };
        let value = render.value(key, value.as_ref());
        let data = value.get("Data").map(serde_json::Value::to_string).unwrap_or_default();
        let end = data.floor_char_boundary(TOOLTIP_OCTETS);
        self.tooltip = format!("{}\n{}\n{}", self.label, self.state, &data[..end]);
    }

    /// True for a node that is drawn dashed, because the system lacks it.
    pub(super) fn is_absent(&self) -> bool {
        let absent = [
            ValueState::Nonexistent,
            ValueState::Missing,
            ValueState::Unimplemented,
            ValueState::Pending,
            ValueState::Cyclic,
        ];
        self.missing || absent.contains(&self.state)
    }
}

impl Picture {
    pub(super) fn document(&self) -> serde_json::Value {
        let node = |it: &Node| {
            json!({
                "Key": it.name, "Label": it.label, "Descriptor": it.kind, "Ghost": it.missing,
                "State": it.state.to_string(), "Derived": it.derived, "Touched": it.touched,
            })
        };
        let edge = |it: &Edge| json!({"From": it.from, "To": it.to, "Relation": it.kind.name(), "Label": it.label});
        json!({
            "Nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "Edges": self.edges.iter().map(edge).collect::<Vec<_>>(),
            "LeftOut": self.left_out,
        })
    }
}
