//! Configuration for an absent object waits, and applies when the object appears.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;

use crate::documents::port_with_route;
use crate::routes::OURS;

// proves kv.T11
#[tokio::test]
async fn a_port_that_is_plugged_in_later_gets_its_configuration() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    port_with_route(&client, "eth5").await;
    let waiting = agent.show("pending");
    assert!(waiting.contains("eth5") && waiting.contains("198.51.100.0/24"), "{waiting}");

    let applied = || {
        net.find_link("eth5").is_some_and(|link| link.up)
            && net.addresses("eth5") == ["192.0.2.1/24"]
            && net
                .routes(OURS)
                .iter()
                .any(|route| route.starts_with("198.51.100.0/24 via 192.0.2.2 dev eth5"))
    };
    for _ in 0..2 {
        net.ip("link add eth5 type veth peer name peer5");
        net.ip("link set peer5 up");
        eventually("the configuration is applied", applied).await;
        assert!(!agent.show("pending").contains("eth5"));

        net.ip("link del eth5");
        eventually("it waits again", || agent.show("pending").contains("198.51.100.0/24")).await;
    }
}
