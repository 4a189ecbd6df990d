//! The DHCP options that name bootstrap servers (RFC 8572 section 8).

use crate::uri::{Server, UriError};

/// The DHCPv4 option `OPTION_V4_SZTP_REDIRECT`, to be named in the parameter request list: servers answer who asks.
pub const OPTION_V4: u8 = 143;
/// The DHCPv6 option `OPTION_V6_SZTP_REDIRECT`, to be named in the option request option.
pub const OPTION_V6: u16 = 136;

/// Octets of the length before each URI.
const LENGTH: usize = 2;
/// Octets before the value of a DHCPv4 option: its code and its length.
const HEADER_V4: usize = 2;
/// Octets before the value of a DHCPv6 option: its code and its length, two each.
const HEADER_V6: usize = 4;

/// Servers that are taken from one option, and entries that are told to be ignored: each server is connected in turn,
/// and one option has room for five thousand. Owners have a handful.
const MOST_SERVERS: usize = 16;

/// What an option said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The first sixteen bootstrap servers, in the order of the option, each once.
    pub servers: Vec<Server>,
    /// The first sixteen entries that are for somebody else, or cannot be read.
    pub ignored: Vec<UriError>,
}

/// Why an option cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The list ends within an entry.
    #[error("the list of servers ends within its entry {entry}")]
    Truncated {
        /// Counted from 1.
        entry: usize,
    },
    /// An entry is no text.
    #[error("entry {entry} of the list of servers is no text")]
    NoText {
        /// Counted from 1.
        entry: usize,
    },
}

/// Reads the value of either option, without its code and length: pairs of a length in two octets, big-endian, and a URI.
///
/// # Errors
/// When the list is cut off, or an entry is no text: it came damaged, so no part of it is believed.
pub fn read(mut list: &[u8]) -> Result<Offer, OptionError> {
    let mut offer = Offer::default();
    for entry in 1.. {
        let Some((length, rest)) = list.split_first_chunk::<LENGTH>() else {
            if list.is_empty() {
                break;
            }
            return Err(OptionError::Truncated { entry });
        };
        let length = usize::from(u16::from_be_bytes(*length));
        let (uri, rest) = rest.split_at_checked(length).ok_or(OptionError::Truncated { entry })?;
        offer.add(str::from_utf8(uri).map_err(|_| OptionError::NoText { entry })?);
        list = rest;
    }
    Ok(offer)
}

/// Reads [`OPTION_V4`] as it stands in a message, with its code and length. A value that is too long for one option
/// stands in several, to be joined (RFC 3396).
///
/// # Errors
/// As [`read`].
pub fn read_v4(mut options: &[u8]) -> Result<Offer, OptionError> {
    let mut list = Vec::new();
    while let Some(([_, length], rest)) = options.split_first_chunk::<HEADER_V4>() {
        let value = rest.split_at_checked(usize::from(*length));
        let (value, rest) = value.ok_or(OptionError::Truncated { entry: 1 })?;
        list.extend_from_slice(value);
        options = rest;
    }
    if !options.is_empty() {
        return Err(OptionError::Truncated { entry: 1 });
    }
    read(&list)
}

/// Reads [`OPTION_V6`] as it stands in a message, with its code and length.
///
/// # Errors
/// As [`read`].
pub fn read_v6(option: &[u8]) -> Result<Offer, OptionError> {
    match option.split_at_checked(HEADER_V6) {
        Some((_, list)) => read(list),
        None => Err(OptionError::Truncated { entry: 1 }),
    }
}

impl Offer {
    fn add(&mut self, uri: &str) {
        match uri.parse() {
            Ok(server) if self.servers.len() < MOST_SERVERS && !self.servers.contains(&server) => {
                self.servers.push(server);
            }
            Err(error) if self.ignored.len() < MOST_SERVERS => self.ignored.push(error),
            Ok(_) | Err(_) => {}
        }
    }
}
