//! Installations and removals of a package of services, by one agent.

use std::fs::read_dir;
use std::time::Duration;

use anyhow::{Result, anyhow};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::services::{operate, packed};

use crate::load::ports;
use crate::{Effort, Row, panics};

/// Installations of the run, each followed by a removal.
const ROUNDS: u32 = 1_000;
/// Moments at which the agent is measured.
const SAMPLES: u32 = 10;
/// Growth of the resident memory from the middle of the run to its end, in bytes: the histories are full by then.
const GROWTH: u64 = 4 << 20;
/// Processor time of the last tenth of the run, in percent of that of the second one. Leftovers of each round would
/// make every later one slower.
const SLOWER: u128 = 130;

#[derive(Clone, Copy, Debug)]
struct Sample {
    resident: u64,
    /// Time of the processor since the sample before.
    processor: Duration,
    descriptors: usize,
    /// Models that the agent says it has.
    models: usize,
}

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("installations and removals");
    let net = ports();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let folder = packed("uplink");
    let archive = folder.path().join("uplink-1.0.0.hfs");
    let archive = archive.to_str().ok_or_else(|| anyhow!("the folder has no name in UTF-8"))?;
    let rounds = effort.scaled(ROUNDS);
    let mut samples: Vec<Sample> = Vec::new();
    let mut before = agent.resource_use();
    for at in 0..rounds {
        for operation in [["install", archive], ["remove", "uplink"]] {
            operate(&agent, &operation).map_err(|refusal| anyhow!("{operation:?}: {refusal}"))?;
        }
        if (at + 1) % (rounds / SAMPLES) == 0 {
            let now = agent.resource_use();
            samples.push(Sample {
                resident: agent.resident_bytes(),
                processor: now.since(before).processor,
                descriptors: read_dir(format!("/proc/{}/fd", agent.pid()))?.count(),
                models: client.capabilities().await?.supported_models.len(),
            });
            before = now;
        }
    }
    let second = samples[1];
    let middle = samples[samples.len() / 2 - 1];
    let last = samples[samples.len() - 1];
    let mut faults = panics(&agent);
    if effort.time.is_some() && last.resident > middle.resident + GROWTH {
        faults.push(format!("memory grows: {samples:?}"));
    }
    if effort.time.is_some()
        && last.processor.as_millis() * 100 > second.processor.as_millis() * SLOWER
    {
        faults.push(format!("rounds take longer: {samples:?}"));
    }
    if last.descriptors > middle.descriptors + 2 || last.models != samples[0].models {
        faults.push(format!("descriptors or models grow: {samples:?}"));
    }
    row.attempted(u64::from(rounds), faults);
    let per_round = |sample: Sample| sample.processor.as_millis() / u128::from(rounds / SAMPLES);
    row.note(format!(
        "{} MB in the middle, {} MB at the end, {} ms and {} ms a round, {} descriptors, {} models",
        middle.resident >> 20,
        last.resident >> 20,
        per_round(second),
        per_round(last),
        last.descriptors,
        last.models
    ));
    Ok(row)
}
