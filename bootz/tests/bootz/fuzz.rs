//! Fuzz targets: no input makes a reader panic, and no modified document passes as saying something else.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS`, a second when it is not set.

use holdfast_bootz::cms::SignedMessage;
use holdfast_bootz::dhcp;
use holdfast_bootz::payload::BootstrapPayload;
use holdfast_bootz::uri::ServerUri;
use holdfast_bootz::voucher::Voucher;
use rustls_pki_types::UnixTime;

use crate::pki::{Cms, KeyAlgorithm, VoucherText, der, self_signed_authority};

/// Replaces bytes of the seed: each three bytes of the input are a position and a value.
fn edited(seed: &[u8], input: &[u8]) -> Vec<u8> {
    let mut octets = seed.to_vec();
    for edit in input.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % octets.len();
        octets[at] ^= edit[2];
    }
    octets
}

#[test]
fn dhcp_options() {
    let seed = b"\0\x0bbootz://a:1\0\x10bootz://[::1]:22";
    bolero::check!().for_each(|input: &[u8]| {
        for list in [input.to_vec(), edited(seed, input)] {
            let read = [dhcp::read(&list), dhcp::read_v4(&list), dhcp::read_v6(&list)];
            for server in read.into_iter().flatten().flat_map(|offer| offer.servers) {
                assert_eq!(server.to_string().parse::<ServerUri>(), Ok(server));
            }
        }
    });
}

#[test]
fn signed_messages() {
    let vendor = self_signed_authority("vendor", KeyAlgorithm::P256);
    let text = VoucherText::new("HF-1", &vendor).json();
    let message = Cms::new(text.as_bytes(), &vendor, KeyAlgorithm::P256).encode();
    let trusted = [der(&vendor)];
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_767_225_600));
    let right = Voucher::verify(&message, "HF-1", &trusted, now).unwrap();
    bolero::check!().for_each(|input: &[u8]| {
        let _refused = SignedMessage::read(input);
        let changed = edited(&message, input);
        if let Ok(voucher) = Voucher::verify(&changed, "HF-1", &trusted, now) {
            assert_eq!(voucher, right); // the change is in an unsigned part
        }
    });
}

#[test]
fn vouchers_and_payloads() {
    let vendor = self_signed_authority("vendor", KeyAlgorithm::P256);
    let text = VoucherText::new("HF-1", &vendor);
    let json = text.json();
    let xml = text.xml();
    bolero::check!().for_each(|input: &[u8]| {
        for octets in
            [input.to_vec(), edited(json.as_bytes(), input), edited(xml.as_bytes(), input)]
        {
            if let Err(error) = Voucher::read(&octets) {
                assert!(!error.to_string().is_empty());
            }
            let _refused = BootstrapPayload::read(&octets, "", "HF-1");
        }
    });
}
