//! Parsers for certificates, revocation lists and keys in PEM (RFC 7468) or DER.

use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use x509_parser::{parse_x509_certificate, prelude::X509Certificate};

use super::{CertzError, PrivateKey};

/// Encoding of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Pem,
    Der,
    /// Either of the two, as found in `.crt` files.
    Crt,
}

/// First bytes of PEM text.
const PEM_BEGIN: &[u8] = b"-----BEGIN";

impl Encoding {
    fn is_pem(self, bytes: &[u8]) -> bool {
        match self {
            Self::Pem => true,
            Self::Der => false,
            Self::Crt => bytes.windows(PEM_BEGIN.len()).any(|window| window == PEM_BEGIN),
        }
    }
}

/// Parses all certificates in `bytes`: exactly one in DER, one or more in PEM. Each is checked to be well-formed.
///
/// # Errors
/// When there is none, or one is malformed; the message gives its number.
pub fn certificates(
    what: &str,
    encoding: Encoding,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, CertzError> {
    let certificates = if encoding.is_pem(bytes) {
        all_of_pem(what, "certificate", bytes)?
    } else {
        vec![CertificateDer::from(bytes.to_vec())]
    };
    for (index, certificate) in certificates.iter().enumerate() {
        parse(certificate).map_err(|reason| {
            CertzError::invalid(what, format!("certificate {}: {reason}", index + 1))
        })?;
    }
    Ok(certificates)
}

/// Parses all revocation lists in `bytes`, under the rules of [`certificates`].
pub(super) fn revocation_lists(
    what: &str,
    encoding: Encoding,
    bytes: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertzError> {
    if encoding.is_pem(bytes) {
        all_of_pem(what, "revocation list", bytes)
    } else {
        Ok(vec![CertificateRevocationListDer::from(bytes.to_vec())])
    }
}

/// Parses the first private key in `bytes`: PKCS#8, PKCS#1 or SEC 1, not encrypted.
///
/// # Errors
/// When there is none. The message never quotes its input.
pub fn private_key(what: &str, encoding: Encoding, bytes: &[u8]) -> Result<PrivateKey, CertzError> {
    let refused = |reason: &str| CertzError::invalid(what, format!("private key: {reason}"));
    let key = if encoding.is_pem(bytes) {
        PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
            // The message of the library may quote its input.
            pem::Error::NoItemsFound => refused("no unencrypted key is in the PEM text"),
            _ => refused("the PEM text is malformed"),
        })?
    } else {
        let borrowed = PrivateKeyDer::try_from(bytes)
            .map_err(|_| refused("the key is neither PKCS#8 nor PKCS#1 nor SEC 1"))?;
        borrowed.clone_key()
    };
    Ok(PrivateKey::from(key))
}

fn all_of_pem<T: PemObject>(what: &str, noun: &str, bytes: &[u8]) -> Result<Vec<T>, CertzError> {
    let refused = |reason: String| CertzError::invalid(what, format!("{noun}: {reason}"));
    let all: Vec<T> = T::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|_| refused("the PEM text is malformed".to_owned()))?;
    if all.is_empty() {
        return Err(refused("none is in the PEM text".to_owned()));
    }
    Ok(all)
}

/// Parses a certificate, and refuses trailing bytes.
pub(super) fn parse<'d>(der: &'d CertificateDer<'_>) -> Result<X509Certificate<'d>, String> {
    match parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("something follows the certificate".to_owned()),
        Err(error) => Err(format!("the certificate is malformed: {error}")),
    }
}
