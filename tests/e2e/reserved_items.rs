//! Items reserved for boot and gNSI: clients cannot change them, and switches give them back.

use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tonic::Code;

use crate::boot_config::{boot_config_stub, mgmt, set_boot};

pub(crate) fn switch(agent: &AgentProcess, arguments: &[&str]) -> String {
    let output = agent.command("switch").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

// proves 3.10, 3.11, 3.17, 3.18, 3.22
#[tokio::test]
async fn boot_items_are_reserved_until_bootz_is_switched_off() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    set_boot(&mut boot_config_stub(&agent).await, mgmt(1400, "booted")).await.unwrap();
    let client = agent.gnmi().await;
    client.delete("/interfaces").await.unwrap();
    client.replace("/", json!({})).await.unwrap();
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1400, vec!["192.0.2.1/24".into()]));
    let eth0 = "/interfaces/interface[name=eth0]";
    let refusal = client.update(&format!("{eth0}/config/mtu"), 1314).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert!(refusal.message().contains("bootz") && refusal.message().contains("mtu"), "{refusal}");
    let refusal = client.delete(eth0).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert_eq!(net.link("eth0").mtu, 1400);

    assert_eq!(switch(&agent, &["bootz"]), "on\n");
    switch(&agent, &["bootz", "off"]);
    client.update(&format!("{eth0}/config/mtu"), 1314).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1300);
    agent.restart().await;
    assert_eq!((switch(&agent, &["bootz"]), net.link("eth0").mtu), ("off\n".into(), 1300));
    switch(&agent, &["bootz", "on"]);
    assert_eq!(net.link("eth0").mtu, 1400);
}

// proves 3.12, 3.15, 5.91
#[tokio::test]
async fn role_change_of_a_configured_user_applies_at_once() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let admin = agent.gnmi().await;
    let password = "a password to operate with";
    let set = agent.user(&["set", "ada", "--role", "read-only"], password);
    assert!(set.status.success(), "{set:?}");
    let ada = || async {
        let credentials = Credentials::new("ada", password).unwrap();
        GnmiClient::over(agent.channel().await, credentials)
    };
    let name = |name: &str| json!({ "hostname": name });
    let writes = |text: &'static str| {
        let client = ada();
        async move { client.await.update("/system/config", name(text)).await.map(drop) }
    };
    assert_eq!(writes("one").await.unwrap_err().code(), Code::PermissionDenied);
    let user = "/system/aaa/authentication/users/user[username=ada]";
    let role = |role: &str| json!({"config": {"username": "ada", "role": role}});
    admin.update(user, role("openconfig-aaa-types:SYSTEM_ROLE_ADMIN")).await.unwrap();
    writes("two").await.unwrap();
    let state = admin.read(&format!("{user}/state")).await.unwrap().to_string();
    assert!(state.contains("SYSTEM_ROLE_ADMIN") && !state.contains("password"), "{state}");
    admin.update(user, role("read-only")).await.unwrap();
    assert_eq!(writes("three").await.unwrap_err().code(), Code::PermissionDenied);
    // Without configuration the user has its original role.
    admin.delete(user).await.unwrap();
    ada().await.read("/system").await.unwrap();

    let nobody = "/system/aaa/authentication/users/user[username=nobody]/config/role";
    admin.update(nobody, "read-only").await.unwrap();
    let client = GnmiClient::over(agent.channel().await, Credentials::new("nobody", "x").unwrap());
    assert_eq!(client.read("/system").await.unwrap_err().code(), Code::Unauthenticated);
    for leaf in ["password", "password-hashed", "ssh-key"] {
        let entry = "/system/aaa/authentication/users/user[username=nobody]";
        let refusal = admin.update(&format!("{entry}/config/{leaf}"), "x").await.unwrap_err();
        assert_eq!(refusal.code(), Code::PermissionDenied, "{leaf}: {refusal}");
        assert!(refusal.message().contains("gnsi"), "{leaf}: {refusal}");
        let written = admin.update(&format!("{entry}/state/{leaf}"), "x").await;
        assert!(written.is_err(), "{leaf}");
        let user_state = admin.read(entry).await.unwrap().to_string();
        assert!(!user_state.contains(leaf), "{leaf}: {user_state}");
    }
    let again = GnmiClient::over(agent.channel().await, Credentials::new(ADMIN, PASSWORD).unwrap());
    let server = again.read("/system/grpc-servers/grpc-server[name=DEFAULT]/state").await.unwrap();
    assert!(server.to_string().contains("9339"), "{server}");
}
