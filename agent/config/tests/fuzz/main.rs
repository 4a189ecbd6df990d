//! Fuzz targets: no input makes a reader panic, an error has a path, and accepted input is written and read back
//! unchanged.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS` (a second when it is not set) after the seeds in
//! `__fuzz__/NAME/corpus`. Half of the inputs are bytes as they come, half are seeds with edits.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

mod corpus;

use holdfast_config::cli::{self, Statement, StatementAction};
use holdfast_config::json::{self, DocumentContent, Flavour};
use holdfast_config::tree::{Leaf, NodeRef, Tree};
use holdfast_config::{InstancePath, Models, Path, Schema};

use self::corpus::Corpus;

/// Runs one target over bytes and over edited seeds.
fn fuzz(name: &str, words: &[&str], check: impl Fn(&str) + std::panic::RefUnwindSafe) {
    let seeds = Corpus::read(name, words);
    bolero::check!().for_each(|input: &[u8]| {
        check(&String::from_utf8_lossy(input));
        check(&seeds.mutated(input));
    });
}

fn models() -> Models {
    Models::load().unwrap()
}

const CLI_WORDS: [&str; 24] = [
    "interface",
    "eth0",
    "mtu",
    "1400",
    "no",
    "ipv4",
    "address",
    "10.0.0.1",
    "prefix-length",
    "24",
    "system",
    "hostname",
    "description",
    "network-instance",
    "static",
    "route",
    "next-hop",
    "#",
    "!",
    "\"",
    "\\",
    "\n",
    "  ",
    "\t",
];

#[test]
fn command_lines() {
    let schema = models().native;
    fuzz("command_lines", &CLI_WORDS, |text| match cli::parse(&schema, text) {
        Ok(statements) => {
            let tree = tree_of(&schema, &statements);
            let printed = cli::print(&schema, &tree);
            let again = cli::parse(&schema, &printed).expect(&printed);
            assert_eq!(tree_of(&schema, &again), tree, "{printed}");
            for it in &statements {
                let line = cli::line(&schema, &it.path, &it.act);
                let alone = cli::parse(&schema, &line).expect(&line);
                assert_eq!((&alone[0].path, &alone[0].act), (&it.path, &it.act), "{line}");
            }
        }
        Err(errors) => {
            let lines: Vec<&str> = text.split('\n').collect();
            for error in errors {
                assert!(lines[error.line - 1].contains(&error.text), "{error}");
                assert!(
                    !error.reason.is_empty() && error.to_string().contains(&error.line.to_string())
                );
            }
        }
    });
}

fn tree_of(schema: &Schema, statements: &[Statement]) -> Tree<()> {
    let mut tree = Tree::new();
    for it in statements {
        match &it.act {
            StatementAction::Set(value) => {
                tree.set_leaf(schema, &it.path, Leaf::new(value.clone(), ()))
            }
            StatementAction::Create => tree.branch_mut(schema, &it.path.0, &()).given = true,
            StatementAction::No => drop(tree.remove(schema, &it.path)),
        }
    }
    tree
}

const PATH_WORDS: [&str; 22] = [
    "/",
    "[",
    "]",
    "=",
    "\\",
    "*",
    "...",
    ":",
    "interfaces",
    "interface",
    "name",
    "eth0",
    "config",
    "mtu",
    "ip",
    "subinterfaces",
    "subinterface",
    "index",
    "0",
    "network-instance",
    "openconfig-interfaces:",
    "holdfast:",
];

#[test]
fn paths() {
    let models = models();
    fuzz("paths", &PATH_WORDS, |text| {
        let Ok(path) = text.parse::<Path>() else { return };
        let printed = path.to_string();
        let mut again: Path = printed.parse().expect(&printed);
        let mut sorted = path.clone();
        [&mut again, &mut sorted]
            .into_iter()
            .flat_map(|it| &mut it.elems)
            .for_each(|it| it.keys.sort());
        assert_eq!(again, sorted, "{printed}");
        for schema in [&models.openconfig, &models.native] {
            for refusal in [schema.resolve_read(&path).err(), schema.resolve_delete(&path).err()]
                .into_iter()
                .flatten()
            {
                assert!(refusal.to_string().contains(&printed), "{refusal}: {printed}");
            }
            match schema.resolve_write(&path) {
                Ok(found) => {
                    let written = found.to_path(schema);
                    assert_eq!(schema.resolve_write(&written).as_ref(), Ok(&found), "{written}");
                }
                Err(refusal) => {
                    assert!(refusal.to_string().contains(&printed), "{refusal}: {printed}")
                }
            }
        }
    });
}

const JSON_WORDS: [&str; 26] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "null",
    "true",
    "1e9",
    "-1",
    "0.5",
    "18446744073709551616",
    "\"interfaces\":",
    "\"holdfast:interfaces\":",
    "\"openconfig-interfaces:interfaces\":",
    "\"interface\":",
    "\"name\":",
    "\"eth0\"",
    "\"config\":",
    "\"mtu\":",
    "1400",
    "\"@\":",
    "\"state\":",
];

#[test]
fn json_documents() {
    let models = models();
    fuzz("json_documents", &JSON_WORDS, |text| {
        for schema in [&models.openconfig, &models.native] {
            for flavour in [Flavour::Ietf, Flavour::Plain] {
                check_document(schema, text, flavour);
            }
        }
    });
}

fn check_document(schema: &Schema, text: &str, flavour: Flavour) {
    let read = |text: &[u8]| json::parse(schema, &InstancePath::root(), text, flavour, true, ());
    let tree = |content: DocumentContent<()>| match content {
        DocumentContent::Branch(branch) => Tree::from_root(branch.into()),
        other => panic!("the root is a branch: {other:?}"),
    };
    match read(text.as_bytes()) {
        Ok(document) => {
            let tree_read = tree(document.content);
            let found = NodeRef::Branch(tree_read.root());
            let Some(printed) = json::print(schema, schema.root(), found, flavour, &|_| true)
            else {
                return;
            };
            let text = String::from_utf8_lossy(&printed);
            let again = read(&printed).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(tree(again.content), tree_read, "{text}");
        }
        Err(error) => {
            assert!(
                error.path.starts_with('/') && error.to_string().contains(&error.path),
                "{error}"
            );
        }
    }
}
