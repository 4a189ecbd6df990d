//! The state machine: what happened goes in, what is to be done comes out.
//!
//! A client is in one [`State`]. All states but [`State::Resting`] have a deadline, so that work which is lost (a
//! connection that hangs, a command that never returns) ends in a new attempt and never in silence. Every piece of work
//! has a number; what comes back from an attempt that was given up has an old one and changes nothing.

mod attempt;
mod record;
mod report;

pub use self::record::{Entry, Flow, Parameters, Record, Stage, Status, Telemetry};

use std::time::Duration;

use holdfast_proto::bootz::{
    BootstrapStreamRequestV1, BootstrapStreamResponseV1, GetBootstrapDataRequest,
    GetBootstrapDataResponse, ReportStatusRequest,
};
use rustls_pki_types::{CertificateDer, UnixTime};

use self::attempt::Attempt;
use self::report::Report;
use crate::identity::Chain;
use crate::image::{Image, Slot};
use crate::payload::Payload;
use crate::retry::Backoff;
use crate::uri::Server;
use crate::wire::Refused;

/// How long each piece of work may last.
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
    /// Until a reboot that was asked for has happened.
    pub(super) const REBOOT: Duration = Duration::from_secs(10 * 60);
    /// A transaction of the largest configuration, with what it may wait for.
    pub(super) const APPLY: Duration = Duration::from_secs(10 * 60);
}

/// What the box is and how it is set up.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Who made it.
    pub manufacturer: String,
    /// The vendor's name of what it is.
    pub part_number: String,
    /// Its serial number, which vouchers name.
    pub serial: String,
    /// Its IDevID certificate and those above it.
    pub idevid: Chain,
    /// What vouchers lead to, in DER.
    pub vendor: Vec<CertificateDer<'static>>,
    /// Whether the server has to prove that it speaks for the owner. False is for laboratories.
    pub checks_ownership: bool,
    /// Which rpc is tried.
    pub flows: Flows,
    /// Its software.
    pub slot: Slot,
    /// How attempts are spaced.
    pub backoff: Backoff,
    /// The port on which DHCP is asked. A box that has one begins by itself when it is factory-new.
    pub port: Option<String>,
}

/// Which rpc is tried.
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

/// What comes from outside at each step.
pub struct Surroundings<'a> {
    /// The time of day.
    pub now: UnixTime,
    /// Fills octets that nobody can guess.
    pub random: &'a mut dyn FnMut(&mut [u8]),
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The number of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Work(u64);

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The agent has started.
    Started {
        /// Nobody has configured the box since it left the factory, and nobody has forbidden it to bootstrap.
        factory_new: bool,
    },
    /// Somebody else has configured the box.
    Configured,
    /// The operator wants something.
    Command(Command),
    /// The wait with this number is over.
    TimerDue(Work),
    /// A piece of work is done.
    Done(Work, Outcome),
}

/// What operators want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bootstrap, now.
    Start(Entry),
    /// Stop, and leave the configuration as it is.
    Terminate,
    /// Back to the state of the factory, and bootstrap from there.
    Reset,
}

/// How a piece of work ended.
#[derive(Debug)]
pub enum Outcome {
    /// Of [`Task::Lease`]: the bootstrap servers that DHCP named.
    Leased(Result<Vec<Server>, String>),
    /// Of [`Task::Connect`].
    Connected(Result<(), String>),
    /// Of [`Task::GetData`].
    Data(Result<Box<GetBootstrapDataResponse>, Refused>),
    /// Of [`Task::OpenStream`] and [`Task::Send`]: the next message.
    Message(Result<Box<BootstrapStreamResponseV1>, Refused>),
    /// Of [`Task::Sign`].
    Signed(Result<Vec<u8>, String>),
    /// Of [`Task::Install`].
    Installed(Result<Installed, String>),
    /// Of [`Task::Apply`]: what the report should say beside success.
    Applied(Result<Vec<String>, String>),
    /// Of [`Task::Report`].
    Reported(Result<(), Refused>),
}

/// What installing an image has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It runs.
    Running,
    /// It runs after a reboot.
    AtReboot,
}

/// What is to be done, in this order.
#[derive(Clone, Debug)]
pub enum Action {
    /// To be durable before the next action.
    Save(Record),
    /// For whoever watches.
    Tell(String),
    /// Connection, stream and all work go.
    Abandon,
    /// Do this; its [`Outcome`] comes back with the number.
    Begin(Work, Task),
    /// [`Event::TimerDue`] comes after this time, unless another wait is asked for before.
    Wait(Work, Duration),
    /// Reboot the box.
    Reboot,
    /// Back to the state of the factory.
    Reset,
}

/// A piece of work.
#[derive(Clone, Debug)]
pub enum Task {
    /// Get an address, and ask for bootstrap servers; keep the lease.
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
    /// Bring all of this into force, or nothing.
    Apply(Box<Payload>),
    /// Call `ReportStatus` on the connection.
    Report(ReportStatusRequest),
}

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Where to.
    pub server: Server,
    /// The interface to go out by, as the operator named it.
    pub interface: Option<String>,
    /// Whether the IDevID is presented in the handshake: always in the unary flow, never before a stream.
    pub presents_idevid: bool,
    /// What the server's certificate has to lead to. Without one, any server is spoken to: what it says is believed for
    /// its voucher and signature.
    pub trusts: Option<CertificateDer<'static>>,
}

/// What to install, and how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// The image.
    pub image: Image,
    /// What the certificate of its server may lead to, beside the authorities that the box knows anyway.
    pub trusts: CertificateDer<'static>,
}

/// Where a client stands.
#[derive(Debug)]
pub enum State {
    /// There is nothing to do until somebody wants something.
    Resting,
    /// A wait before the next attempt.
    Waiting,
    /// An attempt to get and apply data.
    Attempting(Box<Attempt>),
    /// An attempt to report the outcome.
    Reporting(Box<Report>),
}

/// The bootstrap client of one box.
#[derive(Debug)]
pub struct Client {
    profile: Profile,
    record: Record,
    state: State,
    work: Work,
    /// Failures in a row.
    failures: u32,
    /// DHCP has been asked since the agent started: the address is there.
    has_lease: bool,
    /// The server whose data was refused last: the next attempt begins with the one after it.
    refused: Option<Server>,
    actions: Vec<Action>,
}

/// Why an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    status: Status,
    reason: String,
}

impl Fault {
    fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    /// What has nothing to do with the data: a server or a network that is not there.
    fn unreachable(reason: impl Into<String>) -> Self {
        Self::new(Status::Unspecified, reason)
    }

    fn unexpected(expected: &str) -> Self {
        Self::unreachable(format!("the server sent something else than {expected}"))
    }
}

impl Client {
    /// A client that goes on from what was saved last. It does nothing before [`Event::Started`].
    #[must_use]
    pub fn new(profile: Profile, record: Record) -> Self {
        Self {
            profile,
            record,
            state: State::Resting,
            work: Work(0),
            failures: 0,
            has_lease: false,
            refused: None,
            actions: Vec::new(),
        }
    }

    /// What is to be kept, and what readers see.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Takes an event and says what is to be done about it, in order.
    pub fn step(&mut self, event: Event, around: &mut Surroundings<'_>) -> Vec<Action> {
        match event {
            Event::Started { factory_new } => self.start(factory_new, around),
            Event::Configured => self.stand_aside(),
            Event::Command(command) => self.obey(command, around),
            Event::TimerDue(work) if work == self.work => self.late(around),
            Event::Done(work, outcome) if work == self.work => self.advance(outcome, around),
            Event::TimerDue(_) | Event::Done(..) => {} // of something that was given up
        }
        std::mem::take(&mut self.actions)
    }

    /// Goes on, or begins when nothing has ever been asked of the box.
    fn start(&mut self, factory_new: bool, around: &mut Surroundings<'_>) {
        if factory_new && self.record.parameters.is_none() && self.profile.port.is_some() {
            self.tell("the box is factory-new: starting to bootstrap by DHCP");
            let (entry, stage) = (Entry::Dhcp, Stage::Attempting);
            self.record.parameters = Some(Parameters { entry, stage });
        }
        self.go_on(around);
    }

    /// Who configures a box by hand does not want it to be overwritten. What is being applied is ours.
    fn stand_aside(&mut self) {
        let parameters = self.record.parameters.as_ref();
        let tries = parameters.is_some_and(|it| it.stage == Stage::Attempting);
        let applies = matches!(&self.state, State::Attempting(attempt) if attempt.is_applying());
        if tries && !applies {
            self.do_now(Action::Abandon);
            self.tell("somebody has configured the box: bootstrapping ends");
            self.rest_as(Status::Unspecified);
        }
    }

    fn obey(&mut self, command: Command, around: &mut Surroundings<'_>) {
        self.do_now(Action::Abandon);
        match command {
            Command::Start(entry) => {
                self.tell(format!("starting to bootstrap by {entry}"));
                self.failures = 0;
                self.refused = None;
                self.record.parameters = Some(Parameters { entry, stage: Stage::Attempting });
                self.go_on(around);
            }
            Command::Terminate => {
                self.tell("terminated: the configuration stays as it is");
                self.rest_as(Status::Unspecified);
            }
            Command::Reset => {
                self.tell("reset: the box goes back to the factory");
                self.rest_as(Status::Unspecified);
                self.do_now(Action::Reset);
            }
        }
    }

    /// Nothing is left to do.
    fn rest_as(&mut self, status: Status) {
        self.next_work();
        self.state = State::Resting;
        self.record.parameters = None;
        self.record.telemetry.status = status;
        self.save();
    }

    /// Takes up what the record says.
    fn go_on(&mut self, around: &mut Surroundings<'_>) {
        match &self.record.parameters {
            None => self.state = State::Resting,
            Some(Parameters { stage: Stage::Attempting, .. }) => self.begin_attempt(around),
            Some(Parameters { stage: Stage::Reporting { .. }, .. }) => self.begin_report(),
        }
    }

    fn late(&mut self, around: &mut Surroundings<'_>) {
        match std::mem::replace(&mut self.state, State::Resting) {
            State::Resting => {}
            State::Waiting => self.go_on(around),
            State::Attempting(attempt) => {
                let fault = attempt.lateness();
                self.fail_attempt(Some(*attempt), fault, around);
            }
            State::Reporting(report) => {
                let fault = Fault::unreachable("the server did not take the report in time");
                self.fail_report(&report, fault, around);
            }
        }
    }

    fn advance(&mut self, outcome: Outcome, around: &mut Surroundings<'_>) {
        match std::mem::replace(&mut self.state, State::Resting) {
            State::Resting => {}
            State::Waiting => self.state = State::Waiting,
            State::Attempting(attempt) => self.advance_attempt(*attempt, outcome, around),
            State::Reporting(report) => self.advance_report(*report, outcome, around),
        }
    }

    /// Waits before the next attempt, after a failure that counts.
    fn wait(&mut self, fault: &Fault, around: &mut Surroundings<'_>) {
        self.failures = self.failures.saturating_add(1);
        let telemetry = &mut self.record.telemetry;
        telemetry.error_count = telemetry.error_count.saturating_add(1);
        telemetry.status = fault.status;
        self.do_now(Action::Abandon);
        self.save();
        let mut drawn = [0; size_of::<u32>()];
        (around.random)(&mut drawn);
        let wait = self.profile.backoff.wait(self.failures, u32::from_ne_bytes(drawn));
        self.tell(format!("failed: {}; next attempt in {} s", fault.reason, wait.as_secs()));
        self.state = State::Waiting;
        let work = self.next_work();
        self.do_now(Action::Wait(work, wait));
    }

    /// Begins a piece of work that may last so long, in the state that waits for it.
    fn begin(&mut self, state: State, task: Task, limit: Duration) {
        self.state = state;
        let work = self.next_work();
        self.do_now(Action::Begin(work, task));
        self.do_now(Action::Wait(work, limit));
    }

    fn next_work(&mut self) -> Work {
        self.work = Work(self.work.0 + 1);
        self.work
    }

    fn do_now(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.do_now(Action::Tell(what.into()));
    }

    fn save(&mut self) {
        self.do_now(Action::Save(self.record.clone()));
    }

    fn set_status(&mut self, status: Status) {
        self.record.telemetry.status = status;
        self.save();
    }
}
