//! Attackers, with and without an account, while clients go on.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::raw_http2::{AttackedSocket, client_config, flood_malformed_streams};
use holdfast_tests::subscription::subscribe_to;

use crate::load::{Load, ports};
use crate::{Effort, Row};

/// Time of an attack.
const TIME: Duration = Duration::from_secs(10);
/// Connections of an attacker.
const CONNECTIONS: usize = 8;
/// Subscriptions that are opened and never read.
const SUBSCRIPTIONS: u32 = 400;
/// Wrong passwords that are tried.
const GUESSES: u32 = 200;
/// Most memory of the agent, in bytes, whatever attackers do.
const MEMORY: u64 = 700 << 20;

pub(crate) async fn row(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("attackers");
    let net = ports();
    let agent = AgentProcess::start(&net).await;
    let mut load = Load::begin(&agent).await?;
    let config = client_config(&fs::read_to_string(agent.ca_file())?);
    let time = if effort.time.is_some() { TIME } else { Duration::from_secs(2) };
    for _ in effort.attempts() {
        load.start(&agent).await;
        let socket = AttackedSocket::Tls(agent.address(), config.clone());
        let flood = flood_malformed_streams(socket, CONNECTIONS, time);
        let unread = open_subscriptions(&agent, effort.scaled(SUBSCRIPTIONS)).await;
        guess(&agent, effort.scaled(GUESSES)).await?;
        tokio::time::sleep(time).await;
        flood.join().map_err(|_| anyhow::anyhow!("the attacker panicked"))?;
        drop(unread);
        load.stop().await;
        let peak = agent.peak_resident_bytes();
        let (acknowledged, _) = load.take_counts();
        let mut faults = load.faults(&agent, &net).await;
        faults.extend((peak > MEMORY).then(|| format!("{peak} bytes of memory")));
        faults.extend((acknowledged == 0).then(|| "clients were shut out".to_owned()));
        row.attempted(acknowledged, faults);
    }
    row.note(format!("at most {} MB", agent.peak_resident_bytes() >> 20));
    Ok(row)
}

/// Subscriptions to everything, which nobody reads.
async fn open_subscriptions(agent: &AgentProcess, number: u32) -> Vec<impl Sized + use<>> {
    let mut open = Vec::new();
    let client = agent.gnmi().await;
    for _ in 0..number {
        let all = subscribe_to(Mode::Stream, &[("/", SubscriptionMode::OnChange)]);
        match client.subscribe(all).await {
            Ok(stream) => open.push(stream),
            Err(_) => break, // over a limit
        }
    }
    open
}

/// Tries wrong passwords, from another address than the clients use.
async fn guess(agent: &AgentProcess, number: u32) -> Result<()> {
    let channel = agent.channel().await;
    for at in 0..number {
        let wrong = Credentials::new("admin", &format!("guess {at}"))?;
        let client = GnmiClient::over(channel.clone(), wrong);
        if client.capabilities().await.is_ok() {
            anyhow::bail!("a wrong password was accepted");
        }
    }
    Ok(())
}
