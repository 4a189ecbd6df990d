//! Detached signatures of packages of services, and revocation of their signers.

use holdfast_bootz::cms::{ChainError, CmsError, verify_detached};
use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose, SerialNumber};
use rustls_pki_types::UnixTime;

use crate::pki::{
    Cms, KeyAlgorithm, KeyAndCertificate, der, issue_with_params, issue_with_serial,
    revocation_list, self_signed_authority,
};

const ARCHIVE: &[u8] = b"an archive";
const KIND: KeyAlgorithm = KeyAlgorithm::P256;
/// Serial numbers of the signer, of the authority between it and the trusted one, and of nobody.
const SIGNER: u64 = 7;
const BETWEEN: u64 = 8;
const OTHER: u64 = 9;

struct Scene {
    root: KeyAndCertificate,
    between: KeyAndCertificate,
    signer: KeyAndCertificate,
}

impl Scene {
    fn new() -> Self {
        let root = self_signed_authority("root", KIND);
        let between = issue_with_params("between", KIND, &root, |params| {
            params.serial_number = Some(SerialNumber::from(BETWEEN));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        });
        let signer = issue_with_serial("signer", KIND, &between, Some(SIGNER));
        Self { root, between, signer }
    }

    fn verify(&self, trusted: &KeyAndCertificate, lists: &[Vec<u8>]) -> Result<String, CmsError> {
        let message = Cms {
            certificates: vec![&self.signer, &self.between],
            is_detached: true,
            ..Cms::new(ARCHIVE, &self.signer, KIND)
        };
        verify_detached(&message.encode(), ARCHIVE, &[der(trusted)], lists, UnixTime::now())
    }
}

#[test]
fn a_signer_is_refused_when_a_list_names_it_or_one_above() {
    let scene = Scene::new();
    let Scene { root, between, signer } = &scene;
    let stranger = self_signed_authority("stranger", KIND);
    let list = revocation_list;
    let passes: [&[Vec<u8>]; 5] = [
        &[],
        // Others of the same authorities, and a list of the authority in the middle alone.
        &[list(between, &[OTHER]), list(root, &[SIGNER])],
        &[list(between, &[])],
        &[list(root, &[OTHER])],
        &[list(&stranger, &[SIGNER, BETWEEN])],
    ];
    for lists in passes {
        assert_eq!(scene.verify(root, lists).unwrap(), "CN=signer");
        scene.verify(signer, lists).unwrap();
    }
    let refused: [&[Vec<u8>]; 3] = [
        &[list(between, &[SIGNER])],
        &[list(root, &[BETWEEN])],
        &[list(root, &[]), list(between, &[OTHER, SIGNER])],
    ];
    for lists in refused {
        let refusal = scene.verify(root, lists).unwrap_err();
        assert!(matches!(refusal, CmsError::Untrusted(ChainError::Revoked)), "{refusal:?}");
    }
    // A signer that is trusted itself needs no authority, and may be revoked by it.
    let refusal = scene.verify(signer, &[list(between, &[SIGNER])]).unwrap_err();
    assert!(matches!(refusal, CmsError::Untrusted(ChainError::Revoked)), "{refusal:?}");
}

#[test]
fn a_list_with_the_name_of_an_authority_and_the_signature_of_another_is_no_permission() {
    let scene = Scene::new();
    let between = self_signed_authority("between", KIND);
    let refusal = scene.verify(&scene.root, &[revocation_list(&between, &[])]).unwrap_err();
    assert!(matches!(refusal, CmsError::Untrusted(ChainError::Path(_))), "{refusal:?}");
    let refusal = scene.verify(&scene.root, &[b"no list".to_vec()]).unwrap_err();
    assert!(matches!(refusal, CmsError::Untrusted(ChainError::Path(_))), "{refusal:?}");
}
