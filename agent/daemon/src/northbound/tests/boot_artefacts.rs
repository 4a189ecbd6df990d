//! gNSI artefacts that come with a boot configuration or a bootstrap: all of them are applied, or none.

use std::time::Duration;

use holdfast_base::Role;
use holdfast_bootz::payload::BootstrapPayload;
use holdfast_config::layer::Namespace;
use holdfast_core::{Datastore, Intent};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_proto::bootz;
use holdfast_proto::gnmi::{self, g_nmi_client::GNmiClient};
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::{
    FinalizeRequest, GetBootConfigRequest, RollbackRequest, SetBootConfigRequest,
    SetBootConfigVerifiedRequest, SetBootConfigVerifiedResponse, set_boot_config_verified_request,
};
use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use holdfast_proto::gnsi::authz::{self, probe_response::Action};
use holdfast_proto::gnsi::{credentialz, pathz};
use holdfast_store::faults;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::certz::rig::{Authority, ListeningAgent, chain, trust};
use super::harness::{caller, channel, channel_of, path};
use crate::local::{Inspect, Inspector};
use crate::northbound::bootstrap;
use crate::settings::ShowContent;

/// A policy that allows every caller everything.
const OPEN: &str = r#"{"name":"open","allow_rules":[{"name":"all"}]}"#;
/// The password of `carol`.
const CAROLS: &str = "carols-secret";

/// A box with an SSH server and one account of its own, `alice`.
struct Rig {
    kernel: SimulatedKernel,
    folder: TempDir,
    running: ListeningAgent,
    root: Authority,
}

impl Rig {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        kernel.install("usr/sbin/sshd");
        kernel.add_account("alice", "!");
        let folder = TempDir::new().unwrap();
        let running = ListeningAgent::on(&kernel, &folder).await;
        Self { kernel, folder, running, root: Authority::new("root") }
    }

    async fn restart(self) -> Self {
        self.running.agent.gnsi.rotations.stop(Duration::from_secs(5)).await;
        self.killed().await
    }

    /// Restarts after a kill, without time for a rollback.
    async fn killed(self) -> Self {
        let Self { kernel, folder, running, root } = self;
        let ListeningAgent { agent, _server, .. } = running;
        drop(_server);
        agent.stop().await;
        let running = ListeningAgent::on(&kernel, &folder).await;
        Self { kernel, folder, running, root }
    }

    async fn boots(&self) -> BootConfigClient<Channel> {
        let ada = Some(caller("ada", Role::Admin));
        BootConfigClient::new(channel_of(&self.running.agent, ada).await)
    }

    async fn set(&self, request: SetBootConfigRequest) -> Result<(), Status> {
        self.boots().await.set_boot_config(request).await.map(drop)
    }

    /// The state in force and the final state of each service, and the state of the box itself.
    fn snapshot(&self) -> String {
        let gnsi = &self.running.agent.gnsi;
        let core = &self.running.agent.handle;
        let configuration = core.configuration();
        let leaf =
            configuration.models().native.resolve_write(&"/system/hostname".parse().unwrap());
        let name =
            configuration.effective().find_leaf(&leaf.unwrap()).map(|leaf| leaf.value.to_string());
        let boot = configuration.layers().boot.is_some();
        let authz =
            [gnsi.authz.in_force(), gnsi.authz.last()].map(|it| it.map(|it| it.version.clone()));
        let pathz = gnsi.pathz.active().map(|it| it.version.clone());
        let profiles: Vec<String> = gnsi.profiles().last().ids().map(str::to_owned).collect();
        let serving = gnsi.profiles().server_profile().id;
        let accounts = [gnsi.logins.current(), gnsi.logins.last()]
            .map(|it| it.accounts.keys().cloned().collect::<Vec<_>>());
        format!(
            "{name:?} boot {boot} authz {authz:?} pathz {pathz:?} certz {profiles:?} {serving} accounts {accounts:?} {:#?}",
            self.kernel.contents()
        )
    }

    /// Logs `carol` in on a new connection, on which the server shows a certificate of `root`.
    async fn carol(&self) -> Result<(), String> {
        let connected = self.running.connect(&self.root.pem, None).await?;
        let with = |mut request: Request<()>| {
            request.metadata_mut().insert("username", "carol".parse().unwrap());
            request.metadata_mut().insert("password", CAROLS.parse().unwrap());
            Ok(request)
        };
        let mut client = GNmiClient::with_interceptor(connected.channel.clone(), with);
        let answer = client.capabilities(gnmi::CapabilityRequest::default()).await;
        answer.map(drop).map_err(|status| status.to_string())
    }

    fn everything(&self, name: &str, version: &str) -> SetBootConfigRequest {
        SetBootConfigRequest {
            boot_config: Some(boot(name)),
            authz: Some(policy(version, OPEN)),
            pathz: Some(paths(version)),
            certz: Some(profiles(vec![("p", vec![chain(version, &self.root.server())])])),
            credentials: Some(credentials(version)),
            ..SetBootConfigRequest::default()
        }
    }
}

/// A boot configuration with a user, and with the server bound to the profile that comes with it.
fn boot(name: &str) -> bootz::BootConfig {
    let vendor = format!(
        r#"{{"holdfast:system":{{"hostname":"{name}","user":[{{"username":"carol","role":"admin"}}],
        "grpc-server":[{{"name":"DEFAULT","certificate-id":"p"}}]}}}}"#
    );
    bootz::BootConfig { vendor_config: vendor.into(), ..bootz::BootConfig::default() }
}

fn policy(version: &str, text: &str) -> authz::UploadRequest {
    authz::UploadRequest { version: version.to_owned(), created_on: 7, policy: text.to_owned() }
}

/// A pathz policy that allows `carol` to read and write everything.
fn paths(version: &str) -> pathz::UploadRequest {
    let rule = |id: &str, mode: pathz::Mode| pathz::AuthorizationRule {
        id: id.to_owned(),
        principal: Some(pathz::authorization_rule::Principal::User("carol".to_owned())),
        path: Some(path("/")),
        action: pathz::Action::Permit.into(),
        mode: mode.into(),
    };
    let rules = vec![rule("read", pathz::Mode::Read), rule("write", pathz::Mode::Write)];
    let policy = Some(pathz::AuthorizationPolicy { rules, groups: Vec::new() });
    pathz::UploadRequest { version: version.to_owned(), created_on: 7, policy }
}

fn profiles(all: Vec<(&str, Vec<holdfast_proto::gnsi::certz::Entity>)>) -> bootz::CertzProfiles {
    let profile = |(id, entities): (&str, _)| bootz::CertzProfile {
        ssl_profile_id: id.to_owned(),
        certz: Some(holdfast_proto::gnsi::certz::UploadRequest { entities }),
    };
    bootz::CertzProfiles { profiles: all.into_iter().map(profile).collect() }
}

fn password(account: &str, version: &str) -> credentialz::PasswordRequest {
    use credentialz::password_request::{Account, Password, password::Value};
    let account = Account {
        account: account.to_owned(),
        password: Some(Password { value: Some(Value::Plaintext(CAROLS.to_owned())) }),
        version: version.to_owned(),
        created_on: 7,
    };
    credentialz::PasswordRequest { accounts: vec![account] }
}

fn keys(account: &str, key: &str) -> credentialz::AuthorizedKeysRequest {
    let key = credentialz::account_credentials::AuthorizedKey {
        authorized_key: key.to_owned().into(),
        ..Default::default()
    };
    let account = credentialz::AccountCredentials {
        account: account.to_owned(),
        authorized_keys: vec![key],
        version: "k".to_owned(),
        created_on: 7,
    };
    credentialz::AuthorizedKeysRequest { credentials: vec![account] }
}

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICNStoYBNp4MC97H3OBeFhjafRjd9i9hRK/6WttN4Lh1 test";

/// A password for the user of [`boot`], and a key for the account of the box.
fn credentials(version: &str) -> bootz::Credentials {
    bootz::Credentials {
        credentials: vec![keys("alice", KEY)],
        passwords: vec![password("carol", version)],
        ..bootz::Credentials::default()
    }
}

// proves 3.6, 4.76, 4.77, 4.79
#[tokio::test]
async fn everything_that_comes_with_a_boot_configuration_is_in_force_and_stays() {
    let rig = Rig::new().await;
    rig.carol().await.unwrap_err();
    rig.set(rig.everything("one", "v1")).await.unwrap();
    rig.running.wait_for_profile("p").await;
    let before = rig.snapshot();
    for part in [
        r#""one""#,
        r#"authz [Some("v1"), Some("v1")]"#,
        r#"pathz Some("v1")"#,
        r#"["system_default_profile", "p"] p"#,
        r#"[["alice", "carol"], ["alice", "carol"]]"#,
        "authorized_keys/alice",
    ] {
        assert!(before.contains(part), "{part} is not in {before}");
    }
    rig.carol().await.unwrap();
    // Absent parts stay, present parts are replaced, even by an empty one.
    let only = |credentials| SetBootConfigRequest { credentials, ..Default::default() };
    rig.set(only(None)).await.unwrap();
    assert_eq!(rig.snapshot(), before);
    rig.set(only(Some(bootz::Credentials::default()))).await.unwrap();
    assert!(rig.snapshot().contains("accounts [[], []]"), "{}", rig.snapshot());
    rig.carol().await.unwrap_err();
    rig.set(only(Some(credentials("v1")))).await.unwrap();
    assert_eq!(rig.snapshot(), before);

    let rig = rig.restart().await;
    rig.running.wait_for_profile("p").await;
    assert_eq!(rig.snapshot(), before);
    rig.carol().await.unwrap();
}

/// The text that a refusal must have, and the mistake that is put into a valid request.
type InvalidBootConfig = (&'static str, fn(&Rig, &mut SetBootConfigRequest));

// proves 4.56, 4.76, 4.82
#[tokio::test]
async fn one_invalid_part_leaves_boot_config_and_artefacts_unchanged() {
    let rig = Rig::new().await;
    rig.set(rig.everything("one", "v1")).await.unwrap();
    rig.running.wait_for_profile("p").await;
    let before = rig.snapshot();
    let rows: &[InvalidBootConfig] = &[
        ("hostname", |_, it| {
            let vendor = r#"{"holdfast:system":{"hostname":7}}"#.to_owned();
            it.boot_config.as_mut().unwrap().vendor_config = vendor.into();
        }),
        ("policy", |_, it| it.authz.as_mut().unwrap().policy = "{".to_owned()),
        ("policy", |_, it| it.pathz.as_mut().unwrap().policy = None),
        ("`p`", |rig, it| {
            let profile = || ("p", vec![chain("v2", &rig.root.server())]);
            it.certz = Some(profiles(vec![profile(), profile()]));
        }),
        ("system_default_profile", |_, it| {
            it.certz.as_mut().unwrap().profiles[0].ssl_profile_id =
                "system_default_profile".to_owned();
        }),
        // The certificate of the server is not signed by its trust anchor.
        ("trust", |rig, it| {
            let other = Authority::new("other");
            let entities = vec![chain("v2", &rig.root.server()), trust("v2", &[&other])];
            it.certz = Some(profiles(vec![("p", entities)]));
        }),
        // The server is bound to the missing profile.
        ("`p`", |_, it| it.certz = Some(bootz::CertzProfiles::default())),
        ("nobody", |_, it| {
            it.credentials.as_mut().unwrap().passwords.push(password("nobody", "v2"));
        }),
        ("twice", |_, it| {
            it.credentials.as_mut().unwrap().passwords.push(password("carol", "v2"));
        }),
        ("key", |_, it| {
            it.credentials.as_mut().unwrap().credentials = vec![keys("alice", "ssh-ed25519 AAAA")];
        }),
        ("certificates", |_, it| {
            #[allow(deprecated, reason = "it is refused")]
            let certificates = &mut it.certificates;
            *certificates = Some(Default::default());
        }),
    ];
    for (word, change) in rows {
        let mut request = rig.everything("two", "v2");
        change(&rig, &mut request);
        let status = rig.set(request).await.unwrap_err();
        assert!(status.message().contains(word), "{word}: {status:?}");
        assert_eq!(rig.snapshot(), before, "{word}");
    }
    // Credentials for an account that is no longer a user are refused.
    let mut request = rig.everything("two", "v2");
    request.boot_config = Some(bootz::BootConfig::default());
    request.credentials.as_mut().unwrap().passwords = vec![password("dave", "v2")];
    assert_eq!(rig.set(request).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(rig.snapshot(), before);
    rig.carol().await.unwrap();
}

// proves 4.76
#[tokio::test]
async fn disk_and_kernel_failures_leave_boot_config_and_artefacts_unchanged() {
    let rig = Rig::new().await;
    rig.set(rig.everything("one", "v1")).await.unwrap();
    rig.running.wait_for_profile("p").await;
    let before = rig.snapshot();
    rig.running.agent.store().refuse(faults::Fault::Lost).await.unwrap();
    rig.set(rig.everything("two", "v2")).await.unwrap_err();
    assert_eq!(rig.snapshot(), before, "the disk");
    for nth in 1.. {
        rig.kernel.fault_at(nth, Fault::Fail(nix::libc::EIO));
        let mut request = rig.everything("two", "v2");
        request.credentials.as_mut().unwrap().credentials.clear();
        if rig.set(request).await.is_ok() {
            assert!(nth > 2, "some operations are needed");
            break;
        }
        assert_eq!(rig.snapshot(), before, "operation {nth}");
    }
    let after = rig.snapshot();
    assert!(after.contains(r#"authz [Some("v2"), Some("v2")]"#), "{after}");
    let rig = rig.restart().await;
    rig.running.wait_for_profile("p").await;
    assert_eq!(rig.snapshot(), after);
}

/// A stream with a trial.
struct Trial {
    requests: mpsc::Sender<SetBootConfigVerifiedRequest>,
    answers: Streaming<SetBootConfigVerifiedResponse>,
}

impl Trial {
    async fn open(rig: &Rig, set: SetBootConfigRequest) -> Result<Self, Status> {
        let (requests, sent) = mpsc::channel(2);
        let step = SetBootConfigVerifiedRequest {
            set_request: Some(set_boot_config_verified_request::SetRequest::Set(set)),
        };
        requests.send(step).await.unwrap();
        let mut boots = rig.boots().await;
        let answers = boots.set_boot_config_verified(ReceiverStream::new(sent)).await?;
        let mut answers = answers.into_inner();
        answers.message().await?.expect("an answer to `set`");
        Ok(Self { requests, answers })
    }

    async fn end(
        mut self,
        step: set_boot_config_verified_request::SetRequest,
    ) -> Result<(), Status> {
        let step = SetBootConfigVerifiedRequest { set_request: Some(step) };
        self.requests.send(step).await.unwrap();
        while self.answers.message().await?.is_some() {}
        Ok(())
    }
}

// proves 4.80, 4.81
#[tokio::test]
async fn artefacts_are_tried_with_a_boot_configuration_and_go_with_it() {
    let rig = Rig::new().await;
    rig.set(rig.everything("one", "v1")).await.unwrap();
    rig.running.wait_for_profile("p").await;
    let before = rig.snapshot();

    let trial = Trial::open(&rig, rig.everything("two", "v2")).await.unwrap();
    let tried = rig.snapshot();
    for part in [r#""two""#, r#"authz [Some("v2"), Some("v1")]"#] {
        assert!(tried.contains(part), "{part} is not in {tried}");
    }
    let second = Trial::open(&rig, rig.everything("three", "v3")).await.err().unwrap();
    assert_eq!(second.code(), Code::FailedPrecondition, "{second:?}");
    trial
        .end(set_boot_config_verified_request::SetRequest::Rollback(RollbackRequest {
            reason: "no".to_owned(),
        }))
        .await
        .unwrap();
    assert_eq!(rig.snapshot(), before);

    // The trial of a cut stream is rolled back, and the next trial waits for that.
    drop(Trial::open(&rig, rig.everything("two", "v2")).await.unwrap());
    let policies = || SetBootConfigRequest {
        authz: Some(policy("v4", OPEN)),
        ..SetBootConfigRequest::default()
    };
    let alone = loop {
        match Trial::open(&rig, policies()).await {
            Ok(trial) => break trial,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
        }
    };
    alone
        .end(set_boot_config_verified_request::SetRequest::Rollback(RollbackRequest::default()))
        .await
        .unwrap();
    assert_eq!(rig.snapshot(), before);

    // A stop of the agent rolls a trial back, and so does a start after a kill.
    let trial = Trial::open(&rig, rig.everything("two", "v2")).await.unwrap();
    let rig = rig.restart().await;
    drop(trial);
    rig.running.wait_for_profile("p").await;
    assert_eq!(rig.snapshot(), before);
    let trial = Trial::open(&rig, rig.everything("two", "v2")).await.unwrap();
    let rig = rig.killed().await;
    drop(trial);
    rig.running.wait_for_profile("p").await;
    assert_eq!(rig.snapshot(), before);

    let trial = Trial::open(&rig, rig.everything("two", "v2")).await.unwrap();
    trial
        .end(set_boot_config_verified_request::SetRequest::Finalize(FinalizeRequest {}))
        .await
        .unwrap();
    let after = rig.snapshot();
    for part in [r#""two""#, r#"authz [Some("v2"), Some("v2")]"#] {
        assert!(after.contains(part), "{part} is not in {after}");
    }
    let rig = rig.restart().await;
    rig.running.wait_for_profile("p").await;
    assert_eq!(rig.snapshot(), after);
}

#[tokio::test]
async fn gnsi_that_is_switched_off_takes_nothing() {
    let rig = Rig::new().await;
    let off = Intent::Switch { service: Namespace::Gnsi, on: false };
    rig.running.agent.handle.change(&caller("operator", Role::Admin), off).await.unwrap();
    let before = rig.snapshot();
    let status = rig.set(rig.everything("one", "v1")).await.unwrap_err();
    assert_eq!((status.code(), rig.snapshot()), (Code::FailedPrecondition, before));
}

fn payload(rig: &Rig) -> BootstrapPayload {
    let SetBootConfigRequest { boot_config, authz, pathz, certz, credentials, .. } =
        rig.everything("one", "v1");
    let response = bootz::BootstrapDataResponse {
        authz,
        pathz,
        certz_profiles: certz,
        credentials,
        ..bootz::BootstrapDataResponse::default()
    };
    BootstrapPayload {
        response,
        boot_config: boot_config.unwrap(),
        server_trust_cert: Vec::new().into(),
        checksum: String::new(),
    }
}

async fn bootstrapped(rig: &Rig, payload: &BootstrapPayload) -> Result<Vec<String>, String> {
    let agent = &rig.running.agent;
    bootstrap(&agent.handle, &agent.gnsi, &caller("bootz", Role::Admin), payload).await
}

/// The text that a refusal must have, and the mistake that is put into a payload.
type InvalidPayload = (&'static str, fn(&mut BootstrapPayload));

// proves 4.55, 4.58, 4.59, 4.60
#[tokio::test]
async fn a_bootstrap_hands_its_artefacts_to_their_services_or_fails_as_a_whole() {
    let rig = Rig::new().await;
    let factory = rig.snapshot();
    let rows: &[InvalidPayload] = &[
        ("policy", |it| it.response.authz.as_mut().unwrap().policy = "{}".to_owned()),
        ("policy", |it| it.response.pathz.as_mut().unwrap().policy = None),
        ("certificates", |it| {
            let profiles = &mut it.response.certz_profiles.as_mut().unwrap().profiles;
            profiles[0].certz.as_mut().unwrap().entities.push(Default::default());
        }),
        ("nobody", |it| {
            it.response.credentials.as_mut().unwrap().passwords.push(password("nobody", "v1"));
        }),
        ("nosuch", |it| {
            it.boot_config.dynamic_oc_config = r#"{"openconfig-system:nosuch":1}"#.into();
        }),
        ("bootloader_config", |it| it.boot_config.bootloader_config = Some(Default::default())),
    ];
    for (word, change) in rows {
        let mut payload = payload(&rig);
        change(&mut payload);
        let error = bootstrapped(&rig, &payload).await.unwrap_err();
        assert!(error.contains(word), "{word}: {error}");
        assert_eq!(rig.snapshot(), factory, "{word}");
    }
    bootstrapped(&rig, &payload(&rig)).await.unwrap();
    rig.running.wait_for_profile("p").await;
    rig.carol().await.unwrap();
    let ada = Some(caller("ada", Role::Admin));
    let mut authz = AuthzClient::new(channel_of(&rig.running.agent, ada).await);
    let got = authz.get(authz::GetRequest::default()).await.unwrap().into_inner();
    assert_eq!((got.version.as_str(), got.policy.as_str()), ("v1", OPEN));
}

// proves 4.54
#[tokio::test]
async fn boot_metadata_is_readable_with_read_access_to_the_boot_configuration() {
    let rig = Rig::new().await;
    let agent = &rig.running.agent;
    let metadata_of = async || -> serde_json::Value {
        let text = Inspector(agent.handle.clone()).show(ShowContent::Boot, false).await.unwrap();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!(metadata_of().await, json!({"boot-config": null, "is-tried": false}));
    let text = |text: &str| prost_types::Value {
        kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
    };
    let fields = [("rack".to_owned(), text("B 17")), ("owner".to_owned(), text("lab"))];
    let metadata = prost_types::Struct { fields: fields.into() };
    let mut payload = payload(&rig);
    payload.boot_config.metadata = Some(metadata.clone());
    bootstrapped(&rig, &payload).await.unwrap();
    let boot = &metadata_of().await["boot-config"];
    assert_eq!(boot["metadata"], json!({"rack": "B 17", "owner": "lab"}));
    assert_eq!(
        boot["vendor_config"].as_str().unwrap().as_bytes(),
        &payload.boot_config.vendor_config[..]
    );
    let mut boots = BootConfigClient::new(channel(agent, Some(Role::Admin)).await);
    let got = boots.get_boot_config(GetBootConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(got.boot_config.unwrap().metadata, Some(metadata));
}

// proves 4.58
#[tokio::test]
async fn a_bootstrap_without_artefacts_leaves_the_policy_of_the_factory() {
    let rig = Rig::new().await;
    let mut payload = payload(&rig);
    payload.response = bootz::BootstrapDataResponse {
        // An empty message counts as absent.
        credentials: Some(Default::default()),
        certz_profiles: Some(Default::default()),
        ..Default::default()
    };
    payload.boot_config.vendor_config = r#"{"holdfast:system":{"hostname":"one"}}"#.into();
    bootstrapped(&rig, &payload).await.unwrap();
    assert!(rig.snapshot().contains(r#""one""#));
    let eve = Some(caller("eve", Role::Admin));
    let mut authz = AuthzClient::new(channel_of(&rig.running.agent, eve).await);
    let none = authz.get(authz::GetRequest::default()).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition);
    let rpc = "/gnmi.gNMI/Set".to_owned();
    let probe = authz::ProbeRequest { user: "eve".to_owned(), rpc };
    let answer = authz.probe(probe).await.unwrap().into_inner();
    assert_eq!((answer.action(), answer.version.as_str()), (Action::Permit, ""));
}
