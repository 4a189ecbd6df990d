//! Client side of the local socket.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use holdfast_base::Role;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use smol_str::SmolStr;
use tokio::{net::UnixStream, time::timeout};
use zeroize::Zeroizing;

use super::config;
use super::faults;
use super::maintenance::FactoryResetRequest;
use super::online::{UNSETTLED, Unsettled};
use super::packages::{self, Removal};
use super::probes;
use super::report::{AgentReport, REPORT};
use super::service_operations;
use super::sessions;
use super::{
    BootzStartRequest, ChangeAnswer, ChangeRequest, CheckpointRequest, ConfirmRequest,
    DeleteUserRequest, DiffRequest, Export, Failure, LogRequest, SetUserRequest, ShowRequest,
    SwitchEntry, UserSummary,
};
use crate::faults::Raise;
use crate::settings::{
    FaultQuestion, FaultWatchRequest, InstallSettings, InstanceAction, MaintenanceQuestion,
    PingQuestion, SessionWatch, TraceQuestion,
};
use crate::trace::TRACE_HEADER;
use crate::users::Password;

/// Time limit for an answer. The state of a large box takes longest.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Client of one agent.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
    /// Name of its requests in logs and histories of the agent.
    trace: Option<SmolStr>,
}

/// Reason for the lack of an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    #[error("no agent answers on `{}`", path.display())]
    NotRunning { path: PathBuf, source: io::Error },
    #[error("not permitted to use the socket `{}` of the agent", path.display())]
    NotAllowed { path: PathBuf, source: io::Error },
    #[error("the agent broke off its answer")]
    Broken(#[from] hyper::Error),
    #[error("the agent did not answer within {ANSWER_TIMEOUT:?}")]
    Timeout,
    #[error("cannot understand the answer of the agent")]
    Answer(#[from] serde_json::Error),
    #[error("the password is not UTF-8 text, as the local socket needs it")]
    Password,
    #[error("`{0}` is not the trace of a request")]
    Trace(SmolStr),
    #[error("cannot print the answer")]
    Output(#[source] io::Error),
    /// Error message of the agent.
    #[error("{0}")]
    Refused(String),
}

impl ClientError {
    /// True when a later request may be answered: the agent has not been started yet, has ended, or is still starting.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotRunning { .. } | Self::Broken(_) | Self::Timeout)
    }
}

impl Client {
    pub fn new(socket: &Path) -> Self {
        Self { path: socket.into(), trace: None }
    }

    /// A client whose requests have a trace.
    #[must_use]
    pub fn with_trace(self, trace: Option<SmolStr>) -> Self {
        Self { trace, ..self }
    }

    /// Requests a text.
    ///
    /// # Errors
    /// When no agent runs, or it cannot produce the text.
    pub async fn text(&self, address: &str) -> Result<String, ClientError> {
        let body = self.send_request(Method::GET, address, Bytes::new()).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Requests a document.
    ///
    /// # Errors
    /// When no agent runs, or it cannot produce the document.
    pub async fn document(&self, address: &str) -> Result<serde_json::Value, ClientError> {
        let body = self.send_request(Method::GET, address, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Asks what of the configuration is not in the system. The answer comes when nothing is, after the given time, or after
    /// some seconds.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn unsettled(
        &self,
        allow_pending: bool,
        within: Duration,
    ) -> Result<Unsettled, ClientError> {
        let within = within.as_millis();
        let address = format!("{UNSETTLED}?allow_pending={allow_pending}&within={within}");
        let body = self.send_request(Method::GET, &address, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// The agent's word about itself.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn report(&self) -> Result<AgentReport, ClientError> {
        let body = self.send_request(Method::GET, REPORT, Bytes::new()).await?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Lists the users.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn users(&self) -> Result<Vec<UserSummary>, ClientError> {
        Ok(serde_json::from_slice(&self.send_request(Method::GET, "/users", Bytes::new()).await?)?)
    }

    /// Creates or changes a user. Without a role, it keeps the one that it has.
    ///
    /// # Errors
    /// When no agent runs, or it refuses the name or the password.
    pub async fn set_user(
        &self,
        name: &str,
        role: Option<Role>,
        password: Option<&Password>,
    ) -> Result<(), ClientError> {
        let password = password
            .map(|cleartext| cleartext.text().map(str::to_owned).ok_or(ClientError::Password));
        let user = SetUserRequest {
            name: name.into(),
            role: role.map(|role| role.to_string()),
            password: password.transpose()?,
        };
        self.post("/users/set", &user).await
    }

    /// Removes a user.
    ///
    /// # Errors
    /// When no agent runs, or there is no such user.
    pub async fn delete_user(&self, name: &str) -> Result<(), ClientError> {
        self.post("/users/delete", &DeleteUserRequest { name: name.into() }).await
    }

    /// Lists the switches.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn switches(&self) -> Result<Vec<SwitchEntry>, ClientError> {
        Ok(serde_json::from_slice(
            &self.send_request(Method::GET, "/switches", Bytes::new()).await?,
        )?)
    }

    /// Sets a switch.
    ///
    /// # Errors
    /// When no agent runs, or the change cannot be made.
    pub async fn switch(&self, service: &str, on: bool) -> Result<(), ClientError> {
        self.post("/switches/set", &SwitchEntry { service: service.to_owned(), on }).await
    }

    /// Prints the configuration.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn show_config(&self, request: &ShowRequest) -> Result<String, ClientError> {
        self.ask(config::SHOW, request).await
    }

    /// Changes the configuration, or plans that.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn change_config(
        &self,
        request: &ChangeRequest,
    ) -> Result<ChangeAnswer, ClientError> {
        Ok(serde_json::from_str(&self.ask(config::CHANGE, request).await?)?)
    }

    /// Keeps or takes back the commit that waits to be confirmed; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn confirm_config(&self, request: &ConfirmRequest) -> Result<String, ClientError> {
        self.ask(config::CONFIRM, request).await
    }

    /// Configuration of clients, as a document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn export_config(&self) -> Result<Export, ClientError> {
        Ok(serde_json::from_str(&self.ask(config::EXPORT, &()).await?)?)
    }

    /// The revisions of the configuration, or one of them, as a text or a JSON document.
    ///
    /// # Errors
    /// When no agent runs, it refuses, or there is no such revision.
    pub async fn config_log(&self, request: &LogRequest) -> Result<String, ClientError> {
        self.ask(config::LOG, request).await
    }

    /// The lines that differ between two revisions.
    ///
    /// # Errors
    /// When no agent runs, it refuses, or the log does not keep one of them.
    pub async fn config_difference(
        &self,
        request: &DiffRequest,
    ) -> Result<ChangeAnswer, ClientError> {
        Ok(serde_json::from_str(&self.ask(config::DIFF, request).await?)?)
    }

    /// Makes or removes a checkpoint; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn set_checkpoint(&self, request: &CheckpointRequest) -> Result<String, ClientError> {
        self.ask(config::CHECKPOINT, request).await
    }

    /// All checkpoints, as a text or a JSON document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn checkpoints(&self, json: bool) -> Result<String, ClientError> {
        self.ask(config::CHECKPOINTS, &json).await
    }

    /// Sends a JSON document; the answer is a text.
    async fn ask(&self, address: &str, question: &impl Serialize) -> Result<String, ClientError> {
        let body = Zeroizing::new(serde_json::to_vec(question)?);
        let text = self.send_request(Method::POST, address, Bytes::from_owner(body)).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Carries out an operation on service instances; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn operate(&self, action: &InstanceAction) -> Result<String, ClientError> {
        self.ask(service_operations::ADDRESS, action).await
    }

    /// Carries out an operation whose answer goes on.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn follow(&self, action: &InstanceAction) -> Result<AnswerLines, ClientError> {
        let body = serde_json::to_vec(action)?.into();
        self.open_answer(service_operations::ADDRESS, body).await
    }

    /// Asks something of alarms, or changes one; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn ask_of_faults(&self, question: &FaultQuestion) -> Result<String, ClientError> {
        self.ask(faults::QUESTION, question).await
    }

    /// Follows alarms: each line is a JSON document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn watch_faults(
        &self,
        request: &FaultWatchRequest,
    ) -> Result<AnswerLines, ClientError> {
        let body = serde_json::to_vec(request)?.into();
        self.open_answer(faults::WATCH, body).await
    }

    /// Moments of the alarms that were raised after an event.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn raises(&self, after: u64) -> Result<Vec<Raise>, ClientError> {
        let body = serde_json::to_vec(&after)?.into();
        let raises = self.send_request(Method::POST, faults::RAISES, body).await?;
        Ok(serde_json::from_slice(&raises)?)
    }

    /// Asks something of maintenance sessions, or changes one; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn ask_of_maintenance(
        &self,
        question: &MaintenanceQuestion,
    ) -> Result<String, ClientError> {
        self.ask(sessions::QUESTION, question).await
    }

    /// Follows maintenance sessions: each line is a JSON document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn watch_maintenance(&self, watch: SessionWatch) -> Result<AnswerLines, ClientError> {
        self.open_answer(sessions::WATCH, serde_json::to_vec(&watch)?.into()).await
    }

    /// Starts a ping: each line of the answer is a JSON document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn ping(&self, question: &PingQuestion) -> Result<AnswerLines, ClientError> {
        self.open_answer(probes::PING, serde_json::to_vec(question)?.into()).await
    }

    /// Starts a trace: each line of the answer is a JSON document.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn trace(&self, question: &TraceQuestion) -> Result<AnswerLines, ClientError> {
        self.open_answer(probes::TRACE, serde_json::to_vec(question)?.into()).await
    }

    async fn open_answer(&self, address: &str, body: Bytes) -> Result<AnswerLines, ClientError> {
        let response = self.begin_exchange(Method::POST, address, body);
        let response =
            timeout(ANSWER_TIMEOUT, response).await.map_err(|_| ClientError::Timeout)??;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            return Err(refusal(status, &body.collect().await?.to_bytes()));
        }
        Ok(AnswerLines { body, partial: Vec::new() })
    }

    /// Installs the archive of a package of services; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn install_package(
        &self,
        archive: Vec<u8>,
        terms: &InstallSettings,
    ) -> Result<String, ClientError> {
        let address = packages::install_address(terms);
        let text = self.send_request(Method::POST, &address, archive.into()).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Removes an installed package of services; the answer is a text.
    ///
    /// # Errors
    /// When no agent runs, or it refuses.
    pub async fn remove_package(&self, name: &str, force: bool) -> Result<String, ClientError> {
        self.ask(packages::REMOVE_PACKAGE, &Removal { name: name.to_owned(), force }).await
    }

    /// Lists the loaded packages of services.
    ///
    /// # Errors
    /// When no agent runs.
    pub async fn packages(&self) -> Result<String, ClientError> {
        self.text(packages::PACKAGES).await
    }

    /// Resets the box to factory state, except in a dry run. The answer has a line for each thing that goes.
    ///
    /// # Errors
    /// When no agent runs, or the reset fails.
    pub async fn factory_reset(
        &self,
        retain_certificates: bool,
        dry_run: bool,
    ) -> Result<String, ClientError> {
        self.ask("/factory-reset", &FactoryResetRequest { retain_certificates, dry_run }).await
    }

    /// Starts a bootstrap.
    ///
    /// # Errors
    /// When no agent runs, it has no IDevID, the URI names no server, or there is neither a URI nor a port for
    /// DHCP.
    pub async fn start_bootz(
        &self,
        bootz_uri: Option<&str>,
        src_interface: Option<&str>,
    ) -> Result<(), ClientError> {
        let bootz_uri = bootz_uri.map(ToOwned::to_owned);
        let src_interface = src_interface.map(ToOwned::to_owned);
        self.post("/bootz/start", &BootzStartRequest { bootz_uri, src_interface }).await
    }

    /// Ends a bootstrap.
    ///
    /// # Errors
    /// When no agent runs, or it has no IDevID.
    pub async fn terminate_bootz(&self) -> Result<(), ClientError> {
        self.post("/bootz/terminate", &()).await
    }

    /// Resets the box to factory state, and bootstraps from there.
    ///
    /// # Errors
    /// When no agent runs, or it has no IDevID.
    pub async fn reset_bootz(&self) -> Result<(), ClientError> {
        self.post("/bootz/reset", &()).await
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> Result<(), ClientError> {
        let text = Zeroizing::new(serde_json::to_vec(body)?);
        self.send_request(Method::POST, path, Bytes::from_owner(text)).await.map(drop)
    }

    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        timeout(ANSWER_TIMEOUT, self.exchange(method, path, body))
            .await
            .map_err(|_| ClientError::Timeout)?
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let response = self.begin_exchange(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status.is_success() { Ok(body) } else { Err(refusal(status, &body)) }
    }

    async fn begin_exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream =
            UnixStream::connect(&self.path).await.map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    ClientError::NotAllowed { path: self.path.clone(), source }
                }
                _ => ClientError::NotRunning { path: self.path.clone(), source },
            })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection); // ends with the exchange; the request reports its error too
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|_| ClientError::Refused(format!("`{path}` is not a path")))?;
        request
            .headers_mut()
            .insert(http::header::HOST, http::HeaderValue::from_static("localhost"));
        request
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
        if let Some(trace) = &self.trace {
            let trace = trace.parse().map_err(|_| ClientError::Trace(trace.clone()))?;
            request.headers_mut().insert(TRACE_HEADER, trace);
        }
        Ok(sender.send_request(request).await?)
    }
}

/// An answer that goes on, line by line.
#[derive(Debug)]
pub struct AnswerLines {
    body: Incoming,
    /// Bytes after the last line.
    partial: Vec<u8>,
}

impl AnswerLines {
    /// The next line, with its end; `None` at the end of the answer.
    ///
    /// # Errors
    /// When the agent breaks the answer off.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(end) = self.partial.iter().position(|octet| *octet == b'\n') {
                let rest = self.partial.split_off(end + 1);
                let line = std::mem::replace(&mut self.partial, rest);
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(part) = frame?.into_data() {
                self.partial.extend_from_slice(&part);
            }
        }
    }

    /// Gives each line to `print`, until the agent ends the answer.
    ///
    /// # Errors
    /// When the agent breaks the answer off, or `print` fails.
    pub async fn print(
        mut self,
        mut print: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), ClientError> {
        while let Some(line) = self.next().await? {
            print(&line).map_err(ClientError::Output)?;
        }
        Ok(())
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> ClientError {
    match serde_json::from_slice::<Failure>(body) {
        Ok(failure) => ClientError::Refused(failure.error),
        Err(_) => ClientError::Refused(format!("the agent answered {status}")),
    }
}
