//! Bootstrap data for one box.

use std::collections::BTreeSet;
use std::fmt::Write;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA512, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_proto::bootz::{
    BootConfig, BootstrapDataResponse, BootstrapDataSigned, CertzProfiles,
};
use prost::Message;
use rustls_pki_types::CertificateDer;

/// TLS profile that clients cannot upload (gNSI certz).
const DEFAULT_PROFILE: &str = "system_default_profile";

/// Content for this box, parsed from verified data.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapPayload {
    /// The whole response as a message. It repeats the server's certificate, which is also in `server_trust_cert`.
    pub response: BootstrapDataResponse,
    /// Configuration to boot with.
    pub boot_config: BootConfig,
    /// Trust anchor for the server's certificate during the status report, in DER.
    pub server_trust_cert: CertificateDer<'static>,
    /// SHA-512 of the received data, in lower-case hexadecimal digits.
    pub checksum: String,
}

/// Reason for refusing verified data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The bytes are not a `BootstrapDataSigned`.
    #[error("the bootstrap data cannot be read: {0}")]
    Malformed(String),
    /// The nonce is that of another request.
    #[error("the bootstrap data does not carry the nonce that was sent")]
    Nonce,
    /// No response names this box.
    #[error("the bootstrap data has no response for serial number `{0}`")]
    NoResponseForBox(String),
    /// Several responses name this box.
    #[error("the bootstrap data has several responses for serial number `{0}`")]
    Ambiguous(String),
    /// A field is missing or wrong.
    #[error("{field}: {reason}")]
    Field {
        /// Name of the field in `BootstrapDataResponse`.
        field: &'static str,
        /// Problem with its value.
        reason: String,
    },
}

impl PayloadError {
    fn field(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Field { field, reason: reason.into() }
    }

    /// True when the data belongs to another request or box, rather than being malformed.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        matches!(self, Self::Nonce)
    }
}

/// Computes the checksum for telemetry.
#[must_use]
pub fn checksum(data: &[u8]) -> String {
    digest(&SHA512, data).as_ref().iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").expect("writing to a string does not fail");
        text
    })
}

impl BootstrapPayload {
    /// Parses the data for the box with this serial number. `nonce` is that of the request, or empty when none was
    /// sent.
    ///
    /// # Errors
    /// When the data is malformed, is meant for another request or box, or lacks a required field.
    pub fn read(data: &[u8], nonce: &str, serial: &str) -> Result<Self, PayloadError> {
        let signed = BootstrapDataSigned::decode(data)
            .map_err(|error| PayloadError::Malformed(error.to_string()))?;
        verify_slices_are_equal(signed.nonce.as_bytes(), nonce.as_bytes())
            .map_err(|_| PayloadError::Nonce)?;
        let mut ours = signed.responses.into_iter().filter(|it| it.serial_num == serial);
        let response =
            ours.next().ok_or_else(|| PayloadError::NoResponseForBox(serial.to_owned()))?;
        if ours.next().is_some() {
            return Err(PayloadError::Ambiguous(serial.to_owned()));
        }
        response.certz_profiles.as_ref().map_or(Ok(()), check_profiles)?;
        let boot_config = response.boot_config.clone();
        Ok(Self {
            boot_config: boot_config
                .ok_or_else(|| PayloadError::field("boot_config", "the field is missing"))?,
            server_trust_cert: parse_trust_anchor(&response.server_trust_cert)?,
            checksum: checksum(data),
            response,
        })
    }
}

fn parse_trust_anchor(text: &str) -> Result<CertificateDer<'static>, PayloadError> {
    const FIELD: &str = "server_trust_cert";
    if text.is_empty() {
        return Err(PayloadError::field(FIELD, "the field is missing, so nothing can be reported"));
    }
    let octets = STANDARD.decode(text);
    let der = CertificateDer::from(
        octets.map_err(|error| PayloadError::field(FIELD, error.to_string()))?,
    );
    match webpki::anchor_from_trusted_cert(&der) {
        Ok(_) => Ok(der),
        Err(error) => {
            Err(PayloadError::field(FIELD, format!("the field is not a certificate: {error}")))
        }
    }
}

fn check_profiles(profiles: &CertzProfiles) -> Result<(), PayloadError> {
    let refused = |reason: String| Err(PayloadError::field("certz_profiles", reason));
    let mut names = BTreeSet::new();
    for profile in &profiles.profiles {
        let id = profile.ssl_profile_id.as_str();
        if id.is_empty() {
            return refused("a profile has no id".to_owned());
        }
        if id == DEFAULT_PROFILE {
            return refused(format!("`{DEFAULT_PROFILE}` belongs to the box"));
        }
        if !names.insert(id) {
            return refused(format!("`{id}` occurs twice"));
        }
    }
    Ok(())
}
