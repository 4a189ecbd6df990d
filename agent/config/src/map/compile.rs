//! Compiler from the text of the map to nodes of both schemas.

use std::collections::HashMap;

use smol_str::SmolStr;

use super::finish::Overlap;
use super::keys::NumberTypes;
use super::text::{self, MapLine, MapStatement};
use super::{
    Anchor, AnchorId, Codec, Counterpart, DefaultCondition, ImpliedLeaf, KeyRule, Map, MapError,
    MapRow, MappedLeaf, OpenConfigRule, OwnLeaf, SupportedEntries, UnwritableLeaf, finish, model,
};
use crate::instance::Step;
use crate::path::{Elem, Path};
use crate::reserved;
use crate::schema::types::BuiltinType;
use crate::schema::{Node, NodeId, NodeKind, Schema};
use crate::tree::is_key_or_copy;
use crate::value::Value;

/// A key value that the table leaves open.
const SHARED: &str = "*";
/// Beginning of a key value that the table leaves open; behind it is the name of a codec.
const CODED: &str = "*:";

impl Map {
    /// Compiles the map in the binary.
    ///
    /// # Errors
    /// When a line names a node that the schemas lack.
    pub fn new(openconfig: &Schema, native: &Schema) -> Result<Self, MapError> {
        Self::from_text(super::TEXT, openconfig, native)
    }

    /// Compiles a map from text.
    ///
    /// # Errors
    /// When a line cannot be parsed, or names a node that the schemas lack.
    pub fn from_text(text: &str, openconfig: &Schema, native: &Schema) -> Result<Self, MapError> {
        let mut compiler = Compiler::new(openconfig, native);
        for line in text::read(text)? {
            compiler.line(&line).map_err(|reason| line.error(reason))?;
        }
        let Compiler { mut map, lines, .. } = compiler;
        finish::finish(&mut map, openconfig).map_err(|Overlap { anchors, reason }| {
            let later = anchors.into_iter().map(|anchor| lines[anchor]).max();
            MapError { line: later.unwrap_or_default(), reason }
        })?;
        Ok(map)
    }
}

struct Compiler<'a> {
    openconfig: &'a Schema,
    native: &'a Schema,
    map: Map,
    /// Block of the current lines.
    at: AnchorId,
    /// Ways from its entries to what the lines are about, in a named block that is placed deeper.
    within: Option<Place>,
    /// Block of the lines after a named block.
    outer: AnchorId,
    /// OpenConfig schema node of each anchor's entry.
    openconfig_nodes: Vec<Option<NodeId>>,
    /// Number of the line that begins the block of each anchor.
    lines: Vec<usize>,
}

/// Ways from an entry to the place of a named block.
struct Place {
    openconfig: Path,
    native: Path,
}

impl<'a> Compiler<'a> {
    fn new(openconfig: &'a Schema, native: &'a Schema) -> Self {
        let map = Map {
            anchors: anchors(native),
            by_native: vec![Vec::new(); native.nodes().len()],
            by_openconfig: HashMap::new(),
            by_list: HashMap::new(),
            with_alternatives: Vec::new(),
            limits: [openconfig, native].map(|schema| vec![None; schema.nodes().len()]),
            limited: [openconfig, native].map(|schema| vec![false; schema.nodes().len()]),
            key_copies: key_copies(openconfig),
            keys: openconfig
                .nodes()
                .iter()
                .map(|node| is_key_or_copy(openconfig, node.id))
                .collect(),
        };
        let mut openconfig_nodes = vec![None; map.anchors.len()];
        openconfig_nodes[0] = Some(openconfig.root());
        let lines = vec![0; map.anchors.len()];
        Self { openconfig, native, map, at: 0, within: None, outer: 0, openconfig_nodes, lines }
    }

    fn line(&mut self, line: &MapLine) -> Result<(), String> {
        match &line.statement {
            MapStatement::At { openconfig, native } => self.enter(line.number, openconfig, native),
            MapStatement::Place { openconfig, native } => self.place(openconfig, native),
            MapStatement::Placed => {
                self.at = self.outer;
                self.within = None;
                Ok(())
            }
            MapStatement::Config { openconfig, native, codec } => {
                let openconfig = self.openconfig_path(openconfig);
                self.config(&openconfig, &self.native_path(native), codec_named(codec)?)
            }
            MapStatement::State { openconfig, native, codec } => {
                let openconfig = self.openconfig_path(openconfig);
                self.state(&openconfig, &self.native_path(native), codec)
            }
            MapStatement::Implied { openconfig } => self.implied(&self.openconfig_path(openconfig)),
            MapStatement::NoDefault { openconfig } => {
                self.no_default(&self.openconfig_path(openconfig))
            }
            MapStatement::Never { openconfig, reason } => {
                self.never(&self.openconfig_path(openconfig), reason.clone())
            }
            MapStatement::When { openconfig, prefix, leaf, values } => {
                let prefix = match openconfig {
                    true => self.openconfig_path(prefix),
                    false => self.native_path(prefix),
                };
                self.when(*openconfig, &prefix, &self.native_path(leaf), values)
            }
            MapStatement::Only { openconfig, list, reason } => {
                self.only(*openconfig, list, reason.clone())
            }
        }
    }

    /// Path from the current entry to an OpenConfig node that a line names.
    fn openconfig_path(&self, named: &Path) -> Path {
        self.within.as_ref().map_or_else(|| named.clone(), |place| place.openconfig.join(named))
    }

    /// Path from the current entry to a native node that a line names.
    fn native_path(&self, named: &Path) -> Path {
        self.within.as_ref().map_or_else(|| named.clone(), |place| place.native.join(named))
    }

    /// Starts the rows of a named block: finds the innermost native entry on the way to its place.
    fn place(&mut self, openconfig: &Path, native: &Path) -> Result<(), String> {
        self.outer = self.at;
        let own = native.elems.iter().rposition(|elem| !elem.keys.is_empty());
        let own = own.map_or(0, |at| at + 1);
        let entry = Path { elems: native.elems[..own].to_vec() };
        self.at = self.anchor_of(&entry)?;
        let start = self.openconfig_nodes[self.at];
        let start = start.ok_or_else(|| format!("`{entry}` has no block before this line"))?;
        let depth = depth(self.openconfig, start);
        let below = openconfig.elems.get(depth..);
        let below =
            below.ok_or_else(|| format!("`{openconfig}` is above the block of `{entry}`"))?;
        self.within = Some(Place {
            openconfig: Path { elems: below.to_vec() },
            native: Path { elems: native.elems[own..].to_vec() },
        });
        Ok(())
    }

    /// Anchor of the entries that a native path from the root names.
    fn anchor_of(&self, native: &Path) -> Result<AnchorId, String> {
        let nodes = nodes(self.native, self.native.root(), native)?;
        let list = nodes.last().copied();
        let mut anchors = self.map.anchors.iter();
        anchors
            .position(|anchor| anchor.list() == list)
            .ok_or_else(|| format!("`{native}` is not a native list"))
    }

    /// Starts a block: finds its anchor and sets its OpenConfig list.
    fn enter(&mut self, line: usize, openconfig: &Path, native: &Path) -> Result<(), String> {
        self.within = None;
        self.at = self.anchor_of(native)?;
        if self.at == 0 {
            return Ok(());
        }
        if self.map.anchors[self.at].openconfig.is_some() {
            return Err(format!("`{native}` has a block already, in line {}", self.lines[self.at]));
        }
        self.lines[self.at] = line;
        let list = self.map.anchors[self.at].list().unwrap_or(self.native.root());
        let parent = self.map.anchors[self.at].parent.unwrap_or(0);
        let start =
            self.openconfig_nodes[parent].ok_or("the block of the list above is missing")?;
        // The path starts at the root: the part above the parent's own list is known already.
        let depth = depth(self.openconfig, start);
        let below = Path { elems: openconfig.elems[depth.min(openconfig.elems.len())..].to_vec() };
        let (last, above) = below.elems.split_last().ok_or("the block repeats its parent")?;
        let above = steps(self.openconfig, start, &Path { elems: above.to_vec() })?;
        let from = above.last().map_or(start, |step| step.node);
        let list_node = child(self.openconfig, from, last)?;
        let keys = self.key_rules(list_node, last, list)?;
        let numbers = self.number_types(list_node, list, &keys);
        self.openconfig_nodes[self.at] = Some(list_node);
        self.map.by_list.entry(list_node).or_default().push(self.at);
        let excluded = Vec::new();
        let parts = Vec::new();
        self.map.anchors[self.at].openconfig =
            Some(Counterpart { above, list: list_node, keys, numbers, excluded, parts });
        Ok(())
    }

    fn key_rules(
        &self,
        openconfig: NodeId,
        elem: &Elem,
        native: NodeId,
    ) -> Result<Vec<KeyRule>, String> {
        let native_keys = self.native.keys(native);
        let rule = |key: &NodeId| {
            let name = &self.openconfig.node(*key).name;
            let (_, text) = elem
                .keys
                .iter()
                .find(|(key_name, _)| key_name == name)
                .ok_or_else(|| format!("key `{name}` is missing"))?;
            let codec = text.strip_prefix(CODED).map(codec_named).transpose()?;
            if text != SHARED && codec.is_none() {
                return Ok(KeyRule::Fixed(key_value(self.openconfig, *key, text)?));
            }
            let place = native_keys.iter().position(|key| self.native.node(*key).name == *name);
            let place = place.ok_or_else(|| format!("the native list has no key `{name}`"))?;
            Ok(codec.map_or(KeyRule::Native(place), |codec| KeyRule::Coded(place, codec)))
        };
        let rules: Vec<KeyRule> =
            self.openconfig.keys(openconfig).iter().map(rule).collect::<Result<_, String>>()?;
        let is_open = |place: usize| rules.iter().any(|rule| rule.native() == Some(place));
        match (0..native_keys.len()).find(|place| !is_open(*place)) {
            Some(place) => {
                let name = &self.native.node(native_keys[place]).name;
                Err(format!("the native key `{name}` is not one of the OpenConfig list"))
            }
            None => Ok(rules),
        }
    }

    /// Types of the keys that are numbers, where the ranges of the two models differ.
    fn number_types(
        &self,
        openconfig: NodeId,
        native: NodeId,
        rules: &[KeyRule],
    ) -> Vec<Option<NumberTypes>> {
        let keys = self.openconfig.keys(openconfig).iter().zip(rules);
        let types = |(key, rule): (&NodeId, &KeyRule)| {
            let KeyRule::Native(place) = rule else { return None };
            let above = &self.openconfig.leaf(*key).ty;
            let own = &self.native.leaf(*self.native.keys(native).get(*place)?).ty;
            let differ = match (&above.base, &own.base) {
                (
                    BuiltinType::Uint { ranges: one, .. },
                    BuiltinType::Uint { ranges: other, .. },
                ) => one != other,
                (BuiltinType::Int { ranges: one, .. }, BuiltinType::Int { ranges: other, .. }) => {
                    one != other
                }
                _ => false,
            };
            differ.then(|| NumberTypes { openconfig: above.clone(), native: own.clone() })
        };
        keys.map(types).collect()
    }

    fn config(
        &mut self,
        openconfig: &Path,
        native: &Path,
        codec: &'static Codec,
    ) -> Result<(), String> {
        let up = OpenConfigRule::Codec(codec);
        let row = MapRow { is_config: true, ..self.row(openconfig, native, up)? };
        let leaf = self.leaf_of(&row.openconfig)?;
        let own = self.map.anchors[self.at]
            .leaves
            .iter_mut()
            .find(|own| own.native == row.native)
            .ok_or_else(|| {
                format!("`{native}` is not a native configuration leaf of this entry")
            })?;
        let default = match &self.openconfig.leaf(leaf).default {
            Some(value) if own.openconfig.is_empty() => Some((value.clone(), (codec.down)(value)?)),
            // That of an alternative is never in use.
            Some(_) | None => None,
        };
        own.openconfig.push(MappedLeaf {
            unit: unit(self.openconfig, &row.openconfig, self.at == 0),
            steps: row.openconfig.clone(),
            codec,
            default,
            when: None,
        });
        self.keep(leaf, row)
    }

    fn state(&mut self, openconfig: &Path, native: &Path, codec: &str) -> Result<(), String> {
        let up = match (codec, codec.strip_prefix("constant:")) {
            ("implied", _) => OpenConfigRule::Implied(self.implied_value(openconfig)?),
            (_, Some(text)) => {
                OpenConfigRule::Implied(KeyRule::Fixed(self.constant_value(openconfig, text)?))
            }
            (codec, None) => OpenConfigRule::Codec(codec_named(codec)?),
        };
        let row = self.row(openconfig, native, up)?;
        let leaf = self.leaf_of(&row.openconfig)?;
        self.keep(leaf, row)
    }

    fn implied(&mut self, openconfig: &Path) -> Result<(), String> {
        let value = self.implied_value(openconfig)?;
        let steps = steps(self.openconfig, self.entry()?, openconfig)?;
        let leaf = self.leaf_of(&steps)?;
        let row = MapRow {
            anchor: self.at,
            openconfig: steps.clone(),
            native: Vec::new(),
            up: OpenConfigRule::Implied(value.clone()),
            is_config: true,
        };
        self.map.anchors[self.at].implied.push(ImpliedLeaf { steps, value });
        self.keep(leaf, row)
    }

    fn no_default(&mut self, openconfig: &Path) -> Result<(), String> {
        let steps = steps(self.openconfig, self.entry()?, openconfig)?;
        let leaves = self.map.anchors[self.at].leaves.iter_mut();
        let mut mapped = leaves.flat_map(|own| &mut own.openconfig);
        let mapped = mapped.find(|mapped| mapped.steps == steps).ok_or("it has no `config` row")?;
        match mapped.default.take() {
            Some(_) => Ok(()),
            None => Err("it has no default".to_owned()),
        }
    }

    fn never(&mut self, openconfig: &Path, reason: String) -> Result<(), String> {
        let steps = steps(self.openconfig, self.entry()?, openconfig)?;
        let leaf = self.leaf_of(&steps)?;
        let row = MapRow {
            anchor: self.at,
            openconfig: steps.clone(),
            native: Vec::new(),
            up: OpenConfigRule::Nothing,
            is_config: true,
        };
        let reserved = reserved::row(self.openconfig, leaf);
        self.map.anchors[self.at].never.push(UnwritableLeaf { steps, reason, reserved });
        self.keep(leaf, row)
    }

    fn constant_value(&self, openconfig: &Path, text: &str) -> Result<Value, String> {
        let leaf = self.leaf_of(&steps(self.openconfig, self.entry()?, openconfig)?)?;
        key_value(self.openconfig, leaf, text)
    }

    /// The key that an implied leaf repeats: that of a fixed entry in its own path, else that of the anchor.
    fn implied_value(&self, openconfig: &Path) -> Result<KeyRule, String> {
        let name = &openconfig.elems.last().ok_or("a leaf is missing")?.name;
        let fixed = openconfig.elems.iter().rev().find(|elem| !elem.keys.is_empty());
        if let Some(elem) = fixed {
            let steps = steps(self.openconfig, self.entry()?, openconfig)?;
            let entry = steps.iter().rev().find(|step| step.keys.is_some());
            let place = entry.and_then(|entry| {
                let keys = self.openconfig.keys(entry.node);
                keys.iter().position(|key| self.openconfig.node(*key).name == *name)
            });
            let value = entry.zip(place).and_then(|(entry, at)| entry.keys.as_ref()?.get(at));
            return value
                .map(|value| KeyRule::Fixed(value.clone()))
                .ok_or_else(|| format!("`{elem}` has no key `{name}`"));
        }
        let anchor = &self.map.anchors[self.at];
        let counterpart = anchor.openconfig.as_ref().ok_or("the root has no keys")?;
        self.openconfig
            .keys(counterpart.list)
            .iter()
            .position(|key| self.openconfig.node(*key).name == *name)
            .map(|place| counterpart.keys[place].clone())
            .ok_or_else(|| format!("the entry has no key `{name}`"))
    }

    fn when(
        &mut self,
        openconfig: bool,
        prefix: &Path,
        leaf: &Path,
        values: &[String],
    ) -> Result<(), String> {
        let start = self.map.anchors[self.at].list().unwrap_or(self.native.root());
        let values: Vec<SmolStr> = values.iter().map(SmolStr::new).collect();
        let when = DefaultCondition { native: nodes(self.native, start, leaf)?, values };
        let prefix = if openconfig {
            steps(self.openconfig, self.entry()?, prefix)?
        } else {
            nodes(self.native, start, prefix)?.into_iter().map(Step::node).collect()
        };
        for own in &mut self.map.anchors[self.at].leaves {
            if openconfig {
                let mapped = own.openconfig.iter_mut();
                for mapped in mapped.filter(|mapped| mapped.steps.starts_with(&prefix)) {
                    mapped.when = Some(when.clone());
                }
            } else if own.native.len() >= prefix.len()
                && own.native.iter().zip(&prefix).all(|(node, step)| *node == step.node)
            {
                own.when = Some(when.clone());
            }
        }
        Ok(())
    }

    fn only(&mut self, openconfig: bool, list: &Path, reason: String) -> Result<(), String> {
        let schema = if openconfig { self.openconfig } else { self.native };
        let node = *nodes(schema, schema.root(), list)?.last().ok_or("a list is missing")?;
        let elem = list.elems.last().ok_or("a list is missing")?;
        let allowed = |key: &NodeId| {
            let name = &schema.node(*key).name;
            let text = elem.keys.iter().find(|(key_name, _)| key_name == name);
            text.filter(|(_, text)| text != SHARED)
                .map(|(_, text)| key_value(schema, *key, text))
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
        };
        let keys = schema.keys(node).iter().map(allowed).collect::<Result<_, _>>()?;
        let model = model(schema.origin());
        self.map.limits[model][node.0 as usize] = Some(SupportedEntries { keys, reason });
        for above in std::iter::successors(Some(node), |node| schema.node(*node).parent) {
            self.map.limited[model][above.0 as usize] = true;
        }
        Ok(())
    }

    fn row(&self, openconfig: &Path, native: &Path, up: OpenConfigRule) -> Result<MapRow, String> {
        let start = self.map.anchors[self.at].list().unwrap_or(self.native.root());
        Ok(MapRow {
            anchor: self.at,
            openconfig: steps(self.openconfig, self.entry()?, openconfig)?,
            native: nodes(self.native, start, native)?,
            up,
            is_config: false,
        })
    }

    fn entry(&self) -> Result<NodeId, String> {
        self.openconfig_nodes[self.at].ok_or_else(|| "this block has no OpenConfig list".to_owned())
    }

    fn leaf_of(&self, steps: &[Step]) -> Result<NodeId, String> {
        steps
            .last()
            .map(|step| step.node)
            .filter(|node| self.openconfig.node(*node).leaf.is_some())
            .ok_or_else(|| "the OpenConfig path is not that of a leaf".to_owned())
    }

    fn keep(&mut self, leaf: NodeId, row: MapRow) -> Result<(), String> {
        if let Some(native) = row.native.last() {
            self.map.by_native[native.0 as usize].push(row.clone());
        }
        let rows = self.map.by_openconfig.entry(leaf).or_default();
        // Rows of other places in the tree are told apart by the keys on the way.
        let is_same = |it: &MapRow| it.anchor == row.anchor && it.openconfig == row.openconfig;
        if rows.iter().any(is_same) {
            return Err("this OpenConfig leaf has a row already".to_owned());
        }
        rows.push(row);
        Ok(())
    }
}

/// Makes one anchor for the root and one for each native list. Lists of state are not children of their parents,
/// because the union never needs them: they hold no configuration.
fn anchors(native: &Schema) -> Vec<Anchor> {
    let mut anchors = Vec::new();
    add_anchor(native, native.node(native.root()), None, Vec::new(), &mut anchors);
    anchors
}

fn add_anchor(
    native: &Schema,
    node: &Node,
    parent: Option<AnchorId>,
    way: Vec<NodeId>,
    anchors: &mut Vec<Anchor>,
) {
    let id = anchors.len();
    let one_of = node.one_of.iter().filter_map(|name| native.child(node.id, None, name)).collect();
    anchors.push(Anchor {
        parent,
        native: way,
        openconfig: None,
        leaves: Vec::new(),
        presence: Vec::new(),
        one_of,
        keys_suffice: node.keys_suffice,
        implied: Vec::new(),
        never: Vec::new(),
        children: Vec::new(),
        shares_list_with: Vec::new(),
        outer_lists_first: Vec::new(),
    });
    let keys = native.keys(node.id).to_vec();
    add_below(native, node, id, &keys, &mut Vec::new(), anchors);
    if let Some(parent) = parent.filter(|_| node.config) {
        anchors[parent].children.push(id);
    }
}

/// Adds the content of a container or entry to anchor `id`; `way` leads there from the entry.
fn add_below(
    native: &Schema,
    node: &Node,
    id: AnchorId,
    keys: &[NodeId],
    way: &mut Vec<NodeId>,
    anchors: &mut Vec<Anchor>,
) {
    for child in node.children.iter().map(|child| native.node(*child)) {
        way.push(child.id);
        match &child.kind {
            NodeKind::List { .. } => add_anchor(native, child, Some(id), way.clone(), anchors),
            NodeKind::Container { presence } => {
                if *presence && child.config {
                    anchors[id].presence.push(way.clone());
                }
                add_below(native, child, id, keys, way, anchors);
            }
            NodeKind::Leaf | NodeKind::LeafList if !child.config => {}
            NodeKind::Leaf | NodeKind::LeafList => anchors[id].leaves.push(OwnLeaf {
                native: way.clone(),
                key: keys.iter().position(|key| *key == child.id),
                default: child.leaf.as_ref().and_then(|leaf| leaf.default.clone()),
                mandatory: child.leaf.as_ref().is_some_and(|leaf| leaf.mandatory),
                when: None,
                presence: innermost_presence(native, way),
                openconfig: Vec::new(),
            }),
            NodeKind::Root => {}
        }
        way.pop();
    }
}

/// Number of leading nodes of a way to its innermost presence container.
fn innermost_presence(native: &Schema, way: &[NodeId]) -> Option<usize> {
    let is_presence = |id: &NodeId| native.node(*id).kind == NodeKind::Container { presence: true };
    way.iter().rposition(is_presence).map(|at| at + 1)
}

/// Leaves in `config` containers that repeat the keys of their list entry.
fn key_copies(schema: &Schema) -> Vec<Vec<(NodeId, NodeId, usize)>> {
    let mut mirrors = vec![Vec::new(); schema.nodes().len()];
    for list in schema.nodes() {
        let Some(config) = schema.child(list.id, None, "config") else { continue };
        for (place, key) in schema.keys(list.id).iter().enumerate() {
            if let Some(leaf) = schema.child(config, None, &schema.node(*key).name) {
                mirrors[list.id.0 as usize].push((config, leaf, place));
            }
        }
    }
    mirrors
}

/// Number of leading `steps` whose node must exist for a default at their end to be in use: the nearest entry or
/// presence container, or at the root, where there is none, the parent of `config`.
fn unit(schema: &Schema, steps: &[Step], root: bool) -> usize {
    let is_unit = |step: &Step| {
        step.keys.is_some() || schema.node(step.node).kind == NodeKind::Container { presence: true }
    };
    match steps.iter().rposition(is_unit) {
        Some(at) => at + 1,
        None if root => steps.len().saturating_sub(2).max(1),
        None => 0,
    }
}

fn codec_named(name: &str) -> Result<&'static Codec, String> {
    Codec::by_name(name).ok_or_else(|| format!("no codec is called `{name}`"))
}

fn key_value(schema: &Schema, key: NodeId, text: &str) -> Result<Value, String> {
    schema.leaf(key).ty.parse_text(text).map_err(|error| error.to_string())
}

fn depth(schema: &Schema, node: NodeId) -> usize {
    std::iter::successors(schema.node(node).parent, |parent| schema.node(*parent).parent).count()
}

fn child(schema: &Schema, parent: NodeId, elem: &Elem) -> Result<NodeId, String> {
    let (module, name) = elem.split_name();
    schema
        .child(parent, module, name)
        .ok_or_else(|| format!("`{}` has no `{name}`", schema.node(parent).name))
}

/// Schema nodes along a path, ignoring keys.
fn nodes(schema: &Schema, start: NodeId, path: &Path) -> Result<Vec<NodeId>, String> {
    let mut at = start;
    let mut found = Vec::with_capacity(path.elems.len());
    for elem in &path.elems {
        at = child(schema, at, elem)?;
        found.push(at);
    }
    Ok(found)
}

/// Steps along a path; every list must have all its keys.
fn steps(schema: &Schema, start: NodeId, path: &Path) -> Result<Vec<Step>, String> {
    let nodes = nodes(schema, start, path)?;
    let step = |(node, elem): (&NodeId, &Elem)| {
        let keys = schema.keys(*node);
        if keys.is_empty() {
            return Ok(Step::node(*node));
        }
        let value = |key: &NodeId| {
            let name = &schema.node(*key).name;
            let text = elem.keys.iter().find(|(key_name, _)| key_name == name);
            let (_, text) = text.ok_or_else(|| format!("`{elem}` has no key `{name}`"))?;
            key_value(schema, *key, text)
        };
        let keys = keys.iter().map(value).collect::<Result<_, String>>()?;
        Ok(Step::entry(*node, keys))
    };
    nodes.iter().zip(&path.elems).map(step).collect()
}
