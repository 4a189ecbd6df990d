//! Authorities, the pairs that they sign, and TLS profiles made of them over gnsi.certz.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_proto::gnsi::certz::certz_client::CertzClient;
use holdfast_proto::gnsi::certz::{self, certificate, entity, rotate_certificate_request};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::gnmi::Credentials;
use crate::rotation;

/// An authority that signs servers and clients.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateAndKey {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// # Panics
    /// When no key can be made.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("it signs for itself").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Signs a server on this host.
    pub fn server(&self) -> CertificateAndKey {
        self.issue("server", &["localhost", "127.0.0.1"], None)
    }

    /// Signs a server on this host whose certificate has expired long ago.
    pub fn expired_server(&self) -> CertificateAndKey {
        let mut params = server_params("server", &["localhost", "127.0.0.1"]);
        params.not_after = date_time_ymd(2020, 1, 2);
        self.sign(params)
    }

    /// Signs a client with this common name.
    pub fn client(&self, name: &str) -> CertificateAndKey {
        self.issue(name, &[], None)
    }

    /// Signs a client with a serial number, for revocation lists.
    pub fn numbered_client(&self, name: &str, serial: u64) -> CertificateAndKey {
        self.issue(name, &[], Some(serial))
    }

    /// A revocation list of these serial numbers, in PEM.
    ///
    /// # Panics
    /// When it cannot be signed.
    pub fn revocation_list(&self, serials: &[u64]) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2040, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("it signs");
        list.pem().expect("it can be written")
    }

    fn issue(&self, name: &str, hosts: &[&str], serial: Option<u64>) -> CertificateAndKey {
        let mut params = server_params(name, hosts);
        params.serial_number = serial.map(SerialNumber::from);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> CertificateAndKey {
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs").pem();
        CertificateAndKey { certificate, key: key.serialize_pem() }
    }
}

fn server_params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("plain names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Certificate (DER) that a server shows, whatever it is; `None` when there is no handshake.
pub async fn shown_certificate(address: SocketAddr) -> Option<Vec<u8>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .ok()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.ok()?;
    let stream = TlsConnector::from(Arc::new(config)).connect(address.ip().into(), stream).await;
    let stream = stream.ok()?;
    Some(stream.get_ref().1.peer_certificates()?.first()?.to_vec())
}

/// A client that looks at no certificate.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Connects to a server that one of `authorities` (PEM) has signed.
///
/// # Errors
/// When no server listens, or either side refuses the other's certificate.
pub async fn connect(
    address: SocketAddr,
    authorities: &[&str],
    client: &CertificateAndKey,
) -> Result<Channel> {
    let trusted: Vec<_> = authorities.iter().map(Certificate::from_pem).collect();
    let identity = Identity::from_pem(&client.certificate, &client.key);
    let tls =
        ClientTlsConfig::new().ca_certificates(trusted).domain_name("localhost").identity(identity);
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?;
    endpoint.connect().await.context("cannot connect")
}

/// gnsi.certz as one user.
#[derive(Debug)]
pub struct Certz(CertzClient<InterceptedService<Channel, Credentials>>);

impl Certz {
    pub fn over(channel: Channel, credentials: Credentials) -> Self {
        Self(CertzClient::with_interceptor(channel, credentials))
    }

    /// # Errors
    /// The status of the server.
    pub async fn add(&mut self, profile: &str) -> Result<(), Status> {
        let request = certz::AddProfileRequest { ssl_profile_id: profile.to_owned() };
        self.0.add_profile(request).await.map(drop)
    }

    /// The names of all profiles.
    ///
    /// # Errors
    /// The status of the server.
    pub async fn list(&mut self) -> Result<Vec<String>, Status> {
        let list = self.0.get_profile_list(certz::GetProfileListRequest {}).await?;
        Ok(list.into_inner().ssl_profile_ids)
    }

    /// Opens a rotation of a profile.
    ///
    /// # Errors
    /// The status of the server.
    pub async fn rotate(&mut self, profile: &str) -> Result<CertzRotation, Status> {
        let stream = rotation::Rotation::open(|requests| self.0.rotate(requests)).await?;
        Ok(CertzRotation { profile: profile.to_owned(), stream })
    }
}

/// An open Rotate stream.
#[derive(Debug)]
pub struct CertzRotation {
    profile: String,
    stream: rotation::Rotation<certz::RotateCertificateRequest, certz::RotateCertificateResponse>,
}

impl CertzRotation {
    /// Uploads the server's certificate and the authority of clients.
    ///
    /// # Errors
    /// The status of the server.
    pub async fn upload(
        &mut self,
        version: &str,
        server: &CertificateAndKey,
        clients: &[&Authority],
    ) -> Result<(), Status> {
        let chain = certificate(&server.certificate, Some(&server.key));
        let chain = certz::CertificateChain { certificate: Some(chain), parent: None };
        let trusted = clients.iter().rev().fold(None, |parent: Option<_>, authority| {
            let parent = parent.map(Box::new);
            let certificate = Some(certificate(&authority.pem, None));
            Some(certz::CertificateChain { certificate, parent })
        });
        let entities = vec![
            entity(version, entity::Entity::CertificateChain(chain)),
            entity(version, entity::Entity::TrustBundle(trusted.unwrap_or_default())),
        ];
        self.upload_entities(entities).await
    }

    /// Uploads revocation lists, which may be malformed.
    ///
    /// # Errors
    /// The status of the server.
    pub async fn upload_revocations(
        &mut self,
        version: &str,
        lists: &[impl AsRef<[u8]>],
    ) -> Result<(), Status> {
        let list = |(number, list): (usize, &_)| certz::CertificateRevocationList {
            r#type: certz::CertificateType::X509.into(),
            encoding: certz::CertificateEncoding::Pem.into(),
            certificate_revocation_list: AsRef::<[u8]>::as_ref(list).to_vec().into(),
            id: format!("list {number}"),
        };
        let certificate_revocation_lists = lists.iter().enumerate().map(list).collect();
        let bundle = certz::CertificateRevocationListBundle { certificate_revocation_lists };
        self.upload_entities(vec![entity(
            version,
            entity::Entity::CertificateRevocationListBundle(bundle),
        )])
        .await
    }

    async fn upload_entities(&mut self, entities: Vec<certz::Entity>) -> Result<(), Status> {
        let upload = self.request(rotate_certificate_request::RotateRequest::Certificates(
            certz::UploadRequest { entities },
        ));
        self.stream.send(upload).await.map(drop)
    }

    /// # Errors
    /// The status of the server.
    pub async fn finalize(mut self) -> Result<(), Status> {
        let finalize = self.request(rotate_certificate_request::RotateRequest::FinalizeRotation(
            certz::FinalizeRequest {},
        ));
        self.stream.send(finalize).await.map(drop)
    }

    /// Sends a finalize, without waiting for its result.
    pub async fn send_finalize(&self) {
        let finalize = self.request(rotate_certificate_request::RotateRequest::FinalizeRotation(
            certz::FinalizeRequest {},
        ));
        self.stream.post(finalize).await;
    }

    fn request(
        &self,
        message: rotate_certificate_request::RotateRequest,
    ) -> certz::RotateCertificateRequest {
        certz::RotateCertificateRequest {
            force_overwrite: false,
            ssl_profile_id: self.profile.clone(),
            rotate_request: Some(message),
        }
    }
}

fn entity(version: &str, entity: entity::Entity) -> certz::Entity {
    certz::Entity { version: version.to_owned(), created_on: 1_700_000_000, entity: Some(entity) }
}

fn certificate(pem: &str, key: Option<&str>) -> certz::Certificate {
    certz::Certificate {
        r#type: certz::CertificateType::X509.into(),
        encoding: certz::CertificateEncoding::Pem.into(),
        certificate_type: Some(certificate::CertificateType::RawCertificate(pem.to_owned().into())),
        private_key_type: key
            .map(|key| certificate::PrivateKeyType::RawPrivateKey(key.to_owned().into())),
        ..certz::Certificate::default()
    }
}
