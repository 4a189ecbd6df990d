//! Names that VLANs give to their links: no other configured link has such a name.

use std::collections::BTreeSet;

use holdfast_config::{InstancePath, NodeId, Step};
use holdfast_scheduler::{Key, KindId, SharedValue};
use imbl::{OrdMap, OrdSet};
use smol_str::SmolStr;

use super::value::link_of;
use super::{LINK, Link};
use crate::kinds::entry::{ObjectError, interface_beside};
use crate::kinds::reading::first_text;
use crate::kinds::relation::{LocatedChange, Relation};

/// The rule for `link-name`, with the names of the configured links.
#[derive(Clone, Debug)]
pub(super) struct OwnNames {
    /// The leaf by which a VLAN names its link.
    leaf: NodeId,
    names: NameIndex,
}

/// Index of the configured links by their names, and of the names that VLANs give to theirs. A copy costs nothing.
#[derive(Clone, Debug, Default)]
struct NameIndex {
    /// Names by which the configured links are known.
    configured: OrdSet<SmolStr>,
    /// Names that VLANs give to their links, by the names by which these are known.
    given: OrdMap<SmolStr, SmolStr>,
    /// Pairs of a given name, and the link that it is given to.
    holders: OrdSet<(SmolStr, SmolStr)>,
}

/// Reason to refuse the name of a link in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NameFault {
    /// True where the link is a VLAN whose `link-name` is at fault.
    is_given: bool,
    reason: String,
}

impl OwnNames {
    pub(super) fn new(leaf: NodeId) -> Self {
        Self { leaf, names: NameIndex::default() }
    }
}

impl Relation for OwnNames {
    fn kind(&self) -> KindId {
        LINK
    }

    fn update(&mut self, key: &Key, value: Option<&SharedValue>) {
        let Some(name) = first_text(key) else { return };
        self.names.update(&name, value.and_then(link_of));
    }

    fn refusal(&self, changes: &[LocatedChange<'_>]) -> Option<ObjectError> {
        let mut changed = NameIndex::default();
        let mut names = BTreeSet::new();
        let mut paths = Vec::new();
        for (path, key, value) in changes {
            let Some(name) = first_text(key) else { continue };
            changed.update(&name, value.and_then(link_of));
            names.insert(name.clone());
            paths.push((*path, name));
        }
        let after = ProposedNames { before: &self.names, changed: &changed, names: &names };
        paths.into_iter().find_map(|(path, name)| {
            let NameFault { is_given, reason } = after.fault(&name)?;
            let leaf = is_given.then(|| Step::node(self.leaf));
            let path = leaf.map_or_else(|| path.clone(), |leaf| path.join(leaf));
            Some(ObjectError { path, reason, incomplete: false })
        })
    }

    fn entries_beside(&self, changes: &[LocatedChange<'_>]) -> Vec<InstancePath> {
        let mut entries = Vec::new();
        for (path, key, value) in changes {
            let Some(name) = first_text(key) else { continue };
            let after = value.and_then(link_of).and_then(given_name);
            let own_names = self.names.given.get(&name).cloned().into_iter().chain(after);
            entries.extend(own_names.map(|name| interface_beside(path, &name)));
        }
        entries
    }

    fn boxed_clone(&self) -> Box<dyn Relation> {
        Box::new(self.clone())
    }
}

/// The name that a VLAN gives to its link.
fn given_name(link: &Link) -> Option<SmolStr> {
    Some(link.own_name()).filter(|own_name| *own_name != link.name)
}

impl NameIndex {
    /// Updates the index by a link that is configured from now on, or not any more.
    fn update(&mut self, name: &SmolStr, link: Option<&Link>) {
        let given = link.and_then(given_name);
        match link {
            Some(_) => self.configured.insert(name.clone()),
            None => self.configured.remove(name),
        };
        let before = match &given {
            Some(own_name) => self.given.insert(name.clone(), own_name.clone()),
            None => self.given.remove(name),
        };
        if let Some(before) = before {
            self.holders.remove(&(before, name.clone()));
        }
        self.holders.extend(given.map(|own_name| (own_name, name.clone())));
    }

    /// The links that are given a name.
    fn holders<'s>(&'s self, own_name: &'s SmolStr) -> impl Iterator<Item = &'s SmolStr> {
        let from = (own_name.clone(), SmolStr::default());
        let given = self.holders.range(from..).take_while(move |(given, _)| given == own_name);
        given.map(|(_, name)| name)
    }
}

/// The index as it would be after a change.
struct ProposedNames<'n> {
    before: &'n NameIndex,
    changed: &'n NameIndex,
    /// Names of changed links, also of deleted ones.
    names: &'n BTreeSet<SmolStr>,
}

impl ProposedNames<'_> {
    /// Reason to refuse the name of a changed link.
    fn fault(&self, name: &SmolStr) -> Option<NameFault> {
        if let Some(own_name) = self.changed.given.get(name) {
            let is_given = true;
            if self.is_configured(own_name) {
                let reason = format!(
                    "the link of VLAN `{name}` cannot be called `{own_name}`: interface `{own_name}` is configured"
                );
                return Some(NameFault { is_given, reason });
            }
            let other = self.holders(own_name).find(|other| *other != name)?;
            let reason = format!(
                "the link of VLAN `{name}` cannot be called `{own_name}`: the link of VLAN `{other}` is called so"
            );
            return Some(NameFault { is_given, reason });
        }
        let holder =
            self.changed.configured.get(name).and_then(|name| self.holders(name).next())?;
        let reason = format!("the link of VLAN `{holder}` is called `{name}`");
        Some(NameFault { is_given: false, reason })
    }

    fn is_configured(&self, name: &SmolStr) -> bool {
        let side = if self.names.contains(name) { self.changed } else { self.before };
        side.configured.contains(name)
    }

    fn holders<'s>(&'s self, own_name: &'s SmolStr) -> impl Iterator<Item = &'s SmolStr> {
        let unchanged = self.before.holders(own_name).filter(|name| !self.names.contains(*name));
        unchanged.chain(self.changed.holders(own_name))
    }
}
