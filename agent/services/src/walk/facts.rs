//! Answers to what expressions ask during a walk, and the record of the questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_config::services::{
    ActionPlan, Book, BoxState, ComponentPlan, Ground, Read, Reads, ServicePlan, WalkRequest,
};
use holdfast_config::{Models, ServiceTag, Value};
use smol_str::SmolStr;

use crate::component::Component;
use crate::facts::{Facts, Read as LeafRead};

/// Place of the conditions of the tree.
pub(super) const TREE: &str = "tree";

/// Status of the action of a state that has not asked for one.
const NO_ACTION: &str = "not-reached";

const WITHOUT_STATE: &str = "the expression reads the box, whose state is not known here";
const GONE_IN_TREE: &str =
    "the tree calls `gone`, which belongs to a state: it asks since when that is waited for";

/// The box as the walk of one instance sees it, and the service plan that the walk works on.
#[derive(Debug)]
pub(super) struct WalkFacts {
    ground: Ground,
    models: Arc<Models>,
    state: Option<Arc<dyn BoxState>>,
    book: Book,
    plan: Mutex<ServicePlan>,
    reads: Mutex<Reads>,
    place: Mutex<Place>,
    /// Reason for which a function that was called has no answer.
    unanswered: Mutex<Option<String>>,
}

/// Place in the package that asks.
#[derive(Debug)]
pub(super) struct Place {
    text: Arc<str>,
    /// Type and name of the component, and the state.
    state: Option<[SmolStr; 3]>,
}

impl Place {
    /// The conditions of the tree.
    pub(super) fn of_tree() -> Self {
        Self { text: TREE.into(), state: None }
    }

    /// A call that is about the instance as a whole.
    pub(super) fn of_instance(place: &str) -> Self {
        Self { text: place.into(), state: None }
    }

    /// A condition, the work or the action of a state.
    pub(super) fn of_state(part: &Component, state: &str, place: &str) -> Self {
        let Component { component_type, name, .. } = part;
        let text = format!("{component_type} {name}, {state}: {place}").into();
        Self { text, state: Some([component_type.clone(), name.clone(), state.into()]) }
    }
}

impl WalkFacts {
    pub(super) fn new(request: &WalkRequest<'_>, models: Arc<Models>, plan: ServicePlan) -> Self {
        Self {
            models,
            ground: request.new.clone(),
            state: request.surroundings.state.clone(),
            book: request.book.clone(),
            plan: Mutex::new(plan),
            reads: Mutex::default(),
            place: Mutex::new(Place::of_tree()),
            unanswered: Mutex::default(),
        }
    }

    /// The service plan so far. No guard is held while an expression is evaluated.
    pub(super) fn plan(&self) -> MutexGuard<'_, ServicePlan> {
        lock(&self.plan)
    }

    /// Names the place in the package that asks from now on.
    pub(super) fn begin(&self, place: Place) {
        *lock(&self.place) = place;
    }

    /// Text of the place that asks.
    pub(super) fn place(&self) -> Arc<str> {
        Arc::clone(&lock(&self.place).text)
    }

    pub(super) fn take_reads(&self) -> Reads {
        std::mem::take(&mut lock(&self.reads))
    }

    /// The reason for which a function that was called since the last time this was asked has no answer.
    pub(super) fn take_unanswered(&self) -> Option<String> {
        lock(&self.unanswered).take()
    }

    pub(super) fn note_unanswered(&self, reason: impl Into<String>) {
        *lock(&self.unanswered) = Some(reason.into());
    }

    /// Without state of the box nothing wakes the instance when the answer changes.
    fn note(&self, read: Read) {
        if self.state.is_none() {
            self.note_unanswered(WITHOUT_STATE);
        }
        let place = self.place();
        lock(&self.reads).entry(read).or_default().insert(place);
    }
}

/// A walk runs on one thread, and a panic of it ends the walk.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Facts for WalkFacts {
    fn read(&self, read: &LeafRead) -> Vec<Value> {
        self.note(Read::Leaves(read.clone()));
        read.values(&self.ground, self.state.as_deref())
    }

    fn gone(&self, read: &LeafRead) -> bool {
        let is_there = !self.read(read).is_empty();
        let Some([component_type, name, state]) = lock(&self.place).state.clone() else {
            self.note_unanswered(GONE_IN_TREE);
            return false;
        };
        let path: Arc<str> = read.to_text(&self.models).into();
        let mut plan = self.plan();
        let mut components = plan.components.iter_mut();
        let found = components.find(|it| it.is(&component_type, &name));
        let mut states = found.into_iter().flat_map(|it| &mut it.states);
        let Some(state) = states.find(|it| it.name == state) else {
            self.note_unanswered(format!(
                "`gone` is asked for {component_type} {name}, {state}, which the service plan does not have"
            ));
            return false;
        };
        if is_there {
            state.seen.insert(path);
            return false;
        }
        state.seen.contains(&path)
    }

    fn reached(&self, component_type: &str, name: &str, state: &str) -> bool {
        let plan = self.plan();
        let found = plan.component(component_type, name).and_then(|it| it.state(state));
        found.is_some_and(super::is_reached)
    }

    fn action(&self, component_type: &str, name: &str, state: &str) -> Option<SmolStr> {
        let plan = self.plan();
        let state = plan.component(component_type, name).and_then(|it| it.state(state))?;
        Some(state.action.as_ref().map_or(NO_ACTION, ActionPlan::status).into())
    }

    fn ready(&self, component_type: &str) -> bool {
        let plan = self.plan();
        let is_counted = |it: &&_| is_of_type(it, component_type);
        let mut counted = plan.components.iter().filter(is_counted).peekable();
        counted.peek().is_some() && counted.all(|it| it.is_ready())
    }

    fn service_ready(&self, tag: &str) -> bool {
        let Ok(tag) = tag.parse::<ServiceTag>() else { return false };
        let is_ready = self.book.get(&tag).is_some_and(|plan| plan.is_ready());
        self.note(Read::Service(tag));
        is_ready
    }
}

fn is_of_type(component: &ComponentPlan, component_type: &str) -> bool {
    component.component_type == component_type && component.back_track.is_none()
}

#[cfg(test)]
mod tests {
    use holdfast_config::schema::Origin;
    use holdfast_config::services::{Applied, Plane, StatePlan, Surroundings};
    use holdfast_config::{ClaimKey, Configuration, Layers, Path, PathPattern};

    use super::*;
    use crate::component::Variables;

    #[derive(Debug)]
    struct EmptyBox;

    impl BoxState for EmptyBox {
        fn leaves(&self, _: Origin, _: &PathPattern) -> Vec<Value> {
            Vec::new()
        }

        fn applied(&self, _: &ClaimKey) -> Applied {
            Applied::Done
        }
    }

    #[test]
    fn gone_is_refused_for_a_state_that_the_plan_does_not_have() {
        let models = Arc::new(Models::load().unwrap());
        let configuration = Configuration::new(Arc::clone(&models), Layers::new());
        let ground = configuration.ground();
        let surroundings = Surroundings { state: Some(Arc::new(EmptyBox)), ..Default::default() };
        let request = WalkRequest {
            old: &ground,
            new: &ground,
            claims: configuration.layers().claims(),
            book: &configuration.layers().book,
            surroundings: &surroundings,
        };
        let (component_type, name): (SmolStr, SmolStr) = ("port".into(), "eth1".into());
        let component = ComponentPlan {
            component_type: component_type.clone(),
            name: name.clone(),
            vars: "".into(),
            back_track: None,
            states: vec![StatePlan::new("attached".into(), 1)],
        };
        let plan = ServicePlan { components: vec![component], ..ServicePlan::default() };
        let facts = WalkFacts::new(&request, Arc::clone(&models), plan);
        let part =
            Component { component_type, name, replaces: Vec::new(), vars: Variables::default() };
        let path: Path = "/interfaces/interface[name=eth1]/state/mtu".parse().unwrap();
        let patterns = models.native.resolve_read(&path).unwrap();
        let read = LeafRead { plane: Plane::State, origin: Origin::Native, patterns };
        for (state, refused) in [("attached", None), ("sized", Some("port eth1, sized"))] {
            facts.begin(Place::of_state(&part, state, "gate"));
            assert!(!facts.gone(&read));
            let reason = facts.take_unanswered();
            assert_eq!(reason.is_some(), refused.is_some(), "{state}");
            assert!(reason.is_none_or(|it| it.contains(refused.unwrap_or_default())), "{state}");
        }
    }
}
