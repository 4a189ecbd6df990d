//! Settings of links that the kernel has as sysctls: reverse path filter, proxy ARP, duplicate addresses, autoconfiguration.

use std::path::Path;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::{ipv4_of, ipv6_of, port};
use crate::foreign_routes::ports;

/// Contents of a file of eth0.
fn file(net: &Netns, family: &str, name: &str) -> String {
    net.sysctl(&format!("{family}/conf/eth0/{name}"))
}

/// All that the tests below change, of eth0.
fn files(net: &Netns) -> [String; 6] {
    [
        file(net, "ipv4", "rp_filter"),
        file(net, "ipv4", "proxy_arp"),
        file(net, "ipv4", "proxy_arp_pvlan"),
        file(net, "ipv6", "dad_transmits"),
        file(net, "ipv6", "autoconf"),
        file(net, "ipv6", "accept_ra"),
    ]
}

/// eth0 with all of these settings, in OpenConfig.
fn configured() -> Value {
    let mut eth0 = port("eth0", &["10.0.0.1/24"]);
    let subinterface = &mut eth0["subinterfaces"]["subinterface"][0];
    subinterface["openconfig-if-ip:ipv4"]["urpf"] =
        json!({"config": {"enabled": true, "mode": "LOOSE"}});
    subinterface["openconfig-if-ip:ipv4"]["proxy-arp"] = json!({"config": {"mode": "ALL"}});
    subinterface["openconfig-if-ip:ipv6"] = json!({
        "config": {"dup-addr-detect-transmits": 3},
        "openconfig-if-ip-ext:autoconf": {"config": {"create-global-addresses": true}},
    });
    json!({"interface": [eth0]})
}

#[tokio::test]
async fn settings_are_written_shown_repaired_and_given_back() {
    let net = ports(&["eth0"]);
    std::fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", "1").unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/eth0/dad_transmits", "2").unwrap();
    let before = files(&net);
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", configured()).await.unwrap();
    assert_eq!(files(&net), ["2", "1", "1", "3", "1", "2"]);
    let ipv4 = ipv4_of("eth0");
    let ipv6 = ipv6_of("eth0");
    for (path, want) in [
        (format!("{ipv4}/urpf/state/enabled"), json!(true)),
        (format!("{ipv4}/urpf/state/mode"), json!("LOOSE")),
        (format!("{ipv4}/proxy-arp/state/mode"), json!("ALL")),
        (format!("{ipv6}/state/dup-addr-detect-transmits"), json!(3)),
        (format!("{ipv6}/autoconf/state/create-global-addresses"), json!(true)),
    ] {
        assert_eq!(client.read(&path).await.unwrap(), want, "{path}");
        let config = path.replace("/state/", "/config/");
        assert_eq!(client.read(&config).await.unwrap(), want, "{config}");
    }

    // Others change files whose changes the kernel announces, one after the other.
    for (name, value, wanted) in [("rp_filter", "0", "2"), ("proxy_arp", "0", "1")] {
        std::fs::write(format!("/proc/sys/net/ipv4/conf/eth0/{name}"), value).unwrap();
        eventually("it is repaired", || file(&net, "ipv4", name) == wanted).await;
    }
    // Below an MTU of 1280 the kernel has no IPv6 on the link, and afterwards that of a new link.
    net.ip("link set eth0 mtu 1000");
    eventually("IPv6 is gone", || !Path::new("/proc/sys/net/ipv6/conf/eth0").exists()).await;
    net.ip("link set eth0 mtu 1500");
    eventually("the settings of IPv6 are back", || {
        Path::new("/proc/sys/net/ipv6/conf/eth0").exists()
            && files(&net) == ["2", "1", "1", "3", "1", "2"]
    })
    .await;
    // Other changes are found when everything is read again, as at a start.
    agent.kill();
    std::fs::write("/proc/sys/net/ipv6/conf/eth0/dad_transmits", "9").unwrap();
    std::fs::write("/proc/sys/net/ipv4/conf/eth0/proxy_arp_pvlan", "0").unwrap();
    agent.restart().await;
    eventually("all of it is repaired", || files(&net) == ["2", "1", "1", "3", "1", "2"]).await;

    let client = agent.gnmi().await;
    client.update(&format!("{ipv4}/urpf/config/mode"), json!("STRICT")).await.unwrap();
    client.update(&format!("{ipv4}/proxy-arp/config/mode"), json!("REMOTE_ONLY")).await.unwrap();
    let addresses = format!("{ipv6}/autoconf/config/create-global-addresses");
    client.update(&addresses, json!(false)).await.unwrap();
    assert_eq!(files(&net), ["1", "1", "0", "3", "0", "1"]);
    client.update(&format!("{ipv4}/urpf/config/enabled"), json!(false)).await.unwrap();
    assert_eq!(file(&net, "ipv4", "rp_filter"), "0");
    // The kernel goes by the stricter of the filters.
    std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "1").unwrap();
    eventually_async("the filter for all links is shown", async || {
        let mode = client.read(&format!("{ipv4}/urpf/state/mode")).await;
        mode.is_ok_and(|mode| mode == json!("STRICT"))
    })
    .await;
    assert!(agent.show("pending").is_empty(), "{}", agent.show("pending"));

    client.delete("/interfaces").await.unwrap();
    assert_eq!(files(&net), before);
}

#[tokio::test]
async fn a_setting_without_a_value_is_refused_by_leaf() {
    let net = ports(&["eth0"]);
    let before = files(&net);
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", json!({"interface": [port("eth0", &[])]})).await.unwrap();
    let ipv6 = ipv6_of("eth0");
    for (path, value, reason) in [
        (format!("{ipv6}/urpf/config/enabled"), json!(true), "no reverse path filter for IPv6"),
        (
            format!("{ipv6}/config/dup-addr-detect-transmits"),
            json!(4_000_000_000_u32),
            "dup-addr-detect-transmits",
        ),
        (format!("{}/proxy-arp/config/mode", ipv4_of("eth0")), json!("SOME"), "mode"),
    ] {
        let error = client.update(&path, value).await.unwrap_err();
        assert!(error.message().contains(reason), "{path}: {error:?}");
        assert!(matches!(error.code(), Code::InvalidArgument | Code::Unimplemented), "{error:?}");
    }
    // A mode alone filters nothing, and the settings that nobody names stay as they are.
    client.update(&format!("{}/urpf/config/mode", ipv4_of("eth0")), json!("STRICT")).await.unwrap();
    assert_eq!(files(&net), before);
}
