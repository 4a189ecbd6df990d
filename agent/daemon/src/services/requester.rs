//! Requester of a change of services, with the trace of the request.

use std::collections::BTreeSet;

use holdfast_base::Caller;
use holdfast_config::ServiceTag;
use holdfast_config::services::Book;
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore, Intent};
use smol_str::SmolStr;

/// Caller of an operation, and the name that the client gives the request in logs and histories. Without one, each change
/// of the operation has a trace of the agent.
#[derive(Clone, Debug)]
pub struct Requester {
    pub caller: Caller,
    pub trace: Option<SmolStr>,
}

impl From<Caller> for Requester {
    fn from(caller: Caller) -> Self {
        Self { caller, trace: None }
    }
}

impl Requester {
    /// Instances that walk by themselves, with the trace of the request that all of them go back to, if that is one.
    pub(super) fn of_instances(due: &BTreeSet<ServiceTag>, book: &Book) -> Self {
        Self { caller: Caller::own(author(due)), trace: common_trace(due, book) }
    }

    /// Options of a change that the request asks for.
    pub(super) fn options(&self) -> CommitOptions {
        CommitOptions { trace: self.trace.clone(), ..CommitOptions::default() }
    }

    /// Carries out a change as one transaction.
    ///
    /// # Errors
    /// When the change is refused, or cannot be recorded or carried out.
    pub(super) async fn change(
        &self,
        core: &impl Datastore,
        intent: Intent,
    ) -> Result<CommitStamp, CommitError> {
        core.change_with(&self.caller, intent, self.options()).await
    }
}

/// Name of the author of the walks of instances.
fn author(due: &BTreeSet<ServiceTag>) -> String {
    match due.first() {
        Some(tag) if due.len() == 1 => format!("service {tag}"),
        Some(tag) => format!("service {tag} and {} more", due.len() - 1),
        None => "service".to_owned(),
    }
}

fn common_trace(due: &BTreeSet<ServiceTag>, book: &Book) -> Option<SmolStr> {
    let trace = |tag| book.get(tag).map(|plan| &plan.record.trace);
    let mut traces = due.iter().map(trace);
    let first = traces.next().flatten().filter(|trace| !trace.is_empty())?;
    traces.all(|trace| trace == Some(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests {
    use holdfast_config::services::{ChangeAuthor, InstanceRecord, ServicePlan};

    use super::*;

    fn tag(key: &str) -> ServiceTag {
        format!("access[name='{key}']").parse().unwrap()
    }

    // proves sv.B96
    #[test]
    fn walks_of_one_request_have_its_trace() {
        let mut book = Book::default();
        for (key, trace) in [("acme", "t1"), ("bolt", "t1"), ("cord", "t2"), ("dome", "")] {
            let mut record = InstanceRecord::default();
            let author = ChangeAuthor { user: "ops".into(), trace: trace.into() };
            record.note_walk(Some(&author), 1);
            book.set((tag(key), Some(ServicePlan { record, ..ServicePlan::default() })));
        }
        for (keys, trace) in [
            (&["acme", "bolt"][..], Some("t1")),
            (&["acme", "cord"], None),
            (&["dome"], None),
            (&["acme", "unknown"], None),
            (&[], None),
        ] {
            let due = keys.iter().map(|key| tag(key)).collect();
            let by = Requester::of_instances(&due, &book);
            assert_eq!(by.trace.as_deref(), trace, "{keys:?}");
        }
    }
}
