//! The agent on the kernel: a medium table of routes, and a thousand pairs of links that are deleted at once.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{GnmiClient, parse_path, update};
use holdfast_tests::netns::Netns;
use serde_json::json;

use super::{STATIC_ROUTES, Table, set_routes, yardstick};

/// Measures both, and leaves the system as it was. Both ends of each pair are configured.
pub(super) async fn rows(
    table: &mut Table,
    agent: &AgentProcess,
    client: &GnmiClient,
    net: &Netns,
    routes: u32,
    pairs: u32,
) -> Result<()> {
    let raw = yardstick::routes(net, routes)?;
    let set = set_routes(agent, client, net, routes).await?.answered;
    table.time(&format!("{routes} routes in one Set"), set, "batched netlink", raw, Some(110.0));
    client.delete(STATIC_ROUTES).await.context("the routes go")?;

    let raw = yardstick::teardown(net, pairs)?;
    make_pairs(client, pairs).await?;
    let started = Instant::now();
    let names = (0..pairs).flat_map(|number| [format!("p{number}"), format!("q{number}")]);
    let delete = names.map(|name| parse_path(&native(&name))).collect();
    client.set(SetRequest { delete, ..Default::default() }).await.context("the pairs go")?;
    let took = started.elapsed();
    ensure!(
        net.find_link("p0").is_none() && net.find_link(&format!("q{}", pairs - 1)).is_none(),
        "pairs are left"
    );
    table.time(&format!("{pairs} veth pairs torn down"), took, "by link group", raw, Some(500.0));
    Ok(())
}

fn native(name: &str) -> String {
    format!("holdfast_native:/interfaces/interface[name={name}]")
}

async fn make_pairs(client: &GnmiClient, pairs: u32) -> Result<()> {
    let pair = |number: u32| {
        let near = format!("p{number}");
        let far = format!("q{number}");
        let end = |name: &str, peer: &str| {
            update(&native(name), json!({"type": "veth", "veth": {"peer": peer}}))
        };
        [end(&near, &far), end(&far, &near)]
    };
    let update = (0..pairs).flat_map(pair).collect();
    client.set(SetRequest { update, ..Default::default() }).await.context("the pairs")?;
    Ok(())
}
