//! Sorting of many keys.

use std::collections::BTreeMap;

use super::{Key, KindId};

/// Bytes of a key that are compared as one number.
const DIGITS: usize = size_of::<u128>();

/// Sorts keys and removes duplicates.
pub fn sort_keys(keys: &mut Vec<Key>) {
    sort_by_keys(keys, |key| key);
    keys.dedup();
}

/// Sorts items by their keys. Items of one kind often come in order, but mixed with those of other kinds. Where they do
/// not, one number is compared: the bytes after the prefix that all keys of the kind have in common. Only where these
/// are equal, the whole keys are compared. Items of one key keep their order.
pub(crate) fn sort_by_keys<T>(items: &mut Vec<T>, key: impl Fn(&T) -> &Key) {
    if items.is_sorted_by_key(&key) {
        return;
    }
    let mut kinds: BTreeMap<KindId, Vec<T>> = BTreeMap::new();
    for item in items.drain(..) {
        kinds.entry(key(&item).kind()).or_default().push(item);
    }
    for mut alike in kinds.into_values() {
        if alike.is_sorted_by_key(&key) {
            items.append(&mut alike);
            continue;
        }
        let common = in_common(alike.iter().map(&key));
        let ranked = alike.into_iter().map(|item| (digits(key(&item), common), item));
        let mut ranked: Vec<(u128, T)> = ranked.collect();
        ranked.sort_by(|(one, a), (other, b)| one.cmp(other).then_with(|| key(a).cmp(key(b))));
        items.extend(ranked.into_iter().map(|(_, item)| item));
    }
}

/// Sorts indexes and the like by keys that are elsewhere.
pub(crate) fn sort_by_keys_of<'k, T>(items: &mut Vec<T>, key: impl Fn(&T) -> &'k Key) {
    if !items.is_sorted_by_key(&key) {
        let mut keyed: Vec<(&Key, T)> = items.drain(..).map(|item| (key(&item), item)).collect();
        sort_by_keys(&mut keyed, |(key, _)| key);
        items.extend(keyed.into_iter().map(|(_, item)| item));
    }
}

/// Length in bytes of the common prefix of all keys.
fn in_common<'k>(mut keys: impl Iterator<Item = &'k Key>) -> usize {
    let Some(first) = keys.next().map(Key::as_bytes) else { return 0 };
    let common = |key: &Key, most: usize| {
        let both = first[..most].iter().zip(key.as_bytes());
        both.take_while(|(one, other)| one == other).count()
    };
    keys.fold(first.len(), |most, key| common(key, most))
}

/// Bytes of a key from `from` on, as a number in the same order; bytes beyond the end are zero.
fn digits(key: &Key, from: usize) -> u128 {
    let octets = key.as_bytes().get(from..).unwrap_or_default();
    let mut digits = [0; DIGITS];
    let count = octets.len().min(DIGITS);
    digits[..count].copy_from_slice(&octets[..count]);
    u128::from_be_bytes(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys of few kinds that have much in common, and some that are equal.
    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let text = "(a|aaaaaaaaaaaaaaaaaaaaaaaaaaaa)[ab\\x00]{0,3}";
        let key = (0..3_u16, text, proptest::option::of(0..3_u32));
        let key = key.prop_map(|(kind, text, number)| {
            let key = Key::of(KindId(kind)).str(&text);
            number.into_iter().fold(key, Key::u32)
        });
        proptest::collection::vec(key, 0..40)
    }

    proptest! {
        #[test]
        fn keys_come_in_order_and_once(keys in keys()) {
            let mut expected = keys.clone();
            expected.sort();
            expected.dedup();
            let mut sorted = keys;
            sort_keys(&mut sorted);
            prop_assert_eq!(sorted, expected);
        }
    }
}
