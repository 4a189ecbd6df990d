//! What a box boots with: both parts of a boot configuration, and the pair of layers they come to.

use std::sync::Arc;

use crate::configuration::Configuration;
use crate::edit::{Attribution, Cause, Edit, EditError, EditErrors, Operation, Payload, Target};
use crate::layer::{LayerKey, Layers};
use crate::models::Models;
use crate::path::Path;
use crate::schema::Origin;

/// A boot configuration as its owner set it. All of it replaces all of what was set before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The native part: a JSON document, or text of the command line. Nothing when empty.
    pub vendor: Vec<u8>,
    /// The OpenConfig part: a JSON document. Nothing when empty.
    pub openconfig: Vec<u8>,
    /// What is kept for whoever asks what was set.
    pub record: Arc<[u8]>,
}

impl Configuration {
    /// What this would be when the box boots with `boot`; without one, nothing is reserved for it
    /// any more. The client's layers stay as they are.
    ///
    /// # Errors
    /// When a part cannot be read, or the parts contradict each other.
    pub fn booted(&self, boot: Option<&Boot>) -> Result<Self, EditErrors> {
        let mut layers = self.layers().clone();
        let pair = match boot {
            Some(boot) => pair(self.shared_models(), boot)?,
            None => Layers::new(),
        };
        for (layer, from) in [
            (LayerKey::BOOT_NATIVE, LayerKey::CLIENT_NATIVE),
            (LayerKey::BOOT_OPENCONFIG, LayerKey::CLIENT_OPENCONFIG),
        ] {
            *layers.tree_mut(layer) = pair.tree(from).clone();
        }
        layers.boot_record = boot.map(|boot| boot.record.clone());
        self.with_layers(layers, &Attribution::of_trees(self.models(), Operation::Boot))
    }
}

/// The parts as a pair of layers of their own: read, and checked against each other, as a client's
/// pair on an empty box would be.
fn pair(models: &Arc<Models>, boot: &Boot) -> Result<Layers, EditErrors> {
    let root = |origin| Target { origin, path: Path::root() };
    let mut edit = Edit::default();
    let mut parts = Vec::new();
    for (origin, text) in [(Origin::Native, &boot.vendor), (Origin::OpenConfig, &boot.openconfig)] {
        if !text.is_empty() {
            edit.updates.push((root(origin), Payload::Json { text: text.clone(), ietf: true }));
            parts.push(origin);
        }
    }
    let part = |error: EditError| EditError {
        operation: match error.operation {
            Operation::Update(at) => Operation::Boot(parts[at]),
            other => other,
        },
        ..error
    };
    let empty = Configuration::new(models.clone(), Layers::new());
    let pair =
        empty.edit(&edit).map_err(|errors| EditErrors(errors.0.into_iter().map(part).collect()))?;
    if pair.layers().annotation.is_some() {
        return Err(EditErrors(vec![EditError {
            operation: Operation::Boot(Origin::OpenConfig),
            path: "/".to_owned(),
            cause: Cause::Unsupported("an annotation belongs to what clients configure".to_owned()),
        }]));
    }
    Ok(pair.layers().clone())
}
