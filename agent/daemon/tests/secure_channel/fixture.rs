//! The network side of an agent with a toy gNMI service, and clients for it.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf, pin::Pin, sync::Arc};

use holdfast::{
    aaa,
    auth::{Authenticator, CertificateTrust},
    gnsi::{Gnsi, TlsProfiles},
    listeners::Listeners,
    server,
    settings::{ImpersonationPolicy, ListenAddress, ListenSocket, TlsSettings},
    tls::{self, Incoming},
    users::{Password, Users},
};
use holdfast_base::{Caller, Role};
use holdfast_config::Models;
use holdfast_proto::gnmi::{
    CapabilityRequest, CapabilityResponse, GetRequest, GetResponse, Notification, Path, SetRequest,
    SetResponse, SubscribeRequest, SubscribeResponse,
    g_nmi_client::GNmiClient,
    g_nmi_server::{GNmi, GNmiServer},
};
use holdfast_proto::gnoi::system::{PingRequest, system_client::SystemClient};
use holdfast_store::accounts::AccountingLog;
use holdfast_store::{Artefact, ArtefactTable, Store};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use tokio_stream::Stream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{
    Code, Request, Response, Status, Streaming,
    metadata::MetadataValue,
    service::Routes,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tower::Layer as _;

/// A client authority, with which the tests sign clients.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Signs a client with a common name (unless empty) and URIs or host names as alternative names.
    pub(crate) fn client(&self, common_name: &str, names: &[&str]) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let name = |name: &&str| {
            if name.contains(':') {
                SanType::URI((*name).try_into().unwrap())
            } else {
                SanType::DnsName((*name).try_into().unwrap())
            }
        };
        params.subject_alt_names = names.iter().map(name).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem(), key.serialize_pem())
    }
}

/// Permissions of certificates in tests that do not choose any.
const ADMIN_CERTIFICATES: CertificateTrust =
    CertificateTrust { role: Role::Admin, impersonation: ImpersonationPolicy::Itself };

/// The running network side.
pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    pub(crate) users: Users,
    pub(crate) accounts: AccountingLog,
    state: TempDir,
    _server: AbortOnDropHandle<()>,
}

impl Agent {
    /// Users `ada` (admin) and `rob` (read-only), both with the password `secret`.
    pub(crate) async fn with_users() -> Self {
        Self::without_users().await.and_users().await
    }

    pub(crate) async fn with_client_authority(authority: &Authority, role: Role) -> Self {
        Self::with_clients(authority, role, ImpersonationPolicy::Itself).await
    }

    pub(crate) async fn with_clients(
        authority: &Authority,
        role: Role,
        speaks_for: ImpersonationPolicy,
    ) -> Self {
        let certificates = CertificateTrust { role, impersonation: speaks_for };
        Self::start_with(Some(authority), certificates, None).await.and_users().await
    }

    pub(crate) async fn without_users() -> Self {
        Self::start_with(None, ADMIN_CERTIFICATES, None).await
    }

    /// Starts an agent with an authz policy for clients of this authority, who may use any name.
    pub(crate) async fn with_policy(authority: &Authority, policy: &str) -> Self {
        let certificates =
            CertificateTrust { role: Role::ReadOnly, impersonation: ImpersonationPolicy::Anyone };
        let agent = Self::start_with(Some(authority), certificates, Some(policy)).await;
        agent.and_users().await
    }

    async fn start_with(
        authority: Option<&Authority>,
        certificates: CertificateTrust,
        policy: Option<&str>,
    ) -> Self {
        let state = TempDir::new().unwrap();
        let (store, mut loaded) = Store::open(state.path()).unwrap();
        if let Some(policy) = policy {
            let content = policy.as_bytes().to_vec().into();
            let policy = Artefact { version: "v1".to_owned(), created_on: 0, content };
            let policies = loaded.artefacts.entry(ArtefactTable::Authz).or_default();
            policies.insert("policy".to_owned(), policy);
        }
        let users = Users::new(loaded.users, store.clone()).unwrap();
        let tls_client_ca = authority.map(|authority| {
            let path = state.path().join("clients.pem");
            fs::write(&path, &authority.pem).unwrap();
            path
        });
        let localhost: ListenAddress = "127.0.0.1:0".parse().unwrap();
        let settings = TlsSettings { tls_client_ca, ..TlsSettings::default() };
        let folder = state.path().to_owned();
        let profiles =
            TlsProfiles::new(settings, folder, &[localhost.ip], &BTreeMap::new()).unwrap();
        let listeners = Listeners::default();
        let incoming = Incoming::open(ListenSocket::of(&[localhost]), &profiles, &listeners);
        listeners.tried().await;
        let address = listeners.grpc_addresses()[0];
        let models = Arc::new(Models::load().unwrap());
        let gnsi = Gnsi::new(
            &models,
            &users,
            &store,
            &loaded.artefacts,
            state.path(),
            profiles,
            holdfast::northbound::pathz_draft,
        )
        .unwrap();
        let authenticator = Authenticator::new(users.clone(), certificates, gnsi.clone());
        let (_health, health) = tonic_health::server::health_reporter();
        let mut routes = Routes::builder();
        routes.add_service(GNmiServer::new(CallerEcho)).add_service(health);
        let pending = std::future::pending();
        let accounts = gnsi.accounts();
        let service = aaa::Layer::new(authenticator, gnsi).layer(routes.routes().prepare());
        let serving = server::serve(incoming, server::MAX_STREAMS, service, pending);
        let server = AbortOnDropHandle::new(tokio::spawn(serving));
        Self { address, users, accounts, state, _server: server }
    }

    async fn and_users(self) -> Self {
        self.set_user("ada", Role::Admin, "secret").await;
        self.set_user("rob", Role::ReadOnly, "secret").await;
        self
    }

    pub(crate) async fn set_user(&self, name: &str, role: Role, password: &str) {
        self.users.set(name.into(), role, Some(Password::new(password).unwrap())).await.unwrap();
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        tls::ca_file(self.state.path())
    }

    /// Opens a connection that trusts the agent by its `ca.pem`.
    pub(crate) async fn connect(
        &self,
        identity: Option<Identity>,
    ) -> Result<Client, tonic::transport::Error> {
        let authority = Certificate::from_pem(fs::read(self.ca_file()).unwrap());
        let mut config = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
        if let Some(identity) = identity {
            config = config.identity(identity);
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        Ok(Client(endpoint.tls_config(config).unwrap().connect().await?))
    }
}

/// One connection.
pub(crate) struct Client(pub(crate) Channel);

impl Client {
    /// Sends a Get with this metadata (`name value` lines); returns the caller's name and role, or a code.
    pub(crate) async fn get(&self, metadata: &str) -> Result<String, Code> {
        let answer =
            GNmiClient::new(self.0.clone()).get(request(GetRequest::default(), metadata)).await;
        let answer = answer.map_err(|status| failed(&status))?.into_inner();
        Ok(answer.notification[0].prefix.clone().unwrap().target)
    }

    /// The message of the refusal of a Get with this metadata.
    pub(crate) async fn refusal(&self, metadata: &str) -> String {
        let answer =
            GNmiClient::new(self.0.clone()).get(request(GetRequest::default(), metadata)).await;
        answer.unwrap_err().message().to_owned()
    }

    pub(crate) async fn set(&self, metadata: &str) -> Result<String, Code> {
        let answer =
            GNmiClient::new(self.0.clone()).set(request(SetRequest::default(), metadata)).await;
        Ok(answer.map_err(|status| failed(&status))?.into_inner().prefix.unwrap().target)
    }

    /// Calls a service that is not served.
    pub(crate) async fn ping(&self, metadata: &str) -> Result<(), Code> {
        let mut client = SystemClient::new(self.0.clone());
        let answer = client.ping(request(PingRequest::default(), metadata)).await;
        answer.map(drop).map_err(|status| status.code())
    }

    pub(crate) async fn health(&self, metadata: &str) -> Result<(), Code> {
        let mut client = tonic_health::pb::health_client::HealthClient::new(self.0.clone());
        let answer =
            client.check(request(tonic_health::pb::HealthCheckRequest::default(), metadata)).await;
        answer.map(drop).map_err(|status| failed(&status))
    }
}

/// The code of a failure, which must have a message without secrets.
fn failed(status: &Status) -> Code {
    assert!(!status.message().is_empty(), "{status:?}");
    assert!(!status.message().contains("secret"), "{status:?}");
    status.code()
}

pub(crate) fn request<T>(message: T, metadata: &str) -> Request<T> {
    let mut request = Request::new(message);
    for line in metadata.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        let key: tonic::metadata::AsciiMetadataKey = key.parse().unwrap();
        request.metadata_mut().append(key, MetadataValue::try_from(value).unwrap());
    }
    request
}

/// A service that answers with its caller, as `name role`.
struct CallerEcho;

fn describe<T>(request: &Request<T>) -> Result<Option<Path>, Status> {
    assert!(request.metadata().get("password").is_none(), "no handler sees a password");
    let caller = Caller::authenticated(request)?;
    Ok(Some(Path { target: format!("{} {}", caller.name, caller.role), ..Path::default() }))
}

#[tonic::async_trait]
impl GNmi for CallerEcho {
    async fn capabilities(
        &self,
        _: Request<CapabilityRequest>,
    ) -> Result<Response<CapabilityResponse>, Status> {
        Ok(Response::new(CapabilityResponse::default()))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let notification = Notification { prefix: describe(&request)?, ..Notification::default() };
        Ok(Response::new(GetResponse {
            notification: vec![notification],
            ..GetResponse::default()
        }))
    }

    async fn set(&self, request: Request<SetRequest>) -> Result<Response<SetResponse>, Status> {
        Ok(Response::new(SetResponse { prefix: describe(&request)?, ..SetResponse::default() }))
    }

    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let mut requests = request.into_inner();
        let (answer_tx, answer_rx) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok(Some(message)) = requests.message().await {
                if message.request.is_none() {
                    answer_tx.closed().await; // goes on until the client is gone
                }
                if answer_tx.send(Ok(SubscribeResponse::default())).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(answer_rx))))
    }
}
