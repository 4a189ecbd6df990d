//! The boot configuration: reserved items, operations that may name them, and its removal.

use super::*;
use crate::boot::InitialConfiguration;
use crate::edit::EditCause;
use crate::layer::Namespace;

const MGMT: &str = r#"{"holdfast:interfaces":{"interface":[
    {"name":"mgmt0","enabled":true,"ipv4":{"address":[{"ip":"192.0.2.1","prefix-length":24}]}}]}}"#;
const HOSTNAME: &str = r#"{"openconfig-system:system":{"config":{"hostname":"boot"}}}"#;
const CLIENT: &str = r#"update /system/config/hostname "mine""#;
const USERS: &str = "/system/aaa/authentication/users";

fn boot(vendor: &str, openconfig: &str) -> Arc<BootConfiguration> {
    let record = format!("{vendor}{openconfig}").into_bytes();
    Arc::new(BootConfiguration { vendor: vendor.into(), openconfig: openconfig.into(), record })
}

fn booted() -> Configuration {
    empty().booted(Some(&boot(MGMT, HOSTNAME))).unwrap()
}

fn hostname(configuration: &Configuration) -> Vec<String> {
    below(&lines_effective(configuration), "/system/hostname=")
}

/// Checks the errors of a request on a box whose boot configuration holds `mgmt0` and the host name; empty on
/// success.
#[track_caller]
fn check_reserved(request: &str, want: &[&str]) {
    let before = booted();
    match before.edit(&edit(request)) {
        Err(errors) => {
            assert!(
                errors.iter().all(|it| matches!(it.cause, EditCause::Reserved { .. })),
                "{errors}"
            );
            let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{request}");
        }
        Ok(after) => {
            assert!(want.is_empty(), "{request} was done");
            for layer in [LayerKey::BOOT_NATIVE, LayerKey::BOOT_OPENCONFIG] {
                assert_eq!(after.layers().tree(layer), before.layers().tree(layer), "{request}");
            }
            assert_eq!(hostname(&after), ["boot"], "{request}");
        }
    }
}

// proves 3.2, 3.5, 3.10, 3.11, 3.14, 3.17, 3.22, 3.23
#[test]
fn boot_items_are_reserved_when_named_and_kept_when_covered() {
    let refusal = "this path is reserved for bootz: the boot configuration holds it";
    let removed = "this path is reserved for bootz: only its owner removes it";
    for (request, want) in [
        (CLIENT, vec![format!("cannot update `/system/config/hostname`: {refusal}")]),
        (
            r#"update /system {"config":{"hostname":"boot","motd-banner":"hi"}}"#,
            vec![format!("cannot update `/system/config/hostname`: {refusal}")],
        ),
        (
            r#"replace native:/system/hostname "boot""#,
            vec![format!("cannot replace `/system/hostname`: {refusal}")],
        ),
        (
            r#"update /interfaces/interface[name=mgmt0]/config/description "x""#,
            vec![format!(
                "cannot update `/interfaces/interface[name=mgmt0]/config/description`: {refusal}"
            )],
        ),
        (
            "update native:/interfaces/interface[name=mgmt0]/enabled false",
            vec![format!("cannot update `/interfaces/interface[name=mgmt0]/enabled`: {refusal}")],
        ),
        (
            "delete /system/config/hostname",
            vec![format!("cannot delete `/system/config/hostname`: {removed}")],
        ),
        (
            "delete /interfaces/interface[name=mgmt0]",
            vec![format!("cannot delete `/interfaces/interface[name=mgmt0]`: {removed}")],
        ),
        (
            "delete native:/interfaces/interface[name=mgmt0]/mtu",
            vec![format!("cannot delete `/interfaces/interface[name=mgmt0]/mtu`: {removed}")],
        ),
        // Covered, not named.
        ("delete /", vec![]),
        ("delete /interfaces", vec![]),
        ("delete /interfaces/interface[name=*]", vec![]),
        ("delete /interfaces/interface[name=mgmt0]/config", vec![]),
        (r#"replace / {"openconfig-system:system":{"config":{"motd-banner":"hi"}}}"#, vec![]),
        // The entry's own leaves are reserved, its lists and other entries are not.
        (
            r#"update native:/interfaces/interface[name=mgmt0]/ipv4/address[ip=192.0.2.9] {"prefix-length":24}"#,
            vec![],
        ),
        (r#"update /interfaces/interface[name=eth1]/config/description "x""#, vec![]),
        (r#"update /system/config/motd-banner "hi""#, vec![]),
    ] {
        let want: Vec<&str> = want.iter().map(String::as_str).collect();
        check_reserved(request, &want);
    }
}

// proves 3.18
#[test]
fn items_of_a_switched_off_namespace_are_writable() {
    let off = booted().switched(Namespace::Bootz, false);
    assert_eq!(hostname(&off), ["boot"], "nobody else asks for it");
    let mine = then(&off, CLIENT);
    assert_eq!(hostname(&mine), ["mine"]);
    let on = mine.switched(Namespace::Bootz, true);
    assert_eq!(hostname(&on), ["boot"]);
    // Items that are sent back unchanged pass.
    then(&on, CLIENT);
    let unbooted = on.booted(None).unwrap();
    assert_eq!(hostname(&unbooted), ["mine"]);
}

// proves 3.4, 3.12
#[test]
fn credentials_are_reserved_for_gnsi() {
    let user = format!(r#"update {USERS}/user[username=ada]/config/role "read-only""#);
    let before = after(&[&user]);
    for row in crate::reserved::RESERVED_ITEMS {
        let leaf = row.openconfig.rsplit_once('/').unwrap().1;
        let path = format!("{USERS}/user[username=ada]/config/{leaf}");
        let cause = |request: &str| {
            let errors = before.edit(&edit(request)).unwrap_err();
            assert!(errors.first().path.ends_with(leaf), "{errors}");
            errors.first().cause.clone()
        };
        for request in [
            format!(r#"update {path} "secret""#),
            format!(
                r#"replace {USERS}/user[username=ada] {{"config":{{"role":"admin","{leaf}":"x"}}}}"#
            ),
            format!("delete {path}"),
        ] {
            let owner = cause(&request);
            assert!(
                matches!(owner, EditCause::Reserved { owner: Namespace::Gnsi, .. }),
                "{request}"
            );
        }
        let off = before.switched(Namespace::Gnsi, false);
        let errors = off.edit(&edit(&format!(r#"update {path} "secret""#))).unwrap_err();
        assert!(matches!(errors.first().cause, EditCause::Unsupported(_)), "{errors}");
    }
    assert_eq!(below(&lines_effective(&before), "/system/user[username=ada]/"), ["role=read-only"]);
    let root = refused(&[&format!(r#"update {USERS}/user[username=ada]/config/role "root!""#)]);
    assert!(
        root[0]
            .contains("`root!` is not a role: use SYSTEM_ROLE_ADMIN, admin, read-only, or a name"),
        "{root:?}"
    );
}

// proves 3.25, 3.26, 3.29, 3.30, 4.77, 4.82
#[test]
fn a_boot_configuration_is_replaced_as_a_whole_or_not_at_all() {
    let client = after(&[CLIENT]);
    let both = client.booted(Some(&boot(MGMT, HOSTNAME))).unwrap();
    assert_eq!(hostname(&both), ["boot"]);
    let lines = below(&lines_effective(&both), "/interfaces/interface[name=mgmt0]/ipv4/address");
    assert_eq!(lines, ["[ip=192.0.2.1]/prefix-length=24"]);
    let other = both
        .booted(Some(&boot("", r#"{"openconfig-system:system":{"config":{"motd-banner":"x"}}}"#)))
        .unwrap();
    assert_eq!(hostname(&other), ["mine"]);
    assert!(below(&lines_effective(&other), "/interfaces").is_empty());
    let none = other.booted(Some(&boot("", ""))).unwrap();
    assert_eq!(lines_effective(&none), lines_effective(&client));
    for after in [&both, &other, &none] {
        for layer in [LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG] {
            assert_eq!(after.layers().tree(layer), client.layers().tree(layer));
        }
    }
    let native_name = r#"{"holdfast:system":{"hostname":"other"}}"#;
    for (vendor, openconfig, want) in [
        ("{", "", "cannot boot with vendor_config at `/`: "),
        (
            "",
            r#"{"openconfig-system:system":{"config":{"nosuch":1}}}"#,
            "cannot boot with oc_config at `/system/config",
        ),
        (
            "",
            r#"{"openconfig-system:system":{"config":{"hostname":7}}}"#,
            "cannot boot with oc_config at `/system/config/hostname`",
        ),
        (
            native_name,
            HOSTNAME,
            "cannot boot with oc_config at `/system/config/hostname`: `/system/hostname` is ",
        ),
        (
            "",
            r#"{"@":{"openconfig-metadata:protobuf-metadata":"YQ=="}}"#,
            "cannot boot with oc_config at `/`: an annotation",
        ),
    ] {
        let errors = both.booted(Some(&boot(vendor, openconfig))).unwrap_err();
        assert!(errors.to_string().starts_with(want), "{vendor} {openconfig}: {errors}");
    }
    // Equal values agree.
    both.booted(Some(&boot(r#"{"holdfast:system":{"hostname":"boot"}}"#, HOSTNAME))).unwrap();
}

// proves 4.81
#[test]
fn an_unconfirmed_boot_trial_is_rolled_back() {
    let first = booted();
    let second = boot("", r#"{"openconfig-system:system":{"config":{"hostname":"second"}}}"#);
    let tried = first.boot_changed(&BootChange::Try(second.clone())).unwrap();
    assert_eq!(hostname(&tried), ["second"]);
    for other in [BootChange::Set(None), BootChange::Try(second.clone())] {
        let errors = tried.boot_changed(&other).unwrap_err();
        assert_eq!(errors.first().cause, EditCause::Unconfirmed);
    }
    let back = tried.boot_changed(&BootChange::GoBack).unwrap();
    assert_eq!(back.layers(), first.layers());
    // A restart makes no difference, whatever the database held.
    let rows = layer_rows_diff(models(), &Layers::new(), tried.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, unknown) = Layers::from_rows(models(), rows).unwrap();
    assert_eq!((&layers, unknown), (tried.layers(), 0));
    let restarted = Configuration::new(models().clone(), layers).restarted();
    assert_eq!(restarted.layers(), first.layers());
    let confirmed = tried.boot_changed(&BootChange::Confirm).unwrap().restarted();
    assert_eq!(hostname(&confirmed), ["second"]);
    assert_eq!(confirmed.layers().boot.as_ref(), Some(&second));
}

// proves 3.1, 3.2, 3.3
#[test]
fn gnsi_outranks_boot_and_boot_outranks_clients() {
    let mut layers = booted().layers().clone();
    let path = models().native.resolve_write(&"/system/hostname".parse().unwrap()).unwrap();
    let leaf = |text: &str| tree::Leaf::new(Value::Str(text.into()), LeafMark::Explicit);
    layers.tree_mut(LayerKey::CLIENT_NATIVE).set_leaf(&models().native, &path, leaf("client"));
    let of = |layers: &Layers| hostname(&Configuration::new(models().clone(), layers.clone()));
    assert_eq!(of(&layers), ["boot"]);
    layers.tree_mut(LayerKey::GNSI).set_leaf(&models().native, &path, leaf("gnsi"));
    assert_eq!(of(&layers), ["gnsi"]);
    layers.switch(Namespace::Gnsi, false);
    assert_eq!(of(&layers), ["boot"]);
    layers.switch(Namespace::Bootz, false);
    assert_eq!(of(&layers), ["client"]);
    *layers.tree_mut(LayerKey::CLIENT_NATIVE) = Tree::new();
    assert_eq!(of(&layers), ["gnsi"], "switched off, they still go before nothing at all");
}

// proves 3.28, 3.29, 4.82
#[test]
fn bootstrap_sets_the_initial_client_configuration_atomically() {
    let bootstrap = |native: &str, seeds: (&str, &str)| {
        let seeds = InitialConfiguration { vendor: seeds.0.into(), openconfig: seeds.1.into() };
        let change = BootChange::Bootstrap(boot(native, ""), Arc::new(seeds));
        Configuration::new(models().clone(), Layers::new()).boot_changed(&change)
    };
    let hostname = r#"{"holdfast:system":{"hostname":"boot"}}"#;
    let seed = r#"{"openconfig-system:system":{"config":{"motd-banner":"seed"}}}"#;
    let text = "system motd-banner seed\n";
    for (seeds, replace) in [
        (("", seed), "replace / {}"),
        ((text, ""), "replace native:/ {}"),
        ((r#"{"holdfast:system":{"motd-banner":"seed"}}"#, ""), "replace native:/ {}"),
    ] {
        let seeded = bootstrap(hostname, seeds).unwrap();
        let effective = lines_effective(&seeded).join("\n");
        assert!(
            effective.contains("boot") && effective.contains("motd-banner=seed"),
            "{effective}"
        );
        let replaced = then(&seeded, replace);
        let effective = lines_effective(&replaced).join("\n");
        assert!(effective.contains("boot") && !effective.contains("seed"), "{effective}");
    }
    for (seeds, want) in [
        ((r#"{"holdfast:system":{"hostname":"mine"}}"#, ""), "begin with dynamic_vendor_config at"),
        (
            ("", r#"{"openconfig-system:system":{"config":{"x":1}}}"#),
            "begin with dynamic_oc_config at",
        ),
        (("system motd", ""), "begin with dynamic_vendor_config at"),
        (("system motd-banner other\n", seed), "motd-banner"),
    ] {
        let errors = bootstrap(hostname, seeds).unwrap_err();
        assert!(errors.to_string().contains(want), "{want}: {errors}");
    }
}

#[test]
fn factory_reset_restores_the_factory_configuration() {
    let text = br#"{"holdfast:system":{"hostname":"factory","user":[{"username":"admin","role":"admin"}]}}"#;
    let factory = document::factory(models(), text).unwrap();
    let mut layers = Layers::new();
    layers.factory_text = Some(text[..].into());
    *layers.tree_mut(LayerKey::CLIENT_NATIVE) = factory.clone();
    let fresh = Configuration::new(models().clone(), layers).with_factory(factory);
    assert_eq!(
        lines_effective(&fresh),
        ["/system/hostname=factory factory", "/system/user[username=admin]/role=admin factory",]
    );
    let used = then(&fresh.booted(Some(&boot(MGMT, ""))).unwrap(), r#"replace / {}"#);
    assert!(below(&lines_effective(&used), "/system").is_empty());
    let off = used.switched(Namespace::Bootz, false);
    assert_eq!(off.factory_reset().layers(), fresh.layers());
    let errors = document::factory(models(), br#"{"holdfast:system":{"hostname":7}}"#).unwrap_err();
    assert!(
        errors.to_string().starts_with("cannot be delivered with `/system/hostname`"),
        "{errors}"
    );
}

#[test]
fn boot_text_negates_items() {
    let text = "interface mgmt0\n  enabled true\n  no description\nno interface eth9\nsystem hostname a\nno system hostname\n";
    let client = after(&[
        r#"update /interfaces/interface[name=mgmt0]/config/description "x""#,
        r#"update /interfaces/interface[name=eth9]/config/description "x""#,
        r#"update native:/interfaces/interface[name=eth8]/mtu 1400"#,
        CLIENT,
    ]);
    let both = client.booted(Some(&boot(text, ""))).unwrap();
    assert_eq!(
        lines_effective(&both),
        [
            "/interfaces/interface[name=eth8]/type=physical default",
            "/interfaces/interface[name=eth8]/enabled=true default",
            "/interfaces/interface[name=eth8]/mtu=1400",
            "/interfaces/interface[name=mgmt0]/type=physical default",
            "/interfaces/interface[name=mgmt0]/enabled=true",
        ]
    );
    let rows = layer_rows_diff(models(), &Layers::new(), both.layers());
    let rows = rows.into_iter().filter_map(|row| Some((row.key, row.value?)));
    let (layers, _) = Layers::from_rows(models(), rows).unwrap();
    let again = Configuration::new(models().clone(), layers);
    assert_eq!(lines_effective(&again), lines_effective(&both));
    // Items that are to be absent are reserved as well; their siblings are not.
    for (request, outcome) in [
        (r#"update /interfaces/interface[name=eth9]/config/enabled true"#, false),
        ("delete /interfaces/interface[name=eth9]", false),
        (r#"update /system/config/hostname "other""#, false),
        (r#"update /interfaces/interface[name=eth8]/config/description "x""#, true),
    ] {
        assert_eq!(both.edit(&edit(request)).is_ok(), outcome, "{request}");
    }
    assert_eq!(lines_effective(&both.booted(None).unwrap()), lines_effective(&client));
    for (text, want) in [
        ("interface mgmt0\n  nosuch 1\n", "cannot boot with vendor_config at `/`: line 2"),
        ("no system\n", "cannot boot with vendor_config at `/system`: line 1"),
    ] {
        let errors = client.booted(Some(&boot(text, ""))).unwrap_err();
        assert!(errors.to_string().starts_with(want), "{errors}");
    }
    let clash = client.booted(Some(&boot("no system hostname", HOSTNAME))).unwrap_err();
    assert!(clash.to_string().contains("/system/config/hostname"), "{clash}");
}

/// The content of an entry that a boot text removes is hidden with it, and comes back whole once the text does not.
#[test]
fn the_content_of_a_removed_entry_comes_back_with_it() {
    let native = "native:/interfaces/interface[name=eth9]";
    let clients = [
        &format!("update {native}/ipv4/address[ip=10.0.0.1]/prefix-length 24")[..],
        "update /interfaces/interface[name=eth9]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.2]/config/prefix-length 24",
    ];
    let before = after(&clients);
    let removed = before.booted(Some(&boot("no interface eth9\n", ""))).unwrap();
    assert!(below(&lines_effective(&removed), "/interfaces").is_empty());
    let other = boot("interface eth9\n  description back\n", "");
    for (boot, gained) in [(None, 0), (Some(&other), 1)] {
        let back = removed.booted(boot).unwrap();
        let scratch = Configuration::new(models().clone(), back.layers().clone());
        assert_eq!(back.effective(), scratch.effective());
        let lines = lines_effective(&back);
        assert_eq!(lines.len(), lines_effective(&before).len() + gained, "{lines:#?}");
    }
}

#[test]
fn a_factory_configuration_may_be_text() {
    let text = "system\n  hostname factory\n  user admin\n    role admin\n";
    let lines = document::factory(models(), text.as_bytes()).unwrap();
    let json = br#"{"holdfast:system":{"hostname":"factory","user":[{"username":"admin","role":"admin"}]}}"#;
    let json = document::factory(models(), json).unwrap();
    let text_lines = |tree: &Tree<LeafMark>| lines_of(tree).into_iter().collect::<Vec<_>>();
    assert_eq!(text_lines(&lines), text_lines(&json));
    for (text, want) in [
        (
            "no system hostname",
            "line 1: a factory configuration cannot remove anything: leave out `no`",
        ),
        ("interface eth0 ipv4 address 10.0.0.1", "a mandatory leaf is not set"),
        ("system nosuch 1", "line 1"),
    ] {
        let errors = document::factory(models(), text.as_bytes()).unwrap_err();
        assert!(errors.to_string().contains(want), "{text}: {errors}");
    }
}

fn lines_of(tree: &Tree<LeafMark>) -> Vec<String> {
    lines(
        &models().native,
        tree,
        |mark| if *mark == LeafMark::Factory { "" } else { " not factory" },
    )
}

// proves 3.20
#[test]
fn reserved_items_in_cli_text_are_refused_by_line() {
    let text = |text: &str| {
        let payload = Payload::Cli { text: text.to_owned() };
        let target = EditTarget { origin: Origin::Native, path: Path::root() };
        Edit { replaces: vec![(target, payload)], ..Edit::default() }
    };
    let before = booted();
    let free = before.edit(&text("system motd-banner hi\ninterface eth1\n  mtu 1400\n")).unwrap();
    assert_eq!(hostname(&free), ["boot"]);
    assert_eq!(below(&lines_effective(&free), "/interfaces/interface[name=eth1]/mtu"), ["=1400"]);
    for (line, number) in [
        ("system hostname mine", "hostname"),
        ("interface mgmt0 enabled false", "enabled"),
        ("no system hostname", "hostname"),
        ("no interface mgmt0", "mgmt0"),
    ] {
        let errors = free.edit(&text(&format!("system motd-banner hi\n{line}\n"))).unwrap_err();
        let first = errors.first();
        assert!(
            matches!(first.cause, EditCause::Reserved { owner: Namespace::Bootz, .. }),
            "{errors}"
        );
        assert!(errors.to_string().contains(number), "{errors}");
    }
    // Deleting by omission from a text does not affect boot items.
    assert_eq!(
        free.layers().tree(LayerKey::BOOT_NATIVE),
        before.layers().tree(LayerKey::BOOT_NATIVE)
    );
}
