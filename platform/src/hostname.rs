//! Sets the host name, in this process or through a helper without other permissions.
//!
//! `sethostname` needs CAP_SYS_ADMIN, which permits a hundred other things. Capabilities belong to threads, but
//! the threads of a process share memory: an attacker who controls one could use the capability of another. A
//! separate process is out of reach. It reads names from a socket, sets them, and answers with an errno.
//!
//! Absent on purpose: the UTS namespace of a managed network namespace. The thread that works there creates it, so
//! an agent with `--netns` keeps the capability as long as it runs.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;

/// Longest host name that the kernel accepts, in bytes (`__NEW_UTS_LEN`).
const MAX_NAME: usize = 64;
/// Time limit of the helper for one name; it makes one system call.
const HELPER_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets the host name in the UTS namespace. Clones share the connection.
#[derive(Clone, Debug, Default)]
pub enum HostnameWriter {
    /// The calling thread makes the system call.
    #[default]
    Direct,
    /// A helper process makes it.
    Helper(Arc<Mutex<UnixStream>>),
}

impl HostnameWriter {
    /// Connects to the helper at the other end of this socket.
    ///
    /// # Errors
    /// When the time limit cannot be set on the socket.
    pub fn helper(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(HELPER_TIMEOUT))?;
        Ok(Self::Helper(Arc::new(Mutex::new(socket))))
    }

    /// Duplicates the socket to the helper, for a successor of this process.
    ///
    /// # Errors
    /// When there are no more file descriptors.
    pub fn socket(&self) -> io::Result<Option<OwnedFd>> {
        let Self::Helper(socket) = self else { return Ok(None) };
        let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.try_clone().map(|socket| Some(socket.into()))
    }

    /// Sets the host name.
    ///
    /// # Errors
    /// When the kernel refuses it, or the helper has ended.
    pub(crate) fn write(&self, name: &str) -> io::Result<()> {
        match self {
            Self::Direct => Ok(nix::unistd::sethostname(name)?),
            Self::Helper(socket) => {
                let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
                let errno = send_name(&mut socket, name).map_err(|error| {
                    // A late answer must not be taken for the answer to the next name.
                    let _ended_already = socket.shutdown(std::net::Shutdown::Both);
                    let message = format!(
                        "the helper that sets the host name does not answer ({error}): restart the agent"
                    );
                    io::Error::new(error.kind(), message)
                })?;
                if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
            }
        }
    }
}

/// Sends the length in one byte, then the name. The answer is an errno in four bytes, little-endian, or zero.
fn send_name(socket: &mut UnixStream, name: &str) -> io::Result<i32> {
    let Ok(length) = u8::try_from(name.len()) else { return Ok(Errno::EINVAL as i32) };
    socket.write_all(&[&[length], name.as_bytes()].concat())?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    Ok(i32::from_le_bytes(answer))
}

/// Main loop of the helper: sets each name that it reads, until the peer closes the socket.
///
/// # Errors
/// When the peer closes the socket within a name.
pub fn serve(mut names: impl Read, mut answers: impl Write) -> io::Result<()> {
    let mut length = [0];
    while names.read(&mut length)? == 1 {
        let mut name = vec![0; usize::from(length[0])];
        names.read_exact(&mut name)?;
        let errno = match String::from_utf8(name) {
            Ok(name) if name.len() <= MAX_NAME => {
                nix::unistd::sethostname(name).err().map_or(0, |errno| errno as i32)
            }
            _ => Errno::EINVAL as i32,
        };
        answers.write_all(&errno.to_le_bytes())?;
        answers.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_host_can_have_never_reach_the_kernel() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let helper = std::thread::spawn(move || serve(&theirs, &theirs));
        let writer = HostnameWriter::helper(ours).unwrap();
        for name in ["x".repeat(MAX_NAME + 1), "x".repeat(300)] {
            let refused = writer.write(&name).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(Errno::EINVAL as i32), "{}", name.len());
        }
        drop(writer);
        helper.join().unwrap().unwrap();
    }

    #[test]
    fn a_helper_that_has_ended_is_named() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let writer = HostnameWriter::helper(ours).unwrap();
        drop(theirs);
        let refused = writer.write("box").unwrap_err().to_string();
        assert!(refused.contains("restart the agent"), "{refused}");
    }
}
