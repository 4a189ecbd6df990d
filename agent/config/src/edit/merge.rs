//! What an update adds to what is there.

use crate::layer::Mark;
use crate::schema::{Node, NodeKind, Schema};
use crate::tree::{Branch, Child};
use crate::value::Value;

/// Adds all of `from` to `into`: leaves in place of those there, leaf-lists joined.
pub(super) fn merge(schema: &Schema, into: &mut Branch<Mark>, from: &Branch<Mark>) {
    into.given |= from.given;
    for (node, child) in from.children() {
        match child {
            Child::Leaf(leaf) => {
                let of = schema.node(*node);
                let value = match into.value(*node) {
                    Some(held) if of.kind == NodeKind::LeafList => joined(of, held, &leaf.value),
                    _ => leaf.value.clone(),
                };
                into.put_leaf(*node, value, leaf.meta);
            }
            Child::Container(branch) => match into.container(*node).is_some() {
                true => merge(schema, into.container_mut(*node), branch),
                false => drop(into.put(*node, Child::Container(branch.clone()))),
            },
            Child::List(list) => {
                let entries = into.list_mut(*node);
                for (keys, entry) in list.iter() {
                    match entries.get(keys).is_some() {
                        true => merge(schema, entries.entry_mut(keys, Branch::default), entry),
                        false => drop(entries.put(keys.clone(), entry.clone())),
                    }
                }
            }
        }
    }
}

/// The entries of two leaf-lists together, each once.
pub(super) fn joined(node: &Node, held: &Value, more: &Value) -> Value {
    let (Value::List(held), Value::List(more)) = (held, more) else { return more.clone() };
    let mut all = held.to_vec();
    all.extend(more.iter().filter(|value| !held.contains(value)).cloned());
    if !node.user_ordered {
        all.sort();
    }
    Value::List(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaf_lists_are_joined() {
        let schema = Schema::native().expect("the model is part of the agent");
        let mut node = schema.node(schema.find("/system/hostname").expect("it exists")).clone();
        let list = |text: &str| {
            Value::List(text.chars().map(|it| Value::Str(it.to_string().into())).collect())
        };
        for (user_ordered, held, more, want) in [
            (false, "bc", "ab", "abc"),
            (true, "cb", "ab", "cba"),
            (false, "", "b", "b"),
            (true, "b", "", "b"),
        ] {
            node.user_ordered = user_ordered;
            assert_eq!(joined(&node, &list(held), &list(more)), list(want), "{held} and {more}");
        }
    }
}
