//! The marking of packets that a subscriber asks for.

use std::fmt;
use std::io;
use std::sync::Arc;

use tracing::warn;

/// Sets the differentiated services code point of one connection. The listener puts one into the
/// extensions of each request; without it a wish for a marking has no effect.
///
/// All RPCs of a connection share its packets, so the last wish holds.
#[derive(Clone)]
pub struct Dscp(Arc<dyn Fn(u8) -> io::Result<()> + Send + Sync>);

impl Dscp {
    pub fn new(mark: impl Fn(u8) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(mark))
    }

    pub(super) fn mark(&self, dscp: u8) {
        if let Err(error) = (self.0)(dscp) {
            warn!(%error, dscp, "cannot mark the packets of a subscription");
        }
    }
}

impl fmt::Debug for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dscp")
    }
}
