//! One bootstrap attempt, from the DHCP lease to the applied configuration.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::bootz::bootstrap_stream_request_v1::ChallengeResponse;
use holdfast_proto::bootz::bootstrap_stream_request_v1::challenge_response::{
    self, ChallengeResponseTpm20iDevId,
};
use holdfast_proto::bootz::bootstrap_stream_response_v1::challenge_request;
use holdfast_proto::bootz::control_card_state::ControlCardStatus;
use holdfast_proto::bootz::{
    BootstrapStreamRequestV1, BootstrapStreamResponseV1, ChassisDescriptor, ControlCardState,
    GetBootstrapDataRequest, GetBootstrapDataResponse, StreamBootstrapDataResponse,
    bootstrap_stream_request_v1, bootstrap_stream_response_v1,
};
use tonic::Code;

use super::record::Base64Certificate;
use super::{
    Action, AttemptError, BootstrapStage, Client, Connect, Flow, Flows, Install, InstallResult,
    Parameters, ServerDiscovery, State, Status, StepContext, Task, TaskOutcome, limit,
};
use crate::image::ImageDecision;
use crate::ownership::{OwnershipError, OwnershipProof, VerificationParameters};
use crate::payload::BootstrapPayload;
use crate::transport_key::{SECRET, TransportKey};
use crate::uri::ServerUri;

/// Bytes of the nonce, which the server must repeat in the data that it signs.
const NONCE: usize = 32;

/// An attempt to fetch and apply bootstrap data.
#[derive(Debug)]
pub struct Attempt {
    phase: Phase,
    /// Servers still to be tried; the first is the current one.
    servers: VecDeque<ServerUri>,
    flow: Flow,
    nonce: String,
    key: Option<TransportKey>,
    payload: Option<Box<BootstrapPayload>>,
    /// Remarks for the report in addition to success.
    notes: Vec<String>,
}

/// State of an attempt: the outcome that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Leasing,
    Connecting,
    AwaitingData,
    AwaitingChallenge,
    Signing { announcement: Vec<u8> },
    AwaitingStreamData,
    Installing,
    Rebooting,
    Applying,
}

impl Attempt {
    /// The current server, and the rpc in use.
    pub(super) fn server(&self) -> Option<(&ServerUri, Flow)> {
        self.servers.front().map(|server| (server, self.flow))
    }

    /// True while configuration changes are made by the attempt itself.
    pub(super) fn is_applying(&self) -> bool {
        self.phase == Phase::Applying
    }

    /// The verified data, once there is any.
    pub(super) fn payload(&self) -> Option<&BootstrapPayload> {
        self.payload.as_deref()
    }

    /// The error to report when the deadline of the current phase passes.
    pub(super) fn timeout_error(&self) -> AttemptError {
        let unreachable = |what: &str| AttemptError::unreachable(format!("{what} in time"));
        match self.phase {
            Phase::Leasing => unreachable("no DHCP server answered"),
            Phase::Connecting => unreachable("the server was not reached"),
            Phase::Signing { .. } => unreachable("the key of the IDevID did not sign"),
            Phase::AwaitingData | Phase::AwaitingChallenge | Phase::AwaitingStreamData => {
                unreachable("the server did not answer")
            }
            Phase::Installing => {
                AttemptError::new(Status::OsInvalidImage, "the image was not installed in time")
            }
            Phase::Rebooting => unreachable("the box did not reboot into its new image"),
            Phase::Applying => AttemptError::new(
                Status::ConfigurationInvalid,
                "the configuration was not applied in time",
            ),
        }
    }
}

/// Builds the answer to a challenge.
pub(super) fn challenge_response(announcement: Vec<u8>, signature: Vec<u8>) -> Task {
    let answer = ChallengeResponseTpm20iDevId {
        serialized_transport_key: announcement.into(),
        signature: signature.into(),
    };
    let response =
        ChallengeResponse { r#type: Some(challenge_response::Type::Tpm20Idevid(answer)) };
    Task::Send(message(bootstrap_stream_request_v1::Type::ChallengeResponse(response)))
}

pub(super) fn message(request: bootstrap_stream_request_v1::Type) -> BootstrapStreamRequestV1 {
    BootstrapStreamRequestV1 { r#type: Some(request) }
}

impl Client {
    /// Generates the transport key for one stream, and the message that the IDevID must sign to answer this
    /// challenge.
    ///
    /// # Errors
    /// When the server does not ask for a signature with the key of the IDevID.
    pub(super) fn prepare_challenge_response(
        response: BootstrapStreamResponseV1,
        around: &mut StepContext<'_>,
    ) -> Result<(TransportKey, Vec<u8>), AttemptError> {
        let Some(bootstrap_stream_response_v1::Type::ChallengeRequest(request)) = response.r#type
        else {
            return Err(AttemptError::unexpected("a challenge"));
        };
        let Some(challenge_request::Type::Tpm20Idevid(challenge)) = request.r#type else {
            return Err(AttemptError::unexpected("a challenge for the IDevID"));
        };
        let mut secret = zeroize::Zeroizing::new([0; SECRET]);
        (around.random)(&mut *secret);
        let key = TransportKey::from_secret(*secret);
        let announcement = key.announcement(&challenge.nonce);
        Ok((key, announcement))
    }

    pub(super) fn begin_attempt(&mut self, around: &mut StepContext<'_>) {
        let entry = match &self.record.parameters {
            Some(Parameters { entry, .. }) => entry.clone(),
            None => return,
        };
        let now = u64::try_from(Duration::from_secs(around.now.as_secs()).as_nanos());
        self.record.telemetry.last_attempt = Some(now.unwrap_or(u64::MAX));
        self.save();
        let mut attempt = Attempt {
            phase: Phase::Leasing,
            servers: VecDeque::new(),
            flow: self.first_flow(),
            nonce: String::new(),
            key: None,
            payload: None,
            notes: Vec::new(),
        };
        match entry {
            ServerDiscovery::Dhcp => {
                self.log("asking DHCP for an address and bootstrap servers");
                self.begin(State::Attempting(Box::new(attempt)), Task::Lease, limit::LEASE);
            }
            ServerDiscovery::Named { server, .. } => {
                attempt.servers.push_back(server);
                self.connect(attempt);
            }
        }
    }

    pub(super) fn advance_attempt(
        &mut self,
        mut attempt: Attempt,
        outcome: TaskOutcome,
        around: &mut StepContext<'_>,
    ) {
        match self.next_step(&mut attempt, outcome, around) {
            Ok(AttemptTransition::Connect) => self.connect(attempt),
            Ok(AttemptTransition::Begin(phase, task, limit)) => {
                attempt.phase = phase;
                self.begin(State::Attempting(Box::new(attempt)), task, limit);
            }
            Ok(AttemptTransition::Reboot) => {
                attempt.phase = Phase::Rebooting;
                self.state = State::Attempting(Box::new(attempt));
                let work = self.next_work();
                self.push_action(Action::Wait(work, limit::REBOOT));
                self.push_action(Action::Reboot);
            }
            Ok(AttemptTransition::Report) => self.begin_report(),
            Err(fault) => self.fail_attempt(Some(attempt), fault, around),
        }
    }

    fn next_step(
        &mut self,
        attempt: &mut Attempt,
        outcome: TaskOutcome,
        around: &mut StepContext<'_>,
    ) -> Result<AttemptTransition, AttemptError> {
        let refused =
            |refused: crate::wire::RpcError| AttemptError::unreachable(refused.to_string());
        match (attempt.phase.clone(), outcome) {
            (Phase::Leasing, TaskOutcome::Leased(found)) => {
                self.on_servers(attempt, found.map_err(AttemptError::unreachable)?)
            }
            (Phase::Connecting, TaskOutcome::Connected(connected)) => {
                connected.map_err(AttemptError::unreachable)?;
                Ok(self.request_data(attempt, around))
            }
            (Phase::AwaitingData, TaskOutcome::Data(answer)) => {
                self.on_data(attempt, *answer.map_err(refused)?, around)
            }
            (Phase::AwaitingChallenge, TaskOutcome::Message(Err(error)))
                if error.code == Code::Unimplemented && self.settings.flows == Flows::Either =>
            {
                self.log("the server has no stream for this box: asking without");
                attempt.flow = Flow::Unary;
                self.push_action(Action::CancelWork);
                Ok(AttemptTransition::Connect)
            }
            (Phase::AwaitingChallenge, TaskOutcome::Message(answer)) => {
                let answer = *answer.map_err(refused)?;
                let (key, announcement) = Self::prepare_challenge_response(answer, around)?;
                attempt.key = Some(key);
                self.log("answering the challenge of the server");
                let phase = Phase::Signing { announcement: announcement.clone() };
                Ok(AttemptTransition::Begin(phase, Task::Sign(announcement), limit::SIGN))
            }
            (Phase::Signing { announcement }, TaskOutcome::Signed(signature)) => {
                let signature = signature.map_err(AttemptError::unreachable)?;
                let task = challenge_response(announcement, signature);
                Ok(AttemptTransition::Begin(Phase::AwaitingStreamData, task, limit::ANSWER))
            }
            (Phase::AwaitingStreamData, TaskOutcome::Message(answer)) => {
                self.on_stream_data(attempt, *answer.map_err(refused)?, around)
            }
            (Phase::Installing, TaskOutcome::Installed(installed)) => {
                self.on_installed(attempt, installed)
            }
            (Phase::Applying, TaskOutcome::Applied(applied)) => self.on_applied(attempt, applied),
            (_, _) => Err(AttemptError::unreachable(
                "an outcome that the present step has no use for".to_owned(),
            )),
        }
    }

    /// Starts with the servers that DHCP named; the one refused last goes to the end of the list.
    fn on_servers(
        &mut self,
        attempt: &mut Attempt,
        servers: Vec<ServerUri>,
    ) -> Result<AttemptTransition, AttemptError> {
        self.has_lease = true;
        if servers.is_empty() {
            return Err(AttemptError::unreachable("DHCP named no bootstrap server"));
        }
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        self.log(format!("DHCP named {}", names.join(", ")));
        attempt.servers = servers.into();
        let refused =
            attempt.servers.iter().position(|it| Some(it) == self.refused_server.as_ref());
        if let Some(position) = refused {
            attempt.servers.rotate_left(position + 1);
        }
        Ok(AttemptTransition::Connect)
    }

    /// Connects to the first server of the list.
    fn connect(&mut self, mut attempt: Attempt) {
        let Some(server) = attempt.servers.front().cloned() else { return };
        self.log(format!("connecting to {server}"));
        let connect = Connect {
            interface: self.interface(),
            server,
            presents_idevid: attempt.flow == Flow::Unary,
            trust_anchor: None,
        };
        attempt.phase = Phase::Connecting;
        let state = State::Attempting(Box::new(attempt));
        self.begin(state, Task::Connect(connect), limit::CONNECT);
    }

    fn first_flow(&self) -> Flow {
        match self.settings.flows {
            Flows::Either | Flows::Stream => Flow::Stream,
            Flows::Unary => Flow::Unary,
        }
    }

    /// The interface that the operator named, else the one with the lease.
    pub(super) fn interface(&self) -> Option<String> {
        match &self.record.parameters.as_ref()?.entry {
            ServerDiscovery::Named { interface, .. } => Some(interface.clone()),
            ServerDiscovery::Dhcp => self.settings.port.clone(),
        }
    }

    fn request_data(
        &mut self,
        attempt: &mut Attempt,
        around: &mut StepContext<'_>,
    ) -> AttemptTransition {
        attempt.nonce = if self.settings.checks_ownership {
            let mut nonce = [0; NONCE];
            (around.random)(&mut nonce);
            STANDARD.encode(nonce)
        } else {
            self.log("ownership is not checked: this box is set up for a laboratory");
            String::new()
        };
        let request = self.bootstrap_request(&attempt.nonce);
        self.log("asking for the data of this box");
        self.set_status(Status::Sent);
        match attempt.flow {
            Flow::Stream => AttemptTransition::Begin(
                Phase::AwaitingChallenge,
                Task::OpenStream(message(bootstrap_stream_request_v1::Type::BootstrapRequest(
                    request,
                ))),
                limit::ANSWER,
            ),
            Flow::Unary => {
                AttemptTransition::Begin(Phase::AwaitingData, Task::GetData(request), limit::ANSWER)
            }
        }
    }

    /// Builds the request. A box is of fixed form factor: its serial number is that of its only control card.
    fn bootstrap_request(&self, nonce: &str) -> GetBootstrapDataRequest {
        let profile = &self.settings;
        GetBootstrapDataRequest {
            chassis_descriptor: Some(ChassisDescriptor {
                manufacturer: profile.manufacturer.clone(),
                part_number: profile.part_number.clone(),
                serial_number: profile.serial.clone(),
                control_cards: Vec::new(),
            }),
            control_card_state: Some(self.control_card(ControlCardStatus::NotInitialized)),
            nonce: nonce.to_owned(),
            identity: Some(profile.idevid.message()),
            ..GetBootstrapDataRequest::default()
        }
    }

    pub(super) fn control_card(&self, status: ControlCardStatus) -> ControlCardState {
        ControlCardState { serial_number: self.settings.serial.clone(), status: status.into() }
    }

    fn on_data(
        &mut self,
        attempt: &mut Attempt,
        answer: GetBootstrapDataResponse,
        around: &StepContext<'_>,
    ) -> Result<AttemptTransition, AttemptError> {
        let proof = OwnershipProof {
            voucher: &answer.ownership_voucher,
            certificate: &answer.ownership_certificate,
            signature: &answer.response_signature,
        };
        self.verify_ownership(&proof, &answer.serialized_bootstrap_data, around)?;
        self.on_verified_data(attempt, &answer.serialized_bootstrap_data)
    }

    fn on_stream_data(
        &mut self,
        attempt: &mut Attempt,
        answer: BootstrapStreamResponseV1,
        around: &StepContext<'_>,
    ) -> Result<AttemptTransition, AttemptError> {
        let Some(bootstrap_stream_response_v1::Type::BootstrapResponse(answer)) = answer.r#type
        else {
            return Err(AttemptError::unexpected("bootstrap data"));
        };
        let StreamBootstrapDataResponse {
            ownership_voucher,
            ownership_certificate,
            response_signature,
            encrypted_serialized_bootstrap_data: encrypted,
            encapsulated_key,
        } = answer;
        let proof = OwnershipProof {
            voucher: &ownership_voucher,
            certificate: &ownership_certificate,
            signature: &response_signature,
        };
        self.verify_ownership(&proof, &encrypted, around)?;
        let key = attempt.key.take(); // it opens one answer and no other
        let key = key.ok_or_else(|| AttemptError::unexpected("data after a challenge"))?;
        let data = key.open(&encapsulated_key, &encrypted);
        let data = data.map_err(|error| AttemptError::new(Status::OvInvalid, error.to_string()))?;
        self.on_verified_data(attempt, &data)
    }

    /// Checks the ownership proof of data in its received form.
    fn verify_ownership(
        &self,
        proof: &OwnershipProof<'_>,
        data: &[u8],
        around: &StepContext<'_>,
    ) -> Result<(), AttemptError> {
        if !self.settings.checks_ownership {
            return Ok(());
        }
        let expected = VerificationParameters {
            serial: &self.settings.serial,
            voucher_anchors: &self.settings.voucher_anchors,
            now: around.now,
        };
        let verified = proof.verify(data, &expected);
        verified.map_err(|error| AttemptError::new(Status::OvInvalid, error_text(&error)))
    }

    fn on_verified_data(
        &mut self,
        attempt: &mut Attempt,
        data: &[u8],
    ) -> Result<AttemptTransition, AttemptError> {
        let read = BootstrapPayload::read(data, &attempt.nonce, &self.settings.serial);
        let payload = read.map_err(|error| {
            let status =
                if error.is_replay() { Status::OvInvalid } else { Status::ConfigurationInvalid };
            AttemptError::new(status, error.to_string())
        })?;
        self.log("the data is the owner's, and for this box");
        self.record.telemetry.checksum.clone_from(&payload.checksum);
        self.set_status(Status::Received);
        let step = self.settings.software.decide(payload.response.intended_image.as_ref());
        let trusts = payload.server_trust_cert.clone();
        attempt.payload = Some(Box::new(payload));
        match step.map_err(|error| AttemptError::new(Status::OsInvalidImage, error.to_string()))? {
            ImageDecision::Keep => self.apply(attempt),
            ImageDecision::Install(image) => {
                self.log(format!("installing image {} from {}", image.version, image.url));
                self.set_status(Status::OsUpgradeInProgress);
                let install = Install { image, trust_anchor: trusts };
                Ok(AttemptTransition::Begin(
                    Phase::Installing,
                    Task::Install(install),
                    limit::INSTALL,
                ))
            }
        }
    }

    fn on_installed(
        &mut self,
        attempt: &mut Attempt,
        installed: Result<InstallResult, String>,
    ) -> Result<AttemptTransition, AttemptError> {
        let installed = installed.map_err(|why| AttemptError::new(Status::OsInvalidImage, why))?;
        self.set_status(Status::OsUpgradeComplete);
        match installed {
            InstallResult::Running => self.apply(attempt),
            InstallResult::AtReboot => {
                self.log("the image is installed: rebooting into it");
                Ok(AttemptTransition::Reboot)
            }
        }
    }

    fn apply(&mut self, attempt: &mut Attempt) -> Result<AttemptTransition, AttemptError> {
        let payload = attempt.payload.clone();
        let payload = payload.ok_or_else(|| AttemptError::unexpected("data to apply"))?;
        self.log("bringing the configuration into force");
        Ok(AttemptTransition::Begin(Phase::Applying, Task::Apply(payload), limit::APPLY))
    }

    fn on_applied(
        &mut self,
        attempt: &mut Attempt,
        applied: Result<Vec<String>, String>,
    ) -> Result<AttemptTransition, AttemptError> {
        let notes = applied.map_err(|why| AttemptError::new(Status::ConfigurationInvalid, why))?;
        attempt.notes.extend(notes);
        let (server, payload) = match (attempt.servers.front(), &attempt.payload) {
            (Some(server), Some(payload)) => (server.clone(), payload),
            _ => return Err(AttemptError::unexpected("data to apply")),
        };
        if let Some(parameters) = &mut self.record.parameters {
            parameters.stage = BootstrapStage::Reporting {
                server,
                flow: attempt.flow,
                trust: Base64Certificate(payload.server_trust_cert.clone()),
                notes: std::mem::take(&mut attempt.notes),
            };
        }
        self.failures = 0;
        self.refused_server = None;
        self.log("the configuration is in force");
        self.set_status(Status::ConfigurationApplied);
        self.push_action(Action::CancelWork);
        Ok(AttemptTransition::Report)
    }

    /// Ends an attempt after an error. When the server is unreachable, the next one of the list is tried. When its
    /// data is refused, the server is informed if possible, and the box starts over with DHCP.
    pub(super) fn fail_attempt(
        &mut self,
        attempt: Option<Attempt>,
        fault: AttemptError,
        around: &mut StepContext<'_>,
    ) {
        let Some(mut attempt) = attempt else { return self.schedule_retry(&fault, around) };
        let server = attempt.servers.front().cloned();
        if attempt.payload.is_some() {
            self.refused_server = server;
            return self.begin_failure_report(&attempt, fault, around);
        }
        if fault.status == Status::Unspecified && attempt.servers.len() > 1 {
            attempt.servers.pop_front();
            attempt.flow = self.first_flow();
            self.log(format!("failed: {}; trying the next server", fault.reason));
            self.push_action(Action::CancelWork);
            return self.connect(attempt);
        }
        self.refused_server = server;
        self.schedule_retry(&fault, around);
    }
}

/// Next state of an attempt.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is gone within the step"
)]
enum AttemptTransition {
    Connect,
    Begin(Phase, Task, Duration),
    Reboot,
    Report,
}

/// Formats an error with its causes.
fn error_text(error: &OwnershipError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
