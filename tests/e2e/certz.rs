//! TLS profiles on the real binary: clients with a certificate alone, a rotation while others are connected, and the
//! power cut at each of its steps.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::certificates::{Authority, CertificateAndKey, Certz, connect};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::CutPoint;
use holdfast_tests::subscription::subscribe_to;
use tokio::task::JoinSet;

/// Subscriptions that a rotation must leave alone.
const STREAMS: usize = 100;
/// Connections that come while certificates change, at least.
const NEW_CONNECTIONS: usize = 50;
const HOSTNAME: &str = "/system/config/hostname";
const CERTIFICATE_ID: &str = "/system/grpc-servers/grpc-server[name=DEFAULT]/config/certificate-id";

/// Binds the agent to the profile `p`, with a certificate of `root` and `root` as its trust anchor.
async fn bind(agent: &AgentProcess, root: &Authority) -> Certz {
    let mut certz = Certz::over(agent.channel().await, agent.credentials());
    certz.add("p").await.unwrap();
    let mut rotation = certz.rotate("p").await.unwrap();
    rotation.upload("v1", &root.server(), &[root]).await.unwrap();
    rotation.finalize().await.unwrap();
    agent.gnmi().await.update(CERTIFICATE_ID, "p").await.unwrap();
    certz
}

/// True when a client that trusts `authority`, with a certificate of it, is let in and answered.
async fn accepts_client_of(agent: &AgentProcess, authority: &Authority) -> bool {
    let client = authority.client("eve");
    match connect(agent.address(), &[&authority.pem], &client).await {
        Ok(channel) => GnmiClient::over(channel, agent.credentials()).capabilities().await.is_ok(),
        Err(_) => false,
    }
}

// proves 5.76
#[tokio::test]
async fn gnmic_logs_in_by_client_certificate() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let root = Authority::new("root");
    let other = Authority::new("other");
    bind(&agent, &root).await;
    let gnmic = |client: &CertificateAndKey| {
        let write = |name: &str, text: &str| {
            let file = agent.root().join(name);
            fs::write(&file, text).unwrap();
            file
        };
        let ca = write("ca.pem", &root.pem);
        Gnmic::with_certificate(
            &agent,
            &ca,
            &write("client.pem", &client.certificate),
            &write("client-key.pem", &client.key),
        )
    };
    let set = ["set", "--update-path", HOSTNAME, "--update-value", "by-certificate"];
    gnmic(&root.client("eve")).run(&set).await;
    let get = ["-e", "json_ietf", "get", "--path", HOSTNAME];
    let answer = gnmic(&root.client("eve")).run(&get).await;
    assert!(answer.contains("by-certificate"), "{answer}");
    gnmic(&other.client("eve")).refused(&get).await;
    assert!(!agent.log().contains("PRIVATE KEY"), "no key is logged");
}

// proves 1.9, 5.72
#[tokio::test]
async fn certificates_change_under_open_streams_and_new_connections() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let root = Authority::new("root");
    let other = Authority::new("other");
    let both = [&root, &other];
    let mut certz = bind(&agent, &root).await;
    let mut rotation = certz.rotate("p").await.unwrap();
    rotation.upload("v2", &root.server(), &both).await.unwrap();
    rotation.finalize().await.unwrap();

    let client = root.client("eve");
    let connected = async || {
        let channel = connect(agent.address(), &[&root.pem, &other.pem], &client).await.unwrap();
        GnmiClient::over(channel, agent.credentials())
    };
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let names = ("/system/state/hostname", SubscriptionMode::OnChange);
        let mut stream =
            connected().await.subscribe(subscribe_to(Mode::Stream, &[names])).await.unwrap();
        stream.until_sync().await;
        streams.push(stream);
    }
    let connections = Arc::new(AtomicUsize::new(0));
    let enough = Arc::new(AtomicBool::new(false));
    let mut newcomers = JoinSet::new();
    for pair in [root.client("adam"), other.client("zoe")] {
        let address = agent.address();
        let credentials = agent.credentials();
        let trusted = [root.pem.clone(), other.pem.clone()];
        let connections = connections.clone();
        let enough = enough.clone();
        newcomers.spawn(async move {
            let trusted = trusted.each_ref().map(String::as_str);
            while !enough.load(Ordering::Relaxed) {
                let channel = connect(address, &trusted, &pair).await.unwrap();
                let client = GnmiClient::over(channel, credentials.clone());
                client.capabilities().await.unwrap();
                connections.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for (number, authority) in [&other, &root, &other].into_iter().enumerate() {
        let target = connections.load(Ordering::Relaxed) + NEW_CONNECTIONS / 3 + 1;
        let mut rotation = certz.rotate("p").await.unwrap();
        rotation.upload(&format!("v{}", number + 3), &authority.server(), &both).await.unwrap();
        eventually("connections come while it is tried", || {
            connections.load(Ordering::Relaxed) > target
        })
        .await;
        rotation.finalize().await.unwrap();
    }
    enough.store(true, Ordering::Relaxed);
    while let Some(ended) = newcomers.join_next().await {
        ended.expect("no connection fails");
    }
    assert!(connections.load(Ordering::Relaxed) > NEW_CONNECTIONS);
    connected().await.update(HOSTNAME, "rotated").await.unwrap();
    for stream in &mut streams {
        stream.until("rotated").await;
    }
}

// proves 5.1, 5.2, 5.7
#[tokio::test]
async fn a_power_cut_leaves_the_old_or_the_new_material() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let mut old = Authority::new("one");
    let mut new = Authority::new("two");
    bind(&agent, &old).await;
    let cuts = [
        CutPoint::Opened,
        CutPoint::Tried,
        CutPoint::Finalizing,
        CutPoint::Finalized,
        CutPoint::Tried,
    ];
    for (number, cut) in cuts.into_iter().enumerate() {
        let client = old.client("eve");
        let channel = connect(agent.address(), &[&old.pem], &client).await.unwrap();
        let mut certz = Certz::over(channel, agent.credentials());
        let mut rotation = certz.rotate("p").await.unwrap();
        if cut != CutPoint::Opened {
            let version = format!("w{number}");
            rotation.upload(&version, &new.server(), &[&new]).await.unwrap();
            assert!(
                accepts_client_of(&agent, &new).await && !accepts_client_of(&agent, &old).await,
                "{cut:?}"
            );
        }
        match cut {
            CutPoint::Finalizing => rotation.send_finalize().await,
            CutPoint::Finalized => rotation.finalize().await.unwrap(),
            CutPoint::Opened | CutPoint::Uploading | CutPoint::Tried => {}
        }
        agent.restart().await; // it kills first
        let found = (accepts_client_of(&agent, &old).await, accepts_client_of(&agent, &new).await);
        assert!(found.0 != found.1 && cut.may_leave(found.1), "{cut:?}: {found:?}");
        if found.1 {
            std::mem::swap(&mut old, &mut new);
        }
    }
}
