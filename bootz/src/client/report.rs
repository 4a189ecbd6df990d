//! The status report to the server, over a connection whose certificate must lead to the trust anchor in the data.

use holdfast_proto::bootz::control_card_state::ControlCardStatus;
use holdfast_proto::bootz::report_status_request::BootstrapStatus;
use holdfast_proto::bootz::{
    BootstrapStreamResponseV1, ReportStatusRequest, bootstrap_stream_request_v1,
    bootstrap_stream_response_v1,
};
use rustls_pki_types::CertificateDer;

use super::attempt::{Attempt, challenge_response, message};
use super::{
    Action, AttemptError, BootstrapStage, Client, Connect, Flow, Parameters, ServerDiscovery,
    State, Status, StepContext, Task, TaskOutcome, limit,
};
use crate::uri::ServerUri;
use crate::wire::RpcError;

/// An attempt to report the outcome.
#[derive(Debug)]
pub struct Report {
    phase: Phase,
    server: ServerUri,
    flow: Flow,
    trust: CertificateDer<'static>,
    /// Error to report; `None` for success.
    fault: Option<AttemptError>,
    notes: Vec<String>,
}

/// State of a report: the outcome that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Leasing,
    Connecting,
    AwaitingAnswer,
    AwaitingChallenge,
    Signing { announcement: Vec<u8> },
    AwaitingAcknowledgement,
}

impl Client {
    /// Starts the report of success. It is repeated after each failure and each restart, until the server has it.
    pub(super) fn begin_report(&mut self) {
        let Some(Parameters { entry, stage }) = self.record.parameters.clone() else { return };
        let BootstrapStage::Reporting { server, flow, trust, notes } = stage else { return };
        let phase = Phase::Leasing;
        let fault = None;
        let report = Report { phase, server, flow, trust: trust.0, fault, notes };
        if entry == ServerDiscovery::Dhcp && !self.has_lease {
            self.log("asking DHCP for an address");
            self.begin(State::Reporting(Box::new(report)), Task::Lease, limit::LEASE);
        } else {
            self.connect_to_report(report);
        }
    }

    /// Starts the report of a failure. It is sent once; the box starts over whether the server receives it or not.
    pub(super) fn begin_failure_report(
        &mut self,
        attempt: &Attempt,
        fault: AttemptError,
        around: &mut StepContext<'_>,
    ) {
        let (Some((server, flow)), Some(payload)) = (attempt.server(), attempt.payload()) else {
            return self.schedule_retry(&fault, around);
        };
        let server = server.clone();
        let trust = payload.server_trust_cert.clone();
        self.set_status(fault.status);
        self.log(format!("failed: {}", fault.reason));
        self.push_action(Action::CancelWork);
        let phase = Phase::Connecting;
        let notes = Vec::new();
        let fault = Some(fault);
        self.connect_to_report(Report { phase, server, flow, trust, fault, notes });
    }

    fn connect_to_report(&mut self, mut report: Report) {
        self.log(format!("reporting to {}", report.server));
        let connect = Connect {
            server: report.server.clone(),
            interface: self.interface(),
            presents_idevid: report.flow == Flow::Unary,
            trust_anchor: Some(report.trust.clone()),
        };
        report.phase = Phase::Connecting;
        let state = State::Reporting(Box::new(report));
        self.begin(state, Task::Connect(connect), limit::CONNECT);
    }

    pub(super) fn advance_report(
        &mut self,
        mut report: Report,
        outcome: TaskOutcome,
        around: &mut StepContext<'_>,
    ) {
        match self.next_report_step(&report, outcome, around) {
            Ok(ReportTransition::Connect) => self.connect_to_report(report),
            Ok(ReportTransition::Acknowledged) => self.on_acknowledged(report, around),
            Ok(ReportTransition::Begin(phase, task)) => {
                let limit = if matches!(task, Task::Sign(_)) { limit::SIGN } else { limit::ANSWER };
                report.phase = phase;
                self.begin(State::Reporting(Box::new(report)), task, limit);
            }
            Err(fault) => self.fail_report(&report, fault, around),
        }
    }

    fn next_report_step(
        &mut self,
        report: &Report,
        outcome: TaskOutcome,
        around: &mut StepContext<'_>,
    ) -> Result<ReportTransition, AttemptError> {
        let refused = |refused: RpcError| AttemptError::unreachable(refused.to_string());
        match (&report.phase, outcome) {
            (Phase::Leasing, TaskOutcome::Leased(found)) => {
                found.map_err(AttemptError::unreachable)?;
                self.has_lease = true;
                Ok(ReportTransition::Connect)
            }
            (Phase::Connecting, TaskOutcome::Connected(connected)) => {
                connected.map_err(AttemptError::unreachable)?;
                Ok(self.send_report(report))
            }
            (Phase::AwaitingAnswer, TaskOutcome::Reported(answer)) => {
                answer.map_err(refused)?;
                Ok(ReportTransition::Acknowledged)
            }
            (Phase::AwaitingChallenge, TaskOutcome::Message(answer)) => {
                let answer = *answer.map_err(refused)?;
                let (_key, announcement) = Self::prepare_challenge_response(answer, around)?;
                let phase = Phase::Signing { announcement: announcement.clone() };
                Ok(ReportTransition::Begin(phase, Task::Sign(announcement)))
            }
            (Phase::Signing { announcement }, TaskOutcome::Signed(signature)) => {
                let signature = signature.map_err(AttemptError::unreachable)?;
                let task = challenge_response(announcement.clone(), signature);
                Ok(ReportTransition::Begin(Phase::AwaitingAcknowledgement, task))
            }
            (Phase::AwaitingAcknowledgement, TaskOutcome::Message(answer)) => {
                acknowledgement(*answer.map_err(refused)?)
            }
            (_, _) => Err(AttemptError::unreachable(
                "an outcome that the present step has no use for".to_owned(),
            )),
        }
    }

    fn send_report(&self, report: &Report) -> ReportTransition {
        let (status, card) = match report.fault {
            None => (BootstrapStatus::Success, ControlCardStatus::Initialized),
            Some(_) => (BootstrapStatus::Failure, ControlCardStatus::NotInitialized),
        };
        let request = ReportStatusRequest {
            status: status.into(),
            status_message: match &report.fault {
                None => report.notes.join("; "),
                Some(fault) => format!("{}: {}", fault.status.name(), fault.reason),
            },
            states: vec![self.control_card(card)],
            identity: Some(self.settings.idevid.message()),
            ..ReportStatusRequest::default()
        };
        match report.flow {
            Flow::Unary => ReportTransition::Begin(Phase::AwaitingAnswer, Task::Report(request)),
            Flow::Stream => ReportTransition::Begin(
                Phase::AwaitingChallenge,
                Task::OpenStream(message(bootstrap_stream_request_v1::Type::ReportStatusRequest(
                    request,
                ))),
            ),
        }
    }

    fn on_acknowledged(&mut self, report: Report, around: &mut StepContext<'_>) {
        self.push_action(Action::CancelWork);
        match report.fault {
            None => {
                self.log("bootstrapped: the server knows");
                self.failures = 0;
                self.become_idle(Status::Ok);
            }
            Some(fault) => self.schedule_retry(&fault, around),
        }
    }

    /// Handles a failed report. A report of success will be sent again, and the configuration stays; a report of
    /// failure is dropped.
    pub(super) fn fail_report(
        &mut self,
        report: &Report,
        why: AttemptError,
        around: &mut StepContext<'_>,
    ) {
        match &report.fault {
            None => {
                let fault = AttemptError::new(Status::ConfigurationApplied, why.reason);
                self.schedule_retry(&fault, around);
            }
            Some(fault) => {
                self.log(format!("the server was not informed: {}", why.reason));
                self.schedule_retry(fault, around);
            }
        }
    }
}

/// Next state of a report.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is gone within the step"
)]
enum ReportTransition {
    Connect,
    Begin(Phase, Task),
    Acknowledged,
}

fn acknowledgement(answer: BootstrapStreamResponseV1) -> Result<ReportTransition, AttemptError> {
    match answer.r#type {
        Some(bootstrap_stream_response_v1::Type::ReportStatusResponse(_)) => {
            Ok(ReportTransition::Acknowledged)
        }
        _ => Err(AttemptError::unexpected("an acknowledgement")),
    }
}
