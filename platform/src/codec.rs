//! How an operation becomes requests for its transport, and a message becomes facts. Pure.

use holdfast_scheduler::{Action, Key, Operation, SharedValue};
use holdfast_security::credentialz::Digest;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;
use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::links::LinkIndex;
use crate::values::Content;

/// What is to be done with one value.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a, V> {
    /// Make it.
    Create(&'a V),
    /// Take over an object that is there already and is not ours.
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
    /// Remove it.
    Delete(&'a V),
    /// Let go of an object that was there before us.
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
        /// Errors that mean the aim is reached already (a delete of what is gone).
        forgiven: &'static [i32],
    },
    /// Write `value` to the file at this path below `/proc/sys` of the managed namespace.
    Sysctl {
        /// The path.
        path: String,
        /// What is written.
        value: String,
    },
    /// Make the content of a file below `--root` so ([`Content::Absent`] removes what is ours).
    File {
        /// Path without a leading slash.
        path: SmolStr,
        /// What it shall hold.
        content: Content,
    },
    /// Make a file in the folder of credentials so, or remove it.
    CredentialFile {
        /// Path without a leading slash.
        path: SmolStr,
        /// The digest of what it shall hold, and its permissions.
        content: Option<(Digest, u32)>,
    },
    /// Try our part of the SSH server's configuration, put it in place, and have the server take it; without a text
    /// there is to be none.
    SshServer(Option<String>),
    /// Put a hash into the shadow file.
    Password {
        /// Whose it is.
        account: SmolStr,
        /// Of the hash.
        digest: Digest,
        /// Of what is there now, to be kept first.
        keep: Option<Digest>,
        /// Of what is needed no longer, afterwards.
        forget: Option<Digest>,
    },
    /// Set the name in the UTS namespace.
    Hostname(SmolStr),
}

/// The requests of one operation, in order. Empty when nothing differs.
///
/// They are all or nothing: when one after the first of a *creation* is refused, the transport
/// sends what [`Op::Delete`] encodes to, and reports the operation as failed.
pub type Requests = SmallVec<[Request; 1]>;

impl Request {
    /// `NLM_F_CREATE|NLM_F_EXCL`: fails when the object is there.
    pub fn create(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `NLM_F_CREATE|NLM_F_REPLACE`: makes it, or makes it so.
    pub fn replace(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Neither: the message type says it all.
    pub fn change(message: RouteNetlinkMessage) -> Self {
        Self::netlink(message, 0)
    }

    /// A deletion; that the object is gone already is no error.
    pub fn delete(message: RouteNetlinkMessage) -> Self {
        Self::Netlink { message, flags: NLM_F_REQUEST | NLM_F_ACK, forgiven: GONE }
    }

    fn netlink(message: RouteNetlinkMessage, flags: u16) -> Self {
        Self::Netlink { message, flags: NLM_F_REQUEST | NLM_F_ACK | flags, forgiven: &[] }
    }
}

/// What the kernel answers when the object of a deletion, or the link it was on, is gone.
pub const GONE: &[i32] =
    &[libc_errno::ENOENT, libc_errno::ESRCH, libc_errno::ENODEV, libc_errno::EADDRNOTAVAIL];

mod libc_errno {
    use nix::errno::Errno;

    pub(super) const ENOENT: i32 = Errno::ENOENT as i32;
    pub(super) const ESRCH: i32 = Errno::ESRCH as i32;
    pub(super) const ENODEV: i32 = Errno::ENODEV as i32;
    pub(super) const EADDRNOTAVAIL: i32 = Errno::EADDRNOTAVAIL as i32;
}

/// Why an operation has no encoding.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// It names a link that the namespace does not hold.
    #[error("link `{0}` does not exist")]
    LinkNotFound(SmolStr),
    /// The link is there already, is not ours, and cannot become what is asked for.
    #[error("link `{0}` is there already, made by somebody else, and cannot be changed into this")]
    OthersLink(SmolStr),
    /// The engine handed over a key of a kind that this transport does not carry out.
    #[error("no codec for {0}")]
    NoCodec(String),
}

/// A key and what is observed of it; `None`: it is not there.
pub type Observation = (Key, Option<SharedValue>);

/// Encoding of one kind of value.
pub trait Codec {
    /// The kind's values.
    type Value: 'static;

    /// The requests that carry out `op`.
    ///
    /// Takes note in `links` of links that the requests make or remove.
    ///
    /// # Errors
    /// When it refers to a link that is neither there nor on its way.
    fn encode(
        &self,
        op: Op<'_, Self::Value>,
        links: &mut LinkIndex,
    ) -> Result<Requests, EncodeError>;
}

impl<'a, V: 'static> Op<'a, V> {
    /// The engine's operation with its values as what they are; `None` when it lacks one or they
    /// are of another type.
    pub fn of(operation: &'a Operation) -> Option<Self> {
        fn typed<V: 'static>(value: Option<&SharedValue>) -> Option<&V> {
            value?.as_any().downcast_ref()
        }
        let (old, new) = (typed(operation.old.as_ref()), typed(operation.new.as_ref()));
        Some(match operation.action {
            Action::Create => Self::Create(new?),
            Action::Adopt => Self::Adopt { old: old?, new: new? },
            Action::Update => Self::Update { old: old?, new: new? },
            Action::Delete => Self::Delete(old?),
            Action::Release => Self::Release { old: old?, restore: new? },
        })
    }
}
