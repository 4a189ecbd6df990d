//! Rows of the fence layer: one for each item, with its owners.

use std::collections::BTreeMap;

use super::FENCE_CODE;
use super::bytes::{self, RowReader};
use crate::fenced_leaves::FencedLeaf;
use crate::instance::InstancePath;
use crate::models::Models;
use crate::path::Path;
use crate::value::Value;

/// Key of the row of an item: the text of its leaf's path, which says itself what the item is.
pub(super) fn key(models: &Models, leaf: &InstancePath) -> Vec<u8> {
    let mut octets = vec![FENCE_CODE];
    octets.extend(leaf.to_path(&models.native).to_string().as_bytes());
    octets
}

pub(super) fn write(fenced: &FencedLeaf) -> Vec<u8> {
    let mut octets = Vec::new();
    bytes::put_value(&mut octets, &Value::Bool(fenced.keeps_entry));
    for (owner, metric) in &fenced.owners {
        bytes::put_value(&mut octets, &Value::Str(owner.to_string().into()));
        bytes::put_value(&mut octets, &Value::Uint((*metric).into()));
    }
    octets
}

/// True of the key of a row that holds an item.
pub(super) fn is_key(key: &[u8]) -> bool {
    key.first() == Some(&FENCE_CODE)
}

/// Reads a row; `None` for an item, or an owner, that this version does not know.
pub(super) fn read(
    models: &Models,
    key: &[u8],
    value: &[u8],
) -> Result<Option<(InstancePath, FencedLeaf)>, &'static str> {
    let text = std::str::from_utf8(&key[1..]).map_err(|_| "the path of a fence is not text")?;
    let path: Path = text.parse().map_err(|_| "the path of a fence is none")?;
    let mut reader = RowReader(value);
    let Value::Bool(keeps_entry) = reader.value()? else {
        return Err("a fence does not say whether its entry stays");
    };
    let mut owners = BTreeMap::new();
    let mut knows_all = true;
    while !reader.0.is_empty() {
        let (Value::Str(owner), Value::Uint(metric)) = (reader.value()?, reader.value()?) else {
            return Err("an owner of a fence is not text with a metric");
        };
        match (owner.parse(), u32::try_from(metric)) {
            (Ok(owner), Ok(metric)) => drop(owners.insert(owner, metric)),
            _ => knows_all = false,
        }
    }
    let leaf = models.native.resolve_write(&path).ok();
    let leaf = leaf.filter(|leaf| {
        knows_all && leaf.last().is_some_and(|last| models.fence.rule(last.node).is_some())
    });
    Ok(leaf.map(|leaf| (leaf, FencedLeaf { keeps_entry, owners })))
}
