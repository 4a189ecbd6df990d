//! A box with an OpenSSH server of its own: `/etc`, `/run` and `/var/lib` of a test, in a mount namespace of their own.
//!
//! The test's thread stays outside and sees the folders as ordinary ones. They replace those of the machine only for
//! processes started with [`SshBox::command`].

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::eventually::eventually;

/// The port that the server listens on.
pub const PORT: u16 = 2222;
/// The account of the box that tests log in to.
pub const ACCOUNT: &str = "alice";
/// User id of the account.
const UID: u32 = 1000;
/// The group that may read hashes of passwords.
pub const SHADOW_GROUP: u32 = 42;
/// The hash of the account's own password, [`OWN_PASSWORD`].
const OWN_HASH: &str = "$1$saltsalt$NuzA7WTAelpl95xgBGWN60";
/// Original password of [`ACCOUNT`].
pub const OWN_PASSWORD: &str = "correct horse";

/// The folders of a box, and its server while it runs.
#[derive(Debug)]
pub struct SshBox {
    folder: TempDir,
    server: Option<Child>,
}

/// Credentials of an SSH client.
#[derive(Clone, Copy, Debug)]
pub enum SshCredential<'a> {
    Password(&'a str),
    /// The file of a private key, with its certificate beside it if it has one.
    Key(&'a Path),
}

impl SshBox {
    /// A box with an account and an SSH server as a distribution sets them up.
    ///
    /// # Panics
    /// Without OpenSSH: `tests/scripts/setup.sh test` installs it.
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("holdfast-ssh-").expect("a folder");
        let it = Self { folder, server: None };
        for path in ["etc/ssh/sshd_config.d", "run/sshd", "lib"] {
            fs::create_dir_all(it.path(path)).expect("a folder in our own folder");
        }
        fs::set_permissions(it.folder.path(), Permissions::from_mode(0o755)).expect("ours");
        it.write(
            "etc/passwd",
            &format!(
                "root:x:0:0::/:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n{ACCOUNT}:x:{UID}:{UID}::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
            ),
        );
        it.write(
            "etc/group",
            &format!("root:x:0:\nshadow:x:{SHADOW_GROUP}:\n{ACCOUNT}:x:{UID}:\nnogroup:x:65534:\n"),
        );
        it.write(
            "etc/shadow",
            &format!("root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n{ACCOUNT}:{OWN_HASH}:19000:0:99999:7:::\n"),
        );
        fs::set_permissions(it.path("etc/shadow"), Permissions::from_mode(0o640)).expect("ours");
        // Group of the file as on Debian. In a user namespace with a single group, the file keeps that one.
        let _one_group = chown(it.path("etc/shadow"), None, Some(SHADOW_GROUP));
        it.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\n");
        it.write(
            "etc/ssh/sshd_config",
            &format!(
                "Include /etc/ssh/sshd_config.d/*.conf\nPort {PORT}\nListenAddress 127.0.0.1\nPidFile /run/sshd.pid\nUsePAM no\nPasswordAuthentication yes\nLogLevel VERBOSE\n"
            ),
        );
        it.make_key(&it.path("etc/ssh/ssh_host_ed25519_key"), "box");
        it
    }

    /// The path of a file of the box, for the test.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).expect("a file in our own folder");
    }

    /// Content of a file of the box.
    ///
    /// # Panics
    /// When the file does not exist.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Prefix for a command that is to run on the box.
    pub fn command(&self) -> Vec<String> {
        let mounts = ["etc", "run"]
            .map(|name| format!("mount --bind '{}' /{name}", self.path(name).display()));
        let script = format!("{} && exec \"$@\"", mounts.join(" && "));
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "box"]
            .map(str::to_owned)
            .into()
    }

    /// Starts the SSH server, in the network namespace of this thread.
    ///
    /// # Panics
    /// When it does not listen.
    pub async fn serve(&mut self) {
        let log = File::create(self.path("log")).expect("a file in our own folder");
        let command = self.command();
        let child = Command::new(&command[0])
            .args(&command[1..])
            .args(["setpriv", "--pdeathsig", "KILL", "/usr/sbin/sshd", "-D", "-e"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.server = Some(child.expect("util-linux and OpenSSH are installed"));
        let pid = self.path("run/sshd.pid");
        eventually("the SSH server listens", || pid.exists()).await;
    }

    /// True when a client can log in.
    pub fn accepts(&self, proof: SshCredential<'_>) -> bool {
        self.log_in(proof, &["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"])
            .status
            .success()
    }

    /// Runs `true` on the box, with additional options of the client.
    ///
    /// # Panics
    /// When the client cannot be started.
    pub fn log_in(&self, proof: SshCredential<'_>, options: &[&str]) -> Output {
        let mut command = match proof {
            SshCredential::Password(password) => {
                let mut command = Command::new("sshpass");
                command.args(["-e", "ssh"]).env("SSHPASS", password);
                command.args(["-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"]);
                command
            }
            SshCredential::Key(file) => {
                let mut command = Command::new("ssh");
                command.arg("-i").arg(file);
                command.args(["-o", "PasswordAuthentication=no", "-o", "BatchMode=yes"]);
                command
            }
        };
        command.args(["-F", "none", "-p", &PORT.to_string(), "-o", "IdentitiesOnly=yes"]);
        command.args(["-o", "IdentityAgent=none", "-o", "ConnectTimeout=10"]);
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command.arg(format!("{ACCOUNT}@127.0.0.1")).arg("true");
        command.stdin(Stdio::null()).output().expect("the clients of OpenSSH are installed")
    }

    /// Makes a key pair, `FILE` and `FILE.pub`.
    ///
    /// # Panics
    /// When `ssh-keygen` fails.
    pub fn make_key(&self, file: &Path, comment: &str) {
        run(Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"])
            .arg(file));
    }

    /// Signs `FILE.pub` with an authority's key; the certificate is `FILE-cert.pub`.
    ///
    /// # Panics
    /// When `ssh-keygen` fails.
    pub fn sign(&self, authority: &Path, file: &Path, principal: &str, for_host: bool) {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-I", "test", "-n", principal, "-s"]).arg(authority);
        if for_host {
            command.arg("-h");
        }
        run(command.arg(file.with_extension("pub")));
    }

    /// Lines that the server wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Default for SshBox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SshBox {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // The server may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the SSH server\n{}\n---", self.log());
        }
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().expect("OpenSSH is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
