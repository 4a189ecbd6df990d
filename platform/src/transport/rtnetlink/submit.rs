//! Execution of operations: encoding, sending in windows, reporting each outcome.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_scheduler::{Action, Completion, Fact, Key, OpId, Operation, OperationError, Segment};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use nix::errno::Errno;
use tracing::{debug, warn};

use super::frame::KernelRefusal;
use super::teardown::together;
use super::window::WindowAnswers;
use super::{Event, RtnetlinkError, Task};
use crate::kinds::codec::{EncodeError, Request, Requests};
use crate::kinds::reading::Query;
use crate::kinds::route::{self, route_text};
use crate::kinds::{self};
use crate::rights::{self, Work};
use crate::transport::{sysctl, texts};
use crate::values::KernelRoute;

/// Index that no link has: `ifi_index` is signed and the kernel counts from 1.
const NO_LINK: u32 = i32::MAX as u32;
/// Most failed objects that are read back after a window; the engine asks for others itself.
const MAX_READ_BACK: usize = 64;

/// Operations accepted and not completed yet, in order.
#[derive(Debug, Default)]
pub(super) struct UnansweredOperations {
    operations: VecDeque<OpId>,
}

/// Operation of a message in the window.
struct WindowMessage {
    /// Position of the operation in the batch.
    operation: usize,
    /// Position of the message among those of its operation.
    nth: usize,
    accepted_errnos: &'static [i32],
}

/// A batch in progress: the messages in the window, and the outcomes of its operations.
pub(super) struct Batch {
    pub(super) operations: Vec<Operation>,
    owners: Vec<WindowMessage>,
    /// Number of operations whose outcome was reported.
    reported: usize,
    pub(super) failures: Vec<Failure>,
    /// Facts read back right after an operation, with its position.
    observed: Vec<(usize, Fact)>,
}

pub(super) struct Failure {
    pub(super) operation: usize,
    pub(super) nth: usize,
    pub(super) error: OperationError,
}

impl UnansweredOperations {
    fn accept(&mut self, operations: &[Operation]) {
        self.operations.extend(operations.iter().map(|operation| operation.id));
    }

    fn confirm(&mut self, count: usize) {
        self.operations.drain(..count);
    }

    pub(super) fn fail_all(&mut self, why: &str) -> Vec<Completion> {
        let failed =
            |op| Completion { op, result: Err(OperationError::message(why)), observed: None };
        self.operations.drain(..).map(failed).collect()
    }
}

impl Task {
    /// Carries a batch out. Facts that the kernel announces meanwhile are posted before the completions that they
    /// belong to.
    pub(super) fn submit(&mut self, operations: Vec<Operation>) {
        let last = operations.iter().map(|operation| operation.id).max();
        self.unanswered.accept(&operations);
        let mut batch = Batch {
            operations,
            owners: Vec::new(),
            reported: 0,
            failures: Vec::new(),
            observed: Vec::new(),
        };
        let mut position = 0;
        while position < batch.operations.len() {
            let is_live = |at: usize| self.cancelled.answer(batch.operations[at].id).is_none();
            let links = together(&batch.operations, position);
            if let Some(links) = links.filter(|links| links.clone().all(is_live)) {
                position = links.end;
                self.delete_links(&mut batch, links);
                continue;
            }
            match self.requests_of(&batch.operations[position]) {
                Ok(requests) => self.collect(&mut batch, position, requests),
                Err(error) => batch.failures.push(Failure { operation: position, nth: 0, error }),
            }
            position += 1;
            if self.window.is_full() {
                self.flush(&mut batch, position);
            }
        }
        self.flush(&mut batch, position);
        self.cancelled.answered(last);
    }

    /// Requests of an operation, or its error if it was cancelled.
    fn requests_of(&mut self, operation: &Operation) -> Result<Requests, OperationError> {
        match self.cancelled.answer(operation.id).map(|answer| answer.result) {
            Some(Err(error)) => Err(error),
            _ => self.encode(operation),
        }
    }

    /// Encodes an operation; a panic of the codec is a failure of the operation.
    pub(super) fn encode(&mut self, operation: &Operation) -> Result<Requests, OperationError> {
        let codecs = self.codecs;
        let links = &mut self.links;
        match catch_unwind(AssertUnwindSafe(|| (codecs.encode)(operation, links))) {
            Ok(Ok(requests)) => Ok(requests),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(OperationError::message("its codec panicked")),
        }
    }

    pub(super) fn collect(&mut self, batch: &mut Batch, operation: usize, requests: Requests) {
        for (nth, request) in requests.into_iter().enumerate() {
            match request {
                Request::Netlink { message, flags, forgiven } => {
                    self.window.push(&message, flags);
                    batch.owners.push(WindowMessage { operation, nth, accepted_errnos: forgiven });
                }
                Request::Sysctl { path, value } => {
                    self.flush(batch, operation); // the link may be created just before
                    match sysctl::write(&path, &value) {
                        Ok(()) => self.read_back(batch, operation),
                        Err(error) => {
                            let error = texts::failed(
                                Work::KernelVariable,
                                &format!("cannot write {path}"),
                                &error,
                            );
                            batch.failures.push(Failure { operation, nth, error });
                        }
                    }
                }
                _ => {
                    let error = OperationError::message("the operation does not belong to netlink");
                    batch.failures.push(Failure { operation, nth, error });
                }
            }
        }
    }

    fn read_back(&mut self, batch: &mut Batch, operation: usize) {
        let key = &batch.operations[operation].key;
        let Some(query) = Query::of(key) else { return };
        if let Ok(Some(fact)) = self.query(&query).map(|mut facts| facts.pop()) {
            batch.observed.push((operation, fact));
        }
    }

    /// Sends the window and reports the operations before `end`.
    pub(super) fn flush(&mut self, batch: &mut Batch, end: usize) {
        match self.window.exchange(&self.requests, &mut self.buffer) {
            Ok(answers) => self.judge(batch, answers),
            Err(error) => batch.fail_window(&send_error(&error)),
        }
        batch.owners.clear();
        let mut failures = batch.take_failures(end);
        self.name_routes_in_the_way(batch, &mut failures);
        self.clean_up(batch, &failures);
        self.drain_notifications();
        for failure in &mut failures {
            let operation = &batch.operations[failure.operation];
            if let Some(reason) = kinds::why_refused(operation, &self.links) {
                failure.error.message = reason;
            }
        }
        let completions = batch.completions(end, failures);
        self.unanswered.confirm(completions.len());
        self.mailbox.post(Event::Completed(completions));
    }

    fn judge(&mut self, batch: &mut Batch, answers: WindowAnswers) {
        for (position, refusal) in answers.refused {
            let Some(owner) = batch.owners.get(position) else { continue };
            if owner.accepted_errnos.contains(&refusal.errno) {
                continue;
            }
            let failure =
                Failure { operation: owner.operation, nth: owner.nth, error: failed(&refusal) };
            batch.failures.push(failure);
        }
        if answers.lost {
            warn!("answers of the kernel were lost: the operations of a window are in doubt");
            self.stale.all();
            batch.fail_window(&OperationError {
                errno: None,
                message: "the kernel's answer was lost".into(),
                transient: true,
            });
        }
    }

    /// Adds to the refusal of a route which other route is in its place: the kernel says "File exists" alone.
    fn name_routes_in_the_way(&mut self, batch: &Batch, failures: &mut [Failure]) {
        for failure in failures.iter_mut().filter(|failure| failure.error.exists()) {
            let key = &batch.operations[failure.operation].key;
            if let Some(route) = self.route_in_the_way(key) {
                failure.error.message = EncodeError::OthersRoute(route_text(&route)).to_string();
            }
        }
    }

    /// The route of any program with the destination and metric of a key.
    fn route_in_the_way(&mut self, wanted: &Key) -> Option<KernelRoute> {
        let Some(Query::Route(prefix)) = Query::of(wanted) else { return None };
        let route = self.best_route(prefix.network())?;
        (route::key(route.table, route.prefix, route.metric) == *wanted).then_some(route)
    }

    /// Rolls back partly created objects, and reads each failed object so that the engine sees its actual state.
    fn clean_up(&mut self, batch: &Batch, failures: &[Failure]) {
        let mut keys = Vec::new();
        let mut links = false;
        for failure in failures.iter().filter(|failure| !failure.error.is_cancelled()) {
            let operation = &batch.operations[failure.operation];
            debug!(key = %operation.key, error = %failure.error, "an operation failed");
            if operation.action == Action::Create {
                self.undo_creation(operation, failure.nth > 0);
                links |= operation.key.kind() == kinds::LINK;
            }
            keys.push(operation.key.clone());
            // Others may have changed the link without an announcement, such as by switching IPv6 off.
            keys.extend(link_below(&operation.key));
        }
        if links {
            // Failed creations may have reserved names of existing links.
            self.read_classes(&[&kinds::link::LINKS]);
        }
        keys.truncate(MAX_READ_BACK);
        self.read(keys);
    }

    /// Encodes the deletion of a partly created object, which also clears its reserved index. Sends it only if the
    /// first message, the creation itself, succeeded.
    fn undo_creation(&mut self, created: &Operation, send: bool) {
        let undo = Operation {
            action: Action::Delete,
            old: created.new.clone(),
            new: None,
            ..created.clone()
        };
        let Ok(requests) = self.encode(&undo) else { return };
        if !send {
            return;
        }
        for request in requests {
            if let Request::Netlink { message, flags, .. } = request {
                self.window.push(&message, flags);
            }
        }
        if let Err(error) = self.window.exchange(&self.requests, &mut self.buffer) {
            warn!(key = %created.key, %error, "cannot remove a partly created object");
        }
    }

    /// Sends an empty change for a missing link: the kernel checks permission before existence.
    pub(super) fn require_permission(&mut self) -> Result<(), RtnetlinkError> {
        let mut nothing = LinkMessage::default();
        nothing.header.index = NO_LINK;
        self.window.push(&RouteNetlinkMessage::SetLink(nothing), 1);
        let answers =
            self.window.exchange(&self.requests, &mut self.buffer).map_err(RtnetlinkError::Open)?;
        let refused = |errno| answers.refused.iter().any(|(_, refusal)| refusal.errno == errno);
        if refused(Errno::EPERM as i32) { Err(RtnetlinkError::NotPermitted) } else { Ok(()) }
    }
}

impl Batch {
    /// Fails every operation that has a message in the window.
    fn fail_window(&mut self, error: &OperationError) {
        for owner in &self.owners {
            let operation = owner.operation;
            let nth = owner.nth;
            self.failures.push(Failure { operation, nth, error: error.clone() });
        }
    }

    /// The first failure of each operation before `end`, in order.
    fn take_failures(&mut self, end: usize) -> Vec<Failure> {
        self.failures.sort_by_key(|failure| (failure.operation, failure.nth));
        self.failures.dedup_by_key(|failure| failure.operation);
        let count = self.failures.partition_point(|failure| failure.operation < end);
        self.failures.drain(..count).collect()
    }

    /// Completions of the operations before `end` that were not reported yet.
    fn completions(&mut self, end: usize, failures: Vec<Failure>) -> Vec<Completion> {
        let mut failures = failures.into_iter().peekable();
        let mut read_back = std::mem::take(&mut self.observed).into_iter().peekable();
        let operations = self.operations[self.reported..end].iter().zip(self.reported..);
        let completions = operations
            .map(|(operation, position)| {
                let failure = failures.next_if(|failure| failure.operation == position);
                let result = failure.map_or(Ok(()), |failure| Err(failure.error));
                let observed = read_back.next_if(|(of, _)| *of == position).map(|(_, fact)| fact);
                Completion { op: operation.id, result, observed }
            })
            .collect();
        self.reported = end;
        completions
    }
}

/// Key of the link that an address, neighbour or setting is on.
fn link_below(key: &Key) -> Option<Key> {
    let on_links = [kinds::ADDRESS, kinds::NEIGHBOR, kinds::LINK_MTU];
    match key.segments().next() {
        Some(Segment::Str(link)) if on_links.contains(&key.kind()) => Some(kinds::link::key(&link)),
        _ => None,
    }
}

/// Error of a refusal, with the kernel's message if there is one.
fn failed(refusal: &KernelRefusal) -> OperationError {
    let system = || Errno::from_raw(refusal.errno).desc().to_owned();
    let error = OperationError {
        errno: Some(refusal.errno),
        message: refusal.message.clone().unwrap_or_else(system),
        transient: is_transient(refusal.errno),
    };
    rights::named(error, Work::Network)
}

fn send_error(error: &io::Error) -> OperationError {
    OperationError {
        errno: error.raw_os_error(),
        message: format!("cannot send to the kernel: {error}"),
        transient: true,
    }
}

/// True when a retry may succeed although no dependency changes. An object that blocks a creation may be foreign,
/// so its removal gives no trigger.
fn is_transient(errno: i32) -> bool {
    matches!(
        Errno::from_raw(errno),
        Errno::EAGAIN
            | Errno::EBUSY
            | Errno::EEXIST
            | Errno::EINTR
            | Errno::ENOBUFS
            | Errno::ENOMEM
    )
}
