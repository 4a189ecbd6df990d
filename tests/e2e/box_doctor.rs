//! `holdfast doctor` with a real agent, and without one.

use std::process::{Command, Output};

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::Value;
use tempfile::TempDir;

use crate::config_command::config;

/// Results of `holdfast doctor --json`.
struct Examined(Vec<Value>);

impl Examined {
    #[track_caller]
    fn of(output: &Output) -> Self {
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let worst =
            |results: &[&str]| rows.iter().any(|row| results.contains(&text(row, "result")));
        let want = match () {
            () if worst(&["failure"]) => 2,
            () if worst(&["unknown"]) => 3,
            () if worst(&["warning"]) => 1,
            () => 0,
        };
        assert_eq!(output.status.code(), Some(want), "{rows:#?}");
        Self(rows)
    }

    /// The first row of a check.
    #[track_caller]
    fn row(&self, id: &str) -> &Value {
        let row = self.0.iter().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("no {id} in {:#?}", self.0))
    }

    #[track_caller]
    fn assert(&self, id: &str, result: &str, word: &str) {
        let row = self.row(id);
        assert!(row["result"] == result && text(row, "text").contains(word), "{row}");
    }
}

fn text<'r>(row: &'r Value, member: &str) -> &'r str {
    row[member].as_str().unwrap_or_default()
}

#[track_caller]
fn examine(agent: &AgentProcess, arguments: &[&str]) -> Examined {
    let output = agent.command("doctor").arg("--json").args(arguments).output().unwrap();
    Examined::of(&output)
}

#[tokio::test]
async fn a_running_agent_is_asked() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let links = net.ip("link show");
    let all = examine(&agent, &[]);
    for id in [
        "kernel-ipv6",
        "kernel-address-protocol",
        "kernel-variables",
        "process-agent",
        "process-capabilities",
        "files-folder",
        "files-other-agent",
        "server-sockets",
        "server-address",
        "server-certificate",
        "server-certificate-dates",
        "server-users",
        "state-repairs",
        "state-window",
    ] {
        all.assert(id, "ok", "");
    }
    all.assert("state-objects", "ok", "in sync, 0 objects");
    assert_eq!(net.ip("link show"), links, "nothing is changed");
    let left = std::fs::read_dir(agent.state_dir()).unwrap().flatten();
    let left: Vec<_> =
        left.filter(|it| it.file_name().to_string_lossy().contains("doctor")).collect();
    assert!(left.is_empty(), "{left:?}");

    config(&agent, &["set", "interface", "eth9", "mtu", "1400"], "");
    let terms = ["set", "--confirm-within", "5m", "interface", "eth0", "mtu", "1401"];
    config(&agent, &terms, "");
    let quick = examine(&agent, &["--quick"]);
    quick.assert("kernel-links", "skipped", "--quick");
    quick.assert("files-sync", "skipped", "--quick");
    quick.assert("state-objects", "warning", "eth9");
    quick.assert("state-window", "warning", "waits to be confirmed");
    config(&agent, &["confirm"], "");

    // Another program that undoes what the agent does.
    for _ in 0..4 {
        net.ip("link set eth0 mtu 1300");
        eventually("the agent repairs the MTU", || net.link("eth0").mtu == 1401).await;
    }
    let quick = examine(&agent, &["--quick"]);
    quick.assert("state-repairs", "warning", "link eth0 was repaired");

    let shown = agent.command("doctor").arg("--quick").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("warn  state   link eth9 is pending"), "{shown}");
    assert!(shown.contains("advice: `holdfast show why 'link eth9'`"), "{shown}");
    assert!(shown.lines().last().unwrap().ends_with(" ok"), "{shown}");
}

/// Mistakes of the file are what keeps an agent from starting: the command and the bundle have to work with them.
#[tokio::test]
async fn a_configuration_file_with_mistakes_is_judged() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("holdfast.toml");
    for (number, (text, word)) in
        [("[agent]\nlisen = 4\n", "lisen"), ("[agent\n", "holdfast.toml:1:")].iter().enumerate()
    {
        std::fs::write(&file, text).unwrap();
        let found = examine(&agent, &["--quick", "--config", file.to_str().unwrap()]);
        found.assert("files-configuration", "failure", word);
        found.assert("process-agent", "ok", "the agent runs");
        let bundle = folder.path().join(format!("{number}.tar.gz"));
        let mut command = agent.command("support-bundle");
        let output = command.arg("--config").arg(&file).arg(&bundle).output().unwrap();
        assert!(output.status.success() && bundle.exists(), "{output:?}");
    }
}

#[tokio::test]
async fn without_an_agent_the_rest_is_looked_at() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("state");
    let alone = || {
        let mut command = Command::new(binary());
        command.args(["doctor", "--quick", "--json", "--state-dir"]).arg(&state);
        Examined::of(&command.output().unwrap())
    };
    let found = alone();
    found.assert("process-agent", "warning", "no agent answers");
    found.assert("files-folder", "skipped", "not there yet");
    found.assert("files-other-agent", "ok", "");
    found.assert("server-sockets", "ok", "free");

    // The agent of another state folder manages this namespace.
    let agent = AgentProcess::start(&net).await;
    let found = alone();
    let other = agent.state_dir().display().to_string();
    found.assert("files-other-agent", "failure", &other);
    drop(agent);
}
