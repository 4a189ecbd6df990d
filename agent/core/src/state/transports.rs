//! The transports, and what is on its way to them.

use holdfast_platform::transport::Transport;
use holdfast_scheduler::{Key, OpId, Operation, SharedValue};
use holdfast_store::Change;

use super::outbox::{Batch, Outbox};

/// Work that one step of the engine has for the transports.
#[derive(Debug)]
pub(crate) struct TransportWork {
    pub(crate) restores: Vec<(Key, Option<SharedValue>)>,
    pub(crate) submit: Vec<Operation>,
    pub(crate) cancel: Vec<OpId>,
    pub(crate) read: Vec<Key>,
    /// True when everything is to be read.
    pub(crate) retrieve: bool,
}

pub(crate) struct Transports {
    transport: Box<dyn Transport>,
    outbox: Outbox,
}

impl Transports {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Self {
        Self { transport, outbox: Outbox::default() }
    }

    /// True when nothing waits for the store. The end of a pre-image has no operation for which the engine waits, so an
    /// engine that is idle does not say so.
    pub(crate) fn is_idle(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Has everything read.
    pub(crate) fn retrieve(&mut self) {
        self.transport.retrieve();
    }

    /// Hands work out, or has it wait. Returns rows that the store is to write before anything more goes, if it is to begin.
    pub(crate) fn hand_out(&mut self, work: TransportWork) -> Option<Vec<Change>> {
        let TransportWork { restores, submit, cancel, read, retrieve } = work;
        if !cancel.is_empty() {
            self.transport.cancel(cancel);
        }
        if retrieve {
            self.transport.retrieve();
        }
        match self.outbox.push(Batch { restores, submit, read }) {
            Some(batch) => self.submit(batch),
            None if self.outbox.has_new_first() => return self.outbox.rows(),
            None => {}
        }
        None
    }

    /// Takes out the operations that lack pre-images because the store refused them.
    pub(crate) fn take_refused(&mut self) -> Vec<Operation> {
        self.outbox.take_refused()
    }

    /// Notes that the store has all rows that it was given.
    pub(crate) fn note_written(&mut self) {
        self.outbox.note_written();
    }

    /// Hands out the first batch that waited, then what waits behind it. Returns the rows that the store is to write next.
    pub(crate) fn go_on(&mut self) -> Option<Vec<Change>> {
        while let Some(batch) = self.outbox.pop() {
            self.submit(batch);
            if self.outbox.is_first_held() {
                return self.outbox.rows();
            }
        }
        None
    }

    fn submit(&mut self, batch: Batch) {
        let Batch { submit, read, .. } = batch;
        if !submit.is_empty() {
            self.transport.submit(submit);
        }
        if !read.is_empty() {
            self.transport.read(read);
        }
    }
}
