//! Kernel notifications, for tests that nothing changes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::eventually::eventually;
use crate::netns::Netns;

/// A link that no test configures; changing it makes the monitor print a line.
const MARKER: &str = "lo";
/// Prefix of the addresses that the kernel itself gives a port, some seconds after it came up.
const LINK_LOCAL: &str = "fe80::";
/// A link that is created at the end, as a mark.
const END_MARKER: &str = "the-end";

/// `ip monitor` in the namespace of this thread. Requests that change nothing cause no notification.
#[derive(Debug)]
pub struct Monitor {
    child: Child,
    output: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts the monitor once earlier changes have been notified, and returns once it prints new ones.
    ///
    /// # Panics
    /// When `ip` cannot be started or stays silent.
    pub async fn start(net: &Netns) -> Self {
        eventually("carriers are told", || net.has_consistent_link_states()).await;
        let mut child = Command::new("ip")
            .args(["monitor", "link", "address", "route", "neigh"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip is there: the namespace was made with it");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.lock().expect("nobody panics with it").push_str(&(line + "\n"));
            }
        });
        let monitor = Self { child, output: text, reader: Some(reader) };
        let mut on = false;
        eventually("the monitor listens", || {
            on = !on;
            net.ip(&format!("link set {MARKER} alias {}", if on { "one" } else { "two" }));
            monitor.output().contains(MARKER)
        })
        .await;
        monitor
    }

    /// Ends the monitor, and returns its lines since the start.
    ///
    /// # Panics
    /// When the monitor prints nothing more.
    pub async fn finish(mut self, net: &Netns) -> Vec<String> {
        // A change that the monitor must print, after all those that it should not have seen.
        net.ip(&format!("link add {END_MARKER} type veth peer name {END_MARKER}-peer"));
        eventually("the monitor told of the end", || self.output().contains(END_MARKER)).await;
        net.ip(&format!("link delete {END_MARKER}"));
        self.child.kill().expect("our child is there until we wait for it");
        self.child.wait().expect("our child can be waited for");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it only reads");
        }
        // Lines except those of the marker; continuation lines are indented.
        let others = |line: &&str| {
            !line.contains(&format!(" {MARKER}: "))
                && !line.contains(LINK_LOCAL)
                && !is_learned_by_bridge(line)
                && !line.starts_with(char::is_whitespace)
        };
        let before_last = |line: &&str| !line.contains(END_MARKER);
        self.output().lines().take_while(before_last).filter(others).map(str::to_owned).collect()
    }

    fn output(&self) -> String {
        self.output.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It has ended already, unless the test fails.
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

/// True for a MAC address that a bridge has learned from a frame: a neighbour without a network address, which is not permanent.
fn is_learned_by_bridge(line: &str) -> bool {
    let line = line.strip_prefix("Deleted ").unwrap_or(line);
    line.starts_with("dev ") && line.contains(" lladdr ") && !line.contains("PERMANENT")
}
