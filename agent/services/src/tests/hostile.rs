//! Packages that mean harm: each is refused by name, and takes little time and memory before that.

use super::*;
use crate::WorkErrorKind;

const INSTANCE: &str = r#"{"name":"a"}"#;

#[track_caller]
fn runs_out(template: &str) {
    let error = put_out("main.cli", template, INSTANCE).unwrap_err();
    assert!(error.kind == WorkErrorKind::Limit, "{error:?}");
    assert!(error.to_string().contains("more than 200000 units of work in a template"), "{error}");
    assert!(error.to_string().starts_with("templates/main.cli line 1"), "{error}");
}

#[test]
fn loops_without_end_run_out_of_fuel() {
    runs_out("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}");
    runs_out(
        "{% for a in range(100000) %}interface e{{ a }}\n{% endfor %}{% for a in range(100000) %}x{% endfor %}",
    );
}

#[test]
fn large_texts_run_out_of_fuel() {
    runs_out("{{ 'x' * 1000000000 }}");
    runs_out(&format!("{{% set x = 'x' %}}{}", "{% set x = x ~ x %}".repeat(64)));
    runs_out("{{ ('x' * 100000) | replace('x', 'x' * 100000) }}");
    runs_out("{{ range(100000) | list | join('x' * 10000) }}");
    runs_out("{{ '%1000000000d' | format(1) }}");
}

#[test]
fn recursion_ends_at_its_limit() {
    for template in [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'main.cli' %}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    ] {
        let error = put_out("main.cli", template, INSTANCE).unwrap_err();
        assert!(error.to_string().contains("recursion limit"), "{template}: {error}");
    }
}

/// The deepest values that the bounds leave are printed, compared and let go of on the stack of any thread.
#[test]
fn values_in_values_are_bounded() {
    let wraps = "[".repeat(45) + "x" + &"]".repeat(45);
    let render = |end: &str| {
        let text = format!(
            "# {{% for x in [[1]] recursive %}}{{% if loop.depth < 45 %}}{{{{ loop([{wraps}]) }}}}{{% else %}}{end}{{% endif %}}{{% endfor %}}"
        );
        put_out("main.cli", &text, INSTANCE)
    };
    for end in
        ["{{ x | string | length }}", "{{ x == [x] }}", "{{ x ~ '' | length }}", "{{ 'x' in x }}"]
    {
        assert_eq!(render(end).unwrap().leaves, 0, "{end}");
    }
    for gone in [
        "namespace(a=1)",
        "dict(a=1)",
        "[1] | batch(1)",
        "[1] | slice(1)",
        "[1] | zip([1])",
        "[1] | chain([1])",
        "{'a': 1} | items",
        "{'a': 1} | dictsort",
        "[{'a': 1}] | groupby('a')",
        "1 | pprint",
    ] {
        let error =
            put_out("main.cli", &format!("{{{{ {gone} }}}}"), INSTANCE).unwrap_err().to_string();
        assert!(error.contains("unknown f"), "{gone}: {error}");
    }
}

#[test]
fn expressions_have_less_fuel() {
    let package = plain("main.cli", "").unwrap();
    let scope = scope(&package, INSTANCE);
    for expression in ["'x' * 1000000000 == ''", "range(100000) | sum == 0"] {
        let error = package.condition(&located(expression), &scope, &no_facts()).unwrap_err();
        assert_eq!(error.kind, WorkErrorKind::Limit, "{error}");
        assert!(
            error.to_string().contains("more than 10000 units of work in an expression"),
            "{error}"
        );
    }
}

#[test]
fn output_is_bounded_before_it_is_read() {
    let lines =
        format!("{{% for i in range(200) %}}{}{{% endfor %}}", "interface e\n".repeat(5000));
    let error = put_out("main.cli", &lines, INSTANCE).unwrap_err();
    assert!(
        error.kind == WorkErrorKind::Limit && error.to_string().contains("more than 30000 lines"),
        "{error}"
    );
    let leaves = |count: usize| {
        let text = format!("{{% for i in range({count}) %}}interface e{{{{ i }}}}\n{{% endfor %}}");
        put_out("main.cli", &text, INSTANCE)
    };
    assert_eq!(leaves(10_000).unwrap().leaves, 10_000);
    let error = leaves(10_001).unwrap_err();
    assert!(
        error.kind == WorkErrorKind::Limit && error.to_string().contains("more than 10000 leaves"),
        "{error}"
    );
}

#[test]
fn nothing_of_the_box_is_in_reach() {
    for name in [
        "now()",
        "debug()",
        "env('HOME')",
        "open('/etc/passwd')",
        "random()",
        "lipsum()",
        "import os",
    ] {
        let template = format!("interface e\n  description {{{{ {name} }}}}\n");
        let refused = match plain("main.cli", &template) {
            Err(errors) => errors.to_string(),
            Ok(_) => put_out("main.cli", &template, INSTANCE).unwrap_err().to_string(),
        };
        assert!(refused.contains("main.cli"), "{name}: {refused}");
    }
}

/// Chains and nests of templates and outlines: each would take the stack of a thread if it was compiled.
#[test]
fn deep_nesting_is_refused_before_it_is_compiled() {
    const DEPTH: usize = 20_000;
    let long = |unit: &str| unit.repeat(DEPTH.min((60 << 10) / unit.len()));
    let tokens = "more than 500 words and marks in an expression or a tag";
    for (template, want) in [
        (format!("{{{{ {}1 }}}}", long("not ")), tokens),
        (format!("{{{{ {}1 }}}}", long("-")), tokens),
        (format!("{{{{ {}1 }}}}", long("1 if 1 else ")), tokens),
        (format!("{{{{ 1{} }}}}", long(" if 1")), tokens),
        (format!("{{{{ x{} }}}}", long("+x")), tokens),
        (format!("{{{{ x{} }}}}", long(".y")), tokens),
        (format!("{{{{ x{} }}}}", long("|upper")), tokens),
        (format!("{{{{ x{} }}}}", long("()")), tokens),
        (format!("{{{{ x{} }}}}", long("[1]")), tokens),
        (format!("{{{{ x{} }}}}", long(" is defined")), tokens),
        (format!("{{{{ '}}}}' {} }}}}", long("~x")), tokens),
        (format!("{{% for {}a in x %}}{{% endfor %}}", long("(")), "more than 50 lists and maps"),
        (
            format!("{{% if 1 %}}{}{{% endif %}}", long("{% elif x %}")),
            "more than 200 `elif` in a template",
        ),
        ("{% set x = [x] %}".repeat(51), "more than 50 lists and maps written in the tags"),
        ("{% set x = {'a': x} %}".repeat(51), "more than 50 lists and maps"),
        ("{% set x = (x,) %}".repeat(51), "more than 50 lists and maps"),
        ("{% if x in [x] %}{% endif %}".repeat(51), "more than 50 lists and maps"),
        ("{% set x = x | reverse %}".repeat(401), "more than 400 filters in a template"),
        (long("{% if 1 %}"), "maximum recursion limits"),
        (long("{% for x in y %}"), "maximum recursion limits"),
    ] {
        let errors = plain("main.cli", &template).unwrap_err().to_string();
        assert!(errors.starts_with("templates/main.cli:1:") && errors.contains(want), "{errors}");
    }
    let fits =
        "{% set x = [x] %}{{ f(x)[1] ~ params.end[0].id }}{% if (x) %}{% endif %}".repeat(25);
    assert!(
        plain("main.cli", &fits).is_ok(),
        "calls and parts of values are not values of their own"
    );
    let outline = format!(
        "[[component]]\ntype = \"c\"\n[[tree]]\nif = \"{}1\"\ncreate = {{ type = \"c\", name = \"'x'\" }}",
        "-".repeat(4000)
    );
    let errors = staged(&outline, &[]).unwrap_err().to_string();
    assert!(errors.contains("service.toml:12:6: ") && errors.contains(tokens), "{errors}");
    for document in [
        "x=".to_owned() + &"[".repeat(100_000),
        "x=".to_owned() + &"{a=".repeat(100_000),
        "[".to_owned() + &"a.".repeat(100_000) + "b]",
        "[[tree".to_owned() + &".node".repeat(10_000) + "]]",
    ] {
        let errors = crate::Outline::read(&document).unwrap_err().to_string();
        assert!(errors.starts_with("service.toml:1:"), "{errors}");
    }
}
