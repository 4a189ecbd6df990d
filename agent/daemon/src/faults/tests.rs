//! The sources of faults, on the simulated kernel.

use std::collections::BTreeSet;
use std::path::Path;

use holdfast_config::Models;
use holdfast_core::Datastore;
use holdfast_faults::{Condition, Report, Resource, UplinkGroup};
use holdfast_platform::transport::SimulatedKernel;

mod drains;
mod fencer;

use super::bonds::Bonds;
use super::gateways::{Gateways, ProbedRoutes};
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
    // Also a link that is neither there nor configured.
    for name in ["eth0", "eth9"] {
        let trouble = links.trouble(&name.into());
        assert_eq!(trouble.as_deref(), Some(format!("there is no link {name}").as_str()));
    }
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

/// Static routes, each with the gateway of its only next hop.
fn routes(routes: &[(&str, &str)]) -> String {
    let lines = routes.iter().map(|(prefix, gateway)| {
        format!("network-instance DEFAULT static s route {prefix} next-hop 0 next-hop {gateway}\n")
    });
    lines.collect()
}

#[tokio::test]
async fn a_next_hop_is_probed_while_a_route_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), &["eth0"]).await;
    let mut gateways = Gateways::new(&Models::load().unwrap().native).unwrap();
    let look = |gateways: &mut Gateways| {
        let configuration = agent.handle.configuration();
        let differs = gateways.look(configuration.effective());
        let probes = gateways.probes(&[]);
        (differs, probes.iter().map(|it| it.name.to_string()).collect::<Vec<_>>().join(" "))
    };
    let two = routes(&[("0.0.0.0/0", "10.0.0.2"), ("203.0.113.0/24", "10.0.1.2")]);
    agent.update_lines(&two).await.unwrap();
    assert_eq!(look(&mut gateways), (false, String::new()), "nobody asks for probes");
    assert!(gateways.want(ProbedRoutes::DefaultRoutes));
    assert_eq!(look(&mut gateways), (true, "10.0.0.2".to_owned()));
    assert!(gateways.want(ProbedRoutes::All) && !gateways.want(ProbedRoutes::All));
    assert_eq!(look(&mut gateways), (true, "10.0.0.2 10.0.1.2".to_owned()));
    assert!(!look(&mut gateways).0, "nothing has changed");
    agent.update_lines(&routes(&[("198.51.100.0/24", "10.0.1.2")])).await.unwrap();
    assert!(!look(&mut gateways).0, "it is probed already");
    agent
        .update_lines("no network-instance DEFAULT static s route 203.0.113.0/24\n")
        .await
        .unwrap();
    assert!(!look(&mut gateways).0, "another route names it");
    agent
        .update_lines("no network-instance DEFAULT static s route 198.51.100.0/24\n")
        .await
        .unwrap();
    assert_eq!(look(&mut gateways), (true, "10.0.0.2".to_owned()));
}

#[tokio::test]
async fn a_bond_is_a_group_of_its_members() {
    let folder = tempfile::tempdir().unwrap();
    let agent = agent(folder.path(), &["eth0", "eth1"]).await;
    let mut bonds = Bonds::new(&Models::load().unwrap().native).unwrap();
    let look = |bonds: &mut Bonds| {
        let differs = bonds.look(agent.handle.configuration().effective());
        let text = |it: &UplinkGroup| format!("{} {:?} {}", it.name, it.members, it.least);
        (differs, bonds.groups().iter().map(text).collect::<Vec<_>>())
    };
    // A member may come before its bond.
    agent.update_lines("interface eth0 aggregate bond7\n").await.unwrap();
    assert_eq!(look(&mut bonds), (true, vec![]));
    agent
        .update_lines("interface bond7 type bond\ninterface eth1 aggregate bond7\n")
        .await
        .unwrap();
    assert_eq!(look(&mut bonds), (true, vec![r#"bond7 {"eth0", "eth1"} 1"#.to_owned()]));
    agent.update_lines("interface eth0 description uplink\n").await.unwrap();
    assert!(!look(&mut bonds).0);
    agent.update_lines("interface bond7 bond min-links 2\n").await.unwrap();
    assert_eq!(look(&mut bonds), (true, vec![r#"bond7 {"eth0", "eth1"} 2"#.to_owned()]));
    agent.update_lines("no interface eth1 aggregate\n").await.unwrap();
    assert_eq!(look(&mut bonds), (true, vec![r#"bond7 {"eth0"} 2"#.to_owned()]));
    agent.update_lines("no interface bond7\n").await.unwrap();
    assert_eq!(look(&mut bonds), (true, vec![]));
}
