//! Policies as text, on the models of this box: `user ada + read /interfaces`, `-` denies, `origin:/path` for others.

pub(crate) mod appended;
mod filter;

use std::sync::{Arc, LazyLock};

use holdfast_config::{Models, Path};
use holdfast_security::pathz::{
    self, Action, DraftPolicy, DraftRule, Group, Mode, Policy, PolicyError, Principal,
};

use super::*;

pub(crate) static MODELS: LazyLock<Arc<Models>> =
    LazyLock::new(|| Arc::new(Models::load().unwrap()));

/// Group `staff` is ada and test.
pub(crate) fn judge(rules: &str) -> Arc<CompiledPolicy> {
    Arc::new(CompiledPolicy::new(MODELS.clone(), policy(rules).unwrap()).unwrap())
}

/// Permissions of one user, with counters that are not used.
pub(crate) fn rights(judge: &Arc<CompiledPolicy>, user: &str) -> PathPermissions {
    let policy = Arc::new(PolicyForms::new(judge.clone()));
    PathPermissions::new(policy, judge.models(), user.into(), Arc::default())
}

fn policy(rules: &str) -> Result<Policy, PolicyError> {
    let staff = Group { name: "staff".into(), users: vec!["ada".into(), "test".into()] };
    let texts = rules.split(';').map(str::trim).filter(|text| !text.is_empty());
    let rules = texts.enumerate().map(|(id, text)| read_rule(id, text)).collect();
    DraftPolicy { groups: vec![staff], rules }.check()
}

fn read_rule(id: usize, text: &str) -> DraftRule {
    let words: Vec<&str> = text.splitn(5, ' ').collect();
    let [whose, name, action, mode, path] = words[..] else { panic!("no rule: {text}") };
    let principal = match whose {
        "user" => Principal::User(name.into()),
        _ => Principal::Group(name.into()),
    };
    DraftRule {
        id: id.to_string().into(),
        principal: Some(principal),
        path: Some(read_path(path)),
        action: Some(if action == "+" { Action::Permit } else { Action::Deny }),
        mode: Some(if mode == "read" { Mode::Read } else { Mode::Write }),
    }
}

fn read_path(text: &str) -> pathz::Path {
    let (origin, text) = match text.split_once(":/") {
        Some((origin, text)) if !origin.contains('/') => (origin, text),
        _ => ("", text),
    };
    let path: Path = text.parse().unwrap();
    let elem = |elem: &holdfast_config::Elem| pathz::Elem {
        name: elem.name.as_str().into(),
        keys: elem.keys.iter().map(|(key, value)| (key.into(), value.into())).collect(),
    };
    pathz::Path { origin: origin.into(), elems: path.elems.iter().map(elem).collect() }
}

// proves 5.53
#[test]
fn paths_are_judged_by_what_they_mean_and_not_by_their_spelling() {
    const PROTOCOL: &str =
        "/network-instances/network-instance[name=a]/protocols/protocol[identifier=STATIC][name=b]";
    let spelled = PROTOCOL.replace("STATIC", "openconfig-policy-types:STATIC");
    let modules = PROTOCOL.replace("/protocols/", "/openconfig-network-instance:protocols/");
    for rule in [PROTOCOL, &spelled, &modules] {
        let judge = judge(&format!("user ada + read {rule}"));
        for path in [PROTOCOL, &spelled, &modules] {
            let openconfig = format!("openconfig:{path}");
            for path in [path, &*openconfig] {
                let got = judge.decide("ada", Mode::Read, &read_path(path)).unwrap();
                assert_eq!(got, Action::Permit, "{rule}: {path}");
            }
        }
    }
    for (rule, path, want) in [
        ("openconfig:/system", "/system/config", Action::Permit),
        ("/system", "openconfig:/system/config", Action::Permit),
        ("/system", "holdfast_native:/system", Action::Deny),
        ("holdfast_native:/system", "/system", Action::Deny),
        ("cli:/", "holdfast_cli:/", Action::Permit),
        ("holdfast_cli:/", "cli:/interfaces", Action::Permit),
        ("holdfast_cli:/", "holdfast_native:/", Action::Deny),
        // Paths that the models lack are compared as text.
        ("/made/up[k=1]", "/made/up[k=1]/below", Action::Permit),
        ("/made/up[k=1]", "/made/up[k=2]", Action::Deny),
        ("other:/made", "other:/made/up", Action::Permit),
        ("/system", "/system/*", Action::Permit),
        ("/system/config", "/system/*", Action::Deny),
    ] {
        let judge = judge(&format!("user ada + read {rule}"));
        let got = judge.decide("ada", Mode::Read, &read_path(path)).unwrap();
        assert_eq!(got, want, "{rule}: {path}");
    }
}

#[test]
fn a_rule_that_contradicts_the_models_is_refused() {
    for (path, want) in [
        ("/interfaces/interface[nam=eth0]", "unknown key `nam`"),
        ("/system[name=x]", "keys on a node that is not a list"),
        ("/interfaces/interface[name=a]/subinterfaces/subinterface[index=x]", "is not a uint32"),
    ] {
        let policy = policy(&format!("user ada - read {path}")).unwrap();
        let misfit = CompiledPolicy::new(MODELS.clone(), policy).unwrap_err();
        assert_eq!(misfit.id, "0");
        assert!(misfit.source.to_string().contains(want), "{}", misfit.source);
    }
}
