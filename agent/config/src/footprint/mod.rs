//! Footprint of a change: what it writes, and what its examination reads.
//!
//! Two changes that were examined on the same configuration can be committed in either order, and the later one moved
//! onto the other ([`Configuration::rebased`]) without a new examination, when nothing that one of them writes is
//! read or written by the other. A footprint is this knowledge, in native paths: an OpenConfig entry and its native
//! counterpart are one object. A path means all that is below it too.
//!
//! ```text
//!  layers before | after     effective before | after      operations of the request
//!        | differences             | differences              | subtrees, payloads
//!        v                         v                          v
//!     written                   written                      read        + foreign inputs: read or written
//! ```
//!
//! | written or read | path |
//! |---|---|
//! | a leaf, or the existence, of an entry differs in a layer or in the effective tree | the innermost native entry, written |
//! | a leaf outside of entries differs | the native object that it is in, without the entries in that, else the native leaf, written; an OpenConfig leaf without one is in a set of its own |
//! | a leaf outside of entries differs in a layer | all leaves there, written: they have one row |
//! | a delete, replace or union_replace names a node | the node, read; within OpenConfig entries the entry; for a wildcard its list |
//! | an update names leaves | the innermost entries that they are in, or the leaves, read, though nothing differs |
//! | an entry of a layer loses something and rests on entries below it (it is neither given nor has leaves) | one of these, read: with the last one it would go, or become a shell |
//! | a delete or replace in an entry that the factory knows (its ports come back by themselves) | the outermost entry, read |
//! | something on a link with leased addresses differs (an address there hides leases) | the link, written |
//! | leases differ | their links, read |
//! | an instance of a service is walked | its entry and its service plan, read, and written if the plan differs |
//! | the walk reads the configuration, or whether another instance is ready | this pattern, or that plan, read |
//! | a claim differs | the entries in which it does, written, whoever else holds them |
//! | entries are gained, as far as all of those under way could come near [`LIST_ENTRIES`]; leaves of claims, service plans, their states and queued actions likewise |
//! | a line of CLI text names a node | the leaf or entry that it makes as for an update, what `no` names as for a delete |
//! | a replace by CLI text, or a union_replace without native paths | the whole of the layers that it starts anew, read |
//! | a secret of a user differs | the user, and all secrets as one [`Part`], written: the files of the box have several users |
//! | an item of the fence layer, or its owners, differ | its entry, written; the switches, read |
//! | users of services differ, who may have keys | all secrets, written |
//! | the annotation differs, or the request could have set it | this [`Part`], written or read |
//! | the boot configuration is set, or a service is switched | both parts, read |
//! | the boot configuration differs | its part, written, beside what differs in its layers |
//! | a service is switched to the other side | this part, and all that its layers have, written; with gNSI the secrets |
//!
//! Conditions of defaults (`when`), mandatory leaves, `one-of` and reservations read leaves of the same entry, which
//! boot layers may have, too. Factory state and models have everything as their footprint. So must a roll-back, which
//! names no nodes and overwrites all of the clients' layers ([`Footprint::everything`]). Values that
//! exclude one another in the kernel are the engine's business, not this module's. A conflict that is none costs time,
//! and a missed one is a wrong result, so whatever is in doubt is a conflict.

mod paths;
mod services;
mod walk;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::claims::ServiceTag;
use crate::cli::{Statement, StatementAction};
use crate::configuration::Configuration;
use crate::fenced_leaves::Fences;
use crate::growth::Growth;
use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::limits::{
    CLAIMED_LEAVES, LIST_ENTRIES, SERVICE_ACTIONS, SERVICE_INSTANCES, SERVICE_STATES,
};
use crate::models::Models;
use crate::resolve::PathPattern;
use crate::schema::Origin;
use crate::secret_nodes::native_user;
use crate::secrets::Secrets;
use crate::tree::{Branch, LeafMeta, Tree};
use crate::union::leased_links;
use crate::user_keys::are_service_users_same;

use paths::{Access, TouchedItems, TouchedPaths};
use walk::Walk;

/// Writes and reads of a change.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    everything: bool,
    native: TouchedPaths,
    /// OpenConfig paths without native counterparts.
    unmapped: TouchedPaths,
    parts: TouchedItems<Part>,
    /// Service plans, by the names of their instances.
    plans: TouchedItems<ServiceTag>,
    /// Growth of the numbers that limits bound: list entries, leaves of claims, and what service plans hold.
    growths: [Growth; 5],
}

/// A part of the configuration that is in no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The annotation of the root.
    Annotation,
    /// The secrets of all users, and whether they are the clients' to give.
    Secrets,
    /// The boot configuration, and the one before a trial.
    Boot,
    /// Owners that are switched off.
    Switches,
    /// Leaves of a layer outside of entries, which have one row.
    OwnLeaves(LayerKey),
}

/// Nodes that the operations of a request named, for its [`Footprint`].
#[derive(Clone, Debug, Default)]
pub struct EditScope {
    /// Parts that the result depends on, whether or not they differ.
    parts: BTreeSet<Part>,
    named: Vec<NamedNodes>,
}

#[derive(Clone, Debug)]
enum NamedNodes {
    /// All that a pattern covers.
    Subtree(Origin, PathPattern),
    /// The leaf of an update.
    Leaf(Origin, InstancePath),
    /// The payload of an update.
    Payload(Origin, InstancePath, Arc<Branch<LeafMark>>),
}

impl EditScope {
    /// Scope of a change of the fence layer; the ranks of other layers decide whether it is possible.
    pub fn of_fence() -> Self {
        Self { parts: [Part::Switches].into(), ..Self::default() }
    }

    /// Scope of a change of the boot configuration, or of a switch, which gives what the other one writes its rank.
    pub fn of_box() -> Self {
        Self { parts: [Part::Boot, Part::Switches].into(), ..Self::default() }
    }

    pub(crate) fn add_part(&mut self, part: Part) {
        self.parts.insert(part);
    }

    /// Adds what one line of CLI text names.
    pub(crate) fn add_statement(&mut self, statement: &Statement) {
        let origin = Origin::Native;
        let path = &statement.path;
        match statement.act {
            StatementAction::Set(_) => self.add_leaf(origin, path),
            StatementAction::Create => self.add_payload(origin, path, &Arc::default()),
            // With the OpenConfig counterparts, on which its error depends: an entry and its counterpart are one object.
            StatementAction::No => self.add_subtree(origin, &PathPattern::from(path)),
        }
    }

    pub(crate) fn add_subtree(&mut self, origin: Origin, pattern: &PathPattern) {
        self.named.push(NamedNodes::Subtree(origin, pattern.clone()));
    }

    pub(crate) fn add_leaf(&mut self, origin: Origin, path: &InstancePath) {
        self.named.push(NamedNodes::Leaf(origin, path.clone()));
    }

    pub(crate) fn add_payload(
        &mut self,
        origin: Origin,
        path: &InstancePath,
        payload: &Arc<Branch<LeafMark>>,
    ) {
        self.named.push(NamedNodes::Payload(origin, path.clone(), payload.clone()));
    }
}

impl Footprint {
    /// Footprint of a change that has to be alone.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Footprint of a change of credentials, which no layer holds.
    pub fn of_credentials() -> Self {
        let mut footprint = Self::default();
        footprint.parts.add(Part::Secrets, Access::Write);
        footprint
    }

    /// Footprint of the change from `base` to `candidate` by a request whose operations named the nodes of `scope`. The
    /// cost is in proportion to the change and the request.
    pub fn of(base: &Configuration, candidate: &Configuration, scope: &EditScope) -> Self {
        let old = base.layers();
        let new = candidate.layers();
        let alone = old.factory_text != new.factory_text
            || !base.factory().is_same(candidate.factory())
            || !Arc::ptr_eq(base.shared_models(), candidate.shared_models());
        if alone {
            return Self::everything();
        }
        let models = base.models();
        let mut footprint = Self { growths: Self::growths([base, candidate]), ..Self::default() };
        for layer in LayerKey::ALL {
            let old = old.tree(layer).root();
            let new = new.tree(layer).root();
            if !Arc::ptr_eq(old, new) {
                let mut walk = Walk::of_layer(models, layer, &mut footprint);
                walk.differences(Some(old), Some(new));
            }
        }
        footprint.add_native(models, base.effective(), candidate.effective());
        if !old.claims().is_empty() || !new.claims().is_empty() {
            let [before, after] = [base, candidate].map(Configuration::ground);
            footprint.add_native(models, before.effective(), after.effective());
        }
        footprint.add_scope(base, scope);
        footprint.add_walks(candidate);
        footprint.add_claims(models, old, new);
        footprint.add_parts(models, old, new);
        footprint.add_fences(old, new);
        footprint.add_leases(models, base, candidate);
        footprint
    }

    /// Adds native entries whose rules, outside of this crate, hold for several changes together, such as that two links
    /// do not name one peer: as if they were written.
    pub fn add_entries(&mut self, entries: impl IntoIterator<Item = InstancePath>) {
        entries.into_iter().for_each(|entry| self.native.add(&entry.0, Access::Write));
    }

    /// Adds native nodes that values follow from, outside of this crate, such as a leaf that is the default of other entries.
    pub fn add_read(&mut self, nodes: impl IntoIterator<Item = InstancePath>) {
        nodes.into_iter().for_each(|node| self.native.add(&node.0, Access::Read));
    }

    /// True when nothing that one of them writes is read or written by the other. The cost is in proportion to the
    /// smaller one, times the logarithm of the other.
    pub fn keeps_clear_of(&self, other: &Self) -> bool {
        !self.everything
            && !other.everything
            && self.growths.iter().zip(other.growths).all(|(own, other)| own.keeps_clear_of(other))
            && self.native.keeps_clear_of(&other.native)
            && self.unmapped.keeps_clear_of(&other.unmapped)
            && self.parts.keeps_clear_of(&other.parts)
            && self.plans.keeps_clear_of(&other.plans)
    }

    fn growths(versions: [&Configuration; 2]) -> [Growth; 5] {
        let totals = versions.map(|it| it.layers().book.totals());
        [
            Growth::of(versions.map(Configuration::entries), &LIST_ENTRIES),
            Growth::of(versions.map(|it| it.layers().claims().leaves()), &CLAIMED_LEAVES),
            Growth::of(totals.map(|it| it.instances), &SERVICE_INSTANCES),
            Growth::of(totals.map(|it| it.states), &SERVICE_STATES),
            Growth::of(totals.map(|it| it.actions), &SERVICE_ACTIONS),
        ]
    }

    /// Adds what differs between two native trees.
    fn add_native<M: LeafMeta>(&mut self, models: &Models, old: &Tree<M>, new: &Tree<M>) {
        if !Arc::ptr_eq(old.root(), new.root()) {
            let mut walk = Walk::new(models, Origin::Native, self);
            walk.differences(Some(old.root()), Some(new.root()));
        }
    }

    /// Adds the parts that differ.
    fn add_parts(&mut self, models: &Models, old: &Layers, new: &Layers) {
        if old.annotation != new.annotation {
            self.parts.add(Part::Annotation, Access::Write);
        }
        for (user, ..) in Secrets::differences(&old.secrets, &new.secrets) {
            self.parts.add(Part::Secrets, Access::Write);
            let entry = native_user(models, user);
            entry.iter().for_each(|entry| self.native.add(&entry.0, Access::Write));
        }
        if !are_service_users_same(models, old, new) {
            self.parts.add(Part::Secrets, Access::Write);
        }
        if old.boot != new.boot || old.boot_before != new.boot_before {
            self.parts.add(Part::Boot, Access::Write);
        }
        for service in Namespace::ALL.into_iter().filter(|it| old.is_on(*it) != new.is_on(*it)) {
            self.add_switch(models, new, service);
        }
    }

    /// Adds the switch of a service, with all that its layers have: the rank of that is another one.
    fn add_switch(&mut self, models: &Models, layers: &Layers, service: Namespace) {
        self.parts.add(Part::Switches, Access::Write);
        if service == Namespace::Gnsi {
            self.parts.add(Part::Secrets, Access::Write);
        }
        let nothing = Tree::new();
        for layer in service.layers().iter() {
            let mut walk = Walk::new(models, layer.origin, self);
            walk.differences(Some(nothing.root()), Some(layers.tree(layer).root()));
        }
    }

    /// Adds the entries whose fences differ, be it in their owners alone.
    fn add_fences(&mut self, old: &Layers, new: &Layers) {
        for (leaf, _) in Fences::differences(old.fences(), new.fences()) {
            if let Some((_, entry)) = leaf.0.split_last() {
                self.native.add(entry, Access::Write);
            }
        }
    }

    fn add_scope(&mut self, base: &Configuration, scope: &EditScope) {
        let models = base.models();
        scope.parts.iter().for_each(|part| self.parts.add(*part, Access::Read));
        for named in &scope.named {
            match named {
                NamedNodes::Subtree(origin, pattern) => {
                    let outermost = Walk::new(models, *origin, self).subtree(pattern);
                    if let Some(entry) = outermost.filter(|it| base.factory().get(it).is_some()) {
                        self.native.add(&entry.0, Access::Read);
                    }
                }
                NamedNodes::Leaf(origin, path) => {
                    Walk::new(models, *origin, self).leaf(path);
                }
                NamedNodes::Payload(origin, path, payload) => {
                    Walk::new(models, *origin, self).payload(path, payload);
                }
            }
        }
    }

    fn add_leases(&mut self, models: &Models, base: &Configuration, candidate: &Configuration) {
        let [old, new] = [base, candidate].map(|it| it.layers().tree(LayerKey::LEASE));
        let mut links = leased_links(models, old);
        let same = old.is_same(new);
        if !same {
            links.extend(leased_links(models, new));
        }
        for link in links {
            if self.native.meets(&link.0) {
                self.native.add(&link.0, Access::Write);
            } else if !same {
                self.native.add(&link.0, Access::Read);
            }
        }
    }
}
