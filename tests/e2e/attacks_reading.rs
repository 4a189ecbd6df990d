//! Attacks by a user with the role read-only: none of them harms the box.

use holdfast_config::Limit;
use holdfast_config::limits::{
    ELEMENT_KEYS, MESSAGE_SIZE, PATH_DEPTH_WILDCARDS, READ_MESSAGE_SIZE, REQUEST_PATHS,
    SUBSCRIPTIONS,
};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{GetRequest, SubscriptionList, SubscriptionMode};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::json;
use tonic::{Code, Status};

/// Peak of the agent's memory, for any requests of a reader. The agent is built without optimisation, and begins with
/// some 50 MB.
const MOST_MEMORY: u64 = 200 << 20;
const PASSWORD: &str = "a password to watch with";
const HOSTNAME: &str = "/system/config/hostname";

/// An agent, its administrator, and a user with the role read-only.
async fn watched() -> (Netns, AgentProcess, GnmiClient, GnmiClient) {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let added = agent.user(&["set", "watcher", "--role", "read-only"], PASSWORD);
    assert!(added.status.success(), "{added:?}");
    let credentials = Credentials::new("watcher", PASSWORD).unwrap();
    let watcher = GnmiClient::over(agent.channel().await, credentials);
    let admin = agent.gnmi().await;
    admin.update("/system/config", json!({"hostname": "box"})).await.unwrap();
    (net, agent, admin, watcher)
}

fn get(path: Vec<gnmi::Path>) -> GetRequest {
    GetRequest { path, encoding: gnmi::Encoding::JsonIetf.into(), ..Default::default() }
}

fn wildcards(count: usize) -> GetRequest {
    get(vec![parse_path(&"/...".repeat(count))])
}

/// A path to a port with `count` keys, whose names and values have a few octets.
fn keys(count: usize) -> GetRequest {
    let mut path = parse_path("/interfaces/interface");
    path.elem[1].key = (0..count).map(|at| (format!("k{at}"), String::new())).collect();
    get(vec![path])
}

fn nothing(count: usize) -> SubscriptionList {
    let subscription = vec![gnmi::Subscription::default(); count];
    SubscriptionList { subscription, ..Default::default() }
}

enum Attack {
    Get(GetRequest),
    Subscribe(SubscriptionList),
}

impl Attack {
    async fn refusal(self, client: &GnmiClient) -> Status {
        match self {
            Self::Get(request) => client.get(request).await.expect_err("more than is allowed"),
            Self::Subscribe(list) => match client.subscribe(list).await {
                Err(status) => status,
                Ok(mut stream) => stream.until_refused().await,
            },
        }
    }
}

#[tokio::test]
async fn oversized_reads_are_refused_with_the_limit_named() {
    let (_net, agent, admin, watcher) = watched().await;
    let port = |at: u32| json!({"name": format!("p{at}"), "config": {"name": format!("p{at}"), "description": "x".repeat(200)}});
    let ports: Vec<_> = (0..400).map(port).collect();
    admin.update("/interfaces", json!({"interface": ports})).await.unwrap();
    let long = parse_path(&format!("/interfaces/interface[name={}]", "x".repeat(20 << 20)));
    let rows: Vec<(&Limit, Attack)> = vec![
        (&PATH_DEPTH_WILDCARDS, Attack::Get(wildcards(5))),
        (&PATH_DEPTH_WILDCARDS, Attack::Get(wildcards(12))),
        (&REQUEST_PATHS, Attack::Get(get(vec![gnmi::Path::default(); 100_000]))),
        (&MESSAGE_SIZE, Attack::Get(get(vec![gnmi::Path::default(); 1000]))),
        (&ELEMENT_KEYS, Attack::Get(keys(50_000))),
        (&READ_MESSAGE_SIZE, Attack::Get(keys(200_000))),
        (&READ_MESSAGE_SIZE, Attack::Get(get(vec![long]))),
        (&SUBSCRIPTIONS, Attack::Subscribe(nothing(100_000))),
        (&READ_MESSAGE_SIZE, Attack::Subscribe(nothing(1_000_000))),
    ];
    for (at, (limit, attack)) in rows.into_iter().enumerate() {
        let (refused, served) = tokio::join!(attack.refusal(&watcher), admin.read(HOSTNAME));
        assert_eq!(served.unwrap(), "box");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{at}: {refused:?}");
        assert!(refused.message().contains(limit.name), "{at}: {refused:?}");
        let peak = agent.peak_resident_bytes();
        assert!(peak < MOST_MEMORY, "{at}, {}: {} MB", limit.name, peak >> 20);
    }
    assert!(agent.log().len() < 1 << 20, "the log repeats what was sent");
}

#[tokio::test]
async fn wildcards_and_long_lists_of_subscriptions_still_work() {
    let (_net, agent, admin, watcher) = watched().await;
    for path in ["/.../hostname", "/.../.../.../.../hostname", "/*/config/hostname"] {
        assert_eq!(watcher.read(path).await.unwrap(), "box", "{path}");
    }
    assert!(watcher.read("/.../.../...").await.unwrap().is_object());
    let subscription = ("/interfaces/interface[name=eth0]/.../mtu", SubscriptionMode::OnChange);
    for mode in [Mode::Once, Mode::Stream] {
        let list = subscribe_to(mode, &vec![subscription; SUBSCRIPTIONS.figure]);
        let subscribed = async {
            let mut stream = watcher.subscribe(list).await.unwrap();
            stream.until_sync().await.len()
        };
        let (stream, served) = tokio::join!(subscribed, admin.read(HOSTNAME));
        assert_eq!(served.unwrap(), "box");
        assert!(stream >= SUBSCRIPTIONS.figure, "{stream}");
    }
    let peak = agent.peak_resident_bytes();
    assert!(peak < MOST_MEMORY, "{} MB", peak >> 20);
}
