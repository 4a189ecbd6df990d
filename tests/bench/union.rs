//! union_replace of whole configurations: first, repeated, and with one change.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_proto::gnmi::{self, SetRequest, TypedValue, Update, typed_value};
use holdfast_tests::agent::{AgentProcess, PASSWORD};
use holdfast_tests::gnmi::{GnmiClient, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;

use crate::{STATIC_ROUTES, Table, port, routes, yardstick};

/// All rows, each configuration on an agent of its own.
pub(crate) async fn rows(table: &mut Table, cables: u32, tables: &[u32]) -> Result<()> {
    interfaces(table, cables).await?;
    for count in tables {
        routing(table, *count).await?;
    }
    Ok(())
}

async fn interfaces(table: &mut Table, cables: u32) -> Result<()> {
    let net = Netns::enter();
    let raw = yardstick::cables(cables)?;
    let mut agent = AgentProcess::start_as(PASSWORD, &[]).await;
    let text = |last: &str| {
        let mut text = String::new();
        for number in 0..cables {
            let one = format!("a{number}");
            let other = format!("b{number}");
            for (end, peer) in [(&one, &other), (&other, &one)] {
                let description = if number + 1 == cables { last } else { "cable" };
                let _ = write!(
                    text,
                    "interface {end}\n  type veth\n  description {description}\n  veth\n    peer {peer}\n"
                );
            }
        }
        vec![cli(text)]
    };
    let what = format!("union of {} interfaces", 2 * cables);
    measure(
        table,
        &what,
        &net,
        &agent.gnmi().await,
        ("ip -batch", raw),
        [text("cable"), text("changed")],
    )
    .await?;
    ensure!(net.find_link(&format!("b{}", cables - 1)).is_some(), "the interfaces are there");
    agent.kill();
    Ok(())
}

async fn routing(table: &mut Table, count: u32) -> Result<()> {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set eth0 up");
    net.ip("link set peer0 up");
    net.ip("address add 192.0.2.1/24 dev eth0");
    let raw = yardstick::routes(&net, count)?;
    net.ip("address flush dev eth0");
    let mut agent = AgentProcess::start_as(PASSWORD, &[]).await;
    let whole = |count: u32| {
        vec![
            cli("system hostname bench\n".to_owned()),
            update("/interfaces", port()),
            update(STATIC_ROUTES, routes(0..count)),
        ]
    };
    let what = format!("union of {count} routes");
    measure(
        table,
        &what,
        &net,
        &agent.gnmi().await,
        ("batched netlink", raw),
        [whole(count), whole(count + 1)],
    )
    .await?;
    agent.kill();
    Ok(())
}

/// Times the first configuration on an empty box, its repetition, and then the second, which differs slightly.
async fn measure(
    table: &mut Table,
    what: &str,
    net: &Netns,
    client: &GnmiClient,
    (yardstick, raw): (&str, Duration),
    [first, second]: [Vec<Update>; 2],
) -> Result<()> {
    let cold = union(client, first.clone()).await?;
    table.time(&format!("{what}, cold"), cold, yardstick, raw, None);
    let monitor = Monitor::start(net).await;
    let again = union(client, first).await?;
    let messages = monitor.finish(net).await;
    ensure!(messages.is_empty(), "an unchanged union_replace writes to the kernel: {messages:?}");
    table.time(&format!("{what}, unchanged"), again, yardstick, raw, None);
    let one = union(client, second).await?;
    table.time(&format!("{what}, one change"), one, yardstick, raw, None);
    Ok(())
}

async fn union(client: &GnmiClient, entries: Vec<Update>) -> Result<Duration> {
    let request = SetRequest { union_replace: entries, ..Default::default() };
    let started = Instant::now();
    client.set(request).await.context("the union")?;
    Ok(started.elapsed())
}

fn cli(text: String) -> Update {
    let path = gnmi::Path { origin: "holdfast_cli".into(), ..Default::default() };
    let val = Some(TypedValue { value: Some(typed_value::Value::AsciiVal(text)) });
    Update { path: Some(path), val, ..Default::default() }
}
