//! Arguments of `holdfast service`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Args)]
pub struct ServiceSettings {
    #[command(subcommand)]
    pub action: ServiceAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ServiceAction {
    /// Write a package to start from into a new folder
    New {
        /// Name of the service type, and of the folder
        name: String,
    },
    /// Check a package: every error with file, line and column
    Check {
        /// Folder of the package, or an archive NAME-VERSION.hfs
        #[arg(value_name = "DIR|FILE")]
        package: PathBuf,
    },
    /// Print the components of an instance, and what each of their states puts out, as if it was reached. Nothing is known
    /// of a box: what templates read there is none
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
}
