//! The command line of the agent; see [`holdfast::settings`].

use std::process::ExitCode;

use clap::Parser;
use holdfast::settings::{Command, CommandLine};

fn main() -> ExitCode {
    match CommandLine::parse().command {
        Command::Run(_) | Command::Show(_) | Command::User(_) => ExitCode::FAILURE,
    }
}
