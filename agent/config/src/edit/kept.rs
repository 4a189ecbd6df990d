//! What was sent back as Get showed it keeps its marks, and counts as asked for all the same when
//! the other origin is written in the same request.

use super::{Cause, Conflict, EditError, Operation};
use crate::configuration::Configuration;
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, Mark};
use crate::schema::Origin;
use crate::value::Value;

/// Defaults and factory leaves in the kept units that the other origin now wants otherwise.
pub(super) fn conflicts(
    before: &Configuration,
    layers: &Layers,
    kept: &[(Operation, Origin, InstancePath)],
) -> Vec<EditError> {
    let mut errors = Vec::new();
    for (operation, origin, unit) in kept {
        let Some(found) = before.config_view(*origin).get(unit) else { continue };
        found.walk(&mut unit.clone(), &mut |path, leaf| {
            if leaf.meta == Mark::Explicit {
                return;
            }
            let conflict = other_side(before, layers, *origin, path, &leaf.value);
            errors.extend(conflict.map(|conflict| EditError {
                operation: *operation,
                path: path.to_path(before.models().schema(*origin)).to_string(),
                cause: Cause::Conflict(Box::new(conflict)),
            }));
        });
    }
    errors
}

/// The other origin's explicit value of this leaf, when it is another one.
fn other_side(
    before: &Configuration,
    layers: &Layers,
    origin: Origin,
    path: &InstancePath,
    value: &Value,
) -> Option<Conflict> {
    let map = &before.models().map;
    let mut counterparts = Vec::new();
    let other = match origin {
        Origin::OpenConfig => {
            counterparts.extend(map.down(path, value).ok().flatten());
            Origin::Native
        }
        Origin::Native => {
            map.up_leaf(path, value, &mut |path, value| counterparts.push((path, value)));
            Origin::OpenConfig
        }
    };
    let (layer, schema) = (LayerKey::client(other), before.models().schema(other));
    counterparts.into_iter().find_map(|(path, shown)| {
        let held = layers.tree(layer).leaf(&path)?;
        (held.meta == Mark::Explicit && held.value != shown).then(|| Conflict {
            path: path.to_path(schema).to_string(),
            layers: (layer, LayerKey::client(origin)),
            values: (format!("`{}`", held.value), format!("`{value}`")),
        })
    })
}
