//! The clock of the box jumps by years, to and fro.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use holdfast_tests::agent::AgentProcess;
use rand::seq::IndexedRandom;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::load::{Load, ports};
use crate::{Effort, Row};

/// The library that shows a program another clock (package `faketime`), in the folder of a machine type.
const LIBRARY: &str = "faketime/libfaketime.so.1";
/// Folder of the folders of machine types.
const LIBRARIES: &str = "/usr/lib";
/// Jumps from the time of the box. The certificate of the agent is valid from the first start on, and clients look at
/// their own clock.
const JUMPS: [&str; 5] = ["-3000d", "-1d", "+0", "+400d", "+9000d"];
/// Time of load after each jump.
const LOAD: Duration = Duration::from_millis(300);

fn library() -> Option<PathBuf> {
    let mut folders = fs::read_dir(LIBRARIES).ok()?.flatten();
    folders.find_map(|folder| Some(folder.path().join(LIBRARY)).filter(|path| path.exists()))
}

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("clock jumps");
    let Some(library) = library() else {
        row.note("left out: libfaketime is not installed");
        return Ok(row);
    };
    let net = ports();
    let folder = TempDir::with_prefix("holdfast-clock-")?;
    let clock = folder.path().join("clock");
    fs::write(&clock, "+0")?;
    let command = [
        "env".to_owned(),
        format!("LD_PRELOAD={}", library.display()),
        format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
        "FAKETIME_NO_CACHE=1".to_owned(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
    ];
    let root = folder.path().join("root");
    fs::create_dir(&root)?;
    let mut agent = AgentProcess::start_wrapped(&net, &command, &root).await;
    let mut load = Load::begin(&agent).await?;
    for attempt in effort.attempts() {
        let jump = JUMPS.choose(&mut effort.random).copied().unwrap_or("+0");
        load.start(&agent).await;
        fs::write(&clock, jump)?;
        sleep(LOAD).await;
        load.stop().await;
        if attempt % 2 == 1 {
            agent.restart().await;
        }
        let (acknowledged, _) = load.take_counts();
        let stands = (acknowledged == 0).then(|| format!("nothing is accepted after {jump}"));
        let faults = load.faults(&agent, &net).await;
        row.attempted(acknowledged, stands.into_iter().chain(faults).collect());
    }
    Ok(row)
}
