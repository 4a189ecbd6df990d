//! Users with public keys: the worked example of the service API, by the package `ssh-users`.

use std::collections::BTreeMap;

use holdfast_config::edit::{SecretKeeper, SecretKeeperHandle};
use holdfast_config::schema::Origin;
use holdfast_config::services::WorkFailureKind;
use holdfast_config::{
    Configuration, EditCause, Footprint, LayerKey, Layers, Namespace, SecretLeaf, SecretRef,
    layer_rows_diff,
};

use super::types::{edit, refused, set};
use super::*;
use crate::ServiceTypes;

const OUTLINE: &str = include_str!("../../../../packaging/services/ssh-users/service.toml");
const YANG: &str =
    include_str!("../../../../packaging/services/ssh-users/ssh-users@2026-11-25.yang");
const TEMPLATE: &str =
    include_str!("../../../../packaging/services/ssh-users/templates/user.oc.json");

const OPS: &str = "/services/ssh-users[instance=ops]";
const DEVS: &str = "/services/ssh-users[instance=devs]";
const USERS: &str = "/system/aaa/authentication/users/user";
/// Both teams of the example, with alice in both.
const TEAMS: &str = r#"update /services/ssh-users[instance=ops] {"username":[{"name":"eric","ssh-key":"ssh-x ERIC","role":"admin"},{"name":"alice","ssh-key":"ssh-x ALICE"}]}
update /services/ssh-users[instance=devs] {"username":[{"name":"alice","ssh-key":"ssh-x ALICE alice@laptop"},{"name":"kim","ssh-key":"ssh-x KIM"}]}"#;

/// Keeps two words of a key: its kind and its bytes.
#[derive(Debug)]
struct TwoWords;

impl SecretKeeper for TwoWords {
    fn keep(
        &self,
        leaf: SecretLeaf,
        cleartext: &str,
        _: Option<&SecretRef>,
    ) -> Result<SecretRef, String> {
        assert_eq!(leaf, SecretLeaf::SshKey);
        let words: Vec<_> = cleartext.split(' ').take(2).collect();
        match words[..] {
            ["ssh-x", octets] => Ok(SecretRef::new(format!("ssh-x {octets}"))),
            _ => Err("it is not a key".to_owned()),
        }
    }
}

fn keeper() -> SecretKeeperHandle {
    static KEEPER: OnceLock<SecretKeeperHandle> = OnceLock::new();
    KEEPER.get_or_init(|| SecretKeeperHandle::new(Arc::new(TwoWords))).clone()
}

fn types() -> ServiceTypes {
    let files = files([
        ("service.toml", OUTLINE),
        ("ssh-users@2026-11-25.yang", YANG),
        ("templates/user.oc.json", TEMPLATE),
    ]);
    let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap())).with_keeper(keeper());
    types.add(&files).unwrap();
    types
}

fn fresh() -> Configuration {
    let types = types();
    Configuration::new(Arc::clone(types.models()), Layers::new())
        .with_services(Some(Arc::new(types)))
}

fn off() -> Configuration {
    fresh().switched(Namespace::Gnsi, false)
}

/// The configuration as a start reads it from its rows.
fn restarted(before: &Configuration) -> Configuration {
    let models = before.shared_models();
    let rows = layer_rows_diff(models, &Layers::new(), before.layers());
    let rows = rows.into_iter().map(|row| (row.key, row.value.unwrap()));
    let (layers, unknown) = Layers::from_rows(models, rows).unwrap();
    assert_eq!((unknown, &layers), (0, before.layers()));
    Configuration::new(Arc::clone(models), layers).with_services(before.services().cloned())
}

/// Keys that count, by user.
fn keys(configuration: &Configuration) -> BTreeMap<String, String> {
    let secrets = configuration.user_secrets();
    let text = |it: &SecretRef| String::from_utf8(it.expose().to_vec()).unwrap();
    secrets.iter().map(|(user, _, secret)| (user.to_string(), text(secret))).collect()
}

#[track_caller]
fn check_keys(configuration: &Configuration, want: &[(&str, &str)]) {
    let pair = |(user, key): &(&str, &str)| ((*user).to_owned(), format!("ssh-x {key}"));
    assert_eq!(keys(configuration), want.iter().map(pair).collect());
    assert_eq!(keys(&restarted(configuration)), want.iter().map(pair).collect());
}

#[track_caller]
fn with_keys(before: &Configuration, operations: &str) -> Configuration {
    let edit = holdfast_config::Edit { keeper: keeper(), ..edit(operations) };
    before.edit(&edit).unwrap_or_else(|errors| panic!("{operations}: {errors}"))
}

fn role(configuration: &Configuration, user: &str) -> Option<String> {
    let path = format!("/system/user[username={user}]/role").parse().unwrap();
    let path = configuration.models().native.resolve_write(&path).unwrap();
    configuration.effective().leaf(&path).map(|leaf| leaf.value.to_string())
}

// proves sv.A32, sv.A34
#[test]
fn a_user_of_two_teams_stays_until_the_last_one_lets_go() {
    let teams = set(&off(), TEAMS);
    check_keys(&teams, &[("alice", "ALICE"), ("eric", "ERIC"), ("kim", "KIM")]);
    assert_eq!(role(&teams, "eric").as_deref(), Some("admin"));
    assert_eq!(role(&teams, "alice").as_deref(), Some("read-only"));
    let devs = set(&teams, &format!("delete {OPS}"));
    check_keys(&devs, &[("alice", "ALICE"), ("kim", "KIM")]);
    assert_eq!(role(&devs, "eric"), None);
    check_keys(&set(&devs, &format!("delete {DEVS}")), &[]);
}

#[test]
fn teams_that_disagree_about_a_key_are_refused_by_name() {
    let teams = set(&off(), TEAMS);
    let parts = [
        "ssh-users[instance='devs'] (user alice, made)",
        "ssh-users[instance='ops'] (user alice, made)",
        "`ssh-x OTHER`",
        "`ssh-x ALICE`",
        "/users/user[username=alice]/config/ssh-key",
    ];
    let other =
        format!(r#"update {DEVS} {{"username":[{{"name":"alice","ssh-key":"ssh-x OTHER"}}]}}"#);
    refused(&teams, &other, &parts);
    // Both at once may move.
    let both = other.replace("devs", "ops") + "\n" + &other;
    check_keys(&set(&teams, &both), &[("alice", "OTHER"), ("eric", "ERIC"), ("kim", "KIM")]);
}

// proves sv.A33
#[test]
fn a_key_of_a_client_agrees_with_that_of_a_service() {
    let teams = set(&off(), TEAMS);
    let key = |octets: &str| {
        format!(r#"update oc:{USERS}[username=kim]/config {{"ssh-key":"ssh-x {octets}"}}"#)
    };
    let equal = with_keys(&teams, &key("KIM"));
    let all = [("alice", "ALICE"), ("eric", "ERIC"), ("kim", "KIM")];
    check_keys(&equal, &all);
    let other = holdfast_config::Edit { keeper: keeper(), ..edit(&key("HIDDEN")) };
    for before in [&teams, &equal] {
        let refusal = before.edit(&other).unwrap_err();
        let text = refusal.to_string();
        for part in ["another key by client openconfig", "devs'] (user kim, made)", "ssh-x KIM"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("HIDDEN"), "the client's is shown to nobody: {text}");
        assert!(matches!(refusal.first().cause, EditCause::Conflict(_)));
    }
    // The other way round.
    let moved = format!(r#"update {DEVS} {{"username":[{{"name":"kim","ssh-key":"ssh-x NEW"}}]}}"#);
    refused(&equal, &moved, &["another key by client openconfig", "`ssh-x NEW`"]);
    // The client lets go, and the service's stays; the service lets go, and the client's does.
    let gone = with_keys(&equal, &format!("delete oc:{USERS}[username=kim]/config/ssh-key"));
    check_keys(&gone, &all);
    check_keys(&set(&gone, &moved), &[("alice", "ALICE"), ("eric", "ERIC"), ("kim", "NEW")]);
    let with_role =
        with_keys(&equal, &format!(r#"update oc:{USERS}[username=kim]/config/role "read-only""#));
    let alone = set(&with_role, &format!("delete {DEVS}"));
    check_keys(&alone, &all);
    // In one Set, both may move, and one may take over from the other.
    let both = format!("{moved}\n{}", key("NEW"));
    check_keys(&with_keys(&equal, &both), &[("alice", "ALICE"), ("eric", "ERIC"), ("kim", "NEW")]);
    let over = format!("delete {DEVS}\n{}", key("HIDDEN"));
    check_keys(
        &with_keys(&with_role, &over),
        &[("alice", "ALICE"), ("eric", "ERIC"), ("kim", "HIDDEN")],
    );
}

#[test]
fn a_text_that_is_no_key_fails_the_work_that_puts_it_out() {
    let broken = format!(r#"update {OPS} {{"username":[{{"name":"eric","ssh-key":"hunter2"}}]}}"#);
    let errors = refused(&off(), &broken, &["templates/user.oc.json", "ssh-key`: it is not a key"]);
    let kind = match &errors.first().cause {
        EditCause::Work { kind, .. } => *kind,
        cause => panic!("{cause:?}"),
    };
    assert_eq!(kind, WorkFailureKind::Work);
    assert!(!errors.to_string().contains("hunter2"));
}

// proves sv.J1
#[test]
fn keys_are_refused_while_gnsi_is_on_and_users_are_not() {
    let without = TEAMS.replace("alice@laptop", "").replace(r#""ssh-key":"ssh-x ERIC","#, "");
    let without = ["ALICE ", "ALICE", "KIM"]
        .iter()
        .fold(without, |text, key| text.replace(&format!(r#","ssh-key":"ssh-x {key}""#), ""));
    assert!(!without.contains("ssh-key"), "{without}");
    let users = set(&fresh(), &without);
    assert_eq!(role(&users, "eric").as_deref(), Some("admin"));
    let errors = users.edit(&edit(TEAMS)).unwrap_err();
    let EditCause::Reserved { owner: Namespace::Gnsi, claims, .. } = &errors.first().cause else {
        panic!("{errors}");
    };
    assert!(errors.to_string().contains("reserved for gnsi"), "{errors}");
    let both = ["devs", "ops"].map(|it| format!("ssh-users[instance='{it}'] (user alice, made)"));
    assert_eq!(*claims, both);
}

#[test]
fn keys_from_before_stay_without_effect_while_gnsi_is_on() {
    let teams = set(&off(), TEAMS);
    let on = teams.switched(Namespace::Gnsi, true);
    for on in [&on, &restarted(&on)] {
        check_keys(on, &[]);
        assert_eq!(on.layers().claims(), teams.layers().claims());
        // Existing claims may stay, and go.
        let edited = set(on, &format!(r#"update {DEVS} {{"username":[{{"name":"max"}}]}}"#));
        assert_eq!(role(&edited, "max").as_deref(), Some("read-only"));
        let new =
            format!(r#"update {DEVS} {{"username":[{{"name":"kim","ssh-key":"ssh-x NEW"}}]}}"#);
        refused(&edited, &new, &["username=kim]/config/ssh-key", "reserved for gnsi", "user kim"]);
        let gone = set(&edited, &format!("delete {DEVS}/username[name=kim]/ssh-key"));
        let all = [("alice", "ALICE"), ("eric", "ERIC")];
        check_keys(&gone.switched(Namespace::Gnsi, false), &all);
    }
    check_keys(
        &on.switched(Namespace::Gnsi, false),
        &[("alice", "ALICE"), ("eric", "ERIC"), ("kim", "KIM")],
    );
}

#[test]
fn changes_of_keys_do_not_run_side_by_side() {
    let base = off();
    let footprint = |operations: &str| {
        let (after, scope) = base.examined(&edit(operations)).unwrap();
        assert_eq!(base.has_same_user_secrets(&after), !operations.contains("services"));
        Footprint::of(&base, &after, &scope)
    };
    let [ops, devs] = TEAMS.lines().map(footprint).collect::<Vec<_>>().try_into().unwrap();
    assert!(!ops.keeps_clear_of(&devs), "the files of the box have several users");
    let port = r#"update oc:/interfaces/interface[name=eth1]/config {"name":"eth1","mtu":1400}"#;
    assert!(ops.keeps_clear_of(&footprint(port)));
}

#[test]
fn keys_are_in_no_view_and_users_are_objects_of_their_claims() {
    let teams = set(&off(), TEAMS);
    for origin in [Origin::OpenConfig, Origin::Native] {
        let mut text = String::new();
        teams.config_view(origin).walk(&mut |path, leaf| {
            let path = path.to_path(teams.models().schema(origin)).to_string();
            // Parameters of instances are configuration as any other.
            if !path.starts_with("/services") {
                text.push_str(&format!("{path} {}", leaf.value));
            }
        });
        assert!(!text.contains("ALICE"), "{text}");
    }
    assert!(teams.layers().tree(LayerKey::CLIENT_OPENCONFIG).is_empty());
    let claims: Vec<_> = teams.layers().claims().iter().collect();
    assert_eq!(claims.len(), 4);
    for (key, claim) in claims {
        let objects: Vec<_> = claim.objects(teams.models()).into_iter().collect();
        let [user] = &objects[..] else { panic!("{objects:?}") };
        assert_eq!(
            teams.user_with_key(user).map(|it| it.as_str()),
            Some(key.component[1].as_str())
        );
    }
}
