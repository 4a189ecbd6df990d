//! The log of configuration revisions on the simulated kernel, and returns to earlier ones.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::edit::{
    Edit, EditAuthorization, EditAuthorizer, EditTarget, Payload, RequestForms,
};
use holdfast_config::schema::Origin;
use holdfast_config::services::ServicePlan;
use holdfast_config::tree::NodeRef;
use holdfast_config::{
    BootChange, BootConfiguration, Configuration, EditCause, InstancePath, LayerKey, Layers,
    LeafMark, Models, Namespace, PatternStep, Secrets, Tree, cli,
};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, ConfirmAction, Confirmation, Datastore, Intent,
    RestoreRequest,
};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_store::{ChangeSource, ConfigRevision, RevisionRange, RevisionTarget};
use proptest::prelude::*;
use tempfile::TempDir;

use super::services::{LINK_UP, instance, start, until, until_layers};
use super::{Agent, BOX, caller, cases};

/// The part of the layers that a return brings back.
type ClientPart = ([Tree<LeafMark>; 2], Option<smol_str::SmolStr>, Secrets);

fn client_part(agent: &Agent) -> ClientPart {
    let configuration = agent.handle.configuration();
    let layers = configuration.layers();
    let trees =
        [Origin::OpenConfig, Origin::Native].map(|it| layers.tree(LayerKey::client(it)).clone());
    (trees, layers.annotation.clone(), layers.secrets.clone())
}

fn native(path: &str, value: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    let payload = Payload::Json { text: value.as_bytes().to_vec().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

fn openconfig(path: &str, value: &str) -> Edit {
    let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
    let payload = Payload::Json { text: value.as_bytes().to_vec().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

fn lines(text: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: "/".parse().unwrap() };
    Edit { updates: vec![(target, Payload::Cli { text: text.to_owned() })], ..Edit::default() }
}

fn delete(origin: Origin, path: &str) -> Edit {
    let target = EditTarget { origin, path: path.parse().unwrap() };
    Edit { deletes: vec![target], ..Edit::default() }
}

async fn commit(agent: &Agent, edit: Edit) -> CommitStamp {
    agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap()
}

fn boot(vendor: &str) -> Intent {
    let vendor = vendor.as_bytes().to_vec();
    let boot = BootConfiguration { vendor, ..BootConfiguration::default() };
    Intent::boot(BootChange::Set((!boot.vendor.is_empty()).then(|| Arc::new(boot))))
}

fn to_revision(number: u64) -> RestoreRequest {
    let authorization = EditAuthorization::default();
    RestoreRequest { target: RevisionTarget::Number(number), authorization }
}

async fn restore(agent: &Agent, number: u64) -> Result<CommitStamp, CommitError> {
    agent.handle.restore(&caller(), to_revision(number), CommitOptions::default()).await
}

async fn last(agent: &Agent) -> u64 {
    agent.handle.revisions(RevisionRange::ALL).await.unwrap().last
}

/// The newest revision.
async fn newest(agent: &Agent) -> ConfigRevision {
    agent.handle.revisions(RevisionRange::ALL).await.unwrap().revisions.pop().unwrap().revision
}

async fn hostname(agent: &Agent) -> Option<String> {
    agent.handle.current_revision().await;
    let revision = agent.handle.revision();
    let path = revision.models.native.resolve_write(&"/system/hostname".parse().unwrap()).unwrap();
    revision.native.find_leaf(&path).map(|leaf| leaf.value.to_string())
}

#[tokio::test]
async fn a_revision_says_who_changed_what_and_why() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(last(&agent).await, 0, "a start makes no revision");
    let options = CommitOptions {
        trace: Some("change/7".into()),
        comment: Some("ticket 7".parse().unwrap()),
        ..CommitOptions::default()
    };
    let mut remote = caller();
    remote.auth_method = holdfast_base::AuthMethod::Password;
    remote.peer = Some("192.0.2.9:1234".parse().unwrap());
    agent.handle.commit(&remote, native("/system/hostname", "\"one\""), options).await.unwrap();
    let found = newest(&agent).await;
    assert_eq!((found.number, found.by, found.author.as_str()), (1, ChangeSource::Gnmi, "tests"));
    assert_eq!(found.from, Some("192.0.2.9".parse().unwrap()));
    assert_eq!((found.trace.as_str(), found.comment.as_deref()), ("change/7", Some("ticket 7")));
    assert_eq!(found.difference.lines, ["+ system hostname one"]);
    // The same again, a lease of nothing, a switch and a resync are none.
    commit(&agent, native("/system/hostname", "\"one\"")).await;
    agent.handle.change(&caller(), Intent::Lease(Vec::new())).await.unwrap();
    let switch = Intent::Switch { service: Namespace::Bootz, on: false };
    agent.handle.change(&caller(), switch).await.unwrap();
    assert_eq!(last(&agent).await, 1);
    let switch = Intent::Switch { service: Namespace::Bootz, on: true };
    agent.handle.change(&caller(), switch).await.unwrap();
    agent.handle.change(&caller(), boot("interface eth7\n  mtu 1400")).await.unwrap();
    let found = newest(&agent).await;
    assert_eq!((found.number, found.by, found.from), (2, ChangeSource::Bootz, None));
    agent.update(BOX).await.unwrap();
    let found = newest(&agent).await;
    assert_eq!((found.number, found.by), (3, ChangeSource::Local));
    assert!(found.difference.lines.contains(&"+ interface eth0 mtu 1400".to_owned()), "{found:?}");
    agent.stop().await;
    // A restart keeps the numbers.
    let agent = Agent::start(&kernel, folder.path()).await;
    commit(&agent, native("/system/hostname", "\"two\"")).await;
    assert_eq!(newest(&agent).await.number, 4);
    agent.stop().await;
}

#[tokio::test]
async fn a_return_is_an_ordinary_change() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let fresh = kernel.contents();
    agent.update(BOX).await.unwrap();
    let with_box = client_part(&agent);
    let contents = kernel.contents();
    agent.delete("/").await.unwrap();
    assert_eq!(kernel.contents(), fresh);

    // The dry run changes nothing, and its hash is that of the return.
    let options = CommitOptions::default;
    let preview = agent.handle.preview_restore(&caller(), to_revision(1), options()).await.unwrap();
    assert!(preview.operations.total > 0 && kernel.contents() == fresh);
    let other = CommitOptions { expected_plan: Some(holdfast_core::PlanHash(1)), ..options() };
    let refused = agent.handle.restore(&caller(), to_revision(1), other).await.unwrap_err();
    assert!(matches!(refused, CommitError::PlanDiffers { .. }), "{refused}");
    let same = CommitOptions {
        expected_plan: Some(preview.hash),
        comment: Some("back again".parse().unwrap()),
        ..options()
    };
    agent.handle.restore(&caller(), to_revision(1), same).await.unwrap();
    assert!(client_part(&agent) == with_box);
    assert_eq!(kernel.contents(), contents);
    let found = newest(&agent).await;
    assert_eq!((found.number, found.by), (3, ChangeSource::Restore));
    assert_eq!(found.restored.as_deref(), Some("revision 1"));
    assert_eq!(found.comment.as_deref(), Some("back again"));
    restore(&agent, 0).await.unwrap();
    assert_eq!(kernel.contents(), fresh);

    let refused = restore(&agent, 9).await.unwrap_err();
    let text = holdfast_base::ErrorChain(&refused).to_string();
    assert!(text.contains("revision 9: there is none with this number"), "{text}");
    agent.stop().await;
}

#[tokio::test]
async fn a_return_may_have_to_be_confirmed() {
    const WAIT: Duration = Duration::from_secs(60);
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    for name in ["one", "two"] {
        commit(&agent, native("/system/hostname", &format!("\"{name}\""))).await;
    }
    let with = |action| CommitOptions {
        confirmation: Some(Confirmation { id: "w".into(), action }),
        ..CommitOptions::default()
    };
    let begin = || with(ConfirmAction::Begin { rollback_after: WAIT });
    agent.handle.restore(&caller(), to_revision(1), begin()).await.unwrap();
    assert_eq!(hostname(&agent).await.as_deref(), Some("one"));
    // Nothing else is changed meanwhile, by another return neither.
    let refused = restore(&agent, 2).await.unwrap_err();
    assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
    let confirm = with(ConfirmAction::Confirm);
    let refused = agent.handle.restore(&caller(), to_revision(2), confirm).await.unwrap_err();
    assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
    agent.handle.commit(&caller(), Edit::default(), with(ConfirmAction::Cancel)).await.unwrap();
    assert_eq!(hostname(&agent).await.as_deref(), Some("two"));
    assert_eq!((last(&agent).await, newest(&agent).await.by), (4, ChangeSource::Rollback));

    // A restart takes it back, too, and the log says so.
    agent.handle.restore(&caller(), to_revision(1), begin()).await.unwrap();
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(hostname(&agent).await.as_deref(), Some("two"));
    let found = newest(&agent).await;
    assert_eq!((found.number, found.by), (6, ChangeSource::Rollback));
    assert_eq!(found.difference.lines, ["+ system hostname two", "- system hostname one"]);
    restore(&agent, 5).await.unwrap();
    assert_eq!(hostname(&agent).await.as_deref(), Some("one"));
    agent.stop().await;
}

/// Permits nothing that differs.
#[derive(Debug)]
struct Nothing;

impl EditAuthorizer for Nothing {
    fn for_models(&self, _: &Arc<Models>) -> Option<Arc<dyn EditAuthorizer>> {
        None
    }

    fn may_clear(&self, _: Origin, _: &[PatternStep]) -> bool {
        false
    }

    fn may_send_cli_text(&self) -> bool {
        false
    }

    fn may_apply_statement(&self, _: &Configuration, _: &cli::Statement) -> bool {
        false
    }

    fn may_write_payload(
        &self,
        _: &Configuration,
        _: Origin,
        path: &InstancePath,
        _: NodeRef<'_, LeafMark>,
    ) -> Result<(), InstancePath> {
        Err(path.clone())
    }

    fn may_change(
        &self,
        _: &Configuration,
        _: &Layers,
        _: RequestForms,
    ) -> Result<(), (Origin, InstancePath)> {
        Err((Origin::Native, InstancePath::root()))
    }

    fn may_read(&self, _: Origin, _: &InstancePath) -> bool {
        false
    }
}

#[tokio::test]
async fn a_return_needs_the_permissions_of_a_set() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    commit(&agent, native("/system/hostname", "\"one\"")).await;
    let authorization = EditAuthorization::new(Arc::new(Nothing));
    let request = RestoreRequest { authorization, ..to_revision(0) };
    for is_dry_run in [true, false] {
        let request = request.clone();
        let options = CommitOptions::default();
        let refused = match is_dry_run {
            true => agent.handle.preview_restore(&caller(), request, options).await.unwrap_err(),
            false => agent.handle.restore(&caller(), request, options).await.unwrap_err(),
        };
        let CommitError::Edit(errors) = refused else { panic!("{refused}") };
        assert_eq!(errors.first().cause, EditCause::Denied);
    }
    assert_eq!(hostname(&agent).await.as_deref(), Some("one"));
    agent.stop().await;
}

/// True once the second state of an instance is reached.
fn is_sized(plan: &ServicePlan) -> bool {
    plan.components.iter().filter_map(|it| it.state("sized")).any(|state| state.is_reached)
}

#[tokio::test]
async fn services_are_walked_on_the_way_back() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = TempDir::new().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    commit(&agent, native("/system/hostname", "\"one\"")).await;
    commit(&agent, instance("acme", "eth1")).await;
    until(&agent, "acme", is_sized).await;
    let number = last(&agent).await;
    let with_service = client_part(&agent);
    assert!(
        newest(&agent).await.difference.lines.contains(&"+ interface eth1 mtu 1400".to_owned())
    );
    restore(&agent, 1).await.unwrap();
    until_layers(&agent, |layers| layers.claims().is_empty()).await;
    restore(&agent, number).await.unwrap();
    until(&agent, "acme", is_sized).await;
    assert!(client_part(&agent) == with_service);
    agent.stop().await;
}

/// A claim of a service refuses a return that contradicts it, as it refuses a Set.
#[tokio::test]
async fn a_return_that_contradicts_a_service_is_refused() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = TempDir::new().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    commit(&agent, native("/interfaces/interface[name=eth1]/mtu", "1300")).await;
    commit(&agent, instance("acme", "eth1")).await;
    let number = last(&agent).await;
    commit(&agent, delete(Origin::Native, "/interfaces/interface[name=eth1]/mtu")).await;
    kernel.plug("eth1");
    until(&agent, "acme", is_sized).await;
    assert_eq!(newest(&agent).await.by, ChangeSource::Service);
    let before = client_part(&agent);
    let refused = restore(&agent, number).await.unwrap_err();
    let CommitError::Edit(errors) = refused else { panic!("{refused}") };
    assert!(matches!(errors.first().cause, EditCause::Conflict(_)), "{errors}");
    assert!(client_part(&agent) == before);
    agent.stop().await;
}

#[tokio::test]
async fn a_checkpoint_outlives_what_comes_after_it() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    commit(&agent, native("/system/hostname", "\"one\"")).await;
    let name = || "good".parse().unwrap();
    let comment = Some("as it was".parse().unwrap());
    let made = agent.handle.set_checkpoint(&caller(), name(), comment).await.unwrap();
    assert_eq!((made.author.as_str(), made.revision), ("tests", 1));
    commit(&agent, native("/system/hostname", "\"two\"")).await;
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(agent.handle.checkpoints().await.unwrap(), [made]);
    let target = RevisionTarget::Checkpoint(name());
    let request = RestoreRequest { target, authorization: EditAuthorization::default() };
    agent.handle.restore(&caller(), request.clone(), CommitOptions::default()).await.unwrap();
    assert_eq!(hostname(&agent).await.as_deref(), Some("one"));
    assert_eq!(newest(&agent).await.restored.as_deref(), Some("checkpoint good"));
    agent.handle.delete_checkpoint(&name()).await.unwrap();
    for refused in [
        agent.handle.delete_checkpoint(&name()).await.unwrap_err(),
        agent.handle.restore(&caller(), request, CommitOptions::default()).await.unwrap_err(),
    ] {
        let text = holdfast_base::ErrorChain(&refused).to_string();
        assert!(text.contains("there is no checkpoint `good`"), "{text}");
    }
    agent.stop().await;
}

/// A password that clients gave comes back with its user.
#[tokio::test]
async fn secrets_come_back_with_their_users() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let switch = Intent::Switch { service: Namespace::Gnsi, on: false };
    agent.handle.change(&caller(), switch).await.unwrap();
    let user = "/system/aaa/authentication/users/user[username=ada]";
    let set = |password: &str| {
        let text = format!(r#"{{"username": "ada", "password": "{password}"}}"#);
        openconfig(&format!("{user}/config"), &text)
    };
    commit(&agent, set("correct-horse")).await;
    let first = client_part(&agent);
    commit(&agent, set("battery-staple")).await;
    commit(&agent, delete(Origin::OpenConfig, user)).await;
    assert!(client_part(&agent).2.is_empty());
    restore(&agent, 1).await.unwrap();
    assert!(client_part(&agent) == first && !first.2.is_empty());
    let listed = agent.handle.revisions(RevisionRange::ALL).await.unwrap();
    let text = serde_json::to_string(&listed).unwrap() + &format!("{listed:?}");
    assert!(!text.contains("horse") && !text.contains("$6$"), "{text}");
    assert!(text.contains("+ system user ada password (withheld)"), "{text}");
    agent.stop().await;
}

/// Changes of anything that a return has to do with.
fn change(number: usize) -> Intent {
    let port = ["eth0", "eth1"][number % 2];
    let leaf = |leaf: &str| format!("/interfaces/interface[name={port}]/{leaf}");
    Intent::edit(match number / 2 {
        0 => native(&leaf("mtu"), "1300"),
        1 => openconfig(&leaf("config"), &format!(r#"{{"name": "{port}", "mtu": 1314}}"#)),
        2 => openconfig(&leaf("config"), &format!(r#"{{"name": "{port}", "description": "a"}}"#)),
        3 => delete(Origin::OpenConfig, &format!("/interfaces/interface[name={port}]")),
        4 => delete(Origin::Native, "/"),
        5 => lines(&format!("interface {port}\n  description lines\nsystem hostname r1")),
        6 => lines(&format!("no interface {port}")),
        7 => native(&leaf("ipv4/address[ip=192.0.2.1]/prefix-length"), "24"),
        8 => return boot(["", "system hostname boot"][number % 2]),
        9 => return Intent::Switch { service: Namespace::Bootz, on: number.is_multiple_of(2) },
        _ => openconfig("/", r#"{"@": {"openconfig-metadata:protobuf-metadata": "aGk="}}"#),
    })
}

const CHANGES: usize = 22;

#[derive(Clone, Debug)]
enum Step {
    Change(usize),
    Restore(prop::sample::Index),
    Restart,
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..CHANGES).prop_map(Step::Change),
        3 => any::<prop::sample::Index>().prop_map(Step::Restore),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(cases(8))]

    /// After any history, a return gives exactly the layers of then.
    #[test]
    fn a_return_gives_the_layers_of_then(steps in prop::collection::vec(some_step(), 1..14)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
            let folder = TempDir::new().unwrap();
            let mut agent = Agent::start(&kernel, folder.path()).await;
            let mut history = vec![client_part(&agent)];
            for step in steps {
                match step {
                    // A refused return changes nothing.
                    Step::Change(number) => {
                        drop(agent.handle.change(&caller(), change(number)).await);
                    }
                    Step::Restore(at) => {
                        let at = at.index(history.len());
                        restore(&agent, at as u64).await.unwrap();
                        assert!(client_part(&agent) == history[at], "revision {at}");
                    }
                    Step::Restart => {
                        agent.stop().await;
                        agent = Agent::start(&kernel, folder.path()).await;
                    }
                }
                let last = usize::try_from(last(&agent).await).unwrap();
                assert!(last <= history.len(), "one revision a change");
                if last == history.len() {
                    history.push(client_part(&agent));
                }
                assert!(history[last] == client_part(&agent), "revision {last}");
            }
            agent.stop().await;
        });
    }
}
