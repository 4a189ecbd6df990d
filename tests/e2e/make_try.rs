//! `make try`: output and cleaning up.

use std::process::Stdio;
use std::time::Duration;

use holdfast_tests::eventually::WAIT_LIMIT;
use holdfast_tests::netns::Netns;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn make_try_shows_the_kernel_and_cleans_up() {
    let _net = Netns::enter(); // in which the port is free
    let mut child = Command::new(env!("CARGO_BIN_EXE_try"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    while !text.contains("Ctrl-C") {
        let line = timeout(WAIT_LIMIT, lines.next_line()).await;
        let Ok(Ok(Some(line))) = line else { panic!("{line:?} after:\n{text}") };
        text = text + &line + "\n";
    }

    let (before, after) = text.split_once("The kernel after").unwrap();
    for part in
        ["192.0.2.1/26", "192.0.2.65/26", "default via 192.0.2.2", "blackhole 198.51.100.0/24"]
    {
        assert!(after.contains(part) && !before.contains(part), "`{part}`:\n{text}");
    }
    let state =
        after.split("--state-dir ").nth(1).and_then(|rest| rest.lines().next()).unwrap().to_owned();
    assert!(std::path::Path::new(&state).is_dir(), "{state}");

    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    let status = timeout(Duration::from_secs(5), child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(!std::path::Path::new(&state).exists(), "{state}");
}
