//! Permissions of users, by kind of connection.

use std::process::Output;

use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{CapabilityRequest, SubscriptionMode};
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::clients::grpcurl;
use holdfast_tests::eventually::WAIT_LIMIT;
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

// proves 1.1, kv.T18
#[tokio::test]
async fn cleartext_is_not_served() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let mut socket = TcpStream::connect(agent.address()).await.unwrap();
    // An HTTP/2 client's first bytes (RFC 9113 section 3.4): the preface and empty SETTINGS.
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer);
    // A server of cleartext HTTP/2 would send SETTINGS and keep the connection.
    let _reset_or_end = timeout(WAIT_LIMIT, read).await.expect("the agent closes the connection");
    const TLS_ALERT: u8 = 21; // RFC 8446 section 5.1
    assert!(answer.first().is_none_or(|first| *first == TLS_ALERT), "{answer:x?}");

    let cleartext = GNmiClient::connect(format!("http://{}", agent.address())).await;
    if let Ok(mut client) = cleartext {
        let error = client.capabilities(CapabilityRequest::default()).await.unwrap_err();
        assert_ne!(error.code(), Code::Unauthenticated, "the request was read: {error}");
    }
}

// proves 1.3, 1.82
#[tokio::test]
async fn a_wrong_password_is_refused_and_the_right_one_goes_on_working() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    for (user, password) in [(ADMIN, "wrong"), ("nobody", PASSWORD), (ADMIN, "")] {
        let client =
            GnmiClient::over(agent.channel().await, Credentials::new(user, password).unwrap());
        let refusal = client.capabilities().await.unwrap_err();
        assert_eq!(refusal.code(), Code::Unauthenticated, "{user}/{password}: {refusal}");
    }
    let mut bare = GNmiClient::new(agent.channel().await);
    let refusal = bare.capabilities(CapabilityRequest::default()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal}");
}

// proves 1.7
#[tokio::test]
async fn a_reader_reads_and_does_not_write() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    succeeded(&agent.user(&["set", "watcher", "--role", "read-only"], "a password to watch with"));

    let credentials = Credentials::new("watcher", "a password to watch with").unwrap();
    let watcher = GnmiClient::over(agent.channel().await, credentials);
    watcher.read("/interfaces").await.unwrap();
    let refusal = watcher.update("/system/config", json!({"hostname": "mine"})).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");

    let listed = succeeded(&agent.user(&["list"], ""));
    assert!(listed.contains("watcher") && listed.contains(ADMIN), "{listed}");
    succeeded(&agent.user(&["delete", "watcher"], ""));
    assert_eq!(watcher.read("/interfaces").await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn stream_ends_when_its_user_is_deleted() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    succeeded(&agent.user(&["set", "watcher", "--role", "read-only"], "a password to watch with"));
    let credentials = Credentials::new("watcher", "a password to watch with").unwrap();
    let watcher = GnmiClient::over(agent.channel().await, credentials);
    let path = ("/interfaces/interface[name=eth0]/state/mtu", SubscriptionMode::OnChange);
    let mut stream = watcher.subscribe(subscribe_to(Mode::Stream, &[path])).await.unwrap();
    stream.until_sync().await;

    net.ip("link set eth0 mtu 1400");
    stream.until("state/mtu = 1414").await;
    succeeded(&agent.user(&["delete", "watcher"], ""));
    assert_eq!(stream.until_refused().await.code(), Code::Unauthenticated);
    let again = watcher.subscribe(subscribe_to(Mode::Stream, &[path])).await.map(|_| ());
    assert_eq!(again.unwrap_err().code(), Code::Unauthenticated);
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn switch_gnsi_off(agent: &AgentProcess) {
    succeeded(&agent.command("switch").args(["gnsi", "off"]).output().unwrap());
}

/// Codes of the refusals of an RPC that is for readers, and of one that is for administrators.
async fn refusals(agent: &AgentProcess, user: &str, password: &str) -> [Option<Code>; 2] {
    let client = GnmiClient::over(agent.channel().await, Credentials::new(user, password).unwrap());
    let read = client.capabilities().await.err().map(|refusal| refusal.code());
    let written = client.update("/system/config", json!({"motd-banner": user})).await;
    [read, written.err().map(|refusal| refusal.code())]
}

#[tokio::test]
async fn a_user_without_a_role_logs_in_and_calls_nothing() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let denied = Some(Code::PermissionDenied);
    let password = "a password for later";
    succeeded(&agent.user(&["set", "eve"], password));
    assert!(succeeded(&agent.user(&["list"], "")).contains("eve\tnone"));
    assert_eq!(refusals(&agent, "eve", password).await, [denied, denied]);
    assert_eq!(refusals(&agent, "eve", "wrong").await, [Some(Code::Unauthenticated); 2]);
    succeeded(&agent.user(&["set", "eve", "--role", "read-only"], password));
    assert_eq!(refusals(&agent, "eve", password).await, [None, denied]);
    // Another password, the same role.
    succeeded(&agent.user(&["set", "eve"], "another password"));
    assert_eq!(refusals(&agent, "eve", "another password").await, [None, denied]);

    // The same of users that a client configures.
    switch_gnsi_off(&agent);
    let admin = agent.gnmi().await;
    let users = "/system/aaa/authentication/users/user[username=ada]";
    let config = format!("{users}/config");
    admin.update(&config, json!({"username": "ada", "password": password})).await.unwrap();
    assert_eq!(refusals(&agent, "ada", password).await, [denied, denied]);
    assert_eq!(admin.read(&format!("{users}/state/username")).await.unwrap(), json!("ada"));
    admin.update(&format!("{config}/role"), "read-only").await.unwrap();
    assert_eq!(refusals(&agent, "ada", password).await, [None, denied]);
    admin.delete(&format!("{config}/role")).await.unwrap();
    assert_eq!(refusals(&agent, "ada", password).await, [denied, denied]);
    // A user of the box keeps its role when a client names it without one.
    let named = json!({"username": ADMIN});
    let at = format!("/system/aaa/authentication/users/user[username={ADMIN}]/config");
    admin.update(&at, named).await.unwrap();
    assert_eq!(refusals(&agent, ADMIN, PASSWORD).await, [None, None]);
}

#[tokio::test]
async fn a_role_of_the_operators_own_has_the_rights_that_a_policy_gives_it() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let denied = Some(Code::PermissionDenied);
    let password = "a password for later";
    succeeded(&agent.user(&["set", "eve", "--role", "net-ops"], password));
    assert_eq!(refusals(&agent, "eve", password).await, [denied, denied]);
    let refused = agent.user(&["set", "eve", "--role", "net ops"], password);
    assert!(!refused.status.success());

    let admin = agent.gnmi().await;
    let role = "/system/aaa/authentication/users/user[username=ada]/config/role";
    admin.update(role, "net-ops").await.unwrap();
    assert_eq!(admin.read(role).await.unwrap(), json!("net-ops"));
    let refusal = admin.update(role, "net ops").await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");

    let rule = |name: &str, who: &str, paths: serde_json::Value| json!({"name": name, "source": {"principals": [who]}, "request": {"paths": paths}});
    let rules = [
        rule("admins", ADMIN, json!(["*"])),
        rule("ops", "net-ops", json!(["/gnmi.gNMI/Capabilities", "/gnmi.gNMI/Set"])),
    ];
    let policy = json!({"name": "roles", "allow_rules": rules}).to_string();
    let upload = json!({"uploadRequest": {"version": "v1", "createdOn": "7", "policy": policy}});
    let messages = format!("{upload}\n{}", json!({"finalizeRotation": {}}));
    grpcurl(&agent, &["gnsi.authz.v1.Authz/Rotate"], &messages).await.unwrap();
    assert_eq!(refusals(&agent, "eve", password).await, [None, None]);
    succeeded(&agent.user(&["set", "eve", "--role", "others"], password));
    assert_eq!(refusals(&agent, "eve", password).await, [denied, denied]);
    succeeded(&agent.user(&["set", "eve", "--role", "net-ops"], password));
    assert_eq!(refusals(&agent, "eve", password).await, [None, None]);
    // Without the policy the name alone gives nothing.
    switch_gnsi_off(&agent);
    assert_eq!(refusals(&agent, "eve", password).await, [denied, denied]);
}
