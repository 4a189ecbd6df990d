//! The agent as a process: its privileges, its signals, and the service manager.

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

use crate::{executable, privileges};

/// File permissions that are off by default: all those of group and others.
const UMASK: stat::Mode = stat::Mode::from_bits_truncate(0o077);

/// Limit of open files, as in the agent's unit. Service managers and shells set 1024, which connections alone can
/// exhaust.
pub(crate) const OPEN_FILES: u64 = 8192;

/// Drops privileges that neither the agent nor its command line needs.
///
/// # Errors
/// When the kernel refuses one of the calls.
pub fn restrict() -> io::Result<()> {
    // An agent that has restarted itself is otherwise named after the link in /proc.
    prctl::set_name(c"holdfast")?;
    stat::umask(UMASK);
    // Programs started by the agent cannot gain privileges by a set-user-id bit.
    prctl::set_no_new_privs()?;
    // Memory has keys and passwords: no debugger of the same user may attach, and no core file is written.
    prctl::set_dumpable(false)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let files = getrlimit(Resource::Nofile);
    let most_files = files.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if files.current.is_some_and(|current| current < most_files) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most_files), ..files })?;
    }
    Ok(())
}

/// Command that reboots the system, from `PATH`; every init system has one.
const REBOOT_COMMAND: &str = "reboot";

/// A change of the process failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}")]
pub struct ProcessError {
    attempt: &'static str,
    source: io::Error,
}

/// Restarts the agent in its own process, with the same arguments; returns only on failure.
pub fn restart(hostname: &HostnameWriter) -> ProcessError {
    let mut command = executable::reexec_command();
    let source = match privileges::pass_hostname_socket(hostname, &mut command) {
        Ok(()) => command.exec(),
        Err(error) => error,
    };
    ProcessError { attempt: "restart the agent", source }
}

/// Reboots the system, as an operator would.
///
/// # Errors
/// When the command is missing, or fails.
pub fn reboot_system() -> Result<(), ProcessError> {
    let failed = |source| ProcessError { attempt: "reboot the system", source };
    let status = Command::new(REBOOT_COMMAND).stdin(Stdio::null()).status().map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(io::Error::other(format!("`{REBOOT_COMMAND}` ended with {status}"))))
    }
}

/// Signals to the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// Requested action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    End,
    /// Reload the certificate files.
    Reload,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> SignalAction {
        let (received, name) = tokio::select! {
            _ = self.terminate.recv() => (SignalAction::End, "SIGTERM"),
            _ = self.interrupt.recv() => (SignalAction::End, "SIGINT"),
            _ = self.hang_up.recv() => (SignalAction::Reload, "SIGHUP"),
        };
        info!(
            signal = name,
            "{}",
            if received == SignalAction::End { "ending" } else { "reloading" }
        );
        received
    }

    /// Waits for the request to end, while there is nothing to reload yet.
    pub async fn end(&mut self) {
        while self.next().await != SignalAction::End {}
    }
}

/// Tells the service manager that the box is configured.
pub fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells the service manager what its operator may want to know.
pub fn notify_status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Timeout of the service manager's watchdog; `None` without a watchdog.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero())
}

/// Tells the watchdog that the agent is alive.
pub fn notify_watchdog() {
    notify(&[NotifyState::Watchdog]);
}

/// Tells the service manager that the agent is stopping.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("ending")]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Has no effect without NOTIFY_SOCKET.
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot tell the service manager");
    }
}
