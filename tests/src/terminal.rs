//! Commands on a terminal, at which somebody answers.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Result of a command on a terminal.
#[derive(Clone, Debug)]
pub struct TerminalRun {
    pub has_succeeded: bool,
    /// All that the terminal has shown: both outputs, questions and answers.
    pub shown: String,
}

/// Runs a command on a terminal of its own, at which these lines are typed.
///
/// # Panics
/// When it cannot be started, or shows something that is not text.
pub fn at_terminal(command: &Command, typed: &str) -> TerminalRun {
    let quoted =
        |word: &OsStr| format!("'{}'", word.to_str().expect("arguments of tests are text"));
    let variable = |(name, value): (&OsStr, Option<&OsStr>)| match value {
        Some(value) => {
            let mut setting = name.to_owned();
            setting.push("=");
            setting.push(value);
            quoted(&setting)
        }
        None => format!("--unset={}", quoted(name)),
    };
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(quoted);
    let words = ["env".to_owned()].into_iter().chain(command.get_envs().map(variable)).chain(words);
    let line: Vec<String> = words.collect();
    let mut script = Command::new("script");
    script.args(["-qec", &line.join(" "), "/dev/null"]);
    let script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = script.spawn().expect("util-linux has `script`");
    let mut keyboard = script.stdin.take().expect("it is a pipe");
    // A command that asks nothing may have ended already.
    let _not_read = keyboard.write_all(typed.as_bytes());
    drop(keyboard);
    let output = script.wait_with_output().expect("it ends");
    let shown = [output.stdout, output.stderr].concat();
    TerminalRun {
        has_succeeded: output.status.success(),
        shown: String::from_utf8(shown).expect("it shows text"),
    }
}
