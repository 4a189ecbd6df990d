//! Speed, duplex and negotiation in the configuration of a port, as controllers send them with every port.

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::union::{cli, config, interfaces, native, union};

const PORT: &str = "/interfaces/interface[name=eth0]";

/// A port with these leaves in `ethernet/config`.
fn port(name: &str, ethernet: &Value) -> Value {
    json!({
        "name": name,
        "config": {"name": name, "type": "iana-if-type:ethernetCsmacd"},
        "openconfig-if-ethernet:ethernet": {"config": ethernet},
    })
}

fn speed(identity: &str) -> Value {
    json!({"port-speed": format!("openconfig-if-ethernet:{identity}")})
}

/// Speed, duplex and negotiation of a veth link.
fn own() -> Value {
    json!({
        "port-speed": "openconfig-if-ethernet:SPEED_10GB",
        "duplex-mode": "FULL",
        "auto-negotiate": false,
    })
}

#[track_caller]
fn check_refusal(refused: Status, parts: &[&str]) {
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    for part in parts {
        assert!(refused.message().contains(part), "{part}: {}", refused.message());
    }
}

/// The leaf of `config` and that of `state`, without module names.
async fn config_and_state(client: &GnmiClient, name: &str, leaf: &str) -> [Value; 2] {
    let read = async |container: &str| {
        let path = format!("/interfaces/interface[name={name}]/ethernet/{container}/{leaf}");
        client.read(&path).await.unwrap_or_default()
    };
    [read("config").await, read("state").await]
}

#[tokio::test]
async fn port_accepts_its_own_speed() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.replace(PORT, port("eth0", &own())).await.unwrap();
    for (leaf, value) in own().as_object().unwrap() {
        assert_eq!(config_and_state(&client, "eth0", leaf).await, [value.clone(), value.clone()]);
    }
    assert!(!agent.show("pending").contains("eth0"));

    // A controller reads the configuration, and sends it back.
    eventually("ports show what their cables are", || net.has_consistent_link_states()).await;
    let monitor = Monitor::start(&net).await;
    let config = client.read_as("/", DataType::Config).await.unwrap();
    client.replace("/", config.clone()).await.unwrap();
    assert_eq!(client.read_as("/", DataType::Config).await.unwrap(), config);
    assert_eq!(monitor.finish(&net).await, [""; 0]);

    for leaf in ["port-speed", "duplex-mode", "auto-negotiate"] {
        client.delete(&format!("{PORT}/ethernet/config/{leaf}")).await.unwrap();
        let [config, state] = config_and_state(&client, "eth0", leaf).await;
        assert_eq!((config, &state), (Value::Null, &own()[leaf]));
    }
}

#[tokio::test]
async fn port_refuses_an_unsupported_speed() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let running = [config(&client, "openconfig").await, config(&client, "holdfast_native").await];
    for (leaf, value, reason) in [
        (
            "port-speed",
            json!("SPEED_1GB"),
            "port `eth0` has a speed of 10000 Mbit/s, not a speed of 1000",
        ),
        ("duplex-mode", json!("HALF"), "port `eth0` has full duplex, not half duplex"),
        (
            "auto-negotiate",
            json!(true),
            "port `eth0` has autonegotiation off, not autonegotiation on",
        ),
    ] {
        let path = format!("{PORT}/ethernet/config/{leaf}");
        let mut ethernet = own();
        ethernet[leaf] = value;
        let entry = port("eth0", &ethernet);
        let refused = client.replace(PORT, entry.clone()).await.unwrap_err();
        check_refusal(refused, &[&path, reason, "the agent cannot change that"]);
        let refused = union(&client, vec![interfaces(json!([entry]))]).await.unwrap_err();
        check_refusal(refused, &[&path, reason]);
    }
    for (entry, parts) in [
        (
            native(&format!("{PORT}/port-speed"), 1000),
            "/interfaces/interface[name=eth0]/port-speed",
        ),
        (cli("interface eth0\n  port-speed 1000"), "port-speed"),
    ] {
        let refused = union(&client, vec![entry]).await.unwrap_err();
        check_refusal(refused, &[parts, "has a speed of 10000 Mbit/s"]);
    }
    let after = [config(&client, "openconfig").await, config(&client, "holdfast_native").await];
    assert_eq!(after, running);
    union(&client, vec![cli("interface eth0\n  port-speed 10000")]).await.unwrap();
    union(&client, vec![interfaces(json!([port("eth0", &own())]))]).await.unwrap();
    assert!(!agent.show("pending").contains("eth0"));
}

/// Nothing is known of an absent port: if it appears with another speed, its state shows that, and the rest of its
/// configuration applies.
// proves 1.94
#[tokio::test]
async fn a_port_that_comes_with_another_speed_shows_both() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let slow = "port eth9 with a speed of 1000 Mbit/s";
    let mut entry = port("eth9", &speed("SPEED_1GB"));
    entry["config"]["mtu"] = json!(1414);
    client.replace("/interfaces/interface[name=eth9]", entry).await.unwrap();
    net.ip("link add eth9 type veth peer name peer9");
    eventually("the port is configured", || net.link("eth9").mtu == 1400).await;
    eventually("it waits for the speed alone", || {
        let pending = agent.show("pending");
        let lines: Vec<&str> = pending.lines().filter(|line| line.contains("eth9")).collect();
        matches!(lines[..], [line] if line.starts_with("PENDING") && line.contains(slow))
    })
    .await;
    let both = ["SPEED_1GB", "SPEED_10GB"].map(|it| speed(it)["port-speed"].clone());
    assert_eq!(config_and_state(&client, "eth9", "port-speed").await, both);

    agent.restart().await;
    assert!(agent.show("pending").contains(slow));
    let client = agent.gnmi().await;
    let path = "/interfaces/interface[name=eth9]/ethernet/config";
    client.update(path, speed("SPEED_10GB")).await.unwrap();
    assert!(!agent.show("pending").contains("eth9"));
    check_refusal(client.update(path, speed("SPEED_1GB")).await.unwrap_err(), &["eth9"]);
}
