//! One commit in flight, and the terms of its request.

use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::schema::Origin;
use holdfast_config::services::ChangeOrigin;
use holdfast_config::{
    BootChange, CancelToken, Configuration, Footprint, LayerDifference, PackageChange,
};
use holdfast_scheduler::Author;
use holdfast_store::{ArtefactChange, Change, ConfigRevision, Ticket, Unconfirmed};
use tokio::task::JoinHandle;

use super::{Commit, CommitKind};
use crate::examination::HandlerRounds;
use crate::publication::PreparedEntries;
use crate::request::{CommitOptions, ConfirmAction, Confirmation, Intent, LogNote, Reply};
use crate::service_history::ServiceRecord;

/// One commit in flight: its state machine, and what its effects need of the request.
#[derive(Debug)]
pub(crate) struct CommitInFlight {
    /// Ticket of the transaction in the store; ascends in the order of admission.
    pub(crate) ticket: Ticket,
    /// Number of the transaction, given when the store is to make it final.
    pub(crate) number: Option<u64>,
    pub(crate) machine: Commit,
    /// True for a commit that no other one runs beside.
    pub(crate) runs_alone: bool,
    /// Configuration of the last examination.
    pub(crate) base: Option<ExaminationBase>,
    /// Entries that the change writes, and those that its last examination has read.
    pub(crate) footprint: Option<Arc<Footprint>>,
    /// Commit that this one waits for.
    pub(crate) behind: Option<Ticket>,
    /// True once the commit no longer waits for others.
    pub(crate) is_clear: bool,
    /// True for the leases of all ports, which replace those of before as a whole.
    is_lease: bool,
    /// Cancelled when the client has gone.
    pub(crate) cancel: CancelToken,
    pub(crate) reply: Reply,
    pub(crate) options: CommitOptions,
    /// True when the commit that waits to be confirmed is taken back, by a rollback or a factory reset.
    pub(crate) is_rollback: bool,
    /// True for walks that instances of services need by themselves.
    pub(crate) is_reactive_walk: bool,
    /// True when earlier, accepted configuration is restored, which is not checked against the present state of the box.
    pub(crate) is_admitted: bool,
    /// True when an earlier state comes back, as far as possible, like at a start.
    pub(crate) is_best_effort: bool,
    /// Model of the paths in error messages.
    pub(crate) origin: Origin,
    /// gNSI artefacts that become final with the commit.
    pub(crate) artefacts: Vec<ArtefactChange>,
    /// The difference of its layers, if it is a configuration revision: that of the last examination.
    pub(crate) difference: Option<Box<LayerDifference>>,
    pub(crate) log_note: LogNote,
    /// Rows that have another content from the write on that makes the commit final.
    pub(crate) rows: Vec<Change>,
    /// Packages of services that the database keeps after the commit, or no longer: those of the last examination.
    pub(crate) packages: Vec<PackageChange>,
    /// Questions to handlers, with their answers.
    pub(crate) rounds: HandlerRounds,
    pub(crate) service_record: ServiceRecord,
    /// True for a change of the types of services.
    pub(crate) is_of_packages: bool,
    /// Entries that a thread lays out for the revision.
    pub(crate) prepared: Option<JoinHandle<Box<PreparedEntries>>>,
}

/// Configuration that an examination starts from.
#[derive(Clone, Debug)]
pub(crate) struct ExaminationBase {
    pub(crate) configuration: Configuration,
    /// Number of changes that were in force then, since the start of the core.
    pub(crate) applied: u64,
}

/// True for a change that has to do with everything: commits that must be confirmed, and what ends their wait; a
/// bootstrap, and types of services; going back, and a factory reset.
pub(crate) fn runs_alone(intent: &Intent, options: &CommitOptions) -> bool {
    match intent {
        Intent::Edit(_) | Intent::Restore(_) => options.confirmation.is_some(),
        Intent::Boot { change, .. } => matches!(change, BootChange::Bootstrap(..)),
        Intent::Lease(_) | Intent::Fence(_) => false,
        Intent::Walk(_) | Intent::Resurrect { .. } => false,
        Intent::Switch { .. } | Intent::Credentials(_) | Intent::Purge(_) => false,
        Intent::Rollback(_) | Intent::FactoryReset { .. } | Intent::Package(_) => true,
    }
}

impl CommitInFlight {
    /// The commit of a change, which takes over the artefacts of the change.
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
        let log_note = LogNote::new(intent, reply.from().is_some(), reply.is_local());
        Self {
            ticket,
            number: None,
            machine: Commit::new(kind),
            runs_alone: runs_alone(intent, &options),
            base: None,
            footprint: None,
            behind: None,
            is_clear: false,
            is_lease: matches!(intent, Intent::Lease(_)),
            cancel: intent.cancel(),
            reply,
            options,
            is_rollback: intent.is_rollback(),
            is_reactive_walk: intent.is_reactive_walk(),
            is_admitted: intent.is_admitted(),
            is_best_effort: intent.is_best_effort(),
            origin: intent.origin(),
            artefacts,
            difference: None,
            log_note,
            rows: Vec::new(),
            packages: Vec::new(),
            rounds: HandlerRounds::default(),
            service_record: ServiceRecord::new(intent),
            is_of_packages: matches!(intent, Intent::Package(_)),
            prepared: None,
        }
    }

    /// The confirmation of the commit that waits for it.
    pub(crate) fn confirmation(ticket: Ticket, reply: Reply, options: CommitOptions) -> Self {
        Self {
            ticket,
            number: None,
            machine: Commit::new(CommitKind::Recorded),
            runs_alone: true,
            base: None,
            footprint: None,
            behind: None,
            is_clear: true,
            is_lease: false,
            cancel: CancelToken::default(),
            reply,
            options,
            is_rollback: false,
            is_reactive_walk: false,
            is_admitted: false,
            is_best_effort: false,
            origin: Origin::OpenConfig,
            artefacts: Vec::new(),
            difference: None,
            log_note: LogNote::default(),
            rows: Vec::new(),
            packages: Vec::new(),
            rounds: HandlerRounds::default(),
            service_record: ServiceRecord::default(),
            is_of_packages: false,
            prepared: None,
        }
    }

    /// True when neither of two examined commits writes what the other reads or writes. A commit whose first examination
    /// is under way holds up no other one.
    pub(crate) fn keeps_clear_of(&self, other: &Self) -> bool {
        let (Some(own), Some(others)) = (&self.footprint, &other.footprint) else { return true };
        !(self.is_lease && other.is_lease) && own.keeps_clear_of(others)
    }

    /// Effect of the commit on the record of the commit that waits to be confirmed, if one does.
    pub(crate) fn unconfirmed(&self, waits: bool) -> Unconfirmed {
        match &self.options.confirmation {
            _ if self.is_rollback => Unconfirmed::Ends,
            Some(Confirmation { action: ConfirmAction::Begin { .. }, .. }) => Unconfirmed::Begins,
            _ if waits => Unconfirmed::Joins,
            _ => Unconfirmed::Stays,
        }
    }
}

impl CommitInFlight {
    /// The configuration revision that the commit is about to become, if its layers differ.
    pub(crate) fn take_revision(&mut self) -> Option<ConfigRevision> {
        let difference: LayerDifference = *self.difference.take()?;
        let Author { client, trace } = self.reply.author();
        Some(ConfigRevision {
            number: 0, // the store gives it
            time_ns: now_ns(),
            author: client,
            from: self.reply.from(),
            by: self.log_note.by,
            comment: self.reply.comment().map(ToString::to_string),
            trace,
            restored: self.log_note.restored.take(),
            difference,
        })
    }
}

impl CommitInFlight {
    /// Origin of its walks.
    pub(crate) fn origin(&self) -> ChangeOrigin {
        self.service_record.origin(&self.reply)
    }
}
