//! Database rows of layers: one for each list entry, one for the leaves outside of lists.
//!
//! A row's key consists of the layer, the list and the keys of all entries on the way; its value holds the leaves
//! of the entry itself. Claims of services have rows of the same form, with the name of the claim before the keys; the
//! service plan of an instance is one row. Nodes are identified by a hash of their path with modules, never by their
//! [`NodeId`], because another version of the agent may number them differently. Rows that such a version does not know are
//! skipped and counted.

mod boot;
mod bytes;
mod fence;
mod fields;
mod plan;
mod reader;
mod transaction;
pub mod varint;

use std::sync::Arc;

use self::bytes::RowReader;
pub use self::reader::{LayersReader, RowSplit};
pub use self::transaction::{read_transaction, write_transaction};
use crate::claims::{Claim, ClaimKey, Claims, ServiceTag};
use crate::fenced_leaves::Fences;
use crate::instance::Keys;
use crate::layer::{BootConfiguration, LayerKey, Layers, LeafMark, Owner};
use crate::models::Models;
use crate::schema::{NodeHashes, NodeId, Origin};
use crate::secrets::{SecretLeaf, Secrets};
use crate::service_plan::Book;
use crate::tree::{Branch, Child, List, OptionalBranch, beside};
use crate::value::Value;

/// A row to write, or to remove when it has no value. A row with a secret prints without it.
#[derive(Clone, PartialEq, Eq)]
pub struct RowChange {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// True of the key of a row that holds a secret.
pub fn is_secret_row(key: &[u8]) -> bool {
    key.starts_with(META_SECRET)
}

/// True of the key of a row that holds a part of a claim, or a service plan.
pub fn is_service_row(key: &[u8]) -> bool {
    let codes = [claim_code(Origin::Native), claim_code(Origin::OpenConfig), PLAN_CODE];
    key.first().is_some_and(|code| codes.contains(code))
}

/// True of the key of a row that a return to an earlier configuration restores: of the two client layers, the annotation
/// of the root, and the secrets of users.
pub fn is_client_row(key: &[u8]) -> bool {
    let codes = [LayerKey::CLIENT_NATIVE, LayerKey::CLIENT_OPENCONFIG].map(code);
    key.first().is_some_and(|code| codes.contains(code))
        || key == META_ANNOTATION
        || is_secret_row(key)
}

/// True of the key of a row that holds configuration of boot, of clients or of services. The others hold leases, fences,
/// switches, service plans, and the texts of boot and factory.
pub fn is_configuration_row(key: &[u8]) -> bool {
    let layers = [LayerKey::BOOT_NATIVE, LayerKey::BOOT_OPENCONFIG].map(code);
    let claims = [Origin::Native, Origin::OpenConfig].map(claim_code);
    is_client_row(key)
        || key.first().is_some_and(|code| layers.contains(code) || claims.contains(code))
}

impl std::fmt::Debug for RowChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self
            .value
            .as_deref()
            .map(|value| if is_secret_row(&self.key) { &b"(withheld)"[..] } else { value });
        f.debug_struct("RowChange").field("key", &self.key).field("value", &value).finish()
    }
}

/// A stored row that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the stored row {}: {reason}", hex(.key))]
pub struct RowError {
    pub key: Vec<u8>,
    pub reason: &'static str,
}

/// First byte of the keys of rows outside of layers.
const META: u8 = 0xff;
const META_ANNOTATION: &[u8] = &[META, b'a'];
const META_OFF: &[u8] = &[META, b'o'];
const META_BOOT: &[u8] = &[META, b'b'];
const META_BOOT_BEFORE: &[u8] = &[META, b'v'];
const META_FACTORY: &[u8] = &[META, b'f'];
/// With the code of the leaf and the name of the user behind it.
const META_SECRET: &[u8] = &[META, b's'];
/// Replaces the mark of a presence container that was created as such.
const GIVEN: u8 = 0xff;
/// Flag in the first byte of a value: the entry was created as such.
const FLAG_GIVEN: u8 = 0x80;

/// Rows that differ between `old` and `new`. The cost is proportional to the difference.
pub fn layer_rows_diff(models: &Models, old: &Layers, new: &Layers) -> Vec<RowChange> {
    let mut changes = Vec::new();
    let annotation = |layers: &Layers| layers.annotation.as_ref().map(|it| it.as_bytes().to_vec());
    meta(META_ANNOTATION, annotation(old), annotation(new), &mut changes);
    let off = |layers: &Layers| {
        let bits = layers.off.bits();
        (bits != 0).then(|| bits.to_be_bytes().to_vec())
    };
    meta(META_OFF, off(old), off(new), &mut changes);
    if old.boot != new.boot {
        let value = new.boot.as_deref().map(boot::write);
        changes.push(RowChange { key: META_BOOT.to_vec(), value });
    }
    if old.boot_before != new.boot_before {
        // An empty row stands for no boot configuration before the trial.
        let before = |before: &Option<Arc<BootConfiguration>>| {
            before.as_deref().map_or(Vec::new(), boot::write)
        };
        let value = new.boot_before.as_ref().map(before);
        changes.push(RowChange { key: META_BOOT_BEFORE.to_vec(), value });
    }
    if old.factory_text != new.factory_text {
        let value = new.factory_text.as_ref().map(|text| text.to_vec());
        changes.push(RowChange { key: META_FACTORY.to_vec(), value });
    }
    for (user, leaf, secret) in Secrets::differences(&old.secrets, &new.secrets) {
        let key = [META_SECRET, &[secret_code(leaf)], user.as_bytes()].concat();
        changes.push(RowChange { key, value: secret.map(|it| it.expose().to_vec()) });
    }
    // The layers of services are the join of the claims, and the fence layer follows from its items: those have rows of
    // their own.
    let has_rows = |layer: &LayerKey| !matches!(layer.owner, Owner::Service | Owner::Fence);
    for layer in LayerKey::ALL.into_iter().filter(has_rows) {
        let old = old.tree(layer).root();
        let new = new.tree(layer).root();
        let mut writer = RowWriter::new(models, layer.origin, code(layer), &mut changes);
        writer.entry(models.schema(layer.origin).root(), None, Some(old), Some(new));
    }
    for (key, old, new) in Claims::differences(old.claims(), new.claims()) {
        for origin in [Origin::Native, Origin::OpenConfig] {
            let root = |claim: Option<&Claim>| claim.map(|it| Arc::clone(it.tree(origin).root()));
            let old = root(old);
            let new = root(new);
            let mut writer = RowWriter::new(models, origin, claim_code(origin), &mut changes);
            put_claim_key(&mut writer.keys, key);
            writer.entry(models.schema(origin).root(), None, old.as_ref(), new.as_ref());
        }
    }
    for (leaf, new) in Fences::differences(old.fences(), new.fences()) {
        let key = fence::key(models, leaf);
        changes.push(RowChange { key, value: new.map(fence::write) });
    }
    for (tag, _, new) in Book::differences(&old.book, &new.book) {
        changes.push(RowChange { key: plan::key(tag), value: new.map(plan::write) });
    }
    changes
}

/// Writes the name of a claim, which stands before the keys of entries in the keys of its rows.
fn put_claim_key(octets: &mut Vec<u8>, key: &ClaimKey) {
    let ClaimKey { tag: ServiceTag { service, key_name, key }, component: [of, name], state } = key;
    for part in [service, key_name, key, of, name, state] {
        bytes::put_value(octets, &Value::Str(part.clone()));
    }
}

fn read_claim_key(octets: &mut RowReader<'_>) -> Result<ClaimKey, &'static str> {
    let mut part = || match octets.value()? {
        Value::Str(part) => Ok(part),
        _ => Err("the name of a claim is not text"),
    };
    let tag = ServiceTag { service: part()?, key_name: part()?, key: part()? };
    Ok(ClaimKey { tag, component: [part()?, part()?], state: part()? })
}

fn meta(key: &[u8], old: Option<Vec<u8>>, value: Option<Vec<u8>>, changes: &mut Vec<RowChange>) {
    if old != value {
        changes.push(RowChange { key: key.to_vec(), value });
    }
}

/// Walk of the differences between two versions of one layer, or of one claim.
struct RowWriter<'a> {
    models: &'a Models,
    origin: Origin,
    /// First byte of the rows' keys.
    code: u8,
    names: &'a NodeHashes,
    /// Keys of the entries on the way, in the encoding of row keys.
    keys: Vec<u8>,
    /// Buffer for the current row.
    row: Vec<u8>,
    changes: &'a mut Vec<RowChange>,
}

impl<'a> RowWriter<'a> {
    fn new(models: &'a Models, origin: Origin, code: u8, changes: &'a mut Vec<RowChange>) -> Self {
        let names = models.names(origin);
        Self { models, origin, code, names, keys: Vec::new(), row: Vec::new(), changes }
    }

    /// Writes the row of one entry (`list` and its keys) or of the root, then those of entries below it.
    fn entry(
        &mut self,
        node: NodeId,
        keys: Option<&Keys>,
        old: OptionalBranch<'_, LeafMark>,
        new: OptionalBranch<'_, LeafMark>,
    ) {
        if let (Some(old), Some(new)) = (old, new)
            && Arc::ptr_eq(old, new)
        {
            return;
        }
        let before = self.keys.len();
        keys.iter()
            .flat_map(|keys| keys.iter())
            .for_each(|value| bytes::put_value(&mut self.keys, value));
        let mut row =
            |it: OptionalBranch<'_, LeafMark>| it.and_then(|entry| self.row(node, keys, entry));
        let was = row(old);
        let is = row(new);
        if was != is {
            let name = self.names.of(node).to_be_bytes();
            let key = [&[self.code], &name[..], &self.keys].concat();
            self.changes.push(RowChange { key, value: is });
        }
        self.lists(old, new);
        self.keys.truncate(before);
    }

    fn lists(&mut self, old: OptionalBranch<'_, LeafMark>, new: OptionalBranch<'_, LeafMark>) {
        let empty = List::default();
        for (node, old, new) in beside(old.map(|it| &**it), new.map(|it| &**it)) {
            match old.or(new) {
                Some(Child::Container(_)) => {
                    self.lists(old.and_then(Child::container), new.and_then(Child::container))
                }
                Some(Child::List(_)) => {
                    let old = old.and_then(Child::list).unwrap_or(&empty);
                    let new = new.and_then(Child::list).unwrap_or(&empty);
                    self.changes.reserve(List::differ_by(old, new));
                    for it in List::differences(old, new) {
                        self.entry(node, Some(it.keys), it.old, it.new);
                    }
                }
                Some(Child::Leaf(_)) | None => {}
            }
        }
    }

    /// Value of an entry's row; `None` for a root without leaves.
    fn row(
        &mut self,
        node: NodeId,
        keys: Option<&Keys>,
        entry: &Branch<LeafMark>,
    ) -> Option<Vec<u8>> {
        let schema = self.models.schema(self.origin);
        let key_leaves = schema.keys(node);
        let mark = key_leaves.first().and_then(|key| entry.leaf(*key)).map(|leaf| leaf.meta);
        let flag = if entry.given { FLAG_GIVEN } else { 0 };
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        row.push(flag | mark.map_or(0, mark_code));
        let mirrors = self.models.map.mirrors(self.origin, node);
        let implied = |leaf: NodeId, value: &Value| {
            key_leaves.contains(&leaf)
                || mirrors.iter().any(|(_, mirror, place)| {
                    *mirror == leaf && keys.is_some_and(|keys| keys[*place] == *value)
                })
        };
        self.leaves(entry, &implied, &mut row);
        let says = keys.is_some() || row.len() > 1;
        self.row = row;
        says.then(|| self.row.clone())
    }

    fn leaves(
        &self,
        branch: &Branch<LeafMark>,
        implied: &dyn Fn(NodeId, &Value) -> bool,
        row: &mut Vec<u8>,
    ) {
        for (node, child) in branch.children() {
            match child {
                Child::Leaf(leaf) if !implied(*node, &leaf.value) => {
                    row.extend(self.names.of(*node).to_be_bytes());
                    row.push(mark_code(leaf.meta));
                    bytes::put_value(row, &leaf.value);
                }
                Child::Container(branch) => {
                    if branch.given {
                        row.extend(self.names.of(*node).to_be_bytes());
                        row.push(GIVEN);
                    }
                    self.leaves(branch, implied, row);
                }
                Child::Leaf(_) | Child::List(_) => {}
            }
        }
    }
}

/// Stored code of a layer, whose meaning must never change.
fn code(layer: LayerKey) -> u8 {
    match layer {
        LayerKey::GNSI => 1,
        LayerKey::BOOT_NATIVE => 2,
        LayerKey::BOOT_OPENCONFIG => 3,
        LayerKey::FENCE => 4,
        LayerKey::CLIENT_NATIVE => 5,
        LayerKey::CLIENT_OPENCONFIG => 6,
        LayerKey::SERVICE_NATIVE => 7,
        LayerKey::SERVICE_OPENCONFIG => 8,
        _ => 9,
    }
}

/// Stored code of the claims of an origin, whose meaning must never change.
fn claim_code(origin: Origin) -> u8 {
    match origin {
        Origin::Native => 10,
        Origin::OpenConfig => 11,
    }
}

/// First byte of the keys of service plans, whose meaning must never change.
const PLAN_CODE: u8 = 12;

/// First byte of the keys of items of the fence layer, whose meaning must never change.
const FENCE_CODE: u8 = 13;

/// Stored: never to be given another meaning.
fn secret_code(leaf: SecretLeaf) -> u8 {
    match leaf {
        SecretLeaf::Password => 0,
        SecretLeaf::PasswordHashed => 1,
        SecretLeaf::SshKey => 2,
    }
}

/// Stored code of a mark, whose meaning must never change.
fn mark_code(mark: LeafMark) -> u8 {
    match mark {
        LeafMark::Explicit => 0,
        LeafMark::Factory => 1,
        LeafMark::Default => 2,
        LeafMark::Absent => 3,
    }
}

fn mark_of(code: u8) -> Result<LeafMark, &'static str> {
    let marks = [LeafMark::Explicit, LeafMark::Factory, LeafMark::Default, LeafMark::Absent];
    marks.into_iter().find(|mark| mark_code(*mark) == code).ok_or("a leaf has an unknown mark")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
