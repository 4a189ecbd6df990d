//! Rows back into layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;

use super::bytes::RowReader;
use super::{
    FLAG_GIVEN, GIVEN, META_ANNOTATION, META_BOOT, META_BOOT_BEFORE, META_FACTORY, META_OFF,
    META_SECRET, RowError, boot, claim_code, code, fence, is_secret_row, mark_of, plan,
    read_claim_key, secret_code,
};
use crate::claims::{Claim, ClaimKey, Claims};
use crate::fenced_leaves::Fences;
use crate::instance::{Keys, Step};
use crate::layer::{LayerKey, LayerSet, Layers, LeafMark};
use crate::models::Models;
use crate::schema::{NodeHashes, NodeId, NodeKind, Origin, Schema};
use crate::secrets::{SecretLeaf, SecretRef};
use crate::tree::{Branch, List, Tree};
use crate::value::Value;

/// Bytes of a row's key before the keys of entries: layer and list; those of claims have their name besides.
const PREFIX: usize = 5;

/// Entries up to which a list is short. Entries of long lists are not copies of one another.
const SHORT: usize = 4;

/// Restores layers from their rows, which may come in any order. Rows of one list that follow one another, and
/// entries with the same parent, are read fastest.
#[derive(Debug)]
pub struct LayersReader<'m> {
    models: &'m Models,
    layers: Layers,
    claims: BTreeMap<ClaimKey, Claim>,
    fences: Fences,
    unknown: usize,
    /// List of the row before.
    list: Option<ListReader<'m>>,
}

/// Split of the rows of the layers, so that two threads may read them.
///
/// An entry and what is in it are on the same side: keys of entries in it begin with those of the entry. Rows that
/// are not entries of a layer, and entries that others on both sides are in, are on the first side.
#[derive(Debug)]
pub struct RowSplit {
    /// First keys of entries on the second side.
    keys: Vec<u8>,
}

impl RowSplit {
    /// A split in the middle of a sample of rows; `None` without any row of a layer.
    pub fn of_sample<'k>(sample: impl Iterator<Item = &'k [u8]>) -> Option<Self> {
        let mut keys: Vec<&[u8]> = sample.filter_map(keys_of_entry).collect();
        let middle = keys.len() / 2;
        if keys.is_empty() {
            return None;
        }
        let (_, keys, _) = keys.select_nth_unstable(middle);
        Some(Self { keys: keys.to_vec() })
    }

    /// True for rows of the second side.
    pub fn is_second(&self, key: &[u8]) -> bool {
        keys_of_entry(key).is_some_and(|keys| keys >= self.keys.as_slice())
    }
}

/// Bytes of the keys of entries in the key of a row of a layer.
fn keys_of_entry(key: &[u8]) -> Option<&[u8]> {
    let (of, keys) = key.split_at_checked(PREFIX)?;
    layer_of(of[0]).map(|_| keys)
}

/// Layer with this code.
fn layer_of(stored: u8) -> Option<LayerKey> {
    LayerKey::ALL.into_iter().find(|layer| code(*layer) == stored)
}

impl Layers {
    /// Joins layers; the others are the second side of a [`RowSplit`].
    #[must_use]
    pub fn joined(self, second: &Self) -> Self {
        self.merged(&Self::new(), second).0
    }

    /// Restores layers from their rows. Also returns the number of rows and leaves that this version of the models
    /// does not know.
    ///
    /// # Errors
    /// When a row has not the form of [`layer_rows_diff`](super::layer_rows_diff).
    pub fn from_rows(
        models: &Models,
        rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<(Self, usize), RowError> {
        let mut reader = LayersReader::new(models);
        rows.into_iter().try_for_each(|(key, value)| reader.row(&key, &value))?;
        reader.finish()
    }
}

impl<'m> LayersReader<'m> {
    pub fn new(models: &'m Models) -> Self {
        Self {
            models,
            layers: Layers::new(),
            claims: BTreeMap::new(),
            fences: Fences::default(),
            unknown: 0,
            list: None,
        }
    }

    /// Adds one row.
    ///
    /// # Errors
    /// When it has not the form of [`layer_rows_diff`](super::layer_rows_diff).
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let layers = &mut self.layers;
        let read = match key {
            META_ANNOTATION => read_annotation(layers, value),
            META_OFF => read_off(layers, value),
            META_BOOT => boot::read(value).map(|boot| layers.boot = Some(Arc::new(boot))),
            META_BOOT_BEFORE if value.is_empty() => {
                layers.boot_before = Some(None);
                Ok(())
            }
            META_BOOT_BEFORE => {
                boot::read(value).map(|boot| layers.boot_before = Some(Some(Arc::new(boot))))
            }
            META_FACTORY => {
                layers.factory_text = Some(value.into());
                Ok(())
            }
            key if is_secret_row(key) => read_secret(layers, key, value),
            key if plan::is_key(key) => plan::read(key, value).map(|read| match read {
                Some((tag, plan)) => layers.book.set((tag, Some(plan))),
                None => self.unknown += 1,
            }),
            key if fence::is_key(key) => {
                fence::read(self.models, key, value).map(|read| match read {
                    Some((leaf, fenced)) => self.fences.put(leaf, Some(fenced)),
                    None => self.unknown += 1,
                })
            }
            _ => self.entry(key, value),
        };
        read.map_err(|reason| RowError { key: key.to_vec(), reason })
    }

    /// The layers, and the number of rows and leaves that this version of the models does not know.
    ///
    /// # Errors
    /// When the claims of services cannot be joined.
    pub fn finish(self) -> Result<(Layers, usize), RowError> {
        let Self { models, mut layers, claims, fences, unknown, .. } = self;
        layers.set_fences(models, fences);
        if !claims.is_empty() {
            let claims = claims.into_iter().map(|(key, claim)| (key, Some(claim)));
            let joined = Claims::default().replaced(models, claims);
            let reason = "the claims of services contradict one another";
            layers.set_claims(joined.map_err(|_| RowError { key: Vec::new(), reason })?);
        }
        Ok((layers, unknown))
    }

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let is_of_list = |list: &ListReader<'_>| key.starts_with(&list.prefix);
        let mut list = match self.list.take().filter(is_of_list) {
            Some(list) => list,
            None => match ListReader::new(self.models, key)? {
                Some(list) => list,
                None => {
                    self.unknown += 1;
                    return Ok(());
                }
            },
        };
        let tree = match &list.of {
            RowOwner::Layer(layer) => self.layers.tree_mut(*layer),
            RowOwner::Claim(claim, origin) => {
                self.claims.entry(claim.clone()).or_default().tree_mut(*origin)
            }
        };
        self.unknown += list.row(tree, &key[list.prefix.len()..], value)?;
        self.list = Some(list);
        Ok(())
    }
}

/// Layer or claim that a row belongs to.
#[derive(Debug)]
enum RowOwner {
    Layer(LayerKey),
    Claim(ClaimKey, Origin),
}

/// Reader of the rows of one list in one layer or claim. It keeps the steps that a row shares with the one before.
#[derive(Debug)]
struct ListReader<'m> {
    prefix: SmallVec<[u8; PREFIX]>,
    of: RowOwner,
    schema: &'m Schema,
    names: &'m NodeHashes,
    /// The list; the root for leaves outside of lists.
    node: NodeId,
    key_leaves: &'m [NodeId],
    mirrors: &'m [(NodeId, NodeId, usize)],
    /// Way from the root to the entry of the row before.
    steps: Vec<Step>,
    /// Keys of the entries on that way, as stored.
    keys: Vec<u8>,
    /// For each step, where its keys end in `keys`.
    ends: Vec<usize>,
    /// The last entry of a short list, with the bytes of its row. The next row is often the same, such as that of a next
    /// hop that many routes have.
    last: Option<(Vec<u8>, Keys, Arc<Branch<LeafMark>>)>,
    /// Leaves and containers of the list by stored name, with the nodes below the entry that lead to them.
    ways: Vec<(u32, Vec<NodeId>)>,
}

impl<'m> ListReader<'m> {
    /// A reader for rows of the list that `key` names; `None` when this version does not know it.
    fn new(models: &'m Models, key: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut reader = RowReader(key);
        let stored = reader.byte()?;
        let layer = layer_of(stored);
        let mut origins = [Origin::Native, Origin::OpenConfig].into_iter();
        let of_claim = origins.find(|it| claim_code(*it) == stored);
        let Some(origin) = layer.map(|it| it.origin).or(of_claim) else { return Ok(None) };
        let schema = models.schema(origin);
        let names = models.names(origin);
        let Some(node) = names.node(reader.name()?) else { return Ok(None) };
        let of = match layer {
            Some(layer) => RowOwner::Layer(layer),
            None => RowOwner::Claim(read_claim_key(&mut reader)?, origin),
        };
        let prefix = key[..key.len() - reader.0.len()].into();
        let steps = schema.steps(node);
        Ok(Some(Self {
            prefix,
            of,
            schema,
            names,
            node,
            key_leaves: schema.keys(node),
            mirrors: models.map.mirrors(origin, node),
            ends: vec![0; steps.len()],
            steps,
            keys: Vec::new(),
            last: None,
            ways: Vec::new(),
        }))
    }

    /// Adds the entry of one row. Returns the number of unknown leaves.
    fn row(
        &mut self,
        tree: &mut Tree<LeafMark>,
        keys: &[u8],
        value: &[u8],
    ) -> Result<usize, &'static str> {
        self.go_to(keys)?;
        let mut reader = RowReader(value);
        let flags = reader.byte()?;
        let mark = mark_of(flags & !FLAG_GIVEN)?;
        let schema = self.schema;
        let steps = std::mem::take(&mut self.steps);
        let read = match steps.split_last() {
            Some((Step { node, keys: Some(keys) }, above)) => {
                tree.in_branch(schema, above, &mark, |branch| {
                    self.entry(branch.list_mut(*node), keys, flags, mark, value)
                })
            }
            _ => tree.in_branch(schema, &steps, &mark, |branch| self.leaves(branch, &mut reader)),
        };
        self.steps = steps;
        read
    }

    /// Adds an entry to its list, and returns the number of unknown leaves.
    fn entry(
        &mut self,
        list: &mut List<LeafMark>,
        keys: &Keys,
        flags: u8,
        mark: LeafMark,
        octets: &[u8],
    ) -> Result<usize, &'static str> {
        let schema = self.schema;
        let node = self.node;
        let key_leaves = self.key_leaves;
        let mirrors = self.mirrors;
        // An entry that is there already has more than its own leaves.
        let is_new = list.len() < SHORT && list.get(keys).is_none();
        if let Some((same, of, entry)) = &self.last
            && (of, same.as_slice()) == (keys, octets)
            && is_new
        {
            list.put(keys.clone(), Arc::clone(entry));
            return Ok(0);
        }
        let mut reader = RowReader(octets);
        reader.byte()?; // the flags
        let make = || Branch::of_keys(schema, node, keys, &mark);
        let read = list.in_entry(keys, make, |entry| {
            entry.given = flags & FLAG_GIVEN != 0;
            for (leaf, value) in key_leaves.iter().zip(keys) {
                entry.put_leaf(*leaf, value.clone(), mark);
            }
            for (config, leaf, place) in mirrors {
                entry.container_mut(*config).put_leaf(*leaf, keys[*place].clone(), mark);
            }
            self.leaves(entry, &mut reader)
        });
        let entry = if is_new && read == Ok(0) { list.get(keys) } else { None };
        self.last = entry.map(|it| (octets.to_vec(), keys.clone(), Arc::clone(it)));
        read
    }

    /// Makes `steps` those to the entry with these keys.
    fn go_to(&mut self, keys: &[u8]) -> Result<(), &'static str> {
        let same = self.keys.iter().zip(keys).take_while(|(one, other)| one == other).count();
        let mut end = 0;
        for (step, step_end) in self.steps.iter_mut().zip(&mut self.ends) {
            let NodeKind::List { keys: leaves } = &self.schema.node(step.node).kind else {
                *step_end = end;
                continue;
            };
            // A value says itself where it ends, so equal bytes are equal keys.
            if step.keys.is_none() || *step_end > same {
                let mut reader = RowReader(keys.get(end..).unwrap_or_default());
                let before = reader.0.len();
                let values = leaves.iter().map(|_| reader.value()).collect::<Result<_, _>>();
                step.keys = Some(values?);
                *step_end = end + before - reader.0.len();
            }
            end = *step_end;
        }
        self.keys.clear();
        self.keys.extend_from_slice(keys);
        Ok(())
    }

    /// Adds the leaves of a row to its entry, and returns the number of unknown ones.
    fn leaves(
        &mut self,
        entry: &mut Branch<LeafMark>,
        value: &mut RowReader<'_>,
    ) -> Result<usize, &'static str> {
        let mut unknown = 0;
        while !value.0.is_empty() {
            let name = value.name()?;
            let mark = value.byte()?;
            let leaf = if mark == GIVEN { None } else { Some((value.value()?, mark_of(mark)?)) };
            match self.way(name) {
                Some(way) => put(entry, way, leaf),
                None => unknown += 1,
            }
        }
        Ok(unknown)
    }

    /// Nodes from the entry to the one with this name, without the entry.
    fn way(&mut self, name: u32) -> Option<&[NodeId]> {
        let cached = self.ways.iter().position(|(other, _)| *other == name);
        let at = match cached {
            Some(at) => at,
            None => {
                let node = self.names.node(name)?;
                let up = |node: &NodeId| {
                    self.schema.node(*node).parent.filter(|parent| *parent != self.node)
                };
                let mut way: Vec<_> = std::iter::successors(Some(node), up).collect();
                way.reverse();
                self.ways.push((name, way));
                self.ways.len() - 1
            }
        };
        Some(&self.ways[at].1)
    }
}

/// Adds a leaf, or a container that was created as such, at the end of a way below `entry`.
fn put(entry: &mut Branch<LeafMark>, way: &[NodeId], leaf: Option<(Value, LeafMark)>) {
    let Some((last, above)) = way.split_last() else { return };
    let branch = above.iter().fold(entry, |branch, node| branch.container_mut(*node));
    match leaf {
        Some((value, mark)) => drop(branch.put_leaf(*last, value, mark)),
        None => branch.container_mut(*last).given = true,
    }
}

fn read_annotation(layers: &mut Layers, value: &[u8]) -> Result<(), &'static str> {
    let text = std::str::from_utf8(value).map_err(|_| "the annotation is not text")?;
    layers.annotation = Some(SmolStr::new(text));
    Ok(())
}

fn read_off(layers: &mut Layers, value: &[u8]) -> Result<(), &'static str> {
    let bits = value.try_into().map_err(|_| "the switches are not two bytes")?;
    layers.off = LayerSet::from_bits(u16::from_be_bytes(bits));
    Ok(())
}

fn read_secret(layers: &mut Layers, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let (code, user) = key[META_SECRET.len()..].split_first().ok_or("a secret has no leaf")?;
    let leaf = SecretLeaf::ALL.into_iter().find(|leaf| secret_code(*leaf) == *code);
    let user = std::str::from_utf8(user).map_err(|_| "the user of a secret is not text")?;
    layers.secrets.restore(
        user,
        leaf.ok_or("a secret has an unknown leaf")?,
        SecretRef::new(value.to_vec()),
    );
    Ok(())
}
