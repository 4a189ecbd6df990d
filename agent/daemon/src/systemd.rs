//! Facts that systemd tells the processes that it starts, and folders that its units hide from them.

use std::io;
use std::path::Path;

/// Variable with the id of the process that systemd has started, from version 248 on. Children inherit the variable, but
/// have other ids.
const STARTED_PROCESS: &str = "SYSTEMD_EXEC_PID";

/// Folders that are empty or closed for a unit with `ProtectHome=yes`.
const HIDDEN_FOLDERS: [&str; 3] = ["/home", "/root", "/run/user"];

/// True for the main process of a unit of systemd; restarts in place do not change that.
pub(crate) fn has_started_this_process() -> bool {
    let id = std::env::var(STARTED_PROCESS).ok().and_then(|id| id.parse().ok());
    id == Some(std::process::id())
}

/// Adds to the error of a file that the unit of the agent hides what to do about that.
pub(crate) fn explained(path: &Path, error: io::Error) -> io::Error {
    if has_started_this_process() { with_advice(path, error) } else { error }
}

fn with_advice(path: &Path, error: io::Error) -> io::Error {
    let is_hidden = HIDDEN_FOLDERS.iter().any(|folder| path.starts_with(folder));
    match error.kind() {
        kind @ (io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) if is_hidden => {
            let advice = format!(
                "{error}; the unit hides this folder from the agent (ProtectHome=): move the file to /etc/holdfast, or pass it with LoadCredential= in a drop-in of holdfast.service"
            );
            io::Error::new(kind, advice)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_unit_hides_comes_with_advice() {
        let refused = || io::Error::from_raw_os_error(nix::libc::EACCES);
        for (path, error, is_explained) in [
            ("/root/pw", refused(), true),
            ("/home/ann/pw", io::ErrorKind::NotFound.into(), true),
            ("/rooted/pw", refused(), false),
            ("/etc/holdfast/pw", refused(), false),
            ("/root/pw", io::ErrorKind::IsADirectory.into(), false),
        ] {
            let kind = error.kind();
            let explained = with_advice(Path::new(path), error);
            let text = explained.to_string();
            let has_advice = text.contains("ProtectHome=") && text.contains("LoadCredential=");
            assert_eq!(has_advice, is_explained, "{path}: {text}");
            assert_eq!(explained.kind(), kind);
        }
    }

    #[test]
    fn a_process_that_a_test_has_started_is_not_of_a_unit() {
        assert!(!has_started_this_process());
    }
}
