//! Random requests: what each of them does to the layers, whether it is refused, and that Get gives back what was sent.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::footprint::{check_rebased, examine};
use super::super::set::json_of;
use super::naive::{entries, inner_paths, is_below, leaf_paths, outcome};
use super::*;

/// A leaf with its value as JSON.
type Assignment = (String, &'static str);

/// A request of one origin.
#[derive(Clone, Debug)]
enum Request {
    Update(Assignment),
    Delete(String),
    /// The node becomes these leaves, in a replace or in a union_replace onto what is running.
    Replace {
        path: String,
        base: String,
        leaves: Vec<Assignment>,
        is_union: bool,
    },
}

fn request() -> impl Strategy<Value = (bool, Request)> {
    any::<bool>().prop_flat_map(|openconfig| (Just(openconfig), request_of(openconfig)))
}

fn request_of(openconfig: bool) -> impl Strategy<Value = Request> {
    let leaf = || {
        prop::sample::select(leaf_paths(openconfig))
            .prop_flat_map(|(path, values)| (Just(path), prop::sample::select(values.to_vec())))
    };
    let leaf_path = prop::sample::select(leaf_paths(openconfig)).prop_map(|(path, _)| path);
    // Not all ports at once, which would end most sequences.
    let inner = inner_paths(openconfig).into_iter();
    let inner: Vec<String> =
        inner.filter(|path| path.contains('[') || path.starts_with("/shelf")).collect();
    let bases: Vec<(String, String)> =
        inner.iter().map(|path| (path.clone(), base(path))).collect();
    let replace = move || {
        prop::sample::select(bases.clone()).prop_flat_map(move |(path, base)| {
            let within: Vec<_> = leaf_paths(openconfig)
                .into_iter()
                .filter(|(leaf, _)| is_below(leaf, &path))
                .flat_map(|(leaf, values)| values.map(|value| (leaf.clone(), value)))
                .collect();
            let leaves = prop::collection::vec(prop::sample::select(within), 0..4);
            (Just((path, base)), leaves)
        })
    };
    let replaced =
        |is_union| move |((path, base), leaves)| Request::Replace { path, base, leaves, is_union };
    prop_oneof![
        5 => leaf().prop_map(Request::Update),
        1 => leaf_path.prop_map(Request::Delete),
        2 => prop::sample::select(inner).prop_map(Request::Delete),
        2 => replace().prop_map(replaced(false)),
        2 => replace().prop_map(replaced(true)),
    ]
}

/// The least that a replace of a node has: the keys of an entry.
fn base(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap();
    let keys = last.split('[').skip(1).map(|key| key.trim_end_matches(']'));
    let member = |key: &str| {
        let (name, value) = key.split_once('=').unwrap();
        match value.parse::<u64>() {
            Ok(number) => format!("\"{name}\":{number}"),
            Err(_) => format!("\"{name}\":\"{value}\""),
        }
    };
    format!("{{{}}}", keys.map(member).collect::<Vec<_>>().join(","))
}

/// True for a path of the nodes that the model knows.
fn is_known(path: &str) -> bool {
    path.starts_with("/interfaces") || path.starts_with("/shelf")
}

impl Request {
    fn text(&self, openconfig: bool) -> String {
        let origin = if openconfig { "" } else { "native:" };
        match self {
            Self::Update((path, value)) => format!("update {origin}{path} {value}"),
            Self::Delete(path) => format!("delete {origin}{path}"),
            Self::Replace { path, base, leaves, is_union } => {
                let act = if *is_union { "union" } else { "replace" };
                let mut text = format!("{act} {origin}{path} {base}");
                for (path, value) in leaves {
                    text += &format!("; {act} {origin}{path} {value}");
                }
                if *is_union {
                    // With a native path, the base is what is running.
                    text += "; union native:/system/motd-banner \"m\"";
                }
                text
            }
        }
    }
}

/// Explicit leaves of both origins, by path, in that order: OpenConfig, native.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Leaves([BTreeMap<String, String>; 2]);

impl Leaves {
    fn of(configuration: &Configuration) -> Self {
        let leaves = |origin: Origin| {
            let schema = configuration.models().schema(origin);
            let mut found = BTreeMap::new();
            configuration.layers().tree(LayerKey::client(origin)).walk(&mut |path, leaf| {
                let text = path.to_path(schema).to_string();
                let is_key = is_key_or_copy(schema, path.last().unwrap().node);
                if !is_key && is_known(&text) {
                    found.insert(text, leaf.value.to_string());
                }
            });
            found
        };
        Self([leaves(Origin::OpenConfig), leaves(Origin::Native)])
    }

    fn at(&mut self, openconfig: bool) -> &mut BTreeMap<String, String> {
        &mut self.0[usize::from(!openconfig)]
    }

    fn clear(&mut self, openconfig: bool, path: &str) {
        self.at(openconfig).retain(|leaf, _| !is_below(leaf, path));
    }

    fn set(&mut self, openconfig: bool, (path, value): &Assignment) {
        self.at(openconfig).insert(path.clone(), value.trim_matches('"').to_owned());
    }

    /// Removes what a path means in both origins.
    fn clear_image(&mut self, openconfig: bool, path: &str) {
        self.clear(openconfig, path);
        for entry in entries() {
            for row in entry.rows {
                let above = entry.openconfig_leaves(row);
                let native = entry.native_leaf(row);
                let is_named = match openconfig {
                    true => above.iter().any(|leaf| is_below(leaf, path)),
                    false => is_below(&native, path),
                };
                if is_named {
                    above.iter().for_each(|leaf| self.clear(true, leaf));
                    self.clear(false, &native);
                }
            }
        }
    }

    fn after(mut self, openconfig: bool, request: &Request) -> Self {
        match request {
            Request::Update(leaf) => self.set(openconfig, leaf),
            Request::Delete(path) => self.clear(openconfig, path),
            Request::Replace { path, leaves, is_union: false, .. } => {
                self.clear(openconfig, path);
                leaves.iter().for_each(|leaf| self.set(openconfig, leaf));
            }
            Request::Replace { path, leaves, is_union: true, .. } => {
                self.clear_image(openconfig, path);
                leaves.iter().for_each(|(leaf, _)| self.clear_image(openconfig, leaf));
                leaves.iter().for_each(|leaf| self.set(openconfig, leaf));
            }
        }
        self
    }

    /// Leaves with different values in the two origins, or in alternatives of one.
    fn disagreements(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in entries() {
            for row in entry.rows {
                let native = entry.native_leaf(row);
                let above = entry.openconfig_leaves(row);
                let values: BTreeSet<_> = above
                    .iter()
                    .filter_map(|path| self.0[0].get(path))
                    .chain(self.0[1].get(&native))
                    .collect();
                if values.len() > 1 {
                    found.insert(native);
                }
            }
        }
        found
    }

    /// True when an entry that has something, or is among `given` ones, lacks a mandatory leaf.
    fn is_incomplete(&self, given: &BTreeSet<String>) -> bool {
        entries().iter().any(|entry| {
            let holds = |leaves: &BTreeMap<String, String>, path: &str| {
                leaves.keys().any(|leaf| is_below(leaf, path))
            };
            let is_there = holds(&self.0[0], &entry.openconfig)
                || holds(&self.0[1], &entry.native)
                || given.contains(&entry.openconfig)
                || given.contains(&entry.native);
            let lacks = |row: &super::naive::Row| {
                let mut above = entry.openconfig_leaves(row).into_iter();
                row.is_mandatory
                    && !above.any(|path| self.0[0].contains_key(&path))
                    && !self.0[1].contains_key(&entry.native_leaf(row))
            };
            is_there && entry.rows.iter().any(lacks)
        })
    }
}

/// The order of a union_replace has no effect, so a leaf may be there once.
fn contradicts(request: &Request) -> bool {
    let Request::Replace { leaves, is_union: true, .. } = request else { return false };
    let paths: BTreeSet<&String> = leaves.iter().map(|(path, _)| path).collect();
    let pairs: BTreeSet<&Assignment> = leaves.iter().collect();
    pairs.len() > paths.len()
}

proptest! {
    #[test]
    fn requests_do_what_they_say_at_each_level(requests in prop::collection::vec(request(), 1..14)) {
        let mut configuration = bare();
        // Entries that were given as such at some time.
        let mut given = BTreeSet::new();
        for (openconfig, request) in requests {
            let text = request.text(openconfig);
            let want = Leaves::of(&configuration).after(openconfig, &request);
            if let Request::Replace { path, .. } = &request {
                given.insert(path.clone());
            }
            let new = match configuration.edit(&edit(&text)) {
                Ok(new) => new,
                Err(errors) => {
                    let is_wrong = !want.disagreements().is_empty() || want.is_incomplete(&given) || contradicts(&request);
                    prop_assert!(is_wrong, "{}: {}", text, errors);
                    continue;
                }
            };
            prop_assert!(want.disagreements().is_empty(), "{} is not refused", text);
            prop_assert_eq!(&Leaves::of(&new), &want, "{}", &text);
            let expected = outcome(new.layers());
            let scratch = Configuration::new(new.shared_models().clone(), new.layers().clone());
            prop_assert_eq!(new.effective(), scratch.effective(), "{}", &text);
            for origin in [Origin::OpenConfig, Origin::Native] {
                prop_assert_eq!(new.config_view(origin), scratch.config_view(origin), "{}", &text);
                // A replace with the answer of Get changes nothing.
                let shown = json_of(&new, if origin == Origin::Native { "native:/" } else { "/" });
                let back = format!("replace {}/ {shown}", if origin == Origin::Native { "native:" } else { "" });
                match new.edit(&edit(&back)) {
                    Ok(back) => prop_assert_eq!(back.layers(), new.layers(), "{} of {}", &shown, &text),
                    Err(errors) => prop_assert!(!expected.incomplete.is_empty(), "{}: {}", &shown, errors),
                }
            }
            let in_force: BTreeSet<String> =
                lines_effective(&new).into_iter().filter(|line| is_known(line)).collect();
            prop_assert_eq!(in_force, expected.effective, "{}", &text);
            let view: BTreeSet<String> = lines_view(&new, Origin::OpenConfig).into_iter().collect();
            prop_assert_eq!(view, expected.openconfig, "{}", &text);
            configuration = new;
        }
    }
}

proptest! {
    /// Changes whose footprints keep clear can be committed one after the other, in either order, although each was examined
    /// without the other.
    #[test]
    fn changes_of_shared_lists_are_rebased(
        before in prop::collection::vec(request(), 0..8),
        one in request(),
        other in request(),
    ) {
        let step = |base: Configuration, (openconfig, request): &(bool, Request)| {
            base.edit(&edit(&request.text(*openconfig))).unwrap_or(base)
        };
        let base = before.iter().fold(bare(), step);
        let examined = |(openconfig, request): (bool, Request)| examine(&base, &request.text(openconfig));
        let (Some(one), Some(other)) = (examined(one), examined(other)) else { return Ok(()) };
        if one.footprint.keeps_clear_of(&other.footprint) {
            check_rebased(&base, &[&one, &other]);
            check_rebased(&base, &[&other, &one]);
        }
    }
}
