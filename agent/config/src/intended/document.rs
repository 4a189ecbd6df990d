//! Documents of configuration that people write: CLI text, JSON of the native model, JSON of OpenConfig.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use super::Wish;
use super::difference::statements;
use crate::cli::{self, CliError, Statement, StatementAction};
use crate::edit::{Edit, EditTarget, Payload};
use crate::instance::InstancePath;
use crate::json::{self, DocumentContent, Flavour};
use crate::layer::LeafMark;
use crate::models::Models;
use crate::path::Path;
use crate::progress::ParseProgress;
use crate::schema::{NodeKind, Origin, Schema};
use crate::tree::{Leaf, NodeRef, Tree};

/// Form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentFormat {
    /// CLI text of the native model.
    Text,
    /// JSON of the native model, as RFC 7951 has it.
    Json,
    /// JSON of OpenConfig, as RFC 7951 has it.
    OpenConfig,
}

/// A document that was read.
#[derive(Clone, Debug)]
pub enum Document {
    /// Statements of the native model, in order.
    Native(Vec<Wish>),
    /// OpenConfig, which a Set takes as it is.
    OpenConfig(Bytes),
}

/// Reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    #[error("{}", lines(.0))]
    Text(Vec<CliError>),
    #[error("`{path}`: {reason}")]
    Json { path: String, reason: String },
    #[error("the document mixes OpenConfig and the native model: use one document for each")]
    Mixed,
}

fn lines(errors: &[CliError]) -> String {
    let mut text = String::new();
    for (number, error) in errors.iter().enumerate() {
        let _infallible = write!(text, "{}{error}", if number == 0 { "" } else { "\n" });
    }
    text
}

impl DocumentFormat {
    /// The form that a document has: one that begins with `{` is JSON, of OpenConfig if its members are.
    ///
    /// # Errors
    /// When the members are of both models.
    pub fn of(models: &Models, text: &str) -> Result<Self, DocumentError> {
        if !text.trim_start().starts_with('{') {
            return Ok(Self::Text);
        }
        let Ok(serde_json::Value::Object(members)) = serde_json::from_str(text) else {
            return Ok(Self::Json); // its parser says what is wrong
        };
        let is_of = |schema: &Schema, name: &str| {
            let (module, name) = name.split_once(':').map_or((None, name), |it| (Some(it.0), it.1));
            schema.child(schema.root(), module, name).is_some()
        };
        let is_native = |name: &String| is_of(&models.native, name);
        let is_openconfig = |name: &String| !is_native(name) && is_of(&models.openconfig, name);
        let openconfig = members.keys().filter(|name| is_openconfig(name)).count();
        match openconfig {
            0 => Ok(Self::Json),
            _ if members.keys().any(is_native) => Err(DocumentError::Mixed),
            _ => Ok(Self::OpenConfig),
        }
    }
}

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// All lines that cannot be read, or the place of the first error in JSON.
    pub fn read(
        models: &Models,
        text: &str,
        format: DocumentFormat,
    ) -> Result<Self, DocumentError> {
        match format {
            DocumentFormat::Text => {
                let read = cli::parse(&models.native, text).map_err(DocumentError::Text)?;
                let wish = |Statement { path, act, .. }| Wish { path, act };
                Ok(Self::Native(read.into_iter().map(wish).collect()))
            }
            DocumentFormat::Json => native_json(&models.native, text).map(Self::Native),
            DocumentFormat::OpenConfig => {
                Ok(Self::OpenConfig(Bytes::copy_from_slice(text.as_bytes())))
            }
        }
    }
}

fn native_json(schema: &Schema, text: &str) -> Result<Vec<Wish>, DocumentError> {
    let document = json::parse_with_progress(
        schema,
        &InstancePath::root(),
        text.as_bytes(),
        Flavour::Ietf,
        true,
        LeafMark::Explicit,
        &ParseProgress::default(),
    )
    .map_err(|error| DocumentError::Json {
        path: error.path.clone(),
        reason: error.fault.to_string(),
    })?;
    let DocumentContent::Branch(branch) = document.content else { return Ok(Vec::new()) };
    Ok(statements(schema, &InstancePath::root(), NodeRef::Branch(&Arc::new(branch))))
}

/// The tree that statements make out of nothing.
pub(super) fn tree_of(schema: &Schema, wishes: &[Wish]) -> Tree<()> {
    let mut tree = Tree::new();
    for Wish { path, act } in wishes {
        match act {
            StatementAction::Set(value) => {
                let present = tree.leaf(path).map(|leaf| leaf.value.clone());
                let value = super::placement::joined(schema, path, present, value);
                tree.set_leaf(schema, path, Leaf::new(value, ()));
            }
            StatementAction::Create => tree.branch_mut(schema, &path.0, &()).given = true,
            StatementAction::No => {
                tree.remove(schema, path);
            }
        }
    }
    tree
}

/// Payload of an update or replace of the root.
pub(super) fn payload_of(
    schema: &Schema,
    origin: Origin,
    tree: &Tree<()>,
) -> Option<(EditTarget, Payload)> {
    let root = NodeRef::Branch(tree.root());
    let text = json::print(schema, schema.root(), root, Flavour::Ietf, &|_| true)?;
    let target = EditTarget { origin, path: Path { elems: Vec::new() } };
    Some((target, Payload::Json { text: text.into(), ietf: true }))
}

/// The Set of an OpenConfig document: as an update, or in place of all OpenConfig of clients.
pub(super) fn openconfig_edit(text: Bytes, is_replace: bool) -> Edit {
    let target = EditTarget { origin: Origin::OpenConfig, path: Path { elems: Vec::new() } };
    let written = vec![(target, Payload::Json { text, ietf: true })];
    if is_replace {
        Edit { replaces: written, ..Edit::default() }
    } else {
        Edit { updates: written, ..Edit::default() }
    }
}

/// True for a leaf-list.
pub(super) fn is_leaf_list(schema: &Schema, path: &InstancePath) -> bool {
    path.last().is_some_and(|step| schema.node(step.node).kind == NodeKind::LeafList)
}
