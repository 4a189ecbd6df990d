//! The binary as its operator uses it: start, users, end.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    fs,
    io::{ErrorKind, Write},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, geteuid},
};
use tempfile::TempDir;

/// Time limit of a step: much longer than any step takes, so that a slow machine does not fail a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// An empty configuration file: agents of tests read none of this machine.
const NO_CONFIGURATION: (&str, &str) = ("HOLDFAST_CONFIG", "/dev/null");

/// Runs `holdfast service WORDS` in a folder.
fn service(folder: &TempDir, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("service").args(words.split(' ')).current_dir(folder.path()).output().unwrap()
}

/// A command that executes another one in a network namespace of its own: one agent manages a namespace, and tests run side by side.
fn in_own_namespace() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

struct Device {
    folder: TempDir,
}

impl Device {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs `holdfast WORDS --state-dir ...` with this text on standard input.
    fn command(&self, words: &str, input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast"))
            .args(words.split(' '))
            .arg("--state-dir")
            .arg(self.state())
            .envs([NO_CONFIGURATION])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Starts the agent and waits until it notifies that it is ready.
    fn agent(&self, options: &[&str]) -> Agent {
        self.agent_in(options, &[])
    }

    /// Starts an agent with these variables in its environment.
    fn agent_in(&self, options: &[&str], variables: &[(&str, &str)]) -> Agent {
        let notify = self.folder.path().join("notify");
        let _of_an_earlier_start = fs::remove_file(&notify);
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let child = in_own_namespace()
            .arg(env!("CARGO_BIN_EXE_holdfast"))
            .args(["run", "--listen", "127.0.0.1:0", "--log-format", "json", "--state-dir"])
            .arg(self.state())
            .arg("--root")
            .arg(self.folder.path())
            .args(options)
            .env("NOTIFY_SOCKET", &notify)
            .envs([NO_CONFIGURATION])
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let agent = Agent { child, manager };
        agent.wait_for("READY=1");
        agent
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

struct Agent {
    child: Child,
    manager: UnixDatagram,
}

impl Agent {
    fn wait_for(&self, line: &str) {
        self.wait_for_after(line, |_| ());
    }

    /// Waits for a line of the notifications, and passes all lines up to it to `look`.
    fn wait_for_after(&self, line: &str, look: impl Fn(&str)) {
        let mut message = [0; 512];
        loop {
            let length = match self.manager.recv(&mut message) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue, // not restarted, as it has a timeout
                received => received.unwrap_or_else(|error| panic!("no {line}: {error}")),
            };
            let text = String::from_utf8_lossy(&message[..length]);
            text.lines().for_each(&look);
            if text.lines().any(|notification| notification == line) {
                return;
            }
        }
    }

    fn end(&mut self) -> (Option<i32>, Duration) {
        let started = Instant::now();
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        (status.code(), started.elapsed())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _waited_already = self.child.wait();
    }
}

#[track_caller]
fn check(output: &Output, code: i32, text: &str) {
    let output_text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let output_text = String::from_utf8_lossy(&output_text);
    assert!(
        output.status.code() == Some(code) && output_text.contains(text),
        "{:?}: {output_text}",
        output.status
    );
}

#[test]
fn packages_of_services_need_no_agent() {
    let folder = TempDir::new().unwrap();
    let run = |words: &str| {
        let output = service(&folder, words);
        let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, written, _) = run("new my-service");
    assert!(code == Some(0) && written.contains("my-service/service.toml\n"), "{written}");
    fs::write(folder.path().join("p.json"), r#"{"name":"a","port":"eth1"}"#).unwrap();
    let rendered = "# component port eth1\n# state configured (templates/port.cli)\ninterface eth1\n  enabled true\n";
    assert_eq!(run("render my-service --params p.json"), (Some(0), rendered.into(), String::new()));
    let (code, packed, _) = run("pack my-service");
    assert!(code == Some(0) && packed.ends_with("my-service-1.0.0.hfs\n"), "{packed}");
    assert_eq!(run("check my-service-1.0.0.hfs").0, Some(0));
    fs::write(folder.path().join("my-service/templates/port.cli"), "{{ params.").unwrap();
    let (code, _, refused) = run("check my-service");
    assert_eq!(code, Some(1));
    let error =
        "holdfast: the package `my-service` is refused:\ntemplates/port.cli:1:10: syntax error";
    assert!(refused.starts_with(error), "{refused}");
    assert_eq!(run("render my-service").0, Some(2), "the parameters are missing");
}

#[test]
fn users_are_managed_with_and_without_an_agent() {
    let folder = Device::new();
    check(&folder.command("user list", ""), 0, "");
    check(&folder.command("user delete ada", ""), 1, "holdfast: there is no user `ada`");
    assert!(!folder.state().exists(), "asking makes nothing");
    check(&folder.command("user set ada --role admin", "a-secret\n"), 0, "");
    check(
        &folder.command("user set bob --role read-only", "\n"),
        1,
        "holdfast: the password is empty",
    );
    check(&folder.command("user list", ""), 0, "ada\tadmin\n");

    let password = folder.folder.path().join("password");
    fs::write(&password, "b-secret\n").unwrap();
    let mut agent = folder.agent(&["--admin-password-file", password.to_str().unwrap()]);
    check(&folder.command("user list", ""), 0, "ada\tadmin\nadmin\tadmin\n");
    check(&folder.command("user set bob --role read-only", "c-secret"), 0, "");
    check(&folder.command("user delete ada", ""), 0, "");
    check(&folder.command("user delete ada", ""), 1, "holdfast: there is no user `ada`");
    agent.end();
    check(&folder.command("user list", ""), 0, "admin\tadmin\nbob\tread-only\n");
    let log = folder.log();
    assert!(!log.contains("-secret") && !log.contains("argon2"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('{')), "JSON, line by line: {log}");
}

#[test]
fn sigterm_ends_the_agent_within_a_second() {
    let folder = Device::new();
    let mut agent = folder.agent(&[]);
    let (code, duration) = agent.end();
    agent.wait_for("STOPPING=1");
    assert_eq!(code, Some(0));
    assert!(duration < Duration::from_secs(1), "{duration:?}");
    assert!(!folder.state().join("holdfast.sock").exists());
    assert!(folder.log().contains("there are no users"), "{}", folder.log());
}

#[test]
fn a_watchdog_is_fed_where_there_is_one() {
    let folder = Device::new();
    let agent = folder.agent_in(&[], &[("WATCHDOG_USEC", "400000")]);
    for _ in 0..3 {
        agent.wait_for("WATCHDOG=1");
    }
    drop(agent);
    let mut agent = folder.agent(&[]);
    agent.end();
    agent.wait_for_after("STOPPING=1", |notification| assert_ne!(notification, "WATCHDOG=1"));
}

#[test]
fn what_only_clients_need_is_told_and_ends_no_agent() {
    let folder = Device::new();
    let mut agent = folder.agent(&[
        "--listen",
        "192.0.2.1:0",
        "--listen",
        "[fe80::1%missing]:0",
        "--admin-password-file",
        "/missing",
    ]);
    check(
        &folder.command("show listeners", ""),
        0,
        "cannot listen on [fe80::1%missing]:0: there is no link missing",
    );
    check(&folder.command("wait-online --timeout 30", ""), 0, "");
    agent.end();
    let log = folder.log();
    assert!(log.contains("cannot read `/missing`: No such file"), "{log}");
    assert!(!log.contains("cannot listen on 192.0.2.1"), "an address may come later: {log}");
}

#[test]
fn failures_have_words_and_codes() {
    let folder = Device::new();
    check(&folder.command("show config", ""), 3, "holdfast: no agent answers on");
    check(&folder.command("show colours", ""), 2, "unrecognized subcommand 'colours'");
    check(&folder.command("run --tls-cert x.pem", ""), 2, "--tls-key");
    check(&folder.command("run --listen nowhere", ""), 2, "give an IP address and a port");
    let _agent = folder.agent(&[]);
    check(&folder.command("run --listen 127.0.0.1:0", ""), 1, "is in use by another holdfast");
}

#[test]
fn options_come_before_variables_and_variables_before_the_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("holdfast.toml");
    fs::write(&file, "[agent]\nstate-dir = \"/of/the-file\"\n").unwrap();
    let ask = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(["show", "config"]).args(options);
        command.env("HOLDFAST_CONFIG", &file).envs(variables.iter().copied()).output().unwrap()
    };
    let variable = ("HOLDFAST_STATE_DIR", "/of/the-variable");
    check(&ask(&[], &[]), 3, "/of/the-file/holdfast.sock");
    check(&ask(&[], &[variable]), 3, "/of/the-variable/holdfast.sock");
    check(&ask(&["--state-dir", "/of/the-option"], &[variable]), 3, "/of/the-option/holdfast.sock");
    check(&ask(&["--config", "/dev/null"], &[]), 3, "/var/lib/holdfast/holdfast.sock");
    check(&ask(&["--config", "/missing.toml"], &[]), 1, "configuration file `/missing.toml`");
}

#[test]
fn every_option_of_a_run_has_a_variable_that_works() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("run").envs([NO_CONFIGURATION]).envs(variables.iter().copied());
        command.output().unwrap()
    };
    for (variable, value, want) in [
        ("HOLDFAST_LISTEN", "[::]:1,box:9339", "box:9339"),
        ("HOLDFAST_LOG_LEVEL", "loud", "loud"),
        ("HOLDFAST_TLS_CERT", "c.pem", "--tls-key"),
        ("HOLDFAST_BOOTZ_TRUST_ANY_SERVER", "perhaps", "perhaps"),
    ] {
        check(&run(&[(variable, value)]), 2, want);
    }
}

#[test]
fn a_file_is_checked_before_it_is_used() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("holdfast.toml");
    let check_file = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("check-config").arg(&file).output().unwrap()
    };
    check(&check_file(), 1, "cannot read the configuration file");
    fs::write(&file, "[server]\nlisten = [\"[::]:9339\"]\n").unwrap();
    check(&check_file(), 0, "is good; keys that it sets: 1");

    let mistakes = "[server]\nlisen = []\ntls-client-ca = \"/missing.pem\"\n";
    fs::write(&file, mistakes).unwrap();
    let place = format!(
        "{}:2:1: unknown key \"lisen\" in [server]; did you mean \"listen\"?",
        file.display()
    );
    check(&check_file(), 1, &place);
    fs::write(&file, mistakes.replace("lisen = []", "")).unwrap();
    check(&check_file(), 1, ":3:17: `tls-client-ca` in [server] names /missing.pem");

    // The agent does not start either.
    let mut run = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    fs::write(&file, mistakes).unwrap();
    check(&run.arg("run").arg("--config").arg(&file).output().unwrap(), 1, &place);
}
