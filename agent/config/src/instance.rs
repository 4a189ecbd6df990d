//! Concrete paths: schema nodes with the keys of each list entry.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::node_id::NodeId;
use crate::value::Value;

/// The key values of one list entry, in the order of the schema's `key` statement.
///
/// Nearly every list has one key, and the keys of an entry are stored in the list, in each path and with each
/// change. A single key is therefore stored inline, while several are shared by all copies.
#[derive(Clone)]
pub struct Keys(KeyStorage);

#[derive(Clone)]
enum KeyStorage {
    One(Value),
    /// No key, or several.
    Many(Arc<[Value]>),
}

/// One step down the tree. Only list entries have `keys`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    pub node: NodeId,
    pub keys: Option<Keys>,
}

/// Path from the root to one node of an instance tree, without wildcards. Empty for the root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstancePath(pub Vec<Step>);

impl Keys {
    pub fn single(value: Value) -> Self {
        Self(KeyStorage::One(value))
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self(KeyStorage::Many(Arc::default()))
    }
}

impl Deref for Keys {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        match &self.0 {
            KeyStorage::One(value) => std::slice::from_ref(value),
            KeyStorage::Many(values) => values,
        }
    }
}

impl FromIterator<Value> for Keys {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Self::default(),
            (Some(only), None) => Self::single(only),
            (Some(first), second) => {
                let values = [first].into_iter().chain(second).chain(values);
                Self(KeyStorage::Many(values.collect()))
            }
        }
    }
}

impl<'a> IntoIterator for &'a Keys {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Keys {}

impl Hash for Keys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl PartialOrd for Keys {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keys {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&**self, &**other) {
            ([Value::Str(one)], [Value::Str(other)]) => {
                compare_octets(one.as_bytes(), other.as_bytes())
            }
            (one, other) => one.cmp(other),
        }
    }
}

/// Compares bytes, eight at a time. A long list compares the keys of an entry some twenty times to find it, and most keys
/// are too short for a call of memcmp to pay.
fn compare_octets(one: &[u8], other: &[u8]) -> Ordering {
    let shared = one.len().min(other.len());
    let mut left = &one[..shared];
    let mut right = &other[..shared];
    while let (Some((first, rest)), Some((second, other_rest))) =
        (left.split_first_chunk::<8>(), right.split_first_chunk::<8>())
    {
        if first != second {
            return u64::from_be_bytes(*first).cmp(&u64::from_be_bytes(*second));
        }
        (left, right) = (rest, other_rest);
    }
    let unequal = left.iter().zip(right).find(|(first, second)| first != second);
    unequal.map_or_else(|| one.len().cmp(&other.len()), |(first, second)| first.cmp(second))
}

impl InstancePath {
    /// The same path, below the entry with this key of the last list on it.
    #[must_use]
    pub fn with_last_key(mut self, key: Value) -> Self {
        if let Some(entry) = self.0.iter_mut().rfind(|step| step.keys.is_some()) {
            entry.keys = Some(Keys::single(key));
        }
        self
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl Step {
    pub fn node(node: NodeId) -> Self {
        Self { node, keys: None }
    }

    pub fn entry(node: NodeId, keys: Keys) -> Self {
        Self { node, keys: Some(keys) }
    }
}

impl InstancePath {
    pub fn root() -> Self {
        Self::default()
    }

    /// Appends a step.
    #[must_use]
    pub fn join(&self, step: Step) -> Self {
        let mut steps = Vec::with_capacity(self.0.len() + 1);
        steps.extend_from_slice(&self.0);
        steps.push(step);
        Self(steps)
    }

    pub fn starts_with(&self, prefix: &InstancePath) -> bool {
        self.0.starts_with(&prefix.0)
    }

    pub fn last(&self) -> Option<&Step> {
        self.0.last()
    }

    /// The node of the last step, in the path of a leaf that of the leaf.
    pub fn leaf(&self) -> Option<NodeId> {
        Some(self.last()?.node)
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Texts of few bytes, so that many of them share a beginning.
        #[test]
        fn keys_are_ordered_as_their_values_are(
            one in "[ab\u{e9}]{0,20}",
            other in "[ab\u{e9}]{0,20}",
            number in 0u64..3,
        ) {
            let [one, other] = [one, other].map(|text| Value::Str(text.into()));
            let singles = [one.clone(), other.clone(), Value::Uint(number)];
            let keys: Vec<Vec<Value>> = singles.iter().map(|it| vec![it.clone()]).collect();
            let pairs = [vec![], vec![one.clone(), other.clone()], vec![other, one]];
            let all: Vec<Vec<Value>> = keys.into_iter().chain(pairs).collect();
            for one in &all {
                for other in &all {
                    let [left, right] = [one, other].map(|it| it.iter().cloned().collect::<Keys>());
                    prop_assert_eq!(left.cmp(&right), one.cmp(other));
                }
            }
        }
    }
}
