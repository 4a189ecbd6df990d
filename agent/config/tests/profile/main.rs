//! The OpenConfig profile: its YANG text follows from its tables, and each node is what the tables say.
//!
//! `HOLDFAST_WRITE=1 cargo test -p holdfast-config --test profile` regenerates the YANG text after a change of a
//! table.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod facts;
mod generate;
mod table;

use std::fs;

#[test]
fn the_yang_text_follows_from_the_tables() {
    for (name, text) in generate::Profile::read().modules() {
        let path = table::folder("yang").join(format!("{name}.yang"));
        if std::env::var_os("HOLDFAST_WRITE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is not what the tables give; HOLDFAST_WRITE=1 writes it",
            path.display()
        );
    }
}
