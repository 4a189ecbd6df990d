//! Static routes beside what the kernel and other programs have.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::{STATIC_ROUTES, addresses, config_of, ipv4_of, ipv6_of, port, route};
use crate::routes::OURS;

/// Ports whose cables end in the same namespace, all up.
pub(crate) fn ports(names: &[&str]) -> Netns {
    let net = Netns::enter();
    for name in names {
        let far = name.replace("eth", "p");
        net.ip(&format!("link add {name} type veth peer name {far}"));
        net.shell(&format!("sysctl -qw net.ipv6.conf.{name}.accept_dad=0"));
        net.ip(&format!("link set {far} up"));
        net.ip(&format!("link set {name} up"));
    }
    net
}

/// One static route whose next hops have a gateway or a link, and a metric.
pub(crate) fn entry(prefix: &str, hops: &[(&str, &str, &str)]) -> Value {
    let hop = |(at, (gateway, link, metric)): (usize, &(&str, &str, &str))| {
        let index = at.to_string();
        let mut config = json!({"index": index});
        if !gateway.is_empty() {
            config["next-hop"] = json!(gateway);
        }
        if !metric.is_empty() {
            config["metric"] = json!(metric.parse::<u32>().unwrap());
        }
        let mut hop = json!({"index": index, "config": config});
        if !link.is_empty() {
            hop["interface-ref"] = json!({"config": {"interface": link}});
        }
        hop
    };
    let hops: Vec<Value> = hops.iter().enumerate().map(hop).collect();
    json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": hops}})
}

pub(crate) async fn set_routes(client: &GnmiClient, routes: &[Value]) -> Result<(), tonic::Status> {
    client.replace(STATIC_ROUTES, json!({"static": routes})).await.map(|_| ())
}

/// Sends datagrams until it is stopped, and counts those for which there was no route.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    sender: thread::JoinHandle<(usize, usize)>,
}

impl Traffic {
    pub(crate) fn to(address: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&stop);
        let sender = thread::spawn(move || {
            let local = if address.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(local).unwrap();
            let mut sent = 0;
            let mut lost = 0;
            while !ended.load(Ordering::Relaxed) {
                match socket.send_to(b"x", address) {
                    Ok(_) => sent += 1,
                    Err(_) => lost += 1,
                }
            }
            (sent, lost)
        });
        Self { stop, sender }
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, lost) = self.sender.join().unwrap();
        assert!(sent > 0, "nothing was sent");
        assert_eq!(lost, 0, "of {sent} datagrams");
    }
}

/// Device by which the kernel sends to an address.
fn leaves_by(net: &Netns, address: &str) -> String {
    let family = if address.contains(':') { "-6 " } else { "" };
    let text = net.ip(&format!("{family}route get {address}"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "dev").unwrap();
    words[at + 1].to_owned()
}

#[tokio::test]
async fn a_default_route_is_taken_over_without_a_gap_and_given_back() {
    // With the metric of a static route, with better ones and with a worse one.
    for metric in ["0", "20", "5", "100"] {
        let net = ports(&["eth0"]);
        net.ip("address add 10.0.0.10/24 dev eth0");
        net.ip(&format!("route add default via 10.0.0.254 mtu 1300 metric {metric}"));
        let theirs = net.ip("route show default");
        let mut agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let traffic = Traffic::to("198.51.100.1:9");
        set_routes(&client, &[route("0.0.0.0/0", "10.0.0.254")]).await.unwrap();
        let ours = net.ip("route show default");
        assert_eq!(ours.lines().count(), 1, "{metric}: {ours}");
        assert!(ours.contains("proto 150 metric 20"), "{metric}: {ours}");
        assert!(!agent.show("pending").contains("0.0.0.0/0"), "{metric}");
        // The earlier routes are known after a crash.
        agent.kill();
        agent.restart().await;
        assert_eq!(net.ip("route show default"), ours, "{metric}");
        let client = agent.gnmi().await;
        client.delete(STATIC_ROUTES).await.unwrap();
        assert_eq!(net.ip("route show default"), theirs, "{metric}");
        traffic.end();
    }
}

#[tokio::test]
async fn a_default_route_of_ipv6_is_taken_over_and_given_back() {
    for metric in ["10", "1024"] {
        let net = ports(&["eth0"]);
        net.ip("address add 2001:db8::10/64 dev eth0 nodad");
        net.ip(&format!("-6 route add default via 2001:db8::fe metric {metric}"));
        let default = || {
            let all = net.ip("-6 route show default");
            all.lines().filter(|line| !line.contains("proto ra")).collect::<Vec<_>>().join("\n")
        };
        let theirs = default();
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let traffic = Traffic::to("[2001:db8:ff::1]:9");
        set_routes(&client, &[route("::/0", "2001:db8::fe")]).await.unwrap();
        let ours = default();
        assert_eq!(ours.lines().count(), 1, "{metric}: {ours}");
        assert!(ours.contains("proto 150 metric 1024"), "{metric}: {ours}");
        client.delete(STATIC_ROUTES).await.unwrap();
        assert_eq!(default(), theirs, "{metric}");
        traffic.end();
    }
}

/// A Set that fails at another object leaves the route of before.
#[tokio::test]
async fn a_refused_set_leaves_the_routes_of_others() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    for metric in ["0", "20"] {
        net.ip(&format!("route add default via 10.0.0.254 metric {metric}"));
        net.ip("route add 10.9.0.0/16 via 10.0.0.3 metric 20 proto zebra");
        let theirs = net.ip("route show");
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let routes = [route("0.0.0.0/0", "10.0.0.254"), route("10.9.0.0/16", "10.0.0.2")];
        let refused = set_routes(&client, &routes).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert_eq!(net.ip("route show"), theirs, "{metric}");
        drop(agent);
        net.ip("route del default");
        net.ip("route del 10.9.0.0/16");
    }
}

#[tokio::test]
async fn a_different_route_in_the_same_place_is_named() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    net.ip("address add 2001:db8::10/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for (command, prefix, gateway, named) in [
        (
            "route add 10.9.0.0/16 via 10.0.0.3 metric 20",
            "10.9.0.0/16",
            "10.0.0.2",
            "via 10.0.0.3 dev eth0 proto boot",
        ),
        (
            "route add 10.9.0.0/16 via 10.0.0.3 metric 20 proto zebra",
            "10.9.0.0/16",
            "10.0.0.2",
            "via 10.0.0.3 dev eth0 proto zebra",
        ),
        // Equal, and of a program that looks after it.
        (
            "route add 10.9.0.0/16 via 10.0.0.2 metric 20 proto zebra",
            "10.9.0.0/16",
            "10.0.0.2",
            "proto zebra",
        ),
        (
            "route add 10.9.0.0/16 via 10.0.0.2 metric 20 proto dhcp",
            "10.9.0.0/16",
            "10.0.0.2",
            "proto dhcp",
        ),
        (
            "route add 2001:db8:9::/48 via 2001:db8::3 metric 1024",
            "2001:db8:9::/48",
            "2001:db8::2",
            "via 2001:db8::3 dev eth0 proto boot",
        ),
        (
            "route add 2001:db8:9::/48 via 2001:db8::2 metric 1024 proto ra",
            "2001:db8:9::/48",
            "2001:db8::2",
            "proto ra",
        ),
    ] {
        net.ip(command);
        eventually("the agent knows it", || {
            agent.show("values").contains(prefix) || command.contains("zebra")
        })
        .await;
        let refused = set_routes(&client, &[route(prefix, gateway)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{command}: {refused}");
        for part in [prefix, named, "remove that route, or configure another metric"] {
            assert!(refused.message().contains(part), "{part} in {refused}");
        }
        net.ip(&command.replace(" add ", " del "));
        set_routes(&client, &[route(prefix, gateway)]).await.unwrap();
        assert_eq!(agent.show("pending"), "", "{command}");
        client.delete(STATIC_ROUTES).await.unwrap();
    }
}

#[tokio::test]
async fn a_route_of_others_that_wins_is_named() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    set_routes(&client, &[route("10.9.0.0/16", "10.0.0.2")]).await.unwrap();
    net.ip("route add 10.9.0.0/16 via 10.0.0.3 metric 5");
    let words = "shadowed by `10.9.0.0/16 via 10.0.0.3 dev eth0 proto boot metric 5`";
    eventually("it is shown", || agent.show("pending").contains(words)).await;
    assert!(agent.log().contains("proto boot metric 5"), "{}", agent.log());
    net.ip("route del 10.9.0.0/16 metric 5");
    eventually("no more", || agent.show("pending").is_empty()).await;
    // One of a routing daemon is not announced to the agent, so the kernel is asked.
    net.ip("route add 10.9.0.0/16 via 10.0.0.3 metric 5 proto zebra");
    // More specific routes hide the first address of the prefix, or its last one.
    for specific in ["10.9.0.0/24", "10.9.255.0/24"] {
        net.ip(&format!("route add {specific} via 10.0.0.4 proto bgp"));
        let words = "shadowed by `10.9.0.0/16 via 10.0.0.3 dev eth0 proto zebra metric 5`";
        let pending = agent.show("pending");
        assert!(pending.contains(words), "{specific}: {pending}");
        net.ip(&format!("route del {specific}"));
    }
    assert!(!agent.log().contains("proto zebra metric 5"), "{}", agent.log());
    agent.kill();
    agent.restart().await;
    let client = agent.gnmi().await;
    eventually("it is logged", || agent.log().contains("proto zebra metric 5")).await;
    assert!(!agent.show("values").contains("proto zebra"), "the engine does not know it");
    net.ip("route del 10.9.0.0/16 metric 5");
    assert_eq!(agent.show("pending"), "");
    // A worse one says nothing, and is left alone.
    net.ip("route add 10.9.0.0/16 via 10.0.0.3 metric 500 proto bgp");
    assert_eq!(agent.show("pending"), "");
    net.ip("route del 10.9.0.0/16 metric 500");
    net.ip("route add 10.9.0.0/16 via 10.0.0.3 metric 500");
    eventually("it is seen", || agent.show("values").contains("metric 500")).await;
    assert_eq!(agent.show("pending"), "");
    client.delete(STATIC_ROUTES).await.unwrap();
    assert!(net.ip("route show 10.9.0.0/16").contains("metric 500"));
}

#[tokio::test]
async fn an_ipv6_route_of_others_that_wins_is_named() {
    let net = ports(&["eth0"]);
    net.ip("address add 2001:db8::10/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    set_routes(&client, &[route("2001:db8:9::/48", "2001:db8::2")]).await.unwrap();
    for protocol in ["boot", "zebra"] {
        let theirs = format!("2001:db8:9::/48 via 2001:db8::3 dev eth0 metric 5 proto {protocol}");
        net.ip(&format!("route add {theirs}"));
        let words = format!(
            "shadowed by `2001:db8:9::/48 via 2001:db8::3 dev eth0 proto {protocol} metric 5`"
        );
        eventually("it is shown", || agent.show("pending").contains(&words)).await;
        net.ip(&format!("route del {theirs}"));
        eventually("no more", || agent.show("pending").is_empty()).await;
    }
}

#[tokio::test]
async fn next_hops_that_others_append_in_ipv6_are_seen_and_stay() {
    let net = ports(&["eth0"]);
    net.ip("address add 2001:db8::10/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    set_routes(&client, &[route("2001:db8:9::/48", "2001:db8::2")]).await.unwrap();
    net.ip("-6 route append 2001:db8:9::/48 via 2001:db8::3 metric 1024");
    let is_drift = || {
        let values = agent.show("values");
        values.lines().any(|line| line.contains("2001:db8:9::/48") && !line.contains("CONFIGURED"))
    };
    eventually("drift is seen", is_drift).await;
    client.delete(STATIC_ROUTES).await.unwrap();
    let left = net.ip("-6 route show 2001:db8:9::/48");
    assert!(left.contains("2001:db8::3") && !left.contains("2001:db8::2 "), "{left}");
}

#[tokio::test]
async fn a_connected_prefix_wins_over_a_static_route() {
    let addressed = |index: usize| -> Value {
        let (v4, v6) =
            [("10.0.0.1/24", "2001:db8::1/64"), ("10.0.5.1/24", "2001:db8:5::1/64")][index];
        let mut interface = port(&format!("eth{index}"), &[v4]);
        interface["subinterfaces"]["subinterface"][0]["openconfig-if-ip:ipv6"] =
            json!({"addresses": addresses(&[v6])});
        interface
    };
    let routes = [route("10.0.5.0/24", "10.0.0.2"), route("2001:db8:5::/64", "2001:db8::2")];
    for address_first in [true, false] {
        let net = ports(&["eth0", "eth1"]);
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        client.update("/interfaces", json!({"interface": [addressed(0)]})).await.unwrap();
        if address_first {
            client.update("/interfaces", json!({"interface": [addressed(1)]})).await.unwrap();
        }
        set_routes(&client, &routes).await.unwrap();
        if !address_first {
            assert_eq!(leaves_by(&net, "10.0.5.9"), "eth0");
            assert_eq!(leaves_by(&net, "2001:db8:5::9"), "eth0");
            client.update("/interfaces", json!({"interface": [addressed(1)]})).await.unwrap();
        }
        for flap in ["eth1", "eth0"] {
            assert_eq!(leaves_by(&net, "10.0.5.9"), "eth1", "{address_first}");
            assert_eq!(leaves_by(&net, "2001:db8:5::9"), "eth1", "{address_first}");
            let enabled = format!("{}/enabled", config_of(flap));
            client.update(&enabled, false).await.unwrap();
            client.update(&enabled, true).await.unwrap();
            eventually("all is back", || agent.show("pending").is_empty()).await;
        }
    }
}

#[tokio::test]
async fn a_metric_of_zero_is_one_in_both_families() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    net.ip("address add 2001:db8::10/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for (prefix, gateway) in [("10.9.0.0/16", "10.0.0.2"), ("2001:db8:9::/48", "2001:db8::2")] {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let metrics = || {
            let text = net.ip(&format!("{family} route show {prefix} proto 150"));
            let words: Vec<&str> = text.split_whitespace().collect();
            let found = words.windows(2).filter(|pair| pair[0] == "metric").map(|pair| pair[1]);
            found.collect::<Vec<_>>().join(" ")
        };
        set_routes(&client, &[entry(prefix, &[(gateway, "", "0")])]).await.unwrap();
        assert_eq!(metrics(), "1");
        let both = entry(prefix, &[(gateway, "", "0"), ("", "eth0", "1")]);
        let refused = set_routes(&client, &[both]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("metric 0 means 1"), "{refused}");
        // The other metric is there before the first one goes.
        let traffic = Traffic::to(if family == "-6" { "[2001:db8:9::1]:9" } else { "10.9.0.1:9" });
        for metric in ["7", "500", "0"] {
            set_routes(&client, &[entry(prefix, &[(gateway, "", metric)])]).await.unwrap();
            assert_eq!(metrics(), if metric == "0" { "1" } else { metric });
        }
        traffic.end();
    }
}

#[tokio::test]
async fn next_hops_that_the_kernel_cannot_have_are_refused_before_it() {
    let net = ports(&["eth0", "eth1"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    net.ip("address add 2001:db8::10/64 dev eth0 nodad");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    for (prefix, gateway) in [("10.9.0.0/16", "10.0.0.2"), ("2001:db8:9::/48", "2001:db8::2")] {
        let twice = entry(prefix, &[(gateway, "", ""), (gateway, "eth0", "")]);
        let refused = set_routes(&client, &[twice]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("are the same"), "{refused}");
    }
    let links = entry("2001:db8:9::/48", &[("", "eth0", ""), ("", "eth1", "")]);
    let refused = set_routes(&client, &[links]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("needs an address for each of them"), "{refused}");

    const LOCAL_LINK: &str = "openconfig-local-routing:LOCAL_LINK";
    let on_link = [
        entry("10.9.0.0/16", &[(LOCAL_LINK, "eth0", "")]),
        entry("2001:db8:9::/48", &[(LOCAL_LINK, "eth0", "")]),
    ];
    set_routes(&client, &on_link).await.unwrap();
    assert!(net.ip("route show 10.9.0.0/16").contains("dev eth0 proto 150"));
    assert!(net.ip("-6 route show 2001:db8:9::/48").contains("dev eth0 proto 150"));
    let state = client
        .read(&format!(
            "{STATIC_ROUTES}/static[prefix=10.9.0.0/16]/next-hops/next-hop[index=0]/state/next-hop"
        ))
        .await
        .unwrap();
    assert_eq!(state, json!(LOCAL_LINK));
    let alone = [entry("10.9.0.0/16", &[(LOCAL_LINK, "", "")])];
    let refused = set_routes(&client, &alone).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("an interface has to say which"), "{refused}");

    // Gateways that the kernel alone refuses: the entry is named with the reason.
    for (prefix, gateway, reason) in [
        ("10.8.0.0/16", "10.0.0.255", "invalid gateway"),
        ("2001:db8:8::/48", "2001:db8::10", "can not be a local address"),
    ] {
        let refused =
            set_routes(&client, &[entry(prefix, &[(gateway, "", "")])]).await.unwrap_err();
        for part in [&format!("route[prefix={prefix}]: cannot change"), reason] {
            assert!(refused.message().contains(part), "{part}: {refused}");
        }
    }
}

#[tokio::test]
async fn an_interface_restricts_the_gateway_to_its_prefixes() {
    let other = [("eth1", "10.0.0.10/24", "2001:db8::10/64")];
    let routes = [
        entry("44.44.44.0/24", &[("10.0.0.77", "eth0", "")]),
        entry("2001:db8:44::/48", &[("2001:db8::77", "eth0", "")]),
    ];
    for routes_first in [true, false] {
        let net = ports(&["eth0", "eth1"]);
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        client.update(&format!("{}/enabled", config_of("eth0")), true).await.unwrap();
        if routes_first {
            set_routes(&client, &routes).await.unwrap();
        }
        for (link, v4, v6) in other {
            client.update(&format!("{}/addresses", ipv4_of(link)), addresses(&[v4])).await.unwrap();
            client.update(&format!("{}/addresses", ipv6_of(link)), addresses(&[v6])).await.unwrap();
        }
        if !routes_first {
            set_routes(&client, &routes).await.unwrap();
        }
        let pending = agent.show("pending");
        for gateway in ["gateway 10.0.0.77 on link eth0", "gateway 2001:db8::77 on link eth0"] {
            assert!(pending.contains(gateway), "{pending}");
        }
        assert!(!pending.contains("FAILED"), "{pending}");
        client.delete(&format!("{}/addresses", ipv4_of("eth1"))).await.unwrap();
        client.delete(&format!("{}/addresses", ipv6_of("eth1"))).await.unwrap();
        client
            .update(&format!("{}/addresses", ipv4_of("eth0")), addresses(&["10.0.0.11/24"]))
            .await
            .unwrap();
        client
            .update(&format!("{}/addresses", ipv6_of("eth0")), addresses(&["2001:db8::11/64"]))
            .await
            .unwrap();
        assert_eq!(leaves_by(&net, "44.44.44.1"), "eth0");
        assert_eq!(leaves_by(&net, "2001:db8:44::1"), "eth0");
        assert_eq!(agent.show("pending"), "");
    }
}

/// A version without the metric of static routes has entered them with 0.
#[tokio::test]
async fn routes_of_an_earlier_version_move_without_a_gap() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let swapped = entry("10.9.0.0/16", &[("10.0.0.2", "", ""), ("10.0.0.3", "", "10")]);
    set_routes(&client, &[swapped, route("10.8.0.0/16", "10.0.0.2")]).await.unwrap();
    agent.kill();
    for prefix in ["10.9.0.0/16", "10.8.0.0/16"] {
        net.ip(&format!("route add {prefix} via 10.0.0.2 proto 150"));
        net.ip(&format!("route del {prefix} via 10.0.0.2 proto 150 metric 20"));
    }
    let traffic = Traffic::to("10.8.0.1:9");
    agent.restart().await;
    eventually("the routes have moved", || {
        let routes = net.routes(OURS);
        routes.iter().filter(|route| route.contains("metric 20")).count() == 2 && routes.len() == 3
    })
    .await;
    traffic.end();
    let log = agent.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("order of preference")).collect();
    assert!(matches!(told[..], [line] if line.contains("10.9.0.0/16")), "{told:#?}");
    agent.kill();
    agent.restart().await;
    let again = agent.log().lines().filter(|line| line.contains("order of preference")).count();
    assert!(again <= 1, "{}", agent.log());
}
