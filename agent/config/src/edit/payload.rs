//! Parsing of payloads into typed subtrees.

use std::sync::Arc;

use smol_str::SmolStr;

use super::{EditCause, Payload};
use crate::instance::InstancePath;
use crate::json::{self, DocumentContent, Flavour, JsonError, JsonErrorKind};
use crate::layer::LeafMark;
use crate::limits;
use crate::progress::ParseProgress;
use crate::schema::Schema;
use crate::tree::Branch;
use crate::value::{Scalar, Value};

/// The annotation that openconfig-metadata defines for the root.
pub const ANNOTATION: &str = "openconfig-metadata:protobuf-metadata";
/// openconfig-metadata bounds the binary value to 1 048 000 bytes; base64 makes 4 of 3.
const MAX_ANNOTATION_BASE64: usize = 1_048_000_usize.div_ceil(3) * 4;

/// Parsed payload.
#[derive(Debug)]
pub(super) enum ParsedPayload {
    Leaf(Value),
    /// A subtree; `empty` when the document was `{}`.
    Branch {
        branch: Arc<Branch<LeafMark>>,
        annotation: Option<SmolStr>,
        empty: bool,
    },
}

/// A payload that does not fit the schema: path below the target, and reason.
#[derive(Debug)]
pub struct InvalidPayload {
    pub path: String,
    pub cause: EditCause,
}

/// Parses a payload for its target.
pub(super) fn read(
    schema: &Schema,
    target: &InstancePath,
    payload: &Payload,
    progress: &ParseProgress,
) -> Result<ParsedPayload, InvalidPayload> {
    let here = |cause| InvalidPayload { path: target.to_path(schema).to_string(), cause };
    match payload {
        Payload::Scalar(scalar) => {
            let node = schema.node(target.last().map_or(schema.root(), |step| step.node));
            if let Scalar::List(items) = scalar {
                let fits = limits::LEAF_LIST_ENTRIES.check(items.len());
                fits.map_err(|error| here(EditCause::Limit(error)))?;
            }
            let value = node.parse_scalar(scalar).map(ParsedPayload::Leaf);
            value.map_err(|error| here(EditCause::BadValue(error.to_string())))
        }
        Payload::Cli { .. } => Err(here(EditCause::BadValue("CLI text has no path".to_owned()))),
        Payload::Json { text, ietf } => {
            let flavour = if *ietf { Flavour::Ietf } else { Flavour::Plain };
            let document = json::parse_with_progress(
                schema,
                target,
                text,
                flavour,
                true,
                LeafMark::Explicit,
                progress,
            )?;
            let annotation = annotation(document.annotations).map_err(here)?;
            match document.content {
                DocumentContent::Leaf(value) => Ok(ParsedPayload::Leaf(value)),
                DocumentContent::Branch(branch) => Ok(ParsedPayload::Branch {
                    branch: Arc::new(branch),
                    annotation,
                    empty: is_empty_object(text),
                }),
                DocumentContent::List(_) => Err(here(EditCause::MissingKeys(String::new()))),
            }
        }
    }
}

/// The supported annotation, whose value is stored unchanged.
fn annotation(
    annotations: Option<serde_json::Map<String, serde_json::Value>>,
) -> Result<Option<SmolStr>, EditCause> {
    let mut document = None;
    for (name, value) in annotations.into_iter().flatten() {
        match (name.as_str(), value) {
            (ANNOTATION, serde_json::Value::String(text)) => {
                if text.len() > MAX_ANNOTATION_BASE64 {
                    let size = "the annotation has more than 1048000 bytes".to_owned();
                    return Err(EditCause::BadValue(size));
                }
                document = Some(SmolStr::from(text));
            }
            (ANNOTATION, _) => {
                return Err(EditCause::BadValue(
                    "the annotation is not a base64 string".to_owned(),
                ));
            }
            (other, _) => {
                return Err(EditCause::Unsupported(format!(
                    "annotation `{other}` is not supported"
                )));
            }
        }
    }
    Ok(document)
}

fn is_empty_object(text: &[u8]) -> bool {
    let mut octets = text.iter().filter(|octet| !octet.is_ascii_whitespace());
    octets.next() == Some(&b'{') && octets.next() == Some(&b'}')
}

impl From<JsonError> for InvalidPayload {
    fn from(error: JsonError) -> Self {
        let cause = match error.fault {
            JsonErrorKind::Unknown => EditCause::UnknownPath,
            JsonErrorKind::ReadOnly => EditCause::ReadOnly,
            JsonErrorKind::Null => EditCause::Empty,
            JsonErrorKind::MissingKey(key) => EditCause::MissingKeys(key),
            JsonErrorKind::Stop(stop) => EditCause::from(stop),
            JsonErrorKind::KeyMismatch { key, path, payload } => {
                EditCause::KeyMismatch { key, entry: path, value: payload }
            }
            other => EditCause::BadValue(other.to_string()),
        };
        Self { path: error.path, cause }
    }
}
