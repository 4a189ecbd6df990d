//! Output of a template of the command line, as far as it is known without values.
//!
//! A template is written out several times with a mark for each value: once with all branches taken, once with none, and once for
//! each branch that is not taken then. Some of these texts are none that any values would make. So a line is wrong when its
//! first word is in no text a part of a line that is right.

use std::collections::BTreeMap;
use std::ops::Range;

use holdfast_config::cli::{Grammar, UNKNOWN, read_skeleton};
use minijinja::machinery::ast::Stmt;

use crate::error::Position;
use crate::output::{self, NO_NO};
use crate::package::Package;

/// Branches of one template that are left out one by one. Branches of a longer template are only taken together.
const BRANCHES_MOST: usize = 64;

/// Branches by the addresses of their nodes, and whether each is taken.
type Choices = Vec<(usize, bool)>;

/// Places of wrong lines in a template, with the reasons.
pub(super) fn check(
    package: &Package,
    grammar: &Grammar<'_>,
    source: &str,
    statements: &[Stmt<'_>],
) -> impl Iterator<Item = (Position, String)> {
    let mut branches = Vec::new();
    find_branches(statements, &Vec::new(), &mut branches);
    branches.truncate(BRANCHES_MOST);
    let alone = branches.into_iter().map(|choices| (choices, true));
    let all = [(Vec::new(), true), (Vec::new(), false)].into_iter().chain(alone);
    let mut wrong = BTreeMap::new();
    let mut right = Vec::new();
    for (choices, is_taken) in all {
        let mut skeleton = Skeleton::new(source, choices, is_taken);
        skeleton.statements(statements);
        if skeleton.is_open {
            wrong.clear();
            break;
        }
        for line in skeleton.lines(package, grammar) {
            match line.verdict {
                Some(reason) => drop(wrong.insert(line.first_word, reason)),
                None => right.extend(line.parts),
            }
        }
    }
    wrong.retain(|octet, _| !right.iter().any(|part| part.contains(octet)));
    wrong.into_iter().map(|(octet, reason)| (Position::of(source, octet), reason))
}

/// Lists, for each branch, the choices that lead to it and leave it out.
fn find_branches(statements: &[Stmt<'_>], above: &Choices, found: &mut Vec<Choices>) {
    let with = |node: usize, is_taken| above.iter().copied().chain([(node, is_taken)]).collect();
    for statement in statements {
        let (node, taken, left) = match statement {
            Stmt::IfCond(it) => (address(&**it), &it.true_body, Some(&it.false_body)),
            Stmt::ForLoop(it) => (address(&**it), &it.body, Some(&it.else_body)),
            Stmt::WithBlock(it) => (address(&**it), &it.body, None),
            Stmt::AutoEscape(it) => (address(&**it), &it.body, None),
            Stmt::Block(it) => (address(&**it), &it.body, None),
            _ => continue,
        };
        let Some(left) = left else {
            find_branches(taken, above, found);
            continue;
        };
        found.push(with(node, false));
        find_branches(taken, &with(node, true), found);
        find_branches(left, &with(node, false), found);
    }
}

fn address<T>(node: &T) -> usize {
    std::ptr::from_ref(node).addr()
}

/// A line of one text.
struct JudgedLine {
    /// Byte of the template at which its first word stands.
    first_word: usize,
    /// Parts of the template that it is made of.
    parts: Vec<Range<usize>>,
    /// Reason for which it is wrong.
    verdict: Option<String>,
}

/// One text of a template.
struct Skeleton<'s> {
    source: &'s str,
    choices: Choices,
    /// True where branches without a choice are taken.
    is_taken: bool,
    text: String,
    /// Bytes of the text at which parts of the template begin, with their bytes there, and whether they are written as they
    /// stand.
    parts: Vec<(usize, usize, bool)>,
    /// Other templates have a share in the text.
    is_open: bool,
}

impl<'s> Skeleton<'s> {
    fn new(source: &'s str, choices: Choices, is_taken: bool) -> Self {
        let text = String::new();
        let parts = Vec::new();
        let is_open = false;
        Self { source, choices, is_taken, text, parts, is_open }
    }

    fn takes(&self, node: usize) -> bool {
        let chosen = self.choices.iter().find(|(other, _)| *other == node);
        chosen.map_or(self.is_taken, |(_, is_taken)| *is_taken)
    }

    fn statements(&mut self, statements: &[Stmt<'_>]) {
        for statement in statements {
            match statement {
                Stmt::Template(it) => self.statements(&it.children),
                Stmt::EmitRaw(it) => {
                    let octet = it.raw.as_ptr().addr().wrapping_sub(self.source.as_ptr().addr());
                    self.parts.push((self.text.len(), octet.min(self.source.len()), true));
                    self.text.push_str(it.raw);
                }
                Stmt::EmitExpr(it) => {
                    self.parts.push((self.text.len(), it.span().start_offset as usize, false));
                    self.text.push(UNKNOWN);
                }
                Stmt::IfCond(it) if self.takes(address(&**it)) => self.statements(&it.true_body),
                Stmt::IfCond(it) => self.statements(&it.false_body),
                Stmt::ForLoop(it) if self.takes(address(&**it)) => self.statements(&it.body),
                Stmt::ForLoop(it) => self.statements(&it.else_body),
                Stmt::WithBlock(it) => self.statements(&it.body),
                Stmt::AutoEscape(it) => self.statements(&it.body),
                Stmt::Block(it) => self.statements(&it.body),
                Stmt::Set(_)
                | Stmt::SetBlock(_)
                | Stmt::Do(_)
                | Stmt::Macro(_)
                | Stmt::Import(_)
                | Stmt::FromImport(_) => {}
                Stmt::FilterBlock(_) | Stmt::Extends(_) | Stmt::Include(_) | Stmt::CallBlock(_) => {
                    self.is_open = true;
                }
            }
        }
    }

    /// The lines that can be judged.
    fn lines(&self, package: &Package, grammar: &Grammar<'_>) -> Vec<JudgedLine> {
        let schema = &package.list.models.native;
        let ends = self.text.match_indices('\n').map(|(at, _)| at);
        let starts: Vec<usize> = std::iter::once(0).chain(ends.map(|at| at + 1)).collect();
        let read = read_skeleton(grammar, &self.text).into_iter().filter_map(|line| {
            let verdict = match line.statement {
                Err(reason) => Some(reason),
                Ok(None) => None,
                Ok(Some((_, true))) => Some(NO_NO.to_owned()),
                Ok(Some((path, false))) => output::admit(schema, &package.grants, &path).err(),
            };
            let verdict = verdict.map(|reason| reason.replace(UNKNOWN, "{{ }}"));
            let start = *starts.get(line.line - 1)?;
            let end = starts.get(line.line).map_or(self.text.len(), |next| next - 1);
            let indent = self.text[start..end].len()
                - self.text[start..end].trim_start_matches([' ', '\t']).len();
            let parts = self.parts_in(start + indent..end);
            Some(JudgedLine { first_word: parts.first()?.start, parts, verdict })
        });
        read.collect()
    }

    /// The parts of the template that a range of the text comes from.
    fn parts_in(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let ends = self.parts.iter().skip(1).map(|(octet, ..)| *octet).chain([self.text.len()]);
        let part = |(&(octet, of_source, is_verbatim), end): (&(usize, usize, bool), usize)| {
            let from = octet.max(range.start);
            let to = end.min(range.end);
            let into = if is_verbatim { of_source + from - octet } else { of_source };
            let length = if is_verbatim { to.saturating_sub(from) } else { 1 };
            (from < to).then(|| into..into + length)
        };
        self.parts.iter().zip(ends).filter_map(part).collect()
    }
}
