//! Claims that no state owns, and what joins them. They stay until an operator purges them.
//!
//! ```text
//! orphan:TAG    the states of components that were dropped by force
//! persist:TAG   the delete calls of the handlers of an instance
//! persist:TYPE  the modification calls of the handlers of all instances of a type
//! ```
//!
//! Nothing that comes later takes a leaf from them; an output that names it once more gives it a new value.

use std::collections::BTreeMap;

use smol_str::{SmolStr, format_smolstr};

use super::{Claim, ClaimChange, ClaimError, ClaimKey, Claims, ServiceTag};
use crate::limits::CLAIM_LEAVES;
use crate::models::Models;
use crate::schema::Origin;
use crate::tree::Tree;

/// Stands before the name of the instance whose components were dropped by force, in the name of what they left. It has the
/// place of a component's type, which has no colon.
const ORPHAN: &str = "orphan:";
/// Stands before the name of the instance or the type whose handlers have put out what is to last.
const PERSIST: &str = "persist:";

/// Output of a handler that outlasts the state that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistedOutput {
    /// The claim that it joins.
    pub into: ClaimKey,
    /// The state of the call, or what has its place in the call's name.
    pub by: ClaimKey,
    pub claim: Claim,
}

impl ClaimKey {
    /// Name of all that components of an instance left when they were dropped by force.
    pub fn orphan(tag: ServiceTag) -> Self {
        Self::left(ORPHAN, tag)
    }

    /// Name of all that handlers have put out for an instance, or for a type, that is to last.
    pub fn persistent(tag: ServiceTag) -> Self {
        Self::left(PERSIST, tag)
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
    /// With the forms of such a name.
    pub fn parse_left(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "the name of a claim without an owner is orphan:TYPE[KEY='VALUE'], persist:TYPE or \
                            persist:TYPE[KEY='VALUE']";
        if let Some(tag) = text.strip_prefix(ORPHAN) {
            return tag.parse().map(Self::orphan).map_err(|_| FORM);
        }
        let tag = text.strip_prefix(PERSIST).filter(|tag| !tag.is_empty()).ok_or(FORM)?;
        if tag.contains('[') {
            tag.parse().map(Self::persistent).map_err(|_| FORM)
        } else {
            Ok(Self::persistent(ServiceTag::of_type(tag.into())))
        }
    }

    /// Name of who asks for the leaves of the claim: the instance, or the claim itself where no state owns it.
    pub fn owner(&self) -> SmolStr {
        if self.is_left() { format_smolstr!("{self}") } else { format_smolstr!("{}", self.tag) }
    }
}

impl Claims {
    /// The claims that the states of an instance have left, and what its handlers have put out to last.
    pub fn left_by(&self, tag: &ServiceTag) -> impl Iterator<Item = ClaimKey> {
        let keys = [ClaimKey::persistent(tag.clone()), ClaimKey::orphan(tag.clone())];
        keys.into_iter().filter(|key| self.get(key).is_some())
    }

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

    /// The changes by which outputs that are to last join what such outputs have left.
    ///
    /// # Errors
    /// When two of them have different values for one leaf, or one claim would have too many leaves.
    pub(crate) fn persisted(
        &self,
        models: &Models,
        outputs: Vec<PersistedOutput>,
    ) -> Result<Vec<ClaimChange>, ClaimError> {
        let mut contents: BTreeMap<ClaimKey, Vec<ClaimChange>> = BTreeMap::new();
        for PersistedOutput { into, by, claim } in outputs {
            contents.entry(into).or_default().push((by, Some(claim)));
        }
        let mut changes = Vec::new();
        for (into, outputs) in contents {
            Self::default().replaced(models, outputs.iter().cloned())?;
            let outputs = outputs.iter().filter_map(|(_, claim)| claim.as_ref());
            let grown = self.grown(&into, outputs);
            // A claim that is not replaced is not written either, so other changes need not wait.
            if self.get(&into) == Some(&grown) {
                continue;
            }
            CLAIM_LEAVES.check(grown.leaves()).map_err(ClaimError::Limit)?;
            changes.push((into, Some(grown)));
        }
        Ok(changes)
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

impl Claim {
    /// Number of leaves, keys included.
    fn leaves(&self) -> usize {
        let mut leaves = 0;
        for origin in [Origin::Native, Origin::OpenConfig] {
            self.tree(origin).walk(&mut |_, _| leaves += 1);
        }
        leaves
    }
}
