//! Rows: documents, and why they are refused.

use super::*;

const SERVICE: &str = "[service]\nname = \"s\"\nversion = \"1.0.0\"\n";
const ACCESS: &str = "[[component]]\ntype = \"access\"\n";
const TREE: &str = "[[tree]]\ncreate = { type = \"access\", name = \"'main'\" }\n";

/// A document with these lines after the header of a type with one component, which begin in line 6.
fn with_component(lines: &str) -> String {
    format!("{SERVICE}{ACCESS}{lines}\n{TREE}")
}

#[track_caller]
fn check(document: &str, want: &[&str]) {
    let errors: Vec<String> = match Outline::read(document) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(PackageError::to_string).collect(),
    };
    assert_eq!(errors.len(), want.len(), "{errors:#?}");
    for (error, want) in errors.iter().zip(want) {
        assert!(error.contains(want), "{error}\n{want}");
    }
}

// proves sv.B4
#[test]
fn the_outline_of_a_staged_type_is_read_whole() {
    let text = include_str!("../../../../packaging/services/bridge-access/service.toml");
    let (outline, warnings) = Outline::read(text).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(
        (outline.name.text.as_str(), outline.version),
        ("bridge-access", Version([1, 2, 0]))
    );
    let [access] = &outline.components[..] else { panic!("{:?}", outline.components) };
    let states: Vec<&str> = access.states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(states, ["init", "port-attached", "routed", "ready"]);
    let routed = &access.states[2];
    assert!(routed.sticky && routed.delete.commit_after && !routed.commit_after);
    assert_eq!(routed.timeout, Some(Duration::from_secs(600)));
    let action = routed.action.as_ref().unwrap();
    assert!(action.sync && action.target == ActionTarget::Builtin("ping".into()));
    assert_eq!(action.params["destination"].text, "params.via");
    assert_eq!(
        outline.templates().map(|it| it.text.as_str()).collect::<Vec<_>>(),
        ["templates/port.cli", "templates/route.cli"]
    );
    assert_eq!(outline.expressions().len(), 4);
}

#[test]
fn a_plain_type_has_the_work_of_self() {
    let (outline, _) = Outline::read(&format!("{SERVICE}work = \"main.cli\"\n")).unwrap();
    assert!(outline.is_plain());
    let init = outline.component(SELF).unwrap().state(INIT).unwrap();
    assert!(matches!(&init.work, Some(Work::Template(path)) if path.text == "templates/main.cli"));
}

#[test]
fn wrong_toml_and_unknown_names_are_refused_with_their_place() {
    check("[service", &["service.toml:1:9: "]);
    check("[service]\nname = 1\n", &["service.toml:2:8: "]);
    check(&format!("{SERVICE}colour = \"red\"\n"), &["service.toml:4:1: unknown field `colour`"]);
    check("[service]\nversion = \"1.0.0\"\n", &["service.toml:1:1: missing field `name`"]);
    check(
        &with_component("[[component.state]]\nname = \"a\"\nwhne = \"true\""),
        &["service.toml:8:1: unknown field `whne`"],
    );
    check(
        &format!("{SERVICE}converge = \"later\"\n"),
        &["service.toml:4:12: unknown variant `later`"],
    );
}

// proves sv.B2
#[test]
fn header_and_shape_are_checked() {
    let named = |name: &str, version: &str| {
        format!("[service]\nname = \"{name}\"\nversion = \"{version}\"\nwork = \"main.cli\"\n")
    };
    check(&named("9s", "1.0.0"), &["service.toml:2:8: the name of a type"]);
    for version in ["1.0", "1.0.0.0", "1.0.x", "01.0.0", "", "1.0.+1"] {
        check(&named("s", version), &["service.toml:3:11: a version is three numbers"]);
    }
    check(SERVICE, &["service.toml:2:8: there is nothing to do"]);
    check(&format!("{SERVICE}{ACCESS}"), &["service.toml:4:1: components without a tree"]);
    check(
        &format!("{SERVICE}{TREE}"),
        &["4:1: a tree without components", "5:19: there is no component type `access`"],
    );
    let both = format!("{SERVICE}work = \"main.cli\"\n{ACCESS}{TREE}");
    check(&both, &["service.toml:4:8: a type with components has its work in their states"]);
}

// proves sv.B47
#[test]
fn components_and_states_are_checked() {
    let state = |lines: &str| with_component(&format!("[[component.state]]\n{lines}"));
    check(&state("name = \"a\"\nwork = \"a.cli\"\nsticky = true"), &[]);
    check(&state("name = \"A\""), &["service.toml:7:8: the name of a state"]);
    check(&state("name = \"init\"\nwork = \"a.cli\""), &[]);
    check(&state("name = \"ready\"\nwork = \"a.cli\""), &["8:8: work never stands on `ready`"]);
    check(&state("name = \"a\"\nwork = \"handler\""), &["8:8: there is no [handler]"]);
    check(&state("name = \"a\"\ntimeout = 0"), &["8:11: seconds are within 1..31536000"]);
    check(
        &state("name = \"a\"\ndelete = { work = \"a.cli\" }"),
        &["8:19: a template has no delete part"],
    );
    check(&state("name = \"a\"\naction = { sync = true }"), &["8:10: an action has either"]);
    check(
        &state("name = \"a\"\naction = { builtin = \"reboot\" }"),
        &["8:22: there is no builtin action `reboot`"],
    );
    check(&state("name = \"a\"\naction = { handler = \"h\" }"), &["8:22: there is no [handler]"]);
    let named = state("name = \"a\"\naction = { handler = \"H 1\" }");
    check(&named, &["8:22: there is no [handler]", "8:22: the name of an action is"]);
    check(
        &state("name = \"a\"\naction = { builtin = \"ping\", timeout = 90000 }"),
        &["seconds are within 1..86400"],
    );
    check(
        &state("name = \"a\"\naction = { builtin = \"ping\", save = { params = \"result.x\" } }"),
        &["`params` has a meaning of its own"],
    );
    check(
        &state("name = \"a\"\n[[component.state]]\nname = \"a\""),
        &["8:1: the state `a` is there twice"],
    );
    check(
        &state("name = \"a\"\n[[component.state]]\nname = \"init\""),
        &["8:1: `init` is the first state"],
    );
    check(
        &state("name = \"ready\"\n[[component.state]]\nname = \"a\""),
        &["8:1: `ready` is the last state"],
    );
    check(
        &format!("{SERVICE}{ACCESS}{ACCESS}{TREE}"),
        &["7:8: the component type `access` is there twice"],
    );
    check(
        &format!("{SERVICE}[[component]]\ntype = \"self\"\n{ACCESS}{TREE}"),
        &["5:8: `self` is in every instance"],
    );
    let states = |count: usize| {
        (0..count).map(|it| format!("[[component.state]]\nname = \"s{it}\"\n")).collect::<String>()
    };
    check(&with_component(&states(62)), &[]);
    check(&with_component(&states(63)), &["4:1: more than 64 states of a component"]);
    let long = "x".repeat(5000);
    check(
        &state(&format!("name = \"a\"\nwhen = \"{long}\"")),
        &["8:8: more than 4096 bytes in an expression"],
    );
}

#[test]
fn the_tree_is_checked() {
    let tree = |lines: &str| format!("{SERVICE}{ACCESS}{lines}");
    check(&tree("[[tree]]\n"), &["service.toml:6:1: a node without children"]);
    check(&tree("[[tree]]\nif = \"true\"\n"), &["6:1: a node without children"]);
    let main = "create = { type = \"access\", name = \"'main'\" }";
    check(
        &tree(&format!("[[tree]]\n{main}\n[[tree.node]]\n{main}\n")),
        &["7:10: a node has either"],
    );
    check(
        &tree(&format!("[[tree]]\nforeach = \"params.x\"\n{main}\n")),
        &["7:11: `foreach` needs `as`"],
    );
    check(&tree(&format!("[[tree]]\nas = \"x\"\n{main}\n")), &["7:6: `as` needs `foreach`"]);
    check(
        &tree(&format!("[[tree]]\nforeach = \"params.x\"\nas = \"X\"\n{main}\n")),
        &["8:6: the name of a value"],
    );
    check(
        &tree(&format!("[[tree]]\nvars = {{ config = \"1\" }}\n{main}\n")),
        &["7:10: `config` has a meaning"],
    );
    check(
        &tree("[[tree]]\ncreate = { type = \"other\", name = \"'main'\" }\n"),
        &["7:19: there is no component type `other`"],
    );
}

// proves sv.B37
#[test]
fn deep_trees_are_warned_of_and_then_refused() {
    let deep = |levels: usize| {
        let mut lines = String::from("[[tree]]\n");
        for level in 1..levels {
            lines += &format!("[[tree{}]]\n", ".node".repeat(level));
        }
        format!("{SERVICE}{ACCESS}{lines}create = {{ type = \"access\", name = \"'main'\" }}\n")
    };
    for (levels, warnings) in [(4, 0), (5, 1), (8, 1)] {
        assert_eq!(Outline::read(&deep(levels)).unwrap().1.len(), warnings, "{levels}");
    }
    check(&deep(9), &["more than 8 levels of the component tree"]);
}
