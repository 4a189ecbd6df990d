//! `holdfast show interfaces` and the other tables for people, with real links, routes of others and a terminal.

use std::process::Command;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{sized_port, sized_port_path, update};
use holdfast_tests::terminal::at_terminal;
use serde_json::{Value, json};

use crate::config_command::config;
use crate::documents::{STATIC_ROUTES, port, route};

/// Standard output of a command, or its error message.
fn run(agent: &AgentProcess, command: &str, words: &str) -> Result<String, String> {
    let output = agent.command(command).args(words.split_whitespace()).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

fn show(agent: &AgentProcess, words: &str) -> String {
    run(agent, "show", words).unwrap_or_else(|error| panic!("show {words}: {error}"))
}

fn show_json(agent: &AgentProcess, words: &str) -> Value {
    serde_json::from_str(&show(agent, &format!("{words} --json"))).unwrap()
}

/// The line of a table that begins with a word, with single blanks between its cells.
fn line_of(table: &str, name: &str) -> String {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{table}"));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text that a command prints at a terminal until it ends, or is ended after two seconds.
fn at_a_terminal(agent: &AgentProcess, words: &str, variables: &[(&str, &str)]) -> String {
    let mut shown = ended_after_two_seconds(agent, words);
    shown.env_remove("NO_COLOR").envs(variables.iter().copied());
    at_terminal(&shown, "").shown
}

fn ended_after_two_seconds(agent: &AgentProcess, words: &str) -> Command {
    let command = agent.command("show");
    let mut ended = Command::new("timeout");
    ended.arg("2").arg(command.get_program()).args(command.get_args());
    ended.args(words.split_whitespace());
    ended
}

/// A port that works, one that is not plugged in, and a static route behind each.
async fn configure_both_ports(client: &GnmiClient) {
    let ports =
        json!({"interface": [port("eth0", &["192.0.2.1/24"]), port("eth7", &["10.7.0.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    let routes = [route("198.51.100.0/24", "192.0.2.2"), route("10.9.0.0/16", "10.7.0.2")];
    client.update(STATIC_ROUTES, json!({"static": routes})).await.unwrap();
}

#[tokio::test]
async fn interfaces_say_what_they_carry_and_why_they_are_down() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set peer0 up");
    net.ip("link set eth1 up");
    net.ip("link add eth2 link eth0 type macvlan mode bridge");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ports =
        json!({"interface": [port("eth0", &["192.0.2.1/24"]), port("eth7", &["10.7.0.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    eventually("the port is up", || line_of(&show(&agent, "interfaces"), "eth0").contains("UP UP"))
        .await;

    let table = show(&agent, "interfaces");
    assert!(table.starts_with("INTERFACE  ADMIN  OPER"), "{table}");
    let up = line_of(&table, "eth0");
    assert!(up.starts_with("eth0 UP UP 1500 192.0.2.1/24 "), "{up}");
    assert!(line_of(&table, "eth1").contains("LOWER_LAYER_DOWN"), "{table}");
    assert!(line_of(&table, "eth1").ends_with("the link below it is down"), "{table}");
    assert!(line_of(&table, "eth2").ends_with("nobody has set it up"), "{table}");
    assert!(line_of(&table, "eth7").contains("waits for"), "{table}");

    let one = show(&agent, "interfaces eth0");
    assert!(one.contains("address") && one.contains("in-octets"), "{one}");
    let document = show_json(&agent, "interfaces eth0");
    let eth0 = &document["interfaces"][0];
    assert_eq!(eth0["addresses"][0], "192.0.2.1/24", "{document}");
    assert!(eth0["rates"]["in-bits-per-second"].is_u64(), "{document}");

    net.ip("link set eth0 down");
    client.update("/interfaces/interface[name=eth0]/config/enabled", json!(false)).await.unwrap();
    eventually("the table says who has set it down", || {
        let line = line_of(&show(&agent, "interfaces"), "eth0");
        line.ends_with("configured as down by client openconfig")
    })
    .await;
    let refused = run(&agent, "show", "interfaces eth9").unwrap_err();
    assert!(refused.contains("there is no interface `eth9`"), "{refused}");
}

#[tokio::test]
async fn routes_are_those_of_every_program_with_ours_marked() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    net.ip("link set peer0 up");
    net.ip("link set eth1 up");
    net.ip("address add 203.0.113.1/24 dev eth1");
    net.ip("route add 10.66.0.0/16 via 203.0.113.2 proto bgp metric 20");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    configure_both_ports(&client).await;
    eventually("our route is there", || !net.routes("150").is_empty()).await;

    let table = show(&agent, "routes");
    let line = |prefix: &str| {
        let line = table.lines().find(|line| line.contains(prefix));
        line.unwrap_or_else(|| panic!("no {prefix} in\n{table}")).to_owned()
    };
    assert!(line("198.51.100.0/24").starts_with("*  198.51.100.0/24"), "{table}");
    assert!(line("198.51.100.0/24").contains("holdfast"), "{table}");
    assert!(line("192.0.2.0/24").contains("kernel"), "{table}");
    let bgp = line("10.66.0.0/16");
    assert!(bgp.starts_with("   10.66.0.0/16") && bgp.contains("bgp"), "{table}");
    assert!(bgp.contains("eth1 has no carrier"), "{table}");
    let pending = line("10.9.0.0/16");
    assert!(pending.starts_with('*') && pending.contains("PENDING"), "{table}");
    assert!(pending.contains("waits for gateway 10.7.0.2"), "{table}");
    let end = "prefix 10.7.0.0/24 of 10.7.0.1 on eth7 waits for link eth7 up; link eth7 waits for port eth7";
    assert!(pending.ends_with(end), "{table}");

    let prefixes = |words: &str| {
        let document = show_json(&agent, words);
        let routes = document["routes"].as_array().unwrap().iter();
        routes.map(|it| it["prefix"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(prefixes("routes 198.51.100.77"), ["198.51.100.0/24"]);
    assert_eq!(prefixes("routes 10.0.0.0/8"), ["10.9.0.0/16", "10.66.0.0/16"]);
    assert_eq!(prefixes("routes 172.16.0.1"), Vec::<String>::new());
    let refused = run(&agent, "show", "routes eth0").unwrap_err();
    assert!(refused.contains("`eth0` is neither an address nor a prefix"), "{refused}");
}

#[tokio::test]
async fn why_goes_to_the_end_of_the_chain_and_takes_names() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    configure_both_ports(&client).await;

    let route = show(&agent, "why 10.9.0.0/16");
    for part in [
        "`10.9.0.0/16` is taken for route 10.9.0.0/16",
        "it waits for: gateway 10.7.0.2",
        "metric 20 waits for gateway 10.7.0.2",
        "prefix 10.7.0.0/24 of 10.7.0.1 on eth7 waits for",
        "link eth7 waits for port eth7",
    ] {
        assert!(route.contains(part), "no `{part}` in\n{route}");
    }
    let gateway = run(&agent, "show", "why 10.7.0.2").unwrap();
    assert!(gateway.contains("`10.7.0.2` is taken for route 10.9.0.0/16"), "{gateway}");
    let quoted = agent.command("show").args(["why", "gateway 10.7.0.2"]).output().unwrap();
    let quoted = String::from_utf8(quoted.stdout).unwrap();
    assert!(quoted.contains("is taken for route 10.9.0.0/16"), "{quoted}");
    let address = show(&agent, "why 10.7.0.1");
    assert!(address.contains("`10.7.0.1` is taken for address 10.7.0.1/24 of eth7"), "{address}");
    for name in ["eth7", "link/eth7"] {
        let link = show(&agent, &format!("why {name}"));
        assert!(link.contains("link eth7: PENDING"), "{link}");
        let in_turn = link.split("needed in turn").nth(1).unwrap_or_default();
        assert!(in_turn.contains("route 10.9.0.0/16"), "{link}");
        assert!(!in_turn.contains("198.51.100.0/24"), "{link}");
    }
    let past = show(&agent, "timeline eth0");
    assert!(past.starts_with("`eth0` is taken for link eth0"), "{past}");
    assert!(past.contains("CONFIGURED"), "{past}");

    let lost = json!({"static": [crate::documents::route("10.8.0.0/16", "172.16.0.1")]});
    client.update(STATIC_ROUTES, lost).await.unwrap();
    let lost = show(&agent, "why 10.8.0.0/16");
    assert!(
        lost.contains("waits for gateway 172.16.0.1, and no configured prefix holds it"),
        "{lost}"
    );
    let unknown = run(&agent, "show", "why eth99").unwrap_err();
    assert!(unknown.contains("there is no value `eth99`"), "{unknown}");
}

#[tokio::test]
async fn the_box_its_users_and_its_state_are_shown() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    net.ip("link set eth0 up");
    net.ip("address add 192.0.2.1/24 dev eth0");
    net.ip("neighbor add 192.0.2.9 lladdr 02:00:00:00:00:09 dev eth0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let ada = json!({"username": "ada", "config": {"username": "ada", "role": "read-only"}});
    let users = "/system/aaa/authentication/users";
    client.update(users, json!({"user": [ada]})).await.unwrap();

    let neighbors = show(&agent, "neighbors eth0");
    assert!(
        line_of(&neighbors, "192.0.2.9").contains("02:00:00:00:00:09 eth0 PERMANENT"),
        "{neighbors}"
    );
    let system = show(&agent, "system");
    for part in ["host name", "version", "agent started", "127.0.0.1:9339", "LISTENING"] {
        assert!(system.contains(part), "no `{part}` in\n{system}");
    }
    let all = show(&agent, "users");
    assert_eq!(line_of(&all, "admin"), "admin admin holdfast user set", "{all}");
    assert_eq!(line_of(&all, "ada"), "ada read-only client openconfig", "{all}");

    let state = show_json(&agent, "state /system/state");
    assert!(state["openconfig-system:hostname"].is_string(), "{state}");
    let native =
        show_json(&agent, "state /interfaces/interface[name=eth0]/state --origin holdfast_native");
    assert_eq!(native["holdfast:oper-status"], "UP", "{native}");
    let all = show_json(&agent, "state /interfaces/interface[name=*]/state/oper-status");
    assert_eq!(all["/interfaces/interface[name=eth0]/state/oper-status"], "UP", "{all}");
    let refused = run(&agent, "show", "state /nowhere").unwrap_err();
    assert!(refused.contains("the model has no `/nowhere`"), "{refused}");
    for words in ["values", "pending", "listeners", "service-waits", "services", "users", "system"]
    {
        show_json(&agent, words);
    }
}

#[tokio::test]
async fn the_plan_of_one_service_has_times_and_what_its_states_wait_for() {
    let net = Netns::enter().with_veth("eth9", "peer9");
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let gnmic = Gnmic::for_admin(&agent);
    for name in ["acme", "bolt"] {
        let path = sized_port_path(name);
        update(&gnmic, &path, &format!(r#"{{"bridge": "br-{name}", "port": "eth9-{name}"}}"#))
            .await;
    }
    let plan = show(&agent, "services sized-port[name='acme']");
    assert!(plan.starts_with("sized-port[name='acme']  1.0.0  not-reached\nTYPE "), "{plan}");
    assert!(!plan.contains("bolt"), "{plan}");
    let sized = plan.lines().find(|line| line.contains(" sized ")).unwrap();
    assert!(sized.contains("not-reached  20"), "{plan}");
    assert!(sized.ends_with("waits for port eth9-acme"), "{plan}");
    let document = show_json(&agent, "services");
    assert_eq!(document["services"].as_array().unwrap().len(), 2, "{document}");
    let refused = run(&agent, "show", "services sized-port[name='none']").unwrap_err();
    assert!(refused.contains("there is no instance `sized-port[name='none']`"), "{refused}");
}

#[tokio::test]
async fn colours_and_redrawing_are_for_terminals() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    net.ip("link set eth0 up");
    let agent = AgentProcess::start(&net).await;
    let coloured = at_a_terminal(&agent, "interfaces", &[]);
    assert!(coloured.contains("\x1b[32mUP\x1b[0m"), "{coloured}");
    let plain = at_a_terminal(&agent, "interfaces", &[("NO_COLOR", "1")]);
    assert!(plain.contains("eth0") && !plain.contains('\x1b'), "{plain}");
    assert!(!show(&agent, "interfaces").contains('\x1b'));

    let drawn = at_a_terminal(&agent, "system --watch --interval 0.2", &[]);
    assert!(drawn.matches("\x1b[H\x1b[J").count() >= 2, "{drawn}");
    let piped = ended_after_two_seconds(&agent, "system --watch --interval 0.2").output().unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(piped.matches("host name").count() >= 2 && !piped.contains('\x1b'), "{piped}");
}

/// Words that the completion of a shell offers for a line, by the script that the program prints.
fn completed(agent: &AgentProcess, shell: &str, line: &str) -> String {
    let command = agent.command("completion");
    let program = command.get_args().nth(2).unwrap().to_string_lossy().into_owned();
    let folder = std::path::Path::new(&program).parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let script = match shell {
        "bash" => format!(
            "source <(holdfast completion bash); COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; \
             _holdfast; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        ),
        // The widgets of zsh need a terminal of their own; the function is called as they would.
        "zsh" => format!(
            "autoload -U compinit && compinit -u -D; compadd() {{ shift; print -l -- \"$@\" }}; \
             source <(holdfast completion zsh); words=({line}); \
             [[ '{line}' == *' ' ]] && words+=(''); CURRENT=$#words; _holdfast"
        ),
        _ => format!("holdfast completion fish | source; complete -C '{line}'"),
    };
    let mut run = Command::new(shell);
    run.arg("-c").arg(script).env("PATH", path).env("HOLDFAST_STATE_DIR", agent.state_dir());
    let output = run.output().unwrap_or_else(|error| panic!("{shell}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{shell}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn shells_complete_words_and_names_of_the_box() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let mut agent = AgentProcess::start(&net).await;
    config(&agent, &["set", "interface", "eth0", "mtu", "1400"], "");
    config(&agent, &["checkpoint", "before-upgrade"], "");
    let words = ["set", "fault-management", "monitor", "fans", "types", "x-fan"];
    config(&agent, &words, "");
    let report = ["report", "--monitor", "fans", "x-fan@box", "--ttl", "600"];
    assert!(agent.command("fault").args(report).status().unwrap().success());
    for shell in ["bash", "zsh", "fish"] {
        for (line, there, missing) in [
            ("holdfast sh", "show", "user"),
            ("holdfast show interfaces ", "eth0", "routes"),
            ("holdfast show interfaces pe", "peer0", "eth0"),
            ("holdfast show why link/e", "link/eth0", "link/peer0"),
            ("holdfast show state /sys", "/system", "/interfaces"),
            ("holdfast user delete ", "admin", "eth0"),
            ("holdfast show graph --format ", "raw", "eth0"),
            ("holdfast config set int", "interface", "interfaces"),
            ("holdfast config set interface ", "eth0", "mtu"),
            ("holdfast config delete interface eth0 m", "mtu", "eth0"),
            ("holdfast config show interface eth0 enabled ", "true", "mtu"),
            ("holdfast config rollback ", "before-upgrade", "eth0"),
            ("holdfast config diff ", "1", "eth0"),
            ("holdfast fault show x-", "x-fan@box", "eth0"),
        ] {
            let found = completed(&agent, shell, line);
            let has = |word: &str| found.lines().any(|it| it.split('\t').next() == Some(word));
            assert!(has(there) && !has(missing), "{shell}, {line}: {found}");
        }
    }
    agent.kill();
    assert_eq!(
        completed(&agent, "bash", "holdfast show interfaces e").trim(),
        "",
        "and no word of why"
    );
}
