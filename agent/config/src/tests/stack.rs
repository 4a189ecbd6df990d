//! Layers on top of each other: UNION.md section 6, and its preliminaries.

use super::set::json_of;
use super::*;
use crate::tree::{Branch, Child, Leaf};

pub(super) const ETH0: &str = "/interfaces/interface[name=eth0]";

/// A box whose factory configuration is set by this native request.
pub(super) fn factory(request: &str) -> Configuration {
    let edited = after(&[request]);
    let mut layers = edited.layers().clone();
    let tree = layers.tree_mut(LayerKey::CLIENT_NATIVE);
    *tree = Tree::from_root(Arc::new(marked(tree.root(), LeafMark::Factory)));
    let factory = tree.clone();
    Configuration::new(models().clone(), layers).with_factory(factory)
}

/// Adds another layer, filled by a native request.
pub(super) fn with_layer(
    configuration: &Configuration,
    layer: LayerKey,
    request: &str,
) -> Configuration {
    let from = LayerKey::client(layer.origin);
    let mut layers = configuration.layers().clone();
    *layers.tree_mut(layer) = after(&[request]).layers().tree(from).clone();
    Configuration::new(models().clone(), layers).with_factory(configuration.factory().clone())
}

pub(super) fn marked(branch: &Branch<LeafMark>, mark: LeafMark) -> Branch<LeafMark> {
    let mut copy = Branch::default();
    copy.given = branch.given;
    for (node, child) in branch.children() {
        let child = match child {
            Child::Leaf(leaf) => Child::Leaf(Leaf::new(leaf.value.clone(), mark)),
            Child::Container(branch) => Child::Container(Arc::new(marked(branch, mark))),
            Child::List(list) => Child::List(
                list.iter()
                    .map(|(keys, entry)| (keys.clone(), Arc::new(marked(entry, mark))))
                    .collect(),
            ),
        };
        copy.put(*node, child);
    }
    copy
}

pub(super) fn owners(configuration: &Configuration, path: &str) -> Vec<&'static str> {
    let at = models().native.resolve_write(&path.parse().unwrap()).unwrap();
    let leaf = configuration.effective().find_leaf(&at).unwrap();
    leaf.meta.owners.iter().map(LayerKey::name).collect()
}

#[track_caller]
pub(super) fn check_lines(found: &[String], prefix: &str, want: &[&str]) {
    assert_eq!(below(found, prefix), want);
}

pub(super) const PORTS_DISABLED: &str = "replace native:/interfaces {\"interface\":[\
                    {\"name\":\"eth0\",\"enabled\":false},{\"name\":\"eth1\",\"enabled\":false}]}; \
                    update native:/system/hostname \"factory\"";

/// Case 1, as far as plain requests go: ports that are left out are as they left the factory.
// proves 1.89
#[test]
fn an_openconfig_root_replace_takes_the_factory_leaves_it_names() {
    let new = then(
        &factory(PORTS_DISABLED),
        "replace / {\"interfaces\":{\"interface\":[{\"name\":\"eth1\",\"config\":{\"name\":\"eth1\",\"description\":\"d\"}}]}}",
    );
    check_lines(
        &lines_effective(&new),
        "/",
        &[
            "interfaces/interface[name=eth0]/type=physical default",
            "interfaces/interface[name=eth0]/enabled=false factory",
            "interfaces/interface[name=eth1]/type=physical default",
            "interfaces/interface[name=eth1]/enabled=true oc-default",
            "interfaces/interface[name=eth1]/description=d",
        ],
    );
}

/// Case 2: what Get shows, sent back, changes nothing.
// proves 1.60
#[test]
fn get_then_replace_is_a_no_op() {
    let boxes = [
        factory(PORTS_DISABLED),
        then(&factory(PORTS_DISABLED), &format!("update {ETH0}/config/mtu 1500")),
        then(&factory(PORTS_DISABLED), "update /system/config/hostname \"mine\""),
        then(&factory(PORTS_DISABLED), "update native:/interfaces/interface[name=eth1]/mtu 1400"),
        then(
            &factory(PORTS_DISABLED),
            &format!("replace {ETH0} {{\"config\":{{\"name\":\"eth0\"}}}}"),
        ),
        after(&[
            "update / {\"interfaces\":{\"interface\":[{\"name\":\"eth1\",\"config\":{\"name\":\"eth1\",\
                 \"type\":\"iana-if-type:ethernetCsmacd\"},\"subinterfaces\":{\"subinterface\":[{\"index\":0,\
                 \"config\":{\"index\":0},\"ipv4\":{\"addresses\":{\"address\":[{\"ip\":\"10.0.0.1\",\
                 \"config\":{\"ip\":\"10.0.0.1\",\"prefix-length\":24}}]}}}]}}]}}",
        ]),
        after(&[
            "update native:/interfaces/interface[name=br0] {\"type\":\"bridge\",\"mtu\":1400}",
        ]),
    ];
    for (number, start) in boxes.iter().enumerate() {
        for origin in ["", "native:"] {
            let text = json_of(start, &format!("{origin}/"));
            let new = then(start, &format!("replace {origin}/ {text}"));
            assert_eq!(new.layers(), start.layers(), "box {number}, {origin}: {text}");
            assert_eq!(lines_effective(&new), lines_effective(start));
        }
    }
}

#[test]
fn a_unit_sent_back_with_a_difference_is_explicit_in_all_of_it() {
    let start = factory(PORTS_DISABLED);
    let text = json_of(&start, "/").replacen("false", "true", 1);
    let new = then(&start, &format!("replace / {text}"));
    check_lines(
        &lines_view(&new, Origin::OpenConfig),
        "/",
        &[
            "interfaces/interface[name=eth0]/config/enabled=true",
            "interfaces/interface[name=eth1]/config/enabled=false factory",
            "system/config/hostname=factory factory",
        ],
    );
    check_lines(&lines_view(&new, Origin::Native), "/interfaces/interface[name=eth0]", &[]);
}

/// Case 3.
#[test]
fn equal_values_of_both_origins_merge_and_different_ones_conflict() {
    let native = "update native:/interfaces/interface[name=eth0]/mtu 1400";
    let same = format!("update {ETH0}/config/mtu 1414");
    let both = after(&[native, &same]);
    let mtu = "/interfaces/interface[name=eth0]/mtu";
    assert_eq!(owners(&both, mtu), ["client native", "client openconfig"]);
    assert!(changed_objects(&after(&[native]), &both).is_empty(), "no object changes");
    check_refused(
        &[native, &format!("update {ETH0}/config/mtu 1500")],
        &[
            "cannot update `/interfaces/interface[name=eth0]/config/mtu`: `/interfaces/interface[name=eth0]/mtu` is \
             `1400` by client native (`interface eth0 mtu 1400`) and `/interfaces/interface[name=eth0]/config/mtu` is \
             `1500` by client openconfig",
        ],
    );
    check_refused(
        &[&same, "update native:/interfaces/interface[name=eth0]/mtu 1500"],
        &[
            "cannot update `/interfaces/interface[name=eth0]/mtu`: `/interfaces/interface[name=eth0]/mtu` is \
             `1500` by client native and `/interfaces/interface[name=eth0]/config/mtu` is `1414` by client openconfig",
        ],
    );
    let without = then(&both, &format!("delete {ETH0}/config/mtu"));
    assert_eq!(owners(&without, mtu), ["client native"]);
    check_refused(
        &[&format!("{same}; update native:/interfaces/interface[name=eth0]/mtu 1500")],
        &[
            "cannot update `/interfaces/interface[name=eth0]/mtu`: `/interfaces/interface[name=eth0]/mtu` is \
             `1500` by client native and `/interfaces/interface[name=eth0]/config/mtu` is `1414` by client openconfig",
        ],
    );
}

/// A default that was sent back stays a default, and still conflicts with the other origin.
#[test]
fn defaults_sent_back_conflict_with_the_other_origin() {
    let start = after(&[&format!("update {ETH0}/config/description \"d\"")]);
    let document = json_of(&start, "/");
    assert!(document.contains("\"enabled\":true"), "{document}");
    let shut = "update native:/interfaces/interface[name=eth0]/enabled false";
    let errors = start.edit(&edit(&format!("replace / {document}; {shut}"))).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "cannot replace `/interfaces/interface[name=eth0]/config/enabled`: \
         `/interfaces/interface[name=eth0]/enabled` is `false` by client native and \
         `/interfaces/interface[name=eth0]/config/enabled` is `true` by client openconfig"
    );
    then(&start, shut);
    then(&start, &format!("replace / {document}; {}", shut.replace("false", "true")));
}

/// A veth is an Ethernet port to OpenConfig, which has no word for it.
#[test]
fn native_link_type_agrees_with_its_openconfig_identity() {
    let veth = "update native:/interfaces/interface[name=eth0] {\"type\":\"veth\",\"veth\":{\"peer\":\"p0\"}}";
    let call = |identity: &str| format!("update {ETH0}/config/type \"iana-if-type:{identity}\"");
    check_effective(&[veth, &call("ethernetCsmacd")], &format!("{ETH0}/type"), &["=veth"]);
    assert_eq!(refused(&[veth, &call("softwareLoopback")]).len(), 1);
    assert_eq!(refused(&[&call("propVirtual")]).len(), 1, "unsupported");
}

/// Case 4, as far as plain requests go.
#[test]
fn an_address_moves_between_interfaces_in_one_request() {
    let at = |port: &str| {
        format!(
            "/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv4/addresses"
        )
    };
    let address = "{\"address\":[{\"ip\":\"10.0.0.1\",\"config\":{\"ip\":\"10.0.0.1\",\"prefix-length\":24}}]}";
    check_effective(
        &[
            &format!("update {} {address}", at("eth1")),
            &format!("delete {}; update {} {address}", at("eth1"), at("eth2")),
        ],
        "/interfaces/interface",
        &[
            "[name=eth2]/type=physical default",
            "[name=eth2]/enabled=true oc-default",
            "[name=eth2]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
        ],
    );
}

/// Case 5, as far as plain requests go.
#[test]
fn a_native_only_knob_survives_the_openconfig_entry() {
    let knob = "update native:/interfaces/interface[name=eth0]/master \"br0\"";
    check_effective(
        &[
            knob,
            &format!("update {ETH0}/config/mtu 1500"),
            &format!("replace {ETH0} {{\"config\":{{\"mtu\":1600}}}}"),
        ],
        ETH0,
        &["/type=physical default", "/enabled=true oc-default", "/mtu=1586", "/master=br0"],
    );
    check_effective(
        &[knob, &format!("update {ETH0}/config/mtu 1500"), &format!("delete {ETH0}")],
        ETH0,
        &["/type=physical default", "/enabled=true default", "/master=br0"],
    );
}

#[test]
fn entries_made_incomplete_by_another_origin_stay_pending() {
    let address = format!(
        "update {ETH0}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length 24"
    );
    let entry = "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1] {}";
    assert_eq!(refused(&[entry]).len(), 1, "incomplete by its own doing");
    let both = after(&[&address, entry]);
    let left = then(&both, &format!("delete {ETH0}"));
    check_lines(
        &lines_effective(&left),
        ETH0,
        &["/type=physical default", "/enabled=true default"],
    );
    let pending = changed_objects(&both, &left).into_iter().filter_map(|it| it.new).count();
    assert_eq!(pending, 1, "the address stays, without its prefix length");
}

#[test]
fn an_entry_that_needs_one_of_its_leaves_is_refused_without() {
    const ROUTE: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix=10.0.0.0/8]";
    const STATIC: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes/static[prefix=10.0.0.0/8]";
    let hop = format!("{STATIC}/next-hops/next-hop[index=0]");
    for request in [
        format!("update {hop}/config/metric 5"),
        format!("update native:{ROUTE}/next-hop[index=0] {{}}"),
        format!("update native:{ROUTE}/next-hop[index=0]/metric 5"),
    ] {
        let message = refused(&[&request]).join(" ");
        assert!(
            message.contains("next-hop[index=0]") && message.contains("`next-hop` or `interface`"),
            "{message}"
        );
    }
    // One origin names the way, the other its metric: what is left when the way goes waits.
    let both = after(&[
        &format!("update {hop}/config/next-hop \"192.0.2.2\""),
        &format!("update native:{ROUTE}/next-hop[index=0]/metric 5"),
    ]);
    then(&both, &format!("delete {hop}"));
    after(&[&format!("update {hop}/interface-ref/config/interface \"eth0\"")]);
}

/// Case 6: the effect on readers and the union; refusals are tested elsewhere.
#[test]
fn boot_wins_over_clients_and_hides_nothing_of_theirs() {
    let client = after(&["update /system/config/hostname \"mine\""]);
    let booted =
        with_layer(&client, LayerKey::BOOT_NATIVE, "update native:/system/hostname \"boots\"");
    check_lines(&lines_effective(&booted), "/system/hostname", &["=boots"]);
    check_lines(&lines_view(&booted, Origin::OpenConfig), "/system/config/hostname", &["=mine"]);
    assert_eq!(owners(&booted, "/system/hostname"), ["boot native"]);
    let mut layers = booted.layers().clone();
    layers.off = LayerSet::of(LayerKey::BOOT_NATIVE);
    let off = Configuration::new(models().clone(), layers.clone());
    check_lines(&lines_effective(&off), "/system/hostname", &["=mine"]);
    let dropped = then(&off, "delete /system");
    check_lines(&lines_effective(&dropped), "/system/hostname", &["=boots"]);
    let absent = {
        let mut layers = booted.layers().clone();
        let tree = layers.tree_mut(LayerKey::BOOT_NATIVE);
        *tree = Tree::from_root(Arc::new(marked(tree.root(), LeafMark::Absent)));
        Configuration::new(models().clone(), layers)
    };
    check_lines(&lines_effective(&absent), "/system/hostname", &[]);
}

#[test]
fn the_openconfig_default_of_a_boot_entry_outranks_the_client() {
    let client = after(&[&format!("update {ETH0}/config/enabled false")]);
    let booted =
        with_layer(&client, LayerKey::BOOT_OPENCONFIG, &format!("update {ETH0}/config/mtu 1500"));
    check_lines(&lines_effective(&booted), &format!("{ETH0}/enabled"), &["=true oc-default"]);
}

// proves kv.X13
#[test]
fn leases_rank_below_requests_and_above_the_factory() {
    let leased = |start: &Configuration| {
        with_layer(start, LayerKey::LEASE, "update native:/system/hostname \"leased\"")
    };
    check_lines(
        &lines_effective(&leased(&factory(PORTS_DISABLED))),
        "/system/hostname",
        &["=leased"],
    );
    let mine = then(&factory(PORTS_DISABLED), "update native:/system/hostname \"mine\"");
    check_lines(&lines_effective(&leased(&mine)), "/system/hostname", &["=mine"]);
    let given_up = then(&leased(&mine), "delete native:/system/hostname");
    check_lines(&lines_effective(&given_up), "/system/hostname", &["=leased"]);
}

/// The lease layer holds exactly the DHCP leases, ranking above the factory and below all others.
#[test]
fn a_lease_is_a_port_that_is_up_with_addresses_and_routes() {
    let port = |addresses: &[&str], routes: &[(&str, Option<&str>)]| LeasedPort {
        name: "eth0".into(),
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        routes: (routes.iter())
            .map(|(prefix, gateway)| LeasedRoute {
                prefix: prefix.parse().unwrap(),
                gateway: gateway.map(|it| it.parse().unwrap()),
            })
            .collect(),
    };
    let layer = |configuration: &Configuration| -> Vec<String> {
        let tree = configuration.layers().tree(LayerKey::LEASE);
        lines(&models().native, tree, |_| "")
    };
    let hop = |prefix: &str| {
        format!(
            "/network-instances/network-instance[name=DEFAULT]/static[name=lease]/\
             route[prefix={prefix}]/next-hop[index=0]"
        )
    };
    let shut = factory(PORTS_DISABLED);
    let asking = shut.leased(&[port(&[], &[])]).unwrap();
    assert_eq!(layer(&asking), [format!("{ETH0}/enabled=true")]);
    check_lines(&lines_effective(&asking), &format!("{ETH0}/enabled"), &["=true"]);
    let routes = [
        ("0.0.0.0/0", Some("192.0.2.254")),
        ("198.51.100.0/24", None),
        ("0.0.0.0/0", Some("192.0.2.253")),
    ];
    let leased = asking.leased(&[port(&["192.0.2.9/24", "2001:db8::9/128"], &routes)]).unwrap();
    assert_eq!(
        layer(&leased),
        [
            format!("{ETH0}/enabled=true"),
            format!("{ETH0}/ipv4/address[ip=192.0.2.9]/prefix-length=24"),
            format!("{ETH0}/ipv6/address[ip=2001:db8::9]/prefix-length=128"),
            format!("{}/next-hop=192.0.2.254", hop("0.0.0.0/0")),
            format!("{}/interface=eth0", hop("0.0.0.0/0")),
            format!("{}/interface=eth0", hop("198.51.100.0/24")),
        ]
    );
    let own = then(&leased, "update native:/interfaces/interface[name=eth0]/enabled false");
    check_lines(&lines_effective(&own), &format!("{ETH0}/enabled"), &["=false"]);
    let ended = leased.leased(&[]).unwrap();
    assert!(layer(&ended).is_empty() && ended.effective() == shut.effective());
    let misnamed = LeasedPort { name: "a/b".into(), addresses: vec![], routes: vec![] };
    let refused = shut.leased(&[misnamed]).unwrap_err();
    assert!(refused.to_string().contains("cannot lease `/interfaces/interface[name=a/b]`"));
}

#[test]
fn factory_new_until_the_first_configuration() {
    let fresh = factory(PORTS_DISABLED);
    let leased = LeasedPort {
        name: "eth0".into(),
        addresses: vec!["192.0.2.9/24".parse().unwrap()],
        routes: vec![],
    };
    assert!(fresh.is_factory_new() && empty().is_factory_new());
    assert!(fresh.leased(&[leased]).unwrap().is_factory_new());
    for request in [
        "update /system/config/hostname \"mine\"",
        "update native:/system/hostname \"mine\"",
        "delete native:/system/hostname",
    ] {
        let configured = then(&fresh, request);
        assert!(!configured.is_factory_new(), "{request}");
        assert!(configured.factory_reset().is_factory_new(), "{request}");
    }
    let booted = fresh.booted(Some(&Arc::new(BootConfiguration::default()))).unwrap();
    assert!(!booted.is_factory_new(), "its owner has spoken, if only to say nothing");
}

/// Case 8.
#[test]
fn openconfig_defaults_rank_below_explicit_and_above_factory_values() {
    let entry = format!("update {ETH0}/config/description \"d\"");
    let enabled = format!("{ETH0}/enabled");
    let shut = factory("update native:/interfaces/interface[name=eth0]/enabled false");
    let with_entry = then(&shut, &entry);
    check_lines(&lines_effective(&with_entry), &enabled, &["=true oc-default"]);
    let path = format!("{ETH0}/config/enabled");
    check_lines(&lines_view(&with_entry, Origin::OpenConfig), &path, &["=true default"]);

    let request = "update native:/interfaces/interface[name=eth0]/enabled false";
    let both = then(&with_entry, request);
    check_lines(&lines_effective(&both), &enabled, &["=false"]);
    check_lines(&lines_view(&both, Origin::OpenConfig), &path, &[]);
    let deleted = then(&both, &format!("delete {ETH0}"));
    check_lines(&lines_effective(&deleted), &enabled, &["=false"]);

    let untouched = then(&with_entry, "update /system/config/hostname \"a\"");
    check_lines(&lines_view(&untouched, Origin::OpenConfig), &path, &["=true default"]);
    let cleared = then(&with_entry, &format!("delete {ETH0}"));
    let lines = ["/type=physical default", "/enabled=false factory"];
    check_lines(&lines_effective(&cleared), ETH0, &lines);
}

#[test]
fn a_native_default_is_in_use_for_the_kind_of_link_it_is_about() {
    check_effective(
        &["update native:/interfaces/interface[name=x] {\"type\":\"vxlan\",\"vxlan\":{\"vni\":7}}"],
        "/interfaces/interface[name=x]",
        &[
            "/type=vxlan",
            "/enabled=true default",
            "/vxlan/vni=7",
            "/vxlan/port=4789 default",
            "/vxlan/learning=true default",
        ],
    );
    check(
        &["update native:/interfaces/interface[name=x]/mtu 1400"],
        "native:/interfaces/interface[name=x]",
        &["/type=physical default", "/enabled=true default", "/mtu=1400"],
    );
}

#[test]
fn a_link_needs_what_its_kind_cannot_do_without() {
    let eth0 = "/interfaces/interface[name=eth0]";
    for (kind, leaf) in [("veth", "veth/peer"), ("vxlan", "vxlan/vni")] {
        check_refused(
            &[&format!("update native:{eth0}/type \"{kind}\"")],
            &[&format!("cannot update `{eth0}/{leaf}`: a mandatory leaf is not set")],
        );
    }
    let other = format!("update native:{eth0}/type \"bridge\"");
    check_effective(&[&other], &format!("{eth0}/type"), &["=bridge"]);
}

#[test]
fn views_do_not_translate() {
    let native = "update native:/interfaces/interface[name=eth0]/mtu 1400";
    check(&[native], "/", &[]);
    check(&[&format!("update {ETH0}/config/mtu 1414")], "native:/", &[]);
}
