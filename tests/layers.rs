//! The rules of the workspace, checked from its manifests and sources: which crate may know which, that the modules of
//! a crate form no circle, where protobuf and netlink end, and that every `proves` tag names a requirement.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use holdfast_tests::sources::{files, workspace};
use holdfast_tests::trace::Trace;
use serde_json::Value;

/// Each crate, with the crates of the workspace that it may use. `tests` may use all.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    (
        "holdfast",
        &[
            "holdfast-base",
            "holdfast-bootz",
            "holdfast-common",
            "holdfast-config",
            "holdfast-core",
            "holdfast-faults",
            "holdfast-introspect",
            "holdfast-platform",
            "holdfast-proto",
            "holdfast-scheduler",
            "holdfast-security",
            "holdfast-services",
            "holdfast-store",
            "holdfast-telemetry",
        ],
    ),
    ("holdfast-base", &["holdfast-common"]),
    ("holdfast-bootz", &["holdfast-proto"]),
    ("holdfast-common", &[]),
    ("holdfast-config", &["holdfast-common"]),
    (
        "holdfast-core",
        &[
            "holdfast-base",
            "holdfast-common",
            "holdfast-config",
            "holdfast-platform",
            "holdfast-scheduler",
            "holdfast-security",
            "holdfast-store",
            "holdfast-telemetry",
        ],
    ),
    ("holdfast-faults", &["holdfast-config", "holdfast-scheduler"]),
    (
        "holdfast-introspect",
        &[
            "holdfast-base",
            "holdfast-config",
            "holdfast-core",
            "holdfast-platform",
            "holdfast-scheduler",
            "holdfast-store",
            "holdfast-telemetry",
        ],
    ),
    (
        "holdfast-platform",
        &["holdfast-base", "holdfast-config", "holdfast-scheduler", "holdfast-security"],
    ),
    ("holdfast-proto", &[]),
    ("holdfast-scheduler", &["holdfast-common"]),
    ("holdfast-security", &["holdfast-config"]),
    ("holdfast-services", &["holdfast-config"]),
    ("holdfast-store", &["holdfast-base", "holdfast-config", "holdfast-security"]),
    ("holdfast-telemetry", &["holdfast-config", "holdfast-security"]),
];

/// External crates that only some crates may depend on.
const RESERVED: &[(&str, &[&str])] = &[
    ("minijinja", &["holdfast-services"]),
    ("netlink-packet-core", &["holdfast-platform"]),
    ("netlink-packet-route", &["holdfast-platform"]),
    ("netlink-sys", &["holdfast-platform"]),
    ("prost", &["holdfast", "holdfast-bootz", "holdfast-proto"]),
    ("prost-types", &["holdfast", "holdfast-bootz", "holdfast-proto"]),
    ("rayon", &["holdfast-common"]),
    ("redb", &["holdfast-store"]),
    ("rtnetlink", &["holdfast-platform"]),
    ("tar", &["holdfast", "holdfast-services"]),
    (
        "tokio",
        &[
            "holdfast",
            "holdfast-base",
            "holdfast-bootz",
            "holdfast-core",
            "holdfast-introspect",
            "holdfast-platform",
            "holdfast-store",
            "holdfast-telemetry",
        ],
    ),
    ("toml", &["holdfast", "holdfast-services"]),
    ("tonic", &["holdfast", "holdfast-base", "holdfast-bootz", "holdfast-core", "holdfast-proto"]),
    ("yang5", &["holdfast-config"]),
];

/// Words of code that is not a function of its arguments: file, socket, clock or thread.
const IMPURE: &[&str] =
    &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread", "rayon::"];

/// Words that the sources below a folder may not have, except in the folders and files named last.
const FORBIDDEN: &[(&str, &[&str], &[&str])] = &[
    // Only the northbound and the table of methods know the wire format; other modules use domain types.
    ("agent/daemon/src", &["holdfast_proto", "prost::", "prost_types"], &["northbound", "methods"]),
    // The one wrapper of rayon.
    ("agent/common/src", IMPURE, &["parallel.rs"]),
    ("agent/config/src", IMPURE, &[]),
    ("agent/faults/src", IMPURE, &[]),
    ("agent/scheduler/src", IMPURE, &[]),
    ("agent/security/src", IMPURE, &[]),
    ("agent/services/src", IMPURE, &[]),
];

/// The crate of fixtures and tests, to which the rules do not apply.
const TESTS: &str = "holdfast-tests";

#[test]
fn crates_depend_only_on_crates_below() {
    let mut broken = Vec::new();
    for (name, package) in packages() {
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(from, _)| *from == name) else {
            broken.push(format!("{name} is not in the list of arrows"));
            continue;
        };
        for dependency in dependencies(&package) {
            if dependency.starts_with("holdfast") && !allowed.contains(&dependency.as_str()) {
                broken.push(format!("the arrow {name} -> {dependency} is not allowed"));
            }
            if let Some((_, users)) = RESERVED.iter().find(|(outside, _)| *outside == dependency)
                && !users.contains(&name.as_str())
            {
                broken.push(format!("{name} -> {dependency}: only {users:?} may"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn each_dependency_has_its_version_in_the_root_manifest() {
    let mut broken = Vec::new();
    for (name, package) in packages_and_tests() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let text = fs::read_to_string(manifest).unwrap();
        if !text.contains("[lints]\nworkspace = true") {
            broken.push(format!("{name} does not take the lints of the workspace"));
        }
        for dependency in declared(&text) {
            if !dependency.contains("workspace = true") {
                broken.push(format!("{name}: {dependency}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn sources_contain_no_forbidden_words() {
    let mut broken = Vec::new();
    for (folder, words, except) in FORBIDDEN {
        for file in files(&workspace().join(folder), &["rs"]) {
            let inside = |name: &&str| file.components().any(|part| part.as_os_str() == *name);
            if except.iter().any(inside) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap();
                for word in words.iter().filter(|word| code.contains(**word)) {
                    broken.push(format!("{}:{}: `{word}`", file.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Without the roots, which put the modules together, and without tests.
#[test]
fn modules_of_a_crate_use_one_another_without_circles() {
    let mut broken = Vec::new();
    for (name, package) in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let circles = circles(module_uses(&manifest.with_file_name("src")));
        if !circles.is_empty() {
            broken.push(format!("{name}: modules on a circle: {circles:#?}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn circles_are_found() {
    let uses = |lines: &[&str]| {
        let line = |line: &&str| {
            let (module, uses) = line.split_once(" -> ").unwrap();
            (module.to_owned(), uses.split_whitespace().map(str::to_owned).collect())
        };
        lines.iter().map(line).collect::<BTreeMap<String, BTreeSet<String>>>()
    };
    for (lines, want) in [
        (&["a -> b", "b -> c", "c -> "][..], &[][..]),
        (&["above -> a", "a -> b", "b -> a below", "below -> "], &["a", "b"]),
    ] {
        assert_eq!(circles(uses(lines)).into_keys().collect::<Vec<_>>(), want, "{lines:?}");
    }
}

#[test]
fn named_modules_are_parsed_from_use_lines() {
    for (code, want) in [
        ("auth::Users;", "auth"),
        ("{auth, tls::{Peer, Dscp}, users::Users};", "auth tls users"),
        ("{\n    auth::{self, Users},\n    tls,\n};", "auth tls"),
    ] {
        assert_eq!(named_modules(code).join(" ").trim(), want, "{code}");
    }
}

#[test]
fn paths_to_the_root_are_found_in_code() {
    let code = "use crate::auth::Users; use super::tls; use super::super::users::{Name};";
    for (depth, want) in [(1, "auth tls"), (2, "auth users")] {
        assert_eq!(named_from_root(code, depth).join(" "), want, "{depth}");
    }
    let root = "pub use self::auth::{Users, Role as Rank};\npub use tls::Peer;\nuse std::fmt;\n";
    let names: Vec<String> = exported_names(root)
        .into_iter()
        .map(|(name, module)| format!("{name}: {module}"))
        .collect();
    for want in ["Users: auth", "Rank: auth", "Peer: tls"] {
        assert!(names.iter().any(|name| name == want), "{want} in {names:?}");
    }
}

#[test]
fn every_tag_names_a_requirement_that_can_be_proven() {
    let problems = Trace::read(&workspace()).unwrap().problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Files that may use every module of their crate: they put it together. The daemon's `run.rs` starts it.
const ROOTS: [&str; 3] = ["lib.rs", "main.rs", "run.rs"];

/// Modules on a circle, or between two of them, each with those of its uses that are, too.
fn circles(mut uses: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    // A module that uses none of those that are left, or that none of them uses, cannot be on a circle.
    loop {
        let used: BTreeSet<&String> = uses.values().flatten().collect();
        let is_free = |(module, uses): &(&String, &BTreeSet<String>)| {
            uses.is_empty() || !used.contains(*module)
        };
        let Some(free) = uses.iter().find(is_free).map(|(module, _)| module.clone()) else {
            return uses;
        };
        uses.remove(&free);
        for uses in uses.values_mut() {
            uses.remove(&free);
        }
    }
}

/// The top-level modules below a folder, each with those that its code names from the root: by a path, or by a name that the
/// root has from them. Files of tests do not count, nor does code after `mod tests {`, nor what the root defines itself.
fn module_uses(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let is_test = |part: &str| part.contains("tests");
    let exported = fs::read_to_string(folder.join("lib.rs")).map(|root| exported_names(&root));
    let exported = exported.unwrap_or_default();
    let mut named: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files(folder, &["rs"]) {
        let inside = file.strip_prefix(folder).unwrap().to_str().unwrap();
        if ROOTS.contains(&inside) || inside.split('/').any(is_test) {
            continue;
        }
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let depth = inside.split('/').filter(|part| *part != "mod.rs").count();
        let text = fs::read_to_string(&file).unwrap();
        let code = without_comments(text.split("mod tests {").next().unwrap());
        named.entry(module.to_owned()).or_default().extend(named_from_root(&code, depth));
    }
    let modules: BTreeSet<String> = named.keys().cloned().collect();
    for (module, names) in &mut named {
        let module_of = |name: &String| match modules.contains(name) {
            true => Some(name.clone()),
            false => exported.get(name).filter(|module| modules.contains(*module)).cloned(),
        };
        *names = names.iter().filter_map(module_of).filter(|name| name != module).collect();
    }
    named
}

fn without_comments(code: &str) -> String {
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Names after `crate::`, and after as many `super::` as lead to the root from a file that is so deep below it.
fn named_from_root(code: &str, depth: usize) -> Vec<String> {
    let up = "super::".repeat(depth);
    let above = |(at, _): &(usize, &str)| {
        let before = code[..*at].chars().next_back();
        let is_whole = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':');
        is_whole && !code[at + up.len()..].starts_with("super::")
    };
    let above = code.match_indices(&up).filter(above).map(|(at, _)| &code[at + up.len()..]);
    code.split("crate::").skip(1).chain(above).flat_map(named_modules).collect()
}

/// Names that a root has from its modules, each with its module.
fn exported_names(root: &str) -> BTreeMap<String, String> {
    let root = without_comments(root);
    let mut names = BTreeMap::new();
    for part in root.split("use ").skip(1) {
        let path = part.split(';').next().unwrap();
        let path = path.trim_start_matches("self::").trim_start_matches("crate::");
        let Some((module, exported)) = path.split_once("::") else { continue };
        let exported = exported.split(|c: char| !c.is_alphanumeric() && c != '_');
        let exported = exported.filter(|name| !name.is_empty());
        names.extend(exported.map(|name| (name.to_owned(), module.to_owned())));
    }
    names
}

/// The modules named after `crate::`: one, or the first names in a group in braces.
fn named_modules(part: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
    };
    let Some(group) = part.strip_prefix('{') else { return vec![name(part)] };
    let mut depth = 0;
    let mut names = vec![name(group)];
    for (at, mark) in group.match_indices(['{', '}', ',']) {
        match mark {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            _ if depth == 0 => names.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

/// Every crate of the workspace but this one, by name, as cargo describes it.
fn packages() -> Vec<(String, Value)> {
    packages_and_tests().into_iter().filter(|(name, _)| name != TESTS).collect()
}

fn packages_and_tests() -> Vec<(String, Value)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap().to_owned(), package.clone()))
        .collect()
}

/// Names of the crates that a crate links, without those of its tests.
fn dependencies(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().unwrap();
    let linked = all
        .iter()
        .filter(|dependency| dependency["kind"] != "dev" && dependency["kind"] != "build");
    linked.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
}

/// The lines of a manifest that declare dependencies.
fn declared(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            lines.push(line);
        }
    }
    lines
}
