//! The client of a box, and a server that answers its tasks correctly, or with one defect.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_bootz::client::{
    Action, BootstrapRecord, BootstrapSettings, BootstrapStage, Client, Connect, Event, Flows,
    InstallResult, Parameters, ServerDiscovery, State, StepContext, Task, TaskOutcome, WorkId,
};
use holdfast_bootz::identity::{IdevidChain, SigningKey};
use holdfast_bootz::image::InstalledSoftware;
use holdfast_bootz::retry::Backoff;
use holdfast_bootz::wire::RpcError;
use holdfast_proto::bootz::bootstrap_stream_request_v1::challenge_response;
use holdfast_proto::bootz::bootstrap_stream_response_v1::challenge_request::{
    self, ChallengeRequestTpm20iDevId,
};
use holdfast_proto::bootz::bootstrap_stream_response_v1::{self, ChallengeRequest};
use holdfast_proto::bootz::{
    BootConfig, BootstrapDataResponse, BootstrapDataSigned, BootstrapStreamResponseV1,
    EmptyResponse, GetBootstrapDataRequest, GetBootstrapDataResponse, ReportStatusRequest,
    StreamBootstrapDataResponse, TransportKey, bootstrap_stream_request_v1,
};
use prost::Message;
use rcgen::SigningKey as _;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::{Hpke, HpkePublicKey};
use rustls_pki_types::UnixTime;
use tonic::Code;

use crate::pki::{
    Cms, KeyAlgorithm, KeyAndCertificate, VoucherText, der, issue_certificate,
    self_signed_authority,
};

pub(crate) const SERIAL: &str = "HF-1";
const KIND: KeyAlgorithm = KeyAlgorithm::P384;
/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

/// The server, and everything else that carries out tasks.
pub(crate) struct SimulatedServer {
    domain: KeyAndCertificate,
    owner: KeyAndCertificate,
    trust: KeyAndCertificate,
    vendor: KeyAndCertificate,
    idevid: KeyAndCertificate,
    key: SigningKey,
    /// Servers that DHCP names.
    pub(crate) offered: Vec<&'static str>,
    /// Changes the data before it is signed.
    pub(crate) tamper_data: fn(&mut BootstrapDataSigned),
    /// Changes the unary answer.
    pub(crate) tamper_unary: fn(&mut GetBootstrapDataResponse),
    /// Changes the answer on a stream.
    pub(crate) tamper_stream: fn(&mut StreamBootstrapDataResponse),
    /// Outcomes that replace the correct ones.
    pub(crate) outcome_override: fn(&Task) -> Option<TaskOutcome>,
    requested: Option<GetBootstrapDataRequest>,
    reporting: Option<ReportStatusRequest>,
    pub(crate) log: RequestLog,
}

/// Record of the box's requests.
#[derive(Default)]
pub(crate) struct RequestLog {
    pub(crate) connects: Vec<Connect>,
    pub(crate) requests: Vec<GetBootstrapDataRequest>,
    pub(crate) keys: Vec<TransportKey>,
    pub(crate) reports: Vec<ReportStatusRequest>,
    pub(crate) applied: usize,
    pub(crate) installs: usize,
    pub(crate) tasks: Vec<&'static str>,
    pub(crate) statuses: Vec<&'static str>,
    pub(crate) messages: Vec<String>,
    pub(crate) waits: Vec<Duration>,
    pub(crate) saved: Vec<BootstrapRecord>,
    pub(crate) reboots: usize,
    pub(crate) resets: usize,
}

impl SimulatedServer {
    pub(crate) fn new() -> Self {
        let vendor = self_signed_authority("vendor", KIND);
        let domain = self_signed_authority("domain", KIND);
        let idevid = issue_certificate("box", KIND, &vendor);
        let chain = IdevidChain::from_pem(idevid.pem().as_bytes()).unwrap();
        let key = SigningKey::from_pem(idevid.key().serialize_pem().as_bytes(), &chain).unwrap();
        Self {
            owner: issue_certificate("owner", KIND, &domain),
            trust: self_signed_authority("trust", KIND),
            offered: vec!["bootz://192.0.2.1:15006"],
            tamper_data: |_| {},
            tamper_unary: |_| {},
            tamper_stream: |_| {},
            outcome_override: |_| None,
            requested: None,
            reporting: None,
            log: RequestLog::default(),
            domain,
            vendor,
            idevid,
            key,
        }
    }

    pub(crate) fn profile(&self) -> BootstrapSettings {
        BootstrapSettings {
            manufacturer: "Maker".to_owned(),
            part_number: "Part".to_owned(),
            serial: SERIAL.to_owned(),
            idevid: IdevidChain::from_pem(self.idevid.pem().as_bytes()).unwrap(),
            voucher_anchors: vec![der(&self.vendor)],
            checks_ownership: true,
            flows: Flows::Either,
            software: InstalledSoftware { running: "1".to_owned(), can_install: true },
            backoff: Backoff::default(),
            port: Some("mgmt0".to_owned()),
        }
    }

    pub(crate) fn answer(&mut self, task: Task) -> TaskOutcome {
        if let Some(outcome) = (self.outcome_override)(&task) {
            return outcome;
        }
        match task {
            Task::Lease => TaskOutcome::Leased(Ok(self
                .offered
                .iter()
                .map(|uri| uri.parse().unwrap())
                .collect())),
            Task::Connect(_) => TaskOutcome::Connected(Ok(())),
            Task::GetData(request) => TaskOutcome::Data(Ok(Box::new(self.unary(&request)))),
            Task::OpenStream(first) => {
                match first.r#type.unwrap() {
                    bootstrap_stream_request_v1::Type::BootstrapRequest(request) => {
                        self.requested = Some(request)
                    }
                    bootstrap_stream_request_v1::Type::ReportStatusRequest(report) => {
                        self.reporting = Some(report)
                    }
                    bootstrap_stream_request_v1::Type::ChallengeResponse(_) => {
                        panic!("a stream begins with an answer")
                    }
                }
                message(bootstrap_stream_response_v1::Type::ChallengeRequest(ChallengeRequest {
                    r#type: Some(challenge_request::Type::Tpm20Idevid(
                        ChallengeRequestTpm20iDevId { nonce: b"server nonce".to_vec().into() },
                    )),
                }))
            }
            Task::Send(answer) => self.challenged(answer.r#type.unwrap()),
            Task::Sign(octets) => TaskOutcome::Signed(Ok(self.key.sign(&octets).unwrap())),
            Task::Install(_) => TaskOutcome::Installed(Ok(InstallResult::Running)),
            Task::Apply(_) => TaskOutcome::Applied(Ok(vec!["applied".to_owned()])),
            Task::Report(report) => {
                self.log.reports.push(report);
                TaskOutcome::Reported(Ok(()))
            }
        }
    }

    /// Answers a challenge response as a server does: checks the signature by the key of the certificate, and the
    /// nonce.
    fn challenged(&mut self, answer: bootstrap_stream_request_v1::Type) -> TaskOutcome {
        let bootstrap_stream_request_v1::Type::ChallengeResponse(answer) = answer else {
            panic!("no answer to a challenge")
        };
        let Some(challenge_response::Type::Tpm20Idevid(answer)) = answer.r#type else {
            panic!("another challenge")
        };
        aws_lc_rs::signature::UnparsedPublicKey::new(
            &aws_lc_rs::signature::ECDSA_P384_SHA384_ASN1,
            self.idevid.key().public_key_raw(),
        )
        .verify(&answer.serialized_transport_key, &answer.signature)
        .unwrap();
        let key = TransportKey::decode(&answer.serialized_transport_key[..]).unwrap();
        assert_eq!(&key.nonce[..], b"server nonce");
        let sealed = self.requested.take().map(|request| self.sealed(&request, &key));
        self.log.keys.push(key);
        if let Some(sealed) = sealed {
            return message(bootstrap_stream_response_v1::Type::BootstrapResponse(sealed));
        }
        self.log.reports.push(self.reporting.take().unwrap());
        message(bootstrap_stream_response_v1::Type::ReportStatusResponse(EmptyResponse {}))
    }

    fn data(&mut self, request: &GetBootstrapDataRequest) -> Vec<u8> {
        self.log.requests.push(request.clone());
        let mut data = BootstrapDataSigned {
            responses: vec![BootstrapDataResponse {
                serial_num: SERIAL.to_owned(),
                server_trust_cert: STANDARD.encode(self.trust.der()),
                boot_config: Some(BootConfig::default()),
                ..BootstrapDataResponse::default()
            }],
            nonce: request.nonce.clone(),
        };
        (self.tamper_data)(&mut data);
        data.encode_to_vec()
    }

    fn unary(&mut self, request: &GetBootstrapDataRequest) -> GetBootstrapDataResponse {
        let data = self.data(request);
        let (voucher, certificate, signature) = self.proof(&data);
        let mut answer = GetBootstrapDataResponse {
            ownership_voucher: voucher.into(),
            ownership_certificate: certificate.into(),
            response_signature: signature,
            serialized_bootstrap_data: data.into(),
            ..GetBootstrapDataResponse::default()
        };
        if request.nonce.is_empty() {
            answer.ownership_voucher.clear();
            answer.response_signature.clear();
        }
        (self.tamper_unary)(&mut answer);
        answer
    }

    fn sealed(
        &mut self,
        request: &GetBootstrapDataRequest,
        key: &TransportKey,
    ) -> StreamBootstrapDataResponse {
        let data = self.data(request);
        let public = HpkePublicKey(key.public_key.to_vec());
        let (encapsulated, sealed) =
            DH_KEM_X25519_HKDF_SHA256_AES_256.seal(&[], &[], &data, &public).unwrap();
        let (voucher, certificate, signature) = self.proof(&sealed);
        let mut answer = StreamBootstrapDataResponse {
            ownership_voucher: voucher.into(),
            ownership_certificate: certificate.into(),
            response_signature: signature,
            encrypted_serialized_bootstrap_data: sealed.into(),
            encapsulated_key: encapsulated.0.into(),
        };
        (self.tamper_stream)(&mut answer);
        answer
    }

    fn proof(&self, data: &[u8]) -> (Vec<u8>, Vec<u8>, String) {
        let text = VoucherText::new(SERIAL, &self.domain).json();
        let voucher = Cms::new(text.as_bytes(), &self.vendor, KIND).encode();
        let certificate = Cms::new(b"", &self.owner, KIND).encode();
        (voucher, certificate, STANDARD.encode(self.owner.key().sign(data).unwrap()))
    }
}

fn message(response: bootstrap_stream_response_v1::Type) -> TaskOutcome {
    TaskOutcome::Message(Ok(Box::new(BootstrapStreamResponseV1 { r#type: Some(response) })))
}

pub(crate) fn refusal(code: Code) -> RpcError {
    RpcError { code, message: "no".to_owned() }
}

pub(crate) fn dhcp_record() -> BootstrapRecord {
    started_record(ServerDiscovery::Dhcp)
}

pub(crate) fn started_record(entry: ServerDiscovery) -> BootstrapRecord {
    let stage = BootstrapStage::Attempting;
    BootstrapRecord { parameters: Some(Parameters { entry, stage }), ..BootstrapRecord::default() }
}

pub(crate) fn task_name(task: &Task) -> &'static str {
    match task {
        Task::Lease => "lease",
        Task::Connect(_) => "connect",
        Task::GetData(_) => "get",
        Task::OpenStream(_) => "open",
        Task::Send(_) => "send",
        Task::Sign(_) => "sign",
        Task::Install(_) => "install",
        Task::Apply(_) => "apply",
        Task::Report(_) => "report",
    }
}

/// A client, and the work that it waits for.
pub(crate) struct ClientDriver {
    pub(crate) client: Client,
    pub(crate) pending_timer: Option<WorkId>,
    pub(crate) pending_tasks: VecDeque<(WorkId, Task)>,
    random_octet: u8,
}

impl ClientDriver {
    pub(crate) fn new(profile: BootstrapSettings, record: BootstrapRecord) -> Self {
        let client = Client::new(profile, record);
        Self { client, pending_timer: None, pending_tasks: VecDeque::new(), random_octet: 0 }
    }

    /// Takes a step, and checks that the client has a deadline unless it rests.
    pub(crate) fn step(&mut self, event: Event, log: &mut RequestLog) {
        let drawn = &mut self.random_octet;
        let mut random = |octets: &mut [u8]| {
            *drawn = drawn.wrapping_add(1);
            octets.fill(*drawn);
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
        for action in self.client.step(event, &mut StepContext { now, random: &mut random }) {
            self.execute(action, log);
        }
        let rests = matches!(self.client.state(), State::Idle);
        let has_nothing_to_do = self.client.record().parameters.is_none();
        assert_eq!(rests, has_nothing_to_do, "{:?}", self.client);
        assert!(rests || self.pending_timer.is_some(), "{:?}", self.client);
    }

    fn execute(&mut self, action: Action, log: &mut RequestLog) {
        match action {
            Action::Save(record) => {
                let status = record.telemetry.status.name();
                if log.statuses.last() != Some(&status) {
                    log.statuses.push(status);
                }
                log.saved.push(record);
            }
            Action::Log(what) => log.messages.push(what),
            Action::CancelWork => {
                self.pending_tasks.clear();
                self.pending_timer = None;
            }
            Action::Begin(work, task) => {
                log.tasks.push(task_name(&task));
                match &task {
                    Task::Connect(connect) => log.connects.push(connect.clone()),
                    Task::Install(_) => log.installs += 1,
                    Task::Apply(_) => log.applied += 1,
                    _ => {}
                }
                self.pending_tasks.push_back((work, task));
            }
            Action::Wait(work, wait) => {
                if matches!(self.client.state(), State::Waiting) {
                    log.waits.push(wait);
                }
                self.pending_timer = Some(work);
            }
            Action::Reboot => log.reboots += 1,
            Action::Reset => log.resets += 1,
        }
    }

    /// Lets the world answer until the client rests, or has waited this many times.
    pub(crate) fn run(&mut self, world: &mut SimulatedServer, mut waits: usize) {
        self.step(Event::Started { factory_new: false }, &mut world.log);
        loop {
            let event = match (self.pending_tasks.pop_front(), self.pending_timer) {
                (Some((work, task)), _) => Event::Done(work, world.answer(task)),
                (None, Some(work)) if waits > 0 => {
                    waits -= 1;
                    Event::TimerDue(work)
                }
                (None, _) => return,
            };
            self.step(event, &mut world.log);
        }
    }
}
