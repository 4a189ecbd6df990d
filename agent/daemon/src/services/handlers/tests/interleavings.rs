//! Handlers that answer, fail, keep, die and come back in random order, with changes of instances, of configuration and of
//! the box between, restarts and kills. Once all is quiet, the box is as one on which every handler did its work at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use holdfast_config::json::{self, Flavour};
use holdfast_config::services::{ActionProgress, ServicePlan};
use holdfast_config::tree::NodeRef;
use holdfast_config::{LayerKey, Layers};
use holdfast_core::{Statuses as _, Walks};
use holdfast_store::faults::WriteKind;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::stepped::{Noted, Reaction, SteppedHandler, has_open_actions, is_settled, plans};
use super::*;
use crate::agent_tests::{cases, turns};

/// States of handlers, one for each of them.
const STATES: [&str; 2] = ["enabled", "sized"];

/// Two states of handlers, one of a template between them, and an action. The first handler is asked for the rest.
/// The second value defers without a handler.
static TYPES: LazyLock<[ServiceTypes; 2]> = LazyLock::new(|| {
    let enabled = r#"work = "handler"
action = { handler = "prepare", params = { port = "params.port" }, serial = "params.shelf" }
delete = { work = "handler" }"#;
    let addressed = r#"work = "address.cli"
when = "config('/interfaces/interface[name={}]/description', params.port) != 'stop'""#;
    // No two ports have an address in one network.
    let address = "interface {{ params.port }}
  ipv4
    address 10.{{ params.port[3:] }}.{{ unit }}.1
      prefix-length 24
";
    let types = |missing| {
        TestType::new()
            .service(&format!("missing-handler = \"{missing}\""))
            .handler("")
            .component("port")
            .state(STATES[0], enabled)
            .state("addressed", addressed)
            .state(STATES[1], &format!("{LINK_UP}\nwork = \"handler\""))
            .template("address.cli", address)
            .types()
    };
    ["fail", "defer"].map(types)
});

const NAMES: [&str; 3] = ["acme", "bolt", "coop"];
/// Two ports for each instance.
const PORTS: [&str; 6] = ["eth0", "eth1", "eth2", "eth3", "eth4", "eth5"];

#[derive(Clone, Debug)]
enum Event {
    /// A Set of an instance: the first or second of its ports, its shelf, and whether it is deployed.
    Set {
        name: usize,
        port: usize,
        shelf: usize,
        deploy: bool,
    },
    Delete(usize),
    /// A Set of the description of a port.
    Describe(usize, &'static str),
    Plug(usize, bool),
    Attach(usize),
    AttachAll,
    Die(usize),
    React(usize, Reaction),
    /// The oldest action of the second handler ends.
    End {
        is_success: bool,
    },
    Redeploy,
    Restart,
    /// A kill at a write from now on, which is made or not.
    Kill {
        nth: usize,
        is_made: bool,
    },
    Turns,
    /// All handlers do what they are asked for, for a while.
    Serve,
}

fn event() -> impl Strategy<Value = Event> {
    let reaction = prop_oneof![
        6 => Just(Reaction::Done),
        2 => Just(Reaction::Keep),
        1 => Just(Reaction::Error),
        1 => Just(Reaction::More),
    ];
    let text = prop::sample::select(vec!["go", "stop", "wait"]);
    let set = (0..3usize, 0..2usize, 0..2usize, prop::bool::weighted(0.9));
    prop_oneof![
        6 => set.prop_map(|(name, port, shelf, deploy)| Event::Set { name, port, shelf, deploy }),
        3 => (0..3usize).prop_map(Event::Delete),
        2 => (0..6usize, text).prop_map(|(port, text)| Event::Describe(port, text)),
        2 => (0..6usize, prop::bool::weighted(0.7)).prop_map(|(port, there)| Event::Plug(port, there)),
        2 => (0..2usize).prop_map(Event::Attach),
        3 => Just(Event::AttachAll),
        1 => (0..2usize).prop_map(Event::Die),
        10 => (0..2usize, reaction).prop_map(|(handler, reaction)| Event::React(handler, reaction)),
        3 => prop::bool::weighted(0.7).prop_map(|is_success| Event::End { is_success }),
        1 => Just(Event::Redeploy),
        1 => Just(Event::Restart),
        2 => (1..6usize, any::<bool>()).prop_map(|(nth, is_made)| Event::Kill { nth, is_made }),
        3 => Just(Event::Turns),
        6 => Just(Event::Serve),
    ]
}

fn port_of(call: &HandlerCall) -> String {
    let params: serde_json::Value = serde_json::from_str(&call.params).unwrap();
    format!("/interfaces/interface[name={}]", params["port"].as_str().unwrap())
}

/// The work of a state, which depends on parameters, on the values of the state before it and on what is read.
fn work(call: &HandlerCall, description: Option<String>) -> (Vec<(String, String)>, String) {
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let params = json(&call.params);
    let opaque = json(&call.opaque);
    let port = port_of(call);
    let number = description.map_or(0, |text| text.len());
    if call.place.state.state == STATES[0] {
        let bridge = format!("br-{}", params["shelf"].as_str().unwrap());
        let edits = vec![
            (format!("/interfaces/interface[name={bridge}]/type"), "\"bridge\"".to_owned()),
            (format!("{port}/enabled"), "true".to_owned()),
            (format!("{port}/master"), format!("{bridge:?}")),
        ];
        return (edits, format!(r#"{{"unit":{number}}}"#));
    }
    let unit = usize::try_from(opaque["unit"].as_u64().unwrap()).unwrap();
    let mtu = 1300 + 10 * unit + number;
    (vec![(format!("{port}/mtu"), mtu.to_string())], String::new())
}

/// One of the two handlers.
fn handler(number: usize) -> SteppedHandler {
    let call = |phase| ServedCall {
        service: "access".into(),
        component: None,
        state: Some(STATES[number].into()),
        phase,
    };
    let mut calls = BTreeSet::from([call(CallPhase::Create)]);
    let mut actions = BTreeSet::new();
    if number == 0 {
        calls.insert(call(CallPhase::Delete));
    } else {
        actions.insert(ActionName { service: "access".into(), action: "prepare".into() });
    }
    let name = format!("handler-{number}").into();
    let registration = Registration { name, calls, actions, ..Registration::default() };
    SteppedHandler::new(registration, |call| format!("{}/description", port_of(call)), work)
}

/// How often what has happened, in all schedules.
type Tally = BTreeMap<&'static str, u32>;
/// Events that happen several times in a few schedules already.
const COMMON: [&str; 4] = ["done", "end of an action", "kill at a write", "refused Set"];

/// A box with two handlers, and the Sets that are under way.
struct World<'t> {
    kernel: SimulatedKernel,
    folder: TempDir,
    types: ServiceTypes,
    /// None while it starts again.
    agent: Option<Agent>,
    handlers: [SteppedHandler; 2],
    sets: Vec<Pending>,
    unplugged: BTreeSet<&'static str>,
    tally: &'t RefCell<Tally>,
}

/// Turns after which a request has come to its handler as a rule.
const FEW_TURNS: usize = 100;
/// Turns after which everything that the disk has answered is shown.
const SHOWN_TURNS: usize = 300;
/// Rounds in which an instance that waits for handlers alone is made.
const SERVED_ROUNDS: usize = 5;
/// Rounds without work after which nothing is left to do. In the first one, the agent's last message to a handler may be on its
/// way.
const QUIET_ROUNDS: usize = 2;
/// Rounds without any event after which a box that is not quiet may wait for a time.
const IDLE_ROUNDS: usize = 8;
/// Pauses after which a box that is not quiet never will be.
const MAX_PAUSES: usize = 40;

impl<'t> World<'t> {
    async fn new(types: &ServiceTypes, tally: &'t RefCell<Tally>) -> Self {
        let kernel = SimulatedKernel::new(&PORTS);
        let folder = memory_folder();
        let agent = Agent::start_with(&kernel, folder.path(), types.clone()).await;
        let types = types.clone();
        let agent = Some(agent);
        let handlers = [0, 1].map(handler);
        let (sets, unplugged) = Default::default();
        let mut world = Self { kernel, folder, types, agent, handlers, sets, unplugged, tally };
        world.attach_all().await;
        world
    }

    fn agent(&self) -> &Agent {
        self.agent.as_ref().unwrap()
    }

    fn configuration(&self) -> Configuration {
        self.agent().handle.configuration()
    }

    fn layers(&self) -> Layers {
        self.configuration().layers().clone()
    }

    fn count(&self, what: &'static str, has_happened: bool) {
        *self.tally.borrow_mut().entry(what).or_default() += u32::from(has_happened);
    }

    fn set(&mut self, edit: Edit) {
        let core = self.agent().handle.clone();
        let options = CommitOptions::default();
        self.sets.push(tokio::spawn(async move { core.commit(&user("ada"), edit, options).await }));
    }

    /// Deploys all instances again.
    fn redeploy(&mut self) {
        let core = self.agent().handle.clone();
        let due = self.layers().book.iter().map(|(tag, _)| tag.clone()).collect();
        let walks = Walks { due, is_redeployment: true, ..Walks::default() };
        let redeployed = async move { core.change(&user("ada"), Intent::Walk(walks)).await };
        self.sets.push(tokio::spawn(redeployed));
    }

    async fn play(&mut self, event: &Event) {
        match *event {
            Event::Set { name, port, shelf, deploy } => {
                let port = PORTS[2 * name + port];
                let shelf = ["left", "right"][shelf];
                let json = format!(r#"{{"port":"{port}","shelf":"{shelf}","deploy":{deploy}}}"#);
                self.set(edit(&path(name), &json));
            }
            Event::Delete(name) => self.set(deletion(&path(name))),
            Event::Describe(port, text) => {
                let path = format!("/interfaces/interface[name={}]/description", PORTS[port]);
                self.set(edit(&path, &format!("\"{text}\"")));
            }
            Event::Plug(port, true) if self.unplugged.remove(PORTS[port]) => {
                self.kernel.plug(PORTS[port]);
            }
            Event::Plug(port, false) if self.unplugged.insert(PORTS[port]) => {
                self.kernel.unplug(PORTS[port]);
            }
            Event::Plug(..) => {}
            Event::Attach(number) => self.attach(number).await,
            Event::AttachAll => self.attach_all().await,
            Event::Die(number) => {
                turns(FEW_TURNS).await;
                self.listen().await;
                let has_open = !self.handlers[number].open.is_empty();
                let has_died = self.handlers[number].die();
                self.count("death during a call", has_open && has_died);
            }
            Event::React(number, reaction) => {
                turns(FEW_TURNS).await;
                self.handlers[number].listen().await;
                let has_reacted = self.handlers[number].react(reaction).await;
                self.count(reaction.text(), has_reacted);
            }
            Event::End { is_success } => {
                turns(FEW_TURNS).await;
                self.handlers[1].listen().await;
                let has_ended = self.handlers[1].end(is_success).await;
                self.count("end of an action", has_ended);
            }
            Event::Redeploy => self.redeploy(),
            Event::Restart => self.restart().await,
            Event::Kill { nth, is_made } => self.kill(nth, is_made).await,
            Event::Turns => {
                self.agent().turns().await;
                self.listen().await;
                let layers = self.layers();
                let is_zombie = layers.book.iter().any(|(_, plan)| plan.leaving.is_some());
                self.count("zombie", is_zombie);
            }
            Event::Serve => {
                for _ in 0..SERVED_ROUNDS {
                    self.serve().await;
                }
            }
        }
    }

    /// Starts the process of a handler, unless it is there.
    async fn attach(&mut self, number: usize) {
        // That of before may not be gone for the agent yet.
        self.agent().turns().await;
        let Self { agent, handlers, .. } = self;
        handlers[number].attach(agent.as_ref().unwrap());
    }

    async fn attach_all(&mut self) {
        for number in 0..self.handlers.len() {
            self.attach(number).await;
        }
    }

    async fn listen(&mut self) -> bool {
        let [first, second] = &mut self.handlers;
        let is_asked = first.listen().await;
        second.listen().await || is_asked
    }

    /// Has all handlers do what they are asked for.
    async fn serve(&mut self) {
        turns(FEW_TURNS).await;
        self.listen().await;
        for handler in &mut self.handlers {
            while handler.react(Reaction::Done).await {}
        }
    }

    /// Ends the agent with its handlers, and starts it from its database.
    async fn restart(&mut self) {
        for handler in &mut self.handlers {
            handler.die();
        }
        self.agent.take().unwrap().stop().await;
        self.start().await;
    }

    async fn start(&mut self) {
        let agent = Agent::start_with(&self.kernel, self.folder.path(), self.types.clone()).await;
        self.agent = Some(agent);
    }

    /// Kills the agent at a write, or after a while in which none came, and starts it on what is on disk.
    async fn kill(&mut self, nth: usize, is_made: bool) {
        let store = self.agent().store();
        let mut stopped_rx = store.stop_at(nth, is_made).await.unwrap();
        let mut stopped = None;
        for _ in 0..SERVED_ROUNDS {
            self.serve().await;
            stopped = stopped.or_else(|| stopped_rx.try_recv().ok());
        }
        if stopped.is_none() {
            drop(store.stop_at(1, false).await.unwrap());
            // It may have come by then. Earlier answers are shown.
            stopped = stopped_rx.try_recv().ok();
            turns(SHOWN_TURNS).await;
        }
        let shown = self.layers();
        for handler in &mut self.handlers {
            handler.die();
        }
        self.folder = self.agent.take().unwrap().killed(self.folder.path());
        self.start().await;
        self.count("kill at a write", stopped.is_some());
        let is_committed = stopped.is_some_and(|it| it.kind == WriteKind::Commit && it.is_made);
        assert!(is_committed || self.layers() == shown, "{stopped:?}");
    }

    /// Has all handlers do their work until nothing is left to do.
    async fn settle(&mut self) {
        let mut idle = 0;
        let mut quiet = 0;
        let mut pauses = 0;
        while pauses < MAX_PAUSES {
            self.agent().turns().await;
            let mut has_moved = self.listen().await;
            for handler in &mut self.handlers {
                while handler.react(Reaction::Done).await || handler.end(true).await {
                    has_moved = true;
                }
            }
            quiet = if !has_moved && self.is_quiet() { quiet + 1 } else { 0 };
            if quiet == QUIET_ROUNDS {
                return;
            }
            idle = if has_moved { 0 } else { idle + 1 };
            if idle == IDLE_ROUNDS {
                // Instances that have walked often pause.
                self.agent().pass(Duration::from_secs(61)).await;
                (idle, pauses) = (0, pauses + 1);
            }
        }
        let open: Vec<_> =
            self.handlers.iter().map(|it| it.open.keys().collect::<Vec<_>>()).collect();
        panic!("it does not become quiet: open {open:?}, {:#?}", plans(&self.configuration()));
    }

    /// True when nobody is waited for, and a walk of all instances changes nothing.
    fn is_quiet(&self) -> bool {
        self.sets.iter().all(JoinHandle::is_finished)
            && self.handlers.iter().all(|handler| handler.open.is_empty())
            && !has_open_actions(self.agent())
            && is_settled(self.agent())
    }

    /// Plugs all ports in, and starts all handlers anew.
    async fn mend(&mut self) {
        for port in std::mem::take(&mut self.unplugged) {
            self.kernel.plug(port);
        }
        for handler in &mut self.handlers {
            handler.die();
        }
        self.attach_all().await;
    }

    /// Waits until nothing is left to do.
    async fn finish(&mut self) {
        self.settle().await;
        // Actions that have failed are not repeated by themselves, and what a handler keeps is not asked for again.
        let layers = self.layers();
        let has_failed = |plan: &ServicePlan| plan.calls().any(|it| it.action.failure().is_some());
        if layers.book.iter().any(|(_, plan)| plan.leaving.is_some() || has_failed(plan)) {
            self.redeploy();
            self.settle().await;
        }
        for set in std::mem::take(&mut self.sets) {
            let result = set.await.unwrap();
            self.count("refused Set", result.is_err());
        }
    }

    /// The configuration of clients, as a document.
    fn document(&self) -> Option<String> {
        let configuration = self.configuration();
        let schema = &configuration.models().native;
        let tree = configuration.layers().tree(LayerKey::CLIENT_NATIVE);
        let root = NodeRef::Branch(tree.root());
        let text = json::print(schema, schema.root(), root, Flavour::Ietf, &|_| true)?;
        Some(String::from_utf8(text).unwrap())
    }

    /// Checks that each action has succeeded, was done, and is not waited for any more. None was done twice, as the handler
    /// would have noticed.
    fn check_actions(&self) {
        let layers = self.layers();
        let states = layers.book.iter().flat_map(|(_, plan)| &plan.components);
        for action in states.flat_map(|it| &it.states).filter_map(|it| it.action.as_ref()) {
            assert_eq!(action.progress, ActionProgress::Succeeded, "{action:?}");
            let noted = self.handlers[1].journal.get(&action.id);
            assert_eq!(noted, Some(&Noted::Recorded), "{action:?}");
        }
    }
}

fn path(name: usize) -> String {
    format!("/services/access[name={}]", NAMES[name])
}

/// Contents of the kernel without hardware addresses, which a port that is plugged in again has another one of.
fn contents(kernel: &SimulatedKernel) -> Vec<String> {
    let bare = |line: String| match line.split_once("mac: ") {
        Some((before, after)) => {
            let after = after.split_once("ethernet: ").map_or(after, |(_, after)| after);
            format!("{before}{after}")
        }
        None => line,
    };
    kernel.contents().into_iter().map(bare).collect()
}

/// Runs a schedule, and compares the box with one that was given the same configuration at once, with all handlers there.
async fn run(types: &ServiceTypes, schedule: &[Event], tally: &RefCell<Tally>) {
    let mut world = World::new(types, tally).await;
    for event in schedule {
        world.play(event).await;
    }
    world.mend().await;
    world.finish().await;

    let mut fresh = World::new(types, tally).await;
    let document = world.document();
    if let Some(document) = &document {
        fresh.set(edit("/", document));
    }
    fresh.finish().await;
    let [ours, other] = [&world, &fresh].map(World::configuration);
    assert_eq!(plans(&ours), plans(&other), "{document:?}");
    assert_eq!(ours.layers().claims(), other.layers().claims());
    assert_eq!(ours.effective(), other.effective());
    let kernels = [&world, &fresh].map(|it| contents(&it.kernel));
    assert_eq!(kernels[0], kernels[1]);
    for it in [&world, &fresh] {
        let waiting = it.agent().handle.statuses(true).await.unwrap();
        assert!(waiting.is_empty(), "{waiting:?}");
        it.check_actions();
    }
    // All of it is in the database, and a start with handlers asks nobody.
    let before = world.layers();
    world.restart().await;
    assert!(world.layers() == before);
    world.attach_all().await;
    for _ in 0..3 {
        world.agent().turns().await;
        assert!(!world.listen().await, "nothing has changed");
    }
    for it in [world, fresh] {
        it.agent.unwrap().stop().await;
    }
}

/// Number of schedules, unless `PROPTEST_CASES` is set.
const CASES: u32 = 30;

#[test]
fn handlers_in_any_order_come_to_what_they_make_at_once() {
    let tally = RefCell::new(Tally::new());
    let mut runner = TestRunner::new(cases(CASES));
    let schedules = (any::<bool>(), prop::collection::vec(event(), 5..40));
    runner
        .run(&schedules, |(defers, schedule)| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run(&TYPES[usize::from(defers)], &schedule, &tally));
            Ok(())
        })
        .unwrap();
    let tally = tally.into_inner();
    let has_happened = |what: &&str| tally.get(what).is_some_and(|count| *count > 0);
    assert!(COMMON.iter().all(has_happened), "{tally:?}");
}
