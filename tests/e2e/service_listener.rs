//! Handlers of services on the TLS listener: who may attach there, what they do, and what is left when they are lost.

use std::path::PathBuf;
use std::time::Duration;

use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use holdfast_proto::gnsi::authz::{
    FinalizeRequest, RotateAuthzRequest, UploadRequest, rotate_authz_request,
};
use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::from_handler::Message as Said;
use holdfast_proto::holdfast::services::handler_client::HandlerClient;
use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::certificates::{Authority, connect};
use holdfast_tests::eventually::{eventually_async, eventually_within};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::handler::{RawHandler, all_calls, attach_next, registration};
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use holdfast_tests::services::port_package;
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::alarms::{NATIVE, leaf, wait_until_open, wait_until_over};

const ACME: &str = "holdfast_native:/services/sized-port[name=acme]";
const FAR_END: &str = "holdfast_native:/services/sized-port[name=acme]/far-end";
/// Name of the certificate that the outline names.
const RACK: &str = "rack-1";

/// Longest time until leaves of a lost handler are gone: the agent keeps them for a minute, and the machine may be busy.
const WITHDRAWAL_LIMIT: Duration = Duration::from_secs(150);

/// A handler that is known by its certificate attaches the port.
const OUTLINE: &str = r#"[service]
name = "sized-port"
version = "1.0.0"
missing-handler = "fail"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/ifindex"]
[handler]
identities = ["rack-1"]
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "handler"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

/// A box with a port, whose agent lets in the clients of an authority.
struct Listener {
    net: Netns,
    agent: AgentProcess,
    admin: GnmiClient,
    authority: Authority,
    _folders: [TempDir; 2],
}

impl Listener {
    async fn start() -> Self {
        let net = Netns::enter().with_veth("eth1", "peer1");
        let packages = port_package(OUTLINE);
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("clients");
        let ca: PathBuf = folder.path().join("ca.pem");
        std::fs::write(&ca, &authority.pem).unwrap();
        let services = packages.path().to_str().unwrap();
        let options = ["--services", services, "--tls-client-ca", ca.to_str().unwrap()];
        let agent = AgentProcess::start_with(&net, &options).await;
        let channel = channel(&agent, &authority, "ops").await;
        let admin = GnmiClient::over(channel, agent.credentials());
        Self { net, agent, admin, authority, _folders: [packages, folder] }
    }

    /// A connection of the holder of a certificate.
    async fn channel(&self, name: &str) -> Channel {
        channel(&self.agent, &self.authority, name).await
    }

    async fn client(&self, name: &str) -> HandlerClient<Channel> {
        HandlerClient::new(self.channel(name).await)
    }

    /// Attaches a handler, once the agent knows that the one before it is gone.
    async fn attach(&self) -> RawHandler {
        attach_next(async || RawHandler::attach_over(self.client(RACK).await).await).await
    }

    async fn set(&self, bridge: &str) -> Result<(), Status> {
        let parameters = json!({"bridge": bridge, "port": "eth1"});
        self.admin.update(ACME, parameters).await.map(drop)
    }

    /// Sets the instance, whose work a handler does.
    async fn make(&self, handler: &mut RawHandler, bridge: &str) {
        let (made, ()) = tokio::join!(self.set(bridge), attach_port(handler, bridge));
        made.unwrap();
        assert_eq!(self.net.link("eth1").master.as_deref(), Some(bridge));
    }
}

async fn channel(agent: &AgentProcess, authority: &Authority, name: &str) -> Channel {
    let ca = std::fs::read_to_string(agent.ca_file()).unwrap();
    connect(agent.address(), &[&ca], &authority.client(name)).await.unwrap()
}

/// Does the work of the next transaction. It reads what its call sees, too.
async fn attach_port(handler: &mut RawHandler, bridge: &str) {
    let tid = handler.commit().await;
    let path = "/interfaces/interface[name=eth1]/state/ifindex".to_owned();
    let plane = wire::Plane::State.into();
    let question = wire::ReadRequest { tid, plane, path, ..wire::ReadRequest::default() };
    let mut read = handler.client.read(question).await.unwrap().into_inner();
    assert!(read.message().await.unwrap().is_some(), "the port is there");
    for (leaf, value) in
        [(format!("[name={bridge}]/type"), "bridge"), ("[name=eth1]/master".to_owned(), bridge)]
    {
        let path = format!("/interfaces/interface{leaf}");
        let json = format!("{value:?}");
        handler.say(Said::Edit(wire::Edit { tid, path, json, ..wire::Edit::default() })).await;
    }
    handler.say(Said::Done(wire::Done { tid, served: vec![wire::Served::default()] })).await;
}

// proves sv.A10, sv.A44
#[tokio::test]
async fn a_handler_serves_over_tls_by_the_name_of_its_certificate() {
    let on = Listener::start().await;
    for name in ["rack-2", ADMIN] {
        let refused = RawHandler::attach_over(on.client(name).await).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(&format!("`{name}` may not serve")), "{refused}");
    }
    // A password says nothing of the program that has it.
    let credentials = on.agent.credentials();
    let mut client = HandlerClient::with_interceptor(on.channel(RACK).await, credentials);
    let register = tokio_stream::once(registration("sized-port", all_calls()));
    let refused = client.attach(register).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(refused.message().contains(&format!("`{ADMIN}` may not serve")), "{refused}");
    let strangers = Authority::new("strangers");
    let ca = std::fs::read_to_string(on.agent.ca_file()).unwrap();
    let stranger = connect(on.agent.address(), &[&ca], &strangers.client(RACK)).await;
    if let Ok(channel) = stranger {
        // TLS 1.3 tells a client that it is refused after its handshake.
        let refused = RawHandler::attach_over(HandlerClient::new(channel)).await.unwrap_err();
        assert!(![Code::Ok, Code::PermissionDenied].contains(&refused.code()), "{refused}");
    }
    let refused = on.set("br0").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("no handler"), "{refused}");

    let mut handler = on.attach().await;
    on.make(&mut handler, "br0").await;
    let (refused, ()) = tokio::join!(on.set("br1"), async {
        handler.commit().await;
        drop(handler);
    });
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("handler lost"), "{refused}");
    assert_eq!(on.net.link("eth1").master.as_deref(), Some("br0"), "what it has made stays");
    let mut handler = on.attach().await;
    on.make(&mut handler, "br1").await;
}

/// Replaces the policy of RPCs by one that permits these names everything.
async fn permit(on: &Listener, version: &str, names: &[&str]) {
    let rule = json!({"name": "all", "source": {"principals": names}});
    let policy = json!({"name": "policy", "allow_rules": [rule]}).to_string();
    let message = |rotate_request| RotateAuthzRequest {
        rotate_request: Some(rotate_request),
        ..RotateAuthzRequest::default()
    };
    let version = version.to_owned();
    let upload = UploadRequest { version, created_on: 1_700_000_000, policy };
    let upload = message(rotate_authz_request::RotateRequest::UploadRequest(upload));
    let finalize = rotate_authz_request::RotateRequest::FinalizeRotation(FinalizeRequest {});
    let channel = on.channel("ops").await;
    let mut client = AuthzClient::with_interceptor(channel, on.agent.credentials());
    let mut rotation = Rotation::open(|requests| client.rotate(requests)).await.unwrap();
    rotation.run_until(CutPoint::Finalized, upload, message(finalize)).await;
    rotation.close().await.unwrap();
}

#[tokio::test]
async fn a_handler_serves_for_as_long_as_the_policy_of_rpcs_permits_it() {
    let on = Listener::start().await;
    permit(&on, "both", &[ADMIN, RACK]).await;
    let mut handler = on.attach().await;
    on.make(&mut handler, "br0").await;
    permit(&on, "admin", &[ADMIN]).await;
    let ended = handler.end().await;
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    let refused = RawHandler::attach_over(on.client(RACK).await).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let refused = on.set("br1").await.unwrap_err();
    assert!(refused.message().contains("no handler"), "{refused}");
    permit(&on, "again", &[ADMIN, RACK]).await;
    let mut handler = on.attach().await;
    on.make(&mut handler, "br1").await;
}

/// The leaf stays for a minute, in case that the handler comes back.
// proves sv.A44
#[tokio::test]
async fn leaves_that_a_lost_handler_has_published_go_after_a_while() {
    let on = Listener::start().await;
    let mut handler = on.attach().await;
    on.make(&mut handler, "br0").await;
    let shows = async |value: &str| on.admin.read(FAR_END).await.is_ok_and(|it| it == value);
    let path = "/services/sized-port[name=acme]/far-end".to_owned();
    let publish =
        |json: &str| Said::Publish(wire::Publish { path: path.clone(), json: json.into() });
    handler.say(publish("\"core-1\"")).await;
    eventually_async("the leaf is shown", async || shows("core-1").await).await;
    drop(handler);
    let handler = on.attach().await;
    assert!(shows("core-1").await, "a handler that comes back in time has lost nothing");
    handler.say(publish("\"core-2\"")).await;
    eventually_async("the leaf is another one", async || shows("core-2").await).await;
    drop(handler);
    let refused = on.set("br1").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "it is lost: {refused}");
    assert!(shows("core-2").await, "it may come back");
    let is_gone = async || match on.admin.read(FAR_END).await {
        Ok(value) => value.is_null(),
        Err(status) => status.code() == Code::NotFound,
    };
    eventually_within(WITHDRAWAL_LIMIT, "the leaf is gone", is_gone).await;
    assert_eq!(on.net.link("eth1").master.as_deref(), Some("br0"), "what it has made stays");
    let lost = "handler-lost.sized-port@agent";
    wait_until_open(&on.admin, lost).await;
    let text = leaf(&on.admin, NATIVE, lost, "text").await.unwrap();
    assert!(text.as_str().unwrap().contains("nobody does its work for `sized-port`"), "{text}");
    let _handler = on.attach().await;
    wait_until_over(&on.admin, lost).await;
}
