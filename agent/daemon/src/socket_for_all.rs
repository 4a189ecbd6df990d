//! Unix sockets to which every process of the box may connect; the kernel tells who that is.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::Path;

use holdfast_base::is_root_or_own;
use nix::fcntl::OFlag;
use tokio::net::UnixListener;

/// Mode of the socket: the kernel asks for write permission of whoever connects, and the user is judged later.
const MODE: u32 = 0o666;

/// Opens a socket for all. An existing socket is that of an agent that was killed; any other file stays.
///
/// # Errors
/// When the path cannot be used, or somebody exchanges the file meanwhile.
pub(crate) fn bind_for_all(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let bound = OpenOptions::new().read(true).custom_flags(AS_IT_IS.bits()).open(path)?;
    open_to_all(&bound, path)?;
    Ok(listener)
}

/// Opens what has a name, and neither what a link there leads to nor its content.
const AS_IT_IS: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);

/// Lets everybody connect to the socket that was opened by its name. Where others may write the folder they can put something
/// else there before, which stays as it is.
fn open_to_all(bound: &File, path: &Path) -> io::Result<()> {
    let metadata = bound.metadata()?;
    if !metadata.file_type().is_socket() || !is_root_or_own(metadata.uid()) {
        let reason = format!("`{}` was exchanged for something else", path.display());
        return Err(io::Error::other(reason));
    }
    // The kernel changes the mode of what is open, whatever has its name by now.
    let opened = format!("/proc/self/fd/{}", bound.as_raw_fd());
    fs::set_permissions(opened, Permissions::from_mode(MODE))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn the_mode_is_that_of_the_socket_alone() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("socket");
        let secret = folder.path().join("secret");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let _listener = bind_for_all(&path).unwrap();
        assert_eq!(mode(&path), MODE);

        // A file that others put in its place between the two calls stays as it is.
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let opened = |path: &Path| {
            OpenOptions::new().read(true).custom_flags(AS_IT_IS.bits()).open(path).unwrap()
        };
        fs::remove_file(&path).unwrap();
        symlink(&secret, &path).unwrap();
        for exchanged in [&path, &secret] {
            let refused = open_to_all(&opened(exchanged), &path).unwrap_err();
            assert!(refused.to_string().contains("was exchanged"), "{refused}");
        }
        assert_eq!(mode(&secret), 0o600);
    }
}
