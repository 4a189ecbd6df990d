//! Trees and their texts.

use super::*;
use crate::layer::LeafMark;
use crate::tree::{Leaf, Tree};

/// Applies statements to an empty tree, with the meta `LeafMark::Explicit`.
pub(super) fn tree(schema: &Schema, statements: &[Statement]) -> Tree<LeafMark> {
    let mut tree = Tree::new();
    apply(schema, &mut tree, statements);
    tree
}

fn apply(schema: &Schema, tree: &mut Tree<LeafMark>, statements: &[Statement]) {
    for statement in statements {
        match &statement.act {
            StatementAction::Set(value) => {
                tree.set_leaf(
                    schema,
                    &statement.path,
                    Leaf::new(value.clone(), LeafMark::Explicit),
                );
            }
            StatementAction::Create => {
                tree.branch_mut(schema, &statement.path.0, &LeafMark::Explicit).given = true;
            }
            StatementAction::No => drop(tree.remove(schema, &statement.path)),
        }
    }
}

fn read(schema: &Schema, text: &str) -> Tree<LeafMark> {
    let statements = parse(schema, text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
    tree(schema, &statements)
}

/// Checks that a text is printed exactly as it was parsed.
#[track_caller]
fn check(schema: &Schema, text: &str) {
    assert_eq!(print(schema, &read(schema, text)), text);
}

// proves 1.40
#[test]
fn a_tree_is_printed_in_blocks() {
    check(
        native(),
        "\
system
  hostname box
  login-banner \"hello\\nyou\"
interface eth0
  mtu 1400
  ipv4
    forwarding true
    address 10.0.0.1
      prefix-length 24
    address 10.0.0.2 prefix-length 24
interface eth1
network-instance DEFAULT static DEFAULT route 10.0.0.0/8
  next-hop 0
    next-hop 192.168.0.1
",
    );
    check(
        native(),
        "interface eth0 mtu 1400\ninterface eth0 ipv4 address 10.0.0.1\n  prefix-length 24\n",
    );
    check(
        odd(),
        "\
zoo
  name \"\"
  tag a \"b c\"
  floor 3 1 2
cage \"north wing\" 7
  animal cat
  locked
  either
  days \"mon tue\"
  scrap AQI=
  weight 1.5
odd:no
  odd:no no
doors
  gate g
    open true
gate
  height 3
",
    );
    check(odd(), "zoo name x\n");
    check(odd(), "zoo\n");
    assert_eq!(print(native(), &Tree::<LeafMark>::new()), "");
}

#[test]
fn one_line_names_one_thing() {
    for text in [
        "interface eth0 mtu 1400",
        "no interface eth0",
        "no interfaces",
        "interface eth0",
        "system hostname box",
        "no system hostname",
        "network-instance \"a b\" static x route 10.0.0.0/8 next-hop 0 next-hop drop",
    ] {
        let statements = parse(native(), text).unwrap();
        assert_eq!(line(native(), &statements[0].path, &statements[0].act), text);
    }
}

#[test]
fn notes_become_comments() {
    let tree = read(native(), "interface eth0 mtu 1400\nsystem hostname box");
    let noted = print_with_notes(native(), &tree, &|_, mark| Some(format!("{mark:?}")));
    let want =
        "system\n  hostname box # Explicit\ninterface eth0 # Explicit\n  mtu 1400 # Explicit\n";
    assert_eq!(noted, want);
    assert_eq!(
        statement_lines(native(), &parse(native(), &noted).unwrap()).len(),
        3,
        "comments are not words"
    );
}

/// Random edits of a factory tree: the printed text, applied to the factory tree, restores the layer.
#[track_caller]
fn check_running(factory: &str, edits: &str, elsewhere: &str, want: &str) {
    let schema = native();
    let marked = |text: &str| {
        let mut factory = Tree::new();
        for it in parse(schema, text).unwrap() {
            match it.act {
                StatementAction::Set(value) => {
                    factory.set_leaf(schema, &it.path, Leaf::new(value, LeafMark::Factory))
                }
                _ => factory.branch_mut(schema, &it.path.0, &LeafMark::Factory).given = true,
            }
        }
        factory
    };
    let factory = marked(factory);
    let mut layer = factory.clone();
    apply(schema, &mut layer, &parse(schema, edits).unwrap());
    let elsewhere = marked(elsewhere);
    let text = running(schema, &layer, &factory, &|path| elsewhere.get(path).is_some());
    assert_eq!(text, want);
    if elsewhere.is_empty() {
        let mut again = factory.clone();
        apply(schema, &mut again, &parse(schema, &text).unwrap());
        assert_eq!(again, layer, "{text}");
    }
}

// proves 2.25, 2.26
#[test]
fn running_config_is_relative_to_the_factory() {
    let factory =
        "interface eth0\n  enabled false\ninterface eth1\n  enabled false\nsystem hostname box";
    check_running(factory, "", "", "");
    check_running(factory, "interface eth0 mtu 1400", "", "interface eth0\n  mtu 1400\n");
    check_running(
        factory,
        "no interface eth1\ninterface eth0 enabled true\ninterface eth2",
        "",
        "interface eth0\n  enabled true\nno interface eth1\ninterface eth2\n",
    );
    check_running(factory, "interface eth0\n no enabled", "", "interface eth0\n  no enabled\n");
    check_running(factory, "no system hostname", "", "system\n  no hostname\n");
    check_running(
        factory,
        "no interface eth1\ninterface eth1 mtu 1400",
        "",
        "no interface eth1\ninterface eth1 mtu 1400\n",
    );
    check_running(
        factory,
        "no interface eth1\nno system hostname",
        "interface eth1 enabled true\nsystem hostname y",
        "",
    );
    check_running(
        factory,
        "no interface eth1",
        "interface eth1 mtu 1400",
        "no interface eth1 enabled\n",
    );
    check_running("", "system hostname x", "", "system\n  hostname x\n");
}
