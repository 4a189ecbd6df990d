//! Admission of requests: the door of every commit.
//!
//! A client's request passes if its client still waits, if the writer is the master of its role, and if it fits the
//! commit that waits to be confirmed. Operations on service instances, news of their actions and packages wait until none
//! does; walks that instances need by themselves join it. Other changes by the agent itself (boot, leases, switches,
//! credentials, a factory reset) always pass.

use std::time::Duration;

use super::CoreTask;
use crate::commit::{CommitInFlight, Input, Window, runs_alone};
use crate::request::{
    CommitError, CommitOptions, CommitRequest, ConfirmAction, ConfirmError, Confirmation, Intent,
    Reply, ReplySender,
};

/// Kind of a request that passed admission.
#[derive(Debug, PartialEq, Eq)]
enum RequestKind {
    /// A request that changes nothing, and is answered at once.
    Nothing,
    /// A change, or the beginning of a commit that must be confirmed.
    Change,
    Confirm,
    Cancel,
    Extend {
        rollback_after: Duration,
    },
}

impl CoreTask {
    /// True when the next request may be taken from the queue.
    pub(crate) fn may_receive(&self) -> bool {
        self.commits.has_room() && !self.is_rollback_overdue()
    }

    /// Begins a request, now or when no commit is in flight.
    pub(crate) fn receive(&mut self, request: CommitRequest) {
        if runs_alone(&request.intent, &request.options) && !self.commits.is_quiet() {
            self.commits.hold_up(request);
        } else {
            self.admit(request);
        }
    }

    /// Begins the request that waits until no commit is in flight, if none is.
    pub(crate) fn admit_alone(&mut self) {
        if let Some(request) = self.commits.take_held_up() {
            self.admit(request);
            self.advance_commits();
        }
    }

    /// Begins a request, if the caller is the master of its role and the request fits the commit that waits.
    pub(crate) fn admit(&mut self, request: CommitRequest) {
        if request.intent.cancel().is_cancelled() {
            return Reply::of(request).0.send(Err(CommitError::Abandoned));
        }
        let kind = self.classify(&request);
        let received = request.received;
        let (mut reply, intent, options) = Reply::of(request);
        if let Some(follow_up) = options.follow_up.as_ref().filter(|_| !is_change(&kind)) {
            follow_up.note_settled(true);
        }
        match kind {
            Err(error) => reply.send(Err(error)),
            Ok(RequestKind::Nothing) => reply.send(Ok(self.unchanged())),
            Ok(RequestKind::Change) => self.begin_change(reply, intent, options),
            Ok(RequestKind::Confirm) => {
                let ticket = self.store.new_ticket();
                let commit = CommitInFlight::confirmation(ticket, reply, options);
                self.begin_commit(commit, Input::Confirm);
            }
            Ok(RequestKind::Cancel) => self.roll_back(reply),
            Ok(RequestKind::Extend { rollback_after }) => {
                self.window.extend(self.clock.since_start(received) + rollback_after);
                self.show_window();
                reply.send(Ok(self.unchanged()));
            }
        }
    }

    fn classify(&mut self, request: &CommitRequest) -> Result<RequestKind, CommitError> {
        let is_empty = match &request.intent {
            Intent::Edit(edit) => edit.is_empty(),
            Intent::Restore(_) => false,
            it if it.is_reactive_walk() => return Ok(RequestKind::Change),
            Intent::Walk(_) | Intent::Resurrect { .. } | Intent::Package(_) | Intent::Purge(_) => {
                return Ok(unoccupied(self.window.waiting())?);
            }
            _ => return Ok(RequestKind::Change),
        };
        let CommitOptions { expected_plan, confirmation, election, .. } = &request.options;
        let dry_run = matches!(request.reply, ReplySender::Preview(_));
        match election {
            Some(election) if dry_run => self.elections.check(election)?,
            Some(election) => self.elections.check_and_record(election)?,
            None => {}
        }
        let changes_nothing = is_empty && confirmation.is_none() && !dry_run;
        if changes_nothing && election.is_some() {
            return Ok(RequestKind::Nothing);
        }
        let window = self.window.waiting();
        Ok(match fits(window, confirmation.as_ref(), is_empty)? {
            RequestKind::Change if changes_nothing && expected_plan.is_none() => {
                RequestKind::Nothing
            }
            RequestKind::Change => RequestKind::Change,
            _ if dry_run => return Err(ConfirmError::DryRun.into()),
            other => other,
        })
    }

    /// Examines a change with the answers of handlers, unless a commit waits to be confirmed since it was admitted.
    pub(crate) fn examine_answered(&mut self, intent: Box<Intent>, commit: &mut CommitInFlight) {
        let waits = match &*intent {
            it if it.is_reactive_walk() => false,
            Intent::Edit(_) | Intent::Restore(_) | Intent::Walk(_) => true,
            it => matches!(it, Intent::Resurrect { .. } | Intent::Package(_)),
        };
        match unoccupied(self.window.waiting().filter(|_| waits)) {
            Ok(_) => self.examine(intent, commit),
            Err(error) => {
                self.push_input(commit.ticket, Input::Examined(Err(error.into())));
            }
        }
    }

    fn begin_change(&mut self, reply: Reply, mut intent: Intent, options: CommitOptions) {
        let commit = CommitInFlight::change(self.store.new_ticket(), reply, &mut intent, options);
        self.begin_commit(commit, Input::Change(Box::new(intent)));
    }

    /// Begins to take back the commit that waits to be confirmed.
    pub(crate) fn roll_back(&mut self, reply: Reply) {
        if let Some(window) = self.window.waiting() {
            let before = window.before.clone();
            self.begin_change(reply, Intent::Rollback(before), CommitOptions::default());
        }
    }
}

/// True for a request whose values have to come into the system.
fn is_change(kind: &Result<RequestKind, CommitError>) -> bool {
    matches!(kind, Ok(RequestKind::Change))
}

/// Checks that a request fits the commit that waits. With `is_empty`, the request has no operations of its own.
fn fits(
    window: Option<&Window>,
    confirmation: Option<&Confirmation>,
    is_empty: bool,
) -> Result<RequestKind, ConfirmError> {
    let Some(Confirmation { id, action }) = confirmation else { return unoccupied(window) };
    let (what, kind) = match *action {
        ConfirmAction::Begin { .. } => return unoccupied(window),
        ConfirmAction::Confirm => ("confirms", RequestKind::Confirm),
        ConfirmAction::Cancel => ("cancels", RequestKind::Cancel),
        ConfirmAction::Extend { rollback_after } => {
            ("extends", RequestKind::Extend { rollback_after })
        }
    };
    match window {
        _ if !is_empty => Err(ConfirmError::WithPayload { what }),
        None => Err(ConfirmError::NoneWaits),
        Some(window) if window.id != *id => Err(ConfirmError::OtherId { id: id.clone() }),
        Some(_) => Ok(kind),
    }
}

fn unoccupied(window: Option<&Window>) -> Result<RequestKind, ConfirmError> {
    match window {
        Some(window) => Err(ConfirmError::Waiting { id: window.id.clone() }),
        None => Ok(RequestKind::Change),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::RebootInhibitors;
    use holdfast_config::Layers;

    use super::*;

    // proves 1.130, 1.131, 1.134
    #[test]
    fn one_commit_waits_and_only_its_own_requests_pass() {
        let after = Duration::from_secs(1);
        let _undertaking = RebootInhibitors::default().begin("a");
        let waiting = Window { id: "a".into(), before: Layers::new(), until: after, _undertaking };
        let with = |id: &str, action| Some(Confirmation { id: id.into(), action });
        let begin = ConfirmAction::Begin { rollback_after: after };
        let extend = ConfirmAction::Extend { rollback_after: after };
        let occupied = || Err(ConfirmError::Waiting { id: "a".into() });
        let other = || Err(ConfirmError::OtherId { id: "b".into() });
        let extended = || Ok(RequestKind::Extend { rollback_after: after });
        for (request, free, taken) in [
            (None, Ok(RequestKind::Change), occupied()),
            (with("a", begin), Ok(RequestKind::Change), occupied()),
            (with("b", begin), Ok(RequestKind::Change), occupied()),
            (
                with("a", ConfirmAction::Confirm),
                Err(ConfirmError::NoneWaits),
                Ok(RequestKind::Confirm),
            ),
            (with("b", ConfirmAction::Confirm), Err(ConfirmError::NoneWaits), other()),
            (
                with("a", ConfirmAction::Cancel),
                Err(ConfirmError::NoneWaits),
                Ok(RequestKind::Cancel),
            ),
            (with("b", ConfirmAction::Cancel), Err(ConfirmError::NoneWaits), other()),
            (with("a", extend), Err(ConfirmError::NoneWaits), extended()),
            (with("b", extend), Err(ConfirmError::NoneWaits), other()),
        ] {
            assert_eq!(fits(None, request.as_ref(), true), free, "{request:?}");
            assert_eq!(fits(Some(&waiting), request.as_ref(), true), taken, "{request:?}");
        }
        let confirm = with("a", ConfirmAction::Confirm);
        let refused = fits(Some(&waiting), confirm.as_ref(), false);
        assert_eq!(refused, Err(ConfirmError::WithPayload { what: "confirms" }));
    }
}
