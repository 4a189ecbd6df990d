//! The worked example of the service API: teams of users with keys, by the package `ssh-users`, from gnmic to sshd.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{no_plans, operate, packed, plans, set, update};
use holdfast_tests::sshd::{ACCOUNT, SshBox, SshCredential};
use serde_json::json;

use crate::reserved_items::switch;

const OPS: &str = "holdfast_native:/services/ssh-users[instance=ops]";
const DEVS: &str = "holdfast_native:/services/ssh-users[instance=devs]";
const EFFECTIVE: [&str; 7] =
    ["-e", "ascii", "get", "--type", "config", "--path", "cli:/show effective"];
/// Folder of the files with keys, as sshd is told of it.
const KEYS_FOLDER: &str = "etc/ssh/holdfast/authorized_keys";

/// A box with an SSH server, and an agent on it with the package.
async fn with_package(net: &Netns) -> (SshBox, AgentProcess) {
    let mut ssh = SshBox::new();
    let agent = AgentProcess::start_wrapped(net, &ssh.command(), "/".as_ref()).await;
    ssh.serve().await;
    let packages = packed("ssh-users");
    let archive = packages.path().join("ssh-users-1.0.0.hfs");
    let installed = operate(&agent, &["install", archive.to_str().unwrap()]).unwrap();
    assert!(
        installed.contains("writes openconfig:/system/aaa/authentication/users"),
        "{installed}"
    );
    (ssh, agent)
}

/// A key pair of this name: the public half.
fn key_pair(ssh: &SshBox, name: &str) -> String {
    ssh.make_key(&ssh.path(name), &format!("{name}@laptop"));
    fs::read_to_string(ssh.path(&format!("{name}.pub"))).unwrap().trim().to_owned()
}

fn accounts(ssh: &SshBox) -> Vec<String> {
    let files = fs::read_dir(ssh.path(KEYS_FOLDER)).into_iter().flatten().flatten();
    let mut names: Vec<_> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

// proves sv.A32, sv.A34, sv.A37
#[tokio::test]
async fn a_user_of_two_teams_logs_in_until_the_last_one_lets_go() {
    let net = Netns::enter();
    let (ssh, mut agent) = with_package(&net).await;
    let [alice, eric, kim] = [ACCOUNT, "eric", "kim"].map(|name| key_pair(&ssh, name));
    let lets_in = || ssh.accepts(SshCredential::Key(&ssh.path(ACCOUNT)));
    switch(&agent, &["gnsi", "off"]);
    let gnmic = Gnmic::for_admin(&agent);
    let ops = json!({"username": [
        {"name": "eric", "ssh-key": eric, "role": "admin"}, {"name": ACCOUNT, "ssh-key": alice}]});
    // The same key with another comment is the same key.
    let bare = alice.rsplit_once(' ').unwrap().0;
    let devs =
        json!({"username": [{"name": ACCOUNT, "ssh-key": bare}, {"name": "kim", "ssh-key": kim}]});
    assert!(!lets_in());
    update(&gnmic, OPS, &ops.to_string()).await;
    update(&gnmic, DEVS, &devs.to_string()).await;
    eventually("the key lets alice in", lets_in).await;
    assert_eq!(accounts(&ssh), [ACCOUNT, "eric", "kim"]);
    let file = fs::metadata(ssh.path(&format!("{KEYS_FOLDER}/{ACCOUNT}"))).unwrap();
    // sshd reads it as the user who logs in.
    assert_eq!((file.permissions().mode() & 0o7777, file.uid(), file.gid()), (0o644, 0, 0));
    assert_eq!(ssh.read(&format!("{KEYS_FOLDER}/{ACCOUNT}")).trim(), bare);
    let effective = gnmic.run(&EFFECTIVE).await;
    for tag in ["ops", "devs"] {
        let claim = format!("ssh-users[instance='{tag}'] (user {ACCOUNT}, made)");
        assert!(effective.contains(&claim), "{effective}");
    }
    // The parameters have keys, as all configuration of clients that is shown; the users have none.
    let users = effective.split("ssh-users devs # client").next().unwrap();
    assert!(!users.contains("ssh-ed25519"), "{users}");

    // Teams that disagree are refused, all that they asked for with them.
    let other = json!({"username": [{"name": ACCOUNT, "ssh-key": kim}, {"name": "max"}]});
    let refused = gnmic.refused(&set(DEVS, &other.to_string())).await;
    for part in ["InvalidArgument", "ops'] (user alice, made)", "devs'] (user alice, made)"] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    assert!(lets_in() && !gnmic.run(&EFFECTIVE).await.contains("max"));

    // Switched on, gNSI's own keys count alone; the teams stay, and their keys are back with its end.
    switch(&agent, &["gnsi", "on"]);
    eventually("the key does not count", || !lets_in()).await;
    assert_eq!(accounts(&ssh), [""; 0]);
    assert!(plans(&gnmic).await.contains("instance='ops'"));
    agent.restart().await;
    assert!(!lets_in());
    switch(&agent, &["gnsi", "off"]);
    eventually("the key counts again", lets_in).await;
    agent.kill();
    agent.restart().await;
    assert!(lets_in());

    let gnmic = Gnmic::for_admin(&agent);
    gnmic.run(&["set", "--delete", OPS]).await;
    assert_eq!(accounts(&ssh), [ACCOUNT, "kim"]);
    assert!(lets_in(), "the other team still holds her");
    gnmic.run(&["set", "--delete", DEVS]).await;
    eventually("the key is gone", || !lets_in()).await;
    assert_eq!(accounts(&ssh), [""; 0]);
    no_plans(&gnmic).await;
}

// proves sv.J1
#[tokio::test]
async fn a_key_is_refused_with_its_owner_while_gnsi_is_on() {
    let net = Netns::enter();
    let (ssh, agent) = with_package(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let users = json!({"username": [{"name": "eric", "role": "admin"}, {"name": ACCOUNT}]});
    update(&gnmic, OPS, &users.to_string()).await;
    let effective = gnmic.run(&EFFECTIVE).await;
    assert!(effective.contains("user eric") && effective.contains("user alice"), "{effective}");
    let with_key = json!({"username": [{"name": ACCOUNT, "ssh-key": key_pair(&ssh, ACCOUNT)}]});
    let refused = gnmic.refused(&set(OPS, &with_key.to_string())).await;
    for part in [
        "PermissionDenied",
        "users/user[username=alice]/config/ssh-key",
        "reserved for gnsi: keys are set by gNSI credentialz",
        "ssh-users[instance='ops'] (user alice, made)",
    ] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    assert_eq!(accounts(&ssh), [""; 0]);
    assert!(!ssh.accepts(SshCredential::Key(&ssh.path(ACCOUNT))));
}
