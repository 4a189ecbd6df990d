//! The managed network namespace.
//!
//! The agent's own sockets (gNMI and others) stay where it was started; the threads that work on the managed
//! kernel enter the namespace once and never leave it. They also get a private UTS namespace, so that the
//! configured hostname does not rename the machine that the agent runs on.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use tokio::sync::oneshot;

/// Folder in which `ip netns add NAME` keeps its namespaces.
const NAMED_NAMESPACES: &str = "/run/netns";

/// Choice of the namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetnsSetting {
    /// Namespaces in which the agent was started.
    #[default]
    Current,
    /// A name as `ip netns` knows it, or the path of a namespace file.
    Given(String),
}

/// Reason for not managing a namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// The namespace does not exist.
    #[error(
        "network namespace `{name}` does not exist: {path} is missing (`ip netns add NAME` makes one)"
    )]
    NotFound {
        /// Name or path from the setting.
        name: String,
        /// File that should exist.
        path: PathBuf,
    },
    /// The namespace file cannot be opened.
    #[error("cannot open network namespace {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file is not a namespace.
    #[error("{path} is not a network namespace")]
    NotANamespace {
        /// The file.
        path: PathBuf,
    },
    /// Entering is not permitted.
    #[error(
        "cannot enter network namespace {path}: that needs CAP_SYS_ADMIN; run the agent as root, \
         or start it inside the namespace and leave --netns out"
    )]
    NotPermitted {
        /// The file.
        path: PathBuf,
    },
    /// Entering failed for another reason.
    #[error("cannot enter network namespace {path}")]
    Enter {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The thread for the namespace cannot be started.
    #[error("cannot start a thread for the managed namespace")]
    Thread {
        /// Error of the system call.
        source: io::Error,
    },
    /// A private UTS namespace cannot be created.
    #[error(
        "cannot make a UTS namespace for the managed box: that needs CAP_SYS_ADMIN; run the agent as root"
    )]
    Uts {
        /// Error of the system call.
        source: io::Error,
    },
}

/// A namespace that threads can enter; by default the present one.
#[derive(Debug, Default)]
pub struct Netns {
    opened: Option<(PathBuf, File)>,
}

impl Netns {
    /// Opens the namespace of the setting, without entering it.
    ///
    /// # Errors
    /// When there is no such namespace, or it cannot be opened.
    pub fn open(setting: &NetnsSetting) -> Result<Self, NetnsError> {
        let NetnsSetting::Given(name) = setting else {
            return Ok(Self { opened: None });
        };
        let path = path_of(name);
        match File::open(&path) {
            Ok(file) => Ok(Self { opened: Some((path, file)) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(NetnsError::NotFound { name: name.clone(), path })
            }
            Err(source) => Err(NetnsError::Open { path, source }),
        }
    }

    /// The same namespace once more, for another thread.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn try_clone(&self) -> Result<Self, NetnsError> {
        let Some((path, file)) = &self.opened else { return Ok(Self { opened: None }) };
        let cloned =
            file.try_clone().map_err(|source| NetnsError::Open { path: path.clone(), source })?;
        Ok(Self { opened: Some((path.clone(), cloned)) })
    }

    /// Moves the calling thread into the network namespace, where it has to stay.
    ///
    /// # Errors
    /// When this is not permitted, or the file is not a network namespace.
    pub fn enter(&self) -> Result<(), NetnsError> {
        let Some((path, file)) = &self.opened else { return Ok(()) };
        setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EPERM => NetnsError::NotPermitted { path: path.clone() },
            Errno::EINVAL => NetnsError::NotANamespace { path: path.clone() },
            other => NetnsError::Enter { path: path.clone(), source: other.into() },
        })
    }

    /// Runs `work` in the network namespace, on a thread of this name that ends afterwards. A socket stays in the
    /// namespace in which it was made.
    ///
    /// # Errors
    /// When the thread cannot be started or panics; within, when the namespace cannot be entered.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Result<T, NetnsError>> {
        let netns = Arc::clone(self);
        let (done_tx, done_rx) = oneshot::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _nobody_waits = done_tx.send(netns.enter().map(|()| work()));
        })?;
        done_rx.await.map_err(|_| io::Error::other("its thread panicked"))
    }

    /// Gives the calling thread a UTS namespace of its own when a network namespace was named, so that its
    /// hostname is separate too.
    ///
    /// # Errors
    /// When this is not permitted.
    pub fn enter_uts(&self) -> Result<(), NetnsError> {
        match self.opened {
            None => Ok(()),
            Some(_) => unshare(CloneFlags::CLONE_NEWUTS)
                .map_err(|errno| NetnsError::Uts { source: errno.into() }),
        }
    }
}

/// Path of the namespace file: the setting itself if it has a slash, else a name in [`NAMED_NAMESPACES`].
pub fn path_of(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED_NAMESPACES).join(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_errors_name_the_path_and_the_cause() {
        check("no-such-namespace", "/run/netns/no-such-namespace is missing");
        check("/no/such/file", "/no/such/file is missing");
        check("/dev/null", "/dev/null is not a network namespace");
    }

    #[track_caller]
    fn check(name: &str, want: &str) {
        let setting = NetnsSetting::Given(name.into());
        let error = Netns::open(&setting).and_then(|netns| netns.enter()).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}
