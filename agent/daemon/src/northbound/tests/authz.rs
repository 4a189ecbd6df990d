//! gnsi.authz through a real channel: policies are tried, finalized or rolled back, and checked before every RPC.

use std::time::Duration;

use holdfast_base::Role;
use holdfast_config::layer::Namespace;
use holdfast_core::{CommitError, Datastore, Intent};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::bootz;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{PingRequest, TimeRequest};
use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use holdfast_proto::gnsi::authz::probe_response::Action;
use holdfast_proto::gnsi::authz::{
    FinalizeRequest, GetRequest, GetResponse, ProbeRequest, RotateAuthzRequest,
    RotateAuthzResponse, UploadRequest, rotate_authz_request,
};
use holdfast_proto::openconfig::attestz::AttestRequest;
use holdfast_proto::openconfig::attestz::tpm_attestz_service_client::TpmAttestzServiceClient;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::fake_datastore::FakeDatastore;
use super::harness::*;
use crate::agent_tests::Agent;

/// A policy that allows `ada` everything, and every caller the time.
const ADA: &str = r#"{"name":"ada","allow_rules":[
    {"name":"ada","source":{"principals":["ada"]}},
    {"name":"time","request":{"paths":["/gnoi.system.System/Time"]}}]}"#;
/// A policy that allows nothing to callers other than ada.
const ADA_ALONE: &str =
    r#"{"name":"ada-alone","allow_rules":[{"name":"ada","source":{"principals":["ada"]}}]}"#;
const VERSION: &str = "/system/aaa/authorization/state/grpc-authz-policy-version";
const CREATED_ON: &str = "/system/aaa/authorization/state/grpc-authz-policy-created-on";
/// Creation time of the policies, in seconds since 1970.
const BORN: u64 = 1_700_000_000;

type Authz = AuthzClient<Channel>;

async fn authz(core: &impl TestBackend) -> Authz {
    AuthzClient::new(channel_of(core, Some(caller("ada", Role::Admin))).await)
}

async fn system_of(core: &impl TestBackend, name: &str) -> SystemClient<Channel> {
    SystemClient::new(channel_of(core, Some(caller(name, Role::Admin))).await)
}

fn upload(version: &str, policy: &str) -> RotateAuthzRequest {
    let version = version.to_owned();
    let policy = policy.to_owned();
    let upload = UploadRequest { version, created_on: BORN, policy };
    let rotate_request = Some(rotate_authz_request::RotateRequest::UploadRequest(upload));
    RotateAuthzRequest { rotate_request, ..Default::default() }
}

fn overwrite(version: &str, policy: &str) -> RotateAuthzRequest {
    RotateAuthzRequest { force_overwrite: true, ..upload(version, policy) }
}

fn finalize() -> RotateAuthzRequest {
    let rotate_request =
        Some(rotate_authz_request::RotateRequest::FinalizeRotation(FinalizeRequest {}));
    RotateAuthzRequest { rotate_request, ..Default::default() }
}

/// One Rotate RPC.
struct Rotation {
    request_tx: mpsc::Sender<RotateAuthzRequest>,
    responses: Streaming<RotateAuthzResponse>,
}

impl Rotation {
    async fn open(client: &mut Authz) -> Result<Self, Status> {
        let (request_tx, request_rx) = mpsc::channel(4);
        let responses = client.rotate(ReceiverStream::new(request_rx)).await?.into_inner();
        Ok(Self { request_tx, responses })
    }

    /// Sends a message; true for an answer, false for an end with status OK.
    async fn say(&mut self, request: RotateAuthzRequest) -> Result<bool, Status> {
        self.request_tx.send(request).await.unwrap();
        Ok(self.responses.message().await?.is_some())
    }

    /// Opens a rotation and uploads a policy.
    async fn trying(client: &mut Authz, version: &str, policy: &str) -> Self {
        let mut rotation = Self::open(client).await.unwrap();
        assert!(rotation.say(upload(version, policy)).await.unwrap());
        rotation
    }

    /// Closes the client's side, and waits for the server's end.
    async fn close(self) -> Result<(), Status> {
        let Self { request_tx, mut responses } = self;
        drop(request_tx);
        while responses.message().await?.is_some() {}
        Ok(())
    }
}

async fn install(client: &mut Authz, version: &str, policy: &str) {
    let mut rotation = Rotation::trying(client, version, policy).await;
    assert!(rotation.say(finalize()).await.unwrap(), "a finalize is answered");
    rotation.close().await.unwrap();
}

#[tokio::test]
async fn a_finalize_is_answered_and_ends_the_stream() {
    let folder = TempDir::new().unwrap();
    let agent = agent(&folder).await;
    let mut client = authz(&agent).await;
    for kind in FinalizingClient::ALL {
        let version_now = format!("{kind:?}");
        let Rotation { request_tx, responses } =
            Rotation::trying(&mut client, &version_now, ADA).await;
        kind.finalizes(request_tx, responses, finalize(), AfterFinalize::Ends).await;
        assert_eq!(version(&mut client).await, version_now);
    }
}

async fn get(client: &mut Authz) -> Result<GetResponse, Code> {
    let got = client.get(GetRequest::default()).await;
    got.map(tonic::Response::into_inner).map_err(|status| status.code())
}

/// The version in the answer to Get, or the code of its refusal.
async fn version(client: &mut Authz) -> String {
    get(client).await.map_or_else(|code| format!("{code:?}"), |got| got.version)
}

async fn probe(client: &mut Authz, user: &str, rpc: &str) -> (Action, String) {
    let request = ProbeRequest { user: user.to_owned(), rpc: rpc.to_owned() };
    let probed = client.probe(request).await.unwrap().into_inner();
    (probed.action(), probed.version)
}

async fn may_ask_for_the_time(client: &mut SystemClient<Channel>) -> bool {
    match client.time(TimeRequest {}).await {
        Ok(_) => true,
        Err(status) if status.code() == Code::PermissionDenied => false,
        Err(status) => panic!("{status:?}"),
    }
}

// proves 5.14, 5.26, 5.27, 5.29, 5.30
#[tokio::test]
async fn before_the_first_policy_everything_is_allowed_and_afterwards_nothing_but_what_it_allows() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    let mut eve = system_of(&core, "eve").await;
    assert_eq!(get(&mut client).await, Err(Code::FailedPrecondition));
    assert_eq!(probe(&mut client, "eve", "/x.Y/Z").await, (Action::Permit, String::new()));
    assert!(may_ask_for_the_time(&mut eve).await);

    install(&mut client, "v1", ADA_ALONE).await;
    assert!(!may_ask_for_the_time(&mut eve).await);
    let want = GetResponse { version: "v1".into(), created_on: BORN, policy: ADA_ALONE.to_owned() };
    assert_eq!(get(&mut client).await, Ok(want));
    for (user, rpc, want) in [
        ("ada", "/x.Y/Z", Action::Permit),
        ("eve", "/x.Y/Z", Action::Deny),
        ("adam", "/gnsi.authz.v1.Authz/Get", Action::Deny),
    ] {
        assert_eq!(probe(&mut client, user, rpc).await, (want, "v1".to_owned()), "{user} {rpc}");
    }
    for (user, rpc) in
        [("", "/x.Y/Z"), ("eve", ""), ("eve", "x.Y/Z"), ("eve", "/x"), ("eve", "/x/y/z")]
    {
        let request = ProbeRequest { user: user.to_owned(), rpc: rpc.to_owned() };
        let status = client.probe(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{user} {rpc}");
    }
    // A new policy replaces the whole old one.
    install(&mut client, "v2", ADA).await;
    assert!(may_ask_for_the_time(&mut eve).await);
}

// proves 5.24, 5.31, 6.30
#[tokio::test]
async fn a_caller_that_no_rule_allows_reaches_no_service_by_any_kind_of_rpc() {
    let core = FakeDatastore::new();
    let mut ada = authz(&core).await;
    let eve = || channel_of(&core, Some(caller("eve", Role::Admin)));
    let health = HealthCheckRequest::default;
    let list = || ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let changed = "update /system/config/hostname \"eve\"";

    for allowed in [true, false] {
        if !allowed {
            install(&mut ada, "v1", ADA_ALONE).await;
        }
        let channel = eve().await;
        let mut gnmi = Client::new(channel.clone());
        let mut kinds = vec![
            ("unary read", gnmi.get(get_request(&["/system"])).await.map(drop)),
            (
                "unary write",
                gnmi.set(set_request(if allowed { "" } else { changed })).await.map(drop),
            ),
        ];
        let watched = HealthClient::new(channel.clone()).watch(health()).await;
        kinds.push(("server stream", first(watched).await));
        let once =
            tokio_stream::once(subscribe(super::harness::list(Mode::Once, &["target /system"])));
        kinds.push(("both ways", first(gnmi.subscribe(once).await).await));
        let mut reflection = ServerReflectionClient::new(channel.clone());
        let listed = reflection.server_reflection_info(tokio_stream::once(list())).await;
        kinds.push(("reflection", first(listed).await));
        let mut authz = Authz::new(channel.clone());
        let rotate = authz.rotate(tokio_stream::empty()).await;
        kinds.push(("a rotation", rotate.map(drop)));
        for (kind, answer) in kinds {
            match answer {
                // An empty box has no data for some; it counts that the service has answered.
                Ok(()) => assert!(allowed, "{kind}"),
                Err(status) => {
                    assert_eq!(
                        status.code() == Code::PermissionDenied,
                        !allowed,
                        "{kind} {status:?}"
                    );
                    let is_named = status
                        .message()
                        .contains("no rule of the authorization policy allows `eve` to call ");
                    assert_eq!(is_named, !allowed, "{kind} {status:?}");
                }
            }
        }
        // One request is invalid for its service, the other has no service here: authorization is checked before both.
        let ping = SystemClient::new(channel.clone()).ping(PingRequest::default()).await;
        let nowhere = TpmAttestzServiceClient::new(channel).attest(AttestRequest::default()).await;
        let want = if allowed {
            (Code::InvalidArgument, Code::Unimplemented)
        } else {
            (Code::PermissionDenied, Code::PermissionDenied)
        };
        assert_eq!((ping.unwrap_err().code(), nowhere.unwrap_err().code()), want);
    }
    let hostname = core.configuration();
    let hostname = format!("{:?}", hostname.effective());
    assert!(!hostname.contains("eve"), "no handler did anything");
}

async fn first<T>(answer: Result<tonic::Response<Streaming<T>>, Status>) -> Result<(), Status> {
    answer?.into_inner().message().await.map(drop)
}

// proves 5.1, 5.2, 5.4, 5.28, 5.32
#[tokio::test]
async fn a_policy_is_enforced_while_it_is_tried_and_goes_with_its_stream() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    let mut eve = system_of(&core, "eve").await;
    install(&mut client, "v1", ADA).await;
    assert!(may_ask_for_the_time(&mut eve).await);

    // A client that locks out all callers, itself included, only has to close the stream.
    let nobody = r#"{"name":"x","allow_rules":[{"name":"x","source":{"principals":["nobody"]}}]}"#;
    let rotation = Rotation::trying(&mut client, "v2", nobody).await;
    assert!(!may_ask_for_the_time(&mut eve).await);
    assert_eq!(get(&mut client).await, Err(Code::PermissionDenied));
    assert_eq!(rotation.close().await.unwrap_err().code(), Code::Aborted);
    assert!(may_ask_for_the_time(&mut eve).await);
    assert_eq!(version(&mut client).await, "v1");

    // The policy is also rolled back when the connection is cut, and when a step fails.
    let own = authz(&core).await;
    let rotation = Rotation::trying(&mut own.clone(), "v2", nobody).await;
    assert!(!may_ask_for_the_time(&mut eve).await);
    drop((rotation, own));
    while !may_ask_for_the_time(&mut eve).await {
        tokio::task::yield_now().await;
    }
    let mut rotation = Rotation::trying(&mut client, "v2", ADA_ALONE).await;
    assert_eq!(version(&mut client).await, "v2");
    assert_eq!(probe(&mut client, "eve", "/x.Y/Z").await, (Action::Deny, "v2".to_owned()));
    assert_eq!(rotation.say(upload("v3", "{")).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(version(&mut client).await, "v1");
    assert!(may_ask_for_the_time(&mut eve).await);
    // A rotation without an upload ends with OK.
    Rotation::open(&mut client).await.unwrap().close().await.unwrap();
}

// proves 5.3, 5.6, 5.8, 5.13
#[tokio::test]
async fn invalid_authz_rotations_are_refused_and_change_nothing() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    install(&mut client, "v1", ADA).await;
    let profile = |profile: &str| RotateAuthzRequest {
        authz_profile_id: profile.to_owned(),
        ..upload("v2", ADA_ALONE)
    };
    for (request, want, word) in [
        (upload("v1", ADA_ALONE), Code::AlreadyExists, "version `v1`"),
        (upload("v2", r#"{"name":"x"}"#), Code::InvalidArgument, "allow_rules"),
        (upload("v2", ""), Code::InvalidArgument, "the policy"),
        (profile("other"), Code::Unimplemented, "authz_profile_id `other`"),
        (finalize(), Code::FailedPrecondition, "there is nothing to finalize"),
        (RotateAuthzRequest::default(), Code::InvalidArgument, "upload_request"),
    ] {
        let mut rotation = Rotation::open(&mut client).await.unwrap();
        let status = rotation.say(request).await.unwrap_err();
        assert_eq!(status.code(), want, "{status:?}");
        assert!(status.message().contains(word), "{status:?}");
        assert_eq!(version(&mut client).await, "v1");
    }
    let status = client.get(GetRequest { authz_profile_id: "other".into() }).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);

    // One rotation at a time: the first goes on undisturbed.
    let mut first = Rotation::trying(&mut client, "v2", ADA_ALONE).await;
    let second = Rotation::open(&mut client).await.err().unwrap();
    assert_eq!(second.code(), Code::Unavailable, "{second:?}");
    // The version on trial is in use as well; force_overwrite allows it again, and may be set in a finalize.
    assert!(first.say(overwrite("v2", ADA)).await.unwrap());
    let last = RotateAuthzRequest { force_overwrite: true, ..finalize() };
    assert!(first.say(last).await.unwrap(), "a finalize is answered");
    assert_eq!(get(&mut client).await.unwrap().policy, ADA);
    let mut third = Rotation::open(&mut client).await.unwrap();
    assert!(third.say(overwrite("v2", ADA_ALONE)).await.unwrap());
    assert_eq!(third.say(upload("v2", ADA)).await.unwrap_err().code(), Code::AlreadyExists);

    // If the disk refuses the policy, the finalize fails, and the trial is rolled back.
    let mut eve = system_of(&core, "eve").await;
    let mut rotation = Rotation::trying(&mut client, "v4", ADA_ALONE).await;
    assert!(!may_ask_for_the_time(&mut eve).await);
    core.store().close().await.unwrap();
    assert_eq!(rotation.say(finalize()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(get(&mut client).await.unwrap().policy, ADA);
    assert!(may_ask_for_the_time(&mut eve).await);
}

// proves 5.2
#[tokio::test(start_paused = true)]
async fn a_rotation_that_is_forgotten_is_taken_back() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    let mut rotation = Rotation::trying(&mut client, "v1", ADA_ALONE).await;
    assert_eq!(version(&mut client).await, "v1");
    // Only time passes.
    let status = rotation.responses.message().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(get(&mut client).await, Err(Code::FailedPrecondition));
}

// proves 3.37
#[tokio::test]
async fn an_agent_that_stops_takes_rotations_back_and_begins_no_others() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    let mut rotation = Rotation::trying(&mut client, "v1", ADA_ALONE).await;
    core.gnsi().rotations.stop(Duration::from_secs(60)).await;
    assert_eq!(rotation.responses.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(get(&mut client).await, Err(Code::FailedPrecondition));
    let status = Rotation::open(&mut client).await.err().unwrap();
    assert_eq!(status.code(), Code::Unavailable);
}

/// Starts an agent on a simulated box.
async fn agent(folder: &TempDir) -> Agent {
    Agent::start(&SimulatedKernel::new(&["eth0"]), folder.path()).await
}

// proves 5.7, 5.9, 5.10, 5.33
#[tokio::test]
async fn readers_see_which_policy_is_in_force() {
    let folder = TempDir::new().unwrap();
    let agent = agent(&folder).await;
    let mut client = authz(&agent).await;
    let mut gnmi = client_as_ada(&agent).await;
    let leaves = ["change /system/aaa/authorization/state"];
    let stream = list(Mode::Stream, &leaves);
    let mut subscription = Subscription::open(&mut gnmi, subscribe(stream)).await;
    assert_eq!(subscription.until_sync().await, ["sync"]);
    let state = |version: &str| {
        format!("{CREATED_ON}=\"{}\" {VERSION}=\"{version}\"", BORN * 1_000_000_000)
    };

    let rotation = Rotation::trying(&mut client, "v1", ADA).await;
    assert_eq!(subscription.next().await, state("v1"));
    assert_eq!(rotation.close().await.unwrap_err().code(), Code::Aborted);
    assert_eq!(subscription.next().await, "-/system/aaa/authorization/state");

    install(&mut client, "v1", ADA).await;
    assert_eq!(subscription.next().await, state("v1"));
    let mut rotation = Rotation::trying(&mut client, "v2", ADA_ALONE).await;
    assert_eq!(subscription.next().await, format!("{VERSION}=\"v2\""));
    // Readers never see a policy that is refused.
    rotation.say(upload("v3", "{")).await.unwrap_err();
    assert_eq!(subscription.next().await, format!("{VERSION}=\"v1\""));
    let mut wrong = Rotation::open(&mut client).await.unwrap();
    wrong.say(upload("v4", "{")).await.unwrap_err();
    install(&mut client, "v5", ADA).await;
    assert_eq!(subscription.next().await, format!("{VERSION}=\"v5\""));
}

async fn client_as_ada(agent: &Agent) -> Client {
    Client::new(channel_of(agent, Some(caller("ada", Role::Admin))).await)
}

// proves 3.33, 3.37, 5.7, 5.35
#[tokio::test]
async fn a_policy_outlives_the_agent_and_a_trial_does_not() {
    let folder = TempDir::new().unwrap();
    let first = agent(&folder).await;
    let mut client = authz(&first).await;
    install(&mut client, "v1", ADA_ALONE).await;
    let _tried = Rotation::trying(&mut client, "v2", ADA).await;
    assert!(may_ask_for_the_time(&mut system_of(&first, "eve").await).await);
    first.stop().await;

    let second = agent(&folder).await;
    assert!(!may_ask_for_the_time(&mut system_of(&second, "eve").await).await);
    let mut client = authz(&second).await;
    let want = GetResponse { version: "v1".into(), created_on: BORN, policy: ADA_ALONE.to_owned() };
    assert_eq!(get(&mut client).await, Ok(want));
    let mut gnmi = client_as_ada(&second).await;
    assert_eq!(leaf(&mut gnmi, VERSION).await, "\"v1\"");
    assert_eq!(leaf(&mut gnmi, CREATED_ON).await, format!("\"{}\"", BORN * 1_000_000_000));
}

async fn leaf(client: &mut Client, path: &str) -> String {
    match client.get(get_request(&[path])).await {
        Ok(got) => value(got.into_inner().notification[0].update[0].val.as_ref()),
        Err(status) => format!("{:?}", status.code()),
    }
}

// proves 5.34
#[tokio::test]
async fn authz_decisions_are_counted_for_each_rpc() {
    let folder = TempDir::new().unwrap();
    let agent = agent(&folder).await;
    let mut gnmi = client_as_ada(&agent).await;
    let counter = |rpc: &str, leaf: &str| {
        format!(
            "/system/grpc-servers/grpc-server[name=DEFAULT]/authz-policy-counters/rpcs/rpc[name={rpc}]/state/{leaf}"
        )
    };
    let time = "/gnoi.system.System/Time";
    assert_eq!(leaf(&mut gnmi, &counter(time, "name")).await, format!("\"{time}\""));
    assert_eq!(leaf(&mut gnmi, &counter(time, "access-accepts")).await, "\"0\"");
    assert_eq!(leaf(&mut gnmi, &counter(time, "last-access-accept")).await, "NotFound");
    let mut eve = system_of(&agent, "eve").await;
    assert!(may_ask_for_the_time(&mut eve).await);
    install(&mut authz(&agent).await, "v1", ADA_ALONE).await;
    for _ in 0..2 {
        assert!(!may_ask_for_the_time(&mut eve).await);
    }
    let probe = "/gnsi.authz.v1.Authz/Rotate";
    for (rpc, name, want) in [
        (time, "access-accepts", "\"1\""),
        (time, "access-rejects", "\"2\""),
        (probe, "access-accepts", "\"1\""),
        (probe, "access-rejects", "\"0\""),
    ] {
        assert_eq!(leaf(&mut gnmi, &counter(rpc, name)).await, want, "{rpc} {name}");
    }
    let now = holdfast_base::now_ns();
    for name in ["last-access-accept", "last-access-reject"] {
        let last = leaf(&mut gnmi, &counter(time, name)).await;
        let last: u64 = last.trim_matches('"').parse().unwrap();
        assert!(last <= now && now - last < 600_000_000_000, "{name} {last}");
    }
}

// proves 5.12
#[tokio::test]
async fn gnmi_writes_nothing_that_gnsi_owns() {
    let folder = TempDir::new().unwrap();
    let agent = agent(&folder).await;
    install(&mut authz(&agent).await, "v1", ADA).await;
    let mut gnmi = client_as_ada(&agent).await;
    for operation in [
        format!("update {VERSION} \"v9\""),
        format!("replace {CREATED_ON} \"1\""),
        format!("delete {VERSION}"),
        r#"update /system {"openconfig-system:aaa":{"authorization":{"state":{"openconfig-gnsi-authz:grpc-authz-policy-version":"v9"}}}}"#.to_owned(),
    ] {
        let status = gnmi.set(set_request(&operation)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{operation}: {status:?}");
    }
    // A delete that only covers the leaf succeeds, and leaves the leaf alone.
    set(&mut gnmi, "delete /").await;
    assert_eq!(leaf(&mut gnmi, VERSION).await, "\"v1\"");
}

#[tokio::test]
async fn an_operator_who_switches_gnsi_off_is_not_locked_out() {
    let folder = TempDir::new().unwrap();
    let agent = agent(&folder).await;
    let mut client = authz(&agent).await;
    install(&mut client, "v1", ADA_ALONE).await;
    let mut eve = system_of(&agent, "eve").await;
    assert!(!may_ask_for_the_time(&mut eve).await);
    let operator = caller("operator", Role::Admin);
    for (on, want) in [(false, true), (true, false)] {
        let switch = Intent::Switch { service: Namespace::Gnsi, on };
        agent.handle.change(&operator, switch).await.unwrap();
        assert_eq!(may_ask_for_the_time(&mut eve).await, want);
        let got = get(&mut client).await.map(|got| got.version);
        assert_eq!(got, if on { Ok("v1".to_owned()) } else { Err(Code::FailedPrecondition) });
    }
}

// proves 1.7
#[tokio::test]
async fn a_reader_asks_and_rotates_nothing() {
    let core = FakeDatastore::new();
    let mut client = AuthzClient::new(channel(&core, Some(Role::ReadOnly)).await);
    assert_eq!(probe(&mut client, "eve", "/x.Y/Z").await.0, Action::Permit);
    let status = Rotation::open(&mut client).await.err().unwrap();
    assert_eq!(status.code(), Code::PermissionDenied);
}

// proves 3.3, 3.6
#[tokio::test]
async fn a_policy_that_comes_with_a_boot_configuration_is_kept_by_gnsi() {
    let core = FakeDatastore::new();
    let mut client = authz(&core).await;
    let mut boots =
        BootConfigClient::new(channel_of(&core, Some(caller("ada", Role::Admin))).await);
    let request = |vendor: &str, version: &str, policy: &str| {
        let vendor_config = vendor.to_owned().into();
        let version = version.to_owned();
        let policy = policy.to_owned();
        SetBootConfigRequest {
            boot_config: Some(bootz::BootConfig { vendor_config, ..Default::default() }),
            authz: Some(UploadRequest { version, created_on: BORN, policy }),
            ..Default::default()
        }
    };
    let boot = |name: &str| format!(r#"{{"holdfast:system":{{"hostname":"{name}"}}}}"#);
    boots.set_boot_config(request(&boot("one"), "v1", ADA)).await.unwrap();
    assert_eq!(get(&mut client).await.unwrap().policy, ADA);
    let boot_layers = || format!("{:?}", core.configuration().layers().boot);
    let before = boot_layers();
    // Both parts are set, or none.
    for (request, want) in [
        (request(&boot("two"), "v2", "{"), Code::InvalidArgument),
        (request("{", "v2", ADA_ALONE), Code::InvalidArgument),
    ] {
        let status = boots.set_boot_config(request).await.unwrap_err();
        assert_eq!(status.code(), want, "{status:?}");
        assert_eq!((version(&mut client).await, boot_layers()), ("v1".to_owned(), before.clone()));
    }
    core.fail(CommitError::Overloaded);
    boots.set_boot_config(request(&boot("two"), "v2", ADA_ALONE)).await.unwrap_err();
    assert_eq!((version(&mut client).await, boot_layers()), ("v1".to_owned(), before.clone()));
    let rotation = Rotation::trying(&mut client, "v3", ADA).await;
    let status = boots.set_boot_config(request(&boot("two"), "v2", ADA)).await.unwrap_err();
    assert_eq!((status.code(), boot_layers()), (Code::Unavailable, before));
    rotation.close().await.unwrap_err();
    // A part that is absent leaves its state as it is.
    let policy = SetBootConfigRequest { boot_config: None, ..request("", "v4", ADA_ALONE) };
    boots.set_boot_config(policy).await.unwrap();
    assert_eq!(version(&mut client).await, "v4");
    let boot = SetBootConfigRequest { authz: None, ..request(&boot("three"), "", "") };
    boots.set_boot_config(boot).await.unwrap();
    assert_eq!(version(&mut client).await, "v4");
}
