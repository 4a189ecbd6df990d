//! The sources of faults, on the simulated kernel.

use std::collections::BTreeSet;
use std::path::Path;

use holdfast_config::Models;
use holdfast_core::Datastore;
use holdfast_faults::{Condition, Report, Resource};
use holdfast_platform::transport::SimulatedKernel;

mod drains;

use super::links::{BoxView, Links};
use crate::agent_tests::{Agent, BOX};

/// Present view of an agent's sources.
fn look(links: &mut Links, agent: &Agent, is_level: bool) -> Vec<Report> {
    let revision = agent.handle.revision();
    let configuration = agent.handle.configuration();
    let view = BoxView { state: &revision.native, configuration: configuration.effective() };
    if is_level {
        links.forget();
    }
    links.look(view, 1)
}

async fn agent(folder: &Path, ports: &[&str]) -> Agent {
    Agent::start(&SimulatedKernel::new(ports), folder).await
}

#[tokio::test]
async fn only_links_that_changed_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..200).map(|port| format!("eth{port}")).collect();
    let ports: Vec<&str> = names.iter().map(String::as_str).collect();
    let agent = agent(folder.path(), &ports).await;
    let mut links = Links::new(&Models::load().unwrap().native).unwrap();
    look(&mut links, &agent, true);
    let all = links.visited();
    assert!(all >= 200, "{all}");
    agent.update(BOX).await.unwrap();
    look(&mut links, &agent, false);
    assert_eq!(links.visited(), all + 1, "eth0 alone");
    look(&mut links, &agent, false);
    assert_eq!(links.visited(), all + 1);
}

#[tokio::test]
async fn a_configured_port_that_is_not_there_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), &["eth5"]).await;
    agent.update(BOX).await.unwrap();
    let mut links = Links::new(&Models::load().unwrap().native).unwrap();
    let reports = look(&mut links, &agent, true);
    let missing = Condition::new("link-missing", Resource::Interface("eth0".into()));
    assert_eq!(
        reports.iter().map(|it| (&it.condition, it.holds)).collect::<Vec<_>>(),
        [(&missing, true)]
    );
}

#[tokio::test]
async fn a_link_that_is_told_as_down_is_an_alarm_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), &["eth0"]).await;
    agent.update(BOX).await.unwrap();
    agent.handle.wait_until_idle().await.unwrap();
    let mut links = Links::new(&Models::load().unwrap().native).unwrap();
    look(&mut links, &agent, true);
    agent.handle.force_down(BTreeSet::from(["eth0".into()])).await.unwrap();
    let reports = look(&mut links, &agent, false);
    let [down] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(down.condition, Condition::new("link-down", Resource::Interface("eth0".into())));
    assert!(down.holds && down.text.contains("somebody holds it down"), "{down:?}");
    assert_eq!(down.begins, Some(0), "it has lost no carrier");
    agent.handle.force_down(BTreeSet::new()).await.unwrap();
    let reports = look(&mut links, &agent, false);
    assert!(reports.iter().all(|report| !report.holds), "{reports:?}");
}
