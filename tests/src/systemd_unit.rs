//! The packaged unit and its drop-ins, as far as tests act on them.

use std::fs;
use std::path::{Path, PathBuf};

/// Environment variable that makes every agent of a test run have the capabilities of the unit with all drop-ins.
const UNDER_UNIT: &str = "HOLDFAST_E2E_UNDER_UNIT";

/// The drop-ins, by the parts of their names that give the purpose.
pub const DROP_INS: [&str; 5] = ["10-dhcp", "20-system", "30-credentials", "40-netns", "50-users"];

/// The capabilities that the unit gives with these drop-ins, as setpriv(1) names them.
///
/// # Panics
/// When a file is missing, or names no capability.
#[must_use]
pub fn capabilities(drop_ins: &[&str]) -> Vec<String> {
    let folder = packaging_folder();
    let unit = folder.join("holdfast.service");
    let drop_ins =
        drop_ins.iter().map(|name| folder.join(format!("holdfast.service.d/{name}.conf")));
    let words: Vec<String> =
        std::iter::once(unit).chain(drop_ins).flat_map(|it| parse_capabilities(&it)).collect();
    assert!(!words.is_empty(), "the unit names capabilities");
    words
}

/// Capabilities of all drop-ins, if this test run is to be under the unit. A namespace of a test is named by a process
/// with more capabilities than the agent, so CAP_SYS_PTRACE is needed to open it; namespaces of `ip netns` are plain
/// files.
pub(crate) fn capabilities_of_this_run() -> Option<Vec<String>> {
    let all = || [capabilities(&DROP_INS), vec!["sys_ptrace".to_owned()]].concat();
    std::env::var_os(UNDER_UNIT).map(|_| all())
}

/// The folder of the unit.
#[must_use]
pub fn packaging_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging")
}

fn parse_capabilities(file: &Path) -> Vec<String> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text.lines().filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let words = lines.flat_map(str::split_whitespace);
    words
        .map(|word| {
            let name = word.strip_prefix("CAP_");
            name.unwrap_or_else(|| panic!("{}: `{word}`", file.display())).to_ascii_lowercase()
        })
        .collect()
}
