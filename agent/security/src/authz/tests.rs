//! The rules of gRFC A43, each as a row.

use super::*;

/// A policy with these rules and the required other fields.
fn policy(deny: &str, allow: &str) -> String {
    format!(r#"{{"name":"test","deny_rules":[{deny}],"allow_rules":[{allow}]}}"#)
}

/// Parses a call, `PRINCIPAL,PRINCIPAL /PATH key=value key=value`; `-` stands for an unauthenticated peer.
fn decide<'p>(policy: &'p Policy, call: &str) -> Decision<'p> {
    let mut words = call.split(' ');
    let principals: Vec<&str> = words.next().unwrap().split(',').collect();
    let principals: Vec<&str> =
        principals.into_iter().map(|it| if it == "-" { "" } else { it }).collect();
    let path = words.next().unwrap();
    let headers: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap()).collect();
    let header = |key: &str| {
        let found = headers.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| (*value).to_owned())
    };
    policy.decide(Call { principals: &principals, path, header: &header })
}

#[track_caller]
fn check(policy: &str, calls: &[(&str, &str)]) {
    let policy = Policy::parse(policy).unwrap();
    for (call, want) in calls {
        let decision = match decide(&policy, call) {
            Decision::Allowed { rule } => format!("allowed by {rule}"),
            Decision::Denied { rule: Some(rule) } => format!("denied by {rule}"),
            Decision::Denied { rule: None } => "denied".to_owned(),
        };
        assert_eq!(decision, *want, "{call}");
    }
}

// proves 5.17
#[test]
fn deny_rules_come_first_and_the_default_is_deny() {
    let deny = r#"{"name":"no-set","request":{"paths":["/g/Set"]}},{"name":"not-eve","source":{"principals":["eve"]}}"#;
    let allow = r#"{"name":"ada","source":{"principals":["ada"]}},{"name":"get","request":{"paths":["/g/Get"]}}"#;
    check(
        &policy(deny, allow),
        &[
            ("ada /g/Get", "allowed by ada"),
            ("bob /g/Get", "allowed by get"),
            ("ada /g/Set", "denied by no-set"),
            ("eve /g/Get", "denied by not-eve"),
            ("eve /g/Set", "denied by no-set"),
            ("bob /g/Subscribe", "denied"),
        ],
    );
    let without_deny =
        r#"{"name":"test","allow_rules":[{"name":"get","request":{"paths":["/g/Get"]}}]}"#;
    check(without_deny, &[("eve /g/Get", "allowed by get"), ("eve /g/Set", "denied")]);
}

// proves 5.18
#[test]
fn a_part_that_is_absent_or_empty_matches_everything() {
    for rule in [
        r#"{"name":"all"}"#,
        r#"{"name":"all","source":{}}"#,
        r#"{"name":"all","request":{}}"#,
        r#"{"name":"all","source":{},"request":{}}"#,
        r#"{"name":"all","source":{"principals":[]},"request":{"paths":[],"headers":[]}}"#,
        r#"{"name":"all","source":null,"request":null}"#,
    ] {
        check(&policy("", rule), &[("ada /g/Get", "allowed by all"), ("- /x", "allowed by all")]);
        check(&policy(rule, r#"{"name":"any"}"#), &[("ada /g/Get", "denied by all")]);
    }
    let source = r#"{"name":"ada","source":{"principals":["ada"]},"request":{}}"#;
    check(&policy("", source), &[("ada /x", "allowed by ada"), ("bob /x", "denied")]);
    let request = r#"{"name":"x","source":{},"request":{"paths":["/x"]}}"#;
    check(&policy("", request), &[("bob /x", "allowed by x"), ("bob /y", "denied")]);
}

// proves 5.19
#[test]
fn a_rule_needs_one_principal_one_path_and_all_headers() {
    let rule = r#"{"name":"r","source":{"principals":["ada","bob"]},
        "request":{"paths":["/a","/b"],"headers":[
            {"key":"Env","values":["lab","field"]},{"key":"site","values":["x"]}]}}"#;
    check(
        &policy("", rule),
        &[
            ("ada /a env=lab site=x", "allowed by r"),
            ("bob /b env=field site=x", "allowed by r"),
            ("zoe,bob /b env=field site=x", "allowed by r"),
            ("eve /a env=lab site=x", "denied"),
            ("ada /c env=lab site=x", "denied"),
            ("ada /a env=lab", "denied"),
            ("ada /a env=lab site=y", "denied"),
            ("ada /a env=lab,field site=x", "denied"), // several values of a header are one text
            ("ada /a env=other site=x", "denied"),
        ],
    );
}

// proves 5.20
#[test]
fn patterns_are_exact_or_have_a_star_at_one_end() {
    // pattern, text, matches
    for (pattern, text, want) in [
        ("abc", "abc", true),
        ("abc", "abcd", false),
        ("abc", "ABC", false),
        ("abc*", "abc", true),
        ("abc*", "abcd", true),
        ("abc*", "xabc", false),
        ("*abc", "abc", true),
        ("*abc", "xabc", true),
        ("*abc", "abcx", false),
        ("*", "x", true),
        ("*", "-", false),
        ("", "-", true),
        ("", "x", false),
    ] {
        let want = if want { "allowed by r" } else { "denied" };
        let principal = format!(r#"{{"name":"r","source":{{"principals":["{pattern}"]}}}}"#);
        check(&policy("", &principal), &[(&format!("{text} /p"), want)]);
        let text = text.trim_start_matches('-');
        let path = format!(r#"{{"name":"r","request":{{"paths":["{pattern}"]}}}}"#);
        check(&policy("", &path), &[(&format!("u {text}"), want)]);
        let header = format!(
            r#"{{"name":"r","request":{{"headers":[{{"key":"k","values":["{pattern}"]}}]}}}}"#
        );
        check(&policy("", &header), &[(&format!("u /p k={text}"), want)]);
    }
    check(
        &policy("", r#"{"name":"r","request":{"headers":[{"key":"k","values":["*"]}]}}"#),
        &[("u /p", "denied")],
    );
}

// proves 5.21
#[test]
fn the_empty_principal_matches_unauthenticated_peers_only() {
    let of = |pattern: &str| {
        policy("", &format!(r#"{{"name":"r","source":{{"principals":["{pattern}"]}}}}"#))
    };
    check(&of(""), &[("- /p", "allowed by r"), ("ada /p", "denied")]);
    check(&of("*"), &[("- /p", "denied"), ("ada /p", "allowed by r")]);
    let spiffe = "spiffe://lab/ada,host.example,CN=ada";
    for (pattern, want) in [
        ("spiffe://lab/*", "allowed by r"),
        ("*.example", "allowed by r"),
        ("CN=ada", "allowed by r"),
        ("ada", "denied"),
    ] {
        check(&of(pattern), &[(&format!("{spiffe} /p"), want)]);
    }
}

// proves 5.13, 5.15, 5.16, 5.22, 5.23
#[test]
fn malformed_policies_are_refused() {
    let any = r#"{"name":"any"}"#;
    let request = |request: &str| policy("", &format!(r#"{{"name":"r","request":{request}}}"#));
    let header =
        |key: &str| request(&format!(r#"{{"headers":[{{"key":"{key}","values":["x"]}}]}}"#));
    for (text, part) in [
        (String::new(), "cannot read the policy as JSON of the expected form"),
        ("[]".into(), "cannot read the policy as JSON of the expected form"),
        (format!("{} {{}}", policy("", any)), "trailing characters"),
        (format!(r#"{{"allow_rules":[{any}]}}"#), "missing field `name`"),
        (format!(r#"{{"name":"","allow_rules":[{any}]}}"#), "the policy has no name"),
        (r#"{"name":"x"}"#.into(), "no `allow_rules`"),
        (policy("", ""), "no `allow_rules`"),
        (policy(any, ""), "no `allow_rules`"),
        (
            format!(r#"{{"name":"x","alow_rules":[],"allow_rules":[{any}]}}"#),
            "unknown field `alow_rules`",
        ),
        (format!(r#"{{"name":"x","name":"y","allow_rules":[{any}]}}"#), "duplicate field `name`"),
        (
            format!(r#"{{"name":"x","audit_logging_options":{{}},"allow_rules":[{any}]}}"#),
            "unknown field",
        ),
        (policy("", r#"{"name":"r","sauce":{}}"#), "unknown field `sauce`"),
        (policy("", r#"{"name":"r","source":{"principal":["x"]}}"#), "unknown field `principal`"),
        (request(r#"{"path":["x"]}"#), "unknown field `path`"),
        (request(r#"{"headers":[{"key":"k","values":["v"],"not":true}]}"#), "unknown field `not`"),
        (policy("", "{}"), "missing field `name`"),
        (policy("", r#"{"name":""}"#), "allow_rules[0] has no name"),
        (
            policy("", &format!("{any},{any}")),
            "allow_rules[1] has the name `any` of an earlier rule",
        ),
        (
            policy(&format!("{any},{any}"), any),
            "deny_rules[1] has the name `any` of an earlier rule",
        ),
        (request(r#"{"paths":["/a*b"]}"#), "allow_rules[0] `r`: path `/a*b`"),
        (request(r#"{"paths":["*a*"]}"#), "path `*a*`"),
        (request(r#"{"paths":["**"]}"#), "path `**`"),
        (policy("", r#"{"name":"r","source":{"principals":["ok","a*b"]}}"#), "principal `a*b`"),
        (request(r#"{"headers":[{"key":"k","values":["a*b"]}]}"#), "header value `a*b`"),
        (request(r#"{"headers":[{"key":"k"}]}"#), "missing field `values`"),
        (request(r#"{"headers":[{"key":"k","values":[]}]}"#), "header `k` has no values"),
        (header(""), "header `` has no key"),
        (header(":path"), "HTTP/2"),
        (header("Host"), "one hop"),
        (header("TE"), "one hop"),
        (header("connection"), "one hop"),
        (header("Transfer-Encoding"), "one hop"),
        (header("grpc-timeout"), "gRPC's own"),
        (header("x-bin"), "bytes"),
    ] {
        let refusal = Policy::parse(&text).expect_err(&text);
        let source = std::error::Error::source(&refusal).map(ToString::to_string);
        let whole = format!("{refusal}: {}", source.unwrap_or_default());
        assert!(whole.contains(part), "{text}: {whole}");
    }
    // The same name in both lists is not a mistake.
    Policy::parse(&policy(any, any)).unwrap();
}

// proves 5.8, 5.24
#[test]
fn a_new_policy_replaces_all_of_the_old_one() {
    let upload = |version: &str, rule: &str| Upload {
        version: version.to_owned(),
        created_on: 7,
        text: policy("", rule),
    };
    let first = upload("v1", r#"{"name":"get","request":{"paths":["/g/Get"]}}"#);
    let second = upload("v2", r#"{"name":"set","request":{"paths":["/g/Set"]}}"#);
    let (state, ()) = AuthzRules.apply(&None, first.clone()).unwrap();
    assert_eq!(AuthzRules.version_in_use(&None, &first), None);
    assert_eq!(AuthzRules.version_in_use(&state, &first).as_deref(), Some("v1"));
    assert_eq!(AuthzRules.version_in_use(&state, &second), None);
    let (state, ()) = AuthzRules.apply(&state, second.clone()).unwrap();
    let installed = state.unwrap();
    assert_eq!((installed.text.as_str(), installed.created_on), (second.text.as_str(), 7));
    assert!(decide(&installed.policy, "ada /g/Set").is_allowed());
    assert!(!decide(&installed.policy, "ada /g/Get").is_allowed());
    AuthzRules.apply(&None, upload("v3", "{}")).unwrap_err();
}
