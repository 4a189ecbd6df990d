//! The bootstrap state machine: events in, actions out.
//!
//! A client is in one [`State`]. Every state but [`State::Idle`] has a deadline, so that lost work (a hanging
//! connection, a command that never returns) ends in a new attempt. Every piece of work has a number; the outcome
//! of an abandoned attempt has an old number and is ignored.

mod attempt;
mod record;
mod report;

pub use self::record::{
    BootstrapRecord, BootstrapStage, Flow, Parameters, ServerDiscovery, Status, Telemetry,
};

use std::time::Duration;

use holdfast_proto::bootz::{
    BootstrapStreamRequestV1, BootstrapStreamResponseV1, GetBootstrapDataRequest,
    GetBootstrapDataResponse, ReportStatusRequest,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use self::attempt::Attempt;
use self::report::Report;
use crate::identity::IdevidChain;
use crate::image::{Image, InstalledSoftware};
use crate::payload::BootstrapPayload;
use crate::retry::Backoff;
use crate::uri::ServerUri;
use crate::wire::RpcError;

/// Time limits for each piece of work.
mod limit {
    use std::time::Duration;

    /// Servers answer DHCP within seconds; a port whose link negotiates takes longer.
    pub(super) const LEASE: Duration = Duration::from_secs(90);
    /// TCP and TLS, with the resolution of a name.
    pub(super) const CONNECT: Duration = Duration::from_secs(30);
    /// An answer of the server, which may have to fetch a voucher from the vendor.
    pub(super) const ANSWER: Duration = Duration::from_secs(60);
    /// A signature, by a slow chip at worst.
    pub(super) const SIGN: Duration = Duration::from_secs(10);
    /// Fetching and installing an image over a slow line.
    pub(super) const INSTALL: Duration = Duration::from_secs(2 * 60 * 60);
    /// From the reboot command to the restart of the agent.
    pub(super) const REBOOT: Duration = Duration::from_secs(10 * 60);
    /// A commit of the largest configuration, including whatever it waits for.
    pub(super) const APPLY: Duration = Duration::from_secs(10 * 60);
}

/// Identity and bootstrap settings of the box.
#[derive(Clone, Debug)]
pub struct BootstrapSettings {
    /// Manufacturer.
    pub manufacturer: String,
    /// Part number in the vendor's scheme.
    pub part_number: String,
    /// Serial number, which vouchers must name.
    pub serial: String,
    /// IDevID certificate with its issuers.
    pub idevid: IdevidChain,
    /// Trust anchors for vouchers, in DER.
    pub voucher_anchors: Vec<CertificateDer<'static>>,
    /// Requires an ownership proof from the server. False is meant for laboratories.
    pub checks_ownership: bool,
    /// Rpcs to try.
    pub flows: Flows,
    /// Software of the box.
    pub software: InstalledSoftware,
    /// Delays between attempts.
    pub backoff: Backoff,
    /// Port for DHCP. A factory-new box with such a port starts to bootstrap without a command.
    pub port: Option<String>,
}

/// Choice of rpcs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flows {
    /// `BootstrapStreamV1`, and `GetBootstrapData` where the server has no stream for this box.
    #[default]
    Either,
    /// `BootstrapStreamV1`.
    Stream,
    /// `GetBootstrapData`.
    Unary,
}

/// Time of day and random bytes for one step, supplied by its caller.
pub struct StepContext<'a> {
    /// Time of day.
    pub now: UnixTime,
    /// Source of cryptographically secure random bytes.
    pub random: &'a mut dyn FnMut(&mut [u8]),
}

impl std::fmt::Debug for StepContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Number of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkId(u64);

/// Input of the state machine.
#[derive(Debug)]
pub enum Event {
    /// The agent has started.
    Started {
        /// No configuration was ever set, and bootstrapping was not disabled.
        factory_new: bool,
    },
    /// The configuration was changed by another source than the bootstrap.
    Configured,
    /// A command of the operator.
    Command(OperatorCommand),
    /// The delay with this number is over.
    TimerDue(WorkId),
    /// A piece of work has ended.
    Done(WorkId, TaskOutcome),
}

/// Commands of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// Start to bootstrap now.
    Start(ServerDiscovery),
    /// Stop, and leave the configuration as it is.
    Terminate,
    /// Reset the box to factory state, and bootstrap from there.
    Reset,
}

/// Result of a piece of work.
#[derive(Debug)]
pub enum TaskOutcome {
    /// Result of [`Task::Lease`]: the bootstrap servers that DHCP named.
    Leased(Result<Vec<ServerUri>, String>),
    /// Result of [`Task::Connect`].
    Connected(Result<(), String>),
    /// Result of [`Task::GetData`].
    Data(Result<Box<GetBootstrapDataResponse>, RpcError>),
    /// Result of [`Task::OpenStream`] and [`Task::Send`]: the next message.
    Message(Result<Box<BootstrapStreamResponseV1>, RpcError>),
    /// Result of [`Task::Sign`].
    Signed(Result<Vec<u8>, String>),
    /// Result of [`Task::Install`].
    Installed(Result<InstallResult, String>),
    /// Result of [`Task::Apply`]: remarks for the report.
    Applied(Result<Vec<String>, String>),
    /// Result of [`Task::Report`].
    Reported(Result<(), RpcError>),
}

/// Success of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallResult {
    /// The new image is running.
    Running,
    /// The new image runs after a reboot.
    AtReboot,
}

/// Output of the state machine, to be carried out in order.
#[derive(Clone, Debug)]
pub enum Action {
    /// Make the record durable before the next action.
    Save(BootstrapRecord),
    /// Log a message about progress.
    Log(String),
    /// Drop the connection, the stream and all work.
    CancelWork,
    /// Start this task; its [`TaskOutcome`] must carry the number.
    Begin(WorkId, Task),
    /// Send [`Event::TimerDue`] after this time, unless another `Wait` follows earlier.
    Wait(WorkId, Duration),
    /// Reboot the box.
    Reboot,
    /// Reset the box to factory state.
    Reset,
}

/// A piece of work.
#[derive(Clone, Debug)]
pub enum Task {
    /// Get an address and ask for bootstrap servers; keep the lease.
    Lease,
    /// Connect to a server.
    Connect(Connect),
    /// Call `GetBootstrapData` on the connection.
    GetData(GetBootstrapDataRequest),
    /// Open `BootstrapStreamV1` on the connection with this message.
    OpenStream(BootstrapStreamRequestV1),
    /// Send this on the stream.
    Send(BootstrapStreamRequestV1),
    /// Sign with the key of the IDevID.
    Sign(Vec<u8>),
    /// Fetch an image, compare its digest, and only then install it.
    Install(Install),
    /// Apply all of this payload, or nothing.
    Apply(Box<BootstrapPayload>),
    /// Call `ReportStatus` on the connection.
    Report(ReportStatusRequest),
}

/// Parameters of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Server to connect to.
    pub server: ServerUri,
    /// Outgoing interface, if the operator named one.
    pub interface: Option<String>,
    /// Presents the IDevID in the handshake: always in the unary flow, never before a stream.
    pub presents_idevid: bool,
    /// Trust anchor for the server's certificate. Without one any server is accepted, because its data is verified
    /// by voucher and signature.
    pub trust_anchor: Option<CertificateDer<'static>>,
}

/// An image, and the trust anchor of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Image to install.
    pub image: Image,
    /// Trust anchor for the image server's certificate, in addition to the authorities of the system.
    pub trust_anchor: CertificateDer<'static>,
}

/// State of the client.
#[derive(Debug)]
pub enum State {
    /// Idle until a command or a factory reset.
    Idle,
    /// Delay before the next attempt.
    Waiting,
    /// An attempt to get and apply data.
    Attempting(Box<Attempt>),
    /// An attempt to report the outcome.
    Reporting(Box<Report>),
}

/// The bootstrap client of one box.
#[derive(Debug)]
pub struct Client {
    settings: BootstrapSettings,
    record: BootstrapRecord,
    state: State,
    work: WorkId,
    /// Consecutive failures.
    failures: u32,
    /// DHCP has succeeded since the agent started, so the address is configured.
    has_lease: bool,
    /// Server whose data was refused last; the next attempt starts with the server after it.
    refused_server: Option<ServerUri>,
    actions: Vec<Action>,
}

/// Reason for the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AttemptError {
    status: Status,
    reason: String,
}

impl AttemptError {
    fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// An error that is unrelated to the data, such as an unreachable server.
    fn unreachable(reason: impl Into<String>) -> Self {
        Self::new(Status::Unspecified, reason)
    }

    fn unexpected(expected: &str) -> Self {
        Self::unreachable(format!("the server sent something else than {expected}"))
    }
}

impl Client {
    /// Makes a client that continues from the saved record. Nothing happens before [`Event::Started`].
    #[must_use]
    pub fn new(profile: BootstrapSettings, record: BootstrapRecord) -> Self {
        Self {
            settings: profile,
            record,
            state: State::Idle,
            work: WorkId(0),
            failures: 0,
            has_lease: false,
            refused_server: None,
            actions: Vec::new(),
        }
    }

    /// The record to save, which also holds the telemetry.
    #[must_use]
    pub fn record(&self) -> &BootstrapRecord {
        &self.record
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Handles an event and returns the resulting actions in order.
    pub fn step(&mut self, event: Event, around: &mut StepContext<'_>) -> Vec<Action> {
        match event {
            Event::Started { factory_new } => self.start(factory_new, around),
            Event::Configured => self.on_configured(),
            Event::Command(command) => self.on_command(command, around),
            Event::TimerDue(work) if work == self.work => self.on_deadline(around),
            Event::Done(work, outcome) if work == self.work => self.on_outcome(outcome, around),
            Event::TimerDue(_) | Event::Done(..) => {} // belongs to abandoned work
        }
        std::mem::take(&mut self.actions)
    }

    /// Continues from the record. A box without one starts by DHCP if it is factory-new.
    fn start(&mut self, factory_new: bool, around: &mut StepContext<'_>) {
        if factory_new && self.record.parameters.is_none() && self.settings.port.is_some() {
            self.log("the box is factory-new: starting to bootstrap by DHCP");
            let entry = ServerDiscovery::Dhcp;
            let stage = BootstrapStage::Attempting;
            self.record.parameters = Some(Parameters { entry, stage });
        }
        self.resume(around);
    }

    /// Ends bootstrapping when an operator configures the box, whose settings must not be overwritten. Changes
    /// made by the attempt itself do not count.
    fn on_configured(&mut self) {
        let parameters = self.record.parameters.as_ref();
        let tries = parameters.is_some_and(|it| it.stage == BootstrapStage::Attempting);
        let applies = matches!(&self.state, State::Attempting(attempt) if attempt.is_applying());
        if tries && !applies {
            self.push_action(Action::CancelWork);
            self.log("the box has been configured by an operator: bootstrapping ends");
            self.become_idle(Status::Unspecified);
        }
    }

    fn on_command(&mut self, command: OperatorCommand, around: &mut StepContext<'_>) {
        self.push_action(Action::CancelWork);
        match command {
            OperatorCommand::Start(entry) => {
                self.log(format!("starting to bootstrap by {entry}"));
                self.failures = 0;
                self.refused_server = None;
                self.record.parameters =
                    Some(Parameters { entry, stage: BootstrapStage::Attempting });
                self.resume(around);
            }
            OperatorCommand::Terminate => {
                self.log("terminated: the configuration stays as it is");
                self.become_idle(Status::Unspecified);
            }
            OperatorCommand::Reset => {
                self.log("reset: the box goes back to the factory");
                self.become_idle(Status::Unspecified);
                self.push_action(Action::Reset);
            }
        }
    }

    /// Ends in the idle state with this status.
    fn become_idle(&mut self, status: Status) {
        self.next_work();
        self.state = State::Idle;
        self.record.parameters = None;
        self.record.telemetry.status = status;
        self.save();
    }

    /// Continues as the record says.
    fn resume(&mut self, around: &mut StepContext<'_>) {
        match &self.record.parameters {
            None => self.state = State::Idle,
            Some(Parameters { stage: BootstrapStage::Attempting, .. }) => {
                self.begin_attempt(around)
            }
            Some(Parameters { stage: BootstrapStage::Reporting { .. }, .. }) => self.begin_report(),
        }
    }

    fn on_deadline(&mut self, around: &mut StepContext<'_>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Waiting => self.resume(around),
            State::Attempting(attempt) => {
                let fault = attempt.timeout_error();
                self.fail_attempt(Some(*attempt), fault, around);
            }
            State::Reporting(report) => {
                let fault = AttemptError::unreachable("the server did not take the report in time");
                self.fail_report(&report, fault, around);
            }
        }
    }

    fn on_outcome(&mut self, outcome: TaskOutcome, around: &mut StepContext<'_>) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Waiting => self.state = State::Waiting,
            State::Attempting(attempt) => self.advance_attempt(*attempt, outcome, around),
            State::Reporting(report) => self.advance_report(*report, outcome, around),
        }
    }

    /// Schedules the next attempt after a failure, with back-off.
    fn schedule_retry(&mut self, fault: &AttemptError, around: &mut StepContext<'_>) {
        self.failures = self.failures.saturating_add(1);
        let telemetry = &mut self.record.telemetry;
        telemetry.error_count = telemetry.error_count.saturating_add(1);
        telemetry.status = fault.status;
        self.push_action(Action::CancelWork);
        self.save();
        let mut drawn = [0; size_of::<u32>()];
        (around.random)(&mut drawn);
        let wait = self.settings.backoff.delay(self.failures, u32::from_ne_bytes(drawn));
        self.log(format!("failed: {}; next attempt in {} s", fault.reason, wait.as_secs()));
        self.state = State::Waiting;
        let work = self.next_work();
        self.push_action(Action::Wait(work, wait));
    }

    /// Starts a piece of work with a time limit, and enters the state that waits for it.
    fn begin(&mut self, state: State, task: Task, limit: Duration) {
        self.state = state;
        let work = self.next_work();
        self.push_action(Action::Begin(work, task));
        self.push_action(Action::Wait(work, limit));
    }

    fn next_work(&mut self) -> WorkId {
        self.work = WorkId(self.work.0 + 1);
        self.work
    }

    fn push_action(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn log(&mut self, what: impl Into<String>) {
        self.push_action(Action::Log(what.into()));
    }

    fn save(&mut self) {
        self.push_action(Action::Save(self.record.clone()));
    }

    fn set_status(&mut self, status: Status) {
        self.record.telemetry.status = status;
        self.save();
    }
}
