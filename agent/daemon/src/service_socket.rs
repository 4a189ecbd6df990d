//! The socket for handlers of services, on which nothing else is served.
//!
//! Every process of the box may connect: the kernel tells the user of the peer, and the outline of a type names the user who
//! may serve it. The AAA layer asks the authz policy and accounts for each call, as on the listener.

mod calls;
mod connections;

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
use crate::socket_for_all::bind_for_all;

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
        let listener = entry.open(|| bind_for_all(&wanted)).await;
        let connections = Connections::default();
        // A connection that is not admitted is closed.
        let admitted = UnixListenerStream::new(listener)
            .filter_map(move |stream| stream.map(|stream| connections.admit(stream)).transpose());
        let routes = northbound::handler_routes(handlers).prepare();
        let judged = aaa::Layer::of_socket(gnsi).layer(routes);
        let service = CountCalls::new(judged, ANSWER_TIME);
        server::serve(admitted, server::MAX_HANDLER_STREAMS, service, pending()).await;
    });
    ServiceSocket { path: path.into(), _task: AbortOnDropHandle::new(task) }
}
