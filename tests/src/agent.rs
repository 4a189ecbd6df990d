//! The real `holdfast` binary, started for a test.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;

use crate::eventually::{WAIT_LIMIT, eventually};
use crate::gnmi::{Credentials, GnmiClient, connect};
use crate::netns::Netns;
use crate::systemd_unit;

/// The user that `--admin-password-file` creates.
pub const ADMIN: &str = "admin";

/// An empty configuration file: agents of tests read none of this machine, unless an option names one.
const NO_CONFIGURATION: &str = "/dev/null";

/// Password of agents that run for one test only; agents have no default password.
pub const PASSWORD: &str = "correct horse battery staple";

/// Lines of the agent's log that a failing test shows.
const LOG_TAIL: usize = 60;

/// Fields of `/proc/PID/stat`, numbered as in proc(5).
const STAT_AFTER_NAME: usize = 3;
const STAT_MINFLT: usize = 10;
const STAT_UTIME: usize = 14;
const STAT_STIME: usize = 15;
/// Unit of the processor times there: a hundredth of a second on Linux.
const STAT_TICK: Duration = Duration::from_millis(10);

/// Resources that a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceUse {
    /// Time of all its threads, in the program and in the kernel.
    pub processor: Duration,
    /// Pages of memory that were touched for the first time.
    pub page_faults: u64,
    /// Bytes passed to write(2).
    pub written_bytes: u64,
}

impl ResourceUse {
    /// Use between an earlier reading and this one.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            processor: self.processor.saturating_sub(before.processor),
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// A running agent and everything that belongs to it. Dropping it kills the agent.
#[derive(Debug)]
pub struct AgentProcess {
    folder: PathBuf,
    /// Removes the folder, unless it is one that outlives the agent.
    _temporary: Option<TempDir>,
    options: Vec<String>,
    /// A command in front of the agent, and the root folder of its file system.
    wrapper: Option<(Vec<String>, PathBuf)>,
    /// Capabilities of the agent, as setpriv(1) names them; `None` for all.
    capabilities: Option<Vec<String>>,
    password: String,
    address: SocketAddr,
    /// Last `STATUS=` for the service manager before the agent was ready.
    status: String,
    child: Option<Child>,
    /// Time from the start to the first moment at which the agent served.
    start_time: Duration,
}

impl AgentProcess {
    /// Starts an agent that manages the namespace of this thread and listens on its loopback.
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start(net: &Netns) -> Self {
        Self::start_with(net, &[]).await
    }

    /// Starts an agent with additional options.
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start_with(_born_in: &Netns, options: &[&str]) -> Self {
        Self::start_as(PASSWORD, options).await
    }

    /// Starts an agent behind a command that executes it in the end, such as `unshare`, and that gives it `root` as the
    /// root of its file system.
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start_wrapped(_born_in: &Netns, command: &[String], root: &Path) -> Self {
        let behind = Some((command.to_vec(), root.to_owned()));
        Self::start_new(PASSWORD, &[], behind, systemd_unit::capabilities_of_this_run()).await
    }

    /// Starts an agent with the capabilities of the packaged unit and these drop-ins, and no others; behind a command as
    /// [`start_wrapped`](Self::start_behind) when there is one.
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start_with_unit(
        _born_in: &Netns,
        drop_ins: &[&str],
        options: &[&str],
        behind: Option<(&[String], &Path)>,
    ) -> Self {
        let behind = behind.map(|(command, root)| (command.to_vec(), root.to_owned()));
        Self::start_new(PASSWORD, options, behind, Some(systemd_unit::capabilities(drop_ins))).await
    }

    /// Starts an agent in the present namespaces of this thread, with a password for [`ADMIN`].
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start_as(password: &str, options: &[&str]) -> Self {
        Self::start_new(password, options, None, systemd_unit::capabilities_of_this_run()).await
    }

    /// Starts an agent with all that it has in a folder that outlives it. An agent that ran there before had the same state.
    ///
    /// # Panics
    /// When it does not get ready; its log is in the message.
    pub async fn start_at(folder: &Path, _born_in: &Netns) -> Self {
        fs::create_dir_all(folder).expect("a folder for the agent");
        let mut agent = Self::new(folder.to_owned(), None, PASSWORD, &[]);
        agent.run().await;
        agent
    }

    async fn start_new(
        password: &str,
        options: &[&str],
        behind: Option<(Vec<String>, PathBuf)>,
        capabilities: Option<Vec<String>>,
    ) -> Self {
        let temporary = TempDir::with_prefix("holdfast-").expect("a folder for the agent");
        let folder = temporary.path().to_owned();
        let mut agent = Self::new(folder, Some(temporary), password, options);
        agent.wrapper = behind;
        agent.capabilities = capabilities;
        agent.run().await;
        agent
    }

    fn new(folder: PathBuf, temporary: Option<TempDir>, password: &str, options: &[&str]) -> Self {
        let password_file = folder.join("password");
        fs::write(&password_file, format!("{password}\n")).expect("a file in our own folder");
        fs::set_permissions(&password_file, Permissions::from_mode(0o600))
            .expect("a file of our own");
        fs::create_dir_all(folder.join("root")).expect("a folder in our own folder");
        Self {
            folder,
            _temporary: temporary,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            wrapper: None,
            capabilities: systemd_unit::capabilities_of_this_run(),
            password: password.to_owned(),
            // The port is free, because the test has a namespace of its own.
            address: SocketAddr::from(([127, 0, 0, 1], 9339)),
            status: String::new(),
            child: None,
            start_time: Duration::ZERO,
        }
    }

    /// Starts the binary and waits for its `sd_notify` message that it is ready.
    async fn run(&mut self) {
        let notify = self.folder.join("notify");
        let _ = fs::remove_file(&notify); // of an earlier run
        let notifications = UnixDatagram::bind(&notify).expect("a socket in our own folder");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("a log file in our own folder");
        let started = Instant::now();
        let mut command = self.command("run");
        if let Some((behind, _)) = &self.wrapper {
            let inner = std::mem::replace(&mut command, Command::new(&behind[0]));
            command.args(&behind[1..]).arg(inner.get_program()).args(inner.get_args());
        }
        let child = command
            .args(["--listen", &self.address.to_string()])
            .arg("--root")
            .arg(self.root())
            .arg("--admin-password-file")
            .arg(self.folder.join("password"))
            .args(&self.options)
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("an open file can be shared"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("setpriv starts the agent"));
        if let Err(reason) = self.ready(&notifications).await {
            panic!("the agent does not get ready: {reason}\n{}", self.log_tail());
        }
        self.start_time = started.elapsed();
    }

    async fn ready(&mut self, notifications: &UnixDatagram) -> Result<(), String> {
        let deadline = Instant::now() + WAIT_LIMIT;
        let mut message = [0; 512];
        while Instant::now() < deadline {
            let received =
                timeout(Duration::from_millis(50), notifications.recv(&mut message)).await;
            if let Ok(Ok(length)) = received {
                let text = String::from_utf8_lossy(&message[..length]);
                let status = text.lines().find_map(|line| line.strip_prefix("STATUS="));
                self.status = status.unwrap_or_default().to_owned();
                if text.lines().any(|line| line == "READY=1") {
                    return Ok(());
                }
            }
            if let Some(status) =
                self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
            {
                return Err(format!("it ended with {status}"));
            }
        }
        Err(format!("silent for {WAIT_LIMIT:?}"))
    }

    /// A client with the right name and password.
    ///
    /// # Panics
    /// When the agent does not take the connection.
    pub async fn gnmi(&self) -> GnmiClient {
        GnmiClient::over(self.channel().await, self.credentials())
    }

    /// A connection without a user, for clients of other services and other users.
    ///
    /// # Panics
    /// When the agent does not take the connection.
    pub async fn channel(&self) -> Channel {
        let channel = connect(self.address, &self.ca()).await;
        channel.unwrap_or_else(|error| panic!("{error:?}\n{}", self.log_tail()))
    }

    /// The right name and password.
    ///
    /// # Panics
    /// Never: both can be sent.
    pub fn credentials(&self) -> Credentials {
        Credentials::new(ADMIN, &self.password).expect("plain ASCII")
    }

    /// Kills the agent, as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may be dead already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the agent again with the same folders.
    ///
    /// # Panics
    /// When it does not get ready.
    pub async fn restart(&mut self) {
        self.kill();
        self.run().await;
    }

    /// Sets the options for the next start.
    pub fn set_options(&mut self, options: &[String]) {
        self.options = options.to_vec();
    }

    /// Has the agent read its files again, as `systemctl reload` does.
    ///
    /// # Panics
    /// When it does not run.
    pub fn reload(&self) {
        let child = self.child.as_ref().expect("the agent runs");
        kill(pid_of(child), Signal::SIGHUP).expect("our child is there until we wait for it");
    }

    /// Asks the agent to end; returns its exit status and the time that this took.
    ///
    /// # Panics
    /// When the agent does not end.
    pub async fn terminate(&mut self) -> (ExitStatus, Duration) {
        let mut child = self.child.take().expect("the agent runs");
        let started = Instant::now();
        kill(pid_of(&child), Signal::SIGTERM).expect("our child is there until we wait for it");
        let mut status = None;
        eventually("the agent ends after SIGTERM", || {
            status = child.try_wait().expect("our child can be waited for");
            status.is_some()
        })
        .await;
        (status.expect("it ended"), started.elapsed())
    }

    /// Answer of the local socket to a GET.
    ///
    /// # Panics
    /// When the request fails.
    pub fn http_get(&self, path: &str) -> String {
        let socket = self.state_dir().join("holdfast.sock");
        let mut stream = UnixStream::connect(socket).expect("the agent listens on its socket");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("it reads what it is asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.contains(" 200 "), "{path}: {head}");
        body.to_owned()
    }

    /// Runs `holdfast show WHAT` against the agent.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn show(&self, what: &str) -> String {
        let output = self.command("show").arg(what).output().expect("the binary starts");
        assert!(
            output.status.success(),
            "show {what}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `holdfast user ARGUMENTS` with a password on standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn user(&self, arguments: &[&str], password: &str) -> Output {
        let file = self.folder.join("new-password");
        fs::write(&file, password).expect("a file in our own folder");
        let stdin = File::open(&file).expect("it was just written");
        let mut command = Command::new(binary());
        command.arg("user").args(arguments).arg("--state-dir").arg(self.state_dir()).stdin(stdin);
        command.output().expect("the binary starts")
    }

    /// The command `holdfast COMMAND --state-dir ...`, whose process ends with this thread.
    pub fn command(&self, command: &str) -> Command {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL"]);
        if command == "run"
            && let Some(capabilities) = &self.capabilities
        {
            setpriv.arg(format!("--bounding-set=-all,+{}", capabilities.join(",+")));
        }
        setpriv.arg(binary()).arg(command).arg("--state-dir").arg(self.state_dir());
        setpriv.env("HOLDFAST_CONFIG", NO_CONFIGURATION);
        setpriv
    }

    pub fn state_dir(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The root folder of the agent's file system.
    pub fn root(&self) -> PathBuf {
        match &self.wrapper {
            Some((_, root)) => root.clone(),
            None => self.folder.join("root"),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The line for the operator that the agent gave the service manager when it was ready.
    pub fn status(&self) -> &str {
        &self.status
    }

    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the agent runs").id()
    }

    /// File of the certificate by which clients trust the agent.
    pub fn ca_file(&self) -> PathBuf {
        self.state_dir().join("tls/ca.pem")
    }

    fn ca(&self) -> String {
        let file = self.ca_file();
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// Resident memory at present, in bytes.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Peak of the resident memory since the start, in bytes.
    ///
    /// # Panics
    /// When it does not run.
    pub fn peak_resident_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Resources that the process has used so far.
    ///
    /// # Panics
    /// When it does not run.
    pub fn resource_use(&self) -> ResourceUse {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{}/{file}", self.pid())).expect("the agent runs")
        };
        let stat = read("stat");
        let io = read("io");
        // The name of the program, in parentheses, may contain blanks.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let field = |at: usize| {
            let number = fields.split_whitespace().nth(at - STAT_AFTER_NAME);
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
        ResourceUse {
            processor: (STAT_TICK
                * u32::try_from(field(STAT_UTIME) + field(STAT_STIME))
                    .expect("a test takes less than a year of ticks")),
            page_faults: field(STAT_MINFLT),
            written_bytes: written.unwrap_or(0),
        }
    }

    /// A line of `/proc/PID/status`, see proc(5).
    fn memory(&self, name: &str) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the agent runs");
        let line =
            status.lines().find(|line| line.starts_with(name)).expect("every process has a size");
        let kib: u64 = line
            .split_whitespace()
            .nth(1)
            .and_then(|number| number.parse().ok())
            .expect("a number of KiB");
        kib * 1024
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let tail = self.log_tail();
            // Added to the test's own output, to show what the agent did while the test failed.
            eprintln!("--- log of the agent\n{tail}\n---");
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a process id fits"))
}

/// The agent's binary: `$HOLDFAST`, or beside this program in the target folder.
///
/// # Panics
/// When it is not built.
pub fn binary() -> PathBuf {
    if let Some(binary) = std::env::var_os("HOLDFAST") {
        return binary.into();
    }
    let this = std::env::current_exe().expect("a running program has a path");
    let beside = this.ancestors().skip(1).take(2).map(|folder| folder.join("holdfast"));
    let mut built = beside.filter(|binary| binary.is_file());
    built.next().expect("the agent is built: cargo build -p holdfast")
}
