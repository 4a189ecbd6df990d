//! The table between the models: complete, one-to-one, and the same both ways.

use proptest::prelude::*;

use super::*;
use crate::schema::NodeKind;
use crate::tree::Leaf;

fn full_path(schema: &Schema, node: NodeId) -> String {
    let up = |node: &NodeId| schema.node(*node).parent;
    let mut names: Vec<String> = std::iter::successors(Some(node), up)
        .map(|node| schema.node(node).name.to_string())
        .collect();
    names.pop();
    names.reverse();
    format!("/{}", names.join("/"))
}

#[test]
fn every_openconfig_leaf_has_a_row() {
    let schema = &models().openconfig;
    let is_list_key = |node: NodeId| {
        let parent = schema.node(node).parent.map(|parent| &schema.node(parent).kind);
        matches!(parent, Some(NodeKind::List { keys }) if keys.contains(&node))
    };
    let missing: Vec<String> = schema
        .nodes()
        .iter()
        .filter(|node| node.leaf.is_some() && !is_list_key(node.id))
        .filter(|node| !models().map.has_openconfig(node.id))
        .map(|node| full_path(schema, node.id))
        .collect();
    assert!(missing.is_empty(), "no row in openconfig.map for {missing:#?}");
}

#[test]
fn stored_node_hashes_are_stable() {
    let rows = layer_rows_diff(
        models(),
        &Layers::new(),
        after(&["update native:/interfaces/interface[name=eth0]/mtu 1400"]).layers(),
    );
    let hex = |bytes: &[u8]| bytes.iter().map(|it| format!("{it:02x}")).collect::<String>();
    let text: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", hex(&row.key), hex(row.value.as_deref().unwrap_or_default())))
        .collect();
    // When this fails, databases of earlier versions are no longer read.
    assert_eq!(text, STORED);
}

const STORED: [&str; 1] = ["05e5ba61d4050465746830 0025e69eb40003f80a"];

fn up(lines: &[&str]) -> Vec<String> {
    let native = &models().native;
    let leaves: Vec<(InstancePath, Value)> = lines
        .iter()
        .map(|line| {
            let (path, value) = line.rsplit_once('=').unwrap();
            let path = native.resolve_write(&path.parse().unwrap()).unwrap();
            let ty = &native.leaf(path.last().unwrap().node).ty;
            let value = ty.parse_text(value).unwrap();
            (path, value)
        })
        .collect();
    let openconfig = &models().openconfig;
    let found = models().map.up(&leaves);
    found.iter().map(|(path, value)| format!("{}={value}", path.to_path(openconfig))).collect()
}

#[test]
fn only_wanted_counterparts_are_made() {
    let openconfig = &models().openconfig;
    let counter = "/interfaces/interface[name=eth0]/state/counters/in-octets";
    let leaf = models().native.resolve_write(&counter.parse().unwrap()).unwrap();
    let wanted = openconfig.find("/interfaces/interface/state/counters/in-octets").unwrap();
    let found = models().map.up_wanted(&[(leaf, Value::Uint(9))], &|leaf| leaf == wanted);
    let [(path, Value::Uint(9))] = &found[..] else { panic!("{found:?}") };
    assert_eq!(path.to_path(openconfig).to_string(), counter);
}

#[test]
fn native_state_maps_to_openconfig() {
    let check = |native: &str, want: &[&str]| assert_eq!(up(&[native]), want, "{native}");
    let eth0 = "/interfaces/interface[name=eth0]";
    let sub = format!("{eth0}/subinterfaces/subinterface[index=0]");
    check(
        &format!("{eth0}/state/oper-status=UP"),
        &[&format!("{eth0}/state/oper-status=UP"), &format!("{sub}/state/oper-status=UP")],
    );
    check(
        &format!("{eth0}/state/mtu=1500"),
        &[
            &format!("{eth0}/state/mtu=1514"),
            &format!("{sub}/ipv4/state/mtu=1500"),
            &format!("{sub}/ipv6/state/mtu=1500"),
        ],
    );
    check(
        &format!("{eth0}/state/mtu=1000"), // too small for IPv6
        &[&format!("{eth0}/state/mtu=1014"), &format!("{sub}/ipv4/state/mtu=1000")],
    );
    check(&format!("{eth0}/state/mtu=65536"), &[]);
    check(
        &format!("{eth0}/state/ifindex=7"),
        &[&format!("{eth0}/state/ifindex=7"), &format!("{sub}/state/ifindex=7")],
    );
    check(
        &format!("{eth0}/state/counters/in-octets=9"),
        &[
            &format!("{sub}/state/counters/in-octets=9"),
            &format!("{eth0}/state/counters/in-octets=9"),
        ],
    );
    check(
        &format!("{eth0}/state/type=veth"),
        &[&format!("{eth0}/state/type=ethernetCsmacd"), &format!("{eth0}/state/logical=true")],
    );
    check(
        &format!("{eth0}/state/name=eth0"),
        &[
            &format!("{eth0}/state/name=eth0"),
            &format!("{eth0}/state/cpu=false"),
            &format!("{eth0}/state/management=false"),
            &format!("{sub}/state/index=0"),
            &format!("{sub}/state/name=eth0"),
        ],
    );
    let speed = |speed: &str, want: &str| {
        let native = format!("{eth0}/state/port-speed={speed}");
        check(&native, &[&format!("{eth0}/ethernet/state/port-speed={want}")]);
    };
    speed("2500", "SPEED_2500MB");
    speed("1600000", "SPEED_1600GB");
    speed("12345", "SPEED_UNKNOWN");
    check(&format!("{eth0}/state/master=br0"), &[]);
    check(
        &format!("{eth0}/state/aggregate=bond0"),
        &[&format!("{eth0}/ethernet/state/aggregate-id=bond0")],
    );
    let lag = format!("{eth0}/aggregation/state");
    check(&format!("{eth0}/state/bond/mode=802.3ad"), &[&format!("{lag}/lag-type=LACP")]);
    check(&format!("{eth0}/state/bond/mode=balance-xor"), &[&format!("{lag}/lag-type=STATIC")]);
    check(&format!("{eth0}/state/bond/mode=active-backup"), &[]); // OpenConfig has no word for it
    check(&format!("{eth0}/state/bond/min-links=2"), &[&format!("{lag}/min-links=2")]);
    let lacp = "/lacp/interfaces/interface[name=bond0]";
    check(
        "/lacp/interface[name=bond0]/state/active=false",
        &[&format!("{lacp}/state/lacp-mode=PASSIVE")],
    );
    check(
        "/lacp/interface[name=bond0]/member[interface=eth1]/state/active=true",
        &[&format!("{lacp}/members/member[interface=eth1]/state/activity=ACTIVE")],
    );
    check(
        "/lacp/interface[name=bond0]/member[interface=eth1]/state/synchronization=IN_SYNC",
        &[&format!("{lacp}/members/member[interface=eth1]/state/synchronization=IN_SYNC")],
    );
    check(
        &format!("{eth0}/ipv6/address[ip=2001:db8::1]/state/origin=STATIC"),
        &[&format!("{sub}/ipv6/addresses/address[ip=2001:db8::1]/state/origin=STATIC")],
    );
    let route =
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]";
    let static_ = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]\
                   /static-routes/static[prefix=10.0.0.0/8]";
    check(
        &format!("{route}/next-hop[index=a]/state/next-hop=drop"),
        &[&format!("{static_}/next-hops/next-hop[index=a]/state/next-hop=DROP")],
    );
    check(
        &format!("{route}/next-hop[index=a]/state/interface=eth0"),
        &[&format!("{static_}/next-hops/next-hop[index=a]/interface-ref/state/interface=eth0")],
    );
    check(
        &format!("{route}/next-hop[index=a]/state/subinterface=7"),
        &[&format!("{static_}/next-hops/next-hop[index=a]/interface-ref/state/subinterface=7")],
    );
}

#[test]
fn deleted_native_paths_map_to_openconfig_paths() {
    let check = |native: &str, want: &[&str]| {
        let path = models().native.resolve_write(&native.parse().unwrap()).unwrap();
        let found = models().map.up_path(&path);
        let found: Vec<String> =
            found.iter().map(|path| path.to_path(&models().openconfig).to_string()).collect();
        assert_eq!(found, want, "{native}");
    };
    let eth0 = "/interfaces/interface[name=eth0]";
    check(eth0, &[eth0]);
    check(
        &format!("{eth0}/ipv4/address[ip=10.0.0.1]"),
        &[&format!(
            "{eth0}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]"
        )],
    );
    check(
        &format!("{eth0}/ipv4/address[ip=10.0.0.1]/state"),
        &["ip", "origin", "prefix-length", "type"]
            .map(|leaf| {
                format!(
                    "{eth0}/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=10.0.0.1]/state/{leaf}"
                )
            })
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    check(&format!("{eth0}/master"), &[]);
}

/// Values of some leaves that both models have, as native text.
fn mapped_leaf() -> impl Strategy<Value = (String, String)> {
    let name = "[a-z][a-z0-9]{0,6}";
    let eth = "/interfaces/interface";
    prop_oneof![
        (name, 68u32..=65521).prop_map(move |(n, mtu)| (format!("{eth}[name={n}]/mtu"), mtu.to_string())),
        (name, any::<bool>()).prop_map(move |(n, on)| (format!("{eth}[name={n}]/enabled"), on.to_string())),
        (name, prop::sample::select(vec![10u32, 2_500, 1_600_000])).prop_map(move |(n, mbps)| {
            (format!("{eth}[name={n}]/port-speed"), mbps.to_string())
        }),
        (name, any::<bool>()).prop_map(move |(n, on)| (format!("{eth}[name={n}]/auto-negotiate"), on.to_string())),
        (name, prop::sample::select(vec!["802.3ad", "balance-xor"])).prop_map(move |(n, mode)| {
            (format!("{eth}[name={n}]/bond/mode"), mode.to_owned())
        }),
        (name, name).prop_map(move |(n, bond)| (format!("{eth}[name={n}]/aggregate"), bond)),
        (name, any::<bool>()).prop_map(move |(n, on)| (format!("/lacp/interface[name={n}]/active"), on.to_string())),
        (name, 1u16..).prop_map(move |(n, priority)| {
            (format!("/lacp/interface[name={n}]/system-priority"), priority.to_string())
        }),
        (name, 0u8..=255, 0u8..=32).prop_map(move |(n, ip, length)| {
            (format!("{eth}[name={n}]/ipv4/address[ip=10.0.0.{ip}]/prefix-length"), length.to_string())
        }),
        (name, 0u16..=999, "0[02468ace](:[0-9a-f]{2}){5}").prop_map(move |(n, ip, mac)| {
            (format!("{eth}[name={n}]/ipv6/neighbor[ip=2001:db8::{ip}]/link-layer-address"), mac)
        }),
        (name, 0u8..=255, name, prop::sample::select(vec!["drop", "192.0.2.1", "2001:db8::1"])).prop_map(
            |(n, net, index, hop)| {
                let path = format!(
                    "/network-instances/network-instance[name=DEFAULT]/static[name={n}]/route[prefix=10.{net}.0.0/16]\
                     /next-hop[index={index}]/next-hop"
                );
                (path, hop.to_owned())
            }
        ),
    ]
}

proptest! {
    /// Rows are one-to-one on keys, so a path and a value survive the way there and back.
    #[test]
    fn leaf_translation_is_invertible((path, text) in mapped_leaf()) {
        let native = &models().native;
        let at = native.resolve_write(&path.parse().unwrap()).unwrap();
        let value = native.leaf(at.last().unwrap().node).ty.parse_text(&text).unwrap();
        let above = models().map.up(&[(at.clone(), value.clone())]);
        prop_assert_eq!(above.len(), 1);
        let (above, converted) = &above[0];
        prop_assert_eq!(models().map.path_to_native(above), Some(at.clone()));
        prop_assert_eq!(models().map.down(above, converted).unwrap(), Some((at.clone(), value.clone())));
        // And as trees: OpenConfig's layer becomes just this native leaf.
        let mut layers = Layers::new();
        layers.tree_mut(LayerKey::CLIENT_OPENCONFIG).set_leaf(
            &models().openconfig, above, Leaf::new(converted.clone(), LeafMark::Explicit),
        );
        let configuration = Configuration::new(models().clone(), layers);
        let leaf = configuration.effective().find_leaf(&at);
        prop_assert_eq!(leaf.map(|leaf| leaf.value), Some(value));
    }
}
