//! Arguments of `holdfast service`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::StateDir;
use crate::trace::parse_trace;

#[derive(Clone, Debug, Args)]
pub struct ServiceSettings {
    #[command(flatten)]
    pub state: StateDir,
    /// Name of the request in the agent's logs and histories. By default the agent makes a name
    #[arg(long, value_name = "ID", global = true, value_parser = parse_trace)]
    pub trace_id: Option<SmolStr>,
    #[command(subcommand)]
    pub action: ServiceAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ServiceAction {
    #[command(flatten)]
    Package(PackageAction),
    #[command(flatten)]
    Instance(InstanceAction),
    /// Install a package in the running agent, also for later starts, and print what the package may read and write
    Install {
        /// Archive NAME-VERSION.hfs
        #[arg(value_name = "FILE")]
        archive: PathBuf,
        #[command(flatten)]
        terms: InstallSettings,
    },
    /// Remove an installed package
    Remove {
        /// Name of the service type
        #[arg(value_name = "TYPE")]
        name: String,
        /// Remove its instances too; their configuration stays as orphan:TAG, see `purge`
        #[arg(long)]
        force: bool,
    },
    /// Print the packages that the running agent has loaded
    List,
}

/// Terms of an installation. The wire format of the local socket.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct InstallSettings {
    /// Print how instances would change, with a hash, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Install only if the dry run had this hash. Needed for another version of a type that has instances
    #[arg(long, value_name = "HASH", default_value = "")]
    #[serde(default)]
    pub expected: String,
    /// Upgrade each instance in a change of its own; an instance that fails keeps its version
    #[arg(long)]
    pub each: bool,
    /// Drop components of types that the new version lacks; their configuration stays as orphan:TAG, see `purge`
    #[arg(long)]
    pub force: bool,
    /// Install a lower version than the loaded one
    #[arg(long)]
    pub downgrade: bool,
}

/// Commands for packages, for which no agent is asked.
#[derive(Clone, Debug, Subcommand)]
pub enum PackageAction {
    /// Write a package to start from into a new folder
    New {
        /// Name of the service type, and of the folder
        name: String,
    },
    /// Check packages, and print every error with file, line and column. Several packages are checked together, as an
    /// agent loads them
    Check {
        /// Folder of a package, or an archive NAME-VERSION.hfs
        #[arg(value_name = "DIR|FILE", required = true)]
        packages: Vec<PathBuf>,
    },
    /// Print the components of an instance, with the output and the actions of each state as if it were reached.
    /// Everything that templates read from a box is absent. With --answers or --assume-actions-done, the command
    /// walks the instance instead: state after state as an agent would, until it is ready or needs an answer
    Render(ServiceRender),
    /// Check a package, write its archive NAME-VERSION.hfs, and print its SHA-256
    Pack {
        /// Folder of the package
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Folder for the archive
        #[arg(long, value_name = "DIR", default_value = ".")]
        output: PathBuf,
    },
}

/// Operations on instances, which the running agent carries out. The wire format of the local socket.
#[derive(Clone, Debug, Subcommand, Serialize, Deserialize)]
pub enum InstanceAction {
    /// Do the work of instances again, all in one transaction, and print their states
    Redeploy {
        /// Names of instances, TYPE[KEY='VALUE'], and of types; without any, all instances of the box
        #[arg(value_name = "TAG|TYPE")]
        services: Vec<String>,
        /// Print the objects that would change, and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Start to do the work of instances again, each on behalf of the author of its last change, and print their
    /// names at once
    ReactiveRedeploy {
        /// Names of instances, TYPE[KEY='VALUE'], and of types; without any, all instances of the box
        #[arg(value_name = "TAG|TYPE")]
        services: Vec<String>,
    },
    /// Print the states of instances, and then each change
    Watch {
        /// Names of instances, TYPE[KEY='VALUE'], and of types; without any, all instances of the box
        #[arg(value_name = "TAG|TYPE")]
        services: Vec<String>,
    },
    /// Print the objects that a redeployment would change
    CheckSync {
        /// Read the whole box first, and also print objects that are not in the kernel
        #[arg(long)]
        deep: bool,
        /// Names of instances, TYPE[KEY='VALUE'], and of types; without any, all instances of the box
        #[arg(value_name = "TAG|TYPE")]
        services: Vec<String>,
    },
    /// Print the leaves that an instance asks for, with all owners that ask for them
    GetModifications {
        #[arg(value_name = "TAG")]
        service: String,
        /// Type of one component
        #[arg(value_name = "TYPE", requires = "component")]
        component_type: Option<String>,
        /// Name of the component
        #[arg(value_name = "NAME")]
        component: Option<String>,
        /// One of its states
        #[arg(value_name = "STATE")]
        state: Option<String>,
    },
    /// Keep an instance in the configuration, but remove its own configuration: a Set of `deploy` false
    UnDeploy {
        #[arg(value_name = "TAG")]
        service: String,
    },
    /// Bring back an instance that was deleted or un-deployed and is not undone yet, with its former parameters
    Resurrect {
        #[arg(value_name = "TAG")]
        service: String,
    },
    /// Make a component leave its states, even if its delete gates are closed
    ForceBackTrack {
        #[arg(value_name = "TAG")]
        service: String,
        /// Type of the component
        #[arg(value_name = "TYPE")]
        component_type: String,
        /// Name of the component
        #[arg(value_name = "NAME")]
        component: String,
        /// The first state to leave, with all later ones. Without it, the component leaves all states
        #[arg(value_name = "STATE")]
        state: Option<String>,
        /// Confirm that the objects which the gates protect may be inconsistent afterwards
        #[arg(long)]
        acknowledge_inconsistent: bool,
    },
    /// Ask again for an action that failed, was cancelled or is in doubt
    Reschedule {
        /// Identifier of the call in the queue
        id: u64,
    },
    /// Cancel an action that was not dispatched
    Cancel {
        /// Identifier of the call in the queue
        id: u64,
    },
    /// Record the result of an action that failed, was cancelled or is in doubt
    Resolve {
        /// Identifier of the call in the queue
        id: u64,
        /// The result
        result: ActionResult,
    },
    /// Remove the configuration of a claim that no instance owns any more
    Purge {
        /// orphan:TAG, persist:TAG or persist:TYPE
        #[arg(value_name = "CLAIM")]
        claim: String,
    },
}

/// Result of an action, as an operator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum ActionResult {
    Done,
    Failed,
}

#[derive(Clone, Debug, Args)]
pub struct ServiceRender {
    /// Folder of the package, or an archive NAME-VERSION.hfs
    #[arg(value_name = "DIR|FILE")]
    pub package: PathBuf,
    /// Parameters of the instance: an RFC 7951 document with the members of its list entry, the key among them
    #[arg(long, value_name = "FILE")]
    pub params: PathBuf,
    /// Components of this type alone
    #[arg(long, value_name = "TYPE")]
    pub component: Option<String>,
    /// This state alone
    #[arg(long, value_name = "NAME", requires = "component")]
    pub state: Option<String>,
    /// Answers to what the instance asks of a box: JSON with the members `state` and `config` (value by path), `gone`
    /// (paths), `services` (true or false by TAG), `actions` (result by "TYPE NAME STATE") and `handlers` (values by
    /// "TYPE NAME STATE")
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,
    /// Assume that each action without an answer succeeds and saves nothing
    #[arg(long)]
    pub assume_actions_done: bool,
}
