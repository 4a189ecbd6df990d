//! Conditions of service instances, as their plans have them.

use holdfast_config::ServiceTag;
use holdfast_config::services::{ActionProgress, Book, ServicePlan};
use holdfast_faults::{Condition, Report, Resource};
use smol_str::{SmolStr, ToSmolStr as _, format_smolstr};

/// Finds conditions of service instances.
#[derive(Debug, Default)]
pub(super) struct Instances {
    /// The plans as they were looked at last.
    seen: Book,
}

/// The text of a condition of an instance, while it holds.
type ConditionText = fn(&ServicePlan) -> Option<SmolStr>;

/// Types of alarms that an instance may have.
const CONDITIONS: [(&str, ConditionText); 3] =
    [("action-in-doubt", action_in_doubt), ("plan-failed", failure), ("zombie-stuck", stuck)];

impl Instances {
    /// Reports about the instances whose plans differ from what was looked at before.
    pub(super) fn look(&mut self, book: &Book, now_ns: u64) -> Vec<Report> {
        let before = std::mem::replace(&mut self.seen, book.clone());
        let mut reports = Vec::new();
        for (tag, old, new) in Book::differences(&before, book) {
            for (kind, text_of) in CONDITIONS {
                let condition = condition(kind, tag);
                match (old.and_then(text_of), new.and_then(text_of)) {
                    (_, Some(text)) => reports.push(Report::holding(condition, text, now_ns)),
                    (Some(_), None) => reports.push(Report::ended(condition, now_ns)),
                    (None, None) => {}
                }
            }
        }
        reports
    }

    /// Forgets what was looked at, so that the next look reports about all instances.
    pub(super) fn forget(&mut self) {
        self.seen = Book::default();
    }
}

fn condition(kind: &str, tag: &ServiceTag) -> Condition {
    Condition::new(kind, Resource::Service(tag.to_smolstr()))
}

/// The first failure of a plan that goes forward.
fn failure(plan: &ServicePlan) -> Option<SmolStr> {
    plan.leaving.is_none().then(|| first_failure(plan))?
}

/// The first failure of a plan that backs out.
fn stuck(plan: &ServicePlan) -> Option<SmolStr> {
    plan.leaving.as_ref().and_then(|_| first_failure(plan))
}

fn first_failure(plan: &ServicePlan) -> Option<SmolStr> {
    if let Some(reason) = &plan.failure {
        return Some(reason.to_smolstr());
    }
    let states = plan
        .components
        .iter()
        .flat_map(|component| component.states.iter().map(move |state| (component, state)));
    let mut failed = states.filter_map(|(component, state)| {
        let reason = state.failure.as_ref()?;
        let component_type = &component.component_type;
        Some(format_smolstr!("{component_type} {}, {}: {reason}", component.name, state.name))
    });
    failed.next()
}

/// The first action whose result is not known.
fn action_in_doubt(plan: &ServicePlan) -> Option<SmolStr> {
    let mut doubts = plan.calls().filter_map(|call| match &call.action.progress {
        ActionProgress::InDoubt(reason) => {
            let id = call.action.id;
            Some(format_smolstr!("the action {id} was done or not: {reason}"))
        }
        _ => None,
    });
    doubts.next()
}
