//! gnsi.certz over real TLS: what new connections meet, and what becomes of those that are there.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use holdfast_config::edit::{Edit, Payload, Target};
use holdfast_config::schema::Origin;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::gnmi::{self, g_nmi_client::GNmiClient};
use holdfast_proto::gnsi::certz::v1 as wire;
use holdfast_proto::gnsi::certz::v1::certificate::{
    CertificateType as Shown, KeySource, PrivateKeyType as Secret,
};
use holdfast_proto::gnsi::certz::v1::certz_client::CertzClient;
use holdfast_proto::gnsi::certz::v1::existing_entity::EntityType;
use holdfast_proto::gnsi::certz::v1::rotate_certificate_request::RotateRequest as Asked;
use holdfast_proto::gnsi::certz::v1::rotate_certificate_response::RotateResponse as Told;
use holdfast_proto::holdfast::{CertificateAuthenticationPolicy, CertificateAuthenticationRule};
use prost::Message;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, SubjectPublicKeyInfo,
    date_time_ymd,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::harness::path;
use crate::auth::{Authenticator, Password, Users};
use crate::caller::{Caller, Role, Source};
use crate::core::tests::Agent;
use crate::core::{CommitError, CommitOptions};
use crate::northbound::{Datastore, MAX_MESSAGE_SIZE, routes};
use crate::server;
use crate::tls::{self, Listener};

/// An authority that signs servers and clients.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let (params, key) = (Self::params(name), KeyPair::generate().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn signed(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn server(&self) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2040, 1, 1);
        self.signed(&params)
    }

    fn client(&self, name: &str, serial: u64) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names =
            vec![SanType::URI(format!("spiffe://net/{name}").try_into().unwrap())];
        params.serial_number = Some(SerialNumber::from(serial));
        self.signed(&params)
    }

    fn revokes(&self, serial: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2040, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// SHA-256 of its key, as a policy names it.
    fn digest(&self) -> String {
        let block = x509_parser::pem::parse_x509_pem(self.pem.as_bytes()).unwrap().1;
        let key = block.parse_x509().unwrap().public_key().raw.to_vec();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An agent with its listener.
struct Running {
    agent: Agent,
    address: SocketAddr,
    /// What clients trust it by until it is bound to a profile.
    own: String,
    _server: AbortOnDropHandle<()>,
}

impl Running {
    async fn start(folder: &TempDir) -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let agent = Agent::start(&kernel, folder.path()).await;
        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = listener.addresses()[0];
        let users = Users::new(Vec::new(), agent.store()).unwrap();
        let password = Password::new("secret").unwrap();
        users.set("ada".into(), Role::Admin, Some(password)).await.unwrap();
        let gnsi = agent.gnsi.clone();
        let authenticator = Authenticator::new(users, Role::Admin, gnsi.clone());
        let incoming = listener.accept(gnsi.profiles());
        let (handle, reboots) = (agent.handle.clone(), agent.reboots.clone());
        let routes = routes(handle, reboots, &gnsi).await.unwrap();
        let serving = server::serve(incoming, authenticator, gnsi, routes, std::future::pending());
        let server = AbortOnDropHandle::new(tokio::spawn(async move { serving.await.unwrap() }));
        let own = std::fs::read_to_string(tls::ca_file(folder.path())).unwrap();
        Self { agent, address, own, _server: server }
    }

    /// A new connection of a client that trusts `authority`; an answer proves that it came through.
    async fn connect(&self, authority: &str, identity: Option<&Pair>) -> Result<Connected, String> {
        let trusted = Certificate::from_pem(authority);
        let mut config = ClientTlsConfig::new().ca_certificate(trusted).domain_name("localhost");
        if let Some(Pair { certificate, key }) = identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        let channel = endpoint.tls_config(config).unwrap().connect().await;
        let channel = channel.map_err(|error| format!("{error:?}"))?;
        let connected = Connected { channel, by_password: identity.is_none() };
        // With TLS 1.3 a client learns of its refusal when it reads.
        let asked = gnmi::CapabilityRequest::default();
        match GNmiClient::new(connected.intercepted()).capabilities(asked).await {
            Ok(_) => Ok(connected),
            Err(status) => Err(format!("{status:?}")),
        }
    }

    /// The first one: the box shows its own identity and knows a user by password.
    async fn ada(&self) -> Connected {
        self.connect(&self.own, None).await.unwrap()
    }

    async fn bind(&self, id: &str) -> Result<(), CommitError> {
        let text = format!(
            r#"{{"openconfig-system:system": {{"openconfig-system-grpc:grpc-servers": {{
            "grpc-server": [{{"name": "DEFAULT", "config": {{"name": "DEFAULT", "certificate-id": "{id}"}}}}]}}}}}}"#
        );
        let target = Target { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
        let payload = Payload::Json { text: text.into_bytes(), ietf: true };
        let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
        let source = Source::Password;
        let test = Caller { name: "test".into(), role: Role::Admin, source, peer: None };
        self.agent.handle.commit(&test, edit, CommitOptions::default()).await.map(drop)
    }

    /// Waits until readers see that the server is bound to this profile.
    async fn shown(&self, id: &str) {
        let want = format!(r#"ssl-profile-id":"{id}""#);
        let mut revisions = self.agent.handle.watch();
        while !self.agent.shown().contains(&want) {
            revisions.changed().await.unwrap();
        }
    }
}

/// One connection, of a user with a password or of a certificate alone.
struct Connected {
    channel: Channel,
    by_password: bool,
}

type Intercepted = InterceptedService<Channel, fn(Request<()>) -> Result<Request<()>, Status>>;

fn with_password(mut request: Request<()>) -> Result<Request<()>, Status> {
    request.metadata_mut().insert("username", "ada".parse().unwrap());
    request.metadata_mut().insert("password", "secret".parse().unwrap());
    Ok(request)
}

impl Connected {
    fn intercepted(&self) -> Intercepted {
        let plain: fn(Request<()>) -> Result<Request<()>, Status> = Ok;
        let with = if self.by_password { with_password } else { plain };
        InterceptedService::new(self.channel.clone(), with)
    }

    fn certz(&self) -> CertzClient<Intercepted> {
        CertzClient::new(self.intercepted()).max_encoding_message_size(MAX_MESSAGE_SIZE)
    }

    /// Leaves of the state of the server: name and value.
    async fn state(&self) -> BTreeMap<String, String> {
        let request = gnmi::GetRequest {
            path: vec![path("/system/grpc-servers/grpc-server[name=DEFAULT]/state")],
            encoding: gnmi::Encoding::JsonIetf.into(),
            ..gnmi::GetRequest::default()
        };
        let got = GNmiClient::new(self.intercepted()).get(request).await.unwrap().into_inner();
        let value = got.notification[0].update[0].val.clone().unwrap().value.unwrap();
        let gnmi::typed_value::Value::JsonIetfVal(text) = value else { panic!("{value:?}") };
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).unwrap();
        let mut leaves = BTreeMap::new();
        for (name, value) in object {
            let name = name.rsplit(':').next().unwrap().to_owned();
            match value {
                serde_json::Value::Object(counters) => {
                    leaves.extend(counters.into_iter().map(|(name, value)| (name, text_of(&value))))
                }
                value => drop(leaves.insert(name, text_of(&value))),
            }
        }
        leaves
    }

    async fn works(&self) -> bool {
        GNmiClient::new(self.intercepted())
            .capabilities(gnmi::CapabilityRequest::default())
            .await
            .is_ok()
    }

    async fn add(&self, id: &str) -> Result<(), Code> {
        let request = wire::AddProfileRequest { ssl_profile_id: id.to_owned() };
        coded(self.certz().add_profile(request).await.map(drop))
    }

    async fn delete(&self, id: &str) -> Result<(), Code> {
        let request = wire::DeleteProfileRequest { ssl_profile_id: id.to_owned() };
        coded(self.certz().delete_profile(request).await.map(drop))
    }

    async fn list(&self) -> Result<Vec<String>, Code> {
        let list = self.certz().get_profile_list(wire::GetProfileListRequest {}).await;
        coded(list.map(|list| list.into_inner().ssl_profile_ids))
    }

    async fn can_generate(&self, suite: wire::CsrSuite) -> bool {
        let params = wire::CsrParams { csr_suite: suite.into(), ..wire::CsrParams::default() };
        let request = wire::CanGenerateCsrRequest { params: Some(params) };
        self.certz().can_generate_csr(request).await.unwrap().into_inner().can_generate
    }

    async fn rotate(&self) -> Rotation {
        let (requests, sent) = mpsc::channel(4);
        let answers = self.certz().rotate(ReceiverStream::new(sent)).await;
        Rotation { overwrite: false, requests, answers: answers.unwrap().into_inner() }
    }

    /// A rotation with one upload that is finalized.
    async fn install(&self, profile: &str, entities: Vec<wire::Entity>) -> Result<(), Code> {
        let mut rotation = self.rotate().await;
        rotation.upload(profile, entities).await?;
        rotation.finalize(profile).await
    }
}

fn text_of(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A refusal as its code; it has to say something.
#[track_caller]
fn coded<T>(result: Result<T, Status>) -> Result<T, Code> {
    result.map_err(|status| {
        assert!(!status.message().is_empty(), "{status:?}");
        status.code()
    })
}

/// An open stream.
struct Rotation {
    overwrite: bool,
    requests: mpsc::Sender<wire::RotateCertificateRequest>,
    answers: Streaming<wire::RotateCertificateResponse>,
}

impl Rotation {
    async fn ask(&mut self, profile: &str, asked: Option<Asked>) -> Result<Option<Told>, Code> {
        let request = wire::RotateCertificateRequest {
            force_overwrite: self.overwrite,
            ssl_profile_id: profile.to_owned(),
            rotate_request: asked,
        };
        self.requests.send(request).await.unwrap();
        let answer = coded(self.answers.message().await)?;
        Ok(answer.map(|answer| answer.rotate_response.unwrap()))
    }

    async fn upload(&mut self, profile: &str, entities: Vec<wire::Entity>) -> Result<(), Code> {
        let upload = Asked::Certificates(wire::UploadRequest { entities });
        let told = self.ask(profile, Some(upload)).await?;
        assert_eq!(told, Some(Told::Certificates(wire::UploadResponse {})));
        Ok(())
    }

    /// A request for a certificate, in PEM.
    async fn csr(&mut self, profile: &str, suite: wire::CsrSuite) -> Result<String, Code> {
        let params = wire::CsrParams {
            csr_suite: suite.into(),
            common_name: "box".to_owned(),
            ..wire::CsrParams::default()
        };
        let asked = wire::GenerateCsrRequest { params: Some(params), integrities: Vec::new() };
        match self.ask(profile, Some(Asked::GenerateCsr(asked))).await? {
            Some(Told::GeneratedCsr(made)) => {
                let made = made.certificate_signing_request.unwrap();
                assert_eq!(made.encoding(), wire::CertificateEncoding::Pem);
                Ok(String::from_utf8(made.certificate_signing_request.to_vec()).unwrap())
            }
            told => panic!("{told:?}"),
        }
    }

    /// The end of the stream with OK is the answer.
    async fn finalize(mut self, profile: &str) -> Result<(), Code> {
        let asked = Asked::FinalizeRotation(wire::FinalizeRequest {});
        let told = self.ask(profile, Some(asked)).await?;
        assert_eq!(told, None);
        Ok(())
    }

    /// Closes without finalize, and waits for the roll-back.
    async fn abandon(self) {
        let Self { requests, mut answers, .. } = self;
        drop(requests);
        assert_eq!(answers.message().await.unwrap_err().code(), Code::Aborted);
    }
}

fn entity(version: &str, entity: wire::entity::Entity) -> wire::Entity {
    wire::Entity { version: version.to_owned(), created_on: 1_700_000_000, entity: Some(entity) }
}

fn certificate(pem: &str, key: Option<&str>) -> wire::Certificate {
    wire::Certificate {
        r#type: wire::CertificateType::X509.into(),
        encoding: wire::CertificateEncoding::Pem.into(),
        certificate_type: Some(Shown::RawCertificate(pem.to_owned().into())),
        private_key_type: key.map(|key| Secret::RawPrivateKey(key.to_owned().into())),
        ..wire::Certificate::default()
    }
}

fn chain_of(certificates: &[wire::Certificate]) -> wire::CertificateChain {
    let mut chain = None;
    for certificate in certificates.iter().rev() {
        let parent = chain.map(Box::new);
        chain = Some(wire::CertificateChain { certificate: Some(certificate.clone()), parent });
    }
    chain.unwrap_or_default()
}

fn chain(version: &str, pair: &Pair) -> wire::Entity {
    let chain = chain_of(&[certificate(&pair.certificate, Some(&pair.key))]);
    entity(version, wire::entity::Entity::CertificateChain(chain))
}

fn trust(version: &str, authorities: &[&Authority]) -> wire::Entity {
    let all: Vec<_> = authorities.iter().map(|it| certificate(&it.pem, None)).collect();
    entity(version, wire::entity::Entity::TrustBundle(chain_of(&all)))
}

fn revoked(version: &str, list: String) -> wire::Entity {
    let list = wire::CertificateRevocationList {
        r#type: wire::CertificateType::X509.into(),
        encoding: wire::CertificateEncoding::Pem.into(),
        certificate_revocation_list: list.into(),
        id: "list".to_owned(),
    };
    let bundle = wire::CertificateRevocationListBundle { certificate_revocation_lists: vec![list] };
    entity(version, wire::entity::Entity::CertificateRevocationListBundle(bundle))
}

fn policy(version: &str, subject: &str, authority: &Authority) -> wire::Entity {
    let rule = CertificateAuthenticationRule {
        name: "the only one".to_owned(),
        subjects: vec![subject.to_owned()],
        authorities: vec![authority.digest()],
    };
    let policy = CertificateAuthenticationPolicy { rules: vec![rule] };
    let packed = prost_types::Any {
        type_url: "type.googleapis.com/holdfast.CertificateAuthenticationPolicy".to_owned(),
        value: policy.encode_to_vec(),
    };
    let policy = wire::authentication_policy::Policy::Serialized(packed);
    let policy = wire::AuthenticationPolicy { policy: Some(policy) };
    entity(version, wire::entity::Entity::AuthenticationPolicy(policy))
}

/// An agent bound to the profile `p`, which shows a certificate of `root` and trusts those whom it signs.
async fn bound(folder: &TempDir, root: &Authority) -> (Running, Connected) {
    let running = Running::start(folder).await;
    let ada = running.ada().await;
    ada.add("p").await.unwrap();
    let entities = vec![chain("v1", &root.server()), trust("v1", &[root])];
    ada.install("p", entities).await.unwrap();
    running.bind("p").await.unwrap();
    (running, ada)
}

// proves 5.6, 5.60, 5.61, 5.62, 5.63, 5.78, 5.79
#[tokio::test]
async fn profiles_come_and_go() {
    let folder = TempDir::new().unwrap();
    let running = Running::start(&folder).await;
    let ada = running.ada().await;
    let default = "system_default_profile";
    assert_eq!(ada.list().await.unwrap(), [default]);
    assert_eq!(ada.add("p").await, Ok(()));
    assert_eq!(ada.add("q").await, Ok(()));
    assert_eq!(ada.list().await.unwrap(), [default, "p", "q"]);
    for (id, want) in [
        ("", Code::InvalidArgument),
        ("a/b", Code::InvalidArgument),
        ("p", Code::AlreadyExists),
        (default, Code::AlreadyExists),
    ] {
        assert_eq!(ada.add(id).await, Err(want), "{id}");
    }
    let root = Authority::new("root");
    ada.install("p", vec![chain("v1", &root.server())]).await.unwrap();
    for (id, reason) in [
        ("nobody", "there is no TLS profile `nobody`"),
        ("q", "the TLS profile `q` has no certificate to show"),
    ] {
        let refused = running.bind(id).await.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    running.bind("p").await.unwrap();
    for (id, want) in [
        ("", Err(Code::InvalidArgument)),
        ("nobody", Err(Code::NotFound)),
        ("p", Err(Code::FailedPrecondition)),
        (default, Err(Code::FailedPrecondition)),
        ("q", Ok(())),
    ] {
        assert_eq!(ada.delete(id).await, want, "{id}");
    }
    running.bind(default).await.unwrap();
    assert_eq!(ada.delete("p").await, Ok(()));
    assert_eq!(ada.list().await.unwrap(), [default]);

    use wire::CsrSuite as S;
    assert!(ada.can_generate(S::CsrsuiteX509KeyTypeRsa4096SignatureAlgorithmSha2512).await);
    assert!(ada.can_generate(S::CsrsuiteX509KeyTypeEcdsaSecp521r1SignatureAlgorithmSha2512).await);
    assert!(!ada.can_generate(S::CsrsuiteX509KeyTypeEcdsaSecp384r1SignatureAlgorithmSha2256).await);
    assert!(!ada.can_generate(S::CsrsuiteX509KeyTypeEddsaEd25519).await);
    assert!(!ada.can_generate(S::CsrsuiteCipherUnspecified).await);
    let manifest = ada.certz().get_integrity_manifest(wire::GetIntegrityManifestRequest {}).await;
    assert_eq!(coded(manifest.map(drop)), Err(Code::Unimplemented));

    // One RPC of the service at a time; the first goes on.
    ada.add("p").await.unwrap();
    let mut first = ada.rotate().await;
    first.upload("p", vec![trust("v1", &[&root])]).await.unwrap();
    let (_requests, sent) = mpsc::channel(1);
    let second = ada.certz().rotate(ReceiverStream::new(sent)).await;
    assert_eq!(coded(second.map(drop)), Err(Code::Unavailable));
    assert_eq!(ada.add("q").await, Err(Code::Unavailable));
    assert_eq!(ada.delete("p").await, Err(Code::Unavailable));
    assert_eq!(ada.list().await, Err(Code::Unavailable));
    assert_eq!(first.finalize("p").await, Ok(()));
    assert_eq!(ada.delete("p").await, Ok(()));
}

// proves 5.1, 5.2, 5.71, 5.72, 5.76
#[tokio::test]
async fn new_connections_meet_what_is_tried_and_old_ones_live_on() {
    let folder = TempDir::new().unwrap();
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let (running, ada) = bound(&folder, &root).await;
    let (of_root, of_other) = (root.client("eve", 1), other.client("eve", 1));
    let first = running.connect(&root.pem, Some(&of_root)).await.unwrap();
    assert!(first.works().await && ada.works().await, "what is connected is left alone");
    running.connect(&running.own, None).await.map(drop).unwrap_err();
    running.connect(&root.pem, Some(&of_other)).await.map(drop).unwrap_err();

    let entities = || vec![chain("v2", &other.server()), trust("v2", &[&other])];
    let mut rotation = first.rotate().await;
    rotation.upload("p", entities()).await.unwrap();
    let second = running.connect(&other.pem, Some(&of_other)).await.unwrap();
    running.connect(&root.pem, Some(&of_root)).await.map(drop).unwrap_err();
    assert!(first.works().await && second.works().await && ada.works().await);
    rotation.abandon().await;
    assert!(first.works().await && second.works().await);
    running.connect(&root.pem, Some(&of_root)).await.unwrap();
    running.connect(&other.pem, Some(&of_other)).await.map(drop).unwrap_err();

    // What does not fit changes nothing, and ends the stream.
    for entities in [
        vec![chain("v2", &other.server())],
        vec![trust("v2", &[&other])],
        vec![chain("v2", &Pair { key: of_other.key.clone(), ..root.server() })],
    ] {
        let mut rotation = first.rotate().await;
        assert_eq!(rotation.upload("p", entities).await, Err(Code::InvalidArgument));
        running.connect(&root.pem, Some(&of_root)).await.unwrap();
    }
    first.install("p", entities()).await.unwrap();
    running.connect(&other.pem, Some(&of_other)).await.unwrap();
    running.connect(&root.pem, Some(&of_root)).await.map(drop).unwrap_err();
    assert!(first.works().await && second.works().await && ada.works().await);
}

// proves 5.7
#[tokio::test]
async fn what_is_final_is_there_after_a_restart_and_what_is_tried_is_not() {
    let folder = TempDir::new().unwrap();
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let (running, ada) = bound(&folder, &root).await;
    let client = root.client("eve", 1);
    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![chain("v2", &other.server()), trust("v2", &[&other])]).await.unwrap();
    let Running { agent, _server, .. } = running;
    drop((_server, rotation, ada));
    agent.stop().await; // nothing was said to be kept
    let running = Running::start(&folder).await;
    running.shown("p").await;
    let eve = running.connect(&root.pem, Some(&client)).await.unwrap();
    assert_eq!(eve.list().await.unwrap(), ["system_default_profile", "p"]);
    let state = eve.state().await;
    assert_eq!(state["certificate-version"], "v1");
    assert_eq!(state["ca-trust-bundle-created-on"], "1700000000000000000");
}

// proves 5.64, 5.66, 5.69
#[tokio::test]
async fn what_is_wrong_with_a_message_has_its_code() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (_running, ada) = bound(&folder, &root).await;
    ada.add("empty").await.unwrap();
    let existing = |profile: &str, kind: EntityType| {
        let existing =
            wire::ExistingEntity { ssl_profile_id: profile.to_owned(), entity_type: kind.into() };
        entity("v2", wire::entity::Entity::ExistingEntity(existing))
    };
    let bundle = EntityType::TrustBundle;
    let idevid = wire::Certificate {
        certificate_type: Some(Shown::CertSource(wire::certificate::CertSource::Idevid.into())),
        ..certificate("", None)
    };
    let chain_entity = |certificates: &[wire::Certificate]| {
        entity("v2", wire::entity::Entity::CertificateChain(chain_of(certificates)))
    };
    let server = root.server();
    let keyless = certificate(&server.certificate, None);
    let unnamed =
        wire::Certificate { encoding: 0, ..certificate(&server.certificate, Some(&server.key)) };
    let foreign = prost_types::Any { type_url: "x/y".to_owned(), value: Vec::new() };
    let foreign = wire::authentication_policy::Policy::Serialized(foreign);
    let foreign = wire::AuthenticationPolicy { policy: Some(foreign) };
    let invalid = Code::InvalidArgument;
    for (profile, entities, want) in [
        ("", vec![trust("v2", &[&root])], Err(invalid)),
        ("nobody", vec![trust("v2", &[&root])], Err(Code::NotFound)),
        ("system_default_profile", vec![trust("v2", &[&root])], Err(Code::FailedPrecondition)),
        ("p", vec![], Err(invalid)),
        ("p", vec![wire::Entity::default()], Err(invalid)),
        ("empty", vec![existing("nobody", bundle)], Err(Code::NotFound)),
        ("empty", vec![existing("", bundle)], Err(invalid)),
        ("empty", vec![existing("p", EntityType::Unspecified)], Err(invalid)),
        ("empty", vec![existing("p", bundle), trust("v2", &[&root])], Err(invalid)),
        ("empty", vec![existing("p", bundle)], Ok(())),
        ("empty", vec![chain_entity(&[idevid.clone(), keyless.clone()])], Err(invalid)),
        ("empty", vec![chain_entity(std::slice::from_ref(&keyless))], Err(invalid)),
        ("empty", vec![chain_entity(&[unnamed])], Err(invalid)),
        (
            "empty",
            vec![entity("v2", wire::entity::Entity::AuthenticationPolicy(foreign))],
            Err(invalid),
        ),
        ("empty", vec![chain_entity(&[idevid])], Ok(())),
    ] {
        let mut rotation = ada.rotate().await;
        assert_eq!(
            rotation.upload(profile, entities.clone()).await,
            want,
            "{profile} {entities:?}"
        );
        if want.is_ok() {
            rotation.abandon().await;
        }
    }
    let mut rotation = ada.rotate().await;
    assert_eq!(rotation.ask("p", None).await, Err(invalid));
    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![trust("v2", &[&root])]).await.unwrap();
    assert_eq!(rotation.upload("empty", vec![trust("v2", &[&root])]).await, Err(invalid));
}

// proves 5.8
#[tokio::test]
async fn a_version_in_use_is_taken_only_with_force() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (_running, ada) = bound(&folder, &root).await;
    let again = || vec![trust("v1", &[&root])];
    assert_eq!(ada.install("p", again()).await, Err(Code::AlreadyExists));
    let mut rotation = Rotation { overwrite: true, ..ada.rotate().await };
    rotation.upload("p", again()).await.unwrap();
    rotation.finalize("p").await.unwrap();
    assert_eq!(ada.install("p", vec![trust("v2", &[&root])]).await, Ok(()));
}

// proves 5.67, 5.68
#[tokio::test]
async fn a_key_can_be_made_on_the_box() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (running, ada) = bound(&folder, &root).await;
    let client = root.client("eve", 1);
    let suite = wire::CsrSuite::CsrsuiteX509KeyTypeRsa2048SignatureAlgorithmSha2256;
    let mut rotation = ada.rotate().await;
    let csr = rotation.csr("p", suite).await.unwrap();
    let block = x509_parser::pem::parse_x509_pem(csr.as_bytes()).unwrap().1;
    let request = X509CertificationRequest::from_der(&block.contents).unwrap().1;
    request.verify_signature().unwrap();
    let key = request.certification_request_info.subject_pki.raw;
    let key = SubjectPublicKeyInfo::from_der(key).unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let signed = params.signed_by(&key, &root.issuer).unwrap().pem();
    let generated = wire::Certificate {
        private_key_type: Some(Secret::KeySource(KeySource::Generated.into())),
        ..certificate(&signed, None)
    };
    let entity = entity("v2", wire::entity::Entity::CertificateChain(chain_of(&[generated])));
    rotation.upload("p", vec![entity.clone()]).await.unwrap();
    running.connect(&root.pem, Some(&client)).await.unwrap();
    rotation.finalize("p").await.unwrap();
    running.connect(&root.pem, Some(&client)).await.unwrap();
    assert_eq!(ada.state().await["certificate-version"], "v2");
    // Another stream does not have that key.
    let mut rotation = Rotation { overwrite: true, ..ada.rotate().await };
    assert_eq!(rotation.upload("p", vec![entity]).await, Err(Code::InvalidArgument));
    let mut rotation = ada.rotate().await;
    let suite = wire::CsrSuite::CsrsuiteX509KeyTypeEddsaEd25519;
    assert_eq!(rotation.csr("p", suite).await, Err(Code::Unimplemented));
}

// proves 5.70, 5.73, 5.74
#[tokio::test]
async fn revocation_and_policy_hold_at_the_next_handshake() {
    let folder = TempDir::new().unwrap();
    let (root, other) = (Authority::new("root"), Authority::new("other"));
    let (running, ada) = bound(&folder, &root).await;
    ada.install("p", vec![trust("v2", &[&root, &other])]).await.unwrap();
    let (eve, bob, guest) = (root.client("eve", 5), root.client("bob", 6), other.client("eve", 5));
    let connect = async |pair: &Pair| running.connect(&root.pem, Some(pair)).await;
    let connected = connect(&eve).await.unwrap();
    connect(&guest).await.unwrap();

    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![revoked("v1", root.revokes(5))]).await.unwrap();
    connect(&eve).await.map(drop).unwrap_err();
    connect(&bob).await.unwrap();
    connect(&guest).await.unwrap();
    assert!(connected.works().await, "running connections live on");
    rotation.abandon().await;
    connect(&eve).await.unwrap();
    ada.install("p", vec![revoked("v1", root.revokes(6))]).await.unwrap();
    connect(&bob).await.map(drop).unwrap_err();

    ada.install("p", vec![policy("v1", "spiffe://net/*", &root)]).await.unwrap();
    connect(&eve).await.unwrap();
    connect(&guest).await.map(drop).unwrap_err();
    ada.install("p", vec![policy("v2", "spiffe://net/eve", &other)]).await.unwrap();
    connect(&guest).await.unwrap();
    connect(&eve).await.map(drop).unwrap_err();
}

// proves 5.9, 5.76, 5.77
#[tokio::test]
async fn readers_see_what_new_connections_meet() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let running = Running::start(&folder).await;
    running.shown("system_default_profile").await;
    let ada = running.ada().await;
    let state = ada.state().await;
    assert_eq!(state["ssl-profile-id"], "system_default_profile");
    assert_eq!(state["certificate-id"], "system_default_profile");
    assert!(!state.contains_key("certificate-version"));
    // The identity of the box lasts longer than 64 bits count nanoseconds.
    assert!(!state.contains_key("certificate-expires-on"));
    let accepts: u64 = state["connection-accepts"].parse().unwrap();

    ada.add("p").await.unwrap();
    let entities = vec![chain("v1", &root.server()), trust("t1", &[&root])];
    ada.install("p", entities).await.unwrap();
    assert_eq!(ada.state().await["ssl-profile-id"], "system_default_profile");
    running.bind("p").await.unwrap();
    running.shown("p").await;
    let state = ada.state().await;
    for (leaf, want) in [
        ("certificate-id", "p"),
        ("certificate-version", "v1"),
        ("certificate-created-on", "1700000000000000000"),
        ("certificate-expires-on", "2208988800000000000"),
        ("ca-trust-bundle-version", "t1"),
        ("ca-trust-bundle-created-on", "1700000000000000000"),
    ] {
        assert_eq!(state[leaf], want, "{leaf}");
    }
    assert!(!state.contains_key("authentication-policy-version"));

    let mut rotation = ada.rotate().await;
    let entities = vec![revoked("c1", root.revokes(9)), policy("a1", "*", &root)];
    rotation.upload("p", entities).await.unwrap();
    let state = ada.state().await;
    assert_eq!(state["certificate-revocation-list-bundle-version"], "c1");
    assert_eq!(state["certificate-revocation-list-bundle-created-on"], "1700000000000000000");
    assert_eq!(state["authentication-policy-version"], "a1");
    assert_eq!(state["authentication-policy-created-on"], "1700000000000000000");
    rotation.abandon().await;
    assert!(!ada.state().await.contains_key("authentication-policy-version"));

    running.connect(&root.pem, Some(&root.client("eve", 1))).await.unwrap();
    running.connect(&root.pem, None).await.map(drop).unwrap_err();
    let state = ada.state().await;
    let count = |leaf: &str| state[leaf].parse::<u64>().unwrap();
    assert_eq!(count("connection-accepts"), accepts + 1);
    assert!(count("connection-rejects") > 0);
    assert!(count("last-connection-accept") > 0 && count("last-connection-reject") > 0);
}
