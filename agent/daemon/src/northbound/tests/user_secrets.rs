//! Passwords and keys that clients give users, through a real channel, over the core and the simulated box.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::Role;
use holdfast_config::layer::Namespace;
use holdfast_core::{CredentialChange, Datastore, Intent};
use holdfast_platform::kinds::{self, credential};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_platform::values;
use holdfast_proto::gnmi;
use holdfast_proto::gnsi::credentialz;
use holdfast_proto::gnsi::credentialz::credentialz_client::CredentialzClient;
use holdfast_proto::gnsi::credentialz::rotate_account_credentials_request::Request;
use holdfast_security::credentialz::{AuthorizedKey, Freshness, PublicKey, Versioned};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use super::extensions::extensions;
use super::harness::*;
use crate::agent_tests::Agent;
use crate::users::Password;

const USER: &str = "/system/aaa/authentication/users/user[username=alice]";
const PASSWORD: &str =
    "update /system/aaa/authentication/users/user[username=alice]/config/password";
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICNStoYBNp4MC97H3OBeFhjafRjd9i9hRK/6WttN4Lh1";

/// A box with an account and an SSH server, an agent on it, and a client; gNSI is off.
struct Rig {
    kernel: SimulatedKernel,
    folder: TempDir,
    agent: Agent,
    client: Client,
}

impl Rig {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = TempDir::new().unwrap();
        kernel.install("usr/sbin/sshd");
        kernel.add_account("alice", "!");
        let rig = Self::on(kernel, folder).await;
        rig.switch(false).await;
        rig
    }

    async fn on(kernel: SimulatedKernel, folder: TempDir) -> Self {
        let agent = Agent::start(&kernel, folder.path()).await;
        let client = client(&agent).await;
        Self { kernel, folder, agent, client }
    }

    async fn restart(self) -> Self {
        let Self { kernel, folder, agent, .. } = self;
        agent.stop().await;
        Self::on(kernel, folder).await
    }

    async fn switch(&self, on: bool) {
        let switch = Intent::Switch { service: Namespace::Gnsi, on };
        self.agent.handle.change(&caller("operator", Role::Admin), switch).await.unwrap();
    }

    async fn set(&mut self, operations: &str, extension: &str) -> Result<(), Status> {
        let mut request: gnmi::SetRequest = set_request(operations);
        request.extension = extensions(extension);
        self.client.set(request).await.map(drop)
    }

    async fn apply(&mut self, operations: &str) {
        self.set(operations, "").await.unwrap_or_else(|refusal| panic!("{operations}: {refusal}"));
    }

    async fn is_in(&self, password: &str) -> bool {
        let password = Password::new(password).unwrap();
        self.agent.gnsi.logins.users().has_password("alice", password).await
    }

    /// Credentials on the box.
    fn credentials(&self) -> BTreeSet<String> {
        let all = self.kernel.contents().into_iter();
        all.filter(|it| it.contains("alice") || it.contains("SshServer")).collect()
    }
}

fn user_request(password: &str) -> String {
    format!(r#"update {USER}/config {{"role":"admin","password":"{password}","ssh-key":"{KEY}"}}"#)
}

#[tokio::test]
async fn a_box_has_what_clients_gave_while_gnsi_is_off() {
    let mut rig = Rig::new().await;
    let fresh = rig.credentials();
    let access = rig.agent.gnsi.access().number();
    rig.apply(&user_request("one")).await;
    assert!(rig.is_in("one").await && !rig.is_in("two").await);
    let from_client = rig.credentials();
    assert!(from_client != fresh && from_client.len() > fresh.len(), "{from_client:?}");
    tokio::task::yield_now().await;
    assert_ne!(rig.agent.gnsi.access().number(), access, "open calls ask again");

    // The same again asks nothing of the box.
    let requests = rig.kernel.requests();
    rig.apply(&user_request("one")).await;
    assert_eq!((rig.kernel.requests(), rig.credentials()), (requests, from_client.clone()));
    // So does a dry run, whatever it says.
    rig.set(&format!(r#"{PASSWORD} "two""#), "dry-run").await.unwrap();
    assert!(rig.is_in("one").await && !rig.is_in("two").await);
    assert_eq!((rig.kernel.requests(), rig.credentials()), (requests, from_client.clone()));

    rig.switch(true).await;
    assert!(!rig.is_in("one").await);
    assert_eq!(rig.credentials(), fresh, "what the box had before is back");
    let mut rig = rig.restart().await;
    assert_eq!(rig.credentials(), fresh);
    rig.switch(false).await;
    assert!(rig.is_in("one").await);
    assert_eq!(rig.credentials(), from_client);
    let requests = rig.kernel.requests();
    rig = rig.restart().await;
    assert!(rig.is_in("one").await);
    assert_eq!(
        (rig.kernel.requests(), rig.credentials()),
        (requests, from_client),
        "found in place"
    );
    rig.apply(&format!("delete {USER}")).await;
    assert!(!rig.is_in("one").await);
    assert_eq!(rig.credentials(), fresh);
}

#[tokio::test]
async fn a_change_that_fails_leaves_the_old_password() {
    let mut rig = Rig::new().await;
    rig.apply(&user_request("one")).await;
    let before = rig.credentials();
    rig.kernel.fault_at(1, Fault::Fail(nix::errno::Errno::EIO as i32));
    let refusal = rig.set(&format!(r#"{PASSWORD} "two""#), "").await.unwrap_err();
    assert_eq!(refusal.code(), Code::Internal, "{refusal}");
    assert!(rig.is_in("one").await && !rig.is_in("two").await);
    assert_eq!(rig.credentials(), before);
    let rig = rig.restart().await;
    assert!(rig.is_in("one").await);
    assert_eq!(rig.credentials(), before);
}

#[tokio::test]
async fn a_commit_that_is_cancelled_gives_the_box_the_old_password_again() {
    let mut rig = Rig::new().await;
    rig.apply(&user_request("one")).await;
    let before = rig.credentials();
    for request in [format!(r#"{PASSWORD} "two""#), format!("delete {USER}")] {
        rig.set(&request, "begin a 60").await.unwrap();
        assert_ne!(rig.credentials(), before);
        rig.set("", "cancel a").await.unwrap();
        assert!(rig.is_in("one").await && !rig.is_in("two").await);
        assert_eq!(rig.credentials(), before);
    }
    // A restart takes it back, too.
    rig.set(&format!(r#"{PASSWORD} "two""#), "begin a 60").await.unwrap();
    assert!(rig.is_in("two").await);
    let rig = rig.restart().await;
    assert!(rig.is_in("one").await);
    assert_eq!(rig.credentials(), before);
}

/// A rotation in progress when gNSI is switched off is rolled back, and the passwords that clients set after it stay.
#[tokio::test]
async fn a_rotation_that_is_taken_back_leaves_what_clients_gave() {
    let mut rig = Rig::new().await;
    rig.switch(true).await;
    let mut client = CredentialzClient::new(channel(&rig.agent, Some(Role::Admin)).await);
    let (requests, stream) = mpsc::channel(1);
    let answers = client.rotate_account_credentials(ReceiverStream::new(stream)).await.unwrap();
    let mut answers = answers.into_inner();
    let account = credentialz::password_request::Account {
        account: "alice".to_owned(),
        password: Some(credentialz::password_request::Password {
            value: Some(credentialz::password_request::password::Value::Plaintext(
                "tried".to_owned(),
            )),
        }),
        version: "1".to_owned(),
        created_on: 1,
    };
    let request = Request::Password(credentialz::PasswordRequest { accounts: vec![account] });
    let request = credentialz::RotateAccountCredentialsRequest {
        request: Some(request),
        force_overwrite: false,
    };
    requests.send(request).await.unwrap();
    answers.message().await.unwrap().unwrap();
    let tried = rig.credentials();

    rig.switch(false).await;
    rig.apply(&user_request("one")).await;
    let from_client = rig.credentials();
    assert_ne!(from_client, tried);
    drop(requests);
    while let Ok(Some(_)) = answers.message().await {}
    while rig.agent.gnsi.logins.rotator().take().is_none() {
        tokio::task::yield_now().await;
    }
    assert!(rig.is_in("one").await && !rig.is_in("tried").await);
    assert_eq!(rig.credentials(), from_client);
    // Underneath is what the box had, and no longer what was tried.
    rig.apply(&format!("delete {USER}")).await;
    let deleted = rig.credentials();
    assert!(deleted != from_client && deleted != tried, "{deleted:?}");
}

#[tokio::test]
async fn a_factory_reset_leaves_no_secret() {
    let mut rig = Rig::new().await;
    let fresh = rig.credentials();
    rig.apply(&user_request("one")).await;
    let reset = Intent::FactoryReset { retain_certificates: false };
    rig.agent.handle.change(&caller("operator", Role::Admin), reset).await.unwrap();
    assert_eq!(rig.credentials(), fresh);
    let rig = rig.restart().await;
    rig.switch(false).await;
    assert!(!rig.is_in("one").await);
    assert_eq!(rig.credentials(), fresh);
    assert!(rig.agent.handle.configuration().layers().secrets.is_empty());
}

/// Secrets for transports belong to the change that is carried out, whatever others ask for meanwhile.
#[tokio::test]
async fn a_request_that_waits_takes_no_secret_away_from_the_one_before() {
    let mut rig = Rig::new().await;
    rig.kernel.hang_at(kinds::PASSWORD);
    let mut client = rig.client.clone();
    let request = set_request(&user_request("one"));
    let first = tokio::spawn(async move { client.set(request).await.map(drop) });
    while rig.kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    rig.set(&user_request("two"), "dry-run").await.unwrap();
    let mut client = rig.client.clone();
    let request = set_request(&user_request("three"));
    let third = tokio::spawn(async move { client.set(request).await.map(drop) });
    // Another object has nothing to do with them.
    rig.apply(r#"update /interfaces/interface[name=eth0]/config/description "text""#).await;
    assert!(!first.is_finished() && !third.is_finished());
    third.abort();
    rig.kernel.resume();
    first.await.unwrap().unwrap();
    assert!(rig.is_in("one").await);
    let observed = rig.kernel.observed(&credential::password_key("alice")).unwrap();
    let written: &values::Password = observed.as_any().downcast_ref().unwrap();
    assert!(rig.agent.gnsi.logins.vault().find(&written.digest).is_some());
}

/// A rotation of gNSI that the box does not answer holds up clients with secrets, and nobody else. Their secrets come
/// on top of it: the SSH server has one file for all.
#[tokio::test]
async fn secrets_of_clients_wait_for_credentials_that_hang() {
    let mut rig = Rig::new().await;
    rig.kernel.add_account("bob", "!");
    rig.apply(&format!(r#"update {USER}/config {{"role":"admin","password":"one"}}"#)).await;
    let from = rig.agent.gnsi.logins.last();
    let mut to = (*from).clone();
    let key = PublicKey::parse(KEY.as_bytes(), None).unwrap();
    let key = AuthorizedKey { key, options: Vec::new(), description: String::new() };
    let keys = Versioned { stamp: Freshness::default(), value: vec![key] };
    to.accounts.entry("bob".into()).or_default().keys = Some(keys);
    let to = Arc::new(to);
    rig.agent.gnsi.logins.retain_secrets(&[&from, &to]);
    rig.kernel.hang_at(kinds::SSH_SERVER);
    let change = CredentialChange { from, to, is_restored: false };
    let core = rig.agent.handle.clone();
    let rotated = tokio::spawn(async move {
        core.change(&caller("operator", Role::Admin), Intent::Credentials(change)).await
    });
    while rig.kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    let mut client = rig.client.clone();
    let request = set_request(&user_request("one"));
    let second = tokio::spawn(async move { client.set(request).await.map(drop) });
    rig.apply(r#"update /interfaces/interface[name=eth0]/config/description "text""#).await;
    assert!(!rotated.is_finished() && !second.is_finished());
    rig.kernel.resume();
    rotated.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    let observed = rig.kernel.observed(&credential::server_key()).unwrap();
    let server: &values::SshServer = observed.as_any().downcast_ref().unwrap();
    for user in ["alice", "bob"] {
        assert!(server.text.contains(&format!("Match User {user}")), "{}", server.text);
    }
}
