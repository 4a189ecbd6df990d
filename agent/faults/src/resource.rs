//! Things that can have a fault.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A thing that can have a fault, such as `interface:eth1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Resource {
    /// The agent itself.
    Agent,
    /// The box as a whole.
    Box,
    /// An uplink group.
    Group(SmolStr),
    Interface(SmolStr),
    /// An address that routes have as their gateway.
    NextHop(IpAddr),
    /// Anything else that reporters name.
    Other(SmolStr),
    /// An instance of a service, by its name: TYPE[KEY='VALUE'].
    Service(SmolStr),
    /// An object of the engine, by the name that `show` prints.
    Value(SmolStr),
}

/// Reason for which a text names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a resource: write `agent`, `box`, `group:NAME`, `interface:NAME`, `next-hop:ADDRESS`, `service:NAME`, `value:NAME` or `x:NAME`"
)]
pub struct ResourceError(SmolStr);

/// How texts of resources begin.
pub(crate) const KINDS: [&str; 8] =
    ["agent", "box", "group:", "interface:", "next-hop:", "service:", "value:", "x:"];

/// Longest text of a resource: the longest key of a service, and room.
const MAX_RESOURCE: usize = 1024;

impl Resource {
    pub(crate) fn is_group(&self) -> bool {
        matches!(self, Self::Group(_))
    }

    /// The thing without its kind.
    pub fn item(&self) -> Cow<'_, str> {
        match self {
            Self::Agent => "agent".into(),
            Self::Box => "box".into(),
            Self::Group(name)
            | Self::Interface(name)
            | Self::Other(name)
            | Self::Service(name)
            | Self::Value(name) => name.as_str().into(),
            Self::NextHop(address) => address.to_string().into(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Agent | Self::Box => return f.write_str(&self.item()),
            Self::Group(_) => "group",
            Self::Interface(_) => "interface",
            Self::NextHop(_) => "next-hop",
            Self::Other(_) => "x",
            Self::Service(_) => "service",
            Self::Value(_) => "value",
        };
        write!(f, "{kind}:{}", self.item())
    }
}

holdfast_config::text_form!(Resource);

impl FromStr for Resource {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        let wrong = || ResourceError(text.into());
        if text.len() > MAX_RESOURCE || text.contains(char::is_control) {
            return Err(wrong());
        }
        match text.split_once(':') {
            None if text == "agent" => Ok(Self::Agent),
            None if text == "box" => Ok(Self::Box),
            Some((_, "")) | None => Err(wrong()),
            Some(("group", name)) => Ok(Self::Group(name.into())),
            Some(("interface", name)) => Ok(Self::Interface(name.into())),
            Some(("next-hop", address)) => address.parse().map(Self::NextHop).map_err(|_| wrong()),
            Some(("service", name)) => Ok(Self::Service(name.into())),
            Some(("value", name)) => Ok(Self::Value(name.into())),
            Some(("x", name)) => Ok(Self::Other(name.into())),
            Some(_) => Err(wrong()),
        }
    }
}
