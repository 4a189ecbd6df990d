//! Everything the engine asks a descriptor about one value, asked once and shared by planes and plans.

use std::sync::Arc;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::dependency::{Bond, Claim, Dependency, Offer, Taken, Target};
use crate::descriptor::{AnyDescriptor, Effect, Part, Registry, guarded};
use crate::key::Key;
use crate::value::{SharedValue, Value};

/// How deep parts may have parts: deeper ones are a descriptor that never ends.
const PARTS_DEPTH: u32 = 16;

/// What the label of the dependency of a part on its whole starts with.
const WHOLE_LABEL: SmolStr = SmolStr::new_static("what it is a part of");

/// The answers of a descriptor about one value.
#[derive(Debug, Default)]
pub(crate) struct Traits {
    /// Ascending by target.
    pub(crate) needs: Box<[Dependency]>,
    /// Facets, properties and parts that it is the whole of; ascending. Its own key is not among them.
    pub(crate) offers: Box<[Target]>,
    pub(crate) prefixes: Box<[(u32, IpNet)]>,
    pub(crate) claims: Box<[Claim]>,
    pub(crate) takes: Box<[Taken]>,
    /// What goes when the offered property goes.
    pub(crate) property_takes: Box<[(Target, Taken)]>,
    /// Parts with operations of their own, ascending by key.
    pub(crate) parts: Box<[Part]>,
}

/// Why a value cannot be an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unimplemented,
    Invalid(String),
}

impl Traits {
    /// Asks about an intended value. `as_part` adds the dependency on the whole.
    pub(crate) fn intended(
        registry: &Registry,
        key: &Key,
        value: &SharedValue,
        as_part: bool,
    ) -> Result<Arc<Self>, Refusal> {
        let descriptor = registry.descriptor(key.kind()).ok_or(Refusal::Unimplemented)?;
        let traits = guarded(|| {
            descriptor.validate(&**value)?;
            let mut traits = Self::exist(registry, descriptor, value);
            let mut needs = descriptor.dependencies(&**value);
            if as_part {
                needs.push(Dependency::new(WHOLE_LABEL, Target::Whole(key.clone())));
            }
            traits.needs = checked(needs)?;
            traits.claims = descriptor.claims(&**value).into();
            Ok(traits)
        });
        traits.and_then(|traits| traits).map(Arc::new).map_err(Refusal::Invalid)
    }

    /// Asks about a value that is only observed: what it needs is no concern of ours, and its parts are properties.
    pub(crate) fn obtained(registry: &Registry, key: &Key, value: &SharedValue) -> Arc<Self> {
        let traits = registry.descriptor(key.kind()).and_then(|descriptor| {
            guarded(|| Self { parts: Box::default(), ..Self::exist(registry, descriptor, value) })
                .ok()
        });
        Arc::new(traits.unwrap_or_default())
    }

    /// What follows from the bare existence of a value.
    fn exist(registry: &Registry, descriptor: &dyn AnyDescriptor, value: &SharedValue) -> Self {
        let mut gathered = Gathered::default();
        gathered.provides(descriptor, &**value, None);
        gathered.parts(registry, descriptor.parts(&**value), PARTS_DEPTH);
        gathered.into_traits(descriptor.takes_along(&**value))
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
                .prefixes
                .iter()
                .any(|(other, prefix)| other == table && prefix.contains(address)),
            Target::AnyOf(_) | Target::Whole(_) => false,
        };
        own || self.offers(target)
    }

    /// The keys of its properties, ascending.
    pub(crate) fn properties(&self) -> impl Iterator<Item = &Key> {
        self.offers.iter().filter_map(|target| match target {
            Target::Exact(key) => Some(key),
            _ => None,
        })
    }

    pub(crate) fn offers(&self, target: &Target) -> bool {
        self.offers.binary_search(target).is_ok()
    }
}

/// Dependencies up to which labels are compared one by one rather than sorted.
const FEW: usize = 8;

/// Sorted dependencies, each with a label of its own.
fn checked(mut needs: Vec<Dependency>) -> Result<Box<[Dependency]>, String> {
    if let Some(label) = repeated(&needs) {
        return Err(format!("two of its dependencies are labelled `{label}`"));
    }
    needs.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(needs.into())
}

fn repeated(needs: &[Dependency]) -> Option<&SmolStr> {
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

/// Traits while they are put together.
#[derive(Default)]
struct Gathered {
    offers: Vec<Target>,
    prefixes: Vec<(u32, IpNet)>,
    property_takes: Vec<(Target, Taken)>,
    parts: Vec<Part>,
}

impl Gathered {
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
            let takes = descriptor.takes_along(value).into_iter();
            self.property_takes.extend(takes.map(|taken| (target.clone(), taken)));
        }
    }

    /// Sorts parts into those with operations and properties; a property's own parts belong to the value, too.
    fn parts(&mut self, registry: &Registry, parts: Vec<Part>, depth: u32) {
        for (key, value) in parts {
            let descriptor = registry.descriptor(key.kind());
            match descriptor.map(|descriptor| (descriptor, descriptor.effect())) {
                Some((_, Effect::Operation(_))) => {
                    self.offers.push(Target::Whole(key.clone()));
                    self.parts.push((key, value));
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

    fn into_traits(mut self, takes: Vec<Taken>) -> Traits {
        self.offers.sort_unstable();
        self.offers.dedup();
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        self.parts.sort_by(|a, b| a.0.cmp(&b.0));
        Traits {
            needs: Box::default(),
            offers: self.offers.into(),
            prefixes: self.prefixes.into(),
            claims: Box::default(),
            takes: takes.into(),
            property_takes: self.property_takes.into(),
            parts: self.parts.into(),
        }
    }
}

/// Dependencies that order deletes: the others cannot be first or last.
pub(crate) fn ordering(needs: &[Dependency]) -> impl Iterator<Item = &Dependency> {
    needs.iter().filter(|need| need.bond == Bond::After)
}
