//! The host name, in the UTS namespace of the calling thread.

use std::io;

use crate::hostname::HostnameWriter;

/// Sets the name and reads it back.
///
/// # Errors
/// When the permission CAP_SYS_ADMIN is missing (`EPERM`), or the name is longer than the kernel accepts (64).
pub(crate) fn write(writer: &HostnameWriter, name: &str) -> io::Result<()> {
    writer.write(name)?;
    match read()? {
        kept if kept == name => Ok(()),
        kept => Err(io::Error::other(format!("the host is still called `{kept}`"))),
    }
}

/// Reads the name.
///
/// # Errors
/// When the system call fails.
pub(crate) fn read() -> io::Result<String> {
    Ok(nix::unistd::gethostname()?.to_string_lossy().into_owned())
}
