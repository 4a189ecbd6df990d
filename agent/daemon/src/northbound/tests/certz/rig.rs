//! An agent with its listener, authorities and clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_core::{CommitError, CommitOptions, Datastore};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::gnmi::{self, g_nmi_client::GNmiClient};
use holdfast_proto::gnsi::certz::certz_client::CertzClient;
use holdfast_proto::gnsi::certz::{
    self, certificate, rotate_certificate_request, rotate_certificate_response,
};
use holdfast_proto::holdfast::{CertificateAuthenticationPolicy, CertificateAuthenticationRule};
use prost::Message;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tower::Layer as _;

use crate::aaa;
use crate::agent_tests::Agent;
use crate::auth::{Authenticator, CertificateTrust};
use crate::listeners::Listeners;
use crate::northbound::tests::harness::{TestBackend, path};
use crate::northbound::{MAX_MESSAGE_SIZE, RouteParts, routes};
use crate::server;
use crate::settings::{ImpersonationPolicy, ListenSocket};
use crate::tls::{self, Incoming};
use crate::users::Password;

/// An authority that signs servers and clients.
pub(crate) struct Authority {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let params = Self::params(name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    pub(crate) fn signed(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    pub(crate) fn server(&self) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2040, 1, 1);
        self.signed(&params)
    }

    pub(crate) fn client(&self, name: &str, serial: u64) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names =
            vec![SanType::URI(format!("spiffe://net/{name}").try_into().unwrap())];
        params.serial_number = Some(SerialNumber::from(serial));
        self.signed(&params)
    }

    pub(crate) fn revokes(&self, serial: u64) -> String {
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

    /// SHA-256 of the key, as in an authentication policy.
    pub(crate) fn digest(&self) -> String {
        let block = x509_parser::pem::parse_x509_pem(self.pem.as_bytes()).unwrap().1;
        let key = block.parse_x509().unwrap().public_key().raw.to_vec();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &key);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An agent with its listener.
pub(crate) struct ListeningAgent {
    pub(crate) agent: Agent,
    pub(crate) address: SocketAddr,
    /// Certificate that clients trust before the server is bound to a profile.
    pub(crate) own: String,
    pub(crate) _server: AbortOnDropHandle<()>,
}

impl ListeningAgent {
    pub(crate) async fn start(folder: &TempDir) -> Self {
        Self::on(&SimulatedKernel::new(&["eth0"]), folder).await
    }

    /// Starts an agent and its listener on an existing box.
    pub(crate) async fn on(kernel: &SimulatedKernel, folder: &TempDir) -> Self {
        let agent = Agent::start(kernel, folder.path()).await;
        let users = agent.gnsi.logins.users().clone();
        let password = Password::new("secret").unwrap();
        users.set("ada".into(), Role::Admin, Some(password)).await.unwrap();
        let gnsi = agent.gnsi.clone();
        let certificates =
            CertificateTrust { role: Role::Admin, impersonation: ImpersonationPolicy::default() };
        let authenticator = Authenticator::new(users, certificates, gnsi.clone());
        let listeners = Listeners::default();
        let localhost = "127.0.0.1:0".parse().unwrap();
        let incoming = Incoming::open(ListenSocket::of(&[localhost]), gnsi.profiles(), &listeners);
        listeners.tried().await;
        let address = listeners.grpc_addresses()[0];
        let device = TestBackend::device(&agent);
        let routes = routes(
            agent.handle.clone(),
            device,
            &gnsi,
            RouteParts::without_agent(agent.ignored.clone()),
        );
        let routes = routes.await.unwrap();
        let service = aaa::Layer::new(authenticator, gnsi).layer(routes.prepare());
        let serving = server::serve(incoming, server::MAX_STREAMS, service, std::future::pending());
        let server = AbortOnDropHandle::new(tokio::spawn(serving));
        let own = std::fs::read_to_string(tls::ca_file(folder.path())).unwrap();
        Self { agent, address, own, _server: server }
    }

    /// Opens a connection of a client that trusts `authority`, and checks that it gets an answer.
    pub(crate) async fn connect(
        &self,
        authority: &str,
        identity: Option<&Pair>,
    ) -> Result<TestConnection, String> {
        let trusted = Certificate::from_pem(authority);
        let mut config = ClientTlsConfig::new().ca_certificate(trusted).domain_name("localhost");
        if let Some(Pair { certificate, key }) = identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        let channel = endpoint.tls_config(config).unwrap().connect().await;
        let channel = channel.map_err(|error| format!("{error:?}"))?;
        let connected = TestConnection { channel, by_password: identity.is_none() };
        // With TLS 1.3 a client learns of its refusal when it reads.
        let request = gnmi::CapabilityRequest::default();
        match GNmiClient::new(connected.intercepted()).capabilities(request).await {
            Ok(_) => Ok(connected),
            Err(status) => Err(format!("{status:?}")),
        }
    }

    /// Opens a connection with the box's own identity and the password of ada.
    pub(crate) async fn ada(&self) -> TestConnection {
        self.connect(&self.own, None).await.unwrap()
    }

    pub(crate) async fn bind(&self, id: &str) -> Result<(), CommitError> {
        let text = format!(
            r#"{{"openconfig-system:system": {{"openconfig-system-grpc:grpc-servers": {{
            "grpc-server": [{{"name": "DEFAULT", "config": {{"name": "DEFAULT", "certificate-id": "{id}"}}}}]}}}}}}"#
        );
        let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
        let payload = Payload::Json { text: text.into(), ietf: true };
        let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
        let source = AuthMethod::Password;
        let test =
            Caller { name: "test".into(), role: Role::Admin, auth_method: source, peer: None };
        self.agent.handle.commit(&test, edit, CommitOptions::default()).await.map(drop)
    }

    /// Waits until readers see that the server is bound to this profile.
    pub(crate) async fn wait_for_profile(&self, id: &str) {
        let want = format!(r#"ssl-profile-id":"{id}""#);
        let mut revisions = self.agent.handle.watch();
        while !self.agent.published_text().contains(&want) {
            revisions.changed().await.unwrap();
        }
    }
}

/// One connection, of a user with a password or of a certificate alone.
pub(crate) struct TestConnection {
    pub(crate) channel: Channel,
    pub(crate) by_password: bool,
}

pub(crate) type AuthenticatedChannel =
    InterceptedService<Channel, fn(Request<()>) -> Result<Request<()>, Status>>;

pub(crate) fn with_password(mut request: Request<()>) -> Result<Request<()>, Status> {
    request.metadata_mut().insert("username", "ada".parse().unwrap());
    request.metadata_mut().insert("password", "secret".parse().unwrap());
    Ok(request)
}

impl TestConnection {
    pub(crate) fn intercepted(&self) -> AuthenticatedChannel {
        let plain: fn(Request<()>) -> Result<Request<()>, Status> = Ok;
        let with = if self.by_password { with_password } else { plain };
        InterceptedService::new(self.channel.clone(), with)
    }

    pub(crate) fn certz(&self) -> CertzClient<AuthenticatedChannel> {
        CertzClient::new(self.intercepted()).max_encoding_message_size(MAX_MESSAGE_SIZE)
    }

    /// State leaves of the server, by name.
    pub(crate) async fn state(&self) -> BTreeMap<String, String> {
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

    pub(crate) async fn works(&self) -> bool {
        GNmiClient::new(self.intercepted())
            .capabilities(gnmi::CapabilityRequest::default())
            .await
            .is_ok()
    }

    pub(crate) async fn add(&self, id: &str) -> Result<(), Code> {
        let request = certz::AddProfileRequest { ssl_profile_id: id.to_owned() };
        coded(self.certz().add_profile(request).await.map(drop))
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), Code> {
        let request = certz::DeleteProfileRequest { ssl_profile_id: id.to_owned() };
        coded(self.certz().delete_profile(request).await.map(drop))
    }

    pub(crate) async fn list(&self) -> Result<Vec<String>, Code> {
        let list = self.certz().get_profile_list(certz::GetProfileListRequest {}).await;
        coded(list.map(|list| list.into_inner().ssl_profile_ids))
    }

    pub(crate) async fn can_generate(&self, suite: certz::CsrSuite) -> bool {
        let params = certz::CsrParams { csr_suite: suite.into(), ..certz::CsrParams::default() };
        let request = certz::CanGenerateCsrRequest { params: Some(params) };
        self.certz().can_generate_csr(request).await.unwrap().into_inner().can_generate
    }

    pub(crate) async fn rotate(&self) -> Rotation {
        let (requests, sent) = mpsc::channel(4);
        let answers = self.certz().rotate(ReceiverStream::new(sent)).await;
        Rotation { overwrite: false, requests, answers: answers.unwrap().into_inner() }
    }

    /// Runs a rotation with one upload, which is finalized.
    pub(crate) async fn install(
        &self,
        profile: &str,
        entities: Vec<certz::Entity>,
    ) -> Result<(), Code> {
        let mut rotation = self.rotate().await;
        rotation.upload(profile, entities).await?;
        rotation.finalize(profile).await
    }
}

pub(crate) fn text_of(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The code of a refusal, which must have a message.
#[track_caller]
pub(crate) fn coded<T>(result: Result<T, Status>) -> Result<T, Code> {
    result.map_err(|status| {
        assert!(!status.message().is_empty(), "{status:?}");
        status.code()
    })
}

/// An open Rotate stream.
pub(crate) struct Rotation {
    pub(crate) overwrite: bool,
    pub(crate) requests: mpsc::Sender<certz::RotateCertificateRequest>,
    pub(crate) answers: Streaming<certz::RotateCertificateResponse>,
}

impl Rotation {
    pub(crate) async fn exchange(
        &mut self,
        profile: &str,
        message: Option<rotate_certificate_request::RotateRequest>,
    ) -> Result<Option<rotate_certificate_response::RotateResponse>, Code> {
        let request = certz::RotateCertificateRequest {
            force_overwrite: self.overwrite,
            ssl_profile_id: profile.to_owned(),
            rotate_request: message,
        };
        self.requests.send(request).await.unwrap();
        let answer = coded(self.answers.message().await)?;
        Ok(answer.and_then(|answer| answer.rotate_response))
    }

    pub(crate) async fn upload(
        &mut self,
        profile: &str,
        entities: Vec<certz::Entity>,
    ) -> Result<(), Code> {
        let upload =
            rotate_certificate_request::RotateRequest::Certificates(certz::UploadRequest {
                entities,
            });
        let response = self.exchange(profile, Some(upload)).await?;
        assert_eq!(
            response,
            Some(rotate_certificate_response::RotateResponse::Certificates(
                certz::UploadResponse {}
            ))
        );
        Ok(())
    }

    /// Generates a certificate signing request, in PEM.
    pub(crate) async fn csr(
        &mut self,
        profile: &str,
        suite: certz::CsrSuite,
    ) -> Result<String, Code> {
        let params = certz::CsrParams {
            csr_suite: suite.into(),
            common_name: "box".to_owned(),
            ..certz::CsrParams::default()
        };
        let generate = certz::GenerateCsrRequest { params: Some(params), integrities: Vec::new() };
        match self
            .exchange(
                profile,
                Some(rotate_certificate_request::RotateRequest::GenerateCsr(generate)),
            )
            .await?
        {
            Some(rotate_certificate_response::RotateResponse::GeneratedCsr(generated)) => {
                let generated = generated.certificate_signing_request.unwrap();
                assert_eq!(generated.encoding(), certz::CertificateEncoding::Pem);
                Ok(String::from_utf8(generated.certificate_signing_request.to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Finalizes: the answer is an empty message, then the stream ends with OK.
    pub(crate) async fn finalize(mut self, profile: &str) -> Result<(), Code> {
        let message =
            rotate_certificate_request::RotateRequest::FinalizeRotation(certz::FinalizeRequest {});
        let response = self.exchange(profile, Some(message)).await?;
        assert_eq!(response, None);
        assert_eq!(coded(self.answers.message().await)?, None);
        Ok(())
    }

    /// Closes without finalize, and waits for the rollback.
    pub(crate) async fn abandon(self) {
        let Self { requests, mut answers, .. } = self;
        drop(requests);
        assert_eq!(answers.message().await.unwrap_err().code(), Code::Aborted);
    }
}

pub(crate) fn entity(version: &str, entity: certz::entity::Entity) -> certz::Entity {
    certz::Entity { version: version.to_owned(), created_on: 1_700_000_000, entity: Some(entity) }
}

pub(crate) fn certificate(pem: &str, key: Option<&str>) -> certz::Certificate {
    certz::Certificate {
        r#type: certz::CertificateType::X509.into(),
        encoding: certz::CertificateEncoding::Pem.into(),
        certificate_type: Some(certificate::CertificateType::RawCertificate(pem.to_owned().into())),
        private_key_type: key
            .map(|key| certificate::PrivateKeyType::RawPrivateKey(key.to_owned().into())),
        ..certz::Certificate::default()
    }
}

pub(crate) fn chain_of(certificates: &[certz::Certificate]) -> certz::CertificateChain {
    let mut chain = None;
    for certificate in certificates.iter().rev() {
        let parent = chain.map(Box::new);
        chain = Some(certz::CertificateChain { certificate: Some(certificate.clone()), parent });
    }
    chain.unwrap_or_default()
}

pub(crate) fn chain(version: &str, pair: &Pair) -> certz::Entity {
    let chain = chain_of(&[certificate(&pair.certificate, Some(&pair.key))]);
    entity(version, certz::entity::Entity::CertificateChain(chain))
}

pub(crate) fn trust(version: &str, authorities: &[&Authority]) -> certz::Entity {
    let all: Vec<_> = authorities.iter().map(|it| certificate(&it.pem, None)).collect();
    entity(version, certz::entity::Entity::TrustBundle(chain_of(&all)))
}

pub(crate) fn revoked(version: &str, list: String) -> certz::Entity {
    let list = certz::CertificateRevocationList {
        r#type: certz::CertificateType::X509.into(),
        encoding: certz::CertificateEncoding::Pem.into(),
        certificate_revocation_list: list.into(),
        id: "list".to_owned(),
    };
    let bundle =
        certz::CertificateRevocationListBundle { certificate_revocation_lists: vec![list] };
    entity(version, certz::entity::Entity::CertificateRevocationListBundle(bundle))
}

pub(crate) fn policy(version: &str, subject: &str, authority: &Authority) -> certz::Entity {
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
    let policy = certz::authentication_policy::Policy::Serialized(packed);
    let policy = certz::AuthenticationPolicy { policy: Some(policy) };
    entity(version, certz::entity::Entity::AuthenticationPolicy(policy))
}

/// Starts an agent bound to the profile `p`, with a certificate of `root` and `root` as its trust anchor.
pub(crate) async fn bound(folder: &TempDir, root: &Authority) -> (ListeningAgent, TestConnection) {
    let running = ListeningAgent::start(folder).await;
    let ada = running.ada().await;
    ada.add("p").await.unwrap();
    let entities = vec![chain("v1", &root.server()), trust("v1", &[root])];
    ada.install("p", entities).await.unwrap();
    running.bind("p").await.unwrap();
    (running, ada)
}
