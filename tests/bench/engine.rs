//! Benchmark of the engine alone, on a transport that does nothing: the cost of planning and bookkeeping, history
//! included.
//!
//! The yardsticks are the times of KVScheduler, the predecessor of this engine, for workloads of the same shape.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_scheduler::{
    Completion, Delta, Dependency, Descriptor, Effect, Engine, EngineOutput, Facet, Fact, Key,
    KindId, Now, Offer, Operation, OperationError, Part, PartsChanged, Registry, SharedValue,
    TransactionOutcome, TransportId,
};

/// Sizes of the workloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Groups of the large table: a link, its two properties and a route make four values.
    groups: u32,
    /// Values that wait for a missing one.
    waiting: u32,
    members: u32,
    chain: u32,
    layers: u32,
    /// New engines that do the same large change, one after the other.
    repeats: u32,
    /// Changes of one value that are timed; at most as many as there are groups.
    changes: u32,
}

impl Sizes {
    /// Sizes to which the targets apply.
    pub(crate) const FULL: Self = Self {
        groups: 25_000,
        waiting: 100_000,
        members: 10_000,
        chain: 8_000,
        layers: 30,
        repeats: 5,
        changes: 2_000,
    };
    /// Small sizes, which only show that each row completes.
    pub(crate) const SMOKE: Self = Self {
        groups: 250,
        waiting: 1_000,
        members: 100,
        chain: 80,
        layers: 30,
        repeats: 1,
        changes: 20,
    };
}

/// Members that are added one by one.
const ADDITIONS: u32 = 100;
/// New engines that load the layers, one after the other.
const ENGINES: u32 = 21;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) took: Duration,
    /// Time that the original takes.
    pub(crate) original: Duration,
    pub(crate) target: Duration,
}

/// Bytes for each value, history included, and the target.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) octets: f64,
    pub(crate) original: f64,
    pub(crate) target: f64,
}

const fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Measures everything.
pub(crate) fn measure(sizes: Sizes) -> Result<(Vec<Row>, Memory)> {
    let Sizes { groups, waiting, members, chain, layers, repeats, changes } = sizes;
    let values = 4 * groups;
    let mut rows = Vec::new();
    let mut row = |what: &str, took, original, target| {
        rows.push(Row { what: format!("engine: {what}"), took, original, target });
    };
    let before = resident_octets()?;
    let mut bench = EngineBench::new()?;
    let first = bench.commit(groups_of(groups))?;
    let octets = (resident_octets()? - before) / f64::from(values);
    let mut times = vec![first];
    for _ in 1..repeats {
        times.push(EngineBench::new()?.commit(groups_of(groups))?);
    }
    row(&format!("create {values} values"), median(times), millis(4080), millis(150));
    let plan = bench.plan_one(changes)?;
    row(&format!("plan of one change in {values}"), plan, millis(334), micros(20));
    let ones = bench.change_ones(changes)?;
    let at = |percent: usize| ones[(ones.len() - 1) * percent / 100];
    row(&format!("one change in {values}, p50"), at(50), micros(71), micros(15));
    row(&format!("one change in {values}, p99"), at(99), micros(71), micros(60));
    let failed = bench.fail_one(changes)?;
    row(&format!("one failing change in {values}"), failed, millis(227), micros(100));
    let resynced = bench.resync(groups)?;
    row(&format!("resync in sync, {values}"), resynced, millis(2960), millis(40));
    drop(bench);

    let mut waited = Vec::new();
    let mut came = Vec::new();
    for _ in 0..repeats {
        let mut bench = EngineBench::new()?;
        let all =
            (0..waiting).map(|number| creation(DependentValue::new(number, &[waiting]))).collect();
        waited.push(bench.commit(all)?);
        came.push(bench.commit(vec![creation(DependentValue::new(waiting, &[]))])?);
    }
    row(&format!("{waiting} values wait for one"), median(waited), millis(31_300), millis(100));
    // As much as for the creation of that many values, which this is: each is planned for, carried out and recorded.
    row("the one they wait for comes", median(came), millis(1600), millis(150));

    let mut bench = EngineBench::new()?;
    bench
        .commit(vec![creation(DependentValue { parts: members, ..DependentValue::new(0, &[]) })])?;
    let grown = bench.grow(members)?;
    row(&format!("one member more of {members}"), grown, millis(70), micros(50));

    let linked =
        || (0..chain).map(|number| creation(DependentValue::new(number, &[number + 1]))).collect();
    let mut times = Vec::new();
    for _ in 0..repeats {
        times.push(EngineBench::new()?.commit(linked())?);
    }
    row(&format!("a chain of {chain}, pending"), median(times), millis(59_400), millis(10));

    let pending = diamonds(layers)?;
    row(&format!("{layers} layers of diamonds, pending"), pending, millis(300_000), micros(100));
    Ok((rows, Memory { octets, original: 1700.0, target: 500.0 }))
}

/// The median of many new engines, because a single time depends on what the rows before have left in the caches.
fn diamonds(layers: u32) -> Result<Duration> {
    let below = |number: u32| [(number / 2 + 1) * 2, (number / 2 + 1) * 2 + 1];
    let layer = |number| creation(DependentValue::new(number, &below(number)));
    let mut times = Vec::new();
    for _ in 0..ENGINES {
        times.push(EngineBench::new()?.commit((0..2 * layers).map(layer).collect())?);
    }
    Ok(median(times))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A link with its properties and a route that needs the link and any of them, many times.
fn groups_of(count: u32) -> Vec<Change> {
    let group = |number: u32| {
        let route = Route { number, metric: 0 };
        let link = Link { number };
        [(link_key(number), shared(link)), (route_key(number), shared(route))]
    };
    (0..count).flat_map(group).collect()
}

type Change = (Key, Option<SharedValue>);

fn shared(value: impl holdfast_scheduler::ObjectValue) -> Option<SharedValue> {
    Some(Arc::new(value))
}

fn creation(thing: DependentValue) -> Change {
    (dependent_value_key(thing.number), shared(thing))
}

/// An engine and a system that agrees to everything at once.
struct EngineBench {
    engine: Engine,
    begun: Instant,
}

impl EngineBench {
    fn new() -> Result<Self> {
        let mut registry = Registry::new();
        registry.register(LinkDescriptor)?;
        registry.register(PropertyDescriptor)?;
        registry.register(RouteDescriptor)?;
        registry.register(DependentValueDescriptor)?;
        registry.register(MemberDescriptor)?;
        Ok(Self { engine: Engine::new(registry), begun: Instant::now() })
    }

    fn now(&self) -> Now {
        Now { monotonic: self.begun.elapsed(), unix_ns: 0 }
    }

    /// Plans a change and carries it out to the end; returns the time.
    fn commit(&mut self, changes: Vec<Change>) -> Result<Duration> {
        let started = Instant::now();
        let plan = self.engine.plan(Delta::new(changes))?;
        let (_, step) = self.engine.start(plan, self.now());
        let outcome = self.follow(step, None)?;
        let took = started.elapsed();
        ensure!(matches!(outcome, TransactionOutcome::Done { .. }), "{outcome:?}");
        Ok(took)
    }

    /// Answers all operations until the transaction ends. The operation on `refused` fails.
    fn follow(
        &mut self,
        mut step: EngineOutput,
        refused: Option<&Key>,
    ) -> Result<TransactionOutcome> {
        loop {
            if let Some(outcome) = step.finished.pop() {
                return Ok(outcome);
            }
            if step.submit.is_empty() && step.deadline == Some(Duration::ZERO) {
                step = self.engine.due(self.now()); // a plan is taken over in portions
                continue;
            }
            ensure!(!step.submit.is_empty(), "the engine waits for nothing");
            let answer = |op: &Operation| {
                if refused == Some(&op.key) {
                    let error = OperationError::message("refused");
                    return Completion { op: op.id, result: Err(error), observed: None };
                }
                let read_back = Fact { key: op.key.clone(), value: op.new.clone(), time_ns: 0 };
                Completion { op: op.id, result: Ok(()), observed: Some(read_back) }
            };
            let answers = step.submit.iter().map(answer).collect();
            step = self.engine.completed(answers, self.now());
            // A failed value is read back.
            if step.finished.is_empty() && !step.read.is_empty() {
                let fact = |key: &Key| Fact {
                    key: key.clone(),
                    value: self.engine.planes(key)[2].cloned(),
                    time_ns: 0,
                };
                let facts = step.read.iter().map(fact).collect();
                step = self.engine.observed(facts, self.now());
            }
        }
    }

    fn plan_one(&self, changes: u32) -> Result<Duration> {
        let started = Instant::now();
        for number in 0..changes {
            let route = Route { number, metric: 1 };
            let plan = self.engine.plan(Delta::new(vec![(route_key(number), shared(route))]))?;
            ensure!(plan.operations().len() == 1, "{plan}");
        }
        Ok(started.elapsed() / changes)
    }

    /// Times of many changes of one value, sorted.
    fn change_ones(&mut self, changes: u32) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        for number in 0..changes {
            let route = Route { number, metric: 2 };
            times.push(self.commit(vec![(route_key(number), shared(route))])?);
        }
        times.sort();
        Ok(times)
    }

    /// The median time to add one member.
    fn grow(&mut self, members: u32) -> Result<Duration> {
        let mut times = Vec::new();
        for more in 1..=ADDITIONS {
            let grown = DependentValue { parts: members + more, ..DependentValue::new(0, &[]) };
            times.push(self.commit(vec![creation(grown)])?);
        }
        Ok(median(times))
    }

    /// The median time of changes whose operation fails.
    fn fail_one(&mut self, changes: u32) -> Result<Duration> {
        let mut times = Vec::new();
        for number in 0..changes {
            let key = route_key(number);
            let route = Route { number, metric: 3 };
            let started = Instant::now();
            let plan = self.engine.plan(Delta::new(vec![(key.clone(), shared(route))]))?;
            let (_, step) = self.engine.start(plan, self.now());
            let outcome = self.follow(step, Some(&key))?;
            times.push(started.elapsed());
            ensure!(
                matches!(outcome, TransactionOutcome::Failed { undone: true, .. }),
                "{outcome:?}"
            );
        }
        Ok(median(times))
    }

    /// Time of a resync without differences.
    fn resync(&mut self, groups: u32) -> Result<Duration> {
        let observed = |key: Key| {
            let value = self.engine.planes(&key)[2].cloned();
            Fact { key, value, time_ns: 0 }
        };
        let keys = (0..groups).flat_map(|number| [link_key(number), route_key(number)]);
        let facts: Vec<Fact> = keys.map(observed).collect();
        let planned = self.engine.counters().operations_planned;
        let started = Instant::now();
        let mut step = self.engine.resync(facts, self.now());
        while !step.is_complete {
            step = self.engine.due(self.now()); // a large reading is taken in in portions
        }
        let took = started.elapsed();
        ensure!(step.submit.is_empty() && self.engine.counters().operations_planned == planned);
        Ok(took)
    }
}

fn resident_octets() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u32 = text.split(' ').nth(1).context("resident pages")?.parse()?;
    Ok(f64::from(pages) * 4096.0)
}

const LINK: KindId = KindId(1);
const PROPERTY: KindId = KindId(2);
const ROUTE: KindId = KindId(3);
const DEPENDENT_VALUE: KindId = KindId(4);
const MEMBER: KindId = KindId(5);

fn link_key(number: u32) -> Key {
    Key::of(LINK).str(&format!("eth{number}"))
}

fn route_key(number: u32) -> Key {
    Key::of(ROUTE).u32(254).ip(IpAddr::from(Ipv4Addr::from(number)))
}

fn dependent_value_key(number: u32) -> Key {
    Key::of(DEPENDENT_VALUE).u32(number)
}

/// The facet of all addresses of a link.
fn addresses(number: u32) -> Facet {
    Facet::of(LINK, "address").u32(number)
}

#[derive(Debug, PartialEq)]
struct Link {
    number: u32,
}

#[derive(Debug, PartialEq)]
struct Property {
    link: u32,
    which: u32,
}

#[derive(Debug, PartialEq)]
struct Route {
    number: u32,
    metric: u32,
}

/// A value that depends on others, and may have parts.
#[derive(Debug, PartialEq)]
struct DependentValue {
    number: u32,
    needs: Vec<u32>,
    parts: u32,
}

impl DependentValue {
    fn new(number: u32, needs: &[u32]) -> Self {
        Self { number, needs: needs.to_vec(), parts: 0 }
    }
}

#[derive(Debug, PartialEq)]
struct Member(u32);

#[derive(Debug)]
struct LinkDescriptor;

impl Descriptor for LinkDescriptor {
    type Value = Link;

    fn kind(&self) -> KindId {
        LINK
    }

    fn name(&self) -> &'static str {
        "link"
    }

    fn key(&self, link: &Link) -> Key {
        link_key(link.number)
    }

    fn label(&self, link: &Link) -> String {
        format!("link eth{}", link.number)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(0))
    }

    fn parts(&self, link: &Link) -> Vec<Part> {
        let property = |which| {
            let property = Property { link: link.number, which };
            (PropertyDescriptor.key(&property), Arc::new(property) as SharedValue)
        };
        [0, 1].map(property).into()
    }
}

#[derive(Debug)]
struct PropertyDescriptor;

impl Descriptor for PropertyDescriptor {
    type Value = Property;

    fn kind(&self) -> KindId {
        PROPERTY
    }

    fn name(&self) -> &'static str {
        "property"
    }

    fn key(&self, property: &Property) -> Key {
        Key::of(PROPERTY).u32(property.link).u32(property.which)
    }

    fn label(&self, property: &Property) -> String {
        format!("property {} of eth{}", property.which, property.link)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }

    fn provides(&self, property: &Property) -> Vec<Offer> {
        vec![addresses(property.link).into()]
    }
}

#[derive(Debug)]
struct RouteDescriptor;

impl Descriptor for RouteDescriptor {
    type Value = Route;

    fn kind(&self) -> KindId {
        ROUTE
    }

    fn name(&self) -> &'static str {
        "route"
    }

    fn key(&self, route: &Route) -> Key {
        route_key(route.number)
    }

    fn label(&self, route: &Route) -> String {
        format!("route {}", Ipv4Addr::from(route.number))
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(0))
    }

    fn dependencies(&self, route: &Route) -> Vec<Dependency> {
        vec![
            Dependency::exact("link", link_key(route.number)),
            Dependency::any_of("address", addresses(route.number)),
        ]
    }
}

#[derive(Debug)]
struct DependentValueDescriptor;

impl Descriptor for DependentValueDescriptor {
    type Value = DependentValue;

    fn kind(&self) -> KindId {
        DEPENDENT_VALUE
    }

    fn name(&self) -> &'static str {
        "thing"
    }

    fn key(&self, thing: &DependentValue) -> Key {
        dependent_value_key(thing.number)
    }

    fn label(&self, thing: &DependentValue) -> String {
        format!("thing {}", thing.number)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(0))
    }

    fn dependencies(&self, thing: &DependentValue) -> Vec<Dependency> {
        let need =
            |&number: &u32| Dependency::exact(number.to_string(), dependent_value_key(number));
        thing.needs.iter().map(need).collect()
    }

    fn parts(&self, thing: &DependentValue) -> Vec<Part> {
        (0..thing.parts).map(member).collect()
    }

    fn parts_changed(&self, old: &DependentValue, new: &DependentValue) -> Option<PartsChanged> {
        let set = (old.parts..new.parts).map(member).collect();
        let removed = (new.parts..old.parts).map(|number| member(number).0).collect();
        Some(PartsChanged { set, removed })
    }
}

fn member(number: u32) -> Part {
    (MemberDescriptor.key(&Member(number)), Arc::new(Member(number)))
}

#[derive(Debug)]
struct MemberDescriptor;

impl Descriptor for MemberDescriptor {
    type Value = Member;

    fn kind(&self) -> KindId {
        MEMBER
    }

    fn name(&self) -> &'static str {
        "member"
    }

    fn key(&self, member: &Member) -> Key {
        Key::of(MEMBER).u32(member.0)
    }

    fn label(&self, member: &Member) -> String {
        format!("member {}", member.0)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(0))
    }
}
