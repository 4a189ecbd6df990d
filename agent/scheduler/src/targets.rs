//! Targets that a value provides, and an index that finds entries by them.
//!
//! A value provides its own key, every prefix of its key, its offers, and each address that its prefixes contain. The
//! last are found in an ordered set of the addresses that values need: a prefix contains one range of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::dependency::{Space, Target};
use crate::key::{FixedMap, Key};
use crate::value_spec::ValueSpec;

/// Addresses of `Covering` targets, by space and in order.
#[derive(Debug, Default)]
pub(crate) struct Addresses(BTreeSet<(Space, IpAddr)>);

impl Addresses {
    pub(crate) fn insert(&mut self, space: Space, address: IpAddr) {
        self.0.insert((space, address));
    }

    pub(crate) fn remove(&mut self, space: Space, address: IpAddr) {
        self.0.remove(&(space, address));
    }

    /// `Covering` targets with an address in the prefix, ascending.
    pub(crate) fn within(&self, space: Space, prefix: IpNet) -> impl Iterator<Item = Target> + '_ {
        let range = (space, prefix.network())..=(space, prefix.broadcast());
        self.0.range(range).map(|&(space, address)| Target::Covering { space, address })
    }
}

/// Entries by space and prefix, found by the prefix or by an address in it.
#[derive(Debug)]
pub(crate) struct PrefixTable<T> {
    entries: FixedMap<(Space, IpNet), T>,
    /// Number of prefixes of each space, family (true for IPv6) and length.
    lengths: BTreeMap<(Space, bool, u8), u32>,
}

impl<T> Default for PrefixTable<T> {
    fn default() -> Self {
        Self { entries: FixedMap::default(), lengths: BTreeMap::new() }
    }
}

impl<T: Default> PrefixTable<T> {
    /// Entry of a prefix, added if it is new.
    pub(crate) fn entry(&mut self, space: Space, prefix: IpNet) -> &mut T {
        if !self.entries.contains_key(&(space, prefix)) {
            *self.lengths.entry(Self::length(space, prefix)).or_default() += 1;
        }
        self.entries.entry((space, prefix)).or_default()
    }

    pub(crate) fn get(&self, space: Space, prefix: IpNet) -> Option<&T> {
        self.entries.get(&(space, prefix))
    }

    pub(crate) fn remove(&mut self, space: Space, prefix: IpNet) {
        if self.entries.remove(&(space, prefix)).is_none() {
            return;
        }
        let length = Self::length(space, prefix);
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    /// Entries of the prefixes that contain an address, by ascending length.
    pub(crate) fn covering(&self, space: Space, address: IpAddr) -> impl Iterator<Item = &T> {
        let of = |length| (space, address.is_ipv6(), length);
        let lengths = self.lengths.range(of(0)..=of(u8::MAX));
        let prefixes =
            lengths.filter_map(move |(&(.., length), _)| IpNet::new(address, length).ok());
        prefixes.filter_map(move |prefix| self.entries.get(&(space, prefix.trunc())))
    }

    fn length(space: Space, prefix: IpNet) -> (Space, bool, u8) {
        (space, prefix.addr().is_ipv6(), prefix.prefix_len())
    }
}

/// `Covering` targets with an address in the prefix that is in any of the sets, each one once; ascending.
pub(crate) fn addresses_within(
    sets: &[&Addresses],
    space: Space,
    prefix: IpNet,
) -> SmallVec<[Target; 4]> {
    let within = sets.iter().flat_map(|addresses| addresses.within(space, prefix));
    let mut targets: SmallVec<[Target; 4]> = within.collect();
    if sets.len() > 1 {
        targets.sort_unstable();
        targets.dedup();
    }
    targets
}

/// Targets that a value provides, of addresses those in any of the sets. An address is listed once for each prefix
/// that contains it. `spec` is `None` if only the key of the value is known.
pub(crate) fn provided_targets(
    key: &Key,
    spec: Option<&ValueSpec>,
    sets: &[&Addresses],
) -> Vec<Target> {
    let mut targets: Vec<Target> = key.prefixes().map(Target::Under).collect();
    targets.push(Target::Exact(key.clone()));
    let Some(spec) = spec else { return targets };
    targets.extend(spec.offers.keys().cloned());
    for &(space, prefix) in spec.prefixes() {
        targets.extend(addresses_within(sets, space, prefix));
    }
    targets
}

/// Entries by target, found by the target itself or by a value that provides it.
#[derive(Debug)]
pub(crate) struct TargetIndex<T> {
    entries: FixedMap<Target, T>,
    addresses: Addresses,
    /// Number of `Under` targets. With none, prefixes of keys need not be looked up.
    unders: usize,
}

impl<T> Default for TargetIndex<T> {
    fn default() -> Self {
        Self { entries: FixedMap::default(), addresses: Addresses::default(), unders: 0 }
    }
}

impl<T: Default> TargetIndex<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, target: &Target) -> bool {
        self.entries.contains_key(target)
    }

    pub(crate) fn get_mut(&mut self, target: &Target) -> Option<&mut T> {
        self.entries.get_mut(target)
    }

    /// Entry of a target, added if it is new.
    pub(crate) fn entry(&mut self, target: &Target) -> &mut T {
        if !self.entries.contains_key(target) {
            match target {
                Target::Covering { space, address } => self.addresses.insert(*space, *address),
                Target::Under(_) => self.unders += 1,
                _ => {}
            }
        }
        self.entries.entry(target.clone()).or_default()
    }

    pub(crate) fn remove(&mut self, target: &Target) {
        if self.entries.remove(target).is_none() {
            return;
        }
        match target {
            Target::Covering { space, address } => self.addresses.remove(*space, *address),
            Target::Under(_) => self.unders -= 1,
            _ => {}
        }
    }

    /// Entries of the targets that a value provides.
    pub(crate) fn provided_by(&self, key: &Key, spec: Option<&ValueSpec>) -> Vec<&T> {
        let targets = provided_targets(key, spec, &[&self.addresses]);
        targets.iter().filter_map(|target| self.entries.get(target)).collect()
    }

    /// True when some address of a `Covering` target is in the prefix.
    pub(crate) fn has_within(&self, space: Space, prefix: IpNet) -> bool {
        self.addresses.within(space, prefix).next().is_some()
    }

    /// True when some `Under` target is a prefix of the key.
    pub(crate) fn has_under(&self, key: &Key) -> bool {
        self.unders > 0
            && key.prefixes().any(|prefix| self.entries.contains_key(&Target::Under(prefix)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependency::Facet;
    use crate::key::KindId;

    fn main() -> Space {
        Space::table(254)
    }

    fn key(name: &str) -> Key {
        Key::of(KindId(1)).str(name)
    }

    fn covering(address: &str) -> Target {
        Target::Covering { space: main(), address: address.parse().unwrap() }
    }

    #[test]
    fn entries_are_found_by_key_prefix_and_address() {
        let mut index = TargetIndex::<u32>::default();
        let under = Target::Under(key("a"));
        for target in [&Target::Exact(key("a").str("b")), &under, &covering("10.0.0.1")] {
            *index.entry(target) += 1;
        }
        *index.entry(&Target::AnyOf(Facet::of(KindId(1), "up"))) += 1;
        let found = |index: &TargetIndex<u32>, key: &Key| index.provided_by(key, None).len();
        assert_eq!(found(&index, &key("a").str("b")), 2);
        assert_eq!((found(&index, &key("a").str("c")), found(&index, &key("ab"))), (1, 0));
        let prefix = |text: &str| text.parse().unwrap();
        assert!(index.has_within(main(), prefix("10.0.0.0/8")));
        assert!(!index.has_within(main(), prefix("11.0.0.0/8")));
        assert!(!index.has_within(Space::table(255), prefix("10.0.0.0/8")));
        for target in [&under, &under, &covering("10.0.0.1")] {
            index.remove(target);
        }
        assert!(!index.has_under(&key("a")) && !index.has_within(main(), prefix("10.0.0.0/8")));
        assert_eq!((index.entries.len(), found(&index, &key("a").str("b"))), (2, 1));
    }

    #[test]
    fn prefixes_are_found_by_their_addresses_until_they_are_removed() {
        let prefix = |text: &str| text.parse().unwrap();
        let mut table = PrefixTable::<u32>::default();
        for (at, text) in (1..).zip(["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/8", "2001:db8::/32"]) {
            *table.entry(main(), prefix(text)) = at;
        }
        let covering = |table: &PrefixTable<u32>, space, address: &str| {
            table.covering(space, address.parse().unwrap()).copied().collect::<Vec<_>>()
        };
        assert_eq!(covering(&table, main(), "10.1.2.3"), [1, 2], "the shorter one first");
        assert_eq!(covering(&table, main(), "2001:db8::1"), [4]);
        assert!(covering(&table, Space::table(255), "10.1.2.3").is_empty(), "another table");
        *table.entry(main(), prefix("10.0.0.0/8")) += 4;
        table.remove(main(), prefix("11.0.0.0/8"));
        table.remove(main(), prefix("12.0.0.0/8"));
        assert_eq!(
            covering(&table, main(), "10.2.0.0"),
            [5],
            "the other one of its length is left"
        );
        assert!(covering(&table, main(), "11.0.0.1").is_empty());
    }

    #[test]
    fn an_address_in_two_sets_is_listed_once() {
        let mut one = Addresses::default();
        let mut other = Addresses::default();
        for address in ["10.0.0.2", "10.0.0.1"] {
            one.insert(main(), address.parse().unwrap());
        }
        for address in ["10.0.0.1", "192.0.2.1"] {
            other.insert(main(), address.parse().unwrap());
        }
        let found = addresses_within(&[&one, &other], main(), "10.0.0.0/8".parse().unwrap());
        assert_eq!(found[..], [covering("10.0.0.1"), covering("10.0.0.2")]);
    }
}
