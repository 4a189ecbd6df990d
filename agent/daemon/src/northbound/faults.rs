//! `holdfast.faults.v1.Faults`: open alarms, the log, and each change.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{Caller, now_ns};
use holdfast_config::{MissingNode, Models};
use holdfast_core::Datastore;
use holdfast_faults::{
    Alarm, Change, Condition, ConditionError, ImpactCount, ImpactState, LatchError, LatchKind,
    LatchRequest, LogEntry, OperatorError, OperatorState, OutsideReport, ResetError, ResourceError,
    Severity, Transition, Word,
};
use holdfast_proto::holdfast::faults as wire;
use holdfast_proto::holdfast::faults::faults_server::Faults;
use holdfast_proto::holdfast::faults::watch_response::Content;
use smol_str::SmolStr;
use tonic::{Code, Request, Response, Status, Streaming};

use super::response_stream::{ResponseSender, ResponseStream, StreamError};
use super::status::Refusal;
use crate::budget::CallerBudget;
use crate::faults::{
    AlarmFilter, AlarmPlaces, AlarmView, FaultService, FaultsStopped, LatchRefusal, Listener, News,
    OperatorWord, ReportError, Reporter, WordError, check_text,
};
use crate::gnsi::pathz::{PathPermissions, Pathz, PolicyWatch};

/// Events in one answer: some hundred kilobytes.
const MAX_EVENTS: usize = 1000;
/// Reason to end a stream that was opened under an earlier pathz policy.
const POLICY_REPLACED: &str = "the pathz policy has changed since this call began: watch again";

/// Serves the faults of one agent.
#[derive(Debug)]
pub(super) struct FaultsService<D> {
    core: D,
    pathz: Arc<Pathz>,
    places: Arc<AlarmPlaces>,
    /// `None` where no agent runs behind the service.
    faults: Option<FaultService>,
}

impl<D: Datastore> FaultsService<D> {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn new(
        core: D,
        pathz: Arc<Pathz>,
        faults: Option<FaultService>,
    ) -> Result<Self, MissingNode> {
        let places = Arc::new(AlarmPlaces::find(&core.models().native)?);
        Ok(Self { core, pathz, places, faults })
    }

    fn faults(&self) -> Result<&FaultService, Refusal> {
        self.faults.as_ref().ok_or_else(|| Refusal::from(FaultsStopped))
    }

    fn models(&self) -> Arc<Models> {
        self.core.models()
    }

    fn view(
        &self,
        filter: Option<wire::Filter>,
        rights: Option<Arc<PathPermissions>>,
    ) -> Result<AlarmView, Refusal> {
        let filter = filter_of(filter.unwrap_or_default())?;
        Ok(AlarmView { filter, rights, places: Arc::clone(&self.places) })
    }
}

#[tonic::async_trait]
impl<D: Datastore> Faults for FaultsService<D> {
    async fn query(
        &self,
        request: Request<wire::QueryRequest>,
    ) -> Result<Response<wire::QueryResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        let wire::QueryRequest { filter, events_after } = request.into_inner();
        let view = self.view(filter, self.pathz.rights(&caller.name, &self.models()))?;
        let faults = self.faults()?;
        let mut response = wire::QueryResponse::default();
        match events_after {
            Some(after) => {
                let log = faults.log(after).await.map_err(Refusal::from)?;
                let transitions = log.iter().filter_map(LogEntry::transition);
                let shown = transitions.filter(|it| view.shows_transition(it));
                let events = shown.map(|it| event_message(it));
                response.events = events.take(MAX_EVENTS).collect();
            }
            None => {
                let alarms = faults.alarms().await.map_err(Refusal::from)?;
                response.alarms = alarm_messages(&view, &alarms);
            }
        }
        Ok(Response::new(response))
    }

    type WatchStream = ResponseStream<wire::WatchResponse>;

    async fn watch(
        &self,
        request: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        let budget = CallerBudget::of(request.extensions());
        let charge = budget.open_subscription().map_err(Refusal::from)?;
        let wire::WatchRequest { filter, after } = request.into_inner();
        let mut policies = self.pathz.follow();
        let view = self.view(filter, policies.rights(&caller.name, &self.models()))?;
        let faults = self.faults()?.clone();
        let listener = faults.listen(after).await.map_err(Refusal::from)?;
        let messages = ResponseStream::spawn(|sender| async move {
            tell(&sender, &view, listener, policies).await
        });
        Ok(Response::new(messages.charged(charge)))
    }

    async fn set_forced_down(
        &self,
        request: Request<wire::LatchRequest>,
    ) -> Result<Response<wire::LatchResponse>, Status> {
        self.latch(LatchKind::ForcedDown, request).await
    }

    async fn set_data_plane_down(
        &self,
        request: Request<wire::LatchRequest>,
    ) -> Result<Response<wire::LatchResponse>, Status> {
        self.latch(LatchKind::DataPlaneDown, request).await
    }

    type ReportEventStream = ResponseStream<wire::ReportEventResponse>;

    async fn report_event(
        &self,
        request: Request<Streaming<wire::ReportEventRequest>>,
    ) -> Result<Response<Self::ReportEventStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        let budget = CallerBudget::of(request.extensions());
        let charge = budget.open_subscription().map_err(Refusal::from)?;
        let faults = self.faults()?.clone();
        let mut reports = request.into_inner();
        let answers = ResponseStream::spawn(|sender| async move {
            // A stream that breaks has no reader for an error.
            while let Ok(Some(report)) = reports.message().await {
                sender.send(take_report(&faults, &caller.name, report).await).await?;
            }
            Ok(())
        });
        Ok(Response::new(answers.charged(charge)))
    }

    async fn set_operator_state(
        &self,
        request: Request<wire::SetOperatorStateRequest>,
    ) -> Result<Response<wire::SetOperatorStateResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("SetOperatorState of alarms")?;
        let wire::SetOperatorStateRequest { id, state, text } = request.into_inner();
        let condition: Condition = id.parse().map_err(Refusal::from)?;
        let state = wire::OperatorState::try_from(state).ok().and_then(operator_state_of);
        let state = state
            .ok_or_else(|| Refusal::invalid("`state` is missing: give none, ack or closed"))?;
        let operator = caller.name.to_string();
        let word = OperatorWord::new(condition, state, operator, text).map_err(Refusal::from)?;
        let said = self.faults()?.operate(word).await.map_err(Refusal::from)?;
        let durable = said.map_err(Refusal::from)?;
        Ok(Response::new(wire::SetOperatorStateResponse { durable }))
    }

    async fn reset_alarm(
        &self,
        request: Request<wire::ResetAlarmRequest>,
    ) -> Result<Response<wire::ResetAlarmResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("ResetAlarm of rules")?;
        let wire::ResetAlarmRequest { owner, name } = request.into_inner();
        let reset = self.faults()?.reset_rule(&owner, &name).await.map_err(Refusal::from)?;
        let durable = reset.map_err(Refusal::from)?;
        Ok(Response::new(wire::ResetAlarmResponse { durable }))
    }
}

/// Tells a caller what it does not know, and then each transition.
impl<D: Datastore> FaultsService<D> {
    async fn latch(
        &self,
        kind: LatchKind,
        request: Request<wire::LatchRequest>,
    ) -> Result<Response<wire::LatchResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin(kind.alarm_type())?;
        let request = request.into_inner();
        let wire::LatchRequest { resource, down, reason, r#override, fence, allow_isolation } =
            request;
        check_text(&reason).map_err(|error| Refusal::invalid(format!("`reason`: {error}")))?;
        let resource = resource
            .parse()
            .map_err(|error: ResourceError| Refusal::invalid(format!("`resource`: {error}")))?;
        let request = LatchRequest {
            kind,
            resource,
            is_set: down,
            by: caller.name.clone(),
            reason: reason.into(),
            overrides: r#override,
            is_fenced: fence,
        };
        let latched =
            self.faults()?.latch(request, allow_isolation).await.map_err(Refusal::from)?;
        let durable = latched.map_err(Refusal::from)?;
        Ok(Response::new(wire::LatchResponse { durable }))
    }
}

fn alarm_messages(view: &AlarmView, alarms: &[Alarm]) -> Vec<wire::Alarm> {
    alarms.iter().filter(|alarm| view.shows(alarm)).map(alarm_message).collect()
}

/// Takes a report, and answers it.
async fn take_report(
    faults: &FaultService,
    caller: &SmolStr,
    report: wire::ReportEventRequest,
) -> wire::ReportEventResponse {
    let event_id = report.event_id.clone();
    let reporter =
        Reporter { monitor: report.monitor.as_str().into(), caller: Some(caller.clone()) };
    let taking =
        async { Ok::<(), Refusal>(faults.report(reporter, outside_report(report)?).await??) };
    let refusal = match taking.await {
        Ok(()) => return wire::ReportEventResponse { event_id, ..Default::default() },
        Err(refusal) => Status::from(refusal),
    };
    let code = u32::try_from(i32::from(refusal.code())).unwrap_or_default();
    wire::ReportEventResponse { event_id, code, message: refusal.message().to_owned() }
}

fn outside_report(report: wire::ReportEventRequest) -> Result<OutsideReport, Refusal> {
    let status = report.status();
    let severity = wire::Severity::try_from(report.severity).map_err(|_| {
        Refusal::invalid(format!("`severity`: there is no severity {}", report.severity))
    })?;
    check_text(&report.cause).map_err(|error| Refusal::invalid(format!("`cause`: {error}")))?;
    let dot = if report.qualifier.is_empty() { "" } else { "." };
    let name = format!("{}{dot}{}@{}", report.r#type, report.qualifier, report.resource);
    let condition: Result<Condition, ConditionError> = name.parse();
    let word = match status {
        wire::ReportStatus::Raised => Word::Raised,
        wire::ReportStatus::Cleared => Word::Cleared,
        wire::ReportStatus::Occurred => Word::Occurred,
        wire::ReportStatus::Unset => {
            return Err(Refusal::invalid(
                "`status` is not known: give raised, cleared or occurred",
            ));
        }
    };
    Ok(OutsideReport {
        condition: condition.map_err(|error| Refusal::invalid(error.to_string()))?,
        word,
        severity: severity_of(severity),
        text: report.cause.into(),
        seen_ns: if report.time == 0 { now_ns() } else { report.time },
        ttl: (report.ttl > 0).then(|| Duration::from_secs(report.ttl.into())),
    })
}

async fn tell(
    sender: &ResponseSender<wire::WatchResponse>,
    view: &AlarmView,
    mut listener: Listener,
    mut policies: PolicyWatch,
) -> Result<(), StreamError> {
    loop {
        let news = tokio::select! {
            news = listener.next() => news.ok_or_else(Refusal::stopping)?,
            () = policies.replaced() => return Err(Refusal::superseded(POLICY_REPLACED).into()),
        };
        let content = match news {
            News::Snapshot { alarms, is_gap, last_id } => {
                let alarms = alarm_messages(view, &alarms);
                let snapshot = wire::Snapshot { alarms, gap: is_gap, last_event_id: last_id };
                Some(Content::Snapshot(snapshot))
            }
            News::Transition(transition) => {
                let is_shown = view.shows_transition(&transition);
                is_shown.then(|| Content::Event(event_message(&transition)))
            }
            News::Synced { last_id } => Some(Content::Sync(wire::Sync { last_event_id: last_id })),
        };
        if content.is_some() {
            sender.send(wire::WatchResponse { content }).await?;
        }
    }
}

impl From<FaultsStopped> for Refusal {
    fn from(stopped: FaultsStopped) -> Self {
        Self::new(Code::Unavailable, stopped.to_string())
    }
}

impl From<ConditionError> for Refusal {
    fn from(error: ConditionError) -> Self {
        Self::invalid(format!("`id`: {error}"))
    }
}

impl From<WordError> for Refusal {
    fn from(error: WordError) -> Self {
        Self::invalid(format!("`text`: {error}"))
    }
}

impl From<LatchRefusal> for Refusal {
    fn from(refused: LatchRefusal) -> Self {
        let code = match &refused {
            LatchRefusal::Latch(LatchError::OfAnother { .. }) => Code::PermissionDenied,
            LatchRefusal::Latch(LatchError::TooMany(_)) => Code::ResourceExhausted,
            LatchRefusal::Latch(LatchError::Unfenced { .. }) => Code::FailedPrecondition,
            LatchRefusal::Fence(_) => Code::FailedPrecondition,
            _ => Code::InvalidArgument,
        };
        Self::new(code, refused.to_string())
    }
}

impl From<ReportError> for Refusal {
    fn from(refused: ReportError) -> Self {
        let code = match &refused {
            ReportError::Monitor(_) | ReportError::Identity { .. } => Code::PermissionDenied,
            ReportError::Rate { .. } => Code::ResourceExhausted,
            ReportError::NoSuchResource(_) => Code::InvalidArgument,
        };
        Self::new(code, refused.to_string())
    }
}

impl From<ResetError> for Refusal {
    fn from(error: ResetError) -> Self {
        let code = match &error {
            ResetError::NoSuchRule { .. } => Code::NotFound,
            _ => Code::FailedPrecondition,
        };
        Self::new(code, error.to_string())
    }
}

impl From<OperatorError> for Refusal {
    fn from(error: OperatorError) -> Self {
        Self::new(Code::NotFound, error.to_string())
    }
}

fn filter_of(filter: wire::Filter) -> Result<AlarmFilter, Refusal> {
    let wire::Filter { r#type, resource, least_severity, shelved, since, roots } = filter;
    let severity = wire::Severity::try_from(least_severity);
    let severity = severity.map_err(|_| {
        Refusal::invalid(format!("`least_severity`: there is no severity {least_severity}"))
    })?;
    let filter = AlarmFilter::new(&r#type, &resource, severity_of(severity), shelved, roots, since);
    filter.map_err(|error| Refusal::invalid(error.to_string()))
}

fn severity_of(severity: wire::Severity) -> Option<Severity> {
    match severity {
        wire::Severity::Unset => None,
        wire::Severity::Warning => Some(Severity::Warning),
        wire::Severity::Minor => Some(Severity::Minor),
        wire::Severity::Major => Some(Severity::Major),
        wire::Severity::Critical => Some(Severity::Critical),
    }
}

fn operator_state_of(state: wire::OperatorState) -> Option<OperatorState> {
    match state {
        wire::OperatorState::Unset => None,
        wire::OperatorState::None => Some(OperatorState::None),
        wire::OperatorState::Ack => Some(OperatorState::Ack),
        wire::OperatorState::Closed => Some(OperatorState::Closed),
    }
}

fn alarm_message(alarm: &Alarm) -> wire::Alarm {
    let severity = match alarm.severity {
        Severity::Warning => wire::Severity::Warning,
        Severity::Minor => wire::Severity::Minor,
        Severity::Major => wire::Severity::Major,
        Severity::Critical => wire::Severity::Critical,
    };
    let operator_state = match alarm.operator_state {
        OperatorState::None => wire::OperatorState::None,
        OperatorState::Ack => wire::OperatorState::Ack,
        OperatorState::Closed => wire::OperatorState::Closed,
    };
    wire::Alarm {
        id: alarm.condition.to_string(),
        r#type: alarm.condition.kind.name.to_string(),
        qualifier: alarm.condition.qualifier.to_string(),
        resource: alarm.condition.resource.to_string(),
        severity: severity.into(),
        text: alarm.text.to_string(),
        time_created: alarm.created_ns,
        last_raised: alarm.raised_ns,
        last_changed: alarm.changed_ns,
        occurrences: alarm.occurrences,
        event_id: alarm.transition,
        operator_state: operator_state.into(),
        operator: alarm.operator.to_string(),
        operator_text: alarm.operator_text.to_string(),
        shelf: alarm.shelf.as_deref().unwrap_or_default().to_owned(),
        suppressed_by: alarm.suppressed_by.as_deref().unwrap_or_default().to_owned(),
        cause: alarm.cause.as_ref().map(ToString::to_string).unwrap_or_default(),
        impact: alarm.impact.map(impact_message),
        sources: alarm.sources.iter().map(|source| source.name().to_string()).collect(),
    }
}

fn impact_message(impact: ImpactCount) -> wire::Impact {
    let state = match impact.state {
        ImpactState::Pending => wire::impact::State::Pending,
        ImpactState::Complete => wire::impact::State::Complete,
        ImpactState::Truncated => wire::impact::State::Truncated,
    };
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    wire::Impact {
        state: state.into(),
        down: number(impact.down),
        degraded: number(impact.degraded),
    }
}

fn event_message(transition: &Transition) -> wire::Event {
    let change = match transition.change {
        Change::Raised => wire::Change::Raised,
        Change::Changed => wire::Change::Changed,
        Change::Cleared => wire::Change::Cleared,
        Change::Operator => wire::Change::Operator,
        Change::Shelved => wire::Change::Shelved,
        Change::Unshelved => wire::Change::Unshelved,
        Change::Cause => wire::Change::Cause,
        Change::Impact => wire::Change::Impact,
        Change::Suppressed => wire::Change::Suppressed,
        Change::Unsuppressed => wire::Change::Unsuppressed,
    };
    wire::Event {
        id: transition.id,
        time: transition.time_ns,
        change: change.into(),
        alarm: Some(alarm_message(&transition.alarm)),
    }
}
