//! How many connections there may be, in all and from one source.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::auth::source_of;

/// Connections at one time. Each costs some 100 KiB with its HTTP/2 windows.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// Connections at one time from one source, so that one peer cannot keep the others out.
pub(super) const MAX_CONNECTIONS_PER_SOURCE: usize = 256;

/// Counts the open connections.
#[derive(Debug, Default)]
pub(super) struct Limits {
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One counted connection; dropping it uncounts it.
#[derive(Debug)]
pub(super) struct Permit {
    limits: Arc<Limits>,
    source: IpAddr,
}

impl Limits {
    /// Nothing when the box, or this source, has as many as it may.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let source = source_of(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = open.values().sum();
        let from_source = open.get(&source).copied().unwrap_or(0);
        if total >= MAX_CONNECTIONS || from_source >= MAX_CONNECTIONS_PER_SOURCE {
            return None;
        }
        open.insert(source, from_source + 1);
        Some(Permit { limits: self.clone(), source })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_cannot_take_everything() {
        let limits = Arc::new(Limits::default());
        let address = |number: usize| IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
        let mut held: Vec<_> =
            (0..MAX_CONNECTIONS_PER_SOURCE).map(|_| limits.admit(address(1)).unwrap()).collect();
        assert!(limits.admit(address(1)).is_none());
        held.pop();
        held.push(limits.admit(address(1)).unwrap());
        for source in 2..=MAX_CONNECTIONS / MAX_CONNECTIONS_PER_SOURCE {
            held.extend(
                (0..MAX_CONNECTIONS_PER_SOURCE).map(|_| limits.admit(address(source)).unwrap()),
            );
        }
        assert!(limits.admit(address(200)).is_none());
        drop(held);
        assert!(limits.open.lock().unwrap().is_empty());
    }
}
