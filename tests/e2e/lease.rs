//! Leases, alongside configured addresses.

use holdfast_proto::gnmi::Update;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{BootstrapFixture, LEASED, PORT, ServerData};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::union::{native, union};
use crate::union_cases::tried;

/// Case 9 of the union: a description keeps the lease, a configured address hides it, and the rollback of a commit
/// restores it.
#[tokio::test]
async fn configured_address_hides_the_lease_until_removed() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, ServerData::default());
    let _dhcp = bootstrap.dnsmasq().await;
    let options = bootstrap.options_of_factory_new();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let agent = AgentProcess::start_with(&net, &options).await;
    eventually("the port is leased", || net.addresses(PORT) == [LEASED]).await;
    let client = agent.gnmi().await;
    let kernel = || (net.addresses(PORT), net.routes("150").len(), net.link(PORT).alias);
    let path = format!("/interfaces/interface[name={PORT}]");
    let port = |config: serde_json::Value| -> Vec<Update> { vec![native(&path, config)] };

    let origin = |port: &str, family: &str, ip: &str| {
        let link =
            format!("/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]");
        let path = format!("{link}/{family}/addresses/address[ip={ip}]/state/origin");
        let client = &client;
        async move { client.read(&path).await.unwrap() }
    };
    assert_eq!(origin(PORT, "ipv4", "192.0.2.9").await, "DHCP");
    assert_eq!(origin("lo", "ipv4", "127.0.0.1").await, "OTHER");

    tried(&client, port(json!({"description": "uplink"})), kernel).await.unwrap();
    assert_eq!(kernel(), (vec![LEASED.to_owned()], 1, "uplink".to_owned()));
    let own = json!({
        "description": "uplink",
        "ipv4": {"address": [{"ip": "192.0.2.77", "prefix-length": 24}]},
    });
    tried(&client, port(own), kernel).await.unwrap();
    assert_eq!(kernel(), (vec!["192.0.2.77/24".to_owned()], 0, "uplink".to_owned()));
    assert_eq!(origin(PORT, "ipv4", "192.0.2.77").await, "STATIC");
    union(&client, port(json!({"description": "uplink"}))).await.unwrap();
    assert_eq!(kernel(), (vec![LEASED.to_owned()], 1, "uplink".to_owned()));

    // A client that configures the leased address owns it, and the address stays in place.
    let same = json!({"ipv4": {"address": [{"ip": "192.0.2.9", "prefix-length": 24}]}});
    union(&client, port(same)).await.unwrap();
    assert_eq!((net.addresses(PORT), net.routes("150").len()), (vec![LEASED.to_owned()], 0));
    assert_eq!(origin(PORT, "ipv4", "192.0.2.9").await, "STATIC");
}
