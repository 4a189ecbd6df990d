//! The answer to a dry run: the effects that a change would have.

use std::collections::{HashMap, HashSet};

use holdfast_scheduler::{Action, Cause, ChangeMethod, Engine, Key, Plan, PlannedOperation};

use super::options::PlanHash;
use super::service_preview::ServiceChange;
use crate::request::{BoundedList, ConfigChange};

/// Configuration, objects of the system, and what would wait, had the change been made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Hash of the plan; a commit that carries it is refused if its plan is another one.
    pub hash: PlanHash,
    pub configuration: BoundedList<ConfigChange>,
    /// In the order of the plan.
    pub operations: BoundedList<ObjectChange>,
    pub pending: BoundedList<PendingObject>,
    pub services: BoundedList<ServiceChange>,
}

/// An object that would wait, and the labels of what it needs and what is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingObject {
    pub object: String,
    /// Empty if the object waits for an identity that another object holds.
    pub waits_for: Vec<String>,
}

/// Effect of a change on one object, and on others that the system removes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    pub object: String,
    pub effect: ObjectEffect,
    /// Reason for which the plan touches the object.
    pub cause: Cause,
    /// Labels of objects that the system removes along with it; those that come back are objects of their own.
    pub interrupts: Vec<String>,
    /// True when the system makes the change only while it has a link down, which interrupts what stands on that link.
    pub takes_link_down: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectEffect {
    Created,
    ChangedInPlace,
    /// Removed and created again, which interrupts its users.
    Recreated,
    Removed,
    /// Taken over from others.
    Adopted,
    /// Given back as it was before it was adopted.
    GivenBack,
}

// Name in texts.
holdfast_config::enum_names!(ObjectEffect {
    Created = "created",
    ChangedInPlace = "changed in place",
    Recreated = "recreated",
    Removed = "removed",
    Adopted = "adopted",
    GivenBack = "given back",
});

impl Preview {
    pub(crate) fn new(
        engine: &Engine,
        plan: &Plan,
        configuration: BoundedList<ConfigChange>,
        services: BoundedList<ServiceChange>,
    ) -> Self {
        let mut pending = BoundedList::default();
        for (key, needs) in plan.waiting() {
            let waits_for = || needs.map(ToString::to_string).collect();
            pending.push(|| PendingObject { object: label(engine, key), waits_for: waits_for() });
        }
        let hash = PlanHash(plan.hash());
        Self { hash, configuration, operations: operations(engine, plan), pending, services }
    }
}

fn label(engine: &Engine, key: &Key) -> String {
    let value = engine.planes(key).into_iter().flatten().next();
    engine.registry().label(key, value.map(|value| &**value))
}

/// Operations of a plan, those on one object merged into one, in the order in which objects are first touched.
fn operations(engine: &Engine, plan: &Plan) -> BoundedList<ObjectChange> {
    let mut places: HashMap<&Key, Option<usize>> = HashMap::new();
    let mut gone_along: HashSet<&Key> = HashSet::new();
    let mut listed: BoundedList<ObjectChange> = BoundedList::default();
    for operation in plan.operations() {
        let along = gone_along.contains(&operation.key);
        if let Some(place) = places.get(&operation.key).copied() {
            if let Some(change) = place.and_then(|at| listed.first.get_mut(at)) {
                change.effect = change.effect.then(operation.action);
                change.takes_link_down |= takes_link_down(engine, operation);
            }
        } else {
            let place = listed.first.len();
            listed.push(|| object_change(engine, plan, operation, along));
            places.insert(&operation.key, (place < listed.first.len()).then_some(place));
        }
        gone_along.extend(&operation.cascaded);
    }
    listed
}

fn object_change(
    engine: &Engine,
    plan: &Plan,
    operation: &PlannedOperation,
    went_along: bool,
) -> ObjectChange {
    let effect = ObjectEffect::of(operation.action);
    ObjectChange {
        object: plan.label(operation),
        effect: if went_along { ObjectEffect::Recreated } else { effect },
        cause: operation.cause,
        interrupts: operation.cascaded.iter().map(|key| label(engine, key)).collect(),
        takes_link_down: takes_link_down(engine, operation),
    }
}

fn takes_link_down(engine: &Engine, operation: &PlannedOperation) -> bool {
    let descriptor = engine.registry().descriptor(operation.key.kind());
    let (Some(descriptor), Some(old)) = (descriptor, &operation.old) else { return false };
    let new = operation.new.clone().or_else(|| descriptor.after_delete(&**old));
    new.is_some_and(|new| descriptor.change(&**old, &*new) == ChangeMethod::LinkDown)
}

impl ObjectEffect {
    fn of(action: Action) -> Self {
        match action {
            Action::Create => Self::Created,
            Action::Update => Self::ChangedInPlace,
            Action::Delete => Self::Removed,
            Action::Adopt => Self::Adopted,
            Action::Release => Self::GivenBack,
        }
    }

    /// Joint effect of this operation and a later one on the same object.
    fn then(self, action: Action) -> Self {
        match (self, Self::of(action)) {
            (Self::Removed | Self::GivenBack, Self::Created | Self::Adopted) => Self::Recreated,
            (first @ (Self::Created | Self::Recreated | Self::Adopted), Self::ChangedInPlace) => {
                first
            }
            (_, last) => last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_on_one_object_come_to_one_effect() {
        use Action::{Create, Delete, Release, Update};
        for (actions, effect) in [
            (&[Create][..], ObjectEffect::Created),
            (&[Create, Update], ObjectEffect::Created),
            (&[Update], ObjectEffect::ChangedInPlace),
            (&[Delete], ObjectEffect::Removed),
            (&[Delete, Create], ObjectEffect::Recreated),
            (&[Delete, Create, Update], ObjectEffect::Recreated),
            (&[Update, Delete], ObjectEffect::Removed),
            (&[Release], ObjectEffect::GivenBack),
        ] {
            let (first, rest) = actions.split_first().unwrap();
            let all = rest.iter().fold(ObjectEffect::of(*first), |it, &action| it.then(action));
            assert_eq!(all, effect, "{actions:?}");
        }
    }
}
