//! The guide lists all types of alarms.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use holdfast_faults::TYPES;

#[test]
fn the_guide_has_a_row_for_each_type() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/user-guide.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let missing: Vec<String> = TYPES
        .iter()
        .map(|kind| format!("| `{}` | {} | {} |", kind.name, kind.severity, kind.description))
        .filter(|row| !guide.contains(row.as_str()))
        .collect();
    assert!(missing.is_empty(), "rows that the guide lacks:\n{}", missing.join("\n"));
}
