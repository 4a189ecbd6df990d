//! Passwords and keys that clients give users while gNSI is off: case 12 of UNION.md, on the wire, on disk and over SSH.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use holdfast_proto::gnmi;
use holdfast_proto::gnmi_ext::{self, commit, extension::Ext};
use holdfast_proto::gnsi::acctz::RecordRequest;
use holdfast_proto::gnsi::acctz::acctz_stream_client::AcctzStreamClient;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path, update};
use holdfast_tests::netns::Netns;
use holdfast_tests::sshd::{ACCOUNT, OWN_PASSWORD, SshBox, SshCredential};
use serde_json::{Value, json};
use tonic::Code;

use crate::credentialz::{CredentialRotation, client, open_account_rotation, plain};
use crate::reserved_items::switch;

/// How passwords of these tests begin, so that they can be looked for.
const PASSWORD: &str = "hunter2 of ada";
const NEXT: &str = "hunter2 of tomorrow";

fn user(name: &str) -> String {
    format!("/system/aaa/authentication/users/user[username={name}]")
}

fn config(name: &str, password: Option<&str>) -> Value {
    let mut config = json!({"username": name, "role": "openconfig-aaa-types:SYSTEM_ROLE_ADMIN"});
    if let Some(password) = password {
        config["password"] = json!(password);
    }
    json!({"username": name, "config": config})
}

fn root(name: &str, password: Option<&str>) -> Value {
    let users = json!({"user": [config(name, password)]});
    json!({"openconfig-system:system": {"aaa": {"authentication": {"users": users}}}})
}

async fn can_log_in(agent: &AgentProcess, name: &str, password: &str) -> bool {
    let credentials = Credentials::new(name, password).unwrap();
    match GnmiClient::over(agent.channel().await, credentials).capabilities().await {
        Ok(_) => true,
        Err(refusal) => {
            assert_eq!(refusal.code(), Code::Unauthenticated, "{refusal}");
            false
        }
    }
}

async fn union(admin: &GnmiClient, document: Value) {
    let union_replace = vec![update("/", document)];
    admin.set(gnmi::SetRequest { union_replace, ..Default::default() }).await.unwrap();
}

async fn get_config(admin: &GnmiClient) -> Value {
    admin.read_as("/", gnmi::get_request::DataType::Config).await.unwrap()
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&path, found),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

fn contains(file: &Path, text: &str) -> bool {
    fs::read(file).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
}

/// No file has what clients sent, and only the database, of mode 0600, has a hash of it.
fn check_files(agent: &AgentProcess) {
    let mut files = Vec::new();
    files_below(&agent.state_dir(), &mut files);
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        assert!(!contains(&file, "hunter2"), "{} has a password in clear", file.display());
        if contains(&file, "$6$") {
            assert!(file.ends_with("holdfast.redb"), "{} has a hash", file.display());
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    assert!(!agent.log().contains("hunter2") && !agent.log().contains("$6$"));
}

// proves 3.12, 3.15, 3.18
#[tokio::test]
async fn a_password_of_a_client_logs_in_while_gnsi_is_off() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    let admin = agent.gnmi().await;
    let refusal = admin.update("/", root("ada", Some(PASSWORD))).await.unwrap_err();
    assert_eq!(refusal.code(), Code::PermissionDenied, "{refusal}");
    assert!(!refusal.message().contains("hunter2"), "{refusal}");

    switch(&agent, &["gnsi", "off"]);
    admin.update("/", root("ada", Some(PASSWORD))).await.unwrap();
    assert!(can_log_in(&agent, "ada", PASSWORD).await);
    let tree = get_config(&admin).await;
    assert!(!tree.to_string().contains("password") && tree.to_string().contains("ada"), "{tree}");
    admin.replace("/", tree.clone()).await.unwrap();
    assert!(can_log_in(&agent, "ada", PASSWORD).await, "sent back");
    union(&admin, root("ada", None)).await;
    assert!(can_log_in(&agent, "ada", PASSWORD).await, "covered");
    agent.restart().await;
    assert!(can_log_in(&agent, "ada", PASSWORD).await, "after a restart");
    let admin = agent.gnmi().await;
    let all = admin.read("/").await.unwrap().to_string();
    assert!(!all.contains("hunter2") && !all.contains("$6$"));
    check_files(&agent);

    // It takes precedence over the one that was set at the box, and credentialz alone counts while gNSI is on.
    let set = agent.user(&["set", "ada", "--role", "admin"], "set at the box");
    assert!(set.status.success(), "{set:?}");
    assert!(
        can_log_in(&agent, "ada", PASSWORD).await
            && !can_log_in(&agent, "ada", "set at the box").await
    );
    switch(&agent, &["gnsi", "on"]);
    assert!(
        !can_log_in(&agent, "ada", PASSWORD).await
            && can_log_in(&agent, "ada", "set at the box").await
    );
    let error = admin.delete(&format!("{}/config/password", user("ada"))).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    agent.restart().await;
    assert!(!can_log_in(&agent, "ada", PASSWORD).await);
    switch(&agent, &["gnsi", "off"]);
    assert!(can_log_in(&agent, "ada", PASSWORD).await, "the client's again");

    let admin = agent.gnmi().await;
    let password = format!("{}/config/password", user("ada"));
    admin.update(&password, NEXT).await.unwrap();
    assert!(can_log_in(&agent, "ada", NEXT).await && !can_log_in(&agent, "ada", PASSWORD).await);
    admin.delete(&password).await.unwrap();
    assert!(
        !can_log_in(&agent, "ada", NEXT).await && can_log_in(&agent, "ada", "set at the box").await
    );
    admin.update(&password, NEXT).await.unwrap();
    union(&admin, json!({"openconfig-system:system": {"config": {"hostname": "x"}}})).await;
    assert!(!can_log_in(&agent, "ada", NEXT).await, "without the user");
    admin.update("/", root("ada", None)).await.unwrap();
    assert!(!can_log_in(&agent, "ada", NEXT).await, "a user of the same name is another one");
    check_files(&agent);
}

fn commit_extension(action: commit::Action) -> Vec<gnmi_ext::Extension> {
    let commit = gnmi_ext::Commit { id: "one".to_owned(), action: Some(action) };
    vec![gnmi_ext::Extension { ext: Some(Ext::Commit(commit)) }]
}

#[tokio::test]
async fn unconfirmed_commit_restores_the_old_password() {
    let net = Netns::enter();
    let mut agent = AgentProcess::start(&net).await;
    switch(&agent, &["gnsi", "off"]);
    let admin = agent.gnmi().await;
    admin.update("/", root("ada", Some(PASSWORD))).await.unwrap();
    let begin = || {
        let rollback_duration = Some(prost_types::Duration { seconds: 600, nanos: 0 });
        commit_extension(commit::Action::Commit(gnmi_ext::CommitRequest { rollback_duration }))
    };
    let changes = [
        gnmi::SetRequest {
            update: vec![update(&format!("{}/config/password", user("ada")), NEXT)],
            ..Default::default()
        },
        gnmi::SetRequest { delete: vec![parse_path(&user("ada"))], ..Default::default() },
    ];
    for (request, by_restart) in changes.iter().flat_map(|it| [(it, false), (it, true)]) {
        let admin = agent.gnmi().await;
        admin.set(gnmi::SetRequest { extension: begin(), ..request.clone() }).await.unwrap();
        assert!(!can_log_in(&agent, "ada", PASSWORD).await, "{request:?}");
        if by_restart {
            agent.restart().await;
        } else {
            let cancel = commit::Action::Cancel(gnmi_ext::CommitCancel {});
            let extension = commit_extension(cancel);
            admin.set(gnmi::SetRequest { extension, ..Default::default() }).await.unwrap();
        }
        assert!(can_log_in(&agent, "ada", PASSWORD).await, "by a restart: {by_restart}");
        assert!(!can_log_in(&agent, "ada", NEXT).await);
    }
    check_files(&agent);
}

/// No record of a request tells a secret, in whatever form it was sent.
// proves 5.101
#[tokio::test]
async fn accounting_and_log_contain_no_passwords() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    switch(&agent, &["gnsi", "off"]);
    let admin = agent.gnmi().await;
    let password = format!("{}/config/password", user("ada"));
    let text = |path: &str| gnmi::Update {
        path: Some(parse_path(path)),
        val: Some(gnmi::TypedValue {
            value: Some(gnmi::typed_value::Value::StringVal(PASSWORD.to_owned())),
        }),
        ..Default::default()
    };
    admin.update("/", root("ada", Some(PASSWORD))).await.unwrap();
    admin.update(&password, PASSWORD).await.unwrap();
    let leaf = gnmi::SetRequest { replace: vec![text(&password)], ..Default::default() };
    admin.set(leaf).await.unwrap();
    union(&admin, root("ada", Some(PASSWORD))).await;
    // Refused: no hash, no key, both forms, CLI text.
    let refused = |refusal: tonic::Status| {
        assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
        assert!(!format!("{refusal:?}").contains("hunter2"), "{refusal:?}");
    };
    refused(
        admin
            .update(&format!("{}/config/password-hashed", user("ada")), PASSWORD)
            .await
            .unwrap_err(),
    );
    refused(admin.update(&format!("{}/config/ssh-key", user("ada")), PASSWORD).await.unwrap_err());
    let mut both = config("ada", Some(PASSWORD));
    both["config"]["password-hashed"] = json!("$6$hunter2");
    refused(admin.update(&user("ada"), both).await.unwrap_err());
    let line = gnmi::Update {
        path: Some(gnmi::Path { origin: "holdfast_cli".into(), ..Default::default() }),
        val: Some(gnmi::TypedValue {
            value: Some(gnmi::typed_value::Value::AsciiVal(format!(
                "system user ada password {PASSWORD}"
            ))),
        }),
        ..Default::default()
    };
    admin
        .set(gnmi::SetRequest { update: vec![line], ..Default::default() })
        .await
        .expect_err("the text has no place for it");
    // Its service answers while gNSI is on; what was done before is in the history.
    switch(&agent, &["gnsi", "on"]);
    let mut records =
        AcctzStreamClient::with_interceptor(agent.channel().await, agent.credentials());
    let mut records =
        records.record_subscribe(RecordRequest { timestamp: None }).await.unwrap().into_inner();
    let mut sets = 0;
    loop {
        let record = format!("{:?}", records.message().await.unwrap().unwrap());
        assert!(!record.contains("hunter2"), "{record}");
        // As bytes of a message.
        assert!(!record.contains("104, 117, 110, 116, 101, 114, 50"), "{record}");
        sets += usize::from(record.contains("gNMI/Set"));
        if record.contains("RecordSubscribe") {
            break;
        }
    }
    assert_eq!(sets, 8, "every request is recorded");
    for what in ["config", "state", "values", "transactions"] {
        let text = agent.show(what);
        assert!(!text.contains("hunter2") && !text.contains("$6$"), "{text}");
    }
    check_files(&agent);
}

/// SSH and the console follow: the client's before credentialz', and what the box had comes back.
#[tokio::test]
async fn ssh_follows_what_clients_give_while_gnsi_is_off() {
    let net = Netns::enter();
    let mut ssh = SshBox::new();
    let mut agent = AgentProcess::start_wrapped(&net, &ssh.command(), "/".as_ref()).await;
    ssh.serve().await;
    let key = ssh.path("key");
    ssh.make_key(&key, "test");
    let mut rotation = open_account_rotation(&mut client(&agent).await).await;
    rotation.request(plain("1", "of credentialz")).await;
    rotation.finalize().await;
    assert!(ssh.accepts(SshCredential::Password("of credentialz")));

    switch(&agent, &["gnsi", "off"]);
    assert!(ssh.accepts(SshCredential::Password("of credentialz")), "there is no other");
    let admin = agent.gnmi().await;
    let mut user_config = config(ACCOUNT, Some(PASSWORD));
    user_config["config"]["ssh-key"] =
        json!(fs::read_to_string(key.with_extension("pub")).unwrap().trim());
    admin.update(&user(ACCOUNT), user_config).await.unwrap();
    let lets_in = |proof| {
        let ssh = &ssh;
        eventually("the client gets in", move || ssh.accepts(proof))
    };
    lets_in(SshCredential::Password(PASSWORD)).await;
    lets_in(SshCredential::Key(&key)).await;
    assert!(!ssh.accepts(SshCredential::Password("of credentialz")));
    agent.restart().await;
    assert!(
        ssh.accepts(SshCredential::Password(PASSWORD)) && ssh.accepts(SshCredential::Key(&key))
    );

    switch(&agent, &["gnsi", "on"]);
    lets_in(SshCredential::Password("of credentialz")).await;
    assert!(
        !ssh.accepts(SshCredential::Password(PASSWORD)) && !ssh.accepts(SshCredential::Key(&key))
    );
    switch(&agent, &["gnsi", "off"]);
    lets_in(SshCredential::Password(PASSWORD)).await;
    let admin = agent.gnmi().await;
    admin.delete(&user(ACCOUNT)).await.unwrap();
    lets_in(SshCredential::Password("of credentialz")).await;
    assert!(
        !ssh.accepts(SshCredential::Password(PASSWORD)) && !ssh.accepts(SshCredential::Key(&key))
    );
    assert!(!ssh.accepts(SshCredential::Password(OWN_PASSWORD)));
}
