//! Reference implementation of wildcards, one element at a time, for tests of [`super::expand`].

use super::{ElementLookup, Literal, PathError, PathPattern, PatternStep};
use crate::path::{ANY, ANY_DEPTH, Path};
use crate::resolve::KeyPattern;
use crate::schema::{NodeId, Schema};

pub(super) fn resolve_read(schema: &Schema, path: &Path) -> Result<Vec<PathPattern>, PathError> {
    schema.check_form(path)?;
    if let Literal { error: Some(error), .. } = schema.literal(path) {
        return Err(error);
    }
    let mut found = vec![PathPattern::default()];
    for (at, elem) in path.elems.iter().enumerate() {
        let place = ElementLookup { schema, path, at };
        found = match elem.name.as_str() {
            ANY_DEPTH => all_below(place, found)?,
            ANY => every_child(place, &found)?,
            _ => named_child(place, &found)?,
        };
        if found.is_empty() {
            return Err(place.unknown());
        }
    }
    Ok(without_included(found))
}

fn named_child(
    place: ElementLookup<'_>,
    parents: &[PathPattern],
) -> Result<Vec<PathPattern>, PathError> {
    let mut found = Vec::new();
    for parent in parents {
        if let Some(node) = place.child(parent.last().unwrap_or(place.schema.root())) {
            found.push(extend(parent, node, place.keys(node)?));
        }
    }
    Ok(found)
}

fn every_child(
    place: ElementLookup<'_>,
    parents: &[PathPattern],
) -> Result<Vec<PathPattern>, PathError> {
    let mut found = Vec::new();
    for parent in parents {
        let above = parent.last().unwrap_or(place.schema.root());
        for &node in &place.schema.node(above).children {
            match place.keys(node) {
                Ok(keys) => found.push(extend(parent, node, keys)),
                Err(_) if !place.elem().keys.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

fn all_below(
    place: ElementLookup<'_>,
    mut found: Vec<PathPattern>,
) -> Result<Vec<PathPattern>, PathError> {
    let mut next = 0;
    while next < found.len() {
        let below = every_child(place, &found[next..=next])?;
        found.extend(below);
        next += 1;
    }
    Ok(found)
}

fn extend(parent: &PathPattern, node: NodeId, keys: Option<KeyPattern>) -> PathPattern {
    let mut steps = parent.0.clone();
    steps.push(PatternStep { node, keys });
    PathPattern(steps)
}

/// Drops each pattern that another one includes, so that no node is read twice.
fn without_included(found: Vec<PathPattern>) -> Vec<PathPattern> {
    let mut patterns: Vec<PathPattern> = Vec::new();
    for pattern in found {
        if !patterns.iter().any(|k| k.includes(&pattern)) {
            patterns.retain(|k| !pattern.includes(k));
            patterns.push(pattern);
        }
    }
    patterns
}

impl PatternStep {
    fn covers(&self, other: &PatternStep) -> bool {
        self.node == other.node
            && match (&self.keys, &other.keys) {
                (Some(mine), Some(theirs)) => mine.covers(theirs),
                _ => true,
            }
    }
}

impl PathPattern {
    fn includes(&self, other: &PathPattern) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a.covers(b))
    }
}
