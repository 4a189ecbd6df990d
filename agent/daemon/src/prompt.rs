//! Asks a person: for a password, without showing it, or whether to go on.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::users::{Password, PasswordError};

/// Bytes of a password read from standard input; no password is longer.
const MAX_INPUT_BYTES: u64 = 64 * 1024;

/// Reasons why there is no password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    #[error("cannot ask on the terminal")]
    Answer(#[source] io::Error),
    #[error("cannot read the password from the terminal")]
    Terminal(#[source] io::Error),
    #[error("cannot read the password from standard input")]
    Input(#[source] io::Error),
    #[error("the two passwords differ")]
    Differ,
    #[error(transparent)]
    Password(#[from] PasswordError),
}

/// Asks twice on the terminal; reads one line when standard input is not a terminal.
///
/// # Errors
///
/// When nothing can be read, the two passwords differ, or the password breaks a rule.
pub(crate) fn new_password(name: &str) -> Result<Password, PromptError> {
    if !io::stdin().is_terminal() {
        let mut input = Zeroizing::new(Vec::new());
        let mut limited = io::stdin().lock().take(MAX_INPUT_BYTES);
        limited.read_to_end(&mut input).map_err(PromptError::Input)?;
        return Ok(Password::first_line(&input)?);
    }
    let first =
        read_password_line(&format!("Password for {name}: ")).map_err(PromptError::Terminal)?;
    let again = read_password_line("Repeat the password: ").map_err(PromptError::Terminal)?;
    if first != again {
        return Err(PromptError::Differ);
    }
    Ok(Password::first_line(first.as_bytes())?)
}

/// Asks a question on the terminal. True for the answer `yes`.
///
/// # Errors
/// When the terminal cannot be used.
pub(crate) fn is_confirmed(question: &str) -> Result<bool, PromptError> {
    let ask = || -> io::Result<String> {
        let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
        terminal.write_all(question.as_bytes())?;
        let mut line = String::new();
        BufReader::new(terminal.take(MAX_INPUT_BYTES)).read_line(&mut line).map(|_| line)
    };
    Ok(ask().map_err(PromptError::Answer)?.trim() == "yes")
}

fn read_password_line(question: &str) -> io::Result<Zeroizing<String>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    terminal.write_all(question.as_bytes())?;
    let mut line = Zeroizing::new(String::new());
    let silent = EchoOff::start(terminal.try_clone()?)?;
    let read = BufReader::new(&terminal).read_line(&mut line);
    drop(silent);
    terminal.write_all(b"\n")?;
    read.map(|_| line)
}

/// Turns the terminal's echo off until dropped.
struct EchoOff {
    terminal: File,
    before: Termios,
}

impl EchoOff {
    fn start(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        silent.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&terminal, SetArg::TCSAFLUSH, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _terminal_gone = tcsetattr(&self.terminal, SetArg::TCSAFLUSH, &self.before);
    }
}
