//! The command line, and the settings of a run.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_config::layer::Service;
use smol_str::SmolStr;

use crate::accounting::{DEFAULT_HISTORY, MIN_HISTORY};
use crate::caller::Role;
use crate::introspect::address::Query;
use crate::reboot::Extent;

/// The port IANA assigned to gNMI, gNOI and gNSI.
pub const DEFAULT_PORT: u16 = 9339;

/// Where a run keeps its state unless told otherwise.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/holdfast";

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed; the message says what was attempted and why it failed
  2  the command line is wrong
  3  no agent answers on the local socket of this state folder";

/// Holds a Linux network box to its intended configuration.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, after_help = EXIT_CODES)]
pub struct CommandLine {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until SIGTERM
    Run(Box<RunSettings>),
    /// Show what the running agent knows
    Show(ShowSettings),
    /// Manage the users of the agent
    User(UserSettings),
    /// Switch a service's namespace: while it is off, its items are the clients'
    Switch(SwitchSettings),
    /// Bootstrap the box from a server of its owner
    Bootz(BootzCommandSettings),
    /// Bring the box back to what it was delivered with, and start the agent anew
    FactoryReset(FactoryResetSettings),
}

/// What a run of the agent takes from its command line.
#[derive(Clone, Debug, Args)]
pub struct RunSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Address and port of the gRPC services; may be repeated. The port is 9339 when left out
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address, default_value = "[::]:9339")]
    pub listen: Vec<SocketAddr>,
    /// Network namespace to manage, by name or path; the services stay where the agent was started
    #[arg(long, value_name = "NAME|PATH")]
    pub netns: Option<String>,
    /// Folder in which files of the system (etc/hostname, etc/issue, ...) are written
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    #[command(flatten)]
    pub tls: TlsSettings,
    /// Serve what `holdfast show` shows, a page and metrics on this address of the loopback device, too
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = loopback_address)]
    pub introspect: Option<SocketAddr>,
    /// File whose first line becomes the password of the user `admin` at start
    #[arg(long, value_name = "FILE")]
    pub admin_password_file: Option<PathBuf>,
    /// Native configuration that the box is delivered with; taken on its first start and after a factory reset
    #[arg(long, value_name = "FILE")]
    pub factory: Option<PathBuf>,
    /// What a reboot that is asked for over gNOI starts anew
    #[arg(long, value_enum, default_value_t = Extent::Agent)]
    pub reboot: Extent,
    /// Octets that the records of accounting may take; the oldest make place
    #[arg(long, value_name = "OCTETS", value_parser = accounting_history, default_value_t = DEFAULT_HISTORY)]
    pub accounting_history: usize,
    /// Role of a client certificate whose identity is not a local user: admin or read-only
    #[arg(long, value_name = "ROLE", default_value_t = Role::Admin)]
    pub certificate_role: Role,
    #[command(flatten)]
    pub bootz: BootzSettings,
}

/// What a box is bootstrapped with. Without an IDevID it is not.
#[derive(Clone, Debug, Args)]
pub struct BootzSettings {
    /// IDevID of the box, PEM: the certificate that its vendor gave it, then those above it
    #[arg(long, value_name = "FILE")]
    pub bootz_idevid_cert: Option<PathBuf>,
    /// Key of the IDevID, PEM
    #[arg(long, value_name = "FILE")]
    pub bootz_idevid_key: Option<PathBuf>,
    /// Certificates of the vendor, PEM: what ownership vouchers have to lead to
    #[arg(long, value_name = "FILE")]
    pub bootz_vendor_ca: Option<PathBuf>,
    /// Serial number of the box, as vouchers name it
    #[arg(long, value_name = "SERIAL")]
    pub bootz_serial: Option<String>,
    /// Who made the box
    #[arg(long, value_name = "NAME", default_value = "")]
    pub bootz_manufacturer: String,
    /// What its maker calls it
    #[arg(long, value_name = "NUMBER", default_value = "")]
    pub bootz_part_number: String,
    /// Which RPC the bootstrap server is asked by
    #[arg(long, value_enum, default_value_t = BootzRpc::Either)]
    pub bootz_rpc: BootzRpc,
    /// For laboratories: believe any server, without a voucher
    #[arg(long)]
    pub bootz_trust_any_server: bool,
    /// Program that installs an image: run with its file and its version once the digest is right. It ends with 0 when
    /// the image runs, with 100 when it runs after a reboot. Without it, images are skipped and reported so
    #[arg(long, value_name = "PROGRAM")]
    pub bootz_image_command: Option<PathBuf>,
    /// Version of the software that runs
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    pub bootz_image_version: String,
}

/// Which RPC a bootstrap server is asked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BootzRpc {
    /// BootstrapStreamV1, and GetBootstrapData where the server has no stream for this box
    #[default]
    Either,
    /// BootstrapStreamV1
    Stream,
    /// GetBootstrapData
    Unary,
}

#[derive(Clone, Debug, Args)]
pub struct BootzCommandSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(subcommand)]
    pub action: BootzAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum BootzAction {
    /// Bootstrap from this server, again and again until it succeeds
    Start {
        /// The server
        #[arg(long, alias = "bootz_uri", value_name = "bootz://HOST:PORT")]
        bootz_uri: String,
        /// The interface to go out by; it has to be configured
        #[arg(long, alias = "src_interface", value_name = "NAME")]
        src_interface: String,
    },
    /// What was done, and where it stands
    Status,
    /// Stop, and leave the configuration as it is
    Terminate,
    /// Bring the box back to the factory, and bootstrap from there
    Reset,
}

/// Certificates made by the operator. Without them the agent makes an identity of its own.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsSettings {
    /// Certificate chain of the server, PEM, leaf first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the server, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Certificates that sign clients, PEM. With it, a client without a certificate is refused
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
}

/// The folder with the database, the identity and the local socket of one agent.
#[derive(Clone, Debug, Args)]
pub struct StateDir {
    /// Folder with the database, the TLS identity and the local socket
    #[arg(long, global = true, value_name = "DIR", env = "HOLDFAST_STATE_DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
}

impl StateDir {
    /// The unix socket on which a running agent answers.
    pub fn socket(&self) -> PathBuf {
        self.path().join("holdfast.sock")
    }

    pub fn path(&self) -> &Path {
        &self.state_dir
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, Args)]
pub struct ShowSettings {
    #[command(subcommand)]
    pub what: Show,
    #[command(flatten)]
    pub state: StateDir,
}

/// What can be shown.
#[derive(Clone, Debug, Subcommand)]
pub enum Show {
    /// The configuration, as its owners gave it
    Config,
    /// The state of the box
    State,
    /// Every value the engine keeps, with its status
    Values,
    /// The values that wait for something, and for what
    Pending,
    /// What was done, oldest first: who asked, what was planned, what became of it
    Transactions(TransactionsShown),
    /// What became of one value over time
    Timeline {
        /// Key or label, as in `show values`: link/eth0, or 'link eth0'
        key: String,
        #[arg(long)]
        json: bool,
    },
    /// Values and what ties them together, as a drawing
    Graph(GraphShown),
    /// Why a value is as it is, and whose configuration it comes from
    Why {
        /// Key or label of a value
        #[arg(required_unless_present = "path", conflicts_with = "path")]
        key: Option<String>,
        /// A path of the configuration instead: which values does it come to?
        #[arg(long)]
        path: Option<String>,
        /// The model of the path: openconfig or holdfast_native
        #[arg(long, requires = "path")]
        origin: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// What a repair of some values, or of all that are off, would do now
    Plan {
        /// Keys or labels of values
        keys: Vec<String>,
        #[arg(long)]
        json: bool,
    },
}

/// Which transactions are shown.
#[derive(Clone, Debug, Args)]
pub struct TransactionsShown {
    /// The one with this number, in full
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["since", "until", "after", "limit"])]
    pub number: Option<u64>,
    /// The one with this number, as a JSON document from which it can be done again
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["number", "since", "until", "after", "limit"])]
    pub record: Option<u64>,
    /// Those that ended at or after this time: RFC 3339, or nanoseconds since 1970
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Those that began at or before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Those after this number
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// At most so many
    #[arg(long)]
    pub limit: Option<u64>,
    #[arg(long)]
    pub json: bool,
}

/// What is drawn, and how it is written down.
#[derive(Clone, Debug, Args)]
pub struct GraphShown {
    /// Around this value; without it, everything
    #[arg(conflicts_with = "transaction")]
    pub key: Option<String>,
    /// Steps away from the value
    #[arg(long, requires = "key")]
    pub depth: Option<u64>,
    /// What a transaction touched, in the states in which it left it
    #[arg(long, value_name = "SEQ")]
    pub transaction: Option<u64>,
    /// Values drawn at most
    #[arg(long)]
    pub limit: Option<u64>,
    #[arg(long, value_enum, default_value_t = GraphFormat::Svg)]
    pub format: GraphFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    Svg,
    /// For Graphviz, laid out
    Dot,
    /// For Graphviz, to be laid out by it
    Raw,
    Json,
}

impl Show {
    /// Its address on the local socket.
    pub fn address(&self) -> String {
        match self {
            Self::Config => Shown::Config.address(),
            Self::State => Shown::State.address(),
            Self::Values => Shown::Values.address(),
            Self::Pending => Shown::Pending.address(),
            Self::Transactions(shown) => shown.address(),
            Self::Timeline { key, json } => {
                asked("key-timeline", &[("key", Some(key.clone())), format(*json)])
            }
            Self::Graph(shown) => shown.address(),
            Self::Why { key, path, origin, json } => {
                let (key, path) = (("key", key.clone()), ("path", path.clone()));
                asked("why", &[key, path, ("origin", origin.clone()), format(*json)])
            }
            Self::Plan { keys, json } => {
                let mut arguments: Vec<_> =
                    keys.iter().map(|key| ("key", Some(key.clone()))).collect();
                arguments.push(format(*json));
                asked("plan", &arguments)
            }
        }
    }
}

impl TransactionsShown {
    fn address(&self) -> String {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        if self.record.is_some() {
            return asked("recording", &[("seq-num", number(self.record))]);
        }
        let arguments = [
            ("seq-num", number(self.number)),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("after-seq", number(self.after)),
            ("limit", number(self.limit)),
            format(self.json),
        ];
        asked("txn-history", &arguments)
    }
}

impl GraphShown {
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
        asked("graph", &arguments)
    }
}

/// People read text, programs JSON.
fn format(json: bool) -> (&'static str, Option<String>) {
    ("format", Some(if json { "json" } else { "text" }.to_owned()))
}

/// A call below `/scheduler/` with those arguments that are given.
fn asked(call: &str, arguments: &[(&str, Option<String>)]) -> String {
    let mut query = Query::new(&format!("/scheduler/{call}"));
    for (name, value) in arguments {
        if let Some(value) = value {
            query.add(name, value);
        }
    }
    query.0
}

/// What a revision, and a table of values, can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Config,
    State,
    Values,
    Pending,
}

impl Shown {
    /// The last segment of its address on the local socket.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::State => "state",
            Self::Values => "values",
            Self::Pending => "pending",
        }
    }

    fn address(self) -> String {
        format!("/show/{}", self.as_str())
    }
}

#[derive(Clone, Debug, Args)]
pub struct SwitchSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// gnsi or bootz
    #[arg(value_parser = service)]
    pub service: Service,
    /// on or off; without it, says which it is
    #[arg(value_enum)]
    pub position: Option<Position>,
}

/// Where a switch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Position {
    On,
    Off,
}

#[derive(Clone, Debug, Args)]
pub struct FactoryResetSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Keep the TLS identity of the box
    #[arg(long)]
    pub retain_certificates: bool,
}

fn service(text: &str) -> Result<Service, String> {
    let known = Service::ALL.into_iter().find(|service| service.name() == text);
    known.ok_or_else(|| format!("`{text}` is no service: gnsi or bootz"))
}

#[derive(Clone, Debug, Args)]
pub struct UserSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(subcommand)]
    pub action: UserAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum UserAction {
    /// Make a user, or change its password and role
    Set {
        name: SmolStr,
        /// admin or read-only
        #[arg(long)]
        role: Role,
        /// File whose first line is the password; without it the password is asked for, or read from standard input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// The user has no password: only holders of a client certificate speak for it
        #[arg(long, conflicts_with = "password_file")]
        no_password: bool,
    },
    /// Remove a user
    Delete { name: SmolStr },
    /// List the users and their roles
    List,
}

/// `ADDR:PORT`, or `ADDR` alone with the default port; an IPv6 address may stand in brackets.
fn accounting_history(text: &str) -> Result<usize, String> {
    let octets: usize = text.parse().map_err(|_| format!("`{text}` is no number of octets"))?;
    if octets < MIN_HISTORY {
        return Err(format!("less than {MIN_HISTORY} octets do not hold a handful of records"));
    }
    Ok(octets)
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Some(address) = bare.and_then(|inner| inner.parse::<Ipv6Addr>().ok()) {
        return Ok(SocketAddr::new(IpAddr::V6(address), DEFAULT_PORT));
    }
    text.parse::<IpAddr>().map(|address| SocketAddr::new(address, DEFAULT_PORT)).map_err(|_| {
        "expected an IP address and a port, as in 127.0.0.1:9339 or [::]:9339".to_owned()
    })
}

/// `ADDR:PORT` of the loopback device: what is served there asks readers for no password.
fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err("expected a loopback address and a port, as in 127.0.0.1:9190".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    // proves 1.12
    #[test]
    fn addresses_default_to_the_assigned_port() {
        for (text, want) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1", "127.0.0.1:9339"),
            ("::1", "[::1]:9339"),
            ("[::1]", "[::1]:9339"),
            ("[::1]:57400", "[::1]:57400"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), want);
        }
        assert!(listen_address("box:9339").is_err());
        let run = run_of(&["holdfast", "run"]);
        assert_eq!(run.listen, ["[::]:9339".parse().unwrap()]);
        assert_eq!(run.certificate_role, Role::Admin);
    }

    #[test]
    fn introspection_stays_on_the_box() {
        let run =
            |address| CommandLine::try_parse_from(["holdfast", "run", "--introspect", address]);
        for address in ["127.0.0.1:9190", "[::1]:9190"] {
            assert!(run(address).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:9190", "192.0.2.1:9190", "[::]:9190", "localhost", "127.0.0.1"] {
            assert!(run(address).is_err(), "{address}");
        }
    }

    #[test]
    fn what_is_shown_has_an_address() {
        for (words, want) in [
            ("config", "/show/config"),
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

    #[test]
    fn a_certificate_needs_its_key() {
        assert!(CommandLine::try_parse_from(["holdfast", "run", "--tls-cert", "c.pem"]).is_err());
        let run = run_of(&["holdfast", "run", "--tls-cert", "c.pem", "--tls-key", "k.pem"]);
        assert_eq!(run.tls.tls_key, Some("k.pem".into()));
    }

    fn run_of(words: &[&str]) -> RunSettings {
        match CommandLine::try_parse_from(words).unwrap().command {
            Command::Run(run) => *run,
            other => panic!("not a run: {other:?}"),
        }
    }
}
