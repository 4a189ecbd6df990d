//! A box with its client, and a server that answers its tasks: rightly, or wrong in one place.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_bootz::client::{
    Action, Client, Connect, Entry, Event, Flows, Installed, Outcome, Parameters, Profile, Record,
    Stage, State, Surroundings, Task, Work,
};
use holdfast_bootz::identity::{Chain, SigningKey};
use holdfast_bootz::image::Slot;
use holdfast_bootz::retry::Backoff;
use holdfast_bootz::wire::Refused;
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

use crate::pki::{Cms, Kind, Party, VoucherText, authority, der, party};

pub(crate) const SERIAL: &str = "HF-1";
const KIND: Kind = Kind::P384;
/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

/// The server, and everything else that carries out tasks.
pub(crate) struct World {
    domain: Party,
    owner: Party,
    trust: Party,
    vendor: Party,
    idevid: Party,
    key: SigningKey,
    /// Servers that DHCP names.
    pub(crate) offered: Vec<&'static str>,
    /// Changes the data before it is signed.
    pub(crate) spoil_data: fn(&mut BootstrapDataSigned),
    /// Changes the unary answer.
    pub(crate) spoil_unary: fn(&mut GetBootstrapDataResponse),
    /// Changes the answer on a stream.
    pub(crate) spoil_stream: fn(&mut StreamBootstrapDataResponse),
    /// Outcomes that replace the correct ones.
    pub(crate) instead: fn(&Task) -> Option<Outcome>,
    asked: Option<GetBootstrapDataRequest>,
    reporting: Option<ReportStatusRequest>,
    pub(crate) seen: Seen,
}

/// Record of the box's requests.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connects: Vec<Connect>,
    pub(crate) requests: Vec<GetBootstrapDataRequest>,
    pub(crate) keys: Vec<TransportKey>,
    pub(crate) reports: Vec<ReportStatusRequest>,
    pub(crate) applied: usize,
    pub(crate) installs: usize,
    pub(crate) tasks: Vec<&'static str>,
    pub(crate) statuses: Vec<&'static str>,
    pub(crate) told: Vec<String>,
    pub(crate) waits: Vec<Duration>,
    pub(crate) saved: Vec<Record>,
    pub(crate) reboots: usize,
    pub(crate) resets: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        let vendor = authority("vendor", KIND);
        let domain = authority("domain", KIND);
        let idevid = party("box", KIND, &vendor);
        let chain = Chain::from_pem(idevid.pem().as_bytes()).unwrap();
        let key = SigningKey::from_pem(idevid.key().serialize_pem().as_bytes(), &chain).unwrap();
        Self {
            owner: party("owner", KIND, &domain),
            trust: authority("trust", KIND),
            offered: vec!["bootz://192.0.2.1:15006"],
            spoil_data: |_| {},
            spoil_unary: |_| {},
            spoil_stream: |_| {},
            instead: |_| None,
            asked: None,
            reporting: None,
            seen: Seen::default(),
            domain,
            vendor,
            idevid,
            key,
        }
    }

    pub(crate) fn profile(&self) -> Profile {
        Profile {
            manufacturer: "Maker".to_owned(),
            part_number: "Part".to_owned(),
            serial: SERIAL.to_owned(),
            idevid: Chain::from_pem(self.idevid.pem().as_bytes()).unwrap(),
            vendor: vec![der(&self.vendor)],
            checks_ownership: true,
            flows: Flows::Either,
            slot: Slot { running: "1".to_owned(), installs: true },
            backoff: Backoff::default(),
            port: Some("mgmt0".to_owned()),
        }
    }

    pub(crate) fn answer(&mut self, task: Task) -> Outcome {
        if let Some(outcome) = (self.instead)(&task) {
            return outcome;
        }
        match task {
            Task::Lease => {
                Outcome::Leased(Ok(self.offered.iter().map(|uri| uri.parse().unwrap()).collect()))
            }
            Task::Connect(_) => Outcome::Connected(Ok(())),
            Task::GetData(request) => Outcome::Data(Ok(Box::new(self.unary(&request)))),
            Task::OpenStream(first) => {
                match first.r#type.unwrap() {
                    bootstrap_stream_request_v1::Type::BootstrapRequest(request) => {
                        self.asked = Some(request)
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
            Task::Sign(octets) => Outcome::Signed(Ok(self.key.sign(&octets).unwrap())),
            Task::Install(_) => Outcome::Installed(Ok(Installed::Running)),
            Task::Apply(_) => Outcome::Applied(Ok(vec!["applied".to_owned()])),
            Task::Report(report) => {
                self.seen.reports.push(report);
                Outcome::Reported(Ok(()))
            }
        }
    }

    /// Answers a challenge response as a server does: checks the signature by the key of the certificate, and the
    /// nonce.
    fn challenged(&mut self, answer: bootstrap_stream_request_v1::Type) -> Outcome {
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
        let sealed = self.asked.take().map(|request| self.sealed(&request, &key));
        self.seen.keys.push(key);
        if let Some(sealed) = sealed {
            return message(bootstrap_stream_response_v1::Type::BootstrapResponse(sealed));
        }
        self.seen.reports.push(self.reporting.take().unwrap());
        message(bootstrap_stream_response_v1::Type::ReportStatusResponse(EmptyResponse {}))
    }

    fn data(&mut self, request: &GetBootstrapDataRequest) -> Vec<u8> {
        self.seen.requests.push(request.clone());
        let mut data = BootstrapDataSigned {
            responses: vec![BootstrapDataResponse {
                serial_num: SERIAL.to_owned(),
                server_trust_cert: STANDARD.encode(self.trust.der()),
                boot_config: Some(BootConfig::default()),
                ..BootstrapDataResponse::default()
            }],
            nonce: request.nonce.clone(),
        };
        (self.spoil_data)(&mut data);
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
        (self.spoil_unary)(&mut answer);
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
        (self.spoil_stream)(&mut answer);
        answer
    }

    fn proof(&self, data: &[u8]) -> (Vec<u8>, Vec<u8>, String) {
        let text = VoucherText::new(SERIAL, &self.domain).json();
        let voucher = Cms::new(text.as_bytes(), &self.vendor, KIND).encode();
        let certificate = Cms::new(b"", &self.owner, KIND).encode();
        (voucher, certificate, STANDARD.encode(self.owner.key().sign(data).unwrap()))
    }
}

fn message(response: bootstrap_stream_response_v1::Type) -> Outcome {
    Outcome::Message(Ok(Box::new(BootstrapStreamResponseV1 { r#type: Some(response) })))
}

pub(crate) fn refusal(code: Code) -> Refused {
    Refused { code, message: "no".to_owned() }
}

pub(crate) fn dhcp() -> Record {
    started(Entry::Dhcp)
}

pub(crate) fn started(entry: Entry) -> Record {
    let stage = Stage::Attempting;
    Record { parameters: Some(Parameters { entry, stage }), ..Record::default() }
}

pub(crate) fn named(task: &Task) -> &'static str {
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
pub(crate) struct Machine {
    pub(crate) client: Client,
    pub(crate) waiting: Option<Work>,
    pub(crate) begun: VecDeque<(Work, Task)>,
    drawn: u8,
}

impl Machine {
    pub(crate) fn new(profile: Profile, record: Record) -> Self {
        let client = Client::new(profile, record);
        Self { client, waiting: None, begun: VecDeque::new(), drawn: 0 }
    }

    /// Takes a step, and checks that the client has a deadline unless it rests.
    pub(crate) fn step(&mut self, event: Event, seen: &mut Seen) {
        let drawn = &mut self.drawn;
        let mut random = |octets: &mut [u8]| {
            *drawn = drawn.wrapping_add(1);
            octets.fill(*drawn);
        };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
        for action in self.client.step(event, &mut Surroundings { now, random: &mut random }) {
            self.carry_out(action, seen);
        }
        let rests = matches!(self.client.state(), State::Resting);
        let has_nothing_to_do = self.client.record().parameters.is_none();
        assert_eq!(rests, has_nothing_to_do, "{:?}", self.client);
        assert!(rests || self.waiting.is_some(), "{:?}", self.client);
    }

    fn carry_out(&mut self, action: Action, seen: &mut Seen) {
        match action {
            Action::Save(record) => {
                let status = record.telemetry.status.name();
                if seen.statuses.last() != Some(&status) {
                    seen.statuses.push(status);
                }
                seen.saved.push(record);
            }
            Action::Tell(what) => seen.told.push(what),
            Action::Abandon => {
                self.begun.clear();
                self.waiting = None;
            }
            Action::Begin(work, task) => {
                seen.tasks.push(named(&task));
                match &task {
                    Task::Connect(connect) => seen.connects.push(connect.clone()),
                    Task::Install(_) => seen.installs += 1,
                    Task::Apply(_) => seen.applied += 1,
                    _ => {}
                }
                self.begun.push_back((work, task));
            }
            Action::Wait(work, wait) => {
                if matches!(self.client.state(), State::Waiting) {
                    seen.waits.push(wait);
                }
                self.waiting = Some(work);
            }
            Action::Reboot => seen.reboots += 1,
            Action::Reset => seen.resets += 1,
        }
    }

    /// Lets the world answer until the client rests, or has waited this many times.
    pub(crate) fn run(&mut self, world: &mut World, mut waits: usize) {
        self.step(Event::Started { factory_new: false }, &mut world.seen);
        loop {
            let event = match (self.begun.pop_front(), self.waiting) {
                (Some((work, task)), _) => Event::Done(work, world.answer(task)),
                (None, Some(work)) if waits > 0 => {
                    waits -= 1;
                    Event::TimerDue(work)
                }
                (None, _) => return,
            };
            self.step(event, &mut world.seen);
        }
    }
}
