//! Files of a package that follow from the definition of the command line: manual pages, scripts for shells, and the format
//! of the state folder. The hidden `holdfast package-files FOLDER` writes them when a package is made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use holdfast_store::FORMAT;

use crate::completion;
use crate::config_file;
use crate::settings::Shell;

/// Section of the manual for commands of the administrator.
const SECTION_OF_COMMANDS: &str = "8";
/// Name of the manual in the head of each page.
const MANUAL: &str = "Holdfast";

/// A file of a package could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`", path.display())]
pub struct PackageFileError {
    path: PathBuf,
    source: io::Error,
}

/// Writes the files below a folder.
///
/// # Errors
/// When one of them cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), PackageFileError> {
    let file = |name: &str, content: &[u8]| {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, content));
        written.map_err(|source| PackageFileError { path, source })
    };
    let mut command = config_file::definition();
    command.build();
    for (name, page) in pages(&command) {
        file(&format!("man/{name}.{SECTION_OF_COMMANDS}"), &page)?;
    }
    file("man/holdfast.toml.5", config_file::manual_page().as_bytes())?;
    for (shell, name) in
        [(Shell::Bash, "holdfast.bash"), (Shell::Zsh, "_holdfast"), (Shell::Fish, "holdfast.fish")]
    {
        file(&format!("completion/{name}"), completion::script(shell).as_bytes())?;
    }
    file("format", format!("{FORMAT}\n").as_bytes())
}

/// The manual page of a command, and those of the commands below it, with their names.
fn pages(command: &Command) -> Vec<(String, Vec<u8>)> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).section(SECTION_OF_COMMANDS).manual(MANUAL);
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _infallible = man.render(&mut page);
    let below = command.get_subcommands();
    let below = below.filter(|command| !command.is_hide_set() && command.get_name() != "help");
    std::iter::once((name, page)).chain(below.flat_map(pages)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_a_script() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(text("man/holdfast.8").contains("holdfast\\-run(8)"), "{}", text("man/holdfast.8"));
        assert!(text("man/holdfast-run.8").contains("HOLDFAST_LISTEN"));
        assert!(text("man/holdfast-service-install.8").contains(".TH"));
        assert!(text("man/holdfast.toml.5").contains("log\\-level"));
        assert!(!folder.path().join("man/holdfast-name-host.8").exists(), "it is hidden");
        for name in ["holdfast.bash", "_holdfast", "holdfast.fish"] {
            assert!(text(&format!("completion/{name}")).contains("holdfast complete"), "{name}");
        }
        assert_eq!(text("format"), format!("{FORMAT}\n"));
    }
}
