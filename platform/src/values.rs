//! Kernel objects as typed structs, each of them in the module of its kind below [`kinds`](crate::kinds).
//!
//! Intended and observed values have the same type. Attributes that a configuration may leave open are `Option`s.
//! Facts that only the kernel knows (index, operational state, ownership mark) are in the `facts` of an observed
//! value and absent from an intended one.

pub use crate::kinds::address::{
    Address, AddressFacts, AddressOrigin, AddressStatus, ConnectedPrefix,
};
pub use crate::kinds::bond_members::{Aggregator, BondMembers, LacpMember};
pub use crate::kinds::credential::{
    Account, CredentialFile, GlomeLogin, Password, Program, SshServer,
};
pub use crate::kinds::ethernet::{Duplex, Ethernet, EthernetAttribute};
pub use crate::kinds::lacp::{Lacp, LacpSystem};
pub use crate::kinds::link::{
    BOND, BRIDGE, DUMMY, IPVLAN, LINK_ROWS, Link, LinkAdmin, LinkFacts, LinkKind, LinkMaster,
    LinkMtu, LinkRow, LinkUp, MACVLAN, MadeLink, OperState, Param, Port, VETH, VLAN, VXLAN,
    carrier_losses,
};
pub use crate::kinds::link_setting::{LinkSetting, LinkSysctl, WantedSetting, setting_paths};
pub use crate::kinds::neighbor::{Neighbor, NeighborFacts, NeighborState};
pub use crate::kinds::route::{
    Destination, ForeignRoute, Hop, IPV4_METRIC, IPV6_METRIC, KernelRoute, NextHop, NextHopTarget,
    RouteSource, RouteTarget,
};
pub use crate::kinds::system::{Content, Hostname, TextFile};
pub use crate::kinds::types::{
    Family, MAIN_TABLE, MacAddr, MacAddrError, OUR_ALTNAME_PREFIX, OUR_PROTOCOL, our_altname,
};
