//! Packages in the database, and exchanges of them, beside the agent on the simulated kernel.

mod kills;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::BoxState;
use holdfast_config::{ClaimKey, EditCause, Models};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_services::{PackageFiles, ServiceTypes};
use holdfast_store::{ArtefactTable, Store, faults};
use smol_str::SmolStr;
use tempfile::TempDir;
use tokio::time::sleep;

use super::super::signers::PackageSigners;
use super::super::stored::{self, PackageOrigin};
use super::*;
use crate::agent_tests::{Agent, caller, memory_folder, package_files};
use crate::services::OfferedPackages;

const MODULE: &str = r#"module net { yang-version 1.1; namespace "urn:net"; prefix n;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-25 { description "First."; }
  augment "/svc:services" { list net { key name; uses svc:service-instance;
    leaf name { type string; } leaf mtu { type uint16; default 1500; } leaf note { type string; } } } }"#;

/// A component that stays while the host has a name of its own.
const OUTLINE: &str = r#"[service]
name = "net"
version = "VERSION"
[grants]
write = ["/interfaces/interface"]
read = ["/system/hostname"]
[[component]]
type = "TYPE"
  [[component.state]]
  name = "made"
  work = "bridge.cli"
  delete = { when = "config('/system/hostname') GATE 'held'" }
[[tree]]
create = { type = "TYPE", name = "params.name"REPLACES }
"#;

const BRIDGE: &str = "interface {{ component.name }}\n  type bridge\n  mtu {{ params.mtu }}\n";

/// One version of the package.
#[derive(Clone)]
struct TestPackage {
    version: &'static str,
    component: &'static str,
    gate: &'static str,
    replaces: &'static str,
    module: String,
}

fn first() -> TestPackage {
    let module = MODULE.to_owned();
    TestPackage { version: "1.0.0", component: "bridge", gate: "!=", replaces: "", module }
}

/// The component has another type, and takes over what the first version made. Its delete gate is the opposite one.
fn second() -> TestPackage {
    let replaces = ", replaces = [{ type = 'bridge', name = 'params.name' }]";
    TestPackage { version: "2.0.0", component: "span", gate: "==", replaces, ..first() }
}

impl TestPackage {
    fn files(&self) -> PackageFiles {
        let outline = OUTLINE.replace("VERSION", self.version).replace("TYPE", self.component);
        let outline = outline.replace("GATE", self.gate).replace("REPLACES", self.replaces);
        package_files([
            ("service.toml", outline.as_str()),
            ("net@2026-11-25.yang", &self.module),
            ("templates/bridge.cli", BRIDGE),
        ])
    }

    /// Offers the version in a folder.
    fn offer(&self, folder: &Path) {
        let path = folder.join(format!("net-{}.hfs", self.version));
        fs::write(&path, self.files().write().unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// A box with a folder of packages.
struct TestBox {
    kernel: SimulatedKernel,
    folder: TempDir,
    packages: TempDir,
    types: ServiceTypes,
    agent: Agent,
}

impl TestBox {
    /// A box to which this version is offered, with instances `n0`, `n1` and so on.
    async fn with_instances(package: &TestPackage, count: usize) -> Self {
        let [folder, packages] = [(); 2].map(|()| memory_folder());
        package.offer(packages.path());
        let kernel = SimulatedKernel::new(&["eth0"]);
        let (agent, types) = start(&kernel, folder.path(), packages.path()).await;
        let it = Self { kernel, folder, packages, types, agent };
        let instance = |at: usize| (format!("/services/net[name=n{at}]"), "{}".to_owned());
        it.set(&(0..count).map(instance).collect::<Vec<_>>()).await.unwrap();
        it.until_ready().await;
        it
    }

    /// Polls until every instance that is not deleted is ready, so that no walk comes between a dry run and the change.
    async fn until_ready(&self) {
        for _ in 0..500 {
            let configuration = self.agent.handle.configuration();
            let mut plans = configuration.layers().book.iter();
            if plans.all(|(_, plan)| plan.leaving.is_some() || plan.is_ready()) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("an instance does not become ready");
    }

    async fn restarted(self) -> Self {
        let Self { kernel, folder, packages, agent, .. } = self;
        agent.stop().await;
        let (agent, types) = start(&kernel, folder.path(), packages.path()).await;
        Self { kernel, folder, packages, types, agent }
    }

    /// Kills the agent, whose disk has stopped, and starts it on what is on disk.
    async fn killed(self) -> Self {
        let Self { kernel, folder, packages, agent, .. } = self;
        let folder = agent.killed(folder.path());
        let (agent, types) = start(&kernel, folder.path(), packages.path()).await;
        Self { kernel, folder, packages, types, agent }
    }

    async fn set(&self, updates: &[(String, String)]) -> Result<(), CommitError> {
        let update = |(path, json): &(String, String)| {
            let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
            (target, Payload::Json { text: json.as_bytes().to_vec().into(), ietf: false })
        };
        let edit = Edit { updates: updates.iter().map(update).collect(), ..Edit::default() };
        self.agent.handle.commit(&caller(), edit, CommitOptions::default()).await.map(drop)
    }

    async fn delete(&self, path: &str) {
        let target = EditTarget { origin: Origin::Native, path: path.parse().unwrap() };
        let edit = Edit { deletes: vec![target], ..Edit::default() };
        self.agent.handle.commit(&caller(), edit, CommitOptions::default()).await.unwrap();
    }

    async fn name_host(&self, name: &str) {
        self.set(&[("/system".to_owned(), format!(r#"{{"hostname":"{name}"}}"#))]).await.unwrap();
    }

    /// An upgrade to this version, and the types with it.
    fn upgrade(&self, package: &TestPackage) -> (TypeExchange, ServiceTypes) {
        let files = package.files();
        let version = package.version.parse().unwrap();
        let source =
            stored::source(PackageOrigin::Installed(None), version, &files.write().unwrap());
        let mut types = self.types.clone();
        types.load(&files, Some(source)).unwrap();
        let exchange = TypeExchange {
            services: Arc::new(types.clone()),
            models: Arc::clone(types.models()),
            service: "net".into(),
            digest: SmolStr::default(),
            mode: ExchangeMode::Together,
            is_forced: false,
            is_lenient: false,
            drops_unfit: false,
        };
        (exchange, types)
    }

    fn version(&self, name: &str) -> Option<String> {
        let tag = format!("net[name='{name}']").parse().unwrap();
        let configuration = self.agent.handle.configuration();
        configuration.layers().book.get(&tag).map(|plan| plan.version.to_string())
    }

    /// The rows of packages in the database.
    fn rows(&self) -> Vec<String> {
        let packages = self.agent.handle.configuration().packages();
        packages.into_iter().map(|(name, it)| format!("{name}: {}", it.label)).collect()
    }

    /// Polls until a leaf below the state of services has these values.
    async fn until_shown(&self, leaf: &str, want: &str) {
        let path = format!("/service-state/{leaf}").parse().unwrap();
        let mut last = String::new();
        for _ in 0..500 {
            let models = self.agent.handle.models();
            let patterns = models.native.resolve_read(&path).unwrap();
            let values = self.agent.handle.observed_box().leaves(Origin::Native, &patterns[0]);
            last = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            if last == want {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{leaf} is `{last}` instead of `{want}`");
    }

    /// Polls until nothing is left of an instance.
    async fn until_gone(&self, name: &str) {
        for _ in 0..500 {
            if self.version(name).is_none() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} is still there");
    }
}

/// Starts an agent with what its database has, and the folder of packages.
async fn start(kernel: &SimulatedKernel, folder: &Path, packages: &Path) -> (Agent, ServiceTypes) {
    let (store, loaded) = Store::open(folder).unwrap();
    let stored = loaded.artefacts.get(&ArtefactTable::ServicePackages).cloned().unwrap_or_default();
    store.close().await.unwrap();
    let models = Arc::new(Models::load().unwrap());
    let offered = OfferedPackages::read(Some(packages), &stored, &PackageSigners::default());
    let (types, _) = offered.unwrap().load(models);
    (Agent::start_with(kernel, folder, types.clone()).await, types)
}

fn upgrade_of<'a>(box_: &'a TestBox, by: &'a Requester, exchange: &TypeExchange) -> Upgrade<'a> {
    let version = "2.0.0".parse().unwrap();
    Upgrade { core: &box_.agent.handle, by, exchange: exchange.clone(), version }
}

// proves sv.B103, sv.B107, sv.B111
#[tokio::test]
async fn an_upgrade_with_a_hundred_instances_and_a_zombie_makes_no_operation() {
    let mut box_ = TestBox::with_instances(&first(), 100).await;
    box_.name_host("held").await;
    box_.delete("/services/net[name=n7]").await;
    assert_eq!(box_.version("n7").as_deref(), Some("1.0.0"), "its gate is closed");
    box_.until_ready().await;
    let (exchange, types) = box_.upgrade(&second());
    let by = caller().into();
    let upgrade = upgrade_of(&box_, &by, &exchange);
    let requests = box_.kernel.requests();
    let contents = box_.kernel.contents();
    let preview = upgrade.dry_run(false).await.unwrap().preview;
    assert_eq!(preview.services.total, 99, "the zombie keeps its version");
    assert_eq!(preview.operations.total, 0);
    let n3 = preview.services.first.iter().find(|it| it.service.contains("'n3'")).unwrap();
    let states: Vec<_> =
        n3.states.iter().map(|it| (it.component[0].as_str(), it.effect.name())).collect();
    assert!(
        states.contains(&("span", "reached")) && states.contains(&("bridge", "left")),
        "{states:?}"
    );
    assert_eq!(box_.version("n3").as_deref(), Some("1.0.0"), "nothing has changed");

    let other = upgrade.together(Some(PlanHash(preview.hash.0 ^ 1))).await.unwrap_err();
    assert!(matches!(other, CommitError::PlanDiffers { .. }), "{other}");
    upgrade.together(Some(preview.hash)).await.unwrap();
    assert_eq!((box_.kernel.requests(), box_.kernel.contents()), (requests, contents.clone()));
    assert_eq!(box_.version("n3").as_deref(), Some("2.0.0"));
    assert_eq!(box_.version("n7").as_deref(), Some("1.0.0"));
    assert_eq!(box_.rows(), ["net: 2.0.0 installed", "net/1.0.0: 1.0.0 offered"]);
    box_.types = types;

    TestPackage { version: "3.0.0", ..second() }.offer(box_.packages.path());
    fs::remove_file(box_.packages.path().join("net-1.0.0.hfs")).unwrap();
    let box_ = box_.restarted().await;
    assert_eq!(box_.kernel.contents(), contents, "another archive in the folder changes nothing");
    assert_eq!(box_.version("n3").as_deref(), Some("2.0.0"));
    assert_eq!(box_.rows(), ["net: 2.0.0 installed", "net/1.0.0: 1.0.0 offered"]);
    box_.until_shown("type[name=net]/version", "2.0.0").await;
    box_.until_shown("type[name=net]/other-version", "1.0.0").await;
    box_.until_shown("type[name=net]/installed", "true").await;
    box_.until_shown("type[name=net]/served", "true").await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(box_.version("n7").as_deref(), Some("1.0.0"), "the gate of 2.0.0 is open");
    box_.name_host("free").await;
    box_.until_gone("n7").await;
    assert_eq!(box_.rows(), ["net: 2.0.0 installed"], "nobody uses the first version any more");
    box_.until_shown("type[name=net]/other-version", "").await;
    box_.agent.stop().await;
}

// proves sv.B103
#[tokio::test]
async fn an_instance_that_does_not_fit_refuses_the_upgrade_by_name() {
    let box_ = TestBox::with_instances(&first(), 100).await;
    let note = ("/services/net[name=n42]".to_owned(), r#"{"note":"n"}"#.to_owned());
    box_.set(&[note]).await.unwrap();
    let module = MODULE.replace("leaf note { type string; }", "");
    let (exchange, _) = box_.upgrade(&TestPackage { module, ..second() });
    let before = (box_.kernel.requests(), box_.rows());
    let by = caller().into();
    let upgrade = upgrade_of(&box_, &by, &exchange);
    let refused = upgrade.together(None).await.unwrap_err();
    let CommitError::Edit(errors) = refused else { panic!("{refused}") };
    let errors: Vec<_> = errors.iter().collect();
    assert!(matches!(errors[..], [one] if matches!(one.cause, EditCause::Work { .. })));
    assert!(errors[0].to_string().contains("net[name=n42]/note"), "{}", errors[0]);
    for each in [false, true] {
        // All else that would become of the instances is shown beside that.
        let UpgradePreview { preview, unfit } = upgrade.dry_run(each).await.unwrap();
        assert!(unfit.len() == 1 && unfit[0].contains("net[name=n42]/note"), "{unfit:?}");
        assert_eq!(preview.services.total, 100);
        let refused = upgrade.each(Some(preview.hash)).await.unwrap_err();
        assert!(matches!(refused, CommitError::Edit(_)), "{refused}");
    }
    assert_eq!((box_.kernel.requests(), box_.rows()), before);
    assert_eq!(box_.version("n3").as_deref(), Some("1.0.0"));
    box_.agent.stop().await;
}

// proves sv.B111
#[tokio::test]
async fn the_package_of_an_instance_outlasts_its_archive() {
    let box_ = TestBox::with_instances(&first(), 100).await;
    assert_eq!(box_.rows(), ["net: 1.0.0 offered"]);
    fs::remove_file(box_.packages.path().join("net-1.0.0.hfs")).unwrap();
    let contents = box_.kernel.contents();
    let box_ = box_.restarted().await;
    assert_eq!(
        (box_.kernel.contents(), box_.rows()),
        (contents, vec!["net: 1.0.0 offered".to_owned()])
    );
    box_.set(&[("/services/net[name=n5]".to_owned(), r#"{"mtu":1400}"#.to_owned())]).await.unwrap();
    box_.delete("/services").await;
    assert_eq!(box_.rows(), [""; 0]);
    let box_ = box_.restarted().await;
    assert!(box_.types.is_empty(), "nobody used it");
    box_.agent.stop().await;
}

// proves sv.A37, sv.B112
#[tokio::test]
async fn an_object_shows_the_name_of_the_orphan_that_holds_it() {
    let box_ = TestBox::with_instances(&first(), 100).await;
    let tags = r"ownership/object[path=/interfaces/interface[name=n3\]]/tag";
    box_.until_shown(tags, "net[name='n3']").await;
    let (mut exchange, _) = box_.upgrade(&TestPackage { gate: "!=", replaces: "", ..second() });
    exchange.is_forced = true;
    let by = caller().into();
    let upgrade = upgrade_of(&box_, &by, &exchange);
    let preview = upgrade.dry_run(false).await.unwrap().preview;
    let orphan = preview.services.first.iter().find(|it| it.service.starts_with("orphan:"));
    assert!(orphan.is_some_and(|it| it.leaves.total > 0), "{preview:?}");
    upgrade.together(Some(preview.hash)).await.unwrap();
    box_.until_shown(tags, "net[name='n3'] orphan:net[name='n3']").await;
    box_.delete("/services/net[name=n3]").await;
    box_.until_shown(tags, "orphan:net[name='n3']").await;
    let orphan = ClaimKey::parse_left("orphan:net[name='n3']").unwrap();
    box_.agent.handle.change(&caller(), Intent::Purge(orphan)).await.unwrap();
    box_.until_shown(tags, "").await;
    box_.agent.stop().await;
}

/// An exchange that the disk refuses leaves models, types, instances and rows of packages as they were, and so does one that
/// ends with the agent.
#[tokio::test]
async fn an_upgrade_is_there_as_a_whole_or_not_at_all() {
    let mut box_ = TestBox::with_instances(&first(), 100).await;
    let package = TestPackage { replaces: "", component: "bridge", ..second() };
    let (exchange, _) = box_.upgrade(&package);
    let contents = box_.kernel.contents();
    for fault in [faults::Fault::Unprepared, faults::Fault::Lost] {
        box_.agent.store().refuse(fault).await.unwrap();
        let by = caller().into();
        let refused = upgrade_of(&box_, &by, &exchange).together(None).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(_)), "{refused}");
        box_.agent.pass(Duration::from_secs(10)).await;
        assert_eq!(box_.version("n3").as_deref(), Some("1.0.0"));
        assert_eq!(box_.rows(), ["net: 1.0.0 offered"]);
        box_ = box_.restarted().await;
        assert_eq!(box_.version("n3").as_deref(), Some("1.0.0"));
        assert_eq!(
            (box_.kernel.contents(), box_.rows()),
            (contents.clone(), vec!["net: 1.0.0 offered".to_owned()])
        );
    }
    let by = caller().into();
    upgrade_of(&box_, &by, &exchange).together(None).await.unwrap();
    let box_ = box_.restarted().await;
    assert_eq!(box_.version("n3").as_deref(), Some("2.0.0"));
    assert_eq!(box_.rows(), ["net: 2.0.0 installed"]);
    box_.agent.stop().await;
}

/// Of instances that are walked alone, one that fails keeps its version.
#[tokio::test]
async fn an_instance_that_fails_alone_keeps_its_version() {
    let mut box_ = TestBox::with_instances(&first(), 100).await;
    let module = MODULE.replace("default 1500;", "default 1500; must \". != 1400\";");
    box_.set(&[("/services/net[name=n5]".to_owned(), r#"{"mtu":1400}"#.to_owned())]).await.unwrap();
    box_.until_ready().await;
    let (exchange, types) = box_.upgrade(&TestPackage { module, ..second() });
    let by = caller().into();
    let upgrade = upgrade_of(&box_, &by, &exchange);
    upgrade.together(None).await.unwrap_err();
    let preview = upgrade.dry_run(true).await.unwrap().preview;
    let failing: Vec<_> = preview.services.first.iter().filter(|it| it.failure.is_some()).collect();
    assert!(matches!(failing[..], [one] if one.service == "net[name='n5']"), "{failing:?}");
    let left = upgrade.each(Some(preview.hash)).await.unwrap();
    assert!(
        left.starts_with("net[name='n5'] keeps its version: ") && left.lines().count() == 1,
        "{left}"
    );
    box_.types = types;
    assert_eq!(box_.version("n5").as_deref(), Some("1.0.0"));
    assert_eq!(box_.version("n6").as_deref(), Some("2.0.0"));
    assert_eq!(box_.rows(), ["net: 2.0.0 installed", "net/1.0.0: 1.0.0 offered"]);
    let box_ = box_.restarted().await;
    let configuration = box_.agent.handle.configuration();
    let plan = configuration.layers().book.get(&"net[name='n5']".parse().unwrap()).unwrap().clone();
    assert!(plan.failure.as_ref().unwrap().starts_with("not upgraded to 2.0.0: "), "{plan:?}");
    box_.set(&[("/services/net[name=n5]".to_owned(), r#"{"mtu":1300}"#.to_owned())]).await.unwrap();
    let due = BTreeSet::from(["net[name='n5']".parse().unwrap()]);
    let walks = Walks { due, is_redeployment: true, ..Walks::default() };
    box_.agent.handle.change(&caller(), Intent::Walk(walks)).await.unwrap();
    assert_eq!(box_.version("n5").as_deref(), Some("2.0.0"));
    assert_eq!(box_.rows(), ["net: 2.0.0 installed"]);
    box_.agent.stop().await;
}
