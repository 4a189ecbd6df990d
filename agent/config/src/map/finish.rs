//! Rules that take all lines together: which entries of an OpenConfig list belong to which native list.
//!
//! An open key of a block stands for every value, except for those that are fixed elsewhere: in another block of the same
//! list, or on the way to a leaf or list of the entry above.

use super::{Anchor, AnchorId, Counterpart, Map, model};
use crate::instance::{Keys, Step};
use crate::resolve::KeyPattern;
use crate::schema::{NodeId, Origin, Schema};

/// Two blocks that have an entry in common, so that nobody knows whose it is.
pub(super) struct Overlap {
    pub(super) anchors: [AnchorId; 2],
    pub(super) reason: String,
}

/// Completes a map whose lines are all there.
pub(super) fn finish(map: &mut Map, openconfig: &Schema) -> Result<(), Overlap> {
    for parent in 0..map.anchors.len() {
        let parts = parts_of_entries(map, parent);
        let excluded = excluded_by_blocks(map, parent, openconfig)?;
        for (anchor, pattern) in excluded {
            counterpart_mut(map, anchor).excluded.push(pattern);
        }
        for (anchor, keys) in parts {
            let counterpart = counterpart_mut(map, anchor);
            if !counterpart.parts.contains(&keys) {
                let pattern = KeyPattern(keys.iter().cloned().map(Some).collect());
                counterpart.excluded.push(pattern);
                counterpart.parts.push(keys);
            }
        }
        let anchor = &map.anchors[parent];
        let shares_list_with = shared_lists(map, anchor);
        let outer_lists_first = outer_lists_first(map, anchor);
        let anchor = &mut map.anchors[parent];
        anchor.shares_list_with = shares_list_with;
        anchor.outer_lists_first = outer_lists_first;
    }
    let has_alternatives =
        |at: &AnchorId| map.anchors[*at].leaves.iter().any(|leaf| leaf.openconfig.len() > 1);
    map.with_alternatives = (0..map.anchors.len()).filter(has_alternatives).collect();
    restrict(map, openconfig);
    Ok(())
}

/// Entries of the lists below an entry that rows or other lists of that entry pass through, each with the list.
fn parts_of_entries(map: &Map, parent: AnchorId) -> Vec<(AnchorId, Keys)> {
    let children = || lists_below(map, parent);
    let rows = map.by_openconfig.values().flatten().filter(|row| row.anchor == parent);
    let lists = children().map(|(_, counterpart)| &counterpart.above);
    let ways: Vec<&Vec<Step>> = rows.map(|row| &row.openconfig).chain(lists).collect();
    let mut found = Vec::new();
    for (child, counterpart) in children() {
        let own = counterpart.pattern();
        for way in &ways {
            let rest = way.strip_prefix(&counterpart.above[..]);
            let step = rest.and_then(<[Step]>::first).filter(|it| it.node == counterpart.list);
            let keys = step.and_then(|step| step.keys.as_ref());
            found.extend(keys.filter(|keys| own.matches(keys)).map(|keys| (child, keys.clone())));
        }
    }
    found
}

/// Entries that the other blocks of a list below an entry have, for each block of such a list.
fn excluded_by_blocks(
    map: &Map,
    parent: AnchorId,
    openconfig: &Schema,
) -> Result<Vec<(AnchorId, KeyPattern)>, Overlap> {
    let mut found = Vec::new();
    for (one, counterpart) in lists_below(map, parent) {
        let others = lists_below(map, parent).filter(|(other, _)| *other > one);
        for (other, beside) in others.filter(|(_, it)| is_same_list(counterpart, it)) {
            let wide = counterpart.pattern();
            let narrow = beside.pattern();
            let are_apart = wide
                .0
                .iter()
                .zip(&narrow.0)
                .any(|pair| matches!(pair, (Some(a), Some(b)) if a != b));
            if are_apart {
                continue;
            }
            match (wide.covers(&narrow), narrow.covers(&wide)) {
                (true, false) => found.push((one, narrow)),
                (false, true) => found.push((other, wide)),
                (true, true) | (false, false) => {
                    let name = &openconfig.node(counterpart.list).name;
                    let reason =
                        format!("entries of the OpenConfig list `{name}` are in two blocks");
                    return Err(Overlap { anchors: [one, other], reason });
                }
            }
        }
    }
    Ok(found)
}

/// Lists of state, too, which are not among the children of an anchor.
fn lists_below(map: &Map, parent: AnchorId) -> impl Iterator<Item = (AnchorId, &Counterpart)> {
    let anchors = map.anchors.iter().enumerate();
    anchors
        .filter(move |(_, anchor)| anchor.parent == Some(parent))
        .filter_map(|(at, anchor)| Some((at, anchor.openconfig.as_ref()?)))
}

fn is_same_list(one: &Counterpart, other: &Counterpart) -> bool {
    one.list == other.list && one.above == other.above
}

fn counterpart_mut(map: &mut Map, anchor: AnchorId) -> &mut Counterpart {
    map.anchors[anchor].openconfig.as_mut().expect("the anchor was found by its counterpart")
}

fn shared_lists(map: &Map, anchor: &Anchor) -> Vec<Option<usize>> {
    let counterparts: Vec<Option<&Counterpart>> =
        anchor.children.iter().map(|child| map.anchors[*child].openconfig.as_ref()).collect();
    let before = |(at, own): (usize, &Option<&Counterpart>)| {
        let own = (*own)?;
        counterparts[..at].iter().rposition(|it| it.is_some_and(|it| is_same_list(it, own)))
    };
    counterparts.iter().enumerate().map(before).collect()
}

fn outer_lists_first(map: &Map, anchor: &Anchor) -> Vec<usize> {
    let depth = |place: &usize| {
        let counterpart = map.anchors[anchor.children[*place]].openconfig.as_ref();
        counterpart.map_or(0, |it| it.above.len())
    };
    let mut places: Vec<usize> = (0..anchor.children.len()).collect();
    places.sort_by_key(depth);
    places
}

/// Marks the OpenConfig lists that have entries which the device lacks, and the nodes above these lists.
fn restrict(map: &mut Map, openconfig: &Schema) {
    let can_refuse = |anchor: &Anchor| {
        let counterpart = anchor.openconfig.as_ref().filter(|it| it.can_refuse());
        counterpart.map(|it| it.list)
    };
    let lists: Vec<NodeId> = map.anchors.iter().filter_map(can_refuse).collect();
    let limited = &mut map.limited[model(Origin::OpenConfig)];
    for list in lists {
        for above in std::iter::successors(Some(list), |node| openconfig.node(*node).parent) {
            limited[above.0 as usize] = true;
        }
    }
}
