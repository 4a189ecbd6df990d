//! Links that stand on others: which kinds fit each other, and that no link stands on itself. The kernel puts some kinds elsewhere
//! than they were asked for, and a link that stands on itself would wait for ever.

use std::collections::BTreeSet;

use holdfast_config::{InstancePath, Keys, NodeId, Step, Value};
use holdfast_scheduler::{Key, KindId, SharedValue};
use imbl::{OrdMap, OrdSet};
use smol_str::SmolStr;

use super::row::MadeLink;
use super::rows::row_named;
use super::value::link_of;
use super::{LINK, Link};
use crate::kinds::entry::{ObjectError, interface_beside, vlan_of};
use crate::kinds::reading::first_text;
use crate::kinds::relation::{LocatedChange, Relation};

/// Leaves of the native model at which a link is refused.
#[derive(Clone, Debug)]
pub(super) struct StackNodes {
    /// The kind of an interface.
    pub kind: NodeId,
    /// List of VLANs.
    pub vlan: NodeId,
    /// For each kind, the leaf with the link below, and the containers around it.
    pub below: Vec<(&'static str, Vec<NodeId>)>,
}

/// The rule for links on links, with the places of the configured links.
#[derive(Clone, Debug)]
pub(super) struct Stacks {
    nodes: StackNodes,
    links: StackIndex,
}

/// The place of a configured link among others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    kind: SmolStr,
    below: Option<SmolStr>,
}

/// Index of the configured links by name, and by the names of the links that they stand on. A copy costs nothing.
#[derive(Clone, Debug, Default)]
struct StackIndex {
    places: OrdMap<SmolStr, Place>,
    /// Pairs of a link and another one that stands on it.
    above: OrdSet<(SmolStr, SmolStr)>,
}

impl Place {
    fn of(link: &Link) -> Self {
        let below = link.kind.made().and_then(MadeLink::below);
        Self { kind: link.kind.name().into(), below }
    }
}

impl Stacks {
    pub(super) fn new(nodes: StackNodes) -> Self {
        Self { nodes, links: StackIndex::default() }
    }

    /// The leaf by which a link names the one below, from its entry on. A VLAN names its port by its place.
    fn leaf_at_fault(&self, entry: &InstancePath, kind: &str) -> InstancePath {
        let leaf = self.nodes.below.iter().find(|(name, _)| *name == kind);
        let leaf = leaf.map_or(&[][..], |(_, leaf)| leaf);
        leaf.iter().fold(entry.clone(), |path, node| path.join(Step::node(*node)))
    }

    /// The link below one that names it by a leaf. A VLAN has one port as long as it is there, so whoever puts a link on the
    /// VLAN looks at both.
    fn named_below(&self, place: &Place) -> Option<SmolStr> {
        let is_named = self.nodes.below.iter().any(|(kind, _)| *kind == place.kind);
        place.below.clone().filter(|_| is_named)
    }

    /// The entry of a link, beside that of another one.
    fn entry_of(&self, name: &str, beside: &InstancePath) -> InstancePath {
        match vlan_of(name) {
            Some((port, index)) => {
                let keys = Keys::single(Value::Uint(index.into()));
                interface_beside(beside, port).join(Step::entry(self.nodes.vlan, keys))
            }
            None => interface_beside(beside, name),
        }
    }
}

impl Relation for Stacks {
    fn kind(&self) -> KindId {
        LINK
    }

    fn update(&mut self, key: &Key, value: Option<&SharedValue>) {
        self.links.update(key, value);
    }

    fn refusal(&self, changes: &[LocatedChange<'_>]) -> Option<ObjectError> {
        let mut changed = StackIndex::default();
        let mut names = BTreeSet::new();
        for (_, key, value) in changes {
            changed.update(key, *value);
            names.extend(first_text(key));
        }
        let after = ProposedStacks { before: &self.links, changed: &changed, names: &names };
        changes.iter().find_map(|(path, key, _)| {
            let name = first_text(key)?;
            let place = changed.places.get(&name)?;
            if let Some(reason) = after.fault(&name, place) {
                let path = self.leaf_at_fault(path, &place.kind);
                return Some(ObjectError { path, reason, incomplete: false });
            }
            let before = self.links.places.get(&name);
            if before.is_some_and(|it| it.kind == place.kind) {
                return None;
            }
            let reason = after.fault_above(&name)?;
            let path = path.join(Step::node(self.nodes.kind));
            Some(ObjectError { path, reason, incomplete: false })
        })
    }

    fn entries_beside(&self, changes: &[LocatedChange<'_>]) -> Vec<InstancePath> {
        let mut entries = Vec::new();
        for (path, key, value) in changes {
            let Some(name) = first_text(key) else { continue };
            let before = self.links.places.get(&name).and_then(|place| self.named_below(place));
            let after = value.and_then(link_of).map(Place::of);
            let after = after.and_then(|place| self.named_below(&place));
            let mut beside: BTreeSet<SmolStr> = before.into_iter().collect();
            beside.extend(after.iter().flat_map(|below| self.links.chain(below)));
            entries.extend(beside.iter().map(|name| self.entry_of(name, path)));
        }
        entries
    }

    fn boxed_clone(&self) -> Box<dyn Relation> {
        Box::new(self.clone())
    }
}

impl StackIndex {
    /// Updates the index by a changed link; `None` is a deletion.
    fn update(&mut self, key: &Key, value: Option<&SharedValue>) {
        let Some(name) = first_text(key) else { return };
        let new = value.and_then(link_of).map(Place::of);
        let below = new.as_ref().and_then(|place| place.below.clone());
        let old = match new {
            Some(place) => self.places.insert(name.clone(), place),
            None => self.places.remove(&name),
        };
        if let Some(below) = old.and_then(|place| place.below) {
            self.above.remove(&(below, name.clone()));
        }
        self.above.extend(below.map(|below| (below, name)));
    }

    /// The links below one, as far as they are configured; each once.
    fn chain(&self, name: &SmolStr) -> BTreeSet<SmolStr> {
        let mut chain = BTreeSet::new();
        let mut next = Some(name.clone());
        while let Some(name) = next.filter(|name| chain.insert(name.clone())) {
            next = self.places.get(&name).and_then(|place| place.below.clone());
        }
        chain
    }
}

/// The index as it would be after a change.
struct ProposedStacks<'p> {
    before: &'p StackIndex,
    changed: &'p StackIndex,
    /// Names of changed links, also of deleted ones.
    names: &'p BTreeSet<SmolStr>,
}

impl ProposedStacks<'_> {
    fn place(&self, name: &SmolStr) -> Option<&Place> {
        let side = if self.names.contains(name) { self.changed } else { self.before };
        side.places.get(name)
    }

    /// Reason for which a link cannot have its place.
    fn fault(&self, name: &SmolStr, place: &Place) -> Option<String> {
        let below = place.below.as_ref()?;
        let mut seen = BTreeSet::new();
        let mut next = Some(below);
        while let Some(lower) = next.filter(|lower| seen.insert(*lower)) {
            if lower == name {
                let way =
                    if below == name { String::new() } else { format!(", by way of `{below}`") };
                return Some(format!("link `{name}` would stand on itself{way}"));
            }
            next = self.place(lower).and_then(|it| it.below.as_ref());
        }
        let refuses = row_named(&place.kind).map_or(&[][..], |row| row.refuses_below);
        let kind = &self.place(below)?.kind;
        refuses.contains(&kind.as_str()).then(|| {
            format!(
                "the {} link `{name}` cannot stand on the {kind} link `{below}`: the kernel would put it on the link below `{below}`",
                place.kind
            )
        })
    }

    /// Reason for which a link that does not change cannot stand on a changed one.
    fn fault_above(&self, name: &SmolStr) -> Option<String> {
        let above = self.before.above.range((name.clone(), SmolStr::default())..);
        let above = above.take_while(|(below, _)| below == name).map(|(_, above)| above);
        let mut unchanged = above.filter(|above| !self.names.contains(*above));
        unchanged.find_map(|above| self.fault(above, self.place(above)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::key;
    use super::super::row::{LinkRow, ParamType};
    use super::*;
    use crate::kinds::relation::Relations;
    use crate::objects::tests::Model;
    use crate::values::{BRIDGE, IPVLAN, LinkKind, MACVLAN, VLAN};

    /// Links as `NAME:KIND`, with `/DEVICE` for the link below; a name alone is one that goes.
    fn change(word: &str) -> (Key, Option<SharedValue>) {
        let (link, below) = word.split_once('/').map_or((word, None), |(it, to)| (it, Some(to)));
        let (name, kind) = link.split_once(':').unwrap_or((link, ""));
        let made = |row: &'static LinkRow| {
            let leaf = row.params.iter().find(|it| it.ty == ParamType::Link).map(|it| it.leaf);
            let made = MadeLink::new(row);
            LinkKind::from(match leaf.zip(below) {
                Some((leaf, below)) => made.with(leaf, below),
                None => made,
            })
        };
        let kind = match kind {
            "" => return (key(name), None),
            "macvlan" => made(&MACVLAN),
            "ipvlan" => made(&IPVLAN),
            "vlan" => made(&VLAN),
            _ => made(&BRIDGE),
        };
        (key(name), Some(Arc::new(Link::new(name, kind))))
    }

    fn refusal(model: &Model, relations: &Relations, text: &str) -> Option<String> {
        let changes: Vec<_> = text.split_whitespace().map(change).collect();
        let path = |key: &Key| {
            let name = first_text(key).unwrap();
            match name.split_once('.') {
                Some((port, index)) => {
                    model.path(&format!("/interfaces/interface[name={port}]/vlan[index={index}]"))
                }
                None => model.path(&format!("/interfaces/interface[name={name}]")),
            }
        };
        let paths: Vec<_> = changes.iter().map(|(key, _)| path(key)).collect();
        let requests = paths.iter().zip(&changes);
        let requests = requests.map(|(path, (key, value))| (path, key, value.as_ref()));
        let refusal = relations.admit(requests).err()?;
        Some(format!("{}: {}", model.path_text(&refusal.path), refusal.reason))
    }

    #[test]
    fn links_on_links_have_to_fit() {
        let model = Model::new();
        let check = |before: &str, text: &str, want: &[&str]| {
            let mut relations = model.registry.relations();
            for word in before.split_whitespace() {
                let (key, value) = change(word);
                relations.update([(&key, value.as_ref())]);
            }
            let found = refusal(&model, &relations, text);
            assert_eq!(found.is_some(), !want.is_empty(), "{before}; {text}: {found:?}");
            let turned: Vec<&str> = text.split(' ').rev().collect();
            let turned = refusal(&model, &relations, &turned.join(" "));
            assert_eq!(turned.is_some(), found.is_some(), "the order does not matter: {text}");
            let found = found.unwrap_or_default();
            want.iter().for_each(|part| assert!(found.contains(part), "{before}; {text}: {found}"));
        };
        // before, change, what the refusal says; nothing where it is accepted
        check("", "m:macvlan/eth0 n:ipvlan/m", &[]);
        let elsewhere = "interface[name=n]/macvlan/device: the macvlan link `n` cannot stand on";
        check("m:macvlan/eth0", "n:macvlan/m", &[elsewhere, "`m`"]);
        check("", "n:macvlan/m m:macvlan/eth0", &[elsewhere]);
        check("m:ipvlan/eth0", "n:ipvlan/m", &["interface[name=n]/ipvlan/device"]);
        check("n:macvlan/m m:bridge", "m:macvlan/eth0", &["interface[name=m]/type", "`n`"]);
        check("n:macvlan/m m:bridge", "m:macvlan/eth0 n", &[]);
        check("n:macvlan/m m:bridge", "m:macvlan/eth0 n:macvlan/eth0", &[]);
        // Circles.
        check("", "a:macvlan/a", &["interface[name=a]/macvlan/device", "would stand on itself"]);
        check("b:ipvlan/a", "a:macvlan/b", &["would stand on itself, by way of `b`"]);
        check("b:ipvlan/a", "a:macvlan/b b:ipvlan/eth0", &[]);
        check("p.5:vlan/p", "p:macvlan/p.5", &["interface[name=p]/macvlan/device", "`p.5`"]);
        check("p:macvlan/p.5", "p.5:vlan/p", &["vlan[index=5]", "would stand on itself"]);
        check("b:ipvlan/a a:macvlan/b", "c:macvlan/b", &[]); // stored before there was this rule
    }
}
