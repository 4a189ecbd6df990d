//! Client certificate verification in the handshake, by the rules of `holdfast_security`.

use std::sync::Arc;

use holdfast_security::certz::{ClientRequirements, Rejection};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};

/// Requires a certificate that [`ClientRequirements`] accept.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    clients: ClientRequirements,
    provider: Arc<CryptoProvider>,
}

impl ClientVerifier {
    pub(super) fn new(clients: ClientRequirements, provider: Arc<CryptoProvider>) -> Self {
        Self { clients, provider }
    }
}

impl ClientCertVerifier for ClientVerifier {
    /// Sends no list of accepted authorities: with a few thousand of them the handshake message would exceed the
    /// limits of peers, and clients rarely choose a certificate by it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.clients.verify(leaf, intermediates, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
            Err(rejection) => Err(Error::InvalidCertificate(alert(rejection))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Alert for the client (RFC 8446 section 6.2); details are in the log.
fn alert(rejection: Rejection) -> CertificateError {
    match rejection {
        Rejection::Policy => CertificateError::ApplicationVerificationFailure,
        Rejection::Certificate(error) => match error {
            webpki::Error::CertExpired { .. } => CertificateError::Expired,
            webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
            webpki::Error::CertRevoked => CertificateError::Revoked,
            webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
            error => CertificateError::Other(OtherError(Arc::new(error))),
        },
    }
}
