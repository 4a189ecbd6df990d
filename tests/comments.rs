//! The wording of comments, messages and pages: each doc comment begins with a noun or an active verb, and no sentence
//! has a turn of phrase that makes a reader go back.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use holdfast_tests::sources::{files, workspace};

/// First words of doc comments that lack a subject.
const WITHOUT_SUBJECT: &[&str] = &[
    "It", "Nobody", "Somebody", "That", "The same", "They", "What", "Whether", "Who", "Whoever",
    "Whom", "Whose",
];

/// Doc comments per thousand in a crate that may begin with such a word. Well-written workspaces have a few.
const TOLERATED_PER_THOUSAND: usize = 15;

/// Turns of phrase that make a reader go back, each with plain forms.
const REFUSED: &[(&str, &str)] = &[
    ("is no", "say `is not a`, or name what it is"),
    ("are no", "say `are not`, or name what they are"),
    ("but for", "say `except`"),
    ("of which", "say `whose`, or begin another sentence"),
    ("by itself", "say `alone`, `without a request` or `unexpectedly`"),
    ("from then on", "say `after that`"),
    ("goes before", "say `overrides`, `takes precedence over` or `goes ahead of`"),
];

/// Words behind `is no` and `are no` with which the phrase is plain.
const PLAIN_AFTER_NO: &[&str] = &["longer", "more"];

/// Beginnings of sentences that point at their subject instead of naming it. Questions and headings may begin so.
const POINTING: &[&str] = &["Those", "What", "One that"];

/// Words of the shortest string that is read as a sentence. Shorter ones are names and parts of lines.
const WORDS_OF_A_SENTENCE: usize = 3;

/// This file, which has to quote what it refuses.
const THIS_FILE: &str = "tests/comments.rs";

#[test]
fn sentences_are_plain() {
    let mut broken = Vec::new();
    for file in files(&workspace(), &["rs"]).iter().filter(|file| !file.ends_with(THIS_FILE)) {
        let text = fs::read_to_string(file).unwrap();
        for (line, is_comment, sentences) in texts(&text) {
            let found = complaints(&sentences, is_comment);
            broken.extend(found.iter().map(|it| report(file, line, it, &sentences)));
        }
    }
    for file in files(&workspace(), &["md"]) {
        for (line, sentences) in paragraphs(&fs::read_to_string(&file).unwrap()) {
            let found = complaints(&sentences, true);
            broken.extend(found.iter().map(|it| report(&file, line, it, &sentences)));
        }
    }
    assert!(broken.is_empty(), "{} sentences are not plain:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn turns_of_phrase_are_found() {
    let rows: [(&str, &[&str]); 12] = [
        ("A start is no revision.", &["is no"]),
        ("There is no port. It is no longer there, and there are no more.", &[]),
        ("These are no\nfailures.", &["are no"]),
        ("All but for the last, of which one is left.", &["but for", "of which"]),
        ("From then on it runs by itself.", &["by itself", "from then on"]),
        ("`is no port` is a text, and `One that` too.", &[]),
        ("It goes before the other.", &["goes before"]),
        ("Values. Those of links come first.", &["Those"]),
        ("What differs? Nothing.", &[]),
        ("* **What differs.** All.", &["What"]),
        ("One that waits stays. Whatever comes, one that goes is fine.", &["One that"]),
        ("This is not a mistake, and whose it is does not matter.", &[]),
    ];
    for (text, want) in rows {
        let found: Vec<&str> = paragraphs(text)
            .iter()
            .flat_map(|(_, paragraph)| complaints(paragraph, true))
            .map(|(phrase, _)| phrase)
            .collect();
        assert_eq!(found, want, "{text}");
    }
}

#[test]
fn comments_strings_and_pages_are_read() {
    let rust = "//! One\n//! two.\n\nlet a = \"a \\\"b c\\\n    d e\"; // f\nlet q = '\"'; // g\nlet r = r#\"h \"i\" j\"#;\n\
                /// ```\n/// code\n/// ```\n/// * k\n/// * l\nfn x<'a>() {}\n";
    let want = [
        (1, true, "One two."),
        (4, false, "a \"b cd e"),
        (5, true, "f g"),
        (7, false, "h \"i\" j"),
        (11, true, "k"),
        (12, true, "l"),
    ];
    let found = texts(rust);
    let found: Vec<_> = found.iter().map(|(line, is, text)| (*line, *is, text.as_str())).collect();
    assert_eq!(found, want);
    let page =
        "# What it is\n\nOne\ntwo.\n* three\n  four\n\n    code\n```\ncode\n```\n| five | six |\n";
    let want = [(3, "One two."), (5, "three four"), (12, "five"), (12, "six")];
    let found = paragraphs(page);
    let found: Vec<_> = found.iter().map(|(line, text)| (*line, text.as_str())).collect();
    assert_eq!(found, want);
}

/// One complaint for the list of all: where, what, the plain form, and the text.
fn report(file: &Path, line: usize, complaint: &(&str, &str), text: &str) -> String {
    let path = file.strip_prefix(workspace()).unwrap().display();
    let (phrase, instead) = complaint;
    format!("{path}:{line}: `{phrase}`: {instead}: {text}")
}

/// Turns of phrase in a paragraph, each with the plain form. Code in backquotes is left out.
fn complaints(paragraph: &str, has_sentences: bool) -> Vec<(&'static str, &'static str)> {
    let plain = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("`x`");
    let lower = plain.to_lowercase();
    let mut found: Vec<_> = REFUSED.iter().filter(|it| has_phrase(&lower, it.0)).copied().collect();
    let beginnings = plain.match_indices(['.', '?', '!']).map(|(at, _)| at + 1);
    let sentences = beginnings.chain([0]).map(|at| &plain[at..]).filter(|_| has_sentences);
    for sentence in sentences {
        let is_first = sentence.len() == plain.len();
        let trimmed = sentence.trim_start_matches([')', ' ', '*']);
        if !is_first && !sentence.trim_start_matches([')', '*']).starts_with(' ') {
            continue;
        }
        let end = trimmed.find(['.', '?', '!']);
        let is_question = end.is_some_and(|end| trimmed[end..].starts_with('?'));
        let begins = |word: &&&str| {
            let rest = trimmed.strip_prefix(**word);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        if let Some(word) = POINTING.iter().find(begins).filter(|_| !is_question) {
            found.push((word, "name the subject"));
        }
    }
    found
}

/// True when a text in small letters has a phrase as whole words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let before = &text[..at];
        let after = &text[at + phrase.len()..];
        let is_whole =
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        if !phrase.ends_with(" no") {
            return is_whole;
        }
        let Some(next) = after.strip_prefix(' ').filter(|_| is_whole) else { return false };
        next.starts_with(char::is_alphanumeric)
            && !before.ends_with("there ")
            && !PLAIN_AFTER_NO.iter().any(|word| next.starts_with(word))
    })
}

/// Paragraphs of a page with the lines where they begin: points of lists and cells of tables are paragraphs, too.
/// Headings and code are left out.
fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_fenced = false;
    let mut is_inside = false;
    let mut may_be_code = true;
    for (number, line) in (1..).zip(page.lines()) {
        let words = line.trim();
        let is_fence = words.starts_with("```");
        is_fenced ^= is_fence;
        let is_code = is_fenced || is_fence || (may_be_code && line.starts_with("    "));
        may_be_code = words.is_empty() || (is_code && !is_fenced && !is_fence);
        if is_code || words.is_empty() || words.starts_with('#') {
            is_inside = false;
            continue;
        }
        if let Some(cells) = words.strip_prefix('|') {
            let cells = cells.trim_end_matches('|').split(" | ").map(str::trim);
            found.extend(cells.map(|cell| (number, cell.to_owned())));
            is_inside = false;
            continue;
        }
        let point = point_of(words);
        match found.last_mut().filter(|_| is_inside && point.is_none()) {
            Some((_, paragraph)) => *paragraph += &format!(" {words}"),
            None => found.push((number, point.unwrap_or(words).to_owned())),
        }
        is_inside = true;
    }
    found
}

/// The text of a point of a list, without its mark.
fn point_of(words: &str) -> Option<&str> {
    let numbered = words.trim_start_matches(|sign: char| sign.is_ascii_digit());
    let numbered = numbered.strip_prefix(". ").filter(|_| numbered.len() < words.len());
    words.strip_prefix("* ").or_else(|| words.strip_prefix("- ")).or(numbered)
}

/// Paragraphs of comments (true) and strings (false) of a source, with the lines where they begin.
fn texts(source: &str) -> Vec<(usize, bool, String)> {
    let mut found: Vec<(usize, bool, String)> = Vec::new();
    let mut comment: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    let mut line = 1;
    while let Some(sign) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = if rest.starts_with("//") {
            let text = rest.lines().next().unwrap_or_default();
            comment.push((line, text));
            text.len()
        } else if let Some(length) = quoted(rest, source[..at].chars().next_back()) {
            found.push((line, false, unescaped(&rest[..length])));
            length
        } else {
            char_length(rest).unwrap_or(sign.len_utf8())
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    found.retain(|it| it.2.split_whitespace().count() >= WORDS_OF_A_SENTENCE);
    for lines in comment.chunk_by(|one, next| one.0 + 1 == next.0) {
        let body = |text: &str| {
            let body = text.trim_start_matches('/').trim_start_matches('!');
            body.strip_prefix(' ').unwrap_or(body).to_owned()
        };
        let page: Vec<String> = lines.iter().map(|it| body(it.1)).collect();
        let first = lines[0].0;
        let paragraphs = paragraphs(&page.join("\n"));
        found.extend(paragraphs.into_iter().map(|(line, text)| (first + line - 1, true, text)));
    }
    found.sort();
    found
}

/// Length of the string literal at the beginning of `rest`, before which `previous` stands.
fn quoted(rest: &str, previous: Option<char>) -> Option<usize> {
    let is_name = previous.is_some_and(|it| (it.is_alphanumeric() && it != 'b') || it == '_');
    if let Some(raw) = rest.strip_prefix('r').filter(|_| !is_name) {
        let text = raw.trim_start_matches('#');
        let hashes = raw.len() - text.len();
        let inside = text.strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        return inside.find(&end).map(|at| 1 + hashes + 1 + at + end.len());
    }
    let inside = rest.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = inside.find(|sign| {
        let ends = sign == '"' && !is_escaped;
        is_escaped = sign == '\\' && !is_escaped;
        ends
    })?;
    Some(end + 2)
}

/// Content of a string literal as a reader sees it: continued lines are joined, and escapes stand for themselves.
fn unescaped(literal: &str) -> String {
    let inside = literal.trim_start_matches('r').trim_matches('#');
    let inside = inside.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(inside);
    let mut lines = inside.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start()).replace("\\\"", "\"")
}

/// Length of the character literal at the beginning of `rest`. A lifetime has none.
fn char_length(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    let after = match inside.strip_prefix('\\') {
        Some(escape) => 1 + escape.char_indices().nth(1)?.0 + escape[1..].find('\'')?,
        None => inside.char_indices().nth(1).filter(|it| it.1 == '\'')?.0,
    };
    Some(after + 2)
}

#[test]
fn doc_comments_begin_with_a_subject() {
    let mut broken = Vec::new();
    for member in members() {
        let mut comments = 0;
        let mut found = Vec::new();
        for file in files(&workspace().join(&member), &["rs"]) {
            let text = fs::read_to_string(&file).unwrap();
            let path = file.strip_prefix(workspace()).unwrap().display();
            for (number, line) in beginnings(&text) {
                comments += 1;
                if lacks_subject(line) {
                    found.push(format!("{path}:{number}: {line}"));
                }
            }
        }
        assert!(comments > 0, "{member} has no doc comments: is it the folder of a crate?");
        let ceiling = comments * TOLERATED_PER_THOUSAND / 1000;
        if found.len() > ceiling {
            let count = found.len();
            broken.push(format!(
                "{member}: {count} of {comments} doc comments begin without a subject, {ceiling} may\n{}",
                found.join("\n")
            ));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_first_line_of_a_comment_decides() {
    let rows: [(&str, &[usize]); 5] = [
        ("/// What of no layer it changes.\nfn a() {}\n", &[1]),
        ("/// Keys with no observation.\n/// It continues.\nfn a() {}\n", &[]),
        ("//! Whose it is.\n\n    /// It's here.\n    a: u8,\n", &[1, 3]),
        ("/// Items.\n/// The same ones.\n/// What?\n", &[]),
        ("/// Itself.\nfn a() {}\n// What is no doc comment.\n/// The same of b.\n", &[4]),
    ];
    for (text, want) in rows {
        let found = beginnings(text).into_iter().filter(|(_, line)| lacks_subject(line));
        let numbers: Vec<usize> = found.map(|(number, _)| number).collect();
        assert_eq!(numbers, want, "{text}");
    }
}

/// The first line of each run of doc comment lines, with its number.
fn beginnings(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(comment) = comment
            && !is_inside
        {
            found.push((number, comment.trim()));
        }
        is_inside = comment.is_some();
    }
    found
}

fn lacks_subject(line: &str) -> bool {
    let mut rests = WITHOUT_SUBJECT.iter().filter_map(|word| line.strip_prefix(*word));
    rests.any(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// The folders of all crates, as the root manifest lists them.
fn members() -> Vec<String> {
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("members = [").unwrap();
    let (list, _) = rest.split_once(']').unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}
