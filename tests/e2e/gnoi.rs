//! gNOI System: the clock, and reboots of the agent.

use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{RebootMethod, RebootRequest, RebootStatusRequest, TimeRequest};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::factory::serves;

// proves 3.34, 6.1, 6.5
#[tokio::test]
async fn a_reboot_of_the_agent_leaves_the_kernel_alone_and_is_remembered() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    agent
        .gnmi()
        .await
        .update("/interfaces/interface[name=eth0]/config", json!({"name": "eth0", "mtu": 1414}))
        .await
        .unwrap();
    let mut system = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    assert!(system.time(TimeRequest {}).await.unwrap().into_inner().time > 0);
    let request = RebootRequest {
        method: RebootMethod::Cold as i32,
        message: "new binary".to_owned(),
        ..Default::default()
    };
    let (pid, starts) = (agent.pid(), || agent.log().matches("listening").count());
    let before = starts();
    system.reboot(request).await.unwrap();
    eventually("the agent listens anew", || starts() > before).await;
    eventually_async("the agent is back", || serves(&agent)).await;
    assert_eq!((agent.pid(), net.link("eth0").mtu), (pid, 1400));
    let mut system = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let status = system.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert_eq!((status.active, status.count, status.reason.as_str()), (false, 1, "new binary"));
    let config = agent.gnmi().await.read("/interfaces/interface[name=eth0]/config").await.unwrap();
    assert!(config.to_string().contains("1414"), "{config}");
}
