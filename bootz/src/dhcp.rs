//! The DHCP options that name bootstrap servers (RFC 8572 section 8).

use crate::uri::{ServerUri, UriError};

/// DHCPv4 option `OPTION_V4_SZTP_REDIRECT`. Servers send it only when the parameter request list names it.
pub const OPTION_V4: u8 = 143;
/// DHCPv6 option `OPTION_V6_SZTP_REDIRECT`, for the option request option.
pub const OPTION_V6: u16 = 136;

/// Bytes of the length before each URI.
const LENGTH: usize = 2;
/// Bytes before the value of a DHCPv4 option: its code and its length.
const HEADER_V4: usize = 2;
/// Bytes before the value of a DHCPv6 option: its code and its length, two each.
const HEADER_V6: usize = 4;

/// Servers taken from one option, and ignored entries reported. One option has room for five thousand entries, and
/// each server is tried in turn; owners have a handful.
const MAX_SERVERS: usize = 16;

/// Content of an option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SztpRedirect {
    /// First sixteen bootstrap servers, in the order of the option and without duplicates.
    pub servers: Vec<ServerUri>,
    /// First sixteen entries that are malformed or have another scheme.
    pub ignored: Vec<UriError>,
}

/// Reason for rejecting an option.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The list ends within an entry.
    #[error("the list of servers ends within its entry {entry}")]
    Truncated {
        /// Counted from 1.
        entry: usize,
    },
    /// An entry is not UTF-8.
    #[error("entry {entry} of the list of servers is not text")]
    NoText {
        /// Counted from 1.
        entry: usize,
    },
}

/// Parses the value of either option, without its code and length: pairs of a length in two bytes, big-endian,
/// and a URI.
///
/// # Errors
/// When the list is cut off or an entry is not UTF-8. A damaged option is rejected as a whole.
pub fn read(mut list: &[u8]) -> Result<SztpRedirect, OptionError> {
    let mut offer = SztpRedirect::default();
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

/// Parses [`OPTION_V4`] with its code and length. A value that is too long for one option is split over several,
/// which are joined first (RFC 3396).
///
/// # Errors
/// The errors of [`read`].
pub fn read_v4(mut options: &[u8]) -> Result<SztpRedirect, OptionError> {
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

/// Parses [`OPTION_V6`] with its code and length.
///
/// # Errors
/// The errors of [`read`].
pub fn read_v6(option: &[u8]) -> Result<SztpRedirect, OptionError> {
    match option.split_at_checked(HEADER_V6) {
        Some((_, list)) => read(list),
        None => Err(OptionError::Truncated { entry: 1 }),
    }
}

impl SztpRedirect {
    fn add(&mut self, uri: &str) {
        match uri.parse() {
            Ok(server) if self.servers.len() < MAX_SERVERS && !self.servers.contains(&server) => {
                self.servers.push(server);
            }
            Err(error) if self.ignored.len() < MAX_SERVERS => self.ignored.push(error),
            Ok(_) | Err(_) => {}
        }
    }
}
