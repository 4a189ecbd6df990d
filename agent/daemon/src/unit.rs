//! `holdfast unit`: drop-ins of the agent's unit, which the package ships and the operator switches on.
//!
//! A drop-in that is on is a link in the folder that systemd reads. Nothing else of systemd's configuration is touched.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::settings::UnitAction;

/// Drop-ins as the package ships them.
const SHIPPED: &str = "/usr/lib/holdfast/unit.d";
/// Drop-ins that systemd reads with the unit.
const LINKED: &str = "/etc/systemd/system/holdfast.service.d";
/// Folder that is there while systemd is the service manager (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// Program that has systemd read its files again.
const SYSTEMCTL: &str = "systemctl";
/// Extension of drop-ins; systemd reads no other files.
const EXTENSION: &str = "conf";
/// Permissions of the folder: everybody may see what is on.
const OPEN_FOLDER: u32 = 0o755;

/// Reason for which a drop-in is not switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    #[error(
        "systemd does not run here, so there is no unit to change: give the agent what it needs in the service manager of this box"
    )]
    NoSystemd,
    #[error("there is no drop-in `{name}` in `{}`; there are {known}", folder.display())]
    Unknown { name: String, folder: PathBuf, known: String },
    #[error("`{}` is a file of your own: remove it first", .0.display())]
    NotOurs(PathBuf),
    #[error("cannot {action} `{}`", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot have systemd read its files again")]
    Systemctl(#[source] io::Error),
    #[error("`systemctl daemon-reload` ended with {0}")]
    Reload(ExitStatus),
}

/// Folders and programs of a system; those of a test are others.
#[derive(Debug)]
pub(crate) struct UnitFiles {
    shipped: PathBuf,
    linked: PathBuf,
    booted: PathBuf,
    systemctl: PathBuf,
}

impl Default for UnitFiles {
    fn default() -> Self {
        Self {
            shipped: SHIPPED.into(),
            linked: LINKED.into(),
            booted: BOOTED.into(),
            systemctl: SYSTEMCTL.into(),
        }
    }
}

/// A drop-in of the package.
#[derive(Debug)]
struct DropIn {
    /// Name without its number, such as `dhcp` for `10-dhcp.conf`.
    name: String,
    shipped: PathBuf,
    linked: PathBuf,
    /// First comment of the file.
    purpose: String,
}

impl DropIn {
    fn is_on(&self) -> bool {
        self.linked.symlink_metadata().is_ok()
    }

    fn is_our_link(&self) -> bool {
        fs::read_link(&self.linked).is_ok_and(|target| target == self.shipped)
    }
}

impl UnitFiles {
    /// Switches a drop-in, or lists them; returns what to print.
    ///
    /// # Errors
    /// When systemd does not run, the drop-in is unknown, or a file is in its place.
    pub(crate) fn run(&self, action: &UnitAction) -> Result<String, UnitError> {
        match action {
            UnitAction::List => self.list(),
            UnitAction::Enable { name } => self.switch(name, true),
            UnitAction::Disable { name } => self.switch(name, false),
        }
    }

    fn list(&self) -> Result<String, UnitError> {
        let mut text = String::new();
        for drop_in in self.drop_ins()? {
            let position = if drop_in.is_on() { "on" } else { "off" };
            let _infallible =
                writeln!(text, "{:<12} {position:<4} {}", drop_in.name, drop_in.purpose);
        }
        Ok(text)
    }

    fn switch(&self, name: &str, on: bool) -> Result<String, UnitError> {
        if !self.booted.is_dir() {
            return Err(UnitError::NoSystemd);
        }
        let drop_ins = self.drop_ins()?;
        let Some(drop_in) = drop_ins.iter().find(|drop_in| drop_in.name == name) else {
            let known: Vec<&str> = drop_ins.iter().map(|drop_in| drop_in.name.as_str()).collect();
            return Err(UnitError::Unknown {
                name: name.to_owned(),
                folder: self.shipped.clone(),
                known: known.join(", "),
            });
        };
        let position = if on { "on" } else { "off" };
        if drop_in.is_on() && !drop_in.is_our_link() {
            return Err(UnitError::NotOurs(drop_in.linked.clone()));
        }
        if drop_in.is_on() == on {
            return Ok(format!("{name} is {position} already\n"));
        }
        if on {
            self.link(drop_in)?
        } else {
            self.unlink(drop_in)?
        }
        self.reload()?;
        Ok(format!("{name} is {position}: `systemctl restart holdfast` makes it take effect\n"))
    }

    fn link(&self, drop_in: &DropIn) -> Result<(), UnitError> {
        let failed = |action, path: &Path, source| {
            Err(UnitError::File { action, path: path.to_owned(), source })
        };
        if !self.linked.is_dir() {
            let made = fs::create_dir_all(&self.linked).and_then(|()| {
                fs::set_permissions(&self.linked, Permissions::from_mode(OPEN_FOLDER))
            });
            if let Err(error) = made {
                return failed("make the folder", &self.linked, error);
            }
        }
        match symlink(&drop_in.shipped, &drop_in.linked) {
            Ok(()) => Ok(()),
            Err(error) => failed("make the link", &drop_in.linked, error),
        }
    }

    fn unlink(&self, drop_in: &DropIn) -> Result<(), UnitError> {
        fs::remove_file(&drop_in.linked).map_err(|source| UnitError::File {
            action: "remove the link",
            path: drop_in.linked.clone(),
            source,
        })
    }

    fn reload(&self) -> Result<(), UnitError> {
        let mut systemctl = Command::new(&self.systemctl);
        let ended = systemctl.arg("daemon-reload").stdin(Stdio::null()).status();
        match ended.map_err(UnitError::Systemctl)? {
            status if status.success() => Ok(()),
            status => Err(UnitError::Reload(status)),
        }
    }

    /// The drop-ins of the package, by their numbers.
    fn drop_ins(&self) -> Result<Vec<DropIn>, UnitError> {
        let failed =
            |action, path: &Path, source| UnitError::File { action, path: path.to_owned(), source };
        let entries = fs::read_dir(&self.shipped)
            .map_err(|error| failed("list the drop-ins in", &self.shipped, error))?;
        let mut drop_ins = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed("list", &self.shipped, error))?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let name = stem.split_once('-').map_or(stem, |(_number, name)| name);
            let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, error))?;
            drop_ins.push(DropIn {
                name: name.to_owned(),
                linked: self.linked.join(path.file_name().unwrap_or_default()),
                purpose: purpose(&text).to_owned(),
                shipped: path,
            });
        }
        drop_ins.sort_by(|one, other| one.shipped.cmp(&other.shipped));
        Ok(drop_ins)
    }
}

/// The first sentence of the first comment of a drop-in.
fn purpose(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    line.split_once(". ").map_or(line, |(sentence, _)| sentence).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The drop-ins of this repository beside a systemd that counts its reloads in a file.
    fn system(folder: &TempDir) -> UnitFiles {
        let systemctl = folder.path().join("systemctl");
        let count = folder.path().join("reloads");
        fs::write(&systemctl, format!("#!/bin/sh\necho \"$@\" >>{}\n", count.display())).unwrap();
        fs::set_permissions(&systemctl, Permissions::from_mode(0o755)).unwrap();
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        UnitFiles {
            shipped: packaging.join("holdfast.service.d"),
            linked: folder.path().join("etc/holdfast.service.d"),
            booted: folder.path().to_owned(),
            systemctl,
        }
    }

    fn reloads(folder: &TempDir) -> usize {
        let text = fs::read_to_string(folder.path().join("reloads")).unwrap_or_default();
        assert!(text.lines().all(|line| line == "daemon-reload"), "{text}");
        text.lines().count()
    }

    #[test]
    fn a_drop_in_is_a_link_while_it_is_on() {
        let folder = TempDir::new().unwrap();
        let files = system(&folder);
        let name = || "dhcp".to_owned();
        let is_listed = |position: &str| {
            let list = files.run(&UnitAction::List).unwrap();
            let mut lines = list.lines().map(|line| line.split_whitespace().take(2));
            lines.any(|line| line.eq(["dhcp", position]))
        };
        assert!(is_listed("off"));
        let text = files.run(&UnitAction::Enable { name: name() }).unwrap();
        assert!(text.contains("systemctl restart holdfast"), "{text}");
        let link = files.linked.join("10-dhcp.conf");
        assert_eq!(fs::read_link(&link).unwrap(), files.shipped.join("10-dhcp.conf"));
        let mode = fs::metadata(&files.linked).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, OPEN_FOLDER);
        assert!(is_listed("on"));
        assert_eq!(reloads(&folder), 1);

        files.run(&UnitAction::Enable { name: name() }).unwrap();
        assert_eq!(reloads(&folder), 1, "nothing has changed");
        files.run(&UnitAction::Disable { name: name() }).unwrap();
        assert!(is_listed("off") && !link.exists());
        assert_eq!(reloads(&folder), 2);
    }

    #[test]
    fn what_cannot_be_switched_is_named() {
        let folder = TempDir::new().unwrap();
        let mut files = system(&folder);
        let unknown = UnitAction::Enable { name: "dchp".to_owned() };
        let error = files.run(&unknown).unwrap_err().to_string();
        assert!(error.contains("`dchp`") && error.contains("dhcp, system, credentials"), "{error}");

        fs::create_dir_all(&files.linked).unwrap();
        let own = files.linked.join("10-dhcp.conf");
        fs::write(&own, "").unwrap();
        for action in ["dhcp"].map(|name| UnitAction::Disable { name: name.to_owned() }) {
            let error = files.run(&action).unwrap_err();
            assert!(matches!(&error, UnitError::NotOurs(path) if *path == own), "{error}");
        }
        assert!(own.exists());

        files.booted = folder.path().join("no-systemd");
        let enable = UnitAction::Enable { name: "system".to_owned() };
        assert!(matches!(files.run(&enable), Err(UnitError::NoSystemd)));
        assert!(!files.linked.join("20-system.conf").exists());
        assert_eq!(reloads(&folder), 0);
    }
}
