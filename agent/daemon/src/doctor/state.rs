//! Checks of what the agent says of its objects.

use holdfast_faults::Severity;

use super::subject::AgentAnswer;
use super::{Finding, Subject, Verdict};
use crate::local::{AgentReport, REPAIR_WINDOW};

/// Repairs of one object within [`REPAIR_WINDOW`] that are not a fight with another program yet.
const FEW_REPAIRS: usize = 3;
/// Objects that a person reads of.
const MOST_OBJECTS: usize = 10;

/// The report of the agent, or the finding that stands for it.
fn report(subject: &Subject) -> Result<&AgentReport, Vec<Finding>> {
    match &subject.agent {
        AgentAnswer::Running(facts) => Ok(&facts.report),
        AgentAnswer::NotRunning(_) => Err(Finding::skipped("no agent runs")),
        AgentAnswer::NotAllowed(reason) => Err(Finding::unknown(reason)),
    }
}

pub(super) fn objects(subject: &Subject) -> Vec<Finding> {
    let report = match report(subject) {
        Ok(report) => report,
        Err(finding) => return finding,
    };
    let mut findings: Vec<Finding> = Vec::new();
    for value in report.unsettled.iter().take(MOST_OBJECTS) {
        let verdict = match value.state.as_str() {
            "FAILED" | "RETRYING" | "INVALID" | "UNIMPLEMENTED" | "CONFLICT" => Verdict::Failure,
            _ => Verdict::Warning,
        };
        let state = value.state.to_lowercase();
        let reason =
            if value.reason.is_empty() { String::new() } else { format!(": {}", value.reason) };
        let finding = Finding::new(verdict, format!("{} is {state}{reason}", value.label));
        let advice = format!("`holdfast show why '{}'`", value.label);
        findings.push(finding.with_advice(advice));
    }
    let more = report.unsettled.len().saturating_sub(MOST_OBJECTS);
    if more > 0 {
        findings.extend(Finding::warning(format!("{more} more objects are not in place")));
    }
    match findings.is_empty() {
        true => Finding::good(report.sync.to_string()),
        false => findings,
    }
}

pub(super) fn alarms(subject: &Subject) -> Vec<Finding> {
    let report = match report(subject) {
        Ok(report) => report,
        Err(finding) => return finding,
    };
    let Some(alarms) = &report.alarms else {
        return Finding::warning("the agent does not look for faults any more");
    };
    let findings: Vec<Finding> = alarms
        .iter()
        .take(MOST_OBJECTS)
        .map(|alarm| {
            let verdict = match alarm.severity {
                Severity::Critical => Verdict::Failure,
                Severity::Warning | Severity::Minor | Severity::Major => Verdict::Warning,
            };
            let text = format!("alarm, {}: {}", alarm.severity, alarm.text);
            let advice = format!("`holdfast fault show '{}'`", alarm.id);
            Finding::new(verdict, text).with_advice(advice)
        })
        .collect();
    match findings.is_empty() {
        true => Finding::good("no alarms"),
        false => findings,
    }
}

pub(super) fn repairs(subject: &Subject) -> Vec<Finding> {
    let report = match report(subject) {
        Ok(report) => report,
        Err(finding) => return finding,
    };
    let minutes = REPAIR_WINDOW.as_secs() / 60;
    let often = report.repaired.iter().filter(|it| it.count > FEW_REPAIRS).take(MOST_OBJECTS);
    let findings: Vec<Finding> = often
        .map(|it| {
            let text = format!(
                "{} was repaired {} times in {minutes} minutes: another program undoes it",
                it.label, it.count
            );
            let advice = format!("`holdfast show timeline '{}'`, and the group others", it.label);
            Finding::new(Verdict::Warning, text).with_advice(advice)
        })
        .collect();
    match findings.is_empty() {
        true => Finding::good("nothing was repaired again and again"),
        false => findings,
    }
}

pub(super) fn window(subject: &Subject) -> Vec<Finding> {
    match report(subject) {
        Ok(report) => match &report.unconfirmed {
            Some(text) => Finding::warning(text),
            None => Finding::good("no commit waits to be confirmed"),
        },
        Err(finding) => finding,
    }
}

pub(super) fn bootstrap(subject: &Subject) -> Vec<Finding> {
    let Some(facts) = subject.facts() else {
        return Finding::skipped("bootstraps are known to a running agent");
    };
    let Some(text) = &facts.bootstrap else {
        return Finding::skipped("the agent has no IDevID, so it does not bootstrap");
    };
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let failed: u64 = line("failed attempts: ").and_then(|it| it.parse().ok()).unwrap_or(0);
    let status = line("status: ").unwrap_or("unknown");
    match failed {
        0 => Finding::good(format!("bootstrap {status}")),
        failed => {
            Finding::warning(format!("{failed} attempts to bootstrap have failed ({status})"))
        }
    }
}
