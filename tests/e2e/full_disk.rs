//! A state folder whose disk gets full, and then has free space again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::mounts::{self, fill, mount};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::Code;

use crate::alarms::{acknowledge, open_alarms};
use crate::documents::config_of;

/// Space for the first start of an agent, and a few changes.
const DISK: &str = "size=8m";

/// The first description of the port.
const FIRST: &str = "before";

const STORE_FAILED: &str = "store-failed@agent";

/// A file that takes all free space.
struct Filler(PathBuf);

impl Filler {
    fn on(disk: &Path) -> Self {
        let path = disk.join("filler");
        fill(&path).unwrap();
        Self(path)
    }

    fn remove(self) {
        fs::remove_file(self.0).unwrap();
    }
}

/// Mounts a small disk at a folder, for this thread and its children.
fn mount_small_disk(folder: &Path) {
    mounts::enter_own().unwrap();
    mount(&["-t", "tmpfs", "-o", DISK, "tmpfs"], folder).unwrap();
}

/// An agent whose state folder is a small disk.
async fn start_on_small_disk(net: &Netns) -> AgentProcess {
    let mut agent = AgentProcess::start(net).await;
    agent.kill();
    mount_small_disk(&agent.state_dir());
    agent.restart().await;
    agent
}

/// Changes a description until a change is refused, at most as often as the disk could hold.
async fn describe_until_refused(client: &GnmiClient) -> (String, tonic::Status) {
    let mut last = FIRST.to_owned();
    for number in 0..10_000 {
        let description = format!("{number} {}", "x".repeat(200));
        match client.update(&config_of("eth0"), json!({"description": description})).await {
            Ok(_) => last = description,
            Err(refused) => return (last, refused),
        }
    }
    panic!("the disk takes everything");
}

/// The numbers of the last transactions.
fn transactions(agent: &AgentProcess) -> BTreeSet<String> {
    let output = agent.show("transactions");
    let numbers = output.split_whitespace().filter(|word| word.starts_with('#'));
    numbers.map(ToOwned::to_owned).collect()
}

/// True when some line of a log has both texts.
fn has_line(log: &str, one: &str, other: &str) -> bool {
    log.lines().any(|line| line.contains(one) && line.contains(other))
}

#[tokio::test]
async fn full_disk_refuses_changes_and_keeps_the_configuration() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = start_on_small_disk(&net).await;
    let client = agent.gnmi().await;
    client
        .update(&config_of("eth0"), json!({"enabled": true, "description": FIRST}))
        .await
        .unwrap();

    let filler = Filler::on(&agent.state_dir());
    let (last, refused) = describe_until_refused(&client).await;
    assert_eq!(refused.code(), Code::Internal, "{refused:?}");
    assert!(refused.message().contains("No space left on device"), "{refused:?}");
    // A refused change has no trace, and earlier changes stay.
    assert_eq!(net.link("eth0").alias, last);
    let description = client.read(&format!("{}/description", config_of("eth0"))).await.unwrap();
    assert_eq!(description, json!(last));
    net.ip("link set eth0 down");
    eventually("the port is up again", || net.link("eth0").up).await;
    eventually("both histories wait for the disk", || {
        let log = agent.log();
        has_line(&log, "history is in memory only", "history.redb")
            && log.contains("accounts are in memory only")
    })
    .await;

    eventually("the disk is an alarm", || open_alarms(&agent).contains(STORE_FAILED)).await;
    let said = acknowledge(&agent, STORE_FAILED);
    assert!(said.contains("not on disk yet"), "{said}");
    assert!(open_alarms(&agent).contains("acknowledged by local"), "it is in force all the same");

    filler.remove();
    client.update(&config_of("eth0"), json!({"description": "room"})).await.unwrap();
    assert_eq!(net.link("eth0").alias, "room");
    eventually("both histories are written", || {
        let log = agent.log();
        has_line(&log, "the disk takes the history again", "history.redb")
            && log.contains("the disk takes accounts again")
    })
    .await;
    eventually("the alarm is over", || !open_alarms(&agent).contains(STORE_FAILED)).await;
    let listed = transactions(&agent);
    assert!(!listed.is_empty());
    agent.restart().await;
    assert_eq!(net.link("eth0").alias, "room");
    assert!(
        transactions(&agent).is_superset(&listed),
        "what was done while the disk was full is kept"
    );
}

#[tokio::test]
async fn a_box_starts_on_a_disk_that_is_full_without_its_histories() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = start_on_small_disk(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"description": FIRST})).await.unwrap();
    agent.kill();
    const HISTORIES: [&str; 3] = ["accounts.redb", "alarms.redb", "history.redb"];
    for file in HISTORIES {
        fs::remove_file(agent.state_dir().join(file)).unwrap();
    }
    let filler = Filler::on(&agent.state_dir());

    agent.restart().await;
    let client = agent.gnmi().await;
    let description = client.read(&format!("{}/description", config_of("eth0"))).await.unwrap();
    assert_eq!(description, json!(FIRST));
    for file in HISTORIES {
        assert!(has_line(&agent.log(), "is in memory only", file), "{file}: {}", agent.log());
    }

    filler.remove();
    client.update(&config_of("eth0"), json!({"description": "room"})).await.unwrap();
    eventually("the histories are written", || {
        has_line(&agent.log(), "the disk takes the history again", "history.redb")
            && agent.log().contains("the disk takes accounts again")
    })
    .await;
    agent.restart().await;
    assert!(!transactions(&agent).is_empty(), "the change is in the history");
}
