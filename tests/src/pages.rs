//! Command lines of pages, run by a shell as somebody would who pastes them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tokio::process::Child;

use crate::agent::{ADMIN, AgentProcess, PASSWORD, binary};
use crate::clients::client;

/// Blocks of a section in this language.
#[must_use]
pub fn blocks(section: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = section.split(&*begin).skip(1);
    parts.map(|part| part.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Commands of a block, without comments. One may stand on several lines.
#[must_use]
pub fn commands(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    for line in block.lines() {
        let line = line.split("  #").next().unwrap_or_default().trim_end();
        match line.strip_suffix('\\') {
            Some(begin) => command += begin,
            None if line.is_empty() => {}
            None => commands.push(std::mem::take(&mut command) + line),
        }
    }
    commands
}

/// A shell in a folder of its own, in which `holdfast` and `gnmic` speak to an agent.
#[derive(Debug)]
pub struct Shell {
    folder: TempDir,
}

impl Shell {
    /// A shell without an agent.
    ///
    /// # Panics
    /// When there is no folder for it.
    #[must_use]
    pub fn new() -> Self {
        let it = Self { folder: TempDir::new().expect("a temporary folder") };
        fs::create_dir(it.folder.path().join("bin")).expect("a folder of our own");
        it.write_program("holdfast", &format!("exec {} \"$@\"", binary().display()));
        it
    }

    /// A shell whose programs speak to an agent.
    #[must_use]
    pub fn of_agent(agent: &AgentProcess) -> Self {
        let it = Self::new();
        it.connect(agent);
        it
    }

    /// Has `holdfast` and `gnmic` speak to an agent.
    ///
    /// # Panics
    /// When the programs cannot be written.
    pub fn connect(&self, agent: &AgentProcess) {
        let (holdfast, state) = (binary(), agent.state_dir());
        let (holdfast, state) = (holdfast.display(), state.display());
        self.write_program(
            "holdfast",
            &format!(
                "command=$1; shift; exec setpriv --pdeathsig KILL {holdfast} \"$command\" --state-dir {state} \"$@\""
            ),
        );
        let (gnmic, address, ca) = (client("gnmic"), agent.address(), agent.ca_file());
        self.write_program(
            "gnmic",
            &format!(
                "exec {} --address {address} --tls-ca {} --username {ADMIN} --password '{PASSWORD}' --timeout 30s \"$@\"",
                gnmic.display(),
                ca.display()
            ),
        );
    }

    fn write_program(&self, name: &str, line: &str) {
        let path = self.folder.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{line}\n")).expect("a file of our own");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    }

    /// A path in the folder of the shell.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs lines. Returns what they print.
    ///
    /// # Errors
    /// What they print to the error output, when one fails.
    ///
    /// # Panics
    /// When no shell can be started.
    pub fn outcome(&self, lines: &str) -> Result<String, String> {
        let output = self.command(lines).output().expect("a shell starts");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn command(&self, lines: &str) -> Command {
        let programs = self.folder.path().join("bin");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-euc", lines])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", programs.display()))
            .stdin(Stdio::null());
        command
    }

    /// Begins a command that goes on until the returned process is dropped.
    ///
    /// # Panics
    /// When no shell can be started.
    pub fn spawn(&self, line: &str, variables: &[(&str, &str)]) -> Child {
        let mut command = tokio::process::Command::from(self.command(&format!("exec {line}")));
        command.envs(variables.iter().copied()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().expect("a shell starts")
    }

    /// Runs lines that succeed.
    ///
    /// # Panics
    /// When one fails.
    #[track_caller]
    pub fn run(&self, lines: &str) -> String {
        self.outcome(lines).unwrap_or_else(|error| panic!("`{lines}` fails: {error}"))
    }
}

impl Default for Shell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_on_one_line_or_several_and_have_comments() {
        let block = "one a  # says one\n# a comment\ntwo \\\n  b '#c'\n";
        assert_eq!(commands(block), ["one a", "# a comment", "two   b '#c'"]);
        let page = "\n# x\n```sh\n# no heading\na\n```\n```toml\nb\n```\n";
        assert_eq!(blocks(page, "sh"), ["# no heading\na\n"]);
    }
}
