//! Attacks on the agent's sockets without a login: their cost, and the service for others meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{WAIT_LIMIT, eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::raw_http2::{
    AttackedSocket, client_config, connect_from, connect_tls_from, flood_malformed_streams,
    is_closed,
};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

const INTROSPECTION: &str = "127.0.0.1:9190";

/// Duration of the flood, number of its connections, and memory that the agent may have meanwhile: it has some 50 MB at
/// rest, and without a limit it had 683 after 2.5 s.
const FLOOD: Duration = Duration::from_secs(10);
const FLOOD_CONNECTIONS: usize = 8;
const MOST_BYTES: u64 = 100_000_000;

/// Every socket that the agent lists is attacked: one that is added needs a row here.
#[tokio::test]
async fn malformed_http2_streams_cost_bounded_memory_on_each_listener() {
    let net = Netns::enter();
    let folder = tempfile::tempdir().unwrap();
    let handlers = folder.path().join("services.sock").display().to_string();
    let options = ["--introspect", INTROSPECTION, "--service-socket", &handlers];
    let agent = AgentProcess::start_with(&net, &options).await;
    let client = agent.gnmi().await;
    let config = client_config(&ca(&agent));

    let mut attacked = Vec::new();
    let listeners = agent.show("listeners");
    for listener in listeners.lines() {
        let (kind, name) = match listener.split_whitespace().collect::<Vec<_>>()[..] {
            ["LISTENING", kind, name] => (kind, name),
            _ => panic!("a socket is not open: {listener}"),
        };
        let socket = match kind {
            "gRPC" => AttackedSocket::Tls(agent.address(), config.clone()),
            "introspection" => AttackedSocket::Tcp(name.parse().unwrap()),
            "local" | "handlers" => AttackedSocket::Unix(name.into()),
            _ => panic!("this test knows no way to `{kind}`"),
        };
        let at_rest = agent.resident_bytes();
        let attack = flood_malformed_streams(socket, FLOOD_CONNECTIONS, FLOOD);
        let mut served = 0;
        while !attack.is_finished() {
            client.capabilities().await.unwrap();
            served += 1;
            let held = agent.resident_bytes();
            assert!(held < MOST_BYTES, "{kind}: {held} bytes are held, {at_rest} at rest");
            sleep(Duration::from_millis(20)).await;
        }
        let sent = attack.join().unwrap();
        assert!(sent > 10_000, "{kind}: {sent} streams do not make an attack");
        assert!(served > 10, "{kind}: {served} calls were served");
        // New connections are accepted as well.
        agent.gnmi().await.capabilities().await.unwrap();
        attacked.push(kind);
    }
    attacked.sort_unstable();
    assert_eq!(attacked, ["gRPC", "handlers", "introspection", "local"]);
}

#[tokio::test]
async fn idle_connections_of_four_sources_leave_room_for_a_fifth() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let config = client_config(&ca(&agent));
    let mut streams = Vec::new();
    for source in 1..=4 {
        for _ in 0..256 {
            let source = IpAddr::from([127, 0, 0, source]);
            streams.push(connect_tls_from(source, agent.address(), &config).await.unwrap());
        }
    }
    for source in 5..=9 {
        check_served(&agent, IpAddr::from([127, 0, 0, source])).await;
    }
    check_served(&agent, IpAddr::from([127, 0, 0, 1])).await; // beside 256 strangers of its own
}

#[tokio::test]
async fn full_listener_accepts_new_and_recently_authenticated_sources() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let operator = IpAddr::from([127, 0, 9, 1]);
    check_served(&agent, operator).await;

    // Seventeen sources with 64 silent connections each use up all connections.
    let address = agent.address();
    let sources = (1..=17).map(|last| IpAddr::from([127, 0, 1, last]));
    let mut streams = Vec::new();
    for source in sources.clone() {
        for _ in 0..64 {
            streams.push(connect_from(source, address).await.unwrap());
        }
    }
    eventually("the places of the oldest strangers are given away", || {
        streams.iter().filter(|stream| is_closed(stream)).count() >= streams.len() - 1024
    })
    .await;
    check_served(&agent, operator).await;
    check_served(&agent, IpAddr::from([127, 0, 9, 2])).await;

    // They go on connecting, so that a connection without a login is closed after some hundred others.
    let knocking = tokio::spawn(async move {
        for source in sources.cycle() {
            streams.remove(0);
            streams.extend(connect_from(source, address).await);
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..5 {
        check_served(&agent, operator).await;
    }
    assert!(!knocking.is_finished(), "strangers knocked all the while");
    knocking.abort();
}

#[tokio::test]
async fn ipv6_sources_are_limited_by_64_prefix() {
    let net = Netns::enter();
    net.ip("address add 2001:db8::1/64 dev lo nodad");
    net.ip("address add 2001:db8::2/64 dev lo nodad");
    let agent = AgentProcess::start_with(&net, &["--listen", "[2001:db8::1]:9339"]).await;
    let server: SocketAddr = "[2001:db8::1]:9339".parse().unwrap();
    let config = client_config(&ca(&agent));
    let mut streams = Vec::new();
    for number in 0..300 {
        let source = if number % 2 == 0 { "2001:db8::1" } else { "2001:db8::2" };
        streams.push(connect_tls_from(source.parse().unwrap(), server, &config).await.unwrap());
    }
    let open = || streams.iter().filter(|stream| !is_closed(stream.get_ref().0)).count();
    // Well before their login timeout.
    let left = eventually("64 strangers of the network are left", || open() <= 64);
    timeout(WAIT_LIMIT / 3, left).await.unwrap();
    check_served_at(&agent, server, "2001:db8::2".parse().unwrap()).await;
    check_served(&agent, IpAddr::from([127, 0, 0, 1])).await;
}

#[tokio::test]
async fn introspection_connections_and_readers_are_limited() {
    let net = Netns::enter();
    let agent = AgentProcess::start_with(&net, &["--introspect", INTROSPECTION]).await;
    let client = agent.gnmi().await;
    let address: SocketAddr = INTROSPECTION.parse().unwrap();

    // Two hundred silent connections: 64 are accepted, and not for long.
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(TcpStream::connect(address).await.unwrap());
    }
    let open = |streams: &[TcpStream]| streams.iter().filter(|stream| !is_closed(stream)).count();
    let mut left = streams.len();
    eventually("136 connections are closed", || {
        left = open(&streams);
        left <= 64
    })
    .await;
    assert_eq!(left, 64, "the others have some seconds to ask");
    client.capabilities().await.unwrap();
    agent.gnmi().await.capabilities().await.unwrap();
    eventually("who says nothing is closed", || open(&streams) == 0).await;

    // A client that sends its request slowly and never completes it.
    let slow = TcpStream::connect(address).await.unwrap();
    let mut head =
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".iter().chain([b'x'; 4096].iter());
    let mut closed = false;
    eventually("who never gets to the end of a head is closed", || {
        closed = closed || is_closed(&slow);
        let _refused_when_closed = slow.try_write(&[*head.next().unwrap()]);
        closed
    })
    .await;

    // Seventeen readers of events.
    let events = || http_get(address, "/scheduler/events", None);
    let readers: Vec<_> = (0..16).map(|_| events()).collect();
    for (_, answer) in &readers {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let (_, refused) = events();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("16 readers of events are connected"), "{refused}");
    client.capabilities().await.unwrap();
    drop(readers);
    eventually_async("the places of readers who went are free", async || {
        events().1.starts_with("HTTP/1.1 200 ")
    })
    .await;
}

#[tokio::test]
async fn introspect_token_option_covers_reads() {
    let net = Netns::enter();
    let options = ["--introspect", INTROSPECTION, "--introspect-token", "all"];
    let agent = AgentProcess::start_with(&net, &options).await;
    let token = fs::read_to_string(agent.state_dir().join("introspect.token")).unwrap();
    let address = INTROSPECTION.parse().unwrap();
    for path in ["/", "/health", "/metrics", "/scheduler/status", "/scheduler/events"] {
        let (_, refused) = http_get(address, path, None);
        assert!(refused.starts_with("HTTP/1.1 401 "), "{path}: {refused}");
        let (_, answer) = http_get(address, path, Some(&token));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

/// Logs in from an address on a connection of its own.
async fn check_served(agent: &AgentProcess, source: IpAddr) {
    check_served_at(agent, agent.address(), source).await;
}

async fn check_served_at(agent: &AgentProcess, server: SocketAddr, source: IpAddr) {
    let ca = Certificate::from_pem(ca(agent));
    let tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{server}")).unwrap();
    let endpoint =
        endpoint.tls_config(tls).unwrap().local_address(Some(source)).timeout(WAIT_LIMIT);
    let channel = endpoint.connect().await;
    let channel = channel.unwrap_or_else(|error| panic!("{source}: {error:?}"));
    let client = GnmiClient::over(channel, agent.credentials());
    let answer = client.capabilities().await;
    answer.unwrap_or_else(|refusal| panic!("{source}: {refusal}"));
}

fn ca(agent: &AgentProcess) -> String {
    fs::read_to_string(agent.ca_file()).unwrap()
}

/// Requests a path, and reads the first part of the answer. The connection is open as long as the result exists.
fn http_get(address: SocketAddr, path: &str, token: Option<&str>) -> (std::net::TcpStream, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap();
    answer.truncate(read);
    (stream, String::from_utf8_lossy(&answer).into_owned())
}
