//! Install: an image arrives in pieces, and is installed into a slot of the box.
//!
//! A fault of an image, or of the box, is an `InstallError` at the end of the stream. A status is for a client that
//! breaks the protocol, and for a box that cannot install anything.

use std::io;
use std::time::Duration;

use holdfast_base::{Caller, ErrorChain, RebootInhibitors};
use holdfast_proto::gnoi::os::install_error::Type;
use holdfast_proto::gnoi::os::{
    InstallError, InstallRequest, InstallResponse, TransferProgress, TransferReady,
    TransferRequest, Validated, install_request, install_response,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Status, Streaming};
use tracing::{info, warn};

use crate::image::{ImageError, MAX_IMAGE};
use crate::northbound::status::Refusal;
use crate::packages::{PackageError, PackageUpload, Packages};
use crate::slots::{Flaw, SlotError, check_version};
use crate::software::Software;

/// Answers that may wait for the client. Progress beyond these is dropped, because later progress replaces it.
pub(super) const ANSWERS: usize = 4;
/// The most bytes of one piece: what gRPC allows a message by default.
const MAX_PIECE: usize = 4 << 20;
/// Bytes, and time, after which a client is sent its progress.
const PROGRESS_OCTETS: u64 = 1 << 20;
const PROGRESS_TIME: Duration = Duration::from_secs(10);
/// Time of silence after which an image is given up: no other client can send one meanwhile.
const SILENCE: Duration = Duration::from_secs(60);

pub(super) type InstallAnswer = Result<InstallResponse, Status>;

/// One stream.
pub(super) struct Transfer {
    pub(super) software: Software,
    pub(super) packages: Packages,
    pub(super) undertakings: RebootInhibitors,
    pub(super) caller: Caller,
    pub(super) answers: mpsc::Sender<InstallAnswer>,
}

/// Failure that ends the stream: as an `InstallError`, or as a status.
#[derive(Debug)]
enum Failure {
    Reported(Type, String),
    Status(Status),
}

/// Progress that the client was sent.
struct Progress<'a> {
    answers: &'a mpsc::Sender<InstallAnswer>,
    octets: u64,
    at: Instant,
}

impl Transfer {
    pub(super) async fn run(self, requests: Streaming<InstallRequest>) {
        let last = match self.take(requests).await {
            Ok(validated) => Ok(answer(install_response::Response::Validated(validated))),
            Err(Failure::Reported(kind, detail)) => {
                warn!(caller = %self.caller.name, kind = kind.as_str_name(), detail, "an image is not installed");
                Ok(answer(install_response::Response::InstallError(InstallError {
                    r#type: kind.into(),
                    detail,
                })))
            }
            Err(Failure::Status(status)) => Err(status),
        };
        let _client_is_gone = self.answers.send(last).await;
    }

    async fn take(&self, mut requests: Streaming<InstallRequest>) -> Result<Validated, Failure> {
        let Some(install_request::Request::TransferRequest(transfer)) = next(&mut requests).await?
        else {
            return Err(Refusal::invalid("the first message must be `transfer_request`").into());
        };
        let TransferRequest { version, standby_supervisor, package_size } = transfer;
        if standby_supervisor {
            let detail = "this box has one supervisor".to_owned();
            return Err(Failure::Reported(Type::NotSupportedOnBackup, detail));
        }
        check_version(&version).map_err(Refusal::invalid)?;
        if self.software.is_installed(&version).await.map_err(PackageError::from)? {
            return Ok(Validated { version, description: "it was installed before".to_owned() });
        }
        let mut incoming = self.packages.begin_image(&version)?;
        let name = format!("the installation of version `{version}`");
        let _undertaking = self.undertakings.begin(name);
        require_room(&incoming, package_size)?;
        let _gone_is_seen_below = self
            .answers
            .send(Ok(answer(install_response::Response::TransferReady(TransferReady {}))))
            .await;
        let mut progress = Progress { answers: &self.answers, octets: 0, at: Instant::now() };
        contents(&mut requests, &mut incoming, package_size, &mut progress).await?;
        progress.send_progress(incoming.length());
        info!(caller = %self.caller.name, version, octets = incoming.length(), "an image is complete");
        wait_for_install(tokio::spawn(incoming.install()), &mut progress).await?;
        info!(caller = %self.caller.name, version, "an image is installed");
        Ok(Validated { version, description: String::new() })
    }
}

/// Receives pieces up to the end of the transfer.
async fn contents(
    requests: &mut Streaming<InstallRequest>,
    incoming: &mut PackageUpload,
    size: u64,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    loop {
        match next(requests).await? {
            Some(install_request::Request::TransferContent(octets)) => {
                if octets.len() > MAX_PIECE {
                    let length = octets.len();
                    return Err(Refusal::invalid(format!(
                        "`transfer_content` has {length} bytes, and may have {MAX_PIECE} at most"
                    ))
                    .into());
                }
                incoming.write(&octets).await?;
                require_size(incoming.length() <= size, incoming.length(), size)?;
                progress.send_if_due(incoming.length());
            }
            Some(install_request::Request::TransferEnd(_)) if incoming.length() == 0 => {
                return Err(Failure::Reported(Type::ParseFail, "the image is empty".to_owned()));
            }
            Some(install_request::Request::TransferEnd(_)) => {
                return require_size(incoming.length() == size, incoming.length(), size);
            }
            Some(install_request::Request::TransferRequest(_)) => {
                return Err(Refusal::invalid("`transfer_request` may come once").into());
            }
            None => {
                let text = "the stream ended before `transfer_end`: nothing of the image is kept";
                return Err(Refusal::invalid(text).into());
            }
        }
    }
}

/// Waits for the installing program, and sends progress meanwhile, so that the client does not give up.
async fn wait_for_install(
    mut installing: JoinHandle<Result<(), PackageError>>,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            ended = &mut installing => {
                return Ok(ended.map_err(|error| Refusal::internal(error.to_string()))??);
            }
            () = sleep(PROGRESS_TIME) => progress.send_progress(progress.octets),
        }
    }
}

impl Progress<'_> {
    fn send_if_due(&mut self, octets: u64) {
        if octets - self.octets >= PROGRESS_OCTETS || self.at.elapsed() >= PROGRESS_TIME {
            self.send_progress(octets);
        }
    }

    /// Sends progress unless the queue is full: a client may read only after it has sent everything.
    fn send_progress(&mut self, octets: u64) {
        (self.octets, self.at) = (octets, Instant::now());
        let progress = TransferProgress { bytes_received: octets };
        let _told_later = self
            .answers
            .try_send(Ok(answer(install_response::Response::TransferProgress(progress))));
    }
}

/// Checks the announced size against the limit and the free space; zero means unknown.
fn require_room(incoming: &PackageUpload, size: u64) -> Result<(), Failure> {
    if size > MAX_IMAGE {
        let detail = format!("package_size {size} is more than the {MAX_IMAGE} bytes of an image");
        return Err(Failure::Reported(Type::TooLarge, detail));
    }
    let room = incoming.room()?;
    if size > room {
        let detail = format!("package_size {size} is more than the {room} free bytes");
        return Err(Failure::Reported(Type::TooLarge, detail));
    }
    Ok(())
}

fn require_size(fits: bool, length: u64, size: u64) -> Result<(), Failure> {
    if fits || size == 0 {
        return Ok(());
    }
    let detail = format!("the image has {length} bytes, but package_size is {size}");
    Err(Failure::Reported(Type::IntegrityFail, detail))
}

async fn next(
    requests: &mut Streaming<InstallRequest>,
) -> Result<Option<install_request::Request>, Failure> {
    let late =
        |_| Refusal::late(format!("the client was silent for {SILENCE:?}: the image is discarded"));
    let message = timeout(SILENCE, requests.message()).await.map_err(late)?;
    match message.map_err(Failure::Status)? {
        None => Ok(None),
        Some(InstallRequest { request: Some(part) }) => Ok(Some(part)),
        Some(InstallRequest { request: None }) => {
            let text =
                "a message has none of `transfer_request`, `transfer_content`, `transfer_end`";
            Err(Refusal::invalid(text).into())
        }
    }
}

fn answer(response: install_response::Response) -> InstallResponse {
    InstallResponse { response: Some(response) }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Status(refusal.into())
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Self {
        let text = ErrorChain(&error).to_string();
        let kind = match &error {
            PackageError::Slot(SlotError::NoProgram) => return Refusal::precondition(text).into(),
            PackageError::Busy => Type::InstallInProgress,
            PackageError::TooLong(_) | PackageError::Image(ImageError::TooLong(_)) => {
                Type::TooLarge
            }
            PackageError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Type::TooLarge
            }
            PackageError::Slot(SlotError::Flawed { flaw, .. }) => match flaw {
                Flaw::Incompatible => Type::Incompatible,
                Flaw::NoImage => Type::ParseFail,
                Flaw::Broken => Type::IntegrityFail,
                Flaw::TooLarge => Type::TooLarge,
            },
            PackageError::Slot(_) | PackageError::NotThere(_) => Type::InstallRunPackage,
            _ => Type::Unspecified,
        };
        Self::Reported(kind, text)
    }
}
