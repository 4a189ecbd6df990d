//! Expansion of wildcards in one walk down the schema.
//!
//! The elements of a path are the states of an automaton: at each schema node the walk has the set of elements
//! that may come next. Each node is therefore visited once, however many ways lead to it. States with different
//! list entries on their way are kept separate, since they name different data.

use smallvec::SmallVec;

use super::{ElementLookup, KeyPattern, PathError, PathPattern, PatternStep};
use crate::path::{ANY, ANY_DEPTH, Path};
use crate::schema::{NodeId, NodeKind, Schema};

/// Filter for the parts of a schema in which wildcards are expanded, evaluated during the descent.
pub trait SchemaFilter {
    /// State of the filter at one node.
    type NodeState;

    fn root(&self) -> Self::NodeState;

    /// State at a child; `None` when nothing in its subtree may be named.
    fn below(&self, at: &Self::NodeState, child: NodeId) -> Option<Self::NodeState>;
}

/// Filter that admits every node.
pub(super) struct AllNodes;

impl SchemaFilter for AllNodes {
    type NodeState = ();

    fn root(&self) {}

    fn below(&self, (): &(), _child: NodeId) -> Option<()> {
        Some(())
    }
}

/// Result of an expansion.
#[derive(Debug, Default)]
pub struct Expansion {
    /// Patterns in schema order, without overlaps.
    pub patterns: Vec<PathPattern>,
    /// Number of schema nodes visited.
    pub visited: usize,
}

impl Schema {
    /// Expands the rest of a path after its literal beginning, which is `literal`. An empty result is not an error if
    /// the filter excluded a part of the schema, because the path may name nodes there.
    ///
    /// # Errors
    /// When the schema has no such node, or a key does not belong to its list.
    pub fn expand<S: SchemaFilter>(
        &self,
        path: &Path,
        literal: Vec<PatternStep>,
        sight: &S,
    ) -> Result<Expansion, PathError> {
        PathError::check_limits(path)?;
        let first = literal.len();
        let end = path.elems.len();
        if first == end {
            return Ok(Expansion { patterns: vec![PathPattern(literal)], visited: 0 });
        }
        let mut at = sight.root();
        for step in &literal {
            match sight.below(&at, step.node) {
                Some(below) => at = below,
                None => return Ok(Expansion::default()),
            }
        }
        let rest = &path.elems[first..];
        let strict = rest.iter().any(|elem| !is_open(&elem.name) && !elem.keys.is_empty());
        let start =
            States::default().with(path, State { next: first, key_patterns: KeyPatterns::new() });
        let mut walk = Walk {
            schema: self,
            path,
            filter: sight,
            strict,
            way: literal,
            found: Vec::new(),
            ended: Vec::new(),
            furthest: first,
            error: None,
            is_kept_out: false,
            visited: 0,
        };
        walk.enter(&at, &start);
        let Walk { found, furthest, error, is_kept_out, visited, .. } = walk;
        if let Some((_, error)) = error {
            return Err(error);
        }
        if furthest < end && !is_kept_out {
            return Err(ElementLookup { schema: self, path, at: furthest }.unknown());
        }
        Ok(Expansion { patterns: found, visited })
    }
}

fn is_open(name: &str) -> bool {
    name == ANY || name == ANY_DEPTH
}

/// Patterns for list entries on the way, by depth. All entries of other lists match.
type KeyPatterns = SmallVec<[(usize, KeyPattern); 1]>;

/// An element that may come next, with the list entries selected on the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    next: usize,
    key_patterns: KeyPatterns,
}

/// Elements that may come next at one schema node. The number of elements stands for the end of the path.
#[derive(Clone, Debug, Default)]
struct States {
    /// Bit set of the elements reached without selecting entries.
    plain: u128,
    others: Vec<State>,
}

impl States {
    fn with(mut self, path: &Path, state: State) -> Self {
        self.add(path, state);
        self
    }

    /// Adds a state. Since `...` may match nothing, it also adds the element after it. Returns the furthest
    /// element added.
    fn add(&mut self, path: &Path, mut state: State) -> usize {
        loop {
            let next = state.next;
            match state.key_patterns.is_empty() {
                true => self.plain |= 1 << next,
                false if self.others.contains(&state) => {}
                false => self.others.push(state.clone()),
            }
            match path.elems.get(next) {
                Some(elem) if elem.name == ANY_DEPTH => state.next += 1,
                _ => return next,
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.plain == 0 && self.others.is_empty()
    }

    fn iter(&self, elements: usize) -> impl Iterator<Item = State> {
        let plain = (0..=elements).filter(|at| self.plain & (1 << at) != 0);
        let plain = plain.map(|next| State { next, key_patterns: KeyPatterns::new() });
        plain.chain(self.others.iter().cloned())
    }
}

struct Walk<'a, S> {
    schema: &'a Schema,
    path: &'a Path,
    filter: &'a S,
    /// Some element may be invalid at a node that it reaches, so no part of the walk may be skipped.
    strict: bool,
    /// Steps to the current node, matching every entry of lists below the literal beginning.
    way: Vec<PatternStep>,
    found: Vec<PathPattern>,
    /// Entry patterns of results found at ancestors, which include their whole subtrees.
    ended: Vec<KeyPatterns>,
    /// Furthest element reached anywhere.
    furthest: usize,
    /// First invalid element, with its error.
    error: Option<(usize, PathError)>,
    is_kept_out: bool,
    visited: usize,
}

impl<S: SchemaFilter> Walk<'_, S> {
    /// Visits a node with its states (at least one).
    fn enter(&mut self, at: &S::NodeState, states: &States) {
        let elements = self.path.elems.len();
        let ended_above = self.ended.len();
        for state in states.iter(elements) {
            self.furthest = self.furthest.max(state.next);
            if state.next == elements {
                self.end(state.key_patterns, ended_above);
            }
        }
        let all_is_named = self.ended.iter().any(|picked| picked.is_empty());
        if self.strict || !all_is_named {
            self.descend(at, states);
        }
        self.ended.truncate(ended_above);
    }

    /// Records a result at this node, unless one found at an ancestor or at this node includes it.
    fn end(&mut self, picked: KeyPatterns, ended_above: usize) {
        if self.ended.iter().any(|wide| includes(wide, &picked)) {
            return;
        }
        // Results of this node are at the end of the list.
        let here = self.found.len() - (self.ended.len() - ended_above);
        let mut at = ended_above;
        while at < self.ended.len() {
            if includes(&picked, &self.ended[at]) {
                self.ended.remove(at);
                self.found.remove(here + at - ended_above);
            } else {
                at += 1;
            }
        }
        let mut steps = self.way.clone();
        for (depth, keys) in &picked {
            steps[*depth].keys = Some(keys.clone());
        }
        self.found.push(PathPattern(steps));
        self.ended.push(picked);
    }

    fn descend(&mut self, at: &S::NodeState, states: &States) {
        let above = self.way.last().map_or(self.schema.root(), |step| step.node);
        let children = &self.schema.node(above).children;
        let mut next: Vec<States> = vec![States::default(); children.len()];
        let mut below: Vec<Option<S::NodeState>> = Vec::with_capacity(children.len());
        below.extend(children.iter().map(|child| self.filter.below(at, *child)));
        self.visited += children.len();
        for state in states.iter(self.path.elems.len()) {
            let Some(elem) = self.path.elems.get(state.next) else { continue };
            let place = ElementLookup { schema: self.schema, path: self.path, at: state.next };
            let name_node = (!is_open(&elem.name)).then(|| place.child(above));
            for (index, child) in children.iter().enumerate() {
                if name_node.is_some_and(|name_node| name_node != Some(*child)) {
                    continue;
                }
                if below[index].is_none() {
                    self.is_kept_out = true;
                    continue;
                }
                match self.step(place, state.clone(), *child) {
                    Ok(Some(state)) => drop(next[index].add(self.path, state)),
                    Ok(None) => {}
                    Err(error) => self.note(state.next, error),
                }
            }
        }
        for ((child, states), at) in children.iter().zip(next).zip(below) {
            if let (false, Some(at)) = (states.is_empty(), at) {
                let list = matches!(self.schema.node(*child).kind, NodeKind::List { .. });
                let keys = list.then(|| any_keys(self.schema, *child));
                self.way.push(PatternStep { node: *child, keys });
                self.enter(&at, &states);
                self.way.pop();
            }
        }
    }

    /// State after the element was matched with a child; `None` without a match.
    fn step(
        &self,
        place: ElementLookup<'_>,
        mut state: State,
        child: NodeId,
    ) -> Result<Option<State>, PathError> {
        let elem = place.elem();
        if elem.name == ANY_DEPTH {
            return Ok(Some(state));
        }
        match place.keys(child) {
            Ok(keys) => {
                let picked = keys.filter(|keys| keys.0.iter().any(Option::is_some));
                state.key_patterns.extend(picked.map(|keys| (self.way.len(), keys)));
                state.next += 1;
                Ok(Some(state))
            }
            // Keys on `*` select the lists that have these keys.
            Err(_) if elem.name == ANY => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn note(&mut self, element: usize, error: PathError) {
        if self.error.as_ref().is_none_or(|(first, _)| element < *first) {
            self.error = Some((element, error));
        }
    }
}

/// True when `wide` includes all entries that `narrow` selects.
fn includes(wide: &KeyPatterns, narrow: &KeyPatterns) -> bool {
    wide.iter().all(|(depth, keys)| {
        narrow.iter().any(|(other, others)| other == depth && keys.covers(others))
    })
}

fn any_keys(schema: &Schema, list: NodeId) -> KeyPattern {
    match &schema.node(list).kind {
        NodeKind::List { keys } => KeyPattern::any(keys.len()),
        _ => KeyPattern::default(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::reference;
    use super::*;
    use crate::limits::PATH_DEPTH_WILDCARDS;
    use crate::path::Elem;

    /// Nested lists whose keys have the same names.
    const NESTED: &str = r#"module nested {
        namespace "urn:nested"; prefix n; yang-version 1.1;
        container top {
            leaf name { type string; }
            container item-of { list top { key "name"; leaf name { type string; } } }
            list item {
                key "name"; leaf name { type string; }
                container top { leaf name { type string; } leaf size { type uint8; } }
                list item {
                    key "name size"; leaf name { type string; } leaf size { type uint8; }
                    list part { key "size"; leaf size { type uint8; } leaf name { type string; } }
                }
            }
        }
        container size { leaf name { type string; } container top { leaf size { type uint8; } } }
    }"#;

    fn nested() -> Schema {
        Schema::from_text(&[("nested", NESTED)]).unwrap()
    }

    fn elems() -> impl Strategy<Value = Vec<Elem>> {
        let name =
            select(vec!["top", "item", "part", "name", "size", "*", "*", "...", "...", "no"]);
        let keys = select(vec![
            "",
            "",
            "",
            "name=a",
            "name=b",
            "name=*",
            "size=1",
            "size=x",
            "name=a size=1",
        ]);
        let elem = (name, keys).prop_map(|(name, keys)| {
            let keys = if name == ANY_DEPTH { "" } else { keys };
            let pairs = keys.split(' ').filter_map(|key| key.split_once('='));
            pairs.fold(Elem::new(name), |elem, (key, value)| elem.key(key, value))
        });
        let is_allowed = |elems: &Vec<Elem>| {
            elems.iter().filter(|elem| elem.name == ANY_DEPTH).count()
                <= PATH_DEPTH_WILDCARDS.figure
        };
        prop::collection::vec(elem, 0..6).prop_filter("more `...` than the limit", is_allowed)
    }

    /// The patterns as text in any order, or the invalid element.
    fn outcome(result: Result<Vec<PathPattern>, PathError>) -> Result<Vec<String>, (bool, String)> {
        let mut texts = result
            .map(|patterns| patterns.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>())
            .map_err(|error| match error {
                PathError::Unknown { at, .. } => (true, at),
                PathError::Malformed { at, .. } | PathError::BadKey { at, .. } => (false, at),
                other => panic!("{other}"),
            })?;
        texts.sort();
        Ok(texts)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn expansion_equals_the_reference_implementation(elems in elems()) {
            let schema = nested();
            let path = Path { elems };
            let got = schema.resolve_read(&path);
            let want = reference::resolve_read(&schema, &path);
            prop_assert_eq!(outcome(got), outcome(want), "{}", path);
        }
    }

    /// Finds the first invalid element, even when the walk reaches another one sooner.
    #[test]
    fn the_first_invalid_element_is_reported() {
        for path in ["/top/*/top[name=a]/name[size=1]", "/.../top[name=a]/name[size=1]/..."] {
            let schema = nested();
            let path = path.parse().unwrap();
            let got = outcome(schema.resolve_read(&path));
            assert_eq!(got, outcome(reference::resolve_read(&schema, &path)), "{path}");
            assert!(matches!(got, Err((false, at)) if at.ends_with("top[name=a]")), "{path}");
        }
    }

    #[test]
    fn each_node_is_entered_once_however_many_wildcards_lead_to_it() {
        let schema = Schema::openconfig().unwrap();
        let nodes = schema.nodes().len();
        let any_depth = |count| vec![Elem::new(ANY_DEPTH); count];
        let visited = |elems: Vec<Elem>| {
            let path = Path { elems };
            schema.expand(&path, Vec::new(), &AllNodes).map(|found| found.visited)
        };
        for wildcards in 1..=4 {
            let with = |name: &str| [any_depth(wildcards), vec![Elem::new(name)]].concat();
            assert_eq!(visited(any_depth(wildcards)).unwrap(), 0, "everything is named at once");
            assert!(visited(with("hostname")).unwrap() < nodes, "{wildcards}");
            assert!(visited(with(ANY)).unwrap() < nodes, "{wildcards}");
        }
        // The largest possible number of states.
        let mixed: Vec<Elem> =
            (0..60).map(|at| Elem::new(if at % 15 == 0 { ANY_DEPTH } else { ANY })).collect();
        assert!(matches!(
            schema.resolve_read(&Path { elems: mixed }),
            Err(PathError::Unknown { .. })
        ));
        let deep = [any_depth(1), vec![Elem::new(ANY); 3], any_depth(3), vec![Elem::new("mtu")]];
        assert!(visited(deep.concat()).unwrap() < nodes);
    }

    /// A filter that excludes nodes of this name.
    struct ExceptNode(NodeId);

    impl SchemaFilter for ExceptNode {
        type NodeState = ();
        fn root(&self) {}
        fn below(&self, (): &(), child: NodeId) -> Option<()> {
            (child != self.0).then_some(())
        }
    }

    #[test]
    fn filtered_nodes_are_neither_expanded_nor_reported() {
        let schema = Schema::openconfig().unwrap();
        let system = ExceptNode(schema.find("/system").unwrap());
        let expand = |path: &str| {
            let path: Path = path.parse().unwrap();
            schema.expand(&path, Vec::new(), &system).map(|found| found.patterns.len())
        };
        assert_eq!(expand("/.../hostname"), Ok(0));
        // Excluded nodes give the same answer as missing ones.
        assert_eq!(expand("/.../bogus"), Ok(0));
        assert_eq!(expand("/*/config/bogus"), Ok(0));
        assert_eq!(expand("/*/interface"), Ok(1));
        let all = schema.expand(&"/.../hostname".parse().unwrap(), Vec::new(), &AllNodes);
        let some = schema.expand(&"/.../hostname".parse().unwrap(), Vec::new(), &system).unwrap();
        assert!(some.visited < all.unwrap().visited);
    }
}
