//! The archive of a package: an uncompressed tar of regular files, and nothing else.
//!
//! Nothing is unpacked: files are slices of the bytes. Whatever an archive may hold besides (links, folders, devices,
//! headers of extensions, paths that lead elsewhere) is refused by its name.

use std::collections::BTreeMap;
use std::io::{self, Cursor};
use std::sync::Arc;

use holdfast_config::limits::excerpt;
use smol_str::SmolStr;
use tar::{EntryType, Header};

use crate::error::{PackageError, PackageErrors};
use crate::limits::{PACKAGE_FILES, PACKAGE_SIZE};

/// Bytes of a record of a tar: headers take one, and contents are filled up to whole ones.
const RECORD: usize = 512;
/// Records of zeros that end a tar.
const END: usize = 2 * RECORD;

/// The files of a package by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageFiles(BTreeMap<SmolStr, Arc<[u8]>>);

impl PackageFiles {
    /// Files that the caller has read from a folder.
    ///
    /// # Errors
    /// When there are too many, they are too large, or one of their paths cannot stand in an archive.
    pub fn new(
        files: impl IntoIterator<Item = (SmolStr, Arc<[u8]>)>,
    ) -> Result<Self, PackageErrors> {
        let mut found = Self::default();
        for (path, content) in files {
            found.add(&path, content)?;
        }
        Ok(found)
    }

    /// Reads an archive.
    ///
    /// # Errors
    /// At the first entry that is not a regular file of the package, and when the archive is cut or too large.
    pub fn read(archive: &[u8]) -> Result<Self, PackageErrors> {
        PACKAGE_SIZE.check(archive.len()).map_err(|error| PackageError::of_file("", error))?;
        let mut files = Self::default();
        let mut end = 0;
        let mut reader = tar::Archive::new(archive);
        let entries = reader.entries().map_err(|error| cut(&error))?;
        for entry in entries.raw(true) {
            let entry = entry.map_err(|error| cut(&error))?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let fail = |reason: &str| PackageError::of_file(&excerpt(&path), reason);
            let header = entry.header();
            if let Some(kind) = refused_kind(header.entry_type()) {
                return Err(fail(kind).into());
            }
            let start = usize::try_from(entry.raw_file_position()).unwrap_or(usize::MAX);
            let length = usize::try_from(entry.size()).unwrap_or(usize::MAX);
            let content = start.checked_add(length).and_then(|to| archive.get(start..to));
            let content = content.ok_or_else(|| fail("the archive is cut in this file"))?;
            files.add(&path, content.into())?;
            end = start + length.next_multiple_of(RECORD);
        }
        let rest = archive.get(end..).unwrap_or_default();
        if rest.len() < END {
            return Err(PackageError::of_file("", "the archive is cut: its end is missing").into());
        }
        if rest.iter().any(|octet| *octet != 0) {
            return Err(
                PackageError::of_file("", "something follows the end of the archive").into()
            );
        }
        Ok(files)
    }

    /// Writes the archive. The same files give the same bytes.
    ///
    /// # Errors
    /// When a path is too long for a tar without extensions, or the archive is too large.
    pub fn write(&self) -> Result<Vec<u8>, PackageErrors> {
        let mut archive = tar::Builder::new(Cursor::new(Vec::new()));
        for (path, content) in &self.0 {
            append(&mut archive, path, content)
                .map_err(|error| PackageError::of_file(path, error))?;
        }
        let octets = archive.into_inner().map_err(|error| PackageError::of_file("", error))?;
        let octets = octets.into_inner();
        PACKAGE_SIZE.check(octets.len()).map_err(|error| PackageError::of_file("", error))?;
        Ok(octets)
    }

    /// Paths and contents, in the order of the paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(path, content)| (path.as_str(), &**content))
    }

    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path).map(|content| &**content)
    }

    /// Content of a file as text.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn text(&self, path: &str) -> Option<Result<&str, PackageError>> {
        let text = std::str::from_utf8(self.get(path)?);
        Some(
            text.map_err(|error| {
                PackageError::of_file(path, format!("the file is not text: {error}"))
            }),
        )
    }

    fn add(&mut self, path: &str, content: Arc<[u8]>) -> Result<(), PackageErrors> {
        let fail = |reason: &str| PackageError::of_file(&excerpt(path), reason);
        if let Some(reason) = refused_path(path) {
            return Err(fail(reason).into());
        }
        if self.0.insert(path.into(), content).is_some() {
            return Err(fail("the file is in the archive twice").into());
        }
        let size = self.0.values().map(|content| content.len()).sum();
        let fits = PACKAGE_FILES.check(self.0.len()).and_then(|()| PACKAGE_SIZE.check(size));
        fits.map_err(|error| PackageError::of_file("", error).into())
    }
}

fn cut(error: &io::Error) -> PackageErrors {
    PackageError::of_file("", format!("the archive cannot be read, or is cut: {error}")).into()
}

fn append(
    archive: &mut tar::Builder<Cursor<Vec<u8>>>,
    path: &str,
    content: &[u8],
) -> io::Result<()> {
    /// Permissions of the files, for people who unpack the archive.
    const MODE: u32 = 0o644;
    let mut header = Header::new_ustar();
    header.set_path(path)?;
    header.set_size(content.len() as u64);
    header.set_mode(MODE);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    archive.append(&header, content)
}

/// Reason to refuse an entry that is not a regular file.
fn refused_kind(kind: EntryType) -> Option<&'static str> {
    match kind {
        EntryType::Regular => None,
        EntryType::Directory => Some("the entry is a folder; a package has regular files only"),
        EntryType::Symlink | EntryType::Link => {
            Some("the entry is a link; a package has regular files only")
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            Some("the entry is a device or a pipe; a package has regular files only")
        }
        _ => Some("the entry is an extension of tar; `holdfast service pack` writes none"),
    }
}

/// Reason to refuse the path of a file.
fn refused_path(path: &str) -> Option<&'static str> {
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '\\' | ':');
    if path.starts_with('/') {
        return Some("the path begins at the root; a package has relative paths");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("the path leads out of the package");
    }
    if path.split('/').any(|part| part.is_empty() || part == ".") {
        return Some("the path has an empty part, or `.`");
    }
    path.contains(odd).then_some("the path has a character that no file of a package needs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[(&str, &str)]) -> PackageFiles {
        let file = |(path, text): &(&str, &str)| ((*path).into(), text.as_bytes().into());
        PackageFiles::new(paths.iter().map(file)).unwrap()
    }

    fn archive() -> Vec<u8> {
        files(&[("service.toml", "[service]\n"), ("templates/main.cli", "interface br0\n")])
            .write()
            .unwrap()
    }

    /// An archive with one entry of this kind and path, which `tar` itself would not write.
    fn entry(kind: EntryType, path: &str) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.set_size(0);
        header.set_entry_type(kind);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        let mut octets = header.as_bytes().to_vec();
        octets.extend([0; END]);
        octets
    }

    #[track_caller]
    fn check(archive: &[u8], reason: &str) {
        let errors = PackageFiles::read(archive).unwrap_err().to_string();
        assert!(errors.contains(reason), "{errors}");
    }

    #[test]
    fn an_archive_is_read_as_it_was_written_and_written_alike() {
        let read = PackageFiles::read(&archive()).unwrap();
        let paths: Vec<&str> = read.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["service.toml", "templates/main.cli"]);
        assert_eq!(read.text("templates/main.cli").unwrap().unwrap(), "interface br0\n");
        assert_eq!(read.write().unwrap(), archive());
    }

    #[test]
    fn entries_that_are_no_files_of_the_package_are_refused_by_name() {
        for (kind, reason) in [
            (EntryType::Symlink, "odd: the entry is a link"),
            (EntryType::Link, "odd: the entry is a link"),
            (EntryType::Directory, "odd: the entry is a folder"),
            (EntryType::Char, "odd: the entry is a device"),
            (EntryType::Fifo, "odd: the entry is a device or a pipe"),
            (EntryType::GNUSparse, "odd: the entry is an extension"),
            (EntryType::XHeader, "odd: the entry is an extension"),
            (EntryType::GNULongName, "odd: the entry is an extension"),
        ] {
            check(&entry(kind, "odd"), reason);
        }
        for (path, reason) in [
            ("/etc/passwd", "/etc/passwd: the path begins at the root"),
            ("templates/../../x", "templates/../../x: the path leads out"),
            ("./service.toml", "./service.toml: the path has an empty part, or `.`"),
            ("a//b", "a//b: the path has an empty part"),
            ("a b", "a b: the path has a character"),
            ("a\nb", "the path has a character"),
        ] {
            check(&entry(EntryType::Regular, path), reason);
        }
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_is_refused() {
        let whole = archive();
        for length in 0..whole.len() {
            let error = PackageFiles::read(&whole[..length]).unwrap_err();
            assert!(error.to_string().contains("cut"), "{length}: {error}");
        }
    }

    #[test]
    fn octets_after_the_end_and_damaged_headers_are_refused() {
        let mut longer = archive();
        longer.extend([0; RECORD]);
        assert!(PackageFiles::read(&longer).is_ok(), "tar fills up with zeros");
        longer.push(b'x');
        check(&longer, "something follows the end");
        let mut damaged = archive();
        damaged[0] ^= 1;
        check(&damaged, "cannot be read");
        let mut twice = archive();
        let first: Vec<u8> = twice[..2 * RECORD].to_vec();
        twice.splice(0..0, first);
        check(&twice, "service.toml: the file is in the archive twice");
    }

    #[test]
    fn the_figure_of_a_limit_is_accepted_and_one_more_is_not() {
        let many = |count: usize| {
            let file = |number| (format!("f{number}").into(), Arc::from([]));
            PackageFiles::new((0..count).map(file))
        };
        assert!(many(PACKAGE_FILES.figure).is_ok());
        let error = many(PACKAGE_FILES.figure + 1).unwrap_err();
        assert!(error.to_string().contains("package-files"), "{error}");
        let sized = |size: usize| {
            PackageFiles::new([("f".into(), vec![0; size].into())]).and_then(|files| files.write())
        };
        assert!(sized(PACKAGE_SIZE.figure - RECORD - END).is_ok());
        let error = sized(PACKAGE_SIZE.figure - RECORD - END + 1).unwrap_err();
        assert!(error.to_string().contains("package-size"), "{error}");
        check(&vec![0; PACKAGE_SIZE.figure + 1], "package-size");
    }
}
