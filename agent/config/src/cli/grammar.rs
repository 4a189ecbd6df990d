//! The words of the CLI, derived from the schema.

use std::sync::OnceLock;

use smol_str::{SmolStr, format_smolstr};

use crate::instance::Step;
use crate::schema::types::BuiltinType;
use crate::schema::{Node, NodeId, NodeKind, Schema};

/// Word that negates a line.
pub(super) const NO: &str = "no";

/// Words of one schema.
#[derive(Debug)]
pub struct Grammar<'a> {
    schema: &'a Schema,
    /// By node: the words that are valid below it, made when they are first asked for.
    below: Vec<OnceLock<Vec<Keyword>>>,
}

/// A word and the node it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyword {
    pub(super) text: SmolStr,
    /// Container that the word skips.
    pub(super) through: Option<NodeId>,
    pub(super) node: NodeId,
    /// Accepted, but neither printed nor suggested.
    pub(super) hidden: bool,
}

impl<'a> Grammar<'a> {
    pub fn new(schema: &'a Schema) -> Self {
        let below = schema.nodes().iter().map(|_| OnceLock::new()).collect();
        Self { schema, below }
    }

    /// The words that are valid below a node.
    fn below(&self, at: NodeId) -> &[Keyword] {
        self.below[at.0 as usize].get_or_init(|| words(self.schema, self.schema.node(at)))
    }

    pub(super) fn schema(&self) -> &'a Schema {
        self.schema
    }

    pub(super) fn word(&self, at: NodeId, text: &str) -> Option<&Keyword> {
        self.below(at).iter().find(|word| word.text == text)
    }

    /// Words that are valid below a node, in schema order.
    pub(super) fn suggested_keywords(&self, at: NodeId) -> impl Iterator<Item = &Keyword> {
        self.below(at).iter().filter(|word| !word.hidden)
    }

    /// The word below `at` that leads to `node`; `None` for a skipped container, unless it is the target
    /// (`meant`).
    pub(super) fn keyword_for(
        &self,
        at: NodeId,
        node: NodeId,
        is_target: bool,
    ) -> Option<&Keyword> {
        let through = self.schema.node(node).parent.filter(|parent| *parent != at);
        let fits = |word: &&Keyword| word.node == node && word.through == through;
        self.below(at).iter().find(fits).filter(|word| is_target || !word.hidden)
    }

    /// Usage of a statement that begins with `word`, as in `interface NAME`.
    pub(super) fn form(&self, word: &Keyword) -> String {
        let node = self.schema.node(word.node);
        let value = |leaf: &NodeId| self.schema.node(*leaf).name.to_uppercase();
        let arguments: Vec<String> = match &node.kind {
            NodeKind::List { keys } => keys.iter().map(value).collect(),
            NodeKind::Leaf => vec!["VALUE".to_owned()],
            NodeKind::LeafList => vec!["VALUE...".to_owned()],
            NodeKind::Root | NodeKind::Container { .. } => Vec::new(),
        };
        [word.text.to_string()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// Lists every statement, one per line, indented below its block, with the valid values where they are few.
    pub fn outline(&self) -> String {
        let mut text = String::new();
        self.outline_below(self.schema.root(), 0, &mut text);
        text
    }

    fn outline_below(&self, at: NodeId, depth: usize, text: &mut String) {
        for word in self.suggested_keywords(at) {
            let values = match &self.schema.node(word.node).leaf {
                Some(leaf) => match leaf.ty.base {
                    BuiltinType::Bool
                    | BuiltinType::Enum(_)
                    | BuiltinType::Int { .. }
                    | BuiltinType::Uint { .. } => {
                        format!(" # {}", leaf.ty)
                    }
                    _ => String::new(),
                },
                None => String::new(),
            };
            let indent = "  ".repeat(depth);
            text.extend([&indent, self.form(word).as_str(), &values, "\n"]);
            self.outline_below(word.node, depth + 1, text);
        }
    }

    /// Every leaf, in the order of the schema, with the line that sets it.
    pub fn leaves(&self) -> Vec<(NodeId, String)> {
        let mut leaves = Vec::new();
        self.leaves_below(self.schema.root(), "", &mut leaves);
        leaves
    }

    fn leaves_below(&self, at: NodeId, before: &str, leaves: &mut Vec<(NodeId, String)>) {
        for word in self.suggested_keywords(at) {
            let line = format!("{before}{}", self.form(word));
            match self.schema.node(word.node).kind {
                NodeKind::Leaf | NodeKind::LeafList => leaves.push((word.node, line)),
                _ => self.leaves_below(word.node, &format!("{line} "), leaves),
            }
        }
    }

    /// Steps from `at` that a word takes, without the keys of its list.
    pub(super) fn steps(word: &Keyword) -> impl Iterator<Item = Step> + use<> {
        word.through.into_iter().chain([word.node]).map(Step::node)
    }
}

/// Writable children other than keys, which are arguments of their list's word.
fn writable<'a>(schema: &'a Schema, node: &'a Node) -> impl Iterator<Item = &'a Node> {
    let children = node.children.iter().filter(|id| !schema.is_list_key(**id));
    children.map(|id| schema.node(*id)).filter(|child| child.config)
}

fn words(schema: &Schema, node: &Node) -> Vec<Keyword> {
    let mut words: Vec<Keyword> = Vec::new();
    for child in writable(schema, node) {
        let text = name(schema, node, child);
        let hoisted = only_list(schema, child).filter(|list| is_unique(schema, node, child, list));
        words.extend(hoisted.map(|list| Keyword {
            text: list.name.clone(),
            through: Some(child.id),
            node: list.id,
            hidden: false,
        }));
        words.push(Keyword { text, through: None, node: child.id, hidden: hoisted.is_some() });
    }
    words
}

/// Name of a child, with its module where the bare name would be ambiguous.
fn name(schema: &Schema, parent: &Node, child: &Node) -> SmolStr {
    let twins = writable(schema, parent).filter(|other| other.name == child.name).count();
    if twins > 1 || child.name == NO {
        format_smolstr!("{}:{}", schema.module(child.module).name, child.name)
    } else {
        child.name.clone()
    }
}

/// The list of a container that holds nothing else.
fn only_list<'a>(schema: &'a Schema, container: &'a Node) -> Option<&'a Node> {
    let mut inside = writable(schema, container);
    let only = inside.next().filter(|_| inside.next().is_none())?;
    let plain = container.kind == NodeKind::Container { presence: false };
    (plain && matches!(only.kind, NodeKind::List { .. })).then_some(only)
}

/// True when no sibling has the name of `list`, and no earlier one takes it: `interface` is the list of `interfaces`, and that
/// of `lacp` is said with its container.
fn is_unique(schema: &Schema, parent: &Node, container: &Node, list: &Node) -> bool {
    let siblings = || writable(schema, parent);
    let has_name = |other: &Node| other.name == list.name;
    let takes_name = |other: &Node| only_list(schema, other).is_some_and(has_name);
    list.name != NO
        && !siblings().any(has_name)
        && !siblings().take_while(|other| other.id != container.id).any(takes_name)
}
