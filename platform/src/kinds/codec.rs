//! Encoding of operations as transport requests. Pure.

use holdfast_scheduler::{Action, Key, Operation, OperationError, SharedValue};
use holdfast_security::credentialz::Digest;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use smallvec::SmallVec;
use smol_str::SmolStr;

use super::system::Content;

/// One operation on a value of type `V`.
#[derive(Debug)]
pub enum Op<'a, V> {
    /// Make it.
    Create(&'a V),
    /// Take over an existing object that is not ours.
    Adopt {
        /// As it was observed.
        old: &'a V,
        /// As it is to be.
        new: &'a V,
    },
    /// Change what differs between the two.
    Update {
        /// As it was applied.
        old: &'a V,
        /// As it is to be.
        new: &'a V,
    },
    /// Delete the object.
    Delete(&'a V),
    /// Give up an object that existed before us.
    Release {
        /// As it was applied.
        old: &'a V,
        /// As it was before us.
        restore: &'a V,
    },
}

/// One request to a transport.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A message for the managed namespace's rtnetlink socket.
    Netlink {
        /// The message.
        message: RouteNetlinkMessage,
        /// `NLM_F_*` flags, `NLM_F_REQUEST` and `NLM_F_ACK` among them.
        flags: u16,
        /// Errnos that count as success, such as `ENOENT` on a deletion.
        forgiven: &'static [i32],
    },
    /// Write `value` to the file at this path below `/proc/sys` of the managed namespace.
    Sysctl {
        /// The path.
        path: String,
        /// Text to write.
        value: String,
    },
    /// Replace the content of a file below `--root`. [`Content::Absent`] removes our part of it.
    File {
        /// Path without a leading slash.
        path: SmolStr,
        /// Content to write.
        content: Content,
    },
    /// Write or remove a file in the folder of credentials.
    CredentialFile {
        /// Path without a leading slash.
        path: SmolStr,
        /// Digest of the new content, and permissions; `None` removes the file.
        content: Option<(Digest, u32)>,
    },
    /// Test our part of the SSH server's configuration, install it and reload the server. `None` removes our part.
    SshServer(Option<String>),
    /// Set a hash in the shadow file.
    Password {
        /// Name of the account.
        account: SmolStr,
        /// Digest of the hash.
        digest: Digest,
        /// Digest of the present hash, to be stored first.
        keep: Option<Digest>,
        /// Digest of a stored hash that is no longer needed afterwards.
        forget: Option<Digest>,
    },
    /// Set the name in the UTS namespace.
    Hostname(SmolStr),
}

/// Requests of one operation, in order. Empty when there is nothing to change.
///
/// They are all or nothing: when one after the first of a *creation* is refused, the transport
/// sends what [`Op::Delete`] encodes to, and reports the operation as failed.
pub type Requests = SmallVec<[Request; 1]>;

impl Request {
    /// `NLM_F_CREATE|NLM_F_EXCL`: fails when the object is there.
    pub fn create(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `NLM_F_CREATE|NLM_F_REPLACE`: creates the object, or replaces it.
    pub fn replace(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// No creation flags: the message type alone says what to do.
    pub fn change(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, 0)
    }

    /// Puts back an object of another program, in the place of ours if that is there. It succeeds also when the object is
    /// there again, or when the link or the prefix that it needs is gone: it would have gone with them.
    pub fn restore(message: RouteNetlinkMessage, in_place: bool) -> Self {
        let how = if in_place { NLM_F_REPLACE } else { NLM_F_EXCL };
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | how;
        Self::Netlink { message, flags, forgiven: NOT_RESTORED }
    }

    /// A deletion, which succeeds also when the object is gone already.
    pub fn delete(message: RouteNetlinkMessage) -> Self {
        Self::Netlink { message, flags: NLM_F_REQUEST | NLM_F_ACK, forgiven: GONE }
    }

    fn netlink(message: RouteNetlinkMessage, flags: u16) -> Self {
        Self::Netlink { message, flags: NLM_F_REQUEST | NLM_F_ACK | flags, forgiven: &[] }
    }
}

/// Errnos of the kernel when the object of a deletion, or its link, is gone.
pub const GONE: &[i32] =
    &[libc_errno::ENOENT, libc_errno::ESRCH, libc_errno::ENODEV, libc_errno::EADDRNOTAVAIL];

/// Errnos of the kernel when an object of another program is there again, or cannot be put back.
const NOT_RESTORED: &[i32] = &[
    libc_errno::EEXIST,
    libc_errno::ENODEV,
    libc_errno::ENETDOWN,
    libc_errno::ENETUNREACH,
    libc_errno::EHOSTUNREACH,
];

mod libc_errno {
    use nix::errno::Errno;

    pub(super) const EEXIST: i32 = Errno::EEXIST as i32;
    pub(super) const EHOSTUNREACH: i32 = Errno::EHOSTUNREACH as i32;
    pub(super) const ENETDOWN: i32 = Errno::ENETDOWN as i32;
    pub(super) const ENETUNREACH: i32 = Errno::ENETUNREACH as i32;
    pub(super) const ENOENT: i32 = Errno::ENOENT as i32;
    pub(super) const ESRCH: i32 = Errno::ESRCH as i32;
    pub(super) const ENODEV: i32 = Errno::ENODEV as i32;
    pub(super) const EADDRNOTAVAIL: i32 = Errno::EADDRNOTAVAIL as i32;
}

/// Reason why an operation cannot be encoded.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The operation names a link that does not exist in the namespace.
    #[error("link `{0}` does not exist")]
    LinkNotFound(SmolStr),
    /// A link of this name exists, is not ours, and cannot be changed into the requested one.
    #[error(
        "link `{0}` exists already: others made it, and it cannot be changed into the configured one"
    )]
    OthersLink(SmolStr),
    /// A route of another program has the same destination and metric, and does not lead the same way, or belongs to a
    /// program that looks after it.
    #[error(
        "a route of another program has the same prefix and metric: `{0}`; remove that route, or configure another metric"
    )]
    OthersRoute(String),
    /// The stored message of a route cannot be read.
    #[error("cannot put back the route `{0}` of another program: its stored form cannot be read")]
    UnreadableRoute(String),
    /// No transport carries out operations on this kind of key.
    #[error("no codec for {0}")]
    NoCodec(String),
}

impl EncodeError {
    /// Error number of the kernel with the same meaning.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::LinkNotFound(_) => Some(libc_errno::ENODEV),
            Self::OthersLink(_) | Self::OthersRoute(_) => Some(libc_errno::EEXIST),
            Self::UnreadableRoute(_) | Self::NoCodec(_) => None,
        }
    }
}

/// True for an errno that says that an object of another program is in the place of ours.
pub fn is_in_the_way(errno: i32) -> bool {
    errno == libc_errno::EEXIST
}

impl From<EncodeError> for OperationError {
    fn from(error: EncodeError) -> Self {
        Self { errno: error.errno(), message: error.to_string(), transient: false }
    }
}

/// A key with its observed value; `None` when the object does not exist.
pub type Observation = (Key, Option<SharedValue>);

impl<V> Clone for Op<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Op<'_, V> {}

impl<'a, V: 'static> Op<'a, V> {
    /// The engine's operation with typed values; `None` when a value is missing or has another type.
    pub fn of(operation: &'a Operation) -> Option<Self> {
        fn typed<V: 'static>(value: Option<&SharedValue>) -> Option<&V> {
            value?.as_any().downcast_ref()
        }
        let old = typed(operation.old.as_ref());
        let new = typed(operation.new.as_ref());
        Some(match operation.action {
            Action::Create => Self::Create(new?),
            Action::Adopt => Self::Adopt { old: old?, new: new? },
            Action::Update => Self::Update { old: old?, new: new? },
            Action::Delete => Self::Delete(old?),
            Action::Release => Self::Release { old: old?, restore: new? },
        })
    }
}
