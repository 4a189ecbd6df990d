//! Instances of services, from gnmic to the kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use holdfast_services::PackageFiles;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::browser::Browser;
use holdfast_tests::clients::{Gnmic, grpcurl};
use holdfast_tests::eventually::eventually;
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{
    SIZED_PORT, answer_with, no_plans, operate, packed, plans, plans_with, port_package, set,
    sized_port, update,
};
use tempfile::TempDir;

use crate::alarms::open_alarms;

const ACME: &str = "holdfast_native:/services/bridge-port[name=acme]";
const BOLT: &str = "holdfast_native:/services/bridge-port[name=bolt]";

// proves sv.A5, sv.J7
#[tokio::test]
async fn customers_share_a_bridge_until_the_last_one_goes() {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let packages = packed("bridge-port");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);

    update(&gnmic, ACME, r#"{"bridge": "br0", "port": ["eth1"], "gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    update(&gnmic, BOLT, r#"{"bridge": "br0", "port": ["eth2"], "gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(net.link("eth2").master.as_deref(), Some("br0"));

    let refused = gnmic.refused(&set(BOLT, r#"{"gateway": "192.0.2.1/25"}"#)).await;
    for part in ["InvalidArgument", "bridge-port[name='acme'] (bridge br0, made)", "`25`"] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    let config = ["-e", "json_ietf", "get", "--type", "config", "--path", "holdfast_native:/"];
    let config = gnmic.json(&config).await.to_string();
    assert!(config.contains("acme") && config.contains("192.0.2.1/24"), "{config}");
    assert!(!config.contains("prefix-length") && !config.contains("master"), "{config}");

    // The kernel tells of the bridge's carrier, and takes its groups away, up to a second later.
    let is_told = || net.ip_json("link show dev br0")[0]["operstate"] == "DOWN";
    eventually("the kernel has told of the bridge", is_told).await;
    agent.kill();
    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    assert_eq!(monitor.finish(&net).await, [""; 0], "a start in sync makes no operation");
    let gnmic = Gnmic::for_admin(&agent);
    gnmic.run(&["set", "--delete", ACME]).await;
    assert_eq!((net.link("eth1").master, net.link("eth2").master.as_deref()), (None, Some("br0")));
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    gnmic.run(&["set", "--delete", BOLT]).await;
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
    assert_eq!(net.link("eth2").master, None);
}

#[tokio::test]
async fn a_package_that_others_could_write_is_not_loaded() {
    let net = Netns::enter();
    let packages = packed("bridge-port");
    let archive = packages.path().join("bridge-port-1.0.0.hfs");
    fs::set_permissions(&archive, fs::Permissions::from_mode(0o666)).unwrap();
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let refused = Gnmic::for_admin(&agent).refused(&set(ACME, r#"{"bridge": "br0"}"#)).await;
    assert!(refused.contains("NotFound"), "{refused}");
}

const SIZED: &str = "holdfast_native:/services/sized-port[name=acme]";

// proves sv.A9, sv.B1, sv.B15, sv.B25, sv.J14
#[tokio::test]
async fn an_instance_goes_on_by_itself_when_its_port_is_there_and_up() {
    let net = Netns::enter();
    let packages = sized_port("timeout = 1");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    plans_with(&gnmic, &["not reached within 1 s", "\"waits-for\":\"port eth9\""]).await;
    plans_with(&gnmic, &["sized-port[name='acme']", "not-reached", "eth9"]).await;
    let output = agent.show("services");
    assert!(output.contains("sized-port[name='acme']  1.0.0  failed"), "{output}");

    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    plans_with(&gnmic, &["sized-port[name='acme']", "not-reached"]).await;
    net.ip("link add eth9 type veth peer name peer9");
    eventually("the port joins the bridge", || net.link("eth9").master.is_some()).await;
    assert_eq!(net.link("eth9").mtu, 1500, "the link is not up without its other end");
    net.ip("link set peer9 up");
    eventually("the gate opens", || net.link("eth9").mtu == 1400).await;
    let ready = ["-e", "json_ietf", "get", "--path", &format!("{SIZED}/state/status")];
    answer_with(&gnmic, &ready, &["\"reached\""]).await;
    let output = plans(&gnmic).await;
    assert!(!output.contains("not-reached") && !output.contains("failed"), "{output}");

    net.ip("link set peer9 down");
    eventually("the gate closes", || net.link("eth9").mtu != 1400).await;
    assert_eq!(net.link("eth9").master.as_deref(), Some("br0"), "earlier states stay");
    plans_with(&gnmic, &["not-reached", "gate `state("]).await;
    gnmic.run(&["set", "--delete", SIZED]).await;
    no_plans(&gnmic).await;
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
}

const BERNE: &str = "holdfast_native:/services/migrated-link[name=berne]";

/// Parameters of a link with one end point.
fn link(name: &str, vni: u8, is_tested: bool) -> String {
    let local = "192.0.2.1";
    let remote = "192.0.2.2";
    format!(
        r#"{{"name": "berne", "bridge": "br0", "test-passed": {is_tested}, "endpoint": [{{"name": "{name}", "vni": {vni}, "local": "{local}", "remote": "{remote}"}}]}}"#
    )
}

async fn replace(gnmic: &Gnmic, value: &str) {
    gnmic.run(&["-e", "json_ietf", "set", "--replace-path", BERNE, "--replace-value", value]).await;
}

// proves sv.A8, sv.B60
#[tokio::test]
async fn a_link_moves_to_another_end_point_when_it_is_tested() {
    let net = Netns::enter();
    let packages = packed("migrated-link");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    replace(&gnmic, &link("vx-old", 10, true)).await;
    assert_eq!(net.link("vx-old").master.as_deref(), Some("br0"));
    plans_with(&gnmic, &["vx-old"]).await;

    replace(&gnmic, &link("vx-new", 20, false)).await;
    assert_eq!(net.link("vx-new").master.as_deref(), Some("br0"));
    assert_eq!(
        net.link("vx-old").master.as_deref(),
        Some("br0"),
        "both are there while it is tested"
    );
    plans_with(&gnmic, &["vx-old", "delete gate `service.leaving"]).await;
    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    assert!(net.find_link("vx-old").is_some());
    update(&gnmic, BERNE, r#"{"test-passed": true}"#).await;
    eventually("the old one goes", || net.find_link("vx-old").is_none()).await;
    assert_eq!(net.link("vx-new").master.as_deref(), Some("br0"));

    replace(&gnmic, &link("vx-old", 10, false)).await;
    gnmic.run(&["set", "--delete", BERNE]).await;
    eventually("nothing of it is left", || net.find_link("br0").is_none()).await;
    no_plans(&gnmic).await;
}

// proves sv.B8
#[tokio::test]
async fn a_stage_that_contradicts_a_client_fails_by_name_until_the_client_lets_go() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    net.ip("link set peer9 down");
    let packages = sized_port("sticky = true");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    plans_with(&gnmic, &["gate `state("]).await;
    let port = "holdfast_native:/interfaces/interface[name=eth9]";
    update(&gnmic, port, r#"{"mtu": 1300}"#).await;
    net.ip("link set peer9 up");
    plans_with(&gnmic, &["failed", "`1300` by client native", "`1400` by sized-port"]).await;
    let alarm = format!("plan-failed@service:{TAG}");
    eventually("it is an alarm", || open_alarms(&agent).contains(&alarm)).await;
    assert_eq!(net.link("eth9").mtu, 1300);
    assert_eq!(net.link("eth9").master.as_deref(), Some("br0"));

    gnmic.run(&["set", "--delete", &format!("{port}/mtu")]).await;
    eventually("the stage is reached", || net.link("eth9").mtu == 1400).await;
    eventually("the alarm is over", || !open_alarms(&agent).contains(&alarm)).await;
    net.ip("link set peer9 down");
    plans_with(&gnmic, &["reached"]).await;
    assert_eq!(net.link("eth9").mtu, 1400, "it is sticky");
}

const TAG: &str = "sized-port[name='acme']";

/// An agent with one instance that is ready, and that goes while its link is down alone.
async fn guarded(net: &Netns, packages: &TempDir) -> (AgentProcess, Gnmic) {
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    net.ip("link set peer9 up");
    let ready = ["-e", "json_ietf", "get", "--path", &format!("{SIZED}/state/status")];
    answer_with(&gnmic, &ready, &["\"reached\""]).await;
    // The kernel tells of the bridge's carrier a moment later.
    let is_up = || net.ip_json("link show dev br0")[0]["operstate"] == "UP";
    eventually("the bridge is up", is_up).await;
    (agent, gnmic)
}

const WHILE_DOWN: &str = "delete = { when = \"state('/interfaces/interface[name={}]/state/oper-status', params.port) != 'UP'\" }";

// proves sv.A6, sv.A37, sv.A39, sv.B87, sv.B88, sv.B91
#[tokio::test]
async fn operators_deploy_instances_again_and_read_what_they_made() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port(WHILE_DOWN);
    let (agent, gnmic) = guarded(&net, &packages).await;
    let monitor = Monitor::start(&net).await;
    let done = operate(&agent, &["redeploy", TAG]).unwrap();
    assert!(done.contains("sized-port[name='acme']  1.0.0  ready"), "{done}");
    for selection in [&["redeploy"][..], &["redeploy", "sized-port"], &["check-sync", TAG]] {
        operate(&agent, selection).unwrap();
    }
    assert_eq!(monitor.finish(&net).await, [""; 0], "there is nothing to do");
    assert_eq!(operate(&agent, &["redeploy", "--dry-run"]).unwrap(), "in sync\n");
    let checked = grpcurl(&agent, &["holdfast.services.v1.Operations/CheckSync"], "{}").await;
    assert!(checked.unwrap().contains("\"inSync\": true"));

    let bolt = "holdfast_native:/services/sized-port[name=bolt]";
    net.ip("link add eth8 type veth peer name peer8");
    update(&gnmic, bolt, r#"{"bridge": "br0", "port": "eth8"}"#).await;
    let made = operate(&agent, &["get-modifications", TAG]).unwrap();
    for part in [
        "port eth9, attached\n",
        "/interfaces/interface[name=eth9]/master \"br0\"\n",
        "/interfaces/interface[name=br0]/type \"bridge\"  (also sized-port[name='bolt'] (port eth8, attached))\n",
        "port eth9, sized\n  /interfaces/interface[name=eth9]/mtu 1400\n",
    ] {
        assert!(made.contains(part), "`{part}` is not in {made}");
    }
    let sized = operate(&agent, &["get-modifications", TAG, "port", "eth9", "sized"]).unwrap();
    assert!(!sized.contains("attached") && sized.contains("mtu"), "{sized}");

    for (arguments, reason) in [
        (
            &["redeploy", "sized-port[name='none']"][..],
            "there is no instance `sized-port[name='none']`",
        ),
        (&["redeploy", "bridge"], "there is no instance of the type `bridge`"),
        (&["redeploy", "sized-port[acme]"], "the name of an instance is TYPE[KEY='VALUE']"),
        (&["get-modifications", TAG, "port", "eth7"], "has no component `port eth7`"),
        (&["get-modifications", TAG, "port", "eth9", "up"], "has no state `up`"),
        (&["resurrect", TAG], "does not back out"),
    ] {
        let refused = operate(&agent, arguments).unwrap_err();
        assert!(refused.contains(reason), "`{reason}` is not in {refused}");
    }
}

#[tokio::test]
async fn an_operator_deploys_an_instance_again() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    net.ip("link set peer9 up");
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    assert_eq!(agent.show("service-waits"), "", "nothing waits yet");
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    eventually("it is ready", || agent.show("services").contains("1.0.0  ready")).await;
    let hint = "not deployed: `holdfast service resurrect` deploys it again";
    assert!(operate(&agent, &["un-deploy", TAG]).unwrap().contains(hint));
    assert!(net.find_link("br0").is_none());
    assert_eq!(agent.show("services"), format!("{TAG}  {hint}\n"));
    let refused = operate(&agent, &["redeploy", TAG]).unwrap_err();
    assert!(refused.contains("is not deployed; `holdfast service resurrect`"), "{refused}");
    let back = operate(&agent, &["resurrect", TAG]).unwrap();
    assert!(back.starts_with(&format!("{TAG}  1.0.0  ")), "{back}");
    assert!(net.find_link("br0").is_some());
    eventually("it is ready", || agent.show("services").contains("1.0.0  ready")).await;

    // Lists are sorted by their keys; the order of the outline is told by a leaf.
    let places = [r#""name":"sized","position":3"#, r#""name":"ready","position":4"#];
    plans_with(&gnmic, &places).await;
}

// proves sv.A38, sv.B84, sv.B85, sv.B90
#[tokio::test]
async fn operators_bring_a_zombie_back_or_end_it() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port(WHILE_DOWN);
    let (agent, gnmic) = guarded(&net, &packages).await;
    let stays = operate(&agent, &["un-deploy", TAG]).unwrap();
    assert!(stays.contains("zombie") && stays.contains("sized     backs out"), "{stays}");
    let monitor = Monitor::start(&net).await;
    let back = operate(&agent, &["resurrect", TAG]).unwrap();
    assert!(back.contains("  1.0.0  ready"), "{back}");
    gnmic.run(&["set", "--delete", SIZED]).await;
    let still = operate(&agent, &["redeploy", TAG]).unwrap();
    assert!(still.contains("zombie"), "{still}");
    let request = format!(r#"{{"service": "{TAG}"}}"#);
    let back = grpcurl(&agent, &["holdfast.services.v1.Operations/Resurrect"], &request).await;
    assert!(back.as_ref().is_ok_and(|it| it.contains("STATUS_REACHED")), "{back:?}");
    assert_eq!(monitor.finish(&net).await, [""; 0], "what was made has stayed");
    let config = ["-e", "json_ietf", "get", "--type", "config", "--path", SIZED];
    assert!(gnmic.json(&config).await.to_string().contains("eth9"));

    gnmic.run(&["set", "--delete", SIZED]).await;
    let force = ["force-back-track", TAG, "port", "eth9"];
    let refused = operate(&agent, &force).unwrap_err();
    assert!(refused.contains("acknowledge"), "{refused}");
    assert_eq!(net.link("eth9").mtu, 1400);
    let force = [&force[..], &["--acknowledge-inconsistent"]].concat();
    let gone = operate(&agent, &force).unwrap();
    assert_eq!(gone, format!("{TAG}  nothing is left of it\n"));
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
    assert_eq!(net.link("eth9").mtu, 1500);
    no_plans(&gnmic).await;
}

const NORTH: &str = "holdfast_native:/services/uplink[name=north]";
const NORTH_TAG: &str = "uplink[name='north']";

// proves sv.B12, sv.B62
#[tokio::test]
async fn an_uplink_takes_traffic_when_its_far_end_has_answered() {
    let net = Netns::enter();
    let far = Netns::detached();
    net.add_cable("eth9", &far, "peer9");
    far.ip("link set peer9 up");
    let packages = packed("uplink");
    let folder = packages.path().to_str().unwrap();
    let mut agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    let north = r#"{"port": "eth9", "address": "192.0.2.0/31", "peer": "192.0.2.1", "prefix": ["198.51.100.0/24"]}"#;
    update(&gnmic, NORTH, north).await;
    net.ip("link set eth9 up");
    assert_eq!(net.addresses("eth9"), ["192.0.2.0/31"]);
    plans_with(&gnmic, &["\"action-status\":\"failed\"", "`result.received > 0` is false of"])
        .await;
    assert_eq!(net.ip("route show 198.51.100.0/24"), "", "nobody has answered");

    agent.kill();
    agent.restart().await;
    let gnmic = Gnmic::for_admin(&agent);
    plans_with(&gnmic, &["\"action-status\":\"failed\""]).await;
    far.ip("address add 192.0.2.1/31 dev peer9");
    operate(&agent, &["redeploy", NORTH_TAG]).unwrap();
    let has_route = || net.ip("route show 198.51.100.0/24").contains("via 192.0.2.1 dev eth9");
    eventually("the route is there", has_route).await;
    plans_with(&gnmic, &["\"action-status\":\"create-reached\""]).await;
    let ready = ["-e", "json_ietf", "get", "--path", &format!("{NORTH}/state/status")];
    answer_with(&gnmic, &ready, &["\"reached\""]).await;

    let monitor = Monitor::start(&net).await;
    gnmic.run(&["set", "--delete", NORTH]).await;
    eventually("the address is gone", || net.addresses("eth9").is_empty()).await;
    let notices = monitor.finish(&net).await;
    let position = |part: &str| notices.iter().position(|line| line.contains(part));
    let route = position("198.51.100.0/24");
    let address = position("192.0.2.0/31");
    assert!(route.is_some() && route < address, "{notices:?}");
    no_plans(&gnmic).await;
}

/// Sends a Set that names a type of services which the box does not have.
async fn unknown(gnmic: &Gnmic) {
    let refused = gnmic.refused(&set(ACME, r#"{"bridge": "br0", "port": ["eth1"]}"#)).await;
    assert!(refused.contains("NotFound"), "{refused}");
}

#[tokio::test]
async fn packages_are_installed_and_removed_while_the_agent_runs() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let packed = packed("bridge-port");
    let archive = packed.path().join("bridge-port-1.0.0.hfs");
    let archive = archive.to_str().unwrap();
    let mut agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    assert_eq!(operate(&agent, &["list"]).unwrap(), "");
    unknown(&gnmic).await;
    let output = operate(&agent, &["install", archive]).unwrap();
    assert!(
        output.contains("bridge-port 1.0.0\n") && output.contains("writes /interfaces"),
        "{output}"
    );
    let models = gnmic.run(&["capabilities"]).await;
    assert!(models.contains("bridge-port"), "{models}");
    update(&gnmic, ACME, r#"{"bridge": "br0", "port": ["eth1"]}"#).await;
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    plans_with(&gnmic, &["bridge-port[name='acme']"]).await;

    let again = operate(&agent, &["install", archive]).unwrap();
    assert!(again.contains("is installed already"), "{again}");
    let broken = packed.path().join("broken.hfs");
    fs::write(&broken, &fs::read(archive).unwrap()[..700]).unwrap();
    let readme =
        format!("{}/../packaging/services/uplink/service.toml", env!("CARGO_MANIFEST_DIR"));
    for file in [broken.to_str().unwrap(), &readme] {
        let refused = operate(&agent, &["install", file]).unwrap_err();
        assert!(refused.contains("the package `the archive` is refused"), "{refused}");
    }
    let refused = operate(&agent, &["remove", "bridge-port"]).unwrap_err();
    assert!(refused.contains("has 1 instances: bridge-port[name='acme']"), "{refused}");
    let listed = operate(&agent, &["list"]).unwrap();
    assert!(listed.starts_with("bridge-port  1.0.0  1 instances  installed, "), "{listed}");

    agent.kill();
    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    assert_eq!(monitor.finish(&net).await, [""; 0], "a start in sync makes no operation");
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, ACME, r#"{"gateway": "192.0.2.1/24"}"#).await;
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    gnmic.run(&["set", "--delete", ACME]).await;
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;

    operate(&agent, &["remove", "bridge-port"]).unwrap();
    let refused = gnmic.refused(&set(ACME, r#"{"bridge": "br0", "port": ["eth1"]}"#)).await;
    assert!(refused.contains("NotFound"), "{refused}");
    let refused = operate(&agent, &["remove", "bridge-port"]).unwrap_err();
    assert!(refused.contains("there is no type of services"), "{refused}");
    operate(&agent, &["install", archive]).unwrap();
    update(&gnmic, ACME, r#"{"bridge": "br0", "port": ["eth1"]}"#).await;
    gnmic.run(&["set", "--delete", ACME]).await;
    operate(&agent, &["remove", "bridge-port"]).unwrap();
    agent.kill();
    agent.restart().await;
    unknown(&Gnmic::for_admin(&agent)).await;
    assert_eq!(operate(&agent, &["list"]).unwrap(), "");
}

/// Bytes that an agent may grow by forty installations and removals, for its histories. It was three times as much when each left
/// nodes and texts of modules behind.
const GROWTH: u64 = 4 << 20;

#[tokio::test]
async fn installations_and_removals_take_no_memory_beyond_the_first() {
    let net = Netns::enter();
    let packed = packed("uplink");
    let archive = packed.path().join("uplink-1.0.0.hfs");
    let archive = archive.to_str().unwrap();
    let agent = AgentProcess::start(&net).await;
    let rounds = |count| {
        for _ in 0..count {
            operate(&agent, &["install", archive]).unwrap();
            operate(&agent, &["remove", "uplink"]).unwrap();
        }
        agent.resident_bytes()
    };
    let before = rounds(20);
    let after = rounds(40);
    assert!(after < before + GROWTH, "{before} bytes have become {after}");
}

/// An archive of a package whose module stands for ten million nodes.
fn bomb(archive: &Path) -> Vec<u8> {
    let files = PackageFiles::read(&fs::read(archive).unwrap()).unwrap();
    let mut groupings = "grouping g0 { leaf a { type string; } }".to_owned();
    for level in 1..=7 {
        let uses = |at| format!("container c{at} {{ uses g{}; }}", level - 1);
        groupings += &format!("grouping g{level} {{ {} }}", (0..10).map(uses).collect::<String>());
    }
    let changed = files.iter().map(|(path, content)| {
        let mut text = String::from_utf8(content.to_vec()).unwrap();
        if path.ends_with(".yang") {
            text.insert_str(text.rfind('}').unwrap(), &groupings);
        }
        (path.into(), text.into_bytes().into())
    });
    PackageFiles::new(changed).unwrap().write().unwrap()
}

#[tokio::test]
async fn a_module_that_stands_for_millions_of_nodes_takes_nothing() {
    let net = Netns::enter();
    let [bad, good] = ["bridge-port", "uplink"].map(packed);
    let file = bad.path().join("bridge-port-1.0.0.hfs");
    fs::write(&file, bomb(&file)).unwrap();
    fs::copy(good.path().join("uplink-1.0.0.hfs"), bad.path().join("uplink-1.0.0.hfs")).unwrap();
    // At a start as by an installation.
    let options = ["--services", bad.path().to_str().unwrap()];
    let agent = AgentProcess::start_with(&net, &options).await;
    let listed = operate(&agent, &["list"]).unwrap();
    assert!(listed.starts_with("uplink  1.0.0") && listed.lines().count() == 1, "{listed}");
    let log = agent.log();
    assert!(log.contains("is not loaded") && log.contains("schema-nodes"), "{log}");
    let refused = operate(&agent, &["install", file.to_str().unwrap()]).unwrap_err();
    assert!(refused.contains("schema-nodes"), "{refused}");
    assert!(agent.peak_resident_bytes() < 200 << 20, "{}", agent.peak_resident_bytes());
}

/// A new signer of packages: the files of its certificate and its key.
fn signer(folder: &Path, name: &str) -> [String; 2] {
    let [certificate, key] =
        ["pem", "key"].map(|end| folder.join(format!("{name}.{end}")).display().to_string());
    let mut request = Command::new("openssl");
    request.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    request.args(["-nodes", "-subj", &format!("/CN={name}"), "-days", "2"]);
    request.args(["-keyout", &key, "-out", &certificate]);
    assert!(request.output().unwrap().status.success());
    [certificate, key]
}

/// A request to install an archive with a signature by this signer over `signed`.
pub(crate) fn install_request(
    archive: &Path,
    signed: &Path,
    [certificate, key]: &[String; 2],
) -> String {
    let mut sign = Command::new("openssl");
    sign.args([
        "cms",
        "-sign",
        "-binary",
        "-outform",
        "DER",
        "-signer",
        certificate,
        "-inkey",
        key,
    ]);
    let signature = sign.arg("-in").arg(signed).output().unwrap();
    assert!(signature.status.success());
    let archive = fs::read(archive).unwrap();
    let signature = signature.stdout;
    let [archive, signature] = [archive, signature].map(|it| BASE64_STANDARD.encode(it));
    format!(r#"{{"archive": "{archive}", "signature": "{signature}"}}"#)
}

#[tokio::test]
async fn packages_come_over_the_network_from_trusted_signers_alone() {
    const INSTALL: [&str; 1] = ["holdfast.services.v1.Packages/Install"];
    let net = Netns::enter();
    let packed = packed("bridge-port");
    let archive = packed.path().join("bridge-port-1.0.0.hfs");
    let [trusted, stranger] = ["trusted", "stranger"].map(|name| signer(packed.path(), name));
    let request = install_request(&archive, &archive, &trusted);
    let agent = AgentProcess::start(&net).await;
    let refused = grpcurl(&agent, &INSTALL, &request).await.unwrap_err();
    assert!(
        refused.contains("FailedPrecondition") && refused.contains("--service-trust"),
        "{refused}"
    );
    drop(agent);

    let agent = AgentProcess::start_with(&net, &["--service-trust", &trusted[0]]).await;
    let other = packed.path().join("trusted.pem");
    for (request, reason) in [
        (
            install_request(&archive, &archive, &stranger),
            "the signer of the message is not trusted",
        ),
        (
            install_request(&archive, &other, &trusted),
            "signed attributes of the message belong to another",
        ),
        (request.replace(r#""signature": ""#, r#""signature": "AAAA"#), "cannot be read"),
        (r#"{"archive": "AAAA"}"#.to_owned(), "cannot be read"),
    ] {
        let refused = grpcurl(&agent, &INSTALL, &request).await.unwrap_err();
        assert!(refused.contains("PermissionDenied") && refused.contains(reason), "{refused}");
    }
    unknown(&Gnmic::for_admin(&agent)).await;
    let installed = grpcurl(&agent, &INSTALL, &request).await.unwrap();
    assert!(installed.contains("bridge-port 1.0.0"), "{installed}");
    let listed = grpcurl(&agent, &["holdfast.services.v1.Packages/List"], "{}").await.unwrap();
    assert!(listed.contains(r#""name": "bridge-port""#) && listed.contains("digest"), "{listed}");
    let remove = r#"{"name": "bridge-port"}"#;
    grpcurl(&agent, &["holdfast.services.v1.Packages/Remove"], remove).await.unwrap();
    assert_eq!(operate(&agent, &["list"]).unwrap(), "");
}

const PAGE: &str = "127.0.0.1:9190";

#[tokio::test]
async fn the_page_shows_instances_as_they_go_on() {
    let net = Netns::enter();
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let options = ["--services", folder, "--introspect", PAGE];
    let agent = AgentProcess::start_with(&net, &options).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    let bolt = "holdfast_native:/services/sized-port[name=bolt]";
    update(&gnmic, bolt, r#"{"bridge": "br0", "port": "eth8"}"#).await;

    let browser = Browser::start().await;
    browser.open(&format!("http://{PAGE}/")).await.unwrap();
    browser.wait_for_text("#live", "live").await;
    browser.click("#tab-services").await.unwrap();
    browser.wait_for_text("#service-count", "2 service instances").await;
    browser.type_into("#service-search", "acme").await.unwrap();
    let heading = "section[data-service] h3";
    for part in ["sized-port[name='acme']", "not-reached", "1.0.0"] {
        browser.wait_for_text(heading, part).await;
    }
    browser.wait_for_text("tr[data-state-name='sized']", "waits for port eth9").await;
    browser.wait_for_text("tr[data-state-name='attached'] .state", "reached").await;
    browser
        .wait_for_text("tr[data-state-name='attached'] ul", "with sized-port[name='bolt']")
        .await;

    net.ip("link add eth9 type veth peer name peer9");
    net.ip("link set peer9 up");
    browser.wait_for_text("tr[data-state-name='sized'] .state", "reached").await;
    browser.wait_for_text(&format!("{heading} .state"), "ready").await;
    browser.click("tr[data-state-name='sized'] ul a").await.unwrap();
    browser.wait_for_text("#detail-label", "eth9").await;
    browser.run("document.getElementById('service-search').value = 'none'").await.unwrap();
    browser.click("#detail [data-service]").await.unwrap();
    browser.wait_for_text("#services", "sized-port[name='acme']").await;
    let refused = "return document.getElementById('error').hidden";
    assert_eq!(browser.run(refused).await.unwrap(), serde_json::json!(true));
    browser.quit().await;
}

// proves sv.B28
#[tokio::test]
async fn an_instance_whose_gate_reads_its_own_work_is_held_back() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let outline =
        SIZED_PORT.replace("oper-status', params.port) == 'UP'", "mtu', params.port) != 1400");
    let outline = outline.replace("state/oper-status\"]", "state/mtu\"]").replace("LINES", "");
    let packages = port_package(&outline);
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, SIZED, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    let held_back = ["-e", "json_ietf", "get", "--path", &format!("{SIZED}/state")];
    answer_with(&gnmic, &held_back, &["walks-held-back\":true"]).await;
    let walks = || agent.log().matches("what=\"walk\"").count();
    let before = walks();
    let used = agent.resource_use().processor;
    assert!((10..=30).contains(&before), "{before} walks");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(walks() - before <= 25, "{} walks in two seconds", walks() - before);
    let used = agent.resource_use().processor.saturating_sub(used);
    assert!(used < Duration::from_secs(1), "{used:?} of processors in two seconds");
    gnmic.run(&["set", "--delete", SIZED]).await;
    no_plans(&gnmic).await;
}
