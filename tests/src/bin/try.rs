//! `make try`: a live box to play with.
//!
//! Makes a private network namespace with the ports eth0 to eth3, starts the agent outside of it, sends a sample
//! configuration, shows the kernel before and after, and then waits with commands to paste. It needs no other client.
//! All of it is removed at the end.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_tests::agent::{ADMIN, AgentProcess, binary};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

const PORTS: usize = 4;

/// The sample configuration, relative to this crate's manifest.
const SAMPLE: &str = "data/try.json";

/// Time to wait for a carrier before the kernel is shown.
const CARRIER_PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of randomness in the generated password.
const PASSWORD_BYTES: usize = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic.payload_as_str().unwrap_or("something unexpected happened");
        eprintln!("try: {message}");
    }));
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let managed = Netns::detached();
    let neighbours = Netns::detached();
    connect_ports(&managed, &neighbours);

    let password = password()?;
    let mut agent = AgentProcess::start_as(&password, &["--netns", managed.path()]).await;
    println!(
        "The agent runs; it manages a network namespace with the ports eth0 to eth{}.",
        PORTS - 1
    );
    show("The kernel before", &managed);

    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE).canonicalize()?;
    push(&agent, &sample).await?;
    println!("\nPushed {} by gNMI Set.", sample.display());
    // The kernel reports a carrier a moment after a port is up, and its state should show it.
    let _still_worth_showing = timeout(CARRIER_PATIENCE, wait_for_carrier(&managed)).await;
    show("The kernel after", &managed);
    print_instructions(&agent, &managed, &password);

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    println!("\nCleaning up.");
    agent.terminate().await;
    Ok(())
}

/// Makes the ports of the box, with neighbours at their other ends that answer.
fn connect_ports(managed: &Netns, neighbours: &Netns) {
    for number in 0..PORTS {
        managed.add_cable(&format!("eth{number}"), neighbours, &format!("peer{number}"));
        neighbours.ip(&format!("link set peer{number} up"));
        // Documentation prefixes: 192.0.2.0/24 cut into four.
        neighbours.ip(&format!("address add 192.0.2.{}/26 dev peer{number}", number * 64 + 2));
    }
}

/// Waits until the ports that the sample enables are operational.
async fn wait_for_carrier(managed: &Netns) {
    let up = |port: &&str| managed.ip(&format!("-brief link show dev {port}")).contains(" UP ");
    eventually("the ports have a carrier", || ["eth0", "eth1"].iter().all(up)).await;
}

/// Sends a whole document as a Set of the root.
async fn push(agent: &AgentProcess, sample: &Path) -> Result<()> {
    let text =
        fs::read_to_string(sample).with_context(|| format!("cannot read {}", sample.display()))?;
    let document: Value =
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", sample.display()))?;
    agent.gnmi().await.update("/", document).await.context("the agent refuses the sample")?;
    Ok(())
}

fn show(title: &str, net: &Netns) {
    println!("\n{title}:");
    for arguments in ["-brief link", "-brief address", "route"] {
        println!("$ ip {arguments}");
        for line in net.ip(arguments).lines() {
            println!("  {}", line.trim_end());
        }
    }
}

fn print_instructions(agent: &AgentProcess, managed: &Netns, password: &str) {
    let gnmic = gnmic();
    let user = if std::env::var_os("TRY_USER_NAMESPACE").is_some() {
        format!("--user=/proc/{}/ns/user --preserve-credentials ", std::process::id())
    } else {
        String::new()
    };
    println!(
        r#"
Your turn. In another terminal (gnmic: {hint}):

  export GNMIC_ADDRESS={address} GNMIC_USERNAME={ADMIN} GNMIC_PASSWORD={password}
  export GNMIC_TLS_CA={ca} GNMIC_ENCODING=json_ietf

  {gnmic} capabilities
  {gnmic} get --path '/interfaces/interface[name=eth0]/state'
  {gnmic} set --update-path '/interfaces/interface[name=eth1]/config/mtu' --update-value 1414
  {gnmic} set --delete '/interfaces/interface[name=eth0]/config/description'
  {gnmic} subscribe --path '/interfaces/interface[name=*]/state/oper-status' --stream-mode on-change

What the agent knows, and what the kernel has:

  {holdfast} show pending --state-dir {state}
  nsenter {user}--net={net} ip address

Take something away behind its back, and look again:

  nsenter {user}--net={net} ip address flush dev eth0

Ctrl-C ends everything."#,
        hint = if gnmic == "gnmic" {
            "`make gnmic` builds it, with Go"
        } else {
            "built by `make gnmic`"
        },
        address = agent.address(),
        ca = agent.ca_file().display(),
        holdfast = binary().display(),
        state = agent.state_dir().display(),
        net = managed.path(),
    );
}

/// Command line name of gnmic: the one that `make gnmic` has built, if there is one.
fn gnmic() -> String {
    let built: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients/gnmic");
    built.canonicalize().map_or("gnmic".into(), |path| path.display().to_string())
}

fn password() -> Result<String> {
    let mut random = [0; PASSWORD_BYTES];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .context("/dev/urandom")?;
    Ok(random.iter().map(|octet| format!("{octet:02x}")).collect())
}
