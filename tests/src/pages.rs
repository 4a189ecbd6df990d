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

/// Ends of the prompts in a session on a page.
pub(crate) const PROMPTS: [&str; 2] = ["box# ", "desk$ "];

/// A command in a session on a page, with what the page says that it prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The whole as it stands on the page, prompt and output included.
    pub text: String,
    pub command: String,
    pub output: String,
}

impl Step {
    /// The step as it stands on a page where its command prints this.
    #[must_use]
    pub fn with_output(&self, output: &str) -> String {
        let typed = &self.text[..self.text.len() - self.output.len()];
        // A blank at the end of a line cannot be seen.
        let lines: String = output.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        format!("{typed}{lines}")
    }
}

/// The commands in the `console` blocks of a page, in order. A text behind `<<END` belongs to its command.
#[must_use]
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in blocks(page, "console") {
        let mut is_document = false;
        for line in block.lines() {
            let typed = PROMPTS.iter().find_map(|prompt| line.strip_prefix(prompt));
            if let Some(command) = typed {
                is_document = command.ends_with("<<END");
                let step = Step {
                    text: String::new(),
                    command: command.to_owned(),
                    output: String::new(),
                };
                steps.push(step);
            }
            let Some(step) = steps.last_mut() else { continue };
            step.text += &format!("{line}\n");
            if is_document && typed.is_none() {
                step.command += &format!("\n{line}");
                is_document = line != "END";
            } else if typed.is_none() {
                step.output += &format!("{line}\n");
            }
        }
    }
    steps
}

/// Part of an output that is the same in each run: no times, rates, hashes and widths of columns.
#[must_use]
pub fn stable(output: &str) -> String {
    let lines = output.lines().map(|line| {
        let words = line.split_whitespace().map(stable_word).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A word without what differs between runs: `N` for a number, nothing for its unit.
fn stable_word(word: &str) -> String {
    /// Digits of the shortest hash or identifier; a port or an MTU has fewer.
    const HASH_DIGITS: usize = 8;
    // A cable of tests ends in another namespace, and the tools of the kernel add its number there.
    let word = word.split_once("@if").map_or(word, |(link, _)| link);
    if word.starts_with("fe80::") {
        return "fe80::N".to_owned();
    }
    let is_number = |part: &str| part.parse::<f64>().is_ok();
    let is_time =
        word.len() > 18 && word.contains('T') && word.trim_matches(['"', ',']).ends_with('Z');
    if matches!(word, "k" | "M" | "G") {
        return String::new();
    }
    if is_time || is_number(word.trim_end_matches(',')) {
        return "N".to_owned();
    }
    let mut parts = Vec::new();
    for part in word.split_inclusive(|sign: char| !sign.is_ascii_alphanumeric()) {
        let bare = part.trim_end_matches(|sign: char| !sign.is_ascii_alphanumeric());
        let is_hash =
            bare.len() >= HASH_DIGITS && bare.chars().all(|sign| sign.is_ascii_hexdigit());
        parts.push(if is_hash { part.replace(bare, "N") } else { part.to_owned() });
    }
    parts.concat()
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
        let holdfast = binary();
        let state = agent.state_dir();
        let holdfast = holdfast.display();
        let state = state.display();
        self.write_program(
            "holdfast",
            &format!(
                "command=$1; shift; exec setpriv --pdeathsig KILL {holdfast} \"$command\" --state-dir {state} \"$@\""
            ),
        );
        let gnmic = client("gnmic");
        let address = agent.address();
        let ca = agent.ca_file();
        self.write_program(
            "gnmic",
            &format!(
                "exec {} --address {address} --tls-ca {} --username {ADMIN} --password '{PASSWORD}' --timeout 30s \"$@\"",
                gnmic.display(),
                ca.display()
            ),
        );
    }

    /// Puts a program where the shell finds it first.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_program(&self, name: &str, line: &str) {
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
    /// Error output of the commands, when one fails.
    ///
    /// # Panics
    /// When no shell can be started.
    pub fn outcome(&self, lines: &str) -> Result<String, String> {
        let output = self.command(lines).output().expect("a shell starts");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Both outputs of lines, whether they fail or not.
    ///
    /// # Panics
    /// When no shell can be started.
    #[must_use]
    pub fn both_outputs(&self, lines: &str) -> String {
        let output = self.command(&format!("exec 2>&1\n{lines}")).output().expect("a shell starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
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

    #[test]
    fn steps_are_commands_with_what_they_print() {
        let page = "```console\nbox# one\na\nb\ndesk$ two\nbox# cat <<END\nx\nEND\nc\n```\n";
        let [one, two, three] = steps(page).try_into().unwrap();
        assert_eq!((&*one.command, &*one.output), ("one", "a\nb\n"));
        assert_eq!((&*two.command, &*two.output), ("two", ""));
        assert_eq!((&*three.command, &*three.output), ("cat <<END\nx\nEND", "c\n"));
        assert_eq!(one.with_output("z \n"), "box# one\nz\n");
        assert_eq!(three.text, "box# cat <<END\nx\nEND\nc\n");
    }

    #[test]
    fn what_differs_between_runs_is_left_out() {
        let first =
            "eth0  UP  1500  192.0.2.1/24  1.4 k  2026-11-27T13:12:31Z\nplan 4ddefb0e09e8f138";
        let second =
            "eth0 UP 1500 192.0.2.1/24       0  2026-11-28T00:12:31Z\nplan 825b32210e32a461";
        assert_eq!(stable(first), stable(second));
        assert_eq!(stable("`cli-26c17da4` of deadline, 300 s"), "`cli-N` of deadline, N s");
        assert_ne!(stable("192.0.2.1/24"), stable("192.0.2.2/24"));
    }
}
