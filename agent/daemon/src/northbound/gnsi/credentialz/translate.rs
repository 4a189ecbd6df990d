//! Translation of credentialz messages from and to the wire.

use std::collections::BTreeSet;

use holdfast_proto::gnsi::credentialz;
use holdfast_security::credentialz::{
    AccountUpload, Artefact, Authentication, CryptError, CryptHash, Freshness, Glome, KeyKind,
    KeyOption, OptionError, PrincipalsTool, PublicKey, RawKey, RawOptions, RawPrincipal,
    SALT_OCTETS, Upload,
};

use crate::northbound::status::Refusal;

/// Refusal of a number that the enumeration of a field does not have.
fn unknown(field: &str, number: i32) -> Refusal {
    Refusal::invalid(format!("{field}: there is no value {number}"))
}

fn stamp(version: String, created_on: u64) -> Freshness {
    Freshness { version: version.into(), created_on }
}

pub(super) fn keys(request: credentialz::AuthorizedKeysRequest) -> Result<Upload, Refusal> {
    let account = |it: credentialz::AccountCredentials| {
        let what = it.authorized_keys.into_iter().map(|key| {
            Ok(RawKey {
                kind: key_kind("authorized_keys.key_type", key.key_type)?,
                octets: key.authorized_key.into(),
                description: key.description,
                options: options(key.options),
            })
        });
        let what = what.collect::<Result<_, Refusal>>()?;
        Ok(AccountUpload {
            account: it.account.into(),
            stamp: stamp(it.version, it.created_on),
            what,
        })
    };
    request.credentials.into_iter().map(account).collect::<Result<_, _>>().map(Upload::Keys)
}

pub(super) fn principals(request: credentialz::AuthorizedUsersRequest) -> Upload {
    let policy = |it: credentialz::UserPolicy| {
        let list = it.authorized_principals.unwrap_or_default().authorized_principals;
        let what = list
            .into_iter()
            .map(|it| RawPrincipal { name: it.authorized_user, options: options(it.options) });
        let stamp = stamp(it.version, it.created_on);
        AccountUpload { account: it.account.into(), stamp, what: what.collect() }
    };
    Upload::Principals(request.policies.into_iter().map(policy).collect())
}

/// Translates passwords. Passwords in clear text are hashed, which takes some 60 ms each.
pub(super) fn passwords(
    request: credentialz::PasswordRequest,
    mut salt: impl FnMut() -> Result<[u8; SALT_OCTETS], Refusal>,
) -> Result<Upload, Refusal> {
    use credentialz::password_request::password::Value;
    let account = |it: credentialz::password_request::Account| {
        let what = match it.password.and_then(|password| password.value) {
            Some(Value::Plaintext(text)) => {
                let text = zeroize::Zeroizing::new(text);
                CryptHash::of(text.as_bytes(), salt()?)
            }
            Some(Value::CryptoHash(hash)) => crypt_hash(hash)?,
            None => Err(CryptError::Empty),
        };
        Ok(AccountUpload {
            account: it.account.into(),
            stamp: stamp(it.version, it.created_on),
            what,
        })
    };
    request.accounts.into_iter().map(account).collect::<Result<_, _>>().map(Upload::Passwords)
}

fn crypt_hash(
    hash: credentialz::password_request::CryptoHash,
) -> Result<Result<CryptHash, CryptError>, Refusal> {
    use credentialz::password_request::crypto_hash::HashType;
    match HashType::try_from(hash.hash_type) {
        Ok(HashType::CryptMd5) => Ok(CryptHash::md5(&hash.hash_value)),
        Ok(HashType::CryptSha2512) => Ok(CryptHash::sha512(&hash.hash_value)),
        Ok(HashType::Unspecified) | Err(_) => Err(unknown("crypto_hash.hash_type", hash.hash_type)),
    }
}

pub(super) fn ca_keys(request: credentialz::CaPublicKeyRequest) -> Result<Upload, Refusal> {
    let key = |it: credentialz::PublicKey| {
        Ok(RawKey {
            kind: key_kind("ssh_ca_public_keys.key_type", it.key_type)?,
            octets: it.public_key.into(),
            description: it.description,
            options: RawOptions::new(),
        })
    };
    let keys = request.ssh_ca_public_keys.into_iter().map(key).collect::<Result<_, Refusal>>()?;
    Ok(Upload::CaKeys { stamp: stamp(request.version, request.created_on), keys })
}

pub(super) fn server_keys(request: credentialz::ServerKeysRequest) -> Upload {
    let artefact = |it: credentialz::server_keys_request::AuthenticationArtifacts| Artefact {
        private_key: Vec::from(it.private_key).into(),
        certificate: it.certificate.into(),
    };
    let artefacts = request.auth_artifacts.into_iter().map(artefact).collect();
    Upload::ServerKeys { stamp: stamp(request.version, request.created_on), artefacts }
}

/// The kinds of keys to generate, and their version.
pub(super) fn generate(
    request: credentialz::GenerateKeysRequest,
) -> Result<(Freshness, Vec<KeyKind>), Refusal> {
    let kind = |number: i32| match key_gen(number) {
        Some(kind) => Ok(kind),
        None => Err(unknown("generate_keys.key_params", number)),
    };
    let kinds = request.key_params.into_iter().map(kind).collect::<Result<_, _>>()?;
    Ok((stamp(request.version, request.created_on), kinds))
}

pub(super) fn allowed(
    request: credentialz::AllowedAuthenticationRequest,
) -> Result<Upload, Refusal> {
    use credentialz::AuthenticationType;
    let way = |number: i32| match AuthenticationType::try_from(number) {
        Ok(AuthenticationType::Password) => Ok(Authentication::Password),
        Ok(AuthenticationType::Pubkey) => Ok(Authentication::PublicKey),
        Ok(AuthenticationType::Kbdinteractive) => Ok(Authentication::KeyboardInteractive),
        Ok(AuthenticationType::Unspecified) | Err(_) => {
            Err(unknown("authentication_types", number))
        }
    };
    let ways: BTreeSet<_> =
        request.authentication_types.into_iter().map(way).collect::<Result<_, _>>()?;
    Ok(Upload::Allowed(ways))
}

pub(super) fn tool(
    request: &credentialz::AuthorizedPrincipalCheckRequest,
) -> Result<Upload, Refusal> {
    use credentialz::authorized_principal_check_request::Tool;
    match Tool::try_from(request.tool) {
        Ok(Tool::Unspecified) => Ok(Upload::PrincipalsTool(None)),
        Ok(Tool::HibaDefault) => Ok(Upload::PrincipalsTool(Some(PrincipalsTool::Hiba))),
        Err(_) => Err(unknown("authorized_principal_check.tool", request.tool)),
    }
}

pub(super) fn glome(request: credentialz::GlomeRequest) -> Upload {
    Upload::Glome(request.enabled.then_some(Glome {
        key: request.key,
        key_version: request.key_version,
        url_prefix: request.url_prefix,
    }))
}

fn options(list: Vec<credentialz::Option>) -> RawOptions {
    use credentialz::option::Key;
    let option = |it: credentialz::Option| match it.key {
        Some(Key::Name(name)) => KeyOption::named(&name, &it.value),
        Some(Key::Id(number)) => KeyOption::numbered(number, &it.value),
        None => Err(OptionError::Nothing),
    };
    list.into_iter().map(option).collect()
}

/// The kind of a key; `None` when the client leaves it open.
fn key_kind(field: &str, number: i32) -> Result<Option<KeyKind>, Refusal> {
    use credentialz::KeyType;
    Ok(Some(match KeyType::try_from(number) {
        Ok(KeyType::Unspecified) => return Ok(None),
        Ok(KeyType::EcdsaP256) => KeyKind::EcdsaP256,
        Ok(KeyType::EcdsaP384) => KeyKind::EcdsaP384,
        Ok(KeyType::EcdsaP521) => KeyKind::EcdsaP521,
        Ok(KeyType::Ed25519) => KeyKind::Ed25519,
        Ok(KeyType::Rsa2048) => KeyKind::Rsa2048,
        Ok(KeyType::Rsa3072) => KeyKind::Rsa3072,
        Ok(KeyType::Rsa4096) => KeyKind::Rsa4096,
        Err(_) => return Err(unknown(field, number)),
    }))
}

/// The kind of a key to generate; `None` for kinds that are not supported.
pub(super) fn key_gen(number: i32) -> Option<KeyKind> {
    use credentialz::KeyGen;
    Some(match KeyGen::try_from(number) {
        Ok(KeyGen::SshKeyTypeEcdsaP256) => KeyKind::EcdsaP256,
        Ok(KeyGen::SshKeyTypeEcdsaP384) => KeyKind::EcdsaP384,
        Ok(KeyGen::SshKeyTypeEcdsaP521) => KeyKind::EcdsaP521,
        Ok(KeyGen::SshKeyTypeEddsaEd25519) => KeyKind::Ed25519,
        Ok(KeyGen::SshKeyTypeRsa2048) => KeyKind::Rsa2048,
        Ok(KeyGen::SshKeyTypeRsa3072) => KeyKind::Rsa3072,
        Ok(KeyGen::SshKeyTypeRsa4096) => KeyKind::Rsa4096,
        Ok(KeyGen::SshKeyUnspecified) | Err(_) => return None,
    })
}

/// Translates a public key, as a line of a `.pub` file.
pub(super) fn public_key(key: &PublicKey) -> credentialz::PublicKey {
    let key_type = match key.kind() {
        Some(KeyKind::EcdsaP256) => credentialz::KeyType::EcdsaP256,
        Some(KeyKind::EcdsaP384) => credentialz::KeyType::EcdsaP384,
        Some(KeyKind::EcdsaP521) => credentialz::KeyType::EcdsaP521,
        Some(KeyKind::Ed25519) => credentialz::KeyType::Ed25519,
        Some(KeyKind::Rsa2048) => credentialz::KeyType::Rsa2048,
        Some(KeyKind::Rsa3072) => credentialz::KeyType::Rsa3072,
        Some(KeyKind::Rsa4096) => credentialz::KeyType::Rsa4096,
        None => credentialz::KeyType::Unspecified,
    };
    credentialz::PublicKey {
        public_key: key.line().into_bytes().into(),
        key_type: key_type.into(),
        description: key.comment().to_owned(),
    }
}
