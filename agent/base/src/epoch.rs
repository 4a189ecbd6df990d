//! The moments that make rights be asked for again: changes, and the expiry of a certificate.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::UnixTime;
use tokio::sync::watch;

/// Counter of the changes that may give or take rights; clones share it.
#[derive(Clone, Debug)]
pub struct AccessEpoch(Arc<watch::Sender<u64>>);

impl Default for AccessEpoch {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl AccessEpoch {
    /// Counts a change. Call it after the change: a reader that takes the number first and then the state never
    /// keeps an old answer under a new number.
    pub fn advance(&self) {
        self.0.send_modify(|number| *number += 1);
    }

    pub fn number(&self) -> u64 {
        *self.0.borrow()
    }

    /// Notifies of each advance after this call.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Time of day by which certificates expire; tests set their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> UnixTime + Send + Sync>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(UnixTime::now))
    }
}

impl Clock {
    /// A clock that tests set.
    pub fn of(now: impl Fn() -> UnixTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> UnixTime {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock(..)")
    }
}
