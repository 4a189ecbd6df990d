//! Open connections, and which of them administrators have.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Connections that are known at a time: twice as many as the listeners admit, since calls may outlive theirs for a moment.
const MAX_CONNECTIONS: usize = 2048;

/// Open connections by the addresses of the box that they came to. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(Arc<Mutex<Vec<Connected>>>);

/// One connection. It is over when nobody has its flag any more.
#[derive(Debug)]
struct Connected {
    local: IpAddr,
    flag: Weak<AtomicBool>,
}

/// Flag of a connection: true once an administrator was identified on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdminFlag(Arc<AtomicBool>);

impl AdminFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl OpenConnections {
    /// Takes in a connection to an address of the box. It stays open for as long as somebody has the flag.
    pub(crate) fn open(&self, local: IpAddr) -> AdminFlag {
        let flag = AdminFlag::default();
        let mut open = self.lock();
        open.retain(|connection| connection.flag.strong_count() > 0);
        if open.len() < MAX_CONNECTIONS {
            let local = local.to_canonical();
            open.push(Connected { local, flag: Arc::downgrade(&flag.0) });
        }
        flag
    }

    /// Addresses of the box to which administrators are connected.
    pub(crate) fn of_admins(&self) -> BTreeSet<IpAddr> {
        let is_admins = |connection: &&Connected| {
            connection.flag.upgrade().is_some_and(|flag| flag.load(Ordering::Relaxed))
        };
        self.lock().iter().filter(is_admins).map(|connection| connection.local).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_an_administrator_counts_while_it_is_open() {
        let connections = OpenConnections::default();
        let admin = connections.open("::ffff:192.0.2.1".parse().unwrap());
        let _other = connections.open("192.0.2.2".parse().unwrap());
        assert!(connections.of_admins().is_empty());
        admin.set();
        let both_ends = admin.clone();
        drop(admin);
        assert_eq!(connections.of_admins(), BTreeSet::from(["192.0.2.1".parse().unwrap()]));
        drop(both_ends);
        assert!(connections.of_admins().is_empty());
    }

    #[test]
    fn the_list_is_bounded_and_forgets_what_is_closed() {
        let connections = OpenConnections::default();
        let open: Vec<AdminFlag> = (0..MAX_CONNECTIONS + 2)
            .map(|_| connections.open("192.0.2.1".parse().unwrap()))
            .collect();
        assert_eq!(connections.lock().len(), MAX_CONNECTIONS);
        drop(open);
        let _one = connections.open("192.0.2.1".parse().unwrap());
        assert_eq!(connections.lock().len(), 1);
    }
}
