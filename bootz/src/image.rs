//! Which software the box is to run, and whether it has to fetch it.

use holdfast_proto::bootz::SoftwareImage;

/// The one algorithm of image hashes, as `ietf-sztp-conveyed-info` names it.
const SHA256: &str = "ietf-sztp-conveyed-info:sha-256";
/// Octets of its digests.
const DIGEST: usize = 32;

/// The software of this box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The version that runs.
    pub running: String,
    /// Whether the box knows how to install another one.
    pub installs: bool,
}

/// What is to be done about an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// None is named, or it runs already.
    Keep,
    /// Another one is named, and this box cannot install any: what is reported.
    Skip(String),
    /// To be fetched, compared with its digest, and installed.
    Install(Image),
}

/// An image to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What its publisher calls it.
    pub name: String,
    /// The version that runs afterwards.
    pub version: String,
    /// Where it lies.
    pub url: String,
    /// SHA-256 over all its octets.
    pub digest: [u8; DIGEST],
}

/// Why an image cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Another algorithm than SHA-256.
    #[error("intended_image.hash_algorithm `{0}` is not supported")]
    Algorithm(String),
    /// Not 32 octets in hexadecimal digits.
    #[error("intended_image.os_image_hash `{0}` is no SHA-256 digest")]
    Digest(String),
    /// A field without which nothing can be done.
    #[error("intended_image.{0} is missing")]
    Missing(&'static str),
}

impl Slot {
    /// What is to be done.
    ///
    /// # Errors
    /// When an image is named in a way that it could not be fetched and checked.
    pub fn step(&self, intended: Option<&SoftwareImage>) -> Result<Step, ImageError> {
        let Some(intended) = intended.filter(|image| **image != SoftwareImage::default()) else {
            return Ok(Step::Keep);
        };
        if intended.version.is_empty() {
            return Err(ImageError::Missing("version"));
        }
        if intended.version == self.running {
            return Ok(Step::Keep);
        }
        let image = Image::read(intended)?;
        if !self.installs {
            let Self { running, .. } = self;
            return Ok(Step::Skip(format!(
                "image {} is not installed: this box runs {running} and has no slot for images",
                image.version
            )));
        }
        Ok(Step::Install(image))
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

/// Hexadecimal digits, with a colon between any two octets or none.
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
