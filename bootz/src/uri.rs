//! Address of a bootstrap server, as DHCP and operators write it: `bootz://HOST:PORT`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;
use rustls_pki_types::DnsName;
use serde::{Deserialize, Serialize};

const SCHEME: &str = "bootz";

/// A bootstrap server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerUri {
    /// DNS name or address.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

/// Host part of the URI.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// DNS name to be resolved.
    Name(String),
    /// An IPv4 or IPv6 literal.
    Address(IpAddr),
}

/// Reason for rejecting a URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// Another scheme, such as the `https://` of RFC 8572.
    #[error("`{0}` is not a bootz:// URI")]
    OtherScheme(String),
    /// Malformed URI.
    #[error("`{uri}` does not name a server: {reason}")]
    Malformed {
        /// Text of the URI.
        uri: String,
        /// Problem found.
        reason: &'static str,
    },
}

impl FromStr for ServerUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let malformed = |reason| UriError::Malformed { uri: text.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| malformed("the text cannot be read as a URI"))?;
        if !uri.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME)) {
            return Err(UriError::OtherScheme(text.to_owned()));
        }
        let authority = uri.authority().ok_or_else(|| malformed("the URI has no host"))?;
        if authority.as_str().contains('@') {
            return Err(malformed("the URI names a user"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(malformed("the URI has a path or a query"));
        }
        let host = Host::read(authority.host());
        let host = host.ok_or_else(|| malformed("the host is neither a name nor an address"))?;
        let port = authority.port_u16().filter(|port| *port != 0);
        Ok(Self { host, port: port.ok_or_else(|| malformed("the URI has no port"))? })
    }
}

impl Host {
    fn read(text: &str) -> Option<Self> {
        if let Some(literal) = text.strip_prefix('[') {
            let address: Ipv6Addr = literal.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        DnsName::try_from(text).is_ok().then(|| Self::Name(text.to_owned()))
    }
}

impl fmt::Display for ServerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{SCHEME}://{name}:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{SCHEME}://{address}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "{SCHEME}://[{address}]:{}", self.port),
        }
    }
}

impl TryFrom<String> for ServerUri {
    type Error = UriError;

    fn try_from(text: String) -> Result<Self, UriError> {
        text.parse()
    }
}

impl From<ServerUri> for String {
    fn from(server: ServerUri) -> Self {
        server.to_string()
    }
}
