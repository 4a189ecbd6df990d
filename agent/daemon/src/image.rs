//! Software that is fetched and checked against its digest, for a bootstrap and for gNOI.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ::aws_lc_rs::digest;
use http::StatusCode;
use md5::{Digest as _, Md5};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http_client::{HttpClient, HttpError};

/// The longest image, in bytes: a whole system takes some hundred megabytes; more is a mistake that fills the
/// disk.
pub const MAX_IMAGE: u64 = 8 << 30;
/// Bytes read from a file at a time.
const READ: usize = 64 << 10;

/// Expected digest of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub method: DigestMethod,
    pub octets: Vec<u8>,
}

/// Hash function of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMethod {
    Sha256,
    Sha512,
    /// Detects accidents, but no attacker.
    Md5,
}

/// Reasons why an image cannot be fetched, or is not the expected one.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the server of `{url}` answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("`{0}` has more than {MAX_IMAGE} bytes")]
    TooLong(String),
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read `{}` back", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the {method} digest of `{what}` is not the expected one")]
    Digest { what: String, method: DigestMethod },
}

/// Fetches the URL into a new file.
///
/// # Errors
///
/// When the server cannot be reached, answers with another status than 200, is silent for a minute or sends too
/// much, or when the disk is full. A part of the file may be left.
pub async fn fetch(client: &HttpClient, url: &str, path: &Path) -> Result<(), ImageError> {
    let mut answer = client.exchange(url, None).await?;
    if answer.status != StatusCode::OK {
        return Err(ImageError::Status { url: url.to_owned(), status: answer.status });
    }
    let written = |source| ImageError::Write { path: path.to_owned(), source };
    let mut file = File::create(path).await.map_err(written)?;
    let mut length = 0_u64;
    while let Some(octets) = answer.next().await? {
        length += octets.len() as u64;
        if length > MAX_IMAGE {
            return Err(ImageError::TooLong(url.to_owned()));
        }
        file.write_all(&octets).await.map_err(written)?;
    }
    file.sync_all().await.map_err(written)
}

impl Digest {
    /// Compares the digest of a file, called `what` in the error, with this one.
    ///
    /// # Errors
    ///
    /// When they differ, or the file cannot be read.
    pub async fn require(&self, file: &Path, what: &str) -> Result<(), ImageError> {
        let digest = self.method.of(file).await;
        let digest = digest.map_err(|source| ImageError::Read { path: file.to_owned(), source })?;
        if digest == self.octets {
            Ok(())
        } else {
            Err(ImageError::Digest { what: what.to_owned(), method: self.method })
        }
    }
}

impl fmt::Display for DigestMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
            Self::Md5 => "MD5",
        })
    }
}

impl DigestMethod {
    /// Bytes of a digest of this kind.
    pub fn length(self) -> usize {
        match self {
            Self::Sha256 => digest::SHA256_OUTPUT_LEN,
            Self::Sha512 => digest::SHA512_OUTPUT_LEN,
            Self::Md5 => Md5::output_size(),
        }
    }

    async fn of(self, file: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(file).await?;
        match self {
            Self::Sha256 => sha(&mut file, &digest::SHA256).await,
            Self::Sha512 => sha(&mut file, &digest::SHA512).await,
            Self::Md5 => {
                let mut md5 = Md5::new();
                each(&mut file, |octets| md5.update(octets)).await?;
                Ok(md5.finalize().to_vec())
            }
        }
    }
}

async fn sha(file: &mut File, algorithm: &'static digest::Algorithm) -> io::Result<Vec<u8>> {
    let mut context = digest::Context::new(algorithm);
    each(file, |octets| context.update(octets)).await?;
    Ok(context.finish().as_ref().to_vec())
}

async fn each(file: &mut File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    loop {
        match file.read(&mut buffer).await? {
            0 => return Ok(()),
            length => take(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 6.32
    #[tokio::test]
    async fn a_file_is_compared_with_digests_of_each_method() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "abc").unwrap();
        for (method, begins) in [
            // Values of FIPS 180-2 and RFC 1321.
            (DigestMethod::Sha256, [0xba, 0x78, 0x16, 0xbf]),
            (DigestMethod::Sha512, [0xdd, 0xaf, 0x35, 0xa1]),
            (DigestMethod::Md5, [0x90, 0x01, 0x50, 0x98]),
        ] {
            let mut octets = method.of(file.path()).await.unwrap();
            assert_eq!((octets.len(), &octets[..4]), (method.length(), &begins[..]));
            Digest { method, octets: octets.clone() }.require(file.path(), "abc").await.unwrap();
            octets[0] ^= 1;
            let refused = Digest { method, octets }.require(file.path(), "abc").await;
            assert!(refused.unwrap_err().to_string().contains("abc"));
        }
    }
}
