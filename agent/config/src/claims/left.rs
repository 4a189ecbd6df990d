//! Claims that no state owns, and what joins them. They stay until an operator purges them.
//!
//! ```text
//! orphan:TAG    the states of components that were dropped by force
//! ```
//!
//! Nothing that comes later takes a leaf from them.

use smol_str::{SmolStr, format_smolstr};

use super::{Claim, ClaimChange, ClaimKey, Claims, ServiceTag};
use crate::schema::Origin;
use crate::tree::Tree;

/// Stands before the name of the instance whose components were dropped by force, in the name of what they left. It has the
/// place of a component's type, which has no colon.
const ORPHAN: &str = "orphan:";

impl ClaimKey {
    /// Name of all that components of an instance left when they were dropped by force.
    pub fn orphan(tag: ServiceTag) -> Self {
        Self::left(ORPHAN, tag)
    }

    fn left(prefix: &'static str, tag: ServiceTag) -> Self {
        let none = SmolStr::default;
        Self { tag, component: [SmolStr::new_static(prefix), none()], state: none() }
    }

    /// True for a claim that no state owns.
    pub fn is_left(&self) -> bool {
        self.component[0].ends_with(':')
    }

    /// Reads the name of a claim that no state owns.
    ///
    /// # Errors
    /// With the form of such a name.
    pub fn parse_left(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "the name of a left claim is orphan:TYPE[KEY='VALUE']";
        let tag = text.strip_prefix(ORPHAN).ok_or(FORM)?;
        tag.parse().map(Self::orphan).map_err(|_| FORM)
    }

    /// Name of who asks for the leaves of the claim: the instance, or the claim itself where no state owns it.
    pub fn owner(&self) -> SmolStr {
        if self.is_left() { format_smolstr!("{self}") } else { format_smolstr!("{}", self.tag) }
    }
}

impl Claims {
    /// The changes by which claims of an instance lose their owners: their content joins what such claims have left.
    pub fn orphaned<'c>(
        &self,
        tag: &ServiceTag,
        keys: impl Iterator<Item = &'c ClaimKey>,
    ) -> Vec<ClaimChange> {
        let dropped: Vec<_> =
            keys.filter_map(|key| Some((key.clone(), self.get(key)?.clone()))).collect();
        if dropped.is_empty() {
            return Vec::new();
        }
        // Claims that are in force agree, so the order does not matter.
        let contents = dropped.iter().map(|(_, claim)| claim);
        let orphan = ClaimKey::orphan(tag.clone());
        let left = Some(self.grown(&orphan, contents));
        dropped.iter().map(|(key, _)| (key.clone(), None)).chain([(orphan, left)]).collect()
    }

    /// A claim without an owner with more content. Of a leaf that it has already, the new value counts.
    fn grown<'c>(&self, key: &ClaimKey, contents: impl Iterator<Item = &'c Claim>) -> Claim {
        let mut left = self.get(key).cloned().unwrap_or_default();
        for claim in contents {
            for origin in [Origin::Native, Origin::OpenConfig] {
                let tree = left.tree_mut(origin);
                *tree = Tree::merged(&Tree::new(), claim.tree(origin), tree).0;
            }
        }
        left
    }
}
