//! union_replace over a real channel and on a real kernel: section 6 of agent/config/UNION.md, and its examples for
//! features that exist.

use std::fs;

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::update_result::Operation;
use holdfast_proto::gnmi::{self, SetRequest, SetResponse, TypedValue, Update, typed_value};
use holdfast_proto::google::rpc;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use prost::Message;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::documents::{STATIC_ROUTES, config_of, ipv4_of, port, route};
use crate::union_cases::tried;

/// A name over the kernel's limit of fifteen bytes.
const TOO_LONG: &str = "interface-name-too-long";

/// An entry with CLI text.
pub(crate) fn cli(text: &str) -> Update {
    let path = gnmi::Path { origin: "holdfast_cli".into(), ..Default::default() };
    let val = Some(TypedValue { value: Some(typed_value::Value::AsciiVal(text.into())) });
    Update { path: Some(path), val, ..Default::default() }
}

pub(crate) fn native(path: &str, value: impl Into<Value>) -> Update {
    update(&format!("holdfast_native:{path}"), value)
}

pub(crate) fn interfaces(entries: Value) -> Update {
    update("/", json!({"openconfig-interfaces:interfaces": {"interface": entries}}))
}

pub(crate) async fn union(
    client: &GnmiClient,
    entries: Vec<Update>,
) -> Result<SetResponse, Status> {
    client.set(SetRequest { union_replace: entries, ..Default::default() }).await
}

pub(crate) async fn config(client: &GnmiClient, origin: &str) -> Value {
    client.read_as(&format!("{origin}:/"), DataType::Config).await.unwrap()
}

/// Example 6.3 of the document, with the entries in either order, and repeated without a write.
// proves 2.6, 2.8, 2.9, 2.24, 2.45
#[tokio::test]
async fn text_and_openconfig_become_one_configuration() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let text = || cli("system hostname myhost\ninterface eth0\n  mtu 1400\n  enabled true");
    let interface = || {
        update(
            "/interfaces/interface[name=eth1]",
            json!({"name": "eth1", "config": {"name": "eth1", "mtu": 1314}}),
        )
    };
    let results = |response: &SetResponse| -> Vec<_> {
        response.response.iter().map(|it| (it.op(), it.path.clone().unwrap().origin)).collect()
    };
    let kernel =
        || (net.link("eth0").mtu, net.link("eth1").mtu, net.link("eth0").up, net.link("eth1").up);

    let answer = union(&client, vec![text(), interface()]).await.unwrap();
    let [first, second] =
        ["holdfast_cli", "openconfig"].map(|it| (Operation::UnionReplace, it.to_owned()));
    assert_eq!(results(&answer), [first.clone(), second.clone()]);
    assert_eq!(kernel(), (1400, 1300, true, true));
    assert_eq!(client.read("/system/state/hostname").await.unwrap(), "myhost");
    let document = config(&client, "openconfig").await;

    let monitor = Monitor::start(&net).await;
    for entries in [vec![text(), interface()], vec![interface(), text()]] {
        union(&client, entries).await.unwrap();
    }
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    assert_eq!(config(&client, "openconfig").await, document);

    union(&client, vec![interface()]).await.unwrap();
    assert_eq!(kernel().0, 1500, "what is left out goes back to what it was");
}

/// Scenarios A and B of the document: an OpenConfig feature with a setting that only the CLI has, and a feature that is
/// configured by the CLI alone.
// proves 2.27, 2.34, 2.35, 2.48
#[tokio::test]
async fn each_part_has_the_defaults_of_its_origin() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let bridge = "interface br0\n  type bridge\n  bridge\n    ageing-time 100\n";
    let ports =
        |mtu: u32| interfaces(json!([{"name": "eth0", "config": {"name": "eth0", "mtu": mtu}}]));

    union(&client, vec![cli(&format!("{bridge}interface eth0\n  master br0")), ports(1414)])
        .await
        .unwrap();
    assert_eq!((net.link("eth0").mtu, net.link("eth0").up), (1400, true), "OpenConfig's default");
    let details = || net.ip("-d link show eth0") + &net.ip("-d link show br0");
    assert!(
        details().contains("master br0") && details().contains("ageing_time 10000"),
        "{}",
        details()
    );
    assert!(
        details().contains("vlan_filtering 0") && details().contains("stp_state 0"),
        "{}",
        details()
    );

    // Added, changed and left out, in both parts.
    union(&client, vec![cli(&format!("{bridge}interface eth1\n  master br0")), ports(1314)])
        .await
        .unwrap();
    assert_eq!((net.link("eth0").mtu, net.link("eth1").mtu), (1300, 1500));
    assert!(
        !net.ip("link show eth0").contains("master")
            && net.ip("link show eth1").contains("master br0")
    );
    union(&client, vec![cli("interface eth1\n  description alone")]).await.unwrap();
    assert!(net.find_link("br0").is_none());
    assert_eq!((net.link("eth0").mtu, net.link("eth1").alias.as_str()), (1500, "alone"));
}

/// Case 4: leaves move from one owner to the other, without a request to the kernel.
// proves 2.50
#[tokio::test]
async fn feature_moves_between_origins_without_kernel_changes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let text = || {
        cli(
            "interface eth0\n  enabled true\n  mtu 1400\n  ipv4\n    address 192.0.2.1\n      prefix-length 24\n\
             network-instance DEFAULT\n  static static\n    route 198.51.100.0/24\n      next-hop 0\n        next-hop 192.0.2.2",
        )
    };
    let paths = || {
        let address = json!({"ip": "192.0.2.1", "prefix-length": 24});
        let hop = json!({"index": "0", "next-hop": "192.0.2.2"});
        let routes = json!({"prefix": "198.51.100.0/24", "next-hop": [hop]});
        native(
            "/",
            json!({
                "holdfast:interfaces": {"interface": [{"name": "eth0", "enabled": true, "mtu": 1400, "ipv4": {"address": [address]}}]},
                "holdfast:network-instances": {"network-instance": [{"name": "DEFAULT", "static": [{"name": "static", "route": [routes]}]}]},
            }),
        )
    };
    let openconfig = || {
        let mut eth0 = port("eth0", &["192.0.2.1/24"]);
        eth0["config"]["mtu"] = json!(1414);
        vec![
            interfaces(json!([eth0])),
            update(STATIC_ROUTES, json!({"static": [route("198.51.100.0/24", "192.0.2.2")]})),
        ]
    };
    union(&client, vec![text()]).await.unwrap();
    let kernel = || (net.link("eth0"), net.addresses("eth0"), net.ip("route show"));
    let before = kernel();
    assert_eq!(
        (net.link("eth0").mtu, net.addresses("eth0")),
        (1400, vec!["192.0.2.1/24".to_owned()])
    );
    assert!(before.2.contains("198.51.100.0/24 via 192.0.2.2"), "{}", before.2);

    let monitor = Monitor::start(&net).await;
    for (entries, owner, other) in [
        (openconfig(), "openconfig", "holdfast_native"),
        (vec![paths()], "holdfast_native", "openconfig"),
        (openconfig(), "openconfig", "holdfast_native"),
        (vec![text()], "holdfast_native", "openconfig"),
    ] {
        tried(&client, entries, kernel).await.unwrap();
        assert!(config(&client, owner).await.to_string().contains("192.0.2.1"), "{owner}");
        assert!(!config(&client, other).await.to_string().contains("192.0.2.1"), "{other}");
    }
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    assert_eq!(kernel(), before);
}

/// Case 4: an address changes its port in one request, by either origin and from one to the other.
// proves 2.28
#[tokio::test]
async fn an_address_moves_between_ports_in_one_union() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let text = |port: &str| {
        cli(&format!("interface {port}\n  ipv4\n    address 192.0.2.1\n      prefix-length 24"))
    };
    let openconfig = |name: &str| interfaces(json!([port(name, &["192.0.2.1/24"])]));
    let kernel = || (net.addresses("eth0"), net.addresses("eth1"));
    for (entry, holder, other) in [
        (text("eth0"), "eth0", "eth1"),
        (text("eth1"), "eth1", "eth0"),
        (openconfig("eth0"), "eth0", "eth1"),
        (openconfig("eth1"), "eth1", "eth0"),
        (text("eth0"), "eth0", "eth1"),
    ] {
        tried(&client, vec![entry], kernel).await.unwrap();
        assert_eq!(
            (net.addresses(holder), net.addresses(other)),
            (vec!["192.0.2.1/24".to_owned()], Vec::new())
        );
    }
}

/// With paths of the native model the running configuration is the base, and a leaf is in one origin.
// proves 2.7, 2.16, 2.19, 2.20, 2.40
#[tokio::test]
async fn native_paths_replace_what_they_name() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client
        .update(&config_of("eth0"), json!({"mtu": 1414, "description": "by openconfig"}))
        .await
        .unwrap();
    client.update(&config_of("eth1"), json!({"mtu": 1314})).await.unwrap();

    let entry = native("/interfaces/interface[name=eth0]", json!({"mtu": 1200}));
    let beside = update(&format!("{}/description", config_of("eth1")), "new");
    union(&client, vec![entry.clone(), beside]).await.unwrap();
    let eth0 = net.link("eth0");
    let eth1 = net.link("eth1");
    assert_eq!((eth0.mtu, eth0.alias.as_str()), (1200, ""), "what the path names is replaced");
    assert_eq!((eth1.mtu, eth1.alias.as_str()), (1300, "new"), "the rest stays");

    for mtu in [1214, 1300] {
        let both = vec![entry.clone(), update(&format!("{}/mtu", config_of("eth0")), mtu)];
        let refusal = union(&client, both).await.unwrap_err();
        check_refusal(
            &refusal,
            Code::InvalidArgument,
            &["/interfaces/interface[name=eth0]/mtu", "config/mtu", "1200", "one origin only"],
        );
    }
    assert_eq!(net.link("eth0"), eth0);
}

/// Case 5: a setting that only the native model has stays when an OpenConfig path clears its entry.
// proves 2.19, 2.48
#[tokio::test]
async fn native_leaf_stays_when_openconfig_replaces_its_entry() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let kernel = || {
        let details = net.ip("link show eth0");
        (net.link("eth0").mtu, net.link("eth0").alias, details.contains("master br0"))
    };
    let openconfig = |config: Value| update("/interfaces/interface[name=eth0]/config", config);
    let bridge = native("/interfaces/interface[name=br0]", json!({"type": "bridge"}));
    let knob = native("/interfaces/interface[name=eth0]/master", "br0");
    let first = openconfig(json!({"mtu": 1414, "description": "first"}));
    for entries in [vec![bridge.clone(), knob.clone(), first.clone()], vec![first, knob, bridge]] {
        tried(&client, entries, kernel).await.unwrap();
        assert_eq!(kernel(), (1400, "first".to_owned(), true));
    }
    let elsewhere = native("/system/motd-banner", "hello");
    let whole = update(
        "/interfaces/interface[name=eth0]",
        json!({"name": "eth0", "config": {"name": "eth0", "mtu": 1314}}),
    );
    tried(&client, vec![elsewhere, whole], kernel).await.unwrap();
    assert_eq!(kernel(), (1300, String::new(), true), "cleared except for the knob");
}

/// Case 3: the origins agree, or the request is refused with both sides, and nothing changes.
// proves 2.29, 2.30, 2.31, 2.36, 2.37, 2.43
#[tokio::test]
async fn conflicts_name_both_sides() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let text = || cli("! the uplink\ninterface eth0\n  mtu 1400\n  description one");
    let mtu = |octets: u32| update(&format!("{}/mtu", config_of("eth0")), octets);
    tried(&client, vec![text(), mtu(1414)], || net.link("eth0").mtu).await.unwrap();
    let before = (
        config(&client, "openconfig").await,
        config(&client, "holdfast_native").await,
        net.link("eth0"),
    );
    assert_eq!(before.2.mtu, 1400);

    let description = update(&format!("{}/description", config_of("eth0")), "two");
    let refusal = union(&client, vec![mtu(1514), description, text()]).await.unwrap_err();
    check_refusal(
        &refusal,
        Code::InvalidArgument,
        &[
            "/interfaces/interface[name=eth0]/config/mtu",
            "line 3: mtu 1400",
            "1514",
            "line 4: description one",
            "two",
        ],
    );
    assert_eq!(details(&refusal).len(), 2, "both leaves: {refusal:?}");

    // The same conflicts in plain requests, with the stored configuration.
    let refusal = client.update(&format!("{}/mtu", config_of("eth0")), 1514).await.unwrap_err();
    check_refusal(
        &refusal,
        Code::InvalidArgument,
        &["interface eth0 mtu 1400", "config/mtu", "1514"],
    );
    let refusal = client
        .update("holdfast_native:/interfaces/interface[name=eth0]/mtu", 1500)
        .await
        .unwrap_err();
    check_refusal(
        &refusal,
        Code::InvalidArgument,
        &["cannot update `/interfaces/interface[name=eth0]/mtu`", "config/mtu", "1414"],
    );
    let request =
        SetRequest { update: vec![cli("interface eth0\n  mtu 1500")], ..Default::default() };
    let refusal = client.set(request).await.unwrap_err();
    check_refusal(&refusal, Code::InvalidArgument, &["line 2: mtu 1500", "config/mtu", "1414"]);

    let now = (
        config(&client, "openconfig").await,
        config(&client, "holdfast_native").await,
        net.link("eth0"),
    );
    assert_eq!(now, before);
    client.delete(&format!("{}/mtu", config_of("eth0"))).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1400, "the other owner's stays");
}

/// Case 7, over the wire.
#[tokio::test]
async fn a_negation_beside_openconfig_is_refused() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let hostname = || update("/system/config/hostname", "edge");
    let banner = || fs::read_to_string(agent.root().join("etc/motd")).unwrap_or_default();
    let both = vec![cli("no system hostname"), hostname()];
    let refusal = tried(&client, both, banner).await.unwrap_err();
    check_refusal(
        &refusal,
        Code::InvalidArgument,
        &["line 1: no system hostname", "/system/config/hostname", "edge"],
    );
    client.update("/system/config/hostname", "edge").await.unwrap();
    let plain = |text: &str| SetRequest { update: vec![cli(text)], ..Default::default() };
    let refusal = client.set(plain("no system hostname")).await.unwrap_err();
    check_refusal(
        &refusal,
        Code::InvalidArgument,
        &["line 1: no system hostname", "/system/config/hostname", "edge"],
    );
    client.set(plain("system motd-banner hi")).await.unwrap();
    assert_eq!(banner(), "hi\n");
    client.set(plain("no system motd-banner")).await.unwrap();
    assert_eq!(banner(), "");
    // A leaf of no other origin can be negated, and the rollback restores the negated leaf.
    tried(&client, vec![cli("system motd-banner hi"), hostname()], banner).await.unwrap();
    tried(&client, vec![cli("no system motd-banner"), hostname()], banner).await.unwrap();
    assert_eq!(banner(), "");
    assert_eq!(client.read("/system/state/hostname").await.unwrap(), "edge");
}

/// Invalid combinations, and each way in which an entry can be invalid.
// proves 2.1, 2.3, 2.10, 2.11, 2.12, 2.13, 2.23, 2.47, 2.52, 2.53
#[tokio::test]
async fn bad_unions_have_their_codes_and_change_nothing() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    union(&client, vec![cli("system hostname kept\ninterface eth0\n  mtu 1400")]).await.unwrap();
    let before = (config(&client, "holdfast_native").await, net.link("eth0"));
    let leaf = || update("/system/config/motd-banner", "x");
    let text = || cli("system login-banner x");
    let of = |entries: Vec<Update>| SetRequest { union_replace: entries, ..Default::default() };
    let bad_ascii = Update { path: leaf().path, ..text() };
    let rows: Vec<(SetRequest, Code, &[&str])> = vec![
        (
            SetRequest { update: vec![leaf()], ..of(vec![text()]) },
            Code::InvalidArgument,
            &["cannot be combined"],
        ),
        (
            SetRequest { replace: vec![leaf()], ..of(vec![leaf()]) },
            Code::InvalidArgument,
            &["cannot be combined"],
        ),
        (
            SetRequest { delete: vec![leaf().path.unwrap()], ..of(vec![leaf()]) },
            Code::InvalidArgument,
            &["cannot be combined"],
        ),
        (
            of(vec![text(), native("/system/login-banner", "y"), leaf()]),
            Code::InvalidArgument,
            &["CLI text and native paths"],
        ),
        (of(vec![text(), leaf(), text()]), Code::InvalidArgument, &["only one CLI text"]),
        (of(vec![text(), update("/system/nonsense", 1)]), Code::NotFound, &["/system/nonsense"]),
        (of(vec![native("/system/nonsense", 1)]), Code::NotFound, &["/system/nonsense"]),
        (
            of(vec![text(), update(&format!("{}/mtu", config_of("eth0")), "wide")]),
            Code::InvalidArgument,
            &["config/mtu"],
        ),
        (
            of(vec![update("/interfaces/interface[nom=eth0]/config/mtu", 1500)]),
            Code::InvalidArgument,
            &["nom"],
        ),
        (
            of(vec![cli("system hostname ok\ninterface eth0\n  mtu wide\nbogus"), leaf()]),
            Code::InvalidArgument,
            &["line 3", "line 4", "bogus"],
        ),
        (of(vec![bad_ascii]), Code::Unimplemented, &["ASCII"]),
        (of(vec![update("bogus:/system", json!({}))]), Code::InvalidArgument, &["bogus"]),
        (
            of(vec![interfaces(
                json!([{"name": TOO_LONG, "config": {"name": TOO_LONG, "description": "d"}}]),
            )]),
            Code::InvalidArgument,
            &[TOO_LONG],
        ),
        (
            of(vec![cli(&format!("interface {TOO_LONG}\n  enabled true"))]),
            Code::InvalidArgument,
            &[TOO_LONG],
        ),
        (
            SetRequest { replace: vec![text(), text()], ..Default::default() },
            Code::InvalidArgument,
            &["only one replace by CLI text"],
        ),
        (
            SetRequest { delete: vec![text().path.unwrap()], ..Default::default() },
            Code::InvalidArgument,
            &["CLI text"],
        ),
    ];
    for (request, code, words) in rows {
        let request_text = format!("{request:?}");
        let refusal = client.set(request).await.expect_err(&request_text);
        check_refusal(&refusal, code, words);
        assert_eq!(
            (config(&client, "holdfast_native").await, net.link("eth0")),
            before,
            "{request_text}"
        );
    }
    // Every invalid entry is in the details, with its place in the request.
    let refusal =
        union(&client, vec![update("/nonsense", 1), leaf(), update("/system/config/hostname", 7)])
            .await
            .unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound);
    assert_eq!(details(&refusal), ["union_replace[0]", "union_replace[2]"]);
}

/// A change that the kernel refuses is rolled back as a whole.
// proves 2.22, 2.44
#[tokio::test]
async fn kernel_refusal_rolls_back_the_union() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    union(
        &client,
        vec![cli("system hostname before"), interfaces(json!([port("eth0", &["192.0.2.1/24"])]))],
    )
    .await
    .unwrap();
    let kernel = || (net.link("eth0"), net.addresses("eth0"), net.ip("-4 route show"));
    let before =
        (config(&client, "openconfig").await, config(&client, "holdfast_native").await, kernel());

    // A gateway that is the broadcast address of its network.
    let entries = vec![
        cli("system hostname after"),
        interfaces(json!([port("eth0", &["192.0.2.1/24"])])),
        update(&config_of("eth0"), json!({"description": "never"})),
        update(STATIC_ROUTES, json!({"static": [route("198.51.100.0/24", "192.0.2.255")]})),
    ];
    let refusal = union(&client, entries).await.unwrap_err();
    check_refusal(&refusal, Code::Internal, &["198.51.100.0/24", "EINVAL"]);
    let now =
        (config(&client, "openconfig").await, config(&client, "holdfast_native").await, kernel());
    assert_eq!(now, before);
    assert_eq!(client.read("/system/state/hostname").await.unwrap(), "before");
}

/// Configuration for an absent port is accepted, and shown as pending.
// proves 2.46
#[tokio::test]
async fn a_port_that_is_not_there_can_be_configured() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let entries = vec![
        cli("interface eth7\n  mtu 1400"),
        interfaces(json!([port("eth7", &["192.0.2.1/24"])])),
    ];
    union(&client, entries).await.unwrap();
    let status = client.read("/interfaces/interface[name=eth7]/state/oper-status").await.unwrap();
    assert_eq!(status, "NOT_PRESENT");
    net.ip("link add eth7 type veth peer name peer7");
    eventually("the port has its configuration", || {
        net.link("eth7").mtu == 1400 && net.addresses("eth7") == ["192.0.2.1/24"]
    })
    .await;
}

/// Plain requests of CLI text: one origin, one layer; a feature may depend on an object of the other origin.
// proves 2.51, 2.55, 2.56, 2.57
#[tokio::test]
async fn plain_text_writes_its_own_layer() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"mtu": 1414})).await.unwrap();
    let plain = |replace: &str, more: &[&str]| SetRequest {
        replace: vec![cli(replace)],
        update: more.iter().map(|text| cli(text)).collect(),
        ..Default::default()
    };
    client
        .set(plain("system motd-banner former\ninterface eth0\n  description former", &[]))
        .await
        .unwrap();
    client
        .set(plain(
            "interface eth0\n  description latter",
            &["system login-banner hello", "interface eth0\n  no description"],
        ))
        .await
        .unwrap();
    let document = config(&client, "holdfast_native").await.to_string();
    assert!(
        document.contains("hello") && !document.contains("former") && !document.contains("latter"),
        "{document}"
    );
    assert_eq!(
        (net.link("eth0").mtu, net.link("eth0").alias.as_str()),
        (1400, ""),
        "the other layer stays"
    );

    let mixed = SetRequest {
        replace: vec![update(
            &ipv4_of("br0"),
            json!({"addresses": {"address": [{"ip": "192.0.2.1", "config": {"ip": "192.0.2.1", "prefix-length": 24}}]}}),
        )],
        update: vec![cli("interface br0\n  type bridge")],
        ..Default::default()
    };
    client.set(mixed).await.unwrap();
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);

    let br0 = "holdfast_native:/interfaces/interface[name=br0]";
    client.replace(br0, json!({"type": "bridge", "bridge": {"stp": true}})).await.unwrap();
    assert!(net.ip("-d link show br0").contains("stp_state 1"));
    client.update(&format!("{br0}/mtu"), 1300).await.unwrap();
    assert_eq!(net.link("br0").mtu, 1300);
    client.delete(&format!("{br0}/bridge/stp")).await.unwrap();
    assert!(net.ip("-d link show br0").contains("stp_state 0"));
    client.delete("holdfast_native:/interfaces/interface[name=*]/mtu").await.unwrap();
    assert_eq!(net.link("br0").mtu, 1500);
}

#[track_caller]
pub(crate) fn check_refusal(refusal: &Status, code: Code, words: &[&str]) {
    assert_eq!(refusal.code(), code, "{refusal:?}");
    let status = rpc::Status::decode(refusal.details()).unwrap_or_default();
    let all = format!("{} {:?}", refusal.message(), violations(&status));
    for word in words {
        assert!(all.contains(word), "`{word}` is not in {all}");
    }
}

/// The places in the request of all mistakes.
fn details(refusal: &Status) -> Vec<String> {
    let status = rpc::Status::decode(refusal.details()).unwrap();
    violations(&status).into_iter().map(|it| it.field).collect()
}

fn violations(status: &rpc::Status) -> Vec<rpc::bad_request::FieldViolation> {
    let decoded = status.details.iter().map(|it| rpc::BadRequest::decode(&*it.value).unwrap());
    decoded.flat_map(|it| it.field_violations).collect()
}
