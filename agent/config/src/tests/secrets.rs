//! Passwords and keys that clients give users while gNSI is off: case 12 of UNION.md section 6, and each sentence of the
//! last paragraph of its section 4.

use super::stack::factory;
use super::*;
use crate::edit::{SecretKeeper, SecretKeeperHandle};
use crate::layer::Namespace;

const USERS: &str = "/system/aaa/authentication/users";
const ADA: &str = "/system/aaa/authentication/users/user[username=ada]";
const CONFIG: &str = "/system/aaa/authentication/users/user[username=ada]/config";

/// Keeps a password as its kind and length, a key as it is, and takes nothing that is empty.
#[derive(Debug)]
struct Lengths;

impl SecretKeeper for Lengths {
    fn keep(
        &self,
        leaf: SecretLeaf,
        cleartext: &str,
        current: Option<&SecretRef>,
    ) -> Result<SecretRef, String> {
        if cleartext.is_empty() {
            return Err("it is empty".to_owned());
        }
        let stored = match leaf {
            SecretLeaf::Password => format!("hash of {}", cleartext.len()),
            SecretLeaf::PasswordHashed | SecretLeaf::SshKey => cleartext.to_owned(),
        };
        let same = current.filter(|current| current.expose() == stored.as_bytes());
        Ok(same.cloned().unwrap_or_else(|| SecretRef::new(stored)))
    }
}

pub(super) fn edit_with(request: &str) -> Edit {
    Edit { keeper: SecretKeeperHandle::new(Arc::new(Lengths)), ..edit(request) }
}

fn off() -> Configuration {
    empty().switched(Namespace::Gnsi, false)
}

/// Configuration after a request, equal to the one read from its rows, and without a trace of a secret in any view.
#[track_caller]
fn edited(before: &Configuration, request: &str) -> Configuration {
    let after = match before.edit(&edit_with(request)) {
        Ok(after) => after,
        Err(errors) => panic!("{request}: {errors}"),
    };
    let rows = layer_rows_diff(models(), &Layers::new(), after.layers());
    let rows = rows.into_iter().map(|row| (row.key, row.value.unwrap()));
    let (read, unknown) = Layers::from_rows(models(), rows).unwrap();
    assert_eq!((&read, unknown), (after.layers(), 0), "{request}");
    let changes = layer_rows_diff(models(), before.layers(), after.layers());
    let summary = format!("{:?} {changes:?} {:?}", after.layers(), lines_effective(&after));
    let views = [Origin::OpenConfig, Origin::Native].map(|origin| lines_view(&after, origin));
    for text in [summary, format!("{views:?}")] {
        assert!(!text.contains("hash of") && !text.contains("hunter"), "{request}: {text}");
        // Bytes of `hash`.
        assert!(!text.contains("104, 97, 115, 104"), "{request}");
    }
    after
}

fn all_done(requests: &[&str]) -> Configuration {
    requests.iter().fold(off(), |configuration, request| edited(&configuration, request))
}

/// Secrets that are held, as `user leaf kept`.
fn secret_lines(configuration: &Configuration) -> Vec<String> {
    let text = |secret: &SecretRef| String::from_utf8(secret.expose().to_vec()).unwrap();
    let line = |(user, leaf, secret): (&smol_str::SmolStr, SecretLeaf, &SecretRef)| {
        format!("{user} {} {}", leaf.name(), text(secret))
    };
    configuration.layers().secrets.iter().map(line).collect()
}

#[track_caller]
fn check_held(requests: &[&str], want: &[&str]) {
    assert_eq!(secret_lines(&all_done(requests)), want, "{requests:#?}");
}

fn user_request() -> String {
    format!(r#"update {CONFIG} {{"role":"read-only","password":"hunter 12345"}}"#)
}

const TWELVE: &str = "ada password hash of 12";

// proves 3.18
#[test]
fn a_secret_is_taken_in_every_form_that_a_request_has() {
    let role = format!(r#"update {CONFIG}/role "read-only""#);
    let user = r#"{"username":"ada","config":{"username":"ada","role":"read-only","password":"hunter 12345"}}"#;
    let users = format!(r#"{{"user":[{user}]}}"#);
    let root = format!(r#"{{"system":{{"aaa":{{"authentication":{{"users":{users}}}}}}}}}"#);
    for request in [
        user_request(),
        format!(r#"{role}; update {CONFIG}/password "hunter 12345""#),
        format!(r#"{role}; replace {CONFIG}/password "hunter 12345""#),
        format!(r#"replace {CONFIG} {{"role":"read-only","password":"hunter 12345"}}"#),
        format!("update {ADA} {user}"),
        format!("replace {ADA} {user}"),
        format!("update {USERS} {users}"),
        format!("replace {USERS} {users}"),
        format!("update / {root}"),
        format!("replace / {root}"),
        format!("union / {root}"),
        format!("union {ADA} {user}; union cli: system hostname x"),
        format!(r#"union {ADA} {user}; union native:/system/hostname "x""#),
        format!(r#"union {CONFIG}/password "hunter 12345"; union {CONFIG}/role "read-only""#),
    ] {
        check_held(&[&request], &[TWELVE]);
        let after = all_done(&[&request]);
        let lines = below(&lines_view(&after, Origin::OpenConfig), &format!("{CONFIG}/"));
        assert_eq!(lines, ["role=read-only"], "{request}");
    }
    let both =
        format!(r#"update {CONFIG} {{"role":"admin","password-hashed":"$6$a","ssh-key":"k"}}"#);
    check_held(&[&both], &["ada password-hashed $6$a", "ada ssh-key k"]);
}

// Case 12.
// proves 3.18
#[test]
fn a_password_stays_with_its_user() {
    let start = user_request();
    let user = r#"{"username":"ada","config":{"username":"ada","role":"read-only"}}"#;
    let with =
        format!(r#"{{"system":{{"aaa":{{"authentication":{{"users":{{"user":[{user}]}}}}}}}}}}"#);
    let without = r#"{"system":{"config":{"hostname":"x"}}}"#;
    let other = user.replace("ada", "bob");
    for (request, stays) in [
        (format!("replace / {with}"), true),
        (format!("union / {with}"), true),
        (format!("union / {with}; union cli: system hostname x"), true),
        (format!(r#"union / {with}; union native:/system/hostname "x""#), true),
        (format!("replace {ADA} {user}"), true),
        (format!(r#"replace {CONFIG} {{"role":"admin"}}"#), true),
        (format!(r#"replace {CONFIG}/role "admin""#), true),
        (format!(r#"replace {USERS} {{"user":[{user}]}}"#), true),
        (format!("delete {CONFIG}/role; update {ADA} {user}"), true),
        (format!("replace / {without}"), false),
        (format!("union / {without}"), false),
        ("union cli: system hostname x".to_owned(), false),
        (r#"union / {}; union native:/system {}"#.to_owned(), false),
        (format!(r#"replace {USERS} {{"user":[{other}]}}"#), false),
        (format!("delete {ADA}"), false),
        (format!("delete {USERS}/user"), false),
        ("delete /system".to_owned(), false),
        ("delete /".to_owned(), false),
        (format!("delete {CONFIG}/password"), false),
        (format!("delete {USERS}/user[username=*]/config/password"), false),
        (format!("delete {ADA}; update {ADA} {user}"), false),
        (format!("delete {CONFIG}/password-hashed"), true),
        (format!("delete {CONFIG}/ssh-key"), true),
        (format!("delete {USERS}/user[username=bob]"), true),
    ] {
        let want: &[&str] = if stays { &[TWELVE] } else { &[] };
        check_held(&[&start, &request], want);
    }
    // The answer of Get, sent back.
    let before = all_done(&[&start]);
    let schema = &models().openconfig;
    let view = NodeRef::Branch(before.config_view(Origin::OpenConfig).root());
    let printed =
        json::print(schema, schema.root(), view, json::Flavour::Plain, &|_| true).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    for kind in ["replace", "union", "update"] {
        let after = edited(&before, &format!("{kind} / {printed}"));
        assert!(after.layers().secrets.is_same(&before.layers().secrets), "{kind}");
        let rows = layer_rows_diff(models(), before.layers(), after.layers());
        assert!(!rows.iter().any(|row| is_secret_row(&row.key)), "{kind}: {rows:?}");
    }
}

/// A user of the factory, or of the other origin, is not removed by what removes a copy of it.
#[test]
fn a_password_stays_while_some_client_asks_for_the_user() {
    let cli = "update cli: system user ada role read-only";
    let password = format!(r#"update {CONFIG}/password "hunter 12345""#);
    check_held(&[cli, &password], &[TWELVE]);
    check_held(&[cli, &password, "update cli: no system user ada; update / {}"], &[TWELVE]);
    // A secret is a leaf: the entry stays when it is all that is left.
    check_held(&[cli, &user_request(), &format!("delete {CONFIG}/role")], &[TWELVE]);
    check_held(&[cli, &password, &format!("delete {CONFIG}/ssh-key")], &[TWELVE]);
    // It moves from OpenConfig to text.
    check_held(&[&user_request(), "union cli: system user ada role read-only"], &[TWELVE]);
    check_held(&[&user_request(), "union cli: system user bob role read-only"], &[]);

    // Factory values are not requested by any client.
    let box_ = factory("update cli: system user ada role admin").switched(Namespace::Gnsi, false);
    let with_password = edited(&box_, &password);
    assert_eq!(secret_lines(&with_password), [TWELVE]);
    let schema = &models().openconfig;
    let view = NodeRef::Branch(with_password.config_view(Origin::OpenConfig).root());
    let printed =
        json::print(schema, schema.root(), view, json::Flavour::Plain, &|_| true).unwrap();
    let back =
        edited(&with_password, &format!("replace / {}", String::from_utf8(printed).unwrap()));
    assert_eq!(secret_lines(&back), [TWELVE]);
    let hostname = r#"{"system":{"config":{"hostname":"x"}}}"#;
    assert!(secret_lines(&edited(&with_password, &format!("union / {hostname}"))).is_empty());
}

#[test]
fn the_same_password_again_is_no_change() {
    let before = all_done(&[&user_request()]);
    for request in [user_request(), format!(r#"update {CONFIG}/password "hunter 12345""#)] {
        let after = edited(&before, &request);
        assert!(layer_rows_diff(models(), before.layers(), after.layers()).is_empty(), "{request}");
        assert!(after.layers().secrets.is_same(&before.layers().secrets), "{request}");
    }
    let changed = edited(&before, &format!(r#"update {CONFIG}/password "hunter 1""#));
    assert_eq!(secret_lines(&changed), ["ada password hash of 8"]);
    // In the other form it is the same secret at another leaf.
    let hashed = edited(&before, &format!(r#"update {CONFIG}/password-hashed "hash of 12""#));
    assert_eq!(secret_lines(&hashed), ["ada password-hashed hash of 12"]);
    let one = before.layers().secrets.password("ada").unwrap();
    assert!(hashed.layers().secrets.password("ada").unwrap().is_same(one));
}

#[test]
fn errors_about_secrets_do_not_quote_them() {
    let both = "a request may give a user either `password` or `password-hashed`";
    let role = r#""role":"admin""#;
    for (request, path, reason) in [
        (
            format!(
                r#"update {CONFIG} {{{role},"password":"hunter","password-hashed":"$6$hunter"}}"#
            ),
            "password-hashed",
            both,
        ),
        (
            format!(
                r#"replace {CONFIG}/password-hashed "$6$hunter"; update {CONFIG}/password "hunter""#
            ),
            "password",
            both,
        ),
        (
            format!(r#"union {CONFIG}/password "hunter"; union {CONFIG}/password "hunter too""#),
            "password",
            "another entry of the request gives a different value",
        ),
        (format!(r#"update {CONFIG}/password """#), "password", "it is empty"),
    ] {
        let errors = off().edit(&edit_with(&request)).err().unwrap();
        let error = errors.first();
        assert!(error.path.ends_with(path), "{request}: {errors}");
        assert_eq!(error.cause.to_string(), reason, "{request}");
        assert!(!error.cause.to_string().contains("hunter"), "{errors}");
    }
    // A user without a role is an account all the same.
    for request in ["password", "ssh-key"] {
        let request = format!(r#"update {CONFIG}/{request} "hunter""#);
        assert_eq!(secret_lines(&edited(&off(), &request)).len(), 1, "{request}");
    }
    let without = edited(&all_done(&[&user_request()]), &format!("delete {CONFIG}/role"));
    assert_eq!(secret_lines(&without).len(), 1);
    // Of passwords in one request there is a limit: each takes a while.
    let many: Vec<String> = (0..101)
        .map(|user| {
            format!(
                r#"update {USERS}/user[username=u{user}]/config {{{role},"password":"x{user}"}}"#
            )
        })
        .collect();
    let errors = off().edit(&edit_with(&many.join("; "))).err().unwrap();
    assert!(errors.first().cause.to_string().contains("new-secrets"), "{errors}");
}

// proves 3.12, 3.15, 3.18
#[test]
fn a_switch_hides_what_clients_gave_and_shows_it_again() {
    let configured = all_done(&[&user_request()]);
    let on = configured.switched(Namespace::Gnsi, true);
    assert_eq!(secret_lines(&on), [TWELVE], "stored and hidden");
    for request in [user_request(), format!("delete {CONFIG}/password")] {
        let errors = on.edit(&edit_with(&request)).err().unwrap();
        let reserved =
            matches!(errors.first().cause, EditCause::Reserved { owner: Namespace::Gnsi, .. });
        assert!(reserved, "{request}: {errors}");
    }
    // A delete that covers it takes the client's own copy away, silently; a request that only leaves it out does not.
    assert_eq!(
        secret_lines(&edited(&on, &format!(r#"replace {CONFIG} {{"role":"admin"}}"#))),
        [TWELVE]
    );
    let deleted = edited(&on, &format!("delete {USERS}/user[username=*]/config/password"));
    assert!(secret_lines(&deleted).is_empty());
    assert!(secret_lines(&edited(&on, &format!("delete {ADA}"))).is_empty());
    assert_eq!(secret_lines(&on.switched(Namespace::Gnsi, false)), [TWELVE]);
}

#[test]
fn a_roll_back_brings_the_old_one_back() {
    let before = all_done(&[&user_request()]);
    for request in [format!(r#"update {CONFIG}/password "hunter 1""#), format!("delete {ADA}")] {
        let after = edited(&before, &request);
        assert_ne!(secret_lines(&after), secret_lines(&before));
        let back = after.with_client_of(before.layers());
        assert_eq!(back.layers(), before.layers(), "{request}");
    }
    let reset = before.factory_reset();
    assert!(secret_lines(&reset).is_empty() && reset.layers().is_on(Namespace::Gnsi));
    let rows = layer_rows_diff(models(), before.layers(), reset.layers());
    let secret: Vec<_> = rows.iter().filter(|row| is_secret_row(&row.key)).collect();
    assert!(matches!(secret[..], [RowChange { value: None, .. }]), "{secret:?}");
}

/// Neither what a box boots with nor what it is given once brings a secret.
#[test]
fn boot_brings_no_secret() {
    let root = r#"{"openconfig-system:system":{"aaa":{"authentication":{"users":{"user":[
        {"username":"ada","config":{"username":"ada","role":"admin","password":"hunter"}}]}}}}}"#;
    let boot =
        Arc::new(BootConfiguration { openconfig: root.into(), ..BootConfiguration::default() });
    let errors = off().booted(Some(&boot)).err().unwrap();
    assert!(matches!(errors.first().cause, EditCause::Reserved { .. }), "{errors}");
    let seeds = InitialConfiguration { openconfig: root.into(), ..InitialConfiguration::default() };
    let change = BootChange::Bootstrap(Arc::new(BootConfiguration::default()), Arc::new(seeds));
    let errors = off().boot_changed(&change).err().unwrap();
    assert!(matches!(errors.first().cause, EditCause::Unsupported(_)), "{errors}");
    assert!(errors.to_string().contains("gNMI Set"), "{errors}");
}
