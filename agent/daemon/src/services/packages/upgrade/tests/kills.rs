//! Kills of the agent at each durable write of an upgrade.

use holdfast_store::faults::StoppedDisk;

use super::*;

/// Instances that are upgraded.
const ALIVE: [&str; 3] = ["n0", "n1", "n2"];
/// Instance that backs out, and keeps its version.
const ZOMBIE: &str = "n3";
const OLD: &str = "1.0.0";
const NEW: &str = "2.0.0";

/// The second version, with a leaf of its own that says which module is in force.
fn newest() -> TestPackage {
    let module = MODULE.replace("leaf note", "leaf extra { type string; } leaf note");
    TestPackage { module, ..second() }
}

async fn before() -> TestBox {
    let box_ = TestBox::with_instances(&first(), ALIVE.len() + 1).await;
    box_.name_host("held").await;
    box_.delete(&format!("/services/net[name={ZOMBIE}]")).await;
    box_.until_ready().await;
    box_
}

/// Upgrades all instances until the disk stops. `None` when all is done before.
async fn run_until_stopped(
    box_: &TestBox,
    each: bool,
    (nth, is_made): (usize, bool),
) -> Option<StoppedDisk> {
    let stopped_rx = box_.agent.store().stop_at(nth, is_made).await.unwrap();
    let (exchange, _) = box_.upgrade(&newest());
    let by = caller().into();
    let upgrade = upgrade_of(box_, &by, &exchange);
    let upgraded = async {
        match each {
            true => upgrade.each(None).await.unwrap(),
            false => upgrade.together(None).await.unwrap(),
        };
        box_.until_ready().await;
    };
    tokio::select! {
        biased;
        stopped = stopped_rx => Some(stopped.unwrap()),
        () = upgraded => None,
    }
}

/// Versions of the instances that are not deleted.
fn versions(box_: &TestBox) -> [String; 3] {
    ALIVE.map(|name| box_.version(name).unwrap())
}

/// Checks that module, packages, instances and claims fit each other, as a start has found them.
fn check_whole(box_: &TestBox, is_new: bool, why: &str) {
    let configuration = box_.agent.handle.configuration();
    let extra = format!("/services/net[name={}]/extra", ALIVE[0]).parse().unwrap();
    assert_eq!(configuration.models().native.resolve_write(&extra).is_ok(), is_new, "{why}");
    let rows: &[&str] = match is_new {
        true => &["net: 2.0.0 installed", "net/1.0.0: 1.0.0 offered"],
        false => &["net: 1.0.0 offered"],
    };
    assert_eq!(box_.rows(), rows, "{why}");
    assert_eq!(box_.version(ZOMBIE).as_deref(), Some(OLD), "{why}");
    let layers = configuration.layers();
    assert_eq!(layers.claims().iter().count(), ALIVE.len() + 1, "{why}");
    for (key, _) in layers.claims().iter() {
        let plan = layers.book.get(&key.tag).unwrap();
        assert_eq!(plan.failure, None, "{why}: {key}");
        let component = if plan.version == OLD { "bridge" } else { "span" };
        assert_eq!(key.component[0], component, "{why}: {key}");
        let state = plan.component(component, &key.component[1]).and_then(|it| it.state("made"));
        assert!(state.is_some_and(|state| state.is_reached), "{why}: {key}");
    }
}

/// Kills the agent at one write of an upgrade. Returns the versions that a start finds; `None` when the upgrade has fewer
/// writes.
async fn kill_at(each: bool, nth: usize, is_made: bool) -> Option<[String; 3]> {
    let box_ = before().await;
    let kernel = (box_.kernel.requests(), box_.kernel.contents());
    let stopped = run_until_stopped(&box_, each, (nth, is_made)).await?;
    let is_new = stopped.commits > 0;
    let box_ = box_.killed().await;
    let versions = versions(&box_);
    let why = format!("{stopped:?}");
    check_whole(&box_, is_new, &why);
    let want: BTreeSet<_> = [if is_new { NEW } else { OLD }].into();
    if !each {
        assert_eq!(versions.iter().map(String::as_str).collect::<BTreeSet<_>>(), want, "{why}");
    }
    box_.until_ready().await;
    assert_eq!(self::versions(&box_), versions, "{why}: nobody asks for more");
    assert_eq!((box_.kernel.requests(), box_.kernel.contents()), kernel, "{why}");

    // It can be done again, or finished, and the zombie ends by its own version.
    if is_new {
        let due = ALIVE.map(|name| format!("net[name='{name}']").parse().unwrap()).into();
        let walks = Walks { due, is_redeployment: true, ..Walks::default() };
        box_.agent.handle.change(&caller(), Intent::Walk(walks)).await.unwrap();
    } else {
        let (exchange, _) = box_.upgrade(&newest());
        upgrade_of(&box_, &caller().into(), &exchange).together(None).await.unwrap();
    }
    check_whole(&box_, true, &why);
    assert_eq!(self::versions(&box_), [NEW; 3], "{why}");
    assert_eq!((box_.kernel.requests(), box_.kernel.contents()), kernel, "{why}");
    box_.name_host("free").await;
    box_.until_gone(ZOMBIE).await;
    assert_eq!(box_.rows(), ["net: 2.0.0 installed"], "{why}");
    box_.agent.stop().await;
    Some(versions)
}

/// Kills the agent at each write. Returns the numbers of instances of the new version that were found.
async fn kill_at_each_write(each: bool) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for nth in 1.. {
        for is_made in [false, true] {
            let Some(versions) = kill_at(each, nth, is_made).await else { return found };
            found.insert(versions.iter().filter(|version| *version == NEW).count());
        }
    }
    unreachable!("an upgrade ends")
}

#[tokio::test]
async fn a_kill_during_an_upgrade_leaves_one_version_of_all_instances() {
    assert_eq!(kill_at_each_write(false).await, [0, ALIVE.len()].into());
}

#[tokio::test]
async fn a_kill_during_an_upgrade_one_by_one_leaves_each_instance_whole() {
    assert_eq!(kill_at_each_write(true).await, (0..=ALIVE.len()).collect());
}
