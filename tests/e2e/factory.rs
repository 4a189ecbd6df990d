//! Factory configuration: applied once, and restored by a reset.

use std::fs;
use std::process::Stdio;

use holdfast_proto::gnmi::SetRequest;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{self, Extension, commit::Action};
use holdfast_proto::gnoi::factory_reset::StartRequest;
use holdfast_proto::gnoi::factory_reset::factory_reset_client::FactoryResetClient;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::{connect, update};
use holdfast_tests::netns::Netns;
use holdfast_tests::terminal::{TerminalRun, at_terminal};
use serde_json::json;
use tempfile::TempDir;

use crate::acctz::{collect, next};
use crate::boot_config::{boot_config_stub, get_boot, mgmt, set_boot};

fn factory_config(mtu: u32) -> String {
    format!(
        r#"{{"holdfast:interfaces":{{"interface":[{{"name":"eth0","mtu":{mtu}}}]}},
            "holdfast:system":{{"motd-banner":"fresh"}}}}"#
    )
}

/// True when the agent serves again, with any TLS identity.
pub(crate) async fn accepts_connections(agent: &AgentProcess) -> bool {
    let Ok(ca) = fs::read_to_string(agent.ca_file()) else { return false };
    connect(agent.address(), &ca).await.is_ok()
}

/// Resets the box to the factory, and waits until it serves with an identity of its own.
pub(crate) async fn reset(agent: &AgentProcess) {
    let ca = fs::read_to_string(agent.ca_file()).unwrap();
    let mut reset =
        FactoryResetClient::with_interceptor(agent.channel().await, agent.credentials());
    reset.start(StartRequest::default()).await.unwrap();
    eventually("the box has an identity of its own again", || {
        fs::read_to_string(agent.ca_file()).is_ok_and(|it| it != ca)
    })
    .await;
    eventually_async("the agent is back", || accepts_connections(agent)).await;
}

// proves 3.36, kv.T4
#[tokio::test]
async fn a_factory_configuration_is_taken_once_and_comes_back_with_a_reset() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("factory.json");
    fs::write(&file, factory_config(1400)).unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--factory", file.to_str().unwrap()]).await;
    eventually("what it was delivered with is there", || net.link("eth0").mtu == 1400).await;
    let motd = agent.root().join("etc/motd");
    eventually("its banner too", || fs::read_to_string(&motd).is_ok_and(|it| it == "fresh\n"))
        .await;

    // Another file has no effect.
    fs::write(&file, factory_config(1200)).unwrap();
    agent.restart().await;
    assert_eq!(net.link("eth0").mtu, 1400);

    let client = agent.gnmi().await;
    client.replace("/system/config", json!({"motd-banner": "used"})).await.unwrap();
    // The factory file and the stored changes are one configuration, in which the later change counts.
    agent.restart().await;
    assert_eq!(net.link("eth0").mtu, 1400);
    assert_eq!(fs::read_to_string(&motd).unwrap(), "used\n");
    let client = agent.gnmi().await;
    set_boot(&mut boot_config_stub(&agent).await, mgmt(1300, "booted")).await.unwrap();
    let set = agent.user(&["set", "ada", "--role", "admin"], "a password to lose");
    assert!(set.status.success(), "{set:?}");
    assert_eq!(net.link("eth0").mtu, 1300);
    assert_eq!(fs::read_to_string(&motd).unwrap(), "used\n");
    // A reset also ends a commit that waits to be confirmed.
    let waits = gnmi_ext::Commit {
        id: "tried".into(),
        action: Some(Action::Commit(gnmi_ext::CommitRequest::default())),
    };
    let trial = SetRequest {
        update: vec![update("/system/config/motd-banner", "tried")],
        extension: vec![Extension { ext: Some(Ext::Commit(waits)) }],
        ..Default::default()
    };
    client.set(trial).await.unwrap();
    assert_eq!(fs::read_to_string(&motd).unwrap(), "tried\n");
    assert!(agent.show("transactions").contains("by admin"));
    // A kill may have cost the record of the first Set; the second one is there in any case.
    let mut records = collect(&agent, None).await;
    while !next(&mut records).await.0.ends_with("/Set") {}
    reset(&agent).await;
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1400, vec![]));
    eventually("its banner too", || fs::read_to_string(&motd).is_ok_and(|it| it == "fresh\n"))
        .await;
    // Nor does anything say what was done before.
    assert!(next(&mut collect(&agent, None).await).await.0.ends_with("/RecordSubscribe"));
    assert!(!agent.show("transactions").contains("by admin"));
    assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None);
    let again = update("/system/config/login-banner", "nothing waits to be confirmed");
    agent.gnmi().await.set(SetRequest { update: vec![again], ..Default::default() }).await.unwrap();
    let users = agent.user(&["list"], "");
    assert!(!String::from_utf8_lossy(&users.stdout).contains("ada"), "{users:?}");
}

// proves 6.11
#[tokio::test]
async fn a_kill_right_after_a_reset_was_answered_does_not_undo_it() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    set_boot(&mut boot_config_stub(&agent).await, mgmt(1300, "booted")).await.unwrap();
    agent.gnmi().await.update("/system/config", json!({"motd-banner": "used"})).await.unwrap();
    let set = agent.user(&["set", "ada", "--role", "admin"], "a password to lose");
    assert!(set.status.success(), "{set:?}");
    let ca = fs::read_to_string(agent.ca_file()).unwrap();
    let mut reset =
        FactoryResetClient::with_interceptor(agent.channel().await, agent.credentials());
    reset.start(StartRequest { retain_certs: true, ..Default::default() }).await.unwrap();
    agent.kill();
    agent.restart().await;
    assert_eq!(fs::read_to_string(agent.ca_file()).unwrap(), ca, "it was to be retained");
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1500, vec![]));
    assert!(!agent.show("config").contains("used"));
    let users = agent.user(&["list"], "");
    assert!(!String::from_utf8_lossy(&users.stdout).contains("ada"), "{users:?}");
}

#[tokio::test]
async fn an_operator_resets_the_box_from_its_console() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    agent.gnmi().await.update("/system/config", json!({"motd-banner": "used"})).await.unwrap();
    let pid = agent.pid();
    let reset = |arguments: &[&str]| {
        let mut command = agent.command("factory-reset");
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |octets| String::from_utf8(octets).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (is_done, _, refusal) = reset(&[]);
    assert!(!is_done && refusal.contains("it needs `--yes`"), "{refusal}");
    let TerminalRun { has_succeeded, shown } = at_terminal(&agent.command("factory-reset"), "no\n");
    assert!(!has_succeeded && shown.contains("A factory reset removes:"), "{shown}");
    assert!(shown.contains("the TLS identity of the box"), "{shown}");
    assert!(shown.contains("nothing is removed"), "{shown}");
    assert!(agent.show("config").contains("used"));

    let (is_done, shown, refusal) = reset(&["--retain-certificates", "--yes"]);
    assert!(is_done, "{refusal}");
    assert!(shown.starts_with("removed:\n") && shown.contains("all users"), "{shown}");
    assert!(!shown.contains("TLS identity"), "{shown}");
    eventually("the agent begins anew", || agent.log().matches("listening").count() > 1).await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    assert_eq!(agent.pid(), pid, "in its own place");
    assert!(!agent.show("config").contains("used"));
}
