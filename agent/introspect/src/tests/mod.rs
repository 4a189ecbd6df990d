//! Requests below `/scheduler/` to a core on the simulated kernel.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use holdfast_base::{AuthMethod, Caller, Role, now_ns};
use holdfast_config::Models;
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
pub(super) use holdfast_core::fixtures::BOX as BOX_CONFIG;
use holdfast_core::fixtures::parts;
use holdfast_core::{CommitOptions, Core, Datastore, Parts};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_store::{Journal, JournalKind, Store, StoreError, StoredState};
use http_body_util::BodyExt;
use serde_json::json;
use tempfile::TempDir;
use tower::ServiceExt;

mod alarms;
mod front;
mod history;

use super::*;

/// An agent without a network, and its routes.
pub(super) struct TestAgent {
    kernel: SimulatedKernel,
    core: Core,
    routes: Router,
    store: Store,
    folder: TempDir,
}

/// A response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl TestAgent {
    pub(super) async fn start(ports: &[&str]) -> Self {
        Self::run(SimulatedKernel::new(ports), TempDir::new().unwrap()).await
    }

    async fn run(kernel: SimulatedKernel, folder: TempDir) -> Self {
        let journal = loop {
            // The journal of an earlier run may still be writing its last entries.
            match Journal::open(folder.path(), JournalKind::Transactions) {
                Err(StoreError::Locked { .. }) => tokio::task::yield_now().await,
                opened => break opened.unwrap(),
            }
        };
        let (store, loaded) = Store::open(folder.path()).unwrap();
        let loaded = StoredState { last_recorded: journal.last().unwrap(), ..loaded };
        let parts = parts(&kernel, store.clone(), loaded);
        let parts = Parts { software_version: "1".to_owned(), ..parts };
        let facts = Arc::new(front::FakeFacts(Arc::clone(&parts.models)));
        let core = Core::start(parts).await.unwrap();
        let routes = routes(core.handle(), now_ns(), Some(journal), Some(facts));
        Self { kernel, core, routes, store, folder }
    }

    pub(super) async fn set(&self, document: &str) {
        let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
        let payload = Payload::Json { text: document.as_bytes().to_vec().into(), ietf: true };
        self.edit(Edit { updates: vec![(target, payload)], ..Edit::default() }).await;
    }

    async fn delete(&self, path: &str) {
        let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
        self.edit(Edit { deletes: vec![target], ..Edit::default() }).await;
    }

    fn caller() -> Caller {
        let auth_method = AuthMethod::Local { uid: 0 };
        Caller { name: "ada".into(), role: Role::Admin, auth_method, peer: None }
    }

    async fn edit(&self, edit: Edit) {
        let caller = Self::caller();
        // Some tests want a change that fails.
        let _ = self.core.handle().commit(&caller, edit, CommitOptions::default()).await;
    }

    async fn send(&self, method: Method, address: &str, etag: Option<&str>) -> HttpResponse {
        let mut request = Request::builder().method(method).uri(address);
        if let Some(tag) = etag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let request = request.body(Body::empty()).unwrap();
        Self::collect_response(self.routes.clone().oneshot(request).await.unwrap()).await
    }

    async fn collect_response(response: axum::response::Response) -> HttpResponse {
        let (parts, body) = response.into_parts();
        let octets = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(octets.to_vec()).unwrap();
        HttpResponse { status: parts.status, headers: parts.headers, text }
    }

    async fn post(&self, address: &str, body: &str) -> HttpResponse {
        let request = Request::builder().method(Method::POST).uri(address);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        Self::collect_response(self.routes.clone().oneshot(request).await.unwrap()).await
    }

    pub(super) async fn get(&self, address: &str) -> HttpResponse {
        self.send(Method::GET, address, None).await
    }

    #[track_caller]
    fn json(answer: &HttpResponse) -> serde_json::Value {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        serde_json::from_str(&answer.text).unwrap()
    }

    pub(super) async fn read(&self, address: &str) -> serde_json::Value {
        Self::json(&self.get(address).await)
    }

    pub(super) async fn stop(self) {
        self.core.shutdown().await;
        self.store.close().await.unwrap();
    }

    /// Restarts the agent on the same box.
    async fn restart(self) -> Self {
        let Self { kernel, core, routes, store, folder } = self;
        core.shutdown().await;
        store.close().await.unwrap();
        drop(routes);
        Self::run(kernel, folder).await
    }
}

fn names(list: &serde_json::Value, member: &str) -> Vec<String> {
    let names = list.as_array().unwrap().iter().map(|it| it[member].as_str().unwrap().to_owned());
    names.collect()
}

// proves kv.P2
#[tokio::test]
async fn invalid_requests_have_error_messages() {
    let agent = TestAgent::start(&["eth0"]).await;
    for (address, status, error) in [
        ("txn-history?seq-num=77", 404, "transaction 77 is not recorded"),
        ("txn-history?seq-num=x", 400, "`seq-num=x` is not a whole number"),
        ("txn-history?since=yesterday", 400, "`since=yesterday` is not a time"),
        ("txn-history?format=xml", 400, "`format=xml` is not one of json, text"),
        ("txn-history?sequence=1", 400, "there is no argument `sequence` here"),
        ("key-timeline", 400, "argument `key` is missing"),
        ("key-timeline?key=link/eth9", 404, "there is no value `link/eth9`"),
        ("graph-snapshot?time=never", 400, "`time=never` is not a time"),
        ("flag-stats", 400, "argument `flag` is missing"),
        ("flag-stats?flag=color", 400, "`flag=color` is not one of"),
        ("flag-stats?flag=descriptor&prefix=nothing/", 404, "no keys start with `nothing/`"),
        ("status?key=link/eth9", 404, "there is no value `link/eth9`"),
        ("status?descriptor=nothing", 404, "there is no descriptor `nothing`"),
        ("status?limit=0", 400, "`limit=0` is not from 1 to"),
        ("status?after=zz", 400, "`after=zz` is not a place at which a page ended"),
        ("dump?descriptor=link&key-prefix=link/", 400, "not both"),
        ("dump?descriptor=link&descriptor=port", 400, "argument `descriptor` is given twice"),
        ("dump?key-prefix=nothing/", 404, "no keys start with `nothing/`"),
        ("dump?descriptor=link&view=both", 400, "`view=both` is not one of SB, NB, cached"),
        ("stats?key=a", 400, "there is no argument `key` here, nor any other"),
        ("status?state=broken", 400, "`state=broken` is not one of NONEXISTENT, OBTAINED"),
        ("graph?depth=2", 400, "`depth` goes with `key`"),
        ("graph?depth=2&txn=1", 400, "`depth` goes with `key`"),
        ("downstream-resync", 405, "`/scheduler/downstream-resync` does not answer GET"),
        ("nothing", 404, "there is no `/scheduler/nothing` here"),
    ] {
        let answer = agent.get(&format!("/scheduler/{address}")).await;
        assert_eq!(answer.status.as_u16(), status, "{address}: {}", answer.text);
        let document: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(document["Error"].as_str().unwrap().contains(error), "{address}: {document}");
    }
    agent.stop().await;
}

// proves kv.P4
#[tokio::test]
async fn flag_stats_count_revisions() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    agent.delete("/network-instances").await;
    let stats =
        agent.read("/scheduler/flag-stats?flag=value-state&prefix=route/&prefix=address/").await;
    // The route was configured once, and is gone.
    assert_eq!(stats, json!({"TotalCount": 2, "PerValueCount": {"CONFIGURED": 2}}));
    let stats = agent.read("/scheduler/flag-stats?flag=descriptor&prefix=route/254").await;
    assert_eq!(stats, json!({"TotalCount": 1, "PerValueCount": {"route": 1}}));
    agent.stop().await;
}

#[tokio::test]
async fn replay_beyond_a_page_ends_with_a_missed_event() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    agent.delete("/network-instances").await;
    let core = agent.core.handle();
    let render = document::Renderer::default();
    let introspect = Introspect { core, render, started_ns: 0, journal: None, facts: None };
    for (page, want, missed) in [(2, 2, false), (1, 2, true)] {
        let events = introspect.replay_events(0, page).await.unwrap();
        assert_eq!(events.len(), want, "{events:?}");
        assert_eq!(format!("{events:?}").contains("missed"), missed, "{events:?}");
    }
    drop(introspect);
    agent.stop().await;
}

// proves kv.P5
#[tokio::test]
async fn downstream_resync_returns_its_transactions() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let resync = "/scheduler/downstream-resync?verbose=1&retry=true";
    let resynced = TestAgent::json(&agent.send(Method::POST, resync, None).await);
    assert_eq!(resynced, json!({"ResyncType": "DownstreamResync", "Transactions": []}));
    assert_eq!(agent.get(resync).await.status, StatusCode::METHOD_NOT_ALLOWED);
    for wrong in ["maybe", "false", "0"] {
        let path = format!("/scheduler/downstream-resync?retry={wrong}");
        let answer = agent.send(Method::POST, &path, None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}: {}", answer.text);
    }

    // A foreign program removes the address, and the kernel at first refuses to add it again.
    let ip = "192.0.2.1".parse().unwrap();
    agent.kernel.fault_at(1, Fault::Fail(22));
    agent.kernel.delete_address("eth0", ip, 24);
    let failed = agent.send(Method::POST, resync, None).await;
    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", failed.text);
    assert!(failed.text.contains("Invalid argument"), "{}", failed.text);
    agent.stop().await;
}

// proves kv.P6
#[tokio::test]
async fn dump_shows_one_plane() {
    let agent = TestAgent::start(&["eth0", "eth1"]).await;
    agent.set(BOX_CONFIG).await;
    let index = agent.read("/scheduler/dump").await;
    assert_eq!(index["Views"], json!(["SB", "NB", "cached"]));
    let at = |name: &str| {
        index["Descriptors"].as_array().unwrap().iter().position(|it| it == name).unwrap()
    };
    assert_eq!(index["KeyPrefixes"][at("link")], json!("link/"));
    for (query, want) in [
        ("descriptor=link&view=NB", vec!["link/eth0"]),
        ("descriptor=link&view=SB", vec!["link/eth0", "link/eth1", "link/lo"]),
        ("descriptor=link", vec!["link/eth0", "link/eth1", "link/lo"]),
        ("key-prefix=link/eth1&view=cached", vec!["link/eth1"]),
    ] {
        let dump = agent.read(&format!("/scheduler/dump?{query}")).await;
        assert_eq!(names(&dump, "Key"), want, "{query}: {dump:#}");
    }
    let dump = agent.read("/scheduler/dump?descriptor=link&view=SB").await;
    assert_eq!((&dump[0]["Origin"], &dump[1]["Origin"]), (&json!(1), &json!(2)));
    assert_eq!(dump[0]["Value"]["Type"], json!("link"));
    assert_eq!(dump[0]["Value"]["Data"]["mtu"], json!(1400));
    assert!(dump[0]["Metadata"]["index"].is_u64(), "{dump:#}");
    agent.stop().await;
}

// proves kv.P7
#[tokio::test]
async fn status_has_details_of_pending_values() {
    let agent = TestAgent::start(&[]).await;
    agent.set(BOX_CONFIG).await;
    let one = agent.read("/scheduler/status?key=link/eth0").await;
    assert_eq!(one["value"]["state"], json!("PENDING"));
    assert!(!one["value"]["details"].as_array().unwrap().is_empty(), "{one:#}");
    let by_label = agent.read("/scheduler/status?key=link%20eth0").await;
    assert_eq!(by_label, one);
    let addresses = agent.read("/scheduler/status?descriptor=address").await;
    assert_eq!(names(&json!([addresses[0]["derived_values"][0]]), "descriptor"), ["connected"]);
    let all = agent.read("/scheduler/status").await;
    let keys: Vec<_> =
        all.as_array().unwrap().iter().map(|it| it["value"]["key"].clone()).collect();
    assert!(keys.contains(&json!("link/eth0")) && keys.len() > 3, "{keys:?}");
    agent.stop().await;
}

// proves kv.P9
#[tokio::test]
async fn stats_count_transactions_and_operations() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    agent.delete("/network-instances").await;
    let stats = agent.read("/scheduler/stats").await;
    let txn = &stats["TxnStats"];
    assert_eq!(txn["TotalProcessed"], json!(2), "{stats:#}");
    assert_eq!(txn["ErrorCount"], json!(0));
    assert!(txn["OperationCount"]["CREATE"].as_u64().unwrap() >= 2, "{stats:#}");
    assert!(txn["ValueStateCount"]["CONFIGURED"].as_u64().unwrap() >= 2, "{stats:#}");
    assert!(stats["AllDescriptors"].as_array().unwrap().contains(&json!("route")));
    let route = stats["Descriptors"]["route"].as_array().unwrap();
    assert!(route.iter().any(|it| it["Name"] == "DELETE" && it["Count"] == 1), "{stats:#}");
    let change = txn["Methods"].as_array().unwrap().iter().find(|it| it["Name"] == "Change");
    assert_eq!(change.unwrap()["Count"], json!(2));
    agent.stop().await;
}

#[tokio::test]
async fn why_explains_leaves_owners_and_root_causes() {
    let agent = TestAgent::start(&[]).await;
    agent.set(BOX_CONFIG).await;
    let why = agent.read("/scheduler/why?key=route/254/198.51.100.0/24/20").await;
    assert_eq!(why["State"], json!("PENDING"), "{why:#}");
    assert_eq!(why["AskedBy"]["Client"], json!("ada"));
    let leaves = why["Leaves"].as_array().unwrap();
    let prefix = leaves.iter().find(|leaf| leaf["Path"].as_str().unwrap().ends_with("/prefix"));
    let prefix = prefix.unwrap_or_else(|| panic!("{why:#}"));
    assert_eq!(prefix["Owners"], json!(["client openconfig"]), "{prefix:#}");
    assert!(prefix["OpenConfig"][0].as_str().unwrap().contains("static"), "{prefix:#}");
    let hop = leaves.iter().find(|leaf| leaf["Value"] == "192.0.2.2");
    assert!(hop.unwrap()["Path"].as_str().unwrap().ends_with("/next-hop"), "{why:#}");

    // The address waits for its link, and the link for its port.
    let why = agent.read("/scheduler/why?key=address/eth0/192.0.2.1").await;
    let chain = names(&why["Chain"], "Key");
    assert_eq!(chain, ["address/eth0/192.0.2.1", "link/eth0"], "{why:#}");
    assert!(why["Chain"][1]["WaitsFor"].as_str().unwrap().contains("eth0"), "{why:#}");
    let text = agent.get("/scheduler/why?key=link/eth0&format=text").await.text;
    assert!(text.contains("link eth0: PENDING") && text.contains("needed by"), "{text}");

    // From the configuration down to values.
    for (path, want) in [
        ("/interfaces/interface[name=eth0]/config/mtu", vec!["link/eth0"]),
        ("/interfaces", vec!["link/eth0", "address/eth0/192.0.2.1"]),
        ("/network-instances", vec!["route/254/198.51.100.0/24/20"]),
    ] {
        let objects = agent.read(&format!("/scheduler/why?path={path}")).await;
        assert_eq!(names(&objects["Objects"], "Key"), want, "{path}");
    }
    for (address, status) in [("why", 400), ("why?path=/nothing", 400), ("why?key=link/eth9", 404)]
    {
        let answer = agent.get(&format!("/scheduler/{address}")).await;
        assert_eq!(answer.status.as_u16(), status, "{address}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn plan_previews_a_repair() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let plan = agent.read("/scheduler/plan").await;
    assert_eq!(plan["Operations"], json!([]));
    let text = agent.get("/scheduler/plan?format=text&key=link/eth0").await.text;
    assert_eq!(text, "nothing to do\n");
    agent.stop().await;
}

// proves kv.P8
#[tokio::test]
async fn graph_is_rendered_as_svg_dot_and_json() {
    let agent = TestAgent::start(&[]).await;
    agent.set(BOX_CONFIG).await;
    let svg = agent.get("/scheduler/graph").await;
    assert_eq!(svg.headers[header::CONTENT_TYPE], "image/svg+xml");
    let drawn = svg.text;
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
    // A box for each kind, dashes for waiting values, red for missing ones, a value as tooltip.
    for part in [
        "data-key=\"route/254/198.51.100.0/24/20\"",
        "stroke-dasharray=\"5 3\"",
        "#cf222e",
        "PENDING",
        "data-key=\"link/eth0\"",
    ] {
        assert!(drawn.contains(part), "{part}: {drawn}");
    }
    for refused in ["<script", "style=", "<style"] {
        assert!(!drawn.contains(refused), "{refused}");
    }

    let raw = agent.get("/scheduler/graph?format=raw").await.text;
    assert!(raw.contains("digraph") && raw.contains("dashed") && !raw.contains("pos="), "{raw}");
    let dot = agent.get("/scheduler/graph?format=dot").await.text;
    assert!(dot.contains("pos="), "{dot}");

    // A neighbourhood, and its extent.
    let near = agent.read("/scheduler/graph?key=address/eth0/192.0.2.1&depth=1&format=json").await;
    let nodes = names(&near["Nodes"], "Key");
    let all = agent.read("/scheduler/graph?format=json").await;
    assert!(nodes.contains(&"link/eth0".to_owned()), "{nodes:?}");
    assert!(nodes.len() < names(&all["Nodes"], "Key").len(), "{nodes:?}");
    let some = agent.read("/scheduler/graph?limit=2&format=json").await;
    assert!(some["LeftOut"].as_u64().unwrap() > 0);

    // After a transaction, its values have a golden border.
    let mut revisions = agent.core.handle().watch();
    agent.kernel.plug("eth0");
    while agent.read("/scheduler/status?key=link/eth0").await["value"]["state"] != "CONFIGURED" {
        revisions.changed().await.unwrap();
    }
    let first = agent.read("/scheduler/graph?txn=1&format=json").await;
    let link = first["Nodes"].as_array().unwrap().iter().find(|it| it["Key"] == "link/eth0");
    assert_eq!(
        (&link.unwrap()["State"], &link.unwrap()["Touched"]),
        (&json!("PENDING"), &json!(true))
    );
    assert!(agent.get("/scheduler/graph?txn=1").await.text.contains("#bf8700"));
    for (query, status) in
        [("txn=99", 404), ("depth=0", 400), ("format=png", 400), ("txn=1&key=link/eth0", 400)]
    {
        let answer = agent.get(&format!("/scheduler/graph?{query}")).await;
        assert_eq!(answer.status.as_u16(), status, "{query}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn event_stream_replays_and_follows_transactions() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let request = Request::builder().uri("/scheduler/events").header("last-event-id", "0");
    let response =
        agent.routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut body = response.into_body();
    let mut text = String::new();
    agent.delete("/network-instances").await;
    while !(text.contains("id: 1\n") && text.contains("id: 2\n") && text.contains("event: status"))
    {
        let frame = body.frame().await.unwrap().unwrap();
        text += &String::from_utf8_lossy(frame.data_ref().unwrap());
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let first: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(first["SeqNum"], json!(1));
    agent.stop().await;
}

#[tokio::test]
async fn metrics_health_and_the_page_are_served() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let metrics = agent.get("/metrics").await;
    assert!(metrics.headers[header::CONTENT_TYPE].to_str().unwrap().contains("version=0.0.4"));
    for line in [
        "holdfast_transaction_duration_seconds_count{type=\"Change\"} 1\n",
        "holdfast_operations_total{descriptor=\"route\",operation=\"create\"} 1\n",
        "holdfast_values{state=\"PENDING\"} 0\n",
        "# TYPE holdfast_facts_total counter\n",
    ] {
        assert!(metrics.text.contains(line), "{line}{}", metrics.text);
    }
    // Collectors refuse a page that declares a metric twice.
    let mut declared: Vec<_> = metrics.text.lines().filter(|it| it.starts_with("# TYPE")).collect();
    let count = declared.len();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(declared.len(), count);

    assert_eq!(agent.read("/health").await["status"], json!("running"));
    for (address, kind) in
        [("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css")]
    {
        let file = agent.get(address).await;
        assert_eq!(file.status, StatusCode::OK);
        assert!(file.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with(kind));
        let policy = file.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        for outside in ["http://", "https://", " style=", "<script>", " onclick="] {
            assert!(!file.text.contains(outside), "{address}: {outside}");
        }
    }
    for address in [
        "/scheduler/status",
        "/scheduler/graph",
        "/scheduler/graph?depth=x",
        "/scheduler/downstream-resync",
        "/metrics",
        "/health",
        "/nothing",
    ] {
        let answer = agent.get(address).await;
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{address}");
        let policy = answer.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{address}: {policy}");
    }
    let core = agent.core;
    core.shutdown().await;
    let request = Request::builder().uri("/health").body(Body::empty()).unwrap();
    let response = agent.routes.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn plan_previews_a_change() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let before = agent.kernel.contents();
    let change =
        json!({"update": [{"path": "/interfaces/interface[name=eth0]/config/mtu", "value": 1314}]});
    let plan = agent.post("/scheduler/plan", &change.to_string()).await;
    let plan = TestAgent::json(&plan);
    assert_eq!(plan["Operations"][0]["Effect"], json!("changed in place"), "{plan:#}");
    assert_eq!(plan["Operations"][0]["Object"], json!("link eth0"));
    assert!(
        plan["Configuration"].as_array().unwrap().iter().any(|it| it["After"] == "1314"),
        "{plan:#}"
    );
    assert_eq!(plan["Hash"].as_str().unwrap().len(), 16);
    assert_eq!(agent.kernel.contents(), before);
    for (body, error) in [
        ("nothing", "cannot read the change"),
        (r#"{"updates": []}"#, "unknown field `updates`"),
        (r#"{"origin": "somewhere"}"#, "`somewhere` is not an origin"),
        (r#"{"delete": ["/a["]}"#, "cannot read path"),
        (
            r#"{"update": [{"path": "/interfaces/interface[name=eth0]/config/mtu", "value": "wide"}]}"#,
            "mtu",
        ),
    ] {
        let refused = agent.post("/scheduler/plan", body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}: {}", refused.text);
        assert!(refused.text.contains(error), "{body}: {}", refused.text);
    }
    agent.stop().await;
}
