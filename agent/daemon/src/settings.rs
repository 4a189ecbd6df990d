//! The command line, and the settings of a run.

mod completion;
mod config;
mod fault;
mod keys;
mod listen;
mod maintenance;
mod probe;
mod service;
mod show;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use holdfast_base::Role;
use holdfast_config::layer::Namespace;
use holdfast_introspect::tcp::IntrospectToken;
use holdfast_store::accounts::{DEFAULT_HISTORY, MIN_HISTORY};
use nix::unistd::Uid;
use smol_str::SmolStr;

use crate::{logging::LogLevel, reboot::RebootScope, systemd};

pub use completion::{CANDIDATES, CompleteSettings, CompletionSettings, Shell, Topic};
pub use config::{ChangeTerms, ConfigAction, ConfigFormat, ConfigSettings, DocumentArgs};
pub use fault::{
    FaultAction, FaultFilter, FaultLatch, FaultProfile, FaultQuestion, FaultReport, FaultSettings,
    FaultWatch, FaultWatchRequest, OperatorVerb, ReportVerb,
};
pub use keys::{SECTIONS, Section, Setting, TakesEffect};
pub use listen::{ListenAddress, ListenSocket};
pub use maintenance::{
    AnswerVerb, MaintenanceAction, MaintenanceQuestion, MaintenanceSettings, NewSession,
    SessionReply, SessionVerb, SessionWatch,
};
pub use probe::{
    PingQuestion, PingSettings, ProbeTarget, TracePackets, TraceQuestion, TraceSettings,
};
pub use service::{
    ActionResult, InstallSettings, InstanceAction, PackageAction, ServiceAction, ServiceRender,
    ServiceSettings,
};
pub use show::{
    GraphArgs, GraphFormat, LISTENERS, Show, ShowContent, ShowSettings, TransactionsArgs, View,
};

/// The hidden subcommand that becomes the helper for the host name.
pub(crate) const HELPER_COMMAND: &str = "name-host";

/// The port IANA assigned to gNMI, gNOI and gNSI.
pub const DEFAULT_PORT: u16 = 9339;

/// Default folder for the state of a run.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/holdfast";
/// Default configuration file, which need not be there.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/holdfast/holdfast.toml";
/// Socket for people who are not root, where the packaged drop-in opens one.
const DEFAULT_USER_SOCKET: &str = "/run/holdfast/users.sock";

/// Version of the program, with the revision and the date of its commit.
pub const VERSION: &str = env!("HOLDFAST_VERSION");

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  failed; the message says what was attempted and why it failed
  2  the command line is wrong
  3  no agent answers on the local socket of this state folder";

/// Holds a Linux network box to its intended configuration.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version = VERSION, after_help = EXIT_CODES)]
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
    /// Show and change the configuration
    Config(Box<ConfigSettings>),
    /// Ask a host whether it answers, from the network that the agent manages
    Ping(PingSettings),
    /// Find the routers on the way to a host, from the network that the agent manages
    Traceroute(TraceSettings),
    /// Wait until the configuration is in the system
    WaitOnline(WaitOnlineSettings),
    /// Look at everything that the agent needs of its box, and say what is wrong
    Doctor(DoctorSettings),
    /// Put everything that tells of a fault of the box into one archive, without secrets
    SupportBundle(SupportBundleSettings),
    /// Print the configuration that asks for what the kernel has, or set it
    Adopt(AdoptSettings),
    /// Manage the users of the agent
    User(UserSettings),
    /// Switch a service's namespace on or off: while it is off, clients own its items
    Switch(SwitchSettings),
    /// Bootstrap the box from a server of its owner
    Bootz(BootzCommandSettings),
    /// Write, check, try and pack packages of services, and operate on their instances
    Service(ServiceSettings),
    /// Show, acknowledge and follow alarms
    Fault(FaultSettings),
    /// Make and follow maintenance sessions, and reply to them
    Maintenance(MaintenanceSettings),
    /// Reset the box to its factory configuration, and restart the agent
    FactoryReset(FactoryResetSettings),
    /// Check the configuration file, and look at the files that it names
    CheckConfig(CheckConfigSettings),
    /// Switch drop-ins of the agent's unit on and off
    Unit(UnitSettings),
    /// Print a script with which a shell completes command lines
    Completion(CompletionSettings),
    /// Print the words that complete a command line, for the scripts of the shells
    #[command(hide = true)]
    Complete(CompleteSettings),
    /// Write the files of a package that follow from the definition of the command line
    #[command(hide = true)]
    PackageFiles(PackageFilesSettings),
    /// The helper of a running agent: gives the kernel the host names that come on standard input
    #[command(hide = true, name = HELPER_COMMAND)]
    NameHost,
}

/// Settings of `holdfast run`, from the command line, the environment and the configuration file.
#[derive(Clone, Debug, Args)]
pub struct RunSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Address and port of the gRPC services; may be repeated. The default port is 9339. The address may come later.
    /// A link-local address names its link, as in [fe80::1%eth0]:9339. `[::]` takes IPv4 connections, too, unless an
    /// IPv4 address with the same port is given
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "[::]:9339", value_delimiter = ',')]
    pub listen: Vec<ListenAddress>,
    /// Network namespace to manage, by name or path. The gRPC services stay in the namespace in which the agent was
    /// started
    #[arg(long, value_name = "NAME|PATH")]
    pub netns: Option<String>,
    /// Folder below which the agent writes files of the system, such as etc/hostname
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Form of the lines of the log, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
    /// Least important lines that the log has. The variable RUST_LOG has a filter by module, and overrides this option
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    #[command(flatten)]
    pub tls: TlsSettings,
    /// Loopback address that also serves the contents of `holdfast show`, a web page and metrics
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = loopback_address)]
    pub introspect: Option<SocketAddr>,
    /// Requests on that address that need the token in the state folder
    #[arg(long, value_enum, default_value_t = IntrospectToken::Changes, requires = "introspect")]
    pub introspect_token: IntrospectToken,
    /// File whose first line becomes the password of the user `admin` at start
    #[arg(long, value_name = "FILE")]
    pub admin_password_file: Option<PathBuf>,
    /// Native factory configuration; applied on the first start and after a factory reset
    #[arg(long, value_name = "FILE")]
    pub factory: Option<PathBuf>,
    /// Folder with packages of services, NAME-VERSION.hfs. Only root and the user of the agent may be able to write
    /// to the folder. At its start, the agent loads the highest version of each type
    #[arg(long, value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Certificates (PEM) of the signers of packages of services, or of their authorities. Without this option,
    /// packages are installed only at the box
    #[arg(long, value_name = "FILE")]
    pub service_trust: Option<PathBuf>,
    /// Revocation lists (PEM) of the authorities that issue certificates of signers. The agent reads the file at its
    /// start and at each installation
    #[arg(long, value_name = "FILE", requires = "service_trust")]
    pub service_revocations: Option<PathBuf>,
    /// Unix socket for handlers of services. A handler must run as the user that the outline of its type names
    #[arg(long, value_name = "PATH")]
    pub service_socket: Option<PathBuf>,
    /// Unix socket for accounts of the box other than root. An account has the role of the agent's user of the same
    /// name, and may do there what it may do by gRPC
    #[arg(long, value_name = "PATH")]
    pub user_socket: Option<PathBuf>,
    /// Scope of a reboot of the box, which follows a gNOI request with method COLD, a factory reset, or the
    /// activation of a version
    #[arg(long, value_enum, default_value_t = RebootSetting::Auto)]
    pub reboot: RebootSetting,
    /// Size of the accounting history in bytes; the oldest records are dropped first
    #[arg(long, value_name = "OCTETS", value_parser = accounting_history, default_value_t = DEFAULT_HISTORY)]
    pub accounting_history: usize,
    /// Role of a client certificate that does not name a local user: admin or read-only
    #[arg(long, value_name = "ROLE", default_value_t = Role::Admin, value_parser = certificate_role)]
    pub certificate_role: Role,
    /// Names that a client with a certificate may send as `username` without a password: the names in the
    /// certificate, or any name, as gNMI permits
    #[arg(long, value_enum, default_value_t = ImpersonationPolicy::Itself)]
    pub certificate_speaks_for: ImpersonationPolicy,
    /// Handling of a SubscriptionList that contains a path which no model defines. If the native leaf
    /// `/system/grpc-server[name=DEFAULT]/unknown-subscription-paths` is configured, it overrides this option
    #[arg(long, value_enum, default_value_t = UnknownPaths::Refuse)]
    pub unknown_subscription_paths: UnknownPaths,
    #[command(flatten)]
    pub image: ImageSettings,
    #[command(flatten)]
    pub bootz: BootzSettings,
}

/// The part of the box that a reboot starts again, as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RebootSetting {
    /// `system` for an agent that systemd has started, `agent` for any other
    Auto,
    /// The agent alone, which is WARM: links and routes stay as they are. COLD is refused, with a delay when it is due
    Agent,
    /// The whole box, which is COLD, by the system's own `reboot` command
    System,
}

impl RebootSetting {
    /// The part of the box that a reboot of this process starts again.
    pub fn scope(self) -> RebootScope {
        match self {
            Self::Auto if systemd::has_started_this_process() => RebootScope::System,
            Self::Auto | Self::Agent => RebootScope::Agent,
            Self::System => RebootScope::System,
        }
    }
}

/// Names that the holder of a client certificate may use without a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImpersonationPolicy {
    /// The names in the certificate
    #[default]
    Itself,
    /// Any name. For clients that authenticate their users themselves, on boxes where no other clients have
    /// certificates
    Anyone,
}

/// The answer to a subscription to a path that no model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum UnknownPaths {
    /// Refuse the whole list with UNIMPLEMENTED, as gNMI demands
    #[default]
    Refuse,
    /// Answer the rest of the list; log the path, and count it in the native model
    Ignore,
}

/// Replacement of the software of the box.
#[derive(Clone, Debug, Default, Args)]
pub struct ImageSettings {
    /// Program that manages the images of the box, for bootstraps, gNOI OS and SetPackage.
    /// `PROGRAM install FILE VERSION` makes an image bootable; it exits with 101 when the image is for another box,
    /// 102 when the image cannot be read, 103 when it is damaged, 104 when it is too large.
    /// `PROGRAM activate VERSION` selects the image to boot; it exits with 0 when that image runs already, with 100
    /// when it will run after a reboot. `PROGRAM list` prints a version on each line, the running one first. Without
    /// this option no image is installed: bootstraps skip images and report that
    #[arg(long, value_name = "PROGRAM")]
    pub image_command: Option<PathBuf>,
    /// Version of the running software. The default comes from `PROGRAM list`, or is the version of the agent
    #[arg(long, value_name = "VERSION")]
    pub image_version: Option<String>,
}

/// Settings of bootstrapping, which needs an IDevID.
#[derive(Clone, Debug, Args)]
pub struct BootzSettings {
    /// IDevID of the box, PEM: the certificate from its vendor, followed by the certificates of its issuers
    #[arg(long, value_name = "FILE")]
    pub bootz_idevid_cert: Option<PathBuf>,
    /// Key of the IDevID, PEM
    #[arg(long, value_name = "FILE")]
    pub bootz_idevid_key: Option<PathBuf>,
    /// Certificates of the vendor, PEM: trust anchors for ownership vouchers
    #[arg(long, value_name = "FILE")]
    pub bootz_vendor_ca: Option<PathBuf>,
    /// Port on which DHCP is asked for an address and bootstrap servers. With this option, a factory-new box
    /// bootstraps without a command
    #[arg(long, value_name = "NAME", requires = "bootz_idevid_cert", value_parser = port_name)]
    pub bootz_port: Option<String>,
    /// Serial number of the box, as in vouchers
    #[arg(long, value_name = "SERIAL")]
    pub bootz_serial: Option<String>,
    /// Manufacturer of the box
    #[arg(long, value_name = "NAME", default_value = "")]
    pub bootz_manufacturer: String,
    /// Part number that the manufacturer gave the box
    #[arg(long, value_name = "NUMBER", default_value = "")]
    pub bootz_part_number: String,
    /// RPC with which the bootstrap server is asked
    #[arg(long, value_enum, default_value_t = BootzRpc::Either)]
    pub bootz_rpc: BootzRpc,
    /// For laboratories: accept any server, without a voucher
    #[arg(long)]
    pub bootz_trust_any_server: bool,
}

/// RPC to ask a bootstrap server by.
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
    /// Bootstrap from this server, or from the servers that DHCP names; repeat until it succeeds
    Start {
        /// The server
        #[arg(
            long,
            alias = "bootz_uri",
            value_name = "bootz://HOST:PORT",
            requires = "src_interface"
        )]
        bootz_uri: Option<String>,
        /// The interface through which the server is reached; it must be configured
        #[arg(long, alias = "src_interface", value_name = "NAME", requires = "bootz_uri")]
        src_interface: Option<String>,
    },
    /// Show the progress and the result of bootstrapping
    Status,
    /// Stop, and leave the configuration as it is
    Terminate,
    /// Reset the box to factory state, and bootstrap from there
    Reset,
}

/// Certificates made by the operator. Without them the agent makes an identity of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct TlsSettings {
    /// Certificate chain of the server, PEM, leaf first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the server, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Certificates of the authorities of clients, PEM. With this option, clients without a certificate are refused
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Identity that the owner gave the box, PEM: OIDEVID in gNSI certz
    #[arg(long, value_name = "FILE", requires = "oidevid_key")]
    pub oidevid_cert: Option<PathBuf>,
    /// Key of that identity, PEM
    #[arg(long, value_name = "FILE", requires = "oidevid_cert")]
    pub oidevid_key: Option<PathBuf>,
    /// Certificate and key of the IDevID, which bootstrapping uses too.
    #[arg(skip)]
    pub idevid: Option<(PathBuf, PathBuf)>,
}

/// The folder with the database, the identity and the local socket of one agent.
#[derive(Clone, Debug, Args)]
pub struct StateDir {
    /// Folder with the database, the TLS identity and the local socket
    #[arg(long, global = true, value_name = "DIR", default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
    /// Local socket of the agent, if it is not the socket in the state folder. People who are not root use
    /// /run/holdfast/users.sock where it is there
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Configuration file, instead of /etc/holdfast/holdfast.toml. Options and the environment override what it says
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl StateDir {
    /// Unix socket of a running agent for root.
    pub fn own_socket(&self) -> PathBuf {
        self.path().join("holdfast.sock")
    }

    /// Unix socket by which a command asks a running agent.
    pub fn socket(&self) -> PathBuf {
        if let Some(socket) = &self.socket {
            return socket.clone();
        }
        let for_users = Path::new(DEFAULT_USER_SOCKET);
        // The state folder is closed to everyone but root and the user of the agent.
        let is_default = self.state_dir == Path::new(DEFAULT_STATE_DIR);
        match is_default && !Uid::effective().is_root() && for_users.exists() {
            true => for_users.to_owned(),
            false => self.own_socket(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.state_dir
    }
}

/// Settings of `holdfast wait-online`.
#[derive(Clone, Debug, Args)]
pub struct WaitOnlineSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Longest time to wait. The command also waits for an agent that does not run yet
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "120")]
    pub timeout: Duration,
    /// Do not wait for objects that are pending, because something is missing such as a port that is not plugged in
    #[arg(long)]
    pub allow_pending: bool,
}

/// Settings of `holdfast check-config`.
#[derive(Clone, Debug, Args)]
pub struct CheckConfigSettings {
    /// Configuration file, instead of /etc/holdfast/holdfast.toml
    #[arg(env = "HOLDFAST_CONFIG")]
    pub file: Option<PathBuf>,
}

/// Settings of `holdfast unit`.
#[derive(Clone, Debug, Args)]
pub struct UnitSettings {
    #[command(subcommand)]
    pub action: UnitAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum UnitAction {
    /// Switch a drop-in on; it takes effect with a restart of the agent
    Enable {
        /// The drop-in, such as dhcp
        name: String,
    },
    /// Switch a drop-in off; it takes effect with a restart of the agent
    Disable {
        /// The drop-in, such as dhcp
        name: String,
    },
    /// List the drop-ins, and which of them are on
    List,
}

#[derive(Clone, Debug, Args)]
pub struct PackageFilesSettings {
    /// Folder for the files
    pub folder: PathBuf,
}

/// Settings of `holdfast support-bundle`.
#[derive(Clone, Debug, Args)]
pub struct SupportBundleSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// File to write, as in box.tar.gz. A file that is there is not overwritten
    pub file: PathBuf,
    /// Do not take the banners of the box out of the texts
    #[arg(long)]
    pub banners: bool,
}

/// Settings of `holdfast doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// A list of results as JSON
    #[arg(long)]
    pub json: bool,
    /// Leave out the checks that take more than a moment: the kernel and the speed of the disk
    #[arg(long)]
    pub quick: bool,
}

/// Settings of `holdfast adopt`.
#[derive(Clone, Debug, Args)]
pub struct AdoptSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Port to adopt, with its VLANs, addresses and routes; may be repeated. Without a port, everything is adopted
    #[arg(long, value_name = "NAME", value_parser = port_name)]
    pub port: Vec<String>,
    /// Print OpenConfig as JSON instead of text
    #[arg(long, conflicts_with = "apply")]
    pub openconfig: bool,
    /// Set the configuration, and take it back after 120 s unless `holdfast adopt --confirm` keeps it
    #[arg(long)]
    pub apply: bool,
    /// Keep what --apply has set
    #[arg(long, conflicts_with_all = ["port", "openconfig", "apply"])]
    pub confirm: bool,
}

/// Form of the lines of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `json` for an agent that systemd has started, `text` for any other
    Auto,
    /// Fields and a message
    Text,
    /// An object a line
    Json,
}

impl LogFormat {
    pub fn is_json(self) -> bool {
        match self {
            Self::Auto => systemd::has_started_this_process(),
            Self::Text => false,
            Self::Json => true,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct SwitchSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// gnsi or bootz
    #[arg(value_parser = service)]
    pub service: Namespace,
    /// on or off. Without a position, the command shows the present one
    #[arg(value_enum)]
    pub position: Option<Position>,
}

/// Position of a switch.
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
    /// Do not ask for confirmation. Needed where standard input is not a terminal
    #[arg(long)]
    pub yes: bool,
}

/// Checks a name of a link by the kernel's rule (`dev_valid_name`).
fn port_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 15; // IFNAMSIZ, with the byte that ends it
    let valid = (1..=LONGEST).contains(&text.len())
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if valid { Ok(text.to_owned()) } else { Err(format!("`{text}` is not a port name")) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .map(Duration::from_secs)
        .map_err(|_| format!("`{text}` is not a number of seconds"))
}

fn service(text: &str) -> Result<Namespace, String> {
    Namespace::by_name(text).ok_or_else(|| format!("`{text}` is not a service: use gnsi or bootz"))
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
    /// Create a user, or change its password and role
    Set {
        name: SmolStr,
        /// admin, read-only, none, or a name that an authz policy knows; without it a user keeps its role, and a new one
        /// has none
        #[arg(long)]
        role: Option<Role>,
        /// File whose first line is the password; without it the password is prompted for, or read from standard
        /// input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// The user has no password: only holders of a client certificate can act as the user
        #[arg(long, conflicts_with = "password_file")]
        no_password: bool,
    },
    /// Remove a user
    Delete { name: SmolStr },
    /// List the users and their roles
    List,
}

/// Parses the role of certificates. A name of the operator's own would do nothing: under an authz policy a certificate has
/// the rights that the policy gives it.
fn certificate_role(text: &str) -> Result<Role, String> {
    match text.parse() {
        Ok(role @ (Role::Admin | Role::ReadOnly)) => Ok(role),
        _ => Err(format!("`{text}` is not a role: use admin or read-only")),
    }
}

/// Parses the size of the accounting history.
fn accounting_history(text: &str) -> Result<usize, String> {
    let octets: usize = text.parse().map_err(|_| format!("`{text}` is not a number of bytes"))?;
    if octets < MIN_HISTORY {
        return Err(format!(
            "the history must have {MIN_HISTORY} bytes at least, for a handful of records"
        ));
    }
    Ok(octets)
}

/// Parses `ADDR:PORT` of the loopback device. Other addresses are refused, because readers need no password there.
fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err("give a loopback address and a port, as in 127.0.0.1:9190".to_owned()),
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

    #[test]
    fn the_defaults_let_in_who_has_proven_their_name() {
        let run = run_of(&["holdfast", "run"]);
        assert_eq!(run.listen, ["[::]:9339".parse().unwrap()]);
        assert_eq!(run.certificate_role, Role::Admin);
        assert_eq!(run.certificate_speaks_for, ImpersonationPolicy::Itself);
        assert_eq!(ImpersonationPolicy::default(), ImpersonationPolicy::Itself);
    }

    #[test]
    fn subscriptions_to_unknown_paths_are_refused_by_default() {
        let run = run_of(&["holdfast", "run"]);
        assert_eq!(run.unknown_subscription_paths, UnknownPaths::Refuse);
        for (word, want) in [("refuse", UnknownPaths::Refuse), ("ignore", UnknownPaths::Ignore)] {
            let run = run_of(&["holdfast", "run", "--unknown-subscription-paths", word]);
            assert_eq!(run.unknown_subscription_paths, want);
        }
        let other = ["holdfast", "run", "--unknown-subscription-paths", "warn"];
        assert!(CommandLine::try_parse_from(other).is_err());
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
