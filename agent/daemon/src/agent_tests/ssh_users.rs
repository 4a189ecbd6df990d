//! The package `ssh-users` on the simulated kernel: keys that services give users, as files of the box.

use std::path::Path;
use std::sync::Arc;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::ServicePlan;
use holdfast_config::{EditCause, Models, Namespace};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore, Intent, UserSecrets};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_services::ServiceTypes;
use tempfile::TempDir;

use super::services::until_layers;
use super::{Agent, caller, package_files};

const SSHD: &str = "usr/sbin/sshd";
const KEYS: [&str; 3] = [
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICNStoYBNp4MC97H3OBeFhjafRjd9i9hRK/6WttN4Lh1",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP/+/fz7+vn49/b19PPy8fDv7u3s6+rp6Ofm5eTj4uHg",
];

fn types() -> ServiceTypes {
    let files = [
        ("service.toml", include_str!("../../../../packaging/services/ssh-users/service.toml")),
        (
            "ssh-users@2026-11-25.yang",
            include_str!("../../../../packaging/services/ssh-users/ssh-users@2026-11-25.yang"),
        ),
        (
            "templates/user.oc.json",
            include_str!("../../../../packaging/services/ssh-users/templates/user.oc.json"),
        ),
    ];
    let models = Arc::new(Models::load().unwrap());
    let mut types = ServiceTypes::new(models).with_keeper(UserSecrets::keeper());
    types.add(&package_files(files)).unwrap();
    types
}

/// A box with accounts, and an agent on it whose gNSI is off.
struct Rig {
    kernel: SimulatedKernel,
    folder: TempDir,
    agent: Agent,
}

impl Rig {
    async fn new(has_sshd: bool) -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = TempDir::new().unwrap();
        if has_sshd {
            kernel.install(SSHD);
        }
        ["alice", "eric", "kim"].iter().for_each(|name| kernel.add_account(name, "!"));
        let agent = Self::start(&kernel, folder.path()).await;
        let rig = Self { kernel, folder, agent };
        rig.switch(false).await;
        rig
    }

    async fn start(kernel: &SimulatedKernel, folder: &Path) -> Agent {
        Agent::start_with(kernel, folder, types()).await
    }

    async fn restart(self) -> Self {
        let Self { kernel, folder, agent } = self;
        agent.stop().await;
        let agent = Self::start(&kernel, folder.path()).await;
        Self { kernel, folder, agent }
    }

    async fn switch(&self, on: bool) {
        let switch = Intent::Switch { service: Namespace::Gnsi, on };
        self.agent.handle.change(&caller(), switch).await.unwrap();
    }

    async fn commit(&self, edit: Edit) -> Result<CommitStamp, CommitError> {
        self.agent.handle.commit(&caller(), edit, CommitOptions::default()).await
    }

    /// The files with keys on the box.
    fn files(&self) -> Vec<String> {
        let all = self.kernel.contents().into_iter();
        all.filter(|it| it.contains("authorized_keys/") && it.contains("digest")).collect()
    }

    /// Accounts that have such a file.
    fn accounts(&self) -> Vec<&'static str> {
        let files = self.files();
        let has_file =
            |name: &&str| files.iter().any(|it| it.contains(&format!("authorized_keys/{name}\"")));
        ["alice", "eric", "kim"].into_iter().filter(has_file).collect()
    }

    fn plan(&self, instance: &str) -> Option<Arc<ServicePlan>> {
        let tag = format!("ssh-users[instance='{instance}']").parse().unwrap();
        self.agent.handle.configuration().layers().book.get(&tag).cloned()
    }
}

fn target(instance: &str) -> EditTarget {
    let path = format!("/services/ssh-users[instance={instance}]").parse().unwrap();
    EditTarget { origin: Origin::Native, path }
}

/// The Set of a team with these users, each with its key.
fn team(instance: &str, users: &[(&str, &str)]) -> Edit {
    let user = |(name, key): &(&str, &str)| format!(r#"{{"name":"{name}","ssh-key":"{key}"}}"#);
    let users = users.iter().map(user).collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"username":[{users}]}}"#).into_bytes().into();
    Edit {
        updates: vec![(target(instance), Payload::Json { text, ietf: true })],
        ..Edit::default()
    }
}

fn ops() -> Edit {
    team("ops", &[("alice", KEYS[0]), ("eric", KEYS[1])])
}

fn devs() -> Edit {
    team("devs", &[("alice", KEYS[0]), ("kim", KEYS[2])])
}

fn removal(instance: &str) -> Edit {
    Edit { deletes: vec![target(instance)], ..Edit::default() }
}

#[tokio::test]
async fn files_with_keys_follow_the_teams_while_gnsi_is_off() {
    let mut rig = Rig::new(true).await;
    rig.commit(ops()).await.unwrap();
    assert_eq!(rig.accounts(), ["alice", "eric"]);
    assert!(rig.plan("ops").unwrap().is_ready(), "ready in the answer's revision");
    rig.commit(devs()).await.unwrap();
    assert_eq!(rig.accounts(), ["alice", "eric", "kim"]);
    let all = rig.files();
    assert_eq!(all.iter().filter(|it| it.contains(&format!("{}", 0o644))).count(), 3, "{all:?}");
    // The same again asks nothing of the box.
    let requests = rig.kernel.requests();
    rig.commit(devs()).await.unwrap();
    assert_eq!(rig.kernel.requests(), requests);

    rig.switch(true).await;
    assert_eq!(rig.accounts(), [""; 0]);
    rig = rig.restart().await;
    assert_eq!(rig.accounts(), [""; 0]);
    let refusal = rig.commit(team("devs", &[("kim", KEYS[1])])).await.unwrap_err();
    let CommitError::Edit(errors) = &refusal else { panic!("{refusal}") };
    let EditCause::Reserved { owner: Namespace::Gnsi, claims, .. } = &errors.first().cause else {
        panic!("{refusal}");
    };
    assert_eq!(*claims, ["ssh-users[instance='devs'] (user kim, made)"]);
    rig.switch(false).await;
    assert_eq!(rig.files(), all);
    let requests = rig.kernel.requests();
    rig = rig.restart().await;
    assert_eq!((rig.kernel.requests(), rig.files()), (requests, all), "found in place");

    rig.commit(removal("ops")).await.unwrap();
    assert_eq!(rig.accounts(), ["alice", "kim"], "alice is of the other team as well");
    rig.commit(removal("devs")).await.unwrap();
    assert_eq!(rig.accounts(), [""; 0]);
}

#[tokio::test]
async fn a_file_that_is_refused_takes_the_team_back() {
    let rig = Rig::new(true).await;
    rig.commit(ops()).await.unwrap();
    rig.kernel.fault_at(1, Fault::Fail(nix::errno::Errno::EIO as i32));
    let refusal = rig.commit(devs()).await.unwrap_err();
    assert!(matches!(refusal, CommitError::Failed { .. }), "{refusal}");
    assert_eq!(rig.accounts(), ["alice", "eric"]);
    assert!(rig.plan("devs").is_none());
    rig.commit(devs()).await.unwrap();
    assert_eq!(rig.accounts(), ["alice", "eric", "kim"]);
}

#[tokio::test]
async fn a_team_is_ready_when_the_box_has_an_ssh_server() {
    let rig = Rig::new(false).await;
    rig.commit(ops()).await.unwrap();
    let plan = rig.plan("ops").unwrap();
    assert!(!plan.is_ready());
    assert!(format!("{plan:?}").contains("program /usr/sbin/sshd"), "{plan:?}");
    assert_eq!(rig.accounts(), [""; 0]);
    rig.kernel.install(SSHD);
    let tag = "ssh-users[instance='ops']".parse().unwrap();
    until_layers(&rig.agent, |layers| layers.book.get(&tag).is_some_and(|it| it.is_ready())).await;
    assert_eq!(rig.accounts(), ["alice", "eric"]);
}
