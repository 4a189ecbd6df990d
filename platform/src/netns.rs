//! The network namespace that is managed.
//!
//! The agent's own sockets (gNMI and the like) stay where it was started; the threads that work on
//! the managed kernel enter the namespace once, for good. A private UTS namespace goes with it, so
//! that a hostname given to the box under management does not rename the machine around it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// Where `ip netns add NAME` keeps its namespaces.
const NAMED_NAMESPACES: &str = "/run/netns";

/// The namespaces to work in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetnsSetting {
    /// Those the agent was started in.
    #[default]
    Current,
    /// A name as `ip netns` knows it, or the path of a namespace file.
    Given(String),
}

/// Why a namespace cannot be managed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// There is none of that name.
    #[error(
        "network namespace `{given}` does not exist: {path} is missing (`ip netns add NAME` makes one)"
    )]
    NotFound {
        /// As it was given.
        given: String,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Its file cannot be opened.
    #[error("cannot open network namespace {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is not a namespace.
    #[error("{path} is not a network namespace")]
    NotANamespace {
        /// The file.
        path: PathBuf,
    },
    /// No permission to enter it.
    #[error(
        "cannot enter network namespace {path}: that needs CAP_SYS_ADMIN; run the agent as root, \
         or start it inside the namespace and leave --netns out"
    )]
    NotPermitted {
        /// The file.
        path: PathBuf,
    },
    /// Another reason not to enter it.
    #[error("cannot enter network namespace {path}")]
    Enter {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No thread to work in it.
    #[error("cannot start a thread for the managed namespace")]
    Thread {
        /// The reason.
        source: io::Error,
    },
    /// No private UTS namespace.
    #[error(
        "cannot make a UTS namespace for the managed box: that needs CAP_SYS_ADMIN; run the agent as root"
    )]
    Uts {
        /// The reason.
        source: io::Error,
    },
}

/// A namespace that threads can enter; by default the one that they are in.
#[derive(Debug, Default)]
pub struct Netns {
    given: Option<(PathBuf, File)>,
}

impl Netns {
    /// Opens what the setting names; no thread has entered it yet.
    ///
    /// # Errors
    /// When there is no such namespace, or it cannot be opened.
    pub fn open(setting: &NetnsSetting) -> Result<Self, NetnsError> {
        let NetnsSetting::Given(given) = setting else {
            return Ok(Self { given: None });
        };
        let path = path_of(given);
        match File::open(&path) {
            Ok(file) => Ok(Self { given: Some((path, file)) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(NetnsError::NotFound { given: given.clone(), path })
            }
            Err(source) => Err(NetnsError::Open { path, source }),
        }
    }

    /// Moves the calling thread into the network namespace; it is to stay there until it ends.
    ///
    /// # Errors
    /// When that is not permitted, or the file is not a network namespace.
    pub fn enter(&self) -> Result<(), NetnsError> {
        let Some((path, file)) = &self.given else { return Ok(()) };
        setns(file, CloneFlags::CLONE_NEWNET).map_err(|errno| match errno {
            Errno::EPERM => NetnsError::NotPermitted { path: path.clone() },
            Errno::EINVAL => NetnsError::NotANamespace { path: path.clone() },
            other => NetnsError::Enter { path: path.clone(), source: other.into() },
        })
    }

    /// Gives the calling thread a UTS namespace of its own, when a namespace was named: the
    /// hostname follows the network namespace.
    ///
    /// # Errors
    /// When that is not permitted.
    pub fn enter_uts(&self) -> Result<(), NetnsError> {
        match self.given {
            None => Ok(()),
            Some(_) => unshare(CloneFlags::CLONE_NEWUTS)
                .map_err(|errno| NetnsError::Uts { source: errno.into() }),
        }
    }
}

/// What has a slash is a path, anything else a name.
fn path_of(given: &str) -> PathBuf {
    if given.contains('/') { PathBuf::from(given) } else { Path::new(NAMED_NAMESPACES).join(given) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_entered_is_named_with_what_to_do() {
        check("no-such-namespace", "/run/netns/no-such-namespace is missing");
        check("/no/such/file", "/no/such/file is missing");
        check("/dev/null", "/dev/null is not a network namespace");
    }

    #[track_caller]
    fn check(given: &str, want: &str) {
        let setting = NetnsSetting::Given(given.into());
        let error = Netns::open(&setting).and_then(|netns| netns.enter()).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}
