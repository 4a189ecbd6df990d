//! Command lines and the handler of the guide on services, run as somebody would who pastes them.

use std::process::Stdio;

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::clients::{Gnmic, client};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use holdfast_tests::pages::{Shell, blocks, commands, guide_section};
use holdfast_tests::services::{answer_with, port_package, sized_port, update};
use tempfile::TempDir;
use tokio::process::Command;

/// The folder in which the guide has the packages of a box.
const FOLDER: &str = "/usr/share/holdfast/services";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");

/// The commands of the shell block of the guide in which this one is.
fn lines_with(heading: &str, part: &str) -> Vec<String> {
    let blocks = blocks(&guide_section(heading), "sh");
    let block = blocks.iter().find(|block| block.contains(part));
    commands(block.unwrap_or_else(|| panic!("`{heading}` has no block with `{part}`")))
}

/// A block with this number of commands, so that one that is new is not passed over.
fn lines<const COUNT: usize>(heading: &str, part: &str) -> [String; COUNT] {
    let found = lines_with(heading, part);
    found.try_into().unwrap_or_else(|found| panic!("not {COUNT} commands: {found:#?}"))
}

#[test]
fn the_commands_on_new_packages_make_one() {
    let shell = Shell::new();
    let lines: [_; 6] = lines("## Write a service package", "holdfast service new");
    let [_, checked, _, rendered, state, packed] = lines.map(|line| shell.run(&line));
    assert!(checked.starts_with("my-service 1.0.0\n"), "{checked}");
    assert!(rendered.contains("eth1") && state.contains("eth1"), "{rendered} {state}");
    assert!(packed.contains("my-service-1.0.0.hfs"), "{packed}");
    assert!(shell.path("my-service-1.0.0.hfs").exists());
}

/// Packs `bridge-port` with another version in the folder of a shell.
fn pack_version(shell: &Shell, version: &str) {
    shell.run(&format!(
        "cp -r {PACKAGING}/services/bridge-port copy
         sed -i 's/^version = .*/version = \"{version}\"/' copy/service.toml
         {} service pack copy && rm -r copy",
        binary().display()
    ));
}

#[tokio::test]
async fn the_commands_on_packages_of_a_box_install_and_exchange_them() {
    const HEADING: &str = "## Run services";
    let net = Netns::enter().with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let shell = Shell::of_agent(&agent);
    ["1.0.0", "1.1.0"].iter().for_each(|version| pack_version(&shell, version));
    let [install, list, remove, dry_run, expected] = lines(HEADING, "holdfast service install");
    assert!(shell.run(&install).contains("writes /interfaces"));
    assert!(shell.run(&list).starts_with("bridge-port  1.0.0  0 instances  installed"));
    shell.run(&remove);
    assert_eq!(shell.run(&list), "");
    shell.run(&install);
    let acme = "holdfast_native:/services/bridge-port[name=acme]";
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, acme, r#"{"bridge": "br0", "port": ["eth1"]}"#).await;
    let refused = shell.outcome(&remove).unwrap_err();
    assert!(refused.contains("has 1 instances"), "{refused}");
    let status = format!("{acme}/state/status");
    answer_with(&gnmic, &["-e", "json_ietf", "get", "--path", &status], &["\"reached\""]).await;
    let shown = shell.run(&dry_run);
    let hash = shown.split("--expected ").nth(1).unwrap_or_else(|| panic!("{shown}")).trim();
    assert!(expected.contains("HASH"), "{expected}");
    shell.run(&expected.replace("HASH", hash));
    assert!(shell.run(&list).starts_with("bridge-port  1.1.0  1 instances  installed"));

    let [sign] = lines(HEADING, "openssl cms -sign");
    shell.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout signer.key -out signer.pem -subj /CN=signer -days 1 2>&1");
    shell.run(&sign);
    shell.run("openssl cms -verify -binary -inform DER -in bridge-port.p7s -content bridge-port-1.0.0.hfs -CAfile signer.pem -purpose any -out verified 2>&1");
}

#[tokio::test]
async fn the_commands_on_instances_make_show_and_delete_one() {
    const HEADING: &str = "## Run services";
    let net = Netns::enter().with_veth("eth1", "peer1");
    let shell = Shell::new();
    let folder = shell.path("services").display().to_string();
    let [pack, run, make, show, delete] = lines(HEADING, "holdfast service pack");
    shell.run(&format!("mkdir services && ln -s {PACKAGING} packaging"));
    shell.run(&pack.replace(FOLDER, &folder));
    shell.run(&pack.replace(FOLDER, &folder).replace("bridge-port", "migrated-link"));
    let run = run.replace(FOLDER, &folder);
    let options: Vec<&str> = run.strip_prefix("holdfast run ").unwrap().split(' ').collect();
    let agent = AgentProcess::start_with(&net, &options).await;
    shell.connect(&agent);
    shell.run(&make);
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    assert_eq!(net.addresses("br0"), ["192.0.2.1/24"]);
    let shown = shell.run(&show);
    assert!(shown.contains("bridge-port[name='acme']"), "{shown}");

    let path = "holdfast_native:/services/migrated-link[name=berne]";
    update(&Gnmic::for_admin(&agent), path, r#"{"bridge": "br7"}"#).await;
    let lines: [_; 7] = lines(HEADING, "holdfast show services");
    let [services, why, waits, plans, transactions, types, status] =
        lines.map(|line| shell.run(&line));
    assert!(why.starts_with("migrated-link[name='berne']: "), "{why}");
    assert!(why.contains("  set by admin, trace "), "{why}");
    assert!(transactions.contains("service-state/transaction"), "{transactions}");
    assert!(services.contains("bridge-port[name='acme']  1.0.0  "), "{services}");
    assert_eq!(waits, agent.show("service-waits"));
    assert!(plans.contains("migrated-link[name='berne']"), "{plans}");
    assert!(types.contains(":digest\": "), "{types}");
    assert!(status.contains("reached"), "{status}");
    shell.run(&delete);
    eventually("the bridge is gone", || net.find_link("br0").is_none()).await;
}

/// A line of the guide with what is optional, and with values for names in capitals.
fn instantiated(line: &str) -> String {
    let tag = "sized-port[name='acme']";
    let values = [
        ("[TAG|TYPE...]", "TAG sized-port"),
        ("[TYPE NAME [STATE]]", "port eth9 attached"),
        ("TYPE NAME [STATE]", "port eth9 attached"),
        ("[--dry-run]", "--dry-run"),
        ("[--deep]", "--deep"),
        ("ID", "7"),
        ("done|failed", "done"),
        ("orphan:TAG", "orphan:sized-port[name='acme']"),
        ("persist:TYPE", "persist:sized-port"),
        (" TAG", &format!(" \"{tag}\"")),
    ];
    values.into_iter().fold(line.to_owned(), |line, (form, value)| line.replace(form, value))
}

/// What the operations do is tested by name elsewhere; here, their arguments are as the guide says.
#[tokio::test]
async fn the_commands_of_operations_are_understood() {
    let net = Netns::enter();
    let packages = sized_port("");
    let options = ["--services", packages.path().to_str().unwrap()];
    let agent = AgentProcess::start_with(&net, &options).await;
    let shell = Shell::of_agent(&agent);
    let acme = "holdfast_native:/services/sized-port[name=acme]";
    let gnmic = Gnmic::for_admin(&agent);
    update(&gnmic, acme, r#"{"bridge": "br0", "port": "eth9"}"#).await;
    let lines = lines_with("## Run services", "holdfast service redeploy");
    assert!(lines.len() >= 13, "{lines:#?}");
    // Those that there is nothing for, in the order of the guide.
    let refusals = [
        ("resurrect", "there is no instance"),
        ("reschedule", "there is no call 7"),
        ("cancel", "there is no call 7"),
        ("resolve", "there is no call 7"),
        ("force-back-track", "there is no instance"),
        ("purge", "there is no claim"),
    ];
    for line in lines {
        let command = instantiated(&line);
        let outcome = if line.contains("service watch") {
            shell.outcome(&format!("timeout 1 {command} || test $? = 124"))
        } else {
            shell.outcome(&command)
        };
        let refusal = refusals.iter().find(|(name, _)| line.contains(&format!("service {name} ")));
        match (outcome, refusal) {
            (Ok(_), None) => {}
            (Err(found), Some((_, part))) => assert!(found.contains(part), "`{command}`: {found}"),
            (outcome, _) => panic!("`{command}`: {outcome:?}"),
        }
    }
}

/// The handler of the guide, and the outline before it, with the parts that it leaves out.
#[tokio::test]
async fn the_handler_of_the_guide_makes_what_an_instance_asks_for() {
    const HEADING: &str = "## Write a handler of services";
    let section = guide_section(HEADING);
    let outline = blocks(&section, "toml").remove(0);
    let header = "[service]\nname = \"sized-port\"\nversion = \"1.0.0\"\n";
    let grants = "[grants]\nwrite = [\"/interfaces/interface\"]\n[handler]";
    let outline = outline.replace("[service]\n", header).replace("[handler]", grants);
    let outline = outline.replace("\"bridge-access\"", "\"root\"");
    let tree = "\n[[tree]]\ncreate = { type = \"access\", name = \"params.port\" }\n";
    let packages = port_package(&(outline + tree));
    let net = Netns::enter().with_veth("eth1", "peer1");
    net.ip("link add br0 type bridge");
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("services.sock");
    let (services, path) = (packages.path().to_str().unwrap(), socket.to_str().unwrap());
    let options = ["--services", services, "--service-socket", path];
    let agent = AgentProcess::start_with(&net, &options).await;

    let protos = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/protos");
    let program = blocks(&section, "python").remove(0);
    assert!(program.contains("\"/usr/share/holdfast/proto\""), "{program}");
    let program = program.replace("/usr/share/holdfast/proto", protos);
    let file = folder.path().join("handler.py");
    std::fs::write(&file, program).unwrap();
    let mut python = Command::new(client("venv/bin/python"));
    python.arg(&file).arg(&socket).arg("sized-port").stdin(Stdio::null()).kill_on_drop(true);
    let mut handler = python.spawn().unwrap();
    let gnmic = Gnmic::for_admin(&agent);
    let types = ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/type"];
    answer_with(&gnmic, &types, &["my-handler"]).await;
    let acme = "holdfast_native:/services/sized-port[name=acme]";
    update(&gnmic, acme, r#"{"bridge": "br0", "port": "eth1"}"#).await;
    assert_eq!(net.link("eth1").master.as_deref(), Some("br0"));
    assert!(handler.try_wait().unwrap().is_none(), "the handler goes on");
}
