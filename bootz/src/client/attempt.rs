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

use super::record::Trust;
use super::{
    Action, Client, Connect, Entry, Fault, Flow, Flows, Install, Installed, Outcome, Parameters,
    Stage, State, Status, Surroundings, Task, limit,
};
use crate::image::Step;
use crate::ownership::{Expected, OwnershipError, Proof};
use crate::payload::Payload;
use crate::transport_key::{SECRET, TransportKey};
use crate::uri::Server;

/// Octets of the nonce, which the server must repeat in the data that it signs.
const NONCE: usize = 32;

/// An attempt to fetch and apply bootstrap data.
#[derive(Debug)]
pub struct Attempt {
    phase: Phase,
    /// Servers still to be tried; the first is the current one.
    servers: VecDeque<Server>,
    flow: Flow,
    nonce: String,
    key: Option<TransportKey>,
    payload: Option<Box<Payload>>,
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
    pub(super) fn server(&self) -> Option<(&Server, Flow)> {
        self.servers.front().map(|server| (server, self.flow))
    }

    /// True while configuration changes are made by the attempt itself.
    pub(super) fn is_applying(&self) -> bool {
        self.phase == Phase::Applying
    }

    /// The verified data, once there is any.
    pub(super) fn payload(&self) -> Option<&Payload> {
        self.payload.as_deref()
    }

    /// The fault to report when the deadline of the current phase passes.
    pub(super) fn lateness(&self) -> Fault {
        let unreachable = |what: &str| Fault::unreachable(format!("{what} in time"));
        match self.phase {
            Phase::Leasing => unreachable("no DHCP server answered"),
            Phase::Connecting => unreachable("the server was not reached"),
            Phase::Signing { .. } => unreachable("the key of the IDevID did not sign"),
            Phase::AwaitingData | Phase::AwaitingChallenge | Phase::AwaitingStreamData => {
                unreachable("the server did not answer")
            }
            Phase::Installing => {
                Fault::new(Status::OsInvalidImage, "the image was not installed in time")
            }
            Phase::Rebooting => unreachable("the box did not reboot into its new image"),
            Phase::Applying => Fault::new(
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
    pub(super) fn meet_challenge(
        response: BootstrapStreamResponseV1,
        around: &mut Surroundings<'_>,
    ) -> Result<(TransportKey, Vec<u8>), Fault> {
        let Some(bootstrap_stream_response_v1::Type::ChallengeRequest(request)) = response.r#type
        else {
            return Err(Fault::unexpected("a challenge"));
        };
        let Some(challenge_request::Type::Tpm20Idevid(challenge)) = request.r#type else {
            return Err(Fault::unexpected("a challenge for the IDevID"));
        };
        let mut secret = zeroize::Zeroizing::new([0; SECRET]);
        (around.random)(&mut *secret);
        let key = TransportKey::from_secret(*secret);
        let announcement = key.announcement(&challenge.nonce);
        Ok((key, announcement))
    }

    pub(super) fn begin_attempt(&mut self, around: &mut Surroundings<'_>) {
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
            Entry::Dhcp => {
                self.tell("asking DHCP for an address and bootstrap servers");
                self.begin(State::Attempting(Box::new(attempt)), Task::Lease, limit::LEASE);
            }
            Entry::Named { server, .. } => {
                attempt.servers.push_back(server);
                self.connect(attempt);
            }
        }
    }

    pub(super) fn advance_attempt(
        &mut self,
        mut attempt: Attempt,
        outcome: Outcome,
        around: &mut Surroundings<'_>,
    ) {
        match self.next_step(&mut attempt, outcome, around) {
            Ok(Next::Connect) => self.connect(attempt),
            Ok(Next::Begin(phase, task, limit)) => {
                attempt.phase = phase;
                self.begin(State::Attempting(Box::new(attempt)), task, limit);
            }
            Ok(Next::Reboot) => {
                attempt.phase = Phase::Rebooting;
                self.state = State::Attempting(Box::new(attempt));
                let work = self.next_work();
                self.do_now(Action::Wait(work, limit::REBOOT));
                self.do_now(Action::Reboot);
            }
            Ok(Next::Report) => self.begin_report(),
            Err(fault) => self.fail_attempt(Some(attempt), fault, around),
        }
    }

    fn next_step(
        &mut self,
        attempt: &mut Attempt,
        outcome: Outcome,
        around: &mut Surroundings<'_>,
    ) -> Result<Next, Fault> {
        let refused = |refused: crate::wire::Refused| Fault::unreachable(refused.to_string());
        match (attempt.phase.clone(), outcome) {
            (Phase::Leasing, Outcome::Leased(found)) => {
                self.choose(attempt, found.map_err(Fault::unreachable)?)
            }
            (Phase::Connecting, Outcome::Connected(connected)) => {
                connected.map_err(Fault::unreachable)?;
                Ok(self.ask(attempt, around))
            }
            (Phase::AwaitingData, Outcome::Data(answer)) => {
                self.take_data(attempt, *answer.map_err(refused)?, around)
            }
            (Phase::AwaitingChallenge, Outcome::Message(Err(error)))
                if error.code == Code::Unimplemented && self.profile.flows == Flows::Either =>
            {
                self.tell("the server has no stream for this box: asking without");
                attempt.flow = Flow::Unary;
                self.do_now(Action::Abandon);
                Ok(Next::Connect)
            }
            (Phase::AwaitingChallenge, Outcome::Message(answer)) => {
                let answer = *answer.map_err(refused)?;
                let (key, announcement) = Self::meet_challenge(answer, around)?;
                attempt.key = Some(key);
                self.tell("answering the challenge of the server");
                let phase = Phase::Signing { announcement: announcement.clone() };
                Ok(Next::Begin(phase, Task::Sign(announcement), limit::SIGN))
            }
            (Phase::Signing { announcement }, Outcome::Signed(signature)) => {
                let signature = signature.map_err(Fault::unreachable)?;
                let task = challenge_response(announcement, signature);
                Ok(Next::Begin(Phase::AwaitingStreamData, task, limit::ANSWER))
            }
            (Phase::AwaitingStreamData, Outcome::Message(answer)) => {
                self.take_stream_data(attempt, *answer.map_err(refused)?, around)
            }
            (Phase::Installing, Outcome::Installed(installed)) => {
                self.take_installed(attempt, installed)
            }
            (Phase::Applying, Outcome::Applied(applied)) => self.take_applied(attempt, applied),
            (phase, _) => {
                Err(Fault::unreachable(format!("an outcome that {phase:?} has no use for")))
            }
        }
    }

    /// Starts with the servers that DHCP named; the one refused last goes to the end of the list.
    fn choose(&mut self, attempt: &mut Attempt, servers: Vec<Server>) -> Result<Next, Fault> {
        self.has_lease = true;
        if servers.is_empty() {
            return Err(Fault::unreachable("DHCP named no bootstrap server"));
        }
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        self.tell(format!("DHCP named {}", names.join(", ")));
        attempt.servers = servers.into();
        let refused = attempt.servers.iter().position(|it| Some(it) == self.refused.as_ref());
        if let Some(position) = refused {
            attempt.servers.rotate_left(position + 1);
        }
        Ok(Next::Connect)
    }

    /// Connects to the first server of the list.
    fn connect(&mut self, mut attempt: Attempt) {
        let Some(server) = attempt.servers.front().cloned() else { return };
        self.tell(format!("connecting to {server}"));
        let connect = Connect {
            interface: self.interface(),
            server,
            presents_idevid: attempt.flow == Flow::Unary,
            trusts: None,
        };
        attempt.phase = Phase::Connecting;
        let state = State::Attempting(Box::new(attempt));
        self.begin(state, Task::Connect(connect), limit::CONNECT);
    }

    fn first_flow(&self) -> Flow {
        match self.profile.flows {
            Flows::Either | Flows::Stream => Flow::Stream,
            Flows::Unary => Flow::Unary,
        }
    }

    /// The interface that the operator named, else the one with the lease.
    pub(super) fn interface(&self) -> Option<String> {
        match &self.record.parameters.as_ref()?.entry {
            Entry::Named { interface, .. } => Some(interface.clone()),
            Entry::Dhcp => self.profile.port.clone(),
        }
    }

    fn ask(&mut self, attempt: &mut Attempt, around: &mut Surroundings<'_>) -> Next {
        attempt.nonce = if self.profile.checks_ownership {
            let mut nonce = [0; NONCE];
            (around.random)(&mut nonce);
            STANDARD.encode(nonce)
        } else {
            self.tell("ownership is not checked: this box is set up for a laboratory");
            String::new()
        };
        let request = self.request(&attempt.nonce);
        self.tell("asking for the data of this box");
        self.set_status(Status::Sent);
        match attempt.flow {
            Flow::Stream => Next::Begin(
                Phase::AwaitingChallenge,
                Task::OpenStream(message(bootstrap_stream_request_v1::Type::BootstrapRequest(
                    request,
                ))),
                limit::ANSWER,
            ),
            Flow::Unary => Next::Begin(Phase::AwaitingData, Task::GetData(request), limit::ANSWER),
        }
    }

    /// Builds the request. A box is of fixed form factor: its serial number is that of its only control card.
    fn request(&self, nonce: &str) -> GetBootstrapDataRequest {
        let profile = &self.profile;
        GetBootstrapDataRequest {
            chassis_descriptor: Some(ChassisDescriptor {
                manufacturer: profile.manufacturer.clone(),
                part_number: profile.part_number.clone(),
                serial_number: profile.serial.clone(),
                control_cards: Vec::new(),
            }),
            control_card_state: Some(self.card(ControlCardStatus::NotInitialized)),
            nonce: nonce.to_owned(),
            identity: Some(profile.idevid.message()),
            ..GetBootstrapDataRequest::default()
        }
    }

    pub(super) fn card(&self, status: ControlCardStatus) -> ControlCardState {
        ControlCardState { serial_number: self.profile.serial.clone(), status: status.into() }
    }

    fn take_data(
        &mut self,
        attempt: &mut Attempt,
        answer: GetBootstrapDataResponse,
        around: &Surroundings<'_>,
    ) -> Result<Next, Fault> {
        let proof = Proof {
            voucher: &answer.ownership_voucher,
            certificate: &answer.ownership_certificate,
            signature: &answer.response_signature,
        };
        self.believe(&proof, &answer.serialized_bootstrap_data, around)?;
        self.take_payload(attempt, &answer.serialized_bootstrap_data)
    }

    fn take_stream_data(
        &mut self,
        attempt: &mut Attempt,
        answer: BootstrapStreamResponseV1,
        around: &Surroundings<'_>,
    ) -> Result<Next, Fault> {
        let Some(bootstrap_stream_response_v1::Type::BootstrapResponse(answer)) = answer.r#type
        else {
            return Err(Fault::unexpected("bootstrap data"));
        };
        let StreamBootstrapDataResponse {
            ownership_voucher,
            ownership_certificate,
            response_signature,
            encrypted_serialized_bootstrap_data: encrypted,
            encapsulated_key,
        } = answer;
        let proof = Proof {
            voucher: &ownership_voucher,
            certificate: &ownership_certificate,
            signature: &response_signature,
        };
        self.believe(&proof, &encrypted, around)?;
        let key = attempt.key.take(); // it opens one answer and no other
        let key = key.ok_or_else(|| Fault::unexpected("data after a challenge"))?;
        let data = key.open(&encapsulated_key, &encrypted);
        let data = data.map_err(|error| Fault::new(Status::OvInvalid, error.to_string()))?;
        self.take_payload(attempt, &data)
    }

    /// Checks the ownership proof of data in its received form.
    fn believe(
        &self,
        proof: &Proof<'_>,
        data: &[u8],
        around: &Surroundings<'_>,
    ) -> Result<(), Fault> {
        if !self.profile.checks_ownership {
            return Ok(());
        }
        let expected = Expected {
            serial: &self.profile.serial,
            vendor: &self.profile.vendor,
            now: around.now,
        };
        let verified = proof.verify(data, &expected);
        verified.map_err(|error| Fault::new(Status::OvInvalid, chain(&error)))
    }

    fn take_payload(&mut self, attempt: &mut Attempt, data: &[u8]) -> Result<Next, Fault> {
        let read = Payload::read(data, &attempt.nonce, &self.profile.serial);
        let payload = read.map_err(|error| {
            let status = match error.is_replay() {
                true => Status::OvInvalid,
                false => Status::ConfigurationInvalid,
            };
            Fault::new(status, error.to_string())
        })?;
        self.tell("the data is the owner's, and for this box");
        self.record.telemetry.checksum.clone_from(&payload.checksum);
        self.set_status(Status::Received);
        let step = self.profile.slot.step(payload.response.intended_image.as_ref());
        let trusts = payload.server_trust_cert.clone();
        attempt.payload = Some(Box::new(payload));
        match step.map_err(|error| Fault::new(Status::OsInvalidImage, error.to_string()))? {
            Step::Keep => self.apply(attempt),
            Step::Install(image) => {
                self.tell(format!("installing image {} from {}", image.version, image.url));
                self.set_status(Status::OsUpgradeInProgress);
                let install = Install { image, trusts };
                Ok(Next::Begin(Phase::Installing, Task::Install(install), limit::INSTALL))
            }
        }
    }

    fn take_installed(
        &mut self,
        attempt: &mut Attempt,
        installed: Result<Installed, String>,
    ) -> Result<Next, Fault> {
        let installed = installed.map_err(|why| Fault::new(Status::OsInvalidImage, why))?;
        self.set_status(Status::OsUpgradeComplete);
        match installed {
            Installed::Running => self.apply(attempt),
            Installed::AtReboot => {
                self.tell("the image is installed: rebooting into it");
                Ok(Next::Reboot)
            }
        }
    }

    fn apply(&mut self, attempt: &mut Attempt) -> Result<Next, Fault> {
        let payload = attempt.payload.clone();
        let payload = payload.ok_or_else(|| Fault::unexpected("data to apply"))?;
        self.tell("bringing the configuration into force");
        Ok(Next::Begin(Phase::Applying, Task::Apply(payload), limit::APPLY))
    }

    fn take_applied(
        &mut self,
        attempt: &mut Attempt,
        applied: Result<Vec<String>, String>,
    ) -> Result<Next, Fault> {
        let notes = applied.map_err(|why| Fault::new(Status::ConfigurationInvalid, why))?;
        attempt.notes.extend(notes);
        let (server, payload) = match (attempt.servers.front(), &attempt.payload) {
            (Some(server), Some(payload)) => (server.clone(), payload),
            _ => return Err(Fault::unexpected("data to apply")),
        };
        if let Some(parameters) = &mut self.record.parameters {
            parameters.stage = Stage::Reporting {
                server,
                flow: attempt.flow,
                trust: Trust(payload.server_trust_cert.clone()),
                notes: std::mem::take(&mut attempt.notes),
            };
        }
        self.failures = 0;
        self.refused = None;
        self.tell("the configuration is in force");
        self.set_status(Status::ConfigurationApplied);
        self.do_now(Action::Abandon);
        Ok(Next::Report)
    }

    /// Ends an attempt after a fault. When the server is unreachable, the next one of the list is tried. When its
    /// data is refused, the server is informed if possible, and the box starts over with DHCP.
    pub(super) fn fail_attempt(
        &mut self,
        attempt: Option<Attempt>,
        fault: Fault,
        around: &mut Surroundings<'_>,
    ) {
        let Some(mut attempt) = attempt else { return self.wait(&fault, around) };
        let server = attempt.servers.front().cloned();
        if attempt.payload.is_some() {
            self.refused = server;
            return self.begin_failure_report(&attempt, fault, around);
        }
        if fault.status == Status::Unspecified && attempt.servers.len() > 1 {
            attempt.servers.pop_front();
            attempt.flow = self.first_flow();
            self.tell(format!("failed: {}; trying the next server", fault.reason));
            self.do_now(Action::Abandon);
            return self.connect(attempt);
        }
        self.refused = server;
        self.wait(&fault, around);
    }
}

/// Next state of an attempt.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is gone within the step"
)]
enum Next {
    Connect,
    Begin(Phase, Task, Duration),
    Reboot,
    Report,
}

/// Formats an error with its causes.
fn chain(error: &OwnershipError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
