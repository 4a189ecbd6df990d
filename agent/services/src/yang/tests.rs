//! Rows: modules, and why they are refused.

use std::sync::OnceLock;

use super::*;
use crate::error::PackageError;

const FILE: &str = "s@2026-11-23.yang";

/// Parts of a module; each row replaces one.
const HEADER: &str = "module s { yang-version 1.1; namespace \"urn:s\"; prefix s;";
const IMPORTS: &str = "import holdfast-services { prefix svc; } import holdfast { prefix hf; }";
const REVISION: &str = "revision 2026-11-23 { description \"First.\"; }";
const LEAVES: &str = "leaf name { type string; }";

fn models() -> &'static Models {
    static MODELS: OnceLock<Models> = OnceLock::new();
    MODELS.get_or_init(|| Models::load().unwrap())
}

fn list(leaves: &str) -> String {
    format!(
        "augment \"/svc:services\" {{ list s {{ key name; uses svc:service-instance; {leaves} }} }}"
    )
}

fn module(header: &str, imports: &str, revision: &str, content: &str) -> String {
    format!("{header}\n{imports}\n{revision}\n{content} }}")
}

fn with(content: &str) -> String {
    module(HEADER, IMPORTS, REVISION, content)
}

fn errors_of(file: &str, text: &str) -> Vec<String> {
    let done = check(models(), "s", file, text).and_then(|module| module.compile(models()));
    let errors = done.err().unwrap_or_default();
    errors.iter().map(PackageError::to_string).collect()
}

/// Checks the errors of a module; those about its writing come with their lines.
#[track_caller]
fn refused(text: &str, want: &[&str]) {
    let errors = errors_of(FILE, text);
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (error, want) in errors.iter().zip(want) {
        assert!(error.contains(want), "{error}\n{want}");
    }
}

// proves sv.A1
#[test]
fn a_module_of_one_list_is_appended_to_the_models() {
    let text = with(&list(LEAVES));
    let module = check(models(), "s", FILE, &text).unwrap();
    let ServiceList { models: more, list: of_type, key, .. } = module.compile(models()).unwrap();
    assert!(of_type.0 as usize >= models().native.nodes().len());
    assert_eq!(more.native.node(key).name, "name");
    let deploy = more.native.child(of_type, None, "deploy").unwrap();
    assert_eq!(more.native.leaf(deploy).default.as_ref().unwrap().to_string(), "true");
    let other = with(&list(&format!("{LEAVES} leaf more {{ type string; }}")));
    let again = check(&more, "s", FILE, &other).unwrap().compile(&more).unwrap();
    assert_eq!(again.list, of_type, "another version takes its place");
    assert!(again.models.native.child(of_type, None, "more").is_some());
    let other = text
        .replace("module s ", "module t ")
        .replace("urn:s", "urn:t")
        .replace("list s", "list t");
    let other = check(&more, "t", "t@2026-11-23.yang", &other).unwrap().compile(&more).unwrap();
    assert!(other.models.native.find("/services/s").is_some());
}

#[test]
fn its_own_state_and_shapes_below_the_list_are_allowed() {
    refused(
        &with(&list(&format!(
            "{LEAVES} container facts {{ config false; leaf seen {{ type string; }} }}"
        ))),
        &[],
    );
    let below = "list end { key \"a b\"; min-elements 1; max-elements 2; unique c; leaf a { type string; } leaf b { type string; } leaf c { type string; } }";
    refused(&with(&list(&format!("{LEAVES} {below}"))), &[]);
    let typed = format!(
        "typedef t {{ type string; }} grouping g {{ leaf x {{ type t; }} }} {}",
        list(&format!("{LEAVES} uses g;"))
    );
    refused(&with(&typed), &[]);
}

// proves sv.A2
#[test]
fn the_header_is_checked() {
    let content = list(LEAVES);
    refused("module s {", &["s@2026-11-23.yang:1:11: a word is expected"]);
    refused("submodule s { }", &["1:1: the file is not a module"]);
    let other = HEADER.replace("module s", "module t");
    refused(
        &module(&other, IMPORTS, REVISION, &content),
        &[
            "1:1: the module is `t`, and the type `s`",
            "3:1: the file of this revision is `t@2026-11-23.yang`",
        ],
    );
    refused(
        &module(HEADER, IMPORTS, "revision 2026-11-24 { }", &content),
        &["3:1: the file of this revision is `s@2026-11-24.yang`"],
    );
    refused(&module(HEADER, IMPORTS, "", &content), &["1:1: a revision is missing"]);
    for (namespace, owner) in [
        ("urn:holdfast:native", "holdfast"),
        ("urn:holdfast:services", "holdfast-services"),
        ("http://openconfig.net/yang/interfaces", "openconfig-interfaces"),
    ] {
        let text = module(&HEADER.replace("urn:s", namespace), IMPORTS, REVISION, &content);
        refused(&text, &[&format!("1:30: the namespace is that of the module `{owner}`")]);
    }
    refused(
        &module(HEADER, "import holdfast { prefix hf; }", REVISION, &content),
        &[
            "1:1: the import of `holdfast-services` is missing",
            "4:1: a package augments `/services` of `holdfast-services`, not `/svc:services`",
        ],
    );
    let imports = format!("{IMPORTS} import elsewhere {{ prefix e; }}");
    refused(
        &module(HEADER, &imports, REVISION, &content),
        &["2:73: the agent has no module `elsewhere`"],
    );
    let imports = format!("{IMPORTS} import holdfast-extensions {{ prefix x; }}");
    refused(
        &module(HEADER, &imports, REVISION, &content),
        &["2:73: the marks of `holdfast-extensions`"],
    );
}

// proves sv.A3
#[test]
fn the_augment_is_one_list_of_one_key_with_the_grouping() {
    refused(&with(""), &["nothing augments the container"]);
    refused(&with(&format!("{} {}", list(LEAVES), list(LEAVES))), &["a package has one augment"]);
    refused(
        &with("augment \"/hf:interfaces\" { leaf x { type string; } }"),
        &["4:1: a package augments `/services`"],
    );
    let inside = |nodes: &str| with(&format!("augment \"/svc:services\" {{\n{nodes} }}"));
    refused(
        &inside("container s { }"),
        &["5:1: `container`: the augment has one list", "4:1: the augment has one list, not 0"],
    );
    refused(
        &inside("list t { key name; uses svc:service-instance; leaf name { type string; } }"),
        &["5:1: the list is `t`"],
    );
    refused(
        &inside(
            "list s { key \"a b\"; uses svc:service-instance; leaf a { type string; } leaf b { type string; } }",
        ),
        &["5:1: the list of a type has one key, not 2"],
    );
    refused(
        &inside("list s { config false; uses svc:service-instance; }"),
        &["5:1: the list of a type has one key, not 0"],
    );
    refused(
        &inside("list s { key name; leaf name { type string; } }"),
        &["5:1: the list does not use the grouping"],
    );
    refused(
        &inside(
            "list s { key name; uses svc:service-instance { refine deploy { default false; } } leaf name { type string; } }",
        ),
        &["5:20: the grouping `service-instance` is used as it is"],
    );
    refused(
        &with(&format!("{} container c {{ }}", list(LEAVES))),
        &["`container`: a package adds one list to the services"],
    );
    refused(
        &with(&format!("{} leaf c {{ type string; }}", list(LEAVES))),
        &["`leaf`: a package adds one list"],
    );
}

#[test]
fn operations_notifications_and_untyped_data_are_refused() {
    for top in [
        "rpc x;",
        "notification x;",
        "deviation /hf:system { deviate not-supported; }",
        "include y;",
    ] {
        let keyword = top.split(' ').next().unwrap();
        refused(&with(&format!("{}\n{top}", list(LEAVES))), &[&format!("5:1: `{keyword}`: ")]);
    }
    for inside in ["action x;", "notification x;", "anydata x;", "anyxml x;"] {
        let keyword = inside.split(' ').next().unwrap();
        refused(&with(&list(&format!("{LEAVES}\n{inside}"))), &[&format!("5:1: `{keyword}`: ")]);
    }
}

#[test]
fn an_instance_sees_itself_only() {
    let leaf = |inside: &str| with(&list(&format!("{LEAVES}\nleaf x {{ {inside} }}")));
    refused(&leaf("type string; must \"../name != 'x'\"; when \"../name\";"), &[]);
    refused(
        &leaf("type string; must \"/hf:interfaces\";"),
        &["5:23: `must` has a path from the root"],
    );
    refused(
        &leaf("type string; when \"count(/hf:interfaces) > 1\";"),
        &["5:23: `when` has a path from the root"],
    );
    refused(&leaf("type leafref { path \"../name\"; }"), &[]);
    refused(
        &leaf(
            "type leafref { path \"/hf:interfaces/hf:interface/hf:name\"; require-instance false; }",
        ),
        &[],
    );
    let out = "5:10: a leafref that leads out of the instance";
    refused(&leaf("type leafref { path \"/hf:interfaces/hf:interface/hf:name\"; }"), &[out]);
    refused(&leaf("type leafref { path \"../../s/name\"; }"), &[out]);
    refused(
        &leaf("type leafref { path \"/svc:services/s:s/s:name\"; require-instance true; }"),
        &[out],
    );
    let deeper = "container c { leaf x { type leafref { path \"../../name\"; } } }";
    refused(&with(&list(&format!("{LEAVES} {deeper}"))), &[]);
    let union = leaf("type union { type string; type leafref { path \"../../s/name\"; } }");
    refused(&union, &["5:36: a leafref that leads out"]);
    let grouping = |path: &str| {
        with(&format!(
            "grouping g {{ leaf y {{ type string; }} leaf x {{ type leafref {{ path \"{path}\"; }} }} }}\n{}",
            list(&format!("{LEAVES} uses g;"))
        ))
    };
    refused(&grouping("../y"), &[]);
    refused(&grouping("../../s/y"), &["4:47: a leafref that leads out"]);
}

#[test]
fn siblings_have_names_of_their_own_in_templates() {
    let leaves = format!("{LEAVES} leaf a-b {{ type string; }} leaf a_b {{ type string; }}");
    refused(&with(&list(&leaves)), &["`a-b` and `a_b` differ in `-` and `_` only"]);
    let below = format!(
        "{LEAVES} container c {{ leaf a-b {{ type string; }} leaf a_b {{ type string; }} }}"
    );
    refused(&with(&list(&below)), &["`a-b` and `a_b` differ"]);
}

#[test]
fn refusals_of_libyang_are_quoted() {
    let place = "s@2026-11-23.yang:4:85: ";
    let errors = errors_of(FILE, &with(&list("leaf name { type unheard-of; }")));
    assert_eq!(errors, [format!("{place}Referenced type \"unheard-of\" not found.")]);
    refused(
        &with(&list("leaf nam { type string; }")),
        &["4:36: The list's key \"name\" not found."],
    );
    refused(
        &with(&list("leaf name { type string { length \"a\"; } }")),
        &["s@2026-11-23.yang: Invalid length"],
    );
    // Errors of the text as a whole have a line only.
    let lines = |leaf: &str| with(&list(&format!("{LEAVES}\n  {leaf}\n")));
    refused(&lines("laef vni { type string; }"), &["s@2026-11-23.yang:5:3: "]);
    refused(&lines("leaf vni { type string; mandatory maybe; }"), &["s@2026-11-23.yang:5:27: "]);
    for wrong in ["laef vni { type string; }", "leaf vni { type string; mandatory maybe; }"] {
        let errors = errors_of(FILE, &lines(wrong));
        assert!(errors[0].contains("laef") || errors[0].contains("maybe"), "{errors:?}");
    }
    let named = |name: &str| {
        let file = format!("{name}@2026-11-23.yang");
        let text = with(&list(LEAVES)).replace("module s ", &format!("module {name} "));
        let text = text.replace("list s ", &format!("list {name} "));
        let module = check(models(), name, &file, &text).unwrap();
        module.compile(models()).unwrap_err()[0].reason.clone()
    };
    assert_eq!(named("holdfast"), "the agent has a module `holdfast` of its own");
    assert_eq!(
        named("openconfig-interfaces"),
        "the agent has a module `openconfig-interfaces` of its own"
    );
    let zero = with(&list("leaf name { type string; description \"\0\"; }"));
    assert!(errors_of(FILE, &zero)[0].contains("zero"));
    let large = with(&" ".repeat(MODULE_SIZE.figure));
    refused(&large, &["more than 262144 bytes in a YANG module"]);
}
