//! TCP and TLS to a bootstrap server.

use std::{io, net::SocketAddr, sync::Arc};

use holdfast_bootz::{client::Connect, identity::IdevidChain, uri::Host, wire::Connection};
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
use tokio_rustls::TlsConnector;
use tonic::transport::Endpoint;

use crate::network::{ConnectOptions, Network, NetworkError, Stream};

/// ALPN name of HTTP/2, the only protocol of bootstrap servers.
const ALPN: &[u8] = b"h2";

/// Reason why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("cannot use the trust certificate with which the agent checks the bootstrap server")]
    Trust(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("`{0}` is not a server name")]
    Name(String),
    #[error("cannot speak HTTP/2 with {address}")]
    Http { address: SocketAddr, source: tonic::transport::Error },
}

impl ConnectError {
    /// The error with its causes, for the status text.
    pub(super) fn chain_text(&self) -> String {
        holdfast_base::ErrorChain(self).to_string()
    }
}

/// TLS parameters of the box.
#[derive(Debug)]
pub(super) struct BoxTls {
    provider: Arc<CryptoProvider>,
    idevid: Arc<SingleCertAndKey>,
}

impl BoxTls {
    pub(super) fn new(chain: &IdevidChain, key: &[u8]) -> Result<Self, rustls::Error> {
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
        let verifier: Arc<dyn ServerCertVerifier> = match &how.trust_anchor {
            Some(trusted) => self.verifier(trusted)?,
            None => Arc::new(AnyServer(self.provider.clone())),
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = if how.presents_idevid {
            let idevid: Arc<dyn ResolvesClientCert> = self.idevid.clone();
            builder.with_client_cert_resolver(idevid)
        } else {
            builder.with_no_client_auth()
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

/// Connects as the state machine requests.
pub(super) async fn connect(
    network: &Network,
    handshakes: &BoxTls,
    how: Connect,
) -> Result<Connection, ConnectError> {
    let (host, name) = match &how.server.host {
        Host::Address(address) => (address.to_string(), ServerName::from(*address)),
        Host::Name(name) => {
            let server = ServerName::try_from(name.clone());
            (name.clone(), server.map_err(|_| ConnectError::Name(name.clone()))?)
        }
    };
    let tls = Some(TlsConnector::from(Arc::new(handshakes.config(&how)?)));
    let way = ConnectOptions { name, tls, interface: how.interface.as_deref() };
    let (stream, address) = network.reach(&host, how.server.port, &way).await?;
    speak(stream, address).await
}

/// Speaks HTTP/2 on an existing connection. When that ends it is not reopened, since the state machine decides
/// about it.
async fn speak(stream: Box<dyn Stream>, address: SocketAddr) -> Result<Connection, ConnectError> {
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = once.take();
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    // tonic's own TLS, to which the scheme matters, is not used.
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let channel = match endpoint {
        Ok(endpoint) => endpoint.connect_with_connector(connector).await,
        Err(error) => Err(error),
    };
    channel.map(Connection::new).map_err(|source| ConnectError::Http { address, source })
}

/// Accepts any certificate, because a factory-new box knows no server. The handshake proves that the server has
/// the certificate's key; its data is verified by voucher and signature.
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
