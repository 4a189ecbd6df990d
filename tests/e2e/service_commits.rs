//! Instances of services and the commits that walk them: what the revision of an answer has, and what a commit takes along
//! that is not confirmed.

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{operate, packed};
use holdfast_tests::subscription::{Event, notification_lines, subscribe_to};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

/// An agent with the plain type `bridge-port`.
async fn with_bridge_ports(net: &Netns) -> (TempDir, AgentProcess, GnmiClient) {
    let packages = packed("bridge-port");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    (packages, agent, client)
}

fn bridge_port(name: &str) -> String {
    format!("holdfast_native:/services/bridge-port[name={name}]")
}

// proves sv.B15
#[tokio::test]
async fn an_instance_with_nothing_to_wait_for_is_ready_in_the_revision_of_the_answer() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let (_packages, _agent, client) = with_bridge_ports(&net).await;
    let acme = format!("{}/state/status", bridge_port("acme"));
    let list = subscribe_to(Mode::Stream, &[(&acme, SubscriptionMode::OnChange)]);
    let mut reader = client.subscribe(list).await.unwrap();
    reader.until_sync().await;
    let set = json!({"bridge": "br0", "port": ["eth1"]});
    let answer = client.update(&bridge_port("acme"), set).await.unwrap();
    assert_eq!(client.read(&acme).await.unwrap(), "reached");
    let Event::Notification(first) = reader.next().await.unwrap() else {
        panic!("the status is told");
    };
    let told = notification_lines(&first).concat();
    assert!(told.ends_with("state/status = \"reached\""), "nobody saw it otherwise: {told}");
    assert_eq!(first.timestamp, answer.timestamp);

    let waiting = json!({"bridge": "br0", "port": ["eth9"]});
    client.update(&bridge_port("bolt"), waiting).await.unwrap();
    let bolt = format!("{}/state/status", bridge_port("bolt"));
    assert_eq!(client.read(&bolt).await.unwrap(), "not-reached");
    net.ip("link add eth9 type veth peer name peer9");
    eventually_async("its port is there", async || {
        client.read(&bolt).await.is_ok_and(|status| status == "reached")
    })
    .await;
}

fn access(name: &str) -> String {
    format!("holdfast_native:/services/bridge-access[name={name}]")
}

/// An access whose route, and whose probe, come when its port is up.
fn customer(port: &str, via: &str, prefix: &str) -> Value {
    json!({"port": port, "bridge": "br0", "gateway": "10.0.0.1/24", "prefix": prefix, "via": via, "approved": true})
}

/// The service plan of `bolt`.
async fn plan_of_bolt(client: &GnmiClient) -> Option<Value> {
    let path = "holdfast_native:/service-state/plan[service=bridge-access[name='bolt'\\]]";
    client.read(path).await.ok()
}

/// `bolt` waits for its port, and `acme` is made in a commit that must be confirmed. Both get their routes inside of it.
/// Ends that commit, and checks that all is as before and that nobody was probed.
async fn taken_back(end: impl AsyncFnOnce(&mut AgentProcess, &Gnmic)) {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let packages = packed("bridge-access");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    let gnmic = Gnmic::for_admin(&agent);
    client.update(&access("bolt"), customer("eth2", "10.0.0.12", "203.0.113.0/24")).await.unwrap();
    let is_pending = |plan: Value| plan.to_string().contains("gate `params.approved");
    eventually_async("bolt waits for its port", async || {
        plan_of_bolt(&client).await.is_some_and(is_pending)
    })
    .await;
    let before = plan_of_bolt(&client).await.unwrap();

    let acme = customer("eth1", "10.0.0.11", "198.51.100.0/24").to_string();
    let path = access("acme");
    let window = ["-e", "json_ietf", "set", "--commit-id", "w", "--commit-request"];
    let set = ["--rollback-duration", "600s", "--update-path", &path, "--update-value", &acme];
    gnmic.outcome(&[&window[..], &set].concat()).await.unwrap();
    let has_routes = || {
        let routes = net.ip("-4 route show");
        ["198.51.100.0/24", "203.0.113.0/24"].map(|prefix| routes.contains(prefix))
    };
    assert_eq!(has_routes(), [false, false]);
    for peer in ["peer1", "peer2"] {
        net.ip(&format!("link set {peer} up"));
    }
    eventually("both have their routes inside", || has_routes() == [true, true]).await;
    let refused = operate(&agent, &["redeploy", "bridge-access"]).unwrap_err();
    assert!(refused.contains("waits to be confirmed"), "{refused}");
    // An instance that has come back is not to go on at once.
    for peer in ["peer1", "peer2"] {
        net.ip(&format!("link set {peer} down"));
    }
    eventually("the ports are down", || {
        ["eth1", "eth2"]
            .iter()
            .all(|port| net.ip_json(&format!("link show dev {port}"))[0]["operstate"] != "UP")
    })
    .await;

    end(&mut agent, &gnmic).await;
    let client = agent.gnmi().await;
    eventually_async("the instance is gone", async || {
        client.read(&access("acme")).await.is_err_and(|error| error.code() == Code::NotFound)
    })
    .await;
    eventually("so is all that it has made", || {
        has_routes() == [false, false] && net.link("eth1").master.is_none()
    })
    .await;
    eventually_async("the other one is as before", async || {
        plan_of_bolt(&client).await.is_some_and(|plan| plan == before)
    })
    .await;
    assert_eq!(net.link("eth2").master.as_deref(), Some("br0"));
    assert!(!agent.log().contains("an action begins"), "nobody was probed");
}

// proves sv.J17
#[tokio::test]
async fn walks_inside_a_commit_that_is_late_go_with_it() {
    taken_back(async |_, gnmic| {
        let late = ["set", "--commit-id", "w", "--rollback-duration", "1s"];
        gnmic.outcome(&late).await.unwrap();
    })
    .await;
}

// proves sv.J17
#[tokio::test]
async fn walks_inside_an_unconfirmed_commit_go_with_a_kill() {
    taken_back(async |agent, _| {
        agent.kill();
        agent.restart().await;
    })
    .await;
}
