//! Certificate revocation lists.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::parse_x509_crl;

use super::{CertzError, Encoding, TrustBundle, material};

/// Lists in one bundle.
const MAX_LISTS: usize = 4096;

/// Revocation lists, newest first. Cheap to clone.
#[derive(Clone)]
pub struct RevocationLists(Arc<Lists>);

struct Lists {
    lists: Vec<CertRevocationList<'static>>,
    /// DER encoding of each list, in the same order.
    der: Vec<Vec<u8>>,
}

impl RevocationLists {
    /// Parses lists from any number of messages, each with a name for errors.
    ///
    /// # Errors
    /// When there is no list or too many, or one is malformed, indirect or a delta.
    pub fn new(
        what: &str,
        messages: impl IntoIterator<Item = (String, Encoding, Vec<u8>)>,
    ) -> Result<Self, CertzError> {
        let mut all = Vec::new();
        for (id, encoding, bytes) in messages {
            all.extend(
                material::revocation_lists(what, encoding, &bytes)?
                    .into_iter()
                    .map(|der| (id.clone(), der)),
            );
        }
        Self::of(what, all)
    }

    fn of(
        what: &str,
        all: Vec<(String, CertificateRevocationListDer<'static>)>,
    ) -> Result<Self, CertzError> {
        if all.is_empty() || all.len() > MAX_LISTS {
            let reason = format!("a bundle has 1 to {MAX_LISTS} lists, not {}", all.len());
            return Err(CertzError::invalid(what, reason));
        }
        let mut dated = Vec::with_capacity(all.len());
        for (id, der) in all {
            let refused = |reason: String| {
                CertzError::invalid(what, format!("revocation list `{id}`: {reason}"))
            };
            let (rest, parsed) = parse_x509_crl(&der)
                .map_err(|error| refused(format!("the list is malformed: {error}")))?;
            if !rest.is_empty() {
                return Err(refused("something follows it".to_owned()));
            }
            let list = OwnedCertRevocationList::from_der(&der)
                .map_err(|error| refused(format!("the list cannot be used: {error}")))?;
            dated.push((parsed.last_update().timestamp(), der.to_vec(), list));
        }
        // The library asks the first of two lists of one authority, so the newest goes first.
        dated.sort_by_key(|(issued_at, ..)| std::cmp::Reverse(*issued_at));
        let (der, lists) =
            dated.into_iter().map(|(_, der, list)| (der, CertRevocationList::from(list))).unzip();
        Ok(Self(Arc::new(Lists { lists, der })))
    }

    /// Restores lists from the output of [`Self::stored`].
    ///
    /// # Errors
    /// When the bytes have another form.
    pub fn from_stored(what: &str, mut rest: &[u8]) -> Result<Self, CertzError> {
        let mut all = Vec::new();
        while !rest.is_empty() {
            let (after, _) = parse_x509_crl(rest)
                .map_err(|error| CertzError::internal(what, error.to_string()))?;
            let der = rest[..rest.len() - after.len()].to_vec();
            all.push((all.len().to_string(), der.into()));
            rest = after;
        }
        Self::of(what, all)
    }

    /// Stored form: the DER encodings back to back.
    pub fn stored(&self) -> Vec<u8> {
        self.0.der.concat()
    }

    /// DER encoding of each list, newest first.
    pub fn encodings(&self) -> &[Vec<u8>] {
        &self.0.der
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CertRevocationList<'static>> {
        self.0.lists.iter()
    }

    /// Refuses a list that bears the name of a trusted authority but not its signature: such a list would lock out
    /// every client of that authority.
    pub(super) fn check_signatures(
        &self,
        what: &str,
        trust: &TrustBundle,
    ) -> Result<(), CertzError> {
        for (list, der) in self.0.lists.iter().zip(&self.0.der) {
            let Ok((_, parsed)) = parse_x509_crl(der) else { continue }; // unreachable: `new` has parsed it
            let mut authorities = trust.named(list.issuer()).peekable();
            let signed = |authority: &CertificateDer<'_>| {
                let key = material::parse(authority);
                key.is_ok_and(|key| parsed.verify_signature(key.public_key()).is_ok())
            };
            if authorities.peek().is_some() && !authorities.any(signed) {
                let issuer = parsed.issuer();
                let reason =
                    format!("the list of `{issuer}` is not signed by the authority of that name");
                return Err(CertzError::invalid(what, reason));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for RevocationLists {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevocationLists")
            .field("lists", &self.0.lists.len())
            .finish_non_exhaustive()
    }
}
