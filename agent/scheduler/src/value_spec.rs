//! Everything the engine asks a descriptor about one value, asked once and shared by planes and plans.

use std::sync::Arc;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::dependency::{Cascade, Claim, Dependency, Offer, Target};
use crate::descriptor::{AnyDescriptor, Effect, Part, PartsChanged, Registry, catch_panic};
use crate::key::Key;
use crate::sorted_map::SortedMap;
use crate::value::{SharedValue, Value, ValueEq};

/// How deep parts may have parts: deeper ones are a descriptor that never ends.
const PARTS_DEPTH: u32 = 16;

/// What the label of the dependency of a part on its whole starts with.
const WHOLE_LABEL: SmolStr = SmolStr::new_static("what it is a part of");

/// The answers of a descriptor about one value.
#[derive(Debug, Default)]
pub(crate) struct ValueSpec {
    /// Ascending by target.
    pub(crate) needs: Box<[Dependency]>,
    /// Facets, properties and parts that it is the whole of. Its own key is not among them.
    pub(crate) offers: SortedMap<Target, ()>,
    /// Most values have nothing of it.
    rare: Option<Box<RareFields>>,
}

/// What few values have, or do.
#[derive(Debug, Default)]
struct RareFields {
    /// Parts with operations of their own.
    parts: SortedMap<Key, ValueEq>,
    prefixes: Box<[(u32, IpNet)]>,
    claims: Box<[Claim]>,
    cascades: Box<[Cascade]>,
    /// What goes when the offered property goes.
    property_cascades: Box<[(Target, Cascade)]>,
    reducible: bool,
    /// What was asked for, where this is what can be had of it.
    full: Option<FullValue>,
}

/// A divisible value in full, which is asked for, and of which another one is what can be had.
pub(crate) type FullValue = (SharedValue, Arc<ValueSpec>);

impl RareFields {
    fn into_boxed(self) -> Option<Box<Self>> {
        let Self { parts, prefixes, claims, cascades, property_cascades, reducible, full } = &self;
        let empty = prefixes.is_empty() && claims.is_empty();
        let empty = empty && parts.is_empty() && !reducible && full.is_none();
        let nothing = empty && cascades.is_empty() && property_cascades.is_empty();
        (!nothing).then(|| Box::new(self))
    }
}

/// ValueSpec of a value of which it is not known yet what it needs.
struct SpecDraft {
    offers: SortedMap<Target, ()>,
    rare: RareFields,
}

impl SpecDraft {
    fn with_needs(self, needs: Box<[Dependency]>) -> ValueSpec {
        ValueSpec { needs, offers: self.offers, rare: self.rare.into_boxed() }
    }
}

/// What a value was, for whoever only wants to know what is new in another one.
pub(crate) type PreviousVersion<'t> = Option<(&'t SharedValue, &'t ValueSpec)>;

/// Why a value cannot be an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    Unimplemented,
    /// Its descriptor panics, or contradicts itself.
    Invalid(String),
}

impl ValueSpec {
    /// Asks about an intended value. `as_part` adds the dependency on the whole; with `before`, a descriptor that knows
    /// in what parts differ need not list them. Adds the parts listed to `listed`.
    pub(crate) fn of_intended(
        registry: &Registry,
        key: &Key,
        value: &SharedValue,
        as_part: bool,
        before: PreviousVersion<'_>,
        listed: &mut u64,
    ) -> Result<Arc<Self>, ValueError> {
        let descriptor = registry.descriptor(key.kind()).ok_or(ValueError::Unimplemented)?;
        let spec = catch_panic(|| {
            let derived =
                before.and_then(|before| Self::derive(registry, descriptor, value, before));
            let (mut draft, parts) =
                derived.unwrap_or_else(|| Self::describe(registry, descriptor, value));
            *listed += parts;
            let mut needs = descriptor.dependencies(&**value);
            if as_part {
                needs.push(Dependency::new(WHOLE_LABEL, Target::Whole(key.clone())));
            }
            let needs = sorted_by_target(needs).map_err(ValueError::Invalid)?;
            draft.rare.claims = descriptor.claims(&**value).into();
            draft.rare.reducible = descriptor.is_reducible(&**value);
            Ok(draft.with_needs(needs))
        });
        spec.map_err(ValueError::Invalid).flatten().map(Arc::new)
    }

    /// What can be had of a divisible value without these targets, and what its descriptor says of that. Nothing where
    /// nothing is left, or where the descriptor contradicts itself.
    pub(crate) fn reduced(
        registry: &Registry,
        key: &Key,
        full: FullValue,
        missing: &[Target],
    ) -> Option<(SharedValue, Arc<Self>)> {
        let descriptor = registry.descriptor(key.kind())?;
        let value = catch_panic(|| descriptor.reduce(&*full.0, missing)).ok().flatten()?;
        let is_part = !full.1.needs_of(&Target::Whole(key.clone())).is_empty();
        let spec = Self::of_intended(registry, key, &value, is_part, None, &mut 0).ok()?;
        let mut spec = Arc::into_inner(spec)?;
        let within = spec.needs.iter().all(|need| !full.1.needs_of(&need.target).is_empty());
        let parts = full.1.parts().into_iter().chain(spec.parts()).any(|parts| !parts.is_empty());
        if !within || parts {
            return None;
        }
        spec.rare.get_or_insert_default().full = Some(full);
        Some((value, Arc::new(spec)))
    }

    /// Asks about a value that is only observed: what it needs is no concern of ours, and its parts are properties.
    pub(crate) fn of_observed(registry: &Registry, key: &Key, value: &SharedValue) -> Arc<Self> {
        let spec = registry.descriptor(key.kind()).and_then(|descriptor| {
            let describe = || Self::describe(registry, descriptor, value).0;
            let mut draft = catch_panic(describe).ok()?;
            draft.rare.parts = SortedMap::default();
            Some(draft.with_needs(Box::default()))
        });
        Arc::new(spec.unwrap_or_default())
    }

    /// What follows from the bare existence of a value, and how many parts were listed for it.
    fn describe(
        registry: &Registry,
        descriptor: &dyn AnyDescriptor,
        value: &SharedValue,
    ) -> (SpecDraft, u64) {
        let parts = descriptor.parts(&**value);
        let listed = parts.len() as u64;
        let mut builder = SpecBuilder::default();
        builder.provides(descriptor, &**value, None);
        builder.parts(registry, parts, PARTS_DEPTH);
        (builder.into_draft(descriptor.cascades(&**value)), listed)
    }

    /// The same from what the value was before, where its descriptor knows in what its parts differ, and nothing else
    /// that it offers does.
    fn derive(
        registry: &Registry,
        descriptor: &dyn AnyDescriptor,
        value: &SharedValue,
        (old, before): (&SharedValue, &Self),
    ) -> Option<(SpecDraft, u64)> {
        let PartsChanged { set, gone } = descriptor.parts_changed(&**old, &**value)?;
        let mut keys = set.iter().map(|(key, _)| key).chain(&gone);
        let listed = (set.len() + gone.len()) as u64;
        let plain = keys.all(|key| has_operations(registry, key));
        if !plain || descriptor.provides(&**old) != descriptor.provides(&**value) {
            return None;
        }
        let whole = |key: &Key| Target::Whole(key.clone());
        let come = set.iter().map(|(key, _)| (whole(key), ()));
        let offers = before.offers.changed(come, gone.iter().map(whole));
        let nothing = SortedMap::default();
        let parts = before.parts().unwrap_or(&nothing);
        let rare = RareFields {
            parts: parts.changed(set.into_iter().map(|(key, it)| (key, ValueEq(it))), gone),
            prefixes: before.prefixes().into(),
            cascades: descriptor.cascades(&**value).into(),
            property_cascades: before.property_cascades().into(),
            ..RareFields::default()
        };
        let draft = SpecDraft { offers, rare };
        debug_assert!(
            draft.rare.parts == Self::describe(registry, descriptor, value).0.rare.parts,
            "the parts of {value:?} are others than its descriptor says"
        );
        Some((draft, listed))
    }

    /// What was asked for, where this is what can be had of it.
    pub(crate) fn full(&self) -> Option<&FullValue> {
        self.rare.as_ref().and_then(|rare| rare.full.as_ref())
    }

    /// True for what can be had in part, and for such a part.
    pub(crate) fn is_reducible(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.reducible || rare.full.is_some())
    }

    /// Parts with operations of their own.
    pub(crate) fn parts(&self) -> Option<&SortedMap<Key, ValueEq>> {
        self.rare.as_ref().map(|rare| &rare.parts)
    }

    /// Prefixes that it offers; ascending.
    pub(crate) fn prefixes(&self) -> &[(u32, IpNet)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.prefixes)
    }

    pub(crate) fn claims(&self) -> &[Claim] {
        self.rare.as_ref().map_or(&[], |rare| &rare.claims)
    }

    pub(crate) fn cascades(&self) -> &[Cascade] {
        self.rare.as_ref().map_or(&[], |rare| &rare.cascades)
    }

    /// What goes when the offered property goes.
    pub(crate) fn property_cascades(&self) -> &[(Target, Cascade)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.property_cascades)
    }

    /// How many of its dependencies are on this target.
    pub(crate) fn needs_of(&self, target: &Target) -> &[Dependency] {
        let from = self.needs.partition_point(|need| need.target < *target);
        let until = from + self.needs[from..].partition_point(|need| need.target == *target);
        &self.needs[from..until]
    }

    /// Whether a value with these traits under this key offers a target.
    pub(crate) fn is_offering(&self, key: &Key, target: &Target) -> bool {
        let own = match target {
            Target::Exact(other) => key == other,
            Target::Under(prefix) => key.starts_with(prefix),
            Target::Covering { table, address } => self
                .prefixes()
                .iter()
                .any(|(other, prefix)| other == table && prefix.contains(address)),
            Target::AnyOf(_) | Target::Whole(_) => false,
        };
        own || self.offers(target)
    }

    /// The keys of its properties, ascending.
    pub(crate) fn properties(&self) -> impl Iterator<Item = &Key> {
        self.offers.keys().filter_map(|target| match target {
            Target::Exact(key) => Some(key),
            _ => None,
        })
    }

    pub(crate) fn offers(&self, target: &Target) -> bool {
        self.offers.contains(target)
    }
}

/// Dependencies up to which labels are compared one by one rather than sorted.
const FEW: usize = 8;

/// Sorts dependencies, of which each must have a label of its own.
fn sorted_by_target(mut needs: Vec<Dependency>) -> Result<Box<[Dependency]>, String> {
    if let Some(label) = repeated_label(&needs) {
        return Err(format!("two of its dependencies are labelled `{label}`"));
    }
    needs.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(needs.into())
}

fn repeated_label(needs: &[Dependency]) -> Option<&SmolStr> {
    if needs.len() <= FEW {
        let mut all = needs.iter().enumerate();
        let found =
            all.find(|(at, need)| needs[..*at].iter().any(|other| other.label == need.label));
        return found.map(|(_, need)| &need.label);
    }
    let mut labels: Vec<&SmolStr> = needs.iter().map(|need| &need.label).collect();
    labels.sort_unstable();
    labels.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Whether values under this key have operations.
fn has_operations(registry: &Registry, key: &Key) -> bool {
    let effect = registry.descriptor(key.kind()).map(AnyDescriptor::effect);
    matches!(effect, Some(Effect::Operation(_)))
}

/// ValueSpec while they are put together.
#[derive(Default)]
struct SpecBuilder {
    offers: Vec<Target>,
    prefixes: Vec<(u32, IpNet)>,
    property_cascades: Vec<(Target, Cascade)>,
    parts: Vec<(Key, ValueEq)>,
}

impl SpecBuilder {
    fn provides(
        &mut self,
        descriptor: &dyn AnyDescriptor,
        value: &dyn Value,
        property: Option<&Key>,
    ) {
        for offer in descriptor.provides(value) {
            match offer {
                Offer::Facet(facet) => self.offers.push(Target::AnyOf(facet)),
                Offer::Prefix { table, prefix } => self.prefixes.push((table, prefix)),
            }
        }
        if let Some(key) = property {
            let target = Target::Exact(key.clone());
            let cascades = descriptor.cascades(value).into_iter();
            self.property_cascades.extend(cascades.map(|taken| (target.clone(), taken)));
        }
    }

    /// Sorts parts into those with operations and properties; a property's own parts belong to the value, too.
    fn parts(&mut self, registry: &Registry, parts: Vec<Part>, depth: u32) {
        for (key, value) in parts {
            let descriptor = registry.descriptor(key.kind());
            match descriptor.map(|descriptor| (descriptor, descriptor.effect())) {
                Some((_, Effect::Operation(_))) => {
                    self.offers.push(Target::Whole(key.clone()));
                    self.parts.push((key, ValueEq(value)));
                }
                property => {
                    if let Some((descriptor, _)) = property {
                        assert!(depth > 0, "parts of parts never end at {key}");
                        self.provides(descriptor, &*value, Some(&key));
                        self.parts(registry, descriptor.parts(&*value), depth - 1);
                    }
                    self.offers.push(Target::Exact(key));
                }
            }
        }
    }

    fn into_draft(mut self, cascades: Vec<Cascade>) -> SpecDraft {
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        let rare = RareFields {
            parts: SortedMap::new(self.parts),
            prefixes: self.prefixes.into(),
            cascades: cascades.into(),
            property_cascades: self.property_cascades.into(),
            ..RareFields::default()
        };
        let offers = SortedMap::new(self.offers.into_iter().map(|target| (target, ())).collect());
        SpecDraft { offers, rare }
    }
}
