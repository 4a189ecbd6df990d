//! The main loop: passes events to the state machine, and carries out its actions.

use std::sync::Arc;

use aws_lc_rs::rand;
use holdfast_base::{Caller, ErrorChain, RebootInhibitor};
use holdfast_bootz::{
    client::{
        Action, Client, Connect, Event, Install, OperatorCommand, State, StepContext, Task,
        TaskOutcome, WorkId,
    },
    payload::BootstrapPayload,
    wire::{BootstrapStreamCall, Connection, RpcError},
};
use holdfast_config::schema::Origin;
use holdfast_config::{LayerKey, LeafMark, Namespace, Tree};
use holdfast_core::Datastore;
use holdfast_security::acctz::secrets;
use rustls_pki_types::UnixTime;
use tokio::{
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tonic::Code;
use tracing::{error, info, warn};

use super::{BootzStatus, CommandRequest, DriverResources, NAME, connect, image, record};
use crate::gnsi::Gnsi;
use crate::northbound;
use crate::reboot::{Reboots, reset_to_factory};

/// Result of a piece of work: its outcome, and the connection or stream for the next one.
struct WorkResult {
    work: WorkId,
    outcome: TaskOutcome,
    connection: Option<Connection>,
    exchange: Option<BootstrapStreamCall>,
}

impl WorkResult {
    fn with(work: WorkId, outcome: TaskOutcome) -> Self {
        Self { work, outcome, connection: None, exchange: None }
    }
}

/// Owns the state machine, and everything that it has started.
pub(super) struct Driver<D> {
    client: Client,
    resources: Arc<DriverResources>,
    core: D,
    gnsi: Gnsi,
    reboots: Reboots,
    tasks: JoinSet<WorkResult>,
    connection: Option<Connection>,
    exchange: Option<BootstrapStreamCall>,
    due: Option<(WorkId, Instant)>,
    /// While an attempt or a report is made; not between two of them, which may be for ever.
    undertaking: Option<RebootInhibitor>,
    status_tx: watch::Sender<BootzStatus>,
    /// Client configuration at the last check.
    clients: [Tree<LeafMark>; 2],
}

impl<D: Datastore> Driver<D> {
    pub(super) fn new(
        client: Client,
        equipment: DriverResources,
        core: D,
        gnsi: Gnsi,
        reboots: Reboots,
    ) -> (Self, watch::Receiver<BootzStatus>) {
        let (shown_tx, shown_rx) = watch::channel(BootzStatus::new(client.record().clone()));
        let driver = Self {
            clients: clients(&core),
            client,
            resources: Arc::new(equipment),
            core,
            gnsi,
            reboots,
            tasks: JoinSet::new(),
            connection: None,
            exchange: None,
            due: None,
            undertaking: None,
            status_tx: shown_tx,
        };
        (driver, shown_rx)
    }

    /// The loop awaits nothing but the next event.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<CommandRequest>) {
        self.show().await;
        let mut changes = self.core.watch();
        let now = self.core.configuration();
        let factory_new = now.is_factory_new() && now.layers().is_on(Namespace::Bootz);
        self.step(Event::Started { factory_new }).await;
        loop {
            let due = self.due;
            let busy = self.client.record().parameters.is_some();
            let event = tokio::select! {
                ask = commands.recv() => match ask {
                    Some(CommandRequest { command, taken }) => {
                        let _asker_is_gone = taken.send(());
                        if let OperatorCommand::Start(_) = &command {
                            self.clients = clients(&self.core);
                        }
                        Event::Command(command)
                    }
                    None => return,
                },
                Ok(()) = changes.changed(), if busy => if self.is_configured() {
                    Event::Configured
                } else {
                    continue
                },
                Some(ended) = self.tasks.join_next() => match self.ended(ended) {
                    Some(event) => event,
                    None => continue,
                },
                Some(work) = elapsed(due) => {
                    self.due = None;
                    Event::TimerDue(work)
                }
            };
            self.step(event).await;
        }
    }

    /// True when the client configuration has changed since the last call.
    fn is_configured(&mut self) -> bool {
        let now = clients(&self.core);
        let same = self.clients.iter().zip(&now).all(|(old, new)| old.is_same(new));
        self.clients = now;
        !same
    }

    /// Event of completed work. The deadline of a task that panicked will expire.
    fn ended(&mut self, ended: Result<WorkResult, JoinError>) -> Option<Event> {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => return None,
            Err(error) => {
                error!(%error, "a piece of a bootstrap has failed");
                return None;
            }
        };
        if ended.connection.is_some() {
            self.connection = ended.connection;
        }
        self.exchange = ended.exchange;
        Some(Event::Done(ended.work, ended.outcome))
    }

    async fn step(&mut self, event: Event) {
        let actions = decide(&mut self.client, event);
        self.undertaking = match (self.client.state(), self.undertaking.take()) {
            (State::Idle | State::Waiting, _) => None,
            (_, None) => Some(self.reboots.undertakings().begin_without_actions("a bootstrap")),
            (_, begun) => begun,
        };
        for action in actions {
            self.execute(action).await;
        }
    }

    async fn execute(&mut self, action: Action) {
        match action {
            Action::Save(record) => {
                if let Err(error) = record::write(&self.resources.folder, &record) {
                    error!(error = %ErrorChain(&error), "cannot keep how far the bootstrap got");
                }
                self.status_tx.send_modify(|status| status.set(record));
                self.show().await; // each status is published, however briefly it lasts
            }
            Action::Log(what) => {
                info!(target: "holdfast::bootz", "{}", secrets::message(&what));
                self.status_tx.send_modify(|status| status.log_line(&what));
            }
            Action::CancelWork => {
                self.tasks.abort_all();
                (self.connection, self.exchange, self.due) = (None, None, None);
            }
            Action::Begin(work, task) => self.begin(work, task),
            Action::Wait(work, wait) => self.due = Some((work, Instant::now() + wait)),
            Action::Reboot => self.reboot(),
            Action::Reset => self.reset().await,
        }
    }

    async fn show(&self) {
        let leaves = self.status_tx.borrow().leaves(&self.core.models().native);
        self.core.show_state(leaves).await;
    }

    fn begin(&mut self, work: WorkId, task: Task) {
        let equipment = self.resources.clone();
        match task {
            Task::Lease => {
                self.tasks.spawn(async move {
                    let found = match &equipment.dhcp {
                        Some(dhcp) => dhcp.servers().await,
                        None => Err("no port is there to ask on: see --bootz-port".to_owned()),
                    };
                    WorkResult::with(work, TaskOutcome::Leased(found))
                });
            }
            Task::Connect(how) => {
                self.tasks.spawn(reach(work, equipment, how));
            }
            Task::GetData(request) => {
                let connection = self.connection.clone();
                self.tasks.spawn(async move {
                    let answer = match connection {
                        Some(mut connection) => {
                            connection.get_bootstrap_data(request).await.map(Box::new)
                        }
                        None => Err(not_connected()),
                    };
                    WorkResult::with(work, TaskOutcome::Data(answer))
                });
            }
            Task::Report(request) => {
                let connection = self.connection.clone();
                self.tasks.spawn(async move {
                    let answer = match connection {
                        Some(mut connection) => connection.report_status(request).await,
                        None => Err(not_connected()),
                    };
                    WorkResult::with(work, TaskOutcome::Reported(answer))
                });
            }
            Task::OpenStream(first) => {
                let connection = self.connection.clone();
                self.tasks.spawn(async move {
                    let opened = match connection {
                        Some(mut connection) => connection.open_stream(first).await,
                        None => Err(not_connected()),
                    };
                    answer(work, opened).await
                });
            }
            Task::Send(message) => {
                let exchange = self.exchange.take();
                self.tasks.spawn(async move {
                    if let Some(exchange) = &exchange {
                        exchange.send(message).await;
                    }
                    answer(work, exchange.ok_or_else(not_connected)).await
                });
            }
            Task::Sign(octets) => {
                let exchange = self.exchange.take(); // the stream is still needed after the signature
                self.tasks.spawn_blocking(move || {
                    let signed = equipment.key.sign(&octets);
                    let outcome = TaskOutcome::Signed(signed.map_err(|error| error.to_string()));
                    WorkResult { exchange, ..WorkResult::with(work, outcome) }
                });
            }
            Task::Install(image) => {
                self.tasks.spawn(install(work, equipment, image));
            }
            Task::Apply(payload) => {
                let core = self.core.clone();
                let gnsi = self.gnsi.clone();
                self.tasks.spawn(apply(work, core, gnsi, payload));
            }
        }
    }

    fn reboot(&self) {
        if let Err(error) = self.reboots.at_once("a new image".to_owned()) {
            warn!(%error, "cannot reboot into the new image");
        }
    }

    async fn reset(&self) {
        if let Err(error) =
            reset_to_factory(&self.core, &self.reboots, &Caller::own(NAME), false).await
        {
            error!(error, "cannot reset to the factory");
        }
    }
}

/// Configuration of the clients.
fn clients(core: &impl Datastore) -> [Tree<LeafMark>; 2] {
    let configuration = core.configuration();
    [Origin::OpenConfig, Origin::Native]
        .map(|origin| configuration.layers().tree(LayerKey::client(origin)).clone())
}

/// Actions of the state machine for an event that occurred now.
fn decide(client: &mut Client, event: Event) -> Vec<Action> {
    let mut random = |octets: &mut [u8]| {
        rand::fill(octets).expect("the system has random numbers"); // assumed for every handshake too
    };
    client.step(event, &mut StepContext { now: UnixTime::now(), random: &mut random })
}

/// Waits for the deadline of the current work; forever without one.
async fn elapsed(due: Option<(WorkId, Instant)>) -> Option<WorkId> {
    let (work, at) = due?;
    sleep_until(at).await;
    Some(work)
}

async fn reach(work: WorkId, equipment: Arc<DriverResources>, how: Connect) -> WorkResult {
    match connect::connect(&equipment.network, &equipment.tls, how).await {
        Ok(connection) => WorkResult {
            connection: Some(connection),
            ..WorkResult::with(work, TaskOutcome::Connected(Ok(())))
        },
        Err(error) => WorkResult::with(work, TaskOutcome::Connected(Err(error.chain_text()))),
    }
}

/// Waits for the next message of a stream.
async fn answer(work: WorkId, exchange: Result<BootstrapStreamCall, RpcError>) -> WorkResult {
    match exchange {
        Ok(mut exchange) => {
            let message = exchange.receive().await.map(Box::new);
            let outcome = TaskOutcome::Message(message);
            WorkResult { exchange: Some(exchange), ..WorkResult::with(work, outcome) }
        }
        Err(refused) => WorkResult::with(work, TaskOutcome::Message(Err(refused))),
    }
}

async fn install(work: WorkId, equipment: Arc<DriverResources>, order: Install) -> WorkResult {
    let DriverResources { network, folder, software, .. } = &*equipment;
    let installed = image::install(network, order, software, folder).await;
    let installed = installed.map_err(|error| ErrorChain(&error).to_string());
    WorkResult::with(work, TaskOutcome::Installed(installed))
}

/// Applies the payload, all of it or nothing.
async fn apply(
    work: WorkId,
    core: impl Datastore,
    gnsi: Gnsi,
    payload: Box<BootstrapPayload>,
) -> WorkResult {
    let applied = northbound::bootstrap(&core, &gnsi, &Caller::own(NAME), &payload).await;
    WorkResult::with(work, TaskOutcome::Applied(applied))
}

fn not_connected() -> RpcError {
    RpcError { code: Code::Unavailable, message: "the connection is gone".to_owned() }
}
