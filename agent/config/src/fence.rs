//! The fence layer: what faults and maintenance shut or drain, and on whose behalf.
//!
//! A fence has items ([`FenceItem`]), each of one leaf of the native model ([`FenceRule`]). An item has owners, and goes with
//! the last of them. The tree of the layer has the leaves alone and follows from the items, so that no two places say the
//! same. Where an item has an effect is decided by the union (`UNION.md`, section 2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

use crate::configuration::Configuration;
use crate::edit::{Attribution, EditCause, EditError, EditErrors, EditOperation, is_port_type};
pub use crate::fenced_leaves::{FenceOwner, Fences, UnknownFenceOwner};
use crate::fenced_leaves::{FenceRule, FencedLeaf, family_metric, is_raised};
use crate::instance::{InstancePath, Step};
use crate::layer::{LayerKey, LeafMark, Owner};
use crate::limits::FENCED_LEAVES;
use crate::models::Models;
use crate::path::{Elem, Path};
use crate::progress::CancelToken;
use crate::schema::Origin;
use crate::value::Value;

/// One thing that is fenced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FenceItem {
    /// The interface is administratively down.
    Shut { interface: SmolStr },
    /// The interface is not a port of a bridge or a bond.
    Detach { interface: SmolStr },
    /// The next hop of a static route, by the path of its entry, has this metric, as long as that is higher than the one it
    /// would have.
    Raise { next_hop: InstancePath, metric: u32 },
}

/// A change of the fence layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceChange {
    /// Items that one owner gives up, and then those that it asks for. An item that it has already asked for has the
    /// newer metric.
    Items { owner: FenceOwner, lift: Lift, set: Vec<FenceItem> },
    /// All owners but these give up everything.
    Retain(BTreeSet<FenceOwner>),
}

/// Items that an owner gives up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Lift {
    #[default]
    Nothing,
    /// These, whatever their metric.
    Items(Vec<FenceItem>),
    Everything,
}

/// A fenced thing as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The item; of several metrics the highest.
    pub item: FenceItem,
    /// The leaf of the native model that it holds.
    pub leaf: InstancePath,
    pub owners: Vec<FenceOwner>,
    pub standing: FenceStanding,
}

/// The reason why an item has an effect, or has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStanding {
    InForce,
    /// The entry that the item belongs to is not there.
    Waits,
    /// The next hop has a metric that is at least as high anyway.
    Lower,
    /// The boot configuration or gNSI holds another value.
    Overruled,
}

impl FenceItem {
    /// The metric that it asks for.
    fn metric(&self) -> u32 {
        match self {
            Self::Raise { metric, .. } => *metric,
            Self::Shut { .. } | Self::Detach { .. } => 0,
        }
    }

    /// Path of the leaf that the item holds.
    fn leaf(&self, models: &Models) -> Result<InstancePath, EditErrors> {
        let (interface, name) = match self {
            Self::Shut { interface } => (interface, "enabled"),
            Self::Detach { interface } => (interface, "master"),
            Self::Raise { next_hop, .. } => return self.metric_leaf(models, next_hop),
        };
        let keys = vec![("name".to_owned(), interface.to_string())];
        let entry = Elem { keys, ..Elem::new("interface") };
        let path = Path { elems: vec![Elem::new("interfaces"), entry, Elem::new(name)] };
        models.native.resolve_write(&path).map_err(|error| refused(&path, EditCause::from(&error)))
    }

    fn metric_leaf(
        &self,
        models: &Models,
        next_hop: &InstancePath,
    ) -> Result<InstancePath, EditErrors> {
        let schema = &models.native;
        let leaf = models.fence.leaf(FenceRule::Raise).filter(|leaf| {
            let way = schema.steps(*leaf);
            let entry = &way[..way.len() - 1];
            let is_step = |(step, of): (&Step, &Step)| {
                step.node == of.node && step.keys.is_some() != schema.keys(of.node).is_empty()
            };
            next_hop.0.len() == entry.len() && next_hop.0.iter().zip(entry).all(is_step)
        });
        leaf.map(|leaf| next_hop.join(Step::node(leaf))).ok_or_else(|| {
            let cause =
                EditCause::Malformed("the path is not a next hop of a static route".to_owned());
            refused(&next_hop.to_path(schema), cause)
        })
    }

    /// The item of a leaf.
    fn of_leaf(models: &Models, leaf: &InstancePath, fenced: &FencedLeaf) -> Option<Self> {
        let (last, entry) = leaf.0.split_last()?;
        let interface = || match entry.last()?.keys.as_ref()?.first()? {
            Value::Str(name) => Some(name.clone()),
            _ => None,
        };
        Some(match models.fence.rule(last.node)? {
            FenceRule::Shut => Self::Shut { interface: interface()? },
            FenceRule::Detach => Self::Detach { interface: interface()? },
            FenceRule::Raise => {
                let next_hop = InstancePath(entry.to_vec());
                Self::Raise { next_hop, metric: fenced.metric() }
            }
        })
    }
}

impl Configuration {
    /// Computes the configuration after a change of the fence layer.
    ///
    /// # Errors
    /// When an item is not valid, there are too many, or the boot configuration or gNSI holds another value than an
    /// item that is asked for.
    pub fn fenced(&self, change: &FenceChange) -> Result<Self, EditErrors> {
        let models = self.models();
        let leaves = |items: &[FenceItem]| {
            let leaf = |item: &FenceItem| Ok((item.leaf(models)?, item.metric()));
            items.iter().map(leaf).collect::<Result<BTreeMap<_, _>, EditErrors>>()
        };
        let mut fences = self.layers().fences().clone();
        let mut asked_for = BTreeMap::new();
        match change {
            FenceChange::Items { owner, lift, set } => {
                asked_for = leaves(set)?;
                let lifted = match lift {
                    Lift::Items(items) => leaves(items)?,
                    Lift::Nothing | Lift::Everything => BTreeMap::new(),
                };
                let is_lifted =
                    |leaf: &InstancePath| *lift == Lift::Everything || lifted.contains_key(leaf);
                fences.drop_owners(|leaf, of| {
                    of == owner && is_lifted(leaf) && !asked_for.contains_key(leaf)
                });
                for (leaf, metric) in &asked_for {
                    fences.add(leaf.clone(), owner, *metric, self.is_port(leaf));
                }
            }
            FenceChange::Retain(living) => {
                fences.drop_owners(|_, owner| !living.contains(owner));
            }
        }
        if fences.len() > self.layers().fences().len() {
            FENCED_LEAVES.check(fences.len()).map_err(|error| {
                refused(&InstancePath::root().to_path(&models.native), error.into())
            })?;
        }
        let mut layers = self.layers().clone();
        layers.set_fences(models, fences);
        let attribution = Attribution::of_trees(models, |_| EditOperation::Fence);
        let after = self.with_layers(layers, &attribution, &CancelToken::default())?;
        let overruled: Vec<EditError> =
            asked_for.keys().filter_map(|leaf| after.overruled(leaf)).collect();
        if overruled.is_empty() { Ok(after) } else { Err(overruled.into()) }
    }

    /// All that is fenced, with the owners of each, ascending by path. Whether an item has an effect takes longer to find out
    /// ([`Configuration::fences`]).
    pub fn fence_items(&self) -> impl Iterator<Item = (FenceItem, Vec<FenceOwner>)> {
        let item = |(leaf, fenced): (&InstancePath, &Arc<FencedLeaf>)| {
            let item = FenceItem::of_leaf(self.models(), leaf, fenced)?;
            Some((item, fenced.owners.keys().cloned().collect()))
        };
        self.layers().fences().0.iter().filter_map(item)
    }

    /// All that is fenced, with what comes of it, ascending by path.
    pub fn fences(&self) -> Vec<Fence> {
        let fence = |(leaf, fenced): (&InstancePath, &Arc<FencedLeaf>)| {
            Some(Fence {
                item: FenceItem::of_leaf(self.models(), leaf, fenced)?,
                leaf: leaf.clone(),
                owners: fenced.owners.keys().cloned().collect(),
                standing: self.standing(leaf, fenced)?,
            })
        };
        self.layers().fences().0.iter().filter_map(fence).collect()
    }

    /// The metric that a next hop of a static route, by its entry, would have without fences: that of its family where none is
    /// configured. `None` where a layer that is stronger than fences holds it.
    pub fn metric_below_fences(&self, next_hop: &InstancePath) -> Option<u32> {
        let leaf = next_hop.join(Step::node(self.models().fence.leaf(FenceRule::Raise)?));
        let found = self.effective().find_leaf(&leaf);
        let mut owners = found.iter().flat_map(|it| it.meta.owners.iter());
        let off = self.layers().off;
        let is_stronger = |layer: LayerKey| {
            matches!(layer.owner, Owner::Gnsi | Owner::Boot) && !off.contains(layer)
        };
        if owners.any(is_stronger) {
            return None;
        }
        let is_fenced = found.as_ref().is_some_and(|it| it.meta.owners.contains(LayerKey::FENCE));
        let value = match is_fenced {
            true => self.value_below_fences(&leaf),
            false => found.map(|found| found.value),
        };
        let prefix = next_hop.0.iter().rev().nth(1).and_then(|route| route.keys.as_ref()?.first());
        match value {
            Some(Value::Uint(metric)) => Some(u32::try_from(metric).unwrap_or(u32::MAX)),
            _ => Some(family_metric(prefix)),
        }
    }

    /// The value that the strongest layer below the fences has for a leaf. Metrics have no default in OpenConfig.
    fn value_below_fences(&self, leaf: &InstancePath) -> Option<Value> {
        let layers = self.layers();
        let below = LayerKey::ALL.into_iter().filter(|layer| *layer != LayerKey::FENCE);
        let below = below.filter(|layer| *layer != LayerKey::LEASE);
        let mut below: Vec<LayerKey> = below.collect();
        below.sort_by_key(|layer| layers.off.contains(*layer));
        below.push(LayerKey::LEASE);
        below.into_iter().find_map(|layer| self.value_in(layer, leaf))
    }

    /// The value that a layer has for a leaf of the native model.
    fn value_in(&self, layer: LayerKey, leaf: &InstancePath) -> Option<Value> {
        let tree = self.layers().tree(layer);
        if tree.is_empty() {
            return None;
        }
        if layer.origin == Origin::Native {
            let found = tree.find_leaf(leaf).filter(|it| it.meta != LeafMark::Absent);
            return found.map(|found| found.value);
        }
        let map = &self.models().map;
        let found = |path: &InstancePath| {
            let value = tree.find_leaf(path)?.value;
            map.down(path, &value).ok().flatten().map(|(_, value)| value)
        };
        map.up_path(leaf).iter().find_map(found)
    }

    /// True for a leaf of a link that the agent does not make, so that the link stays when its entry goes.
    fn is_port(&self, leaf: &InstancePath) -> bool {
        let Some((last, entry)) = leaf.0.split_last() else { return false };
        if self.models().fence.rule(last.node) != Some(FenceRule::Shut) {
            return false;
        }
        let kind = self.models().native.find("/interfaces/interface/type");
        let kind = kind.map(|kind| InstancePath(entry.to_vec()).join(Step::node(kind)));
        let kind = kind.and_then(|kind| self.effective().find_leaf(&kind));
        is_port_type(kind.as_ref().map(|kind| &kind.value))
    }

    fn standing(&self, leaf: &InstancePath, fenced: &FencedLeaf) -> Option<FenceStanding> {
        let (last, entry) = leaf.0.split_last()?;
        let Some(entry) = self.effective().find_branch(entry) else {
            return Some(FenceStanding::Waits);
        };
        let found = entry.leaf(last.node);
        let is_ours = found.is_some_and(|it| it.meta.owners.contains(LayerKey::FENCE));
        let value = found.map(|it| &it.value);
        let prefix = leaf.0.iter().rev().nth(2).and_then(|route| route.keys.as_ref()?.first());
        Some(match self.models().fence.rule(last.node)? {
            FenceRule::Shut if value == Some(&Value::Bool(false)) => FenceStanding::InForce,
            FenceRule::Detach if value.is_none() => FenceStanding::InForce,
            FenceRule::Shut | FenceRule::Detach => FenceStanding::Overruled,
            FenceRule::Raise if is_ours => FenceStanding::InForce,
            FenceRule::Raise => {
                let metric = Value::Uint(fenced.metric().into());
                match is_raised(value, prefix, &metric) {
                    true => FenceStanding::Overruled,
                    false => FenceStanding::Lower,
                }
            }
        })
    }

    /// The refusal of an item that has no effect, because a stronger layer holds another value.
    fn overruled(&self, leaf: &InstancePath) -> Option<EditError> {
        let fenced = self.layers().fences().0.get(leaf)?;
        if self.standing(leaf, fenced)? != FenceStanding::Overruled {
            return None;
        }
        let found = self.effective().find_leaf(leaf);
        let owners = found.iter().flat_map(|leaf| leaf.meta.owners.iter());
        let stronger = owners.filter(|layer| matches!(layer.owner, Owner::Gnsi | Owner::Boot));
        let names: Vec<_> = stronger.map(|layer| layer.name().to_owned()).collect();
        // A boot text that says `no X` does not own what there is instead.
        let owner = if names.is_empty() {
            LayerKey::BOOT_NATIVE.name().to_owned()
        } else {
            names.join(", ")
        };
        let path = leaf.to_path(&self.models().native).to_string();
        let cause = EditCause::Overruled { owner };
        Some(EditError { operation: EditOperation::Fence, path, cause })
    }
}

fn refused(path: &Path, cause: EditCause) -> EditErrors {
    EditErrors::from(EditError { operation: EditOperation::Fence, path: path.to_string(), cause })
}
