//! Arguments of `holdfast show`, and the address on the local socket for them.

use clap::{Args, Subcommand, ValueEnum};
use holdfast_introspect::uri::UriBuilder;

use super::StateDir;

/// Address of the table of sockets on the local socket.
pub const LISTENERS: &str = "/show/listeners";

#[derive(Clone, Debug, Args)]
pub struct ShowSettings {
    #[command(subcommand)]
    pub what: Show,
    #[command(flatten)]
    pub state: StateDir,
}

/// Contents to show.
#[derive(Clone, Debug, Subcommand)]
pub enum Show {
    /// The configuration, by owner
    Config,
    /// The state of the box
    State,
    /// The boot configuration and its metadata
    Boot,
    /// Every value the engine keeps, with its status
    Values,
    /// Values that are waiting, and their missing dependencies
    Pending,
    /// Sockets that the agent listens on, and why some are not open
    Listeners,
    /// Service instances with their states, and what these wait for
    Services,
    /// What service instances wait for, with the last values
    ServiceWaits,
    /// Transactions, oldest first: the author, the plan and the result
    Transactions(TransactionsArgs),
    /// History of one value
    Timeline {
        /// Key or label, as in `show values`: link/eth0, or 'link eth0'
        key: String,
        #[arg(long)]
        json: bool,
    },
    /// Values and their dependencies, as a drawing
    Graph(GraphArgs),
    /// Reason for the state of a value, and the owner of its configuration; or what a service instance waits for
    Why {
        /// Key or label of a value, or the name of a service instance, TYPE[KEY='VALUE']
        #[arg(required_unless_present = "path", conflicts_with = "path")]
        key: Option<String>,
        /// Path of the configuration instead, to show the values that it results in
        #[arg(long)]
        path: Option<String>,
        /// The model of the path: openconfig or holdfast_native
        #[arg(long, requires = "path")]
        origin: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Plan of a repair of some values, or of all that differ
    Plan {
        /// Keys or labels of values
        keys: Vec<String>,
        #[arg(long)]
        json: bool,
    },
}

/// Selection of transactions.
#[derive(Clone, Debug, Args)]
pub struct TransactionsArgs {
    /// The transaction with this number, in full
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["since", "until", "after", "limit"])]
    pub number: Option<u64>,
    /// The transaction with this number, as a JSON document for replaying it
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["number", "since", "until", "after", "limit"])]
    pub record: Option<u64>,
    /// Transactions that ended at or after this time: RFC 3339, a date (its beginning in UTC), or nanoseconds since 1970
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Transactions that began at or before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Transactions after this number
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// The last of the transactions, up to this number; with --after, the first ones after that
    #[arg(long)]
    pub limit: Option<u64>,
    #[arg(long)]
    pub json: bool,
}

/// Content and format of a drawing.
#[derive(Clone, Debug, Args)]
pub struct GraphArgs {
    /// Value in the centre; without it, all values are drawn
    #[arg(conflicts_with = "transaction")]
    pub key: Option<String>,
    /// Largest number of steps from the value
    #[arg(long, requires = "key")]
    pub depth: Option<u64>,
    /// Values of this transaction, in the states in which it left them
    #[arg(long, value_name = "SEQ")]
    pub transaction: Option<u64>,
    /// Largest number of values
    #[arg(long)]
    pub limit: Option<u64>,
    #[arg(long, value_enum, default_value_t = GraphFormat::Svg)]
    pub format: GraphFormat,
    /// Short form of --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    Svg,
    /// For Graphviz, with the layout
    Dot,
    /// For Graphviz, without a layout
    Raw,
    Json,
}

impl Show {
    /// Address on the local socket.
    pub fn address(&self) -> String {
        match self {
            Self::Config => ShowContent::Config.address(),
            Self::State => ShowContent::State.address(),
            Self::Boot => ShowContent::Boot.address(),
            Self::Values => ShowContent::Values.address(),
            Self::Pending => ShowContent::Pending.address(),
            Self::Listeners => LISTENERS.to_owned(),
            Self::Services => ShowContent::Services.address(),
            Self::ServiceWaits => ShowContent::ServiceWaits.address(),
            Self::Transactions(transactions) => transactions.address(),
            Self::Timeline { key, json } => {
                scheduler_query("key-timeline", &[("key", Some(key.clone())), format(*json)])
            }
            Self::Graph(transactions) => transactions.address(),
            Self::Why { key, path, origin, json } => {
                let (key, path) = (("key", key.clone()), ("path", path.clone()));
                scheduler_query("why", &[key, path, ("origin", origin.clone()), format(*json)])
            }
            Self::Plan { keys, json } => {
                let mut arguments: Vec<_> =
                    keys.iter().map(|key| ("key", Some(key.clone()))).collect();
                arguments.push(format(*json));
                scheduler_query("plan", &arguments)
            }
        }
    }
}

impl TransactionsArgs {
    fn address(&self) -> String {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        if self.record.is_some() {
            return scheduler_query("recording", &[("seq-num", number(self.record))]);
        }
        let arguments = [
            ("seq-num", number(self.number)),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("after-seq", number(self.after)),
            (if self.after.is_some() { "limit" } else { "last" }, number(self.limit)),
            format(self.json),
        ];
        scheduler_query("txn-history", &arguments)
    }
}

impl GraphArgs {
    fn address(&self) -> String {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let format = match self.format {
            _ if self.json => "json",
            GraphFormat::Svg => "svg",
            GraphFormat::Dot => "dot",
            GraphFormat::Raw => "raw",
            GraphFormat::Json => "json",
        };
        let arguments = [
            ("key", self.key.clone()),
            ("depth", number(self.depth)),
            ("txn", number(self.transaction)),
            ("limit", number(self.limit)),
            ("format", Some(format.to_owned())),
        ];
        scheduler_query("graph", &arguments)
    }
}

/// Text for people, JSON for programs.
fn format(json: bool) -> (&'static str, Option<String>) {
    ("format", Some(if json { "json" } else { "text" }.to_owned()))
}

/// Address of a call below `/scheduler/` with the given arguments.
fn scheduler_query(call: &str, arguments: &[(&str, Option<String>)]) -> String {
    let mut query = UriBuilder::new(&format!("/scheduler/{call}"));
    for (name, value) in arguments {
        if let Some(value) = value {
            query.add(name, value);
        }
    }
    query.into_uri()
}

/// Contents of a revision, or of the table of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowContent {
    Config,
    State,
    Boot,
    Values,
    Pending,
    Services,
    ServiceWaits,
}

impl ShowContent {
    /// Last segment of the address on the local socket.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::State => "state",
            Self::Boot => "boot",
            Self::Values => "values",
            Self::Pending => "pending",
            Self::Services => "services",
            Self::ServiceWaits => "service-waits",
        }
    }

    fn address(self) -> String {
        format!("/show/{}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Command, CommandLine};

    #[test]
    fn show_commands_have_addresses_on_the_local_socket() {
        for (words, want) in [
            ("config", "/show/config"),
            ("boot", "/show/boot"),
            ("services", "/show/services"),
            ("listeners", "/show/listeners"),
            ("transactions", "/scheduler/txn-history?format=text"),
            ("transactions --number 7 --json", "/scheduler/txn-history?seq-num=7&format=json"),
            ("transactions --record 7", "/scheduler/recording?seq-num=7"),
            ("timeline link/eth0", "/scheduler/key-timeline?key=link%2Feth0&format=text"),
            ("graph", "/scheduler/graph?format=svg"),
            (
                "graph link/eth0 --depth 3 --json",
                "/scheduler/graph?key=link%2Feth0&depth=3&format=json",
            ),
            ("why link/eth0", "/scheduler/why?key=link%2Feth0&format=text"),
            (
                "why --path /a --origin openconfig",
                "/scheduler/why?path=%2Fa&origin=openconfig&format=text",
            ),
            ("plan a/b c", "/scheduler/plan?key=a%2Fb&key=c&format=text"),
        ] {
            let line = ["holdfast", "show"].into_iter().chain(words.split(' '));
            let Command::Show(show) = CommandLine::try_parse_from(line).unwrap().command else {
                panic!("{words}")
            };
            assert_eq!(show.what.address(), want, "{words}");
        }
        for words in [
            "why",
            "why a --path /b",
            "graph a --transaction 1",
            "transactions --number 1 --limit 2",
        ] {
            let line = ["holdfast", "show"].into_iter().chain(words.split(' '));
            assert!(CommandLine::try_parse_from(line).is_err(), "{words}");
        }
    }
}
