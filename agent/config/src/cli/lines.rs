//! Lexer for lines and words: comments, quotes, escapes.

use std::fmt::Write;

use super::parse::UNKNOWN;
use crate::limits::{LEAF_LIST_ENTRIES, LimitExceeded};
use crate::progress::StopReason;

/// A line that is neither empty nor a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Line number, counted from 1.
    pub(super) number: usize,
    pub(super) indent: &'a str,
    pub(super) text: &'a str,
}

/// A word, and whether it was quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) quoted: bool,
}

impl Token {
    /// True for a word that is not known as a whole.
    pub(super) fn is_unknown(&self) -> bool {
        self.text.contains(UNKNOWN)
    }
}

/// Reason why a line cannot be read.
#[derive(Debug)]
pub(super) struct LineError {
    pub(super) reason: String,
    /// A word that names a node is not known, so nothing is wrong with the line.
    pub(super) is_unknown: bool,
    /// Set when the rest of the text is not read either.
    pub(super) stop: Option<StopReason>,
}

impl LineError {
    pub(super) fn unknown() -> Self {
        Self { reason: String::new(), is_unknown: true, stop: None }
    }
}

impl From<String> for LineError {
    fn from(reason: String) -> Self {
        Self { reason, is_unknown: false, stop: None }
    }
}

impl From<StopReason> for LineError {
    fn from(stop: StopReason) -> Self {
        Self { reason: stop.to_string(), is_unknown: false, stop: Some(stop) }
    }
}

impl From<LimitExceeded> for LineError {
    fn from(limit: LimitExceeded) -> Self {
        StopReason::from(limit).into()
    }
}

/// Words of a line apart from the entries of a leaf-list: names and keys of the path. The models are not nearly
/// that deep.
const MAX_NAMES: usize = 100;
const BLANK: [char; 2] = [' ', '\t'];
const COMMENT: [char; 2] = ['!', '#'];

/// Splits a text into lines, without empty ones and comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    (1..).zip(text.split('\n')).filter_map(|(number, line)| {
        let line = line.trim_end_matches(['\r', ' ', '\t']);
        let text = line.trim_start_matches(BLANK);
        let says = !text.is_empty() && !text.starts_with(COMMENT);
        says.then(|| Line { number, indent: &line[..line.len() - text.len()], text })
    })
}

/// Splits a line at blanks; a word that is `!` or `#` starts a comment.
///
/// # Errors
/// When a quote or an escape is malformed, or there are more words than the longest leaf-list has entries.
pub(super) fn words(line: &str) -> Result<Vec<Token>, LineError> {
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (token, after) = word(rest)?;
        if !token.quoted && matches!(&*token.text, "!" | "#") {
            break;
        }
        if !after.is_empty() && !after.starts_with(BLANK) {
            return Err("a blank is missing after a closing quote".to_owned().into());
        }
        if words.len() == MAX_NAMES + LEAF_LIST_ENTRIES.figure {
            return Err(LimitExceeded { limit: &LEAF_LIST_ENTRIES }.into());
        }
        words.push(token);
        rest = after.trim_start_matches(BLANK);
    }
    Ok(words)
}

fn word(text: &str) -> Result<(Token, &str), String> {
    if let Some(inside) = text.strip_prefix('"') {
        let (text, after) = quoted(inside)?;
        return Ok((Token { text, quoted: true }, after));
    }
    let end = text.find(BLANK).unwrap_or(text.len());
    let (plain, after) = text.split_at(end);
    match plain.find(['"', '\\']) {
        Some(at) => {
            let odd = &plain[at..=at];
            Err(format!(
                "`{odd}` in a word that does not begin with a quote: put all of it into quotes"
            ))
        }
        None => Ok((Token { text: plain.to_owned(), quoted: false }, after)),
    }
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((out, &text[at + 1..])),
            '\\' => out.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                Some((_, plain @ ('"' | '\\'))) => plain,
                Some((_, other)) => {
                    return Err(format!(
                        "`\\{other}` is not an escape: use one of \\n, \\r, \\t, \\\" and \\\\"
                    ));
                }
                None => return Err("nothing follows the last backslash".to_owned()),
            }),
            c => out.push(c),
        }
    }
    Err("a quote is not closed on its line; a line break inside is written \\n".to_owned())
}

/// Writes a word so that [`words`] reads it back wherever it stands in a line, with quotes where needed.
pub fn write_word(out: &mut String, word: &str) {
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\');
    if !word.is_empty() && !word.starts_with(COMMENT) && !word.contains(odd) {
        return out.push_str(word);
    }
    out.push('"');
    for c in word.chars() {
        let _infallible = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '"' | '\\' => write!(out, "\\{c}"),
            c => out.write_char(c),
        };
    }
    out.push('"');
}
