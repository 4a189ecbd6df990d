//! `tests/scripts/setup.sh` beside another apt: it waits for every lock, and ends on any other error.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Commands of the script that are those of the machine.
const OF_THE_MACHINE: [&str; 1] = ["date"];

/// Runs the script as root on a machine without any package, with an `apt-get` that says this the first two times.
fn setup(refusal: &str) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    let command = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for name in OF_THE_MACHINE {
        let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
        let found = found.iter().find(|path| path.exists()).expect("coreutils are installed");
        symlink(found, folder.path().join(name)).unwrap();
    }
    command("id", "echo 0");
    command("cargo", "exit 0");
    command("sleep", "echo \"sleep $1\" >> \"$LOG\"");
    command(
        "apt-get",
        "echo \"$*\" >> \"$LOG\"\n\
         [ -e \"$LOG.2\" ] && exit 0\n\
         [ -e \"$LOG.1\" ] && : > \"$LOG.2\"\n\
         : > \"$LOG.1\"\n\
         echo \"$REFUSAL\" >&2\n\
         exit 100",
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/setup.sh");
    let log = folder.path().join("log");
    let output = Command::new("/bin/sh")
        .args([script.as_os_str(), "build".as_ref()])
        .env_clear()
        .env("PATH", folder.path())
        .env("LOG", &log)
        .env("REFUSAL", refusal)
        .output()
        .unwrap();
    (output, fs::read_to_string(log).unwrap())
}

#[test]
fn another_apt_is_waited_for() {
    let (output, log) = setup(
        "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n\
         E: Unable to lock directory /var/lib/apt/lists/",
    );
    assert!(output.status.success(), "{output:?}");
    let update = "-o DPkg::Lock::Timeout=600 update -qq";
    let calls: Vec<&str> = log.lines().collect();
    assert_eq!(calls[..5], [update, "sleep 5", update, "sleep 5", update]);
    assert!(calls[5].starts_with("-o DPkg::Lock::Timeout=600 install -y -qq"), "{calls:?}");
    assert!(calls[5].contains("build-essential"), "{calls:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("another apt is at work"), "{told}");
}

#[test]
fn another_error_of_apt_ends_it() {
    let (output, log) = setup("E: Unable to locate package build-essential");
    assert!(!output.status.success());
    assert_eq!(log, "-o DPkg::Lock::Timeout=600 update -qq\n");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("Unable to locate package"), "{errors}");
}
