//! The words that may come next on a line, for people who are writing it.

use super::grammar::Grammar;
use crate::instance::{InstancePath, Step};
use crate::schema::types::BuiltinType;
use crate::schema::{NodeId, NodeKind, Schema};
use crate::value::Value;

/// The continuation of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextWord {
    /// One of these words. A value without names has none.
    Words(Vec<String>),
    /// A key of an entry of this list. The entry has these keys before it.
    Key { list: InstancePath, before: Vec<Value> },
}

/// Follows the words of a line from the root of the schema.
pub fn next_word(schema: &Schema, line: &[&str]) -> NextWord {
    let nothing = NextWord::Words(Vec::new());
    let grammar = Grammar::new(schema);
    let mut at = schema.root();
    let mut path = InstancePath::root();
    let mut words = line.iter();
    while let Some(word) = words.next() {
        let Some(found) = grammar.word(at, word) else { return nothing };
        path.0.extend(Grammar::steps(found));
        at = found.node;
        let keys = match &schema.node(at).kind {
            NodeKind::Leaf | NodeKind::LeafList => return NextWord::Words(names(schema, at)),
            NodeKind::List { keys } => keys,
            NodeKind::Root | NodeKind::Container { .. } => continue,
        };
        let mut values = Vec::new();
        for key in keys {
            let Some(text) = words.next() else {
                return NextWord::Key { list: path, before: values };
            };
            let Ok(value) = schema.leaf(*key).ty.parse_text(text) else { return nothing };
            values.push(value);
        }
        path.0.pop();
        path.0.push(Step::entry(at, values.into_iter().collect()));
    }
    let keywords = grammar.suggested_keywords(at);
    NextWord::Words(keywords.map(|keyword| keyword.text.to_string()).collect())
}

/// Names of the values of a leaf; nothing for numbers and texts.
fn names(schema: &Schema, leaf: NodeId) -> Vec<String> {
    match &schema.leaf(leaf).ty.base {
        BuiltinType::Bool => ["true", "false"].map(str::to_owned).into(),
        BuiltinType::Enum(members) => members.iter().map(|it| it.name.to_string()).collect(),
        _ => Vec::new(),
    }
}
