//! Work that takes long, in tasks that other tasks share a thread with.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs long work, if there is `much` of it, on a thread that no other task waits for: the runtime gives those
/// another thread. A runtime of one thread, as tests have it, has no other place.
pub fn beside_others<R>(much: bool, act: impl FnOnce() -> R) -> R {
    match (much, Handle::current().runtime_flavor()) {
        (true, RuntimeFlavor::MultiThread) => tokio::task::block_in_place(act),
        _ => act(),
    }
}
