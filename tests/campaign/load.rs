//! Clients that change a box all the time, and record what was acknowledged.
//!
//! Each writes one number in several places that must always agree: leaves of one object, or a group of routes. So a change
//! that is torn shows as places that differ, and one that is lost as an earlier number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::WAIT_LIMIT;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const STATIC_ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";

/// Routes of the group that is changed as one.
const GROUP: u32 = 20;
/// Smallest MTU that is set, bytes of layer 3, and how many are used.
const MTU: u32 = 1300;
const MTUS: u32 = 190;
/// Bytes that OpenConfig counts besides (the Ethernet header).
const HEADER: u32 = 14;
/// Pause between two looks at the box.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Changes of one client.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Metric of a group of routes.
    Group,
    /// Description and MTU of a port.
    Port,
    /// The address of a port.
    Address,
}

const TARGETS: [Target; 3] = [Target::Group, Target::Port, Target::Address];

/// Numbers of one client.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The last one that was acknowledged.
    acknowledged: u32,
    /// The last one that was asked for.
    asked: u32,
    /// How many were acknowledged.
    count: u64,
    /// How many were refused.
    refused: u64,
}

/// The clients of one box, at work or not.
#[derive(Debug, Default)]
pub(crate) struct Load {
    progress: [Arc<Mutex<Progress>>; 3],
    is_at_work: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

/// A namespace with the ports that the clients change.
pub(crate) fn ports() -> Netns {
    let net = Netns::enter();
    for (port, far) in [("eth0", "p0"), ("eth1", "p1"), ("eth2", "p2")] {
        net.ip(&format!("link add {port} type veth peer name {far}"));
        net.ip(&format!("link set {far} up"));
    }
    net
}

impl Load {
    /// Configures the box for the clients, and what each of them writes first.
    pub(crate) async fn begin(agent: &AgentProcess) -> anyhow::Result<Self> {
        let client = agent.gnmi().await;
        let port = json!({
            "name": "eth0",
            "config": {"name": "eth0", "enabled": true},
            "subinterfaces": {"subinterface": [{
                "index": 0, "config": {"index": 0},
                "openconfig-if-ip:ipv4": {"addresses": {"address": [
                    {"ip": "192.0.2.1", "config": {"ip": "192.0.2.1", "prefix-length": 24}}]}},
            }]},
        });
        client.update("/interfaces", json!({"interface": [port]})).await?;
        let load = Self::default();
        for (target, progress) in TARGETS.iter().zip(&load.progress) {
            change(&client, *target, progress).await?;
        }
        Ok(load)
    }

    /// Puts the clients to work until they are stopped or refused for good.
    pub(crate) async fn start(&mut self, agent: &AgentProcess) {
        self.is_at_work.store(true, Ordering::Relaxed);
        for (target, progress) in TARGETS.iter().zip(&self.progress) {
            let client = agent.gnmi().await;
            let progress = Arc::clone(progress);
            let target = *target;
            let is_at_work = Arc::clone(&self.is_at_work);
            self.workers.push(tokio::spawn(async move {
                while is_at_work.load(Ordering::Relaxed) {
                    if change(&client, target, &progress).await.is_err() {
                        sleep(LOOK_PAUSE).await;
                    }
                }
            }));
        }
    }

    /// Ends the clients. Each gets the answer to its last change: one that is given up would still be carried out.
    pub(crate) async fn stop(&mut self) {
        self.is_at_work.store(false, Ordering::Relaxed);
        for worker in std::mem::take(&mut self.workers) {
            let _never_panics = worker.await;
        }
    }

    /// Changes that were acknowledged, and refused, since the last question.
    pub(crate) fn take_counts(&self) -> (u64, u64) {
        let mut all = (0, 0);
        for progress in &self.progress {
            let mut progress = lock(progress);
            all = (
                all.0 + std::mem::take(&mut progress.count),
                all.1 + std::mem::take(&mut progress.refused),
            );
        }
        all
    }

    /// Compares configuration and kernel with what was acknowledged, once the kernel has had time to follow.
    pub(crate) async fn faults(&self, agent: &AgentProcess, net: &Netns) -> Vec<String> {
        let client = agent.gnmi().await;
        let mut faults = crate::panics(agent);
        for (target, progress) in TARGETS.iter().zip(&self.progress) {
            let found = match configured(&client, *target).await {
                Ok(found) => found,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let known = *lock(progress);
            if found != known.acknowledged && found != known.asked {
                faults.push(format!("{target:?}: {found} is configured after {known:?}"));
            }
            // Present values go on.
            (lock(progress).acknowledged, lock(progress).asked) = (found, found);
            let deadline = Instant::now() + WAIT_LIMIT;
            while !in_kernel(net, *target, found) {
                if Instant::now() > deadline {
                    faults.push(format!("{target:?}: {found} is configured and not in the kernel"));
                    break;
                }
                sleep(LOOK_PAUSE).await;
            }
        }
        faults
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

fn lock(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().expect("nobody panics with it")
}

/// Writes the next number.
async fn change(
    client: &GnmiClient,
    target: Target,
    progress: &Mutex<Progress>,
) -> Result<(), tonic::Status> {
    let number = {
        let mut progress = lock(progress);
        progress.asked = progress.acknowledged + 1;
        progress.asked
    };
    let answer = match target {
        Target::Group => client.replace(STATIC_ROUTES, routes(number)).await,
        Target::Port => {
            let config = json!({
                "name": "eth1", "enabled": true,
                "description": number.to_string(), "mtu": mtu(number) + HEADER,
            });
            client.update("/interfaces/interface[name=eth1]/config", config).await
        }
        Target::Address => {
            let ip = address(number);
            let path = addresses_of("eth2");
            let list = json!({"address": [{"ip": ip, "config": {"ip": ip, "prefix-length": 24}}]});
            client.replace(&path, list).await
        }
    };
    let mut progress = lock(progress);
    match answer {
        Ok(_) => {
            progress.acknowledged = number;
            progress.count += 1;
            Ok(())
        }
        Err(refused) => {
            progress.refused += 1;
            Err(refused)
        }
    }
}

fn routes(number: u32) -> Value {
    let route = |at: u32| {
        let prefix = format!("198.51.100.{at}/32");
        let hop = json!({"index": "0", "config": {
            "index": "0", "next-hop": "192.0.2.2", "metric": number}});
        json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [hop]}})
    };
    json!({"static": (0..GROUP).map(route).collect::<Vec<_>>()})
}

fn mtu(number: u32) -> u32 {
    MTU + number % MTUS
}

fn address(number: u32) -> String {
    format!("10.{}.{}.1", number / 250 % 250, number % 250)
}

fn addresses_of(port: &str) -> String {
    format!("/interfaces/interface[name={port}]/subinterfaces/subinterface[index=0]/ipv4/addresses")
}

/// The number that is configured, or how its places differ.
async fn configured(client: &GnmiClient, target: Target) -> Result<u32, String> {
    let read = async |path: &str| {
        client.read(path).await.map_err(|status| format!("{target:?}: {path}: {status}"))
    };
    match target {
        Target::Group => {
            let routes = read(STATIC_ROUTES).await?;
            let numbers = metrics(&routes);
            let first = numbers.first().copied().ok_or(format!("no route is left: {routes}"))?;
            let is_whole = numbers.len() == GROUP as usize && numbers.iter().all(|it| *it == first);
            if is_whole { Ok(first) } else { Err(format!("the group is torn: {numbers:?}")) }
        }
        Target::Port => {
            let config = read("/interfaces/interface[name=eth1]/config").await?;
            let text = leaf(&config, "description").as_str().unwrap_or_default().to_owned();
            let number: u32 = text.parse().map_err(|_| format!("no description: {config}"))?;
            let found = leaf(&config, "mtu").as_u64();
            let is_whole = found == Some(u64::from(mtu(number) + HEADER));
            if is_whole { Ok(number) } else { Err(format!("the port is torn: {config}")) }
        }
        Target::Address => {
            let addresses = read(&addresses_of("eth2")).await?;
            let list = leaf(&addresses, "address").as_array().cloned().unwrap_or_default();
            let text =
                list.first().map(|it| leaf(it, "ip").as_str().unwrap_or_default().to_owned());
            match (list.len(), text.as_deref().and_then(number_of)) {
                (1, Some(number)) => Ok(number),
                _ => Err(format!("not one address: {addresses}")),
            }
        }
    }
}

/// The number of an address; the numbers of a run differ by less than those of one address.
fn number_of(ip: &str) -> Option<u32> {
    let mut octets = ip.split('.').map(str::parse::<u32>);
    let _ = octets.next()?.ok()?;
    let high = octets.next()?.ok()?;
    let low = octets.next()?.ok()?;
    Some(high * 250 + low)
}

/// A member, whatever module is named before it.
fn leaf<'v>(object: &'v Value, name: &str) -> &'v Value {
    let members = object.as_object().into_iter().flatten();
    let is_it = |key: &str| key.rsplit(':').next() == Some(name);
    members.into_iter().find(|(key, _)| is_it(key)).map_or(&Value::Null, |(_, value)| value)
}

fn metrics(routes: &Value) -> Vec<u32> {
    let list = leaf(routes, "static").as_array().cloned().unwrap_or_default();
    let metric = |route: &Value| {
        let hop = leaf(leaf(route, "next-hops"), "next-hop").get(0)?.clone();
        leaf(leaf(&hop, "config"), "metric").as_u64().and_then(|it| u32::try_from(it).ok())
    };
    list.iter().filter_map(metric).collect()
}

/// True when the kernel has what belongs to a number.
fn in_kernel(net: &Netns, target: Target, number: u32) -> bool {
    match target {
        Target::Group => {
            let routes = net.routes("150");
            let route = |at: u32| format!("198.51.100.{at} via 192.0.2.2 dev eth0 metric {number}");
            routes.len() == GROUP as usize && (0..GROUP).all(|at| routes.contains(&route(at)))
        }
        Target::Port => net.find_link("eth1").is_some_and(|link| link.mtu == mtu(number)),
        Target::Address => net.addresses("eth2") == [format!("{}/24", address(number))],
    }
}
