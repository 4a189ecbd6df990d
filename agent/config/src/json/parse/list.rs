//! Parser for the entries of lists, sequentially or in parallel.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use holdfast_common::parallel;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{BranchSeed, DocumentReader, JsonErrorKind, new_branch};
use crate::instance::Keys;
use crate::schema::Node;
use crate::tree::{Branch, LeafMeta, List};

/// Parses an array of entries.
pub(super) struct ListSeed<'a, 'r, M: LeafMeta> {
    pub(super) reader: &'a DocumentReader<'r, M>,
    pub(super) node: &'a Node,
}

impl<'de, M: LeafMeta> DeserializeSeed<'de> for ListSeed<'_, '_, M> {
    type Value = List<M>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<List<M>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, M: LeafMeta> Visitor<'de> for ListSeed<'_, '_, M> {
    type Value = List<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<M>, A::Error> {
        if self.reader.split {
            return self.split(seq);
        }
        let Self { reader, node } = self;
        let mut list = List::default();
        let mut last: Option<Arc<Branch<M>>> = None;
        for position in 0.. {
            let mut branch = new_branch(node);
            let seed = BranchSeed { reader, node, branch: &mut branch, top: None, keys: None };
            let read = seq.next_element_seed(seed);
            let segment =
                |branch: &Branch<M>| reader.at(|| reader.entry_segment(node, branch, position));
            if read.inspect_err(|_| segment(&branch))?.is_none() {
                break;
            }
            reader.count(1)?;
            let keys = reader.keys(node, &mut branch).map_err(|fault| {
                segment(&branch);
                reader.fail(fault)
            })?;
            branch.fit();
            last.iter().for_each(|last| branch.share_containers(last));
            let branch = Arc::new(branch);
            if list.put(keys, branch.clone()).is_some() {
                segment(&branch);
                return Err(reader.fail(JsonErrorKind::Duplicate));
            }
            last = Some(branch);
        }
        Ok(list)
    }

    other_shapes!(List<M>, "an array of objects": bool i64 u64 f64 str map);
}

impl<M: LeafMeta> ListSeed<'_, '_, M> {
    /// Finds the end of each entry, then parses them in parallel. Errors are not recorded: the document is then
    /// parsed again sequentially.
    fn split<'de, A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<M>, A::Error> {
        let mut texts: Vec<&str> = Vec::new();
        while let Some(entry) = seq.next_element::<&RawValue>()? {
            texts.push(entry.get());
        }
        self.reader.count(texts.len())?;
        // A short list may contain a long one; a long list is enough to occupy all processors.
        let split = texts.len() <= parallel::FEW;
        let schema = self.reader.schema;
        let flavour = self.reader.flavour;
        let writable = self.reader.writable;
        let node = self.node;
        let meta = &self.reader.meta;
        let progress = self.reader.progress;
        let reader = || {
            let meta = meta.clone();
            let failure = RefCell::default();
            let reader =
                DocumentReader { schema, flavour, writable, meta, failure, split, progress };
            (reader, None)
        };
        let mut list = List::default();
        let mut sound = true;
        let take = |entry: Option<(Keys, _)>| {
            sound &= entry.is_some_and(|(keys, branch)| list.put(keys, branch).is_none());
        };
        let entry = |(reader, last): &mut (DocumentReader<'_, M>, Option<Arc<Branch<M>>>), text| {
            let (keys, mut branch) = reader.entry(node, text)?;
            last.iter().for_each(|last| branch.share_containers(last));
            let branch = Arc::new(branch);
            *last = Some(Arc::clone(&branch));
            Some((keys, branch))
        };
        parallel::in_order(texts, reader, entry, take);
        // Errors of entries stay with their readers, except for an exceeded limit.
        self.reader.count(0)?;
        if sound { Ok(list) } else { Err(A::Error::custom("")) }
    }
}

impl<M: LeafMeta> DocumentReader<'_, M> {
    /// Parses one entry of a split list.
    fn entry(&self, node: &Node, text: &str) -> Option<(Keys, Branch<M>)> {
        self.progress.check().ok()?;
        let mut branch = new_branch(node);
        let seed = BranchSeed { reader: self, node, branch: &mut branch, top: None, keys: None };
        seed.deserialize(&mut serde_json::Deserializer::from_str(text)).ok()?;
        let keys = self.keys(node, &mut branch).ok()?;
        branch.fit();
        Some((keys, branch))
    }
}
