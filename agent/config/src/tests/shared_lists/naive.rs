//! The union of random layers, against a naive model: maps from paths to values.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::images::Images;
use crate::tree::Leaf;
use crate::union::{Problem, unite};

/// A leaf of an entry: its OpenConfig paths, alternatives among them, its native path, whether both models have the default
/// `true`, and values as JSON.
pub(super) struct Row {
    pub(super) openconfig: &'static [&'static str],
    pub(super) native: &'static str,
    pub(super) is_true: bool,
    pub(super) is_mandatory: bool,
    pub(super) values: [&'static str; 2],
}

/// An entry that both models have, or the native model alone; paths of the root are empty.
pub(super) struct Entry {
    pub(super) openconfig: String,
    pub(super) native: String,
    pub(super) rows: &'static [Row],
}

const fn row(
    openconfig: &'static [&'static str],
    native: &'static str,
    values: [&'static str; 2],
) -> Row {
    Row { openconfig, native, is_true: false, is_mandatory: false, values }
}

const ENABLED: Row =
    Row { is_true: true, ..row(&["config/enabled"], "enabled", ["true", "false"]) };

static PORT: &[Row] = &[
    row(&["config/description"], "description", ["\"p1\"", "\"p2\""]),
    ENABLED,
    row(
        &["subinterfaces/subinterface[index=0]/config/description"],
        "subinterface/description",
        ["\"s1\"", "\"s2\""],
    ),
    row(&["subinterfaces/subinterface[index=0]/ipv4/config/mtu"], "ipv4/mtu", ["1300", "1400"]),
];
static VLAN: &[Row] = &[
    row(&["config/description"], "description", ["\"v1\"", "\"v2\""]),
    ENABLED,
    Row {
        is_mandatory: true,
        ..row(
            &["vlan/match/single-tagged/config/vlan-id", "vlan/config/vlan-id"],
            "vlan-id",
            ["10", "11"],
        )
    },
    row(&["ipv4/config/mtu"], "ipv4/mtu", ["1300", "1400"]),
];
static ADDRESS: &[Row] =
    &[Row { is_mandatory: true, ..row(&["config/prefix-length"], "prefix-length", ["24", "25"]) }];
static LABEL: &[Row] = &[row(&["config/label"], "label", ["\"l1\"", "\"l2\""])];
static NATIVE_LABEL: &[Row] = &[row(&[], "label", ["\"n1\"", "\"n2\""])];
static SHELF: &[Row] = &[row(
    &["shelf/card[slot=1][speed=SPEED_100GB]/config/label"],
    "shelf/main-label",
    ["\"m1\"", "\"m2\""],
)];

/// Entries of the shelf: OpenConfig, native, leaves. The last one has a speed that OpenConfig lacks.
static CARDS: [(&str, &str, &[Row]); 6] = [
    ("", "", SHELF),
    ("/shelf/card[slot=1][speed=SPEED_10GB]", "/shelf/fast-card[slot=1]", LABEL),
    ("/shelf/card[slot=1][speed=SPEED_40GB]", "/shelf/card[slot=1][speed=40000]", LABEL),
    (
        "/shelf/card[slot=1][speed=SPEED_40GB]/ports/port[name=a]",
        "/shelf/card[slot=1][speed=40000]/port[name=a]",
        LABEL,
    ),
    ("/shelf/card[slot=2][speed=SPEED_100GB]", "/shelf/card[slot=2][speed=100000]", LABEL),
    ("/nothing", "/shelf/card[slot=1][speed=12345]", NATIVE_LABEL),
];

/// The entries of the model, outer ones first.
pub(super) fn entries() -> Vec<Entry> {
    let card = |(openconfig, native, rows): &(&str, &str, &'static [Row])| Entry {
        openconfig: (*openconfig).to_owned(),
        native: (*native).to_owned(),
        rows,
    };
    let mut found: Vec<Entry> = CARDS.iter().map(card).collect();
    for name in ["a", "b"] {
        let port = format!("/interfaces/interface[name={name}]");
        let entry = |openconfig: &str, native: &str, rows| Entry {
            openconfig: format!("{port}{openconfig}"),
            native: format!("{port}{native}"),
            rows,
        };
        let zero = "/subinterfaces/subinterface[index=0]";
        found.push(entry("", "", PORT));
        found.push(entry(
            &format!("{zero}/ipv4/addresses/address[ip=10.0.0.1]"),
            "/ipv4/address[ip=10.0.0.1]",
            ADDRESS,
        ));
        for index in [7, 8] {
            let sub = format!("/subinterfaces/subinterface[index={index}]");
            let vlan = format!("/vlan[index={index}]");
            found.push(entry(&sub, &vlan, VLAN));
            found.push(entry(
                &format!("{sub}/ipv4/addresses/address[ip=10.0.0.1]"),
                &format!("{vlan}/ipv4/address[ip=10.0.0.1]"),
                ADDRESS,
            ));
        }
    }
    found
}

impl Entry {
    /// The first OpenConfig path of a leaf, and those of its alternatives.
    pub(super) fn openconfig_leaves(&self, row: &Row) -> Vec<String> {
        row.openconfig.iter().map(|leaf| format!("{}/{leaf}", self.openconfig)).collect()
    }

    pub(super) fn native_leaf(&self, row: &Row) -> String {
        format!("{}/{}", self.native, row.native)
    }
}

/// True for a path that another one covers.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A layer as text.
#[derive(Default)]
struct FlatLayer {
    /// Leaves but keys.
    leaves: BTreeMap<String, (String, LeafMark)>,
    entries: BTreeSet<String>,
}

impl FlatLayer {
    fn of(schema: &Schema, tree: &Tree<LeafMark>) -> Self {
        let mut flat = Self::default();
        tree.walk(&mut |path, leaf| {
            for at in (1..=path.0.len()).filter(|at| path.0[at - 1].keys.is_some()) {
                flat.entries
                    .insert(InstancePath(path.0[..at].to_vec()).to_path(schema).to_string());
            }
            if !is_key_or_copy(schema, path.last().unwrap().node) {
                let value = (leaf.value.to_string(), leaf.meta);
                flat.leaves.insert(path.to_path(schema).to_string(), value);
            }
        });
        flat
    }

    fn explicit(&self, path: &str) -> Option<&String> {
        self.leaves
            .get(path)
            .filter(|(_, mark)| *mark == LeafMark::Explicit)
            .map(|(value, _)| value)
    }

    fn factory(&self, path: &str) -> Option<&String> {
        self.leaves.get(path).filter(|(_, mark)| *mark == LeafMark::Factory).map(|(value, _)| value)
    }
}

/// Result of the layers of clients.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) effective: BTreeSet<String>,
    pub(super) openconfig: BTreeSet<String>,
    pub(super) native: BTreeSet<String>,
    /// Leaves in which origins or alternatives disagree.
    pub(super) disagreements: BTreeSet<String>,
    /// Entries without a mandatory leaf.
    pub(super) incomplete: BTreeSet<String>,
}

/// The naive union.
pub(super) fn outcome(layers: &Layers) -> Outcome {
    let models = list_models();
    let openconfig = FlatLayer::of(&models.openconfig, layers.tree(LayerKey::CLIENT_OPENCONFIG));
    let native = FlatLayer::of(&models.native, layers.tree(LayerKey::CLIENT_NATIVE));
    let mut found = Outcome::default();
    found
        .openconfig
        .extend(openconfig.leaves.iter().map(|(path, (value, _))| format!("{path}={value}")));
    found.native.extend(native.leaves.iter().map(|(path, (value, mark))| {
        format!("{path}={value}{}", if *mark == LeafMark::Factory { " factory" } else { "" })
    }));
    for entry in entries() {
        add_entry(&entry, &openconfig, &native, &mut found);
    }
    found
}

fn add_entry(entry: &Entry, openconfig: &FlatLayer, native: &FlatLayer, found: &mut Outcome) {
    let has_content = openconfig.leaves.keys().any(|path| is_below(path, &entry.openconfig));
    let is_native_own =
        entry.rows.iter().any(|row| native.explicit(&entry.native_leaf(row)).is_some());
    let is_held = openconfig.entries.contains(&entry.openconfig) || entry.openconfig.is_empty();
    // Without content it is a shell, unless native asks for a leaf of the entry.
    let counts = is_held && (has_content || is_native_own);
    let is_native = native.entries.contains(&entry.native) || entry.native.is_empty();
    if !counts && !is_native {
        return;
    }
    // Native defaults of leaves that OpenConfig does not have, or has no default for.
    let default = match entry.rows.as_ptr() {
        rows if rows == PORT.as_ptr() => Some("type=physical"),
        rows if rows == VLAN.as_ptr() => Some("protocol=802.1Q"),
        _ => None,
    };
    let default = default.map(|leaf| format!("{}/{leaf} default", entry.native));
    found.native.extend(default.clone().filter(|_| is_native));
    found.effective.extend(default);
    for row in entry.rows {
        let leaf = entry.native_leaf(row);
        let spelled = entry.openconfig_leaves(row);
        let stated: Vec<&String> =
            spelled.iter().filter_map(|path| openconfig.explicit(path)).collect();
        let own = native.explicit(&leaf);
        let factory = native.factory(&leaf);
        if stated.iter().chain(&own).any(|value| Some(value) != stated.iter().chain(&own).next()) {
            found.disagreements.insert(leaf.clone());
        }
        let is_default = row.is_true && stated.is_empty() && own.is_none();
        let value = match (stated.first().or(own.as_ref()), factory) {
            (Some(value), _) => format!("={value}"),
            (None, _) if is_default && counts => "=true oc-default".to_owned(),
            (None, Some(value)) => format!("={value} factory"),
            (None, None) if row.is_true => "=true default".to_owned(),
            (None, None) => {
                if row.is_mandatory {
                    found.incomplete.insert(entry.native.clone());
                }
                continue;
            }
        };
        if value == "=true default" && is_native {
            found.native.insert(format!("{leaf}{value}"));
        }
        if stated.is_empty() {
            let shown = if value == "=true oc-default" {
                Some("=true default".to_owned())
            } else {
                factory.map(|value| format!("={value} factory"))
            };
            found
                .openconfig
                .extend(spelled.first().zip(shown).map(|(path, value)| format!("{path}{value}")));
        }
        found.effective.insert(format!("{leaf}{value}"));
    }
}

/// A change of one layer.
#[derive(Clone, Debug)]
enum Change {
    Set {
        openconfig: bool,
        path: String,
        value: String,
        is_factory: bool,
    },
    Remove {
        openconfig: bool,
        path: String,
    },
    /// An entry is there, with nothing but its keys if it is new.
    Give {
        openconfig: bool,
        path: String,
    },
}

/// Paths of entries and of what is between them, by origin.
pub(super) fn inner_paths(openconfig: bool) -> Vec<String> {
    let mut paths = BTreeSet::new();
    for entry in entries() {
        let leaves = entry.rows.iter().filter_map(|row| match openconfig {
            true => entry.openconfig_leaves(row).into_iter().next(),
            false => Some(entry.native_leaf(row)),
        });
        for leaf in leaves {
            let elements: Vec<&str> = leaf.split('/').filter(|it| !it.is_empty()).collect();
            for end in 1..elements.len() {
                paths.insert(format!("/{}", elements[..end].join("/")));
            }
        }
    }
    // A list has no path of its own here.
    paths.into_iter().collect()
}

pub(super) fn leaf_paths(openconfig: bool) -> Vec<(String, [&'static str; 2])> {
    let mut found = Vec::new();
    for entry in entries() {
        for row in entry.rows {
            let paths = match openconfig {
                true => entry.openconfig_leaves(row),
                false => vec![entry.native_leaf(row)],
            };
            found.extend(paths.into_iter().map(|path| (path, row.values)));
        }
    }
    found
}

fn change() -> impl Strategy<Value = Change> {
    let leaves = |openconfig| prop::sample::select(leaf_paths(openconfig));
    let inner = |openconfig| prop::sample::select(inner_paths(openconfig));
    let given = |openconfig: bool| {
        let all = entries().into_iter();
        let paths = all.map(|it| if openconfig { it.openconfig } else { it.native });
        let is_entry = |path: &String| path.ends_with(']');
        prop::sample::select(paths.filter(is_entry).collect::<Vec<_>>())
    };
    any::<bool>().prop_flat_map(move |openconfig| {
        prop_oneof![
            6 => (leaves(openconfig), 0..2usize, any::<bool>()).prop_map(move |((path, values), at, is_factory)| {
                let value = values[at].trim_matches('"').to_owned();
                Change::Set { openconfig, path, value, is_factory: is_factory && !openconfig }
            }),
            1 => leaves(openconfig).prop_map(move |(path, _)| Change::Remove { openconfig, path }),
            1 => inner(openconfig).prop_map(move |path| Change::Remove { openconfig, path }),
            1 => given(openconfig).prop_map(move |path| Change::Give { openconfig, path }),
        ]
    })
}

/// Leaves that repeat keys of the entries on a path, which requests keep up, too.
fn fill_key_copies(layers: &mut Layers, path: &InstancePath) {
    let models = list_models();
    let tree = layers.tree_mut(LayerKey::CLIENT_OPENCONFIG);
    for at in (1..=path.0.len()).filter(|at| path.0[at - 1].keys.is_some()) {
        let entry = InstancePath(path.0[..at].to_vec());
        if tree.branch(&entry).is_none() {
            return;
        }
        let Step { node, keys } = entry.last().unwrap().clone();
        for (container, leaf, place) in models.map.mirrors(Origin::OpenConfig, node) {
            let copy = entry.join(Step::node(*container)).join(Step::node(*leaf));
            let value = keys.as_ref().unwrap()[*place].clone();
            tree.set_leaf(&models.openconfig, &copy, Leaf::new(value, LeafMark::Explicit));
        }
    }
}

fn changed(layers: &Layers, change: &Change) -> Layers {
    let mut layers = layers.clone();
    let (openconfig, path) = apply(&mut layers, change);
    if openconfig {
        fill_key_copies(&mut layers, &path);
    }
    layers
}

/// Changes a layer. Returns the place of the change.
fn apply(layers: &mut Layers, change: &Change) -> (bool, InstancePath) {
    let models = list_models();
    let place = |openconfig: bool, path: &str| {
        let origin = if openconfig { Origin::OpenConfig } else { Origin::Native };
        let schema = models.schema(origin);
        (schema, LayerKey::client(origin), schema.resolve_write(&path.parse().unwrap()).unwrap())
    };
    match change {
        Change::Set { openconfig, path, value, is_factory } => {
            let (schema, layer, path) = place(*openconfig, path);
            let value = schema.leaf(path.last().unwrap().node).ty.parse_text(value).unwrap();
            let mark = if *is_factory { LeafMark::Factory } else { LeafMark::Explicit };
            layers.tree_mut(layer).set_leaf(schema, &path, Leaf::new(value, mark));
            (*openconfig, path)
        }
        Change::Remove { openconfig, path } => {
            let (schema, layer, path) = place(*openconfig, path);
            layers.tree_mut(layer).remove(schema, &path);
            (*openconfig, path)
        }
        Change::Give { openconfig, path } => {
            let (schema, layer, path) = place(*openconfig, path);
            layers.tree_mut(layer).branch_mut(schema, &path.0, &LeafMark::Explicit).given = true;
            (*openconfig, path)
        }
    }
}

fn is_disagreement(problem: &Problem) -> bool {
    matches!(problem, Problem::Conflict { .. })
}

pub(super) fn check_outcome(images: &Images, want: &Outcome, why: &str) {
    let models = list_models();
    let effective = lines(&models.native, &images.effective, |prov| kind_word(prov.kind));
    assert_eq!(effective.into_iter().collect::<BTreeSet<_>>(), want.effective, "effective: {why}");
    let openconfig = lines(&models.openconfig, &images.openconfig, mark_word);
    assert_eq!(
        openconfig.into_iter().collect::<BTreeSet<_>>(),
        want.openconfig,
        "OpenConfig: {why}"
    );
    let native = lines(&models.native, &images.native, mark_word);
    assert_eq!(native.into_iter().collect::<BTreeSet<_>>(), want.native, "native: {why}");
}

proptest! {
    /// Changes of layers, one after the other: the union is that of the model, and what is kept up step by step is what comes
    /// out from scratch.
    #[test]
    fn the_union_is_that_of_the_naive_model(steps in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..14)) {
        let models = list_models();
        let nothing = (&Layers::new(), &Images::default());
        let mut layers = Layers::new();
        let mut images = Images::default();
        for step in steps {
            let next = step.iter().fold(layers.clone(), |layers, step| changed(&layers, step));
            let why = format!("{step:?}");
            let want = outcome(&next);
            let (new, problems, _) = unite(models, (&layers, &images), &next, &CancelToken::default());
            let (scratch, all_problems, _) = unite(models, nothing, &next, &CancelToken::default());
            for problems in [&problems, &all_problems] {
                let is_refused = problems.iter().any(is_disagreement);
                prop_assert_eq!(is_refused, !want.disagreements.is_empty(), "{}: {:?}", &why, problems);
            }
            prop_assert_eq!(&new.effective, &scratch.effective, "{}", &why);
            prop_assert_eq!(&new.openconfig, &scratch.openconfig, "{}", &why);
            prop_assert_eq!(&new.native, &scratch.native, "{}", &why);
            if want.disagreements.is_empty() {
                check_outcome(&new, &want, &why);
                layers = next;
                images = new;
            }
        }
    }
}
