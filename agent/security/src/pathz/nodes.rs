//! Rules over the nodes of a schema, as data is judged: [`super::trie`] with the node ids, keys and values of `config`.

use holdfast_config::{NodeId, Step, Value};

use super::trie::{CompiledRules, PolicyView, Position};

/// Rules by nodes of a schema; keys by their place in the list's `key` statement.
pub type NodeRules = CompiledRules<NodeId, usize, Value>;
/// The rules that apply to one user.
pub type NodeView = PolicyView<NodeId, usize, Value>;

/// The position one step further down a tree.
pub fn step(view: &NodeView, from: &Position, step: &Step) -> Position {
    view.step(from, &step.node, |place| step.keys.as_ref()?.get(*place))
}

/// The position at the end of a path from the root.
pub fn position(view: &NodeView, path: &[Step]) -> Position {
    path.iter().fold(view.root(), |at, it| step(view, &at, it))
}
