//! Units that a request repeats as Get showed them. They keep their marks, but count as set explicitly when the
//! same request writes the other origin.

use super::attribution::{Attribution, Subject};
use super::errors::MAX_CONFLICTS;
use super::{Conflict, EditCause, EditError, EditOperation};
use crate::configuration::Configuration;
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::schema::Origin;
use crate::value::Value;

/// Conflicts of defaults and factory leaves in kept units with new values of the other origin.
pub(super) fn conflicts(
    before: &Configuration,
    layers: &Layers,
    kept: &[(EditOperation, Origin, InstancePath)],
    attribution: &Attribution<'_>,
) -> Vec<EditError> {
    let mut errors = Vec::new();
    for (operation, origin, unit) in kept {
        let Some(found) = before.config_view(*origin).get(unit) else { continue };
        found.walk(&mut unit.clone(), &mut |path, leaf| {
            if leaf.meta == LeafMark::Explicit || errors.len() == MAX_CONFLICTS {
                return;
            }
            let Some((other, stated)) =
                counterpart_value(before, layers, *origin, path, &leaf.value)
            else {
                return;
            };
            let subject = match origin {
                Origin::OpenConfig => Subject { openconfig: Some(path), native: Some(&other) },
                Origin::Native => Subject { openconfig: Some(&other), native: Some(path) },
            };
            let values = match origin {
                Origin::OpenConfig => (&stated, &leaf.value),
                Origin::Native => (&leaf.value, &stated),
            };
            let sides = [
                attribution.side(LayerKey::CLIENT_NATIVE, subject, Some(values.0)),
                attribution.side(LayerKey::CLIENT_OPENCONFIG, subject, Some(values.1)),
            ];
            let cause = EditCause::Conflict(Box::new(Conflict { sides }));
            let path = path.to_path(before.models().schema(*origin));
            errors.push(EditError::new(*operation, path, cause));
        });
    }
    errors
}

/// The other origin's explicit value of this leaf, if different.
fn counterpart_value(
    before: &Configuration,
    layers: &Layers,
    origin: Origin,
    path: &InstancePath,
    value: &Value,
) -> Option<(InstancePath, Value)> {
    let map = &before.models().map;
    let mut counterparts = Vec::new();
    let other = match origin {
        Origin::OpenConfig => {
            counterparts.extend(map.down(path, value).ok().flatten());
            Origin::Native
        }
        Origin::Native => {
            map.leaf_to_openconfig(path, value, &mut |path, value| {
                counterparts.push((path, value))
            });
            Origin::OpenConfig
        }
    };
    let layer = LayerKey::client(other);
    counterparts.into_iter().find_map(|(path, visible)| {
        let stored = layers.tree(layer).leaf(&path)?;
        (stored.meta == LeafMark::Explicit && stored.value != visible)
            .then(|| (path, stored.value.clone()))
    })
}
