//! Policies as text: `user ada + read /a/b[k=1]` permits, `-` denies, `group` instead of `user` for groups.

mod model;

use smol_str::SmolStr;

use super::*;

const ORIGIN: &str = "openconfig";

/// Of the examples 1 to 4: stevie is an admin and an engineer.
const GROUPS: &[(&str, &[&str])] =
    &[("admin", &["stevie"]), ("engineers", &["stevie", "ada"]), ("nobody", &[])];
const BGP: &str =
    "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=BGP]";
const ANY_BGP: &str =
    "/network-instances/network-instance[name=*]/protocols/protocol[identifier=BGP]";
const ANY_PROTOCOL: &str =
    "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=*]";

// proves 5.42, 5.43, 5.44, 5.45
#[test]
fn the_best_match_decides() {
    // The examples of the document.
    check(&format!("group admin + read {BGP}; user stevie - read {ANY_BGP}"), "stevie", BGP, true);
    check(&format!("user stevie + read {BGP}; group admin - read {BGP}"), "stevie", BGP, true);
    check(
        &format!("user stevie + read {ANY_PROTOCOL}; user stevie - read {ANY_BGP}"),
        "stevie",
        BGP,
        false,
    );
    check(&format!("group admin + read {BGP}; group engineers - read {BGP}"), "stevie", BGP, false);
    // The same rules the other way round.
    check(&format!("group admin - read {BGP}; user stevie + read {ANY_BGP}"), "stevie", BGP, false);
    check(&format!("user stevie - read {BGP}; group admin + read {BGP}"), "stevie", BGP, false);
    // Longer beats more definite, and more definite beats a user.
    check("user ada - read /a[k=1]; group engineers + read /a/b", "ada", "/a[k=1]/b/c", true);
    check("user ada - read /a/b; group engineers + read /a[k=1]/b", "ada", "/a[k=1]/b/c", true);
    check("user ada + read /a; user ada - read /a/b", "ada", "/a/c", true);
    check("user ada - read /a; user ada + read /a/b", "ada", "/a/b/c", true);
    check("user ada - read /a; user ada + read /a/b", "ada", "/a", false);
    // Wildcards in different places, and all say yes.
    check(
        &format!("user stevie + read {ANY_PROTOCOL}; group admin + read {ANY_BGP}"),
        "stevie",
        BGP,
        true,
    );
    check(
        "user ada + read /a[k=1][l=*]; user ada - read /a[k=*][l=2]",
        "ada",
        "/a[k=1][l=2]",
        false,
    );
    check(
        "user ada + read /a[k=1][l=2]; user ada - read /a[k=*][l=2]",
        "ada",
        "/a[k=1][l=2]",
        true,
    );
    // A rule for the root covers every path.
    check("user ada + read /", "ada", "/a/b", true);
    check("user ada + read /", "ada", "/", true);
}

// proves 5.42, 5.46, 5.48
#[test]
fn a_path_without_a_rule_is_denied() {
    check("", "ada", "/a", false);
    check("user ada + read /a/b", "ada", "/a", false);
    check("user ada + read /a/b", "ada", "/a/bc", false);
    check("user ada + write /a", "ada", "/a", false);
    check("user bob + read /a", "ada", "/a", false);
    check("group admin + read /a", "ada", "/a", false);
    check("group engineers + read /a", "ada", "/a", true);
    check("group admin + read /a; group engineers + read /b", "stevie", "/b", true);
    check("user ada + read /a[k=1]", "ada", "/a[k=2]", false);
    check("user ada + read /a[l=1]", "ada", "/a[k=1]", false);
    // A group is not the user of the same name.
    check("user engineers + read /a", "ada", "/a", false);
    let elsewhere = "user ada + read holdfast_native:/a";
    check(elsewhere, "ada", "/a", false);
}

/// Example 5: a customer's controller may see its own port, but not how it is addressed.
// proves 5.49, 5.50
#[test]
fn access_needs_a_permit_on_the_path_or_above() {
    const RULES: &str = "user customer-controller1 + read /interfaces/interface[name=eth1]; \
        user customer-controller1 - read /interfaces/interface[name=eth1]/subinterfaces; \
        user telemetry + read /interfaces; \
        user telemetry - read /interfaces/interface[name=eth1]";
    for (user, path, want) in [
        ("customer-controller1", "/interfaces/interface[name=eth1]", true),
        ("customer-controller1", "/interfaces/interface[name=eth1]/state/mtu", true),
        ("customer-controller1", "/interfaces/interface[name=eth1]/subinterfaces", false),
        ("customer-controller1", "/interfaces/interface[name=eth2]", false),
        // A key is left open by a wildcard or by its absence.
        ("customer-controller1", "/interfaces/interface[name=*]", false),
        ("customer-controller1", "/interfaces/interface", false),
        ("customer-controller1", "/interfaces/interface/state", false),
        ("customer-controller1", "/interfaces", false),
        ("customer-controller1", "/", false),
        // A permit above holds for all entries at once; what is denied within is for the filter.
        ("telemetry", "/interfaces/interface[name=*]/state", true),
        ("telemetry", "/interfaces/interface/state", true),
        ("telemetry", "/interfaces/interface[name=eth1]/state", false),
    ] {
        check(RULES, user, path, want);
    }
}

#[test]
fn a_position_has_no_rule_below_where_none_lies() {
    let rules = "user ada + read /a; user ada - read /a/b[k=1]/c; user bob - read /a/b/c/d";
    for (path, settled) in [
        ("/", false),
        ("/x", true),
        ("/a", false),
        ("/a/x", true),
        ("/a/b[k=1]", false),
        ("/a/b[k=2]", true),
        ("/a/b[k=1]/c", true), // bob's rule does not concern ada
    ] {
        let policy = policy(rules).unwrap();
        let texts = policy.by_text();
        let view = texts.view(Mode::Read, &policy.principals("ada"));
        let mut at = view.step(&view.root(), &ORIGIN.into(), |_| None);
        let path = read_path(path);
        for elem in &path.elems {
            at = view.step(&at, &elem.name, |key| {
                elem.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
            });
        }
        assert_eq!(at.has_no_rule_below(), settled, "{path:?}");
        assert_eq!(view.steps(), 1 + u64::try_from(path.elems.len()).unwrap());
    }
}

// proves 5.41, 5.47
#[test]
fn an_incomplete_policy_is_refused() {
    let whole = DraftRule {
        id: "one".into(),
        principal: Some(Principal::User("ada".into())),
        path: Some(read_path("/a")),
        action: Some(Action::Permit),
        mode: Some(Mode::Read),
    };
    let group = |name: &str| Some(Principal::Group(name.into()));
    let path = |text| DraftRule { path: Some(read_path(text)), ..whole.clone() };
    let rows = [
        (whole.clone(), ""),
        (DraftRule { id: "".into(), ..whole.clone() }, "rule 0 has no id"),
        (DraftRule { principal: None, ..whole.clone() }, "rule `one` has no user and no group"),
        (
            DraftRule { principal: Some(Principal::User("".into())), ..whole.clone() },
            "rule `one` has no name of its user or group",
        ),
        (
            DraftRule { principal: group("painters"), ..whole.clone() },
            "rule `one` is for group `painters`, which the policy does not define",
        ),
        (DraftRule { principal: group("nobody"), ..whole.clone() }, ""),
        (DraftRule { path: None, ..whole.clone() }, "rule `one` has no path"),
        (DraftRule { action: None, ..whole.clone() }, "rule `one` has no action"),
        (DraftRule { mode: None, ..whole.clone() }, "rule `one` has no mode"),
        (path("/"), ""),
        (path("/a/b[k=*]/c"), ""),
        (path("/a/*/c"), "rule `one`: a wildcard in a name in its path at `*`"),
        (path("/a/b*"), "rule `one`: a wildcard in a name in its path at `b*`"),
        (path("/a/..."), "rule `one`: a wildcard in a name in its path at `...`"),
        (
            path("/a/b[k=eth*]"),
            "rule `one`: a wildcard that is only a part of a value in its path at `b[k=eth*]`",
        ),
        (path("/a/b[*=1]"), "rule `one`: a wildcard in the name of a key in its path at `b[*=1]`"),
    ];
    for (rule, want) in rows {
        let rules = vec![rule.clone()];
        let got = DraftPolicy { groups: groups(), rules }.check().err();
        assert_eq!(got.map_or(String::new(), |error| error.to_string()), want, "{rule:?}");
    }
    let rules = vec![whole.clone(), whole];
    let twice = DraftPolicy { groups: groups(), rules }.check().unwrap_err();
    assert_eq!(twice.to_string(), "rule `one` is defined twice");
}

#[test]
fn groups_and_users_need_unique_names() {
    let group = |name: &str, user: &str| Group { name: name.into(), users: vec![user.into()] };
    for (groups, want) in [
        (vec![group("", "ada")], "a group has no name"),
        (vec![group("a", "")], "group `a` has a user without a name"),
        (vec![group("a", "ada"), group("a", "bob")], "group `a` is defined twice"),
    ] {
        let got = DraftPolicy { groups, rules: Vec::new() }.check().unwrap_err();
        assert_eq!(got.to_string(), want);
    }
}

#[track_caller]
fn check(rules: &str, user: &str, path: &str, permitted: bool) {
    let policy = policy(rules).unwrap();
    let rules = policy.by_text();
    let got = policy.decide(&rules, user, Mode::Read, &read_path(path));
    assert_eq!(got == Action::Permit, permitted, "{path}: {policy:?}");
}

fn groups() -> Vec<Group> {
    let group = |(name, users): &(&str, &[&str])| Group {
        name: (*name).into(),
        users: users.iter().map(|user| (*user).into()).collect(),
    };
    GROUPS.iter().map(group).collect()
}

fn policy(rules: &str) -> Result<Policy, PolicyError> {
    let texts = rules.split(';').map(str::trim).filter(|text| !text.is_empty());
    let rules = texts.enumerate().map(|(id, text)| read_rule(id, text)).collect();
    DraftPolicy { groups: groups(), rules }.check()
}

fn read_rule(id: usize, text: &str) -> DraftRule {
    let words: Vec<&str> = text.split(' ').collect();
    let [whose, name, action, mode, path] = words[..] else { panic!("no rule: {text}") };
    let principal = match whose {
        "user" => Principal::User(name.into()),
        "group" => Principal::Group(name.into()),
        _ => panic!("neither user nor group: {text}"),
    };
    let action = if action == "+" { Action::Permit } else { Action::Deny };
    let mode = if mode == "read" { Mode::Read } else { Mode::Write };
    DraftRule {
        id: id.to_string().into(),
        principal: Some(principal),
        path: Some(read_path(path)),
        action: Some(action),
        mode: Some(mode),
    }
}

/// `/a/b[k=1][l=2]`, with another origin before a colon. Nothing is escaped.
fn read_path(text: &str) -> Path {
    let (origin, text) = text.split_once(":/").unwrap_or((ORIGIN, text));
    let elems = text.split('/').filter(|elem| !elem.is_empty()).map(|elem| {
        let (name, keys) = elem.split_once('[').unwrap_or((elem, ""));
        let keys = keys.trim_end_matches(']').split("][").filter_map(|key| key.split_once('='));
        let pair = |(key, value): (&str, &str)| (SmolStr::from(key), SmolStr::from(value));
        Elem { name: name.into(), keys: keys.map(pair).collect() }
    });
    Path { origin: origin.into(), elems: elems.collect() }
}
