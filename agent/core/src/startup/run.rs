//! The thread of the core.

use std::{io, thread};

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::task::CoreTask;

/// Runs the loop on a thread of its own, so that no other task delays an event. In a runtime of one thread, as tests
/// with a clock of their own have it, the loop is a task of that runtime. The receiver resolves when the loop has
/// ended: without a value after a panic.
pub(super) fn start(task: CoreTask) -> io::Result<oneshot::Receiver<()>> {
    let (ended_tx, ended_rx) = oneshot::channel();
    let run = async move {
        task.run().await;
        // The owner may have gone.
        let _ = ended_tx.send(());
    };
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => drop(tokio::spawn(run)),
        _ => start_thread(run)?,
    }
    Ok(ended_rx)
}

fn start_thread(run: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    // A runtime for timers and blocking work that does not end before the core.
    let runtime = Builder::new_current_thread().enable_time().build()?;
    thread::Builder::new().name("core".to_owned()).spawn(move || runtime.block_on(run))?;
    Ok(())
}
