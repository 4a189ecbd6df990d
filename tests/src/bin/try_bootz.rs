//! `make try-bootz`: a box that has just left the factory, bootstrapped by the public server emulator.
//!
//! Box and server have a network namespace each and a cable between them. It prints what the box did, what the server
//! saw and what the box is afterwards, and ends. Everything is gone then.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::process::ExitCode;

use anyhow::{Result, bail};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{BOX, Bootstrap, Given, PORT, SERVER, bootz, start};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;

/// Characters of the server's lines that are shown: the rest are certificates.
const WIDTH: usize = 160;
const OPENCONFIG: &str = r#"{"openconfig-system:system":{"config":{"hostname":"bootstrapped"}}}"#;
const DYNAMIC: &str = r#"{"openconfig-system:system":{"config":{"motd-banner":"yours now"}}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("try-bootz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let net = Netns::enter();
    let given =
        Given { streaming: true, openconfig: OPENCONFIG, dynamic: DYNAMIC, ..Given::default() };
    let bootstrap = Bootstrap::new(&net, given);
    let server = bootstrap.emulator().await;
    let options = bootstrap.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let agent = AgentProcess::start_with(&net, &options).await;
    println!("A box with {PORT} at {BOX}, and the bootz server emulator at {SERVER}.");
    println!("holdfast bootz start --bootz-uri bootz://{SERVER} --src-interface {PORT}\n");
    start(&agent);
    eventually("the bootstrap ends", || bootz(&agent, &["status"]).contains("BOOTZ_OK")).await;
    println!("What the box did (holdfast bootz status):\n{}", bootz(&agent, &["status"]));
    println!("What the server logged of it:");
    for line in server.log().lines().filter(|line| line.contains("Status") || line.contains("card"))
    {
        let text = line.split("] ").last().unwrap_or(line);
        println!("  {}", text.chars().take(WIDTH).collect::<String>());
    }
    println!("\nWhat the box is now (holdfast show config):\n{}", agent.show("config"));
    let state = agent.gnmi().await.read("/system/bootz/state").await?;
    println!("/system/bootz/state over gNMI:\n{state:#}");
    if state["openconfig-system-bootz:status"] != "BOOTZ_OK" {
        bail!("the bootstrap did not end well");
    }
    Ok(())
}
