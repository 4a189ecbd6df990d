//! Writing: the changes of a Set are in the kernel when it is answered.

use std::process::Command;

use holdfast_proto::gnmi::update_result::Operation;
use holdfast_proto::gnmi::{SetRequest, SetResponse};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{parse_path, path_text, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{addresses, config_of, ipv4_of, ipv6_of, port};

#[tokio::test]
async fn leaves_of_a_port_reach_the_kernel() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    client.update(&format!("{}/mtu", config_of("eth0")), 1414).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1400, "OpenConfig counts the Ethernet header");

    client
        .update(&config_of("eth0"), json!({"description": "to the core", "enabled": true}))
        .await
        .unwrap();
    let link = net.link("eth0");
    assert_eq!((link.alias.as_str(), link.up, link.mtu), ("to the core", true, 1400));

    client.delete(&format!("{}/description", config_of("eth0"))).await.unwrap();
    assert_eq!(net.link("eth0").alias, "");

    client.update(&format!("{}/enabled", config_of("eth0")), false).await.unwrap();
    assert!(!net.link("eth0").up);
}

// proves 1.69, 1.70, 1.71, 1.76, 1.77
#[tokio::test]
async fn update_adds_replace_removes_delete_ends() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ipv4 = ipv4_of("eth0");
    let ipv6 = ipv6_of("eth0");

    client
        .update("/interfaces", json!({"interface": [port("eth0", &["192.0.2.1/24"])]}))
        .await
        .unwrap();
    client.update(&format!("{ipv4}/addresses"), addresses(&["198.51.100.1/25"])).await.unwrap();
    client.update(&format!("{ipv6}/addresses"), addresses(&["2001:db8::1/64"])).await.unwrap();
    assert_eq!(net.addresses("eth0"), ["192.0.2.1/24", "198.51.100.1/25", "2001:db8::1/64"]);

    client.replace(&format!("{ipv4}/addresses"), addresses(&["203.0.113.1/24"])).await.unwrap();
    assert_eq!(net.addresses("eth0"), ["2001:db8::1/64", "203.0.113.1/24"]);

    client.delete(&format!("{ipv6}/addresses/address[ip=2001:db8::1]")).await.unwrap();
    assert_eq!(net.addresses("eth0"), ["203.0.113.1/24"]);
    client.delete(&format!("{ipv6}/addresses/address[ip=2001:db8::1]")).await.unwrap();

    client.delete(&format!("{ipv4}/addresses/address[ip=*]")).await.unwrap();
    assert_eq!(net.addresses("eth0"), [""; 0]);
}

// proves 1.89
#[tokio::test]
async fn deleted_port_entry_restores_the_pre_image() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set eth0 mtu 1300 up alias before");
    let before = net.link("eth0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    client
        .update(&config_of("eth0"), json!({"mtu": 1414, "enabled": false, "description": "after"}))
        .await
        .unwrap();
    assert_ne!(net.link("eth0"), before);

    client.delete("/interfaces/interface[name=eth0]").await.unwrap();
    assert_eq!(net.link("eth0"), before);
    assert_eq!(
        client.read("/interfaces/interface[name=eth0]/state/ifindex").await.unwrap(),
        before.index
    );
}

#[tokio::test]
async fn replaced_device_gets_its_own_pre_image_back() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set eth0 mtu 1300 address 02:00:00:00:00:01 alias first");
    let mut agent = AgentProcess::start(&net).await;
    let port = "/interfaces/interface[name=eth0]";
    let set = json!({
        "config": {"name": "eth0", "mtu": 1414, "enabled": true, "description": "ours"},
        "openconfig-if-ethernet:ethernet": {"config": {"mac-address": "02:00:00:00:00:99"}},
    });
    let is_ours = |net: &Netns| {
        let found_link = net.find_link("eth0");
        found_link.is_some_and(|link| (link.mtu, link.alias.as_str()) == (1400, "ours") && link.up)
    };
    for (mac, stopped) in [("02:00:00:00:00:02", false), ("02:00:00:00:00:03", true)] {
        agent.gnmi().await.update(port, set.clone()).await.unwrap();
        if stopped {
            agent.kill();
        }
        net.ip("link del eth0");
        net.ip(&format!("link add spare mtu 1280 address {mac} type veth peer name peer0"));
        net.ip("link set spare alias other");
        let own = net.link("spare");
        net.ip("link set spare name eth0");
        if stopped {
            agent.restart().await;
        }
        eventually("the new device has the configuration", || is_ours(&net)).await;
        agent.gnmi().await.delete(port).await.unwrap();
        assert_eq!(net.link("eth0"), own);
    }
}

/// The part of 1.90 without VRFs: an address that another port gives up, and two ports that swap addresses.
#[tokio::test]
async fn addresses_move_between_ports_in_one_set() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let document = |first: &[&str], second: &[&str]| json!({"interface": [port("eth0", first), port("eth1", second)]});
    for (first, second) in [
        (&["192.0.2.1/24"][..], &[][..]),
        (&[], &["192.0.2.1/24"]),
        (&["198.51.100.1/24"], &["192.0.2.1/24"]),
        (&["192.0.2.1/24"], &["198.51.100.1/24"]),
    ] {
        client.replace("/interfaces", document(first, second)).await.unwrap();
        assert_eq!((net.addresses("eth0"), net.addresses("eth1")), (owned(first), owned(second)));
    }
}

/// The kernel would drop the second address of a prefix together with the first.
#[tokio::test]
async fn an_address_stays_when_the_first_of_its_prefix_goes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let both = json!({"interface": [port("eth0", &["192.0.2.1/24", "192.0.2.2/24"])]});
    client.replace("/interfaces", both).await.unwrap();
    let [first, second] = ["192.0.2.1", "192.0.2.2"];
    let is_secondary = net.ip("address show dev eth0 secondary").contains(second);
    let (first, second) = if is_secondary { (first, second) } else { (second, first) };

    let monitor = Monitor::start(&net).await;
    client.delete(&format!("{}/addresses/address[ip={first}]", ipv4_of("eth0"))).await.unwrap();
    assert_eq!(net.addresses("eth0"), [format!("{second}/24")]);
    let messages = monitor.finish(&net).await;
    let is_deleted = |ip: &str| {
        messages.iter().any(|it| it.contains("Deleted") && it.contains(&format!("{ip}/24 ")))
    };
    assert!(is_deleted(first) && !is_deleted(second), "{messages:#?}");
}

fn owned(addresses: &[&str]) -> Vec<String> {
    addresses.iter().map(|&address| address.to_owned()).collect()
}

// proves 1.63, 1.66
#[tokio::test]
async fn operations_run_in_their_order_and_are_answered_in_it() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let config = config_of("eth0");
    let description = format!("{}/description", config_of("eth0"));

    let request = SetRequest {
        update: vec![update(&description, "updated"), update(&format!("{config}/mtu"), 1314)],
        replace: vec![update(&config, json!({"name": "eth0", "description": "replaced"}))],
        delete: vec![parse_path("/interfaces/interface[name=eth0]")],
        ..Default::default()
    };
    let response = client.set(request).await.unwrap();

    let link = net.link("eth0");
    assert_eq!((link.alias.as_str(), link.mtu), ("updated", 1300));
    assert_eq!(
        results(&response),
        [
            (Operation::Delete, "/interfaces/interface[name=eth0]".to_owned()),
            (Operation::Replace, config.clone()),
            (Operation::Update, description),
            (Operation::Update, format!("{config}/mtu")),
        ]
    );
    assert!(response.timestamp > 0);
}

// proves 1.65
#[tokio::test]
async fn empty_set_succeeds() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let response = agent.gnmi().await.set(SetRequest::default()).await.unwrap();
    assert_eq!(results(&response), []);
}

#[tokio::test]
async fn host_name_and_banners_are_those_of_the_box() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    let system = json!({"hostname": "edge-7", "login-banner": "Authorised users only.", "motd-banner": "Welcome."});
    client.update("/system/config", system).await.unwrap();

    let name = Command::new("hostname").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&name.stdout).trim(), "edge-7");
    let file = |name: &str| std::fs::read_to_string(agent.root().join(name)).unwrap();
    assert_eq!(file("etc/hostname").trim(), "edge-7");
    assert!(file("etc/issue").contains("Authorised users only."));
    assert!(file("etc/motd").contains("Welcome."));
    assert_eq!(client.read("/system/state/hostname").await.unwrap(), "edge-7");

    net.shell("hostname other");
    eventually("the name is back", || net.shell("hostname").trim() == "edge-7").await;
    std::fs::remove_file(agent.root().join("etc/motd")).unwrap();
    std::os::unix::fs::symlink("other", agent.root().join("etc/motd")).unwrap();
    eventually("the banner is back", || {
        std::fs::read_to_string(agent.root().join("etc/motd")).is_ok_and(|it| it == "Welcome.\n")
    })
    .await;
}

#[tokio::test]
async fn deleted_banner_restores_the_replaced_symlink() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let motd = agent.root().join("etc/motd");
    agent.kill();
    std::fs::create_dir_all(motd.parent().unwrap()).unwrap();
    std::fs::write(agent.root().join("etc/theirs"), "theirs\n").unwrap();
    std::os::unix::fs::symlink("theirs", &motd).unwrap();
    agent.restart().await;
    let banner = "/system/config/motd-banner";
    agent.gnmi().await.update(banner, "ours").await.unwrap();
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), "ours\n");
    agent.restart().await;
    agent.gnmi().await.delete(banner).await.unwrap();
    assert_eq!(std::fs::read_link(&motd).unwrap().to_str(), Some("theirs"));
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), "theirs\n");
}

// proves 1.72
#[tokio::test]
async fn dns_search_domains_are_merged_into_resolv_conf() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let file = agent.root().join("etc/resolv.conf");
    let foreign = "nameserver 192.0.2.53\n";
    std::fs::create_dir_all(agent.root().join("etc")).unwrap();
    std::fs::write(&file, foreign).unwrap();

    let config = "/system/dns/config/search";
    let state = "/system/dns/state/search";
    client.update(config, json!(["b.example", "a.example"])).await.unwrap();
    client.update(config, json!(["c.example"])).await.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(foreign), "{text}");
    assert!(text.contains("\nsearch b.example a.example c.example\n"), "{text}");
    let want = json!(["b.example", "a.example", "c.example"]);
    assert_eq!(client.read(state).await.unwrap(), want);
    client.delete(config).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), foreign);
}

#[tokio::test]
async fn native_link_leaves_are_unset_alone_or_together() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");
    client.update(&native("br0"), json!({"type": "bridge"})).await.unwrap();
    client
        .update(&native("vx7"), json!({"type": "vxlan", "vxlan": {"vni": 7}, "master": "br0"}))
        .await
        .unwrap();

    let forwarding = format!("{}/ipv4/forwarding", native("br0"));
    client.update(&forwarding, true).await.unwrap();
    assert_eq!(net.sysctl("ipv4/conf/br0/forwarding"), "1");
    client.delete(&forwarding).await.unwrap();
    assert_eq!(net.sysctl("ipv4/conf/br0/forwarding"), "0");
    client.delete(&format!("{}/master", native("vx7"))).await.unwrap();
    assert_eq!(net.link("vx7").master, None);

    client.update(&native("vx7"), json!({"master": "br0"})).await.unwrap();
    let other = json!({"type": "vxlan", "vxlan": {"vni": 8}});
    client.update(&native("br0"), other).await.unwrap();
    assert_eq!(net.link("vx7").master, None, "its bridge is none any more");

    // The far end is configured when it is there already, then both go at once.
    client.update(&native("va"), json!({"type": "veth", "veth": {"peer": "vb"}})).await.unwrap();
    let far = json!({
        "type": "veth", "veth": {"peer": "va"}, "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}
    });
    client.update(&native("vb"), far.clone()).await.unwrap();
    client.delete(&native("*")).await.unwrap();
    for name in ["br0", "vx7", "va", "vb"] {
        assert!(net.find_link(name).is_none(), "{name}");
    }

    // The near end alone is deleted; the far end is created again, and deleted when it is asked for.
    client.update(&native("va"), json!({"type": "veth", "veth": {"peer": "vb"}})).await.unwrap();
    client.update(&native("vb"), far).await.unwrap();
    client.delete(&native("va")).await.unwrap();
    eventually("vb is back", || net.find_link("vb").is_some_and(|link| link.up)).await;
    eventually("its address, too", || net.addresses("vb") == ["192.0.2.1/24"]).await;
    client.delete(&native("vb")).await.unwrap();
    assert!(net.find_link("va").is_none() && net.find_link("vb").is_none());
}

#[tokio::test]
async fn native_links_are_made_and_unmade() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let native = |name: &str| format!("holdfast_native:/interfaces/interface[name={name}]");

    client
        .update(&native("br0"), json!({"type": "bridge", "bridge": {"stp": false}}))
        .await
        .unwrap();
    client.update(&native("eth0"), json!({"master": "br0"})).await.unwrap();
    client
        .update(
            &native("vx7"),
            json!({"type": "vxlan", "vxlan": {"vni": 7, "local": "192.0.2.1"}, "master": "br0"}),
        )
        .await
        .unwrap();
    client.update(&native("va"), json!({"type": "veth", "veth": {"peer": "vb"}})).await.unwrap();

    let kinds = ["br0", "vx7", "va", "vb"].map(|name| net.link(name).kind);
    assert_eq!(kinds, ["bridge", "vxlan", "veth", "veth"]);
    assert_eq!(
        (net.link("eth0").master, net.link("vx7").master),
        (Some("br0".into()), Some("br0".into()))
    );

    for name in ["va", "vx7", "br0"] {
        client.delete(&native(name)).await.unwrap();
        assert_eq!(net.find_link(name), None);
    }
    assert_eq!(net.link("eth0").master, None);
}

fn results(response: &SetResponse) -> Vec<(Operation, String)> {
    let results = response.response.iter();
    results
        .map(|result| (result.op(), path_text(&result.path.clone().unwrap_or_default())))
        .collect()
}

/// A domain alone is that of the name that the box has, also when others give it another one.
#[tokio::test]
async fn a_domain_name_alone_leaves_the_host_its_name() {
    let net = Netns::enter();
    nix::unistd::sethostname("edge-7").unwrap();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let hosts = || std::fs::read_to_string(agent.root().join("etc/hosts")).unwrap_or_default();
    client.update("/system/config/domain-name", "example.com").await.unwrap();
    assert!(hosts().contains("127.0.1.1 edge-7.example.com edge-7\n"), "{}", hosts());
    let domain = client.read("/system/state/domain-name").await.unwrap();
    assert_eq!(domain, json!("example.com"));

    nix::unistd::sethostname("edge-8.old.example").unwrap();
    eventually("the file has the new name", || {
        hosts().contains("127.0.1.1 edge-8.example.com edge-8\n") && !hosts().contains("edge-7")
    })
    .await;
    client.update("/system/config/hostname", "core-1").await.unwrap();
    assert!(hosts().contains("127.0.1.1 core-1.example.com core-1\n"), "{}", hosts());
    client.delete("/system/config/hostname").await.unwrap();
    eventually("the file has the name from before", || {
        hosts().contains("127.0.1.1 edge-8.example.com edge-8\n")
    })
    .await;
    client.delete("/system/config/domain-name").await.unwrap();
    assert!(!hosts().contains("127.0.1.1"), "{}", hosts());
}
