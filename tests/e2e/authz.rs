//! gnsi.authz and the real binary: a power cut at any moment of a rotation, and a client by others.

use holdfast_proto::gnoi::system::TimeRequest;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use holdfast_proto::gnsi::authz::{
    FinalizeRequest, GetRequest, RotateAuthzRequest, UploadRequest, rotate_authz_request,
};
use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::clients::grpcurl;
use holdfast_tests::gnmi::Credentials;
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use serde_json::json;
use tonic::Code;

const VERSION: &str = "/system/aaa/authorization/state/grpc-authz-policy-version";

/// A policy that allows these users everything, and all others nothing.
fn policy(users: &[&str]) -> String {
    let rule = json!({"name": "users", "source": {"principals": users}});
    json!({"name": "policy", "allow_rules": [rule]}).to_string()
}

fn upload(version: &str, policy: &str) -> RotateAuthzRequest {
    let version = version.to_owned();
    let policy = policy.to_owned();
    let upload = UploadRequest { version, created_on: 1_700_000_000, policy };
    let rotate_request = Some(rotate_authz_request::RotateRequest::UploadRequest(upload));
    RotateAuthzRequest { rotate_request, ..Default::default() }
}

fn finalize() -> RotateAuthzRequest {
    let rotate_request =
        Some(rotate_authz_request::RotateRequest::FinalizeRotation(FinalizeRequest {}));
    RotateAuthzRequest { rotate_request, ..Default::default() }
}

/// Rotates to another policy, and kills the agent in the middle.
async fn rotate_and_kill(agent: &mut AgentProcess, version: &str, policy: &str, cut: CutPoint) {
    let mut client = AuthzClient::with_interceptor(agent.channel().await, agent.credentials());
    let mut rotation = Rotation::open(|requests| client.rotate(requests)).await.unwrap();
    rotation.run_until(cut, upload(version, policy), finalize()).await;
    agent.kill();
}

// proves 3.33, 3.37, 5.1, 5.2, 5.7, 5.35
#[tokio::test]
async fn a_power_cut_in_a_rotation_leaves_the_old_policy_or_the_new_one() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let password = "a password of eve";
    assert!(agent.user(&["set", "eve", "--role", "admin"], password).status.success());
    let with_eve = policy(&[ADMIN, "eve"]);
    let without_eve = policy(&[ADMIN]);
    let mut stored: Option<(String, String)> = None;
    let cuts = CutPoint::ALL.iter().chain(&CutPoint::ALL).chain(&[CutPoint::Finalizing; 2]);
    for (number, cut) in cuts.enumerate() {
        // Each policy differs from the one before in its decision.
        let text = match &stored {
            Some((_, text)) if *text == without_eve => &with_eve,
            _ => &without_eve,
        };
        let tried = (format!("v{number}"), text.clone());
        rotate_and_kill(&mut agent, &tried.0, &tried.1, *cut).await;
        agent.restart().await;

        let mut client = AuthzClient::with_interceptor(agent.channel().await, agent.credentials());
        let found = match client.get(GetRequest::default()).await {
            Ok(got) => Some((got.get_ref().version.clone(), got.into_inner().policy)),
            Err(status) => {
                assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
                None
            }
        };
        let is_new = found.as_ref() == Some(&tried);
        assert!(is_new || found == stored, "{cut:?}: {found:?}");
        assert!(cut.may_leave(is_new), "{cut:?}: {found:?}");
        let eve_may = found.as_ref().is_none_or(|(_, text)| *text == with_eve);
        let eve = Credentials::new("eve", password).unwrap();
        let mut system = SystemClient::with_interceptor(agent.channel().await, eve);
        let answer = system.time(TimeRequest {}).await.map_err(|status| status.code());
        assert_eq!(answer.is_ok(), eve_may, "{cut:?} {answer:?}");
        let reported_version = agent.gnmi().await.read(VERSION).await;
        let version = found.as_ref().map(|(version, _)| json!(version));
        assert_eq!(
            reported_version.map_err(|status| status.code()),
            version.ok_or(Code::NotFound),
            "{cut:?}"
        );
        stored = found;
    }
}

// proves 5.14, 5.30
#[tokio::test]
async fn grpcurl_finds_the_service_by_reflection() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let listed = grpcurl(&agent, &["list"], "").await.unwrap();
    assert!(listed.lines().any(|line| line == "gnsi.authz.v1.Authz"), "{listed}");
    let described = grpcurl(&agent, &["describe", "gnsi.authz.v1.Authz"], "").await.unwrap();
    for rpc in ["Rotate", "Probe", "Get"] {
        assert!(described.contains(&format!("rpc {rpc} ")), "{described}");
    }
    let get = || grpcurl(&agent, &["gnsi.authz.v1.Authz/Get"], "{}");
    let refused = get().await.unwrap_err();
    assert!(refused.contains("FailedPrecondition"), "{refused}");

    let text = policy(&[ADMIN]);
    let upload = json!({"uploadRequest": {"version": "v1", "createdOn": "7", "policy": text}});
    let messages = format!("{upload}\n{}", json!({"finalizeRotation": {}}));
    let rotated = grpcurl(&agent, &["gnsi.authz.v1.Authz/Rotate"], &messages).await.unwrap();
    assert!(rotated.contains("uploadResponse"), "{rotated}");
    let got: serde_json::Value = serde_json::from_str(&get().await.unwrap()).unwrap();
    assert_eq!(got, json!({"version": "v1", "createdOn": "7", "policy": text}));
    let request = json!({"user": "eve", "rpc": "/gnmi.gNMI/Get"}).to_string();
    let probed = grpcurl(&agent, &["gnsi.authz.v1.Authz/Probe"], &request).await.unwrap();
    assert!(probed.contains("ACTION_DENY") && probed.contains("v1"), "{probed}");
}

#[tokio::test]
async fn grpcurl_reaches_each_service_of_gnsi() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let listed = grpcurl(&agent, &["list"], "").await.unwrap();
    // service and RPC, message, part of the answer or of the error
    for (service, rpc, message, answer_part) in [
        ("gnsi.authz.v1.Authz", "Probe", r#"{"user":"a","rpc":"Get"}"#, "`rpc` must be"),
        ("gnsi.pathz.v1.Pathz", "Probe", r#"{"path":{}}"#, "`user` is missing"),
        ("gnsi.certz.v1.Certz", "GetProfileList", "{}", "system_default_profile"),
        (
            "gnsi.credentialz.v1.Credentialz",
            "CanGenerateKey",
            r#"{"keyParams":"KEY_GEN_SSH_KEY_TYPE_EDDSA_ED25519"}"#,
            "canGenerate",
        ),
        (
            "gnsi.acctz.v1.AcctzStream",
            "RecordSubscribe",
            r#"{"timestamp":"1960-01-01T00:00:00Z"}"#,
            "not a time since 1970",
        ),
    ] {
        assert!(listed.lines().any(|line| line == service), "{service} is not in {listed}");
        let answer = grpcurl(&agent, &[&format!("{service}/{rpc}")], message).await;
        let answer = answer.unwrap_or_else(|complaint| complaint);
        assert!(answer.contains(answer_part), "{service}: {answer}");
    }
}
