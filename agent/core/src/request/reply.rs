//! The answer to one request.

use std::net::IpAddr;
use std::time::Instant;

use holdfast_base::{AuthMethod, ErrorChain};
use holdfast_scheduler::Author;
use holdfast_security::acctz::secrets;
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::oneshot;

use super::error::{CommitError, CommitStamp};
use super::intent::Intent;
use super::options::{Comment, CommitOptions};
use super::preview::Preview;
use super::{CommitRequest, ReplySender};

/// The reply channel of a request, and its name in logs.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Identifier of the request, in logs and in the engine's history: the one of its client, else a random one.
    trace: SmolStr,
    caller: String,
    /// Address of the caller; `None` at the box itself.
    from: Option<IpAddr>,
    is_local: bool,
    /// Text of the client for the log of configuration revisions.
    comment: Option<Comment>,
    /// Name of the kind of change, for logs and the engine's history.
    name: &'static str,
    since: Instant,
    /// `None` once the request is answered.
    sender: Option<ReplySender>,
}

/// A trace of 16 hexadecimal digits.
fn random_trace() -> SmolStr {
    let number: u64 = rand::random();
    format_smolstr!("{number:016x}")
}

impl Reply {
    /// Splits a request into its reply, its intent and its options.
    pub(crate) fn of(request: CommitRequest) -> (Self, Intent, CommitOptions) {
        let CommitRequest { caller, intent, options, reply, .. } = request;
        let reply = Self {
            trace: options.trace.clone().unwrap_or_else(random_trace),
            caller: caller.name.to_string(),
            from: caller.peer.map(|peer| peer.ip()),
            is_local: matches!(caller.auth_method, AuthMethod::Local { .. }),
            comment: options.comment.clone(),
            name: intent.name(),
            since: Instant::now(),
            sender: Some(reply),
        };
        (reply, intent, options)
    }

    /// Reply to a change that the agent makes without a request; no client waits for it.
    pub(crate) fn to_agent(name: &'static str) -> Self {
        let (sender, _nobody) = oneshot::channel();
        let caller = "agent".to_owned();
        let sender = Some(ReplySender::Commit(sender));
        Self {
            trace: random_trace(),
            caller,
            from: None,
            is_local: true,
            comment: None,
            name,
            since: Instant::now(),
            sender,
        }
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        matches!(self.sender, Some(ReplySender::Preview(_)))
    }

    /// Name of the kind of change.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn author(&self) -> Author {
        Author { client: self.caller.clone(), trace: self.trace.to_string() }
    }

    /// Address of the caller; `None` at the box itself.
    pub(crate) fn from(&self) -> Option<IpAddr> {
        self.from
    }

    /// True for a caller at the box itself, a part of the agent among them.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Text of the client for the log of configuration revisions.
    pub(crate) fn comment(&self) -> Option<&Comment> {
        self.comment.as_ref()
    }

    /// Sends and logs the result. It stands even if the client has gone.
    pub(crate) fn send(&mut self, result: Result<CommitStamp, CommitError>) {
        let Some(sender) = self.sender.take() else { return };
        let elapsed = self.since.elapsed();
        let comment = self.comment.as_ref().map(|comment| secrets::message(comment.as_str()));
        match &result {
            Ok(_) => tracing::info!(
                trace = %self.trace, caller = %self.caller, what = self.name, comment = comment.as_deref(), ?elapsed, "committed"
            ),
            // The store tells it once a minute: a client that tries again and again fills no log.
            Err(error @ CommitError::Store(cause)) if cause.is_of_disk() => tracing::debug!(
                trace = %self.trace, caller = %self.caller, what = self.name, error = %ErrorChain(error), ?elapsed, "refused"
            ),
            Err(error) => {
                // The text may repeat secrets that the client sent; they are left out, like in accounting records.
                let error = secrets::message(&ErrorChain(error).to_string());
                tracing::info!(
                    trace = %self.trace, caller = %self.caller, what = self.name, error, ?elapsed, "refused"
                );
            }
        }
        match (sender, result) {
            (ReplySender::Commit(sender), result) => drop(sender.send(result)),
            (ReplySender::Preview(sender), Err(error)) => drop(sender.send(Err(error))),
            (ReplySender::Preview(_), Ok(_)) => {} // a dry run is never committed
        }
    }

    /// Answers a dry run.
    pub(crate) fn send_preview(&mut self, preview: Preview) {
        if let Some(ReplySender::Preview(sender)) = self.sender.take() {
            drop(sender.send(Ok(preview))); // the client may have gone
        }
    }
}
