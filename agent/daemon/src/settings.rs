//! The command line, and the settings of a run.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use smol_str::SmolStr;

use crate::caller::Role;

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
    /// File whose first line becomes the password of the user `admin` at start
    #[arg(long, value_name = "FILE")]
    pub admin_password_file: Option<PathBuf>,
    /// Role of a client certificate whose identity is not a local user: admin or read-only
    #[arg(long, value_name = "ROLE", default_value_t = Role::Admin)]
    pub certificate_role: Role,
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
    #[arg(value_enum)]
    pub what: Shown,
    #[command(flatten)]
    pub state: StateDir,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// The configuration, as its owners gave it
    Config,
    /// The state of the box
    State,
    /// Every value the engine keeps, with its status
    Values,
    /// The values that wait for something, and for what
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
