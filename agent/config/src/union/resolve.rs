//! Choice among the layers' values of one leaf.

use super::{
    ConflictingValue, EntryVersions, InputLayer, Problem, Provenance, ProvenanceKind, Union,
};
use crate::fenced_leaves::{FenceRule, is_raised};
use crate::instance::Step;
use crate::layer::{LayerSet, LeafMark, Owner};
use crate::map::{OwnLeaf, leaf_at};
use crate::schema::Origin;
use crate::tree::{Branch, NodeRef};
use crate::value::Value;

/// Ranks, strongest first. Different values of one rank are a conflict, for which the request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Gnsi,
    Boot,
    BootDefault,
    Fence,
    Client,
    ClientDefault,
    SwitchedOff,
    Lease,
    Factory,
}

/// Value of a leaf in one layer. `None` stands for a leaf that is to be absent.
#[derive(Debug)]
pub(super) struct Candidate {
    rank: Rank,
    kind: ProvenanceKind,
    value: Option<Value>,
    slot: InputLayer,
    owners: LayerSet,
    /// Original value, if set in OpenConfig, and by which of the leaf's counterparts.
    openconfig: Option<(usize, Value)>,
}

/// Effective value of a leaf.
pub(super) struct ResolvedLeaf {
    pub(super) value: Value,
    pub(super) provenance: Provenance,
}

impl Union<'_> {
    /// Chooses among the values of `leaf` in all layers but the fence. `defaults` tells which schemas' defaults its
    /// conditions permit.
    pub(super) fn strongest(
        &mut self,
        leaf: &OwnLeaf,
        inputs: &[EntryVersions<'_>],
        defaults: Defaults,
    ) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for (at, pair) in inputs.iter().enumerate() {
            let Some(branch) = pair.new.filter(|_| self.fence != Some(at)) else { continue };
            let slot = self.slots[at];
            let candidate = match slot.layer.origin {
                Origin::Native => native_candidate(leaf, branch, slot),
                Origin::OpenConfig => self.openconfig_candidate(leaf, branch, slot, defaults),
            };
            if let Some(candidate) = candidate {
                best = Some(self.choose_stronger(leaf, best, candidate));
            }
        }
        best
    }

    /// The fence of `leaf`, where it is in force over the choice among the other layers.
    pub(super) fn fence_over(
        &self,
        leaf: &OwnLeaf,
        inputs: &[EntryVersions<'_>],
        below: Option<&Candidate>,
    ) -> Option<Candidate> {
        let at = self.fence?;
        let fence = native_candidate(leaf, inputs[at].new?, self.slots[at])?;
        if below.is_some_and(|below| below.rank < fence.rank) {
            return None;
        }
        let rule = self.models.fence.rule(*leaf.native.last()?);
        if rule == Some(FenceRule::Raise) {
            let (_, keys) = self.place.iter().rev().nth(1)?;
            let below = below.and_then(|below| below.value.as_ref());
            if !is_raised(below, keys.first(), fence.value.as_ref()?) {
                return None;
            }
        }
        Some(fence)
    }

    fn openconfig_candidate(
        &mut self,
        leaf: &OwnLeaf,
        branch: &std::sync::Arc<Branch<LeafMark>>,
        slot: InputLayer,
        defaults: Defaults,
    ) -> Option<Candidate> {
        let entry = NodeRef::Branch(branch);
        let mut explicit: Option<Candidate> = None;
        let mut is_set = false;
        for (at, mapped) in leaf.openconfig.iter().enumerate() {
            let Some(NodeRef::Leaf(found)) = entry.get(&mapped.steps) else { continue };
            is_set = true;
            let value = match ((mapped.codec.down)(&found.value), found.mark_is_absent()) {
                (_, true) => None,
                (Ok(value), false) => Some(value),
                (Err(reason), false) => {
                    self.unsupported(slot, &mapped.steps, reason);
                    continue;
                }
            };
            let rank = explicit_rank(slot);
            let openconfig = Some((at, found.value.clone()));
            let next = Candidate::new(rank, ProvenanceKind::Explicit, value, slot, openconfig);
            match &explicit {
                None => explicit = Some(next),
                Some(first) if first.value != next.value => self.conflict(leaf, first, &next),
                Some(_) => {}
            }
        }
        if is_set {
            return explicit;
        }
        let mapped = leaf.openconfig.first()?;
        let (openconfig, value) = mapped.default.as_ref().filter(|_| defaults.openconfig)?;
        let in_use = matches!(
            entry.get(&mapped.steps[..mapped.unit]),
            Some(NodeRef::Branch(unit)) if mapped.unit > 0 && !unit.is_empty() || mapped.unit == 0
        );
        let rank = match slot.layer.owner {
            _ if slot.off => return None,
            Owner::Boot | Owner::Gnsi => Rank::BootDefault,
            _ => Rank::ClientDefault,
        };
        let openconfig = Some((0, openconfig.clone()));
        let value = Some(value.clone());
        in_use.then(|| {
            Candidate::new(rank, ProvenanceKind::OpenConfigDefault, value, slot, openconfig)
        })
    }

    fn choose_stronger(
        &mut self,
        leaf: &OwnLeaf,
        best: Option<Candidate>,
        next: Candidate,
    ) -> Candidate {
        let Some(mut best) = best else { return next };
        if next.rank < best.rank {
            return next;
        }
        if next.rank == best.rank {
            // Two services that are switched off may disagree: the stronger one wins.
            let parted =
                next.rank == Rank::SwitchedOff && best.slot.layer.owner != next.slot.layer.owner;
            if !parted && !agree(leaf, &best, &next) {
                self.conflict(leaf, &best, &next);
            }
            if !parted {
                best.owners = best.owners.and(next.owners);
            }
        }
        best
    }

    fn conflict(&mut self, leaf: &OwnLeaf, one: &Candidate, other: &Candidate) {
        let path = |alternative: usize| {
            let mapped = leaf.openconfig.get(alternative)?;
            let mut path = self.openconfig_path()?;
            path.0.extend_from_slice(&mapped.steps);
            Some(path)
        };
        let side = |it: &Candidate, beside: &Candidate| {
            let stated = it.openconfig.as_ref();
            let used = stated.or(beside.openconfig.as_ref());
            let value = stated.map(|(_, value)| value).or(it.value.as_ref());
            ConflictingValue {
                layer: it.slot.layer,
                openconfig: path(used.map_or(0, |(alternative, _)| *alternative)),
                value: value.cloned().unwrap_or(Value::Empty),
            }
        };
        let sides = [side(one, other), side(other, one)];
        let mut native = self.native_path();
        native.0.extend(leaf.native.iter().copied().map(Step::node));
        self.problems.push(Problem::Conflict { native, sides });
    }

    pub(super) fn unsupported(&mut self, slot: InputLayer, steps: &[Step], reason: String) {
        let Some(mut openconfig) = self.openconfig_path() else { return };
        openconfig.0.extend_from_slice(steps);
        self.problems.push(Problem::Unsupported { layer: slot.layer, openconfig, reason });
    }
}

/// Defaults that the conditions permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    pub(super) openconfig: bool,
    pub(super) native: bool,
}

impl ResolvedLeaf {
    /// The effective value that a choice gives: it, or the native default where nothing was chosen.
    pub(super) fn of(leaf: &OwnLeaf, best: Option<Candidate>, defaults: Defaults) -> Option<Self> {
        let chosen = best.and_then(|best| {
            let provenance = Provenance { kind: best.kind, owners: best.owners };
            Some(Self { value: best.value?, provenance })
        });
        chosen.or_else(|| {
            let kind = ProvenanceKind::NativeDefault;
            let provenance = Provenance { kind, owners: LayerSet::NONE };
            let default = leaf.default.clone().filter(|_| defaults.native);
            default.map(|value| Self { value, provenance })
        })
    }
}

impl Candidate {
    fn new(
        rank: Rank,
        kind: ProvenanceKind,
        value: Option<Value>,
        slot: InputLayer,
        openconfig: Option<(usize, Value)>,
    ) -> Self {
        Self { rank, kind, value, slot, owners: LayerSet::of(slot.layer), openconfig }
    }
}

fn native_candidate(
    leaf: &OwnLeaf,
    branch: &Branch<LeafMark>,
    slot: InputLayer,
) -> Option<Candidate> {
    let found = leaf_at(branch, &leaf.native)?;
    let value = Some(found.value.clone());
    Some(match found.meta {
        LeafMark::Factory => {
            Candidate::new(Rank::Factory, ProvenanceKind::Factory, value, slot, None)
        }
        LeafMark::Absent => {
            Candidate::new(explicit_rank(slot), ProvenanceKind::Explicit, None, slot, None)
        }
        LeafMark::Explicit | LeafMark::Default => {
            Candidate::new(explicit_rank(slot), ProvenanceKind::Explicit, value, slot, None)
        }
    })
}

fn explicit_rank(slot: InputLayer) -> Rank {
    match slot.layer.owner {
        Owner::Gnsi | Owner::Boot if slot.off => Rank::SwitchedOff,
        Owner::Gnsi => Rank::Gnsi,
        Owner::Boot => Rank::Boot,
        Owner::Fence => Rank::Fence,
        Owner::Client | Owner::Service => Rank::Client,
        Owner::Lease => Rank::Lease,
    }
}

/// True for equal native values, and for a native value whose OpenConfig form is the other's value: a veth, for
/// instance, is an `ethernetCsmacd` like any port.
fn agree(leaf: &OwnLeaf, one: &Candidate, other: &Candidate) -> bool {
    let shown_as = |native: &Candidate, openconfig: &Candidate| {
        let stated = openconfig.openconfig.as_ref().filter(|_| native.openconfig.is_none());
        stated.zip(native.value.as_ref()).is_some_and(|((at, stated), value)| {
            let mapped = leaf.openconfig.get(*at);
            mapped.and_then(|it| (it.codec.up)(value)).as_ref() == Some(stated)
        })
    };
    one.value == other.value || shown_as(one, other) || shown_as(other, one)
}

impl crate::tree::Leaf<LeafMark> {
    fn mark_is_absent(&self) -> bool {
        self.meta == LeafMark::Absent
    }
}
