//! Arguments of `holdfast fault`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use super::StateDir;

#[derive(Clone, Debug, Args)]
pub struct FaultSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(subcommand)]
    pub action: FaultAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum FaultAction {
    #[command(flatten)]
    Question(FaultQuestion),
    /// Print open alarms, then each change as it comes, one JSON document a line; or start a program for each
    Watch(FaultWatch),
    /// Measure how long it takes until a fault is reported, and which step takes that time. The command latches each
    /// named resource as forwarding nothing for a moment, which moves no traffic unless a policy demands it
    Profile(FaultProfile),
}

/// Faults to measure.
#[derive(Clone, Debug, Args)]
pub struct FaultProfile {
    /// Resources that fail, such as interface:eth1. Several resources fail at the same time
    #[arg(value_name = "RESOURCE", required = true)]
    pub resources: Vec<String>,
    /// Number of faults, one after the other
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Longest time in milliseconds that a fault may take. When one takes longer, the command fails and names the step that
    /// took most of it
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    pub limit: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Questions and changes that are answered at once. The wire format of the local socket.
#[derive(Clone, Debug, Subcommand, Serialize, Deserialize)]
pub enum FaultQuestion {
    /// Print open alarms, the worst and then the oldest first
    List {
        #[command(flatten)]
        filter: FaultFilter,
    },
    /// Print one open alarm with all details
    Show {
        /// Name of the alarm, such as link-down@interface:eth1
        #[arg(value_name = "ALARM")]
        id: String,
    },
    /// Print the changes of alarms, the latest last
    Log {
        #[command(flatten)]
        filter: FaultFilter,
        /// Leave out changes up to this one
        #[arg(long, value_name = "ID", default_value_t = 0)]
        after: u64,
    },
    /// Acknowledge an alarm
    Ack {
        /// Name of the alarm, such as link-down@interface:eth1
        #[arg(value_name = "ALARM")]
        id: String,
        /// Comment, such as the number of a ticket
        #[arg(long, default_value = "")]
        text: String,
        /// Mark the alarm as closed, or withdraw the acknowledgement
        #[arg(long, value_enum, default_value_t = OperatorVerb::Ack)]
        state: OperatorVerb,
    },
    /// End the alarm of a rule whose `reset` is manual
    Reset {
        /// Owner of the rule
        #[arg(value_name = "OWNER")]
        owner: String,
        /// Name of the rule
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Report a fault from outside of the agent, as a `monitor` entry of /fault-management permits
    Report(FaultReport),
    /// Latch an interface or a next hop as down, whatever the kernel says, or lift the latch
    ForceDown(FaultLatch),
    /// Latch an interface or a next hop as one that forwards nothing, or lift the latch
    DataPlaneDown(FaultLatch),
}

/// A report from outside.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct FaultReport {
    /// Name of the `monitor` entry
    #[arg(long, value_name = "NAME")]
    pub monitor: String,
    /// Name of the alarm, such as x-optics@interface:eth1
    #[arg(value_name = "ALARM")]
    pub id: String,
    /// The report: raised, cleared or occurred
    #[arg(value_enum, default_value_t = ReportVerb::Raised)]
    pub status: ReportVerb,
    /// Severity: warning, minor, major or critical. Without it, that of the type
    #[arg(long, value_name = "SEVERITY")]
    pub severity: Option<String>,
    /// Text for people that says what is wrong
    #[arg(long, default_value = "")]
    pub text: String,
    /// Seconds for which the report counts. Without it, 300, or what the monitor permits
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub ttl: Option<u32>,
}

/// Report of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ReportVerb {
    /// The condition holds, and the reporter repeats the report within its ttl
    Raised,
    /// The condition has ended
    Cleared,
    /// The condition happened, and has no end
    Occurred,
}

/// A word that something is down.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct FaultLatch {
    /// Resource that is down, such as interface:eth1 or next-hop:192.0.2.1
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Take it back
    #[arg(long)]
    pub lift: bool,
    /// Also lift latches of others
    #[arg(long = "override", requires = "lift")]
    pub overrides: bool,
    /// Why
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Also shut the interface, before it is reported as down
    #[arg(long, conflicts_with = "lift")]
    pub fence: bool,
    /// Shut the interface even if something that works loses its last way
    #[arg(long, requires = "fence")]
    pub allow_isolation: bool,
}

/// State that an operator gives an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum OperatorVerb {
    /// Nothing: withdraws the acknowledgement
    None,
    /// Somebody takes care of the alarm
    Ack,
    /// Somebody has finished the work
    Closed,
}

/// Which alarms are meant.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct FaultFilter {
    /// Pattern of types: `*` stands for any characters
    #[arg(long = "type", value_name = "PATTERN", default_value = "")]
    pub kind: String,
    /// Pattern of resources, such as interface:eth*
    #[arg(long, value_name = "PATTERN", default_value = "")]
    pub resource: String,
    /// Least severity: warning, minor, major or critical
    #[arg(long, value_name = "SEVERITY")]
    pub severity: Option<String>,
    /// Also print shelved alarms
    #[arg(long)]
    pub shelved: bool,
    /// Print root causes only: leave out alarms that another alarm caused
    #[arg(long)]
    #[serde(default)]
    pub roots: bool,
}

#[derive(Clone, Debug, Args)]
pub struct FaultWatch {
    #[command(flatten)]
    pub filter: FaultFilter,
    /// Id of the last known change. The command prints later changes first; without an id it prints all open alarms
    /// first
    #[arg(long, value_name = "ID")]
    pub after: Option<u64>,
    /// Start this program for each message, with the message on its standard input. It is started again for a message until
    /// it exits with 0
    #[arg(long, value_name = "PROGRAM")]
    pub exec: Option<PathBuf>,
    /// Post each message to this https:// address, as a CloudEvent in JSON. It is posted again until the answer is 2xx
    #[arg(long, value_name = "URL", conflicts_with = "exec")]
    pub post: Option<String>,
    /// File with certificates (PEM) that the server of --post is checked against, in addition to those that this
    /// machine trusts
    #[arg(long, value_name = "FILE", requires = "post")]
    pub ca: Option<PathBuf>,
    /// File that keeps the id of the last change that the program or server has taken, for the next start of this command
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

/// Request of a watcher. The wire format of the local socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultWatchRequest {
    pub filter: FaultFilter,
    pub after: Option<u64>,
}
