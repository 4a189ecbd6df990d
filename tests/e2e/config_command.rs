//! `holdfast config`: the operator changes the configuration at the box itself.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use holdfast_proto::gnsi::pathz;
use holdfast_tests::agent::{AgentProcess, binary};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{packed, update};
use holdfast_tests::terminal::at_terminal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pathz::permit_user;

/// Runs `holdfast config ARGUMENTS` with this text on standard input.
fn run(agent: &AgentProcess, arguments: &[&str], input: &str) -> Output {
    let mut command = agent.command("config");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
pub(crate) fn config(agent: &AgentProcess, arguments: &[&str], input: &str) -> String {
    let output = run(agent, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn refused(agent: &AgentProcess, arguments: &[&str], input: &str) -> String {
    let output = run(agent, arguments, input);
    assert!(!output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

async fn start() -> (Netns, AgentProcess) {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    (net, agent)
}

/// UNION.md, cases 15 and 16, on a box that is configured by a controller and by hand.
#[tokio::test]
async fn a_leaf_is_changed_where_its_origin_holds_it() {
    let (net, agent) = start().await;
    let client = agent.gnmi().await;
    let port = json!({"name": "eth0", "config": {"name": "eth0", "mtu": 1414, "description": "to the core"}});
    client.update("/interfaces", json!({"interface": [port]})).await.unwrap();
    assert_eq!(
        config(&agent, &["set", "/interfaces/interface[name=eth1]/mtu", "1300"], ""),
        "+ interface eth1 mtu 1300\n"
    );
    let shown =
        "interface eth0\n  description \"to the core\"\n  mtu 1400\ninterface eth1\n  mtu 1300\n";
    assert_eq!(config(&agent, &["show"], ""), shown);
    assert_eq!(config(&agent, &["diff", "-"], shown), "");
    assert_eq!(
        config(&agent, &["replace", "-"], shown),
        "the configuration was like that already\n"
    );
    let owners = config(&agent, &["show", "--owner", "interfaces/interface[name=eth0]"], "");
    assert!(owners.contains("mtu 1400 # client openconfig\n"), "{owners}");

    // The same leaf by the path of OpenConfig, and by text.
    let path = "/interfaces/interface[name=eth0]/config/mtu";
    let changed = "- interface eth0 mtu 1400\n+ interface eth0 mtu 1350\n";
    assert_eq!(config(&agent, &["set", path, "1364"], ""), changed);
    assert_eq!(net.link("eth0").mtu, 1350);
    config(&agent, &["set", "-"], "interface eth0 mtu 1351\ninterface eth1\n  enabled false\n");
    assert_eq!((net.link("eth0").mtu, net.link("eth1").up), (1351, false));
    let openconfig = config(&agent, &["show", "--format", "openconfig"], "");
    let openconfig: Value = serde_json::from_str(&openconfig).unwrap();
    let held = &openconfig["openconfig-interfaces:interfaces"]["interface"][0]["config"];
    assert_eq!(held["mtu"], 1365, "{openconfig}");
    let native: Value =
        serde_json::from_str(&config(&agent, &["show", "--format", "json"], "")).unwrap();
    assert_eq!(native["holdfast:interfaces"]["interface"][1]["mtu"], 1300, "{native}");

    let words = ["set", "interface", "eth1", "description", "to the edge"];
    assert_eq!(config(&agent, &words, ""), "+ interface eth1 description \"to the edge\"\n");
    assert!(config(&agent, &["show", "interface", "eth1"], "").starts_with("interface eth1\n"));
    // As clients of gNMI write it, with the origin.
    let path = "holdfast_native:/interfaces/interface[name=eth1]";
    assert!(config(&agent, &["show", path], "").starts_with("interface eth1\n"));
    config(&agent, &["delete", &format!("{path}/description")], "");
    config(&agent, &["delete", "interfaces/interface[name=eth0]"], "");
    assert_eq!(config(&agent, &["show"], ""), "interface eth1\n  enabled false\n  mtu 1300\n");
    config(&agent, &["set", "-"], "no interface eth1\n");
    assert_eq!(config(&agent, &["show"], ""), "");
}

#[tokio::test]
async fn a_dry_run_shows_the_difference_and_its_plan_is_the_one_that_is_made() {
    let (net, agent) = start().await;
    config(&agent, &["set", "-"], "interface eth0\n  mtu 1400\n");
    let change = "interface eth0 mtu 1500\ninterface br7\n  type bridge\ninterface eth9 ipv4 address 10.0.0.1 prefix-length 24\n";
    let plan = config(&agent, &["set", "--dry-run", "-"], change);
    let hash = plan.lines().find_map(|line| line.strip_prefix("plan ")).expect(&plan).to_owned();
    for line in [
        "- interface eth0 mtu 1400\n+ interface eth0 mtu 1500\n",
        "+ interface br7 type bridge\n",
        "  changed in place  link eth0\n",
        "  created           link br7\n",
        "  address eth9/10.0.0.1 waits for link eth9, IPv4 on link eth9\n",
    ] {
        assert!(plan.contains(line), "`{line}` is not in:\n{plan}");
    }
    assert_eq!(net.link("eth0").mtu, 1400);
    let json = config(&agent, &["set", "--dry-run", "--json", "-"], change);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["plan"], json!(hash), "{json}");

    let other = refused(&agent, &["set", "--expect", "0123456789abcdef", "-"], change);
    assert!(other.contains("repeat the dry run"), "{other}");
    config(&agent, &["set", "--expect", &hash, "-"], change);
    assert_eq!(net.link("eth0").mtu, 1500);
    assert!(net.find_link("br7").is_some());
}

#[tokio::test]
async fn a_change_that_nobody_confirms_is_taken_back() {
    let (net, agent) = start().await;
    let set = |within: &str, mtu: &str| {
        let path = "/interfaces/interface[name=eth0]/mtu";
        config(&agent, &["set", "--confirm-within", within, path, mtu], "")
    };
    let answer = set("5m", "1400");
    assert!(
        answer.contains("is taken back in 5m unless `holdfast config confirm` keeps it"),
        "{answer}"
    );
    let pending = agent.show("pending");
    assert!(pending.contains("waits to be confirmed; it is rolled back in"), "{pending}");
    let second = refused(&agent, &["set", "/interfaces/interface[name=eth0]/mtu", "1300"], "");
    assert!(second.contains("waits to be confirmed or cancelled"), "{second}");
    assert!(config(&agent, &["cancel"], "").ends_with("is taken back\n"));
    assert_eq!(net.link("eth0").mtu, 1500);
    set("5m", "1401");
    assert!(refused(&agent, &["confirm", "other"], "").contains("is not `other`"));
    assert!(config(&agent, &["confirm"], "").ends_with("is kept\n"));
    assert!(refused(&agent, &["confirm"], "").contains("no commit waits"));
    set("1s", "1402");
    eventually("it is taken back", || net.link("eth0").mtu == 1401).await;
}

/// A file has as much room as a Set.
#[tokio::test]
async fn a_file_of_many_routes_is_one_change() {
    const ROUTES: usize = 20_000;
    let (net, agent) = start().await;
    config(
        &agent,
        &["set", "interface", "eth0", "ipv4", "address", "10.0.0.1", "prefix-length", "24"],
        "",
    );
    let route = |number: usize| {
        let prefix = format!("20.{}.{}.0/24", number / 256, number % 256);
        format!("    route {prefix} next-hop 0 next-hop 10.0.0.2\n")
    };
    let routes: String = (0..ROUTES).map(route).collect();
    let text = format!("network-instance DEFAULT\n  static static\n{routes}");
    let shown = config(&agent, &["set", "-"], &text);
    assert!(shown.contains(&format!("... and {} more lines", ROUTES - 10_000)), "{shown}");
    assert_eq!(net.routes("150").len(), ROUTES);
    let log = config(&agent, &["log"], "");
    assert!(log.lines().last().unwrap().contains(&ROUTES.to_string()), "{log}");
    config(&agent, &["rollback", "1"], "");
    assert_eq!(net.routes("150").len(), 0);
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_place() {
    let (_net, agent) = start().await;
    let mtu = "/interfaces/interface[name=eth0]/mtu";
    for (arguments, input, reason) in [
        (&["set", "-"][..], "interface eth0\n  mtuu 1\n  mtu many\n", "line 2: `mtuu 1`"),
        (&["set", "-"], "interface eth0\n  mtuu 1\n  mtu many\n", "line 3: `mtu many`"),
        (&["set", "-"], "{\"a\": 1}", "no such node"),
        (&["set", "-"], "{\"holdfast:system\": {\"hostname\": 7}}", "/system/hostname"),
        (&["set", mtu, "many"], "", "path `/interfaces/interface[name=eth0]/mtu`"),
        (&["set", mtu, "1", "2"], "", "the leaf has one value"),
        (&["set", "/interfaces/interface[name=eth0]", "1"], "", "the path is not a leaf"),
        (&["set", "/nothing/here", "1"], "", "path `/nothing/here`"),
        (&["set", "interface", "eth0", "mtuu", "1"], "", "unknown word `mtuu`"),
        (&["set", mtu], "", "to set a leaf, give its value after its path"),
        (&["set", "--format", "text", mtu, "1400"], "", "`--format` is for a file"),
        (&["set", "--expect", "zz", mtu, "1400"], "", "it has 16 hexadecimal digits"),
        (&["set", "--confirm-within", "soon", mtu, "1400"], "", "not a time such as"),
        (&["delete", "/interfaces/interface[name=*]/mtu"], "", "wildcard"),
        (&["show", "/system/nothing"], "", "path `/system/nothing`"),
        (&["show", "holdfast_native:/system/nothing"], "", "path `/system/nothing`"),
        (&["show", "openconfig:/interfaces/interface[name=eth0]/mtu"], "", "the model has no"),
        (&["import", "-"], "{}", "is not a document that `holdfast config export` made"),
        (&["replace", "/no/such/file"], "", "cannot read `/no/such/file`"),
    ] {
        let error = refused(&agent, arguments, input);
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
    assert_eq!(config(&agent, &["show"], ""), "");
}

#[tokio::test]
async fn what_was_exported_makes_a_like_box() {
    let (net, agent) = start().await;
    let client = agent.gnmi().await;
    let port = json!({"name": "eth0", "config": {"name": "eth0", "mtu": 1414}});
    client.update("/interfaces", json!({"interface": [port]})).await.unwrap();
    config(&agent, &["set", "-"], "interface eth1 mtu 1300\n");
    let export = config(&agent, &["export"], "");
    let [text, openconfig] = [&["show"][..], &["show", "--format", "openconfig"]]
        .map(|arguments| config(&agent, arguments, ""));
    config(&agent, &["replace", "-"], "system domain-name example\n");
    assert_eq!(net.link("eth0").mtu, 1500);
    let damaged = export.replace("1300", "1301");
    assert!(refused(&agent, &["import", "-"], &damaged).contains("checksum"));
    config(&agent, &["import", "-"], &export);
    assert_eq!(config(&agent, &["show"], ""), text);
    assert_eq!(config(&agent, &["show", "--format", "openconfig"], ""), openconfig);
    assert_eq!((net.link("eth0").mtu, net.link("eth1").mtu), (1400, 1300));
    assert_eq!(config(&agent, &["export"], ""), export);
}

/// A person edits the text, sees what that does, and says `yes`. Changes of others meanwhile stay.
#[tokio::test]
async fn an_editor_changes_what_the_person_changed() {
    let (net, agent) = start().await;
    config(&agent, &["set", "-"], "interface eth0 mtu 1400\ninterface eth1 mtu 1300\n");
    let folder = TempDir::new().unwrap();
    let edit = |script: &str, answers: &str| {
        let path = folder.path().join("editor");
        fs::write(&path, script).unwrap();
        let mut command = agent.command("config");
        command.arg("edit").env("VISUAL", format!("sh {}", path.display()));
        let run = at_terminal(&command, answers);
        (run.has_succeeded, run.shown)
    };
    let to_1401 = "sed -i 's/mtu 1400/mtu 1401/' \"$1\"";
    let (done, shown) = edit(to_1401, "no\n");
    assert!(!done && shown.contains("+ interface eth0 mtu 1401"), "{shown}");
    assert_eq!(net.link("eth0").mtu, 1400);
    let (done, shown) = edit(to_1401, "yes\n");
    assert!(done && shown.contains("changed in place  link eth0"), "{shown}");
    assert_eq!((net.link("eth0").mtu, net.link("eth1").mtu), (1401, 1300));
    // The first text has a mistake; the person edits it again.
    let mends = "grep -q wrong \"$1\" && sed -i 's/wrong/1402/' \"$1\" || sed -i 's/mtu 1401/mtu wrong/' \"$1\"";
    let (done, shown) = edit(mends, "yes\nyes\n");
    assert!(done && shown.contains("`mtu wrong`"), "{shown}");
    assert_eq!(net.link("eth0").mtu, 1402);
    let (done, shown) = edit("true", "");
    assert!(done && shown.contains("nothing is changed"), "{shown}");
    let (done, shown) = edit("exit 3", "");
    assert!(!done && shown.contains("nothing is changed"), "{shown}");
}

/// Who changed what, when, from where and why; and the way back.
#[tokio::test]
async fn the_log_says_who_changed_what_and_leads_back() {
    let (net, mut agent) = start().await;
    assert_eq!(config(&agent, &["log"], ""), "");
    let set = |agent: &AgentProcess, mtu: &str, comment: &str| {
        let words = ["set", "--comment", comment, "interface", "eth0", "mtu", mtu];
        config(agent, &words, "")
    };
    set(&agent, "1400", "ticket 4711");
    let port = json!({"name": "eth1", "config": {"name": "eth1", "mtu": 1414}});
    agent.gnmi().await.update("/interfaces", json!({"interface": [port]})).await.unwrap();
    assert_eq!(
        config(&agent, &["checkpoint", "before-upgrade"], ""),
        "`before-upgrade` keeps revision 2\n"
    );
    set(&agent, "1401", "a mistake");
    config(&agent, &["delete", "interface", "eth1"], "");

    let log = config(&agent, &["log"], "");
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][0], "REVISION", "{log}");
    let rows = [
        ("1", "local", "the"),
        ("2", "admin", "127.0.0.1"),
        ("3", "local", "the"),
        ("4", "local", "the"),
    ];
    for (line, (number, author, from)) in lines[1..].iter().zip(rows) {
        assert_eq!((line[0], line[2], line[3]), (number, author, from), "{log}");
    }
    assert!(log.contains("ticket 4711") && log.contains(" gnmi "), "{log}");
    let shown = config(&agent, &["log", "3"], "");
    for part in [
        "comment   a mistake\n",
        "- interface eth0 mtu 1400\n+ interface eth0 mtu 1401\n",
        "link eth0",
    ] {
        assert!(shown.contains(part), "`{part}` is not in:\n{shown}");
    }
    assert_eq!(
        config(&agent, &["diff", "3"], ""),
        "- interface eth0 mtu 1400\n+ interface eth0 mtu 1401\n"
    );
    assert!(refused(&agent, &["log", "77"], "").contains("there is no revision 77"));

    agent.restart().await;
    let plan = config(&agent, &["rollback", "--dry-run", "2"], "");
    let back = "- interface eth0 mtu 1401\n+ interface eth0 mtu 1400\n+ interface eth1 mtu 1400\n";
    assert!(plan.starts_with(back) && plan.contains("plan "), "{plan}");
    assert_eq!(net.link("eth0").mtu, 1401);
    assert_eq!(config(&agent, &["rollback", "--comment", "back", "2"], ""), back);
    assert_eq!((net.link("eth0").mtu, net.link("eth1").mtu), (1400, 1400));
    let openconfig = config(&agent, &["show", "--format", "openconfig"], "");
    assert!(openconfig.contains("1414"), "eth1 is OpenConfig's again: {openconfig}");
    let between = config(&agent, &["diff", "0", "before-upgrade"], "");
    assert!(between.contains("+ interface eth1 mtu 1400"), "{between}");
    assert_eq!(config(&agent, &["diff", "2", "2"], ""), "");
    assert!(refused(&agent, &["diff", "2", "99"], "").contains("99"));
    config(&agent, &["rollback", "0"], "");
    assert_eq!(config(&agent, &["show"], ""), "");
    config(&agent, &["rollback", "--confirm-within", "5m", "before-upgrade"], "");
    config(&agent, &["cancel"], "");
    assert_eq!(config(&agent, &["show"], ""), "");
    config(&agent, &["rollback", "before-upgrade"], "");
    assert_eq!((net.link("eth0").mtu, net.link("eth1").mtu), (1400, 1400));

    let checkpoints = config(&agent, &["checkpoint"], "");
    assert!(checkpoints.contains("before-upgrade"), "{checkpoints}");
    assert!(refused(&agent, &["checkpoint", "7"], "").contains("names a revision"));
    assert!(refused(&agent, &["checkpoint", "a b"], "").contains("letters, digits"));
    config(&agent, &["checkpoint", "--delete", "before-upgrade"], "");
    assert_eq!(config(&agent, &["checkpoint"], ""), "");
    assert!(refused(&agent, &["rollback", "before-upgrade"], "").contains("before-upgrade"));
    assert!(refused(&agent, &["rollback", "99"], "").contains("99"));
}

/// An account of the box that every Debian has, and another one.
const ACCOUNT: &str = "daemon";
const STRANGER: &str = "games";

/// Leaves of services and fences are named, and are not taken for a part of what clients have set.
#[tokio::test]
async fn services_and_fences_are_told_apart_from_what_clients_have_set() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let packages = packed("bridge-port");
    let agent =
        AgentProcess::start_with(&net, &["--services", packages.path().to_str().unwrap()]).await;
    let acme = "holdfast_native:/services/bridge-port[name=acme]";
    let parameters = r#"{"bridge": "br0", "port": ["eth1"], "gateway": "192.0.2.1/24"}"#;
    update(&Gnmic::for_admin(&agent), acme, parameters).await;
    config(&agent, &["set", "interface", "eth0", "description", "uplink"], "");

    let plan = config(&agent, &["rollback", "--dry-run", "1"], "");
    let lines: Vec<&str> = plan.lines().collect();
    assert_eq!(lines[0], "- interface eth0 description uplink", "{plan}");
    assert!(lines[1].starts_with("plan "), "the service keeps what it has set: {plan}");
    let plan = config(&agent, &["delete", "--dry-run", "/services/bridge-port[name=acme]"], "");
    for part in ["  bridge-port[name='acme']\n", "link br0", "removed"] {
        assert!(plan.contains(part), "`{part}` is not in {plan}");
    }

    let owners = |agent: &AgentProcess| config(agent, &["show", "--owner"], "");
    assert!(!owners(&agent).contains("fenced"), "nothing is fenced");
    let force_down = ["force-down", "interface:eth0", "--fence"];
    let output = agent.command("fault").args(force_down).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = owners(&agent);
    let fenced = shown.split_once("# fenced, whatever is set above:\n").unwrap().1;
    assert!(
        fenced.starts_with(
            "# interface eth0 # fence of latch local\n#   enabled false # fence of latch local"
        ),
        "{shown}"
    );
    assert!(!config(&agent, &["show"], "").contains("enabled false"), "it is not configured");
    let elsewhere = config(&agent, &["show", "--owner", "/interfaces/interface[name=eth1]"], "");
    assert!(!elsewhere.contains("fenced"), "{elsewhere}");
}

/// Runs a command as an account of the box, by the socket for users.
fn run_as(account: &str, socket: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", account, "--clear-groups", "--"]).arg(binary());
    let output = command.args(arguments).arg("--socket").arg(socket).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// People of the box have the rights of the agent's user with the name of their account.
#[tokio::test]
async fn a_person_of_the_box_has_the_role_of_the_user_of_that_name() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("users.sock");
    let path = socket.to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--user-socket", path]).await;
    let mtu = "/interfaces/interface[name=eth0]/mtu";
    let set = |value: &str| run_as(ACCOUNT, &socket, &["config", "set", mtu, value]);
    assert!(
        run_as(ACCOUNT, &socket, &["config", "show"])
            .unwrap_err()
            .contains("a user who has a role")
    );

    assert!(
        agent.user(&["set", ACCOUNT, "--role", "read-only"], "secret of daemon").status.success()
    );
    assert_eq!(run_as(ACCOUNT, &socket, &["config", "show"]), Ok(String::new()));
    let refusal = set("1400").unwrap_err();
    assert!(
        refusal.contains("`daemon` has the role read-only, gnmi.gNMI/Set needs admin"),
        "{refusal}"
    );
    let refusal = run_as(ACCOUNT, &socket, &["config", "confirm"]).unwrap_err();
    assert!(refusal.contains("needs admin"), "{refusal}");
    assert!(run_as(STRANGER, &socket, &["config", "show"]).is_err());
    let root_only = run_as(ACCOUNT, &socket, &["user", "list"]).unwrap_err();
    assert!(root_only.contains("for root"), "{root_only}");

    assert!(agent.user(&["set", ACCOUNT, "--role", "admin"], "secret of daemon").status.success());
    assert_eq!(set("1400"), Ok("+ interface eth0 mtu 1400\n".to_owned()));
    assert_eq!(net.link("eth0").mtu, 1400);
    let transactions = agent.show("transactions");
    assert!(transactions.contains("by daemon"), "{transactions}");
}

/// Alarms, maintenance and services are served with the rights that their RPCs ask for, and the pathz policy hides here what
/// it hides there.
#[tokio::test]
async fn a_person_of_the_box_sees_what_the_policies_permit() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path().join("users.sock");
    let agent = AgentProcess::start_with(&net, &["--user-socket", socket.to_str().unwrap()]).await;
    let user = |role: &str| agent.user(&["set", ACCOUNT, "--role", role], "secret of daemon");
    let run = |arguments: &[&str]| run_as(ACCOUNT, &socket, arguments);
    config(&agent, &["set", "-"], "interface eth0\n  mtu 1400\ninterface eth1\n  mtu 1400\n");
    for peer in ["peer0", "peer1"] {
        net.ip(&format!("link set {peer} down"));
    }
    let alarm = "link-down@interface:eth0";
    let other = "link-down@interface:eth1";

    assert!(user("read-only").status.success());
    let both = || run(&["fault", "list"]).is_ok_and(|it| it.contains(alarm) && it.contains(other));
    eventually("both alarms are shown", both).await;
    assert!(run(&["show", "config"]).unwrap().contains("eth1"));
    assert_eq!(run(&["maintenance", "list"]), Ok(String::new()));
    for refused in [
        &["fault", "ack", alarm][..],
        &["fault", "force-down", "interface:eth0"],
        &["maintenance", "create", "interface:eth0", "--in", "60"],
        &["service", "list"],
        &["service", "check-sync"],
    ] {
        let refusal = run(refused).unwrap_err();
        assert!(refusal.contains("needs admin"), "{refused:?}: {refusal}");
    }

    assert!(user("admin").status.success());
    run(&["fault", "ack", alarm]).unwrap();
    let shown = agent.command("fault").args(["show", alarm]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("daemon"), "{shown}");
    assert_eq!(run(&["service", "list"]), Ok(String::new()));

    let readable = "holdfast_native:/interfaces/interface[name=eth0]";
    let rights =
        [(readable, pathz::Mode::Read), ("holdfast_native:/fault-state", pathz::Mode::Read)];
    permit_user(&agent, "one", ACCOUNT, &rights).await;
    let listed = run(&["fault", "list"]).unwrap();
    assert!(listed.contains(alarm) && !listed.contains(other), "{listed}");
    assert!(run(&["fault", "show", alarm]).is_ok());
    assert!(run(&["fault", "show", other]).unwrap_err().contains("is open"));
    let refusal = run(&["show", "config"]).unwrap_err();
    assert!(refusal.contains("does not let `daemon` read everything"), "{refusal}");
}
