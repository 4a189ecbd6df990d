//! TCP and TLS to a bootstrap server.

use std::{io, net::SocketAddr, sync::Arc};

use holdfast_bootz::{
    client::Connect,
    identity::Chain,
    uri::{Host, Server},
    wire::Connection,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        ResolvesClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::Endpoint;

use crate::logging::Chain as Causes;

/// HTTP/2 is all that bootstrap servers speak.
const ALPN: &[u8] = b"h2";

/// Why a server is not connected.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot resolve {server}")]
    Resolve { server: String, source: io::Error },
    #[error("{server} has no address")]
    NoAddress { server: String },
    #[error("cannot go out by interface `{interface}`")]
    Interface { interface: String, source: io::Error },
    #[error("cannot connect to {address}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("no TLS connection with {address}")]
    Tls { address: SocketAddr, source: io::Error },
    #[error("the certificate that the server's should lead to cannot be used")]
    Trust(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("`{0}` is no name of a server")]
    Name(String),
    #[error("no HTTP/2 with {address}")]
    Http { address: SocketAddr, source: tonic::transport::Error },
}

impl ConnectError {
    /// With its causes, for the account.
    pub(super) fn told(&self) -> String {
        Causes(self).to_string()
    }
}

/// What the box shows in handshakes.
#[derive(Debug)]
pub(super) struct Handshakes {
    provider: Arc<CryptoProvider>,
    idevid: Arc<SingleCertAndKey>,
}

impl Handshakes {
    pub(super) fn new(chain: &Chain, key: &[u8]) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let unusable = |error: rustls_pki_types::pem::Error| {
            rustls::Error::General(format!("the key cannot be read: {error}"))
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(unusable)?;
        let certified = CertifiedKey::from_der(chain.certificates().to_vec(), key, &provider)?;
        Ok(Self { provider, idevid: Arc::new(certified.into()) })
    }

    fn config(&self, how: &Connect) -> Result<ClientConfig, ConnectError> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions");
        let verifier: Arc<dyn ServerCertVerifier> = match &how.trusts {
            Some(trusted) => self.verifier(trusted)?,
            None => Arc::new(AnyServer(self.provider.clone())),
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match how.presents_idevid {
            true => {
                let idevid: Arc<dyn ResolvesClientCert> = self.idevid.clone();
                builder.with_client_cert_resolver(idevid)
            }
            false => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn verifier(
        &self,
        trusted: &CertificateDer<'static>,
    ) -> Result<Arc<WebPkiServerVerifier>, ConnectError> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).map_err(|error| ConnectError::Trust(error.into()))?;
        let provider = self.provider.clone();
        WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .map_err(|error| ConnectError::Trust(error.into()))
    }
}

/// Connects as the client asks.
pub(super) async fn connect(
    handshakes: &Handshakes,
    how: Connect,
) -> Result<Connection, ConnectError> {
    let tls = TlsConnector::from(Arc::new(handshakes.config(&how)?));
    let mut last = ConnectError::NoAddress { server: how.server.to_string() };
    for address in resolve(&how.server).await? {
        match secure(&tls, address, &how).await {
            Ok(stream) => return speak(stream, address).await,
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn resolve(server: &Server) -> Result<Vec<SocketAddr>, ConnectError> {
    match &server.host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, server.port)]),
        Host::Name(name) => {
            let found = lookup_host((name.as_str(), server.port)).await;
            let failed = |source| ConnectError::Resolve { server: server.to_string(), source };
            Ok(found.map_err(failed)?.collect())
        }
    }
}

async fn secure(
    tls: &TlsConnector,
    address: SocketAddr,
    how: &Connect,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let failed = |source| ConnectError::Tcp { address, source };
    let socket = socket.map_err(failed)?;
    if let Some(interface) = &how.interface {
        socket
            .bind_device(Some(interface.as_bytes()))
            .map_err(|source| ConnectError::Interface { interface: interface.clone(), source })?;
    }
    let stream = socket.connect(address).await.map_err(failed)?;
    let name = match &how.server.host {
        Host::Address(address) => ServerName::from(*address),
        Host::Name(name) => {
            ServerName::try_from(name.clone()).map_err(|_| ConnectError::Name(name.clone()))?
        }
    };
    tls.connect(name, stream).await.map_err(|source| ConnectError::Tls { address, source })
}

/// HTTP/2 on a connection that is there already: when it ends, it is not made again behind the client's back.
async fn speak(
    stream: TlsStream<TcpStream>,
    address: SocketAddr,
) -> Result<Connection, ConnectError> {
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = once.take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    // The scheme is a matter between tonic and its own TLS, which is not used.
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let channel = match endpoint {
        Ok(endpoint) => endpoint.connect_with_connector(connector).await,
        Err(error) => Err(error),
    };
    channel.map(Connection::new).map_err(|source| ConnectError::Http { address, source })
}

/// Takes any certificate: a factory-new box knows no server. That the other end has the certificate's key is checked,
/// what it says is believed for its voucher and signature only.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
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
