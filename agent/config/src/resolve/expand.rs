//! Wildcards expanded in one walk down the schema.
//!
//! The elements of a path are the states of an automaton: at each schema node the walk carries those elements that may
//! come next, in one set, so each node is entered once however many ways lead to it. States that picked other list
//! entries on their way are kept apart, since they name other data.

use smallvec::SmallVec;

use super::{KeyPattern, PathError, Pattern, PatternStep, Place};
use crate::path::{ANY, ANY_DEPTH, Path};
use crate::schema::{NodeId, NodeKind, Schema};

/// Decides on the way down in which parts of a schema wildcards are expanded.
pub trait Sight {
    /// How much is known of a place.
    type At;

    fn root(&self) -> Self::At;

    /// Of a child; none where nothing in it may be named.
    fn below(&self, at: &Self::At, child: NodeId) -> Option<Self::At>;
}

/// Expands wildcards everywhere.
pub(super) struct Everything;

impl Sight for Everything {
    type At = ();

    fn root(&self) {}

    fn below(&self, (): &(), _child: NodeId) -> Option<()> {
        Some(())
    }
}

/// The nodes that a path with wildcards names.
#[derive(Debug, Default)]
pub struct Expansion {
    /// In schema order; no pattern lies within another one.
    pub patterns: Vec<Pattern>,
    /// Schema nodes that the walk looked at.
    pub visited: usize,
}

impl Schema {
    /// Looks up the rest of a path below its literal beginning, which was found to be `literal`. Where the walk was
    /// kept out of something, that may have been what the path names, so finding nothing is no error then.
    ///
    /// # Errors
    /// When the schema has no such node, or a key does not suit the list that it stands on.
    pub fn expand<S: Sight>(
        &self,
        path: &Path,
        literal: Vec<PatternStep>,
        sight: &S,
    ) -> Result<Expansion, PathError> {
        path.check_limits().map_err(PathError::TooLarge)?;
        let (first, end) = (literal.len(), path.elems.len());
        if first == end {
            return Ok(Expansion { patterns: vec![Pattern(literal)], visited: 0 });
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
        let start = States::default().with(path, State { next: first, picked: Picked::new() });
        let mut walk = Walk {
            schema: self,
            path,
            sight,
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
            return Err(Place { schema: self, path, at: furthest }.unknown());
        }
        Ok(Expansion { patterns: found, visited })
    }
}

fn is_open(name: &str) -> bool {
    name == ANY || name == ANY_DEPTH
}

/// The list entries that were picked on the way, by their depth. Of all other lists every entry is meant.
type Picked = SmallVec<[(usize, KeyPattern); 1]>;

/// An element that may come next, and how it was come by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    next: usize,
    picked: Picked,
}

/// Elements that may come next at one schema node; the number of elements itself for the end of the path.
#[derive(Clone, Debug, Default)]
struct States {
    /// Those come by without picking an entry, by element.
    plain: u128,
    others: Vec<State>,
}

impl States {
    fn with(mut self, path: &Path, state: State) -> Self {
        self.add(path, state);
        self
    }

    /// `...` takes no element, too: with it, the one behind may come next. Returns the furthest that was added.
    fn add(&mut self, path: &Path, mut state: State) -> usize {
        loop {
            let next = state.next;
            match state.picked.is_empty() {
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
        let plain = plain.map(|next| State { next, picked: Picked::new() });
        plain.chain(self.others.iter().cloned())
    }
}

struct Walk<'a, S> {
    schema: &'a Schema,
    path: &'a Path,
    sight: &'a S,
    /// Some element may be refused at a node that it meets, so that no part may be left out of the walk.
    strict: bool,
    /// The steps to where the walk is, with every entry of each list below the literal beginning.
    way: Vec<PatternStep>,
    found: Vec<Pattern>,
    /// The entries picked by the patterns that were found on the way to here: these include all that is below.
    ended: Vec<Picked>,
    /// The last element that may come next anywhere.
    furthest: usize,
    /// The first element that is wrong, and why.
    error: Option<(usize, PathError)>,
    is_kept_out: bool,
    visited: usize,
}

impl<S: Sight> Walk<'_, S> {
    /// `states` is not empty.
    fn enter(&mut self, at: &S::At, states: &States) {
        let elements = self.path.elems.len();
        let ended_above = self.ended.len();
        for state in states.iter(elements) {
            self.furthest = self.furthest.max(state.next);
            if state.next == elements {
                self.end(state.picked, ended_above);
            }
        }
        let all_is_named = self.ended.iter().any(|picked| picked.is_empty());
        if self.strict || !all_is_named {
            self.descend(at, states);
        }
        self.ended.truncate(ended_above);
    }

    /// The path ends here, unless something on the way included it; nothing that ends at the same node may include it either.
    fn end(&mut self, picked: Picked, ended_above: usize) {
        if self.ended.iter().any(|wide| includes(wide, &picked)) {
            return;
        }
        // Those of this very node are the last ones found.
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
        self.found.push(Pattern(steps));
        self.ended.push(picked);
    }

    fn descend(&mut self, at: &S::At, states: &States) {
        let above = self.way.last().map_or(self.schema.root(), |step| step.node);
        let children = &self.schema.node(above).children;
        let mut next: Vec<States> = vec![States::default(); children.len()];
        let mut below: Vec<Option<S::At>> = Vec::with_capacity(children.len());
        below.extend(children.iter().map(|child| self.sight.below(at, *child)));
        self.visited += children.len();
        for state in states.iter(self.path.elems.len()) {
            let Some(elem) = self.path.elems.get(state.next) else { continue };
            let place = Place { schema: self.schema, path: self.path, at: state.next };
            let named = (!is_open(&elem.name)).then(|| place.child(above));
            for (index, child) in children.iter().enumerate() {
                if named.is_some_and(|named| named != Some(*child)) {
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

    /// The state after its element met a child; none where it does not fit.
    fn step(
        &self,
        place: Place<'_>,
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
                state.picked.extend(picked.map(|keys| (self.way.len(), keys)));
                state.next += 1;
                Ok(Some(state))
            }
            // Keys on `*` pick the lists that have these keys.
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

/// True when all entries that `narrow` picked are among those of `wide`.
fn includes(wide: &Picked, narrow: &Picked) -> bool {
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
    use crate::path::Elem;

    /// Lists within lists whose keys have the same names.
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
        prop::collection::vec(elem, 0..6)
    }

    /// The patterns, or the element at which something is wrong; the same in any order.
    fn outcome(result: Result<Vec<Pattern>, PathError>) -> Result<Vec<String>, (bool, String)> {
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
        fn one_walk_finds_what_expanding_element_by_element_does(elems in elems()) {
            let (schema, path) = (nested(), Path { elems });
            let got = schema.resolve_read(&path);
            let want = reference::resolve_read(&schema, &path);
            prop_assert_eq!(outcome(got), outcome(want), "{}", path);
        }
    }

    /// Also when the walk meets another one sooner.
    #[test]
    fn the_first_element_that_is_wrong_is_told() {
        for path in ["/top/*/top[name=a]/name[size=1]", "/.../top[name=a]/name[size=1]/..."] {
            let (schema, path) = (nested(), path.parse().unwrap());
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
            schema.expand(&path, Vec::new(), &Everything).map(|found| found.visited)
        };
        for wildcards in 1..=4 {
            let with = |name: &str| [any_depth(wildcards), vec![Elem::new(name)]].concat();
            assert_eq!(visited(any_depth(wildcards)).unwrap(), 0, "everything is named at once");
            assert!(visited(with("hostname")).unwrap() < nodes, "{wildcards}");
            assert!(visited(with(ANY)).unwrap() < nodes, "{wildcards}");
        }
        // As many states as can be.
        let mixed: Vec<Elem> =
            (0..60).map(|at| Elem::new(if at % 15 == 0 { ANY_DEPTH } else { ANY })).collect();
        assert!(matches!(
            schema.resolve_read(&Path { elems: mixed }),
            Err(PathError::Unknown { .. })
        ));
        let deep = [any_depth(1), vec![Elem::new(ANY); 3], any_depth(3), vec![Elem::new("mtu")]];
        assert!(visited(deep.concat()).unwrap() < nodes);
    }

    /// Keeps a walk out of what has this name.
    struct Without(NodeId);

    impl Sight for Without {
        type At = ();
        fn root(&self) {}
        fn below(&self, (): &(), child: NodeId) -> Option<()> {
            (child != self.0).then_some(())
        }
    }

    #[test]
    fn what_may_not_be_seen_is_neither_expanded_nor_told_of() {
        let schema = Schema::openconfig().unwrap();
        let system = Without(schema.find("/system").unwrap());
        let expand = |path: &str| {
            let path: Path = path.parse().unwrap();
            schema.expand(&path, Vec::new(), &system).map(|found| found.patterns.len())
        };
        assert_eq!(expand("/.../hostname"), Ok(0));
        // The same answer for what there is not.
        assert_eq!(expand("/.../bogus"), Ok(0));
        assert_eq!(expand("/*/config/bogus"), Ok(0));
        assert_eq!(expand("/*/interface"), Ok(1));
        let all = schema.expand(&"/.../hostname".parse().unwrap(), Vec::new(), &Everything);
        let some = schema.expand(&"/.../hostname".parse().unwrap(), Vec::new(), &system).unwrap();
        assert!(some.visited < all.unwrap().visited);
    }
}
