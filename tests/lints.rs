//! `tests/scripts/lints.sh`: a build that makes programs refuses what clippy warns of.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Builds a program with the lints of the workspace's builds, and runs it when it was built.
fn build_and_run(program: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"planted\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/main.rs"), program).unwrap();
    let lints = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/lints.sh");
    Command::new("sh")
        .args(["-c", ". \"$0\" && cargo run --quiet --offline"])
        .arg(lints)
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.path().join("target"))
        .output()
        .unwrap()
}

#[test]
fn a_program_with_a_lint_is_not_built() {
    let output = build_and_run(
        "fn main() {\n    let it: Vec<u8> = Vec::new();\n    println!(\"{}\", it.len() == 0);\n}\n",
    );
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("error: length comparison to zero"), "{text}");
}

#[test]
fn a_program_without_lints_is_built_and_runs() {
    let output = build_and_run("fn main() {\n    println!(\"built\");\n}\n");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "built\n");
}
