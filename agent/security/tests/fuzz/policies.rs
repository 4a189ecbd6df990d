//! Authorization policies, and a second reading of gRFC A43 to compare with.

use holdfast_security::authz::{Call, Decision, Policy};
use serde_json::Value;

use crate::corpus::Corpus;

const WORDS: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "*",
    "\"",
    "\"*\"",
    "\"\"",
    "\"name\"",
    "\"deny_rules\"",
    "\"allow_rules\"",
    "\"source\"",
    "\"principals\"",
    "\"request\"",
    "\"paths\"",
    "\"headers\"",
    "\"key\"",
    "\"values\"",
    "\"ada\"",
    "\"/g/Set\"",
    "null",
    "grpc-",
];

/// Principals, path, values of a header called `env`.
const CALLS: [(&[&str], &str, Option<&str>); 5] = [
    (&["ada"], "/g/Set", Some("lab")),
    (&["eve"], "/g/Get", None),
    (&["spiffe://lab/x", "host.example"], "/g/Set", Some("field")),
    (&[""], "/", Some("")),
    (&["*"], "*", Some("*")),
];

#[test]
fn policies() {
    let seeds = Corpus::read("policies", &WORDS);
    bolero::check!().for_each(|input: &[u8]| {
        check(&String::from_utf8_lossy(input));
        check(&seeds.mutated(input));
    });
}

fn check(text: &str) {
    let policy = match Policy::parse(text) {
        Ok(policy) => policy,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    let document: Value = serde_json::from_str(text).expect("what is accepted is JSON");
    for (principals, path, env) in CALLS {
        let header = |key: &str| (key == "env").then_some(env).flatten().map(str::to_owned);
        let decision = policy.decide(Call { principals, path, header: &header });
        let allowed = matches!(decision, Decision::Allowed { .. });
        assert_eq!(
            allowed,
            allows(&document, principals, path, env),
            "{principals:?} {path}: {text}"
        );
    }
}

/// Deny rules come first, then allow rules; everything else is denied.
fn allows(policy: &Value, principals: &[&str], path: &str, env: Option<&str>) -> bool {
    let any =
        |list: &str| items(&policy[list]).iter().any(|rule| matches(rule, principals, path, env));
    !any("deny_rules") && any("allow_rules")
}

fn matches(rule: &Value, principals: &[&str], path: &str, env: Option<&str>) -> bool {
    let sources = &rule["source"]["principals"];
    let request = &rule["request"];
    let source = items(sources).is_empty()
        || principals.iter().any(|name| items(sources).iter().any(|it| is_like(it, name)));
    let paths = items(&request["paths"]);
    let there = paths.is_empty() || paths.iter().any(|it| is_like(it, path));
    let headers = items(&request["headers"]).iter().all(|header| {
        let is_env = header["key"].as_str().unwrap().eq_ignore_ascii_case("env");
        let value = env.filter(|_| is_env);
        value.is_some_and(|value| items(&header["values"]).iter().any(|it| is_like(it, value)))
    });
    source && there && headers
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_like(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().unwrap();
    match (pattern.len(), pattern.find('*')) {
        (1, Some(0)) => !text.is_empty(),
        (_, Some(0)) => text.ends_with(&pattern[1..]),
        (_, Some(at)) => text.starts_with(&pattern[..at]),
        (_, None) => text == pattern,
    }
}
