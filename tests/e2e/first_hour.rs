//! The first page of the guide, walked as somebody would who pastes its commands.
//!
//! `HOLDFAST_WRITE=1` writes what they print into the page.

use std::fs;
use std::time::Duration;

use holdfast_tests::agent::binary;
use holdfast_tests::clients::client;
use holdfast_tests::eventually::{WAIT_LIMIT, eventually};
use holdfast_tests::guide;
use holdfast_tests::netns::Netns;
use holdfast_tests::pages::{Shell, Step, stable, steps};
use tokio::time::{Instant, sleep};

/// The password of the page.
const SECRET: &str = "a long enough secret";

/// Time that the system has to settle before the page is written.
const SETTLING_TIME: Duration = Duration::from_secs(2);

/// Time between two looks at what a command prints.
const PAUSE: Duration = Duration::from_millis(100);

/// Commands that change nothing, so that they may be asked until they print what the page has.
fn only_reads(command: &str) -> bool {
    let reading = ["holdfast show ", "holdfast fault list", "ip -brief", "curl "];
    let is_get = command.starts_with("gnmic ") && command.contains(" get ");
    is_get || reading.iter().any(|begin| command.starts_with(begin))
}

/// A box with two ports whose agent is started as the page says, and a desk at the other end of the first one.
struct FirstHour {
    shell: Shell,
    _agent: tokio::process::Child,
    /// The box, and the machine at the other end of its cables.
    _nets: [Netns; 2],
}

impl FirstHour {
    async fn begin() -> Self {
        let desk = Netns::detached();
        let net = Netns::enter();
        for (number, port) in ["eth0", "eth1"].into_iter().enumerate() {
            let peer = port.replace("eth", "peer");
            net.add_cable(port, &desk, &peer);
            // The link-local addresses that the kernel makes of these are on the page.
            net.ip(&format!("link set {port} address 02:00:00:00:00:0{number} up"));
            let path = desk.path();
            net.shell(&format!("nsenter --net={path} ip link set {peer} up"));
        }
        let path = desk.path();
        net.shell(&format!("nsenter --net={path} ip address add 192.0.2.2/24 dev peer0"));

        let shell = Shell::new();
        let state = shell.path("state");
        let root = shell.path("root");
        fs::create_dir(&root).unwrap();
        let state = state.display();
        let holdfast = binary();
        let holdfast = holdfast.display();
        shell.write_program(
            "holdfast",
            &format!("HOLDFAST_STATE_DIR={state} exec {holdfast} \"$@\""),
        );
        let gnmic = client("gnmic");
        shell.write_program(
            "gnmic",
            &format!("exec nsenter --net={} {} \"$@\"", desk.path(), gnmic.display()),
        );
        shell.write_program("scp", &format!("cp {state}/tls/ca.pem ."));
        let run = format!("{holdfast} run --introspect 127.0.0.1:9190 --root {}", root.display());
        let variables = [("HOLDFAST_STATE_DIR", &*state.to_string()), ("RUST_LOG", "error")];
        let agent = shell.spawn(&run, &variables);
        eventually("the agent answers", || shell.outcome("holdfast show system").is_ok()).await;
        shell.run(&format!("echo '{SECRET}' | holdfast user set admin --role admin"));
        Self { shell, _agent: agent, _nets: [net, desk] }
    }

    /// Output of a command; of one that only reads, once it is that of the page.
    async fn printed(&self, step: &Step) -> String {
        if !only_reads(&step.command) {
            return self.shell.both_outputs(&step.command);
        }
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            let printed = self.shell.both_outputs(&step.command);
            if stable(&printed) == stable(&step.output) || Instant::now() > deadline {
                return printed;
            }
            sleep(PAUSE).await;
        }
    }
}

#[tokio::test]
async fn the_commands_of_the_first_hour_print_what_the_page_has() {
    let path = guide::folder().join("first-hour.md");
    let page = fs::read_to_string(&path).unwrap();
    let is_written = std::env::var_os("HOLDFAST_WRITE").is_some();
    let hour = FirstHour::begin().await;
    let mut written = String::new();
    let mut rest = page.as_str();
    for step in steps(&page) {
        if is_written {
            sleep(SETTLING_TIME).await;
            let (before, after) = rest.split_once(&step.text).unwrap();
            written += before;
            written += &step.with_output(&hour.shell.both_outputs(&step.command));
            rest = after;
            continue;
        }
        let printed = hour.printed(&step).await;
        assert_eq!(stable(&printed), stable(&step.output), "`{}` prints\n{printed}", step.command);
    }
    if is_written {
        fs::write(&path, written + rest).unwrap();
    }
}
