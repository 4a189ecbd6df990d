//! Collectors of everything on a box with many ports, from several hosts at once.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Result, ensure};
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::typed_value::Value;
use holdfast_proto::gnmi::{SubscriptionMode, Update};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Event, subscribe_to};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::{Effort, Row, panics};

/// Collectors of all sources together.
const COLLECTORS: u32 = 1_000;
/// Hosts from which they come.
const SOURCES: u8 = 10;
/// Interfaces of the box, both ends of each cable counted.
const INTERFACES: usize = 100;
const PASSWORD: &str = "a password to collect with";

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("collectors of everything");
    let net = Netns::enter();
    let cable = |at| format!("link add v{at} type veth peer name w{at}\nlink set v{at} up\n");
    let cables: String = (0..INTERFACES / 2).map(cable).collect();
    net.shell(&format!("ip -batch - <<'END'\n{cables}END"));
    let agent = AgentProcess::start(&net).await;
    let added = agent.user(&["set", "collector", "--role", "read-only"], PASSWORD);
    ensure!(added.status.success(), "{added:?}");
    let admin = agent.gnmi().await;
    let ca = Certificate::from_pem(fs::read_to_string(agent.ca_file())?);
    let count = effort.scaled(COLLECTORS);
    let began = Instant::now();
    let mut collectors = JoinSet::new();
    let (in_sync_tx, mut in_sync) = mpsc::channel(count as usize);
    for source in 1..=SOURCES {
        let tls = ClientTlsConfig::new().ca_certificate(ca.clone()).domain_name("localhost");
        let endpoint = Endpoint::from_shared(format!("https://{}", agent.address()))?;
        let endpoint = endpoint.tls_config(tls)?;
        let endpoint = endpoint.local_address(Some(IpAddr::from([127, 0, 0, source])));
        let client =
            GnmiClient::over(endpoint.connect().await?, Credentials::new("collector", PASSWORD)?);
        for _ in 0..count / u32::from(SOURCES) {
            collectors.spawn(collect(client.clone(), in_sync_tx.clone()));
        }
    }
    drop(in_sync_tx);
    let mut updates = 0;
    let mut arrived = Vec::new();
    while let Some(told) = in_sync.recv().await {
        updates += told;
        arrived.push(began.elapsed());
    }
    let in_sync = arrived.len();
    // Each of them, and everybody else, is served on.
    admin.update("/system/config", json!({"hostname": LAST})).await?;
    let mut faults: BTreeMap<String, u32> = BTreeMap::new();
    while let Some(ended) = collectors.join_next().await {
        if let Err(error) = ended? {
            *faults.entry(format!("{error:#}")).or_default() += 1;
        }
    }
    let faults = faults.into_iter().map(|(fault, times)| format!("{times} collectors: {fault}"));
    row.attempted(u64::from(count), faults.chain(panics(&agent)).collect());
    let last = arrived.last().copied().unwrap_or_default();
    row.note(format!(
        "{in_sync} in sync after {:.1} s, {updates} updates, {} MB at most",
        last.as_secs_f64(),
        agent.peak_resident_bytes() >> 20
    ));
    Ok(row)
}

/// Name of the box that tells a collector to end.
const LAST: &str = "last";

/// Reads everything, tells when it is in sync, and stays until it is told of [`LAST`].
async fn collect(client: GnmiClient, in_sync_tx: mpsc::Sender<usize>) -> Result<()> {
    let list = subscribe_to(Mode::Stream, &[("/", SubscriptionMode::OnChange)]);
    let mut collector = client.subscribe(list).await?;
    let mut in_sync_tx = Some(in_sync_tx);
    let mut updates = 0;
    loop {
        match collector.next().await? {
            Event::Notification(notification) => {
                updates += notification.update.len();
                if notification.update.iter().any(is_last) {
                    return Ok(());
                }
            }
            Event::Sync => {
                // Who waits for all of them waits for the last sender to go.
                if let Some(in_sync_tx) = in_sync_tx.take() {
                    in_sync_tx.send(updates).await?;
                }
            }
            Event::End => anyhow::bail!("the stream has ended after {updates} updates"),
        }
    }
}

/// True for an update with the name [`LAST`].
fn is_last(update: &Update) -> bool {
    let value = update.val.as_ref().and_then(|value| value.value.as_ref());
    matches!(value, Some(Value::JsonIetfVal(json)) if json == format!("\"{LAST}\"").as_bytes())
}
