//! Handlers of services for tests: the ones in other languages, and one that breaks the rules of the stream.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::from_handler::Message as Said;
use holdfast_proto::holdfast::services::handler_client::HandlerClient;
use holdfast_proto::holdfast::services::to_handler::Message as Heard;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::agent::AgentProcess;
use crate::clients::{Gnmic, client};
use crate::eventually::WAIT_LIMIT;
use crate::netns::Netns;

/// Messages that a test may say before the agent reads them.
const OUTBOX_DEPTH: usize = 16;
/// Interval between two attempts to attach.
const ATTACH_PERIOD: Duration = Duration::from_millis(50);

/// A process that serves the type `sized-port`. It ends with this.
#[derive(Debug)]
pub struct HandlerProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl HandlerProcess {
    /// Starts the handler in Python and waits until it has got the calls that waited for it.
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn python(socket: &Path, variables: &[(&str, &str)]) -> Self {
        let program = sources().join("handler_python/handler.py");
        let mut command = Command::new(client("venv/bin/python"));
        command.arg(program);
        Self::start(command, socket, variables).await
    }

    /// Starts the handler in Go, as [`HandlerProcess::python`].
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn go(socket: &Path, variables: &[(&str, &str)]) -> Self {
        Self::start(Command::new(client("handler")), socket, variables).await
    }

    /// Starts the handler that is beside the example package of its type, with a folder that outlasts it.
    ///
    /// # Panics
    /// When it ends instead.
    pub async fn shipped(
        socket: &Path,
        example: &str,
        folder: &Path,
        variables: &[(&str, &str)],
    ) -> Self {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/services");
        let mut command = Command::new(client("venv/bin/python"));
        command.arg(examples.join(example).join("handler.py"));
        command.env("HOLDFAST_PROTO", protos()).env("STATE_DIRECTORY", folder);
        Self::start_for(command, socket, example, variables).await
    }

    async fn start(command: Command, socket: &Path, variables: &[(&str, &str)]) -> Self {
        Self::start_for(command, socket, "sized-port", variables).await
    }

    async fn start_for(
        mut command: Command,
        socket: &Path,
        service: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        command.arg(socket).arg(service).env("PROTO_PATH", protos());
        command.envs(variables.iter().copied());
        let child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child = child.expect("the handler starts");
        let stdout = child.stdout.take().expect("its output is a pipe");
        let mut handler = Self { child, lines: BufReader::new(stdout).lines() };
        handler.heard("synced").await;
        handler
    }

    /// The next line of its output whose first word is this.
    ///
    /// # Panics
    /// When the handler ends before, or says nothing for long.
    pub async fn heard(&mut self, word: &str) -> String {
        let next = async {
            while let Some(line) = self.lines.next_line().await.expect("its output is text") {
                if line.split_whitespace().next() == Some(word) {
                    return line;
                }
            }
            panic!("the handler has ended before `{word}`")
        };
        timeout(WAIT_LIMIT * 4, next).await.unwrap_or_else(|_| panic!("no `{word}` came"))
    }

    /// Kills the process, as a crash would.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the process is ours");
    }
}

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/protos")
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// A handler that says what a test wants.
#[derive(Debug)]
pub struct RawHandler {
    outbox_tx: mpsc::Sender<wire::FromHandler>,
    inbox: Streaming<wire::ToHandler>,
    pub client: HandlerClient<Channel>,
}

impl RawHandler {
    /// Attaches a handler for all work of the type `sized-port`.
    ///
    /// # Errors
    /// The status that the agent answers with.
    ///
    /// # Panics
    /// When the socket is not there.
    pub async fn attach(socket: &Path) -> Result<Self, Status> {
        let mut handler = Self::attach_for(socket, "sized-port", all_calls()).await?;
        handler.synced().await;
        Ok(handler)
    }

    /// Attaches a handler for all work of the type `sized-port` over the connection of a client.
    ///
    /// # Errors
    /// The status that the agent answers with.
    ///
    /// # Panics
    /// When the stream ends at once.
    pub async fn attach_over(client: HandlerClient<Channel>) -> Result<Self, Status> {
        let mut handler = Self::register(client, ("sized-port", all_calls())).await?;
        handler.synced().await;
        Ok(handler)
    }

    /// Attaches a handler for this of a type, and takes no message yet.
    ///
    /// # Errors
    /// The status that the agent answers with.
    ///
    /// # Panics
    /// When the socket is not there.
    pub async fn attach_for(
        socket: &Path,
        service: &str,
        served: wire::ServedType,
    ) -> Result<Self, Status> {
        let address = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(address).expect("the path is plain");
        let channel = endpoint.connect().await.expect("the socket is there");
        Self::register(HandlerClient::new(channel), (service, served)).await
    }

    async fn register(
        mut client: HandlerClient<Channel>,
        (service, served): (&str, wire::ServedType),
    ) -> Result<Self, Status> {
        let (outbox_tx, outbox_rx) = mpsc::channel(OUTBOX_DEPTH);
        outbox_tx.send(registration(service, served)).await.expect("there is room");
        let inbox = client.attach(ReceiverStream::new(outbox_rx)).await?.into_inner();
        Ok(Self { outbox_tx, inbox, client })
    }

    async fn synced(&mut self) {
        self.next(|it| matches!(it, Heard::Synced(_)).then_some(())).await;
    }

    /// The status with which the agent ends the stream, after whatever it says before.
    ///
    /// # Panics
    /// When it ends without one, or goes on for long.
    pub async fn end(&mut self) -> Status {
        let end = async {
            loop {
                match self.inbox.message().await {
                    Ok(message) => assert!(message.is_some(), "the stream ends without a status"),
                    Err(status) => return status,
                }
            }
        };
        timeout(WAIT_LIMIT * 4, end).await.expect("the stream ends")
    }

    /// Says something.
    ///
    /// # Panics
    /// When the stream has ended.
    pub async fn say(&self, message: Said) {
        let message = wire::FromHandler { message: Some(message) };
        self.outbox_tx.send(message).await.expect("the stream is open");
    }

    /// The next message that is wanted. Pings that come before are answered.
    ///
    /// # Panics
    /// When the stream ends before, or nothing comes for long.
    pub async fn next<T>(&mut self, wanted: impl Fn(&Heard) -> Option<T>) -> T {
        let next = async {
            loop {
                let message = self.inbox.message().await.expect("the stream is open");
                let message = message.and_then(|it| it.message).expect("the stream goes on");
                if let Some(found) = wanted(&message) {
                    return found;
                }
                if let Heard::Ping(_) = message {
                    self.say(Said::Pong(wire::Pong {})).await;
                }
            }
        };
        timeout(WAIT_LIMIT * 4, next).await.expect("the message comes")
    }

    /// The next transaction: its number.
    pub async fn commit(&mut self) -> u64 {
        let commit = |it: &Heard| match it {
            Heard::ServicesCommit(commit) => Some(commit.tid),
            _ => None,
        };
        self.next(commit).await
    }

    /// The next refusal: its code and its text.
    pub async fn refusal(&mut self) -> (u32, String) {
        let refusal = |it: &Heard| match it {
            Heard::Refused(refused) => Some((refused.code, refused.text.clone())),
            _ => None,
        };
        self.next(refusal).await
    }
}

/// Attaches a handler, once the agent knows that the one before it is gone.
///
/// # Panics
/// When it is refused for another reason, or the one before it stays.
pub async fn attach_next<F>(mut attach: impl FnMut() -> F) -> RawHandler
where
    F: Future<Output = Result<RawHandler, Status>>,
{
    let deadline = Instant::now() + WAIT_LIMIT;
    loop {
        match attach().await {
            Ok(handler) => return handler,
            Err(status) => assert_eq!(status.code(), Code::AlreadyExists, "{status}"),
        }
        assert!(Instant::now() < deadline, "the handler before is not gone");
        sleep(ATTACH_PERIOD).await;
    }
}

/// The first message of a handler for this of a type.
#[must_use]
pub fn registration(service: &str, served: wire::ServedType) -> wire::FromHandler {
    let types = vec![wire::ServedType { r#type: service.into(), ..served }];
    let register = Said::Register(wire::Register { name: "raw".into(), types });
    wire::FromHandler { message: Some(register) }
}

/// Work of all states that are reached.
#[must_use]
pub fn all_calls() -> wire::ServedType {
    let phase = wire::Phase::Create.into();
    let calls = vec![wire::ServedCalls { component: "*".into(), state: "*".into(), phase }];
    wire::ServedType { calls, ..wire::ServedType::default() }
}

/// A box whose agent has a socket for handlers, and packages of services.
#[derive(Debug)]
pub struct ServedBox {
    pub net: Netns,
    pub agent: AgentProcess,
    pub gnmic: Gnmic,
    pub socket: PathBuf,
    /// Folder that outlasts handlers.
    pub folder: TempDir,
    _packages: TempDir,
}

impl ServedBox {
    /// Starts the agent with the packages of a folder.
    ///
    /// # Panics
    /// When it does not get ready.
    pub async fn start(net: Netns, packages: TempDir) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let socket = folder.path().join("services.sock");
        let text = |path: &Path| path.display().to_string();
        let services = text(packages.path());
        let path = text(&socket);
        let options = ["--services", &services, "--service-socket", &path];
        let agent = AgentProcess::start_with(&net, &options).await;
        let gnmic = Gnmic::for_admin(&agent);
        Self { net, agent, gnmic, socket, folder, _packages: packages }
    }
}
