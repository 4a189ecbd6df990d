//! Generation of keys, and of certificate signing requests for them (RFC 2986).

use std::net::IpAddr;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA256, PKCS_ECDSA_P521_SHA384, PKCS_ECDSA_P521_SHA512,
    PKCS_RSA_SHA256, PKCS_RSA_SHA384, PKCS_RSA_SHA512, RsaKeySize, SanType, SignatureAlgorithm,
};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroize;

use super::{CertzError, PrivateKey};

const WHAT: &str = "generate_csr.params";
/// Longest value of one attribute of the subject, in characters: the bound of organization names (RFC 5280 appendix A.1).
const MAX_NAME_CHARS: usize = 64;
/// Longest alternative name, in bytes: that of a SPIFFE id.
const MAX_ALTERNATIVE_BYTES: usize = 2048;
/// Alternative names of one request.
const MAX_ALTERNATIVES: usize = 256;

/// Subject and key type of a certificate signing request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsrParams {
    /// `None` when the client asks for a suite that this agent does not know.
    pub suite: Option<Suite>,
    pub common_name: String,
    /// Two letters (ISO 3166).
    pub country: String,
    pub state: String,
    pub city: String,
    pub organization: String,
    pub organizational_unit: String,
    /// The address and the e-mail id become subject alternative names.
    pub ip_address: String,
    pub email_id: String,
    pub san: AlternativeNames,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    pub dns: Vec<String>,
    pub emails: Vec<String>,
    pub ips: Vec<String>,
    pub uris: Vec<String>,
}

/// Key type, and the digest for signing the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    Rsa(RsaBits, Hash),
    Ecdsa(Curve, Hash),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsaBits {
    B2048,
    B3072,
    B4096,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// A new key with its certificate signing request.
#[derive(Debug)]
pub struct GeneratedRequest {
    pub key: PrivateKey,
    pub pem: String,
}

impl CsrParams {
    /// True when [`Self::generate`] would succeed.
    pub fn can_generate(&self) -> bool {
        self.algorithm().is_ok() && self.certificate_params().is_ok()
    }

    /// Generates a key and its request. Takes seconds for a large RSA key.
    ///
    /// # Errors
    /// [`CertzError`], naming the suite, or the field that has no valid form in a request.
    pub fn generate(&self) -> Result<GeneratedRequest, CertzError> {
        let (algorithm, rsa) = self.algorithm()?;
        let params = self.certificate_params()?;
        let failed = |error: rcgen::Error| CertzError::internal(WHAT, error.to_string());
        let mut pair = match rsa {
            Some(size) => KeyPair::generate_rsa_for(algorithm, size),
            None => KeyPair::generate_for(algorithm),
        }
        .map_err(failed)?;
        let request = params.serialize_request(&pair).and_then(|request| request.pem());
        let pkcs8 = PrivatePkcs8KeyDer::from(pair.serialize_der());
        pair.zeroize();
        let key = PrivateKey::from(PrivateKeyDer::from(pkcs8));
        Ok(GeneratedRequest { key, pem: request.map_err(failed)? })
    }

    fn algorithm(&self) -> Result<(&'static SignatureAlgorithm, Option<RsaKeySize>), CertzError> {
        let suite = self.suite.ok_or_else(|| unsupported("this key type"))?;
        match suite {
            Suite::Rsa(bits, hash) => {
                let algorithm = match hash {
                    Hash::Sha256 => &PKCS_RSA_SHA256,
                    Hash::Sha384 => &PKCS_RSA_SHA384,
                    Hash::Sha512 => &PKCS_RSA_SHA512,
                };
                let size = match bits {
                    RsaBits::B2048 => RsaKeySize::_2048,
                    RsaBits::B3072 => RsaKeySize::_3072,
                    RsaBits::B4096 => RsaKeySize::_4096,
                };
                Ok((algorithm, Some(size)))
            }
            Suite::Ecdsa(curve, hash) => Ok((ecdsa(curve, hash)?, None)),
        }
    }

    fn certificate_params(&self) -> Result<CertificateParams, CertzError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = self.subject()?;
        params.subject_alt_names = self.alternatives()?;
        Ok(params)
    }

    fn subject(&self) -> Result<DistinguishedName, CertzError> {
        let mut subject = DistinguishedName::new();
        if !self.country.is_empty() {
            let letters = self.country.len() == 2
                && self.country.chars().all(|letter| letter.is_ascii_uppercase());
            let country = self.country.as_str().try_into().ok().filter(|_| letters);
            let country = country.ok_or_else(|| field("country", "two capital letters"))?;
            subject.push(DnType::CountryName, DnValue::PrintableString(country));
        }
        for (name, attribute, value) in [
            ("state", DnType::StateOrProvinceName, &self.state),
            ("city", DnType::LocalityName, &self.city),
            ("organization", DnType::OrganizationName, &self.organization),
            ("organizational_unit", DnType::OrganizationalUnitName, &self.organizational_unit),
            ("common_name", DnType::CommonName, &self.common_name),
        ] {
            if value.chars().count() > MAX_NAME_CHARS || value.chars().any(char::is_control) {
                return Err(field(name, "at most 64 characters, none of them a control character"));
            }
            if !value.is_empty() {
                subject.push(attribute, value.as_str());
            }
        }
        Ok(subject)
    }

    fn alternatives(&self) -> Result<Vec<SanType>, CertzError> {
        let ascii = |name: &str, value: &str| {
            let fits = !value.is_empty()
                && value.len() <= MAX_ALTERNATIVE_BYTES
                && value.chars().all(|letter| letter.is_ascii_graphic());
            fits.then_some(value)
                .and_then(|value| value.try_into().ok())
                .ok_or_else(|| field(name, "printable ASCII without blanks, 1 to 2048 bytes"))
        };
        let address = |name: &str, value: &str| {
            value.parse::<IpAddr>().map_err(|_| field(name, "an IP address"))
        };
        let mut names = Vec::new();
        for dns in &self.san.dns {
            names.push(SanType::DnsName(ascii("san.dns", dns)?));
        }
        let non_empty = |value: &'_ str| (!value.is_empty()).then(|| value.to_owned());
        for email in self.san.emails.iter().cloned().chain(non_empty(&self.email_id)) {
            names.push(SanType::Rfc822Name(ascii("email", &email)?));
        }
        for ip in self.san.ips.iter().cloned().chain(non_empty(&self.ip_address)) {
            names.push(SanType::IpAddress(address("ip", &ip)?));
        }
        for uri in &self.san.uris {
            names.push(SanType::URI(ascii("san.uris", uri)?));
        }
        if names.len() > MAX_ALTERNATIVES {
            return Err(field("san", "at most 256 names"));
        }
        Ok(names)
    }
}

/// Chooses the signature algorithm. The library signs with the digest of the curve's size, and with any of them
/// for P-521.
fn ecdsa(curve: Curve, hash: Hash) -> Result<&'static SignatureAlgorithm, CertzError> {
    match (curve, hash) {
        (Curve::P256, Hash::Sha256) => Ok(&PKCS_ECDSA_P256_SHA256),
        (Curve::P384, Hash::Sha384) => Ok(&PKCS_ECDSA_P384_SHA384),
        (Curve::P521, Hash::Sha256) => Ok(&PKCS_ECDSA_P521_SHA256),
        (Curve::P521, Hash::Sha384) => Ok(&PKCS_ECDSA_P521_SHA384),
        (Curve::P521, Hash::Sha512) => Ok(&PKCS_ECDSA_P521_SHA512),
        (curve, hash) => Err(unsupported(&format!("{curve:?} with {hash:?}"))),
    }
}

fn unsupported(what: &str) -> CertzError {
    CertzError::unsupported(format!("{WHAT}.csr_suite"), format!("{what} cannot be made here"))
}

fn field(name: &str, expected: &str) -> CertzError {
    CertzError::invalid(format!("{WHAT}.{name}"), format!("must be {expected}"))
}
