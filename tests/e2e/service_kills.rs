//! Kills of the agent while an instance is made, goes on and is deleted: the lines of the table in section 12 of
//! `agent/services/SERVICES.md`.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{has_instances, packed};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::{Code, Status};

const ACME: &str = "holdfast_native:/services/bridge-access[name=acme]";
const SERVICE_STATE: &str = "holdfast_native:/service-state";
const PREFIX: &str = "198.51.100.0/24";

/// Times from the beginning of a request to the kill, in milliseconds: from before its record is written until after its
/// answer, and its action.
const DELAYS: [u64; 5] = [0, 10, 20, 40, 80];

/// A change of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Create,
    /// The next state opens, with its action.
    Stage,
    Delete,
}

/// The instance as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instance {
    Absent,
    Attached,
    Approved,
}

impl Phase {
    /// The instance before and after it.
    fn ends(self) -> [Instance; 2] {
        match self {
            Self::Create => [Instance::Absent, Instance::Approved],
            Self::Stage => [Instance::Attached, Instance::Approved],
            Self::Delete => [Instance::Approved, Instance::Absent],
        }
    }
}

/// Configures the instance.
async fn configure(client: &GnmiClient, instance: Instance) -> Result<(), Status> {
    if instance == Instance::Absent {
        return client.delete(ACME).await.map(drop);
    }
    let approved = instance == Instance::Approved;
    let params = json!({"port": "eth1", "bridge": "br0", "gateway": "10.0.0.1/24", "prefix": PREFIX,
        "via": "10.0.0.11", "approved": approved});
    client.update(ACME, params).await.map(drop)
}

/// The instance that the box is configured to have.
async fn configured(client: &GnmiClient) -> Instance {
    match client.read(&format!("{ACME}/approved")).await {
        Ok(Value::Bool(true)) => Instance::Approved,
        Ok(_) => Instance::Attached,
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{status}");
            Instance::Absent
        }
    }
}

/// Waits until all that the instance asks for is there, and nothing else.
async fn comes_to(net: &Netns, client: &GnmiClient, instance: Instance) {
    let is_there = instance != Instance::Absent;
    let is_routed = instance == Instance::Approved;
    eventually(&format!("the kernel has what belongs to {instance:?}"), || {
        net.find_link("br0").is_some() == is_there
            && net.link("eth1").master.is_some() == is_there
            && net.ip("-4 route show").contains(PREFIX) == is_routed
    })
    .await;
    eventually_async(&format!("the service plan is that of {instance:?}"), async || {
        if !is_there {
            // Nobody owns anything any more.
            let state = client.read(SERVICE_STATE).await;
            return state.is_ok_and(|state| !has_instances(&state.to_string()));
        }
        let status = client.read(&format!("{ACME}/state/status")).await;
        let queue = client.read(&format!("{SERVICE_STATE}/queue")).await;
        let is_queue_empty = queue.map_or(true, |entries| entries.is_null());
        (status.is_ok_and(|it| it == "reached") == is_routed) && is_queue_empty
    })
    .await;
}

/// Identifiers of the calls that have begun according to a part of the log.
fn calls(log: &str) -> BTreeSet<&str> {
    let begins = log.lines().filter(|line| line.contains("an action begins"));
    begins.filter_map(|line| line.split(" id=").nth(1)?.split(' ').next()).collect()
}

// proves sv.B1
#[tokio::test]
async fn a_kill_at_any_moment_leaves_an_instance_before_or_after_a_change() {
    let net = Netns::enter();
    let far = Netns::detached();
    net.add_cable("eth1", &far, "uplink");
    far.ip("address add 10.0.0.11/24 dev uplink");
    far.ip("link set uplink up");
    net.ip("link set eth1 up");
    let packages = packed("bridge-access");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let mut seen = BTreeSet::new();
    let mut probes = 0;
    for phase in [Phase::Create, Phase::Stage, Phase::Delete] {
        let [before, after] = phase.ends();
        for delay in DELAYS {
            let client = agent.gnmi().await;
            // A sticky state is left by a deletion alone.
            for instance in BTreeSet::from([Instance::Absent, before]) {
                configure(&client, instance).await.unwrap();
                comes_to(&net, &client, instance).await;
            }
            let logged = agent.log().len();
            let request = tokio::spawn(async move { configure(&client, after).await });
            sleep(Duration::from_millis(delay)).await;
            agent.kill();
            let is_answered = request.await.unwrap().is_ok();
            agent.restart().await;

            let client = agent.gnmi().await;
            let found = configured(&client).await;
            assert!([before, after].contains(&found), "{phase:?} after {delay} ms: {found:?}");
            assert!(
                !is_answered || found == after,
                "{phase:?} after {delay} ms: what was answered"
            );
            comes_to(&net, &client, found).await;
            let log = agent.log();
            let calls = calls(&log[logged..]);
            assert!(calls.len() <= 1, "{phase:?} after {delay} ms: calls {calls:?} of one state");
            probes += calls.len();
            seen.insert((format!("{phase:?}"), found == after));
        }
    }
    assert!(probes > 0, "the log names the calls");
    assert!(seen.len() > 3, "kills before and after the commit: {seen:?}");
}
