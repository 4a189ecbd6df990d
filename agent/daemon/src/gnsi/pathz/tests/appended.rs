//! Policies when nodes are appended to the models.

use holdfast_config::edit::{
    Edit, EditAuthorization, EditAuthorizer, EditCause, EditTarget, Payload,
};
use holdfast_config::schema::{Origin, YangModule};
use holdfast_config::{Configuration, Layers};
use holdfast_security::pathz::nodes::position;

use super::*;

const MODULE: &str = r#"module things { yang-version 1.1; namespace "urn:things"; prefix t;
    import holdfast { prefix hf; }
    import holdfast-extensions { prefix hf-ext; }
    organization "us"; revision 2026-11-24 { description "First."; }
    augment "/hf:interfaces/hf:interface" { leaf colour { type string; } }
    augment "/hf:system/hf:ssh-server" {
        leaf attempts { config false; hf-ext:polled; type uint64; } }
    container things { list thing { key name; leaf name { type string; }
        leaf size { type uint32; } leaf note { type string; } } } }"#;

/// [`MODELS`] with the nodes of a module `things` appended to the native model.
pub(crate) static GROWN: LazyLock<Arc<Models>> = LazyLock::new(|| {
    let module = YangModule { name: "things".into(), text: MODULE.into() };
    Arc::new(MODELS.with_modules(Origin::Native, &[module]).unwrap())
});

/// Rules of ada for reading, by models to which their paths were appended after the policy was accepted.
fn check(rules: &str, rows: &[(&str, Action)]) {
    let policy = Arc::new(PolicyForms::new(judge(rules)));
    let rights = PathPermissions::new(policy, &GROWN, "ada".into(), Arc::default());
    for (path, want) in rows {
        let path_read = GROWN.native.resolve_write(&path.parse().unwrap()).unwrap();
        let got = position(rights.read(Scope::Native), &path_read.0).action();
        assert_eq!(got, *want, "{rules}: {path}");
    }
}

#[test]
fn rules_about_nodes_that_are_missing_apply_when_the_nodes_are_appended() {
    use Action::{Deny, Permit};
    let (size, other) = ("/things/thing[name=a]/size", "/things/thing[name=b]/size");
    check("", &[(size, Deny)]);
    check("user bob + read holdfast_native:/", &[(size, Deny)]);
    check("user ada + read holdfast_native:/system", &[(size, Deny)]);
    check("user ada + read holdfast_native:/things", &[(size, Permit), ("/system", Deny)]);
    check("user ada + read holdfast_native:/things:things", &[(size, Permit)]);
    check(
        "user ada + read holdfast_native:/things/thing[name=a]",
        &[(size, Permit), (other, Deny), ("/things", Deny)],
    );
    check(
        "user ada + read holdfast_native:/; user ada - read holdfast_native:/things/thing[name=b]; \
         user ada - read holdfast_native:/interfaces/interface[name=*]/colour",
        &[
            (size, Permit),
            (other, Deny),
            ("/interfaces/interface[name=eth0]/colour", Deny),
            ("/interfaces/interface[name=eth0]/mtu", Permit),
        ],
    );
}

/// Keys that an appended list lacks are found when the list is there; an upload with them would be refused now.
#[test]
fn a_rule_that_contradicts_appended_nodes_opens_nothing() {
    use Action::{Deny, Permit};
    let size = "/things/thing[name=a]/size";
    check("user ada + read holdfast_native:/things/thing[nam=a]", &[(size, Deny)]);
    check(
        "user ada + read holdfast_native:/; user ada - read holdfast_native:/things/thing[nam=b]",
        &[(size, Deny), ("/things", Permit)],
    );
    check(
        "user ada + read holdfast_native:/; user ada - read \
         holdfast_native:/interfaces/interface[name=eth0]/colour[bad=1]",
        &[
            ("/interfaces/interface[name=eth0]/colour", Deny),
            ("/interfaces/interface[name=eth1]/colour", Permit),
        ],
    );
    let rule = policy("user ada - read holdfast_native:/things/thing[nam=b]").unwrap();
    assert!(CompiledPolicy::new(MODELS.clone(), rule.clone()).is_ok());
    assert!(CompiledPolicy::new(GROWN.clone(), rule).is_err());
}

#[test]
fn one_form_is_kept_and_judges_data_of_earlier_models_too() {
    let first = judge("user ada + read holdfast_native:/things");
    let policy = PolicyForms::new(first.clone());
    assert!(Arc::ptr_eq(&policy.compiled(&MODELS), &first));
    let earlier = Arc::downgrade(&first);
    drop(first);
    let later = policy.compiled(&GROWN);
    assert_eq!(earlier.strong_count(), 0, "the earlier form is dropped");
    for models in [&GROWN, &MODELS] {
        assert!(Arc::ptr_eq(&policy.compiled(models), &later));
    }
    let path_read = read_path("holdfast_native:/things/thing[name=a]");
    assert_eq!(later.decide("ada", Mode::Read, &path_read).unwrap(), Action::Permit);
}

/// Permissions of a request that came before the nodes are those for the configuration that it is examined on.
#[test]
fn an_edit_is_judged_by_the_models_of_its_configuration() {
    let rules = "user ada + write holdfast_native:/; user ada + read holdfast_native:/; \
        user ada - write holdfast_native:/things/thing[name=b]";
    let counters = Arc::new(Counters::default());
    let policy = Arc::new(PolicyForms::new(judge(rules)));
    let rights = PathPermissions::new(policy, &MODELS, "ada".into(), counters.clone());
    let rights = Arc::new(rights);
    let start = Configuration::new(MODELS.clone(), Layers::new());
    let later = start.with_models(GROWN.clone());
    let denied = |configuration: &Configuration, path: &str| {
        let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
        let payload = Payload::Json { text: b"7".to_vec().into(), ietf: true };
        let authorization = EditAuthorization::new(Arc::clone(&rights) as Arc<dyn EditAuthorizer>);
        let edit = Edit { updates: vec![(target, payload)], authorization, ..Edit::default() };
        let errors = configuration.edit(&edit).err()?;
        Some(errors.iter().any(|error| error.cause == EditCause::Denied))
    };
    assert_eq!(denied(&start, "/things/thing[name=a]/size"), Some(false), "there is no such node");
    assert_eq!(denied(&later, "/things/thing[name=a]/size"), None);
    assert_eq!(denied(&later, "/things/thing[name=b]/size"), Some(true));
    let node = GROWN.native.find("/things/thing/size").unwrap();
    rights.for_models(&GROWN).count_write(Scope::Native, node, false);
    let counted = counters.read();
    assert_eq!(counted[0].0, "holdfast_native:/things/thing/size");
    assert_eq!((counted.len(), counted[0].1.writes.rejects), (1, 1));
}
