//! Messages between the agent and its handlers, without their form on the wire.

use std::collections::BTreeSet;

use holdfast_config::services::{HandlerCall, HandlerRefusal, Plane, ServedCall, WorkFailureKind};
use smol_str::SmolStr;

/// Request of a process to be a handler.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Name of the process, for messages and logs.
    pub name: SmolStr,
    pub calls: BTreeSet<ServedCall>,
}

/// Message of a handler.
#[derive(Clone, Debug)]
pub enum HandlerMessage {
    Edit {
        tid: u64,
        call: usize,
        content: OwnedEdit,
        /// Name of the instance; empty for that of the call.
        creator: String,
    },
    Done {
        tid: u64,
        served: Vec<ServedWork>,
    },
    Error {
        tid: u64,
        origin: String,
        reason: String,
    },
    /// It needs so many seconds from now on.
    More {
        tid: u64,
        seconds: u32,
    },
    /// A leaf of state of an instance; empty JSON when it is gone.
    Publish {
        path: String,
        json: String,
    },
    Pong,
}

/// Content of one edit.
#[derive(Clone, Debug)]
pub enum OwnedEdit {
    Document { path: String, value: String },
    Lines(String),
}

/// End of the work for one call.
#[derive(Clone, Debug)]
pub struct ServedWork {
    pub call: usize,
    /// JSON object; empty to keep the opaque values that the state has.
    pub opaque: String,
    /// Reason for which the state is not to be left yet; empty to leave it.
    pub keep: String,
}

/// Message of the agent.
#[derive(Clone, Debug)]
pub enum AgentMessage {
    Registered,
    /// All calls were sent that waited for the handler.
    Synced,
    ServicesCommit {
        tid: u64,
        trace: String,
        cause: &'static str,
        is_dry_run: bool,
        calls: Vec<HandlerCall>,
    },
    /// No answer is waited for any more.
    Abort {
        tid: u64,
        reason: String,
    },
    /// The transaction has ended.
    Closed {
        tid: u64,
        result: Result<(), String>,
    },
    /// A message was not accepted.
    Refused {
        tid: u64,
        error: HandlerError,
    },
    /// The agent is about to stop.
    Drain,
    Ping,
}

/// Leaves that a handler wants to read.
#[derive(Clone, Debug)]
pub struct ReadQuestion {
    pub source: ReadSource,
    pub plane: Plane,
    pub path: String,
}

/// The box that is read.
#[derive(Clone, Debug)]
pub enum ReadSource {
    /// As it was when a call was made: transaction and number of the call.
    Call(u64, usize),
    /// As it is, by the grants of this type.
    Newest(SmolStr),
}

/// Class of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerErrorKind {
    Invalid,
    Unknown,
    Denied,
    Exists,
    Exhausted,
    Precondition,
    Unavailable,
}

/// Reason to refuse a message or a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HandlerError {
    pub kind: HandlerErrorKind,
    pub text: String,
}

impl HandlerError {
    pub fn new(kind: HandlerErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl From<HandlerRefusal> for HandlerError {
    fn from(HandlerRefusal { kind, text }: HandlerRefusal) -> Self {
        let kind = match kind {
            WorkFailureKind::Denied => HandlerErrorKind::Denied,
            WorkFailureKind::Limit => HandlerErrorKind::Exhausted,
            _ => HandlerErrorKind::Invalid,
        };
        Self { kind, text }
    }
}
