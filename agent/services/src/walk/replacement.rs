//! Components that take the place of others, and components of types that a version of the package lacks.
//!
//! A component that is new in the tree may name others that it replaces. These go without gate, call or action, and
//! what they made with them, while the new one begins in the same walk: where both put out the same, nothing changes
//! in the kernel. A component that backs out already does so to its end first, and of several none goes until all
//! can.

use std::collections::BTreeSet;

use holdfast_config::services::{ComponentPlan, ServicePlan};
use smol_str::SmolStr;

use super::Walk;
use crate::component::Component;
use crate::outline::OUTLINE;
use crate::work::{WorkError, WorkErrorKind};

/// Type and name of a component.
type ComponentId = [SmolStr; 2];

/// Fate of components that others replace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Replacement {
    /// They go at once.
    pub(super) handed_over: BTreeSet<ComponentId>,
    /// They stay as they are, because others of their replacement still back out.
    pub(super) held: BTreeSet<ComponentId>,
    /// New components that wait for those.
    pub(super) waiting: BTreeSet<ComponentId>,
}

impl Replacement {
    /// The replacements that the components of a tree ask for, given the plan before.
    pub(super) fn of(plan: &ServicePlan, wanted: &[Component]) -> Self {
        let mut replacement = Self::default();
        let new = |part: &&Component| plan.component(&part.component_type, &part.name).is_none();
        for part in wanted.iter().filter(new) {
            let goes = |it: &&ComponentPlan| {
                let named = |(of, name): &(SmolStr, SmolStr)| it.is(of, name);
                let stays = wanted.iter().any(|other| it.is(&other.component_type, &other.name));
                part.replaces.iter().any(named) && !stays
            };
            let replaced = plan.components.iter().filter(goes);
            let (backing, others): (Vec<_>, Vec<_>) =
                replaced.partition(|it| it.back_track.is_some());
            let others = others.into_iter().map(id);
            if backing.is_empty() {
                replacement.handed_over.extend(others);
            } else {
                replacement.held.extend(others);
                replacement.waiting.insert(part.id());
            }
        }
        // A component that waits holds what another one could take over already.
        let held = &replacement.held;
        replacement.handed_over.retain(|it| !held.contains(it));
        replacement
    }
}

/// Type and name of a component.
pub(super) fn id(component: &ComponentPlan) -> ComponentId {
    [component.component_type.clone(), component.name.clone()]
}

impl Walk<'_> {
    /// Drops the components of types that the package lacks, if an operator accepts that; else they refuse the walk.
    pub(super) fn drop_unknown(
        &mut self,
        plan: &mut ServicePlan,
        replacement: &Replacement,
    ) -> Result<(), WorkError> {
        let is_unknown = |it: &ComponentPlan| {
            !self.outlines.contains_key(&it.component_type) && !replacement.held.contains(&id(it))
        };
        let unknown: Vec<ComponentId> =
            plan.components.iter().filter(|it| is_unknown(it)).map(id).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        if !self.request.surroundings.drops_components {
            let tag = self.instance.tag;
            let named: Vec<String> =
                unknown.iter().map(|[of, name]| format!("{of} {name}")).collect();
            let reason = format!(
                "{tag} has components of types that this version lacks: {}; they have to be replaced or to go before, \
                 or are dropped by force",
                named.join(", ")
            );
            let kind = WorkErrorKind::Precondition;
            return Err(WorkError { kind, file: OUTLINE.into(), position: None, reason });
        }
        plan.components.retain(|it| !unknown.contains(&id(it)));
        self.dropped.extend(unknown);
        Ok(())
    }
}
