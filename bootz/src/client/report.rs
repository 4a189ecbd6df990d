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
    Action, Client, Connect, Entry, Fault, Flow, Outcome, Parameters, Stage, State, Status,
    Surroundings, Task, limit,
};
use crate::uri::Server;
use crate::wire::Refused;

/// An attempt to report the outcome.
#[derive(Debug)]
pub struct Report {
    phase: Phase,
    server: Server,
    flow: Flow,
    trust: CertificateDer<'static>,
    /// Fault to report; `None` for success.
    fault: Option<Fault>,
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
        let Stage::Reporting { server, flow, trust, notes } = stage else { return };
        let (phase, fault) = (Phase::Leasing, None);
        let report = Report { phase, server, flow, trust: trust.0, fault, notes };
        if entry == Entry::Dhcp && !self.has_lease {
            self.tell("asking DHCP for an address");
            self.begin(State::Reporting(Box::new(report)), Task::Lease, limit::LEASE);
        } else {
            self.connect_to_report(report);
        }
    }

    /// Starts the report of a failure. It is sent once; the box starts over whether the server receives it or not.
    pub(super) fn begin_failure_report(
        &mut self,
        attempt: &Attempt,
        fault: Fault,
        around: &mut Surroundings<'_>,
    ) {
        let (Some((server, flow)), Some(payload)) = (attempt.server(), attempt.payload()) else {
            return self.wait(&fault, around);
        };
        let server = server.clone();
        let trust = payload.server_trust_cert.clone();
        self.set_status(fault.status);
        self.tell(format!("failed: {}", fault.reason));
        self.do_now(Action::Abandon);
        let (phase, notes) = (Phase::Connecting, Vec::new());
        let fault = Some(fault);
        self.connect_to_report(Report { phase, server, flow, trust, fault, notes });
    }

    fn connect_to_report(&mut self, mut report: Report) {
        self.tell(format!("reporting to {}", report.server));
        let connect = Connect {
            server: report.server.clone(),
            interface: self.interface(),
            presents_idevid: report.flow == Flow::Unary,
            trusts: Some(report.trust.clone()),
        };
        report.phase = Phase::Connecting;
        let state = State::Reporting(Box::new(report));
        self.begin(state, Task::Connect(connect), limit::CONNECT);
    }

    pub(super) fn advance_report(
        &mut self,
        mut report: Report,
        outcome: Outcome,
        around: &mut Surroundings<'_>,
    ) {
        match self.next_of_report(&report, outcome, around) {
            Ok(Next::Connect) => self.connect_to_report(report),
            Ok(Next::Acknowledged) => self.acknowledged(report, around),
            Ok(Next::Begin(phase, task)) => {
                let limit = if matches!(task, Task::Sign(_)) { limit::SIGN } else { limit::ANSWER };
                report.phase = phase;
                self.begin(State::Reporting(Box::new(report)), task, limit);
            }
            Err(fault) => self.fail_report(&report, fault, around),
        }
    }

    fn next_of_report(
        &mut self,
        report: &Report,
        outcome: Outcome,
        around: &mut Surroundings<'_>,
    ) -> Result<Next, Fault> {
        let refused = |refused: Refused| Fault::unreachable(refused.to_string());
        match (&report.phase, outcome) {
            (Phase::Leasing, Outcome::Leased(found)) => {
                found.map_err(Fault::unreachable)?;
                self.has_lease = true;
                Ok(Next::Connect)
            }
            (Phase::Connecting, Outcome::Connected(connected)) => {
                connected.map_err(Fault::unreachable)?;
                Ok(self.say(report))
            }
            (Phase::AwaitingAnswer, Outcome::Reported(answer)) => {
                answer.map_err(refused)?;
                Ok(Next::Acknowledged)
            }
            (Phase::AwaitingChallenge, Outcome::Message(answer)) => {
                let answer = *answer.map_err(refused)?;
                let (_key, announcement) = Self::meet_challenge(answer, around)?;
                let phase = Phase::Signing { announcement: announcement.clone() };
                Ok(Next::Begin(phase, Task::Sign(announcement)))
            }
            (Phase::Signing { announcement }, Outcome::Signed(signature)) => {
                let signature = signature.map_err(Fault::unreachable)?;
                let task = challenge_response(announcement.clone(), signature);
                Ok(Next::Begin(Phase::AwaitingAcknowledgement, task))
            }
            (Phase::AwaitingAcknowledgement, Outcome::Message(answer)) => {
                acknowledgement(*answer.map_err(refused)?)
            }
            (phase, _) => {
                Err(Fault::unreachable(format!("an outcome that {phase:?} has no use for")))
            }
        }
    }

    fn say(&self, report: &Report) -> Next {
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
            states: vec![self.card(card)],
            identity: Some(self.profile.idevid.message()),
            ..ReportStatusRequest::default()
        };
        match report.flow {
            Flow::Unary => Next::Begin(Phase::AwaitingAnswer, Task::Report(request)),
            Flow::Stream => Next::Begin(
                Phase::AwaitingChallenge,
                Task::OpenStream(message(bootstrap_stream_request_v1::Type::ReportStatusRequest(
                    request,
                ))),
            ),
        }
    }

    fn acknowledged(&mut self, report: Report, around: &mut Surroundings<'_>) {
        self.do_now(Action::Abandon);
        match report.fault {
            None => {
                self.tell("bootstrapped: the server knows");
                self.failures = 0;
                self.rest_as(Status::Ok);
            }
            Some(fault) => self.wait(&fault, around),
        }
    }

    /// Handles a failed report. A report of success will be sent again, and the configuration stays; a report of
    /// failure is dropped.
    pub(super) fn fail_report(
        &mut self,
        report: &Report,
        why: Fault,
        around: &mut Surroundings<'_>,
    ) {
        match &report.fault {
            None => {
                let fault = Fault::new(Status::ConfigurationApplied, why.reason);
                self.wait(&fault, around);
            }
            Some(fault) => {
                self.tell(format!("the server was not informed: {}", why.reason));
                self.wait(fault, around);
            }
        }
    }
}

/// Next state of a report.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is gone within the step"
)]
enum Next {
    Connect,
    Begin(Phase, Task),
    Acknowledged,
}

fn acknowledgement(answer: BootstrapStreamResponseV1) -> Result<Next, Fault> {
    match answer.r#type {
        Some(bootstrap_stream_response_v1::Type::ReportStatusResponse(_)) => Ok(Next::Acknowledged),
        _ => Err(Fault::unexpected("an acknowledgement")),
    }
}
