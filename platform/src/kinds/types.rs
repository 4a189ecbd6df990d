//! Types that several kinds have in common: families, link-layer addresses, and the marks of what is ours.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use netlink_packet_route::AddressFamily;
use serde::{Deserialize, Serialize};

/// Protocol number that marks routes, addresses and neighbours as made by this agent.
///
/// Numbers above 4 are free for routing daemons (rtnetlink(7), `rtm_protocol`); this one is in no
/// distribution's `rt_protos`.
pub const OUR_PROTOCOL: u8 = 150;

/// Prefix of the alternative name that marks a link as created by this agent.
pub const OUR_ALTNAME_PREFIX: &str = "holdfast:";

/// Routing table `main` (`RT_TABLE_MAIN`), the one of network instance DEFAULT.
pub const MAIN_TABLE: u32 = 254;

/// Alternative name for a link that this agent creates.
pub fn our_altname(link: &str) -> String {
    format!("{OUR_ALTNAME_PREFIX}{link}")
}

/// A protocol family that is configured separately per interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

// Name of the family's folder in `/proc/sys/net` and of its container in the native model.
holdfast_config::enum_names!(Family {
    V4 = "ipv4",
    V6 = "ipv6",
});

impl Family {
    /// Family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The family in messages of rtnetlink.
pub(crate) fn address_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// A link-layer address of 48 bits. Its text is lower-case hex with colons (`yang:mac-address`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Makes an address from six bytes; `None` for any other number.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text is not six pairs of hex digits separated by colons.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a MAC address")]
pub struct MacAddrError(String);

holdfast_config::text_form!(MacAddr);

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let error = || MacAddrError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(error)?;
            // `from_str_radix` alone would accept a sign.
            let digits = part.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or_else(error)?;
        }
        if parts.next().is_some() { Err(error()) } else { Ok(Self(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_and_written() {
        check("02:00:5e:10:00:FF", Some("02:00:5e:10:00:ff"));
        check("02:00:5e:10:00", None);
        check("02:00:5e:10:00:ff:01", None);
        check("2:0:5e:10:0:ff", None);
        check("+1:00:5e:10:00:ff", None);
    }

    #[track_caller]
    fn check(text: &str, want: Option<&str>) {
        assert_eq!(text.parse::<MacAddr>().ok().map(|mac| mac.to_string()).as_deref(), want);
    }
}
