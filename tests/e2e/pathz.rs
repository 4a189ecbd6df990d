//! Permissions on paths: a policy that is rotated in, and a client that it keeps out.

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnsi::pathz;
use holdfast_proto::gnsi::pathz::authorization_rule::Principal;
use holdfast_proto::gnsi::pathz::pathz_client::PathzClient;
use holdfast_proto::gnsi::pathz::rotate_request;
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path};
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use holdfast_tests::subscription::subscribe_to;
use tonic::Code;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

const GUEST: &str = "guest";
const GUEST_PASSWORD: &str = "a password of the guest";
const ETH0: &str = "/interfaces/interface[name=eth0]";
const ETH1: &str = "/interfaces/interface[name=eth1]";

type Client = PathzClient<InterceptedService<Channel, Credentials>>;

/// gnmic as a guest is refused everything except one port, in every RPC; also after kill -9.
// proves 5.7, 5.46, 5.49, 5.50, 5.51, 5.54
#[tokio::test]
async fn pathz_policy_restricts_gnmic() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let mut agent = AgentProcess::start(&net).await;
    let output = agent.user(&["set", GUEST, "--role", "admin"], GUEST_PASSWORD);
    assert!(output.status.success(), "{output:?}");
    let admin = Gnmic::for_admin(&agent);
    let guest = Gnmic::for_user(&agent, GUEST, GUEST_PASSWORD);
    for port in ["eth0", "eth1"] {
        let path = format!("/interfaces/interface[name={port}]/config/description");
        let set = ["-e", "json_ietf", "set", "--update-path", &path, "--update-value", "secret"];
        admin.run(&set).await;
    }
    let changes = ("/interfaces", SubscriptionMode::OnChange);
    let list = || subscribe_to(Mode::Stream, &[changes]);
    let mut before = watcher(&agent).await.subscribe(list()).await.unwrap();
    before.until_sync().await;

    install(&agent, "one").await;

    let ended = before.until_refused().await;
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    let mut after = guest.stream(&["-e", "json_ietf", "subscribe", "--path", ETH0]);
    after.until("secret").await;
    check_guest_access(&agent, &guest).await;
    admin.run(&["-e", "json_ietf", "get", "--path", "/"]).await;

    agent.restart().await;
    check_guest_access(&agent, &guest).await;
    let installed = get(&mut client(&agent).await).await;
    assert_eq!((installed.version.as_str(), installed.created_on), ("one", 1_700_000_000));
}

/// Checks a refusal and a success of each RPC.
async fn check_guest_access(agent: &AgentProcess, guest: &Gnmic) {
    for mode in [Mode::Once, Mode::Poll, Mode::Stream] {
        let list = subscribe_to(mode, &[("/interfaces", SubscriptionMode::TargetDefined)]);
        let mut refused = watcher(agent).await.subscribe(list).await.unwrap();
        assert_eq!(refused.next().await.unwrap_err().code(), Code::PermissionDenied, "{mode:?}");
    }
    let all = "/interfaces/interface[name=*]/config/description";
    let update = ["set", "--update-path", "/system/config/hostname", "--update-value", "mine"];
    let replace =
        ["set", "--replace-path", "/interfaces", "--replace-value", r#"{"interface":[]}"#];
    let text = ["set", "--union-replace", "cli:/:::ascii:::system hostname mine"];
    let refused: [&[&str]; 8] = [
        &["get", "--path", "/"],
        &["get", "--path", all],
        &["get", "--path", "holdfast_native:/interfaces"],
        &["-e", "ascii", "get", "--path", "cli:/show/running-config"],
        &update,
        &replace,
        &text,
        &["set", "--delete", &format!("{ETH0}/config/mtu")],
    ];
    for arguments in refused {
        let complaint = guest.refused(&[&["-e", "json_ietf"], arguments].concat()).await;
        assert!(complaint.contains("PermissionDenied"), "{arguments:?}: {complaint}");
    }
    let output = guest.run(&["-e", "json_ietf", "get", "--path", ETH0]).await;
    assert!(output.contains("oper-status") && !output.contains("eth1"), "{output}");
    let description = format!("{ETH0}/config/description");
    guest
        .run(&["-e", "json_ietf", "set", "--update-path", &description, "--update-value", "secret"])
        .await;
}

async fn watcher(agent: &AgentProcess) -> GnmiClient {
    GnmiClient::over(agent.channel().await, Credentials::new(GUEST, GUEST_PASSWORD).unwrap())
}

/// Installs a policy: the administrator may do everything, the guest may read one port and describe it.
async fn install(agent: &AgentProcess, version: &str) {
    let mut client = client(agent).await;
    let mut rotation = Rotation::open(|requests| client.rotate(requests)).await.unwrap();
    rotation.run_until(CutPoint::Finalized, upload(version, ETH0), finalize()).await;
    rotation.close().await.expect("nothing is left to take back");
}

/// A policy: the administrator may do everything, the guest may read this port and describe it.
fn upload(version: &str, port: &str) -> pathz::RotateRequest {
    let rule = |id: &str, user: &str, path: &str, mode: pathz::Mode| pathz::AuthorizationRule {
        id: id.into(),
        principal: Some(Principal::User(user.into())),
        path: Some(parse_path(path)),
        action: pathz::Action::Permit.into(),
        mode: mode.into(),
    };
    let rules = vec![
        rule("r", ADMIN, "/", pathz::Mode::Read),
        rule("w", ADMIN, "/", pathz::Mode::Write),
        rule("port", GUEST, port, pathz::Mode::Read),
        rule("note", GUEST, &format!("{port}/config/description"), pathz::Mode::Write),
    ];
    let upload = pathz::UploadRequest {
        version: version.into(),
        created_on: 1_700_000_000,
        policy: Some(pathz::AuthorizationPolicy { rules, groups: Vec::new() }),
    };
    to_message(rotate_request::RotateRequest::UploadRequest(upload))
}

fn finalize() -> pathz::RotateRequest {
    to_message(rotate_request::RotateRequest::FinalizeRotation(pathz::FinalizeRequest {}))
}

fn to_message(request: rotate_request::RotateRequest) -> pathz::RotateRequest {
    pathz::RotateRequest { rotate_request: Some(request), force_overwrite: false }
}

async fn get(client: &mut Client) -> pathz::GetResponse {
    let policy_instance = pathz::PolicyInstance::Active.into();
    client.get(pathz::GetRequest { policy_instance }).await.unwrap().into_inner()
}

/// Each policy lets the guest read another port than the policy before.
// proves 5.1, 5.2, 5.7
#[tokio::test]
async fn a_power_cut_in_a_rotation_leaves_the_old_paths_or_the_new_ones() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let mut agent = AgentProcess::start(&net).await;
    assert!(agent.user(&["set", GUEST, "--role", "admin"], GUEST_PASSWORD).status.success());
    let (mut version, mut visible, mut other) = ("first".to_owned(), ETH0, ETH1);
    install(&agent, &version).await;
    for (number, cut) in CutPoint::ALL.into_iter().chain([CutPoint::Finalizing]).enumerate() {
        let tried = format!("v{number}");
        let mut of_this_life = client(&agent).await;
        let mut rotation = Rotation::open(|requests| of_this_life.rotate(requests)).await.unwrap();
        rotation.run_until(cut, upload(&tried, other), finalize()).await;
        agent.restart().await; // it kills first

        let found = get(&mut client(&agent).await).await.version;
        let is_new = found == tried;
        assert!(is_new || found == version, "{cut:?}: {found}");
        assert!(cut.may_leave(is_new), "{cut:?}: {found}");
        if is_new {
            version = tried;
            std::mem::swap(&mut visible, &mut other);
        }
        let guest = watcher(&agent).await;
        assert!(guest.read(&format!("{visible}/state/ifindex")).await.is_ok(), "{cut:?}");
        let kept_out = guest.read(&format!("{other}/state/ifindex")).await.unwrap_err();
        assert_eq!(kept_out.code(), Code::PermissionDenied, "{cut:?}");
    }
}

async fn client(agent: &AgentProcess) -> Client {
    let credentials = Credentials::new(ADMIN, PASSWORD).unwrap();
    PathzClient::with_interceptor(agent.channel().await, credentials)
}
