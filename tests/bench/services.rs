//! Service instances: Sets on one of many, memory, and the time from an event to the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::{AgentProcess, PASSWORD, binary};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::netns::Netns;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::notices::{RTMGRP_LINK, carrier, ip};
use super::{Table, milliseconds, one_leaf_sets, percentile, port};

/// Multicast group of IPv4 routes, as a bit of the socket's address.
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTM_NEWROUTE: u16 = 24;

/// Time by which a Set on one of many instances may exceed a plain Set, in milliseconds.
const BESIDE_PLAIN_MS: f64 = 20.0;
/// Time from an event to the kernel, p99, in milliseconds.
const EVENT_TO_KERNEL_MS: f64 = 20.0;

const OUTLINE: &str = r#"[service]
name = "staged-route"
version = "1.0.0"
[grants]
write = ["/network-instances/network-instance/static"]
read = ["/interfaces/interface/state/oper-status"]
[[component]]
type = "route"
  [[component.state]]
  name = "routed"
  when = "state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'"
  work = "route.cli"
[[tree]]
create = { type = "route", name = "'main'" }
"#;

const MODULE: &str = r#"module staged-route { yang-version 1.1; namespace "urn:staged-route"; prefix s;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list staged-route { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf prefix { type hf:ip-prefix; mandatory true; } leaf via { type hf:ip-address; mandatory true; } } } }"#;

const TEMPLATE: &str = "network-instance DEFAULT
  static services
    route {{ params.prefix }}
      next-hop only next-hop {{ params.via }}
";

/// Sizes of the workloads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Instances at one time.
    pub(super) instances: u32,
    /// Sets that are timed.
    pub(super) sets: u32,
    /// Events, each on a link of its own.
    pub(super) events: u32,
}

/// Measures instances that make one route each.
pub(super) async fn rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let Sizes { instances, sets, events } = sizes;
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let packages = package()?;
    let folder = packages.path().display().to_string();
    let agent = AgentProcess::start_as(PASSWORD, &["--services", &folder]).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", port()).await.context("the port")?;

    let plain = one_leaf_sets(&client, sets).await?;
    client.update(&path("i0"), instance("eth0", 0)).await.context("the first instance")?;
    let one = instance_sets(&client, sets).await?;
    let beside = milliseconds(percentile(&plain, 99)) + BESIDE_PLAIN_MS;
    for (percent, target) in [(50, None), (99, Some(beside))] {
        let (ours, theirs) = (percentile(&one, percent), percentile(&plain, percent));
        table.time(&format!("one instance, p{percent}"), ours, "one leaf", theirs, target);
    }

    let before = agent.resident_bytes();
    let update =
        (1..instances).map(|number| update(&path(&format!("i{number}")), instance("eth0", number)));
    let update = update.collect();
    client.set(SetRequest { update, ..Default::default() }).await.context("the instances")?;
    let installed = net.routes("150").len();
    ensure!(installed == instances as usize, "{installed} of {instances} routes are in the kernel");
    let grown = agent.resident_bytes().saturating_sub(before);
    let each = f64::from(u32::try_from(grown / u64::from(instances)).unwrap_or(u32::MAX));
    table.row(&format!("octets for each of {instances} instances"), each, None, None);
    let plain = one_leaf_sets(&client, sets).await?;
    let one = instance_sets(&client, sets).await?;
    let beside = milliseconds(percentile(&plain, 99)) + BESIDE_PLAIN_MS;
    for (percent, target) in [(50, None), (99, Some(beside))] {
        let (ours, theirs) = (percentile(&one, percent), percentile(&plain, percent));
        let what = format!("one of {instances} instances, p{percent}");
        table.time(&what, ours, "one leaf beside them", theirs, target);
    }
    event_rows(table, &client, &net, instances..instances + events).await
}

/// Events on links, each of which opens the gate of one instance.
async fn event_rows(
    table: &mut Table,
    client: &GnmiClient,
    net: &Netns,
    numbers: std::ops::Range<u32>,
) -> Result<()> {
    let mut times = Vec::new();
    for number in numbers {
        let (near, far) = (format!("s{number}"), format!("q{number}"));
        net.ip(&format!("link add {near} type veth peer name {far}"));
        net.ip(&format!("link set {near} up"));
        let staged = instance(&near, number);
        client.update(&path(&format!("i{number}")), staged).await.context("an instance")?;
        let answered = routed(if_nametoindex(&*near)?)?;
        ip(&format!("link set {far} up"))?;
        times.push(answered.join().map_err(|_| anyhow!("the listener panicked"))??);
    }
    times.sort();
    for (percent, target) in [(50, None), (99, Some(EVENT_TO_KERNEL_MS))] {
        let what = format!("event to kernel by template, p{percent}");
        let (ours, median) = (percentile(&times, percent), percentile(&times, 50));
        table.time(&what, ours, "median", median, target);
    }
    Ok(())
}

/// A thread that returns the time from the message by which a link has carrier to that of the next route.
fn routed(index: u32) -> Result<JoinHandle<Result<Duration>>> {
    let mut socket = Socket::new(NETLINK_ROUTE).context("a netlink socket")?;
    let groups = RTMGRP_LINK | RTMGRP_IPV4_ROUTE;
    socket.bind(&SocketAddr::new(0, groups)).context("the groups of links and routes")?;
    Ok(thread::spawn(move || {
        let mut up = None;
        loop {
            let (message, _) = socket.recv_from_full().context("a message of the kernel")?;
            if up.is_none() && carrier(&message, index) == Some(true) {
                up = Some(Instant::now());
            }
            let kind = message.get(4..6).and_then(|octets| octets.try_into().ok());
            if let (Some(up), Some(RTM_NEWROUTE)) = (up, kind.map(u16::from_ne_bytes)) {
                return Ok(up.elapsed());
            }
        }
    }))
}

/// Times of Sets that move the route of one instance, sorted.
async fn instance_sets(client: &GnmiClient, sets: u32) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in 0..sets {
        let via = format!("192.0.2.{}", 2 + number % 2);
        let started = Instant::now();
        client.update(&format!("{}/via", path("i0")), via).await?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok(times)
}

fn path(name: &str) -> String {
    format!("holdfast_native:/services/staged-route[name={name}]")
}

fn instance(port: &str, number: u32) -> Value {
    let prefix = format!("{}/32", super::yardstick::destination(number));
    json!({"port": port, "prefix": prefix, "via": "192.0.2.4"})
}

/// A folder with the packed type.
fn package() -> Result<TempDir> {
    let (sources, folder) = (TempDir::new()?, TempDir::new()?);
    fs::create_dir(sources.path().join("templates"))?;
    for (file, content) in [
        ("service.toml", OUTLINE),
        ("staged-route@2026-11-24.yang", MODULE),
        ("templates/route.cli", TEMPLATE),
    ] {
        fs::write(sources.path().join(file), content)?;
    }
    pack(sources.path(), folder.path())?;
    Ok(folder)
}

fn pack(package: &Path, output: &Path) -> Result<()> {
    let mut pack = Command::new(binary());
    let packed =
        pack.args(["service", "pack"]).arg(package).arg("--output").arg(output).output()?;
    let error = String::from_utf8_lossy(&packed.stderr);
    ensure!(packed.status.success(), "the package: {error}");
    Ok(())
}
