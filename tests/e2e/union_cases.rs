//! The cases of section 6 of agent/config/UNION.md that need a box with a factory configuration, or one that booted with one.
//!
//! Each union_replace is tried first: committed with a confirmation timeout, and rolled back.

use std::fmt::Debug;
use std::fs;

use holdfast_proto::gnmi::{SetRequest, SetResponse, Update};
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{self, Extension, commit::Action};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use serde_json::json;
use tempfile::TempDir;
use tonic::{Code, Status};

use crate::boot_config::{boot_config_stub, mgmt, set_boot};
use crate::documents::{config_of, port};
use crate::reserved_items::switch;
use crate::union::{check_refusal, cli, config, interfaces, union};

/// A factory configuration with all ports disabled, and a banner.
const FACTORY: &str = r#"{
    "holdfast:interfaces": {"interface": [{"name": "eth0", "enabled": false}, {"name": "eth1", "enabled": false}]},
    "holdfast:system": {"motd-banner": "fresh"}}"#;

/// Makes a union_replace, rolls it back, and makes it again.
pub(crate) async fn tried<K: PartialEq + Debug>(
    client: &GnmiClient,
    entries: Vec<Update>,
    kernel: impl Fn() -> K,
) -> Result<SetResponse, Status> {
    let commit = |action| {
        let commit = gnmi_ext::Commit { id: "tried".into(), action: Some(action) };
        vec![Extension { ext: Some(Ext::Commit(commit)) }]
    };
    let before = kernel();
    let window = commit(Action::Commit(gnmi_ext::CommitRequest::default()));
    let first =
        SetRequest { union_replace: entries.clone(), extension: window, ..Default::default() };
    client.set(first).await?;
    let objects = kernel();
    let cancel = commit(Action::Cancel(gnmi_ext::CommitCancel {}));
    client.set(SetRequest { extension: cancel, ..Default::default() }).await?;
    assert_eq!(kernel(), before, "taken back");
    let answer = union(client, entries).await?;
    assert_eq!(kernel(), objects, "made again");
    Ok(answer)
}

async fn from_factory(net: &Netns) -> (TempDir, AgentProcess) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("factory.json");
    fs::write(&file, FACTORY).unwrap();
    let agent = AgentProcess::start_with(net, &["--factory", file.to_str().unwrap()]).await;
    (folder, agent)
}

/// Cases 1, 2 and 8.
// proves 2.14, 2.15, 2.17, 2.18, 2.24, 2.31, 1.89
#[tokio::test]
async fn union_replace_resets_factory_ports() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set eth0 up");
    net.ip("link set eth1 up");
    let (_folder, agent) = from_factory(&net).await;
    let client = agent.gnmi().await;
    let banner = || fs::read_to_string(agent.root().join("etc/motd")).unwrap_or_default();
    let kernel = || (net.link("eth0").up, net.link("eth1").up, net.link("eth1").mtu, banner());
    let fresh = "fresh\n".to_owned();
    assert_eq!(kernel(), (false, false, 1500, fresh.clone()));
    let eth1 =
        || interfaces(json!([{"name": "eth1", "config": {"name": "eth1", "description": "one"}}]));

    client.set(SetRequest { replace: vec![eth1()], ..Default::default() }).await.unwrap();
    assert_eq!(kernel(), (false, true, 1500, String::new()));
    let document = config(&client, "openconfig").await;
    let monitor = Monitor::start(&net).await;
    client.replace("/", document.clone()).await.unwrap();
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    assert_eq!(config(&client, "openconfig").await, document);

    tried(&client, vec![cli("interface eth1\n  mtu 1400")], kernel).await.unwrap();
    assert_eq!(kernel(), (false, false, 1400, fresh.clone()), "ports and banner are back");
    tried(&client, vec![cli("no system motd-banner"), eth1()], kernel).await.unwrap();
    assert_eq!(kernel(), (false, true, 1500, String::new()), "negated; OpenConfig's default");
    tried(&client, vec![eth1(), cli("interface eth1\n  enabled false")], kernel).await.unwrap();
    assert_eq!(kernel(), (false, false, 1500, fresh), "asked for");

    let refused = tried(&client, vec![cli("no interface eth1"), eth1()], kernel).await.unwrap_err();
    check_refusal(
        &refused,
        Code::InvalidArgument,
        &["line 1: no interface eth1", "interface[name=eth1]"],
    );
}

/// Cases 6 and 10.
// proves 2.14, 2.54
#[tokio::test]
async fn boot_layers_stay_in_force_beside_every_union() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let name = async || client.read("/system/state/hostname").await.unwrap();
    let kernel = || (net.link("eth0").mtu, net.addresses("eth0"), net.link("eth1").alias);
    union(&client, vec![update("/system/config/hostname", "mine")]).await.unwrap();
    set_boot(&mut boot_config_stub(&agent).await, mgmt(1400, "booted")).await.unwrap();
    let booted = (1400, vec!["192.0.2.1/24".to_owned()]);

    let own = || update("/system/config/hostname", "mine");
    let eth1 = || interfaces(json!([port("eth1", &[])]));
    let described = |text: &str| update(&config_of("eth1"), json!({"description": text}));
    tried(&client, vec![own(), eth1(), described("one")], kernel).await.unwrap();
    assert_eq!(
        (kernel(), name().await),
        ((booted.0, booted.1.clone(), "one".into()), json!("booted"))
    );
    tried(&client, vec![own(), cli("interface eth1\n  description two")], kernel).await.unwrap();
    assert_eq!(
        (kernel(), name().await),
        ((booted.0, booted.1.clone(), "two".into()), json!("booted"))
    );

    for (entries, words) in [
        (vec![own(), cli("interface eth0\n  enabled false")], ["line 2: enabled false", "bootz"]),
        (vec![own(), cli("no interface eth0")], ["line 1: no interface eth0", "bootz"]),
        (vec![own(), update(&config_of("eth0"), json!({"mtu": 1314}))], ["config/mtu", "bootz"]),
        (vec![update("/system/config/hostname", "other")], ["/system/config/hostname", "bootz"]),
    ] {
        let refused = union(&client, entries).await.unwrap_err();
        check_refusal(&refused, Code::PermissionDenied, &words);
    }

    switch(&agent, &["bootz", "off"]);
    assert_eq!(name().await, "mine");
    switch(&agent, &["bootz", "on"]);
    assert_eq!(name().await, "booted");
    let mut without = mgmt(1400, "booted");
    without.oc_config.clear();
    set_boot(&mut boot_config_stub(&agent).await, without).await.unwrap();
    assert_eq!(name().await, "mine");
    assert_eq!((kernel().0, kernel().1), booted);
}
