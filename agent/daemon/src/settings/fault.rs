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
    /// Measure how long a fault takes to be told, and where that time goes. Each named resource is said to forward nothing
    /// and then to work again, which moves no traffic unless a policy says so
    Profile(FaultProfile),
}

/// What is measured.
#[derive(Clone, Debug, Args)]
pub struct FaultProfile {
    /// What the faults are of, such as interface:eth1. Several are at fault at the same time
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
    /// Print one open alarm with all that is known of it
    Show {
        /// Name of the alarm, such as link-down@interface:eth1
        #[arg(value_name = "ALARM")]
        id: String,
    },
    /// Print what changed, the last change last
    Log {
        #[command(flatten)]
        filter: FaultFilter,
        /// Leave out changes up to this one
        #[arg(long, value_name = "ID", default_value_t = 0)]
        after: u64,
    },
    /// Say that somebody takes care of an alarm
    Ack {
        /// Name of the alarm, such as link-down@interface:eth1
        #[arg(value_name = "ALARM")]
        id: String,
        /// What is done about it, such as the number of a ticket
        #[arg(long, default_value = "")]
        text: String,
        /// Say that it is done, or take back what was said
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
    /// Say that an interface or a next hop is down, whatever the kernel says, or take that back
    ForceDown(FaultLatch),
    /// Say that an interface or a next hop forwards nothing, or take that back
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
    /// What is said of it
    #[arg(value_enum, default_value_t = ReportVerb::Raised)]
    pub status: ReportVerb,
    /// Severity: warning, minor, major or critical. Without it, that of the type
    #[arg(long, value_name = "SEVERITY")]
    pub severity: Option<String>,
    /// What is wrong, for people
    #[arg(long, default_value = "")]
    pub text: String,
    /// Seconds for which the report counts. Without it, 300, or what the monitor permits
    #[arg(long, value_name = "SECONDS")]
    pub ttl: Option<u32>,
}

/// What a reporter says of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ReportVerb {
    /// It holds, and the report is repeated within its ttl
    Raised,
    /// It has ended
    Cleared,
    /// It happened, and has no end
    Occurred,
}

/// A word that something is down.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct FaultLatch {
    /// What is down, such as interface:eth1 or next-hop:192.0.2.1
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Take it back
    #[arg(long)]
    pub lift: bool,
    /// Take back what others have said, too
    #[arg(long = "override", requires = "lift")]
    pub overrides: bool,
    /// Why
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Shut the interface as well, before it is told as down
    #[arg(long, conflicts_with = "lift")]
    pub fence: bool,
    /// Shut it even where something that works loses its last way
    #[arg(long, requires = "fence")]
    pub allow_isolation: bool,
}

/// What an operator says of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum OperatorVerb {
    /// Nothing: takes back what was said
    None,
    /// Somebody takes care of it
    Ack,
    /// Somebody has done what there was to do
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
    /// Shelved alarms, too
    #[arg(long)]
    pub shelved: bool,
    /// Root causes alone: no alarms that another one is the cause of
    #[arg(long)]
    #[serde(default)]
    pub roots: bool,
}

#[derive(Clone, Debug, Args)]
pub struct FaultWatch {
    #[command(flatten)]
    pub filter: FaultFilter,
    /// Id of the last change that is known: those after it are told first. Without it, all open alarms are
    #[arg(long, value_name = "ID")]
    pub after: Option<u64>,
    /// Start this program for each message, with the message on its standard input. It is started again for a message until
    /// it exits with 0
    #[arg(long, value_name = "PROGRAM")]
    pub exec: Option<PathBuf>,
    /// Post each message to this https:// address, as a CloudEvent in JSON. It is posted again until the answer is 2xx
    #[arg(long, value_name = "URL", conflicts_with = "exec")]
    pub post: Option<String>,
    /// File with certificates in PEM by which the server of --post is trusted, in addition to those that this machine trusts
    #[arg(long, value_name = "FILE", requires = "post")]
    pub ca: Option<PathBuf>,
    /// File that keeps the id of the last change that the program or server has taken, for the next start of this command
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
}

/// What a watcher asks for. The wire format of the local socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultWatchRequest {
    pub filter: FaultFilter,
    pub after: Option<u64>,
}
