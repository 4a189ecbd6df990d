//! Alarms: their list, their events and their metrics.

use futures::FutureExt;
use holdfast_config::{Name, Path, Value};

use super::*;
use crate::alarms::AlarmChanges;

/// Shows leaves below `/fault-state`, or takes them away.
async fn show(agent: &TestAgent, leaves: &[(&str, Option<Value>)]) {
    let core = agent.core.handle();
    let native = &core.models().native;
    let leaf = |(path, value): &(&str, Option<Value>)| {
        let path: Path = format!("/fault-state/{path}").parse().unwrap();
        (native.resolve_write(&path).unwrap(), value.clone())
    };
    core.show_state(leaves.iter().map(leaf).collect()).await;
}

/// Shows one alarm in a list.
async fn show_alarm(agent: &TestAgent, list: &str, id: &str, severity: &'static str, created: u64) {
    let texts = [("id", id), ("text", "it is down"), ("resource", "agent")];
    let texts = texts.map(|(leaf, text)| (leaf, Value::Str(text.into())));
    let numbers = [("time-created", created), ("occurrences", 2)];
    let numbers = numbers.map(|(leaf, number)| (leaf, Value::Uint(number)));
    let names = [("severity", severity), ("operator-state", "none")];
    let names = names.map(|(leaf, name)| (leaf, Value::Enum(Name::constant(name))));
    for (leaf, value) in texts.into_iter().chain(numbers).chain(names) {
        show(agent, &[(&format!("{list}[id={id}]/state/{leaf}"), Some(value))]).await;
    }
}

/// Four alarms of three severities, and one that is put aside.
async fn agent_with_alarms() -> TestAgent {
    let agent = TestAgent::start(&[]).await;
    for (list, id, severity, created) in [
        ("alarm", "a@agent", "MINOR", 1),
        ("alarm", "b.c@agent", "MAJOR", 30),
        ("alarm", "d@agent", "MAJOR", 20),
        ("alarm", "e@agent", "CRITICAL", 40),
        ("shelved-alarm", "f@agent", "WARNING", 5),
    ] {
        show_alarm(&agent, list, id, severity, created).await;
    }
    agent
}

#[tokio::test]
async fn the_worst_alarm_comes_first_then_the_oldest() {
    let agent = agent_with_alarms().await;
    let all = ["e@agent", "d@agent", "b.c@agent", "a@agent"];
    let open = agent.read("/scheduler/alarms").await;
    assert_eq!(names(&open, "Id"), all);
    let worst = json!({
        "Id": "e@agent", "Type": null, "Resource": "agent", "Severity": "CRITICAL",
        "Text": "it is down", "Since": "1970-01-01T00:00:00.000000040Z",
        "LastRaised": null, "LastChanged": null, "Occurrences": 2,
        "OperatorState": "none", "Operator": null, "OperatorText": null, "Shelf": null, "SuppressedBy": null,
        "Cause": null, "Impact": {"State": "complete", "Down": 2, "Degraded": 1},
    });
    for (leaf, value) in [
        ("state", Value::Enum(Name::constant("complete"))),
        ("down", Value::Uint(2)),
        ("degraded", Value::Uint(1)),
    ] {
        let leaf = format!("alarm[id=e@agent]/state/impact/{leaf}");
        show(&agent, &[(&leaf, Some(value))]).await;
    }
    let cause = "alarm[id=a@agent]/state/cause";
    show(&agent, &[(cause, Some(Value::Str("e@agent".into())))]).await;
    let open = agent.read("/scheduler/alarms").await;
    assert_eq!(open[0], worst);
    assert_eq!((&open[3]["Cause"], &open[3]["Impact"]), (&json!("e@agent"), &json!(null)));
    let shelf = "shelved-alarm[id=f@agent]/state/shelf";
    show(&agent, &[(shelf, Some(Value::Str("rack".into())))]).await;
    let shelved = agent.read("/scheduler/alarms?shelved=true").await;
    assert_eq!(
        (names(&shelved, "Id"), names(&shelved, "Shelf")),
        (vec!["f@agent".to_owned()], vec!["rack".to_owned()])
    );

    // Pages go on where the last one ended, even if that alarm is gone by then.
    let mut address = Some("/scheduler/alarms?limit=3".to_owned());
    let mut pages = Vec::new();
    while let Some(next) = address.take() {
        let page = agent.get(&next).await;
        pages.push(names(&TestAgent::json(&page), "Id"));
        let link = page.headers.get(header::LINK).map(|link| link.to_str().unwrap().to_owned());
        address = link.map(|link| link[1..link.find('>').unwrap()].to_owned());
    }
    assert_eq!(pages, [&all[..3], &all[3..]]);
    for wrong in ["x", "1", "1.2", "x.2.a", "1.x.a"] {
        let refused = agent.get(&format!("/scheduler/alarms?after={wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        assert!(refused.text.contains("is not a place at which a page ended"), "{}", refused.text);
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_box_without_alarms_has_an_empty_list_and_counts_of_zero() {
    let agent = TestAgent::start(&[]).await;
    for address in ["/scheduler/alarms", "/scheduler/alarms?shelved=1"] {
        assert_eq!(agent.read(address).await, json!([]), "{address}");
    }
    assert_eq!(alarm_samples(&agent).await, ["0", "0", "0", "0"]);
    let counts = [("critical", 1), ("major", 2), ("minor", 0), ("shelved", 7)];
    for (leaf, count) in counts {
        show(&agent, &[(&format!("summary/{leaf}"), Some(Value::Uint(count)))]).await;
    }
    assert_eq!(alarm_samples(&agent).await, ["1", "2", "0", "0"]);
    agent.stop().await;
}

/// Numbers of critical, major, minor and warning alarms on the page of metrics.
async fn alarm_samples(agent: &TestAgent) -> Vec<String> {
    let text = agent.get("/metrics").await.text;
    let sample = |severity: &str| {
        let begin = format!("holdfast_alarms{{severity=\"{severity}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&begin)).unwrap().to_owned()
    };
    ["critical", "major", "minor", "warning"].map(sample).into()
}

#[tokio::test]
async fn only_revisions_with_other_alarms_are_told() {
    let agent = agent_with_alarms().await;
    let core = agent.core.handle();
    let number = || core.revision().number;
    let mut changes = AlarmChanges::of(&core);
    let before = number();
    agent.set(BOX_CONFIG).await;
    while number() == before {
        tokio::task::yield_now().await;
    }
    assert!(changes.changed().now_or_never().is_none(), "no alarm has changed");
    let text = "alarm[id=a@agent]/state/text";
    for (value, is_told) in [("it is down", false), ("it is worse", true), ("it is worse", false)] {
        show(&agent, &[(text, Some(Value::Str(value.into())))]).await;
        assert_eq!(changes.changed().now_or_never().is_some(), is_told, "{value}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn readers_of_events_are_told_to_read_the_alarms_again() {
    let agent = TestAgent::start(&[]).await;
    let request = Request::builder().uri("/scheduler/events").body(Body::empty()).unwrap();
    let mut body = agent.routes.clone().oneshot(request).await.unwrap().into_body();
    let mut told = String::new();
    let mut is_told = async |told: &mut String| match body.frame().await {
        Some(frame) => {
            *told += &String::from_utf8_lossy(frame.unwrap().data_ref().unwrap());
            true
        }
        None => false,
    };
    assert!(is_told(&mut told).await && told.starts_with(": listening"), "{told}");
    // The leaves come in many revisions; a reader that has not read yet is told of them once.
    show_alarm(&agent, "alarm", "a@agent", "MINOR", 1).await;
    while !told.contains("event: alarms\ndata: {}\n\n") {
        assert!(is_told(&mut told).await, "{told}");
    }
    // The stream ends with the core, though its revisions can still be read.
    agent.core.shutdown().await;
    while is_told(&mut told).await {}
    assert_eq!(told.matches("event: alarms").count(), 1, "{told}");
}
