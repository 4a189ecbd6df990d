//! Engine, descriptors, codecs and transports on the kernel of this machine.

use std::time::{Duration, Instant};

use holdfast_scheduler::{
    Delta, Engine, EngineOutput, Key, Now, SharedValue, TransactionOutcome, ValueState,
};
use tokio::runtime::{Builder, Runtime};

use super::fixture::{enter_fresh_namespaces, ip, own_namespace};
use crate::kinds::{registry, route};
use crate::transport::simulated::tests::{change, values};
use crate::transport::{Events, Transport};
use crate::values::MAIN_TABLE;
use crate::{Platform, PlatformSettings};

/// Time without an event after which the box counts as idle.
const QUIET: Duration = Duration::from_millis(300);

struct Agent {
    platform: Platform,
    events: Events,
    engine: Engine,
    runtime: Runtime,
    started: Instant,
    deadline: Option<Duration>,
    outcomes: Vec<TransactionOutcome>,
    submitted: usize,
    _root: tempfile::TempDir,
}

impl Agent {
    fn start(intent: Vec<(Key, SharedValue)>, restores: Vec<(Key, SharedValue)>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let settings = PlatformSettings {
            netns: own_namespace(),
            hostname: Default::default(),
            root: root.path().into(),
            vault: std::sync::Arc::new(crate::EmptyVault),
        };
        let (platform, events) = Platform::start(&settings).unwrap();
        let mut engine = Engine::new(registry());
        engine.load(intent, restores);
        let mut agent = Self {
            platform,
            events,
            engine,
            runtime: Builder::new_current_thread().enable_time().build().unwrap(),
            started: Instant::now(),
            deadline: None,
            outcomes: Vec::new(),
            submitted: 0,
            _root: root,
        };
        agent.rest();
        agent
    }

    fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: 0 }
    }

    fn follow(&mut self, step: EngineOutput) {
        self.submitted += step.submit.len();
        if !step.submit.is_empty() {
            self.platform.submit(step.submit);
        }
        if !step.read.is_empty() {
            self.platform.read(step.read);
        }
        self.outcomes.extend(step.finished);
        self.deadline = step.deadline;
    }

    /// Waits until nothing is scheduled and no event arrives.
    fn rest(&mut self) {
        loop {
            let due = self.deadline.map(|at| at.saturating_sub(self.started.elapsed()));
            let patience = due.map_or(QUIET, |due| due.min(QUIET));
            let events = &mut self.events;
            let event = self
                .runtime
                .block_on(async { tokio::time::timeout(patience, events.recv()).await });
            let now = self.now();
            let step = match event {
                Ok(Some(event)) => event.report_to(&mut self.engine, now),
                Ok(None) => panic!("the transports ended"),
                Err(_) if self.deadline.is_some_and(|at| at <= now.monotonic) => {
                    self.engine.due(now)
                }
                Err(_) if self.deadline.is_some() => continue,
                Err(_) => return,
            };
            self.follow(step);
        }
    }

    /// Reads everything again.
    fn reread(&mut self) {
        self.platform.retrieve();
        self.rest();
    }

    #[track_caller]
    fn commit(&mut self, from: &str, to: &str) {
        self.change(from, to);
        for (key, _) in values(to) {
            let status = self.engine.status(&key).unwrap();
            assert_eq!(
                status.state,
                ValueState::Configured,
                "{}: {:?}",
                status.label,
                status.detail
            );
        }
    }

    /// Commits a change that may leave values waiting.
    #[track_caller]
    fn change(&mut self, from: &str, to: &str) {
        let plan = self.engine.plan(Delta::new(change(from, to))).unwrap();
        let text = plan.to_string();
        let now = self.now();
        let (txn, step) = self.engine.start(plan, now);
        self.follow(step);
        self.rest();
        let outcome = self.outcomes.iter().find(|outcome| outcome.txn() == txn);
        assert!(matches!(outcome, Some(TransactionOutcome::Done { .. })), "{text}: {outcome:?}");
    }
}

#[test]
fn commits_reach_the_kernel_and_drift_is_repaired() {
    enter_fresh_namespaces();
    ip("link add eth0 type veth peer name far0");
    ip("link set far0 up");
    ip("route add blackhole 203.0.113.0/24");
    let links = ip("-o link show");
    let first = "port eth0 mtu 1400 alias x v4-forwarding
        address eth0 192.0.2.1/24
        address eth0 2001:db8::1/64
        neighbor eth0 192.0.2.7 02:00:00:00:00:07
        route 10.0.0.0/8 via 192.0.2.2 via 192.0.2.3
        route 2001:db8:1::/48 via 2001:db8::2
        route 198.51.100.0/24 drop
        hostname box";
    let second = "port eth0 mtu 1300 master br0
        bridge br0 alias y
        veth v0 v1 master br0
        vxlan vx 7 dev br0
        address br0 192.0.2.1/24
        address br0 2001:db8::1/64
        route 10.0.0.0/8 via 192.0.2.2
        route 2001:db8:1::/48 via 2001:db8::2
        hostname other";
    let mut agent = Agent::start(Vec::new(), Vec::new());
    agent.commit("", first);
    assert!(ip("route show 10.0.0.0/8").contains("nexthop via 192.0.2.3 dev eth0"));
    assert_eq!(ip("-6 route show 2001:db8:1::/48").matches("via 2001:db8::2 dev eth0").count(), 1);

    // Foreign changes are repaired.
    for command in [
        "address del 192.0.2.1/24 dev eth0",
        "link set eth0 mtu 1450",
        "route del 10.0.0.0/8",
        "link set eth0 down",
    ] {
        ip(command);
        agent.rest();
        assert!(ip("route show 10.0.0.0/8").contains("via 192.0.2.3 dev eth0"), "{command}");
        assert!(ip("link show eth0").contains("mtu 1400"), "{command}");
        let addresses = ip("-6 address show dev eth0");
        assert!(addresses.contains("2001:db8::1/64"), "{command}: {addresses}");
    }

    // A restarted agent makes no request to the kernel.
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    drop(agent);
    let mut agent = Agent::start(values(first), restores);
    let planned = agent.engine.plan(Delta::default()).unwrap().to_string();
    assert_eq!(planned, "");

    agent.commit(first, second);
    assert!(ip("route show 10.0.0.0/8").contains("via 192.0.2.2 dev br0"));
    assert!(ip("link show v0").contains("master br0"));
    agent.commit(second, "");
    assert_eq!(ip("route show"), "blackhole 203.0.113.0/24 \n");
    // Only times and states differ: the port is as it was, and what we made is gone.
    let names = |text: &str| {
        text.lines().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&ip("-o link show")), names(&links));
    let port = ip("-d link show eth0");
    assert!(port.contains("mtu 1500") && !port.contains("alias") && !port.contains("UP"), "{port}");
}

#[test]
fn the_mark_of_a_link_that_we_made_comes_back() {
    enter_fresh_namespaces();
    let links = "veth v0 v1
        bridge br0
        vxlan vx0 7 dev v0";
    let mut agent = Agent::start(Vec::new(), Vec::new());
    agent.commit("", links);
    for name in ["v0", "br0", "vx0"] {
        let mark = format!("altname holdfast:{name}");
        assert!(ip(&format!("link show {name}")).contains(&mark), "{name}");
        ip(&format!("link property del dev {name} {mark}"));
        agent.rest();
        assert!(ip(&format!("link show {name}")).contains(&mark), "{name}");
        agent.engine.audit().unwrap();
    }
    // Even while the mark is gone the link is ours, and goes with its configuration.
    ip("link property del dev br0 altname holdfast:br0");
    agent.commit(links, "");
    assert_eq!(ip("-o link show").lines().count(), 1, "only the loopback is left");
}

#[test]
fn a_foreign_alias_of_a_link_that_is_down_is_found_by_a_resync() {
    enter_fresh_namespaces();
    ip("link add eth0 type veth peer name far0");
    let mut agent = Agent::start(Vec::new(), Vec::new());
    let alias = || {
        let output = ip("-o link show eth0");
        output.split_once("alias ").map(|(_, alias)| alias.trim().to_owned()).unwrap_or_default()
    };
    // Without any configuration, and with one that leaves the alias open.
    let mut last = "";
    for (theirs, without, with) in [
        ("theirs", "", "port eth0 down alias ours"),
        ("later", "port eth0 down mtu 1400", "port eth0 down mtu 1400 alias ours"),
    ] {
        agent.commit(last, without);
        ip(&format!("link set eth0 alias {theirs}"));
        agent.reread();
        agent.commit(without, with);
        assert_eq!(alias(), "ours");
        agent.commit(with, without);
        assert_eq!(alias(), theirs);
        last = without;
    }
    agent.commit(last, "");
    assert_eq!(alias(), "later");
    // A link that replaces ours is removed.
    let ours = "port eth0 down alias ours";
    agent.commit("", ours);
    ip("link set eth0 alias theirs");
    agent.reread();
    assert_eq!(alias(), "ours");
    agent.commit(ours, "");
    assert_eq!(alias(), "later");
}

#[test]
fn a_start_reads_and_changes_nothing_that_is_in_place() {
    enter_fresh_namespaces();
    ip("link add eth0 type veth peer name far0");
    ip("link set far0 up");
    let config = "port eth0 mtu 1400
        address eth0 192.0.2.1/24
        route 10.0.0.0/8 via 192.0.2.2
        route 10.1.0.0/16 via 192.0.2.2
        route 10.2.0.0/16 via 192.0.2.3";
    let mut agent = Agent::start(Vec::new(), Vec::new());
    agent.commit("", config);
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    drop(agent);
    let agent = Agent::start(values(config), restores);
    let counters = agent.engine.counters();
    assert_eq!(counters.operations_planned, 1, "the prefix of the address, which is not an object");
    assert_eq!((counters.reads, counters.drifts), (0, 0));
    assert_eq!(counters.found_in_place, 3, "the routes");
    agent.engine.audit().unwrap();
}

#[test]
fn address_families_of_a_link_are_enabled_and_disabled() {
    enter_fresh_namespaces();
    ip("link add eth0 type veth peer name far0");
    ip("link set far0 up");
    let addresses = "address eth0 192.0.2.1/24
        address eth0 2001:db8::1/64
        route 10.0.0.0/8 via 192.0.2.2
        route 2001:db8:1::/48 via 2001:db8::2";
    let with = |words: &str| format!("port eth0 {words}\n{addresses}");
    let output = || {
        let addresses = ip("-o address show dev eth0");
        let has = |ip: &str| addresses.contains(ip);
        let off = std::fs::read_to_string("/proc/sys/net/ipv6/conf/eth0/disable_ipv6").unwrap();
        (has("192.0.2.1/24"), has("2001:db8::1/64"), off.trim() == "1")
    };
    let mut agent = Agent::start(Vec::new(), Vec::new());
    let mut last = String::new();
    // IPv4, IPv6, and whether the kernel has none of it
    for (words, want) in [
        ("", (true, true, false)),
        ("no-ipv4", (false, true, false)),
        ("no-ipv6", (true, false, true)),
        ("no-ipv4 no-ipv6", (false, false, true)),
        ("ipv6", (true, true, false)),
        ("no-ipv6", (true, false, true)),
        ("", (true, true, false)),
        ("ipv6", (true, true, false)),
        ("", (true, true, false)),
    ] {
        let to = with(words);
        agent.change(&last, &to);
        assert_eq!(output(), want, "{words}");
        agent.engine.audit().unwrap();
        last = to;
    }
    // A restarted agent makes no request, and still knows the values to restore.
    let off = with("no-ipv6");
    agent.change(&last, &off);
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    drop(agent);
    let mut agent = Agent::start(values(&off), restores);
    assert_eq!(agent.engine.plan(Delta::default()).unwrap().to_string(), "");
    // A foreign change of the switch is found by the next reading.
    std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0").unwrap();
    agent.reread();
    assert_eq!(output(), (true, false, true));
    agent.change(&off, "");
    assert_eq!(output(), (false, false, false));
}

#[test]
fn secondary_addresses_come_after_one_of_their_prefix() {
    enter_fresh_namespaces();
    ip("link add eth0 type veth peer name far0");
    let mut agent = Agent::start(Vec::new(), Vec::new());
    let output = |ip_: &str| {
        let addresses = ip("-o -4 address show dev eth0");
        let line = addresses.lines().find(|line| line.contains(&format!("{ip_}/24")));
        line.map(|line| line.contains("secondary"))
    };
    let mut last = String::new();
    // each address: absent, or whether the kernel has it as a secondary one
    for (first, second, want) in [
        ("192.0.2.1/24 secondary", "192.0.2.2/24", (Some(true), Some(false))),
        ("192.0.2.1/24", "192.0.2.2/24 secondary", (Some(false), Some(true))),
        ("192.0.2.1/24 secondary", "198.51.100.2/24", (None, None)),
        ("192.0.2.1/24 secondary", "192.0.2.2/24", (Some(true), Some(false))),
    ] {
        let to = format!("port eth0\naddress eth0 {first}\naddress eth0 {second}");
        agent.change(&last, &to);
        assert_eq!((output("192.0.2.1"), output("192.0.2.2")), want, "{to}");
        agent.engine.audit().unwrap();
        last = to;
    }
}

/// Outgoing links of the routes over two uplinks, with the kernel's marks of dead ones.
fn uplinks() -> [Vec<String>; 2] {
    let routes =
        [ip("route show 10.0.0.0/8 proto 150"), ip("-6 route show 2001:db8:9::/48 proto 150")];
    routes.map(|text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let links = words.windows(2).filter(|pair| pair[0] == "dev");
        let dead = text.matches("dead").map(|_| "dead".to_owned());
        links.map(|pair| pair[1].to_owned()).chain(dead).collect()
    })
}

#[test]
fn a_multipath_route_uses_reachable_uplinks() {
    enter_fresh_namespaces();
    for number in 0..2 {
        ip(&format!("link add eth{number} type veth peer name far{number}"));
        ip(&format!("link set far{number} up"));
    }
    let all = "port eth0
        address eth0 192.0.2.1/24
        address eth0 2001:db8:a::1/64
        port eth1
        address eth1 198.51.100.1/24
        address eth1 2001:db8:b::1/64
        veth v0 v1
        address v0 203.0.113.1/24
        address v0 2001:db8:c::1/64
        route 10.0.0.0/8 via 192.0.2.2 via 198.51.100.2 via 203.0.113.2
        route 2001:db8:9::/48 via 2001:db8:a::2 via 2001:db8:b::2 via 2001:db8:c::2";
    let without = |texts: &[&str]| {
        let lines = all.lines().filter(|line| !texts.iter().any(|text| line.contains(text)));
        lines.collect::<Vec<_>>().join("\n")
    };
    let down = all.replace("port eth1", "port eth1 down");
    let both = |links: &[&str]| {
        [(); 2].map(|()| links.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let mut agent = Agent::start(Vec::new(), Vec::new());
    let mut last = String::new();
    for (to, want) in [
        (down.as_str(), both(&["eth0", "v0"])),
        (all, both(&["eth0", "eth1", "v0"])),
        (without(&["v0"]).as_str(), both(&["eth0", "eth1"])),
        (all, both(&["eth0", "eth1", "v0"])),
        (without(&["address eth1"]).as_str(), both(&["eth0", "v0"])),
        (all, both(&["eth0", "eth1", "v0"])),
    ] {
        agent.commit(&last, to);
        assert_eq!(uplinks(), want, "{to}");
        to.clone_into(&mut last);
    }
    // Next hops that others remove are left out until they return.
    for (command, want) in [
        ("link del eth1", both(&["eth0", "v0"])),
        ("link add eth1 type veth peer name far1", both(&["eth0", "eth1", "v0"])),
        ("address del 192.0.2.1/24 dev eth0", both(&["eth0", "eth1", "v0"])),
        ("link set eth0 down", both(&["eth0", "eth1", "v0"])),
        ("route del 10.0.0.0/8", both(&["eth0", "eth1", "v0"])),
    ] {
        ip(command);
        agent.rest();
        assert_eq!(uplinks(), want, "{command}");
        agent.engine.audit().unwrap();
    }
    agent.commit(&last, &down);
    let restores = agent.engine.restores().map(|(k, v)| (k.clone(), v.clone())).collect();
    drop(agent);
    let agent = Agent::start(values(&down), restores);
    for (prefix, metric) in [("10.0.0.0/8", 20), ("2001:db8:9::/48", 1024)] {
        let key = route::key(MAIN_TABLE, prefix.parse().unwrap(), metric);
        let status = agent.engine.status(&key).unwrap();
        assert_eq!((status.state, status.last), (ValueState::Configured, None), "found in place");
    }
    assert_eq!(uplinks(), both(&["eth0", "v0"]));
}
