//! Numbers of the kinds of values. Among operations in no other order, lower numbers run first.

use holdfast_scheduler::KindId;

/// Name in the UTS namespace.
pub const HOSTNAME: KindId = KindId(2);
/// Text of a file below `--root`.
pub const TEXT_FILE: KindId = KindId(3);
/// A program that is installed.
pub const PROGRAM: KindId = KindId(6);
/// An account of the box.
pub const ACCOUNT: KindId = KindId(7);
/// Presence of a link in the kernel.
pub const PORT: KindId = KindId(10);
/// A link.
pub const LINK: KindId = KindId(11);
/// Property: a link is up.
pub const LINK_UP: KindId = KindId(12);
/// Membership of a link in a bridge.
pub const LINK_MASTER: KindId = KindId(13);
/// Forwarding of one family on a link.
pub const FORWARDING: KindId = KindId(14);
/// Speed and duplex of a link.
pub const ETHERNET: KindId = KindId(15);
/// Speed and duplex that a link has to have.
pub const ETHERNET_CONFIG: KindId = KindId(16);
/// The MTU of a link that other links limit.
pub const LINK_MTU: KindId = KindId(17);
/// Whether one family leaves out next hops over a link without a carrier.
pub const IGNORE_LINKDOWN: KindId = KindId(18);
/// An address of a link.
pub const ADDRESS: KindId = KindId(20);
/// A prefix is on-link by an address.
pub const CONNECTED: KindId = KindId(21);
/// A neighbour of a link.
pub const NEIGHBOR: KindId = KindId(22);
/// A route of the kernel.
pub const ROUTE: KindId = KindId(33);
/// A file in the folder of credentials.
pub const CREDENTIAL_FILE: KindId = KindId(40);
/// Configuration of the SSH server.
pub const SSH_SERVER: KindId = KindId(41);
/// Console login by challenge and response.
pub const GLOME_LOGIN: KindId = KindId(42);
/// The password of an account.
pub const PASSWORD: KindId = KindId(43);
