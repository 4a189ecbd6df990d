//! Attacks by callers that lose their permissions: with open streams, rotations and connections.

use std::future::Future;
use std::time::Duration;

use holdfast_proto::bootz;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{self, SubscriptionMode};
use holdfast_proto::gnmi_ext::{self, commit, extension::Ext};
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::{
    SetBootConfigRequest, SetBootConfigVerifiedRequest, set_boot_config_verified_request,
};
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{Package, PingRequest, SetPackageRequest, set_package_request};
use holdfast_proto::gnsi::acctz::acctz_stream_client::AcctzStreamClient;
use holdfast_proto::gnsi::acctz::authz_detail::AuthzStatus;
use holdfast_proto::gnsi::acctz::record_response::ServiceRequest;
use holdfast_proto::gnsi::acctz::session_info::SessionStatus;
use holdfast_proto::gnsi::acctz::{AuthzDetail, RecordRequest, RecordResponse};
use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use holdfast_proto::gnsi::authz::{
    FinalizeRequest, GetRequest, RotateAuthzRequest, RotateAuthzResponse, UploadRequest,
    rotate_authz_request,
};
use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::certificates::{Authority, Certz, connect};
use holdfast_tests::eventually::{WAIT_LIMIT, eventually_async};
use holdfast_tests::gnmi::{Credentials, GnmiClient, update};
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::Rotation;
use holdfast_tests::subscription::{Event, Subscription, notification_lines, subscribe_to};
use serde_json::json;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::boot_config::{boot_config_stub, get_boot, mgmt};

const HOSTNAME: &str = "/system/config/hostname";
const CERTIFICATE_ID: &str = "/system/grpc-servers/grpc-server[name=DEFAULT]/config/certificate-id";

type AuthenticatedChannel = InterceptedService<Channel, Credentials>;
type AuthzRotation = Rotation<RotateAuthzRequest, RotateAuthzResponse>;

fn password(name: &str) -> String {
    format!("a password of {name}")
}

/// Creates a user, or changes its role and keeps its password.
fn set_user(agent: &AgentProcess, name: &str, role: &str) {
    let output = agent.user(&["set", name, "--role", role], &password(name));
    assert!(output.status.success(), "{output:?}");
}

fn delete_user(agent: &AgentProcess, name: &str) {
    let output = agent.user(&["delete", name], "");
    assert!(output.status.success(), "{output:?}");
}

fn credentials(name: &str) -> Credentials {
    Credentials::new(name, &password(name)).unwrap()
}

async fn gnmi_of(agent: &AgentProcess, name: &str) -> GnmiClient {
    GnmiClient::over(agent.channel().await, credentials(name))
}

async fn authz_of(
    agent: &AgentProcess,
    credentials: Credentials,
) -> AuthzClient<AuthenticatedChannel> {
    AuthzClient::with_interceptor(agent.channel().await, credentials)
}

/// An open Subscribe of the host name, after its initial value.
async fn watch(client: &GnmiClient) -> Subscription {
    let names = ("/system/state/hostname", SubscriptionMode::OnChange);
    let mut stream = client.subscribe(subscribe_to(Mode::Stream, &[names])).await.unwrap();
    stream.until_sync().await;
    stream
}

/// The status that a stream ends with; checks that no line before contains `never`.
async fn end_without(stream: &mut Subscription, never: &str) -> Status {
    loop {
        match stream.next().await {
            Ok(Event::Notification(notification)) => {
                let lines = notification_lines(&notification);
                assert!(!lines.iter().any(|line| line.contains(never)), "{lines:?}");
            }
            Ok(Event::Sync) => {}
            Ok(Event::End) => panic!("the stream ended without an error"),
            Err(status) => return status,
        }
    }
}

/// Awaits a future, within a time limit.
async fn within_limit<T>(what: &str, coming: impl Future<Output = T>) -> T {
    timeout(WAIT_LIMIT, coming)
        .await
        .unwrap_or_else(|_| panic!("not within {WAIT_LIMIT:?}: {what}"))
}

/// The code that a stream of answers ends with.
async fn end_of<T>(mut stream: Streaming<T>) -> Code {
    let end = async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    };
    within_limit("the stream ends", end).await
}

/// The code with which the server ends a rotation.
async fn end_of_rotation(rotation: &mut AuthzRotation) -> Code {
    let end = within_limit("the rotation ends", rotation.receive()).await;
    end.expect_err("it ends badly").code()
}

async fn records(channel: Channel, credentials: Credentials) -> Streaming<RecordResponse> {
    let mut client = AcctzStreamClient::with_interceptor(channel, credentials);
    client.record_subscribe(RecordRequest { timestamp: None }).await.unwrap().into_inner()
}

/// A policy with these rules: a user, and its RPCs.
fn policy(rules: &[(&str, &[&str])]) -> String {
    let rule = |(number, (who, rpcs)): (usize, &(&str, &[&str]))| {
        json!({"name": format!("rule {number}"), "source": {"principals": [who]},
            "request": {"paths": rpcs}})
    };
    let rules: Vec<_> = rules.iter().enumerate().map(rule).collect();
    json!({"name": "policy", "allow_rules": rules}).to_string()
}

fn upload(version: &str, policy: &str) -> RotateAuthzRequest {
    let upload = UploadRequest {
        version: version.to_owned(),
        created_on: 1_700_000_000,
        policy: policy.to_owned(),
    };
    RotateAuthzRequest {
        rotate_request: Some(rotate_authz_request::RotateRequest::UploadRequest(upload)),
        ..Default::default()
    }
}

fn finalize() -> RotateAuthzRequest {
    let rotate_request =
        Some(rotate_authz_request::RotateRequest::FinalizeRotation(FinalizeRequest {}));
    RotateAuthzRequest { rotate_request, ..Default::default() }
}

async fn open_rotation(
    client: &mut AuthzClient<AuthenticatedChannel>,
) -> Result<AuthzRotation, Status> {
    Rotation::open(|requests| client.rotate(requests)).await
}

/// Makes a policy final, as the administrator.
async fn install(agent: &AgentProcess, version: &str, policy: &str) {
    let mut client = authz_of(agent, agent.credentials()).await;
    let mut rotation = open_rotation(&mut client).await.unwrap();
    rotation.send(upload(version, policy)).await.unwrap();
    rotation.send(finalize()).await.expect("whoever finalizes is told how that went");
}

async fn version(agent: &AgentProcess) -> String {
    let mut client = authz_of(agent, agent.credentials()).await;
    client.get(GetRequest::default()).await.unwrap().into_inner().version
}

#[tokio::test]
async fn streams_of_a_deleted_user_end() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    set_user(&agent, "eve", "read-only");
    set_user(&agent, "bob", "read-only");
    let eve = gnmi_of(&agent, "eve").await;
    let bob = gnmi_of(&agent, "bob").await;
    let mut of_eve = watch(&eve).await;
    let mut of_bob = watch(&bob).await;
    let admin = agent.gnmi().await;
    admin.update(HOSTNAME, "before").await.unwrap();
    of_eve.until("before").await;

    // A change of another user, and setting her password again, do not end her call.
    set_user(&agent, "carl", "admin");
    set_user(&agent, "eve", "read-only");
    admin.update(HOSTNAME, "between").await.unwrap();
    of_eve.until("between").await;

    delete_user(&agent, "eve");
    admin.update(HOSTNAME, "after").await.unwrap();
    let ended = end_without(&mut of_eve, "after").await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert_eq!(eve.capabilities().await.unwrap_err().code(), Code::Unauthenticated);
    of_bob.until("after").await;
    let recorded = logout_of(&agent, "eve").await;
    assert_eq!(recorded.status(), AuthzStatus::Deny, "{recorded:?}");
    assert!(recorded.detail.contains("Unauthenticated"), "{recorded:?}");

    // A new password invalidates the old login.
    let output = agent.user(&["set", "bob", "--role", "read-only"], "something new");
    assert!(output.status.success(), "{output:?}");
    admin.update(HOSTNAME, "later").await.unwrap();
    let ended = end_without(&mut of_bob, "later").await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
}

/// The record of the end of a user's stream.
async fn logout_of(agent: &AgentProcess, name: &str) -> AuthzDetail {
    let mut all = records(agent.channel().await, agent.credentials()).await;
    loop {
        let record = within_limit("the end is recorded", all.message()).await.unwrap().unwrap();
        let session = record.session_info.unwrap();
        let Some(ServiceRequest::GrpcService(rpc)) = record.service_request else { continue };
        let is_it = session.status() == SessionStatus::Logout;
        if is_it && session.user.is_some_and(|user| user.identity == name) {
            return rpc.authz.unwrap();
        }
    }
}

#[tokio::test]
async fn deleted_admin_cannot_finalize_a_rotation() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    install(&agent, "v1", &policy(&[("*", &["*"])])).await;
    for asks_at_once in [true, false] {
        set_user(&agent, "mallory", "admin");
        let mut client = authz_of(&agent, credentials("mallory")).await;
        let mut rotation = open_rotation(&mut client).await.unwrap();
        rotation
            .send(upload("v2", &policy(&[("mallory", &["*"]), (ADMIN, &["*"])])))
            .await
            .unwrap();
        assert_eq!(version(&agent).await, "v2", "it is tried");
        if asks_at_once {
            delete_user(&agent, "mallory");
            let refused = rotation.send(finalize()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        } else {
            delete_user(&agent, "mallory");
            assert_eq!(end_of_rotation(&mut rotation).await, Code::Unauthenticated);
        }
        eventually_async("the earlier version is back", || async { version(&agent).await == "v1" })
            .await;
    }
    install(&agent, "v3", &policy(&[("*", &["*"])])).await;

    // Boot configurations are tried and finalized in the same way.
    set_user(&agent, "mallory", "admin");
    let mut client =
        BootConfigClient::with_interceptor(agent.channel().await, credentials("mallory"));
    let (steps, sent) = tokio::sync::mpsc::channel(2);
    let set = SetBootConfigRequest { boot_config: Some(mgmt(1400, "hers")), ..Default::default() };
    let step = |step| SetBootConfigVerifiedRequest { set_request: Some(step) };
    steps.send(step(set_boot_config_verified_request::SetRequest::Set(set))).await.unwrap();
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut answers = client.set_boot_config_verified(sent).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    set_user(&agent, "mallory", "read-only");
    let _ended_already = steps
        .send(step(set_boot_config_verified_request::SetRequest::Finalize(Default::default())))
        .await;
    let refused = answers.message().await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let nothing = bootz::BootConfig::default();
    eventually_async("nothing of it stays", || async {
        get_boot(&mut boot_config_stub(&agent).await).await.unwrap_or_default() == nothing
    })
    .await;
}

#[tokio::test]
async fn lowered_role_ends_calls_it_forbids() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let user = "/system/aaa/authentication/users/user[username=eve]/config";
    let role = |name: &str| json!({"username": "eve", "role": name});
    // By `holdfast user set`, and by configuration.
    for by_configuration in [false, true] {
        set_user(&agent, "eve", "admin");
        if by_configuration {
            let admin = role("openconfig-aaa-types:SYSTEM_ROLE_ADMIN");
            agent.gnmi().await.update(user, admin).await.unwrap();
        }
        let channel = agent.channel().await;
        let eve = GnmiClient::over(channel.clone(), credentials("eve"));
        let mut names = watch(&eve).await;
        let records = records(channel.clone(), credentials("eve")).await;
        let mut system = SystemClient::with_interceptor(channel.clone(), credentials("eve"));
        let ping =
            PingRequest { destination: "127.0.0.1".into(), count: 1000, ..Default::default() };
        let pongs = system.ping(ping).await.unwrap().into_inner();
        let package = set_package_request::Request::Package(Package {
            filename: "of-eve".into(),
            ..Default::default()
        });
        let package = SetPackageRequest { request: Some(package) };
        let parts = tokio_stream::once(package).chain(tokio_stream::pending());
        let packaged = tokio::spawn(async move { system.set_package(parts).await });
        let mut authz = AuthzClient::with_interceptor(channel, credentials("eve"));
        let mut rotation = open_rotation(&mut authz).await.unwrap();
        rotation.send(upload("v1", &policy(&[("*", &["*"])]))).await.unwrap();

        if by_configuration {
            agent.gnmi().await.delete(&format!("{user}/role")).await.unwrap();
            set_user(&agent, "eve", "read-only");
        } else {
            set_user(&agent, "eve", "read-only")
        }
        let denied = Code::PermissionDenied;
        assert_eq!(end_of(records).await, denied);
        assert_eq!(end_of(pongs).await, denied);
        assert_eq!(end_of_rotation(&mut rotation).await, denied);
        let packaged = within_limit("the package is refused", packaged).await.unwrap();
        assert_eq!(packaged.unwrap_err().code(), denied);
        let name = format!("still-told-{by_configuration}");
        agent.gnmi().await.update(HOSTNAME, name.clone()).await.unwrap();
        names.until(&name).await;
        delete_user(&agent, "eve");
        assert_eq!(end_without(&mut names, "nothing").await.code(), Code::Unauthenticated);
    }
}

#[tokio::test]
async fn authz_policy_ends_exactly_the_denied_streams() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    set_user(&agent, "eve", "read-only");
    set_user(&agent, "bob", "read-only");
    let mut of_eve = watch(&gnmi_of(&agent, "eve").await).await;
    let mut of_bob = watch(&gnmi_of(&agent, "bob").await).await;
    let subscribe = "/gnmi.gNMI/Subscribe";
    let both = policy(&[(ADMIN, &["*"]), ("eve", &[subscribe]), ("bob", &["/gnmi.gNMI/*"])]);
    let admin = agent.gnmi().await;
    // The same policy ends no call when it is installed again.
    for number in 0..3 {
        install(&agent, &format!("v{number}"), &both).await;
        let name = format!("host{number}");
        admin.update(HOSTNAME, name.clone()).await.unwrap();
        of_eve.until(&name).await;
        of_bob.until(&name).await;
    }
    let less = policy(&[(ADMIN, &["*"]), ("eve", &["/gnmi.gNMI/Get"]), ("bob", &[subscribe])]);
    // A policy on trial counts for new calls.
    let mut client = authz_of(&agent, agent.credentials()).await;
    let mut rotation = open_rotation(&mut client).await.unwrap();
    rotation.send(upload("less", &less)).await.unwrap();
    let refused = gnmi_of(&agent, "eve").await.capabilities().await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    admin.update(HOSTNAME, "tried").await.unwrap();
    of_eve.until("tried").await;
    rotation.send(finalize()).await.unwrap();

    admin.update(HOSTNAME, "final").await.unwrap();
    let ended = end_without(&mut of_eve, "final").await;
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    assert!(ended.message().contains("eve"), "it says who: {ended}");
    of_bob.until("final").await;
}

#[tokio::test]
async fn gnsi_switch_applies_to_open_streams() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let switch = |to: &str| {
        let output = agent.command("switch").args(["gnsi", to]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    set_user(&agent, "eve", "read-only");
    install(&agent, "v1", &policy(&[(ADMIN, &["*"])])).await;
    let records_seen = records(agent.channel().await, agent.credentials()).await;
    let mut of_admin = watch(&agent.gnmi().await).await;
    switch("off");
    assert_eq!(end_of(records_seen).await, Code::FailedPrecondition);
    let mut of_eve = watch(&gnmi_of(&agent, "eve").await).await; // nobody asks the policy
    let admin = agent.gnmi().await;
    admin.update(HOSTNAME, "off").await.unwrap();
    of_admin.until("off").await;
    of_eve.until("off").await;

    switch("on");
    let ended = of_eve.until_refused().await;
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    admin.update(HOSTNAME, "on").await.unwrap();
    of_admin.until("on").await;
}

#[tokio::test]
async fn revoked_certificate_ends_calls_on_open_connections() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let root = Authority::new("root");
    let mut certz = Certz::over(agent.channel().await, agent.credentials());
    certz.add("p").await.unwrap();
    let mut rotation = certz.rotate("p").await.unwrap();
    rotation.upload("v1", &root.server(), &[&root]).await.unwrap();
    rotation.finalize().await.unwrap();
    let admin = agent.gnmi().await;
    admin.update(CERTIFICATE_ID, "p").await.unwrap();
    let connected = async |name: &str, serial| {
        let client = root.numbered_client(name, serial);
        let channel = connect(agent.address(), &[&root.pem], &client).await.unwrap();
        // The name of the certificate, without a password.
        GnmiClient::over(channel, Credentials::new(name, "").unwrap())
    };
    let eve = connected("eve", 7).await;
    let adam = connected("adam", 8).await;
    let mut of_eve = watch(&eve).await;
    let mut of_adam = watch(&adam).await;

    let mut rotation = certz.rotate("p").await.unwrap();
    rotation.upload_revocations("v2", &[root.revocation_list(&[7])]).await.unwrap();
    eve.capabilities().await.expect("nothing is final yet");
    admin.update(HOSTNAME, "tried").await.unwrap();
    of_eve.until("tried").await;
    rotation.finalize().await.unwrap();

    admin.update(HOSTNAME, "revoked").await.unwrap();
    let ended = end_without(&mut of_eve, "revoked").await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    let refused = eve.capabilities().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    of_adam.until("revoked").await;
    adam.capabilities().await.expect("his certificate counts");

    // The box no longer asks clients for certificates, so no login by certificate remains.
    admin.update(CERTIFICATE_ID, "system_default_profile").await.unwrap();
    admin.update(HOSTNAME, "unbound").await.unwrap();
    let ended = of_adam.until_refused().await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert_eq!(adam.capabilities().await.unwrap_err().code(), Code::Unauthenticated);
}

/// A Set with the extension of a commit.
async fn commit(
    client: &GnmiClient,
    id: &str,
    action: commit::Action,
    hostname: Option<&str>,
) -> Result<(), Code> {
    let commit = gnmi_ext::Commit { id: id.to_owned(), action: Some(action) };
    let request = gnmi::SetRequest {
        update: hostname.iter().map(|name| update(HOSTNAME, *name)).collect(),
        extension: vec![gnmi_ext::Extension { ext: Some(Ext::Commit(commit)) }],
        ..Default::default()
    };
    client.set(request).await.map(drop).map_err(|status| status.code())
}

fn within(time: Duration) -> Option<prost_types::Duration> {
    Some(prost_types::Duration::try_from(time).unwrap())
}

#[tokio::test]
async fn commit_confirmed_timer_survives_deletion_of_its_author() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let admin = agent.gnmi().await;
    admin.update(HOSTNAME, "first").await.unwrap();
    set_user(&agent, "mallory", "admin");
    let mallory = gnmi_of(&agent, "mallory").await;
    let request =
        |time| commit::Action::Commit(gnmi_ext::CommitRequest { rollback_duration: within(time) });
    let confirm = || commit::Action::Confirm(gnmi_ext::CommitConfirm {});
    let hour = Duration::from_secs(3600);
    let hostname = || async { admin.read(HOSTNAME).await.unwrap() };

    commit(&mallory, "a", request(hour), Some("hers")).await.unwrap();
    set_user(&agent, "mallory", "read-only");
    assert_eq!(commit(&mallory, "a", confirm(), None).await, Err(Code::PermissionDenied));
    delete_user(&agent, "mallory");
    assert_eq!(commit(&mallory, "a", confirm(), None).await, Err(Code::Unauthenticated));
    assert_eq!(hostname().await, json!("hers"), "it waits, neither confirmed nor taken back");
    // The commit still waits, so other changes are refused.
    let busy = admin.update(HOSTNAME, "other").await.unwrap_err();
    assert_eq!(busy.code(), Code::FailedPrecondition, "{busy}");
    let soon =
        gnmi_ext::CommitSetRollbackDuration { rollback_duration: within(Duration::from_secs(1)) };
    commit(&admin, "a", commit::Action::SetRollbackDuration(soon), None).await.unwrap();
    eventually_async("its time is over", || async { hostname().await == json!("first") }).await;
    assert_eq!(commit(&admin, "a", confirm(), None).await, Err(Code::FailedPrecondition));
}
