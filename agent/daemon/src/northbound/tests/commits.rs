//! Commits with extensions, through a real channel, over the core and the simulated kernel.

use holdfast_store::RevisionRange;
use std::cell::RefCell;
use std::time::Duration;

use holdfast_config::layer::Namespace;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::schema::Origin;
use holdfast_config::{LayerKey, Layers, Models};
use holdfast_core::{Datastore, Intent};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_proto::gnmi;
use holdfast_store::{Change, Store};
use holdfast_telemetry::commits::MAX_BOUNDARIES;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tempfile::TempDir;
use tonic::{Code, Status};

use super::extensions::extensions;
use super::harness::*;
use crate::agent_tests::{Agent, BOX, caller};

pub(super) const MTU: &str = "/interfaces/interface[name=eth0]/config/mtu";

/// A box with ports, an agent on it, and a client.
pub(super) struct Rig {
    pub(super) kernel: SimulatedKernel,
    folder: TempDir,
    pub(super) agent: Agent,
    client: Client,
}

/// State that a rollback must restore.
#[derive(Debug, PartialEq)]
pub(super) struct BoxSnapshot {
    layers: [String; 2],
    annotation: Option<String>,
    kernel: Vec<String>,
    published: String,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
        let folder = TempDir::new().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        let client = client(&agent).await;
        let mut rig = Self { kernel, folder, agent, client };
        rig.set_with(&format!("update / {}", BOX.replace("; ", ";")), "").await.unwrap();
        rig
    }

    /// Stops the agent, and starts another one on its state.
    pub(super) async fn restart(self) -> Self {
        let Self { kernel, folder, agent, .. } = self;
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        let client = client(&agent).await;
        Self { kernel, folder, agent, client }
    }

    /// Has the commit `a` taken back: by a request, by the time that passes, or by a restart.
    async fn take_back(mut self, end: &str) -> Self {
        match end {
            "cancel" => drop(self.set_with("", "cancel a").await.unwrap()),
            "time" => self.pass(minutes(11)).await,
            _ => return self.restart().await,
        }
        self
    }

    /// Sends a Set with extensions; operations and extensions may be empty.
    pub(super) async fn set_with(
        &mut self,
        operations: &str,
        extension: &str,
    ) -> Result<gnmi::SetResponse, Status> {
        let mut request = set_request(operations);
        request.extension = extensions(extension);
        self.client.set(request).await.map(tonic::Response::into_inner)
    }

    #[track_caller]
    pub(super) fn snapshot(&self) -> BoxSnapshot {
        let configuration = self.agent.handle.configuration();
        let layers = configuration.layers();
        let tree = |origin| format!("{:?}", layers.tree(LayerKey::client(origin)));
        BoxSnapshot {
            layers: [tree(Origin::OpenConfig), tree(Origin::Native)],
            annotation: layers.annotation.as_ref().map(ToString::to_string),
            kernel: self.kernel.contents(),
            published: self.agent.published_text(),
        }
    }

    pub(super) async fn pass(&self, time: Duration) {
        self.agent.pass(time).await;
    }

    /// Waits until a revision shows the earlier state.
    pub(super) async fn until(&self, before: &BoxSnapshot) {
        let mut revisions = self.agent.handle.watch();
        while self.snapshot() != *before {
            revisions.changed().await.unwrap();
        }
    }
}

// proves 2.14
#[tokio::test]
async fn union_replace_without_mastership_is_refused() {
    let mut rig = Rig::new().await;
    let union = |mtu: u16| {
        format!(
            r#"union / {{"openconfig-interfaces:interfaces":{{"interface":[{{"name":"eth0","config":{{"name":"eth0","mtu":{mtu}}}}}]}}}}"#
        )
    };
    rig.set_with(&union(1314), "election sdn 0 5").await.unwrap();
    let before = rig.snapshot();
    let refused = rig.set_with(&union(1414), "election sdn 0 4").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
    assert_eq!(rig.snapshot(), before);
    rig.set_with(&union(1414), "election sdn 0 6").await.unwrap();
    assert_ne!(rig.snapshot(), before);
}

#[tokio::test]
async fn a_comment_is_in_the_log_of_revisions_and_one_that_is_none_is_refused() {
    let mut rig = Rig::new().await;
    let before = rig.snapshot();
    let too_long = "x".repeat(257);
    for (mtu, comment, code) in
        [(1314, "ticket 7", None), (1414, &too_long, Some(Code::InvalidArgument))]
    {
        let mut request = tonic::Request::new(set_request(&format!("update {MTU} {mtu}")));
        request.metadata_mut().insert("holdfast-comment", comment.parse().unwrap());
        let refusal = rig.client.set(request).await.err();
        assert_eq!(refusal.as_ref().map(Status::code), code, "{refusal:?}");
        assert!(refusal.is_none_or(|it| it.message().contains("`holdfast-comment`")));
    }
    assert_ne!(rig.snapshot(), before);
    let listed = rig.agent.handle.revisions(RevisionRange::ALL).await.unwrap();
    let newest = &listed.revisions.last().unwrap().revision;
    assert_eq!(newest.comment.as_deref(), Some("ticket 7"));
    assert_eq!(newest.difference.lines, ["- interface eth0 mtu 1400", "+ interface eth0 mtu 1300"]);
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

// proves 1.65, 1.128, 1.130, 1.131, 1.133, 1.134, 1.135
#[tokio::test]
async fn while_a_commit_waits_only_its_own_requests_pass() {
    let mut rig = Rig::new().await;
    let change = format!("update {MTU} 1314");
    for (operations, extension, code) in [
        ("", "confirm a", Code::FailedPrecondition),
        ("", "cancel a", Code::FailedPrecondition),
        ("", "extend a 5", Code::FailedPrecondition),
        (&*change, "begin a 3000", Code::Ok),
        (&change, "", Code::FailedPrecondition),
        ("", "", Code::FailedPrecondition),
        (&change, "begin a 3000", Code::FailedPrecondition),
        (&change, "begin b 3000", Code::FailedPrecondition),
        (&change, "dry-run", Code::FailedPrecondition),
        ("", "confirm b", Code::InvalidArgument),
        ("", "cancel b", Code::InvalidArgument),
        ("", "extend b 5", Code::InvalidArgument),
        (&change, "confirm a", Code::InvalidArgument),
        (&change, "cancel a", Code::InvalidArgument),
        (&change, "extend a 5", Code::InvalidArgument),
        ("", "dry-run; cancel a", Code::InvalidArgument),
        ("", "extend a 4000", Code::Ok),
        ("", "confirm a", Code::Ok),
        ("", "confirm a", Code::FailedPrecondition),
        ("", "cancel a", Code::FailedPrecondition),
        (&change, "", Code::Ok),
        ("", "begin b", Code::Ok), // nothing but a window
        ("", "cancel b", Code::Ok),
    ] {
        let before = rig.agent.handle.revision().number;
        let answered = rig.set_with(operations, extension).await;
        let answer_code = answered.as_ref().err().map_or(Code::Ok, Status::code);
        assert_eq!(answer_code, code, "{operations} {extension}: {answered:?}");
        if answer_code != Code::Ok {
            assert_eq!(rig.agent.handle.revision().number, before, "{operations} {extension}");
        }
    }
    assert!(rig.agent.published_text().contains(r#""mtu":1314"#));
    rig.agent.stop().await;
}

// proves 1.129, 1.132, 1.133
#[tokio::test]
async fn an_unconfirmed_commit_is_rolled_back_in_time() {
    let mut rig = Rig::new().await;
    let before = rig.snapshot();
    let change = format!("update {MTU} 1314; delete /network-instances");
    // request, second request, minutes for which the change stays, minutes after which it is gone
    for (begin, then, stands, deleted) in [
        ("begin a", "", 8, 3),
        ("begin a 1200", "", 18, 3),
        ("begin a 1200", "extend a 3600", 55, 10),
        ("begin a 7200", "extend a 1200", 15, 10),
    ] {
        rig.set_with(&change, begin).await.unwrap();
        let after = rig.snapshot();
        assert_ne!(after, before);
        if !then.is_empty() {
            rig.pass(minutes(2)).await;
            rig.set_with("", then).await.unwrap();
        }
        rig.pass(minutes(stands)).await;
        assert_eq!(rig.snapshot(), after, "{begin} {then}");
        rig.pass(minutes(deleted)).await;
        rig.until(&before).await;
        let late = rig.set_with("", "confirm a").await.unwrap_err();
        assert_eq!(late.code(), Code::FailedPrecondition);
    }
    // A commit that is confirmed in time stays, also over a restart.
    rig.set_with(&change, "begin a").await.unwrap();
    let after = rig.snapshot();
    rig.pass(minutes(8)).await;
    rig.set_with("", "confirm a").await.unwrap();
    rig.pass(minutes(60)).await;
    assert_eq!(rig.snapshot(), after);
    let rig = rig.restart().await;
    assert_eq!(rig.snapshot(), after);
    rig.agent.stop().await;
}

// proves 1.91, 1.135
#[tokio::test]
async fn a_restart_takes_an_unconfirmed_commit_back_with_the_note_on_the_root() {
    let mut rig = Rig::new().await;
    let noted = |note: &str| {
        format!(r#"update / {{"@": {{"openconfig-metadata:protobuf-metadata": "{note}"}}}}"#)
    };
    rig.set_with(&noted("Zmlyc3Q="), "").await.unwrap();
    let before = rig.snapshot();
    assert_eq!(before.annotation.as_deref(), Some("Zmlyc3Q="));
    let change = format!("{}; update {MTU} 1314", noted("c2Vjb25k"));
    rig.set_with(&change, "begin a").await.unwrap();
    assert_eq!(rig.snapshot().annotation.as_deref(), Some("c2Vjb25k"));
    let mut rig = rig.restart().await;
    rig.until(&before).await;
    let late = rig.set_with("", "confirm a").await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition);
    rig.set_with(&change, "").await.unwrap();
    rig.agent.stop().await;
}

// proves 1.135
#[tokio::test]
async fn a_rollback_keeps_changes_of_other_owners() {
    for restarted in [false, true] {
        let mut rig = Rig::new().await;
        let before = rig.snapshot();
        rig.set_with(&format!("update {MTU} 1314"), "begin a").await.unwrap();
        let off = Intent::Switch { service: Namespace::Bootz, on: false };
        rig.agent.handle.change(&caller(), off).await.unwrap();
        if restarted {
            rig = rig.restart().await;
        } else {
            rig.set_with("", "cancel a").await.unwrap();
        }
        rig.until(&before).await;
        let is_on = |layers: &Layers| layers.is_on(Namespace::Bootz);
        assert!(!is_on(rig.agent.handle.configuration().layers()), "restarted: {restarted}");
        rig.agent.stop().await;
    }
}

// proves 1.132
#[tokio::test]
async fn a_rollback_ends_when_the_kernel_refuses_it() {
    for nth in 1..=4 {
        let mut rig = Rig::new().await;
        let before = rig.snapshot();
        let change = format!("update {MTU} 1314; delete /network-instances");
        rig.set_with(&change, "begin a").await.unwrap();
        rig.kernel.fault_at(nth, Fault::Fail(nix::libc::EBUSY));
        rig.set_with("", "cancel a").await.unwrap();
        // The configuration is back at once; failed operations are tried again.
        let layers = rig.snapshot().layers;
        assert_eq!(layers, before.layers, "request {nth}");
        for _ in 0..10 {
            rig.pass(minutes(5)).await;
        }
        rig.until(&before).await;
        rig.agent.stop().await;
    }
}

// proves 1.136, 1.137, 1.138, 1.139
#[tokio::test]
async fn the_writer_with_the_highest_election_id_of_its_role_writes() {
    let mut rig = Rig::new().await;
    let mut mtu = 1300;
    let max = u64::MAX;
    for (role, high, low, code) in [
        ("", 0, 5, Code::Ok),
        ("", 0, 5, Code::Ok),
        ("", 0, 4, Code::PermissionDenied),
        ("other", 0, 1, Code::Ok),
        ("", 1, 0, Code::Ok),
        ("", 0, max, Code::PermissionDenied),
        ("other", 0, 0, Code::PermissionDenied),
    ] {
        mtu += 1;
        let election = format!("election {role} {high} {low}");
        let answered = rig.set_with(&format!("update {MTU} {mtu}"), &election).await;
        let answer_code = answered.as_ref().err().map_or(Code::Ok, Status::code);
        assert_eq!(answer_code, code, "{election}: {answered:?}");
        let is_visible = rig.agent.published_text().contains(&format!(r#""mtu":{mtu}"#));
        assert_eq!(is_visible, code == Code::Ok, "{election}");
    }
    // An empty Set raises the id, a dry run does not, and a writer without an election id may write.
    rig.set_with("", "election  9 0").await.unwrap();
    rig.set_with("", "election  10 0; dry-run").await.unwrap();
    rig.set_with("", "election  9 0").await.unwrap();
    let refused = rig.set_with(&format!("update {MTU} 1400"), "election  8 9").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let highest = (9_u128 << 64).to_string();
    assert!(refused.message().contains(&highest), "{refused:?}");
    rig.set_with(&format!("update {MTU} 1400"), "").await.unwrap();
    // A new master may announce itself while a commit waits.
    rig.set_with(&format!("update {MTU} 1401"), "begin a").await.unwrap();
    rig.set_with("", "election  11 0").await.unwrap();
    let stale = rig.set_with("", "confirm a; election  10 0").await.unwrap_err();
    assert_eq!(stale.code(), Code::PermissionDenied);
    rig.set_with("", "confirm a; election  11 0").await.unwrap();
    rig.agent.stop().await;
}

// proves 1.143, 1.144, 1.145
#[tokio::test]
async fn subscribers_receive_the_boundary_of_each_commit() {
    let mut rig = Rig::new().await;
    use gnmi::subscription_list::Mode;
    let request = gnmi::SubscribeRequest {
        extension: extensions("config"),
        ..subscribe(list(Mode::Stream, &["change /interfaces/interface[name=eth0]"]))
    };
    let mut follower = Subscription::open(&mut rig.client.clone(), request).await;
    let text = follower.until_sync().await.join(" ");
    assert!(text.contains("/config/mtu=1414") && !text.contains("/state/"), "{text}");
    let mtu = |value: u32| format!("{MTU}={value}");
    // request, extensions, messages to the follower
    for (requests, extension, expected) in [
        (format!("update {MTU} 1314"), "", vec![mtu(1314), "done".into()]),
        (r#"update /system/config/hostname "box""#.into(), "", vec!["done".into()]),
        (format!("update {MTU} 1315"), "begin a", vec![mtu(1315), "done a".into()]),
        (String::new(), "extend a 3600", vec![]),
        (String::new(), "confirm a", vec![]),
        (format!("update {MTU} 1316"), "begin b", vec![mtu(1316), "done b".into()]),
        (String::new(), "cancel b", vec![mtu(1315), "done b".into()]),
        (format!("update {MTU} 1317"), "dry-run", vec![]),
        (format!("update {MTU} 1318"), "", vec![mtu(1318), "done".into()]),
    ] {
        rig.set_with(&requests, extension).await.unwrap();
        for expected in expected {
            assert_eq!(follower.next().await, expected, "{requests} {extension}");
        }
    }
    // A commit that is not confirmed.
    rig.set_with(&format!("update {MTU} 1319"), "begin c").await.unwrap();
    rig.pass(minutes(11)).await;
    let mut text = Vec::new();
    for _ in 0..4 {
        text.push(follower.next().await);
    }
    assert_eq!(text, [mtu(1319), "done c".into(), mtu(1318), "done c".into()]);
    rig.agent.stop().await;
}

// proves 1.144
#[tokio::test]
async fn commits_are_sent_one_by_one_to_a_late_follower() {
    let mut rig = Rig::new().await;
    use gnmi::subscription_list::Mode;
    let request = gnmi::SubscribeRequest {
        extension: extensions("config"),
        ..subscribe(list(Mode::Stream, &["change /interfaces/interface[name=eth0]/config/mtu"]))
    };
    let mut follower = Subscription::open(&mut rig.client.clone(), request).await;
    assert_eq!(follower.until_sync().await, [format!("{MTU}=1414"), "sync".into()]);
    for mtu in 1301..1307 {
        rig.set_with(&format!("update {MTU} {mtu}"), "").await.unwrap();
    }
    for mtu in 1301..1307 {
        assert_eq!(follower.next().await, format!("{MTU}={mtu}"));
        assert_eq!(follower.next().await, "done");
    }
    rig.agent.stop().await;
}

/// Unread commits take memory of the agent, so a follower may fall behind by a limited number of them.
#[tokio::test]
async fn a_follower_that_falls_behind_is_let_go_with_a_word() {
    use gnmi::subscription_list::Mode;
    /// Bytes of one change: large, so that a few fill the buffers of a connection that is not read.
    const LARGE: usize = 100_000;
    let mut rig = Rig::new().await;
    let request = gnmi::SubscribeRequest {
        extension: extensions("config"),
        ..subscribe(list(Mode::Stream, &["change /system/config/motd-banner"]))
    };
    let mut follower = Subscription::open(&mut rig.client.clone(), request).await;
    follower.until_sync().await;
    let commits = 3 * MAX_BOUNDARIES;
    for commit in 0..commits {
        let banner = commit.to_string().repeat(LARGE);
        rig.set_with(&format!(r#"update /system/config/motd-banner "{banner}""#), "")
            .await
            .unwrap();
    }
    let mut notifications = 0;
    let end = loop {
        match follower.next().await.as_str() {
            "done" => notifications += 1,
            text if text.starts_with('/') => {}
            end => break end.to_owned(),
        }
    };
    assert_eq!(end, "ResourceExhausted");
    assert!(
        notifications > 0 && notifications + MAX_BOUNDARIES < commits,
        "{notifications} of {commits}"
    );
    rig.agent.stop().await;
}

// proves 1.132
#[tokio::test]
async fn a_reader_sees_a_rollback_once() {
    let mut rig = Rig::new().await;
    use gnmi::subscription_list::Mode;
    let list = list(Mode::Stream, &["change /interfaces/interface[name=eth0]/state/mtu"]);
    let mut reader = Subscription::open(&mut rig.client.clone(), subscribe(list)).await;
    reader.until_sync().await;
    rig.set_with(&format!("update {MTU} 1314"), "begin a").await.unwrap();
    let state = MTU.replace("/config/", "/state/");
    assert_eq!(reader.next().await, format!("{state}=1314"));
    rig.pass(minutes(11)).await;
    assert_eq!(reader.next().await, format!("{state}=1414"));
    rig.set_with(&format!("update {MTU} 1315"), "").await.unwrap();
    assert_eq!(reader.next().await, format!("{state}=1315"), "nothing in between");
    rig.agent.stop().await;
}

// proves 1.132
#[tokio::test]
async fn a_rollback_restores_leaves_without_kernel_events() {
    // eth1 is down, so the kernel sends no event for its alias.
    const DESCRIBED: &str =
        r#"update holdfast_native:/interfaces/interface[name=eth1] {"description": "native"}"#;
    const DOWN: &str =
        r#"update /interfaces/interface[name=eth1]/config {"name": "eth1", "enabled": false}"#;
    for end in ["cancel", "time", "restart"] {
        let mut rig = Rig::new().await;
        let before = rig.snapshot();
        for _again in 0..2 {
            rig.set_with(&format!("{DOWN}; {DESCRIBED}"), "begin a").await.unwrap();
            assert!(rig.snapshot().published.contains(r#""description":"native""#));
            rig = rig.take_back(end).await;
            rig.until(&before).await;
        }
        rig.agent.stop().await;
    }
}

/// A commit sets one attribute of a port and leaves another one open. The port then shows neither what the configuration
/// before the commit asks for nor what both ask for together.
// proves 1.132
#[tokio::test]
async fn a_rollback_restores_an_attribute_beside_one_that_the_commit_left_open() {
    const WITHOUT: &str = "delete /interfaces/interface[name=eth0]/config/description";
    const INSTEAD: &str =
        r#"delete /; update /interfaces/interface[name=eth0]/config/description "one""#;
    for end in ["cancel", "time", "restart"] {
        let mut rig = Rig::new().await;
        rig.set_with(WITHOUT, "").await.unwrap();
        let before = rig.snapshot();
        rig.set_with(INSTEAD, "begin a").await.unwrap();
        assert!(rig.snapshot().published.contains(r#""description":"one""#));
        rig = rig.take_back(end).await;
        rig.until(&before).await;
        rig.agent.stop().await;
    }
}

const LEASED_PORT: &str = "holdfast_native:/interfaces/interface[name=eth0]";

/// Makes the state folder of a box whose port got an address and a route by DHCP.
async fn leased() -> TempDir {
    const ROUTE: &str = "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=lease]/route[prefix=0.0.0.0\\/0]";
    let kernel = SimulatedKernel::new(&["eth0"]);
    let elsewhere = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, elsewhere.path()).await;
    let mut client = client(&agent).await;
    let got = format!(
        r#"update {LEASED_PORT}/ipv4/address[ip=192.0.2.9] {{"prefix-length": 24}}; update {ROUTE}/next-hop[index=0] {{"next-hop": "192.0.2.254", "interface": "eth0"}}"#
    );
    client.set(set_request(&got)).await.unwrap();
    let models = Models::load().unwrap();
    let mut layers = Layers::new();
    let configuration = agent.handle.configuration();
    *layers.tree_mut(LayerKey::LEASE) =
        configuration.layers().tree(LayerKey::CLIENT_NATIVE).clone();
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let rows = layer_rows_diff(&models, &Layers::new(), &layers);
    store.write(rows.into_iter().map(Change::from).collect()).await.unwrap();
    store.close().await.unwrap();
    agent.stop().await;
    folder
}

/// Case 9 of the union: a lease yields to an address of a client, and comes back when the commit is rolled back.
#[tokio::test]
async fn a_lease_gives_way_to_a_commit_and_comes_back_with_it() {
    const ADDRESS: &str = "address 192.0.2.9/24 of eth0";
    const ROUTE: &str = "route 0.0.0.0/0 metric 20";
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = leased().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    let client = client(&agent).await;
    let mut rig = Rig { kernel, folder, agent, client };
    let described = format!(r#"union {LEASED_PORT} {{"description": "uplink"}}"#);
    let own = format!(
        r#"union {LEASED_PORT} {{"description": "uplink", "ipv4": {{"address": [{{"ip": "192.0.2.1", "prefix-length": 24}}]}}}}"#
    );
    rig.set_with(&described, "").await.unwrap();
    let before = rig.snapshot();
    assert_eq!(rig.kernel.describe(), [ADDRESS, "link eth0", "link lo", ROUTE]);
    for end in ["cancel", "time", "restart"] {
        rig.set_with(&own, "begin a").await.unwrap();
        rig.pass(Duration::from_secs(10)).await;
        // The leased route goes too, although the new address would reach its gateway.
        assert_eq!(rig.kernel.describe(), ["address 192.0.2.1/24 of eth0", "link eth0", "link lo"]);
        rig = rig.take_back(end).await;
        rig.until(&before).await;
    }
    rig.agent.stop().await;
}

/// Changes to choose from: in both origins, of present and absent ports, of routes, and without effect.
const CHANGES: [&str; 12] = [
    r#"update /interfaces/interface[name=eth0]/config/mtu 1314"#,
    r#"update /interfaces/interface[name=eth0]/config/description "one""#,
    r#"delete /interfaces/interface[name=eth0]/config/description"#,
    r#"update /interfaces/interface[name=eth1]/config {"name": "eth1", "enabled": false}"#,
    r#"delete /interfaces/interface[name=eth1]"#,
    r#"update /interfaces/interface[name=eth9]/config {"name": "eth9", "mtu": 1414}"#,
    r#"delete /network-instances"#,
    r#"delete /interfaces/interface[name=eth0]/subinterfaces"#,
    r#"replace /system/config {"hostname": "box"}"#,
    r#"delete /system"#,
    r#"update holdfast_native:/interfaces/interface[name=eth1] {"description": "native"}"#,
    r#"delete /"#,
];

// proves 1.132, 1.135
#[test]
fn an_unconfirmed_commit_leaves_nothing_behind() {
    const CASES: u32 = 24;
    const SETTLED: Duration = Duration::from_secs(10);
    /// Time limit of a rollback; later it counts as incomplete.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Steps of shrinking a failure; each may take that long.
    const SHRINKS: u32 = 6;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rig = RefCell::new(Some(runtime.block_on(Rig::new())));
    let some = || prop::collection::vec(prop::sample::select(&CHANGES[..]), 0..4);
    let mut runner =
        TestRunner::new(Config { cases: CASES, max_shrink_iters: SHRINKS, ..Config::default() });
    let cases = (some(), some(), 0..3_u8);
    let outcome = runner.run(&cases, |(first, then, end)| {
        let first = first.join("; ");
        let then = then.join("; ");
        let mut taken = rig.borrow_mut();
        let mut rig = taken.take().expect("a case gives it back");
        runtime.block_on(async {
            let _refused_is_fine = rig.set_with(&first, "").await;
            rig.pass(SETTLED).await; // what a change sets free, or takes along, is seen a moment after it
            let before = rig.snapshot();
            if rig.set_with(&then, "begin a").await.is_ok() {
                match end {
                    0 => drop(rig.set_with("", "cancel a").await.unwrap()),
                    1 => rig.pass(minutes(11)).await,
                    _ => rig = rig.restart().await,
                }
            }
            let back = tokio::time::timeout(PATIENCE, rig.until(&before)).await;
            let after = rig.snapshot();
            *taken = Some(rig);
            prop_assert!(back.is_ok(), "{first} / {then} / {end}: {before:#?} became {after:#?}");
            Ok(())
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
