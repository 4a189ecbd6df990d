//! The platform on the real kernel, in a network namespace of each test's own.

use std::sync::{Arc, Barrier};

use holdfast_scheduler::{Action, OpId, Operation, OperationError, Scope, SharedValue};
use nix::errno::Errno;

use crate::kinds::codec::{EncodeError, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::{self, ethernet, link, link_setting, neighbor};
use crate::netns::NetnsSetting;
use crate::transport::Transport;
use crate::transport::codecs::Codecs;
use crate::values::*;
use crate::{Platform, PlatformError, PlatformSettings};

mod agent;
pub(crate) mod fixture;
mod group_delete;
#[path = "../../../tests/src/kernel_defaults.rs"]
pub(crate) mod kernel_defaults;

use fixture::{ManagedNetns, address, enter_fresh_namespaces, ip, own_namespace, route, veth};

/// Two ends of a cable, one with an address whose prefix holds the gateway of all routes here.
const CABLE: [&str; 4] = [
    "link add eth0 type veth peer name far0",
    "link set eth0 up",
    "link set far0 up",
    "address add 10.0.0.1/24 dev eth0",
];
const GATEWAY: &str = "10.0.0.2";

fn nth_prefix(n: usize) -> String {
    format!("20.{}.{}.{}/32", n >> 16 & 255, n >> 8 & 255, n & 255)
}

fn route_key(prefix: &str) -> holdfast_scheduler::Key {
    kinds::route::key(MAIN_TABLE, prefix.parse().unwrap(), IPV4_METRIC)
}

#[test]
fn refused_routes_of_a_large_batch_report_the_kernel_message() {
    const COUNT: usize = 10_000;
    // The first, the last, and some in windows that follow one another.
    const WRONG: [usize; 5] = [0, 4_711, 4_712, 4_840, COUNT - 1];
    let mut net = ManagedNetns::with(&CABLE);
    let batch = (0..COUNT).map(|n| {
        let gateway = if WRONG.contains(&n) { "192.0.2.1" } else { GATEWAY };
        net.create(route(&nth_prefix(n), gateway))
    });
    let batch: Vec<Operation> = batch.collect();
    let results = net.run(batch);
    for (n, result) in results.iter().enumerate() {
        match result {
            Ok(()) => assert!(!WRONG.contains(&n), "{n}"),
            Err(error) => {
                assert!(WRONG.contains(&n), "{n}: {error:?}");
                assert_eq!(error.errno, Some(Errno::ENETUNREACH as i32));
                assert_eq!(error.message, "Nexthop has invalid gateway");
            }
        }
        // Successes were announced before, and failures were read back.
        let key = route_key(&nth_prefix(n));
        match result {
            Ok(()) => assert!(net.latest::<KernelRoute>(&key).is_some(), "{n}"),
            Err(_) => assert!(net.is_gone(&key), "{n}"),
        }
    }
    assert_eq!(ip("route show proto 150").lines().count(), COUNT - WRONG.len());
}

#[test]
fn a_new_link_and_its_dependents_fit_in_one_batch() {
    let mut net = ManagedNetns::with(&[]);
    let up = Link { enabled: true, ..veth("left", "right") };
    let batch = vec![
        net.create(up),
        net.create(Link { enabled: true, ..veth("right", "left") }),
        net.create(address("left", "10.1.0.1/24")),
        net.create(address("left", "2001:db8::1/64")),
        net.create(route("172.16.0.0/12", "10.1.0.2")),
    ];
    assert_eq!(net.run(batch), vec![Ok(()); 5]);
    // The facts arrived before the completions.
    let left: &Link = net.latest(&link::key("left")).expect("heard of");
    assert!(left.is_ours() && left.enabled, "{left:?}");
    assert!(left.facts.as_ref().unwrap().index > crate::kinds::links::FIRST_OUR_INDEX);
    assert!(net.latest::<KernelRoute>(&route_key("172.16.0.0/12")).is_some());
    let ip6 = "2001:db8::1".parse().unwrap();
    assert!(net.latest::<Address>(&kinds::address::key("left", ip6)).is_some());
    assert!(ip("route").contains("172.16.0.0/12 via 10.1.0.2 dev left proto 150"));
}

#[test]
fn foreign_changes_are_reported_as_facts() {
    let mut net = ManagedNetns::with(&CABLE);
    ip("link add eth1 type veth peer name far1");
    net.until("eth1", |net| net.latest::<Link>(&link::key("eth1")).map(|_| ()));
    let forwards = link_setting::key(LinkSysctl::Forwarding, "eth1", Family::V6);
    net.until("its forwarding", |net| net.latest::<LinkSetting>(&forwards).map(|_| ()));
    ip("link set eth1 mtu 1400 up");
    net.until("its MTU", |net| {
        net.latest::<Link>(&link::key("eth1")).filter(|it| it.mtu == Some(1400)).map(|_| ())
    });
    ip("link set far1 up");
    net.until("its carrier", |net| {
        let link = net.latest::<Link>(&link::key("eth1"))?;
        (link.facts.as_ref()?.oper == OperState::Up).then_some(())
    });
    ip("address add 10.9.0.1/24 dev eth1");
    let key = kinds::address::key("eth1", "10.9.0.1".parse().unwrap());
    net.until("an address", |net| net.latest::<Address>(&key).map(|_| ()));
    ip("route add 10.10.0.0/16 via 10.9.0.2 proto 150 metric 20");
    net.until("a route", |net| net.latest::<KernelRoute>(&route_key("10.10.0.0/16")).map(|_| ()));
    ip("route del 10.10.0.0/16");
    net.until("its end", |net| net.is_gone(&route_key("10.10.0.0/16")).then_some(()));
    ip("neighbor add 10.9.0.3 lladdr 02:00:00:00:00:03 dev eth1");
    let neighbor = neighbor::key("eth1", "10.9.0.3".parse().unwrap());
    net.until("a neighbour", |net| net.latest::<Neighbor>(&neighbor).map(|_| ()));
    ip("link set eth1 name wan1 down");
    net.until("the old name gone", |net| net.is_gone(&link::key("eth1")).then_some(()));
    net.until("the new name", |net| net.latest::<Link>(&link::key("wan1")).map(|_| ()));
    let forwards = link_setting::key(LinkSysctl::Forwarding, "wan1", Family::V4);
    net.until("its forwarding", |net| net.latest::<LinkSetting>(&forwards).map(|_| ()));
    ip("link del wan1");
    net.until("its end", |net| net.is_gone(&link::key("wan1")).then_some(()));
    let far = link::key("far1");
    net.until("the other end's", |net| net.is_gone(&far).then_some(()));
}

#[test]
fn link_speed_is_reported_on_reads_and_carrier_changes() {
    let mut net = ManagedNetns::with(&CABLE);
    let of = |net: &ManagedNetns, link: &str| {
        net.latest::<Ethernet>(&ethernet::key(link)).map(|it| (it.speed_mbps, it.duplex))
    };
    // Values that the veth driver reports.
    let veth = Some((Some(10_000), Some(Duplex::Full)));
    assert_eq!((of(&net, "eth0"), of(&net, "lo")), (veth, None), "part of the first report");
    assert!(net.read(&ethernet::key("eth0")).is_some());
    // A bridge has the speed of its ports, once they have a carrier.
    ip("link add br0 type bridge");
    net.until("the bridge", |net| of(net, "br0"));
    assert_eq!(of(&net, "br0").and_then(|(speed, _)| speed), None);
    ip("link set eth0 master br0");
    ip("link set br0 up");
    net.until("its speed", |net| of(net, "br0")?.0.filter(|speed| *speed == 10_000));
    ip("link del br0");
    net.until("its end", |net| net.is_gone(&ethernet::key("br0")).then_some(()));
}

#[test]
fn foreign_routes_are_filtered_unless_they_replace_ours() {
    let mut net = ManagedNetns::with(&CABLE);
    let ours = net.create(route("172.16.0.0/12", GATEWAY));
    assert_eq!(net.run(vec![ours]), [Ok(())]);
    net.facts.clear();
    ip("route add 198.51.100.0/24 via 10.0.0.9 proto bgp");
    ip("route replace 172.16.0.0/12 via 10.0.0.9 proto bgp metric 20");
    net.until("ours replaced", |net| net.is_gone(&route_key("172.16.0.0/12")).then_some(()));
    assert_eq!(net.facts.len(), 1, "{:#?}", net.facts);
}

#[test]
fn routes_dropped_without_notification_are_detected() {
    let all = Scope::Kinds(vec![kinds::ROUTE]);
    let on_link = Scope::On { kind: kinds::ROUTE, object: link::key("eth0") };
    for (cause, after, scopes) in [
        ("link set eth0 down", "link down", vec![&on_link]),
        ("address del 10.0.0.1/24 dev eth0", "no address", vec![&on_link]),
        // A link that is deleted goes down first.
        ("link del eth0", "link gone", vec![&on_link, &all]),
    ] {
        let mut net = ManagedNetns::with(&CABLE);
        let prefix = "172.16.0.0/12";
        let ours = net.create(route(prefix, GATEWAY));
        assert_eq!(net.run(vec![ours]), [Ok(())]);
        ip(cause);
        net.until(after, |net| net.is_gone(&route_key(prefix)).then_some(()));
        assert!(net.lists.last().is_some_and(|last| scopes.contains(&last)), "{:?}", net.lists);
    }
}

#[test]
fn a_link_that_goes_down_has_its_own_routes_read_alone() {
    let mut net = ManagedNetns::with(&CABLE);
    ip("link add eth9 type veth peer name peer9");
    ip("address add 10.9.0.1/24 dev eth9");
    ip("link set peer9 up");
    ip("link set eth9 up");
    let here = "172.16.0.0/12";
    let beside = "172.32.0.0/12";
    let routes = [net.create(route(here, GATEWAY)), net.create(route(beside, "10.9.0.2"))];
    assert_eq!(net.run(routes.into()), [Ok(()), Ok(())]);
    net.lists.clear();
    ip("link set eth9 down");
    net.until("the end of its route", |net| net.is_gone(&route_key(beside)).then_some(()));
    assert!(!net.is_gone(&route_key(here)));
    assert!(net.lists.iter().all(|scope| matches!(scope, Scope::On { .. })), "{:?}", net.lists);
}

#[test]
fn routes_are_read_again_when_their_link_gets_another_name() {
    let mut net = ManagedNetns::with(&CABLE);
    let prefix = "172.16.0.0/12";
    let ours = net.create(route(prefix, GATEWAY));
    assert_eq!(net.run(vec![ours]), [Ok(())]);
    net.lists.clear();
    ip("link set eth0 down");
    ip("link set eth0 name eth8");
    let all = Scope::Kinds(vec![kinds::ROUTE]);
    net.until("a list of all routes", |net| net.lists.contains(&all).then_some(()));
}

// proves kv.X22
#[test]
fn an_overrun_causes_a_complete_reading() {
    const COUNT: usize = 2_000;
    enter_fresh_namespaces();
    CABLE.iter().for_each(|command| drop(ip(command)));
    let mut net = ManagedNetns::start(Codecs::default(), Some(4096));
    let vanishing = net.create(address("eth0", "10.77.0.1/32"));
    assert_eq!(net.run(vec![vanishing]), [Ok(())]);
    net.lists.clear();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("batch");
    let mut lines: String = (0..COUNT)
        .map(|n| format!("route add {} via {GATEWAY} proto 150 metric 20\n", nth_prefix(n)))
        .collect();
    lines += "address del 10.77.0.1/32 dev eth0\n";
    std::fs::write(&script, lines).unwrap();
    ip(&format!("-batch {}", script.display()));
    net.until("a complete report", |net| (!net.lists.is_empty()).then_some(()));
    let deleted = kinds::address::key("eth0", "10.77.0.1".parse().unwrap());
    net.until("the address gone", |net| net.is_gone(&deleted).then_some(()));
    for n in 0..COUNT {
        let key = route_key(&nth_prefix(n));
        net.until("every route", |net| net.latest::<KernelRoute>(&key).map(|_| ()));
    }
}

#[test]
fn a_delete_of_an_absent_object_succeeds_and_a_refused_create_is_read_back() {
    let mut net = ManagedNetns::with(&CABLE);
    let deletes = vec![
        net.delete(route("172.16.0.0/12", GATEWAY)),
        net.delete(address("eth0", "10.55.0.1/24")),
        net.delete(address("no-such-link", "10.55.0.1/24")),
    ];
    assert_eq!(net.run(deletes), vec![Ok(()); 3]);
    ip("address add 10.66.0.1/24 dev eth0");
    let there = net.create(address("eth0", "10.66.0.1/24"));
    let result = net.run(vec![there]).remove(0);
    assert_eq!(result.unwrap_err().errno, Some(Errno::EEXIST as i32));
    let key = kinds::address::key("eth0", "10.66.0.1".parse().unwrap());
    assert!(net.latest::<Address>(&key).is_some(), "what is there was read back");
}

#[test]
fn a_partly_created_link_is_rolled_back() {
    let mut net = ManagedNetns::with(&CABLE);
    // The name of the far end is taken.
    let pair = net.create(veth("left", "far0"));
    let error = net.run(vec![pair]).remove(0).unwrap_err();
    assert_eq!(error.errno, Some(Errno::EEXIST as i32));
    assert!(net.is_gone(&link::key("left")));
    // The name of the other end still refers to its link.
    let address = net.create(address("far0", "10.44.0.1/24"));
    assert_eq!(net.run(vec![address]), [Ok(())]);
}

#[test]
fn a_recreated_link_has_another_index() {
    let mut net = ManagedNetns::with(&[]);
    let mut indices = Vec::new();
    for _ in 0..2 {
        let batch =
            vec![net.create(veth("left", "right")), net.create(address("left", "10.1.0.1/24"))];
        assert_eq!(net.run(batch), vec![Ok(()); 2]);
        let left: &Link = net.latest(&link::key("left")).unwrap();
        indices.push(left.facts.as_ref().unwrap().index);
        let batch = vec![net.delete(veth("left", "right"))];
        assert_eq!(net.run(batch), [Ok(())]);
        assert!(net.is_gone(&link::key("left")) && net.is_gone(&link::key("right")));
    }
    assert_ne!(indices[0], indices[1]);
}

#[test]
fn addresses_of_a_replaced_link_are_reported_gone() {
    fn encode(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
        if operation.action == Action::Update {
            // After the last announcement was heard, and before the link is read back.
            ip("link del eth0");
            ip("link add eth0 type veth peer name far0");
        }
        kinds::encode(operation, links)
    }
    enter_fresh_namespaces();
    CABLE.iter().for_each(|command| drop(ip(command)));
    ip("link set eth0 down"); // else the kernel announces the old link once more, as it goes down
    let mut net = ManagedNetns::start(Codecs { encode, ..Codecs::default() }, None);
    let before = net.latest::<Link>(&link::key("eth0")).cloned().expect("a part of the report");
    let change = net.create(Link { mtu: Some(1400), ..before.clone() });
    let old: SharedValue = Arc::new(before.clone());
    let refused = net.run(vec![Operation { action: Action::Update, old: Some(old), ..change }]);
    assert_eq!(refused[0].as_ref().unwrap_err().errno, Some(Errno::ENODEV as i32));
    let read = net.latest::<Link>(&link::key("eth0")).expect("the new link was read back");
    assert_ne!(read.facts.as_ref().unwrap().index, before.facts.unwrap().index);
    let deleted = kinds::address::key("eth0", "10.0.0.1".parse().unwrap());
    net.until("its address gone", |net| net.is_gone(&deleted).then_some(()));
}

#[test]
fn reads_report_present_and_absent_objects() {
    let mut net = ManagedNetns::with(&CABLE);
    let batch = vec![
        net.create(route("172.16.0.0/12", GATEWAY)),
        net.create(route("172.16.0.0/16", GATEWAY)),
        net.create(Neighbor {
            link: "eth0".into(),
            ip: "10.0.0.7".parse().unwrap(),
            mac: Some("02:00:00:00:00:07".parse().unwrap()),
            facts: None,
        }),
    ];
    assert_eq!(net.run(batch), vec![Ok(()); 3]);
    let ip_of = |text: &str| text.parse().unwrap();
    for (key, there) in [
        (link::key("eth0"), true),
        (link::key("eth9"), false),
        (kinds::address::key("eth0", ip_of("10.0.0.1")), true),
        (kinds::address::key("eth0", ip_of("10.0.0.9")), false),
        (kinds::address::key("eth9", ip_of("10.0.0.1")), false),
        (neighbor::key("eth0", ip_of("10.0.0.7")), true),
        (neighbor::key("eth0", ip_of("10.0.0.8")), false),
        (route_key("172.16.0.0/12"), true),
        (route_key("172.16.0.0/16"), true),
        (route_key("172.16.0.0/20"), false),
        (route_key("10.0.0.0/24"), false), // present, but the kernel's own
        (link_setting::key(LinkSysctl::Forwarding, "eth0", Family::V4), true),
        (link_setting::key(LinkSysctl::Forwarding, "eth9", Family::V6), false),
    ] {
        assert_eq!(net.read(&key).is_some(), there, "{key}");
    }
}

#[test]
fn settings_of_links_are_written_read_back_and_reported() {
    for (sysctl, family) in LinkSysctl::of_families() {
        setting_is_written_read_back_and_reported(sysctl, family);
    }
}

fn setting_is_written_read_back_and_reported(sysctl: LinkSysctl, family: Family) {
    let mut net = ManagedNetns::with(&CABLE);
    let row = sysctl.row();
    let setting = |values: &[u32]| LinkSetting::new(sysctl, "eth0", family, values);
    let paths: Vec<String> = setting_paths(sysctl, "eth0", family).collect();
    // This thread is in the managed namespace as well.
    let file = |path: &str| std::fs::read_to_string(format!("/proc/sys/{path}")).unwrap();
    let files = || paths.iter().map(|it| file(it).trim().parse().unwrap()).collect::<Vec<u32>>();
    let key = link_setting::key(sysctl, "eth0", family);
    let reported: &LinkSetting = net.latest(&key).expect("part of the first report");
    assert_eq!(reported.values, files(), "{}", row.name);
    let other: Vec<u32> = reported.values.iter().map(|value| u32::from(*value == 0)).collect();
    let change = net.create(setting(&other));
    assert_eq!(net.run(vec![change]), [Ok(())]);
    assert_eq!(net.latest::<LinkSetting>(&key).unwrap().values, other);
    assert_eq!(files(), other, "{}", row.name);
    let restore = net.delete(setting(&other));
    assert_eq!(net.run(vec![restore]), [Ok(())]);
    assert_eq!(files(), row.without_us, "{}", row.name);
    if row.netconf.is_some() {
        let value = u32::from(row.without_us[0] == 0);
        std::fs::write(format!("/proc/sys/{}", paths[0]), value.to_string()).unwrap();
        net.until("the change from outside", |net| {
            net.latest::<LinkSetting>(&key).filter(|it| it.values[0] == value).map(|_| ())
        });
    }
    let nowhere = net.create(LinkSetting::new(sysctl, "eth9", family, &other));
    let error = net.run(vec![nowhere]).remove(0).unwrap_err();
    assert_eq!(error.errno, Some(Errno::ENOENT as i32));
}

#[test]
fn the_strictest_reverse_path_filter_is_told() {
    let mut net = ManagedNetns::with(&CABLE);
    let key = link_setting::key(LinkSysctl::ReversePath, "eth0", Family::V4);
    let own = net.latest::<LinkSetting>(&key).expect("part of the first report").values[0];
    std::fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "2").unwrap();
    net.until("the setting for all links", |net| {
        let filter = net.latest::<LinkSetting>(&key)?;
        (filter.least == Some(2) && filter.values == [own]).then_some(())
    });
}

#[test]
fn the_host_name_is_set_in_the_managed_namespace_only() {
    let mut net = ManagedNetns::with(&[]);
    let before = nix::unistd::gethostname().unwrap();
    let name = net.create(Hostname { name: "spine-1".into() });
    assert_eq!(net.run(vec![name]), [Ok(())]);
    let key = kinds::system::hostname_key();
    assert_eq!(net.latest::<Hostname>(&key).unwrap().name, "spine-1");
    assert!(net.read(&key).is_some());
    assert_eq!(nix::unistd::gethostname().unwrap(), before);
    let long = net.create(Hostname { name: "x".repeat(65).into() });
    assert!(net.run(vec![long]).remove(0).is_err());
}

#[test]
fn files_are_written_below_the_root() {
    let mut net = ManagedNetns::with(&[]);
    let motd = || TextFile { path: "etc/motd".into(), content: Content::Whole("hi\n".into()) };
    let write = net.create(motd());
    assert_eq!(net.run(vec![write]), [Ok(())]);
    assert_eq!(std::fs::read_to_string(net.root.path().join("etc/motd")).unwrap(), "hi\n");
    let key = kinds::system::file_key("etc/motd");
    assert_eq!(net.latest::<TextFile>(&key).unwrap().content, Content::Whole("hi\n".into()));
    let hosts = net.root.path().join("etc/hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n").unwrap();
    let block = TextFile { path: "etc/hosts".into(), content: Content::Block("a b\n".into()) };
    let batch = vec![net.create(block.clone()), net.delete(block.clone()), net.delete(block)];
    assert_eq!(net.run(batch), vec![Ok(()); 3]);
    assert_eq!(std::fs::read_to_string(&hosts).unwrap(), "127.0.0.1 localhost\n");
}

#[test]
fn a_panicking_codec_fails_its_operation_alone() {
    fn encode(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
        let value = operation.new.as_ref().and_then(|it| it.as_any().downcast_ref());
        let unlucky = value.is_some_and(|route: &KernelRoute| route.prefix.prefix_len() == 13);
        assert!(!unlucky, "13 is an unlucky length");
        kinds::encode(operation, links)
    }
    enter_fresh_namespaces();
    CABLE.iter().for_each(|command| drop(ip(command)));
    let mut net = ManagedNetns::start(Codecs { encode, ..Codecs::default() }, None);
    let batch = vec![
        net.create(route("172.16.0.0/12", GATEWAY)),
        net.create(route("172.24.0.0/13", GATEWAY)),
        net.create(route("172.24.0.0/14", GATEWAY)),
    ];
    let succeeded: Vec<bool> = net.run(batch).iter().map(Result::is_ok).collect();
    assert_eq!(succeeded, [true, false, true]);
}

#[test]
fn operations_cancelled_before_their_start_are_not_executed() {
    static HELD_UP: Barrier = Barrier::new(2);
    fn encode(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
        let value = operation.new.as_ref().and_then(|it| it.as_any().downcast_ref());
        if value.is_some_and(|route: &KernelRoute| route.prefix.prefix_len() == 13) {
            HELD_UP.wait(); // it is begun
            HELD_UP.wait(); // the others are cancelled
        }
        kinds::encode(operation, links)
    }
    enter_fresh_namespaces();
    CABLE.iter().for_each(|command| drop(ip(command)));
    let mut net = ManagedNetns::start(Codecs { encode, ..Codecs::default() }, None);
    let prefixes = ["172.16.0.0/12", "172.24.0.0/13", "172.24.0.0/14", "172.24.0.0/15"];
    let batch: Vec<Operation> = prefixes.iter().map(|it| net.create(route(it, GATEWAY))).collect();
    let ids: Vec<OpId> = batch.iter().map(|operation| operation.id).collect();
    net.platform.submit(batch);
    HELD_UP.wait();
    net.platform.cancel(ids[..3].to_vec());
    HELD_UP.wait();
    let results = net.ended(&ids);
    let cancelled = |result: &Result<(), OperationError>| {
        result.as_ref().is_err_and(OperationError::is_cancelled)
    };
    assert_eq!(results.iter().map(cancelled).collect::<Vec<_>>(), [false, false, true, false]);
    let there = prefixes.map(|prefix| net.read(&route_key(prefix)).is_some());
    assert_eq!(there, [true, true, false, true]);
}

#[test]
fn errors_name_the_missing_capability() {
    enter_fresh_namespaces();
    let root = tempfile::tempdir().unwrap();
    let capabilities = own_namespace();
    drop_all_capabilities();
    for (netns, want) in [(capabilities, "CAP_SYS_ADMIN"), (NetnsSetting::Current, "CAP_NET_ADMIN")]
    {
        let settings = PlatformSettings {
            netns,
            hostname: Default::default(),
            root: root.path().into(),
            vault: std::sync::Arc::new(crate::EmptyVault),
        };
        let error = Platform::start(&settings).unwrap_err();
        assert!(matches!(error, PlatformError::Netns(_) | PlatformError::Rtnetlink(_)));
        assert!(error.to_string().contains(want), "{error}");
    }
}

/// Drops all capabilities of the calling thread and of threads that it starts.
fn drop_all_capabilities() {
    use nix::libc::{SYS_capset, syscall};
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0]; // of this thread
    let none = [0u32; 6]; // effective, permitted, inheritable: twice 32 bits each
    #[allow(unsafe_code, reason = "no safe call gives up the rights of one thread only")]
    // SAFETY: both arrays are laid out as capset(2) says, and are only read.
    let result = unsafe { syscall(SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn concurrent_readers_share_one_counter_reading() {
    let net = ManagedNetns::with(&CABLE);
    let native = holdfast_config::schema::Schema::native().unwrap();
    let collector = net.platform.collector(&native);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (one, other) = runtime.block_on(async { tokio::join!(collector.read(), collector.read()) });
    assert!(std::sync::Arc::ptr_eq(&one, &other));
    assert_eq!(one.len(), 3 * 11, "eleven counters of lo, eth0 and far0");
}

#[test]
fn a_retrieve_reports_links_addresses_routes_texts_at_once() {
    let mut net = ManagedNetns::with(&CABLE);
    let prefix = "172.16.0.0/12";
    let ours = net.create(route(prefix, GATEWAY));
    assert_eq!(net.run(vec![ours]), [Ok(())]);
    net.facts.clear();
    net.lists.clear();
    net.platform.retrieve();
    net.until("the report", |net| net.lists.contains(&Scope::Everything).then_some(()));
    for key in [
        link::key("lo"),
        link::key("eth0"),
        kinds::address::key("eth0", "10.0.0.1".parse().unwrap()),
        route_key(prefix),
        link_setting::key(LinkSysctl::Forwarding, "far0", Family::V6),
        kinds::system::hostname_key(),
        kinds::system::file_key("etc/motd"),
    ] {
        assert!(net.facts.iter().any(|fact| fact.key == key && fact.value.is_some()), "{key}");
    }
}
