//! Many links: VXLAN links on this kernel, and VLANs of one port in a guest of the lab, whose kernel has them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::{AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::lab::Guest;
use holdfast_tests::netns::Netns;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::carrier::{kernel_socket, set_alias};
use super::{Table, percentile, port, time_one_leaf, yardstick};

/// The option with which this program measures VLANs where it runs, and prints the times for the one that started it.
pub(crate) const IN_GUEST: &str = "--vlans-in-guest";
/// The line with the times begins with this word.
const TIMES: &str = "times: ";

/// Longest time of a Set of one leaf beside the links, in milliseconds, on this kernel and in a guest. A guest is some
/// ten times slower.
const ONE_LEAF_MS: f64 = 5.0;
const ONE_LEAF_IN_GUEST_MS: f64 = 50.0;
/// How much longer than `ip -batch` the Set may take.
const BATCH_RATIO: f64 = 2.0;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// VXLAN links on this kernel.
    pub(crate) vxlans: u32,
    /// VLANs of one port in a guest.
    pub(crate) vlans: u32,
    /// Sets of one leaf that are timed.
    pub(crate) sets: u32,
}

impl Sizes {
    pub(crate) const FULL: Self = Self { vxlans: 5000, vlans: 4000, sets: 100 };
    pub(crate) const SMOKE: Self = Self { vxlans: 20, vlans: 20, sets: 5 };
}

/// Times with one kind of link.
#[derive(Debug, Deserialize, Serialize)]
struct Times {
    /// One Set with all links, and `ip -batch` with as many.
    set: Duration,
    batch: Duration,
    /// Sets of one leaf without and with them, sorted.
    without: Vec<Duration>,
    one_leaf: Vec<Duration>,
    /// The change of the kernel alone, after each Set with them, sorted.
    alone: Vec<Duration>,
    /// A start without and with them.
    empty_start: Duration,
    start: Duration,
}

/// A kind of link: how `ip` makes one, and how the agent is asked for all.
struct LinkKind {
    command: fn(u32) -> String,
    name: fn(u32) -> String,
    document: fn(u32) -> Value,
}

const VXLAN: LinkKind = LinkKind {
    command: |number| format!("link add v{number} up type vxlan id {} dstport 4789", number + 1),
    name: |number| format!("v{number}"),
    document: |count| {
        let link = |number: u32| json!({"name": format!("v{number}"), "type": "vxlan", "vxlan": {"vni": number + 1}});
        json!({"interface": (0..count).map(link).collect::<Vec<_>>()})
    },
};

/// The first identifier that a VLAN may have is 1.
const VLAN: LinkKind = LinkKind {
    command: |number| {
        format!("link add link eth0 eth0.{} up type vlan id {}", number + 1, number + 1)
    },
    name: |number| format!("eth0.{}", number + 1),
    document: |count| {
        let vlan = |number: u32| json!({"index": number + 1, "vlan-id": number + 1});
        let vlans: Vec<Value> = (0..count).map(vlan).collect();
        json!({"interface": [{"name": "eth0", "vlan": vlans}]})
    },
};

pub(crate) async fn rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let times = VXLAN.measure(sizes.vxlans, sizes.sets).await?;
    times.add_to(table, &format!("{} VXLAN links", sizes.vxlans), ONE_LEAF_MS);
    let times = in_guest(sizes)?;
    times.add_to(table, &format!("{} VLANs in the lab", sizes.vlans), ONE_LEAF_IN_GUEST_MS);
    Ok(())
}

/// Has a guest measure VLANs by this program.
fn in_guest(sizes: Sizes) -> Result<Times> {
    let guest = Guest::boot(None).context("the lab")?;
    let program = std::env::current_exe().context("the path of this program")?;
    let Sizes { vlans, sets, .. } = sizes;
    let run = guest.run(&format!("exec {} {IN_GUEST} {vlans} {sets}", program.display()));
    let line = run.output.lines().find_map(|line| line.strip_prefix(TIMES));
    match line.filter(|_| run.status == Some(0)) {
        Some(line) => serde_json::from_str(line).context("the times of the guest"),
        None => bail!("in the lab: {:?}\n{}", run.status, run.output),
    }
}

/// The program with [`IN_GUEST`]: prints the times of VLANs.
pub(crate) async fn print_times(mut figures: impl Iterator<Item = String>) -> Result<()> {
    let mut figure = || -> Result<u32> {
        let text = figures.next().context("a number of VLANs, and of Sets")?;
        text.parse().with_context(|| format!("`{text}` is not a number"))
    };
    let vlans = figure()?;
    let times = VLAN.measure(vlans, figure()?).await?;
    println!("{TIMES}{}", serde_json::to_string(&times)?);
    Ok(())
}

impl LinkKind {
    async fn measure(&self, count: u32, sets: u32) -> Result<Times> {
        let net = Netns::enter().with_veth("eth0", "peer0");
        net.ip("link set eth0 up");
        net.ip("link set peer0 up");
        let batch = yardstick::batch(0..count, self.command)?;
        yardstick::batch(0..count, |number| format!("link delete {}", (self.name)(number)))?;

        let mut agent = AgentProcess::start_as(PASSWORD, &[]).await;
        let empty_start = agent.start_time();
        let client = agent.gnmi().await;
        client.update("/interfaces", port()).await.context("the port")?;
        let (without, _) = one_leaf_sets(&net, &client, sets).await?;
        let links = update("holdfast_native:/interfaces", (self.document)(count));
        let request = SetRequest { update: vec![links], ..Default::default() };
        let started = Instant::now();
        client.set(request).await.context("the links")?;
        let set = started.elapsed();
        let last = (self.name)(count - 1);
        ensure!(net.find_link(&last).is_some(), "{last} is in the kernel");
        let (one_leaf, alone) = one_leaf_sets(&net, &client, sets).await?;
        agent.restart().await;
        let start = agent.start_time();
        agent.kill();
        Ok(Times { set, batch, without, one_leaf, alone, empty_start, start })
    }
}

/// Times of Sets of an alias, and of the same message from here after each of them, both sorted. The kernel then has the alias,
/// and works as for another one.
async fn one_leaf_sets(
    net: &Netns,
    client: &GnmiClient,
    sets: u32,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let socket = kernel_socket()?;
    let port = net.link("eth0").index;
    let mut ours = Vec::new();
    let mut alone = Vec::new();
    for number in 0..sets {
        let alias = format!("number {number}");
        ours.push(time_one_leaf(client, &alias).await?);
        let started = Instant::now();
        set_alias(&socket, port, &alias)?;
        alone.push(started.elapsed());
    }
    ours.sort();
    alone.sort();
    Ok((ours, alone))
}

impl Times {
    fn add_to(&self, table: &mut Table, links: &str, one_leaf_ms: f64) {
        let Self { set, batch, without, one_leaf, alone, empty_start, start } = self;
        table.ratio(&format!("{links} in one Set"), *set, "ip -batch", *batch, BATCH_RATIO);
        for (percent, target) in [(50, None), (99, Some(one_leaf_ms))] {
            let what = format!("one leaf beside {links}, p{percent}");
            let ours = percentile(one_leaf, percent);
            table.time(&what, ours, "without them", percentile(without, percent), target);
        }
        let what = format!("the kernel's part of one leaf beside {links}, p99");
        let kernel = percentile(alone, 99);
        table.time(&what, kernel, "its p50", percentile(alone, 50), None);
        table.time(&format!("start, {links} in sync"), *start, "start, empty", *empty_start, None);
    }
}
