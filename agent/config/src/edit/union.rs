//! union_replace: the configuration becomes the union of the entries of a request.
//!
//! The entries have no order. With CLI text, or with OpenConfig alone, the base is the factory configuration; with
//! native paths it is the present configuration without the nodes that the paths name in either model.

use std::fmt::Display;

use super::attribution::Subject;
use super::counterpart::{self, Overlap};
use super::errors::MAX_CONFLICTS;
use super::merge::SubtreeMerge;
use super::payload::ParsedPayload;
use super::session::EditSession;
use super::text::is_text;
use super::{Conflict, Edit, EditCause, EditOperation, EditTarget, Payload};
use crate::footprint::Part;
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, LeafMark};
use crate::limits::excerpt;
use crate::resolve::PathPattern;
use crate::schema::Origin;
use crate::tree::Tree;

type UnionEntry = (EditTarget, Payload);

impl EditSession<'_> {
    pub(super) fn union_replace(&mut self, edit: &Edit) {
        self.check_union_replace(edit);
        let entries = &edit.union_replace;
        *self.layers.tree_mut(LayerKey::CLIENT_OPENCONFIG) = Tree::new();
        *self.layers.tree_mut(LayerKey::CLIENT_NATIVE) = Tree::new();
        self.scope.add_part(Part::Annotation);
        self.layers.annotation = None;
        for (at, (target, payload)) in entries.iter().enumerate() {
            if self.must_stop(EditOperation::UnionReplace(at)) {
                return;
            }
            self.write(EditOperation::UnionReplace(at), target, payload);
        }
        if !self.errors.is_empty() {
            return;
        }
        self.flush_additions();
        if entries.iter().any(is_native_path) {
            self.merge_onto_running(entries);
        } else {
            self.scope.add_subtree(Origin::OpenConfig, &PathPattern::default());
            if !entries.iter().any(|(_, payload)| is_text(payload)) {
                *self.layers.tree_mut(LayerKey::CLIENT_NATIVE) = self.before.factory().clone();
            }
        }
        self.check_negations(true);
        self.share_memory(LayerKey::CLIENT_OPENCONFIG);
        self.share_memory(LayerKey::CLIENT_NATIVE);
    }

    /// Refuses invalid combinations of operations and origins.
    fn check_union_replace(&mut self, edit: &Edit) {
        let malformed = |reason: &str| EditCause::Malformed(reason.to_owned());
        let entries = &edit.union_replace;
        let others = edit.deletes.len() + edit.replaces.len() + edit.updates.len();
        if let Some((target, _)) = entries.first().filter(|_| others > 0) {
            let cause =
                malformed("a union_replace cannot be combined with a delete, replace or update");
            self.fail(EditOperation::UnionReplace(0), target, cause);
        }
        let has_text = entries.iter().any(|(_, payload)| is_text(payload));
        let mut texts = 0;
        for (at, entry @ (target, payload)) in entries.iter().enumerate() {
            texts += usize::from(is_text(payload));
            if is_text(payload) && texts > 1 {
                let cause = malformed("a union_replace may have only one CLI text");
                self.fail(EditOperation::UnionReplace(at), target, cause);
            }
            if has_text && is_native_path(entry) {
                let cause = malformed(
                    "CLI text and native paths cannot be combined: \
                     send one of them, with or without OpenConfig",
                );
                self.fail(EditOperation::UnionReplace(at), target, cause);
            }
        }
    }

    /// Records an error when earlier entries have other values for leaves of this one; true if so.
    pub(super) fn contradicts(
        &mut self,
        operation: EditOperation,
        origin: Origin,
        path: &InstancePath,
        supplied: &ParsedPayload,
    ) -> bool {
        let schema = self.models().schema(origin);
        let tree = self.layers.tree(LayerKey::client(origin));
        let mut found = Vec::new();
        let mut note = |path: &InstancePath, present: &dyn Display, other: &dyn Display| {
            if found.len() < MAX_CONFLICTS {
                let cause =
                    EditCause::Contradiction { other: excerpt(present), value: excerpt(other) };
                found.push((path.to_path(schema), cause));
            }
        };
        match supplied {
            ParsedPayload::Leaf(value) => {
                if let Some(present) = tree.leaf(path).filter(|present| present.value != *value) {
                    note(path, &present.value, value);
                }
            }
            ParsedPayload::Branch { branch, annotation, .. } => {
                if let Some(present) = tree.branch(path) {
                    counterpart::visit_differences(
                        path,
                        present,
                        branch,
                        &mut |path, present, other| {
                            note(path, present, other);
                        },
                    );
                }
                if let (Some(present), Some(other)) = (&self.layers.annotation, annotation)
                    && present != other
                {
                    note(path, present, other);
                }
            }
        }
        let contradicts = !found.is_empty();
        for (path, cause) in found {
            self.refuse(operation, path, cause);
        }
        contradicts
    }

    /// Merges the supplied entries into the present configuration, after clearing the paths that they name.
    fn merge_onto_running(&mut self, entries: &[UnionEntry]) {
        let supplied = std::mem::replace(&mut self.layers, self.before.layers().clone());
        self.layers.secrets = supplied.secrets.clone();
        self.check_overlaps(&supplied);
        let paths: Vec<_> = entries.iter().filter_map(|(it, _)| self.named(it)).collect();
        for (origin, path) in &paths {
            match origin {
                Origin::OpenConfig => self.clear_openconfig(path),
                Origin::Native => self.clear_native(path),
            }
        }
        for origin in [Origin::OpenConfig, Origin::Native] {
            let layer = LayerKey::client(origin);
            let schema = self.models().schema(origin);
            let root = InstancePath::root();
            let mut merge = SubtreeMerge::new(schema, origin, &root, &mut self.additions);
            let merged =
                merge.branch(self.layers.tree_mut(layer).root_mut(), supplied.tree(layer).root());
            if let Err(misfit) = merged {
                self.refuse(EditOperation::UnionReplace(0), misfit.path, misfit.cause);
            }
        }
        self.flush_additions();
        if supplied.annotation.is_some() {
            self.layers.annotation = supplied.annotation.clone();
        }
        let tree = self.layers.tree_mut(LayerKey::CLIENT_NATIVE);
        let before = self.before;
        let both = [Origin::OpenConfig, Origin::Native];
        for (origin, path) in &paths {
            self.ports.restore(tree, *origin, &PathPattern::from(path), |port| {
                both.iter().any(|origin| port.is_in(*origin, before.config_view(*origin)))
                    && !both.iter().any(|it| port.is_in(*it, supplied.tree(LayerKey::client(*it))))
            });
        }
    }

    fn named(&self, target: &EditTarget) -> Option<(Origin, InstancePath)> {
        let path = self.models().schema(target.origin).resolve_write(&target.path);
        path.ok().map(|path| (target.origin, path))
    }

    fn clear_openconfig(&mut self, path: &InstancePath) {
        let models = self.models();
        if path.is_root() {
            self.layers.annotation = None;
        }
        self.remove(Origin::OpenConfig, path);
        for other in models.map.alternatives(path) {
            self.remove_openconfig(&other);
        }
        counterpart::clear_native(models, self.layers.tree_mut(LayerKey::CLIENT_NATIVE), path);
    }

    fn clear_native(&mut self, path: &InstancePath) {
        let models = self.models();
        self.remove(Origin::Native, path);
        let openconfig = self.layers.tree(LayerKey::CLIENT_OPENCONFIG);
        for above in models.map.up_path_in(path, openconfig) {
            self.remove_openconfig(&above);
        }
    }

    /// Removes a node of client OpenConfig that a path of the request means without naming it, and entries above that have
    /// nothing but keys left.
    fn remove_openconfig(&mut self, path: &InstancePath) {
        if self.layers.tree(LayerKey::CLIENT_OPENCONFIG).get(path).is_some() {
            self.remove(Origin::OpenConfig, path);
            self.drop_bare_entries(path);
        }
    }

    /// Removes OpenConfig entries above `path` that have nothing but keys left, even if they were created as such.
    fn drop_bare_entries(&mut self, path: &InstancePath) {
        let schema = &self.models().openconfig;
        let tree = self.layers.tree_mut(LayerKey::CLIENT_OPENCONFIG);
        for at in (0..path.0.len()).rev().filter(|at| path.0[*at].keys.is_some()) {
            let entry = InstancePath(path.0[..=at].to_vec());
            if tree.branch(&entry).is_some_and(|it| it.has_only_keys(schema)) {
                tree.remove(schema, &entry);
            }
        }
    }

    fn check_overlaps(&mut self, supplied: &Layers) {
        let native = supplied.tree(LayerKey::CLIENT_NATIVE);
        let openconfig = supplied.tree(LayerKey::CLIENT_OPENCONFIG);
        let overlaps = counterpart::overlaps(self.models(), native, openconfig);
        for Overlap { native, openconfig } in overlaps.into_iter().take(MAX_CONFLICTS) {
            let subject = Subject { native: Some(&native.0), openconfig: Some(&openconfig.0) };
            let sides = [
                self.attribution.side(LayerKey::CLIENT_NATIVE, subject, Some(&native.1)),
                self.attribution.side(LayerKey::CLIENT_OPENCONFIG, subject, Some(&openconfig.1)),
            ];
            let cause = EditCause::Overlap(Box::new(Conflict { sides }));
            self.errors.push(self.attribution.error(subject, cause));
        }
    }

    /// Restores memory sharing of a rebuilt layer with its previous version, wherever the two are equal.
    pub(super) fn share_memory(&mut self, layer: LayerKey) {
        let before = self.before.layers().tree(layer);
        let rebuilt: Tree<LeafMark> = std::mem::take(self.layers.tree_mut(layer));
        *self.layers.tree_mut(layer) = rebuilt.sharing(before);
    }
}

fn is_native_path((target, payload): &UnionEntry) -> bool {
    target.origin == Origin::Native && !is_text(payload)
}
