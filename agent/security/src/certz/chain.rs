//! Server identities: a certificate chain, leaf first, and the private key of the leaf.

use std::sync::Arc;

use rustls::{crypto::aws_lc_rs, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    TrustAnchor, UnixTime,
};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};
use zeroize::{Zeroize, Zeroizing};

use super::{BoxIdentity, CertzError, material};

/// Certificates in one chain. Longer chains have no practical use, and each link costs a signature check.
const MAX_CHAIN: usize = 16;

/// A private key in DER. Wiped from memory on drop, and never printed.
#[derive(Clone)]
pub struct PrivateKey {
    form: KeyEncoding,
    der: Zeroizing<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyEncoding {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// An identity that the box has without any upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxIdentityKind {
    /// Identity that servers present when no profile is configured.
    Server,
    /// IDevID, installed by the manufacturer.
    Idevid,
    /// Owner's IDevID (oIDevID), enrolled by the owner.
    Oidevid,
}

impl BoxIdentityKind {
    const ALL: [Self; 3] = [Self::Server, Self::Idevid, Self::Oidevid];

    /// Stored form of a chain that follows this identity: a single letter.
    fn letter(self) -> u8 {
        match self {
            Self::Server => b'i',
            Self::Idevid => b'd',
            Self::Oidevid => b'o',
        }
    }
}

impl KeyEncoding {
    fn letter(self) -> u8 {
        match self {
            Self::Pkcs1 => b'1',
            Self::Pkcs8 => b'8',
            Self::Sec1 => b's',
        }
    }

    fn of(letter: u8) -> Option<Self> {
        [Self::Pkcs1, Self::Pkcs8, Self::Sec1].into_iter().find(|form| form.letter() == letter)
    }
}

/// Origin of the private key.
#[derive(Clone, Debug)]
pub enum ChainKey {
    /// A key that came with the certificate, or was generated here for it.
    Own(PrivateKey),
    /// The key of a box identity; the certificates are those of the identity as well.
    Identity(BoxIdentityKind),
}

/// Certificate chain with its key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Chain(Arc<ChainData>);

#[derive(Debug)]
struct ChainData {
    certified: Arc<CertifiedKey>,
    key: ChainKey,
    /// Seconds since 1970 at which the leaf expires.
    expires_on: u64,
}

impl Chain {
    /// Makes a chain from uploaded certificates and their key.
    ///
    /// # Errors
    /// When there is no certificate or too many, when the key is not usable, or when it does not belong to the
    /// leaf.
    pub fn own(
        what: &str,
        certificates: Vec<CertificateDer<'static>>,
        key: PrivateKey,
    ) -> Result<Self, CertzError> {
        let certified = certified(what, certificates, &key)?;
        Self::new(what, Arc::new(certified), ChainKey::Own(key))
    }

    /// Makes a chain that follows an identity of the box.
    ///
    /// # Errors
    /// When its certificate cannot be parsed.
    pub fn identity(
        what: &str,
        which: BoxIdentityKind,
        certified: Arc<CertifiedKey>,
    ) -> Result<Self, CertzError> {
        Self::new(what, certified, ChainKey::Identity(which))
    }

    fn new(what: &str, certified: Arc<CertifiedKey>, key: ChainKey) -> Result<Self, CertzError> {
        let invalid = |reason| CertzError::invalid(what, format!("certificate 1: {reason}"));
        let leaf = certified.cert.first().ok_or_else(|| invalid("there is none".to_owned()))?;
        let parsed = material::parse(leaf).map_err(invalid)?;
        let expires_on = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or(0);
        Ok(Self(Arc::new(ChainData { certified, key, expires_on })))
    }

    /// Certificates and signing key in the form that rustls takes for a handshake.
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.0.certified
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The box identity that the chain follows, if any.
    pub fn followed_identity(&self) -> Option<BoxIdentityKind> {
        match self.0.key {
            ChainKey::Identity(which) => Some(which),
            ChainKey::Own(_) => None,
        }
    }

    pub fn key(&self) -> &ChainKey {
        &self.0.key
    }

    /// Seconds since 1970 at which the leaf expires.
    pub fn expires_on(&self) -> u64 {
        self.0.expires_on
    }

    /// Stored form: a letter for the encoding of the key, its length in four bytes, the key, then the
    /// certificates back to back. A chain that follows a box identity is a letter alone.
    pub(super) fn stored(&self) -> Zeroizing<Vec<u8>> {
        let key = match &self.0.key {
            ChainKey::Own(key) => key,
            ChainKey::Identity(which) => return Zeroizing::new(vec![which.letter()]),
        };
        let certificates = &self.0.certified.cert;
        let length = certificates.iter().map(|der| der.len()).sum::<usize>() + key.der.len() + 5;
        let mut octets = Zeroizing::new(Vec::with_capacity(length)); // sized once: growing would leave copies of the key
        octets.push(key.form.letter());
        let key_length = u32::try_from(key.der.len()).expect("a key is shorter than a message");
        octets.extend(key_length.to_be_bytes());
        octets.extend(key.der.iter());
        certificates.iter().for_each(|der| octets.extend(der.as_ref()));
        octets
    }

    /// Restores a chain from the output of [`Self::stored`].
    pub(super) fn from_stored(
        what: &str,
        octets: &[u8],
        identity: &dyn BoxIdentity,
    ) -> Result<Self, CertzError> {
        let torn = || CertzError::internal(what, "the stored chain cannot be read");
        let (&letter, rest) = octets.split_first().ok_or_else(torn)?;
        let which = BoxIdentityKind::ALL.into_iter().find(|which| which.letter() == letter);
        if let Some(which) = which.filter(|_| rest.is_empty()) {
            let missing = || CertzError::internal(what, "the box has no such identity any more");
            return Self::identity(what, which, identity.certified(which).ok_or_else(missing)?);
        }
        let form = KeyEncoding::of(letter).ok_or_else(torn)?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(torn)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| torn())?;
        let (key, mut rest) = rest.split_at_checked(length).ok_or_else(torn)?;
        let key = PrivateKey { form, der: Zeroizing::new(key.to_vec()) };
        let mut certificates = Vec::new();
        while !rest.is_empty() {
            let (after, _) = x509_parser::parse_x509_certificate(rest).map_err(|_| torn())?;
            certificates.push(CertificateDer::from(rest[..rest.len() - after.len()].to_vec()));
            rest = after;
        }
        Self::own(what, certificates, key)
    }

    /// Succeeds when a client that trusts `anchors` would accept this chain at the time `now`.
    pub(super) fn verify(
        &self,
        anchors: &[TrustAnchor<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let (leaf, rest) = self.0.certified.cert.split_first().expect("made with a leaf");
        EndEntityCert::try_from(leaf)?
            .verify_for_usage(
                ALL_VERIFICATION_ALGS,
                anchors,
                rest,
                now,
                KeyUsage::server_auth(),
                None,
                None,
            )
            .map(drop)
    }

    /// Refuses a leaf that is expired or not yet valid at the time `now`, which every client would reject.
    pub(super) fn check_validity(&self, what: &str, now: UnixTime) -> Result<(), CertzError> {
        let leaf = self.0.certified.cert.first().expect("made with a leaf");
        let parsed = material::parse(leaf).expect("parsed when it was made");
        let at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if at > validity.not_after.timestamp() {
            return Err(CertzError::invalid(
                what,
                format!("the certificate expired on {}", validity.not_after),
            ));
        }
        if at < validity.not_before.timestamp() {
            let reason = format!("the certificate is not valid before {}", validity.not_before);
            return Err(CertzError::invalid(what, reason));
        }
        Ok(())
    }
}

fn certified(
    what: &str,
    certificates: Vec<CertificateDer<'static>>,
    key: &PrivateKey,
) -> Result<CertifiedKey, CertzError> {
    if certificates.is_empty() || certificates.len() > MAX_CHAIN {
        let reason =
            format!("a chain has 1 to {MAX_CHAIN} certificates, not {}", certificates.len());
        return Err(CertzError::invalid(what, reason));
    }
    let provider = aws_lc_rs::default_provider();
    CertifiedKey::from_der(certificates, key.to_der(), &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            CertzError::invalid(what, "the private key is not that of the first certificate")
        }
        rustls::Error::InvalidCertificate(reason) => {
            CertzError::invalid(what, format!("certificate 1 cannot be used: {reason}"))
        }
        _ => CertzError::invalid(
            what,
            "private key: the key is malformed, or of a kind that is not supported",
        ),
    })
}

impl PrivateKey {
    /// Copies the key for the TLS library. The copy is not wiped on drop, so it should be short-lived.
    fn to_der(&self) -> PrivateKeyDer<'static> {
        match self.form {
            KeyEncoding::Pkcs1 => PrivatePkcs1KeyDer::from(self.der.to_vec()).into(),
            KeyEncoding::Pkcs8 => PrivatePkcs8KeyDer::from(self.der.to_vec()).into(),
            KeyEncoding::Sec1 => PrivateSec1KeyDer::from(self.der.to_vec()).into(),
        }
    }
}

impl From<PrivateKeyDer<'static>> for PrivateKey {
    fn from(mut key: PrivateKeyDer<'static>) -> Self {
        let form = match &key {
            PrivateKeyDer::Pkcs1(_) => KeyEncoding::Pkcs1,
            PrivateKeyDer::Sec1(_) => KeyEncoding::Sec1,
            _ => KeyEncoding::Pkcs8,
        };
        let der = Zeroizing::new(key.secret_der().to_vec());
        key.zeroize();
        Self { form, der }
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrivateKey").field("form", &self.form).finish_non_exhaustive()
    }
}
