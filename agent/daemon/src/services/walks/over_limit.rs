//! Instances that a limit of the box keeps from going on.

use std::collections::BTreeSet;
use std::ops::Bound;

use holdfast_config::ServiceTag;

/// Instances that walk again when others have made room.
#[derive(Debug, Default)]
pub(in crate::services) struct OverLimit {
    tags: BTreeSet<ServiceTag>,
    /// The instance that was taken last. The next ones come after it, so that one that needs much holds up no other.
    last: Option<ServiceTag>,
}

impl OverLimit {
    pub(in crate::services) fn insert(&mut self, tag: ServiceTag) {
        self.tags.insert(tag);
    }

    pub(in crate::services) fn remove(&mut self, tag: &ServiceTag) {
        self.tags.remove(tag);
    }

    /// Takes up to this number of instances.
    pub(in crate::services) fn take(&mut self, count: usize) -> Vec<ServiceTag> {
        let from = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.tags.range((from, Bound::Unbounded)).chain(&self.tags);
        let taken: Vec<_> = behind.take(count.min(self.tags.len())).cloned().collect();
        for tag in &taken {
            self.tags.remove(tag);
        }
        self.last = taken.last().cloned().or(self.last.take());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_taken_in_turn() {
        let tag = |name: &str| -> ServiceTag { format!("access[name='{name}']").parse().unwrap() };
        let mut over_limit = OverLimit::default();
        ["a", "b", "c"].into_iter().for_each(|name| over_limit.insert(tag(name)));
        assert_eq!(over_limit.take(1), [tag("a")]);
        over_limit.insert(tag("a"));
        assert_eq!(over_limit.take(1), [tag("b")]);
        over_limit.insert(tag("b"));
        assert_eq!(over_limit.take(2), [tag("c"), tag("a")]);
        over_limit.remove(&tag("b"));
        assert_eq!(over_limit.take(9), []);
    }
}
