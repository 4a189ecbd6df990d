//! The row of a kind: all that this crate, the core and the tests ask about it.
//!
//! The author of a kind implements [`Kind`] beside [`Descriptor`], and puts its row into [`KINDS`](super::KINDS).

use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, Descriptor, Key, KindId, ObjectValue, Operation, Registry, RegistryError, SharedValue,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::{EncodeError, Op, Requests};
use super::links::LinkIndex;
use super::native::Bind;
use super::reading::Read;

/// One kind of value.
#[derive(Clone, Copy, Debug)]
pub struct KindRow {
    /// Number. Among operations in no other order, lower numbers run first.
    pub id: KindId,
    /// Name of the kind, as shown to users.
    pub name: &'static str,
    /// Adds the descriptor, which may keep the table of all kinds.
    pub register: fn(&mut Registry, &'static [KindRow]) -> Result<(), RegistryError>,
    /// Encodes an operation; `None` for kinds that a transport never sees.
    pub encode: Option<EncodeOperation>,
    /// Reason for which the kernel refused an operation, where it has no words for it.
    pub why_refused: fn(&Operation, &LinkIndex) -> Option<String>,
    /// How its values are read back.
    pub read: Read,
    /// Where its state is shown.
    pub shown: Shown,
    /// Values as JSON.
    pub json: JsonForm,
    /// Form of the original state of an object in the database; `None` for kinds with nothing to restore.
    pub pre_image: Option<PreImageForm>,
    /// Its side in the native model.
    pub(crate) native: Option<Bind>,
    /// Values of this kind that the kernel removes with a link; `None` for kinds that are not on links.
    pub goes_with_link: Option<fn(&str) -> Cascade>,
}

/// Where the state of a kind is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// As leaves of an entry that stays without the object, or nowhere.
    AsLeaves,
    /// As a list entry of its own: with the object goes the entry.
    AsEntry,
    /// As what was applied. It goes with its configuration, whose path says where it is.
    AsApplied,
}

/// Requests that carry out an operation.
pub type EncodeOperation = fn(&Operation, &mut LinkIndex) -> Result<Requests, EncodeError>;

/// Requests that carry out an operation on a value of type `V`. Records in the index the links that they create or remove.
pub(crate) type Encode<V> = fn(Op<'_, V>, &mut LinkIndex) -> Result<Requests, EncodeError>;

/// A kind of value, as its author describes it.
pub(crate) trait Kind: Descriptor<Value: Serialize + DeserializeOwned> + Default {
    /// Encoding of operations.
    const ENCODE: Option<Encode<Self::Value>> = None;
    /// How its values are read back.
    const READ: Read = Read::Never;
    /// Where its state is shown.
    const SHOWN: Shown = Shown::AsLeaves;
    /// Form of its values in the database.
    const PRE_IMAGE: Option<PreImageForm> = None;
    /// Its side in the native model.
    const NATIVE: Option<Bind> = None;
    /// Values of it that go with a link.
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> = None;

    /// Reason for which the kernel refused a new value, where it has no words for it.
    fn why_refused(_: &Self::Value, _: &LinkIndex) -> Option<String> {
        None
    }

    /// The descriptor for the engine. Links keep the table, so that they name no kind that is on them.
    fn registered(_: &'static [KindRow]) -> Self {
        Self::default()
    }
}

/// The row of a kind.
pub(crate) fn row<K: Kind>() -> KindRow {
    let descriptor = K::default();
    KindRow {
        id: descriptor.kind(),
        name: descriptor.name(),
        register: |registry, table| registry.register(K::registered(table)),
        encode: K::ENCODE.map(|_| encode::<K> as _),
        why_refused: |operation, links| {
            K::why_refused(operation.new.as_ref()?.as_any().downcast_ref()?, links)
        },
        read: K::READ,
        shown: K::SHOWN,
        json: JsonForm {
            write: |value| serde_json::to_value(value.as_any().downcast_ref::<K::Value>()?).ok(),
            read: |document| Ok(Arc::new(serde_json::from_value::<K::Value>(document)?)),
        },
        pre_image: K::PRE_IMAGE,
        native: K::NATIVE,
        goes_with_link: K::GOES_WITH_LINK,
    }
}

fn encode<K: Kind>(operation: &Operation, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    match (K::ENCODE, Op::of(operation)) {
        (Some(encode), Some(op)) => encode(op, links),
        _ => Err(no_codec(operation)),
    }
}

pub(super) fn no_codec(operation: &Operation) -> EncodeError {
    EncodeError::NoCodec(format!("{} {}", operation.action, operation.key))
}

/// Conversion of the values of one kind to JSON and back.
#[derive(Clone, Copy, Debug)]
pub struct JsonForm {
    /// Writes a value; `None` for one of another kind.
    pub write: fn(&dyn ObjectValue) -> Option<serde_json::Value>,
    /// Reads it.
    pub read: fn(serde_json::Value) -> serde_json::Result<SharedValue>,
}

/// Conversion of the values of one kind to rows of the database and back.
#[derive(Clone, Copy, Debug)]
pub struct PreImageForm {
    /// The `kind` in each row.
    pub tag: &'static str,
    /// Writes a row; `None` for a value of another kind, and for one with nothing to restore.
    pub write: fn(&dyn ObjectValue) -> Option<Vec<u8>>,
    /// Reads a row.
    pub read: fn(&[u8]) -> serde_json::Result<(Key, SharedValue)>,
}

/// Row in the database for the values of a kind. Fields are only ever added, with a default: rows outlive the version that
/// wrote them.
pub(crate) trait PreImageRow<K: Kind>: Serialize + DeserializeOwned {
    /// The `kind` in each row.
    const TAG: &'static str;
    /// The row of a value; `None` for one with nothing to restore.
    fn of(value: &K::Value) -> Option<Self>;
    /// The value of a row.
    fn value(self) -> K::Value;
}

impl PreImageForm {
    /// Values of `K` in rows of type `R`.
    pub(crate) const fn of<K: Kind, R: PreImageRow<K>>() -> Self {
        Self {
            tag: R::TAG,
            write: |value| {
                let row = Tagged { kind: R::TAG, row: R::of(value.as_any().downcast_ref()?)? };
                Some(serde_json::to_vec(&row).expect("the rows have no maps and no foreign types"))
            },
            read: |octets| {
                let value = serde_json::from_slice::<R>(octets)?.value();
                Ok((K::default().key(&value), Arc::new(value)))
            },
        }
    }
}

#[derive(Serialize)]
struct Tagged<R> {
    kind: &'static str,
    #[serde(flatten)]
    row: R,
}

/// The `kind` of a row in the database.
#[derive(Deserialize)]
pub(crate) struct Tag {
    pub(crate) kind: String,
}
