//! The first test of the lab: what a box does first, on the kernel of a guest.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::in_lab;
use holdfast_tests::netns::Netns;
use serde_json::json;

#[tokio::test]
async fn a_box_forwards_to_a_configured_neighbour() {
    in_lab!({
        let net = Netns::enter();
        let beyond = Netns::detached();
        net.add_cable("eth0", &beyond, "peer0");
        beyond.ip("link set peer0 up");
        beyond.ip("address add 192.0.2.2/24 dev peer0");
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let port = json!({"name": "eth0", "mtu": 1400, "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}});
        client.update("holdfast_native:/interfaces", json!({"interface": [port]})).await.unwrap();
        assert_eq!(net.link("eth0").mtu, 1400);
        let ping = agent.command("ping").args(["-c", "1", "192.0.2.2"]).output().unwrap();
        assert!(ping.status.success(), "{ping:?}");
    });
}
