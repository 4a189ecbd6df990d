//! What a pattern names in a tree.

use super::{Child, Found};
use crate::instance::{InstancePath, Step};
use crate::resolve::{KeyPattern, PatternStep};

/// Adds to `out` all that `steps` name below `found`, in schema order.
pub(super) fn select<'a, M>(
    found: Found<'a, M>,
    steps: &[PatternStep],
    path: &mut InstancePath,
    out: &mut Vec<(InstancePath, Found<'a, M>)>,
) {
    let Some((step, rest)) = steps.split_first() else {
        out.push((path.clone(), found));
        return;
    };
    let Found::Branch(branch) = found else { return };
    match (branch.child(step.node), &step.keys) {
        (Some(Child::List(list)), Some(pattern)) => entries(list, step, pattern, rest, path, out),
        (Some(child @ (Child::Leaf(_) | Child::Container(_))), None) => {
            path.0.push(Step::node(step.node));
            select(child.into(), rest, path, out);
            path.0.pop();
        }
        _ => {}
    }
}

fn entries<'a, M>(
    list: &'a super::List<M>,
    step: &PatternStep,
    pattern: &KeyPattern,
    rest: &[PatternStep],
    path: &mut InstancePath,
    out: &mut Vec<(InstancePath, Found<'a, M>)>,
) {
    if let Some(keys) = pattern.concrete() {
        if let Some(entry) = list.get(&keys) {
            path.0.push(Step::entry(step.node, keys));
            select(Found::Branch(entry), rest, path, out);
            path.0.pop();
        }
        return;
    }
    for (keys, entry) in list.iter().filter(|(keys, _)| pattern.matches(keys)) {
        path.0.push(Step::entry(step.node, keys.clone()));
        select(Found::Branch(entry), rest, path, out);
        path.0.pop();
    }
}
