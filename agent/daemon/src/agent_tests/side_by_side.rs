//! Commits that run at the same time.

mod services;

use std::sync::Arc;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::{BootChange, BootConfiguration, Configuration, Layers, Models, Namespace};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, ConfirmAction, Confirmation, CoreHandle, Datastore,
    Intent,
};
use holdfast_platform::kinds;
use holdfast_platform::transport::SimulatedKernel;
use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::{Agent, caller, copied};

type Answer = Result<CommitStamp, CommitError>;

/// Turns of the runtime after which everything has happened that needs no time and no kernel.
const TURNS: usize = 500;

/// A Set of one native node.
fn native(path: &str, value: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
    let payload = Payload::Json { text: value.as_bytes().to_vec().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

fn hostname(name: &str) -> Edit {
    native("/system/hostname", &format!("\"{name}\""))
}

fn port(name: &str, leaf: &str, value: &str) -> Edit {
    native(&format!("/interfaces/interface[name={name}]/{leaf}"), value)
}

/// A Set in OpenConfig of the MTU of a port.
fn openconfig_mtu(port: &str, mtu: u32) -> Edit {
    let path = format!("/interfaces/interface[name={port}]/config");
    let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
    let text = format!(r#"{{"name": "{port}", "mtu": {mtu}}}"#);
    let payload = Payload::Json { text: text.into_bytes().into(), ietf: true };
    Edit { updates: vec![(target, payload)], ..Edit::default() }
}

fn delete(origin: Origin, path: &str) -> Edit {
    let target = EditTarget { origin, path: path.parse().unwrap() };
    Edit { deletes: vec![target], ..Edit::default() }
}

/// A Set by CLI text, which is added to what there is.
fn lines(text: &str) -> Edit {
    let target = EditTarget { origin: Origin::Native, path: "/".parse().unwrap() };
    Edit { updates: vec![(target, Payload::Cli { text: text.to_owned() })], ..Edit::default() }
}

/// A Set by CLI text alone, which replaces what there is.
fn replace_by_lines(text: &str) -> Edit {
    let replaces = lines(text).updates;
    Edit { replaces, ..Edit::default() }
}

fn begin(handle: &CoreHandle, edit: Edit, options: CommitOptions) -> JoinHandle<Answer> {
    let handle = handle.clone();
    tokio::spawn(async move { handle.commit(&caller(), edit, options).await })
}

fn begin_change(handle: &CoreHandle, change: Intent) -> JoinHandle<Answer> {
    let handle = handle.clone();
    tokio::spawn(async move {
        match change {
            Intent::Edit(edit) => handle.commit(&caller(), edit, CommitOptions::default()).await,
            other => handle.change(&caller(), other).await,
        }
    })
}

/// A change to this boot configuration, as CLI text; empty for none.
fn boot(vendor: &str) -> Intent {
    let vendor = vendor.as_bytes().to_vec();
    let boot = BootConfiguration { vendor, ..BootConfiguration::default() };
    Intent::boot(BootChange::Set((!boot.vendor.is_empty()).then(|| Arc::new(boot))))
}

fn switch(service: Namespace, on: bool) -> Intent {
    Intent::Switch { service, on }
}

async fn turns() {
    super::turns(TURNS).await;
}

/// Starts an agent, and a change of the host name that the kernel does not answer.
async fn hung(kernel: &SimulatedKernel, folder: &std::path::Path) -> (Agent, JoinHandle<Answer>) {
    let agent = Agent::start(kernel, folder).await;
    kernel.hang_at(kinds::HOSTNAME);
    let hung = begin(&agent.handle, hostname("first"), CommitOptions::default());
    while kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    (agent, hung)
}

#[tokio::test]
async fn a_change_that_hangs_holds_up_only_changes_of_the_same_object() {
    let ports = ["eth0", "eth1", "eth2"];
    let kernel = SimulatedKernel::new(&ports);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let second = begin(&agent.handle, hostname("second"), CommitOptions::default());
    let mut last = agent.handle.revision().number;
    for (port, edit) in [
        ("eth0", openconfig_mtu("eth0", 1314)),
        ("eth1", port("eth1", "mtu", "1300")),
        ("eth2", openconfig_mtu("eth2", 1314)),
    ] {
        let committed =
            agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap();
        assert!(committed.revision > last);
        last = committed.revision;
        let contents = kernel.contents();
        let is_set = |it: &String| it.contains(port) && it.contains("1300");
        assert!(contents.iter().any(is_set), "{contents:#?}");
    }
    turns().await;
    assert!(!hung.is_finished() && !second.is_finished());
    assert!(!agent.published_text().contains("first"), "an edit in flight is in no layer");

    kernel.resume();
    let [first, second] = [hung.await.unwrap().unwrap(), second.await.unwrap().unwrap()];
    assert!(last < first.revision && first.revision < second.revision);
    assert!(agent.published_text().contains("second"));
    agent.stop().await;

    let requests = kernel.requests();
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(kernel.requests(), requests, "the store has what the kernel has");
    agent.stop().await;
}

/// Leaves outside of lists have one row in the database, which two commits cannot prepare at once.
#[tokio::test]
async fn entries_go_on_beside_a_change_of_the_host_name_and_leaves_outside_of_lists_follow_it() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let interval = native("/reconciliation/resync-interval", "60");
    let interval = begin(&agent.handle, interval, CommitOptions::default());
    for edit in [
        native("/system/user[username=u]/role", "\"admin\""),
        native("/reconciliation/drift-policy[object=link]/action", "\"report\""),
    ] {
        agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap();
    }
    turns().await;
    assert!(!hung.is_finished() && !interval.is_finished());
    kernel.resume();
    let [hung, interval] = [hung.await.unwrap().unwrap(), interval.await.unwrap().unwrap()];
    assert!(hung.revision < interval.revision);
    agent.stop().await;

    let agent = Agent::start(&kernel, folder.path()).await;
    let revision = agent.handle.revision();
    for leaf in [
        "/system/hostname",
        "/system/user[username=u]/role",
        "/reconciliation/resync-interval",
        "/reconciliation/drift-policy[object=link]/action",
    ] {
        let path = revision.models.native.resolve_write(&leaf.parse().unwrap()).unwrap();
        assert!(revision.native.contains(&path), "{leaf}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn lines_on_other_objects_go_on_beside_a_change_that_hangs() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let options = CommitOptions::default;
    for (edit, shown) in [
        (lines("interface eth0\n  mtu 1300"), true),
        (lines("interface eth1\n  mtu 1300\ninterface eth0\n  no mtu"), false),
    ] {
        agent.handle.commit(&caller(), edit, options()).await.unwrap();
        let contents = kernel.contents();
        let is_set = |it: &String| it.contains("eth0") && it.contains("1300");
        assert_eq!(contents.iter().any(is_set), shown, "{contents:#?}");
    }
    let same = begin(&agent.handle, lines("system hostname second"), options());
    let replaced = begin(&agent.handle, replace_by_lines("interface eth0\n  mtu 1400"), options());
    turns().await;
    assert!(!hung.is_finished() && !same.is_finished() && !replaced.is_finished());
    kernel.resume();
    let [hung, same, replaced] = [hung, same, replaced].map(|it| async { it.await.unwrap() });
    let answers = [hung.await.unwrap(), same.await.unwrap(), replaced.await.unwrap()];
    assert!(answers.is_sorted_by_key(|it| it.revision));
    let published = agent.published_text();
    assert!(published.contains("\"mtu\":1400") && !published.contains("second"), "{published}");
    agent.stop().await;
}

#[tokio::test]
async fn switches_and_boot_configurations_go_on_beside_a_change_that_hangs() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let is_set = |mtu: &str| kernel.contents().iter().any(|it| it.contains(mtu));
    for (change, shown) in [
        (boot("interface eth0\n  mtu 1300"), true),
        (switch(Namespace::Bootz, false), true),
        (switch(Namespace::Gnsi, false), true),
        (Intent::Edit(port("eth0", "mtu", "1400")), false),
        (switch(Namespace::Bootz, true), true),
        (boot(""), false),
    ] {
        begin_change(&agent.handle, change.clone()).await.unwrap().unwrap();
        assert_eq!(is_set("1300"), shown, "{change:?}: {:#?}", kernel.contents());
    }
    let same = begin_change(&agent.handle, boot("system hostname boot"));
    turns().await;
    let switched = begin_change(&agent.handle, switch(Namespace::Bootz, false));
    turns().await;
    assert!(!hung.is_finished() && !same.is_finished() && !switched.is_finished());
    kernel.resume();
    let first = hung.await.unwrap().unwrap();
    let [same, switched] = [same.await.unwrap().unwrap(), switched.await.unwrap().unwrap()];
    assert!(first.revision < same.revision && same.revision < switched.revision);
    agent.stop().await;
}

#[tokio::test]
async fn a_kill_beside_a_change_that_hangs_keeps_what_was_answered() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    agent
        .handle
        .commit(&caller(), openconfig_mtu("eth0", 1300), CommitOptions::default())
        .await
        .unwrap();
    let copy = copied(folder.path());
    kernel.resume();
    hung.await.unwrap().unwrap();
    agent.stop().await;

    let agent = Agent::start(&SimulatedKernel::new(&["eth0"]), copy.path()).await;
    assert!(agent.published_text().contains("\"mtu\":1300"), "{}", agent.published_text());
    assert!(!agent.published_text().contains("first"), "{}", agent.published_text());
    agent.stop().await;
}

#[tokio::test]
async fn a_commit_that_must_be_confirmed_runs_alone() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let rollback_after = std::time::Duration::from_secs(600);
    let action = ConfirmAction::Begin { rollback_after };
    let confirmation = Some(Confirmation { id: "a".into(), action });
    let options = CommitOptions { confirmation, ..CommitOptions::default() };
    let alone = begin(&agent.handle, openconfig_mtu("eth0", 1300), options);
    turns().await;
    let later = begin(&agent.handle, openconfig_mtu("eth0", 1400), CommitOptions::default());
    turns().await;
    assert!(!alone.is_finished() && !later.is_finished());
    kernel.resume();
    let [first, alone] = [hung.await.unwrap().unwrap(), alone.await.unwrap().unwrap()];
    assert!(first.revision < alone.revision);
    let refused = later.await.unwrap().unwrap_err();
    assert!(matches!(refused, CommitError::Confirm(_)), "{refused}");
    agent.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_while_its_change_waits_leaves_nothing() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let (agent, hung) = hung(&kernel, folder.path()).await;
    let second = begin(&agent.handle, hostname("second"), CommitOptions::default());
    turns().await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    kernel.resume();
    hung.await.unwrap().unwrap();
    agent.handle.wait_until_idle().await.unwrap();
    assert!(agent.published_text().contains("first") && !agent.published_text().contains("second"));
    agent.stop().await;
}

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Event {
    Begin(usize),
    Hang,
    Resume,
    /// Lets everything go on as far as it can.
    Turns,
}

/// Changes. Some have to do with one another, and some contradict one another.
fn change(number: usize) -> Intent {
    let name = ["eth0", "eth1"][number % 2];
    Intent::Edit(match number / 2 {
        0 => port(name, "mtu", "1300"),
        1 => openconfig_mtu(name, 1300),
        2 => openconfig_mtu(name, 1314),
        3 => delete(Origin::OpenConfig, &format!("/interfaces/interface[name={name}]")),
        4 => delete(Origin::Native, &format!("/interfaces/interface[name={name}]")),
        5 => hostname(&format!("host{}", number % 2)),
        6 => {
            port(name, &format!("ipv4/address[ip=192.0.2.{}]/prefix-length", 1 + number % 2), "24")
        }
        7 => delete(Origin::Native, "/"),
        8 => lines(&format!("interface {name}\n  mtu {}", 1300 + number % 3)),
        9 => lines(&format!("interface {name}\n  no mtu\n  description lines")),
        10 => lines(&format!("no interface {name}")),
        11 => lines(&format!("system hostname host{}", number % 2)),
        12 => replace_by_lines(&format!("interface {name}\n  mtu 1300")),
        13 => return boot(["", "system hostname boot"][number % 2]),
        14 => return boot(&format!("interface {name}\n  mtu 1300")),
        15 => return boot(&format!("no interface {name}")),
        16 => return switch(Namespace::Bootz, number.is_multiple_of(2)),
        17 => return switch(Namespace::Gnsi, number.is_multiple_of(2)),
        _ => port(name, "description", &format!("\"text{number}\"")),
    })
}

/// Number of changes of [`change`].
const CHANGES: usize = 38;

fn schedule() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => (0..CHANGES).prop_map(Event::Begin),
        1 => Just(Event::Hang),
        1 => Just(Event::Resume),
        2 => Just(Event::Turns),
    ];
    prop::collection::vec(event, 1..20)
}

/// A change under way, by its number.
type Begun = Vec<(usize, JoinHandle<Answer>)>;

/// Runs a schedule of changes, and lets the kernel answer in the end.
async fn play(
    schedule: &[Event],
    agent: &Agent,
    kernel: &SimulatedKernel,
    change: fn(usize) -> Intent,
) -> Begun {
    let mut begun = Vec::new();
    for event in schedule {
        match event {
            Event::Begin(number) => {
                begun.push((*number, begin_change(&agent.handle, change(*number))));
            }
            Event::Hang => kernel.hang_at(kinds::HOSTNAME),
            Event::Resume => kernel.resume(),
            Event::Turns => turns().await,
        }
    }
    kernel.resume();
    begun
}

/// The configuration after the accepted changes one after the other, in the order of their revisions. Each refused one is
/// refused somewhere in that order.
async fn serial_of(
    begun: Begun,
    start: Configuration,
    change: fn(usize) -> Intent,
) -> Configuration {
    let mut accepted = Vec::new();
    let mut refused = Vec::new();
    for (number, task) in begun {
        match task.await.unwrap() {
            Ok(committed) => accepted.push((committed.revision, number)),
            Err(error) => refused.push((number, error)),
        }
    }
    accepted.sort_unstable();
    let mut serial = vec![start];
    for (_, number) in &accepted {
        let applied = change(*number).apply(&serial[serial.len() - 1]);
        serial.push(applied.expect("the serial order accepts it as well").0);
    }
    for (number, error) in refused {
        let agrees = serial.iter().any(|it| change(number).apply(it).is_err());
        assert!(agrees, "change {number} is refused at no place of the serial order: {error}");
    }
    serial.pop().expect("it begins with the start")
}

/// Runs a schedule, and compares answers, layers and kernel with those of the serial order.
async fn run(schedule: &[Event]) {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let begun = play(schedule, &agent, &kernel, change).await;
    let models = Arc::new(Models::load().unwrap());
    let last = serial_of(begun, Configuration::new(models, Layers::new()), change).await;
    assert_eq!(agent.handle.configuration().layers(), last.layers());
    agent.handle.wait_until_idle().await.unwrap();
    let contents = kernel.contents();
    let published = agent.published_text();
    agent.stop().await;

    let requests = kernel.requests();
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(agent.handle.configuration().layers(), last.layers(), "what is stored");
    assert_eq!((kernel.requests(), kernel.contents()), (requests, contents), "in sync");
    assert_eq!(agent.published_text(), published);
    agent.stop().await;
}

/// A restart gives nothing back a second time. Whether the store was quicker than the end of the agent depends on the
/// order of their threads, so there are several rounds.
#[tokio::test]
async fn ends_of_pre_images_are_durable_when_the_agent_is_idle() {
    let changes = [37, 12, 23, 22, 14];
    let mut schedule: Vec<_> = changes.map(Event::Begin).into();
    schedule.insert(1, Event::Hang);
    for _ in 0..8 {
        run(&schedule).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn commits_side_by_side_are_a_serial_order(schedule in schedule()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&schedule));
    }
}
