//! Commits that must be confirmed, and dry runs, with gnmic.

use std::path::Path;

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;

const ETH0: &str = "/interfaces/interface[name=eth0]";

/// `set` with options, and a new MTU of the kernel where there is one.
async fn set(gnmic: &Gnmic, options: &[&str], mtu: Option<u32>) -> Result<String, String> {
    let path = format!("{ETH0}/config/mtu");
    let value = mtu.map(|mtu| (mtu + 14).to_string()); // the frame's header counts
    let mut arguments = vec!["-e", "json_ietf", "set"];
    arguments.extend(options);
    if let Some(value) = &value {
        arguments.extend(["--update-path", &*path, "--update-value", value]);
    }
    gnmic.outcome(&arguments).await
}

fn commit_options(id: &str) -> [&str; 5] {
    ["--commit-id", id, "--commit-request", "--rollback-duration", "600s"]
}

// proves 1.130, 1.131, 1.132, 1.133
#[tokio::test]
async fn gnmic_confirms_cancels_and_lets_a_commit_expire() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let mtu = || net.link("eth0").mtu;
    set(&gnmic, &[], Some(1400)).await.unwrap();

    set(&gnmic, &commit_options("a"), Some(1300)).await.unwrap();
    assert_eq!(mtu(), 1300);
    // The box shows it, with the time that is left.
    let waits = "the commit `a` waits to be confirmed; it is rolled back in ";
    let is_shown = || ["pending", "transactions"].map(|what| agent.show(what).contains(waits));
    assert_eq!(is_shown(), [true; 2], "{}", agent.show("pending"));
    let get = ["-e", "json_ietf", "get", "--path", "holdfast_native:/commit-state"];
    let shown = gnmic.json(&get).await.to_string();
    assert!(shown.contains("\"a\"") && shown.contains("rollback-at"), "{shown}");
    for (options, value) in [(&[][..], Some(1301)), (&commit_options("b"), Some(1301))] {
        let refused = set(&gnmic, options, value).await.unwrap_err();
        assert!(refused.contains("FailedPrecondition"), "{refused}");
    }
    let other = set(&gnmic, &["--commit-id", "b", "--commit-confirm"], None).await.unwrap_err();
    assert!(other.contains("InvalidArgument"), "{other}");
    set(&gnmic, &["--commit-id", "a", "--commit-confirm"], None).await.unwrap();
    assert_eq!(mtu(), 1300);
    assert_eq!(is_shown(), [false; 2]);
    let gone = gnmic.outcome(&get).await.unwrap_err();
    assert!(gone.contains("there is no such data"), "{gone}");

    set(&gnmic, &commit_options("c"), Some(1200)).await.unwrap();
    assert_eq!(mtu(), 1200);
    set(&gnmic, &["--commit-id", "c", "--commit-cancel"], None).await.unwrap();
    assert_eq!(mtu(), 1300);

    // A reader sees the commit and its end, each once.
    let client = agent.gnmi().await;
    let state = format!("{ETH0}/state/mtu");
    let list = subscribe_to(Mode::Stream, &[(&state, SubscriptionMode::OnChange)]);
    let mut reader = client.subscribe(list).await.unwrap();
    reader.until_sync().await;
    set(&gnmic, &commit_options("d"), Some(1200)).await.unwrap();
    reader.until("1214").await;
    set(&gnmic, &["--commit-id", "d", "--rollback-duration", "1s"], None).await.unwrap();
    let updates = reader.until_all(&["1314"]).await;
    assert_eq!(updates.len(), 1, "{updates:#?}");
    assert_eq!(mtu(), 1300);
    let late = set(&gnmic, &["--commit-id", "d", "--commit-confirm"], None).await.unwrap_err();
    assert!(late.contains("FailedPrecondition"), "{late}");
}

/// Commits that a restart must not restore. Rotations are in the tests of gNSI.
// proves 1.135, 3.37
#[tokio::test]
async fn kill_rolls_an_unconfirmed_commit_back_before_the_first_answer() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let mut agent = AgentProcess::start(&net).await;
    set(&Gnmic::for_admin(&agent), &[], Some(1400)).await.unwrap();
    set(&Gnmic::for_admin(&agent), &commit_options("a"), Some(1300)).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1300);
    agent.kill();
    assert_eq!(net.link("eth0").mtu, 1300, "nobody was there to take it back");

    agent.restart().await;
    let config = agent.gnmi().await.read_as(ETH0, DataType::Config).await.unwrap().to_string();
    assert!(config.contains("1414") && !config.contains("1314"), "the first answer: {config}");
    eventually("the kernel follows", || net.link("eth0").mtu == 1400).await;
    let gnmic = Gnmic::for_admin(&agent);
    let late = set(&gnmic, &["--commit-id", "a", "--commit-confirm"], None).await.unwrap_err();
    assert!(late.contains("FailedPrecondition"), "{late}");
    set(&gnmic, &[], Some(1300)).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1300);
}

#[tokio::test]
async fn gnmic_previews_a_set_and_commits_it() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/protos");
    let plan = async |extension: &str, mtu: u32| {
        let path = format!("{ETH0}/config/mtu");
        let value = (mtu + 14).to_string();
        let arguments = [
            "-e",
            "json_ietf",
            "--proto-dir",
            protos.to_str().unwrap(),
            "--proto-file",
            "holdfast/plan.proto",
            "--registered-extensions",
            "26150:holdfast.Plan",
            "--request-extensions",
            extension,
            "set",
            "--update-path",
            &path,
            "--update-value",
            &value,
        ];
        gnmic.outcome(&arguments).await
    };
    let before = net.link("eth0").mtu;
    let preview = plan(r#"{"26150": {"dryRun": {}}}"#, 1400).await.unwrap();
    assert_eq!(net.link("eth0").mtu, before, "{preview}");
    assert!(preview.contains("EFFECT_ADOPTED") && preview.contains(r#"\"mtu\":1414"#), "{preview}");
    let hash = preview.split(r#""hash": ""#).nth(1).and_then(|it| it.split('"').next()).unwrap();

    let expected = format!(r#"{{"26150": {{"expected": {{"hash": "{hash}"}}}}}}"#);
    let other = plan(&expected, 1300).await.unwrap_err();
    assert!(other.contains("Aborted"), "{other}");
    assert_eq!(net.link("eth0").mtu, before);
    plan(&expected, 1400).await.unwrap();
    assert_eq!(net.link("eth0").mtu, 1400);
}
