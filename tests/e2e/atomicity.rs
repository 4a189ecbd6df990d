//! Atomicity: a Set that the kernel refuses leaves no trace.

use std::time::Duration;

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{SetRequest, SubscriptionMode, Update};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::update;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::json;
use tonic::Code;

use crate::documents::{STATIC_ROUTES, config_of, port, route};

/// Time in which a subscriber must get no update.
const SILENCE: Duration = Duration::from_millis(800);

// proves 1.67, 1.68
#[tokio::test]
async fn failing_operation_rolls_back_the_whole_set() {
    // A gateway that is the broadcast address of its network: well-formed, and refused by the kernel.
    let third = update(STATIC_ROUTES, json!({"static": [route("198.51.100.0/24", "192.0.2.255")]}));
    check_rolled_back(third, Code::Internal, &["198.51.100.0/24", "EINVAL"]).await;
}

/// Sends two harmless operations before `third`, which the kernel refuses for a reason that the answer names.
async fn check_rolled_back(third: Update, code: Code, parts: &[&str]) {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    for end in ["eth0", "peer0", "eth1", "peer1"] {
        net.ip(&format!("link set {end} up"));
    }
    std::fs::write("/proc/sys/net/ipv6/conf/eth1/disable_ipv6", "1").unwrap();
    // The end of the detection of duplicate addresses changes their state.
    let is_settled = || net.ip("-6 address show tentative").trim().is_empty();
    eventually("addresses are no longer tentative", is_settled).await;
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client
        .update("/interfaces", json!({"interface": [port("eth0", &["192.0.2.1/24"])]}))
        .await
        .unwrap();
    let paths = [
        ("/interfaces", SubscriptionMode::OnChange),
        ("/network-instances", SubscriptionMode::OnChange),
    ];
    let mut stream = client.subscribe(subscribe_to(Mode::Stream, &paths)).await.unwrap();
    stream.until_sync().await;
    stream.updates_within(SILENCE).await; // IPv6 address detection and the like
    let kernel =
        || (net.link("eth0"), net.link("eth1"), net.addresses("eth1"), net.ip("-4 route show"));
    let config_before = client.read_as("/", DataType::Config).await.unwrap();
    let kernel_before = kernel();

    let request = SetRequest {
        update: vec![
            update(&config_of("eth0"), json!({"mtu": 1414})),
            update(&config_of("eth1"), json!({"description": "never"})),
            third,
        ],
        ..Default::default()
    };
    let refusal = client.set(request).await.unwrap_err();
    assert_eq!(refusal.code(), code, "{refusal}");

    assert_eq!(client.read_as("/", DataType::Config).await.unwrap(), config_before);
    assert_eq!(kernel(), kernel_before);
    let updates = stream.updates_within(SILENCE).await;
    assert!(updates.is_empty(), "{updates:#?}");
    for name in parts {
        assert!(refusal.message().contains(name), "`{name}` is not in: {}", refusal.message());
    }
}
