//! The thread of the database: it carries commands out in their order, and waits for nothing but the next one.
//!
//! Rows of a transaction can be laid out ahead of the decision to write them, which takes the one write transaction
//! that redb has at a time. A command that comes before the decision does not wait for it: the layout is given up,
//! and made again when the decision comes. So transactions that are decided in another order than they were laid out
//! in cannot wait for each other, and each is laid out at most twice.

use std::collections::VecDeque;

use holdfast_base::ErrorChain;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tracing::debug;

use super::{Change, Command, Database, Reply, StoreError, Ticket};

#[derive(Debug)]
pub(super) struct DatabaseThread {
    database: Database,
    command_rx: mpsc::Receiver<Command>,
    /// Transactions without a decision, in the order in which they came.
    undecided: VecDeque<UndecidedTransaction>,
    #[cfg(any(test, feature = "faults"))]
    stop: Option<super::faults::DiskStop>,
}

/// A transaction that is prepared once there is consent.
#[derive(Debug)]
struct UndecidedTransaction {
    ticket: Ticket,
    changes: Vec<Change>,
    answer: Reply<()>,
    was_laid_out: bool,
}

impl DatabaseThread {
    pub(super) fn new(database: Database, command_rx: mpsc::Receiver<Command>) -> Self {
        Self {
            database,
            command_rx,
            undecided: VecDeque::new(),
            #[cfg(any(test, feature = "faults"))]
            stop: None,
        }
    }

    /// Carries commands out until the store is closed, or no handle of it is left.
    pub(super) fn run(mut self) {
        let mut closing = None;
        while let Some(command) = self.next_command() {
            if let Command::Close { answer } = command {
                closing = Some(answer);
                break;
            }
            self.execute_unless_stopped(command);
        }
        self.database.finish_log();
        drop(self);
        if let Some(answer) = closing {
            drop(answer.send(Ok(())));
        }
    }

    #[cfg(not(any(test, feature = "faults")))]
    fn execute_unless_stopped(&mut self, command: Command) {
        self.execute(command);
    }

    /// Carries a command out, unless the disk has stopped.
    #[cfg(any(test, feature = "faults"))]
    fn execute_unless_stopped(&mut self, mut command: Command) {
        let Self { stop, undecided, .. } = self;
        let prepared = match &command {
            Command::Decide { ticket, .. } => undecided.iter_mut().find(|it| it.ticket == *ticket),
            _ => None,
        };
        let prepared = prepared.map(|it| &mut it.answer);
        if stop.as_mut().is_none_or(|stop| stop.lets_pass(&mut command, prepared)) {
            self.execute(command);
        }
        self.stop.iter_mut().for_each(super::faults::DiskStop::report);
    }

    /// Waits for a command. Until it comes, rows are laid out ahead.
    fn next_command(&mut self) -> Option<Command> {
        loop {
            match self.command_rx.try_recv() {
                Ok(command) => return Some(command),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) if self.lay_out_ahead() => {}
                Err(TryRecvError::Empty) => return self.command_rx.blocking_recv(),
            }
        }
    }

    /// Lays the rows of one transaction out, unless others are laid out; true if it was tried.
    pub(super) fn lay_out_ahead(&mut self) -> bool {
        if self.database.has_layout() {
            return false;
        }
        let Some(next) = self.undecided.iter_mut().find(|it| !it.was_laid_out) else {
            return false;
        };
        next.was_laid_out = true;
        let UndecidedTransaction { ticket, changes, .. } = next;
        let laid_out = attempt(&mut self.database, |database| database.lay_out(*ticket, changes));
        if let Err(error) = laid_out {
            // It is tried again once there is consent, and answered then.
            debug!(error = %ErrorChain(&error), "rows cannot be laid out ahead");
        }
        true
    }

    pub(super) fn execute(&mut self, command: Command) {
        let database = &mut self.database;
        match command {
            Command::Prepare { ticket, changes, answer } => {
                let undecided =
                    UndecidedTransaction { ticket, changes, answer, was_laid_out: false };
                self.undecided.push_back(undecided);
            }
            Command::Decide { ticket, is_wanted } => self.decide(ticket, is_wanted),
            Command::Commit { ticket, number, unconfirmed, content, answer } => {
                answer_with(database, answer, |database| {
                    database.commit_with(ticket, number, unconfirmed, &content)
                });
            }
            Command::Confirm { answer } => answer_with(database, answer, Database::confirm),
            Command::Abort { ticket, answer } => {
                answer_with(database, answer, |database| database.abort(ticket));
            }
            Command::Write { changes, answer } => {
                answer_with(database, answer, |database| database.write(&changes));
            }
            Command::WriteOver { changes, answer } => {
                answer_with(database, answer, |database| database.write_over(&changes));
            }
            Command::ForgetTakenBack { answer } => {
                answer_with(database, answer, Database::forget_taken_back);
            }
            Command::Revisions { range, answer } => {
                answer_with(database, answer, |database| database.revisions(range));
            }
            Command::RowsAt { target, answer } => {
                answer_with(database, answer, |database| database.rows_at(&target));
            }
            Command::SetCheckpoint { checkpoint, answer } => {
                answer_with(database, answer, |database| database.set_checkpoint(checkpoint));
            }
            Command::DeleteCheckpoint { name, answer } => {
                answer_with(database, answer, |database| database.delete_checkpoint(&name));
            }
            Command::Checkpoints { answer } => {
                answer_with(database, answer, |database| database.checkpoints());
            }
            Command::WriteArtefacts { changes, answer } => {
                answer_with(database, answer, |database| database.write_artefacts(&changes));
            }
            Command::SetUser { user, answer } => {
                answer_with(database, answer, |database| database.set_user(&user));
            }
            Command::DeleteUser { name, answer } => {
                answer_with(database, answer, |database| database.delete_user(&name));
            }
            #[cfg(any(test, feature = "faults"))]
            Command::Refuse { fault, answer } => {
                database.fault = Some(fault);
                drop(answer.send(Ok(())));
            }
            #[cfg(any(test, feature = "faults"))]
            Command::StopAt { stop, answer } => {
                self.stop = Some(stop);
                drop(answer.send(Ok(())));
            }
            Command::Close { answer } => drop(answer.send(Ok(()))),
        }
    }

    #[cfg(test)]
    pub(super) fn block_work(&self) -> crate::BlockWork {
        self.database.block_work()
    }

    /// Prepares a transaction that waited for this decision, or gives it up.
    fn decide(&mut self, ticket: Ticket, is_wanted: bool) {
        let Some(place) = self.undecided.iter().position(|it| it.ticket == ticket) else { return };
        let Some(UndecidedTransaction { changes, answer, .. }) = self.undecided.remove(place)
        else {
            return;
        };
        if is_wanted {
            answer_with(&mut self.database, answer, |database| database.prepare(ticket, &changes));
        } else {
            self.database.discard_layout(ticket);
            drop(answer.send(Err(StoreError::Withdrawn { ticket })));
        }
    }
}

/// Runs one command and sends its answer, which may have no receiver any more.
fn answer_with<T>(
    database: &mut Database,
    answer: Reply<T>,
    work: impl FnOnce(&mut Database) -> Result<T, StoreError>,
) {
    let result = attempt(database, work);
    database.tell_health(&result);
    drop(answer.send(result));
}

fn attempt<T>(
    database: &mut Database,
    work: impl FnOnce(&mut Database) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let result = database.mend().and_then(|()| work(database));
    database.note(&result);
    result
}
