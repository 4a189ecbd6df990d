//! The persistent record: progress of bootstrapping, and the telemetry about it.

use std::fmt;

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::uri::ServerUri;

/// Persistent state of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapRecord {
    /// Bootstrap in progress; `None` when it is complete or was terminated.
    pub parameters: Option<Parameters>,
    /// Telemetry, which is kept when the rest is complete.
    pub telemetry: Telemetry,
}

/// A bootstrap in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How the server is found.
    pub entry: ServerDiscovery,
    /// Progress.
    pub stage: BootstrapStage,
}

/// How the server is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerDiscovery {
    /// By DHCP.
    Dhcp,
    /// The operator named it, and made it reachable.
    Named {
        /// The server.
        server: ServerUri,
        /// The interface by which it is reached.
        interface: String,
    },
}

impl fmt::Display for ServerDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp => f.write_str("DHCP"),
            Self::Named { server, interface } => write!(f, "{server} through {interface}"),
        }
    }
}

/// Progress of a bootstrap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootstrapStage {
    /// No data has been applied yet.
    Attempting,
    /// The data is applied, and the report to the server is still due.
    Reporting {
        /// Server that sent the data.
        server: ServerUri,
        /// Rpc that brought the data.
        flow: Flow,
        /// Trust anchor for the server's certificate.
        trust: Base64Certificate,
        /// Remarks for the report in addition to success.
        notes: Vec<String>,
    },
}

/// Rpc used with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// `BootstrapStreamV1`.
    Stream,
    /// `GetBootstrapData` and `ReportStatus`.
    Unary,
}

/// A certificate in DER, stored as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64Certificate(pub CertificateDer<'static>);

impl Serialize for Base64Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Certificate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine;
        let text = String::deserialize(deserializer)?;
        let der = base64::engine::general_purpose::STANDARD.decode(text);
        Ok(Self(der.map_err(serde::de::Error::custom)?.into()))
    }
}

/// Content of OpenConfig's `/system/bootz/state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Status of the last attempt.
    pub status: Status,
    /// SHA-512 of the last verified data, in hexadecimal digits; empty before the first.
    pub checksum: String,
    /// Number of failed attempts since the factory.
    pub error_count: u64,
    /// Start of the last attempt, in nanoseconds since 1970; `None` before the first.
    pub last_attempt: Option<u64>,
}

/// The values of `/system/bootz/state/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// No request was sent.
    #[default]
    Unspecified,
    /// The request was sent.
    Sent,
    /// Data was received and verified.
    Received,
    /// An image is being installed.
    OsUpgradeInProgress,
    /// The image is installed.
    OsUpgradeComplete,
    /// The configuration is in force.
    ConfigurationApplied,
    /// The report was delivered.
    Ok,
    /// The ownership proof failed.
    OvInvalid,
    /// The image cannot be fetched, or is not the announced one.
    OsInvalidImage,
    /// The data cannot be applied.
    ConfigurationInvalid,
}

impl Status {
    /// Identity name in the model.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "BOOTZ_UNSPECIFIED",
            Self::Sent => "BOOTZ_SENT",
            Self::Received => "BOOTZ_RECEIVED",
            Self::OsUpgradeInProgress => "BOOTZ_OS_UPGRADE_IN_PROGRESS",
            Self::OsUpgradeComplete => "BOOTZ_OS_UPGRADE_COMPLETE",
            Self::ConfigurationApplied => "BOOTZ_CONFIGURATION_APPLIED",
            Self::Ok => "BOOTZ_OK",
            Self::OvInvalid => "BOOTZ_OV_INVALID",
            Self::OsInvalidImage => "BOOTZ_OS_INVALID_IMAGE",
            Self::ConfigurationInvalid => "BOOTZ_CONFIGURATION_INVALID",
        }
    }
}
