//! Everything that the checks judge: answers of the agent, of the kernel and of other programs, and where the files of the box are.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use holdfast_base::ErrorChain;
use holdfast_platform::kernel_trial::{KernelTrial, try_kernel};
use holdfast_platform::namespace_lock::{LockHolder, NamespaceLock};
use holdfast_platform::netns::{Netns, NetnsSetting};
use nix::unistd::gethostname;
use tokio::process::Command as Program;
use tokio::time::timeout;

use clap::Parser as _;

use crate::config_file::{ConfigFile, Invocation};
use crate::executable;
use crate::local::{AgentReport, Client, ClientError, UserSummary};
use crate::settings::{Command, CommandLine, DEFAULT_CONFIG_FILE, RunSettings, StateDir};

/// Name of the packaged unit.
const UNIT: &str = "holdfast.service";
/// Properties of the unit that are asked for.
const UNIT_PROPERTIES: &str = "--property=LoadState,UnitFileState,ActiveState,Result,NRestarts,ExecMainStatus,LimitNOFILE,ExecStart,Before,After,Wants,Requires";
/// Time for another program to answer. Each of them asks a daemon on this box.
const TOOL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the agent to answer. A busy agent answers within a second.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that the checks judge.
#[derive(Debug)]
pub struct Subject {
    /// Folder that stands for the root of the system.
    pub(crate) root: PathBuf,
    /// Options of the agent: of the one that runs, or of the unit, or else the defaults.
    pub(crate) settings: RunSettings,
    /// The check of the configuration file, which fails with the mistakes. `None` when the box has no such file.
    pub(crate) file: Option<Result<(), String>>,
    pub(crate) agent: AgentAnswer,
    /// The agent that manages the network namespace.
    pub(crate) holder: Result<Option<LockHolder>, String>,
    /// Attempts at features of the kernel; `None` when none was tried.
    pub(crate) trials: Option<Result<Vec<KernelTrial>, String>>,
    /// Leaves out what takes more than a moment.
    pub(crate) is_quick: bool,
    pub(crate) unit: ToolAnswer,
    pub(crate) networkd: ToolAnswer,
    pub(crate) network_manager: ToolAnswer,
    pub(crate) clock: ToolAnswer,
    pub(crate) host_name: String,
    pub(crate) now: SystemTime,
    /// Date of the program's file.
    pub(crate) program_date: Option<SystemTime>,
}

/// Answers of the agent.
#[derive(Debug)]
pub(crate) enum AgentAnswer {
    Running(Box<AgentFacts>),
    /// No agent answers, for this reason.
    NotRunning(String),
    /// The caller may not ask it.
    NotAllowed(String),
}

/// Answers of the agent about itself.
#[derive(Debug, Default)]
pub(crate) struct AgentFacts {
    pub(crate) report: AgentReport,
    pub(crate) users: Vec<UserSummary>,
    /// Text about bootstraps; `None` for an agent without an IDevID.
    pub(crate) bootstrap: Option<String>,
}

/// Answer of another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolAnswer {
    /// The program is not installed.
    Missing,
    Failed(String),
    Text(String),
}

impl ToolAnswer {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Failed(_) => None,
        }
    }
}

impl Subject {
    /// Finds out about the box of this process and the agent with this state folder.
    pub async fn gather(state: &StateDir, is_quick: bool) -> Self {
        let agent = AgentAnswer::of(&Client::new(&state.socket())).await;
        let (unit, networkd, network_manager, clock) = tokio::join!(
            ask_tool("systemctl", &["show", UNIT, UNIT_PROPERTIES], None),
            ask_tool("networkctl", &["--json=short", "list"], None),
            ask_tool("nmcli", &["-t", "-f", "DEVICE,STATE", "device"], None),
            ask_tool("timedatectl", &["show", "--property=NTPSynchronized", "--value"], None),
        );
        let settings = settings_of(&agent, &unit, state);
        let netns = settings.netns.clone().map_or(NetnsSetting::Current, NetnsSetting::Given);
        let holder = match Netns::open(&netns) {
            Ok(netns) => {
                NamespaceLock::holder(&netns).await.map_err(|it| ErrorChain(&it).to_string())
            }
            Err(error) => Err(ErrorChain(&error).to_string()),
        };
        let trials = match is_quick {
            true => None,
            false => Some(trials().await),
        };
        let program = std::fs::metadata(executable::SELF).and_then(|file| file.modified());
        Self {
            root: "/".into(),
            settings,
            file: mistakes_of_file(state),
            agent,
            holder,
            trials,
            is_quick,
            unit,
            networkd,
            network_manager,
            clock,
            host_name: gethostname().unwrap_or_default().to_string_lossy().into_owned(),
            now: SystemTime::now(),
            program_date: program.ok(),
        }
    }

    pub(crate) fn facts(&self) -> Option<&AgentFacts> {
        match &self.agent {
            AgentAnswer::Running(facts) => Some(facts),
            AgentAnswer::NotRunning(_) | AgentAnswer::NotAllowed(_) => None,
        }
    }

    pub(crate) fn report(&self) -> Option<&AgentReport> {
        self.facts().map(|facts| &facts.report)
    }

    pub(crate) fn state_folder(&self) -> &Path {
        self.settings.state.path()
    }

    /// A file of the system.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Content of a file of the system; `None` for one that is not there or not readable.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        std::fs::read(self.file(path)).ok().map(|text| String::from_utf8_lossy(&text).into_owned())
    }

    /// A property of the unit.
    pub(crate) fn unit_property(&self, name: &str) -> Option<&str> {
        let text = self.unit.text()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

async fn trials() -> Result<Vec<KernelTrial>, String> {
    let tried = tokio::task::spawn_blocking(try_kernel).await;
    match tried {
        Ok(tried) => tried.map_err(|error| ErrorChain(&error).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

impl AgentAnswer {
    pub(crate) async fn of(client: &Client) -> Self {
        let report = match timeout(AGENT_TIMEOUT, client.report()).await {
            Err(_) => {
                let seconds = AGENT_TIMEOUT.as_secs();
                let reason = format!("the agent has not answered within {seconds} s");
                return Self::NotRunning(reason);
            }
            Ok(Ok(report)) => report,
            Ok(Err(error @ ClientError::NotAllowed { .. })) => {
                return Self::NotAllowed(ErrorChain(&error).to_string());
            }
            Ok(Err(error)) => return Self::NotRunning(ErrorChain(&error).to_string()),
        };
        let users = client.users().await.unwrap_or_default();
        let bootstrap = client.text("/bootz").await.ok();
        Self::Running(Box::new(AgentFacts { report, users, bootstrap }))
    }
}

/// Options of the agent that runs, or of the unit, or else the defaults.
pub(crate) fn settings_of(agent: &AgentAnswer, unit: &ToolAnswer, state: &StateDir) -> RunSettings {
    let folder = state.path().to_string_lossy();
    let of_unit = || {
        let start = unit.text()?.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
        // `{ path=... ; argv[]=/usr/bin/holdfast run ... ; ignore_errors=no ; ... }`
        let words = start.split_once("argv[]=")?.1;
        let words = words.split_once(" ; ").map_or(words, |(words, _)| words);
        Some(words.replace("${STATE_DIRECTORY}", &folder).split(' ').map(str::to_owned).collect())
    };
    let arguments: Option<Vec<String>> = match agent {
        AgentAnswer::Running(facts) => Some(facts.report.arguments.clone()),
        AgentAnswer::NotRunning(_) | AgentAnswer::NotAllowed(_) => of_unit(),
    };
    let run = |command| match command {
        Command::Run(settings) => Some(*settings),
        _ => None,
    };
    // Together with the configuration file.
    let parsed = |arguments: Vec<String>| {
        let arguments = arguments.into_iter().map(OsString::from).collect();
        run(Invocation::parse(arguments).ok()?.command)
    };
    let settings = arguments.and_then(parsed).or_else(|| parsed(default_arguments(state)));
    // A file with mistakes is judged by a check of its own.
    let alone = || run(CommandLine::try_parse_from(["holdfast", "run"]).ok()?.command);
    let settings = settings.or_else(alone);
    let settings = settings.expect("the command line without options is complete");
    RunSettings { state: state.clone(), ..settings }
}

fn default_arguments(state: &StateDir) -> Vec<String> {
    let file = state.config.iter().map(|file| format!("--config={}", file.display()));
    ["holdfast", "run"].map(str::to_owned).into_iter().chain(file).collect()
}

/// Checks the configuration file. `None` when the box has no such file.
fn mistakes_of_file(state: &StateDir) -> Option<Result<(), String>> {
    let path = state.config.as_deref().unwrap_or_else(|| Path::new(DEFAULT_CONFIG_FILE));
    if state.config.is_none() && !path.exists() {
        return None;
    }
    // Options that a flag or a variable of the agent gives are not known here.
    let checked = ConfigFile::read(path).and_then(|file| Ok(file.check(&|_| true)?));
    Some(checked.map_err(|error| ErrorChain(&error).to_string()))
}

/// Runs a program, in the folders of `path` instead of `PATH` where they are given.
pub(crate) async fn ask_tool(program: &str, arguments: &[&str], path: Option<&Path>) -> ToolAnswer {
    let mut command = Program::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = match timeout(TOOL_TIMEOUT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return ToolAnswer::Missing,
        Ok(Err(error)) => return ToolAnswer::Failed(format!("cannot run {program}: {error}")),
        Err(_) => {
            let seconds = TOOL_TIMEOUT.as_secs();
            return ToolAnswer::Failed(format!("{program} did not answer within {seconds} s"));
        }
    };
    if output.status.success() {
        return ToolAnswer::Text(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = errors.lines().next().unwrap_or("without a word");
    ToolAnswer::Failed(format!("{program} failed ({}): {reason}", output.status))
}
