//! union_replace, and CLI text: UNION.md section 6 as tables.

use super::stack::{ETH0, PORTS_DISABLED, check_lines, factory, with_layer};
use super::*;

pub(super) const PORT: &str = "/interfaces/interface[name=eth0]";

/// OpenConfig with these interfaces and nothing else; an interface is `NAME` or `NAME JSON`.
pub(super) fn ports(entries: &[&str]) -> String {
    let entry = |text: &&str| {
        let (name, leaves) = text.split_once(' ').unwrap_or((text, "{}"));
        let leaves = leaves.trim_start_matches('{').trim_end_matches('}');
        let comma = if leaves.is_empty() { "" } else { "," };
        format!("{{\"name\":\"{name}\",\"config\":{{\"name\":\"{name}\"{comma}{leaves}}}}}")
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    format!("/ {{\"interfaces\":{{\"interface\":[{}]}}}}", entries.join(","))
}

#[track_caller]
fn refused_after(start: &Configuration, request: &str) -> Vec<String> {
    match start.edit(&edit(request)) {
        Ok(_) => panic!("{request}: it was done"),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// Checks that nothing is computed and no object changes, because the layers are the same memory.
#[track_caller]
pub(super) fn check_no_op(start: &Configuration, request: &str) {
    let again = then(start, request);
    for layer in [LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG] {
        let old = start.layers().tree(layer);
        let new = again.layers().tree(layer);
        assert!(new.is_same(old), "{layer} is other memory after {request}");
    }
    assert_eq!(again.work().entries, 0, "{request}");
    assert!(again.effective().is_same(start.effective()), "{request}");
    assert!(changed_objects(start, &again).is_empty(), "{request}");
}

/// Case 1.
// proves 2.10, 2.11, 2.15, 2.17, 2.18, 1.89
#[test]
fn union_replace_resets_factory_ports() {
    let start = then(
        &factory(PORTS_DISABLED),
        &format!("replace {}", ports(&["eth1 {\"description\":\"d\"}"])),
    );
    check_lines(&lines_effective(&start), "/system/hostname", &[]);
    check_lines(
        &lines_effective(&start),
        "/interfaces/interface[name=eth1]/enabled",
        &["=true oc-default"],
    );
    let text_only = then(&start, "union cli: interface eth1\n  mtu 1400");
    assert!(text_only.layers().tree(LayerKey::CLIENT_OPENCONFIG).is_empty());
    check_lines(
        &lines_effective(&text_only),
        "/",
        &[
            "system/hostname=factory factory",
            "interfaces/interface[name=eth0]/type=physical default",
            "interfaces/interface[name=eth0]/enabled=false factory",
            "interfaces/interface[name=eth1]/type=physical default",
            "interfaces/interface[name=eth1]/enabled=false factory",
            "interfaces/interface[name=eth1]/mtu=1400",
        ],
    );
    let negated = then(&start, "union cli: no system hostname");
    check_lines(&lines_effective(&negated), "/system/hostname", &[]);
    let openconfig_only =
        then(&text_only, &format!("union {}", ports(&["eth0 {\"description\":\"d\"}"])));
    check_lines(
        &lines_effective(&openconfig_only),
        "/",
        &[
            "system/hostname=factory factory",
            "interfaces/interface[name=eth0]/type=physical default",
            "interfaces/interface[name=eth0]/enabled=true oc-default",
            "interfaces/interface[name=eth0]/description=d",
            "interfaces/interface[name=eth1]/type=physical default",
            "interfaces/interface[name=eth1]/enabled=false factory",
        ],
    );
}

/// A port that is deleted or left out is reset; one of its leaves goes only by its own name.
// proves 1.89
#[test]
pub(super) fn ports_are_reset_and_not_lost() {
    let reset = ["/type=physical default", "/enabled=false factory"];
    let defaults = ["/type=physical default", "/enabled=true default"];
    let set = format!("update {ETH0}/config/mtu 1500");
    let native = "update native:/interfaces/interface[name=eth0]/mtu 1486";
    for (requests, want) in [
        (vec![format!("delete {ETH0}")], &reset[..]),
        (vec!["delete /interfaces/interface[name=*]".to_owned()], &reset),
        (vec!["delete native:/".to_owned()], &reset),
        (vec![native.to_owned(), "replace native:/ {}".to_owned()], &reset),
        (vec![set.clone(), format!("delete {ETH0}")], &reset),
        (vec![set.clone(), "replace /interfaces {\"interface\":[]}".to_owned()], &reset),
        (vec![set.clone(), "update cli: no interface eth0".to_owned(), "delete /".into()], &reset),
        (vec![set, format!("delete {ETH0}; delete {ETH0}/config/enabled")], &defaults),
        (
            vec![
                native.to_owned(),
                format!("delete {ETH0}/config/enabled"),
                "update cli: no interface eth0 mtu".into(),
            ],
            &defaults,
        ),
        (
            vec!["update cli: interface eth0\n  no enabled\n  mtu 1400".to_owned()],
            &["/type=physical default", "/enabled=true default", "/mtu=1400"],
        ),
        (vec!["union native:/ {}".to_owned()], &reset),
        (
            vec![
                format!("replace {ETH0}/config {{\"name\":\"eth0\"}}"),
                format!("delete {ETH0}/config"),
            ],
            &reset,
        ),
    ] {
        let end =
            requests.iter().fold(factory(PORTS_DISABLED), |start, request| then(&start, request));
        let found = below(&lines_effective(&end), ETH0);
        let oc_default = |line: &str| line.replace("true oc-default", "true default");
        let found: Vec<String> = found.iter().map(|line| oc_default(line)).collect();
        assert_eq!(found, want, "{requests:#?}");
    }
}

/// Case 2: repeating a union costs nothing, whatever its payloads.
// proves 2.24
#[test]
fn the_same_union_replace_twice_does_nothing() {
    let openconfig = format!("union {}", ports(&["eth1", "eth0 {\"mtu\":1500}"]));
    let text =
        "union cli: interface eth0\n  description port\nsystem hostname box\nno interface eth9";
    let native = "union native:/interfaces/interface[name=br0] {\"type\":\"bridge\",\"bridge\":{\"stp\":true}}";
    for start in [empty(), factory(PORTS_DISABLED)] {
        for request in [
            openconfig.clone(),
            text.to_owned(),
            native.to_owned(),
            format!("{text}; {openconfig}"),
            format!("{openconfig}; {text}"),
            format!("{native}; {openconfig}"),
            format!("{openconfig}; {native}"),
            "union native:/ {}".to_owned(),
            "union / {}".to_owned(),
            text.replace("union", "replace"),
        ] {
            let once = then(&start, &request);
            check_no_op(&once, &request);
        }
    }
}

/// Case 2: Get of a root, sent back as a whole.
#[test]
fn get_output_replaced_back_changes_nothing() {
    for start in [
        factory(PORTS_DISABLED),
        then(&factory(PORTS_DISABLED), &format!("replace {}", ports(&["eth1"]))),
    ] {
        for origin in ["", "native:"] {
            let document = super::set::json_of(&start, &format!("{origin}/"));
            let again = then(&start, &format!("replace {origin}/ {document}"));
            assert_eq!(again.layers(), start.layers(), "{origin}/ {document}");
        }
    }
}

/// One change in a large union is one change.
#[test]
fn union_work_is_proportional_to_the_change() {
    let all = |mtu: usize| {
        let names: Vec<String> = (0..50)
            .map(|n| format!("p{n} {{\"mtu\":{}}}", if n == 7 { mtu } else { 1500 }))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("union {}; union cli: system hostname box", ports(&names))
    };
    let start = then(&empty(), &all(1500));
    let changed = then(&start, &all(1600));
    assert_eq!(changed.work().entries, 2, "the root and the interface");
    assert_eq!(changed_objects(&start, &changed).len(), 1);
}

/// Case 4: an address changes its interface in one request, by either origin.
// proves 2.27, 2.28
#[test]
fn an_address_moves_in_one_union() {
    let text = |port: &str| {
        format!("union cli: interface {port}\n  ipv4\n    address 10.0.0.1\n      prefix-length 24")
    };
    let openconfig = |port: &str| {
        format!(
            "union /interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv4/addresses/\
             address[ip=10.0.0.1]/config/prefix-length 24"
        )
    };
    for (one, other) in [
        (text("eth1"), text("eth2")),
        (openconfig("eth1"), openconfig("eth2")),
        (text("eth1"), openconfig("eth2")),
        (openconfig("eth1"), text("eth2")),
    ] {
        let end = after(&[&one, &other]);
        let lines = lines_effective(&end);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert_eq!(
            lines[2],
            "/interfaces/interface[name=eth2]/ipv4/address[ip=10.0.0.1]/prefix-length=24"
        );
    }
}

/// With paths of the native model, what they do not name stays; what they name is cleared in both.
// proves 2.7, 2.16, 2.19, 2.20
#[test]
fn paths_replace_what_they_name_and_nothing_else() {
    let start = "update /interfaces/interface[name=eth1]/config/mtu 1500; \
                 update native:/interfaces/interface[name=eth0] {\"mtu\":1400,\"description\":\"old\"}; \
                 update native:/system/motd-banner \"hi\"";
    check_effective(
        &[start, "union native:/interfaces/interface[name=eth0] {\"mtu\":1300}"],
        "/",
        &[
            "system/motd-banner=hi",
            "interfaces/interface[name=eth0]/type=physical default",
            "interfaces/interface[name=eth0]/enabled=true default",
            "interfaces/interface[name=eth0]/mtu=1300",
            "interfaces/interface[name=eth1]/type=physical default",
            "interfaces/interface[name=eth1]/enabled=true oc-default",
            "interfaces/interface[name=eth1]/mtu=1486",
        ],
    );
    let both = after(&[
        start,
        "union native:/interfaces/interface[name=eth1]/description \"new\"; union /interfaces/interface[name=eth0]/config/mtu 1600",
    ]);
    check_lines(
        &lines_effective(&both),
        "/interfaces/",
        &[
            "interface[name=eth0]/type=physical default",
            "interface[name=eth0]/enabled=true oc-default",
            "interface[name=eth0]/description=old",
            "interface[name=eth0]/mtu=1586",
            "interface[name=eth1]/type=physical default",
            "interface[name=eth1]/enabled=true oc-default",
            "interface[name=eth1]/description=new",
            "interface[name=eth1]/mtu=1486",
        ],
    );
    check_effective(&[start, "union native:/ {}"], "/", &[]);
    let root = after(&[start, "union / {}; union native:/system/hostname \"box\""]);
    check_lines(&lines_effective(&root), "/", &["system/hostname=box"]);
}

/// Case 6: what a client sends, whichever way, leaves what the box was booted with alone.
// proves 2.54, 2.57
#[test]
fn union_replace_keeps_boot_and_lease_layers() {
    let start = with_layer(
        &factory(PORTS_DISABLED),
        LayerKey::BOOT_NATIVE,
        "update native:/system/hostname \"boots\"",
    );
    let start = with_layer(&start, LayerKey::LEASE, "update native:/system/domain-name \"leased\"");
    for request in [
        "replace cli: interface eth1\n  mtu 1400",
        "union cli: interface eth1\n  mtu 1400",
        "union / {}",
        "union native:/ {}",
    ] {
        let end = start.edit(&edit(request)).unwrap();
        for layer in [LayerKey::BOOT_NATIVE, LayerKey::LEASE] {
            assert!(end.layers().tree(layer).is_same(start.layers().tree(layer)), "{request}");
        }
        check_lines(&lines_effective(&end), "/system/hostname", &["=boots"]);
    }
}

/// Case 7.
#[test]
fn a_negation_does_not_take_what_openconfig_has() {
    let openconfig = "/system/config/hostname \"box\"";
    let message = |operation: &str, line: usize, at: &str| {
        format!(
            "cannot {operation} `line {line}: no system hostname`: `{at}` is to be absent by client native \
             (`line {line}: no system hostname`) and `/system/config/hostname` is `box` by client openconfig"
        )
    };
    let hostname = "/system/hostname";
    let start = factory("update native:/system/hostname \"factory\"");
    let union = format!("union cli: ! x\nno system hostname; union {openconfig}");
    assert_eq!(refused_after(&start, &union), [message("union_replace", 2, hostname)]);
    let stored = then(&start, &format!("update {openconfig}"));
    let removed = then(&stored, "update cli: no system hostname");
    check_lines(&lines_effective(&removed), hostname, &["=box"]);
    let again = refused_after(&removed, "update cli: no system hostname");
    assert_eq!(again, [message("update", 1, hostname)]);
    let same = format!("update cli: no system hostname; update {openconfig}");
    let bare = then(&start, "update cli: no system hostname");
    check_lines(&lines_effective(&bare), hostname, &[]);
    assert_eq!(refused_after(&bare, &same), [message("update", 1, hostname)]);
    then(&start, &same);
    then(&removed, "replace cli: no system hostname");
    then(
        &start,
        &format!("union cli: no system hostname\nsystem hostname box; union {openconfig}"),
    );
    then(&removed, "update cli: no system login-banner");
    let shell = format!("union cli: no interface eth0; union {}", ports(&["eth0"]));
    then(&factory(PORTS_DISABLED), &shell); // which conflicts with nothing
    let request = ports(&["eth0 {\"description\":\"d\"}"]);
    let port = format!("union cli: no interface eth0; union {request}");
    assert!(
        refused_after(&factory(PORTS_DISABLED), &port)[0]
            .contains("`/interfaces/interface[name=eth0]` is there")
    );
}

/// Case 8, by one union each.
#[test]
fn openconfig_defaults_rank_between_explicit_and_factory_values() {
    let start = factory("update native:/interfaces/interface[name=eth0]/enabled false");
    let enabled = format!("{PORT}/enabled");
    let entry = format!("union {}", ports(&["eth0 {\"description\":\"d\"}"]));
    let shut = "union cli: interface eth0\n  enabled false";
    for (requests, want) in [
        (vec![entry.clone()], "=true oc-default"),
        (vec![format!("{entry}; {shut}")], "=false"),
        (vec![format!("{entry}; {shut}"), shut.to_owned()], "=false"),
        (vec![entry.clone(), "union / {}".to_owned()], "=false factory"),
    ] {
        let end = requests.iter().fold(start.clone(), |start, request| then(&start, request));
        check_lines(&lines_effective(&end), &enabled, &[want]);
    }
}

/// Case 9: a configured address hides the leases of its family on the port until it is removed.
#[test]
fn configured_addresses_hide_leases_and_removal_restores_them() {
    let port = "/interfaces/interface[name=eth0]";
    let leased = with_layer(
        &empty(),
        LayerKey::LEASE,
        "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.9]/prefix-length 24; \
         update native:/interfaces/interface[name=eth0]/ipv6/address[ip=2001:db8::9]/prefix-length 64; \
         update native:/network-instances/network-instance[name=DEFAULT]/static[name=lease]/route[prefix=0.0.0.0\\/0]/next-hop[index=0] {\"next-hop\":\"10.0.0.254\",\"interface\":\"eth0\"}; \
         update native:/network-instances/network-instance[name=DEFAULT]/static[name=lease]/route[prefix=::\\/0]/next-hop[index=0] {\"next-hop\":\"fe80::1\",\"interface\":\"eth0\"}",
    );
    let routes = |configuration: &Configuration| -> String {
        let lines = below(&lines_effective(configuration), "/network-instances");
        let families = [("v4", "0.0.0.0"), ("v6", "::")];
        let there = |prefix: &str| {
            lines.iter().any(|line| {
                line.contains(&format!("[prefix={prefix}")) && line.contains("next-hop=")
            })
        };
        families
            .iter()
            .filter(|(_, it)| there(it))
            .map(|(family, _)| *family)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let described = then(&leased, "union cli: interface eth0\n  description uplink");
    let four = "/ipv4/address[ip=10.0.0.9]/prefix-length=24";
    let six = "/ipv6/address[ip=2001:db8::9]/prefix-length=64";
    let addresses = |configuration: &Configuration| -> Vec<String> {
        let lines = below(&lines_effective(configuration), port);
        lines.into_iter().filter(|line| line.contains("address")).collect()
    };
    assert_eq!(
        (addresses(&described), &*routes(&described)),
        (vec![four.into(), six.into()], "v4 v6")
    );
    let own = "cli: interface eth0\n  ipv4\n    address 10.0.0.1\n      prefix-length 24";
    let configured = then(&described, &format!("update {own}"));
    assert_eq!(addresses(&configured), ["/ipv4/address[ip=10.0.0.1]/prefix-length=24", six]);
    assert_eq!(routes(&configured), "v6", "the route goes with the addresses of its family");
    let openconfig = then(
        &described,
        "update /interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv4/addresses/\
         address[ip=10.0.0.2]/config/prefix-length 24",
    );
    assert_eq!(addresses(&openconfig), ["/ipv4/address[ip=10.0.0.2]/prefix-length=24", six]);
    let back = then(&configured, "union cli: interface eth0\n  description uplink");
    assert_eq!((addresses(&back), &*routes(&back)), (vec![four.into(), six.into()], "v4 v6"));
    assert!(back.effective() == described.effective());
}

/// Cases 9 and 10, as far as the union goes: the lower layer comes back.
#[test]
fn lower_ranked_values_return_when_uncovered() {
    let text = "union cli: interface eth0\n  description uplink";
    let leased = with_layer(&empty(), LayerKey::LEASE, "update native:/system/hostname \"leased\"");
    let configured = leased.edit(&edit("union cli: system hostname mine")).unwrap();
    check_lines(&lines_effective(&configured), "/system/hostname", &["=mine"]);
    let back = configured.edit(&edit(text)).unwrap();
    check_lines(&lines_effective(&back), "/system/hostname", &["=leased"]);
    let booted =
        with_layer(&configured, LayerKey::BOOT_NATIVE, "update native:/system/hostname \"boots\"");
    for (off, want) in [(LayerSet::NONE, "=boots"), (LayerSet::of(LayerKey::BOOT_NATIVE), "=mine")]
    {
        let mut layers = booted.layers().clone();
        layers.off = off;
        let switched = Configuration::new(models().clone(), layers);
        check_lines(&lines_effective(&switched), "/system/hostname", &[want]);
    }
}

// proves 2.1, 2.2, 2.3, 2.4, 2.12
#[test]
fn invalid_union_replace_combinations_are_refused() {
    let text = "union cli: system hostname a";
    let openconfig = "union /system/config/motd-banner \"x\"";
    let native = "union native:/system/login-banner \"x\"";
    for (request, word) in [
        (format!("{openconfig}; update /system/config/hostname \"b\""), "cannot be combined"),
        (format!("{openconfig}; replace / {{}}"), "cannot be combined"),
        (format!("{openconfig}; delete /"), "cannot be combined"),
        (format!("{text}; {text}"), "only one CLI text"),
        (format!("{text}; {native}; {openconfig}"), "CLI text and native paths"),
        (format!("{native}; {text}"), "CLI text and native paths"),
        (
            format!("{openconfig}; {}", openconfig.replace('x', "y")),
            "the request sets this leaf to",
        ),
        ("union /interfaces/interface[name=eth0] {}".to_owned(), "use a delete"),
        ("union cli: hostnam x".to_owned(), "line 1"),
        (
            "replace cli: system hostname a; replace cli: system hostname b".to_owned(),
            "only one replace by CLI text",
        ),
        ("union cli: network-instance red".to_owned(), "not supported"),
        ("union /interfaces/interface[name=*]/config/mtu 1500".to_owned(), "wildcards"),
        ("union /system/state/hostname \"x\"".to_owned(), "state"),
        (format!("{openconfig}; union /nonsense 1"), "no such node"),
    ] {
        let start = after(&["update /system/config/hostname \"kept\""]);
        let errors = refused_after(&start, &request);
        assert!(errors.iter().any(|error| error.contains(word)), "{request}: {errors:?}");
    }
}

/// Every invalid entry is reported, each with its own path.
// proves 2.13
#[test]
fn all_invalid_union_entries_are_reported() {
    let errors = empty()
        .edit(&edit("union /nonsense 1; union /system/config/hostname 7; union cli: mtu\nbogus"))
        .unwrap_err();
    let places: Vec<EditOperation> = errors.iter().map(|error| error.operation).collect();
    let union = EditOperation::UnionReplace;
    assert_eq!(places, [union(0), union(1), union(2), union(2)], "{errors:?}");
    assert_eq!(errors.first().cause, EditCause::UnknownPath);
}

/// Text as a plain request: all of the layer, or more of it.
// proves 2.51, 2.52, 2.56, 2.57
#[test]
fn plain_text_writes_the_native_layer_alone() {
    let start = then(&factory(PORTS_DISABLED), &format!("update {ETH0}/config/description \"oc\""));
    let start = then(&start, "update cli: interface eth1\n  mtu 1400\nsystem motd-banner hi");
    let replaced = then(
        &start,
        "replace cli: system login-banner hello; update cli: interface eth1\n  mtu 1300",
    );
    check_lines(
        &lines_effective(&replaced),
        "/",
        &[
            "system/hostname=factory factory",
            "system/login-banner=hello",
            "interfaces/interface[name=eth0]/type=physical default",
            "interfaces/interface[name=eth0]/enabled=true oc-default",
            "interfaces/interface[name=eth0]/description=oc",
            "interfaces/interface[name=eth1]/type=physical default",
            "interfaces/interface[name=eth1]/enabled=false factory",
            "interfaces/interface[name=eth1]/mtu=1300",
        ],
    );
    let mixed = "replace /network-instances {\"network-instance\":[{\"name\":\"DEFAULT\",\"config\":{\"name\":\"DEFAULT\"}}]}; \
                 update cli: interface br0\n  type bridge";
    check_effective(&[mixed], "/interfaces/interface[name=br0]/type", &["=bridge"]);
}

/// 5.3.2: the annotation of the root belongs to the OpenConfig layer, and goes with it.
#[test]
fn the_annotation_goes_with_the_openconfig_layer() {
    let note = "{\"@\":{\"openconfig-metadata:protobuf-metadata\":\"AAAA\"}}";
    let annotation = |request: &str| {
        let end = after(&[&format!("update / {note}"), request]);
        end.layers().annotation.clone()
    };
    assert_eq!(annotation("union cli: system hostname a"), None);
    assert_eq!(annotation(&format!("union / {note}")).as_deref(), Some("AAAA"));
    assert_eq!(annotation("union native:/system/hostname \"a\"").as_deref(), Some("AAAA"));
    assert_eq!(annotation("union native:/system/hostname \"a\"; union / {}"), None);
}
