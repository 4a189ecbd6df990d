//! The difference of the layers of two configurations, as lines of CLI text for people.
//!
//! It compares the layers of boot, clients and services, because only these contain requests. It does not
//! compare the effective trees, whose entries are derived when they are read. It skips memory that both versions share,
//! makes text for the first [`MAX_DIFFERENCE_LINES`] lines, and counts the others.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::cli::{LinePrinter, StatementAction};
use crate::configuration::Configuration;
use crate::instance::{InstancePath, Step};
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::models::Models;
use crate::schema::{NodeId, NodeKind, Origin};
use crate::secret_nodes::{SecretNodes, native_user};
use crate::secrets::Secrets;
use crate::tree::{Branch, Change, Child, Leaf, ListEntry as _, NodeRef, Tree};
use crate::value::Value;

/// Lines that are kept of one difference: a change that people read has fewer, and one of a table is known by its first
/// ones.
pub const MAX_DIFFERENCE_LINES: usize = 500;

/// Layers whose differences are listed.
const LISTED: [LayerKey; 6] = [
    LayerKey::BOOT_NATIVE,
    LayerKey::BOOT_OPENCONFIG,
    LayerKey::CLIENT_NATIVE,
    LayerKey::CLIENT_OPENCONFIG,
    LayerKey::SERVICE_NATIVE,
    LayerKey::SERVICE_OPENCONFIG,
];

/// Text in place of a secret.
const WITHHELD: &str = "(withheld)";
/// Text for the annotation of the root, which CLI text cannot say.
const ANNOTATION: &str = "(annotation of the root)";

/// Signs before the lines that are gone and those that have come.
const GONE: char = '-';
const NEW: char = '+';

/// The difference of the layers of two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerDifference {
    /// Leaves that differ in some layer. An entry or a container that came or went without a leaf counts as one.
    pub leaves: usize,
    /// The first [`MAX_DIFFERENCE_LINES`] lines of CLI text, each once, with `+ ` or `- ` before it.
    pub lines: Vec<String>,
    /// Number of all lines.
    pub total_lines: usize,
}

impl LayerDifference {
    /// Lists what differs between two configurations.
    pub fn of(old: &Configuration, new: &Configuration) -> Self {
        Self::of_layers(new.models(), old.layers(), new.layers())
    }

    /// Lists what differs between two versions of the layers.
    pub fn of_layers(models: &Models, old: &Layers, new: &Layers) -> Self {
        let mut lister = Lister::new(models);
        for layer in LISTED {
            lister.layer(layer, old.tree(layer), new.tree(layer));
        }
        lister.secrets(&old.secrets, &new.secrets);
        lister.annotation(old.annotation.as_deref(), new.annotation.as_deref());
        lister.difference
    }

    /// The difference of the way back.
    #[must_use]
    pub fn inverted(&self) -> Self {
        let invert = |line: &String| match line.strip_prefix(GONE) {
            Some(rest) => format!("{NEW}{rest}"),
            None => format!("{GONE}{}", line.strip_prefix(NEW).unwrap_or(line)),
        };
        Self { lines: self.lines.iter().map(invert).collect(), ..*self }
    }
}

/// Walk of the differences.
struct Lister<'m> {
    models: &'m Models,
    /// Made for the first line.
    printer: Option<LinePrinter<'m>>,
    secret_nodes: Option<SecretNodes>,
    /// The lines that are in the list already: each line is listed once.
    known: HashSet<String>,
    difference: LayerDifference,
}

impl<'m> Lister<'m> {
    fn new(models: &'m Models) -> Self {
        Self {
            models,
            printer: None,
            secret_nodes: SecretNodes::find(&models.openconfig),
            known: HashSet::new(),
            difference: LayerDifference::default(),
        }
    }

    fn layer(&mut self, layer: LayerKey, old: &Tree<LeafMark>, new: &Tree<LeafMark>) {
        let origin = layer.origin;
        Tree::diff(old, new, &mut |path, change| match change {
            Change::Added(found) => self.node(NEW, origin, path, found),
            Change::Removed(found) => self.node(GONE, origin, path, found),
            Change::Leaf { old, new } if old.value == new.value && are_alike(old, new) => {}
            Change::Leaf { old, new } => {
                if !self.is_key(origin, path) {
                    self.difference.leaves += 1;
                    self.leaf_line(GONE, origin, path, old);
                    self.leaf_line(NEW, origin, path, new);
                }
            }
            Change::Given(is_given) => {
                self.difference.leaves += 1;
                let sign = if is_given { NEW } else { GONE };
                self.line(sign, origin, path, &StatementAction::Create);
            }
        });
    }

    /// Lists a node that came or went, with all that is in it.
    fn node(
        &mut self,
        sign: char,
        origin: Origin,
        path: &InstancePath,
        found: NodeRef<'_, LeafMark>,
    ) {
        match found {
            NodeRef::Leaf(leaf) => self.leaf(sign, origin, path, leaf),
            NodeRef::Branch(branch) => self.inside(sign, origin, &mut path.clone(), branch),
            NodeRef::List(list) => {
                let mut path = path.clone();
                for (keys, entry) in list.iter() {
                    let Some(step) = path.0.last_mut() else { return };
                    step.keys = Some(keys.clone());
                    self.inside(sign, origin, &mut path, &entry.branch());
                }
            }
        }
    }

    /// Lists an entry or a container, and what is in it.
    fn inside(
        &mut self,
        sign: char,
        origin: Origin,
        path: &mut InstancePath,
        branch: &Branch<LeafMark>,
    ) {
        let Some(node) = path.last().map(|step| step.node) else { return };
        if self.is_full() {
            let count = self.count(origin, node, branch);
            self.difference.leaves += count;
            self.difference.total_lines += count;
            return;
        }
        if let Some(action) = self.creation(origin, node, branch) {
            self.difference.leaves += 1;
            self.line(sign, origin, path, &action);
        }
        for (node, child) in branch.children() {
            match child {
                Child::Leaf(leaf) => {
                    path.0.push(Step::node(*node));
                    self.leaf(sign, origin, path, leaf);
                    path.0.pop();
                }
                Child::Container(inner) => {
                    path.0.push(Step::node(*node));
                    self.inside(sign, origin, path, inner);
                    path.0.pop();
                }
                Child::List(list) => {
                    for (keys, entry) in list.iter() {
                        path.0.push(Step::entry(*node, keys.clone()));
                        self.inside(sign, origin, path, &entry.branch());
                        path.0.pop();
                    }
                }
            }
        }
    }

    /// Leaves of an entry or a container, and of what is in it, as [`Lister::inside`] lists them.
    fn count(&self, origin: Origin, node: NodeId, branch: &Branch<LeafMark>) -> usize {
        let own = usize::from(self.creation(origin, node, branch).is_some());
        let children = branch.children().iter().map(|(node, child)| match child {
            Child::Leaf(_) => usize::from(!self.is_key_leaf(origin, *node)),
            Child::Container(inner) => self.count(origin, *node, inner),
            Child::List(list) => {
                list.iter().map(|(_, entry)| self.count(origin, *node, &entry.branch())).sum()
            }
        });
        own + children.sum::<usize>()
    }

    /// The statement that an entry or a container itself stands for, where its leaves do not imply it.
    fn creation(
        &self,
        origin: Origin,
        node: NodeId,
        branch: &Branch<LeafMark>,
    ) -> Option<StatementAction> {
        let schema = self.models.schema(origin);
        match &schema.node(node).kind {
            NodeKind::List { keys } => {
                let mark = keys.first().and_then(|key| branch.leaf(*key)).map(|leaf| leaf.meta);
                match mark {
                    Some(LeafMark::Absent) if branch.given => Some(StatementAction::No),
                    Some(LeafMark::Absent) => None,
                    _ if branch.has_only_keys(schema) => Some(StatementAction::Create),
                    _ => None,
                }
            }
            NodeKind::Container { presence: true } if branch.given => Some(StatementAction::Create),
            _ => None,
        }
    }

    fn leaf(&mut self, sign: char, origin: Origin, path: &InstancePath, leaf: &Leaf<LeafMark>) {
        if !self.is_key(origin, path) {
            self.difference.leaves += 1;
            self.leaf_line(sign, origin, path, leaf);
        }
    }

    fn leaf_line(
        &mut self,
        sign: char,
        origin: Origin,
        path: &InstancePath,
        leaf: &Leaf<LeafMark>,
    ) {
        let action = match leaf.meta {
            LeafMark::Absent => StatementAction::No,
            _ => StatementAction::Set(leaf.value.clone()),
        };
        self.line(sign, origin, path, &action);
    }

    /// Adds a line, as long as there is room.
    fn line(&mut self, sign: char, origin: Origin, path: &InstancePath, action: &StatementAction) {
        if self.is_full() {
            self.difference.total_lines += 1;
            return;
        }
        let text = match origin {
            Origin::Native => self.native_text(path, action),
            Origin::OpenConfig => self.openconfig_text(path, action),
        };
        self.push(sign, &text);
    }

    fn push(&mut self, sign: char, text: &str) {
        if self.is_full() {
            self.difference.total_lines += 1;
            return;
        }
        let line = format!("{sign} {text}");
        if self.known.insert(line.clone()) {
            self.difference.lines.push(line);
            self.difference.total_lines += 1;
        }
    }

    fn native_text(&mut self, path: &InstancePath, action: &StatementAction) -> String {
        let models = self.models;
        self.printer.get_or_insert_with(|| LinePrinter::new(&models.native)).line(path, action)
    }

    /// The native line for a node of OpenConfig; its own path and value where it has no native counterpart.
    fn openconfig_text(&mut self, path: &InstancePath, action: &StatementAction) -> String {
        let map = &self.models.map;
        let native = match action {
            StatementAction::Set(value) => {
                let translated = map.down(path, value).ok().flatten();
                translated.map(|(path, value)| (path, StatementAction::Set(value)))
            }
            StatementAction::No if path.last().is_some_and(|step| step.keys.is_none()) => {
                map.path_to_native(path).map(|path| (path, StatementAction::No))
            }
            action => map.entry_to_native(path).map(|path| (path, action.clone())),
        };
        if let Some((path, action)) = native {
            return self.native_text(&path, &action);
        }
        let place = path.to_path(&self.models.openconfig);
        match action {
            StatementAction::Create => place.to_string(),
            StatementAction::No => format!("no {place}"),
            StatementAction::Set(_) if self.is_secret(path) => format!("{place} {WITHHELD}"),
            StatementAction::Set(Value::Empty) => place.to_string(),
            StatementAction::Set(value) => format!("{place} {value}"),
        }
    }

    fn secrets(&mut self, old: &Secrets, new: &Secrets) {
        for (user, leaf, secret) in Secrets::differences(old, new) {
            self.difference.leaves += 1;
            let entry = native_user(self.models, user);
            let entry = match entry {
                Some(path) => self.native_text(&path, &StatementAction::Create),
                None => format!("user {user}"),
            };
            let text = format!("{entry} {} {WITHHELD}", leaf.name());
            if old.get(user, leaf).is_some() {
                self.push(GONE, &text);
            }
            if secret.is_some() {
                self.push(NEW, &text);
            }
        }
    }

    fn annotation(&mut self, old: Option<&str>, new: Option<&str>) {
        if old == new {
            return;
        }
        self.difference.leaves += 1;
        for (sign, annotation) in [(GONE, old), (NEW, new)] {
            if annotation.is_some() {
                self.push(sign, ANNOTATION);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.difference.lines.len() >= MAX_DIFFERENCE_LINES
    }

    /// True for a leaf that the keys of its entry say already.
    fn is_key(&self, origin: Origin, path: &InstancePath) -> bool {
        path.last().is_some_and(|step| self.is_key_leaf(origin, step.node))
    }

    fn is_key_leaf(&self, origin: Origin, leaf: NodeId) -> bool {
        match origin {
            Origin::Native => self.models.native.is_list_key(leaf),
            Origin::OpenConfig => self.models.map.is_openconfig_key(leaf),
        }
    }

    fn is_secret(&self, path: &InstancePath) -> bool {
        let nodes = self.secret_nodes.as_ref();
        let leaf = path.last().map(|step| step.node);
        nodes.is_some_and(|nodes| nodes.leaves.iter().any(|(node, _)| Some(*node) == leaf))
    }
}

/// True when both marks say that the leaf has its value, or both that it is to be absent.
fn are_alike(old: &Leaf<LeafMark>, new: &Leaf<LeafMark>) -> bool {
    (old.meta == LeafMark::Absent) == (new.meta == LeafMark::Absent)
}
