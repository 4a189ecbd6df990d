//! The kernel changes behind the agent: more than it can hear of, while it reads, and all the time.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::netns::Netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::load::{Load, ports};
use crate::{Effort, Row};

/// Changes of links while the agent is stopped: more than the kernel keeps for a listener.
const CHANGES: u32 = 40_000;
/// Foreign routes that come and go.
const ROUTES: u32 = 20_000;
/// Longest time of load, in milliseconds.
const LOAD_MS: u64 = 500;

/// Lines for `ip -batch`, carried out once or again and again.
struct Batch {
    _folder: TempDir,
    file: String,
}

impl Batch {
    fn new(lines: impl Iterator<Item = String>) -> Result<Self> {
        let folder = TempDir::with_prefix("holdfast-batch-")?;
        let file = folder.path().join("lines");
        fs::write(&file, lines.map(|line| line + "\n").collect::<String>())?;
        let file = file.to_str().context("a name in UTF-8")?.to_owned();
        Ok(Self { _folder: folder, file })
    }

    fn carry_out(&self, net: &Netns) {
        net.ip(&format!("-force -batch {}", self.file));
    }

    /// Carries the lines out again and again, until the value is dropped.
    fn repeat(&self) -> Result<Repeated> {
        let line = format!("while :; do ip -force -batch {} 2>/dev/null; done", self.file);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-c", &line]);
        Ok(Repeated(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

/// A shell that is killed when this is dropped.
struct Repeated(Child);

impl Drop for Repeated {
    fn drop(&mut self) {
        // It never ends on its own.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Routes of a routing daemon that come and go, with a removal of ours now and then.
fn foreign_routes(number: u32) -> impl Iterator<Item = String> {
    let route = |act: &str, at: u32| {
        format!("route {act} 172.{}.{}.0/24 via 192.0.2.9 proto bird", 16 + at / 250 % 16, at % 250)
    };
    (0..number).flat_map(move |at| {
        let ours = (at % 500 == 0).then(|| format!("route del 198.51.100.{}/32", at / 500 % 20));
        [route("add", at), route("del", at)].into_iter().chain(ours)
    })
}

/// The agent is stopped while links change more often than the kernel can tell it, and objects of ours are taken away.
pub(crate) async fn overrun(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("announcements lost");
    let net = ports();
    let agent = AgentProcess::start(&net).await;
    let mut load = Load::begin(&agent).await?;
    let pid = Pid::from_raw(i32::try_from(agent.pid())?);
    let changes = effort.scaled(CHANGES).max(4000);
    let flaps = (0..changes).map(|at| format!("link set p2 alias change-{at}"));
    let flaps = Batch::new(flaps)?;
    for _ in effort.attempts() {
        load.start(&agent).await;
        sleep(Duration::from_millis(effort.random.random_range(0..LOAD_MS))).await;
        load.stop().await;
        kill(pid, Signal::SIGSTOP)?;
        flaps.carry_out(&net);
        net.ip("address flush dev eth2");
        net.ip("link set eth1 mtu 1600");
        net.ip("route flush proto 150");
        kill(pid, Signal::SIGCONT)?;
        let faults = load.faults(&agent, &net).await;
        row.attempted(load.take_counts().0, faults);
    }
    let overruns = agent.log().matches("announcements of the kernel were lost").count();
    row.note(format!("{overruns} overruns of {changes} changes each"));
    Ok(row)
}

/// The agent starts, and reads everything, while routes come and go.
pub(crate) async fn interrupted_readings(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("starts while routes change");
    let net = ports();
    let mut agent = AgentProcess::start(&net).await;
    let mut load = Load::begin(&agent).await?;
    let churn = Batch::new(foreign_routes(effort.scaled(ROUTES)))?;
    for _ in effort.attempts() {
        let repeated = churn.repeat()?;
        load.start(&agent).await;
        sleep(Duration::from_millis(effort.random.random_range(0..LOAD_MS))).await;
        agent.kill();
        load.stop().await;
        agent.restart().await;
        drop(repeated);
        let faults = load.faults(&agent, &net).await;
        row.attempted(load.take_counts().0, faults);
    }
    Ok(row)
}

/// Others change routes at a high rate, ours among them, while clients change the configuration.
pub(crate) async fn foreign_changes(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("foreign changes at a high rate");
    let net = ports();
    let agent = AgentProcess::start(&net).await;
    let mut load = Load::begin(&agent).await?;
    let churn = Batch::new(foreign_routes(effort.scaled(ROUTES)))?;
    for _ in effort.attempts() {
        let repeated = churn.repeat()?;
        load.start(&agent).await;
        sleep(Duration::from_millis(4 * LOAD_MS)).await;
        load.stop().await;
        drop(repeated);
        let faults = load.faults(&agent, &net).await;
        row.attempted(load.take_counts().0, faults);
    }
    Ok(row)
}
