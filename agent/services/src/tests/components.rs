//! Rows: trees, and the components they make.

use super::*;
use crate::WorkErrorKind;
use crate::limits::{COMPONENTS, TREE_VISITS};

const TYPES: &str = "[[component]]\ntype = \"c\"\n[[component.state]]\nname = \"made\"\nwork = \"made.cli\"\n[[component]]\ntype = \"d\"\n";
const INSTANCE: &str =
    r#"{"name":"a","port":"eth1","count":2,"end":[{"id":1,"address":"::1"},{"id":2}]}"#;

fn components(tree: &str) -> Result<Vec<String>, WorkError> {
    let template = "interface {{ component.name }}\n  description {{ note }}\n";
    let package = staged(&format!("{TYPES}{tree}"), &[("templates/made.cli", template)]).unwrap();
    let found = package.components(&scope(&package, INSTANCE), &no_facts())?;
    let line = |it: &crate::Component| {
        let replaced: Vec<String> =
            it.replaces.iter().map(|(kind, name)| format!(" for {kind} {name}")).collect();
        format!("{} {}{}", it.component_type, it.name, replaced.concat())
    };
    Ok(found.iter().map(line).collect())
}

#[track_caller]
fn check(tree: &str, want: &[&str]) {
    let found = components(tree).unwrap();
    assert_eq!(found, [&["self self"], want].concat(), "{tree}");
}

#[track_caller]
fn fails(tree: &str, want: &str) {
    let error = components(tree).unwrap_err();
    assert_eq!(error.kind, WorkErrorKind::Failed);
    assert!(
        error.to_string().starts_with("service.toml line ") && error.to_string().contains(want),
        "{error}"
    );
}

/// A node that creates a component `c` of this name, with more lines before.
fn creates(lines: &str, name: &str) -> String {
    format!("[[tree]]\n{lines}\ncreate = {{ type = \"c\", name = \"{name}\" }}\n")
}

// proves sv.B31, sv.B33
#[test]
fn selectors_and_multipliers_make_components_in_tree_order() {
    check(&creates("", "'main'"), &["c main"]);
    check(&(creates("", "'b'") + &creates("", "'a'")), &["c b", "c a"]);
    check(&creates("if = \"params.port == 'eth1'\"", "'main'"), &["c main"]);
    check(&creates("if = \"params.port == 'eth2'\"", "'main'"), &[]);
    check(
        &creates("foreach = \"params.end\"\nas = \"end\"", "'end-' ~ end.id"),
        &["c end-1", "c end-2"],
    );
    check(
        &creates(
            "foreach = \"params.end\"\nas = \"end\"\nif = \"end.address is defined\"",
            "item.id",
        ),
        &["c 1"],
    );
    check(&creates("foreach = \"range(params.count)\"\nas = \"n\"", "n"), &["c 0", "c 1"]);
    check(&creates("foreach = \"params.tag\"\nas = \"tag\"", "tag"), &[]);
    check(&creates("vars = { low = \"params.count * 2\" }", "low"), &["c 4"]);
    let replaced = "create = { type = \"c\", name = \"'new'\", replaces = [{ type = \"d\", name = \"params.name\" }] }";
    check(&format!("[[tree]]\n{replaced}\n"), &["c new for d a"]);
}

// proves sv.B32
#[test]
fn nodes_stand_within_nodes_and_see_what_is_above() {
    let tree = "[[tree]]\nforeach = \"params.end\"\nas = \"end\"\nvars = { base = \"end.id * 10\" }\n[[tree.node]]\nforeach = \"range(2)\"\nas = \"n\"\ncreate = { type = \"c\", name = \"base + n\" }\n[[tree.node]]\nif = \"end.id == 2\"\ncreate = { type = \"d\", name = \"item.id\" }\n";
    check(tree, &["c 10", "c 11", "c 20", "c 21", "d 2"]);
    check(
        "[[tree]]\nif = \"false\"\n[[tree.node]]\ncreate = { type = \"c\", name = \"nothing\" }\n",
        &[],
    );
}

#[test]
fn the_variables_of_its_nodes_are_those_of_a_component() {
    let tree = creates("vars = { note = \"'of ' ~ params.name\" }", "'main'");
    let template = "interface {{ component.name }}\n  description {{ note }}\n";
    let package = staged(&format!("{TYPES}{tree}"), &[("templates/made.cli", template)]).unwrap();
    let scope = scope(&package, INSTANCE);
    let found = package.components(&scope, &no_facts()).unwrap();
    let work = package.outline.component("c").unwrap().state("made").unwrap().work.as_ref();
    let output =
        package.render(work, &scope.of_component(&found[1]), &no_facts()).unwrap().unwrap();
    let text = holdfast_config::cli::print(&models().native, &output.tree);
    assert_eq!(text, "interface main\n  description \"of a\"\n");
    let error = package.render(work, &scope.of_component(&found[0]), &no_facts()).unwrap_err();
    assert!(error.to_string().contains("line 2: undefined value"), "{error}");
}

#[test]
fn a_failure_names_the_expression() {
    fails(&(creates("", "'a'") + &creates("", "'a'")), "`'a'`: there are two components `c a`");
    fails(&creates("if = \"params.name\"", "'a'"), "a condition is true or false");
    fails(
        &creates("foreach = \"params.name\"\nas = \"n\"", "n"),
        "the items are a list, and this is string",
    );
    fails(
        &creates("foreach = \"params.options\"\nas = \"n\"", "n"),
        "the items are a list, and this is map",
    );
    fails(&creates("", "params.end"), "the name of a component is a text");
    fails(&creates("", "''"), "the name of a component is a text");
    fails(&creates("", "'x' * 256"), "the name of a component is a text of up to 255 bytes");
    fails(&creates("", "params.colour"), "undefined value");
    fails(&creates("vars = { v = \"params.colour\" }", "'a'"), "undefined value");
    fails(&creates("observe = [\"params.colour\"]", "'a'"), "undefined value");
    fails(&creates("vars = { v = \"1\", w = \"v + 1\" }", "'a'"), "types undefined and number");
}

#[test]
fn components_and_visits_are_bounded() {
    let many = |count: usize| {
        components(&creates(&format!("foreach = \"range({count})\"\nas = \"n\""), "n"))
    };
    assert_eq!(many(COMPONENTS.figure - 1).unwrap().len(), COMPONENTS.figure, "with `self`");
    let error = many(COMPONENTS.figure).unwrap_err();
    assert!(
        error.kind == WorkErrorKind::Limit
            && error.to_string().contains("more than 1000 components"),
        "{error}"
    );
    let idle = |count: usize| {
        components(&creates(
            &format!("foreach = \"range({count})\"\nas = \"n\"\nif = \"false\""),
            "n",
        ))
    };
    assert_eq!(idle(TREE_VISITS.figure).unwrap(), ["self self"]);
    let error = idle(TREE_VISITS.figure + 1).unwrap_err();
    assert!(error.to_string().contains("more than 10000 visits of tree nodes"), "{error}");
}
