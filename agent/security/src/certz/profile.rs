//! TLS profiles, and the effect of an upload on them.

use std::{collections::BTreeMap, sync::Arc};

use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, UnixTime};
use smol_str::SmolStr;

use super::{
    AuthenticationPolicy, BoxIdentityKind, CertzError, Chain, ClientRequirements, PrivateKey,
    RevocationLists, TrustBundle,
};

/// Profile that always exists and shows the identity of the box. No client can change it.
pub const SYSTEM_DEFAULT_PROFILE: &str = "system_default_profile";
/// Longest id of a profile, in bytes; it appears in a leaf, in log lines and in the names of stored entities.
const MAX_PROFILE_ID_BYTES: usize = 128;
/// Profiles on one box, without the default one. Bounds memory: a trust bundle may be 64 MiB.
const MAX_PROFILES: usize = 64;

/// One kind of entity of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityKind {
    CertificateChain,
    TrustBundle,
    RevocationLists,
    AuthenticationPolicy,
}

/// Version and creation time that the client gave an entity. Both are stored unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    pub version: String,
    /// Seconds since 1970.
    pub created_on: u64,
}

/// An entity with its version and creation time.
#[derive(Clone, Debug)]
pub struct Versioned<T> {
    pub freshness: Freshness,
    pub value: T,
}

/// TLS configuration of a server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub chain: Option<Versioned<Chain>>,
    pub trust: Option<Versioned<TrustBundle>>,
    pub revoked: Option<Versioned<RevocationLists>>,
    pub policy: Option<Versioned<AuthenticationPolicy>>,
}

/// All profiles but the default one, by id. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Profiles(Arc<BTreeMap<SmolStr, Profile>>);

/// Entities that apply together, all or none of them.
#[derive(Clone, Debug)]
pub struct Upload {
    pub profile: SmolStr,
    pub entities: Vec<Entity>,
}

/// One entity of an upload.
#[derive(Clone, Debug)]
pub struct Entity {
    pub freshness: Freshness,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    Chain(ChainSource, KeySource),
    Trust(TrustBundle),
    Revoked(RevocationLists),
    Policy(AuthenticationPolicy),
    /// A copy of the entity in another profile.
    Existing {
        profile: SmolStr,
        kind: EntityKind,
    },
}

/// Origin of the certificates of a chain.
#[derive(Clone, Debug)]
pub enum ChainSource {
    Given(Vec<CertificateDer<'static>>),
    /// The identity from the manufacturer, or the one made at the first start.
    Idevid,
    /// The identity that the owner enrolled.
    Oidevid,
    /// A self-signed certificate.
    SelfSigned,
}

/// Origin of the leaf's private key.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// Not specified: the key made for a request in this stream, or none when the source brings its own.
    Unspecified,
    Given(PrivateKey),
    Generated,
    IdevidTpm,
    SelfSigned,
}

/// Identities that the box itself can contribute to a profile.
pub trait BoxIdentity {
    /// Returns certificates and key of an identity. [`BoxIdentityKind::Server`] always exists, and is the identity of
    /// [`SYSTEM_DEFAULT_PROFILE`].
    fn certified(&self, which: BoxIdentityKind) -> Option<Arc<CertifiedKey>>;

    /// Makes a self-signed certificate.
    ///
    /// # Errors
    /// When key generation or signing fails.
    fn self_signed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKey), CertzError>;
}

// Name of the kind in messages and in the store.
holdfast_config::enum_names!(EntityKind {
    CertificateChain = "certificate-chain",
    TrustBundle = "trust-bundle",
    RevocationLists = "certificate-revocation-list-bundle",
    AuthenticationPolicy = "authentication-policy",
});

impl Content {
    fn kind(&self) -> EntityKind {
        match self {
            Self::Chain(..) => EntityKind::CertificateChain,
            Self::Trust(_) => EntityKind::TrustBundle,
            Self::Revoked(_) => EntityKind::RevocationLists,
            Self::Policy(_) => EntityKind::AuthenticationPolicy,
            Self::Existing { kind, .. } => *kind,
        }
    }
}

impl Profiles {
    /// Ids of all profiles, the default one first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(SYSTEM_DEFAULT_PROFILE).chain(self.0.keys().map(SmolStr::as_str))
    }

    pub fn profile(&self, id: &str) -> Option<&Profile> {
        self.0.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&SmolStr, &Profile)> {
        self.0.iter()
    }

    /// Replaces the chains that follow an identity of the box by its present certificates.
    ///
    /// # Errors
    /// When a certificate of the identity cannot be parsed.
    pub fn with_current_identities(&self, identity: &dyn BoxIdentity) -> Result<Self, CertzError> {
        let mut all = BTreeMap::clone(&self.0);
        for chain in all.values_mut().filter_map(|profile| profile.chain.as_mut()) {
            let Some(which) = chain.value.followed_identity() else { continue };
            // An identity whose file is gone stays in use until the next start.
            let Some(certified) = identity.certified(which) else { continue };
            chain.value = Chain::identity("the identity of the box", which, certified)?;
        }
        Ok(Self(Arc::new(all)))
    }

    /// Adds or replaces one profile.
    pub fn with(&self, id: SmolStr, profile: Profile) -> Self {
        let mut all = BTreeMap::clone(&self.0);
        all.insert(id, profile);
        Self(Arc::new(all))
    }

    /// Adds an empty profile.
    ///
    /// # Errors
    /// When the id is taken or malformed, or there are too many profiles.
    pub fn with_added(&self, id: &str) -> Result<Self, CertzError> {
        let printable = id.chars().all(|letter| letter.is_ascii_graphic() && letter != '/');
        if id.is_empty() || id.len() > MAX_PROFILE_ID_BYTES || !printable {
            return Err(CertzError::invalid(
                "ssl_profile_id",
                "must be 1 to 128 printable ASCII characters without blanks and slashes",
            ));
        }
        if self.ids().any(|existing| existing == id) {
            return Err(CertzError::exists(profile_name(id), "the profile exists already"));
        }
        if self.0.len() >= MAX_PROFILES {
            return Err(CertzError::precondition(
                profile_name(id),
                format!("the box keeps at most {MAX_PROFILES} profiles"),
            ));
        }
        Ok(self.with(id.into(), Profile::default()))
    }

    /// Removes a profile; `in_use` says that a server is bound to it.
    ///
    /// # Errors
    /// When the profile is in use, is the default one, or does not exist.
    pub fn without(&self, id: &str, in_use: bool) -> Result<Self, CertzError> {
        self.changeable(id)?;
        if in_use {
            return Err(CertzError::precondition(profile_name(id), "the gRPC server uses it"));
        }
        let mut all = BTreeMap::clone(&self.0);
        all.remove(id);
        Ok(Self(Arc::new(all)))
    }

    /// The profile of this id, if it exists and clients may change it.
    ///
    /// # Errors
    /// [`super::CertzErrorKind::Invalid`] for an empty id, `Precondition` for the default profile, `NotFound` for an unknown
    /// one.
    pub fn changeable(&self, id: &str) -> Result<&Profile, CertzError> {
        match id {
            "" => Err(CertzError::invalid("ssl_profile_id", "must be given")),
            SYSTEM_DEFAULT_PROFILE => Err(CertzError::precondition(
                profile_name(id),
                "the profile is the identity of the box and cannot be changed",
            )),
            _ => self
                .0
                .get(id)
                .ok_or_else(|| CertzError::not_found(profile_name(id), "there is no such profile")),
        }
    }

    /// The version of an upload that its profile already has for an entity of the same kind, if any.
    pub fn version_in_use(&self, upload: &Upload) -> Option<String> {
        let profile = self.0.get(&upload.profile)?;
        let used = |entity: &&Entity| {
            let kind = entity.content.kind();
            profile.freshness(kind).is_some_and(|has| has.version == entity.freshness.version)
        };
        let entity = upload.entities.iter().find(used)?;
        Some(format!("{} `{}`", entity.content.kind().name(), entity.freshness.version))
    }

    /// Computes the profiles after an upload. `generated` is the key of the last signing request in the same
    /// stream.
    ///
    /// # Errors
    /// When the upload is malformed, or the resulting profile would be inconsistent.
    pub fn with_upload(
        &self,
        upload: &Upload,
        generated: Option<&PrivateKey>,
        identity: &dyn BoxIdentity,
        now: UnixTime,
    ) -> Result<Self, CertzError> {
        let mut profile = self.changeable(&upload.profile)?.clone();
        if upload.entities.is_empty() {
            return Err(CertzError::invalid("certificates.entities", "there are none"));
        }
        let mut kinds = Vec::new();
        for entity in &upload.entities {
            let kind = entity.content.kind();
            if kinds.contains(&kind) {
                let reason = format!("there are two of the kind {}", kind.name());
                return Err(CertzError::invalid("certificates.entities", reason));
            }
            kinds.push(kind);
            self.place(entity, &mut profile, generated, identity)?;
        }
        profile.check(&kinds, now)?;
        Ok(self.with(upload.profile.clone(), profile))
    }

    /// Computes the profiles after a replacement of all of them by these uploads; profiles that are not named are
    /// removed. `in_use` is the profile that the server is bound to.
    ///
    /// # Errors
    /// When an upload is malformed, a profile is named twice or is the default one, or the profile in use would be
    /// removed.
    pub fn replaced(
        &self,
        uploads: &[Upload],
        in_use: Option<&str>,
        identity: &dyn BoxIdentity,
        now: UnixTime,
    ) -> Result<Self, CertzError> {
        let mut all = Self::default();
        for upload in uploads {
            if all.ids().any(|existing| existing == upload.profile) {
                let reason = "it is named twice, or is the identity of the box";
                return Err(CertzError::invalid(profile_name(&upload.profile), reason));
            }
            all = all.with_added(&upload.profile)?;
            if !upload.entities.is_empty() {
                all = all.with_upload(upload, None, identity, now)?;
            }
        }
        let shows = |all: &Self, id| all.profile(id).is_some_and(|it| it.chain.is_some());
        match in_use.filter(|id| shows(self, id) && !shows(&all, id)) {
            Some(id) => Err(CertzError::precondition(profile_name(id), "the gRPC server uses it")),
            None => Ok(all),
        }
    }

    /// Sets one entity of the profile under construction.
    fn place(
        &self,
        entity: &Entity,
        profile: &mut Profile,
        generated: Option<&PrivateKey>,
        identity: &dyn BoxIdentity,
    ) -> Result<(), CertzError> {
        let freshness = entity.freshness.clone();
        match &entity.content {
            Content::Chain(source, key) => {
                let value = chain(source, key, generated, identity)?;
                profile.chain = Some(Versioned { freshness, value });
            }
            Content::Trust(value) => {
                profile.trust = Some(Versioned { freshness, value: value.clone() });
            }
            Content::Revoked(value) => {
                profile.revoked = Some(Versioned { freshness, value: value.clone() });
            }
            Content::Policy(value) => {
                profile.policy = Some(Versioned { freshness, value: value.clone() });
            }
            Content::Existing { profile: from, kind } => {
                self.copy(from, *kind, freshness, profile, identity)?;
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        from: &SmolStr,
        kind: EntityKind,
        freshness: Freshness,
        into: &mut Profile,
        identity: &dyn BoxIdentity,
    ) -> Result<(), CertzError> {
        const WHAT: &str = "existing_entity";
        if from.is_empty() {
            return Err(CertzError::invalid(WHAT, "ssl_profile_id must be given"));
        }
        if from == SYSTEM_DEFAULT_PROFILE && kind == EntityKind::CertificateChain {
            let value = identity_chain(WHAT, BoxIdentityKind::Server, identity)?;
            into.chain = Some(Versioned { freshness, value });
            return Ok(());
        }
        let absent = |reason: String| CertzError::not_found(WHAT, reason);
        let lacks = || absent(format!("profile `{from}` has no {}", kind.name()));
        if from == SYSTEM_DEFAULT_PROFILE {
            return Err(lacks());
        }
        let source = self.0.get(from);
        let source = source.ok_or_else(|| absent(format!("there is no profile `{from}`")))?;
        match kind {
            EntityKind::CertificateChain => into.chain = copied(&source.chain, freshness),
            EntityKind::TrustBundle => into.trust = copied(&source.trust, freshness),
            EntityKind::RevocationLists => into.revoked = copied(&source.revoked, freshness),
            EntityKind::AuthenticationPolicy => into.policy = copied(&source.policy, freshness),
        }
        if source.freshness(kind).is_none() { Err(lacks()) } else { Ok(()) }
    }
}

fn copied<T: Clone>(from: &Option<Versioned<T>>, freshness: Freshness) -> Option<Versioned<T>> {
    from.as_ref().map(|entity| Versioned { freshness, value: entity.value.clone() })
}

/// Combines certificates with their key, each from its source.
fn chain(
    source: &ChainSource,
    key: &KeySource,
    generated: Option<&PrivateKey>,
    identity: &dyn BoxIdentity,
) -> Result<Chain, CertzError> {
    const WHAT: &str = "certificate_chain";
    match (source, key) {
        (_, KeySource::IdevidTpm) => {
            Err(CertzError::precondition(WHAT, "key_source: the keys of this box are in no TPM"))
        }
        (ChainSource::Given(certificates), KeySource::Given(key)) => {
            Chain::own(WHAT, certificates.clone(), key.clone())
        }
        (ChainSource::Given(certificates), KeySource::Unspecified | KeySource::Generated) => {
            let key = generated.ok_or_else(|| {
                CertzError::invalid(
                    WHAT,
                    "there is no private key with it, and no request was made in this stream",
                )
            })?;
            Chain::own(WHAT, certificates.clone(), key.clone())
        }
        (ChainSource::Idevid, KeySource::Unspecified) => {
            identity_chain(WHAT, BoxIdentityKind::Idevid, identity)
        }
        (ChainSource::Oidevid, KeySource::Unspecified) => {
            identity_chain(WHAT, BoxIdentityKind::Oidevid, identity)
        }
        (ChainSource::SelfSigned, KeySource::Unspecified | KeySource::SelfSigned) => {
            let (certificates, key) = identity.self_signed()?;
            Chain::own(WHAT, certificates, key)
        }
        (_, _) => Err(CertzError::invalid(WHAT, "key_source does not go with cert_source")),
    }
}

fn identity_chain(
    what: &str,
    which: BoxIdentityKind,
    identity: &dyn BoxIdentity,
) -> Result<Chain, CertzError> {
    let missing = || {
        let from = if which == BoxIdentityKind::Oidevid { "owner" } else { "maker" };
        CertzError::precondition(
            what,
            format!("cert_source: this box has no identity from its {from}"),
        )
    };
    Chain::identity(what, which, identity.certified(which).ok_or_else(missing)?)
}

impl Profile {
    pub fn freshness(&self, kind: EntityKind) -> Option<&Freshness> {
        match kind {
            EntityKind::CertificateChain => self.chain.as_ref().map(|it| &it.freshness),
            EntityKind::TrustBundle => self.trust.as_ref().map(|it| &it.freshness),
            EntityKind::RevocationLists => self.revoked.as_ref().map(|it| &it.freshness),
            EntityKind::AuthenticationPolicy => self.policy.as_ref().map(|it| &it.freshness),
        }
    }

    /// True when both profiles share one entity of this kind in memory; two equal copies do not count.
    pub fn shares(&self, other: &Self, kind: EntityKind) -> bool {
        fn both<T>(
            one: &Option<Versioned<T>>,
            other: &Option<Versioned<T>>,
            is_same: impl Fn(&T, &T) -> bool,
        ) -> bool {
            match (one, other) {
                (None, None) => true,
                (Some(one), Some(other)) => {
                    one.freshness == other.freshness && is_same(&one.value, &other.value)
                }
                _ => false,
            }
        }
        match kind {
            EntityKind::CertificateChain => both(&self.chain, &other.chain, Chain::is_same),
            EntityKind::TrustBundle => both(&self.trust, &other.trust, TrustBundle::is_same),
            EntityKind::RevocationLists => {
                both(&self.revoked, &other.revoked, RevocationLists::is_same)
            }
            EntityKind::AuthenticationPolicy => {
                both(&self.policy, &other.policy, AuthenticationPolicy::is_same)
            }
        }
    }

    /// Requirements for client certificates. `None` without a trust bundle, because clients are then not asked for
    /// one.
    pub fn clients(&self) -> Option<ClientRequirements> {
        let trust = self.trust.as_ref()?.value.clone();
        let revoked = self.revoked.as_ref().map(|it| it.value.clone());
        let policy = self.policy.as_ref().map(|it| it.value.clone());
        Some(ClientRequirements { trust, revoked, policy })
    }

    /// Refuses a profile whose entities contradict each other; `changed` are the new ones, which the error names.
    fn check(&self, changed: &[EntityKind], now: UnixTime) -> Result<(), CertzError> {
        let is_new = |kind| changed.contains(&kind);
        let chain = EntityKind::CertificateChain;
        let trust = EntityKind::TrustBundle;
        if let (Some(has), true) = (&self.chain, is_new(chain)) {
            has.value.check_validity("certificate_chain", now)?;
        }
        if let (Some(has), Some(bundle), true) =
            (&self.chain, &self.trust, is_new(chain) || is_new(trust))
        {
            has.value.verify(bundle.value.anchors(), now).map_err(|error| {
                let (what, reason) = if is_new(chain) {
                    (
                        "certificate_chain",
                        "the chain does not verify against the trust bundle of the profile",
                    )
                } else {
                    (
                        "trust_bundle",
                        "the certificate chain of the profile does not verify against the bundle",
                    )
                };
                CertzError::invalid(what, format!("{reason}: {error}"))
            })?;
        }
        if let (Some(lists), Some(bundle)) = (&self.revoked, &self.trust)
            && (is_new(EntityKind::RevocationLists) || is_new(trust))
        {
            lists.value.check_signatures(EntityKind::RevocationLists.name(), &bundle.value)?;
        }
        Ok(())
    }
}

fn profile_name(id: &str) -> String {
    format!("profile `{id}`")
}

/// Encoding of an entity in the artefact store.
#[derive(Debug)]
pub struct StoredEntity;

impl StoredEntity {
    /// Encodes an entity. The bytes are secret for a chain with a key.
    pub fn encode(profile: &Profile, kind: EntityKind) -> Option<zeroize::Zeroizing<Vec<u8>>> {
        let octets = match kind {
            EntityKind::CertificateChain => profile.chain.as_ref()?.value.stored(),
            EntityKind::TrustBundle => profile.trust.as_ref()?.value.stored().into(),
            EntityKind::RevocationLists => profile.revoked.as_ref()?.value.stored().into(),
            EntityKind::AuthenticationPolicy => {
                profile.policy.as_ref()?.value.stored().into_bytes().into()
            }
        };
        Some(octets)
    }

    /// Decodes an entity into its profile.
    ///
    /// # Errors
    /// When the bytes are not the output of [`Self::encode`].
    pub fn restore(
        profile: &mut Profile,
        kind: EntityKind,
        freshness: Freshness,
        octets: &[u8],
        identity: &dyn BoxIdentity,
    ) -> Result<(), CertzError> {
        let what = kind.name();
        match kind {
            EntityKind::CertificateChain => {
                let value = Chain::from_stored(what, octets, identity)?;
                profile.chain = Some(Versioned { freshness, value });
            }
            EntityKind::TrustBundle => {
                let value = TrustBundle::from_stored(what, octets)?;
                profile.trust = Some(Versioned { freshness, value });
            }
            EntityKind::RevocationLists => {
                let value = RevocationLists::from_stored(what, octets)?;
                profile.revoked = Some(Versioned { freshness, value });
            }
            EntityKind::AuthenticationPolicy => {
                let text = std::str::from_utf8(octets)
                    .map_err(|error| CertzError::internal(what, error.to_string()))?;
                let value = AuthenticationPolicy::from_stored(what, text)?;
                profile.policy = Some(Versioned { freshness, value });
            }
        }
        Ok(())
    }
}
