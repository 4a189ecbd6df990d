//! Names that VLANs give to their links: no other configured link has such a name.

use std::collections::BTreeSet;

use imbl::{OrdMap, OrdSet};
use smol_str::SmolStr;

use crate::values::Link;

/// Index of the configured links by their names, and of the names that VLANs give to theirs. A copy costs nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnNames {
    /// Names by which the configured links are known.
    configured: OrdSet<SmolStr>,
    /// Names that VLANs give to their links, by the names by which these are known.
    given: OrdMap<SmolStr, SmolStr>,
    /// Pairs of a given name, and the link that it is given to.
    holders: OrdSet<(SmolStr, SmolStr)>,
}

/// Reason to refuse the name of a link in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameFault {
    /// True where the link is a VLAN whose `link-name` is at fault.
    pub(super) is_given: bool,
    pub(super) reason: String,
}

impl OwnNames {
    /// Updates the index by a link that is configured from now on, or not any more.
    pub(super) fn update(&mut self, name: &SmolStr, link: Option<&Link>) {
        let given = link.map(Link::own_name).filter(|own_name| own_name != name);
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

    /// The name that a VLAN gives to its link.
    pub(super) fn given(&self, name: &SmolStr) -> Option<&SmolStr> {
        self.given.get(name)
    }

    /// The links that are given a name.
    fn holders<'s>(&'s self, own_name: &'s SmolStr) -> impl Iterator<Item = &'s SmolStr> {
        let from = (own_name.clone(), SmolStr::default());
        let given = self.holders.range(from..).take_while(move |(given, _)| given == own_name);
        given.map(|(_, name)| name)
    }
}

/// The index as it would be after a change.
pub(super) struct ProposedNames<'n> {
    pub(super) before: &'n OwnNames,
    pub(super) changed: &'n OwnNames,
    /// Names of changed links, also of deleted ones.
    pub(super) names: &'n BTreeSet<SmolStr>,
}

impl ProposedNames<'_> {
    /// Reason to refuse the name of a changed link.
    pub(super) fn fault(&self, name: &SmolStr) -> Option<NameFault> {
        if let Some(own_name) = self.changed.given(name) {
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
