//! Kernel notifications, for tests that nothing changes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::eventually::eventually;
use crate::netns::Netns;

/// Makes the monitor speak: a link that no test configures.
const MARKER: &str = "lo";
/// How the addresses start that the kernel gives a port itself, some seconds after it came up.
const LINK_LOCAL: &str = "fe80::";
/// A link that is made when all is over.
const LAST: &str = "the-end";

/// `ip monitor` in the namespace of this thread. It does not see a set that sets what is.
#[derive(Debug)]
pub struct Monitor {
    child: Child,
    seen: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts to listen once the kernel has told of what was done before, and returns once it is heard to.
    ///
    /// # Panics
    /// When `ip` cannot be started or stays silent.
    pub async fn start(net: &Netns) -> Self {
        eventually("ports show what their cables are", || net.has_settled()).await;
        let mut child = Command::new("ip")
            .args(["monitor", "link", "address", "route", "neigh"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip is there: the namespace was made with it");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let seen = Arc::new(Mutex::new(String::new()));
        let told = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                told.lock().expect("nobody panics with it").push_str(&(line + "\n"));
            }
        });
        let monitor = Self { child, seen, reader: Some(reader) };
        let mut on = false;
        eventually("the monitor listens", || {
            on = !on;
            net.ip(&format!("link set {MARKER} alias {}", if on { "one" } else { "two" }));
            monitor.seen().contains(MARKER)
        })
        .await;
        monitor
    }

    /// Ends it, and returns what it heard since it was started.
    ///
    /// # Panics
    /// When it does not speak any more.
    pub async fn heard(mut self, net: &Netns) -> Vec<String> {
        // Something that it must see, after everything that it should not have seen.
        net.ip(&format!("link add {LAST} type veth peer name {LAST}-peer"));
        eventually("the monitor told of the end", || self.seen().contains(LAST)).await;
        net.ip(&format!("link delete {LAST}"));
        self.child.kill().expect("our child is there until we wait for it");
        self.child.wait().expect("our child can be waited for");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("it only reads");
        }
        // But for what made it speak. What belongs to a line before is indented.
        let others = |line: &&str| {
            !line.contains(&format!(" {MARKER}: "))
                && !line.contains(LINK_LOCAL)
                && !line.starts_with(char::is_whitespace)
        };
        let before_last = |line: &&str| !line.contains(LAST);
        self.seen().lines().take_while(before_last).filter(others).map(str::to_owned).collect()
    }

    fn seen(&self) -> String {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}
