//! Arguments of `holdfast config`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_core::{Comment, InvalidPlanHash, PlanHash};
use serde::{Deserialize, Serialize};

use super::StateDir;

#[derive(Clone, Debug, Args)]
pub struct ConfigSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigAction {
    /// Print the configuration of all origins
    Show {
        /// Path of either model, or the words of an entry such as `interface eth1`: print that part of the
        /// configuration
        #[arg(value_name = "PATH|WORD")]
        path: Vec<String>,
        #[arg(long, value_enum, default_value_t = ConfigFormat::Text)]
        format: ConfigFormat,
        /// Add the names of the owners to each line
        #[arg(long, conflicts_with = "format")]
        owner: bool,
    },
    /// Print the difference between the configuration and a file, the change of a revision, or the difference between two
    /// revisions, as lines of the configuration
    Diff {
        /// The file, `-` for standard input, or the number of a revision; without it, the last revision
        #[arg(value_name = "FILE|-|REVISION")]
        what: Option<String>,
        /// A later revision, by number or checkpoint. The first argument then names an earlier one in the same way
        #[arg(value_name = "REVISION", conflicts_with = "format")]
        to: Option<String>,
        /// Form of the file. By default the first character decides: `{` begins JSON
        #[arg(long, value_enum)]
        format: Option<ConfigFormat>,
    },
    /// Check that a file can replace the configuration, and print what would change
    Check {
        #[command(flatten)]
        document: DocumentArgs,
    },
    /// Set a leaf, or merge a file. In a text, `no LINE` removes the leaf or entry of the line
    #[command(
        override_usage = "holdfast config set [OPTIONS] FILE|-\n       holdfast config set [OPTIONS] PATH VALUE..."
    )]
    Set {
        /// A file, `-` for standard input, or the path of a leaf of either model
        #[arg(value_name = "FILE|-|PATH")]
        target: String,
        /// Value of the leaf, all values of a leaf-list, or the other words of the line
        #[arg(value_name = "VALUE|WORD")]
        values: Vec<String>,
        #[arg(long, value_enum)]
        format: Option<ConfigFormat>,
        #[command(flatten)]
        terms: ChangeTerms,
    },
    /// Remove a part of the configuration, by its path in either model
    Delete {
        /// Path of either model, or the words of a line such as `interface eth1 mtu`
        #[arg(value_name = "PATH|WORD", required = true)]
        path: Vec<String>,
        #[command(flatten)]
        terms: ChangeTerms,
    },
    /// Replace the configuration by a file: the command removes what the file leaves out
    Replace {
        #[command(flatten)]
        document: DocumentArgs,
        #[command(flatten)]
        terms: ChangeTerms,
    },
    /// Change the configuration in an editor ($VISUAL or $EDITOR). The command shows the difference, and asks before
    /// it changes anything
    Edit {
        /// Path of either model, or the words of an entry: edit that part of the configuration
        #[arg(value_name = "PATH|WORD")]
        path: Vec<String>,
        #[command(flatten)]
        terms: ChangeTerms,
    },
    /// Print the revisions of the configuration: who changed what, when, and from where. With a number, print one
    /// revision and its difference
    Log {
        /// Number of a revision
        #[arg(value_name = "REVISION")]
        number: Option<u64>,
        /// Number of revisions to print, the last ones
        #[arg(long, value_name = "N", default_value_t = DEFAULT_LOG, conflicts_with = "number")]
        limit: usize,
        #[arg(long)]
        json: bool,
    },
    /// Go back to the configuration of clients after an earlier revision, or at a checkpoint
    Rollback {
        /// Number of the revision (0 for the configuration before the first one), or name of the checkpoint
        #[arg(value_name = "REVISION|CHECKPOINT")]
        target: String,
        #[command(flatten)]
        terms: ChangeTerms,
    },
    /// Keep the present configuration of clients under a name. Without a name, print the checkpoints
    Checkpoint {
        name: Option<String>,
        /// Comment for people, such as the reason
        #[arg(long, value_name = "TEXT", requires = "name")]
        comment: Option<Comment>,
        /// Remove the checkpoint
        #[arg(long, requires = "name", conflicts_with = "comment")]
        delete: bool,
        #[arg(long, conflicts_with = "name")]
        json: bool,
    },
    /// Keep the commit that waits to be confirmed
    Confirm {
        /// Id of the commit; without it, the one that waits
        id: Option<String>,
    },
    /// Take back the commit that waits to be confirmed
    Cancel {
        /// Id of the commit; without it, the one that waits
        id: Option<String>,
    },
    /// Print the configuration of clients, in both models, as one document for a backup or for another box
    Export,
    /// Replace the configuration of clients by an exported document
    Import {
        /// The file, or `-` for standard input
        file: PathBuf,
        #[command(flatten)]
        terms: ChangeTerms,
    },
}

/// A document, and its form.
#[derive(Clone, Debug, Args)]
pub struct DocumentArgs {
    /// The file, or `-` for standard input
    pub file: PathBuf,
    /// Form of the file. By default the first character decides: `{` begins JSON
    #[arg(long, value_enum)]
    pub format: Option<ConfigFormat>,
}

/// How a change is made.
#[derive(Clone, Debug, Default, Args)]
pub struct ChangeTerms {
    /// Print the plan and the difference, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Make the change only if its plan has this hash, which a dry run prints
    #[arg(long, value_name = "HASH", value_parser = plan_hash)]
    pub expect: Option<PlanHash>,
    /// Take the change back unless `holdfast config confirm` comes within this time, such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub confirm_within: Option<Duration>,
    /// Why the change is made, for the log
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<Comment>,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// Revisions that are printed: a screen.
const DEFAULT_LOG: usize = 20;

/// Form of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFormat {
    /// Lines of the native model
    Text,
    /// JSON of the native model (RFC 7951)
    Json,
    /// JSON of what clients set by OpenConfig (RFC 7951)
    Openconfig,
}

fn plan_hash(text: &str) -> Result<PlanHash, String> {
    text.parse().map_err(|error: InvalidPlanHash| error.to_string())
}

/// Parses a time such as 90s, 5m or 1h30m.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("`{text}` is not a time such as 90s or 5m: {error}"))
}
