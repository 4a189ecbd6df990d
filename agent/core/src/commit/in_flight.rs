//! The commit in flight, and the terms of its request.

use holdfast_config::schema::Origin;
use holdfast_store::{ArtefactChange, Ticket, Unconfirmed};

use super::{Commit, CommitKind, Reply};
use crate::intent::Intent;
use crate::options::{CommitOptions, ConfirmAction, Confirmation};

/// One commit in flight: its state machine, and what its effects need of the request.
#[derive(Debug)]
pub(crate) struct CommitInFlight {
    pub(crate) machine: Commit,
    /// Ticket of the transaction in the store.
    pub(crate) ticket: Ticket,
    /// Number of the transaction, given when the store is to make it final.
    pub(crate) number: Option<u64>,
    pub(crate) reply: Reply,
    pub(crate) options: CommitOptions,
    /// True when the commit that waits to be confirmed is taken back, by a rollback or a factory reset.
    pub(crate) is_rollback: bool,
    /// True when earlier, accepted configuration is restored, which is not checked against the present state of the box.
    pub(crate) is_admitted: bool,
    /// True when an earlier state comes back, as far as possible, like at a start.
    pub(crate) is_best_effort: bool,
    /// Model of the paths in error messages.
    pub(crate) origin: Origin,
    /// gNSI artefacts that become final with the commit.
    pub(crate) artefacts: Vec<ArtefactChange>,
}

impl CommitInFlight {
    /// The commit of a change, of which it takes over the artefacts.
    pub(crate) fn change(
        ticket: Ticket,
        reply: Reply,
        intent: &mut Intent,
        options: CommitOptions,
    ) -> Self {
        let kind = match intent {
            _ if reply.is_dry_run() => CommitKind::DryRun,
            Intent::Credentials(_) => CommitKind::Unrecorded,
            _ => CommitKind::Recorded,
        };
        let artefacts = match intent {
            Intent::Boot { artefacts, .. } => std::mem::take(artefacts),
            _ => Vec::new(),
        };
        Self {
            machine: Commit::new(kind),
            ticket,
            number: None,
            reply,
            options,
            is_rollback: intent.is_rollback(),
            is_admitted: intent.is_admitted(),
            is_best_effort: intent.is_best_effort(),
            origin: intent.origin(),
            artefacts,
        }
    }

    /// The confirmation of the commit that waits for it.
    pub(crate) fn confirmation(ticket: Ticket, reply: Reply, options: CommitOptions) -> Self {
        Self {
            machine: Commit::new(CommitKind::Recorded),
            ticket,
            number: None,
            reply,
            options,
            is_rollback: false,
            is_admitted: false,
            is_best_effort: false,
            origin: Origin::OpenConfig,
            artefacts: Vec::new(),
        }
    }

    /// Effect of the commit on the record of the commit that waits to be confirmed.
    pub(super) fn unconfirmed(&self) -> Unconfirmed {
        match &self.options.confirmation {
            _ if self.is_rollback => Unconfirmed::Ends,
            Some(Confirmation { action: ConfirmAction::Begin { .. }, .. }) => Unconfirmed::Begins,
            _ => Unconfirmed::Stays,
        }
    }
}
