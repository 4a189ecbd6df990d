//! One thing that somebody did.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Octets of one text in a record. Names and paths are far shorter; what is longer is sent to fill the history.
const MAX_TEXT: usize = 512;
/// Ends a text that was cut.
const ELLIPSIS: &str = "…";
/// Octets that a record takes beside its texts and its payload: the structs, and the place of each text.
const OVERHEAD: usize = 384;

/// A short text: what is longer is cut, so that a record has a size that no client decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text(String);

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Text {
    /// Something is missing at the end.
    pub fn is_cut(&self) -> bool {
        // A letter has four octets at most, so what was cut ends close to the maximum.
        self.0.len() + 4 > MAX_TEXT + ELLIPSIS.len() && self.0.ends_with(ELLIPSIS)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        if text.len() <= MAX_TEXT {
            return Self(text.to_owned());
        }
        let end = text.floor_char_boundary(MAX_TEXT);
        Self(format!("{}{ELLIPSIS}", &text[..end]))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let read = text.len() <= MAX_TEXT + ELLIPSIS.len() && text.ends_with(ELLIPSIS);
        if read { Self(text) } else { text.as_str().into() }
    }
}

/// What was done, as whoever does the accounting hands it to the history, which adds the time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub session: Session,
    pub deed: Deed,
}

/// One account with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Nanoseconds since 1970. No two records of a history have the same.
    pub time_ns: u64,
    #[serde(flatten)]
    pub account: Account,
}

/// Who, and over which connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The two ends of the connection, ours first; nothing for the local socket.
    pub transport: Option<(SocketAddr, SocketAddr)>,
    /// Tells the calls of one connection apart; both records of a stream have the same.
    pub channel: Text,
    pub stage: Stage,
    pub user: User,
    /// Only where a session begins, or is nothing but this one request.
    pub authn: Option<Authn>,
}

/// Which part of a session this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// A stream was opened.
    Login,
    /// A stream has ended.
    Logout,
    /// A call or a command that stands for itself.
    #[default]
    Once,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name that policies decided by; where nobody was let in, the name that was tried.
    pub identity: Text,
    pub role: Text,
    /// The principal of a certificate of SSH.
    pub ssh_principal: Text,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authn {
    pub kind: AuthnKind,
    pub outcome: AuthnOutcome,
    pub cause: Text,
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
    /// It could not be found out.
    Error,
}

/// Whether it was permitted, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authz {
    pub outcome: AuthzOutcome,
    pub detail: Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AuthzOutcome {
    Permit,
    Deny,
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    Rpc(Rpc),
    Command(Command),
}

/// A call of the gRPC server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rpc {
    pub family: Family,
    /// The path of HTTP/2, as in `/gnmi.gNMI/Set`.
    pub path: Text,
    pub payload: Option<Payload>,
    pub authz: Authz,
}

/// Which family of services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Family {
    /// Neither of the others: health and reflection.
    Other,
    Gnmi,
    Gnoi,
    Gnsi,
}

/// The request of a call, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// Full name of the message.
    pub message: String,
    /// The message as it was sent, readable as such, less what is secret or too much.
    #[serde(with = "base64")]
    pub octets: Vec<u8>,
    /// Something was left out for its size.
    pub cut: bool,
}

/// A command of a person on the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    pub kind: CommandKind,
    pub command: Text,
    pub arguments: Vec<Text>,
    pub authz: Authz,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CommandKind {
    Shell,
    Cli,
}

impl Record {
    /// What it counts against the bound of a history. Unit: octets of memory, nearly.
    pub fn octets(&self) -> usize {
        let Account { session, deed } = &self.account;
        let User { identity, role, ssh_principal } = &session.user;
        let cause = session.authn.as_ref().map_or(0, |authn| authn.cause.0.len());
        let user = identity.0.len() + role.0.len() + ssh_principal.0.len();
        OVERHEAD + session.channel.0.len() + user + cause + deed.octets()
    }
}

impl Deed {
    fn octets(&self) -> usize {
        match self {
            Self::Rpc(Rpc { family: _, path, payload, authz }) => {
                let payload = payload.as_ref().map_or(0, |it| it.message.len() + it.octets.len());
                path.0.len() + payload + authz.detail.0.len()
            }
            Self::Command(Command { kind: _, command, arguments, authz }) => {
                let arguments: usize =
                    arguments.iter().map(|it| size_of::<Text>() + it.0.len()).sum();
                command.0.len() + arguments + authz.detail.0.len()
            }
        }
    }
}

/// Octets in a text file.
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
    fn a_text_has_a_size() {
        for (text, want) in [
            ("é".repeat(MAX_TEXT), Some(MAX_TEXT)),
            (format!("x{}", "é".repeat(MAX_TEXT)), Some(MAX_TEXT - 1)),
            ("x".repeat(MAX_TEXT + 1), Some(MAX_TEXT)),
            ("x".repeat(MAX_TEXT), None),
            ("short…".to_owned(), None),
        ] {
            let cut = Text::from(text.as_str());
            assert_eq!(cut.is_cut(), want.is_some(), "{}", text.len());
            assert_eq!(cut.as_str().len(), want.map_or(text.len(), |end| end + ELLIPSIS.len()));
            let stored = serde_json::to_string(&cut).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&stored).unwrap(), cut);
            let stored = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&stored).unwrap(), cut, "it is not trusted");
        }
    }
}
