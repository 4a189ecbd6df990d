//! Printer from a tree to text.
//!
//! An entry that was created as such opens a block. An entry that exists only for its descendants is written on
//! their lines. So parsing the text results in exactly the same tree.

use super::grammar::{Grammar, NO};
use super::lines::write_word;
use super::{Statement, StatementAction};
use crate::instance::{InstancePath, Keys, Step};
use crate::schema::{Node, NodeId, NodeKind, Schema};
use crate::tree::{Branch, Child, LeafMeta, ListEntry as _, Tree};
use crate::value::{Value, bare_identity};

/// Blanks for each level.
const INDENT: &str = "  ";

/// Prints a whole tree; parsing the text gives the statements that create it.
pub fn print<M: LeafMeta>(schema: &Schema, tree: &Tree<M>) -> String {
    text(schema, tree, false, &|_, _| None)
}

/// Prints a tree for reading: every entry opens a block, and each line ends with the comment that `note` returns
/// for it. The line of an entry has the comment of its first key.
pub fn print_with_notes<M: LeafMeta>(
    schema: &Schema,
    tree: &Tree<M>,
    note: &dyn Fn(&InstancePath, &M) -> Option<String>,
) -> String {
    text(schema, tree, true, note)
}

fn text<M: LeafMeta>(
    schema: &Schema,
    tree: &Tree<M>,
    every: bool,
    note: &dyn Fn(&InstancePath, &M) -> Option<String>,
) -> String {
    let grammar = Grammar::new(schema);
    let mut lines = Vec::new();
    let mut printer = TreeLines { schema, every, note, lines: &mut lines };
    printer.branch(&mut InstancePath::root(), tree.root());
    write(&grammar, &lines)
}

/// Prints one statement on one line, relative to the root.
pub fn line(schema: &Schema, path: &InstancePath, act: &StatementAction) -> String {
    LinePrinter::new(schema).line(path, act)
}

/// Printer of statements, each on one line.
#[derive(Debug)]
pub struct LinePrinter<'a> {
    grammar: Grammar<'a>,
}

impl<'a> LinePrinter<'a> {
    pub fn new(schema: &'a Schema) -> Self {
        Self { grammar: Grammar::new(schema) }
    }

    /// Prints one statement, relative to the root.
    pub fn line(&self, path: &InstancePath, act: &StatementAction) -> String {
        let schema = self.grammar.schema();
        let mut out = String::new();
        if *act == StatementAction::No {
            out += NO;
        }
        write_steps(&self.grammar, &mut out, schema.root(), &path.0);
        write_value(schema, &mut out, path, act);
        out
    }
}

/// A line to be printed, with its comment.
#[derive(Debug)]
pub(super) struct PrintedLine {
    pub(super) path: InstancePath,
    pub(super) act: StatementAction,
    pub(super) note: Option<String>,
}

impl From<Statement> for PrintedLine {
    fn from(statement: Statement) -> Self {
        Self { path: statement.path, act: statement.act, note: None }
    }
}

/// Turns a tree into statements.
struct TreeLines<'a, M: LeafMeta> {
    schema: &'a Schema,
    /// Every entry gets a line, not only those that were created as such.
    every: bool,
    note: &'a dyn Fn(&InstancePath, &M) -> Option<String>,
    lines: &'a mut Vec<PrintedLine>,
}

impl<M: LeafMeta> TreeLines<'_, M> {
    fn add_statement(&mut self, path: &InstancePath, act: StatementAction, note: Option<String>) {
        self.lines.push(PrintedLine { path: path.clone(), act, note });
    }

    fn branch(&mut self, path: &mut InstancePath, branch: &Branch<M>) {
        for (id, child) in branch.children() {
            let node = self.schema.node(*id);
            if !node.config || self.schema.is_list_key(*id) {
                continue;
            }
            path.0.push(Step::node(*id));
            match child {
                Child::Leaf(leaf) => self.add_statement(
                    path,
                    StatementAction::Set(leaf.value.clone()),
                    (self.note)(path, &leaf.meta),
                ),
                Child::Container(inside) => {
                    if inside.given && node.kind == (NodeKind::Container { presence: true }) {
                        self.add_statement(path, StatementAction::Create, None);
                    }
                    self.branch(path, inside);
                }
                Child::List(list) => {
                    for (keys, entry) in list.iter() {
                        path.0.pop();
                        path.0.push(Step::entry(*id, keys.clone()));
                        self.entry(path, &entry.branch());
                    }
                }
            }
            path.0.pop();
        }
    }

    fn entry(&mut self, path: &mut InstancePath, entry: &Branch<M>) {
        if self.every || entry.given || entry.has_only_keys(self.schema) {
            let key = entry.children().first().and_then(|(key, _)| entry.leaf(*key));
            self.add_statement(
                path,
                StatementAction::Create,
                key.and_then(|key| (self.note)(path, &key.meta)),
            );
        }
        self.branch(path, entry);
    }
}

/// Prints statements. Statements below a `Create` follow it.
pub(super) fn write(grammar: &Grammar<'_>, lines: &[PrintedLine]) -> String {
    let root = OpenBlock { steps: 0, at: grammar.schema().root() };
    let mut writer = Writer { grammar, out: String::new(), path: &[], open: vec![root] };
    lines.iter().for_each(|it| writer.add_statement(it));
    writer.out
}

struct Writer<'a> {
    grammar: &'a Grammar<'a>,
    out: String,
    /// Path through all open blocks.
    path: &'a [Step],
    /// Open blocks; never empty, because the root is always open.
    open: Vec<OpenBlock>,
}

/// An open block, with the length of its path from the root.
#[derive(Clone, Copy)]
struct OpenBlock {
    steps: usize,
    at: NodeId,
}

impl<'a> Writer<'a> {
    fn innermost(&self) -> OpenBlock {
        *self.open.last().expect("the root is always open")
    }

    fn add_statement(&mut self, line: &'a PrintedLine) {
        let steps = &line.path.0;
        while self.innermost().steps > 0 && !self.is_inside(steps) {
            self.open.pop();
        }
        self.path = steps;
        self.open_containers(steps);
        let from = self.innermost();
        let start = self.out.len();
        if line.act == StatementAction::No {
            self.out += NO;
        }
        write_steps(self.grammar, &mut self.out, from.at, &steps[from.steps..]);
        write_value(self.grammar.schema(), &mut self.out, &line.path, &line.act);
        self.finish(start, line.note.as_deref());
        if line.act == StatementAction::Create {
            let at = steps.last().map_or(from.at, |step| step.node);
            self.open.push(OpenBlock { steps: steps.len(), at });
        }
    }

    /// True when `steps` lie within the innermost block, below its node.
    fn is_inside(&self, steps: &[Step]) -> bool {
        let depth = self.innermost().steps;
        steps.len() > depth && steps[..depth] == self.path[..depth]
    }

    /// Opens a block for each container that has a word, down to the first entry.
    fn open_containers(&mut self, steps: &'a [Step]) {
        let schema = self.grammar.schema();
        while let Some((step, rest)) = steps[self.innermost().steps..].split_first() {
            let from = self.innermost();
            let plain = schema.node(step.node).kind == NodeKind::Container { presence: false };
            let Some(word) = self.grammar.keyword_for(from.at, step.node, false) else { return };
            if !plain || rest.is_empty() {
                return;
            }
            let start = self.out.len();
            self.out += &word.text;
            self.finish(start, None);
            self.open.push(OpenBlock { steps: from.steps + 1, at: step.node });
        }
    }

    /// Indents the text from `start` on, and ends the line.
    fn finish(&mut self, start: usize, note: Option<&str>) {
        let depth = self.open.len() - 1;
        self.out.insert_str(start, &INDENT.repeat(depth));
        if let Some(note) = note {
            self.out += " # ";
            self.out += note;
        }
        self.out.push('\n');
    }
}

/// Writes each word of the path with a blank before it; keys follow the names of their lists.
fn write_steps(grammar: &Grammar<'_>, out: &mut String, from: NodeId, steps: &[Step]) {
    let mut at = from;
    for (number, step) in steps.iter().enumerate() {
        let is_target = number + 1 == steps.len();
        let Some(word) = grammar.keyword_for(at, step.node, is_target) else { continue };
        if !out.is_empty() && !out.ends_with('\n') {
            out.push(' ');
        }
        *out += &word.text;
        if let Some(keys) = &step.keys {
            write_keys(grammar.schema(), out, grammar.schema().node(step.node), keys);
        }
        at = step.node;
    }
}

fn write_keys(schema: &Schema, out: &mut String, list: &Node, keys: &Keys) {
    let NodeKind::List { keys: leaves } = &list.kind else { return };
    for (leaf, value) in leaves.iter().zip(keys) {
        write_one(schema, out, *leaf, value);
    }
}

fn write_value(schema: &Schema, out: &mut String, path: &InstancePath, act: &StatementAction) {
    let (StatementAction::Set(value), Some(step)) = (act, path.last()) else { return };
    match value {
        Value::Empty => {}
        Value::List(values) => values.iter().for_each(|it| write_one(schema, out, step.node, it)),
        value => write_one(schema, out, step.node, value),
    }
}

fn write_one(schema: &Schema, out: &mut String, leaf: NodeId, value: &Value) {
    out.push(' ');
    let text = match value {
        // Two modules may have identities of the same name.
        Value::Identity(name)
            if schema.leaf(leaf).ty.parse_text(bare_identity(name)).as_ref() != Ok(value) =>
        {
            name.to_string()
        }
        value => value.to_string(),
    };
    write_word(out, &text);
}
