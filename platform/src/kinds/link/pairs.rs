//! Veth pairs: the two ends of a pair are two objects, and each names the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::{InstancePath, NodeId, Step};
use holdfast_scheduler::{Key, KindId, ObjectValue, SharedValue};
use imbl::{OrdMap, OrdSet};
use smol_str::SmolStr;

use super::value::link_of;
use super::{LINK, Link, LinkKind, key};
use crate::kinds::entry::{ObjectError, interface_beside};
use crate::kinds::reading::first_text;
use crate::kinds::relation::{LocatedChange, Relation};

/// Kinds of pairs by name, each with the leaf that names the other end, and the containers around it.
pub(super) type FarEndLeaves = Arc<[(&'static str, Vec<NodeId>)]>;

/// The rule for veth pairs: the peer of a veth link is a veth link that names it back, or a link that the agent does not
/// create, and no two links name one peer.
#[derive(Clone, Debug)]
pub(super) struct VethPairs {
    /// The leaf with the kind of a link.
    kind: NodeId,
    far_ends: FarEndLeaves,
    links: PairIndex,
}

/// Index of the configured links that the agent creates, by name and by the peer that they name. A copy costs nothing.
#[derive(Clone, Debug, Default)]
struct PairIndex {
    /// By name.
    ends: OrdMap<SmolStr, LinkKind>,
    /// Pairs of a peer and a veth link that names it.
    namers: OrdSet<(SmolStr, SmolStr)>,
}

impl VethPairs {
    pub(super) fn new(kind: NodeId, far_ends: FarEndLeaves) -> Self {
        Self { kind, far_ends, links: PairIndex::default() }
    }

    /// The leaf of a link that contradicts others, from its entry on.
    fn leaf_at_fault(&self, kind: &LinkKind, entry: &InstancePath) -> InstancePath {
        let far_end = self.far_ends.iter().find(|(name, _)| *name == kind.name());
        let leaf = far_end.map_or(std::slice::from_ref(&self.kind), |(_, leaf)| leaf);
        leaf.iter().fold(entry.clone(), |path, node| path.join(Step::node(*node)))
    }
}

impl Relation for VethPairs {
    fn kind(&self) -> KindId {
        LINK
    }

    fn update(&mut self, key: &Key, value: Option<&SharedValue>) {
        self.links.update(key, value);
    }

    fn refusal(&self, changes: &[LocatedChange<'_>]) -> Option<ObjectError> {
        let mut changed = PairIndex::default();
        let mut names = BTreeSet::new();
        for (_, key, value) in changes {
            changed.update(key, *value);
            names.extend(first_text(key));
        }
        let after = ProposedPairs { before: &self.links, changed: &changed, names: &names };
        changes.iter().find_map(|(path, key, _)| {
            let name = first_text(key)?;
            let kind = changed.ends.get(&name)?;
            let reason = after.contradiction(&name, kind)?;
            Some(ObjectError { path: self.leaf_at_fault(kind, path), reason, incomplete: false })
        })
    }

    fn entries_beside(&self, changes: &[LocatedChange<'_>]) -> Vec<InstancePath> {
        let mut entries = Vec::new();
        for (path, key, value) in changes {
            let Some(name) = first_text(key) else { continue };
            let before = self.links.ends.get(&name).and_then(LinkKind::far_end);
            let after = value.and_then(pair_kind).and_then(LinkKind::far_end);
            let ends = before.into_iter().chain(after);
            entries.extend(ends.map(|end| interface_beside(path, &end)));
        }
        entries
    }

    /// The configured veth link whose peer was read. The kernel creates and deletes both together.
    fn made_with(&self, far: &Key, observed: &dyn ObjectValue) -> Option<Key> {
        let observed: &Link = observed.as_any().downcast_ref()?;
        let near = observed.kind.far_end()?;
        let far = first_text(far)?;
        (self.links.ends.get(&near).and_then(LinkKind::far_end) == Some(far)).then(|| key(&near))
    }

    fn boxed_clone(&self) -> Box<dyn Relation> {
        Box::new(self.clone())
    }
}

impl PairIndex {
    /// Updates the index by a changed link; `None` is a deletion.
    fn update(&mut self, key: &Key, value: Option<&SharedValue>) {
        let Some(name) = first_text(key) else { return };
        let new = value.and_then(pair_kind).cloned();
        let peer_name = new.as_ref().and_then(LinkKind::far_end);
        let old = match new {
            Some(kind) => self.ends.insert(name.clone(), kind),
            None => self.ends.remove(&name),
        };
        if let Some(end) = old.as_ref().and_then(LinkKind::far_end) {
            self.namers.remove(&(end, name.clone()));
        }
        self.namers.extend(peer_name.map(|end| (end, name)));
    }
}

/// The index as it would be after a change.
struct ProposedPairs<'p> {
    before: &'p PairIndex,
    changed: &'p PairIndex,
    /// Names of changed links, also of deleted ones.
    names: &'p BTreeSet<SmolStr>,
}

impl ProposedPairs<'_> {
    /// Reason for which the kernel cannot have a link of this kind beside the others.
    fn contradiction(&self, name: &SmolStr, kind: &LinkKind) -> Option<String> {
        let Some(end) = kind.far_end() else {
            let namer = self.namers(name).next()?;
            return Some(format!(
                "link `{name}` cannot be a {} link: link `{namer}` names it as the other end of its veth pair",
                kind.name()
            ));
        };
        let refused =
            |why: String| Some(format!("link `{name}` cannot have the other end `{end}`: {why}"));
        if let Some(other) = self.pair_kind(&end) {
            if !other.made().is_some_and(|made| made.row().is_pair()) {
                return refused(format!("`{end}` is a {} link", other.name()));
            }
            if let Some(back) = other.far_end().filter(|back| back != name) {
                return refused(format!("`{end}` names `{back}` as its other end"));
            }
        }
        if let Some(namer) = self.namers(name).find(|namer| **namer != end) {
            return refused(format!("link `{namer}` still names `{name}` as its other end"));
        }
        let rival = self.namers(&end).find(|namer| *namer != name)?;
        refused(format!("link `{rival}` names the same end, and a veth pair has two ends"))
    }

    fn pair_kind(&self, name: &SmolStr) -> Option<&LinkKind> {
        let side = if self.names.contains(name) { self.changed } else { self.before };
        side.ends.get(name)
    }

    /// The veth links that name this one as their other end, those that do not change first.
    fn namers<'s>(&'s self, end: &'s SmolStr) -> impl Iterator<Item = &'s SmolStr> {
        let of = move |pairs: &'s PairIndex| {
            let from = (end.clone(), SmolStr::default());
            pairs.namers.range(from..).take_while(move |(it, _)| it == end).map(|(_, namer)| namer)
        };
        of(self.before).filter(|namer| !self.names.contains(*namer)).chain(of(self.changed))
    }
}

/// The kind of a link, if configuring it makes one.
fn pair_kind(value: &SharedValue) -> Option<&LinkKind> {
    Some(&link_of(value)?.kind).filter(|kind| kind.is_made_by_us())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kinds::relation::Relations;
    use crate::objects::tests::Model;
    use crate::values::{BRIDGE, MadeLink, VETH, VLAN};

    /// Links as `a-b` (a veth link and the other end that it names), `a=bridge`, `a=port`, `p.5=m` (a VLAN whose link is called
    /// m); a name alone is one that goes.
    fn changes(text: &str) -> Vec<(Key, Option<SharedValue>)> {
        let change = |word: &str| {
            let kind = match (word.split_once('-'), word.split_once('=')) {
                (Some((_, end)), _) => Some(MadeLink::new(&VETH).with("peer", end).into()),
                (_, Some((_, "bridge"))) => Some(LinkKind::from(&BRIDGE)),
                (_, Some((_, "port"))) => Some(LinkKind::Physical),
                (_, Some((_, own_name))) => {
                    Some(MadeLink::new(&VLAN).with("link-name", own_name).into())
                }
                _ => None,
            };
            let name = word.split(['-', '=']).next().unwrap();
            (key(name), kind.map(|kind| Arc::new(Link::new(name, kind)) as SharedValue))
        };
        text.split_whitespace().map(change).collect()
    }

    fn refusal(model: &Model, relations: &Relations, text: &str) -> Option<String> {
        let changes = changes(text);
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
        assert!(!refusal.incomplete);
        let place = model.path_text(&refusal.path);
        Some(format!("{place}: {}", refusal.reason))
    }

    #[test]
    fn the_ends_of_a_veth_pair_have_to_fit() {
        let model = Model::new();
        let check = |before: &str, change: &str, want: &[&str]| {
            let mut relations = model.registry.relations();
            // The present links were taken in one by one, with detours.
            for (key, value) in changes(before) {
                let name = first_text(&key).unwrap();
                let detour = changes(&format!("{name}-detour"));
                relations.update(detour.iter().map(|(key, value)| (key, value.as_ref())));
                relations.update([(&key, value.as_ref())]);
            }
            let found = refusal(&model, &relations, change);
            assert_eq!(found.is_some(), !want.is_empty(), "{before}; {change}: {found:?}");
            let turned: Vec<&str> = change.split(' ').rev().collect();
            let turned = refusal(&model, &relations, &turned.join(" "));
            assert_eq!(turned.is_some(), found.is_some(), "the order does not matter: {change}");
            let found = found.unwrap_or_default();
            want.iter()
                .for_each(|part| assert!(found.contains(part), "{before}; {change}: {found}"));
        };
        let peer = |name: &str| format!("interface[name={name}]/veth/peer: link `{name}` cannot");
        // before, change, what the refusal says; nothing where it is accepted
        check("", "a-b b-a", &[]);
        check("", "a-b", &[]);
        check("a-b", "b-a", &[]);
        check("a-b b-a", "a-b", &[]); // something else of it changes
        check("a-b b-a", "a-c", &[&peer("a"), "other end `c`: link `b` still names `a`"]);
        check("a-b b-a", "b-c", &[&peer("b"), "other end `c`: link `a` still names `b`"]);
        check("a-b b-a", "a-c b", &[]);
        check("a-b b-a", "a-c b-d", &[]);
        check("a-b b-a", "a-c c-a b-d", &[]);
        check("a-b b-a", "a-c b=port", &[]);
        check("a-b b-a", "a-c b=bridge", &[]);
        check("a-b b-a", "a", &[]); // the kernel makes it anew, with the end that is left
        check("a-b b-a", "a b", &[]);
        check("a-b b-a c-d d-c", "a-d d-a b-c c-b", &[]);
        check("a-b b-a c-d d-c", "a-d d-a", &["`b` still names `a`"]);
        // An end that is configured as nothing of its own, or as a port, goes along.
        check("a-b b=port", "a-c", &[]);
        check("b-a", "a-c", &[&peer("a"), "link `b` still names `a`"]);
        check("b-a a=port", "a-c", &[&peer("a"), "link `b` still names `a`"]);
        check("b-a", "c-a", &[&peer("c"), "other end `a`: link `b` names the same end"]);
        check("", "c-a b-a", &[&peer("c"), "link `b` names the same end"]);
        check("b-a", "b c-a", &[]);
        check("a-b", "c-a", &[&peer("c"), "other end `a`: `a` names `b` as its other end"]);
        // A link of another kind is not an end.
        check("b=bridge", "a-b", &[&peer("a"), "`b` is a bridge link"]);
        check("a-b", "b=bridge", &["interface[name=b]/type: link `b`", "link `a` names it"]);
        check("a-b b-a", "b=bridge", &["interface[name=b]/type: link `b`", "link `a` names it"]);
        check("a-b", "a=bridge b=bridge", &[]);
        // The link of a VLAN has a name that no other configured link has.
        let link_name = "/vlan[index=5]/link-name: the link of VLAN `p.5` cannot be called `m`";
        check("", "p.5=m p=port", &[]);
        check("m=port", "p.5=m", &[link_name, "interface `m` is configured"]);
        check("m=bridge", "p.5=m", &[link_name, "interface `m` is configured"]);
        check("p.6=m", "p.5=m", &[link_name, "the link of VLAN `p.6` is called so"]);
        check("p.5=m", "m=port", &["interface[name=m]: the link of VLAN `p.5` is called `m`"]);
        check("", "p.5=m m=port", &["`m`"]);
        check("m=port", "p.5=m m", &[]);
        check("p.5=m", "p.5=n m=port", &[]);
        check("p.5=m p.6=n", "p.5=n p.6=m", &[]);
        check("p.6=m", "p.5=m p.6", &[]);
        check("p.5=m", "p.5 m=port", &[]);
        check("p.5=m", "p.5=m", &[]);
        // Stored before there was this rule: what does not concern the pair goes on, and both ways out are open.
        check("a-c b-a", "x-y e=port", &[]);
        check("a-c b-a", "a-c", &["link `b` still names `a`"]);
        check("a-c b-a", "b", &[]);
        check("a-c b-a", "a-b", &[]);
        check("a-c b-a", "b-d", &[]);
    }

    /// Every state of three links, and every two changes of one link each.
    #[test]
    fn changes_that_share_no_end_are_admitted_alike_in_either_order() {
        let model = Model::new();
        let links = |name: &str| {
            let ends = ["a", "b", "c"].into_iter().filter(|end| *end != name);
            let pairs = ends.map(|end| format!("{name}-{end}"));
            [name.to_owned(), format!("{name}=port")].into_iter().chain(pairs).collect::<Vec<_>>()
        };
        let [a, b, c] = ["a", "b", "c"].map(links);
        let after = |before: &Relations, text: &str| {
            let mut relations = before.clone();
            relations.update(changes(text).iter().map(|(key, value)| (key, value.as_ref())));
            relations
        };
        let touched = |before: &Relations, text: &str| {
            let changes = changes(text);
            let entry = |key: &Key| {
                model.path(&format!("/interfaces/interface[name={}]", first_text(key).unwrap()))
            };
            let entries: Vec<_> = changes.iter().map(|(key, _)| entry(key)).collect();
            let requests = entries.iter().zip(&changes);
            let requests = requests.map(|(path, (key, value))| (path, key, value.as_ref()));
            let beside = before.entries_beside(requests).into_iter();
            beside.chain(entries.clone()).collect::<BTreeSet<_>>()
        };
        let mut clear = 0;
        let mut refused = 0;
        for state in a.iter().flat_map(|a| b.iter().map(move |b| format!("{a} {b}"))) {
            for state in c.iter().map(|c| format!("{state} {c}")) {
                let before = after(&model.registry.relations(), &state);
                for (one, other) in a.iter().flat_map(|a| b.iter().chain(&c).map(move |it| (a, it)))
                {
                    if !touched(&before, one).is_disjoint(&touched(&before, other)) {
                        continue;
                    }
                    let alone = refusal(&model, &before, one);
                    let second = refusal(&model, &after(&before, other), one);
                    assert_eq!(alone, second, "{state}; {other}; {one}");
                    clear += 1;
                    refused += usize::from(alone.is_some());
                }
            }
        }
        assert!(clear > 100 && refused > 0, "{clear} pairs of changes, {refused} refused");
    }
}
