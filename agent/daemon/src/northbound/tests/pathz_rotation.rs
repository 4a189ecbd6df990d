//! gnsi.pathz: policies are uploaded, tried, finalized, asked.

use holdfast_base::Role;
use holdfast_proto::gnmi;
use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnsi::pathz;
use holdfast_proto::gnsi::pathz::authorization_rule::Principal;
use holdfast_proto::gnsi::pathz::pathz_client::PathzClient;
use holdfast_proto::gnsi::pathz::rotate_request;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fake_datastore::FakeDatastore;
use super::harness::{
    AfterFinalize, Client, FinalizingClient, Subscription, channel, client, get_request, list,
    path, set, subscribe, value,
};
use crate::agent_tests::Agent;

const HOSTNAME: &str = "/system/config/hostname";
const POLICIES: &str = "/system/gnmi-pathz-policies/policies";
const SERVER: &str = "/system/grpc-servers/grpc-server[name=DEFAULT]";

type Pathz = PathzClient<Channel>;

/// One Rotate stream.
struct Rotation {
    request_tx: mpsc::Sender<pathz::RotateRequest>,
    responses: Streaming<pathz::RotateResponse>,
}

impl Rotation {
    async fn open(client: &mut Pathz) -> Self {
        let (request_tx, request_rx) = mpsc::channel(4);
        let responses = client.rotate(ReceiverStream::new(request_rx)).await.unwrap().into_inner();
        Self { request_tx, responses }
    }

    /// Sends an upload; the answer is `uploaded`, or the code.
    async fn upload(&mut self, upload: pathz::UploadRequest) -> String {
        self.send(rotate_request::RotateRequest::UploadRequest(upload), false).await
    }

    async fn finalize(&mut self) -> String {
        self.send(rotate_request::RotateRequest::FinalizeRotation(pathz::FinalizeRequest {}), false)
            .await
    }

    async fn send(
        &mut self,
        message: rotate_request::RotateRequest,
        force_overwrite: bool,
    ) -> String {
        let request = pathz::RotateRequest { rotate_request: Some(message), force_overwrite };
        self.request_tx.send(request).await.unwrap();
        match self.responses.message().await {
            Ok(Some(pathz::RotateResponse { response: Some(_) })) => "uploaded".into(),
            Ok(Some(pathz::RotateResponse { response: None })) => "finalized".into(),
            Ok(None) => "end".into(),
            Err(status) => code(&status),
        }
    }

    /// Closes the client's side, and returns the rest of the answers.
    async fn close(self) -> String {
        drop(self.request_tx);
        let mut responses = self.responses;
        match responses.message().await {
            Ok(None) => "end".into(),
            Ok(Some(more)) => format!("{more:?}"),
            Err(status) => code(&status),
        }
    }
}

fn code(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// `test` may read and write all of OpenConfig, but not read the host name where `hidden`.
fn upload(version: &str, hidden: bool) -> pathz::UploadRequest {
    let mut rules = vec![
        rule("read", "/", pathz::Mode::Read, pathz::Action::Permit),
        rule("write", "/", pathz::Mode::Write, pathz::Action::Permit),
    ];
    if hidden {
        rules.push(rule("hide", HOSTNAME, pathz::Mode::Read, pathz::Action::Deny));
    }
    let policy = Some(pathz::AuthorizationPolicy { rules, groups: Vec::new() });
    pathz::UploadRequest { version: version.into(), created_on: 1_700_000_000, policy }
}

fn rule(id: &str, at: &str, mode: pathz::Mode, action: pathz::Action) -> pathz::AuthorizationRule {
    pathz::AuthorizationRule {
        id: id.into(),
        principal: Some(Principal::User("test".into())),
        path: Some(path(at)),
        action: action.into(),
        mode: mode.into(),
    }
}

async fn probe(client: &mut Pathz, instance: pathz::PolicyInstance) -> String {
    let request = pathz::ProbeRequest {
        user: "test".into(),
        path: Some(path(HOSTNAME)),
        mode: pathz::Mode::Read.into(),
        policy_instance: instance.into(),
    };
    match client.probe(request).await {
        Err(status) => format!("{:?}", status.code()),
        Ok(answer) => {
            let pathz::ProbeResponse { action, version } = answer.into_inner();
            format!("{:?} {version}", pathz::Action::try_from(action).unwrap())
                .trim_end()
                .to_owned()
        }
    }
}

async fn policy_text(client: &mut Pathz, instance: pathz::PolicyInstance) -> String {
    match client.get(pathz::GetRequest { policy_instance: instance.into() }).await {
        Err(status) => format!("{:?}", status.code()),
        Ok(answer) => {
            let pathz::GetResponse { version, created_on, policy } = answer.into_inner();
            format!("{version} {created_on} {} rules", policy.unwrap().rules.len())
        }
    }
}

async fn hostname(client: &mut Client) -> String {
    read(client, HOSTNAME).await
}

async fn read(client: &mut Client, at: &str) -> String {
    match client.get(get_request(&[at])).await {
        Err(status) => format!("{:?}", status.code()),
        Ok(answer) => value(answer.into_inner().notification[0].update[0].val.as_ref()),
    }
}

async fn box_with_a_name() -> (FakeDatastore, Client, Pathz) {
    let core = FakeDatastore::new();
    let mut gnmi = client(&core).await;
    set(&mut gnmi, &format!(r#"update {HOSTNAME} "box""#)).await;
    let pathz = PathzClient::new(channel(&core, Some(Role::Admin)).await);
    (core, gnmi, pathz)
}

use pathz::PolicyInstance::{Active, Sandbox, Unspecified};

#[tokio::test]
async fn a_finalize_is_answered_and_the_stream_goes_on() {
    let (_core, _gnmi, mut pathz) = box_with_a_name().await;
    for kind in FinalizingClient::ALL {
        let mut rotation = Rotation::open(&mut pathz).await;
        let version = format!("{kind:?}");
        assert_eq!(rotation.upload(upload(&version, false)).await, "uploaded");
        let rotate_request =
            Some(rotate_request::RotateRequest::FinalizeRotation(pathz::FinalizeRequest {}));
        let finalize = pathz::RotateRequest { rotate_request, force_overwrite: false };
        let Rotation { request_tx, responses } = rotation;
        kind.finalizes(request_tx, responses, finalize, AfterFinalize::Continues).await;
        assert_eq!(probe(&mut pathz, Active).await, format!("Permit {version}"));
    }
}

// proves 5.1, 5.2, 5.36, 5.37, 5.38, 5.39, 5.40, 5.56, 5.57
#[tokio::test]
async fn one_stream_tries_and_finalizes_several_policies() {
    let (_core, mut gnmi, mut pathz) = box_with_a_name().await;
    assert_eq!(probe(&mut pathz, Active).await, "Permit");
    assert_eq!(policy_text(&mut pathz, Active).await, "FailedPrecondition");
    for instance in [probe(&mut pathz, Sandbox).await, policy_text(&mut pathz, Sandbox).await] {
        assert_eq!(instance, "FailedPrecondition");
    }
    let mut rotation = Rotation::open(&mut pathz).await;
    assert_eq!(probe(&mut pathz, Sandbox).await, "FailedPrecondition"); // nothing is uploaded yet
    assert_eq!(rotation.upload(upload("one", false)).await, "uploaded");
    assert_eq!(probe(&mut pathz, Sandbox).await, "Permit one");
    // Another candidate replaces the first.
    assert_eq!(rotation.upload(upload("two", true)).await, "uploaded");
    assert_eq!(probe(&mut pathz, Sandbox).await, "Deny two");
    assert_eq!(policy_text(&mut pathz, Sandbox).await, "two 1700000000 3 rules");
    // The candidate decides nothing yet.
    assert_eq!(probe(&mut pathz, Active).await, "Permit");
    assert_eq!(hostname(&mut gnmi).await, r#""box""#);
    assert_eq!(rotation.finalize().await, "finalized");
    assert_eq!(probe(&mut pathz, Active).await, "Deny two");
    assert_eq!(probe(&mut pathz, Sandbox).await, "FailedPrecondition");
    assert_eq!(hostname(&mut gnmi).await, "PermissionDenied");
    // The stream goes on with the next candidate, which is dropped when the stream ends.
    assert_eq!(rotation.upload(upload("three", false)).await, "uploaded");
    assert_eq!(probe(&mut pathz, Sandbox).await, "Permit three");
    assert!(rotation.close().await.starts_with("Aborted"));
    assert_eq!(probe(&mut pathz, Sandbox).await, "FailedPrecondition");
    assert_eq!(policy_text(&mut pathz, Active).await, "two 1700000000 3 rules");
    assert_eq!(hostname(&mut gnmi).await, "PermissionDenied");
}

// proves 5.4, 5.6, 5.8
#[tokio::test]
async fn one_rotation_at_a_time_and_no_version_twice() {
    let (_core, mut gnmi, mut pathz) = box_with_a_name().await;
    let mut rotation = Rotation::open(&mut pathz).await;
    assert_eq!(rotation.upload(upload("one", true)).await, "uploaded");
    let (_request_tx, request_rx) = mpsc::channel::<pathz::RotateRequest>(1);
    let second = pathz.rotate(ReceiverStream::new(request_rx)).await.map(|_| ());
    assert_eq!(second.unwrap_err().code(), Code::Unavailable);
    assert_eq!(rotation.finalize().await, "finalized");
    assert_eq!(rotation.close().await, "end");

    let mut rotation = Rotation::open(&mut pathz).await;
    assert!(rotation.upload(upload("one", false)).await.starts_with("AlreadyExists"));
    assert_eq!(hostname(&mut gnmi).await, "PermissionDenied");
    let mut rotation = Rotation::open(&mut pathz).await;
    let again = rotate_request::RotateRequest::UploadRequest(upload("one", false));
    assert_eq!(rotation.send(again, true).await, "uploaded");
    assert_eq!(rotation.finalize().await, "finalized");
    assert_eq!(hostname(&mut gnmi).await, r#""box""#);
}

// proves 5.13, 5.41, 5.47
#[tokio::test]
async fn a_policy_with_a_mistake_is_refused_and_changes_nothing() {
    let (_core, mut gnmi, mut pathz) = box_with_a_name().await;
    let permit = pathz::Action::Permit;
    let whole = || rule("one", "/system", pathz::Mode::Read, permit);
    let target = gnmi::Path { target: "box".into(), ..path("/system") };
    let rows = [
        (pathz::AuthorizationRule { principal: None, ..whole() }, "no user and no group"),
        (pathz::AuthorizationRule { action: 0, ..whole() }, "no action"),
        (pathz::AuthorizationRule { mode: 0, ..whole() }, "no mode"),
        (pathz::AuthorizationRule { path: None, ..whole() }, "no path"),
        (pathz::AuthorizationRule { id: String::new(), ..whole() }, "no id"),
        (pathz::AuthorizationRule { path: Some(target), ..whole() }, "target"),
        (rule("one", "/system/*", pathz::Mode::Read, permit), "a wildcard in a name"),
        (
            rule("one", "/interfaces/interface[name=eth*]", pathz::Mode::Read, permit),
            "only a part of a value",
        ),
        (rule("one", "/interfaces/interface[nam=eth0]", pathz::Mode::Read, permit), "unknown key"),
    ];
    for (rule, word) in rows {
        let policy = Some(pathz::AuthorizationPolicy { rules: vec![rule], groups: Vec::new() });
        let mut rotation = Rotation::open(&mut pathz).await;
        let upload = pathz::UploadRequest { policy, ..upload("one", false) };
        let status = rotation.upload(upload).await;
        assert!(status.starts_with("InvalidArgument") && status.contains(word), "{word}: {status}");
    }
    let mut rotation = Rotation::open(&mut pathz).await;
    let status =
        rotation.upload(pathz::UploadRequest { policy: None, ..upload("one", false) }).await;
    assert!(status.contains("no policy"), "{status}");
    assert_eq!(policy_text(&mut pathz, Active).await, "FailedPrecondition");
    assert_eq!(hostname(&mut gnmi).await, r#""box""#);
}

// proves 5.37, 5.57
#[tokio::test]
async fn a_question_names_user_path_mode_and_instance() {
    let (_core, _gnmi, mut pathz) = box_with_a_name().await;
    let whole = pathz::ProbeRequest {
        user: "test".into(),
        path: Some(path(HOSTNAME)),
        mode: pathz::Mode::Read.into(),
        policy_instance: Active.into(),
    };
    for request in [
        pathz::ProbeRequest { user: String::new(), ..whole.clone() },
        pathz::ProbeRequest { path: None, ..whole.clone() },
        pathz::ProbeRequest { mode: 0, ..whole.clone() },
        pathz::ProbeRequest { policy_instance: 0, ..whole.clone() },
    ] {
        let status = pathz.probe(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{request:?}");
    }
    pathz.probe(whole).await.unwrap();
    assert_eq!(policy_text(&mut pathz, Unspecified).await, "InvalidArgument");
    // A caller with the role read-only cannot change the policy.
    let (core, ..) = box_with_a_name().await;
    let mut reader = PathzClient::new(channel(&core, Some(Role::ReadOnly)).await);
    assert_eq!(probe(&mut reader, Active).await, "Permit");
    let (_request_tx, request_rx) = mpsc::channel::<pathz::RotateRequest>(1);
    let refused = reader.rotate(ReceiverStream::new(request_rx)).await.map(|_| ());
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
}

// proves 3.6
#[tokio::test]
async fn a_policy_that_comes_with_a_boot_configuration_is_in_force() {
    let (core, mut gnmi, mut pathz) = box_with_a_name().await;
    let mut boots = BootConfigClient::new(channel(&core, Some(Role::Admin)).await);
    let request = |upload| SetBootConfigRequest { pathz: Some(upload), ..Default::default() };
    let open = pathz::UploadRequest { policy: None, ..upload("one", true) };
    let status = boots.set_boot_config(request(open)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(hostname(&mut gnmi).await, r#""box""#);
    boots.set_boot_config(request(upload("one", true))).await.unwrap();
    assert_eq!(policy_text(&mut pathz, Active).await, "one 1700000000 3 rules");
    assert_eq!(hostname(&mut gnmi).await, "PermissionDenied");
}

async fn agent() -> (Agent, Client, Pathz, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let kernel = holdfast_platform::transport::SimulatedKernel::new(&["eth0"]);
    let agent = Agent::start(&kernel, folder.path()).await;
    let gnmi = client(&agent).await;
    let pathz = PathzClient::new(channel(&agent, Some(Role::Admin)).await);
    (agent, gnmi, pathz, folder)
}

// proves 5.9, 5.58
#[tokio::test]
async fn readers_see_both_policies() {
    let (_agent, mut gnmi, mut pathz, _folder) = agent().await;
    let subscriptions =
        list(gnmi::subscription_list::Mode::Stream, &[&format!("change {POLICIES}")]);
    let mut stream = Subscription::open(&mut gnmi, subscribe(subscriptions)).await;
    stream.until_sync().await;
    let sandbox = "[instance=SANDBOX]";
    let mut rotation = Rotation::open(&mut pathz).await;
    rotation.upload(upload("one", false)).await;
    let update = stream.next().await;
    for part in
        ["state/instance=\"SANDBOX\"", "version=\"one\"", "created-on=\"1700000000000000000\""]
    {
        assert!(update.contains(part) && update.contains(sandbox), "{part}: {update}");
    }
    assert!(rotation.close().await.starts_with("Aborted"));
    let update = stream.next().await;
    assert_eq!(update, format!("-{POLICIES}"), "there is no other policy");

    let mut rotation = Rotation::open(&mut pathz).await;
    rotation.upload(upload("two", false)).await;
    rotation.finalize().await;
    let update = read(&mut gnmi, POLICIES).await;
    assert!(
        update.contains("ACTIVE") && update.contains("two") && !update.contains("SANDBOX"),
        "{update}"
    );
    assert_eq!(
        read(&mut gnmi, &format!("{SERVER}/state/gnmi-pathz-policy-version")).await,
        "\"two\""
    );
    let created_on = read(&mut gnmi, &format!("{SERVER}/state/gnmi-pathz-policy-created-on")).await;
    assert_eq!(created_on, "\"1700000000000000000\"");
}

// proves 5.7, 5.35
#[tokio::test]
async fn a_policy_survives_a_restart_and_a_candidate_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = holdfast_platform::transport::SimulatedKernel::new(&["eth0"]);
    let first = Agent::start(&kernel, folder.path()).await;
    let mut pathz = PathzClient::new(channel(&first, Some(Role::Admin)).await);
    let mut rotation = Rotation::open(&mut pathz).await;
    rotation.upload(upload("one", true)).await;
    rotation.finalize().await;
    rotation.upload(upload("two", false)).await;
    first.stop().await;

    let second = Agent::start(&kernel, folder.path()).await;
    let mut pathz = PathzClient::new(channel(&second, Some(Role::Admin)).await);
    assert_eq!(policy_text(&mut pathz, Active).await, "one 1700000000 3 rules");
    assert_eq!(policy_text(&mut pathz, Sandbox).await, "FailedPrecondition");
    assert_eq!(hostname(&mut client(&second).await).await, "PermissionDenied");
}

// proves 5.59
#[tokio::test]
async fn pathz_decisions_are_counted_by_schema_path() {
    let (_agent, mut gnmi, mut pathz, _folder) = agent().await;
    set(&mut gnmi, &format!(r#"update {HOSTNAME} "box""#)).await;
    let mut rotation = Rotation::open(&mut pathz).await;
    let mut policy = upload("one", true);
    let deny = rule("no-mtu", "/interfaces", pathz::Mode::Write, pathz::Action::Deny);
    policy.policy.as_mut().unwrap().rules.push(deny);
    rotation.upload(policy).await;
    rotation.finalize().await;
    for _ in 0..2 {
        assert_eq!(hostname(&mut gnmi).await, "PermissionDenied");
    }
    set(&mut gnmi, &format!(r#"update {HOSTNAME} "other""#)).await;
    let mtu =
        super::harness::set_request("update /interfaces/interface[name=eth0]/config/mtu 1500");
    assert_eq!(gnmi.set(mtu).await.unwrap_err().code(), Code::PermissionDenied);
    let counters = async |gnmi: &mut Client, name: &str, leaf: &str| {
        let list = format!("{SERVER}/gnmi-pathz-policy-counters/paths/path");
        read(gnmi, &format!("{list}[name={name}]/state/{leaf}")).await
    };
    let mtu = "/interfaces/interface/config/mtu";
    for (name, leaf, want) in [
        (HOSTNAME, "name", format!("\"{HOSTNAME}\"")),
        (HOSTNAME, "reads/access-rejects", "\"2\"".into()),
        (HOSTNAME, "reads/access-accepts", "\"0\"".into()),
        (HOSTNAME, "reads/last-access-accept", "NotFound".into()),
        (HOSTNAME, "writes/access-accepts", "\"1\"".into()),
        (HOSTNAME, "writes/access-rejects", "\"0\"".into()),
        (mtu, "writes/access-rejects", "\"1\"".into()),
    ] {
        assert_eq!(counters(&mut gnmi, name, leaf).await, want, "{name} {leaf}");
    }
    let last = counters(&mut gnmi, HOSTNAME, "reads/last-access-reject").await;
    assert!(last.len() > "\"1700000000\"".len(), "{last}");
}
