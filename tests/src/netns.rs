//! Network namespaces that live as long as the thread that made them.

use std::ffi::OsStr;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::kernel_defaults;

/// A private network namespace and host name: everything this thread starts from now on is born in it.
///
/// Tests with it use tokio's current-thread runtime, so that their sockets are born there as well.
#[derive(Debug)]
pub struct Netns {
    path: String,
    /// The thread that keeps the namespace; `ip` takes its id when a link is moved.
    thread: i32,
    /// Keeps a namespace alive that is not that of this thread, until dropped.
    keeper: Option<mpsc::SyncSender<()>>,
}

/// A link as `ip link` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub mtu: u32,
    pub up: bool,
    pub mac: String,
    /// `description` in OpenConfig.
    pub alias: String,
    pub master: Option<String>,
    /// The kernel's kind, such as `veth` or `bridge`; empty for a physical port.
    pub kind: String,
}

impl Netns {
    /// Makes a namespace and moves this thread into it; its loopback is up, and it has the settings of the kernel, not those
    /// of the host.
    ///
    /// # Panics
    /// Without the privilege to make one: `make e2e` runs the tests in a user namespace that has it.
    #[must_use]
    pub fn enter() -> Self {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)
            .expect("root, or a user namespace, to make a network namespace: run `make e2e`");
        let thread = nix::unistd::gettid();
        let path = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
        let net = Self { path, thread: thread.as_raw(), keeper: None };
        kernel_defaults::restore();
        net.ip("link set lo up");
        net
    }

    /// Makes a namespace that this thread is not in; it is removed when the result is dropped.
    ///
    /// # Panics
    /// Without the privilege to make one.
    #[must_use]
    pub fn detached() -> Self {
        let (net_tx, net_rx) = mpsc::sync_channel(1);
        let (keeper, dropped) = mpsc::sync_channel(1);
        thread::spawn(move || {
            // Either end may be gone first, and then there is nothing to keep.
            let _ = net_tx.send(Self::enter());
            let _ = dropped.recv();
        });
        let inside: Self = net_rx.recv().expect("the thread sends before it ends");
        Self { keeper: Some(keeper), ..inside }
    }

    /// Adds a port with a cable to `peer`, both down.
    #[must_use]
    pub fn with_veth(self, port: &str, peer: &str) -> Self {
        self.ip(&format!("link add {port} type veth peer name {peer}"));
        self
    }

    /// Adds a port whose cable ends as `peer` in another namespace.
    #[track_caller]
    pub fn add_cable(&self, port: &str, other: &Self, peer: &str) {
        self.ip(&format!("link add {port} type veth peer name {peer} netns {}", other.thread));
    }

    /// Path of the namespace, for other processes.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Runs `ip` with arguments separated by spaces, and returns its output.
    #[track_caller]
    pub fn ip(&self, arguments: &str) -> String {
        let words = arguments.split_whitespace();
        let output = match self.keeper {
            None => run("ip", words),
            Some(_) => run(
                "nsenter",
                [format!("--net={}", self.path).as_str(), "ip"].into_iter().chain(words),
            ),
        };
        assert!(
            output.status.success(),
            "ip {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a shell command line, and returns its output.
    #[track_caller]
    pub fn shell(&self, line: &str) -> String {
        let output = match self.keeper {
            None => run("sh", ["-c", line]),
            Some(_) => run("nsenter", [&format!("--net={}", self.path), "sh", "-c", line]),
        };
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `ip -json` and returns its list.
    #[track_caller]
    pub fn ip_json(&self, arguments: &str) -> Vec<Value> {
        let text = self.ip(&format!("-json -details {arguments}"));
        if text.trim().is_empty() {
            return Vec::new();
        }
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("ip {arguments}: {error}: {text}"))
    }

    #[track_caller]
    pub fn link(&self, name: &str) -> Link {
        self.find_link(name).unwrap_or_else(|| panic!("there is no link {name}"))
    }

    pub fn find_link(&self, name: &str) -> Option<Link> {
        let links = self.ip_json("link show");
        let link = links.iter().find(|link| link["ifname"] == name)?;
        let text = |name: &str| link[name].as_str().unwrap_or_default().to_owned();
        Some(Link {
            index: number(&link["ifindex"]),
            mtu: number(&link["mtu"]),
            up: link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP")),
            mac: text("address"),
            alias: text("ifalias"),
            master: link["master"].as_str().map(ToOwned::to_owned),
            kind: link["linkinfo"]["info_kind"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// True when the operational state of every cable and bridge follows the state of its ends or ports. The kernel
    /// computes it, and announces it, up to a second after it has answered the request that changed them.
    pub fn has_consistent_link_states(&self) -> bool {
        let is_computed = |link: &Value| {
            ["veth", "bridge"].iter().any(|kind| link["linkinfo"]["info_kind"] == **kind)
        };
        let follows = |link: &Value| {
            let has =
                |flag: &str| link["flags"].as_array().is_some_and(|it| it.contains(&flag.into()));
            let ends_here = link["link"].is_string();
            let expected = match (has("UP"), has("NO-CARRIER")) {
                (true, false) => "UP",
                (true, true) if ends_here => "LOWERLAYERDOWN",
                _ => return true,
            };
            !is_computed(link) || link["operstate"] == expected
        };
        self.ip_json("link show").iter().all(follows)
    }

    /// The addresses of a link with their prefix lengths, without link-local ones, sorted.
    #[track_caller]
    pub fn addresses(&self, link: &str) -> Vec<String> {
        let links = self.ip_json(&format!("address show dev {link}"));
        let addresses =
            links.iter().flat_map(|link| link["addr_info"].as_array().into_iter().flatten());
        let mut addresses: Vec<_> = addresses
            .filter(|address| address["scope"] != "link")
            .map(|address| {
                format!("{}/{}", address["local"].as_str().unwrap_or("?"), address["prefixlen"])
            })
            .collect();
        addresses.sort();
        addresses
    }

    /// The IPv4 routes of the main table that a protocol number made, one line each as `ip` prints them.
    #[track_caller]
    pub fn routes(&self, protocol: &str) -> Vec<String> {
        let text = self.ip(&format!("-4 route show table main proto {protocol}"));
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Reads a sysctl below `net/`.
    #[track_caller]
    pub fn sysctl(&self, name: &str) -> String {
        let path = format!("/proc/sys/net/{name}");
        std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{path}: {error}"))
            .trim()
            .to_owned()
    }
}

fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
}

/// Runs a command to its end, in the namespaces of this thread.
pub(crate) fn run<A: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_namespace_has_no_setting_of_its_host() {
        let net = Netns::enter();
        let found = || {
            kernel_defaults::settings()
                .filter_map(|(path, value)| Some((fs::read_to_string(&path).ok()?, path, value)))
        };
        // All are read before the first is written: the kernel changes `accept_redirects` itself with `forwarding`.
        let at_first: Vec<_> = found().collect();
        for (found, path, value) in at_first {
            assert_eq!(found.trim(), value, "{path}");
            // As a host may have it, whose settings a new namespace inherits.
            fs::write(&path, if value == "0" { "1" } else { "0" }).unwrap();
        }
        assert_eq!(net.sysctl("ipv4/conf/default/forwarding"), "1");
        kernel_defaults::restore();
        let net = net.with_veth("eth0", "peer0");
        for (found, path, value) in found() {
            assert_eq!(found.trim(), value, "{path}");
        }
        // Links that come later have them as well.
        assert_eq!(net.sysctl("ipv4/conf/eth0/forwarding"), "0");
        assert_eq!(net.sysctl("ipv6/conf/eth0/accept_dad"), "1");
    }

    #[test]
    fn namespace_ports_are_visible_only_inside() {
        let net = Netns::enter().with_veth("eth0", "peer0");
        net.ip("link set eth0 mtu 1400 up alias uplink");
        net.ip("address add 192.0.2.1/24 dev eth0");
        net.ip("route add 198.51.100.0/24 via 192.0.2.2 proto 150 onlink dev eth0");

        let link = net.link("eth0");
        assert_eq!(
            (link.mtu, link.up, link.alias.as_str(), link.kind.as_str()),
            (1400, true, "uplink", "veth")
        );
        assert_eq!(net.addresses("eth0"), ["192.0.2.1/24"]);
        assert_eq!(net.routes("150"), ["198.51.100.0/24 via 192.0.2.2 dev eth0 onlink linkdown"]);

        let beside = Netns::detached().with_veth("eth7", "peer7");
        assert_eq!((beside.find_link("eth0"), net.find_link("eth7")), (None, None));
        assert_eq!(beside.link("eth7").kind, "veth");
    }
}
