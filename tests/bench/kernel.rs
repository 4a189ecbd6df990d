//! Benchmark of the engine on the kernel, without a client, a configuration or a store: the part that [`super::engine`]
//! leaves out, and to which its targets for a real system apply.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use holdfast_platform::kinds::{address, link, registry, route};
use holdfast_platform::netns::NetnsSetting;
use holdfast_platform::transport::{Event, Events, Transport as _};
use holdfast_platform::values::{
    Address, Hop, KernelRoute, Link, LinkKind, MAIN_TABLE, MadeLink, RouteTarget, VETH,
};
use holdfast_platform::{EmptyVault, Platform, PlatformSettings};
use holdfast_scheduler::{
    Delta, Engine, EngineOutput, Key, Now, Scope, SharedValue, TransactionOutcome,
};
use holdfast_tests::netns::Netns;

use super::{Table, yardstick};

/// Time without events after which the benchmark fails.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

type Change = (Key, Option<SharedValue>);

/// Measures routes that come, and pairs of links that go, in a namespace of their own.
pub(super) async fn rows(table: &mut Table, routes: u32, pairs: u32) -> Result<()> {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut managed = EngineOnKernel::start().await?;
    managed.commit(port()).await?;
    let raw = yardstick::routes(&net, routes)?;
    let took = managed.commit((0..routes).map(kernel_route).collect()).await?;
    ensure!(net.routes("150").len() == routes as usize, "routes are missing");
    let what = format!("engine: {routes} routes");
    table.time(&what, took, "batched netlink", raw, Some(110.0));

    let raw = yardstick::teardown(&net, pairs)?;
    managed.commit((0..pairs).flat_map(pair).collect()).await?;
    let deleted = (0..pairs).flat_map(pair).map(|(key, _)| (key, None)).collect();
    let took = managed.commit(deleted).await?;
    ensure!(net.find_link("p0").is_none(), "pairs are left");
    let what = format!("engine: {pairs} veth pairs go");
    table.time(&what, took, "by link group", raw, Some(500.0));
    Ok(())
}

/// A namespace, and the engine that keeps it in line with its intent.
struct EngineOnKernel {
    engine: Engine,
    platform: Platform,
    events: Events,
    epoch: Instant,
    /// Time of the next call of the engine without an event.
    deadline: Option<Duration>,
}

impl EngineOnKernel {
    async fn start() -> Result<Self> {
        let root = tempfile::tempdir()?;
        let settings = PlatformSettings {
            netns: NetnsSetting::Current,
            hostname: Default::default(),
            root: root.path().into(),
            vault: Arc::new(EmptyVault),
        };
        let (platform, events) = Platform::start(&settings)?;
        let engine = Engine::new(registry());
        let mut managed = Self { engine, platform, events, epoch: Instant::now(), deadline: None };
        loop {
            let event = managed.events.recv().await.context("the transports ended")?;
            let first = matches!(&event, Event::Retrieved { scope: Scope::Everything, .. });
            let now = managed.now();
            let step = event.report_to(&mut managed.engine, now);
            managed.follow(step);
            if first {
                return Ok(managed);
            }
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.epoch.elapsed(), unix_ns: 0 }
    }

    /// Time of a change, from its values to the verified end of all operations.
    async fn commit(&mut self, changes: Vec<Change>) -> Result<Duration> {
        let started = Instant::now();
        let plan = self.engine.plan(Delta::new(changes))?;
        let (txn, step) = self.engine.start(plan, self.now());
        let mut outcomes = self.follow(step);
        loop {
            if let Some(outcome) = outcomes.into_iter().find(|outcome| outcome.txn() == txn) {
                ensure!(
                    matches!(outcome, TransactionOutcome::Done { .. }),
                    "it ends with {outcome:?}"
                );
                return Ok(started.elapsed());
            }
            let step = self.next().await?;
            outcomes = self.follow(step);
        }
    }

    async fn next(&mut self) -> Result<EngineOutput> {
        let due = self.deadline.map_or(EVENT_TIMEOUT, |at| at.saturating_sub(self.epoch.elapsed()));
        let event = tokio::time::timeout(due, self.events.recv()).await;
        let now = self.now();
        match event {
            Ok(event) => {
                Ok(event.context("the transports ended")?.report_to(&mut self.engine, now))
            }
            Err(_) if self.deadline.is_some() => Ok(self.engine.due(now)),
            Err(_) => bail!("nothing happens any more"),
        }
    }

    /// Passes a step of the engine to the transports; returns the transactions that have ended.
    fn follow(&mut self, step: EngineOutput) -> Vec<TransactionOutcome> {
        self.platform.submit(step.submit);
        self.platform.read(step.read);
        self.deadline = step.deadline;
        step.finished
    }
}

/// The port and address that lead to the neighbour.
fn port() -> Vec<Change> {
    let port = Link::new("eth0", LinkKind::Physical);
    let ip = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
    let address = Address::new("eth0", ip, 24);
    vec![
        (link::key("eth0"), Some(Arc::new(port))),
        (address::key("eth0", ip), Some(Arc::new(address))),
    ]
}

/// A route through the neighbour of the port.
fn kernel_route(number: u32) -> Change {
    let prefix = IpAddr::from(yardstick::destination(number)).into();
    let hop = Hop { gateway: Some(Ipv4Addr::new(192, 0, 2, 2).into()), link: None };
    let target = RouteTarget::Hops(vec![hop]);
    let route = KernelRoute::new(MAIN_TABLE, prefix, 20, target);
    (route::key(MAIN_TABLE, prefix, 20), Some(Arc::new(route)))
}

/// Both ends of a virtual cable.
fn pair(number: u32) -> [Change; 2] {
    let end = |name: &str, peer: &str| -> Change {
        let kind = MadeLink::new(&VETH).with("peer", peer).into();
        (link::key(name), Some(Arc::new(Link::new(name, kind))))
    };
    let near = format!("p{number}");
    let far = format!("q{number}");
    [end(&near, &far), end(&far, &near)]
}
