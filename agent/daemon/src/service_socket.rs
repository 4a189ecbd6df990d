//! The socket for handlers of services, on which nothing else is served.
//!
//! Every process of the box may connect: the kernel tells the user of the peer, and the outline of a type names the user who
//! may serve it. The AAA layer asks the authz policy and accounts for each call, as on the listener.

mod calls;
mod connections;

use std::fs::{self, File, OpenOptions, Permissions};
use std::future::pending;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::is_root_or_own;
use nix::fcntl::OFlag;

use tokio::net::UnixListener;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tower::Layer as _;

use self::calls::CountCalls;
use self::connections::Connections;
use crate::aaa;
use crate::gnsi::Gnsi;
use crate::listeners::{ListenerKind, Listeners};
use crate::northbound;
use crate::server;
use crate::services::Handlers;

/// Mode of the socket: the kernel asks for write permission of whoever connects, and the user is judged later.
const MODE: u32 = 0o666;
/// Time for the request of a call to be complete and its answer to begin. A Read of ten thousand leaves takes two seconds.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The serving socket. Dropping it stops the task and removes the file.
#[derive(Debug)]
pub struct ServiceSocket {
    path: PathBuf,
    _task: AbortOnDropHandle<()>,
}

impl Drop for ServiceSocket {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

/// Serves handlers on `path`, as soon as the socket can be opened. A socket that is there is that of an agent that was
/// killed; any other file stays.
pub fn start(path: &Path, handlers: Handlers, gnsi: Gnsi, listeners: &Listeners) -> ServiceSocket {
    let entry = listeners.add(ListenerKind::Handlers, path.to_string_lossy());
    let wanted = path.to_owned();
    let task = tokio::spawn(async move {
        let listener = entry.open(|| bind(&wanted)).await;
        let connections = Connections::default();
        // One that is not admitted is closed.
        let admitted = UnixListenerStream::new(listener)
            .filter_map(move |stream| stream.map(|stream| connections.admit(stream)).transpose());
        let routes = northbound::handler_routes(handlers).prepare();
        let judged = aaa::Layer::of_socket(gnsi).layer(routes);
        let service = CountCalls::new(judged, ANSWER_TIME);
        server::serve(admitted, server::MAX_HANDLER_STREAMS, service, pending()).await;
    });
    ServiceSocket { path: path.into(), _task: AbortOnDropHandle::new(task) }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let bound = OpenOptions::new().read(true).custom_flags(AS_IT_IS.bits()).open(path)?;
    open_to_all(&bound, path)?;
    Ok(listener)
}

/// Opens what has a name, and neither what a link there leads to nor its content.
const AS_IT_IS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);

/// Lets everybody connect to the socket that was opened by its name. Where others may write the folder they can put something
/// else there before, which stays as it is.
fn open_to_all(bound: &File, path: &Path) -> io::Result<()> {
    let metadata = bound.metadata()?;
    if !metadata.file_type().is_socket() || !is_root_or_own(metadata.uid()) {
        let reason = format!("`{}` was exchanged for something else", path.display());
        return Err(io::Error::other(reason));
    }
    // The kernel changes the mode of what is open, whatever has its name by now.
    let opened = format!("/proc/self/fd/{}", bound.as_raw_fd());
    fs::set_permissions(opened, Permissions::from_mode(MODE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn the_mode_is_that_of_the_socket_alone() {
        let folder = TempDir::new().unwrap();
        let (path, secret) = (folder.path().join("socket"), folder.path().join("secret"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let _listener = bind(&path).unwrap();
        assert_eq!(mode(&path), MODE);

        // What others put in its place between the two calls stays as it is.
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let opened = |path: &Path| {
            OpenOptions::new().read(true).custom_flags(AS_IT_IS.bits()).open(path).unwrap()
        };
        fs::remove_file(&path).unwrap();
        symlink(&secret, &path).unwrap();
        for exchanged in [&path, &secret] {
            let refused = open_to_all(&opened(exchanged), &path).unwrap_err();
            assert!(refused.to_string().contains("was exchanged"), "{refused}");
        }
        assert_eq!(mode(&secret), 0o600);
    }
}
