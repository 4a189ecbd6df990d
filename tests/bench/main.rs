//! `make bench`: times of the agent, compared with the kernel alone in the same run.
//!
//! One table: each row has the agent's number, its yardstick, their ratio and the target. A missed target is
//! marked; with `--strict` the program then fails, which only makes sense on a machine that does nothing else.
//! `--all` adds the sizes of a release. `--smoke` makes everything small: it proves that each row comes to its end,
//! also with an agent that is not optimised, and its figures mean nothing. `--markdown FILE` also puts the table into
//! that document, in place of the one there. `--only PART` runs the rows of one [`Part`], and may be repeated.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is what this program is for"
)]

mod carrier;
mod document;
mod engine;
mod faults;
mod kernel;
mod links;
mod notices;
mod services;
mod system;
mod union;
mod walks;
mod yardstick;

use std::fs;
use std::ops::Range;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use holdfast_proto::gnmi::SetRequest;
use holdfast_store::{Database, MAX_REVISION_OCTETS, RevisionRange};
use holdfast_tests::agent::{AgentProcess, PASSWORD, ResourceUse};
use holdfast_tests::gnmi::{GnmiClient, parse_path, update};
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

use self::carrier::CarrierLink;
use self::document::Document;
use self::notices::LossProbe;

/// Sizes of the workloads.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Routes of the large table.
    routes: u32,
    /// Sets of one leaf that are timed.
    sets: u32,
    /// Virtual cables of a union_replace; each is two interfaces.
    cables: u32,
    /// Routes of a union_replace.
    tables: &'static [u32],
    /// Further Sets with as many routes each, after which the memory is measured.
    further_tables: u32,
    /// Routes, and pairs of links that go at once, of the rows beside another engine's numbers.
    system: Option<(u32, u32)>,
    services: services::Sizes,
    engine: engine::Sizes,
    notices: notices::Sizes,
    faults: faults::Sizes,
    links: links::Sizes,
}

impl Sizes {
    /// Sizes for every change: ends within minutes on two processors.
    const USUAL: Self = Self {
        routes: 100_000,
        sets: 300,
        cables: 100,
        tables: &[10_000],
        further_tables: 0,
        system: None,
        services: services::Sizes {
            instances: 1000,
            sets: 300,
            events: 50,
            many: 9000,
            states: &[1000, 50_000],
        },
        engine: engine::Sizes::FULL,
        notices: notices::Sizes::USUAL,
        faults: faults::Sizes::USUAL,
        links: links::Sizes::FULL,
    };
    /// `--all`: sizes for a release.
    const ALL: Self = Self {
        cables: 500,
        tables: &[10_000, 100_000],
        further_tables: 9,
        system: Some((20_000, 1_000)),
        ..Self::USUAL
    };
    /// `--smoke`: small sizes, which only show that each row completes.
    const SMOKE: Self = Self {
        routes: 500,
        sets: 20,
        cables: 10,
        tables: &[200],
        further_tables: 1,
        system: Some((500, 20)),
        services: services::Sizes {
            instances: 20,
            sets: 10,
            events: 3,
            many: 40,
            states: &[50, 100],
        },
        engine: engine::Sizes::SMOKE,
        notices: notices::Sizes::SMOKE,
        faults: faults::Sizes::SMOKE,
        links: links::Sizes::SMOKE,
    };

    fn is_smoke(self) -> bool {
        self.routes == Self::SMOKE.routes
    }

    fn from_arguments() -> Self {
        let has = |option: &str| std::env::args().any(|argument| argument == option);
        match (has("--all"), has("--smoke")) {
            (true, _) => Self::ALL,
            (_, true) => Self::SMOKE,
            _ => Self::USUAL,
        }
    }
}

/// Rows that belong together, and do not need the agent of others.
#[derive(Clone, Copy, Debug)]
enum Part {
    Engine,
    Kernel,
    Routes,
    Sampler,
    Faults,
    Links,
    Union,
    Services,
}

/// Longest delay from the loss of a carrier, in milliseconds, beside a Set of the large table.
const WORST_LOSS_MS: f64 = 150.0;

/// Resident memory with the large table, in MB.
const MEMORY_MB: f64 = 330.0;
/// Resident memory with ten such tables, in MB.
const MEMORY_OF_ALL_MB: f64 = 3000.0;
/// Time after the answer to the large Set until a reader sees it, in milliseconds.
const READABLE_MS: f64 = 50.0;
/// Start with the large table in place, in milliseconds.
const START_MS: f64 = 1200.0;

const STATIC_ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=static]/static-routes";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(links::IN_GUEST) {
        links::print_times(arguments).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let sizes = Sizes::from_arguments();
    let parts = Part::from_arguments()?;
    let document = Document::from_arguments()?;
    let is_whole = parts.len() == Part::ALL.len();
    anyhow::ensure!(
        document.is_none() || (is_whole && !sizes.is_smoke()),
        "a run of some parts or of small sizes measures nothing to keep"
    );
    let mut table = Table { smoke: sizes.is_smoke(), ..Table::default() };
    for part in parts {
        part.rows(&mut table, sizes).await?;
    }
    let strict = std::env::args().any(|argument| argument == "--strict");
    let ended = if table.print() || !strict { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if let Some(document) = document {
        document.write(&table.to_markdown()?)?;
    }
    Ok(ended)
}

// The names for `--only`. The list has the order of the rows.
holdfast_config::enum_names!(Part {
    Engine = "engine",
    Kernel = "kernel",
    Routes = "routes",
    Sampler = "sampler",
    Faults = "faults",
    Links = "links",
    Union = "union",
    Services = "services",
});

impl Part {
    /// All parts, or those that `--only PART` names; it may be repeated.
    fn from_arguments() -> Result<Vec<Self>> {
        let arguments: Vec<String> = std::env::args().collect();
        let names = Self::ALL.map(Self::name).join(", ");
        let part = |at: usize| {
            let name = arguments.get(at + 1).context("--only needs the name of a part")?;
            Self::by_name(name).with_context(|| format!("`{name}` is not one of: {names}"))
        };
        let places = (0..arguments.len()).filter(|at| arguments[*at] == "--only");
        let parts: Vec<Self> = places.map(part).collect::<Result<_>>()?;
        Ok(if parts.is_empty() { Self::ALL.to_vec() } else { parts })
    }

    async fn rows(self, table: &mut Table, sizes: Sizes) -> Result<()> {
        match self {
            Self::Engine => table.engine(sizes.engine),
            Self::Kernel => match sizes.system {
                Some((routes, pairs)) => kernel::rows(table, routes, pairs).await,
                None => Ok(()),
            },
            Self::Routes => route_rows(table, sizes).await,
            Self::Sampler => notices::sampler_rows(table, sizes.notices).await,
            Self::Faults => faults::rows(table, sizes.faults).await,
            Self::Links => links::rows(table, sizes.links).await,
            Self::Union => union::rows(table, sizes.cables, sizes.tables).await,
            Self::Services => services::rows(table, sizes.services).await,
        }
    }
}

/// One agent with a large table of routes: starts, Sets of it and beside it, memory, and losses that are told meanwhile.
async fn route_rows(table: &mut Table, sizes: Sizes) -> Result<()> {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    carrier::add_links(&net)?;
    let mut agent = AgentProcess::start_as(PASSWORD, &[]).await;
    let used = agent.resource_use();
    table.time("start, empty", agent.start_time(), "exec alone", yardstick::exec()?, Some(500.0));
    table.note_cost(&used);
    table.row("idle memory, MB", megabytes(agent.resident_bytes()), None, Some(40.0));

    let client = agent.gnmi().await;
    client.update("/interfaces", port()).await.context("the port")?;
    let disk = yardstick::synced_write()?;
    let before = agent.resource_use();
    let empty = one_leaf_sets(&client, sizes.sets).await?;
    let used = agent.resource_use().since(before);
    table.time("one leaf at 0 routes, p50", percentile(&empty, 50), "one synced write", disk, None);
    table.note_cost(&used);
    table.time(
        "one leaf at 0 routes, p99",
        percentile(&empty, 99),
        "one synced write",
        disk,
        Some(10.0),
    );

    if let Some((routes, pairs)) = sizes.system {
        system::rows(table, &agent, &client, &net, routes, pairs).await?;
    }

    let count = sizes.routes;
    let raw = yardstick::routes(&net, count)?;
    let mut created = Vec::new();
    let mut deleted = Vec::new();
    let mut resident = Vec::new();
    for _ in 0..yardstick::REPETITIONS {
        created.push(set_routes(&agent, &client, &net, count).await?);
        resident.push(agent.resident_bytes());
        deleted.push(delete_routes(&agent, &client, &net).await?);
    }
    let created = SetTimes::median(created);
    let deleted = SetTimes::median(deleted);
    table.ratio(
        &format!("{count} routes in one Set"),
        created.answered,
        "batched netlink",
        raw,
        3.0,
    );
    table.note_cost(&created.used);
    let readable_after = created.readable_after;
    table.time("seen after the answer", readable_after, "batched netlink", raw, Some(READABLE_MS));
    resident.sort_unstable();
    let resident = megabytes(resident[resident.len() / 2]);
    table.row("memory with the routes, MB", resident, None, Some(MEMORY_MB));
    table.ratio("the routes deleted", deleted.answered, "the Set", created.answered, 1.3);
    table.note_cost(&deleted.used);
    notices::quiet_rows(table, &agent, &client, sizes.notices).await?;
    set_routes(&agent, &client, &net, count).await?;
    for link in CarrierLink::ALL {
        let kind = link.kind();
        let mut during_delete = Vec::new();
        let mut during_set = Vec::new();
        for _ in 0..sizes.notices.rounds {
            let probe = LossProbe::start(&agent, link).await?;
            delete_routes(&agent, &client, &net).await?;
            during_delete.extend(probe.finish()?);
            let probe = LossProbe::start(&agent, link).await?;
            set_routes(&agent, &client, &net, count).await?;
            during_set.extend(probe.finish()?);
        }
        table.delays(&format!("{kind} loss beside the delete"), during_delete, 100, WORST_LOSS_MS);
        table.delays(&format!("{kind} loss beside the Set"), during_set, 100, WORST_LOSS_MS);
    }
    notices::row_amid_table(table, &agent, sizes.notices).await?;

    let before = agent.resource_use();
    let full = one_leaf_sets(&client, sizes.sets).await?;
    let used = agent.resource_use().since(before);
    let name = "the same at 0 routes";
    table.time(
        &format!("one leaf at {count} routes, p50"),
        percentile(&full, 50),
        name,
        percentile(&empty, 50),
        None,
    );
    table.note_cost(&used);
    table.time(
        &format!("one leaf at {count} routes, p99"),
        percentile(&full, 99),
        name,
        percentile(&empty, 99),
        Some(10.0),
    );

    if sizes.further_tables > 0 {
        let before = agent.resource_use();
        for table in 1..=sizes.further_tables {
            let more = vec![update(STATIC_ROUTES, routes(table * count..(table + 1) * count))];
            client.set(SetRequest { update: more, ..Default::default() }).await?;
        }
        client.read("/interfaces/interface[name=eth0]/config/enabled").await?;
        let all = count * (1 + sizes.further_tables);
        let resident = megabytes(agent.resident_bytes());
        table.row(&format!("memory with {all} routes, MB"), resident, None, Some(MEMORY_OF_ALL_MB));
        table.note_cost(&agent.resource_use().since(before));
        set_routes(&agent, &client, &net, count).await?;
    }

    agent.restart().await;
    table.time(
        &format!("start, {count} routes in sync"),
        agent.start_time(),
        "exec alone",
        yardstick::exec()?,
        Some(START_MS),
    );
    table.note_cost(&agent.resource_use());
    agent.kill();
    let log = Database::open(&agent.state_dir())?.revisions(RevisionRange::ALL)?;
    table.row(
        "log of revisions, MB",
        megabytes(log.octets),
        None,
        Some(megabytes(MAX_REVISION_OCTETS)),
    );
    Ok(())
}

fn port() -> Value {
    port_with("eth0", "192.0.2.1")
}

/// A document with a port and its address.
fn port_with(name: &str, address: &str) -> Value {
    let address = json!({"ip": address, "config": {"ip": address, "prefix-length": 24}});
    let ipv4 = json!({"addresses": {"address": [address]}});
    let subinterface = json!({"index": 0, "config": {"index": 0}, "openconfig-if-ip:ipv4": ipv4});
    json!({"interface": [{
        "name": name,
        "config": {"name": name, "enabled": true},
        "subinterfaces": {"subinterface": [subinterface]},
    }]})
}

/// Times of a Set, and what the agent has used for it.
struct SetTimes {
    answered: Duration,
    /// Time of a Get right after the answer.
    readable_after: Duration,
    used: ResourceUse,
}

impl SetTimes {
    /// Medians of several runs, each alone.
    fn median(runs: Vec<Self>) -> Self {
        fn middle<T: Ord + Copy>(runs: &[SetTimes], of: impl Fn(&SetTimes) -> T) -> T {
            let mut all: Vec<T> = runs.iter().map(of).collect();
            all.sort_unstable();
            all[all.len() / 2]
        }
        Self {
            answered: middle(&runs, |it| it.answered),
            readable_after: middle(&runs, |it| it.readable_after),
            used: ResourceUse {
                processor: middle(&runs, |it| it.used.processor),
                page_faults: middle(&runs, |it| it.used.page_faults),
                written_bytes: middle(&runs, |it| it.used.written_bytes),
            },
        }
    }
}

/// One Set with `count` routes, which are in the kernel when it is answered.
async fn set_routes(
    agent: &AgentProcess,
    client: &GnmiClient,
    net: &Netns,
    count: u32,
) -> Result<SetTimes> {
    let replace = vec![update(STATIC_ROUTES, routes(0..count))];
    let took = timed_set(agent, client, SetRequest { replace, ..Default::default() }).await?;
    let installed = net.routes("150").len();
    anyhow::ensure!(installed == count as usize, "{installed} of {count} routes are in the kernel");
    Ok(took)
}

/// One Set that deletes all routes.
async fn delete_routes(agent: &AgentProcess, client: &GnmiClient, net: &Netns) -> Result<SetTimes> {
    let delete = vec![parse_path(STATIC_ROUTES)];
    let took = timed_set(agent, client, SetRequest { delete, ..Default::default() }).await?;
    anyhow::ensure!(net.routes("150").is_empty(), "there are routes left in the kernel");
    Ok(took)
}

/// Times a Set. The client writes the document before the clock starts.
async fn timed_set(
    agent: &AgentProcess,
    client: &GnmiClient,
    request: SetRequest,
) -> Result<SetTimes> {
    let before = agent.resource_use();
    let started = Instant::now();
    client.set(request).await.context("the routes")?;
    let answered = started.elapsed();
    client.read("/interfaces/interface[name=eth0]/config/enabled").await?;
    let readable_after = started.elapsed() - answered;
    let used = agent.resource_use().since(before);
    Ok(SetTimes { answered, readable_after, used })
}

/// A document with static routes of these numbers, each through the neighbour of the port.
fn routes(numbers: Range<u32>) -> Value {
    routes_via("192.0.2.2", numbers)
}

/// A document with static routes of these numbers through a next hop.
fn routes_via(next_hop: &str, numbers: Range<u32>) -> Value {
    let route = |number: u32| {
        let prefix = format!("{}/32", yardstick::destination(number));
        let hop = json!({"index": "0", "config": {"index": "0", "next-hop": next_hop}});
        json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [hop]}})
    };
    let routes: Vec<Value> = numbers.map(route).collect();
    json!({"static": routes})
}

/// Times of many small Sets, sorted.
async fn one_leaf_sets(client: &GnmiClient, sets: u32) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in 0..sets {
        times.push(time_one_leaf(client, &format!("number {number}")).await?);
    }
    times.sort();
    Ok(times)
}

/// Time of a Set of the description of a port.
async fn time_one_leaf(client: &GnmiClient, description: &str) -> Result<Duration> {
    let started = Instant::now();
    client.update("/interfaces/interface[name=eth0]/config/description", description).await?;
    Ok(started.elapsed())
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

fn milliseconds(time: Duration) -> f64 {
    time.div_duration_f64(Duration::from_millis(1))
}

fn megabytes(octets: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a size of memory is far below 2^52")]
    let octets = octets as f64;
    octets / 1_000_000.0
}

/// One row: the workload, the agent's time, the yardstick, their ratio, the target, and what the agent has used for it.
type Row = [String; 6];

/// The rows that will be printed.
#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    missed: bool,
    /// True with small sizes, to which the targets do not apply.
    smoke: bool,
}

impl Table {
    /// A time, its yardstick and a target in milliseconds.
    fn time(
        &mut self,
        what: &str,
        time: Duration,
        yardstick: &str,
        yard: Duration,
        target: Option<f64>,
    ) {
        let ours = milliseconds(time);
        let theirs = milliseconds(yard);
        let yard = format!("{yardstick} {theirs:.3} ms");
        self.add(
            what,
            &format!("{ours:.3} ms"),
            &yard,
            ours / theirs,
            target.map(|target| (ours, target, "ms")),
        );
    }

    /// The engine without a system, compared with its predecessor.
    fn engine(&mut self, sizes: engine::Sizes) -> Result<()> {
        let (rows, memory) = engine::measure(sizes)?;
        for engine::Row { what, took, original, target } in rows {
            self.time(&what, took, "the original", original, Some(milliseconds(target)));
        }
        let engine::Memory { octets, original, target } = memory;
        self.add(
            "engine: bytes for each value",
            &format!("{octets:.0}"),
            &format!("the original {original:.0}"),
            octets / original,
            Some((octets, target, "")),
        );
        Ok(())
    }

    /// A time whose target is a ratio.
    fn ratio(&mut self, what: &str, time: Duration, yardstick: &str, yard: Duration, target: f64) {
        let ratio = time.as_secs_f64() / yard.as_secs_f64();
        let yard = format!("{yardstick} {:.2} ms", milliseconds(yard));
        self.add(
            what,
            &format!("{:.2} ms", milliseconds(time)),
            &yard,
            ratio,
            Some((ratio, target, "x")),
        );
    }

    /// Delays by their percentiles; one has a target in milliseconds.
    fn delays(&mut self, what: &str, mut delays: Vec<Duration>, judged: usize, target: f64) {
        delays.sort();
        let at = |percent| milliseconds(percentile(&delays, percent));
        let [p50, p90, p99, longest] = [50, 90, 99, 100].map(at);
        let name = if judged == 100 { "longest".to_owned() } else { format!("p{judged}") };
        self.add(
            &format!("{what}, {name} of {}", delays.len()),
            &format!("{:.1} ms", at(judged)),
            &format!("p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}, max {longest:.1} ms"),
            at(judged) / p50,
            Some((at(judged), target, "ms")),
        );
    }

    fn row(&mut self, what: &str, value: f64, yardstick: Option<&str>, target: Option<f64>) {
        self.add(
            what,
            &format!("{value:.1}"),
            yardstick.unwrap_or("-"),
            f64::NAN,
            target.map(|t| (value, t, "")),
        );
    }

    fn add(
        &mut self,
        what: &str,
        ours: &str,
        yardstick: &str,
        ratio: f64,
        target: Option<(f64, f64, &str)>,
    ) {
        let ratio = if ratio.is_nan() { "-".into() } else { format!("{ratio:.1}x") };
        let verdict = match target.filter(|_| !self.smoke) {
            None => String::new(),
            Some((value, target, unit)) if value <= target => format!("<= {target} {unit}, met"),
            Some((_, target, unit)) => {
                self.missed = true;
                format!("<= {target} {unit}, MISSED")
            }
        };
        let [what, ours, yardstick] = [what, ours, yardstick].map(str::to_owned);
        let row = [what, ours, yardstick, ratio, verdict, String::new()];
        eprintln!("{}", line(&row)); // at once: who waits sees what it waits for
        self.rows.push(row);
    }

    /// Adds to the last row what the agent has used.
    fn note_cost(&mut self, used: &ResourceUse) {
        let cost = format!(
            "{:.2} s of processors, {} page faults, {:.1} MB written",
            used.processor.as_secs_f64(),
            used.page_faults,
            megabytes(used.written_bytes)
        );
        if let Some([.., last]) = self.rows.last_mut() {
            *last = cost;
        }
    }

    /// Prints it; false when a target was missed.
    fn print(&self) -> bool {
        println!("{}", line(&head()));
        for row in &self.rows {
            println!("{}", line(row));
        }
        println!("Times of a Set are from sending the finished request to its answer.");
        !self.missed
    }

    /// The table in Markdown, with the machine that it was measured on.
    fn to_markdown(&self) -> Result<String> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let processors = available_parallelism()?;
        let kernel = kernel.trim();
        let mut table = format!("Measured with {processors} processors, kernel {kernel}.\n\n");
        table += &cells(&head());
        table += "|---|---|---|---|---|---|\n";
        self.rows.iter().for_each(|row| table += &cells(row));
        Ok(table)
    }
}

fn head() -> Row {
    ["what", "agent", "yardstick", "ratio", "target", "used"].map(str::to_owned)
}

/// A row of the terminal output.
fn line([what, ours, yardstick, ratio, verdict, used]: &Row) -> String {
    let line = format!("{what:<32} {ours:>12}  {yardstick:<34} {ratio:>8}  {verdict:<18} {used}");
    line.trim_end().to_owned()
}

/// A row of a Markdown table.
fn cells(row: &Row) -> String {
    format!("| {} |\n", row.join(" | "))
}
