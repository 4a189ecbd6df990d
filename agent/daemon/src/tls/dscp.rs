//! The marking of packets that a subscriber asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Marks the absence of a wish. Code points have six bits, so none has this value.
const NOT_REQUESTED: u8 = u8::MAX;

/// The differentiated services code point wished for one connection. The connection looks here
/// before it writes, and marks its socket.
///
/// All RPCs of a connection share its packets, so the last wish holds.
#[derive(Clone, Debug)]
pub struct Dscp(Arc<AtomicU8>);

impl Default for Dscp {
    fn default() -> Self {
        Self(Arc::new(AtomicU8::new(NOT_REQUESTED)))
    }
}

impl Dscp {
    /// The code point; `None` while no RPC of the connection has asked for one.
    pub fn requested(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|dscp| *dscp != NOT_REQUESTED)
    }

    pub(crate) fn request(&self, dscp: u8) {
        self.0.store(dscp, Ordering::Relaxed);
    }
}
