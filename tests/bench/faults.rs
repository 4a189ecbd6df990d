//! Faults: from a loss to its alarm, to the last object that does not work because of it, and to what is done about it.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_proto::gnmi::{SetRequest, SubscriptionMode, subscription_list};
use holdfast_proto::holdfast::faults::LatchRequest;
use holdfast_proto::holdfast::faults::faults_client::FaultsClient;
use holdfast_tests::agent::{AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{Credentials, GnmiClient, update};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Event, Subscription, notification_lines, subscribe_to};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use super::carrier::{self, CarrierLink, CarrierSwitch};
use super::{STATIC_ROUTES, Table, megabytes, port_with, routes_via, yardstick};

type Faults = FaultsClient<InterceptedService<Channel, Credentials>>;

/// Sizes of the workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Losses of a carrier, and faults that a program reports, of each row.
    pub(crate) losses: usize,
    pub(crate) faults: usize,
    /// Alarm rules; one of them fits.
    pub(crate) rules: usize,
    /// Routes that a loss takes the way from: some, and many.
    pub(crate) some: u32,
    pub(crate) many: u32,
    /// Faults with many routes.
    pub(crate) large_faults: usize,
    /// Links that are said to be down at once.
    pub(crate) latched: u32,
    /// Routes of the Set beside which a link is fenced.
    pub(crate) beside: u32,
    /// Time in which the allocator gives back pages that are free: it spreads them over ten seconds.
    pub(crate) settling: Duration,
}

impl Sizes {
    pub(crate) const USUAL: Self = Self {
        losses: 20,
        faults: 100,
        rules: 1000,
        some: 50,
        many: 10_000,
        large_faults: 10,
        latched: 50,
        beside: 100_000,
        settling: Duration::from_secs(15),
    };
    pub(crate) const SMOKE: Self = Self {
        losses: 2,
        faults: 2,
        rules: 10,
        some: 5,
        many: 50,
        large_faults: 1,
        latched: 3,
        beside: 200,
        settling: Duration::ZERO,
    };

    /// The resident memory once the allocator has given back what is free.
    async fn settled_memory(&self, agent: &AgentProcess) -> u64 {
        tokio::time::sleep(self.settling).await;
        agent.resident_bytes()
    }
}

/// Targets in milliseconds, of the 99th percentile.
const ALARM_MS: f64 = 2.0;
const SOME_MS: f64 = 10.0;
const SOME_CONSERVATIVE_MS: f64 = 30.0;
const MANY_MS: f64 = 250.0;
const LATCH_MS: f64 = 10.0;
const LAST_LATCH_MS: f64 = 20.0;
const FENCE_MS: f64 = 20.0;
const FENCE_BESIDE_SET_MS: f64 = 150.0;
/// Memory of many marked routes, in MB.
const MARKS_MB: f64 = 2.0;

/// Pause between two losses: with more than five in ten seconds, the link counts as flapping, and its alarm stays.
const PAUSE: Duration = Duration::from_millis(2100);
/// Pause between two looks at what is shown.
const SHOWN_AGAIN: Duration = Duration::from_millis(20);
/// Pause between two looks at the flags of a link.
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// Flag of a link that is administratively up, from linux/if.h.
const IFF_UP: u32 = 1;

const LINK: CarrierLink = CarrierLink::Veth;
const MANAGEMENT: &str = "holdfast_native:/fault-management";
const STATUS: &str = "/interfaces/interface[name=eth1]/state/oper-status";
const LINK_DOWN: &str = "holdfast_native:/fault-state/alarm[id=link-down@interface:eth1]/state";
const DATA_PLANE_DOWN: &str =
    "holdfast_native:/fault-state/alarm[id=data-plane-down@interface:eth1]/state";

/// Measures faults of an agent of their own.
pub(crate) async fn rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    carrier::add_links(&net)?;
    let agent = AgentProcess::start_as(PASSWORD, &[]).await;
    let client = agent.gnmi().await;
    for (name, address) in [("eth0", "192.0.2.1"), (LINK.name(), "192.0.3.1")] {
        client.update("/interfaces", port_with(name, address)).await.context("a port")?;
    }
    let mut switch = LINK.switch()?;
    alarm_rows(table, &client, &mut switch, sizes).await?;
    switch.give()?;
    impact_rows(table, &agent, &client, sizes).await?;
    latch_rows(table, &agent, sizes).await?;
    fence_rows(table, &agent, &client, sizes).await
}

/// From the notice of a loss to its alarm.
async fn alarm_rows(
    table: &mut Table,
    client: &GnmiClient,
    switch: &mut CarrierSwitch,
    sizes: Sizes,
) -> Result<()> {
    let delays = alarms_after_notices(client, switch, sizes.losses).await?;
    table.delays("notice of a veth loss to its alarm", delays, 99, ALARM_MS);
    let rule = |number: usize| {
        let resource = if number == 0 { "interface:eth1" } else { "interface:eth9" };
        json!({
            "owner": "bench",
            "name": format!("r{number}"),
            "type": "link-*",
            "resource": resource,
            "expression": format!("severity >= MAJOR and occurrences < {}", number + 1_000_000),
        })
    };
    let rules: Vec<Value> = (0..sizes.rules).map(rule).collect();
    client.update(MANAGEMENT, json!({"alarm-rule": rules})).await.context("rules")?;
    let delays = alarms_after_notices(client, switch, sizes.losses).await?;
    let what = format!("the same with {} alarm rules", sizes.rules);
    table.delays(&what, delays, 99, ALARM_MS);
    client.delete(&format!("{MANAGEMENT}/alarm-rule")).await?;
    Ok(())
}

/// Waits for a line with both texts.
async fn until(told: &mut Subscription, path: &str, value: &str) -> Result<()> {
    loop {
        let Event::Notification(notification) = told.next().await? else { continue };
        let lines = notification_lines(&notification);
        if lines.iter().any(|line| line.contains(path) && line.contains(value)) {
            return Ok(());
        }
    }
}

async fn alarms_after_notices(
    client: &GnmiClient,
    switch: &mut CarrierSwitch,
    losses: usize,
) -> Result<Vec<Duration>> {
    let mut delays = Vec::new();
    let mut told = subscribe(client, &[STATUS, LINK_DOWN]).await?;
    for _ in 0..losses {
        switch.give()?;
        until(&mut told, "oper-status", "\"UP\"").await?;
        tokio::time::sleep(PAUSE).await;
        switch.take()?;
        until(&mut told, "oper-status", LINK.status_without_carrier()).await?;
        let noticed = Instant::now();
        until(&mut told, "link-down", "time-created").await?;
        delays.push(noticed.elapsed());
    }
    Ok(delays)
}

/// From a fault to the update about the last object that does not work because of it.
async fn impact_rows(
    table: &mut Table,
    agent: &AgentProcess,
    client: &GnmiClient,
    sizes: Sizes,
) -> Result<()> {
    let shortcut = format!("{MANAGEMENT}/settings/shortcut");
    let mut fault = ReportedFault::new(agent, client).await?;
    set_routes(client, sizes.some).await?;
    let delays = fault.impacts(sizes.faults).await?;
    let what = format!("fault to the last of {} dependents", sizes.some);
    table.delays(&what, delays, 99, SOME_MS);
    client.update(&shortcut, false).await?;
    let delays = fault.impacts(sizes.faults).await?;
    table.delays("the same, told when all is known", delays, 99, SOME_CONSERVATIVE_MS);
    client.delete(&shortcut).await?;

    set_routes(client, sizes.many).await?;
    let before = sizes.settled_memory(agent).await;
    fault.raise().await?;
    let more = sizes.settled_memory(agent).await.saturating_sub(before);
    fault.clear().await?;
    let delays = fault.impacts(sizes.large_faults).await?;
    let what = format!("fault to the last of {} dependents", sizes.many);
    table.delays(&what, delays, 99, MANY_MS);
    let what = format!("memory that {} marks take, MB", sizes.many);
    table.row(&what, megabytes(more), None, Some(MARKS_MB));
    client.delete(STATIC_ROUTES).await?;
    Ok(())
}

async fn set_routes(client: &GnmiClient, count: u32) -> Result<()> {
    let replace = vec![update(STATIC_ROUTES, routes_via("192.0.3.2", 0..count))];
    client.set(SetRequest { replace, ..Default::default() }).await.context("the routes")?;
    Ok(())
}

async fn subscribe(client: &GnmiClient, paths: &[&str]) -> Result<Subscription> {
    let paths: Vec<_> = paths.iter().map(|path| (*path, SubscriptionMode::OnChange)).collect();
    let list = subscribe_to(subscription_list::Mode::Stream, &paths);
    let mut told = client.subscribe(list).await?;
    told.until_sync().await;
    Ok(told)
}

/// A fault of the link that a program reports, with a client that is told of it.
struct ReportedFault {
    faults: Faults,
    told: Subscription,
}

impl ReportedFault {
    async fn new(agent: &AgentProcess, client: &GnmiClient) -> Result<Self> {
        let faults = faults_of(agent).await;
        Ok(Self { faults, told: subscribe(client, &[DATA_PLANE_DOWN]).await? })
    }

    /// The time from the report until all objects are shown that do not work because of it.
    async fn impact(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.raise().await?;
        let took = began.elapsed();
        self.clear().await?;
        Ok(took)
    }

    async fn raise(&mut self) -> Result<()> {
        self.faults.set_data_plane_down(latch(LINK.name(), true)).await?;
        until(&mut self.told, "impact", "\"complete\"").await
    }

    async fn clear(&mut self) -> Result<()> {
        self.faults.set_data_plane_down(latch(LINK.name(), false)).await?;
        until(&mut self.told, "delete", "data-plane-down").await
    }

    async fn impacts(&mut self, faults: usize) -> Result<Vec<Duration>> {
        let mut delays = Vec::new();
        for _ in 0..faults {
            delays.push(self.impact().await?);
        }
        Ok(delays)
    }
}

async fn faults_of(agent: &AgentProcess) -> Faults {
    FaultsClient::with_interceptor(agent.channel().await, agent.credentials())
}

fn latch(name: &str, down: bool) -> LatchRequest {
    LatchRequest { resource: format!("interface:{name}"), down, ..LatchRequest::default() }
}

/// From the request that a link be shown as down to the answer, which comes when that is durable.
async fn latch_rows(table: &mut Table, agent: &AgentProcess, sizes: Sizes) -> Result<()> {
    let faults = faults_of(agent).await;
    let mut one = faults.clone();
    let mut delays = Vec::new();
    for _ in 0..sizes.faults {
        let began = Instant::now();
        one.set_forced_down(latch("eth0", true)).await?;
        delays.push(began.elapsed());
        one.set_forced_down(latch("eth0", false)).await?;
    }
    table.delays("SetForcedDown to the answer", delays, 99, LATCH_MS);

    yardstick::batch(0..sizes.latched, |number| format!("tuntap add dev bench{number} mode tap"))?;
    let last = format!("bench{}", sizes.latched - 1);
    let client = agent.gnmi().await;
    while client.read(&format!("/interfaces/interface[name={last}]/state/name")).await.is_err() {
        tokio::time::sleep(SHOWN_AGAIN).await;
    }
    let mut delays = Vec::new();
    for _ in 0..sizes.faults {
        for down in [true, false] {
            let began = Instant::now();
            let mut requests = JoinSet::new();
            for number in 0..sizes.latched {
                let mut faults = faults.clone();
                let request = latch(&format!("bench{number}"), down);
                requests.spawn(async move { faults.set_forced_down(request).await });
            }
            for answer in requests.join_all().await {
                answer?;
            }
            if down {
                delays.push(began.elapsed());
            }
        }
    }
    let what = format!("the last of {} of them", sizes.latched);
    table.delays(&what, delays, 99, LAST_LATCH_MS);
    Ok(())
}

/// From a fault to a link that the kernel has down because of it, by a policy.
async fn fence_rows(
    table: &mut Table,
    agent: &AgentProcess,
    client: &GnmiClient,
    sizes: Sizes,
) -> Result<()> {
    let policy = json!({
        "type": "forced-down",
        "resource": "interface:eth1",
        "action": "shut",
        "recovery-delay": 0,
        "allow-isolation": true,
    });
    client.update(&format!("{MANAGEMENT}/policy[name=bench]"), policy).await.context("a policy")?;
    let mut faults = faults_of(agent).await;
    let mut delays = Vec::new();
    for _ in 0..sizes.faults {
        delays.push(fence(&mut faults).await?);
    }
    table.delays("fault to the fence in the kernel", delays, 99, FENCE_MS);

    let mut delays = Vec::new();
    for _ in 0..yardstick::REPETITIONS {
        let replace = vec![update(STATIC_ROUTES, routes_via("192.0.2.2", 0..sizes.beside))];
        let setting = client.set(SetRequest { replace, ..Default::default() });
        tokio::pin!(setting);
        loop {
            let mut fencing = std::pin::pin!(fence(&mut faults));
            tokio::select! {
                result = &mut setting => {
                    result.context("the large Set")?;
                    fencing.await?;
                    break;
                }
                delay = &mut fencing => delays.push(delay?),
            }
        }
        client.delete(STATIC_ROUTES).await?;
    }
    ensure!(!delays.is_empty(), "no fence came beside a Set of {} routes", sizes.beside);
    let what = format!("the same beside a Set of {} routes", sizes.beside);
    table.delays(&what, delays, 99, FENCE_BESIDE_SET_MS);
    Ok(())
}

/// Has the link fenced and unfenced. Returns the time from the request to the fence.
async fn fence(faults: &mut Faults) -> Result<Duration> {
    let began = Instant::now();
    faults.set_forced_down(latch(LINK.name(), true)).await?;
    while is_up()? {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let took = began.elapsed();
    faults.set_forced_down(latch(LINK.name(), false)).await?;
    while !is_up()? {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(took)
}

fn is_up() -> Result<bool> {
    let flags = fs::read_to_string(format!("/sys/class/net/{}/flags", LINK.name()))?;
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16)?;
    Ok(flags & IFF_UP != 0)
}
