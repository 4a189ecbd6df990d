//! `kill -9` at random moments under load, also while the agent starts.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use holdfast_tests::agent::AgentProcess;
use rand::Rng;
use tokio::time::sleep;

use crate::load::{Load, ports};
use crate::{Effort, Row};

/// Longest time until a kill, in milliseconds: some hundred changes.
const UNTIL_KILL_MS: u64 = 600;
/// Longest time until a kill of an agent that starts, in milliseconds: about as long as a start.
const UNTIL_KILL_OF_START_MS: u64 = 200;
/// One in so many starts is killed as well.
const STARTS_KILLED: u32 = 3;

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("kill -9 under load");
    let net = ports();
    let mut agent = AgentProcess::start(&net).await;
    let mut load = Load::begin(&agent).await?;
    let mut starts_killed = 0;
    for _ in effort.attempts() {
        load.start(&agent).await;
        sleep(Duration::from_millis(effort.random.random_range(0..UNTIL_KILL_MS))).await;
        agent.kill();
        load.stop().await;
        if effort.random.random_ratio(1, STARTS_KILLED) {
            starts_killed += 1;
            let mut command = agent.command("run");
            command.args(["--listen", "127.0.0.1:9339", "--root"]).arg(agent.root());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            let after = effort.random.random_range(0..UNTIL_KILL_OF_START_MS);
            sleep(Duration::from_millis(after)).await;
            child.kill()?;
            child.wait()?;
        }
        agent.restart().await;
        let faults = load.faults(&agent, &net).await;
        row.attempted(load.take_counts().0, faults);
    }
    row.note(format!("{starts_killed} killed once more while starting"));
    Ok(row)
}
