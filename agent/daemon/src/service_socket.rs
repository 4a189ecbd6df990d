//! The socket for handlers of services, on which nothing else is served.
//!
//! Every process of the box may connect: the kernel tells the user of the peer, and the outline of a type names the user who
//! may serve it. The AAA layer asks the authz policy and accounts for each call, as on the listener.

mod connections;

use std::fs::{self, Permissions};
use std::future::pending;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tower::Layer as _;

use self::connections::Connections;
use crate::aaa;
use crate::gnsi::Gnsi;
use crate::listeners::{ListenerKind, Listeners};
use crate::northbound;
use crate::server;
use crate::services::Handlers;

/// Mode of the socket: the kernel asks for write permission of whoever connects, and the user is judged later.
const MODE: u32 = 0o666;

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
        let service = aaa::Layer::of_socket(gnsi).layer(routes);
        server::serve(admitted, server::MAX_HANDLER_STREAMS, service, pending()).await;
    });
    ServiceSocket { path: path.into(), _task: AbortOnDropHandle::new(task) }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    Ok(listener)
}
