//! The rules of the workspace, checked from its manifests and sources: which crate may know which, that the modules of
//! the daemon form no circle, where protobuf and netlink end, and that every `proves` tag names a requirement.
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
    ("holdfast-base", &["holdfast-config"]),
    ("holdfast-bootz", &["holdfast-proto"]),
    ("holdfast-config", &[]),
    (
        "holdfast-core",
        &[
            "holdfast-base",
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
    ("holdfast-scheduler", &[]),
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
    ("redb", &["holdfast-store"]),
    ("rtnetlink", &["holdfast-platform"]),
    ("tar", &["holdfast-services"]),
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
    ("toml", &["holdfast-services"]),
    ("tonic", &["holdfast", "holdfast-base", "holdfast-bootz", "holdfast-core", "holdfast-proto"]),
    ("yang5", &["holdfast-config"]),
];

/// Words that the sources below a folder may not have, except in the folders named last.
const FORBIDDEN: &[(&str, &[&str], &[&str])] = &[
    // Only the northbound and the table of methods know the wire format; other modules use domain types.
    ("agent/daemon/src", &["holdfast_proto", "prost::", "prost_types"], &["northbound", "methods"]),
    // Functions of their arguments: no file, socket, clock or thread.
    (
        "agent/config/src",
        &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread"],
        &[],
    ),
    (
        "agent/faults/src",
        &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread"],
        &[],
    ),
    (
        "agent/scheduler/src",
        &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread"],
        &[],
    ),
    (
        "agent/security/src",
        &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread"],
        &[],
    ),
    (
        "agent/services/src",
        &["std::fs", "std::net::Tcp", "SystemTime", "Instant::now", "std::thread"],
        &[],
    ),
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
fn modules_of_the_daemon_use_one_another_without_circles() {
    let mut left = module_uses(&workspace().join("agent/daemon/src"));
    assert!(left.len() > 10, "{left:?}");
    // A module that uses none of the modules that are left cannot be on a circle.
    while let Some((leaf, _)) = left.iter().find(|(_, uses)| uses.is_empty()) {
        let leaf = leaf.clone();
        left.remove(&leaf);
        for uses in left.values_mut() {
            uses.remove(&leaf);
        }
    }
    assert!(left.is_empty(), "modules on a circle, or above one: {left:#?}");
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
fn every_tag_names_a_requirement_that_can_be_proven() {
    let problems = Trace::read(&workspace()).unwrap().problems();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Files of the daemon that may use every module: they start it.
const ROOTS: [&str; 3] = ["lib.rs", "main.rs", "run.rs"];

/// The top-level modules below a folder, each with those that its code names after `crate::`. Files of tests do not count, nor
/// does code after `mod tests {`.
fn module_uses(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let is_test = |part: &str| part.contains("tests");
    let mut code: BTreeMap<String, String> = BTreeMap::new();
    for file in files(folder, &["rs"]) {
        let inside = file.strip_prefix(folder).unwrap().to_str().unwrap();
        if ROOTS.contains(&inside) || inside.split('/').any(is_test) {
            continue;
        }
        let module = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("mod tests {").next().unwrap();
        let lines = text.lines().map(|line| line.split("//").next().unwrap());
        code.entry(module.to_owned()).or_default().extend(lines);
    }
    let uses = |(module, text): (&String, &String)| {
        let modules = text.split("crate::").skip(1).flat_map(named_modules);
        let others = modules.filter(|name| name != module && code.contains_key(name));
        (module.clone(), others.collect())
    };
    code.iter().map(uses).collect()
}

/// The modules named after `crate::`: one, or the first names in a group in braces.
fn named_modules(part: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
    };
    let Some(group) = part.strip_prefix('{') else { return vec![name(part)] };
    let (mut depth, mut names) = (0, vec![name(group)]);
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
