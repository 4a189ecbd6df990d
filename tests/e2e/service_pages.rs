//! Command lines and the handler of the guide on services, run as somebody would who pastes them.

use std::fs;
use std::process::Stdio;

use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::clients::{Gnmic, client};
use holdfast_tests::eventually::eventually;
use holdfast_tests::guide;
use holdfast_tests::netns::Netns;
use holdfast_tests::pages::{Shell, blocks, commands};
use holdfast_tests::services::{answer_with, port_package, sized_port, update};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The folder in which the guide has the packages of a box.
const FOLDER: &str = "/usr/share/holdfast/services";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");
const PROTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/protos");

/// The commands of the shell block of the guide in which this one is.
fn lines_with(heading: &str, part: &str) -> Vec<String> {
    let blocks = blocks(&guide::section(heading), "sh");
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
    let lines: [_; 6] = lines("Write a service package", "holdfast service new");
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
    const HEADING: &str = "Run services";
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
    const HEADING: &str = "Run services";
    let net = Netns::enter().with_veth("eth1", "peer1");
    let shell = Shell::new();
    let folder = shell.path("services").display().to_string();
    let [pack, run, make, show, delete] = lines(HEADING, "holdfast service pack");
    shell.run(&format!("ln -s {PACKAGING} packaging"));
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

/// The effects of the operations are tested by name elsewhere; here, their arguments are as the guide says.
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
    let lines = lines_with("Run services", "holdfast service redeploy");
    assert!(lines.len() >= 13, "{lines:#?}");
    // Operations without an object, in the order of the guide.
    let refusals = [
        ("reschedule", "there is no call 7"),
        ("cancel", "there is no call 7"),
        ("resolve", "there is no call 7"),
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

const HANDLERS: &str = "Write a handler of services";

/// The outline of the guide before its handler, with the parts that it leaves out.
fn outline() -> String {
    let outline = blocks(&guide::section(HANDLERS), "toml").remove(0);
    let header = "[service]\nname = \"sized-port\"\nversion = \"1.0.0\"\n";
    let grants = "[grants]\nwrite = [\"/interfaces/interface\"]\n[handler]";
    let outline = outline.replace("[service]\n", header).replace("[handler]", grants);
    let tree = "\n[[tree]]\ncreate = { type = \"access\", name = \"params.port\" }\n";
    outline.replace("\"bridge-access\"", "\"root\"") + tree
}

/// The handler of the guide.
fn program() -> String {
    let program = blocks(&guide::section(HANDLERS), "python").remove(0);
    assert!(program.contains("\"/usr/share/holdfast/proto\""), "{program}");
    program.replace("/usr/share/holdfast/proto", PROTOS)
}

/// A text with another one before the only line that begins so.
fn with_before(text: &str, line: &str, more: &str) -> String {
    let at = text.find(&format!("\n{line}")).unwrap_or_else(|| panic!("no `{line}`: {text}")) + 1;
    format!("{}{more}{}", &text[..at], &text[at..])
}

/// A box with an instance of the type of the guide, and the handler that serves it.
struct HandledBox {
    net: Netns,
    gnmic: Gnmic,
    folder: TempDir,
    handler: Child,
    _agent: AgentProcess,
    _packages: TempDir,
}

impl HandledBox {
    const ACME: &str = "holdfast_native:/services/sized-port[name=acme]";

    async fn start(outline: &str, program: &str) -> Self {
        let packages = port_package(outline);
        let net = Netns::enter().with_veth("eth1", "peer1");
        net.ip("link add br0 type bridge");
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("services.sock");
        let services = packages.path().to_str().unwrap();
        let path = socket.to_str().unwrap();
        let options = ["--services", services, "--service-socket", path];
        let agent = AgentProcess::start_with(&net, &options).await;
        let file = folder.path().join("handler.py");
        fs::write(&file, program).unwrap();
        let mut python = Command::new(client("venv/bin/python"));
        python.arg(&file).arg(&socket).arg("sized-port").stdin(Stdio::null()).kill_on_drop(true);
        let handler = python.current_dir(folder.path()).spawn().unwrap();
        let gnmic = Gnmic::for_admin(&agent);
        let types = ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/type"];
        answer_with(&gnmic, &types, &["my-handler"]).await;
        update(&gnmic, Self::ACME, r#"{"bridge": "br0", "port": "eth1"}"#).await;
        Self { net, gnmic, folder, handler, _agent: agent, _packages: packages }
    }

    /// Checks that the handler goes on.
    fn check_handler(&mut self) {
        assert!(self.handler.try_wait().unwrap().is_none(), "the handler goes on");
    }
}

#[tokio::test]
async fn the_handler_of_the_guide_makes_what_an_instance_asks_for() {
    // The folder of its files is made as the guide says.
    let shell = Shell::new();
    let [protos] = lines(HANDLERS, "cp -r proto/protos");
    let share = shell.path("share").display().to_string();
    shell.run(&format!("ln -s {PROTOS}/.. proto"));
    shell.run(&protos.replace("/usr/share/holdfast", &share));
    let program = blocks(&guide::section(HANDLERS), "python").remove(0);
    let program = program.replace("/usr/share/holdfast", &share);

    let mut on = HandledBox::start(&outline(), &program).await;
    assert_eq!(on.net.link("eth1").master.as_deref(), Some("br0"));
    on.gnmic.run(&["set", "--delete", HandledBox::ACME]).await;
    let master = || on.net.link("eth1").master;
    eventually("what it put out is gone", || master().is_none()).await;
    on.net.ip("link add br1 type bridge");
    update(&on.gnmic, HandledBox::ACME, r#"{"bridge": "br1", "port": "eth1"}"#).await;
    assert_eq!(master().as_deref(), Some("br1"), "nothing of the first one has stayed");
    on.check_handler();
}

/// A handler that takes one call of a state is named where another one is missing.
#[tokio::test]
async fn a_call_that_no_handler_takes_is_named() {
    let delete = "phases = [messages.PHASE_CREATE, messages.PHASE_DELETE]";
    let program = program();
    assert!(program.contains(delete), "{program}");
    let program = program.replace(delete, "phases = [messages.PHASE_CREATE]");
    let mut on = HandledBox::start(&outline(), &program).await;
    let refused = on.gnmic.outcome(&["set", "--delete", HandledBox::ACME]).await.unwrap_err();
    assert!(refused.contains("no handler takes its delete call"), "{refused}");
    assert!(refused.contains("takes its create call"), "{refused}");
    on.check_handler();
}

/// The lines that the guide adds to its handler for a purpose: those before it registers, and the others.
fn added_lines(heading: &str) -> [String; 2] {
    let block = blocks(&guide::section(heading), "python").remove(0);
    let (before, others) = block.split_once("\n\n").unwrap_or_else(|| panic!("one part: {block}"));
    [format!("{before}\n"), others.to_owned()]
}

/// Functions that the guide leaves to the reader: the work of an action, and an allocation.
const OWN_WORK: &str = r#"
def act(name, params):
    with open("acts", "a") as acts:
        acts.write(f"{name} {params['name']} {params.get('port')}\n")
    return {"done": name}

def allocate(name):
    return len(name)

"#;

#[tokio::test]
async fn the_lines_of_the_guide_on_actions_and_modification_add_to_its_handler() {
    let [registered, branches] = added_lines("Actions of a handler");
    let [modified, calls] = added_lines("Output that lasts");
    let program = with_before(&program(), "say(register=", &(registered + &modified + OWN_WORK));
    let program = with_before(&program, "            path = ", &(calls + "\n")) + &branches;

    let actions = blocks(&guide::section("Actions of a handler"), "toml").remove(0);
    let own = "  delete = { work = \"handler\" }";
    let outline = outline();
    let line = outline.lines().find(|line| line.starts_with(own)).unwrap();
    let outline = outline.replace(line, &actions);
    let outline = outline.replace("[handler]", "[handler]\nmodification = true");
    let mut on = HandledBox::start(&outline, &program).await;
    assert_eq!(on.net.link("eth1").master.as_deref(), Some("br0"));
    let effective = ["-e", "ascii", "get", "--type", "config", "--path", "cli:/show effective"];
    let shown = on.gnmic.run(&effective).await;
    assert!(shown.contains("in service before"), "the last call has put it out: {shown}");
    let file = on.folder.path().join("acts");
    let acts = || fs::read_to_string(&file).unwrap_or_default();
    eventually("the action is carried out", || acts() == "create acme eth1\n").await;
    on.gnmic.run(&["set", "--delete", HandledBox::ACME]).await;
    let all = "create acme eth1\ndestroy acme None\n";
    eventually("the other action is carried out", || acts() == all).await;
    on.check_handler();
}

#[tokio::test]
async fn the_commands_on_the_guest_make_one_with_its_handler() {
    let net = Netns::enter();
    let shell = Shell::new();
    let [folder, socket] =
        ["services", "services.sock"].map(|name| shell.path(name).display().to_string());
    let page = fs::read_to_string(format!("{PACKAGING}/services/guest/README.md")).unwrap();
    let block = blocks(&page, "sh").remove(0);
    let block = block.replace(FOLDER, &folder).replace("/run/holdfast/services.sock", &socket);
    let lines: [_; 3] = commands(&block).try_into().unwrap();
    let [pack, run, handler] = lines.map(|line| line.trim_end_matches(" &").to_owned());
    shell.run(&format!("ln -s {PACKAGING} packaging"));
    shell.run(&pack);
    let options: Vec<&str> = run.strip_prefix("holdfast run ").unwrap().split(' ').collect();
    let agent = AgentProcess::start_with(&net, &options).await;
    let python = client("venv/bin/python");
    shell.run(&format!(
        "printf '#!/bin/sh\\nexec {} \"$@\"\\n' > bin/python3 && chmod +x bin/python3",
        python.display()
    ));
    let mut handler = shell.spawn(&handler, &[("HOLDFAST_PROTO", PROTOS)]);

    let name = format!("hf-page-{}", std::process::id());
    let path = format!("holdfast_native:/services/guest[name={name}]");
    let params = blocks(&page, "json").remove(0).replace("\"web\"", &format!("\"{name}\""));
    let gnmic = Gnmic::for_admin(&agent);
    let types = ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/type"];
    answer_with(&gnmic, &types, &["guest"]).await;
    update(&gnmic, &path, &params).await;
    eventually("the guest has its address", || {
        net.find_link("guest0").is_some() && net.addresses("guest0") == ["192.0.2.1/24"]
    })
    .await;
    gnmic.run(&["set", "--delete", &path]).await;
    eventually("the guest is gone", || net.find_link("guest0").is_none()).await;
    assert!(handler.try_wait().unwrap().is_none(), "the handler goes on");
    // The type has actions alone, and is served as long as somebody carries them out.
    answer_with(&gnmic, &types, &["served\":true"]).await;
    handler.kill().await.unwrap();
    answer_with(&gnmic, &types, &["served\":false"]).await;
}
