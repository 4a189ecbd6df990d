//! The wording of doc comments: each begins with a noun or an active verb, so that a reader need not guess the subject.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use holdfast_tests::sources::{files, workspace};

/// First words of doc comments that lack a subject.
const WITHOUT_SUBJECT: &[&str] = &[
    "It", "Nobody", "Somebody", "That", "The same", "They", "What", "Whether", "Who", "Whoever",
    "Whom", "Whose",
];

/// Doc comments per thousand in a crate that may begin with such a word. Well-written workspaces have a few.
const TOLERATED_PER_THOUSAND: usize = 15;

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
