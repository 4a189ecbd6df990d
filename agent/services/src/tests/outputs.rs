//! Rows: what templates put out, and what of it is refused.

use holdfast_config::cli;
use holdfast_config::json::{self, Flavour};
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;

use super::*;
use crate::WorkErrorKind;

const INSTANCE: &str = r#"{"name":"a","port":"eth1","text":"two words","tag":["x","y z"]}"#;

#[track_caller]
fn check(template: &str, want: &str) {
    let output = put_out("main.cli", template, INSTANCE).unwrap();
    assert_eq!(output.origin, Origin::Native);
    assert_eq!(cli::print(&models().native, &output.tree), want, "{template}");
}

#[track_caller]
fn check_json(file: &str, template: &str, want: &str) {
    let output = put_out(file, template, INSTANCE).unwrap();
    let schema = models().schema(output.origin);
    let found = NodeRef::Branch(output.tree.root());
    let printed =
        json::print(schema, schema.root(), found, Flavour::Plain, &|_| true).unwrap_or_default();
    assert_eq!(String::from_utf8(printed).unwrap(), want, "{template}");
}

#[track_caller]
fn refused(file: &str, template: &str, kind: WorkErrorKind, want: &str) {
    let error = put_out(file, template, INSTANCE).unwrap_err();
    assert!(error.kind == kind && error.to_string().contains(want), "{error:?}\n{want}");
}

#[test]
fn lines_become_a_sparse_tree() {
    check(
        "interface br0\n  type bridge\ninterface {{ params.port }}\n  master br0\n",
        "interface br0\n  type bridge\ninterface eth1\n  master br0\n",
    );
    check("", "");
    check(
        "{% for i in range(2) %}interface e{{ i }}\n  mtu {{ 1400 + i }}\n{% endfor %}",
        "interface e0\n  mtu 1400\ninterface e1\n  mtu 1401\n",
    );
    check(
        "network-instance DEFAULT\n  static s\n    route 10.0.0.0/8\n      next-hop a interface {{ params.port }}\n",
        "network-instance DEFAULT static s\n  route 10.0.0.0/8\n    next-hop a interface eth1\n",
    );
}

#[test]
fn an_inserted_value_is_one_word() {
    let description = |value: &str, want: &str| {
        check(
            &format!("interface eth1\n  description {{{{ {value} }}}}\n"),
            &format!("interface eth1\n  description {want}\n"),
        );
    };
    description("params.text", "\"two words\"");
    description("'a\\nno interface eth0'", "\"a\\nno interface eth0\"");
    description("'#'", "\"#\"");
    description("'#x'", "\"#x\"");
    description("'!x'", "\"!x\"");
    description("'a\"b\\\\c'", "\"a\\\"b\\\\c\"");
    description("''", "\"\"");
    description("true", "true");
    description("1.5", "1.5");
    description("params.tag | join(' ')", "\"x y z\"");
    description("('a b' | upper) ~ '!'", "\"A B!\"");
    let lines = "{% set x %}interface eth1\n  mtu 1400{% endset %}";
    refused(
        "main.cli",
        &format!("{lines}{{{{ x }}}}"),
        WorkErrorKind::Failed,
        "unknown word `interface eth1",
    );
    let marked =
        "{% autoescape 'html' %}{% set x %}a\nno interface eth0{% endset %}{% endautoescape %}";
    check(
        &format!("{marked}interface eth1\n  description {{{{ x }}}}\n"),
        "interface eth1\n  description \"a\\nno interface eth0\"\n",
    );
}

#[test]
fn values_that_are_no_scalar_cannot_be_inserted() {
    let insert = |value: &str| format!("interface eth1\n  description {{{{ {value} }}}}\n");
    for (value, want) in [
        ("params.tag", "main.cli line 2: a sequence cannot be inserted"),
        ("params.options", "a map cannot be inserted"),
        ("none", "none cannot be inserted"),
        ("params.needed", "templates/main.cli line 2: undefined value: params.needed"),
        ("nothing", "templates/main.cli line 2: undefined value: nothing"),
        ("params.name | safe", "unknown filter"),
        ("params.name | escape", "unknown filter"),
        ("params.name | e", "unknown filter"),
        ("config", "cannot be inserted"),
    ] {
        refused("main.cli", &insert(value), WorkErrorKind::Failed, want);
    }
}

#[test]
fn documents_take_json_values() {
    check_json(
        "main.native.json",
        r#"{"holdfast:interfaces":{"interface":[{"name":{{ params.port }},"description":{{ params.text }}}]}}"#,
        r#"{"interfaces":{"interface":[{"name":"eth1","description":"two words"}]}}"#,
    );
    check_json("main.native.json", "{}", "");
    refused(
        "main.native.json",
        r#"{"x":{{ [[1]] }}}"#,
        WorkErrorKind::Failed,
        "a sequence cannot be inserted",
    );
    refused(
        "main.native.json",
        r#"{"x":{{ params.options }}}"#,
        WorkErrorKind::Failed,
        "a map cannot be inserted",
    );
    refused(
        "main.native.json",
        r#"{"holdfast:interfaces":{{ params.tag }}}"#,
        WorkErrorKind::Failed,
        "expected here",
    );
    check_json(
        "main.oc.json",
        r#"{"openconfig-interfaces:interfaces":{"interface":[{"name":{{ params.port }},"config":{"mtu":{{ 1514 }}}}]}}"#,
        r#"{"interfaces":{"interface":[{"name":"eth1","config":{"mtu":1514,"name":"eth1"}}]}}"#,
    );
    let breaks_out = r#"{"holdfast:interfaces":{"interface":[{"name":"e","description":{{ 'x","mtu":1400,"alias":"y' }}}]}}"#;
    check_json(
        "main.native.json",
        breaks_out,
        r#"{"interfaces":{"interface":[{"name":"e","description":"x\",\"mtu\":1400,\"alias\":\"y"}]}}"#,
    );
    refused(
        "main.native.json",
        r#"{"holdfast:interfaces":{{ none }}}"#,
        WorkErrorKind::Failed,
        "none cannot be inserted",
    );
    refused(
        "main.native.json",
        r#"{"holdfast:interfaces":{"interface":[{"name":"{{ params.port }}"}]}}"#,
        WorkErrorKind::Failed,
        "templates/main.native.json line 1: a value is inserted with its quotes",
    );
}

#[test]
fn a_value_in_quotes_or_beside_others_is_refused() {
    for value in
        ["\"{{ params.port }}\"", "\"{{ 1 }}\"", "{{ 'a' }}{{ 'b' }}", "1{{ 2 }}", "{{ 1 }}2"]
    {
        let text = format!(r#"{{"holdfast:interfaces":{{"interface":[{{"name":{value}}}]}}}}"#);
        refused(
            "main.native.json",
            &text,
            WorkErrorKind::Failed,
            "a value is inserted with its quotes",
        );
    }
}

#[test]
fn output_that_the_models_refuse_names_the_line_of_the_template() {
    refused(
        "main.cli",
        "interface eth1\n  colour red\n",
        WorkErrorKind::Failed,
        "templates/main.cli line 2: `colour red`: unknown word",
    );
    refused(
        "main.cli",
        "interface eth1\n{% for i in [1,2] %}\n  mtu {{ i }}\n{% endfor %}",
        WorkErrorKind::Failed,
        "templates/main.cli line 3: `mtu 1`",
    );
    refused(
        "main.cli",
        "interface eth1\n  mtu {{ params.name }}\n",
        WorkErrorKind::Failed,
        "line 2: `mtu a`",
    );
    refused(
        "main.cli",
        "interface eth1\n  state mtu 1\n",
        WorkErrorKind::Failed,
        "is state, which cannot be written",
    );
    refused(
        "main.native.json",
        r#"{"holdfast:interfaces":{"interface":[{"mtu":1400}]}}"#,
        WorkErrorKind::Failed,
        "key `name` is missing",
    );
    refused(
        "main.oc.json",
        r#"{"interfaces":{}}"#,
        WorkErrorKind::Failed,
        "the name lacks its module (RFC 7951)",
    );
    refused(
        "main.native.json",
        "{\n\n  x }\n",
        WorkErrorKind::Failed,
        "templates/main.native.json line 3: ",
    );
    refused("main.oc.json", r#"[]"#, WorkErrorKind::Failed, "expected here");
    let port = |leaf: &str| {
        format!(
            "{{ \"holdfast:interfaces\": {{ \"interface\": [\n\
             {{% for i in range(3) %}}\n{{% if not loop.first %}},{{% endif %}}\n\
             {{ \"name\": {{{{ 'e' ~ i }}}},\n  {leaf} }}\n{{% endfor %}}\n] }} }}\n"
        )
    };
    for (leaf, want) in [
        (
            r#""mtu": {{ 1400 + 70000 * (i == 1) }}"#,
            "line 5: `/interfaces/interface[name=e1]/mtu`: ",
        ),
        (r#""colour": "red""#, "line 5: `/interfaces/interface"),
        (r#""ipv4": { "address": [\n{ "ip": 1 } ] }"#, "line 6: `/interfaces/interface"),
    ] {
        let want = format!("templates/main.native.json {want}");
        refused(
            "main.native.json",
            &port(&leaf.replace("\\n", "\n")),
            WorkErrorKind::Failed,
            &want,
        );
    }
    refused(
        "main.cli",
        "network-instance other\n  static s\n    route ::/0\n      next-hop a next-hop ::1\n",
        WorkErrorKind::Failed,
        "other",
    );
}

#[test]
fn deletes_services_reserved_items_and_what_is_not_granted_are_refused() {
    refused(
        "main.cli",
        "no interface eth0\n",
        WorkErrorKind::Failed,
        "main.cli line 1: a service has no `no`",
    );
    refused(
        "main.cli",
        "interface eth0\n  no mtu\n",
        WorkErrorKind::Failed,
        "main.cli line 2: a service has no `no`",
    );
    refused(
        "main.cli",
        "services s b\n",
        WorkErrorKind::Denied,
        "main.cli line 1: `/services/s[name=b]`: services neither",
    );
    refused(
        "main.cli",
        "services s b port eth0\n",
        WorkErrorKind::Denied,
        "services neither read nor write",
    );
    refused(
        "main.native.json",
        r#"{"holdfast-services:services":{"s:s":[{"name":"b"}]}}"#,
        WorkErrorKind::Denied,
        "services neither",
    );
    refused(
        "main.cli",
        "system\n  login-banner x\n",
        WorkErrorKind::Denied,
        "main.cli line 2: `/system/login-banner` is not in the grants to write",
    );
    refused(
        "main.native.json",
        r#"{"holdfast:system":{"login-banner":"x"}}"#,
        WorkErrorKind::Denied,
        "`/system/login-banner` is not in the grants",
    );
    refused(
        "main.oc.json",
        r#"{"openconfig-system:system":{"config":{"hostname":"x"}}}"#,
        WorkErrorKind::Denied,
        "is not in the grants to write",
    );
    check("system hostname x\n", "system\n  hostname x\n");
    let user = |leaf: &str| {
        format!(
            r#"{{"openconfig-system:system":{{"aaa":{{"authentication":{{"users":{{"user":[{{"username":"u","config":{{"{leaf}":"x"}}}}]}}}}}}}}}}"#
        )
    };
    refused(
        "main.oc.json",
        &user("password"),
        WorkErrorKind::Denied,
        "is reserved for gnsi: passwords",
    );
    // A key is for the union to refuse, while gNSI is on; without a reader of keys there is none.
    refused("main.oc.json", &user("ssh-key"), WorkErrorKind::Failed, "keys are not read here");
}

#[test]
fn an_entry_on_the_way_to_something_granted_is_not_claimed() {
    let output = put_out("main.cli", "network-instance DEFAULT\n  static s\n", INSTANCE).unwrap();
    let list =
        output.tree.root().container(models().native.find("/network-instances").unwrap()).unwrap();
    let (_, instance) = list
        .list(models().native.find("/network-instances/network-instance").unwrap())
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert!(!instance.given, "only what is below is wanted");
    let (_, entry) = instance
        .list(models().native.find("/network-instances/network-instance/static").unwrap())
        .unwrap()
        .iter()
        .next()
        .unwrap();
    assert!(entry.given);
    assert_eq!(output.leaves, 1, "the key of the entry that is granted");
    let output = put_out("main.cli", "network-instance DEFAULT\n", INSTANCE).unwrap();
    assert!(output.tree.is_empty() && output.leaves == 0, "{output:?}");
    refused(
        "main.cli",
        "network-instance DEFAULT\n  enabled true\n",
        WorkErrorKind::Failed,
        "unknown word",
    );
}

#[test]
fn templates_include_templates_of_their_package_alone() {
    let outline = "[[component]]\ntype = \"c\"\n[[component.state]]\nname = \"a\"\nwork = \"a.cli\"\n[[tree]]\ncreate = { type = \"c\", name = \"'x'\" }";
    let render = |text: &str| {
        let package = staged(
            outline,
            &[
                ("templates/a.cli", text),
                ("templates/b.cli", "  mtu {{ mtu }}\n"),
                ("templates/c.oc.json", "{}"),
            ],
        )
        .unwrap();
        let work = package.outline.components[0].states[1].work.clone();
        package.render(work.as_ref(), &scope(&package, INSTANCE), &no_facts())
    };
    let output = render("interface e\n{% set mtu = 1400 %}{% include 'b.cli' %}").unwrap().unwrap();
    assert_eq!(cli::print(&models().native, &output.tree), "interface e\n  mtu 1400\n");
    let error = render("interface e\n{% include 'b.cli' %}").unwrap_err().to_string();
    assert!(error.contains("templates/b.cli line 1: undefined value"), "{error}");
    let error =
        render("interface e\n{% set mtu = 1 %}{% include 'b.cli' %}").unwrap_err().to_string();
    assert!(error.contains("templates/b.cli line 1: `mtu 1`"), "{error}");
    for elsewhere in ["c.oc.json", "/etc/passwd", "../service.toml"] {
        let error = render(&format!("{{% include '{elsewhere}' %}}")).unwrap_err().to_string();
        assert!(error.contains("template not found"), "{error}");
    }
}
