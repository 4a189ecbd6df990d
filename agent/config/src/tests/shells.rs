//! Shells, case 11 of UNION.md section 6: entries of client OpenConfig with nothing but keys.

use super::stack::{PORTS_DISABLED, check_lines, factory, with_layer};
use super::union::check_no_op;
use super::*;

const LO: &str = "/interfaces/interface[name=lo]";
const ETH0: &str = "/interfaces/interface[name=eth0]";
const USERS: &str = "/system/aaa/authentication/users";
const STATIC: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes";

/// Interfaces as a controller reads them and sends them back: most have nothing but their keys.
const INTERFACES: &str = r#"{"interface":[
    {"name":"lo","config":{"name":"lo"},"subinterfaces":{"subinterface":[{"index":0,"config":{"index":0},
        "ipv4":{"addresses":{"address":[{"ip":"127.0.0.1","config":{"ip":"127.0.0.1"}}]}},
        "ipv6":{"addresses":{"address":[{"ip":"::1"}]}}}]}},
    {"name":"eth0","config":{"name":"eth0","mtu":1514},"subinterfaces":{"subinterface":[{"index":0,
        "ipv4":{"addresses":{"address":[{"ip":"10.0.0.1","config":{"ip":"10.0.0.1","prefix-length":24}},
                                        {"ip":"10.0.0.9","config":{"ip":"10.0.0.9"}}]},
                "neighbors":{"neighbor":[{"ip":"10.0.0.7","config":{"ip":"10.0.0.7"}}]}},
        "ipv6":{"addresses":{"address":[{"ip":"fe80::1","config":{"ip":"fe80::1"}}]}}}]}},
    {"name":"eth1"}]}"#;
const INSTANCES: &str = r#"{"network-instance":[{"name":"DEFAULT","config":{"name":"DEFAULT"},"protocols":{"protocol":[
    {"identifier":"STATIC","name":"s","config":{"identifier":"STATIC","name":"s"},"static-routes":{"static":[
        {"prefix":"10.9.0.0/16","config":{"prefix":"10.9.0.0/16"},
         "next-hops":{"next-hop":[{"index":"0","config":{"index":"0"}}]}}]}}]}}]}"#;
const SYSTEM: &str = r#"{"aaa":{"authentication":{"users":{"user":[
    {"username":"ada","config":{"username":"ada"}}]}}}}"#;
/// Entries of these documents that are complete with their keys, and a default that one of them has.
const COMPLETE: [&str; 3] = [
    "/system/user[username=ada]",
    "/network-instances/network-instance[name=DEFAULT]",
    "/network-instances/network-instance[name=DEFAULT]/static[name=s]",
];
const DEFAULT_OF_INSTANCE: &str =
    "/network-instances/network-instance[name=DEFAULT]/type=default-instance default";
/// The effective configuration of these documents, of all other entries.
const EFFECTIVE: [&str; 4] = [
    "interfaces/interface[name=eth0]/type=physical default",
    "interfaces/interface[name=eth0]/enabled=true oc-default",
    "interfaces/interface[name=eth0]/mtu=1500",
    "interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length=24",
];

fn document() -> String {
    format!(r#"{{"interfaces":{INTERFACES},"network-instances":{INSTANCES},"system":{SYSTEM}}}"#)
}

/// Every list of the models that can have shells, sent as root, as containers and as items, each twice.
#[test]
fn shells_sent_back_change_nothing() {
    let configured = after(&[
        &format!("update {ETH0}/config/mtu 1514"),
        &format!("update {} {}", address("10.0.0.1"), r#"{"config":{"prefix-length":24}}"#),
    ]);
    for request in [
        format!("replace / {}", document()),
        format!("union / {}", document()),
        format!("update / {}", document()),
        format!("replace /interfaces {INTERFACES}; replace /network-instances {INSTANCES}"),
        format!("union /interfaces {INTERFACES}; union /network-instances {INSTANCES}"),
        format!("union / {}; union cli: ! nothing", document()),
        format!("union /interfaces {INTERFACES}; union native:/system {{}}"),
        format!(r#"replace {LO} {{"name":"lo"}}; update {} {{}}"#, address("10.0.0.9")),
        format!(r#"replace {USERS}/user[username=ada] {{"config":{{"username":"ada"}}}}"#),
        format!(r#"replace {STATIC}/static[prefix=10.0.0.0\/8] {{"prefix":"10.0.0.0/8"}}"#),
    ] {
        let once = then(&configured, &request);
        let mut lines = lines_effective(&once);
        lines.retain(|line| line != DEFAULT_OF_INSTANCE);
        check_lines(&lines, "/", &EFFECTIVE);
        let changed = changed_objects(&configured, &once).into_iter();
        let changed = changed.map(|it| it.path.to_path(&models().native).to_string());
        let others: Vec<_> = changed.filter(|path| !COMPLETE.contains(&path.as_str())).collect();
        assert!(others.is_empty(), "{request}: {others:?}");
        let again = then(&once, &request);
        assert_eq!(again.layers(), once.layers(), "{request}");
        assert!(changed_objects(&once, &again).is_empty(), "{request}");
        if request.starts_with("union") {
            check_no_op(&once, &request);
        }
        let json = super::set::json_of(&once, "/");
        let sent_back = then(&once, &format!("replace / {json}"));
        assert_eq!(sent_back.layers(), once.layers(), "{json}");
    }
}

/// A user without a role is an account, and protocols have state, in whatever form their keys come; so has what they are in.
#[test]
fn users_instances_and_protocols_are_complete_with_their_keys() {
    let empty = after(&[]);
    let names = |configuration: &Configuration| -> Vec<String> {
        let changed = changed_objects(&empty, configuration).into_iter();
        changed.map(|it| it.path.to_path(&models().native).to_string()).collect()
    };
    let user = format!(r#"update {USERS}/user[username=ada]/config/username "ada""#);
    let user = after(&[&user]);
    assert_eq!(names(&user), COMPLETE[..1]);
    assert_eq!(names(&after(&["update cli: system user ada"])), COMPLETE[..1]);
    assert!(names(&then(&user, &format!("delete {USERS}"))).is_empty());
    let protocol = STATIC.trim_end_matches("/static-routes");
    let config = r#"{"identifier":"STATIC","name":"s"}"#;
    let protocol = after(&[&format!("update {protocol}/config {config}")]);
    assert_eq!(names(&protocol), COMPLETE[1..]);
    assert!(protocol.pending_entries().is_empty());
}

/// Get CONFIG shows the keys, without defaults.
#[test]
fn get_shows_the_keys_of_shells() {
    let configuration = after(&[&format!("replace / {}", document())]);
    let view = configuration.config_view(Origin::OpenConfig);
    let schema = models().schema(Origin::OpenConfig);
    for path in [
        LO.to_owned(),
        format!(
            "{LO}/subinterfaces/subinterface[index=0]/ipv6/addresses/address[ip=::1]/config/ip"
        ),
        format!("{}/config/ip", address("10.0.0.9")),
        format!("{USERS}/user[username=ada]/config/username"),
        format!(r"{STATIC}/static[prefix=10.9.0.0\/16]/next-hops/next-hop[index=0]/config/index"),
    ] {
        let path = schema.resolve_write(&path.parse().unwrap()).unwrap();
        assert!(view.get(&path).is_some(), "{}", path.to_path(schema));
    }
    check_lines(&lines_view(&configuration, Origin::OpenConfig), LO, &[]);
}

fn address(ip: &str) -> String {
    format!("{ETH0}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip={ip}]")
}

/// A leaf makes an entry of a shell, with all checks; without it, what is ours goes.
#[test]
fn a_shell_that_gets_a_leaf_is_an_entry() {
    let shell = format!("update {} {{}}", address("10.0.0.9"));
    let leaf = format!("update {}/config/prefix-length 24", address("10.0.0.9"));
    let delete = format!("delete {}/config/prefix-length", address("10.0.0.9"));
    let with_shell = after(&[&shell]);
    check_lines(&lines_effective(&with_shell), "/", &[]);
    let entry = then(&with_shell, &leaf);
    check_lines(
        &lines_effective(&entry),
        "/interfaces/interface[name=eth0]",
        &[
            "/type=physical default",
            "/enabled=true oc-default",
            "/ipv4/address[ip=10.0.0.9]/prefix-length=24",
        ],
    );
    let left = then(&entry, &delete);
    check_lines(&lines_effective(&left), "/", &[]);
    assert_eq!(changed_objects(&entry, &left).iter().filter(|it| it.new.is_none()).count(), 2);
    // So it is by way of the other origin.
    let native = "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.9]";
    let both = then(&with_shell, &format!("update native:{native}/prefix-length 24"));
    assert_eq!(super::stack::owners(&both, &format!("{native}/prefix-length")), ["client native"]);
    check_lines(
        &lines_effective(&both),
        "/interfaces/interface[name=eth0]/enabled",
        &["=true default"],
    );
    let left = then(&both, &format!("delete native:{native}"));
    check_lines(&lines_effective(&left), "/", &[]);
    // An entry with a leaf that lacks another one is refused as usual.
    let hop = format!(r"{STATIC}/static[prefix=10.9.0.0\/16]/next-hops/next-hop[index=0]");
    let metric = format!("update {hop}/config/metric 5");
    assert_eq!(refused(&[&format!("update {hop} {{}}"), &metric]).len(), 1);
}

/// A leaf of an interface in client native brings the defaults of the OpenConfig entry into use, shell or not.
#[test]
fn a_leaf_by_the_other_origin_makes_an_entry_of_a_shell() {
    let shell = format!("update {ETH0}/config/name \"eth0\"");
    let enabled = "/interfaces/interface[name=eth0]/enabled";
    let both = after(&[&shell, "update native:/interfaces/interface[name=eth0]/mtu 1400"]);
    check_lines(&lines_effective(&both), enabled, &["=true oc-default"]);
    let left = then(&both, "delete native:/interfaces/interface[name=eth0]/mtu");
    check_lines(&lines_effective(&left), enabled, &[]);
}

/// A port that is sent as a shell is as it left the factory, and adopts nothing.
#[test]
fn a_shell_of_a_port_is_no_port() {
    let shut = ["/type=physical default", "/enabled=false factory"];
    let port = "/interfaces/interface[name=eth0]";
    for requests in [
        vec![format!("update {ETH0}/config/name \"eth0\"")],
        vec![format!(r#"replace {ETH0} {{"name":"eth0"}}"#)],
        vec![r#"replace / {"interfaces":{"interface":[{"name":"eth0"}]}}"#.to_owned()],
        vec![
            format!("update {ETH0}/config/mtu 1514"),
            r#"replace /interfaces {"interface":[{"name":"eth0"}]}"#.to_owned(),
        ],
        vec![r#"union / {"interfaces":{"interface":[{"name":"eth0"}]}}"#.to_owned()],
    ] {
        let end =
            requests.iter().fold(factory(PORTS_DISABLED), |start, request| then(&start, request));
        check_lines(&lines_effective(&end), port, &shut);
    }
}

/// A leased address that was read and sent back hides no lease.
#[test]
fn a_shell_leaves_a_lease_alone() {
    let leased =
        "update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.9]/prefix-length 24";
    let start = with_layer(&empty(), LayerKey::LEASE, leased);
    let sent_back = then(&start, &format!("update {} {{}}", address("10.0.0.9")));
    assert!(changed_objects(&start, &sent_back).is_empty());
    let own = then(&sent_back, &format!("update {}/config/prefix-length 16", address("10.0.0.1")));
    assert!(!lines_effective(&own).join(" ").contains("10.0.0.9"), "an address of its own does");
}

/// A shell is not refused for leaves of the interface that boot holds.
#[test]
fn shells_of_boot_entries_are_accepted() {
    let boot = "update native:/interfaces/interface[name=eth0]/mtu 1400";
    let start = with_layer(&empty(), LayerKey::BOOT_NATIVE, boot);
    let sent_back = then(&start, r#"replace / {"interfaces":{"interface":[{"name":"eth0"}]}}"#);
    assert!(changed_objects(&start, &sent_back).is_empty());
}

/// The cost of a change next to many shells, and of a change of many shells, depends on the change alone.
#[test]
fn one_change_among_shells_costs_one_change() {
    let shells: Vec<String> = (0..60)
        .map(|n| format!(r#"{{"ip":"10.0.1.{n}","config":{{"ip":"10.0.1.{n}"}}}}"#))
        .collect();
    let addresses = format!("{ETH0}/subinterfaces/subinterface[index=0]/ipv4/addresses");
    let start = after(&[&format!(r#"update {addresses} {{"address":[{}]}}"#, shells.join(","))]);
    for request in [
        format!("update {}/config/prefix-length 24", address("10.0.1.7")),
        format!("update {} {{}}", address("10.0.2.1")),
        format!("delete {}", address("10.0.1.9")),
    ] {
        let new = then(&start, &request);
        assert_eq!(new.work().entries, 3, "the root, the interface, the address: {request}");
    }
}

/// Each shell with what it waits for, and what another origin left incomplete.
#[test]
fn shells_wait_for_the_leaf_that_is_missing() {
    let keys = |configuration: &Configuration| -> Vec<String> {
        let schema = models().schema(Origin::Native);
        let line = |it: PendingEntry| {
            assert!(it.openconfig.is_some());
            format!("{} {}", it.native.to_path(schema), it.missing.join("|"))
        };
        configuration.pending_entries().into_iter().map(line).collect()
    };
    const INSTANCE: &str = "/network-instances/network-instance[name=DEFAULT]";
    let start = after(&[&format!("replace / {}", document())]);
    assert_eq!(
        keys(&start),
        [
            "/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.9] prefix-length",
            "/interfaces/interface[name=eth0]/ipv4/neighbor[ip=10.0.0.7] link-layer-address",
            "/interfaces/interface[name=eth0]/ipv6/address[ip=fe80::1] prefix-length",
            "/interfaces/interface[name=eth1] ",
            "/interfaces/interface[name=lo] ",
            "/interfaces/interface[name=lo]/ipv4/address[ip=127.0.0.1] prefix-length",
            "/interfaces/interface[name=lo]/ipv6/address[ip=::1] prefix-length",
            &format!(r"{INSTANCE}/static[name=s]/route[prefix=10.9.0.0/16] "),
            &format!(
                r"{INSTANCE}/static[name=s]/route[prefix=10.9.0.0/16]/next-hop[index=0] next-hop|interface"
            ),
        ]
    );
    let leaf = format!("update {}/config/prefix-length 24", address("10.0.0.9"));
    assert!(!keys(&then(&start, &leaf)).join(" ").contains("10.0.0.9"));
    let native = "update native:/interfaces/interface[name=eth9]/ipv4/address[ip=10.0.0.9]";
    let other = leaf.replace("eth0", "eth9");
    let both = after(&[&other, &format!("{native} {{}}")]);
    let left = then(&both, "delete /interfaces");
    assert_eq!(
        keys(&left),
        ["/interfaces/interface[name=eth9]/ipv4/address[ip=10.0.0.9] prefix-length"]
    );
}
