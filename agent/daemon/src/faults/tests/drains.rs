//! Drains on the simulated kernel.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::{BootChange, BootConfiguration, FenceItem, FenceOwner, FenceStanding};
use holdfast_core::{CommitOptions, Datastore, Intent};
use holdfast_faults::Resource;
use holdfast_platform::transport::SimulatedKernel;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::agent_tests::{Agent, caller};
use crate::faults::drains::{DrainEnd, DrainError, Drains};

/// Two ports and the routes by them: one with a backup, one by both, one with a next hop that a drained one would join, and one
/// without another way.
const NET: &str = r#"{
    "interfaces": {"interface": [
        {"name": "eth0", "ipv4": {"address": [{"ip": "10.0.0.1", "prefix-length": 24}]}},
        {"name": "eth1", "ipv4": {"address": [{"ip": "10.0.1.1", "prefix-length": 24}]}}
    ]},
    "network-instances": {"network-instance": [{"name": "DEFAULT", "static": [{"name": "s", "route": [
        {"prefix": "198.51.100.0/24", "next-hop": [
            {"index": "a", "next-hop": "10.0.0.2"}, {"index": "b", "next-hop": "10.0.1.2", "metric": 500}]},
        {"prefix": "198.51.101.0/24", "next-hop": [
            {"index": "a", "next-hop": "10.0.0.2", "metric": 7}, {"index": "b", "next-hop": "10.0.1.2", "metric": 7}]},
        {"prefix": "198.51.102.0/24", "next-hop": [
            {"index": "a", "next-hop": "10.0.0.2"}, {"index": "b", "interface": "eth1", "metric": 1020}]},
        {"prefix": "203.0.113.0/24", "next-hop": [{"index": "a", "next-hop": "10.0.0.2"}]}
    ]}]}]}
}"#;

/// The routes that leave eth0, with their metrics.
const DRAINED: [&str; 3] =
    ["198.51.100.0/24 a 1020", "198.51.101.0/24 a 1007", "198.51.102.0/24 a 1021"];

struct Rig {
    kernel: SimulatedKernel,
    agent: Agent,
    drains: Arc<Drains>,
    _running: AbortOnDropHandle<()>,
    _folder: tempfile::TempDir,
}

impl Rig {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        let drains = Arc::new(Drains::new(agent.handle.clone()).unwrap());
        let (inputs, mut reports) = mpsc::channel(1);
        let running = tokio::spawn(Arc::clone(&drains).run(inputs));
        tokio::spawn(async move { while reports.recv().await.is_some() {} });
        let running = AbortOnDropHandle::new(running);
        let rig = Self { kernel, agent, drains, _running: running, _folder: folder };
        rig.set("/", NET).await;
        rig.agent.turns().await;
        rig
    }

    async fn set(&self, path: &str, json: &str) {
        let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
        let payload = Payload::Json { text: json.as_bytes().to_vec().into(), ietf: false };
        self.edit(Edit { updates: vec![(target, payload)], ..Edit::default() }).await;
    }

    async fn delete(&self, path: &str) {
        let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
        self.edit(Edit { deletes: vec![target], ..Edit::default() }).await;
    }

    async fn edit(&self, edit: Edit) {
        let options = CommitOptions::default();
        self.agent.handle.commit(&caller(), edit, options).await.unwrap();
        self.agent.handle.current_revision().await;
    }

    /// Next hops that are raised, with their metrics.
    fn raised(&self) -> Vec<String> {
        let models = self.agent.handle.models();
        let raised = self.agent.handle.fences().into_iter().filter_map(|fence| {
            let FenceItem::Raise { next_hop, metric } = fence.item else { return None };
            let path = next_hop.to_path(&models.native);
            let key = |at: usize| path.elems[path.elems.len() - at].keys[0].1.clone();
            let standing = match fence.standing {
                FenceStanding::InForce => String::new(),
                standing => format!(" {standing:?}"),
            };
            Some(format!("{} {} {metric}{standing}", key(2), key(1)))
        });
        raised.collect()
    }

    async fn wait_for(&self, raised: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while self.raised() != raised {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", self.raised());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn left(&self) -> Vec<String> {
        let outcome = self.drains.outcome().borrow().clone();
        let models = self.agent.handle.models();
        let left = outcome.drains.values().flat_map(|it| it.left.to_vec());
        left.map(|entry| entry.to_path(&models.native).to_string()).collect()
    }
}

fn session() -> FenceOwner {
    FenceOwner::Session("7".into())
}

fn interface(name: &str) -> Resource {
    Resource::Interface(name.into())
}

fn route(prefix: &str) -> String {
    format!(
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix={prefix}]"
    )
}

#[tokio::test]
async fn routes_with_another_way_leave_a_link_and_come_back() {
    let rig = Rig::new().await;
    let before = rig.kernel.contents();
    rig.set("/maintenance/settings/quiet-pps", "1").await;
    let mut drain = rig.drains.begin(session(), interface("eth0")).unwrap();
    assert_eq!(drain.ended().await.unwrap(), DrainEnd::Drained, "nothing counts packets here");
    assert_eq!(rig.raised(), DRAINED);
    assert_eq!(rig.left(), [route("203.0.113.0/24")]);
    assert_eq!(drain.left().len(), 1);
    let explained = rig.kernel.describe();
    assert!(explained.iter().any(|it| it.contains("198.51.100.0/24") && it.contains("1020")));

    // A client changes such a metric meanwhile: the fence is on top of it again, and its value holds after.
    let hop = format!("{}/next-hop[index=a]/metric", route("198.51.100.0/24"));
    rig.set(&hop, "30").await;
    rig.wait_for(&["198.51.100.0/24 a 1030", DRAINED[1], DRAINED[2]]).await;
    rig.set(&hop, "5000").await;
    rig.wait_for(&["198.51.100.0/24 a 6000", DRAINED[1], DRAINED[2]]).await;
    rig.delete(&hop).await;
    rig.wait_for(&DRAINED).await;

    // A route that comes later is drained, too, and a route without another way is not.
    let hops = r#"{"next-hop": [{"index": "a", "next-hop": "10.0.0.2"}, {"index": "b", "next-hop": "10.0.1.2"}]}"#;
    rig.set(&route("203.0.113.0/24"), hops).await;
    rig.wait_for(&[DRAINED[0], DRAINED[1], DRAINED[2], "203.0.113.0/24 a 1020"]).await;
    rig.delete(&format!("{}/next-hop[index=b]", route("203.0.113.0/24"))).await;
    rig.wait_for(&DRAINED).await;
    rig.set("/maintenance/settings/drain-metric", "100").await;
    rig.wait_for(&["198.51.100.0/24 a 120", "198.51.101.0/24 a 107", "198.51.102.0/24 a 120"])
        .await;

    rig.drains.end(&session(), &interface("eth0")).await.unwrap();
    assert!(rig.raised().is_empty());
    rig.agent.turns().await;
    assert_eq!(rig.kernel.contents(), before);
}

#[tokio::test]
async fn each_owner_drains_for_itself() {
    let rig = Rig::new().await;
    let drain = rig.drains.begin(session(), interface("eth0")).unwrap();
    rig.wait_for(&DRAINED).await;
    let policy = FenceOwner::Policy("p".into());
    rig.drains.want(policy.clone(), BTreeSet::from([interface("eth0")]));
    drop(drain);
    rig.drains.end(&session(), &interface("eth0")).await.unwrap();
    assert_eq!(rig.raised(), DRAINED, "the policy has them, too");
    let owners = rig.agent.handle.fences().into_iter().flat_map(|fence| fence.owners);
    assert_eq!(owners.collect::<BTreeSet<_>>(), BTreeSet::from([policy.clone()]));
    rig.drains.want(policy, BTreeSet::new());
    rig.wait_for(&[]).await;

    // The clients' word is a leaf.
    rig.set("/interfaces/interface[name=eth0]/forwarding-viable", "false").await;
    rig.wait_for(&DRAINED).await;
    rig.set("/interfaces/interface[name=eth0]/forwarding-viable", "true").await;
    rig.wait_for(&[]).await;
}

#[tokio::test]
async fn a_next_hop_is_drained_on_every_link() {
    let rig = Rig::new().await;
    let next_hop = Resource::NextHop("10.0.0.2".parse().unwrap());
    let mut drain = rig.drains.begin(session(), next_hop.clone()).unwrap();
    assert_eq!(drain.ended().await.unwrap(), DrainEnd::Drained);
    assert_eq!(rig.raised(), DRAINED);
    rig.drains.end(&session(), &next_hop).await.unwrap();
    assert!(rig.raised().is_empty());
    let refused = rig.drains.begin(session(), Resource::Box).unwrap_err();
    assert_eq!(refused, DrainError::NoWay(Resource::Box));
}

#[tokio::test]
async fn a_session_of_an_earlier_run_keeps_its_drain_until_it_is_known_to_be_over() {
    let rig = Rig::new().await;
    let drain = rig.drains.begin(session(), interface("eth0")).unwrap();
    rig.wait_for(&DRAINED).await;
    drop(drain);
    // As after a restart: nobody has said yet what it wants.
    let again = Arc::new(Drains::new(rig.agent.handle.clone()).unwrap());
    let (inputs, _reports) = mpsc::channel(1);
    let _running = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&again).run(inputs)));
    again.has_level();
    let mut outcome = again.outcome();
    outcome.changed().await.unwrap();
    rig.agent.turns().await;
    assert_eq!(rig.raised(), DRAINED);
    drop(rig._running);
    let rig = Rig { _running: AbortOnDropHandle::new(tokio::spawn(async {})), ..rig };
    again.retain_sessions(&BTreeSet::from(["7".into()]));
    rig.agent.turns().await;
    assert_eq!(rig.raised(), DRAINED);
    again.retain_sessions(&BTreeSet::new());
    rig.wait_for(&[]).await;
}

#[tokio::test]
async fn a_metric_that_boot_holds_is_left_as_it_is() {
    let rig = Rig::new().await;
    let text = "network-instance DEFAULT static s route 198.51.100.0/24 next-hop a metric 30";
    let boot = BootConfiguration { vendor: text.into(), ..BootConfiguration::default() };
    let boot = Intent::boot(BootChange::Set(Some(boot.into())));
    rig.agent.handle.change(&caller(), boot).await.unwrap();
    let mut drain = rig.drains.begin(session(), interface("eth0")).unwrap();
    drain.ended().await.unwrap();
    assert_eq!(rig.raised(), DRAINED[1..]);
    assert_eq!(rig.left(), [route("198.51.100.0/24"), route("203.0.113.0/24")]);
}
