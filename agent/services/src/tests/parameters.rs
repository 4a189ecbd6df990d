//! Rows: documents of instances, and what expressions see of them or why they are refused.

use super::*;

#[track_caller]
fn check(document: &str, expression: &str, want: &str) {
    let package = plain("main.cli", "").unwrap();
    let value = package.evaluate(&located(expression), &scope(&package, document), &no_facts());
    assert_eq!(value.unwrap().to_string(), want, "{expression} of {document}");
}

#[track_caller]
fn refused(document: &str, want: &str) {
    let errors = plain("main.cli", "").unwrap().parameters(document.as_bytes()).unwrap_err();
    assert!(errors[0].to_string().contains(want), "{errors:?}");
}

#[test]
fn parameters_have_their_types_and_defaults() {
    for (document, expression, want) in [
        (r#"{"name":"a"}"#, "params.name", "a"),
        (r#"{"s:name":"a"}"#, "params.name", "a"),
        (r#"{"name":"a"}"#, "params.count + 1", "4"),
        (r#"{"name":"a","big":"18446744073709551615"}"#, "params.big", "18446744073709551615"),
        (r#"{"name":"a","share":"0.25"}"#, "params.share * 4", "1.0"),
        (r#"{"name":"a"}"#, "params.test_passed or params.deploy", "True"),
        (r#"{"name":"a"}"#, "params.port is defined", "False"),
        (r#"{"name":"a"}"#, "params.tag | length", "0"),
        (r#"{"name":"a","tag":["y","x"]}"#, "params.tag | join('+')", "x+y"),
        (r#"{"name":"a"}"#, "params.options.mtu is defined", "False"),
        (r#"{"name":"a","options":{"flag":[null]}}"#, "params.options.flag", "True"),
        (r#"{"name":"a"}"#, "params.extra is defined", "False"),
        (r#"{"name":"a","extra":{}}"#, "params.extra.level", "1"),
        (r#"{"name":"a"}"#, "params.end | length", "0"),
        (
            r#"{"name":"a","end":[{"id":2,"address":"::2"},{"id":1}]}"#,
            "params.end[1].address",
            "::2",
        ),
        (r#"{"name":"a"}"#, "params.facts is defined", "False"),
        (r#"{"name":"it's"}"#, "service.tag", "s[name='it's']"),
        (r#"{"name":"a"}"#, "service.type ~ service.key", "sa"),
        (r#"{"name":"a"}"#, "service.leaving", "False"),
    ] {
        check(document, expression, want);
    }
}

#[test]
fn parameters_that_break_a_rule_are_refused_with_it() {
    for (document, want) in [
        ("[]", "not a JSON document of an instance"),
        ("{", "not a JSON document of an instance"),
        ("{}", "the key `name` is missing"),
        (r#"{"name":[]}"#, "`[]` is not a value of the key"),
        (r#"{"name":""}"#, "name"),
        (r#"{"name":"a","colour":1}"#, "/services/s[name=a]/colour`: the model has no such node"),
        (r#"{"name":"a","port":"eth/0"}"#, "/services/s[name=a]/port`: "),
        (r#"{"name":"a","facts":{"seen":"x"}}"#, "state cannot be written"),
        (r#"{"name":"a","needed":"x"}"#, "When condition"),
        (r#"{"name":"a","end":[{"id":9,"address":"::1"}]}"#, "Must condition"),
        (r#"{"name":"a","end":[{"id":1,"address":"::1"},{"id":2,"address":"::1"}]}"#, "Unique"),
        (r#"{"name":"a","end":[{"id":1},{"id":2},{"id":3},{"id":4}]}"#, "many"),
    ] {
        refused(document, want);
    }
    let large = format!(r#"{{"name":"a","text":"{}"}}"#, "x".repeat(1 << 20));
    refused(&large, "more than 1048576 bytes in the parameters");
}
