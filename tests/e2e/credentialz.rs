//! gNSI credentialz on a real OpenSSH server: who gets in, by what, and who no longer does.

use std::future::Future;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use holdfast_proto::gnsi::credentialz::credentialz_client::CredentialzClient;
use holdfast_proto::gnsi::credentialz::password_request::crypto_hash::HashType;
use holdfast_proto::gnsi::credentialz::password_request::{self, CryptoHash, Password, password};
use holdfast_proto::gnsi::credentialz::server_keys_request::AuthenticationArtifacts;
use holdfast_proto::gnsi::credentialz::user_policy::{
    SshAuthorizedPrincipal, SshAuthorizedPrincipals,
};
use holdfast_proto::gnsi::credentialz::{
    self, account_credentials::AuthorizedKey, rotate_account_credentials_request,
    rotate_host_parameters_request,
};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{WAIT_LIMIT, eventually};
use holdfast_tests::gnmi::Credentials;
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use holdfast_tests::sshd::{ACCOUNT, OWN_PASSWORD, PORT, SshBox, SshCredential};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The configuration that credentialz puts in front of the box's own, and the file of the server's process id.
const FRAGMENT: &str = "etc/ssh/sshd_config.d/00-holdfast.conf";
const PID_FILE: &str = "run/sshd.pid";

pub(crate) type Client = CredentialzClient<InterceptedService<Channel, Credentials>>;

/// A box with an SSH server that is up, and an agent on it.
async fn started() -> (Netns, SshBox, AgentProcess) {
    let net = Netns::enter();
    let mut ssh = SshBox::new();
    let agent = AgentProcess::start_wrapped(&net, &ssh.command(), "/".as_ref()).await;
    ssh.serve().await;
    (net, ssh, agent)
}

pub(crate) async fn client(agent: &AgentProcess) -> Client {
    CredentialzClient::with_interceptor(agent.channel().await, agent.credentials())
}

pub(crate) type AccountRotation = Rotation<
    credentialz::RotateAccountCredentialsRequest,
    credentialz::RotateAccountCredentialsResponse,
>;
type HostRotation =
    Rotation<credentialz::RotateHostParametersRequest, credentialz::RotateHostParametersResponse>;

pub(crate) async fn open_account_rotation(client: &mut Client) -> AccountRotation {
    Rotation::open(|requests| client.rotate_account_credentials(requests)).await.unwrap()
}

async fn open_host_rotation(client: &mut Client) -> HostRotation {
    Rotation::open(|requests| client.rotate_host_parameters(requests)).await.unwrap()
}

/// Opens a rotation after one whose stream broke: what that tried may still be on its way back, which is UNAVAILABLE.
async fn open_host_rotation_when_free(client: &mut Client) -> HostRotation {
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        match Rotation::open(|requests| client.rotate_host_parameters(requests)).await {
            Err(busy) if busy.code() == Code::Unavailable && Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

pub(crate) fn of_account(
    request: rotate_account_credentials_request::Request,
) -> credentialz::RotateAccountCredentialsRequest {
    credentialz::RotateAccountCredentialsRequest { request: Some(request), ..Default::default() }
}

/// Requests of both rotations, with one answer for each.
pub(crate) trait CredentialRotation {
    type Request;
    type Answer;
    async fn request(&mut self, request: Self::Request) -> Self::Answer;
    async fn finalize(self);
}

impl CredentialRotation for AccountRotation {
    type Request = rotate_account_credentials_request::Request;
    type Answer = ();

    async fn request(&mut self, request: rotate_account_credentials_request::Request) {
        self.send(of_account(request)).await.unwrap().expect("an upload is answered");
    }

    async fn finalize(mut self) {
        let request = of_account(rotate_account_credentials_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        ));
        assert_eq!(self.send(request).await.unwrap(), Some(Default::default()));
        self.close().await.expect("the stream ends with OK");
    }
}

impl CredentialRotation for HostRotation {
    type Request = rotate_host_parameters_request::Request;
    type Answer = credentialz::RotateHostParametersResponse;

    async fn request(
        &mut self,
        request: rotate_host_parameters_request::Request,
    ) -> credentialz::RotateHostParametersResponse {
        let request = credentialz::RotateHostParametersRequest { request: Some(request) };
        self.send(request).await.unwrap().expect("an upload is answered")
    }

    async fn finalize(mut self) {
        let request = Some(rotate_host_parameters_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        ));
        let request = credentialz::RotateHostParametersRequest { request };
        assert_eq!(self.send(request).await.unwrap(), Some(Default::default()));
        self.close().await.expect("the stream ends with OK");
    }
}

fn password(version: &str, value: password::Value) -> rotate_account_credentials_request::Request {
    let account = password_request::Account {
        account: ACCOUNT.to_owned(),
        password: Some(Password { value: Some(value) }),
        version: version.to_owned(),
        created_on: 1,
    };
    rotate_account_credentials_request::Request::Password(credentialz::PasswordRequest {
        accounts: vec![account],
    })
}

pub(crate) fn plain(version: &str, text: &str) -> rotate_account_credentials_request::Request {
    password(version, password::Value::Plaintext(text.to_owned()))
}

fn keys(version: &str, files: &[&PathBuf]) -> rotate_account_credentials_request::Request {
    let key = |file: &&PathBuf| AuthorizedKey {
        authorized_key: std::fs::read(file.with_extension("pub")).unwrap().into(),
        ..Default::default()
    };
    let credentials = credentialz::AccountCredentials {
        account: ACCOUNT.to_owned(),
        authorized_keys: files.iter().map(key).collect(),
        version: version.to_owned(),
        created_on: 1,
    };
    rotate_account_credentials_request::Request::Credential(credentialz::AuthorizedKeysRequest {
        credentials: vec![credentials],
    })
}

fn principals(version: &str, names: &[&str]) -> rotate_account_credentials_request::Request {
    let principal = |name: &&str| SshAuthorizedPrincipal {
        authorized_user: (*name).to_owned(),
        ..Default::default()
    };
    let authorized_principals = names.iter().map(principal).collect();
    let policy = credentialz::UserPolicy {
        account: ACCOUNT.to_owned(),
        authorized_principals: Some(SshAuthorizedPrincipals { authorized_principals }),
        version: version.to_owned(),
        created_on: 1,
    };
    rotate_account_credentials_request::Request::User(credentialz::AuthorizedUsersRequest {
        policies: vec![policy],
    })
}

async fn eventually_accepted(ssh: &SshBox, proof: SshCredential<'_>) {
    eventually("the client gets in", || ssh.accepts(proof)).await;
}

/// Waits until a credential that is no longer in force is refused.
async fn eventually_refused(ssh: &SshBox, proof: SshCredential<'_>) {
    eventually("the client stays out", || !ssh.accepts(proof)).await;
}

async fn refusal<T, F: Future<Output = Result<T, Status>>>(what: F) -> Status {
    what.await.err().expect("it is refused")
}

// proves 5.85, 5.89
#[tokio::test]
async fn password_rotation_takes_effect_and_rolls_back() {
    let (_net, ssh, agent) = started().await;
    assert!(ssh.accepts(SshCredential::Password(OWN_PASSWORD)));
    let mut client = client(&agent).await;

    let mut first = open_account_rotation(&mut client).await;
    first.request(plain("1", "plain one")).await;
    assert!(ssh.accepts(SshCredential::Password("plain one")), "tried, and in force");
    assert!(!ssh.accepts(SshCredential::Password(OWN_PASSWORD)));
    drop(first);
    eventually_accepted(&ssh, SshCredential::Password(OWN_PASSWORD)).await;
    assert!(!ssh.accepts(SshCredential::Password("plain one")), "what the box had before is back");

    let mut second = open_account_rotation(&mut client).await;
    second.request(plain("2", "plain two")).await;
    second.finalize().await;
    assert!(ssh.accepts(SshCredential::Password("plain two")));

    // A hash by another tool: `openssl passwd -6 -salt saltstring 'correct horse'`.
    let hash = "$6$saltstring$.r0X7ub5wGR2v4Xz7svCIozfnlorFh19V89t8KC9Umd81uGhFgsyTRNyzQDXDIm17fFcR9z3z7oBNdsyYBbtm/";
    let mut third = open_account_rotation(&mut client).await;
    let value =
        CryptoHash { hash_type: HashType::CryptSha2512.into(), hash_value: hash.to_owned() };
    third.request(password("3", password::Value::CryptoHash(value))).await;
    assert!(ssh.accepts(SshCredential::Password("correct horse")));
    drop(third);
    eventually_accepted(&ssh, SshCredential::Password("plain two")).await;
    assert!(!ssh.accepts(SshCredential::Password("correct horse")));
    let shadow = ssh.read("etc/shadow");
    assert!(shadow.starts_with("root:*:19000:0:99999:7:::\n"), "others' lines are as they were");
    for secret in ["plain one", "plain two", "$6$"] {
        assert!(!agent.log().contains(secret), "no secret is in the log");
    }
}

// proves 5.82, 5.84, 5.86, 5.89
#[tokio::test]
async fn key_rotation_takes_effect_and_rolls_back() {
    let (_net, ssh, agent) = started().await;
    let [one, other, authority] = ["one", "other", "authority"].map(|name| ssh.path(name));
    [&one, &other, &authority].into_iter().for_each(|file| ssh.make_key(file, "test"));
    let mut client = client(&agent).await;
    assert!(!ssh.accepts(SshCredential::Key(&one)));

    let mut first = open_account_rotation(&mut client).await;
    first.request(keys("1", &[&one])).await;
    eventually_accepted(&ssh, SshCredential::Key(&one)).await;
    first.request(keys("2", &[&other])).await;
    assert!(
        ssh.accepts(SshCredential::Key(&other)) && !ssh.accepts(SshCredential::Key(&one)),
        "lists are replaced"
    );
    first.request(keys("3", &[])).await;
    assert!(!ssh.accepts(SshCredential::Key(&other)), "an empty one clears");
    first.request(keys("4", &[&one])).await;
    drop(first);
    eventually_refused(&ssh, SshCredential::Key(&one)).await;
    assert!(!ssh.path("etc/ssh/sshd_config.d/00-holdfast.conf").exists(), "all is as it was");

    let mut host = open_host_rotation_when_free(&mut client).await;
    let key = credentialz::PublicKey {
        public_key: std::fs::read(authority.with_extension("pub")).unwrap().into(),
        key_type: credentialz::KeyType::Ed25519.into(),
        description: String::new(),
    };
    let request = credentialz::CaPublicKeyRequest {
        ssh_ca_public_keys: vec![key],
        version: "1".to_owned(),
        created_on: 1,
    };
    host.request(rotate_host_parameters_request::Request::SshCaPublicKey(request)).await;
    host.finalize().await;
    ssh.sign(&authority, &one, "operator", false);
    let mut second = open_account_rotation(&mut client).await;
    second.request(principals("1", &["operator"])).await;
    eventually_accepted(&ssh, SshCredential::Key(&one)).await;
    second.request(principals("2", &["somebody-else"])).await;
    assert!(
        !ssh.accepts(SshCredential::Key(&one)),
        "the certificate's principal is not in the list"
    );
    second.request(principals("3", &["operator"])).await;
    second.finalize().await;
    assert!(ssh.accepts(SshCredential::Key(&one)));
}

// proves 5.86, 5.88, 5.89, 5.90
#[tokio::test]
async fn host_key_rotation_takes_effect_and_rolls_back() {
    let (_net, ssh, agent) = started().await;
    let authority = ssh.path("authority");
    ssh.make_key(&authority, "authority");
    let mut client = client(&agent).await;
    let own =
        client.get_public_keys(credentialz::GetPublicKeysRequest {}).await.unwrap().into_inner();
    let own_line = ssh.read("etc/ssh/ssh_host_ed25519_key.pub");
    assert!(own_line.as_bytes().starts_with(&own.public_keys[0].public_key), "the box's own");

    let mut host = open_host_rotation(&mut client).await;
    let request = credentialz::GenerateKeysRequest {
        key_params: vec![credentialz::KeyGen::SshKeyTypeEddsaEd25519.into()],
        version: "1".to_owned(),
        created_on: 1,
    };
    let answer = host.request(rotate_host_parameters_request::Request::GenerateKeys(request)).await;
    host.finalize().await;
    use credentialz::rotate_host_parameters_response::Response;
    let Some(Response::GenerateKeys(keys)) = answer.response else { panic!("{answer:?}") };
    let line = String::from_utf8(keys.public_keys[0].public_key.to_vec()).unwrap();
    let known_hosts = ssh.path("known_hosts");
    std::fs::write(&known_hosts, format!("[127.0.0.1]:2222 {line}\n")).unwrap();
    let strict = format!("UserKnownHostsFile={}", known_hosts.display());
    let trusted = |options: &[&str]| {
        let options = [&["StrictHostKeyChecking=yes", strict.as_str()], options].concat();
        ssh.log_in(SshCredential::Password(OWN_PASSWORD), &options).status.success()
    };
    eventually("the server shows the key that was made", || trusted(&[])).await;

    // The certificate alone, for the present host key. The client trusts the authority only.
    let key = ssh.path("shown");
    std::fs::write(key.with_extension("pub"), format!("{line}\n")).unwrap();
    ssh.sign(&authority, &key, "127.0.0.1", true);
    let public = std::fs::read_to_string(authority.with_extension("pub")).unwrap();
    std::fs::write(&known_hosts, format!("@cert-authority [127.0.0.1]:2222 {public}")).unwrap();
    assert!(!trusted(&[]), "there is no certificate yet");
    let mut host = open_host_rotation(&mut client).await;
    let certificate = std::fs::read(ssh.path("shown-cert.pub")).unwrap().into();
    let artefact = AuthenticationArtifacts { certificate, ..Default::default() };
    let request = credentialz::ServerKeysRequest {
        auth_artifacts: vec![artefact],
        version: "2".to_owned(),
        created_on: 2,
    };
    host.request(rotate_host_parameters_request::Request::ServerKeys(request)).await;
    eventually("the server shows the certificate", || trusted(&[])).await;
    host.finalize().await;
    assert!(trusted(&[]));

    // Only keys are accepted over SSH; the shadow file, which the console uses, is unchanged.
    let shadow = ssh.read("etc/shadow");
    let mut host = open_host_rotation(&mut client).await;
    let ways = vec![credentialz::AuthenticationType::Pubkey.into()];
    let request = credentialz::AllowedAuthenticationRequest { authentication_types: ways };
    host.request(rotate_host_parameters_request::Request::AuthenticationAllowed(request)).await;
    eventually_refused(&ssh, SshCredential::Password(OWN_PASSWORD)).await;
    assert_eq!(ssh.read("etc/shadow"), shadow);
    drop(host);
    eventually_accepted(&ssh, SshCredential::Password(OWN_PASSWORD)).await;
}

// proves 5.1, 5.7, 5.89, 3.37
#[tokio::test]
async fn kill_during_rotation_keeps_final_credentials() {
    let (_net, ssh, mut agent) = started().await;
    let key = ssh.path("key");
    ssh.make_key(&key, "test");
    let mut first = open_account_rotation(&mut client(&agent).await).await;
    first.request(plain("1", "final")).await;
    first.finalize().await;

    let mut client_of_first_run = client(&agent).await;
    let mut second = open_account_rotation(&mut client_of_first_run).await;
    second.request(plain("2", "tried")).await;
    second.request(keys("2", &[&key])).await;
    eventually_accepted(&ssh, SshCredential::Key(&key)).await;
    agent.kill();
    assert!(ssh.accepts(SshCredential::Password("tried")), "nobody is there to take it back");
    agent.restart().await;
    eventually_accepted(&ssh, SshCredential::Password("final")).await;
    eventually_refused(&ssh, SshCredential::Key(&key)).await;
    assert!(!ssh.accepts(SshCredential::Password("tried")));

    // The version is kept as well.
    let mut third = open_account_rotation(&mut client(&agent).await).await;
    let request = of_account(plain("1", "again"));
    assert_eq!(refusal(third.send(request)).await.code(), Code::AlreadyExists);
}

// proves 5.1, 5.2, 5.7
#[tokio::test]
async fn power_cut_during_rotation_leaves_one_whole_password() {
    let (_net, ssh, mut agent) = started().await;
    let mut password = "first".to_owned();
    let mut first = open_account_rotation(&mut client(&agent).await).await;
    first.request(plain(&password, &password)).await;
    first.finalize().await;
    let version =
        format!("/system/aaa/authentication/users/user[username={ACCOUNT}]/state/password-version");
    for (number, cut) in CutPoint::ALL.into_iter().chain([CutPoint::Finalizing]).enumerate() {
        // The password is equal to its version.
        let tried = format!("tried{number}");
        let mut of_this_life = client(&agent).await;
        let mut rotation = open_account_rotation(&mut of_this_life).await;
        let finalize = of_account(rotate_account_credentials_request::Request::Finalize(
            credentialz::FinalizeRequest {},
        ));
        rotation.run_until(cut, of_account(plain(&tried, &tried)), finalize).await;
        agent.restart().await; // it kills first

        let found = agent.gnmi().await.read(&version).await.unwrap();
        let is_new = found == json!(tried);
        assert!(is_new || found == json!(password), "{cut:?}: {found}");
        assert!(cut.may_leave(is_new), "{cut:?}: {found}");
        let (now, never) = if is_new { (&tried, &password) } else { (&password, &tried) };
        eventually_accepted(&ssh, SshCredential::Password(now)).await;
        eventually_refused(&ssh, SshCredential::Password(never)).await;
        password = now.clone();
    }
}

/// A process in place of the SSH server that ignores the signal to reload.
struct UnresponsiveServer(Child);

impl UnresponsiveServer {
    /// Starts the process, and writes its id into the pid file of the server.
    fn in_place_of(ssh: &SshBox) -> Self {
        let program = ssh.path("lib/sshd"); // the name that a server has
        std::fs::copy("/bin/sleep", &program).unwrap();
        let script = "trap '' HUP; exec \"$0\" 600";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-c", script]).arg(program);
        let deaf = Self(command.spawn().unwrap());
        std::fs::write(ssh.path(PID_FILE), format!("{}\n", deaf.0.id())).unwrap();
        deaf
    }
}

impl Drop for UnresponsiveServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn only_keys() -> rotate_host_parameters_request::Request {
    let ways = vec![credentialz::AuthenticationType::Pubkey.into()];
    rotate_host_parameters_request::Request::AuthenticationAllowed(
        credentialz::AllowedAuthenticationRequest { authentication_types: ways },
    )
}

/// Tries to allow keys alone, while the server does not reload: the rotation is refused, and the file is as before.
async fn check_reload_failure(ssh: &SshBox, client: &mut Client, before: &str) {
    let mut host = open_host_rotation(client).await;
    let request = credentialz::RotateHostParametersRequest { request: Some(only_keys()) };
    let refused = refusal(host.send(request)).await;
    let words = refused.message();
    assert!(words.contains("SSH server") && words.contains("does not listen"), "{refused}");
    eventually("the old configuration is back", || ssh.read(FRAGMENT) == before).await;
    let left = std::fs::read_dir(ssh.path("etc/ssh/holdfast")).unwrap().flatten();
    let left: Vec<_> = left.map(|it| it.file_name()).collect();
    assert!(!format!("{left:?}").contains("candidate"), "{left:?}");
}

/// `sshd -t` and `sshd -T` succeed; only the reload fails.
// proves 5.2, 5.89
#[tokio::test]
async fn a_server_that_does_not_reload_keeps_its_configuration() {
    let (_net, mut ssh, agent) = started().await;
    let mut client = client(&agent).await;
    let mut host = open_host_rotation(&mut client).await;
    let both = vec![
        credentialz::AuthenticationType::Password.into(),
        credentialz::AuthenticationType::Pubkey.into(),
    ];
    let both = credentialz::AllowedAuthenticationRequest { authentication_types: both };
    host.request(rotate_host_parameters_request::Request::AuthenticationAllowed(both)).await;
    host.finalize().await;
    eventually_accepted(&ssh, SshCredential::Password(OWN_PASSWORD)).await;
    let before = ssh.read(FRAGMENT);

    // The process ignores the signal.
    let pid = ssh.read(PID_FILE);
    let deaf = UnresponsiveServer::in_place_of(&ssh);
    check_reload_failure(&ssh, &mut client, &before).await;
    assert!(
        ssh.accepts(SshCredential::Password(OWN_PASSWORD)),
        "the server has its old configuration"
    );
    drop(deaf);
    std::fs::write(ssh.path(PID_FILE), pid).unwrap();

    // The server restarts and fails, because its port is taken.
    let config = ssh.read("etc/ssh/sshd_config");
    let other = TcpListener::bind("127.0.0.1:2223").unwrap();
    let moved = config.replace(&format!("Port {PORT}"), "Port 2223");
    std::fs::write(ssh.path("etc/ssh/sshd_config"), moved).unwrap();
    check_reload_failure(&ssh, &mut client, &before).await;
    drop(other);
    std::fs::write(ssh.path("etc/ssh/sshd_config"), config).unwrap();
    ssh.serve().await;
    eventually_accepted(&ssh, SshCredential::Password(OWN_PASSWORD)).await;

    // The same request succeeds with a server that reloads.
    let mut host = open_host_rotation(&mut client).await;
    host.request(only_keys()).await;
    host.finalize().await;
    eventually_refused(&ssh, SshCredential::Password(OWN_PASSWORD)).await;
}
