//! The parameters of an instance, as expressions and handlers see them.

use std::sync::Arc;

use minijinja::Value as TemplateValue;
use smol_str::SmolStr;

/// The parameters of one instance.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Name of the instance, such as `l3-access[name='acme']`.
    pub tag: SmolStr,
    /// Name of the type.
    pub service: SmolStr,
    pub key: SmolStr,
    pub(crate) values: TemplateValue,
    /// All of it with defaults, for handlers: an RFC 7951 document, empty where the type has none.
    pub(crate) document: Arc<str>,
}

/// Reason to refuse the parameters of an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParametersError(pub String);
