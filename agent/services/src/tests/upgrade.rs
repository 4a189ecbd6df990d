//! Exchange of the package of a type: what becomes of its instances, and what the database keeps.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Answers, CallPhase, EditContent, PackageArchive, Plane, ServedCall, Services, Surroundings,
    TypeVersion, WorkFailureKind,
};
use holdfast_config::{
    ClaimKey, Configuration, EditCause, EditErrors, ExchangeMode, GrowingClaim, Layers, ServiceTag,
    TypeExchange, layer_rows_diff,
};
use smol_str::SmolStr;

use super::plans::{ACME, FixedBox, PORT, SIZE, SIZED, UP, acme, due, has, plan, see, settle};
use super::types::{TEMPLATE, YANG, made, set};
use super::*;
use crate::{PackageSource, PackageVersion, ServiceTypes};

const DOWN: FixedBox = FixedBox { status: "DOWN", unapplied: None };

/// One version of the package.
#[derive(Clone)]
struct Version {
    number: &'static str,
    outline: String,
    yang: String,
    size: &'static str,
    is_installed: bool,
}

fn first() -> Version {
    let outline = PORT.replace("GATE", "");
    Version { number: "1.0.0", outline, yang: YANG.to_owned(), size: SIZE, is_installed: false }
}

fn second() -> Version {
    Version { number: "2.0.0", ..first() }
}

impl Version {
    fn archive(&self) -> Arc<PackageArchive> {
        let octets = self.number.as_bytes().into();
        Arc::new(PackageArchive { label: self.number.into(), loaded_on: 0, octets })
    }

    fn load(&self, types: &mut ServiceTypes) {
        let outline = self.outline.replace("1.0.0", self.number);
        let files = files([
            ("service.toml", outline.as_str()),
            ("access@2026-11-24.yang", &self.yang),
            ("templates/main.cli", TEMPLATE),
            ("templates/size.cli", self.size),
        ]);
        let source = PackageSource {
            archive: self.archive(),
            is_installed: self.is_installed,
            signature: None,
            refusal: None,
        };
        types.load(&files, Some(source)).unwrap_or_else(|errors| panic!("{errors}"));
    }
}

fn types_of(versions: &[&Version]) -> ServiceTypes {
    let mut types = ServiceTypes::new(Arc::new(Models::load().unwrap()));
    versions.iter().for_each(|version| version.load(&mut types));
    types
}

/// A box with this version and types to be grown, as the agent keeps them.
struct Box_ {
    types: ServiceTypes,
    configuration: Configuration,
}

impl Box_ {
    fn new(version: &Version) -> Self {
        let types = types_of(&[version]);
        let configuration = Configuration::new(Arc::clone(types.models()), Layers::new())
            .with_services(Some(Arc::new(types.clone())));
        Self { types, configuration: see(&configuration, UP) }
    }

    /// A box whose instance `acme` is ready.
    fn ready(version: &Version) -> Self {
        let mut it = Self::new(version);
        it.configuration = see(&settle(&set(&it.configuration, ACME), &UP), UP);
        it
    }

    fn set(&mut self, operations: &str) {
        self.configuration = see(&set(&self.configuration, operations), UP);
    }

    fn exchange(
        &self,
        version: &Version,
        terms: (ExchangeMode, bool),
    ) -> (TypeExchange, ServiceTypes) {
        let mut types = self.types.clone();
        types.forget_unused("access", &self.configuration.layers().book);
        version.load(&mut types);
        (exchange_of(&types, terms), types)
    }

    /// Exchanges the package, if that is not refused.
    fn upgrade(
        &mut self,
        version: &Version,
        terms: (ExchangeMode, bool),
    ) -> Result<(), EditErrors> {
        let (exchange, types) = self.exchange(version, terms);
        let configuration = see(&self.configuration, UP).exchanged(&exchange)?;
        self.configuration = see(&configuration, UP);
        self.types = types;
        Ok(())
    }

    #[track_caller]
    fn upgraded(&mut self, version: &Version) {
        self.upgrade(version, (ExchangeMode::Together, false)).unwrap();
    }

    fn version(&self, tag: &ServiceTag) -> SmolStr {
        self.configuration.layers().book.get(tag).unwrap().version.clone()
    }

    /// The rows of packages with their content.
    fn rows(&self) -> String {
        let rows = self.configuration.packages();
        rows.iter().map(|(name, it)| format!("{name}={} ", it.label)).collect()
    }
}

fn exchange_of(types: &ServiceTypes, (mode, is_forced): (ExchangeMode, bool)) -> TypeExchange {
    TypeExchange {
        services: Arc::new(types.clone()) as Arc<dyn Services>,
        models: Arc::clone(types.models()),
        service: "access".into(),
        digest: SmolStr::default(),
        mode,
        is_forced,
        is_lenient: false,
        drops_unfit: false,
    }
}

fn tag(name: &str) -> ServiceTag {
    format!("access[name='{name}']").parse().unwrap()
}

const ANOTHER_SIZE: &str = "interface {{ component.name }}\n  mtu 1300\n";

// proves sv.B103, sv.B110
#[test]
fn all_instances_are_walked_with_the_new_version_in_one_change() {
    let mut box_ = Box_::new(&first());
    let many: String = (0..100)
        .map(|at| format!("update i{at} {{\"port\":\"eth{at}\",\"bridge\":\"br0\"}}\n"))
        .collect();
    box_.set(&many);
    let yang =
        YANG.replace("leaf gateway", "leaf note { type string; default \"n\"; } leaf gateway");
    let before = box_.configuration.clone();
    box_.upgraded(&Version { yang, size: ANOTHER_SIZE, ..second() });
    let after = &box_.configuration;
    assert_eq!(made(after), made(&before).replace("mtu 1400", "mtu 1300"));
    assert!((0..100).all(|at| box_.version(&tag(&format!("i{at}"))) == "2.0.0"));
    let note = "/services/access[name=i7]/note".parse().unwrap();
    let note = after.models().native.resolve_write(&note).unwrap();
    assert_eq!(after.effective().find_leaf(&note).unwrap().value.to_string(), "n");
    let list = |it: &Configuration| it.models().native.find("/services/access");
    assert_eq!(list(after), list(&before), "a node of the same path keeps its number");
    let rows = layer_rows_diff(after.models(), &Layers::new(), after.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let fresh = types_of(&[&second()]);
    let read = Layers::from_rows(fresh.models(), rows).unwrap();
    assert_eq!(read.1, 0, "what the new version has is stored by name");
}

// proves sv.B103
#[test]
fn parameters_without_a_place_in_the_new_version_refuse_it_by_name() {
    let mut box_ = Box_::ready(&first());
    box_.set("update acme {\"gateway\":\"10.0.0.1/24\"}\nupdate bolt {\"bridge\":\"br1\",\"gateway\":\"x\",\"deploy\":false}");
    box_.set(r#"update cool {"bridge":"br2"}"#);
    let before = box_.configuration.clone();
    let without = YANG.replace("leaf gateway { type string; }", "");
    let errors =
        box_.upgrade(&Version { yang: without, ..second() }, (ExchangeMode::Together, false));
    let errors = errors.unwrap_err();
    assert_eq!(errors.iter().count(), 2, "{errors}");
    for (name, error) in ["acme", "bolt"].into_iter().zip(errors.iter()) {
        let path = format!("access[name={name}]/gateway`: the new version has no such node");
        assert!(error.to_string().contains(&path), "{error}");
    }
    let other_type = YANG.replace("leaf gateway { type string; }", "leaf gateway { type uint8; }");
    let errors =
        box_.upgrade(&Version { yang: other_type, ..second() }, (ExchangeMode::Each, false));
    assert_eq!(errors.unwrap_err().iter().count(), 2, "also where instances are left behind");
    let strict = YANG.replace(
        "leaf bridge { type hf:interface-name; mandatory true;",
        "leaf bridge { type hf:interface-name; mandatory true; must \". != 'br2'\";",
    );
    let errors =
        box_.upgrade(&Version { yang: strict, ..second() }, (ExchangeMode::Together, false));
    let errors = errors.unwrap_err().to_string();
    assert!(errors.contains("access[name='cool']") && !errors.contains("acme"), "{errors}");
    assert!(box_.configuration.is_same(&before));
    let other_key = YANG.replace("key name;", "key id;").replace("leaf name {", "leaf id {");
    let errors =
        box_.upgrade(&Version { yang: other_key, ..second() }, (ExchangeMode::Together, false));
    assert!(errors.unwrap_err().to_string().contains("the new version has no such list"));
}

#[test]
fn values_of_another_type_are_read_anew() {
    let mut box_ = Box_::new(&Version {
        yang: YANG.replace("leaf gateway { type string; }", "leaf size { type uint8; }"),
        ..first()
    });
    box_.set(r#"update acme {"bridge":"br0","size":7}"#);
    let yang = YANG.replace(
        "leaf gateway { type string; }",
        "leaf size { type int64; } leaf gateway { type string; }",
    );
    box_.upgraded(&Version { yang, ..second() });
    let native = &box_.configuration.models().native;
    let path = native.resolve_write(&"/services/access[name=acme]/size".parse().unwrap()).unwrap();
    let value = &box_.configuration.effective().find_leaf(&path).unwrap().value;
    assert_eq!(*value, holdfast_config::Value::Int(7));
}

/// The tree with a second component type in the place of the first.
fn renamed(replaces: &str) -> Version {
    let outline = first().outline.replace(
        "create = { type = \"port\", name = \"params.port\" }",
        &format!("create = {{ type = \"link\", name = \"params.port\"{replaces} }}"),
    );
    let outline = outline.replace("type = \"port\"\n", "type = \"link\"\n");
    Version { outline, ..second() }
}

const REPLACES: &str = ", replaces = [{ type = \"port\", name = \"params.port\" }]";

// proves sv.B107
#[test]
fn a_component_that_replaces_another_takes_over_what_it_made() {
    let gate = r#"delete = { when = "false" }"#;
    let outline = PORT.replace("GATE", gate);
    let mut box_ = Box_::ready(&Version { outline, ..first() });
    let before = box_.configuration.clone();
    box_.upgraded(&renamed(REPLACES));
    assert_eq!(made(&box_.configuration), SIZED);
    assert_eq!(box_.configuration.effective(), before.effective(), "no operation follows");
    let settled = settle(&box_.configuration, &UP);
    has(&settled, &["link eth1: init reached, attached reached, sized reached, ready reached"]);
    assert!(!plan(&settled).contains("port"), "the delete gate is not asked");
}

// proves sv.B108
#[test]
fn a_component_that_backs_out_does_so_before_it_is_replaced() {
    let gate = r#"delete = { when = "state('/interfaces/interface[name={}]/state/oper-status', component.name) != 'UP'" }"#;
    let two = "[[tree]]\nif = \"params.gateway is defined\"\ncreate = { type = \"port\", name = \"'eth9'\" }\n";
    let outline = PORT.replace("GATE", gate) + two;
    let mut box_ = Box_::new(&Version { outline: outline.clone(), ..first() });
    box_.set(r#"update acme {"port":"eth1","bridge":"br0","gateway":"10.0.0.1/24"}"#);
    box_.set("delete /services/access[name=acme]/gateway");
    has(&box_.configuration, &["port eth9 backs out", "port eth1: init reached"]);
    let both = ", replaces = [{ type = \"port\", name = \"params.port\" }, { type = \"port\", name = \"'eth9'\" }]";
    let link = renamed(both).outline;
    let old_type = PORT.replace("GATE", gate);
    let old_type =
        &old_type[old_type.find("[[component]]").unwrap()..old_type.find("[[tree]]").unwrap()];
    let outline = link.replace("[[tree]]", &format!("{old_type}[[tree]]"));
    box_.upgraded(&Version { outline, ..second() });
    let waiting = settle(&box_.configuration, &UP);
    has(&waiting, &["port eth9 backs out", "port eth1: init reached, attached reached"]);
    assert!(!plan(&waiting).contains("link"), "of several none goes until all can");
    let done = settle(&see(&waiting, DOWN), &DOWN);
    has(&done, &["link eth1: init reached, attached reached"]);
    assert!(!plan(&done).contains("port"), "{}", plan(&done));
    assert_eq!(made(&done), SIZED);
}

// proves sv.B104, sv.B106, sv.B109
#[test]
fn gone_components_back_out_before_new_ones_begin() {
    let mut box_ = Box_::ready(&first());
    let moved = first().outline.replace("name = \"params.port\" }", "name = \"'eth7'\" }");
    box_.upgraded(&Version { outline: moved, ..second() });
    has(&box_.configuration, &["port eth7: init reached"]);
    assert!(!plan(&box_.configuration).contains("eth1"));

    let mut box_ = Box_::ready(&first());
    let states = first().outline.replace("name = \"sized\"", "name = \"measured\"");
    box_.upgraded(&Version { outline: states, ..second() });
    assert_eq!(made(&box_.configuration), SIZED, "equal output changes nothing");
    let settled = settle(&box_.configuration, &UP);
    has(&settled, &["port eth1: init reached, attached reached, measured reached"]);
}

/// A version whose second state is kept by this delete gate.
fn guarded(version: Version, status: &str) -> Version {
    let gate = format!(
        "delete = {{ when = \"state('/interfaces/interface[name={{}}]/state/oper-status', params.port) == '{status}'\" }}"
    );
    Version { outline: PORT.replace("GATE", &gate), ..version }
}

// proves sv.B111
#[test]
fn a_zombie_ends_by_its_own_version() {
    let mut box_ = Box_::ready(&guarded(first(), "DOWN"));
    box_.set("delete acme");
    has(&box_.configuration, &["port eth1 backs out"]);
    box_.upgraded(&guarded(second(), "UP"));
    assert_eq!(box_.version(&acme()), "1.0.0");
    assert_eq!(box_.rows(), "access/1.0.0=1.0.0 ");
    let kept = settle(&box_.configuration, &UP);
    assert_eq!(made(&kept), SIZED, "the gate of the new version would be open");

    // A restart loads both, the newest last.
    let types = types_of(&[&guarded(first(), "DOWN"), &guarded(second(), "UP")]);
    let rows = layer_rows_diff(kept.models(), &Layers::new(), kept.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, _) = Layers::from_rows(types.models(), rows).unwrap();
    let again = Configuration::new(Arc::clone(types.models()), layers);
    let again = again.with_services(Some(Arc::new(types)));
    assert_eq!(made(&settle(&again, &UP)), SIZED);
    let gone = settle(&again, &DOWN);
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()));
    assert_eq!(gone.packages(), BTreeMap::new(), "nobody uses either any more");
}

/// Condition on the status of the port.
fn status_is(status: &str) -> String {
    format!(
        "state('/interfaces/interface[name={{}}]/state/oper-status', params.port) == '{status}'"
    )
}

// proves sv.B86
#[test]
fn nothing_is_evaluated_for_a_zombie_but_its_way_out() {
    // While the port is tested, the gate of the second state is closed, and the tree has one component more.
    let up = status_is("UP");
    let tested = status_is("TESTING");
    let down = status_is("DOWN");
    let lines = format!("when = \"{up}\"\n  delete = {{ when = \"{down}\" }}");
    let more = |condition: &str| {
        format!(
            "[[tree]]\nif = \"{condition}\"\ncreate = {{ type = \"port\", name = \"'eth8'\" }}\n"
        )
    };
    let outline = PORT.replace("GATE", &lines) + &more(&tested);
    let mut box_ = Box_::ready(&Version { outline, ..first() });
    box_.set("delete acme");
    let zombie = plan(&box_.configuration);
    assert!(zombie.contains("sized reached (delete gate"), "{zombie}");

    // Of the next version, all gates are open, a handler is asked before states are left, and they have actions.
    let ping = "{ builtin = \"ping\", params = { destination = \"'192.0.2.1'\" }, sync = true }";
    let lines = format!("delete = {{ work = \"handler\", action = {ping} }}");
    let outline = PORT.replace("[[component]]", "[handler]\nuser = \"root\"\n[[component]]");
    let outline = outline.replace("GATE", &lines) + &more("true");
    box_.upgraded(&Version { outline, size: ANOTHER_SIZE, ..second() });

    let call = |phase| ServedCall { service: "access".into(), component: None, state: None, phase };
    let served = BTreeSet::from([CallPhase::Create, CallPhase::Delete].map(call));
    let redeployed = |status| Surroundings {
        answers: Answers::default().with_served(served.clone()),
        may_ask: true,
        upgrades: true,
        retries_actions: true,
        ..due(FixedBox { status, unapplied: None }, 4)
    };
    for status in ["UP", "TESTING"] {
        let outcome = box_.configuration.trial(&redeployed(status));
        assert_eq!(outcome.calls, [], "no handler is asked");
        assert_eq!(outcome.claims.len(), 0);
        let walked = box_.configuration.clone().with_surroundings(redeployed(status)).walked();
        assert_eq!(plan(&walked.unwrap()), zombie, "while the port is {status}");
    }
    assert_eq!(box_.version(&acme()), "1.0.0");
    assert_eq!(box_.configuration.trial(&redeployed("DOWN")).calls, []);
    let gone = box_.configuration.clone().with_surroundings(redeployed("DOWN")).walked().unwrap();
    assert_eq!((made(&gone), plan(&gone)), (String::new(), "none".to_owned()), "without an action");
}

// proves sv.B112
#[test]
fn component_types_in_use_go_by_force_alone_and_leave_an_orphan() {
    let mut box_ = Box_::ready(&first());
    let refused = box_.upgrade(&renamed(""), (ExchangeMode::Together, false)).unwrap_err();
    assert!(refused.to_string().contains("types that this version lacks: port eth1"), "{refused}");
    box_.upgrade(&renamed(""), (ExchangeMode::Together, true)).unwrap();
    let orphan = ClaimKey::orphan(acme());
    let native = made(&box_.configuration);
    assert_eq!(native, SIZED);
    assert_eq!(orphan.to_string(), "orphan:access[name='acme']");
    assert_eq!(ClaimKey::parse_left(&orphan.to_string()), Ok(orphan.clone()));
    box_.set("delete acme");
    assert_eq!(made(&box_.configuration), SIZED, "nobody takes it back");
    let models = box_.configuration.models();
    let port = models.native.resolve_write(&"/interfaces/interface[name=eth1]".parse().unwrap());
    let owners = box_.configuration.layers().claims().owners(models, &port.unwrap());
    assert_eq!(owners, BTreeSet::from([orphan.owner()]));
    let rows =
        layer_rows_diff(box_.configuration.models(), &Layers::new(), box_.configuration.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, _) = Layers::from_rows(box_.configuration.models(), rows).unwrap();
    assert_eq!(&layers, box_.configuration.layers(), "it outlasts a restart");
    let purged = box_.configuration.purged(&orphan).unwrap();
    assert_eq!(made(&purged), "");
}

// proves sv.B112
#[test]
fn a_type_with_instances_is_removed_by_force_alone() {
    let mut box_ = Box_::ready(&Version { is_installed: true, ..first() });
    assert_eq!(box_.rows(), "access=1.0.0 ");
    let mut types = box_.types.clone();
    types.remove("access").unwrap();
    let refused = box_.configuration.exchanged(&exchange_of(&types, (ExchangeMode::Remove, false)));
    assert!(refused.unwrap_err().to_string().contains("access[name='acme']"));
    let removed =
        box_.configuration.exchanged(&exchange_of(&types, (ExchangeMode::Remove, true))).unwrap();
    assert_eq!(made(&removed), SIZED);
    assert!(removed.layers().book.is_empty());
    assert_eq!(removed.models().native.find("/services/access"), None, "the list is gone");
    let changes = box_.configuration.package_changes(&removed);
    assert_eq!(changes, [("access".into(), None)]);
    let unknown = removed.edit(&super::types::edit(ACME)).unwrap_err();
    assert!(matches!(unknown.first().cause, EditCause::UnknownPath), "{unknown}");
    let purged = removed.purged(&ClaimKey::orphan(acme())).unwrap();
    assert_eq!(made(&purged), "");
    assert!(purged.config_view(Origin::Native).root().children().is_empty());

    // It can come back at once.
    box_.types = types;
    box_.configuration = see(&purged, UP);
    box_.upgraded(&second());
    box_.set(ACME);
    assert_eq!(made(&box_.configuration), SIZED);
}

#[test]
fn instances_left_behind_keep_their_version_until_they_are_deployed_again() {
    let mut box_ = Box_::ready(&first());
    let second = Version { size: ANOTHER_SIZE, ..second() };
    box_.upgrade(&second, (ExchangeMode::Each, false)).unwrap();
    assert_eq!((made(&box_.configuration), &*box_.version(&acme())), (SIZED.to_owned(), "1.0.0"));
    assert_eq!(box_.rows(), "access=2.0.0 access/1.0.0=1.0.0 ");
    let surroundings = due(UP, 3);
    let left_behind = [(acme(), "refused".into())].into();
    let behind = Surroundings { left_behind, ..surroundings.clone() };
    let behind = box_.configuration.clone().with_surroundings(behind).walked().unwrap();
    let failure = |it: &Configuration| {
        it.layers().book.get(&acme()).unwrap().failure.as_deref().map(ToOwned::to_owned)
    };
    assert_eq!(failure(&behind).as_deref(), Some("refused"));
    box_.configuration = see(&behind, UP);
    box_.set(r#"update acme {"port":"eth2"}"#);
    assert_eq!(made(&box_.configuration), SIZED.replace("eth1", "eth2"), "by its own templates");
    assert_eq!(failure(&box_.configuration).as_deref(), Some("refused"));
    box_.set(r#"update bolt {"port":"eth3","bridge":"br0"}"#);
    assert_eq!(box_.version(&tag("bolt")), "2.0.0", "new instances have the newest one");
    let again = Surroundings { upgrades: true, ..surroundings };
    let again = box_.configuration.clone().with_surroundings(again).walked().unwrap();
    assert!(made(&again).contains("interface eth2\n  mtu 1300"), "{}", made(&again));
    assert_eq!(failure(&again), None);
    let changes = box_.configuration.package_changes(&again);
    assert_eq!(changes, [("access/1.0.0".into(), None)], "nobody uses it any more");
}

#[test]
fn a_handler_has_the_grants_of_the_version_that_the_instance_is_walked_with() {
    let outline = first().outline;
    let outline = outline.replace("\"/interfaces/interface\"", "\"/system/hostname\"");
    let outline = outline.replace("/interfaces/interface/state/oper-status", "/system/hostname");
    let types = types_of(&[&first(), &Version { outline, ..second() }]);
    let mtu = "/interfaces/interface[name=eth1]/mtu";
    let name = "/system/hostname";
    let status = "/interfaces/interface[name=eth1]/state/oper-status";
    let of = |version| TypeVersion { service: "access", version };
    for (by, is_first) in [(of(Some("1.0.0")), true), (of(Some("2.0.0")), false), (of(None), false)]
    {
        for (path, value, is_granted) in [(mtu, "1400", is_first), (name, "\"a\"", !is_first)] {
            let edit = EditContent::Document { path, value: value.as_bytes() };
            let added = types.add_edit(by, &mut GrowingClaim::default(), edit);
            let denied = added.map_err(|refusal| refusal.kind);
            let want = if is_granted { Ok(()) } else { Err(WorkFailureKind::Denied) };
            assert_eq!(denied, want, "{by:?} {path}");
        }
        assert_eq!(types.readable(by, Plane::State, status).is_ok(), is_first, "{by:?}");
        assert_eq!(types.readable(by, Plane::Ground, name).is_ok(), !is_first, "{by:?}");
    }
    let gone = types.readable(of(Some("3.0.0")), Plane::Ground, name).unwrap_err();
    assert_eq!(gone.text, "there is no type of services `access` in version 3.0.0");
}

#[test]
fn the_signer_of_each_version_is_judged_by_itself_and_told_of_once() {
    let mut types = types_of(&[&first(), &second()]);
    let refusals = |types: &ServiceTypes| {
        let refusal = |it: &PackageVersion| it.source.as_ref().unwrap().refusal.clone();
        types.versions("access").map(refusal).collect::<Vec<_>>()
    };
    let revoked = |source: &PackageSource| {
        (source.archive.label == "1.0.0").then(|| SmolStr::new_static("is revoked"))
    };
    let before = types.clone();
    assert_eq!(types.judge_signers(revoked).len(), 1);
    assert_eq!(refusals(&types), [None, Some("is revoked".into())]);
    assert_eq!(refusals(&before), [None, None], "it is a value");
    assert_eq!(types.judge_signers(revoked).len(), 0, "the verdict is the same");
    assert_eq!(types.judge_signers(|_| None).len(), 1);
    assert_eq!(refusals(&types), [None, None]);
}

#[test]
fn offered_packages_are_kept_while_instances_use_them() {
    let mut box_ = Box_::new(&first());
    assert_eq!(box_.rows(), "");
    let before = box_.configuration.clone();
    box_.set(r#"update acme {"bridge":"br0","deploy":false}"#);
    assert_eq!(box_.rows(), "access=1.0.0 ", "its parameters need the module");
    let changes = before.package_changes(&box_.configuration);
    assert_eq!(changes, [("access".into(), Some(first().archive()))]);
    let with_one = box_.configuration.clone();
    box_.set(r#"update bolt {"bridge":"br0"}"#);
    assert_eq!(with_one.package_changes(&box_.configuration), [], "it is there already");
    box_.set("delete acme\ndelete bolt");
    assert_eq!(with_one.package_changes(&box_.configuration), [("access".into(), None)]);
}
