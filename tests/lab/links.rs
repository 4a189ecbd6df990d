//! Every parameter of every kind of link, changed by a client and read back, on a kernel that has all of them.

use std::collections::BTreeSet;

use holdfast_platform::values::LINK_ROWS;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::in_lab;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

/// The link after a change of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The link keeps its index.
    InPlace,
    /// Another link, with another index, has the name.
    Recreate,
}

/// A parameter, with a value before and after, each as it is configured and as `ip` shows it.
struct Case {
    kind: &'static str,
    leaf: &'static str,
    /// Where `ip -details -json link show` has it.
    shown_at: &'static str,
    before: [Value; 2],
    after: [Value; 2],
    change: Change,
}

fn case(
    kind: &'static str,
    leaf: &'static str,
    shown_at: &'static str,
    [before, after]: [[Value; 2]; 2],
    change: Change,
) -> Case {
    Case { kind, leaf, shown_at, before, after, change }
}

/// A value that `ip` shows as it is configured.
fn as_is(value: impl Into<Value>) -> [Value; 2] {
    let value = value.into();
    [value.clone(), value]
}

/// All parameters, except those of bonds, for which `bonds.rs` has more than one value each.
fn cases() -> Vec<Case> {
    use Change::{InPlace, Recreate};
    let flag = |on: bool| [json!(on), json!(u8::from(on))];
    vec![
        case("bridge", "stp", "/linkinfo/info_data/stp_state", [flag(false), flag(true)], InPlace),
        case(
            "bridge",
            "vlan-filtering",
            "/linkinfo/info_data/vlan_filtering",
            [flag(false), flag(true)],
            InPlace,
        ),
        // The kernel counts hundredths of a second.
        case(
            "bridge",
            "ageing-time",
            "/linkinfo/info_data/ageing_time",
            [[json!(300), json!(30_000)], [json!(60), json!(6000)]],
            InPlace,
        ),
        case("vxlan", "vni", "/linkinfo/info_data/id", [as_is(10), as_is(11)], Recreate),
        case("vxlan", "port", "/linkinfo/info_data/port", [as_is(4789), as_is(4790)], Recreate),
        case(
            "vxlan",
            "learning",
            "/linkinfo/info_data/learning",
            [as_is(true), as_is(false)],
            Recreate,
        ),
        case(
            "vxlan",
            "local",
            "/linkinfo/info_data/local",
            [as_is("10.0.0.1"), as_is("10.0.1.1")],
            Recreate,
        ),
        case(
            "vxlan",
            "remote",
            "/linkinfo/info_data/remote",
            [as_is("10.0.0.2"), as_is("10.0.1.2")],
            Recreate,
        ),
        case(
            "vxlan",
            "device",
            "/linkinfo/info_data/link",
            [as_is("eth0"), as_is("eth1")],
            Recreate,
        ),
        case("macvlan", "device", "/link", [as_is("eth0"), as_is("eth1")], Recreate),
        case(
            "macvlan",
            "mode",
            "/linkinfo/info_data/mode",
            [as_is("private"), as_is("vepa")],
            InPlace,
        ),
        case("ipvlan", "device", "/link", [as_is("eth0"), as_is("eth1")], Recreate),
        case("ipvlan", "mode", "/linkinfo/info_data/mode", [as_is("l3"), as_is("l2")], InPlace),
        case("veth", "peer", "/link", [as_is("far0"), as_is("far1")], Recreate),
        case("vlan", "vlan-id", "/linkinfo/info_data/id", [as_is(5), as_is(6)], Recreate),
        case(
            "vlan",
            "protocol",
            "/linkinfo/info_data/protocol",
            [as_is("802.1Q"), as_is("802.1ad")],
            Recreate,
        ),
    ]
}

impl Case {
    /// Name of the link.
    fn link(&self) -> &'static str {
        if self.kind == "vlan" { "eth0.5" } else { "link0" }
    }

    /// The path and the content of an entry with this value.
    fn entry(&self, value: &Value) -> (String, Value) {
        if self.kind == "vlan" {
            let mut vlan = json!({"index": 5, "vlan-id": 5});
            vlan[self.leaf] = value.clone();
            return ("holdfast_native:/interfaces/interface[name=eth0]/vlan[index=5]".into(), vlan);
        }
        let mut params = match self.kind {
            "vxlan" => json!({"vni": 10, "local": "10.0.0.1", "remote": "10.0.0.2"}),
            "macvlan" | "ipvlan" => json!({"device": "eth0"}),
            _ => json!({}),
        };
        params[self.leaf] = value.clone();
        let entry = json!({"type": self.kind, (self.kind): params});
        ("holdfast_native:/interfaces/interface[name=link0]".into(), entry)
    }

    /// The link as the kernel has it, and the parameter.
    fn shown(&self, net: &Netns) -> (Value, Value) {
        let links = net.ip_json("-details link show");
        let link = links.iter().find(|link| link["ifname"] == self.link());
        let link = link.unwrap_or_else(|| panic!("{} {}: no link", self.kind, self.leaf));
        (link["ifindex"].clone(), link.pointer(self.shown_at).cloned().unwrap_or_default())
    }
}

#[tokio::test]
async fn every_parameter_of_a_link_changes_as_its_row_says() {
    in_lab!({
        let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        for case in cases() {
            let what = format!("{} {}", case.kind, case.leaf);
            let (path, before) = case.entry(&case.before[0]);
            client.replace(&path, before).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let (index, value) = case.shown(&net);
            assert_eq!(value, case.before[1], "{what}, before the change");

            let (_, after) = case.entry(&case.after[0]);
            client.replace(&path, after).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let (new_index, value) = case.shown(&net);
            assert_eq!(value, case.after[1], "{what}, after the change");
            let change = if index == new_index { Change::InPlace } else { Change::Recreate };
            assert_eq!(change, case.change, "{what}");

            client.delete(&path).await.unwrap();
            eventually(&format!("{what}: the link is gone"), || {
                net.find_link(case.link()).is_none()
            })
            .await;
        }
        let pending = agent.show("pending");
        assert!(!pending.contains("link0"), "{pending}");
    });
}

#[test]
fn every_parameter_of_a_link_has_a_case() {
    let mut missing = BTreeSet::new();
    let known = cases();
    for row in LINK_ROWS.iter().filter(|row| row.name != "bond") {
        for param in row.params {
            let has_case = known.iter().any(|it| it.kind == row.name && it.leaf == param.leaf);
            // The port of a VLAN is the entry around it, and `vlans.rs` gives a VLAN another name.
            let is_elsewhere = row.name == "vlan" && ["device", "link-name"].contains(&param.leaf);
            if !has_case && !is_elsewhere {
                missing.insert((row.name, param.leaf));
            }
        }
    }
    assert_eq!(missing, BTreeSet::new());
}
