//! Whole configurations in one text, as in a factory or boot configuration.
//!
//! The text is a JSON document or CLI text: a document begins with a brace, and no line of the CLI does.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cli::{self, CliError, Statement, StatementAction};
use crate::configuration::Configuration;
use crate::edit::{
    Attribution, Edit, EditCause, EditError, EditErrors, EditOperation, EditTarget, Payload,
    check_supported,
};
use crate::instance::InstancePath;
use crate::json::{self, DocumentContent, Flavour};
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::models::Models;
use crate::path::Path;
use crate::progress::CancelToken;
use crate::schema::{Origin, Schema};
use crate::tree::{Leaf, Tree};
use crate::value::Value;

/// The client layers of an empty box after it receives these texts: native, and OpenConfig (always a document). An
/// empty text stands for an empty document. Each `no` of the native text is kept as [`LeafMark::Absent`].
pub(crate) fn layers(
    models: &Arc<Models>,
    native: &[u8],
    openconfig: &[u8],
    blame: impl Fn(Origin) -> EditOperation,
) -> Result<Layers, EditErrors> {
    let mut documents = Vec::new();
    let lines = !native.is_empty() && !is_document(native);
    if !native.is_empty() && !lines {
        documents.push((Origin::Native, native));
    }
    if !openconfig.is_empty() {
        documents.push((Origin::OpenConfig, openconfig));
    }
    let mut layers = client(models, &documents, &blame)?;
    if lines {
        let operation = blame(Origin::Native);
        *layers.tree_mut(LayerKey::CLIENT_NATIVE) =
            text(models, native, LeafMark::Explicit, operation)?;
    }
    Ok(layers)
}

/// Parses a factory configuration, which is native, and marks each leaf as [`LeafMark::Factory`].
///
/// # Errors
/// When it cannot be parsed, or is not valid on this device.
pub fn factory(models: &Arc<Models>, octets: &[u8]) -> Result<Tree<LeafMark>, EditErrors> {
    if !is_document(octets) {
        let tree = text(models, octets, LeafMark::Factory, EditOperation::Factory)?;
        let mut layers = Layers::new();
        *layers.tree_mut(LayerKey::CLIENT_NATIVE) = tree.clone();
        let empty = Configuration::new(models.clone(), Layers::new());
        empty.with_layers(
            layers,
            &Attribution::of_trees(models, |_| EditOperation::Factory),
            &CancelToken::default(),
        )?;
        return Ok(tree);
    }
    client(models, &[(Origin::Native, octets)], &|_| EditOperation::Factory)?;
    let root = InstancePath::root();
    let read = json::parse(&models.native, &root, octets, Flavour::Ietf, true, LeafMark::Factory);
    match read.map(|document| document.content) {
        Ok(DocumentContent::Branch(branch)) => Ok(Tree::from_root(Arc::new(branch))),
        // Unreachable, because the document was parsed before.
        Ok(_) | Err(_) => Ok(Tree::new()),
    }
}

pub(crate) fn is_document(text: &[u8]) -> bool {
    text.iter().find(|octet| !octet.is_ascii_whitespace()) == Some(&b'{')
}

/// The client layers of an empty box after it receives these documents, with all checks.
fn client(
    models: &Arc<Models>,
    documents: &[(Origin, &[u8])],
    blame: &impl Fn(Origin) -> EditOperation,
) -> Result<Layers, EditErrors> {
    let mut edit = Edit::default();
    for (origin, text) in documents {
        let target = EditTarget { origin: *origin, path: Path::root() };
        edit.updates.push((target, Payload::Json { text: text.to_vec().into(), ietf: true }));
    }
    let blamed = |error: EditError| match error.operation {
        EditOperation::Update(at) => EditError { operation: blame(documents[at].0), ..error },
        _ => error,
    };
    let empty = Configuration::new(models.clone(), Layers::new());
    let after = empty.edit(&edit).map_err(|errors| errors.map(blamed))?;
    if after.layers().annotation.is_some() {
        let cause =
            EditCause::Unsupported("an annotation belongs to what clients configure".to_owned());
        let error = EditError { operation: blame(Origin::OpenConfig), path: "/".to_owned(), cause };
        return Err(error.into());
    }
    Ok(after.layers().clone())
}

/// Parses CLI text into a tree with this mark on each leaf.
fn text(
    models: &Models,
    octets: &[u8],
    mark: LeafMark,
    operation: EditOperation,
) -> Result<Tree<LeafMark>, EditErrors> {
    let refused =
        |path: String, cause: EditCause| EditErrors::from(EditError { operation, path, cause });
    let octets = std::str::from_utf8(octets)
        .map_err(|error| refused("/".to_owned(), EditCause::Malformed(error.to_string())))?;
    let schema = &models.native;
    let misread = |error: CliError| EditError {
        operation,
        path: "/".to_owned(),
        cause: EditCause::Malformed(error.to_string()),
    };
    let statements = cli::parse(schema, octets)
        .map_err(|errors| EditErrors::from(errors.into_iter().map(misread).collect::<Vec<_>>()))?;
    let (mut tree, absent) = apply_statements(schema, statements, mark);
    check_supported(models, Origin::Native, &InstancePath::root(), tree.root())
        .map_err(|misfit| refused(misfit.path, misfit.cause))?;
    for (line, path) in absent {
        let place = path.to_path(schema).to_string();
        if mark == LeafMark::Factory {
            let reason = format!(
                "line {line}: a factory configuration cannot remove anything: leave out `no`"
            );
            return Err(refused(place, EditCause::Unsupported(reason)));
        }
        if !put_absent(schema, &mut tree, &path) {
            let reason = format!("line {line}: `no` needs a leaf or an entry here");
            return Err(refused(place, EditCause::Unsupported(reason)));
        }
    }
    Ok(tree)
}

/// Applies statements to an empty tree. Also returns the paths that are to be absent, with their line numbers.
fn apply_statements(
    schema: &Schema,
    statements: Vec<Statement>,
    mark: LeafMark,
) -> (Tree<LeafMark>, Vec<(usize, InstancePath)>) {
    let mut tree = Tree::new();
    let mut absent: BTreeMap<InstancePath, usize> = BTreeMap::new();
    for Statement { line, path, act } in statements {
        match act {
            StatementAction::No => {
                tree.remove(schema, &path);
                let below = absent.range(path.clone()..).map(|(other, _)| other);
                let below: Vec<_> =
                    below.take_while(|other| other.starts_with(&path)).cloned().collect();
                for other in below {
                    absent.remove(&other);
                }
                absent.insert(path, line);
                continue;
            }
            StatementAction::Set(value) => tree.set_leaf(schema, &path, Leaf::new(value, mark)),
            StatementAction::Create => tree.branch_mut(schema, &path.0, &mark).given = true,
        }
        // A later line overrides earlier ones.
        for length in 0..=path.0.len() {
            if absent.is_empty() {
                break;
            }
            absent.remove(&InstancePath(path.0[..length].to_vec()));
        }
    }
    let mut absent: Vec<_> = absent.into_iter().map(|(path, line)| (line, path)).collect();
    absent.sort_unstable();
    (tree, absent)
}

/// Marks a leaf or entry as absent; false when the path is neither.
fn put_absent(schema: &Schema, tree: &mut Tree<LeafMark>, path: &InstancePath) -> bool {
    match path.last() {
        Some(step) if schema.node(step.node).leaf.is_some() => {
            tree.set_leaf(schema, path, Leaf::new(Value::Empty, LeafMark::Absent));
        }
        Some(step) if step.keys.is_some() => {
            tree.branch_mut(schema, &path.0, &LeafMark::Absent).given = true;
        }
        _ => return false,
    }
    true
}
