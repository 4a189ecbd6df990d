//! Work that a reboot would cut off, by name.
//!
//! Code that begins such work takes a [`RebootInhibitor`] by [`RebootInhibitors::begin`] and holds it until the work is
//! done; a reboot that is not forced is refused while one is held. Some work may still be taken back as a whole: actions
//! of services, which cannot be, wait for its end.

use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;

/// Inhibitors that this agent holds; clones share the list.
#[derive(Clone, Debug, Default)]
pub struct RebootInhibitors(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    name: SmolStr,
    inhibits_actions: bool,
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
        self.enter(name.into(), false)
    }

    /// As [`RebootInhibitors::begin`], for work that actions of services wait for.
    pub fn begin_without_actions(&self, name: impl Into<SmolStr>) -> RebootInhibitor {
        self.enter(name.into(), true)
    }

    fn enter(&self, name: SmolStr, inhibits_actions: bool) -> RebootInhibitor {
        let number = self.with(|list| {
            list.next += 1;
            list.entries.push(Entry { number: list.next, name, inhibits_actions });
            list.next
        });
        RebootInhibitor { number, inhibitors: self.clone() }
    }

    /// Names of what is under way, the oldest first.
    pub fn names(&self) -> Vec<SmolStr> {
        self.with(|list| list.entries.iter().map(|it| it.name.clone()).collect())
    }

    /// Name of the oldest work that actions of services wait for.
    pub fn inhibitor_of_actions(&self) -> Option<SmolStr> {
        self.with(|list| {
            let inhibits = list.entries.iter().find(|it| it.inhibits_actions);
            inhibits.map(|it| it.name.clone())
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&mut List) -> T) -> T {
        ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for RebootInhibitor {
    fn drop(&mut self) {
        self.inhibitors.with(|list| list.entries.retain(|it| it.number != self.number));
    }
}
