//! The command line of the agent; see [`holdfast::settings`].

use std::{error::Error, io::Write, process::ExitCode};

use clap::Parser;
use holdfast::{
    command,
    logging::Chain,
    process, run,
    settings::{Command, CommandLine},
};

fn main() -> ExitCode {
    process::restrict();
    match CommandLine::parse().command {
        Command::Run(settings) => {
            run::run(*settings).map_or_else(|error| failed(&error, ExitCode::FAILURE), done)
        }
        Command::Show(settings) => briefly(command::show(&settings)),
        Command::User(settings) => briefly(command::user(settings)),
    }
}

fn briefly(result: Result<(), command::CommandError>) -> ExitCode {
    result.map_or_else(|error| failed(&error, error.exit_code()), done)
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

/// Says what failed and why, once, to whoever sits in front of it.
fn failed(error: &dyn Error, code: ExitCode) -> ExitCode {
    let _no_one_listens = writeln!(std::io::stderr(), "holdfast: {}", Chain(error));
    code
}
