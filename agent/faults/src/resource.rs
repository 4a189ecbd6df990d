//! Things that can have a fault.

use std::fmt;
use std::str::FromStr;

use smol_str::SmolStr;

/// A thing that can have a fault, such as `interface:eth1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// The agent itself.
    Agent,
    Interface(SmolStr),
    /// An instance of a service, by its name: TYPE[KEY='VALUE'].
    Service(SmolStr),
    /// An object of the engine, by the name that `show` prints.
    Value(SmolStr),
}

/// Reason for which a text names no resource.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no resource: `agent`, `interface:NAME`, `service:NAME` or `value:NAME`")]
pub struct ResourceError(SmolStr);

impl Resource {
    /// The thing without its kind.
    pub fn item(&self) -> &str {
        match self {
            Self::Agent => "agent",
            Self::Interface(name) | Self::Service(name) | Self::Value(name) => name,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent => f.write_str("agent"),
            Self::Interface(name) => write!(f, "interface:{name}"),
            Self::Service(name) => write!(f, "service:{name}"),
            Self::Value(name) => write!(f, "value:{name}"),
        }
    }
}

impl FromStr for Resource {
    type Err = ResourceError;

    fn from_str(text: &str) -> Result<Self, ResourceError> {
        match text.split_once(':') {
            None if text == "agent" => Ok(Self::Agent),
            Some(("interface", name)) if !name.is_empty() => Ok(Self::Interface(name.into())),
            Some(("service", name)) if !name.is_empty() => Ok(Self::Service(name.into())),
            Some(("value", name)) if !name.is_empty() => Ok(Self::Value(name.into())),
            _ => Err(ResourceError(text.into())),
        }
    }
}
