//! Requests whose clients have gone: not begun if they are queued, ended early if they are being examined, carried out
//! if they are recorded.

use holdfast_config::CancelToken;

/// Cancels a request when the future that awaits its answer is dropped, which happens when the client disconnects.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(pub(crate) CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
