use std::time::Duration;

mod adoption;

use holdfast_config::tree::{Leaf, Tree};
use holdfast_config::{LayerKey, LayerSet, Path, ProvenanceKind};

use super::state::{Planes, StateEntry};
use super::*;
use crate::kinds;
use crate::values::{
    Address, AddressFacts, AddressOrigin, BOND, BRIDGE, DUMMY, Duplex, Ethernet, IPVLAN, Lacp,
    LacpSystem, Link, LinkFacts, LinkKind, MACVLAN, MacAddr, MadeLink, OperState, VETH, VLAN,
    VXLAN,
};

use holdfast_scheduler::SharedValue;

/// Configuration as `path = value` lines of the native model; the registry and its schema.
pub(crate) struct Model {
    schema: Schema,
    pub(crate) registry: Registry,
}

impl Model {
    pub(crate) fn new() -> Self {
        let schema = Schema::native().unwrap();
        let registry = Registry::new(&schema).unwrap();
        Self { schema, registry }
    }

    pub(crate) fn path(&self, text: &str) -> InstancePath {
        let path: Path = text.parse().unwrap();
        self.schema.resolve_write(&path).unwrap()
    }

    fn tree(&self, lines: &str, layer: LayerKey) -> Tree<Provenance> {
        let mut tree = Tree::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, text) = line.split_once(" = ").unwrap();
            let path = self.path(path);
            let leaf = self.schema.leaf(path.last().unwrap().node);
            let value = leaf.ty.parse_text(text).unwrap();
            let prov = Provenance { kind: ProvenanceKind::Explicit, owners: LayerSet::of(layer) };
            tree.set_leaf(&self.schema, &path, Leaf::new(value, prov));
        }
        tree
    }

    /// The only value of an object.
    fn value(&self, object: &str, lines: &str) -> Result<(Key, SharedValue), ObjectError> {
        let mut values = self.values_of(LayerKey::CLIENT_NATIVE, object, lines)?;
        assert_eq!(values.len(), 1, "{values:?}");
        Ok(values.remove(0))
    }

    fn values(&self, object: &str, lines: &str) -> Result<ObjectValues, ObjectError> {
        self.values_of(LayerKey::CLIENT_NATIVE, object, lines)
    }

    /// Values of an object. Its keys are those of its values.
    fn values_of(
        &self,
        layer: LayerKey,
        object: &str,
        lines: &str,
    ) -> Result<ObjectValues, ObjectError> {
        let tree = self.tree(lines, layer);
        let path = self.path(object);
        let branch = tree.find_branch(&path.0).unwrap_or_default();
        let values = self.registry.values_in(&tree, &path, &branch)?;
        let mut keys: Vec<Key> = values.iter().map(|(key, _)| key.clone()).collect();
        let mut all_keys = self.registry.keys(&path, &branch).unwrap().to_vec();
        keys.sort_unstable();
        all_keys.sort_unstable();
        assert_eq!(all_keys, keys);
        Ok(values)
    }

    /// State leaves that are configuration in force.
    fn configured_state(&self, object: &str, lines: &str) -> String {
        let tree = self.tree(lines, LayerKey::CLIENT_NATIVE);
        let path = self.path(object);
        let branch = tree.find_branch(&path.0).unwrap_or_default();
        self.values(object, lines).unwrap();
        assert!(self.registry.has_configured_state(&path));
        self.lines(&self.registry.configured_state(&path, &branch).unwrap())
    }

    pub(crate) fn path_text(&self, path: &InstancePath) -> String {
        path.to_path(&self.schema).to_string()
    }

    fn state(&self, key: &Key, planes: Planes<'_>) -> String {
        self.registry.state(key, planes).map_or_else(String::new, |entry| self.lines(&entry))
    }

    fn lines(&self, entry: &StateEntry) -> String {
        let line = |(path, value): (InstancePath, &Value)| {
            assert!(path.starts_with(&entry.path));
            format!("{} = {value}", path.to_path(&self.schema))
        };
        entry.leaves().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn every_object_of_the_native_model_has_one_kind() {
    let model = Model::new();
    let nodes = (0..).zip(model.schema.nodes()).filter(|(_, node)| node.object.is_some());
    let objects: Vec<NodeId> = nodes.map(|(number, _)| NodeId(number)).collect();
    assert!(objects.len() > 10, "{objects:?}");
    let mut lists: Vec<NodeId> =
        model.registry.natives.iter().flat_map(|native| native.lists()).collect();
    lists.sort_unstable();
    assert_eq!(lists, objects);
}

#[test]
fn objects_become_values() {
    let check = |object: &str, lines: &str, label: &str, want: &[&str]| {
        let (key, value) = Model::new().value(object, lines).unwrap();
        let registry = kinds::registry();
        assert_eq!(registry.label(&key, Some(&*value)), label);
        assert_eq!(key, registry.descriptor(key.kind()).unwrap().key(&*value));
        let text = format!("{value:?}");
        want.iter().for_each(|part| assert!(text.contains(part), "{part} in {text}"));
    };
    let eth0 = "/interfaces/interface[name=eth0]";
    check(
        eth0,
        "/interfaces/interface[name=eth0]/mtu = 1400
         /interfaces/interface[name=eth0]/enabled = false
         /interfaces/interface[name=eth0]/mac-address = 02:00:00:00:00:01
         /interfaces/interface[name=eth0]/ipv6/forwarding = true",
        "link eth0",
        &[
            "Physical",
            "enabled: false",
            "mtu: Some(1400)",
            "sysctl: Forwarding, family: V6, values: [1]",
        ],
    );
    check("/interfaces/interface[name=lo]", "", "link lo", &["Loopback"]);
    check(
        eth0,
        &format!("{eth0}/aggregate = bond0"),
        "link eth0",
        &[r#"master: Some("bond0")"#, r#"master_kind: Some("bond")"#],
    );
    let bond0 = "/interfaces/interface[name=bond0]";
    check(
        bond0,
        &format!("{bond0}/type = bond\n{bond0}/master = br0"),
        "link bond0",
        &["802.3ad", "min-links: 0", "miimon: 100", "layer2", r#"master_kind: Some("bridge")"#],
    );
    check(
        bond0,
        &format!(
            "{bond0}/type = bond\n{bond0}/bond/mode = balance-xor\n{bond0}/bond/min-links = 1
             {bond0}/bond/miimon = 50\n{bond0}/bond/xmit-hash-policy = layer3+4"
        ),
        "link bond0",
        &["balance-xor", "min-links: 1", "miimon: 50", "layer3+4"],
    );
    let lacp = "/lacp/interface[name=bond0]";
    check(lacp, "", "LACP of bond0", &["is_fast: false", "is_active: true", "priority: 65535"]);
    check(
        lacp,
        &format!(
            "{lacp}/interval = FAST\n{lacp}/active = false\n{lacp}/system-priority = 7
             {lacp}/system-mac = 02:00:00:00:00:09"
        ),
        "LACP of bond0",
        &["is_fast: true", "is_active: false", "priority: 7", "2, 0, 0, 0, 0, 9"],
    );
    let of_all = "/lacp/system-priority = 5";
    check(lacp, of_all, "LACP of bond0", &["priority: 5"]);
    check(
        lacp,
        &format!("{of_all}\n{lacp}/system-priority = 7"),
        "LACP of bond0",
        &["priority: 7"],
    );
    check("/lacp", of_all, "LACP of all bonds", &["priority: 5"]);
    check(
        "/interfaces/interface[name=v0]",
        "/interfaces/interface[name=v0]/type = veth
         /interfaces/interface[name=v0]/veth/peer = v1",
        "link v0",
        &["veth { peer: v1 }"],
    );
    check(
        "/interfaces/interface[name=vx]",
        "/interfaces/interface[name=vx]/type = vxlan
         /interfaces/interface[name=vx]/vxlan/vni = 7",
        "link vx",
        &["vni: 7", "port: 4789", "learning: true"],
    );
    check(
        "/interfaces/interface[name=eth0]/ipv4/address[ip=192.0.2.1]",
        "/interfaces/interface[name=eth0]/ipv4/address[ip=192.0.2.1]/prefix-length = 24",
        "address 192.0.2.1/24 of eth0",
        &[],
    );
    check(
        "/interfaces/interface[name=eth0]/ipv6/neighbor[ip=2001:db8::7]",
        "/interfaces/interface[name=eth0]/ipv6/neighbor[ip=2001:db8::7]/link-layer-address = 02:00:00:00:00:07",
        "neighbor 2001:db8::7 of eth0",
        &[],
    );
    check(
        "/interfaces/interface[name=Loopback100]",
        "/interfaces/interface[name=Loopback100]/type = loopback",
        "link Loopback100",
        &["dummy"],
    );
    check(
        "/interfaces/interface[name=m0]",
        "/interfaces/interface[name=m0]/type = macvlan
         /interfaces/interface[name=m0]/macvlan/device = eth0
         /interfaces/interface[name=m0]/macvlan/mode = bridge",
        "link m0",
        &["macvlan { device: eth0, mode: bridge }"],
    );
    let vlan = "/interfaces/interface[name=eth0]/vlan[index=100]";
    check(
        vlan,
        "/interfaces/interface[name=eth0]/vlan[index=100]/vlan-id = 7
         /interfaces/interface[name=eth0]/vlan[index=100]/mtu = 1400
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv6/forwarding = true",
        "link eth0.100",
        &[
            "vlan { vlan-id: 7, protocol: 802.1Q, device: eth0 }",
            "mtu: Some(1400)",
            "sysctl: Forwarding, family: V6, values: [1]",
        ],
    );
    let long = "/interfaces/interface[name=a-long-name-123]/vlan[index=100]";
    check(
        long,
        &format!("{long}/vlan-id = 7\n{long}/link-name = mgmt"),
        "link a-long-name-123.100 called mgmt",
        &["device: a-long-name-123, link-name: mgmt"],
    );
    check(vlan, &format!("{vlan}/vlan-id = 7\n{vlan}/link-name = eth0.100"), "link eth0.100", &[]);
    check(
        vlan,
        "/interfaces/interface[name=eth0]/vlan[index=100]/vlan-id = 7
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv4/urpf/enabled = true
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv4/urpf/mode = LOOSE
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv4/proxy-arp = ALL
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv6/dad-transmits = 3
         /interfaces/interface[name=eth0]/vlan[index=100]/ipv6/autoconf = true",
        "link eth0.100",
        &[
            "sysctl: ReversePath, family: V4, values: [2]",
            "sysctl: ProxyArp, family: V4, values: [1, 1]",
            "sysctl: DadTransmits, family: V6, values: [3]",
            "sysctl: Autoconf, family: V6, values: [1, 2]",
        ],
    );
    check(
        &format!("{vlan}/ipv4/address[ip=192.0.2.1]"),
        &format!("{vlan}/ipv4/address[ip=192.0.2.1]/prefix-length = 24"),
        "address 192.0.2.1/24 of eth0.100",
        &[],
    );
    check(
        &format!("{vlan}/ipv6/neighbor[ip=2001:db8::7]"),
        &format!("{vlan}/ipv6/neighbor[ip=2001:db8::7]/link-layer-address = 02:00:00:00:00:07"),
        "neighbor 2001:db8::7 of eth0.100",
        &[],
    );
    check("/system", "/system/motd-banner = hello", "file etc/motd", &["hello"]);
}

const ROUTE: &str =
    "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]";

#[test]
fn an_object_has_a_value_for_each_object_of_the_system() {
    let check = |object: &str, lines: &str, want: &[(&str, &str)]| {
        let values = Model::new().values(object, lines).unwrap();
        let registry = kinds::registry();
        let labels: Vec<_> =
            values.iter().map(|(key, value)| registry.label(key, Some(&**value))).collect();
        assert_eq!(labels, want.iter().map(|(label, _)| *label).collect::<Vec<_>>(), "{object}");
        for ((key, value), (_, part)) in values.iter().zip(want) {
            assert_eq!(*key, registry.descriptor(key.kind()).unwrap().key(&**value));
            let text = format!("{value:?}");
            assert!(text.contains(part), "{part} in {text}");
        }
    };
    check(
        ROUTE,
        &format!(
            "{ROUTE}/next-hop[index=a]/next-hop = 192.0.2.2
             {ROUTE}/next-hop[index=b]/interface = eth1
             {ROUTE}/next-hop[index=b]/metric = 5
             {ROUTE}/next-hop[index=c]/next-hop = drop
             {ROUTE}/next-hop[index=c]/metric = 9
             {ROUTE}/next-hop[index=d]/next-hop = 192.0.2.3"
        ),
        &[
            ("route 10.0.0.0/8 metric 5", "OnLink"),
            ("route 10.0.0.0/8 metric 9", "Blackhole"),
            ("route 10.0.0.0/8 metric 20", "Gateway(192.0.2.3)"),
        ],
    );
    check(
        ROUTE,
        &format!(
            "{ROUTE}/next-hop[index=a]/interface = eth0
             {ROUTE}/next-hop[index=a]/subinterface = 100
             {ROUTE}/next-hop[index=b]/interface = eth0
             {ROUTE}/next-hop[index=b]/subinterface = 0
             {ROUTE}/next-hop[index=b]/metric = 9"
        ),
        &[
            ("route 10.0.0.0/8 metric 9", r#"link: Some("eth0")"#),
            ("route 10.0.0.0/8 metric 20", r#"link: Some("eth0.100")"#),
        ],
    );
    check(
        "/system",
        "/system/hostname = box
         /system/domain-name = example.com
         /system/login-banner = hello",
        &[
            ("file etc/hostname", "box"),
            ("file etc/hosts", "127.0.1.1 box.example.com box"),
            ("file etc/issue", "hello"),
            ("host name box", "box"),
        ],
    );
    let search_domains = vec!["a.example".into(), "b.example".into()];
    let system = System { search_domains, ..System::default() };
    let (key, value) = system.values().remove(0);
    assert_eq!(kinds::registry().key_text(&key), "file/etc%2Fresolv.conf");
    assert!(format!("{value:?}").contains("search a.example b.example"), "{value:?}");
    for (object, lines) in [
        ("/system/user[username=a]", "/system/user[username=a]/role = admin"),
        ("/system/user[username=a]", ""),
        ("/system/grpc-server[name=DEFAULT]", ""),
        ("/reconciliation", "/reconciliation/resync-interval = 60"),
        (
            "/reconciliation/drift-policy[object=link]",
            "/reconciliation/drift-policy[object=link]/action = report",
        ),
        ("/network-instances/network-instance[name=DEFAULT]", ""),
        ("/network-instances/network-instance[name=DEFAULT]/static[name=s]", ""),
        (ROUTE, ""),
    ] {
        check(object, lines, &[]);
    }
}

#[test]
fn a_change_touches_the_keys_before_and_after_it() {
    let model = Model::new();
    let keys = |lines: &str| {
        let tree = model.tree(lines, LayerKey::CLIENT_NATIVE);
        let path = model.path(ROUTE);
        let branch = tree.find_branch(&path.0).unwrap_or_default();
        let keys = model.registry.keys(&path, &branch).unwrap();
        keys.iter().map(|key| kinds::registry().key_text(key)).collect::<Vec<_>>().join(" ")
    };
    let hop = |index: &str, leaf: &str| format!("{ROUTE}/next-hop[index={index}]/{leaf}\n");
    assert_eq!(keys(""), "");
    assert_eq!(keys(&hop("a", "next-hop = 192.0.2.2")), "route/254/10.0.0.0/8/20");
    // Also where the hop is incomplete, or refused.
    assert_eq!(keys(&hop("a", "metric = 5")), "route/254/10.0.0.0/8/5");
    let both = hop("a", "metric = 5") + &hop("b", "next-hop = 0.0.0.0") + &hop("c", "metric = 5");
    assert_eq!(keys(&both), "route/254/10.0.0.0/8/5 route/254/10.0.0.0/8/20");
}

#[test]
fn routes_of_one_protocol_share_their_owner() {
    let model = Model::new();
    let route = |protocol: &str, prefix: &str| {
        model.path(&format!(
            "/network-instances/network-instance[name=DEFAULT]/static[name={protocol}]/route[prefix={prefix}]"
        ))
    };
    let link = model.path("/interfaces/interface[name=eth0]");
    let paths =
        [route("a", "10.0.0.0/8"), route("a", "11.0.0.0/8"), route("b", "10.0.0.0/8"), link];
    let owners = model.registry.owners(&paths);
    assert_eq!(owners[0], owners[1]);
    let names: Vec<_> =
        owners.iter().map(|it| it.as_ref().map(ToString::to_string).unwrap_or_default()).collect();
    let a = "protocol STATIC a of DEFAULT";
    let b = "protocol STATIC b of DEFAULT";
    assert_eq!(names, [a, a, b, ""]);
}

#[test]
fn a_bond_shows_its_parameters_and_lacp() {
    let model = Model::new();
    let bond = MadeLink::new(&BOND).with("min-links", 2).with("xmit-hash-policy", "layer3+4");
    let facts = Some(LinkFacts { index: 7, ..LinkFacts::default() });
    let link = Link { facts, ..Link::new("bond0", bond.into()) };
    let planes = Planes { observed: Some(&link), ..Planes::default() };
    let lines = model.state(&kinds::link::key("bond0"), planes);
    let state = "/interfaces/interface[name=bond0]/state";
    for line in [
        format!("{state}/type = bond"),
        format!("{state}/bond/mode = 802.3ad"),
        format!("{state}/bond/min-links = 2"),
        format!("{state}/bond/miimon = 100"),
        format!("{state}/bond/xmit-hash-policy = layer3+4"),
    ] {
        assert!(lines.contains(&line), "{line} in {lines}");
    }
    let master = Some("bond0".into());
    let member =
        Link { master, master_kind: Some("bond".into()), ..Link::new("eth1", LinkKind::Physical) };
    let planes = Planes { observed: Some(&member), ..Planes::default() };
    let lines = model.state(&kinds::link::key("eth1"), planes);
    assert!(lines.contains("[name=eth1]/state/aggregate = bond0"), "{lines}");
    assert!(!lines.contains("/state/master"), "{lines}");
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 9]));
    let system = Some(LacpSystem { mac, priority: 7 });
    let lacp = Lacp { is_fast: true, system, ..Lacp::new("bond0") };
    let planes = Planes { observed: Some(&lacp), ..Planes::default() };
    let state = "/lacp/interface[name=bond0]/state";
    assert_eq!(
        model.state(&kinds::lacp::key("bond0"), planes),
        [
            format!("{state}/name = bond0"),
            format!("{state}/interval = FAST"),
            format!("{state}/active = true"),
            format!("{state}/system-mac = 02:00:00:00:00:09"),
            format!("{state}/system-priority = 7"),
        ]
        .join("\n")
    );
}

/// Every name that the model has for a parameter is one that the kernel's messages have.
#[test]
fn names_of_parameters_are_those_of_the_kernel() {
    let words = |leaf: &str| {
        let row = BOND.params.iter().find(|row| row.leaf == leaf).unwrap();
        let crate::kinds::link::ParamType::Enum(words) = row.ty else { panic!("{leaf}") };
        words
    };
    let schema = Schema::native().unwrap();
    for leaf in ["mode", "xmit-hash-policy"] {
        let node = schema.find(&format!("/interfaces/interface/bond/{leaf}")).unwrap();
        for word in words(leaf) {
            assert!(schema.leaf(node).ty.parse_text(word).is_ok(), "{leaf} {word}");
            let row = BOND.params.iter().find(|row| row.leaf == leaf).unwrap();
            let crate::kinds::link::Attribute::Data { put, take } = row.attribute else { panic!() };
            let mut data = BOND.data.unwrap()();
            let param = crate::values::Param::from(*word);
            put(&mut data, &param);
            assert_eq!(take(&data), Some(param));
        }
    }
}

#[test]
fn impossible_objects_are_refused() {
    let check = |object: &str, lines: &str, path: &str, reason: &str| {
        let model = Model::new();
        let error = model.value(object, lines).unwrap_err();
        assert_eq!(error.path.to_path(&model.schema).to_string(), path);
        assert!(error.reason.contains(reason), "{reason} in {}", error.reason);
    };
    let bad = |name: &str, reason: &str| {
        let entry = format!("/interfaces/interface[name={name}]");
        check(&entry, &format!("{entry}/mtu = 1400"), &entry, reason);
    };
    bad("..", "means a folder");
    bad("all", "settings for all links");
    bad("br%d", "percent sign");
    let eth0 = "/interfaces/interface[name=eth0]";
    let leaf = |lines: &str, leaf: &str, reason: &str| {
        let line = |line: &str| format!("{eth0}/{}", line.trim());
        let lines: Vec<_> = lines.lines().map(line).collect();
        check(eth0, &lines.join("\n"), &format!("{eth0}/{leaf}"), reason);
    };
    leaf("type = macvlan\nmacvlan/mode = bridge", "macvlan/device", "mandatory");
    leaf("type = ipvlan\nipvlan/device = eth0", "ipvlan/device", "its own device");
    let sit0 = "/interfaces/interface[name=sit0]";
    check(sit0, &format!("{sit0}/type = dummy"), sit0, "the kernel itself makes a link");
    leaf("type = veth", "veth/peer", "mandatory");
    leaf("type = veth\nveth/peer = eth0", "veth/peer", "of itself");
    leaf("type = vxlan", "vxlan/vni", "mandatory");
    leaf("type = vxlan\nvxlan/vni = 1\nvxlan/remote = 239.1.1.1", "vxlan/device", "needs a device");
    leaf("mac-address = 01:00:00:00:00:01", "mac-address", "group address");
    leaf("mac-address = 00:00:00:00:00:00", "mac-address", "all zeros");
    leaf(&format!("description = {}", "ä".repeat(128)), "description", "255 bytes at most");
    leaf("master = eth0", "master", "port of itself");
    leaf("type = bridge\nmaster = br0", "master", "a bridge link cannot be a port");
    leaf("aggregate = eth0", "aggregate", "member of itself");
    leaf(
        "type = bridge\naggregate = bond0",
        "aggregate",
        "a bridge link cannot be a member of a bond",
    );
    leaf("type = bond\naggregate = bond0", "aggregate", "a bond link cannot be a member of a bond");
    leaf("master = br0\naggregate = bond0", "aggregate", "both `master` and `aggregate`");
    let mac = "mac-address = 02:00:00:00:00:01";
    leaf(&format!("aggregate = bond0\n{mac}"), "mac-address", "set it on `bond0`");
    leaf("aggregate = bond0\nmtu = 1400", "mtu", "a member has the MTU of its bond");
    leaf("aggregate = bond0\nipv6/mtu = 1400", "ipv6/mtu", "set it on `bond0`");
    let lacp = "/lacp/interface[name=bond0]";
    let lines = format!("{lacp}/system-mac = 01:80:c2:00:00:02");
    check(lacp, &lines, &format!("{lacp}/system-mac"), "group address");
    let several = "type = bond\nbond/mode = balance-xor\nbond/min-links = 2";
    leaf(several, "bond/min-links", "only in mode 802.3ad");
    let vxlan = |lines: &str, at: &str, reason: &str| {
        let lines = lines.lines().map(|line| format!("vxlan/{}", line.trim()));
        let lines: Vec<_> = ["type = vxlan".to_owned()].into_iter().chain(lines).collect();
        leaf(&lines.join("\n"), at, reason);
    };
    vxlan("vni = 1\ndevice = eth0", "vxlan/device", "its own device");
    vxlan("vni = 1\nlocal = 239.1.1.1", "vxlan/local", "multicast group");
    vxlan("vni = 1\nremote = fe80::1", "vxlan/device", "link-local");
    leaf("type = dummy\nport-speed = 1000", "port-speed", "a dummy link has no speed");
    leaf("type = vlan", "type", "entry of the list `vlan`");
    bad("eth0.100", "configure `vlan 100` of interface `eth0`");
    let vlan = |port: &str, index: u32, lines: &str, leaf: &str, reason: &str| {
        let entry = format!("/interfaces/interface[name={port}]/vlan[index={index}]");
        let lines = format!("{entry}/{lines}");
        check(&entry, &lines, &format!("{entry}{leaf}"), reason);
    };
    vlan("eth0", 100, "mtu = 1400", "/vlan-id", "mandatory");
    vlan("a-long-name-12", 100, "vlan-id = 7", "", "`link-name` gives it another name");
    let called = |name: &str, reason: &str| {
        let lines = format!(
            "vlan-id = 7\n/interfaces/interface[name=eth0]/vlan[index=100]/link-name = {name}"
        );
        vlan("eth0", 100, &lines, "/link-name", reason);
    };
    called("eth1.5", "the name of VLAN 5 of `eth1`");
    called("gre0", "which nobody can delete");
    called("all", "settings for all links");
    vlan("eth0.5", 100, "vlan-id = 7", "", "cannot stand on a VLAN");
    vlan("lo", 100, "vlan-id = 7", "", "carries no VLANs");
    let (lo, leaf_of_lo) =
        ("/interfaces/interface[name=lo]", "/interfaces/interface[name=lo]/duplex-mode");
    check(lo, &format!("{leaf_of_lo} = FULL"), leaf_of_lo, "a loopback link has no speed");
    let mac_of_lo = format!("{lo}/mac-address");
    check(lo, &format!("{mac_of_lo} = 02:00:00:00:00:01"), &mac_of_lo, "given back");
    check(lo, &format!("{lo}/master = br0"), &format!("{lo}/master"), "cannot be a port");
    let long = format!("subinterface/description = {}", "ä".repeat(128));
    leaf(&long, "subinterface/description", "255 bytes at most");
    leaf("mtu = 1400\nipv4/mtu = 1500", "ipv4/mtu", "but the link sets that MTU to 1400");
    leaf("ipv4/mtu = 1400\nipv6/mtu = 1500", "ipv6/mtu", "but IPv4 sets that MTU to 1400");
    for (family, ip, reason) in [
        ("ipv4", "0.0.0.0", "unspecified"),
        ("ipv4", "224.0.0.1", "multicast"),
        ("ipv4", "255.255.255.255", "broadcast"),
        ("ipv6", "::", "unspecified"),
        ("ipv6", "ff02::1", "multicast"),
        ("ipv6", "::1", "only the loopback link"),
        ("ipv4", "127.0.0.1", "loopback"),
    ] {
        let mac = "link-layer-address = 02:00:00:00:00:07";
        let entry = format!("{eth0}/{family}/neighbor[ip={ip}]");
        let of_neighbor = if ip == "::1" { "loopback" } else { reason };
        check(&entry, &format!("{entry}/{mac}"), &entry, of_neighbor);
        if ip != "127.0.0.1" {
            let entry = format!("{eth0}/{family}/address[ip={ip}]");
            check(&entry, &format!("{entry}/prefix-length = 24"), &entry, reason);
        }
    }
    let of_lo = format!("{lo}/ipv4/neighbor[ip=192.0.2.7]");
    let mac = "link-layer-address = 02:00:00:00:00:07";
    check(&of_lo, &format!("{of_lo}/{mac}"), &of_lo, "connected to the loopback link");
    for (mac, reason) in
        [("00:00:00:00:00:00", "all zeros"), ("33:33:00:00:00:01", "group address")]
    {
        let entry = format!("{eth0}/ipv4/neighbor[ip=192.0.2.7]");
        let leaf = format!("{entry}/link-layer-address");
        check(&entry, &format!("{leaf} = {mac}"), &leaf, reason);
    }
    for (ip, address_type, reason) in [
        ("fe80::1", "GLOBAL_UNICAST", "LINK_LOCAL_UNICAST, not GLOBAL"),
        ("2001:db8::1", "LINK_LOCAL_UNICAST", "GLOBAL_UNICAST, not LINK"),
    ] {
        let entry = format!("{eth0}/ipv6/address[ip={ip}]");
        let lines = format!("{entry}/prefix-length = 64\n{entry}/type = {address_type}");
        check(&entry, &lines, &format!("{entry}/type"), reason);
    }
    let route = |prefix: &str, lines: &str, path: &str, reason: &str| {
        let entry = format!(
            "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix={prefix}]"
        );
        let line = |line: &str| format!("{entry}/next-hop{}", line.trim());
        let lines: Vec<_> = lines.lines().map(line).collect();
        check(&entry, &lines.join("\n"), &format!("{entry}{path}"), reason);
    };
    route("10.0.0.1/8", "[index=a]/next-hop = drop", "", "10.0.0.0/8");
    let hop = "/next-hop[index=a]/next-hop";
    route("2001:db8::/32", "[index=a]/next-hop = 192.0.2.1", hop, "IPv4 gateway");
    route("10.0.0.0/8", "[index=a]/next-hop = 0.0.0.0", hop, "cannot be a gateway");
    let interface = "/next-hop[index=a]/interface";
    let subinterface = "/next-hop[index=a]/subinterface";
    let hop = "[index=a]/next-hop = 192.0.2.1\n[index=a]/subinterface = 5";
    route("10.0.0.0/8", hop, subinterface, "subinterface 5 needs its interface");
    let hop = format!("{hop}\n[index=a]/interface = eth0.7");
    route("10.0.0.0/8", &hop, subinterface, "`eth0.7` is a VLAN itself");
    route(
        "2001:db8::/32",
        "[index=a]/next-hop = fe80::1",
        interface,
        "fe80::1 is link-local: set `interface`",
    );
    route(
        "10.0.0.0/8",
        "[index=a]/next-hop = drop\n[index=b]/interface = e",
        "",
        "drops, but other next hops",
    );
    route(
        "10.0.0.0/8",
        "[index=a]/next-hop = 192.0.2.1\n[index=b]/next-hop = 192.0.2.1",
        "",
        "are the same",
    );
    route("10.0.0.0/8", "[index=a]/metric = 5", "/next-hop[index=a]", "needs an address");
}

#[test]
fn speed_and_duplex_that_a_port_contradicts_are_refused() {
    let entry = "/interfaces/interface[name=eth0]";
    let of = |model: &Model, leaves: &[&str]| {
        let lines: Vec<_> = leaves.iter().map(|leaf| format!("{entry}/{leaf}")).collect();
        model.value(entry, &lines.join("\n")).unwrap().1
    };
    let check =
        |before: &[&str], requested: &[&str], ethernet: Option<&Ethernet>, refused: &str| {
            let model = Model::new();
            let before = of(&model, before);
            let value = of(&model, requested);
            let planes = |key: &Key| {
                let is_link = key.kind() == kinds::LINK;
                let observed =
                    ethernet.map(|ethernet| ethernet as &dyn holdfast_scheduler::ObjectValue);
                Planes {
                    intended: is_link.then_some(&*before),
                    observed: observed.filter(|_| !is_link),
                    ..Planes::default()
                }
            };
            let result = model.registry.admit(&model.path(entry), &*value, planes);
            let path = |error: ObjectError| error.path.to_path(&model.schema).to_string();
            let want = (!refused.is_empty()).then(|| format!("{entry}/{refused}"));
            assert_eq!(result.err().map(path), want, "{requested:?} of {ethernet:?}");
        };
    let full = Some(Duplex::Full);
    let gigabit = Ethernet {
        link: "eth0".into(),
        speed_mbps: Some(1000),
        duplex: full,
        auto_negotiate: Some(true),
    };
    let unplugged = Ethernet { speed_mbps: None, duplex: None, ..gigabit.clone() };
    let all = ["port-speed = 1000", "duplex-mode = FULL", "auto-negotiate = true"];
    check(&[], &all, Some(&gigabit), "");
    check(&[], &["mtu = 1400"], Some(&gigabit), "");
    check(&[], &["port-speed = 100", all[1]], Some(&gigabit), "port-speed");
    check(&[], &[all[0], "duplex-mode = HALF"], Some(&gigabit), "duplex-mode");
    check(&[], &["auto-negotiate = false"], Some(&gigabit), "auto-negotiate");
    check(&["port-speed = 100"], &["port-speed = 100", "mtu = 1400"], Some(&gigabit), "");
    check(&["port-speed = 100"], &["port-speed = 10"], Some(&gigabit), "port-speed");
    check(&[], &["port-speed = 100", "duplex-mode = HALF"], Some(&unplugged), "");
    check(&[], &["auto-negotiate = false"], Some(&unplugged), "auto-negotiate");
    check(&[], &["port-speed = 100"], None, "");
}

#[test]
fn a_type_that_the_existing_link_contradicts_is_refused() {
    let check = |requested: &str, existing: LinkKind, ours: bool, refused: bool| {
        let model = Model::new();
        let entry = "/interfaces/interface[name=x0]";
        let lines = format!("{entry}/type = {requested}\n{entry}/veth/peer = y0");
        let (_, value) = model.value(entry, &lines).unwrap();
        let facts = Some(LinkFacts { ours, ..LinkFacts::default() });
        let existing = Link { facts, ..Link::new("x0", existing) };
        let result = model.registry.admit(&model.path(entry), &*value, |_: &Key| Planes {
            observed: Some(&existing),
            ..Planes::default()
        });
        assert_eq!(result.is_err(), refused, "{requested} over {existing:?}");
    };
    check("bridge", LinkKind::Physical, false, true);
    check("bridge", LinkKind::from(&BRIDGE), false, false);
    check("bridge", LinkKind::from(&DUMMY), true, false);
    check("veth", LinkKind::from(&VETH), false, false);
    check("veth", MadeLink::new(&VETH).with("peer", "z0").into(), false, true);
    check("veth", MadeLink::new(&VETH).with("peer", "z0").into(), true, false);
    check("physical", LinkKind::from(&VETH), false, false);
    check("physical", LinkKind::Other("tun".into()), false, false);
}

#[test]
fn a_link_layer_address_is_refused_where_it_could_not_be_given_back() {
    let check = |existing: Option<&str>, ours: bool, refused: bool| {
        let model = Model::new();
        let entry = "/interfaces/interface[name=x0]";
        let line = format!("{entry}/mac-address = 02:00:00:00:00:01");
        let (_, value) = model.value(entry, &line).unwrap();
        let facts = Some(LinkFacts { ours, ..LinkFacts::default() });
        let mac = existing.map(|mac| mac.parse().unwrap());
        let existing = Link { facts, mac, ..Link::new("x0", LinkKind::Other("sit".into())) };
        let result = model.registry.admit(&model.path(entry), &*value, |_: &Key| Planes {
            observed: Some(&existing),
            ..Planes::default()
        });
        assert_eq!(result.is_err(), refused, "{existing:?}");
    };
    check(None, false, true);
    check(Some("00:00:00:00:00:00"), false, true);
    check(Some("02:00:00:00:00:09"), false, false);
    check(None, true, false);
}

#[test]
fn state_shows_what_the_kernel_has() {
    let model = Model::new();
    let facts = LinkFacts {
        index: 7,
        oper: OperState::LowerLayerDown,
        last_change_ns: 5,
        carrier_changes: 3,
        hardware_mac: Some("02:00:00:00:00:07".parse().unwrap()),
        ..LinkFacts::default()
    };
    let actual = Link {
        mtu: Some(1500),
        description: Some("up".into()),
        facts: Some(facts),
        ..Link::new("eth0", LinkKind::Physical)
    };
    let request = Link { enabled: false, mtu: Some(1400), ..Link::new("eth0", LinkKind::Physical) };
    let key = kinds::link::key("eth0");
    let planes =
        Planes { intended: Some(&request), applied: Some(&request), observed: Some(&actual) };
    let state = "/interfaces/interface[name=eth0]/state";
    let want = [
        "name = eth0",
        "type = physical",
        "enabled = true",
        "admin-status = UP",
        "mtu = 1500",
        "description = up",
        "ipv4-enabled = true",
        "hardware-mac-address = 02:00:00:00:00:07",
        "oper-status = LOWER_LAYER_DOWN",
        "ifindex = 7",
        "last-change = 5",
        "counters/carrier-transitions = 3",
    ];
    assert_eq!(model.state(&key, planes), want.map(|leaf| format!("{state}/{leaf}")).join("\n"));
    assert_eq!(model.state(&key, Planes::default()), "");
}

#[test]
fn parameters_of_made_links_are_shown() {
    let model = Model::new();
    let check = |made: MadeLink, want: &[&str]| {
        let facts = Some(LinkFacts { index: 9, ..LinkFacts::default() });
        let link = Link { facts, ..Link::new("m0", made.into()) };
        let planes = Planes { observed: Some(&link), ..Planes::default() };
        let state = model.state(&kinds::link::key("m0"), planes);
        let shown = |leaf: &&str| {
            let line = format!("/interfaces/interface[name=m0]/state/{leaf}");
            assert!(state.lines().any(|it| it == line), "{leaf} in {state}");
        };
        want.iter().for_each(shown);
    };
    let tunnel = MadeLink::new(&VXLAN).with("vni", 7).with("device", "eth0");
    check(tunnel, &["vxlan/vni = 7", "vxlan/device = eth0", "vxlan/port = 4789"]);
    check(MadeLink::new(&BRIDGE), &["bridge/stp = false", "bridge/ageing-time = 300"]);
    let macvlan = MadeLink::new(&MACVLAN).with("device", "eth0").with("mode", "bridge");
    check(macvlan, &["macvlan/device = eth0", "macvlan/mode = bridge"]);
    let ipvlan = MadeLink::new(&IPVLAN).with("device", "eth0").with("mode", "l2");
    check(ipvlan, &["ipvlan/device = eth0", "ipvlan/mode = l2"]);
    let other = MadeLink::new(&MACVLAN).with("device", "eth0").with("mode", "passthru");
    check(other, &["macvlan/device = eth0"]);
}

/// A link called PORT.INDEX is a VLAN of PORT, whoever made it; others have other names.
#[test]
fn a_vlan_is_shown_at_its_port() {
    let model = Model::new();
    let check = |name: &str, want: &[&str]| {
        let made = MadeLink::new(&VLAN).with("vlan-id", 7).with("device", "eth0");
        let facts = Some(LinkFacts { index: 9, ..LinkFacts::default() });
        let link = Link { facts, ..Link::new(name, made.into()) };
        let planes = Planes { observed: Some(&link), ..Planes::default() };
        let state = model.state(&kinds::link::key(name), planes);
        want.iter().for_each(|line| assert!(state.contains(line), "{line} in {state}"));
    };
    let vlan = "/interfaces/interface[name=eth0]/vlan[index=100]/state";
    check("eth0.100", &[&format!("{vlan}/vlan-id = 7"), &format!("{vlan}/ifindex = 9")]);
    for name in ["vlan100", "eth0.0", "eth0.010", "eth0.5.6", ".5", "eth0.x"] {
        check(name, &[&format!("/interfaces/interface[name={name}]/state/type = vlan")]);
    }
    let address = Address::new("eth0.100", [192, 0, 2, 1].into(), 24);
    let planes = Planes { observed: Some(&address), ..Planes::default() };
    let state = model.state(&kinds::address::key(&address.link, address.ip), planes);
    let path = "/interfaces/interface[name=eth0]/vlan[index=100]/ipv4/address[ip=192.0.2.1]/state";
    assert!(state.contains(&format!("{path}/prefix-length = 24")), "{state}");
}

#[test]
fn the_status_of_a_link_is_shown_as_it_is_told() {
    const ETH0: &str = "/interfaces/interface[name=eth0]";
    let model = Model::new();
    let lines = ["hold-time/up = 5000", "penalty/suppress = 2500", "penalty/reuse = 2500"];
    let lines = lines.map(|line| format!("{ETH0}/{line}")).join("\n");
    let tree = model.tree(&lines, LayerKey::CLIENT_NATIVE);
    let path = model.path(ETH0);
    let branch = tree.find_branch(&path.0).unwrap();
    let penalty = PenaltySettings { suppress: Some(2500), reuse: Some(2500), ..Default::default() };
    let settings =
        LinkStatusSettings { hold_up: Some(Duration::from_secs(5)), penalty, ..Default::default() };
    let link = "eth0".into();
    let setting = model.registry.setting(&path, Some(&*branch));
    assert_eq!(setting, Some(Setting::LinkStatus { link, settings }));
    let link = "eth0".into();
    let none = None::<&Branch<Provenance>>;
    let without = Setting::LinkStatus { link, settings: Default::default() };
    assert_eq!(model.registry.setting(&path, none), Some(without));

    let key = kinds::link::key("eth0");
    let request = Link::new("eth0", LinkKind::Physical);
    let planes = Planes { intended: Some(&request), ..Planes::default() };
    let status = LinkStatus {
        told: OperState::Down,
        changed_ns: 9,
        observed: Some(OperState::NotPresent),
        down_by: Some(DownBy::Forced),
        settings,
    };
    let shown = |planes: Planes<'_>| {
        let entry = model.registry.state_as_told(&key, planes, Some(status)).unwrap();
        model.lines(&entry).replace(&format!("{ETH0}/state/"), "")
    };
    let told = "oper-status = DOWN\nobserved-status = NOT_PRESENT\ntold-down-by = FORCED";
    let viable = "forwarding-viable = true";
    let of_settings = "hold-time/up = 5000\npenalty/suppress = 2500\npenalty/reuse = 2500";
    assert_eq!(
        shown(planes),
        format!("name = eth0\nadmin-status = UP\n{told}\n{viable}\n{of_settings}")
    );
    let facts = Some(LinkFacts { last_change_ns: 5, ..LinkFacts::default() });
    let actual = Link { facts, ..request.clone() };
    let there = shown(Planes { observed: Some(&actual), ..planes });
    for shown in [told, viable, of_settings] {
        assert!(there.contains(shown), "{there}");
    }
    assert!(there.contains("last-change = 9"), "{there}");

    let wrong = format!("{ETH0}/penalty/suppress = 700\n{ETH0}/penalty/reuse = 701");
    let refused = model.values(ETH0, &wrong).unwrap_err();
    assert!(model.path_text(&refused.path).ends_with("/penalty/reuse"), "{refused:?}");
    let off = format!("{ETH0}/penalty/suppress = 0\n{ETH0}/penalty/reuse = 701");
    model.values(ETH0, &off).unwrap();
}

#[test]
fn a_port_that_is_not_there_is_not_present() {
    let model = Model::new();
    let request = Link::new("eth9", LinkKind::Physical);
    let planes = Planes { intended: Some(&request), ..Planes::default() };
    let state = "/interfaces/interface[name=eth9]/state";
    let want = ["name = eth9", "admin-status = UP", "oper-status = NOT_PRESENT"];
    assert_eq!(
        model.state(&kinds::link::key("eth9"), planes),
        want.map(|leaf| format!("{state}/{leaf}")).join("\n")
    );
}

#[test]
fn state_of_next_hops_is_that_of_the_kernel() {
    let model = Model::new();
    let route =
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]";
    let lines = format!(
        "{route}/next-hop[index=a]/next-hop = 192.0.2.2
         {route}/next-hop[index=b]/next-hop = 192.0.2.3"
    );
    let (key, value) = model.value(route, &lines).unwrap();
    let applied = value.as_any().downcast_ref::<crate::values::KernelRoute>().unwrap();
    let mut observed = applied.clone();
    let hop =
        crate::values::Hop { gateway: Some([192, 0, 2, 3].into()), link: Some("eth1".into()) };
    observed.target = crate::values::RouteTarget::Hops(vec![hop]);
    let planes = Planes { applied: Some(applied), observed: Some(&observed), ..Planes::default() };
    let state = format!("{route}/next-hop[index=b]/state");
    let want = [
        "index = b",
        "next-hop = 192.0.2.3",
        "interface = eth1",
        "subinterface = 0",
        "metric = 20",
    ];
    assert_eq!(model.state(&key, planes), want.map(|leaf| format!("{state}/{leaf}")).join("\n"));
    assert_eq!(model.configured_state(route, &lines), format!("{route}/state/prefix = 10.0.0.0/8"));
}

#[test]
fn state_of_objects_without_values_is_their_configuration() {
    let model = Model::new();
    let check = |object: &str, lines: &str, want: &[&str]| {
        let want = want.iter().map(|leaf| format!("{object}/state/{leaf}")).collect::<Vec<_>>();
        assert_eq!(model.configured_state(object, lines), want.join("\n"));
    };
    let user = "/system/user[username=a]";
    check(user, &format!("{user}/role = admin"), &["username = a", "role = admin"]);
    check(user, "", &["username = a"]);
    let instance = "/network-instances/network-instance[name=DEFAULT]";
    let described = format!("{ROUTE}/description = uplink");
    let state = model.lines(&model.registry.instance_state());
    assert_eq!(
        state,
        ["name = DEFAULT", "type = default-instance"]
            .map(|leaf| format!("{instance}/state/{leaf}"))
            .join("\n")
    );
    check(&format!("{instance}/static[name=s]"), &described, &["name = s"]);
    check(ROUTE, &described, &["prefix = 10.0.0.0/8", "description = uplink"]);
}

#[test]
fn an_address_shows_who_gave_it() {
    let check = |layer, given_by, want: &str| {
        let model = Model::new();
        let entry = "/interfaces/interface[name=eth0]/ipv4/address[ip=192.0.2.1]";
        let lines = format!("{entry}/prefix-length = 24");
        let (key, value) = model.values_of(layer, entry, &lines).unwrap().remove(0);
        let request = value.as_any().downcast_ref::<Address>().unwrap();
        let facts = Some(AddressFacts { ours: true, origin: given_by, status: None });
        let observed = Address { facts, ..request.clone() };
        let planes =
            Planes { intended: Some(request), observed: Some(&observed), ..Planes::default() };
        let state =
            ["ip = 192.0.2.1", "prefix-length = 24", "type = PRIMARY", &format!("origin = {want}")]
                .map(|leaf| format!("{entry}/state/{leaf}"));
        assert_eq!(model.state(&key, planes), state.join("\n"));
    };
    check(LayerKey::CLIENT_NATIVE, AddressOrigin::Static, "STATIC");
    check(LayerKey::LEASE, AddressOrigin::Static, "DHCP");
    // A foreign address of that name, which was there before the lease.
    check(LayerKey::LEASE, AddressOrigin::Other, "DHCP");
    check(LayerKey::CLIENT_NATIVE, AddressOrigin::Other, "OTHER");
}

#[test]
fn a_link_is_what_it_and_its_subinterface_say() {
    let link = |lines: &str| {
        let entry = "/interfaces/interface[name=eth0]";
        let lines: Vec<_> = lines
            .split("; ")
            .filter(|line| !line.is_empty())
            .map(|line| format!("{entry}/{line}"))
            .collect();
        let (_, value) = Model::new().value(entry, &lines.join("\n")).unwrap();
        value.as_any().downcast_ref::<Link>().unwrap().clone()
    };
    for (lines, up) in [
        ("", true),
        ("enabled = true; subinterface/enabled = true", true),
        ("enabled = false", false),
        ("enabled = false; subinterface/enabled = true", false),
        ("enabled = true; subinterface/enabled = false", false),
        ("subinterface/enabled = false", false),
        ("enabled = false; subinterface/enabled = false", false),
    ] {
        assert_eq!(link(lines).enabled, up, "{lines}");
    }
    for (lines, alias) in [
        ("description = a", Some("a")),
        ("subinterface/description = b", Some("b")),
        ("description = a; subinterface/description = b", Some("a")),
        ("", None),
    ] {
        assert_eq!(link(lines).description.as_deref(), alias, "{lines}");
    }
    for (lines, mtu) in [
        ("mtu = 1400", Some(1400)),
        ("ipv4/mtu = 1400", Some(1400)),
        ("ipv6/mtu = 1400", Some(1400)),
        ("mtu = 1400; ipv4/mtu = 1400; ipv6/mtu = 1400", Some(1400)),
        ("", None),
    ] {
        assert_eq!(link(lines).mtu, mtu, "{lines}");
    }
}
