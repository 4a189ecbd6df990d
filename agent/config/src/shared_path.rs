//! Paths of many entries of few lists.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::instance::{InstancePath, Keys};

/// The path of a list entry, which shares the path of its list with the entries beside it. Ten thousand routes that are marked
/// or listed have one path of their list, and keys.
#[derive(Clone, Debug)]
pub struct SharedPath {
    /// The path without the keys at its end.
    list: Arc<InstancePath>,
    /// The keys at its end; `None` for the path of another node.
    keys: Option<Keys>,
}

impl SharedPath {
    /// The path, which shares memory with `neighbour` where both are in one list.
    pub fn beside(path: InstancePath, neighbour: Option<&Self>) -> Self {
        let (list, keys) = split(path);
        let list = match neighbour {
            Some(neighbour) if *neighbour.list == list => Arc::clone(&neighbour.list),
            _ => Arc::new(list),
        };
        Self { list, keys }
    }

    /// An entry of a list, by the path of the list and the keys of the entry.
    pub fn entry(list: Arc<InstancePath>, keys: Keys) -> Self {
        Self { list, keys: Some(keys) }
    }

    pub fn list(&self) -> &Arc<InstancePath> {
        &self.list
    }

    pub fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    pub fn to_path(&self) -> InstancePath {
        let mut path = (*self.list).clone();
        if let Some(last) = path.0.last_mut() {
            last.keys.clone_from(&self.keys);
        }
        path
    }
}

impl From<InstancePath> for SharedPath {
    fn from(path: InstancePath) -> Self {
        Self::beside(path, None)
    }
}

/// The path without the keys at its end, and these keys.
fn split(mut path: InstancePath) -> (InstancePath, Option<Keys>) {
    let keys = path.0.last_mut().and_then(|last| last.keys.take());
    (path, keys)
}

impl PartialEq for SharedPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for SharedPath {}

impl PartialOrd for SharedPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By list, then by key.
impl Ord for SharedPath {
    fn cmp(&self, other: &Self) -> Ordering {
        let is_beside = Arc::ptr_eq(&self.list, &other.list);
        let lists = if is_beside { Ordering::Equal } else { self.list.cmp(&other.list) };
        lists.then_with(|| self.keys.cmp(&other.keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Step;
    use crate::node_id::NodeId;
    use crate::value::Value;

    fn entry(list: u32, key: &str) -> InstancePath {
        let above = InstancePath(vec![Step::node(NodeId(1))]);
        above.join(Step::entry(NodeId(list), Keys::single(Value::Str(key.into()))))
    }

    #[test]
    fn entries_of_one_list_share_its_path() {
        let first = SharedPath::from(entry(2, "a"));
        let second = SharedPath::beside(entry(2, "b"), Some(&first));
        let other = SharedPath::beside(entry(3, "a"), Some(&second));
        assert!(Arc::ptr_eq(first.list(), second.list()));
        assert!(!Arc::ptr_eq(second.list(), other.list()));
        assert_eq!(
            [&first, &second, &other].map(SharedPath::to_path),
            [entry(2, "a"), entry(2, "b"), entry(3, "a")]
        );
        assert!(first < second && second < other);
        assert_eq!(second, SharedPath::from(entry(2, "b")), "whether or not they share memory");
        let node = InstancePath(vec![Step::node(NodeId(1))]);
        assert_eq!(SharedPath::from(node.clone()).to_path(), node, "a path that is not an entry");
    }
}
