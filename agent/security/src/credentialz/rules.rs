//! Effect of an upload on the credentials, and the reasons to refuse one.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::{
    Account, Authentication, AuthorizedKey, BoxKey, Certificate, Credentials, CryptError,
    CryptHash, Freshness, Glome, KeyError, KeyKind, KeyOption, OptionError, Principal,
    PrincipalsTool, PrivateKey, PublicKey, ServerKey, ServerKeySource, Versioned, is_unix_name,
};

/// Most accounts in one request. A box has tens; this bounds the work of one message.
const MAX_ACCOUNTS: usize = 4096;
/// Most keys or principals of one account, and most authorities and host keys: sshd reads them one by one at each
/// login.
const MAX_KEYS: usize = 1024;
/// Longest name of a principal, in bytes.
const MAX_PRINCIPAL_OCTETS: usize = 512;
/// Hexadecimal digits of a GLOME key: an X25519 public key.
const GLOME_KEY_DIGITS: usize = 64;
/// Longest prefix of a URL, in bytes.
const MAX_URL_OCTETS: usize = 1024;

/// Facts about the box that the rules need: its accounts and host keys while a rotation goes on.
#[derive(Clone, Debug, Default)]
pub struct CredentialzRules {
    /// Accounts that can be given credentials.
    pub accounts: BTreeSet<SmolStr>,
    /// Host keys that the box had before credentialz.
    pub box_keys: Vec<BoxKey>,
}

/// A value for one account, with its version.
#[derive(Clone, Debug)]
pub struct AccountUpload<T> {
    pub account: SmolStr,
    pub stamp: Freshness,
    pub what: T,
}

/// A key as it was sent, with the type that the client states.
#[derive(Clone, Debug)]
pub struct RawKey {
    pub octets: Vec<u8>,
    pub kind: Option<KeyKind>,
    pub description: String,
    pub options: RawOptions,
}

/// A principal as it was sent.
#[derive(Clone, Debug)]
pub struct RawPrincipal {
    pub name: String,
    pub options: RawOptions,
}

/// Options as they were parsed. An invalid one refuses the request, once its account or key is known for the
/// message.
pub type RawOptions = Vec<Result<KeyOption, OptionError>>;

/// A host key, a certificate, or both, as they were sent. `Debug` shows neither.
#[derive(Clone)]
pub struct Artefact {
    pub private_key: zeroize::Zeroizing<Vec<u8>>,
    pub certificate: Vec<u8>,
}

impl std::fmt::Debug for Artefact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Artefact(..)")
    }
}

/// One message of a rotation.
#[derive(Clone, Debug)]
pub enum Upload {
    Keys(Vec<AccountUpload<Vec<RawKey>>>),
    Principals(Vec<AccountUpload<Vec<RawPrincipal>>>),
    Passwords(Vec<AccountUpload<Result<CryptHash, CryptError>>>),
    /// Credentials of all accounts, as in a boot configuration: accounts that are not named return to the box's
    /// own.
    Accounts(Vec<Upload>),
    CaKeys {
        stamp: Freshness,
        keys: Vec<RawKey>,
    },
    ServerKeys {
        stamp: Freshness,
        artefacts: Vec<Artefact>,
    },
    /// Host keys that the caller generated for this message.
    GeneratedKeys {
        stamp: Freshness,
        keys: Vec<PrivateKey>,
    },
    Allowed(BTreeSet<Authentication>),
    PrincipalsTool(Option<PrincipalsTool>),
    Glome(Option<Glome>),
}

/// Answer to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Keys,
    Principals,
    Passwords,
    Accounts,
    CaKeys,
    ServerKeys,
    GeneratedKeys(Vec<PublicKey>),
    Allowed,
    PrincipalsTool,
    Glome,
}

/// Reason for refusing an upload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialzError {
    #[error("there is no account `{0}`: credentials are given to accounts that exist")]
    UnknownAccount(String),
    #[error("account `{0}` is named twice in one request")]
    DuplicateAccount(SmolStr),
    #[error("account `{0}` can log in over gRPC only: no account of the box has such a name")]
    NotUnix(SmolStr),
    #[error("the upload is for the host, not for accounts")]
    NotAnAccountUpload,
    #[error("the request is empty")]
    Nothing,
    #[error("the request names more than {0} accounts")]
    TooManyAccounts(usize),
    #[error("{what}: there are more than {MAX_KEYS}")]
    TooMany { what: String },
    #[error("{what}, key {number}: {source}")]
    Key { what: String, number: usize, source: KeyError },
    #[error("{what}, {number}: {source}")]
    Option { what: String, number: usize, source: OptionError },
    #[error("account `{account}`, principal {number} {why}")]
    Principal { account: SmolStr, number: usize, why: &'static str },
    #[error("account `{account}`: {source}")]
    Password { account: SmolStr, source: CryptError },
    #[error("artefact {number} has neither a private key nor a certificate")]
    EmptyArtefact { number: usize },
    #[error("certificate {number} does not match the private key that came with it")]
    CertificateKeyMismatch { number: usize },
    #[error("certificate {number} belongs to none of the host keys of this box")]
    NoSuchHostKey { number: usize },
    #[error("host key {number} is the same as another one of the request")]
    SameKey { number: usize },
    #[error(
        "cannot set the tool for principals: account `{0}` has a list of principals, which excludes the tool"
    )]
    PrincipalListsInUse(SmolStr),
    #[error(
        "cannot set a list of principals: the tool for principals is set, which excludes lists"
    )]
    PrincipalsToolInUse,
    #[error("GLOME: {0}")]
    Glome(&'static str),
}

impl CredentialzError {
    /// True when the request itself is valid and conflicts only with the present state.
    pub fn is_conflict_with_state(&self) -> bool {
        matches!(self, Self::PrincipalListsInUse(_) | Self::PrincipalsToolInUse)
    }

    /// True when the request names an object that does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::UnknownAccount(_) | Self::NoSuchHostKey { .. })
    }
}

impl Upload {
    /// Accounts that the upload names.
    pub fn accounts(&self) -> Vec<SmolStr> {
        fn names<T>(uploads: &[AccountUpload<T>]) -> Vec<SmolStr> {
            uploads.iter().map(|it| it.account.clone()).collect()
        }
        match self {
            Self::Keys(uploads) => names(uploads),
            Self::Principals(uploads) => names(uploads),
            Self::Passwords(uploads) => names(uploads),
            Self::Accounts(parts) => parts.iter().flat_map(Self::accounts).collect(),
            _ => Vec::new(),
        }
    }
}

impl CredentialzRules {
    /// The version that an account has already and the upload names again, if any.
    pub fn version_in_use(&self, credentials: &Credentials, upload: &Upload) -> Option<String> {
        fn again<T, U>(
            credentials: &Credentials,
            uploads: &[AccountUpload<T>],
            of: impl Fn(&Account) -> Option<&Versioned<U>>,
        ) -> Option<String> {
            uploads.iter().find_map(|it| {
                let existing = of(credentials.accounts.get(&it.account)?)?;
                let same =
                    existing.stamp.version == it.stamp.version && !it.stamp.version.is_empty();
                same.then(|| it.stamp.version.to_string())
            })
        }
        match upload {
            Upload::Keys(uploads) => again(credentials, uploads, |it| it.keys.as_ref()),
            Upload::Principals(uploads) => again(credentials, uploads, |it| it.principals.as_ref()),
            Upload::Passwords(uploads) => again(credentials, uploads, |it| it.password.as_ref()),
            _ => None, // gNSI has no such rule for parameters of the host
        }
    }

    /// Computes the credentials after an upload.
    ///
    /// # Errors
    /// With the first problem found; an upload applies as a whole or not at all.
    pub fn apply(
        &self,
        credentials: &Credentials,
        upload: Upload,
    ) -> Result<(Credentials, Reply), CredentialzError> {
        let mut new = credentials.clone();
        let reply = match upload {
            Upload::Keys(uploads) => self.keys(&mut new, uploads)?,
            Upload::Principals(uploads) => self.principals(&mut new, uploads)?,
            Upload::Passwords(uploads) => self.passwords(&mut new, uploads)?,
            Upload::Accounts(parts) => self.replace_accounts(&mut new, parts)?,
            Upload::CaKeys { stamp, keys } => {
                let value = public_keys("certificate authorities", keys)?;
                let value = value.into_iter().map(|it| it.key).collect();
                new.host.ca_keys = Some(Versioned { stamp, value });
                Reply::CaKeys
            }
            Upload::ServerKeys { stamp, artefacts } => {
                self.server_keys(&mut new, stamp, artefacts)?
            }
            Upload::GeneratedKeys { stamp, keys } => generated(&mut new, stamp, keys)?,
            Upload::Allowed(allowed) if allowed.is_empty() => {
                return Err(CredentialzError::Nothing);
            }
            Upload::Allowed(allowed) => {
                new.host.allowed = Some(allowed);
                Reply::Allowed
            }
            Upload::PrincipalsTool(tool) => principals_tool(&mut new, tool)?,
            Upload::Glome(glome) => {
                glome.as_ref().map_or(Ok(()), check_glome)?;
                new.host.glome = glome;
                Reply::Glome
            }
        };
        Ok((new, reply))
    }

    fn keys(
        &self,
        new: &mut Credentials,
        uploads: Vec<AccountUpload<Vec<RawKey>>>,
    ) -> Result<Reply, CredentialzError> {
        self.check_accounts(&uploads, true)?;
        for AccountUpload { account, stamp, what } in uploads {
            let value = public_keys(&format!("account `{account}`"), what)?;
            new.accounts.entry(account).or_default().keys = Some(Versioned { stamp, value });
        }
        Ok(Reply::Keys)
    }

    fn principals(
        &self,
        new: &mut Credentials,
        uploads: Vec<AccountUpload<Vec<RawPrincipal>>>,
    ) -> Result<Reply, CredentialzError> {
        self.check_accounts(&uploads, true)?;
        for AccountUpload { account, stamp, what } in uploads {
            if !what.is_empty() && new.host.principals_tool.is_some() {
                return Err(CredentialzError::PrincipalsToolInUse);
            }
            let value = principals_of(&account, what)?;
            new.accounts.entry(account).or_default().principals = Some(Versioned { stamp, value });
        }
        Ok(Reply::Principals)
    }

    fn passwords(
        &self,
        new: &mut Credentials,
        uploads: Vec<AccountUpload<Result<CryptHash, CryptError>>>,
    ) -> Result<Reply, CredentialzError> {
        self.check_accounts(&uploads, false)?;
        for AccountUpload { account, stamp, what } in uploads {
            let refused = |source| CredentialzError::Password { account: account.clone(), source };
            let value = what.map_err(refused)?;
            new.accounts.entry(account).or_default().password = Some(Versioned { stamp, value });
        }
        Ok(Reply::Passwords)
    }

    fn replace_accounts(
        &self,
        new: &mut Credentials,
        parts: Vec<Upload>,
    ) -> Result<Reply, CredentialzError> {
        new.accounts.clear();
        for part in parts {
            // `new` starts out empty, so an account that has a value was named before.
            let twice = |account: &SmolStr, has: fn(&Account) -> bool| match new
                .accounts
                .get(account)
                .is_some_and(has)
            {
                true => Err(CredentialzError::DuplicateAccount(account.clone())),
                false => Ok(()),
            };
            let again = |has: fn(&Account) -> bool| {
                part.accounts().iter().try_for_each(|account| twice(account, has))
            };
            match &part {
                Upload::Keys(_) => again(|it| it.keys.is_some())?,
                Upload::Principals(_) => again(|it| it.principals.is_some())?,
                Upload::Passwords(_) => again(|it| it.password.is_some())?,
                _ => return Err(CredentialzError::NotAnAccountUpload),
            }
            (*new, _) = self.apply(new, part)?;
        }
        Ok(Reply::Accounts)
    }

    /// Checks that each account exists and is named once, and for SSH that a Unix account can have its name.
    fn check_accounts<T>(
        &self,
        uploads: &[AccountUpload<T>],
        over_ssh: bool,
    ) -> Result<(), CredentialzError> {
        match uploads.len() {
            0 => return Err(CredentialzError::Nothing),
            1..=MAX_ACCOUNTS => {}
            _ => return Err(CredentialzError::TooManyAccounts(MAX_ACCOUNTS)),
        }
        let mut accounts = BTreeSet::new();
        for AccountUpload { account, .. } in uploads {
            if !self.accounts.contains(account) {
                let escaped = account.escape_default().take(MAX_PRINCIPAL_OCTETS).collect();
                return Err(CredentialzError::UnknownAccount(escaped));
            }
            if over_ssh && !is_unix_name(account) {
                return Err(CredentialzError::NotUnix(account.clone()));
            }
            if !accounts.insert(account) {
                return Err(CredentialzError::DuplicateAccount(account.clone()));
            }
        }
        Ok(())
    }

    /// Host keys are replaced as a whole when an artefact has a private key; certificates alone are attached to
    /// the present keys. An empty upload returns the server to the box's own keys.
    fn server_keys(
        &self,
        new: &mut Credentials,
        stamp: Freshness,
        artefacts: Vec<Artefact>,
    ) -> Result<Reply, CredentialzError> {
        bounded("host keys", artefacts.len())?;
        let mut keys = Vec::new();
        let mut certificates = Vec::new();
        for (at, artefact) in artefacts.iter().enumerate() {
            let number = at + 1;
            let read =
                |source| CredentialzError::Key { what: "host keys".to_owned(), number, source };
            let private = if artefact.private_key.is_empty() {
                None
            } else {
                Some(PrivateKey::parse(&artefact.private_key).map_err(read)?)
            };
            let certificate = if artefact.certificate.is_empty() {
                None
            } else {
                Some(Certificate::parse_for_host(&artefact.certificate).map_err(read)?)
            };
            match (private, certificate) {
                (None, None) => return Err(CredentialzError::EmptyArtefact { number }),
                (Some(key), Some(its_certificate)) if !its_certificate.is_for(key.public()) => {
                    return Err(CredentialzError::CertificateKeyMismatch { number });
                }
                (Some(key), certificate) => {
                    keys.push(ServerKey { key: ServerKeySource::Given(key), certificate })
                }
                (None, Some(certificate)) => certificates.push((number, certificate)),
            }
        }
        check_distinct(&keys)?;
        let replaces = !keys.is_empty() || artefacts.is_empty();
        if replaces {
            new.host.server_keys = keys;
            new.host.keys_freshness = Some(stamp.clone());
            new.host.certificates_freshness = None;
        } else {
            new.host.server_keys.iter_mut().for_each(|it| it.certificate = None);
        }
        for (number, certificate) in certificates {
            self.attach(&mut new.host.server_keys, number, certificate)?;
        }
        new.host
            .server_keys
            .retain(|it| it.certificate.is_some() || matches!(it.key, ServerKeySource::Given(_)));
        if new.host.server_keys.iter().any(|it| it.certificate.is_some()) {
            new.host.certificates_freshness = Some(stamp);
        }
        Ok(Reply::ServerKeys)
    }

    /// Attaches a certificate to its key: one of ours, else one that the box had before.
    fn attach(
        &self,
        keys: &mut Vec<ServerKey>,
        number: usize,
        certificate: Certificate,
    ) -> Result<(), CredentialzError> {
        if let Some(key) = keys.iter_mut().find(|it| certificate.is_for(it.public())) {
            key.certificate = Some(certificate);
            return Ok(());
        }
        let own = self.box_keys.iter().find(|it| certificate.is_for(&it.public));
        let own = own.ok_or(CredentialzError::NoSuchHostKey { number })?;
        let key = ServerKeySource::PreExisting(own.clone());
        keys.push(ServerKey { key, certificate: Some(certificate) });
        Ok(())
    }
}

fn generated(
    new: &mut Credentials,
    stamp: Freshness,
    keys: Vec<PrivateKey>,
) -> Result<Reply, CredentialzError> {
    if keys.is_empty() {
        return Err(CredentialzError::Nothing);
    }
    bounded("host keys", keys.len())?;
    let public = keys.iter().map(|key| key.public().clone()).collect();
    let of = |key| ServerKey { key: ServerKeySource::Given(key), certificate: None };
    new.host.server_keys = keys.into_iter().map(of).collect();
    new.host.keys_freshness = Some(stamp);
    new.host.certificates_freshness = None;
    Ok(Reply::GeneratedKeys(public))
}

fn principals_tool(
    new: &mut Credentials,
    tool: Option<PrincipalsTool>,
) -> Result<Reply, CredentialzError> {
    let listed =
        |account: &Account| account.principals.as_ref().is_some_and(|list| !list.value.is_empty());
    let listed = new.accounts.iter().find(|(_, account)| listed(account));
    if let (Some(_), Some((name, _))) = (tool, listed) {
        return Err(CredentialzError::PrincipalListsInUse(name.clone()));
    }
    new.host.principals_tool = tool;
    Ok(Reply::PrincipalsTool)
}

fn public_keys(what: &str, keys: Vec<RawKey>) -> Result<Vec<AuthorizedKey>, CredentialzError> {
    bounded(what, keys.len())?;
    let key = |(at, raw): (usize, RawKey)| {
        let what = what.to_owned();
        let number = at + 1;
        let options = raw.options.into_iter().collect::<Result<Vec<_>, _>>();
        let options = options.map_err(|source| CredentialzError::Option {
            what: format!("{what}, key"),
            number,
            source,
        })?;
        let key = PublicKey::parse(&raw.octets, raw.kind)
            .map_err(|source| CredentialzError::Key { what, number, source })?;
        Ok(AuthorizedKey { key, options, description: raw.description })
    };
    keys.into_iter().enumerate().map(key).collect()
}

fn principals_of(
    account: &SmolStr,
    what: Vec<RawPrincipal>,
) -> Result<Vec<Principal>, CredentialzError> {
    let label = format!("account `{account}`");
    bounded(&label, what.len())?;
    let principal = |(at, RawPrincipal { name, options }): (usize, RawPrincipal)| {
        let number = at + 1;
        let options: Result<Vec<KeyOption>, OptionError> = options.into_iter().collect();
        let options = options.map_err(|source| CredentialzError::Option {
            what: format!("{label}, principal"),
            number,
            source,
        })?;
        let wrong = |why| CredentialzError::Principal { account: account.clone(), number, why };
        match name.as_str() {
            "" => Err(wrong("has no name")),
            long if long.len() > MAX_PRINCIPAL_OCTETS => Err(wrong("is too long")),
            // A principals file has one name per line; a space would end the name, and `#` would begin a comment.
            odd if odd.starts_with('#') || odd.contains(|it: char| !it.is_ascii_graphic()) => {
                Err(wrong("is not one word of visible ASCII characters"))
            }
            _ => Ok(Principal { name, options }),
        }
    };
    what.into_iter().enumerate().map(principal).collect()
}

fn bounded(what: &str, count: usize) -> Result<(), CredentialzError> {
    if count > MAX_KEYS { Err(CredentialzError::TooMany { what: what.to_owned() }) } else { Ok(()) }
}

fn check_distinct(keys: &[ServerKey]) -> Result<(), CredentialzError> {
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (at, key) in keys.iter().enumerate() {
        if numbers.insert(key.public().line(), at).is_some() {
            return Err(CredentialzError::SameKey { number: at + 1 });
        }
    }
    Ok(())
}

fn check_glome(glome: &Glome) -> Result<(), CredentialzError> {
    let hexadecimal = |it: u8| it.is_ascii_hexdigit();
    let key = glome.key.len() == GLOME_KEY_DIGITS && glome.key.bytes().all(hexadecimal);
    let visible = |it: u8| it.is_ascii_graphic() && !matches!(it, b';' | b'#');
    let prefix = glome.url_prefix.len() <= MAX_URL_OCTETS
        && glome.url_prefix.starts_with("https://")
        && glome.url_prefix.bytes().all(visible);
    match (key, glome.key_version, prefix) {
        (false, ..) => Err(CredentialzError::Glome("the key has not 64 hexadecimal digits")),
        // A GLOME message has seven bits for the index of a key.
        (_, version, _) if !(0..128).contains(&version) => {
            Err(CredentialzError::Glome("the key version is not between 0 and 127"))
        }
        (.., false) => {
            Err(CredentialzError::Glome("the prefix is not an https URL of visible characters"))
        }
        _ => Ok(()),
    }
}
