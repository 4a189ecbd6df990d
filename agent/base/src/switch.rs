//! The operator's switch for gNSI.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// Position of the switch, evaluated at each decision; clones share it. On until the core is known.
#[derive(Clone, Default)]
pub struct Switch(Arc<OnceLock<Box<dyn Fn() -> bool + Send + Sync>>>);

impl Switch {
    pub fn is_on(&self) -> bool {
        self.0.get().is_none_or(|is_on| is_on())
    }

    /// Sets the source of the position. Only the first call has an effect, since there is one core.
    pub fn set_source(&self, is_on: impl Fn() -> bool + Send + Sync + 'static) {
        let _there_already = self.0.set(Box::new(is_on));
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "on" } else { "off" })
    }
}
