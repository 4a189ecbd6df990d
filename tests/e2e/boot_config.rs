//! Boot configurations: in force at once, kept through power cuts, rolled back when only tried.

use holdfast_proto::bootz;
use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::{
    GetBootConfigRequest, SetBootConfigRequest, SetBootConfigVerifiedRequest,
    set_boot_config_verified_request,
};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::Credentials;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

/// One connection of the admin.
pub(crate) type BootConfigStub = BootConfigClient<InterceptedService<Channel, Credentials>>;

pub(crate) async fn boot_config_stub(agent: &AgentProcess) -> BootConfigStub {
    BootConfigClient::with_interceptor(agent.channel().await, agent.credentials())
}

/// A port with an MTU and an address as vendor_config, a host name as oc_config.
pub(crate) fn mgmt(mtu: u32, hostname: &str) -> bootz::BootConfig {
    let vendor = format!(
        r#"{{"holdfast:interfaces":{{"interface":[{{"name":"eth0","mtu":{mtu},
            "ipv4":{{"address":[{{"ip":"192.0.2.1","prefix-length":24}}]}}}}]}}}}"#
    );
    let openconfig =
        format!(r#"{{"openconfig-system:system":{{"config":{{"hostname":"{hostname}"}}}}}}"#);
    bootz::BootConfig {
        vendor_config: vendor.into(),
        oc_config: openconfig.into(),
        ..Default::default()
    }
}

pub(crate) async fn set_boot(
    boots: &mut BootConfigStub,
    config: bootz::BootConfig,
) -> Result<(), Status> {
    let request = SetBootConfigRequest { boot_config: Some(config), ..Default::default() };
    boots.set_boot_config(request).await.map(drop)
}

pub(crate) async fn get_boot(boots: &mut BootConfigStub) -> Option<bootz::BootConfig> {
    boots.get_boot_config(GetBootConfigRequest {}).await.unwrap().into_inner().boot_config
}

// proves 3.7, 3.8, 3.19, 3.32, 3.35, 4.75, 4.79
#[tokio::test]
async fn a_boot_configuration_is_in_force_at_once_and_after_a_power_cut() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    let path = ("/system/state/hostname", SubscriptionMode::OnChange);
    let client = agent.gnmi().await;
    let mut names = client.subscribe(subscribe_to(Mode::Stream, &[path])).await.unwrap();
    names.until_sync().await;
    let mut channel = boot_config_stub(&agent).await;
    set_boot(&mut channel, mgmt(1400, "booted")).await.unwrap();
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1400, vec!["192.0.2.1/24".into()]));
    names.until("booted").await;

    let effective = agent.show("state");
    agent.kill();
    net.ip("address flush dev eth0");
    net.ip("link set eth0 mtu 1500");
    agent.restart().await;
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1400, vec!["192.0.2.1/24".into()]));
    assert!(effective.contains("booted") && agent.show("state").contains("booted"));
    let mut channel = boot_config_stub(&agent).await;
    assert_eq!(get_boot(&mut channel).await, Some(mgmt(1400, "booted")));

    set_boot(&mut channel, bootz::BootConfig::default()).await.unwrap();
    assert_eq!((net.link("eth0").mtu, net.addresses("eth0")), (1500, vec![]));
}

// proves 4.80, 4.81
#[tokio::test]
async fn kill_during_boot_config_trial_restores_the_old_one() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    let mut channel = boot_config_stub(&agent).await;
    set_boot(&mut channel, mgmt(1400, "first")).await.unwrap();
    let set = SetBootConfigRequest { boot_config: Some(mgmt(1300, "tried")), ..Default::default() };
    let step = SetBootConfigVerifiedRequest {
        set_request: Some(set_boot_config_verified_request::SetRequest::Set(set)),
    };
    let steps = tokio_stream::once(step).chain(tokio_stream::pending());
    let answers = channel.set_boot_config_verified(steps).await.unwrap();
    answers.into_inner().message().await.unwrap().unwrap();
    assert_eq!(net.link("eth0").mtu, 1300);
    agent.kill();

    agent.restart().await;
    assert_eq!(net.link("eth0").mtu, 1400);
    let mut channel = boot_config_stub(&agent).await;
    assert_eq!(get_boot(&mut channel).await, Some(mgmt(1400, "first")));
    // The client of the trial has gone.
    set_boot(&mut channel, mgmt(1350, "second")).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1350);

    // The trial of a client that has gone is rolled back.
    let set = SetBootConfigRequest { boot_config: Some(mgmt(1300, "tried")), ..Default::default() };
    let step = SetBootConfigVerifiedRequest {
        set_request: Some(set_boot_config_verified_request::SetRequest::Set(set)),
    };
    let steps = tokio_stream::once(step);
    let answers = channel.set_boot_config_verified(steps).await.unwrap();
    answers.into_inner().message().await.unwrap().unwrap();
    eventually("the MTU is back", || net.link("eth0").mtu == 1350).await;
}
