//! `holdfast adopt`: what others have set up becomes the configuration, without a packet lost.

use std::process::{Command, Output};

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::netns::Netns;
use serde_json::Value;
use tempfile::TempDir;

use crate::config_command::config;
use crate::foreign_routes::{Traffic, ports};
use crate::routes::OURS;

/// Runs `holdfast adopt ARGUMENTS` without an agent.
fn adopt_alone(arguments: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(binary());
    command.arg("adopt").args(arguments).arg("--state-dir").arg(folder.path());
    command.output().unwrap()
}

#[track_caller]
fn answer(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn adopt(agent: &AgentProcess, arguments: &[&str]) -> String {
    answer(agent.command("adopt").args(arguments).output().unwrap())
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// A box that somebody has set up by hand, with a lease, a routing daemon and a rule of policy routing.
fn set_up_by_hand() -> Netns {
    let net = ports(&["eth0", "eth1"]);
    for command in [
        "link set eth0 mtu 1400 alias uplink",
        "link add br0 type bridge ageing_time 6000",
        "link set br0 up",
        "link set eth1 master br0",
        "link add v0 type veth peer name v1",
        "address add 10.0.0.10/24 dev eth0",
        "address add 2001:db8::10/64 dev eth0 nodad",
        "address add 10.9.1.7/24 dev br0 valid_lft 1000 preferred_lft 1000",
        "neighbor add 10.0.0.77 lladdr 02:00:00:00:00:77 dev eth0 nud permanent",
        "route add default via 10.0.0.254",
        "route add 198.51.100.0/24 via 10.0.0.253 metric 70 proto static",
        "route add 203.0.113.0/24 via 10.0.0.252 proto zebra",
        "route add blackhole 192.0.2.0/24",
        "nexthop add id 5 via 10.0.0.252 dev eth0",
        "route add 203.0.114.0/24 nhid 5",
        "route add 203.0.115.0/24 via 10.0.0.252 mtu 1300",
        "route add 203.0.116.0/24 via 10.9.9.9 dev eth0 onlink",
        "route add 192.0.2.0/24 via 10.0.0.252 metric 20",
        "-6 route add 2001:db8:1::/48 via 2001:db8::fe",
        "rule add priority 100 table 77",
    ] {
        net.ip(command);
    }
    net
}

#[tokio::test]
async fn what_is_printed_makes_the_same_box_again() {
    let net = set_up_by_hand();
    let text = answer(adopt_alone(&[]));
    for line in [
        "interface eth0\n",
        "  mtu 1400\n",
        "  description uplink\n",
        "interface br0\n",
        "  type bridge\n",
        "  master br0\n",
        "    address 10.0.0.10\n",
        "      prefix-length 24\n",
        "    address 2001:db8::10\n",
        "    neighbor 10.0.0.77\n",
        "    route 0.0.0.0/0\n",
        "    route 192.0.2.0/24\n",
        "    route 2001:db8:1::/48\n",
        "# address 10.9.1.7/24 of br0: it has a lifetime",
        "# route 203.0.113.0/24: protocol zebra looks after it\n",
        "# route 203.0.114.0/24: it has a next-hop object, which is not modelled\n",
        "# route 203.0.115.0/24: it has metrics such as an MTU, which is not modelled\n",
        "# route 203.0.116.0/24: it has the flag `onlink`, which is not modelled\n",
        "# route 192.0.2.0/24: another route to it would have metric 20, too\n",
        "# rule 100: rules of policy routing are not modelled\n",
    ] {
        assert!(text.contains(line), "`{line}` is missing:\n{text}");
    }
    let config_text = without_comments(&text);
    for left_out in ["10.9.1.7", "203.0.113.0", "fe80", "lo\n"] {
        assert!(!config_text.contains(left_out), "{left_out}:\n{text}");
    }
    let addresses = net.addresses("eth0");
    drop(net);

    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    config(&agent, &["set", "-"], &text);
    assert_eq!(net.addresses("eth0"), addresses);
    assert_eq!(net.link("eth0").mtu, 1400);
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    let routes = net.ip("route show proto 150");
    for route in ["default via 10.0.0.254", "198.51.100.0/24 via 10.0.0.253", "blackhole 192.0.2.0"]
    {
        assert!(routes.contains(route), "{route}: {routes}");
    }
    assert!(routes.contains("metric 70"), "{routes}");
    assert_eq!(agent.show("pending"), "", "everything is in the kernel");
    let again = adopt(&agent, &[]);
    assert_eq!(without_comments(&again), config_text, "the same box");
}

#[tokio::test]
async fn adopting_loses_no_packet_and_is_taken_back_or_kept() {
    let net = ports(&["eth0"]);
    net.ip("address add 10.0.0.10/24 dev eth0");
    net.ip("route add default via 10.0.0.254");
    let theirs = net.ip("route show default");
    let agent = AgentProcess::start(&net).await;
    let traffic = Traffic::to("198.51.100.1:9");

    let applied = adopt(&agent, &["--apply"]);
    assert!(applied.contains("\nplan "), "the plan comes first: {applied}");
    assert!(applied.contains("is taken back in 120 s unless"), "{applied}");
    assert_eq!(net.routes(OURS).len(), 1, "{applied}");
    config(&agent, &["cancel"], "");
    assert_eq!(net.ip("route show default"), theirs, "it is as it was");
    assert_eq!(config(&agent, &["show"], ""), "");

    adopt(&agent, &["--apply", "--port", "eth0"]);
    let kept = adopt(&agent, &["--confirm"]);
    assert!(kept.contains("is kept"), "{kept}");
    assert_eq!(net.routes(OURS).len(), 1);
    assert_eq!(net.addresses("eth0"), ["10.0.0.10/24"]);
    traffic.end();

    let again = adopt(&agent, &["--apply", "--port", "eth0"]);
    assert!(again.starts_with("nothing is changed"), "{again}");
    let refused = agent.command("adopt").arg("--confirm").output().unwrap();
    assert!(!refused.status.success(), "no commit waits: {refused:?}");
}

#[tokio::test]
async fn a_port_is_adopted_alone_and_printed_in_either_model() {
    let net = set_up_by_hand();
    let one = answer(adopt_alone(&["--port", "br0"]));
    assert!(one.contains("interface br0\n") && one.contains("10.9.1.7/24 of br0"), "{one}");
    assert!(!one.contains("interface eth0") && !one.contains("route 0.0.0.0/0"), "{one}");
    let missing = adopt_alone(&["--port", "eth7"]);
    let reason = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && reason.contains("eth7"), "{reason}");

    let text = answer(adopt_alone(&["--port", "eth0", "--openconfig"]));
    let document: Value = serde_json::from_str(&text).unwrap();
    let ports = &document["openconfig-interfaces:interfaces"]["interface"];
    assert_eq!(ports[0]["name"], "eth0", "{text}");
    assert_eq!(ports[0]["config"]["description"], "uplink", "{text}");
    assert!(text.contains("10.0.0.10") && text.contains("0.0.0.0/0"), "{text}");
    assert!(!text.contains("br0"), "{text}");
    drop(net);
}
