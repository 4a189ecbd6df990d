//! Statements of YANG text (RFC 7950 section 6), with their places.
//!
//! libyang decides what a module means; this reader is for rules about how a module is written, which the compiled module
//! no longer shows.

use smol_str::SmolStr;

/// A statement: a keyword, its argument, and the statements in its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Prefix of a keyword that an extension defines.
    pub(super) prefix: Option<SmolStr>,
    pub(super) keyword: SmolStr,
    pub(super) argument: String,
    /// Place of its first byte.
    pub(super) octet: usize,
    pub(super) inside: Vec<Statement>,
}

/// Reason why a text is not YANG, and its place in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) octet: usize,
    pub(super) reason: &'static str,
}

/// Blocks within blocks. Modules in use have fewer than 30; the reader calls itself for each.
const DEPTH: usize = 100;

impl Statement {
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.prefix.is_none() && self.keyword == keyword
    }

    /// The statements of its block with this keyword.
    pub(super) fn all<'a>(&'a self, keyword: &'a str) -> impl Iterator<Item = &'a Statement> {
        self.inside.iter().filter(move |statement| statement.is(keyword))
    }

    /// Argument of the first statement of its block with this keyword.
    pub(super) fn argument_of(&self, keyword: &str) -> Option<&str> {
        let found = self.inside.iter().find(|statement| statement.is(keyword));
        found.map(|statement| statement.argument.as_str())
    }

    /// Calls `visit` for this statement and all below it.
    pub(super) fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Statement)) {
        visit(self);
        self.inside.iter().for_each(|statement| statement.walk(visit));
    }
}

/// Reads a text that holds one statement, as a module does.
pub(super) fn read(text: &str) -> Result<Statement, SyntaxError> {
    let mut reader = Reader { text, at: 0 };
    reader.skip()?;
    let statement = reader.statement(0)?;
    reader.skip()?;
    match reader.rest().is_empty() {
        true => Ok(statement),
        false => Err(reader.error("something follows the module")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, reason: &'static str) -> SyntaxError {
        SyntaxError { octet: self.at, reason }
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        self.at += if found { mark.len() } else { 0 };
        found
    }

    /// Skips blanks and comments.
    fn skip(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.error("a comment is not closed"))?;
                self.at += end + "*/".len();
            } else {
                return Ok(());
            }
        }
    }

    fn statement(&mut self, depth: usize) -> Result<Statement, SyntaxError> {
        if depth == DEPTH {
            return Err(self.error("too many blocks within blocks"));
        }
        let octet = self.at;
        let word = self.unquoted()?;
        let (prefix, keyword) = match word.split_once(':') {
            Some((prefix, keyword)) => (Some(prefix.into()), keyword.into()),
            None => (None, word.into()),
        };
        self.skip()?;
        let argument = match self.rest().starts_with([';', '{']) {
            true => String::new(),
            false => self.argument()?,
        };
        self.skip()?;
        let mut inside = Vec::new();
        if !self.eat(";") {
            if !self.eat("{") {
                return Err(self.error("`;` or `{` is expected"));
            }
            self.skip()?;
            while !self.eat("}") {
                inside.push(self.statement(depth + 1)?);
                self.skip()?;
            }
        }
        Ok(Statement { prefix, keyword, argument, octet, inside })
    }

    fn argument(&mut self) -> Result<String, SyntaxError> {
        if !self.rest().starts_with(['"', '\'']) {
            return self.unquoted().map(str::to_owned);
        }
        let mut argument = self.quoted()?;
        self.skip()?;
        while self.eat("+") {
            self.skip()?;
            argument += &self.quoted()?;
            self.skip()?;
        }
        Ok(argument)
    }

    fn unquoted(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}' | '"' | '\'');
        let mut end = rest.find(ends).unwrap_or(rest.len());
        for comment in ["//", "/*"] {
            end = rest[..end].find(comment).unwrap_or(end);
        }
        if end == 0 {
            return Err(self.error("a word is expected"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    fn quoted(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let unclosed = SyntaxError { octet: start, reason: "a quote is not closed" };
        if self.eat("'") {
            let end = self.rest().find('\'').ok_or(unclosed)?;
            let text = &self.rest()[..end];
            self.at += end + 1;
            return Ok(text.to_owned());
        }
        if !self.eat("\"") {
            return Err(self.error("a quoted text is expected after `+`"));
        }
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, plain @ ('"' | '\\'))) => text.push(plain),
                    Some((_, other)) => text.extend(['\\', other]),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err(unclosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement_text(statement: &Statement) -> String {
        let inside: Vec<String> = statement.inside.iter().map(statement_text).collect();
        let prefix = statement.prefix.as_ref().map_or(String::new(), |it| format!("{it}:"));
        format!("{prefix}{} {:?} [{}]", statement.keyword, statement.argument, inside.join(", "))
    }

    #[test]
    fn statements_are_read_with_quotes_comments_and_extensions() {
        for (text, want) in [
            ("module m { }", "module \"m\" []"),
            ("a b; ", "a \"b\" []"),
            ("a { b; c d { e f; } }", "a \"\" [b \"\" [], c \"d\" [e \"f\" []]]"),
            ("a 'x;{}' + \"y\\n\\\"z\\q\" ;", "a \"x;{}y\\n\\\"z\\\\q\" []"),
            ("/* c */ a // d\n b /* e */;", "a \"b\" []"),
            ("a { x:y /z/u; }", "a \"\" [x:y \"/z/u\" []]"),
            ("a b/* c */;", "a \"b\" []"),
        ] {
            assert_eq!(read(text).map(|it| statement_text(&it)), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_statement_is_refused_with_its_place() {
        for (text, octet, reason) in [
            ("", 0, "a word is expected"),
            ("a", 1, "a word is expected"),
            ("a b", 3, "`;` or `{` is expected"),
            ("a 'b", 2, "a quote is not closed"),
            ("a \"b\\", 2, "a quote is not closed"),
            ("a 'b' + c;", 8, "a quoted text is expected after `+`"),
            ("a { b;", 6, "a word is expected"),
            ("a; b;", 3, "something follows the module"),
            ("/* a;", 0, "a comment is not closed"),
        ] {
            assert_eq!(read(text), Err(SyntaxError { octet, reason }), "{text}");
        }
        let deep = "a {".repeat(1000);
        assert_eq!(read(&deep).unwrap_err().reason, "too many blocks within blocks");
    }
}
