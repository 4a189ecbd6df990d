//! The embedded page in a browser, while the box changes.

use std::fs;
use std::path::Path;

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::browser::Browser;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{sized_port, update};
use serde_json::json;

use crate::documents::{STATIC_ROUTES, config_of, ipv6_of, port, port_with_route};
use crate::foreign_routes::ports;
use crate::impact::add_route;

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
    browser.click("#tab-values").await.unwrap();
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

    // A route with one next hop that cannot be reached is there, and says what it does without.
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
    browser.type_into("#transaction-search", "198.51.100.0").await.unwrap();
    browser.click("#transactions li:last-child .fold").await.unwrap();
    browser.wait_for_text("#transactions table", "route 198.51.100.0/24").await;
    browser.wait_for_text("#transactions table", "verified").await;
    let lists = "return document.querySelectorAll('#transactions table').length";
    assert_eq!(browser.run(lists).await.unwrap(), json!(1), "planned is as executed");

    let refused = "return document.getElementById('error').hidden";
    assert_eq!(browser.run(refused).await.unwrap(), json!(true));
    browser.quit().await;
}

#[tokio::test]
async fn the_page_begins_with_what_is_wrong() {
    let net = ports(&["eth0"]);
    let mut agent = AgentProcess::start_with(&net, &["--introspect", ADDRESS]).await;
    let client = agent.gnmi().await;
    let document = json!({"interface": [port("eth0", &["10.0.0.1/24"])]});
    client.update("/interfaces", document).await.unwrap();
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;

    let browser = Browser::start().await;
    browser.open(&format!("http://{ADDRESS}/")).await.unwrap();
    browser.wait_for_text("#live", "live").await;
    browser.wait_for_text("#alarm-count", "no alarms").await;
    browser.wait_for_text("#facts", env!("CARGO_PKG_VERSION")).await;
    browser.wait_for_text("#facts", "admin: set").await;
    browser.wait_for_text("#first-interfaces tr[data-interface='eth0'] .state", "UP").await;
    browser.wait_for_text("#first-interfaces tr[data-interface='eth0']", "bit/s").await;
    browser.wait_for_text("#changes li:first-child", "create route 198.51.100.0/24").await;

    // A cable is pulled: the page says so without a reload, on every view.
    browser.click("#tab-transactions").await.unwrap();
    net.ip("link set p0 down");
    browser.wait_for_text("#verdict", "1 alarm").await;
    browser.click("#tab-overview").await.unwrap();
    let row = "#open li[data-alarm='link-down@interface:eth0']";
    browser.wait_for_text(&format!("{row} .state"), "major").await;
    browser.wait_for_text(row, "eth0 is up, and the link that it stands on is down").await;
    browser.wait_for_text(row, "not acknowledged").await;
    browser.wait_for_text("#alarm-count", "1 alarm: 1 major").await;

    // A root unfolds to what it takes down, and that leads to the value.
    browser.click(&format!("{row} .fold")).await.unwrap();
    browser.wait_for_text(row, "link-down@interface:eth0, raised at").await;
    browser.wait_for_text(&format!("{row} .unfolded"), "route 198.51.100.0/24").await;
    browser.wait_for_text(&format!("{row} .unfolded .state"), "DOWN").await;

    let word = ["ack", "link-down@interface:eth0", "--text", "cable ordered"];
    assert!(agent.command("fault").args(word).status().unwrap().success());
    browser.wait_for_text(row, "acknowledged by local: cable ordered").await;

    // On a shelf, it is out of the way, and not out of reach.
    let shelf = "holdfast_native:/fault-management/shelf[name=rack]";
    client.update(shelf, json!({"name": "rack", "resource": "interface:eth*"})).await.unwrap();
    browser.wait_for_text("#alarm-count", "no alarms").await;
    browser.wait_for_text("#shelved summary", "1 alarm put aside").await;
    assert_eq!(browser.text("#put-aside li").await.unwrap(), "", "the list is folded");
    browser.click("#shelved summary").await.unwrap();
    browser.wait_for_text("#put-aside li", "put aside by the shelf rack").await;
    client.delete(shelf).await.unwrap();
    browser.wait_for_text("#alarm-count", "1 alarm: 1 major").await;

    net.ip("link set p0 up");
    browser.wait_for_text("#alarm-count", "no alarms").await;
    let rows = "return document.querySelectorAll('#alarms li').length";
    assert_eq!(browser.run(rows).await.unwrap(), json!(0));

    // A commit that waits is shown with the time that is left.
    let confirmed = ["--commit-request", "--commit-id", "c1", "--rollback-duration", "300s"];
    let mtu = format!("{}/mtu:::json_ietf:::1400", config_of("eth0"));
    let set = [&["set", "--update", &mtu][..], &confirmed].concat();
    Gnmic::for_admin(&agent).run(&set).await;
    browser.wait_for_text("#unconfirmed", "The commit c1 waits to be confirmed").await;
    browser.wait_for_text("#unconfirmed", "rolled back in 4 min").await;
    browser.wait_for_text("#verdict", "1 commit waits").await;

    // So is maintenance.
    let session = ["create", "interface:eth0", "--kind", "restart", "--in", "3600"];
    assert!(agent.command("maintenance").args(session).status().unwrap().success());
    browser.wait_for_text("#sessions", "interface:eth0").await;
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

/// Widths of a phone, a tablet and a desk, in CSS pixels.
const WIDTHS: [u32; 3] = [390, 820, 1400];
const HEIGHT: u32 = 900;
const VIEWS: [&str; 6] = ["overview", "interfaces", "services", "values", "graph", "transactions"];
/// A name as long as people give.
const LONG_NAME: &str = "customer-with-a-rather-long-name-0815";
/// Address of a value in the view of values.
const CHOSEN: &str = "#/values?search=eth0&state=CONFIGURED&value=link%2Feth0";

/// Words of cells that stand on more than one line. After a hyphen or slash, and at marks in names, a line may end.
const BROKEN_WORDS: &str = r"
    const broken = [];
    const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        if (!text.parentElement.closest('td, th, li, dd, dt')) continue;
        for (const word of text.data.matchAll(/[^\s\/?-]+/g)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            const lines = new Set([...range.getClientRects()].map((it) => Math.round(it.top)));
            if (lines.size > 1) broken.push(word[0]);
        }
    }
    return broken;";
/// Tabs that are not whole on the screen.
const HIDDEN_TABS: &str = r"
    return [...document.querySelectorAll('#tabs a')].filter((it) => {
        const place = it.getBoundingClientRect();
        return place.left < 0 || place.right > innerWidth || place.bottom > innerHeight || place.width === 0;
    }).map((it) => it.id);";
const OVERFLOW: &str =
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
/// Share of the graph's nodes and of its paper that are lighter than the middle.
const GRAPH_LIGHT: &str = r"
    const lightness = (it) => getComputedStyle(it).fill.match(/[0-9.]+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0) / 3;
    const parts = [...document.querySelectorAll('#graph rect')];
    return parts.filter((it) => lightness(it) > 127).length / parts.length;";

/// A box with something of everything: a lost link, values and a service that wait, and a commit that was refused.
async fn busy_box(net: &Netns, options: &[&str]) -> AgentProcess {
    let agent = AgentProcess::start_with(net, options).await;
    let client = agent.gnmi().await;
    let ports = ["eth0", "eth1", "eth9"].map(|name| {
        let number = &name[3..];
        port(name, &[&format!("10.0.{number}.1/24")])
    });
    client.update("/interfaces", json!({"interface": ports})).await.unwrap();
    let address = format!(
        "{}/addresses/address[ip=2001:db8:1234:5678:9abc:def0:1234:5678]/config",
        ipv6_of("eth1")
    );
    let long = json!({"ip": "2001:db8:1234:5678:9abc:def0:1234:5678", "prefix-length": 64});
    client.update(&address, long).await.unwrap();
    add_route(&client, "198.51.100.0/24", &[("10.0.0.2", None)]).await;
    add_route(&client, "203.0.113.0/24", &[("10.0.9.2", None)]).await;
    let gnmic = Gnmic::for_admin(&agent);
    for (name, port) in [("a", "eth8"), (LONG_NAME, "eth2")] {
        let service = format!("holdfast_native:/services/sized-port[name={name}]");
        let parameters = format!(r#"{{"bridge": "br0", "port": "{port}"}}"#);
        update(&gnmic, &service, &parameters).await;
    }
    net.ip("link set p0 down");
    agent
}

/// Opens an address of the page, and waits until it shows what the agent has.
async fn show(browser: &Browser, address: &str) {
    browser.open("about:blank").await.unwrap();
    browser.open(&format!("http://{ADDRESS}/{address}")).await.unwrap();
    browser.wait_for_text("#live", "live").await;
    browser.wait_for_text("#verdict", "3 alarms; not right: ").await;
}

#[tokio::test]
async fn every_view_fits_its_screen_in_the_light_and_in_the_dark() {
    let net = ports(&["eth0", "eth1", "eth2"]);
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let _agent = busy_box(&net, &["--services", folder, "--introspect", ADDRESS]).await;
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test/pictures");
    fs::create_dir_all(&pictures).unwrap();
    let browser = Browser::start().await;
    show(&browser, "").await;
    for (width, is_dark) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)]) {
        browser.resize(width, HEIGHT, is_dark).await.unwrap();
        let screen = format!("{width}-{}", if is_dark { "dark" } else { "light" });
        for view in VIEWS {
            browser.click(&format!("#tab-{view}")).await.unwrap();
            browser.wait_for_text(&format!("#view-{view} .legend"), "What the words mean").await;
            if view == "graph" {
                browser.wait_for_text("#graph a[data-key='link/eth0']", "eth0").await;
                let light = browser.run(GRAPH_LIGHT).await.unwrap().as_f64().unwrap();
                let is_right = if is_dark { light < 0.1 } else { light > 0.9 };
                assert!(is_right, "{light} is light at {screen}");
            }
            let at = format!("{view} at {screen}");
            assert_eq!(browser.run(OVERFLOW).await.unwrap(), json!(0), "{at} overflows");
            assert_eq!(browser.run(HIDDEN_TABS).await.unwrap(), json!([]), "{at}");
            assert_eq!(browser.run(BROKEN_WORDS).await.unwrap(), json!([]), "{at}");
            browser.picture(&pictures.join(format!("{view}-{screen}.png"))).await.unwrap();
        }
        // The tapped place is on the screen, and nothing moves.
        browser.click("#tab-values").await.unwrap();
        browser.wait_for_text("#view-values .legend", "What the words mean").await;
        browser.run("window.scrollTo(0, 600)").await.unwrap();
        let tapped = "return [...document.querySelectorAll('#values a')].find((it) => it.getBoundingClientRect().top > 100).click()";
        browser.run(tapped).await.unwrap();
        browser.wait_for_text("#timeline", "–").await;
        let place = "const place = document.getElementById('detail-label').getBoundingClientRect(); return place.top >= 0 && place.bottom <= innerHeight && place.right <= innerWidth";
        assert_eq!(browser.run(place).await.unwrap(), json!(true), "details at {screen}");
        assert_eq!(browser.run(OVERFLOW).await.unwrap(), json!(0), "details at {screen}");
        let raw =
            "return [...document.querySelectorAll('.raw')].some((it) => it.checkVisibility())";
        assert_eq!(browser.run(raw).await.unwrap(), json!(false), "JSON that nobody asked for");
        browser.picture(&pictures.join(format!("detail-{screen}.png"))).await.unwrap();
        browser.click("#close").await.unwrap();
    }
    assert_eq!(browser.console_errors().await.unwrap(), Vec::<String>::new());
    browser.quit().await;
}

#[tokio::test]
async fn an_address_leads_back_to_what_it_was_taken_from() {
    let net = ports(&["eth0", "eth1", "eth2"]);
    let packages = sized_port("");
    let folder = packages.path().to_str().unwrap();
    let _agent = busy_box(&net, &["--services", folder, "--introspect", ADDRESS]).await;
    let browser = Browser::start().await;
    show(&browser, "").await;
    browser.click("#tab-values").await.unwrap();
    browser.type_into("#search", "eth0").await.unwrap();
    browser.click("#states [data-filter='CONFIGURED']").await.unwrap();
    browser.click("#values tr[data-key='link/eth0'] a").await.unwrap();
    browser.wait_for_text("#detail-label", "link eth0").await;
    let address = "return location.hash";
    assert_eq!(browser.run(address).await.unwrap(), json!(CHOSEN));

    // The same after a reload, and where somebody else opens it.
    let rows = "return [...document.querySelectorAll('#values tr')].map((it) => it.dataset.key)";
    let listed = browser.run(rows).await.unwrap();
    browser.reload().await.unwrap();
    for _ in 0..2 {
        browser.wait_for_text("#live", "live").await;
        browser.wait_for_text("#detail-label", "link eth0").await;
        browser.wait_for_text("#values", "link eth0").await;
        assert_eq!(browser.run(rows).await.unwrap(), listed);
        let search = "return document.getElementById('search').value";
        assert_eq!(browser.run(search).await.unwrap(), json!("eth0"));
        show(&browser, CHOSEN).await;
    }

    // Back closes what was opened last, then takes the filter off.
    browser.click("#tab-services").await.unwrap();
    browser.wait_for_text("#services", LONG_NAME).await;
    browser.back().await.unwrap();
    browser.wait_for_text("#detail-label", "link eth0").await;

    // Values that are right can be left out in every view, and stays out in the next one.
    browser.click("#close").await.unwrap();
    browser.click("#tab-values").await.unwrap();
    browser.click("#only-wrong").await.unwrap();
    let states = "return [...new Set([...document.querySelectorAll('#values .state')].map((it) => it.textContent))]";
    let states = browser.run(states).await.unwrap().to_string();
    assert!(states.contains("PENDING") && !states.contains("OBTAINED"), "{states}");
    browser.click("#tab-interfaces").await.unwrap();
    browser.wait_for_text("#interfaces", "eth0").await;
    let links =
        "return [...document.querySelectorAll('#interfaces tr')].map((it) => it.dataset.interface)";
    let links = browser.run(links).await.unwrap().to_string();
    assert!(links.contains("eth0") && !links.contains("eth1"), "{links}");
    browser.quit().await;
}
