//! Whether the operator has gNSI switched on.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Asked before each decision; clones are the same switch. On until there is a core that knows.
#[derive(Clone, Default)]
pub struct Switch(Arc<OnceLock<Box<dyn Fn() -> bool + Send + Sync>>>);

impl Switch {
    pub fn is_on(&self) -> bool {
        self.0.get().is_none_or(|is_on| is_on())
    }

    /// From now on this says so. The first one to be asked stays: a second core would be a second agent.
    pub(super) fn follow(&self, is_on: impl Fn() -> bool + Send + Sync + 'static) {
        let _there_already = self.0.set(Box::new(is_on));
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "on" } else { "off" })
    }
}
