//! Fixtures, and the rules of the workspace that are checked from its sources.
//!
//! Absent on purpose: tests. They are the files beside `src/`, each with its own target in the manifest.

pub mod trace;
