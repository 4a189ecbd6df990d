//! Random trees of the schema, printed and parsed again.

use proptest::prelude::*;

use super::writing::tree;
use super::*;
use crate::instance::Step;
use crate::layer::LeafMark;
use crate::schema::types::{BuiltinType, Type};
use crate::schema::{Node, NodeKind};
use crate::tree::{Leaf, Tree};

/// Texts that are valid for some types, in addition to random ones.
const TEXTS: [&str; 24] = [
    "true",
    "false",
    "",
    "-1",
    "0",
    "1",
    "2",
    "24",
    "64",
    "128",
    "1500",
    "65535",
    "1.5",
    "AQI=",
    "eth0",
    "a b",
    "10.0.0.1",
    "10.0.0.2",
    "2001:db8::1",
    "10.0.0.0/8",
    "2001:db8::/32",
    "02:00:00:00:00:01",
    "no",
    "#",
];

/// Source of the random choices; zeros when exhausted, which makes small trees.
pub(super) struct Choices<'a> {
    octets: &'a [u8],
    texts: &'a [String],
}

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        let (first, rest) =
            self.octets.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.octets = rest;
        usize::from(first) % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    fn value(&mut self, ty: &Type) -> Option<Value> {
        let mut fitting: Vec<Value> =
            names(ty).iter().filter_map(|it| ty.parse_text(it).ok()).collect();
        let texts = TEXTS.into_iter().chain(self.texts.iter().map(String::as_str));
        fitting.extend(texts.filter_map(|it| ty.parse_text(it).ok()));
        let at = self.below(fitting.len().max(1));
        (at < fitting.len()).then(|| fitting.swap_remove(at))
    }
}

fn names(ty: &Type) -> Vec<String> {
    match &ty.base {
        BuiltinType::Enum(members) => members.iter().map(|it| it.name.to_string()).collect(),
        BuiltinType::Identity(known) => known.iter().map(|it| it.qualified.to_string()).collect(),
        BuiltinType::Bits(bits) => vec![bits.join(" ")],
        BuiltinType::Union(members) => members.iter().flat_map(|it| names(it)).collect(),
        _ => Vec::new(),
    }
}

fn fill_random(
    schema: &Schema,
    node: &Node,
    path: &InstancePath,
    choices: &mut Choices<'_>,
    tree: &mut Tree<LeafMark>,
) {
    for id in &node.children {
        let child = schema.node(*id);
        if !child.config || schema.is_list_key(*id) || !choices.one_in(3) {
            continue;
        }
        let step = path.join(Step::node(*id));
        match &child.kind {
            NodeKind::Root => {}
            NodeKind::Leaf | NodeKind::LeafList => {
                let ty = &schema.leaf(*id).ty;
                let count = if child.kind == NodeKind::Leaf { 1 } else { choices.below(3) };
                let texts: Vec<String> =
                    (0..count).filter_map(|_| choices.value(ty)).map(|it| it.to_string()).collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let value = child.parse_texts(&texts).ok();
                if let Some(value) = value {
                    tree.set_leaf(schema, &step, Leaf::new(value, LeafMark::Explicit));
                }
            }
            NodeKind::Container { presence } => {
                if *presence && choices.one_in(2) {
                    tree.branch_mut(schema, &step.0, &LeafMark::Explicit).given = true;
                }
                fill_random(schema, child, &step, choices, tree);
            }
            NodeKind::List { keys } => {
                for _ in 0..=choices.below(3) {
                    let values = keys.iter().map(|key| choices.value(&schema.leaf(*key).ty));
                    let Some(values) = values.collect() else { continue };
                    let entry = path.join(Step::entry(*id, values));
                    if choices.one_in(2) {
                        tree.branch_mut(schema, &entry.0, &LeafMark::Explicit).given = true;
                    }
                    fill_random(schema, child, &entry, choices, tree);
                }
            }
        }
    }
}

fn check(schema: &Schema, octets: &[u8], texts: &[String]) {
    let mut grown = Tree::new();
    let mut choices = Choices { octets, texts };
    fill_random(
        schema,
        schema.node(schema.root()),
        &InstancePath::root(),
        &mut choices,
        &mut grown,
    );
    let text = print(schema, &grown);
    let statements = parse(schema, &text).unwrap_or_else(|errors| panic!("{text}\n{errors:#?}"));
    assert_eq!(tree(schema, &statements), grown, "{text}");
    for it in statements {
        let alone = line(schema, &it.path, &it.act);
        let read = parse(schema, &alone).unwrap_or_else(|errors| panic!("{alone}\n{errors:#?}"));
        assert_eq!((&read[0].path, &read[0].act), (&it.path, &it.act), "{alone}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // proves 2.25
    #[test]
    fn printed_trees_are_parsed_back(
        octets in prop::collection::vec(any::<u8>(), 0..600),
        texts in prop::collection::vec(any::<String>(), 0..4),
    ) {
        check(native(), &octets, &texts);
        check(odd(), &octets, &texts);
    }

    #[test]
    fn arbitrary_text_is_parsed_without_panic(text in ".{0,200}", lines in prop::collection::vec("(no )?(interface|system|cage|zoo|eth0|mtu|[ \t!#\"\\\\]|7|1400|hostname|a){1,6}", 0..6)) {
        for schema in [native(), odd()] {
            for text in [&text, &lines.join("\n"), &lines.join("\n  ")] {
                match parse(schema, text) {
                    Ok(statements) => {
                        let parsed = tree(schema, &statements);
                        let again = print(schema, &parsed);
                        prop_assert_eq!(tree(schema, &parse(schema, &again).unwrap()), parsed);
                    }
                    Err(errors) => prop_assert!(errors.iter().all(|it| it.line > 0 && it.line <= text.split('\n').count())),
                }
            }
        }
    }
}
