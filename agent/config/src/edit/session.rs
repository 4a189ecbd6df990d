//! Application of the operations of a Set to a copy of the layers.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use super::attribution::Attribution;
use super::authorization::{EditAuthorization, RequestForms};
use super::errors::MAX_ERRORS;
use super::merge::{LeafListAdditions, SubtreeMerge};
use super::payload::{self, InvalidPayload, ParsedPayload};
use super::ports::{FactoryPorts, Port};
use super::reconcile::{Reconciler, check_supported};
use super::secrets::SecretEdits;
use super::text::Negation;
use super::{Edit, EditCause, EditError, EditErrors, EditOperation, EditTarget, Payload};
use crate::configuration::Configuration;
use crate::footprint::{EditScope, Part};
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::limits::{WILDCARD_DELETES, excerpt};
use crate::models::Models;
use crate::progress::{ParseProgress, StopReason};
use crate::resolve::PathPattern;
use crate::schema::{Node, NodeId, NodeKind, Origin, Schema};
use crate::tree::{Branch, Child, Leaf, NodeRef, is_key_or_copy};
use crate::value::Value;

/// A Set in progress.
#[derive(Debug)]
pub(crate) struct EditSession<'a> {
    pub(super) before: &'a Configuration,
    pub(super) layers: Layers,
    pub(super) errors: Vec<EditError>,
    /// Paths that the operations named, to find the operation behind a later problem.
    pub(super) attribution: Attribution<'a>,
    pub(super) ports: FactoryPorts<'a>,
    /// Additions to leaf-lists that are not in the layers yet.
    pub(super) additions: LeafListAdditions,
    /// Paths that CLI text negated with `no`.
    pub(super) negations: Vec<Negation>,
    /// Permissions of the author of the request.
    pub(super) authorization: EditAuthorization,
    pub(super) forms: RequestForms,
    /// Secrets of users that it has sent so far.
    pub(super) secrets: SecretEdits,
    /// Users to whom the operation in progress gives or leaves secrets.
    pub(super) secret_users: BTreeSet<Keys>,
    pub(super) progress: ParseProgress,
    /// Nodes that the operations named.
    pub(super) scope: EditScope,
    /// Number of deletes so far that searched lists.
    wildcard_deletes: usize,
    /// True when the request writes both origins.
    writes_both_origins: bool,
    /// Units that a request for both origins repeated exactly as Get showed them.
    kept: Vec<(EditOperation, Origin, InstancePath)>,
}

impl<'a> EditSession<'a> {
    pub(crate) fn new(before: &'a Configuration) -> Self {
        Self {
            before,
            layers: before.layers().clone(),
            errors: Vec::new(),
            attribution: Attribution::new(before.models()),
            ports: FactoryPorts::of(before.models(), before.factory()),
            additions: LeafListAdditions::default(),
            negations: Vec::new(),
            authorization: EditAuthorization::default(),
            forms: RequestForms::default(),
            secrets: SecretEdits::default(),
            secret_users: BTreeSet::new(),
            progress: ParseProgress::default(),
            scope: EditScope::default(),
            wildcard_deletes: 0,
            writes_both_origins: false,
            kept: Vec::new(),
        }
    }

    /// Runs all operations: a union_replace, or others in the order of section 3.4 of the gNMI specification.
    pub(crate) fn run(
        mut self,
        edit: &Edit,
    ) -> Result<(Layers, Attribution<'a>, EditScope), EditErrors> {
        self.authorization = edit.authorization.for_models(self.before.shared_models());
        self.attribution.authorization = self.authorization.clone();
        self.progress = ParseProgress::new(edit.cancel.clone());
        self.forms = edit.request_forms();
        self.secrets = SecretEdits::by(edit.keeper.clone());
        if edit.union_replace.is_empty() {
            self.plain(edit);
        } else {
            self.union_replace(edit);
        }
        self.drop_unused_secrets();
        // A request without permission gets that error and no other.
        if self.errors.iter().any(|error| error.cause == EditCause::Denied) {
            self.errors.retain(|error| error.cause == EditCause::Denied);
        }
        if !self.errors.is_empty() {
            return Err(self.errors.into());
        }
        self.check_changes_permitted()?;
        Ok((self.layers, self.attribution, self.scope))
    }

    fn plain(&mut self, edit: &Edit) {
        self.writes_both_origins = edit.origins().count() > 1;
        for (at, target) in edit.deletes.iter().enumerate() {
            if self.must_stop(EditOperation::Delete(at)) {
                return;
            }
            self.delete(EditOperation::Delete(at), target);
        }
        self.check_text_replaces(edit);
        let replaces = edit.replaces.iter().enumerate();
        let replaces = replaces.map(|(at, it)| (EditOperation::Replace(at), it));
        let updates = edit.updates.iter().enumerate();
        let updates = updates.map(|(at, it)| (EditOperation::Update(at), it));
        for (operation, (target, payload)) in replaces.chain(updates) {
            if self.must_stop(operation) {
                return;
            }
            self.write(operation, target, payload);
        }
        self.flush_additions();
        self.check_negations(false);
        let before = self.before;
        let attribution = &self.attribution;
        let conflicts =
            super::unchanged_units::conflicts(before, &self.layers, &self.kept, attribution);
        self.errors.extend(conflicts);
    }

    /// True when the rest of the request must be skipped, because it is too large or was cancelled. Records the
    /// error.
    pub(super) fn must_stop(&mut self, operation: EditOperation) -> bool {
        let stop = self.progress.check().err();
        if stop == Some(StopReason::Cancelled) {
            self.refuse(operation, "/".to_owned(), EditCause::Cancelled);
        }
        stop.is_some()
    }

    pub(super) fn models(&self) -> &'a Models {
        self.before.models()
    }

    fn delete(&mut self, operation: EditOperation, target: &EditTarget) {
        let schema = self.models().schema(target.origin);
        let patterns = match schema.resolve_delete(&target.path) {
            Ok(patterns) => patterns,
            Err(error) => return self.fail(operation, target, EditCause::from(&error)),
        };
        if patterns.iter().any(|pattern| pattern.concrete().is_none()) {
            self.wildcard_deletes += 1;
            if let Err(error) = WILDCARD_DELETES.check(self.wildcard_deletes) {
                return self.fail(operation, target, EditCause::Limit(error));
            }
        }
        let writable = |pattern: &&PathPattern| node_at(schema, pattern.last()).config;
        if !patterns.iter().any(|pattern| writable(&pattern)) {
            return self.fail(operation, target, EditCause::ReadOnly);
        }
        for pattern in patterns.iter().filter(writable) {
            self.attribution.path(operation, target.origin, pattern.clone());
            self.scope.add_subtree(target.origin, pattern);
            if !self.may_clear(operation, target, pattern) {
                return;
            }
            if pattern.last().is_some_and(|node| schema.is_list_key(node)) {
                let reason = "a key cannot be deleted without its entry".to_owned();
                return self.fail(operation, target, EditCause::BadValue(reason));
            }
            let owner =
                pattern.concrete().and_then(|it| self.before.reserved_for(target.origin, &it));
            if let Some(owner) = owner {
                let why = "only its owner removes it";
                return self.fail(
                    operation,
                    target,
                    EditCause::Reserved { owner, why, claims: Vec::new() },
                );
            }
            self.clear_secrets(target.origin, pattern);
            self.collect_secret_users(target.origin, pattern);
            self.clear(target.origin, pattern);
            self.create_secret_users();
            self.restore_factory_ports(target.origin, pattern, &[]);
        }
    }

    /// Removes the nodes that a pattern names from the client's layer, and for OpenConfig also the factory leaves
    /// that they map to.
    fn clear(&mut self, origin: Origin, pattern: &PathPattern) {
        let layer = LayerKey::client(origin);
        if pattern.0.is_empty() && origin == Origin::OpenConfig {
            self.scope.add_part(Part::Annotation);
            self.layers.annotation = None;
        }
        let found = self.layers.tree(layer).select(pattern);
        let paths: Vec<InstancePath> = found.into_iter().map(|(path, _)| path).collect();
        for path in &paths {
            self.remove(origin, path);
        }
        if origin == Origin::OpenConfig && self.before.has_factory() {
            let selected = self.before.config_view(origin).select(pattern);
            for (path, found) in selected {
                self.clear_factory(&path, found, &[]);
            }
        }
    }

    /// Restores the factory values of ports that were visible before and are missing after an operation, except
    /// for those in `kept`.
    fn restore_factory_ports(
        &mut self,
        origin: Origin,
        named: &PathPattern,
        kept: &[InstancePath],
    ) {
        let layer = LayerKey::client(origin);
        let visible = self.before.config_view(origin);
        let layer_tree = self.layers.tree(layer).clone();
        let sent_back = |port: &Port<'_>| port.path(origin).is_some_and(|it| kept.contains(it));
        let tree = self.layers.tree_mut(LayerKey::CLIENT_NATIVE);
        self.ports.restore(tree, origin, named, |port| {
            port.is_in(origin, visible) && !port.is_in(origin, &layer_tree) && !sent_back(port)
        });
    }

    /// Removes a subtree of a layer. Entries that stay keep the leaves that repeat their keys.
    pub(super) fn remove(&mut self, origin: Origin, path: &InstancePath) {
        let schema = self.models().schema(origin);
        let tree = self.layers.tree_mut(LayerKey::client(origin));
        if tree.remove(schema, path) {
            self.fill_key_copies(origin, path);
        }
    }

    /// Removes the factory leaves that OpenConfig leaves in `found` map to, except those in `kept`.
    fn clear_factory(
        &mut self,
        at: &InstancePath,
        found: NodeRef<'_, LeafMark>,
        outermost_kept: &[InstancePath],
    ) {
        let map = &self.models().map;
        let mut natives = Vec::new();
        let outermost_kept = outermost(outermost_kept);
        found.walk(&mut at.clone(), &mut |path, _| {
            if !is_within(path, &outermost_kept) {
                natives.extend(map.path_to_native(path));
            }
        });
        let schema = &self.models().native;
        let tree = self.layers.tree_mut(LayerKey::CLIENT_NATIVE);
        // Keys come last, those of inner entries first: an entry is removed once it has nothing but its keys.
        natives.sort_by_key(|path| {
            let is_key = path.last().is_some_and(|step| schema.is_list_key(step.node));
            (is_key, Reverse(path.0.len()))
        });
        for path in natives {
            let Some(NodeRef::Leaf(leaf)) = tree.get(&path) else { continue };
            if leaf.meta != LeafMark::Factory {
                continue;
            }
            if !path.last().is_some_and(|step| schema.is_list_key(step.node)) {
                tree.remove(schema, &path);
                continue;
            }
            let entry = InstancePath(path.0[..path.0.len() - 1].to_vec());
            if tree.branch(&entry).is_some_and(|entry| entry.has_only_keys(schema)) {
                tree.remove(schema, &entry);
            }
        }
    }

    pub(super) fn write(
        &mut self,
        operation: EditOperation,
        target: &EditTarget,
        payload: &Payload,
    ) {
        if let Payload::Cli { text } = payload {
            return self.text(operation, target, text);
        }
        let schema = self.models().schema(target.origin);
        let path = match schema.resolve_write(&target.path) {
            Ok(path) => path,
            Err(error) => return self.fail(operation, target, EditCause::from(&error)),
        };
        if let Err(cause) = self.writable(target.origin, &path) {
            return self.fail(operation, target, cause);
        }
        let pattern = PathPattern::from(&path);
        let clears = !matches!(operation, EditOperation::Update(_));
        if clears && !self.may_clear(operation, target, &pattern) {
            return;
        }
        if clears {
            self.scope.add_subtree(target.origin, &pattern);
        }
        self.collect_secret_users(target.origin, &pattern);
        self.attribution.path(operation, target.origin, pattern);
        let supplied = match payload::read(schema, &path, payload, &self.progress) {
            Ok(supplied) => supplied,
            Err(misfit) => return self.refuse(operation, misfit.path, misfit.cause),
        };
        if !self.may_write_payload(operation, target.origin, &path, &supplied) {
            return;
        }
        let Some(supplied) = self.extract_secrets(operation, target.origin, &path, supplied) else {
            return;
        };
        let replace = matches!(operation, EditOperation::Replace(_));
        let union = matches!(operation, EditOperation::UnionReplace(_));
        if union && self.contradicts(operation, target.origin, &path, &supplied) {
            return;
        }
        if !clears {
            match &supplied {
                ParsedPayload::Leaf(_) => self.scope.add_leaf(target.origin, &path),
                ParsedPayload::Branch { branch, .. } => {
                    self.scope.add_payload(target.origin, &path, branch)
                }
            }
        }
        match supplied {
            ParsedPayload::Leaf(value) => self.write_leaf(operation, target, &path, value, replace),
            ParsedPayload::Branch { empty: true, .. } if (replace || union) && is_entry(&path) => {
                self.refuse(operation, path.to_path(schema).to_string(), EditCause::Empty);
            }
            ParsedPayload::Branch { branch, annotation, .. } => {
                if replace && path.is_root() || annotation.is_some() {
                    self.scope.add_part(Part::Annotation);
                    self.layers.annotation = annotation;
                }
                self.write_branch(operation, target.origin, &path, branch, replace);
            }
        }
        self.create_secret_users();
    }

    pub(super) fn writable(&self, origin: Origin, path: &InstancePath) -> Result<(), EditCause> {
        let models = self.models();
        if !node_at(models.schema(origin), path.last().map(|step| step.node)).config {
            return Err(EditCause::ReadOnly);
        }
        for step in &path.0 {
            if let Some(keys) = &step.keys {
                let supported = models.map.supports(origin, step.node, keys);
                supported.map_err(|reason| EditCause::Unsupported(reason.into_owned()))?;
            }
        }
        Ok(())
    }

    fn write_leaf(
        &mut self,
        operation: EditOperation,
        target: &EditTarget,
        path: &InstancePath,
        value: Value,
        replace: bool,
    ) {
        let schema = self.models().schema(target.origin);
        let Some(step) = path.last() else { return };
        if is_key_or_copy(schema, step.node) {
            return self.write_key(operation, target, path, &value);
        }
        let tree = self.layers.tree_mut(LayerKey::client(target.origin));
        let node = schema.node(step.node);
        let leaf = Leaf::new(value, LeafMark::Explicit);
        match (node.kind == NodeKind::LeafList && !replace, tree.leaf(path)) {
            (true, Some(present)) => {
                let added = self.additions.add(target.origin, path, &present.value, &leaf);
                if let Err(error) = added {
                    return self.fail(operation, target, EditCause::Limit(error));
                }
            }
            _ => tree.set_leaf(schema, path, leaf),
        }
        self.fill_key_copies(target.origin, path);
        if replace {
            self.clear_factory_below(target.origin, path, &[]);
        }
    }

    /// Writes a key leaf, which must have the value in the path. The entry then counts as created.
    fn write_key(
        &mut self,
        operation: EditOperation,
        target: &EditTarget,
        path: &InstancePath,
        value: &Value,
    ) {
        let schema = self.models().schema(target.origin);
        let Some(at) = path.0.iter().rposition(|step| step.keys.is_some()) else { return };
        let entry = &path.0[at];
        let key = &path.0[path.0.len() - 1];
        let name = &schema.node(key.node).name;
        let place = schema.keys(entry.node).iter().position(|key| schema.node(*key).name == *name);
        let entry_value = place.zip(entry.keys.as_ref()).and_then(|(place, keys)| keys.get(place));
        if let Some(entry_value) = entry_value.filter(|entry_value| *entry_value != value) {
            let cause = EditCause::KeyMismatch {
                key: name.to_string(),
                entry: excerpt(entry_value),
                value: excerpt(value),
            };
            return self.fail(operation, target, cause);
        }
        let tree = self.layers.tree_mut(LayerKey::client(target.origin));
        tree.branch_mut(schema, &path.0[..=at], &LeafMark::Explicit).given = true;
        self.fill_key_copies(target.origin, path);
    }

    fn write_branch(
        &mut self,
        operation: EditOperation,
        origin: Origin,
        path: &InstancePath,
        branch: Arc<Branch<LeafMark>>,
        replace: bool,
    ) {
        if let Err(misfit) = check_supported(self.models(), origin, path, &branch) {
            return self.refuse(operation, misfit.path, misfit.cause);
        }
        if let Err(cause) = self.check_repeated_keys(origin, path, &branch) {
            let path = path.to_path(self.models().schema(origin)).to_string();
            return self.refuse(operation, path, cause);
        }
        if replace {
            self.replace_branch(operation, origin, path, &branch)
        } else {
            if let Err(misfit) = self.merge_branch(origin, path, &branch) {
                return self.refuse(operation, misfit.path, misfit.cause);
            }
        }
        self.fill_key_copies(origin, path);
    }

    /// Checks keys that a payload for the `config` container of an entry repeats from the path. Entries within a
    /// payload were checked by its parser.
    fn check_repeated_keys(
        &self,
        origin: Origin,
        path: &InstancePath,
        payload: &Branch<LeafMark>,
    ) -> Result<(), EditCause> {
        let [.., Step { node: list, keys: Some(keys) }, Step { node: inside, .. }] = &path.0[..]
        else {
            return Ok(());
        };
        for (container, leaf, place) in self.models().map.mirrors(origin, *list) {
            let entry_value = &keys[*place];
            let leaf_value = payload.value(*leaf);
            if let Some(leaf_value) =
                leaf_value.filter(|leaf_value| container == inside && *leaf_value != entry_value)
            {
                return Err(EditCause::KeyMismatch {
                    key: self.models().schema(origin).node(*leaf).name.to_string(),
                    entry: excerpt(entry_value),
                    value: excerpt(leaf_value),
                });
            }
        }
        Ok(())
    }

    fn replace_branch(
        &mut self,
        operation: EditOperation,
        origin: Origin,
        path: &InstancePath,
        branch: &Arc<Branch<LeafMark>>,
    ) {
        let schema = self.models().schema(origin);
        let layer = LayerKey::client(origin);
        let mut reconciler =
            Reconciler::new(schema, path, self.writes_both_origins || self.before.has_factory());
        let view = self.before.config_view(origin).branch(path);
        let stored = self.before.layers().tree(layer).branch(path);
        let result = reconciler.run(branch, view, stored);
        let tree = self.layers.tree_mut(layer);
        tree.remove(schema, path);
        if let Some(result) = result.filter(|it| it.given || !it.children().is_empty()) {
            tree.put(schema, path, Child::Container(result), &LeafMark::Explicit);
        }
        let kept = reconciler.kept;
        self.clear_factory_below(origin, path, &kept);
        self.restore_factory_ports(origin, &PathPattern::from(path), &kept);
        if self.writes_both_origins {
            self.kept.extend(kept.into_iter().map(|unit| (operation, origin, unit)));
        }
    }

    fn clear_factory_below(
        &mut self,
        origin: Origin,
        path: &InstancePath,
        except: &[InstancePath],
    ) {
        let before = self.before;
        if origin == Origin::OpenConfig
            && before.has_factory()
            && let Some(found) = before.config_view(origin).get(path)
        {
            self.clear_factory(path, found, except);
        }
    }

    fn merge_branch(
        &mut self,
        origin: Origin,
        path: &InstancePath,
        branch: &Arc<Branch<LeafMark>>,
    ) -> Result<(), InvalidPayload> {
        let schema = self.models().schema(origin);
        let tree = self.layers.tree_mut(LayerKey::client(origin));
        if tree.get(path).is_none() {
            if branch.given || !branch.children().is_empty() {
                tree.put(schema, path, Child::Container(branch.clone()), &LeafMark::Explicit);
            }
            return Ok(());
        }
        let mut merge = SubtreeMerge::new(schema, origin, path, &mut self.additions);
        merge.branch(tree.branch_mut(schema, &path.0, &LeafMark::Explicit), branch)
    }

    pub(super) fn flush_additions(&mut self) {
        let models = self.models();
        self.additions.apply_to(models, &mut self.layers);
    }

    pub(super) fn fail(&mut self, operation: EditOperation, target: &EditTarget, cause: EditCause) {
        self.refuse(operation, &target.path, cause);
    }

    pub(super) fn refuse(
        &mut self,
        operation: EditOperation,
        path: impl Display,
        cause: EditCause,
    ) {
        if self.errors.len() < MAX_ERRORS || cause == EditCause::Denied {
            self.errors.push(EditError::new(operation, path, cause));
        }
    }
}

/// Units that are not within another one, ascending.
fn outermost(units: &[InstancePath]) -> Vec<&InstancePath> {
    let mut sorted: Vec<&InstancePath> = units.iter().collect();
    sorted.sort_unstable();
    // Units within a unit follow directly after it.
    sorted.dedup_by(|inner, unit| inner.starts_with(unit));
    sorted
}

/// True when a path is one of the `outermost` units or within one, which is then the last unit that does not sort
/// after it.
fn is_within(path: &InstancePath, outermost: &[&InstancePath]) -> bool {
    let behind = outermost.partition_point(|unit| *unit <= path);
    behind.checked_sub(1).is_some_and(|at| path.starts_with(outermost[at]))
}

fn node_at(schema: &Schema, node: Option<NodeId>) -> &Node {
    schema.node(node.unwrap_or(schema.root()))
}

fn is_entry(path: &InstancePath) -> bool {
    path.last().is_some_and(|step| step.keys.is_some())
}
