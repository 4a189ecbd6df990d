//! gnsi.acctz through a real channel: collectors of accounting records.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Role;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::gnsi::acctz::acctz_stream_client::AcctzStreamClient;
use holdfast_proto::gnsi::acctz::record_response::ServiceRequest;
use holdfast_proto::gnsi::acctz::{RecordRequest, RecordResponse, grpc_service};
use holdfast_security::acctz::{
    AccountingEvent, Activity, Authn, AuthnKind, AuthnOutcome, Authz, AuthzOutcome, Command,
    CommandKind, History, Payload, Rpc, ServiceFamily, Session, SessionStage, User,
};
use holdfast_store::accounts::{AccountingLog, MIN_HISTORY, SOURCES, SourceKind, SubscribeCounts};
use prost_types::Timestamp;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::fake_datastore::FakeDatastore;
use super::harness::{self, channel};
use crate::agent_tests::Agent;
use crate::device::Device;
use crate::gnsi::Gnsi;
use crate::northbound::IgnoredSubscriptions;
use crate::northbound::response_stream::STUCK_CLIENT;

/// Bytes of the payload of one record of these tests.
const PAYLOAD: usize = 1000;
/// Bytes of a history with room for a few thousand records.
const ROOM: usize = 4 << 20;

type Collector = AcctzStreamClient<Channel>;

/// A datastore, and an accounting log of the test's own.
struct BackendWithAccounting {
    core: FakeDatastore,
    accounts: AccountingLog,
}

impl harness::TestBackend for BackendWithAccounting {
    type Core = FakeDatastore;

    fn datastore(&self) -> FakeDatastore {
        harness::TestBackend::datastore(&self.core)
    }

    fn device(&self) -> Device {
        harness::TestBackend::device(&self.core)
    }

    fn gnsi(&self) -> Gnsi {
        harness::TestBackend::gnsi(&self.core).accounting(self.accounts.clone())
    }

    fn ignored(&self) -> Arc<IgnoredSubscriptions> {
        harness::TestBackend::ignored(&self.core)
    }
}

async fn collector_as(accounts: &AccountingLog, role: Option<Role>) -> Collector {
    let backend = BackendWithAccounting { core: FakeDatastore::new(), accounts: accounts.clone() };
    Collector::new(channel(&backend, role).await)
}

async fn collector(accounts: &AccountingLog) -> Collector {
    collector_as(accounts, Some(Role::Admin)).await
}

fn accounts(octets: usize) -> AccountingLog {
    AccountingLog::new(History::new(octets, 1000))
}

fn call(number: usize) -> AccountingEvent {
    let ends: (SocketAddr, SocketAddr) =
        ("[::ffff:192.0.2.1]:9339".parse().unwrap(), "[2001:db8::1]:40000".parse().unwrap());
    let session = Session {
        transport: Some(ends),
        channel: "7".into(),
        stage: SessionStage::Login,
        user: User { identity: "ada".into(), role: "admin".into(), ssh_principal: "p".into() },
        authn: Some(Authn {
            kind: AuthnKind::TlsCertificate,
            outcome: AuthnOutcome::Success,
            cause: "".into(),
        }),
    };
    let authz = Authz { outcome: AuthzOutcome::Deny, detail: "no".into() };
    let octets = vec![0x0a; PAYLOAD];
    let payload = Some(Payload { message: "gnmi.SetRequest".to_owned(), octets, cut: true });
    let path = format!("/gnmi.gNMI/Set{number}");
    let rpc = Rpc { family: ServiceFamily::Gnmi, path: path.as_str().into(), payload, authz };
    AccountingEvent { session, activity: Activity::Rpc(rpc) }
}

fn command() -> AccountingEvent {
    let authz = Authz { outcome: AuthzOutcome::Permit, detail: "".into() };
    let activity = Command {
        kind: CommandKind::Cli,
        command: "GET /show".into(),
        arguments: vec!["x".repeat(1000).into()],
        authz,
    };
    AccountingEvent { session: Session::default(), activity: Activity::Command(activity) }
}

async fn subscribe(client: &mut Collector, after: Option<Timestamp>) -> Streaming<RecordResponse> {
    client.record_subscribe(RecordRequest { timestamp: after }).await.unwrap().into_inner()
}

async fn next(stream: &mut Streaming<RecordResponse>) -> RecordResponse {
    stream.message().await.unwrap().unwrap()
}

fn name(record: &RecordResponse) -> &str {
    match record.service_request.as_ref().unwrap() {
        ServiceRequest::GrpcService(rpc) => &rpc.rpc_name,
        ServiceRequest::CmdService(command) => &command.cmd,
    }
}

// proves 5.94, 5.99, 5.100
#[tokio::test]
async fn an_accounting_record_is_complete() {
    let accounts = accounts(ROOM);
    accounts.record_change(call(0));
    accounts.record_change(command());
    let mut stream = subscribe(&mut collector(&accounts).await, None).await;

    let record = next(&mut stream).await;
    let session = record.session_info.unwrap();
    assert_eq!((session.local_address.as_str(), session.local_port), ("192.0.2.1", 9339));
    assert_eq!((session.remote_address.as_str(), session.remote_port), ("2001:db8::1", 40000));
    assert_eq!((session.ip_proto, session.channel_id.as_str()), (6, "7"));
    assert_eq!(session.status().as_str_name(), "SESSION_STATUS_LOGIN");
    let user = session.user.unwrap();
    assert_eq!([user.identity, user.role, user.ssh_principal], ["ada", "admin", "p"]);
    let authn = session.authn.unwrap();
    assert_eq!(authn.r#type().as_str_name(), "AUTHN_TYPE_TLSCERT");
    assert_eq!(authn.status().as_str_name(), "AUTHN_STATUS_SUCCESS");
    let Some(ServiceRequest::GrpcService(rpc)) = record.service_request else { panic!() };
    assert_eq!(rpc.service_type().as_str_name(), "GRPC_SERVICE_TYPE_GNMI");
    assert_eq!(rpc.rpc_name, "/gnmi.gNMI/Set0");
    assert!(rpc.payload_istruncated);
    let authz = rpc.authz.unwrap();
    assert_eq!((authz.status().as_str_name(), authz.detail.as_str()), ("AUTHZ_STATUS_DENY", "no"));
    let Some(grpc_service::Payload::ProtoVal(any)) = rpc.payload else { panic!() };
    assert_eq!(any.type_url, "type.googleapis.com/gnmi.SetRequest");
    assert_eq!(any.value.len(), PAYLOAD);

    let record = next(&mut stream).await;
    let session = record.session_info.unwrap();
    assert_eq!((session.local_address.as_str(), session.ip_proto), ("", 0));
    assert_eq!(session.status().as_str_name(), "SESSION_STATUS_ONCE");
    let Some(ServiceRequest::CmdService(command)) = record.service_request else { panic!() };
    assert_eq!(command.service_type().as_str_name(), "CMD_SERVICE_TYPE_CLI");
    assert_eq!((command.cmd.as_str(), command.cmd_args.len()), ("GET /show", 1));
    assert_eq!((command.cmd_istruncated, command.cmd_args_istruncated), (false, true));
}

// proves 5.96, 5.97, 5.98
#[tokio::test]
async fn records_after_a_time_come_and_then_those_that_happen() {
    let accounts = accounts(ROOM);
    for number in 0..3 {
        accounts.record_change(call(number));
    }
    let mut client = collector(&accounts).await;
    let mut all = subscribe(&mut client, None).await;
    let mut times = Vec::new();
    for number in 0..3 {
        let record = next(&mut all).await;
        assert_eq!(name(&record), format!("/gnmi.gNMI/Set{number}"));
        assert!(!record.history_istruncated);
        times.push(record.timestamp.unwrap());
    }
    let mut later = subscribe(&mut client, Some(times[1])).await;
    let record = next(&mut later).await;
    assert_eq!((name(&record), record.history_istruncated), ("/gnmi.gNMI/Set2", false));
    accounts.record_change(call(3));
    for stream in [&mut all, &mut later] {
        assert_eq!(name(&next(stream).await), "/gnmi.gNMI/Set3");
    }
    // The first nanosecond of 1970 was long before the history began.
    let early = Timestamp { seconds: 0, nanos: 1 };
    let mut early = subscribe(&mut client, Some(early)).await;
    assert!(next(&mut early).await.history_istruncated);
    assert!(!next(&mut early).await.history_istruncated);
    let zero = Timestamp::default();
    assert!(!next(&mut subscribe(&mut client, Some(zero)).await).await.history_istruncated);

    assert_eq!(accounts.recorded(SourceKind::Rpc(ServiceFamily::Gnmi)), 4);
    assert_eq!(SOURCES.iter().map(|it| accounts.recorded(*it)).sum::<u64>(), 4);
    let SubscribeCounts { requests, responses, truncated } = accounts.subscribe_counts();
    assert_eq!((requests, truncated), (4, 1));
    let count = 3 + 2 + 2 + 1;
    assert!(responses >= count, "{responses}");
}

#[tokio::test]
async fn record_subscribe_refuses_invalid_timestamps_and_readers() {
    let accounts = accounts(ROOM);
    let mut client = collector(&accounts).await;
    for (seconds, nanos) in [(-1, 0), (1, -1), (1, 1_000_000_000), (i64::MAX, 0)] {
        let timestamp = Some(Timestamp { seconds, nanos });
        let status = client.record_subscribe(RecordRequest { timestamp }).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{seconds}.{nanos}");
        assert!(status.message().contains("timestamp"), "{status:?}");
    }
    for (role, want) in
        [(Some(Role::ReadOnly), Code::PermissionDenied), (None, Code::Unauthenticated)]
    {
        let mut client = collector_as(&accounts, role).await;
        let status = client.record_subscribe(RecordRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), want);
    }
    assert_eq!(accounts.readers(), 0);
}

// proves 5.103
#[tokio::test(start_paused = true)]
async fn a_collector_that_does_not_read_is_disconnected_and_delays_no_call() {
    let accounts = accounts(ROOM);
    let mut stalled = subscribe(&mut collector(&accounts).await, None).await;
    let mut other = subscribe(&mut collector(&accounts).await, None).await;
    // More records than the pipe and the flow control windows hold.
    for number in 0..2000 {
        accounts.record_change(call(number));
    }
    for number in 0..2000 {
        assert_eq!(name(&next(&mut other).await), format!("/gnmi.gNMI/Set{number}"));
    }
    assert_eq!(accounts.readers(), 2);
    tokio::time::sleep(STUCK_CLIENT + Duration::from_secs(1)).await;
    assert_eq!(accounts.readers(), 1);
    let end = loop {
        match stalled.message().await {
            Ok(record) => assert!(record.is_some(), "the stream says why it ends"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted);
    accounts.record_change(call(2000));
    assert_eq!(name(&next(&mut other).await), "/gnmi.gNMI/Set2000");
}

// proves 5.97
#[tokio::test(start_paused = true)]
async fn a_slow_collector_receives_the_number_of_lost_records() {
    let accounts = accounts(MIN_HISTORY);
    let mut client = collector(&accounts).await;
    let mut stream = subscribe(&mut client, None).await;
    accounts.record_change(call(0));
    assert_eq!(name(&next(&mut stream).await), "/gnmi.gNMI/Set0");
    let written = 2000;
    for number in 1..=written {
        accounts.record_change(call(number));
    }
    let mut got = 0;
    let mut lost = 0;
    loop {
        let record = next(&mut stream).await;
        lost += usize::from(record.history_istruncated);
        got += 1;
        if name(&record) == format!("/gnmi.gNMI/Set{written}") {
            break;
        }
    }
    assert!(got < written && lost == 1, "{got} of {written}, {lost} times told that some are gone");
}

// proves 5.104
#[tokio::test]
async fn records_and_collectors_are_counted_for_readers() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let accounts = agent.gnsi.accounts();
    let mut gnmi = harness::client(&agent).await;
    let served = "/system/grpc-servers/grpc-server[name=DEFAULT]/acctz/state/counters";
    let source = |service: &str, kind: &str| {
        format!(
            "/system/aaa/accounting/acctz/source-records/source-record[service={service}][type={kind}]/state"
        )
    };
    let read = async |gnmi: &mut harness::Client, path: String| {
        let got = gnmi.get(harness::get_request(&[&path])).await.unwrap().into_inner();
        harness::value(got.notification[0].update[0].val.as_ref())
    };
    let counters = ["record-requests", "record-responses", "history-istruncated"];
    for leaf in counters {
        assert_eq!(read(&mut gnmi, format!("{served}/{leaf}")).await, "\"0\"", "{leaf}");
    }
    accounts.record_change(call(1));
    accounts.record_change(call(2));
    accounts.record_change(command());
    let mut client = Collector::new(channel(&agent, Some(Role::Admin)).await);
    // The first nanosecond of 1970 was long before the history began.
    let mut stream = subscribe(&mut client, Some(Timestamp { seconds: 0, nanos: 1 })).await;
    for _ in 0..3 {
        next(&mut stream).await;
    }
    // A record is sent before it is counted, so after one more the third is counted.
    accounts.record_change(call(3));
    next(&mut stream).await;
    let responses = read(&mut gnmi, format!("{served}/record-responses")).await;
    assert!(["\"3\"", "\"4\""].contains(&responses.as_str()), "{responses}");
    for (leaf, want) in [("record-requests", "\"1\""), ("history-istruncated", "\"1\"")] {
        assert_eq!(read(&mut gnmi, format!("{served}/{leaf}")).await, want, "{leaf}");
    }
    for (service, kind, want) in [
        ("GRPC_SERVICE", "GNMI", "\"3\""),
        ("GRPC_SERVICE", "GNSI", "\"0\""),
        ("GRPC_SERVICE", "UNSPECIFIED", "\"0\""),
        ("CMD_SERVICE", "CLI", "\"1\""),
        ("CMD_SERVICE", "SHELL", "\"0\""),
    ] {
        let state = source(service, kind);
        assert_eq!(read(&mut gnmi, format!("{state}/counters/records")).await, want, "{state}");
        assert_eq!(read(&mut gnmi, format!("{state}/type")).await, format!("\"{kind}\""));
        assert_eq!(read(&mut gnmi, format!("{state}/service")).await, format!("\"{service}\""));
    }
}
