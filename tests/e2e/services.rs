//! Instances of services, from gnmic to the kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use tempfile::TempDir;

const ACME: &str = "holdfast_native:/services/bridge-port[name=acme]";
const BOLT: &str = "holdfast_native:/services/bridge-port[name=bolt]";

/// A folder with the packed example `bridge-port`.
fn packages() -> TempDir {
    let folder = TempDir::with_prefix("services-").unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/services/bridge-port");
    let mut pack = Command::new(binary());
    pack.args(["service", "pack"]).arg(example).arg("--output").arg(folder.path());
    assert!(pack.status().unwrap().success());
    folder
}

async fn update(gnmic: &Gnmic, path: &str, value: &str) {
    gnmic.run(&set(path, value)).await;
}

fn set<'a>(path: &'a str, value: &'a str) -> [&'a str; 7] {
    ["-e", "json_ietf", "set", "--update-path", path, "--update-value", value]
}

fn master(net: &Netns, port: &str) -> Option<String> {
    let found = net.ip_json(&format!("link show dev {port}"));
    found[0]["master"].as_str().map(str::to_owned)
}

// proves sv.A5, sv.J7
#[tokio::test]
async fn customers_share_a_bridge_until_the_last_one_goes() {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let packages = packages();
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);

    update(&gnmic, ACME, r#"{"bridge": "br0", "port": ["eth1"], "gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(master(&net, "eth1").as_deref(), Some("br0"));
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    update(&gnmic, BOLT, r#"{"bridge": "br0", "port": ["eth2"], "gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(master(&net, "eth2").as_deref(), Some("br0"));

    let refused = gnmic.refused(&set(BOLT, r#"{"gateway": "192.0.2.1/25"}"#)).await;
    for part in ["InvalidArgument", "bridge-port[name='acme'] (bridge br0, made)", "`25`"] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    let config = ["-e", "json_ietf", "get", "--type", "config", "--path", "holdfast_native:/"];
    let config = gnmic.json(&config).await.to_string();
    assert!(config.contains("acme") && config.contains("192.0.2.1/24"), "{config}");
    assert!(!config.contains("prefix-length") && !config.contains("master"), "{config}");

    agent.kill();
    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    assert_eq!(monitor.finish(&net).await, [""; 0], "a start in sync makes no operation");
    let gnmic = Gnmic::for_admin(&agent);
    gnmic.run(&["set", "--delete", ACME]).await;
    assert_eq!((master(&net, "eth1"), master(&net, "eth2").as_deref()), (None, Some("br0")));
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    gnmic.run(&["set", "--delete", BOLT]).await;
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
    assert_eq!(master(&net, "eth2"), None);
}

#[tokio::test]
async fn a_package_that_others_could_write_is_not_loaded() {
    let net = Netns::enter();
    let packages = packages();
    let archive = packages.path().join("bridge-port-1.0.0.hfs");
    fs::set_permissions(&archive, fs::Permissions::from_mode(0o666)).unwrap();
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let refused = Gnmic::for_admin(&agent).refused(&set(ACME, r#"{"bridge": "br0"}"#)).await;
    assert!(refused.contains("NotFound"), "{refused}");
}
