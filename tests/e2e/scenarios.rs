//! Scenarios of other engines on the real kernel: members that vanish, restarts in any order, one object after another.

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{STATIC_ROUTES, port, port_with_route, route};
use crate::routes::OURS;
use crate::union::cli;

/// Changes the configuration by CLI text.
async fn set_cli_text(client: &GnmiClient, text: &str) {
    let update = vec![cli(text)];
    let answer = client.set(SetRequest { update, ..SetRequest::default() }).await;
    assert!(answer.is_ok(), "{text}: {answer:?}");
}

// proves kv.T12
#[tokio::test]
async fn routes_follow_foreign_addresses() {
    const FIRST: &str = "10.1.0.0/16 via 203.0.113.2 dev eth0 metric 20";
    const SECOND: &str = "10.2.0.0/16 via 192.0.2.2 dev eth0 metric 20";
    let net = Netns::enter().with_veth("eth0", "peer0");
    for end in ["eth0", "peer0"] {
        net.ip(&format!("link set {end} up"));
    }
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", json!({"interface": [port("eth0", &[])]})).await.unwrap();
    let routes = [route("10.1.0.0/16", "203.0.113.2"), route("10.2.0.0/16", "192.0.2.2")];
    client.update(STATIC_ROUTES, json!({"static": routes})).await.unwrap();
    assert_eq!(net.routes(OURS), [""; 0]);

    net.ip("address add 203.0.113.1/24 dev eth0");
    eventually("one route is there", || net.routes(OURS) == [FIRST]).await;
    let waiting = agent.show("pending");
    assert!(waiting.contains("10.2.0.0/16") && !waiting.contains("10.1.0.0/16"), "{waiting}");
    net.ip("address add 192.0.2.1/24 dev eth0");
    eventually("so is the other", || net.routes(OURS) == [FIRST, SECOND]).await;
    net.ip("address del 203.0.113.1/24 dev eth0");
    eventually("the first waits again", || agent.show("pending").contains("10.1.0.0/16")).await;
    assert_eq!(net.routes(OURS), [SECOND]);

    client.delete(STATIC_ROUTES).await.unwrap();
    client.delete("/interfaces/interface[name=eth0]").await.unwrap();
    assert_eq!((net.routes(OURS), net.addresses("eth0")), (vec![], vec!["192.0.2.1/24".into()]));
    assert!(net.link("eth0").up, "it was before us");
}

// proves kv.T14
#[tokio::test]
async fn bridge_members_rejoin_after_recreation() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    set_cli_text(&client, "interface br0 type bridge").await;
    set_cli_text(&client, "interface eth0 master br0").await;
    set_cli_text(&client, "interface eth1 master br0").await;
    let master = |name: &str| net.find_link(name).and_then(|link| link.master);
    let joined = || [master("eth0"), master("eth1")].iter().all(|it| it.as_deref() == Some("br0"));
    assert!(joined());

    net.ip("link del eth1");
    eventually("a member waits for its port", || agent.show("pending").contains("eth1")).await;
    assert_eq!(master("eth0").as_deref(), Some("br0"), "the other one stays");
    net.ip("link add eth1 type veth peer name peer1");
    eventually("it is a member again", joined).await;

    let first = net.link("br0").index;
    net.ip("link del br0");
    eventually("the bridge is back with both", || {
        net.find_link("br0").is_some_and(|link| link.index != first) && joined()
    })
    .await;

    agent.kill();
    net.ip("link set eth0 nomaster");
    net.ip("link del br0");
    agent.restart().await;
    eventually("what was lost meanwhile, too", joined).await;
    let client = agent.gnmi().await;
    set_cli_text(&client, "no interface eth0 master").await;
    assert_eq!((master("eth0"), master("eth1").as_deref()), (None, Some("br0")));
}

// proves kv.T16
#[tokio::test]
async fn routes_by_link_and_by_gateway_are_changed_and_not_doubled() {
    const BY_LINK: &str = "10.0.0.0/8 dev eth0 scope link metric 20";
    const GATEWAY: &str = "network-instance DEFAULT static static route 198.51.100.0/24 next-hop 0";
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let port = port("eth0", &["192.0.2.1/24"]);
    client.update("/interfaces", json!({"interface": [port]})).await.unwrap();
    set_cli_text(&client, &format!("{GATEWAY} next-hop 192.0.2.2")).await;
    set_cli_text(
        &client,
        "network-instance DEFAULT static static route 10.0.0.0/8 next-hop 0 interface eth0",
    )
    .await;
    assert_eq!(net.routes(OURS), [BY_LINK, "198.51.100.0/24 via 192.0.2.2 dev eth0 metric 20"]);
    for (change, want) in [
        ("next-hop 192.0.2.3", "198.51.100.0/24 via 192.0.2.3 dev eth0 metric 20"),
        ("metric 7", "198.51.100.0/24 via 192.0.2.3 dev eth0 metric 7"),
        ("metric 8", "198.51.100.0/24 via 192.0.2.3 dev eth0 metric 8"),
    ] {
        set_cli_text(&client, &format!("{GATEWAY} {change}")).await;
        assert_eq!(net.routes(OURS), [BY_LINK, want], "{change}");
    }
}

/// Everything that `ip` shows, except for the lines of one object.
fn others(net: &Netns, object: &str) -> Vec<String> {
    let states =
        ["-o link", "-4 -o address", "-4 route show table main", "neighbour show nud permanent"];
    let lines = states.map(|what| net.ip(what)).join("\n");
    lines.lines().filter(|line| !line.contains(object)).map(str::to_owned).collect()
}

// proves kv.T19
#[tokio::test]
async fn changing_one_object_leaves_the_others_alone() {
    const ROUTE: &str = "network-instance DEFAULT static static route";
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    // The routes come before their port.
    set_cli_text(&client, &format!("{ROUTE} 203.0.113.0/24 next-hop 0 next-hop 192.0.2.2")).await;
    port_with_route(&client, "eth0").await;
    set_cli_text(
        &client,
        "interface eth0 ipv4 neighbor 192.0.2.2 link-layer-address 02:00:00:00:00:02",
    )
    .await;
    eventually("all are there", || net.routes(OURS).len() == 2 && net.link("eth0").up).await;
    let before = others(&net, "nothing");
    // Names with an `x` are in no hardware address.
    for (object, path, created, changed) in [
        ("brx7", "interface brx7", " type bridge", " mtu 1300"),
        ("vx7", "interface vx7", "\n  type vxlan\n  vxlan\n    vni 7", " mtu 1300"),
        ("wx7", "interface wx7", "\n  type veth\n  veth\n    peer wx8", " mtu 1300"),
        (
            "172.16.0.0/12",
            &format!("{ROUTE} 172.16.0.0/12"),
            " next-hop 0 next-hop 192.0.2.3",
            " next-hop 0 metric 7",
        ),
        (
            "192.0.2.77",
            "interface eth0 ipv4 neighbor 192.0.2.77",
            " link-layer-address 02:00:00:00:00:07",
            " link-layer-address 02:00:00:00:00:08",
        ),
    ] {
        // Created, changed, removed, and created again right after the removal.
        let mut states = Vec::new();
        for text in [created, changed, "", created] {
            let no = if text.is_empty() { "no " } else { "" };
            set_cli_text(&client, &format!("{no}{path}{text}")).await;
            assert_eq!(others(&net, object), before, "{path}{text}");
            states.push(others(&net, "nothing").len() > before.len());
        }
        assert_eq!(states, [true, true, false, true], "{path}");
        set_cli_text(&client, &format!("no {path}")).await;
        assert_eq!(others(&net, "nothing"), before, "{path}");
    }
}

/// `a` and `A`: the agent is killed and started; `p` and `P`: the far ends, and so the cables, are removed and added.
async fn restarts(net: &Netns, agent: &mut AgentProcess, ports: usize, order: &str) {
    for step in order.chars() {
        match step {
            'a' => agent.kill(),
            'A' => agent.restart().await,
            'p' => (0..ports).for_each(|port| drop(net.ip(&format!("link del peer{port}")))),
            _ => {
                for port in 0..ports {
                    net.ip(&format!("link add eth{port} type veth peer name peer{port}"));
                    net.ip(&format!("link set peer{port} up"));
                }
            }
        }
    }
}

// proves kv.T20
#[tokio::test]
async fn agent_and_far_end_restart_in_any_order() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    port_with_route(&agent.gnmi().await, "eth0").await;
    let whole = || {
        net.find_link("eth0").is_some_and(|link| link.up)
            && net.addresses("eth0") == ["192.0.2.1/24"]
            && net.routes(OURS) == ["198.51.100.0/24 via 192.0.2.2 dev eth0 metric 20"]
    };
    for order in ["aA", "pP", "aApP", "pPaA", "aAaA", "pPpP", "apAP", "apPA", "paAP", "paPA"] {
        restarts(&net, &mut agent, 1, order).await;
        eventually(&format!("after {order} everything is there"), whole).await;
        eventually("and nothing waits", || !agent.show("pending").contains("eth0")).await;
    }
}

// proves kv.T21
#[tokio::test]
async fn many_ports_and_routes_come_back_in_any_order() {
    const PORTS: usize = 8;
    const ROUTES_EACH: usize = 125;
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ports: Vec<_> =
        (0..PORTS).map(|it| port(&format!("eth{it}"), &[&format!("192.0.{it}.1/24")])).collect();
    client.update("/interfaces", json!({"interface": ports})).await.unwrap();
    let behind = |it: usize| {
        (0..ROUTES_EACH)
            .map(move |number| route(&format!("10.{it}.{number}.0/24"), &format!("192.0.{it}.2")))
    };
    let routes: Vec<_> = (0..PORTS).flat_map(behind).collect();
    client.update(STATIC_ROUTES, json!({"static": routes})).await.unwrap();
    assert_eq!(net.routes(OURS), [""; 0], "there are no ports yet");
    for order in ["P", "aA", "pP", "apAP", "paPA"] {
        restarts(&net, &mut agent, PORTS, order).await;
        eventually(&format!("after {order} every route is there"), || {
            net.routes(OURS).len() == PORTS * ROUTES_EACH
        })
        .await;
        eventually("and nothing waits", || !agent.show("pending").contains("10.")).await;
    }
}
