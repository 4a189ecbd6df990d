//! gNOI Ping and Traceroute through a router, from a managed namespace that the agent is not in.

use std::time::Duration;

use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::traceroute_request::L4Protocol;
use holdfast_proto::gnoi::system::traceroute_response::State;
use holdfast_proto::gnoi::system::{
    PingRequest, PingResponse, TracerouteRequest, TracerouteResponse,
};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::Credentials;
use holdfast_tests::netns::Netns;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The far host, by its two addresses, and the near side of the router.
const HOST: [&str; 2] = ["198.51.100.2", "2001:db8:2::2"];
const ROUTER: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];
/// An unused address behind the router, and a prohibited one.
const UNUSED_ADDRESS: &str = "198.51.100.9";
const FORBIDDEN: &str = "2001:db8:66::1";

pub(crate) type System = SystemClient<InterceptedService<Channel, Credentials>>;

/// A box with a path through a router to a host, and an agent in another namespace.
struct Network {
    agent: AgentProcess,
    managed: Netns,
    _others: [Netns; 3],
}

impl Network {
    async fn new() -> Self {
        let outside = Netns::enter();
        let managed = Netns::detached();
        let router = Netns::detached();
        let host = Netns::detached();
        managed.add_cable("eth0", &router, "r0");
        router.add_cable("r1", &host, "h0");
        for (net, port, v4, v6) in [
            (&managed, "eth0", "192.0.2.1/24", "2001:db8:1::1/64"),
            (&router, "r0", "192.0.2.2/24", "2001:db8:1::2/64"),
            (&router, "r1", "198.51.100.1/24", "2001:db8:2::1/64"),
            (&host, "h0", "198.51.100.2/24", "2001:db8:2::2/64"),
        ] {
            net.ip(&format!("address add {v4} dev {port}"));
            net.ip(&format!("address add {v6} dev {port} nodad"));
            net.ip(&format!("link set {port} up"));
        }
        managed.ip("route add default via 192.0.2.2");
        managed.ip("route add 2001:db8:2::/64 via 2001:db8:1::2");
        host.ip("route add default via 198.51.100.1");
        host.ip("route add 2001:db8:1::/64 via 2001:db8:2::1");
        managed.ip("route add 2001:db8:66::/64 via 2001:db8:1::2");
        router.ip("route add prohibit 2001:db8:66::/64");
        let net = "/proc/sys/net";
        router.shell(&format!(
            "echo 1 >{net}/ipv4/ip_forward; echo 1 >{net}/ipv6/conf/all/forwarding"
        ));
        // No rate limit: every probe is answered.
        router.shell(&format!(
            "echo 0 >{net}/ipv4/icmp_ratelimit; echo 0 >{net}/ipv6/icmp/ratelimit"
        ));
        let agent = AgentProcess::start_with(&outside, &["--netns", managed.path()]).await;
        let network = Self { agent, managed, _others: [outside, router, host] };
        network.wait_until_resolved().await;
        network
    }

    /// Waits until all nodes on the path know the link-layer addresses of the next ones, because first packets may be
    /// lost.
    async fn wait_until_resolved(&self) {
        let system = self.system().await;
        for host in HOST {
            let reached = || async {
                let once = PingRequest { count: 1, ..ping(host) };
                collect_ping(&mut system.clone(), once)
                    .await
                    .is_ok_and(|(_, summary)| summary.received == 1)
            };
            eventually_async("the host answers", reached).await;
        }
    }

    async fn system(&self) -> System {
        SystemClient::with_interceptor(self.agent.channel().await, self.agent.credentials())
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap()
}

/// Fifty packets a second.
pub(crate) fn ping(destination: &str) -> PingRequest {
    let interval = ns(Duration::from_millis(20));
    PingRequest { destination: destination.to_owned(), interval, ..Default::default() }
}

/// The answers, and the summary that ends them.
pub(crate) async fn collect_ping(
    system: &mut System,
    request: PingRequest,
) -> Result<(Vec<PingResponse>, PingResponse), Status> {
    let mut stream = system.ping(request).await?.into_inner();
    let mut answers = Vec::new();
    while let Some(answer) = stream.message().await? {
        answers.push(answer);
    }
    let summary = answers.pop().unwrap();
    assert!(summary.sent > 0 && summary.bytes == 0, "{summary:?}");
    Ok((answers, summary))
}

// proves 6.2
#[tokio::test]
async fn a_host_behind_a_router_is_pinged() {
    let network = Network::new().await;
    let mut system = network.system().await;
    for host in HOST {
        let (answers, summary) = collect_ping(&mut system, ping(host)).await.unwrap();
        let replies: Vec<_> = answers
            .iter()
            .map(|it| (it.source.as_str(), it.bytes, it.sequence, it.ttl, it.sent))
            .collect();
        let want: Vec<_> = (1..=5).map(|number| (host, 64, number, 63, 0)).collect();
        assert_eq!(replies, want, "{host}");
        let PingResponse { min_time, avg_time, max_time, .. } = summary;
        assert_eq!((summary.sent, summary.received), (5, 5));
        assert!(0 < min_time && min_time <= avg_time && avg_time <= max_time, "{summary:?}");
        assert!(answers.iter().all(|it| (min_time..=max_time).contains(&it.time)), "{answers:?}");
        assert!(summary.time >= ns(Duration::from_millis(80)), "{summary:?}");

        let long = PingRequest { count: 1, size: 2000, ..ping(host) };
        let (answers, _) = collect_ping(&mut system, long.clone()).await.unwrap();
        assert_eq!(answers[0].bytes, 2008, "it travels in pieces");
        let whole = PingRequest { do_not_fragment: true, ..long };
        let refused = collect_ping(&mut system, whole).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        let flood = PingRequest { count: 100, interval: -1, ..ping(host) };
        assert_eq!(collect_ping(&mut system, flood).await.unwrap().1.received, 100);
        // One microsecond between packets is taken for the shortest interval, a millisecond.
        let hasty = PingRequest { count: 50, interval: 1000, ..ping(host) };
        let summary = collect_ping(&mut system, hasty).await.unwrap().1;
        assert_eq!((summary.sent, summary.received), (50, 50));
        assert!(summary.time >= ns(Duration::from_millis(49)), "{summary:?}");
    }

    let source = PingRequest { source: "192.0.2.1".to_owned(), count: 1, ..ping(HOST[0]) };
    let default = PingRequest { network_instance: "DEFAULT".to_owned(), ..source.clone() };
    assert_eq!(collect_ping(&mut system, default).await.unwrap().1.received, 1);
    let wait = ns(Duration::from_millis(50));
    let nobody = PingRequest { count: 2, wait, ..ping(UNUSED_ADDRESS) };
    let (answers, summary) = collect_ping(&mut system, nobody).await.unwrap();
    assert_eq!((answers.len(), summary.sent, summary.received), (0, 2, 0));
    assert_eq!(summary.max_time, 0);

    let strange = PingRequest { source: HOST[0].to_owned(), ..source };
    let red = PingRequest { network_instance: "red".to_owned(), ..ping(HOST[0]) };
    for (request, code, word) in [
        (strange, Code::InvalidArgument, HOST[0]),
        (red, Code::NotFound, "`red`"),
        (ping("2001:db8:99::1"), Code::FailedPrecondition, "2001:db8:99::1"),
    ] {
        let refused = collect_ping(&mut system, request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
        assert!(refused.message().contains(word), "{refused:?}");
    }
}

// proves 6.2
#[tokio::test]
async fn a_ping_without_end_ends_with_its_client() {
    let network = Network::new().await;
    let mut system = network.system().await;
    // The kernel lists raw sockets below one line of headings.
    let sockets = || network.managed.shell("cat /proc/net/raw").lines().count() - 1;
    let endless = PingRequest { count: -1, ..ping(HOST[0]) };
    let mut stream = system.ping(endless).await.unwrap().into_inner();
    for number in 1..=10 {
        assert_eq!(stream.message().await.unwrap().unwrap().sequence, number);
    }
    assert_eq!(sockets(), 1);
    drop(stream);
    eventually("its socket is closed", || sockets() == 0).await;
}

/// The first message, and for each probe its hop, the answering address, the state and the ICMP code.
async fn collect_traceroute(
    system: &mut System,
    request: TracerouteRequest,
) -> (TracerouteResponse, Vec<(i32, String, State, i32)>) {
    let mut stream = system.traceroute(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let mut probes = Vec::new();
    while let Some(it) = stream.message().await.unwrap() {
        assert!(it.destination_address.is_empty() && it.mpls.is_empty(), "{it:?}");
        assert_eq!(it.rtt > 0, it.state() != State::None, "{it:?}");
        probes.push((it.hop, it.address.clone(), it.state(), it.icmp_code));
    }
    (first, probes)
}

/// Three probes of a hop with the same answer.
fn hop(number: i32, address: &str, state: State, code: i32) -> Vec<(i32, String, State, i32)> {
    vec![(number, address.to_owned(), state, code); 3]
}

// proves 6.3
#[tokio::test]
async fn a_route_is_traced_hop_by_hop() {
    let network = Network::new().await;
    let mut system = network.system().await;
    let trace = |destination: &str, protocol: L4Protocol| TracerouteRequest {
        destination: destination.to_owned(),
        l4protocol: protocol.into(),
        ..Default::default()
    };
    for (host, router, size) in [(HOST[0], ROUTER[0], 60), (HOST[1], ROUTER[1], 80)] {
        for (protocol, size) in
            [(L4Protocol::Icmp, size), (L4Protocol::Udp, size), (L4Protocol::Tcp, 0)]
        {
            let (first, probes) = collect_traceroute(&mut system, trace(host, protocol)).await;
            assert_eq!((first.destination_address.as_str(), first.hops), (host, 30));
            assert_eq!((first.packet_size, first.hop), (size, 0));
            let hops: Vec<_> =
                probes.iter().map(|(hop, from, state, _)| (*hop, from.as_str(), *state)).collect();
            let want = [(1, router), (2, host)].map(|(hop, from)| [(hop, from, State::Default); 3]);
            assert_eq!(hops, want.concat(), "{host} by {protocol:?}");
        }
    }

    let one = TracerouteRequest { max_ttl: 1, ..trace(HOST[0], L4Protocol::Icmp) };
    let (first, probes) = collect_traceroute(&mut system, one).await;
    assert_eq!((first.hops, probes), (1, hop(1, ROUTER[0], State::Default, 0)));
    let second = TracerouteRequest { initial_ttl: 2, ..trace(HOST[0], L4Protocol::Icmp) };
    let (_, probes) = collect_traceroute(&mut system, second).await;
    assert_eq!(probes, hop(2, HOST[0], State::Default, 0));
    let (_, probes) = collect_traceroute(&mut system, trace(FORBIDDEN, L4Protocol::Icmp)).await;
    assert_eq!(probes, hop(1, ROUTER[1], State::Prohibited, 1), "and no further");
    let wait = ns(Duration::from_millis(100));
    let silent = TracerouteRequest {
        initial_ttl: 2,
        max_ttl: 3,
        wait,
        ..trace(UNUSED_ADDRESS, L4Protocol::Udp)
    };
    let (_, probes) = collect_traceroute(&mut system, silent).await;
    assert_eq!(probes, [hop(2, "", State::None, 0), hop(3, "", State::None, 0)].concat());
}

/// Output of `holdfast ping` or `holdfast traceroute`, and whether it succeeded.
fn run_probe(network: &Network, command: &str, words: &str) -> (bool, String, String) {
    let output = network.agent.command(command).args(words.split_whitespace()).output().unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_command_line_pings_and_traces_from_the_managed_namespace() {
    let network = Network::new().await;
    for host in HOST {
        let (is_ok, text, error) = run_probe(&network, "ping", &format!("{host} -c 3 -i 0.02"));
        assert!(is_ok, "{text}{error}");
        assert!(text.starts_with(&format!("ping {host}, 56 bytes\n")), "{text}");
        assert!(text.contains(&format!("64 bytes from {host}: sequence 3, ttl 63, ")), "{text}");
        assert!(text.contains("3 sent, 3 received, 0 % lost\nround trip: least "), "{text}");
    }
    let (is_ok, text, error) =
        run_probe(&network, "ping", &format!("{UNUSED_ADDRESS} -c 1 -W 0.2"));
    assert!(!is_ok && error == "holdfast: no answer has come\n", "{error}");
    assert!(text.ends_with("1 sent, 0 received, 100 % lost\n"), "{text}");
    let (is_ok, _, error) = run_probe(&network, "ping", &format!("{} -S 198.51.100.77", HOST[0]));
    assert!(!is_ok && error.contains("`198.51.100.77` is not an address of this box"), "{error}");
    let (is_ok, _, error) = run_probe(&network, "ping", &format!("{} -6", HOST[0]));
    assert!(!is_ok && error.contains("is not an address of IPV6"), "{error}");
    let too_long = format!("{} -D -s 2000 -c 1", HOST[0]);
    let (is_ok, _, error) = run_probe(&network, "ping", &too_long);
    assert!(!is_ok && error.contains("a packet of 2000 bytes cannot reach"), "{error}");
    let (_, text, _) = run_probe(&network, "ping", &format!("{} -c 2 -i 0.02 --json", HOST[0]));
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["reply"]["from"], HOST[0], "{text}");
    assert_eq!(lines[3]["summary"]["received"], 2, "{text}");

    for (host, router, protocol) in [(HOST[0], ROUTER[0], "udp"), (HOST[1], ROUTER[1], "icmp")] {
        let words = format!("{host} --protocol {protocol}");
        let (is_ok, text, error) = run_probe(&network, "traceroute", &words);
        assert!(is_ok, "{text}{error}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with(&format!("  1  {router}  ")), "{text}");
        assert!(lines[2].starts_with(&format!("  2  {host}  ")), "{text}");
    }
}
