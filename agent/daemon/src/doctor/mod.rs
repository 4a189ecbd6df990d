//! `holdfast doctor`: looks at everything that the agent needs of its box, and says what is wrong and what to do about it.
//!
//! [`CHECKS`] is the table of checks. Each row has an id, what it looks at, advice, and a function that judges a [`Subject`]: all
//! that was found out before, by asking the agent, other programs and the kernel. The page of the guide is made from the
//! table.
//!
//! Absent on purpose: any change of the box. The checks make a network namespace that ends with them, and a file in the state
//! folder that they remove. A check that cannot find something out says so.
//! That is not a failure of the box.

mod certificates;
mod files;
mod kernel;
pub(crate) mod managers;
mod process;
mod report;
mod server;
mod state;
pub(crate) mod subject;
#[cfg(test)]
mod tests;

pub use report::{json, text};
pub use subject::Subject;

use serde::{Serialize, Serializer};

/// Part of the box that a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Kernel,
    Process,
    Files,
    Server,
    Others,
    State,
}

holdfast_config::enum_names!(Group {
    Kernel = "kernel",
    Process = "process",
    Files = "files",
    Server = "server",
    Others = "others",
    State = "state",
});

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Good,
    /// It does not concern this box, such as a service manager that is not there.
    Skipped,
    Warning,
    /// Reason for which nothing could be found out.
    Unknown,
    Failure,
}

holdfast_config::enum_names!(Verdict {
    Good = "ok",
    Skipped = "skipped",
    Warning = "warning",
    Unknown = "unknown",
    Failure = "failure",
});

impl Verdict {
    /// Exit code of a command whose worst result this is.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Good | Self::Skipped => 0,
            Self::Warning => 1,
            Self::Failure => 2,
            Self::Unknown => 3,
        }
    }
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub verdict: Verdict,
    pub text: String,
    /// Advice that is more exact than that of the check.
    pub advice: Option<String>,
}

impl Finding {
    pub(crate) fn new(verdict: Verdict, text: impl Into<String>) -> Self {
        Self { verdict, text: text.into(), advice: None }
    }

    pub(crate) fn good(text: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Verdict::Good, text)]
    }

    pub(crate) fn skipped(text: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Verdict::Skipped, text)]
    }

    pub(crate) fn warning(text: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Verdict::Warning, text)]
    }

    pub(crate) fn failure(text: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Verdict::Failure, text)]
    }

    pub(crate) fn unknown(text: impl Into<String>) -> Vec<Self> {
        vec![Self::new(Verdict::Unknown, text)]
    }

    pub(crate) fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// One check: a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub id: &'static str,
    pub group: Group,
    /// The subject of the check, for the guide.
    pub about: &'static str,
    /// Advice on a finding that has none of its own.
    pub advice: &'static str,
    /// Judges what was found out. Each check has one finding at least.
    look: fn(&Subject) -> Vec<Finding>,
}

/// All checks, by group.
pub static CHECKS: &[Check] = &[
    Check {
        id: "kernel-links",
        group: Group::Kernel,
        about: "each kind of link that the model has is made once, in a network namespace of its own",
        advice: "load the module of that name, or build the kernel with it",
        look: kernel::kinds,
    },
    Check {
        id: "kernel-parameters",
        group: Group::Kernel,
        about: "parameters of links that a kernel may be built without, such as VLAN filtering of bridges",
        advice: "build the kernel with the option, such as CONFIG_BRIDGE_VLAN_FILTERING",
        look: kernel::parameters,
    },
    Check {
        id: "kernel-ipv6",
        group: Group::Kernel,
        about: "a link can have an IPv6 address",
        advice: "start the kernel without `ipv6.disable=1`",
        look: kernel::ipv6,
    },
    Check {
        id: "kernel-address-protocol",
        group: Group::Kernel,
        about: "the kernel keeps the protocol of an address (IFA_PROTO), by which the agent knows its own addresses",
        advice: "use Linux 5.18 or later",
        look: kernel::address_protocol,
    },
    Check {
        id: "kernel-variables",
        group: Group::Kernel,
        about: "variables below /proc/sys/net can be written: forwarding and the switch of IPv6",
        advice: "mount /proc/sys writable; containers need `--security-opt unmask=/proc/sys`",
        look: kernel::variables,
    },
    Check {
        id: "kernel-receive-buffer",
        group: Group::Kernel,
        about: "a socket of netlink gets a receive buffer that holds a burst of 20 000 notices (SO_RCVBUFFORCE)",
        advice: "run the agent outside of a user namespace, or raise net.core.rmem_max to 33554432; without it, the agent reads the whole system again after a burst",
        look: kernel::receive_buffer,
    },
    Check {
        id: "process-agent",
        group: Group::Process,
        about: "an agent answers on the local socket of the state folder",
        advice: "start it: `systemctl start holdfast`",
        look: process::agent,
    },
    Check {
        id: "process-capabilities",
        group: Group::Process,
        about: "the agent has the capabilities that its options and its configuration need",
        advice: "copy the drop-in to /etc/systemd/system/holdfast.service.d, then `systemctl daemon-reload` and restart",
        look: process::capabilities,
    },
    Check {
        id: "process-open-files",
        group: Group::Process,
        about: "the agent may open 8192 files, for connections and probes",
        advice: "set LimitNOFILE=8192 in the unit, or `--ulimit nofile` of the container",
        look: process::open_files,
    },
    Check {
        id: "process-memory",
        group: Group::Process,
        about: "the memory limit of the agent is enough for a change of all objects that are configured",
        advice: "set a higher MemoryHigh and MemoryMax in a drop-in, or `--memory` of the container",
        look: process::memory,
    },
    Check {
        id: "process-unit",
        group: Group::Process,
        about: "holdfast.service is enabled, runs, and did not restart or fail",
        advice: "`systemctl enable --now holdfast`; `journalctl -u holdfast` has the reason of a failure",
        look: process::unit,
    },
    Check {
        id: "process-order",
        group: Group::Process,
        about: "holdfast.service is ordered before network.target, so that services that wait for the network wait for the agent",
        advice: "take `Before=network.target` and `Wants=network.target` into the unit, as the packaged one has them",
        look: process::order,
    },
    Check {
        id: "files-folder",
        group: Group::Files,
        about: "the state folder is there, belongs to root or the user of the agent, and is closed to others",
        advice: "`chown root` and `chmod 0700` the folder, or name another one with --state-dir",
        look: files::folder,
    },
    Check {
        id: "files-configuration",
        group: Group::Files,
        about: "the configuration file can be read, and each of its keys and values is right",
        advice: "mend the file; an agent that runs goes on with what it has, and a new start fails",
        look: files::configuration,
    },
    Check {
        id: "files-room",
        group: Group::Files,
        about: "the file system of the state folder has 200 MB left",
        advice: "remove what is not needed, or give the state folder a file system of its own",
        look: files::room,
    },
    Check {
        id: "files-sync",
        group: Group::Files,
        about: "the disk takes 100 writes of 4 KiB, each of them durable within 50 ms (99 of 100)",
        advice: "every change waits for the disk: use a faster one, or another state folder",
        look: files::sync,
    },
    Check {
        id: "files-other-agent",
        group: Group::Files,
        about: "no agent with another state folder manages the network namespace",
        advice: "stop one of the two agents, or give one of them another namespace with --netns",
        look: files::other_agent,
    },
    Check {
        id: "server-sockets",
        group: Group::Server,
        about: "the sockets of the agent are open; without an agent, their ports are free",
        advice: "`holdfast show listeners`; name another port with --listen, or end the program that has it",
        look: server::sockets,
    },
    Check {
        id: "server-address",
        group: Group::Server,
        about: "the addresses of --listen are on the box",
        advice: "configure the address, or listen on [::]",
        look: server::addresses,
    },
    Check {
        id: "server-certificate",
        group: Group::Server,
        about: "files of certificates can be read, the key fits, and each link of the chain signs the one before",
        advice: "replace the files of --tls-cert and --tls-key, then `systemctl reload holdfast`",
        look: certificates::files,
    },
    Check {
        id: "server-certificate-names",
        group: Group::Server,
        about: "the certificate for clients has the host name of the box or one of its listening addresses",
        advice: "clients that check the name refuse it: order a certificate with the name by which they connect",
        look: certificates::names,
    },
    Check {
        id: "server-certificate-dates",
        group: Group::Server,
        about: "certificates are valid, and stay valid for 30 days",
        advice: "replace the files, or rotate the profile by gNSI certz",
        look: certificates::dates,
    },
    Check {
        id: "server-users",
        group: Group::Server,
        about: "there is a user with the role admin, or a certificate of clients",
        advice: "`holdfast user set admin --role admin`",
        look: server::users,
    },
    Check {
        id: "server-clock",
        group: Group::Server,
        about: "the clock is synchronised, and is not before the date of the program",
        advice: "certificates are judged by the clock: set it, and run chrony or systemd-timesyncd",
        look: server::clock,
    },
    Check {
        id: "others-networkd",
        group: Group::Others,
        about: "systemd-networkd manages none of the ports that are configured here",
        advice: "a .network file with `Unmanaged=yes` keeps it off a port",
        look: managers::networkd,
    },
    Check {
        id: "others-network-manager",
        group: Group::Others,
        about: "NetworkManager manages none of the ports that are configured here",
        advice: "`unmanaged-devices+=` keeps it off a port",
        look: managers::network_manager,
    },
    Check {
        id: "others-ifupdown",
        group: Group::Others,
        about: "ifupdown has raised none of the ports that are configured here",
        advice: "take the port out of /etc/network/interfaces",
        look: managers::ifupdown,
    },
    Check {
        id: "others-dhcp",
        group: Group::Others,
        about: "no dhclient and no dhcpcd runs for a port that is configured here",
        advice: "end the client, and keep what starts it from doing so again",
        look: managers::dhcp_clients,
    },
    Check {
        id: "others-routing",
        group: Group::Others,
        about: "FRR and BIRD configure none of the ports that are configured here",
        advice: "take the addresses out of the configuration of the daemon; its routes may stay",
        look: managers::routing_daemons,
    },
    Check {
        id: "others-cloud-init",
        group: Group::Others,
        about: "cloud-init does not write the network configuration of the box",
        advice: "write `network: {config: disabled}` to /etc/cloud/cloud.cfg.d/99-holdfast.cfg",
        look: managers::cloud_init,
    },
    Check {
        id: "state-objects",
        group: Group::State,
        about: "everything that is configured is in the system",
        advice: "`holdfast show pending` and `holdfast show why OBJECT`",
        look: state::objects,
    },
    Check {
        id: "state-alarms",
        group: Group::State,
        about: "no alarm is open, except those that another alarm explains or somebody has put aside",
        advice: "`holdfast fault list`",
        look: state::alarms,
    },
    Check {
        id: "state-repairs",
        group: Group::State,
        about: "no object was repaired more than three times in ten minutes",
        advice: "another program undoes what the agent does: `holdfast show timeline OBJECT`, and the group others",
        look: state::repairs,
    },
    Check {
        id: "state-window",
        group: Group::State,
        about: "no commit waits to be confirmed",
        advice: "`holdfast config confirm` keeps it, `holdfast config cancel` takes it back",
        look: state::window,
    },
    Check {
        id: "state-bootstrap",
        group: Group::State,
        about: "the last bootstrap has ended without a failure",
        advice: "`holdfast bootz status` has the steps of the last attempts",
        look: state::bootstrap,
    },
];

/// A finding with its check.
#[derive(Clone, Debug)]
pub struct Row {
    pub check: &'static Check,
    pub finding: Finding,
}

impl Row {
    /// Advice on the finding; `None` when nothing needs to be done.
    pub fn advice(&self) -> Option<&str> {
        let needs_it = self.finding.verdict > Verdict::Skipped;
        needs_it.then(|| self.finding.advice.as_deref().unwrap_or(self.check.advice))
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let document = serde_json::json!({
            "id": self.check.id,
            "group": self.check.group.name(),
            "result": self.finding.verdict.name(),
            "text": self.finding.text,
            "advice": self.advice(),
        });
        document.serialize(serializer)
    }
}

/// Carries out all checks.
pub fn examine(subject: &Subject) -> Vec<Row> {
    let found = |check: &'static Check| {
        let findings = (check.look)(subject);
        findings.into_iter().map(move |finding| Row { check, finding })
    };
    CHECKS.iter().flat_map(found).collect()
}

/// The worst result of all.
pub fn worst(rows: &[Row]) -> Verdict {
    rows.iter().map(|row| row.finding.verdict).max().unwrap_or(Verdict::Good)
}
