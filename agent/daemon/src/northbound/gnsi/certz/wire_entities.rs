//! Translation of entities and request parameters of certz from the wire.

use holdfast_proto::gnsi::certz;
use holdfast_proto::gnsi::certz::certificate::{self, CertSource};
use holdfast_proto::gnsi::certz::entity;
use holdfast_proto::gnsi::certz::existing_entity::EntityType;
use holdfast_proto::holdfast::CertificateAuthenticationPolicy;
use holdfast_security::certz::{
    AlternativeNames, AuthenticationPolicy, CertzError, ChainSource, Content, CsrParams, Curve,
    Encoding, Entity, EntityKind, Freshness, Hash, KeySource, RevocationLists, RsaBits, Rule,
    Suite, TrustBundle, certificates, private_key,
};
use prost::Message;
use rustls_pki_types::CertificateDer;

/// Type that an authentication policy is packed as in `google.protobuf.Any`.
const POLICY_TYPE: &str = "holdfast.CertificateAuthenticationPolicy";

/// Translates the entities of an upload.
///
/// # Errors
/// When one of them is malformed; the text names the field.
pub(super) fn entities(entities: Vec<certz::Entity>) -> Result<Vec<Entity>, CertzError> {
    entities.into_iter().map(entity).collect()
}

#[expect(deprecated, reason = "older clients spell the PKCS#7 bundle so")]
fn entity(entity: certz::Entity) -> Result<Entity, CertzError> {
    let freshness = Freshness { version: entity.version, created_on: entity.created_on };
    let content = match entity.entity {
        Some(entity::Entity::CertificateChain(chain)) => certificate_chain(chain)?,
        Some(entity::Entity::TrustBundle(chain)) => {
            const WHAT: &str = "trust_bundle";
            let mut all = Vec::new();
            for message in messages(chain) {
                if message.private_key_type.is_some() {
                    return Err(CertzError::invalid(
                        WHAT,
                        "an authority must come without its key",
                    ));
                }
                all.extend(chain_certificates(WHAT, &message)?);
            }
            Content::Trust(TrustBundle::new(WHAT, all)?)
        }
        Some(entity::Entity::TrustBundlePkcs7(bundle)) => {
            Content::Trust(TrustBundle::from_pkcs7("trust_bundle_pkcs7", &bundle.pkcs7_block)?)
        }
        Some(entity::Entity::TrustBundlePcks7(bundle)) => {
            Content::Trust(TrustBundle::from_pkcs7("trust_bundle_pcks7", &bundle.pkcs7_block)?)
        }
        Some(entity::Entity::CertificateRevocationListBundle(bundle)) => revocation_lists(bundle)?,
        Some(entity::Entity::AuthenticationPolicy(policy)) => Content::Policy(policy_of(policy)?),
        Some(entity::Entity::ExistingEntity(existing)) => Content::Existing {
            kind: existing_kind(existing.entity_type())?,
            profile: existing.ssl_profile_id.into(),
        },
        None => return Err(CertzError::invalid("certificates.entities", "an entry is empty")),
    };
    Ok(Entity { freshness, content })
}

/// The certificates of a chain, leaf first.
fn messages(chain: certz::CertificateChain) -> Vec<certz::Certificate> {
    let mut all = Vec::new();
    let mut next = Some(Box::new(chain));
    while let Some(chain) = next {
        all.extend(chain.certificate);
        next = chain.parent;
    }
    all
}

fn certificate_chain(chain: certz::CertificateChain) -> Result<Content, CertzError> {
    const WHAT: &str = "certificate_chain";
    let messages = messages(chain);
    let [leaf, parents @ ..] = messages.as_slice() else {
        return Err(CertzError::invalid(WHAT, "the chain has no certificate"));
    };
    let key = key_source(WHAT, leaf)?;
    if parents.iter().any(|parent| parent.private_key_type.is_some()) {
        return Err(CertzError::invalid(WHAT, "a parent must come without its key"));
    }
    let source = match &leaf.certificate_type {
        Some(certificate::CertificateType::CertSource(source)) => {
            if !parents.is_empty() {
                return Err(CertzError::invalid(WHAT, "cert_source cannot have a parent"));
            }
            cert_source(WHAT, *source)?
        }
        _ => {
            let mut all = Vec::new();
            for message in &messages {
                all.extend(chain_certificates(WHAT, message)?);
            }
            ChainSource::Given(all)
        }
    };
    Ok(Content::Chain(source, key))
}

fn cert_source(what: &str, source: i32) -> Result<ChainSource, CertzError> {
    match CertSource::try_from(source) {
        Ok(CertSource::Idevid) => Ok(ChainSource::Idevid),
        Ok(CertSource::Oidevid) => Ok(ChainSource::Oidevid),
        Ok(CertSource::Selfsigned) => Ok(ChainSource::SelfSigned),
        _ => Err(CertzError::invalid(what, format!("cert_source {source} is unknown"))),
    }
}

#[expect(deprecated, reason = "older clients put the key there")]
fn key_source(what: &str, leaf: &certz::Certificate) -> Result<KeySource, CertzError> {
    let source_of =
        |key: &[u8]| private_key(what, encoding(what, leaf)?, key).map(KeySource::Given);
    match &leaf.private_key_type {
        Some(certificate::PrivateKeyType::RawPrivateKey(key)) => source_of(key),
        Some(certificate::PrivateKeyType::KeySource(source)) => {
            match certificate::KeySource::try_from(*source) {
                Ok(certificate::KeySource::Unspecified) => Ok(KeySource::Unspecified),
                Ok(certificate::KeySource::Generated) => Ok(KeySource::Generated),
                Ok(certificate::KeySource::IdevidTpm) => Ok(KeySource::IdevidTpm),
                Ok(certificate::KeySource::Selfsigned) => Ok(KeySource::SelfSigned),
                Err(_) => Err(CertzError::invalid(what, format!("key_source {source} is unknown"))),
            }
        }
        None if !leaf.private_key.is_empty() => source_of(&leaf.private_key),
        None => Ok(KeySource::Unspecified),
    }
}

/// The certificates of one message.
#[expect(deprecated, reason = "older clients put the certificate there")]
fn chain_certificates(
    what: &str,
    message: &certz::Certificate,
) -> Result<Vec<CertificateDer<'static>>, CertzError> {
    let octets = match &message.certificate_type {
        Some(certificate::CertificateType::RawCertificate(octets)) => octets,
        None => &message.certificate,
        Some(certificate::CertificateType::CertSource(_)) => {
            return Err(CertzError::invalid(what, "cert_source is possible only for a leaf"));
        }
    };
    certificates(what, encoding(what, message)?, octets)
}

fn encoding(what: &str, message: &certz::Certificate) -> Result<Encoding, CertzError> {
    encoding_of(what, message.r#type(), message.encoding())
}

fn encoding_of(
    what: &str,
    kind: certz::CertificateType,
    encoding: certz::CertificateEncoding,
) -> Result<Encoding, CertzError> {
    if kind != certz::CertificateType::X509 {
        return Err(CertzError::invalid(what, "type must be CERTIFICATE_TYPE_X509"));
    }
    match encoding {
        certz::CertificateEncoding::Pem => Ok(Encoding::Pem),
        certz::CertificateEncoding::Der => Ok(Encoding::Der),
        certz::CertificateEncoding::Crt => Ok(Encoding::Crt),
        certz::CertificateEncoding::Unspecified => {
            Err(CertzError::invalid(what, "encoding must be given"))
        }
    }
}

fn revocation_lists(bundle: certz::CertificateRevocationListBundle) -> Result<Content, CertzError> {
    const WHAT: &str = "certificate_revocation_list_bundle";
    let mut lists = Vec::new();
    for list in bundle.certificate_revocation_lists {
        let encoding = encoding_of(WHAT, list.r#type(), list.encoding())?;
        lists.push((list.id, encoding, list.certificate_revocation_list.into()));
    }
    Ok(Content::Revoked(RevocationLists::new(WHAT, lists)?))
}

fn policy_of(policy: certz::AuthenticationPolicy) -> Result<AuthenticationPolicy, CertzError> {
    const WHAT: &str = "authentication_policy";
    let Some(certz::authentication_policy::Policy::Serialized(packed)) = policy.policy else {
        return Err(CertzError::invalid(WHAT, "the policy is empty"));
    };
    if packed.type_url.rsplit('/').next() != Some(POLICY_TYPE) {
        let reason = format!("the policy must be a {POLICY_TYPE}, not a `{}`", packed.type_url);
        return Err(CertzError::invalid(WHAT, reason));
    }
    let policy = CertificateAuthenticationPolicy::decode(packed.value.as_slice())
        .map_err(|error| CertzError::invalid(WHAT, error.to_string()))?;
    let rules = policy.rules.into_iter().map(|rule| Rule {
        name: rule.name.into(),
        subjects: rule.subjects.into_iter().map(Into::into).collect(),
        authorities: rule.authorities.into_iter().map(Into::into).collect(),
    });
    AuthenticationPolicy::new(WHAT, rules.collect())
}

fn existing_kind(kind: EntityType) -> Result<EntityKind, CertzError> {
    match kind {
        EntityType::CertificateChain => Ok(EntityKind::CertificateChain),
        EntityType::TrustBundle => Ok(EntityKind::TrustBundle),
        EntityType::CertificateRevocationListBundle => Ok(EntityKind::RevocationLists),
        EntityType::AuthenticationPolicy => Ok(EntityKind::AuthenticationPolicy),
        EntityType::Unspecified => {
            Err(CertzError::invalid("existing_entity", "entity_type must be given"))
        }
    }
}

/// Translates the parameters of a certificate signing request.
pub(super) fn csr_params(params: certz::CsrParams) -> CsrParams {
    let suite = suite(params.csr_suite());
    let san = params.san.unwrap_or_default();
    CsrParams {
        suite,
        common_name: params.common_name,
        country: params.country,
        state: params.state,
        city: params.city,
        organization: params.organization,
        organizational_unit: params.organizational_unit,
        ip_address: params.ip_address,
        email_id: params.email_id,
        san: AlternativeNames { dns: san.dns, emails: san.emails, ips: san.ips, uris: san.uris },
    }
}

/// Key type and hash of a suite; `None` for an unknown suite, or one that is not supported.
fn suite(suite: certz::CsrSuite) -> Option<Suite> {
    use certz::CsrSuite;
    let rsa = |bits, hash| Some(Suite::Rsa(bits, hash));
    let ecdsa = |curve, hash| Some(Suite::Ecdsa(curve, hash));
    let b2048 = RsaBits::B2048;
    let b3072 = RsaBits::B3072;
    let b4096 = RsaBits::B4096;
    let sha256 = Hash::Sha256;
    let sha384 = Hash::Sha384;
    let sha512 = Hash::Sha512;
    match suite {
        CsrSuite::CsrsuiteX509KeyTypeRsa2048SignatureAlgorithmSha2256 => rsa(b2048, sha256),
        CsrSuite::CsrsuiteX509KeyTypeRsa2048SignatureAlgorithmSha2384 => rsa(b2048, sha384),
        CsrSuite::CsrsuiteX509KeyTypeRsa2048SignatureAlgorithmSha2512 => rsa(b2048, sha512),
        CsrSuite::CsrsuiteX509KeyTypeRsa3072SignatureAlgorithmSha2256 => rsa(b3072, sha256),
        CsrSuite::CsrsuiteX509KeyTypeRsa3072SignatureAlgorithmSha2384 => rsa(b3072, sha384),
        CsrSuite::CsrsuiteX509KeyTypeRsa3072SignatureAlgorithmSha2512 => rsa(b3072, sha512),
        CsrSuite::CsrsuiteX509KeyTypeRsa4096SignatureAlgorithmSha2256 => rsa(b4096, sha256),
        CsrSuite::CsrsuiteX509KeyTypeRsa4096SignatureAlgorithmSha2384 => rsa(b4096, sha384),
        CsrSuite::CsrsuiteX509KeyTypeRsa4096SignatureAlgorithmSha2512 => rsa(b4096, sha512),
        CsrSuite::CsrsuiteX509KeyTypeEcdsaPrime256v1SignatureAlgorithmSha2256 => {
            ecdsa(Curve::P256, sha256)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaPrime256v1SignatureAlgorithmSha2384 => {
            ecdsa(Curve::P256, sha384)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaPrime256v1SignatureAlgorithmSha2512 => {
            ecdsa(Curve::P256, sha512)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp384r1SignatureAlgorithmSha2256 => {
            ecdsa(Curve::P384, sha256)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp384r1SignatureAlgorithmSha2384 => {
            ecdsa(Curve::P384, sha384)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp384r1SignatureAlgorithmSha2512 => {
            ecdsa(Curve::P384, sha512)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp521r1SignatureAlgorithmSha2256 => {
            ecdsa(Curve::P521, sha256)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp521r1SignatureAlgorithmSha2384 => {
            ecdsa(Curve::P521, sha384)
        }
        CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp521r1SignatureAlgorithmSha2512 => {
            ecdsa(Curve::P521, sha512)
        }
        CsrSuite::CsrsuiteX509KeyTypeEddsaEd25519 | CsrSuite::CsrsuiteCipherUnspecified => None,
    }
}
