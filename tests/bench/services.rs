//! Service instances: Sets on one of many, memory, and the time from an event to the kernel, by a template and by a handler.
//! Walks without effects are measured without an agent.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_proto::gnmi::SetRequest;
use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::from_handler::Message as Said;
use holdfast_proto::holdfast::services::to_handler::Message as Heard;
use holdfast_tests::agent::{AgentProcess, PASSWORD, binary};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::handler::RawHandler;
use holdfast_tests::netns::Netns;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::{JoinHandle as Task, spawn_blocking};

use super::carrier::{RTMGRP_LINK, has_carrier};
use super::{Table, milliseconds, one_leaf_sets, percentile, port, walks};

/// Multicast group of IPv4 routes, as a bit of the socket's address.
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTM_NEWROUTE: u16 = 24;

/// Time by which a Set on one of many instances may exceed a plain Set, in milliseconds.
const BESIDE_PLAIN_MS: f64 = 20.0;
/// Times from an event to the kernel, p99, in milliseconds: by a template, and by a handler.
const EVENT_TO_KERNEL_MS: [f64; 2] = [20.0, 40.0];

/// Type whose routes are put out by a template.
const STAGED: &str = "staged-route";
/// Type whose routes are put out by a handler.
const HANDLED: &str = "handled-route";
/// Type with many states that make nothing.
const LONG: &str = "long-way";
/// States of an instance of that type, those of `self` among them.
const LONG_STATES: u32 = 50;

pub(super) const OUTLINE: &str = r#"[service]
name = "TYPE"
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

pub(super) const MODULE: &str = r#"module TYPE { yang-version 1.1; namespace "urn:TYPE"; prefix s;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-24 { description "First."; }
  augment "/svc:services" { list TYPE { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf prefix { type hf:ip-prefix; mandatory true; } leaf via { type hf:ip-address; mandatory true; } } } }"#;

pub(super) const TEMPLATE: &str = "network-instance DEFAULT
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
    /// Instances after which the memory is measured, on an agent that has the states below. A box has at most 10 000.
    pub(super) many: u32,
    /// States after which the memory is measured, ascending.
    pub(super) states: &'static [u32],
}

/// Measures instances that make one route each.
pub(super) async fn rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let Sizes { instances, sets, events, many, states } = sizes;
    walks::rows(table, instances, sets)?;
    memory_rows(table, many, states).await?;
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let packages = package()?;
    let folder = packages.path().display().to_string();
    let socket = packages.path().join("handlers.sock");
    let socket_path = socket.display().to_string();
    let options = ["--services", &folder, "--service-socket", &socket_path];
    let agent = AgentProcess::start_as(PASSWORD, &options).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", port()).await.context("the port")?;

    let plain = one_leaf_sets(&client, sets).await?;
    client.update(&path("i0"), instance("eth0", 0)).await.context("the first instance")?;
    let one = instance_sets(&client, sets).await?;
    let beside = milliseconds(percentile(&plain, 99)) + BESIDE_PLAIN_MS;
    for (percent, target) in [(50, None), (99, Some(beside))] {
        let ours = percentile(&one, percent);
        let theirs = percentile(&plain, percent);
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
    octets_for_each(table, grown, instances, "instances");
    let plain = one_leaf_sets(&client, sets).await?;
    let one = instance_sets(&client, sets).await?;
    let beside = milliseconds(percentile(&plain, 99)) + BESIDE_PLAIN_MS;
    for (percent, target) in [(50, None), (99, Some(beside))] {
        let ours = percentile(&one, percent);
        let theirs = percentile(&plain, percent);
        let what = format!("one of {instances} instances, p{percent}");
        table.time(&what, ours, "one leaf beside them", theirs, target);
    }
    let numbers = instances..instances + events;
    let [template, handler] = EVENT_TO_KERNEL_MS;
    event_rows(table, &client, &net, numbers.clone(), "template", STAGED, template).await?;
    let answering = answer(&socket).await?;
    let numbers = numbers.end..numbers.end + events;
    event_rows(table, &client, &net, numbers, "handler", HANDLED, handler).await?;
    answering.abort();
    Ok(())
}

/// Memory for instances with one route each, and for states that make nothing.
async fn memory_rows(table: &mut Table, instances: u32, states: &[u32]) -> Result<()> {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let packages = package()?;
    let folder = packages.path().display().to_string();
    let agent = AgentProcess::start_as(PASSWORD, &["--services", &folder]).await;
    let client = agent.gnmi().await;
    client.update("/interfaces", port()).await.context("the port")?;
    let before = agent.resident_bytes();
    let mut made = 0;
    for count in states {
        let count = count / LONG_STATES;
        let way = |number: u32| {
            (
                path_of(LONG, &format!("i{number}")),
                json!({"port": "eth0", "prefix": "0.0.0.0/0", "via": "192.0.2.4"}),
            )
        };
        set_all(&client, (made..count).map(way)).await?;
        made = count;
        let grown = agent.resident_bytes().saturating_sub(before);
        octets_for_each(table, grown, count * LONG_STATES, "states");
    }
    let before = agent.resident_bytes();
    set_all(&client, (0..instances).map(|it| (path(&format!("i{it}")), instance("eth0", it))))
        .await?;
    let grown = agent.resident_bytes().saturating_sub(before);
    octets_for_each(table, grown, instances, "instances");
    Ok(())
}

/// Sets values at paths, a thousand in each request.
async fn set_all(client: &GnmiClient, values: impl Iterator<Item = (String, Value)>) -> Result<()> {
    let updates: Vec<_> = values.map(|(path, value)| update(&path, value)).collect();
    for update in updates.chunks(1000).map(<[_]>::to_vec) {
        client.set(SetRequest { update, ..Default::default() }).await.context("the instances")?;
    }
    Ok(())
}

fn octets_for_each(table: &mut Table, octets: u64, count: u32, things: &str) {
    let each = f64::from(u32::try_from(octets / u64::from(count)).unwrap_or(u32::MAX));
    table.row(&format!("bytes for each of {count} {things}"), each, None, None);
}

/// Events on links; each opens the gate of one instance.
async fn event_rows(
    table: &mut Table,
    client: &GnmiClient,
    net: &Netns,
    numbers: std::ops::Range<u32>,
    by: &str,
    service: &str,
    target: f64,
) -> Result<()> {
    let mut times = Vec::new();
    for number in numbers {
        let near = format!("s{number}");
        let far = format!("q{number}");
        net.ip(&format!("link add {near} type veth peer name {far}"));
        net.ip(&format!("link set {near} up"));
        let staged = instance(&near, number);
        let path = path_of(service, &format!("i{number}"));
        client.update(&path, staged).await.context("an instance")?;
        let answered = routed(if_nametoindex(&*near)?)?;
        net.ip(&format!("link set {far} up"));
        let answered = spawn_blocking(|| answered.join()).await?;
        times.push(answered.map_err(|_| anyhow!("the listener panicked"))??);
    }
    times.sort();
    for (percent, target) in [(50, None), (99, Some(target))] {
        let what = format!("event to kernel by {by}, p{percent}");
        let ours = percentile(&times, percent);
        let median = percentile(&times, 50);
        table.time(&what, ours, "median", median, target);
    }
    Ok(())
}

/// Attaches a handler that answers each call with the route that its instance asks for.
async fn answer(socket: &Path) -> Result<Task<()>> {
    let phase = wire::Phase::Create.into();
    let calls = vec![wire::ServedCalls { component: "*".into(), state: "*".into(), phase }];
    let served = wire::ServedType { calls, ..Default::default() };
    let mut handler = RawHandler::attach_for(socket, HANDLED, served).await?;
    handler.next(|it| matches!(it, Heard::Synced(_)).then_some(())).await;
    Ok(tokio::spawn(async move {
        loop {
            let wanted = |it: &Heard| match it {
                Heard::ServicesCommit(_) | Heard::Ping(_) => Some(it.clone()),
                _ => None,
            };
            match handler.next(wanted).await {
                Heard::ServicesCommit(commit) => {
                    let tid = commit.tid;
                    for call in &commit.calls {
                        let text = lines(&call.params);
                        let call = call.call;
                        let edit = wire::Edit { tid, call, text, ..Default::default() };
                        handler.say(Said::Edit(edit)).await;
                    }
                    let served =
                        |it: &wire::Call| wire::Served { call: it.call, ..Default::default() };
                    let served = commit.calls.iter().map(served).collect();
                    handler.say(Said::Done(wire::Done { tid, served })).await;
                }
                _ => handler.say(Said::Pong(wire::Pong::default())).await,
            }
        }
    }))
}

/// Lines that the template puts out for an instance with these parameters.
fn lines(params: &str) -> String {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let leaf = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
    let filled = TEMPLATE.replace("{{ params.prefix }}", &leaf("prefix"));
    filled.replace("{{ params.via }}", &leaf("via"))
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
            if up.is_none() && has_carrier(&message, index) == Some(true) {
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
    path_of(STAGED, name)
}

fn path_of(service: &str, name: &str) -> String {
    format!("holdfast_native:/services/{service}[name={name}]")
}

fn instance(port: &str, number: u32) -> Value {
    let prefix = format!("{}/32", super::yardstick::destination(number));
    json!({"port": port, "prefix": prefix, "via": "192.0.2.4"})
}

/// A folder with the packed types.
fn package() -> Result<TempDir> {
    let folder = TempDir::new()?;
    let handled = OUTLINE.replace("[[component]]", "[handler]\nuser = \"root\"\n[[component]]");
    let state = |number: u32| format!("  [[component.state]]\n  name = \"s{number}\"\n");
    // Two are those of `self`, and two `init` and `ready`.
    let states: String = (4..LONG_STATES).map(state).collect();
    let gated = OUTLINE.find("  [[component.state]]").zip(OUTLINE.find("[[tree]]"));
    let (from, to) = gated.context("the outline has a state and a tree")?;
    let long = [&OUTLINE[..from], &states, &OUTLINE[to..]].concat();
    for (service, outline) in [
        (STAGED, OUTLINE.to_owned()),
        (HANDLED, handled.replace("route.cli", "handler")),
        (LONG, long),
    ] {
        let sources = TempDir::new()?;
        fs::create_dir(sources.path().join("templates"))?;
        for (file, content) in [
            ("service.toml", &*outline.replace("TYPE", service)),
            (&*format!("{service}@2026-11-24.yang"), &*MODULE.replace("TYPE", service)),
            ("templates/route.cli", TEMPLATE),
        ] {
            fs::write(sources.path().join(file), content)?;
        }
        pack(sources.path(), folder.path())?;
    }
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
