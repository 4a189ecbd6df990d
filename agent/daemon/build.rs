//! Puts the revision and the date of the commit into the program, for `holdfast --version`, and has an optimised program
//! linked with short relocations.
//!
//! A build outside of a repository gets both from the variable HOLDFAST_REVISION, as in `5729123a2f1c 2026-11-27`, or says
//! that it does not know them. So do builds for tests, which would otherwise be made anew with each commit.
#![allow(clippy::print_stdout, reason = "cargo reads the standard output of a build script")]

use std::process::Command;

/// Variable with the revision and its date, separated by a blank.
const REVISION: &str = "HOLDFAST_REVISION";

fn main() {
    println!("cargo::rerun-if-env-changed={REVISION}");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // Relocations in the short form (RELR, glibc 2.36). The loader reads all of them: the usual form has 2 MB more.
    if is_release && std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    let given = std::env::var(REVISION).ok().filter(|given| !given.trim().is_empty());
    let revision = given.or_else(|| if is_release { revision_of_repository() } else { None });
    let revision = revision.unwrap_or_else(|| "unknown revision".to_owned());
    let version = env!("CARGO_PKG_VERSION");
    println!("cargo::rustc-env=HOLDFAST_VERSION={version} ({})", revision.trim());
}

/// Revision and date of the commit that is checked out; `None` without git or a repository.
fn revision_of_repository() -> Option<String> {
    let commit = git(&["show", "--no-patch", "--abbrev=12", "--format=%h %cs"])?;
    // Each commit and checkout adds a line to this file.
    if let Some(log) = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", log.trim());
    }
    Some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).ok()).flatten()
}
