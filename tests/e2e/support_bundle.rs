//! `holdfast support-bundle`: what is in it, and what must not be.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use flate2::read::GzDecoder;
use holdfast_tests::agent::{AgentProcess, PASSWORD};
use serde_json::{Value, json};

use crate::documents::port;
use crate::foreign_routes::ports;

/// The files of a bundle by name.
fn files(bundle: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(bundle).unwrap()));
    let file = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name, text)
    };
    archive.entries().unwrap().map(file).collect()
}

fn make(agent: &AgentProcess, bundle: &Path) -> std::process::Output {
    agent.command("support-bundle").arg(bundle).output().unwrap()
}

#[tokio::test]
async fn a_bundle_has_what_tells_of_a_fault_and_no_secret() {
    let net = ports(&["eth0"]);
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let secret = "planted-7f3a9c";
    let interfaces = json!({"interface": [port("eth0", &["10.0.0.1/24"]), port("eth7", &[])]});
    client.update("/interfaces", interfaces).await.unwrap();
    client.update("/system/config/login-banner", json!(format!("call {secret}"))).await.unwrap();
    let key = format!("{:0>8}-00000000-00000000-00000000", "7f3a9c");
    std::fs::write("/proc/sys/net/ipv4/tcp_fastopen_key", &key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("box.tar.gz");
    let output = make(&agent, &bundle);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);

    let found = files(&bundle);
    for (name, text) in [
        ("configuration.json", "eth0"),
        ("export.json", "10.0.0.1"),
        ("pending.txt", "link eth7"),
        ("values.txt", "10.0.0.1/24"),
        ("transactions.txt", "CREATE  address 10.0.0.1/24"),
        ("addresses.json", "10.0.0.1"),
        ("variables.txt", "net.ipv4.conf.eth0.forwarding"),
        ("metrics.txt", "holdfast_"),
        ("doctor.json", "kernel-links"),
    ] {
        assert!(found[name].contains(text), "{name}: {}", found[name]);
    }
    for (name, text) in &found {
        for secret in [secret, PASSWORD, &key] {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }
    let manifest: Value = serde_json::from_str(&found["manifest.json"]).unwrap();
    for part in manifest["parts"].as_array().unwrap() {
        let name = part["name"].as_str().unwrap();
        assert_eq!(found.contains_key(name), part["missing"].is_null(), "{part}");
    }

    let again = make(&agent, &bundle);
    assert!(!again.status.success(), "a file that is there is kept");

    // With the agent dead, the rest is there, and the manifest says what is not.
    agent.kill();
    let bundle = folder.path().join("dead.tar.gz");
    let output = make(&agent, &bundle);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("without values.txt: "), "{said}");
    let found = files(&bundle);
    assert!(found["addresses.json"].contains("10.0.0.1") && !found.contains_key("values.txt"));
    assert!(found["doctor.json"].contains("process-agent"));
    assert!(found["export.json"].contains("10.0.0.1"), "{}", found["export.json"]);
    for (name, text) in &found {
        for secret in [secret, PASSWORD, &key] {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }

    // The copy that was read is not the database: the agent goes on with what it had.
    agent.restart().await;
    let description = agent.gnmi().await.read("/interfaces/interface[name=eth7]/config/name").await;
    assert_eq!(description.unwrap(), json!("eth7"));
    agent.kill();
    std::fs::write(agent.state_dir().join("holdfast.redb"), "no database").unwrap();
    let bundle = folder.path().join("damaged.tar.gz");
    let said = String::from_utf8(make(&agent, &bundle).stdout).unwrap();
    assert!(said.contains("without export.json: the database"), "{said}");
}
