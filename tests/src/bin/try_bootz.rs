//! `make try-bootz`: a box that has just left the factory finds the public server emulator by DHCP, and is bootstrapped.
//!
//! Box and servers have a network namespace each and a cable between them; the box gets no other information. The
//! program prints the log of the box, the lines of the servers and the resulting configuration, and ends. All of it is
//! removed then.
#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

use std::process::ExitCode;

use anyhow::{Result, bail};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{BootstrapFixture, PORT, SERVER, ServerData, bootz};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;

/// Characters of each server line that are shown; the rest are certificates.
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
    let data = ServerData {
        streaming: true,
        openconfig: OPENCONFIG,
        dynamic: DYNAMIC,
        ..ServerData::default()
    };
    let bootstrap = BootstrapFixture::factory_new(&net, data);
    let server = bootstrap.emulator().await;
    let dhcp = bootstrap.dnsmasq().await;
    println!(
        "A bootz server (the public emulator) at {SERVER}, and dnsmasq, which names it in option 143."
    );
    println!(
        "A factory-new box with a cable to them in {PORT}, which is down and has no address:\n"
    );
    println!("{}", net.ip(&format!("-brief address show dev {PORT}")));
    let options = bootstrap.options_of_factory_new();
    println!("holdfast run {}\n", short_options(&options));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let agent = AgentProcess::start_with(&net, &options).await;
    eventually("the bootstrap ends", || bootz(&agent, &["status"]).contains("BOOTZ_OK")).await;
    println!("What DHCP saw:");
    for line in dhcp.log().lines().filter(|line| line.contains("(box0)")) {
        println!("  {}", line.rsplit(": ").next().unwrap_or(line));
    }
    println!("\nWhat the port has now:\n{}", net.ip(&format!("-brief address show dev {PORT}")));
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

/// Options without the folders of their files.
fn short_options(options: &[String]) -> String {
    let short = |option: &String| match option.rsplit_once('/') {
        Some((_, file)) => file.to_owned(),
        None => option.clone(),
    };
    options.iter().map(short).collect::<Vec<_>>().join(" ")
}
