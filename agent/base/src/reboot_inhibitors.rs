//! Work that a reboot would cut off, by name.
//!
//! Whatever begins such work says so with [`RebootInhibitors::begin`] and holds the [`RebootInhibitor`] until it is done; a reboot
//! that is not forced is refused while there is one.

use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;

/// The undertakings of this agent; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RebootInhibitors(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    names: Vec<(u64, SmolStr)>,
}

/// One undertaking; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "an undertaking that is dropped has ended"]
pub struct RebootInhibitor {
    number: u64,
    inhibitors: RebootInhibitors,
}

impl RebootInhibitors {
    /// Begins one; `name` completes the sentence "under way is ...".
    pub fn begin(&self, name: impl Into<SmolStr>) -> RebootInhibitor {
        let number = self.with(|list| {
            list.next += 1;
            list.names.push((list.next, name.into()));
            list.next
        });
        RebootInhibitor { number, inhibitors: self.clone() }
    }

    /// Names of what is under way, the oldest first.
    pub fn names(&self) -> Vec<SmolStr> {
        self.with(|list| list.names.iter().map(|(_, name)| name.clone()).collect())
    }

    fn with<T>(&self, ask: impl FnOnce(&mut List) -> T) -> T {
        ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RebootInhibitor {
    fn drop(&mut self) {
        self.inhibitors.with(|list| list.names.retain(|(number, _)| *number != self.number));
    }
}
