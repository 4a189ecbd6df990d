//! Texts that people read hold no dump of a Rust value: `{:?}` is for logs, panics and tests.
//!
//! Texts in the macros of logs and of assertions are left alone. A constant (`{MAX_WAIT:?}`) is a limit, which is a duration
//! wherever it is printed so, and durations have their text for people in `Debug` alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use holdfast_tests::sources::{files, workspace};

/// Folders of the code that answers clients.
const FOLDERS: &[&str] = &["agent", "bootz", "platform", "proto"];
/// Parts of paths that hold tests, or stand for the kernel in tests.
const OF_TESTS: &[&str] =
    &["/tests/", "_tests/", "/tests.rs", "/fuzz/", "/simulated/", "/benches/"];
/// Macros whose texts no client reads.
const UNREAD: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "panic",
    "unreachable",
    "debug",
    "error",
    "info",
    "trace",
    "warn",
];

/// File, part of the line, and the reason for which it may be there.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "agent/config/src/schema/types.rs",
        "self.xsd",
        "a pattern of YANG in quotes, in a Debug text",
    ),
    ("agent/core/src/examination/mod.rs", "{node:?}", "goes into the hash of a plan"),
    ("agent/core/src/request/error.rs", "Errno::from_raw", "the name of an errno, such as EBUSY"),
    ("agent/core/src/request/service_preview.rs", "{states:?}", "goes into the hash of a plan"),
    ("agent/daemon/src/aaa/record.rs", "{code:?}", "the name of a gRPC code"),
    ("agent/daemon/src/northbound/gnsi/rotate.rs", "{idle:?}", "a duration"),
    ("agent/daemon/src/northbound/subscribe/plan.rs", "{interval:?}", "a duration"),
    ("agent/daemon/src/refusals.rs", "{code:?}", "the name of a gRPC code"),
    ("agent/introspect/src/document.rs", "self.txn_type", "the name of a trigger, without content"),
    ("agent/introspect/src/graph/dot.rs", "{style:?}", "a word in quotes, for graphviz"),
    ("agent/scheduler/src/engine/audit.rs", ":?}", "broken invariants, for tests"),
    ("agent/scheduler/src/plan.rs", ":?}", "goes into the hash of a plan"),
    ("agent/security/src/certz/csr.rs", "{curve:?}", "the names of a curve and a digest"),
    ("agent/security/src/credentialz/key.rs", "{declared:?}", "the name of a type of keys"),
    ("agent/security/src/credentialz/render.rs", "self.digest()", "a Debug text"),
    ("bootz/src/wire.rs", "self.code", "the name of a gRPC code"),
    ("platform/src/value_json.rs", "{value:?}", "of a kind without JSON; a test finds none"),
];

#[test]
fn no_text_for_people_holds_the_dump_of_a_value() {
    let mut found = Vec::new();
    for folder in FOLDERS {
        for file in files(&workspace().join(folder), &["rs"]) {
            let path = file.strip_prefix(workspace()).unwrap().to_owned();
            let text = fs::read_to_string(&file).unwrap();
            found.extend(dumps(&path, &text).into_iter().map(|line| (path.clone(), line)));
        }
    }
    let allows = |path: &Path, line: &str| {
        ALLOWED.iter().any(|(file, part, _)| path == Path::new(file) && line.contains(part))
    };
    let broken: Vec<_> = found.iter().filter(|(path, line)| !allows(path, line)).collect();
    assert!(broken.is_empty(), "say in words what a person has to know:\n{broken:#?}");
    for (file, part, _) in ALLOWED {
        let is_used =
            found.iter().any(|(path, line)| path == Path::new(file) && line.contains(part));
        assert!(is_used, "{file} has no `{part}` any more");
    }
}

#[test]
fn dumps_are_told_from_logs_and_limits() {
    for (text, count) in [
        ("#[error(\"a {0:?} b\")]\nA(u8),", 1),
        ("#[error(\n    \"it has {value:?}\"\n)]", 1),
        ("format!(\"{} and {:#?}\", a, b)", 1),
        ("info!(?a, \"x {b:?}\"); panic!(\"{c:?}\");", 0),
        ("warn!(\"a\"); format!(\"{b:?}\")", 1),
        ("format!(\"at most {MAX_WAIT:?}\")", 0),
        ("format!(\"{a}\")\n#[cfg(test)]\nmod tests {\n    fn a() { format!(\"{b:?}\"); }\n}", 0),
    ] {
        assert_eq!(dumps(Path::new("agent/src/a.rs"), text).len(), count, "{text}");
    }
    assert!(dumps(Path::new("agent/src/tests/a.rs"), "format!(\"{b:?}\")").is_empty());
}

/// Lines with a dump in a text that somebody may read.
fn dumps(path: &Path, text: &str) -> Vec<String> {
    let place = format!("/{}", path.display());
    if OF_TESTS.iter().any(|part| place.contains(part)) {
        return Vec::new();
    }
    let code = text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end]);
    let marks = code.match_indices(":?}").chain(code.match_indices(":#?}"));
    let mut lines: Vec<String> = marks
        .filter(|(at, _)| {
            let before = &code[..*at];
            let name = before.rfind('{').map_or("", |open| &before[open + 1..]);
            !is_constant(name) && !UNREAD.contains(&last_macro(before))
        })
        .map(|(at, _)| {
            let begin = code[..at].rfind('\n').map_or(0, |end| end + 1);
            let end = code[at..].find('\n').map_or(code.len(), |end| at + end);
            code[begin..end].trim().to_owned()
        })
        .collect();
    lines.dedup();
    lines
}

fn is_constant(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Name of the macro that was begun last: `format` of `format!(`.
fn last_macro(before: &str) -> &str {
    let Some(end) = before.rfind("!(").max(before.rfind("[error(")) else { return "" };
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let begin = before[..end].rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
    &before[begin..end]
}
