//! Commit-confirmed: one commit at a time waits for its confirmation, and is taken back if none comes in time.
//!
//! The store keeps the layers that the commit replaced until it is confirmed or taken back; a start that finds such a
//! record takes the commit back before anything is read. Changes of other layers (boot, leases, switches) stay.

use std::time::Duration;

use holdfast_base::{Undertaking, now_ns};
use holdfast_config::Layers;
use holdfast_store::StoreError;
use smol_str::SmolStr;

use super::intent::Intent;
use super::options::{CommitOptions, ConfirmAction, Confirmation};
use super::task::{CoreTask, Work};
use super::transaction::{Stage, Ticket, Transaction};
use super::{Answer, CommitError, CommitRequest, CommitStamp};

/// Time until a rollback that could not be recorded is tried again.
const ROLLBACK_RETRY: Duration = Duration::from_secs(5);

/// The commit that waits to be confirmed, and the layers before it.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) id: SmolStr,
    /// Layers before the commit; only the client's two are brought back.
    pub(super) before: Layers,
    /// Time of the rollback, since the start of the core.
    pub(super) until: Duration,
    /// A reboot would take the commit back.
    pub(super) _undertaking: Undertaking,
}

/// Contradiction between a request and the commit that waits, or the absence of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    #[error(
        "the commit `{id}` waits to be confirmed or cancelled; until then nothing else is changed"
    )]
    Waiting { id: SmolStr },
    #[error("no commit waits to be confirmed")]
    NoneWaits,
    #[error("the commit that waits to be confirmed is not `{given}`")]
    OtherId { given: SmolStr },
    #[error("a request that {what} a commit cannot change the configuration as well")]
    WithPayload { what: &'static str },
    #[error(
        "a dry run shows a change of the configuration; it cannot confirm, cancel or extend a commit"
    )]
    DryRun,
}

/// Kind of a client's request that passed admission.
#[derive(Debug, PartialEq, Eq)]
enum Admitted {
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
    /// Begins a request, if the caller is the master of its role and the request fits the commit that waits.
    pub(super) fn admit(&mut self, request: CommitRequest) {
        if request.intent.cancel().is_cancelled() {
            return Ticket::of(request).0.answer(Err(CommitError::Abandoned));
        }
        let (admitted, received) = (self.admitted(&request), request.received);
        let (mut ticket, intent, options) = Ticket::of(request);
        match admitted {
            Err(error) => ticket.answer(Err(error)),
            Ok(Admitted::Nothing) => ticket.answer(Ok(self.unchanged())),
            Ok(Admitted::Change) => self.examine(ticket, intent, options),
            Ok(Admitted::Confirm) => self.confirm(ticket, options),
            Ok(Admitted::Cancel) => self.roll_back(ticket),
            Ok(Admitted::Extend { rollback_after }) => {
                if let Some(window) = &mut self.window {
                    window.until = received.duration_since(self.started) + rollback_after;
                }
                ticket.answer(Ok(self.unchanged()));
            }
        }
    }

    fn admitted(&mut self, request: &CommitRequest) -> Result<Admitted, CommitError> {
        let Intent::Edit(edit) = &request.intent else { return Ok(Admitted::Change) };
        let CommitOptions { expected_plan, confirmation, election } = &request.options;
        let dry_run = matches!(request.answer, Answer::Preview(_));
        match election {
            Some(election) if dry_run => self.elections.check(election)?,
            Some(election) => self.elections.hold(election)?,
            None => {}
        }
        let changes_nothing = edit.is_empty() && confirmation.is_none() && !dry_run;
        if changes_nothing && election.is_some() {
            return Ok(Admitted::Nothing);
        }
        let window = self.window.as_ref();
        Ok(match fits(window, confirmation.as_ref(), edit.is_empty())? {
            Admitted::Change if changes_nothing && expected_plan.is_none() => Admitted::Nothing,
            Admitted::Change => Admitted::Change,
            _ if dry_run => return Err(ConfirmError::DryRun.into()),
            other => other,
        })
    }

    /// Answer to a request that changes no configuration.
    pub(super) fn unchanged(&self) -> CommitStamp {
        CommitStamp { time_ns: now_ns(), revision: self.revision_tx.borrow().number }
    }

    fn confirm(&mut self, ticket: Ticket, options: CommitOptions) {
        let mut transaction = Transaction::new(self.next_number, ticket, options);
        transaction.stage = Stage::Confirming;
        self.transaction = Some(transaction);
        let confirmed = self.store.confirm();
        self.work.0.push(Box::pin(async move { Work::Finished(confirmed.await) }));
    }

    /// Answers a confirmation when the store has made the commit final, or could not.
    pub(super) fn confirmed(&mut self, mut ticket: Ticket, result: Result<(), StoreError>) {
        self.publisher.release();
        match result {
            Ok(()) => {
                self.window = None;
                ticket.answer(Ok(self.unchanged()));
            }
            Err(error) => ticket.answer(Err(CommitError::Store(error))),
        }
    }

    /// Time of the rollback, since the start of the core. `None` while another transaction is under way.
    pub(super) fn rollback_due(&self) -> Option<Duration> {
        self.window.as_ref().filter(|_| self.transaction.is_none()).map(|window| window.until)
    }

    /// Takes back the commit that was not confirmed in time; due again after [`ROLLBACK_RETRY`] if that fails.
    pub(super) fn roll_back_late(&mut self) {
        let now = self.now().monotonic;
        if let Some(window) = &mut self.window {
            tracing::warn!(id = %window.id, "the commit was not confirmed in time; it is rolled back");
            window.until = now + ROLLBACK_RETRY;
            self.roll_back(Ticket::own("rollback"));
        }
    }

    fn roll_back(&mut self, ticket: Ticket) {
        if let Some(window) = &self.window {
            let before = window.before.clone();
            self.examine(ticket, Intent::Rollback(before), CommitOptions::default());
        }
    }

    /// Opens or closes the window with a commit, before its configuration is in force. Returns the id of the commit
    /// that must be confirmed, if this commit is the one or takes it back.
    pub(super) fn turn_window(&mut self, transaction: &Transaction) -> Option<SmolStr> {
        if transaction.is_rollback {
            return self.window.take().map(|window| window.id);
        }
        let Confirmation { id, action } = transaction.options.confirmation.as_ref()?;
        let ConfirmAction::Begin { rollback_after } = *action else { return None };
        let until = self.now().monotonic + rollback_after;
        let before = self.configuration.layers().clone();
        let name = format!("the commit `{id}`, which waits to be confirmed");
        let _undertaking = self.undertakings.begin(name);
        self.window = Some(Window { id: id.clone(), before, until, _undertaking });
        Some(id.clone())
    }
}

/// Checks that a request fits the commit that waits. With `is_empty`, the request has no operations of its own.
fn fits(
    window: Option<&Window>,
    confirmation: Option<&Confirmation>,
    is_empty: bool,
) -> Result<Admitted, ConfirmError> {
    let Some(Confirmation { id, action }) = confirmation else { return unoccupied(window) };
    let (what, admitted) = match *action {
        ConfirmAction::Begin { .. } => return unoccupied(window),
        ConfirmAction::Confirm => ("confirms", Admitted::Confirm),
        ConfirmAction::Cancel => ("cancels", Admitted::Cancel),
        ConfirmAction::Extend { rollback_after } => {
            ("extends", Admitted::Extend { rollback_after })
        }
    };
    match window {
        _ if !is_empty => Err(ConfirmError::WithPayload { what }),
        None => Err(ConfirmError::NoneWaits),
        Some(window) if window.id != *id => Err(ConfirmError::OtherId { given: id.clone() }),
        Some(_) => Ok(admitted),
    }
}

fn unoccupied(window: Option<&Window>) -> Result<Admitted, ConfirmError> {
    match window {
        Some(window) => Err(ConfirmError::Waiting { id: window.id.clone() }),
        None => Ok(Admitted::Change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::Undertakings;

    // proves 1.130, 1.131, 1.134
    #[test]
    fn one_commit_waits_and_only_its_own_requests_pass() {
        let after = Duration::from_secs(1);
        let _undertaking = Undertakings::default().begin("a");
        let waiting = Window { id: "a".into(), before: Layers::new(), until: after, _undertaking };
        let with = |id: &str, action| Some(Confirmation { id: id.into(), action });
        let begin = ConfirmAction::Begin { rollback_after: after };
        let extend = ConfirmAction::Extend { rollback_after: after };
        let occupied = || Err(ConfirmError::Waiting { id: "a".into() });
        let other = || Err(ConfirmError::OtherId { given: "b".into() });
        let extended = || Ok(Admitted::Extend { rollback_after: after });
        for (asked, free, taken) in [
            (None, Ok(Admitted::Change), occupied()),
            (with("a", begin), Ok(Admitted::Change), occupied()),
            (with("b", begin), Ok(Admitted::Change), occupied()),
            (
                with("a", ConfirmAction::Confirm),
                Err(ConfirmError::NoneWaits),
                Ok(Admitted::Confirm),
            ),
            (with("b", ConfirmAction::Confirm), Err(ConfirmError::NoneWaits), other()),
            (with("a", ConfirmAction::Cancel), Err(ConfirmError::NoneWaits), Ok(Admitted::Cancel)),
            (with("b", ConfirmAction::Cancel), Err(ConfirmError::NoneWaits), other()),
            (with("a", extend), Err(ConfirmError::NoneWaits), extended()),
            (with("b", extend), Err(ConfirmError::NoneWaits), other()),
        ] {
            assert_eq!(fits(None, asked.as_ref(), true), free, "{asked:?}");
            assert_eq!(fits(Some(&waiting), asked.as_ref(), true), taken, "{asked:?}");
        }
        let confirm = with("a", ConfirmAction::Confirm);
        let refused = fits(Some(&waiting), confirm.as_ref(), false);
        assert_eq!(refused, Err(ConfirmError::WithPayload { what: "confirms" }));
    }
}
