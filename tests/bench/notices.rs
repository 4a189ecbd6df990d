//! Delay of a lost carrier: from the loss itself to the client that is told, and to the kernel's use of another way.
//!
//! A raw listener does not give the beginning: the kernel tells of the carrier of a plain port up to a second late.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_proto::gnmi::{SubscriptionMode, subscription_list};
use holdfast_tests::agent::{AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{GnmiClient, connect};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Event, Subscription, notification_lines, subscribe_to};
use nix::net::if_::if_nametoindex;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::carrier::{CarrierLink, CarrierSwitch, RouteLookup, elsewhere, show_links};
use super::{STATIC_ROUTES, Table, port_with, yardstick};

/// Sizes of the workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Losses that one client is told.
    pub(crate) losses: usize,
    /// Losses until the last of many streams is told, and the streams.
    pub(crate) shared_losses: usize,
    pub(crate) streams: usize,
    /// Losses that follow one another, and the length of each.
    pub(crate) short_losses: usize,
    pub(crate) short: Duration,
    /// Losses after which the kernel uses another way.
    pub(crate) moves: usize,
    /// Clients that are told a large table while the carrier is lost.
    pub(crate) amid_table: usize,
    /// Sets and deletes of the large table, beside which carriers are lost.
    pub(crate) rounds: usize,
    /// Time for which the sampler's use of a processor is measured.
    pub(crate) sampled_for: Duration,
}

impl Sizes {
    pub(crate) const USUAL: Self = Self {
        losses: 100,
        shared_losses: 40,
        streams: 100,
        short_losses: 20,
        short: Duration::from_millis(100),
        moves: 40,
        amid_table: 20,
        rounds: 3,
        sampled_for: Duration::from_secs(5),
    };
    pub(crate) const SMOKE: Self = Self {
        losses: 3,
        shared_losses: 2,
        streams: 10,
        short_losses: 2,
        short: Duration::from_millis(100),
        moves: 2,
        amid_table: 2,
        rounds: 1,
        sampled_for: Duration::from_millis(200),
    };
}

/// Pause before a loss: it is told alone, and shortly after an event on another link.
const PAUSE: Duration = Duration::from_millis(10);
/// Difference of pauses from loss to loss: the agent looks at carriers every 20 ms, and a loss must not follow its
/// looks.
const STAGGER: Duration = Duration::from_millis(7);
const STAGGERED: u32 = 20;
/// Pause between two questions by which way the kernel sends.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Streams that share a connection.
const STREAMS_OF_A_CONNECTION: usize = 10;
/// Targets in milliseconds, of the percentile that each row names.
const VETH_MS: f64 = 10.0;
const LAST_OF_ALL_MS: f64 = 50.0;
const TAP_MS: f64 = 30.0;
const MOVE_MS: f64 = 30.0;
const AMID_TABLE_MS: f64 = 150.0;
/// Links that are looked at, with the target for the share of a processor in percent.
const SAMPLED: [(u32, f64); 2] = [(8, 0.3), (128, 2.0)];
/// Pause between two looks, as in the agent.
const LOOKS_EACH: Duration = Duration::from_millis(20);
/// Time in which the agent has found new links, several times that of its settling.
const SETTLED: Duration = Duration::from_secs(1);

const UP: &str = "= \"UP\"";

fn status_of(link: CarrierLink) -> String {
    format!("/interfaces/interface[name={}]/state/oper-status", link.name())
}

async fn subscribe(client: &GnmiClient, path: &str) -> Result<Subscription> {
    let paths = [(path, SubscriptionMode::OnChange)];
    Ok(client.subscribe(subscribe_to(subscription_list::Mode::Stream, &paths)).await?)
}

/// A link with the client that is told of it. It has no carrier between two losses.
#[derive(Debug)]
struct WatchedLink {
    link: CarrierLink,
    switch: CarrierSwitch,
    elsewhere: CarrierSwitch,
    told: Subscription,
    losses: u32,
}

impl WatchedLink {
    async fn new(client: &GnmiClient, link: CarrierLink) -> Result<Self> {
        let mut told = subscribe(client, &status_of(link)).await?;
        told.until_sync().await;
        let switch = link.switch()?;
        let elsewhere = elsewhere();
        Ok(Self { link, switch, elsewhere, told, losses: 0 })
    }

    async fn give(&mut self) -> Result<()> {
        self.switch.give()?;
        self.told.until(UP).await;
        self.elsewhere.give()?;
        self.elsewhere.take()?;
        self.losses += 1;
        tokio::time::sleep(PAUSE + STAGGER * (self.losses % STAGGERED)).await;
        Ok(())
    }

    async fn until_lost(&mut self) {
        self.told.until(&format!("= \"{}\"", self.link.status_without_carrier())).await;
    }

    /// Gives the carrier and takes it. Returns the time from the loss to its notice.
    async fn lose(&mut self) -> Result<Duration> {
        self.give().await?;
        let lost = Instant::now();
        self.switch.take()?;
        self.until_lost().await;
        Ok(lost.elapsed())
    }
}

/// A thread that takes the carrier of a link and gives it back, over and over.
#[derive(Debug)]
pub(crate) struct LossProbe {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>>>,
}

impl LossProbe {
    /// Starts the losses, and returns once the client is subscribed.
    pub(crate) async fn start(agent: &AgentProcess, link: CarrierLink) -> Result<Self> {
        let address = agent.address();
        let credentials = agent.credentials();
        let ca = fs::read_to_string(agent.ca_file())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (ready_tx, ready_rx) = oneshot::channel();
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let client = GnmiClient::over(connect(address, &ca).await?, credentials);
                let mut watched = WatchedLink::new(&client, link).await?;
                // The bench may have given up.
                let _ = ready_tx.send(());
                let mut delays = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    delays.push(watched.lose().await?);
                }
                Ok(delays)
            })
        });
        ready_rx.await.context("the thread of the losses has ended")?;
        Ok(Self { is_over, thread })
    }

    /// Ends the losses. Returns the delay of each.
    pub(crate) fn finish(self) -> Result<Vec<Duration>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread of the losses panicked"))?
    }
}

/// Measures losses that an agent tells while it does nothing else.
pub(crate) async fn quiet_rows(
    table: &mut Table,
    agent: &AgentProcess,
    client: &GnmiClient,
    sizes: Sizes,
) -> Result<()> {
    for (link, target) in [(CarrierLink::Veth, VETH_MS), (CarrierLink::Tap, TAP_MS)] {
        let mut watched = WatchedLink::new(client, link).await?;
        let mut delays = Vec::new();
        for _ in 0..sizes.losses {
            delays.push(watched.lose().await?);
        }
        let kind = link.kind();
        table.delays(&format!("{kind} loss to one client"), delays, 99, target);
    }
    let delays = last_of_many(agent, sizes).await?;
    let what = format!("veth loss to the last of {} streams", sizes.streams);
    table.delays(&what, delays, 99, LAST_OF_ALL_MS);
    let missed = missed_losses(client, sizes).await?;
    let what = format!("of {} losses of {:?}, not told", sizes.short_losses, sizes.short);
    table.row(&what, f64::from(u32::try_from(missed)?), None, Some(0.0));
    let delays = moves(client, sizes.moves).await?;
    table.delays("tap loss to the kernel's use of another way", delays, 99, MOVE_MS);
    Ok(())
}

/// Measures losses that clients of everything are told while they are told the large table, which is there.
pub(crate) async fn row_amid_table(
    table: &mut Table,
    agent: &AgentProcess,
    sizes: Sizes,
) -> Result<()> {
    let mut delays = Vec::new();
    let mut left = 0;
    let client = agent.gnmi().await;
    let mut watched = WatchedLink::new(&client, CarrierLink::Veth).await?;
    let wanted = [status_of(watched.link), watched.link.status_without_carrier().to_owned()];
    for _ in 0..sizes.amid_table {
        watched.give().await?;
        let mut told = subscribe(&agent.gnmi().await, "/").await?;
        told.until("/static[").await;
        let lost = Instant::now();
        watched.switch.take()?;
        let mut is_synced = false;
        loop {
            match told.next().await? {
                Event::Notification(notification) => {
                    let lines = notification_lines(&notification);
                    let tells = |line: &String| wanted.iter().all(|part| line.contains(part));
                    if lines.iter().any(tells) {
                        break;
                    }
                }
                Event::Sync => is_synced = true,
                Event::End => return Err(anyhow!("the stream has ended")),
            }
        }
        delays.push(lost.elapsed());
        left += usize::from(!is_synced);
        watched.until_lost().await;
    }
    // A small table may have been told before.
    let what = format!("veth loss amid the table, {left} of {}", sizes.amid_table);
    table.delays(&what, delays, 99, AMID_TABLE_MS);
    Ok(())
}

/// Times until the last of many streams has its notice.
async fn last_of_many(agent: &AgentProcess, sizes: Sizes) -> Result<Vec<Duration>> {
    let mut streams = Vec::new();
    let mut client = agent.gnmi().await;
    for number in 0..sizes.streams {
        if number % STREAMS_OF_A_CONNECTION == STREAMS_OF_A_CONNECTION - 1 {
            client = agent.gnmi().await;
        }
        let mut told = subscribe(&client, &status_of(CarrierLink::Veth)).await?;
        told.until_sync().await;
        streams.push(told);
    }
    let mut watched = WatchedLink::new(&client, CarrierLink::Veth).await?;
    let lost_status = format!("= \"{}\"", watched.link.status_without_carrier());
    let mut delays = Vec::new();
    for _ in 0..sizes.shared_losses {
        watched.give().await?;
        for told in &mut streams {
            told.until(UP).await;
        }
        let lost = Instant::now();
        watched.switch.take()?;
        for told in &mut streams {
            told.until(&lost_status).await;
        }
        delays.push(lost.elapsed());
        watched.until_lost().await;
    }
    Ok(delays)
}

/// The number of short losses that are not told.
async fn missed_losses(client: &GnmiClient, sizes: Sizes) -> Result<usize> {
    let mut watched = WatchedLink::new(client, CarrierLink::Tap).await?;
    watched.give().await?;
    for _ in 0..sizes.short_losses {
        watched.switch.take()?;
        tokio::time::sleep(sizes.short).await;
        watched.switch.give()?;
        tokio::time::sleep(sizes.short).await;
    }
    let told = watched.told.updates_within(SETTLED).await;
    let losses = told.iter().filter(|line| !line.contains(UP)).count();
    watched.switch.take()?;
    watched.until_lost().await;
    Ok(sizes.short_losses.saturating_sub(losses))
}

/// Times from a loss until the kernel uses the next hop of higher metric, of a route that the agent has set.
async fn moves(client: &GnmiClient, losses: usize) -> Result<Vec<Duration>> {
    let destination = Ipv4Addr::new(198, 51, 100, 1);
    let name = CarrierLink::Tap.name();
    let tap = port_with(name, "192.0.3.1");
    let hop = |index: &str, via: &str, metric: u32| {
        let config = json!({"index": index, "next-hop": via, "metric": metric});
        json!({"index": index, "config": config})
    };
    let hops = [hop("0", "192.0.3.2", 1), hop("1", "192.0.2.2", 50)];
    let prefix = format!("{destination}/32");
    let route = json!({"static": [
        {"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": hops}},
    ]});
    client.update("/interfaces", tap).await.context("the tap")?;
    client.update(STATIC_ROUTES, route).await.context("the route")?;
    let first = if_nametoindex(name)?;
    let second = if_nametoindex("eth0")?;
    let lookup = RouteLookup::of(destination)?;
    let mut watched = WatchedLink::new(client, CarrierLink::Tap).await?;
    let mut delays = Vec::new();
    for _ in 0..losses {
        watched.give().await?;
        while lookup.link()? != first {
            tokio::time::sleep(PAUSE).await;
        }
        let lost = Instant::now();
        watched.switch.take()?;
        while lookup.link()? != second {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        delays.push(lost.elapsed());
        watched.until_lost().await;
    }
    client.delete(STATIC_ROUTES).await?;
    client.delete(&format!("/interfaces/interface[name={name}]")).await?;
    Ok(delays)
}

/// Measures what it costs to look at the carriers of links, by an agent of its own.
pub(crate) async fn sampler_rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let net = Netns::enter();
    show_links()?;
    let agent = AgentProcess::start_as(PASSWORD, &[]).await;
    let mut there = 0;
    for (links, target) in SAMPLED {
        let numbers = there..links;
        yardstick::batch(numbers, |number| {
            format!("tuntap add dev tap{number} mode tap\nlink set tap{number} up")
        })?;
        there = links;
        ensure!(net.find_link(&format!("tap{}", links - 1)).is_some(), "links are missing");
        tokio::time::sleep(SETTLED).await;
        let before = sampler_time(&agent)?;
        let started = Instant::now();
        tokio::time::sleep(sizes.sampled_for).await;
        let used = sampler_time(&agent)?.saturating_sub(before);
        ensure!(!used.is_zero(), "the carriers of {links} links are not looked at");
        let share = 100.0 * used.div_duration_f64(started.elapsed());
        let names: Vec<String> = (0..links).map(|number| format!("tap{number}")).collect();
        let bare = yardstick::looks_at_carriers(&names, LOOKS_EACH, sizes.sampled_for)?;
        let bare = 100.0 * bare;
        let what = format!("looks at {links} carriers, % of a processor");
        let yardstick = format!("a bare loop {bare:.2}");
        let share_text = format!("{share:.2}");
        table.add(&what, &share_text, &yardstick, share / bare, Some((share, target, "%")));
    }
    Ok(())
}

/// Time that the thread that looks at carriers has run so far.
fn sampler_time(agent: &AgentProcess) -> Result<Duration> {
    for task in fs::read_dir(format!("/proc/{}/task", agent.pid()))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == "carrier" {
            let used = fs::read_to_string(task.join("schedstat"))?;
            let used = used.split(' ').next().context("a time")?.parse()?;
            return Ok(Duration::from_nanos(used));
        }
    }
    Err(anyhow!("no thread of the agent looks at carriers"))
}
