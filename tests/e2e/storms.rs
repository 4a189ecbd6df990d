//! Storms: more changes than anybody could tell one by one. The last report is right.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::mounts::{self, mount};
use holdfast_tests::netns::Netns;
use holdfast_tests::tap;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::documents::port;

const LINKS: usize = 100;
/// Losses and returns of carriers: some thousands a second.
const CHANGES: usize = 40_000;
/// Links with an alarm rule, from the first one on.
const WATCHED: usize = 10;
/// Memory that a storm may cost, in bytes.
const MEMORY: u64 = 32 << 20;
/// Time in which everything is told after the storm: an alarm of a link that flapped stays until that is quiet for 10 s.
const TOLD: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

fn name(link: usize) -> String {
    format!("t{link}")
}

/// The link has a carrier after the storm.
fn ends_up(link: usize) -> bool {
    link.is_multiple_of(2)
}

fn leaf_of<'a>(entry: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(entry, |at, name| &at[*name])
}

/// Entries of a list by their keys.
fn entries(part: &Value, list: &str, key: &str) -> BTreeMap<String, Value> {
    let list = part.as_object().unwrap().iter().find(|(name, _)| name.ends_with(list));
    let entries = list.and_then(|(_, list)| list.as_array().cloned()).unwrap_or_default();
    let keyed = entries.into_iter().map(|entry| (entry[key].as_str().unwrap().to_owned(), entry));
    keyed.collect()
}

/// Errors in the reports of the links; empty when all of them are right.
async fn differences(client: &GnmiClient) -> Vec<String> {
    let interfaces = client.read("holdfast_native:/interfaces").await.unwrap();
    let alarms = client.read("holdfast_native:/fault-state").await.unwrap();
    let interfaces = entries(&interfaces, "interface", "name");
    let open = entries(&alarms, "alarm", "id");
    let mut wrong = Vec::new();
    for link in 0..LINKS {
        let name = name(link);
        let state = &interfaces[&name]["state"];
        let wanted = if ends_up(link) { "UP" } else { "DOWN" };
        let told = leaf_of(state, &["oper-status"]);
        if told != wanted {
            wrong.push(format!("{name} is {wanted}, and {told} is told"));
        }
        let changes = fs::read_to_string(format!("/sys/class/net/{name}/carrier_changes")).unwrap();
        let told = leaf_of(state, &["counters", "carrier-transitions"]);
        if told.as_str() != Some(changes.trim()) {
            wrong.push(format!("{name} had {} changes, and {told} are told", changes.trim()));
        }
        if open.contains_key(&format!("link-down@interface:{name}")) == ends_up(link) {
            wrong.push(format!("the alarm of {name}, which is {wanted}"));
        }
        let rule = format!("rule-matched.noc/{name}@agent");
        if open.contains_key(&rule) != (link < WATCHED && !ends_up(link)) {
            wrong.push(format!("the alarm of the rule {name}, which is {wanted}"));
        }
    }
    wrong
}

// proves sv.C15, sv.C25
#[tokio::test]
async fn what_is_told_after_a_storm_of_losses_is_right() {
    let net = Netns::enter();
    mounts::enter_own().unwrap();
    mount(&["-t", "sysfs", "sysfs"], Path::new("/sys")).unwrap();
    let taps: Vec<_> = (0..LINKS)
        .map(|link| {
            net.ip(&format!("tuntap add dev {} mode tap", name(link)));
            tap::hold(&name(link)).unwrap()
        })
        .collect();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let links: Vec<Value> = (0..LINKS).map(|link| port(&name(link), &[])).collect();
    client.update("/interfaces", json!({"interface": links})).await.unwrap();
    let rules = (0..WATCHED).map(|link| {
        json!({
            "owner": "noc",
            "name": name(link),
            "type": "link-down",
            "resource": format!("interface:{}", name(link)),
            "expression": "severity >= MAJOR",
        })
    });
    let rules = json!({"alarm-rule": rules.collect::<Vec<_>>()});
    client.update("holdfast_native:/fault-management", rules).await.unwrap();
    let before = agent.resident_bytes();

    let storm = tokio::task::spawn_blocking(move || {
        for change in 0..CHANGES {
            let link = change % LINKS;
            // Each link loses its carrier first, and has it again with every other change.
            tap::set_carrier(&taps[link], (change / LINKS) % 2 == 1).unwrap();
        }
        for (link, tap) in taps.iter().enumerate() {
            tap::set_carrier(tap, ends_up(link)).unwrap();
        }
        taps
    });
    let taps = storm.await.unwrap();
    let deadline = Instant::now() + TOLD;
    loop {
        let wrong = differences(&client).await;
        if wrong.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{wrong:#?}");
        sleep(LOOK_AGAIN).await;
    }
    let more = agent.resident_bytes().saturating_sub(before);
    assert!(more < MEMORY, "the storm cost {more} bytes");
    assert!(!agent.log().contains("because of a bug"), "{}", agent.log());
    drop(taps);
}
