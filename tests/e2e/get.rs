//! Reading: the four types of data, compared with the kernel.

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::{Encoding, GetRequest, ModelData};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::{GnmiClient, json_of, parse_path};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::{agent_with_port, config_of, ipv4_of};

/// An agent with a port that has an address, an MTU and a description.
async fn configured() -> (Netns, AgentProcess, GnmiClient) {
    let (net, agent, client) = agent_with_port().await;
    client.update(&config_of("eth0"), json!({"mtu": 1414, "description": "uplink"})).await.unwrap();
    (net, agent, client)
}

/// The entry of a port in an answer for `/interfaces`.
fn entry(answer: &Value, port: &str) -> Value {
    let interfaces =
        answer.get("openconfig-interfaces:interface").or_else(|| answer.get("interface"));
    let entries = interfaces
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no list of interfaces in {answer}"));
    entries.iter().find(|entry| entry["name"] == port).cloned().unwrap_or_default()
}

// proves 1.52, 1.53
#[tokio::test]
async fn each_type_of_data_shows_its_own_nodes() {
    let (net, _agent, client) = configured().await;
    let index = net.link("eth0").index;

    let config = entry(&client.read_as("/interfaces", DataType::Config).await.unwrap(), "eth0");
    assert_eq!(config["config"]["mtu"], 1414);
    assert_eq!(config["config"]["description"], "uplink");
    assert_eq!(config.get("state"), None, "{config}");

    let state = entry(&client.read_as("/interfaces", DataType::State).await.unwrap(), "eth0");
    assert_eq!(state.get("config"), None, "{state}");
    assert_eq!(state["state"]["mtu"], 1414);
    assert_eq!(state["state"]["ifindex"], index);
    assert_eq!(state["state"]["oper-status"], "UP");

    let operational =
        entry(&client.read_as("/interfaces", DataType::Operational).await.unwrap(), "eth0");
    assert_eq!(operational.get("config"), None, "{operational}");
    assert_eq!(operational["state"]["oper-status"], "UP");
    assert_eq!(
        operational["state"].get("mtu"),
        None,
        "what mirrors config is not operational: {operational}"
    );

    let all = entry(&client.read("/interfaces").await.unwrap(), "eth0");
    assert_eq!(all["config"], config["config"]);
    assert_eq!(all["state"]["oper-status"], "UP");
}

// proves 1.94
#[tokio::test]
async fn state_is_what_the_kernel_has() {
    let (net, _agent, client) = configured().await;
    let address = format!("{}/addresses/address[ip=192.0.2.1]/state", ipv4_of("eth0"));
    let value = client.read(&address).await.unwrap();
    assert_eq!(value["openconfig-if-ip:prefix-length"], 24, "{value}");

    // A link without configuration is shown as state only.
    let peer = client.read("/interfaces/interface[name=peer0]/state/ifindex").await.unwrap();
    assert_eq!(peer, net.link("peer0").index);
    let config = entry(&client.read_as("/interfaces", DataType::Config).await.unwrap(), "peer0");
    assert_eq!(config, Value::Null);
}

// proves 1.94
#[tokio::test]
async fn state_follows_the_kernel_where_configuration_differs() {
    let (net, _agent, client) = configured().await;
    let policies = json!({"drift-policy": [{"object": "link/eth0", "action": "report"}]});
    client.update("holdfast_native:/reconciliation", policies).await.unwrap();
    let mtu = async |part: &str| {
        client.read(&format!("/interfaces/interface[name=eth0]/{part}/mtu")).await.unwrap()
    };
    assert_eq!((mtu("config").await, mtu("state").await), (json!(1414), json!(1414)));
    net.ip("link set eth0 mtu 1300");
    eventually_async("state follows", || async { mtu("state").await == json!(1314) }).await;
    assert_eq!(mtu("config").await, json!(1414));
}

// proves 1.48
#[tokio::test]
async fn use_models_leaves_out_what_other_modules_add() {
    let (_net, _agent, client) = configured().await;
    let ask = async |models: &[&str]| {
        let use_models =
            models.iter().map(|&name| ModelData { name: name.into(), ..Default::default() });
        let request = GetRequest {
            path: vec![parse_path("/interfaces/interface[name=eth0]")],
            encoding: Encoding::JsonIetf.into(),
            use_models: use_models.collect(),
            ..Default::default()
        };
        let answer = client.get(request).await.unwrap();
        json_of(answer.notification[0].update[0].val.as_ref().unwrap()).to_string()
    };
    for (models, with_addresses) in [
        (&[][..], true),
        (&["openconfig-interfaces"], false),
        (&["openconfig-interfaces", "openconfig-if-ip"], true),
    ] {
        let answer = ask(models).await;
        assert!(answer.contains("uplink"), "{models:?}: {answer}");
        assert_eq!(answer.contains("192.0.2.1"), with_addresses, "{models:?}: {answer}");
    }
}

// proves 1.54, 1.55, 1.56
#[tokio::test]
async fn unreadable_paths_have_their_error_codes() {
    let (_net, _agent, client) = configured().await;
    for (path, code) in [
        ("/interfaces/interface[name=eth0]/no-such-node", tonic::Code::Unimplemented),
        ("/interfaces/interface[name=eth9]", tonic::Code::NotFound),
        ("/interfaces/interface[nom=eth0]", tonic::Code::InvalidArgument),
    ] {
        let refusal = client.read(path).await.unwrap_err();
        assert_eq!(refusal.code(), code, "{path}: {refusal}");
    }
}

// proves 1.60
#[tokio::test]
async fn the_configuration_is_accepted_back_unchanged() {
    let (net, _agent, client) = configured().await;
    let before = client.read_as("/", DataType::Config).await.unwrap();

    client.replace("/", before.clone()).await.unwrap();
    assert_eq!(client.read_as("/", DataType::Config).await.unwrap(), before);
    assert_eq!(net.link("eth0").mtu, 1400);
    assert_eq!(net.addresses("eth0"), ["192.0.2.1/24"]);
}

/// The default network instance is there without any configuration, and each protocol as soon as it is configured, also
/// with nothing but its keys.
#[tokio::test]
async fn the_default_network_instance_is_always_there() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let instance = "/network-instances/network-instance[name=DEFAULT]";
    let fresh = client.read("/network-instances").await.unwrap();
    let entry = &fresh["openconfig-network-instance:network-instance"][0];
    assert_eq!(entry["state"]["name"], "DEFAULT", "{fresh}");
    assert!(entry["state"]["type"].as_str().unwrap().ends_with("DEFAULT_INSTANCE"), "{fresh}");
    let native = "holdfast_native:/network-instances/network-instance[name=DEFAULT]/state/name";
    assert_eq!(client.read(native).await.unwrap(), json!("DEFAULT"));

    let protocol = format!("{instance}/protocols/protocol[identifier=STATIC][name=STATIC]");
    let config = json!({"identifier": "STATIC", "name": "STATIC"});
    client.update(&format!("{protocol}/config"), config).await.unwrap();
    let name = format!("{protocol}/state/name");
    assert_eq!(client.read(&name).await.unwrap(), json!("STATIC"));
    agent.restart().await;
    let client = agent.gnmi().await;
    assert_eq!(client.read(&name).await.unwrap(), json!("STATIC"));
    // The answer can be sent back, and taken away: the instance stays.
    let read = client.read_as("/network-instances", DataType::Config).await;
    client.replace("/network-instances", read.unwrap()).await.unwrap();
    assert_eq!(client.read(&name).await.unwrap(), json!("STATIC"));
    client.delete("/network-instances").await.unwrap();
    assert_eq!(client.read(&name).await.unwrap_err().code(), Code::NotFound);
    let state = format!("{instance}/state/name");
    assert_eq!(client.read(&state).await.unwrap(), json!("DEFAULT"));
    let other = "/network-instances/network-instance[name=red]/config/name";
    assert_eq!(client.update(other, "red").await.unwrap_err().code(), Code::InvalidArgument);
}
