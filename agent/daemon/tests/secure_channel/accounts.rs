//! Accounting records of calls over real TLS connections.

use std::time::Duration;

use holdfast::settings::ImpersonationPolicy;
use holdfast_base::Role;
use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnmi::{
    GetRequest, SubscribeRequest, Subscription, SubscriptionList, SubscriptionMode,
    subscribe_request,
};
use holdfast_security::acctz::{Activity, Record, Rpc};
use holdfast_store::accounts::Reader;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use crate::fixture::{Agent, Authority, request};

const ADA: &str = "username ada\npassword secret";
const ROB: &str = "username rob\npassword secret";

/// Time after which a login has arrived and is not answered yet: a debug build hashes for some 100 ms.
const BEFORE_IT_IS_HASHED: Duration = Duration::from_millis(20);

async fn next(reader: &mut Reader) -> Record {
    Record::clone(&reader.next().await.record)
}

fn rpc(record: &Record) -> &Rpc {
    match &record.account.activity {
        Activity::Rpc(rpc) => rpc,
        Activity::Command(command) => panic!("{command:?}"),
    }
}

/// A record as text: caller, login, method and result.
fn text(record: &Record) -> String {
    let session = &record.account.session;
    let rpc = rpc(record);
    let authn = session
        .authn
        .as_ref()
        .map_or("-".to_owned(), |authn| format!("{:?} {:?}", authn.kind, authn.outcome));
    let user = format!("{}/{}", session.user.identity.as_str(), session.user.role.as_str());
    let detail = rpc.authz.detail.as_str().split(':').next().unwrap_or_default();
    let text = format!(
        "{:?} {user} {authn}; {:?} {} {:?} {detail}",
        session.stage,
        rpc.family,
        rpc.path.as_str(),
        rpc.authz.outcome,
    );
    text.trim_end().to_owned()
}

// proves 5.95, 5.99, 5.102, 6.30
#[tokio::test]
async fn every_call_is_recorded_whatever_its_outcome() {
    let agent = Agent::with_users().await;
    let mut reader = agent.accounts.read(0);
    let client = agent.connect(None).await.unwrap();
    let mut ends = Vec::new();
    let mut numbers = Vec::new();
    // metadata, call, record
    for (metadata, call, want) in [
        (ADA, "get", "Once ada/admin Password Success; Gnmi /gnmi.gNMI/Get Permit"),
        (
            ADA,
            "health",
            "Once ada/admin Password Success; Other /grpc.health.v1.Health/Check Permit",
        ),
        (
            ROB,
            "set",
            "Once rob/read-only Password Success; Gnmi /gnmi.gNMI/Set Deny PermissionDenied",
        ),
        (
            ADA,
            "ping",
            "Once ada/admin Password Success; Gnoi /gnoi.system.System/Ping Permit Unimplemented",
        ),
        (
            ROB,
            "ping",
            "Once rob/read-only Password Success; Gnoi /gnoi.system.System/Ping Deny PermissionDenied",
        ),
        (
            "username ada\npassword guess",
            "get",
            "Once ada/ Password Fail; Gnmi /gnmi.gNMI/Get Deny Unauthenticated",
        ),
        ("username ada", "get", "Once ada/ None Fail; Gnmi /gnmi.gNMI/Get Deny Unauthenticated"),
        ("", "set", "Once / None Fail; Gnmi /gnmi.gNMI/Set Deny Unauthenticated"),
        (
            "username ada\nusername rob",
            "get",
            "Once / None Fail; Gnmi /gnmi.gNMI/Get Deny Unauthenticated",
        ),
    ] {
        let _becomes_of_it = match call {
            "get" => client.get(metadata).await.map(drop),
            "set" => client.set(metadata).await.map(drop),
            "health" => client.health(metadata).await,
            _ => client.ping(metadata).await,
        };
        let record = next(&mut reader).await;
        assert_eq!(text(&record), want, "{metadata}");
        let session = &record.account.session;
        // The payload of a call that is refused, or that has no service, is not read.
        let read = metadata == ADA && call != "ping";
        assert_eq!(rpc(&record).payload.is_some(), read, "{metadata} {call}");
        ends.push(session.transport.unwrap());
        numbers.push(session.channel.as_str().to_owned());
    }
    let (local, remote) = ends[0];
    assert_eq!(local, agent.address);
    assert!(remote.ip().is_loopback() && remote.port() != 0);
    ends.dedup();
    assert_eq!(ends.len(), 1, "it was one connection");
    assert_eq!(numbers, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
}

// proves 5.95, 5.102
#[tokio::test]
async fn an_abandoned_login_is_recorded_as_failed_with_its_name() {
    let agent = Agent::with_users().await;
    let mut reader = agent.accounts.read(0);
    let client = agent.connect(None).await.unwrap();
    let login = client.get("username ada\npassword guess");
    timeout(BEFORE_IT_IS_HASHED, login).await.unwrap_err();
    let record = next(&mut reader).await;
    assert_eq!(
        text(&record),
        "Once ada/ Password Fail; Gnmi /gnmi.gNMI/Get Deny Cancelled",
        "{record:?}"
    );
    assert!(record.account.session.authn.unwrap().cause.as_str().contains("given up"));
}

// proves 1.6, 5.99
#[tokio::test]
async fn the_name_in_a_record_is_the_one_that_was_decided_by() {
    let authority = Authority::new("clients");
    let agent = Agent::with_clients(&authority, Role::ReadOnly, ImpersonationPolicy::Anyone).await;
    let mut reader = agent.accounts.read(0);
    let spiffe = "spiffe://example.com/controller";
    // common name, URIs, metadata, recorded caller, kind of login
    for (name, uris, metadata, caller, kind) in [
        ("rob", &[][..], "", "rob read-only", "TlsCertificate"),
        ("rob", &[spiffe], "", "spiffe://example.com/controller read-only", "TlsCertificate"),
        ("rob", &[spiffe], "username ada", "ada admin", "TlsCertificate"),
        ("rob", &[spiffe], ADA, "ada admin", "Password"),
    ] {
        let client = agent.connect(Some(authority.client(name, uris))).await.unwrap();
        assert_eq!(client.get(metadata).await.unwrap(), caller);
        let session = next(&mut reader).await.account.session;
        let user = session.user;
        let authn = session.authn.unwrap();
        assert_eq!(format!("{} {}", user.identity.as_str(), user.role.as_str()), caller);
        assert_eq!(format!("{:?}", authn.kind), kind);
    }
}

// proves 1.8, 5.95, 5.99, 5.100
#[tokio::test]
async fn a_stream_is_recorded_at_login_and_logout() {
    let agent = Agent::with_users().await;
    let mut reader = agent.accounts.read(0);
    let mut client = GNmiClient::new(agent.connect(None).await.unwrap().0);
    for cancelled in [false, true] {
        let (request_tx, request_rx) = mpsc::channel(4);
        let streaming = client.subscribe(request(ReceiverStream::new(request_rx), ADA));
        let mut stream = streaming.await.unwrap().into_inner();
        // The record has the request once that is sent.
        let mode = SubscriptionMode::OnChange.into();
        let list = SubscriptionList {
            subscription: vec![Subscription { mode, ..Default::default() }],
            ..Default::default()
        };
        let subscribe = SubscribeRequest {
            request: Some(subscribe_request::Request::Subscribe(list)),
            ..Default::default()
        };
        request_tx.send(subscribe.clone()).await.unwrap();
        let open = next(&mut reader).await;
        assert_eq!(
            text(&open),
            "Login ada/admin Password Success; Gnmi /gnmi.gNMI/Subscribe Permit"
        );
        let payload = rpc(&open).payload.clone().unwrap();
        assert_eq!(payload.message, "gnmi.SubscribeRequest");
        assert_eq!(SubscribeRequest::decode(&payload.octets[..]).unwrap(), subscribe);
        stream.message().await.unwrap().unwrap();
        request_tx.send(subscribe).await.unwrap(); // more messages are no more records
        let want = if cancelled {
            request_tx.send(SubscribeRequest::default()).await.unwrap();
            drop((stream, request_tx));
            "Logout ada/admin -; Gnmi /gnmi.gNMI/Subscribe Permit Cancelled"
        } else {
            drop(request_tx);
            while stream.message().await.unwrap().is_some() {}
            "Logout ada/admin -; Gnmi /gnmi.gNMI/Subscribe Permit"
        };
        let end = next(&mut reader).await;
        assert_eq!(text(&end), want);
        assert!(rpc(&end).payload.is_none());
        assert_eq!(end.account.session.channel, open.account.session.channel);
    }
    // A stream that is refused has one record, neither of a login nor of a logout.
    let none = tokio_stream::empty::<SubscribeRequest>();
    client.subscribe(request(none, "username ada\npassword guess")).await.unwrap_err();
    let refused = next(&mut reader).await;
    assert_eq!(
        text(&refused),
        "Once ada/ Password Fail; Gnmi /gnmi.gNMI/Subscribe Deny Unauthenticated"
    );
}

// proves 5.101
#[tokio::test]
async fn a_large_request_is_recorded_up_to_the_payload_limit() {
    let agent = Agent::with_users().await;
    let mut reader = agent.accounts.read(0);
    let mut client = GNmiClient::new(agent.connect(None).await.unwrap().0);
    let path = |number: usize| holdfast_proto::gnmi::Path {
        origin: format!("origin {number}"),
        ..Default::default()
    };
    let large = GetRequest { path: (0..20_000).map(path).collect(), ..Default::default() };
    client.get(request(large.clone(), ADA)).await.unwrap();
    let record = next(&mut reader).await;
    let payload = rpc(&record).payload.clone().unwrap();
    let paths = GetRequest::decode(&payload.octets[..]).unwrap().path;
    assert!(payload.cut && payload.octets.len() <= holdfast::methods::MAX_PAYLOAD);
    assert!(paths.len() > 100 && paths[..100] == large.path[..100], "{}", paths.len());
}
