//! `holdfast fault profile`: how long a fault takes to be told, and where that time goes.
//!
//! The agent takes the moments T01 to T08 of each raised alarm. This process asks for the fault (T00), hears of it (T09) and has
//! read the message (T10). All clocks are the monotonic one of this machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::faults::{Moment, Raise, monotonic_ns};
use crate::local::{AnswerLines, Client, ClientError};
use crate::settings::{FaultFilter, FaultLatch, FaultProfile, FaultQuestion, FaultWatchRequest};

/// The type of the alarms that a profile raises.
const DATA_PLANE_DOWN: &str = "data-plane-down";
const REASON: &str = "a profile of faults";
/// The longest time to wait for a message, or for the moments of a raise.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two questions for the moments of a raise.
const ASK_AGAIN: Duration = Duration::from_millis(20);
const NS_PER_MS: f64 = 1_000_000.0;

/// The points of a fault, with what has been done when they are reached.
const POINTS: [(&str, &str); 11] = [
    ("T00", "the fault is asked for"),
    ("T01", "its report is taken"),
    ("T02", "its impact is known"),
    ("T03", "the alarm is shown"),
    ("T04", "the last object is marked"),
    ("T05", "the impact is shown as complete"),
    ("T06", "rules are found"),
    ("T07", "rules are evaluated"),
    ("T08", "listeners are told"),
    ("T09", "this process has heard of it"),
    ("T10", "this process has read it"),
];

/// Places of the points that this process has.
const ASKED: usize = 0;
const HEARD: usize = 9;
const READ: usize = 10;

/// Failure of a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error("the agent told nothing of {0} within {PATIENCE:?}")]
    NotTold(String),
    #[error("`{0}` already has a data-plane-down latch: lift that latch first")]
    IsDown(String),
    #[error(
        "a fault of {resource} took {took:.1} ms; the limit is {limit} ms; {share:.0} % of the time passed until {step}"
    )]
    TooSlow { resource: String, took: f64, limit: u64, share: f64, step: &'static str },
}

/// A fault, with its points in nanoseconds after the first one. `None` for those that did not come.
#[derive(Debug)]
struct Fault {
    resource: String,
    run: u32,
    objects: usize,
    points: [Option<u64>; POINTS.len()],
}

impl Fault {
    /// Points that came, in the order in which they did.
    fn timeline(&self) -> Vec<(usize, u64)> {
        let came = self.points.iter().enumerate();
        let mut came: Vec<_> = came.filter_map(|(point, at)| Some((point, (*at)?))).collect();
        came.sort_by_key(|(point, at)| (*at, *point));
        came
    }

    fn took(&self) -> u64 {
        self.timeline().last().map_or(0, |(_, at)| *at)
    }

    /// The time until each point from the one before, the longest first.
    fn components(&self) -> Vec<(usize, u64)> {
        let timeline = self.timeline();
        let steps = timeline.iter().zip(timeline.iter().skip(1));
        let mut components: Vec<_> =
            steps.map(|((_, from), (point, to))| (*point, to - from)).collect();
        components.sort_by_key(|(point, took)| (std::cmp::Reverse(*took), *point));
        components
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time of seconds is far below 2^52 ns")]
fn milliseconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_MS
}

/// Measures, and returns the report with the verdict about the limit.
///
/// # Errors
/// When no agent runs, or it refuses.
pub(crate) async fn run(
    client: &Client,
    profile: &FaultProfile,
) -> Result<(String, Result<(), ProfileError>), ProfileError> {
    let filter =
        FaultFilter { kind: DATA_PLANE_DOWN.to_owned(), shelved: true, ..FaultFilter::default() };
    let mut lines = client.watch_faults(&FaultWatchRequest { filter, after: None }).await?;
    let open = until_synced(&mut lines).await?;
    if let Some(resource) = profile.resources.iter().find(|it| open.contains(&alarm_of(it))) {
        return Err(ProfileError::IsDown(resource.clone()));
    }
    let mut faults = Vec::new();
    for run in 1..=profile.runs {
        let measured = measure(client, &mut lines, profile, run).await;
        // Nothing stays as it was said, whatever became of the run.
        lift(client, &profile.resources).await?;
        faults.extend(measured?);
        until_told(&mut lines, &profile.resources, "cleared").await?;
    }
    let report = if profile.json { json_of(&faults) } else { text_of(&faults) };
    Ok((report, verdict(&faults, profile.limit)))
}

fn alarm_of(resource: &str) -> String {
    format!("{DATA_PLANE_DOWN}@{resource}")
}

fn word(resource: &str, lift: bool) -> FaultQuestion {
    FaultQuestion::DataPlaneDown(FaultLatch {
        resource: resource.to_owned(),
        lift,
        overrides: false,
        reason: if lift { String::new() } else { REASON.to_owned() },
        fence: false,
        allow_isolation: false,
    })
}

async fn lift(client: &Client, resources: &[String]) -> Result<(), ClientError> {
    for resource in resources {
        client.ask_of_faults(&word(resource, true)).await?;
    }
    Ok(())
}

/// Has all resources at fault at the same time.
async fn measure(
    client: &Client,
    lines: &mut AnswerLines,
    profile: &FaultProfile,
    run: u32,
) -> Result<Vec<Fault>, ProfileError> {
    let began = monotonic_ns();
    let mut asked = JoinSet::new();
    for resource in &profile.resources {
        let client = client.clone();
        let word = word(resource, false);
        asked.spawn(async move { client.ask_of_faults(&word).await });
    }
    let told = until_told(lines, &profile.resources, "raised").await;
    for answer in asked.join_all().await {
        answer?;
    }
    let told = told?;
    let first = told.values().map(|told| told.event).min().unwrap_or_default();
    let raises = raises(client, &profile.resources, first.saturating_sub(1)).await?;
    let faults = profile.resources.iter().map(|resource| {
        let alarm = alarm_of(resource);
        let mut points = [None; POINTS.len()];
        points[ASKED] = Some(began);
        if let Some(raise) = raises.get(&alarm) {
            raise.at.iter().for_each(|(moment, at)| points[place(*moment)] = Some(*at));
        }
        if let Some(told) = told.get(&alarm) {
            points[HEARD] = Some(told.heard);
            points[READ] = Some(told.read);
        }
        let points = points.map(|at| Some(at?.saturating_sub(began)));
        let objects = raises.get(&alarm).map_or(0, |raise| raise.objects);
        Fault { resource: resource.clone(), run, objects, points }
    });
    Ok(faults.collect())
}

/// The place of a moment of the agent among the points: T01 is the second one.
fn place(moment: Moment) -> usize {
    moment as usize + 1
}

/// A message about an alarm.
#[derive(Debug)]
struct Told {
    event: u64,
    heard: u64,
    read: u64,
}

/// The next line of the agent.
async fn next(lines: &mut AnswerLines) -> Result<Option<(u64, Value)>, ProfileError> {
    let line = timeout(PATIENCE, lines.next()).await;
    let Ok(line) = line else { return Ok(None) };
    let Some(line) = line? else { return Ok(None) };
    let heard = monotonic_ns();
    let document = serde_json::from_str(&line).map_err(ClientError::from)?;
    Ok(Some((heard, document)))
}

/// The alarms that are open before the first change is told.
async fn until_synced(lines: &mut AnswerLines) -> Result<Vec<String>, ProfileError> {
    let mut open = Vec::new();
    loop {
        let Some((_, document)) = next(lines).await? else {
            return Err(ProfileError::NotTold("the open alarms".to_owned()));
        };
        let alarms = document["snapshot"]["alarms"].as_array().cloned().unwrap_or_default();
        open.extend(alarms.iter().filter_map(|alarm| alarm["id"].as_str().map(str::to_owned)));
        if document.get("sync").is_some() {
            return Ok(open);
        }
    }
}

/// Waits until this change of the alarms of all resources was told.
async fn until_told(
    lines: &mut AnswerLines,
    resources: &[String],
    change: &str,
) -> Result<BTreeMap<String, Told>, ProfileError> {
    let mut told = BTreeMap::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let untold = resources.iter().find(|it| !told.contains_key(&alarm_of(it)));
        let Some(untold) = untold else { return Ok(told) };
        let not_told = || ProfileError::NotTold(untold.clone());
        if Instant::now() > deadline {
            return Err(not_told());
        }
        let (heard, document) = next(lines).await?.ok_or_else(not_told)?;
        let event = &document["event"];
        if event["change"] == change
            && let (Some(alarm), Some(id)) = (event["alarm"]["id"].as_str(), event["id"].as_u64())
        {
            let read = monotonic_ns();
            told.entry(alarm.to_owned()).or_insert(Told { event: id, heard, read });
        }
    }
}

/// The moments of the alarms, once all of them have come or the agent does not wait for more.
async fn raises(
    client: &Client,
    resources: &[String],
    after: u64,
) -> Result<BTreeMap<String, Raise>, ProfileError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let raises = client.raises(after).await?;
        let raises: BTreeMap<_, _> =
            raises.into_iter().map(|raise| (raise.alarm.clone(), raise)).collect();
        let is_complete = resources.iter().all(|resource| {
            let raise = raises.get(&alarm_of(resource));
            raise.is_some_and(|raise| raise.at.contains_key(&Moment::T05))
        });
        if is_complete || Instant::now() > deadline {
            return Ok(raises);
        }
        sleep(ASK_AGAIN).await;
    }
}

fn verdict(faults: &[Fault], limit: u64) -> Result<(), ProfileError> {
    let Some(slowest) = faults.iter().max_by_key(|fault| fault.took()) else { return Ok(()) };
    let took = milliseconds(slowest.took());
    let longest = slowest.components().first().copied();
    match longest {
        Some((point, of_step)) if slowest.took() > limit.saturating_mul(1_000_000) => {
            Err(ProfileError::TooSlow {
                resource: slowest.resource.clone(),
                took,
                limit,
                share: 100.0 * milliseconds(of_step) / took,
                step: POINTS[point].1,
            })
        }
        _ => Ok(()),
    }
}

fn json_of(faults: &[Fault]) -> String {
    let faults: Vec<Value> = faults.iter().map(json_of_fault).collect();
    format!("{}\n", json!({ "faults": faults }))
}

fn json_of_fault(fault: &Fault) -> Value {
    let points = POINTS.iter().zip(fault.points);
    let points = points.map(|((name, _), at)| ((*name).to_owned(), json!(at.map(milliseconds))));
    let components = fault.components().into_iter().map(|(point, took)| {
        json!({"until": POINTS[point].0, "ms": milliseconds(took), "percent": percent(took, fault)})
    });
    json!({
        "resource": fault.resource,
        "run": fault.run,
        "objects": fault.objects,
        "ms": milliseconds(fault.took()),
        "points": points.collect::<serde_json::Map<_, _>>(),
        "components": components.collect::<Vec<_>>(),
    })
}

fn percent(took: u64, fault: &Fault) -> f64 {
    100.0 * milliseconds(took) / milliseconds(fault.took().max(1))
}

/// The timeline of each fault, and the table of its components.
fn text_of(faults: &[Fault]) -> String {
    let mut text = String::new();
    for fault in faults {
        let Fault { resource, run, objects, .. } = fault;
        let took = milliseconds(fault.took());
        let _ = writeln!(text, "{resource}, run {run}: {objects} objects, {took:.3} ms");
        for (point, at) in fault.timeline() {
            let (name, meaning) = POINTS[point];
            let _ = writeln!(text, "  {:>9.3} ms  {name}  {meaning}", milliseconds(at));
        }
        for (point, (name, meaning)) in POINTS.iter().enumerate() {
            if fault.points[point].is_none() {
                let _ = writeln!(text, "  {:>9} ms  {name}  {meaning}", "?");
            }
        }
        let _ = writeln!(text, "  component                              time     share");
        for (point, took) in fault.components() {
            let meaning = POINTS[point].1;
            let share = percent(took, fault);
            let took = milliseconds(took);
            let _ = writeln!(text, "  until {meaning:<32} {took:>6.3} ms  {share:>4.0} %");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Fault {
        let ms = |ms: u64| Some(ms * 1_000_000);
        let mut points = [None; POINTS.len()];
        points[0] = ms(0);
        points[1] = ms(1);
        points[2] = ms(8);
        points[3] = ms(2);
        points[9] = ms(3);
        points[10] = ms(3);
        Fault { resource: "interface:eth1".to_owned(), run: 1, objects: 50, points }
    }

    #[test]
    fn components_are_the_steps_of_the_timeline_the_longest_first() {
        let fault = fault();
        let order: Vec<usize> = fault.timeline().into_iter().map(|(point, _)| point).collect();
        assert_eq!(order, [0, 1, 3, 9, 10, 2]);
        let components = fault.components();
        assert_eq!(components[0], (2, 5_000_000));
        assert_eq!(components.iter().map(|(_, took)| took).sum::<u64>(), fault.took());
    }

    #[test]
    fn points_that_did_not_come_are_question_marks_in_no_sum() {
        let text = text_of(&[fault()]);
        assert!(text.contains("interface:eth1, run 1: 50 objects, 8.000 ms"), "{text}");
        assert!(text.contains("? ms  T08  listeners are told"), "{text}");
        assert!(text.contains("until its impact is known"), "{text}");
        let json = json_of_fault(&fault());
        assert_eq!(json["points"]["T08"], Value::Null);
        assert_eq!(json["components"][0]["percent"], json!(62.5));
    }

    #[test]
    fn a_fault_beyond_the_limit_names_the_step_that_took_most_of_it() {
        assert!(verdict(&[fault()], 8).is_ok());
        let error = verdict(&[fault()], 7).unwrap_err().to_string();
        assert!(error.contains("8.0 ms") && error.contains("its impact is known"), "{error}");
    }
}
