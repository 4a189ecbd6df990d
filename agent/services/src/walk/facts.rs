//! Answers to what expressions ask during a walk, and the record of the questions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_config::services::{
    ActionPlan, Book, BoxState, ComponentPlan, Ground, Read, Reads, ServicePlan, WalkRequest,
};
use holdfast_config::{ServiceTag, Value};
use smol_str::SmolStr;

use crate::facts::{Facts, Read as LeafRead};

/// Status of the action of a state that has not asked for one.
const NO_ACTION: &str = "not-reached";

/// The box as the walk of one instance sees it, and the service plan that the walk works on.
#[derive(Debug)]
pub(super) struct WalkFacts {
    ground: Ground,
    state: Option<Arc<dyn BoxState>>,
    book: Book,
    plan: Mutex<ServicePlan>,
    reads: Mutex<Reads>,
    /// Place in the package that asks now.
    place: Mutex<Arc<str>>,
    /// Name of a function that was called and that nothing answers yet.
    unanswered: Mutex<Option<&'static str>>,
}

impl WalkFacts {
    pub(super) fn new(request: &WalkRequest<'_>, plan: ServicePlan) -> Self {
        Self {
            ground: request.new.clone(),
            state: request.surroundings.state.clone(),
            book: request.book.clone(),
            plan: Mutex::new(plan),
            reads: Mutex::default(),
            place: Mutex::new("".into()),
            unanswered: Mutex::default(),
        }
    }

    /// The service plan so far. No guard is held while an expression is evaluated.
    pub(super) fn plan(&self) -> MutexGuard<'_, ServicePlan> {
        lock(&self.plan)
    }

    /// Names the place in the package that asks from now on.
    pub(super) fn begin(&self, place: impl Into<Arc<str>>) {
        *lock(&self.place) = place.into();
    }

    pub(super) fn take_reads(&self) -> Reads {
        std::mem::take(&mut lock(&self.reads))
    }

    /// The function that was called since the last time this was asked, and that has no answer.
    pub(super) fn take_unanswered(&self) -> Option<&'static str> {
        lock(&self.unanswered).take()
    }

    /// Without state of the box nothing wakes the instance when the answer changes.
    fn note(&self, read: Read) {
        if self.state.is_none() {
            *lock(&self.unanswered) = Some("config` or `state");
        }
        let place = Arc::clone(&lock(&self.place));
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

    fn gone(&self, _: &LeafRead) -> bool {
        *lock(&self.unanswered) = Some("gone");
        false
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
