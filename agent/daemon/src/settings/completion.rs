//! Arguments of the commands that complete command lines, and what the agent is asked for them.

use clap::{Args, ValueEnum};
use holdfast_introspect::uri::UriBuilder;
use serde::{Deserialize, Serialize};

/// Address of candidates on the local socket.
pub const CANDIDATES: &str = "/completion";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Clone, Debug, Args)]
pub struct CompletionSettings {
    /// The shell that the script is for
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A command line that is being written.
#[derive(Clone, Debug, Args)]
pub struct CompleteSettings {
    /// The line up to the cursor, for shells that part words at more than blanks
    #[arg(long, allow_hyphen_values = true)]
    pub line: Option<String>,
    /// The words of the line, the last one up to the cursor
    #[arg(last = true)]
    pub words: Vec<String>,
}

/// Kind of thing that a value of an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    Interfaces,
    Instances,
    Paths,
    /// Words of a line of the configuration, behind those that are there.
    ConfigWords,
    /// Revisions and checkpoints of the configuration.
    Revisions,
    /// Values of the engine, by their keys.
    Values,
    /// All that has a reason: values, links and instances.
    Subjects,
    Users,
    Alarms,
    /// Resources of alarms that are interfaces.
    Resources,
}

impl Topic {
    /// Begin of each word of the topic, which the agent does not know.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Resources => "interface:",
            _ => "",
        }
    }

    /// Address on the local socket of the candidates that begin with a text, behind these words of the same argument.
    pub fn address(self, before: &[String], text: &str) -> String {
        let name = match self {
            Self::Interfaces | Self::Resources => "interfaces",
            Self::Instances => "instances",
            Self::Paths => "paths",
            Self::ConfigWords => "config-words",
            Self::Revisions => "revisions",
            Self::Values => "values",
            Self::Subjects => "subjects",
            Self::Users => "users",
            Self::Alarms => "alarms",
        };
        let mut query = UriBuilder::new(CANDIDATES);
        query.add("topic", name);
        query.add("before", &before.join("\n"));
        query.add("text", text);
        query.into_uri()
    }
}
