//! Refusal of entries of clients and services that set items reserved for a namespace.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{EntryVersions, InputLayer, Problem, Union};
use crate::instance::Step;
use crate::layer::{LayerKey, LeafMark, Namespace, Owner};
use crate::map::{Anchor, OwnLeaf, leaf_at};
use crate::schema::Origin;
use crate::tree::{Leaf, NodeRef};

type EntryBranch<'a> = &'a std::sync::Arc<crate::tree::Branch<LeafMark>>;

impl<'a> Union<'a> {
    /// Records a problem for each reserved item of this entry that a client sets, or that a service asks for and did not
    /// before. Omitting or hiding an item is permitted, because the owner's copy stays.
    pub(super) fn check_reserved(&mut self, anchor: &'a Anchor, inputs: &[EntryVersions<'a>]) {
        for at in 0..inputs.len() {
            let (slot, EntryVersions { old, new }) = (self.slots[at], inputs[at]);
            let Some(new) = new.filter(|_| !inputs[at].is_same()) else { continue };
            self.check_unwritable(anchor, slot, old, new);
            if self.boot && matches!(slot.layer.owner, Owner::Client | Owner::Service) {
                self.check_boot(anchor, inputs, slot, old, new);
            }
        }
    }

    fn check_unwritable(
        &mut self,
        anchor: &'a Anchor,
        slot: InputLayer,
        old: Option<EntryBranch<'_>>,
        new: EntryBranch<'_>,
    ) {
        for never in anchor.never.iter().filter(|_| slot.is_openconfig()) {
            let Some(requested) = leaf_below(new, &never.steps) else { continue };
            let is_new = || {
                let before = old.and_then(|old| leaf_below(old, &never.steps));
                before.is_none_or(|before| before.value != requested.value)
            };
            let is_on = never.reserved.is_some_and(|row| self.is_on(row.service));
            match (slot.layer.owner, never.reserved) {
                (Owner::Service, Some(row)) if row.is_for_services => {
                    // A value that was asked for while the item was free stays, without effect.
                    if is_on && is_new() {
                        self.reserved(row.service, slot.layer, &never.steps, row.why);
                    }
                }
                (Owner::Client, Some(row)) if is_on => {
                    self.reserved(row.service, slot.layer, &never.steps, row.why);
                }
                _ => self.unsupported(slot, &never.steps, never.reason.clone()),
            }
        }
    }

    fn check_boot(
        &mut self,
        anchor: &'a Anchor,
        inputs: &[EntryVersions<'a>],
        slot: InputLayer,
        old: Option<EntryBranch<'_>>,
        new: EntryBranch<'_>,
    ) {
        let boot: Vec<(InputLayer, EntryBranch<'_>)> = self
            .slots
            .iter()
            .zip(inputs)
            .filter(|(slot, _)| slot.layer.owner == Owner::Boot && !slot.off)
            .filter_map(|(slot, pair)| Some((*slot, pair.new?)))
            .collect();
        let is_boot_entry = boot.iter().any(|(slot, entry)| holds_entry(anchor, *slot, entry));
        for leaf in anchor.leaves.iter().filter(|leaf| leaf.key.is_none()) {
            let is_held = is_boot_entry
                || boot.iter().any(|(slot, entry)| {
                    ways(leaf, *slot).iter().any(|way| leaf_below(entry, way).is_some())
                });
            for way in ways(leaf, slot).into_iter().filter(|_| is_held) {
                let requested = leaf_below(new, &way).filter(|it| it.meta == LeafMark::Explicit);
                let Some(requested) = requested else { continue };
                let before = old.and_then(|old| leaf_below(old, &way));
                if before.is_some_and(|before| before.value == requested.value) {
                    continue;
                }
                let why = "the boot configuration holds it";
                self.reserved(Namespace::Bootz, slot.layer, &way, why);
            }
        }
    }

    fn reserved(&mut self, service: Namespace, layer: LayerKey, steps: &[Step], why: &'static str) {
        let entry = match layer.origin {
            Origin::OpenConfig => self.openconfig_path(),
            Origin::Native => Some(self.native_path()),
        };
        let Some(mut path) = entry else { return };
        path.0.extend_from_slice(steps);
        self.problems.push(Problem::Reserved { service, layer, path, why });
    }

    fn is_on(&self, service: Namespace) -> bool {
        self.off.without(service.layers()) == self.off
    }
}

/// True when a boot layer holds the entry as such, or says that it is to be absent. False for the root, which is
/// not an entry.
fn holds_entry(anchor: &Anchor, slot: InputLayer, entry: EntryBranch<'_>) -> bool {
    let Some(key) = anchor.leaves.iter().find(|leaf| leaf.key.is_some()) else { return false };
    slot.is_openconfig()
        || entry.given
        || leaf_at(entry, &key.native).is_some_and(|leaf| leaf.meta != LeafMark::Absent)
}

/// Ways from an entry to a leaf in the model of a layer: those of its alternatives in OpenConfig, one in the native model.
fn ways(leaf: &OwnLeaf, slot: InputLayer) -> SmallVec<[Cow<'_, [Step]>; 1]> {
    if slot.is_openconfig() {
        return leaf.openconfig.iter().map(|mapped| Cow::Borrowed(&mapped.steps[..])).collect();
    }
    let way: Vec<Step> = leaf.native.iter().copied().map(Step::node).collect();
    SmallVec::from_iter([Cow::Owned(way)])
}

fn leaf_below<'e>(entry: EntryBranch<'e>, steps: &[Step]) -> Option<&'e Leaf<LeafMark>> {
    match NodeRef::Branch(entry).get(steps)? {
        NodeRef::Leaf(leaf) => Some(leaf),
        NodeRef::Branch(_) | NodeRef::List(_) => None,
    }
}
