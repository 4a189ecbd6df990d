//! What is wrong with a value, field by field.

use std::fmt;

use smol_str::SmolStr;

/// Something that no system could ever have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InvalidField {
    /// As people know it; none where it is the value as a whole.
    pub field: Option<SmolStr>,
    pub reason: String,
}

impl InvalidField {
    /// This field is the reason.
    pub fn new(field: impl Into<SmolStr>, reason: impl Into<String>) -> Self {
        Self { field: Some(field.into()), reason: reason.into() }
    }

    /// The value is wrong, but no field by itself.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self { field: None, reason: reason.into() }
    }
}

impl fmt::Display for InvalidField {
    /// `mtu: more than 65535`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// All of them in one line.
pub(crate) fn listed(fields: &[InvalidField]) -> String {
    let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
    fields.join("; ")
}
