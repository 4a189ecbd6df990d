//! Conditions, which can be true of a resource, and their names.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::resource::{Resource, ResourceError};
use crate::types::{AlarmType, REPORTED, REPORTED_TYPES};

/// A type of conditions: one of the table, or one that reporters have made up, `x-NAME`.
#[derive(Clone, Debug)]
pub struct Kind {
    pub name: SmolStr,
    pub row: &'static AlarmType,
}

/// Characters that the name of a type may have.
const MAX_KIND_NAME: usize = 64;

impl Kind {
    pub fn by_name(name: &str) -> Option<Self> {
        let is_made_up = name.len() <= MAX_KIND_NAME
            && name.strip_prefix(REPORTED_TYPES).is_some_and(|rest| {
                let is_plain =
                    |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
                !rest.is_empty() && rest.bytes().all(is_plain)
            });
        let row = if is_made_up { &REPORTED } else { AlarmType::by_name(name)? };
        Some(Self { name: name.into(), row })
    }
}

/// A statement that is true or false of a resource now. Its text is the id of its alarm: `link-down@interface:eth1`, or
/// `address-duplicate.2001:db8::1@interface:eth1` where one resource may have several of a type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Condition {
    pub kind: Kind,
    /// Empty where a resource can have one of the type alone.
    pub qualifier: SmolStr,
    pub resource: Resource,
}

/// Reason for which a text names no condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    #[error("`{0}` is not the name of an alarm: write TYPE@RESOURCE or TYPE.QUALIFIER@RESOURCE")]
    Form(SmolStr),
    #[error(
        "there is no alarm type `{0}`: name a type of a reporter's own x-NAME, with lower-case letters, digits and hyphens"
    )]
    Type(SmolStr),
    #[error(transparent)]
    Resource(#[from] ResourceError),
}

impl Condition {
    /// The condition of a type that the table has.
    ///
    /// # Panics
    /// When the table lacks it, which the first test finds.
    pub fn new(kind: &str, resource: Resource) -> Self {
        let kind = Kind::by_name(kind).expect("the table has the types that are reported");
        Self { kind, qualifier: SmolStr::default(), resource }
    }

    pub fn qualified(self, qualifier: &str) -> Self {
        Self { qualifier: qualifier.into(), ..self }
    }

    fn key(&self) -> (&str, &str, &Resource) {
        (&self.kind.name, &self.qualifier, &self.resource)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Condition {}

impl PartialOrd for Condition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Condition {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.name)?;
        if !self.qualifier.is_empty() {
            write!(f, ".{}", self.qualifier)?;
        }
        write!(f, "@{}", self.resource)
    }
}

holdfast_config::text_form!(Condition);

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (name, resource) =
            text.split_once('@').ok_or_else(|| ConditionError::Form(text.into()))?;
        let (kind, qualifier) = match name.split_once('.') {
            Some((_, "")) => return Err(ConditionError::Form(text.into())),
            Some(parts) => parts,
            None => (name, ""),
        };
        let kind = Kind::by_name(kind).ok_or_else(|| ConditionError::Type(kind.into()))?;
        Ok(Self { kind, qualifier: qualifier.into(), resource: resource.parse()? })
    }
}
