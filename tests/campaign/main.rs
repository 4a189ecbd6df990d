//! `make campaign`: a box under attack and under bad luck, for as long as one likes.
//!
//! A client records what the agent has acknowledged. Meanwhile the agent is killed, its disk fails, the kernel is changed
//! behind it, the clock jumps, and attackers call. After each attempt the configuration and the kernel must be what was
//! acknowledged, or, for a change without an answer, what was asked for. The table counts the attempts, those that the box
//! survived, and the acknowledged changes that were lost or torn. Nothing may be.
//!
//! `--seconds N` is the time of all rows together, `--seed N` chooses the moments, `--only KIND` makes one row alone, and `--short` makes
//! few attempts of each kind: it is part of `make test`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the table is what this program is for"
)]

mod attackers;
mod clock;
mod collectors;
mod disk;
mod growth;
mod installations;
mod kernel;
mod kills;
mod load;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_tests::agent::AgentProcess;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Time of all rows together, unless another one is given.
const USUAL_TIME: Duration = Duration::from_secs(15 * 60);

/// Attempts of each kind with `--short`.
const SHORT_ATTEMPTS: u32 = 2;

/// How long a row goes on, and by what it chooses.
#[derive(Debug)]
pub(crate) struct Effort {
    /// Time of one row; `None` with `--short`.
    time: Option<Duration>,
    pub(crate) random: SmallRng,
}

impl Effort {
    /// Attempts of a row: for its time, or a few.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = u32> + use<> {
        let time = self.time;
        let began = Instant::now();
        (0..).take_while(move |attempt| match time {
            None => *attempt < SHORT_ATTEMPTS,
            Some(time) => *attempt == 0 || began.elapsed() < time,
        })
    }

    /// A figure of this size, or one of a twentieth with `--short`.
    pub(crate) fn scaled(&self, figure: u32) -> u32 {
        if self.time.is_some() { figure } else { figure / 20 }
    }
}

/// One line of the table.
#[derive(Debug, Default)]
pub(crate) struct Row {
    name: &'static str,
    attempts: u32,
    survived: u32,
    acknowledged: u64,
    faults: Vec<String>,
    note: String,
}

impl Row {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// Counts an attempt, with what is wrong after it.
    pub(crate) fn attempted(&mut self, acknowledged: u64, faults: Vec<String>) {
        self.attempts += 1;
        self.survived += u32::from(faults.is_empty());
        self.acknowledged += acknowledged;
        self.faults.extend(faults);
    }

    /// Prints the line, with what was lost below it.
    fn printed(self) -> Self {
        let Self { name, attempts, survived, acknowledged, faults, note } = &self;
        let lost = faults.len();
        println!("{name:<34} {attempts:>8} {survived:>8} {acknowledged:>12} {lost:>6}  {note}");
        faults.iter().for_each(|fault| println!("    {fault}"));
        self
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.note = note.into();
    }
}

/// Lines that an agent has logged and never may.
pub(crate) fn panics(agent: &AgentProcess) -> Vec<String> {
    let log = agent.log();
    log.lines().filter(|line| line.contains("panicked")).map(ToOwned::to_owned).collect()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("campaign: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode> {
    let seed = number_after("--seed")?.unwrap_or_else(rand::random);
    let time = number_after("--seconds")?.map_or(USUAL_TIME, Duration::from_secs);
    let is_short = std::env::args().any(|argument| argument == "--short");
    println!("seed {seed}");
    let mut effort =
        Effort { time: (!is_short).then_some(time / ROWS), random: SmallRng::seed_from_u64(seed) };
    println!(
        "{:<34} {:>8} {:>8} {:>12} {:>6}",
        "what", "attempts", "survived", "acknowledged", "lost"
    );
    let only = text_after("--only")?;
    let mut rows = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| only.as_deref().is_none_or(|only| only == *kind)) {
        let row = match kind {
            "kills" => kills::row(&mut effort).await?,
            "full-disk" => disk::full(&mut effort).await?,
            "failing-disk" => disk::failing(&mut effort).await?,
            "overrun" => kernel::overrun(&mut effort).await?,
            "interrupted-readings" => kernel::interrupted_readings(&mut effort).await?,
            "foreign-changes" => kernel::foreign_changes(&mut effort).await?,
            "clock" => clock::row(&mut effort).await?,
            "attackers" => attackers::row(&mut effort).await?,
            "growth" => growth::row(&mut effort).await?,
            "installations" => installations::row(&mut effort).await?,
            _ => collectors::row(&mut effort).await?,
        };
        rows.push(row.printed());
    }
    ensure!(!rows.is_empty(), "--only takes one of {}", KINDS.join(", "));
    let is_whole = rows.iter().all(|row| row.faults.is_empty());
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Kinds of attempts.
const KINDS: [&str; 11] = [
    "kills",
    "full-disk",
    "failing-disk",
    "overrun",
    "interrupted-readings",
    "foreign-changes",
    "clock",
    "attackers",
    "growth",
    "installations",
    "collectors",
];

/// Rows that share the time.
const ROWS: u32 = 11;

/// The number behind an option.
fn number_after(option: &str) -> Result<Option<u64>> {
    let Some(text) = text_after(option)? else { return Ok(None) };
    Ok(Some(text.parse().with_context(|| format!("{option}: `{text}` is not a number"))?))
}

/// The text behind an option.
fn text_after(option: &str) -> Result<Option<String>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != option);
    if arguments.next().is_none() {
        return Ok(None);
    }
    let text = arguments.next();
    text.with_context(|| format!("{option} needs a value")).map(Some)
}
