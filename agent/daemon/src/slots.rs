//! Software images of the box: installed versions, and the one to boot.
//!
//! The storage of images depends on the box, so a program of the operator manages them, for bootstraps and for
//! gNOI: `PROGRAM install FILE VERSION`, `PROGRAM activate VERSION`, `PROGRAM list`. The list is requested each
//! time: with two slots, a third image replaces the second.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{io::AsyncReadExt, process::Command, time::timeout};

/// Exit status of `activate` when the version runs after a reboot; 0 says that it runs already.
const EXIT_AT_REBOOT: i32 = 100;
/// Time limit of `list`, for which the agent waits at its start.
const LIST_TIME: Duration = Duration::from_secs(10);
/// Longest output of `list`, in bytes: a box has a handful of versions.
const MAX_LIST: u64 = 64 << 10;
/// Longest version, in bytes: it is an argument and often part of a file name, for which Linux has NAME_MAX.
const MAX_VERSION: usize = 255;

/// Time from which an installed image runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationTime {
    Now,
    AfterReboot,
}

/// Flaw of an image, as judged by the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    Incompatible,
    NoImage,
    Broken,
    TooLarge,
}

/// Exit status of `install` for each flaw. Any other status is a failure of the program.
const FLAWS: [(i32, Flaw); 4] =
    [(101, Flaw::Incompatible), (102, Flaw::NoImage), (103, Flaw::Broken), (104, Flaw::TooLarge)];

/// Reason why the program failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    #[error("this box has no program that installs images: set `--image-command`")]
    NoProgram,
    #[error("cannot run `{} {verb}`", program.display())]
    Run { program: PathBuf, verb: &'static str, source: io::Error },
    #[error("`{} {verb}` ended with {status}", program.display())]
    Failed { program: PathBuf, verb: &'static str, status: ExitStatus },
    #[error("`{} install` says that the image {flaw}", program.display())]
    Flawed { program: PathBuf, flaw: Flaw },
    #[error("`{} list` has not ended after {LIST_TIME:?}", program.display())]
    Late { program: PathBuf },
    #[error("`{} list` does not print versions: {reason}", program.display())]
    Unreadable { program: PathBuf, reason: String },
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Incompatible => "is for another box",
            Self::NoImage => "cannot be read",
            Self::Broken => "is damaged",
            Self::TooLarge => "is too large",
        })
    }
}

/// Checks that a text is a valid version: one line, not to be mistaken for an option.
///
/// # Errors
/// With the problem found.
pub fn check_version(version: &str) -> Result<(), String> {
    let wrong = match version {
        "" => "is empty",
        _ if version.len() > MAX_VERSION => "is too long",
        _ if version.starts_with('-') => "begins with `-`",
        _ if version.contains(|c: char| c.is_control()) || version.trim() != version => {
            "is not one line without blanks at its ends"
        }
        _ => return Ok(()),
    };
    Err(format!("version `{}` {wrong}", version.escape_default()))
}

/// The program, if one is configured; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    program: Option<PathBuf>,
}

impl Slots {
    pub fn new(program: Option<PathBuf>) -> Self {
        Self { program }
    }

    /// Path of the program.
    ///
    /// # Errors
    /// When none is configured.
    pub fn program(&self) -> Result<&Path, SlotError> {
        self.program.as_deref().ok_or(SlotError::NoProgram)
    }

    /// Installed versions, the running one first.
    ///
    /// # Errors
    /// When the program fails, exceeds the time limit, or its output is malformed.
    pub async fn list(&self) -> Result<Vec<String>, SlotError> {
        let program = self.program()?.to_owned();
        match timeout(LIST_TIME, read_list(&program)).await {
            Ok(listed) => listed,
            Err(_) => Err(SlotError::Late { program }),
        }
    }

    /// Installs an image, so that the box can boot it.
    ///
    /// # Errors
    /// When the program cannot be run, fails, or finds a flaw in the image.
    pub async fn install(&self, file: &Path, version: &str) -> Result<(), SlotError> {
        const VERB: &str = "install";
        let program = self.program()?;
        let status = run(program, VERB, |command| command.arg(file).arg(version)).await?;
        let flaw = FLAWS.into_iter().find(|(code, _)| status.code() == Some(*code));
        match flaw {
            _ if status.success() => Ok(()),
            Some((_, flaw)) => Err(SlotError::Flawed { program: program.into(), flaw }),
            None => Err(failed(program, VERB, status)),
        }
    }

    /// Selects the installed version to boot.
    ///
    /// # Errors
    /// When the program cannot be run, or fails.
    pub async fn activate(&self, version: &str) -> Result<ActivationTime, SlotError> {
        const VERB: &str = "activate";
        let program = self.program()?;
        let status = run(program, VERB, |command| command.arg(version)).await?;
        match status.code() {
            Some(0) => Ok(ActivationTime::Now),
            Some(EXIT_AT_REBOOT) => Ok(ActivationTime::AfterReboot),
            _ => Err(failed(program, VERB, status)),
        }
    }
}

async fn run(
    program: &Path,
    verb: &'static str,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<ExitStatus, SlotError> {
    let mut command = Command::new(program);
    let ran = arguments(command.arg(verb)).stdin(Stdio::null()).kill_on_drop(true).status().await;
    ran.map_err(|source| SlotError::Run { program: program.into(), verb, source })
}

async fn read_list(program: &Path) -> Result<Vec<String>, SlotError> {
    const VERB: &str = "list";
    let failing = |source| SlotError::Run { program: program.into(), verb: VERB, source };
    let mut command = Command::new(program);
    command.arg(VERB).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failing)?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_LIST + 1).read_to_end(&mut text).await.map_err(failing)?;
    }
    let unreadable = |reason| SlotError::Unreadable { program: program.into(), reason };
    if text.len() as u64 > MAX_LIST {
        return Err(unreadable(format!("the output has more than {MAX_LIST} bytes")));
    }
    let status = child.wait().await.map_err(failing)?;
    if !status.success() {
        return Err(failed(program, VERB, status));
    }
    let text = String::from_utf8(text).map_err(|error| unreadable(error.to_string()))?;
    let versions: Vec<String> =
        text.lines().map(|line| line.trim().to_owned()).filter(|it| !it.is_empty()).collect();
    match versions.iter().find_map(|version| check_version(version).err()) {
        None if versions.is_empty() => Err(unreadable("the output is empty".to_owned())),
        None => Ok(versions),
        Some(wrong) => Err(unreadable(wrong)),
    }
}

fn failed(program: &Path, verb: &'static str, status: ExitStatus) -> SlotError {
    SlotError::Failed { program: program.into(), verb, status }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    /// A program with this shell script. Another process writes its file: a file that this process has open for
    /// writing, even in a child of a concurrent test, cannot be executed.
    pub(crate) fn program(folder: &Path, does: &str) -> Slots {
        let path = folder.join("program");
        let text = format!("#!/bin/sh\ncd {}\n{does}\n", folder.display());
        let mut write = std::process::Command::new("sh");
        write.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 700 \"$2\"", "sh"]);
        assert!(write.arg(text).arg(&path).status().unwrap().success());
        Slots::new(Some(path))
    }

    #[tokio::test]
    async fn exit_status_of_the_image_program_is_the_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let slots = program(folder.path(), "echo \"$@\" >>said; exit $(cat code 2>/dev/null)");
        let text = |error: SlotError| error.to_string();
        for (code, installed, activated) in [
            (0, "", Ok(ActivationTime::Now)),
            (100, "ended with exit status: 100", Ok(ActivationTime::AfterReboot)),
            (101, "is for another box", Err("status: 101")),
            (102, "cannot be read", Err("status: 102")),
            (103, "is damaged", Err("status: 103")),
            (104, "is too large", Err("status: 104")),
            (7, "ended with exit status: 7", Err("status: 7")),
        ] {
            fs::write(folder.path().join("code"), code.to_string()).unwrap();
            let outcome = slots.install("an image".as_ref(), "2 b").await.map_err(text);
            assert!(
                outcome.map_or_else(|outcome| outcome.ends_with(installed), |()| code == 0),
                "{code}"
            );
            match (slots.activate("2 b").await.map_err(text), activated) {
                (Ok(runs), Ok(want)) => assert_eq!(runs, want),
                (Err(outcome), Err(want)) => assert!(outcome.ends_with(want), "{outcome}"),
                other => panic!("{code}: {other:?}"),
            }
        }
        let outcome = fs::read_to_string(folder.path().join("said")).unwrap();
        assert_eq!(outcome.lines().next(), Some("install an image 2 b"));
        assert_eq!(outcome.lines().nth(1), Some("activate 2 b"));
        assert!(matches!(Slots::default().list().await, Err(SlotError::NoProgram)));
        let nowhere = Slots::new(Some("/nonexistent".into()));
        assert!(matches!(nowhere.activate("1").await, Err(SlotError::Run { .. })));
    }

    #[tokio::test]
    async fn a_list_of_versions_is_one_or_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (does, want) in [
            ("echo 1; echo ' 2.0 b '; echo", Ok(vec!["1", "2.0 b"])),
            ("true", Err("the output is empty")),
            ("echo 1; exit 3", Err("exit status: 3")),
            ("echo --force", Err("begins with `-`")),
            ("printf 'a\\001b\\n'", Err("is not one line")),
            ("printf '\\377\\n'", Err("utf-8")),
            ("head -c 70000 /dev/zero | tr '\\0' x", Err("more than 65536 bytes")),
            ("head -c 300 /dev/zero | tr '\\0' x", Err("is too long")),
        ] {
            let slots = program(folder.path(), does);
            match (slots.list().await, want) {
                (Ok(listed), Ok(want)) => assert_eq!(listed, want, "{does}"),
                (Err(error), Err(want)) => {
                    assert!(error.to_string().contains(want), "{does}: {error}");
                }
                other => panic!("{does}: {other:?}"),
            }
        }
    }
}
