//! Requests and the union, compared with a naive model of maps from paths to values.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Leaves of one origin's client, by their path as text.
type LeafMap = BTreeMap<String, String>;

/// Leaves that both origins have: OpenConfig's path and native's below `/interfaces/interface[name=N]`,
/// what to add to an OpenConfig number to make it native, and OpenConfig's default.
const LEAVES: [(&str, &str, i64, Option<&str>); 5] = [
    ("config/description", "description", 0, None),
    ("config/enabled", "enabled", 0, Some("true")),
    ("config/mtu", "mtu", -14, None),
    (
        "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length",
        "ipv4/address[ip=10.0.0.1]/prefix-length",
        0,
        None,
    ),
    (
        "subinterfaces/subinterface[index=0]/ipv4/neighbors/neighbor[ip=10.0.0.2]/config/link-layer-address",
        "ipv4/neighbor[ip=10.0.0.2]/link-layer-address",
        0,
        None,
    ),
];

const DESCRIPTION: usize = 0;
const ENABLED: usize = 1;
const MTU: usize = 2;
const PREFIX_LENGTH: usize = 3;

fn json_value(leaf: usize, choice: usize, openconfig: bool) -> String {
    match leaf {
        DESCRIPTION => format!("\"d{choice}\""),
        ENABLED => ["true", "false"][choice % 2].to_owned(),
        MTU => (1400 + choice + if openconfig { 14 } else { 0 }).to_string(),
        PREFIX_LENGTH => (24 + choice).to_string(),
        _ => format!("\"00:00:00:00:00:0{choice}\""),
    }
}

/// The OpenConfig address of [`LEAVES`] with nothing but its key.
const SHELL: &str =
    "subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/ip";

/// One operation of a plain request on interface `name` of one origin.
#[derive(Clone, Debug)]
enum Op {
    /// `None`: the whole interface.
    Delete(Option<usize>),
    Update(usize, usize),
    /// The whole interface becomes these.
    Replace(Vec<(usize, usize)>),
    /// The address is given without a leaf, as a shell; by OpenConfig alone.
    Shell,
    /// The address goes as a whole.
    DeleteAddress,
}

#[derive(Clone, Debug)]
struct Request {
    openconfig: bool,
    name: &'static str,
    op: Op,
}

fn op() -> impl Strategy<Value = Op> {
    let leaf = 0..LEAVES.len();
    prop_oneof![
        prop::option::of(leaf.clone()).prop_map(Op::Delete),
        (leaf.clone(), 0usize..3).prop_map(|(leaf, choice)| Op::Update(leaf, choice)),
        (leaf.clone(), 0usize..3).prop_map(|(leaf, choice)| Op::Update(leaf, choice)),
        prop::collection::vec((leaf, 0usize..3), 0..4).prop_map(Op::Replace),
        Just(Op::Shell),
        Just(Op::DeleteAddress),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    (any::<bool>(), prop::sample::select(vec!["a", "b"]), op()).prop_map(
        |(openconfig, name, op)| Request {
            openconfig: openconfig || matches!(op, Op::Shell),
            name,
            op,
        },
    )
}

/// Requests as text, for the other tests.
pub(super) fn some_request() -> impl Strategy<Value = String> {
    request().prop_map(|request| request.text())
}

impl Request {
    fn path(&self, leaf: Option<usize>) -> String {
        let origin = if self.openconfig { "" } else { "native:" };
        let entry = format!("{origin}/interfaces/interface[name={}]", self.name);
        match leaf {
            None => entry,
            Some(leaf) => {
                let (openconfig, native, ..) = LEAVES[leaf];
                format!("{entry}/{}", if self.openconfig { openconfig } else { native })
            }
        }
    }

    /// The entry of the address.
    fn address(&self) -> String {
        let leaf = self.path(Some(PREFIX_LENGTH));
        let end = leaf.find("[ip=10.0.0.1]").unwrap() + "[ip=10.0.0.1]".len();
        leaf[..end].to_owned()
    }

    fn text(&self) -> String {
        match &self.op {
            Op::Shell => format!("update {}/{SHELL} \"10.0.0.1\"", self.path(None)),
            Op::DeleteAddress => format!("delete {}", self.address()),
            Op::Delete(leaf) => format!("delete {}", self.path(*leaf)),
            Op::Update(leaf, choice) => {
                let value = json_value(*leaf, *choice, self.openconfig);
                format!("update {} {value}", self.path(Some(*leaf)))
            }
            Op::Replace(leaves) => {
                let entry = format!("replace {} {{\"name\":\"{}\"}}", self.path(None), self.name);
                leaves.iter().fold(entry, |text, (leaf, choice)| {
                    let value = json_value(*leaf, *choice, self.openconfig);
                    format!("{text}; replace {} {value}", self.path(Some(*leaf)))
                })
            }
        }
    }

    /// The effect of the operation on a plain map, and to the set of entries that were given as such.
    fn apply(&self, stored: &mut LeafMap, entries: &mut BTreeSet<String>) {
        let bare = |path: String| path.trim_start_matches("native:").to_owned();
        let entry = bare(self.path(None));
        let set = |stored: &mut LeafMap, leaf: usize, choice: usize| {
            let value = json_value(leaf, choice, self.openconfig);
            stored.insert(bare(self.path(Some(leaf))), value.trim_matches('"').to_owned());
        };
        match &self.op {
            Op::Delete(None) => {
                stored.retain(|path, _| !path.starts_with(&entry));
                entries.retain(|path| !path.starts_with(&entry));
            }
            Op::Shell => drop(entries.insert(bare(self.address()))),
            Op::DeleteAddress => {
                let address = bare(self.address());
                stored.retain(|path, _| !path.starts_with(&address));
                entries.remove(&address);
            }
            Op::Delete(Some(leaf)) => drop(stored.remove(&bare(self.path(Some(*leaf))))),
            Op::Update(leaf, choice) => set(stored, *leaf, *choice),
            Op::Replace(leaves) => {
                stored.retain(|path, _| !path.starts_with(&entry));
                entries.retain(|path| !path.starts_with(&entry));
                entries.insert(entry);
                leaves.iter().for_each(|(leaf, choice)| set(stored, *leaf, *choice));
            }
        }
    }
}

/// The effective leaves, or nothing when the origins disagree.
fn union(
    openconfig: &LeafMap,
    native: &LeafMap,
    entries: &[BTreeSet<String>; 2],
) -> Option<BTreeMap<String, String>> {
    let mut effective = BTreeMap::new();
    for name in ["a", "b"] {
        let entry = format!("/interfaces/interface[name={name}]");
        let holds = |leaves: &LeafMap| leaves.keys().any(|path| path.starts_with(&entry));
        // With nothing but keys it is a shell, unless native asks for a leaf of the interface itself.
        let has_shell = entries[0].iter().any(|path| path.starts_with(&entry));
        let own =
            LEAVES.iter().take(PREFIX_LENGTH).map(|(_, below, ..)| format!("{entry}/{below}"));
        let in_openconfig = holds(openconfig)
            || has_shell && own.into_iter().any(|path| native.contains_key(&path));
        if !in_openconfig && !holds(native) && !entries[1].contains(&entry) {
            continue;
        }
        effective.insert(format!("{entry}/type"), "physical".to_owned());
        effective.insert(format!("{entry}/enabled"), "true".to_owned());
        for (above, below, shift, default) in LEAVES {
            let mapped = openconfig.get(&format!("{entry}/{above}")).map(|value| match shift {
                0 => value.clone(),
                shift => (value.parse::<i64>().unwrap() + shift).to_string(),
            });
            let path = format!("{entry}/{below}");
            let other = native.get(&path).cloned();
            if mapped.is_some() && other.is_some() && mapped != other {
                return None;
            }
            let default = default.filter(|_| in_openconfig).map(str::to_owned);
            if let Some(value) = mapped.or(other).or(default) {
                effective.insert(path, value);
            }
        }
    }
    Some(effective)
}

fn effective_of(configuration: &Configuration) -> BTreeMap<String, String> {
    let lines = lines(&models().native, configuration.effective(), |_| "");
    lines
        .iter()
        .map(|line| {
            let (path, value) = line.rsplit_once('=').unwrap();
            (path.to_owned(), value.to_owned())
        })
        .collect()
}

fn explicit_of(configuration: &Configuration, origin: Origin) -> LeafMap {
    let mut leaves = LeafMap::new();
    let schema = models().schema(origin);
    configuration.layers().tree(LayerKey::client(origin)).walk(&mut |path, leaf| {
        if !is_key_or_copy(schema, path.last().unwrap().node) {
            leaves.insert(path.to_path(schema).to_string(), leaf.value.to_string());
        }
    });
    leaves
}

proptest! {
    /// Requests one after the other: those that the model refuses are refused, the others do to the
    /// layers and to the union just what they do to the model; and what is kept up step by step is
    /// what would come out from scratch.
    #[test]
    fn requests_match_the_map_model(requests in prop::collection::vec(request(), 1..20)) {
        let mut configuration = empty();
        let mut openconfig = LeafMap::new();
        let mut native = LeafMap::new();
        let mut entries = [BTreeSet::new(), BTreeSet::new()];
        for request in requests {
            let mut next_openconfig = openconfig.clone();
            let mut next_native = native.clone();
            let mut next_given = entries.clone();
            if request.openconfig {
                request.apply(&mut next_openconfig, &mut next_given[0])
            } else {
                request.apply(&mut next_native, &mut next_given[1])
            }
            let want = union(&next_openconfig, &next_native, &next_given);
            let text = request.text();
            let new = match (configuration.edit(&edit(&text)), &want) {
                (Ok(new), Some(_)) => new,
                (Err(_), None) => continue,
                (Ok(_), None) => return Err(TestCaseError::fail(format!("{text}: not refused"))),
                (Err(errors), Some(_)) => return Err(TestCaseError::fail(format!("{text}: {errors}"))),
            };
            prop_assert_eq!(&explicit_of(&new, Origin::OpenConfig), &next_openconfig, "{}", &text);
            prop_assert_eq!(&explicit_of(&new, Origin::Native), &next_native, "{}", &text);
            prop_assert_eq!(&effective_of(&new), &want.unwrap(), "{}", &text);
            let scratch = Configuration::new(models().clone(), new.layers().clone());
            prop_assert_eq!(new.effective(), scratch.effective());
            prop_assert_eq!(new.config_view(Origin::OpenConfig), scratch.config_view(Origin::OpenConfig));
            prop_assert_eq!(new.config_view(Origin::Native), scratch.config_view(Origin::Native));
            (configuration, openconfig, native, entries) = (new, next_openconfig, next_native, next_given);
        }
    }

    /// The changed objects cover exactly the differences of the trees.
    #[test]
    fn changed_objects_are_the_difference(requests in prop::collection::vec(request(), 2..10)) {
        let mut configuration = empty();
        for request in requests {
            let Ok(new) = configuration.edit(&edit(&request.text())) else { continue };
            let old_leaves = effective_of(&configuration);
            let new_leaves = effective_of(&new);
            let changes = changed_objects(&configuration, &new);
            let same = old_leaves == new_leaves;
            prop_assert_eq!(changes.iter().all(|it| it.old.is_some() && it.new.is_some()) && changes.is_empty(), same);
            configuration = new;
        }
    }
}
