//! Tables of texts with their statements, and random trees that are printed and parsed again.

mod next;
mod random;
mod reading;
mod writing;

use std::sync::OnceLock;

use super::*;
use crate::Schema;

/// A model with features that the native one lacks: several keys, presence, leaf-lists, odd names.
const ODD: &str = r#"
module odd {
  yang-version 1.1;
  namespace "urn:odd";
  prefix o;
  identity animal;
  identity cat { base animal; }
  identity dog { base animal; }
  container zoo {
    presence "there is a zoo";
    leaf name { type string; }
    leaf-list tag { type string; }
    leaf-list floor { type int8; ordered-by user; }
  }
  container cages {
    list cage {
      key "house number";
      leaf house { type string; }
      leaf number { type uint8; }
      leaf animal { type identityref { base animal; } }
      leaf locked { type empty; }
      leaf either { type union { type empty; type int8; type string { length "1..max"; } } }
      leaf days { type bits { bit mon; bit tue; } }
      leaf scrap { type binary; }
      leaf weight { type decimal64 { fraction-digits 2; } }
      container state { config false; leaf seen { type string; } }
    }
  }
  container no { leaf no { type string; } }
  container doors { list gate { key "name"; leaf name { type string; } leaf open { type boolean; } } }
  container gate { leaf height { type uint8; } }
}
"#;

fn native() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::native().unwrap())
}

fn odd() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::from_text(&[("odd", ODD)]).unwrap())
}

/// `line path=value`, `line +path`, `line -path`.
fn statement_lines(schema: &Schema, statements: &[Statement]) -> Vec<String> {
    let line = |it: &Statement| {
        let path = it.path.to_path(schema);
        match &it.act {
            StatementAction::Set(value) => format!("{} {path}={value}", it.line),
            StatementAction::Create => format!("{} +{path}", it.line),
            StatementAction::No => format!("{} -{path}", it.line),
        }
    };
    statements.iter().map(line).collect()
}
