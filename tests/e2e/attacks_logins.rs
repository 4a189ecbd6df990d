//! Attacks by guessing passwords, by flooding the accounting history and by forbidden requests, and their effect on
//! other clients.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use holdfast_proto::gnmi;
use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnoi::bootconfig::GetBootConfigRequest;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnsi::acctz::acctz_stream_client::AcctzStreamClient;
use holdfast_proto::gnsi::acctz::authn_detail::AuthnStatus;
use holdfast_proto::gnsi::acctz::record_response::ServiceRequest;
use holdfast_proto::gnsi::acctz::session_info::SessionStatus;
use holdfast_proto::gnsi::acctz::{RecordRequest, RecordResponse};
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status, Streaming};

/// Waves of one attack: guesses that are sent at once, and whether they are right; 200 in all. The first two waves
/// exceed the free failures, and all of them together take less time than the first wait of the back-off.
const WAVES: [(usize, bool); 3] = [(100, false), (20, false), (80, true)];
/// Time after which the stream of a guess is reset: enough for the answer to a remembered password, and too short for a
/// hashed one.
const GUESS_TIMEOUT: Duration = Duration::from_millis(20);
/// Calls without credentials that fill the smallest history many times over.
const FLOOD: usize = 3000;
/// The smallest accounting history, in bytes.
const SMALL_HISTORY: &str = "65536";

/// One login; `None` when it was given up.
async fn guess(channel: Channel, name: &str, password: &str) -> Option<Result<(), Status>> {
    let client = GnmiClient::over(channel, Credentials::new(name, password).unwrap());
    let answer = timeout(GUESS_TIMEOUT, client.capabilities()).await.ok()?;
    Some(answer.map(drop))
}

async fn login(channel: Channel, name: &str, password: &str) -> Result<(), Status> {
    let client = GnmiClient::over(channel, Credentials::new(name, password).unwrap());
    client.capabilities().await.map(drop)
}

#[track_caller]
fn check_rate_limited(answer: Result<(), Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().starts_with("too many failed logins"), "{status}");
}

/// A connection from another address of the loopback device.
async fn channel_from(agent: &AgentProcess, source: &str) -> Channel {
    let ca = Certificate::from_pem(fs::read_to_string(agent.ca_file()).unwrap());
    let tls = ClientTlsConfig::new().ca_certificate(ca).domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", agent.address())).unwrap();
    let source: IpAddr = source.parse().unwrap();
    endpoint.local_address(Some(source)).tls_config(tls).unwrap().connect().await.unwrap()
}

/// All records before the beginning of this subscription, which follows `others` other ones.
async fn records(agent: &AgentProcess, channel: Channel, others: usize) -> Vec<RecordResponse> {
    let mut client = AcctzStreamClient::with_interceptor(channel, agent.credentials());
    let mut stream: Streaming<RecordResponse> =
        client.record_subscribe(RecordRequest { timestamp: None }).await.unwrap().into_inner();
    let mut records = Vec::new();
    let mut begun = 0;
    loop {
        let record = stream.message().await.unwrap().unwrap();
        let session = record.session_info.as_ref().unwrap();
        let is_collector = name_and_detail(&record).0.ends_with("/RecordSubscribe");
        begun += usize::from(is_collector && session.status() == SessionStatus::Login);
        if begun > others {
            return records;
        }
        records.push(record);
    }
}

fn name_and_detail(record: &RecordResponse) -> (&str, &str) {
    match record.service_request.as_ref().unwrap() {
        ServiceRequest::GrpcService(rpc) => (&rpc.rpc_name, &rpc.authz.as_ref().unwrap().detail),
        ServiceRequest::CmdService(command) => (&command.cmd, ""),
    }
}

fn is_of(record: &RecordResponse, name: &str) -> bool {
    record.session_info.as_ref().unwrap().user.as_ref().unwrap().identity == name
}

fn failed(record: &RecordResponse) -> bool {
    let authn = record.session_info.as_ref().unwrap().authn.as_ref();
    authn.is_some_and(|authn| authn.status() == AuthnStatus::Fail)
}

#[tokio::test]
async fn abandoned_logins_are_rate_limited_and_recorded() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let working = agent.gnmi().await;
    working.capabilities().await.unwrap(); // the agent remembers this password from here on
    let collector = agent.channel().await;
    login(collector.clone(), ADMIN, PASSWORD).await.unwrap();
    let [one, two, next] = [agent.channel().await, agent.channel().await, agent.channel().await];

    let mut refusals = 0;
    for (guesses, right) in WAVES {
        let mut wave = JoinSet::new();
        for number in 0..guesses {
            let channel = if number % 2 == 0 { one.clone() } else { two.clone() };
            let password = if right { PASSWORD.to_owned() } else { format!("guess {number}") };
            wave.spawn(async move { guess(channel, ADMIN, &password).await });
        }
        let answers = wave.join_all().await;
        refusals += answers.iter().filter(|answer| matches!(answer, Some(Ok(())))).count();
    }
    assert_eq!(refusals, 0, "a password was found");
    check_rate_limited(login(next.clone(), ADMIN, PASSWORD).await);
    check_rate_limited(login(next, ADMIN, "a guess").await);

    working.capabilities().await.unwrap();
    login(channel_from(&agent, "127.0.0.2").await, ADMIN, PASSWORD).await.unwrap();
    let records = records(&agent, collector, 0).await;
    let given_up = |record: &&RecordResponse| name_and_detail(record).1.starts_with("Cancelled");
    let given_up: Vec<_> = records.iter().filter(given_up).collect();
    assert!(!given_up.is_empty() && given_up.iter().all(|it| is_of(it, ADMIN) && failed(it)));
    let log = agent.log();
    let lines = log.lines().filter(|line| line.contains("login given up")).count();
    assert!((1..=6).contains(&lines), "{lines} guesses were charged before the wait");
}

#[tokio::test]
async fn abandoned_correct_login_does_not_bypass_the_rate_limit() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let output = agent.user(&["set", "bob", "--role", "admin"], "bob's password");
    assert!(output.status.success(), "{output:?}");
    let channel = agent.channel().await;
    // There was no login as bob: each guess is hashed, two at a time, and the right one comes last. So it is given up
    // before it is answered, even on a fast machine.
    let mut wave = JoinSet::new();
    for password in ["1", "2", "3", "4", "bob's password"] {
        let channel = channel.clone();
        wave.spawn(async move { guess(channel, "bob", password).await });
    }
    let mut answers = wave.join_all().await;
    for password in ["5", "6", "7"] {
        answers.push(guess(channel.clone(), "bob", password).await);
    }
    assert!(!answers.iter().any(|answer| matches!(answer, Some(Ok(())))), "{answers:?}");
    check_rate_limited(login(channel, "bob", "bob's password").await);
    login(channel_from(&agent, "127.0.0.2").await, "bob", "bob's password").await.unwrap();
}

#[tokio::test]
async fn failed_logins_lock_out_no_other_user_of_the_address() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    for (name, attempts) in [("no such user", 0), ("nobody", 9), ("root", 9)] {
        for _ in 0..attempts {
            let code = login(agent.channel().await, name, "a guess").await.unwrap_err().code();
            assert_eq!(code, Code::Unauthenticated);
        }
        login(agent.channel().await, ADMIN, PASSWORD).await.unwrap();
    }
}

#[tokio::test]
async fn anonymous_flood_does_not_evict_records_of_users() {
    let net = Netns::enter();
    let options = ["--accounting-history", SMALL_HISTORY];
    let mut agent = AgentProcess::start_with(&net, &options).await;
    agent.gnmi().await.update("/system/config", json!({"hostname": "edge"})).await.unwrap();
    let stranger = GNmiClient::new(agent.channel().await);
    for number in 0..FLOOD {
        let refused = stranger.clone().capabilities(gnmi::CapabilityRequest::default()).await;
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "call {number}: {status}");
    }
    let sets = |records: &[RecordResponse]| {
        let is_set = |record: &&RecordResponse| name_and_detail(record).0 == "/gnmi.gNMI/Set";
        records.iter().filter(is_set).filter(|record| is_of(record, ADMIN)).count()
    };
    assert_eq!(sets(&records(&agent, agent.channel().await, 0).await), 1);

    agent.terminate().await;
    agent.restart().await;
    let records = records(&agent, agent.channel().await, 1).await;
    assert_eq!(sets(&records), 1);
    let refused: Vec<_> = records.iter().filter(|record| failed(record)).collect();
    assert!(refused.len() < 50, "{} records of one source", refused.len());
    let counted = |record: &&RecordResponse| name_and_detail(record).1.contains("calls like this");
    assert!(refused.iter().any(counted), "{:?}", refused.last());
}

#[tokio::test]
async fn refused_cli_line_leaks_no_secret_to_the_log() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let path = Some(gnmi::Path { origin: "cli".to_owned(), ..Default::default() });
    let text = "system user op password hunter2".to_owned();
    let value = gnmi::typed_value::Value::AsciiVal(text);
    let val = Some(gnmi::TypedValue { value: Some(value) });
    let update = vec![gnmi::Update { path, val, ..Default::default() }];
    let refused = agent.gnmi().await.set(gnmi::SetRequest { update, ..Default::default() }).await;
    let status = refused.unwrap_err();
    assert!(status.message().contains("hunter2"), "whoever sent it finds the mistake: {status}");
    let log = agent.log();
    assert!(log.contains("(withheld)") && !log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn boot_configuration_needs_the_admin_role() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let output = agent.user(&["set", "rob", "--role", "read-only"], "rob's password");
    assert!(output.status.success(), "{output:?}");
    for (name, password, want) in
        [("rob", "rob's password", Some(Code::PermissionDenied)), (ADMIN, PASSWORD, None)]
    {
        let credentials = Credentials::new(name, password).unwrap();
        let mut client = BootConfigClient::with_interceptor(agent.channel().await, credentials);
        let answer = client.get_boot_config(GetBootConfigRequest {}).await;
        assert_eq!(answer.err().map(|status| status.code()), want, "{name}");
    }
}

#[tokio::test]
async fn insecure_settings_are_warned_about() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let warnings = ["can read the password", "--certificate-speaks-for anyone"];
    for warning in warnings {
        assert!(!agent.log().contains(warning), "{warning}");
    }
    let password = agent.state_dir().with_file_name("password");
    fs::set_permissions(password, Permissions::from_mode(0o644)).unwrap();
    agent.set_options(&["--certificate-speaks-for".to_owned(), "anyone".to_owned()]);
    agent.restart().await;
    for warning in warnings {
        assert!(agent.log().contains(warning), "{warning}");
    }
}
