//! Facts that a box must publish about itself (required by the union_replace document). The text is generated from
//! the code's behaviour and tables, so that the user guide cannot contradict them.
//!
//! `HOLDFAST_WRITE=1 cargo test --workspace --test published` regenerates the section of the user guide.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_config::cli::{self, Grammar};
use holdfast_config::schema::Origin;
use holdfast_config::show::{self, SHOW_COMMANDS};
use holdfast_config::{Configuration, Edit, EditTarget, Layers, Models, Path, Payload, reserved};

/// The page of the user guide with the generated section.
const PAGE: &str = "packaging/guide/models/published-facts.md";
const BEGIN: &str = "<!-- written by the test `published` of holdfast-config: begin -->\n";
const END: &str = "<!-- end -->\n";

/// An entry of a union_replace, and what the document calls its origin.
const ENTRIES: [(&str, Origin, &str); 3] = [
    ("OpenConfig", Origin::OpenConfig, r#"{"system":{"config":{"domain-name":"oc"}}}"#),
    ("native paths", Origin::Native, r#"{"system":{"login-banner":"ny"}}"#),
    ("CLI text", Origin::Native, "system motd-banner cli"),
];

fn entry(number: usize) -> (EditTarget, Payload) {
    let (name, origin, text) = ENTRIES[number];
    let payload = match name {
        "CLI text" => Payload::Cli { text: text.to_owned() },
        _ => Payload::Json { text: text.as_bytes().to_vec().into(), ietf: false },
    };
    (EditTarget { origin, path: Path::root() }, payload)
}

fn empty(models: &Arc<Models>) -> Configuration {
    Configuration::new(models.clone(), Layers::new())
}

fn union(models: &Arc<Models>, entries: Vec<(EditTarget, Payload)>) -> Result<(), String> {
    let edit = Edit { union_replace: entries, ..Edit::default() };
    empty(models).edit(&edit).map(|_| ()).map_err(|errors| errors.to_string())
}

fn pairs(models: &Arc<Models>) -> String {
    let mut text = String::from("| entries of one `union_replace` | |\n|---|---|\n");
    let sets: [&[usize]; 8] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2], &[2, 2]];
    for set in sets {
        let names: Vec<&str> = set.iter().map(|number| ENTRIES[*number].0).collect();
        let forwards = union(models, set.iter().map(|number| entry(*number)).collect());
        let backwards = union(models, set.iter().rev().map(|number| entry(*number)).collect());
        assert_eq!(forwards.is_ok(), backwards.is_ok(), "the order does not matter");
        let verdict = if forwards.is_ok() { "accepted" } else { "refused, INVALID_ARGUMENT" };
        writeln!(text, "| {} | {verdict} |", names.join(" + ")).unwrap();
    }
    text
}

/// Effect of one leaf that two origins set.
fn overlaps(models: &Arc<Models>) -> String {
    let mut text =
        String::from("| the same leaf in | equal values | different values |\n|---|---|---|\n");
    let host = |number: usize, name: &str| {
        let (target, payload) = entry(number);
        let text = match number {
            0 => format!(r#"{{"system":{{"config":{{"hostname":"{name}"}}}}}}"#),
            1 => format!(r#"{{"system":{{"hostname":"{name}"}}}}"#),
            _ => format!("system hostname {name}"),
        };
        match payload {
            Payload::Cli { .. } => (target, Payload::Cli { text }),
            _ => (target, Payload::Json { text: text.into(), ietf: false }),
        }
    };
    for (one, other) in [(0, 2), (0, 1)] {
        let verdict = |name: &str| match union(models, vec![host(one, "a"), host(other, name)]) {
            Ok(()) => "accepted, both own it",
            Err(_) => "refused, INVALID_ARGUMENT, both sides named",
        };
        let names = format!("{} + {}", ENTRIES[one].0, ENTRIES[other].0);
        writeln!(text, "| {names} | {} | {} |", verdict("a"), verdict("b")).unwrap();
    }
    let option = match union(models, vec![host(0, "a"), host(2, "b")]) {
        Ok(()) => "2: the text wins",
        Err(_) => "1: a conflict is an error",
    };
    format!("Overlap option {option}. List keys may be in both.\n\n{text}")
}

fn origins() -> String {
    let quoted = |origin: Origin| format!("`{origin}`");
    let [cli, alias] = cli::ORIGINS;
    format!(
        "Origins: {} (also empty), {} (native YANG), `{cli}` (CLI text, also `{alias}`).\n",
        quoted(Origin::OpenConfig),
        quoted(Origin::Native),
    )
}

fn reserved_items() -> String {
    let mut text = String::from("| service | item | why |\n|---|---|---|\n");
    for row in reserved::RESERVED_ITEMS {
        writeln!(text, "| {} | `{}` | {} |", row.service.name(), row.openconfig, row.why).unwrap();
    }
    text + "| bootz | every leaf that the boot layers hold, and the entries they hold with their own leaves | set by bootz or gnoi.BootConfig |\n\n\
            A request that names an item and would change it is refused with PERMISSION_DENIED.\nA request that merely covers the item leaves the owner's value.\n"
}

fn factory(models: &Arc<Models>) -> String {
    let shipped = show::show(&empty(models), "show factory").unwrap();
    let shipped =
        if shipped.is_empty() { "nothing".to_owned() } else { format!("`{}`", shipped.trim()) };
    let mut text = format!(
        "A text replaces what the box left the factory with, so `no X` is how a factory item goes.\n\
         The binary ships with {shipped}; `holdfast run --factory FILE` gives it a configuration of its own.\n\
         These commands answer what it is on a box:\n\n| command | answer |\n|---|---|\n"
    );
    for show in SHOW_COMMANDS {
        writeln!(text, "| `{}` | {} |", show.command, show.about).unwrap();
    }
    text
}

fn grammar(models: &Models) -> String {
    let rules = "\
```text
text      = *( [line] newline )
line      = indentation ( comment / [\"no\" blank] statement [blank comment] )
statement = word *( blank word )        ; names of nodes; a list's keys and a leaf's values follow its name
word      = 1*plain / quoted            ; plain: no blank, no quote, no backslash
quoted    = '\"' *( any / \"\\n\" / \"\\r\" / \"\\t\" / '\\\"' / \"\\\\\" ) '\"'
comment   = ( \"!\" / \"#\" ) *any          ; behind a statement the sign is a word of its own
```

A line stands below the nearest line above with less indentation; blocks of one level have one indentation.
Lines count in order, a later one wins; values of a leaf-list add up within one text. All statements there are:

";
    format!("{rules}```text\n{}```\n", Grammar::new(&models.native).outline())
}

fn section() -> String {
    let models = Arc::new(Models::load().unwrap());
    let parts = [
        origins(),
        pairs(&models),
        overlaps(&models),
        reserved_items(),
        factory(&models),
        grammar(&models),
    ];
    format!("{BEGIN}{}{END}", parts.join("\n"))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

// proves 2.58, 2.59, 2.60, 2.61, 2.62, 2.63, 3.21
#[test]
fn the_user_guide_says_what_the_code_does() {
    let path = file(PAGE);
    let guide = fs::read_to_string(&path).unwrap();
    let begin = guide.find(BEGIN).expect("the guide has the section");
    let end = begin + guide[begin..].find(END).expect("the section ends") + END.len();
    let want = section();
    if std::env::var_os("HOLDFAST_WRITE").is_some() {
        fs::write(&path, format!("{}{want}{}", &guide[..begin], &guide[end..])).unwrap();
        return;
    }
    assert!(
        guide[begin..end] == want,
        "the guide is not what the code does; HOLDFAST_WRITE=1 writes it:\n{want}"
    );
}

// proves 2.64
#[test]
fn documents_do_not_speak_of_a_full_device_configuration() {
    let phrase = ["full device", "configuration"].join(" ");
    let texts = ["README.md", "ARCHITECTURE.md"].map(file);
    let folders = ["models", "operating", "appendix"].map(|name| format!("packaging/guide/{name}"));
    let folders = folders.iter().map(String::as_str).chain(["agent/config/yang"]);
    let files = folders.flat_map(|folder| fs::read_dir(file(folder)).unwrap());
    for path in texts.into_iter().chain(files.map(|it| it.unwrap().path())) {
        let text = fs::read_to_string(&path).unwrap().to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(!words.join(" ").contains(&phrase), "{}", path.display());
    }
}
