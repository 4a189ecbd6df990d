//! Files and folders that the configuration file names: they have to be there.

use std::fs;
use std::io;
use std::path::Path;

use super::document::{ConfigFile, ConfigFileError};
use super::mistakes::Mistakes;
use super::{options_of, run_definition};
use crate::systemd;

/// The agent makes this folder itself.
const MADE_BY_AGENT: &str = "state_dir";

/// Kind of file to which a path has to lead, by the name that the value of an option has in its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    ReadableFile,
    Folder,
    Program,
}

/// Looks at each file, folder and program that the file names.
///
/// # Errors
/// With all paths that lead to nothing, or to something that the option cannot use.
pub(crate) fn check_paths(file: &ConfigFile) -> Result<(), ConfigFileError> {
    let run = run_definition();
    let mut mistakes = Vec::new();
    for option in options_of(&run) {
        let id = option.get_id().as_str();
        let name = option.get_value_names().and_then(|names| names.first());
        let expected = match name.map(|name| name.as_str()) {
            Some("FILE") => Expected::ReadableFile,
            Some("DIR") if id != MADE_BY_AGENT => Expected::Folder,
            Some("PROGRAM") => Expected::Program,
            _ => continue,
        };
        for path in file.words_of(id).unwrap_or_default() {
            if let Err(error) = look_at(Path::new(path), expected) {
                let reason = format!("names {path}, which cannot be used: {error}");
                mistakes.extend(file.mistake_at_value(id, reason));
            }
        }
    }
    Ok(Mistakes::of(mistakes)?)
}

fn look_at(path: &Path, expected: Expected) -> io::Result<()> {
    let explained = |error| systemd::explained(path, error);
    let wrong = |reason| Err(io::Error::other(reason));
    match expected {
        Expected::ReadableFile => {
            let file = fs::File::open(path).map_err(explained)?;
            if file.metadata()?.is_dir() { wrong("it is a folder") } else { Ok(()) }
        }
        Expected::Folder => fs::read_dir(path).map(drop).map_err(explained),
        // A name alone is looked for in the PATH of the agent, which is not known here.
        Expected::Program if !path.to_string_lossy().contains('/') => Ok(()),
        Expected::Program => {
            nix::unistd::access(path, nix::unistd::AccessFlags::X_OK)?;
            if fs::metadata(path)?.is_file() { Ok(()) } else { wrong("it is not a program") }
        }
    }
}
