//! Parser from text to statements.
//!
//! Every line is read in the context of the lines above it. An error in one line does not keep the others from
//! being read, so that one answer names all bad lines. Lines below a bad one are skipped, because their context is
//! unknown.

use holdfast_common::nearest;

use super::grammar::{Grammar, Keyword, NO};
use super::lines::{Line, LineError, Token, lines, words};
use super::{CliError, Statement, StatementAction};
use crate::instance::{InstancePath, Step};
use crate::limits;
use crate::progress::ParseProgress;
use crate::schema::types::BuiltinType;
use crate::schema::{NodeId, NodeKind, Schema, ValueError};
use crate::value::Value;

/// Bad lines that one answer names; a text of another format would have thousands.
const MAX_ERRORS: usize = 100;

/// Parses a text. Statements are in the order of their lines.
///
/// # Errors
/// All lines that cannot be read, up to [`MAX_ERRORS`].
pub fn parse(schema: &Schema, text: &str) -> Result<Vec<Statement>, Vec<CliError>> {
    parse_with_progress(schema, text, &ParseProgress::default())
}

/// Parses a text that is part of a request, unless the request is cancelled meanwhile. Each line that opens a list
/// entry counts against the limit of the request.
///
/// # Errors
/// The errors of [`parse`]. Parsing stops when the text is too large, or the request is cancelled.
pub fn parse_with_progress(
    schema: &Schema,
    text: &str,
    progress: &ParseProgress,
) -> Result<Vec<Statement>, Vec<CliError>> {
    let grammar = Grammar::new(schema);
    let mut reader = StatementReader::new(&grammar);
    for line in lines(text) {
        reader.line(&line, progress);
        let stopped = reader.errors.last().is_some_and(|error| error.stop.is_some());
        if stopped || reader.errors.len() == MAX_ERRORS {
            break;
        }
    }
    if reader.errors.is_empty() { Ok(reader.statements) } else { Err(reader.errors) }
}

/// Stands in a text for what is not known of it: a word, or a part of one.
pub const UNKNOWN: char = '\u{fffc}';

/// The result for one line of a text that has words which are not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkeletonLine {
    /// Line number, counted from 1.
    pub line: usize,
    /// The node that the line names, without values that are not known, and whether it is a line with `no`; `None` for one that
    /// leads to something else.
    pub statement: Result<Option<(InstancePath, bool)>, String>,
}

/// Reads the lines of a text in which [`UNKNOWN`] stands for what is not known. Any value fits there, and lines below an unknown
/// word are left out.
pub fn read_skeleton(grammar: &Grammar<'_>, text: &str) -> Vec<SkeletonLine> {
    let mut reader = StatementReader::new(grammar);
    let mut found = Vec::new();
    for line in lines(text) {
        let statements = reader.statements.len();
        let errors = reader.errors.len();
        reader.line(&line, &ParseProgress::default());
        let statement = match (&reader.last, reader.errors.get(errors)) {
            (_, Some(error)) => Err(error.reason.clone()),
            (NestedContext::Skipped, None) => continue,
            (_, None) => Ok(reader
                .statements
                .get(statements)
                .map(|it| (it.path.clone(), it.act == StatementAction::No))),
        };
        found.push(SkeletonLine { line: line.number, statement });
    }
    found
}

struct StatementReader<'a> {
    grammar: &'a Grammar<'a>,
    statements: Vec<Statement>,
    errors: Vec<CliError>,
    /// Open blocks, outermost first.
    levels: Vec<Level<'a>>,
    /// Context of deeper lines that follow directly.
    last: NestedContext,
}

/// Lines of one indentation. The first line of a text sets the outermost indentation.
struct Level<'a> {
    indent: Option<&'a str>,
    /// `None` in a block whose lines are skipped.
    block: Option<Block>,
}

#[derive(Clone)]
struct Block {
    path: InstancePath,
    at: NodeId,
}

/// Context that a line provides for deeper lines.
enum NestedContext {
    Block(Block),
    /// The line was invalid.
    Skipped,
    Nothing(String),
}

/// Result of a line: its statement if it has one, and the context for deeper lines.
type ParsedLine = (Option<(InstancePath, StatementAction)>, NestedContext);

impl<'a> StatementReader<'a> {
    fn new(grammar: &'a Grammar<'a>) -> Self {
        let root = Block { path: InstancePath::root(), at: grammar.schema().root() };
        let levels = vec![Level { indent: None, block: Some(root) }];
        let statements = Vec::new();
        let errors = Vec::new();
        Self { grammar, statements, errors, levels, last: NestedContext::Skipped }
    }

    fn line(&mut self, line: &Line<'a>, progress: &ParseProgress) {
        if let Err(reason) = self.find_level(line.indent) {
            self.fail(line, reason.into());
            self.levels.push(Level { indent: Some(line.indent), block: None });
        }
        let innermost = self.levels.last().expect("the outermost level stays");
        let Some(block) = innermost.block.clone() else {
            self.last = NestedContext::Skipped;
            return;
        };
        let read = self.read(block, line.text).and_then(|read| {
            let entries = usize::from(matches!(read.0, Some((_, StatementAction::Create))));
            progress.count_entries(entries)?;
            Ok(read)
        });
        match read {
            Ok((parsed, below)) => {
                let statement = |(path, act)| Statement { line: line.number, path, act };
                self.statements.extend(parsed.map(statement));
                self.last = below;
            }
            // An unknown word leads to an unknown place.
            Err(LineError { is_unknown: true, .. }) => self.last = NestedContext::Skipped,
            Err(misread) => {
                self.fail(line, misread);
                self.last = NestedContext::Skipped;
            }
        }
    }

    fn fail(&mut self, line: &Line<'_>, misread: LineError) {
        let LineError { reason, stop, .. } = misread;
        let reason = limits::excerpt(&reason);
        self.errors.push(CliError { line: line.number, text: line.text.to_owned(), reason, stop });
    }

    /// Opens or closes blocks until the innermost one has this indentation.
    fn find_level(&mut self, indent: &'a str) -> Result<(), String> {
        let last = std::mem::replace(&mut self.last, NestedContext::Skipped);
        let innermost = self.levels.last_mut().expect("the outermost level stays");
        let current = *innermost.indent.get_or_insert(indent);
        if indent == current {
            return Ok(());
        }
        if indent.starts_with(current) {
            let block = match last {
                NestedContext::Block(block) => Some(block),
                NestedContext::Skipped => None,
                NestedContext::Nothing(what) => {
                    return Err(format!("no line may be indented below {what}"));
                }
            };
            self.levels.push(Level { indent: Some(indent), block });
            return Ok(());
        }
        let outer = |level: &Level<'a>| level.indent.unwrap_or_default();
        if let Some(at) = self.levels.iter().rposition(|level| outer(level) == indent) {
            self.levels.truncate(at + 1);
            return Ok(());
        }
        let around = self.levels.iter().rposition(|level| indent.starts_with(outer(level)));
        self.levels.truncate(around.unwrap_or_default() + 1);
        match self.levels.last() {
            // A line below a skipped one has no context.
            Some(Level { block: None, .. }) => {
                self.levels.push(Level { indent: Some(indent), block: None });
                Ok(())
            }
            _ => Err("the indentation fits no block above".to_owned()),
        }
    }

    fn read(&self, block: Block, text: &str) -> Result<ParsedLine, LineError> {
        let tokens = words(text)?;
        match tokens.split_first() {
            Some((first, rest)) if first.text == NO && !first.quoted => self.negation(block, rest),
            _ => self.statement(block, &tokens),
        }
    }

    fn negation(&self, block: Block, tokens: &[Token]) -> Result<ParsedLine, LineError> {
        if tokens.is_empty() {
            let reason = format!("`{NO}` needs an object: {}", self.allowed(block.at));
            return Err(reason.into());
        }
        let (block, word, rest) = self.walk(block, tokens)?;
        if let Some(extra) = rest.first() {
            let word = word.map_or("", |word| word.text.as_str());
            let reason = format!("`{NO} {word}` takes no value: leave out `{}`", extra.text);
            return Err(reason.into());
        }
        Ok((
            Some((block.path, StatementAction::No)),
            NestedContext::Nothing(format!("a line with `{NO}`")),
        ))
    }

    fn statement(&self, block: Block, tokens: &[Token]) -> Result<ParsedLine, LineError> {
        let (block, word, rest) = self.walk(block, tokens)?;
        match &self.grammar.schema().node(block.at).kind {
            NodeKind::Leaf | NodeKind::LeafList => {
                limits::LEAF_LIST_ENTRIES.check(rest.len())?;
                let word = word.map(|word| word.text.clone()).unwrap_or_default();
                let value =
                    self.value(block.at, rest).map_err(|reason| format!("`{word}`: {reason}"))?;
                let below = NestedContext::Nothing(format!("the value of `{word}`"));
                Ok((Some((block.path, StatementAction::Set(value))), below))
            }
            NodeKind::List { .. } | NodeKind::Container { presence: true } => Ok((
                Some((block.path.clone(), StatementAction::Create)),
                NestedContext::Block(block),
            )),
            NodeKind::Root | NodeKind::Container { presence: false } => {
                Ok((None, NestedContext::Block(block)))
            }
        }
    }

    /// Follows words as long as they name nodes; the rest is the value of a leaf.
    fn walk<'t>(
        &self,
        mut block: Block,
        mut tokens: &'t [Token],
    ) -> Result<(Block, Option<&'a Keyword>, &'t [Token]), LineError> {
        let mut last = None;
        while let Some((token, rest)) = tokens.split_first() {
            let kind = &self.grammar.schema().node(block.at).kind;
            if matches!(kind, NodeKind::Leaf | NodeKind::LeafList) {
                break;
            }
            if token.is_unknown() {
                return Err(LineError::unknown());
            }
            let found = self.grammar.word(block.at, &token.text);
            let word = found.ok_or_else(|| self.unknown(block.at, &token.text))?;
            block.path.0.extend(Grammar::steps(word));
            block.at = word.node;
            tokens = self.take_keys(&mut block, word, rest)?;
            last = Some(word);
        }
        Ok((block, last, tokens))
    }

    /// Adds the keys of a list to the last step of a path.
    fn take_keys<'t>(
        &self,
        block: &mut Block,
        word: &Keyword,
        tokens: &'t [Token],
    ) -> Result<&'t [Token], String> {
        let schema = self.grammar.schema();
        let NodeKind::List { keys } = &schema.node(word.node).kind else { return Ok(tokens) };
        let Some((key_tokens, rest)) = tokens.split_at_checked(keys.len()) else {
            return Err(format!("a key is missing: `{}`", self.grammar.form(word)));
        };
        let value = |(key, token): (&NodeId, &Token)| {
            let reason =
                |error| format!("`{}` of `{}`: {error}", schema.node(*key).name, word.text);
            if token.is_unknown() {
                return Ok(Value::Str(token.text.as_str().into()));
            }
            schema.leaf(*key).ty.parse_text(&token.text).map_err(reason)
        };
        let values = keys.iter().zip(key_tokens).map(value).collect::<Result<_, _>>()?;
        if let Some(step) = block.path.0.last_mut() {
            *step = Step::entry(word.node, values);
        }
        Ok(rest)
    }

    fn value(&self, leaf: NodeId, tokens: &[Token]) -> Result<Value, String> {
        let node = self.grammar.schema().node(leaf);
        let ty = &self.grammar.schema().leaf(leaf).ty;
        let text = |error: ValueError| error.to_string();
        let unknown = tokens.iter().find(|token| token.is_unknown());
        if let Some(token) =
            unknown.filter(|_| node.kind == NodeKind::LeafList || tokens.len() == 1)
        {
            return Ok(Value::Str(token.text.as_str().into()));
        }
        match (&node.kind, tokens) {
            (NodeKind::LeafList, _) => {
                let texts: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
                node.parse_texts(&texts).map_err(text)
            }
            (_, [one]) => ty.parse_text(&one.text).map_err(text),
            (_, []) if takes_nothing(&ty.base) => ty.empty().map_err(text),
            (_, []) => Err(format!("the value is missing: {ty}")),
            (_, [_, extra, ..]) => Err(format!(
                "one value is expected: leave out `{}`, or put text with blanks into quotes",
                extra.text
            )),
        }
    }

    fn unknown(&self, at: NodeId, word: &str) -> String {
        let schema = self.grammar.schema();
        if let Some(node) = schema.child(at, None, word) {
            return if schema.is_list_key(node) {
                format!("`{word}` is a key, which follows the name of its list")
            } else {
                format!("`{word}` is state, which cannot be written")
            };
        }
        // The list of words may be cut off.
        if let Some(near) = self.nearest(at, word) {
            return format!("unknown word `{word}`: did you mean `{near}`? {}", self.allowed(at));
        }
        let inside = match self.statements.last() {
            Some(above) if self.is_below(above, word) => {
                "; to belong to the line above, it must be indented deeper"
            }
            _ => "",
        };
        format!("unknown word `{word}`: {}{inside}", self.allowed(at))
    }

    fn is_below(&self, above: &Statement, word: &str) -> bool {
        let entered = above.act == StatementAction::Create;
        entered
            && above.path.last().is_some_and(|step| self.grammar.word(step.node, word).is_some())
    }

    fn allowed(&self, at: NodeId) -> String {
        let words: Vec<String> = self
            .grammar
            .suggested_keywords(at)
            .map(|word| format!("`{}`", self.grammar.form(word)))
            .collect();
        if words.is_empty() {
            "nothing more is valid here".to_owned()
        } else {
            format!("valid here: {}", words.join(", "))
        }
    }

    /// Suggests the word that was probably meant.
    fn nearest(&self, at: NodeId, word: &str) -> Option<&str> {
        nearest(word, || self.grammar.suggested_keywords(at).map(|it| it.text.as_str()))
    }
}

/// True for a leaf that carries no value, only its presence.
fn takes_nothing(base: &BuiltinType) -> bool {
    match base {
        BuiltinType::Empty => true,
        BuiltinType::Union(members) => members.iter().any(|member| takes_nothing(&member.base)),
        _ => false,
    }
}
