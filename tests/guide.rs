//! The user guide: its contents name every page, its tables say what the code does, and its lines and sentences are
//! becomes less. `HOLDFAST_WRITE=1` draws its pictures anew.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holdfast_config::limits::{HELD_LIMITS, Limit, REQUEST_LIMITS};
use holdfast_faults::TYPES;
use holdfast_tests::guide;
use holdfast_tests::pages::blocks;
use holdfast_tests::picture::of_session;

/// Characters of the longest line outside of tables and code: what fits beside another window.
const LINE_CHARACTERS: usize = 120;

/// Words of the longest sentence that is read without going back.
const SENTENCE_WORDS: usize = 35;

#[test]
fn the_contents_name_every_page() {
    for list in ["README.md", guide::SUMMARY] {
        let contents = std::fs::read_to_string(guide::folder().join(list)).unwrap();
        let is_missing =
            |name: &String| *name != "README.md" && !contents.contains(&format!("]({name})"));
        let missing: Vec<_> =
            guide::pages().into_iter().map(|page| page.0).filter(is_missing).collect();
        assert!(missing.is_empty(), "{list} lacks {missing:?}");
    }
}

#[test]
fn every_page_begins_with_its_title() {
    for (name, text) in guide::pages() {
        let titles = lines_of_prose(&text).filter(|line| line.1.starts_with("# ")).count();
        assert!(text.starts_with("# ") && titles == 1, "{name} has {titles} titles");
    }
}

/// A picture shows the session that follows it on the page.
#[test]
fn pictures_show_what_the_pages_have() {
    let is_written = std::env::var_os("HOLDFAST_WRITE").is_some();
    let mut count = 0;
    for (name, text) in guide::pages() {
        for after in text.split("](pictures/").skip(1) {
            let (picture, after) = after.split_once(')').unwrap();
            let session = blocks(after, "console").into_iter().next();
            let drawn = of_session(&session.unwrap_or_else(|| panic!("{name}: {picture}")));
            let path = guide::folder().join("pictures").join(picture);
            if is_written {
                std::fs::write(&path, drawn).unwrap();
            } else {
                let kept = std::fs::read_to_string(&path).unwrap_or_default();
                assert_eq!(kept, drawn, "{picture} is not what {name} has");
            }
            count += 1;
        }
    }
    assert!(count > 0, "the guide has no pictures");
}

#[test]
fn a_row_stands_for_each_limit() {
    check_rows(REQUEST_LIMITS.into_iter().chain(HELD_LIMITS).map(
        |Limit { name, figure, unit, reason }| {
            format!("| `{name}` | {figure} | {unit} | {reason} |")
        },
    ));
}

#[test]
fn a_row_stands_for_each_type_of_alarm() {
    check_rows(
        TYPES
            .iter()
            .map(|kind| format!("| `{}` | {} | {} |", kind.name, kind.severity, kind.description)),
    );
}

/// Checks that the guide has these rows of its tables.
fn check_rows(rows: impl Iterator<Item = String>) {
    let guide = guide::text();
    let missing: Vec<String> = rows.filter(|row| !guide.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "rows that the guide lacks:\n{}", missing.join("\n"));
}

#[test]
fn lines_fit_beside_another_window() {
    let mut long = Vec::new();
    for (name, text) in guide::pages() {
        let lines = lines_of_prose(&text).filter(|line| line.1.chars().count() > LINE_CHARACTERS);
        long.extend(lines.map(|line| format!("{name}:{}", line.0)));
    }
    assert!(long.is_empty(), "lines of more than {LINE_CHARACTERS} characters: {long:#?}");
}

#[test]
fn sentences_are_read_without_going_back() {
    let mut long = Vec::new();
    for (name, text) in guide::pages() {
        let sentences = sentences(&text).into_iter().filter(|it| words(it) > SENTENCE_WORDS);
        long.extend(sentences.map(|it| format!("{} words in {name}: {it}", words(&it))));
    }
    assert!(
        long.is_empty(),
        "sentences of more than {SENTENCE_WORDS} words; make two of each:\n{}",
        long.join("\n")
    );
}

#[test]
fn sentences_end_at_full_stops_lists_and_paragraphs() {
    let text = "# A title\nOne is here. Two goes\non: it ends. (Three)\n* four `a. b` (e.g. this)\n* five\n\n\
                six\n```sh\nno. text\n```\n| no | text |\nseven\n";
    let want = [
        "One is here.",
        "Two goes on: it ends.",
        "(Three)",
        "four `a. b` (e.g. this)",
        "five",
        "six",
        "seven",
    ];
    assert_eq!(sentences(text), want);
    assert_eq!(words("four `a. b` (e.g. this)"), 4, "code is one word");
}

/// The lines outside of tables and code, with their numbers. Code is fenced, or indented after an empty line.
fn lines_of_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let mut may_begin = true;
    text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_block = may_begin && line.starts_with("    ");
        may_begin = is_block || line.trim().is_empty();
        !is_fenced && !is_fence && !is_block && !line.trim_start().starts_with('|')
    })
}

/// The sentences outside of tables, code and headings. One ends at a full stop before a blank, and where a paragraph
/// or a point of a list ends.
fn sentences(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = vec![String::new()];
    let mut last = 0;
    for (number, line) in lines_of_prose(text) {
        let is_heading = line.starts_with('#');
        let is_point = line.trim_start().starts_with("* ");
        if number != last + 1 || is_heading || is_point || line.trim().is_empty() {
            paragraphs.push(String::new());
        }
        last = number;
        if let Some(paragraph) = paragraphs.last_mut().filter(|_| !is_heading) {
            *paragraph += line.trim_start().trim_start_matches("* ").trim_end();
            paragraph.push(' ');
        }
    }
    paragraphs.iter().flat_map(|paragraph| sentences_of(paragraph)).collect()
}

/// The sentences of a paragraph. A full stop in code ends none, nor does one before a small letter.
fn sentences_of(paragraph: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    let signs: Vec<char> = paragraph.trim().chars().collect();
    for (at, sign) in signs.iter().enumerate() {
        is_code ^= *sign == '`';
        let sentence = found.last_mut().unwrap();
        if !(sentence.is_empty() && *sign == ' ') {
            sentence.push(*sign);
        }
        let ends = matches!(sign, '.' | '?' | '!') && !is_code && signs.get(at + 1) == Some(&' ');
        if ends && signs.get(at + 2).is_some_and(|next| !next.is_lowercase()) {
            found.push(String::new());
        }
    }
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Words of a sentence; what stands in backticks is one.
fn words(sentence: &str) -> usize {
    let outside = sentence.split('`').step_by(2).collect::<Vec<_>>().join("x");
    outside.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}
