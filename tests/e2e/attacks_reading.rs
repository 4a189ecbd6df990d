//! Attacks by a user with the role read-only: none of them harms the box.

use std::fs;
use std::net::IpAddr;

use holdfast_config::Limit;
use holdfast_config::limits::{
    CALLER_ANSWERS, CALLER_SUBSCRIPTIONS, ELEMENT_KEYS, MESSAGE_SIZE, PATH_DEPTH_WILDCARDS,
    READ_MESSAGE_SIZE, REQUEST_PATHS, SUBSCRIPTIONS,
};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{GetRequest, SubscriptionList, SubscriptionMode};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path};
use holdfast_tests::netns::Netns;
use holdfast_tests::raw_http2::{client_config, untaken_calls};
use holdfast_tests::subscription::subscribe_to;
use prost::Message;
use serde_json::json;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

/// Peak of the agent's memory, for any requests of a reader. The agent is built without optimisation, and begins with
/// some 50 MB.
const MOST_MEMORY: u64 = 200 << 20;
/// Peak beside a reader who takes no answers: what one caller may have, the answers twice while they grow.
const MOST_HELD: u64 = 500 << 20;
const PASSWORD: &str = "a password to watch with";
/// A leaf that may have a long text.
const BANNER: &str = "holdfast_native:/system/login-banner";
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

/// A path to a port with `count` keys, whose names and values have a few bytes.
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

/// Headers of the reader's calls.
const WATCHER: [(&str, &str); 2] = [("username", "watcher"), ("password", PASSWORD)];

/// Changes the box as its administrator, and checks that the agent has not grown beyond what a reader may take.
async fn check_served(agent: &AgentProcess, admin: &GnmiClient) {
    for name in ["a", "b", "box"] {
        admin.update("/system/config", json!({"hostname": name})).await.unwrap();
    }
    assert_eq!(admin.read(HOSTNAME).await.unwrap(), "box");
    let peak = agent.peak_resident_bytes();
    assert!(peak < MOST_HELD, "{} MB", peak >> 20);
}

#[track_caller]
fn check_refusals(refusals: &[Status], limit: &Limit, least: usize) {
    assert!(refusals.len() >= least, "{} were refused", refusals.len());
    for refused in refusals {
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains(limit.name), "{refused:?}");
    }
}

/// A small request for a large answer, again and again; no answer is taken.
#[tokio::test]
async fn answers_that_are_not_taken_are_bounded() {
    /// As few as overfill the budget: all are answered before the first one has waited for a minute, which would end it.
    const CALLS: usize = 14;
    /// Bytes of the banner.
    const BANNER_SIZE: usize = 13_000;
    let (_net, agent, admin, watcher) = watched().await;
    let config = client_config(&fs::read_to_string(agent.ca_file()).unwrap());
    // One long leaf, again and again: an answer of the same size with many leaves takes a slow machine so long that the first
    // one is ended before the last one is there.
    admin.update(BANNER, "b".repeat(BANNER_SIZE)).await.unwrap();
    let many = get(vec![parse_path(BANNER); 1000]);
    let size = watcher.get(many.clone()).await.unwrap().encoded_len();
    let fit = CALLER_ANSWERS.figure / size;
    assert!(fit + 2 < CALLS, "answers of {size} bytes do not make an attack");

    let call = ("/gnmi.gNMI/Get", &many);
    let untaken = untaken_calls(agent.address(), &config, call, &WATCHER, CALLS);
    let (untaken, ()) = tokio::join!(untaken, check_served(&agent, &admin));
    let untaken = untaken.unwrap();
    check_refusals(&untaken.refusals(), &CALLER_ANSWERS, CALLS - fit);
    check_served(&agent, &admin).await;
    check_refusals(&[watcher.get(many.clone()).await.unwrap_err()], &CALLER_ANSWERS, 1);
    drop(untaken);
    eventually_async("what was held is given back", async || {
        watcher.get(many.clone()).await.is_ok()
    })
    .await;
}

/// Subscriptions to everything; none is read.
#[tokio::test]
async fn open_subscriptions_are_bounded() {
    /// RPCs of one connection.
    const CALLS: usize = 200;
    let (_net, agent, admin, watcher) = watched().await;
    let config = client_config(&fs::read_to_string(agent.ca_file()).unwrap());
    let list = subscribe_to(Mode::Stream, &[("/", SubscriptionMode::OnChange)]);
    let request = gnmi::SubscribeRequest {
        request: Some(gnmi::subscribe_request::Request::Subscribe(list.clone())),
        ..Default::default()
    };
    let mut connections = Vec::new();
    let mut refusals = Vec::new();
    for _ in 0..4 {
        let call = ("/gnmi.gNMI/Subscribe", &request);
        let untaken = untaken_calls(agent.address(), &config, call, &WATCHER, CALLS).await.unwrap();
        refusals.extend(untaken.refusals());
        connections.push(untaken);
        check_served(&agent, &admin).await;
    }
    check_refusals(&refusals, &CALLER_SUBSCRIPTIONS, 4 * CALLS - CALLER_SUBSCRIPTIONS.figure);
    // Another caller is kept waiting by none of them.
    admin.subscribe(list.clone()).await.unwrap().until_sync().await;
    drop(connections);
    eventually_async("what was held is given back", async || {
        watcher.subscribe(list.clone()).await.is_ok()
    })
    .await;
}

/// Bytes that a client takes on a connection before it has read them: the answers for a hundred collectors.
const CONNECTION_WINDOW: u32 = 64 << 20;

#[tokio::test]
async fn a_thousand_collectors_from_ten_sources_are_in_sync() {
    let (_net, agent, admin, _) = watched().await;
    let ca = Certificate::from_pem(fs::read_to_string(agent.ca_file()).unwrap());
    let list = subscribe_to(Mode::Stream, &[("/system", SubscriptionMode::OnChange)]);
    let mut collectors = Vec::new();
    for source in 1..=10 {
        let tls = ClientTlsConfig::new().ca_certificate(ca.clone()).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", agent.address())).unwrap();
        let endpoint = endpoint.tls_config(tls).unwrap();
        let endpoint = endpoint.local_address(Some(IpAddr::from([127, 0, 0, source])));
        // The collectors are read one after the other: what waits for the others must not keep the first one waiting.
        let endpoint = endpoint.initial_connection_window_size(CONNECTION_WINDOW);
        let channel = endpoint.connect().await.unwrap();
        let watcher = GnmiClient::over(channel, Credentials::new("watcher", PASSWORD).unwrap());
        for _ in 0..100 {
            collectors.push(watcher.subscribe(list.clone()).await.unwrap());
        }
    }
    for collector in &mut collectors {
        assert!(!collector.until_sync().await.is_empty());
    }
    check_served(&agent, &admin).await;
    admin.update("/system/config", json!({"hostname": "last"})).await.unwrap();
    for collector in &mut collectors {
        collector.until("last").await;
    }
}
