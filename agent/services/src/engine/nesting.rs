//! Bounds on what a template may nest, checked by its tokens before it is compiled.
//!
//! The library bounds brackets and blocks that stand within one another. It does not bound three things. Each takes
//! the stack of the thread and so ends the process. Chains that it reads by calling itself for each link
//! (`not not ...`, `a if b else ...`, `{% elif %}`). Chains that it compiles by walking a tree as deep as the chain
//! is long (`a + b + c`). And values in values, which are printed, compared and let go of level by level: they grow
//! by a level with each list or map that a template writes around one, and with filters that wrap their input. Loops
//! cannot pile them up, because what is set in a loop ends with its round, and `namespace` is not there.

use std::ops::Range;

use holdfast_config::{Limit, LimitExceeded};
use minijinja::machinery::{Token, tokenize};

use crate::limits::{TAG_TOKENS, TEMPLATE_BRANCHES, TEMPLATE_FILTERS, TEMPLATE_LITERALS};

/// Words after which a bracket begins a value. After any other name it calls it, or takes a part of it.
const OPERATORS: [&str; 12] =
    ["and", "or", "not", "in", "is", "if", "elif", "else", "for", "set", "with", "do"];

/// Limit that a template or expression exceeds, and where.
#[derive(Debug)]
pub(super) struct NestingError {
    pub(super) at: Range<usize>,
    pub(super) limit: LimitExceeded,
}

/// Counts of what may be nested.
#[derive(Default)]
struct Counts {
    tokens: usize,
    branches: usize,
    literals: usize,
    filters: usize,
}

/// Checks a template, or with `expression` a single expression. Text that is not a token is left to the compiler,
/// which names it.
pub(super) fn check(source: &str, expression: bool) -> Result<(), NestingError> {
    let mut counts = Counts::default();
    let mut before = Token::BlockStart;
    for (token, span) in tokenize(source, expression, Default::default()).map_while(Result::ok) {
        counts.add(&before, &token).map_err(|limit| NestingError {
            at: span.start_offset as usize..span.end_offset as usize,
            limit,
        })?;
        before = token;
    }
    Ok(())
}

impl Counts {
    fn add(&mut self, before: &Token<'_>, token: &Token<'_>) -> Result<(), LimitExceeded> {
        let count = |counter: &mut usize, limit: &'static Limit| {
            *counter += 1;
            limit.check(*counter)
        };
        match token {
            Token::VariableStart | Token::BlockStart => self.tokens = 0,
            _ => count(&mut self.tokens, &TAG_TOKENS)?,
        }
        match token {
            Token::Ident("elif") if matches!(before, Token::BlockStart) => {
                count(&mut self.branches, &TEMPLATE_BRANCHES)
            }
            Token::BracketOpen | Token::BraceOpen | Token::ParenOpen if !is_operand(before) => {
                count(&mut self.literals, &TEMPLATE_LITERALS)
            }
            Token::Pipe => count(&mut self.filters, &TEMPLATE_FILTERS),
            _ => Ok(()),
        }
    }
}

/// True for the end of something that can be called, or taken a part of.
fn is_operand(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(name) => !OPERATORS.contains(name),
        Token::BracketClose | Token::BraceClose | Token::ParenClose => true,
        Token::Str(_) | Token::String(_) => true,
        _ => false,
    }
}
