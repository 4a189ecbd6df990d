//! gnoi.file: files of clients, in one folder of the box.

use std::fs;
use std::io::{self, Read as _};
use std::time::Duration;

use aws_lc_rs::digest;
use holdfast_base::{Caller, ErrorChain};
use holdfast_proto::gnoi::file::file_server::File;
use holdfast_proto::gnoi::file::{
    GetRequest, GetResponse, PutRequest, PutResponse, RemoveRequest, RemoveResponse, StatInfo,
    StatRequest, StatResponse, TransferToRemoteRequest, TransferToRemoteResponse, get_response,
    put_request,
};
use holdfast_proto::gnoi::types::HashType;
use holdfast_proto::gnoi::types::hash_type::HashMethod;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::info;

use super::package;
use crate::files::{FileError, Files};
use crate::image::ImageError;
use crate::northbound::status::Refusal;

/// The most bytes of one message.
const MAX_CHUNK: usize = 64 << 10;
/// Messages that wait for the client to take them.
const CHUNKS_UNDER_WAY: usize = 4;
/// Time of silence after which a file is given up: no other client can send one meanwhile.
const SILENCE: Duration = Duration::from_secs(60);
/// Permissions of every file: read and write for the agent's user.
const PERMISSIONS: u32 = 600;
/// Permissions that a new file cannot have, in the digits of the protocol.
const UMASK: u32 = 177;

/// Serves gnoi.file.
#[derive(Debug)]
pub(in crate::northbound) struct FileService {
    files: Files,
}

impl FileService {
    pub(in crate::northbound) fn new(files: Files) -> Self {
        Self { files }
    }

    /// Runs a function on a thread that may wait for the disk.
    async fn with_files<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Files) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let files = self.files.clone();
        let done = spawn_blocking(move || act(&files)).await;
        done.map_err(|bug| Refusal::internal(bug.to_string()))?.map_err(Refusal::from)
    }
}

#[tonic::async_trait]
impl File for FileService {
    type GetStream = ReceiverStream<Result<GetResponse, Status>>;

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI File Get")?;
        let name = request.into_inner().remote_file;
        let file = self.with_files(move |files| files.open(&name)).await?;
        let (answer_tx, answers) = mpsc::channel(CHUNKS_UNDER_WAY);
        spawn_blocking(move || send(file, &answer_tx));
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    async fn put(
        &self,
        request: Request<Streaming<PutRequest>>,
    ) -> Result<Response<PutResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI File Put")?;
        let mut parts = request.into_inner();
        let Some(put_request::Request::Open(details)) = next(&mut parts).await? else {
            return Err(Refusal::invalid("the first message must be `open`").into());
        };
        let name = details.remote_file;
        let begun = name.clone();
        let mut upload = self.with_files(move |files| files.begin(&begun)).await?;
        let hash = loop {
            match next(&mut parts).await? {
                Some(put_request::Request::Contents(bytes)) if bytes.len() > MAX_CHUNK => {
                    let length = bytes.len();
                    return Err(Refusal::invalid(format!(
                        "`contents` has {length} bytes, and may have {MAX_CHUNK} at most"
                    ))
                    .into());
                }
                Some(put_request::Request::Contents(bytes)) => {
                    upload.write(&bytes).map_err(Refusal::from)?;
                }
                Some(put_request::Request::Hash(hash)) => break hash,
                Some(put_request::Request::Open(_)) => {
                    return Err(Refusal::invalid("`open` may come once").into());
                }
                None => {
                    let text = "the stream ended before `hash`: nothing of the file is kept";
                    return Err(Refusal::invalid(text).into());
                }
            }
        };
        upload.finish(&package::digest(hash)?).await.map_err(Refusal::from)?;
        info!(caller = %caller.name, file = name, "a file is complete");
        Ok(Response::new(PutResponse {}))
    }

    async fn stat(&self, request: Request<StatRequest>) -> Result<Response<StatResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI File Stat")?;
        let path = request.into_inner().path;
        let found = self.with_files(move |files| files.stat(&path)).await?;
        let stats = found.into_iter().map(|stat| StatInfo {
            path: stat.path.display().to_string(),
            last_modified: stat.modified_ns,
            permissions: PERMISSIONS,
            size: stat.size,
            umask: UMASK,
        });
        Ok(Response::new(StatResponse { stats: stats.collect() }))
    }

    async fn remove(
        &self,
        request: Request<RemoveRequest>,
    ) -> Result<Response<RemoveResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI File Remove")?;
        let name = request.into_inner().remote_file;
        let removed = name.clone();
        self.with_files(move |files| files.remove(&removed)).await?;
        info!(caller = %caller.name, file = name, "a file is removed");
        Ok(Response::new(RemoveResponse {}))
    }

    async fn transfer_to_remote(
        &self,
        request: Request<TransferToRemoteRequest>,
    ) -> Result<Response<TransferToRemoteResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI File TransferToRemote")?;
        let text = "the agent sends files to clients alone: use Get";
        Err(Refusal::unimplemented(text).into())
    }
}

/// Sends a file and its digest, for as long as the client takes them.
fn send(mut file: fs::File, answers: &mpsc::Sender<Result<GetResponse, Status>>) {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; MAX_CHUNK];
    let answer = |response| Ok(GetResponse { response: Some(response) });
    loop {
        let response = match read(&mut file, &mut buffer) {
            Err(source) => Err(Refusal::internal(format!("cannot read the file: {source}")).into()),
            Ok(0) => {
                let hash = Bytes::copy_from_slice(context.clone().finish().as_ref());
                let method = HashMethod::Sha256.into();
                answer(get_response::Response::Hash(HashType { method, hash }))
            }
            Ok(length) => {
                context.update(&buffer[..length]);
                answer(get_response::Response::Contents(Bytes::copy_from_slice(&buffer[..length])))
            }
        };
        let goes_on = matches!(
            &response,
            Ok(GetResponse { response: Some(get_response::Response::Contents(_)) })
        );
        if answers.blocking_send(response).is_err() || !goes_on {
            return;
        }
    }
}

fn read(file: &mut fs::File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

async fn next(
    requests: &mut Streaming<PutRequest>,
) -> Result<Option<put_request::Request>, Status> {
    let late =
        |_| Refusal::late(format!("the client was silent for {SILENCE:?}: the file is discarded"));
    match timeout(SILENCE, requests.message()).await.map_err(late)?? {
        None => Ok(None),
        Some(PutRequest { request: Some(part) }) => Ok(Some(part)),
        Some(PutRequest { request: None }) => {
            Err(Refusal::invalid("a message has none of `open`, `contents`, `hash`").into())
        }
    }
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let text = ErrorChain(&error).to_string();
        match error {
            FileError::Name { .. } | FileError::NotRegular(_) => Self::invalid(text),
            FileError::Image(ImageError::Digest { .. }) => Self::invalid(text),
            FileError::Missing(_) => Self::missing(text),
            FileError::Busy => Self::busy(text),
            FileError::TooLong(_) | FileError::Full(_) => Self::exhausted(text),
            FileError::Io { .. } | FileError::Folder(_) | FileError::Image(_) => {
                Self::internal(text)
            }
        }
    }
}
