//! `holdfast show`, `holdfast user` and other short commands; most of them ask the running agent.
//!
//! Users can also be managed while no agent runs: then the commands open its database themselves. Packages of services
//! need no agent at all.

use std::{
    future::Future,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use holdfast_base::Role;
use holdfast_store::{Database, FILE_NAME, StoreError, User};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    adopt::{self, AdoptError},
    completion,
    config_command::{self, ConfigCommandError},
    config_file::{self, ConfigFile, ConfigFileError},
    doctor::{self, Subject},
    fault_profile::{self, ProfileError},
    fault_watch::{self, Taker, WatchError},
    local::{AnswerLines, Client, ClientError, ProbeEnd, ProbeText, Unsettled},
    look,
    package_files::{self, PackageFileError},
    prompt::{self, PromptError},
    services::{self, ServiceError},
    settings::{
        AdoptSettings, BootzAction, BootzCommandSettings, CheckConfigSettings, CompleteSettings,
        CompletionSettings, ConfigSettings, DEFAULT_CONFIG_FILE, DoctorSettings,
        FactoryResetSettings, FaultAction, FaultSettings, FaultWatchRequest, InstanceAction,
        MaintenanceAction, MaintenanceSettings, PackageFilesSettings, PingSettings, Position,
        ServiceAction, ServiceSettings, ShowSettings, StateDir, SupportBundleSettings,
        SwitchSettings, TraceSettings, UnitSettings, UserAction, UserSettings, WaitOnlineSettings,
    },
    support_bundle::{self, BundleError},
    unit::{UnitError, UnitFiles},
    users::{Password, PasswordError, UserError, check_name},
};

/// Exit code when no agent answers; 1 is every other failure, 2 a wrong command line.
const EXIT_NOT_RUNNING: u8 = 3;

/// Pause before `holdfast wait-online` asks again for an agent that is not there: short beside a boot.
const ONLINE_PAUSE: Duration = Duration::from_millis(250);
/// Time beyond its own for which that command waits for the answer of an agent that runs: a busy box may need it.
const ANSWER_GRACE: Duration = Duration::from_secs(2);
/// Time for which an agent that has just been started may have the database and no socket yet. Bringing a database to a
/// newer form takes longest.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks for its socket.
const SOCKET_PAUSE: Duration = Duration::from_millis(100);

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error("some of the configuration is not in the system after {} s:\n{}", .0.as_secs(), .1)]
    Unsettled(Duration, Unsettled),
    #[error("the agent has not read its configuration after {} s", .0.as_secs())]
    StillStarting(Duration),
    #[error("the agent has the database, but does not answer on its local socket")]
    Silent(#[source] StoreError),
    #[error(transparent)]
    Database(#[from] StoreError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Prompt(#[from] PromptError),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error(transparent)]
    Config(#[from] ConfigCommandError),
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error(transparent)]
    PackageFile(#[from] PackageFileError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    FaultWatch(#[from] WatchError),
    #[error(transparent)]
    FaultProfile(#[from] ProfileError),
    #[error(
        "a factory reset removes the configuration, all users and credentials: without a terminal to ask at, it needs `--yes`"
    )]
    Unconfirmed,
    #[error("nothing is removed: the answer was not `yes`")]
    Declined,
    #[error("no answer has come")]
    NoAnswer,
    #[error("{0}")]
    Probe(String),
    #[error("cannot run the command")]
    Process(#[source] io::Error),
    #[error("cannot print the answer")]
    Print(#[source] io::Error),
}

impl CommandError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Agent(ClientError::NotRunning { .. })
            | Self::Adopt(AdoptError::Agent(ClientError::NotRunning { .. }))
            | Self::Config(ConfigCommandError::Agent(ClientError::NotRunning { .. }))
            | Self::FaultProfile(ProfileError::Agent(ClientError::NotRunning { .. }))
            | Self::FaultWatch(WatchError::Agent(ClientError::NotRunning { .. })) => {
                ExitCode::from(EXIT_NOT_RUNNING)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

/// Prints an answer of the agent's introspection.
///
/// # Errors
/// When no agent runs, or it cannot answer.
pub fn show(settings: &ShowSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    print_lines(look::show(&client, settings))
}

/// Pings a host from the managed network, and prints each answer as it comes.
///
/// # Errors
/// When no agent runs, it refuses, nothing can be sent, or nothing answers.
pub fn ping(settings: &PingSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    print_probe(client.ping(&settings.question), settings.json)
}

/// Traces the way to a host from the managed network, and prints each answer as it comes.
///
/// # Errors
/// As [`ping`].
pub fn traceroute(settings: &TraceSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    print_probe(client.trace(&settings.question), settings.json)
}

fn print_probe(
    begun: impl Future<Output = Result<AnswerLines, ClientError>>,
    json: bool,
) -> Result<(), CommandError> {
    let mut text = ProbeText::default();
    print_lines(async {
        begun
            .await?
            .print(|line| {
                let shown = text.next(line);
                print_part(if json { line } else { &shown })
            })
            .await
    })?;
    let (rest, end) = text.end();
    if !json {
        print(&rest)?;
    }
    match end {
        ProbeEnd::Answered => Ok(()),
        ProbeEnd::Silent => Err(CommandError::NoAnswer),
        ProbeEnd::Failed(reason) => Err(CommandError::Probe(reason)),
    }
}

/// Checks the configuration file, and looks at the files that it names.
///
/// # Errors
/// With all mistakes of the file.
pub fn check_config(settings: &CheckConfigSettings) -> Result<(), CommandError> {
    let path = settings.file.as_deref().unwrap_or_else(|| Path::new(DEFAULT_CONFIG_FILE));
    let file = ConfigFile::read(path)?;
    file.check(&|_| false).map_err(ConfigFileError::from)?;
    config_file::check_paths(&file)?;
    print(&format!("{} is good; keys that it sets: {}\n", path.display(), file.len()))
}

/// Switches a drop-in of the agent's unit, or lists them.
///
/// # Errors
/// When systemd does not run, the drop-in is unknown, or a file cannot be changed.
pub fn unit(settings: &UnitSettings) -> Result<(), CommandError> {
    print(&UnitFiles::default().run(&settings.action)?)
}

/// Writes the files of a package that follow from the definition of the command line.
///
/// # Errors
/// When a file cannot be written.
pub fn package_files(settings: &PackageFilesSettings) -> Result<(), CommandError> {
    Ok(package_files::write(&settings.folder)?)
}

/// Prints the script by which a shell completes command lines.
///
/// # Errors
/// When nobody takes it.
pub fn completion(settings: &CompletionSettings) -> Result<(), CommandError> {
    print(completion::script(settings.shell))
}

/// Prints the words that complete a command line.
///
/// # Errors
/// When nobody takes them.
pub fn complete(settings: &CompleteSettings) -> Result<(), CommandError> {
    print(&asynchronously(completion::complete(settings))?)
}

/// Shows or changes the configuration.
///
/// # Errors
/// When no agent runs, it refuses, or a file or the editor cannot be used.
pub fn config(settings: &ConfigSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    print(&asynchronously(config_command::run(&client, &settings.action))??)
}

/// Waits until what is configured is in the system.
///
/// # Errors
/// When that takes longer than it may: with what is missing, or with the reason why no agent answers.
pub fn wait_online(settings: &WaitOnlineSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    asynchronously(async {
        let deadline = Instant::now() + settings.timeout;
        loop {
            let within = deadline.saturating_duration_since(Instant::now());
            let asked = client.unsettled(settings.allow_pending, within);
            // An agent that runs answers within that time; one that is starting answers later.
            let missing = match timeout_at(deadline + ANSWER_GRACE, asked).await {
                Ok(Ok(found)) if !found.is_busy && found.values == 0 => return Ok(()),
                Ok(Ok(found)) => CommandError::Unsettled(settings.timeout, found),
                // It has not been started yet, is starting, or is started anew.
                Ok(Err(error)) if error.is_transient() => error.into(),
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => CommandError::StillStarting(settings.timeout),
            };
            if Instant::now() + ONLINE_PAUSE >= deadline {
                return Err(missing);
            }
            sleep(ONLINE_PAUSE).await;
        }
    })?
}

/// Prints the configuration that asks for what the kernel has, or sets it.
///
/// # Errors
/// When the kernel cannot be read; of a change also when no agent runs, or it refuses.
pub fn adopt(settings: &AdoptSettings) -> Result<(), CommandError> {
    print(&asynchronously(adopt::run(settings))??)
}

/// Looks at the box, and prints what is wrong. The exit code is that of the worst finding.
///
/// # Errors
/// When nobody takes the answer.
pub fn doctor(settings: &DoctorSettings) -> Result<ExitCode, CommandError> {
    let rows = asynchronously(async {
        let subject = Subject::gather(&settings.state, settings.quick).await;
        doctor::examine(&subject)
    })?;
    print(&match settings.json {
        true => doctor::json(&rows).map_err(ClientError::from)?,
        false => doctor::text(&rows),
    })?;
    Ok(ExitCode::from(doctor::worst(&rows).exit_code()))
}

/// Makes a bundle for support, and prints what it lacks.
///
/// # Errors
/// When the bundle cannot be written.
pub fn support_bundle(settings: &SupportBundleSettings) -> Result<(), CommandError> {
    print(&asynchronously(support_bundle::make(settings))??)
}

/// Switches a service's namespace on or off, or prints the position of the switch.
///
/// # Errors
/// When no agent runs, or it refuses.
pub fn switch(settings: &SwitchSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    let name = settings.service.name();
    if let Some(position) = settings.position {
        return Ok(asynchronously(client.switch(name, position == Position::On))??);
    }
    let switches = asynchronously(client.switches())??;
    let on = switches.iter().any(|entry| entry.service == name && entry.on);
    print(if on { "on\n" } else { "off\n" })
}

/// Resets the box to its factory configuration, and prints what that has removed. A person at a terminal is asked before.
///
/// # Errors
/// When no agent runs, it refuses, or nobody has confirmed it.
pub fn factory_reset(settings: &FactoryResetSettings) -> Result<(), CommandError> {
    let FactoryResetSettings { state, retain_certificates, yes } = settings;
    let client = Client::new(&state.socket());
    let reset = |dry_run| asynchronously(client.factory_reset(*retain_certificates, dry_run));
    if !yes {
        if !io::stdin().is_terminal() {
            return Err(CommandError::Unconfirmed);
        }
        let question = format!("A factory reset removes:\n{}Type `yes` to go on: ", reset(true)??);
        if !prompt::is_confirmed(&question)? {
            return Err(CommandError::Declined);
        }
    }
    let removed = reset(false)??;
    print(&format!("removed:\n{removed}the agent starts anew with its factory configuration\n"))
}

/// Starts, ends or shows a bootstrap.
///
/// # Errors
/// When no agent runs, or it refuses.
pub fn bootz(settings: &BootzCommandSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    match &settings.action {
        BootzAction::Start { bootz_uri, src_interface } => {
            Ok(asynchronously(client.start_bootz(bootz_uri.as_deref(), src_interface.as_deref()))??)
        }
        BootzAction::Status => print(&asynchronously(client.text("/bootz"))??),
        BootzAction::Terminate => Ok(asynchronously(client.terminate_bootz())??),
        BootzAction::Reset => Ok(asynchronously(client.reset_bootz())??),
    }
}

/// Writes, checks, tries or packs a package of a service, or has the agent operate on packages and instances.
///
/// # Errors
/// When something is wrong with the package, a file cannot be read or written, or the agent refuses.
pub fn service(settings: &ServiceSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket()).with_trace(settings.trace_id.clone());
    if let ServiceAction::Instance(action @ InstanceAction::Watch { .. }) = &settings.action {
        return print_lines(async { client.follow(action).await?.print(print_part).await });
    }
    print(&match &settings.action {
        ServiceAction::Package(action) => services::run(action)?,
        ServiceAction::Instance(action) => asynchronously(client.operate(action))??,
        ServiceAction::Install { archive, terms } => {
            asynchronously(client.install_package(services::read_file(archive)?, terms))??
        }
        ServiceAction::Remove { name, force } => {
            asynchronously(client.remove_package(name, *force))??
        }
        ServiceAction::List => asynchronously(client.packages())??,
    })
}

/// Shows, acknowledges or follows alarms.
///
/// # Errors
/// When no agent runs, it refuses, or a program cannot be started.
pub fn fault(settings: &FaultSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    let watch = match &settings.action {
        FaultAction::Question(question) => {
            return print(&asynchronously(client.ask_of_faults(question))??);
        }
        FaultAction::Profile(profile) => {
            let (report, verdict) = asynchronously(fault_profile::run(&client, profile))??;
            print(&report)?;
            return Ok(verdict?);
        }
        FaultAction::Watch(watch) => watch,
    };
    if let Some(taker) = Taker::of(watch)? {
        return Ok(asynchronously(fault_watch::follow(&client, watch, &taker))??);
    }
    let request = FaultWatchRequest { filter: watch.filter.clone(), after: watch.after };
    print_lines(async { client.watch_faults(&request).await?.print(print_part).await })
}

/// Makes, shows or follows maintenance sessions.
///
/// # Errors
/// When no agent runs, or it refuses.
pub fn maintenance(settings: &MaintenanceSettings) -> Result<(), CommandError> {
    let client = Client::new(&settings.state.socket());
    match &settings.action {
        MaintenanceAction::Question(question) => {
            print(&asynchronously(client.ask_of_maintenance(question))??)
        }
        MaintenanceAction::Watch(watch) => {
            print_lines(async { client.watch_maintenance(*watch).await?.print(print_part).await })
        }
    }
}

/// Prints an answer that goes on, until the agent ends it or nobody reads it any more.
fn print_lines(
    printing: impl Future<Output = Result<(), ClientError>>,
) -> Result<(), CommandError> {
    match asynchronously(printing)? {
        Err(ClientError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Creates, changes, removes or lists users.
///
/// # Errors
/// When the agent refuses, or, if none runs, its database cannot be used.
pub fn user(settings: UserSettings) -> Result<(), CommandError> {
    let access = UserBackend::of(&settings.state)?;
    match settings.action {
        UserAction::Set { name, role, password_file, no_password } => {
            check_name(&name)?;
            let password = match (no_password, password_file) {
                (true, _) => None,
                (false, Some(file)) => Some(Password::from_file(&file)?),
                (false, None) => Some(prompt::new_password(&name)?),
            };
            access.set(&name, role, password.as_ref())
        }
        UserAction::Delete { name } => access.delete(&name),
        UserAction::List => print(&access.list()?),
    }
}

/// Source of the users.
enum UserBackend {
    Agent(Client),
    Database(Box<Database>),
    /// No agent has ever run with this state folder, and no user was created.
    Nothing(StateDir),
}

impl UserBackend {
    /// The running agent if there is one, else its database. An agent that has the database is asked again until it has its
    /// socket, too.
    fn of(state: &StateDir) -> Result<Self, CommandError> {
        let client = Client::new(&state.socket());
        asynchronously(async {
            let deadline = Instant::now() + SOCKET_TIMEOUT;
            loop {
                match client.users().await {
                    Ok(_) => return Ok(Self::Agent(client)),
                    Err(ClientError::NotRunning { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                if !state.path().join(FILE_NAME).exists() {
                    return Ok(Self::Nothing(state.clone()));
                }
                match open(state.path()) {
                    Ok(database) => return Ok(Self::Database(Box::new(database))),
                    Err(CommandError::Silent(_)) if Instant::now() < deadline => {
                        sleep(SOCKET_PAUSE).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        })?
    }

    fn set(
        self,
        name: &str,
        role: Option<Role>,
        password: Option<&Password>,
    ) -> Result<(), CommandError> {
        let mut database = match self {
            Self::Agent(client) => {
                return Ok(asynchronously(client.set_user(name, role, password))??);
            }
            Self::Database(database) => database,
            Self::Nothing(state) => Box::new(open(state.path())?),
        };
        let password_hash = password.map(Password::hash).transpose()?.unwrap_or_default();
        let role = match role {
            Some(role) => role,
            None => {
                let existing = database.users()?.into_iter().find(|user| user.name == name);
                existing.map_or(Role::None, |user| user.role)
            }
        };
        Ok(database.set_user(&User { name: name.into(), role, password_hash })?)
    }

    fn delete(self, name: &str) -> Result<(), CommandError> {
        let existed = match self {
            Self::Agent(client) => return Ok(asynchronously(client.delete_user(name))??),
            Self::Database(mut database) => database.delete_user(name)?,
            Self::Nothing(_) => false,
        };
        if existed { Ok(()) } else { Err(UserError::Unknown(name.into()).into()) }
    }

    /// One line for each user: name, tabulator, role.
    fn list(self) -> Result<String, CommandError> {
        Ok(match self {
            Self::Agent(client) => {
                let users = asynchronously(client.users())??;
                users.iter().map(|user| format!("{}\t{}\n", user.name, user.role)).collect()
            }
            Self::Database(database) => database
                .users()?
                .iter()
                .map(|user| format!("{}\t{}\n", user.name, user.role))
                .collect(),
            Self::Nothing(_) => String::new(),
        })
    }
}

fn open(folder: &Path) -> Result<Database, CommandError> {
    Database::open(folder).map_err(|error| match error {
        StoreError::Locked { .. } => CommandError::Silent(error),
        error => error.into(),
    })
}

fn asynchronously<T>(work: impl Future<Output = T>) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(CommandError::Process)?.block_on(work))
}

/// Prints to standard output; a reader that has seen enough is not a failure.
fn print(text: &str) -> Result<(), CommandError> {
    match print_part(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandError::Print(error)),
        _ => Ok(()),
    }
}

/// Prints a part of an answer that goes on.
fn print_part(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())
}
