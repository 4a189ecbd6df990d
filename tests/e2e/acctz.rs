//! Accounting: records outlive the agent, for collectors that connect later.

use std::collections::BTreeMap;

use holdfast_proto::gnsi::acctz::acctz_stream_client::AcctzStreamClient;
use holdfast_proto::gnsi::acctz::authz_detail::AuthzStatus;
use holdfast_proto::gnsi::acctz::record_response::ServiceRequest;
use holdfast_proto::gnsi::acctz::{RecordRequest, RecordResponse};
use holdfast_proto::holdfast::services::ReadRequest;
use holdfast_proto::holdfast::services::handler_client::HandlerClient;
use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use prost_types::Timestamp;
use serde_json::json;
use tonic::transport::Endpoint;
use tonic::{Code, Streaming};

const PASSWORD: &str = "a password to read with";

pub(crate) async fn collect(
    agent: &AgentProcess,
    after: Option<Timestamp>,
) -> Streaming<RecordResponse> {
    let mut client =
        AcctzStreamClient::with_interceptor(agent.channel().await, agent.credentials());
    client.record_subscribe(RecordRequest { timestamp: after }).await.unwrap().into_inner()
}

/// The next record as text: caller, action and decision; and the record itself.
pub(crate) async fn next(stream: &mut Streaming<RecordResponse>) -> (String, RecordResponse) {
    let record = stream.message().await.unwrap().unwrap();
    let session = record.session_info.as_ref().unwrap();
    let (what, authz) = match record.service_request.as_ref().unwrap() {
        ServiceRequest::GrpcService(rpc) => (&rpc.rpc_name, rpc.authz.as_ref()),
        ServiceRequest::CmdService(command) => (&command.cmd, command.authz.as_ref()),
    };
    let permitted = authz.unwrap().status() == AuthzStatus::Permit;
    let who = &session.user.as_ref().unwrap().identity;
    let mark = if permitted { "" } else { " denied" };
    (format!("{who} {what}{mark}"), record)
}

// proves 5.95, 5.96, 5.98, 5.101, 5.102
#[tokio::test]
async fn accounting_records_survive_a_kill() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let mut live = collect(&agent, None).await;
    let subscribed = "admin /gnsi.acctz.v1.AcctzStream/RecordSubscribe";
    assert_eq!(next(&mut live).await.0, subscribed);

    agent.gnmi().await.update("/system/config", json!({"hostname": "edge"})).await.unwrap();
    let stranger = Credentials::new(ADMIN, "a guess").unwrap();
    GnmiClient::over(agent.channel().await, stranger).capabilities().await.unwrap_err();
    let user = agent.user(&["set", "ada", "--role", "admin"], "a password to hide");
    assert!(user.status.success(), "{user:?}");
    let mut names = Vec::new();
    let mut times = Vec::new();
    for _ in 0..4 {
        let (text, record) = next(&mut live).await;
        assert!(!format!("{record:?}").contains("a password to hide"));
        names.push(text);
        times.push(record.timestamp.unwrap());
    }
    assert_eq!(
        names,
        [
            "admin /gnmi.gNMI/Set",
            "admin /gnmi.gNMI/Capabilities denied",
            "local GET /users",
            "local POST /users/set",
        ]
    );

    // Records that a collector was sent are still there when it asks again after a restart.
    agent.restart().await;
    let mut later = collect(&agent, Some(times[0])).await;
    for want in &names[1..] {
        let (text, record) = next(&mut later).await;
        assert_eq!((text.as_str(), record.history_istruncated), (want.as_str(), false));
    }
    assert_eq!(next(&mut later).await.0, subscribed, "what was going on at the kill has no end");
    let mut all = collect(&agent, None).await;
    assert_eq!(next(&mut all).await.0, subscribed);
    assert_eq!(next(&mut all).await.0, names[0]);
}

// proves 5.97, 5.98
#[tokio::test]
async fn accounting_history_option_bounds_the_records() {
    let net = Netns::enter();
    let agent = AgentProcess::start_with(&net, &["--accounting-history", "65536"]).await;
    let mut live = collect(&agent, None).await;
    let first = next(&mut live).await.1.timestamp;
    let gnmi = agent.gnmi().await;
    for number in 0..300 {
        let hostname = json!({"hostname": format!("edge{number}")});
        gnmi.update("/system/config", hostname).await.unwrap();
    }
    let mut later = collect(&agent, first).await;
    assert!(next(&mut later).await.1.history_istruncated);
    assert!(!next(&mut later).await.1.history_istruncated);
    let mut all = collect(&agent, None).await;
    let (text, record) = next(&mut all).await;
    assert_eq!((text.as_str(), record.history_istruncated), ("admin /gnmi.gNMI/Set", false));
}

// proves 5.98
#[tokio::test]
async fn accounting_records_of_changes_outlast_readers_and_processes_of_the_box() {
    let net = Netns::enter();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("services.sock").display().to_string();
    let options = ["--accounting-history", "65536", "--service-socket", &socket];
    let agent = AgentProcess::start_with(&net, &options).await;
    assert!(agent.user(&["set", "rob", "--role", "read-only"], PASSWORD).status.success());
    let (admin, set) = (agent.gnmi().await, "admin /gnmi.gNMI/Set");
    for number in 0..20 {
        let hostname = json!({"hostname": format!("edge{number}")});
        admin.update("/system/config", hostname).await.unwrap();
    }

    let rob = Credentials::new("rob", PASSWORD).unwrap();
    let rob = GnmiClient::over(agent.channel().await, rob);
    let process = Endpoint::from_shared(format!("unix:{socket}")).unwrap().connect().await.unwrap();
    let mut process = HandlerClient::new(process);
    for number in 0..1000 {
        rob.capabilities().await.unwrap();
        rob.read(&format!("/interfaces/interface[name=eth{number}]")).await.unwrap_err();
        rob.delete("/system/config/hostname").await.unwrap_err();
        let refused = process.read(ReadRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    admin.update("/system/config", json!({"hostname": "end"})).await.unwrap();

    let mut all = collect(&agent, None).await;
    let mut counts = BTreeMap::new();
    while counts.get(set) != Some(&21) {
        *counts.entry(next(&mut all).await.0).or_insert(0) += 1;
    }
    for equal in ["rob /gnmi.gNMI/Capabilities", "rob /gnmi.gNMI/Set denied"] {
        assert!(counts.get(equal).is_none_or(|count| *count <= 12), "{equal}: {counts:?}");
    }
    let of_process = counts.iter().filter(|(text, _)| text.contains("Handler/Read"));
    let of_process: usize = of_process.map(|(_, count)| *count).sum();
    assert!((5..=12).contains(&of_process), "five, and a count for a minute: {counts:?}");
}
