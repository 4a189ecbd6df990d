//! Rights and options of the agent, for errors that say that one is missing.
//!
//! The kernel answers EPERM, EACCES or EROFS and no more. An operator has to know which right of the process, or which option
//! of its unit, the work needs.

use holdfast_scheduler::OperationError;
use nix::errno::Errno;

/// Work that needs a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Changes of links, addresses, neighbours and routes.
    Network,
    /// Changes of variables below `/proc/sys`.
    KernelVariable,
    /// Changes of the host name.
    Hostname,
    /// Changes of files below `--root`.
    File,
}

/// True for an errno that says that a right is missing.
pub fn is_missing_right(errno: i32) -> bool {
    matches!(Errno::from_raw(errno), Errno::EPERM | Errno::EACCES | Errno::EROFS)
}

/// Adds to an error what the work needs, when a right is missing.
pub(crate) fn named(error: OperationError, work: Work) -> OperationError {
    let Some(errno) = error.errno.filter(|errno| is_missing_right(*errno)) else { return error };
    let is_read_only = Errno::from_raw(errno) == Errno::EROFS;
    let need = match work {
        // The one thing of rtnetlink that a process with all capabilities is answered EACCES for.
        Work::Network if Errno::from_raw(errno) == Errno::EACCES => {
            "others have switched IPv6 off on the link (disable_ipv6): switch it on there, or by `ipv6/config/enabled`"
        }
        Work::Network => {
            "the agent needs CAP_NET_ADMIN in the user namespace that owns the managed network namespace"
        }
        Work::KernelVariable if is_read_only => {
            "/proc/sys is mounted read-only, as containers have it: mount it writable (ProtectKernelTunables=no in a unit)"
        }
        Work::KernelVariable => {
            "the agent needs CAP_NET_ADMIN for variables below /proc/sys/net, and to be the owner of the files (root)"
        }
        Work::Hostname => {
            "the agent needs CAP_SYS_ADMIN, as the drop-in 20-system.conf of the packaged unit gives it"
        }
        Work::File if is_read_only => {
            "the folder of `--root` is read-only for the agent: name it in ReadWritePaths= of the unit, as its drop-ins do"
        }
        Work::File => {
            "the agent may not write there: below `--root` it needs files of its own user, or CAP_DAC_OVERRIDE and CAP_CHOWN, as the drop-in 30-credentials.conf of the packaged unit gives them"
        }
    };
    OperationError { message: format!("{}: {need}", error.message), ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named() {
        let error = |errno: Errno| OperationError {
            errno: Some(errno as i32),
            ..OperationError::message("refused")
        };
        for (errno, work, word) in [
            (Errno::EPERM, Work::Network, "CAP_NET_ADMIN"),
            (Errno::EACCES, Work::Network, "disable_ipv6"),
            (Errno::EROFS, Work::KernelVariable, "read-only"),
            (Errno::EACCES, Work::KernelVariable, "CAP_NET_ADMIN"),
            (Errno::EPERM, Work::Hostname, "CAP_SYS_ADMIN"),
            (Errno::EROFS, Work::File, "ReadWritePaths="),
            (Errno::EACCES, Work::File, "--root"),
        ] {
            let message = named(error(errno), work).message;
            assert!(message.starts_with("refused: ") && message.contains(word), "{message}");
        }
        assert_eq!(named(error(Errno::EBUSY), Work::Network), error(Errno::EBUSY));
        let other = OperationError::message("refused");
        assert_eq!(named(other.clone(), Work::File), other);
    }
}
