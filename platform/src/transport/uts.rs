//! The host name, in the UTS namespace of the calling thread.

use std::io;

use crate::hostname::HostnameWriter;

/// Sets the name and reads it back.
///
/// # Errors
/// When that needs CAP_SYS_ADMIN (`EPERM`), or the name is longer than the kernel takes (64).
pub(crate) fn write(writer: &HostnameWriter, name: &str) -> io::Result<()> {
    writer.write(name)?;
    match read()? {
        kept if kept == name => Ok(()),
        kept => Err(io::Error::other(format!("the host is still called `{kept}`"))),
    }
}

/// The name as it is.
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn read() -> io::Result<String> {
    Ok(nix::unistd::gethostname()?.to_string_lossy().into_owned())
}
