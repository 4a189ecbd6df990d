//! Kills of the agent at each durable write of a change: the lines of the table in section 12 of
//! `agent/services/SERVICES.md`, by name.

use std::sync::LazyLock;

use holdfast_config::Layers;
use holdfast_config::services::ActionProgress;
use holdfast_store::faults::{StoppedDisk, WriteKind};
use tokio::sync::oneshot;

use super::queue::for_actions;
use super::stepped::{SteppedHandler, has_open_actions, is_settled, plans};
use super::*;
use crate::agent_tests::turns;

/// Two stages: a port is attached, and sized once it is up. The second one has an action, and another one when it is left.
static TYPES: LazyLock<ServiceTypes> = LazyLock::new(|| {
    let attach =
        "interface br0\n  type bridge\ninterface {{ params.port }}\n  enabled true\n  master br0\n";
    let sized = r#"sticky = true
work = "size.cli"
action = { handler = "prepare" }
delete = { action = { handler = "remove", sync = true } }"#;
    TestType::new()
        .handler("")
        .component("port")
        .state("attached", r#"work = "attach.cli""#)
        .state("sized", &format!("{LINK_UP}\n{sized}"))
        .template("attach.cli", attach)
        .template("size.cli", "interface {{ params.port }}\n  mtu 1400\n")
        .types()
});

/// States with a template; each has a claim while it is reached.
const STATES: [&str; 2] = ["attached", "sized"];

/// Lines of the table in section 12: what a kill leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    BeforePrepared,
    Prepared,
    Committed,
    Dispatched,
    BetweenStages,
    InsideWindow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    /// The port of an instance is plugged in, and its next state is reached.
    Stage,
    /// A handler comes for an action that is queued.
    Action,
    Delete,
    /// A creation that has to be confirmed, and is not.
    Window,
}

/// All that a change comes to: the service plans, and the kernel.
type Contents = [Vec<String>; 2];

/// A handler for actions alone.
fn handler() -> SteppedHandler {
    let work = |_: &HandlerCall, _| (Vec::new(), String::new());
    SteppedHandler::new(for_actions(), |_| String::new(), work)
}

/// A box with a handler that does its actions at once.
struct KilledBox {
    kernel: SimulatedKernel,
    folder: TempDir,
    agent: Agent,
    handler: SteppedHandler,
}

impl KilledBox {
    /// A box as it is before an operation.
    async fn before(operation: Operation) -> Self {
        let kernel = SimulatedKernel::new(&["eth1"]);
        let folder = memory_folder();
        let agent = Agent::start_with(&kernel, folder.path(), TYPES.clone()).await;
        let handler = self::handler();
        let mut it = Self { kernel, folder, agent, handler };
        if operation != Operation::Action {
            it.handler.attach(&it.agent);
        }
        if operation == Operation::Stage {
            it.kernel.unplug("eth1");
        }
        if !matches!(operation, Operation::Create | Operation::Window) {
            set(&it.agent, ACME, ETH1).await.unwrap().unwrap();
        }
        it.settle().await;
        it
    }

    /// Lets everything go on for a while. The agent may be one that waits for its disk.
    async fn go_on(&mut self) {
        turns(30).await;
        self.handler.listen().await;
        while self.handler.end(true).await {}
    }

    async fn settle(&mut self) {
        let settled = async {
            loop {
                self.go_on().await;
                let has_handler = self.handler.process.is_some();
                if is_settled(&self.agent) && !(has_handler && has_open_actions(&self.agent)) {
                    return;
                }
            }
        };
        if timeout(LIMIT, settled).await.is_err() {
            panic!("it does not settle: {:#?}", self.contents());
        }
    }

    fn contents(&self) -> Contents {
        [plans(&self.agent.handle.configuration()), self.kernel.contents()]
    }

    fn layers(&self) -> Layers {
        self.agent.handle.configuration().layers().clone()
    }

    /// Begins an operation. The request is `None` where nobody asks for it.
    fn begin(&mut self, operation: Operation) -> Option<Pending> {
        match operation {
            Operation::Stage => {
                self.kernel.plug("eth1");
                None
            }
            Operation::Action => {
                self.handler.attach(&self.agent);
                None
            }
            Operation::Create => Some(set(&self.agent, ACME, ETH1)),
            Operation::Window => {
                let action = ConfirmAction::Begin { rollback_after: Duration::from_secs(600) };
                let confirmation = Some(Confirmation { id: "a".into(), action });
                let options = CommitOptions { confirmation, ..CommitOptions::default() };
                Some(set_with(&self.agent, ACME, ETH1, options))
            }
            Operation::Delete => {
                let core = self.agent.handle.clone();
                let deleted = async move {
                    core.commit(&user("ada"), deletion(ACME), CommitOptions::default()).await
                };
                Some(tokio::spawn(deleted))
            }
        }
    }

    /// Kills the agent, whose disk has stopped, and starts it on what is on disk.
    async fn killed(self) -> Self {
        let Self { kernel, folder, agent, mut handler } = self;
        handler.die();
        let folder = agent.killed(folder.path());
        let agent = Agent::start_with(&kernel, folder.path(), TYPES.clone()).await;
        Self { kernel, folder, agent, handler }
    }
}

/// An operation without a kill.
struct Undisturbed {
    operation: Operation,
    before: Contents,
    after: Contents,
    /// Actions that were begun by then.
    begun: Vec<SmolStr>,
}

impl Undisturbed {
    async fn of(operation: Operation) -> Self {
        let mut box_ = KilledBox::before(operation).await;
        let before = box_.contents();
        let request = box_.begin(operation);
        if let Some(request) = request {
            request.await.unwrap().unwrap();
        }
        if operation == Operation::Window {
            // Its action waits, so that it does not settle.
            while !plans(&box_.agent.handle.configuration())
                .iter()
                .any(|it| it.contains("create-init"))
            {
                box_.go_on().await;
            }
        } else {
            box_.settle().await;
        }
        let after = box_.contents();
        let begun = box_.handler.begun.clone();
        assert_ne!(before, after);
        Self { operation, before, after, begun }
    }

    /// Runs the operation until the disk stops. `None` when it has ended before.
    async fn run_until_stopped(
        &self,
        box_: &mut KilledBox,
        request: Option<&Pending>,
        mut stopped_rx: oneshot::Receiver<StoppedDisk>,
    ) -> Option<StoppedDisk> {
        let started = Instant::now();
        while started.elapsed() < LIMIT {
            box_.go_on().await;
            if let Ok(stopped) = stopped_rx.try_recv() {
                // Work that does not need the disk goes on.
                box_.go_on().await;
                return Some(stopped);
            }
            let is_answered = request.is_none_or(JoinHandle::is_finished);
            if is_answered && box_.contents() == self.after && is_settled(&box_.agent) {
                return None;
            }
        }
        panic!("it neither stops nor ends: {:#?}", box_.contents());
    }

    /// Lines of the table that a kill at a write comes to, by what a start has found.
    fn lines(&self, stopped: StoppedDisk, found: &Layers) -> BTreeSet<Line> {
        let of_transaction = match (stopped.kind, stopped.is_made) {
            (WriteKind::Prepare, false) => Some(Line::BeforePrepared),
            (WriteKind::Prepare, true) | (WriteKind::Commit, false) => Some(Line::Prepared),
            (WriteKind::Commit, true) => Some(Line::Committed),
            _ => None,
        };
        let mut lines: BTreeSet<_> = of_transaction.into_iter().collect();
        if self.operation == Operation::Window && stopped.commits > 0 {
            lines.insert(Line::InsideWindow);
        }
        if !dispatched(found).is_empty() {
            lines.insert(Line::Dispatched);
        }
        let is_reached = |state: &str| reached(found).iter().any(|it| it == state);
        let is_leaving = found.book.iter().any(|(_, plan)| plan.leaving.is_some());
        if is_reached(STATES[0]) && !is_reached(STATES[1]) && !is_leaving {
            lines.insert(Line::BetweenStages);
        }
        lines
    }

    /// Kills the agent at one write of the operation, and checks what a start finds and comes to. `None` when the operation
    /// has fewer writes.
    async fn kill_at(&self, nth: usize, is_made: bool) -> Option<BTreeSet<Line>> {
        let mut box_ = KilledBox::before(self.operation).await;
        let before = box_.layers();
        let begun_before = box_.handler.begun.clone();
        let stopped_rx = box_.agent.store().stop_at(nth, is_made).await.unwrap();
        let request = box_.begin(self.operation);
        let stopped = self.run_until_stopped(&mut box_, request.as_ref(), stopped_rx).await?;
        let is_answered = match request {
            Some(request) => request.is_finished() && request.await.unwrap().is_ok(),
            None => false,
        };
        let shown = box_.layers();
        let mut box_ = box_.killed().await;
        let found = box_.layers();
        let lines = self.lines(stopped, &found);
        let why = format!("{:?}, {lines:?}: {stopped:?}", self.operation);

        check_whole(&box_.agent.handle.configuration(), &why);
        let is_window = self.operation == Operation::Window;
        let has_begun = stopped.commits > 0;
        if is_window {
            assert!(found == before, "{why}: the pre-image");
        } else if lines.contains(&Line::Committed) {
            assert!(found != shown, "{why}: the commit that nobody was told of");
        } else {
            assert!(found == shown, "{why}: nothing but what was shown");
        }
        assert!(!is_answered || has_begun, "{why}");

        // Work without a request comes in any case.
        let is_requested = !matches!(self.operation, Operation::Stage | Operation::Action);
        let is_taken_back = is_window || is_requested && !has_begun;
        let (want, begun) = match is_taken_back {
            true => (&self.before, &begun_before),
            false => (&self.after, &self.begun),
        };
        box_.handler.attach(&box_.agent);
        box_.settle().await;
        assert_eq!(&box_.contents(), want, "{why}");
        assert_eq!(&box_.handler.begun, begun, "{why}: each action once");
        for id in dispatched(&found) {
            assert!(box_.handler.asked.contains(&id), "{why}: it is asked by id");
        }
        box_.agent.stop().await;
        Some(lines)
    }
}

/// Names of the reached states.
fn reached(layers: &Layers) -> Vec<SmolStr> {
    let components = layers.book.iter().flat_map(|(_, plan)| &plan.components);
    let states = components.flat_map(|it| &it.states).filter(|it| it.is_reached);
    states.map(|it| it.name.clone()).filter(|it| STATES.contains(&it.as_str())).collect()
}

/// Actions that are dispatched.
fn dispatched(layers: &Layers) -> Vec<u64> {
    let calls = layers.book.iter().flat_map(|(_, plan)| plan.calls());
    let dispatched = calls.filter(|it| it.action.progress == ActionProgress::Dispatched);
    dispatched.map(|it| it.action.id).collect()
}

/// Checks that instances, service plans and claims are there together.
fn check_whole(configuration: &Configuration, why: &str) {
    let layers = configuration.layers();
    let instances: BTreeSet<_> = configuration.instances().into_iter().collect();
    let alive = layers.book.iter().filter(|(_, plan)| plan.leaving.is_none());
    assert_eq!(alive.map(|(tag, _)| tag.clone()).collect::<BTreeSet<_>>(), instances, "{why}");
    let mut claims: Vec<_> = layers.claims().iter().map(|(key, _)| key.state.clone()).collect();
    let mut reached = reached(layers);
    claims.sort();
    reached.sort();
    assert_eq!(claims, reached, "{why}: each state that is reached has its claim");
}

/// Kills the agent at each write of an operation, and asserts that these lines of the table were met.
async fn check(operation: Operation, lines: &[Line]) {
    let undisturbed = Undisturbed::of(operation).await;
    let mut met = BTreeSet::new();
    'writes: for nth in 1.. {
        for is_made in [false, true] {
            match undisturbed.kill_at(nth, is_made).await {
                Some(found) => met.extend(found),
                None => break 'writes,
            }
        }
    }
    assert_eq!(met, lines.iter().copied().collect(), "{operation:?}");
}

#[tokio::test]
async fn a_kill_while_an_instance_is_made_leaves_it_whole_or_not_at_all() {
    use Line::{BeforePrepared, BetweenStages, Committed, Dispatched, Prepared};
    let lines = [BeforePrepared, Prepared, Committed, Dispatched, BetweenStages];
    check(Operation::Create, &lines).await;
}

#[tokio::test]
async fn a_kill_between_two_stages_leaves_the_first_one_and_the_second_follows() {
    use Line::{BeforePrepared, BetweenStages, Committed, Dispatched, Prepared};
    let lines = [BeforePrepared, Prepared, Committed, Dispatched, BetweenStages];
    check(Operation::Stage, &lines).await;
}

// proves sv.B70
#[tokio::test]
async fn a_kill_during_an_action_has_it_done_once() {
    use Line::{BeforePrepared, Committed, Dispatched, Prepared};
    check(Operation::Action, &[BeforePrepared, Prepared, Committed, Dispatched]).await;
}

#[tokio::test]
async fn a_kill_while_an_instance_is_deleted_leaves_it_or_its_way_out() {
    use Line::{BeforePrepared, Committed, Dispatched, Prepared};
    check(Operation::Delete, &[BeforePrepared, Prepared, Committed, Dispatched]).await;
}

// proves sv.J17
#[tokio::test]
async fn a_kill_inside_a_window_takes_back_what_was_not_confirmed() {
    use Line::{BeforePrepared, Committed, InsideWindow, Prepared};
    check(Operation::Window, &[BeforePrepared, Prepared, Committed, InsideWindow]).await;
}

// proves sv.B70
#[tokio::test]
async fn an_action_of_which_its_handler_cannot_tell_after_a_kill_is_in_doubt() {
    let mut box_ = KilledBox::before(Operation::Action).await;
    // The dispatch is prepared and committed, and so is the result.
    let mut stopped_rx = box_.agent.store().stop_at(3, false).await.unwrap();
    box_.begin(Operation::Action);
    while stopped_rx.try_recv().is_err() {
        box_.go_on().await;
    }
    let mut box_ = box_.killed().await;
    let [id] = dispatched(&box_.layers())[..] else { panic!("it is dispatched") };
    box_.handler.has_journal = false;
    box_.handler.attach(&box_.agent);
    box_.settle().await;
    let layers = box_.layers();
    let action = layers.book.iter().flat_map(|(_, plan)| plan.calls()).next().unwrap().action;
    assert_eq!(action.id, id);
    assert!(matches!(action.progress, ActionProgress::InDoubt(_)), "{action:?}");
    assert_eq!(box_.handler.begun, ["prepare"], "it is not repeated");
    box_.agent.stop().await;
}
