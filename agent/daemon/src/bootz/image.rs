//! Fetches an image, and hands it to the command that knows how to install it once its digest is right.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use holdfast_bootz::{client::Installed, image::Image};
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::{fs::File, io::AsyncWriteExt, net::TcpStream, process::Command};
use tokio_util::task::AbortOnDropHandle;

/// What the command says when the image runs after a reboot; 0 says that it runs already.
const EXIT_AT_REBOOT: i32 = 100;
/// The port of a URL that names none.
const HTTP: u16 = 80;
/// The image while it is fetched and installed, in the folder of the bootstrap.
const FILE: &str = "image";

/// Why an image is not installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageError {
    #[error("`{0}` is not fetched: only http:// is, since the digest says what is right")]
    Url(String),
    #[error("cannot connect to `{url}`")]
    Connect { url: String, source: io::Error },
    #[error("cannot fetch `{url}`")]
    Fetch { url: String, source: hyper::Error },
    #[error("`{url}` is answered with {status}")]
    Status { url: String, status: StatusCode },
    #[error("cannot write the image to `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the octets of `{0}` have another SHA-256 digest than they should")]
    Digest(String),
    #[error("cannot run `{}`", command.display())]
    Run { command: PathBuf, source: io::Error },
    #[error("`{}` ended with {status}", command.display())]
    Failed { command: PathBuf, status: std::process::ExitStatus },
}

/// Runs `COMMAND FILE VERSION`.
pub(super) async fn install(
    image: &Image,
    command: &Path,
    folder: &Path,
) -> Result<Installed, ImageError> {
    let file = folder.join(FILE);
    let installed = match fetch(image, &file).await {
        Ok(()) => run(image, command, &file).await,
        Err(error) => Err(error),
    };
    let _was_never_made = tokio::fs::remove_file(&file).await;
    installed
}

async fn fetch(image: &Image, path: &Path) -> Result<(), ImageError> {
    let url = || image.url.clone();
    let uri: Uri = image.url.parse().map_err(|_| ImageError::Url(url()))?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http"));
    let host = host.ok_or_else(|| ImageError::Url(url()))?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, uri.port_u16().unwrap_or(HTTP))).await;
    let stream = stream.map_err(|source| ImageError::Connect { url: url(), source })?;
    let failed = |source| ImageError::Fetch { url: url(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(async move {
        let _told_by_the_body = connection.await;
    }));
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(|_| ImageError::Url(url()))?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    if answer.status() != StatusCode::OK {
        return Err(ImageError::Status { url: url(), status: answer.status() });
    }
    let mut body = answer.into_body();
    let written = |source| ImageError::Write { path: path.to_owned(), source };
    let mut file = File::create(path).await.map_err(written)?;
    let mut digest = Context::new(&SHA256);
    while let Some(frame) = body.frame().await {
        let Ok(octets) = frame.map_err(failed)?.into_data() else { continue };
        digest.update(&octets);
        file.write_all(&octets).await.map_err(written)?;
    }
    file.sync_all().await.map_err(written)?;
    match digest.finish().as_ref() == image.digest {
        true => Ok(()),
        false => Err(ImageError::Digest(url())),
    }
}

async fn run(image: &Image, command: &Path, file: &Path) -> Result<Installed, ImageError> {
    let ran = Command::new(command)
        .arg(file)
        .arg(&image.version)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await;
    let status = ran.map_err(|source| ImageError::Run { command: command.into(), source })?;
    match status.code() {
        Some(0) => Ok(Installed::Running),
        Some(EXIT_AT_REBOOT) => Ok(Installed::AtReboot),
        _ => Err(ImageError::Failed { command: command.into(), status }),
    }
}
