//! Choice of the software image: keep the running one, or fetch another.

use holdfast_proto::bootz::SoftwareImage;

/// The only defined algorithm for image hashes, as `ietf-sztp-conveyed-info` names it.
const SHA256: &str = "ietf-sztp-conveyed-info:sha-256";
/// Bytes of a SHA-256 digest.
const DIGEST: usize = 32;

/// The software of this box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledSoftware {
    /// Running version.
    pub running: String,
    /// True when the box is able to install images.
    pub can_install: bool,
}

/// Decision about an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageDecision {
    /// No image is intended, or it is running already.
    Keep,
    /// Fetch the image, compare its digest, and install it.
    Install(Image),
}

/// An image to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Name given by the publisher.
    pub name: String,
    /// Version that runs after the installation.
    pub version: String,
    /// URL to fetch the image from.
    pub url: String,
    /// SHA-256 of the whole image.
    pub digest: [u8; DIGEST],
}

/// Reason for refusing an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Algorithm other than SHA-256.
    #[error("intended_image.hash_algorithm `{0}` is not supported")]
    Algorithm(String),
    /// Text other than 32 bytes in hexadecimal digits.
    #[error("intended_image.os_image_hash `{0}` is not a SHA-256 digest")]
    Digest(String),
    /// A required field is missing.
    #[error("intended_image.{0} is missing")]
    Missing(&'static str),
    /// Version other than the running one, on a box that cannot install any.
    #[error(
        "image {intended} cannot be installed: this box runs {running} and has no slot for images"
    )]
    NoSlot {
        /// The version that the box is to run.
        intended: String,
        /// The version that it runs.
        running: String,
    },
}

impl InstalledSoftware {
    /// Decides about the intended image.
    ///
    /// # Errors
    /// When a field is missing or malformed, so that the image could not be fetched and checked.
    pub fn decide(&self, intended: Option<&SoftwareImage>) -> Result<ImageDecision, ImageError> {
        let Some(intended) = intended.filter(|image| **image != SoftwareImage::default()) else {
            return Ok(ImageDecision::Keep);
        };
        if intended.version.is_empty() {
            return Err(ImageError::Missing("version"));
        }
        if intended.version == self.running {
            return Ok(ImageDecision::Keep);
        }
        let image = Image::read(intended)?;
        if !self.can_install {
            let running = self.running.clone();
            return Err(ImageError::NoSlot { intended: image.version, running });
        }
        Ok(ImageDecision::Install(image))
    }
}

impl Image {
    fn read(image: &SoftwareImage) -> Result<Self, ImageError> {
        if image.url.is_empty() {
            return Err(ImageError::Missing("url"));
        }
        if image.hash_algorithm != SHA256 {
            return Err(ImageError::Algorithm(image.hash_algorithm.clone()));
        }
        let digest = digest(&image.os_image_hash);
        Ok(Self {
            name: image.name.clone(),
            version: image.version.clone(),
            url: image.url.clone(),
            digest: digest.ok_or_else(|| ImageError::Digest(image.os_image_hash.clone()))?,
        })
    }
}

/// Parses hexadecimal digits, with colons between all bytes or none.
fn digest(text: &str) -> Option<[u8; DIGEST]> {
    let joined = match text.contains(':') {
        true if text.split(':').all(|octet| octet.len() == 2) => text.replace(':', ""),
        true => return None,
        false => text.to_owned(),
    };
    if joined.len() != 2 * DIGEST || !joined.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut octets = [0; DIGEST];
    for (octet, digits) in octets.iter_mut().zip(joined.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(octets)
}
