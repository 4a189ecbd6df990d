//! Boxes that have just left the factory: they find their address and their server by DHCP, without an operator.

use std::fs;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{
    BootstrapFixture, GATEWAY, IMAGE, IMAGE_SHA256, LEASED, LEASED_V6, PORT, ServerData,
    ServerProcess, bootz, image,
};
use holdfast_tests::dhcp::HostileDhcp;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;

use crate::bootz::{install_by, leaf, until_status};
use crate::factory::accepts_connections;

const OPENCONFIG: &str = r#"{"openconfig-system:system":{"config":{"hostname":"bootstrapped"}}}"#;
const HOSTNAME: &str = "/system/state/hostname";

fn server_data() -> ServerData<'static> {
    ServerData { openconfig: OPENCONFIG, ..ServerData::default() }
}

async fn start_factory_new(
    net: &Netns,
    bootstrap: &BootstrapFixture,
    more: &[&str],
) -> AgentProcess {
    let options = bootstrap.options_of_factory_new();
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    AgentProcess::start_with(net, &options).await
}

fn bootz_status(agent: &AgentProcess) -> String {
    bootz(agent, &["status"])
}

async fn check_bootstrapped(agent: &AgentProcess) {
    until_status(agent, "BOOTZ_OK").await;
    assert_eq!(agent.gnmi().await.read(HOSTNAME).await.unwrap(), json!("bootstrapped"));
}

fn default_route() -> String {
    format!("default via {GATEWAY} dev {PORT} metric 20")
}

// proves 4.2, 4.3, 4.4, 4.9
#[tokio::test]
async fn a_factory_new_box_finds_its_server_by_dhcp() {
    let net = Netns::enter();
    let bootstrap =
        BootstrapFixture::factory_new(&net, ServerData { streaming: true, ..server_data() });
    assert!(!net.link(PORT).up);
    let _server = bootstrap.emulator().await;
    let dhcp = bootstrap.dnsmasq().await;
    let mut agent = start_factory_new(&net, &bootstrap, &[]).await;
    check_bootstrapped(&agent).await;
    assert_eq!(net.addresses(PORT), [LEASED]);
    assert_eq!(net.routes("150"), [default_route()]);
    let status = bootz_status(&agent);
    for line in [
        "the box is factory-new: starting to bootstrap by DHCP",
        "DHCP named bootz://192.0.2.1:15006",
        "bootstrapped: the server knows",
        "lease: 192.0.2.9/24 on mgmt0",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let requests = dhcp.log();
    assert!(requests.contains("DHCPDISCOVER(box0)"), "{requests}");
    let requested = |line: &str| line.contains("requested options") && line.contains("143");
    assert!(requests.lines().any(requested), "{requests}");

    // After a restart the box can be reached by its lease, and is not bootstrapped again.
    agent.restart().await;
    eventually("the lease is asked for again", || dhcp.log().matches("DHCPACK(box0)").count() > 1)
        .await;
    assert_eq!(
        (net.addresses(PORT), net.routes("150")),
        (vec![LEASED.into()], vec![default_route()])
    );
    assert!(bootz_status(&agent).contains("bootz: nothing to do"));

    // Configuration of the operator on the port is stronger, and does not remove the lease.
    let client = agent.gnmi().await;
    let address = format!(
        "/interfaces/interface[name={PORT}]/subinterfaces/subinterface[index=0]/ipv4/addresses/address[ip=192.0.2.77]"
    );
    client.update(&format!("{address}/config/prefix-length"), 24).await.unwrap();
    assert_eq!((net.addresses(PORT), net.routes("150").len()), (vec!["192.0.2.77/24".into()], 0));
    client.delete(&address).await.unwrap();
    assert_eq!(
        (net.addresses(PORT), net.routes("150")),
        (vec![LEASED.into()], vec![default_route()])
    );

    // A box that is started without the port gives up a lease that is no longer renewed.
    let options = bootstrap.options();
    agent.set_options(&options);
    agent.restart().await;
    assert_eq!((net.addresses(PORT), net.routes("150")), (Vec::new(), Vec::new()));
}

/// A malicious DHCP server: the box accepts nothing from it, stays in service, and finds the right one.
#[tokio::test]
async fn hostile_dhcp_server_costs_bounded_memory() {
    const MOST_MEMORY: u64 = 32 << 20;
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, server_data());
    bootstrap.server.ip("route add default dev box0"); // for answers by broadcast
    let hostile = HostileDhcp::start(&bootstrap.server);
    let agent = start_factory_new(&net, &bootstrap, &[]).await;
    let before = agent.resident_bytes();
    eventually("the box asks again", || hostile.answered() > 1).await;
    assert!(accepts_connections(&agent).await, "everybody else is served");
    let more = agent.resident_bytes().saturating_sub(before);
    assert!(more < MOST_MEMORY, "{more} bytes more");
    assert_eq!((net.addresses(PORT), net.routes("150").len()), (Vec::new(), 0));

    drop(hostile);
    let _server = bootstrap.emulator().await;
    let _dhcp = bootstrap.dnsmasq().await;
    check_bootstrapped(&agent).await;
}

/// The emulator answers only clients that ask for the option. The agent's own services are in another namespace than
/// the port.
// proves 4.2, 4.3, 4.4
#[tokio::test]
async fn the_dhcp_server_of_the_emulator_leads_to_it_in_the_managed_namespace() {
    let here = Netns::enter();
    let managed = Netns::detached();
    let bootstrap = BootstrapFixture::factory_new(&managed, server_data());
    let _server = bootstrap.emulator_with_dhcp(&managed).await;
    let agent = start_factory_new(&here, &bootstrap, &["--netns", managed.path()]).await;
    check_bootstrapped(&agent).await;
    assert_eq!(managed.addresses(PORT), [LEASED]);
    assert_eq!(here.find_link(PORT), None);
}

// proves 4.3, 4.4
#[tokio::test]
async fn a_box_that_gets_ipv6_alone_is_bootstrapped_over_it() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, ServerData { v6: true, ..server_data() });
    let _server = bootstrap.faulty("none").await;
    let dhcp = bootstrap.dnsmasq().await;
    let agent = start_factory_new(&net, &bootstrap, &[]).await;
    // The lease may come before the router has announced the prefix: then the first attempt has no route.
    let ended =
        || ["status: BOOTZ_OK", "failed:"].iter().any(|end| bootz_status(&agent).contains(end));
    eventually("an attempt ends", ended).await;
    eventually("the prefix is announced", || net.ip("-6 route").contains("2001:db8::/64")).await;
    if !bootz_status(&agent).contains("status: BOOTZ_OK") {
        bootz(&agent, &["start"]);
    }
    check_bootstrapped(&agent).await;
    assert!(net.addresses(PORT).contains(&LEASED_V6.to_owned()), "{:?}", net.addresses(PORT));
    assert!(bootz_status(&agent).contains("DHCP named bootz://[2001:db8::1]:15006"));
    let requests = dhcp.log();
    assert!(
        requests.lines().any(|line| line.contains("requested options") && line.contains("136"))
    );
}

#[tokio::test]
async fn lease_is_renewed_and_removed_on_expiry() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, server_data());
    let _server = bootstrap.emulator().await;
    let dhcp = bootstrap.short_leases().await;
    let agent = start_factory_new(&net, &bootstrap, &[]).await;
    check_bootstrapped(&agent).await;
    let renewals = || dhcp.log().matches("REQUEST of 192.0.2.9 from 192.0.2.9").count();
    eventually("it is renewed beyond its time", || renewals() > 2).await;
    assert_eq!(
        (net.addresses(PORT), net.routes("150")),
        (vec![LEASED.into()], vec![default_route()])
    );
    drop(dhcp);
    eventually("it is taken back", || net.addresses(PORT).is_empty()).await;
    assert_eq!((net.routes("150").len(), net.link(PORT).up), (0, true));
    assert!(!bootz_status(&agent).contains("lease:"));
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_OK"));
}

/// The security floor: no client without a password is let in, at any stage of the bootstrap.
// proves 3.36, 4.8, 4.10
#[tokio::test]
async fn unbootstrapped_box_refuses_strangers_and_serves_its_operator() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, server_data());
    let mut agent = start_factory_new(&net, &bootstrap, &[]).await;
    eventually("it asks", || bootz_status(&agent).contains("bootz: attempting by DHCP")).await;
    for (name, password) in [("admin", "a guess"), ("nobody", "correct horse battery staple")] {
        let stranger = Credentials::new(name, password).unwrap();
        let refused = GnmiClient::over(agent.channel().await, stranger).read(HOSTNAME).await;
        assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    }
    // The bootstrap goes on after a power cut, and ends with a configuration.
    agent.restart().await;
    assert!(bootz_status(&agent).contains("bootz: attempting by DHCP"));
    agent.gnmi().await.update("/system/config/hostname", "mine").await.unwrap();
    eventually("it stands aside", || bootz_status(&agent).contains("bootz: nothing to do")).await;
    assert!(bootz_status(&agent).contains("the box has been configured by an operator"));
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_UNSPECIFIED"));
    agent.restart().await;
    assert!(
        bootz_status(&agent).contains("bootz: nothing to do"),
        "it is not factory-new any more"
    );

    // A reset makes it factory-new, unless bootz is switched off.
    let switched = |state: &str| {
        let output = agent.command("switch").args(["bootz", state]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let reset = || {
        let output = agent.command("factory-reset").arg("--yes").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let ca = || fs::read_to_string(agent.ca_file()).unwrap_or_default();
    let before = ca();
    reset();
    eventually("a new identity", || !ca().is_empty() && ca() != before).await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    eventually("it asks again", || bootz_status(&agent).contains("bootz: attempting by DHCP"))
        .await;
    bootz(&agent, &["terminate"]);
    switched("off");
    agent.restart().await;
    assert!(bootz_status(&agent).contains("bootz: nothing to do"), "bootz is switched off");
}

// proves 4.10
#[tokio::test]
async fn a_reset_leads_back_through_dhcp_into_production() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::factory_new(&net, server_data());
    let server = bootstrap.emulator().await;
    let _dhcp = bootstrap.dnsmasq().await;
    let agent = start_factory_new(&net, &bootstrap, &[]).await;
    check_bootstrapped(&agent).await;
    let reports = || server.log().matches("BOOTSTRAP_STATUS_SUCCESS").count();
    let before = reports();
    bootz(&agent, &["reset"]);
    eventually("it is bootstrapped again", || reports() > before).await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    check_bootstrapped(&agent).await;
}

/// A power cut in each step: once the obstacle of that step is removed, the box gets to production without help.
// proves 4.6, 4.22
#[tokio::test]
async fn a_power_cut_in_any_step_ends_in_a_configured_box() {
    for (holds, step) in [
        ("dhcp", "asking DHCP for an address"),
        ("server", "connecting to"),
        ("stall-data", "asking for the data of this box"),
        ("image", "installing image 2"),
        ("nothing", "bringing the configuration into force"),
        ("nothing", "the configuration is in force"),
        ("stall-report", "reporting to"),
    ] {
        let net = Netns::enter();
        let folder = TempDir::new().unwrap();
        let image = image(IMAGE, IMAGE_SHA256);
        let command = folder.path().join("install");
        let data = ServerData { image: &image, ..server_data() };
        let bootstrap = BootstrapFixture::factory_new(&net, data);
        let mut servers: Vec<ServerProcess> = Vec::new();
        if holds != "dhcp" {
            servers.push(bootstrap.dnsmasq().await);
        }
        if holds != "server" {
            let fault = if holds.starts_with("stall") { holds } else { "none" };
            servers.push(bootstrap.faulty(fault).await);
        }
        install_by(&command, if holds == "image" { "exec sleep 1000" } else { "exit 0" });
        let program = command.to_str().unwrap();
        let options = ["--image-command", program, "--image-version", "1", "--bootz-rpc", "unary"];
        let mut agent = start_factory_new(&net, &bootstrap, &options).await;
        eventually(step, || agent.log().contains(step)).await;
        agent.kill();

        drop(servers);
        let _servers = (bootstrap.dnsmasq().await, bootstrap.faulty("none").await);
        install_by(&command, "exit 0");
        agent.restart().await;
        eprintln!("cut off while: {step}");
        check_bootstrapped(&agent).await;
        assert_eq!(
            (net.addresses(PORT), net.routes("150")),
            (vec![LEASED.into()], vec![default_route()])
        );
    }
}
