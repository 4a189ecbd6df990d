//! Clients in other languages: gnmic, gnmi_cli, grpcurl and Python clients by others, and controllers of this project in Go.
//! `tests/scripts/clients.sh` builds them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::agent::{ADMIN, AgentProcess, PASSWORD};
use crate::eventually::WAIT_LIMIT;

/// gnmic, with the options for one agent.
#[derive(Debug)]
pub struct Gnmic {
    options: Vec<String>,
}

/// A subscription held open by gnmic.
#[derive(Debug)]
pub struct GnmicStream {
    _child: Child, // killed when dropped
    lines: Lines<BufReader<ChildStdout>>,
}

impl Gnmic {
    pub fn for_admin(agent: &AgentProcess) -> Self {
        Self::for_user(agent, ADMIN, PASSWORD)
    }

    /// A client for another user than the administrator.
    pub fn for_user(agent: &AgentProcess, user: &str, password: &str) -> Self {
        let ca = agent.ca_file().display().to_string();
        let address = agent.address().to_string();
        let options = [
            "--address",
            &address,
            "--tls-ca",
            &ca,
            "--username",
            user,
            "--password",
            password,
            "--timeout",
            "30s",
        ];
        Self { options: options.map(ToOwned::to_owned).into() }
    }

    /// A client without a user name, identified by a certificate from files.
    pub fn with_certificate(
        agent: &AgentProcess,
        ca: &Path,
        certificate: &Path,
        key: &Path,
    ) -> Self {
        let file = |path: &Path| path.display().to_string();
        let address = agent.address().to_string();
        let ca = file(ca);
        let certificate = file(certificate);
        let key = file(key);
        let options = [
            "--address",
            &address,
            "--tls-ca",
            &ca,
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--timeout",
            "30s",
        ];
        Self { options: options.map(ToOwned::to_owned).into() }
    }

    /// Runs a command that must succeed; returns what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub async fn run(&self, arguments: &[&str]) -> String {
        match self.outcome(arguments).await {
            Ok(printed) => printed,
            Err(complaint) => panic!("gnmic {arguments:?}: {complaint}"),
        }
    }

    /// Runs a command that prints JSON.
    ///
    /// # Panics
    /// When it fails or prints something else.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.run(arguments).await;
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("gnmic {arguments:?}: {error}: {text}"))
    }

    /// Runs a command that must fail; returns its error text.
    ///
    /// # Panics
    /// When it succeeds.
    pub async fn refused(&self, arguments: &[&str]) -> String {
        match self.outcome(arguments).await {
            Ok(printed) => panic!("gnmic {arguments:?} should fail; it printed {printed}"),
            Err(complaint) => complaint,
        }
    }

    /// Runs a command, and returns its output.
    ///
    /// # Errors
    /// The error text of the command.
    pub async fn outcome(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command(arguments).output();
        let output =
            timeout(WAIT_LIMIT * 4, output).await.map_err(|_| "it does not end".to_owned())?;
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts a subscription that goes on, with one event on each line.
    ///
    /// # Panics
    /// When gnmic cannot be started.
    pub fn stream(&self, arguments: &[&str]) -> GnmicStream {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("gnmic starts");
        let stdout = child.stdout.take().expect("it was asked for");
        GnmicStream { _child: child, lines: BufReader::new(stdout).lines() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(client("gnmic"));
        command.args(&self.options).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

impl GnmicStream {
    /// Reads on until a line contains `part`, and returns all lines up to it.
    ///
    /// # Panics
    /// When gnmic ends or falls silent before.
    pub async fn until(&mut self, part: &str) -> String {
        let mut text = String::new();
        loop {
            let line = timeout(WAIT_LIMIT, self.lines.next_line()).await;
            let Ok(Ok(Some(line))) = line else {
                panic!("{line:?} while waiting for `{part}`; printed since: {text}")
            };
            text += &line;
            text.push('\n');
            if line.contains(part) {
                return text;
            }
        }
    }
}

/// Runs gnmi_cli, the client of OpenConfig itself, and returns its output. A subscription that streams for a given time ends
/// with its own error of that, so the output tells of success.
///
/// # Panics
/// When it cannot be started, does not end, or prints nothing.
pub async fn gnmi_cli(agent: &AgentProcess, arguments: &[&str]) -> String {
    let mut command = Command::new(client("gnmi_cli"));
    command.arg("-address").arg(agent.address().to_string());
    command.arg("-ca_crt").arg(agent.ca_file()).args(["-with_user_pass", "-logtostderr"]);
    command.env("GNMI_USER", ADMIN).env("GNMI_PASS", PASSWORD);
    let output = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(WAIT_LIMIT * 4, output).await;
    let output = output.expect("gnmi_cli ends").expect("gnmi_cli starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "gnmi_cli {arguments:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs grpcurl, which knows the services by reflection only, with messages as JSON; returns its output.
///
/// # Errors
/// The error text of grpcurl.
///
/// # Panics
/// When it cannot be started, or does not end.
pub async fn grpcurl(
    agent: &AgentProcess,
    arguments: &[&str],
    messages: &str,
) -> Result<String, String> {
    let mut command = Command::new(client("grpcurl"));
    command.arg("-cacert").arg(agent.ca_file());
    command.args(["-H", &format!("username: {ADMIN}"), "-H", &format!("password: {PASSWORD}")]);
    if !messages.is_empty() {
        command.args(["-d", messages]);
    }
    command.arg(agent.address().to_string()).args(arguments).stdin(Stdio::null());
    let output = timeout(WAIT_LIMIT * 4, command.kill_on_drop(true).output()).await;
    let output = output.expect("grpcurl ends").expect("grpcurl starts");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs the controller of `tests/clients/whole-tree`, which must succeed; returns its output.
///
/// # Panics
/// When it fails, or cannot be started, or does not end.
pub async fn whole_tree(agent: &AgentProcess) -> String {
    controller(agent, "whole-tree", &[]).await
}

/// Forms of requests in which the program of `tests/clients/ygnmi` runs each of its cases.
const YGNMI_FORMS: [&str; 5] = ["leaves", "items", "containers", "the root", "union_replace"];

/// Runs one case of the program of `tests/clients/ygnmi`, which must pass in each form. The configuration of the last step
/// of the case stays on the box.
///
/// # Panics
/// When the case fails in a form, or the program cannot be started, or does not end.
pub async fn ygnmi(agent: &AgentProcess, case: &str) {
    let printed = controller(agent, "ygnmi", &[case]).await;
    for form in YGNMI_FORMS {
        assert!(printed.contains(&format!("{case} as {form}: passed\n")), "{printed}");
    }
}

/// Runs a controller of this project in Go, which must succeed; returns its output.
async fn controller(agent: &AgentProcess, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(client(program))
        .args(arguments)
        .env("TARGET_ADDRESS", agent.address().to_string())
        .env("TARGET_CA", agent.ca_file())
        .env("TARGET_USER", ADMIN)
        .env("TARGET_PASSWORD", PASSWORD)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(WAIT_LIMIT * 4, output).await;
    let output = output.expect("the controller ends").expect("the controller starts");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{program} {arguments:?} ends with {}:\n{text}",
        output.status
    );
    text
}

/// Runs a script of `tests/clients` with the Python clients installed; it must succeed.
///
/// # Panics
/// When it fails; what it printed is in the message.
pub async fn python(agent: &AgentProcess, program: &str, arguments: &[&str]) -> String {
    python_with(agent, program, arguments, &[]).await
}

/// Runs a script of `tests/clients` like [`python`], with these variables in its environment, too.
///
/// # Panics
/// When it fails; what it printed is in the message.
pub async fn python_with(
    agent: &AgentProcess,
    program: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> String {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/protos");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let output = Command::new(client("venv/bin/python"))
        .current_dir(scripts)
        .arg(program)
        .args(arguments)
        .env("TARGET_HOST", agent.address().ip().to_string())
        .env("TARGET_PORT", agent.address().port().to_string())
        .env("TARGET_CA", agent.ca_file())
        .env("TARGET_USER", ADMIN)
        .env("TARGET_PASSWORD", PASSWORD)
        .env("PROTO_PATH", protos)
        .envs(variables.iter().copied())
        .kill_on_drop(true)
        .output();
    let output =
        timeout(WAIT_LIMIT * 8, output).await.expect("the client ends").expect("the client starts");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{program} ends with {}:\n{text}", output.status);
    text
}

/// A client that `clients.sh` made: in `$CLIENTS`, else in `target/clients`.
///
/// # Panics
/// When it is not there.
pub fn client(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients");
    let folder = std::env::var_os("CLIENTS").map_or(target, PathBuf::from);
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is missing: run tests/scripts/clients.sh gnmic gnmi_cli grpcurl python bootz tree ygnmi handler",
        program.display()
    );
    program
}
