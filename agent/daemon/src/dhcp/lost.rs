//! Leases that have ended while no server has granted another one.

use std::collections::BTreeMap;

use ipnet::IpNet;
use smol_str::SmolStr;
use tokio::sync::watch;

/// Address families of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseFamily {
    Ipv4,
    Ipv6,
}

holdfast_config::enum_names!(LeaseFamily {
    Ipv4 = "ipv4",
    Ipv6 = "ipv6",
});

impl LeaseFamily {
    pub(super) fn of(address: &IpNet) -> Self {
        match address {
            IpNet::V4(_) => Self::Ipv4,
            IpNet::V6(_) => Self::Ipv6,
        }
    }
}

/// The address that was leased last, by port and family.
pub type LostAddresses = BTreeMap<(SmolStr, LeaseFamily), IpNet>;

/// The leases that are lost, for those who tell of it; clones share them.
#[derive(Clone, Debug, Default)]
pub struct LostLeases(watch::Sender<LostAddresses>);

impl LostLeases {
    pub fn follow(&self) -> watch::Receiver<LostAddresses> {
        self.0.subscribe()
    }

    pub(super) fn note_end(&self, port: &SmolStr, address: IpNet) {
        let family = LeaseFamily::of(&address);
        self.0.send_modify(|lost| {
            lost.insert((port.clone(), family), address);
        });
    }

    pub(super) fn note_grant(&self, port: &SmolStr, address: &IpNet) {
        let place = (port.clone(), LeaseFamily::of(address));
        self.0.send_if_modified(|lost| lost.remove(&place).is_some());
    }
}
