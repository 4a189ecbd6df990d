//! Upgrades of a type with instances by the command line, as operators and clients see them, and kills of the agent
//! during one.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{SIZED_PORT, operate, port_package_with, sized_port_path};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

const TYPE: &str = "holdfast_native:/service-state/type[name=sized-port]";
const STATE: &str = "holdfast_native:/service-state";
const TAG_OF_BOLT: &str = "sized-port[name='bolt']";

/// One version of the type.
struct Package {
    folder: TempDir,
    archive: PathBuf,
}

impl Package {
    /// A version that gives its ports this MTU, an expression of templates.
    fn new(version: &str, mtu: &str) -> Self {
        Self::of_outline(&SIZED_PORT.replace("LINES", ""), version, mtu)
    }

    fn of_outline(outline: &str, version: &str, mtu: &str) -> Self {
        let outline = outline.replace("1.0.0", version);
        let size = format!("interface {{{{ params.port }}}}\n  mtu {{{{ {mtu} }}}}\n");
        let folder = port_package_with(&outline, &size);
        let archive = folder.path().join(format!("sized-port-{version}.hfs"));
        Self { folder, archive }
    }

    /// Runs `holdfast service install` with this archive.
    fn install(&self, agent: &AgentProcess, options: &[&str]) -> Result<String, String> {
        let archive = self.archive.to_str().unwrap();
        operate(agent, &[&["install", archive], options].concat())
    }

    /// The dry run, and the hash with which it is made.
    fn dry_run(&self, agent: &AgentProcess, options: &[&str]) -> (String, String) {
        let shown = self.install(agent, &[&["--dry-run"], options].concat()).unwrap();
        let hash = shown.split("--expected ").nth(1).unwrap_or_else(|| panic!("{shown}")).trim();
        (shown.clone(), hash.to_owned())
    }

    /// Installs it with the hash of its dry run.
    fn upgrade(&self, agent: &AgentProcess, options: &[&str]) -> String {
        let (_, hash) = self.dry_run(agent, options);
        self.install(agent, &[options, &["--expected", &hash]].concat()).unwrap()
    }
}

/// A box with two ports that are up, each with an instance of the first version.
struct Upgraded {
    net: Netns,
    agent: AgentProcess,
    client: GnmiClient,
}

impl Upgraded {
    async fn start(first: &Package) -> Self {
        let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
        for peer in ["peer1", "peer2"] {
            net.ip(&format!("link set {peer} up"));
        }
        let folder = first.folder.path().to_str().unwrap();
        let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
        let on = Self { client: agent.gnmi().await, net, agent };
        for (name, port) in [("acme", "eth1"), ("bolt", "eth2")] {
            let parameters = json!({"bridge": "br0", "port": port});
            on.client.update(&sized_port_path(name), parameters).await.unwrap();
        }
        on.are_ready().await;
        on
    }

    fn mtus(&self) -> [u32; 2] {
        ["eth1", "eth2"].map(|port| self.net.link(port).mtu)
    }

    /// Waits until no walk is left to be made, so that none comes between a dry run and the change.
    async fn are_ready(&self) {
        for name in ["acme", "bolt"] {
            let status = format!("{}/state/status", sized_port_path(name));
            let is_ready = async || self.client.read(&status).await.is_ok_and(|it| it == "reached");
            eventually_async(&format!("{name} is ready"), is_ready).await;
        }
    }

    /// The newest version of the type, and others that instances have.
    async fn versions(&self) -> (Value, Value) {
        let leaf = async |name: &str| match self.client.read(&format!("{TYPE}/{name}")).await {
            Ok(value) => value,
            Err(status) if status.code() == Code::NotFound => Value::Null,
            Err(status) => panic!("{name}: {status}"),
        };
        (leaf("version").await, leaf("other-version").await)
    }

    /// Checks the MTUs of the ports, and waits until all instances are shown at one version.
    async fn is_at(&self, version: &str, mtu: u32) {
        assert_eq!(self.mtus(), [mtu; 2]);
        self.shows_versions(&(json!(version), Value::Null)).await;
    }

    async fn shows_versions(&self, want: &(Value, Value)) {
        let shows = async || self.versions().await == *want;
        eventually_async(&format!("the versions are {want:?}"), shows).await;
    }

    async fn move_bolt(&self, bridge: &str) {
        self.client.update(&sized_port_path("bolt"), json!({"bridge": bridge})).await.unwrap();
        self.are_ready().await;
    }

    async fn kill(&mut self) {
        self.agent.kill();
        self.agent.restart().await;
        self.client = self.agent.gnmi().await;
    }
}

// proves sv.B103
#[tokio::test]
async fn a_live_type_is_upgraded_with_the_hash_of_its_dry_run() {
    let first = Package::new("1.0.0", "1400");
    let second = Package::new("1.1.0", "1300");
    let mut on = Upgraded::start(&first).await;
    on.is_at("1.0.0", 1400).await;
    let listed = operate(&on.agent, &["list"]).unwrap();
    assert!(listed.starts_with("sized-port  1.0.0  2 instances  from --services, "), "{listed}");
    let refused = second.install(&on.agent, &[]).unwrap_err();
    assert!(refused.contains("with the hash of its own dry run alone"), "{refused}");
    let refused = second.install(&on.agent, &["--expected", "HASH"]).unwrap_err();
    assert!(refused.contains("`HASH` is not the hash of a plan"), "{refused}");

    let (shown, hash) = second.dry_run(&on.agent, &[]);
    for part in ["sized-port 1.1.0", "sized-port[name='acme']", TAG_OF_BOLT, "mtu  1400 -> 1300"] {
        assert!(shown.contains(part), "`{part}` is not in {shown}");
    }
    on.is_at("1.0.0", 1400).await;
    // A change of a client in between makes it another plan.
    on.move_bolt("br7").await;
    let refused = second.install(&on.agent, &["--expected", &hash]).unwrap_err();
    assert!(refused.contains(&format!("not {hash} as expected")), "{refused}");
    on.is_at("1.0.0", 1400).await;

    let output = second.upgrade(&on.agent, &[]);
    assert!(output.starts_with("sized-port 1.1.0\n"), "{output}");
    on.is_at("1.1.0", 1300).await;
    on.are_ready().await;
    let listed = operate(&on.agent, &["list"]).unwrap();
    assert!(listed.starts_with("sized-port  1.1.0  2 instances  installed, "), "{listed}");
    let path = ["-e", "json_ietf", "get", "--path", TYPE];
    let printed = Gnmic::for_admin(&on.agent).json(&path).await.to_string();
    assert!(printed.contains("version\":\"1.1.0\""), "{printed}");

    on.agent.kill();
    let monitor = Monitor::start(&on.net).await;
    on.kill().await;
    assert_eq!(monitor.finish(&on.net).await, [""; 0], "a start in sync makes no operation");
    // The folder offers the first version, and no start goes back to it.
    on.is_at("1.1.0", 1300).await;
    on.are_ready().await;
    let refused = first.install(&on.agent, &["--dry-run"]).unwrap_err();
    assert!(refused.contains("which is newer: to go back to"), "{refused}");
    first.upgrade(&on.agent, &["--downgrade"]);
    on.is_at("1.0.0", 1400).await;
}

// proves sv.B103, sv.B111
#[tokio::test]
async fn an_instance_that_fails_alone_is_left_behind_until_it_is_deployed_again() {
    let first = Package::new("1.0.0", "1400");
    let second = Package::new("1.1.0", "1200 if params.bridge == 'br0' else (params.bridge | int)");
    let mut on = Upgraded::start(&first).await;
    on.move_bolt("br7").await;
    let refused = second.install(&on.agent, &["--dry-run"]).unwrap_err();
    assert!(refused.contains("templates/size.cli"), "together it is refused: {refused}");

    let (shown, hash) = second.dry_run(&on.agent, &["--each"]);
    assert!(shown.contains("failed  (") && shown.contains("templates/size.cli"), "{shown}");
    let output = second.install(&on.agent, &["--each", "--expected", &hash]).unwrap();
    assert!(output.contains(&format!("{TAG_OF_BOLT} keeps its version: ")), "{output}");
    assert!(!output.contains("sized-port[name='acme'] keeps"), "{output}");
    let apart = (json!("1.1.0"), json!(["1.0.0"]));
    for is_restarted in [false, true] {
        if is_restarted {
            on.kill().await;
        }
        assert_eq!(on.mtus(), [1200, 1400]);
        on.shows_versions(&apart).await;
        let state = on.client.read(STATE).await.unwrap().to_string();
        assert!(state.contains("not upgraded to 1.1.0: "), "{state}");
        let listed = operate(&on.agent, &["list"]).unwrap();
        assert!(listed.contains("sized-port  1.1.0") && listed.contains("also 1.0.0"), "{listed}");
    }
    operate(&on.agent, &["redeploy", TAG_OF_BOLT]).unwrap_err();
    on.client.update(&sized_port_path("bolt"), json!({"bridge": "br0"})).await.unwrap();
    assert_eq!(on.mtus(), [1200, 1400], "by its own version");
    on.shows_versions(&apart).await;
    operate(&on.agent, &["redeploy", TAG_OF_BOLT]).unwrap();
    on.is_at("1.1.0", 1200).await;
    on.are_ready().await;
    let state = on.client.read(STATE).await.unwrap().to_string();
    assert!(!state.contains("not upgraded"), "{state}");
}

// proves sv.B112
#[tokio::test]
async fn a_version_without_a_component_type_that_is_in_use_is_forced_alone() {
    let first = Package::new("1.0.0", "1400");
    let outline = SIZED_PORT.replace("LINES", "").replace("type = \"port\"", "type = \"link\"");
    let second = Package::of_outline(&outline, "2.0.0", "1300");
    let on = Upgraded::start(&first).await;
    let refused = second.install(&on.agent, &["--dry-run"]).unwrap_err();
    for part in ["sized-port[name='acme']", TAG_OF_BOLT, "port"] {
        assert!(refused.contains(part), "`{part}` is not in {refused}");
    }
    on.is_at("1.0.0", 1400).await;
    // Claims of the old components stay, and belong to nobody.
    let both = Package::of_outline(&outline, "2.0.0", "1400");
    both.upgrade(&on.agent, &["--force"]);
    on.is_at("2.0.0", 1400).await;
    let orphans = ["acme", "bolt"].map(|name| format!("orphan:sized-port[name='{name}']"));
    let owners = on.client.read(&format!("{STATE}/ownership")).await.unwrap().to_string();
    for orphan in &orphans {
        assert!(owners.contains(orphan), "{owners}");
    }
    for name in ["acme", "bolt"] {
        on.client.delete(&sized_port_path(name)).await.unwrap();
    }
    assert_eq!(on.mtus(), [1400; 2], "it stays without the instances");
    for orphan in &orphans {
        operate(&on.agent, &["purge", orphan]).unwrap();
    }
    eventually("the ports are given back", || on.mtus() == [1500; 2]).await;
}

/// Times at which the agent is killed, from the beginning of an upgrade to its answer.
const KILLS: u32 = 6;

// proves sv.B103
#[tokio::test]
async fn a_kill_during_an_upgrade_leaves_all_instances_at_one_version() {
    let first = Package::new("1.0.0", "1400");
    let mut on = Upgraded::start(&first).await;
    let mut version = "1.0.0".to_owned();
    let mut mtu = 1400;
    let mut time = Duration::ZERO;
    let mut seen = [false; 2];
    // The first one is measured.
    for number in 0..=KILLS {
        let next = (format!("1.{}.0", number + 1), mtu - 10);
        let package = Package::new(&next.0, &next.1.to_string());
        let (_, hash) = package.dry_run(&on.agent, &[]);
        let mut install = on.agent.command("service");
        install.arg("install").arg(&package.archive).args(["--expected", &hash]);
        install.stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let mut install = install.spawn().unwrap();
        let is_whole = [0, KILLS].contains(&number);
        if is_whole {
            assert!(install.wait().unwrap().success(), "nothing has disturbed it");
            time = begun.elapsed();
        } else {
            tokio::time::sleep(time * (number - 1) / KILLS).await;
        }
        on.agent.kill();
        let is_answered = is_whole || install.wait().unwrap().success();
        on.kill().await;
        let is_new = on.versions().await.0 == json!(next.0);
        assert!(is_new || !is_answered, "what was answered stays");
        seen[usize::from(is_new)] = true;
        if is_new {
            (version, mtu) = next;
        }
        on.is_at(&version, mtu).await;
        on.are_ready().await;
    }
    assert_eq!(seen, [true; 2], "kills before and after the commit");
}
