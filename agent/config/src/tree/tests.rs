use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use proptest::prelude::*;

use super::*;
use crate::instance::Keys;
use crate::path::Path;
use crate::value::Value;

fn schema() -> &'static Schema {
    use std::sync::OnceLock;
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::native().unwrap())
}

fn path(text: &str) -> InstancePath {
    schema().resolve_write(&text.parse::<Path>().unwrap()).unwrap()
}

impl LeafMeta for usize {
    type Entry = Arc<Branch<Self>>;
}

/// Parses `path=value` lines to a tree; the meta is the line number.
fn tree(lines: &[&str]) -> Tree<usize> {
    let mut tree = Tree::new();
    for (number, line) in lines.iter().enumerate() {
        let (at, value) = line.rsplit_once('=').unwrap();
        let at = path(at);
        let ty = &schema().leaf(at.last().unwrap().node).ty;
        tree.set_leaf(schema(), &at, Leaf::new(ty.parse_text(value).unwrap(), number));
    }
    tree
}

fn lines(tree: &Tree<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    tree.walk(&mut |path, leaf| lines.push(format!("{}={}", path.to_path(schema()), leaf.value)));
    lines
}

#[test]
fn leaves_come_in_schema_order_with_their_keys() {
    let tree = tree(&[
        "/interfaces/interface[name=eth1]/mtu=1400",
        "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
        "/system/hostname=box",
    ]);
    let want = [
        "/system/hostname=box",
        "/interfaces/interface[name=eth0]/name=eth0",
        "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/ip=10.0.0.1",
        "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
        "/interfaces/interface[name=eth1]/name=eth1",
        "/interfaces/interface[name=eth1]/mtu=1400",
    ];
    assert_eq!(lines(&tree), want);
}

#[test]
fn removal_prunes_empty_ancestors() {
    let start = [
        "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
        "/interfaces/interface[name=eth0]/mtu=1400",
    ];
    let check = |removed: &[&str], want: &[&str]| {
        let mut tree = tree(&start);
        removed.iter().for_each(|it| assert!(tree.remove(schema(), &path(it)), "{it}"));
        assert_eq!(lines(&tree), want, "without {removed:?}");
    };
    let address = "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]";
    let rest =
        ["/interfaces/interface[name=eth0]/name=eth0", "/interfaces/interface[name=eth0]/mtu=1400"];
    check(&[&format!("{address}/prefix-length")], &rest);
    check(&[address], &rest);
    check(&["/interfaces/interface[name=eth0]/ipv4"], &rest);
    check(&[address, "/interfaces/interface[name=eth0]/mtu"], &[]);
    check(&["/interfaces/interface[name=eth0]"], &[]);
    check(&["/"], &[]);
    let mut tree = tree(&start);
    assert!(!tree.remove(schema(), &path("/system/hostname")), "it is not there");
    tree.branch_mut(schema(), &path("/interfaces/interface[name=eth0]").0, &9).given = true;
    tree.remove(schema(), &path("/interfaces/interface[name=eth0]/mtu"));
    tree.remove(schema(), &path(address));
    assert_eq!(lines(&tree), ["/interfaces/interface[name=eth0]/name=eth0"], "it was given");
}

#[test]
fn patterns_select_in_order() {
    let tree = tree(&[
        "/interfaces/interface[name=eth1]/mtu=1401",
        "/interfaces/interface[name=eth0]/mtu=1400",
        "/system/hostname=box",
    ]);
    let check = |text: &str, want: &[&str]| {
        let patterns = schema().resolve_read(&text.parse().unwrap()).unwrap();
        let found = patterns.iter().flat_map(|pattern| tree.select(pattern));
        let found: Vec<String> = found.map(|(at, _)| at.to_path(schema()).to_string()).collect();
        assert_eq!(found, want, "{text}");
    };
    check(
        "/interfaces/interface[name=*]/mtu",
        &["/interfaces/interface[name=eth0]/mtu", "/interfaces/interface[name=eth1]/mtu"],
    );
    check("/interfaces/interface[name=eth1]", &["/interfaces/interface[name=eth1]"]);
    check("/interfaces/interface[name=eth2]/mtu", &[]);
    check("/*/hostname", &["/system/hostname"]);
    check("/", &["/"]);
}

#[test]
fn diff_reports_the_outermost_change() {
    let old = tree(&["/system/hostname=a", "/interfaces/interface[name=eth0]/mtu=1400"]);
    let new = tree(&["/system/hostname=b", "/interfaces/interface[name=eth1]/mtu=1400"]);
    let mut changes = Vec::new();
    Tree::diff(&old, &new, &mut |path, change| {
        let what = match change {
            Change::Added(_) => "+",
            Change::Removed(_) => "-",
            Change::Leaf { .. } => "~",
            Change::Given(_) => "!",
        };
        changes.push(format!("{what}{}", path.to_path(schema())));
    });
    let want = [
        "~/system/hostname",
        "-/interfaces/interface[name=eth0]",
        "+/interfaces/interface[name=eth1]",
    ];
    assert_eq!(changes, want);
}

#[test]
fn an_edit_leaves_clones_alone_and_shares_the_rest() {
    let old = tree(&["/system/hostname=a", "/interfaces/interface[name=eth0]/mtu=1400"]);
    let mut new = old.clone();
    assert!(new.is_same(&old));
    new.set_leaf(schema(), &path("/system/hostname"), Leaf::new(Value::Str("b".into()), 7));
    assert_eq!(old.leaf(&path("/system/hostname")).unwrap().value, Value::Str("a".into()));
    let interfaces = |tree: &Tree<usize>| tree.branch(&path("/interfaces")).unwrap().clone();
    assert!(Arc::ptr_eq(&interfaces(&old), &interfaces(&new)));
}

/// A key that counts how often it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CountingKey(u32);

thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });

impl PartialOrd for CountingKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CountingKey {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

/// Property of the map that our diffs rely on.
#[test]
fn the_diff_of_persistent_maps_skips_what_they_share() {
    let old: OrdMap<CountingKey, u32> = (0..100_000).map(|n| (CountingKey(n), n)).collect();
    for change in [0, 50_000, 99_999] {
        let mut new = old.clone();
        new.insert(CountingKey(change), u32::MAX);
        COMPARED.set(0);
        assert_eq!(old.diff(&new).count(), 1);
        assert!(COMPARED.get() < 200, "{} comparisons for one change", COMPARED.get());
    }
    let mut new = old.clone();
    new.remove(&CountingKey(7));
    new.insert(CountingKey(200_000), 1);
    COMPARED.set(0);
    assert_eq!(old.diff(&new).count(), 2);
    assert!(COMPARED.get() < 400, "{} comparisons", COMPARED.get());
}

#[test]
fn list_differences_skip_shared_entries() {
    let list = schema().find("/interfaces/interface").unwrap();
    let entry = |n: u32| {
        let keys = Keys::single(Value::Str(format!("eth{n}").into()));
        let branch = Branch::of_keys(schema(), list, &keys, &0);
        (keys, Arc::new(branch))
    };
    let old: List<usize> = (0..100_000).map(entry).collect();
    let mut new = old.clone();
    let (keys, _) = entry(50_000);
    new.entry_mut(&keys, Branch::default).given = true;
    assert_eq!(List::differences(&old, &new).count(), 1);
    assert_eq!(List::differences(&old, &old.clone()).count(), 0);
    assert!(old != new);
    assert_eq!(new.len(), 100_000);
}

/// Few names, so that edits meet each other.
fn some_path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "/system/hostname",
        "/system/domain-name",
        "/interfaces/interface[name=a]/description",
        "/interfaces/interface[name=b]/description",
        "/interfaces/interface[name=b]/master",
        "/interfaces/interface[name=c]/veth/peer",
        "/network-instances/network-instance[name=x]/static[name=s]/route[prefix=10.0.0.0/8]/description",
        "/network-instances/network-instance[name=x]/static[name=s]/route[prefix=11.0.0.0/8]/description",
    ])
}

type Model = BTreeMap<InstancePath, (Value, usize)>;

fn model_of(tree: &Tree<usize>) -> Model {
    let mut model = Model::new();
    tree.walk(&mut |path, leaf| {
        if !is_key_or_copy(schema(), path.last().unwrap().node) {
            model.insert(path.clone(), (leaf.value.clone(), leaf.meta));
        }
    });
    model
}

proptest! {
    #[test]
    fn trees_are_maps(edits in prop::collection::vec((some_path(), 0usize..4), 0..40)) {
        let mut tree = Tree::new();
        let mut model = Model::new();
        for (text, number) in edits {
            let at = path(text);
            if number == 0 {
                let there = tree.remove(schema(), &at);
                prop_assert_eq!(model.remove(&at).is_some(), there);
            } else {
                let value = Value::Str(format!("v{number}").into());
                tree.set_leaf(schema(), &at, Leaf::new(value.clone(), number));
                model.insert(at, (value, number));
            }
            prop_assert_eq!(model_of(&tree), model.clone());
        }
        if model.is_empty() {
            prop_assert!(tree.is_empty());
        }
    }

    #[test]
    fn a_diff_applied_gives_the_new_tree(
        one in prop::collection::vec((some_path(), 1usize..3), 0..12),
        other in prop::collection::vec((some_path(), 1usize..3), 0..12),
    ) {
        let make = |leaves: &[(&str, usize)]| {
            let mut tree = Tree::new();
            for (text, number) in leaves {
                let value = Value::Str(format!("v{number}").into());
                tree.set_leaf(schema(), &path(text), Leaf::new(value, *number));
            }
            tree
        };
        let old = make(&one);
        let new = make(&other);
        let mut patched = old.clone();
        Tree::diff(&old, &new, &mut |at, change| match change {
            Change::Removed(_) => drop(patched.remove(schema(), at)),
            Change::Leaf { new, .. } => patched.set_leaf(schema(), at, new.clone()),
            Change::Added(found) => found.walk(&mut at.clone(), &mut |at, leaf| {
                patched.set_leaf(schema(), at, leaf.clone());
            }),
            Change::Given(mark) => patched.branch_mut(schema(), &at.0, &0).given = mark,
        });
        // Removing the last leaf of an entry forgets the meta of its keys.
        prop_assert_eq!(model_of(&patched), model_of(&new));
    }

    /// Changes of different leaves come together, whatever their order; a leaf that both change is counted.
    #[test]
    fn merged_trees_have_both_changes(
        start in prop::collection::vec((some_path(), 1usize..3), 0..12),
        ours in prop::collection::vec((some_path(), 0usize..3), 0..4),
        theirs in prop::collection::vec((some_path(), 0usize..3), 0..4),
    ) {
        let changed = |tree: &Tree<usize>, leaves: &[(&str, usize)]| {
            let mut tree = tree.clone();
            for (text, number) in leaves {
                // Entries that were given stay when they are empty.
                let at = path(text);
                if let Some(entry) = at.0.iter().rposition(|step| step.keys.is_some()) {
                    for end in (0..=entry).filter(|end| at.0[*end].keys.is_some()) {
                        tree.branch_mut(schema(), &at.0[..=end], &9).given = true;
                    }
                }
                if *number == 0 {
                    tree.remove(schema(), &at);
                } else {
                    let value = Value::Str(format!("v{number}").into());
                    tree.set_leaf(schema(), &at, Leaf::new(value, *number));
                }
            }
            tree
        };
        let all: Vec<_> = start.iter().chain(&ours).chain(&theirs).map(|(path, _)| (*path, 0)).collect();
        let base = changed(&changed(&Tree::new(), &all), &start);
        let one = changed(&base, &ours);
        let other = changed(&base, &theirs);
        let (merged, collisions) = Tree::merged(&base, &one, &other);
        let (back, _) = Tree::merged(&base, &other, &one);
        let [before, mine, yours] = [&base, &one, &other].map(model_of);
        let mut want = yours.clone();
        let mut both = 0;
        for (text, _) in &all {
            let at = path(text);
            let [before, mine, yours] = [&before, &mine, &yours].map(|model| model.get(&at));
            if before != mine {
                want.remove(&at);
                want.extend(mine.map(|leaf| (at.clone(), leaf.clone())));
            }
            both += usize::from(before != mine && before != yours && mine != yours);
        }
        prop_assert_eq!(model_of(&merged), want);
        prop_assert_eq!(collisions > 0, both > 0);
        prop_assert_eq!(merged == back, both == 0);
        if both == 0 {
            let differs = |(text, _): &&(&str, usize)| {
                before.get(&path(text)) != yours.get(&path(text))
            };
            let theirs: Vec<_> = theirs.iter().filter(differs).copied().collect();
            prop_assert_eq!(&merged, &changed(&one, &theirs));
        }
    }
}
