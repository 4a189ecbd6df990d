//! The embedded page in a browser, while the box changes.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::browser::Browser;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{STATIC_ROUTES, port_with_route};

const ADDRESS: &str = "127.0.0.1:9190";

#[tokio::test]
async fn the_page_shows_values_live_and_their_graph() {
    let net = Netns::enter();
    let agent = AgentProcess::start_with(&net, &["--introspect", ADDRESS]).await;
    let client = agent.gnmi().await;
    port_with_route(&client, "eth5").await;

    let browser = Browser::start().await;
    browser.open(&format!("http://{ADDRESS}/")).await.unwrap();
    browser.wait_for_text("#live", "live").await;
    browser.wait_for_text("tr[data-key='link/eth5'] .state", "PENDING").await;
    browser.wait_for_text("tr[data-key='link/eth5']", "eth5").await;

    // The search narrows the values down.
    browser.type_into("#search", "198.51.100").await.unwrap();
    browser.wait_for_text("#count", "values").await;
    let rows = "return [...document.querySelectorAll('#values tr')].map((row) => row.dataset.key)";
    let rows = browser.run(rows).await.unwrap().to_string();
    assert!(rows.contains("198.51.100.0") && !rows.contains("eth5"), "{rows}");
    browser.run("document.getElementById('search').value = ''").await.unwrap();
    browser.type_into("#search", "eth5").await.unwrap();

    // The port is plugged in: the page shows its new state without a reload.
    net.ip("link add eth5 type veth peer name peer5");
    net.ip("link set peer5 up");
    browser.wait_for_text("tr[data-key='link/eth5'] .state", "CONFIGURED").await;

    // A route of which one next hop cannot be reached is there, and says what it does without.
    let hop = json!({"index": "1", "config": {"index": "1", "next-hop": "203.0.113.2"}});
    let hops = format!("{STATIC_ROUTES}/static[prefix=198.51.100.0/24]/next-hops");
    client.update(&hops, json!({"next-hop": [hop]})).await.unwrap();
    browser.run("document.getElementById('search').value = ''").await.unwrap();
    browser.type_into("#search", "does without").await.unwrap();
    browser.wait_for_text("#values", "does without gateway 203.0.113.2").await;
    browser.wait_for_text("#values .state", "CONFIGURED").await;

    // A node of the graph leads to the value's timeline.
    browser.click("#tab-graph").await.unwrap();
    browser.wait_for_text("#graph svg", "route").await;
    browser.click("#graph a[data-key='link/eth5']").await.unwrap();
    browser.wait_for_text("#detail-label", "eth5").await;
    browser.wait_for_text("#timeline", "PENDING").await;
    browser.wait_for_text("#timeline", "CONFIGURED").await;
    browser.wait_for_text("#detail", "client openconfig").await;

    // Transactions and their authors.
    browser.click("#tab-transactions").await.unwrap();
    browser.wait_for_text("#transactions", "admin").await;
    browser.click("#transactions li:first-child summary").await.unwrap();
    browser.wait_for_text("#transactions li:first-child", "verified").await;

    let refused = "return document.getElementById('error').hidden";
    assert_eq!(browser.run(refused).await.unwrap(), json!(true));
    browser.quit().await;
}
