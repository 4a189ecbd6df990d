//! Power cuts: what was answered is there after the next boot, and a Set that was under way is there as a whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_within;
use holdfast_tests::lab::{DISK, Disk, Guest, SHARE, part, script_of};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

/// Power cuts of one run.
const CUTS: u32 = 5;
/// Routes of each Set.
const ROUTES: u32 = 2_000;
/// Time limit for the first answer of a boot: a start, and its routes with a debug build on one slow processor.
const FIRST_ANSWER: Duration = Duration::from_secs(240);

/// Path of all routes of the box.
const STATIC: &str =
    "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=DEFAULT]";

/// The routes that a Set with this number asks for: each Set replaces all of them by others.
fn routes(number: u32) -> Value {
    let metric = number + 1;
    let entry = |index: u32| {
        let prefix = format!("10.{}.{}.0/24", index >> 8, index & 255);
        let hop = json!({"index": "0", "next-hop": "192.0.2.2", "metric": metric});
        json!({"prefix": prefix, "next-hop": [hop]})
    };
    json!({"route": (0..ROUTES).map(entry).collect::<Vec<_>>()})
}

async fn start(net: &Netns) -> AgentProcess {
    AgentProcess::start_at(&Path::new(DISK).join("box"), net).await
}

/// A box with the port of the routes.
fn wired() -> Netns {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    net
}

/// Number of the last Set that was answered.
fn answered(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.lines().last()?.parse().ok()
}

fn in_share(name: &str) -> PathBuf {
    Path::new(SHARE).join(name)
}

/// Sends Sets one after the other until the power is cut, and writes a line into the shared folder for each answer.
async fn sets_without_end() {
    let net = wired();
    let agent = start(&net).await;
    let client = agent.gnmi().await;
    let port =
        json!({"name": "eth0", "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}});
    client.update("holdfast_native:/interfaces", json!({"interface": [port]})).await.unwrap();
    let before = answered(&in_share("before")).map_or(0, |number| number + 1);
    for number in before.. {
        client.replace(STATIC, routes(number)).await.unwrap();
        let line =
            format!("{}{number}\n", fs::read_to_string(in_share("answered")).unwrap_or_default());
        fs::write(in_share("answered"), line).unwrap();
    }
}

/// Checks after a power cut that the box has one whole Set, and not an earlier one than the last that was answered.
async fn nothing_is_lost_or_torn() {
    let net = wired();
    let agent = start(&net).await;
    let last = answered(&in_share("before")).unwrap();
    let metrics: Vec<u32> = net
        .ip_json("-4 route show proto 150")
        .iter()
        .map(|route| u32::try_from(route["metric"].as_u64().unwrap()).unwrap())
        .collect();
    assert_eq!(metrics.len(), ROUTES as usize, "{}", agent.log());
    let found = metrics[0] - 1;
    assert!(metrics.iter().all(|metric| *metric == found + 1), "the routes are of two Sets");
    assert!(found == last || found == last + 1, "answered {last}, found {found}");
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
    let disk = Disk::new().unwrap();
    let mut before = None;
    for cut in 0..CUTS {
        let guest = Guest::boot(Some(&disk)).unwrap();
        if let Some(last) = before {
            fs::write(guest.shared_file("before"), format!("{last}\n")).unwrap();
            let run = guest.run(&script_of(TEST, CHECK));
            assert_eq!(run.status, Some(0), "after cut {cut}: {}", run.output);
        }
        let file = guest.shared_file("answered");
        let _never_ends = guest.start(&script_of(TEST, SETS)).unwrap();
        eventually_within(FIRST_ANSWER, "a Set is answered", || {
            std::future::ready(answered(&file).is_some())
        })
        .await;
        // The moment is another one in each round.
        tokio::time::sleep(Duration::from_millis(u64::from(cut) * 170)).await;
        before = answered(&file);
        guest.cut_power();
    }
}
