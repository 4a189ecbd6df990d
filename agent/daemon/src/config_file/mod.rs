//! The configuration file of the agent, `/etc/holdfast/holdfast.toml`, beside the command line and the environment.
//!
//! Start at [`Invocation::parse`]. An option comes from the command line, else from the environment (`HOLDFAST_*`), else from
//! the file, else it has its default. The definition of the command line is the one home of names, help, defaults and
//! checks: what the file says becomes arguments for all that neither command line nor environment give, and clap parses the
//! whole. Each value is parsed alone before that, so that a mistake is reported with its line and column.
//!
//! Absent on purpose: secrets (the file has their paths), and included files.

mod document;
mod mistakes;
mod paths;
mod reference;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

pub use self::document::{ConfigFile, ConfigFileError};
pub use self::mistakes::Mistake;
pub(crate) use self::paths::check_paths;
pub(crate) use self::reference::manual_page;
pub use self::reference::{markdown, template};
use crate::settings::{
    self, CommandLine, DEFAULT_CONFIG_FILE, RunSettings, SECTIONS, Setting, TakesEffect,
};

/// Begin of the names of the variables that options have.
const VARIABLE_PREFIX: &str = "HOLDFAST_";

/// Options that all commands with a state folder take from the environment and the file.
const COMMON_OPTIONS: [&str; 2] = ["state_dir", "socket"];

/// The option that names the file; the file itself cannot have it.
const CONFIG_OPTION: &str = "config";

/// Names of the commands that find out what is wrong with a box, its configuration file included.
const COMMANDS_FOR_FAULTS: [&str; 2] = ["doctor", "support-bundle"];

/// Name of the command whose options the file has.
const RUN: &str = "run";

/// A command line that was parsed together with the environment and the file.
#[derive(Debug)]
pub struct Invocation {
    pub command: settings::Command,
    /// Sources of the settings of a run, to read them again.
    pub source: SettingsSource,
}

/// Reason not to carry out a command line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    #[error(transparent)]
    CommandLine(#[from] clap::Error),
    #[error(transparent)]
    File(#[from] ConfigFileError),
}

impl Invocation {
    /// Parses the arguments of this process, its environment, and the configuration file that these name, or the default one
    /// if it is there.
    ///
    /// # Errors
    /// When the command line is wrong or asks for help, or the file has mistakes.
    pub fn parse(arguments: Vec<OsString>) -> Result<Self, InvocationError> {
        Self::parse_with(arguments, Path::new(DEFAULT_CONFIG_FILE))
    }

    fn parse_with(arguments: Vec<OsString>, default_file: &Path) -> Result<Self, InvocationError> {
        let (matches, file) = matches_with_file(&arguments, default_file)?;
        let command = CommandLine::from_arg_matches(&matches)?.command;
        let values = matches.subcommand().map(|(_, run)| values_of(run)).unwrap_or_default();
        let default_file = default_file.to_owned();
        Ok(Self { command, source: SettingsSource { arguments, default_file, file, values } })
    }
}

/// The words of each option of a run, by its id.
type Values = BTreeMap<String, Vec<OsString>>;

/// Sources of the settings of a run: the command line, the environment and the file.
#[derive(Debug)]
pub struct SettingsSource {
    arguments: Vec<OsString>,
    default_file: PathBuf,
    /// The file that was read at the start.
    file: Option<PathBuf>,
    /// The words with which the agent was started.
    values: Values,
}

impl SettingsSource {
    /// The configuration file that was read at the start, if there was one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the file again. The second value names the keys that differ from those of the start, and take effect only with
    /// the next one.
    ///
    /// # Errors
    /// As those of [`Invocation::parse`].
    pub fn read_again(&self) -> Result<(RunSettings, Vec<String>), InvocationError> {
        let (matches, _file) = matches_with_file(&self.arguments, &self.default_file)?;
        let Some((RUN, run)) = matches.subcommand() else {
            return Err(CommandLine::command().error(ErrorKind::InvalidSubcommand, RUN).into());
        };
        let now = values_of(run);
        let is_waiting = |setting: &&Setting| {
            setting.takes_effect == TakesEffect::AtStart
                && now.get(setting.option) != self.values.get(setting.option)
        };
        let waiting = SECTIONS.iter().flat_map(|section| {
            let settings = section.settings.iter().filter(is_waiting);
            settings.map(|setting| format!("`{}` in [{}]", setting.key, section.name))
        });
        Ok((RunSettings::from_arg_matches(run)?, waiting.collect()))
    }
}

/// The folder and the socket of a command line that is not whole yet, by the environment and the file. Mistakes in the file
/// count as silence there.
pub(crate) fn common_option(name: &str, file: Option<&Path>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(variable_of(name)).map(PathBuf::from);
    let named = file.map(Path::to_owned).or_else(|| variable(CONFIG_OPTION));
    let file = || {
        let path = named.unwrap_or_else(|| DEFAULT_CONFIG_FILE.into());
        ConfigFile::read(&path).ok()?.words_of(name)?.first().map(PathBuf::from)
    };
    variable(name).or_else(file)
}

/// The definition of the command line with the variables of its options.
pub(crate) fn definition() -> Command {
    CommandLine::command().mut_subcommands(|command| {
        let is_run = command.get_name() == RUN;
        if !is_run && !has_state_folder(&command) {
            return command;
        }
        command.mut_args(|option| {
            let id = option.get_id().as_str();
            let is_common = id == CONFIG_OPTION || COMMON_OPTIONS.contains(&id);
            let has_variable = is_common || (is_run && option.get_long().is_some());
            if has_variable {
                let variable = variable_of(id);
                option.env(variable)
            } else {
                option
            }
        })
    })
}

/// Variable of an option.
pub(crate) fn variable_of(option: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", option.to_ascii_uppercase())
}

fn has_state_folder(command: &Command) -> bool {
    command.get_arguments().any(|option| option.get_id() == CONFIG_OPTION)
}

/// The command `run` as it is defined, without its variables.
pub(crate) fn run_definition() -> Command {
    let mut command = CommandLine::command();
    command.build();
    let run = command.find_subcommand(RUN).cloned();
    run.expect("the command line has the command `run`")
}

/// Options of a run that the file has. The options that clap adds, and the one that names the file, are not among them.
pub(crate) fn options_of(run: &Command) -> impl Iterator<Item = &Arg> {
    let is_listed = |option: &&Arg| {
        option.get_long().is_some() && !matches!(option.get_id().as_str(), CONFIG_OPTION | "help")
    };
    run.get_arguments().filter(is_listed)
}

/// Parses the arguments together with the environment and the file, which is the second value.
fn matches_with_file(
    arguments: &[OsString],
    default_file: &Path,
) -> Result<(ArgMatches, Option<PathBuf>), InvocationError> {
    let alone = match definition().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        // The file may have the missing option.
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            definition().ignore_errors(true).try_get_matches_from(arguments)?
        }
        Err(error) => return Err(error.into()),
    };
    let Some((name, given)) = alone.subcommand() else {
        return Ok((definition().try_get_matches_from(arguments)?, None));
    };
    let file = match file_of(given, default_file) {
        // These commands say what is wrong with the file, and go on without it.
        Err(_) if COMMANDS_FOR_FAULTS.contains(&name) => None,
        file => file?,
    };
    let Some(file) = file else {
        return Ok((definition().try_get_matches_from(arguments)?, None));
    };
    let is_given = |option: &str| {
        let source = given.value_source(option);
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    let added = if name == RUN {
        file.check(&is_given).map_err(ConfigFileError::from)?;
        file.arguments(|option| !is_given(option))
    } else {
        file.arguments(|option| COMMON_OPTIONS.contains(&option) && !is_given(option))
    };
    let mut whole = arguments.to_vec();
    let behind_the_command = whole.iter().position(|word| word == OsStr::new(name));
    let place = behind_the_command.map_or(whole.len(), |at| at + 1);
    whole.splice(place..place, added);
    Ok((definition().try_get_matches_from(whole)?, Some(file.path().to_owned())))
}

/// The file of a command that has a state folder: the one that is named, or the default one if it is there.
fn file_of(given: &ArgMatches, default_file: &Path) -> Result<Option<ConfigFile>, ConfigFileError> {
    match given.try_get_one::<PathBuf>(CONFIG_OPTION) {
        Ok(Some(named)) => ConfigFile::read(named).map(Some),
        Ok(None) if default_file.exists() => ConfigFile::read(default_file).map(Some),
        Ok(None) | Err(_) => Ok(None),
    }
}

fn values_of(run: &ArgMatches) -> Values {
    let words = |id: &clap::Id| {
        let words = run.get_raw(id.as_str()).into_iter().flatten().map(OsStr::to_owned);
        (id.as_str().to_owned(), words.collect())
    };
    run.ids().filter(|id| run.try_get_raw(id.as_str()).is_ok()).map(words).collect()
}

#[cfg(test)]
mod tests;
