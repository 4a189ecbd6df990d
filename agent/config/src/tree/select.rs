//! Search for the nodes of a tree that match a pattern.

use std::ops::ControlFlow;

use super::{Child, LeafMeta, ListEntry as _, NodeRef};
use crate::instance::{InstancePath, Step};
use crate::resolve::{KeyPattern, PatternStep};

/// Receives the matches of a pattern, and the steps of the search. Either method can end the search.
pub trait SelectVisitor<M: LeafMeta> {
    /// Called for each child or entry that is visited.
    fn visit(&mut self) -> ControlFlow<()>;

    fn found(&mut self, path: &InstancePath, found: NodeRef<'_, M>) -> ControlFlow<()>;
}

/// Passes all matches of `steps` below `found` to `out`, in schema order.
pub(super) fn select<M: LeafMeta>(
    found: NodeRef<'_, M>,
    steps: &[PatternStep],
    path: &mut InstancePath,
    out: &mut impl SelectVisitor<M>,
) -> ControlFlow<()> {
    let Some((step, rest)) = steps.split_first() else {
        return out.found(path, found);
    };
    out.visit()?;
    let NodeRef::Branch(branch) = found else { return ControlFlow::Continue(()) };
    match (branch.child(step.node), &step.keys) {
        (Some(Child::List(list)), Some(pattern)) => entries(list, step, pattern, rest, path, out),
        (Some(child @ (Child::Leaf(_) | Child::Container(_))), None) => {
            below(child.into(), Step::node(step.node), rest, path, out)
        }
        _ => ControlFlow::Continue(()),
    }
}

fn entries<M: LeafMeta>(
    list: &super::List<M>,
    step: &PatternStep,
    pattern: &KeyPattern,
    rest: &[PatternStep],
    path: &mut InstancePath,
    out: &mut impl SelectVisitor<M>,
) -> ControlFlow<()> {
    if let Some(keys) = pattern.concrete() {
        return match list.get(&keys) {
            Some(entry) => below(
                NodeRef::Branch(&entry.branch()),
                Step::entry(step.node, keys),
                rest,
                path,
                out,
            ),
            None => ControlFlow::Continue(()),
        };
    }
    for (keys, entry) in list.iter() {
        out.visit()?;
        if pattern.matches(keys) {
            let step = Step::entry(step.node, keys.clone());
            below(NodeRef::Branch(&entry.branch()), step, rest, path, out)?;
        }
    }
    ControlFlow::Continue(())
}

fn below<M: LeafMeta>(
    found: NodeRef<'_, M>,
    step: Step,
    rest: &[PatternStep],
    path: &mut InstancePath,
    out: &mut impl SelectVisitor<M>,
) -> ControlFlow<()> {
    path.0.push(step);
    let flow = select(found, rest, path, out);
    path.0.pop();
    flow
}
