//! The agent's word about itself, for `holdfast doctor` and for the service manager: what is in the system, what is not, and
//! what it had to repair.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use holdfast_base::{ErrorChain, now_ns};
use holdfast_core::{CommitError, CoreHandle, CoreView, Datastore, UnconfirmedCommit};
use holdfast_faults::{Alarm, Severity};
use holdfast_platform::kinds::reading::first_text;
use holdfast_platform::values::Link;
use holdfast_scheduler::Engine;
use serde::{Deserialize, Serialize};

use super::failure;
use super::inspect::{ValueLine, pending_lines};
use crate::faults::FaultService;
use crate::gnsi::TlsProfiles;
use crate::listeners::{ListenerKind, ListenerState, Listeners};
use crate::sync_summary::{SyncSummary, is_object};

/// Address of the answer.
pub(super) const REPORT: &str = "/report";
/// Time within which repairs of one object are counted together: a program that undoes what the agent does repeats it within
/// some minutes.
pub const REPAIR_WINDOW: Duration = Duration::from_secs(600);
/// Values that do not stand as they are configured, and objects that were repaired, of one answer. A person reads no more.
const MOST_LINES: usize = 100;

/// State of the agent and of what it manages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AgentReport {
    pub pid: u32,
    /// Command line of the agent, the program first.
    pub arguments: Vec<String>,
    pub sync: SyncSummary,
    /// Names of the kinds of values that the configuration asks for.
    pub kinds: BTreeSet<String>,
    /// Links that the configuration asks for, each with its kind.
    pub links: BTreeMap<String, String>,
    /// Values that are not in the system as they are configured.
    pub unsettled: Vec<ValueLine>,
    /// Objects that were repaired within [`REPAIR_WINDOW`], the most frequent ones first.
    pub repaired: Vec<RepairCount>,
    /// Open alarms that no other one explains and nobody has put aside, the worst ones first. `None` when nobody looks for
    /// faults any more.
    pub alarms: Option<Vec<OpenAlarm>>,
    /// Text about the commit that waits to be confirmed.
    pub unconfirmed: Option<String>,
    /// Sockets that are not open, each with the reason.
    pub closed_listeners: Vec<ClosedListener>,
    /// Profile that new connections meet.
    pub tls_profile: String,
    /// End of its certificate, in seconds since 1970; `None` without a certificate.
    pub certificate_expires_on: Option<u64>,
}

/// An alarm, as a person knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlarm {
    /// Name of the alarm, as `holdfast fault show` takes it.
    pub id: String,
    pub severity: Severity,
    pub text: String,
}

/// An object with the number of its repairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairCount {
    pub label: String,
    pub count: usize,
    /// Link of the object; `None` for an object that is not on a link.
    pub link: Option<String>,
}

/// A socket that is not open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedListener {
    pub kind: String,
    pub name: String,
    pub reason: String,
}

#[derive(Clone)]
struct ReportState {
    core: CoreHandle,
    listeners: Listeners,
    profiles: TlsProfiles,
    faults: FaultService,
}

/// Route of the report, for [`super::start`].
pub fn report_routes(
    core: CoreHandle,
    listeners: Listeners,
    profiles: TlsProfiles,
    faults: FaultService,
) -> Router {
    let state = ReportState { core, listeners, profiles, faults };
    Router::new().route(REPORT, get(answer)).with_state(state)
}

async fn answer(State(it): State<ReportState>) -> Response {
    match it.report().await {
        Ok(report) => Json(report).into_response(),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, ErrorChain(&error).to_string()),
    }
}

impl ReportState {
    async fn report(&self) -> Result<AgentReport, CommitError> {
        let report = self.core.inspect(of_engine).await?;
        let revision = self.core.current_revision().await;
        let unconfirmed = UnconfirmedCommit::of(&revision).map(|it| it.text(now_ns()));
        let serving = self.profiles.server_profile();
        Ok(AgentReport {
            pid: std::process::id(),
            arguments: std::env::args().collect(),
            alarms: self.faults.alarms().await.ok().map(unexplained),
            unconfirmed,
            closed_listeners: closed(&self.listeners),
            tls_profile: serving.id.to_string(),
            certificate_expires_on: serving.expires_on,
            ..report
        })
    }
}

/// Alarms that a person has to look at, the worst ones first.
fn unexplained(alarms: Vec<Alarm>) -> Vec<OpenAlarm> {
    let open = alarms.into_iter().filter(|alarm| alarm.cause.is_none() && !alarm.is_aside());
    let mut open: Vec<OpenAlarm> = open
        .map(|alarm| OpenAlarm {
            id: alarm.condition.to_string(),
            severity: alarm.severity,
            text: alarm.text.to_string(),
        })
        .collect();
    open.sort_by_key(|alarm| std::cmp::Reverse(alarm.severity));
    open.truncate(MOST_LINES);
    open
}

fn closed(listeners: &Listeners) -> Vec<ClosedListener> {
    let statuses = listeners.watch();
    let all = statuses.borrow();
    let waiting = all.iter().filter_map(|status| match &status.state {
        ListenerState::Waiting { reason, .. } => Some(ClosedListener {
            kind: ListenerKind::to_string(&status.kind),
            name: status.name.to_string(),
            reason: reason.clone(),
        }),
        ListenerState::Opening | ListenerState::Listening(_) => None,
    });
    waiting.collect()
}

fn of_engine(view: &CoreView<'_>) -> AgentReport {
    let engine = view.engine;
    let mut kinds = BTreeSet::new();
    let mut links = BTreeMap::new();
    for status in engine.statuses() {
        let Some(intended) = &status.intended else { continue };
        if let Some(descriptor) = engine.registry().descriptor(status.key.kind()) {
            kinds.insert(descriptor.name().to_owned());
        }
        if let Some(link) = intended.as_any().downcast_ref::<Link>() {
            links.insert(link.name.to_string(), link.kind.name().to_owned());
        }
    }
    let pending = engine.pending();
    let unsettled = pending_lines(&pending[..pending.len().min(MOST_LINES)], view.now.monotonic);
    let sync = SyncSummary::of(engine);
    AgentReport { sync, kinds, links, unsettled, repaired: repaired(engine), ..Default::default() }
}

/// Objects that were repaired lately, the most frequent ones first.
fn repaired(engine: &Engine) -> Vec<RepairCount> {
    let window = u64::try_from(REPAIR_WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let since = now_ns().saturating_sub(window);
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for record in engine.history().since(since) {
        for operation in record.operations.iter().filter(|it| it.is_repair(record.trigger)) {
            if is_object(engine, operation.key.kind()) {
                *counts.entry(&operation.key).or_default() += 1;
            }
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(MOST_LINES);
    let repaired = counts.into_iter().map(|(key, count)| RepairCount {
        label: engine.label(key),
        count,
        link: first_text(key).map(|link| link.to_string()),
    });
    repaired.collect()
}

#[cfg(test)]
mod tests {
    use holdfast_platform::transport::SimulatedKernel;

    use super::*;
    use crate::agent_tests::Agent;
    use crate::sync_summary::SyncFollower;

    #[tokio::test]
    async fn the_engine_tells_what_is_in_place_and_what_waits() {
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&SimulatedKernel::new(&["eth0"]), folder.path()).await;
        let mut follower = SyncFollower::new(agent.handle.clone());
        assert_eq!(follower.summary().await.unwrap().to_string(), "in sync, 0 objects");

        let port =
            |name: &str| format!(r#"{{"name":"{name}","config":{{"name":"{name}","mtu":1514}}}}"#);
        let both = format!(
            r#"{{"openconfig-interfaces:interfaces":{{"interface":[{},{}]}}}}"#,
            port("eth0"),
            port("eth9")
        );
        agent.update(&both).await.unwrap();
        agent.handle.wait_until_idle().await.unwrap();
        let summary = follower.summary().await.unwrap();
        assert_eq!(summary.pending, 1, "{summary:?}");
        assert!(summary.in_place > 0, "{summary:?}");
        assert_eq!(summary.to_string(), "1 pending: link eth9");
        let report = agent.handle.inspect(of_engine).await.unwrap();
        assert_eq!(report.links["eth9"], "physical");
        assert!(report.kinds.contains("link"), "{:?}", report.kinds);
        assert_eq!(report.unsettled[0].label, "link eth9");
        assert_eq!(report.unsettled[0].state, "PENDING");
        assert!(report.repaired.is_empty());
    }
}
