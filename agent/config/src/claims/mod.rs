//! Claims: what the work of service instances asks of the configuration, joined into the two layers of services.
//!
//! ```text
//! bridge-access[name='acme']: interface br0, its address ---+--> layer: br0, its address, ...
//! bridge-access[name='bolt']: interface br0, its address ---+--> ledger: br0 is held by both
//! ```
//!
//! A claim is replaced as a whole. A leaf, entry or presence container is in a layer while some claim holds it, and the
//! *ledger*, a tree of the shape of the layer, says which ones. Two claims may hold one leaf with equal values only. The
//! cost of a replacement is in proportion to what differs between the old claim and the new one.
//!
//! Section 3 of `agent/services/SERVICES.md` is the specification.

mod join;
mod left;
mod objects;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use smol_str::SmolStr;

use self::join::{Join, Part};
pub use self::left::PersistedOutput;
use crate::instance::InstancePath;
use crate::limits::{CLAIMED_LEAVES, LimitExceeded};
use crate::models::Models;
use crate::path::{Elem, Path};
use crate::schema::Origin;
use crate::tree::{LeafMark, Tree};
use crate::value::Value;

/// Name of a service instance, such as `bridge-access[name='acme']`. Without a key it stands for all instances of a type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceTag {
    /// Name of the service type.
    pub service: SmolStr,
    /// Name of the key leaf of the type's list.
    pub key_name: SmolStr,
    pub key: SmolStr,
}

impl ServiceTag {
    /// Name of all instances of a type.
    pub fn of_type(service: SmolStr) -> Self {
        Self { service, key_name: SmolStr::default(), key: SmolStr::default() }
    }

    /// Native path of the instance.
    pub fn path(&self) -> Path {
        let instance = Elem::new(&*self.service).key(&*self.key_name, &*self.key);
        Path { elems: vec![Elem::new("services"), instance] }
    }
}

impl fmt::Display for ServiceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, key_name, key } = self;
        if key_name.is_empty() {
            return f.write_str(service);
        }
        write!(f, "{service}[{key_name}='{key}']")
    }
}

impl std::str::FromStr for ServiceTag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "the name of an instance is TYPE[KEY='VALUE']";
        let (service, key) = text.split_once('[').ok_or(FORM)?;
        let (key_name, value) = key.split_once("='").ok_or(FORM)?;
        let key = value.strip_suffix("']").ok_or(FORM)?.into();
        Ok(Self { service: service.into(), key_name: key_name.into(), key })
    }
}

/// Name of a claim: one state of one component of an instance, or one that no state owns any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    pub tag: ServiceTag,
    /// Type and name of the component.
    pub component: [SmolStr; 2],
    pub state: SmolStr,
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [component_type, name] = &self.component;
        if self.is_left() {
            return write!(f, "{component_type}{}", self.tag);
        }
        write!(f, "{} ({component_type}", self.tag)?;
        if name != component_type {
            write!(f, " {name}")?;
        }
        write!(f, ", {})", self.state)
    }
}

/// Leaves that one claim asks for, sparse and all explicit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub native: Tree<LeafMark>,
    pub openconfig: Tree<LeafMark>,
}

impl Claim {
    pub fn is_empty(&self) -> bool {
        self.native.is_empty() && self.openconfig.is_empty()
    }

    pub fn tree(&self, origin: Origin) -> &Tree<LeafMark> {
        match origin {
            Origin::Native => &self.native,
            Origin::OpenConfig => &self.openconfig,
        }
    }

    pub(crate) fn tree_mut(&mut self, origin: Origin) -> &mut Tree<LeafMark> {
        match origin {
            Origin::Native => &mut self.native,
            Origin::OpenConfig => &mut self.openconfig,
        }
    }
}

/// A claim that grows by edits, with the number of leaves that they put out.
#[derive(Clone, Debug, Default)]
pub struct GrowingClaim {
    pub claim: Claim,
    pub leaves: usize,
}

/// New content of a claim; `None` when it goes.
pub type ClaimChange = (ClaimKey, Option<Claim>);

/// Two claims with different values for one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    pub origin: Origin,
    pub path: InstancePath,
    pub sides: [(ClaimKey, Value); 2],
}

/// Reason for which claims cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// In the order of the paths, native ones first.
    Disagreements(Vec<Disagreement>),
    Limit(LimitExceeded),
}

/// All claims, joined. A clone shares all memory.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    records: OrdMap<ClaimKey, Record>,
    /// Claims by their numbers in the ledgers.
    names: OrdMap<ClaimNumber, ClaimKey>,
    /// Number of the next claim. A number is not used again, and a box does not come to four thousand million claims.
    next: ClaimNumber,
    native: Join,
    openconfig: Join,
    /// Number of leaves, keys included, that were added to and removed from holders by the last replacement.
    work: usize,
}

/// Number of a claim in the ledgers.
type ClaimNumber = u32;

#[derive(Clone, Debug)]
struct Record {
    number: ClaimNumber,
    claim: Arc<Claim>,
}

impl PartialEq for Record {
    /// Compares by address, which is what the difference of two maps needs.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.claim, &other.claim)
    }
}

impl PartialEq for Claims {
    fn eq(&self, other: &Self) -> bool {
        self.records.len() == other.records.len()
            && self.iter().zip(other.iter()).all(|(one, other)| one == other)
    }
}

impl Eq for Claims {}

impl Claims {
    /// These claims with some of them replaced, added or removed. Whether claims agree is judged on the result. Where a
    /// claim is named twice, the last one counts.
    ///
    /// # Errors
    /// When two claims disagree in the result, or all of them hold too many leaves.
    pub fn replaced(
        &self,
        models: &Models,
        changes: impl IntoIterator<Item = ClaimChange>,
    ) -> Result<Self, ClaimError> {
        let changes: BTreeMap<ClaimKey, Option<Claim>> = changes.into_iter().collect();
        let mut claims = Self { work: 0, ..self.clone() };
        let [mut native, mut openconfig] = [Vec::new(), Vec::new()];
        for (key, claim) in changes {
            let claim = claim.filter(|claim| !claim.is_empty());
            let old = claims.records.get(&key).cloned();
            if old.is_none() && claim.is_none() {
                continue;
            }
            let number = old.as_ref().map_or(claims.next, |record| record.number);
            let before = old.map(|record| record.claim).unwrap_or_default();
            let after = claim.clone().unwrap_or_default();
            join::differences(&before.native, &after.native, number, &mut native);
            join::differences(&before.openconfig, &after.openconfig, number, &mut openconfig);
            claims.record(key, number, claim.map(|_| after));
        }
        claims.work = native.len() + openconfig.len();
        let mut found = Vec::new();
        for (origin, parts) in [(Origin::Native, native), (Origin::OpenConfig, openconfig)] {
            let disagreements = claims.apply(models, origin, parts);
            found.extend(disagreements.into_iter().map(|(path, sides)| Disagreement {
                origin,
                path,
                sides: sides.map(|(number, value)| (claims.names[&number].clone(), value)),
            }));
        }
        if !found.is_empty() {
            return Err(ClaimError::Disagreements(found));
        }
        CLAIMED_LEAVES.check(claims.leaves()).map_err(ClaimError::Limit)?;
        Ok(claims)
    }

    /// Number of leaves of both layers, keys included.
    pub(crate) fn leaves(&self) -> usize {
        self.native.leaves + self.openconfig.leaves
    }

    /// Registers the content of a claim, sharing memory with its content before.
    fn record(&mut self, key: ClaimKey, number: ClaimNumber, claim: Option<Claim>) {
        let Some(Claim { native, openconfig }) = claim else {
            self.records.remove(&key);
            self.names.remove(&number);
            return;
        };
        let claim = match self.records.get(&key) {
            Some(Record { claim: old, .. }) => Claim {
                native: native.sharing(&old.native),
                openconfig: openconfig.sharing(&old.openconfig),
            },
            None => Claim { native, openconfig },
        };
        self.next = self.next.max(number + 1);
        self.names.insert(number, key.clone());
        self.records.insert(key, Record { number, claim: Arc::new(claim) });
    }

    fn apply(
        &mut self,
        models: &Models,
        origin: Origin,
        parts: Vec<Part>,
    ) -> Vec<(InstancePath, [(ClaimNumber, Value); 2])> {
        match origin {
            Origin::Native => self.native.apply(models.schema(origin), parts),
            Origin::OpenConfig => self.openconfig.apply(models.schema(origin), parts),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// True when both are known to be equal, by their memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.records.ptr_eq(&other.records)
    }

    /// All claims, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ClaimKey, &Claim)> {
        self.records.iter().map(|(key, record)| (key, &*record.claim))
    }

    pub fn get(&self, key: &ClaimKey) -> Option<&Claim> {
        self.records.get(key).map(|record| &*record.claim)
    }

    /// The claims that states of one instance own.
    pub fn of_instance<'c>(
        &'c self,
        tag: &'c ServiceTag,
    ) -> impl Iterator<Item = (&'c ClaimKey, &'c Claim)> {
        let none = || SmolStr::default();
        let first = ClaimKey { tag: tag.clone(), component: [none(), none()], state: none() };
        let records = self.records.range(first..).take_while(move |(key, _)| key.tag == *tag);
        let owned = records.filter(|(key, _)| !key.is_left());
        owned.map(|(key, record)| (key, &*record.claim))
    }

    /// The claims that are not the same memory in `old` and `new`, with both contents, ascending by name.
    pub fn differences<'c>(
        old: &'c Self,
        new: &'c Self,
    ) -> impl Iterator<Item = (&'c ClaimKey, Option<&'c Claim>, Option<&'c Claim>)> {
        old.records.diff(&new.records).map(|item| match item {
            DiffItem::Add(key, new) => (key, None, Some(&*new.claim)),
            DiffItem::Update { old: (_, old), new: (key, new) } => {
                (key, Some(&*old.claim), Some(&*new.claim))
            }
            DiffItem::Remove(key, old) => (key, Some(&*old.claim), None),
        })
    }

    /// The claims that are not the same memory in `new`, with their content there.
    pub fn changes_to(&self, new: &Self) -> Vec<ClaimChange> {
        let differences = Self::differences(self, new);
        differences.map(|(key, _, new)| (key.clone(), new.cloned())).collect()
    }

    /// The layer of services of an origin: all claims joined.
    pub fn layer(&self, origin: Origin) -> &Tree<LeafMark> {
        &self.join(origin).layer
    }

    /// Claims that hold a leaf, entry or presence container, ascending by name; none for any other node.
    pub fn holders(&self, origin: Origin, path: &InstancePath) -> Vec<&ClaimKey> {
        let numbers = self.join(origin).holders(path);
        let mut keys: Vec<_> = numbers.iter().filter_map(|it| self.names.get(it)).collect();
        keys.sort();
        keys
    }

    /// Claims that hold something at or below a path.
    fn below(&self, origin: Origin, path: &InstancePath) -> impl Iterator<Item = &ClaimKey> {
        let keys = self.join(origin).holders_below(path).into_iter();
        keys.filter_map(|number| self.names.get(&number))
    }

    /// Leaves, keys included, whose holders the last replacement changed: tests check this number instead of time.
    pub fn work(&self) -> usize {
        self.work
    }

    fn join(&self, origin: Origin) -> &Join {
        match origin {
            Origin::Native => &self.native,
            Origin::OpenConfig => &self.openconfig,
        }
    }
}
