//! What a DHCP client would have got, beside what is configured. Nothing leases yet: the layer is written into the
//! database while the agent is down, as the client of a later start would find it.

use std::path::Path;

use holdfast::store::{Change, Store};
use holdfast_config::schema::Origin;
use holdfast_config::tree::Leaf;
use holdfast_config::{LayerKey, Layers, Mark, Models, Value, layer_rows_diff};
use holdfast_proto::gnmi::Update;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::union::{native, union};
use crate::union_cases::tried;

const PORT: &str = "/interfaces/interface[name=eth0]";
const ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=lease]";

async fn lease(folder: &Path) {
    let models = Models::load().unwrap();
    let schema = models.schema(Origin::Native);
    let mut layers = Layers::new();
    let hop = format!("{ROUTES}/route[prefix=0.0.0.0\\/0]/next-hop[index=0]");
    for (path, value) in [
        (format!("{PORT}/ipv4/address[ip=192.0.2.9]/prefix-length"), Value::Uint(24)),
        (format!("{hop}/next-hop"), Value::Str("192.0.2.254".into())),
        (format!("{hop}/interface"), Value::Str("eth0".into())),
    ] {
        let path = schema.resolve_write(&path.parse().unwrap()).unwrap();
        let leaf = Leaf::new(value, Mark::Explicit);
        layers.tree_mut(LayerKey::LEASE).set_leaf(schema, &path, leaf);
    }
    let rows = layer_rows_diff(&models, &Layers::new(), &layers);
    let (store, _) = Store::open(folder).unwrap();
    store.write(rows.into_iter().map(Change::from).collect()).await.unwrap();
    store.close().await.unwrap();
}

/// Case 9 of the union: a description keeps the lease, an address of its own hides it, and a commit that is taken back
/// brings it back.
#[tokio::test]
async fn a_lease_gives_way_to_an_address_and_comes_back() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    agent.terminate().await;
    lease(&agent.state_dir()).await;
    agent.restart().await;
    let client = agent.gnmi().await;
    let kernel = || (net.addresses("eth0"), net.routes("150").len(), net.link("eth0").alias);
    let port = |config: serde_json::Value| -> Vec<Update> { vec![native(PORT, config)] };

    tried(&client, port(json!({"description": "uplink"})), kernel).await.unwrap();
    assert_eq!(kernel(), (vec!["192.0.2.9/24".to_owned()], 1, "uplink".to_owned()));
    let own = json!({
        "description": "uplink",
        "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]},
    });
    tried(&client, port(own), kernel).await.unwrap();
    assert_eq!(kernel(), (vec!["192.0.2.1/24".to_owned()], 0, "uplink".to_owned()));
    union(&client, port(json!({"description": "uplink"}))).await.unwrap();
    assert_eq!(kernel(), (vec!["192.0.2.9/24".to_owned()], 1, "uplink".to_owned()));
}
