//! `holdfast show`: every command with its arguments, against a running agent.

use holdfast_tests::agent::AgentProcess;
use serde_json::Value;

use crate::documents::{agent_with_route, port_with_route};

/// Output of a command, or its error message.
fn run_show(agent: &AgentProcess, words: &str) -> Result<String, String> {
    let output = agent.command("show").args(words.split_whitespace()).output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

// proves kv.T17
#[tokio::test]
async fn show_commands_print_only_the_selected_objects() {
    const ADDRESS: &str = "address/eth0/192.0.2.1";
    let (_net, agent, client) = agent_with_route().await;
    port_with_route(&client, "eth9").await;
    for (words, there, missing) in [
        ("config", "192.0.2.1", "oper-status"),
        ("state", "oper-status", "argon2"),
        ("values", "link/eth0", "oper-status"),
        ("values", ADDRESS, "oper-status"),
        ("pending", "eth9", "link eth0"),
        ("transactions", "waits: link/eth9", "{"),
        ("transactions --after 0 --limit 1", "#1 ", "#2 "),
        ("transactions --since 2001-01-01", "#1 ", "{"),
        ("transactions --since 2100-01-01", "", "eth0"),
        ("transactions --json", "{", "argon2"),
        ("transactions --since 2100-01-01T00:00:00Z", "", "eth0"),
        ("transactions --until 2001-01-01T00:00:00Z", "", "eth0"),
        ("timeline link/eth0", "CONFIGURED", "eth9"),
        ("timeline link/eth9 --json", "eth9", "eth0"),
        (&format!("timeline {ADDRESS}"), "192.0.2.1", "eth9"),
        ("graph", "<svg", "digraph"),
        ("graph --format dot", "digraph", "<svg"),
        ("graph --format raw", "digraph", "<svg"),
        ("graph link/eth9 --depth 1", "eth9", "eth0"),
        ("graph link/eth0 --json", "eth0", "<svg"),
        ("why link/eth9", "eth9", "NONEXISTENT"),
        (&format!("why {ADDRESS}"), "192.0.2.1", "eth9"),
        (
            "why link/eth0",
            "client openconfig: /interfaces/interface[name=eth0]/config/enabled",
            "eth9",
        ),
        ("why --path /interfaces/interface[name=eth0]/config/enabled", "eth0", "eth9"),
        ("why --path /interfaces/interface[name=eth7]", "nothing of the box", "link"),
        ("plan", "", "eth9"),
        ("plan link/eth0 --json", "{", "eth9"),
    ] {
        let text = run_show(&agent, words).unwrap_or_else(|error| panic!("show {words}: {error}"));
        assert!(text.contains(there), "show {words}: no `{there}` in {text}");
        assert!(!text.contains(missing), "show {words}: `{missing}` in {text}");
        assert!(text.is_empty() || text.ends_with('\n'), "show {words}: no end of line");
        if words.contains("json") {
            serde_json::from_str::<Value>(&text).unwrap();
        }
    }
    let [all, last, two] = ["", " --limit 1", " --limit 2"]
        .map(|limit| run_show(&agent, &format!("transactions{limit}")).unwrap());
    let count = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
    assert_eq!((count(&last), count(&two)), (1, 2), "{last}{two}");
    assert!(all.ends_with(&two) && two.ends_with(&last), "the last ones: {all}{two}");
    assert!(all.contains("NBTransaction (set)  by admin"), "{all}");
    for (words, reason) in [
        ("timeline link/nothing", "nothing"),
        ("timeline cable/eth0", "cable/eth0"),
        ("why --path /nowhere", "nowhere"),
        ("graph link/nothing", "nothing"),
        ("transactions --number 4000000", "4000000"),
        ("transactions --since yesterday", "yesterday"),
        ("plan link/nothing", "nothing"),
    ] {
        let error = run_show(&agent, words).expect_err(words);
        assert!(error.contains(reason), "show {words}: {error}");
    }
}
