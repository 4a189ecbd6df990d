//! Power cuts: what was answered is there after the next boot, and a Set that was under way is there as a whole or not at all.
//!
//! The routes leave by VLANs and a bond with LACP, which have to come back, too.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_within;
use holdfast_tests::gnmi::update;
use holdfast_tests::lab::{DISK, Disk, Guest, SHARE, part, script_of};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

/// Power cuts of one run, with the routes of each Set: those of `make test`.
const USUAL: Effort = Effort { cuts: 5, routes: 2_000 };
/// Power cuts and routes of `make campaign`, which sets the variable [`CAMPAIGN_VARIABLE`] and has an optimised build.
const CAMPAIGN: Effort = Effort { cuts: 50, routes: 10_000 };
const CAMPAIGN_VARIABLE: &str = "HOLDFAST_POWER_CAMPAIGN";
/// Time limit for the first answer of a boot: a start, and its routes with a debug build on one slow processor.
const FIRST_ANSWER: Duration = Duration::from_secs(240);
/// Moments of a power cut after the first answer, and how far they are apart. Each round has the next moment.
const MOMENTS: u32 = 12;
const BETWEEN_MOMENTS: Duration = Duration::from_millis(170);

/// How much a run tries.
#[derive(Clone, Copy)]
struct Effort {
    cuts: u32,
    routes: u32,
}

impl Effort {
    fn chosen() -> Self {
        if std::env::var_os(CAMPAIGN_VARIABLE).is_some() { CAMPAIGN } else { USUAL }
    }
}

/// Path of all routes of the box.
pub(crate) const STATIC: &str =
    "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=DEFAULT]";

/// Gateways of the routes in turn: by the bond itself, by a VLAN on it, and by a VLAN of a port.
const GATEWAYS: [(&str, &str); 3] =
    [("192.0.2.2", "bond0"), ("198.51.100.2", "bond0.7"), ("203.0.113.2", "eth0.9")];

/// The routes that a Set with this number asks for: each Set replaces all of them by others.
fn routes(number: u32, count: u32) -> Value {
    let metric = number + 1;
    let entry = |index: u32| {
        let prefix = format!("10.{}.{}.0/24", index >> 8, index & 255);
        let (gateway, _) = GATEWAYS[index as usize % GATEWAYS.len()];
        let hop = json!({"index": "0", "next-hop": gateway, "metric": metric});
        json!({"prefix": prefix, "next-hop": [hop]})
    };
    json!({"route": (0..count).map(entry).collect::<Vec<_>>()})
}

/// The links that the routes leave by. The number of the Set is in the description of each, so that a Set is more than routes.
fn links(number: u32) -> Value {
    let address = |ip: &str| json!({"address": [{"ip": ip, "prefix-length": 24}]});
    let description = number.to_string();
    let vlan = |id: u32, ip: &str| json!({"index": id, "vlan-id": id, "description": description, "ipv4": address(ip)});
    let member = |name: &str| json!({"name": name, "aggregate": "bond0"});
    json!({"interface": [
        {"name": "eth0", "description": description, "vlan": [vlan(9, "203.0.113.1")]},
        {
            "name": "bond0", "type": "bond", "bond": {"mode": "802.3ad"}, "description": description,
            "ipv4": address("192.0.2.1"), "vlan": [vlan(7, "198.51.100.1")],
        },
        member("eth1"),
        member("eth2"),
    ]})
}

/// One Set with all of it.
fn whole(number: u32, count: u32) -> SetRequest {
    let interfaces = update("holdfast_native:/interfaces", links(number));
    let lacp = json!({"interface": [{"name": "bond0", "interval": "FAST"}]});
    let lacp = update("holdfast_native:/lacp", lacp);
    let routes = update(STATIC, routes(number, count));
    SetRequest { replace: vec![interfaces, lacp, routes], ..Default::default() }
}

async fn start(net: &Netns) -> AgentProcess {
    AgentProcess::start_at(&Path::new(DISK).join("box"), net).await
}

/// A box with a port, and two cables to another box, which has a bond at its end.
fn wired() -> (Netns, Netns) {
    let net = Netns::enter();
    let other = Netns::detached();
    other.ip("link add bond0 type bond mode 802.3ad miimon 100 lacp_rate fast");
    for cable in 0..3 {
        net.add_cable(&format!("eth{cable}"), &other, &format!("peer{cable}"));
        let end = if cable == 0 { "up" } else { "master bond0" };
        other.ip(&format!("link set peer{cable} {end}"));
    }
    other.ip("link set bond0 up");
    (net, other)
}

/// File in the shared folder with a line for each Set that was answered: its number.
pub(crate) const ANSWERED: &str = "answered";

/// Adds the number of a Set to the file of those that were answered.
pub(crate) fn record_answer(number: u32) {
    let file = File::options().create(true).append(true).open(in_share(ANSWERED));
    writeln!(file.unwrap(), "{number}").unwrap();
}

/// Number in the last line of a file, such as that of the last Set that was answered.
pub(crate) fn answered(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.lines().last()?.parse().ok()
}

pub(crate) fn in_share(name: &str) -> PathBuf {
    Path::new(SHARE).join(name)
}

/// Number of routes that the host asks a guest for.
fn routes_asked() -> u32 {
    answered(&in_share("routes")).expect("the host has written the number of routes")
}

/// Sends Sets one after the other until the power is cut, and writes a line into the shared folder for each answer.
async fn sets_without_end() {
    let (net, _other) = wired();
    let agent = start(&net).await;
    let client = agent.gnmi().await;
    let before = answered(&in_share("before")).map_or(0, |number| number + 1);
    let routes = routes_asked();
    for number in before.. {
        client.set(whole(number, routes)).await.unwrap();
        record_answer(number);
    }
}

/// Checks after a power cut that the box has one whole Set, and not an earlier one than the last that was answered.
async fn nothing_is_lost_or_torn() {
    let (net, _other) = wired();
    let agent = start(&net).await;
    let last = answered(&in_share("before")).unwrap();
    // The carrier of a bond comes once both ends have agreed.
    let routes = routes_asked() as usize;
    let ours = || net.ip_json("-4 route show proto 150");
    eventually_within(FIRST_ANSWER, "all routes are there", || {
        std::future::ready(ours().len() == routes)
    })
    .await;
    let routes = ours();
    let number = |route: &Value| u32::try_from(route["metric"].as_u64().unwrap()).unwrap() - 1;
    let found = number(&routes[0]);
    assert!(routes.iter().all(|route| number(route) == found), "the routes are of two Sets");
    assert!(found == last || found == last + 1, "answered {last}, found {found}");
    for (gateway, link) in GATEWAYS {
        let by_it = |route: &&Value| route["gateway"] == gateway;
        assert!(routes.iter().filter(by_it).all(|route| route["dev"] == link), "{link}");
    }
    for link in ["eth0", "eth0.9", "bond0", "bond0.7"] {
        let alias = net.ip_json(&format!("link show {link}"))[0]["ifalias"].clone();
        assert_eq!(alias, json!(found.to_string()), "{link}");
    }
    for member in ["eth1", "eth2"] {
        assert_eq!(net.link(member).master.as_deref(), Some("bond0"), "{}", agent.log());
    }
}

/// The test below, whose parts run in guests.
const TEST: &str = "power::a_power_cut_loses_nothing_that_was_answered";
const SETS: &str = "sets";
const CHECK: &str = "check";

#[tokio::test]
async fn a_power_cut_loses_nothing_that_was_answered() {
    match part().as_deref() {
        Some(SETS) => sets_without_end().await,
        Some(_) => nothing_is_lost_or_torn().await,
        None => cut_power_again_and_again().await,
    }
}

async fn cut_power_again_and_again() {
    let effort = Effort::chosen();
    let disk = Disk::new().unwrap();
    let mut before = None;
    for cut in 0..effort.cuts {
        let mut guest = Guest::boot(Some(&disk)).unwrap();
        fs::write(guest.shared_file("routes"), format!("{}\n", effort.routes)).unwrap();
        if let Some(last) = before {
            fs::write(guest.shared_file("before"), format!("{last}\n")).unwrap();
            let run = guest.run(&script_of(TEST, CHECK));
            assert_eq!(run.status, Some(0), "after cut {cut}: {}", run.output);
        }
        let file = guest.shared_file(ANSWERED);
        let _never_ends = guest.start(&script_of(TEST, SETS)).unwrap();
        eventually_within(FIRST_ANSWER, "a Set is answered", || {
            std::future::ready(answered(&file).is_some())
        })
        .await;
        tokio::time::sleep(BETWEEN_MOMENTS * (cut % MOMENTS)).await;
        guest.cut_power();
        // Not before the cut: another Set may be answered in between.
        before = answered(&file);
    }
}
