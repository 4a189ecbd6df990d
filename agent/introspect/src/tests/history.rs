//! Transactions and timelines, also across restarts.

use super::*;

// proves kv.P1
#[tokio::test]
async fn transactions_are_found_by_number_time_and_page() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let between = now_ns();
    agent.delete("/network-instances").await;

    let all = agent.read("/scheduler/txn-history").await;
    let count = all.as_array().unwrap().len();
    assert_eq!(count, 2, "{all:#}");
    let first = &all[0];
    let second = &all[1];
    assert_eq!((&first["TxnType"], &first["Client"]), (&json!("NBTransaction"), &json!("ada")));
    assert_eq!(first["Trace"].as_str().unwrap().len(), 16);
    let created = names(&first["Executed"], "Key");
    assert!(created.contains(&"address/eth0/192.0.2.1".to_owned()), "{created:?}");
    assert_eq!(names(&first["Planned"], "Key"), created);
    assert!(names(&first["Executed"], "Result").iter().all(|result| result == "verified"));
    assert!(names(&second["Executed"], "Operation").contains(&"DELETE".to_owned()), "{second:#}");

    let number = first["SeqNum"].as_u64().unwrap();
    assert_eq!(&agent.read(&format!("/scheduler/txn-history?seq-num={number}")).await, first);
    let window = agent.read(&format!("/scheduler/txn-history?since={between}")).await;
    assert_eq!(window, json!([second]));
    let window = agent.read(&format!("/scheduler/txn-history?until={between}")).await;
    assert_eq!(window, json!([first]));

    let both = format!("/scheduler/txn-history?seq-num={number}&since={between}");
    assert_eq!(&agent.read(&both).await, first, "the number counts, not the window");

    let page = agent.get("/scheduler/txn-history?limit=1").await;
    assert_eq!(TestAgent::json(&page), json!([first]));
    let next = format!("</scheduler/txn-history?limit=1&after-seq={number}>; rel=\"next\"");
    assert_eq!(page.headers[header::LINK].to_str().unwrap(), next);
    let tag = page.headers[header::ETAG].to_str().unwrap();
    let again = agent.send(Method::GET, "/scheduler/txn-history?limit=1", Some(tag)).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);

    let text =
        agent.get(&format!("/scheduler/txn-history?format=text&seq-num={number}")).await.text;
    assert!(text.contains("by ada") && text.contains("CREATE"), "{text}");
    agent.stop().await;
}

// proves kv.P2, kv.P3
#[tokio::test]
async fn key_timeline_lists_revisions() {
    let agent = TestAgent::start(&[]).await;
    let before = now_ns();
    agent.set(BOX_CONFIG).await;
    let waiting = now_ns();
    let mut revisions = agent.core.handle().watch();
    agent.kernel.plug("eth0");
    let key = "route/254/198.51.100.0/24/20";
    let status = format!("/scheduler/status?key={key}");
    while agent.read(&status).await["value"]["state"] != "CONFIGURED" {
        revisions.changed().await.unwrap();
    }
    let configured = now_ns();
    agent.delete("/network-instances").await;

    let timeline = agent.read(&format!("/scheduler/key-timeline?key={key}")).await;
    let states: Vec<_> =
        timeline.as_array().unwrap().iter().map(|it| it["Flags"]["value-state"].clone()).collect();
    assert_eq!(states, ["PENDING", "CONFIGURED"], "{timeline:#}");
    assert_eq!(timeline[0]["Until"], timeline[1]["Since"]);
    assert_ne!(timeline[1]["Until"], serde_json::Value::Null, "it was deleted");
    for (time, want) in
        [(before, None), (waiting, Some("PENDING")), (configured, Some("CONFIGURED"))]
    {
        let at = agent.read(&format!("/scheduler/key-timeline?key={key}&time={time}")).await;
        assert_eq!(at["Flags"]["value-state"].as_str(), want, "{at:#}");
        let whole = agent.read(&format!("/scheduler/graph-snapshot?time={time}")).await;
        let found = whole.as_array().unwrap().iter().find(|it| it["Key"] == key);
        assert_eq!(found.and_then(|it| it["Flags"]["value-state"].as_str()), want, "{time}");
    }

    // At present the address exists with its dependencies, and there are several pages.
    let now = agent.read("/scheduler/graph-snapshot").await;
    let address =
        now.as_array().unwrap().iter().find(|it| it["Key"] == "address/eth0/192.0.2.1").unwrap();
    assert!(address["Targets"].as_array().is_some());
    let first = agent.get("/scheduler/graph-snapshot?limit=2").await;
    let link = first.headers[header::LINK].to_str().unwrap();
    let next = link.split(['<', '>']).nth(1).unwrap();
    let second = agent.read(next).await;
    assert_eq!(
        [names(&TestAgent::json(&first), "Key"), names(&second, "Key")].concat(),
        names(&now, "Key")[..4]
    );
    agent.stop().await;
}

#[tokio::test]
async fn transactions_are_archived_over_restarts() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    agent.delete("/network-instances").await;
    let before = agent.read("/scheduler/txn-history").await;
    assert_eq!(before.as_array().unwrap().len(), 2);

    let agent = agent.restart().await;
    let first = agent.read("/scheduler/txn-history?limit=2").await;
    assert_eq!(first, before);
    let why = agent.read("/scheduler/why?key=address/eth0/192.0.2.1").await;
    assert_eq!(why["AskedBy"]["Client"], json!("ada"), "{why:#}");
    assert_eq!(why["AskedBy"]["Txn"], json!("TXN-1"));
    assert_eq!(agent.read("/scheduler/txn-history?seq-num=2").await, before[1]);
    assert_eq!(agent.read("/scheduler/txn-history?after-seq=1&limit=1").await, json!([before[1]]));
    agent.set(BOX_CONFIG).await;
    let all = agent.read("/scheduler/txn-history").await;
    let numbers: Vec<_> =
        all.as_array().unwrap().iter().map(|it| it["SeqNum"].as_u64().unwrap()).collect();
    let count = numbers.len() as u64;
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "numbers go on");
    assert_eq!(all[numbers.len() - 1]["Client"], json!("ada"));

    // The route existed, was removed, and exists again.
    let route = "/scheduler/key-timeline?key=route/254/198.51.100.0/24/20";
    let timeline = agent.read(route).await;
    let txns: Vec<_> =
        timeline.as_array().unwrap().iter().map(|it| it["Flags"]["last-update"].clone()).collect();
    assert_eq!(txns, ["TXN-1".to_owned(), format!("TXN-{count}")], "{timeline:#}");
    assert_eq!(timeline[0]["Until"], before[1]["Stop"]);

    // A time in the earlier run.
    let then = before[0]["StopNs"].as_u64().unwrap();
    let at = agent.read(&format!("{route}&time={then}")).await;
    assert_eq!(at["Flags"]["last-update"], json!("TXN-1"), "{at:#}");
    let whole = agent.get(&format!("/scheduler/graph-snapshot?time={then}")).await;
    assert_eq!(whole.status, StatusCode::NOT_FOUND, "{}", whole.text);
    assert!(whole.text.contains("the graph is known since"), "{}", whole.text);
    let touched = agent.get("/scheduler/graph?txn=1").await;
    assert!(touched.text.contains("not recorded in this run"), "{}", touched.text);

    // A value that only an earlier run had.
    agent.delete("/network-instances").await;
    let agent = agent.restart().await;
    let timeline = agent.read(route).await;
    let last = timeline.as_array().unwrap().last().unwrap();
    assert_eq!(last["Flags"]["last-update"], json!(format!("TXN-{count}")), "{timeline:#}");
    assert_ne!(last["Until"], serde_json::Value::Null, "{timeline:#}");
    agent.stop().await;
}
