//! A database file that version 1 of the format has left behind.
//!
//! `version-1.runs` was written by the agent before blocks: transaction 1 is committed, 2 waits to be confirmed, and 3
//! is prepared, as after a kill. Runs of equal bytes are shortened: the file is a sequence of {length, bytes, count,
//! byte that is repeated}, with lengths and counts as `u32`, little endian.

use super::*;
use crate::layer_table::BlockWork;

const FILE: &[u8] = include_bytes!("version-1.runs");

fn unpacked() -> Vec<u8> {
    let mut rest = FILE;
    let mut file = Vec::new();
    let mut take = |octets: usize| rest.split_off(..octets).unwrap();
    let number = |octets: &[u8]| u32::from_le_bytes(octets.try_into().unwrap()) as usize;
    while file.len() < 573_440 {
        let length = number(take(4));
        file.extend_from_slice(take(length));
        let count = number(take(4));
        file.resize(file.len() + count, take(1)[0]);
    }
    assert!(rest.is_empty());
    file
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(FILE_NAME), unpacked()).unwrap();
    folder
}

/// Layers of transaction 1.
fn first() -> String {
    let entries = (0..100).map(|number| format!(" a list, {number:03}=first"));
    ["a leaf=first".to_owned()].into_iter().chain(entries).collect::<String>()
        + " \u{fffd}s0ada=a hash"
}

#[test]
fn a_file_of_version_1_is_migrated_at_the_first_opening() {
    let folder = folder();
    for opening in 1..=2 {
        let mut database = Database::open(folder.path()).unwrap();
        let loaded = database.load().unwrap();
        assert_eq!(layers(&loaded), first(), "opening {opening}");
        assert_eq!(text(&loaded.notes), "last-reboot=a reason");
        assert_eq!(text(&loaded.restore), "eth0=mtu 1500 eth1=mtu 9000");
        assert_eq!(loaded.users[0].name, "ada");
        assert_eq!(artefacts(&mut database), "Authz policy v1 7 allow");
        assert_eq!(loaded.last_transaction, 3);
        assert_eq!((loaded.rolled_back, loaded.taken_back.len()), (2 - opening, 4));
    }
    let mut database = Database::open(folder.path()).unwrap();
    database.prepare(Ticket(1), &[change("a list, 050=fourth")]).unwrap();
    assert_eq!(database.block_work(), BlockWork { read: 1, written: 1, removed: 0 });
    database.commit(Ticket(1), 4, Unconfirmed::Stays).unwrap();
    assert_eq!(layers(&database.load().unwrap()), first().replace("050=first", "050=fourth"));
}

#[test]
fn an_interrupted_migration_leaves_the_file_as_it_was() {
    let folder = folder();
    let path = folder.path().join(FILE_NAME);
    let redb = redb::Database::open(&path).unwrap();
    crate::format::interrupt(&redb);
    drop(redb);
    let mut database = Database::open(folder.path()).unwrap();
    assert_eq!(layers(&database.load().unwrap()), first());
}

#[test]
fn a_file_of_a_newer_version_is_refused_and_left_alone() {
    let folder = folder();
    drop(Database::open(folder.path()).unwrap());
    let path = folder.path().join(FILE_NAME);
    crate::format::set_version(&path, 3);
    for _ in 0..2 {
        let error = Database::open(folder.path()).unwrap_err().to_string();
        let want =
            format!("the database `{}` has format 3, this version reads format 2", path.display());
        assert_eq!(error, want);
    }
    crate::format::set_version(&path, 2);
    assert_eq!(layers(&Database::open(folder.path()).unwrap().load().unwrap()), first());
}
