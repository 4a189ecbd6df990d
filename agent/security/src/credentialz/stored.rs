//! Stored form of the credentials. Fields may be added with a default, and are never removed or renamed.

use std::collections::BTreeSet;
use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;
use zeroize::Zeroizing;

use super::{
    Account, Authentication, AuthorizedKey, BoxKey, Certificate, Credentials, CryptHash, Freshness,
    Glome, Host, KeyOption, Principal, PrincipalsTool, PrivateKey, PublicKey, ServerKey,
    ServerKeySource, Versioned,
};

/// Stored bytes cannot be decoded. The message never quotes them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored {what} cannot be read")]
pub struct StoredError {
    pub what: &'static str,
}

#[derive(Serialize, Deserialize)]
struct AccountRow {
    password: Option<(Freshness, Secret)>,
    keys: Option<(Freshness, Vec<LineRow>)>,
    principals: Option<(Freshness, Vec<LineRow>)>,
}

/// Row of a key or a principal.
#[derive(Serialize, Deserialize)]
struct LineRow {
    text: String,
    #[serde(default)]
    options: Vec<(String, String)>,
    #[serde(default)]
    description: String,
}

#[derive(Serialize, Deserialize)]
struct HostRow {
    ca_keys: Option<(Freshness, Vec<String>)>,
    server_keys: Vec<ServerKeyRow>,
    keys_stamp: Option<Freshness>,
    certificates_stamp: Option<Freshness>,
    allowed: Option<BTreeSet<Authentication>>,
    principals_tool: Option<PrincipalsTool>,
    glome: Option<Glome>,
}

#[derive(Serialize, Deserialize)]
struct ServerKeyRow {
    private: Option<Secret>,
    /// Path and public key of a host key that the box had before.
    of_box: Option<(String, String)>,
    certificate: Option<String>,
}

/// A text that is wiped from memory on drop.
struct Secret(Zeroizing<String>);

impl Secret {
    fn of(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

/// Writer that only counts bytes.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0 += octets.len();
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serializes a row into a buffer of the exact size: growing would leave copies of secrets in freed memory.
fn octets(row: &impl Serialize) -> Zeroizing<Vec<u8>> {
    const WRITTEN: &str = "the rows have no maps and no foreign types";
    let mut count = Count(0);
    serde_json::to_writer(&mut count, row).expect(WRITTEN);
    let mut octets = Zeroizing::new(Vec::with_capacity(count.0));
    serde_json::to_writer(&mut *octets, row).expect(WRITTEN);
    octets
}

impl Account {
    /// Encodes an account.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let password =
            self.password.as_ref().map(|it| (it.stamp.clone(), Secret::of(it.value.text())));
        let keys = self.keys.as_ref().map(|it| {
            let key = |it: &AuthorizedKey| LineRow {
                text: format!("{} {}", it.key.line(), it.key.comment()),
                options: options(&it.options),
                description: it.description.clone(),
            };
            (it.stamp.clone(), it.value.iter().map(key).collect())
        });
        let principals = self.principals.as_ref().map(|it| {
            let principal = |it: &Principal| LineRow {
                text: it.name.clone(),
                options: options(&it.options),
                description: String::new(),
            };
            (it.stamp.clone(), it.value.iter().map(principal).collect())
        });
        let row = AccountRow { password, keys, principals };
        octets(&row)
    }

    /// Decodes the output of [`Account::to_bytes`].
    ///
    /// # Errors
    /// When the bytes have another form.
    pub fn from_bytes(octets: &[u8]) -> Result<Self, StoredError> {
        let wrong = |what| move || StoredError { what };
        let row: AccountRow = serde_json::from_slice(octets).map_err(|_| wrong("account")())?;
        let password = row.password.map(|(stamp, text)| {
            let value = CryptHash::parse(&text.0).map_err(|_| wrong("password")())?;
            Ok(Versioned { stamp, value })
        });
        let keys = row.keys.map(|(stamp, rows)| {
            let key = |row: LineRow| {
                let key = PublicKey::parse(row.text.trim().as_bytes(), None);
                let key = key.map_err(|_| wrong("authorized key")())?;
                let options = read_options(row.options)?;
                Ok(AuthorizedKey { key, options, description: row.description })
            };
            Ok(Versioned { stamp, value: rows.into_iter().map(key).collect::<Result<_, _>>()? })
        });
        let principals = row.principals.map(|(stamp, rows)| {
            let principal = |row: LineRow| {
                Ok(Principal { name: row.text, options: read_options(row.options)? })
            };
            Ok(Versioned {
                stamp,
                value: rows.into_iter().map(principal).collect::<Result<_, _>>()?,
            })
        });
        Ok(Self {
            password: password.transpose()?,
            keys: keys.transpose()?,
            principals: principals.transpose()?,
        })
    }
}

impl Host {
    /// Encodes the settings of the server and the console.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let ca_keys = self
            .ca_keys
            .as_ref()
            .map(|it| (it.stamp.clone(), it.value.iter().map(PublicKey::line).collect()));
        let server_key = |it: &ServerKey| {
            let certificate = it.certificate.as_ref().map(Certificate::line);
            match &it.key {
                ServerKeySource::Given(key) => ServerKeyRow {
                    private: Some(Secret::of(key.text())),
                    of_box: None,
                    certificate,
                },
                ServerKeySource::PreExisting(key) => ServerKeyRow {
                    private: None,
                    of_box: Some((key.path.clone(), key.public.line())),
                    certificate,
                },
            }
        };
        let row = HostRow {
            ca_keys,
            server_keys: self.server_keys.iter().map(server_key).collect(),
            keys_stamp: self.keys_freshness.clone(),
            certificates_stamp: self.certificates_freshness.clone(),
            allowed: self.allowed.clone(),
            principals_tool: self.principals_tool,
            glome: self.glome.clone(),
        };
        octets(&row)
    }

    /// Decodes the output of [`Host::to_bytes`].
    ///
    /// # Errors
    /// When the bytes have another form.
    pub fn from_bytes(octets: &[u8]) -> Result<Self, StoredError> {
        let row: HostRow =
            serde_json::from_slice(octets).map_err(|_| StoredError { what: "host" })?;
        let ca_keys = row.ca_keys.map(|(stamp, lines)| {
            let keys = lines.iter().map(|line| read_key(line));
            Ok(Versioned { stamp, value: keys.collect::<Result<_, _>>()? })
        });
        let server_keys = row.server_keys.into_iter().map(read_server_key);
        Ok(Self {
            ca_keys: ca_keys.transpose()?,
            server_keys: server_keys.collect::<Result<_, _>>()?,
            keys_freshness: row.keys_stamp,
            certificates_freshness: row.certificates_stamp,
            allowed: row.allowed,
            principals_tool: row.principals_tool,
            glome: row.glome,
        })
    }
}

/// Names of rows: the host's, and the prefix of an account's.
const HOST_ROW: &str = "host";
const ACCOUNT_ROWS: &str = "account/";

impl Credentials {
    /// Encodes one row for each account and one for the host.
    pub fn rows(&self) -> Vec<(SmolStr, Zeroizing<Vec<u8>>)> {
        let account = |(name, account): (&SmolStr, &Account)| {
            (SmolStr::from(format!("{ACCOUNT_ROWS}{name}")), account.to_bytes())
        };
        let mut rows: Vec<_> = self.accounts.iter().map(account).collect();
        if self.host != Host::default() {
            rows.push((HOST_ROW.into(), self.host.to_bytes()));
        }
        rows
    }

    /// Decodes one of these rows into `self`; false when the name is not of such a row.
    ///
    /// # Errors
    /// When the bytes have another form.
    pub fn restore_row(&mut self, name: &str, octets: &[u8]) -> Result<bool, StoredError> {
        if name == HOST_ROW {
            self.host = Host::from_bytes(octets)?;
        } else if let Some(account) = name.strip_prefix(ACCOUNT_ROWS) {
            self.accounts.insert(account.into(), Account::from_bytes(octets)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn options(options: &[KeyOption]) -> Vec<(String, String)> {
    let text = |option: &KeyOption| {
        let (name, value) = option.parts();
        (name.to_owned(), value.to_owned())
    };
    options.iter().map(text).collect()
}

fn read_options(rows: Vec<(String, String)>) -> Result<Vec<KeyOption>, StoredError> {
    let read = |(name, value): (String, String)| {
        KeyOption::named(&name, &value).map_err(|_| StoredError { what: "key option" })
    };
    rows.into_iter().map(read).collect()
}

fn read_key(line: &str) -> Result<PublicKey, StoredError> {
    PublicKey::parse(line.as_bytes(), None).map_err(|_| StoredError { what: "public key" })
}

fn read_server_key(row: ServerKeyRow) -> Result<ServerKey, StoredError> {
    let wrong = StoredError { what: "host key" };
    let key = match (row.private, row.of_box) {
        (Some(text), _) => {
            ServerKeySource::Given(PrivateKey::parse(text.0.as_bytes()).map_err(|_| wrong.clone())?)
        }
        (None, Some((path, line))) => {
            ServerKeySource::PreExisting(BoxKey { path, public: read_key(&line)? })
        }
        (None, None) => return Err(wrong),
    };
    let certificate = row.certificate.map(|line| Certificate::parse_for_host(line.as_bytes()));
    let certificate = certificate.transpose().map_err(|_| StoredError { what: "certificate" })?;
    Ok(ServerKey { key, certificate })
}
