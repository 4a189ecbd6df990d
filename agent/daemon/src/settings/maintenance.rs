//! Arguments of `holdfast maintenance`.

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use super::StateDir;

#[derive(Clone, Debug, Args)]
pub struct MaintenanceSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(subcommand)]
    pub action: MaintenanceAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum MaintenanceAction {
    #[command(flatten)]
    Question(MaintenanceQuestion),
    /// Print all sessions, then each step as it comes, one JSON document a line
    Watch(SessionWatch),
}

/// The place at which one who watches sessions goes on. Part of the wire format of the local socket.
#[derive(Clone, Copy, Debug, Default, Args, Serialize, Deserialize)]
pub struct SessionWatch {
    /// Begin with the steps after the one with this id, instead of all sessions
    #[arg(long, value_name = "ID")]
    pub after: Option<u64>,
}

/// Questions and changes that are answered at once. The wire format of the local socket.
#[derive(Clone, Debug, Subcommand, Serialize, Deserialize)]
pub enum MaintenanceQuestion {
    /// Make a session, and print its id
    Create(NewSession),
    /// Print all sessions that are kept, the last one last
    List,
    /// Print one session with all details
    Show {
        /// Id of the session
        #[arg(value_name = "SESSION")]
        id: String,
    },
    /// Print the steps of all sessions, or of one, that the log has
    Log {
        /// Id of the session
        #[arg(value_name = "SESSION")]
        id: Option<String>,
    },
    /// Reply for a consumer
    Reply(SessionReply),
    /// Report that the work is done
    Done {
        /// Id of the session
        #[arg(value_name = "SESSION")]
        id: String,
    },
    /// Cancel a session, and undo its steps
    Cancel {
        /// Id of the session
        #[arg(value_name = "SESSION")]
        id: String,
    },
    /// Cancel a session, and forget it
    Delete {
        /// Id of the session
        #[arg(value_name = "SESSION")]
        id: String,
    },
}

/// A session to make.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct NewSession {
    /// Resources, such as interface:eth1, or box
    #[arg(value_name = "RESOURCE", required = true)]
    pub resources: Vec<String>,
    /// How far the resources are emptied
    #[arg(long, value_enum, default_value_t = SessionVerb::Full)]
    pub kind: SessionVerb,
    /// Seconds until it starts
    #[arg(long = "in", value_name = "SECONDS")]
    pub starts_in: u64,
    /// Planned duration of the work in seconds; an alarm is raised when it takes longer
    #[arg(long, value_name = "SECONDS")]
    pub takes: Option<u64>,
    /// Shut a resource even if something that works loses its last way
    #[arg(long)]
    pub allow_isolation: bool,
}

/// How far the resources are emptied to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum SessionVerb {
    /// Resources are emptied and shut, and tested before they are given back
    Full,
    /// Objects may stay where they are
    Restart,
}

/// A reply for a consumer.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct SessionReply {
    /// Id of the session
    #[arg(value_name = "SESSION")]
    pub id: String,
    /// Id of the consumer
    #[arg(value_name = "CONSUMER")]
    pub consumer: String,
    /// The consumer's answer; without it, the reply tells which objects are done
    #[arg(value_enum)]
    pub answer: Option<AnswerVerb>,
    /// The action of its objects; without it, its default: leave, move, own-action or stop
    #[arg(long, value_name = "ACTION")]
    pub action: Option<String>,
    /// The action of one object, by its path; may be repeated
    #[arg(long = "object", value_name = "PATH=ACTION")]
    pub objects: Vec<String>,
    /// An object whose own action is done; may be repeated
    #[arg(long, value_name = "PATH")]
    pub done: Vec<String>,
    /// Reason, for people
    #[arg(long, default_value = "")]
    pub text: String,
}

/// The answer of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum AnswerVerb {
    /// The consumer agrees
    Ack,
    /// The consumer does not agree
    Nack,
}
