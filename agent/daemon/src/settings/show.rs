//! Arguments of `holdfast show`, and the address on the local socket for them.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_introspect::uri::UriBuilder;

use super::StateDir;

/// Address of the table of sockets on the local socket.
pub const LISTENERS: &str = "/show/listeners";

/// Time between two looks of `--watch`: often enough to follow a cable by hand, and cheap for the agent.
const WATCH_INTERVAL: &str = "2";
/// Shortest time between two looks. An answer about rates takes half a second.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between two looks: a day.
const LONGEST_INTERVAL: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug, Args)]
pub struct ShowSettings {
    #[command(subcommand)]
    pub what: Show,
    #[command(flatten)]
    pub state: StateDir,
    /// JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Repeat until interrupted. On a terminal each answer replaces the one before; other outputs get one answer
    /// after the other
    #[arg(long, global = true)]
    pub watch: bool,
    /// Time between two answers of --watch
    #[arg(long, global = true, value_name = "SECONDS", value_parser = interval, default_value = WATCH_INTERVAL)]
    pub interval: Duration,
}

/// Parses a number of seconds, with or without a fraction.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let fits = |it: &Duration| (SHORTEST_INTERVAL..=LONGEST_INTERVAL).contains(it);
    seconds.filter(fits).ok_or_else(|| {
        let shortest = SHORTEST_INTERVAL.as_secs_f64();
        let longest = LONGEST_INTERVAL.as_secs();
        format!("`{text}` is not a number of seconds from {shortest} to {longest}")
    })
}

impl ShowSettings {
    /// Address on the local socket.
    pub fn address(&self) -> String {
        self.what.address(self.json)
    }
}

/// Contents to show.
#[derive(Clone, Debug, Subcommand)]
pub enum Show {
    /// The configuration, by owner
    Config,
    /// The state of the box, or what is at a path of it
    State {
        /// Path of either model, which may have wildcards: /interfaces/interface[name=eth0]/state
        path: Option<String>,
        /// The model of the path: openconfig or holdfast_native
        #[arg(long, requires = "path")]
        origin: Option<String>,
    },
    /// Links with their state, addresses, rates and errors, and the reasons for links that do not work
    Interfaces {
        /// Name of an interface, to print all details of it
        name: Option<String>,
    },
    /// Routes of the kernel, of all programs, and configured routes that the kernel lacks. A star marks routes of the
    /// agent
    Routes {
        /// Address, for the most specific routes to it; or prefix, for all routes into it
        #[arg(value_name = "ADDRESS|PREFIX")]
        prefix: Option<String>,
    },
    /// Hosts on the links, with their link-layer addresses
    Neighbors {
        /// Name of a link
        interface: Option<String>,
    },
    /// Names, version and times of the box, and its management sockets
    System,
    /// Users with their roles, and the origin of each role
    Users,
    /// The boot configuration and its metadata
    Boot,
    /// Every value the engine keeps, with its status
    Values,
    /// Values that are waiting, and their missing dependencies
    Pending,
    /// Sockets that the agent listens on, and why some are not open
    Listeners,
    /// Service instances with their states, and the conditions that the states wait for
    Services {
        /// Name of one instance, TYPE[KEY='VALUE'], to see its plan with times
        name: Option<String>,
    },
    /// Conditions that service instances wait for, with their last values
    ServiceWaits,
    /// Transactions, oldest first: the author, the plan and the result
    Transactions(TransactionsArgs),
    /// History of one value
    Timeline {
        /// Key or label, as in `show values`: link/eth0, or 'link eth0'; or the name of a link, an address or a prefix
        key: String,
    },
    /// Values and their dependencies, as a drawing
    Graph(GraphArgs),
    /// Reason for the state of a value, and the owner of its configuration; or what a service instance waits for
    Why {
        /// Key or label of a value; or the name of a link, an address, a prefix, or 'gateway ADDRESS'; or the name of a service
        /// instance, TYPE[KEY='VALUE']
        #[arg(required_unless_present = "path", conflicts_with = "path")]
        key: Option<String>,
        /// Path of the configuration instead, to show the values that it results in
        #[arg(long)]
        path: Option<String>,
        /// The model of the path: openconfig or holdfast_native
        #[arg(long, requires = "path")]
        origin: Option<String>,
    },
    /// Plan of a repair of some values, or of all that differ
    Plan {
        /// Keys or labels of values
        keys: Vec<String>,
    },
}

/// Selection of transactions.
#[derive(Clone, Debug, Default, Args)]
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
}

/// Content and format of a drawing.
#[derive(Clone, Debug, Default, Args)]
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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    #[default]
    Svg,
    /// For Graphviz, with the layout
    Dot,
    /// For Graphviz, without a layout
    Raw,
    Json,
}

/// A view that the command makes a table of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Interfaces,
    Routes,
    Neighbors,
    System,
    Users,
    Services,
    State,
}

holdfast_config::enum_names!(View {
    Interfaces = "interfaces",
    Routes = "routes",
    Neighbors = "neighbors",
    System = "system",
    Users = "users",
    Services = "services",
    State = "state",
});

impl View {
    /// Path of its document on the local socket.
    pub fn path(self) -> String {
        format!("/views/{self}")
    }
}

impl Show {
    /// Address on the local socket.
    pub(crate) fn address(&self, json: bool) -> String {
        if let Some((view, subject)) = self.view(json) {
            let mut query = UriBuilder::new(&view.path());
            let origin = match self {
                Self::State { origin, .. } => origin.as_deref(),
                _ => None,
            };
            subject.into_iter().for_each(|subject| query.add("of", subject));
            origin.into_iter().for_each(|origin| query.add("origin", origin));
            return query.into_uri();
        }
        match self {
            Self::Config => ShowContent::Config.address(json),
            Self::Boot => ShowContent::Boot.address(json),
            Self::Values => ShowContent::Values.address(json),
            Self::Pending => ShowContent::Pending.address(json),
            Self::Services { .. } => ShowContent::Services.address(json),
            Self::ServiceWaits => ShowContent::ServiceWaits.address(json),
            Self::Listeners if json => format!("{LISTENERS}?format=json"),
            Self::Listeners => LISTENERS.to_owned(),
            Self::Transactions(transactions) => transactions.address(json),
            Self::Timeline { key } => {
                scheduler_query("key-timeline", &[("key", Some(key.clone())), format(json)])
            }
            Self::Graph(graph) => graph.address(json),
            Self::Why { key, path, origin } => {
                let key = ("key", key.clone());
                let path = ("path", path.clone());
                scheduler_query("why", &[key, path, ("origin", origin.clone()), format(json)])
            }
            Self::Plan { keys } => {
                let mut arguments: Vec<_> =
                    keys.iter().map(|key| ("key", Some(key.clone()))).collect();
                arguments.push(format(json));
                scheduler_query("plan", &arguments)
            }
            // The views have their addresses above.
            _ => ShowContent::State.address(json),
        }
    }

    /// The view that the command makes a table of, and what it is to show; `None` where the agent answers with text.
    pub fn view(&self, json: bool) -> Option<(View, Option<&str>)> {
        match self {
            Self::Interfaces { name } => Some((View::Interfaces, name.as_deref())),
            Self::Routes { prefix } => Some((View::Routes, prefix.as_deref())),
            Self::Neighbors { interface } => Some((View::Neighbors, interface.as_deref())),
            Self::System => Some((View::System, None)),
            Self::Users => Some((View::Users, None)),
            Self::Services { name } if name.is_some() || json => {
                Some((View::Services, name.as_deref()))
            }
            Self::State { path: Some(path), .. } => Some((View::State, Some(path))),
            _ => None,
        }
    }
}

impl TransactionsArgs {
    fn address(&self, json: bool) -> String {
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
            format(json),
        ];
        scheduler_query("txn-history", &arguments)
    }
}

impl GraphArgs {
    fn address(&self, json: bool) -> String {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let format = match self.format {
            _ if json => "json",
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

// Last segment of the address on the local socket.
holdfast_config::enum_names!(ShowContent {
    Config = "config",
    State = "state",
    Boot = "boot",
    Values = "values",
    Pending = "pending",
    Services = "services",
    ServiceWaits = "service-waits",
});

impl ShowContent {
    /// Path on the local socket.
    pub fn path(self) -> String {
        format!("/show/{}", self.name())
    }

    /// Address on the local socket. Documents are JSON with and without the word.
    fn address(self, json: bool) -> String {
        let address = self.path();
        match self {
            Self::Config | Self::State | Self::Boot => address,
            _ if json => format!("{address}?format=json"),
            _ => address,
        }
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
            ("listeners --json", "/show/listeners?format=json"),
            ("values --json", "/show/values?format=json"),
            ("config --json", "/show/config"),
            ("state", "/show/state"),
            ("state /system --origin openconfig", "/views/state?of=%2Fsystem&origin=openconfig"),
            ("interfaces", "/views/interfaces"),
            ("interfaces eth0 --watch --interval 0.5", "/views/interfaces?of=eth0"),
            ("routes 192.0.2.0/24", "/views/routes?of=192.0.2.0%2F24"),
            ("neighbors --json", "/views/neighbors"),
            ("system", "/views/system"),
            ("users", "/views/users"),
            ("services --json", "/views/services"),
            ("services a[n='x']", "/views/services?of=a%5Bn%3D%27x%27%5D"),
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
            assert_eq!(show.address(), want, "{words}");
        }
        for words in [
            "why",
            "why a --path /b",
            "graph a --transaction 1",
            "transactions --number 1 --limit 2",
            "interfaces --watch --interval 0",
            "interfaces --interval soon",
            "state --origin openconfig",
        ] {
            let line = ["holdfast", "show"].into_iter().chain(words.split(' '));
            assert!(CommandLine::try_parse_from(line).is_err(), "{words}");
        }
    }
}
