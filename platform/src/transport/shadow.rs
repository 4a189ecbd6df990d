//! The shadow file: one line for each account, with the hash of its password in the second field (shadow(5)).
//!
//! The file is replaced as a whole, keeping its owner and permissions, under the lock that passwd(1) uses as well.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_security::credentialz::Digest;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use smol_str::SmolStr;
use zeroize::Zeroizing;

use super::credentials::read;
use super::files::{self, Attributes, Root};

const SHADOW: &str = "etc/shadow";
const PASSWD: &str = "etc/passwd";
/// Lock file for changes of passwords (lckpwdf(3)).
const LOCK: &str = "etc/.pwd.lock";
/// Seconds of a day, the unit of password ages.
const DAY_S: u64 = 86_400;

/// The file while it is locked.
pub(super) struct ShadowFile<'r> {
    root: &'r Root,
    _lock: File,
}

impl<'r> ShadowFile<'r> {
    /// Locks the file.
    ///
    /// # Errors
    /// `EAGAIN` or `EACCES` when another program holds the lock.
    pub(super) fn of(root: &'r Root) -> io::Result<Self> {
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(root.place(LOCK)?)?;
        let whole = libc::flock {
            l_type: i16::try_from(libc::F_WRLCK).expect("a small constant"),
            l_whence: i16::try_from(libc::SEEK_SET).expect("a small constant"),
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        fcntl(&lock, FcntlArg::F_SETLK(&whole))?;
        Ok(Self { root, _lock: lock })
    }

    /// Sets the hash of an account, and the date in the next field, so that the age of the old password does not
    /// lock the new one. `keep` receives the previous hash before anything is written.
    pub(super) fn set(
        &self,
        account: &str,
        hash: &[u8],
        keep: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let file = self.root.place(SHADOW)?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no such account");
        let content = read(&file)?.ok_or_else(missing)?;
        let line = line_of(&content, account).ok_or_else(missing)?;
        let mut fields = line.split(|octet| *octet == b':');
        let name = fields.next().unwrap_or_default();
        let before = fields.next().unwrap_or_default();
        keep(before)?;
        let today =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs() / DAY_S);
        let today = today.to_string();
        let rest = fields.skip(1).flat_map(|field| [b":".as_slice(), field]);
        let mut changed = Zeroizing::new([name, b":", hash, b":", today.as_bytes()].concat());
        changed.extend(rest.flatten());
        let at = line.as_ptr() as usize - content.as_ptr() as usize;
        let whole = [&content[..at], &changed, &content[at + line.len()..]].concat();
        let meta = fs::metadata(&file)?;
        let owner = Some((meta.uid(), meta.gid()));
        let mode = meta.permissions().mode() & 0o7777;
        files::replace(&file, &Zeroizing::new(whole), Attributes { mode, owner })
    }

    /// Digest of an account's hash.
    pub(super) fn read(root: &Root, account: &str) -> io::Result<Option<Digest>> {
        let Some(content) = read(&root.place(SHADOW)?)? else { return Ok(None) };
        let hash = line_of(&content, account).and_then(|it| it.split(|it| *it == b':').nth(1));
        Ok(hash.map(Digest::of))
    }

    /// Accounts with a line in both files, and the digests of their hashes.
    pub(super) fn accounts(root: &Root) -> io::Result<Vec<(SmolStr, Digest)>> {
        let passwd = read(&root.place(PASSWD)?)?.unwrap_or_default();
        let names: BTreeSet<SmolStr> = lines(&passwd).map(|(name, _)| name).collect();
        let shadow = read(&root.place(SHADOW)?)?.unwrap_or_default();
        let both = lines(&shadow).filter(|(name, _)| names.contains(name));
        Ok(both.map(|(name, hash)| (name, Digest::of(hash))).collect())
    }
}

/// Names at the beginning of lines, with the second field of each.
fn lines(content: &[u8]) -> impl Iterator<Item = (SmolStr, &[u8])> {
    content.split(|octet| *octet == b'\n').filter_map(|line| {
        let mut fields = line.split(|octet| *octet == b':');
        let name = std::str::from_utf8(fields.next()?).ok().filter(|name| !name.is_empty())?;
        Some((name.into(), fields.next()?))
    })
}

/// Line of an account, without its end.
fn line_of<'c>(content: &'c [u8], account: &str) -> Option<&'c [u8]> {
    let is_its = |line: &&[u8]| {
        line.strip_prefix(account.as_bytes()).is_some_and(|rest| rest.starts_with(b":"))
    };
    content.split(|octet| *octet == b'\n').find(is_its).filter(|_| !account.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "root:*:19000:0:99999:7:::\nal:!:1:0:9:7:::\nalice:$6$old:19000:0:99999:7:::\nbob:x:1::::::\n";

    #[test]
    fn one_hash_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let file = folder.path().join(SHADOW);
        fs::write(&file, BEFORE).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(folder.path().join(PASSWD), "root:x:0:0\nalice:x:1:1\ngone:x:2:2\n").unwrap();
        let root = Root::new(folder.path());
        let digests = [("root".into(), Digest::of(b"*")), ("alice".into(), Digest::of(b"$6$old"))];
        assert_eq!(ShadowFile::accounts(&root).unwrap(), digests);
        assert_eq!(ShadowFile::read(&root, "alice").unwrap(), Some(Digest::of(b"$6$old")));
        assert_eq!(ShadowFile::read(&root, "ali").unwrap(), None);

        let mut lines = Vec::new();
        let keep = |before: &[u8]| {
            lines.extend_from_slice(before);
            Ok(())
        };
        ShadowFile::of(&root).unwrap().set("alice", b"$6$new", keep).unwrap();
        assert_eq!(lines, b"$6$old");
        let after = fs::read_to_string(&file).unwrap();
        let (head, tail) = after.split_once("alice:$6$new:").unwrap();
        assert_eq!(head, "root:*:19000:0:99999:7:::\nal:!:1:0:9:7:::\n");
        let (day, rest) = tail.split_once(':').unwrap();
        assert!(day.parse::<u32>().unwrap() > 19_000, "its age starts again");
        assert_eq!(rest, "0:99999:7:::\nbob:x:1::::::\n");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_hash_is_not_replaced_before_the_previous_one_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join(SHADOW), BEFORE).unwrap();
        let root = Root::new(folder.path());
        let shadow = ShadowFile::of(&root).unwrap();
        let refused = |_: &[u8]| Err(io::Error::other("no"));
        assert_eq!(shadow.set("alice", b"h", refused).unwrap_err().to_string(), "no");
        let missing = shadow.set("eve", b"h", |_| Ok(())).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_to_string(folder.path().join(SHADOW)).unwrap(), BEFORE);
    }
}
