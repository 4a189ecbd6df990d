//! Answers of a descriptor about one value, asked once and shared by planes and plans.

use std::sync::Arc;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::dependency::{Cascade, Claim, Dependency, Facet, Offer, Space, Target};
use crate::descriptor::{AnyDescriptor, Effect, Part, PartsChanged, Registry, catch_panic};
use crate::key::Key;
use crate::sorted_map::SortedMap;
use crate::value::{ObjectValue, SharedValue, ValueEq};

/// Levels of parts within parts. Deeper nesting means a descriptor that never ends.
const PARTS_DEPTH: u32 = 16;

/// Label of the dependency of a part on its whole.
const WHOLE_LABEL: SmolStr = SmolStr::new_static("the value it is part of");

/// Answers of a descriptor about one value.
#[derive(Debug, Default)]
pub(crate) struct ValueSpec {
    /// Dependencies, ascending by target.
    pub(crate) needs: Box<[Dependency]>,
    /// Facets, properties, and the parts that this value is the whole of. Its own key is not listed.
    pub(crate) offers: SortedMap<Target, ()>,
    /// Absent for most values.
    rare: Option<Box<RareFields>>,
}

/// Attributes that few values have.
#[derive(Debug, Default)]
struct RareFields {
    /// Parts with operations of their own.
    parts: SortedMap<Key, ValueEq>,
    prefixes: Box<[(Space, IpNet)]>,
    claims: Box<[Claim]>,
    cascades: Box<[Cascade]>,
    /// Values that the system removes when the offered property goes.
    property_cascades: Box<[(Target, Cascade)]>,
    reducible: bool,
    /// Full value, where this one is the reduced form of it.
    full: Option<FullValue>,
}

/// A reducible value as requested, next to the reduced form that is the goal.
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

/// A [`ValueSpec`] whose dependencies are not known yet.
struct SpecDraft {
    offers: SortedMap<Target, ()>,
    rare: RareFields,
}

impl SpecDraft {
    fn with_needs(self, needs: Box<[Dependency]>) -> ValueSpec {
        ValueSpec { needs, offers: self.offers, rare: self.rare.into_boxed() }
    }
}

/// Value and spec that a new value replaces, to derive only what differs.
pub(crate) type PreviousVersion<'t> = Option<(&'t SharedValue, &'t ValueSpec)>;

/// Reason why a value cannot be an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueError {
    Unimplemented,
    /// The descriptor panicked or contradicted itself.
    Invalid(String),
}

impl ValueSpec {
    /// Asks about an intended value. `as_part` adds the dependency on the whole. With `before`, a descriptor that knows
    /// how parts differ need not list them all. Adds the number of parts listed to `listed`.
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

    /// Reduces the value `full` by these targets and asks about the result. `None` when nothing is left of it, or when
    /// the descriptor contradicts itself.
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

    /// Asks about a value that is only observed: its dependencies are ignored, and all of its parts are properties.
    pub(crate) fn of_observed(registry: &Registry, key: &Key, value: &SharedValue) -> Arc<Self> {
        let spec = registry.descriptor(key.kind()).and_then(|descriptor| {
            let describe = || Self::describe(registry, descriptor, value).0;
            let mut draft = catch_panic(describe).ok()?;
            draft.rare.parts = SortedMap::default();
            Some(draft.with_needs(Box::default()))
        });
        Arc::new(spec.unwrap_or_default())
    }

    /// Collects what follows from the existence of a value, and counts the parts listed for it.
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

    /// Derives the answers from those for the previous value. `None` where the descriptor cannot tell how the parts
    /// differ, or where something else that the value offers differs too.
    fn derive(
        registry: &Registry,
        descriptor: &dyn AnyDescriptor,
        value: &SharedValue,
        (old, before): (&SharedValue, &Self),
    ) -> Option<(SpecDraft, u64)> {
        let PartsChanged { set, removed } = descriptor.parts_changed(&**old, &**value)?;
        let mut keys = set.iter().map(|(key, _)| key).chain(&removed);
        let listed = (set.len() + removed.len()) as u64;
        let plain = keys.all(|key| has_operations(registry, key));
        if !plain || descriptor.provides(&**old) != descriptor.provides(&**value) {
            return None;
        }
        let whole = |key: &Key| Target::Whole(key.clone());
        let added = set.iter().map(|(key, _)| (whole(key), ()));
        let offers = before.offers.changed(added, removed.iter().map(whole));
        let nothing = SortedMap::default();
        let parts = before.parts().unwrap_or(&nothing);
        let rare = RareFields {
            parts: parts.changed(set.into_iter().map(|(key, it)| (key, ValueEq(it))), removed),
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

    /// Full value, where this one is the reduced form of it.
    pub(crate) fn full(&self) -> Option<&FullValue> {
        self.rare.as_ref().and_then(|rare| rare.full.as_ref())
    }

    /// True for a reducible value, and for a reduced one.
    pub(crate) fn is_reducible(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.reducible || rare.full.is_some())
    }

    /// Parts with operations of their own.
    pub(crate) fn parts(&self) -> Option<&SortedMap<Key, ValueEq>> {
        self.rare.as_ref().map(|rare| &rare.parts)
    }

    /// Prefixes that the value offers, ascending.
    pub(crate) fn prefixes(&self) -> &[(Space, IpNet)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.prefixes)
    }

    pub(crate) fn claims(&self) -> &[Claim] {
        self.rare.as_ref().map_or(&[], |rare| &rare.claims)
    }

    /// Claim of this identity.
    pub(crate) fn claim_of(&self, identity: &Facet) -> Option<&Claim> {
        self.claims().iter().find(|claim| claim.identity == *identity)
    }

    pub(crate) fn cascades(&self) -> &[Cascade] {
        self.rare.as_ref().map_or(&[], |rare| &rare.cascades)
    }

    /// Values that the system removes when the offered property goes.
    pub(crate) fn property_cascades(&self) -> &[(Target, Cascade)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.property_cascades)
    }

    /// Dependencies on this target.
    pub(crate) fn needs_of(&self, target: &Target) -> &[Dependency] {
        let from = self.needs.partition_point(|need| need.target < *target);
        let until = from + self.needs[from..].partition_point(|need| need.target == *target);
        &self.needs[from..until]
    }

    /// True when both need and provide the same.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.needs == other.needs
            && self.prefixes() == other.prefixes()
            && self.offers.keys().eq(other.offers.keys())
    }

    /// True when a value with this spec, under this key, provides a target.
    pub(crate) fn is_offering(&self, key: &Key, target: &Target) -> bool {
        let own = match target {
            Target::Exact(other) => key == other,
            Target::Under(prefix) => key.starts_with(prefix),
            Target::Covering { space, address } => self
                .prefixes()
                .iter()
                .any(|(other, prefix)| other == space && prefix.contains(address)),
            Target::AnyOf(_) | Target::Whole(_) => false,
        };
        own || self.offers(target)
    }

    /// Keys of the properties, ascending.
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

/// Number of dependencies up to which labels are compared one by one rather than sorted.
const FEW: usize = 8;

/// Sorts dependencies by target. Each must have a label of its own.
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

/// True for keys whose kind has operations.
fn has_operations(registry: &Registry, key: &Key) -> bool {
    let effect = registry.descriptor(key.kind()).map(AnyDescriptor::effect);
    matches!(effect, Some(Effect::Operation(_)))
}

/// A [`ValueSpec`] under construction.
#[derive(Default)]
struct SpecBuilder {
    offers: Vec<Target>,
    prefixes: Vec<(Space, IpNet)>,
    property_cascades: Vec<(Target, Cascade)>,
    parts: Vec<(Key, ValueEq)>,
}

impl SpecBuilder {
    fn provides(
        &mut self,
        descriptor: &dyn AnyDescriptor,
        value: &dyn ObjectValue,
        property: Option<&Key>,
    ) {
        for offer in descriptor.provides(value) {
            match offer {
                Offer::Facet(facet) => self.offers.push(Target::AnyOf(facet)),
                Offer::Prefix { space, prefix } => self.prefixes.push((space, prefix)),
            }
        }
        if let Some(key) = property {
            let target = Target::Exact(key.clone());
            let cascades = descriptor.cascades(value).into_iter();
            self.property_cascades.extend(cascades.map(|taken| (target.clone(), taken)));
        }
    }

    /// Splits parts into those with operations and properties. Parts of a property belong to the value, too.
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
