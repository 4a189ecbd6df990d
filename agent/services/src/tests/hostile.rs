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
    runs_out(
        "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    );
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
