//! Parser for the values of leaves and leaf-lists.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{DocumentReader, JsonErrorKind};
use crate::json::value::{from_float, from_int, from_str, from_uint};
use crate::limits;
use crate::schema::{Node, Type};
use crate::tree::LeafMeta;
use crate::value::Value;

/// Parses the value of a leaf.
pub(super) struct LeafSeed<'a, 'r, M: LeafMeta> {
    pub(super) reader: &'a DocumentReader<'r, M>,
    pub(super) node: &'a Node,
}

impl<M: LeafMeta> LeafSeed<'_, '_, M> {
    fn ty(&self) -> &Type {
        &self.reader.schema.leaf(self.node.id).ty
    }
}

impl<'de, M: LeafMeta> DeserializeSeed<'de> for LeafSeed<'_, '_, M> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, M: LeafMeta> Visitor<'de> for LeafSeed<'_, '_, M> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.reader.value(from_str(self.ty(), text))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.reader.value(self.ty().bool(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.reader.value(from_uint(self.ty(), value, self.reader.flavour))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.reader.value(from_int(self.ty(), value, self.reader.flavour))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.reader.value(from_float(self.ty(), value, self.reader.flavour))
    }

    /// Accepts `[null]`, the value of type empty.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let shape = || self.reader.fail(JsonErrorKind::Shape("one value"));
        if seq.next_element::<Option<serde::de::IgnoredAny>>()?.is_none_or(|first| first.is_some())
            || seq.next_element::<serde::de::IgnoredAny>()?.is_some()
        {
            return Err(shape());
        }
        self.ty().empty().map_err(|_| shape())
    }

    other_shapes!(Value, "one value": map);
}

/// Parses the array of a leaf-list.
pub(super) struct LeafListSeed<'a, 'r, M: LeafMeta> {
    pub(super) reader: &'a DocumentReader<'r, M>,
    pub(super) node: &'a Node,
}

impl<'de, M: LeafMeta> DeserializeSeed<'de> for LeafListSeed<'_, '_, M> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, M: LeafMeta> Visitor<'de> for LeafListSeed<'_, '_, M> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) =
            seq.next_element_seed(LeafSeed { reader: self.reader, node: self.node })?
        {
            let room = limits::LEAF_LIST_ENTRIES.check(values.len() + 1);
            room.map_err(|error| self.reader.fail(JsonErrorKind::Stop(error.into())))?;
            values.push(value);
        }
        self.reader.value(self.node.leaf_list(values))
    }

    other_shapes!(Value, "an array of values": bool i64 u64 f64 str map);
}
