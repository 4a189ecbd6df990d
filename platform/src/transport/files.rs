//! Text files below the settings' root: `etc/motd`, `etc/hosts` and the like.
//!
//! A file is replaced as a whole or not at all: written under a temporary name, synced, renamed. Of some files
//! only the lines between two marker lines are ours; all others are left untouched.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use zeroize::Zeroizing;

use crate::values::Content;

/// Marker before our lines.
const BLOCK_BEGIN: &str = "# BEGIN holdfast: what is written between these lines is replaced";
/// Marker after our lines.
const BLOCK_END: &str = "# END holdfast";
/// Permissions of files: world-readable, as in a distribution.
const MODE: u32 = 0o644;
/// Permissions of folders: world-readable, as in a distribution.
const FOLDER_MODE: u32 = 0o755;
/// Largest file that is read back, in bytes: a larger one was not written by us.
const MAX_OCTETS: u64 = 4 << 20;

/// Folder that is used as `/`.
#[derive(Clone, Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Replaces the content of a file.
    ///
    /// [`Content::Absent`] removes our block if there is one, else the file; an empty block removes the block. A
    /// symbolic link is replaced, its target is not written.
    ///
    /// # Errors
    /// When the path leads out of the root, or the file cannot be written.
    pub(crate) fn write(&self, path: &str, content: &Content) -> io::Result<()> {
        let file = self.place(path)?;
        match content {
            Content::Link { target, .. } => replace_by_link(&file, target),
            Content::Whole(text) => {
                let same = self.link(path)?.is_none() && read_text(&file)?.as_ref() == Some(text);
                if same { Ok(()) } else { replace(&file, text.as_bytes(), Attributes::PUBLIC) }
            }
            Content::Block(lines) => {
                refuse_symbolic_link(&file)?;
                write_block(&file, lines)
            }
            Content::OwnHost { .. } => {
                Err(io::Error::other("the name of the host is not filled in"))
            }
            Content::Absent => match read_utf8(&file)? {
                Some(text) if block(&text).is_some() => write_block(&file, ""),
                _ => remove(&file),
            },
        }
    }

    /// Reads a whole file; `None` when it does not exist.
    ///
    /// # Errors
    /// When the path leads out of the root, or the file cannot be read or is not text.
    pub(crate) fn read(&self, path: &str) -> io::Result<Option<String>> {
        read_text(&self.place(path)?)
    }

    /// Target of the symbolic link at this path, as stored in the link; `None` when there is no link.
    ///
    /// # Errors
    /// When the path leads out of the root, or the link cannot be read.
    pub(crate) fn link(&self, path: &str) -> io::Result<Option<String>> {
        match fs::read_link(self.place(path)?) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EINVAL | Errno::ENOENT) => Ok(None), // no link, nothing at all
                _ => Err(error),
            },
        }
    }

    /// The root itself.
    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Path below the root. Only plain names are valid: no `..`, no leading slash.
    pub(super) fn place(&self, path: &str) -> io::Result<PathBuf> {
        let plain =
            Path::new(path).components().all(|component| matches!(component, Component::Normal(_)));
        if path.is_empty() || !plain {
            let message = format!("`{path}` is not a path below the root");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(self.0.join(path))
    }
}

/// Our lines in a text, without the markers; `None` without a block of ours.
pub(crate) fn block(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(&format!("{BLOCK_BEGIN}\n"))?;
    let end = rest.find(BLOCK_END)?;
    Some(&rest[..end])
}

/// Replaces or appends our block in a text, or removes it when `lines` is empty.
fn with_block(text: &str, lines: &str) -> String {
    let whole = if lines.is_empty() {
        String::new()
    } else {
        format!("{BLOCK_BEGIN}\n{}\n{BLOCK_END}\n", lines.trim_end_matches('\n'))
    };
    if let Some(old) = block(text) {
        let old = format!("{BLOCK_BEGIN}\n{old}{BLOCK_END}");
        let (before, after) = text.split_once(&old).unwrap_or((text, ""));
        return format!("{before}{whole}{}", after.strip_prefix('\n').unwrap_or(after));
    }
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{newline}{whole}")
}

/// Replaces our block. The rest of the file is kept, so all of it must be readable.
fn write_block(file: &Path, lines: &str) -> io::Result<()> {
    let present = read_utf8(file)?;
    let text = with_block(present.as_deref().unwrap_or(""), lines);
    match present {
        Some(present) if present == text => Ok(()),
        _ => replace(file, text.as_bytes(), Attributes::PUBLIC),
    }
}

/// Refuses to write a block into a symbolic link: the program that owns its target would not see our copy.
fn refuse_symbolic_link(file: &Path) -> io::Result<()> {
    let is_link = fs::symlink_metadata(file).is_ok_and(|meta| meta.is_symlink());
    if !is_link {
        return Ok(());
    }
    let message = format!("{} is a symbolic link: another program writes it", file.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn read_utf8(file: &Path) -> io::Result<Option<String>> {
    let text = read_text(file)?;
    if text.as_deref().is_some_and(|text| text.contains(char::REPLACEMENT_CHARACTER)) {
        let message =
            format!("{} is not UTF-8 text, and parts of it belong to others", file.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

/// Reads a text file; bytes that are not UTF-8 become replacement characters.
fn read_text(file: &Path) -> io::Result<Option<String>> {
    let octets = read_regular(file, MAX_OCTETS)?;
    Ok(octets.map(|octets| String::from_utf8_lossy(&octets).into_owned()))
}

/// Reads a file of at most `most` bytes; `None` when it does not exist.
///
/// # Errors
/// When the file is larger, or no regular one: a pipe would have its reader wait for a writer, and a device need never end.
pub(super) fn read_regular(file: &Path, most: u64) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let meta = opened.metadata()?;
    if !meta.is_file() {
        let message = format!("{} is not a regular file", file.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // The whole size at once, because an allocation that grows leaves copies of secrets behind.
    let room = usize::try_from(meta.len().min(most)).unwrap_or_default() + 1;
    let mut octets = Zeroizing::new(Vec::with_capacity(room));
    opened.take(most + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > most {
        let message = format!("{} is larger than {most} bytes", file.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(Some(octets))
}

/// Creates a folder and its missing parents, world-readable like the files in it.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists());
    let missing: Vec<_> = missing.collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?; // regardless of the umask
    }
    Ok(())
}

/// Permissions and owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    /// User and group; `None` for those of this process.
    pub(super) owner: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) const PUBLIC: Self = Self { mode: MODE, owner: None };
}

/// Temporary name under which a file is written.
pub(super) fn beside(name: &str) -> String {
    format!(".{name}.holdfast")
}

/// Replaces a file atomically.
pub(super) fn replace(file: &Path, content: &[u8], attributes: Attributes) -> io::Result<()> {
    let written = create_and_rename(file, |beside| write_synced(beside, content, attributes));
    // A file that is itself a mount point (as in containers) cannot be replaced by a rename.
    match written.as_ref().map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
        Err(Some(Errno::EBUSY | Errno::EXDEV)) => write_in_place(file, content),
        _ => written,
    }
}

fn replace_by_link(file: &Path, target: &str) -> io::Result<()> {
    create_and_rename(file, |beside| symlink(target, beside))
}

/// Creates something under the temporary name, renames it, and syncs the folder.
fn create_and_rename(file: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    make_folder(folder)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(beside(&name));
    // A temporary file of an earlier run may have other permissions.
    remove(&beside)?;
    match make(&beside).and_then(|()| fs::rename(&beside, file)) {
        Ok(()) => File::open(folder)?.sync_all(),
        Err(error) => {
            let _ = fs::remove_file(&beside);
            Err(error)
        }
    }
}

fn write_synced(file: &Path, content: &[u8], attributes: Attributes) -> io::Result<()> {
    let mut handle = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    if let Some((user, group)) = attributes.owner {
        fchown(&handle, Some(user), Some(group))?;
    }
    handle.set_permissions(Permissions::from_mode(attributes.mode))?; // regardless of the umask
    handle.write_all(content)?;
    handle.sync_all()
}

fn write_in_place(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut handle = OpenOptions::new().write(true).truncate(true).open(file)?;
    handle.write_all(content)?;
    handle.sync_all()
}

pub(super) fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_invalid_utf8_is_not_rewritten() {
        let root = tempfile::tempdir().unwrap();
        let foreign = b"10.0.0.1 caf\xe9\n";
        fs::write(root.path().join("hosts"), foreign).unwrap();
        let files = Root::new(root.path().to_owned());
        let refused = files.write("hosts", &Content::Block("127.0.1.1 box\n".to_owned()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read(root.path().join("hosts")).unwrap(), foreign);
    }

    #[test]
    fn no_block_is_written_through_a_symbolic_link() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("kept");
        let link = root.path().join("resolv.conf");
        fs::write(&target, "nameserver 192.0.2.53\n").unwrap();
        symlink(&target, &link).unwrap();
        let files = Root::new(root.path().to_owned());
        let refused = files.write("resolv.conf", &Content::Block("search a\n".to_owned()));
        assert!(refused.unwrap_err().to_string().contains("symbolic link"));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"nameserver 192.0.2.53\n");
    }

    #[test]
    fn a_replaced_symbolic_link_is_restored_and_not_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("kept"), "theirs\n").unwrap();
        symlink("kept", root.path().join("motd")).unwrap();
        let files = Root::new(root.path().to_owned());
        let target = files.link("motd").unwrap().unwrap();
        let text = files.read("motd").unwrap().unwrap();
        for ours in ["ours\n", "theirs\n"] {
            files.write("motd", &Content::Whole(ours.to_owned())).unwrap();
            assert_eq!(
                (files.link("motd").unwrap(), files.read("motd").unwrap().unwrap()),
                (None, ours.to_owned())
            );
            assert_eq!(fs::read(root.path().join("kept")).unwrap(), b"theirs\n");
            let link = Content::Link { target: target.clone(), text: text.clone() };
            files.write("motd", &link).unwrap();
            assert_eq!(files.link("motd").unwrap().as_deref(), Some("kept"));
        }
    }

    const FOREIGN: &str = "127.0.0.1 localhost\n";

    fn marked(lines: &str) -> String {
        format!("{BLOCK_BEGIN}\n{lines}\n{BLOCK_END}\n")
    }

    #[test]
    fn only_our_content_of_a_file_is_replaced() {
        // the file before, what is asked, the file after
        let whole = |text: &str| Content::Whole(text.into());
        let ours = |text: &str| Content::Block(text.into());
        check(None, &whole("hello\n"), Some("hello\n"));
        check(Some("old"), &whole("new\n"), Some("new\n"));
        check(Some("old"), &Content::Absent, None);
        check(None, &Content::Absent, None);
        check(None, &ours("10.0.0.1 box"), Some(&marked("10.0.0.1 box")));
        check(Some(FOREIGN), &ours("a"), Some(&format!("{FOREIGN}{}", marked("a"))));
        check(Some("no newline"), &ours("a"), Some(&format!("no newline\n{}", marked("a"))));
        let both = format!("{FOREIGN}{}::1 ip6\n", marked("a\nb"));
        check(Some(&both), &ours("c\n"), Some(&format!("{FOREIGN}{}::1 ip6\n", marked("c"))));
        check(Some(&both), &ours(""), Some(&format!("{FOREIGN}::1 ip6\n")));
        check(Some(&both), &Content::Absent, Some(&format!("{FOREIGN}::1 ip6\n")));
    }

    #[track_caller]
    fn check(before: Option<&str>, content: &Content, after: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let file = folder.path().join("etc/thing");
        if let Some(text) = before {
            fs::create_dir_all(folder.path().join("etc")).unwrap();
            fs::write(&file, text).unwrap();
        }
        root.write("etc/thing", content).unwrap();
        assert_eq!(root.read("etc/thing").unwrap().as_deref(), after);
        if after.is_some() && before != after {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, MODE);
            assert_eq!(fs::read_dir(folder.path().join("etc")).unwrap().count(), 1, "left over");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        symlink("pipe", folder.path().join("link")).unwrap();
        symlink("/dev/zero", folder.path().join("device")).unwrap();
        for path in ["pipe", "socket", "folder", "link", "device"] {
            root.read(path).expect_err(path);
            let over = root.write(path, &Content::Block("ours".to_owned())).expect_err(path);
            assert!(!over.to_string().is_empty());
        }
        let error = root.read("pipe").unwrap_err().to_string();
        assert!(error.ends_with("pipe is not a regular file"), "{error}");
    }

    #[test]
    fn files_above_the_limit_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_regular(&file, 5).unwrap().unwrap().as_slice(), b"12345");
        let error = read_regular(&file, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        // The kernel shows the files of /proc as empty ones, whatever is in them.
        assert_eq!(
            read_regular(Path::new("/proc/self/status"), 9).unwrap_err().kind(),
            error.kind()
        );
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        for path in ["../outside", "/etc/motd", "etc/../../outside", ""] {
            let error = root.write(path, &Content::Whole(String::new())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
