//! The embedded page in a browser, while the box changes.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::browser::Browser;
use holdfast_tests::netns::Netns;
use serde_json::json;

use crate::documents::{STATIC_ROUTES, port, port_with_route};
use crate::foreign_routes::ports;

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

#[tokio::test]
async fn the_page_begins_with_the_alarms_of_the_box() {
    let net = ports(&["eth0"]);
    let mut agent = AgentProcess::start_with(&net, &["--introspect", ADDRESS]).await;
    let client = agent.gnmi().await;
    let document = json!({"interface": [port("eth0", &["10.0.0.1/24"])]});
    client.update("/interfaces", document).await.unwrap();

    let browser = Browser::start().await;
    browser.open(&format!("http://{ADDRESS}/")).await.unwrap();
    browser.wait_for_text("#live", "live").await;
    let first = "return document.querySelector('main').firstElementChild.id";
    assert_eq!(browser.run(first).await.unwrap(), json!("alarms"));
    browser.wait_for_text("#alarm-count", "no alarms").await;

    // A cable is pulled: the page says so without a reload, on every view.
    browser.click("#tab-transactions").await.unwrap();
    net.ip("link set p0 down");
    let row = "#open tr[data-alarm='link-down@interface:eth0']";
    browser.wait_for_text(&format!("{row} .state"), "major").await;
    browser.wait_for_text(row, "eth0 is up, and the link that it stands on is down").await;
    browser.wait_for_text(row, "link-down@interface:eth0 ").await;
    browser.wait_for_text(row, "not acknowledged").await;
    browser.wait_for_text("#alarm-count", "1 alarm: 1 major").await;

    let word = ["ack", "link-down@interface:eth0", "--text", "cable ordered"];
    assert!(agent.command("fault").args(word).status().unwrap().success());
    browser.wait_for_text(row, "acknowledged by local: cable ordered").await;

    // On a shelf, it is out of the way, and not out of reach.
    let shelf = "holdfast_native:/fault-management/shelf[name=rack]";
    client.update(shelf, json!({"name": "rack", "resource": "interface:eth*"})).await.unwrap();
    browser.wait_for_text("#alarm-count", "no alarms").await;
    browser.wait_for_text("#shelved summary", "1 alarm put aside").await;
    assert_eq!(browser.text("#shelved tbody tr").await.unwrap(), "", "the list is folded");
    browser.click("#shelved summary").await.unwrap();
    browser.wait_for_text("#shelved tbody tr", "the shelf rack").await;
    client.delete(shelf).await.unwrap();
    browser.wait_for_text("#alarm-count", "1 alarm: 1 major").await;

    net.ip("link set p0 up");
    browser.wait_for_text("#alarm-count", "no alarms").await;
    let rows = "return document.querySelectorAll('#alarms tbody tr').length";
    assert_eq!(browser.run(rows).await.unwrap(), json!(0));
    let refused = "return document.getElementById('error').hidden";
    assert_eq!(browser.run(refused).await.unwrap(), json!(true));

    // A page that hears nothing does not say that all is well.
    agent.kill();
    browser.wait_for_text("#alarms-stale", "The agent does not answer").await;
    agent.restart().await;
    browser.wait_for_text("#live", "live").await;
    assert_eq!(browser.text("#alarms-stale").await.unwrap(), "");
    browser.quit().await;
}
