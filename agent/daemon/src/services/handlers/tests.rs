//! Handlers beside the agent on the simulated kernel, with a clock of the test.

mod interleavings;
mod kills;
mod publishing;
mod queue;
mod stepped;
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Role;
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::services::{CallPhase, ServedCall, WorkFailureKind};
use holdfast_config::{ClaimKey, EditCause};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, ConfirmAction, Confirmation, Intent};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_services::ServiceTypes;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::*;
use crate::agent_tests::service_transactions::why;
use crate::agent_tests::{Agent, LIMIT, LINK_UP, TestType, memory_folder};

/// A type with one state of a handler, which has these lines.
fn type_with(lines: &str) -> TestType {
    let lines = format!("work = \"handler\"\n{lines}");
    TestType::new().handler("").component("port").state("sized", &lines)
}

/// An agent with such a type, and the folder that it lives in.
async fn agent() -> (Agent, TempDir) {
    agent_of(type_with("").types()).await
}

/// An agent with these types.
async fn agent_of(types: ServiceTypes) -> (Agent, TempDir) {
    let folder = memory_folder();
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    (Agent::start_with(&kernel, folder.path(), types).await, folder)
}

fn user(name: &str) -> Caller {
    let uid = nix::unistd::geteuid().as_raw();
    let auth_method = AuthMethod::Local { uid };
    Caller { name: name.into(), role: Role::Admin, auth_method, peer: None }
}

fn edit(path: &str, json: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    let payload = Payload::Json { text: json.as_bytes().to_vec().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

/// The deletion of an instance.
fn deletion(path: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    Edit { deletes: vec![target], ..Edit::default() }
}

/// Lets the agent go on until something is so.
async fn until(agent: &Agent, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            agent.turns().await;
        }
    };
    timeout(LIMIT, waiting).await.expect("it comes in time");
}

/// A Set under way.
type Pending = JoinHandle<Result<CommitStamp, CommitError>>;

fn set_with(agent: &Agent, path: &str, json: &str, options: CommitOptions) -> Pending {
    let core = agent.handle.clone();
    let edit = edit(path, json);
    tokio::spawn(async move { core.commit(&user("ada"), edit, options).await })
}

fn set(agent: &Agent, path: &str, json: &str) -> Pending {
    set_with(agent, path, json, CommitOptions::default())
}

const ACME: &str = "/services/access[name=acme]";
const BOLT: &str = "/services/access[name=bolt]";
const ETH1: &str = r#"{"port":"eth1"}"#;
const MTU: &str = "/interfaces/interface[name=eth1]/mtu";
const OTHER_MTU: &str = "/interfaces/interface[name=eth0]/mtu";

/// An attached handler that does what a test says.
struct TestHandler {
    handlers: Handlers,
    message_tx: Option<mpsc::Sender<Result<HandlerMessage, HandlerError>>>,
    outbox_rx: mpsc::Receiver<Outgoing>,
}

fn registration() -> Registration {
    let call = ServedCall {
        service: "access".into(),
        component: None,
        state: None,
        phase: CallPhase::Create,
    };
    let calls = BTreeSet::from([call]);
    Registration { name: "shelf".into(), calls, ..Registration::default() }
}

impl TestHandler {
    async fn attach(agent: &Agent) -> Self {
        Self::attach_for(agent, [CallPhase::Create]).await
    }

    async fn attach_for(agent: &Agent, phases: impl IntoIterator<Item = CallPhase>) -> Self {
        let mut registration = registration();
        let call = registration.calls.pop_first().unwrap();
        registration
            .calls
            .extend(phases.into_iter().map(|phase| ServedCall { phase, ..call.clone() }));
        Self::attach_with(agent, registration).await
    }

    async fn attach_with(agent: &Agent, registration: Registration) -> Self {
        let mut handler = Self::connect(agent, registration);
        handler.next(|it| matches!(it, AgentMessage::Synced).then_some(())).await;
        handler
    }

    /// Attaches a handler, and reads nothing yet.
    fn connect(agent: &Agent, registration: Registration) -> Self {
        let handlers = agent.services.handlers().clone();
        let (session, outbox_rx) = handlers.attach(&user("shelf"), registration).unwrap();
        let (message_tx, message_rx) = mpsc::channel(16);
        tokio::spawn(session.serve(ReceiverStream::new(message_rx)));
        Self { handlers, message_tx: Some(message_tx), outbox_rx }
    }

    async fn say(&self, message: HandlerMessage) {
        self.message_tx.as_ref().unwrap().send(Ok(message)).await.unwrap();
    }

    /// The next message that is wanted; pings are left unanswered.
    async fn next<T>(&mut self, wanted: impl Fn(&AgentMessage) -> Option<T>) -> T {
        loop {
            let message = self.outbox_rx.recv().await.expect("the stream is open").unwrap();
            if let Some(found) = wanted(&message) {
                return found;
            }
        }
    }

    /// The next transaction: its number, and its calls with theirs.
    async fn numbered_calls(&mut self) -> (u64, Vec<(usize, HandlerCall)>) {
        let calls = |it: &AgentMessage| match it {
            AgentMessage::ServicesCommit { tid, calls, .. } => Some((*tid, calls.clone())),
            _ => None,
        };
        self.next(calls).await
    }

    /// The next transaction: its number, and its calls.
    async fn calls(&mut self) -> (u64, Vec<HandlerCall>) {
        let (tid, calls) = self.numbered_calls().await;
        (tid, calls.into_iter().map(|(_, call)| call).collect())
    }

    /// The messages that were sent since the last one that was taken.
    fn sent(&mut self) -> Vec<AgentMessage> {
        std::iter::from_fn(|| self.outbox_rx.try_recv().ok()).filter_map(Result::ok).collect()
    }

    /// The next transaction: its number, and whether it is a dry run.
    async fn commit(&mut self) -> (u64, bool) {
        let commit = |it: &AgentMessage| match it {
            AgentMessage::ServicesCommit { tid, is_dry_run, .. } => Some((*tid, *is_dry_run)),
            _ => None,
        };
        self.next(commit).await
    }

    /// The next call, alone in its transaction.
    async fn called(&mut self) -> (u64, HandlerCall) {
        let called = |it: &AgentMessage| match it {
            AgentMessage::ServicesCommit { tid, calls, .. } => Some((*tid, calls[0].1.clone())),
            _ => None,
        };
        self.next(called).await
    }

    /// Result of the next transaction that ends.
    async fn closed(&mut self) -> Result<(), String> {
        let closed = |it: &AgentMessage| match it {
            AgentMessage::Closed { result, .. } => Some(result.clone()),
            _ => None,
        };
        self.next(closed).await
    }

    /// Class of the next refusal.
    async fn refusal(&mut self) -> HandlerErrorKind {
        let refused = |it: &AgentMessage| match it {
            AgentMessage::Refused { error, .. } => Some(error.kind),
            _ => None,
        };
        self.next(refused).await
    }

    /// Asks for more time, and returns when the agent knows. It answers the pings so far.
    async fn say_more(&mut self, tid: u64, seconds: u32) {
        self.say(HandlerMessage::Pong).await;
        self.say(HandlerMessage::More { tid, seconds }).await;
        self.say(HandlerMessage::Done { tid: 0, served: Vec::new() }).await;
        assert_eq!(self.refusal().await, HandlerErrorKind::Unknown);
    }

    fn read(&self, tid: u64, path: &str) -> Vec<(String, String)> {
        self.read_for((tid, 0), path).unwrap()
    }

    /// Leaves of configuration at a path, as a call sees them.
    fn read_for(
        &self,
        (tid, call): (u64, usize),
        path: &str,
    ) -> Result<Vec<(String, String)>, HandlerError> {
        let source = ReadSource::Call(tid, call);
        let question = ReadQuestion { source, plane: Plane::Ground, path: path.to_owned() };
        self.handlers.read(&user("shelf"), &question)
    }

    /// Enables the port, and ends the work.
    async fn done(&self, tid: u64) {
        self.put_out(tid, "/interfaces/interface[name=eth1]/enabled", "true").await;
    }

    /// Puts out one leaf, and ends the work.
    async fn put_out(&self, tid: u64, path: &str, value: &str) {
        self.edit((tid, 0), path, value).await;
        self.end(tid, &[""]).await;
    }

    /// Sets a leaf for a call.
    async fn edit(&self, (tid, call): (u64, usize), path: &str, value: &str) {
        let content = OwnedEdit::Document { path: path.to_owned(), value: value.to_owned() };
        let creator = String::new();
        self.say(HandlerMessage::Edit { tid, call, content, creator }).await;
    }

    /// Ends the work of a transaction, with the opaque values of each call.
    async fn end(&self, tid: u64, opaque: &[&str]) {
        let numbered: Vec<_> = opaque.iter().copied().enumerate().collect();
        self.end_calls(tid, &numbered).await;
    }

    async fn end_calls(&self, tid: u64, calls: &[(usize, &str)]) {
        let work = |(call, opaque): &(usize, &str)| ServedWork {
            call: *call,
            opaque: (*opaque).to_owned(),
            keep: String::new(),
        };
        let served = calls.iter().map(work).collect();
        self.say(HandlerMessage::Done { tid, served }).await;
    }
}

#[track_caller]
fn failure(result: Result<CommitStamp, CommitError>) -> (WorkFailureKind, String) {
    let Err(CommitError::Edit(errors)) = result else { panic!("{result:?}") };
    let EditCause::Work { kind, text } = errors.first().cause.clone() else { panic!("{errors}") };
    (kind, text)
}

// proves sv.A21
#[tokio::test]
async fn a_handler_has_its_time_and_may_ask_for_more() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let late = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    agent.pass(WORK_TIME - Duration::from_secs(2)).await;
    assert!(!late.is_finished());
    agent.pass(Duration::from_secs(3)).await;
    let (kind, text) = failure(late.await.unwrap());
    assert_eq!(kind, WorkFailureKind::Late, "{text}");
    // A late message is applied to nothing.
    handler.done(tid).await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Unknown);

    let long = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    handler.say_more(tid, 100).await;
    agent.pass(WORK_TIME + Duration::from_secs(5)).await;
    handler.done(tid).await;
    long.await.unwrap().unwrap();
    assert_eq!(handler.closed().await, Ok(()));

    let longest = set(&agent, BOLT, r#"{"port":"eth0"}"#);
    let (tid, _) = handler.commit().await;
    handler.say_more(tid, 10_000).await;
    agent.pass(MOST_WORK_TIME - Duration::from_secs(5)).await;
    assert!(!longest.is_finished());
    agent.pass(Duration::from_secs(6)).await;
    let (kind, _) = failure(longest.await.unwrap());
    assert_eq!(kind, WorkFailureKind::Late);
}

// proves sv.A21
#[tokio::test]
async fn the_deadline_of_the_client_bounds_the_time_of_a_handler() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let deadline = Some(Instant::now() + Duration::from_secs(10));
    let options = CommitOptions { deadline, ..CommitOptions::default() };
    let late = set_with(&agent, ACME, ETH1, options);
    let (tid, _) = handler.commit().await;
    handler.say_more(tid, 100).await;
    agent.pass(Duration::from_secs(9)).await;
    assert!(!late.is_finished());
    agent.pass(Duration::from_millis(600)).await;
    let (kind, text) = failure(late.await.unwrap());
    assert_eq!(kind, WorkFailureKind::Late, "{text}");
    assert!(Some(Instant::now()) < deadline, "the client still waits");
}

// proves sv.A44
#[tokio::test(start_paused = true)]
async fn a_handler_that_is_silent_or_gone_has_its_calls_fail() {
    let (agent, _folder) = agent().await;
    for is_silent in [true, false] {
        let mut handler = TestHandler::attach(&agent).await;
        let lost = set(&agent, ACME, ETH1);
        handler.commit().await;
        let started = Instant::now();
        if !is_silent {
            handler.message_tx = None;
        }
        let (kind, text) = failure(lost.await.unwrap());
        assert_eq!(kind, WorkFailureKind::Unavailable);
        assert!(text.contains("handler lost"), "{text}");
        let silent = u64::from(is_silent) * 4 * PING_INTERVAL.as_secs();
        assert_eq!(started.elapsed().as_secs(), silent);
    }
    assert!(agent.handle.configuration().layers().book.is_empty(), "nothing stays");
}

// proves sv.A22
#[tokio::test]
async fn nobody_waits_for_a_handler_and_what_it_has_read_is_held_against_the_newest() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;

    // Something that it has not read: asked once.
    let made = set(&agent, ACME, ETH1);
    let (tid, is_dry_run) = handler.commit().await;
    assert!(!is_dry_run);
    set(&agent, OTHER_MTU, "1300").await.unwrap().unwrap();
    handler.done(tid).await;
    made.await.unwrap().unwrap();
    assert_eq!(handler.closed().await, Ok(()));

    // Something that it has read, changed once: asked again.
    let made = set(&agent, BOLT, ETH1);
    let (tid, _) = handler.commit().await;
    assert_eq!(handler.read(tid, MTU), []);
    set(&agent, MTU, "1300").await.unwrap().unwrap();
    assert_eq!(handler.read(tid, MTU), [], "a call sees one moment");
    handler.done(tid).await;
    let (tid, _) = handler.commit().await;
    assert_eq!(handler.read(tid, MTU), [(MTU.to_owned(), "1300".to_owned())]);
    handler.done(tid).await;
    made.await.unwrap().unwrap();

    // Changed each time: given up. The instance before has read it as well, and would be walked.
    agent.handle.commit(&user("ada"), deletion(BOLT), CommitOptions::default()).await.unwrap();
    let unsettled = set(&agent, "/services/access[name=coop]", ETH1);
    for mtu in ["1310", "1320"] {
        let (tid, _) = handler.commit().await;
        handler.read(tid, MTU);
        set(&agent, MTU, mtu).await.unwrap().unwrap();
        handler.done(tid).await;
    }
    let error = unsettled.await.unwrap().unwrap_err();
    assert!(matches!(error, CommitError::Unsettled { .. }), "{error}");
    assert!(error.to_string().contains("the configuration kept changing"), "{error}");
}

// proves sv.A13
#[tokio::test]
async fn a_dry_run_asks_and_says_so() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let core = agent.handle.clone();
    let preview = tokio::spawn(async move {
        let intent = Intent::edit(edit(ACME, ETH1));
        core.preview(&user("ada"), intent, CommitOptions::default()).await
    });
    let (tid, is_dry_run) = handler.commit().await;
    assert!(is_dry_run);
    handler.done(tid).await;
    preview.await.unwrap().unwrap();
    assert!(handler.closed().await.is_err(), "it is not committed");
    assert!(agent.handle.configuration().layers().book.is_empty());
}

const ALL_PHASES: [CallPhase; 4] =
    [CallPhase::PreModification, CallPhase::Create, CallPhase::Delete, CallPhase::PostModification];

/// A type with modification calls, and a delete call of its state.
fn lasting() -> ServiceTypes {
    type_with(r#"delete = { work = "handler" }"#).handler("modification = true").types()
}

/// Claims without an owner, by their names.
fn left(agent: &Agent) -> Vec<String> {
    let configuration = agent.handle.configuration();
    let claims = configuration.layers().claims().iter().map(|(key, _)| key.clone());
    claims.filter(ClaimKey::is_left).map(|key| key.to_string()).collect()
}

// proves sv.B56
#[tokio::test]
async fn a_delete_call_in_a_dry_run_shows_what_it_would_put_out() {
    let (agent, _folder) = agent_of(lasting()).await;
    let mut handler = TestHandler::attach_for(&agent, ALL_PHASES).await;
    let made = set(&agent, ACME, ETH1);
    for _ in 0..3 {
        let (tid, _) = handler.commit().await;
        handler.done(tid).await;
    }
    made.await.unwrap().unwrap();
    assert_eq!(left(&agent), ["persist:access"]);

    let core = agent.handle.clone();
    let dry = Intent::edit(deletion(ACME));
    let preview =
        tokio::spawn(
            async move { core.preview(&user("ada"), dry, CommitOptions::default()).await },
        );
    let (tid, is_dry_run) = handler.commit().await;
    assert!(is_dry_run);
    handler.put_out(tid, OTHER_MTU, "1300").await;
    let preview = preview.await.unwrap().unwrap();
    let lasting = "persist:access[name='acme']";
    let shown = preview.services.first.iter().find(|it| it.service == lasting).unwrap();
    let leaves = shown.leaves.first[0].after.as_deref().unwrap();
    assert!(leaves.contains("\"mtu\":1300"), "{shown:?}");
    assert_eq!(left(&agent), ["persist:access"], "nothing is put out");

    let core = agent.handle.clone();
    let delete = deletion(ACME);
    let deleted =
        tokio::spawn(
            async move { core.commit(&user("ada"), delete, CommitOptions::default()).await },
        );
    let (tid, is_dry_run) = handler.commit().await;
    assert!(!is_dry_run);
    handler.put_out(tid, OTHER_MTU, "1300").await;
    deleted.await.unwrap().unwrap();
    assert_eq!(left(&agent), ["persist:access", lasting]);

    // Its instance is made anew, and `why` names what the one before has left.
    let made = set(&agent, ACME, ETH1);
    for _ in 0..3 {
        let (tid, _) = handler.commit().await;
        handler.done(tid).await;
    }
    made.await.unwrap().unwrap();
    let (_, text) = why(&agent, "access[name='acme']", "text").await;
    let objects = text.split_once(&format!("\n{lasting}\n    ")).map(|(_, objects)| objects);
    assert!(objects.is_some_and(|it| it.contains("  link eth0")), "{text}");
}

// proves sv.B45
#[tokio::test]
async fn instances_that_are_made_side_by_side_put_out_to_one_claim() {
    let (agent, _folder) = agent_of(lasting()).await;
    let mut handler = TestHandler::attach_for(&agent, ALL_PHASES).await;
    let both = [set(&agent, ACME, ETH1), set(&agent, BOLT, r#"{"port":"eth0"}"#)];
    // Both wait for each call at a time, so each is examined beside the other one.
    for phase in [CallPhase::PreModification, CallPhase::Create, CallPhase::PostModification] {
        for (tid, call) in [handler.called().await, handler.called().await] {
            assert_eq!(call.place.phase, phase);
            let port = if call.place.state.tag.key == "acme" { "eth1" } else { "eth0" };
            let path = format!("/interfaces/interface[name={port}]/description");
            handler.put_out(tid, &path, &format!("\"{port}\"")).await;
        }
    }
    for made in both {
        made.await.unwrap().unwrap();
    }
    let configuration = agent.handle.configuration();
    let key = ClaimKey::persistent(ServiceTag::of_type("access".into()));
    let claim = configuration.layers().claims().get(&key).unwrap();
    assert_eq!(claim.objects(configuration.models()).len(), 2, "{claim:?}");
}

#[tokio::test]
async fn a_commit_to_be_confirmed_lets_others_pass_while_its_handler_thinks() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let action = ConfirmAction::Begin { rollback_after: Duration::from_secs(600) };
    let confirmation = Some(Confirmation { id: "a".into(), action });
    let options = CommitOptions { confirmation, ..CommitOptions::default() };
    let begun = set_with(&agent, ACME, ETH1, options);
    let (tid, _) = handler.commit().await;
    set(&agent, OTHER_MTU, "1300").await.unwrap().unwrap();
    handler.done(tid).await;
    begun.await.unwrap().unwrap();
    let refused = set(&agent, OTHER_MTU, "1310").await.unwrap().unwrap_err();
    assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
}

// proves sv.J17
#[tokio::test]
async fn walks_ask_handlers_while_a_commit_waits_and_its_rollback_does_not_wait_for_them() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    handler.read(tid, MTU);
    handler.done(tid).await;
    made.await.unwrap().unwrap();
    let before = agent.handle.configuration().layers().clone();
    let confirmation = |action| CommitOptions {
        confirmation: Some(Confirmation { id: "a".into(), action }),
        ..CommitOptions::default()
    };
    let begin = ConfirmAction::Begin { rollback_after: Duration::from_secs(600) };
    // The reading of the handler differs each time, so that no answer is at hand.
    for (mtu, answers_in_time) in [("1300", true), ("1310", false)] {
        set_with(&agent, MTU, mtu, confirmation(begin)).await.unwrap().unwrap();
        let mut boundaries = agent.handle.boundaries();
        let (tid, _) = handler.commit().await;
        handler.read(tid, MTU);
        if answers_in_time {
            handler.done(tid).await;
            let boundary = boundaries.recv().await.unwrap();
            assert_eq!(boundary.confirm_id.as_deref(), Some("a"));
        }
        let cancel = confirmation(ConfirmAction::Cancel);
        agent.handle.commit(&user("ada"), Edit::default(), cancel).await.unwrap();
        assert!(*agent.handle.configuration().layers() == before, "all is as it was");
        if !answers_in_time {
            handler.done(tid).await;
        }
    }
}

// proves sv.A11, sv.B42
#[tokio::test]
async fn registrations_are_held_against_the_outline() {
    let (agent, _folder) = agent().await;
    let _handler = TestHandler::attach(&agent).await;
    let handlers = agent.services.handlers();
    let refused =
        |caller: &Caller, registration| handlers.attach(caller, registration).unwrap_err();
    let taken = refused(&user("other"), registration());
    assert_eq!(taken.kind, HandlerErrorKind::Exists);
    assert!(taken.text.contains("`shelf`"), "{taken}");
    let password = Caller { auth_method: AuthMethod::Password, ..user("root") };
    assert_eq!(refused(&password, registration()).kind, HandlerErrorKind::Denied);
    let other = |change: fn(&mut ServedCall)| {
        let mut registration = registration();
        let mut call = registration.calls.pop_first().unwrap();
        change(&mut call);
        registration.calls.insert(call);
        registration
    };
    let unknown_type = other(|call| call.service = "none".into());
    let unmarked_state = other(|call| call.state = Some("init".into()));
    let unmarked_phase = other(|call| {
        (call.state, call.phase) = (Some("sized".into()), CallPhase::Delete);
    });
    let unmarked_modification = other(|call| call.phase = CallPhase::PreModification);
    for registration in [unknown_type, unmarked_state, unmarked_phase, unmarked_modification] {
        assert_eq!(refused(&user("shelf"), registration).kind, HandlerErrorKind::Invalid);
    }
    // Who takes whatever there is may take nothing of one phase.
    let all_of_phase = other(|call| call.phase = CallPhase::Delete);
    handlers.attach(&user("shelf"), all_of_phase).unwrap();
}
