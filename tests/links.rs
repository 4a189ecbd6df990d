//! The documents of the workspace: each relative link in Markdown leads to a file that is there, and to a heading of
//! it where it names one; each document that a comment names exists.
//!
//! Read by hand, since no library for Markdown is among the dependencies: links are `[text](target)` outside of code,
//! headings are lines that begin with `#`, and their anchors are made as GitHub makes them. Other forms of links
//! (references, HTML) are refused, so that none goes unread.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use holdfast_tests::sources::{files, workspace};

/// Beginnings of links that lead out of the workspace.
const OUTSIDE: &[&str] = &["http://", "https://", "mailto:"];

#[test]
fn relative_links_lead_to_files_and_headings() {
    let documents = files(&workspace(), &["md"]);
    assert!(documents.len() > 10, "the documents are found: {documents:?}");
    let headings: BTreeMap<&Path, BTreeSet<String>> = documents
        .iter()
        .map(|document| (document.as_path(), anchors(&fs::read_to_string(document).unwrap())))
        .collect();
    let mut broken = Vec::new();
    for document in &documents {
        for (number, link) in links(&fs::read_to_string(document).unwrap()) {
            if let Err(reason) = check(document, &link, &headings) {
                broken.push(format!("{}:{number}: `{link}`: {reason}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn documents_that_comments_name_exist() {
    let documents = files(&workspace(), &["md"]);
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    let names: BTreeSet<String> = documents.iter().map(name).collect();
    let mut broken = Vec::new();
    for source in files(&workspace(), &["rs"]) {
        for (at, line) in fs::read_to_string(&source).unwrap().lines().enumerate() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            for word in document_names(comment).filter(|word| !names.contains(*word)) {
                broken.push(format!("{}:{}: there is no {word}", source.display(), at + 1));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_are_found_outside_of_code() {
    for (text, want) in [
        ("see [the guide](packaging/guide/README.md).", &["packaging/guide/README.md"][..]),
        ("[a](b#c) and [d](#e)", &["b#c", "#e"]),
        ("[`code`](agent/decisions) ![picture](a.png \"title\")", &["agent/decisions", "a.png"]),
        ("`[not](this)` but [this](one)", &["one"]),
        ("``a ` [not](this)`` [this](one)", &["one"]),
        ("```sh\n[not](this)\n```\n[this](one)", &["one"]),
        ("    [not](this)\n[this](one)", &["one"]),
        ("* a list\n    with [this](one)\n\n    [not](this)", &["one"]),
        ("an array[0](x) is one, too; a [list] (of words) is none", &["x"]),
        ("[reference]: README.md", &["[reference]: README.md"]),
        ("<a href=\"README.md\">", &["<a href=\"README.md\">"]),
    ] {
        let found: Vec<String> = links(text).into_iter().map(|(_, link)| link).collect();
        assert_eq!(found, want, "{text}");
    }
}

#[test]
fn headings_have_the_anchors_of_github() {
    let text = "# One Set, from wire to wire\n## `code` & [a link](README.md)\n```\n# no heading\n```\n## 5.1 What_is it?\n## Again\n## Again";
    let want = ["one-set-from-wire-to-wire", "code--a-link", "51-what_is-it", "again", "again-1"];
    assert_eq!(anchors(text), want.map(str::to_owned).into());
}

/// Checks a link of a document; the error is the reason for which it leads nowhere.
fn check(
    document: &Path,
    link: &str,
    headings: &BTreeMap<&Path, BTreeSet<String>>,
) -> Result<(), String> {
    if OUTSIDE.iter().any(|start| link.starts_with(start)) {
        return Ok(());
    }
    if link.contains([' ', '<', '"']) || link.starts_with('/') {
        return Err("write it as [text](relative path)".to_owned());
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (link, None),
    };
    let folder = document.parent().unwrap();
    let target = if path.is_empty() { document.to_owned() } else { joined(folder, path) };
    if !target.starts_with(workspace()) {
        return Err("it leads out of the workspace".to_owned());
    }
    if !target.exists() {
        return Err(format!("there is no {}", target.display()));
    }
    let Some(anchor) = anchor else { return Ok(()) };
    match headings.get(target.as_path()) {
        Some(anchors) if anchors.contains(anchor) => Ok(()),
        Some(_) => Err(format!("{} has no such heading", target.display())),
        None => Err(format!("{} is not a document with headings", target.display())),
    }
}

/// Targets of links with the numbers of their lines; what looks like a link of another form is given as it stands.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in lines_of_text(text) {
        let line = without_code(line);
        let trimmed = line.trim_start();
        let is_reference = trimmed.starts_with('[') && trimmed.contains("]: ");
        if is_reference || line.contains("href=") {
            found.push((number, line));
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            // `path "title"`
            let target = target.split(" \"").next().unwrap();
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// Anchors of the headings of a document, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in lines_of_text(text) {
        let heading = line.trim_start_matches('#');
        let depth = line.len() - heading.len();
        if !(1..=6).contains(&depth) || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading);
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        let free = names.find(|it| !anchors.contains(it));
        anchors.extend(free);
    }
    anchors
}

/// The anchor of a heading that is the only one with its text: lower case, hyphens for blanks, no other marks.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    // Only the text of a link counts.
    for (at, part) in heading.trim().split("](").enumerate() {
        let label = if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) };
        text += label;
    }
    let is_kept = |sign: &char| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_');
    let is_kept = text.chars().filter(is_kept).flat_map(char::to_lowercase);
    is_kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

/// The lines of a document outside of code blocks, fenced or indented, with their numbers. An indented block follows
/// an empty line; other indented lines go on with a list.
fn lines_of_text(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    let mut may_begin = true;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        let is_block = may_begin && line.starts_with("    ");
        may_begin = is_block || line.trim().is_empty();
        !is_fenced && !is_fence && !is_block
    })
}

/// A line without its spans of code: each ends at as many backticks as it began with.
fn without_code(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let (before, ticks) = rest.split_at(start);
        let inside = ticks.trim_start_matches('`');
        let mark = &ticks[..ticks.len() - inside.len()];
        text += before;
        let Some((_, after)) = inside.split_once(mark) else {
            rest = inside;
            continue;
        };
        rest = after;
    }
    text + rest
}

/// Words of a comment that name a document.
fn document_names(comment: &str) -> impl Iterator<Item = &str> {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-' | '_');
    let words = comment.split(move |sign| !is_word(sign)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| word.len() > ".md".len() && word.ends_with(".md"))
}

/// `path` from `folder`, without `..` in it.
fn joined(folder: &Path, path: &str) -> PathBuf {
    let mut joined = folder.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                joined.pop();
            }
            Component::CurDir => {}
            part => joined.push(part),
        }
    }
    joined
}
