//! `/metrics`, after things have really happened.

use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::services::{sized_port, update};
use serde_json::json;
use tonic::Code;

use crate::documents::{config_of, port};
use crate::foreign_routes::ports;

/// The value of a sample, by its name with labels and without the common beginning.
fn sample(agent: &AgentProcess, name: &str) -> Option<String> {
    let text = agent.http_get("/metrics");
    let begin = format!("holdfast_{name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&begin))?;
    Some(value.trim().to_owned())
}

fn number(agent: &AgentProcess, name: &str) -> f64 {
    sample(agent, name).and_then(|value| value.parse().ok()).unwrap_or_default()
}

async fn wait_for(agent: &AgentProcess, name: &str, wanted: &str) {
    eventually(&format!("{name} is {wanted}"), || sample(agent, name).as_deref() == Some(wanted))
        .await;
}

#[tokio::test]
async fn metrics_count_what_has_happened() {
    let net = ports(&["eth0", "eth1"]);
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let agent = AgentProcess::start_with(&net, &["--services", folder]).await;
    let client = agent.gnmi().await;
    let document = json!({"interface": [port("eth0", &["10.0.0.1/24"])]});
    client.update("/interfaces", document).await.unwrap();

    // Refused: a Set that cannot be, and a login with a wrong password.
    let refused = client.update(&format!("{}/mtu", config_of("eth0")), "many").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    wait_for(&agent, r#"gnmi_sets_refused_total{code="InvalidArgument"}"#, "1").await;
    let wrong = Credentials::new(ADMIN, "wrong").unwrap();
    let stranger = GnmiClient::over(agent.channel().await, wrong);
    let refused = stranger.delete("/interfaces").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    wait_for(&agent, r#"logins_failed_total{reason="wrong password"}"#, "1").await;
    wait_for(&agent, r#"gnmi_sets_refused_total{code="Unauthenticated"}"#, "1").await;

    // Others take an address away, and the agent brings it back.
    net.ip("address del 10.0.0.1/24 dev eth0");
    wait_for(&agent, r#"losses_total{descriptor="address"}"#, "1").await;
    wait_for(&agent, r#"repairs_total{descriptor="address"}"#, "1").await;

    // One service gets what it waits for, the other one does not.
    let gnmic = Gnmic::for_admin(&agent);
    for (name, port) in [("ready", "eth1"), ("waiting", "eth9")] {
        let service = format!("holdfast_native:/services/sized-port[name={name}]");
        update(&gnmic, &service, &format!(r#"{{"bridge": "br0", "port": "{port}"}}"#)).await;
    }
    wait_for(&agent, r#"services{status="ready"}"#, "1").await;
    wait_for(&agent, r#"services{status="not-reached"}"#, "1").await;

    // A fault is told, and how long that took.
    net.ip("link set p0 down");
    let told = r#"fault_duration_seconds_count{step="listeners-told"}"#;
    for name in [r#"alarms{severity="major"}"#, told] {
        eventually(&format!("{name} counts"), || number(&agent, name) > 0.0).await;
    }

    // The certificate that the agent has made for itself does not expire.
    assert!(!agent.http_get("/metrics").contains("certificate_remaining_days{"));

    // A commit waits, and is confirmed.
    wait_for(&agent, "unconfirmed_commit", "0").await;
    let description = format!("{}/description:::json_ietf:::\"a\"", config_of("eth0"));
    let begin = ["--commit-request", "--commit-id", "c1", "--rollback-duration", "300s"];
    gnmic.run(&[&["set", "--update", &description][..], &begin].concat()).await;
    wait_for(&agent, "unconfirmed_commit", "1").await;
    let left = number(&agent, "unconfirmed_commit_remaining_seconds");
    assert!(left > 0.0 && left <= 300.0, "{left}");
    gnmic.run(&["set", "--commit-confirm", "--commit-id", "c1"]).await;
    wait_for(&agent, "unconfirmed_commit", "0").await;
}
