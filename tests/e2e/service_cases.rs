//! The cases of section 15 of `agent/services/SERVICES.md` that touch a kernel, with the packages that are shipped.

use std::fs;
use std::path::Path;

use holdfast_proto::gnmi::SetRequest;
use holdfast_proto::gnmi::get_request::DataType;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{has_instances, operate, pack, packed};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use crate::boot_config::{boot_config_stub, mgmt, set_boot};
use crate::factory::reset;
use crate::union::{cli, union};

const SERVICES: &str = "holdfast_native:/services";
const PLANS: &str = "holdfast_native:/service-state";

/// Path of an instance of `bridge-access`, or of a node of it.
fn access(name: &str) -> String {
    format!("{SERVICES}/bridge-access[name={name}]")
}

/// Parameters of an access whose customer has a network behind `via`.
fn customer(port: &str, via: &str, prefix: &str) -> Value {
    json!({"port": port, "bridge": "br0", "gateway": "10.0.0.1/24", "prefix": prefix, "via": via, "approved": true})
}

async fn set_all(client: &GnmiClient, updates: Vec<(String, Value)>) -> Result<(), tonic::Status> {
    let update = updates.into_iter().map(|(path, value)| update(&path, value)).collect();
    client.set(SetRequest { update, ..SetRequest::default() }).await.map(drop)
}

/// An agent with the type `bridge-access`.
async fn with_accesses(net: &Netns) -> (TempDir, AgentProcess, GnmiClient) {
    let packages = packed("bridge-access");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    (packages, agent, client)
}

/// The routers of two customers, each behind a port of the box.
fn customers(net: &Netns) -> [Netns; 2] {
    [("eth1", "10.0.0.11/24"), ("eth2", "10.0.0.12/24")].map(|(port, address)| {
        let far = Netns::detached();
        net.add_cable(port, &far, "uplink");
        far.ip(&format!("address add {address} dev uplink"));
        far.ip("link set uplink up");
        net.ip(&format!("link set {port} up"));
        far
    })
}

fn both_customers() -> Vec<(String, Value)> {
    vec![
        (access("acme"), customer("eth1", "10.0.0.11", "198.51.100.0/24")),
        (access("bolt"), customer("eth2", "10.0.0.12", "203.0.113.0/24")),
    ]
}

async fn is_ready(client: &GnmiClient, name: &str) {
    let path = format!("{}/state/status", access(name));
    eventually_async(&format!("{name} is ready"), async || {
        client.read(&path).await.is_ok_and(|status| status == "reached")
    })
    .await;
}

/// Waits until nothing is left of any instance.
async fn no_plans(client: &GnmiClient) {
    eventually_async("no service plan is left", async || {
        client.read(PLANS).await.is_ok_and(|state| !has_instances(&state.to_string()))
    })
    .await;
}

// proves sv.A4, sv.B54, sv.J2, sv.J16
#[tokio::test]
async fn two_customers_share_a_bridge_and_its_address() {
    let net = Netns::enter();
    let _far = customers(&net);
    let (_packages, agent, client) = with_accesses(&net).await;
    set_all(&client, both_customers()).await.unwrap();
    let masters = || ["eth1", "eth2"].map(|port| net.link(port).master);
    assert_eq!(masters(), [Some("br0".to_owned()), Some("br0".to_owned())]);
    assert_eq!(net.addresses("br0"), ["10.0.0.1/24"]);
    net.ip("link set br0 up");
    is_ready(&client, "acme").await;
    is_ready(&client, "bolt").await;
    assert!(net.ip("route show 198.51.100.0/24").contains("via 10.0.0.11 dev br0"));
    let holders = operate(&agent, &["get-modifications", "bridge-access[name='acme']"]).unwrap();
    let shared = "prefix-length 24  (also bridge-access[name='bolt'] (access main, port-attached))";
    assert!(holders.contains(shared), "{holders}");

    client.delete(&access("acme")).await.unwrap();
    eventually("the port is given back", || masters() == [None, Some("br0".to_owned())]).await;
    assert_eq!(net.ip("route show 198.51.100.0/24"), "");
    assert!(net.ip("route show 203.0.113.0/24").contains("via 10.0.0.12 dev br0"));
    assert_eq!(net.addresses("br0"), ["10.0.0.1/24"]);

    client.delete(&access("bolt")).await.unwrap();
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
    no_plans(&client).await;
}

// proves sv.J6
#[tokio::test]
async fn customers_that_disagree_are_refused_and_move_together() {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let (_packages, _agent, client) = with_accesses(&net).await;
    let attached =
        |port: &str, gateway: &str| json!({"port": port, "bridge": "br0", "gateway": gateway});
    let set = |gateways: [&str; 2]| {
        let [acme, bolt] = gateways;
        vec![(access("acme"), attached("eth1", acme)), (access("bolt"), attached("eth2", bolt))]
    };
    let refusal = set_all(&client, set(["10.0.0.1/24", "10.0.0.1/25"])).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    for side in [
        "prefix-length` is `24` by bridge-access[name='acme'] (access main, port-attached)",
        "prefix-length` is `25` by bridge-access[name='bolt'] (access main, port-attached)",
    ] {
        assert!(refusal.message().contains(side), "`{side}` is not in {refusal}");
    }
    assert!(net.find_link("br0").is_none(), "nothing of a refused Set is made");

    set_all(&client, set(["10.0.0.1/24", "10.0.0.1/24"])).await.unwrap();
    let monitor = Monitor::start(&net).await;
    set_all(&client, set(["10.0.0.1/25", "10.0.0.1/25"])).await.unwrap();
    let notices = monitor.finish(&net).await;
    let added = |line: &&String| line.contains("inet 10.0.0.1/25") && !line.contains("Deleted");
    assert_eq!(notices.iter().filter(added).count(), 1, "{notices:?}");
    assert_eq!(net.addresses("br0"), ["10.0.0.1/25"]);
}

// proves sv.J3
#[tokio::test]
async fn clients_and_services_hold_objects_together() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let (_packages, _agent, client) = with_accesses(&net).await;
    let acme = || json!({"port": "eth1", "bridge": "br0", "gateway": "10.0.0.1/24"});
    client.update(&access("acme"), acme()).await.unwrap();
    let described = json!({"name": "eth1", "description": "customer"});
    client.update("/interfaces/interface[name=eth1]/config", described).await.unwrap();
    client.delete(&access("acme")).await.unwrap();
    assert_eq!(net.link("eth1").alias, "customer");
    assert_eq!(net.link("eth1").master, None);

    client.update(&access("acme"), acme()).await.unwrap();
    let address = "holdfast_native:/interfaces/interface[name=br0]/ipv4/address[ip=10.0.0.1]";
    let length = |length: u8| client.update(address, json!({ "prefix-length": length }));
    length(24).await.unwrap();
    let refusal = length(25).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().contains("bridge-access[name='acme']"), "{refusal}");
    client.delete("holdfast_native:/interfaces/interface[name=br0]").await.unwrap();
    assert_eq!(net.addresses("br0"), ["10.0.0.1/24"], "what the service asks for stays");

    let taken_over = vec![
        (access("acme"), json!({"deploy": false})),
        ("holdfast_native:/interfaces/interface[name=br0]".to_owned(), json!({"type": "bridge"})),
        (address.to_owned(), json!({"prefix-length": 25})),
    ];
    set_all(&client, taken_over).await.unwrap();
    assert_eq!(net.addresses("br0"), ["10.0.0.1/25"]);
    assert_eq!(net.link("eth1").master, None);
}

// proves sv.A26, sv.J4
#[tokio::test]
async fn content_that_a_client_reads_and_sends_back_changes_nothing() {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let (_packages, _agent, client) = with_accesses(&net).await;
    let attached = |port: &str| json!({"port": port, "bridge": "br0", "gateway": "10.0.0.1/24"});
    let both = vec![(access("acme"), attached("eth1")), (access("bolt"), attached("eth2"))];
    set_all(&client, both).await.unwrap();
    let monitor = Monitor::start(&net).await;
    for origin in ["openconfig", "holdfast_native"] {
        let root = format!("{origin}:/");
        let config = client.read_as(&root, DataType::Config).await.unwrap();
        client.replace(&root, config.clone()).await.unwrap();
        for _ in 0..2 {
            union(&client, vec![update(&root, config.clone())]).await.unwrap();
            client.update(&access("acme"), attached("eth1")).await.unwrap();
            client.update(&access("bolt"), attached("eth2")).await.unwrap();
        }
    }
    client.replace("/", json!({})).await.unwrap();
    let notices = monitor.finish(&net).await;
    let masters = ["eth1", "eth2"].map(|port| net.link(port).master);
    assert_eq!(masters, [Some("br0".to_owned()), Some("br0".to_owned())], "{notices:?}");

    union(&client, vec![cli("system hostname plain")]).await.unwrap();
    assert!(net.find_link("br0").is_none(), "text that names no instance deletes them");
    assert_eq!(net.link("eth1").master, None);
    assert!(!has_instances(&client.read(PLANS).await.unwrap().to_string()));
    let back = cli("services\n  bridge-access acme\n    port eth1\n    bridge br0\n");
    union(&client, vec![back]).await.unwrap();
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
}

const GATED_MODULE: &str = r#"module gated { yang-version 1.1; namespace "urn:gated"; prefix g;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-25 { description "First."; }
  augment "/svc:services" { list gated { key name; uses svc:service-instance;
    leaf name { type string; } leaf prefix { type hf:ip-prefix; mandatory true; }
    leaf via { type hf:ip-address; mandatory true; } } } }"#;

const GATED: &str = r#"[service]
name = "gated"
version = "1.0.0"
[grants]
write = ["/network-instances/network-instance/static"]
read = ["/interfaces/interface/state/oper-status"]
[[component]]
type = "route"
  [[component.state]]
  name = "routed"
  when = "state('/interfaces/interface[name=eth1]/state/oper-status') == 'UP'"
  sticky = true
  work = "route.cli"
[[tree]]
create = { type = "route", name = "'main'" }
"#;

const GATED_ROUTE: &str = "network-instance DEFAULT\n  static gated\n    route {{ params.prefix }}\n      next-hop {{ params.name }} next-hop {{ params.via }}\n";

/// A folder with a package whose instances make one route each when eth1 is up.
fn gated_routes() -> TempDir {
    let sources = TempDir::new().unwrap();
    let folder = TempDir::with_prefix("services-").unwrap();
    fs::create_dir(sources.path().join("templates")).unwrap();
    for (file, content) in [
        ("service.toml", GATED),
        ("gated@2026-11-25.yang", GATED_MODULE),
        ("templates/route.cli", GATED_ROUTE),
    ] {
        fs::write(sources.path().join(file), content).unwrap();
    }
    pack(sources.path(), folder.path());
    folder
}

/// Parameters of the instance of `gated` with this number.
fn gated(number: usize, via: &str) -> (String, Value) {
    let prefix = format!("198.51.{}.{}/32", number / 256, number % 256);
    (format!("{SERVICES}/gated[name=r{number}]"), json!({"prefix": prefix, "via": via}))
}

/// An agent with an address on eth1, whose link is down, and `count` instances that wait for it.
async fn with_gated_routes(
    net: &Netns,
    packages: &Path,
    count: usize,
    via: impl Fn(usize) -> &'static str,
) -> (AgentProcess, GnmiClient) {
    let agent = AgentProcess::start_with(net, &["--services", packages.to_str().unwrap()]).await;
    let client = agent.gnmi().await;
    let port =
        json!({"enabled": true, "ipv4": {"address": [{"ip": "192.0.2.1", "prefix-length": 24}]}});
    client.update("holdfast_native:/interfaces/interface[name=eth1]", port).await.unwrap();
    let instances = (0..count).map(|number| gated(number, via(number))).collect();
    set_all(&client, instances).await.unwrap();
    (agent, client)
}

/// Number of the routes that instances of `gated` have made.
fn routes(net: &Netns) -> usize {
    net.ip("-4 route show").lines().filter(|line| line.starts_with("198.51.")).count()
}

// proves sv.B11
#[tokio::test]
async fn a_route_that_the_kernel_refuses_fails_its_own_instance_alone() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let packages = gated_routes();
    // The kernel takes no broadcast address as a next hop.
    let via = |number| if number == 17 { "192.0.2.255" } else { "192.0.2.9" };
    let (_agent, client) = with_gated_routes(&net, packages.path(), 64, via).await;
    assert_eq!(routes(&net), 0);
    net.ip("link set peer1 up");
    eventually("the others have their routes", || routes(&net) == 63).await;
    let plan = format!("{PLANS}/plan[service=gated[name='r17'\\]]");
    let state = || client.read(&plan);
    eventually_async("its state says why", async || {
        state()
            .await
            .is_ok_and(|it| it.to_string().contains("Nexthop has invalid gateway (EINVAL)"))
    })
    .await;

    let (path, mended) = gated(17, "192.0.2.9");
    client.update(&path, mended).await.unwrap();
    eventually("the mended one follows", || routes(&net) == 64).await;
}

// proves sv.J1
#[tokio::test]
async fn boot_configuration_goes_before_what_services_ask_for() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set peer0 up");
    let packages = TempDir::with_prefix("services-").unwrap();
    let sources = TempDir::new().unwrap();
    fs::create_dir(sources.path().join("templates")).unwrap();
    for (file, content) in [
        ("service.toml", GATED.replace("write = [", "write = [\"/system/hostname\", ").replace("  when = \"state('/interfaces/interface[name=eth1]/state/oper-status') == 'UP'\"\n", "")),
        ("gated@2026-11-25.yang", GATED_MODULE.to_owned()),
        ("templates/route.cli", "system\n  hostname {{ params.name }}\n".to_owned()),
    ] {
        fs::write(sources.path().join(file), content).unwrap();
    }
    pack(sources.path(), packages.path());
    let agent =
        AgentProcess::start_with(&net, &["--services", packages.path().to_str().unwrap()]).await;
    let client = agent.gnmi().await;
    let mut boots = boot_config_stub(&agent).await;
    set_boot(&mut boots, mgmt(1400, "booted")).await.unwrap();
    let hostname = || net.shell("hostname").trim().to_owned();
    let (path, parameters) = gated(1, "192.0.2.9");
    let refusal = client.update(&path, parameters.clone()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert!(
        refusal.message().contains("hostname") && refusal.message().contains("boot"),
        "{refusal}"
    );
    assert_eq!(hostname(), "booted");

    set_boot(&mut boots, holdfast_proto::bootz::BootConfig::default()).await.unwrap();
    client.update(&path, parameters).await.unwrap();
    assert_eq!(hostname(), "r1");
    set_boot(&mut boots, mgmt(1400, "booted")).await.unwrap();
    assert_eq!(hostname(), "booted", "boot wins where it comes later");
    set_boot(&mut boots, holdfast_proto::bootz::BootConfig::default()).await.unwrap();
    assert_eq!(hostname(), "r1", "what the service asks for is in force again");
}

/// Instances of the restart test.
const MANY: usize = 1000;

// proves sv.A36, sv.A43, sv.J20
#[tokio::test]
async fn a_restart_with_many_instances_in_sync_makes_no_operation() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    net.ip("link set peer1 up");
    let packages = gated_routes();
    let (mut agent, client) = with_gated_routes(&net, packages.path(), MANY, |_| "192.0.2.9").await;
    eventually_async("all instances are ready", async || {
        let plans = client.read(PLANS).await.unwrap().to_string();
        routes(&net) == MANY && !plans.contains("not-reached")
    })
    .await;
    agent.kill();
    let monitor = Monitor::start(&net).await;
    agent.restart().await;
    assert_eq!(monitor.finish(&net).await, [""; 0], "a start in sync makes no operation");
    let log = agent.log();
    let walks = log.rsplit("starting version").next().unwrap().matches("what=\"walk\"").count();
    assert_eq!(walks, 0, "and walks no instance");

    net.ip("route delete 198.51.0.7/32");
    eventually("the route is repaired", || routes(&net) == MANY).await;
    agent.kill();
    net.ip("link delete eth1");
    agent.restart().await;
    let client = agent.gnmi().await;
    let plan = |name: &str| format!("{PLANS}/plan[service=gated[name='{name}'\\]]");
    let plan = plan("r7");
    let leaf = "component[type=route][name=main]/state[name=routed]";
    let read = async |name: &str| client.read(&format!("{plan}/{leaf}/{name}")).await.ok();
    eventually_async("the objects of its state wait", async || {
        read("apply").await.is_some_and(|it| it == "pending")
    })
    .await;
    assert_eq!(read("apply-detail").await.unwrap(), "gateway 192.0.2.9");
    assert_eq!(read("status").await.unwrap(), "reached", "the service stays where it is");
    let ready = format!("{SERVICES}/gated[name=r7]/state/status");
    assert_eq!(client.read(&ready).await.unwrap(), "reached");
    net.ip("link add eth1 type veth peer name peer1");
    net.ip("link set peer1 up");
    eventually("the routes are back", || routes(&net) == MANY).await;
    eventually_async("its objects are there", async || {
        read("apply").await.is_some_and(|it| it == "done")
    })
    .await;
    assert_eq!(read("apply-detail").await, None);
}

// proves sv.J21
#[tokio::test]
async fn a_factory_reset_leaves_nothing_of_services() {
    let net = Netns::enter().with_veth("eth1", "peer1");
    let (_packages, agent, client) = with_accesses(&net).await;
    client.update(&access("acme"), json!({"port": "eth1", "bridge": "br0"})).await.unwrap();
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    drop(client);
    reset(&agent).await;
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
    let client = agent.gnmi().await;
    assert!(!has_instances(&client.read(PLANS).await.unwrap().to_string()));
    assert_eq!(client.read(SERVICES).await.unwrap_err().code(), Code::NotFound);
}
