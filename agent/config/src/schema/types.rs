//! Types of leaves: what values they take, in each of the encodings.

use std::fmt;

use crate::value::Value;

/// The type of a leaf after all typedefs.
#[derive(Clone, Debug)]
pub struct Type {}

/// Why a value does not fit its leaf, in words that follow the leaf's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(pub String);

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

impl Type {
    /// Reads the text of a key, of XML or of the command line.
    ///
    /// # Errors
    /// When the text is no value of this type.
    pub fn parse_text(&self, text: &str) -> Result<Value, ValueError> {
        Ok(Value::Str(text.into()))
    }
}
