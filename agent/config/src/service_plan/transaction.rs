//! Service transactions: changes in which instances were walked, with what caused the walks.
//!
//! The core keeps the last ones, shows them at `/service-state/transaction`, and has the database keep them.

use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;

use super::action::{ActionEvent, ActionUpdate};
use super::record::ChangeAuthor;
use crate::claims::ServiceTag;
use crate::limits::excerpt;

/// Service transactions that are kept: the last day of a box whose services go on every quarter of an hour.
pub const KEPT_TRANSACTIONS: usize = 100;
/// Instances that one transaction names: as many as walk by themselves in one transaction.
pub const NAMED_INSTANCES: usize = 64;
/// Places of a package that one cause names.
const NAMED_PLACES: usize = 4;

/// One service transaction that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTransaction {
    /// Transactions are numbered as they end.
    pub id: u64,
    /// Kind of the change, such as `set`, `walk` or `redeploy`.
    pub kind: SmolStr,
    pub author: ChangeAuthor,
    /// Times in nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    /// Reason for which nothing of it was done; `None` for success.
    pub failure: Option<TransactionFailure>,
    /// The instances that were walked, ascending by name: at most [`NAMED_INSTANCES`].
    pub instances: Vec<WalkedInstance>,
    /// Number of instances that are not named.
    pub omitted: u64,
    /// Numbers under which handlers were told of it.
    pub handler_tids: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionFailure {
    pub origin: FailureOrigin,
    pub reason: Arc<str>,
}

/// Part of the box that a change failed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOrigin {
    /// The work of an instance, its handler, or what it asks for.
    Service,
    /// The change leads to a configuration that the box cannot have.
    Configuration,
    /// The kernel has refused an operation.
    System,
    /// The disk has refused a write.
    Database,
    Agent,
}

/// One instance that was walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkedInstance {
    pub tag: ServiceTag,
    /// Trace of the change that somebody asked for last; empty while it is not known.
    pub trace: SmolStr,
    /// Reason of a walk that nobody asked for.
    pub cause: Option<WalkCause>,
}

/// Reason to walk an instance without a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkCause {
    pub kind: CauseKind,
    /// The path, object, action or handler that has moved; empty where the kind says all.
    pub subject: Arc<str>,
    /// Its value before and after, where there was and is one.
    pub before: Option<Arc<str>>,
    pub after: Option<Arc<str>>,
    /// Places in the package that have read it.
    pub places: Vec<Arc<str>>,
}

/// Kinds of causes. Of several causes of one walk, the last kind of this list is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// All instances are walked once.
    Start,
    /// Its service plan has changed, and may go on.
    Plan,
    /// Its last walk was refused, and the reason may have gone.
    Retry,
    /// Its parameters have changed, and it may go on since.
    Parameters,
    /// The time of a state, or a pause, is over.
    Time,
    /// A handler was attached.
    Handler,
    /// An object that it asks for has come, gone or been refused.
    Object,
    /// An action has begun or ended.
    Action,
    /// Something that it has read has another value.
    Condition,
}

// Name in the model.
crate::enum_names!(FailureOrigin {
    Service = "service",
    Configuration = "configuration",
    System = "system",
    Database = "database",
    Agent = "agent",
});

// Name in the model.
crate::enum_names!(CauseKind {
    Start = "start",
    Plan = "plan",
    Retry = "retry",
    Parameters = "parameters",
    Time = "time",
    Handler = "handler",
    Object = "object",
    Action = "action",
    Condition = "condition",
});

impl WalkCause {
    /// A cause without a subject.
    pub fn bare(kind: CauseKind) -> Self {
        Self { kind, subject: "".into(), before: None, after: None, places: Vec::new() }
    }

    /// Another value of something that places in the package have read.
    pub fn condition<'p>(
        subject: Arc<str>,
        [before, after]: [Option<Arc<str>>; 2],
        places: impl IntoIterator<Item = &'p Arc<str>>,
    ) -> Self {
        let places = places.into_iter().take(NAMED_PLACES).cloned().collect();
        Self { kind: CauseKind::Condition, subject, before, after, places }
    }

    /// Another state of an object.
    pub fn object(label: &str, state: &str) -> Self {
        let after = Some(state.into());
        Self { subject: label.into(), after, ..Self::bare(CauseKind::Object) }
    }

    /// A handler of a type was attached.
    pub fn handler(service: &str) -> Self {
        Self { subject: service.into(), ..Self::bare(CauseKind::Handler) }
    }

    /// News of an action.
    pub fn action(ActionUpdate { state, id, event }: &ActionUpdate) -> Self {
        let after = match event {
            ActionEvent::Dispatched => "dispatched".into(),
            ActionEvent::Ended(_) => "ended".into(),
            ActionEvent::Failed(reason) => format!("failed: {}", excerpt(reason)).into(),
            ActionEvent::Lost(reason) => format!("in doubt: {}", excerpt(reason)).into(),
            ActionEvent::Cancelled(_) => "cancelled".into(),
            ActionEvent::Resolved(Ok(())) => "resolved as done".into(),
            ActionEvent::Resolved(Err(_)) => "resolved as failed".into(),
            ActionEvent::Rescheduled => "asked for again".into(),
        };
        let subject = format!("action {id} of {state}").into();
        Self { subject, after: Some(after), ..Self::bare(CauseKind::Action) }
    }
}

impl fmt::Display for WalkCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, subject, before, after, places } = self;
        let after = after.as_deref().unwrap_or("gone");
        match kind {
            CauseKind::Start => f.write_str("the agent has started"),
            CauseKind::Plan => f.write_str("its service plan has changed"),
            CauseKind::Retry => f.write_str("the reason for its refusal may have gone"),
            CauseKind::Parameters => f.write_str("its parameters have changed"),
            CauseKind::Time => f.write_str("a time is over"),
            CauseKind::Handler => write!(f, "a handler of {subject} was attached"),
            CauseKind::Object if subject.is_empty() => f.write_str("its objects have changed"),
            CauseKind::Object | CauseKind::Action => write!(f, "{subject} is {after}"),
            CauseKind::Condition => {
                let before = before.as_deref().unwrap_or("not there");
                write!(f, "{subject} was {before}, and is {after}")?;
                if places.is_empty() {
                    return Ok(());
                }
                write!(f, " ({})", places.join("; "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_says_who_has_read_what_and_what_it_was() {
        let places = [Arc::from("port eth1, sized: gate `up`")];
        let values = [Some("DOWN".into()), Some("UP".into())];
        let path = "state /interfaces/interface[name=eth1]/state/oper-status";
        let cause = WalkCause::condition(path.into(), values, &places);
        assert_eq!(
            cause.to_string(),
            format!("{path} was DOWN, and is UP (port eth1, sized: gate `up`)")
        );
        let gone = WalkCause { before: None, after: None, places: Vec::new(), ..cause };
        assert_eq!(gone.to_string(), format!("{path} was not there, and is gone"));
        let object = WalkCause::object("link eth9", "PENDING");
        assert_eq!(object.to_string(), "link eth9 is PENDING");
    }

    #[test]
    fn the_strongest_cause_is_that_of_a_condition() {
        assert!(CauseKind::ALL.is_sorted());
        assert_eq!(CauseKind::ALL.last(), Some(&CauseKind::Condition));
        let names: std::collections::BTreeSet<_> =
            CauseKind::ALL.into_iter().map(CauseKind::name).collect();
        assert_eq!(names.len(), CauseKind::ALL.len());
    }
}
