//! The SSH server of the box: its configuration is tested before it is installed, and verified afterwards.
//!
//! Below a root other than `/` the server is run by chroot(8), because it uses absolute paths.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use holdfast_security::credentialz::{CREDENTIALS_FOLDER, SSHD_PROGRAM};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files::{self, Attributes, Root};
use super::watch;

/// Main configuration of the box, which has to include ours.
const CONFIG: &str = "etc/ssh/sshd_config";
/// Files for the test: our text, and the box's configuration with ours in front. The server refuses to start
/// without its folder in /run.
const CANDIDATE: &str = "candidate";
const CANDIDATE_WHOLE: &str = "candidate-config";
const RUN: &str = "run/sshd";
/// Process name of the server.
const PROCESS: &str = "sshd";
/// Time limit for a reloading server to listen again, which takes some milliseconds.
const LISTENS_WITHIN: Duration = Duration::from_secs(5);
/// Largest pid file that is read, in bytes: a number of at most ten digits, with room for blanks.
const PID_FILE_OCTETS: u64 = 64;
/// Bytes of the server's output that an error quotes.
const MAX_WORDS: usize = 500;

pub(super) struct Sshd<'r> {
    root: &'r Root,
}

impl<'r> Sshd<'r> {
    pub(super) fn of(root: &'r Root) -> Self {
        Self { root }
    }

    /// Runs the server's configuration test with this text in front, including all files that it names.
    ///
    /// # Errors
    /// With the server's output, when the server would not start.
    pub(super) fn test_config(&self, text: &str) -> io::Result<()> {
        let folder = self.root.place(CREDENTIALS_FOLDER)?;
        files::make_folder(&folder)?;
        files::make_folder(&self.root.place(RUN)?)?;
        let [ours, whole] = [CANDIDATE, CANDIDATE_WHOLE].map(files::beside);
        let both = format!("Include /{CREDENTIALS_FOLDER}/{ours}\nInclude /{CONFIG}\n");
        files::replace(&folder.join(&ours), text.as_bytes(), Attributes::PUBLIC)?;
        files::replace(&folder.join(&whole), both.as_bytes(), Attributes::PUBLIC)?;
        let tried = self.run(&["-t", "-f", &format!("/{CREDENTIALS_FOLDER}/{whole}")]);
        for name in [ours, whole] {
            files::remove(&folder.join(name))?;
        }
        tried.map(drop)
    }

    /// Reads the server's effective configuration back: each of our lines must be in effect.
    ///
    /// # Errors
    /// With the line that is not in effect.
    pub(super) fn check(&self, text: &str) -> io::Result<()> {
        let mut blocks = text.split("\nMatch User ");
        let general = self.run(&["-T"])?;
        let of_all = blocks.next().unwrap_or_default();
        check_effective_lines(of_all, &general)?;
        // One account suffices, because the lines of accounts differ in the name only.
        let Some((account, lines)) = blocks.next().and_then(|block| block.split_once('\n')) else {
            return Ok(());
        };
        let connection = format!("user={account},host=localhost,addr=127.0.0.1");
        check_effective_lines(lines, &self.run(&["-T", "-C", &connection])?)
    }

    /// Makes a running server reload its configuration.
    ///
    /// # Errors
    /// When the server cannot be signalled, or does not listen again in time.
    pub(super) fn reload(&self) -> io::Result<()> {
        let settings = self.run(&["-T"])?;
        let file = settings.lines().find_map(|line| line.strip_prefix("pidfile /"));
        let Some(file) = file else { return Ok(()) };
        let file = self.root.place(file)?;
        let Some(octets) = files::read_regular(&file, PID_FILE_OCTETS)? else { return Ok(()) }; // it does not run
        let text = String::from_utf8_lossy(&octets);
        let Ok(pid) = text.trim().parse::<i32>() else { return Ok(()) };
        // The process id may have been reused.
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim_end() != PROCESS {
            return Ok(());
        }
        // On SIGHUP the server removes the file, executes itself again, and writes the file once it listens.
        let before = fs::metadata(&file)?.modified()?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let back = || fs::metadata(&file).and_then(|it| it.modified()).is_ok_and(|it| it != before);
        kill(Pid::from_raw(pid), Signal::SIGHUP)?;
        if watch::until(folder, LISTENS_WITHIN, back)? {
            Ok(())
        } else {
            Err(io::Error::other(format!("sshd does not listen within {LISTENS_WITHIN:?}")))
        }
    }

    /// Output of the server program.
    fn run(&self, arguments: &[&str]) -> io::Result<String> {
        let program = format!("/{SSHD_PROGRAM}");
        let mut command = match self.root.folder() {
            root if root == Path::new("/") => Command::new(program),
            root => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        };
        let ran = command.args(arguments).stdin(Stdio::null()).output()?;
        match ran {
            Output { status, stdout, .. } if status.success() => {
                Ok(String::from_utf8_lossy(&stdout).into_owned())
            }
            Output { stderr, status, .. } => {
                let words: String =
                    String::from_utf8_lossy(&stderr).trim().chars().take(MAX_WORDS).collect();
                Err(io::Error::other(format!("sshd refuses the configuration ({status}): {words}")))
            }
        }
    }
}

/// Checks that the effective configuration contains our lines. The server prints keywords in lower case.
fn check_effective_lines(lines: &str, settings: &str) -> io::Result<()> {
    for line in lines.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#')) {
        let (keyword, argument) = line.split_once(' ').unwrap_or((line, ""));
        let keyword = keyword.to_ascii_lowercase();
        let is_it = |it: &str| it.split_once(' ') == Some((keyword.as_str(), argument));
        if settings.lines().any(is_it) {
            continue;
        }
        let found = settings.lines().find(|it| it.starts_with(&format!("{keyword} ")));
        return Err(io::Error::other(format!(
            "`{line}` is not in effect (the server says `{}`): /{CONFIG} has to include /etc/ssh/sshd_config.d/*.conf in its \
             first line",
            found.unwrap_or("nothing")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overridden_ssh_server_options_are_detected() {
        let settings = "port 22\npasswordauthentication no\nhostkey /a\nhostkey /b\nauthorizedkeysfile /k/alice\n";
        let ours = "# comment\nPasswordAuthentication no\nHostKey /b\n";
        check_effective_lines(ours, settings).unwrap();
        check_effective_lines("    AuthorizedKeysFile /k/alice\n", settings).unwrap();
        let wrong = check_effective_lines("PasswordAuthentication yes\n", settings)
            .unwrap_err()
            .to_string();
        assert!(wrong.contains("the server says `passwordauthentication no`"), "{wrong}");
        let missing =
            check_effective_lines("TrustedUserCAKeys /x\n", settings).unwrap_err().to_string();
        assert!(missing.contains("`TrustedUserCAKeys /x` is not in effect"), "{missing}");
    }
}
