//! Permissions on paths: a policy that is rotated in, and a client that it keeps out.

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnsi::pathz;
use holdfast_proto::gnsi::pathz::authorization_rule::Principal;
use holdfast_proto::gnsi::pathz::pathz_client::PathzClient;
use holdfast_proto::gnsi::pathz::rotate_request;
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path};
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use holdfast_tests::services::{port_package, sized_port_path};
use holdfast_tests::subscription::subscribe_to;
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

pub(crate) const GUEST: &str = "guest";
pub(crate) const GUEST_PASSWORD: &str = "a password of the guest";
pub(crate) const ETH0: &str = "/interfaces/interface[name=eth0]";
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
    permit(agent, version, &rights_to(ETH0, &format!("{ETH0}/config/description"))).await;
}

/// Permits the guest this, beside all that the administrator may do.
pub(crate) async fn permit(agent: &AgentProcess, version: &str, guest: &[(&str, pathz::Mode)]) {
    permit_user(agent, version, GUEST, guest).await;
}

/// Permits a user this, beside all that the administrator may do.
pub(crate) async fn permit_user(
    agent: &AgentProcess,
    version: &str,
    user: &str,
    rights: &[(&str, pathz::Mode)],
) {
    let mut client = client(agent).await;
    let mut rotation = Rotation::open(|requests| client.rotate(requests)).await.unwrap();
    let upload = upload_of(version, user, rights);
    rotation.run_until(CutPoint::Finalized, upload, finalize()).await;
    rotation.close().await.expect("nothing is left to take back");
}

/// Rights to read and describe a port.
fn rights_to<'a>(port: &'a str, description: &'a str) -> [(&'a str, pathz::Mode); 2] {
    [(port, pathz::Mode::Read), (description, pathz::Mode::Write)]
}

/// A policy: the administrator may do everything, the guest may read this port and describe it.
fn upload(version: &str, port: &str) -> pathz::RotateRequest {
    upload_of(version, GUEST, &rights_to(port, &format!("{port}/config/description")))
}

/// A policy: the administrator may do everything, a user may do this.
fn upload_of(version: &str, user: &str, rights: &[(&str, pathz::Mode)]) -> pathz::RotateRequest {
    let rule = |id: &str, user: &str, path: &str, mode: pathz::Mode| pathz::AuthorizationRule {
        id: id.into(),
        principal: Some(Principal::User(user.into())),
        path: Some(parse_path(path)),
        action: pathz::Action::Permit.into(),
        mode: mode.into(),
    };
    let of_user = rights.iter().enumerate();
    let of_user = of_user.map(|(at, (path, mode))| rule(&format!("g{at}"), user, path, *mode));
    let of_admin = [
        ("r", "/", pathz::Mode::Read),
        ("w", "/", pathz::Mode::Write),
        ("nr", "holdfast_native:/", pathz::Mode::Read),
        ("nw", "holdfast_native:/", pathz::Mode::Write),
    ];
    let of_admin = of_admin.into_iter().map(|(id, path, mode)| rule(id, ADMIN, path, mode));
    let rules = of_admin.chain(of_user).collect();
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
    let mut version = "first".to_owned();
    let mut visible = ETH0;
    let mut other = ETH1;
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

/// A port whose second state waits for its link, whose action waits for a handler, and whose delete gate is closed.
const GUARDED: &str = r#"[service]
name = "sized-port"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[handler]
user = "root"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "port.cli"
  action = { handler = "prepare" }
  delete = { when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'DORMANT'" }
  [[component.state]]
  name = "sized"
  when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'"
  work = "size.cli"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

const STATE: &str = "holdfast_native:/service-state";

/// Path of the entries of `/service-state` that have the name of this instance, and these keys.
fn entries(list: &str, name: &str, keys: &str) -> String {
    format!("{STATE}/{list}[service=sized-port[name='{name}'\\]]{keys}")
}

/// An agent with the instance `acme`, which waits, and the zombie `bolt`, and with a guest who has no rights yet.
async fn with_zombie(net: &Netns, packages: &TempDir) -> (AgentProcess, GnmiClient) {
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    assert!(agent.user(&["set", GUEST, "--role", "admin"], GUEST_PASSWORD).status.success());
    let admin = agent.gnmi().await;
    for (name, port) in [("acme", "eth0"), ("bolt", "eth1")] {
        let parameters = json!({"bridge": "br0", "port": port});
        admin.update(&sized_port_path(name), parameters).await.unwrap();
    }
    admin.delete(&sized_port_path("bolt")).await.unwrap();
    let has_both = async || {
        let shown = admin.read(STATE).await.unwrap();
        let lists = ["plan", "queue", "wait"];
        lists.iter().all(|list| {
            let list = shown[format!("holdfast-services:{list}")].to_string();
            list.contains("acme") && list.contains("bolt")
        })
    };
    eventually_async("both have a plan, an action that is queued, and a wait", has_both).await;
    (agent, admin)
}

/// True when the guest may read a path, by Get and by Subscribe.
async fn may_read(guest: &GnmiClient, path: &str) -> bool {
    let list = subscribe_to(Mode::Once, &[(path, SubscriptionMode::TargetDefined)]);
    let mut updates = guest.subscribe(list).await.unwrap();
    match guest.read(path).await {
        Ok(value) => {
            assert!(!value.is_null(), "{path} has a value");
            assert!(!updates.until_sync().await.is_empty(), "{path} has a value");
            true
        }
        Err(status) => {
            assert_eq!(status.code(), Code::PermissionDenied, "{path}: {status}");
            assert_eq!(updates.next().await.unwrap_err().code(), Code::PermissionDenied, "{path}");
            false
        }
    }
}

// proves sv.B77
#[tokio::test]
async fn zombies_queue_and_waits_are_read_by_those_who_have_rights_to_their_paths() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let packages = port_package(GUARDED);
    let (agent, admin) = with_zombie(&net, &packages).await;
    let lists = ["plan", "queue", "wait"].map(|list| format!("{STATE}/{list}"));
    let plans = ["acme", "bolt"].map(|name| entries("plan", name, ""));
    let waits = ["acme", "bolt"].map(|name| entries("wait", name, "[plane=*][path=*]"));
    let paths: Vec<&String> = lists.iter().chain(&plans).chain(&waits).collect();
    let [plan, queue, wait] = [0, 1, 2];
    let [plan_of_acme, zombie, wait_of_acme, wait_of_zombie] = [3, 4, 5, 6];
    // Permissions, and the paths that can then be read.
    let rows: [(&[usize], &[usize]); 6] = [
        (&[], &[]),
        (&[plan], &[plan, plan_of_acme, zombie]),
        (&[queue], &[queue]),
        (&[wait], &[wait, wait_of_acme, wait_of_zombie]),
        (&[zombie], &[zombie]),
        (&[queue, wait_of_zombie], &[queue, wait_of_zombie]),
    ];
    for (number, (permitted, readable)) in rows.into_iter().enumerate() {
        let rights: Vec<_> =
            permitted.iter().map(|at| (paths[*at].as_str(), pathz::Mode::Read)).collect();
        permit(&agent, &format!("v{number}"), &rights).await;
        let guest = watcher(&agent).await;
        for (at, path) in paths.iter().enumerate() {
            let found = may_read(&guest, path).await;
            assert_eq!(found, readable.contains(&at), "{path} with {rights:?}");
        }
        assert!(!may_read(&guest, STATE).await, "not all of it with {rights:?}");
    }
    assert!(may_read(&admin, STATE).await);
}

// proves sv.B77
#[tokio::test]
async fn the_right_to_write_an_instance_gives_none_to_what_it_makes() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let packages = port_package(GUARDED);
    let (agent, admin) = with_zombie(&net, &packages).await;
    permit(&agent, "acme", &[(&sized_port_path("acme"), pathz::Mode::Write)]).await;
    let guest = watcher(&agent).await;
    guest.update(&sized_port_path("acme"), json!({"bridge": "br7"})).await.unwrap();
    assert_eq!(net.link("eth0").master.as_deref(), Some("br7"));
    let port = "holdfast_native:/interfaces/interface[name=eth0]".to_owned();
    let parameters = json!({"bridge": "br0", "port": "eth1"});
    for (path, value) in [
        (sized_port_path("coop"), parameters.clone()),
        (sized_port_path("bolt"), parameters),
        (port, json!({"mtu": 1300})),
    ] {
        let refused = guest.update(&path, value).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{path}: {refused}");
        assert!(!may_read(&guest, &path).await);
    }
    assert!(!may_read(&guest, &format!("{STATE}/ownership")).await);
    assert!(may_read(&admin, &format!("{STATE}/ownership")).await);
}

async fn client(agent: &AgentProcess) -> Client {
    let credentials = Credentials::new(ADMIN, PASSWORD).unwrap();
    PathzClient::with_interceptor(agent.channel().await, credentials)
}
