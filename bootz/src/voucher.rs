//! Ownership vouchers (RFC 8366), in which the vendor names the owner of a box.

use ::cms::cert::x509::Certificate;
use ::cms::cert::x509::der::asn1::ObjectIdentifier;
use ::cms::cert::x509::ext::pkix::SubjectAltName;
use ::cms::cert::x509::ext::pkix::name::GeneralName;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::chain::Revocation;
use crate::cms::{self, CmsError, SignedMessage};

/// Attribute `serialNumber` of a distinguished name (X.520).
const SERIAL_NUMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.5");
/// `id-on-hardwareModuleName` (RFC 4108 section 5).
const HARDWARE_MODULE_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.8.4");

/// Tolerance for a slow clock of the box, in seconds. A day covers clocks that were set by hand in the wrong time
/// zone.
const CLOCK_SKEW_TOLERANCE: u64 = 24 * 60 * 60;

/// Accepted assertions: how the vendor learned of the owner. Any other value is refused.
const ASSERTIONS: [&str; 3] = ["verified", "logged", "proximity"];

/// A verified voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voucher {
    /// Serial number of the box that the voucher is for.
    pub serial: String,
    /// Trust anchor for the owner's certificate, in DER.
    pub pinned_domain_cert: Vec<u8>,
    /// Requires a revocation check of the owner's certificates.
    pub checks_revocation: bool,
    created: UnixTime,
    expires: Option<UnixTime>,
}

/// Reason for rejecting a voucher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VoucherError {
    /// The enclosing CMS message is not valid.
    #[error("the ownership voucher is not valid")]
    Message(#[from] CmsError),
    /// The content is in neither the JSON nor the XML form of RFC 8366.
    #[error("the ownership voucher cannot be read: {0}")]
    Malformed(String),
    /// The voucher is for another box.
    #[error("the ownership voucher is for serial number `{0}`")]
    OtherBox(String),
    /// The signer's certificate is that of a box rather than of the vendor's signing service.
    #[error(
        "the ownership voucher is signed by a certificate that looks like the IDevID of a box (it has {0}): the vendor \
         has to sign vouchers with another certificate"
    )]
    SignedByBox(&'static str),
    /// The voucher is not yet valid, or has expired.
    #[error("the ownership voucher {0}")]
    Time(&'static str),
}

/// Leaves of `ietf-voucher` that affect the decision. All others, including augmentations, are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct VoucherLeaves {
    created_on: String,
    expires_on: Option<String>,
    assertion: String,
    serial_number: String,
    pinned_domain_cert: String,
    #[serde(default)]
    domain_cert_revocation_checks: bool,
}

#[derive(Deserialize)]
struct VoucherDocument {
    #[serde(rename = "ietf-voucher:voucher")]
    voucher: VoucherLeaves,
}

impl Voucher {
    /// Verifies a voucher for the box with this serial number. Its signer must lead to one of the vendor's
    /// certificates.
    ///
    /// # Errors
    /// When the signature, the signer, the content, the serial number or the time is wrong.
    pub fn verify(
        message: &[u8],
        serial: &str,
        vendor: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Self, VoucherError> {
        let message = SignedMessage::read(message)?;
        message.verify(vendor, Revocation::Ignored, now)?;
        for signer in message.signers() {
            let signer = signer?;
            // A certificate that the operator configured as trusted is accepted in any form.
            if !vendor.contains(&cms::to_der(signer)?)
                && let Some(mark) = idevid_evidence(signer)
            {
                return Err(VoucherError::SignedByBox(mark));
            }
        }
        let voucher = Self::read(message.content())?;
        if voucher.serial != serial {
            return Err(VoucherError::OtherBox(voucher.serial));
        }
        voucher.valid_at(now)?;
        Ok(voucher)
    }

    /// Parses the signed content: JSON if it begins like an object, else XML.
    ///
    /// # Errors
    /// When the content is neither, or a leaf is missing or has an invalid value.
    pub fn read(content: &[u8]) -> Result<Self, VoucherError> {
        let malformed = |reason: String| VoucherError::Malformed(reason);
        let first = content.iter().find(|octet| !octet.is_ascii_whitespace());
        let leaves = if first == Some(&b'{') {
            let document = serde_json::from_slice::<VoucherDocument>(content);
            document.map_err(|error| malformed(error.to_string()))?.voucher
        } else {
            let text = str::from_utf8(content).map_err(|error| malformed(error.to_string()))?;
            VoucherLeaves::from_xml(text).map_err(malformed)?
        };
        leaves.into_voucher().map_err(malformed)
    }

    fn valid_at(&self, now: UnixTime) -> Result<(), VoucherError> {
        if self.created.as_secs() > now.as_secs().saturating_add(CLOCK_SKEW_TOLERANCE) {
            return Err(VoucherError::Time("was made in the future: check the clock of the box"));
        }
        if self.expires.is_some_and(|expires| expires.as_secs() < now.as_secs()) {
            return Err(VoucherError::Time("has expired"));
        }
        Ok(())
    }
}

/// Detects the certificate of a box (IEEE 802.1AR section 8). Vendors sign those below the same root as their
/// vouchers, and the key of one box must not be able to make vouchers for others.
fn idevid_evidence(certificate: &Certificate) -> Option<&'static str> {
    let inner = certificate.tbs_certificate();
    let attributes = inner.subject().iter_rdn().flat_map(|name| name.iter());
    if attributes.into_iter().any(|attribute| attribute.oid == SERIAL_NUMBER) {
        return Some("a serial number in its subject");
    }
    let is_hardware = |name: &GeneralName| matches!(name, GeneralName::OtherName(it) if it.type_id == HARDWARE_MODULE_NAME);
    match inner.get_extension::<SubjectAltName>() {
        Ok(None) => None,
        Ok(Some((_, names))) => {
            names.0.iter().any(is_hardware).then_some("the name of a hardware module")
        }
        Err(_) => Some("alternative names that cannot be read"),
    }
}

impl VoucherLeaves {
    fn from_xml(text: &str) -> Result<Self, String> {
        let document = roxmltree::Document::parse(text).map_err(|error| error.to_string())?;
        let root = document.root_element();
        if root.tag_name().name() != "voucher" {
            return Err(format!("the document is a `{}`", root.tag_name().name()));
        }
        let leaf = |name: &str| {
            let mut found = root.children().filter(|child| child.tag_name().name() == name);
            let text = found.next().map(|child| child.text().unwrap_or_default().trim().to_owned());
            if found.next().is_some() { Err(format!("`{name}` occurs twice")) } else { Ok(text) }
        };
        let needed = |name: &str| leaf(name)?.ok_or_else(|| format!("`{name}` is missing"));
        let checks = match leaf("domain-cert-revocation-checks")?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(format!("`domain-cert-revocation-checks` is `{other}`")),
        };
        Ok(Self {
            created_on: needed("created-on")?,
            expires_on: leaf("expires-on")?,
            assertion: needed("assertion")?,
            serial_number: needed("serial-number")?,
            pinned_domain_cert: needed("pinned-domain-cert")?,
            domain_cert_revocation_checks: checks,
        })
    }

    fn into_voucher(self) -> Result<Voucher, String> {
        if !ASSERTIONS.contains(&self.assertion.as_str()) {
            return Err(format!("`assertion` is `{}`", self.assertion));
        }
        if self.serial_number.is_empty() {
            return Err("`serial-number` is empty".to_owned());
        }
        let folded: String = self.pinned_domain_cert.split_ascii_whitespace().collect();
        let pinned = STANDARD.decode(folded);
        Ok(Voucher {
            serial: self.serial_number,
            pinned_domain_cert: pinned.map_err(|error| format!("`pinned-domain-cert`: {error}"))?,
            checks_revocation: self.domain_cert_revocation_checks,
            created: time_of("created-on", &self.created_on)?,
            expires: self.expires_on.map(|text| time_of("expires-on", &text)).transpose()?,
        })
    }
}

/// Parses a `yang:date-and-time`. Times before 1970 become 1970.
fn time_of(leaf: &str, text: &str) -> Result<UnixTime, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339);
    let seconds = parsed.map_err(|error| format!("`{leaf}`: {error}"))?.unix_timestamp();
    Ok(UnixTime::since_unix_epoch(std::time::Duration::from_secs(
        u64::try_from(seconds).unwrap_or_default(),
    )))
}
