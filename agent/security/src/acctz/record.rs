//! One accounting record: an action, its session and its time.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Bytes of one text in a record. Names and paths are far shorter; longer texts serve only to fill the history.
const MAX_TEXT: usize = 512;
/// Ends a text that was cut.
const ELLIPSIS: &str = "…";
/// Bytes of a record apart from its texts and payload: the structs, and the allocation of each text.
const OVERHEAD: usize = 384;

/// A short text. Longer input is cut, so that no client decides the size of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct BoundedText(String);

impl BoundedText {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BoundedText {
    /// True when the end is missing.
    pub fn is_cut(&self) -> bool {
        // A character has four bytes at most, so a cut text ends close to the maximum.
        self.0.len() + 4 > MAX_TEXT + ELLIPSIS.len() && self.0.ends_with(ELLIPSIS)
    }
}

impl From<BoundedText> for String {
    fn from(text: BoundedText) -> Self {
        text.0
    }
}

impl From<&str> for BoundedText {
    fn from(text: &str) -> Self {
        if text.len() <= MAX_TEXT {
            return Self(text.to_owned());
        }
        let end = text.floor_char_boundary(MAX_TEXT);
        Self(format!("{}{ELLIPSIS}", &text[..end]))
    }
}

impl From<String> for BoundedText {
    fn from(text: String) -> Self {
        let read = text.len() <= MAX_TEXT + ELLIPSIS.len() && text.ends_with(ELLIPSIS);
        if read { Self(text) } else { text.as_str().into() }
    }
}

/// An action with its session, as the interceptors report it. The history adds the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountingEvent {
    pub session: Session,
    pub activity: Activity,
}

/// An account with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds since 1970, unique within a history.
    pub time_ns: u64,
    #[serde(flatten)]
    pub account: AccountingEvent,
}

/// Caller and connection of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Both ends of the connection, ours first; `None` for the local socket.
    pub transport: Option<(SocketAddr, SocketAddr)>,
    /// Identifies the connection, so that calls of one connection can be told apart from others; both records of a
    /// stream share it.
    pub channel: BoundedText,
    pub stage: SessionStage,
    pub user: User,
    /// Present only where a session begins, or consists of this one request.
    pub authn: Option<Authn>,
}

/// Part of a session that a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SessionStage {
    /// A stream was opened.
    Login,
    /// A stream has ended.
    Logout,
    /// A call or a command without a session of its own.
    #[default]
    Once,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    /// Name that the policies decided by; for a refused login, the name that was tried.
    pub identity: BoundedText,
    pub role: BoundedText,
    /// Principal of an SSH certificate.
    pub ssh_principal: BoundedText,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authn {
    pub kind: AuthnKind,
    pub outcome: AuthnOutcome,
    pub cause: BoundedText,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthnKind {
    None,
    Password,
    SshKey,
    SshCertificate,
    TlsCertificate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthnOutcome {
    Success,
    Fail,
    /// The authentication could not be completed.
    Error,
}

/// Authorization decision, and the result of the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Authz {
    pub outcome: AuthzOutcome,
    pub detail: BoundedText,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AuthzOutcome {
    Permit,
    Deny,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Activity {
    Rpc(Rpc),
    Command(Command),
}

/// A call of the gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rpc {
    pub family: ServiceFamily,
    /// HTTP/2 path, as in `/gnmi.gNMI/Set`.
    pub path: BoundedText,
    pub payload: Option<Payload>,
    pub authz: Authz,
}

/// Family of gRPC services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ServiceFamily {
    /// Health and reflection, which belong to neither of the others.
    Other,
    Gnmi,
    Gnoi,
    Gnsi,
}

/// The request of a call, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Payload {
    /// Full name of the message.
    pub message: String,
    /// Encoded message as it was sent, with secrets and excess content removed.
    #[serde(with = "base64")]
    pub octets: Vec<u8>,
    /// Something was left out because of its size.
    pub cut: bool,
}

/// A command that a person ran on the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Command {
    pub kind: CommandKind,
    pub command: BoundedText,
    pub arguments: Vec<BoundedText>,
    pub authz: Authz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CommandKind {
    Shell,
    Cli,
}

impl Record {
    /// Cost of a record against the size of a history. Unit: bytes of memory, approximately.
    pub fn octets(&self) -> usize {
        let AccountingEvent { session, activity } = &self.account;
        let User { identity, role, ssh_principal } = &session.user;
        let cause = session.authn.as_ref().map_or(0, |authn| authn.cause.0.len());
        let user = identity.0.len() + role.0.len() + ssh_principal.0.len();
        OVERHEAD + session.channel.0.len() + user + cause + activity.octets()
    }
}

impl Activity {
    fn octets(&self) -> usize {
        match self {
            Self::Rpc(Rpc { family: _, path, payload, authz }) => {
                let payload = payload.as_ref().map_or(0, |it| it.message.len() + it.octets.len());
                path.0.len() + payload + authz.detail.0.len()
            }
            Self::Command(Command { kind: _, command, arguments, authz }) => {
                let arguments: usize =
                    arguments.iter().map(|it| size_of::<BoundedText>() + it.0.len()).sum();
                command.0.len() + arguments + authz.detail.0.len()
            }
        }
    }
}

/// Bytes as base64 in a text file.
mod base64 {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(octets))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut() {
        for (text, want) in [
            ("é".repeat(MAX_TEXT), Some(MAX_TEXT)),
            (format!("x{}", "é".repeat(MAX_TEXT)), Some(MAX_TEXT - 1)),
            ("x".repeat(MAX_TEXT + 1), Some(MAX_TEXT)),
            ("x".repeat(MAX_TEXT), None),
            ("short…".to_owned(), None),
        ] {
            let cut = BoundedText::from(text.as_str());
            assert_eq!(cut.is_cut(), want.is_some(), "{}", text.len());
            assert_eq!(cut.as_str().len(), want.map_or(text.len(), |end| end + ELLIPSIS.len()));
            let stored = serde_json::to_string(&cut).unwrap();
            assert_eq!(serde_json::from_str::<BoundedText>(&stored).unwrap(), cut);
            let stored = serde_json::to_string(&text).unwrap();
            assert_eq!(
                serde_json::from_str::<BoundedText>(&stored).unwrap(),
                cut,
                "it is not trusted"
            );
        }
    }
}
