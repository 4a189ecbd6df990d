//! Handlers of services: processes outside of the agent that do the work of states.
//!
//! ```text
//! process -- Register --> session                                     a walk needs work
//!                            |                                               |
//!                            | <------ ServicesCommit -- transaction <-------+ ask
//!                            | -- Edit, Edit, Done ----> claims -------------> answers --> walked again
//!                            | <-- Closed -------------- committed, or not
//! ```
//!
//! Start at [`Handlers::attach`] for the way in, at the implementation of [`HandlerCalls`] for the way of a question. The
//! [`registry`] knows who takes what, and never waits. The agent starts no handler: the service manager of the box does.
//! A handler that is lost has its open calls fail at once; what its services made stays.
//!
//! Actions have a way of their own ([`actions`]): they are sent one by one, and outlive their handler and the agent.

mod actions;
mod messages;
mod publishing;
mod registry;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use holdfast_base::{AuthMethod, Caller};
use holdfast_config::json::{self, Flavour};
use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Answers, CallPlace, EditContent, HandlerAnswer, HandlerCall, HandlerOutline, LeafRead, Plane,
    TypeVersion, WorkFailureKind,
};
use holdfast_config::{Configuration, InstancePath, Models, ServiceTag, Value};
use holdfast_core::{
    CoreHandle, Datastore, HandlerCalls, HandlerQuestion, HandlerReply, HandlerTransaction,
};
use nix::unistd::User;
use smol_str::SmolStr;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{info, warn};

use self::messages::reason_of_handler;
pub use self::messages::{
    ActionName, ActionNews, ActionRequest, AgentMessage, HandlerError, HandlerErrorKind,
    HandlerMessage, OwnedEdit, ReadQuestion, ReadSource, Registration, ReportedProgress,
    ServedWork,
};
use self::publishing::PublishedLeaves;
use self::registry::{
    BegunTransaction, CallSnapshot, MAX_OPEN_CALLS, MOST_WORK_TIME, Outgoing, Registry, SentCalls,
    SessionId, WORK_TIME, failed,
};

/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Unanswered pings after which a handler is lost.
const MAX_MISSED: u32 = 3;

/// Bounds that a handler is told of: open calls, and seconds for its work, at first and at most.
pub const BOUNDS: (usize, u64, u64) =
    (MAX_OPEN_CALLS, WORK_TIME.as_secs(), MOST_WORK_TIME.as_secs());

/// The handlers of a box; clones share them.
#[derive(Clone, Debug)]
pub struct Handlers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registry: Mutex<Registry>,
    published: PublishedLeaves,
    /// Moves when a handler was attached or is gone, and when an action has to be sent again.
    moved_tx: watch::Sender<u64>,
    core: OnceLock<CoreHandle>,
}

/// Takes the messages of one handler, which is detached when this is dropped.
#[derive(Debug)]
pub struct AttachedSession {
    handlers: Handlers,
    id: SessionId,
}

impl Default for Handlers {
    fn default() -> Self {
        let registry = Mutex::default();
        let published = PublishedLeaves::default();
        let core = OnceLock::new();
        let moved_tx = watch::Sender::new(0);
        Self(Arc::new(Shared { registry, published, moved_tx, core }))
    }
}

impl Handlers {
    /// Lets handlers attach from now on.
    pub fn begin(&self, core: CoreHandle) {
        // It is called once.
        let _ = self.0.core.set(core);
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each change of it is whole before anything that may panic.
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn core(&self) -> Result<&CoreHandle, HandlerError> {
        let text = "the agent is starting";
        self.0.core.get().ok_or_else(|| HandlerError::new(HandlerErrorKind::Unavailable, text))
    }

    fn configuration(&self) -> Result<Configuration, HandlerError> {
        Ok(self.core()?.configuration())
    }

    /// Attaches a handler that may serve what it registers for.
    ///
    /// # Errors
    /// When it may not, when an outline has no such calls, or when another handler takes them.
    pub fn attach(
        &self,
        caller: &Caller,
        registration: Registration,
    ) -> Result<(AttachedSession, mpsc::Receiver<Outgoing>), HandlerError> {
        check_registration(&self.configuration()?, caller, &registration)?;
        let name = registration.name.clone();
        let (id, outbox_rx) = self.registry().attach(caller.name.clone(), registration)?;
        info!(handler = %name, caller = %caller.name, "a handler of services is attached");
        self.note_moved();
        Ok((AttachedSession { handlers: self.clone(), id }, outbox_rx))
    }

    /// Leaves that a handler may read, with their paths.
    ///
    /// # Errors
    /// When the caller serves no such call or type, or the path is not in the grants.
    pub fn read(
        &self,
        caller: &Caller,
        question: &ReadQuestion,
    ) -> Result<Vec<(String, String)>, HandlerError> {
        let configuration = self.configuration()?;
        let ReadQuestion { source, plane, path } = question;
        let services = configuration.services();
        let readable = |by: TypeVersion<'_>| {
            let services = services.ok_or_else(|| no_type(by.service))?;
            services.readable(by, *plane, path).map_err(HandlerError::from)
        };
        let (of_call, read, ground, state) = match source {
            ReadSource::Call(tid, number) => {
                let (id, snapshot) = self.registry().snapshot(&caller.name, *tid, *number)?;
                let CallSnapshot { call, ground, state } = snapshot;
                (Some((*tid, id, *number)), readable(call.type_version())?, ground, state)
            }
            ReadSource::Newest(service) => {
                check_caller(&configuration, caller, service)?;
                let read = readable(TypeVersion::newest(service))?;
                let state = Arc::new(self.core()?.observed_box());
                (None, read, configuration.ground(), state)
            }
        };
        let leaves = leaves(&read, |pattern| match (plane, read.origin) {
            (Plane::State, origin) => state.state(origin, pattern),
            (Plane::Ground, Origin::Native) => ground.effective().leaves(pattern),
            (Plane::Ground, origin) => ground.config_view(origin).leaves(pattern),
        });
        if let Some((tid, id, call)) = of_call {
            let values = leaves.iter().map(|(_, value)| value.clone()).collect();
            self.registry().note_read(tid, id, call, read.clone(), values)?;
        }
        Ok(leaves.iter().map(|leaf| shown(configuration.models(), read.origin, leaf)).collect())
    }

    /// A receiver that moves when a handler was attached or is gone, and when an action has to be sent again.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.0.moved_tx.subscribe()
    }

    fn note_moved(&self) {
        self.0.moved_tx.send_modify(|number| *number += 1);
    }

    /// A receiver that moves when a handler was attached or detached.
    pub(crate) fn watch_served(&self) -> watch::Receiver<u64> {
        self.registry().watch_served()
    }

    /// Types of services with instances whose work nobody does, since the handler of the name is gone.
    pub(crate) fn lost(&self) -> Vec<(SmolStr, SmolStr)> {
        let Ok(configuration) = self.configuration() else { return Vec::new() };
        let services = configuration.services();
        let is_loaded =
            |service: &SmolStr| services.is_some_and(|it| it.handler(service).is_some());
        let lost = self.registry().lost().into_iter().flat_map(|(name, services)| {
            services.into_iter().map(move |service| (service, name.clone()))
        });
        let book = &configuration.layers().book;
        let has_work =
            |service: &SmolStr| is_loaded(service) && book.of_type(service).next().is_some();
        lost.filter(|(service, _)| has_work(service)).collect()
    }

    /// Name of the handler that takes a call.
    pub(super) fn holder(&self, place: &CallPlace) -> Option<SmolStr> {
        self.registry().holder(place)
    }

    /// Types of the handlers that have attached since the last time.
    pub(super) fn take_due_services(&self) -> BTreeSet<SmolStr> {
        self.registry().take_due_services()
    }

    /// Notes the instances with calls for the handlers that wait for their first ones.
    pub(super) fn await_walks(&self, tags: &BTreeSet<ServiceTag>) {
        self.registry().await_walks(tags);
    }

    /// Notes instances whose walks have ended.
    pub(super) fn note_walked(&self, tags: &BTreeSet<ServiceTag>) {
        self.registry().note_walked(tags);
    }

    /// Forgets answers for instances that are gone.
    pub(super) fn forget(&self, gone: &BTreeSet<ServiceTag>) {
        self.registry().forget(gone);
    }

    /// Answers at hand, and the calls that handlers take.
    pub(super) fn answers_at_hand(&self) -> Answers {
        self.registry().answers()
    }

    /// Has all handlers end, because the agent does.
    pub fn drain(&self) {
        self.registry().drain();
    }
}

/// Leaves at all patterns of a read.
fn leaves(
    read: &LeafRead,
    at: impl Fn(&holdfast_config::PathPattern) -> Vec<(InstancePath, Value)>,
) -> Vec<(InstancePath, Value)> {
    read.patterns.iter().flat_map(at).collect()
}

fn shown(
    models: &Models,
    origin: Origin,
    (path, value): &(InstancePath, Value),
) -> (String, String) {
    let schema = models.schema(origin);
    let node = path.last().map_or(schema.root(), |step| step.node);
    let json = json::print_value(schema, node, value, Flavour::Ietf);
    let prefix = if origin == Origin::OpenConfig { "openconfig:" } else { "" };
    (format!("{prefix}{}", path.to_path(schema)), String::from_utf8_lossy(&json).into_owned())
}

fn no_type(service: &str) -> HandlerError {
    let text = format!("there is no type of services `{service}` with handlers");
    HandlerError::new(HandlerErrorKind::Invalid, text)
}

/// The outline of a type that a caller may serve.
fn check_caller(
    configuration: &Configuration,
    caller: &Caller,
    service: &str,
) -> Result<HandlerOutline, HandlerError> {
    let outline = configuration.services().and_then(|services| services.handler(service));
    let outline = outline.ok_or_else(|| no_type(service))?;
    let may_serve = match caller.auth_method {
        AuthMethod::Local { uid } => is_user(outline.user.as_deref(), uid),
        AuthMethod::Certificate => outline.identities.contains(&caller.name),
        AuthMethod::Password | AuthMethod::NameWithCertificate => false,
    };
    if !may_serve {
        let text = format!("`{}` may not serve `{service}`: its outline names others", caller.name);
        return Err(HandlerError::new(HandlerErrorKind::Denied, text));
    }
    Ok(outline)
}

/// True when the user of this name has this id.
fn is_user(name: Option<&str>, uid: u32) -> bool {
    let user = name.and_then(|name| User::from_name(name).ok().flatten());
    user.is_some_and(|user| user.uid.as_raw() == uid)
}

fn check_registration(
    configuration: &Configuration,
    caller: &Caller,
    registration: &Registration,
) -> Result<(), HandlerError> {
    registration.check_name()?;
    if registration.calls.is_empty() && registration.actions.is_empty() {
        let text = "a registration has a name, and calls or actions";
        return Err(HandlerError::new(HandlerErrorKind::Invalid, text));
    }
    for served in &registration.calls {
        let outline = check_caller(configuration, caller, &served.service)?;
        let is_marked = outline.calls.iter().any(|(component, state, phase)| {
            let is = |own: &Option<SmolStr>, other: &SmolStr| {
                own.as_ref().is_none_or(|own| own == other)
            };
            is(&served.component, component) && is(&served.state, state) && served.phase == *phase
        });
        // Who takes whatever there is takes nothing of a phase that the outline leaves out.
        let takes_all =
            served.component.is_none() && served.state.is_none() && !served.phase.is_modification();
        let has_work = !(outline.calls.is_empty() && outline.actions.is_empty());
        let is_accepted = is_marked || (takes_all && has_work);
        if !is_accepted {
            let text = format!(
                "the outline of `{}` has no {} work for a handler",
                served.service,
                served.phase.name()
            );
            return Err(HandlerError::new(HandlerErrorKind::Invalid, text));
        }
    }
    for name in &registration.actions {
        let outline = check_caller(configuration, caller, &name.service)?;
        if !outline.actions.contains(&name.action) {
            let text = format!("the outline has no {name} for a handler");
            return Err(HandlerError::new(HandlerErrorKind::Invalid, text));
        }
    }
    match registration.idempotent_actions.difference(&registration.actions).next() {
        None => Ok(()),
        Some(name) => {
            let text = format!("{name} is among the idempotent actions, and not among the actions");
            Err(HandlerError::new(HandlerErrorKind::Invalid, text))
        }
    }
}

impl AttachedSession {
    /// Handles the messages of the handler until it has gone.
    pub async fn serve(
        self,
        mut messages: impl Stream<Item = Result<HandlerMessage, HandlerError>> + Unpin,
    ) {
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let mut missed = 0;
        let end = loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(Ok(HandlerMessage::Pong)) => missed = 0,
                    Some(Ok(message)) => self.receive(message).await,
                    Some(Err(error)) => break Some(error),
                    None => break None,
                },
                _ = pings.tick() => {
                    if missed == MAX_MISSED {
                        let text = format!("{MAX_MISSED} pings were not answered");
                        break Some(HandlerError::new(HandlerErrorKind::Unavailable, text));
                    }
                    missed += 1;
                    if !self.handlers.registry().send(self.id, AgentMessage::Ping) {
                        break None;
                    }
                }
            }
        };
        self.detach(end);
    }

    async fn receive(&self, message: HandlerMessage) {
        let (tid, action) = match &message {
            HandlerMessage::Edit { tid, .. }
            | HandlerMessage::Done { tid, .. }
            | HandlerMessage::Error { tid, .. }
            | HandlerMessage::More { tid, .. } => (*tid, 0),
            HandlerMessage::Action { id, .. } => (0, *id),
            HandlerMessage::Publish { .. } | HandlerMessage::Pong => (0, 0),
        };
        if let Err(error) = self.handle(message).await {
            self.handlers.registry().send(self.id, AgentMessage::Refused { tid, action, error });
        }
    }

    async fn handle(&self, message: HandlerMessage) -> Result<(), HandlerError> {
        let id = self.id;
        match message {
            HandlerMessage::Edit { tid, call, content, creator } => {
                self.edit(tid, call, &content, &creator)
            }
            HandlerMessage::Done { tid, served } => self.handlers.registry().done(tid, id, &served),
            HandlerMessage::Error { tid, origin, reason } => {
                let mut registry = self.handlers.registry();
                let name = registry.name(id);
                let origin = if origin.is_empty() { name.as_str() } else { &origin };
                let origin = excerpt(origin);
                let reason = reason_of_handler(&reason);
                registry.fail(tid, id, &format!("failed in {origin}: {reason}"))
            }
            HandlerMessage::More { tid, seconds } => {
                let deadline = Instant::now() + Duration::from_secs(seconds.into());
                self.handlers.registry().extend(tid, id, deadline)
            }
            HandlerMessage::Publish { path, json } => {
                let core = self.handlers.core()?;
                let by = self.handlers.registry().publisher(id);
                self.handlers.0.published.publish(core, by, &path, &json).await
            }
            HandlerMessage::Action { id: action, news } => {
                self.handlers.note_news(id, action, news)
            }
            HandlerMessage::Pong => Ok(()),
        }
    }

    /// Adds an edit to the claim of a call. A refused edit fails the call.
    fn edit(
        &self,
        tid: u64,
        call: usize,
        content: &OwnedEdit,
        creator: &str,
    ) -> Result<(), HandlerError> {
        let (of, mut claim) =
            self.handlers.registry().claim(tid, self.id, call, content.octets())?;
        let tag = &of.place.state.tag;
        let added = check_creator(tag, creator).and_then(|()| {
            let configuration = self.handlers.configuration()?;
            let services = configuration.services().ok_or_else(|| no_type(&tag.service))?;
            let edit = match content {
                OwnedEdit::Lines(text) => EditContent::Lines(text),
                OwnedEdit::Document { path, value } => {
                    EditContent::Document { path, value: value.as_bytes() }
                }
            };
            Ok(services.add_edit(of.type_version(), &mut claim, edit)?)
        });
        self.handlers.registry().set_claim(tid, self.id, call, added.map(|()| claim))
    }

    fn detach(self, end: Option<HandlerError>) {
        if let Some(error) = &end {
            let name = self.handlers.registry().name(self.id);
            warn!(handler = %name, reason = %error, "a handler of services is detached");
        }
        self.handlers.registry().detach(self.id, end);
    }
}

impl Drop for AttachedSession {
    fn drop(&mut self) {
        self.handlers.registry().detach(self.id, None);
        self.handlers.note_moved();
        if let Some(core) = self.handlers.0.core.get() {
            let handlers = self.handlers.clone();
            let core = core.clone();
            let id = self.id;
            // At the end of the process there is nobody who would see the leaves.
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move { handlers.0.published.withdraw_late(&core, id).await });
            }
        }
    }
}

/// Checks the instance that an edit names.
fn check_creator(tag: &ServiceTag, creator: &str) -> Result<(), HandlerError> {
    if creator.is_empty() {
        return Ok(());
    }
    let named: ServiceTag = creator.parse().map_err(|form| {
        HandlerError::new(HandlerErrorKind::Invalid, format!("creator `{creator}`: {form}"))
    })?;
    if named.service != tag.service {
        let text = format!("creator `{creator}` is of another type than `{tag}`");
        return Err(HandlerError::new(HandlerErrorKind::Denied, text));
    }
    if named != *tag {
        let text =
            format!("creator `{creator}` is another instance than that of the call, `{tag}`");
        return Err(HandlerError::new(HandlerErrorKind::Invalid, text));
    }
    Ok(())
}

impl HandlerCalls for Handlers {
    fn answers(&self) -> Answers {
        self.answers_at_hand()
    }

    fn ask(&self, question: HandlerQuestion) -> BoxFuture<'static, HandlerReply> {
        let begun = self.registry().begin(&question, Instant::now());
        let BegunTransaction { tid, sent, answers } = begun;
        let transaction = OpenTransaction { handlers: self.clone(), tid, answers: None };
        wait(transaction, sent, answers).boxed()
    }
}

/// Waits for the answers of all handlers, or for the first failure.
async fn wait(
    mut transaction: OpenTransaction,
    sent: Vec<SentCalls>,
    mut answers: Vec<(HandlerCall, HandlerAnswer)>,
) -> HandlerReply {
    let is_failure = |(_, answer): &(_, _)| matches!(answer, HandlerAnswer::Failed { .. });
    let mut open: FuturesUnordered<_> = sent.into_iter().map(answers_of).collect();
    while !answers.iter().any(is_failure)
        && let Some(more) = open.next().await
    {
        answers.extend(more);
    }
    transaction.answers = Some(answers.clone());
    HandlerReply { answers, transaction: Box::new(transaction) }
}

/// Answers of one handler.
async fn answers_of(sent: SentCalls) -> Vec<(HandlerCall, HandlerAnswer)> {
    let SentCalls { calls, mut answer_rx, mut deadline_rx } = sent;
    let answers = loop {
        let deadline = *deadline_rx.borrow_and_update();
        tokio::select! {
            biased;
            answered = &mut answer_rx => break answered.ok(),
            () = sleep_until(deadline) => {
                let late = failed(WorkFailureKind::Late, "the handler did not answer in time");
                break Some(vec![late; calls.len()]);
            }
            changed = deadline_rx.changed() => if changed.is_err() {
                break answer_rx.await.ok();
            },
        }
    };
    let lost = || vec![failed(WorkFailureKind::Unavailable, "handler lost"); calls.len()];
    let answers = answers.unwrap_or_else(lost);
    calls.into_iter().zip(answers).collect()
}

/// A transaction that handlers know of.
#[derive(Debug)]
struct OpenTransaction {
    handlers: Handlers,
    tid: u64,
    /// The answers; `None` once the end was reported.
    answers: Option<Vec<(HandlerCall, HandlerAnswer)>>,
}

impl HandlerTransaction for OpenTransaction {
    fn tid(&self) -> u64 {
        self.tid
    }

    fn end(mut self: Box<Self>, result: Result<(), String>) {
        let answers = self.answers.take().unwrap_or_default();
        self.handlers.registry().end(self.tid, &result, answers);
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        // After its end, the registry does not know it any more.
        self.handlers.registry().end(self.tid, &Err(String::new()), Vec::new());
    }
}
