//! SetPackage: a stream of bytes, or a URL to fetch them from, followed by their digest.

use std::time::Duration;

use holdfast_base::{Caller, ErrorChain, RebootInhibitors};
use holdfast_proto::gnoi::common::RemoteDownload;
use holdfast_proto::gnoi::common::remote_download::Protocol;
use holdfast_proto::gnoi::system::{Package, SetPackageRequest, set_package_request};
use holdfast_proto::gnoi::types::HashType;
use holdfast_proto::gnoi::types::hash_type::HashMethod;
use tokio::time::timeout;
use tonic::{Status, Streaming};
use tracing::info;

use crate::image::{Digest, DigestMethod};
use crate::northbound::status::Refusal;
use crate::packages::{PackageError, PackageUpload, Packages};
use crate::slots::check_version;
use crate::software::{ActivateError, Software};

/// The most bytes of one message.
const MAX_CHUNK: usize = 64 << 10;
/// Time of silence after which a package is given up: no other client can send one meanwhile.
const SILENCE: Duration = Duration::from_secs(60);

/// Receives a package, which is kept only if its digest follows and is right. A package that cannot be installed or
/// activated is kept nevertheless.
pub(super) async fn set(
    packages: &Packages,
    software: &Software,
    undertakings: &RebootInhibitors,
    caller: &Caller,
    mut requests: Streaming<SetPackageRequest>,
) -> Result<(), Status> {
    let Some(set_package_request::Request::Package(package)) = next(&mut requests).await? else {
        return Err(Refusal::invalid("the first message must be `package`").into());
    };
    let activate = activation(software, &package)?;
    let remote = package.remote_download.as_ref().map(url).transpose()?;
    let mut incoming = packages.begin(&package.filename)?;
    let undertaking = undertakings.begin(format!("the transfer of package `{}`", package.filename));
    if let Some(url) = &remote {
        incoming.fetch(url).await?;
    }
    let hash = contents(&mut requests, &mut incoming, remote.is_some()).await?;
    let digest = digest(hash)?;
    info!(caller = %caller.name, package = package.filename, "a package is complete");
    // A task of its own, because an installation goes on when the client is gone.
    let software = software.clone();
    let by = caller.name.clone();
    let finished = tokio::spawn(async move {
        let _undertaking = undertaking;
        let file = incoming.finish(&digest).await?;
        if let Some(version) = activate {
            software.install_and_activate(&file, &version, &by).await?;
        }
        Ok::<(), PackageError>(())
    });
    finished.await.map_err(|error| Refusal::internal(error.to_string()))??;
    Ok(())
}

/// The version to install and activate, if any. A request that cannot be met is refused before the client sends bytes.
fn activation(software: &Software, package: &Package) -> Result<Option<String>, Refusal> {
    if !package.activate {
        return Ok(None);
    }
    if package.version.is_empty() {
        return Err(Refusal::invalid("`activate` needs the `version` that shall run"));
    }
    check_version(&package.version).map_err(Refusal::invalid)?;
    software.slots().program().map_err(PackageError::from)?;
    Ok(Some(package.version.clone()))
}

/// Receives bytes up to the digest.
async fn contents(
    requests: &mut Streaming<SetPackageRequest>,
    incoming: &mut PackageUpload,
    is_remote: bool,
) -> Result<HashType, Status> {
    loop {
        match next(requests).await? {
            Some(set_package_request::Request::Contents(_)) if is_remote => {
                return Err(Refusal::invalid(
                    "`contents` and `remote_download` exclude each other",
                )
                .into());
            }
            Some(set_package_request::Request::Contents(octets)) if octets.len() > MAX_CHUNK => {
                let length = octets.len();
                return Err(Refusal::invalid(format!(
                    "`contents` has {length} bytes, and may have {MAX_CHUNK} at most"
                ))
                .into());
            }
            Some(set_package_request::Request::Contents(octets)) => incoming.write(&octets).await?,
            Some(set_package_request::Request::Hash(hash)) => return Ok(hash),
            Some(set_package_request::Request::Package(_)) => {
                return Err(Refusal::invalid("`package` may come once").into());
            }
            None => {
                let text = "the stream ended before `hash`: nothing of the package is kept";
                return Err(Refusal::invalid(text).into());
            }
        }
    }
}

async fn next(
    requests: &mut Streaming<SetPackageRequest>,
) -> Result<Option<set_package_request::Request>, Status> {
    let late = |_| {
        Refusal::late(format!("the client was silent for {SILENCE:?}: the package is discarded"))
    };
    match timeout(SILENCE, requests.message()).await.map_err(late)?? {
        None => Ok(None),
        Some(SetPackageRequest { request: Some(part) }) => Ok(Some(part)),
        Some(SetPackageRequest { request: None }) => {
            Err(Refusal::invalid("a message has none of `package`, `contents`, `hash`").into())
        }
    }
}

/// Reads a gnoi.types.HashType: raw bytes, and their method.
pub(super) fn digest(hash: HashType) -> Result<Digest, Refusal> {
    let method = match HashMethod::try_from(hash.method) {
        Ok(HashMethod::Sha256) => DigestMethod::Sha256,
        Ok(HashMethod::Sha512) => DigestMethod::Sha512,
        Ok(HashMethod::Md5) => DigestMethod::Md5,
        Ok(HashMethod::Unspecified) | Err(_) => {
            let method = hash.method;
            return Err(Refusal::invalid(format!(
                "hash.method {method} is unknown: use SHA256, SHA512 or MD5"
            )));
        }
    };
    let has = hash.hash.len();
    let needs = method.length();
    if has != needs {
        return Err(Refusal::invalid(format!(
            "hash.hash has {has} bytes, but {method} needs {needs}: send raw bytes, not text"
        )));
    }
    Ok(Digest { method, octets: hash.hash.into() })
}

/// URL to fetch from. Only HTTP without credentials is supported, as for images of a bootstrap.
fn url(remote: &RemoteDownload) -> Result<String, Refusal> {
    let protocol = Protocol::try_from(remote.protocol).unwrap_or(Protocol::Unknown);
    match protocol {
        Protocol::Http => {}
        Protocol::Unknown => return Err(Refusal::invalid("remote_download.protocol is missing")),
        other => {
            let other = other.as_str_name();
            return Err(Refusal::unimplemented(format!(
                "remote_download.protocol {other} is not supported: use HTTP (the hash protects the content)"
            )));
        }
    }
    for (field, is_set) in [
        ("credentials", remote.credentials.is_some()),
        ("source_address", !remote.source_address.is_empty()),
        ("source_vrf", !remote.source_vrf.is_empty()),
    ] {
        if is_set {
            return Err(Refusal::unimplemented(format!(
                "remote_download.{field} is not supported"
            )));
        }
    }
    match remote.path.as_str() {
        "" => Err(Refusal::invalid("remote_download.path is missing")),
        path if path.contains("://") => Ok(path.to_owned()),
        path => Ok(format!("http://{path}")),
    }
}

impl From<PackageError> for Refusal {
    fn from(error: PackageError) -> Self {
        use crate::http_client::HttpError;
        use crate::image::ImageError;
        let text = ErrorChain(&error).to_string();
        match error {
            PackageError::Name { .. } => Self::invalid(text),
            PackageError::Busy => Self::busy(text),
            PackageError::Slot(_) | PackageError::Activate(ActivateError::Slot(_)) => {
                Self::precondition(text)
            }
            PackageError::TooLong(_) => Self::exhausted(text),
            PackageError::Image(error) => match error {
                ImageError::Http(HttpError::Url(_)) | ImageError::Digest { .. } => {
                    Self::invalid(text)
                }
                ImageError::TooLong(_) => Self::exhausted(text),
                ImageError::Write { .. }
                | ImageError::Read { .. }
                | ImageError::Http(HttpError::Trust { .. }) => Self::internal(text),
                ImageError::Http(_) => Self::busy(text),
                ImageError::Status { .. } => Self::precondition(text),
            },
            _ => Self::internal(text),
        }
    }
}

impl From<PackageError> for Status {
    fn from(error: PackageError) -> Self {
        Refusal::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    // proves 6.32
    #[test]
    fn a_hash_is_raw_octets_of_a_method_that_is_said() {
        for (method, length, want) in [
            (HashMethod::Sha256, 32, Some(DigestMethod::Sha256)),
            (HashMethod::Sha512, 64, Some(DigestMethod::Sha512)),
            (HashMethod::Md5, 16, Some(DigestMethod::Md5)),
            (HashMethod::Unspecified, 32, None),
            (HashMethod::Sha256, 64, None), // hexadecimal digits
            (HashMethod::Sha256, 0, None),
        ] {
            let octets = vec![7; length];
            let hash = HashType { method: method.into(), hash: octets.clone().into() };
            let read = digest(hash).map_err(|refusal| Status::from(refusal).code());
            let want = want.map(|method| Digest { method, octets });
            assert_eq!(read, want.ok_or(Code::InvalidArgument), "{method:?} {length}");
        }
        let hash = HashType { method: 9, hash: vec![7; 32].into() };
        assert!(digest(hash).is_err());
    }

    #[test]
    fn only_what_can_be_fetched_is() {
        let plain = |protocol: Protocol, path: &str| RemoteDownload {
            protocol: protocol.into(),
            path: path.to_owned(),
            ..Default::default()
        };
        let vrf = RemoteDownload {
            source_vrf: "mgmt".to_owned(),
            ..plain(Protocol::Http, "host/os.img")
        };
        for (remote, want) in [
            (plain(Protocol::Http, "host:8080/os.img"), Ok("http://host:8080/os.img")),
            (plain(Protocol::Http, "http://host/os.img"), Ok("http://host/os.img")),
            (plain(Protocol::Http, ""), Err(Code::InvalidArgument)),
            (plain(Protocol::Unknown, "host/os.img"), Err(Code::InvalidArgument)),
            (plain(Protocol::Https, "host/os.img"), Err(Code::Unimplemented)),
            (plain(Protocol::Scp, "host:os.img"), Err(Code::Unimplemented)),
            (vrf, Err(Code::Unimplemented)),
        ] {
            let read = url(&remote).map_err(|refusal| Status::from(refusal).code());
            assert_eq!(read, want.map(str::to_owned), "{remote:?}");
        }
    }
}
