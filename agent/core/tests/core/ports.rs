//! Speed and duplex in the configuration of a port: accepted if the port has them, otherwise refused by name.

use holdfast_base::ErrorChain;
use holdfast_config::{BootChange, BootConfiguration};
use holdfast_platform::values::{Duplex, Ethernet};

use super::*;

const ETHERNET: &str = "/interfaces/interface[name=eth0]/ethernet/config";
const SLOW: &[&str] = &["port eth0 with a speed of 1000 Mbit/s"];

/// A port with a full-duplex cable of this speed, on which both ends negotiate.
fn cable(mbps: u32) -> Ethernet {
    let duplex = Some(Duplex::Full);
    Ethernet { link: "eth0".into(), speed_mbps: Some(mbps), duplex, auto_negotiate: Some(true) }
}

/// The port with these leaves in `config` and in `ethernet/config`.
fn port(config: &str, ethernet: &str) -> String {
    format!(
        r#"{{"openconfig-interfaces:interfaces": {{"interface": [{{
            "name": "eth0",
            "config": {{"name": "eth0", "type": "iana-if-type:ethernetCsmacd"{config}}},
            "openconfig-if-ethernet:ethernet": {{"config": {{{ethernet}}}}}}}]}}}}"#
    )
}

fn speed(identity: &str) -> String {
    port("", &format!(r#""port-speed": "openconfig-if-ethernet:{identity}""#))
}

fn replacing(document: &str) -> Edit {
    let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
    let payload = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true };
    Edit { replaces: vec![(target, payload)], ..Edit::default() }
}

async fn replace(agent: &Agent, document: &str) -> Result<CommitStamp, CommitError> {
    let edit = replacing(document);
    let result = agent.handle.commit(&caller(), edit, CommitOptions::default()).await;
    agent.handle.current_revision().await;
    result
}

/// Missing dependencies of all pending values.
async fn waits(agent: &Agent) -> Vec<String> {
    let pending = agent.handle.statuses(true).await.unwrap();
    pending.into_iter().flat_map(|status| status.detail.unmet).collect()
}

async fn until_waiting(agent: &Agent, paths: &[&str]) {
    while waits(agent).await != paths {
        agent.pass(Duration::from_millis(50)).await;
    }
}

/// A Set, its dry run, and a boot configuration are answered alike.
#[tokio::test]
async fn a_port_is_configured_with_what_it_has_and_nothing_else() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    kernel.set_ethernet(cable(1_000));
    let agent = Agent::start(&kernel, folder.path()).await;
    let full = r#""port-speed": "openconfig-if-ethernet:SPEED_1GB", "duplex-mode": "FULL", "auto-negotiate": true"#;
    for (ethernet, refused) in [
        (full, None),
        (
            r#""port-speed": "openconfig-if-ethernet:SPEED_10GB""#,
            Some(("port-speed", "a speed of 1000 Mbit/s, not a speed of 10000 Mbit/s")),
        ),
        (
            r#""port-speed": "openconfig-if-ethernet:SPEED_UNKNOWN""#,
            Some(("port-speed", "not a speed that a port can be configured with")),
        ),
        (r#""duplex-mode": "HALF""#, Some(("duplex-mode", "full duplex, not half duplex"))),
        (
            r#""auto-negotiate": false"#,
            Some(("auto-negotiate", "autonegotiation on, not autonegotiation off")),
        ),
        (r#""auto-negotiate": true"#, None),
        ("", None),
    ] {
        let document = port("", ethernet);
        let before = agent.published_text();
        let edit = replacing(&document);
        let previewed =
            agent.handle.preview(&caller(), Intent::edit(edit), CommitOptions::default()).await;
        let boot = BootConfiguration {
            openconfig: document.clone().into(),
            ..BootConfiguration::default()
        };
        let boot = Intent::boot(BootChange::Set(Some(Arc::new(boot))));
        let booted = agent.handle.change(&caller(), boot).await;
        let nothing = Intent::boot(BootChange::Set(None));
        agent.handle.change(&caller(), nothing).await.unwrap();
        let set = replace(&agent, &document).await;
        for error in [previewed.err(), booted.err(), set.err()] {
            let error = error.map(|error| ErrorChain(&error).to_string());
            let Some((leaf, reason)) = refused else {
                assert_eq!(error, None, "{ethernet}");
                continue;
            };
            let error = error.unwrap();
            for part in [format!("{ETHERNET}/{leaf}"), reason.to_owned()] {
                assert!(error.contains(&part), "{part}: {error}");
            }
        }
        match refused {
            Some(_) => assert_eq!(agent.published_text(), before, "{ethernet}"),
            None => assert_eq!(waits(&agent).await, [""; 0], "{ethernet}"),
        }
    }
    agent.stop().await;
}

/// Accepted configuration stays accepted: a later change of the port is shown, and the rest of its configuration
/// applies.
#[tokio::test]
async fn a_port_that_becomes_slower_keeps_its_configuration() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    kernel.set_ethernet(cable(1_000));
    let agent = Agent::start(&kernel, folder.path()).await;
    replace(&agent, &speed("SPEED_1GB")).await.unwrap();
    let requests = kernel.requests();
    kernel.set_ethernet(cable(100));
    until_waiting(&agent, SLOW).await;
    let published = agent.published_text();
    assert!(published.contains("SPEED_1GB") && published.contains("SPEED_100MB"), "{published}");
    assert_eq!(kernel.requests(), requests);

    let described =
        port(r#", "description": "uplink""#, r#""port-speed": "openconfig-if-ethernet:SPEED_1GB""#);
    replace(&agent, &described).await.unwrap();
    assert!(kernel.contents().iter().any(|line| line.contains("uplink")));
    assert_eq!(waits(&agent).await, SLOW);
    let refused = replace(&agent, &speed("SPEED_10GB")).await.unwrap_err().to_string();
    assert!(refused.contains("a speed of 100 Mbit/s"), "{refused}");
    agent.stop().await;

    let agent = Agent::start(&kernel, folder.path()).await;
    until_waiting(&agent, SLOW).await;
    kernel.set_ethernet(cable(1_000));
    until_waiting(&agent, &[]).await;
    agent.stop().await;
}

/// An accepted boot configuration is restored when the next one is rolled back, even if its port has changed.
#[tokio::test]
async fn a_boot_configuration_comes_back_to_a_port_that_became_slower() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    kernel.set_ethernet(cable(1_000));
    let agent = Agent::start(&kernel, folder.path()).await;
    let boot = |document: String| {
        Arc::new(BootConfiguration {
            openconfig: document.into_bytes(),
            ..BootConfiguration::default()
        })
    };
    let admin = caller();
    let change = async |change| agent.handle.change(&admin, Intent::boot(change)).await;
    change(BootChange::Set(Some(boot(speed("SPEED_1GB"))))).await.unwrap();
    change(BootChange::Try(boot(port("", "")))).await.unwrap();
    kernel.set_ethernet(cable(100));
    assert_eq!(waits(&agent).await, [""; 0]);
    change(BootChange::GoBack).await.unwrap();
    assert_eq!(waits(&agent).await, SLOW);
    agent.stop().await;
}

/// Nothing is known of a port that is absent or has no carrier: its configuration is accepted, and waits.
#[tokio::test]
async fn the_state_of_a_port_with_another_speed_names_the_difference() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let down = Ethernet { speed_mbps: None, ..cable(0) };
    replace(&agent, &speed("SPEED_1GB")).await.unwrap();
    kernel.plug("eth0");
    kernel.set_ethernet(down.clone());
    until_waiting(&agent, &["port eth0 with a speed of 1000 Mbit/s"]).await;
    replace(&agent, &speed("SPEED_10GB")).await.unwrap();
    assert_eq!(waits(&agent).await, ["port eth0 with a speed of 10000 Mbit/s"]);
    for (mbps, lacks) in [
        (100, &["port eth0 with a speed of 10000 Mbit/s"][..]),
        (10_000, &[]),
        (2_500, &["port eth0 with a speed of 10000 Mbit/s"]),
    ] {
        kernel.set_ethernet(cable(mbps));
        until_waiting(&agent, lacks).await;
    }
    replace(&agent, &speed("SPEED_2500MB")).await.unwrap();
    assert_eq!(waits(&agent).await, [""; 0]);
    kernel.unplug("eth0");
    kernel.plug("eth0");
    until_waiting(&agent, &["port eth0 with a speed of 2500 Mbit/s"]).await;
    agent.stop().await;
}
