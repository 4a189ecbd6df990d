//! What outlives the process: where bootstrapping stands, and what telemetry shows of it.

use std::fmt;

use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::uri::Server;

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What is being done; nothing when all is done, or the operator ended it.
    pub parameters: Option<Parameters>,
    /// What readers see. It stays when everything else is done.
    pub telemetry: Telemetry,
}

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// How the server is found.
    pub entry: Entry,
    /// How far it got.
    pub stage: Stage,
}

/// How the server is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// By DHCP.
    Dhcp,
    /// The operator named it, and made it reachable.
    Named {
        /// The server.
        server: Server,
        /// The interface by which it is reached.
        interface: String,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp => f.write_str("DHCP"),
            Self::Named { server, interface } => write!(f, "{server} through {interface}"),
        }
    }
}

/// How far it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// No data has come into force.
    Attempting,
    /// The data is in force, and the server does not know yet.
    Reporting {
        /// Who gave it.
        server: Server,
        /// By which rpc.
        flow: Flow,
        /// What the server's certificate leads to.
        trust: Trust,
        /// What is said beside success.
        notes: Vec<String>,
    },
}

/// Which rpc a server was spoken to by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flow {
    /// `BootstrapStreamV1`.
    Stream,
    /// `GetBootstrapData` and `ReportStatus`.
    Unary,
}

/// A certificate in DER, kept in base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust(pub CertificateDer<'static>);

impl Serialize for Trust {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Trust {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine;
        let text = String::deserialize(deserializer)?;
        let der = base64::engine::general_purpose::STANDARD.decode(text);
        Ok(Self(der.map_err(serde::de::Error::custom)?.into()))
    }
}

/// What `/system/bootz/state` of OpenConfig shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telemetry {
    /// How far the last attempt got.
    pub status: Status,
    /// SHA-512 of the last data that was believed, in hexadecimal digits; empty before the first.
    pub checksum: String,
    /// Failed attempts, ever.
    pub error_count: u64,
    /// When the last attempt began, in nanoseconds since 1970; nothing before the first.
    pub last_attempt: Option<u64>,
}

/// The values of `/system/bootz/state/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Nothing has been sent.
    #[default]
    Unspecified,
    /// The request is with the server.
    Sent,
    /// Data has come and is believed.
    Received,
    /// An image is being installed.
    OsUpgradeInProgress,
    /// The image is installed.
    OsUpgradeComplete,
    /// The configuration is in force.
    ConfigurationApplied,
    /// The server knows.
    Ok,
    /// The server does not speak for the owner.
    OvInvalid,
    /// The image is not there, or is another one.
    OsInvalidImage,
    /// The data cannot be carried out.
    ConfigurationInvalid,
}

impl Status {
    /// Its name in the model.
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
