//! Work that a reboot would cut off, by name.
//!
//! Code that begins such work takes a [`RebootInhibitor`] by [`RebootInhibitors::begin`] and holds it until the work is
//! done; a reboot that is not forced is refused while one is held.

use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;

/// Inhibitors that this agent holds; clones share the list.
#[derive(Clone, Debug, Default)]
pub struct RebootInhibitors(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    names: Vec<(u64, SmolStr)>,
}

/// A piece of work that inhibits reboots until this is dropped.
#[derive(Debug)]
#[must_use = "an inhibitor that is dropped has no effect"]
pub struct RebootInhibitor {
    number: u64,
    inhibitors: RebootInhibitors,
}

impl RebootInhibitors {
    /// Registers a piece of work; `name` completes the sentence "under way is ...".
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
