//! The certificates of a PKCS#7 block that holds nothing else (RFC 5652 section 5.1, RFC 7468 section 8).
//!
//! Only the envelope is decoded; each certificate keeps its encoding, because re-encoding could change signed
//! bytes, and because a SET OF 20 000 certificates need not be sorted.

use rustls_pki_types::CertificateDer;
use x509_parser::{
    asn1_rs::{Any, FromBer, Tag},
    pem::Pem,
};

use super::{CertzError, material};

/// `1.2.840.113549.1.7.2`, signedData.
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
/// PEM labels of such blocks.
const LABELS: [&str; 3] = ["PKCS7", "PKCS #7 SIGNED DATA", "CMS"];

/// All certificates of one PKCS#7 block in PEM.
pub(super) fn certificates(
    what: &str,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, CertzError> {
    let refused = |reason: &str| CertzError::invalid(what, format!("PKCS#7: {reason}"));
    let (block, rest) = Pem::read(std::io::Cursor::new(text.as_bytes()))
        .map_err(|_| refused("the PEM text is malformed"))?;
    let rest = text.get(rest..).unwrap_or_default();
    if !LABELS.contains(&block.label.as_str()) {
        return Err(refused(&format!("the block is labelled `{}`", block.label)));
    }
    if !rest.trim().is_empty() {
        return Err(refused("something follows the block"));
    }
    let set = certificate_set(&block.contents)
        .ok_or_else(|| refused("the block is not a SignedData with certificates"))?;
    let mut certificates = Vec::new();
    let mut rest = set;
    while !rest.is_empty() {
        let (after, element) =
            Any::from_ber(rest).map_err(|_| refused("the block is malformed"))?;
        let raw = &rest[..rest.len() - after.len()];
        let number = certificates.len() + 1;
        if element.tag() != Tag::Sequence {
            return Err(refused(&format!("element {number} is not an X.509 certificate")));
        }
        let certificate = CertificateDer::from(raw.to_vec());
        material::parse(&certificate)
            .map_err(|reason| refused(&format!("certificate {number}: {reason}")))?;
        certificates.push(certificate);
        rest = after;
    }
    if certificates.is_empty() {
        return Err(refused("the block holds no certificate"));
    }
    Ok(certificates)
}

/// The content of the field `certificates` of SignedData.
fn certificate_set(der: &[u8]) -> Option<&[u8]> {
    let (rest, info) = Any::from_ber(der).ok()?;
    let (after, kind) = element(rest.is_empty().then_some(info.data)?, Tag::Sequence, &info)?;
    (kind.tag() == Tag::Oid && kind.data == SIGNED_DATA).then_some(())?;
    let (_, explicit) = Any::from_ber(after).ok()?;
    let (_, signed) = Any::from_ber(explicit.data).ok()?;
    let (after, _version) = element(signed.data, Tag::Sequence, &signed)?;
    let (after, _digests) = Any::from_ber(after).ok()?;
    let (after, _content) = Any::from_ber(after).ok()?;
    let (_, set) = Any::from_ber(after).ok()?;
    (set.header.is_contextspecific() && set.tag() == Tag(0)).then_some(set.data)
}

/// First element of `data`, the content of `outer`, when `outer` has the tag `wanted`.
fn element<'d>(data: &'d [u8], tag: Tag, outer: &Any<'_>) -> Option<(&'d [u8], Any<'d>)> {
    (outer.tag() == tag).then_some(())?;
    Any::from_ber(data).ok()
}
