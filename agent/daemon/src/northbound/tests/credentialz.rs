//! gNSI credentialz through a real channel, over the core and the simulated box.

use holdfast_base::Role;
use holdfast_config::layer::Namespace;
use holdfast_core::{Datastore, Intent, Statuses};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_proto::gnsi::credentialz::credentialz_client::CredentialzClient;
use holdfast_proto::gnsi::credentialz::{
    self, option, password_request, rotate_account_credentials_request,
    rotate_host_parameters_request,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::harness::*;
use crate::agent_tests::Agent;
use crate::users::Password;

const SSHD: &str = "usr/sbin/sshd";
const KEY: &[u8] =
    b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICNStoYBNp4MC97H3OBeFhjafRjd9i9hRK/6WttN4Lh1 test";
const MD5: &str = "$1$saltsalt$NuzA7WTAelpl95xgBGWN60";

/// A box with an account, and files as given, such as an SSH server.
struct Rig {
    kernel: SimulatedKernel,
    folder: TempDir,
    agent: Agent,
    client: CredentialzClient<Channel>,
}

/// One rotation; dropping it breaks the stream.
struct Stream<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

impl<Q, A> Stream<Q, A> {
    async fn exchange(&mut self, request: Q) -> Result<Option<A>, Status> {
        // If the stream has ended, its status says why.
        let _ = self.requests.send(request).await;
        self.answers.message().await
    }
}

type Accounts = Stream<
    credentialz::RotateAccountCredentialsRequest,
    credentialz::RotateAccountCredentialsResponse,
>;

impl Rig {
    async fn new(programs: &[&str]) -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = TempDir::new().unwrap();
        programs.iter().for_each(|program| kernel.install(program));
        kernel.add_account("alice", "!");
        kernel.add_account("bob", "!");
        Self::on(kernel, folder).await
    }

    async fn on(kernel: SimulatedKernel, folder: TempDir) -> Self {
        let agent = Agent::start(&kernel, folder.path()).await;
        let client = CredentialzClient::new(channel(&agent, Some(Role::Admin)).await);
        Self { kernel, folder, agent, client }
    }

    async fn restart(self) -> Self {
        let Self { kernel, folder, agent, .. } = self;
        agent.gnsi.rotations.stop(std::time::Duration::from_secs(5)).await;
        agent.stop().await;
        Self::on(kernel, folder).await
    }

    async fn accounts(&mut self) -> Result<Accounts, Status> {
        let (requests, stream) = mpsc::channel(1);
        let answers = self.client.rotate_account_credentials(ReceiverStream::new(stream)).await?;
        Ok(Stream { requests, answers: answers.into_inner() })
    }

    async fn hosts(
        &mut self,
    ) -> Result<
        Stream<credentialz::RotateHostParametersRequest, credentialz::RotateHostParametersResponse>,
        Status,
    > {
        let (requests, stream) = mpsc::channel(1);
        let answers = self.client.rotate_host_parameters(ReceiverStream::new(stream)).await?;
        Ok(Stream { requests, answers: answers.into_inner() })
    }

    /// Tries one upload in a rotation of its own, which ends without finalize.
    async fn tried(
        &mut self,
        request: rotate_account_credentials_request::Request,
    ) -> Result<(), Status> {
        let mut rotation = self.accounts().await?;
        let answer = rotation.exchange(account_request(request)).await;
        let Stream { requests, mut answers } = rotation;
        drop(requests);
        let end = loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(status) => break Err(status),
            }
        };
        match answer {
            Err(status) => Err(status),
            Ok(_) => {
                assert_eq!(end.unwrap_err().code(), Code::Aborted, "the client is told");
                Ok(())
            }
        }
    }

    /// Uploads and finalizes in a rotation of its own.
    async fn finalized(
        &mut self,
        request: rotate_account_credentials_request::Request,
    ) -> Result<(), Status> {
        let mut rotation = self.accounts().await?;
        rotation.exchange(account_request(request)).await?;
        let finalize =
            rotate_account_credentials_request::Request::Finalize(credentialz::FinalizeRequest {});
        assert_eq!(rotation.exchange(account_request(finalize)).await?, Some(Default::default()));
        assert_eq!(rotation.answers.message().await?, None, "the stream ends");
        Ok(())
    }
}

fn account_request(
    request: rotate_account_credentials_request::Request,
) -> credentialz::RotateAccountCredentialsRequest {
    credentialz::RotateAccountCredentialsRequest { request: Some(request), force_overwrite: false }
}

fn host(
    request: rotate_host_parameters_request::Request,
) -> credentialz::RotateHostParametersRequest {
    credentialz::RotateHostParametersRequest { request: Some(request) }
}

fn keys(
    account: &str,
    version: &str,
    options: Vec<credentialz::Option>,
) -> rotate_account_credentials_request::Request {
    let key = credentialz::account_credentials::AuthorizedKey {
        authorized_key: KEY.into(),
        options,
        ..Default::default()
    };
    rotate_account_credentials_request::Request::Credential(credentialz::AuthorizedKeysRequest {
        credentials: vec![credentialz::AccountCredentials {
            account: account.to_owned(),
            authorized_keys: vec![key],
            version: version.to_owned(),
            created_on: 7,
        }],
    })
}

fn password(account: &str, version: &str) -> rotate_account_credentials_request::Request {
    use password_request::crypto_hash::HashType;
    let hash = password_request::CryptoHash {
        hash_type: HashType::CryptMd5.into(),
        hash_value: MD5.to_owned(),
    };
    let value = password_request::password::Value::CryptoHash(hash);
    rotate_account_credentials_request::Request::Password(credentialz::PasswordRequest {
        accounts: vec![password_request::Account {
            account: account.to_owned(),
            password: Some(password_request::Password { value: Some(value) }),
            version: version.to_owned(),
            created_on: 7,
        }],
    })
}

// proves 5.1, 5.2, 5.82, 5.89
#[tokio::test]
async fn trial_credentials_are_in_force_until_the_stream_ends() {
    let mut rig = Rig::new(&[SSHD]).await;
    let fresh = rig.kernel.contents();
    let mut rotation = rig.accounts().await.unwrap();
    rotation.exchange(account_request(keys("alice", "1", Vec::new()))).await.unwrap();
    rotation.exchange(account_request(password("alice", "1"))).await.unwrap();
    rotation.exchange(account_request(keys("bob", "1", Vec::new()))).await.unwrap();
    let tried = rig.kernel.contents();
    assert_eq!(tried.len(), fresh.len() + 3, "two files and the server: {tried:#?}");
    drop(rotation);
    let mut next = rig.accounts().await;
    while next.is_err() {
        tokio::task::yield_now().await;
        next = rig.accounts().await;
    }
    assert_eq!(rig.kernel.contents(), fresh, "everything of all steps is taken back");
}

// proves 5.1, 5.7, 3.33, 3.37
#[tokio::test]
async fn final_credentials_survive_a_restart() {
    let mut rig = Rig::new(&[SSHD]).await;
    let fresh = rig.kernel.contents();
    rig.finalized(keys("alice", "1", Vec::new())).await.unwrap();
    rig.finalized(password("alice", "1")).await.unwrap();
    let contents = rig.kernel.contents();
    assert_ne!(contents, fresh);
    let requests = rig.kernel.requests();
    let mut rig = rig.restart().await;
    assert_eq!(
        (rig.kernel.contents(), rig.kernel.requests()),
        (contents.clone(), requests),
        "in sync"
    );
    let again = rig.tried(password("alice", "1")).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists, "its version is known");
    rig.tried(password("alice", "2")).await.unwrap();
    assert_eq!(rig.kernel.contents(), contents);
}

#[tokio::test]
async fn a_finalize_is_answered_and_ends_the_stream() {
    let mut rig = Rig::new(&[SSHD]).await;
    for kind in FinalizingClient::ALL {
        let mut rotation = rig.accounts().await.unwrap();
        rotation.exchange(account_request(password("alice", &format!("{kind:?}")))).await.unwrap();
        let finalize = account_request(rotate_account_credentials_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        ));
        let Stream { requests, answers } = rotation;
        kind.finalizes(requests, answers, finalize, AfterFinalize::Ends).await;

        let mut rotation = rig.hosts().await.expect("the one before is over");
        let authentication_types = vec![credentialz::AuthenticationType::Pubkey.into()];
        let request = credentialz::AllowedAuthenticationRequest { authentication_types };
        rotation
            .exchange(host(rotate_host_parameters_request::Request::AuthenticationAllowed(request)))
            .await
            .unwrap();
        let finalize = host(rotate_host_parameters_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        ));
        let Stream { requests, answers } = rotation;
        kind.finalizes(requests, answers, finalize, AfterFinalize::Ends).await;
    }
}

// proves 5.81, 5.6
#[tokio::test]
async fn one_rotation_at_a_time_whichever_it_is() {
    let mut rig = Rig::new(&[SSHD]).await;
    let mut first = rig.accounts().await.unwrap();
    first.exchange(account_request(keys("alice", "1", Vec::new()))).await.unwrap();
    assert_eq!(rig.accounts().await.err().unwrap().code(), Code::Unavailable);
    assert_eq!(rig.hosts().await.err().unwrap().code(), Code::Unavailable);
    let finalize = account_request(rotate_account_credentials_request::Request::Finalize(
        credentialz::FinalizeRequest {},
    ));
    assert!(first.exchange(finalize).await.unwrap().is_some(), "the first one is not disturbed");
    let mut second = rig.hosts().await.unwrap();
    let ways = vec![credentialz::AuthenticationType::Pubkey.into()];
    let request = credentialz::AllowedAuthenticationRequest { authentication_types: ways };
    second
        .exchange(host(rotate_host_parameters_request::Request::AuthenticationAllowed(request)))
        .await
        .unwrap();
    assert_eq!(rig.accounts().await.err().unwrap().code(), Code::Unavailable);
}

// proves 5.8, 5.82, 5.83, 5.85, 5.87
#[tokio::test]
async fn refusals_have_their_codes_and_leave_everything() {
    let mut rig = Rig::new(&[SSHD]).await;
    rig.finalized(keys("alice", "1", Vec::new())).await.unwrap();
    let before = rig.kernel.contents();
    let named = |name: &str| credentialz::Option {
        key: Some(option::Key::Name(name.to_owned())),
        value: String::new(),
    };
    let empty = rotate_account_credentials_request::Request::Credential(
        credentialz::AuthorizedKeysRequest::default(),
    );
    let rows = [
        (keys("eve", "1", Vec::new()), Code::NotFound, "no account `eve`"),
        (keys("alice", "1", Vec::new()), Code::AlreadyExists, "version `1` is in use"),
        (
            keys("alice", "2", vec![named("no-such")]),
            Code::InvalidArgument,
            "no key option `no-such`",
        ),
        (password("eve", "1"), Code::NotFound, "no account `eve`"),
        (empty, Code::InvalidArgument, "the request is empty"),
    ];
    for (request, code, text) in rows {
        let status = rig.tried(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
        assert_eq!(rig.kernel.contents(), before);
    }
    let mut rotation = rig.accounts().await.unwrap();
    let nothing = credentialz::RotateAccountCredentialsRequest::default();
    assert_eq!(rotation.exchange(nothing).await.unwrap_err().code(), Code::InvalidArgument);
    // A version in use is accepted with force_overwrite.
    let mut rotation = rig.accounts().await.unwrap();
    let insists = credentialz::RotateAccountCredentialsRequest {
        force_overwrite: true,
        ..account_request(keys("alice", "1", Vec::new()))
    };
    assert!(rotation.exchange(insists).await.unwrap().is_some());
}

// proves 5.2, 5.89
#[tokio::test]
async fn a_step_that_the_box_refuses_takes_back_the_steps_before_it() {
    for nth in 1..=2 {
        let mut rig = Rig::new(&[SSHD]).await;
        let fresh = rig.kernel.contents();
        let mut rotation = rig.accounts().await.unwrap();
        rotation.exchange(account_request(password("bob", "1"))).await.unwrap();
        rig.kernel.fault_at(nth, Fault::Fail(nix::libc::EIO));
        let refused =
            rotation.exchange(account_request(keys("alice", "1", Vec::new()))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal, "{refused}");
        let object =
            if nth == 1 { "file etc/ssh/holdfast/authorized_keys/alice" } else { "SSH server" };
        assert!(refused.message().contains(object), "{refused}");
        assert_eq!(rig.kernel.contents(), fresh);
    }
}

// proves 5.86
#[tokio::test]
async fn without_a_server_its_files_wait_and_say_what_for() {
    let mut rig = Rig::new(&[]).await;
    let fresh = rig.kernel.contents();
    rig.finalized(keys("alice", "1", Vec::new())).await.unwrap();
    assert_eq!(rig.kernel.contents(), fresh);
    let waiting = rig.agent.handle.statuses(true).await.unwrap();
    let labels: Vec<&str> = waiting.iter().map(|status| status.label.as_str()).collect();
    assert_eq!(labels, ["file etc/ssh/holdfast/authorized_keys/alice", "SSH server"]);
    assert!(format!("{:?}", waiting[0].detail).contains("program /usr/sbin/sshd"), "{waiting:?}");
    // The password needs no server.
    rig.finalized(password("alice", "1")).await.unwrap();
    assert_ne!(rig.kernel.contents(), fresh);

    rig.kernel.install(SSHD);
    while !rig.agent.handle.statuses(true).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.kernel.contents().len(), fresh.len() + 3, "the program, a file, the server");
}

// proves 5.80, 5.86
#[tokio::test]
async fn keys_are_made_where_they_can_be() {
    let mut rig = Rig::new(&[SSHD]).await;
    for (kind, can) in [(0, false), (1, true), (4, true), (7, true), (99, false)] {
        let request = credentialz::CanGenerateKeyRequest { key_params: kind };
        let answer = rig.client.can_generate_key(request).await.unwrap().into_inner();
        assert_eq!(answer.can_generate, can, "{kind}");
    }
    let mut rotation = rig.hosts().await.unwrap();
    let kinds =
        [credentialz::KeyGen::SshKeyTypeEddsaEd25519, credentialz::KeyGen::SshKeyTypeEcdsaP384];
    let request = credentialz::GenerateKeysRequest {
        key_params: kinds.map(i32::from).to_vec(),
        version: "1".to_owned(),
        created_on: 7,
    };
    let answer = rotation
        .exchange(host(rotate_host_parameters_request::Request::GenerateKeys(request)))
        .await
        .unwrap()
        .unwrap();
    use credentialz::rotate_host_parameters_response::Response;
    let Some(Response::GenerateKeys(generated)) = answer.response else { panic!("{answer:?}") };
    let public_keys =
        rig.client.get_public_keys(credentialz::GetPublicKeysRequest {}).await.unwrap();
    assert_eq!(public_keys.into_inner().public_keys, generated.public_keys);
    let types: Vec<i32> = generated.public_keys.iter().map(|key| key.key_type).collect();
    assert_eq!(
        types,
        [credentialz::KeyType::Ed25519, credentialz::KeyType::EcdsaP384].map(i32::from)
    );
    let unknown = credentialz::GenerateKeysRequest { key_params: vec![99], ..Default::default() };
    let refused = rotation
        .exchange(host(rotate_host_parameters_request::Request::GenerateKeys(unknown)))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let public_keys =
        rig.client.get_public_keys(credentialz::GetPublicKeysRequest {}).await.unwrap();
    assert!(public_keys.into_inner().public_keys.is_empty(), "taken back with the rest");
}

/// A state leaf as readers see it; empty if there is none.
async fn leaf(client: &mut Client, path: &str) -> String {
    match client.get(get_request(&[path])).await {
        Ok(got) => value(got.into_inner().notification[0].update[0].val.as_ref()),
        Err(status) => {
            assert_eq!(status.code(), Code::NotFound, "{path}: {status:?}");
            String::new()
        }
    }
}

/// Checks state leaves by name; an empty value means that there is no leaf.
async fn check(client: &mut Client, state: &str, want: &[(&str, &str)]) {
    for (name, value) in want {
        assert_eq!(leaf(client, &format!("{state}/{name}")).await, *value, "{state}/{name}");
    }
}

const ALICE: &str = "/system/aaa/authentication/users/user[username=alice]/state";
const SERVER: &str = "/system/ssh-server/state";
const SEVEN_SECONDS: &str = "\"7000000000\"";

// proves 5.9
#[tokio::test]
async fn account_versions_are_state_on_trial_and_final() {
    let mut rig = Rig::new(&[SSHD]).await;
    let mut gnmi = client(&rig.agent).await;
    let nothing = [("password-version", ""), ("authorized-keys-list-version", "")];
    check(&mut gnmi, ALICE, &nothing).await;
    rig.finalized(password("alice", "1")).await.unwrap();
    let first = [
        ("password-version", "\"1\""),
        ("password-created-on", SEVEN_SECONDS),
        ("authorized-keys-list-version", ""),
        ("authorized-principals-list-version", ""),
    ];
    check(&mut gnmi, ALICE, &first).await;
    let mut rotation = rig.accounts().await.unwrap();
    rotation.exchange(account_request(password("alice", "2"))).await.unwrap();
    rotation.exchange(account_request(keys("alice", "k", Vec::new()))).await.unwrap();
    let tried = [
        ("password-version", "\"2\""),
        ("authorized-keys-list-version", "\"k\""),
        ("authorized-keys-list-created-on", SEVEN_SECONDS),
    ];
    check(&mut gnmi, ALICE, &tried).await;
    drop(rotation);
    let mut next = rig.accounts().await;
    while next.is_err() {
        tokio::task::yield_now().await;
        next = rig.accounts().await;
    }
    drop(next);
    check(&mut gnmi, ALICE, &first).await;
    let rig = rig.restart().await;
    check(&mut client(&rig.agent).await, ALICE, &first).await;
}

// proves 5.9
#[tokio::test]
async fn versions_of_what_the_server_shows_and_trusts_are_leaves() {
    let mut rig = Rig::new(&[SSHD]).await;
    let mut gnmi = client(&rig.agent).await;
    let nothing = [
        ("active-trusted-user-ca-keys-version", ""),
        ("active-host-key-version", ""),
        ("active-host-certificate-version", ""),
        ("active-host-certificate-expires-on", ""),
    ];
    check(&mut gnmi, SERVER, &nothing).await;
    let mut rotation = rig.hosts().await.unwrap();
    let key = credentialz::PublicKey { public_key: KEY.into(), ..Default::default() };
    let request = credentialz::CaPublicKeyRequest {
        ssh_ca_public_keys: vec![key],
        version: "ca".to_owned(),
        created_on: 7,
    };
    rotation
        .exchange(host(rotate_host_parameters_request::Request::SshCaPublicKey(request)))
        .await
        .unwrap();
    let private_key = include_bytes!("../../../../security/tests/data/ssh/host").as_slice();
    let certificate =
        include_bytes!("../../../../security/tests/data/ssh/host-cert.pub").as_slice();
    let artefact = credentialz::server_keys_request::AuthenticationArtifacts {
        private_key: private_key.into(),
        certificate: certificate.into(),
    };
    let request = credentialz::ServerKeysRequest {
        auth_artifacts: vec![artefact],
        version: "host".to_owned(),
        created_on: 7,
    };
    rotation
        .exchange(host(rotate_host_parameters_request::Request::ServerKeys(request)))
        .await
        .unwrap();
    let glome = credentialz::GlomeRequest {
        enabled: true,
        key: "a".repeat(64),
        key_version: 5,
        url_prefix: "https://glome.example/".to_owned(),
    };
    rotation.exchange(host(rotate_host_parameters_request::Request::Glome(glome))).await.unwrap();
    let tried = [
        ("active-trusted-user-ca-keys-version", "\"ca\""),
        ("active-trusted-user-ca-keys-created-on", SEVEN_SECONDS),
        ("active-host-key-version", "\"host\""),
        ("active-host-key-created-on", SEVEN_SECONDS),
        ("active-host-certificate-version", "\"host\""),
        ("active-host-certificate-created-on", SEVEN_SECONDS),
    ];
    check(&mut gnmi, SERVER, &tried).await;
    let state = "/system/aaa/authentication/glome/state";
    let glome = [("enabled", "true"), ("active-glome-key-version", "\"5\"")];
    check(&mut gnmi, state, &glome).await;
    let answer = rotation
        .exchange(host(rotate_host_parameters_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        )))
        .await
        .unwrap();
    assert_eq!(answer, Some(Default::default()));
    check(&mut gnmi, SERVER, &tried).await;

    // Without artefacts the server shows its own keys again.
    let mut rotation = rig.hosts().await.unwrap();
    let request = credentialz::ServerKeysRequest {
        auth_artifacts: Vec::new(),
        version: "none".to_owned(),
        created_on: 8,
    };
    rotation
        .exchange(host(rotate_host_parameters_request::Request::ServerKeys(request)))
        .await
        .unwrap();
    let own = [
        ("active-host-key-version", "\"none\""),
        ("active-host-key-created-on", "\"8000000000\""),
        ("active-host-certificate-version", ""),
        ("active-host-certificate-created-on", ""),
    ];
    check(&mut gnmi, SERVER, &own).await;
}

#[tokio::test]
async fn while_gnsi_is_off_the_password_of_the_box_goes_before_that_of_credentialz() {
    let mut rig = Rig::new(&[]).await;
    let users = rig.agent.gnsi.logins.users().clone();
    users
        .set("alice".into(), Role::Admin, Some(Password::new("of the box").unwrap()))
        .await
        .unwrap();
    users.set("bob".into(), Role::Admin, None).await.unwrap();
    rig.finalized(password("alice", "1")).await.unwrap();
    rig.finalized(password("bob", "1")).await.unwrap();
    let right = |name: &'static str, text: &'static str| {
        let users = users.clone();
        async move { users.has_password(name, Password::new(text).unwrap()).await }
    };
    for (on, alice_given, alice_own) in
        [(true, true, false), (false, false, true), (true, true, false)]
    {
        let switch = Intent::Switch { service: Namespace::Gnsi, on };
        rig.agent.handle.change(&caller("operator", Role::Admin), switch).await.unwrap();
        assert_eq!(right("alice", "correct horse").await, alice_given, "{on}");
        assert_eq!(right("alice", "of the box").await, alice_own, "{on}");
        assert!(right("bob", "correct horse").await, "he has no other: {on}");
    }
}
