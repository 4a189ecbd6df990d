//! Memory, descriptors and threads over a long run.

use std::fs;

use anyhow::Result;
use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::subscription::subscribe_to;
use serde_json::json;

use crate::load::ports;
use crate::{Effort, Row, panics};

/// Sets, and as many subscriptions, of the run.
const CALLS: u32 = 20_000;
/// Moments at which the agent is measured.
const SAMPLES: u32 = 10;
/// Growth of the resident memory from the middle of the run to its end, in bytes: the history is full by then, and what is
/// left is the measure of the allocator.
const GROWTH: u64 = 16 << 20;

/// Resources that the process holds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident: u64,
    descriptors: usize,
    threads: usize,
}

impl Sample {
    fn of(agent: &AgentProcess) -> Result<Self> {
        let entries = |what: &str| -> Result<usize> {
            Ok(fs::read_dir(format!("/proc/{}/{what}", agent.pid()))?.count())
        };
        let resident = agent.resident_bytes();
        Ok(Self { resident, descriptors: entries("fd")?, threads: entries("task")? })
    }
}

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("a long run");
    let net = ports();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let calls = effort.scaled(CALLS);
    let mut samples = Vec::new();
    for at in 0..calls {
        let config = json!({"name": "eth0", "description": at.to_string()});
        client.update("/interfaces/interface[name=eth0]/config", config).await?;
        let once = subscribe_to(Mode::Once, &[("/interfaces", SubscriptionMode::TargetDefined)]);
        client.subscribe(once).await?.until_sync().await;
        if (at + 1) % (calls / SAMPLES) == 0 {
            samples.push(Sample::of(&agent)?);
        }
    }
    let middle = samples[samples.len() / 2 - 1];
    let last = samples[samples.len() - 1];
    let mut faults = panics(&agent);
    if effort.time.is_some() && last.resident > middle.resident + GROWTH {
        faults.push(format!("memory grows: {samples:?}"));
    }
    if last.descriptors > middle.descriptors + 2 || last.threads > middle.threads + 2 {
        faults.push(format!("descriptors or threads grow: {samples:?}"));
    }
    row.attempted(u64::from(calls), faults);
    row.note(format!(
        "{} MB in the middle, {} MB at the end, {} descriptors, {} threads",
        middle.resident >> 20,
        last.resident >> 20,
        last.descriptors,
        last.threads
    ));
    Ok(row)
}
