//! The program of this process, to be started again.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The running program, even if its file was replaced.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Command for this program with the same arguments.
pub(crate) fn reexec_command() -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut command = Command::new(SELF);
    command.arg0(name).args(arguments);
    command
}
