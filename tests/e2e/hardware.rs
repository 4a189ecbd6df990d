//! The parts of the box and its resources, as a collector reads them.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::netns::Netns;
use serde_json::Value;

fn number(answer: &Value) -> u64 {
    let text = answer.as_str().map(str::to_owned).unwrap_or_else(|| answer.to_string());
    text.parse().unwrap_or_else(|_| panic!("{answer} is not a number"))
}

#[tokio::test]
async fn the_box_shows_its_parts_and_what_is_in_use() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;

    let components = client.read("/components").await.unwrap().to_string();
    for part in ["chassis", "os", "cpu0"] {
        assert!(components.contains(&format!("\"name\":\"{part}\"")), "{part}: {components}");
    }
    assert!(components.contains("openconfig-platform-types:CHASSIS"), "{components}");
    assert!(!components.contains("eth0"), "a veth link is not a port: {components}");
    let part = |leaf: &str| format!("/components/component[name=os]/state/{leaf}");
    let version = client.read("/system/state/software-version").await.unwrap();
    assert_eq!(client.read(&part("software-version")).await.unwrap(), version);
    let booted = client.read("/system/state/boot-time").await.unwrap();
    assert_eq!(client.read(&part("last-reboot-time")).await.unwrap(), booted);

    let counter = |of: &str| format!("/interfaces/interface[name=eth0]/{of}/counters/out-pkts");
    let [port, sub] = ["state", "subinterfaces/subinterface[index=0]/state"].map(counter);
    let sent = number(&client.read(&port).await.unwrap());
    assert!(number(&client.read(&sub).await.unwrap()) >= sent, "the counters of the link");

    let rates = "/interfaces/interface[name=eth0]/rates/state";
    client.read(rates).await.expect_err("there is no earlier reading");
    eventually_async("a reading is old enough to compare with", async || {
        let rates = client.read(rates).await;
        rates.is_ok_and(|it| number(&it["openconfig-if-rates:load-interval"]) >= 5)
    })
    .await;

    let memory = client.read("/system/memory/state").await.unwrap();
    let of = |leaf: &str| number(&memory[format!("openconfig-system:{leaf}")]);
    assert!(of("physical") > of("used") && of("physical") >= of("available"), "{memory}");
    let total = "/system/cpus/cpu[index=0]/state/total/instant";
    assert!(number(&client.read(total).await.unwrap()) <= 100);
    // Clients that name a component in their configuration read back what they wrote.
    let named = serde_json::json!({"name": "os"});
    client.update("/components/component[name=os]/config", named).await.unwrap();
    assert_eq!(client.read("/components/component[name=os]/config/name").await.unwrap(), "os");

    let pid = agent.pid();
    let process = format!("/system/processes/process[pid={pid}]/state");
    let process = client.read(&process).await.unwrap();
    assert_eq!(process["openconfig-system:name"], "holdfast", "{process}");
    assert!(number(&process["openconfig-system:memory-usage"]) > 1 << 20, "{process}");
    assert!(number(&process["openconfig-system:start-time"]) > number(&booted), "{process}");
    let processes = client.read("/system/processes").await.unwrap().to_string();
    assert!(!processes.contains("args") && !processes.contains("--state-dir"), "{processes}");

    let gnmic = Gnmic::for_admin(&agent);
    let once = [
        "-e",
        "json_ietf",
        "subscribe",
        "--mode",
        "once",
        "--path",
        "/system/cpus/cpu[index=*]/state",
    ];
    let output = gnmic.run(&once).await;
    assert!(output.contains("idle/instant"), "{output}");
}
