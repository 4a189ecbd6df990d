//! Rules for linked crates from `deny.toml`: licenses, banned crates, registries.
//!
//! `cargo deny`, a step of `make test`, reads the same file and says more; this needs nothing to be installed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use holdfast_tests::sources::workspace;
use serde_json::Value;

#[test]
fn every_dependency_keeps_to_the_policy() {
    let policy = Policy::read();
    let mut broken = Vec::new();
    for package in packages() {
        let text = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        if !License::parse(text("license")).allowed(&policy.licenses) {
            broken.push(format!("{name}: license `{}`", text("license")));
        }
        if policy.banned.iter().any(|banned| banned == text("name")) {
            broken.push(format!("{name} is banned"));
        }
        // Our own crates have no source.
        let source = text("source").trim_start_matches("registry+");
        if !source.is_empty() && !policy.registries.iter().any(|registry| registry == source) {
            broken.push(format!("{name} comes from {source}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn license_expressions_are_understood() {
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("(GPL-3.0 OR MIT) AND GPL-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0 WITH other-exception", false),
        ("MIT+", true),
        ("", false),
    ] {
        let licenses = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        assert_eq!(License::parse(expression).allowed(&licenses), allowed, "{expression}");
    }
}

/// The parts of `deny.toml` that are checked here.
struct Policy {
    licenses: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
}

impl Policy {
    fn read() -> Self {
        let text = fs::read_to_string(workspace().join("deny.toml")).unwrap();
        let banned = quoted(&list(&text, "deny"), "crate = ");
        Self {
            licenses: quoted(&list(&text, "allow"), ""),
            banned,
            registries: quoted(&list(&text, "allow-registry"), ""),
        }
    }
}

/// The lines of a list `name = [ ... ]`, comments left out.
fn list(text: &str, name: &str) -> Vec<String> {
    let start =
        text.find(&format!("\n{name} = [")).unwrap_or_else(|| panic!("deny.toml has no `{name}`"));
    let body = &text[start..];
    let end = body.find("]\n").unwrap();
    body[..end].lines().map(|line| line.split('#').next().unwrap().to_owned()).collect()
}

/// The first quoted word after `mark` of each line that has one.
fn quoted(lines: &[String], mark: &str) -> Vec<String> {
    let word = |line: &String| {
        Some(line.split(&format!("{mark}\"")).nth(1)?.split('"').next()?.to_owned())
    };
    lines.iter().filter_map(word).collect()
}

/// A license expression as Cargo manifests write it.
#[derive(Debug)]
enum License {
    /// A name, with its exception.
    Named(String),
    Any(Vec<License>),
    All(Vec<License>),
}

impl License {
    fn parse(expression: &str) -> Self {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        Self::parse_or(&mut words.as_slice())
    }

    fn parse_or(words: &mut &[&str]) -> Self {
        let mut any = vec![Self::parse_and(words)];
        while let Some((&"OR", rest)) = words.split_first() {
            *words = rest;
            any.push(Self::parse_and(words));
        }
        Self::Any(any)
    }

    fn parse_and(words: &mut &[&str]) -> Self {
        let mut all = vec![Self::parse_term(words)];
        while let Some((&"AND", rest)) = words.split_first() {
            *words = rest;
            all.push(Self::parse_term(words));
        }
        Self::All(all)
    }

    fn parse_term(words: &mut &[&str]) -> Self {
        match **words {
            ["(", ref inner @ ..] => {
                *words = inner;
                let inner = Self::parse_or(words);
                *words = words.strip_prefix(&[")"]).unwrap_or(words);
                inner
            }
            [name, "WITH", exception, ref rest @ ..] => {
                *words = rest;
                Self::Named(format!("{name} WITH {exception}"))
            }
            [name, ref rest @ ..] => {
                *words = rest;
                Self::Named(name.trim_end_matches('+').to_owned())
            }
            [] => Self::Any(Vec::new()),
        }
    }

    fn allowed(&self, names: &[String]) -> bool {
        match self {
            Self::Named(name) => names.contains(name),
            Self::Any(any) => any.iter().any(|license| license.allowed(names)),
            Self::All(all) => all.iter().all(|license| license.allowed(names)),
        }
    }
}

/// Every package that is built for this machine, ours included.
fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata =
        cargo(&["metadata", "--offline", "--format-version=1", "--filter-platform", &platform]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    // The metadata also lists optional packages that nothing switches on; the tree does not.
    let tree = cargo(&["tree", "--offline", "--workspace", "--prefix=none", "--format={p}"]);
    let built: BTreeSet<String> = tree
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| name_and_version(line).replace(" v", " "))
        .collect();
    let is_built = |package: &Value| {
        let text = |name: &str| package[name].as_str().unwrap();
        built.contains(&format!("{} {}", text("name"), text("version")))
    };
    let packages: Vec<Value> =
        metadata["packages"].as_array().unwrap().iter().filter(|p| is_built(p)).cloned().collect();
    assert_eq!(packages.len(), built.len(), "the tree and the metadata name packages alike");
    packages
}

/// The first two words of a line of `cargo tree`.
fn name_and_version(line: &str) -> String {
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

fn cargo(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(workspace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
