//! Capabilities that the agent keeps, and the helper process with the one capability that the agent gives up.
//!
//! Capabilities belong to threads, and the allocator starts threads before `main`. So [`drop_capabilities`] gives up the
//! capabilities that are not needed and then executes the program again in place, after which no thread has more.
//! Capabilities that the service manager does not give are not requested.

use std::{
    io,
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
};

use holdfast_platform::hostname::{self, HostnameWriter};
use nix::sys::{
    prctl,
    signal::{SigSet, Signal},
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};
use tracing::warn;

use crate::executable;
use crate::reboot::RebootScope;
use crate::settings::{HELPER_COMMAND, RunSettings};

/// The name of the helper's process.
pub const HELPER_NAME: &std::ffi::CStr = c"holdfast-host";
/// Environment variable that says that standard input is the socket to a running helper: the agent was restarted in
/// place, where it cannot get the capability back.
const HELPER_IS_THERE: &str = "HOLDFAST_HOSTNAME_HELPER";

/// Environment variable that says that the program was executed again with fewer capabilities, which prevents a loop.
const IS_LIMITED: &str = "HOLDFAST_LIMITED";

/// The capabilities that the agent uses, if it is given them.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN // links, addresses, routes, variables of /proc/sys/net
    .union(CapabilitySet::NET_RAW) // ping, traceroute, DHCP
    .union(CapabilitySet::NET_BIND_SERVICE) // ports below 1024: DHCP, and a listener that is given one
    .union(CapabilitySet::CHOWN) // etc/shadow keeps its group
    .union(CapabilitySet::DAC_OVERRIDE) // for an etc/shadow of mode 0, and for folders of other users
    .union(CapabilitySet::FOWNER);

/// Capabilities that a run with these settings keeps.
fn needed_capabilities(settings: &RunSettings) -> CapabilitySet {
    // The needs of an operator's program are unknown: it runs with the capabilities of the agent.
    if settings.image.image_command.is_some() {
        return CapabilitySet::all();
    }
    let mut capabilities = NEEDED;
    if settings.reboot.scope() == RebootScope::System {
        // systemd is asked by a socket that is open to root; other init systems by a signal, or past them the kernel.
        capabilities |= CapabilitySet::KILL.union(CapabilitySet::SYS_BOOT);
    }
    if let Some(netns) = &settings.netns {
        capabilities |= CapabilitySet::SYS_ADMIN; // each socket there is made by a thread that enters the namespace
        if netns.starts_with("/proc/") {
            capabilities |= CapabilitySet::SYS_PTRACE; // the namespace of a process, which may have more than the agent
        }
    }
    if settings.root != Path::new("/") {
        capabilities |= CapabilitySet::SYS_CHROOT; // the SSH server of the box is run there
    }
    capabilities
}

/// Starts the helper that sets the host name, and gives up all capabilities that this run does not need.
///
/// # Errors
/// When the helper cannot be started, or the program cannot be executed again.
pub fn drop_capabilities(settings: &RunSettings) -> io::Result<HostnameWriter> {
    let needed = needed_capabilities(settings);
    let writer = if std::env::var_os(HELPER_IS_THERE).is_some() {
        HostnameWriter::helper(io::stdin().as_fd().try_clone_to_owned()?.into())?
    } else if !needed.contains(CapabilitySet::SYS_ADMIN)
        && capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN)
    {
        start_helper()?
    } else {
        HostnameWriter::Direct
    };
    if drop_other_capabilities(needed)? {
        let mut command = executable::reexec_command();
        pass_hostname_socket(&writer, &mut command)?;
        return Err(command.env(IS_LIMITED, "1").exec());
    }
    Ok(writer)
}

fn start_helper() -> io::Result<HostnameWriter> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut helper = Command::new(executable::SELF);
    helper.arg0("holdfast").arg(HELPER_COMMAND).env_clear().current_dir("/");
    // The helper ends when this side of the socket is closed.
    helper.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(Stdio::null()).spawn()?;
    HostnameWriter::helper(ours)
}

/// Becomes the helper: reads names from standard input, which is a socket, until the agent ends.
///
/// # Errors
/// When the process cannot give up capabilities, or the socket breaks.
pub fn name_hosts() -> io::Result<()> {
    prctl::set_name(HELPER_NAME)?;
    // Some service managers send the reload signal of the agent to all of its processes.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGHUP);
    signals.thread_block()?;
    if drop_other_capabilities(CapabilitySet::SYS_ADMIN)? {
        return Err(executable::reexec_command().env(IS_LIMITED, "1").exec());
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    hostname::serve(&socket, &socket)
}

/// Passes the helper's socket to a command that restarts the agent, as standard input.
///
/// # Errors
/// When no file descriptor is left.
pub fn pass_hostname_socket(writer: &HostnameWriter, command: &mut Command) -> io::Result<()> {
    if let Some(socket) = writer.socket()? {
        command.env(HELPER_IS_THERE, "1").stdin(Stdio::from(socket));
    }
    Ok(())
}

/// Gives up all other capabilities, for this thread and the programs that it executes. True when the program has to be
/// executed again, because other threads still have them.
fn drop_other_capabilities(needed: CapabilitySet) -> io::Result<bool> {
    for capability in CapabilitySet::all().difference(needed).iter() {
        // The kernel may not know the capability, and without CAP_SETPCAP the bounding set stays as it is: no program
        // gains anything from it, because of PR_SET_NO_NEW_PRIVS.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            let _stays = remove_capability_from_bounding_set(capability);
        }
    }
    let now = capabilities(None)?;
    let fewer = CapabilitySets {
        effective: now.effective & needed,
        permitted: now.permitted & needed,
        inheritable: now.inheritable & needed,
    };
    if fewer == now {
        return Ok(false);
    }
    if let Err(error) = set_capabilities(None, fewer) {
        // A system call filter may refuse even that. Then the capabilities are those that the author of the filter has
        // chosen.
        warn!(%error, "cannot give up capabilities that are not needed");
        return Ok(false);
    }
    Ok(std::env::var_os(IS_LIMITED).is_none())
}
