//! The agent as a process: what it may do, when it ends, and what the service manager is told.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Duration,
};

use holdfast_platform::hostname::HostnameWriter;
use nix::sys::{prctl, stat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::privileges;

/// Bits that no file of the agent has unless it is given them: nothing for group and others.
const UMASK: stat::Mode = stat::Mode::from_bits_truncate(0o077);

/// Files that the agent may have open: as many as in its unit. Service managers and shells give 1024, which the
/// connections alone can take.
const OPEN_FILES: u64 = 8192;

/// The program that runs, whatever lies in its place by now.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Gives up what neither the agent nor its command line needs.
///
/// # Errors
/// When the kernel refuses one of it.
pub fn restrict() -> io::Result<()> {
    // An agent that has started itself anew is called after the link in /proc that it did that by.
    prctl::set_name(c"holdfast")?;
    stat::umask(UMASK);
    // No program started from here gains privileges by a set-user-id bit.
    prctl::set_no_new_privs()?;
    // Memory holds keys and passwords: no debugger of the same user, no core file.
    prctl::set_dumpable(false)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let files = getrlimit(Resource::Nofile);
    let wanted = files.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if files.current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..files })?;
    }
    Ok(())
}

/// What starts the whole system anew, from `PATH`: every init system brings one.
const REBOOT_COMMAND: &str = "reboot";

/// The process cannot become what it should.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}")]
pub struct ProcessError {
    attempt: &'static str,
    source: io::Error,
}

/// Starts the agent anew in its own place, with the same arguments; returns only when that fails.
pub fn start_anew(hostname: &HostnameWriter) -> ProcessError {
    let mut command = anew();
    let source = match privileges::hand_over(hostname, &mut command) {
        Ok(()) => command.exec(),
        Err(error) => error,
    };
    ProcessError { attempt: "start the agent anew", source }
}

/// This program again, with the same arguments.
pub(crate) fn anew() -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new(SELF);
    command.arg0(name).args(arguments);
    command
}

/// Has the system reboot, as an operator would.
///
/// # Errors
/// When there is no such command, or it fails.
pub fn reboot_system() -> Result<(), ProcessError> {
    let failed = |source| ProcessError { attempt: "reboot the system", source };
    let status = Command::new(REBOOT_COMMAND).stdin(Stdio::null()).status().map_err(failed)?;
    match status.success() {
        true => Ok(()),
        false => Err(failed(io::Error::other(format!("`{REBOOT_COMMAND}` ended with {status}")))),
    }
}

/// What the outside tells the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    End,
    /// Read the certificate files again.
    Reload,
}

impl Signals {
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Told {
        let (told, name) = tokio::select! {
            _ = self.terminate.recv() => (Told::End, "SIGTERM"),
            _ = self.interrupt.recv() => (Told::End, "SIGINT"),
            _ = self.hang_up.recv() => (Told::Reload, "SIGHUP"),
        };
        info!(signal = name, "told to {}", if told == Told::End { "end" } else { "reload" });
        told
    }

    /// Waits for the end, when there is nothing yet to reload.
    pub async fn end(&mut self) {
        while self.next().await != Told::End {}
    }
}

/// Tells the service manager that requests are answered.
pub fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// How long the service manager's watchdog waits for a word of the agent; nothing where there is no watchdog.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero())
}

/// Tells the watchdog that the agent is at work.
pub fn notify_watchdog() {
    notify(&[NotifyState::Watchdog]);
}

/// Tells the service manager that the end has begun.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("ending")]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET this does nothing.
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot tell the service manager");
    }
}
